"""OpenCode. It has no hooks but runs plugins, so our plugin (`data/opencode.js`) reports its events.

The plugin sends events in Claude Code's format, but with OpenCode's tool names. It also provides the memory's tools, so
that no settings file has to be changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from claude_mem.agents.base import Agent, LauncherCommands, agent_dir, is_installed
from claude_mem.agents.canonical import Fields, string_or_empty
from claude_mem.agents.claude import PLUGIN, SKILL
from claude_mem.agents.files import FileEdit, SettingsEdit
from claude_mem.domain.errors import IgnoredEvent

NAME = "opencode"
DATA = Path(__file__).parents[1] / "data"

_TOOLS = {
    "bash": "Bash",
    "edit": "Edit",
    "write": "Write",
    "read": "Read",
    "grep": "Grep",
    "glob": "Glob",
    "list": "LS",
    "webfetch": "WebFetch",
    "websearch": "WebSearch",
    "codesearch": "WebSearch",
    "todowrite": "TodoWrite",
    "todoread": "TodoWrite",
    "task": "Task",
    "skill": "Skill",
    "question": "AskUserQuestion",
}
_INPUTS = {
    "filePath": "file_path",
    "oldString": "old_string",
    "newString": "new_string",
    "replaceAll": "replace_all",
}
_PATCHES = ("patch", "apply_patch")
_PATCHED = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$", re.MULTILINE)


def translate(fields: Fields) -> Fields:
    """Translate a hook payload into the common format."""
    tool = fields.get("tool_name")
    if not isinstance(tool, str):
        return fields
    if tool == "invalid":
        raise IgnoredEvent  # the model called something that does not exist
    arguments = fields.get("tool_input")
    arguments = (
        {_INPUTS.get(name, name): value for name, value in arguments.items()}
        if isinstance(arguments, dict)
        else arguments
    )
    if tool in _PATCHES and isinstance(arguments, dict):
        name, arguments = translate_patch(
            string_or_empty(arguments.get("patchText")), string_or_empty(fields.get("cwd"))
        )
    else:
        name = _TOOLS.get(tool) or _of_server(tool, fields.get("mcp_servers"))
    return {**fields, "tool_name": name, "tool_input": arguments}


def _of_server(tool: str, servers: Any) -> str:
    """Translate `<server>_<tool>`, OpenCode's name for a tool of an MCP server."""
    for server in servers if isinstance(servers, list) else ():
        prefix = re.sub(r"[^\w-]", "_", server) + "_" if isinstance(server, str) else ""
        if prefix and tool.startswith(prefix):
            return f"mcp__{server}__{tool.removeprefix(prefix)}"
    return tool


def translate_patch(patch: str, cwd: str) -> tuple[str, dict[str, object]]:
    """Translate the first file of a patch to an `Edit` or `Write` call."""
    head = _PATCHED.search(patch)
    path = head[2].strip() if head else ""
    path = path if not path or path.startswith("/") else f"{cwd}/{path}"
    lines = patch[head.end() :].splitlines() if head else []
    old = "\n".join(line[1:] for line in lines if line[:1] in ("-", " "))
    new = "\n".join(line[1:] for line in lines if line[:1] in ("+", " "))
    if head and head[1] == "Add":
        return "Write", {"file_path": path, "content": new}
    return "Edit", {"file_path": path, "old_string": old, "new_string": new}


def config_dir(env: Mapping[str, str]) -> Path:
    """Return the directory of its settings."""
    return agent_dir(env, "XDG_CONFIG_HOME", ".config") / "opencode"


def edits(ours: LauncherCommands) -> Sequence[SettingsEdit]:
    """Return the edits that make the agent run claude-mem."""
    directory = config_dir(ours.env)
    plugin = (DATA / "opencode.js").read_text("utf-8").replace('"@LAUNCHER@"', json.dumps(str(ours.launcher)))
    skill = (PLUGIN / SKILL).read_text("utf-8")
    return (
        FileEdit(
            directory / "plugins" / "claude-mem.js",
            "a plugin that reports events and provides the tools",
            plugin,
            needed=True,
        ),
        FileEdit(directory / SKILL, "a skill: when and how to search", skill),
    )


def _present(env: Mapping[str, str]) -> bool:
    return is_installed(config_dir(env), NAME, env)


AGENT = Agent(name=NAME, label="OpenCode", translate=translate, present=_present, edits=edits)
