"""A damaged database is set aside, and the newest good backup takes its place with all that could be saved since. One
that is gone while there are traces of it is damaged, too.

Nothing is ever deleted: the damaged one lies in `quarantine/<time>/` with its log. What was begun and not ended,
because someone was killed at it, is gone on with at the next start.
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

ABOUT = "about.json"
ITSELF = "itself"  # nothing but the end of its log was lost
SALVAGING = ".salvaging-"


class Repair(msgspec.Struct):
    """What happened, as it is written down beside the damaged files. `ended_at` 0: it is not done."""

    problem: str
    begun_at: int
    folder: str = ""
    ended_at: int = 0
    backup: str = ""  # what was put in place: a backup, `itself`, or '': an empty one
    taken: dict[str, int] = {}
    lost: dict[str, int] = {}
    gone: bool = False  # there was no database to set aside
    pinned: str = ""  # the newest backup from before, which the rotation keeps as long as this note is there


def unfinished(quarantine: Path) -> Repair | None:
    return next((each for each in listing(quarantine) if not each.ended_at), None)


def listing(quarantine: Path) -> list[Repair]:
    """What was ever set aside and is still there, newest first."""
    found = []
    for path in sorted(quarantine.glob(f"*/{ABOUT}"), reverse=True):
        try:
            about = msgspec.json.decode(path.read_bytes(), type=Repair)
        except OSError:
            continue
        except msgspec.MsgspecError:  # a power cut took the note, not what it is about
            about = Repair(problem="the note of it was lost", begun_at=int(changed_at(path) * 1000))
        about.folder = str(path.parent)
        found.append(about)
    return found


def pinned(quarantine: Path) -> set[str]:
    """Names of the backups that hold what was remembered before a repair; none once a person has deleted its folder."""
    return {name for each in listing(quarantine) for name in (each.backup, each.pinned) if name not in ("", ITSELF)}


def said(repair: Repair) -> str:
    """For a person, once."""
    if repair.gone:
        return _said_of_a_loss(repair)
    when = datetime.fromtimestamp(repair.begun_at / 1000)
    source = f"the backup {repair.backup}" if repair.backup else "an empty one, since there was no good backup"
    if repair.backup == ITSELF:
        source = "what was left of it"
    saved, lost = sum(repair.taken.values()), sum(repair.lost.values())
    back = f", with {saved:,} rows that could be saved" if saved else ""
    back += f"; {lost:,} could not" if lost else ""
    hint = "; `claude-mem backfill` reads your transcripts again" if lost or not repair.backup else ""
    return (
        f"claude-mem's database was damaged on {when:%d %b at %H:%M} ({repair.problem}). In its place is"
        f" {source}{back}{hint}. The damaged one is kept in {repair.folder}."
    )


def _said_of_a_loss(repair: Repair) -> str:
    when = datetime.fromtimestamp(repair.begun_at / 1000)
    if repair.backup:
        state = f"In its place is the backup {repair.backup}; what was remembered after it was made is not in it."
    else:
        state = "All that was remembered is LOST, since no backup can be restored; an empty memory was begun."
    return (
        f"claude-mem's database was missing on {when:%d %b at %H:%M} ({repair.problem}). {state} `claude-mem backfill`"
        f" reads your transcripts again. More is noted in {repair.folder}."
    )


def mend(database: Path, *, backups: Path, quarantine: Path, problem: str) -> Repair:
    """The caller holds the lock, and the database is closed. Capture goes on: hooks only need the spool."""
    about = unfinished(quarantine) or _begin(quarantine, problem, gone=not os.path.lexists(database))
    kept = Path(about.folder) / database.name
    if not (kept.exists() and database.exists()):  # else it was all done but for the last note
        _move(database, Path(about.folder))
        failpoint("repair.moved")
        _replace(database, kept, backups=backups, about=about)
    about.ended_at = ids.now()
    _write(about)
    return about


def _begin(quarantine: Path, problem: str, *, gone: bool) -> Repair:
    hook.make_private(str(quarantine))
    folder = quarantine / f"{datetime.now():%Y%m%d-%H%M%S}-{ids.new()[-4:]}"
    hook.make_private(str(folder))
    about = Repair(problem=problem, begun_at=ids.now(), folder=str(folder), gone=gone)
    _write(about)
    sync_folder(quarantine)
    return about


def _write(about: Repair) -> None:
    write_private(Path(about.folder) / ABOUT, msgspec.json.encode(about), sync=True)
    sync_folder(Path(about.folder))


def _move(database: Path, folder: Path) -> None:
    """All three together. The database last: as long as it is in its place, everything still is to be done."""
    for side in reversed(backup.SIDES):
        file = database.with_name(database.name + side)
        if file.exists():
            file.rename(folder / file.name)
    sync_folder(folder)
    sync_folder(database.parent)


def _replace(database: Path, kept: Path, *, backups: Path, about: Repair) -> None:
    about.pinned = next((copy.name for copy in _copies(backups)), "")
    with _readable(kept) as damaged, _good(kept, damaged, backups, near=database.parent) as (fresh, name):
        about.backup = name
        db = Database(fresh, backups=fresh.parent)
        try:
            if damaged is not None and salvage_.is_kin(damaged, fresh):
                found = db.write_freely(lambda conn: salvage_.salvage(damaged, conn, now=ids.now()))
                about.taken, about.lost = dict(found.taken), dict(found.lost)
            db.write_now(_note, about)
            db.write_now(stones.unlearn, stones.kept(database.parent))
        finally:
            db.close()
        failpoint("repair.salvaged")
        fresh.rename(database)
        sync_folder(database.parent)


def _note(conn: Connection, about: Repair) -> None:
    now = ids.now()
    notices.put(conn, f"damage:{about.begun_at}", said(about), now=now)
    checks.note(conn, "damage", ok=False, text=about.problem, now=now)
    backup.settle(conn)


@contextmanager
def _good(kept: Path, damaged: Connection | None, backups: Path, *, near: Path) -> Iterator[tuple[Path, str]]:
    """A sound database to go on with, apart from all others, and the name of what it was made of: the damaged one, if
    all that it lost was the end of its log; the newest good backup, one of another history only if there is no other;
    or none, and it is empty."""
    copies, unsure = _copies(backups), stones.unchecked(near)
    tries = [(source, True) for source in ([kept] if _is_ours(kept) else []) + copies]
    for source, only_kin in [*tries, *((source, False) for source in copies)]:
        with ExitStack() as stack:
            try:
                fresh = stack.enter_context(backup.prepared(source, near))
            except (MemError, apsw.Error, OSError):
                continue
            if only_kin and damaged is not None and not salvage_.is_kin(damaged, fresh):
                continue
            if unsure and _lacks(fresh, unsure):
                continue  # it has what was forgotten since, and nobody could tell
            yield fresh, ITSELF if source == kept else source.name
            return
    folder = near / f"{backup.RESTORING}{os.getpid()}"
    hook.make_private(str(folder))
    try:
        yield folder / "claude-mem.db", ""
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _lacks(path: Path, known: list[stones.Stone]) -> bool:
    conn = open_reader(path)
    try:
        return bool(stones.missing(conn, known))
    finally:
        conn.close()


def _copies(backups: Path) -> list[Path]:
    """The newest first, and last of all what a person has put another in place of."""
    found = backups.glob("*.db")
    return sorted(found, key=lambda path: (path.name.startswith(backup.REPLACED), -changed_at(path)))


def _is_ours(kept: Path) -> bool:
    try:
        return foreign.is_database(kept) and foreign.whose(kept) == "ours"
    except (MemError, OSError):
        return False


@contextmanager
def _readable(kept: Path) -> Iterator[Connection | None]:
    """A copy: SQLite writes notes beside what it reads, and a header may have to be mended first."""
    if not kept.is_file():
        yield None
        return
    folder = kept.parent / f"{SALVAGING}{time.time_ns():x}"
    hook.make_private(str(folder))
    conn: Connection | None = None
    try:
        copy = folder / kept.name
        for side in backup.SIDES[:2]:
            if (file := kept.with_name(kept.name + side)).is_file():
                shutil.copyfile(file, copy.with_name(copy.name + side))
        for mend_header in (False, True):
            if mend_header:
                _mend_header(copy)
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


def _mend_header(copy: Path) -> None:
    with copy.open("r+b") as file:
        head = file.read(damage.HEADER)
        if len(head) == damage.HEADER:
            file.seek(0)
            file.write(damage.mend_header(head))
