"""Embedding models: the built-in one and those that can be downloaded; which one is used."""

from __future__ import annotations

import json
import math
import mmap
import re
import struct
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from claude_mem.domain.errors import InvalidRequest, OperationFailed
from claude_mem.recall import embed
from claude_mem.recall.embed import Embedder, Progress, WordPiece, split_words

# --- the built-in model ----------------------------------------------------------------------------------------------
#
# A text is the weighted sum of the vectors of its word pieces. They were distilled from the encoder `arctic-s` by
# `tools/distil.py`, which documents how. Nothing but the standard library is needed: the file is mapped into memory,
# and a row of bytes becomes one large integer, so that adding vectors is adding integers. A text takes a twentieth of a
# millisecond; the encoder takes ten or more.

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


DEFAULT = embed.DEFAULT
BUILT_IN, WORDS_ONLY = "static", "none"  # values of the setting `embedding_model` besides the names of encoders
NAMES = tuple(embed.MODELS)
INSTALL = "pip install 'claude-mem-py[vectors]'"
_ABOUT = {
    "arctic-s": "34 MB; the best all-round",
    "gte-small": "133 MB; best on code, twice as slow",
    "minilm": "23 MB; the quickest, but finds least",
}


@dataclass(frozen=True, slots=True)
class ModelInfo:
    name: str
    stored_as: str  # the name its vectors have
    dimensions: int
    about: str
    bytes: int  # on disk; 0 if not downloaded completely


def list_models(folder: Path) -> list[ModelInfo]:
    """Return the known embedding models, with the size of those that were fetched."""
    about = f"{FILE.stat().st_size / 1e6:.0f} MB; built in, used unless another is installed"
    built_in = ModelInfo(BUILT_IN, NAME, DIMENSIONS, about, FILE.stat().st_size)
    return [
        built_in,
        *(
            ModelInfo(
                model.name, model.name, model.dimensions, _ABOUT.get(model.name, ""), _bytes(folder / model.name, model)
            )
            for model in embed.MODELS.values()
        ),
    ]


def open_embedder(folder: Path, name: str) -> Embedder | None:
    """Return the encoder of this name if it is downloaded, otherwise the built-in embedding; None for `none`."""
    if name == WORDS_ONLY:
        return None
    encoder = embed.load_embedder(folder, name) if name in embed.MODELS else None
    return encoder or StaticEmbedder()


def _bytes(folder: Path, model: embed.EmbeddingModel) -> int:
    paths = [folder / file.name for file in model.files]
    return sum(path.stat().st_size for path in paths) if all(path.is_file() for path in paths) else 0


def check_available(name: str) -> None:
    """Raise an error if this model does not exist or cannot run here."""
    if name not in embed.MODELS:
        raise InvalidRequest(f"there is no model {name!r}", hint="use one of " + ", ".join(embed.MODELS))
    if not embed.is_installed():
        raise OperationFailed(
            "searching by meaning needs the extra `vectors`, which is not installed",
            hint=f"{INSTALL} (with pipx: pipx inject claude-mem-py onnxruntime numpy), then run this command again",
        )


def fetch(folder: Path, name: str, *, progress: Progress) -> Path:
    """Download and verify a model, unless it exists already. A partial download is never used."""
    check_available(name)
    return embed.fetch_model(folder, name, progress=progress)
