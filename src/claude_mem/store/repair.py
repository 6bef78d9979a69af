"""Replace a damaged database by the newest good backup plus all rows that can be salvaged from the damaged one.

A database that is missing although other files show that there was one counts as damaged too. Nothing is deleted: the
damaged database is kept in `quarantine/<time>/` with its WAL. A repair that was interrupted is resumed at the next
start.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

import apsw
import msgspec

from claude_mem import hook, ids
from claude_mem.errors import MemError
from claude_mem.failpoints import failpoint
from claude_mem.spool import changed_at, sync_folder, write_private
from claude_mem.store import backup, checks, damage, foreign, notices, stones
from claude_mem.store import salvage as salvage_
from claude_mem.store.database import Connection, Database, open_reader

RECORD_FILE = "about.json"
ITSELF = "itself"  # only the end of the WAL was lost
_SALVAGE_PREFIX = ".salvaging-"


class Repair(msgspec.Struct):
    """The record of a repair, stored beside the damaged files. `ended_at` is 0 until the repair is complete."""

    problem: str
    begun_at: int
    folder: str = ""
    ended_at: int = 0
    backup: str = ""  # the replacement: the name of a backup, `itself`, or '' for an empty database
    taken: dict[str, int] = {}
    lost: dict[str, int] = {}
    gone: bool = False  # the database was missing
    pinned: str = ""  # the newest backup from before, which the rotation keeps as long as this record exists


def unfinished(quarantine: Path) -> Repair | None:
    return next((each for each in listing(quarantine) if not each.ended_at), None)


def listing(quarantine: Path) -> list[Repair]:
    """Return the records of all repairs whose quarantine folder still exists, newest first."""
    repairs = []
    for path in sorted(quarantine.glob(f"*/{RECORD_FILE}"), reverse=True):
        try:
            record = msgspec.json.decode(path.read_bytes(), type=Repair)
        except OSError:
            continue
        except msgspec.MsgspecError:  # damaged by a power cut; the quarantined files are not affected
            record = Repair(problem="the record of the repair was lost", begun_at=int(changed_at(path) * 1000))
        record.folder = str(path.parent)
        repairs.append(record)
    return repairs


def pinned(quarantine: Path) -> set[str]:
    """Return the names of backups from before a repair. They stay pinned until the user deletes its folder."""
    return {name for each in listing(quarantine) for name in (each.backup, each.pinned) if name not in ("", ITSELF)}


def said(repair: Repair) -> str:
    """Describe a repair for the user."""
    if repair.gone:
        return _describe_loss(repair)
    when = datetime.fromtimestamp(repair.begun_at / 1000)
    source = f"the backup {repair.backup}" if repair.backup else "an empty one, because there was no good backup"
    if repair.backup == ITSELF:
        source = "its own intact content"
    saved, lost = sum(repair.taken.values()), sum(repair.lost.values())
    details = f", plus {saved:,} rows saved from the damaged one" if saved else ""
    details += f"; {lost:,} rows were lost" if lost else ""
    hint = "; run `claude-mem backfill` to read your transcripts again" if lost or not repair.backup else ""
    return (
        f"claude-mem's database was damaged on {when:%d %b at %H:%M} ({repair.problem}). It was replaced by"
        f" {source}{details}{hint}. The damaged one is kept in {repair.folder}."
    )


def _describe_loss(repair: Repair) -> str:
    when = datetime.fromtimestamp(repair.begun_at / 1000)
    if repair.backup:
        state = f"It was replaced by the backup {repair.backup}, which lacks everything added after it was made."
    else:
        state = "All memory is LOST, because no backup can be restored; an empty database was created."
    return (
        f"claude-mem's database was missing on {when:%d %b at %H:%M} ({repair.problem}). {state} Run `claude-mem"
        f" backfill` to read your transcripts again. Details are in {repair.folder}."
    )


def mend(database: Path, *, backups: Path, quarantine: Path, problem: str) -> Repair:
    """Repair the database, or resume an interrupted repair.

    The caller must hold the worker lock, and the database must be closed. Hooks need only the spool, so capture
    continues.
    """
    record = unfinished(quarantine) or _start_record(quarantine, problem, was_missing=not os.path.lexists(database))
    quarantined = Path(record.folder) / database.name
    if not (quarantined.exists() and database.exists()):  # otherwise only the final record is missing
        _move_to_quarantine(database, Path(record.folder))
        failpoint("repair.moved")
        _replace(database, quarantined, backups=backups, record=record)
    record.ended_at = ids.now()
    _write_record(record)
    return record


def _start_record(quarantine: Path, problem: str, *, was_missing: bool) -> Repair:
    hook.make_private(str(quarantine))
    folder = quarantine / f"{datetime.now():%Y%m%d-%H%M%S}-{ids.new()[-4:]}"
    hook.make_private(str(folder))
    record = Repair(problem=problem, begun_at=ids.now(), folder=str(folder), gone=was_missing)
    _write_record(record)
    sync_folder(quarantine)
    return record


def _write_record(record: Repair) -> None:
    write_private(Path(record.folder) / RECORD_FILE, msgspec.json.encode(record), sync=True)
    sync_folder(Path(record.folder))


def _move_to_quarantine(database: Path, folder: Path) -> None:
    """Move the database with its WAL and -shm file. The database goes last: while it is in place, a resumed repair
    starts from the beginning."""
    for side in reversed(backup.SIDES):
        file = database.with_name(database.name + side)
        if file.exists():
            file.rename(folder / file.name)
    sync_folder(folder)
    sync_folder(database.parent)


def _replace(database: Path, quarantined: Path, *, backups: Path, record: Repair) -> None:
    record.pinned = next((copy.name for copy in _backups_by_preference(backups)), "")
    with (
        _open_damaged(quarantined) as damaged,
        _open_replacement(quarantined, damaged, backups, data_dir=database.parent) as (restored, name),
    ):
        record.backup = name
        db = Database(restored, backups=restored.parent)
        try:
            if damaged is not None and salvage_.is_kin(damaged, restored):
                salvaged = db.write_freely(lambda conn: salvage_.salvage(damaged, conn, now=ids.now()))
                record.taken, record.lost = dict(salvaged.copied), dict(salvaged.lost)
            db.write_now(_record_in_database, record)
            db.write_now(stones.unlearn, stones.kept(database.parent))
        finally:
            db.close()
        failpoint("repair.salvaged")
        restored.rename(database)
        sync_folder(database.parent)


def _record_in_database(conn: Connection, record: Repair) -> None:
    now = ids.now()
    notices.put(conn, f"damage:{record.begun_at}", said(record), now=now)
    checks.note(conn, "damage", ok=False, text=record.problem, now=now)
    backup.settle(conn)


@contextmanager
def _open_replacement(
    quarantined: Path, damaged: Connection | None, backups: Path, *, data_dir: Path
) -> Iterator[tuple[Path, str]]:
    """Yield the path of an intact replacement in a temporary folder, and the name of its source.

    The source is the damaged database itself, if only the end of its WAL was lost; otherwise the newest good backup,
    one of another history only if there is no other; otherwise none, and the replacement is created empty.
    """
    copies, unchecked = _backups_by_preference(backups), stones.unchecked(data_dir)
    candidates = [(source, True) for source in ([quarantined] if _is_ours(quarantined) else []) + copies]
    for source, must_be_related in [*candidates, *((source, False) for source in copies)]:
        with ExitStack() as stack:
            try:
                restored = stack.enter_context(backup.prepared(source, data_dir))
            except (MemError, apsw.Error, OSError):
                continue
            if must_be_related and damaged is not None and not salvage_.is_kin(damaged, restored):
                continue
            if unchecked and _lacks_tombstones(restored, unchecked):
                continue  # it may contain forgotten content that can't be recognized without the key
            yield restored, ITSELF if source == quarantined else source.name
            return
    folder = data_dir / f"{backup.RESTORING}{os.getpid()}"
    hook.make_private(str(folder))
    try:
        yield folder / "claude-mem.db", ""
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _lacks_tombstones(path: Path, expected: list[stones.Stone]) -> bool:
    conn = open_reader(path)
    try:
        return bool(stones.missing(conn, expected))
    finally:
        conn.close()


def _backups_by_preference(backups: Path) -> list[Path]:
    """Return the backups, newest first; databases that a manual restore replaced come last."""
    paths = backups.glob("*.db")
    return sorted(paths, key=lambda path: (path.name.startswith(backup.REPLACED), -changed_at(path)))


def _is_ours(path: Path) -> bool:
    try:
        return foreign.is_database(path) and foreign.whose(path) == "ours"
    except (MemError, OSError):
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
    hook.make_private(str(folder))
    conn: Connection | None = None
    try:
        copy = folder / path.name
        for side in backup.SIDES[:2]:
            if (file := path.with_name(path.name + side)).is_file():
                shutil.copyfile(file, copy.with_name(copy.name + side))
        for fix_header in (False, True):
            if fix_header:
                _repair_header(copy)
            try:
                conn = salvage_.reading(copy)
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
        head = file.read(damage.HEADER)
        if len(head) == damage.HEADER:
            file.seek(0)
            file.write(damage.mend_header(head))
