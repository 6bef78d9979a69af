"""Databases that are not ours: whose they are, and reading them without leaving a trace.

The older claude-mem keeps its memory under the same name in the same folder as we do, so a file is told by the tables
in it, never by its name. It may be in use while it is read, it may have been left by a crash, or lie in a folder where
nothing can be written: in no case is a byte of it changed, nor a file made beside it.
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
from claude_mem.errors import CannotDo

MAGIC = b"SQLite format 3\0"
LARGEST_VALUE = 32 << 20  # bytes of one value or row; an event, the largest thing that is kept, has 8 MB at most
OURS = frozenset(("receipts", "turns", "jobs", "project_aliases", "project_dirs"))  # no one else has these
OLDER = frozenset(("observations", "session_summaries", "user_prompts"))
LINKS = frozenset(("memory_session_id", "sdk_session_id"))

Row = dict[str, Any]
State = tuple[tuple[int, int], ...]  # the size and time of a database and of its log


def is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def whose(path: Path) -> str:
    """`ours`, `older` (the claude-mem written in TypeScript), `empty`, or `other`. `CannotDo` if it can't be read."""
    in_hand = path in _copies.made  # by an import that goes on
    try:
        with reading(path) as conn:
            return whose_tables(conn)
    finally:
        if not in_hand:
            drop_copy(path)


def is_plainly_ours(path: Path) -> bool:
    """By the database alone, without its log: SQLite then writes no notes beside it, and those that a killed worker
    left stay as they are."""
    try:
        conn = apsw.Connection(_uri(path, "immutable=1"), flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        try:
            return whose_tables(conn) == "ours"
        finally:
            conn.close()
    except (apsw.Error, UnicodeDecodeError):
        return False


def whose_tables(conn: apsw.Connection) -> str:
    tables = columns(conn)
    if not tables:
        return "empty"
    if len(tables.keys() & OURS) >= 3:  # not all: ours may be damaged, and must not be taken for another's
        return "ours"
    linked = any(LINKS & tables[name] for name in OLDER & tables.keys())
    return "older" if linked or "sdk_sessions" in tables else "other"


def columns(conn: apsw.Connection) -> dict[str, frozenset[str]]:
    """The tables there are, each with its columns."""
    found: dict[str, set[str]] = {}
    listed = "select t.name, c.name from pragma_table_list t, pragma_table_info(t.name) c where t.type = 'table'"
    for table, column in _bare(conn, f"{listed} and t.schema = 'main' and t.name not like 'sqlite\\_%' escape '\\'"):
        found.setdefault(table, set()).add(column)
    return {table: frozenset(names) for table, names in found.items()}


def _bare(conn: apsw.Connection, sql: str) -> list[tuple[Any, ...]]:
    cursor = conn.cursor()
    cursor.row_trace = None
    return list(cursor.execute(sql))


@contextmanager
def reading(path: Path) -> Iterator[apsw.Connection]:
    """A connection that can't write, closed again soon: a reader that stays keeps its owner's log from shrinking."""
    with errors_of(path):
        conn = apsw.Connection(address(path), flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        try:
            guard(conn)
            conn.row_trace = _as_dict
            yield conn
        finally:
            conn.close()


def guard(conn: apsw.Connection) -> None:
    """Set up a connection for a file that someone may have prepared: no function, view or trigger of its schema is run
    beyond SQLite's harmless ones, no value is larger than any of ours, and broken pages are noticed early."""
    conn.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    conn.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    conn.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
    conn.limit(apsw.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
    conn.pragma("cell_size_check", "on")
    conn.set_busy_timeout(5000)


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours, which name the file and say what to do."""
    try:
        yield
    except apsw.BusyError as error:
        raise CannotDo(f"{path} is locked by another program", hint="try again when that is done") from error
    except apsw.FullError as error:
        raise CannotDo("there is no room for a copy: the disk is full", hint="make room, then try again") from error
    except apsw.TooBigError as error:
        raise CannotDo(
            f"{path} holds a value of more than {LARGEST_VALUE >> 20} MB", hint="claude-mem writes no such values"
        ) from error
    except (apsw.Error, UnicodeDecodeError) as error:
        raise CannotDo(f"{path} can't be read: {error}", hint="it is damaged, or no database") from error


def address(path: Path) -> str:
    """How SQLite should open it.

    Without a log (`-wal`) no one is writing: as a file that does not change, SQLite then neither locks nor makes
    anything. With a log and its index (`-shm`) it is shared in the usual way, through what is there already. With a log
    alone, left by a crash or copied along, SQLite would have to make the index: that is done to a copy.
    """
    log = _log(path)
    if not log.exists() or not log.stat().st_size:
        return _uri(path, "immutable=1")
    if path.with_name(f"{path.name}-shm").exists():
        return _uri(path, "mode=ro")
    return _uri(_copies.of(path), "mode=ro")


READING = ".reading-"


class Copies:
    """Each made once, however often it is opened, and kept until it is dropped or the process ends."""

    def __init__(self) -> None:
        self.place: Path | None = None  # None: among the system's temporary files
        self.made: dict[Path, tuple[State, tempfile.TemporaryDirectory[str]]] = {}

    def of(self, path: Path) -> Path:
        now = state(path)
        if path not in self.made or self.made[path][0] != now:
            self.drop(path)
            folder = tempfile.TemporaryDirectory(prefix=READING, dir=self.place)
            self.made[path] = (now, folder)
            for file in (path, _log(path)):
                shutil.copyfile(file, Path(folder.name, file.name))
        return Path(self.made[path][1].name, path.name)

    def drop(self, path: Path) -> None:
        if path in self.made:
            self.made.pop(path)[1].cleanup()


_copies = Copies()
drop_copy = _copies.drop


def keep_copies_in(folder: Path) -> None:
    """From now on; what one that was killed has left there is removed. Only for the holder of the folder's lock."""
    for path in list(_copies.made):
        drop_copy(path)
    hook.make_private(str(folder))
    for left in folder.glob(f"{READING}*"):
        shutil.rmtree(left, ignore_errors=True)
    _copies.place = folder


def state(path: Path) -> State:
    """The database and its log as they are now: their sizes and times."""
    files = [file for file in (path, _log(path)) if file.exists()]
    return tuple((about.st_size, about.st_mtime_ns) for about in (file.stat() for file in files))


def is_shared(found: State) -> bool:
    """With a log, SQLite itself sees to it that everyone sees a whole state."""
    return len(found) > 1 and found[1][0] > 0


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _uri(path: Path, options: str) -> str:
    return f"file:{quote(os.fsencode(path.absolute()))}?{options}"


def name_of(path: Path) -> str:
    """A database's name as SQLite takes it, with `SQLITE_OPEN_URI`. A folder's name is bytes, and need not be UTF-8."""
    text = str(path.absolute())
    try:
        text.encode()
    except UnicodeEncodeError:
        return _uri(path, "cache=private")
    return text


def _as_dict(cursor: apsw.Cursor, row: tuple[Any, ...]) -> Row:
    return {column[0]: value for column, value in zip(cursor.get_description(), row, strict=True)}


# --- the older claude-mem --------------------------------------------------------------------------------------------


_WHEN = ("created_at", "created_at_epoch")
_OF = ("memory_session_id", "sdk_session_id", "project", "merged_into_project", "prompt_number", *_WHEN)
# What is read of each table, as far as it is there: nothing that we have no use for, and nothing that is computed.
READ = {
    "sdk_sessions": (
        "memory_session_id", "sdk_session_id", "content_session_id", "claude_session_id", "platform_source", "project",
        "merged_into_project", "user_prompt", "custom_title", "title", "status", "started_at", "started_at_epoch",
        "completed_at", "completed_at_epoch",
    ),
    "observations": (
        *_OF, "text", "type", "title", "subtitle", "facts", "narrative", "concepts", "files_read", "files_modified",
        "generated_by_model",
    ),
    "session_summaries": (
        *_OF, "summary", "request", "investigated", "learned", "completed", "next_steps", "notes", "files_read",
        "files_edited",
    ),
    "user_prompts": ("prompt_text", "prompt_number", *_WHEN),
}  # fmt: skip
PAGE_BYTES = 16 << 20
LONGEST_LIST = 100_000
LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Page:
    """Rows in the order of their numbers. `more`: there are others after the last."""

    rows: list[Row]
    more: bool


class Older:
    """What is in one of its databases, whatever its age: columns that are not there are simply missing in the rows."""

    def __init__(self, conn: apsw.Connection) -> None:
        self.conn = conn
        self.tables = columns(conn)

    def _number_of(self, table: str) -> str:
        """SQLite's own number of a row; a column may have taken one of its names."""
        taken = {name.lower() for name in self.tables[table]}
        return next((name for name in ("rowid", "_rowid_", "oid") if name not in taken), "null")

    def _select(self, table: str) -> str:
        names = [name for name in READ[table] if name in self.tables[table]]
        return f"select {', '.join([f'{self._number_of(table)} as row_id', *names])} from {table}"

    def _page(self, table: str, where: str, values: tuple[Any, ...], *, after: int, limit: int) -> Page:
        """The next rows, at most `limit` of them and about `PAGE_BYTES`."""
        number, rows, size = self._number_of(table), list[Row](), 0
        sql = f"{self._select(table)} where ({where}) and {number} > ? order by {number} limit ?"
        for row in self.conn.execute(sql, (*values, after, limit + 1)):
            if len(rows) == limit or (rows and size > PAGE_BYTES):
                return Page(rows, more=True)
            rows.append(row)
            size += sum(len(value) for value in row.values() if isinstance(value, str | bytes))
        return Page(rows, more=False)

    def _link(self, table: str) -> str:
        """Its column that names the observer's session: it was renamed on the way."""
        return next(iter(sorted(LINKS & self.tables.get(table, frozenset()))), "null")

    def _rows(self, sql: str, *values: Any) -> list[Row]:
        return list(self.conn.execute(sql, values))

    def count_sessions(self, upto: int = 1 << 62) -> int:
        there = "sdk_sessions" in self.tables
        return self._count("sdk_sessions", f"{self._number_of('sdk_sessions')} <= ?", upto) if there else 0

    def _count(self, table: str, where: str = "true", *values: Any) -> int:
        (row,) = self._rows(f"select count(*) as n from {table} where {where}", *values)
        return int(row["n"])

    def sessions(self, after: int, limit: int) -> list[Row]:
        if "sdk_sessions" not in self.tables:
            return []
        return self._page("sdk_sessions", "true", (), after=after, limit=limit).rows

    def of(self, table: str, link: Any, *, after: int, limit: int) -> Page:
        """Observations or summaries of one of the observer's sessions."""
        column = self._link(table)
        if column == "null" or link is None:
            return Page([], more=False)
        return self._page(table, f"{column} = ?", (link,), after=after, limit=limit)

    def count_of(self, table: str, link: Any, *, after: int) -> int:
        column = self._link(table)
        if column == "null" or link is None:
            return 0
        return self._count(table, f"{column} = ? and {self._number_of(table)} > ?", link, after)

    def prompts(self, session: Row, *, after: int, limit: int) -> Page:
        """By the session's row or, where that column is not there yet, by its name."""
        where, value = self._prompts_of(session)
        return self._page("user_prompts", where, (value,), after=after, limit=limit) if where else Page([], more=False)

    def count_prompts(self, session: Row, *, after: int) -> int:
        where, value = self._prompts_of(session)
        number = self._number_of("user_prompts") if where else ""
        return self._count("user_prompts", f"({where}) and {number} > ?", value, after) if where else 0

    def _prompts_of(self, session: Row) -> tuple[str, Any]:
        """The condition on a session's prompts, and its value."""
        there = self.tables.get("user_prompts", frozenset())
        if "session_db_id" in there:
            column, wanted = "session_db_id", session.get("row_id")
        else:
            names = ("content_session_id", "claude_session_id")
            column = next((name for name in names if name in there), "")
            wanted = session.get("content_session_id") or session.get("claude_session_id")
        return (f"{column} = ?", wanted) if column and wanted is not None else ("", None)

    def orphans(self, after: str | None, limit: int) -> list[str]:
        """The observer's sessions that observations or summaries name and that have no row; '' is none at all."""
        link = self._link("sdk_sessions")
        known = (
            "select null where false" if link == "null" else f"select {link} from sdk_sessions where {link} not null"
        )
        parts = [
            f"select coalesce(cast({own} as text), '') as link from {table}"
            f" where {own} is null or {own} not in ({known})"
            for table in ("observations", "session_summaries")
            if table in self.tables and (own := self._link(table))
        ]
        if not parts:
            return []
        sql = f"select distinct link from ({' union all '.join(parts)}) where link > ? or ? order by link limit ?"
        return [row["link"] for row in self._rows(sql, after or "", after is None, limit)]

    def of_orphan(self, table: str, link: str, *, after: int, limit: int) -> Page:
        if table not in self.tables:
            return Page([], more=False)
        return self._page(table, self._orphans_of(table), (link,), after=after, limit=limit)

    def count_of_orphan(self, table: str, link: str, *, after: int) -> int:
        if table not in self.tables:
            return 0
        return self._count(table, f"{self._orphans_of(table)} and {self._number_of(table)} > ?", link, after)

    def _orphans_of(self, table: str) -> str:
        return f"coalesce(cast({self._link(table)} as text), '') = ?"

    def orphan_prompts(self) -> int:
        if "session_db_id" not in self.tables.get("user_prompts", ()) or "sdk_sessions" not in self.tables:
            return self._count("user_prompts") if "user_prompts" in self.tables and not self.count_sessions() else 0
        return self._count(
            "user_prompts",
            "session_db_id is null or session_db_id not in"
            f" (select {self._number_of('sdk_sessions')} from sdk_sessions)",
        )

    def projects(self, after: str, limit: int) -> list[str]:
        """The next of all projects that are named anywhere, by where their rows are read now, in their order."""
        parts = [
            f"select coalesce({'merged_into_project' if 'merged_into_project' in there else 'null'}, project) as name"
            f" from {table}"
            for table, there in self.tables.items()
            if table in {*OLDER, "sdk_sessions"} and "project" in there
        ]
        if not parts:
            return []
        names = f"select substr(name, 1, {LONGEST_NAME}) as name from ({' union all '.join(parts)})"
        found = self._rows(
            f"select distinct name from ({names}) where typeof(name) = 'text' and name > ? order by name limit ?",
            after,
            limit,
        )
        return [row["name"] for row in found]

    def files(self, project: str, limit: int = 200) -> list[Any]:
        """Of the newest observations of a project: what its columns for files hold."""
        there = self.tables.get("observations", frozenset())
        wanted = [name for name in ("files_modified", "files_read") if name in there]
        if not wanted or "project" not in there:
            return []
        found = self._rows(
            f"select {', '.join(f'substr({name}, 1, {LONGEST_LIST}) as {name}' for name in wanted)} from observations"
            f" where project = ? order by {self._number_of('observations')} desc limit ?",
            project,
            limit,
        )
        return [value for row in found for value in row.values()]
