"""The order in which the events of a session happened.

Events are numbered (`seq`) as they arrive, and for events reported by hooks and clients this is their order. Their
times need not be in order, since the clock may be set back. Events read from a transcript arrive late and are placed by
time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TypeVar

from claude_mem.storage.sqlite.engine import Row

# The columns of an event that `order_events` needs.
E = TypeVar("E", bound=Row)
ORDER_COLUMNS = "seq, at, source, iif(json_valid(body), json_extract(body, '$.agent_id'), '') as agent_id"


def order_events(events: Iterable[E]) -> list[E]:
    """Return events in the order in which they happened: live events by arrival, the others between them by time.

    If a session was only read from transcripts, its main transcript is the base, and subagent events are placed by
    time.
    """
    by_arrival = sorted(events, key=lambda row: row["seq"])
    base = [row for row in by_arrival if row["source"] != "transcript"] or [
        row for row in by_arrival if not row["agent_id"]
    ]
    base_seqs = {row["seq"] for row in base}
    placed: dict[int, list[E]] = {}
    epochs = _epochs([row["at"] for row in base])
    for row in sorted(
        (row for row in by_arrival if row["seq"] not in base_seqs), key=lambda row: (row["at"], row["seq"])
    ):
        placed.setdefault(_position(row["at"], epochs), []).append(row)
    before = [[*placed.get(number, ()), row] for number, row in enumerate(base)]
    return [row for group in before for row in group] + placed.get(len(base), [])


def _epochs(times: Sequence[int]) -> list[tuple[int, list[int]]]:
    """Split times into runs between two clock changes, each with the index of its first element."""
    epochs: list[tuple[int, list[int]]] = []
    for number, at in enumerate(times):
        if not epochs or at < epochs[-1][1][-1]:
            epochs.append((number, []))
        epochs[-1][1].append(at)
    return epochs


def _position(at: int, epochs: Sequence[tuple[int, list[int]]]) -> int:
    """Return the index of the base before which an event of this time belongs: after the nearest one not later."""
    nearest_gap, position = None, 0
    for first, times in epochs:
        count = bisect_right(times, at)
        if count and (nearest_gap is None or at - times[count - 1] <= nearest_gap):
            nearest_gap, position = at - times[count - 1], first + count
    return position
