"""Pure functions on text: clip it, clean it, count its tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

# Lone surrogates can't be encoded and NUL ends a C string: either would poison a row for every later reader.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# What could drive a terminal, hide text from people, or reverse it: never injected.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
# What a terminal acts on, or what reorders, breaks or ends a line: shown as an escape where people read it.
_ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_UNSAFE_IN_JSON = re.compile(f"{_ACTIVE.pattern}|{_INVISIBLE.pattern}")
_SHORT_ESCAPES = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\x1b": r"\e"}

LATEST = (
    4_102_444_800_000  # the year 2100: what is later is no time of ours, and of much later ones no date can be made
)


CLOSING_CHARS = 64_000  # kept of an agent's closing message
_MARK_CHARS = 60  # the longest mark that `clip` leaves


def clip_closing(text: str) -> str:
    """A closing message as it is kept: whole, or its head and tail where it is too long. Clipping twice is clipping
    once."""
    return clip(text, CLOSING_CHARS) if len(text) > CLOSING_CHARS + _MARK_CHARS else text


def clip(text: str, limit: int) -> str:
    """At most about `limit` characters: the head and the tail, and in between how much was left out."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]}\n… {len(text) - head - tail:,} characters left out …\n{text[-tail:]}"


def shorten(text: str, limit: int) -> str:
    """One line of at most `limit` characters, cut at a word where that is possible."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    space = cut.rfind(" ")
    return (cut[:space] if space > limit // 2 else cut).rstrip(" ,;:.-–—") + "…"


def storable(text: str) -> str:
    return _UNSTORABLE.sub("\ufffd", text)


def plain(text: str) -> str:
    """Without control, zero-width and direction-changing characters."""
    return _INVISIBLE.sub("", text)


def printable(text: str) -> str:
    """Several lines for a terminal: control and direction-changing characters as visible escapes (`\\e`, `\\u202e`),
    bytes that are no text as `\\xff`, and nothing that can't be seen."""
    return _INVISIBLE.sub("", _ACTIVE.sub(_escape, text.replace("\r\n", "\n")))


def printable_line(text: str) -> str:
    """One line for a terminal: as `printable`, and a line break is shown as `\\n`."""
    return _INVISIBLE.sub("", _ACTIVE.sub(_escape, text)).replace("\n", r"\n")


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00  # a byte of a name that is not UTF-8, as Python carries it
    if short := _SHORT_ESCAPES.get(match[0]):
        return short
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def safe_json(text: str) -> str:
    """The same JSON with every character that a terminal acts on, or that can't be seen, as a `\\u` escape. The value
    is the same: such characters stand only inside of strings."""
    return _UNSAFE_IN_JSON.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def tokens(text: str) -> int:
    """A fair guess without a tokenizer: four bytes a token, which also holds for other scripts."""
    return (len(text.encode("utf-8", "replace")) + 3) // 4


def tokens_at_most(text: str) -> int:
    """For caps: code and other scripts take more tokens than prose, rarely more than one for three bytes."""
    return (len(text.encode("utf-8", "replace")) + 2) // 3


def milliseconds(text: str, *, end: bool = False) -> int | None:
    """A date or time as people write it, or milliseconds already. A bare date ends with its day."""
    text = text.strip()
    if not text:
        return None
    if text.isdigit() and text.isascii() and 9 <= len(text) <= 15:
        return int(text)
    try:
        when = datetime.fromisoformat(text)
        if end and len(text) <= 10:
            when += timedelta(days=1, milliseconds=-1)
        return int(when.timestamp() * 1000)
    except (OverflowError, OSError) as error:
        raise ValueError(text) from error


def local(milliseconds: int) -> datetime:
    """For people, where they are. A time that can't be is the nearest that can: a row may say anything."""
    return datetime.fromtimestamp(min(max(milliseconds, 0), LATEST) / 1000).astimezone()


def first_sentence(text: str, limit: int = 160) -> str:
    line = " ".join(text.split())
    match = re.match(r"(.{20,}?[.!?])(?:\s|$)", line)
    return shorten(match[1] if match else line, limit)


def normal_title(title: str) -> str:
    """What two titles have in common when they say the same: their words."""
    return " ".join(re.findall(r"\w+", title.lower()))


def strings(value: Any) -> Iterator[str]:
    """Every string in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def map_strings(value: Any, change: Any) -> Any:
    """The JSON value with `change` applied to each of its strings, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(str(key)): map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [map_strings(item, change) for item in value]
    return value
