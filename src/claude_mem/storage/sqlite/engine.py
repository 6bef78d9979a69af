"""The open database: connections, transactions, migrations and copies.

One thread writes; readers use read-only connections. The functions of `storage/` take a connection and never commit:
the caller of `Engine.write` owns the transaction, which is committed completely or not at all. Migrations are applied
when the database is opened, each in the same transaction as its version number.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import apsw

from claude_mem import hook
from claude_mem.domain import ids
from claude_mem.domain.errors import DatabaseDamaged, DatabaseTooNew, OperationFailed
from claude_mem.domain.text import make_storable
from claude_mem.storage import external_db
from claude_mem.storage.sqlite import damage
from claude_mem.storage.sqlite.deletion import keyed_hash
from claude_mem.system.failpoints import failpoint

log = logging.getLogger(__name__)

Connection = apsw.Connection
Row = external_db.Row
P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=Connection)

MIN_SQLITE_VERSION = (3, 51, 3)  # older ones can corrupt a WAL database when a checkpoint meets a reset
READER_THREADS = 2
# At most. With 100,000 memories a search takes half the time it takes with SQLite's default of 2 MB.
READER_CACHE_KB = 24_000
BUSY_TIMEOUT_MS = 5_000
_TRUNCATE_TRIES, _TRUNCATE_BUSY_MS = 20, 100
_PAGES_PER_STEP = 1000
PARTIAL_SUFFIX = ".part"  # suffix of an unfinished copy


class Engine(Generic[C]):
    """The writing and the reading connections of the open database, each with its thread."""

    def __init__(self, path: Path, *, backups: Path, connection_type: type[C]) -> None:
        _check_sqlite()
        self._connection_type = connection_type
        hook.make_private_dir(str(path.parent))
        self.is_new = not path.exists()
        if self.is_new:
            damage.check_before_opening(path, backups=backups)  # raises if the file should exist
            path.touch(0o600)
        self.path = path
        self.on_damage: Callable[[BaseException], None] = lambda _: None  # called when an operation finds damage
        self.has_untruncated_wal = False  # the WAL could not be truncated and may still contain deleted rows
        self.free_disk_space: Callable[[], bool] = lambda: False  # called when the disk is full; True to try again
        self._writing = ThreadPoolExecutor(1, "writer")
        self._reading = ThreadPoolExecutor(READER_THREADS, "reader")
        self._local = threading.local()
        self._readers: list[C] = []
        try:
            self._writer = self._writing.submit(self._open_writer, backups).result()
        except BaseException:
            self._writing.shutdown()
            raise

    def _open_writer(self, backups: Path) -> C:
        if external_db.is_foreign_database(
            self.path
        ):  # checked before opening: closing it would checkpoint its owner's WAL
            raise _foreign_database_error(self.path)
        if not self.is_new:
            damage.check_before_opening(self.path, backups=backups)
        claimed_frames = damage.read_claimed_wal_frames(self.path)
        conn = _connect(self.path, apsw.SQLITE_OPEN_READWRITE, self._connection_type)
        try:
            self._set_up(conn, claimed_frames, backups)
        except BaseException as error:
            conn.close()  # leaves the file unchanged for the repair
            if isinstance(error, damage.DAMAGE_ERRORS):
                raise DatabaseDamaged(
                    f"{self.path} is damaged: {error}", hint="the worker restores a backup"
                ) from error
            raise
        return conn

    def _set_up(self, conn: Connection, claimed_frames: int, backups: Path) -> None:
        # Checked before anything is changed in the file.
        if not conn.pragma("user_version") and external_db.identify_tables(conn) in ("older", "other"):
            raise _foreign_database_error(self.path)
        if claimed_frames:
            damage.check_wal_frames(conn, claimed_frames)
        conn.pragma("journal_mode", "wal")
        # FULL, not NORMAL: acknowledged writes must survive a power cut. It costs a sixth of a millisecond.
        conn.pragma("synchronous", "full")
        conn.pragma("foreign_keys", "on")
        conn.pragma("fullfsync", "on")  # on macOS a plain fsync stops at the drive's cache
        conn.pragma("secure_delete", "on")
        conn.pragma("journal_size_limit", 4 << 20)
        # VACUUM first writes a complete copy, which must not be placed in a shared temporary directory.
        conn.pragma("temp_store_directory", _path_for_sql(self.path.parent))
        migrate_database(conn, backups=backups)
        keyed_hash.register_keyed_hash(conn, self.path.parent)

    def _reader(self) -> C:
        if not hasattr(self._local, "conn"):
            self._local.conn = _connect(self.path, apsw.SQLITE_OPEN_READONLY, self._connection_type)
            keyed_hash.register_keyed_hash(self._local.conn, self.path.parent)
            self._local.conn.pragma("cache_size", -READER_CACHE_KB)
            self._readers.append(self._local.conn)
        conn: C = self._local.conn
        return conn

    def write_now(self, fn: Callable[Concatenate[C, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` in a transaction on the writer thread and wait for the result."""
        return self._writing.submit(self._write, fn, args, kwargs).result()

    async def write(self, fn: Callable[Concatenate[C, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` in a transaction on the writer thread."""
        return await asyncio.wrap_future(self._writing.submit(self._write, fn, args, kwargs))

    def _write(self, fn: Callable[..., T], args: Any, kwargs: Any) -> T:
        try:
            return _in_transaction(self._writer, fn, args, kwargs)
        except apsw.FullError:
            if not self.free_disk_space():
                raise
            return _in_transaction(self._writer, fn, args, kwargs)  # the first try was rolled back
        except damage.DAMAGE_ERRORS as error:
            self.on_damage(error)
            raise

    def _read(self, fn: Callable[..., T], args: Any, kwargs: Any) -> T:
        try:
            return fn(self._reader(), *args, **kwargs)
        except damage.DAMAGE_ERRORS as error:
            self.on_damage(error)
            raise

    def read_now(self, fn: Callable[Concatenate[C, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` on a reader thread and wait for the result."""
        return self._reading.submit(self._read, fn, args, kwargs).result()

    async def read(self, fn: Callable[Concatenate[C, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` on a reader thread, with a connection that cannot write."""
        return await asyncio.wrap_future(self._reading.submit(self._read, fn, args, kwargs))

    def write_without_fk_checks(self, fn: Callable[Concatenate[C, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
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

        Return False if a reader still uses the WAL. `has_untruncated_wal` is then set, and the periodic sweep tries again.
        """
        for _ in range(_TRUNCATE_TRIES):
            if await asyncio.wrap_future(self._writing.submit(_truncate_wal, self._writer)):
                self.has_untruncated_wal = False
                return True
            await asyncio.sleep(0.05)
        self.has_untruncated_wal = True
        log.warning("the WAL could not be truncated because a reader uses it; trying again later")
        return False

    def close(self) -> None:
        """Wait for running operations and close all files."""
        self._reading.shutdown(wait=True)
        for conn in self._readers:
            conn.close()
        self._writing.submit(self._writer.close).result()
        self._writing.shutdown(wait=True)


# --- transactions ----------------------------------------------------------------------------------------------------


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


@contextmanager
def savepoint(conn: apsw.Connection, *, undo: bool = False) -> Iterator[None]:
    """Run the block in a savepoint and roll the savepoint back if the block fails, or in any case if `undo`.

    apsw's own `with conn` is not used: when the disk fails, SQLite rolls back the whole transaction and the savepoint
    with it, and apsw then hides the disk failure behind an error about the missing savepoint.
    """
    conn.execute("savepoint part")
    try:
        yield
        if undo:
            conn.execute("rollback to part")
        conn.execute("release part")
    except BaseException:
        if conn.in_transaction:
            conn.execute("rollback to part")
            conn.execute("release part")
        raise


def _truncate_wal(conn: Connection) -> bool:
    failpoint("checkpoint.begun")
    conn.set_busy_timeout(_TRUNCATE_BUSY_MS)  # short, because other writes wait for this one
    try:
        busy, _, _ = next(iter(conn.execute("pragma wal_checkpoint(truncate)"))).values()
    finally:
        conn.set_busy_timeout(BUSY_TIMEOUT_MS)
    failpoint("checkpoint.done")
    return not busy


# --- opening a database file -----------------------------------------------------------------------------------------


def open_reader(path: Path) -> Connection:
    """Open a read-only connection to our database."""
    return _connect(path, apsw.SQLITE_OPEN_READONLY, Connection)


def open_writer(path: Path) -> Connection:
    """Open a writing connection to a copy that no other process uses."""
    return _connect(path, apsw.SQLITE_OPEN_READWRITE, Connection)


def _connect(path: Path, flags: int, connection_type: type[C]) -> C:
    try:
        # The folder may be reached through a link; the file itself may not be one.
        file_name = external_db.sqlite_file_name(path.parent.resolve() / path.name)
        conn = connection_type(file_name, flags=flags | apsw.SQLITE_OPEN_NOFOLLOW | apsw.SQLITE_OPEN_URI)
        conn.set_busy_timeout(BUSY_TIMEOUT_MS)
        conn.row_trace = external_db.row_to_dict
        conn.pragma("user_version")  # opening reads nothing, so check now that the file can be read
    except damage.DAMAGE_ERRORS as error:
        raise DatabaseDamaged(f"can't open {path}: {error}", hint="the worker restores a backup") from error
    except apsw.Error as error:
        raise OperationFailed(f"can't open {path}: {error}", hint="run `claude-mem doctor` to examine it") from error
    return conn


def _check_sqlite() -> None:
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < MIN_SQLITE_VERSION:
        raise OperationFailed(
            f"SQLite {apsw.sqlite_lib_version()} has a bug that can damage a database",
            hint="pip install --upgrade apsw",
        )


def _foreign_database_error(path: Path) -> OperationFailed:
    return OperationFailed(
        f"{path} is the database of another program",
        hint="`claude-mem import` imports the database of an older claude-mem",
    )


def _path_for_sql(folder: Path) -> str:
    """Return the folder in a form that can be passed to SQL.

    A name that is not valid UTF-8 is given relative to the working directory, which is this folder in the worker.
    """
    try:
        return str(folder).encode().decode()
    except UnicodeEncodeError:
        return make_storable(os.path.relpath(folder))


# --- migrations ------------------------------------------------------------------------------------------------------


def migrate_database(conn: apsw.Connection, *, backups: Path) -> None:
    """Migrate the database to the newest version. A backup is made first, unless the database is new."""
    current = read_schema_version(conn)
    all_scripts = load_migrations()
    newest = all_scripts[-1][0]
    if current > newest:
        raise DatabaseTooNew(
            f"the database has schema version {current}, but this program supports only up to {newest}",
            hint="install the newer claude-mem again, or restore a backup",
        )  # before the damage check, so that a newer version's database is left unchanged
    _check_schema(conn, current)
    pending = [(number, sql) for number, sql in all_scripts if number > current]
    if pending and current:
        copy_database(conn, backups / f"before-{newest:04d}.db")
    # All or none: from a version in between, the next start would overwrite the backup just made.
    with savepoint(conn):
        _apply(conn, pending)


def load_migrations() -> list[tuple[int, str]]:
    """Return the number and SQL of every migration, in order."""
    folder = resources.files("claude_mem.storage.sqlite") / "migrations"
    files = sorted((entry.name, entry.read_text("utf-8")) for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name.partition("_")[0]), sql) for name, sql in files]


def read_schema_version(conn: apsw.Connection) -> int:
    """Return the number of the last migration that was applied; 0 for an empty database."""
    return int(conn.pragma("user_version"))


def create_schema(conn: apsw.Connection, version: int) -> None:
    """Create the tables of a schema version in an empty database."""
    with savepoint(conn):
        _apply(conn, [(number, sql) for number, sql in load_migrations() if number <= version])


def _apply(conn: apsw.Connection, pending: list[tuple[int, str]]) -> None:
    for number, sql in pending:
        conn.execute(sql)
        conn.pragma("user_version", number)
        _note_schema(conn, number)
        failpoint("migrate.applied")


def _check_schema(conn: apsw.Connection, current: int) -> None:
    """Raise `DatabaseDamaged` if the schema or its version differs from what the last migration recorded.

    A flipped bit in a table definition or in the version number would make all later reads and migrations wrong.
    """
    recorded = _recorded_schema(conn)
    if recorded is not None and recorded != f"{current}:{_schema_digest(conn)}":
        raise DatabaseDamaged(
            "the schema of the database has changed unexpectedly", hint="the worker restores a backup"
        )


def _note_schema(conn: apsw.Connection, number: int) -> None:
    if _recorded_schema(conn) is not None:
        now = ids.now_ms()
        conn.execute(
            "insert or replace into checks values ('schema', ?, 1, ?)", (now, f"{number}:{_schema_digest(conn)}")
        )


def _recorded_schema(conn: apsw.Connection) -> str | None:
    """Return the schema recorded by the last migration; None for versions that record none."""
    if not external_db.fetch_tuples(conn, "select 1 from sqlite_schema where name = 'checks'"):
        return None
    return next(
        (str(text) for (text,) in external_db.fetch_tuples(conn, "select text from checks where name = 'schema'")), ""
    )


def _schema_digest(conn: apsw.Connection) -> str:
    sql = "select type, name, tbl_name, sql from sqlite_schema where name not like 'sqlite\\_%' escape '\\'"
    definitions = repr(external_db.fetch_tuples(conn, f"{sql} order by type, name"))
    return hashlib.blake2b(definitions.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


# --- copies ----------------------------------------------------------------------------------------------------------


def copy_database(conn: apsw.Connection, path: Path, *, throttled: bool = False) -> None:
    """Copy the whole database with SQLite's backup API; a file copy would miss the content of the WAL.

    With `throttled`, pause after each step for as long as the step took, so that other work is not stalled.
    """
    hook.make_private_dir(str(path.parent))
    # A unique name, because another backup may run at the same time.
    temp = path.with_name(f"{path.name}.{ids.new_event_id()}{PARTIAL_SUFFIX}")
    temp.touch(0o600)
    try:
        _copy(conn, temp, throttled=throttled)
        failpoint("backup.copied")
        temp.rename(path)
    except apsw.FullError as error:
        raise OperationFailed(
            f"can't write {path}: the disk is full", hint="free some disk space, then try again"
        ) from error
    finally:
        for temp_file in path.parent.glob(f"{temp.name}*"):
            temp_file.unlink(missing_ok=True)


def _copy(conn: apsw.Connection, path: Path, *, throttled: bool) -> None:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    copy = apsw.Connection(external_db.sqlite_file_name(path), flags=flags)
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        with copy.backup("main", conn, "main") as step:
            while not step.done:
                started = time.monotonic()
                step.step(_PAGES_PER_STEP)
                failpoint("backup.step")
                os.fsync(file)  # after each step: one large sync at the end would stall the syncs of other writers
                if throttled:
                    time.sleep(time.monotonic() - started)
        copy.pragma("journal_mode", "delete")  # a single complete file, which can be opened without writing beside it
    finally:
        copy.close()
        os.close(file)  # only now: closing any descriptor of the file releases SQLite's POSIX locks


# --- rows ------------------------------------------------------------------------------------------------------------


def fetch_one(conn: Connection, sql: str, params: Any = ()) -> Row | None:
    """Return the first row, or None."""
    row: Row | None = conn.execute(sql, params).fetchone()
    return row


def fetch_all(conn: Connection, sql: str, params: Any = ()) -> list[Row]:
    """Return all rows."""
    return list(conn.execute(sql, params))


def fetch_record(conn: Connection, record: Callable[..., T], sql: str, params: Any = ()) -> T | None:
    """Return the first row as a record with these columns, or None."""
    row = fetch_one(conn, sql, params)
    return record(**row) if row else None


def fetch_records(conn: Connection, record: Callable[..., T], sql: str, params: Any = ()) -> list[T]:
    """Return all rows as records with these columns."""
    return [record(**row) for row in conn.execute(sql, params)]


def fetch_value(conn: Connection, sql: str, params: Any = ()) -> Any:
    """Return the first column of the first row, or None if there is no row."""
    row = fetch_one(conn, sql, params)
    return next(iter(row.values())) if row else None


def has_table(conn: Connection, table: str) -> bool:
    """Return whether the database has this table. Databases of earlier versions have fewer."""
    return bool(fetch_value(conn, "select 1 from sqlite_schema where type = 'table' and name = ?", (table,)))
