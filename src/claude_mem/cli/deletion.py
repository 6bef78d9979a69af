"""Delete the whole memory permanently: show its size, offer an export, and require an explicit yes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from claude_mem import process
from claude_mem.cli import move, output
from claude_mem.cli.run import database, waiting
from claude_mem.client import Client
from claude_mem.config import Config
from claude_mem.errors import CannotDo, MemError

STATS_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Inventory:
    """The contents of the data directory. `observations` and `sessions` are None if the database can't be read."""

    observations: int | None
    sessions: int | None
    backups: int
    exports: int
    waiting: int  # events that are captured but not yet in the database

    @property
    def is_empty(self) -> bool:
        return self == Inventory(0, 0, 0, 0, 0)

    @property
    def is_worth_exporting(self) -> bool:
        return (self.observations, self.sessions, self.waiting) != (0, 0, 0)

    def __str__(self) -> str:
        if self.observations is None or self.sessions is None:
            parts = ["an unknown number of memories (the database can't be read)"]
        else:
            parts = [output.plural(self.observations, "observation"), output.plural(self.sessions, "session")]
        parts += [output.plural(self.waiting, "unprocessed event")] if self.waiting else []
        parts += [output.plural(self.backups, "backup")]
        parts += [output.plural(self.exports, "export")] if self.exports else []
        return f"{', '.join(parts[:-1])} and {parts[-1]}"


def inventory(config: Config) -> Inventory:
    """Count what would be deleted, with or without a running worker."""
    from claude_mem.store import backup

    try:
        counts = _table_counts(config)
    except (MemError, OSError):
        counts = {"observations": None, "sdk_sessions": None}
    return Inventory(
        observations=counts["observations"],
        sessions=counts["sdk_sessions"],
        backups=len(backup.listing(config.backups)),
        exports=len(list(config.exports.glob(move.EXPORT_NAMES))),
        waiting=waiting(config),
    )


def _table_counts(config: Config) -> dict[str, int | None]:
    from claude_mem.store import account, foreign

    worker = process.running(config.data_dir)
    if worker is not None:
        try:
            counts: dict[str, int | None] = Client(worker, seconds=STATS_SECONDS).get("/api/stats")["database"]
            return counts
        except MemError:
            pass  # the worker hangs or is stopping: read the file instead
    path = database(config)
    if not path.exists():
        return {"observations": 0, "sdk_sessions": 0}
    with foreign.reading(path) as conn:
        return account.counts(conn)


@dataclass(frozen=True, slots=True)
class Decision:
    delete: bool
    export: Path | None = None


def decide(config: Config, *, requested: bool) -> Decision:
    """Ask whether to delete the memory, and offer to export it first. `requested` means `--delete-data` was given; the
    user must still confirm the amount. If the export fails, raise an error and delete nothing."""
    content = inventory(config)
    output.say(f"{config.data_dir} contains {'no memories' if content.is_empty else content}")
    if not requested and not output.ask("Delete this data, too?"):
        return Decision(delete=False)
    export = _offer_export(config) if content.is_worth_exporting else None
    delete = output.ask(f"Permanently delete {'the directory' if content.is_empty else content}?")
    return Decision(delete, export)


def _offer_export(config: Config) -> Path | None:
    """Export to the home directory: the data directory is about to be deleted."""
    path = move.unused_name(Path.home())
    if not output.ask(f"Export the memories to {output.path(path)} first?", default=True):
        return None
    try:
        records = move.write_export(path, config)
    except MemError as problem:
        raise CannotDo(f"the export failed, so nothing was deleted: {problem}", hint=problem.hint) from problem
    output.line(f"exported {records:,} records to {path} (readable only by you)")
    return path
