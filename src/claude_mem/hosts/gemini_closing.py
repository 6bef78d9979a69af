"""Extracts the closing message of a Gemini CLI turn from the text that its AfterAgent hook reports.

The hook reports every remark of the turn, not only the last message. It joins the chunks of a streamed answer with
spaces, after the first chunk has already become the whole answer: the text is followed by its own tail, with spaces in
the middle of words (0.61.0). The chat file has each message unchanged; without it, the repetition can be removed.
"""

from __future__ import annotations

import re

SHORTEST_TAIL = 12  # non-blank characters; shorter texts may legitimately occur twice
MOST_PLACES = 100  # occurrences of a text that are tried
_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u200e\u200f\ufeff"))
# The call that follows a remark is a chunk without words, joined with one space. (Two are a line break of Markdown.)
_REMARK_END = re.compile(r"(?<=\S) \n")


def closes(reported: str, message: str) -> bool:
    """Return whether the reported text ends with this message, or with this message and a repetition of its tail."""
    bare_reported, bare_message = _bare(reported), _bare(message)
    if not bare_message:
        return False
    at = bare_reported.find(bare_message, max(0, len(bare_reported) - 2 * len(bare_message)))
    for _ in range(MOST_PLACES):
        if at < 0 or bare_message.endswith(bare_reported[at + len(bare_message) :]):
            break
        at = bare_reported.find(bare_message, at + 1)
    return at >= 0 and bare_message.endswith(bare_reported[at + len(bare_message) :])


def resembles(reported: str, message: str) -> bool:
    """Return whether nearly all words of this message were reported."""
    words = set(message.split())
    return len(words & set(reported.split())) >= 0.8 * len(words)


def without_repetition(reported: str) -> str:
    """Return the reported text without its repeated tail and without the remarks before it, as far as they show."""
    text = "".join(reported.split())
    remaining = _first_signs(reported, len(text) - _repeated_tail(text)).rstrip()
    return _REMARK_END.split(remaining)[-1].strip()


def _repeated_tail(text: str) -> int:
    """Return the length of the longest tail that occurs twice at the end of a text, or 0."""
    probe = text[-SHORTEST_TAIL:]
    at, longest = len(text) - len(probe), 0
    for _ in range(MOST_PLACES):
        at = text.rfind(probe, 0, max(0, at + len(probe) - 1))
        length = len(text) - len(probe) - at
        if at < 0 or 2 * length > len(text):
            break
        if length >= SHORTEST_TAIL and text.endswith(text[-length:], 0, len(text) - length):
            longest = length
    return longest


def _first_signs(text: str, count: int) -> str:
    """Return the beginning of a text up to its `count`-th non-blank character."""
    for end, sign in enumerate(text):
        if not sign.isspace():
            count -= 1
        if count < 0:
            return text[:end]
    return text


def _bare(text: str) -> str:
    """Return a text without what differs between chat file and hook: blanks, invisible characters, comments."""
    return "".join(_without_comments(text).translate(_INVISIBLE).split())


def _without_comments(text: str) -> str:
    """Return a text without HTML comments. A pattern would take quadratic time for comments that are never closed."""
    parts: list[str] = []
    rest = text
    while True:
        before, opened, after = rest.partition("<!--")
        _, closed, beyond = after.partition("-->")
        if not opened or not closed:
            return "".join([*parts, rest])
        parts.append(before)
        rest = beyond
