"""What a capture hook costs, in times of an interpreter that does nothing.

All kinds of samples are shuffled together: whatever else the machine does meets them all alike, and their ratio
stands. One thing it does not cancel out: the hook syncs to the disk and the bare interpreter does not. So what the
disk alone takes is sampled too; where it is slow because others write, the ratio is theirs as well as ours.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from figures import Figure, at_most, median, percentile
from lab import BARE, Broken, Home, Lab, Run, end_started, forget_start, hook, spawn, timed, wait_until
from msgspec import structs
from work import Session

from claude_mem.hook import EMPTY_ANSWER
from claude_mem.system import process
from claude_mem.system.spool import Spool

SAMPLES, QUICK_SAMPLES = 500, 40
AT_ONCE, ROUNDS, QUICK_ROUNDS = 50, 10, 2
SLOW_SECONDS = 10.0
WARM_UP = 5
REST_SECONDS = 0.015  # between two samples, what the last one has set in motion comes to rest
P50, P95 = 1.5, 2.5
AT_ONCE_MS = 1000


@dataclass(frozen=True, slots=True)
class Case:
    """A state of the worker: how to bring it about before a sample, and what to tidy up after it."""

    name: str
    home: Home
    before: Callable[[Home], None]
    after: Callable[[Home], None]
    runs: list[Run] = field(default_factory=list)

    def sample(self, payload: bytes) -> Run:
        self.before(self.home)
        run = timed(hook(self.home.data, "save"), self.home.env, payload)
        self.after(self.home)
        if run.answer != EMPTY_ANSWER:
            raise Broken(f"{self.name}: the hook answered {run.answer[:80]!r}")
        return run


class Bare:
    """An interpreter that does nothing, in the same surroundings."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.runs: list[Run] = []

    def sample(self, payload: bytes) -> Run:
        return timed(BARE, self.home.env, payload)


class Disk:
    """A file written, synced and renamed as the hook does it, by a process that runs already."""

    def __init__(self, home: Home) -> None:
        self.spool = Spool(home.data.with_name("disk"), home.data.with_name("disk"))
        self.runs: list[Run] = []

    def sample(self, payload: bytes) -> Run:
        begin = time.perf_counter_ns()
        self.spool.put({"command": "save"}, payload)
        return Run((time.perf_counter_ns() - begin) / 1e6, 0.0, b"")


def measure(lab: Lab, *, quick: bool) -> list[Figure]:
    cases = _cases(lab)
    bare, disk = Bare(cases[0].home), Disk(cases[0].home)
    try:
        _sample_all([bare, disk, *cases], lab.project("orders"), QUICK_SAMPLES if quick else SAMPLES)
    finally:
        for case in cases:
            case.home.end()
    found = _plain("bare interpreter", bare.runs) + _plain("one event synced to the disk", disk.runs)
    found += [figure for case in cases for figure in _figures(case, bare.runs)]
    return found + _at_once(lab, QUICK_ROUNDS if quick else ROUNDS)


def _cases(lab: Lab) -> list[Case]:
    up, dead, paused, hung, slow = (_lived_in(lab, name) for name in ("up", "dead", "paused", "hung", "slow"))
    dead.end()
    paused.end()
    hung.hang()
    _slow_down(slow)
    return [
        Case("worker up", up, _nothing, _drained),
        Case("worker dead, the hook starts one", dead, forget_start, end_started),
        Case("worker dead, one was started moments ago", paused, _started_moments_ago, _nothing),
        Case("worker hung", hung, _nothing, _nothing),
        Case(f"worker slow, it answers after {SLOW_SECONDS:g} s", slow, _nothing, _nothing),
    ]


def _lived_in(lab: Lab, name: str) -> Home:
    """A home in which a worker has run: the very first event of all makes folders, and happens once."""
    home = lab.home(name)
    home.start()
    return home


def _slow_down(home: Home) -> None:
    """In its place someone listens who takes every request and answers it much later."""
    worker = process.read_worker_info(home.data)
    assert worker is not None
    home.hang()  # it keeps the pipe for nudges and the lock
    server = socket.create_server(("127.0.0.1", 0), backlog=1024)
    process.write_worker_info(home.data, structs.replace(worker, port=server.getsockname()[1]))
    threading.Thread(target=_answer_late, args=(server,), daemon=True).start()


def _answer_late(server: socket.socket) -> None:
    while True:
        channel, _ = server.accept()
        threading.Timer(SLOW_SECONDS, channel.close).start()


def _nothing(_: Home) -> None:
    pass


def _drained(home: Home) -> None:
    wait_until(lambda: not home.waiting(), 10, "the worker does not drain its spool", every=0.002)


def _started_moments_ago(home: Home) -> None:
    (home.data / "worker.starting").touch()


def _sample_all(kinds: Sequence[Case | Bare | Disk], project: Path, count: int) -> None:
    """The first few of each warm the caches and are not counted."""
    session = Session(project, project / "none", seed=1)
    order = list(kinds) * count
    random.shuffle(order)
    for number, kind in enumerate([*kinds] * WARM_UP + order):
        payload = session.tool("Bash").payload
        time.sleep(REST_SECONDS)
        run = kind.sample(payload)
        if number >= WARM_UP * len(kinds):
            kind.runs.append(run)


# --- many at once ----------------------------------------------------------------------------------------------------


def _at_once(lab: Lab, rounds: int) -> list[Figure]:
    """As many sessions whose agents all do something in the same moment."""
    home = _lived_in(lab, "at-once")
    session = Session(lab.project("orders"), lab.root / "none", seed=2)
    try:
        waits = [wait for _ in range(rounds) for wait in _round(home, session)]
        wait_until(home.digested, 60, "the events are never digested", every=0.1)
        captured = home.ask("/api/stats")["events"]["captured"]
    finally:
        home.end()
    name = f"capture, {AT_ONCE} at once"
    return [
        Figure(f"{name}: p50", median(waits), "ms", len(waits)),
        Figure(f"{name}: p95", percentile(waits, 95), "ms", len(waits), at_most(AT_ONCE_MS)),
        Figure(f"{name}: not captured", len(waits) - captured, "", len(waits), at_most(0)),
    ]


def _round(home: Home, session: Session) -> list[float]:
    begun: dict[int, int] = {}
    for _ in range(AT_ONCE):
        started = time.perf_counter_ns()
        begun[spawn(hook(home.data, "save"), home.env, session.tool("Bash").payload)] = started
    return [_waited(begun) for _ in range(AT_ONCE)]


def _waited(begun: dict[int, int]) -> float:
    """Whoever ends next: how long it took."""
    pid, status = os.waitpid(-1, 0)
    while pid not in begun:  # a worker of another measurement
        pid, status = os.waitpid(-1, 0)
    if status != 0:
        raise Broken(f"a hook ended with status {status}")
    return (time.perf_counter_ns() - begun[pid]) / 1e6


def _figures(case: Case, bare: list[Run]) -> list[Figure]:
    ours, theirs = [run.wall_ms for run in case.runs], [run.wall_ms for run in bare]
    name, count, p95 = f"capture, {case.name}", len(ours), percentile(ours, 95)
    return [
        Figure(f"{name}: p50 against bare", median(ours) / median(theirs), "× bare p50", count, at_most(P50)),
        Figure(f"{name}: p95 against bare", p95 / percentile(theirs, 95), "× bare p95", count, at_most(P95)),
        Figure(f"{name}: p95 against bare p50", p95 / median(theirs), "× bare p50", count),
        Figure(f"{name}: processor time against bare", _cpu(case.runs) / _cpu(bare), "× bare p50", count),
        *_plain(name, case.runs),
    ]


def _plain(name: str, runs: list[Run]) -> list[Figure]:
    wall = [run.wall_ms for run in runs]
    return [
        Figure(f"{name}: p50", median(wall), "ms", len(runs)),
        Figure(f"{name}: p95", percentile(wall, 95), "ms", len(runs)),
        Figure(f"{name}: p99", percentile(wall, 99), "ms", len(runs)),
    ]


def _cpu(runs: list[Run]) -> float:
    return median([run.cpu_ms for run in runs])
