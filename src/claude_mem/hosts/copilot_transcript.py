"""The Copilot CLI's own record of a session: `session-state/<id>/events.jsonl`, subagents included.

It notes each call of a hook with the time that the hook was told, and so the ids of `copilot_words.py` can be made here
as well. What no hook was called for has an id of Copilot's.
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
    """Where a part ended, and what the next has to know. `lines` are handed over again, for what is not done with:
    calls without an end, ends that a hook was told of, and what was said last."""

    offset: int = 0
    inside: bool = False  # a line that is too long
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
    found = reader.found
    if agent_id:
        return found  # subagents have no files of their own
    lines.read(path, found, reader.take, offset=offset, over=over)
    found.offset = offset if found.problem else reader.resume_at(found.offset)
    return found


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
    found = reader.found
    if agent_id:
        return found, ""
    with lines.problems(found), lines.opened(path) as file:
        if lines.start_of(path, start.offset) != start.offset:
            start = _Mark(session=content_session_id)
        reader.resume(start, lines.again(file, start.lines))
        place = lines.Place(start.offset, start.inside)
        lines.feed(file, found, reader.take, place, over=over, most=most)
        if not place.ended:
            found.closings.pop(reader.prompt_id, None)
            return found, msgspec.json.encode(reader.mark(place)).decode()
        if not over:
            found.offset = reader.resume_at(place.offset)
    return found, ""


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
        self.closing_line = -1

    def resume(self, mark: _Mark, again: Iterable[tuple[int, Record]]) -> None:
        """Go on where a part ended, after another look at what it was not done with."""
        for start, record in again:
            self._remember(mark)
            self.take(start, record)
        self._remember(mark)
        self.found.events.clear()
        self.found.lines.clear()

    def _remember(self, mark: _Mark) -> None:
        self.found.content_session_id, self.found.cwd = mark.session, mark.cwd
        self.prompt_id, self.announced = mark.prompt_id, mark.announced
        if mark.private:
            self.found.private.add(mark.prompt_id)

    def resume_at(self, place: int) -> int:
        """Return where the next reading begins, if this one ended there: at what has no end yet."""
        unfinished = [call.line for call in self.calls.values()]
        if self.prompt_id not in self.found.closings:  # read again when its end is there
            unfinished.append(self.found.lines.get(self.prompt_id, place))
        return lines.look_back(place, unfinished)

    def mark(self, place: lines.Place) -> _Mark:
        calls = [*self.calls.values(), *(call for _, call in self.told)]
        unfinished = sorted({self.closing_line, *(call.line for call in calls)} - {-1})
        return _Mark(
            offset=place.offset,
            inside=place.inside,
            session=self.content_session_id,
            cwd=self.found.cwd,
            prompt_id=self.prompt_id,
            announced=self.announced,
            private=self.prompt_id in self.found.private,
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
            case "assistant.message" if not agent_id and (words := _closing(record).strip()):
                self.found.closings[self.prompt_id] = self._event(record, Stopped(privacy.strip(words)))
                self.closing_line = start
            case "tool.execution_start" if isinstance(call := data.get("toolCallId"), str):
                self.calls[call] = _Call(string(data.get("toolName")), data.get("arguments"), agent_id, start)
            case "tool.execution_complete":
                self._result(record, data)
        self.found.lines.setdefault(self.prompt_id, start)

    def _session(self, record: Record) -> None:
        self.found.content_session_id = self.content_session_id
        _learn(self.found, record)
        self.content_session_id = self.found.content_session_id

    def _hook(self, data: Record, agent_id: str, start: int) -> None:
        given = data.get("input")
        at = given.get("timestamp") if isinstance(given, dict) else None
        if not isinstance(given, dict) or not isinstance(at, int):
            return
        if data.get("hookType") == "userPromptSubmitted" and not agent_id:
            self.prompt_id, self.announced, self.closing_line = prompt_id(at), True, -1
        elif data.get("hookType") in ("postToolUse", "postToolUseFailure"):
            self.told.append((at, _Call(string(given.get("toolName")), given.get("toolArgs"), agent_id, start)))

    def _prompt(self, record: Record, data: Record) -> None:
        text = string(data.get("content"))
        if not self.announced:
            self.prompt_id, self.closing_line = string(data.get("messageId")) or string(record.get("id")), -1
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
