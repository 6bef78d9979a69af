"""Replace a damaged database by the newest good backup plus all rows that can be salvaged from the damaged one.

Nothing is deleted: the damaged database is kept in `quarantine/<time>/` with its WAL. A missing database counts as
damaged if other files show that there was one. A repair that was interrupted is resumed at the next start. The
replacement is an earlier state of the same database, or empty, so that a row has the same id in both. A row is salvaged
if it can be read and matches its checksum. Derived data is rebuilt, and lost events are read again from the transcripts
as far as possible.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import apsw
import msgspec

from claude_mem import hook
from claude_mem.domain import ids
from claude_mem.domain.errors import ClaudeMemError
from claude_mem.storage import external_db
from claude_mem.storage.journal_records import DIGEST_BACKFILLED_JOB
from claude_mem.storage.records import Tombstone
from claude_mem.storage.sqlite import backup, checksums, damage, former_names
from claude_mem.storage.sqlite.deletion import tombstones
from claude_mem.storage.sqlite.engine import Connection, Engine, Row, fetch_all, fetch_value, open_reader
from claude_mem.storage.sqlite.journal import jobs, notices
from claude_mem.system.failpoints import failpoint
from claude_mem.system.spool import modified_at, sync_directory, write_private

REPAIR_RECORD_FILE = "about.json"
REPAIRED_FROM_ITSELF = "itself"  # only the end of the WAL was lost
_SALVAGE_PREFIX = ".salvaging-"
# Rebuilt by the indexer, by triggers and by checks; `words` and its shadow tables are the index itself.
_DERIVED_TABLES = (
    "documents", "passages", "signals", "vectors", "deleted_vectors", "index_queue", "known_files", "sightings", "checksums",
    "checksum_queue", "checks", "validity_queue",
)  # fmt: skip
_APPEND_ONLY_TABLES = ("events", "ledger", "injections")  # rarely updated, so only newer rows are read
# The id column of a table, and the column with the name that its origin gave the row.
_NAME_COLUMNS = {
    "sdk_sessions": ("id", "content_session_id"), "events": ("seq", "event_id"), "observations": ("id", "key"),
}  # fmt: skip
_SAMPLE_ROWS = 500
_MAX_PROBES = 20_000
_UNDIGESTED_TURNS = """
    select t.id, max(e.seq) as seq from turns t join events e on e.turn_id = t.id
     where t.closed_at is not null and t.digested_at is null and not t.private group by t.id
"""
# Digested turns that have events but no summary, because it was lost.
_TURNS_WITHOUT_SUMMARY = """
    select t.id, max(e.seq) as seq from turns t join events e on e.turn_id = t.id
     where t.digested_at is not null and not t.private and not t.events_purged
       and not exists (select 1 from session_summaries s where s.turn_id = t.id)
     group by t.id
"""


class RepairRecord(msgspec.Struct):
    """The record of a repair, stored beside the damaged files. `ended_at` is 0 until the repair is complete."""

    problem: str
    started_at: int = msgspec.field(name="begun_at")
    folder: str = ""
    ended_at: int = 0
    backup: str = ""  # the replacement: the name of a backup, `itself`, or '' for an empty database
    salvaged: dict[str, int] = msgspec.field(name="taken", default_factory=dict)  # number of rows by table
    lost: dict[str, int] = {}
    was_missing: bool = msgspec.field(name="gone", default=False)
    pinned: str = ""  # the newest backup from before, which the rotation keeps as long as this record exists

    def describe(self) -> str:
        """Describe a repair for the user."""
        if self.was_missing:
            return self._describe_loss()
        when = datetime.fromtimestamp(self.started_at / 1000)
        source = f"the backup {self.backup}" if self.backup else "an empty one, because there was no good backup"
        if self.backup == REPAIRED_FROM_ITSELF:
            source = "its own intact content"
        saved, lost = sum(self.salvaged.values()), sum(self.lost.values())
        details = f", plus {saved:,} rows saved from the damaged one" if saved else ""
        details += f"; {lost:,} rows were lost" if lost else ""
        hint = "; run `claude-mem backfill` to read your transcripts again" if lost or not self.backup else ""
        return (
            f"claude-mem's database was damaged on {when:%d %b at %H:%M} ({self.problem}). It was replaced by"
            f" {source}{details}{hint}. The damaged one is kept in {self.folder}."
        )

    def _describe_loss(self) -> str:
        when = datetime.fromtimestamp(self.started_at / 1000)
        if self.backup:
            state = f"It was replaced by the backup {self.backup}, which lacks everything added after it was made."
        else:
            state = "All memory is LOST, because no backup can be restored; an empty database was created."
        return (
            f"claude-mem's database was missing on {when:%d %b at %H:%M} ({self.problem}). {state} Run `claude-mem"
            f" backfill` to read your transcripts again. Details are in {self.folder}."
        )


# --- records of repairs ----------------------------------------------------------------------------------------------


def find_unfinished_repair(quarantine: Path) -> RepairRecord | None:
    """Return the repair that was interrupted, or None."""
    return next((each for each in list_repairs(quarantine) if not each.ended_at), None)


def list_repairs(quarantine: Path) -> list[RepairRecord]:
    """Return the records of all repairs whose quarantine folder still exists, newest first."""
    repairs = []
    for path in sorted(quarantine.glob(f"*/{REPAIR_RECORD_FILE}"), reverse=True):
        try:
            record = msgspec.json.decode(path.read_bytes(), type=RepairRecord)
        except OSError:
            continue
        except (msgspec.MsgspecError, RecursionError):  # damaged by a power cut; the quarantined files are not affected
            record = RepairRecord(problem="the record of the repair was lost", started_at=int(modified_at(path) * 1000))
        record.folder = str(path.parent)
        repairs.append(record)
    return repairs


def list_pinned_backups(quarantine: Path) -> set[str]:
    """Return the names of backups from before a repair. They stay pinned until the user deletes its folder."""
    return {
        name
        for each in list_repairs(quarantine)
        for name in (each.backup, each.pinned)
        if name not in ("", REPAIRED_FROM_ITSELF)
    }


# --- replacing the database ------------------------------------------------------------------------------------------


def replace_damaged_database(database: Path, *, backups: Path, quarantine: Path, problem: str) -> RepairRecord:
    """Repair the database, or resume an interrupted repair.

    The caller must hold the worker lock, and the database must be closed. Hooks need only the spool, so capture
    continues.
    """
    record = find_unfinished_repair(quarantine) or _start_record(
        quarantine, problem, was_missing=not os.path.lexists(database)
    )
    quarantined = Path(record.folder) / database.name
    if not (quarantined.exists() and database.exists()):  # otherwise only the final record is missing
        _move_to_quarantine(database, Path(record.folder))
        failpoint("repair.moved")
        _replace(database, quarantined, backups=backups, record=record)
    record.ended_at = ids.now_ms()
    _write_record(record)
    return record


def _start_record(quarantine: Path, problem: str, *, was_missing: bool) -> RepairRecord:
    hook.make_private_dir(str(quarantine))
    folder = quarantine / f"{datetime.now():%Y%m%d-%H%M%S}-{ids.new_event_id()[-4:]}"
    hook.make_private_dir(str(folder))
    record = RepairRecord(problem=problem, started_at=ids.now_ms(), folder=str(folder), was_missing=was_missing)
    _write_record(record)
    sync_directory(quarantine)
    return record


def _write_record(record: RepairRecord) -> None:
    write_private(Path(record.folder) / REPAIR_RECORD_FILE, msgspec.json.encode(record), sync=True)
    sync_directory(Path(record.folder))


def _move_to_quarantine(database: Path, folder: Path) -> None:
    """Move the database with its WAL and -shm file.

    The database is moved last: while it is in place, a resumed repair starts from the beginning.
    """
    for side in reversed(backup.DATABASE_FILE_SUFFIXES):
        file = backup.side_file(database, side)
        if file.exists():
            file.rename(folder / file.name)
    sync_directory(folder)
    sync_directory(database.parent)


def _replace(database: Path, quarantined: Path, *, backups: Path, record: RepairRecord) -> None:
    record.pinned = next((copy.name for copy in _backups_by_preference(backups)), "")
    with (
        _open_damaged(quarantined) as damaged,
        _open_replacement(quarantined, damaged, backups, data_dir=database.parent) as (restored, name),
    ):
        record.backup = name
        db = Engine(restored, backups=restored.parent, connection_type=Connection)
        try:
            if damaged is not None and _is_same_history(damaged, restored):
                salvage = db.write_without_fk_checks(lambda conn: _salvage_rows(damaged, conn, now=ids.now_ms()))
                record.salvaged, record.lost = dict(salvage.copied), dict(salvage.lost)
            db.write_now(_record_in_database, record)
            db.write_now(tombstones.delete_tombstones, tombstones.read_tombstones(database.parent))
        finally:
            db.close()
        failpoint("repair.salvaged")
        restored.rename(database)
        sync_directory(database.parent)


def _record_in_database(conn: Connection, record: RepairRecord) -> None:
    now = ids.now_ms()
    notices.add_notice(conn, f"damage:{record.started_at}", record.describe(), now=now)
    notices.record_check(conn, "damage", ok=False, text=record.problem, now=now)
    backup.enqueue_start_renders(conn)


@contextmanager
def _open_replacement(
    quarantined: Path, damaged: Connection | None, backups: Path, *, data_dir: Path
) -> Iterator[tuple[Path, str]]:
    """Yield the path of an intact replacement in a temporary folder, and the name of its source.

    The source is the damaged database itself, if only the end of its WAL was lost; otherwise the newest good backup,
    one of another history only if there is no other; otherwise none, and the replacement is created empty.
    """
    copies, unchecked = _backups_by_preference(backups), tombstones.read_uncheckable_tombstones(data_dir)
    candidates = [(source, True) for source in ([quarantined] if _is_ours(quarantined) else []) + copies]
    for source, must_be_related in [*candidates, *((source, False) for source in copies)]:
        with ExitStack() as stack:
            try:
                restored = stack.enter_context(backup.prepare_restore(source, data_dir))
            except (ClaudeMemError, apsw.Error, OSError):
                continue
            if must_be_related and damaged is not None and not _is_same_history(damaged, restored):
                continue
            if unchecked and _lacks_tombstones(restored, unchecked):
                continue  # it may contain forgotten content that can't be recognized without the key
            yield restored, REPAIRED_FROM_ITSELF if source == quarantined else source.name
            return
    folder = data_dir / f"{backup.RESTORE_FOLDER_PREFIX}{os.getpid()}"
    hook.make_private_dir(str(folder))
    try:
        yield folder / "claude-mem.db", ""
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _lacks_tombstones(path: Path, expected: list[Tombstone]) -> bool:
    conn = open_reader(path)
    try:
        return bool(tombstones.find_missing_tombstones(conn, expected))
    finally:
        conn.close()


def _backups_by_preference(backups: Path) -> list[Path]:
    """Return the backups, newest first; databases that a manual restore replaced come last."""
    paths = backups.glob("*.db")
    return sorted(paths, key=lambda path: (path.name.startswith(backup.REPLACED_PREFIX), -modified_at(path)))


def _is_ours(path: Path) -> bool:
    try:
        return external_db.is_sqlite_file(path) and external_db.identify_database(path) == "ours"
    except (ClaudeMemError, OSError):
        return False


@contextmanager
def _open_damaged(path: Path) -> Iterator[Connection | None]:
    """Open a temporary copy of the damaged database; yield None if it can't be read.

    A copy is used because SQLite writes files beside what it reads, and because the header may have to be repaired.
    """
    if not path.is_file():
        yield None
        return
    folder = path.parent / f"{_SALVAGE_PREFIX}{time.time_ns():x}"
    hook.make_private_dir(str(folder))
    conn: Connection | None = None
    try:
        copy = folder / path.name
        for side in backup.DATABASE_FILE_SUFFIXES[:2]:
            if (file := backup.side_file(path, side)).is_file():
                shutil.copyfile(file, backup.side_file(copy, side))
        for fix_header in (False, True):
            if fix_header:
                _repair_header(copy)
            try:
                conn = _connect_to_damaged(copy)
                conn.execute("select count(*) from sqlite_schema").fetchall()
                break
            except apsw.Error:
                conn = None
        yield conn
    finally:
        if conn is not None:
            conn.close()
        shutil.rmtree(folder, ignore_errors=True)


def _repair_header(copy: Path) -> None:
    with copy.open("r+b") as file:
        head = file.read(damage.HEADER_BYTES)
        if len(head) == damage.HEADER_BYTES:
            file.seek(0)
            file.write(damage.repair_header_bytes(head))


def _connect_to_damaged(path: Path) -> Connection:
    """Open a damaged database so that a table with a damaged definition does not hide the others."""
    conn = Connection(external_db.sqlite_file_name(path), flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    conn.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1)
    conn.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    conn.pragma("cell_size_check", "on")
    return conn


def _is_same_history(damaged: Connection, restored: Path) -> bool:
    """Return whether one database is an earlier state of the other.

    After a manual restore there are two histories with different rows under the same ids, which must not be mixed.
    """
    conn = open_reader(restored)
    try:
        return all(_newest_rows_agree(damaged, conn, table, *names) for table, names in _NAME_COLUMNS.items())
    finally:
        conn.close()


def _newest_rows_agree(damaged: Connection, conn: Connection, table: str, number: str, name: str) -> bool:
    """Return whether the newest rows have the same names in the damaged database, as far as they can be read there."""
    newest = fetch_all(
        conn, f"select {number} as id, {name} as name from {table} order by {number} desc limit {_SAMPLE_ROWS}"
    )
    reader = _TableReader(damaged, _TableShape(table, (number, name), (number,), number))
    names_by_id = {row[number]: row[name] for row in reader.read(newest[-1]["id"] - 1 if newest else 0)}
    return all(names_by_id.get(row["id"], row["name"]) == row["name"] for row in newest)


# --- salvaging rows --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _SalvageResult:
    """Numbers of rows by table: copied, and lost because they could not be read or did not match their checksum."""

    copied: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)


def _salvage_rows(damaged: Connection, into: Connection, *, now: int) -> _SalvageResult:
    """Copy all readable rows and return how many were copied and lost.

    The caller owns the transaction on `into`, with foreign-key checks off; dangling rows are deleted at the end.
    """
    result = _SalvageResult()
    offsets = {
        row["id"]: row["transcript_offset"] for row in fetch_all(into, "select id, transcript_offset from sdk_sessions")
    }
    for table in _tables_to_salvage(into):
        _salvage_table(damaged, into, table, result)
    _salvage_index_of_purged_turns(damaged, into)
    _delete_dangling(into, result)
    _correct_receipts(into)
    if result.lost:
        _enqueue_recovery(into, offsets, now=now)
    return result


def _tables_to_salvage(conn: Connection) -> list[str]:
    table_rows = fetch_all(
        conn, "select name from pragma_table_list where schema = 'main' and type = 'table' order by name"
    )
    return [
        row["name"]
        for row in table_rows
        if not row["name"].startswith("sqlite_") and row["name"] not in _DERIVED_TABLES
    ]


@dataclass(frozen=True, slots=True)
class _TableShape:
    """The columns of a table that both databases have. `number` is the integer key column, or ''.

    `source` is what to select from in the damaged database: a subquery if names differ there, or '' for the table.
    """

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    number: str
    source: str = ""


def _common_shape(damaged: Connection, into: Connection, table: str) -> _TableShape | None:
    stored = former_names.stored_columns(damaged, table)
    table_info = fetch_all(into, f"select name, type, pk from pragma_table_info('{table}')")
    key = tuple(row["name"] for row in sorted(table_info, key=lambda row: row["pk"]) if row["pk"])
    columns = tuple(row["name"] for row in table_info if row["name"] in stored)
    if not key or not set(key) <= set(columns):
        return None
    numbered = len(key) == 1 and next(row["type"] for row in table_info if row["pk"]).upper() == "INTEGER"
    source = _source_sql(former_names.stored_table(damaged, table), {name: stored[name] for name in columns})
    return _TableShape(table, columns, key, key[0] if numbered else "", source)


def _source_sql(table: str, columns: dict[str, str]) -> str:
    """Return what to select from to get the columns of a table of the damaged database under their current names."""
    if all(name == stored for name, stored in columns.items()):
        return table
    return f"(select {', '.join(f'{stored} as {name}' for name, stored in columns.items())} from {table})"


def _salvage_table(damaged: Connection, into: Connection, table: str, result: _SalvageResult) -> None:
    try:
        shape = _common_shape(damaged, into, table)
    except apsw.Error:
        shape = None
    if shape is None:
        return
    after = 0
    if table in _APPEND_ONLY_TABLES:
        after = int(fetch_value(into, f"select coalesce(max({shape.number}), 0) from {table}"))
    sums_by_row = _read_checksums(damaged, table)
    upsert, reader = _upsert_sql(shape), _TableReader(damaged, shape)
    existing_ids: set[int] = set()
    for row in reader.read(after):
        number = row[shape.number] if shape.number else None
        if not _matches_checksum(shape, row, sums_by_row):
            result.lost[table] += 1
            continue
        if isinstance(number, int):
            existing_ids.add(number)
        try:
            into.execute(upsert, tuple(row[name] for name in shape.columns))
            result.copied[table] += into.changes()
        except apsw.Error:  # it conflicts with another row, or has invalid values
            result.lost[table] += 1
    if reader.gaps:
        result.lost[table] += reader.gaps
    is_complete = table not in result.lost and table not in _APPEND_ONLY_TABLES and _is_intact(damaged, table)
    if shape.number and is_complete:
        _delete_missing(into, shape, existing_ids)


def _upsert_sql(shape: _TableShape) -> str:
    """Return an upsert statement. `insert or replace` would also delete the rows that refer to the replaced one."""
    others = [name for name in shape.columns if name not in shape.key]
    placeholders = ", ".join("?" * len(shape.columns))
    insert = f"insert into {shape.table} ({', '.join(shape.columns)}) values ({placeholders})"
    if not others:
        return f"{insert} on conflict do nothing"
    columns, new_values = ", ".join(others), ", ".join(f"excluded.{name}" for name in others)
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    return (
        f"{insert} on conflict ({', '.join(shape.key)}) do update set {changes} where ({columns}) is not ({new_values})"
    )


def _read_checksums(damaged: Connection, table: str) -> dict[int, int]:
    """Return the checksums of a table's rows by row id, as far as they can be read."""
    spec, sums_by_row = checksums.CHECKSUMMED_TABLES_BY_NAME.get(table), {}
    if spec is not None:
        try:
            stored = former_names.stored_table(damaged, "checksums")
            shape = _TableShape("checksums", ("id", "sum"), ("id",), "id", stored)
            for row in _TableReader(damaged, shape).read(0):
                if isinstance(row["id"], int) and row["id"] % checksums.CHECKSUM_KINDS == spec.number:
                    sums_by_row[row["id"] // checksums.CHECKSUM_KINDS] = row["sum"]
        except apsw.Error:
            pass  # a version without checksums
    return sums_by_row


def _matches_checksum(shape: _TableShape, row: Row, sums_by_row: dict[int, int]) -> bool:
    """Return whether the row matches its checksum. A row without one is accepted."""
    spec = checksums.CHECKSUMMED_TABLES_BY_NAME.get(shape.table)
    if spec is None or row[spec.key] not in sums_by_row or not set(spec.columns) <= row.keys():
        return True
    return checksums.matches_checksum(spec, row, sums_by_row[row[spec.key]])


def _is_intact(damaged: Connection, table: str) -> bool:
    try:
        stored = former_names.stored_table(damaged, table)
        return [message for (message,) in _tuples(damaged, f"pragma integrity_check('{stored}')")] == ["ok"]
    except apsw.Error:
        return False


def _delete_missing(into: Connection, shape: _TableShape, existing_ids: set[int]) -> None:
    """Delete rows that were removed since the backup, by the user or because they were processed."""
    row_ids = [row["id"] for row in fetch_all(into, f"select {shape.number} as id from {shape.table}")]
    missing = [(row_id,) for row_id in row_ids if row_id not in existing_ids]
    into.executemany(f"delete from {shape.table} where {shape.number} = ?", missing)


class _TableReader:
    """Reads every reachable row of a table.

    Around a damaged page the table is read from both ends, and the rows in between are tried one id at a time.
    """

    def __init__(self, conn: Connection, shape: _TableShape) -> None:
        self.conn = conn
        self.shape = shape
        self.source = shape.source or shape.table
        self.gaps = 0  # rows, or ranges of rows, that could not be reached

    def read(self, after: int) -> Iterator[Row]:
        """Yield the rows with ids above `after`; of a table without an integer key, all rows."""
        if not self.shape.number:
            yield from self._unnumbered()
            return
        last = after
        for row in self._numbered(f"{self.shape.number} > ? order by {self.shape.number}", after):
            last = row[self.shape.number]
            yield row
        if self.gaps:
            yield from self._beyond(last)

    def _beyond(self, last: int) -> Iterator[dict[str, object]]:
        self.gaps = 0
        first = 0
        for row in self._numbered(f"{self.shape.number} > ? order by {self.shape.number} desc", last):
            first = row[self.shape.number]
            yield row
        for number in range(last + 1, min(first or last + _MAX_PROBES, last + _MAX_PROBES)):
            yield from self._numbered(f"{self.shape.number} = ?", number)
        if not first and self.gaps:
            self.gaps = 1  # their number is unknown

    def _numbered(self, where: str, number: int) -> Iterator[Row]:
        return self._try(f"select {', '.join(self.shape.columns)} from {self.source} where {where}", (number,))

    def _unnumbered(self) -> Iterator[Row]:
        key, columns = ", ".join(self.shape.key), ", ".join(self.shape.columns)
        yield from self._try(f"select {columns} from {self.source} order by {key}")
        if self.gaps:
            reverse = ", ".join(f"{name} desc" for name in self.shape.key)
            yield from self._try(f"select {columns} from {self.source} order by {reverse}")

    def _try(self, sql: str, values: tuple[object, ...] = ()) -> Iterator[dict[str, object]]:
        """Yield rows until an error occurs, which counts as a gap."""
        try:
            for fields in _tuples(self.conn, sql, values):
                yield dict(zip(self.shape.columns, fields, strict=True))
        except (apsw.Error, UnicodeDecodeError):
            self.gaps += 1


def _tuples(conn: Connection, sql: str, values: tuple[object, ...] = ()) -> Iterable[tuple[object, ...]]:
    cursor = conn.cursor()
    cursor.row_trace = None
    return cursor.execute(sql, values)


# --- completing the replacement --------------------------------------------------------------------------------------


def _salvage_index_of_purged_turns(damaged: Connection, into: Connection) -> None:
    """Copy the index entries of turns whose events were purged, because these cannot be rebuilt."""
    purged_turns = {row["id"] for row in fetch_all(into, "select id from turns where events_purged")}
    indexed_turns = {row["row_id"] for row in fetch_all(into, "select row_id from documents where kind = 'turn'")}
    document_ids: set[int] = set()
    for table, key in (("documents", "id"), ("passages", "document_id"), ("signals", "document_id")):
        try:
            shape = _common_shape(damaged, into, table)
        except apsw.Error:
            continue
        for row in _TableReader(damaged, shape).read(0) if shape else ():
            if table == "documents" and row["kind"] == "turn" and row["row_id"] in purged_turns - indexed_turns:
                document_ids.add(row["id"])
            if row[key] in document_ids and shape is not None:
                placeholders = ", ".join("?" * len(shape.columns))
                into.execute(
                    f"insert or ignore into {table} ({', '.join(shape.columns)}) values ({placeholders})",
                    tuple(row[name] for name in shape.columns),
                )


_DANGLING_WITHOUT_ROWID = """
    select distinct dangling."table" as child, key."from" as "column", key."to" as "key", key."table" as parent
      from pragma_foreign_key_check dangling join pragma_foreign_key_list(dangling."table") key on key.id = dangling.fkid
     where dangling.rowid is null
"""


def _delete_dangling(into: Connection, result: _SalvageResult) -> None:
    """Delete rows that refer to missing rows."""
    for row in fetch_all(into, _DANGLING_WITHOUT_ROWID):  # such tables hold what is derived from the missing row
        into.execute(
            f"delete from {row['child']} where {row['column']} not in (select {row['key']} from {row['parent']})"
        )
    while dangling := fetch_all(into, 'select distinct "table", rowid as id from pragma_foreign_key_check where rowid'):
        for row in dangling:
            into.execute(f"delete from {row['table']} where rowid = ?", (row["id"],))
            # If nothing was lost, the referenced row was deleted on purpose.
            if result.lost and row["table"] not in _DERIVED_TABLES:
                result.lost[row["table"]] += 1


def _correct_receipts(into: Connection) -> None:
    """Correct the event accounting.

    Lost events count as filtered by the rule `damaged`, and may be read again from their transcripts.
    """
    into.execute(
        "insert or ignore into receipts select event_id, 'stored', '', at from events"
        " where event_id not in (select event_id from receipts)"
    )
    into.execute("update receipts set outcome = 'stored', rule = '' where event_id in (select event_id from events)")
    into.execute(
        """
        insert into purged_counts select 'filtered', 'damaged', count(*) from receipts
         where outcome = 'stored' and event_id not in (select event_id from events)
        on conflict do update set n = n + excluded.n
        """
    )
    into.execute("delete from receipts where outcome = 'stored' and event_id not in (select event_id from events)")
    into.execute("delete from purged_counts where not n")


def _enqueue_recovery(into: Connection, offsets: dict[int, int], *, now: int) -> None:
    """Enqueue jobs that read transcripts again from the backup's position, and that digest turns again."""
    for row in fetch_all(into, "select id, transcript_offset, transcript_path from sdk_sessions"):
        before = offsets.get(row["id"], 0)
        if row["transcript_path"] and row["transcript_offset"] != before:
            into.execute("update sdk_sessions set transcript_offset = ? where id = ?", (before, row["id"]))
            jobs.enqueue_job(into, "reconcile", f"{row['id']}.{now}.agents", now=now)
    for row in fetch_all(into, _UNDIGESTED_TURNS):
        jobs.enqueue_job(into, "compress", f"{row['id']}.{row['seq']}", now=now)
    for row in fetch_all(into, _TURNS_WITHOUT_SUMMARY):
        into.execute("update turns set digested_at = null where id = ?", (row["id"],))
        jobs.enqueue_job(into, DIGEST_BACKFILLED_JOB, f"{row['id']}.{row['seq']}", now=now)
