"""Words and names of a text: what two texts have in common, and what a text mentions."""

from __future__ import annotations

import re
from functools import lru_cache

NAME = re.compile(
    r"`[^`\n]{2,80}`|(?<![\w./-])[\w-]++(?:[./][\w-]++)++|\b[a-z]++[A-Z]\w*+|\b[A-Z][a-z]++[A-Z]\w*+|\b[^\W_]++_\w++|(?<![\w-])--[a-z][\w-]*+|#\d{1,9}|\b[A-Z][A-Z0-9]++(?:-\d{1,9})?\b|\b\w++\(\)"
)
_WORD = re.compile(r"[^\W\d_]{2,}|\d+")
_PART = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_")
_STOP = frozenset(
    """
    a an and are as at be been but by can could did do does for from had has have how i if in into is it its just let
    me more my no not now of on only or our out over should so some such than that the their them then there these
    they this those through to too up us use used uses using was we were what when where which while who why will
    with would you your yes also all any both each other same very via per please
    """.split()  # noqa: SIM905 -- a literal list would be much longer
)
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ed", "es", "s", "e")


@lru_cache(maxsize=4_096)
def content_words(text: str) -> frozenset[str]:
    """Return the words that carry meaning, with identifiers split, roughly stemmed."""
    words = _WORD.findall(_PART.sub(" ", text).lower())
    return frozenset(_stem(word) for word in words if word not in _STOP)


@lru_cache(maxsize=8_192)
def _stem(word: str) -> str:
    for end in _ENDINGS:
        if word.endswith(end) and len(word) - len(end) >= 3:
            return word[: -len(end)]
    return word


@lru_cache(maxsize=4_096)
def names(text: str) -> tuple[str, ...]:
    """Return the identifiers, paths, options and other names in a text, without duplicates and backticks."""
    return tuple(dict.fromkeys(match.strip("`") for match in NAME.findall(text)))
