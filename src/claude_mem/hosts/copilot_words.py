"""Translates what is specific to the Copilot CLI in its hooks and transcripts: tools, exit codes and ids."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from claude_mem import privacy
from claude_mem.hosts.dialect import string
from claude_mem.hosts.opencode import patched

_TOOLS = {
    "bash": "Bash",
    "create": "Write",
    "view": "Read",
    "edit": "Edit",
    "str_replace": "Edit",
    "grep": "Grep",
    "rg": "Grep",
    "glob": "Glob",
    "task": "Agent",
    "skill": "Skill",
    "web_fetch": "WebFetch",
    "web_search": "WebSearch",
    "ask_user": "AskUserQuestion",
    "update_todo": "TodoWrite",
    "report_intent": "TodoWrite",
}
_FILE_TOOLS = ("Write", "Read", "Edit")
_INPUTS = {"path": "file_path", "file_text": "content", "old_str": "old_string", "new_str": "new_string"}
_EXIT = re.compile(r"\n?<(?:shellId: \S+ completed|exited) with exit code (-?\d+)>\s*$")


def tool(name: str, arguments: Any, cwd: str = "") -> tuple[str, Any]:
    """Translate a tool's name and arguments. The name is the one used in hooks or the one used by the model."""
    if name == "apply_patch":
        patch = (
            arguments
            if isinstance(arguments, str)
            else string((arguments or {}).get("input"))
            if isinstance(arguments, dict)
            else ""
        )
        return patched(patch, cwd)
    name = _TOOLS.get(name, name)
    if name in _FILE_TOOLS and isinstance(arguments, dict):
        arguments = {_INPUTS.get(key, key): value for key, value in arguments.items()}
    if name.islower() and "-" in name:
        server, _, tool_name = name.rpartition("-")
        return f"mcp__{server}__{tool_name}", arguments
    return name, arguments


def outcome(text: str, kind: str) -> tuple[str, bool]:
    """Return the output of a tool and whether the call failed."""
    exit_note = _EXIT.search(text)
    output = text[: exit_note.start()] if exit_note else text
    if exit_note and int(exit_note[1]):
        return f"Exit code {exit_note[1]}\n{output}", True
    return output, kind != "success"


# --- ids that hooks and transcripts share ----------------------------------------------------------------------------


def prompt_id(at: int) -> str:
    return f"at-{at}" if at else ""


def call_id(at: int, arguments: Any) -> str:
    """Return an id from the time and the arguments: several calls may end in the same millisecond. Private parts are
    left out, because the hook removes them first."""
    text = json.dumps(privacy.strip_all(arguments), sort_keys=True, default=str)
    return f"at-{at}-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}" if at else ""
