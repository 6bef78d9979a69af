"""Replays the sessions of a project in order of time through the functions that answer the hooks.

At each start, prompt, file, command and failure the shipped code is asked with only those sessions known that had ended
before; what it says is recorded as in a real session. When a session ends, it is back-filled, so that its injections are
judged by the shipped code too.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from turns import DATA, ROOT

from claude_mem.agents import claude
from claude_mem.agents.payload import Trigger
from claude_mem.capture import backfill
from claude_mem.config import Config
from claude_mem.digest import calls, user_rules
from claude_mem.digest.evidence import EDIT_TOOLS, READ_TOOLS
from claude_mem.domain.records import Event, Prompted, ToolUsed
from claude_mem.inject import at_tool, service
from claude_mem.inject.triggers import Injection
from claude_mem.system.project_folders import identify_project
from claude_mem.worker.app import Service

PATIENCE_SECONDS = 30  # slow answers are counted by their duration, so that a busy machine changes no other figure


@dataclass(frozen=True, slots=True)
class Recorded:
    """A session of the data: its transcript and its events in order."""

    id: str
    path: Path
    events: tuple[Event, ...]

    @property
    def begin(self) -> int:
        return min(event.at for event in self.events)

    @property
    def end(self) -> int:
        return max(event.at for event in self.events)


@dataclass(frozen=True, slots=True)
class Answer:
    """What was said at one moment, and how long the answer took."""

    trigger: Trigger
    injection: Injection
    milliseconds: float
    event: Event | None = None  # the tool call that followed

    @property
    def tool(self) -> ToolUsed | None:
        return self.event.body if self.event and isinstance(self.event.body, ToolUsed) else None


@dataclass(slots=True)
class Replay:
    """A memory that fills up as the sessions of one project are replayed."""

    project: str
    service: Service
    clock: int = 0
    ingested: list[str] = field(default_factory=list)
    moments: frozenset[str] = frozenset({"start", "new", "file", "command", "fail"})

    async def run(self) -> Any:
        """Yield each session with the answers it was given."""
        waiting: list[tuple[int, str, Path]] = []
        for session in recorded_sessions(self.project):
            while waiting and waiting[0][0] <= session.begin:
                await self._ingest(heapq.heappop(waiting)[2])
            yield session, [answer async for answer in self._answers(session)]
            heapq.heappush(waiting, (session.end, session.id, session.path))
        while waiting:
            await self._ingest(heapq.heappop(waiting)[2])

    async def _ingest(self, path: Path) -> None:
        self.service.db.write_now(backfill.enqueue_files, path, now=0)
        await self.service.run_until_idle()
        while await self.service.indexer.step():
            pass
        self.ingested.append(path.name.partition(".")[0])

    async def _answers(self, session: Recorded) -> Any:
        context = self.service.context_service
        if "start" in self.moments:
            self.clock = session.begin - 1
            who: Any = {"host": "claude", "content_session_id": session.id}
            start, upto = await context.start_context(identify_project(ROOT), **who, source="startup")
            await context.record_start(**who, upto=upto, start=start)
            asked = Trigger(**who, cwd=ROOT, event="SessionStart", text="")
            yield Answer(asked, Injection(start.text, start.item_names), 0)
        for event in session.events:
            for trigger in self._triggers(session, event):
                begin = time.perf_counter()
                with _files_as_they_were(event):
                    injection = await context.inject(trigger)
                answer = Answer(trigger, injection, 1000 * (time.perf_counter() - begin), event)
                if injection.item_names:
                    self.clock = event.at
                    await context.record_injection(trigger, injection)
                yield answer

    def _triggers(self, session: Recorded, event: Event) -> Iterator[Trigger]:
        who: Any = {"host": "claude", "content_session_id": session.id, "cwd": ROOT, "place": ROOT}
        body = event.body
        if isinstance(body, Prompted) and "new" in self.moments:
            yield Trigger(**who, event="UserPromptSubmit", text=body.text)
        if not isinstance(body, ToolUsed):
            return
        command = body.input.get("command") if body.name == "Bash" else ""
        command = command if isinstance(command, str) else ""
        path = body.input.get("file_path")
        if command and "command" in self.moments:
            yield Trigger(**who, event="PreToolUse", text=command, command=command)
        elif isinstance(path, str) and body.name in (*EDIT_TOOLS, *READ_TOOLS) and "file" in self.moments:
            yield Trigger(**who, event="PreToolUse", text=path, tool=ToolUsed(body.name, body.input))
        if body.failed and "fail" in self.moments and user_rules.rejection(body) is None:
            yield Trigger(**who, event="PostToolUseFailure", text=str(body.output), command=command)


class _files_as_they_were:
    """The work tree of the time is not there, so the output of a command says which of its paths were missing."""

    def __init__(self, event: Event) -> None:
        body = event.body
        self._output = str(body.output) if isinstance(body, ToolUsed) and body.name == "Bash" else ""

    def __enter__(self) -> None:
        self._shipped: Callable[[str, str], bool] = at_tool._is_missing
        at_tool._is_missing = lambda path, folder: self._is_missing(path)  # noqa: ARG005

    def __exit__(self, *error: object) -> None:
        at_tool._is_missing = self._shipped  # type: ignore[assignment]

    def _is_missing(self, path: str) -> bool:
        lines = (line for line in self._output.splitlines() if path.rstrip("/") in line)
        return any("o such file" in line or "not found" in line or "cannot " in line for line in lines)


def recorded_sessions(project: str) -> list[Recorded]:
    """Return the sessions of a project by the time they began."""
    sessions = []
    for path in sorted((DATA / project / "transcripts").glob("*.jsonl.gz")):
        if events := claude.read(path, host="claude").events:
            sessions.append(Recorded(path.name.partition(".")[0], path, tuple(sorted(events, key=lambda one: one.at))))
    return sorted(sessions, key=lambda session: session.begin)


def open_replay(project: str, data: Path, *, moments: frozenset[str] | None = None) -> Replay:
    """Return a replay with an empty memory. Injections are recorded at the times of the recorded events."""
    service.COMMAND_SECONDS = PATIENCE_SECONDS
    replay = Replay(project, Service(Config(data_dir=data, embedding_model="none")))
    replay.moments = moments or replay.moments
    service.ids = SimpleNamespace(now_ms=lambda: replay.clock)  # type: ignore[assignment, attr-defined]
    return replay


def keys_of(command: str) -> list[str]:
    return list(calls.command_keys(command))
