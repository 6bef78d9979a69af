"""Gemini CLI. It has Claude Code's hooks under other names, with timeouts in milliseconds.

Some events are not registered: BeforeTool accepts no context, PreCompress fires before every request, BeforeModel and
AfterModel carry the whole conversation. Every shell command runs the `fail` hook, whether it failed or not: only the
worker can tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from claude_mem import privacy
from claude_mem.errors import Noise
from claude_mem.hosts import gemini_transcript
from claude_mem.hosts.claude import PLUGIN, SKILL, TEXTS
from claude_mem.hosts.dialect import Fields, milliseconds, string
from claude_mem.hosts.edits import (
    Edit,
    FileEdit,
    HookLine,
    JsonEdit,
    Settings,
    add_hooks,
    add_server,
    drop_hooks,
    drop_server,
)
from claude_mem.hosts.gemini_closing import without_repetition
from claude_mem.hosts.gemini_tools import Call, in_our_words, text_of
from claude_mem.hosts.host import Host, Ours, Transcripts, is_here, place

NAME = "gemini"
TIMEOUT_MILLISECONDS = 5000
SHELL = "run_shell_command"
EVENTS = {
    "SessionStart": "context",
    "BeforeAgent": "new",
    "AfterTool": "save",
    "AfterAgent": "summary",
    "SessionEnd": "cleanup",
}
NO_WORDS = "[no response text]"  # AfterAgent's placeholder for an empty response

_NAMES = {"BeforeAgent": "UserPromptSubmit", "AfterTool": "PostToolUse", "AfterAgent": "Stop"}
_NOISE = {
    "BeforeTool", "BeforeModel", "AfterModel", "BeforeToolSelection", "PreCompress", "Notification",
}  # fmt: skip


# --- installing ------------------------------------------------------------------------------------------------------


def folder(env: Mapping[str, str]) -> Path:
    return place(env, "GEMINI_CLI_HOME", "") / ".gemini"


def _line(ours: Ours, command: str, matcher: str | None = None) -> HookLine:
    return HookLine(ours.hook(command, NAME), TIMEOUT_MILLISECONDS, matcher, {"name": "claude-mem"})


def _add(settings: Settings, ours: Ours) -> None:
    lines = {event: _line(ours, command) for event, command in EVENTS.items()}
    add_hooks(settings, {**lines, "AfterTool": _line(ours, "save", f"^(?!{SHELL}$)")})
    add_hooks(settings, {"AfterTool": _line(ours, "fail", f"^{SHELL}$")})
    program, *arguments = ours.mcp()
    add_server(settings, {"command": program, "args": arguments})


def _drop(settings: Settings) -> None:
    drop_hooks(settings)
    drop_server(settings)


def edits(ours: Ours) -> Sequence[Edit]:
    directory = folder(ours.env)
    description = f"{len(EVENTS) + 1} hooks, each at most {TIMEOUT_MILLISECONDS // 1000} s, and the memory's tools"
    return (
        JsonEdit(directory / "settings.json", description, lambda settings: _add(settings, ours), _drop),
        FileEdit(directory / SKILL, TEXTS[SKILL], (PLUGIN / SKILL).read_text("utf-8")),
    )


def _present(env: Mapping[str, str]) -> bool:
    return is_here(folder(env), "gemini", env)


# --- payloads --------------------------------------------------------------------------------------------------------


def translate(fields: Fields) -> Fields:
    event = string(fields.get("hook_event_name"))
    if event in _NOISE:
        raise Noise
    translated = {**fields, "hook_event_name": _NAMES.get(event, event)}
    if isinstance(prompt := fields.get("prompt"), str):
        translated["prompt"] = privacy.said(prompt)
    if event == "AfterAgent":
        translated["last_assistant_message"] = _closing_message(fields)
    if event == "AfterTool":
        translated |= _tool_used(fields)
    return translated


def _closing_message(fields: Fields) -> str:
    """Return the turn's last message as the chat file has it, or else the hook's text without its repetitions."""
    reported = string(fields.get("prompt_response"))
    if reported == NO_WORDS:
        return ""
    path, at = string(fields.get("transcript_path")), milliseconds(fields.get("timestamp"))
    session = string(fields.get("session_id"))
    return gemini_transcript.last_message(path, reported, at=at, session=session) or without_repetition(reported)


def _tool_used(fields: Fields) -> Fields:
    arguments, response = fields.get("tool_input"), fields.get("tool_response")
    response = response if isinstance(response, dict) else {"llmContent": response}
    call = Call(
        name=tool_name(string(fields.get("tool_name")), fields.get("mcp_context")),
        input=arguments,
        text=text_of(response.get("llmContent")),
        display=response.get("returnDisplay"),
        error=_error(response.get("error")),
    )
    used = in_our_words(call, cwd=string(fields.get("cwd")))
    event = "PostToolUseFailure" if used.failed else "PostToolUse"
    result_fields = {"error": used.output} if used.failed else {"tool_response": used.output}
    return {"hook_event_name": event, "tool_name": used.name, "tool_input": used.input, **result_fields}


def _error(error: Any) -> str:
    return string(error.get("message")) or string(error.get("type")) if isinstance(error, dict) else string(error)


def tool_name(name: str, context: Any) -> str:
    """Return the name of a tool. `mcp_<server>_<tool>` is ambiguous when either part contains `_`; `mcp_context` names
    both."""
    if isinstance(context, dict) and context.get("server_name") and context.get("tool_name"):
        return f"mcp__{context['server_name']}__{context['tool_name']}"
    return name


# --- transcripts -----------------------------------------------------------------------------------------------------


def _find(env: Mapping[str, str]) -> Iterator[Path]:
    """Yield all session transcripts. Subagent transcripts are one directory deeper and are not listed: they belong to
    their session."""
    paths = (folder(env) / "tmp").glob("*/chats/session-*")
    yield from sorted(path for path in paths if path.suffix in (".jsonl", ".json"))


HOST = Host(
    name=NAME,
    label="Gemini CLI",
    translate=translate,
    present=_present,
    edits=edits,
    transcripts=Transcripts(
        read=gemini_transcript.read,
        find=_find,
        owns=gemini_transcript.owns,
        head=gemini_transcript.head,
        named=False,
        corrects_closing=True,
    ),
)
