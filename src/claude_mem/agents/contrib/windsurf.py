"""Windsurf's Cascade, implemented from its documentation: it cannot be run without its editor.

It has no event for the start or end of a conversation and accepts no context from hooks, so memory reaches the model
only through our tools. The payload does not name the working directory: hooks run in the directory of the workspace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from claude_mem.agents.base import Agent, LauncherCommands, home_dir
from claude_mem.agents.canonical import Fields, string_or_empty
from claude_mem.agents.claude import PLUGIN, SKILL, TEXTS
from claude_mem.agents.contrib import flat_hooks
from claude_mem.agents.files import FileEdit, JsonEdit, Settings, SettingsEdit, add_server, remove_server
from claude_mem.domain.errors import IgnoredEvent

NAME = "windsurf"
EVENTS = {
    "pre_user_prompt": "new",
    "post_read_code": "save",
    "post_write_code": "save",
    "post_run_command": "save",
    "post_mcp_tool_use": "save",
    "post_cascade_response": "summary",
}
_MESSAGE_HEADING = "### Planner Response"  # the heading above each message of the agent


def config_dir(env: Mapping[str, str]) -> Path:
    """Return the directory of its settings."""
    return home_dir(env) / ".codeium" / "windsurf"


# --- hook payloads ---------------------------------------------------------------------------------------------------


def translate(fields: Fields) -> Fields:
    """Translate a hook payload into the common format."""
    event = string_or_empty(fields.get("agent_action_name"))
    if not event:
        return fields  # already translated: posted over HTTP
    if event not in EVENTS:
        raise IgnoredEvent
    tool_info = fields.get("tool_info")
    tool_info = tool_info if isinstance(tool_info, dict) else {}
    return {
        "session_id": fields.get("trajectory_id"),
        "cwd": tool_info.get("cwd"),
        "hook_event_name": "PostToolUse",
        **_translate_action(event, tool_info),
    }


def _translate_action(event: str, tool_info: Fields) -> Fields:
    match event:
        case "pre_user_prompt":
            return {"hook_event_name": "UserPromptSubmit", "prompt": tool_info.get("user_prompt")}
        case "post_cascade_response":
            message = string_or_empty(tool_info.get("response")).rpartition(_MESSAGE_HEADING)[2].strip()
            return {"hook_event_name": "Stop", "last_assistant_message": message}
        case "post_read_code":
            return {"tool_name": "Read", "tool_input": {"file_path": tool_info.get("file_path")}}
        case "post_write_code":
            return flat_hooks.translate_edit(tool_info)
        case "post_run_command":
            return _command(tool_info)
        case _:
            server, tool = (string_or_empty(tool_info.get(f"mcp_{part}_name")) for part in ("server", "tool"))
            arguments, result = tool_info.get("mcp_tool_arguments"), tool_info.get("mcp_result")
            return {"tool_name": f"mcp__{server}__{tool}", "tool_input": arguments, "tool_response": result}


def _command(tool_info: Fields) -> Fields:
    """Translate a command. The documentation promises neither output nor exit code, but some versions report them."""
    translated: Fields = {"tool_name": "Bash", "tool_input": {"command": tool_info.get("command_line")}}
    output, code = string_or_empty(tool_info.get("output")), tool_info.get("exit_code")
    if isinstance(code, int) and code:
        return translated | {"hook_event_name": "PostToolUseFailure", "error": f"Exit code {code}\n{output}"}
    return translated | {"tool_response": output}


# --- installing ------------------------------------------------------------------------------------------------------


def _add(settings: Settings, ours: LauncherCommands) -> None:
    flat_hooks.add_handlers(
        settings,
        {event: {"command": ours.hook(command, NAME), "show_output": False} for event, command in EVENTS.items()},
    )


def edits(ours: LauncherCommands) -> Sequence[SettingsEdit]:
    """Return the edits that make the agent run claude-mem."""
    directory = config_dir(ours.env)
    program, *arguments = ours.mcp()
    tools = {"command": program, "args": arguments}
    return (
        JsonEdit(
            directory / "hooks.json",
            f"{len(EVENTS)} hooks",
            lambda settings: _add(settings, ours),
            flat_hooks.drop_handlers,
        ),
        JsonEdit(
            directory / "mcp_config.json",
            "the memory's tools",
            lambda settings: add_server(settings, tools),
            remove_server,
        ),
        FileEdit(directory / SKILL, TEXTS[SKILL], (PLUGIN / SKILL).read_text("utf-8")),
    )


def _present(env: Mapping[str, str]) -> bool:
    return config_dir(env).is_dir()


AGENT = Agent(
    name=NAME,
    label="Windsurf",
    translate=translate,
    present=_present,
    edits=edits,
    note="restart Windsurf; it accepts no context from hooks, so ask Cascade to use the memory's tools",
    tested=False,
)
