"""install, uninstall: connect the agents, and remove every trace from their files again.

Memories are deleted only on request: the user is shown how many there are, is offered an export, and must say yes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claude_mem import hook
from claude_mem.agents.base import Agent, LauncherCommands
from claude_mem.agents.files import SERVER_NAME
from claude_mem.agents.installer import (
    RECORD_FILE,
    ConnectionRecord,
    FileChange,
    apply_changes,
    connection_status,
    disconnect,
    plan_connection,
    plan_removal,
)
from claude_mem.agents.registry import AGENTS
from claude_mem.cli import backfill, output
from claude_mem.cli.transfer import EXPORT_NAMES, unused_export_path, write_export
from claude_mem.cli.worker import count_spooled, start_this_version
from claude_mem.client import Client
from claude_mem.config import Config, load_lenient
from claude_mem.domain.errors import ClaudeMemError, InvalidRequest, NotFound, OperationFailed
from claude_mem.domain.reports import RowCounts
from claude_mem.system import config_file, process
from claude_mem.worker.http.endpoints import NoFields
from claude_mem.worker.http.schemas.health import SHOW_STATS

STATS_SECONDS = 3.0
STOP_ATTEMPTS, STOP_WAIT_SECONDS = 5, 0.3
AGENT_FILE_BACKUPS = "backups/agents"  # the agents' files as they were before `install`
# Everything claude-mem ever writes into the data directory. Nothing else in it may be deleted.
OWN_PATHS = (
    "spool", "aside", "starts", "logs/worker.log*", "logs/start.log", "backups/before-*.db*", "backups/memory-*.db*",
    AGENT_FILE_BACKUPS, "worker.lock", "worker.json", "worker.fifo", "worker.starting", hook.STOP_STAMP,
    hook.WARNING_STAMP, "token",
    "activity.flag", "config.toml", "prices.toml", "modes/*.toml", "models", "observer", ".restoring-*", ".reading-*",
    process.LAUNCHER, RECORD_FILE, "mcp-answers.json*", "audit*.jsonl", "forgotten.jsonl", "forget.key",
    "forgetting.json", ".forgetting.json", "open-*.html",
    "backups/daily-*.db*", "quarantine", "ballast", "missed", f"exports/{EXPORT_NAMES}", f"exports/.{EXPORT_NAMES}.*",
)  # fmt: skip
SHARED_DIRECTORIES = ("logs", "backups", "exports", "modes", ".")  # the TypeScript claude-mem uses these, too


def add_commands(commands: Any) -> None:
    """Add `install` and `uninstall`."""
    install_ = commands.add_parser("install", help="connect the coding agents on this machine")
    install_.add_argument("--host", action="append", default=[], metavar="H", help="only this agent; may be repeated")
    install_.add_argument("--yes", action="store_true", help="do not ask for confirmation; no model is configured")
    install_.add_argument(
        "--mcp", action="store_true", help="print the settings for any other MCP client; change nothing"
    )
    install_.add_argument("--dry-run", action="store_true", help="show what would change; change nothing")
    install_.set_defaults(run=install)
    uninstall_ = commands.add_parser(
        "uninstall",
        help="disconnect all agents and stop the worker",
        epilog="Memories are deleted only after an explicit yes on a terminal, with the offer to export them to your"
        " home directory first, or with --delete-data and --yes together.",
    )
    uninstall_.add_argument(
        "--yes", action="store_true", help="do not ask for confirmation; memories are kept without --delete-data"
    )
    uninstall_.add_argument(
        "--delete-data", action="store_true", help="also delete all memories, backups and exports in the data directory"
    )
    uninstall_.set_defaults(run=uninstall)


def install(options: argparse.Namespace) -> int:
    """Show the planned changes, ask, connect the agents and start the worker."""
    config = load_lenient().config
    ours = LauncherCommands(process.launcher_path(config.data_dir), os.environ)
    if options.mcp:
        return _print_mcp(ours)
    agents = _select_agents(options.host)
    plans, problems = _plans(agents, ours)
    changes = [change for agent_changes in plans.values() for change in agent_changes]
    _show(agents, plans, problems)
    if options.dry_run:
        return 1 if problems else 0
    if changes and not options.yes and not output.ask("Change these files?", default=True):
        output.info("nothing was changed (use `--yes` to skip the question)")
        return 1
    process.write_launcher(config.data_dir)
    process.write_plugin_launcher(config.data_dir)
    record = ConnectionRecord(config.data_dir)
    if changes and not options.yes:
        plans, problems = _plans(agents, ours)  # an agent may have changed its files in the meantime
    for name, agent_changes in plans.items():
        try:
            apply_changes(agent_changes, record)
        except OperationFailed as problem:
            problems[name] = problem
    if not options.yes and output.can_show_questions():
        _ask_model(config)
    start_this_version(config.data_dir)
    code = _report(agents, plans, problems, config)
    _offer_backfill(agents, options)
    return code


def _offer_backfill(agents: Sequence[Agent], options: argparse.Namespace) -> None:
    """Offer to import the agents' earlier sessions, if there are any."""
    count, size = backfill.count_transcripts(agents)
    if not count:
        return
    label = f"{output.plural(count, 'earlier session')} ({output.format_size(size)})"
    if not options.yes and output.ask(f"Import {label} of these agents?", default=True):
        backfill.backfill_all()
    else:
        output.line(f"found {label} of these agents; run `claude-mem backfill` to import them")


def _ask_model(config: Config) -> None:
    """Ask once whether a model may refine the memories, if one is available and `provider` is not set."""
    from claude_mem.digest.models import offers

    loaded = load_lenient()
    if loaded.problems or loaded.sources["provider"] != "default":
        return
    offer = offers.find_offer(config, search_path=os.environ.get("PATH", ""), folder=Path.cwd())
    if offer is None:
        return
    output.info(offer.about)
    agreed = output.ask_to_spend(offer.question)
    if agreed is None:
        output.info("no model configured; to choose one later, run `claude-mem config set provider NAME`")
        return
    for name, value in (offer.settings if agreed else {"provider": "local"}).items():
        config_file.set_value(config.data_dir / "config.toml", name, value)


def _select_agents(names: Sequence[str]) -> list[Agent]:
    """Return the agents given by name, or else all that are installed."""
    unknown = [name for name in names if name not in AGENTS]
    if unknown:
        raise InvalidRequest(f"unknown agent {unknown[0]!r}", hint="use one of " + ", ".join(AGENTS))
    agents = [AGENTS[name] for name in names] or [agent for agent in AGENTS.values() if agent.present(os.environ)]
    if not agents:
        raise NotFound(
            "no coding agent found on this machine",
            hint="to connect one anyway, run `claude-mem install --host NAME` with one of " + ", ".join(AGENTS),
        )
    return agents


def _plans(
    agents: Sequence[Agent], ours: LauncherCommands
) -> tuple[dict[str, list[FileChange]], dict[str, OperationFailed]]:
    """Plan the changes for each agent separately, so that a broken file of one does not affect the others."""
    plans: dict[str, list[FileChange]] = {}
    problems: dict[str, OperationFailed] = {}
    for agent in agents:
        try:
            plans[agent.name] = plan_connection(agent, ours)
        except OperationFailed as problem:
            problems[agent.name] = problem
    return plans, problems


def _show(
    agents: Sequence[Agent], plans: Mapping[str, list[FileChange]], problems: Mapping[str, OperationFailed]
) -> None:
    for agent in agents:
        if agent.name in problems:
            output.error(f"{agent.label}: {problems[agent.name]}", problems[agent.name].hint)
        elif not plans[agent.name]:
            output.info(f"{agent.label}: already connected {agent.connected_via(os.environ)}".rstrip())
        else:
            output.info(f"{agent.label}{'' if agent.tested else ' (implemented from its documentation, not tested)'}")
            for change in plans[agent.name]:
                verb = "change" if change.before is not None else "create"
                output.info(f"  {verb} {output.format_path(change.path)}: {change.what}")


def _report(
    agents: Sequence[Agent],
    plans: Mapping[str, list[FileChange]],
    problems: Mapping[str, OperationFailed],
    config: Config,
) -> int:
    from claude_mem.storage.external_db import is_foreign_database

    connected_agents = [agent for agent in agents if agent.name in plans and agent.name not in problems]
    for agent in connected_agents:
        output.line(f"{agent.label}: {'connected' if plans[agent.name] else 'already connected'}")
        if agent.note and plans[agent.name]:
            output.line(f"  {agent.note}")
    for name, problem in problems.items():
        if name in plans:  # the others were reported before
            output.error(f"{AGENTS[name].label}: {problem}", problem.hint)
    if connected_agents:
        output.line(f"new sessions are captured; memories are stored in {config.data_dir}")
        output.line("next: `claude-mem open` opens the viewer, `claude-mem doctor` checks the installation,")
        output.line("`claude-mem uninstall` removes it again")
        if is_foreign_database(config.database):
            older = f"found memories of the TypeScript claude-mem ({config.database})"
            output.line(f"{older}; `claude-mem import` copies them")
    return 1 if problems else 0


def _print_mcp(ours: LauncherCommands) -> int:
    """Print the settings that any other MCP client needs."""
    program, *arguments = ours.mcp()
    process.write_launcher(ours.launcher.parent)
    output.json({"mcpServers": {SERVER_NAME: {"command": program, "args": arguments}}})
    return 0


# --- uninstalling ----------------------------------------------------------------------------------------------------


def uninstall(options: argparse.Namespace) -> int:
    """Disconnect the agents, stop the worker and, on request, delete the memory."""
    config = load_lenient().config
    ours = LauncherCommands(process.launcher_path(config.data_dir), os.environ)
    question = "Remove claude-mem from every agent and stop the worker?"
    if not options.yes and not output.ask(question, default=True):
        output.info("nothing was changed (use `--yes` to skip the question)")
        return 1
    had_problems = not _remove_from_agents(config, ours)
    try:
        decision = Decision(options.delete_data) if options.yes else decide(config, requested=options.delete_data)
    except OperationFailed as problem:
        output.error(str(problem), problem.hint)
        decision, had_problems = Decision(delete=False), True
    stopped = _stop_and_delete(
        config.data_dir, ours, delete=decision.delete, keep=(RECORD_FILE, AGENT_FILE_BACKUPS) if had_problems else ()
    )
    _verify_removal(config, ours, stopped=stopped, deleted=decision.delete)
    if decision.export:
        output.line(f"exported memories: {decision.export} (`claude-mem import` restores them)")
    return 1 if had_problems else 0


def _remove_from_agents(config: Config, ours: LauncherCommands) -> bool:
    """Remove our entries from every agent's files. Returns whether all of them could be removed."""
    record, clear = ConnectionRecord(config.data_dir), True
    for agent in AGENTS.values():
        paths, problems = disconnect(agent, ours, record)
        for path in paths:
            output.info(f"{agent.label}: removed from {output.format_path(path)}")
        for problem in problems:
            output.error(f"{agent.label}: {problem}", problem.hint)
        clear = clear and not problems
    return clear


def _stop_and_delete(data_dir: Path, ours: LauncherCommands, *, delete: bool, keep: Sequence[str]) -> bool:
    """Stop the worker, and delete the data if requested. Returns whether a worker was stopped. The launcher is deleted
    first, so that running sessions can't start another worker. A hook that was just running may still have started one,
    so the result is checked and the steps repeated."""
    ours.launcher.unlink(missing_ok=True)
    process.remove_plugin_launcher(data_dir)
    stopped = False
    for _ in range(STOP_ATTEMPTS):
        stopped = process.stop_worker(data_dir) or stopped
        ours.launcher.unlink(missing_ok=True)
        process.remove_plugin_launcher(data_dir)
        if delete:
            _delete_ours(data_dir, keep=keep)
        time.sleep(STOP_WAIT_SECONDS)
        if (
            process.lock_holder(data_dir) is None
            and not ours.launcher.exists()
            and not (delete and (data_dir / "spool").exists())
        ):
            break
    return stopped


def _delete_ours(folder: Path, *, keep: Sequence[str] = ()) -> None:
    """Delete our files, except `keep`: these are needed to remove us later from files that can't be read now."""
    from claude_mem.storage.external_db import SECOND_DATABASE_NAME, is_foreign_database

    own = "claude-mem.db"
    databases = (SECOND_DATABASE_NAME,) if is_foreign_database(folder / own) else (SECOND_DATABASE_NAME, own)
    patterns = (*OWN_PATHS, *(name + side for name in databases for side in ("", "-wal", "-shm")))
    deletable = [pattern for pattern in patterns if pattern not in keep]
    for path in [path for pattern in deletable for path in folder.glob(pattern)]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    for name in SHARED_DIRECTORIES:
        with contextlib.suppress(OSError):
            (folder / name).rmdir()  # fails if other files remain in it


def _verify_removal(config: Config, ours: LauncherCommands, *, stopped: bool, deleted: bool) -> None:
    """Check and print the final state, independent of the steps taken."""
    still_connected = [
        f"{agent.label}: {connection_status(agent, ours)[0]}" for agent in AGENTS.values() if _is_left(agent, ours)
    ]
    output.line(f"agents still connected: {', '.join(still_connected) or 'none'}")
    output.line(
        f"worker running: {'yes' if process.lock_holder(config.data_dir) else 'no'}{' (stopped)' if stopped else ''}"
    )
    if deleted:
        output.line(f"{config.data_dir}: {'still exists' if config.data_dir.exists() else 'deleted'}")
    else:
        output.line(f"memories kept in {config.data_dir} (use `--delete-data` to delete them)")


def _is_left(agent: Agent, ours: LauncherCommands) -> bool:
    try:
        return bool(plan_removal(agent, ours))
    except ClaudeMemError:
        return True  # unknown, so assume it is


# --- deleting the memory ---------------------------------------------------------------------------------------------


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
        """Whether there is nothing to delete."""
        return self == Inventory(0, 0, 0, 0, 0)

    @property
    def is_worth_exporting(self) -> bool:
        """Whether an export would contain anything."""
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
    from claude_mem.storage.files import DatabaseFiles

    try:
        counts = _table_counts(config)
    except (ClaudeMemError, OSError):
        counts = None
    return Inventory(
        observations=counts.observations if counts else None,
        sessions=counts.sdk_sessions if counts else None,
        backups=len(DatabaseFiles(config).list_backup_paths()),
        exports=len(list(config.exports.glob(EXPORT_NAMES))),
        waiting=count_spooled(config),
    )


def _table_counts(config: Config) -> RowCounts:
    from claude_mem.storage.files import DatabaseFiles

    worker = process.running_worker(config.data_dir)
    if worker is not None:
        try:
            return Client(worker, seconds=STATS_SECONDS).call(SHOW_STATS, NoFields()).database
        except ClaudeMemError:
            pass  # the worker hangs or is stopping: read the file instead
    return DatabaseFiles(config).count_rows()


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether the memory is deleted, and the file to which it was exported before."""

    delete: bool
    export: Path | None = None


def decide(config: Config, *, requested: bool) -> Decision:
    """Ask whether to delete the memory, and offer to export it first. `requested` means `--delete-data` was given; the
    user must still confirm the amount. If the export fails, raise an error and delete nothing."""
    content = inventory(config)
    output.info(f"{config.data_dir} contains {'no memories' if content.is_empty else content}")
    if not requested and not output.ask("Delete this data, too?"):
        return Decision(delete=False)
    export = _offer_export(config) if content.is_worth_exporting else None
    delete = output.ask(f"Permanently delete {'the directory' if content.is_empty else content}?")
    return Decision(delete, export)


def _offer_export(config: Config) -> Path | None:
    """Export to the home directory: the data directory is about to be deleted."""
    path = unused_export_path(Path.home())
    if not output.ask(f"Export the memories to {output.format_path(path)} first?", default=True):
        return None
    try:
        records = write_export(path, config)
    except ClaudeMemError as problem:
        raise OperationFailed(f"the export failed, so nothing was deleted: {problem}", hint=problem.hint) from problem
    output.line(f"exported {records:,} records to {path} (readable only by you)")
    return path
