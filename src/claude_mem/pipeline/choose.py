"""Which observations a session's start has room for: the recent, the weighty, and not ten times the same. Pure.

Age is counted from the newest one, not from the clock: the same knowledge makes the same choice, tomorrow too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import Any

Row = dict[str, Any]

HALF_LIFE_MS = 7 * 86_400_000
WEIGHTS = {
    "rule": 0.5, "decision": 0.3, "bugfix": 0.25, "feature": 0.25, "discovery": 0.2, "refactor": 0.15, "change": 0.1,
}  # fmt: skip
UNKNOWN_WEIGHT, BY_A_PERSON = 0.2, 0.4
ALIKE = 0.8  # how much something that repeats what is chosen already is held back


@dataclass(slots=True)
class _Waiting:
    row: Row
    words: set[str]
    weight: float
    alike: float = 0.0  # to the likest of those that it was compared with
    compared: int = 0  # with how many of those that are chosen

    @property
    def rank(self) -> tuple[int, float, int]:
        """The first in a heap is the best."""
        return -self.row.get("pinned", 0), ALIKE * self.alike - self.weight, -self.row["id"]


def choose(found: Sequence[Row], *, cost: Callable[[Row], int], room: int, most: int = 500) -> list[Row]:
    """The best that fit, pinned ones before all; in the order in which they are shown: the newest first."""
    newest = max((row["created_at"] for row in found), default=0)
    waiting = {row["id"]: _Waiting(row, _words(row), importance(row, newest)) for row in found}
    heap = [item.rank for item in waiting.values()]
    heapify(heap)
    chosen: list[_Waiting] = []
    while heap and len(chosen) < most:
        best = waiting[-heap[0][2]]
        if best.compared < len(chosen):  # a rank only ever falls: who is not first by the old one is not by the new
            likes = (_like(best.words, other.words) for other in chosen[best.compared :])
            best.alike, best.compared = max(best.alike, *likes), len(chosen)
            heapreplace(heap, best.rank)
            continue
        heappop(heap)
        room -= cost(best.row)
        if room < 0:
            break
        chosen.append(best)
    return sorted((item.row for item in chosen), key=lambda row: (-row["created_at"], -row["id"]))


def importance(row: Row, newest: int) -> float:
    recent = 0.5 ** ((newest - row["created_at"]) / HALF_LIFE_MS)
    return float(recent + WEIGHTS.get(row["type"], UNKNOWN_WEIGHT) + BY_A_PERSON * (row.get("trust") == "user"))


def _words(row: Row) -> set[str]:
    return set(re.findall(r"\w{3,}", (row["title"] or "").lower())) | set(row["files_modified"][:3])


def _like(words: set[str], other: set[str]) -> float:
    return len(words & other) / (len(words | other) or 1)


def still_open(steps: Sequence[Row], done: Sequence[tuple[int, str]]) -> list[str]:
    """Next steps that nothing done later speaks of; what was done with its time."""
    left: list[str] = []
    for row in steps:
        words = _content(row["next_steps"] or "")
        later = [_content(text) for at, text in done if at > row["created_at"]]
        if words and not any(len(words & other) / len(words) > 0.5 for other in later):
            left.append(row["next_steps"])
    return left


def _content(text: str) -> set[str]:
    return set(re.findall(r"\w{4,}", text.lower()))
