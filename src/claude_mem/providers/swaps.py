"""Find small replacements in a diff, and the comments of the definitions it adds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MOST_SWAPS = 12
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
        if count < MOST_SWAPS and (swap := _swap(old, new)):
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
