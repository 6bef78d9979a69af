"""GitHub's Copilot CLI. With Claude Code's event names, it sends payloads much like Claude Code's.

The differences: tools have other inputs; a failed shell command is reported as a success with the exit code in its
text; a subagent appears as a session of its own; prompts and tool calls have no ids; and the closing message is only in
the transcript, `session-state/<id>/events.jsonl`. Ids are therefore derived from the time at which the hook was called,
which the transcript records too. Events without a hook call keep Copilot's own ids.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from claude_mem.agents import transcript_lines
from claude_mem.agents.base import Agent, LauncherCommands, Transcripts, agent_dir, is_installed
from claude_mem.agents.canonical import (
    Fields,
    TranscriptContent,
    TranscriptHead,
    is_user_prompt,
    make_tool_used,
    parse_timestamp,
    string_field,
    string_or_empty,
)
from claude_mem.agents.claude import PLUGIN, SKILL
from claude_mem.agents.files import FileEdit, JsonEdit, Settings, SettingsEdit, add_server, remove_server
from claude_mem.agents.opencode import translate_patch
from claude_mem.domain.errors import IgnoredEvent
from claude_mem.domain.records import Event, Prompted, Stopped
from claude_mem.privacy import tags
from claude_mem.system.process import LAUNCHER

NAME = "copilot"
TIMEOUT_SECONDS = 5
EVENTS = {
    "SessionStart": "context",
    "UserPromptSubmit": "new",
    "PreToolUse": "file",
    "PostToolUse": "save",
    "PostToolUseFailure": "fail",
    "Stop": "summary",
    "SubagentStop": "summary",
    "PreCompact": "compact",
    "SessionEnd": "cleanup",
}
MATCHERS = {"PreToolUse": "Read|Edit|Write|Bash"}


def config_dir(env: Mapping[str, str]) -> Path:
    """Return the directory of its settings."""
    return agent_dir(env, "COPILOT_HOME", ".copilot")


# --- hook payloads ---------------------------------------------------------------------------------------------------


def translate(fields: Fields) -> Fields:
    """Translate a hook payload into the common format."""
    translated = {**fields, **_speaker(fields)}
    match fields.get("hook_event_name"):
        case "SessionStart":
            return {**translated, "source": "startup"}  # a resumed session no longer has its brief
        case "UserPromptSubmit":
            return {**translated, "prompt_id": prompt_id(parse_timestamp(fields.get("timestamp")))}
        case "PreToolUse" | "PostToolUse" | "PostToolUseFailure":
            return {**translated, **_tool(fields)}
    return translated


def _speaker(fields: Fields) -> Fields:
    """Assign the events of a subagent to its parent's session. Its prompt and its closing message are ignored: they
    are part of the parent's tool call."""
    parent = string_or_empty(fields.get("parent_agent_id"))
    if not parent:
        return {}
    if fields.get("hook_event_name") in ("UserPromptSubmit", "Stop", "SessionStart", "SessionEnd"):
        raise IgnoredEvent
    return {"session_id": parent}


def _tool(fields: Fields) -> Fields:
    name, arguments = translate_tool(
        string_or_empty(fields.get("tool_name")), fields.get("tool_input"), string_or_empty(fields.get("cwd"))
    )
    result = fields.get("tool_result")
    result = result if isinstance(result, dict) else {}
    text, failed = parse_outcome(
        string_or_empty(result.get("text_result_for_llm")), string_or_empty(result.get("result_type")) or "success"
    )
    translated: Fields = {"tool_name": name, "tool_input": arguments, "tool_response": text}
    if fields.get("hook_event_name") != "PreToolUse":
        translated["tool_use_id"] = call_id(parse_timestamp(fields.get("timestamp")), fields.get("tool_input"))
    if failed and fields.get("hook_event_name") == "PostToolUse":
        translated |= {"hook_event_name": "PostToolUseFailure", "error": text}
    return translated


# --- tool calls ------------------------------------------------------------------------------------------------------


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


def translate_tool(name: str, arguments: Any, cwd: str = "") -> tuple[str, object]:
    """Translate a tool's name and arguments. The name is the one used in hooks or the one used by the model."""
    if name == "apply_patch":
        patch = arguments.get("input") if isinstance(arguments, dict) else arguments
        return translate_patch(string_or_empty(patch), cwd)
    name = _TOOLS.get(name, name)
    if name in _FILE_TOOLS and isinstance(arguments, dict):
        arguments = {_INPUTS.get(key, key): value for key, value in arguments.items()}
    if name.islower() and "-" in name:
        server, _, tool_name = name.rpartition("-")
        return f"mcp__{server}__{tool_name}", arguments
    return name, arguments


def parse_outcome(text: str, kind: str) -> tuple[str, bool]:
    """Return the output of a tool and whether the call failed."""
    exit_note = _EXIT.search(text)
    output = text[: exit_note.start()] if exit_note else text
    if exit_note and int(exit_note[1]):
        return f"Exit code {exit_note[1]}\n{output}", True
    return output, kind != "success"


# --- ids that hooks and transcripts share ----------------------------------------------------------------------------


def prompt_id(at: int) -> str:
    """Return the id of a prompt from the time of its hook; "" if the time is unknown."""
    return f"at-{at}" if at else ""


def call_id(at: int, arguments: Any) -> str:
    """Return an id from the time and the arguments: several calls may end in the same millisecond. Private parts are
    left out, because the hook removes them first."""
    text = json.dumps(tags.strip_private_json(arguments), sort_keys=True, default=str)
    return f"at-{at}-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}" if at else ""


# --- transcripts -----------------------------------------------------------------------------------------------------


Record = dict[str, Any]

_SESSION = ("session.start", "session.resume")


class _CopilotMark(transcript_lines.Mark):
    prompt_id: str = ""
    announced: bool = False


_DECODE_MARK = msgspec.json.Decoder(_CopilotMark)


def read(
    path: Path, *, host: str, content_session_id: str = "", offset: int = 0, agent_id: str = "", over: bool = False
) -> TranscriptContent:
    """Read a transcript; see `canonical.Reader`."""
    reader = _CopilotReader(host, content_session_id)
    if agent_id:
        return reader.transcript  # subagents have no files of their own
    return transcript_lines.read_from(path, reader, offset=offset, over=over)


def read_part(
    path: Path,
    *,
    host: str,
    mark: str = "",
    most: int,
    content_session_id: str = "",
    offset: int = 0,
    agent_id: str = "",
    over: bool = True,
) -> tuple[TranscriptContent, str]:
    """Read one part of a transcript; see `canonical.PartReader`."""
    start = transcript_lines.decode_mark(_DECODE_MARK, mark, offset=offset, session=content_session_id)
    reader = _CopilotReader(host, start.session)
    if agent_id:
        return reader.transcript, ""
    return transcript_lines.read_part(path, reader, start, session=content_session_id, most=most, over=over)


def read_head(path: Path) -> TranscriptHead:
    """Read session id, directory, start and end from the first and last lines."""
    return transcript_lines.read_head(path, _learn)


def _learn(transcript: TranscriptContent, record: Record) -> None:
    if record.get("type") in _SESSION and isinstance(data := record.get("data"), dict):
        transcript.content_session_id = transcript.content_session_id or string_field(data, "sessionId")
        context = data.get("context")
        transcript.cwd = transcript.cwd or (string_field(context, "cwd") if isinstance(context, dict) else "")


def _closing(record: Record) -> str:
    """Return the text of a message that ends a turn; "" if a tool call follows."""
    data = record["data"]
    return "" if data.get("toolRequests") else string_or_empty(data.get("content"))


@dataclass(slots=True)
class _PendingCopilotCall:
    """A tool call whose result has not been read yet."""

    name: str
    arguments: Any
    agent_id: str
    line: int


class _CopilotReader:
    """Collects events from the records of a transcript, which includes those of subagents."""

    def __init__(self, host: str, content_session_id: str) -> None:
        self.host = host
        self.content_session_id = content_session_id
        self.transcript = TranscriptContent()
        self.calls: dict[str, _PendingCopilotCall] = {}
        self.hook_calls: list[tuple[int, _PendingCopilotCall]] = []  # times and calls reported to a hook
        self.prompt_id = ""
        self.announced = False  # a hook call has already set the id of the next prompt
        self.closing_line = -1

    def resume(self, mark: _CopilotMark, unfinished: Iterable[tuple[int, Record]]) -> None:
        """Continue where a part ended, after reading its unfinished lines again."""
        for start, record in unfinished:
            self._restore(mark)
            self.take(start, record)
        self._restore(mark)
        self.transcript.events.clear()
        self.transcript.lines.clear()

    def drop_open_closing(self) -> None:
        """Drop the closing message of a turn that continues in the next part."""
        self.transcript.closings.pop(self.prompt_id, None)

    def _restore(self, mark: _CopilotMark) -> None:
        self.transcript.content_session_id, self.transcript.cwd = mark.session, mark.cwd
        self.prompt_id, self.announced = mark.prompt_id, mark.announced
        if mark.private:
            self.transcript.private.add(mark.prompt_id)

    def resume_at(self, place: int) -> int:
        """Return the offset of the next read, given where this one ended: the first call or turn without an end."""
        unfinished = [call.line for call in self.calls.values()]
        if self.prompt_id not in self.transcript.closings:  # read the turn again once it has ended
            unfinished.append(self.transcript.lines.get(self.prompt_id, place))
        return transcript_lines.resume_offset(place, unfinished)

    def mark(self, place: transcript_lines.ReadPosition) -> _CopilotMark:
        """Return the mark from which the next part continues."""
        calls = [*self.calls.values(), *(call for _, call in self.hook_calls)]
        unfinished = sorted({self.closing_line, *(call.line for call in calls)} - {-1})
        return _CopilotMark(
            offset=place.offset,
            inside=place.inside,
            session=self.content_session_id,
            cwd=self.transcript.cwd,
            prompt_id=self.prompt_id,
            announced=self.announced,
            private=self.prompt_id in self.transcript.private,
            lines=unfinished[-transcript_lines.MAX_REREAD_LINES :],
        )

    def take(self, start: int, record: Record) -> None:
        """Process the record at offset `start`."""
        if not isinstance(record.get("type"), str) or not isinstance(record.get("data"), dict):
            return
        data, agent_id = record["data"], string_or_empty(record.get("agentId"))
        match record["type"]:
            case "session.start" | "session.resume":
                self._session(record)
            case "hook.start":
                self._hook(data, agent_id, start)
            case "user.message" if not agent_id and not string_or_empty(data.get("source")).startswith("agent-"):
                self._prompt(record, data)
            case "assistant.message" if not agent_id and (closing_text := _closing(record).strip()):
                self.transcript.closings[self.prompt_id] = self._event(
                    record, Stopped(tags.strip_private(closing_text))
                )
                self.closing_line = start
            case "tool.execution_start" if isinstance(call := data.get("toolCallId"), str):
                self.calls[call] = _PendingCopilotCall(
                    string_or_empty(data.get("toolName")), data.get("arguments"), agent_id, start
                )
            case "tool.execution_complete":
                self._result(record, data)
        self.transcript.lines.setdefault(self.prompt_id, start)

    def _session(self, record: Record) -> None:
        self.transcript.content_session_id = self.content_session_id
        _learn(self.transcript, record)
        self.content_session_id = self.transcript.content_session_id

    def _hook(self, data: Record, agent_id: str, start: int) -> None:
        hook_input = data.get("input")
        at = hook_input.get("timestamp") if isinstance(hook_input, dict) else None
        if not isinstance(hook_input, dict) or not isinstance(at, int):
            return
        if data.get("hookType") == "userPromptSubmitted" and not agent_id:
            self.prompt_id, self.announced, self.closing_line = prompt_id(at), True, -1
        elif data.get("hookType") in ("postToolUse", "postToolUseFailure"):
            name = string_or_empty(hook_input.get("toolName"))
            call = _PendingCopilotCall(name, hook_input.get("toolArgs"), agent_id, start)
            self.hook_calls.append((at, call))

    def _prompt(self, record: Record, data: Record) -> None:
        text = string_or_empty(data.get("content"))
        if not self.announced:
            self.prompt_id = string_or_empty(data.get("messageId")) or string_or_empty(record.get("id"))
            self.closing_line = -1
        self.announced = False
        if tags.is_entirely_private(text):
            self.transcript.private.add(self.prompt_id)
        if text.strip() and is_user_prompt(text):
            self.transcript.events.append(self._event(record, Prompted(tags.strip_private(text))))

    def _result(self, record: Record, data: Record) -> None:
        call = self.calls.pop(string_or_empty(data.get("toolCallId")), None)
        if call is None or not call.name:
            return
        result, error = data.get("result"), data.get("error")
        text = string_or_empty(result.get("content")) if isinstance(result, dict) else ""
        text = text or (string_or_empty(error.get("message")) if isinstance(error, dict) else "")
        arguments, text = tags.strip_private_call(call.arguments, text)
        output, failed = parse_outcome(text, "success" if data.get("success") else "failure")
        name, arguments = translate_tool(call.name, arguments, self.transcript.cwd)
        body = make_tool_used(name, arguments, output, failed=failed, agent_id=call.agent_id)
        tool_use_id = call_id(self._hook_time(call), call.arguments) or string_or_empty(data.get("toolCallId"))
        self.transcript.events.append(self._event(record, body, tool_use_id=tool_use_id))

    def _hook_time(self, call: _PendingCopilotCall) -> int:
        """Return the time of the hook call that reported this tool call, or 0. Of identical calls, the first one that
        is still unmatched is taken."""
        for n, (at, hook_call) in enumerate(self.hook_calls):
            if (hook_call.name, hook_call.arguments, hook_call.agent_id) == (call.name, call.arguments, call.agent_id):
                del self.hook_calls[n]
                return at
        return 0

    def _event(self, record: Record, body: Any, *, tool_use_id: str = "") -> Event:
        return Event(
            id=f"t-{self.content_session_id}.{tool_use_id or record.get('id')}",
            host=self.host,
            content_session_id=self.content_session_id,
            at=parse_timestamp(record.get("timestamp")),
            body=body,
            prompt_id=self.prompt_id,
            tool_use_id=tool_use_id,
            private=self.prompt_id in self.transcript.private,
        )


def _find(env: Mapping[str, str]) -> Iterator[Path]:
    yield from sorted((config_dir(env) / "session-state").glob("*/events.jsonl"))


def _owns(record: Mapping[str, Any]) -> bool:
    data = record.get("data")
    return record.get("type") == "session.start" and isinstance(data, dict) and data.get("producer") == "copilot-agent"


# --- installing ------------------------------------------------------------------------------------------------------


def hooks(ours: LauncherCommands) -> Settings:
    """Return the content of our hooks file."""

    def handler(event: str, command: str) -> Settings:
        matcher = {"matcher": MATCHERS[event]} if event in MATCHERS else {}
        return {**matcher, "type": "command", "bash": ours.hook(command, NAME), "timeoutSec": TIMEOUT_SECONDS}

    return {"version": 1, "hooks": {event: [handler(event, command)] for event, command in EVENTS.items()}}


def server_entry(ours: LauncherCommands) -> Settings:
    """Return our MCP server entry."""
    program, *arguments = ours.mcp()
    return {"type": "local", "command": program, "args": arguments, "tools": ["*"]}


def edits(ours: LauncherCommands) -> Sequence[SettingsEdit]:
    """Return the edits that make the agent run claude-mem."""
    directory = config_dir(ours.env)
    return (
        FileEdit(
            directory / "hooks" / "claude-mem.json",
            f"{len(EVENTS)} hooks, each at most {TIMEOUT_SECONDS} s",
            json.dumps(hooks(ours), indent=2) + "\n",
            mark=LAUNCHER,
            needed=True,
        ),
        JsonEdit(
            directory / "mcp-config.json",
            "the memory's tools",
            lambda settings: add_server(settings, server_entry(ours)),
            remove_server,
        ),
        FileEdit(directory / SKILL, "a skill: when and how to search", (PLUGIN / SKILL).read_text("utf-8")),
    )


def _present(env: Mapping[str, str]) -> bool:
    return is_installed(config_dir(env), NAME, env)


AGENT = Agent(
    name=NAME,
    label="Copilot CLI",
    translate=translate,
    present=_present,
    edits=edits,
    transcripts=Transcripts(
        read=read,
        find=_find,
        owns=_owns,
        head=read_head,
        late_seconds=0.3,
        part=read_part,
    ),
)
