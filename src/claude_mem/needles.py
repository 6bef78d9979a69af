"""A text that is looked for, in any case of letters and in the guises in which files keep texts."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any

LEAST = 3  # characters: less would fit nearly everything
MOST_WORDS = 50_000
SEVERAL, NAME = 3, 16  # so many long words, or one name so long, are no accident
_WORD = re.compile(r"[\w.@/:+-]{10,200}")


class Needle:
    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self.folded = self.text.casefold()
        self.quoted = json.dumps(self.folded, ensure_ascii=False)[1:-1]  # as it stands inside JSON
        self.coded = [form.decode() for form in _base64(self.text)] if len(self.text) >= 8 else []

    def is_in(self, text: Any) -> bool:
        if not isinstance(text, str) or not text:
            return False
        folded = text.casefold()
        return self.folded in folded or self.quoted in folded or any(form in text for form in self.coded)

    @cached_property
    def forms(self) -> list[bytes]:
        """What to look for in the bytes of a file, all of it in lower case but for base64."""
        plain = {self.text.lower(), self.quoted.lower()}
        encodings = ("utf-8", "utf-16-le", "utf-16-be")
        return [text.encode(encoding, "replace") for text in sorted(plain) for encoding in encodings]

    def is_in_bytes(self, data: bytes) -> bool:
        lower = data.lower()
        return any(form in lower for form in self.forms) or any(form.encode() in data for form in self.coded)


def _base64(text: str) -> list[bytes]:
    """Letters share characters with their neighbours: of each of three places, what is the same there."""
    raw = text.encode("utf-8", "replace")
    found = []
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + raw)
        begin, end = (0, 2, 3)[before], -4 if (before + len(raw)) % 3 else None
        found.append(coded[begin:end])
    return found


def rare_words(texts: Iterable[str]) -> frozenset[str]:
    """Long words and names, but no more than can be kept in mind: by several of these a line of a log is known to
    speak of the same."""
    found: set[str] = set()
    for text in texts:
        found.update(_long(text))
        if len(found) > MOST_WORDS:
            return frozenset(sorted(found, key=len)[-MOST_WORDS:])
    return frozenset(found)


def speaks_of(line: str, words: frozenset[str]) -> bool:
    """One long word alone says nothing: many a line speaks of a connection."""
    said = _long(line) & words if words else frozenset()
    return len(said) >= SEVERAL or any(len(word) >= NAME and not word.isalpha() for word in said)


def _long(text: str) -> set[str]:
    return {word.casefold().strip(".:/+-") for word in _WORD.findall(text)}
