"""Connections and transactions. One thread writes; readers have connections that cannot.

Functions of `store/` take a connection and never commit. Whoever calls `write` owns the transaction, and
whatever is in it happens altogether or not at all.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import apsw

from claude_mem import hook
from claude_mem.errors import CannotDo, Damaged
from claude_mem.failpoints import failpoint
from claude_mem.store import damage, foreign, marks
from claude_mem.store.migrate import migrate
from claude_mem.text import storable

log = logging.getLogger(__name__)

Connection = apsw.Connection
Row = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")

SAFE_SQLITE = (3, 51, 3)  # older ones can corrupt a WAL database when a checkpoint meets a reset
READERS = 2
BUSY_MS = 5_000
SCRUB_TRIES, SCRUB_MS = 20, 100
SECOND_NAME = "memory.db"
READER_CACHE_KB = 24_000  # at most; with 100,000 memories a search takes half the time of SQLite's usual 2 MB


class Database:
    """Open it, close it; in between `write` and `read` run functions of `store/`."""

    def __init__(self, path: Path, *, backups: Path) -> None:
        _check_sqlite()
        hook.make_private(str(path.parent))
        self.fresh = not path.exists()
        if self.fresh:
            damage.look(path, backups=backups)  # it may be new, or it may be gone
            path.touch(0o600)
        self.path = path
        self.damaged: Callable[[BaseException], None] = lambda _: None  # who is told when it turns out to be
        self.unscrubbed = False  # what was deleted still stands in the log: it could not be emptied
        self.make_room: Callable[[], bool] = lambda: False  # when the disk is full; True if it may be tried again
        self._writing = ThreadPoolExecutor(1, "writer")
        self._reading = ThreadPoolExecutor(READERS, "reader")
        self._local = threading.local()
        self._readers: list[Connection] = []
        try:
            self._writer = self._writing.submit(self._open_writer, backups).result()
        except BaseException:
            self._writing.shutdown()
            raise

    def _open_writer(self, backups: Path) -> Connection:
        if is_foreign(self.path):  # seen before it is opened: closing it would work its owner's log into it
            raise _not_ours(self.path)
        if not self.fresh:
            damage.look(self.path, backups=backups)
        claim = damage.claimed(self.path)
        conn = _connect(self.path, apsw.SQLITE_OPEN_READWRITE)
        try:
            return self._set_up(conn, claim, backups)
        except BaseException as error:
            conn.close()  # as it is: whoever looks at it next finds nothing changed
            if isinstance(error, damage.SIGNS):
                raise Damaged(f"{self.path} is damaged: {error}", hint="the worker puts a backup in place") from error
            raise

    def _set_up(self, conn: Connection, claim: int, backups: Path) -> Connection:
        _check_ours(conn, self.path)
        if claim:
            damage.check_log(conn, claim)
        conn.pragma("journal_mode", "wal")
        # FULL, not NORMAL: what we acknowledge must survive a power cut. It costs a sixth of a millisecond.
        conn.pragma("synchronous", "full")
        conn.pragma("foreign_keys", "on")
        conn.pragma("fullfsync", "on")  # on macOS a plain fsync stops at the drive's cache
        conn.pragma("secure_delete", "on")
        conn.pragma("journal_size_limit", 4 << 20)
        # Packing writes a whole copy first. It is of our memories: not where everyone's temporary files are.
        conn.pragma("temp_store_directory", _sayable(self.path.parent))
        migrate(conn, backups=backups)
        marks.attach(conn, self.path.parent)
        return conn

    def _reader(self) -> Connection:
        if not hasattr(self._local, "conn"):
            self._local.conn = open_reader(self.path)
            marks.attach(self._local.conn, self.path.parent)
            self._local.conn.pragma("cache_size", -READER_CACHE_KB)
            self._readers.append(self._local.conn)
        conn: Connection = self._local.conn
        return conn

    def write_now(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._writing.submit(self._write, fn, args, kwargs).result()

    async def write(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.wrap_future(self._writing.submit(self._write, fn, args, kwargs))

    def _write(self, fn: Callable[..., T], args: Any, kwargs: Any) -> T:
        try:
            return _in_transaction(self._writer, fn, args, kwargs)
        except apsw.FullError:
            if not self.make_room():
                raise
            return _in_transaction(self._writer, fn, args, kwargs)  # nothing of the first try has been kept
        except damage.SIGNS as error:
            self.damaged(error)
            raise

    def _read(self, fn: Callable[..., T], args: Any, kwargs: Any) -> T:
        try:
            return fn(self._reader(), *args, **kwargs)
        except damage.SIGNS as error:
            self.damaged(error)
            raise

    def read_now(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._reading.submit(self._read, fn, args, kwargs).result()

    async def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.wrap_future(self._reading.submit(self._read, fn, args, kwargs))

    def write_freely(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """While references are not checked: whoever brings rows in some other order sees to it that they are right."""

        def freely() -> T:
            self._writer.pragma("foreign_keys", "off")
            try:
                return _in_transaction(self._writer, fn, args, kwargs)
            finally:
                self._writer.pragma("foreign_keys", "on")

        return self._writing.submit(freely).result()

    async def pack(self) -> None:
        """Make the file as small as what is in it. It takes a while, and as much room again."""
        await asyncio.wrap_future(self._writing.submit(lambda: list(self._writer.execute("vacuum"))))
        await self.scrub()

    async def scrub(self) -> bool:
        """Move everything from the log into the database, where deleted rows are overwritten, and empty the log. False
        if a reader does not let go of it; whoever sweeps tries again."""
        for _ in range(SCRUB_TRIES):
            if await asyncio.wrap_future(self._writing.submit(_truncate_log, self._writer)):
                self.unscrubbed = False
                return True
            await asyncio.sleep(0.05)  # a reader is still in there
        self.unscrubbed = True
        log.warning("the log could not be emptied; it is tried again")
        return False

    def close(self) -> None:
        """Waits for what is being written; afterwards no file is open."""
        self._reading.shutdown(wait=True)
        for conn in self._readers:
            conn.close()
        self._writing.submit(self._writer.close).result()
        self._writing.shutdown(wait=True)


def _truncate_log(conn: Connection) -> bool:
    failpoint("checkpoint.begun")
    conn.set_busy_timeout(SCRUB_MS)  # others write meanwhile: they must not wait as long as a reader may take
    try:
        busy, _, _ = next(iter(conn.execute("pragma wal_checkpoint(truncate)"))).values()
    finally:
        conn.set_busy_timeout(BUSY_MS)
    failpoint("checkpoint.done")
    return not busy


def _in_transaction(conn: Connection, fn: Callable[..., T], args: Any, kwargs: Any) -> T:
    conn.execute("begin immediate")
    try:
        failpoint("write.begun")
        result = fn(conn, *args, **kwargs)
        failpoint("write.before_commit")
        conn.execute("commit")
    except BaseException:
        if conn.in_transaction:
            conn.execute("rollback")
        raise
    failpoint("write.committed")
    return result


def _sayable(folder: Path) -> str:
    """A folder as SQL can name it: its own name may be no text; the worker works in it."""
    try:
        return str(folder).encode().decode()
    except UnicodeEncodeError:
        return storable(os.path.relpath(folder))


def open_reader(path: Path) -> Connection:
    return _connect(path, apsw.SQLITE_OPEN_READONLY)


def open_writer(path: Path) -> Connection:
    """For a copy that nobody else uses."""
    return _connect(path, apsw.SQLITE_OPEN_READWRITE)


def _connect(path: Path, flags: int) -> Connection:
    try:
        real = path.parent.resolve() / path.name  # the folder may be a link, or lie behind one; the file may not
        conn = Connection(foreign.name_of(real), flags=flags | apsw.SQLITE_OPEN_NOFOLLOW | apsw.SQLITE_OPEN_URI)
        conn.set_busy_timeout(BUSY_MS)
        conn.row_trace = _as_dict
        conn.pragma("user_version")  # opening reads nothing yet: find out now whether it can be read
    except damage.SIGNS as error:
        raise Damaged(f"can't open {path}: {error}", hint="the worker puts a backup in place") from error
    except apsw.Error as error:
        raise CannotDo(f"can't open {path}: {error}", hint="`claude-mem doctor` looks at it closely") from error
    return conn


def ours(path: Path) -> Path:
    """Where our database lies. The older claude-mem keeps its own under the same name in the same folder: where it was
    first, ours lies beside it under another name, and theirs is left as it is."""
    second = path.with_name(SECOND_NAME)
    return second if second.exists() or is_foreign(path) else path


def is_foreign(path: Path) -> bool:
    """Is it a sound database with someone else's tables? A damaged one may be ours: whoever opens it will say so."""
    try:
        if not foreign.is_database(path) or foreign.is_plainly_ours(path):
            return False
        return foreign.whose(path) in ("older", "other")
    except (OSError, CannotDo):
        return False


def _check_ours(conn: Connection, path: Path) -> None:
    """Before the first change to it."""
    if not conn.pragma("user_version") and foreign.whose_tables(conn) in ("older", "other"):
        conn.close()
        raise _not_ours(path)


def _not_ours(path: Path) -> CannotDo:
    return CannotDo(
        f"{path} is another program's database",
        hint="`claude-mem import` brings over what an older claude-mem knows",
    )


def _as_dict(cursor: apsw.Cursor, row: tuple[Any, ...]) -> Row:
    return {column[0]: value for column, value in zip(cursor.get_description(), row, strict=True)}


def _check_sqlite() -> None:
    have = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if have < SAFE_SQLITE:
        raise CannotDo(f"SQLite {apsw.sqlite_lib_version()} can damage a database", hint="pip install --upgrade apsw")


def one(conn: Connection, sql: str, params: Any = ()) -> Row | None:
    row: Row | None = conn.execute(sql, params).fetchone()
    return row


def rows(conn: Connection, sql: str, params: Any = ()) -> list[Row]:
    return list(conn.execute(sql, params))


def value(conn: Connection, sql: str, params: Any = ()) -> Any:
    """The single value a query gives, or None."""
    row = one(conn, sql, params)
    return next(iter(row.values())) if row else None
