"""Backups: copies of the database that are made while it is in use, checked before they are trusted, and restored.

SQLite copies one consistent state of the database while writing continues. Before a restore, the backup is opened and
migrated in a separate folder, as a worker would do it; then it replaces the current database, which is kept.
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
REPLACED = f"{BEFORE}restore-"  # the database that a manual restore replaced: a history that was abandoned
_DAYS_KEPT, _WEEKS_KEPT, _MIGRATION_BACKUPS_KEPT = 7, 4, 3  # how many of each the rotation keeps
RESTORING = ".restoring-"
SIDES = ("", "-wal", "-shm")  # suffixes of the up to three files of a database
_COUNTED_TABLES = (
    "projects", "sdk_sessions", "turns", "user_prompts", "events", "observations", "session_summaries", "ledger",
)  # fmt: skip
_PAGE_ROWS = 500
STEPS = 20_000  # SQLite instructions between two calls of the progress handler

Halted = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Copy:
    """A backup, with the row counts of the database at the time it was made."""

    path: str
    size: int
    counts: dict[str, int]
    digest: str = ""  # of all memory, see `remembered`


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of checking an intact backup."""

    path: str
    size: int
    version: int
    counts: dict[str, int] = field(default_factory=dict)
    strange: list[str] = field(default_factory=list)  # schema objects that our migrations do not create; never restored


# --- create ----------------------------------------------------------------------------------------------------------


def make(database: Path, folder: Path, *, digest: bool = False, prefix: str = PREFIX, now: int = 0) -> Copy:
    """Make a backup named after its time. The counts are taken from the same state of the database as the copy."""
    made_at = datetime.fromtimestamp((now or ids.now()) / 1000)
    path = folder / f"{prefix}{made_at:%Y%m%d-%H%M%S}-{ids.new()[-4:]}.db"
    conn = open_reader(database)
    try:
        conn.execute("begin")
        counts = count(conn)
        content_digest = remembered(conn) if digest else ""
        migrate.backup(conn, path, throttled=True)
    except apsw.Error as error:
        raise CannotDo(
            f"the database can't be copied: {error}", hint="run `claude-mem doctor` to find the cause"
        ) from error
    finally:
        conn.close()
    sync_folder(folder)
    failpoint("backup.made")
    return Copy(str(path), path.stat().st_size, counts, content_digest)


def sweep(folder: Path) -> None:
    """Delete unfinished backups left by a killed process. The caller must hold the worker lock."""
    for path in (path for prefix in OURS for path in folder.glob(f"{prefix}*{migrate.PART}*")):
        path.unlink(missing_ok=True)


def count(conn: Connection) -> dict[str, int]:
    return {
        table: int(value(conn, f"select count(*) from {table}")) for table in _COUNTED_TABLES if _has_table(conn, table)
    }


def _has_table(conn: Connection, table: str) -> bool:
    return bool(value(conn, "select 1 from sqlite_schema where type = 'table' and name = ?", (table,)))


def remembered(conn: Connection) -> str:
    """Return a digest of all memory: two databases have equal digests only if all records are equal."""
    digest, full_scope = hashlib.blake2b(digest_size=16), records.scope(conn)
    for kind in portable.KINDS:
        after = 0
        while page := records.page(conn, kind, full_scope, after=after, limit=_PAGE_ROWS):
            digest.update(b"".join(portable.line(record) for _, record in page))
            after = page[-1][0]
    return digest.hexdigest()


# --- check -----------------------------------------------------------------------------------------------------------


def never() -> bool:
    """The default for `halted`: never stop early."""
    return False


def check(path: Path, *, halted: Halted = never) -> Checked:
    """Check every page, reference and row of a backup. Raise `CannotDo` if it is damaged, or if `halted` ended the
    check."""
    if not path.is_file():
        raise NotFound(f"there is no file {path}", hint="`claude-mem backup --list` shows all backups")
    if not foreign.is_database(path):
        raise CannotDo(f"{path} is not a database", hint="`claude-mem backup --list` shows all backups")
    with foreign.reading(path) as conn:
        conn.set_progress_handler(halted, STEPS)
        _check_owner(conn, path)
        _check_content(conn, path)
        version = migrate.version(conn)
        return Checked(str(path), path.stat().st_size, version, count(conn), transfer.strange(conn, version))


def _check_owner(conn: Connection, path: Path) -> None:
    owner = foreign.whose_tables(conn)
    if owner == "older":
        raise Misuse(f"{path} is the database of an older claude-mem", hint=f"import it: `claude-mem import {path}`")
    if owner != "ours":
        raise Misuse(f"{path} is not a claude-mem database", hint="`claude-mem backup --list` shows all backups")
    newest = migrate.scripts()[-1][0]
    if migrate.version(conn) > newest:
        raise TooNew(
            f"{path} has schema version {migrate.version(conn)}, but this program supports only up to {newest}",
            hint="install a newer claude-mem",
        )


def _check_content(conn: Connection, path: Path) -> None:
    _check_pages(conn, path)
    problems = [f"{row['table']} {row['rowid']} refers to a missing row" for row in _dangling_references(conn)]
    problems += [f"observation {row_id} does not match its hash" for row_id in _altered_observations(conn)]
    problems += broken_seals(conn) if _has_table(conn, "seals") else []
    if problems:
        raise CannotDo(f"{path} is damaged: {'; '.join(problems[:3])}", hint="use another backup")


def _check_pages(conn: Connection, path: Path) -> None:
    """Run SQLite's own check of all pages and indexes.

    The check evaluates expressions defined by tables and indexes, so it is skipped if any definition is not ours. In
    that case only the copy made from the backup is checked.
    """
    if any(name.startswith(("table", "index")) for name in transfer.strange(conn, migrate.version(conn))):
        return
    problems = [str(next(iter(row.values()))) for row in rows(conn, "pragma integrity_check(5)")]
    if problems != ["ok"]:
        raise CannotDo(f"{path} is damaged: {'; '.join(problems[:3])}", hint="use another backup")


def _dangling_references(conn: Connection) -> list[dict[str, Any]]:
    return rows(conn, "pragma foreign_key_check")


def _altered_observations(conn: Connection) -> Iterator[int]:
    """Yield the ids of observations whose hash is wrong. SQLite itself detects few flipped bits."""
    columns = "id, hash, type, title, subtitle, narrative, facts, concepts"
    for row in conn.execute(f"select {columns} from observations where not forgotten"):
        if observations.fingerprint(row) != row["hash"]:
            yield row["id"]


def broken_seals(conn: Connection) -> list[str]:
    """Return a description of every row that does not match its checksum."""
    problems, cursor = seals.broken(conn, after=0, limit=_PAGE_ROWS)
    while cursor:
        more, cursor = seals.broken(conn, after=cursor, limit=_PAGE_ROWS)
        problems += more
    return problems


# --- list ------------------------------------------------------------------------------------------------------------


def listing(folder: Path) -> list[dict[str, Any]]:
    """Describe all backups, newest first, including those made by older versions."""
    paths = [path for path in folder.glob("*.db") if path.name.startswith(OURS) and path.is_file()]
    entries = [
        {
            "name": path.name,
            "made_at": int(changed_at(path) * 1000),
            "size": path.stat().st_size,
            **_describe_copy(path),
        }
        for path in paths
    ]
    return sorted(entries, key=lambda row: (-row["made_at"], row["name"]))


def _describe_copy(path: Path) -> dict[str, Any]:
    try:
        with foreign.reading(path) as conn:
            observation_count = value(conn, "select count(*) from observations where not forgotten")
            return {"version": migrate.version(conn), "observations": int(observation_count)}
    except CannotDo as problem:
        return {"version": None, "observations": None, "problem": str(problem)}


# --- rewrite ---------------------------------------------------------------------------------------------------------


def rewrite(path: Path, change: Callable[[Connection], Any], *, vacuum: bool = False) -> None:
    """Apply `change` to a backup, completely or not at all.

    The new file contains nothing of the rows that `change` removed. With `vacuum` it also contains nothing of rows that
    were removed earlier without being overwritten. Schema version and modification time stay the same, because it is
    still the backup of that day.
    """
    status = path.stat()
    temp = path.with_name(f"{path.name}.{ids.new()}{migrate.PART}")
    try:
        with foreign.reading(path) as conn:
            migrate.backup(conn, temp)
        _change_in_place(temp, change, vacuum=vacuum)
        os.utime(temp, ns=(status.st_atime_ns, status.st_mtime_ns))
        for side in SIDES[1:]:  # the new file includes the old WAL, which must not be applied to it again
            _side_file(path, side).unlink(missing_ok=True)
        temp.rename(path)
    except apsw.Error as error:
        raise CannotDo(f"{path} can't be rewritten: {error}", hint="delete it if you no longer need it") from error
    finally:
        for temp_file in path.parent.glob(f"{temp.name}*"):
            temp_file.unlink(missing_ok=True)
    sync_folder(path.parent)


def _change_in_place(path: Path, change: Callable[[Connection], Any], *, vacuum: bool) -> None:
    conn = open_writer(path)
    try:
        conn.pragma("secure_delete", "on")  # a setting of the connection, not of the file
        with conn:
            change(conn)
        if vacuum:
            conn.execute("vacuum")
    finally:
        conn.close()


# --- restore tests and rotation --------------------------------------------------------------------------------------


def drill(copy: Copy, folder: Path, *, halted: Halted = never) -> str:
    """Restore a backup into a temporary folder and compare the row counts. Return the problem, or ''."""
    try:
        with prepared(Path(copy.path), folder, halted=halted) as restored:
            restored_counts = check(restored, halted=halted).counts
    except (MemError, apsw.Error, OSError) as problem:
        return str(problem) or type(problem).__name__
    differing = [name for name, n in copy.counts.items() if restored_counts.get(name) != n]
    return f"the row counts of {', '.join(differing)} differ" if differing else ""


def unproven(folder: Path, *, tested_names: Collection[str]) -> list[Path]:
    """Return the backups whose restore was never tested, or that have changed since, oldest first.

    Databases replaced by a restore are not included: they may be damaged, which may be why they were replaced.
    """
    copies = [*_migration_backups(folder), *folder.glob(f"{PREFIX}*.db"), *folder.glob(f"{DAILY}*.db")]
    return sorted((path for path in copies if path.name not in tested_names), key=lambda path: path.stat().st_mtime)


def prove(path: Path, folder: Path, *, halted: Halted = never) -> str:
    """Test the restore of an existing backup against its own row counts. Return the problem, or ''."""
    try:
        with foreign.reading(path) as conn:
            counts = count(conn)
    except (MemError, apsw.Error, OSError) as problem:
        return str(problem) or type(problem).__name__
    return drill(Copy(str(path), path.stat().st_size, counts), folder, halted=halted)


def superfluous(folder: Path, *, good_names: Collection[str], pinned_names: Collection[str] = ()) -> list[Path]:
    """Return the backups that the rotation deletes.

    Of the daily backups it keeps the newest of each of seven days and four weeks, and of those made before migrations
    the newest three. It never deletes a backup that the user made, that is pinned, or that is the only good one.
    """
    daily = sorted(folder.glob(f"{DAILY}*.db"), reverse=True)  # the name contains the time
    keep = {*_newest_per_period(daily, "%Y-%m-%d", _DAYS_KEPT), *_newest_per_period(daily, "%G-%V", _WEEKS_KEPT)}
    keep |= set([path for path in daily if path.name in good_names][:1] or daily[:1])
    migration_backups = sorted(_migration_backups(folder), key=lambda path: -changed_at(path))
    surplus = [path for path in daily if path not in keep] + migration_backups[_MIGRATION_BACKUPS_KEPT:]
    return [path for path in surplus if path.name not in pinned_names]


def _newest_per_period(daily: list[Path], period: str, limit: int) -> list[Path]:
    newest: dict[str, Path] = {}
    for path in daily:
        try:
            made_at = datetime.strptime(path.name.removeprefix(DAILY)[:15], "%Y%m%d-%H%M%S")
        except ValueError:
            newest.setdefault(path.name, path)  # not named by us
        else:
            newest.setdefault(made_at.strftime(period), path)
    return list(newest.values())[:limit]


def expendable(folder: Path, *, good_names: Collection[str], pinned_names: Collection[str] = ()) -> list[Path]:
    """Return the backups that may be deleted when space is short, oldest first: all automatic ones except the newest
    good one and the pinned ones."""
    automatic = [
        path for path in folder.glob("*.db") if path.name.startswith(DAILY) or path in _migration_backups(folder)
    ]
    automatic.sort(key=changed_at)
    newest = next(
        (path for path in reversed(automatic) if path.name in good_names), automatic[-1] if automatic else None
    )
    return [path for path in automatic if path != newest and path.name not in pinned_names]


def _migration_backups(folder: Path) -> list[Path]:
    return list(folder.glob(f"{BEFORE}[0-9][0-9][0-9][0-9].db"))


# --- restore ---------------------------------------------------------------------------------------------------------


@contextmanager
def prepared(source: Path, parent: Path, *, halted: Halted = never) -> Iterator[Path]:
    """Yield the path of a new database with the rows of a backup, opened and migrated as a worker does it.

    It is in a temporary folder that is deleted afterwards.
    """
    for stale_folder in parent.glob(f"{RESTORING}*"):
        if not is_anothers(stale_folder):  # left by a killed process
            shutil.rmtree(stale_folder, ignore_errors=True)
    folder = parent / f"{RESTORING}{os.getpid()}"
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
    """Return whether the folder belongs to another process that is still running."""
    try:
        pid = int(folder.name.removeprefix(RESTORING))
        os.kill(pid, 0)
    except (OSError, ValueError, OverflowError):
        return False  # the process has ended, or another user's process has its id
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
    """Enqueue the rendering of every project's start context, because the cached ones are of another state."""
    now = ids.now()
    for row in rows(conn, "select id from projects"):
        jobs.ask(conn, "render", f"{row['id']}.restored.{now}", now=now)


def uncheckable(path: Path, folder: Path) -> int:
    """Return how many tombstones with a lost key the backup lacks. It may contain what they cover."""
    unchecked = stones.unchecked(folder)
    if not unchecked:
        return 0
    with foreign.reading(path) as conn:
        return len(stones.missing(conn, unchecked)) if _has_table(conn, "tombstones") else len(unchecked)


def swap(new_database: Path, database: Path, backups: Path) -> Path | None:
    """Replace the database by a new one. Return the path under which the current one is kept, if there is one.

    The caller must hold the worker lock. The rename is atomic. Before it, only the WAL of a damaged database is
    removed, if it could not be checkpointed; a copy of it is kept.
    """
    replaced = _keep(database, backups) if database.exists() else None
    for side in SIDES[1:]:  # the old WAL would be applied to the new database
        _side_file(database, side).unlink(missing_ok=True)
    new_database.rename(database)
    sync_folder(database.parent)
    return replaced


def _keep(database: Path, backups: Path) -> Path:
    """Keep the database under a second name. If it is intact its WAL is checkpointed, so that one file is enough."""
    hook.make_private(str(backups))
    _drop_links(database, backups)
    target = backups / f"{REPLACED}{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}.db"
    for side in SIDES:
        if (file := _side_file(database, side)).exists():
            _link(file, _side_file(target, side))
    try:
        Database(database, backups=backups).close()
    except (CannotDo, apsw.Error):
        pass  # damaged: a later repair needs the WAL too
    else:
        for side in SIDES:
            _side_file(target, side).unlink(missing_ok=True)
        _link(database, target)  # again: if the first was a copy instead of a link, it lacks the WAL's content
    sync_folder(backups)
    return target


def _drop_links(database: Path, backups: Path) -> None:
    """Remove second names of the current database left by a killed restore: they preserve nothing."""
    present = [file for side in SIDES if (file := _side_file(database, side)).exists()]
    for link in backups.glob(f"{REPLACED}*"):
        if any(link.samefile(file) for file in present):
            link.unlink()


def _side_file(database: Path, side: str) -> Path:
    return database.with_name(database.name + side)


def _link(file: Path, target: Path) -> None:
    try:
        target.hardlink_to(file)
    except OSError:  # some file systems have no hard links
        shutil.copy2(file, target)
