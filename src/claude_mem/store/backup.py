"""Copies of the whole database: made while it is in use, looked at closely before they are trusted, put back.

A copy is made by SQLite from one state of the database, writing goes on meanwhile. What is put back is first opened as
a worker opens it, and only then takes the place of the present one, which is kept.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw

from claude_mem import hook, ids, portable
from claude_mem.errors import CannotDo, MemError, Misuse, NotFound, TooNew
from claude_mem.failpoints import failpoint
from claude_mem.spool import changed_at, sync_folder
from claude_mem.store import damage, foreign, jobs, migrate, observations, seals, search, stones, transfer
from claude_mem.store import portable as records
from claude_mem.store.database import Connection, Database, open_reader, open_writer, rows, value

PREFIX, DAILY, BEFORE = OURS = damage.BACKUPS
REPLACED = f"{BEFORE}restore-"  # what a restore by hand took the place of: a history that was given up
DAYS, WEEKS, MIGRATIONS = 7, 4, 3  # so many of each are kept
RESTORING = ".restoring-"
SIDES = ("", "-wal", "-shm")  # a database is up to three files
COUNTED = (
    "projects", "sdk_sessions", "turns", "user_prompts", "events", "observations", "session_summaries", "ledger",
)  # fmt: skip
PAGE = 500
STEPS = 20_000  # of SQLite's own, after which it asks whether to go on

Halted = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy, and what there was in the database when it was made."""

    path: str
    size: int
    counts: dict[str, int]
    digest: str = ""  # of everything that is remembered


@dataclass(frozen=True, slots=True)
class Checked:
    """A copy that is sound: what is in it."""

    path: str
    size: int
    version: int
    counts: dict[str, int] = field(default_factory=dict)
    strange: list[str] = field(default_factory=list)  # what is not ours in it, and is never put back


# --- making ----------------------------------------------------------------------------------------------------------


def make(database: Path, folder: Path, *, digest: bool = False, prefix: str = PREFIX, now: int = 0) -> Copy:
    """A copy under a name that tells its time. Counted in the same state of the database that is copied."""
    made = datetime.fromtimestamp((now or ids.now()) / 1000)
    path = folder / f"{prefix}{made:%Y%m%d-%H%M%S}-{ids.new()[-4:]}.db"
    conn = open_reader(database)
    try:
        conn.execute("begin")
        counts = count(conn)
        said = remembered(conn) if digest else ""
        migrate.backup(conn, path, gently=True)
    except apsw.Error as error:
        raise CannotDo(
            f"the database can't be copied: {error}", hint="`claude-mem doctor` looks for the cause"
        ) from error
    finally:
        conn.close()
    sync_folder(folder)
    failpoint("backup.made")
    return Copy(str(path), path.stat().st_size, counts, said)


def sweep(folder: Path) -> None:
    """What one that was killed has left unfinished. Only for the holder of the lock: no one else makes copies there."""
    for left in (path for prefix in OURS for path in folder.glob(f"{prefix}*{migrate.PART}*")):
        left.unlink(missing_ok=True)


def count(conn: Connection) -> dict[str, int]:
    return {table: int(value(conn, f"select count(*) from {table}")) for table in COUNTED if _has(conn, table)}


def _has(conn: Connection, table: str) -> bool:
    return bool(value(conn, "select 1 from sqlite_schema where type = 'table' and name = ?", (table,)))


def remembered(conn: Connection) -> str:
    """One number for everything that is remembered: equal only if all of it is."""
    digest, whole = hashlib.blake2b(digest_size=16), records.scope(conn)
    for kind in portable.KINDS:
        after = 0
        while page := records.page(conn, kind, whole, after=after, limit=PAGE):
            digest.update(b"".join(portable.line(record) for _, record in page))
            after = page[-1][0]
    return digest.hexdigest()


# --- checking --------------------------------------------------------------------------------------------------------


def never() -> bool:
    return False


def check(path: Path, *, halted: Halted = never) -> Checked:
    """Open it and look at every page, every reference and every row. `CannotDo` says what is wrong, or that someone
    who is in a hurry has halted it."""
    if not path.is_file():
        raise NotFound(f"there is no file {path}", hint="`claude-mem backup --list` shows what there is")
    if not foreign.is_database(path):
        raise CannotDo(f"{path} is no database", hint="`claude-mem backup --list` shows what there is")
    with foreign.reading(path) as conn:
        conn.set_progress_handler(halted, STEPS)
        _check_whose(conn, path)
        _check_sound(conn, path)
        version = migrate.version(conn)
        return Checked(str(path), path.stat().st_size, version, count(conn), transfer.strange(conn, version))


def _check_whose(conn: Connection, path: Path) -> None:
    found = foreign.whose_tables(conn)
    if found == "older":
        raise Misuse(f"{path} is an older claude-mem's database", hint=f"`claude-mem import {path}` brings it over")
    if found != "ours":
        raise Misuse(f"{path} is not one of our databases", hint="`claude-mem backup --list` shows what there is")
    newest = migrate.scripts()[-1][0]
    if migrate.version(conn) > newest:
        raise TooNew(
            f"{path} is of version {migrate.version(conn)}, this program knows {newest}", hint="install the newer one"
        )


def _check_sound(conn: Connection, path: Path) -> None:
    _check_pages(conn, path)
    problems = [f"{row['table']} {row['rowid']} names what is not there" for row in _dangling(conn)]
    problems += [f"observation {row_id} is not what it was" for row_id in _altered(conn)]
    problems += broken_seals(conn) if _has(conn, "seals") else []
    if problems:
        raise CannotDo(f"{path} is damaged: {'; '.join(problems[:3])}", hint="take another backup")


def _check_pages(conn: Connection, path: Path) -> None:
    """SQLite's own check of all pages and indexes. It evaluates what tables and indexes define, so it is left out for
    definitions that are not ours; then it is the copy that is checked."""
    if any(name.startswith(("table", "index")) for name in transfer.strange(conn, migrate.version(conn))):
        return
    problems = [str(next(iter(row.values()))) for row in rows(conn, "pragma integrity_check(5)")]
    if problems != ["ok"]:
        raise CannotDo(f"{path} is damaged: {'; '.join(problems[:3])}", hint="take another backup")


def _dangling(conn: Connection) -> list[dict[str, Any]]:
    return rows(conn, "pragma foreign_key_check")


def _altered(conn: Connection) -> Iterator[int]:
    """SQLite notices few flipped bits; the fingerprints notice those in what is remembered."""
    columns = "id, hash, type, title, subtitle, narrative, facts, concepts"
    for row in conn.execute(f"select {columns} from observations where not forgotten"):
        if observations.fingerprint(row) != row["hash"]:
            yield row["id"]


def broken_seals(conn: Connection) -> list[str]:
    found, after = seals.broken(conn, after=0, limit=PAGE)
    while after:
        more, after = seals.broken(conn, after=after, limit=PAGE)
        found += more
    return found


# --- listing ---------------------------------------------------------------------------------------------------------


def listing(folder: Path) -> list[dict[str, Any]]:
    """Newest first. What an older version left is there too."""
    found = [path for path in folder.glob("*.db") if path.name.startswith(OURS) and path.is_file()]
    about = [
        {"name": path.name, "made_at": int(changed_at(path) * 1000), "size": path.stat().st_size, **_version(path)}
        for path in found
    ]
    return sorted(about, key=lambda row: (-row["made_at"], row["name"]))


def _version(path: Path) -> dict[str, Any]:
    try:
        with foreign.reading(path) as conn:
            seen = value(conn, "select count(*) from observations where not forgotten")
            return {"version": migrate.version(conn), "observations": int(seen)}
    except CannotDo as problem:
        return {"version": None, "observations": None, "problem": str(problem)}


# --- changing --------------------------------------------------------------------------------------------------------


def rewrite(path: Path, change: Callable[[Connection], Any], *, pack: bool = False) -> None:
    """Change what is in a copy: all of it, or nothing. What was removed is nowhere in the file afterwards; with `pack`
    neither is what was removed before, by whoever did not overwrite it.

    The version of its tables stays what it is, and so does its time: it is a copy of that day.
    """
    seen = path.stat()
    temp = path.with_name(f"{path.name}.{ids.new()}{migrate.PART}")
    try:
        with foreign.reading(path) as conn:
            migrate.backup(conn, temp)
        _change(temp, change, pack=pack)
        os.utime(temp, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        for side in SIDES[1:]:  # its log is in the new one already, and would be applied to it again
            _side(path, side).unlink(missing_ok=True)
        temp.rename(path)
    except apsw.Error as error:
        raise CannotDo(f"{path} can't be rewritten: {error}", hint="delete it if it is no longer wanted") from error
    finally:
        for left in path.parent.glob(f"{temp.name}*"):
            left.unlink(missing_ok=True)
    sync_folder(path.parent)


def _change(path: Path, change: Callable[[Connection], Any], *, pack: bool) -> None:
    conn = open_writer(path)
    try:
        conn.pragma("secure_delete", "on")  # it is no setting of the file
        with conn:
            change(conn)
        if pack:
            conn.execute("vacuum")
    finally:
        conn.close()


# --- proving, and letting go -----------------------------------------------------------------------------------------


def drill(made: Copy, near: Path, *, halted: Halted = never) -> str:
    """Put it back somewhere else and compare: '' if everything that was counted is there."""
    try:
        with prepared(Path(made.path), near, halted=halted) as fresh:
            back = check(fresh, halted=halted).counts
    except (MemError, apsw.Error, OSError) as problem:
        return str(problem) or type(problem).__name__
    wrong = [name for name, n in made.counts.items() if back.get(name) != n]
    return f"the numbers of {', '.join(wrong)} differ" if wrong else ""


def unproven(folder: Path, *, drilled: Collection[str]) -> list[Path]:
    """Copies that were never put back for a try, or have changed since; the oldest first. What was kept before a
    restore may be damaged, and for that reason: it is no backup."""
    made = [*_migrations(folder), *folder.glob(f"{PREFIX}*.db"), *folder.glob(f"{DAILY}*.db")]
    return sorted((path for path in made if path.name not in drilled), key=lambda path: path.stat().st_mtime)


def prove(path: Path, near: Path, *, halted: Halted = never) -> str:
    """The drill of one that was not made just now: what it has itself is what must come back."""
    try:
        with foreign.reading(path) as conn:
            counts = count(conn)
    except (MemError, apsw.Error, OSError) as problem:
        return str(problem) or type(problem).__name__
    return drill(Copy(str(path), path.stat().st_size, counts), near, halted=halted)


def superfluous(folder: Path, *, good: Collection[str], pinned: Collection[str] = ()) -> list[Path]:
    """What the rotation lets go: of the daily ones all but the newest of each of seven days and of four weeks, of those
    made before migrations all but three. Never one that a person made, that is pinned, or that is the only good one."""
    daily = sorted(folder.glob(f"{DAILY}*.db"), reverse=True)  # their names tell their time
    keep = {*_newest_of(daily, "%Y-%m-%d", DAYS), *_newest_of(daily, "%G-%V", WEEKS)}
    keep |= set([path for path in daily if path.name in good][:1] or daily[:1])
    before = sorted(_migrations(folder), key=lambda path: -changed_at(path))
    extra = [path for path in daily if path not in keep] + before[MIGRATIONS:]
    return [path for path in extra if path.name not in pinned]


def _newest_of(daily: list[Path], period: str, most: int) -> list[Path]:
    newest: dict[str, Path] = {}
    for path in daily:
        try:
            made = datetime.strptime(path.name.removeprefix(DAILY)[:15], "%Y%m%d-%H%M%S")
        except ValueError:
            newest.setdefault(path.name, path)  # whose it is we don't know
        else:
            newest.setdefault(made.strftime(period), path)
    return list(newest.values())[:most]


def expendable(folder: Path, *, good: Collection[str], pinned: Collection[str] = ()) -> list[Path]:
    """What may go when there is no room, the oldest first: whatever we made by ourselves, but for the newest good and
    for what is pinned."""
    made = [path for path in folder.glob("*.db") if path.name.startswith(DAILY) or path in _migrations(folder)]
    made.sort(key=changed_at)
    newest = next((path for path in reversed(made) if path.name in good), made[-1] if made else None)
    return [path for path in made if path != newest and path.name not in pinned]


def _migrations(folder: Path) -> list[Path]:
    return list(folder.glob(f"{BEFORE}[0-9][0-9][0-9][0-9].db"))


# --- putting back ----------------------------------------------------------------------------------------------------


@contextmanager
def prepared(source: Path, near: Path, *, halted: Halted = never) -> Iterator[Path]:
    """A database of our own making with the rows of a backup, opened and brought up to date as a worker does it, in a
    folder that vanishes afterwards."""
    for left in near.glob(f"{RESTORING}*"):
        if not is_anothers(left):  # by one that was killed
            shutil.rmtree(left, ignore_errors=True)
    folder = near / f"{RESTORING}{os.getpid()}"
    hook.make_private(str(folder))
    try:
        path = folder / "claude-mem.db"
        with foreign.reading(source) as conn:
            conn.set_progress_handler(halted, STEPS)
            _check_pages(conn, source)
        transfer.copy(source, path, halted=halted)
        db = Database(path, backups=folder)
        try:
            db.write_now(settle)
            db.write_now(_check_index, halted)
        finally:
            db.close()
        check(path, halted=halted)
        yield path
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_anothers(folder: Path) -> bool:
    """Is it the folder of a process that still runs?"""
    try:
        pid = int(folder.name.removeprefix(RESTORING))
        os.kill(pid, 0)
    except (OSError, ValueError, OverflowError):
        return False  # it is gone, or a stranger has got its number
    return pid != os.getpid()


def _check_index(conn: Connection, halted: Halted) -> None:
    conn.set_progress_handler(halted, STEPS)
    try:
        search.check(conn)
    except apsw.CorruptError:
        search.rebuild(conn)
    finally:
        conn.set_progress_handler(None)


def settle(conn: Connection) -> None:
    """What lies rendered on disk is of another state: every project's start is made again."""
    now = ids.now()
    for row in rows(conn, "select id from projects"):
        jobs.ask(conn, "render", f"{row['id']}.restored.{now}", now=now)


def uncheckable(path: Path, folder: Path) -> int:
    """How many tombstones of a lost key a backup does not have: it may hold what they stand for."""
    unsure = stones.unchecked(folder)
    if not unsure:
        return 0
    with foreign.reading(path) as conn:
        return len(stones.missing(conn, unsure)) if _has(conn, "tombstones") else len(unsure)


def swap(fresh: Path, database: Path, backups: Path) -> Path | None:
    """Put it in place; the caller holds the lock. Where the present one is kept, if there is one.

    The new file takes the old one's name in one step. Before that nothing is taken away but a log that could not be
    worked into a database that is damaged; it is kept too.
    """
    kept = _keep(database, backups) if database.exists() else None
    for side in SIDES[1:]:  # an old log would be applied to the new database
        _side(database, side).unlink(missing_ok=True)
    fresh.rename(database)
    sync_folder(database.parent)
    return kept


def _keep(database: Path, backups: Path) -> Path:
    """Under a second name, as it is. If it is sound its log is worked into it, and one file is enough."""
    hook.make_private(str(backups))
    _drop_links(database, backups)
    kept = backups / f"{REPLACED}{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}.db"
    for side in SIDES:
        if (file := _side(database, side)).exists():
            _link(file, _side(kept, side))
    try:
        Database(database, backups=backups).close()
    except (CannotDo, apsw.Error):
        pass  # damaged: whoever wants to mend it will want the log, too
    else:
        for side in SIDES:
            _side(kept, side).unlink(missing_ok=True)
        _link(database, kept)  # again: where it is a copy, the first one has not seen the log
    sync_folder(backups)
    return kept


def _drop_links(database: Path, backups: Path) -> None:
    """A restore that was killed in between has left a second name of the present database: that keeps nothing."""
    present = [file for side in SIDES if (file := _side(database, side)).exists()]
    for left in backups.glob(f"{REPLACED}*"):
        if any(left.samefile(file) for file in present):
            left.unlink()


def _side(database: Path, side: str) -> Path:
    return database.with_name(database.name + side)


def _link(file: Path, other: Path) -> None:
    try:
        other.hardlink_to(file)
    except OSError:  # not on every file system
        shutil.copy2(file, other)
