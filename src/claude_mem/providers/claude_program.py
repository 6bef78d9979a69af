"""The user's own `claude` program: where it is, and how it is run for one question and nothing else.

A worker is started by a hook, in the environment of whatever project the agent works in. So the program is never
looked for on `PATH`, where a project may have put its own: it is the one that the setting `claude_path` names, or one in
the fixed places where installers put it. `claude-mem install` runs in the user's terminal, may look on `PATH`, and
writes what it found into `claude_path`.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from claude_mem import hook

# The program goes on by itself after `max_tokens` (three more requests), an empty answer (one more) or a refusal, and
# `max_turns` does not count those. What it does look at after each answer is its budget: with less than any answer costs,
# the first one is the last. It then reports `error_max_budget_usd` instead of success, and exits with 1.
BUDGET_DOLLARS = 1e-9
# A built-in plugin that reads AGENTS.md writes what it has read to `plugins/store` in the user's folder, and the program
# does not wait for that when it ends: half of a file stayed there after every few questions. It has nothing to read here.
SETTINGS = json.dumps({"enabledPlugins": {"agents-md@builtin": False, "cc-plugin-agents-md@builtin": False}})
_IN_HOME = (
    ".claude/local/claude",
    ".local/bin/claude",
    ".npm-global/bin/claude",
    ".bun/bin/claude",
    ".volta/bin/claude",
)
_IN_SYSTEM = ("/usr/local/bin/claude", "/opt/homebrew/bin/claude", "/usr/bin/claude")
_SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/opt/homebrew/bin")


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One question. How much may be said is in the environment, where the program looks for it."""

    system: str
    prompt: str
    model: str
    folder: str
    program: str
    resume: str = ""
    keep: bool = False  # the transcript, so that the conversation can go on
    sdk: bool = False


def command(ask: Ask) -> list[str]:
    """Return the command that asks: no tools, settings, CLAUDE.md, plugins, servers or, unless kept, transcript. The
    question itself is not part of it: other users of the machine can see a command's arguments."""
    return [
        ask.program,
        "--print",
        *("--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--include-partial-messages"),
        *("--system-prompt", ask.system),
        *("--model", ask.model),
        *("--tools", ""),
        "--setting-sources=",
        *("--settings", SETTINGS),
        "--strict-mcp-config",
        "--disable-slash-commands",
        *("--permission-mode", "dontAsk"),
        *("--max-turns", "1"),
        *("--max-budget-usd", str(BUDGET_DOLLARS)),
        *("--thinking", "disabled"),
        *([f"--resume={ask.resume}"] if ask.resume else []),
        *([] if ask.keep else ["--no-session-persistence"]),
    ]


def question(ask: Ask) -> bytes:
    """Return the line that goes to the program's stdin. Without `client_composed`, `@/path` in the text of a turn would
    make the program read that file, and `/name` run a command."""
    message = {"role": "user", "content": ask.prompt}
    line = {"type": "user", "message": message, "parent_tool_use_id": None, "session_id": "", "client_composed": True}
    return msgspec.json.encode(line) + b"\n"


def find_program(claude_path: str = "") -> str:
    """Return the absolute path of the program that a worker may run: the one named in the settings, else one in the
    usual places, else the one that came with the SDK. Empty if there is none."""
    if claude_path:
        named = Path(claude_path).expanduser().absolute()
        return str(named) if is_safe(named) else ""
    return next((str(path) for path in _usual_places() if is_safe(path)), "")


def find_in_terminal(search_path: str, *, project: Path) -> str:
    """Return the program as the user's terminal finds it, for the installer to record: the usual places first, then
    `PATH`, but nothing inside the folder that the terminal is in."""
    if usual := find_program():
        return usual
    folders = [folder for part in search_path.split(os.pathsep) if (folder := Path(part)).is_absolute()]
    outside = [folder / "claude" for folder in folders if not _is_within(folder, project)]
    return next((str(path) for path in outside if is_safe(path)), "")


def path_for(program: str) -> str:
    """Return the `PATH` that the program gets: its own folder, where an npm installation has its `node`, and the
    system's. Nothing of a project's."""
    return os.pathsep.join(dict.fromkeys((str(Path(program).parent), *_SYSTEM_PATH)))


def is_safe(path: Path) -> bool:
    """Return whether a program is the user's own or the system's, and nobody else may change it."""
    return _is_program(path) and not hook.program_problem(str(path))


def unsafe(claude_path: str) -> str:
    """Return why a program that is there must not be run, because others may change it; empty if that is not so."""
    named = Path(claude_path).expanduser().absolute()
    return hook.program_problem(str(named)) if _is_program(named) else ""


def _usual_places() -> Iterator[Path]:
    home = Path(os.environ.get("HOME") or "/")
    yield from (home / place for place in _IN_HOME)
    yield from map(Path, _IN_SYSTEM)
    spec = importlib.util.find_spec("claude_agent_sdk")
    for place in (spec and spec.submodule_search_locations) or ():
        yield Path(place) / "_bundled" / "claude"


def _is_within(folder: Path, project: Path) -> bool:
    """Home itself is no project: most programs are somewhere in it."""
    project = project.resolve()
    return project != Path.home().resolve() and folder.resolve().is_relative_to(project)


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
