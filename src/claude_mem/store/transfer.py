"""Copy the rows of a backup into a database of our own making.

A backup is a file, and a file may hold more than rows: triggers, views, indexes, generated columns, altered checks. So
the tables are made by our own migrations, up to the version that the backup says it has, and filled table by table
with the columns that this version knows. Nothing else comes along, and nothing of the backup's schema is ever run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import apsw

from claude_mem import hook
from claude_mem.errors import CannotDo
from claude_mem.store import foreign, migrate

HIGHEST_NUMBER = 1 << 53  # of a row; beyond it SQLite itself begins to guess
STEPS = 20_000
_HINT = "take another backup"
_COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Schema:
    """What there is in a database: the columns of its tables, and all objects with the SQL that made them."""

    columns: dict[str, tuple[str, ...]]
    objects: dict[tuple[str, str], str]
    index: str = ""  # the virtual table that indexes words


@lru_cache(maxsize=4)
def expected(version: int) -> Schema:
    """The schema that the migrations make, up to a version."""
    with closing(apsw.Connection(":memory:")) as conn:
        migrate.build(conn, version)
        return read(conn)


def read(conn: apsw.Connection, name: str = "main") -> Schema:
    """The schema of a database. Columns that are computed are no columns: they hold nothing."""
    kinds = {
        row[0]: row[1] for row in _bare(conn, "select name, type from pragma_table_list where schema = ?", (name,))
    }
    columns = {
        table: tuple(row[0] for row in _bare(conn, _COLUMNS, (table, name)))
        for table, kind in kinds.items()
        if kind == "table" and not table.startswith("sqlite_")
    }
    listed = _bare(conn, f'select type, name, sql from "{name}".sqlite_schema')
    shadows = {table for table, kind in kinds.items() if kind == "shadow"}
    objects = {
        (kind, each): _normal(sql or "")
        for kind, each, sql in listed
        if not str(each).startswith("sqlite_") and each not in shadows
    }
    virtual = [table for table, kind in kinds.items() if kind == "virtual"]
    return Schema(columns, objects, virtual[0] if virtual else "")


_COLUMNS = "select name from pragma_table_xinfo(?, ?) where not hidden order by cid"


def _normal(sql: str) -> str:
    """Without comments and layout: they differ between versions of a migration and mean nothing."""
    return " ".join(_COMMENTS.sub(" ", str(sql)).split()).replace('"', "").lower()


def strange(conn: apsw.Connection, version: int) -> list[str]:
    """What a database has that our migrations do not make: triggers, views, tables, indexes, altered definitions."""
    ours = expected(version)
    theirs = read(conn)
    found = [
        f"{kind} {name}{' (altered)' if (kind, name) in ours.objects else ''}"
        for (kind, name), sql in theirs.objects.items()
        if ours.objects.get((kind, name)) != sql
    ]
    return sorted(found)


def copy(source: Path, path: Path, *, halted: Callable[[], bool] | None = None) -> None:
    """Make the database `path`, of the same version, with every row of `source` that its tables can hold."""
    hook.make_private(str(path.parent))
    path.touch(0o600)
    with foreign.errors_of(source), closing(apsw.Connection(foreign.name_of(path), flags=_FLAGS)) as conn:
        foreign.guard(conn)
        conn.pragma("journal_mode", "memory")  # it is a copy: if anything fails, all of it goes
        conn.pragma("synchronous", "off")
        conn.pragma("secure_delete", "on")  # what is forgotten later must not be left in a page that was freed here
        conn.execute("attach database ? as backup", (foreign.address(source),))
        version = int(next(iter(_bare(conn, "pragma backup.user_version")))[0])
        migrate.build(conn, version)
        conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)  # rows come as they are, with all that was made of them
        if halted is not None:
            conn.set_progress_handler(halted, STEPS)
        ours = expected(version)
        if "checks" in ours.columns:
            _check_version(conn, source, version)
        with conn:
            _copy_rows(conn, source, ours)
    with path.open("rb") as file:
        os.fsync(file.fileno())


_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI


def _check_version(conn: apsw.Connection, source: Path, version: int) -> None:
    """A flipped bit in the version would leave out what later versions have added."""
    noted = _bare(conn, "select text from backup.checks where name = 'schema'")
    if noted and str(noted[0][0]).partition(":")[0] != str(version):
        raise CannotDo(f"{source} says that it is of version {version}, but its tables are not", hint=_HINT)


def _copy_rows(conn: apsw.Connection, source: Path, ours: Schema) -> None:
    theirs = read(conn, "backup")
    for table, columns in ours.columns.items():
        missing = set(columns) - set(theirs.columns.get(table, ()))
        if missing:
            raise CannotDo(f"{source} has no `{table}` with {', '.join(sorted(missing))}", hint=_HINT)
        names = ", ".join(f'"{name}"' for name in columns)
        where = "where name != 'schema'" if table == "checks" else ""  # ours is noted already
        try:
            conn.execute(
                f'insert into main."{table}" ({names}) select {names} from backup."{table}" not indexed {where}'
            )
        except (apsw.ConstraintError, apsw.MismatchError) as error:
            raise CannotDo(f"{source} has rows in `{table}` that can't be: {error}", hint=_HINT) from error
    _copy_sequence(conn)
    if ours.index:
        conn.execute(f"insert into {ours.index} ({ours.index}) values ('rebuild')")


def _copy_sequence(conn: apsw.Connection) -> None:
    """Numbers of rows that are gone are not given again."""
    numbers = _bare(conn, "select name, seq from backup.sqlite_sequence")
    for name, number in numbers:
        if isinstance(number, int) and 0 <= number < HIGHEST_NUMBER:
            conn.execute("update sqlite_sequence set seq = max(seq, ?) where name = ?", (number, name))
            conn.execute(
                "insert into sqlite_sequence (name, seq) select t.name, ? from sqlite_schema t where t.type = 'table'"
                " and t.name = ? and t.sql like '%autoincrement%' and t.name not in (select name from sqlite_sequence)",
                (number, name),
            )


def _bare(conn: apsw.Connection, sql: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    cursor = conn.cursor()
    cursor.row_trace = None
    return list(cursor.execute(sql, values))
