"""Translates Gemini CLI's tool calls, from hooks and from transcripts."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import Any

from claude_mem.agents.canonical import string_or_empty

_TOOLS = {
    "run_shell_command": "Bash",
    "read_file": "Read",
    "write_file": "Write",
    "replace": "Edit",
    "glob": "Glob",
    "grep_search": "Grep",
    "search_file_content": "Grep",
    "list_directory": "LS",
    "web_fetch": "WebFetch",
    "google_web_search": "WebSearch",
    "write_todos": "TodoWrite",
    "ask_user": "AskUserQuestion",
    "activate_skill": "Skill",
    "invoke_agent": "Task",
    "list_mcp_resources": "ListMcpResourcesTool",
}
_KEYS = {"dir_path": "path", "absolute_path": "file_path", "include_pattern": "glob"}
_HOOKED, _FENCE = ("<hook_context>", "</hook_context>"), ("<untrusted_context>", "</untrusted_context>")
# The lines below a command's output, from the last one up.
_FOOT = ("Process Group PGID", "Background PIDs", "Signal", "Exit Code")
_CANCELLED = ("Command was automatically cancelled", "Command was cancelled by user")


@dataclass(frozen=True, slots=True)
class GeminiCall:
    """A tool call as Gemini reports it: `text` is for the model, `display` for the user, `error` is set if the tool
    itself failed."""

    name: str
    input: Any
    text: str
    display: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class GeminiToolCall:
    name: str
    input: Any
    output: Any
    failed: bool


def translate_call(call: GeminiCall, *, cwd: str = "") -> GeminiToolCall:
    """Translate a tool call into the names and the form of Claude Code."""
    name, arguments = _name(call.name), _input(call.input, cwd)
    text = _unfenced(call.text)
    if call.error:
        return GeminiToolCall(name, arguments, call.error, failed=True)
    if name == "Bash":
        output, failure = _shell(text)
        return GeminiToolCall(
            name, arguments, f"{failure}\n{output}".strip() if failure else output, failed=bool(failure)
        )
    if name in ("Edit", "Write") and (patch := _patch(call.display)):
        return GeminiToolCall(name, arguments, patch, failed=False)
    return GeminiToolCall(name, arguments, text, failed=False)


def _name(name: str) -> str:
    if name.startswith("mcp_") and not name.startswith("mcp__"):
        return f"mcp__{name[4:]}"
    return _TOOLS.get(name, name)


def _input(arguments: Any, cwd: str) -> object:
    if not isinstance(arguments, dict):
        return arguments
    translated = {_KEYS.get(key, key): item for key, item in arguments.items()}
    if isinstance(path := translated.get("file_path"), str) and path and cwd:
        translated["file_path"] = posixpath.join(cwd, path)
    return translated


def text_of(content: Any) -> str:
    """Return the text of a string, a part, or a list of these."""
    if isinstance(content, list):
        return "".join(text_of(part) for part in content if not isinstance(part, list))
    return string_or_empty(content.get("text")) if isinstance(content, dict) else string_or_empty(content)


def _unfenced(text: str) -> str:
    """Return the text without Gemini's fence around external content and without what hooks added."""
    bare = text.strip()
    if bare.endswith(_HOOKED[1]) and _HOOKED[0] in bare:
        text = bare = bare[: bare.index(_HOOKED[0])].rstrip()
    if bare.startswith(_FENCE[0]) and bare.endswith(_FENCE[1]):
        return bare.removeprefix(_FENCE[0]).removesuffix(_FENCE[1]).removeprefix("\n").removesuffix("\n")
    return text


def _shell(text: str) -> tuple[str, str]:
    """Return the output of a command and how it failed. Gemini reports an exit code only if it is not 0."""
    if text.startswith(_CANCELLED):
        return text, "Cancelled"
    lines = text.removeprefix("Output: ").split("\n")
    foot = {}
    for name in _FOOT:
        if lines and lines[-1].startswith(f"{name}: "):
            foot[name] = lines.pop().partition(": ")[2]
    output = "\n".join(lines)
    failure = f"Exit code {foot['Exit Code']}" if "Exit Code" in foot else ""
    failure = failure or (f"Signal {foot['Signal']}" if "Signal" in foot else "")
    return "" if output == "(empty)" else output, failure


def _patch(display: Any) -> dict[str, object]:
    """Return the lines of a diff in the form that Claude Code uses."""
    diff = string_or_empty(display.get("fileDiff")) if isinstance(display, dict) else ""
    head, marker, hunks = diff.partition("\n@@")
    lines = [line for line in hunks.splitlines()[1:] if line[:1] in ("+", "-", " ")]
    return {"structuredPatch": [{"lines": lines}]} if head and marker and lines else {}
