"""Pure functions on text: clip it, clean it, count its tokens, remove the labels of a summary's fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

T = TypeVar("T")

# Lone surrogates cannot be encoded and NUL ends a C string: a row with either could not be read again.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# Characters that control a terminal, or hide or reverse text: never injected.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
# Characters that control a terminal, or reorder, break or end a line: shown to users as escapes.
_ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_UNSAFE_IN_JSON = re.compile(f"{_ACTIVE.pattern}|{_INVISIBLE.pattern}")
_SHORT_ESCAPES = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\x1b": r"\e"}

MAX_TIME_MS = 4_102_444_800_000  # the year 2100: no stored time is later; much later ones have no date
CLOSING_CHARS = 64_000  # maximum stored length of an agent's closing message
_MARK_CHARS = 60  # longest mark that `clip` inserts


def clip_closing(text: str) -> str:
    """Return a closing message as it is stored: complete, or its head and tail if it is too long. Idempotent."""
    return clip(text, CLOSING_CHARS) if len(text) > CLOSING_CHARS + _MARK_CHARS else text


def clip(text: str, limit: int) -> str:
    """Return at most about `limit` characters: head, tail, and in between the number of omitted characters."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]}\n… {len(text) - head - tail:,} characters left out …\n{text[-tail:]}"


def shorten(text: str, limit: int) -> str:
    """Return one line of at most `limit` characters, cut between words if possible."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    space = cut.rfind(" ")
    return (cut[:space] if space > limit // 2 else cut).rstrip(" ,;:.-–—") + "…"


def make_storable(text: str) -> str:
    """Replace characters that SQLite or UTF-8 cannot represent."""
    return _UNSTORABLE.sub("\ufffd", text)


def strip_invisible(text: str) -> str:
    """Remove control, zero-width and direction-changing characters."""
    return _INVISIBLE.sub("", text)


def make_printable(text: str) -> str:
    """Make multi-line text safe for a terminal.

    Control and direction-changing characters become visible escapes (`\\e`, `\\u202e`), undecodable bytes become
    `\\xff`, and invisible characters are removed.
    """
    return _INVISIBLE.sub("", _ACTIVE.sub(_escape, text.replace("\r\n", "\n")))


def make_printable_line(text: str) -> str:
    """Make text safe for one line of a terminal: like `make_printable`, with line breaks shown as `\\n`."""
    return _INVISIBLE.sub("", _ACTIVE.sub(_escape, text)).replace("\n", r"\n")


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00  # an undecodable byte, as `surrogateescape` represents it
    if short := _SHORT_ESCAPES.get(match[0]):
        return short
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def escape_json(text: str) -> str:
    """Escape every invisible character, and every one that controls a terminal, as `\\u` in JSON text.

    The value stays the same, because such characters occur only inside strings.
    """
    return _UNSAFE_IN_JSON.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens without a tokenizer: four bytes per token, which also fits other scripts."""
    return (len(text.encode("utf-8", "replace")) + 3) // 4


def estimate_tokens_high(text: str) -> int:
    """Estimate the number of tokens conservatively, for limits.

    Code and other scripts need more tokens than prose, but rarely more than one per three bytes.
    """
    return (len(text.encode("utf-8", "replace")) + 2) // 3


def parse_time(text: str, *, end: bool = False) -> int | None:
    """Parse an ISO date or time, or a number of milliseconds. With `end`, a bare date means the end of that day."""
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


def local_time(milliseconds: int) -> datetime:
    """Convert milliseconds to local time. Out-of-range values are clamped, because a row may contain any number."""
    return datetime.fromtimestamp(min(max(milliseconds, 0), MAX_TIME_MS) / 1000).astimezone()


def first_sentence(text: str, limit: int = 160) -> str:
    """Return the first sentence of a text, shortened to `limit` characters."""
    line = " ".join(text.split())
    match = re.match(r"(.{20,}?[.!?])(?:\s|$)", line)
    return shorten(match[1] if match else line, limit)


def normalize_title(title: str) -> str:
    """Reduce a title to its lowercase words, for comparing titles."""
    return " ".join(re.findall(r"\w+", title.lower()))


def iter_strings(value: Any) -> Iterator[str]:
    """Yield every string in a JSON value, including keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from iter_strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from iter_strings(item)


def map_strings(value: T, change: Callable[[str], str]) -> T:
    """Return the JSON value with `change` applied to every string, including keys."""
    return cast(T, _map_strings(value, change))


def _map_strings(value: object, change: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(str(key)): _map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_map_strings(item, change) for item in value]
    return value


# --- labels of a summary's fields ------------------------------------------------------------------------------------


# Wherever a field is shown, its label is shown with it, but closing messages and model replies often repeat the label
# in the text: "Next steps:", "**Done:**", "### Learned".

_OF_WORK = r"(?: (?:work|actions?|steps?|tasks?|items?|points?|issues?))?"
_WORDS = {
    "request": r"asked|request|user(?:'s)? request",
    "investigated": r"investigated|investigations?|looked (?:into|at)",
    "learned": r"learn(?:ed|t|ings?)|(?:key )?(?:lessons?|findings?|insights?|takeaways?)(?: learn(?:ed|t))?",
    "completed": r"(?:all |work )?done|complet(?:ed?|ions?)|finished|accomplished|what (?:was done|I did)",
    "next_steps": rf"next(?: up)?{_OF_WORK}|to[- ]?dos?|remaining{_OF_WORK}|still to do|left(?: to do)?"
    rf"|(?:still )?(?:open|pending|outstanding|missing){_OF_WORK}|follow[- ]?ups?|what(?:'s| is) (?:next|left|open)",
    "notes": r"notes?|open",
}
_BULLET = r"(?:(?:[-*+•–]|\d{1,2}[.)])[ \t]++)?(?:\[[ xX]\][ \t]++)?"
_SIGN = r"(?:[✓✅✔☑➡→▶⏭🔜📝💡⚠]\ufe0f?[ \t]*+)?"
_GAP = r"[ \t]{0,4}"  # bounded: two gaps may follow each other, and a long run of spaces must not be tried twice
# The label in matching emphasis marks, with the colon inside or outside of them; or followed by a dash; or on a line of
# its own.
_LABELS = {
    field: re.compile(
        rf"\A\s*+{_BULLET}(?:\#{{1,6}}[ \t]++)?(?P<mark>\*\*\*|\*\*|\*|__|_|){_SIGN}"
        rf"(?:(?:{words})[:：]{_GAP}){{0,2}}(?:{words}){_GAP}"
        rf"(?:[:：]{_GAP}(?P=mark)|(?P=mark){_GAP}(?:[:：]| [-–—] |(?=\n)))\s*+",
        re.I,
    )
    for field, words in _WORDS.items()
}
_FIRST_BULLET = re.compile(rf"\A\s*+{_BULLET}(?=\S)")
MAX_LABELS = 3  # consecutive labels that are removed


def strip_labels(field: str, text: str) -> str:
    """Return a summary field without the labels at its beginning; a single item also loses its bullet."""
    bare = text
    for _ in range(MAX_LABELS):
        if (label := _LABELS[field].match(bare)) is None:
            break
        bare = bare[label.end() :]
    if "\n" not in bare.strip() and field != "request":
        bare = _FIRST_BULLET.sub("", bare, count=1)
    return bare.strip() if bare != text else text


def single_line(field: str, text: str) -> str:
    """Return a summary field without labels on one line; list items are separated by semicolons."""
    bare = strip_labels(field, text)
    lines = [line.strip() for line in bare.splitlines() if line.strip()]
    items = [_FIRST_BULLET.sub("", line, count=1) for line in lines]
    if field == "request" or items == lines:
        return " ".join(lines)
    ended = [item if item[-1] in ".!?:;,…" else f"{item};" for item in items[:-1]]
    return " ".join([*ended, *items[-1:]])
