"""Cursor, implemented from its documentation: it cannot be run without its editor.

A conversation is a session. Edits are reported by `afterFileEdit`, which has the old and the new text; everything else
by `postToolUse`, which has an id and, for a command, the exit code. Nothing can be injected at a prompt or a failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from claude_mem.agents.base import Agent, LauncherCommands, home_dir, is_installed
from claude_mem.agents.canonical import Fields, string_or_empty
from claude_mem.agents.claude import PLUGIN, SKILL, TEXTS
from claude_mem.agents.contrib import flat_hooks
from claude_mem.agents.files import FileEdit, JsonEdit, Settings, SettingsEdit, add_server, remove_server
from claude_mem.domain.errors import IgnoredEvent

NAME = "cursor"
TIMEOUT_SECONDS = 5
EVENTS = {
    "sessionStart": "context",
    "beforeSubmitPrompt": "new",
    "postToolUse": "save",
    "postToolUseFailure": "fail",
    "afterFileEdit": "save",
    "afterAgentResponse": "summary",
    "stop": "summary",
    "sessionEnd": "cleanup",
}
_NAMES = {
    "sessionStart": "SessionStart",
    "beforeSubmitPrompt": "UserPromptSubmit",
    "postToolUse": "PostToolUse",
    "postToolUseFailure": "PostToolUseFailure",
    "afterFileEdit": "PostToolUse",
    "afterShellExecution": "PostToolUse",
    "afterMCPExecution": "PostToolUse",
    "afterAgentResponse": "Stop",
    "stop": "Stop",
    "sessionEnd": "SessionEnd",
    "preCompact": "PreCompact",
}
_EDITS = ("Write", "Edit", "MultiEdit", "StrReplace", "ApplyPatch", "Delete")
_TOOLS = {"Shell": "Bash", "Terminal": "Bash"}


def config_dir(env: Mapping[str, str]) -> Path:
    """Return the directory of its settings."""
    return home_dir(env) / ".cursor"


# --- hook payloads ---------------------------------------------------------------------------------------------------


def translate(fields: Fields) -> Fields:
    """Translate a hook payload into the common format."""
    event = string_or_empty(fields.get("hook_event_name"))
    if event.startswith("before") and event not in _NAMES:
        raise IgnoredEvent
    translated = {
        **fields,
        "hook_event_name": _NAMES.get(event, event),
        "session_id": string_or_empty(fields.get("conversation_id")) or fields.get("session_id"),
        "cwd": _root(fields),
    }
    match event:
        case "postToolUse" | "postToolUseFailure":
            return translated | _tool(fields, failed=event == "postToolUseFailure")
        case "afterFileEdit":
            return translated | flat_hooks.translate_edit(fields)
        case "afterShellExecution":
            arguments = {"command": fields.get("command")}
            return translated | {"tool_name": "Bash", "tool_input": arguments, "tool_response": fields.get("output")}
        case "afterMCPExecution":
            return translated | _tool({**fields, "tool_output": fields.get("result_json")}, failed=False)
        case "afterAgentResponse":
            return translated | {"last_assistant_message": string_or_empty(fields.get("text"))}
        case "stop" if fields.get("status") == "completed":
            raise IgnoredEvent  # `afterAgentResponse` came just before and closed the turn
    return translated


def _root(fields: Fields) -> object:
    roots = fields.get("workspace_roots")
    first = next((root for root in roots if isinstance(root, str)), "") if isinstance(roots, list) else ""
    return first or fields.get("cwd")


def _tool(fields: Fields, *, failed: bool) -> Fields:
    name = string_or_empty(fields.get("tool_name"))
    if name in _EDITS and not failed:
        raise IgnoredEvent  # `afterFileEdit` reports the edit with its texts
    arguments, output = _decode_json(fields.get("tool_input")), _decode_json(fields.get("tool_output"))
    if isinstance(arguments, dict) and "file_path" not in arguments and name == "Read":
        arguments = {**arguments, "file_path": arguments.get("path") or arguments.get("target_file")}
    translated: Fields = {"tool_name": _translate_name(name), "tool_input": arguments, "tool_response": output}
    if failed:
        translated["error"] = (
            string_or_empty(fields.get("error_message")) or string_or_empty(fields.get("failure_type")) or "failed"
        )
    elif isinstance(output, dict) and (code := _exit_code(output)):
        translated |= {"hook_event_name": "PostToolUseFailure", "error": f"Exit code {code}\n{_output_text(output)}"}
    return translated


def _translate_name(name: str) -> str:
    return f"mcp__{name[4:]}" if name.startswith("MCP:") else _TOOLS.get(name, name)


def _exit_code(output: Fields) -> int:
    code = output.get("exitCode", output.get("exit_code"))
    return code if isinstance(code, int) else 0


def _output_text(output: Fields) -> str:
    return "\n".join(text for key in ("stdout", "stderr", "output") if (text := string_or_empty(output.get(key))))


def _decode_json(value: Any) -> object:
    """Decode JSON text: some versions pass it instead of an object."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return value


# --- installing ------------------------------------------------------------------------------------------------------


def _add(settings: Settings, ours: LauncherCommands) -> None:
    settings.setdefault("version", 1)
    handlers = {
        event: {"command": ours.hook(command, NAME), "timeout": TIMEOUT_SECONDS} for event, command in EVENTS.items()
    }
    flat_hooks.add_handlers(settings, handlers)


def edits(ours: LauncherCommands) -> Sequence[SettingsEdit]:
    """Return the edits that make the agent run claude-mem."""
    directory = config_dir(ours.env)
    program, *arguments = ours.mcp()
    description = f"{len(EVENTS)} hooks, each at most {TIMEOUT_SECONDS} s"
    server = {"command": program, "args": arguments}
    return (
        JsonEdit(
            directory / "hooks.json", description, lambda settings: _add(settings, ours), flat_hooks.drop_handlers
        ),
        JsonEdit(
            directory / "mcp.json", "the memory's tools", lambda settings: add_server(settings, server), remove_server
        ),
        FileEdit(directory / SKILL, TEXTS[SKILL], (PLUGIN / SKILL).read_text("utf-8")),
    )


def _present(env: Mapping[str, str]) -> bool:
    return is_installed(config_dir(env), "cursor", env)


AGENT = Agent(
    name=NAME,
    label="Cursor",
    translate=translate,
    present=_present,
    edits=edits,
    note="restart Cursor; its settings then list the hooks of claude-mem under Hooks",
    tested=False,
)
