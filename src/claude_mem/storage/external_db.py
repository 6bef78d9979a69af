"""Databases of other programs: identifying them, and reading them without changing anything.

The older claude-mem stores its memory under the same file name in the same folder as this program, so a database is
identified by its tables, never by its name. It may be in use while it is read, may have been left by a crash, or may be
in a read-only folder. In no case is the file changed or another file created beside it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from claude_mem import hook
from claude_mem.domain.errors import OperationFailed
from claude_mem.storage.sqlite.damage import SQLITE_MAGIC

MAX_VALUE_BYTES = 32 << 20  # of one value or row; an event, the largest item we store, has at most 8 MB
SECOND_DATABASE_NAME = "memory.db"
# Tables that no other program has.
OUR_TABLES = frozenset(("receipts", "turns", "jobs", "project_aliases", "project_dirs"))
LEGACY_TABLES = frozenset(("observations", "session_summaries", "user_prompts"))
SESSION_LINK_COLUMNS = frozenset(("memory_session_id", "sdk_session_id"))

Row = dict[str, Any]
DatabaseFileState = tuple[tuple[int, int], ...]  # size and modification time of a database and of its WAL


def is_sqlite_file(path: Path) -> bool:
    """Return whether the file starts with the header of an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC


def identify_database(path: Path) -> str:
    """Return `ours`, `older` (the claude-mem written in TypeScript), `empty` or `other`.

    Raise `OperationFailed` if the file can't be read.
    """
    had_copy = path in _copies.entries  # made by a running import
    try:
        with open_read_only(path) as conn:
            return identify_tables(conn)
    finally:
        if not had_copy:
            drop_database_copy(path)


def is_own_database_file(path: Path) -> bool:
    """Return whether the main file alone, without its WAL, identifies the database as ours.

    Read this way, SQLite creates no -shm file, and one left by a killed worker stays unchanged.
    """
    try:
        conn = apsw.Connection(_uri(path, "immutable=1"), flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        try:
            return identify_tables(conn) == "ours"
        finally:
            conn.close()
    except (apsw.Error, UnicodeDecodeError):
        return False


def resolve_database_path(path: Path) -> Path:
    """Return the path of our database.

    The older claude-mem uses the same file name in the same folder. If its database is there, ours has another name
    beside it, and the older one is not touched.
    """
    second_path = path.with_name(SECOND_DATABASE_NAME)
    return second_path if second_path.exists() or is_foreign_database(path) else path


def is_foreign_database(path: Path) -> bool:
    """Return whether this is an intact database of another program.

    A damaged database may be ours, so it does not count; opening it shows whose it is.
    """
    try:
        if not is_sqlite_file(path) or is_own_database_file(path):
            return False
        return identify_database(path) in ("older", "other")
    except (OSError, OperationFailed):
        return False


def identify_tables(conn: apsw.Connection) -> str:
    """Return whose database an open connection reads, in the words of `identify_database`."""
    tables = read_table_columns(conn)
    if not tables:
        return "empty"
    if len(tables.keys() & OUR_TABLES) >= 3:  # not all five: our own database must be recognized when damaged
        return "ours"
    linked = any(SESSION_LINK_COLUMNS & tables[name] for name in LEGACY_TABLES & tables.keys())
    return "older" if linked or "sdk_sessions" in tables else "other"


def read_table_columns(conn: apsw.Connection) -> dict[str, frozenset[str]]:
    """Return the columns of every table."""
    columns_by_table: dict[str, set[str]] = {}
    sql = "select t.name, c.name from pragma_table_list t, pragma_table_info(t.name) c where t.type = 'table'"
    for table, column in fetch_tuples(
        conn, f"{sql} and t.schema = 'main' and t.name not like 'sqlite\\_%' escape '\\'"
    ):
        columns_by_table.setdefault(table, set()).add(column)
    return {table: frozenset(names) for table, names in columns_by_table.items()}


def fetch_tuples(conn: apsw.Connection, sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
    """Return rows as tuples, also on connections that return dicts.

    With thousands of rows, creating a dict for each takes most of the time.
    """
    cursor = conn.cursor()
    cursor.row_trace = None
    return list(cursor.execute(sql, params))


@contextmanager
def open_read_only(path: Path) -> Iterator[apsw.Connection]:
    """Open a read-only connection. Keep it short: an open reader prevents the owner's WAL from shrinking."""
    with translate_sqlite_errors(path):
        conn = apsw.Connection(read_only_uri(path), flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        try:
            harden_connection(conn)
            conn.row_trace = row_to_dict
            yield conn
        finally:
            conn.close()


def harden_connection(conn: apsw.Connection) -> None:
    """Harden a connection to a file that may be malicious.

    No view of its schema is used and only harmless SQL functions are run, values are limited in size, and damaged pages
    are detected early.
    """
    conn.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    conn.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    conn.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
    conn.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    conn.pragma("cell_size_check", "on")
    conn.set_busy_timeout(5000)


@contextmanager
def translate_sqlite_errors(path: Path) -> Iterator[None]:
    """Translate SQLite's errors into `OperationFailed`, which names the file and says what to do."""
    try:
        yield
    except apsw.BusyError as error:
        raise OperationFailed(
            f"{path} is locked by another program", hint="try again when that program is done"
        ) from error
    except apsw.FullError as error:
        raise OperationFailed(
            "can't make a copy: the disk is full", hint="free some disk space, then try again"
        ) from error
    except apsw.TooBigError as error:
        raise OperationFailed(
            f"{path} has a value of more than {MAX_VALUE_BYTES >> 20} MB", hint="claude-mem writes no such values"
        ) from error
    except (apsw.Error, UnicodeDecodeError) as error:
        raise OperationFailed(f"{path} can't be read: {error}", hint="it is damaged, or not a database") from error


def read_only_uri(path: Path) -> str:
    """Return the URI with which SQLite can read the database without changing anything.

    Without a WAL no program is writing, so the file is opened as immutable and SQLite creates neither locks nor files.
    With a WAL and its -shm file, both are shared in the usual way. With a WAL alone, left by a crash or copied along,
    SQLite would have to create the -shm file, so a copy is opened instead.
    """
    wal = _wal_path(path)
    if not wal.exists() or not wal.stat().st_size:
        return _uri(path, "immutable=1")
    if path.with_name(f"{path.name}-shm").exists():
        return _uri(path, "mode=ro")
    return _uri(_copies.path_of(path), "mode=ro")


COPY_FOLDER_PREFIX = ".reading-"


class DatabaseCopies:
    """Copies of databases, each made once however often it is opened, and kept until dropped or the process ends."""

    def __init__(self) -> None:
        self.folder: Path | None = None  # None: the system's temporary directory
        self.entries: dict[Path, tuple[DatabaseFileState, tempfile.TemporaryDirectory[str]]] = {}

    def path_of(self, path: Path) -> Path:
        """Return the path of the copy. A copy is made if there is none or the database has changed since."""
        current = read_file_state(path)
        if path not in self.entries or self.entries[path][0] != current:
            self.drop(path)
            folder = tempfile.TemporaryDirectory(prefix=COPY_FOLDER_PREFIX, dir=self.folder)
            self.entries[path] = (current, folder)
            for file in (path, _wal_path(path)):
                shutil.copyfile(file, Path(folder.name, file.name))
        return Path(self.entries[path][1].name, path.name)

    def drop(self, path: Path) -> None:
        """Delete the copy of a database, if there is one."""
        if path in self.entries:
            self.entries.pop(path)[1].cleanup()


_copies = DatabaseCopies()
drop_database_copy = _copies.drop


def set_copy_folder(folder: Path) -> None:
    """Make copies in this folder from now on, and remove those that a killed process left there.

    The caller must hold the lock of the folder.
    """
    for path in list(_copies.entries):
        drop_database_copy(path)
    hook.make_private_dir(str(folder))
    for leftover in folder.glob(f"{COPY_FOLDER_PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    _copies.folder = folder


def read_file_state(path: Path) -> DatabaseFileState:
    """Return the sizes and modification times of the database and its WAL."""
    files = [file for file in (path, _wal_path(path)) if file.exists()]
    return tuple((status.st_size, status.st_mtime_ns) for status in (file.stat() for file in files))


def has_wal(file_states: DatabaseFileState) -> bool:
    """Return whether the database has a WAL, so that SQLite itself gives every reader a consistent state."""
    return len(file_states) > 1 and file_states[1][0] > 0


def _wal_path(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _uri(path: Path, options: str) -> str:
    return f"file:{quote(os.fsencode(path.absolute()))}?{options}"


def sqlite_file_name(path: Path) -> str:
    """Return the file name to pass to SQLite with `SQLITE_OPEN_URI`. A path is bytes and need not be valid UTF-8."""
    text = str(path.absolute())
    try:
        text.encode()
    except UnicodeEncodeError:
        return _uri(path, "cache=private")
    return text


def row_to_dict(cursor: apsw.Cursor, row: tuple[Any, ...]) -> dict[str, object]:
    """Convert a row to a dict by column name. For use as a row trace."""
    return {column[0]: value for column, value in zip(cursor.get_description(), row, strict=True)}


# --- the database of the older claude-mem ----------------------------------------------------------------------------


_TIME_COLUMNS = ("created_at", "created_at_epoch")
_COMMON_COLUMNS = (
    "memory_session_id",
    "sdk_session_id",
    "project",
    "merged_into_project",
    "prompt_number",
    *_TIME_COLUMNS,
)
# The columns to read of each table, as far as they exist: only those we use, and no generated ones.
LEGACY_COLUMNS = {
    "sdk_sessions": (
        "memory_session_id", "sdk_session_id", "content_session_id", "claude_session_id", "platform_source", "project",
        "merged_into_project", "user_prompt", "custom_title", "title", "status", "started_at", "started_at_epoch",
        "completed_at", "completed_at_epoch",
    ),
    "observations": (
        *_COMMON_COLUMNS, "text", "type", "title", "subtitle", "facts", "narrative", "concepts", "files_read",
        "files_modified", "generated_by_model",
    ),
    "session_summaries": (
        *_COMMON_COLUMNS, "summary", "request", "investigated", "learned", "completed", "next_steps", "notes",
        "files_read", "files_edited",
    ),
    "user_prompts": ("prompt_text", "prompt_number", *_TIME_COLUMNS),
}  # fmt: skip
LEGACY_PAGE_BYTES = 16 << 20
MAX_LIST_CHARS = 100_000
MAX_NAME_CHARS = 200


@dataclass(frozen=True, slots=True)
class LegacyPage:
    """Rows in the order of their rowid, and whether there are more rows after the last."""

    rows: list[Row]
    more: bool


class LegacyDatabase:
    """Reads a database of the older claude-mem, of any version: rows lack the columns that it does not have."""

    def __init__(self, conn: apsw.Connection) -> None:
        self.conn = conn
        self.tables = read_table_columns(conn)

    def _rowid_name(self, table: str) -> str:
        """Return a name of the rowid that is not the name of a column."""
        column_names = {name.lower() for name in self.tables[table]}
        return next((name for name in ("rowid", "_rowid_", "oid") if name not in column_names), "null")

    def _select(self, table: str) -> str:
        names = [name for name in LEGACY_COLUMNS[table] if name in self.tables[table]]
        return f"select {', '.join([f'{self._rowid_name(table)} as row_id', *names])} from {table}"

    def _page(self, table: str, where: str, values: tuple[Any, ...], *, after: int, limit: int) -> LegacyPage:
        """Return the next rows, at most `limit` of them and about `LEGACY_PAGE_BYTES`."""
        number, rows, size = self._rowid_name(table), list[Row](), 0
        sql = f"{self._select(table)} where ({where}) and {number} > ? order by {number} limit ?"
        for row in self.conn.execute(sql, (*values, after, limit + 1)):
            if len(rows) == limit or (rows and size > LEGACY_PAGE_BYTES):
                return LegacyPage(rows, more=True)
            rows.append(row)
            size += sum(len(value) for value in row.values() if isinstance(value, str | bytes))
        return LegacyPage(rows, more=False)

    def _link_column(self, table: str) -> str:
        """Return the column that refers to the observer session; its name changed between versions."""
        return next(iter(sorted(SESSION_LINK_COLUMNS & self.tables.get(table, frozenset()))), "null")

    def _rows(self, sql: str, *values: Any) -> list[Row]:
        return list(self.conn.execute(sql, values))

    def count_sessions(self, upto: int = 1 << 62) -> int:
        """Count the sessions up to a rowid."""
        has_table = "sdk_sessions" in self.tables
        return self._count("sdk_sessions", f"{self._rowid_name('sdk_sessions')} <= ?", upto) if has_table else 0

    def _count(self, table: str, where: str = "true", *values: Any) -> int:
        (row,) = self._rows(f"select count(*) as n from {table} where {where}", *values)
        return int(row["n"])

    def list_sessions(self, after: int, limit: int) -> list[Row]:
        """Return the next sessions in the order of their rowid."""
        if "sdk_sessions" not in self.tables:
            return []
        return self._page("sdk_sessions", "true", (), after=after, limit=limit).rows

    def list_session_items(self, table: str, link: Any, *, after: int, limit: int) -> LegacyPage:
        """Return the next observations or summaries of one observer session."""
        column = self._link_column(table)
        if column == "null" or link is None:
            return LegacyPage([], more=False)
        return self._page(table, f"{column} = ?", (link,), after=after, limit=limit)

    def count_session_items(self, table: str, link: Any, *, after: int) -> int:
        """Count what `list_session_items` has yet to return."""
        column = self._link_column(table)
        if column == "null" or link is None:
            return 0
        return self._count(table, f"{column} = ? and {self._rowid_name(table)} > ?", link, after)

    def list_prompts(self, session: Row, *, after: int, limit: int) -> LegacyPage:
        """Return the next prompts of a session.

        Prompts refer to the row id of their session or, in some versions, to the id that its agent gave it.
        """
        where, value = self._prompts_condition(session)
        return (
            self._page("user_prompts", where, (value,), after=after, limit=limit)
            if where
            else LegacyPage([], more=False)
        )

    def count_prompts(self, session: Row, *, after: int) -> int:
        """Count what `list_prompts` has yet to return."""
        where, value = self._prompts_condition(session)
        number = self._rowid_name("user_prompts") if where else ""
        return self._count("user_prompts", f"({where}) and {number} > ?", value, after) if where else 0

    def _prompts_condition(self, session: Row) -> tuple[str, object]:
        """Return the SQL condition on a session's prompts, and its parameter."""
        existing = self.tables.get("user_prompts", frozenset())
        if "session_db_id" in existing:
            column, key = "session_db_id", session.get("row_id")
        else:
            names = ("content_session_id", "claude_session_id")
            column = next((name for name in names if name in existing), "")
            key = session.get("content_session_id") or session.get("claude_session_id")
        return (f"{column} = ?", key) if column and key is not None else ("", None)

    def list_orphan_links(self, after: str | None, limit: int) -> list[str]:
        """Return the next observer sessions that observations or summaries refer to but that have no row.

        Items that refer to no session at all are listed under ''.
        """
        link = self._link_column("sdk_sessions")
        known_links = (
            "select null where false" if link == "null" else f"select {link} from sdk_sessions where {link} not null"
        )
        selects = [
            f"select coalesce(cast({column} as text), '') as link from {table}"
            f" where {column} is null or {column} not in ({known_links})"
            for table in ("observations", "session_summaries")
            if table in self.tables and (column := self._link_column(table))
        ]
        if not selects:
            return []
        sql = f"select distinct link from ({' union all '.join(selects)}) where link > ? or ? order by link limit ?"
        return [row["link"] for row in self._rows(sql, after or "", after is None, limit)]

    def list_orphan_items(self, table: str, link: str, *, after: int, limit: int) -> LegacyPage:
        """Return the next observations or summaries that refer to a missing observer session."""
        if table not in self.tables:
            return LegacyPage([], more=False)
        return self._page(table, self._orphan_condition(table), (link,), after=after, limit=limit)

    def count_orphan_items(self, table: str, link: str, *, after: int) -> int:
        """Count what `list_orphan_items` has yet to return."""
        if table not in self.tables:
            return 0
        return self._count(table, f"{self._orphan_condition(table)} and {self._rowid_name(table)} > ?", link, after)

    def _orphan_condition(self, table: str) -> str:
        return f"coalesce(cast({self._link_column(table)} as text), '') = ?"

    def count_orphan_prompts(self) -> int:
        """Count the prompts whose session has no row."""
        if "session_db_id" not in self.tables.get("user_prompts", ()) or "sdk_sessions" not in self.tables:
            return self._count("user_prompts") if "user_prompts" in self.tables and not self.count_sessions() else 0
        return self._count(
            "user_prompts",
            "session_db_id is null or session_db_id not in"
            f" (select {self._rowid_name('sdk_sessions')} from sdk_sessions)",
        )

    def list_projects(self, after: str, limit: int) -> list[str]:
        """Return the next project names in order, from all tables; of merged projects, the name of the target."""
        selects = [
            f"select coalesce({'merged_into_project' if 'merged_into_project' in names else 'null'}, project) as name"
            f" from {table}"
            for table, names in self.tables.items()
            if table in {*LEGACY_TABLES, "sdk_sessions"} and "project" in names
        ]
        if not selects:
            return []
        names = f"select substr(name, 1, {MAX_NAME_CHARS}) as name from ({' union all '.join(selects)})"
        name_rows = self._rows(
            f"select distinct name from ({names}) where typeof(name) = 'text' and name > ? order by name limit ?",
            after,
            limit,
        )
        return [row["name"] for row in name_rows]

    def list_files(self, project: str, limit: int = 200) -> list[object]:
        """Return the values of the file columns of a project's newest observations."""
        existing = self.tables.get("observations", frozenset())
        file_columns = [name for name in ("files_modified", "files_read") if name in existing]
        if not file_columns or "project" not in existing:
            return []
        values = ", ".join(f"substr({name}, 1, {MAX_LIST_CHARS}) as {name}" for name in file_columns)
        file_rows = self._rows(
            f"select {values} from observations"
            f" where project = ? order by {self._rowid_name('observations')} desc limit ?",
            project,
            limit,
        )
        return [value for row in file_rows for value in row.values()]


@contextmanager
def open_legacy(path: Path) -> Iterator[LegacyDatabase]:
    """Open a database of the older claude-mem to read it."""
    with open_read_only(path) as conn:
        yield LegacyDatabase(conn)
