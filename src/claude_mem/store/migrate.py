"""Apply `migrations/NNNN_name.sql`, each once and in the same transaction as its version number."""

from __future__ import annotations

import hashlib
import os
import time
from importlib import resources
from pathlib import Path

import apsw

from claude_mem import hook, ids
from claude_mem.errors import CannotDo, Damaged, TooNew
from claude_mem.failpoints import failpoint
from claude_mem.store import foreign
from claude_mem.store.savepoint import savepoint

PART = ".part"  # suffix of an unfinished copy
_PAGES_PER_STEP = 1000


def scripts() -> list[tuple[int, str]]:
    """Return the number and SQL of every migration, in order."""
    folder = resources.files("claude_mem.store") / "migrations"
    files = sorted((entry.name, entry.read_text("utf-8")) for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name.partition("_")[0]), sql) for name, sql in files]


def version(conn: apsw.Connection) -> int:
    return int(conn.pragma("user_version"))


def migrate(conn: apsw.Connection, *, backups: Path) -> None:
    """Migrate the database to the newest version. A backup is made first, unless the database is new."""
    current = version(conn)
    all_scripts = scripts()
    newest = all_scripts[-1][0]
    if current > newest:
        raise TooNew(
            f"the database has schema version {current}, but this program supports only up to {newest}",
            hint="install the newer claude-mem again, or restore a backup",
        )  # before the damage check, so that a newer version's database is left unchanged
    _check_schema(conn, current)
    pending = [(number, sql) for number, sql in all_scripts if number > current]
    if pending and current:
        backup(conn, backups / f"before-{newest:04d}.db")
    # All or none: from a version in between, the next start would overwrite the backup just made.
    with savepoint(conn):
        _apply(conn, pending)


def build(conn: apsw.Connection, version: int) -> None:
    """Create the tables of a schema version in an empty database."""
    with savepoint(conn):
        _apply(conn, [(number, sql) for number, sql in scripts() if number <= version])


def _apply(conn: apsw.Connection, pending: list[tuple[int, str]]) -> None:
    for number, sql in pending:
        conn.execute(sql)
        conn.pragma("user_version", number)
        _note_schema(conn, number)
        failpoint("migrate.applied")


def _check_schema(conn: apsw.Connection, current: int) -> None:
    """Raise `Damaged` if the schema or its version differs from what the last migration recorded.

    A flipped bit in a table definition or in the version number would make all later reads and migrations wrong.
    """
    recorded = _recorded_schema(conn)
    if recorded is not None and recorded != f"{current}:{_schema_digest(conn)}":
        raise Damaged("the schema of the database has changed unexpectedly", hint="the worker restores a backup")


def _note_schema(conn: apsw.Connection, number: int) -> None:
    if _recorded_schema(conn) is not None:
        now = ids.now()
        conn.execute(
            "insert or replace into checks values ('schema', ?, 1, ?)", (now, f"{number}:{_schema_digest(conn)}")
        )


def _recorded_schema(conn: apsw.Connection) -> str | None:
    """Return the schema recorded by the last migration; None for versions that record none."""
    if not list(_tuples(conn, "select 1 from sqlite_schema where name = 'checks'")):
        return None
    return next((str(text) for (text,) in _tuples(conn, "select text from checks where name = 'schema'")), "")


def _schema_digest(conn: apsw.Connection) -> str:
    sql = "select type, name, tbl_name, sql from sqlite_schema where name not like 'sqlite\\_%' escape '\\'"
    definitions = repr(list(_tuples(conn, f"{sql} order by type, name")))
    return hashlib.blake2b(definitions.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _tuples(conn: apsw.Connection, sql: str) -> apsw.Cursor:
    cursor = conn.cursor()
    cursor.row_trace = None
    return cursor.execute(sql)


def backup(conn: apsw.Connection, path: Path, *, throttled: bool = False) -> None:
    """Copy the whole database with SQLite's backup API; a file copy would miss the content of the WAL.

    With `throttled`, pause after each step for as long as the step took, so that other work is not stalled.
    """
    hook.make_private(str(path.parent))
    temp = path.with_name(f"{path.name}.{ids.new()}{PART}")  # unique, as another backup may run at the same time
    temp.touch(0o600)
    try:
        _copy(conn, temp, throttled=throttled)
        failpoint("backup.copied")
        temp.rename(path)
    except apsw.FullError as error:
        raise CannotDo(f"can't write {path}: the disk is full", hint="free some disk space, then try again") from error
    finally:
        for temp_file in path.parent.glob(f"{temp.name}*"):
            temp_file.unlink(missing_ok=True)


def _copy(conn: apsw.Connection, path: Path, *, throttled: bool) -> None:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    copy, file = apsw.Connection(foreign.name_of(path), flags=flags), os.open(path, os.O_RDWR | os.O_CLOEXEC)
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
