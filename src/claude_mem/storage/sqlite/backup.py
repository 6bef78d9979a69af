"""Backups: copies of the database that are made while it is in use, checked before they are trusted, and restored.

A file offered as a backup may contain more than rows: triggers, views, indexes, generated columns, altered constraints.
A restore therefore creates the tables with our own migrations, up to the version that the backup claims, and copies the
rows table by table. Nothing else is copied, and nothing of the backup's schema is ever executed. The new database is
opened and migrated in a separate folder, as a worker would do it, before it replaces the current one, which is kept.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import apsw
from msgspec import UNSET, UnsetType

from claude_mem import hook
from claude_mem.domain import export_format, ids
from claude_mem.domain.errors import ClaudeMemError, DatabaseTooNew, InvalidRequest, NotFound, OperationFailed
from claude_mem.domain.reports import BackupCheck, BackupCopy, BackupFile
from claude_mem.storage import external_db
from claude_mem.storage.records import StopCheck
from claude_mem.storage.sqlite import checksums, damage, engine, export, former_names
from claude_mem.storage.sqlite.deletion import tombstones
from claude_mem.storage.sqlite.engine import (
    Connection,
    Engine,
    fetch_all,
    fetch_value,
    has_table,
    open_reader,
    open_writer,
)
from claude_mem.storage.sqlite.journal import jobs
from claude_mem.storage.sqlite.memory import observations, search
from claude_mem.system.failpoints import failpoint
from claude_mem.system.spool import modified_at, sync_directory

MANUAL_PREFIX, DAILY_PREFIX, BEFORE_PREFIX = OWN_PREFIXES = damage.BACKUP_PREFIXES
# The database that a manual restore replaced: a history that was abandoned.
REPLACED_PREFIX = f"{BEFORE_PREFIX}restore-"
_DAYS_KEPT, _WEEKS_KEPT, _MIGRATION_BACKUPS_KEPT = 7, 4, 3  # how many of each the rotation keeps
RESTORE_FOLDER_PREFIX = ".restoring-"
DATABASE_FILE_SUFFIXES = ("", "-wal", "-shm")  # suffixes of the up to three files of a database
_COUNTED_TABLES = (
    "projects", "sdk_sessions", "turns", "user_prompts", "events", "observations", "session_summaries", "ledger",
)  # fmt: skip
_PAGE_ROWS = 500
PROGRESS_STEPS = 20_000  # SQLite instructions between two calls of the progress handler
MAX_ROW_ID = 1 << 53  # highest row id to continue from; near SQLite's maximum it would choose ids at random
_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
_SELECT_COLUMNS = "select name from pragma_table_xinfo(?, ?) where not hidden order by cid"
_COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/|(/\*.*)", re.DOTALL)  # the group: a comment without an end
_HINT = "use another backup"


def never_stop() -> bool:
    """Return False: the default of `should_stop`."""
    return False


# --- creating --------------------------------------------------------------------------------------------------------


def write_backup(
    database: Path, folder: Path, *, digest: bool = False, prefix: str = MANUAL_PREFIX, now: int = 0
) -> BackupCopy:
    """Make a backup named after its time. The counts are taken from the same state of the database as the copy."""
    made_at = datetime.fromtimestamp((now or ids.now_ms()) / 1000)
    path = folder / f"{prefix}{made_at:%Y%m%d-%H%M%S}-{ids.new_event_id()[-4:]}.db"
    conn = open_reader(database)
    try:
        conn.execute("begin")
        counts = count_rows(conn)
        content_digest = digest_memory(conn) if digest else ""
        engine.copy_database(conn, path, throttled=True)
    except apsw.Error as error:
        raise OperationFailed(
            f"the database can't be copied: {error}", hint="run `claude-mem doctor` to find the cause"
        ) from error
    finally:
        conn.close()
    sync_directory(folder)
    failpoint("backup.made")
    return BackupCopy(str(path), path.stat().st_size, counts, content_digest)


def delete_unfinished_backups(folder: Path) -> None:
    """Delete unfinished backups left by a killed process. The caller must hold the worker lock."""
    for path in (path for prefix in OWN_PREFIXES for path in folder.glob(f"{prefix}*{engine.PARTIAL_SUFFIX}*")):
        path.unlink(missing_ok=True)


def count_rows(conn: Connection) -> dict[str, int]:
    """Count the rows of the main tables that the database has."""
    return {
        table: int(fetch_value(conn, f"select count(*) from {table}"))
        for table in _COUNTED_TABLES
        if has_table(conn, table)
    }


def digest_memory(conn: Connection) -> str:
    """Return a digest of all memory: two databases have equal digests only if all records are equal."""
    digest, full_scope = hashlib.blake2b(digest_size=16), export.build_export_scope(conn)
    for kind in export_format.RECORD_TYPES:
        after = 0
        while page := export.read_export_page(conn, kind, full_scope, after=after, limit=_PAGE_ROWS):
            digest.update(b"".join(export_format.encode_line(record) for _, record in page))
            after = page[-1][0]
    return digest.hexdigest()


# --- checking --------------------------------------------------------------------------------------------------------


def digest_file(path: Path) -> str:
    """Return the digest of the memory in a database file."""
    with closing(open_reader(path)) as conn:
        return digest_memory(conn)


def examine_backup(path: Path, *, should_stop: StopCheck = never_stop) -> BackupCheck:
    """Check every page, reference and row of a backup.

    Raise `OperationFailed` if the backup is damaged, or if `should_stop` ended the check.
    """
    if not path.is_file():
        raise NotFound(f"there is no file {path}", hint="`claude-mem backup --list` shows all backups")
    if not external_db.is_sqlite_file(path):
        raise OperationFailed(f"{path} is not a database", hint="`claude-mem backup --list` shows all backups")
    with external_db.open_read_only(path) as conn:
        conn.set_progress_handler(should_stop, PROGRESS_STEPS)
        _check_owner(conn, path)
        _check_content(conn, path)
        version = engine.read_schema_version(conn)
        return BackupCheck(
            str(path), path.stat().st_size, version, count_rows(conn), _find_unexpected_objects(conn, version)
        )


def _check_owner(conn: Connection, path: Path) -> None:
    owner = external_db.identify_tables(conn)
    if owner == "older":
        raise InvalidRequest(
            f"{path} is the database of an older claude-mem", hint=f"import it: `claude-mem import {path}`"
        )
    if owner != "ours":
        raise InvalidRequest(
            f"{path} is not a claude-mem database", hint="`claude-mem backup --list` shows all backups"
        )
    newest = engine.load_migrations()[-1][0]
    if engine.read_schema_version(conn) > newest:
        raise DatabaseTooNew(
            f"{path} has schema version {engine.read_schema_version(conn)}, but this program supports only up to {newest}",
            hint="install a newer claude-mem",
        )


def _check_content(conn: Connection, path: Path) -> None:
    _check_pages(conn, path)
    problems = find_dangling_references(conn)
    problems += [f"observation {row_id} does not match its hash" for row_id in _altered_observations(conn)]
    problems += (
        find_all_checksum_mismatches(conn) if has_table(conn, former_names.stored_table(conn, "checksums")) else []
    )
    if problems:
        raise OperationFailed(f"{path} is damaged: {'; '.join(problems[:3])}", hint="use another backup")


def _check_pages(conn: Connection, path: Path) -> None:
    """Run SQLite's own check of all pages and indexes.

    The check evaluates expressions defined by tables and indexes, so it is skipped if any definition is not ours. In
    that case only the copy made from the backup is checked.
    """
    if any(
        name.startswith(("table", "index")) for name in _find_unexpected_objects(conn, engine.read_schema_version(conn))
    ):
        return
    problems = [str(next(iter(row.values()))) for row in fetch_all(conn, "pragma integrity_check(5)")]
    if problems != ["ok"]:
        raise OperationFailed(f"{path} is damaged: {'; '.join(problems[:3])}", hint="use another backup")


def find_dangling_references(conn: Connection) -> list[str]:
    """Return a description of every row that refers to a missing row."""
    violations = fetch_all(conn, "pragma foreign_key_check")
    return [f"{row['table']} {row['rowid']} refers to a missing row" for row in violations]


def _altered_observations(conn: Connection) -> Iterator[int]:
    """Yield the ids of observations whose hash is wrong. SQLite itself detects few flipped bits."""
    columns = "id, hash, type, title, subtitle, narrative, facts, concepts"
    for row in conn.execute(f"select {columns} from observations where not forgotten"):
        if observations.hash_observation(row) != row["hash"]:
            yield row["id"]


def find_all_checksum_mismatches(conn: Connection) -> list[str]:
    """Return a description of every row that does not match its checksum."""
    problems, cursor = checksums.find_checksum_mismatches(conn, after=0, limit=_PAGE_ROWS)
    while cursor:
        more, cursor = checksums.find_checksum_mismatches(conn, after=cursor, limit=_PAGE_ROWS)
        problems += more
    return problems


# --- listing ---------------------------------------------------------------------------------------------------------


def list_backup_files(folder: Path) -> list[BackupFile]:
    """Describe all backups, newest first, including those made by older versions."""
    paths = list_backup_paths(folder)
    return sorted((_describe_copy(path) for path in paths), key=lambda file: (-file.made_at, file.name))


def list_backup_paths(folder: Path) -> list[Path]:
    """Return the paths of all backups, without opening them."""
    return [path for path in folder.glob("*.db") if path.name.startswith(OWN_PREFIXES) and path.is_file()]


def _describe_copy(path: Path) -> BackupFile:
    version: int | None = None
    observation_count: int | None = None
    problem: str | UnsetType = UNSET
    try:
        with external_db.open_read_only(path) as conn:
            observation_count = int(fetch_value(conn, "select count(*) from observations where not forgotten"))
            version = engine.read_schema_version(conn)
    except OperationFailed as error:
        observation_count, problem = None, str(error)
    return BackupFile(
        name=path.name,
        made_at=int(modified_at(path) * 1000),
        size=path.stat().st_size,
        version=version,
        observations=observation_count,
        problem=problem,
    )


# --- rewriting -------------------------------------------------------------------------------------------------------


def rewrite_backup(path: Path, change: Callable[[Connection], Any], *, vacuum: bool = False) -> None:
    """Apply `change` to a backup, completely or not at all.

    The new file contains nothing of the rows that `change` removed. With `vacuum` it also contains nothing of rows that
    were removed earlier without being overwritten. Schema version and modification time stay the same, because it is
    still the backup of that day.
    """
    status = path.stat()
    temp = path.with_name(f"{path.name}.{ids.new_event_id()}{engine.PARTIAL_SUFFIX}")
    try:
        with external_db.open_read_only(path) as conn:
            engine.copy_database(conn, temp)
        _change_in_place(temp, change, vacuum=vacuum)
        os.utime(temp, ns=(status.st_atime_ns, status.st_mtime_ns))
        # The new file includes the content of the old WAL, which must not be applied again.
        for side in DATABASE_FILE_SUFFIXES[1:]:
            side_file(path, side).unlink(missing_ok=True)
        temp.rename(path)
    except apsw.Error as error:
        raise OperationFailed(
            f"{path} can't be rewritten: {error}", hint="delete it if you no longer need it"
        ) from error
    finally:
        for temp_file in path.parent.glob(f"{temp.name}*"):
            temp_file.unlink(missing_ok=True)
    sync_directory(path.parent)


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


# --- testing restores ------------------------------------------------------------------------------------------------


def find_unverified_backups(folder: Path, *, tested_names: Collection[str]) -> list[Path]:
    """Return the backups whose restore was never tested, or that have changed since, oldest first.

    Databases replaced by a restore are not included: they may be damaged, which may be why they were replaced.
    """
    copies = [*_migration_backups(folder), *folder.glob(f"{MANUAL_PREFIX}*.db"), *folder.glob(f"{DAILY_PREFIX}*.db")]
    return sorted((path for path in copies if path.name not in tested_names), key=lambda path: path.stat().st_mtime)


def verify_backup(path: Path, folder: Path, *, should_stop: StopCheck = never_stop) -> str:
    """Test the restore of an existing backup against its own row counts. Return the problem, or ''."""
    try:
        with external_db.open_read_only(path) as conn:
            counts = count_rows(conn)
    except (ClaudeMemError, apsw.Error, OSError) as problem:
        return str(problem) or type(problem).__name__
    return verify_restore(BackupCopy(str(path), path.stat().st_size, counts), folder, should_stop=should_stop)


def verify_restore(copy: BackupCopy, folder: Path, *, should_stop: StopCheck = never_stop) -> str:
    """Restore a backup into a temporary folder and compare the row counts. Return the problem, or ''."""
    try:
        with prepare_restore(Path(copy.path), folder, should_stop=should_stop) as restored:
            restored_counts = examine_backup(restored, should_stop=should_stop).counts
    except (ClaudeMemError, apsw.Error, OSError) as problem:
        return str(problem) or type(problem).__name__
    differing = [name for name, n in copy.counts.items() if restored_counts.get(name) != n]
    return f"the row counts of {', '.join(differing)} differ" if differing else ""


# --- rotation --------------------------------------------------------------------------------------------------------


def find_surplus_backups(
    folder: Path, *, good_names: Collection[str], pinned_names: Collection[str] = ()
) -> list[Path]:
    """Return the backups that the rotation deletes.

    Of the daily backups it keeps the newest of each of seven days and four weeks, and of those made before migrations
    the newest three. It never deletes a backup that the user made, that is pinned, or that is the only good one.
    """
    daily = sorted(folder.glob(f"{DAILY_PREFIX}*.db"), reverse=True)  # the name contains the time
    keep = {*_newest_per_period(daily, "%Y-%m-%d", _DAYS_KEPT), *_newest_per_period(daily, "%G-%V", _WEEKS_KEPT)}
    keep |= set([path for path in daily if path.name in good_names][:1] or daily[:1])
    migration_backups = sorted(_migration_backups(folder), key=lambda path: -modified_at(path))
    surplus = [path for path in daily if path not in keep] + migration_backups[_MIGRATION_BACKUPS_KEPT:]
    return [path for path in surplus if path.name not in pinned_names]


def _newest_per_period(daily: list[Path], period: str, limit: int) -> list[Path]:
    newest: dict[str, Path] = {}
    for path in daily:
        try:
            made_at = datetime.strptime(path.name.removeprefix(DAILY_PREFIX)[:15], "%Y%m%d-%H%M%S")
        except ValueError:
            newest.setdefault(path.name, path)  # not named by us
        else:
            newest.setdefault(made_at.strftime(period), path)
    return list(newest.values())[:limit]


def find_expendable_backups(
    folder: Path, *, good_names: Collection[str], pinned_names: Collection[str] = ()
) -> list[Path]:
    """Return the backups that may be deleted when space is short, oldest first.

    These are all automatic backups except the newest good one and the pinned ones.
    """
    automatic = [
        path for path in folder.glob("*.db") if path.name.startswith(DAILY_PREFIX) or path in _migration_backups(folder)
    ]
    automatic.sort(key=modified_at)
    newest = next(
        (path for path in reversed(automatic) if path.name in good_names), automatic[-1] if automatic else None
    )
    return [path for path in automatic if path != newest and path.name not in pinned_names]


def _migration_backups(folder: Path) -> list[Path]:
    return list(folder.glob(f"{BEFORE_PREFIX}[0-9][0-9][0-9][0-9].db"))


# --- restoring -------------------------------------------------------------------------------------------------------


@contextmanager
def prepare_restore(source: Path, parent: Path, *, should_stop: StopCheck = never_stop) -> Iterator[Path]:
    """Yield the path of a new database with the rows of a backup, opened and migrated as a worker does it.

    It is in a temporary folder that is deleted afterwards.
    """
    for stale_folder in find_stale_restores(parent):
        shutil.rmtree(stale_folder, ignore_errors=True)
    folder = parent / f"{RESTORE_FOLDER_PREFIX}{os.getpid()}"
    hook.make_private_dir(str(folder))
    try:
        path = folder / "claude-mem.db"
        with external_db.open_read_only(source) as conn:
            conn.set_progress_handler(should_stop, PROGRESS_STEPS)
            _check_pages(conn, source)
        _copy_backup_rows(source, path, should_stop=should_stop)
        db = Engine(path, backups=folder, connection_type=Connection)
        try:
            db.write_now(enqueue_start_renders)
            db.write_now(_check_index, should_stop)
        finally:
            db.close()
        examine_backup(path, should_stop=should_stop)
        yield path
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_stale_restores(parent: Path) -> list[Path]:
    """Return the temporary folders of restores that killed processes left."""
    return [folder for folder in parent.glob(f"{RESTORE_FOLDER_PREFIX}*") if not _is_used_by_other_process(folder)]


def _is_used_by_other_process(folder: Path) -> bool:
    """Return whether the folder belongs to another process that is still running."""
    try:
        pid = int(folder.name.removeprefix(RESTORE_FOLDER_PREFIX))
        os.kill(pid, 0)
    except (OSError, ValueError, OverflowError):
        return False  # the process has ended, or another user's process has its id
    return pid != os.getpid()


def _check_index(conn: Connection, should_stop: StopCheck) -> None:
    conn.set_progress_handler(should_stop, PROGRESS_STEPS)
    try:
        search.check_word_index(conn)
    except apsw.CorruptError:
        search.rebuild_word_index(conn)
    finally:
        conn.set_progress_handler(None)


def enqueue_start_renders(conn: Connection) -> None:
    """Enqueue the rendering of every project's start context, because the cached ones show the previous database."""
    now = ids.now_ms()
    for row in fetch_all(conn, "select id from projects"):
        jobs.enqueue_job(conn, "render", f"{row['id']}.restored.{now}", now=now)


def count_uncheckable_tombstones(path: Path, folder: Path) -> int:
    """Return how many tombstones with a lost key the backup lacks.

    The backup may contain what they cover.
    """
    unchecked = tombstones.read_uncheckable_tombstones(folder)
    if not unchecked:
        return 0
    with external_db.open_read_only(path) as conn:
        return (
            len(tombstones.find_missing_tombstones(conn, unchecked))
            if has_table(conn, "tombstones")
            else len(unchecked)
        )


def replace_database(new_database: Path, database: Path, backups: Path) -> Path | None:
    """Replace the database by a new one. Return the path under which the current one is kept, if there is one.

    The caller must hold the worker lock. The rename is atomic. Before it, only the WAL of a damaged database is
    removed, if it could not be checkpointed; a copy is kept.
    """
    replaced = _keep(database, backups) if database.exists() else None
    for side in DATABASE_FILE_SUFFIXES[1:]:  # the old WAL would be applied to the new database
        side_file(database, side).unlink(missing_ok=True)
    new_database.rename(database)
    sync_directory(database.parent)
    return replaced


def _keep(database: Path, backups: Path) -> Path:
    """Keep the database under a second name. If it is intact its WAL is checkpointed, so that one file is enough."""
    hook.make_private_dir(str(backups))
    _drop_links(database, backups)
    target = backups / f"{REPLACED_PREFIX}{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}.db"
    for side in DATABASE_FILE_SUFFIXES:
        if (file := side_file(database, side)).exists():
            _link(file, side_file(target, side))
    try:
        Engine(database, backups=backups, connection_type=Connection).close()
    except (OperationFailed, apsw.Error):
        pass  # damaged: a later repair needs the WAL too
    else:
        for side in DATABASE_FILE_SUFFIXES:
            side_file(target, side).unlink(missing_ok=True)
        _link(database, target)  # again: if the first was a copy instead of a link, it lacks the WAL's content
    sync_directory(backups)
    return target


def _drop_links(database: Path, backups: Path) -> None:
    """Remove second names of the current database left by a killed restore: they preserve nothing."""
    present = [file for side in DATABASE_FILE_SUFFIXES if (file := side_file(database, side)).exists()]
    for link in backups.glob(f"{REPLACED_PREFIX}*"):
        if any(link.samefile(file) for file in present):
            link.unlink()


def side_file(database: Path, side: str) -> Path:
    """Return the path of the database file with this suffix, one of `DATABASE_FILE_SUFFIXES`."""
    return database.with_name(database.name + side)


def _link(file: Path, target: Path) -> None:
    try:
        target.hardlink_to(file)
    except OSError:  # some file systems have no hard links
        shutil.copy2(file, target)


# --- copying rows into tables of our own -----------------------------------------------------------------------------


def _copy_backup_rows(source: Path, path: Path, *, should_stop: StopCheck = never_stop) -> None:
    """Create the database `path` with the same schema version as `source`, and copy all rows of its known columns."""
    hook.make_private_dir(str(path.parent))
    path.touch(0o600)
    with (
        external_db.translate_sqlite_errors(source),
        closing(apsw.Connection(external_db.sqlite_file_name(path), flags=_FLAGS)) as conn,
    ):
        external_db.harden_connection(conn)
        conn.pragma("journal_mode", "memory")  # if anything fails, the whole copy is discarded
        conn.pragma("synchronous", "off")
        conn.pragma("secure_delete", "on")  # content deleted later must not remain in pages freed here
        conn.execute("attach database ? as backup", (external_db.read_only_uri(source),))
        version = int(next(iter(external_db.fetch_tuples(conn, "pragma backup.user_version")))[0])
        engine.create_schema(conn, version)
        conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)  # derived rows are copied too
        conn.set_progress_handler(should_stop, PROGRESS_STEPS)
        known_schema = expected_schema(version)
        if "checks" in known_schema.columns:
            _check_version(conn, source, version)
        with conn:
            _copy_rows(conn, source, known_schema)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _check_version(conn: apsw.Connection, source: Path, version: int) -> None:
    """Raise an error if the recorded schema has another version: tables of later versions would be left out."""
    recorded = external_db.fetch_tuples(conn, "select text from backup.checks where name = 'schema'")
    if recorded and str(recorded[0][0]).partition(":")[0] != str(version):
        raise OperationFailed(
            f"{source} claims schema version {version}, but its tables are of another one", hint=_HINT
        )


def _copy_rows(conn: apsw.Connection, source: Path, known_schema: DatabaseSchema) -> None:
    backup_schema = read_schema(conn, "backup")
    for table, columns in known_schema.columns.items():
        missing = set(columns) - set(backup_schema.columns.get(table, ()))
        if missing:
            raise OperationFailed(f"{source} has no table `{table}` with {', '.join(sorted(missing))}", hint=_HINT)
        names = ", ".join(f'"{name}"' for name in columns)
        where = "where name != 'schema'" if table == "checks" else ""  # recorded by our migrations already
        try:
            conn.execute(
                f'insert into main."{table}" ({names}) select {names} from backup."{table}" not indexed {where}'
            )
        except (apsw.ConstraintError, apsw.MismatchError) as error:
            raise OperationFailed(f"{source} has invalid rows in `{table}`: {error}", hint=_HINT) from error
    _copy_sequence(conn)
    if known_schema.index:
        conn.execute(f"insert into {known_schema.index} ({known_schema.index}) values ('rebuild')")


def _copy_sequence(conn: apsw.Connection) -> None:
    """Copy the autoincrement counters, so that ids of deleted rows are not used again."""
    sequences = external_db.fetch_tuples(conn, "select name, seq from backup.sqlite_sequence")
    for name, number in sequences:
        if isinstance(number, int) and 0 <= number < MAX_ROW_ID:
            conn.execute("update sqlite_sequence set seq = max(seq, ?) where name = ?", (number, name))
            conn.execute(
                "insert into sqlite_sequence (name, seq) select t.name, ? from sqlite_schema t where t.type = 'table'"
                " and t.name = ? and t.sql like '%autoincrement%' and t.name not in (select name from sqlite_sequence)",
                (number, name),
            )


# --- schemas ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DatabaseSchema:
    """The schema of a database: the columns of its tables, and the normalized SQL of all objects."""

    columns: dict[str, tuple[str, ...]]
    objects: dict[tuple[str, str], str]
    index: str = ""  # name of the full-text table


@lru_cache(maxsize=4)
def expected_schema(version: int) -> DatabaseSchema:
    """Return the schema that our migrations create, up to a version."""
    with closing(apsw.Connection(":memory:")) as conn:
        engine.create_schema(conn, version)
        return read_schema(conn)


def read_schema(conn: apsw.Connection, name: str = "main") -> DatabaseSchema:
    """Read the schema of an open database. Generated columns are left out, since they store nothing."""
    kinds = {
        row[0]: row[1]
        for row in external_db.fetch_tuples(conn, "select name, type from pragma_table_list where schema = ?", (name,))
    }
    columns = {
        table: tuple(row[0] for row in external_db.fetch_tuples(conn, _SELECT_COLUMNS, (table, name)))
        for table, kind in kinds.items()
        if kind == "table" and not table.startswith("sqlite_")
    }
    definitions = external_db.fetch_tuples(conn, f'select type, name, sql from "{name}".sqlite_schema')
    shadows = {table for table, kind in kinds.items() if kind == "shadow"}
    objects = {
        (kind, object_name): _normalize_sql(sql or "")
        for kind, object_name, sql in definitions
        if not str(object_name).startswith("sqlite_") and object_name not in shadows
    }
    virtual = [table for table, kind in kinds.items() if kind == "virtual"]
    return DatabaseSchema(columns, objects, virtual[0] if virtual else "")


def _normalize_sql(sql: str) -> str:
    """Remove comments and layout, which may differ between databases of the same schema. A comment without an end stays."""
    return " ".join(_COMMENTS.sub(r" \1", str(sql)).split()).replace('"', "").lower()


def _find_unexpected_objects(conn: apsw.Connection, version: int) -> list[str]:
    """Return the triggers, views, tables, indexes and altered definitions that our migrations do not create."""
    known_schema = expected_schema(version)
    actual = read_schema(conn)
    differences = [
        f"{kind} {name}{' (altered)' if (kind, name) in known_schema.objects else ''}"
        for (kind, name), sql in actual.objects.items()
        if known_schema.objects.get((kind, name)) != sql
    ]
    return sorted(differences)
