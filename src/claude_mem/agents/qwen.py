"""Qwen Code. Its hooks have Claude Code's form and names; its tools have Gemini's.

The differences: after every batch of tools the prompt hook runs again with an empty prompt; a headless session does not
report its end; and context added before a tool call does not reach the model, so memories about a file are injected
together with its content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from claude_mem.agents.base import Agent, LauncherCommands, agent_dir, is_installed
from claude_mem.agents.canonical import Fields, string_or_empty
from claude_mem.agents.files import (
    FileEdit,
    HookEntry,
    JsonEdit,
    Settings,
    SettingsEdit,
    add_hooks,
    add_server,
    remove_hooks,
    remove_server,
)
from claude_mem.domain.errors import IgnoredEvent

NAME = "qwen"
TIMEOUT_SECONDS = 5
# Milliseconds: older versions expect them, and newer versions read values above 999 as milliseconds.
TIMEOUT = TIMEOUT_SECONDS * 1000
EVENTS = {
    "SessionStart": "context",
    "UserPromptSubmit": "new",
    "PostToolUse": "save",
    "PostToolUseFailure": "fail",
    "Stop": "summary",
    "SubagentStop": "summary",
    "PreCompact": "compact",
    "SessionEnd": "cleanup",
}
SKILL = "skills/mem-search/SKILL.md"
DATA = Path(__file__).parents[1] / "data"

_TOOLS = {
    "run_shell_command": "Bash",
    "write_file": "Write",
    "edit": "Edit",
    "replace": "Edit",
    "read_file": "Read",
    "notebook_edit": "NotebookEdit",
    "grep_search": "Grep",
    "search_file_content": "Grep",
    "glob": "Glob",
    "list_directory": "LS",
    "web_fetch": "WebFetch",
    "web_search": "WebSearch",
    "google_web_search": "WebSearch",
    "agent": "Agent",
    "task": "Agent",
    "todo_write": "TodoWrite",
    "skill": "Skill",
    "ask_user_question": "AskUserQuestion",
    "tool_search": "ListMcpResourcesTool",
}


# --- hook payloads ---------------------------------------------------------------------------------------------------


def translate(fields: Fields) -> Fields:
    """Translate a hook payload into the common format."""
    event = fields.get("hook_event_name")
    if event == "UserPromptSubmit" and not string_or_empty(fields.get("prompt")).strip():
        raise IgnoredEvent  # tool results are sent to the model
    if string_or_empty(fields.get("agent_id")).startswith("managed-"):
        raise IgnoredEvent  # Qwen's own background note-taking, not work of the session
    if event == "SessionStart" and fields.get("source") == "resume":
        return {**fields, "source": "startup"}  # a resumed session no longer has its brief
    return {**fields, **_tool(fields)} if isinstance(fields.get("tool_name"), str) else fields


def _tool(fields: Fields) -> Fields:
    arguments = fields.get("tool_input")
    if isinstance(arguments, dict) and "absolute_path" in arguments:
        arguments = {**arguments, "file_path": arguments["absolute_path"]}
    translated: Fields = {
        "tool_name": _TOOLS.get(fields["tool_name"], fields["tool_name"]),
        "tool_input": arguments,
        # `tool_use_id` is generated for the hooks only; the model's `tool_call_id` is the lasting one.
        "tool_use_id": string_or_empty(fields.get("tool_call_id")) or fields.get("tool_use_id"),
    }
    if "error" in fields:
        error = string_or_empty(fields["error"])
        text, code = _split_report(error)
        translated["error"] = f"Exit code {code}\n{text}" if code not in ("", "0", "(none)") else text
    if "tool_response" in fields:
        translated["tool_response"] = _response(fields["tool_response"])
    return translated


def _response(response: Any) -> object:
    """Return the part of a response that the model sees; the rest is for display."""
    content = response.get("llmContent", response) if isinstance(response, dict) else response
    return _split_report(content)[0] if isinstance(content, str) else content


def _split_report(text: str) -> tuple[str, str]:
    """Return the output and the exit code from the report on a command; any other text is returned unchanged.

    The report is split from both ends: the output may look like a report itself, and a pattern would backtrack over all
    the ways to read it.
    """
    header, _, rest = text.partition("\nOutput: ")
    rest, signal, _ = rest.rpartition("\nSignal: ")
    rest, exited, code = rest.rpartition("\nExit Code: ")
    out, failed, err = rest.rpartition("\nError: ")
    if not (header.startswith("Command: ") and "\nDirectory: " in header and signal and exited and failed):
        return text, ""
    return "\n".join(part for part in (out, err) if part not in ("(empty)", "(none)")), code.strip()


# --- installing ------------------------------------------------------------------------------------------------------


def config_dir(env: Mapping[str, str]) -> Path:
    """Return the directory of its settings."""
    return agent_dir(env, "QWEN_HOME", ".qwen").expanduser()


def _add(settings: Settings, ours: LauncherCommands) -> None:
    lines = {event: HookEntry(ours.hook(command, NAME), TIMEOUT) for event, command in EVENTS.items()}
    add_hooks(settings, lines)
    add_hooks(settings, {"PostToolUse": HookEntry(ours.hook("file", NAME), TIMEOUT, "read_file")})
    program, *arguments = ours.mcp()
    add_server(settings, {"command": program, "args": arguments, "trust": True})


def _drop(settings: Settings) -> None:
    remove_hooks(settings)
    remove_server(settings)


def edits(ours: LauncherCommands) -> Sequence[SettingsEdit]:
    """Return the edits that make the agent run claude-mem."""
    directory = config_dir(ours.env)
    return (
        JsonEdit(
            directory / "settings.json",
            f"{len(EVENTS) + 1} hooks, each at most {TIMEOUT_SECONDS} s, and the memory's tools",
            lambda settings: _add(settings, ours),
            _drop,
        ),
        FileEdit(directory / SKILL, "a skill: when and how to search", (DATA / "plugin" / SKILL).read_text("utf-8")),
    )


def _present(env: Mapping[str, str]) -> bool:
    return is_installed(config_dir(env), NAME, env)


AGENT = Agent(name=NAME, label="Qwen Code", translate=translate, present=_present, edits=edits)
