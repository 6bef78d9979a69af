"""The interface of an embedder: texts in, unit vectors out. It does not depend on the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # numpy belongs to the extra `vectors`, which every embedder requires
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]


class Embedder(Protocol):
    @property
    def name(self) -> str:
        """Stored with each vector: vectors of different models cannot be compared."""
        ...

    @property
    def dimensions(self) -> int: ...

    @property
    def scale(self) -> tuple[float, float]:
        """Cosine at or below which a text is unrelated to a query, and at or above which it is certainly related."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector per text. Takes milliseconds per text: call it in a thread."""
        ...

    def embed_query(self, question: str) -> Vectors:
        """Return one unit vector; some models encode queries differently from documents."""
        ...
