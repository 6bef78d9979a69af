"""A heavy day in a few minutes: a hundred sessions at once, faults among their events, people searching and looking.

A day of the busiest user known was 2,400 events; this is 20,000. What is looked at is whether anything grows that should
not, whether anything is lost, and whether searching stays quick meanwhile. `--minutes 1` is a quick look, no measurement.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from beside import Beside
from figures import Figure, as_text, at_most, note, percentile, setting, write
from lab import Broken, Home, Lab, wait_until
from work import TOOLS, Sent, Session, at_once, put

from claude_mem.system.spool import Spool

RESULTS = Path(__file__).parent / "results"
SESSIONS, EVENTS, MINUTES = 100, 20_000, 10.0
FAULTS = 0.01  # of the events: nothing, half a payload, no header, the same once more
VIEWERS, SEARCH_EVERY, SAMPLE_EVERY = 5, 0.2, 1.0
WARM = 0.3  # of the time: until then caches fill
DAY_HOURS = 24
QUESTIONS = (
    "rounding error in the total",
    "why does the parser fail",
    "src/invoice.py",
    "pytest failed",
    "retry queue",
)


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    memory: float  # MB, its share of what is shared included
    files: int
    threads: int
    log: float  # MB


class Day(Beside):
    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self.samples: list[Sample] = []

    def work(self) -> list[Callable[[], None]]:
        question = partial(random.Random(0).choice, QUESTIONS)
        return [partial(self.search, question, every=SEARCH_EVERY), self._sample]

    def _sample(self) -> None:
        begun = time.monotonic()
        while not self.over.wait(SAMPLE_EVERY):
            self.samples.append(_sample(self.home, time.monotonic() - begun))


def _sample(home: Home, at: float) -> Sample:
    folder = Path("/proc", str(home.pid))
    share = next(line for line in (folder / "smaps_rollup").read_text().splitlines() if line.startswith("Pss:"))
    log = home.data / "claude-mem.db-wal"
    return Sample(
        at,
        int(share.split()[1]) / 1024,
        len(list((folder / "fd").iterdir())),
        len(list((folder / "task").iterdir())),
        log.stat().st_size / 1e6 if log.exists() else 0.0,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help=f"how long the events take (default {MINUTES:g})"
    )
    parser.add_argument("--events", type=int, default=EVENTS)
    given = parser.parse_args()
    with Lab() as lab:
        figures = soak(lab, events=given.events, minutes=given.minutes)
        about = setting(lab.root)
    figures.append(Figure("processes left behind", lab.left, "", 1, at_most(0)))
    print(as_text(figures))
    note("soak", figures, of="R10")
    if (given.events, given.minutes) == (EVENTS, MINUTES):
        write(RESULTS / "soak", "A heavy day in ten minutes", figures, about)
    return int(any(figure.missed for figure in figures))


def soak(lab: Lab, *, events: int, minutes: float) -> list[Figure]:
    home = lab.home("soak")
    home.start()
    beside = Day(home)
    beside.start(*beside.work(), viewers=VIEWERS)
    try:
        sent, faults = _send(lab, home, events, seconds=60 * minutes)
        wait_until(home.digested, 300, "the events are never digested", every=0.5)
        totals = home.ask("/api/stats")["events"]
        beside.stop()
    finally:
        home.end(15)
    return _figures(beside, totals, sent, faults)


def _send(lab: Lab, home: Home, events: int, *, seconds: float) -> tuple[int, int]:
    """At an even pace; how many files were put there, and how many of them were no events."""
    spool, dice, begun = Spool(home.spool, home.data / "aside"), random.Random(1), time.monotonic()
    count = faults = 0
    for session, event in _events(lab, events):
        put(spool, session, event)
        count += 1
        if dice.random() < FAULTS:
            count, faults = count + 1, faults + _fault(spool, session, event, dice)
        time.sleep(max(0.0, begun + seconds * count / events - time.monotonic()))
    return count, faults


def _events(lab: Lab, events: int) -> Iterator[tuple[Session, Sent]]:
    turns = max(1, events // SESSIONS // (2 + len(TOOLS)))
    projects = [lab.project(name) for name in ("orders", "billing", "search", "website")]
    work = [Long(projects[number % 4], lab.root / "none", seed=number) for number in range(SESSIONS)]
    for session in work:
        session.turns = turns
    return at_once(list(work))


class Long(Session):
    """One that goes on all day."""

    turns = 1

    def __iter__(self) -> Iterator[Sent]:
        yield self.started()
        for _ in range(self.turns):
            yield from self.turn()
        yield self._sent("cleanup", "SessionEnd", reason="prompt_input_exit")


def _fault(spool: Spool, session: Session, event: Sent, dice: random.Random) -> int:
    """1 if it is no event at all; the same event once more is one, and a duplicate."""
    header = {"command": event.command, "host": "claude", "project_dir": str(session.project)}
    match dice.randrange(3):
        case 0:
            spool.put(header, event.payload[: len(event.payload) // 2])
        case 1:
            spool.put({}, b"\xff\x00" * 50)
        case _:
            spool.put(header, event.payload)
            return 0
    return 1


def _figures(beside: Day, totals: dict[str, int], sent: int, faults: int) -> list[Figure]:
    if not beside.samples or not beside.searches:
        raise Broken("nothing was sampled")
    last = beside.samples[-1].at
    warm = [sample for sample in beside.samples if sample.at >= WARM * last]
    first, files = warm[0], [sample.files for sample in warm]
    places = totals["stored"] + totals["queued"] + totals["set_aside"] + totals["filtered"]
    growth = _slope([sample.at for sample in warm], [sample.memory for sample in warm]) * last / DAY_HOURS
    count = len(warm)
    return [
        Figure("events sent", sent, "", 1),
        Figure("lost or doubled: sent and not accounted for", abs(sent - totals["captured"]), "", sent, at_most(0)),
        Figure("captured less than the sum of its places", abs(totals["captured"] - places), "", 1, at_most(0)),
        Figure("faults that were not set aside", abs(faults - totals["set_aside"]), "", faults, at_most(0)),
        Figure("memory at most", max(sample.memory for sample in beside.samples), "MB", count, at_most(200)),
        Figure("memory's growth, an hour of the day that this stands for", growth, "MB", count, at_most(1)),
        Figure("files open: most less least", max(files) - min(files), "", count, at_most(4)),
        Figure("threads: change", abs(beside.samples[-1].threads - first.threads), "", count, at_most(0)),
        Figure("the write-ahead log at most", max(sample.log for sample in beside.samples), "MB", count, at_most(64)),
        Figure("search meanwhile, p95", percentile(beside.searches, 95), "ms", len(beside.searches), at_most(100)),
        Figure("searches that failed", len(beside.problems), "", len(beside.searches), at_most(0)),
        Figure("news heard by the viewers", beside.heard, "", VIEWERS),
    ]


def _slope(x: list[float], y: list[float]) -> float:
    """Of the straight line that lies closest."""
    middle_x, middle_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - middle_x) ** 2 for a in x)
    return sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True)) / spread if spread else 0.0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Broken as problem:
        sys.exit(f"could not be measured: {problem}")
