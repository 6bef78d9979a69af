"""What a diff did, from its lines: definitions added, removed or changed, their comments, and small replacements."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from claude_mem.domain.records import ToolUsed

MAX_SWAPS = 12
RUN_LINES = 8  # longer runs count as rewritten
LINE_CHARS = 400

_TOKEN = re.compile(
    r"\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+'|`[^`\n]*+`|\d[\w.]*+|[A-Za-z_$][\w$]*+|\s++|[^\w\s]|\w"
)
_NAME = re.compile(r"[A-Za-z_$][\w$]{2,60}")
_TEXT = re.compile(r"[\"'`](?P<text>[^\n]{3,200})[\"'`]")
_VALUE = re.compile(r"\d[\w.]{0,20}|true|false|True|False|None|nil|null")
_COMMENT = re.compile(r"^\s{0,80}(?://+|#|\*|/\*\*?|\"\"\"|''')\s?(?P<text>.*)$")
_COMMENT_END = ("*/", '"""', "'''")
_DEFINITION = re.compile(
    r"""(?x)^\s*(?:export\s+|default\s+|public\s+|private\s+|protected\s+|static\s+|async\s+|abstract\s+|final\s+|pub(?:\([a-z]+\))?\s+|unsafe\s+)*
    (?:def|class|func|function|fn|type|interface|struct|enum|trait|impl|module|protocol|record|object)\s+
    (?:\([^)]{0,80}\)\s*)?                      # the receiver of a method in Go
    (?P<name>[A-Za-z_$][\w$]*)(?!\w|\s*,)     # a name before a comma is one of a list that is imported
    """
)
_ARROW = re.compile(
    r"^\s*(?:export\s+)?(?:const|let|var)\s+(?P<name>[A-Za-z_$][\w$]*)\s*(?::[^=]{1,80})?=\s*(?:async\s*)?(?:\([^)]{0,200}\)|\w+)\s*=>"
)
_MAX_LINES = 4_000
_MAX_FILE_LINES = 20_000


@dataclass(frozen=True, slots=True)
class Swap:
    """A part of a line that was replaced: a name, a quoted text or a value."""

    kind: str  # name | text | value
    old: str
    new: str
    key: str = ""  # the name to which a value was assigned


def swaps(lines: Sequence[str]) -> Iterator[Swap]:
    """Return the small replacements of a diff: lines that were replaced one by one and differ in a single part."""
    count = 0
    for old, new in _replaced(lines):
        if count < MAX_SWAPS and (swap := _swap(old, new)):
            count += 1
            yield swap


def _replaced(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of lines where as many lines were added as were removed directly before."""
    removed: list[str] = []
    added: list[str] = []
    for line in (*lines, " "):
        if line.startswith("-") and not added:
            removed.append(line[1:])
        elif line.startswith("+") and removed:
            added.append(line[1:])
        else:
            if 0 < len(removed) == len(added) <= RUN_LINES:
                yield from zip(removed, added, strict=True)
            removed, added = ([line[1:]] if line.startswith("-") else []), []


def _swap(old: str, new: str) -> Swap | None:
    """Return the part in which two lines differ, if there is only one."""
    if max(len(old), len(new)) > LINE_CHARS:
        return None
    before, after = _TOKEN.findall(old), _TOKEN.findall(new)
    start = next((at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), -1)
    if start < 0 or len(before) != len(after) or before[start + 1 :] != after[start + 1 :]:
        return None
    one, other = before[start], after[start]
    if (was := _TEXT.fullmatch(one)) and (now := _TEXT.fullmatch(other)):
        return Swap("text", was["text"], now["text"])
    if _VALUE.fullmatch(one) and _VALUE.fullmatch(other):
        keys = [token for token in before[:start] if _NAME.fullmatch(token)]
        return Swap("value", one, other, keys[-1] if keys else "")
    return Swap("name", one, other) if _NAME.fullmatch(one) and _NAME.fullmatch(other) else None


def documented(lines: Sequence[str], definition: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield the added definitions that have a comment directly above (in Python: below) them, with its first
    sentence."""
    above: list[str] = []
    waiting = ""
    for line in lines:
        text = line[1:LINE_CHARS] if line.startswith("+") else ""
        if match := _COMMENT.match(text):
            if waiting and text.lstrip().startswith(('"""', "'''")):
                yield waiting, _first_sentence([match["text"]])
            waiting = ""
            above.append(match["text"])
            continue
        name = definition.match(text) if text else None
        waiting = name["name"] if name else ""
        if name and any(above):
            yield name["name"], _first_sentence(above)
        above = []


def _first_sentence(lines: Sequence[str]) -> str:
    bare = [line.strip() for line in lines[:6]]
    for end in _COMMENT_END:
        bare = [line.removesuffix(end).strip() for line in bare]
    text = " ".join(line for line in bare if line and not line.startswith(("@", "nolint", "eslint", "-")))
    return re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0]


# --- definitions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of one edit: lines added and removed, and the names it defined or removed."""

    added_lines: int = 0
    removed_lines: int = 0
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    swaps: tuple[Swap, ...] = ()  # small replacements
    documented: tuple[tuple[str, str], ...] = ()  # added definitions, each with the first sentence of its comment


def change_of_call(body: ToolUsed) -> Change:
    """Return the effect of an Edit, MultiEdit or Write call: from the patch the agent reports, else from the tool's
    input."""
    return change_of_lines(diff_lines(body))


def diff_lines(body: ToolUsed) -> list[str]:
    """Return the lines of an edit as a diff: from the patch the agent reports, else from the tool's input."""
    return list(_patch_lines(body.output)) or list(_input_lines(body.input))


def change_of_lines(lines: Sequence[str]) -> Change:
    """Return the effect of a diff; its lines begin with `+`, `-` or a space."""
    lines = lines[:_MAX_LINES]
    added = [line[1:] for line in lines if line.startswith("+")]
    removed = [line[1:] for line in lines if line.startswith("-")]
    new, old = _defined(added), _defined(removed)
    around = _defined(line[1:] for line in lines if line.startswith(" "))
    changed = [name for name in _changed_definitions(lines) if name in around or (name in new and name in old)]
    return Change(
        added_lines=len(added),
        removed_lines=len(removed),
        added=tuple(name for name in new if name not in old and name not in around),
        removed=tuple(name for name in old if name not in new and name not in around),
        changed=tuple(dict.fromkeys([*(name for name in new if name in old), *changed])),
        swaps=tuple(swaps(lines)),
        documented=tuple(pair for pair in documented(lines, _DEFINITION) if pair[0] in new and pair[0] not in old),
    )


def _changed_definitions(lines: Sequence[str]) -> Iterator[str]:
    """Yield the definitions in whose body lines were added or removed. Definitions that only appear in the diff's
    context do not count."""
    inside: list[tuple[int, str]] = []  # the definitions around the current line, with their indentation
    for line in lines:
        text = line[1:].expandtabs(4)
        if not text.strip():
            continue
        depth = len(text) - len(text.lstrip())
        if (match := _DEFINITION.match(text) or _ARROW.match(text)) or text.strip()[0] not in "})]":
            inside = [(other, name) for other, name in inside if other < depth]
        if line[0] in "+-" and inside and inside[-1][0] < depth:
            yield inside[-1][1]
        if match:
            inside.append((depth, match["name"]))


def _patch_lines(output: Any) -> Iterator[str]:
    hunks = output.get("structuredPatch") if isinstance(output, dict) else None
    for hunk in hunks if isinstance(hunks, list) else ():
        lines = hunk.get("lines") if isinstance(hunk, dict) else None
        yield from (line for line in lines[:_MAX_LINES] if isinstance(line, str)) if isinstance(lines, list) else ()


def _input_lines(tool_input: dict[str, Any]) -> Iterator[str]:
    if isinstance(content := tool_input.get("content"), str):
        yield from (f"+{line}" for line in content.splitlines()[:_MAX_LINES])
    edits = tool_input.get("edits")
    for edit in edits if isinstance(edits, list) else [tool_input]:
        if not isinstance(edit, dict):
            continue
        old, new = edit.get("old_string"), edit.get("new_string")
        if isinstance(old, str) and isinstance(new, str):
            before, after = old.splitlines()[:_MAX_LINES], new.splitlines()[:_MAX_LINES]
            yield from (
                line
                for line in difflib.unified_diff(before, after, n=len(before), lineterm="")
                if line[:3] not in ("+++", "---")
            )


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition in a file: its name, its line from 1, and how far it is indented."""

    name: str
    line: int
    depth: int


def find_definitions(lines: Sequence[str]) -> list[Definition]:
    """Return the definitions of a file, in order."""
    definitions: list[Definition] = []
    for number, line in enumerate(lines[:_MAX_FILE_LINES], start=1):
        text = line[:LINE_CHARS].expandtabs(4)
        if match := _DEFINITION.match(text) or _ARROW.match(text):
            definitions.append(Definition(match["name"], number, len(text) - len(text.lstrip())))
    return definitions


def _defined(lines: Iterable[str]) -> list[str]:
    matches = (_DEFINITION.match(line) or _ARROW.match(line) for line in lines)
    return list(dict.fromkeys(match["name"] for match in matches if match))
