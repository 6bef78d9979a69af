"""Connections and transactions. One thread writes; readers use read-only connections.

Functions of `store/` take a connection and never commit. The caller of `write` owns the transaction, which is committed
completely or not at all.
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
_TRUNCATE_TRIES, _TRUNCATE_BUSY_MS = 20, 100
SECOND_NAME = "memory.db"
READER_CACHE_KB = (
    24_000  # at most; with 100,000 memories a search takes half the time it takes with SQLite's default of 2 MB
)


class Database:
    """The open database. `write` and `read` run functions of `store/` in its threads."""

    def __init__(self, path: Path, *, backups: Path) -> None:
        _check_sqlite()
        hook.make_private(str(path.parent))
        self.fresh = not path.exists()
        if self.fresh:
            damage.look(path, backups=backups)  # raises if the file should exist
            path.touch(0o600)
        self.path = path
        self.damaged: Callable[[BaseException], None] = lambda _: None  # called when an operation finds damage
        self.unscrubbed = False  # the WAL could not be truncated and may still contain deleted rows
        self.make_room: Callable[[], bool] = lambda: False  # called when the disk is full; True to try again
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
        if is_foreign(self.path):  # checked before opening: closing it would checkpoint its owner's WAL
            raise _foreign_database_error(self.path)
        if not self.fresh:
            damage.look(self.path, backups=backups)
        claimed_frames = damage.claimed(self.path)
        conn = _connect(self.path, apsw.SQLITE_OPEN_READWRITE)
        try:
            return self._set_up(conn, claimed_frames, backups)
        except BaseException as error:
            conn.close()  # leaves the file unchanged for the repair
            if isinstance(error, damage.SIGNS):
                raise Damaged(f"{self.path} is damaged: {error}", hint="the worker restores a backup") from error
            raise

    def _set_up(self, conn: Connection, claimed_frames: int, backups: Path) -> Connection:
        _check_ours(conn, self.path)
        if claimed_frames:
            damage.check_log(conn, claimed_frames)
        conn.pragma("journal_mode", "wal")
        # FULL, not NORMAL: acknowledged writes must survive a power cut. It costs a sixth of a millisecond.
        conn.pragma("synchronous", "full")
        conn.pragma("foreign_keys", "on")
        conn.pragma("fullfsync", "on")  # on macOS a plain fsync stops at the drive's cache
        conn.pragma("secure_delete", "on")
        conn.pragma("journal_size_limit", 4 << 20)
        # VACUUM first writes a complete copy, which must not be placed in a shared temporary directory.
        conn.pragma("temp_store_directory", _path_for_sql(self.path.parent))
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
            return _in_transaction(self._writer, fn, args, kwargs)  # the first try was rolled back
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
        """Run `fn` in a transaction with foreign-key checks off. The caller must leave no dangling references."""

        def run() -> T:
            self._writer.pragma("foreign_keys", "off")
            try:
                return _in_transaction(self._writer, fn, args, kwargs)
            finally:
                self._writer.pragma("foreign_keys", "on")

        return self._writing.submit(run).result()

    async def vacuum(self) -> None:
        """Vacuum the file. This takes a while and needs free disk space of the size of the database."""
        await asyncio.wrap_future(self._writing.submit(lambda: list(self._writer.execute("vacuum"))))
        await self.truncate_wal()

    async def truncate_wal(self) -> bool:
        """Checkpoint the WAL into the database, where deleted rows are overwritten, and truncate it.

        Return False if a reader still uses the WAL. `unscrubbed` is then set, and the periodic sweep tries again.
        """
        for _ in range(_TRUNCATE_TRIES):
            if await asyncio.wrap_future(self._writing.submit(_truncate_wal, self._writer)):
                self.unscrubbed = False
                return True
            await asyncio.sleep(0.05)
        self.unscrubbed = True
        log.warning("the WAL could not be truncated because a reader uses it; trying again later")
        return False

    def close(self) -> None:
        """Wait for running operations and close all files."""
        self._reading.shutdown(wait=True)
        for conn in self._readers:
            conn.close()
        self._writing.submit(self._writer.close).result()
        self._writing.shutdown(wait=True)


def _truncate_wal(conn: Connection) -> bool:
    failpoint("checkpoint.begun")
    conn.set_busy_timeout(_TRUNCATE_BUSY_MS)  # short, because other writes wait for this one
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


def _path_for_sql(folder: Path) -> str:
    """Return the folder in a form that can be passed to SQL.

    A name that is not valid UTF-8 is given relative to the working directory, which is this folder in the worker.
    """
    try:
        return str(folder).encode().decode()
    except UnicodeEncodeError:
        return storable(os.path.relpath(folder))


def open_reader(path: Path) -> Connection:
    return _connect(path, apsw.SQLITE_OPEN_READONLY)


def open_writer(path: Path) -> Connection:
    """Open a writing connection to a copy that no other process uses."""
    return _connect(path, apsw.SQLITE_OPEN_READWRITE)


def _connect(path: Path, flags: int) -> Connection:
    try:
        real = (
            path.parent.resolve() / path.name
        )  # the folder may be reached through a link; the file itself may not be one
        conn = Connection(foreign.name_of(real), flags=flags | apsw.SQLITE_OPEN_NOFOLLOW | apsw.SQLITE_OPEN_URI)
        conn.set_busy_timeout(BUSY_MS)
        conn.row_trace = _as_dict
        conn.pragma("user_version")  # opening reads nothing, so check now that the file can be read
    except damage.SIGNS as error:
        raise Damaged(f"can't open {path}: {error}", hint="the worker restores a backup") from error
    except apsw.Error as error:
        raise CannotDo(f"can't open {path}: {error}", hint="run `claude-mem doctor` to examine it") from error
    return conn


def ours(path: Path) -> Path:
    """Return the path of our database.

    The older claude-mem uses the same file name in the same folder. If its database is there, ours has another name
    beside it, and the older one is not touched.
    """
    second_path = path.with_name(SECOND_NAME)
    return second_path if second_path.exists() or is_foreign(path) else path


def is_foreign(path: Path) -> bool:
    """Return whether this is an intact database of another program. A damaged one may be ours; opening it will tell."""
    try:
        if not foreign.is_database(path) or foreign.is_plainly_ours(path):
            return False
        return foreign.whose(path) in ("older", "other")
    except (OSError, CannotDo):
        return False


def _check_ours(conn: Connection, path: Path) -> None:
    """Raise an error if the database belongs to another program, before anything is changed in it."""
    if not conn.pragma("user_version") and foreign.whose_tables(conn) in ("older", "other"):
        conn.close()
        raise _foreign_database_error(path)


def _foreign_database_error(path: Path) -> CannotDo:
    return CannotDo(
        f"{path} is the database of another program",
        hint="`claude-mem import` imports the database of an older claude-mem",
    )


def _as_dict(cursor: apsw.Cursor, row: tuple[Any, ...]) -> Row:
    return {column[0]: value for column, value in zip(cursor.get_description(), row, strict=True)}


def _check_sqlite() -> None:
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < SAFE_SQLITE:
        raise CannotDo(
            f"SQLite {apsw.sqlite_lib_version()} has a bug that can damage a database",
            hint="pip install --upgrade apsw",
        )


def one(conn: Connection, sql: str, params: Any = ()) -> Row | None:
    row: Row | None = conn.execute(sql, params).fetchone()
    return row


def rows(conn: Connection, sql: str, params: Any = ()) -> list[Row]:
    return list(conn.execute(sql, params))


def value(conn: Connection, sql: str, params: Any = ()) -> Any:
    """Return the first column of the first row, or None if there is no row."""
    row = one(conn, sql, params)
    return next(iter(row.values())) if row else None
