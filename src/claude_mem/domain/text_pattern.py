"""Case-insensitive search for a text in all the forms in which files may contain it: plain, JSON-escaped, base64."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any

MIN_CHARS = 3  # characters: a shorter text would match nearly everything
MAX_WORDS = 50_000
MIN_SHARED_WORDS, MIN_NAME_CHARS = (
    3,
    16,
)  # this many shared long words, or one shared name of this length, is no coincidence
_WORD = re.compile(r"[\w.@/:+-]{10,200}")


class TextPattern:
    """A text to search for, with its encoded forms."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self.folded = self.text.casefold()
        self.quoted = json.dumps(self.folded, ensure_ascii=False)[1:-1]  # as it appears inside JSON
        self.coded = [form.decode() for form in _base64(self.text)] if len(self.text) >= 8 else []

    def is_in(self, text: Any) -> bool:
        if not isinstance(text, str) or not text:
            return False
        folded = text.casefold()
        return self.folded in folded or self.quoted in folded or any(form in text for form in self.coded)

    @cached_property
    def forms(self) -> list[bytes]:
        """Lower-case byte sequences to search for in a file. (Base64 is case-sensitive and searched separately.)"""
        plain = {self.text.lower(), self.quoted.lower()}
        encodings = ("utf-8", "utf-16-le", "utf-16-be")
        return [text.encode(encoding, "replace") for text in sorted(plain) for encoding in encodings]

    def is_in_bytes(self, data: bytes) -> bool:
        """Return whether any form of the text occurs in these bytes."""
        lower = data.lower()
        return any(form in lower for form in self.forms) or any(form.encode() in data for form in self.coded)


def _base64(text: str) -> list[bytes]:
    """Return the base64 characters of a text that do not depend on its neighbours, for each of three alignments."""
    raw = text.encode("utf-8", "replace")
    forms = []
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + raw)
        begin, end = (0, 2, 3)[before], -4 if (before + len(raw)) % 3 else None
        forms.append(coded[begin:end])
    return forms


def rare_words(texts: Iterable[str]) -> frozenset[str]:
    """Return the long words and names of some texts, at most `MAX_WORDS`. A log line that contains several of them is
    about the same content."""
    words: set[str] = set()
    for text in texts:
        words.update(_long_words(text))
        if len(words) > MAX_WORDS:
            return frozenset(sorted(words, key=len)[-MAX_WORDS:])
    return frozenset(words)


def shares_rare_words(line: str, words: frozenset[str]) -> bool:
    """Return whether a line shares several long words with `words`, or one long name. A single ordinary word is not
    enough: many lines mention "connection"."""
    shared_words = _long_words(line) & words if words else frozenset()
    return len(shared_words) >= MIN_SHARED_WORDS or any(
        len(word) >= MIN_NAME_CHARS and not word.isalpha() for word in shared_words
    )


def _long_words(text: str) -> set[str]:
    return {word.casefold().strip(".:/+-") for word in _WORD.findall(text)}
