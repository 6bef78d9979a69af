"""Reads Codex's transcript of a session, its rollout, for events that hooks missed.

Each line is one JSON object, `{timestamp, type, payload}`; before autumn 2025 it was the payload alone. A tool call and
its output share a `call_id`, which equals the hooks' `tool_use_id`; a turn's id equals the hooks' `turn_id`. Hooks do
not report calls that failed before they ran, MCP errors, patches applied through the shell, or exit codes: the rollout
has all of these. A subagent has a rollout of its own, which names its parent's session and turn.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from claude_mem import privacy
from claude_mem.hosts import codex_tools, lines
from claude_mem.hosts.dialect import Fields, Found, Head, is_said, milliseconds, string, string_of, tool_used
from claude_mem.records import Event, Prompted, Stopped, ToolUsed

# Text that Codex inserts in the user's place: the directory, AGENTS.md, a skill, a subagent's end, an interruption.
_CODEX_PREFIXES = (
    "<environment_context>", "# AGENTS.md instructions", "<user_instructions>", "<INSTRUCTIONS>", "<skill>",
    "<subagent_notification>", "<turn_aborted>", "<user_shell_command>", "<user_action>", "<hook_prompt",
    "<ide_context>", "<recommended_plugins>", "<codex_internal_context",
)  # fmt: skip
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_ENDS = ("exec_command_end", "patch_apply_end", "mcp_tool_call_end")
_IN_EARLIER_PART = 1 << 62  # index of a prompt in an earlier part: what the user adds after it is a separate prompt
_MOST_RUNNING = 8  # calls with an output whose end may still be reported
MOST_DAYS = 30  # day directories that are searched for a session's subagents, starting with its own
SETTLED_SECONDS = 2  # a directory changed more recently may have files that its mtime misses or that are still empty


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    input: Any
    cwd: str
    line: int


class _Mark(msgspec.Struct):
    """Where a part ended, with the state the next part needs. `lines` are offsets of lines to read again: calls without
    an output or an end notice, and the last message."""

    offset: int = 0
    inside: bool = False  # the part ended inside a line that is too long
    session: str = ""
    turn_id: str = ""
    cwd: str = ""
    at: int = 0
    private: bool = False
    prompted: bool = False
    lines: list[int] = []
    failed: list[str] = []


def read(
    path: Path, *, host: str, content_session_id: str = "", offset: int = 0, agent_id: str = "", over: bool = False
) -> Found:
    reader = _Reader(host, content_session_id, agent_id)
    transcript = reader.transcript
    if offset:
        reader.begin(_meta(path))  # the first line applies to the whole file
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
    reader = _Reader(host, start.session, agent_id)
    transcript = reader.transcript
    if start.offset:
        reader.begin(_meta(path))
    with lines.problems(transcript), lines.opened(path) as file:
        if lines.start_of(path, start.offset) != start.offset:
            start = _Mark(session=content_session_id)
        reader.resume(start, lines.again(file, start.lines))
        place = lines.Place(start.offset, start.inside)
        lines.feed(file, transcript, reader.take, place, over=over, most=most)
        if not place.ended:
            transcript.closings.pop(reader.turn_id, None)
            return transcript, msgspec.json.encode(reader.mark(place)).decode()
        if not over:
            transcript.offset = reader.resume_at(place.offset)
    return transcript, ""


def head(path: Path) -> Head:
    return lines.head(path, _learn)


def _learn(transcript: Found, record: Fields) -> None:
    meta = payload if isinstance(payload := record.get("payload"), dict) else record
    if not transcript.content_session_id:
        reader = _Reader("", "", "")
        reader.begin(meta)
        transcript.content_session_id = reader.content_session_id
    transcript.cwd = transcript.cwd or string_of(meta, "cwd")


def sessions(path: Path) -> frozenset[str]:
    """Return the sessions a rollout belongs to: its own thread and, for a subagent, that of its parent."""
    meta = _meta(path)
    return frozenset({string_of(meta, "id"), string_of(meta, "session_id"), parent(meta)}) - {""}


def said_by_user(text: str) -> bool:
    return bool(text.strip()) and is_said(text) and not text.lstrip().startswith(_CODEX_PREFIXES)


def agents(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the id and file of each subagent of a session. Their rollouts start after its own, maybe on another day."""
    session = string(_meta(path).get("id"))
    for day in _days(path.parent) if session else ():
        with contextlib.suppress(OSError, ValueError):
            yield from _agents_in(day).get(session, ())


def _days(folder: Path) -> list[Path]:
    """Return the directory of a session, `year/month/day`, and those of the following days. For a directory of any
    other form, return only that."""
    try:
        first = date.fromisoformat("-".join(folder.parts[-3:]))
        days = [first + timedelta(days=number) for number in range(1, MOST_DAYS)]
    except (ValueError, OverflowError):
        days = []
    return [folder, *(folder.parents[2] / f"{day:%Y/%m/%d}" for day in days)]


def _agents_in(folder: Path) -> dict[str, list[tuple[str, Path]]]:
    changed = folder.stat().st_mtime_ns
    settled = time.time_ns() - changed > SETTLED_SECONDS * 10**9
    return _by_session(folder, changed) if settled else _by_session.__wrapped__(folder, changed)


@lru_cache(maxsize=1024)
def _by_session(folder: Path, _: int) -> dict[str, list[tuple[str, Path]]]:
    """Return the subagents in a directory by session; cached until the directory changes."""
    by_parent: dict[str, list[tuple[str, Path]]] = {}
    for file in sorted([*folder.glob("rollout-*.jsonl"), *folder.glob("rollout-*.jsonl.gz")]):
        meta = _meta(file)
        if started_by := parent(meta):
            for session in {string(meta.get("session_id")), started_by}:
                by_parent.setdefault(session, []).append((string(meta.get("id")), file))
    return by_parent


def parent(meta: Fields) -> str:
    """Return the thread that started this subagent; "" if this is not a subagent, "unknown" if it is not named."""
    source = meta.get("source")
    inner = source.get("subagent") if isinstance(source, dict) else None
    spawned = inner.get("thread_spawn") if isinstance(inner, dict) else None
    spawn_parent = string(spawned.get("parent_thread_id")) if isinstance(spawned, dict) else ""
    return string(meta.get("parent_thread_id")) or spawn_parent or ("unknown" if inner else "")


def _meta(path: Path) -> Fields:
    """Return the first record of a rollout."""
    meta: Fields = {}
    with lines.problems(Found()), lines.opened(path) as file:
        first = next(lines.each(file, over=True), lines.Line(0, b""))
        meta = lines.record(first.raw) or {}
    return payload if isinstance(payload := meta.get("payload"), dict) else meta


class _Reader:
    def __init__(self, host: str, content_session_id: str, agent_id: str) -> None:
        self.host = host
        self.content_session_id = content_session_id
        self.agent_id = agent_id
        self.transcript = Found()
        self.calls: dict[str, _Call] = {}
        self.failed: set[str] = set()  # ids of calls that are known to have failed
        self.running: dict[str, Event] = {}  # calls that have an output but may still fail
        self.running_lines: dict[str, tuple[int, int]] = {}  # offsets of the call and of its output
        self.closing_line = -1
        self.prompts: dict[str, int] = {}  # index of each turn's prompt among the events
        self.turn_id = ""
        self.cwd = ""
        self.at = 0
        self.has_meta = False

    def resume(self, mark: _Mark, unfinished: Iterable[tuple[int, Fields]]) -> None:
        """Continue where a part ended, after reading its unfinished lines again."""
        self.failed = set(mark.failed)
        for start, record in unfinished:
            self._restore(mark)
            self.take(start, record)
        self._restore(mark)
        self.transcript.events.clear()
        self.transcript.lines.clear()
        self.prompts.clear()
        if mark.prompted:
            self.prompts[mark.turn_id] = _IN_EARLIER_PART

    def _restore(self, mark: _Mark) -> None:
        self.turn_id, self.cwd, self.at = mark.turn_id, mark.cwd or self.cwd, mark.at
        if mark.private:
            self.transcript.private.add(mark.turn_id)

    def resume_at(self, place: int) -> int:
        """Return the offset of the next read, given where this one ended: the first tool call without an output."""
        return lines.look_back(place, [call.line for call in self.calls.values()])

    def mark(self, place: lines.Place) -> _Mark:
        running = [line for offsets in list(self.running_lines.values())[-_MOST_RUNNING:] for line in offsets]
        unfinished = {*running, *(call.line for call in self.calls.values()), self.closing_line}
        return _Mark(
            offset=place.offset,
            inside=place.inside,
            session=self.content_session_id,
            turn_id=self.turn_id,
            cwd=self.cwd,
            at=self.at,
            private=self.turn_id in self.transcript.private,
            prompted=self.turn_id in self.prompts,
            lines=sorted(unfinished - {-1})[-lines.MAX_AGAIN :],
            failed=sorted(self.failed & self.calls.keys()),
        )

    def take(self, start: int, record: Fields) -> None:
        self.at = milliseconds(record.get("timestamp")) or self.at
        payload = record.get("payload")
        kind = string(record.get("type"))
        if not isinstance(payload, dict):  # the format of the first versions
            payload, kind = record, "response_item" if kind else "session_meta"
        match kind:
            case "session_meta" if not self.has_meta and "id" in payload:
                self.begin(payload)
            case "turn_context":
                self._turn(payload)
                self.cwd = string_of(payload, "cwd") or self.cwd
            case "event_msg":
                self._notice(payload)
            case "response_item":
                self._turn(_item_metadata(payload))
                self._item(payload, record, start)
                self.transcript.lines.setdefault(self.turn_id, start)

    def begin(self, meta: Fields) -> None:
        self.has_meta = True
        if parent(meta) and not self.agent_id:
            # A subagent's rollout that is read on its own still belongs to its parent's session.
            self.agent_id = string_of(meta, "id")
        session_id = string_of(meta, "session_id") or (parent(meta) if self.agent_id else "") or string_of(meta, "id")
        self.transcript.content_session_id = self.content_session_id = self.content_session_id or session_id
        self.transcript.cwd = self.cwd = string_of(meta, "cwd")

    def _turn(self, fields: Fields) -> None:
        """Set the current turn. A subagent works for a turn of its parent; the turn ids of its own items are unknown to
        us."""
        name = "root_turn_id" if self.agent_id else "turn_id"
        self._belongs_to(string_of(fields, name) or self.turn_id)

    def _belongs_to(self, turn_id: str) -> None:
        if turn_id != self.turn_id:
            self.turn_id, self.closing_line = turn_id, -1

    # --- items -------------------------------------------------------------------------------------------------------

    def _item(self, item: Fields, record: Fields, start: int) -> None:
        kind = item.get("type")
        if kind in _CALLS:
            self._call(item, start)
        elif kind in _OUTPUTS:
            self._output(item, start)
        elif kind == "web_search_call":
            self._searched(item)
        elif kind == "message" and not self.agent_id:
            if item.get("role") == "user":
                self._prompt(item, start)
            elif item.get("role") == "assistant":
                self._agent_message(item, record, start)

    def _call(self, item: Fields, start: int) -> None:
        self.transcript.closings.pop(self.turn_id, None)  # a message before a call does not close the turn
        self.closing_line = -1
        if call_id := string(item.get("call_id")) or string(item.get("id")):
            space, name = string(item.get("namespace")), string(item.get("name")) or "local_shell"
            name = f"{space}__{name}" if space.startswith("mcp__") else name
            arguments = _arguments(item)
            folder = string(arguments.get("workdir")) if isinstance(arguments, dict) else ""
            self.calls[call_id] = _Call(name, arguments, str(Path(self.cwd, folder)) if folder else self.cwd, start)

    def _output(self, item: Fields, start: int) -> None:
        call_id = string(item.get("call_id"))
        call = self.calls.pop(call_id, None)
        if call is None or codex_tools.is_noise(call.name):
            return
        failed = call_id in self.failed
        tool_call = codex_tools.tell(call.name, call.input, item.get("output"), cwd=call.cwd, failed=failed)
        event = self._tool(tool_call, call_id)
        self.transcript.events.append(event)
        if not tool_call.failed:
            self.running[call_id] = event
            self.running_lines[call_id] = (call.line, start)

    def _searched(self, item: Fields) -> None:
        action = item.get("action")
        query = string(action.get("query")) if isinstance(action, dict) else ""
        if query and (search_id := string(item.get("id"))):
            tool_call = codex_tools.Told("WebSearch", {"query": query}, None, failed=False)
            self.transcript.events.append(self._tool(tool_call, search_id))

    def _prompt(self, item: Fields, start: int) -> None:
        text = _text(item)
        kinds = _item_metadata(item).get("content_item_kinds")
        by_user = not isinstance(kinds, list) or any(string(kind).startswith("user.") for kind in kinds)
        if not by_user or not said_by_user(text):
            return
        has_turn_id = bool(string_of(_item_metadata(item), "turn_id"))
        if not has_turn_id and (not self.turn_id or self.turn_id in self.prompts):
            # The older format has no turn ids: each prompt starts a turn.
            self._belongs_to(f"{self.content_session_id}.{start}")
        if privacy.hides_all(text):
            self.transcript.private.add(self.turn_id)
        self._add_prompt(privacy.strip(text), string(item.get("id")) or str(start))

    def _add_prompt(self, text: str, name: str) -> None:
        """Add a prompt. More input while the agent works is appended to the prompt of the turn."""
        before = self.prompts.setdefault(self.turn_id, len(self.transcript.events))
        earlier = self.transcript.events[before:]
        if earlier and isinstance(earlier_prompt := earlier[0].body, Prompted):
            extended = self._event(Prompted(f"{earlier_prompt.text}\n{text}"), name)
            self.transcript.events[before] = replace(earlier[0], body=extended.body, private=extended.private)
        else:
            self.transcript.events.append(self._event(Prompted(text), name))

    def _agent_message(self, item: Fields, record: Fields, start: int) -> None:
        metadata = record.get("metadata")
        text = _text(item)
        if text.strip() and not (isinstance(metadata, dict) and metadata.get("compaction_output")):
            last = self._event(Stopped(privacy.strip(text)), string(item.get("id")) or str(start))
            self.transcript.closings[self.turn_id] = last
            self.closing_line = start

    # --- notices -----------------------------------------------------------------------------------------------------

    def _notice(self, payload: Fields) -> None:
        """Process a notice: a turn starts, or a call has ended. Only the notice says for sure whether a call failed;
        the call may already have been added as successful."""
        if payload.get("type") == "task_started":
            self._turn(payload)
        item = payload.get("item") if payload.get("type") == "item_completed" else None
        if isinstance(item, dict):
            call_id, failed = string(item.get("id")), item.get("status") in ("failed", "declined")
        elif payload.get("type") in _ENDS:
            call_id, failed = string(payload.get("call_id")), _is_failure(payload)
        else:
            return
        event = self.running.pop(call_id, None)
        self.running_lines.pop(call_id, None)
        if failed:
            self.failed.add(call_id)
            if event is not None and isinstance(event.body, ToolUsed):
                body = msgspec.structs.replace(event.body, failed=True)
                self.transcript.events.append(self._event(body, f"{call_id}-failed", tool_use_id=call_id))

    # --- events ------------------------------------------------------------------------------------------------------

    def _tool(self, tool_call: codex_tools.Told, call_id: str) -> Event:
        # Private parts first: `tool_used` leaves out parts of the output, possibly half of a private one.
        arguments, output = privacy.strip_all(tool_call.input), privacy.strip_all(tool_call.output)
        body = tool_used(tool_call.name, arguments, output, failed=tool_call.failed, agent_id=self.agent_id)
        return self._event(body, call_id, tool_use_id=call_id)

    def _event(self, body: Any, name: str, *, tool_use_id: str = "") -> Event:
        return Event(
            id=f"t-{self.content_session_id}.{name}",  # with the session: some models number their calls from 1
            host=self.host,
            content_session_id=self.content_session_id,
            at=self.at,
            body=body,
            prompt_id=self.turn_id,
            tool_use_id=tool_use_id,
            private=self.turn_id in self.transcript.private,
        )


def _item_metadata(item: Fields) -> Fields:
    """Return Codex's metadata of an item: its turn and the kinds of text in it."""
    metadata = item.get("internal_chat_message_metadata_passthrough")
    return metadata if isinstance(metadata, dict) else {}


def _arguments(item: Fields) -> Any:
    """Return the arguments of a call: JSON in a string, plain text, or an action with a command."""
    if isinstance(action := item.get("action"), dict):
        return action
    arguments = item.get("arguments", item.get("input"))
    if item.get("type") == "function_call" and isinstance(arguments, str):
        try:
            return msgspec.json.decode(arguments)
        except (msgspec.MsgspecError, RecursionError):
            return {"input": arguments}
    return arguments


def _is_failure(payload: Fields) -> bool:
    code, result = payload.get("exit_code"), payload.get("result")
    failed = isinstance(result, dict) and ("Err" in result or result.get("isError") is True)
    return bool(code) or payload.get("success") is False or failed


def _text(item: Fields) -> str:
    content = item.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    return "\n".join(text for part in parts if isinstance(part, dict) and (text := string(part.get("text"))))
