"""Windsurf's Cascade, by its documents: it can't be run without its editor.

It has no event for the start or the end of a conversation and takes no text from a hook, so what is remembered reaches
the model through our tools only. Where it works is not in the payload: hooks are run in the workspace's folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from claude_mem.errors import Noise
from claude_mem.hosts import flat_hooks
from claude_mem.hosts.claude import PLUGIN, SKILL, TEXTS
from claude_mem.hosts.dialect import Fields, string
from claude_mem.hosts.edits import Edit, FileEdit, JsonEdit, Settings, add_server, drop_server
from claude_mem.hosts.host import Host, Ours, home

NAME = "windsurf"
EVENTS = {
    "pre_user_prompt": "new",
    "post_read_code": "save",
    "post_write_code": "save",
    "post_run_command": "save",
    "post_mcp_tool_use": "save",
    "post_cascade_response": "summary",
}
_LAST_WORDS = "### Planner Response"  # stands above each thing that the agent says


# --- installing ------------------------------------------------------------------------------------------------------


def folder(env: Mapping[str, str]) -> Path:
    return home(env) / ".codeium" / "windsurf"


def _add(settings: Settings, ours: Ours) -> None:
    flat_hooks.add(
        settings,
        {event: {"command": ours.hook(command, NAME), "show_output": False} for event, command in EVENTS.items()},
    )


def edits(ours: Ours) -> Sequence[Edit]:
    at = folder(ours.env)
    program, *arguments = ours.mcp()
    tools = {"command": program, "args": arguments}
    return (
        JsonEdit(at / "hooks.json", f"{len(EVENTS)} hooks", lambda settings: _add(settings, ours), flat_hooks.drop),
        JsonEdit(
            at / "mcp_config.json", "the memory's tools", lambda settings: add_server(settings, tools), drop_server
        ),
        FileEdit(at / SKILL, TEXTS[SKILL], (PLUGIN / SKILL).read_text("utf-8")),
    )


def _present(env: Mapping[str, str]) -> bool:
    return folder(env).is_dir()


# --- payloads --------------------------------------------------------------------------------------------------------


def translate(fields: Fields) -> Fields:
    event = string(fields.get("agent_action_name"))
    if not event:
        return fields  # in our own words, over HTTP
    if event not in EVENTS:
        raise Noise
    about = fields.get("tool_info")
    about = about if isinstance(about, dict) else {}
    return {
        "session_id": fields.get("trajectory_id"),
        "cwd": about.get("cwd"),
        "hook_event_name": "PostToolUse",
        **_translate_action(event, about),
    }


def _translate_action(event: str, about: Fields) -> Fields:
    match event:
        case "pre_user_prompt":
            return {"hook_event_name": "UserPromptSubmit", "prompt": about.get("user_prompt")}
        case "post_cascade_response":
            words = string(about.get("response")).rpartition(_LAST_WORDS)[2].strip()
            return {"hook_event_name": "Stop", "last_assistant_message": words}
        case "post_read_code":
            return {"tool_name": "Read", "tool_input": {"file_path": about.get("file_path")}}
        case "post_write_code":
            return flat_hooks.edited(about)
        case "post_run_command":
            return _command(about)
        case _:
            server, tool = (string(about.get(f"mcp_{what}_name")) for what in ("server", "tool"))
            arguments, result = about.get("mcp_tool_arguments"), about.get("mcp_result")
            return {"tool_name": f"mcp__{server}__{tool}", "tool_input": arguments, "tool_response": result}


def _command(about: Fields) -> Fields:
    """Its documents promise neither output nor exit code; some versions tell them."""
    translated: Fields = {"tool_name": "Bash", "tool_input": {"command": about.get("command_line")}}
    output, code = string(about.get("output")), about.get("exit_code")
    if isinstance(code, int) and code:
        return translated | {"hook_event_name": "PostToolUseFailure", "error": f"Exit code {code}\n{output}"}
    return translated | {"tool_response": output}


HOST = Host(
    name=NAME,
    label="Windsurf",
    translate=translate,
    present=_present,
    edits=edits,
    note="restart Windsurf; it takes no text from hooks, so tell Cascade to look things up with the memory's tools",
    tested=False,
)
