"""What a hook sends, as an event or as a moment at which memory may speak."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from claude_mem import ids, privacy
from claude_mem.errors import BadRecord
from claude_mem.hosts.dialect import Fields, is_said, string, tool_used
from claude_mem.hosts.lines import has_too_many_values
from claude_mem.hosts.registry import of
from claude_mem.records import (
    Body,
    Compacting,
    Event,
    Noticed,
    Prompted,
    SessionEnded,
    SessionStarted,
    Stopped,
    SubagentStopped,
    ToolUsed,
)
from claude_mem.spool import Envelope
from claude_mem.text import storable

HOST = "claude"  # of a record that does not say
MAX_VALUES = 400_000  # the names of all files of a large repository are half as many
MAX_DEPTH = 100  # of a payload's JSON. Real ones have less than ten levels; every later step may then recurse

# What the hook has cut was there: no host may take such a prompt for none at all.
_HIDDEN = "<private></private>"

# Which event a command stands for when the payload does not say.
_BY_COMMAND = {
    "context": "SessionStart",
    "new": "UserPromptSubmit",
    "save": "PostToolUse",
    "fail": "PostToolUseFailure",
    "summary": "Stop",
    "cleanup": "SessionEnd",
    "compact": "PreCompact",
}
_MOMENTS = {"new": "UserPromptSubmit", "file": "PreToolUse", "fail": "PostToolUseFailure"}
# What a moment is, by its event. (The second, where a host takes text with a file's content only.)
_KINDS = {"PreToolUse": "file", "PostToolUse": "file", "PostToolUseFailure": "failure"}


def read(envelope: Envelope) -> Event:
    """A spool file as an event, or `BadRecord`. Private parts are cut here once more."""
    if envelope.header.get("withheld"):
        raise BadRecord("withheld")
    if envelope.header.get("cut"):
        raise BadRecord("cut", "it was too large or ended too late; the transcript has it")
    host = envelope.header.get("host") or HOST
    fields = _fields(envelope.payload)
    if envelope.header.get("private"):
        fields["prompt"] = _HIDDEN
    fields = of(host).translate(fields)
    session_id = string(fields.get("session_id")).strip()
    if not session_id:
        raise BadRecord("no_session")
    name = fields.get("hook_event_name") or _BY_COMMAND.get(envelope.header["command"], "")
    private = bool(envelope.header.get("private")) or privacy.hides_all(string(fields.get("prompt")))
    before, fields = fields, privacy.strip_fields(fields)
    pid = envelope.header.get("pid", "")
    body = _body(str(name), fields)
    return Event(
        id=envelope.id,
        host=host,
        content_session_id=session_id[:200],
        at=ids.at(envelope.id) or ids.now(),
        body=body,
        cwd=storable(envelope.header.get("project_dir") or string(fields.get("cwd"))),
        project=envelope.header.get("project", ""),
        prompt_id=string(fields.get("prompt_id"))[:200],
        tool_use_id=string(fields.get("tool_use_id"))[:200] if isinstance(body, ToolUsed) else "",
        transcript_path=string(fields.get("transcript_path")),
        host_pid=int(pid) if pid.isdecimal() and len(pid) < 10 else None,
        private=private,
        stripped=bool(envelope.header.get("stripped")) or before != fields,
    )


def _fields(payload: bytes) -> Fields:
    if has_too_many_values(payload, most=MAX_VALUES):
        raise BadRecord("too_many_values")
    try:
        found = msgspec.json.decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        found = _lenient(payload)
    if not isinstance(found, dict):
        raise BadRecord("not_an_object")
    if _deeper(found, MAX_DEPTH):
        raise BadRecord("too_deep")
    return found


def _deeper(found: Any, limit: int) -> bool:
    """Level by level, not by recursion: how deep that may go depends on who calls."""
    level = [found]
    for _ in range(limit):
        level = [item for value in level for item in _items(value)]
        if not level:
            return False
    return True


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _lenient(payload: bytes) -> Any:
    """Half a surrogate or a stray byte is no reason to lose an event."""
    try:
        return json.loads(payload.decode("utf-8", "replace"))
    except RecursionError as error:
        raise BadRecord("too_deep") from error
    except ValueError as error:
        raise BadRecord("not_json") from error


def _body(name: str, fields: Fields) -> Body:
    match name:
        case "SessionStart":
            return SessionStarted(string(fields.get("source")) or "startup")
        case "UserPromptSubmit":
            said = string(fields.get("prompt"))
            return Prompted(said) if is_said(said) else Noticed()
        case "PostToolUse" | "PostToolUseFailure":
            return _tool(fields, failed=name == "PostToolUseFailure")
        case "Stop":
            return Stopped(string(fields.get("last_assistant_message")))
        case "SubagentStop" if fields.get("agent_type") == "":
            return Compacting("summarised")  # the client sums up the conversation for itself: not work of anyone's
        case "SubagentStop":
            return SubagentStopped(
                string(fields.get("last_assistant_message")),
                string(fields.get("agent_id")),
                string(fields.get("agent_transcript_path")),
            )
        case "PreCompact":
            return Compacting(string(fields.get("trigger")))
        case "SessionEnd":
            return SessionEnded(string(fields.get("reason")))
    raise BadRecord("unknown_event", f"unknown event {name[:100]!r}")


def _tool(fields: Fields, *, failed: bool) -> ToolUsed:
    tool = fields.get("tool_name")
    if not isinstance(tool, str) or not tool:
        raise BadRecord("no_tool")
    given = fields.get("tool_input")
    output = fields.get("error") if failed else fields.get("tool_response")
    return tool_used(tool, given, output, failed=failed, agent_id=string(fields.get("agent_id")))


# --- moments ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something is about to happen, or has just gone wrong: who is at work where, and what it is about."""

    host: str
    content_session_id: str
    cwd: str
    event: str
    text: str  # the prompt, the path of the file, the error

    @property
    def kind(self) -> str:
        """prompt, file or failure."""
        return _KINDS.get(self.event, "prompt")


def moment(envelope: Envelope) -> Moment:
    """What a hook tells when it asks whether memory has something to say."""
    host = envelope.header.get("host") or HOST
    fields = privacy.strip_fields(of(host).translate(_fields(envelope.payload)))
    session_id = string(fields.get("session_id")).strip()
    if envelope.header.get("withheld") or envelope.header.get("cut") or not session_id:
        raise BadRecord("no_session")
    given = fields.get("tool_input")
    given = given if isinstance(given, dict) else {}
    texts = {
        "new": string(fields.get("prompt")),
        "file": string(given.get("file_path")) or string(given.get("notebook_path")),
        "fail": string(fields.get("error")),
    }
    return Moment(
        host=host,
        content_session_id=storable(session_id[:200]),
        cwd=storable(envelope.header.get("project_dir") or string(fields.get("cwd"))),
        event=string(fields.get("hook_event_name")) or _MOMENTS.get(envelope.header["command"], ""),
        text=storable(texts.get(envelope.header["command"], "")),
    )
