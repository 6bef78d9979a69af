"""Turns a transcript file into a session with turns and events, as if hooks had captured it.

The events are added by the code that reconciles live sessions, so events that hooks captured are not duplicated, and
reading a file twice adds nothing. A file is read in parts, each a job and a transaction of its own: other jobs run
between two parts of a large file, and a killed worker continues where it stopped. After the session's own file come the
files of its subagents; then its turns are digested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from claude_mem import ids, untrusted_files
from claude_mem.config import Config
from claude_mem.failpoints import failpoint
from claude_mem.hosts import lines, registry
from claude_mem.hosts.dialect import Found
from claude_mem.hosts.host import Transcripts
from claude_mem.pipeline import ingest, reconcile
from claude_mem.pipeline.stage import Commit, nothing
from claude_mem.projects import Project, resolve
from claude_mem.records import Event, Job, News, Session, Status
from claude_mem.store import backfills, jobs, projects, sessions, stones, turns
from claude_mem.store.backfills import File
from claude_mem.store.database import Connection, Database
from claude_mem.text import storable

K = TypeVar("K")

PART_BYTES = 2 << 20  # a part occupies the writer for some milliseconds, which is not noticeable
PACKED_PART_BYTES = 4 * PART_BYTES  # larger: seeking in a compressed file decompresses everything before the position


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that is not read, with the reason."""

    host: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The cleaned content of one part, and where to continue: in which subagent's file (`agent`) and at which position
    (`mark`). Both are empty after the last part."""

    host: str
    project: Project
    content_session_id: str
    cwd: str
    events: tuple[Event, ...]
    closings: dict[str, Event]
    problem: str
    bad_lines: int
    offset: int
    agent: str
    mark: str


# --- asking ----------------------------------------------------------------------------------------------------------


def ask(conn: Connection, *paths: Path, now: int) -> None:
    """Enqueue reading these files, except those that were read and have not changed since."""
    backfills.ask(conn, backfills.look(paths), now=now)


# --- reading ---------------------------------------------------------------------------------------------------------


async def backfill(job: Job, *, db: Database, config: Config) -> Commit:
    """Read the next part of a file and return the transaction that stores it."""
    file = await db.read(backfills.get, job.subject)
    if file is None:
        return nothing
    part = await asyncio.to_thread(read, file, config)
    failpoint("backfill.read")
    if isinstance(part, Skipped):
        return partial(_skip_file, file=file, skipped=part)
    return partial(_store_part, file=file, part=part)


def read(file: File, config: Config) -> Part | Skipped:
    path = Path(file.path)
    if problem := _read_problem(path):
        return Skipped(file.host, problem)
    host = registry.of(file.host) if file.host else registry.whose(path)
    if host is None or host.transcripts is None:
        return Skipped("", _unrecognised_reason(path))
    transcript, agent, mark = _read_next(file, path, host.name, host.transcripts)
    project = resolve(transcript.cwd, excluded=config.excluded_projects)
    if transcript.cwd and Path(transcript.cwd).is_relative_to(config.data_dir):
        return Skipped(host.name, "ours")
    if not project.enabled:
        return Skipped(host.name, "project_off")
    events, bad_events = _filter_and_clean(enumerate(transcript.events), project, config)
    closings, bad_closings = _filter_and_clean(transcript.closings.items(), project, config)
    return Part(
        host=host.name,
        project=project,
        content_session_id=storable(transcript.content_session_id),
        cwd=transcript.cwd,
        events=tuple(events.values()),
        closings=closings,
        problem=transcript.problem,
        bad_lines=transcript.bad_lines + bad_events + bad_closings,
        offset=transcript.offset,
        agent=agent,
        mark=mark,
    )


def _read_next(file: File, path: Path, host: str, transcripts: Transcripts) -> tuple[Found, str, str]:
    """Return this part and where the next one begins: the subagent (or "") and the position in that file. Both are ""
    after the last part."""
    agents = dict(transcripts.agents(path))
    current_path = agents.get(file.agent) if file.agent else path
    transcript, mark = _read_part(file, current_path, host, transcripts) if current_path else (Found(), "")
    if mark:
        return transcript, file.agent, mark
    return transcript, min((agent for agent in agents if agent > file.agent), default=""), ""


def _read_part(file: File, path: Path, host: str, transcripts: Transcripts) -> tuple[Found, str]:
    if transcripts.part is not None:
        most = PACKED_PART_BYTES if path.suffix == ".gz" else PART_BYTES
        return transcripts.part(path, host=host, mark=file.mark, most=most, agent_id=file.agent)
    return transcripts.read(path, host=host, agent_id=file.agent, over=True), ""


def _filter_and_clean(items: Iterable[tuple[K, Event]], project: Project, config: Config) -> tuple[dict[K, Event], int]:
    """Return the events that may be stored, cleaned, and how many were nested too deeply to be processed."""
    events: dict[K, Event] = {}
    too_deep = 0
    for key, event in items:
        try:
            cleaned_event = ingest.filter_and_clean(event, project, config)
        except RecursionError:
            too_deep += 1
            continue
        if cleaned_event is not None:
            events[key] = cleaned_event
    return events, too_deep


def _read_problem(path: Path) -> str:
    """Return why a file cannot be read, or "". Checked first, so that reading never blocks on a pipe."""
    transcript = Found()
    with lines.problems(transcript), untrusted_files.opened_transcript(path) as file:
        file.read(1)
    return transcript.problem


def _unrecognised_reason(path: Path) -> str:
    """Return why no agent recognises a file as its transcript."""
    transcript, reason = Found(), "foreign"
    with lines.problems(transcript), lines.opened(path) as file:
        if not file.read(1):
            reason = "empty"
        else:
            file.seek(lines.MAX_DOCUMENT)  # a file that is a single record is not read beyond this size
            if path.name.removesuffix(".gz").endswith(".json") and file.read(1):
                reason = "huge"
    return "broken" if transcript.problem == "unreadable" else transcript.problem or reason


# --- writing ---------------------------------------------------------------------------------------------------------


def _skip_file(conn: Connection, *, file: File, skipped: Skipped) -> Sequence[News]:
    """Skip the file. What was stored from it before stays and is digested."""
    if file.session_id:
        _close_session(conn, file.session_id, opened=file.opened)
        _enqueue_digests(conn, file.session_id, now=ids.now())
    state = "read" if file.session_id else "skipped"
    backfills.end(conn, file, host=skipped.host, state=state, problem=skipped.problem)
    return ()


def _store_part(conn: Connection, *, file: File, part: Part) -> Sequence[News]:
    now = ids.now()
    session_id, opened = _find_or_open_session(conn, file, part, now=now)
    news = _add_events(conn, session_id, part, now=now) if session_id else []
    if session_id and not file.agent:
        sessions.reach(conn, session_id, max((event.at for event in part.events), default=0), opened_by_us=opened)
        if not part.mark:  # the end of the session's own file
            _close_session(conn, session_id, opened=opened)
            if opened and not file.path.endswith(".gz"):  # a resumed session need not be read again from the start
                sessions.set_offset(conn, session_id, part.offset)
        reconcile.add_last_words(conn, sessions.get(conn, session_id), part.closings, news, now=now)
    failpoint("backfill.added")
    if part.problem:
        backfills.note(conn, file, part.problem)
    if part.mark or (part.agent and session_id):
        backfills.next_part(
            conn,
            file,
            host=part.host,
            agent=part.agent,
            mark=part.mark,
            offset=part.offset,
            bad_lines=part.bad_lines,
            now=now,
        )
    else:
        _finish(conn, file, part, session_id, now=now)
    return [item for item in news if item.type == ingest.HIDDEN]  # old events are not news to listeners


def _find_or_open_session(conn: Connection, file: File, part: Part, *, now: int) -> tuple[int, bool]:
    """Return the session id, opening the session at its first event, and whether this file opened it. The id is 0 as
    long as there was no event."""
    if file.session_id or not part.events or not part.content_session_id:
        return file.session_id or 0, file.opened
    existing = sessions.find(conn, part.host, part.content_session_id)
    if existing is None and all(stones.bars_event(conn, event) for event in part.events):
        return 0, False  # the user has deleted all of it
    session, opened = existing or _open_session(conn, part, now=now), existing is None or file.opened
    backfills.belongs(conn, file, host=part.host, session_id=session.id, opened=opened)
    return session.id, opened


def _open_session(conn: Connection, part: Part, *, now: int) -> Session:
    project_id = projects.know(conn, part.project, "", now=now)
    at = part.events[0].at
    return sessions.open_(conn, part.host, part.content_session_id, project_id=project_id, at=at, cwd=part.cwd)


def _add_events(conn: Connection, session_id: int, part: Part, *, now: int) -> list[News]:
    session = sessions.get(conn, session_id)
    events = [replace(event, content_session_id=session.content_session_id) for event in part.events]
    return reconcile.add(conn, session, events, now=now)


def _close_session(conn: Connection, session_id: int, *, opened: bool) -> None:
    """Close a session, unless it may be running right now."""
    session = sessions.get(conn, session_id)
    if session.status == Status.ACTIVE or (session.status == Status.INITIALIZED and not opened):
        return
    turns.close_open(conn, session.id, by="backfill", at=session.last_event_at)
    if session.status != Status.FAILED:
        sessions.set_status(conn, session.id, Status.COMPLETED, at=session.last_event_at)


def _enqueue_digests(conn: Connection, session_id: int, *, now: int) -> None:
    for turn_id, seq in turns.undigested(conn, session_id):
        jobs.ask(conn, jobs.PAST, f"{turn_id}.{seq}", now=now)


def _finish(conn: Connection, file: File, part: Part, session_id: int, *, now: int) -> None:
    """Record the end of a file: "read" if it had any event, otherwise "skipped" with the reason."""
    if session_id:
        _enqueue_digests(conn, session_id, now=now)
        backfills.end(conn, file, host=part.host, state="read", problem="", bad_lines=part.bad_lines)
        return
    reason = "format" if part.bad_lines or backfills.bad_lines(conn, file) else "empty"
    backfills.end(conn, file, host=part.host, state="skipped", problem=reason, bad_lines=part.bad_lines)
