"""The Copilot CLI's own record of a session: `session-state/<id>/events.jsonl`, subagents included.

It notes each call of a hook with the time that the hook was told, and so the ids of `copilot_words.py` can be made here
as well. What no hook was called for has an id of Copilot's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claude_mem import privacy
from claude_mem.hosts import lines
from claude_mem.hosts.copilot_words import call_id, outcome, prompt_id, tool
from claude_mem.hosts.dialect import Found, Head, is_said, milliseconds, string, string_of, tool_used
from claude_mem.records import Event, Prompted, Stopped

Record = dict[str, Any]

_SESSION = ("session.start", "session.resume")


def read(
    path: Path, *, host: str, content_session_id: str = "", offset: int = 0, agent_id: str = "", over: bool = False
) -> Found:
    reader = _Reader(host, content_session_id)
    found = reader.found
    if agent_id:
        return found  # subagents have no files of their own
    lines.read(path, found, reader.take, offset=offset, over=over)
    unfinished = [call.line for call in reader.calls.values()]
    if reader.prompt_id not in found.closings:  # read again when its end is there
        unfinished.append(found.lines.get(reader.prompt_id, found.offset))
    found.offset = offset if found.problem else min([found.offset, *unfinished])
    return found


def head(path: Path) -> Head:
    return lines.head(path, _learn)


def _learn(found: Found, record: Record) -> None:
    if record.get("type") in _SESSION and isinstance(data := record.get("data"), dict):
        found.content_session_id = found.content_session_id or string_of(data, "sessionId")
        where = data.get("context")
        found.cwd = found.cwd or (string_of(where, "cwd") if isinstance(where, dict) else "")


def _closing(record: Record) -> str:
    """Words at the end of a turn, not before a tool call."""
    data = record["data"]
    return string(data.get("content")) if record["type"] == "assistant.message" and not data.get("toolRequests") else ""


@dataclass(slots=True)
class _Call:
    name: str
    given: Any
    agent_id: str
    line: int


class _Reader:
    def __init__(self, host: str, content_session_id: str) -> None:
        self.host = host
        self.content_session_id = content_session_id
        self.found = Found()
        self.calls: dict[str, _Call] = {}
        self.told: list[tuple[int, _Call]] = []  # the ends of calls that a hook was told of, and when
        self.prompt_id = ""
        self.announced = False  # a hook was told of the prompt that comes next

    def take(self, start: int, record: Record) -> None:
        if not isinstance(record.get("type"), str) or not isinstance(record.get("data"), dict):
            return
        data, agent_id = record["data"], string(record.get("agentId"))
        match record["type"]:
            case "session.start" | "session.resume":
                self._session(record)
            case "hook.start":
                self._hook(data, agent_id)
            case "user.message" if not agent_id and not string(data.get("source")).startswith("agent-"):
                self._prompt(record, data)
            case "assistant.message" if not agent_id and (words := _closing(record).strip()):
                self.found.closings[self.prompt_id] = self._event(record, Stopped(privacy.strip(words)))
            case "tool.execution_start" if isinstance(call := data.get("toolCallId"), str):
                self.calls[call] = _Call(string(data.get("toolName")), data.get("arguments"), agent_id, start)
            case "tool.execution_complete":
                self._result(record, data)
        self.found.lines.setdefault(self.prompt_id, start)

    def _session(self, record: Record) -> None:
        self.found.content_session_id = self.content_session_id
        _learn(self.found, record)
        self.content_session_id = self.found.content_session_id

    def _hook(self, data: Record, agent_id: str) -> None:
        given = data.get("input")
        at = given.get("timestamp") if isinstance(given, dict) else None
        if not isinstance(given, dict) or not isinstance(at, int):
            return
        if data.get("hookType") == "userPromptSubmitted" and not agent_id:
            self.prompt_id, self.announced = prompt_id(at), True
        elif data.get("hookType") in ("postToolUse", "postToolUseFailure"):
            self.told.append((at, _Call(string(given.get("toolName")), given.get("toolArgs"), agent_id, 0)))

    def _prompt(self, record: Record, data: Record) -> None:
        text = string(data.get("content"))
        if not self.announced:
            self.prompt_id = string(data.get("messageId")) or string(record.get("id"))
        self.announced = False
        if privacy.hides_all(text):
            self.found.private.add(self.prompt_id)
        if text.strip() and is_said(text):
            self.found.events.append(self._event(record, Prompted(privacy.strip(text))))

    def _result(self, record: Record, data: Record) -> None:
        call = self.calls.pop(string(data.get("toolCallId")), None)
        if call is None or not call.name:
            return
        result, error = data.get("result"), data.get("error")
        said = string(result.get("content")) if isinstance(result, dict) else ""
        said = said or (string(error.get("message")) if isinstance(error, dict) else "")
        output, failed = outcome(privacy.strip(said), "success" if data.get("success") else "failure")
        name, given = tool(call.name, privacy.strip_all(call.given), self.found.cwd)
        told = tool_used(name, given, output, failed=failed, agent_id=call.agent_id)
        its_id = call_id(self._told_at(call), call.given) or string(data.get("toolCallId"))
        self.found.events.append(self._event(record, told, tool_use_id=its_id))

    def _told_at(self, call: _Call) -> int:
        """When a hook was told of this call's end: just before, and before that of the same call made again."""
        for n, (at, told) in enumerate(self.told):
            if (told.name, told.given, told.agent_id) == (call.name, call.given, call.agent_id):
                del self.told[n]
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
            private=self.prompt_id in self.found.private,
        )
