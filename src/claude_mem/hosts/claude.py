"""Claude Code: what its hooks send, and what they may be answered.

Other editors that post to the session routes are given the same shape, so this is also the dialect of the HTTP API.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from claude_mem import hook, ids, privacy
from claude_mem.errors import BadRecord
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

HOST = "claude"
# Claude Code and Codex cut an answer at 10,000 characters; the envelope around the text needs some of them.
CONTEXT_CHARS = 9_500
MAX_DEPTH = 100  # of a payload's JSON. Real ones have less than ten levels; every later step may then recurse

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
_NOT_SAID = (
    "<command-name>", "<command-message>", "<command-args>", "<local-command-", "<bash-input>", "<bash-stdout>",
    "<bash-stderr>", "<task-notification", "Caveat: The messages below were generated", "[Request interrupted by user",
)  # fmt: skip
# Large parts of a tool's response that repeat what is in its input or on disk.
_NOT_KEPT = ("originalFile", "content", "base64", "oldString", "newString", "originalFileContents")


def read(envelope: Envelope) -> Event:
    """A spool file as an event, or `BadRecord`. Private parts are cut here once more."""
    if envelope.header.get("withheld"):
        raise BadRecord("withheld")
    if envelope.header.get("cut"):
        raise BadRecord("cut", "it was too large or ended too late; the transcript has it")
    fields = _fields(envelope.payload)
    session_id = fields.get("session_id")
    if not isinstance(session_id, str) or not session_id.strip():
        raise BadRecord("no_session")
    name = fields.get("hook_event_name") or _BY_COMMAND.get(envelope.header["command"], "")
    private = bool(envelope.header.get("private")) or privacy.hides_all(_text(fields.get("prompt")))
    fields = privacy.strip_all(fields)
    pid = envelope.header.get("pid", "")
    body = _body(str(name), fields)
    return Event(
        id=envelope.id,
        host=envelope.header.get("host") or HOST,
        content_session_id=session_id.strip()[:200],
        at=ids.at(envelope.id) or ids.now(),
        body=body,
        cwd=storable(envelope.header.get("project_dir") or _text(fields.get("cwd"))),
        project=envelope.header.get("project", ""),
        prompt_id=_text(fields.get("prompt_id"))[:200],
        tool_use_id=_text(fields.get("tool_use_id"))[:200] if isinstance(body, ToolUsed) else "",
        transcript_path=_text(fields.get("transcript_path")),
        host_pid=int(pid) if pid.isdigit() and len(pid) < 10 else None,
        private=private,
    )


def _fields(payload: bytes) -> dict[str, Any]:
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


def _body(name: str, fields: dict[str, Any]) -> Body:
    match name:
        case "SessionStart":
            return SessionStarted(_text(fields.get("source")) or "startup")
        case "UserPromptSubmit":
            text = _text(fields.get("prompt"))
            return Prompted(text) if is_said(text) else Noticed()
        case "PostToolUse" | "PostToolUseFailure":
            return _tool(fields, failed=name == "PostToolUseFailure")
        case "Stop":
            return Stopped(_text(fields.get("last_assistant_message")))
        case "SubagentStop" if fields.get("agent_type") == "":
            return Compacting("summarised")  # the client sums up the conversation for itself: not work of anyone's
        case "SubagentStop":
            return SubagentStopped(
                _text(fields.get("last_assistant_message")),
                _text(fields.get("agent_id")),
                _text(fields.get("agent_transcript_path")),
            )
        case "PreCompact":
            return Compacting(_text(fields.get("trigger")))
        case "SessionEnd":
            return SessionEnded(_text(fields.get("reason")))
    raise BadRecord("unknown_event", f"unknown event {name[:100]!r}")


def is_said(text: str) -> bool:
    """Was it the user who said this? The client puts its own notices where prompts stand."""
    return not text.lstrip().startswith(_NOT_SAID)


def _tool(fields: dict[str, Any], *, failed: bool) -> ToolUsed:
    tool = fields.get("tool_name")
    if not isinstance(tool, str) or not tool:
        raise BadRecord("no_tool")
    given = fields.get("tool_input")
    output = fields.get("error") if failed else fields.get("tool_response")
    return tool_used(tool, given, output, failed=failed, agent_id=_text(fields.get("agent_id")))


def tool_used(name: str, given: Any, output: Any, *, failed: bool, agent_id: str) -> ToolUsed:
    """A tool call as hooks and transcripts tell it, without what would only be a copy."""
    arguments = given if isinstance(given, dict) else {} if given is None else {"input": given}
    return ToolUsed(name[:200], arguments, _lean(output), failed, agent_id[:200])


def _lean(output: Any) -> Any:
    if not isinstance(output, dict):
        return output
    lean = {key: item for key, item in output.items() if key not in _NOT_KEPT}
    if isinstance(file := lean.get("file"), dict):
        lean["file"] = {key: item for key, item in file.items() if key not in _NOT_KEPT}
    return lean


def _text(found: Any) -> str:
    return found if isinstance(found, str) else ""


# --- moments ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something is about to happen, or has just gone wrong: who is at work where, and what it is about."""

    host: str
    content_session_id: str
    cwd: str
    event: str
    text: str  # the prompt, the path of the file, the error


def moment(envelope: Envelope) -> Moment:
    """What a hook tells when it asks whether memory has something to say."""
    fields = privacy.strip_all(_fields(envelope.payload))
    session_id = _text(fields.get("session_id")).strip()
    if envelope.header.get("withheld") or envelope.header.get("cut") or not session_id:
        raise BadRecord("no_session")
    given = fields.get("tool_input")
    given = given if isinstance(given, dict) else {}
    texts = {
        "new": _text(fields.get("prompt")),
        "file": _text(given.get("file_path")) or _text(given.get("notebook_path")),
        "fail": _text(fields.get("error")),
    }
    return Moment(
        host=envelope.header.get("host") or HOST,
        content_session_id=session_id[:200],
        cwd=storable(envelope.header.get("project_dir") or _text(fields.get("cwd"))),
        event=_text(fields.get("hook_event_name")) or _MOMENTS.get(envelope.header["command"], ""),
        text=storable(texts.get(envelope.header["command"], "")),
    )


# --- answers ---------------------------------------------------------------------------------------------------------


def start_answer(context: str, *, notice: str = "") -> bytes:
    """What SessionStart is answered: text for the model and, when there is something to know, a line for the person."""
    return context_answer("SessionStart", context, notice=notice)


def context_answer(event: str, context: str, *, notice: str = "") -> bytes:
    """Text for the model at this event; nothing but a nod if there is none."""
    answer: dict[str, Any] = {"continue": True, "suppressOutput": True}
    if context:
        answer["hookSpecificOutput"] = {"hookEventName": event, "additionalContext": context}
    if notice:
        answer["systemMessage"] = notice
    return json.dumps(answer).encode() if context or notice else hook.ANSWER
