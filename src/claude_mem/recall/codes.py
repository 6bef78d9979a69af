"""All vectors of the built-in embedding in memory, compared with a query without numpy.

One bit per dimension, its sign, is enough to find the closest few hundred of 100,000 texts in milliseconds: the bits
of a text are one integer, and one call counts the bits in which two integers differ. The stored bytes then give the
cosines of those few exactly. Neighbouring turns, which only adjust a score, are compared by their bits.
"""

from __future__ import annotations

import heapq
import math
import struct
import threading
from array import array
from bisect import insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, MutableSequence, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import mul
from typing import Any

from claude_mem.recall.nearness import SAVED_NEAR_MS, SHORT, Nearness
from claude_mem.storage.records import StoredVector

CLOSEST = 150  # turns whose cosine is computed exactly; with 300 the results are the same, at twice the time
_EXACT_SLOTS = 2  # passages of a turn whose cosine is computed exactly
_SLOTS_PER_TURN = 2  # passages that are looked at for each turn that is asked for
_FACTOR = struct.Struct("<f")


@dataclass(slots=True)
class _Group:
    """A turn, or a memory saved by hand, and the slots of its passages."""

    thread: int
    at: int
    slots: list[int] = field(default_factory=list)


class _Block:
    """The vectors of one project: parallel lists, one slot per passage, and their turns."""

    def __init__(self) -> None:
        self.documents = array("q")
        self.turns = array("q")
        self.lengths = array("q")
        self.codes: list[int] = []
        self.vectors: list[bytes] = []
        self.groups: dict[int, _Group] = {}
        self.threads: defaultdict[int, list[int]] = defaultdict(list)  # the turns of a session, in order

    def add(self, row: StoredVector) -> None:
        group = self.groups.get(row.turn)
        if group is None:
            group = self.groups[row.turn] = _Group(row.session, row.created_at)
            insort(self.threads[row.session], row.turn, key=abs)
        group.slots.append(len(self.codes))
        self.documents.append(row.document)
        self.turns.append(row.turn)
        self.lengths.append(row.length)
        self.codes.append(_code(memoryview(row.vector)[_FACTOR.size :].cast("b")))
        self.vectors.append(row.vector)

    def remove(self, documents: Collection[int]) -> None:
        """Remove the slots of these documents; the last slot takes the place of a removed one."""
        removed = [slot for slot, document in enumerate(self.documents) if document in documents]
        for slot in reversed(removed):
            turn = self.turns[slot]
            group = self.groups[turn]
            group.slots.remove(slot)
            if not group.slots:
                del self.groups[turn]
                self.threads[group.thread].remove(turn)
            last = len(self.codes) - 1
            if slot != last:
                slots = self.groups[self.turns[last]].slots
                slots[slots.index(last)] = slot
            columns: tuple[MutableSequence[Any], ...] = (
                self.documents, self.turns, self.lengths, self.codes, self.vectors,
            )  # fmt: skip
            for column in columns:
                column[slot] = column[last]
                column.pop()

    def rows(self) -> Iterator[StoredVector]:
        """Yield the rows that were added, in no order. Part and project, which are not kept, are 0."""
        for slot, turn in enumerate(self.turns):
            group, length = self.groups[turn], self.lengths[slot]
            yield StoredVector(self.documents[slot], 0, 0, turn, group.thread, group.at, length, self.vectors[slot])


class CodeMatrix:
    """The `Matrix` of the built-in embedding."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        # The cosine that a number of different signs stands for, and one that stands for "not in scope".
        self._cosines = [math.cos(math.pi * distance / dimensions) for distance in range(dimensions + 1)] + [-1.0]
        self._lock = threading.Lock()
        self._blocks: defaultdict[int, _Block] = defaultdict(_Block)
        self._moved: dict[int, int] = {}

    def __len__(self) -> int:
        return sum(len(block.codes) for block in self._blocks.values())

    def add(self, rows: Iterable[StoredVector]) -> None:
        with self._lock:
            for row in rows:
                if len(row.vector) == self._dimensions + _FACTOR.size:
                    self._add(row)

    def _add(self, row: StoredVector) -> None:
        for source, target in self._moved.items():
            if row.project == source:
                session = -target if row.session == -source else row.session
                row = row._replace(project=target, session=session)
        self._blocks[row.project].add(row)

    def move(self, source: int, target: int) -> None:
        with self._lock:
            self._moved[source] = target
            for row in self._blocks.pop(source, _Block()).rows():
                self._add(row._replace(project=source))

    def remove(self, document_ids: Collection[int]) -> None:
        documents = set(document_ids)
        with self._lock:
            for block in self._blocks.values():
                block.remove(documents)

    def nearest(
        self,
        question: Sequence[float],
        *,
        project_ids: Sequence[int] | None = None,
        document_ids: Collection[int] | None = None,
        also_groups: Collection[int] = (),
        near_share: float = 0.0,
        limit: int = CLOSEST,
    ) -> Nearness:
        code, values = _code(question), [float(value) for value in question]
        documents = None if document_ids is None else set(document_ids)
        with self._lock:
            projects = self._blocks.keys() if project_ids is None else self._blocks.keys() & set(project_ids)
            views = [_View(self._blocks[project], code, documents, self._cosines) for project in projects]
            slots = heapq.nsmallest(_SLOTS_PER_TURN * limit, chain.from_iterable(view.distances for view in views))
            if not slots or slots[0] > self._dimensions:
                return Nearness({}, {}, {})
            farthest = min(slots[-1], self._dimensions)
            raw: dict[int, float] = {}
            smooth: dict[int, float] = {}
            threads: dict[int, int] = {}
            for view in views:
                closest = view.turns_within(farthest)
                for turn in closest | (view.block.groups.keys() & set(also_groups)):
                    if (cosine := view.cosine(turn, values if turn in closest else None)) is not None:
                        raw[turn] = cosine
                        smooth[turn] = view.with_neighbours(turn, cosine, near_share)
                        threads[turn] = view.block.groups[turn].thread
            best = max(*smooth.values(), 1e-9)
            return Nearness({turn: max(0.0, value / best) for turn, value in smooth.items()}, raw, threads)


class _View:
    """A block as one query sees it."""

    def __init__(self, block: _Block, code: int, documents: set[int] | None, cosines: Sequence[float]) -> None:
        self.block = block
        self._cosines = cosines
        self._far = len(cosines) - 1
        self.distances = [(other ^ code).bit_count() for other in block.codes]
        if documents is not None:
            self.distances = [
                distance if document in documents else self._far
                for distance, document in zip(self.distances, block.documents, strict=True)
            ]

    def turns_within(self, distance: int) -> set[int]:
        turns = self.block.turns
        return {turns[slot] for slot, other in enumerate(self.distances) if other <= distance}

    def cosine(self, turn: int, question: Sequence[float] | None) -> float | None:
        """Return the cosine of a turn's best passage, without a question as its signs tell; None if out of scope."""
        slots = [slot for slot in self.block.groups[turn].slots if self.distances[slot] < self._far]
        best = sorted(slots, key=self.distances.__getitem__)[:_EXACT_SLOTS]
        if question is None:
            return self._cosines[self.distances[best[0]]] if best else None
        return max((_cosine(self.block.vectors[slot], question) for slot in best), default=None)

    def with_neighbours(self, turn: int, cosine: float, near_share: float) -> float:
        """Mix a turn's cosine with those of the two turns before and after it; the shorter the turn, the more."""
        block, group = self.block, self.block.groups[turn]
        length = max(block.lengths[slot] for slot in group.slots)
        near = [
            self._cosines[distance]
            for other in _around(block.threads[group.thread], turn)
            if turn > 0 or abs(block.groups[other].at - group.at) <= SAVED_NEAR_MS
            if (distance := min(self.distances[slot] for slot in block.groups[other].slots)) < self._far
        ]
        if not near:
            return cosine
        share = near_share * min(1, SHORT / max(length, 1))
        return (cosine + share * sum(near) / len(near)) / (1 + share)


def _around(turns: Sequence[int], turn: int) -> list[int]:
    place = turns.index(turn)
    return [*turns[max(0, place - 2) : place], *turns[place + 1 : place + 3]]


def _code(values: Iterable[float]) -> int:
    """Return the signs of a vector as the bits of an integer."""
    return int("".join(["1" if value > 0 else "0" for value in values]), 2)


def _cosine(vector: bytes, question: Sequence[float]) -> float:
    (factor,) = _FACTOR.unpack_from(vector)
    return float(factor * sum(map(mul, memoryview(vector)[_FACTOR.size :].cast("b"), question)))
