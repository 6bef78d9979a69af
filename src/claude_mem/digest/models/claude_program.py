"""The user's `claude` program: where to find it, and the command line that sends it one question and nothing else.

The worker is started by a hook, in the environment of whatever project the agent works in. A project may put its own
`claude` on `PATH`, so `PATH` is never searched: only the setting `claude_path` and the fixed locations used by
installers count. `claude-mem install` runs in the user's terminal, may search `PATH`, and stores the result in
`claude_path`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from claude_mem import hook

# The program sends further requests by itself after `max_tokens` (three more), an empty answer (one more) or a refusal,
# and `max_turns` does not count those. It does check its budget after each answer: with a budget below the cost of any
# answer, it stops after the first. It then reports `error_max_budget_usd` instead of success, and exits with 1.
BUDGET_DOLLARS = 1e-9
# A built-in plugin that reads AGENTS.md copies it to `plugins/store` in the user's folder, and the program does not
# wait for that copy when it exits: every few questions a partial file was left behind. There is no AGENTS.md to read
# here.
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


class ProgramRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One question. The output limit is not here but in the environment, where the program reads it."""

    system: str
    prompt: str
    model: str
    folder: str
    program: str
    resume: str = ""
    keep: bool = False  # keep the transcript, so that the conversation can be resumed
    sdk: bool = False


def build_command(ask: ProgramRequest) -> list[str]:
    """Return the command line: no tools, settings, CLAUDE.md, plugins or MCP servers, and no transcript unless `keep`.

    The question goes to stdin instead, because other users of the machine can see command arguments.
    """
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


def question_line(ask: ProgramRequest) -> bytes:
    """Return the line for the program's stdin. Without `client_composed`, `@/path` in the text of a turn would make the
    program read that file, and `/name` would run a command."""
    message = {"role": "user", "content": ask.prompt}
    line = {"type": "user", "message": message, "parent_tool_use_id": None, "session_id": "", "client_composed": True}
    return msgspec.json.encode(line) + b"\n"


def find_program(claude_path: str = "") -> str:
    """Return the absolute path of the program that the worker may run; empty if there is none.

    The order is: the path in the settings, the usual locations, the program bundled with the SDK.
    """
    if claude_path:
        configured = Path(claude_path).expanduser().absolute()
        return str(configured) if is_safe(configured) else ""
    return next((str(path) for path in _usual_paths() if is_safe(path)), "")


def find_in_terminal(search_path: str, *, project: Path) -> str:
    """Return the program that the installer records: from the usual locations, else from `PATH`.

    Programs inside `project`, the current directory of the terminal, are ignored.
    """
    if usual := find_program():
        return usual
    folders = [folder for part in search_path.split(os.pathsep) if (folder := Path(part)).is_absolute()]
    outside = [folder / "claude" for folder in folders if not _is_within(folder, project)]
    return next((str(path) for path in outside if is_safe(path)), "")


def program_search_path(program: str) -> str:
    """Return the `PATH` for the program: its own folder, where an npm installation has `node`, and the system folders.
    No project folder is included."""
    return os.pathsep.join(dict.fromkeys((str(Path(program).parent), *_SYSTEM_PATH)))


def is_safe(path: Path) -> bool:
    """Return whether a program belongs to the user or the system and no other user can modify it."""
    return _is_program(path) and not _problem(path)


def find_safety_problem(claude_path: str) -> str:
    """Return why an existing program must not be run (other users can modify it); empty if it is safe or missing."""
    path = Path(claude_path).expanduser().absolute()
    return _problem(path) if _is_program(path) else ""


def _problem(path: Path) -> str:
    """Return why other users can replace a program: it, what it links to, or a directory on the way to either."""
    for place in dict.fromkeys((path, Path(os.path.realpath(path)))):
        if problem := hook.program_problem(str(place)):
            return problem
        for folder in place.parents:
            if _can_others_replace_in(folder):
                return f"other users can replace it, because they can change {folder}"
    return ""


def _can_others_replace_in(folder: Path) -> bool:
    """Return whether other users can rename what this user has in a directory. A group may: it administers `/usr/local`."""
    status = folder.stat()
    is_shared = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
    return bool(is_shared) or status.st_uid not in (0, os.geteuid())


def _usual_paths() -> Iterator[Path]:
    home = Path(os.environ.get("HOME") or "/")
    yield from (home / place for place in _IN_HOME)
    yield from map(Path, _IN_SYSTEM)
    spec = importlib.util.find_spec("claude_agent_sdk")
    for place in (spec and spec.submodule_search_locations) or ():
        yield Path(place) / "_bundled" / "claude"


def _is_within(folder: Path, project: Path) -> bool:
    """Return whether a folder is inside the project. The home directory is no project: it contains most programs."""
    project = project.resolve()
    return project != Path.home().resolve() and folder.resolve().is_relative_to(project)


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
