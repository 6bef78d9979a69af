"""Claude Code's own record of a session, read back for what the hooks missed.

One JSON object a line; an assistant message comes in as many lines as it has blocks. A tool call is a
`tool_use` block and, some lines later, the `tool_result` of the same id. What is read is remembered as an
offset, so each line is read once.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from claude_mem import privacy
from claude_mem.hosts import lines
from claude_mem.hosts.dialect import Found, is_said, milliseconds, string_of, tool_used
from claude_mem.records import Event, Prompted, Stopped


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    input: Any
    line: int


def read(path: Path, *, host: str, content_session_id: str = "", offset: int = 0, agent_id: str = "") -> Found:
    reader = _Reader(host, content_session_id, agent_id, position=offset)
    try:
        for start, line in lines.read_lines(path, offset):
            reader.line(start, line)
    except (OSError, ValueError, EOFError, zlib.error):  # gone, unreadable, or no name a file can have
        reader.found.offset = offset
        return reader.found
    unanswered = [call.line for call in reader.calls.values()]
    reader.found.offset = min([reader.position, *unanswered])
    return reader.found


def agents(path: Path) -> Iterator[tuple[str, Path]]:
    """The subagents of a session: their ids and files."""
    try:
        files = sorted((path.with_suffix("") / "subagents").glob("agent-*.jsonl"))
    except (OSError, ValueError):
        return
    for file in files:
        yield file.stem.removeprefix("agent-"), file


class _Reader:
    def __init__(self, host: str, content_session_id: str, agent_id: str, *, position: int) -> None:
        self.host = host
        self.content_session_id = content_session_id
        self.agent_id = agent_id
        self.found = Found()
        self.calls: dict[str, _Call] = {}
        self.prompt_id = ""
        self.position = position

    def line(self, start: int, raw: bytes) -> None:
        self.position = start + len(raw)
        record = lines.record(raw)
        if record is None or not isinstance(record.get("message"), dict):
            return
        self.found.content_session_id = self.content_session_id = self.content_session_id or string_of(
            record, "sessionId"
        )
        self.found.cwd = self.found.cwd or string_of(record, "cwd")
        if bool(record.get("isSidechain")) != bool(self.agent_id) or record.get("isMeta"):
            return
        if record.get("type") == "assistant":
            self._assistant(record, start)
        elif record.get("type") == "user" and not record.get("isCompactSummary"):
            self._user(record)
        self.found.lines.setdefault(self.prompt_id, start)

    def _assistant(self, record: dict[str, Any], start: int) -> None:
        for block in _blocks(record):
            if block.get("type") == "tool_use" and isinstance(block.get("id"), str):
                self.calls[block["id"]] = _Call(str(block.get("name", "")), block.get("input"), start)
            elif block.get("type") == "text" and self._is_closing(record, block):
                self.found.closings[self.prompt_id] = self._event(record, Stopped(privacy.strip(block["text"])))

    def _is_closing(self, record: dict[str, Any], block: dict[str, Any]) -> bool:
        """Words at the end of a turn: not before a tool call, and not the client's own about an error."""
        goes_on = record["message"].get("stop_reason") == "tool_use" or record.get("isApiErrorMessage")
        return not goes_on and not self.agent_id and bool(str(block.get("text", "")).strip())

    def _user(self, record: dict[str, Any]) -> None:
        blocks = _blocks(record)
        results = [block for block in blocks if block.get("type") == "tool_result"]
        if isinstance(given := record.get("promptId"), str) and results:
            self.prompt_id = given
        for block in results:
            self._result(record, block)
        if not results and not self.agent_id:
            self._prompt(record, "\n".join(str(block["text"]) for block in blocks if block.get("type") == "text"))

    def _result(self, record: dict[str, Any], block: dict[str, Any]) -> None:
        call_id = block.get("tool_use_id")
        if not isinstance(call_id, str):
            return
        call = self.calls.pop(call_id, None)
        if call is None or not call.name:
            return
        failed = bool(block.get("is_error"))
        output = block.get("content") if failed else record.get("toolUseResult", block.get("content"))
        body = tool_used(call.name, call.input, output, failed=failed, agent_id=self.agent_id)
        body = msgspec.convert(privacy.strip_all(msgspec.to_builtins(body)), type(body))
        self.found.events.append(self._event(record, body, tool_use_id=call_id))

    def _prompt(self, record: dict[str, Any], text: str) -> None:
        before, self.prompt_id = self.prompt_id, str(record.get("promptId") or record.get("uuid") or "")
        said = bool(text.strip()) and is_said(text)
        if privacy.hides_all(text) or (not said and before in self.found.private):
            self.found.private.add(self.prompt_id)  # what follows a private turn unasked belongs to it
        if said:
            self.found.events.append(self._event(record, Prompted(privacy.strip(text))))

    def _event(self, record: dict[str, Any], body: Any, *, tool_use_id: str = "") -> Event:
        return Event(
            id=f"t-{tool_use_id or record.get('uuid')}",
            host=self.host,
            content_session_id=self.content_session_id,
            at=milliseconds(record.get("timestamp")),
            body=body,
            prompt_id=self.prompt_id,
            tool_use_id=tool_use_id,
            private=self.prompt_id in self.found.private,
        )


def _blocks(record: dict[str, Any]) -> list[dict[str, Any]]:
    content = record["message"].get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
