"""The built-in embedding: a text is the weighted sum of the vectors of its word pieces.

The vectors were distilled from the encoder `arctic-s` by `tools/distil.py`, which documents how. Nothing but the
standard library is needed: the file is mapped into memory, and a row of bytes becomes one large integer, so that adding
vectors is adding integers. A text takes a twentieth of a millisecond; the encoder takes ten or more.
"""

from __future__ import annotations

import json
import math
import mmap
import re
import struct
from array import array
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path

from claude_mem.recall.embed import WordPiece, split_words

FAMILY = "static-"
NAME = FAMILY + "1"  # stored with each vector: a changed file needs another name, so that vectors are computed again
FILE = Path(__file__).parent.parent / "data" / "static.vectors"
DIMENSIONS = 256
# See `Embedder.scale`: 97 % of the right hits are above the first, and only three in a hundred of the best hits in
# another project reach what a prompt needs (`rank.PROMPT_FLOOR`).
SCALE = (0.3, 0.85)
ZERO = 128  # the byte that stands for 0
_FIELD = 4  # bytes of the field in which one dimension is summed
_REPEATS = 8  # a piece that occurs n times counts 1 + ln n times, in steps of 1/8
_CHARS = 8_000  # characters of a text that count
_WORD = re.compile(r"[^\W_]+")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class StaticEmbedder:
    """Embeds with the vectors in the installed package. Opened at first use; safe to use from several threads."""

    def __init__(self, path: Path = FILE) -> None:
        self._path = path

    @property
    def name(self) -> str:
        return NAME

    @property
    def dimensions(self) -> int:
        return DIMENSIONS

    @property
    def scale(self) -> tuple[float, float]:
        return SCALE

    @property
    def batch(self) -> int:
        return 100

    def embed(self, texts: Sequence[str]) -> list[array[float]]:
        return [self._table.embed(text) for text in texts]

    def embed_query(self, question: str) -> array[float]:
        return self._table.embed(question)

    @cached_property
    def _table(self) -> _Table:
        return _Table(self._path)


class _Table:
    """The file: a line of JSON, one line per piece, then one row of bytes per piece."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            header = json.loads(file.readline())
            pieces = file.read(header["vocabulary_bytes"]).decode().splitlines()
            self._begin = file.tell()
            self._rows = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.dimensions: int = header["dimensions"]
        self._pieces = WordPiece({piece: number for number, piece in enumerate(pieces)})
        self._row = lru_cache(maxsize=8_000)(self._read_row)

    def embed(self, text: str) -> array[float]:
        """Return the unit vector of a text; zeros if it has no known word."""
        total = weight = 0
        for piece, count in Counter(self._split(text[:_CHARS])).items():
            times = round(_REPEATS * (1 + math.log(count)))
            total += times * self._row(piece)
            weight += times
        sums = struct.unpack(f"<{self.dimensions}I", total.to_bytes(self.dimensions * _FIELD, "little"))
        zero = ZERO * weight
        values = [value - zero for value in sums]
        length = math.sqrt(sum(value * value for value in values)) or 1.0
        return array("f", [value / length for value in values])

    def _split(self, text: str) -> list[int]:
        pieces: list[int] = []
        for word in split_text_words(text):
            pieces += self._pieces.split_word(word)
        return pieces

    def _read_row(self, piece: int) -> int:
        """Return a row as an integer of one little-endian field per dimension."""
        begin = self._begin + piece * self.dimensions
        fields = bytearray(self.dimensions * _FIELD)
        fields[::_FIELD] = self._rows[begin : begin + self.dimensions]
        return int.from_bytes(fields, "little")


def split_text_words(text: str) -> list[str]:
    """Split into lowercase words; identifiers such as `getUserById` and `user_id` into their parts."""
    words: list[str] = []
    for word in _WORD.findall(text):
        if word.isascii():
            words += [part.lower() for part in _PARTS.findall(word)]
        else:
            words += split_words(word)
    return words
