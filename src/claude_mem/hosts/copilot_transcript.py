"""Reads the Copilot CLI's transcript of a session: `session-state/<id>/events.jsonl`, including its subagents.

The transcript records each hook call with the time passed to the hook, so the ids of `copilot_words.py` can be derived
here as well. Events without a hook call keep Copilot's own ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from claude_mem import privacy
from claude_mem.hosts import lines
from claude_mem.hosts.copilot_words import call_id, outcome, prompt_id, tool
from claude_mem.hosts.dialect import Found, Head, is_said, milliseconds, string, string_of, tool_used
from claude_mem.records import Event, Prompted, Stopped

Record = dict[str, Any]

_SESSION = ("session.start", "session.resume")


class _Mark(msgspec.Struct):
    """Where a part ended, with the state the next part needs. `lines` are offsets of lines to read again: calls without
    a result, hook calls without a matching result, and the last message."""

    offset: int = 0
    inside: bool = False  # the part ended inside a line that is too long
    session: str = ""
    cwd: str = ""
    prompt_id: str = ""
    announced: bool = False
    private: bool = False
    lines: list[int] = []


def read(
    path: Path, *, host: str, content_session_id: str = "", offset: int = 0, agent_id: str = "", over: bool = False
) -> Found:
    reader = _Reader(host, content_session_id)
    transcript = reader.transcript
    if agent_id:
        return transcript  # subagents have no files of their own
    lines.read(path, transcript, reader.take, offset=offset, over=over)
    transcript.offset = offset if transcript.problem else reader.resume_at(transcript.offset)
    return transcript


def part(
    path: Path,
    *,
    host: str,
    mark: str = "",
    most: int,
    content_session_id: str = "",
    offset: int = 0,
    agent_id: str = "",
    over: bool = True,
) -> tuple[Found, str]:
    start = msgspec.json.decode(mark, type=_Mark) if mark else _Mark(offset=offset, session=content_session_id)
    reader = _Reader(host, start.session)
    transcript = reader.transcript
    if agent_id:
        return transcript, ""
    with lines.problems(transcript), lines.opened(path) as file:
        if lines.start_of(path, start.offset) != start.offset:
            start = _Mark(session=content_session_id)
        reader.resume(start, lines.again(file, start.lines))
        place = lines.Place(start.offset, start.inside)
        lines.feed(file, transcript, reader.take, place, over=over, most=most)
        if not place.ended:
            transcript.closings.pop(reader.prompt_id, None)
            return transcript, msgspec.json.encode(reader.mark(place)).decode()
        if not over:
            transcript.offset = reader.resume_at(place.offset)
    return transcript, ""


def head(path: Path) -> Head:
    return lines.head(path, _learn)


def _learn(transcript: Found, record: Record) -> None:
    if record.get("type") in _SESSION and isinstance(data := record.get("data"), dict):
        transcript.content_session_id = transcript.content_session_id or string_of(data, "sessionId")
        context = data.get("context")
        transcript.cwd = transcript.cwd or (string_of(context, "cwd") if isinstance(context, dict) else "")


def _closing(record: Record) -> str:
    """Return the text of a message that ends a turn; "" if a tool call follows."""
    data = record["data"]
    return string(data.get("content")) if record["type"] == "assistant.message" and not data.get("toolRequests") else ""


@dataclass(slots=True)
class _Call:
    name: str
    arguments: Any
    agent_id: str
    line: int


class _Reader:
    def __init__(self, host: str, content_session_id: str) -> None:
        self.host = host
        self.content_session_id = content_session_id
        self.transcript = Found()
        self.calls: dict[str, _Call] = {}
        self.hook_calls: list[tuple[int, _Call]] = []  # times and calls reported to a hook
        self.prompt_id = ""
        self.announced = False  # a hook call has already set the id of the next prompt
        self.closing_line = -1

    def resume(self, mark: _Mark, unfinished: Iterable[tuple[int, Record]]) -> None:
        """Continue where a part ended, after reading its unfinished lines again."""
        for start, record in unfinished:
            self._restore(mark)
            self.take(start, record)
        self._restore(mark)
        self.transcript.events.clear()
        self.transcript.lines.clear()

    def _restore(self, mark: _Mark) -> None:
        self.transcript.content_session_id, self.transcript.cwd = mark.session, mark.cwd
        self.prompt_id, self.announced = mark.prompt_id, mark.announced
        if mark.private:
            self.transcript.private.add(mark.prompt_id)

    def resume_at(self, place: int) -> int:
        """Return the offset of the next read, given where this one ended: the first call or turn without an end."""
        unfinished = [call.line for call in self.calls.values()]
        if self.prompt_id not in self.transcript.closings:  # read the turn again once it has ended
            unfinished.append(self.transcript.lines.get(self.prompt_id, place))
        return lines.look_back(place, unfinished)

    def mark(self, place: lines.Place) -> _Mark:
        calls = [*self.calls.values(), *(call for _, call in self.hook_calls)]
        unfinished = sorted({self.closing_line, *(call.line for call in calls)} - {-1})
        return _Mark(
            offset=place.offset,
            inside=place.inside,
            session=self.content_session_id,
            cwd=self.transcript.cwd,
            prompt_id=self.prompt_id,
            announced=self.announced,
            private=self.prompt_id in self.transcript.private,
            lines=unfinished[-lines.MAX_AGAIN :],
        )

    def take(self, start: int, record: Record) -> None:
        if not isinstance(record.get("type"), str) or not isinstance(record.get("data"), dict):
            return
        data, agent_id = record["data"], string(record.get("agentId"))
        match record["type"]:
            case "session.start" | "session.resume":
                self._session(record)
            case "hook.start":
                self._hook(data, agent_id, start)
            case "user.message" if not agent_id and not string(data.get("source")).startswith("agent-"):
                self._prompt(record, data)
            case "assistant.message" if not agent_id and (closing_text := _closing(record).strip()):
                self.transcript.closings[self.prompt_id] = self._event(record, Stopped(privacy.strip(closing_text)))
                self.closing_line = start
            case "tool.execution_start" if isinstance(call := data.get("toolCallId"), str):
                self.calls[call] = _Call(string(data.get("toolName")), data.get("arguments"), agent_id, start)
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
            self.hook_calls.append(
                (at, _Call(string(hook_input.get("toolName")), hook_input.get("toolArgs"), agent_id, start))
            )

    def _prompt(self, record: Record, data: Record) -> None:
        text = string(data.get("content"))
        if not self.announced:
            self.prompt_id, self.closing_line = string(data.get("messageId")) or string(record.get("id")), -1
        self.announced = False
        if privacy.hides_all(text):
            self.transcript.private.add(self.prompt_id)
        if text.strip() and is_said(text):
            self.transcript.events.append(self._event(record, Prompted(privacy.strip(text))))

    def _result(self, record: Record, data: Record) -> None:
        call = self.calls.pop(string(data.get("toolCallId")), None)
        if call is None or not call.name:
            return
        result, error = data.get("result"), data.get("error")
        text = string(result.get("content")) if isinstance(result, dict) else ""
        text = text or (string(error.get("message")) if isinstance(error, dict) else "")
        output, failed = outcome(privacy.strip(text), "success" if data.get("success") else "failure")
        name, arguments = tool(call.name, privacy.strip_all(call.arguments), self.transcript.cwd)
        body = tool_used(name, arguments, output, failed=failed, agent_id=call.agent_id)
        tool_use_id = call_id(self._hook_time(call), call.arguments) or string(data.get("toolCallId"))
        self.transcript.events.append(self._event(record, body, tool_use_id=tool_use_id))

    def _hook_time(self, call: _Call) -> int:
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
            at=milliseconds(record.get("timestamp")),
            body=body,
            prompt_id=self.prompt_id,
            tool_use_id=tool_use_id,
            private=self.prompt_id in self.transcript.private,
        )
