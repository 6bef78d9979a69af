"""Make `src/claude_mem/data/static.vectors`: `python -m tools.distil [MODEL_FOLDER]`. Takes about two minutes.

The built-in embedding is distilled from the encoder `arctic-s` (Snowflake/snowflake-arctic-embed-s, Apache-2.0, which
permits derived works) and from nothing else: the encoder embeds every piece of its own vocabulary, alone. No text, and
above all nobody's memories, is needed.

1. Embed each piece of the vocabulary; drop the placeholders `[unused0]`.
2. Subtract the mean and project on the first principal components (PCA), except the very first. Dividing a component by
   a power of its deviation keeps the first few, which say little about a subject, from outweighing the others.
3. Weight each piece by its rarity. The vocabulary is sorted by frequency, so the rank says how rare a piece is (Zipf's
   law). Stop words count a tenth; punctuation counts nothing.
4. Quantise to bytes with one factor for all rows: the length of a row is its weight.

A changed file needs another `NAME` in `recall/models.py`, so that stored vectors are computed again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from claude_mem.domain.words import STOP_WORDS
from claude_mem.recall import embed, models

MODELS = Path(__file__).parents[1] / "build" / "models"
FIRST_BY_FREQUENCY = 1996  # the vocabulary begins with placeholders and single characters
BATCH = 64
SKIPPED, WHITENING = 1, 0.75
STOP_WORD_WEIGHT = 0.1
CLIP = 99.95  # percentile of the absolute values that becomes 127
ABOUT = (
    "Distilled for claude-mem from Snowflake/snowflake-arctic-embed-s (Copyright Snowflake Inc., Apache License 2.0,"
    " https://www.apache.org/licenses/LICENSE-2.0); changed: one vector per vocabulary piece, reduced, weighted and"
    " quantised by tools/distil.py. The derived data is under the Apache License 2.0 as well."
)

Rows = NDArray[np.float64]


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else embed.fetch_model(MODELS)
    vocabulary: dict[str, int] = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    pieces = [piece for piece in sorted(vocabulary, key=vocabulary.__getitem__) if not piece.startswith("[unused")]
    rows = embed_pieces(folder / "model.onnx", vocabulary, sorted(vocabulary.values()))
    rows = reduce(rows[[vocabulary[piece] for piece in pieces]], [weight(piece, vocabulary[piece]) for piece in pieces])
    models.FILE.write_bytes(as_file(pieces, quantise(rows)))
    print(f"{models.FILE.name}: {len(pieces):,} pieces, {models.FILE.stat().st_size:,} bytes")
    return 0


def embed_pieces(model: Path, vocabulary: dict[str, int], ids: list[int]) -> Rows:
    """Return the encoder's vector of each piece alone, between the start and end tokens, by token id."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    rows = np.zeros((max(ids) + 1, embed.get_model(embed.DEFAULT).dimensions))
    for begin in range(0, len(ids), BATCH):
        batch = ids[begin : begin + BATCH]
        tokens = np.array([[vocabulary["[CLS]"], token, vocabulary["[SEP]"]] for token in batch], dtype=np.int64)
        inputs = {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "token_type_ids": np.zeros_like(tokens)}
        (states,) = session.run(None, inputs)
        rows[batch] = states[:, 0]
    unit: Rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return unit


def weight(piece: str, token: int) -> float:
    """Return how much a piece counts in a text."""
    word = piece.removeprefix("##")
    if (piece.startswith("[") and len(piece) > 1) or not any(map(str.isalnum, word)):
        return 0.0
    rarity = float(np.log(1 + max(token - FIRST_BY_FREQUENCY, 1)))
    return rarity * (STOP_WORD_WEIGHT if piece in STOP_WORDS else 1.0)


def reduce(rows: Rows, weights: list[float]) -> Rows:
    """Project on the principal components of the pieces that count, and apply the weights."""
    factors = np.array(weights)
    counted = factors > 0
    centred = rows - rows[counted].mean(axis=0)
    _, deviations, axes = np.linalg.svd(centred[counted], full_matrices=False)
    largest = axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)]
    axes *= np.sign(largest)[:, None]  # otherwise the sign of an axis is arbitrary
    kept = slice(SKIPPED, SKIPPED + models.DIMENSIONS)
    projected: Rows = centred @ axes[kept].T / deviations[kept] ** WHITENING
    projected *= factors[:, None]
    return projected


def quantise(rows: Rows) -> NDArray[np.uint8]:
    """Return the rows as bytes; `static.ZERO` stands for 0."""
    highest = np.percentile(np.abs(rows), CLIP)
    quantised: NDArray[np.uint8] = (np.clip(np.round(rows / highest * 127), -127, 127) + models.ZERO).astype(np.uint8)
    return quantised


def as_file(pieces: list[str], rows: NDArray[np.uint8]) -> bytes:
    vocabulary = "\n".join(pieces).encode()
    header = {
        "name": models.NAME,
        "dimensions": rows.shape[1],
        "pieces": len(pieces),
        "vocabulary_bytes": len(vocabulary),
        "about": ABOUT,
    }
    return json.dumps(header).encode() + b"\n" + vocabulary + rows.tobytes()


if __name__ == "__main__":
    sys.exit(main())
