"""install, uninstall: connect the agents, and remove every trace from their files again."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from claude_mem import config_file, hook, process
from claude_mem.cli import output, past
from claude_mem.cli.deletion import Decision, decide
from claude_mem.cli.move import EXPORT_NAMES
from claude_mem.cli.run import start_current
from claude_mem.config import Config, load_forgiving
from claude_mem.errors import CannotDo, MemError, Misuse, NotFound
from claude_mem.hosts.connect import RECORD, Change, Record, plan, put_in, removal, standing, take_out
from claude_mem.hosts.edits import SERVER
from claude_mem.hosts.host import Host, Ours
from claude_mem.hosts.registry import HOSTS

ENDINGS, END_SECONDS = 5, 0.3


def add_commands(commands: Any) -> None:
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
    config = load_forgiving().config
    ours = Ours(process.launcher(config.data_dir), os.environ)
    if options.mcp:
        return _print_mcp(ours)
    hosts = _select_hosts(options.host)
    plans, problems = _plans(hosts, ours)
    changes = [change for host_changes in plans.values() for change in host_changes]
    _show(hosts, plans, problems)
    if options.dry_run:
        return 1 if problems else 0
    if changes and not options.yes and not output.ask("Change these files?", default=True):
        output.say("nothing was changed (use `--yes` to skip the question)")
        return 1
    process.write_launcher(config.data_dir)
    process.write_plugin_launcher(config.data_dir)
    record = Record(config.data_dir)
    if changes and not options.yes:
        plans, problems = _plans(hosts, ours)  # an agent may have changed its files in the meantime
    for name, host_changes in plans.items():
        try:
            put_in(host_changes, record)
        except CannotDo as problem:
            problems[name] = problem
    if not options.yes and output.can_show_questions():
        _ask_model(config)
    start_current(config.data_dir)
    code = _report(hosts, plans, problems, config)
    _offer_backfill(hosts, options)
    return code


def _offer_backfill(hosts: Sequence[Host], options: argparse.Namespace) -> None:
    """Offer to import the agents' earlier sessions, if there are any."""
    count, size = past.on_disk(hosts)
    if not count:
        return
    label = f"{output.plural(count, 'earlier session')} ({output.size(size)})"
    if not options.yes and output.ask(f"Import {label} of these agents?", default=True):
        past.everything()
    else:
        output.line(f"found {label} of these agents; run `claude-mem backfill` to import them")


def _ask_model(config: Config) -> None:
    """Ask once whether a model may refine the memories, if one is available and `provider` is not set."""
    from claude_mem.worker import offers

    loaded = load_forgiving()
    if loaded.problems or loaded.sources["provider"] != "default":
        return
    offer = offers.find(config, search_path=os.environ.get("PATH", ""), folder=Path.cwd())
    if offer is None:
        return
    output.say(offer.about)
    agreed = output.ask_to_spend(offer.question)
    if agreed is None:
        output.say("no model configured; to choose one later, run `claude-mem config set provider NAME`")
        return
    for name, value in (offer.settings if agreed else {"provider": "local"}).items():
        config_file.store(config.data_dir / "config.toml", name, value)


def _select_hosts(names: Sequence[str]) -> list[Host]:
    """Return the agents given by name, or else all that are installed."""
    unknown = [name for name in names if name not in HOSTS]
    if unknown:
        raise Misuse(f"unknown agent {unknown[0]!r}", hint="use one of " + ", ".join(HOSTS))
    hosts = [HOSTS[name] for name in names] or [host for host in HOSTS.values() if host.present(os.environ)]
    if not hosts:
        raise NotFound(
            "no coding agent found on this machine",
            hint="to connect one anyway, run `claude-mem install --host NAME` with one of " + ", ".join(HOSTS),
        )
    return hosts


def _plans(hosts: Sequence[Host], ours: Ours) -> tuple[dict[str, list[Change]], dict[str, CannotDo]]:
    """Plan the changes for each agent separately, so that a broken file of one does not affect the others."""
    plans: dict[str, list[Change]] = {}
    problems: dict[str, CannotDo] = {}
    for host in hosts:
        try:
            plans[host.name] = plan(host, ours)
        except CannotDo as problem:
            problems[host.name] = problem
    return plans, problems


def _show(hosts: Sequence[Host], plans: Mapping[str, list[Change]], problems: Mapping[str, CannotDo]) -> None:
    for host in hosts:
        if host.name in problems:
            output.error(f"{host.label}: {problems[host.name]}", problems[host.name].hint)
        elif not plans[host.name]:
            output.say(f"{host.label}: already connected {host.elsewhere(os.environ)}".rstrip())
        else:
            output.say(f"{host.label}{'' if host.tested else ' (implemented from its documentation, not tested)'}")
            for change in plans[host.name]:
                verb = "change" if change.before is not None else "create"
                output.say(f"  {verb} {output.path(change.path)}: {change.what}")


def _report(
    hosts: Sequence[Host],
    plans: Mapping[str, list[Change]],
    problems: Mapping[str, CannotDo],
    config: Config,
) -> int:
    connected_hosts = [host for host in hosts if host.name in plans and host.name not in problems]
    for host in connected_hosts:
        output.line(f"{host.label}: {'connected' if plans[host.name] else 'already connected'}")
        if host.note and plans[host.name]:
            output.line(f"  {host.note}")
    for name, problem in problems.items():
        if name in plans:  # the others were reported before
            output.error(f"{HOSTS[name].label}: {problem}", problem.hint)
    if connected_hosts:
        output.line(f"new sessions are captured; memories are stored in {config.data_dir}")
        output.line("next: `claude-mem open` opens the viewer, `claude-mem doctor` checks the installation,")
        output.line("`claude-mem uninstall` removes it again")
        _mention_older(config)
    return 1 if problems else 0


def _mention_older(config: Config) -> None:
    from claude_mem.store.database import is_foreign

    if is_foreign(config.database):
        output.line(f"found memories of the TypeScript claude-mem ({config.database}); `claude-mem import` copies them")


def _print_mcp(ours: Ours) -> int:
    """Print the settings that any other MCP client needs."""
    program, *arguments = ours.mcp()
    process.write_launcher(ours.launcher.parent)
    output.json({"mcpServers": {SERVER: {"command": program, "args": arguments}}})
    return 0


def uninstall(options: argparse.Namespace) -> int:
    config = load_forgiving().config
    ours = Ours(process.launcher(config.data_dir), os.environ)
    question = "Remove claude-mem from every agent and stop the worker?"
    if not options.yes and not output.ask(question, default=True):
        output.say("nothing was changed (use `--yes` to skip the question)")
        return 1
    had_problems = not _remove_from_agents(config, ours)
    try:
        decision = Decision(options.delete_data) if options.yes else decide(config, requested=options.delete_data)
    except CannotDo as problem:
        output.error(str(problem), problem.hint)
        decision, had_problems = Decision(delete=False), True
    stopped = _stop_and_delete(
        config.data_dir, ours, delete=decision.delete, keep=(RECORD, KEPT_FILES) if had_problems else ()
    )
    _verify_removal(config, ours, stopped=stopped, deleted=decision.delete)
    if decision.export:
        output.line(f"exported memories: {decision.export} (`claude-mem import` restores them)")
    return 1 if had_problems else 0


def _remove_from_agents(config: Config, ours: Ours) -> bool:
    """Remove our entries from every agent's files. Returns whether all of them could be removed."""
    record, clear = Record(config.data_dir), True
    for host in HOSTS.values():
        paths, problems = take_out(host, ours, record)
        for path in paths:
            output.say(f"{host.label}: removed from {output.path(path)}")
        for problem in problems:
            output.error(f"{host.label}: {problem}", problem.hint)
        clear = clear and not problems
    return clear


def _stop_and_delete(data_dir: Path, ours: Ours, *, delete: bool, keep: Sequence[str]) -> bool:
    """Stop the worker, and delete the data if requested. Returns whether a worker was stopped. The launcher is deleted
    first, so that running sessions can't start another worker. A hook that was just running may still have started one,
    so the result is checked and the steps repeated."""
    ours.launcher.unlink(missing_ok=True)
    process.remove_plugin_launcher(data_dir)
    stopped = False
    for _ in range(ENDINGS):
        stopped = process.stop(data_dir) or stopped
        ours.launcher.unlink(missing_ok=True)
        process.remove_plugin_launcher(data_dir)
        if delete:
            _delete_ours(data_dir, keep=keep)
        time.sleep(END_SECONDS)
        if process.holder(data_dir) is None and not ours.launcher.exists() and not (delete and _spooled(data_dir)):
            break
    return stopped


def _spooled(data_dir: Path) -> bool:
    return (data_dir / "spool").exists()


KEPT_FILES = "backups/agents"  # the agents' files as they were before `install`
# Everything claude-mem ever writes into the data directory. Nothing else in it may be deleted.
OURS = (
    "spool", "aside", "starts", "logs/worker.log*", "logs/start.log", "backups/before-*.db*", "backups/memory-*.db*",
    KEPT_FILES, "worker.lock", "worker.json", "worker.fifo", "worker.starting", hook.STOPPED, hook.WARNED, "token",
    "activity.flag", "config.toml", "prices.toml", "modes/*.toml", "models", "observer", ".restoring-*", ".reading-*",
    process.LAUNCHER, RECORD, "mcp-answers.json*", "audit*.jsonl", "forgotten.jsonl", "forget.key",
    "forgetting.json", ".forgetting.json", "open-*.html",
    "backups/daily-*.db*", "quarantine", "ballast", "missed", f"exports/{EXPORT_NAMES}", f"exports/.{EXPORT_NAMES}.*",
)  # fmt: skip
SHARED = ("logs", "backups", "exports", "modes", ".")  # the TypeScript claude-mem uses these, too


def _delete_ours(folder: Path, *, keep: Sequence[str] = ()) -> None:
    """Delete our files, except `keep`: these are needed to remove us later from files that can't be read now."""
    from claude_mem.store.database import SECOND_NAME, is_foreign

    own = "claude-mem.db"
    databases = (SECOND_NAME,) if is_foreign(folder / own) else (SECOND_NAME, own)
    patterns = (*OURS, *(name + side for name in databases for side in ("", "-wal", "-shm")))
    deletable = [pattern for pattern in patterns if pattern not in keep]
    for path in [path for pattern in deletable for path in folder.glob(pattern)]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    for name in SHARED:
        with contextlib.suppress(OSError):
            (folder / name).rmdir()  # fails if other files remain in it


def _verify_removal(config: Config, ours: Ours, *, stopped: bool, deleted: bool) -> None:
    """Check and print the final state, independent of the steps taken."""
    still_connected = [f"{host.label}: {standing(host, ours)[0]}" for host in HOSTS.values() if _is_left(host, ours)]
    output.line(f"agents still connected: {', '.join(still_connected) or 'none'}")
    output.line(
        f"worker running: {'yes' if process.holder(config.data_dir) else 'no'}{' (stopped)' if stopped else ''}"
    )
    if deleted:
        output.line(f"{config.data_dir}: {'still exists' if config.data_dir.exists() else 'deleted'}")
    else:
        output.line(f"memories kept in {config.data_dir} (use `--delete-data` to delete them)")


def _is_left(host: Host, ours: Ours) -> bool:
    try:
        return bool(removal(host, ours))
    except MemError:
        return True  # unknown, so assume it is
