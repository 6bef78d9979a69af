"""Which observations a session's start has room for: the recent, the weighty, and not ten times the same. Pure.

Age is counted from the newest one, not from the clock: the same knowledge makes the same choice, tomorrow too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]

HALF_LIFE_MS = 7 * 86_400_000
WEIGHTS = {"decision": 0.3, "bugfix": 0.25, "feature": 0.25, "discovery": 0.2, "refactor": 0.15, "change": 0.1}
UNKNOWN_WEIGHT, BY_A_PERSON = 0.2, 0.4
ALIKE = 0.8  # how much something that repeats what is chosen already is held back


def choose(found: Sequence[Row], *, cost: Callable[[Row], int], room: int, most: int = 500) -> list[Row]:
    """The best that fit, pinned ones before all; in the order in which they are shown: the newest first."""
    chosen: list[Row] = []
    said: list[set[str]] = []
    waiting = [(row, _words(row), importance(row, found)) for row in found]
    while waiting and len(chosen) < most:
        best = max(waiting, key=lambda item: (*_rank(item, said), item[0]["id"]))
        waiting.remove(best)
        room -= cost(best[0])
        if room < 0:
            break
        chosen.append(best[0])
        said.append(best[1])
    return sorted(chosen, key=lambda row: (-row["created_at"], -row["id"]))


def _rank(item: tuple[Row, set[str], float], said: Sequence[set[str]]) -> tuple[int, float]:
    row, words, weight = item
    return row.get("pinned", 0), weight - ALIKE * _like(words, said)


def importance(row: Row, found: Sequence[Row]) -> float:
    newest = max(other["created_at"] for other in found)
    recent = 0.5 ** ((newest - row["created_at"]) / HALF_LIFE_MS)
    return float(recent + WEIGHTS.get(row["type"], UNKNOWN_WEIGHT) + BY_A_PERSON * (row.get("trust") == "user"))


def _words(row: Row) -> set[str]:
    return set(re.findall(r"\w{3,}", (row["title"] or "").lower())) | set(row["files_modified"][:3])


def _like(words: set[str], said: Sequence[set[str]]) -> float:
    return max((len(words & other) / (len(words | other) or 1) for other in said), default=0.0)


def still_open(steps: Sequence[Row], done: Sequence[str]) -> list[str]:
    """Next steps that nothing done later speaks of. Both newest first; a step has `next_steps` and `created_at`."""
    left: list[str] = []
    for row in steps:
        words = _content(row["next_steps"])
        later = [_content(text) for text in done]
        if words and not any(len(words & other) / len(words) > 0.5 for other in later):
            left.append(row["next_steps"])
    return left


def _content(text: str) -> set[str]:
    return set(re.findall(r"\w{4,}", text.lower()))
