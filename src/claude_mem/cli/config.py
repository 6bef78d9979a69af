"""config: show and change settings. Comments and order in config.toml are preserved."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from claude_mem import hook
from claude_mem.cli import output
from claude_mem.cli.worker import start_this_version
from claude_mem.config import (
    ENV_PREFIX,
    LoadedConfig,
    list_setting_names,
    load_lenient,
    masked_toml,
    parse_text,
    setting_description,
    validate,
)
from claude_mem.domain.errors import InvalidRequest, OperationFailed
from claude_mem.system import config_file, process
from claude_mem.system.spool import write_private

ACTIONS = ("list", "get", "set", "unset", "edit", "path")


def add_commands(commands: Any) -> None:
    """Add `config`."""
    config_ = commands.add_parser(
        "config",
        help="show or change settings",
        epilog="`set` checks the value, writes it to config.toml and restarts a running worker. Separate the items of a"
        " list with commas. Pass secrets on stdin: `claude-mem config set NAME -`.",
    )
    config_.add_argument("what", nargs="?", choices=ACTIONS, default="list", help="default: list")
    config_.add_argument("name", nargs="?", default="", metavar="NAME", help="get, set, unset: the setting")
    config_.add_argument("value", nargs="?", metavar="VALUE", help="set: the value, or `-` to read it from stdin")
    config_.add_argument("--json", action="store_true", help="list, get: print one JSON object per line")
    config_.set_defaults(run=config)


def config(options: argparse.Namespace) -> int:
    """List, show, set, unset or edit settings."""
    loaded = load_lenient()
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
    return _list(loaded, list_setting_names(), options)


def _setting_name(name: str) -> str:
    if not name:
        raise InvalidRequest("missing NAME of the setting", hint="`claude-mem config` lists all settings")
    name = name.lower().replace("-", "_").removeprefix(ENV_PREFIX.lower())
    if name not in list_setting_names():
        raise InvalidRequest(f"unknown setting `{name}`", hint="`claude-mem config` lists all settings")
    return name


def _list(loaded: LoadedConfig, setting_names: list[str], options: argparse.Namespace) -> int:
    rows = [
        {
            "name": name,
            "value": masked_toml(loaded.config, name),
            "source": loaded.sources[name],
            "reason": setting_description(name),
        }
        for name in setting_names
    ]
    if options.json:
        output.json_lines(rows)
    elif options.what == "get":
        output.line(rows[0]["value"])
    else:
        output.table(("setting", "value", "source", "description"), [tuple(row.values()) for row in rows])
        output.info("to change a setting, run `claude-mem config set NAME VALUE`")
    for problem in loaded.problems:
        output.error(str(problem), problem.hint)
    return 2 if loaded.problems else 0


def _set(loaded: LoadedConfig, path: Path, name: str, raw_value: str | None) -> int:
    if name == "data_dir":
        raise InvalidRequest(
            "`data_dir` can't be set in a file", hint="set CLAUDE_MEM_DATA_DIR instead; hooks read no file"
        )
    if raw_value is None:
        raise InvalidRequest(
            "missing VALUE", hint=f"usage: claude-mem config set {name} VALUE, or `-` to read it from stdin"
        )
    text = _from_stdin(name) if raw_value == "-" else raw_value
    value = validate(name, parse_text(name, text), "not changed")
    config_file.set_value(path, name, value)
    return _apply(loaded, name)


def _from_stdin(name: str) -> str:
    """Return the piped or pasted value. Empty input (^D, an empty pipe) is an error: it would remove an API key."""
    text = sys.stdin.read().strip() if sys.stdin is not None else ""
    if not text:
        hint = f"to remove it, run `claude-mem config unset {name}`"
        raise InvalidRequest(f"stdin was empty; {name} was not changed", hint=hint)
    return text


def _unset(loaded: LoadedConfig, path: Path, name: str) -> int:
    if not config_file.remove_value(path, name):
        output.info(f"{name} is not set in {path}")
        return 0
    return _apply(loaded, name)


def _apply(before: LoadedConfig, name: str) -> int:
    loaded = load_lenient()
    output.line(f"{name} = {masked_toml(loaded.config, name)}")
    if loaded.sources[name] == "environment":
        output.info(f"the environment variable {ENV_PREFIX}{name.upper()} overrides the file in this shell")
    if loaded.config != before.config and process.lock_holder(loaded.config.data_dir) is not None:
        process.stop_worker(loaded.config.data_dir)
        start_this_version(loaded.config.data_dir, explicit=True)
        output.info("worker restarted")
    return 0


def _edit(path: Path) -> int:
    """Open config.toml in the user's editor, and report invalid settings afterwards."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    hook.make_private_dir(str(path.parent))
    if not path.exists():
        write_private(path, b"# Settings of claude-mem. `claude-mem config` lists and describes all of them.\n")
    before = load_lenient()
    try:
        result = subprocess.run([*shlex.split(editor), str(path)], check=False)
    except (OSError, ValueError) as error:
        raise OperationFailed(
            f"can't start the editor {editor!r}: {error}", hint=f"set EDITOR, or edit {path} directly"
        ) from error
    if result.returncode:
        raise OperationFailed(f"{editor} exited with {result.returncode}", hint=f"check {path}")
    after = load_lenient()
    for problem in after.problems:
        output.error(str(problem), problem.hint)
    if after.config != before.config and process.lock_holder(after.config.data_dir) is not None:
        process.stop_worker(after.config.data_dir)
        start_this_version(after.config.data_dir, explicit=True)
        output.info("worker restarted")
    return 2 if after.problems else 0
