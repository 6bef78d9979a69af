"""Databases that are not ours: whose they are, and reading them without leaving a trace.

The older claude-mem keeps its memory under the same name in the same folder as we do, so a file is told by the tables
in it, never by its name. It may be in use while it is read, it may have been left by a crash, or lie in a folder where
nothing can be written: in no case is a byte of it changed, nor a file made beside it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
    return f"file:{quote(str(path.absolute()))}?{options}"


def _as_dict(cursor: apsw.Cursor, row: tuple[Any, ...]) -> Row:
    return {column[0]: value for column, value in zip(cursor.get_description(), row, strict=True)}


# --- the older claude-mem --------------------------------------------------------------------------------------------


class Older:
    """What is in one of its databases, whatever its age: columns that are not there are simply missing in the rows."""

    def __init__(self, conn: apsw.Connection) -> None:
        self.conn = conn
        self.tables = columns(conn)

    def _link(self, table: str) -> str:
        """Its column that names the observer's session: it was renamed on the way."""
        return next(iter(sorted(LINKS & self.tables.get(table, frozenset()))), "null")

    def _rows(self, sql: str, *values: Any) -> list[Row]:
        return list(self.conn.execute(sql, values))

    def count_sessions(self, upto: int = 1 << 62) -> int:
        return self._count("sdk_sessions", f"rowid <= {int(upto)}") if "sdk_sessions" in self.tables else 0

    def _count(self, table: str, where: str = "true") -> int:
        (row,) = self._rows(f"select count(*) as n from {table} where {where}")
        return int(row["n"])

    def sessions(self, after: int, limit: int) -> list[Row]:
        if "sdk_sessions" not in self.tables:
            return []
        return self._rows(
            "select rowid as row_id, * from sdk_sessions where rowid > ? order by rowid limit ?", after, limit
        )

    def of(self, table: str, link: Any) -> list[Row]:
        """Observations or summaries of one of the observer's sessions."""
        column = self._link(table)
        if column == "null" or link is None:
            return []
        return self._rows(f"select rowid as row_id, * from {table} where {column} = ? order by rowid", link)

    def prompts(self, session: Row) -> list[Row]:
        """By the session's row or, where that column is not there yet, by its name."""
        there = self.tables.get("user_prompts", frozenset())
        if "session_db_id" in there:
            column, wanted = "session_db_id", session["row_id"]
        else:
            names = ("content_session_id", "claude_session_id")
            column = next((name for name in names if name in there), "")
            wanted = session.get("content_session_id") or session.get("claude_session_id")
        if not column or wanted is None:
            return []
        return self._rows(f"select rowid as row_id, * from user_prompts where {column} = ? order by rowid", wanted)

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

    def of_orphan(self, table: str, link: str) -> list[Row]:
        if table not in self.tables:
            return []
        own = self._link(table)
        return self._rows(
            f"select rowid as row_id, * from {table} where coalesce(cast({own} as text), '') = ? order by rowid", link
        )

    def orphan_prompts(self) -> int:
        if "session_db_id" not in self.tables.get("user_prompts", ()) or "sdk_sessions" not in self.tables:
            return self._count("user_prompts") if "user_prompts" in self.tables and not self.count_sessions() else 0
        return self._count(
            "user_prompts", "session_db_id is null or session_db_id not in (select rowid from sdk_sessions)"
        )

    def projects(self) -> list[str]:
        """Every project that is named anywhere, by where its rows are read now."""
        parts = [
            f"select coalesce({'merged_into_project' if 'merged_into_project' in there else 'null'}, project) as name"
            f" from {table}"
            for table, there in self.tables.items()
            if table in {*OLDER, "sdk_sessions"} and "project" in there
        ]
        if not parts:
            return []
        found = self._rows(f"select distinct name from ({' union all '.join(parts)}) where name is not null")
        return sorted({str(row["name"]) for row in found})

    def files(self, project: str, limit: int = 200) -> list[Any]:
        """Of the newest observations of a project: what its columns for files hold."""
        there = self.tables.get("observations", frozenset())
        wanted = [name for name in ("files_modified", "files_read") if name in there]
        if not wanted or "project" not in there:
            return []
        found = self._rows(
            f"select {', '.join(wanted)} from observations where project = ? order by rowid desc limit ?",
            project,
            limit,
        )
        return [value for row in found for value in row.values()]
