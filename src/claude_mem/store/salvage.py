"""What a damaged database can still tell, row by row, is brought into the one that takes its place.

That one is an earlier state of the same database, or an empty one, so every row has the same number in both. A row is
taken if it can be read and its seal is right. What is derived is made again, and what was lost of the events is read
back from the transcripts, as far as they go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from claude_mem.store import foreign, jobs, seals
from claude_mem.store.database import Connection, Row, open_reader, rows, value

# Made again by the indexer, by triggers and by checks; `words` and its tables are the index itself.
DERIVED = (
    "documents", "passages", "signals", "vectors", "vectors_gone", "stale", "known_files", "seals", "unsealed",
    "checks",
)  # fmt: skip
GROWING = ("events", "ledger", "tellings")  # rows that are added and hardly ever changed: only new ones are looked at
# What a row is called by whoever made it, beside the number that we gave it.
NAMED = {
    "sdk_sessions": ("id", "content_session_id"), "events": ("seq", "event_id"), "observations": ("id", "key"),
}  # fmt: skip
PAGE = 500
MOST_PROBES = 20_000


@dataclass(slots=True)
class Salvaged:
    """Rows by table: those that came back, and those that could not be read or are not what they were."""

    taken: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)


def salvage(damaged: Connection, into: Connection, *, now: int) -> Salvaged:
    """The caller owns the transaction on `into`, in which references are not checked: what dangles is removed."""
    found = Salvaged()
    offsets = {
        row["id"]: row["transcript_offset"] for row in rows(into, "select id, transcript_offset from sdk_sessions")
    }
    for table in _tables(into):
        _take_table(damaged, into, table, found)
    _take_bygone_words(damaged, into)
    _drop_dangling(into, found)
    _settle_receipts(into)
    if found.lost:
        _ask_again(into, offsets, now=now)
    return found


def reading(path: Path) -> Connection:
    """A connection that reads on where others give up: a table whose definition is damaged hides no other."""
    conn = Connection(foreign.name_of(path), flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    conn.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1)
    conn.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    conn.pragma("cell_size_check", "on")
    return conn


def is_kin(damaged: Connection, fresh: Path) -> bool:
    """Is the one an earlier state of the other? After a backup was put back by hand, two histories have different rows
    under the same numbers; rows of both must not be mixed."""
    conn = open_reader(fresh)
    try:
        return all(_agrees(damaged, conn, table, *names) for table, names in NAMED.items())
    finally:
        conn.close()


def _agrees(damaged: Connection, conn: Connection, table: str, number: str, name: str) -> bool:
    """Of the newest rows of the one, those that can be read in the other are the same."""
    newest = rows(conn, f"select {number} as id, {name} as name from {table} order by {number} desc limit {PAGE}")
    theirs = Reader(damaged, Shape(table, (number, name), (number,), number))
    known = {row[number]: row[name] for row in theirs.read(newest[-1]["id"] - 1 if newest else 0)}
    return all(known.get(row["id"], row["name"]) == row["name"] for row in newest)


def _tables(conn: Connection) -> list[str]:
    found = rows(conn, "select name from pragma_table_list where schema = 'main' and type = 'table' order by name")
    return [row["name"] for row in found if not row["name"].startswith("sqlite_") and row["name"] not in DERIVED]


# --- one table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """What both databases have of a table. `number`: the column that numbers its rows, where there is one."""

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    number: str


def _shape(damaged: Connection, into: Connection, table: str) -> Shape | None:
    theirs = {name for _, name, *_ in _bare(damaged, f"pragma table_info({table})")}
    ours = rows(into, f"select name, type, pk from pragma_table_info('{table}')")
    key = tuple(row["name"] for row in sorted(ours, key=lambda row: row["pk"]) if row["pk"])
    columns = tuple(row["name"] for row in ours if row["name"] in theirs)
    if not key or not set(key) <= set(columns):
        return None
    numbered = len(key) == 1 and next(row["type"] for row in ours if row["pk"]).upper() == "INTEGER"
    return Shape(table, columns, key, key[0] if numbered else "")


def _take_table(damaged: Connection, into: Connection, table: str, found: Salvaged) -> None:
    try:
        shape = _shape(damaged, into, table)
    except apsw.Error:
        shape = None
    if shape is None:
        return
    after = 0
    if table in GROWING:
        after = int(value(into, f"select coalesce(max({shape.number}), 0) from {table}"))
    right = _right_sums(damaged, table)
    put, reader = _put_sql(shape), Reader(damaged, shape)
    there: set[int] = set()
    for row in reader.read(after):
        number = row[shape.number] if shape.number else None
        if not _is_right(shape, row, right):
            found.lost[table] += 1
            continue
        if isinstance(number, int):
            there.add(number)
        try:
            into.execute(put, tuple(row[name] for name in shape.columns))
            found.taken[table] += into.changes()
        except apsw.Error:  # it contradicts another row, or has values that it can't have
            found.lost[table] += 1
    if reader.gaps:
        found.lost[table] += reader.gaps
    whole = table not in found.lost and table not in GROWING and _is_sound(damaged, table)
    if shape.number and whole:
        _drop_missing(into, shape, there)


def _put_sql(shape: Shape) -> str:
    """Not `or replace`: that would take along whatever refers to the row."""
    others = [name for name in shape.columns if name not in shape.key]
    marks = ", ".join("?" * len(shape.columns))
    insert = f"insert into {shape.table} ({', '.join(shape.columns)}) values ({marks})"
    if not others:
        return f"{insert} on conflict do nothing"
    listed, news = ", ".join(others), ", ".join(f"excluded.{name}" for name in others)
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    return f"{insert} on conflict ({', '.join(shape.key)}) do update set {changes} where ({listed}) is not ({news})"


def _right_sums(damaged: Connection, table: str) -> dict[int, int]:
    """The seals of a table's rows, as far as they can be read."""
    sealed, found = seals.BY_TABLE.get(table), {}
    if sealed is not None:
        shape = Shape("seals", ("id", "sum"), ("id",), "id")
        try:
            for row in Reader(damaged, shape).read(0):
                if isinstance(row["id"], int) and row["id"] % seals.KINDS == sealed.number:
                    found[row["id"] // seals.KINDS] = row["sum"]
        except apsw.Error:
            pass  # of a version without seals
    return found


def _is_right(shape: Shape, row: Row, right: dict[int, int]) -> bool:
    """One that has no seal yet is taken as it is."""
    sealed = seals.BY_TABLE.get(shape.table)
    if sealed is None or row[sealed.key] not in right or not set(sealed.columns) <= row.keys():
        return True
    return seals.matches(sealed, row, right[row[sealed.key]])


def _is_sound(damaged: Connection, table: str) -> bool:
    try:
        return [said for (said,) in _bare(damaged, f"pragma integrity_check('{table}')")] == ["ok"]
    except apsw.Error:
        return False


def _drop_missing(into: Connection, shape: Shape, there: set[int]) -> None:
    """What was removed since the backup, by its owner's wish or because it was done, does not come back."""
    known = [row["id"] for row in rows(into, f"select {shape.number} as id from {shape.table}")]
    gone = [(row_id,) for row_id in known if row_id not in there]
    into.executemany(f"delete from {shape.table} where {shape.number} = ?", gone)


class Reader:
    """Every row of a table that can be reached. Where a page is broken its neighbours are approached from both sides,
    and what lies between by number."""

    def __init__(self, conn: Connection, shape: Shape) -> None:
        self.conn = conn
        self.shape = shape
        self.gaps = 0  # rows, or stretches of them, that could not be reached

    def read(self, after: int) -> Iterator[Row]:
        if not self.shape.number:
            yield from self._unnumbered()
            return
        last = after
        for row in self._numbered(f"{self.shape.number} > ? order by {self.shape.number}", after):
            last = row[self.shape.number]
            yield row
        if self.gaps:
            yield from self._beyond(last)

    def _beyond(self, last: int) -> Iterator[Row]:
        self.gaps = 0
        first = 0
        for row in self._numbered(f"{self.shape.number} > ? order by {self.shape.number} desc", last):
            first = row[self.shape.number]
            yield row
        for number in range(last + 1, min(first or last + MOST_PROBES, last + MOST_PROBES)):
            yield from self._numbered(f"{self.shape.number} = ?", number)
        if not first and self.gaps:
            self.gaps = 1  # how many there were nobody knows

    def _numbered(self, where: str, given: int) -> Iterator[Row]:
        return self._try(f"select {', '.join(self.shape.columns)} from {self.shape.table} where {where}", (given,))

    def _unnumbered(self) -> Iterator[Row]:
        key, listed = ", ".join(self.shape.key), ", ".join(self.shape.columns)
        yield from self._try(f"select {listed} from {self.shape.table} order by {key}")
        if self.gaps:
            back = ", ".join(f"{name} desc" for name in self.shape.key)
            yield from self._try(f"select {listed} from {self.shape.table} order by {back}")

    def _try(self, sql: str, values: tuple[object, ...] = ()) -> Iterator[Row]:
        """As far as it goes."""
        try:
            for found in _bare(self.conn, sql, values):
                yield dict(zip(self.shape.columns, found, strict=True))
        except (apsw.Error, UnicodeDecodeError):
            self.gaps += 1


def _bare(conn: Connection, sql: str, values: tuple[object, ...] = ()) -> Iterable[tuple[object, ...]]:
    cursor = conn.cursor()
    cursor.row_trace = None
    return cursor.execute(sql, values)


# --- afterwards ------------------------------------------------------------------------------------------------------


def _take_bygone_words(damaged: Connection, into: Connection) -> None:
    """By these a turn is found whose events are past keeping: they can't be made again."""
    wanted = {row["id"] for row in rows(into, "select id from turns where events_gone")}
    known = {row["row_id"] for row in rows(into, "select row_id from documents where kind = 'turn'")}
    taken: set[int] = set()
    for table, key in (("documents", "id"), ("passages", "document_id"), ("signals", "document_id")):
        try:
            shape = _shape(damaged, into, table)
        except apsw.Error:
            continue
        for row in Reader(damaged, shape).read(0) if shape else ():
            if table == "documents" and row["kind"] == "turn" and row["row_id"] in wanted - known:
                taken.add(row["id"])
            if row[key] in taken and shape is not None:
                marks = ", ".join("?" * len(shape.columns))
                into.execute(
                    f"insert or ignore into {table} ({', '.join(shape.columns)}) values ({marks})",
                    tuple(row[name] for name in shape.columns),
                )


def _drop_dangling(into: Connection, found: Salvaged) -> None:
    """Rows that refer to what was lost."""
    while dangling := rows(into, 'select distinct "table", rowid as id from pragma_foreign_key_check where rowid'):
        for row in dangling:
            into.execute(f"delete from {row['table']} where rowid = ?", (row["id"],))
            if found.lost and row["table"] not in DERIVED:  # else what it refers to was removed on purpose
                found.lost[row["table"]] += 1


def _settle_receipts(into: Connection) -> None:
    """The account has to add up: an event that was lost is counted as lost, by a rule of that name, and may come back
    from its transcript."""
    into.execute(
        "insert or ignore into receipts select event_id, 'stored', '', at from events"
        " where event_id not in (select event_id from receipts)"
    )
    into.execute("update receipts set outcome = 'stored', rule = '' where event_id in (select event_id from events)")
    into.execute(
        """
        insert into tally select 'filtered', 'damaged', count(*) from receipts
         where outcome = 'stored' and event_id not in (select event_id from events)
        on conflict do update set n = n + excluded.n
        """
    )
    into.execute("delete from receipts where outcome = 'stored' and event_id not in (select event_id from events)")
    into.execute("delete from tally where not n")


def _ask_again(into: Connection, offsets: dict[int, int], *, now: int) -> None:
    """Transcripts of sessions that went on since the backup are read from where it stood, and turns digested again."""
    for row in rows(into, "select id, transcript_offset, transcript_path from sdk_sessions"):
        before = offsets.get(row["id"], 0)
        if row["transcript_path"] and row["transcript_offset"] != before:
            into.execute("update sdk_sessions set transcript_offset = ? where id = ?", (before, row["id"]))
            jobs.ask(into, "reconcile", f"{row['id']}.{now}.agents", now=now)
    for row in rows(into, _OWED):
        jobs.ask(into, "compress", f"{row['id']}.{row['seq']}", now=now)
    for row in rows(into, _UNSURE):
        into.execute("update turns set digested_at = null where id = ?", (row["id"],))
        jobs.ask(into, jobs.PAST, f"{row['id']}.{row['seq']}", now=now)


_OWED = """
    select t.id, max(e.seq) as seq from turns t join events e on e.turn_id = t.id
     where t.closed_at is not null and t.digested_at is null and not t.private group by t.id
"""
# Turns that were digested, have their events, and nothing to show for it: their summary was lost.
_UNSURE = """
    select t.id, max(e.seq) as seq from turns t join events e on e.turn_id = t.id
     where t.digested_at is not null and not t.private and not t.events_gone
       and not exists (select 1 from session_summaries s where s.turn_id = t.id)
     group by t.id
"""
