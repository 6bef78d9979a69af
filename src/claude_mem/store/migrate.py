"""Applies `migrations/NNNN_name.sql`, each once, each with its version number in one transaction."""

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

PART = ".part"  # ends the name of a copy that is not finished
PAGES_AT_ONCE = 1000


def scripts() -> list[tuple[int, str]]:
    """Every migration there is, in order: its number and its SQL."""
    folder = resources.files("claude_mem.store") / "migrations"
    found = sorted((entry.name, entry.read_text("utf-8")) for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name.partition("_")[0]), sql) for name, sql in found]


def version(conn: apsw.Connection) -> int:
    return int(conn.pragma("user_version"))


def migrate(conn: apsw.Connection, *, backups: Path) -> None:
    """Bring the database up to date. A backup comes first, unless there is nothing to lose."""
    have = version(conn)
    wanted = scripts()
    newest = wanted[-1][0]
    if have > newest:
        raise TooNew(
            f"the database is of version {have}, this program knows {newest}",
            hint="install the newer claude-mem again, or restore a backup",
        )  # before anything is called damage: a newer one's database is left as it is
    _check_schema(conn, have)
    todo = [(number, sql) for number, sql in wanted if number > have]
    if todo and have:
        backup(conn, backups / f"before-{newest:04d}.db")
    with savepoint(
        conn
    ):  # all or none: of a version in between, the next start would make a backup in place of that one
        _apply(conn, todo)


def build(conn: apsw.Connection, version: int) -> None:
    """Make the tables of a version in an empty database."""
    with savepoint(conn):
        _apply(conn, [(number, sql) for number, sql in scripts() if number <= version])


def _apply(conn: apsw.Connection, todo: list[tuple[int, str]]) -> None:
    for number, sql in todo:
        conn.execute(sql)
        conn.pragma("user_version", number)
        _note_schema(conn, number)
        failpoint("migrate.applied")


def _check_schema(conn: apsw.Connection, have: int) -> None:
    """A flipped bit in a table's definition or in the version would lead everything astray that follows."""
    known = _known_schema(conn)
    if known is not None and known != f"{have}:{_schema(conn)}":
        raise Damaged("the database's tables are not what they were", hint="the worker puts a backup in its place")


def _note_schema(conn: apsw.Connection, number: int) -> None:
    if _known_schema(conn) is not None:
        now = ids.now()
        conn.execute("insert or replace into checks values ('schema', ?, 1, ?)", (now, f"{number}:{_schema(conn)}"))


def _known_schema(conn: apsw.Connection) -> str | None:
    """As it was when the last migration was done; None where that is not written down yet."""
    if not list(_bare(conn, "select 1 from sqlite_schema where name = 'checks'")):
        return None
    return next((str(text) for (text,) in _bare(conn, "select text from checks where name = 'schema'")), "")


def _schema(conn: apsw.Connection) -> str:
    tables = "select type, name, tbl_name, sql from sqlite_schema where name not like 'sqlite\\_%' escape '\\'"
    said = repr(list(_bare(conn, f"{tables} order by type, name")))
    return hashlib.blake2b(said.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _bare(conn: apsw.Connection, sql: str) -> apsw.Cursor:
    cursor = conn.cursor()
    cursor.row_trace = None
    return cursor.execute(sql)


def backup(conn: apsw.Connection, path: Path, *, gently: bool = False) -> None:
    """A whole copy, made by SQLite itself: copying the file would miss what is still in the WAL. `gently`: with a rest
    after each part, as long as the part took, for whoever is at work meanwhile."""
    hook.make_private(str(path.parent))
    temp = path.with_name(f"{path.name}.{ids.new()}{PART}")  # another may be made at the same time
    temp.touch(0o600)
    try:
        _copy(conn, temp, gently=gently)
        failpoint("backup.copied")
        temp.rename(path)
    except apsw.FullError as error:
        raise CannotDo(f"there is no room for {path}: the disk is full", hint="make room, then try again") from error
    finally:
        for left in path.parent.glob(f"{temp.name}*"):
            left.unlink(missing_ok=True)


def _copy(conn: apsw.Connection, path: Path, *, gently: bool) -> None:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    copy, file = apsw.Connection(foreign.name_of(path), flags=flags), os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        with copy.backup("main", conn, "main") as step:
            while not step.done:
                begun = time.monotonic()
                step.step(PAGES_AT_ONCE)
                failpoint("backup.step")
                os.fsync(file)  # little by little: every other sync would have to wait for a great one at the end
                if gently:
                    time.sleep(time.monotonic() - begun)
        copy.pragma("journal_mode", "delete")  # one file, complete in itself: whoever opens it need not write beside it
    finally:
        copy.close()
        os.close(file)  # not before: with it the locks of the other would go
