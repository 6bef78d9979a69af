"""Codex's tool calls in our dialect, as its hooks and its rollouts tell them.

The shell is `Bash` to a hook, and `exec_command`, `shell_command`, `shell` or `local_shell_call` in a rollout. What
came of a command is text with a few lines about it above; only a rollout has the exit code in them. Edits are patches.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

import msgspec

from claude_mem import patches
from claude_mem.hosts.dialect import Fields, string

# Plans, waiting and looking for tools: they tell nothing about the work.
NOISE = frozenset({
    "update_plan", "write_stdin", "wait", "wait_agent", "close_agent", "resume_agent", "list_agents", "send_input",
    "send_message", "followup_task", "interrupt_agent", "get_goal", "create_goal", "update_goal",
    "tool_search", "request_user_input", "list_mcp_resources", "list_mcp_resource_templates",
})  # fmt: skip
_SHELLS = ("Bash", "exec_command", "shell_command", "shell", "local_shell", "container.exec")
_AGENTS = "multi_agent"  # stands before the names of such tools, without anything between
_ABOUT = re.compile(
    r"^(?:(?:Chunk ID|Wall time|Original token count|Total output lines): [^\n]*\n|Exit code: -?\d+\n"
    r"|Process (?:exited with code -?\d+|running with session ID \d+)\n)+(?:Output:\n)?",
    re.M,
)
_CODE = re.compile(r"^(?:Exit code: |Process exited with code )(-?\d+)$", re.M)
_REFUSED = re.compile(r"unsupported call|[\w ]{1,40} (?:failed|rejected)\b|(?:[^\n]*\n)?aborted by user")
_PATCHED = "Success. Updated"


@dataclass(frozen=True, slots=True)
class Told:
    """A call in our words."""

    name: str
    input: Any
    output: Any
    failed: bool


def is_noise(name: str) -> bool:
    return name in NOISE or name.startswith(_AGENTS)


def tell(name: str, raw_input: Any, output: Any, *, cwd: str, ran: bool = False, failed: bool = False) -> Told:
    """`ran`: so it was, and the output is what it printed and nothing else. `failed`: someone else has said so."""
    arguments: Fields = raw_input if isinstance(raw_input, dict) else {"input": raw_input} if raw_input else {}
    if name in _SHELLS:
        name, arguments = "Bash", {"command": command(arguments)}
    if name in ("Bash", patches.TOOL) and (text := patches.text_in(arguments)):
        return _patch(text, output, cwd=cwd, failed=failed)
    if name == "Bash":
        return Told(name, arguments, output, failed) if ran else _shell(arguments, output, failed=failed)
    if name == "view_image":
        name, arguments = "Read", {"file_path": arguments.get("path")}
    return Told(name, arguments, _answer(output), failed or _is_error(output) or (not ran and _is_refused(output)))


def command(arguments: Fields) -> str:
    """What was run. Some versions name the shell and its flag before it."""
    value = next((arguments[name] for name in ("command", "cmd") if arguments.get(name)), "")
    if not isinstance(value, list):
        return string(value)
    words = [word for word in value if isinstance(word, str)]
    return words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else shlex.join(words)


def _patch(text: str, output: Any, *, cwd: str, failed: bool) -> Told:
    output_text = _ABOUT.sub("", _text(output))
    refused = bool(output_text) and _PATCHED not in output_text
    return Told(patches.TOOL, patches.given(text, cwd), output_text, failed or refused)


def _shell(arguments: Fields, output: Any, *, failed: bool) -> Told:
    text = _text(output)
    about = _ABOUT.match(text)
    output_text = text[about.end() :] if about else text
    code = int(match[1]) if about and (match := _CODE.search(about[0])) else None
    failed = failed or bool(code) or (about is None and _is_refused(text))
    return Told("Bash", arguments, f"Exit code {code}\n{output_text}" if code else output_text, failed)


def _is_error(output: Any) -> bool:
    return isinstance(output, dict) and output.get("isError") is True


def _is_refused(output: Any) -> bool:
    """The words of Codex itself, of a call that it did not carry out."""
    return isinstance(output, str) and bool(_REFUSED.match(output))


def _answer(output: Any) -> Any:
    """Without the note on how long it took."""
    if isinstance(output, list) and output and isinstance(output[0], dict):
        return output[1:] if _ABOUT.match(f"{string(output[0].get('text'))}\n") else output
    return output


def _text(output: Any) -> str:
    """Older versions wrap it: `{"output": "…", "metadata": {"exit_code": 1}}`, as an object or as its JSON."""
    if isinstance(output, str) and output.startswith("{") and '"metadata"' in output:
        try:
            output = msgspec.json.decode(output)
        except (msgspec.MsgspecError, RecursionError):
            return str(output)
    if isinstance(output, dict):
        about = output.get("metadata")
        code = about.get("exit_code") if isinstance(about, dict) else None
        text = string(output.get("output")) or string(output.get("content"))
        return f"Exit code: {code}\nOutput:\n{text}" if isinstance(code, int) else text
    if isinstance(output, list):
        return "\n".join(string(part.get("text")) for part in output if isinstance(part, dict))
    return string(output)
