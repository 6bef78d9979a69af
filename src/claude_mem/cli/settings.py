"""config: how it is set, and setting it. The file stays the person's: comments, order and all."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from claude_mem import config_file, hook, process
from claude_mem.cli import output
from claude_mem.cli.run import start_current
from claude_mem.config import PREFIX, Loaded, check, load_forgiving, names, parse, reason, shown
from claude_mem.errors import CannotDo, Misuse
from claude_mem.spool import write_private

ACTIONS = ("list", "get", "set", "unset", "edit", "path")


def add_commands(commands: Any) -> None:
    config_ = commands.add_parser(
        "config",
        help="every setting: its value, where it comes from, and why; and changing one",
        epilog="`set` checks the value, writes it into config.toml and restarts the worker if one runs. Lists are given"
        " with commas. A secret is better given on stdin: `claude-mem config set NAME -`.",
    )
    config_.add_argument("what", nargs="?", choices=ACTIONS, default="list", help="default: list")
    config_.add_argument("name", nargs="?", default="", metavar="NAME")
    config_.add_argument("value", nargs="?", metavar="VALUE", help="set: the value, or - to read it from stdin")
    config_.add_argument("--json", action="store_true", help="list, get: one JSON object a line")
    config_.set_defaults(run=config)


def config(options: argparse.Namespace) -> int:
    loaded = load_forgiving()
    path = loaded.config.data_dir / "config.toml"
    match options.what:
        case "path":
            output.line(str(path))
            return 0
        case "edit":
            return _edit(path)
        case "set":
            return _set(loaded, path, _setting_name(options.name), options.value)
        case "unset":
            return _unset(loaded, path, _setting_name(options.name))
        case "get":
            return _list(loaded, [_setting_name(options.name)], options)
    return _list(loaded, names(), options)


def _setting_name(name: str) -> str:
    if not name:
        raise Misuse("which setting?", hint="`claude-mem config` lists them")
    name = name.lower().replace("-", "_").removeprefix(PREFIX.lower())
    if name not in names():
        raise Misuse(f"there is no setting `{name}`", hint="`claude-mem config` lists them")
    return name


def _list(loaded: Loaded, setting_names: list[str], options: argparse.Namespace) -> int:
    rows = [
        {"name": name, "value": shown(loaded.config, name), "source": loaded.sources[name], "reason": reason(name)}
        for name in setting_names
    ]
    if options.json:
        output.json_lines(rows)
    elif options.what == "get":
        output.line(rows[0]["value"])
    else:
        output.table(("setting", "value", "source", "reason"), [tuple(row.values()) for row in rows])
        output.say("`claude-mem config set NAME VALUE` changes one")
    for problem in loaded.problems:
        output.error(str(problem), problem.hint)
    return 2 if loaded.problems else 0


def _set(loaded: Loaded, path: Path, name: str, raw_value: str | None) -> int:
    if name == "data_dir":
        raise Misuse("`data_dir` can't be set in a file", hint="the hook reads none; use CLAUDE_MEM_DATA_DIR")
    if raw_value is None:
        raise Misuse("to which value?", hint=f"`claude-mem config set {name} VALUE`, or - to read it from stdin")
    text = _from_stdin(name) if raw_value == "-" else raw_value
    value = check(name, parse(name, text), "this value")
    config_file.store(path, name, value)
    return _apply(loaded, name)


def _from_stdin(name: str) -> str:
    """What was piped in or pasted. Nothing (^D at once, an empty pipe) is no value: it would remove a key."""
    text = sys.stdin.read().strip() if sys.stdin is not None else ""
    if not text:
        raise Misuse(f"there was nothing on stdin; {name} was not changed", hint=f"`claude-mem config unset {name}`")
    return text


def _unset(loaded: Loaded, path: Path, name: str) -> int:
    if not config_file.unset(path, name):
        output.say(f"{name} is not in {path}")
        return 0
    return _apply(loaded, name)


def _apply(before: Loaded, name: str) -> int:
    loaded = load_forgiving()
    output.line(f"{name} = {shown(loaded.config, name)}")
    if loaded.sources[name] == "environment":
        output.say(f"but {PREFIX}{name.upper()} is set, and here the environment counts before the file")
    if loaded.config != before.config and process.holder(loaded.config.data_dir) is not None:
        process.stop(loaded.config.data_dir)
        start_current(loaded.config.data_dir, explicit=True)
        output.say("the worker was restarted with it")
    return 0


def _edit(path: Path) -> int:
    """In the person's editor; what makes no sense is told at once."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    hook.make_private(str(path.parent))
    if not path.exists():
        write_private(path, b"# Settings of claude-mem; `claude-mem config` lists them all with their reasons.\n")
    before = load_forgiving()
    try:
        result = subprocess.run([*shlex.split(editor), str(path)], check=False)
    except (OSError, ValueError) as error:
        raise CannotDo(
            f"{editor!r} can't be started: {error}", hint=f"set EDITOR, or change {path} yourself"
        ) from error
    if result.returncode:
        raise CannotDo(f"{editor} ended with {result.returncode}", hint=f"see {path}")
    after = load_forgiving()
    for problem in after.problems:
        output.error(str(problem), problem.hint)
    if after.config != before.config and process.holder(after.config.data_dir) is not None:
        process.stop(after.config.data_dir)
        start_current(after.config.data_dir, explicit=True)
        output.say("the worker was restarted")
    return 2 if after.problems else 0
