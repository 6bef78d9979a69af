"""The WordPiece tokenizer of uncased BERT models, without a dependency.

Produces the same ids as the reference tokenizer: clean, lowercase, strip accents, split at spaces, punctuation and CJK
characters, then repeatedly take the longest piece in the vocabulary.
"""

from __future__ import annotations

import json
import unicodedata
from functools import lru_cache
from pathlib import Path

_MAX_WORD = 100  # characters; a longer word becomes one unknown token
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
        self._pieces = lru_cache(maxsize=20_000)(self._split_word)  # cached: words repeat, and most time is spent here

    @classmethod
    def load(cls, tokenizer_json: Path) -> WordPiece:
        return cls(json.loads(tokenizer_json.read_text("utf-8"))["model"]["vocab"])

    def encode(self, text: str, *, limit: int) -> list[int]:
        """Return at most `limit` token ids, including the start and end tokens."""
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
    """Split into lowercase words without accents; each punctuation or CJK character is a word."""
    if text.isascii():
        lowered = text.lower()
    else:
        spaced = "".join(f" {char} " if _is_cjk(ord(char)) else char for char in text)
        lowered = "".join(c for c in unicodedata.normalize("NFD", spaced.lower()) if unicodedata.category(c) != "Mn")
    return "".join(_separate(char) for char in lowered).split()


@lru_cache(maxsize=4096)
def _separate(char: str) -> str:
    if char in "\t\n\r" or unicodedata.category(char) == "Zs":
        return " "
    category = unicodedata.category(char)
    if char in "\x00\ufffd" or category.startswith("C"):
        return ""
    is_punctuation = category.startswith("P") or (char.isascii() and not char.isalnum())
    return f" {char} " if is_punctuation else char


def _is_cjk(code: int) -> bool:
    return code > 0x2E7F and any(low <= code <= high for low, high in _CJK)
