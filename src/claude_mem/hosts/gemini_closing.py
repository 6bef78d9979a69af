"""The closing message of a Gemini CLI turn, from what its AfterAgent hook reports.

The hook reports every remark of the turn, not only the last message. Of a streamed answer it joins the chunks with
spaces, after the first chunk has become the whole answer: the text is followed by its own tail, with spaces in the
middle of words (0.61.0). The chat file has each message as it was; without it, the repetition can be removed.
"""

from __future__ import annotations

import re

SHORTEST_TAIL = 12  # signs that are not blank: shorter texts may well be said twice
MOST_PLACES = 100  # in which a text is looked for
_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u200e\u200f\ufeff"))
# The call that follows a remark is a chunk without words, joined with one space. (Two are a line break of Markdown.)
_REMARK_END = re.compile(r"(?<=\S) \n")


def closes(reported: str, message: str) -> bool:
    """Return whether the reported text ends with this message, or with this message and a repetition of its tail."""
    text, words = _bare(reported), _bare(message)
    if not words:
        return False
    at = text.find(words, max(0, len(text) - 2 * len(words)))
    for _ in range(MOST_PLACES):
        if at < 0 or words.endswith(text[at + len(words) :]):
            break
        at = text.find(words, at + 1)
    return at >= 0 and words.endswith(text[at + len(words) :])


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
    """Return the length of the longest tail that stands twice at the end of a text, or 0."""
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
    """Return the beginning of a text up to its `count`-th sign that is not blank."""
    for end, sign in enumerate(text):
        if not sign.isspace():
            count -= 1
        if count < 0:
            return text[:end]
    return text


def _bare(text: str) -> str:
    """Return a text without what the chat file and the hook write differently: blanks, invisible signs, comments."""
    return "".join(_without_comments(text).translate(_INVISIBLE).split())


def _without_comments(text: str) -> str:
    """Return a text without HTML comments. Not by a pattern: one that is never closed would be searched for often."""
    parts: list[str] = []
    rest = text
    while True:
        before, opened, after = rest.partition("<!--")
        _, closed, beyond = after.partition("-->")
        if not opened or not closed:
            return "".join([*parts, rest])
        parts.append(before)
        rest = beyond
