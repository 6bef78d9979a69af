"""What a comparison of a query with all vectors returns, and the rules that both implementations share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from claude_mem.storage.records import StoredVector

SHORT = 100  # a text of this length borrows its full share from its neighbours, a longer one less
SAVED_NEAR_MS = 600_000


@dataclass(frozen=True, slots=True)
class Nearness:
    """How close each turn is to a query: 0 for the farthest in scope, 1 for the closest."""

    scores: dict[int, float]  # by group: the closest groups and those in `also_groups`
    raw: dict[int, float]  # cosine by group, not smoothed
    threads: dict[int, int]


class Matrix(Protocol):
    """All vectors of one model. Grows and shrinks in place; a query sees a consistent state."""

    def __len__(self) -> int: ...

    def add(self, rows: Iterable[StoredVector]) -> None:
        """Add rows in the format of `search.load_vectors`. Vectors of another length are ignored."""
        ...

    def move(self, source: int, target: int) -> None:
        """Move a project's rows to another project, also those that were read before the move but are added later."""
        ...

    def remove(self, document_ids: Sequence[int]) -> None:
        """Remove all rows of these documents."""
        ...

    def nearest(
        self,
        question: Sequence[float],
        *,
        project_ids: Sequence[int] | None = None,
        document_ids: Sequence[int] | None = None,
        also_groups: Collection[int] = (),
        near_share: float = 0.0,
        limit: int = 300,
    ) -> Nearness:
        """Return the closest turns in scope, and the closeness of those in `also_groups`. `near_share`: how much a
        short turn borrows from the turns before and after it."""
        ...
