"""A hundred sessions at once, into a memory that knows 100,000 observations already; and people use it meanwhile.

Each session has its own pace and its own transcript; together they send 5,000 events in a minute. Beside them there are
20 searches a second, five viewers, something is forgotten every second, and one backup is made after the other. How long
an event waits is seen from outside, in the spool's folder: from the rename with which the hook hands it over to its
removal, which comes after the commit. `--size 10000` is a quick look, no measurement.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from beside import LOCKED, Beside
from figures import Figure, as_text, at_most, note, percentile, setting, write
from lab import Broken, Home, Lab, cpu_seconds, wait_until
from recall_scale import Words, fill
from work import EVENTS_PER_SESSION, Session, put

from claude_mem import hook
from claude_mem.storage.sqlite.engine import Connection, fetch_all, fetch_value, open_reader
from claude_mem.system.spool import Spool

RESULTS = Path(__file__).parent / "results"
SIZE, SESSIONS, SECONDS = 100_000, 100, 60.0
SEARCHERS, SEARCH_EVERY, VIEWERS, FORGET_EVERY = 4, 0.2, 5, 1.0
INGEST_MS, SEARCH_MS = 250, 100
PROJECTS = ("orders", "billing", "search", "website")
AT_REST = 0.05  # of a core, over a second
_MOVED_HERE, _REMOVED, _OVERFLOW = 0x80, 0x200, 0x4000  # of inotify


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=SIZE, help="observations that are known before")
    given = parser.parse_args()
    with Lab() as lab:
        about = setting(lab.root)
        figures = crowd(lab, given.size)
    figures.append(Figure("processes left behind", lab.left, "", 1, at_most(0)))
    print(as_text(figures))
    if given.size == SIZE:
        note("crowd", figures, of="R16")
        write(RESULTS / "crowd", "A hundred sessions at once", figures, about)
    return int(any(figure.missed for figure in figures))


def crowd(lab: Lab, size: int) -> list[Figure]:
    home = lab.home("crowd")
    home.data.mkdir(parents=True, mode=0o700)
    print(f"making {size:,} observations …", file=sys.stderr, flush=True)
    fill(home, size)
    home.start()
    try:
        wait_until(partial(_at_rest, home), 300, "the worker does not come to rest")
        beside, spool = People(home, size), Watched(home.spool)
        print("a hundred sessions …", file=sys.stderr, flush=True)
        beside.start(*beside.work(), viewers=VIEWERS)
        sent = _sessions(lab, home)
        beside.stop()
        wait_until(home.digested, 300, "the events are never digested", every=0.2)
    finally:
        home.end(signal.SIGTERM)
    return _figures(home, beside, spool, sent)


def _at_rest(home: Home) -> bool:
    """What a worker does once with a memory that it meets for the first time is done."""
    before = cpu_seconds(home.pid)
    time.sleep(1)
    return cpu_seconds(home.pid) - before < AT_REST


# --- the sessions ----------------------------------------------------------------------------------------------------


@dataclass
class Sender:
    """One session: it sends an event, rests, and sends the next."""

    session: Session
    home: Home
    names: list[str] = field(default_factory=list)

    def run(self) -> None:
        spool, dice = Spool(self.home.spool, self.home.data / "aside"), self.session.dice
        pause = SECONDS / EVENTS_PER_SESSION
        time.sleep(dice.uniform(0, pause))
        for sent in self.session:
            self.names.append(put(spool, self.session, sent))
            hook.wake_or_start_worker(str(self.home.data))
            time.sleep(dice.uniform(0.5, 1.5) * pause)


def _sessions(lab: Lab, home: Home) -> list[Sender]:
    transcripts = lab.root / "transcripts"
    transcripts.mkdir()
    projects = [lab.project(name) for name in PROJECTS]
    senders = [
        Sender(Session(projects[number % len(projects)], transcripts, seed=number), home) for number in range(SESSIONS)
    ]
    threads = [threading.Thread(target=sender.run, daemon=True) for sender in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if any(len(sender.names) != EVENTS_PER_SESSION for sender in senders):
        raise Broken("a session did not send all of its events")
    return senders


class Watched:
    """The spool's folder: when each file was moved in and when it went, by the kernel's word."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_CLOEXEC)
        if self._fd < 0 or libc.inotify_add_watch(self._fd, os.fsencode(folder), _MOVED_HERE | _REMOVED) < 0:
            raise Broken(f"the spool can't be watched: {os.strerror(ctypes.get_errno())}")
        self.waits: dict[str, float] = {}  # milliseconds
        self.missed = False
        self._came: dict[str, float] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while found := os.read(self._fd, 1 << 16):
            now, at = time.perf_counter(), 0
            while at < len(found):
                _, mask, _, length = struct.unpack_from("iIII", found, at)
                self._note(mask, os.fsdecode(found[at + 16 : at + 16 + length].rstrip(b"\0")), now)
                at += 16 + length

    def _note(self, mask: int, name: str, now: float) -> None:
        self.missed |= bool(mask & _OVERFLOW)
        if mask & _MOVED_HERE:
            self._came[name] = now
        elif mask & _REMOVED and name in self._came:
            self.waits[name] = (now - self._came[name]) * 1000


# --- beside them -----------------------------------------------------------------------------------------------------


class People(Beside):
    def __init__(self, home: Home, size: int) -> None:
        super().__init__(home)
        self.size = size
        self.forgotten = self.later = self.copies = 0

    def work(self) -> list[Callable[[], None]]:
        searching = [
            partial(self.search, Words(number).question, every=SEARCH_EVERY) for number in range(1, SEARCHERS + 1)
        ]
        return [*searching, self._forget, self._copy]

    def _forget(self) -> None:
        """While a copy is being made it has to wait, and one at a time is enough for it."""
        dice = random.Random(0)
        while not self.over.wait(FORGET_EVERY):
            status, _ = self.ask("POST", "/api/forget", {"ids": [dice.randint(1, self.size)]})
            self.forgotten += status == 200
            self.later += status == 409

    def _copy(self) -> None:
        """One after the other; the last one is thrown away when the next is there."""
        while not self.over.wait(0.1):
            status, _ = self.ask("POST", "/api/backup", {})
            self.copies += status == 200
            for path in sorted((self.home.data / "backups").glob("*.db"))[:-1]:
                path.unlink()


# --- what came of it -------------------------------------------------------------------------------------------------


def _figures(home: Home, beside: People, spool: Watched, sent: list[Sender]) -> list[Figure]:
    names = [name for sender in sent for name in sender.names]
    if spool.missed or not beside.searches or set(names) - spool.waits.keys():
        raise Broken(f"{len(set(names) - spool.waits.keys())} events were not seen to go")
    lost, doubled = _account(home, sent)
    waits, searches = [spool.waits[name] for name in names], beside.searches
    locked = sum(LOCKED in path.read_bytes() for path in (home.data / "logs").glob("*"))
    count = len(names)
    return [
        Figure("events sent", count, "", 1),
        Figure("… in a second", count / SECONDS, "", 1),
        Figure("events lost", lost, "", count, at_most(0)),
        Figure("events doubled", doubled, "", count, at_most(0)),
        Figure("answers of 5xx, or that the database is locked", len(beside.problems), "", beside.answers, at_most(0)),
        Figure("logs that say the database was locked", locked, "", 1, at_most(0)),
        Figure("an event waits for being stored, p50", percentile(waits, 50), "ms", count),
        Figure("an event waits for being stored, p99", percentile(waits, 99), "ms", count, at_most(INGEST_MS)),
        Figure("an event waits for being stored, longest", max(waits), "ms", count),
        Figure("a search, p50", percentile(searches, 50), "ms", len(searches)),
        Figure("a search, p95", percentile(searches, 95), "ms", len(searches), at_most(SEARCH_MS)),
        Figure("searches a second", len(searches) / SECONDS, "", 1),
        Figure("observations forgotten", beside.forgotten, "", 1),
        Figure("forgettings that were told to try again", beside.later, "", 1),
        Figure("backups made", beside.copies, "", 1),
        Figure("news heard by the viewers", beside.heard, "", VIEWERS),
    ]


def _account(home: Home, sent: list[Sender]) -> tuple[int, int]:
    """Every event sent has its receipt, and its session has a row for it and none besides. (Where a transcript had told
    of a tool call before, the hook's word of it counts as a duplicate, and the row is the transcript's.)"""
    conn = open_reader(home.data / "claude-mem.db")
    try:
        lost = sum(len(sender.names) - _kept(conn, sender.names) for sender in sent)
        stored = sum(_stored(conn, sender.session.id) for sender in sent)
    finally:
        conn.close()
    return lost, abs(stored - sum(len(sender.names) for sender in sent))


def _kept(conn: Connection, names: list[str]) -> int:
    asked = ", ".join("?" * len(names))
    found = fetch_all(conn, f"select outcome, rule from receipts where event_id in ({asked})", names)
    return sum(row["outcome"] == "stored" or row["rule"] == "duplicate" for row in found)


def _stored(conn: Connection, session: str) -> int:
    of_it = "select id from sdk_sessions where content_session_id = ?"
    return int(fetch_value(conn, f"select count(*) from events where session_id in ({of_it})", (session,)))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Broken as problem:
        sys.exit(f"could not be measured: {problem}")
