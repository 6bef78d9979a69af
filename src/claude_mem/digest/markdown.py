"""Read an agent's closing message as Markdown: its statements in order, each with its context.

A sentence taken out of its list or table loses its subject or its sense ("- 2 blob reads per file" is listed under
*Before*), so each statement keeps the heading above it, the sentence that introduces its list, and its bold label.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token

MAX_CHARS = 20_000  # of longer messages only the beginning and the end are read
MAX_STATEMENTS = 400

Kind = Literal["heading", "prose", "item", "row"]

_PARSER = MarkdownIt("commonmark", {"maxNesting": 20}).enable("table")
_SENTENCE_END = re.compile(
    r"(?<=[.!?。！？])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\betc\.)(?<!\bvs\.)(?<!:\s\d\.)(?:\s+(?=[A-Z`\"'(\[*_\d]|[a-z]+\()|(?<=[。！？]))"
)
_MARKS = re.compile(r"[✓✅✔☑✗❌✖⚠🎉🚀✨🚨➡]\ufe0f?\s*")
_TASK = re.compile(r"\[([ xX])\]\s+")


@dataclass(frozen=True, slots=True)
class Statement:
    """One sentence, list item, table row or heading. Inline code keeps its backticks; other markup is removed."""

    text: str
    kind: Kind
    section: str = ""  # the nearest heading above
    lead: str = ""  # the sentence, ending in a colon or a question mark, that introduces the list or table
    label: str = ""  # the bold or code beginning: `**Fix:** …`, `- \`path\` - …`
    first: bool = False  # first of its paragraph or item
    depth: int = 0  # nesting depth of the list; 0 outside lists
    position: int = 0
    is_done: bool | None = None  # state of a task list item
    number: str = ""  # of an ordered list's item
    strong: str = ""  # the longest bold words inside the sentence, after its label
    cells: tuple[tuple[str, str], ...] = ()  # of a row, after its label: each column's heading and content
    shown_line: str = ""  # for a lead-in: the first meaningful line of the code block or quotation it introduces

    @property
    def labelled(self) -> str:
        """The text with its label."""
        return f"{self.label}: {self.text}" if self.label else self.text


@dataclass(frozen=True, slots=True)
class Block:
    """A heading, paragraph, list or table, verbatim, and the section it is in."""

    source: str
    section: str
    lead: str  # the paragraph, ending in a colon, that introduces it

    @property
    def is_heading(self) -> bool:
        """Whether the block is a heading."""
        return self.section == self.source.strip("# *:：")


def read(message: str) -> list[Statement]:
    """Return the statements of a message in order, without code blocks and quotations."""
    return list(_MarkdownReader(_parsed(_bounded(message))).read())[:MAX_STATEMENTS]


@lru_cache(maxsize=8)
def _parsed(text: str) -> list[Token]:
    """Parse a message; cached, because statements and blocks are requested one after the other."""
    return _PARSER.parse(text)


def blocks(message: str) -> list[Block]:
    """Return the blocks of a message in order, verbatim, without code blocks, quotations and horizontal rules."""
    text = _bounded(message)
    lines = text.splitlines()
    result: list[Block] = []
    section = lead = ""
    tokens = _parsed(text)
    for index, token in enumerate(tokens):
        if (
            token.level
            or token.map is None
            or token.type in ("fence", "code_block", "blockquote_open", "hr", "html_block")
        ):
            continue
        source = "\n".join(lines[token.map[0] : token.map[1]]).strip()
        words = _plain(tokens[index + 1]) if token.type in ("heading_open", "paragraph_open") else ""
        bold = _bold_start(tokens[index + 1]) if words else ""
        if token.type == "heading_open" or (words and bold == words and not _is_sentence(words)):
            section = words.rstrip(":： ")
        result.append(Block(source, section, lead))
        lead = words if words.endswith((":", "：")) else ""
    return result


def _bounded(message: str) -> str:
    half = MAX_CHARS // 2
    return message if len(message) <= MAX_CHARS else f"{message[:half]}\n\n{message[-half:]}"


_NAMES_NOTHING = re.compile(r"(?i)#?\d{0,3}[.)]?|pass(?:ed)?|fail(?:ed)?|ok|yes|no|n/a|done")


class _MarkdownReader:
    """Walks over the parser's flat list of tokens and keeps track of open elements."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.section = ""
        self.leads: list[str] = []
        self.last = ""  # the last sentence of the previous paragraph
        self.quoted = 0
        self.number = ""
        self.position = 0
        self.shown_line = ""
        self.cells: tuple[tuple[str, str], ...] = ()

    def read(self) -> Iterator[Statement]:
        cells: list[str] = []
        heads: list[str] = []
        row: list[str] | None = None
        for index, token in enumerate(self.tokens):
            match token.type:
                case "bullet_list_open" | "ordered_list_open" | "table_open":
                    self.leads.append(self.last if self.last.endswith((":", "：", "?")) else "")
                    self.last = ""
                case "bullet_list_close" | "ordered_list_close" | "table_close":
                    self.leads.pop()
                    self.last = ""
                case "list_item_open":
                    self.number = token.info
                case "blockquote_open":
                    self.quoted += 1
                case "blockquote_close":
                    self.quoted -= 1
                case "thead_open":
                    heads, row = [], heads
                case "tr_open":
                    cells = []
                case "tr_close" if row is not None:
                    heads, row = cells, None
                case "tr_close":
                    yield from self._row(heads, cells)
                case "inline" if self.tokens[index - 1].type in ("th_open", "td_open"):
                    cells.append(_plain(token))
                case "inline" if not self.quoted:
                    self.shown_line = _first_shown_line(self.tokens, index)
                    yield from self._inline(token, self.tokens[index - 1].type == "heading_open")

    def _inline(self, token: Token, is_heading: bool) -> Iterator[Statement]:
        """Read a paragraph, item or heading. A line in it that begins in bold is a separate statement."""
        lead = ""
        for number, line in enumerate(_lines(token)):
            if number == 0 or not (number_mark := _LISTED.match(_plain(line))):
                yield from self._line(line, is_heading)
                continue
            lead = lead or (self.last if self.last.endswith((":", "：")) else "")
            self.leads.append(lead)
            yield from self._line(line, is_heading, start=number_mark.end())
            self.leads.pop()

    def _line(self, token: Token, is_heading: bool, *, start: int = 0) -> Iterator[Statement]:
        text, bold = _plain(token)[start:], _bold_start(token)
        if not text:
            return
        if is_heading or (bold == text and not _is_sentence(text) and not self.leads):
            self.section = text.rstrip(":： ")
            self.last = text if text.endswith(":") else ""
            yield self._statement(self.section, "heading")
            return
        is_done = None
        if self.leads and (task := _TASK.match(text)):
            is_done, text = task[1] != " ", text[task.end() :]
        label, rest = _split_label(text, bold)
        sentences = [part for part in _SENTENCE_END.split(rest) if part and part.strip()]
        kind: Kind = "item" if self.leads else "prose"
        spans = _bold_spans(token)
        for number, sentence in enumerate(sentences):
            statement = self._statement(
                sentence.strip(), kind, label=label if number == 0 else "", first=number == 0, is_done=is_done
            )
            if strong := max((span for span in spans if span in sentence), key=len, default=""):
                statement = replace(statement, strong=strong)
            leads_on = self.shown_line and number == len(sentences) - 1 and statement.text.endswith((":", "："))
            yield replace(statement, shown_line=self.shown_line) if leads_on else statement
        self.last = sentences[-1].strip() if sentences else f"{label}:"

    def _row(self, heads: Sequence[str], cells: Sequence[str]) -> Iterator[Statement]:
        """Read a row as its first telling cell and the others, each with the heading of its own column. A number or a
        mark in the first column names nothing."""
        columns = [*heads, *[""] * (len(cells) - len(heads))]
        filled = [(head, cell) for head, cell in zip(columns, cells, strict=False) if cell.strip("-–— ")]
        while len(filled) > 2 and _NAMES_NOTHING.fullmatch(filled[0][1]):
            filled = filled[1:]
        if len(filled) > 1:
            (_, label), *rest = filled
            pairs = [f"{head}: {cell}" if head else cell for head, cell in rest]
            self.cells = tuple(rest)
            yield self._statement(rest[0][1] if len(rest) == 1 else "; ".join(pairs), "row", label=label, first=True)
            self.cells = ()

    def _statement(
        self, text: str, kind: Kind, *, label: str = "", first: bool = False, is_done: bool | None = None
    ) -> Statement:
        self.position += 1
        lead = next((lead for lead in reversed(self.leads) if lead), "")
        number = self.number or _numbered(label)
        return Statement(
            text,
            kind,
            self.section,
            lead,
            label,
            first,
            len(self.leads),
            self.position,
            is_done,
            number,
            cells=self.cells,
        )


_PROGRAM = re.compile(
    r"(?i)(?:go|golang|py|python|tsx?|jsx?|javascript|typescript|java|rust|rs|c|cpp|json|ya?ml|toml|markdown|md|sql|css|html|diff|ruby|rb)\b"
)


def _first_shown_line(tokens: Sequence[Token], index: int) -> str:
    """Return the first meaningful line after a paragraph, from a quotation or a block that is not source code."""
    after = tokens[index + 2] if index + 2 < len(tokens) else None
    if after is None or tokens[index - 1].type != "paragraph_open":
        return ""
    if after.type == "blockquote_open":
        text = next((token.content for token in tokens[index + 3 : index + 6] if token.type == "inline"), "")
    elif after.type in ("fence", "code_block") and not _PROGRAM.match(after.info.strip()):
        text = after.content
    else:
        return ""
    lines = (" ".join(_MARKS.sub("", line[:400]).split()) for line in text[:4_000].splitlines()[:12])
    return next((line for line in lines if len(re.findall(r"[^\W\d_]{2,}", line)) >= 2), "")


def _lines(token: Token) -> list[Token]:
    """Split inline content where a new line begins in bold (`**Before:** …`) or with a number (`8. User starts …`): only
    a list that begins with 1 can follow a paragraph without an empty line."""
    parts: list[list[Token]] = [[]]
    children = token.children or []
    for child, after in zip_longest(children, children[1:]):
        if child.type in ("softbreak", "hardbreak") and after is not None and _begins_line(after, parts[-1]):
            parts.append([])
        else:
            parts[-1].append(child)
    return [Token("inline", "", 0, children=part) for part in parts if part]


_LISTED = re.compile(r"\d{1,2}[.)] ")


def _begins_line(after: Token, line: list[Token]) -> bool:
    """Return whether a statement of its own begins after a line break."""
    if after.type != "text" or not _LISTED.match(after.content):
        return after.type == "strong_open"
    before = _plain(Token("inline", "", 0, children=line))
    return before.endswith((":", "：")) or bool(_LISTED.match(before))


def _is_sentence(text: str) -> bool:
    """Return whether the text is a claim, with a verb and a full stop, rather than a heading."""
    return text.endswith((".", "!")) and len(text.split()) >= 3


def _numbered(label: str) -> str:
    """Return the number of a label such as `Option 2` or `B)`, in lower case."""
    match = re.match(r"(?i)(?:option|approach|step)?\s{0,2}#?(\d{1,2}|[a-e])\b[.):]?", label)
    return match[1].lower() if match else ""


def _plain(token: Token) -> str:
    """Return the words of inline content: code in backticks, links by their text, no other markup."""
    parts = []
    for child in token.children or ():
        if child.type == "code_inline":
            parts.append(f"`{child.content}`")
        elif child.type in ("softbreak", "hardbreak"):
            parts.append(" ")
        elif child.type in ("text", "html_inline"):
            parts.append(child.content)
    return " ".join(_MARKS.sub("", "".join(parts)).split())


def _bold_start(token: Token) -> str:
    """Return the bold words or the code at the beginning of inline content."""
    children = [child for child in token.children or () if child.type != "text" or child.content.strip()]
    if not children:
        return ""
    if children[0].type == "code_inline":
        return f"`{children[0].content}`"
    if children[0].type != "strong_open":
        return ""
    inside = []
    for child in children[1:]:
        if child.type == "strong_close":
            break
        inside.append(child)
    bold = Token("inline", "", 0, children=inside)
    return _plain(bold)


def _bold_spans(token: Token) -> list[str]:
    """Return the bold words of inline content, each span as plain text."""
    spans: list[str] = []
    inside: list[Token] | None = None
    for child in token.children or ():
        if child.type == "strong_open":
            inside = []
        elif child.type == "strong_close" and inside is not None:
            spans.append(_plain(Token("inline", "", 0, children=inside)))
            inside = None
        elif inside is not None:
            inside.append(child)
    return [span for span in spans if len(span) > 3]


def _split_label(text: str, bold: str) -> tuple[str, str]:
    """Split `Fix: made detection deterministic` where the part before the colon or dash is marked as a label."""
    if not bold or not text.startswith(bold):
        return "", text
    rest = text[len(bold) :]
    if bold.endswith((":", "：")):
        return bold.rstrip(":： "), rest.strip() or text
    if match := re.match(r"\s{0,2}(?:\([^)]{1,80}\))?\s{0,2}(?::|[-–—]|→)\s{1,3}(?=\S)", rest):
        return bold + rest[: match.end()].rstrip(" :-–—→").rstrip(), rest[match.end() :]
    if not rest.strip() and not _is_sentence(text) and len(text) < 80:
        return "", text
    return "", text
