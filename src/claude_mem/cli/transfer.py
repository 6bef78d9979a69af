"""import, export, backup, restore: move memories between machines, and protect them against loss."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import date
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec import structs

from claude_mem import hook
from claude_mem.cli import output
from claude_mem.cli.search import parse_date
from claude_mem.client import Client
from claude_mem.config import Config, load_lenient
from claude_mem.domain import export_format
from claude_mem.domain.errors import (
    ClaudeMemError,
    DataDirLocked,
    InvalidRequest,
    NotFound,
    OperationFailed,
    UnreadableEvent,
)
from claude_mem.system import data_directory, process
from claude_mem.system.audit_log import AuditLog
from claude_mem.worker.http.endpoints import ById, NoFields
from claude_mem.worker.http.schemas.transfer import (
    CREATE_BACKUP,
    LIST_BACKUPS,
    SHOW_IMPORT,
    START_IMPORT,
    BackupRequest,
    ImportRequest,
    ImportStatus,
    ListedBackup,
)

if TYPE_CHECKING:
    from claude_mem.storage.files import DatabaseFiles

SECONDS = 600.0  # for one response: a large database takes time
LOOK_SECONDS = 0.1
MAX_STRANGE_SHOWN = 5
_JSON = "print one JSON object"
EXPORT_NAMES = "claude-mem-*.jsonl"  # exports with a default name
KINDS = {"project": "projects", "session": "sessions", "prompt": "prompts", "observation": "observations"}
KINDS |= {"summary": "summaries", "line": "lines", "file": "files"}
OUTCOMES = {"added": "added", "changed": "updated", "known": "already present", "forgotten": "forgotten here"}


def add_commands(commands: Any) -> None:
    """Add `import`, `export`, `backup` and `restore`."""
    _add_import(commands)
    _add_export(commands)
    _add_backup(commands)
    _add_restore(commands)


def _add_import(commands: Any) -> None:
    import_ = commands.add_parser(
        "import",
        help="import an export, or the database of the TypeScript claude-mem",
        epilog="The type of the file is detected from its content. Importing a file again adds nothing, and forgotten"
        " records do not come back. The worker imports in the background; Ctrl-C only stops the progress display.",
    )
    import_.add_argument(
        "path",
        nargs="?",
        default="",
        metavar="PATH",
        help="file to import (default: the TypeScript claude-mem's database in its usual place)",
    )
    import_.add_argument("--project", default="", metavar="P", help="only this project, by its name in the file")
    import_.add_argument(
        "--untrusted", action="store_true", help="import as untrusted: found by search, but never injected"
    )
    import_.add_argument("--dry-run", action="store_true", help="only count; import nothing")
    import_.add_argument("--json", action="store_true", help=_JSON)
    import_.set_defaults(run=import_memories)


def _add_export(commands: Any) -> None:
    export_ = commands.add_parser(
        "export",
        help="export memories to a JSON Lines file",
        epilog="The file contains everything except private and forgotten text, and is readable only by you (0600)."
        " Without FILE it is written to `exports/` in the data directory, never to the current directory.",
    )
    export_.add_argument(
        "file",
        nargs="?",
        default="",
        metavar="FILE",
        help="output file, `-` for stdout (default: a name with the date, in `exports/`)",
    )
    export_.add_argument(
        "--project", default="", metavar="P", help="only this project (see `claude-mem list projects`)"
    )
    export_.add_argument("--query", default="", metavar="TEXT", help="only the results of this search")
    export_.add_argument(
        "--since", type=parse_date, metavar="DATE", help="only from this date on: 2026-01-31 or 2026-01-31T14:00"
    )
    export_.add_argument("--until", type=parse_date, metavar="DATE", help="only up to this date, inclusive")
    export_.set_defaults(run=export)


def _add_backup(commands: Any) -> None:
    backup_ = commands.add_parser(
        "backup",
        help="back up the database while it is in use, and verify the copy",
        epilog="A backup also contains what you forget later; delete backups that you no longer want.",
    )
    backup_.add_argument(
        "path",
        nargs="?",
        default="",
        metavar="PATH",
        help="a file or a directory (default: `backups/` in the data directory)",
    )
    backup_.add_argument("--list", action="store_true", help="list the backups, newest first")
    backup_.add_argument("--drill", action="store_true", help="also test the backup by restoring it temporarily")
    backup_.add_argument("--json", action="store_true", help="print one JSON object (with --list: one per line)")
    backup_.set_defaults(run=backup)


def _add_restore(commands: Any) -> None:
    restore_ = commands.add_parser(
        "restore",
        help="replace the database by a backup; the current database is kept",
        epilog="Memories newer than the backup are only in the current database, which is saved as a backup first.",
    )
    restore_.add_argument("path", metavar="PATH", help="a backup file, or its name as in `claude-mem backup --list`")
    restore_.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    restore_.add_argument(
        "--with-forgotten",
        action="store_true",
        help="restore even if later deletions can't be applied again, because `forget.key` is lost",
    )
    restore_.set_defaults(run=restore)


# --- import ----------------------------------------------------------------------------------------------------------


def import_memories(options: argparse.Namespace) -> int:
    """Import an export or the TypeScript database, and show the progress and the counts."""
    config = load_lenient().config
    path = Path(options.path).expanduser().absolute() if options.path else _default_import_path(config)
    if not path.is_file():
        raise NotFound(f"no such file: {path}", hint="give an export or a database of the TypeScript claude-mem")
    client = Client(process.ensure_worker(config.data_dir), seconds=SECONDS)
    request = ImportRequest(str(path), project=options.project, untrusted=options.untrusted, dry_run=options.dry_run)
    status = _watch(client, client.call(START_IMPORT, request).id)
    if options.json:
        names = ("path", "source", "dry_run", "counts", "notes", "error")
        output.json({name: getattr(status, name) for name in names})
    else:
        _show_import(status)
    if status.error:
        raise OperationFailed(status.error, hint="fix the cause and import again; nothing is added twice")
    return 0


def _default_import_path(config: Config) -> Path:
    """Return the path of the TypeScript claude-mem's database. It may be in our data directory, under the name that our
    database has otherwise."""
    from claude_mem.storage.external_db import is_foreign_database

    places = (config.database, Path.home() / ".claude-mem" / "claude-mem.db")
    for path in places:
        if path.is_file() and is_foreign_database(path):
            return path
    raise NotFound(
        f"no database of the TypeScript claude-mem in {' or '.join(sorted({str(path.parent) for path in places}))}",
        hint="give its path: `claude-mem import PATH`",
    )


def _watch(client: Client, import_id: int) -> ImportStatus:
    with output.progress() as advance:
        while True:
            status = client.call(SHOW_IMPORT, ById(import_id))
            advance("importing", status.done, status.total)
            if status.ended_at is not None or status.error:
                return status
            time.sleep(LOOK_SECONDS)


def _show_import(status: ImportStatus) -> None:
    label = "export" if status.source == "export" else "database of the TypeScript claude-mem"
    output.line(f"{status.path} ({label}){': dry run, nothing imported' if status.dry_run else ''}")
    counts = {outcome: status.counts.get(outcome, {}) for outcome in OUTCOMES}
    for outcome, text in OUTCOMES.items():
        if counts[outcome] or outcome == "added":
            output.line(f"{text + ':':<20}{_amounts(counts[outcome]) or 'nothing'}")
    aside = {reason: kinds for reason, kinds in status.counts.items() if reason not in OUTCOMES}
    for reason, kinds in sorted(aside.items()):
        output.line(f"{'set aside:':<20}{_amounts(kinds)} ({reason})")
    for note in status.notes:
        output.info(f"  {note}")


def _amounts(kinds: dict[str, int]) -> str:
    return ", ".join(
        f"{kinds[kind]:,} {kind if kinds[kind] == 1 else name}" for kind, name in KINDS.items() if kinds.get(kind)
    )


# --- export ----------------------------------------------------------------------------------------------------------


def export(options: argparse.Namespace) -> int:
    """Write the selected memories to a file or to stdout."""
    config = load_lenient().config
    narrow = {name: getattr(options, name) for name in ("project", "query", "since", "until")}
    if options.file == "-":
        _copy(_export_lines(config, narrow), sys.stdout.buffer)
        return 0
    path = Path(options.file).expanduser().absolute() if options.file else _default_export(config)
    records = write_export(path, config, **narrow)
    output.line(f"exported {records:,} records to {path} (readable only by you)")
    return 0


def write_export(path: Path, config: Config, **narrow: str) -> int:
    """Export the memories, restricted by `narrow`, to a file. Returns the number of records."""
    _check_may_replace(path)
    with _new_file(path) as file:
        return _copy(_export_lines(config, narrow), file)


def _export_lines(config: Config, narrow: Mapping[str, str]) -> Iterator[bytes]:
    return Client(process.ensure_worker(config.data_dir), seconds=SECONDS).lines("/api/export", **narrow)


def _default_export(config: Config) -> Path:
    """Return a path in `exports/`, never in the current directory: that is usually a repository, and exports are
    private."""
    try:
        hook.make_private_dir(str(config.exports))
    except OSError as error:
        raise OperationFailed(f"can't create {config.exports}: {error.strerror}", hint="give a file name") from error
    return unused_export_path(config.exports)


def unused_export_path(folder: Path) -> Path:
    """Return a path for an export that does not exist yet."""
    stem = f"claude-mem-{date.today().isoformat()}"
    names = chain([stem], (f"{stem}-{number}" for number in count(2)))
    return next(path for name in names if not os.path.lexists(path := folder / f"{name}.jsonl"))


def remind_of_exports(config: Config) -> None:
    """After an erasure, remind that exports are the user's own copies and still contain the erased text."""
    if any(config.exports.glob("*")):
        output.info(f"earlier exports are not changed; delete those in {config.exports} that you no longer want")


def _check_may_replace(path: Path) -> None:
    """Raise unless the path is free or an earlier export: an export replaces nothing else."""
    try:
        if path.is_dir():
            raise InvalidRequest(f"{path} is a directory", hint="give a file name")
        if not path.parent.is_dir():
            raise NotFound(f"no such directory: {path.parent}", hint="create it first, or use another one")
        if not path.exists():
            return
        if not path.is_file():
            raise InvalidRequest(f"{path} is not a regular file", hint="give another file, or `-` for stdout")
        with path.open("rb") as file:
            first = file.readline(1 << 16)
    except OSError as error:
        raise _cannot_write(path, error) from error
    if first and export_format.decode_header(first) is None:
        raise InvalidRequest(f"{path} already exists and is not an export", hint="give another file name")


def _cannot_write(path: Path, error: OSError) -> OperationFailed:
    hint = "use a directory that is writable and has free space"
    return OperationFailed(f"can't write {path}: {error.strerror or error}", hint=hint)


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Write a file atomically: it appears under its name complete or not at all."""
    temp = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temp.rename(path)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            temp.unlink()


def _copy(lines: Iterator[bytes], file: BinaryIO) -> int:
    """Write the lines and return the number of records. Raise if the final line, which states it, is missing."""
    last = b""
    with output.progress() as advance:
        for number, last in enumerate(lines, start=1):
            file.write(last)
            if not number % 500:
                advance("writing", number, 0)
    file.flush()
    try:
        end = export_format.decode_line(last)
    except UnreadableEvent:
        end = None
    if not isinstance(end, export_format.ExportEnd):
        raise OperationFailed(
            "the export is incomplete: the worker stopped", hint="see `claude-mem logs`, then export again"
        )
    return end.records


# --- backup ----------------------------------------------------------------------------------------------------------


def backup(options: argparse.Namespace) -> int:
    """Back up the database and verify the copy, or list the backups."""
    from claude_mem.storage.files import DatabaseFiles

    config = load_lenient().config
    files = DatabaseFiles(config)
    if options.list:
        return _list_backups(_backups(files), as_json=options.json)
    target = _target(options.path)
    client = Client(process.ensure_worker(config.data_dir), seconds=SECONDS)
    result = client.call(CREATE_BACKUP, BackupRequest(digest=options.drill))
    path = config.backups / Path(result.path).name  # the directory's name may not be representable in JSON
    if target is not None:
        path = _move(path, target / path.name if target.is_dir() else target)
    verification = files.examine_backup(path)
    if verification.counts != result.counts:
        raise OperationFailed(
            f"{path} does not contain every row of the database", hint="make another one, and report this"
        )
    if options.drill and files.digest_restored(path) != result.digest:
        raise OperationFailed(f"{path} does not restore all memories", hint="make another one, and report this")
    if options.json:
        output.json({**asdict(verification), "drilled": options.drill})
    else:
        _show_backup(verification.counts, path, verification.size, drilled=options.drill)
    return 0


def _backups(files: DatabaseFiles) -> list[ListedBackup]:
    """List the backups, with their test restores if a worker is running. No worker is started for this."""
    worker = process.running_worker(files.data_dir)
    if worker:
        with suppress(ClaudeMemError):
            return Client(worker).call(LIST_BACKUPS, NoFields())
    return [ListedBackup(**structs.asdict(file)) for file in files.list_backups()]


def _target(value: str) -> Path | None:
    if not value:
        return None
    path = Path(value).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise InvalidRequest(f"{path} already exists", hint="give a new file name or a directory")
    if not path.parent.is_dir():
        raise NotFound(f"no such directory: {path.parent}", hint="create it first, or use another one")
    return path


def _move(path: Path, target: Path) -> Path:
    """Move the backup to its target. The worker itself writes only into its own directory."""
    with path.open("rb") as source, _new_file(target) as file:
        shutil.copyfileobj(source, file, 1 << 20)
    path.unlink()
    return target


def _show_backup(counts: dict[str, int], path: Path, size: int, *, drilled: bool) -> None:
    output.line(f"backed up to {path}: {output.format_size(size)}, verified, complete")
    if drilled:
        output.line("test restore: all memories came back")
    output.line(_format_counts(counts))


def _format_counts(counts: dict[str, int]) -> str:
    names = {"sdk_sessions": "sessions", "user_prompts": "prompts", "session_summaries": "summaries"}
    return ", ".join(f"{names.get(table, table)} {count:,}" for table, count in counts.items())


def _list_backups(backups: list[ListedBackup], *, as_json: bool) -> int:
    if as_json:
        output.json_lines(backups)
    elif not backups:
        output.info("no backups yet; run `claude-mem backup` to make one")
    else:
        output.table(("name", "made", "size", "observations", "test restore"), map(_backup_row, backups))
    return 0


def _backup_row(row: ListedBackup) -> tuple[object, ...]:
    """Return the cells of a backup. The age of its test restore is empty if that failed or has not taken place."""
    drill = row.drill
    return (
        row.name,
        output.format_age(row.made_at),
        output.format_size(row.size),
        row.problem or row.observations,
        output.format_age(drill.at) if drill and drill.ok else "",
    )


# --- restore ---------------------------------------------------------------------------------------------------------


def restore(options: argparse.Namespace) -> int:
    """Verify a backup and replace the database by it; the current database is kept."""
    from claude_mem.storage.files import DatabaseFiles

    config = load_lenient().config
    files = DatabaseFiles(config)
    path = _resolve_backup(options.path, config)
    verification = files.examine_backup(path)
    output.info(f"{path} is intact: {_format_counts(verification.counts)}")
    if verification.strange:
        output.info(f"skipping what claude-mem did not create: {', '.join(verification.strange[:MAX_STRANGE_SHOWN])}")
    if not options.with_forgotten:
        _check_forgotten(path, files)
    if not options.yes and not output.ask("Replace the current memory by this backup? (the current one is kept)"):
        output.info("nothing was changed (use `--yes` to skip the question)")
        return 1
    with files.prepare_restore(path) as fresh:
        lock = _stop_and_lock(config)
        try:
            _delete_prepared_contexts(config)
            previous = files.replace(fresh)
            AuditLog(config.data_dir).append("restored", bytes=verification.size)
        finally:
            lock.release()
    process.ensure_worker(config.data_dir)
    output.line(f"restored {path}; the worker is running again")
    if previous:
        output.line(f"the previous database is kept as {previous}")
    return 0


def _check_forgotten(path: Path, files: DatabaseFiles) -> None:
    """Raise if the key is lost that the worker needs to repeat the deletions made since the backup."""
    if count := files.count_uncheckable_tombstones(path):
        raise OperationFailed(
            f"{path} may contain text that was forgotten later ({count:,} tombstones), and it can't be deleted again"
            f" because {data_directory.KEY_FILE} is lost; nothing was changed",
            hint="use a newer backup, or add --with-forgotten and forget the text again yourself",
        )


def _delete_prepared_contexts(config: Config) -> None:
    """Delete the cached start contexts: they may contain what the backup does not. The worker renders them again."""
    for path in config.starts.glob("*"):
        path.unlink(missing_ok=True)


def _resolve_backup(name: str, config: Config) -> Path:
    path = Path(name).expanduser()
    inside = config.backups / name
    return inside if not path.exists() and path.name == name and inside.exists() else path.absolute()


def _stop_and_lock(config: Config) -> process.DataDirLock:
    """Stop the worker and take the lock, so that none can start. Repeats if a hook starts a worker in between."""
    for _ in range(5):
        process.stop_worker(config.data_dir)
        try:
            return process.take_lock(config.data_dir)
        except DataDirLocked:
            continue
    raise DataDirLocked("the worker keeps restarting", hint="close all running agents, then try again")
