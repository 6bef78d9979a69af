"""Sessions written down as short plays, and told as the agents' own hooks would have told them.

A play is a text file. Its first lines say whose it is; then every mark opens a step:

    > what the person asks
    $ a command that went well      $! one that failed; what it printed stands below, indented by two spaces
    ~ a file that was changed       the lines that went begin with -, those that came with +
    = what the agent says at the end of the turn; the next lines, indented, belong to it
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEP_MILLISECONDS = 15_000
DAY = 86_400_000
Fields = dict[str, Any]
Told = Iterator[tuple[str, Fields]]
COMMANDS = {"PostToolUse": "save", "PostToolUseFailure": "fail"}


@dataclass(frozen=True, slots=True)
class Ran:
    command: str
    printed: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Changed:
    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Turn:
    """`said` is what the agent says at the end; without it the turn is still going on."""

    prompt: str
    steps: tuple[Ran | Changed, ...]
    said: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    name: str
    project: str
    agent: str
    days_ago: float
    turns: tuple[Turn, ...]


# --- reading ---------------------------------------------------------------------------------------------------------


def read(path: Path) -> Session:
    head, _, body = path.read_text("utf-8").partition("\n\n")
    about = dict(line.split(": ", 1) for line in head.splitlines())
    turns = tuple(_turn(part) for part in _blocks(body, (">",)))
    return Session(path.stem, about["project"], about["agent"], float(about["days ago"]), turns)


def _turn(lines: list[str]) -> Turn:
    prompt, *steps = _blocks("\n".join(lines), (">", "$", "~", "="))
    said = _text(steps.pop()) if steps and steps[-1][0][0] == "=" else ""
    return Turn(_text(prompt), tuple(_step(step) for step in steps), said)


def _step(lines: list[str]) -> Ran | Changed:
    mark, _, rest = lines[0].partition(" ")
    if mark == "~":
        old, new = ("".join(f"{line[1:]}\n" for line in lines[1:] if line[:1] == sign) for sign in "-+")
        return Changed(rest, old, new)
    return Ran(rest, _text(lines[1:]), failed=mark == "$!")


def _text(lines: list[str]) -> str:
    return "\n".join(line[2:] for line in lines).rstrip()


def _blocks(text: str, marks: tuple[str, ...]) -> list[list[str]]:
    """Lines, cut before each that begins with a mark."""
    found: list[list[str]] = []
    for line in text.rstrip().splitlines():
        if line.startswith(marks):
            found.append([])
        if found:
            found[-1].append(line)
    return found


# --- telling ---------------------------------------------------------------------------------------------------------


def records(session: Session, root: Path, *, now: int) -> Iterator[tuple[int, bytes]]:
    """What the hooks would have left in the spool, each with its time."""
    started = int(now - session.days_ago * DAY)
    header = f"host {session.agent}\nproject_dir {root}\n"
    for count, (command, fields) in enumerate(AGENTS[session.agent](session, root)):
        payload = json.dumps({"session_id": session.name, "cwd": str(root), **fields})
        yield started + count * STEP_MILLISECONDS, f"command {command}\n{header}\n{payload}".encode()


def _claude(session: Session, root: Path) -> Told:
    yield from _course(session, root, _claude_tool, lambda name: {"prompt_id": name})


def _claude_tool(step: Ran | Changed, root: Path) -> tuple[str, Fields]:
    if isinstance(step, Changed):
        path = str(root / step.path)
        given = {"file_path": path, "old_string": step.old, "new_string": step.new}
        return "PostToolUse", {"tool_name": "Edit", "tool_input": given, "tool_response": {"filePath": path}}
    call = {"tool_name": "Bash", "tool_input": {"command": step.command}}
    if step.failed:
        return "PostToolUseFailure", {**call, "error": step.printed}
    return "PostToolUse", {**call, "tool_response": {"stdout": step.printed, "stderr": ""}}


def _codex(session: Session, root: Path) -> Told:
    yield from _course(session, root, _codex_tool, lambda name: {"turn_id": name})


def _codex_tool(step: Ran | Changed, _: Path) -> tuple[str, Fields]:
    """Its hooks do not tell that a command failed."""
    if isinstance(step, Ran):
        call = {"tool_name": "Bash", "tool_input": {"command": step.command}}
        return "PostToolUse", {**call, "tool_response": step.printed}
    lines = [f"-{line}" for line in step.old.splitlines()] + [f"+{line}" for line in step.new.splitlines()]
    patch = "\n".join(["*** Begin Patch", f"*** Update File: {step.path}", "@@", *lines, "*** End Patch"])
    done = f"Success. Updated the following files:\nM {step.path}"
    return "PostToolUse", {"tool_name": "apply_patch", "tool_input": {"command": patch}, "tool_response": done}


def _gemini(session: Session, root: Path) -> Told:
    names = {"UserPromptSubmit": "BeforeAgent", "PostToolUse": "AfterTool", "Stop": "AfterAgent"}
    for command, fields in _course(session, root, _gemini_tool, lambda _: {}):
        event = fields["hook_event_name"]
        said = {"prompt_response": fields.pop("last_assistant_message")} if event == "Stop" else {}
        yield command, {**fields, **said, "hook_event_name": names.get(event, event)}


def _gemini_tool(step: Ran | Changed, root: Path) -> tuple[str, Fields]:
    if isinstance(step, Ran):
        call = {"tool_name": "run_shell_command", "tool_input": {"command": step.command}}
        code = "\nExit Code: 1" if step.failed else ""
        return "PostToolUse", {**call, "tool_response": {"llmContent": f"Output: {step.printed}{code}"}}
    given = {"file_path": str(root / step.path), "old_string": step.old, "new_string": step.new}
    return "PostToolUse", {"tool_name": "replace", "tool_input": given, "tool_response": {"llmContent": "done"}}


def _course(
    session: Session,
    root: Path,
    tool: Callable[[Ran | Changed, Path], tuple[str, Fields]],
    prompt_id: Callable[[str], Fields],
) -> Told:
    """The course of a session, the same for all; how a tool call is told is the agent's own."""
    yield "context", {"hook_event_name": "SessionStart", "source": "startup"}
    for number, turn in enumerate(session.turns):
        said = prompt_id(f"{session.name}-{number}")
        yield "new", {"hook_event_name": "UserPromptSubmit", "prompt": turn.prompt, **said}
        for count, step in enumerate(turn.steps):
            event, fields = tool(step, root)
            call = {"hook_event_name": event, "tool_use_id": f"{session.name}-{number}-{count}"}
            yield COMMANDS[event], {**call, **fields, **said}
        if turn.said:
            yield "summary", {"hook_event_name": "Stop", "last_assistant_message": turn.said, **said}
    if all(turn.said for turn in session.turns):
        yield "cleanup", {"hook_event_name": "SessionEnd", "reason": "other"}


AGENTS: dict[str, Callable[[Session, Path], Told]] = {"claude": _claude, "codex": _codex, "gemini": _gemini}
