"""The order in which the events of a session happened.

Events are numbered as they arrive, and that is the order of what hooks and clients reported: their times need not be
in order, since the clock may be set back. What was read back from a transcript arrives late; its time tells its place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from claude_mem.store.database import Row

# What `in_order` has to know of an event, as columns.
COLUMNS = "seq, at, source, iif(json_valid(body), json_extract(body, '$.agent_id'), '') as agent_id"


def in_order(events: Iterable[Row]) -> list[Row]:
    """Return events in the order in which they happened: those reported live by arrival, the others by time between
    them. Of a session that was only read back, its own transcript is the base, and subagents' events are placed."""
    by_arrival = sorted(events, key=lambda row: row["seq"])
    base = [row for row in by_arrival if row["source"] != "transcript"] or [
        row for row in by_arrival if not row["agent_id"]
    ]
    base_seqs = {row["seq"] for row in base}
    placed: dict[int, list[Row]] = {}
    epochs = _epochs([row["at"] for row in base])
    for row in sorted(
        (row for row in by_arrival if row["seq"] not in base_seqs), key=lambda row: (row["at"], row["seq"])
    ):
        placed.setdefault(_position(row["at"], epochs), []).append(row)
    before = [[*placed.get(number, ()), row] for number, row in enumerate(base)]
    return [row for group in before for row in group] + placed.get(len(base), [])


def _epochs(times: Sequence[int]) -> list[tuple[int, list[int]]]:
    """Return the times between two settings of the clock, each run with the number of its first."""
    epochs: list[tuple[int, list[int]]] = []
    for number, at in enumerate(times):
        if not epochs or at < epochs[-1][1][-1]:
            epochs.append((number, []))
        epochs[-1][1].append(at)
    return epochs


def _position(at: int, epochs: Sequence[tuple[int, list[int]]]) -> int:
    """Return before which event of the base one of this time belongs: after the nearest that is not later."""
    nearest_gap, position = None, 0
    for first, times in epochs:
        count = bisect_right(times, at)
        if count and (nearest_gap is None or at - times[count - 1] <= nearest_gap):
            nearest_gap, position = at - times[count - 1], first + count
    return position
