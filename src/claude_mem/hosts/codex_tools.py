"""Translates Codex's tool calls, from hooks and from rollouts.

The shell is called `Bash` in hooks, and `exec_command`, `shell_command`, `shell` or `local_shell_call` in rollouts. The
output of a command is text below a few header lines; only a rollout has the exit code in them. Edits are patches.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

import msgspec

from claude_mem import patches
from claude_mem.hosts.dialect import Fields, string

# Planning, waiting and tool discovery: these calls say nothing about the work.
NOISE = frozenset({
    "update_plan", "write_stdin", "wait", "wait_agent", "close_agent", "resume_agent", "list_agents", "send_input",
    "send_message", "followup_task", "interrupt_agent", "get_goal", "create_goal", "update_goal",
    "tool_search", "request_user_input", "list_mcp_resources", "list_mcp_resource_templates",
})  # fmt: skip
_SHELLS = ("Bash", "exec_command", "shell_command", "shell", "local_shell", "container.exec")
_AGENTS = "multi_agent"  # prefix of the names of subagent tools, without a separator
_HEADER = re.compile(
    r"^(?:(?:Chunk ID|Wall time|Original token count|Total output lines): [^\n]*\n|Exit code: -?\d+\n"
    r"|Process (?:exited with code -?\d+|running with session ID \d+)\n)+(?:Output:\n)?",
    re.M,
)
_CODE = re.compile(r"^(?:Exit code: |Process exited with code )(-?\d+)$", re.M)
_REFUSED = re.compile(r"unsupported call|[\w ]{1,40} (?:failed|rejected)\b|(?:[^\n]*\n)?aborted by user")
_PATCHED = "Success. Updated"


@dataclass(frozen=True, slots=True)
class Told:
    """A translated tool call."""

    name: str
    input: Any
    output: Any
    failed: bool


def is_noise(name: str) -> bool:
    return name in NOISE or name.startswith(_AGENTS)


def tell(name: str, raw_input: Any, output: Any, *, cwd: str, ran: bool = False, failed: bool = False) -> Told:
    """Translate a tool call. `ran`: the call was carried out, and the output is exactly what it printed. `failed`: the
    call is known to have failed."""
    arguments: Fields = raw_input if isinstance(raw_input, dict) else {"input": raw_input} if raw_input else {}
    if name in _SHELLS:
        name, arguments = "Bash", {"command": command(arguments)}
    if name in ("Bash", patches.TOOL) and (text := patches.text_in(arguments)):
        return _patch(text, output, cwd=cwd, failed=failed)
    if name == "Bash":
        return Told(name, arguments, output, failed) if ran else _shell(arguments, output, failed=failed)
    if name == "view_image":
        name, arguments = "Read", {"file_path": arguments.get("path")}
    is_error = isinstance(output, dict) and output.get("isError") is True
    return Told(name, arguments, _answer(output), failed or is_error or (not ran and _is_refused(output)))


def command(arguments: Fields) -> str:
    """Return the command line. Some versions put the shell and its flag in front."""
    value = next((arguments[name] for name in ("command", "cmd") if arguments.get(name)), "")
    if not isinstance(value, list):
        return string(value)
    words = [word for word in value if isinstance(word, str)]
    return words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else shlex.join(words)


def _patch(text: str, output: Any, *, cwd: str, failed: bool) -> Told:
    output_text = _HEADER.sub("", _text(output))
    refused = bool(output_text) and _PATCHED not in output_text
    return Told(patches.TOOL, patches.given(text, cwd), output_text, failed or refused)


def _shell(arguments: Fields, output: Any, *, failed: bool) -> Told:
    text = _text(output)
    header = _HEADER.match(text)
    output_text = text[header.end() :] if header else text
    code = int(match[1]) if header and (match := _CODE.search(header[0])) else None
    failed = failed or bool(code) or (header is None and _is_refused(text))
    return Told("Bash", arguments, f"Exit code {code}\n{output_text}" if code else output_text, failed)


def _is_refused(output: Any) -> bool:
    """Return whether Codex itself reports that it did not carry out the call."""
    return isinstance(output, str) and bool(_REFUSED.match(output))


def _answer(output: Any) -> Any:
    """Return the output without the note on how long the call took."""
    if isinstance(output, list) and output and isinstance(output[0], dict):
        return output[1:] if _HEADER.match(f"{string(output[0].get('text'))}\n") else output
    return output


def _text(output: Any) -> str:
    """Return the output as text. Older versions wrap it as `{"output": "…", "metadata": {"exit_code": 1}}`, either as
    an object or as JSON text."""
    if isinstance(output, str) and output.startswith("{") and '"metadata"' in output:
        try:
            output = msgspec.json.decode(output)
        except (msgspec.MsgspecError, RecursionError):
            return str(output)
    if isinstance(output, dict):
        metadata = output.get("metadata")
        code = metadata.get("exit_code") if isinstance(metadata, dict) else None
        text = string(output.get("output")) or string(output.get("content"))
        return f"Exit code: {code}\nOutput:\n{text}" if isinstance(code, int) else text
    if isinstance(output, list):
        return "\n".join(string(part.get("text")) for part in output if isinstance(part, dict))
    return string(output)
