"""How fast a worker that starts works off what has piled up while there was none.

The times are those of the files: the worker announces itself just before its first look at the spool, and the folder's
own time is that of the last file's removal. So nobody has to look while it works, and takes none of its processor.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from figures import Figure, at_least, median
from lab import Broken, Home, Lab, cpu_seconds, wait_until
from work import EVENTS_PER_SESSION, Session, at_once, put

from claude_mem.system.spool import Spool

SESSIONS = 20
PROJECTS = ("orders", "billing", "search", "website")
EVENTS = SESSIONS * EVENTS_PER_SESSION
EVENTS_PER_SECOND = 500
ROUNDS, QUICK_ROUNDS = 3, 1


@dataclass(frozen=True, slots=True)
class Drained:
    """Seconds since the worker's first look, and of its processor time."""

    empty: float
    digested: float
    cpu: float


def measure(lab: Lab, *, quick: bool) -> list[Figure]:
    found: list[Figure] = []
    for name, transcripts in (("hooks alone", False), ("with transcripts", True)):
        rounds = [
            _round(lab, f"drain-{transcripts}-{number}", transcripts=transcripts)
            for number in range(QUICK_ROUNDS if quick else ROUNDS)
        ]
        found += _figures(name, rounds)
    return found


def _figures(name: str, rounds: list[Drained]) -> list[Figure]:
    count = len(rounds)
    rate = median([EVENTS / one.empty for one in rounds])
    return [
        Figure(f"drain of {EVENTS:,} events, {name}", rate, "events/s", count, at_least(EVENTS_PER_SECOND)),
        Figure(f"drain, {name}: until the spool is empty", median([one.empty for one in rounds]), "s", count),
        Figure(f"drain, {name}: until all is digested", median([one.digested for one in rounds]), "s", count),
        Figure(f"drain, {name}: the worker's processor time", median([one.cpu for one in rounds]), "s", count),
    ]


def _round(lab: Lab, name: str, *, transcripts: bool) -> Drained:
    home = lab.home(name)
    fill(lab, home, transcripts=transcripts)
    try:
        return work_off(home)
    finally:
        home.end()


def fill(lab: Lab, home: Home, *, transcripts: bool) -> None:
    """A thousand events in the spool, from twenty sessions that ran side by side."""
    spool = Spool(home.spool, home.data / "aside")
    folder = home.data.with_name(f"{home.data.name}-transcripts")
    if transcripts:
        folder.mkdir()
    sessions = [
        Session(lab.project(PROJECTS[number % len(PROJECTS)]), folder, seed=number) for number in range(SESSIONS)
    ]
    for session, sent in at_once(sessions):
        put(spool, session, sent)
    if home.waiting() != EVENTS:
        raise Broken(f"{home.waiting()} events are in the spool, not {EVENTS}")


def work_off(home: Home) -> Drained:
    """Start the worker and let it. It goes on running."""
    home.start()
    wait_until(lambda: not home.waiting(), 120, "the spool is never empty", every=0.1)
    wait_until(home.digested, 120, "the events are never digested", every=0.1)
    digested = time.time()
    _check(home)
    first_look = _changed(home.data / "worker.json")
    return Drained(_changed(home.spool) - first_look, digested - first_look, cpu_seconds(home.pid))


def _changed(path: Path) -> float:
    return path.stat().st_mtime


def _check(home: Home) -> None:
    """A worker that threw events away would be very fast."""
    totals = home.ask("/api/stats")["events"]
    by_rule = totals["filtered_by"]
    kept = totals["stored"] + by_rule.get("duplicate", 0)  # a duplicate: the transcript had told of it before its turn
    if totals["set_aside"] or totals["queued"] or kept < EVENTS:
        raise Broken(f"not every event was kept: {totals}")
