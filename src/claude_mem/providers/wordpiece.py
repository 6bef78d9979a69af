"""Text → the numbers a BERT model reads, without a dependency.

The same ids as the reference tokenizer gives for uncased BERT vocabularies: clean, lower, strip accents, split at
spaces, punctuation and CJK characters, then take the longest known piece again and again.
"""

from __future__ import annotations

import json
import unicodedata
from functools import lru_cache
from pathlib import Path

_MAX_WORD = 100  # characters; a longer "word" is one unknown
_CJK = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPiece:
    def __init__(self, vocabulary: dict[str, int]) -> None:
        self._vocabulary = vocabulary
        self._unknown = vocabulary["[UNK]"]
        self._start, self._end = vocabulary["[CLS]"], vocabulary["[SEP]"]
        self._pieces = lru_cache(maxsize=20_000)(self._split_word)  # words repeat: most of the time goes here

    @classmethod
    def load(cls, tokenizer_json: Path) -> WordPiece:
        return cls(json.loads(tokenizer_json.read_text("utf-8"))["model"]["vocab"])

    def encode(self, text: str, *, limit: int) -> list[int]:
        """With the marks for start and end, at most `limit` numbers."""
        ids = [self._start]
        for word in words(text):
            ids += self._pieces(word)
            if len(ids) >= limit:
                break
        return [*ids[: limit - 1], self._end]

    def _split_word(self, word: str) -> list[int]:
        if len(word) > _MAX_WORD:
            return [self._unknown]
        ids, begin = [], 0
        while begin < len(word):
            end = len(word)
            while end > begin and (piece := ("##" if begin else "") + word[begin:end]) not in self._vocabulary:
                end -= 1
            if end == begin:
                return [self._unknown]
            ids.append(self._vocabulary[piece])
            begin = end
        return ids


def words(text: str) -> list[str]:
    """Lower case, without accents; punctuation and CJK characters stand alone."""
    if text.isascii():
        lowered = text.lower()
    else:
        spaced = "".join(f" {char} " if _is_cjk(ord(char)) else char for char in text)
        lowered = "".join(c for c in unicodedata.normalize("NFD", spaced.lower()) if unicodedata.category(c) != "Mn")
    return "".join(_apart(char) for char in lowered).split()


@lru_cache(maxsize=4096)
def _apart(char: str) -> str:
    if char in "\t\n\r" or unicodedata.category(char) == "Zs":
        return " "
    category = unicodedata.category(char)
    if char in "\x00\ufffd" or category.startswith("C"):
        return ""
    is_punctuation = category.startswith("P") or (char.isascii() and not char.isalnum())
    return f" {char} " if is_punctuation else char


def _is_cjk(code: int) -> bool:
    return code > 0x2E7F and any(low <= code <= high for low, high in _CJK)
