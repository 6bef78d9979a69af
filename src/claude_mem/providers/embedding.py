"""What an embedder is: texts in, unit vectors out. It knows nothing of our tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # numpy belongs to the extra `vectors`; whoever has an embedder has it
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]


class Embedder(Protocol):
    @property
    def name(self) -> str:
        """Stands beside each vector: vectors of different names can't be compared."""
        ...

    @property
    def dimensions(self) -> int: ...

    @property
    def scale(self) -> tuple[float, float]:
        """Cosines of a question and a text that have nothing, and surely something, to do with each other."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row of length 1 a text. Takes milliseconds a text: call it in a thread."""
        ...

    def embed_query(self, question: str) -> Vectors:
        """One row of length 1; some models read questions differently from what answers them."""
        ...
