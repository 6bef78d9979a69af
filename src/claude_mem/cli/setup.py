"""install, uninstall: our lines in the agent's settings, and out again without a trace."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from claude_mem import hook, ids, process
from claude_mem.cli import output
from claude_mem.cli.run import start_current
from claude_mem.client import Client
from claude_mem.config import Config, load_forgiving
from claude_mem.errors import NotFound
from claude_mem.hosts import claude_settings

MADE_SETTINGS = "made-claude-settings"  # there if the agent's settings file did not exist before us


def add_commands(commands: Any) -> None:
    install_ = commands.add_parser("install", help="connect Claude Code: add our hooks to its user settings")
    install_.add_argument("--yes", action="store_true", help="never ask")
    install_.add_argument("--dry-run", action="store_true", help="show what would change, change nothing")
    install_.set_defaults(run=install)
    backfill_ = commands.add_parser("backfill", help="remember old sessions: read Claude Code's transcripts")
    backfill_.add_argument("path", type=Path, help="a transcript (.jsonl or .jsonl.gz) or a folder of them")
    backfill_.add_argument("--json", action="store_true", help="one JSON object")
    backfill_.set_defaults(run=backfill)
    uninstall_ = commands.add_parser("uninstall", help="take our hooks out again and stop the worker")
    uninstall_.add_argument("--yes", action="store_true", help="never ask; the memory is kept")
    uninstall_.add_argument("--delete-data", action="store_true", help="also delete everything that is remembered")
    uninstall_.set_defaults(run=uninstall)


def backfill(options: argparse.Namespace) -> int:
    files = list(_transcripts(options.path))
    if not files:
        raise NotFound(f"no transcripts in {options.path}", hint="Claude Code keeps them in ~/.claude/projects")
    client = Client(process.start(load_forgiving().config.data_dir), seconds=60)
    before = client.get("/api/stats")["database"]
    for file in files:
        client.post("/api/backfill", {"path": str(file)})
    while client.get("/api/queue")["waiting"]:
        time.sleep(0.1)
    after = client.get("/api/stats")["database"]
    added = {name: after[key] - before[key] for name, key in _COUNTED.items()}
    if options.json:
        output.json({"files": len(files), **added})
    else:
        output.line(f"{len(files)} file(s) read; new: " + ", ".join(f"{count} {name}" for name, count in added.items()))
    return 0


_COUNTED = {"sessions": "sdk_sessions", "turns": "turns", "events": "events", "observations": "observations"}


def _transcripts(path: Path) -> Iterator[Path]:
    """A transcript, or all in a folder; a subagent's file is part of its session's and not one of its own."""
    path = path.expanduser().absolute()
    found = sorted(path.rglob("*.jsonl*")) if path.is_dir() else [path] if path.is_file() else []
    for file in found:
        if file.name.endswith((".jsonl", ".jsonl.gz")) and not file.name.startswith("agent-"):
            yield file


def install(options: argparse.Namespace) -> int:
    config = load_forgiving().config
    path = claude_settings.path(os.environ)
    before = claude_settings.read(path)
    after = claude_settings.with_ours(before, _unusual(config))
    if after == before:
        start_current(config.data_dir)
        output.line(f"already installed in {path}")
        return 0
    output.say(f"{path}: {len(claude_settings.EVENTS)} hooks, each at most {claude_settings.TIMEOUT_SECONDS} s:")
    for event, name in claude_settings.EVENTS.items():
        output.say(f"  {event:<20} {claude_settings.command(name, _unusual(config))}")
    if options.dry_run:
        return 0
    if not options.yes and not output.ask("add them?"):
        output.say("nothing was changed (`--yes` adds them without asking)")
        return 1
    if not path.exists():
        hook.make_private(str(config.data_dir))
        (config.data_dir / MADE_SETTINGS).touch(0o600)
    claude_settings.write(path, after, backup=_backup(config))
    start_current(config.data_dir)
    output.line(f"installed: new Claude Code sessions are remembered in {config.data_dir}")
    output.line("`claude-mem doctor` checks that all is well; `claude-mem uninstall` takes it out again")
    return 0


def uninstall(options: argparse.Namespace) -> int:
    config = load_forgiving().config
    path = claude_settings.path(os.environ)
    before = claude_settings.read(path)
    after = claude_settings.without_ours(before)
    if not options.yes and not output.ask(f"take our hooks out of {path} and stop the worker?"):
        output.say("nothing was changed (`--yes` does it without asking)")
        return 1
    if after != before:
        claude_settings.write(path, after, backup=_backup(config))
    if not after and (config.data_dir / MADE_SETTINGS).exists():
        _remove_settings(path, config.data_dir / MADE_SETTINGS)
    stopped = process.stop(config.data_dir)
    delete = options.delete_data or (not options.yes and output.ask(f"also delete all memories in {config.data_dir}?"))
    if delete:
        _delete_ours(config.data_dir)
    _prove(config, path, stopped=stopped, deleted=delete)
    return 0


# Everything we ever put into the data directory. Nothing else in there is ours to delete.
OURS = (
    "spool", "aside", "starts", "logs/worker.log*", "logs/start.log", "backups/before-*.db*", "backups/memory-*.db*",
    "backups/claude-settings-*.json", "worker.lock", "worker.json", "worker.fifo", "worker.starting", "token",
    "activity.flag", "config.toml", "prices.toml", "modes/*.toml", "models", "observer", MADE_SETTINGS,
)  # fmt: skip
SHARED = ("logs", "backups", "modes", ".")  # the older claude-mem puts things there, too


def _delete_ours(folder: Path) -> None:
    from claude_mem.store.database import SECOND_NAME, is_foreign

    own = "claude-mem.db"
    databases = (SECOND_NAME,) if is_foreign(folder / own) else (SECOND_NAME, own)
    patterns = (*OURS, *(name + side for name in databases for side in ("", "-wal", "-shm")))
    for path in [path for pattern in patterns for path in folder.glob(pattern)]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    for name in SHARED:
        with contextlib.suppress(OSError):
            (folder / name).rmdir()  # unless someone else has put something there


def _unusual(config: Config) -> Path | None:
    """Where the data lies, if the hook would not find it by itself."""
    return config.data_dir if os.environ.get("CLAUDE_MEM_DATA_DIR") else None


def _backup(config: Config) -> Path:
    return config.backups / f"claude-settings-{ids.now()}.json"


def _remove_settings(path: Path, mark: Path) -> None:
    """The file was made by us and has nothing left in it."""
    path.unlink(missing_ok=True)
    mark.unlink()
    with contextlib.suppress(OSError):
        path.parent.rmdir()  # only if it is empty


def _prove(config: Config, path: Path, *, stopped: bool, deleted: bool) -> None:
    left = claude_settings.installed(claude_settings.read(path))
    output.line(f"hooks of ours in {path}: {len(left)}")
    output.line(
        f"worker running: {'yes' if process.holder(config.data_dir) else 'no'}{' (stopped)' if stopped else ''}"
    )
    if deleted:
        output.line(f"{config.data_dir}: {'still there' if config.data_dir.exists() else 'deleted'}")
    else:
        output.line(f"memories kept in {config.data_dir} (`--delete-data` deletes them)")
