"""A tolerant parser for a model's reply about one turn.

Models forget a closing tag, wrap everything in a code fence, invent a child tag, or report in prose that no user is
logged in. Dropping such a reply wastes a request that was paid for, so everything that can be parsed is used, and only
a reply without any usable part is unparseable. Guarantees: `parse_reply` never raises, its running time is linear in
the length of the reply, every text in its result has a maximum length, and records that were merely part of the material
shown to the model are not returned as the model's own.

The main rule: a field with a closing tag ends there, and every tag before it is text, so that a narrative may mention
the `<title>` of a page; a field without a closing tag ends at the next tag that is valid in its block.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import unescape
from html.entities import html5
from itertools import chain, islice

from claude_mem.digest.models.base import Request, Verdict
from claude_mem.domain.records import Summary
from claude_mem.domain.text import first_sentence, make_storable, normalize_title, shorten, strip_invisible
from claude_mem.privacy.tags import strip_private

REPLY_CHARS = 200_000
PROSE_CHARS = 2_000  # errors and refusals are shorter; longer prose is a failed answer, whatever its wording
MESSAGE_CHARS = 300
TITLE_CHARS = 160
SUBTITLE_CHARS = 240
NARRATIVE_CHARS = 2_000
FACT_CHARS = 400
PART_CHARS = 1_200  # of a summary
SESSION_TITLE_CHARS = 100
SESSION_SUBTITLE_CHARS = 140
PATH_CHARS = 500
MAX_OBSERVATIONS = 8
MAX_FACTS = 12
MAX_CONCEPTS = 8
MAX_FILES = 30
MAX_ITEMS_READ = 1_000  # items read from one list
MAX_REJECTED = 64  # each is compared with the material shown to the model, so the number is limited
# Of one record in the material: a mere mention of `<observation>` must not make all that follows a record.
PLANTED_CHARS = 8_000
DISTINCTIVE_CHARS = 16  # a shorter title may occur in the material by chance


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedObservation:
    """One observation as the model wrote it. The caller, which has the events, adds the evidence."""

    type: str
    title: str = ""
    subtitle: str = ""
    narrative: str = ""
    facts: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    files_read: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReply:
    """The parsed reply. `message` has the reason if the verdict is neither OK nor EMPTY."""

    verdict: Verdict
    observations: tuple[ParsedObservation, ...] = ()
    summary: Summary | None = None
    skipped: str = ""  # the reason the model gave for having no summary
    title: str = ""  # of the session
    subtitle: str = ""
    message: str = ""


def parse_reply(text: str, request: Request, *, types: Collection[str], concepts: Collection[str]) -> ParsedReply:
    """Parse a reply. `types` and `concepts` are those of the mode, in its order, that the model had to choose from."""
    if not strip_invisible(text).strip():
        return _unparseable("the reply was empty")
    if request.fence and request.fence in text:
        return _unparseable("the reply repeats the request")
    text = _whole_tags(_without_hidden(_without_sections(text[:REPLY_CHARS])))
    tags = _tags(text)
    if not tags:
        return _prose(text)
    blocks = _Walk(text, tags).run()
    parsed_blocks = (
        (block, observation) for block in blocks if (observation := _parse_observation(block, types, concepts))
    )
    own_observations, rejected_count = _own_observations(parsed_blocks, text, _planted_records(request))
    parsed = _assemble(text, blocks, own_observations)
    if rejected_count and parsed.verdict is not Verdict.OK:
        return _unparseable("the reply only repeats records from the material it was shown")
    return parsed


def _assemble(text: str, blocks: Sequence[_Block], observations: tuple[ParsedObservation, ...]) -> ParsedReply:
    summary = _summary([block for block in blocks if block.name == "summary"])
    session = [block for block in blocks if block.name == "session"]
    title = _first_value(session, "title", SESSION_TITLE_CHARS)
    if not (observations or summary or title or any(_says_nothing(text, block) for block in blocks)):
        return _unparseable("the reply has tags, but no usable content in them")
    return ParsedReply(
        verdict=Verdict.OK if observations or summary else Verdict.EMPTY,
        observations=observations,
        summary=summary,
        skipped=next((reason for block in blocks if (reason := _reason(text, block))), ""),
        title=title,
        subtitle=_first_value(session, "subtitle", SESSION_SUBTITLE_CHARS),
    )


def _says_nothing(text: str, block: _Block) -> bool:
    """Return whether the block is one of the ways to say that there is nothing worth remembering."""
    if block.name == "observations":
        return not _clean(text[block.start : block.end])
    return block.name in ("skip_summary", "no_observations")


def _unparseable(message: str) -> ParsedReply:
    return ParsedReply(verdict=Verdict.UNPARSEABLE, message=message)


# --- preparing the text ----------------------------------------------------------------------------------------------

_SECTION = re.compile(r"<!--|<!\[CDATA\[")
_SECTION_ENDS = {"<!--": "-->", "<![CDATA[": "]]>"}
_HIDDEN = ("private", "claude-mem-context")
_HIDDEN_TAG = re.compile(rf"<(?P<close>/?)\s?(?P<name>{'|'.join(_HIDDEN)})(?![\w-])[^<>]*+>", re.I | re.A)


def _without_sections(text: str) -> str:
    """Remove comments and escape the content of CDATA sections, so that later steps see only one kind of text."""
    pieces: list[str] = []
    position = 0
    unclosed: set[str] = set()  # not searched again: a search to the end for each opening would take quadratic time
    while mark := _SECTION.search(text, position):
        pieces.append(text[position : mark.start()])
        close = _SECTION_ENDS[mark[0]]
        end = -1 if close in unclosed else text.find(close, mark.end())
        if end < 0:
            unclosed.add(close)
            position = mark.end()
            continue
        if close == "]]>":
            pieces.append(text[mark.end() : end].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
        position = end + len(close)
    return "".join([*pieces, text[position:]])


def _without_hidden(text: str) -> str:
    """Remove closed private parts first, because they may span several fields.

    An unclosed one is left to its field, where it hides the rest: a mention of the tag must not discard the whole
    reply.
    """
    pieces: list[str] = []
    position = 0
    for start, end in _hidden_spans(text):
        pieces.append(text[position:start])
        position = end
    return "".join([*pieces, text[position:]])


def _hidden_spans(text: str) -> list[tuple[int, int]]:
    """Return the spans from each opening tag to its closing tag, in order, without spans nested in another."""
    opened: dict[str, list[int]] = {name: [] for name in _HIDDEN}
    spans: list[tuple[int, int]] = []
    for tag in _HIDDEN_TAG.finditer(text):
        starts = opened[tag["name"].lower()]
        if not tag["close"]:
            starts.append(tag.start())
        elif starts:
            start = starts.pop()
            while spans and spans[-1][0] > start:
                spans.pop()
            spans.append((start, tag.end()))
    return spans


def _whole_tags(text: str) -> str:
    """Remove an incomplete tag at the end of a truncated reply."""
    last = text.rfind("<")
    return text[:last] if last >= 0 and re.fullmatch(r"</?[a-z_-]*", text[last:], re.I) else text


# --- tags and blocks -------------------------------------------------------------------------------------------------

_FILE_LISTS = ("files_read", "files_modified")
_ITEMS = {"fact": "facts", "concept": "concepts", "file": ""}  # "": belongs to the file list opened last
_OBSERVATION_FIELDS = frozenset(
    ("type", "title", "subtitle", "narrative", "facts", "concepts", *_FILE_LISTS, *_ITEMS),
)
_SUMMARY_FIELDS = ("request", "investigated", "learned", "completed", "next_steps", "notes", "outcome")
_OUTCOMES = frozenset(("done", "partly", "failed", "abandoned", "answered", "proposed"))
# The blocks and the fields valid in each. Fields outside any block ("") may still belong to an observation.
_BLOCKS: dict[str, frozenset[str]] = {
    "": _OBSERVATION_FIELDS,
    "observation": _OBSERVATION_FIELDS,
    "observations": _OBSERVATION_FIELDS,
    "summary": frozenset(_SUMMARY_FIELDS),
    "session": frozenset(("title", "subtitle")),
    "skip_summary": frozenset(),
    "no_observations": frozenset(),
}
_NAMES = sorted({*_BLOCKS, *_OBSERVATION_FIELDS, *_SUMMARY_FIELDS} - {""})
_BY_LETTERS = {name.replace("_", ""): name for name in _NAMES}
_MISSPELLED = "obs|obse?r?v[a-z]{1,6}n|oberv[a-z]{1,6}n"  # all read as "observation"
# Attributes end at the next bracket, so each character is scanned for one tag only.
_TAG = re.compile(
    rf"<(?P<close>/\s?)?(?P<name>{'|'.join(_NAMES).replace('_', '[_-]?')}|{_MISSPELLED}|{'|'.join(_HIDDEN)})(?![\w.:-])"
    r"""(?P<attributes>(?:[^<>"']++|"[^"<]*+"|'[^'<]*+'|["'])*+)(?P<end>>?)""",
    re.I | re.A,
)
_ATTRIBUTE = re.compile(r"""(?<![\w-])([\w-]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'/]++))""")


@dataclass(frozen=True, slots=True)
class _Tag:
    name: str
    start: int
    end: int
    closing: bool
    self_closing: bool  # `<title/>`
    attributes: str


@dataclass(slots=True)
class _Block:
    """A run of fields with all values of each. `closing_index` is the index of the closing tag among the tags, or -1."""

    name: str
    start: int
    end: int
    closing_index: int = -1
    attributes: dict[str, str] = field(default_factory=dict)
    file_list: str = ""
    fields: dict[str, list[str]] = field(default_factory=dict)


def _tags(text: str) -> list[_Tag]:
    return [tag for match in _TAG.finditer(text) if (tag := _tag(match))]


def _tag(match: re.Match[str]) -> _Tag | None:
    name = match["name"].lower()
    if name not in _HIDDEN:
        name = _BY_LETTERS.get(re.sub("[_-]", "", name), "observation")
    if not match["end"] and name != "skip_summary":  # its reason may contain a bracket
        return None
    return _Tag(
        name=name,
        start=match.start(),
        end=match.end(),
        closing=bool(match["close"]),
        self_closing=match["attributes"].rstrip().endswith("/"),
        attributes=match["attributes"],
    )


def _closings(tags: Sequence[_Tag]) -> list[int]:
    """Return the index of each tag's closing tag: the next tag of its name, if that one is closing; else -1."""
    closings = [-1] * len(tags)
    following: dict[str, int] = {}
    for index in range(len(tags) - 1, -1, -1):
        tag = tags[index]
        if tag.self_closing:
            continue
        after = following.get(tag.name, -1)
        if not tag.closing and after >= 0 and tags[after].closing:
            closings[index] = after
        following[tag.name] = index
    return closings


class _Walk:
    """One pass over all tags. `block` is the current block. `enclosing` is the enclosing observation, if a model put a
    summary inside one: it continues when the inner block ends."""

    def __init__(self, text: str, tags: Sequence[_Tag]) -> None:
        self.text, self.tags, self.closings = text, tags, _closings(tags)
        self.blocks: list[_Block] = []
        self.block = self.begin_block("", 0)
        self.enclosing: _Block | None = None

    def run(self) -> list[_Block]:
        """Return all blocks in order. Text outside any block forms a block without a name."""
        index = 0
        while index < len(self.tags):
            tag = self.tags[index]
            if tag.name in _HIDDEN and not tag.closing:
                break  # unclosed: everything that follows is hidden
            if tag.name in _BLOCKS:
                index = self.handle_block_tag(index)
            elif tag.name in _BLOCKS[self.block.name] and not tag.closing and not tag.self_closing:
                index = self.handle_field(index)
            else:
                index += 1
        return self.blocks

    def begin_block(self, name: str, start: int, closing_index: int = -1, attributes: str = "") -> _Block:
        is_closed = name == "observation" and closing_index >= 0
        end = self.tags[closing_index].start if is_closed else len(self.text)
        self.blocks.append(_Block(name, start, end, closing_index, _attributes(attributes)))
        return self.blocks[-1]

    def handle_block_tag(self, index: int) -> int:
        """Handle the tag of a block: end the previous block and, for an opening tag, begin a new one."""
        tag, previous = self.tags[index], self.block
        inside = previous.name == "observation" and index < previous.closing_index
        previous.end = previous.end if inside else min(previous.end, tag.start)
        self.enclosing = previous if inside else self.enclosing
        if self.enclosing and index >= self.enclosing.closing_index:
            self.enclosing = None
        if not tag.closing:
            self.block = self.begin_block(tag.name, tag.end, self.closings[index], tag.attributes)
        if tag.self_closing:
            self.block.end = tag.end
        if tag.closing or tag.self_closing:
            self.block = self.enclosing or self.begin_block("", tag.end)
        return index + 1

    def handle_field(self, index: int) -> int:
        """Add the field that begins here to the block. Returns the index of the next tag to handle."""
        tag, block, closing = self.tags[index], self.block, self.closings[index]
        if closing < 0 and block.name in ("", "observations"):
            return index + 1  # outside an observation, an unclosed tag is part of a sentence
        after = closing if closing >= 0 else self.next_tag_in_block(index + 1)
        end = self.tags[after].start if after < len(self.tags) else len(self.text)
        value = self.text[tag.start if tag.name in _ITEMS else tag.end : end]
        name = _ITEMS.get(tag.name, tag.name) or block.file_list
        block.fields.setdefault(name, []).append(value if closing >= 0 else _without_fence(value))
        block.file_list = tag.name if tag.name in _FILE_LISTS else block.file_list
        return after

    def next_tag_in_block(self, index: int) -> int:
        field_names = _BLOCKS[self.block.name]
        while (
            index < len(self.tags) and self.tags[index].name not in field_names and self.tags[index].name not in _BLOCKS
        ):
            index += 1
        return index


def _attributes(text: str) -> dict[str, str]:
    """Parse attributes; the first of each name wins. Only the first thousand characters are read."""
    attributes: dict[str, str] = {}
    for name, *values in _ATTRIBUTE.findall(text[:1000]):
        attributes.setdefault(name.lower(), "".join(values))
    return attributes


def _without_fence(text: str) -> str:
    """Remove the closing code fence that an unclosed field at the end of a fenced reply contains."""
    text = text.rstrip()
    return text[:-3] if text.endswith("```") and text.count("```") % 2 else text


# --- fields ----------------------------------------------------------------------------------------------------------

_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")
_EMPTY_WORDS = frozenset(("", "-", "–", "—", "none", "n/a", "null", "nothing"))  # what models write into an empty field
_CHILD = re.compile(r"<(?P<close>/?)(?P<name>fact|concept|file|path|item|li|entry|bullet|point)(?![\w.:-])[^<>]*+>", re.I | re.A)  # fmt: skip
_LIST = re.compile(r"</?(?:ul|ol|list|items)(?![\w.:-])[^<>]*+>", re.I | re.A)
_BULLET = re.compile(r"\s*+(?:[-*+•–]|\d{1,2}[.)])\s++")


def _decoded(text: str) -> str:
    """Decode entities that have a semicolon: `&copy=1` in a URL is not a copyright sign."""
    return _ENTITY.sub(lambda match: _character(match[0]), text)


def _character(entity: str) -> str:
    return unescape(entity) if entity[1] == "#" or entity[1:] in html5 else entity


def _clean(raw: str) -> str:
    text = strip_invisible(_decoded(raw).replace("\r\n", "\n").replace("\r", "\n"))
    text = strip_private(make_storable(text)).strip()  # after decoding: otherwise an encoded tag would survive
    return "" if text.strip(" .()").lower() in _EMPTY_WORDS else text


def _line(raw: str, limit: int) -> str:
    return shorten(_clean(raw), limit)


def _paragraphs(raw: str, limit: int) -> str:
    """Clean a text of several lines: keep line breaks, drop the XML indentation, limit the length."""
    lines = [" ".join(line.split()) for line in _clean(raw).split("\n")]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    space = max(cut.rfind(" "), cut.rfind("\n"))
    return (cut[:space] if space > limit // 2 else cut).rstrip() + "…"


def _first_value(blocks: Iterable[_Block], name: str, limit: int, read_as: Callable[[str, int], str] = _line) -> str:
    """Return the first non-empty value of a field; an attribute of that name counts if there is no child element."""
    children = (raw for block in blocks for raw in block.fields.get(name, ()))
    attributes = (block.attributes.get(name, "") for block in blocks)
    return next((text for raw in chain(children, attributes) if (text := read_as(raw, limit))), "")


def _items(block: _Block, name: str) -> Iterator[str]:
    """Yield the items of all lists of that name. Commas do not separate facts, which are sentences."""
    separators = "\n" if name == "facts" else "\n,"
    items = (item for raw in block.fields.get(name, ()) for item in _list_items(raw, separators))
    for item in islice(items, MAX_ITEMS_READ):
        bullet = _BULLET.match(item)
        yield item[bullet.end() :] if bullet else item


def _distinct(texts: Iterable[str], most: int) -> tuple[str, ...]:
    return tuple(islice(filter(None, dict.fromkeys(texts)), most))


def _list_items(raw: str, separators: str) -> Iterator[str]:
    """Yield the items of a list, written as child elements, lines, bullets or a JSON array."""
    first = _CHILD.search(raw)
    if first is None:
        yield from _array(raw) or _lines(_LIST.sub("\n", raw), separators)
        return
    position, inside = 0, False
    for tag in _CHILD.finditer(raw):
        if tag["name"].lower() == first["name"].lower():  # a different tag in between is part of the text
            yield from _child(raw[position : tag.start()], inside, separators)
            position, inside = tag.end(), not tag["close"] and not tag[0].endswith("/>")
    yield from _child(raw[position:], inside, separators)


def _child(piece: str, inside: bool, separators: str) -> Iterable[str]:
    if not inside:
        return _lines(_LIST.sub("\n", _CHILD.sub("\n", piece)), separators)
    lines = [line for line in piece.split("\n") if line.strip()]
    return _lines(piece, "\n") if all(map(_BULLET.match, lines)) else (piece,)


def _array(raw: str) -> list[str]:
    raw = raw.strip()
    if not (raw.startswith('["') and raw.endswith('"]')):
        return []
    try:
        return [item for item in json.loads(raw) if isinstance(item, str)]
    except (ValueError, RecursionError):
        return []


def _lines(text: str, separators: str) -> list[str]:
    """Split into one item per line. If there are bullets, a line without one continues the previous item."""
    lines = [line for line in re.split(f"[{separators}]", text.replace("•", "\n• ")) if line.strip()]
    bulleted = any(map(_BULLET.match, lines))
    items: list[list[str]] = []
    for line in lines:
        if bulleted and items and not _BULLET.match(line):
            items[-1].append(line)
        else:
            items.append([line])
    return [" ".join(item) for item in items]


# --- observations ----------------------------------------------------------------------------------------------------


def _own_observations(
    parsed_blocks: Iterable[tuple[_Block, ParsedObservation]], text: str, planted: _Planted
) -> tuple[tuple[ParsedObservation, ...], int]:
    """Return the model's own observations and the number of rejected ones: copies, or answers to another request."""
    observations: list[ParsedObservation] = []
    rejected_count = 0
    for block, observation in parsed_blocks:
        block_words = " ".join(_field_words(text[block.start : block.end]))
        if _is_foreign(block) or planted.contains(_words(observation.title)) or planted.contains(block_words):
            rejected_count += 1
        else:
            observations.append(observation)
        if len(observations) == MAX_OBSERVATIONS or rejected_count == MAX_REJECTED:
            break
    return tuple(observations), rejected_count


def _parse_observation(block: _Block, types: Collection[str], concepts: Collection[str]) -> ParsedObservation | None:
    if block.name not in ("", "observation", "observations"):
        return None
    title = _first_value([block], "title", TITLE_CHARS)
    narrative = _first_value([block], "narrative", NARRATIVE_CHARS, _paragraphs)
    facts = _distinct((_line(raw, FACT_CHARS) for raw in _items(block, "facts")), MAX_FACTS)
    if not (narrative or facts or (title and block.name == "observation")):
        return None  # outside an observation, a title alone may belong to anything
    kind = _type(_first_value([block], "type", 80), types)
    by_letters = {_letters(name): name for name in concepts if _letters(name) != _letters(kind)}
    return ParsedObservation(
        type=kind,
        title=title or first_sentence(narrative or facts[0], TITLE_CHARS),
        subtitle=_first_value([block], "subtitle", SUBTITLE_CHARS),
        narrative=narrative,
        facts=facts,
        concepts=_distinct(
            (by_letters.get(_letters(_clean(raw)), "") for raw in _items(block, "concepts")), MAX_CONCEPTS
        ),
        files_read=_distinct(map(_path, _items(block, "files_read")), MAX_FILES),
        files_modified=_distinct(map(_path, _items(block, "files_modified")), MAX_FILES),
    )


def _letters(name: str) -> str:
    """Normalise a name, so that `bug_fix`, `Bug-fix` and `bugfix` are equal."""
    return re.sub(r"[\W_]+", "", name.split(":", 1)[0]).lower()


def _type(name: str, types: Collection[str]) -> str:
    by_letters = {_letters(each): each for each in types}
    default = "change" if "change" in types else next(iter(types), "change")
    return by_letters.get(_letters(name), default)


def _path(raw: str) -> str:
    """Clean a path; a path that is too long is dropped, because a truncated one is useless."""
    path = " ".join(_clean(raw).strip("`\"'").split())
    return path if len(path) <= PATH_CHARS else ""


def _is_foreign(block: _Block) -> bool:
    """Return whether the block claims to answer another request. Ours have no ids; a number of up to two digits only
    counts the records."""
    values = [block.attributes.get(name, "").strip() for name in ("for", "request", "id")]
    return any(name and not re.fullmatch("[0-9]{1,2}", name) for name in values)


@dataclass(frozen=True, slots=True)
class _Planted:
    """The words of all observations in the material shown to the model.

    A tool's output may contain records in order to be taken for the answer. Case, spacing and punctuation are ignored,
    because building the request changes them.
    """

    fields: frozenset[str]
    words: str

    def contains(self, words: str) -> bool:
        """Return whether the words occur as a whole field, or anywhere if they are too long for a coincidence."""
        return words in self.fields or (len(words) >= DISTINCTIVE_CHARS and f" {words} " in self.words)


def _planted_records(request: Request) -> _Planted:
    material = _decoded(f"{request.system}\n{request.prompt}")
    material = re.sub(r"\\u003c", "<", re.sub(r"\\u003e", ">", material, flags=re.I), flags=re.I).replace("<\\/", "</")
    tags = [each for each in _tags(material) if each.name == "observation"]
    ends = [*(each.start for each in tags[1:]), len(material)]
    fields: list[str] = []
    for tag, end in zip(tags, ends, strict=False):
        if not tag.closing:
            fields += _field_words(material[tag.end : min(end, tag.end + PLANTED_CHARS)])
    return _Planted(frozenset(fields), f" {' '.join(fields)} ")


def _field_words(text: str) -> list[str]:
    """Return the words between the tags, without empty pieces."""
    return [words for piece in _TAG.sub("\0", text).split("\0") if (words := _words(piece))]


def _words(text: str) -> str:
    return normalize_title(re.sub(r"(?<!\\)\\++[nrt]", " ", _decoded(text)))


# --- summary and outcome ---------------------------------------------------------------------------------------------


def _summary(blocks: Sequence[_Block]) -> Summary | None:
    def part(name: str) -> str:
        return _first_value(blocks, name, PART_CHARS, _paragraphs)

    summary = Summary(
        request=part("request"),
        investigated=part("investigated"),
        learned=part("learned"),
        completed=part("completed"),
        next_steps=part("next_steps"),
        notes=part("notes"),
    )
    return (
        None
        if summary == Summary()
        else replace(summary, outcome=_outcome(_first_value(blocks, "outcome", SUBTITLE_CHARS)))
    )


def _outcome(words: str) -> str:
    """Return the outcome if the first word is one, else "". Some models add a reason after it."""
    first = re.match(r"[^\W\d_]+", words.lower())
    return first[0] if first and first[0] in _OUTCOMES else ""


def _reason(text: str, block: _Block) -> str:
    """Return why there is no summary. Our prompt asks for an attribute; some models write it as text."""
    if block.name != "skip_summary":
        return ""
    inner_text = text[block.start : block.end] if block.closing_index >= 0 else ""
    return _line(block.attributes.get("reason", ""), SUBTITLE_CHARS) or _line(inner_text, SUBTITLE_CHARS)


# --- replies without tags --------------------------------------------------------------------------------------------

# A provider's error begins a sentence, follows "error:" or is a JSON value, and usually ends a sentence. The same words
# in the middle of a sentence are a model talking about them: a false alarm would stop all refining until a person
# looks.
_BEGINS = r"""(?:^[^\w\n]*|[.!?·∙|]\s+|\berror(?::|\ \d{3})[^a-z\n]{0,20}|["']:\s*["'])"""
_ENDS = r"(?=\s*(?:[^\w\s]|$)|\s+(?:provided|for|until|resets?|please|try)\b)"
_LOGIN = rf"""
      please\ (?:run|use)\ `?/login | authentication_error\b
    | (?: (?:invalid|incorrect)\ (?:(?:x-)?api[ -]key|bearer\ token) | failed\ to\ authenticate
        | (?:your\ )?api\ key\ (?:is\ |was\ |has\ been\ )?(?:not\ valid|invalid|missing|expired|revoked|disabled)
        | (?:your\ )?oauth\ (?:access\ )?(?:token|session)\ (?:has\ |is\ |was\ |has\ been\ )?(?:expired|revoked|invalid)
        | (?:you(?:'re|\ are)\ |claude(?:\ code)?\ is\ )?not\ (?:currently\ )?logged\ in ){_ENDS}"""
_LIMIT = rf"""
      you(?:'ve|\ have)?\ (?:hit|reached|exceeded|used\ up)\ your\ [^.\n]{{0,60}}?\b(?:limits?|quota|cap)\b
    | you(?:'re|\ are)\ out\ of\ (?:extra\ )?(?:usage|credits?)\b
    | your\ [\w' ]{{1,40}}\ has\ (?:hit|reached|exceeded)\ (?:its|the|your)\ [^.\n]{{0,60}}?\b(?:limits?|quota|cap)\b
    | this\ request\ would\ exceed\ your\ [^.\n]{{0,60}}?\blimits?\b | (?:your\ )?credit\ balance\ is\ too\ low
    | insufficient_quota\b | enforced_spend_limit_reached\b
    | (?: (?:(?:your|the|claude|ai|code|pro|max|api|account|monthly|weekly|daily|extra)\ ){{0,5}}
          (?:usage|rate|spend(?:ing)?|weekly|daily|monthly|session|opus|sonnet|haiku|key|\d{{1,2}}-?\ ?hours?)\ (?:limits?|cap)
          (?:\ (?:has\ been\ |was\ |is\ )?(?:reached|exceeded|hit))?
        | (?:your\ |api\ |usage\ |current\ )?quota\ (?:has\ been\ |was\ |is\ )?exceeded ){_ENDS}"""
_REFUSAL = r"""
      (?:(?:i'm\ |i\ am\ )?(?:very\ )?sorry|unfortunately|i\ apologi[sz]e)(?:\W+but)?\W+i(?:\ can't|\ cannot|\ can\ not|\ won't|'m\ |\ am\ |\ must)
    | i\ (?:can't|cannot|can\ not|could\ not|couldn't)\ (?:help|assist|comply|fulfil|do|provide|process|complete|produce|create|write
                      |continue|support|engage|share|generate|summari[sz]e|record|respond|answer|discuss|participate)
    | i(?:'m|\ am)\ (?:unable|not\ able)\ to\b | i\ (?:won't|will\ not|must\ decline|decline|refuse)\b"""
_PROSE = tuple(
    (verdict, re.compile(f"{_BEGINS}(?:{words})", re.I | re.M | re.X))
    for verdict, words in ((Verdict.AUTH, _LOGIN), (Verdict.QUOTA, _LIMIT), (Verdict.REFUSED, _REFUSAL))
)


def _prose(text: str) -> ParsedReply:
    """Classify a reply without our tags. Refusals, quota and login errors are short and come at the beginning."""
    text = make_storable(strip_invisible(text)).strip()
    opening = text[:500].replace("’", "'") if len(text) <= PROSE_CHARS else ""
    for verdict, words in _PROSE:
        if words.search(opening):
            return ParsedReply(verdict=verdict, message=shorten(text, MESSAGE_CHARS))
    return _unparseable("the reply has none of the requested tags")
