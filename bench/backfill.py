"""How fast old transcripts become memories, what that takes, and whether anyone who works meanwhile notices.

    python bench/backfill.py [--quick] [--data FOLDER] [--out FOLDER]

Real sessions are not part of this project (`CLAUDE_MEM_BENCH_DATA`, or `../shared/data`); without them this says so and
measures made-up ones only. Where others use the processor too, the seconds on the wall say little: compare the
processor time.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures
from figures import Figure, at_least, at_most, median, percentile
from lab import Broken, Home, Lab, cpu_seconds, wait_until
from work import Session, transcript

from claude_mem.client import Client
from claude_mem.system.spool import Spool

RESULTS = Path(__file__).with_name("results")
DATA = Path(os.environ.get("CLAUDE_MEM_BENCH_DATA", Path(__file__).parents[2] / "shared" / "data"))

HISTORY_SECONDS = 30
FILES_PER_SECOND, MB_PER_SECOND, MB_RESIDENT = 20, 15, 250
STORED_MS, SPOKEN_MS = 250, 150  # a hook waits no longer than that for what memory has to say
MEDIAN_FILES = 40
HUGE_MB, QUICK_HUGE_MB = 500, 60
MADE_UP_SESSIONS, QUICK_SESSIONS = 120, 20


@dataclass(frozen=True, slots=True)
class Done:
    """Seconds until all files were stored, digested, and findable; processor seconds; most megabytes resident."""

    files: int
    megabytes: float
    times: tuple[float, ...]
    cpu: float
    resident: float

    @property
    def stored(self) -> float:
        return self.times[0]

    @property
    def digested(self) -> float:
        return self.times[1]

    @property
    def found(self) -> float:
        return self.times[2]


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that our processes are ended on the way out
    found: list[Figure] = []
    with Lab() as lab:
        setting = figures.setting(lab.root)
        for part in _measure(lab, options):
            print(figures.as_text(part), file=sys.stderr, flush=True)
            found += part
    print(figures.as_text(found))
    whole = not options.quick and (options.data / "sessions").is_dir()
    if folder := options.out or (RESULTS if whole else None):
        figures.write(folder / "backfill", "Back-fill throughput", found, {**setting, "quick": options.quick})
    missed = [figure for figure in found if figure.missed]
    for figure in missed:
        print(f"missed: {figure.name} is {figure.value:.2f} {figure.unit}, goal {figure.goal}", file=sys.stderr)
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the back-fill against its goals.")
    parser.add_argument("--quick", action="store_true", help="less of everything: enough to see what is broken")
    parser.add_argument("--data", type=Path, default=DATA, help="where the real sessions are")
    parser.add_argument("--out", type=Path, help="write the results there")
    return parser.parse_args()


def _measure(lab: Lab, options: argparse.Namespace) -> Iterator[list[Figure]]:
    packed = sorted((options.data / "sessions" / "transcripts").glob("*.jsonl.gz"))
    files = [_made_up(lab, number) for number in range(QUICK_SESSIONS if options.quick else MADE_UP_SESSIONS)]
    yield _speed(f"{len(files)} made-up sessions", _run(lab, "made-up", files), goals=False)
    if packed:
        real = [_unpacked(lab, path) for path in packed]
        yield _history(lab, real)
        yield _medians(lab, real)
        files += real  # the made-up ones first: a session at work in their project has something to be told
    else:
        print(f"no real sessions in {options.data}: the goals for them are not measured", file=sys.stderr)
    yield _live(lab, files)
    yield _huge(lab, QUICK_HUGE_MB if options.quick else HUGE_MB)


# --- files -----------------------------------------------------------------------------------------------------------


def _made_up(lab: Lab, number: int) -> Path:
    folder = lab.root / "made-up"
    folder.mkdir(exist_ok=True)
    session = Session(lab.project("orders"), folder, seed=number)
    lines = b"".join(transcript(sent) for sent in session)
    common = f'{{"sessionId":"{session.id}","cwd":"{session.project}",'.encode()
    session.transcript.write_bytes(b"".join(common + line[1:] for line in lines.splitlines(keepends=True)))
    return session.transcript


def _unpacked(lab: Lab, packed: Path) -> Path:
    """As the client has them: the goals are for plain files."""
    folder = lab.root / "real"
    folder.mkdir(exist_ok=True)
    path = folder / packed.name.removesuffix(".gz")
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


def _megabytes(files: list[Path]) -> float:
    return sum(path.stat().st_size for path in files) / 1e6


# --- runs ------------------------------------------------------------------------------------------------------------


def _run(lab: Lab, name: str, files: list[Path]) -> Done:
    home = lab.home(name)
    home.start()
    try:
        return _timed(home, files)
    finally:
        home.end()


def _timed(home: Home, files: list[Path]) -> Done:
    begun, cpu = time.monotonic(), cpu_seconds(home.pid)
    client = _ask(home, files)
    times = tuple(time.monotonic() - begun for _ in _stages(client))
    found = client.get("/api/backfill")
    if found["read"] != len(files) or found["problems"]:
        raise Broken(f"not every file was read: {found}")
    return Done(len(files), _megabytes(files), times, cpu_seconds(home.pid) - cpu, _most_resident(home))


def _ask(home: Home, files: list[Path]) -> Client:
    client = Client.of(home.data, seconds=60)
    client.post("/api/backfill", {"paths": [str(path) for path in files]})
    return client


def _stages(client: Client) -> Iterator[None]:
    """Each is over when it is asked for the next: stored, digested, findable."""
    for is_over in (
        lambda: not client.get("/api/backfill")["waiting"],
        lambda: not client.get("/api/backfill")["busy"],
        lambda: not client.get("/api/index")["busy"],
    ):
        wait_until(is_over, 900, "the back-fill does not end", every=0.1)
        yield


def _most_resident(home: Home) -> float:
    status = Path(f"/proc/{home.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def _speed(name: str, done: Done, *, goals: bool = True) -> list[Figure]:
    def goal(value: figures.Goal) -> figures.Goal | None:
        return value if goals else None

    rate, files = done.megabytes / done.digested, done.files
    return [
        Figure(f"{name}: raw JSONL, stored and digested", rate, "MB/s", files, goal(at_least(MB_PER_SECOND))),
        Figure(f"{name}: raw JSONL, stored", done.megabytes / done.stored, "MB/s", files),
        Figure(f"{name}: raw JSONL for each second of processor time", done.megabytes / done.cpu, "MB", files),
        Figure(f"{name}: transcripts, stored and digested", files / done.digested, "files/s", files),
        Figure(f"{name}: until all can be found", done.found, "s", files),
        Figure(f"{name}: processor time until then", done.cpu, "s", files),
        Figure(f"{name}: the worker's memory at most", done.resident, "MB", files, at_most(MB_RESIDENT)),
    ]


def _history(lab: Lab, files: list[Path]) -> list[Figure]:
    home = lab.home("history")
    home.start()
    try:
        done = _timed(home, files)
        again = time.monotonic()
        list(_stages(_ask(home, files)))
        seconds = time.monotonic() - again
    finally:
        home.end()
    name = f"{len(files)} real sessions"
    whole = Figure(f"{name}, {done.megabytes:.0f} MB", done.found, "s", len(files), at_most(HISTORY_SECONDS))
    return [whole, *_speed(name, done), Figure(f"{name}, a second time", seconds, "s", len(files), at_most(2))]


def _medians(lab: Lab, files: list[Path]) -> list[Figure]:
    by_size = sorted(files, key=lambda path: path.stat().st_size)
    middle = len(by_size) // 2
    some = by_size[max(0, middle - MEDIAN_FILES // 2) : middle + MEDIAN_FILES // 2]
    done = _run(lab, "medians", some)
    name = f"{len(some)} real sessions of median size ({done.megabytes / len(some):.2f} MB)"
    return [
        Figure(
            f"{name}: stored and digested", len(some) / done.digested, "files/s", len(some), at_least(FILES_PER_SECOND)
        ),
        Figure(f"{name}: for each second of processor time", len(some) / done.cpu, "files", len(some)),
    ]


# --- beside live work ------------------------------------------------------------------------------------------------


def _live(lab: Lab, files: list[Path]) -> list[Figure]:
    """A session at work while all that is read: its events, and what memory says at its prompts."""
    home = lab.home("live")
    home.start()
    try:
        client = Client.of(home.data, seconds=60)
        quiet = _sample(home, lambda count: count < 40)
        _ask(home, files)
        busy = _sample(home, lambda _: client.get("/api/backfill")["busy"])
    finally:
        home.end()
    name = "live beside a back-fill"
    count = len(busy[0])
    return [
        Figure(
            f"{name}: from the hook's file to stored, p95", percentile(busy[0], 95), "ms", count, at_most(STORED_MS)
        ),
        Figure(f"{name}: the same, p50", median(busy[0]), "ms", count),
        Figure(f"{name}: the same without one, p95", percentile(quiet[0], 95), "ms", len(quiet[0])),
        Figure(f"{name}: what memory says at a prompt, p95", percentile(busy[1], 95), "ms", count, at_most(SPOKEN_MS)),
        Figure(f"{name}: the same, p50", median(busy[1]), "ms", count),
        Figure(f"{name}: the same without one, p95", percentile(quiet[1], 95), "ms", len(quiet[1])),
    ]


def _sample(home: Home, more: Callable[[int], object]) -> tuple[list[float], list[float]]:
    session = Session(home.project, home.data, seed=7)
    spool = Spool(home.spool, home.data / "aside")
    stored: list[float] = []
    spoken: list[float] = []
    while more(len(stored)):
        stored.append(_stored_ms(home, spool, session))
        spoken.append(_spoken_ms(home, session))
        time.sleep(random.uniform(0.03, 0.07))
    return stored, spoken


def _stored_ms(home: Home, spool: Spool, session: Session) -> float:
    """The worker removes a file when its event is committed."""
    header = {"command": "save", "host": "claude", "project_dir": str(home.project)}
    begun = time.perf_counter()
    path = home.spool / spool.put(header, session.tool("Bash").payload)
    fifo = os.open(home.data / "worker.fifo", os.O_WRONLY | os.O_NONBLOCK)
    os.write(fifo, b"!")
    os.close(fifo)
    while path.exists():
        time.sleep(0.0005)
    return (time.perf_counter() - begun) * 1e3


def _spoken_ms(home: Home, session: Session) -> float:
    worker: Any = Client.of(home.data).worker
    sent = next(session.turn())
    record = f"command new\nhost claude\nproject_dir {home.project}\n\n".encode() + sent.payload
    begun = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=30)
    connection.request("POST", "/api/context/prompt", record, {"Authorization": f"Bearer {worker.token}"})
    if (answer := connection.getresponse()).status != 200:
        raise Broken(f"no answer at a prompt: {answer.read()!r}")
    answer.read()
    connection.close()
    return (time.perf_counter() - begun) * 1e3


# --- one that is huge ------------------------------------------------------------------------------------------------


def _huge(lab: Lab, megabytes: int) -> list[Figure]:
    """One session of that size, in which a few lines are very long and one is longer than anything we read."""
    path = lab.root / "huge.jsonl"
    source = [_made_up(lab, number).read_bytes().splitlines(keepends=True) for number in range(4)]
    dice, written, copy = random.Random(5), 0, 0
    with path.open("wb") as file:
        while written < megabytes * 1e6:
            copy += 1
            for line in dice.choice(source):
                changed = line.replace(b'"toolu_', f'"toolu_{copy}x'.encode()).replace(
                    b'"uuid": "', f'"uuid": "{copy}-'.encode()
                )
                changed = changed.replace(b'"promptId": "', f'"promptId": "{copy}-'.encode())
                written += file.write(changed)
            if copy % 500 == 0:
                written += file.write(_long_line(copy, 20 << 20))
        file.write(_long_line(0, 70 << 20))
    home = lab.home("huge")
    home.start()
    try:
        begun = time.monotonic()
        client = _ask(home, [path])
        wait_until(lambda: not client.get("/api/backfill")["waiting"], 900, "it is never read", every=0.2)
        seconds = time.monotonic() - begun
        found = client.get("/api/backfill")
        if found["read"] != 1 or [row["bad_lines"] for row in found["problems"]] != [1]:
            raise Broken(f"the huge file was not read as it should be: {found}")
        resident = _most_resident(home)
    finally:
        home.end()
    path.unlink()
    name = f"one session of {written / 1e6:,.0f} MB and a line of 70 MB"
    return [
        Figure(f"{name}: the worker's memory at most", resident, "MB", 1, at_most(MB_RESIDENT)),
        Figure(f"{name}: stored", written / 1e6 / seconds, "MB/s", 1),
    ]


def _long_line(number: int, size: int) -> bytes:
    return b'{"type":"user","sessionId":"x","uuid":"long-%d","message":{"content":"%s"}}\n' % (number, b"x" * size)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Broken as problem:
        sys.exit(f"could not be measured: {problem}")
