"""Reads Claude Code's transcript of a session, for events that hooks missed.

Each line is one JSON object; an assistant message takes one line per block. A tool call is a `tool_use` block followed,
some lines later, by the `tool_result` with the same id. The position is stored as an offset, so each line is read once;
a file of any size can be read in parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from claude_mem import privacy
from claude_mem.hosts import lines
from claude_mem.hosts.dialect import Fields, Found, Head, is_said, milliseconds, string, string_of, tool_used
from claude_mem.records import Event, Prompted, Stopped


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    input: Any
    line: int


class _Mark(msgspec.Struct):
    """Where a part ended, with the state the next part needs. `lines` are offsets of lines to read again, such as a
    tool call without a result."""

    offset: int = 0
    inside: bool = False  # the part ended inside a line that is too long
    session: str = ""
    line_session: str = ""
    cwd: str = ""
    prompt_id: str = ""
    private: bool = False
    at: int = 0
    lines: list[int] = []


def read(
    path: Path, *, host: str, content_session_id: str = "", offset: int = 0, agent_id: str = "", over: bool = False
) -> Found:
    reader = _Reader(host, content_session_id, agent_id, own=content_session_id)
    lines.read(path, reader.transcript, reader.take, offset=offset, over=over)
    reader.transcript.offset = offset if reader.transcript.problem else reader.resume_at(reader.transcript.offset)
    return reader.transcript


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
    reader = _Reader(host, start.session, agent_id, own=content_session_id)
    transcript = reader.transcript
    with lines.problems(transcript), lines.opened(path) as file:
        if lines.start_of(path, start.offset) != start.offset:
            start = _Mark(session=content_session_id)
        reader.resume(start)
        for line, record in lines.again(file, start.lines):
            reader.again(record, line)
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


def _learn(transcript: Found, record: Fields) -> None:
    transcript.content_session_id = transcript.content_session_id or string_of(record, "sessionId")
    transcript.cwd = transcript.cwd or string_of(record, "cwd")


def agents(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the id and file of each subagent of a session. Older clients put all of them beside the session files."""
    name = _stem(path)
    try:
        beside = _by_session(path.parent, path.parent.stat().st_mtime_ns).get(name, ())
        files = [*_agent_files(path.with_name(name) / "subagents"), *beside]
    except (OSError, ValueError):
        return
    for file in files:
        yield _stem(file).removeprefix("agent-"), file


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".jsonl")


def _agent_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("agent-*.jsonl*") if file.name.endswith((".jsonl", ".jsonl.gz")))


@lru_cache(maxsize=16)
def _by_session(folder: Path, _: int) -> dict[str, list[Path]]:
    """Return the subagent files in a directory by session; cached until the directory changes."""
    files: dict[str, list[Path]] = {}
    for file in _agent_files(folder):
        files.setdefault(head(file).content_session_id, []).append(file)
    return files


class _Reader:
    """Collects events from the records of a transcript.

    `own` is the session to which a hook's payload says the file belongs; lines of other sessions are skipped. It is
    empty if the user named the file: then all lines count.
    """

    def __init__(self, host: str, content_session_id: str, agent_id: str, *, own: str = "") -> None:
        self.host = host
        self.own = own
        self.line_session = ""  # the session of the previous line
        self.content_session_id = content_session_id
        self.agent_id = agent_id
        self.transcript = Found()
        self.calls: dict[str, _Call] = {}
        self.prompt_id = ""
        self.closing_line = -1
        self.at = 0

    def resume(self, mark: _Mark) -> None:
        self.transcript.content_session_id, self.transcript.cwd, self.transcript.offset = (
            mark.session,
            mark.cwd,
            mark.offset,
        )
        self.prompt_id, self.at, self.line_session = mark.prompt_id, mark.at, mark.line_session
        if mark.private:
            self.transcript.private.add(mark.prompt_id)

    def resume_at(self, place: int) -> int:
        """Return the offset of the next read, given where this one ended: the first tool call without a result."""
        return lines.look_back(place, [call.line for call in self.calls.values()])

    def mark(self, place: lines.Place) -> _Mark:
        unfinished = {call.line for call in self.calls.values()} | {self.closing_line}
        return _Mark(
            offset=place.offset,
            inside=place.inside,
            session=self.content_session_id,
            line_session=self.line_session,
            cwd=self.transcript.cwd,
            prompt_id=self.prompt_id,
            private=self.prompt_id in self.transcript.private,
            at=self.at,
            lines=sorted(unfinished - {-1})[-lines.MAX_AGAIN :],
        )

    def again(self, record: dict[str, Any], line: int) -> None:
        """Process a line of an earlier part again."""
        if isinstance(record.get("message"), dict):
            self._assistant(record, line)

    def take(self, start: int, record: dict[str, Any]) -> None:
        if not isinstance(record.get("message"), dict):
            self.transcript.bad_lines += record.get("type") in ("user", "assistant")
            return
        self.line_session = string_of(record, "sessionId") or self.line_session
        if self.own and self.line_session not in ("", self.own):
            return
        self.transcript.content_session_id = self.content_session_id = self.content_session_id or string_of(
            record, "sessionId"
        )
        self.transcript.cwd = self.transcript.cwd or string_of(record, "cwd")
        if bool(record.get("isSidechain")) != bool(self.agent_id) or record.get("isMeta"):
            return
        if record.get("type") == "assistant":
            self._assistant(record, start)
        elif record.get("type") == "user" and not record.get("isCompactSummary"):
            self._user(record)
        self.transcript.lines.setdefault(self.prompt_id, start)

    def _assistant(self, record: dict[str, Any], start: int) -> None:
        for block in _blocks(record):
            if block.get("type") == "tool_use" and isinstance(block.get("id"), str):
                self.calls[block["id"]] = _Call(str(block.get("name", "")), block.get("input"), start)
            elif block.get("type") == "text" and self._is_closing(record, block):
                self.closing_line = start
                self.transcript.closings[self.prompt_id] = self._event(record, Stopped(privacy.strip(block["text"])))

    def _is_closing(self, record: dict[str, Any], block: dict[str, Any]) -> bool:
        """Return whether a text ends a turn: no tool call follows, and it is not the client's own error message."""
        is_not_last = record["message"].get("stop_reason") == "tool_use" or record.get("isApiErrorMessage")
        return not is_not_last and not self.agent_id and bool(string(block.get("text")).strip())

    def _user(self, record: dict[str, Any]) -> None:
        blocks = _blocks(record)
        results = [block for block in blocks if block.get("type") == "tool_result"]
        if isinstance(prompt_id := record.get("promptId"), str) and results:
            self._belongs_to(prompt_id)
        for block in results:
            self._result(record, block)
        if not results and not self.agent_id:
            texts = [string(block.get("text")) for block in blocks if block.get("type") == "text"]
            self._prompt(record, "\n".join(texts))

    def _belongs_to(self, prompt_id: str) -> None:
        if prompt_id != self.prompt_id:
            self.prompt_id, self.closing_line = prompt_id, -1

    def _result(self, record: dict[str, Any], block: dict[str, Any]) -> None:
        call_id = block.get("tool_use_id")
        if not isinstance(call_id, str):
            return
        call = self.calls.pop(call_id, None)
        if call is None or not call.name:
            return
        failed = bool(block.get("is_error"))
        output = block.get("content") if failed else record.get("toolUseResult", block.get("content"))
        arguments, output = (
            privacy.strip_all(call.input),
            privacy.strip_all(output),
        )  # before parts of them are left out
        body = tool_used(call.name, arguments, output, failed=failed, agent_id=self.agent_id)
        self.transcript.events.append(self._event(record, body, tool_use_id=call_id))

    def _prompt(self, record: dict[str, Any], text: str) -> None:
        before = self.prompt_id
        self._belongs_to(str(record.get("promptId") or record.get("uuid") or ""))
        is_user_text = bool(text.strip()) and is_said(text)
        if privacy.hides_all(text) or (not is_user_text and before in self.transcript.private):
            self.transcript.private.add(self.prompt_id)  # a notice after a private turn belongs to it
        if is_user_text:
            self.transcript.events.append(self._event(record, Prompted(privacy.strip(text))))

    def _event(self, record: dict[str, Any], body: Any, *, tool_use_id: str = "") -> Event:
        # A record without a time gets that of the previous one.
        self.at = milliseconds(record.get("timestamp")) or self.at
        return Event(
            id=f"t-{tool_use_id or record.get('uuid') or f'{self.content_session_id}-{self.transcript.offset}'}",
            host=self.host,
            content_session_id=self.content_session_id,
            at=self.at,
            body=body,
            prompt_id=self.prompt_id,
            tool_use_id=tool_use_id,
            private=self.prompt_id in self.transcript.private,
        )


def _blocks(record: dict[str, Any]) -> list[dict[str, Any]]:
    content = record["message"].get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
