"""The disk fails, once or for good, at the first call SQLite makes, at the second, the third, … until a run is over
before its number comes up. Nothing is lost, nothing is doubled, the database is sound, and it is called what it is:
trouble, not damage. Then the disk is well again, and the next run ends where an undisturbed one does.

`make test` takes a sample of the calls, `make test-crash` all of them.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import pytest

from claude_mem.capture import drain, turns
from claude_mem.config import Config, load
from claude_mem.domain.errors import OperationFailed
from claude_mem.storage.sqlite.database import Database
from claude_mem.system.project_folders import identify_project
from claude_mem.system.spool import Spool
from claude_mem.worker import app as service_
from claude_mem.worker.app import Service
from tests.support import powerloss, proof
from tests.support.history import check, send, state
from tests.support.lab import Lab
from tests.support.waiting import until

# What fails while SQLite closes a file it can tell no one; apsw reports it on the side.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

STEP = 1 if proof.long() else 23
WHOLE_STEP = 23 if proof.long() else 331
EVENTS = 3
NEVER = 1 << 40
# As the worker may call it. `CannotDo` is what opening says.
TROUBLE = (apsw.IOError, apsw.FullError, apsw.CantOpenError, apsw.BusyError, apsw.ReadOnlyError, OperationFailed)


class Counter:
    """Fails at one call, or from it on. `calls` says how many there were."""

    def __init__(self, at: int, *, lasting: bool, error: type[apsw.Error]) -> None:
        self.at, self.lasting, self.error = at, lasting, error
        self.calls = self.looked = 0

    def call(self) -> None:
        self.calls += 1
        if self.calls == self.at or (self.lasting and self.calls > self.at > 0):
            raise self.error("the disk says no")

    def seen(self) -> int:
        """How many calls there were at the last look: the same twice is a disk at rest."""
        before, self.looked = self.looked, self.calls
        return before

    @property
    def hit(self) -> bool:
        return self.calls >= self.at


def _counted(name: str) -> Callable[..., Any]:
    def method(self: Any, *given: Any) -> Any:
        self.counter.call()
        return getattr(apsw.VFSFile, name)(self, *given)

    return method


class _File(apsw.VFSFile):
    def __init__(self, counter: Counter, inherit: str, name: Any, flags: list[int]) -> None:
        counter.call()
        self.counter = counter
        super().__init__(inherit, name, flags)

    xRead = _counted("xRead")
    xWrite = _counted("xWrite")
    xSync = _counted("xSync")
    xTruncate = _counted("xTruncate")
    xFileSize = _counted("xFileSize")


class _Vfs(apsw.VFS):
    def __init__(self, counter: Counter, base: str) -> None:
        self.counter, self.base = counter, base
        super().__init__("failing", base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _File(self.counter, self.base, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.counter.call()
        super().xDelete(filename, syncdir)


@contextmanager
def failing(at: int, *, lasting: bool = False, error: type[apsw.Error] = apsw.IOError) -> Iterator[Counter]:
    counter = Counter(at, lasting=lasting, error=error)
    with powerloss.default_vfs(lambda base: _Vfs(counter, base)):
        yield counter


@pytest.fixture
def made(lab: Lab) -> Lab:
    """A database with nothing in it: making one takes thousands of calls, and is tested by `migrate.applied`."""
    config = load()
    Database(config.database, backups=config.backups).close()
    shutil.copy(config.database, lab.folder / "empty.db")
    return lab


def _reset(lab: Lab, config: Config) -> None:
    for folder in (config.spool, config.aside):
        shutil.rmtree(folder, ignore_errors=True)
    for side in ("", "-wal", "-shm"):
        config.database.with_name(config.database.name + side).unlink(missing_ok=True)
    shutil.copy(lab.folder / "empty.db", config.database)


def _drain(config: Config) -> None:
    """One event after another, each in a transaction of its own, and a checkpoint."""
    spool = Spool(config.spool, config.aside)
    db = Database(config.database, backups=config.backups)
    try:
        for name in spool.pending():
            found = [drain._read_safely(spool, name, config, identify_project)]
            _, outcomes = db.write_now(turns.record_batch, found, now=0)
            drain._remove_files(spool, [name], outcomes, config)
        asyncio.run(db.truncate_wal())
    finally:
        db.close()


FAULTS = [(apsw.IOError, False), (apsw.IOError, True), (apsw.FullError, True)]


@pytest.mark.parametrize(("error", "lasting"), FAULTS, ids=["once", "for good", "full"])
def test_the_disk_fails_at_every_call(made: Lab, error: type[apsw.Error], lasting: bool) -> None:
    config, at, runs = load(), 1, 0
    while True:
        _reset(made, config)
        names = [made.spool("PostToolUse", tool_name="Bash", tool_input={}, tool_use_id=f"c{i}") for i in range(EVENTS)]
        with failing(at, lasting=lasting, error=error) as counter:
            try:
                _drain(config)
            except TROUBLE:
                pass
        if not counter.hit:
            break
        stored = [row[0] for row in made.rows("select event_id from events order by seq")]
        assert made.rows("pragma quick_check") == [("ok",)], at
        waiting = sorted(path.name for path in config.spool.iterdir())
        assert sorted({*stored, *waiting}) == names, at  # what has left the spool is in the database
        assert len(stored) == len(set(stored))
        _drain(config)
        assert [row[0] for row in made.rows("select event_id from events order by seq")] == names, at
        at, runs = at + STEP, runs + 1
    assert runs > (50 if STEP == 1 else 4)
    measured = {"call indexes": runs, "lost": 0, "corrupt": 0}
    what = f"{error.__name__} {'from' if lasting else 'at'} every call index of SQLite"
    proof.record(what, of="R14", goal="0 lost, 0 corrupt", measured=measured, ok=True, command="make test-crash")


def _work_off() -> None:
    async def go() -> None:
        service = Service(load())
        try:
            await service.run_until_idle()
        finally:
            service.close()

    asyncio.run(go())


def test_the_disk_fails_at_any_call_of_a_whole_run(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Jobs, digests, summaries and contexts too: in the end the same memory."""
    config = load()
    Database(config.database, backups=config.backups).close()
    shutil.copy(config.database, lab.folder / "empty.db")
    expected, at, runs = None, 0, 0
    while True:
        _reset(lab, config)
        shutil.rmtree(config.starts, ignore_errors=True)
        sent = send(lab)
        with failing(at) as counter:
            try:
                _work_off()
            except* TROUBLE:
                pass
        if at and not counter.hit:
            break
        for _ in range(2):  # a job that has failed is tried again at the next start
            _work_off()
        assert check(lab, sent) == [], at
        expected = expected or state(lab)  # the first run is undisturbed
        assert state(lab) == expected, at
        at, runs = at + WHOLE_STEP, runs + 1
    assert runs > 3
    measured = {"call indexes": runs - 1, "lost": 0, "corrupt": 0}
    proof.record(
        "IOError in a whole run",
        of="R14",
        goal="the same memory",
        measured=measured,
        ok=True,
        command="make test-crash",
    )


@pytest.mark.parametrize("error", [apsw.IOError, apsw.FullError, apsw.ReadOnlyError])
def test_a_worker_says_why_it_waits_for_the_disk_and_goes_on_by_itself(
    made: Lab, error: type[apsw.Error], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_, "DISK_RETRY_SECONDS", 0.05)

    async def go(disk: Counter) -> None:
        service = Service(load())
        running = asyncio.create_task(service.run())
        await until(lambda: disk.calls > 0 and disk.calls == disk.seen())
        disk.at = disk.calls + 1  # from here on it says no
        made.spool("PostToolUse", tool_name="Bash", tool_input={}, tool_use_id="c1")
        service.wake.set()
        await until(lambda: "could not write to disk" in caplog.text)
        assert len(service.spool.pending()) == 1
        assert not running.done()
        disk.at = NEVER
        await until(lambda: not service.spool.pending())
        service.stop.set()
        await running
        service.close()

    with failing(NEVER, lasting=True, error=error) as counter:
        asyncio.run(go(counter))
    stored, sound = made.rows("select tool_use_id from events"), made.rows("pragma quick_check")
    ok = stored == [("c1",)] and sound == [("ok",)]
    proof.record(
        "kinds of trouble that a worker waits out, saying why, and then goes on by itself", of="R14", goal="3", measured=1,
        ok=ok, tally=True, command="make test-crash", note="I/O error, full, read-only, said by the disk to a running worker",
    )  # fmt: skip
    assert ok, (stored, sound)
