"""How long a session's start waits for its context, whatever state the worker is in."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from figures import Figure, at_most, median, percentile
from lab import BARE, Broken, Home, Lab, Run, end_started, forget_start, hook, timed, wait_until
from work import Sent, Session, put

from claude_mem.system.spool import Spool

SAMPLES, QUICK_SAMPLES = 100, 20
REST_SECONDS = 0.015
OBSERVATIONS = 60
BACKLOG = 100
WARM_MS, OTHER_MS = 100, 300
FEW_FILES = 8  # readers open theirs at their first question; a leak would be one a sample


@dataclass(frozen=True, slots=True)
class Case:
    """A state of the worker, how to bring it about before a sample, and what to tidy up after it."""

    name: str
    home: Home
    limit_ms: float
    before: Callable[[Home], None]
    after: Callable[[Home], None]
    runs: list[Run] = field(default_factory=list)


def measure(lab: Lab, *, quick: bool) -> list[Figure]:
    cases, bare = _cases(lab), list[Run]()
    warm = cases[0].home
    try:
        files = _open_files(warm)
        _sample_all(cases, bare, QUICK_SAMPLES if quick else SAMPLES)
        files = _open_files(warm) - files
    finally:
        for case in cases:
            case.home.end()
    leaked = Figure("session start, worker warm: files it left open", files, "", len(bare), at_most(FEW_FILES))
    return [*(figure for case in cases for figure in _figures(case, bare)), leaked]


def _cases(lab: Lab) -> list[Case]:
    seeded = _seeded(lab)
    warm, busy, dead, hung = (lab.copy(seeded, f"start-{name}") for name in ("warm", "busy", "dead", "hung"))
    for home in (warm, busy, hung):
        home.start()
    hung.hang()
    return [
        Case("worker warm", warm, WARM_MS, _nothing, _settled),
        Case(f"worker busy with {BACKLOG} events", busy, OTHER_MS, _pile_up, _settled),
        Case("worker dead, the hook starts one", dead, OTHER_MS, forget_start, end_started),
        Case("worker hung", hung, OTHER_MS, _nothing, _nothing),
    ]


def _seeded(lab: Lab) -> Home:
    """A project of which about `OBSERVATIONS` observations are known; its worker is gone."""
    home = lab.home("start-seed")
    spool = Spool(home.spool, home.data / "aside")
    for session, sent in _history(home):
        put(spool, session, sent)
    home.start()
    wait_until(home.digested, 60, "the seed is never digested", every=0.1)
    known = home.ask("/api/stats")["database"]["observations"]
    home.end(signal.SIGTERM)
    if not OBSERVATIONS <= known <= 2 * OBSERVATIONS:
        raise Broken(f"{known} observations were made, not about {OBSERVATIONS}")
    return home


def _history(home: Home) -> Iterator[tuple[Session, Sent]]:
    for seed in range(OBSERVATIONS // 4):
        session = Session(home.project, home.data / "none", seed=1000 + seed)
        yield from ((session, sent) for sent in session)


def _nothing(_: Home) -> None:
    pass


def _settled(home: Home) -> None:
    wait_until(home.digested, 30, "the worker does not come to rest", every=0.01)


def _pile_up(home: Home) -> None:
    """A backlog that appears at once, as after a worker's restart: written beside the spool, then moved in."""
    aside = Spool(home.data.with_name(f"{home.data.name}-pile"), home.data / "aside")
    session = Session(home.project, home.data / "none", seed=random.getrandbits(32))
    session.prompt_id = session.id
    for _ in range(BACKLOG):
        put(aside, session, session.tool("Bash"))
    for entry in os.scandir(aside.folder):
        Path(entry.path).rename(home.spool / entry.name)


def _sample_all(cases: list[Case], bare: list[Run], count: int) -> None:
    """Shuffled together, so that whatever else the machine does meets them all alike. The first of each is not
    counted: it warms the caches."""
    for case in cases:
        _sample(case)
    order: list[Case | None] = [None, *cases] * count
    random.shuffle(order)
    for kind in order:
        if kind is None:
            time.sleep(REST_SECONDS)
            bare.append(timed(BARE, cases[0].home.env, b""))
        else:
            kind.runs.append(_sample(kind))


def _sample(case: Case) -> Run:
    sent = Session(case.home.project, case.home.data / "none", seed=random.getrandbits(64)).started()
    time.sleep(REST_SECONDS)
    case.before(case.home)
    run = timed(hook(case.home.data, "context"), case.home.env, sent.payload)
    case.after(case.home)
    if b"additionalContext" not in run.answer:
        raise Broken(f"{case.name}: a session start without context: {run.answer[:80]!r}")
    return run


def _open_files(home: Home) -> int:
    return len(os.listdir(f"/proc/{home.pid}/fd"))


def _figures(case: Case, bare: list[Run]) -> list[Figure]:
    wall, base = [run.wall_ms for run in case.runs], median([run.wall_ms for run in bare])
    name, count = f"session start, {case.name}", len(case.runs)
    return [
        Figure(f"{name}: p95", percentile(wall, 95), "ms", count, at_most(case.limit_ms)),
        Figure(f"{name}: p50", median(wall), "ms", count),
        Figure(f"{name}: p50 against bare", median(wall) / base, "× bare p50", count),
    ]
