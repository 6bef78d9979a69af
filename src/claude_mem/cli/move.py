"""import, export, backup, restore: memories that come, go, and are kept safe."""

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
from typing import Any, BinaryIO

from claude_mem import hook, own_files, portable, process
from claude_mem.auditlog import AuditLog
from claude_mem.cli import output
from claude_mem.cli.find import date as date_
from claude_mem.cli.run import database
from claude_mem.client import Client
from claude_mem.config import Config, load_forgiving
from claude_mem.errors import BadRecord, CannotDo, MemError, Misuse, NotFound, WorkerHeld

SECONDS = 600.0  # for one answer: a large database takes its time
LOOK_SECONDS = 0.1
MAX_STRANGE_SHOWN = 5
_JSON = "one JSON object"
EXPORT_NAMES = "claude-mem-*.jsonl"  # of exports that were given no name
KINDS = {"project": "projects", "session": "sessions", "prompt": "prompts", "observation": "observations"}
KINDS |= {"summary": "summaries", "line": "lines", "file": "files"}
OUTCOMES = {"added": "new", "changed": "brought up to date", "known": "here already", "forgotten": "forgotten here"}


def add_commands(commands: Any) -> None:
    _add_import(commands)
    export_ = commands.add_parser(
        "export",
        help="write what is remembered to a file: JSON Lines, for another machine or another program",
        epilog="Nothing private and nothing forgotten is in it, but all the rest is: the file is yours alone (0600)."
        " Without FILE it goes into `exports/` in the data directory, never into the current folder.",
    )
    export_.add_argument(
        "file", nargs="?", default="", metavar="FILE", help="`-`: stdout (default: a name with the date, in `exports/`)"
    )
    export_.add_argument("--project", default="", metavar="P", help="only of this project (`claude-mem list projects`)")
    export_.add_argument("--query", default="", metavar="TEXT", help="only what a search for this finds")
    export_.add_argument("--since", type=date_, metavar="DATE", help="not older: 2026-01-31, or with a time")
    export_.add_argument("--until", type=date_, metavar="DATE", help="not newer; a day counts to its end")
    export_.set_defaults(run=export)
    backup_ = commands.add_parser(
        "backup",
        help="copy the whole database while it is in use, and check the copy",
        epilog="The copy holds everything, forgotten things of later days too: delete those you no longer want.",
    )
    backup_.add_argument(
        "path", nargs="?", default="", metavar="PATH", help="a file or a folder (default: our backups/)"
    )
    backup_.add_argument("--list", action="store_true", help="the backups there are, newest first")
    backup_.add_argument("--drill", action="store_true", help="also restore it into a folder that is thrown away")
    backup_.add_argument("--json", action="store_true", help="one JSON object (--list: one a line)")
    backup_.set_defaults(run=backup)
    restore_ = commands.add_parser(
        "restore",
        help="put a backup in place of the present database, which is kept",
        epilog="What was remembered since the backup is not in it; it stays in the database that is kept.",
    )
    restore_.add_argument("path", metavar="PATH", help="a backup, or its name as in `claude-mem backup --list`")
    restore_.add_argument("--yes", action="store_true", help="never ask")
    restore_.add_argument(
        "--with-forgotten",
        action="store_true",
        help="also where it can't be told what was forgotten since, because `forget.key` is lost",
    )
    restore_.set_defaults(run=restore)


def _add_import(commands: Any) -> None:
    import_ = commands.add_parser(
        "import",
        help="bring in an export, or the memories of the claude-mem written in TypeScript",
        epilog="What the file is, is told by what is in it. A second time adds nothing; what was forgotten here does"
        " not come back. The worker does it, a little at a time; ^C only ends the watching.",
    )
    import_.add_argument(
        "path",
        nargs="?",
        default="",
        metavar="PATH",
        help="default: the older one's database in its usual place",
    )
    import_.add_argument("--project", default="", metavar="P", help="only of this project, as it is called there")
    import_.add_argument(
        "--untrusted", action="store_true", help="someone else's: found when searched for, never told unasked"
    )
    import_.add_argument("--dry-run", action="store_true", help="only count; nothing is kept")
    import_.add_argument("--json", action="store_true", help=_JSON)
    import_.set_defaults(run=import_memories)


# --- import ----------------------------------------------------------------------------------------------------------


def import_memories(options: argparse.Namespace) -> int:
    config = load_forgiving().config
    path = Path(options.path).expanduser().absolute() if options.path else _default_import_path(config)
    if not path.is_file():
        raise NotFound(f"there is no file {path}", hint="name an export or a database of the older claude-mem")
    client = Client(process.start(config.data_dir), seconds=SECONDS)
    params = {"path": str(path), "project": options.project, "untrusted": options.untrusted, "dry_run": options.dry_run}
    status = _watch(client, client.post("/api/import", params)["id"])
    if options.json:
        names = ("path", "source", "dry_run", "counts", "notes", "error")
        output.json({name: status[name] for name in names})
    else:
        _show_import(status)
    if status["error"]:
        raise CannotDo(status["error"], hint="mend the cause and import again: what is here already is not added twice")
    return 0


def _default_import_path(config: Config) -> Path:
    """Where the older one keeps its database. It may be our own folder, under the name ours has elsewhere."""
    from claude_mem.store.database import is_foreign

    places = (config.database, Path.home() / ".claude-mem" / "claude-mem.db")
    for path in places:
        if path.is_file() and is_foreign(path):
            return path
    raise NotFound(
        f"no database of an older claude-mem in {' or '.join(sorted({str(path.parent) for path in places}))}",
        hint="name it: `claude-mem import PATH`",
    )


def _watch(client: Client, import_id: int) -> dict[str, Any]:
    with output.progress() as advance:
        while True:
            status: dict[str, Any] = client.get(f"/api/import/{import_id}")
            advance("reading", status["done"], status["total"])
            if status["ended_at"] is not None or status["error"]:
                return status
            time.sleep(LOOK_SECONDS)


def _show_import(status: dict[str, Any]) -> None:
    label = "an export" if status["source"] == "export" else "an older claude-mem's database"
    output.line(f"{status['path']}: {label}{', only counted' if status['dry_run'] else ''}")
    counts = {outcome: status["counts"].get(outcome, {}) for outcome in OUTCOMES}
    for outcome, text in OUTCOMES.items():
        if counts[outcome] or outcome == "added":
            output.line(f"{text + ':':<20}{_amounts(counts[outcome]) or 'nothing'}")
    aside = {reason: kinds for reason, kinds in status["counts"].items() if reason not in OUTCOMES}
    for reason, kinds in sorted(aside.items()):
        output.line(f"{'set aside:':<20}{_amounts(kinds)} ({reason})")
    for note in status["notes"]:
        output.say(f"  {note}")


def _amounts(kinds: dict[str, int]) -> str:
    return ", ".join(
        f"{kinds[kind]:,} {kind if kinds[kind] == 1 else name}" for kind, name in KINDS.items() if kinds.get(kind)
    )


# --- export ----------------------------------------------------------------------------------------------------------


def export(options: argparse.Namespace) -> int:
    config = load_forgiving().config
    narrow = {name: getattr(options, name) for name in ("project", "query", "since", "until")}
    if options.file == "-":
        _copy(_export_lines(config, narrow), sys.stdout.buffer)
        return 0
    path = Path(options.file).expanduser().absolute() if options.file else _default_export(config)
    records = write_export(path, config, **narrow)
    output.line(f"{records:,} records in {path}, readable by you alone")
    return 0


def write_export(path: Path, config: Config, **narrow: str) -> int:
    """Write what is remembered, or what `narrow` leaves of it, to a file; the number of records."""
    _check_may_replace(path)
    with _new_file(path) as file:
        return _copy(_export_lines(config, narrow), file)


def _export_lines(config: Config, narrow: Mapping[str, str]) -> Iterator[bytes]:
    return Client(process.start(config.data_dir), seconds=SECONDS).lines("/api/export", **narrow)


def _default_export(config: Config) -> Path:
    """Never in the current folder: that is usually a repository, and the file holds private memories."""
    try:
        hook.make_private(str(config.exports))
    except OSError as error:
        raise CannotDo(f"{config.exports} can't be made: {error.strerror}", hint="name a file") from error
    return unused_name(config.exports)


def unused_name(folder: Path) -> Path:
    """A name for an export that takes the place of nothing."""
    stem = f"claude-mem-{date.today().isoformat()}"
    names = chain([stem], (f"{stem}-{number}" for number in count(2)))
    return next(path for name in names if not os.path.lexists(path := folder / f"{name}.jsonl"))


def mention_exports(config: Config) -> None:
    """After something was taken out of the memory: exports are a person's own copies and keep it."""
    if any(config.exports.glob("*")):
        output.say(f"exports made before are not changed; delete those in {config.exports} that you no longer want")


def _check_may_replace(path: Path) -> None:
    """An export may take the place of an earlier one, and of nothing else."""
    try:
        if path.is_dir():
            raise Misuse(f"{path} is a folder", hint="name a file in it")
        if not path.parent.is_dir():
            raise NotFound(f"there is no folder {path.parent}", hint="make it first, or name a file in another one")
        if not path.exists():
            return
        if not path.is_file():
            raise Misuse(f"{path} is no ordinary file", hint="name another one, or `-` for stdout")
        with path.open("rb") as file:
            first = file.readline(1 << 16)
    except OSError as error:
        raise _cannot_write(path, error) from error
    if first and portable.read_header(first) is None:
        raise Misuse(f"{path} is there already, and no export", hint="name another file")


def _cannot_write(path: Path, error: OSError) -> CannotDo:
    hint = "name a file in a folder that you may write to and that has room"
    return CannotDo(f"{path} can't be written: {error.strerror or error}", hint=hint)


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """All of it under its name, or nothing."""
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
    """How many records there were; an error if the last line is not the one that says so."""
    last = b""
    with output.progress() as advance:
        for number, last in enumerate(lines, start=1):
            file.write(last)
            if not number % 500:
                advance("writing", number, 0)
    file.flush()
    try:
        end = portable.read(last)
    except BadRecord:
        end = None
    if not isinstance(end, portable.End):
        raise CannotDo("the worker broke off in the middle", hint="`claude-mem logs` may say why; then export again")
    return end.records


# --- backup ----------------------------------------------------------------------------------------------------------


def backup(options: argparse.Namespace) -> int:
    from claude_mem.store import backup as copies

    config = load_forgiving().config
    if options.list:
        return _list_backups(_backups(config), as_json=options.json)
    target = _target(options.path)
    client = Client(process.start(config.data_dir), seconds=SECONDS)
    result = client.post("/api/backup", {"digest": options.drill})
    path = config.backups / Path(result["path"]).name  # the folder's own name may be no text that JSON could carry
    if target is not None:
        path = _move(path, target / path.name if target.is_dir() else target)
    verification = copies.check(path)
    if verification.counts != result["counts"]:
        raise CannotDo(f"{path} has not all the rows that the database has", hint="make another one, and report this")
    if options.drill:
        _drill(path, config, result["digest"])
    if options.json:
        output.json({**asdict(verification), "drilled": options.drill})
    else:
        _show_backup(verification.counts, path, verification.size, drilled=options.drill)
    return 0


def _backups(config: Config) -> list[dict[str, Any]]:
    """With how each stood its drill, if a worker runs: only to tell that, none is started."""
    from claude_mem.store import backup as copies

    worker = process.running(config.data_dir)
    try:
        backups: list[dict[str, Any]] = Client(worker).get("/api/backup") if worker else copies.listing(config.backups)
    except MemError:
        backups = copies.listing(config.backups)
    return backups


def _target(value: str) -> Path | None:
    if not value:
        return None
    path = Path(value).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise Misuse(f"{path} is there already", hint="name a file that is not, or a folder")
    if not path.parent.is_dir():
        raise NotFound(f"there is no folder {path.parent}")
    return path


def _move(path: Path, target: Path) -> Path:
    """The worker writes into its own folder only; from there it is ours to move."""
    with path.open("rb") as source, _new_file(target) as file:
        shutil.copyfileobj(source, file, 1 << 20)
    path.unlink()
    return target


def _drill(path: Path, config: Config, digest: str) -> None:
    """Restore it for a try: does everything come back that was remembered when it was made?"""
    from claude_mem.store import backup as copies
    from claude_mem.store.database import open_reader

    with copies.prepared(path, config.backups) as fresh:
        conn = open_reader(fresh)
        try:
            restored_digest = copies.remembered(conn)
        finally:
            conn.close()
    if restored_digest != digest:
        raise CannotDo(f"{path} does not bring back what is remembered", hint="make another one, and report this")


def _show_backup(counts: dict[str, int], path: Path, size: int, *, drilled: bool) -> None:
    output.line(f"{path}: {output.size(size)}, sound, every row of the database is in it")
    if drilled:
        output.line("restored for a try: everything that is remembered came back")
    output.line(_format_counts(counts))


def _format_counts(counts: dict[str, int]) -> str:
    names = {"sdk_sessions": "sessions", "user_prompts": "prompts", "session_summaries": "summaries"}
    return ", ".join(f"{names.get(table, table)} {count:,}" for table, count in counts.items())


def _list_backups(backups: list[dict[str, Any]], *, as_json: bool) -> int:
    if as_json:
        output.json_lines(backups)
    elif not backups:
        output.say("no backups yet: `claude-mem backup` makes one")
    else:
        output.table(
            ("name", "made", "size", "observations", "proven"),
            [
                (
                    row["name"],
                    output.when(row["made_at"]),
                    output.size(row["size"]),
                    row.get("problem") or row["observations"],
                    _drill_age(row.get("drill")),
                )
                for row in backups
            ],
        )
    return 0


def _drill_age(drill: dict[str, Any] | None) -> str:
    """Those that the worker makes are restored for a try at once."""
    return output.when(drill["at"]) if drill and drill["ok"] else ""


# --- restore ---------------------------------------------------------------------------------------------------------


def restore(options: argparse.Namespace) -> int:
    from claude_mem.store import backup as copies

    config = load_forgiving().config
    path = _resolve_backup(options.path, config)
    verification = copies.check(path)
    output.say(f"{path} is sound: {_format_counts(verification.counts)}")
    if verification.strange:
        output.say(f"not made by claude-mem, and left out: {', '.join(verification.strange[:MAX_STRANGE_SHOWN])}")
    if not options.with_forgotten:
        _check_forgotten(path, config)
    if not options.yes and not output.ask("put it in place of the present memory, which is kept?"):
        output.say("nothing was changed (`--yes` does it without asking)")
        return 1
    with copies.prepared(path, config.data_dir) as fresh:
        lock = _stop_and_lock(config)
        try:
            _delete_prepared_contexts(config)
            previous = copies.swap(fresh, database(config), config.backups)
            AuditLog(config.data_dir).append("restored", bytes=verification.size)
        finally:
            lock.release()
    process.start(config.data_dir)
    output.line(f"restored from {path}; the worker is running again")
    if previous:
        output.line(f"what was there before is kept as {previous}")
    return 0


def _check_forgotten(path: Path, config: Config) -> None:
    """The worker forgets again what was forgotten since a backup was made, unless the key to it is lost."""
    from claude_mem.store import backup as copies

    if count := copies.uncheckable(path, config.data_dir):
        raise CannotDo(
            f"{path} may hold what was forgotten since ({count:,} tombstones), and {own_files.KEY} is lost, so it could"
            " not be forgotten again; nothing was changed",
            hint="take a later backup; or add --with-forgotten, and forget it again by hand",
        )


def _delete_prepared_contexts(config: Config) -> None:
    """What lies ready to be told may no longer be remembered. The worker makes it anew."""
    for path in config.starts.glob("*"):
        path.unlink(missing_ok=True)


def _resolve_backup(name: str, config: Config) -> Path:
    path = Path(name).expanduser()
    inside = config.backups / name
    return inside if not path.exists() and path.name == name and inside.exists() else path.absolute()


def _stop_and_lock(config: Config) -> process.Lock:
    """No worker runs, and none can start while we hold this. A hook may have started one just now: stop it, too."""
    for _ in range(5):
        process.stop(config.data_dir)
        try:
            return process.take_lock(config.data_dir)
        except WorkerHeld:
            continue
    raise WorkerHeld("the data directory is in use again and again", hint="close the agents that run, then try again")
