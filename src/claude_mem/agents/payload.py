"""Parses what a hook sends: into an event, or into a trigger at which context may be injected."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from claude_mem.agents.canonical import Fields, is_user_prompt, make_tool_used, string_or_empty
from claude_mem.agents.registry import get_agent
from claude_mem.agents.transcript_lines import has_too_many_values
from claude_mem.domain import ids
from claude_mem.domain.errors import UnreadableEvent
from claude_mem.domain.records import (
    AgentNotice,
    Body,
    Compacting,
    Event,
    Prompted,
    SessionEnded,
    SessionStarted,
    Stopped,
    SubagentStopped,
    ToolUsed,
)
from claude_mem.domain.text import make_storable
from claude_mem.privacy import tags
from claude_mem.system.spool import Envelope

DEFAULT_HOST = "claude"  # agent of a record that does not name one
MAX_VALUES = 400_000  # a list of all files in a large repository has half as many
MAX_DEPTH = 100  # nesting of a payload. Real payloads have fewer than ten levels; the limit makes recursion safe later

# Stands in for a private prompt that the hook removed, so that no agent's translation takes it for an empty one.
_HIDDEN = "<private></private>"

# The event of each command, for payloads that do not name one.
_BY_COMMAND = {
    "context": "SessionStart",
    "new": "UserPromptSubmit",
    "save": "PostToolUse",
    "fail": "PostToolUseFailure",
    "summary": "Stop",
    "cleanup": "SessionEnd",
    "compact": "PreCompact",
}
_EVENT_OF_TRIGGER = {"new": "UserPromptSubmit", "file": "PreToolUse", "fail": "PostToolUseFailure"}
# The kind of each trigger, by its event. `PostToolUse` is for agents that accept context only with a file's content.
_KINDS = {
    "PreToolUse": "file",
    "PostToolUse": "file",
    "PostToolUseFailure": "failure",
    "PermissionRequest": "permission",
}


def read_event(envelope: Envelope) -> Event:
    """Parse a spool file into an event, or raise `UnreadableEvent`. Private parts are removed here again."""
    if envelope.header.get("withheld"):
        raise UnreadableEvent("withheld")
    if envelope.header.get("cut"):
        raise UnreadableEvent("cut", "the payload was too large or arrived too late; the transcript has it")
    host = envelope.header.get("host") or DEFAULT_HOST
    fields = _fields(envelope.payload)
    if envelope.header.get("private"):
        fields["prompt"] = _HIDDEN
    fields = get_agent(host).translate(fields)
    session_id = string_or_empty(fields.get("session_id")).strip()
    if not session_id:
        raise UnreadableEvent("no_session")
    name = fields.get("hook_event_name") or _BY_COMMAND.get(envelope.header["command"], "")
    private = bool(envelope.header.get("private")) or tags.is_entirely_private(string_or_empty(fields.get("prompt")))
    before, fields = fields, tags.strip_private_fields(fields)
    pid = envelope.header.get("pid", "")
    body = _body(str(name), fields)
    return Event(
        id=envelope.id,
        host=host,
        content_session_id=session_id[:200],
        at=ids.created_at_ms(envelope.id) or ids.now_ms(),
        body=body,
        cwd=make_storable(envelope.header.get("project_dir") or string_or_empty(fields.get("cwd"))),
        project=envelope.header.get("project", ""),
        prompt_id=string_or_empty(fields.get("prompt_id"))[:200],
        tool_use_id=string_or_empty(fields.get("tool_use_id"))[:200] if isinstance(body, ToolUsed) else "",
        transcript_path=string_or_empty(fields.get("transcript_path")),
        host_pid=int(pid) if pid.isdecimal() and len(pid) < 10 else None,
        private=private,
        stripped=bool(envelope.header.get("stripped")) or before != fields,
    )


def _fields(payload: bytes) -> Fields:
    if has_too_many_values(payload, most=MAX_VALUES):
        raise UnreadableEvent("too_many_values")
    try:
        fields = msgspec.json.decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        fields = _lenient(payload)
    if not isinstance(fields, dict):
        raise UnreadableEvent("not_an_object")
    if _is_deeper(fields, MAX_DEPTH):
        raise UnreadableEvent("too_deep")
    return fields


def _is_deeper(root: Any, limit: int) -> bool:
    """Return whether a value is nested deeper than `limit`.

    Works level by level, because the possible depth of recursion depends on the caller.
    """
    level = [root]
    for _ in range(limit):
        level = [item for value in level for item in _items(value)]
        if not level:
            return False
    return True


def _items(value: Any) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _lenient(payload: bytes) -> object:
    """Parse JSON that contains lone surrogates or invalid bytes, which must not cause the loss of an event."""
    try:
        return json.loads(payload.decode("utf-8", "replace"))
    except RecursionError as error:
        raise UnreadableEvent("too_deep") from error
    except ValueError as error:
        raise UnreadableEvent("not_json") from error


def _body(name: str, fields: Fields) -> Body:
    match name:
        case "SessionStart":
            return SessionStarted(string_or_empty(fields.get("source")) or "startup")
        case "UserPromptSubmit":
            prompt = string_or_empty(fields.get("prompt"))
            return Prompted(prompt) if is_user_prompt(prompt) else AgentNotice()
        case "PostToolUse" | "PostToolUseFailure":
            return _tool(fields, failed=name == "PostToolUseFailure")
        case "Stop":
            return Stopped(string_or_empty(fields.get("last_assistant_message")))
        case "SubagentStop" if fields.get("agent_type") == "":
            return Compacting("summarised")  # the agent summarizes the conversation for itself: not a subagent's work
        case "SubagentStop":
            return SubagentStopped(
                string_or_empty(fields.get("last_assistant_message")),
                string_or_empty(fields.get("agent_id")),
                string_or_empty(fields.get("agent_transcript_path")),
            )
        case "PreCompact":
            return Compacting(string_or_empty(fields.get("trigger")))
        case "SessionEnd":
            return SessionEnded(string_or_empty(fields.get("reason")))
    raise UnreadableEvent("unknown_event", f"unknown event {name[:100]!r}")


def _tool(fields: Fields, *, failed: bool) -> ToolUsed:
    tool = fields.get("tool_name")
    if not isinstance(tool, str) or not tool:
        raise UnreadableEvent("no_tool")
    arguments = fields.get("tool_input")
    output = fields.get("error") if failed else fields.get("tool_response")
    return make_tool_used(tool, arguments, output, failed=failed, agent_id=string_or_empty(fields.get("agent_id")))


# --- triggers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """An opportunity to inject context: a prompt, a file about to be read or edited, a command before and after it."""

    host: str
    content_session_id: str
    cwd: str
    event: str
    text: str  # the prompt, the path of the file, the error, the command
    place: str = ""  # where a command will run; `cwd` is where the project is
    command: str = ""  # the command that failed
    tool: ToolUsed | None = None  # the edit that is about to be made

    @property
    def kind(self) -> str:
        """One of prompt, file, failure, command and permission."""
        kind = _KINDS.get(self.event, "prompt")
        return "command" if kind == "file" and self.command else kind


def read_trigger(envelope: Envelope) -> Trigger:
    """Parse a hook's request for context, or raise `UnreadableEvent`."""
    host = envelope.header.get("host") or DEFAULT_HOST
    fields = tags.strip_private_fields(get_agent(host).translate(_fields(envelope.payload)))
    session_id = string_or_empty(fields.get("session_id")).strip()
    if envelope.header.get("withheld") or envelope.header.get("cut") or not session_id:
        raise UnreadableEvent("no_session")
    tool_input = fields.get("tool_input")
    tool_input = tool_input if isinstance(tool_input, dict) else {}
    tool_name = string_or_empty(fields.get("tool_name"))
    command = make_storable(string_or_empty(tool_input.get("command"))) if tool_name == "Bash" else ""
    path = string_or_empty(tool_input.get("file_path")) or string_or_empty(tool_input.get("notebook_path"))
    texts = {
        "new": string_or_empty(fields.get("prompt")),
        "file": command or path,
        "fail": string_or_empty(fields.get("error")),
    }
    return Trigger(
        host=host,
        content_session_id=make_storable(session_id[:200]),
        cwd=make_storable(envelope.header.get("project_dir") or string_or_empty(fields.get("cwd"))),
        event=string_or_empty(fields.get("hook_event_name")) or _EVENT_OF_TRIGGER.get(envelope.header["command"], ""),
        text=make_storable(texts.get(envelope.header["command"], "")),
        place=make_storable(string_or_empty(fields.get("cwd"))),
        command=command,
        tool=ToolUsed(tool_name, tool_input) if path else None,
    )
