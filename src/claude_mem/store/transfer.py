"""Copy the rows of a backup into a database created by our own migrations.

A backup is a file that may contain more than rows: triggers, views, indexes, generated columns, altered constraints.
Therefore our own migrations create the tables, up to the version that the backup claims, and the rows are copied table
by table with the columns of that version. Nothing else is copied, and nothing of the backup's schema is ever executed.
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

HIGHEST_NUMBER = 1 << 53  # highest row id to continue from; near SQLite's maximum it would choose ids at random
STEPS = 20_000
_HINT = "use another backup"
_COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of a database: the columns of its tables, and the normalized SQL of all objects."""

    columns: dict[str, tuple[str, ...]]
    objects: dict[tuple[str, str], str]
    index: str = ""  # name of the full-text table


@lru_cache(maxsize=4)
def expected(version: int) -> Schema:
    """Return the schema that our migrations create, up to a version."""
    with closing(apsw.Connection(":memory:")) as conn:
        migrate.build(conn, version)
        return read(conn)


def read(conn: apsw.Connection, name: str = "main") -> Schema:
    """Read the schema of an open database. Generated columns are left out, since they store nothing."""
    kinds = {
        row[0]: row[1] for row in _tuples(conn, "select name, type from pragma_table_list where schema = ?", (name,))
    }
    columns = {
        table: tuple(row[0] for row in _tuples(conn, _SELECT_COLUMNS, (table, name)))
        for table, kind in kinds.items()
        if kind == "table" and not table.startswith("sqlite_")
    }
    definitions = _tuples(conn, f'select type, name, sql from "{name}".sqlite_schema')
    shadows = {table for table, kind in kinds.items() if kind == "shadow"}
    objects = {
        (kind, object_name): _normalize_sql(sql or "")
        for kind, object_name, sql in definitions
        if not str(object_name).startswith("sqlite_") and object_name not in shadows
    }
    virtual = [table for table, kind in kinds.items() if kind == "virtual"]
    return Schema(columns, objects, virtual[0] if virtual else "")


_SELECT_COLUMNS = "select name from pragma_table_xinfo(?, ?) where not hidden order by cid"


def _normalize_sql(sql: str) -> str:
    """Remove comments and layout, which may differ between databases of the same schema."""
    return " ".join(_COMMENTS.sub(" ", str(sql)).split()).replace('"', "").lower()


def strange(conn: apsw.Connection, version: int) -> list[str]:
    """Return the triggers, views, tables, indexes and altered definitions that our migrations do not create."""
    known_schema = expected(version)
    actual = read(conn)
    differences = [
        f"{kind} {name}{' (altered)' if (kind, name) in known_schema.objects else ''}"
        for (kind, name), sql in actual.objects.items()
        if known_schema.objects.get((kind, name)) != sql
    ]
    return sorted(differences)


def copy(source: Path, path: Path, *, halted: Callable[[], bool] | None = None) -> None:
    """Create the database `path` with the same schema version as `source`, and copy all rows of its known columns."""
    hook.make_private(str(path.parent))
    path.touch(0o600)
    with foreign.errors_of(source), closing(apsw.Connection(foreign.name_of(path), flags=_FLAGS)) as conn:
        foreign.guard(conn)
        conn.pragma("journal_mode", "memory")  # if anything fails, the whole copy is discarded
        conn.pragma("synchronous", "off")
        conn.pragma("secure_delete", "on")  # content deleted later must not remain in pages freed here
        conn.execute("attach database ? as backup", (foreign.address(source),))
        version = int(next(iter(_tuples(conn, "pragma backup.user_version")))[0])
        migrate.build(conn, version)
        conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)  # derived rows are copied too
        if halted is not None:
            conn.set_progress_handler(halted, STEPS)
        known_schema = expected(version)
        if "checks" in known_schema.columns:
            _check_version(conn, source, version)
        with conn:
            _copy_rows(conn, source, known_schema)
    with path.open("rb") as file:
        os.fsync(file.fileno())


_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI


def _check_version(conn: apsw.Connection, source: Path, version: int) -> None:
    """Raise an error if the recorded schema has another version: tables of later versions would be left out."""
    recorded = _tuples(conn, "select text from backup.checks where name = 'schema'")
    if recorded and str(recorded[0][0]).partition(":")[0] != str(version):
        raise CannotDo(f"{source} claims schema version {version}, but its tables are of another one", hint=_HINT)


def _copy_rows(conn: apsw.Connection, source: Path, known_schema: Schema) -> None:
    backup_schema = read(conn, "backup")
    for table, columns in known_schema.columns.items():
        missing = set(columns) - set(backup_schema.columns.get(table, ()))
        if missing:
            raise CannotDo(f"{source} has no table `{table}` with {', '.join(sorted(missing))}", hint=_HINT)
        names = ", ".join(f'"{name}"' for name in columns)
        where = "where name != 'schema'" if table == "checks" else ""  # recorded by our migrations already
        try:
            conn.execute(
                f'insert into main."{table}" ({names}) select {names} from backup."{table}" not indexed {where}'
            )
        except (apsw.ConstraintError, apsw.MismatchError) as error:
            raise CannotDo(f"{source} has invalid rows in `{table}`: {error}", hint=_HINT) from error
    _copy_sequence(conn)
    if known_schema.index:
        conn.execute(f"insert into {known_schema.index} ({known_schema.index}) values ('rebuild')")


def _copy_sequence(conn: apsw.Connection) -> None:
    """Copy the autoincrement counters, so that ids of deleted rows are not used again."""
    sequences = _tuples(conn, "select name, seq from backup.sqlite_sequence")
    for name, number in sequences:
        if isinstance(number, int) and 0 <= number < HIGHEST_NUMBER:
            conn.execute("update sqlite_sequence set seq = max(seq, ?) where name = ?", (number, name))
            conn.execute(
                "insert into sqlite_sequence (name, seq) select t.name, ? from sqlite_schema t where t.type = 'table'"
                " and t.name = ? and t.sql like '%autoincrement%' and t.name not in (select name from sqlite_sequence)",
                (number, name),
            )


def _tuples(conn: apsw.Connection, sql: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    cursor = conn.cursor()
    cursor.row_trace = None
    return list(cursor.execute(sql, values))
