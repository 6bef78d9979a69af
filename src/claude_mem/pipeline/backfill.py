"""Transcript file → session, turns and events, as if the hooks had been there.

The code that reconciles live sessions adds them, so what the hooks did capture is not doubled, and reading a file
twice adds nothing. A file is read part by part, each a job and a transaction of its own: however large it is, others
get in between, and whoever is killed goes on where he was. When the session's own file is read, those of its subagents
follow; then its turns are digested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

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

PART_BYTES = 2 << 20  # a part takes the writer some milliseconds: nobody notices
PACKED_PART_BYTES = 4 * PART_BYTES  # to find the place in a packed file, all that stands before it is unpacked


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file of which nothing is taken, and why."""

    host: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one part tells, cleaned, and where to go on: in which file and from which mark. Neither: it was the last."""

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
    """Have these files read, unless they were and have not changed since."""
    backfills.ask(conn, backfills.look(paths), now=now)


# --- reading ---------------------------------------------------------------------------------------------------------


async def backfill(job: Job, *, db: Database, config: Config) -> Commit:
    """The stage."""
    file = await db.read(backfills.get, job.subject)
    if file is None:
        return nothing
    part = await asyncio.to_thread(read, file, config)
    failpoint("backfill.read")
    if isinstance(part, Skipped):
        return partial(_skip, file=file, skipped=part)
    return partial(_take, file=file, part=part)


def read(file: File, config: Config) -> Part | Skipped:
    path = Path(file.path)
    if problem := _unreadable(path):
        return Skipped(file.host, problem)
    host = registry.of(file.host) if file.host else registry.whose(path)
    if host is None or host.transcripts is None:
        return Skipped("", _nobodys(path))
    found, agent, mark = _next(file, path, host.name, host.transcripts)
    project = resolve(found.cwd, excluded=config.excluded_projects)
    if found.cwd and Path(found.cwd).is_relative_to(config.data_dir):
        return Skipped(host.name, "ours")
    if not project.enabled:
        return Skipped(host.name, "project_off")
    events = [_clean(event, config) for event in found.events]
    wanted = [ingest.kept(event, project, config) for event in events if event is not None]
    closings = {prompt_id: _clean(event, config) for prompt_id, event in found.closings.items()}
    return Part(
        host=host.name,
        project=project,
        content_session_id=storable(found.content_session_id),
        cwd=found.cwd,
        events=tuple(event for event in wanted if event is not None),
        closings={prompt_id: event for prompt_id, event in closings.items() if event is not None},
        problem=found.problem,
        bad_lines=found.bad_lines + [*events, *closings.values()].count(None),
        offset=found.offset,
        agent=agent,
        mark=mark,
    )


def _next(file: File, path: Path, host: str, transcripts: Transcripts) -> tuple[Found, str, str]:
    """This part, and where the next one begins: in the same file, in that of a subagent, or nowhere."""
    agents = dict(transcripts.agents(path))
    here = agents.get(file.agent) if file.agent else path
    found, mark = _part(file, here, host, transcripts) if here else (Found(), "")
    if mark:
        return found, file.agent, mark
    return found, min((agent for agent in agents if agent > file.agent), default=""), ""


def _part(file: File, path: Path, host: str, transcripts: Transcripts) -> tuple[Found, str]:
    if transcripts.part is not None:
        most = PACKED_PART_BYTES if path.suffix == ".gz" else PART_BYTES
        return transcripts.part(path, host=host, mark=file.mark, most=most, agent_id=file.agent)
    return transcripts.read(path, host=host, agent_id=file.agent, over=True), ""


def _clean(event: Event, config: Config) -> Event | None:
    """None if it is nested deeper than anyone can follow."""
    try:
        return ingest.clean(event, config)
    except RecursionError:
        return None


def _unreadable(path: Path) -> str:
    """What keeps the file from being read, found out before anyone waits for a pipe."""
    found = Found()
    with lines.problems(found), untrusted_files.opened_transcript(path) as file:
        file.read(1)
    return found.problem


def _nobodys(path: Path) -> str:
    """Why no agent knows it."""
    found, why = Found(), "foreign"
    with lines.problems(found), lines.opened(path) as file:
        if not file.read(1):
            why = "empty"
        else:
            file.seek(lines.MAX_DOCUMENT)  # nobody looks at more of a file that is one record
            if path.name.removesuffix(".gz").endswith(".json") and file.read(1):
                why = "huge"
    return "broken" if found.problem == "unreadable" else found.problem or why


# --- writing ---------------------------------------------------------------------------------------------------------


def _skip(conn: Connection, *, file: File, skipped: Skipped) -> Sequence[News]:
    """Whatever was taken of it before stays, and is digested."""
    if file.session_id:
        _close(conn, file.session_id, opened=file.opened)
        _digest(conn, file.session_id, now=ids.now())
    state = "read" if file.session_id else "skipped"
    backfills.end(conn, file, host=skipped.host, state=state, problem=skipped.problem)
    return ()


def _take(conn: Connection, *, file: File, part: Part) -> Sequence[News]:
    now = ids.now()
    session_id, opened = _session(conn, file, part, now=now)
    news = _add(conn, session_id, part, now=now) if session_id else []
    if session_id and not file.agent:
        sessions.reach(conn, session_id, max((event.at for event in part.events), default=0), opened_by_us=opened)
        if not part.mark:  # the end of its own file
            _close(conn, session_id, opened=opened)
            if opened and not file.path.endswith(".gz"):  # should it be resumed, there is no need to read it all again
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
        _end(conn, file, part, session_id, now=now)
    return [item for item in news if item.type == ingest.HIDDEN]  # it is no news to those who listen


def _session(conn: Connection, file: File, part: Part, *, now: int) -> tuple[int, bool]:
    """The session, opened at its first event, and whether it is this file's to close. 0: nothing was told yet."""
    if file.session_id or not part.events or not part.content_session_id:
        return file.session_id or 0, file.opened
    known = sessions.find(conn, part.host, part.content_session_id)
    if known is None and all(stones.bars_event(conn, event) for event in part.events):
        return 0, False  # all of it was forgotten
    session, opened = known or _open(conn, part, now=now), known is None or file.opened
    backfills.belongs(conn, file, host=part.host, session_id=session.id, opened=opened)
    return session.id, opened


def _open(conn: Connection, part: Part, *, now: int) -> Session:
    project_id = projects.know(conn, part.project, "", now=now)
    at = part.events[0].at
    return sessions.open_(conn, part.host, part.content_session_id, project_id=project_id, at=at, cwd=part.cwd)


def _add(conn: Connection, session_id: int, part: Part, *, now: int) -> list[News]:
    session = sessions.get(conn, session_id)
    told = [replace(event, content_session_id=session.content_session_id) for event in part.events]
    return reconcile.add(conn, session, told, now=now)


def _close(conn: Connection, session_id: int, *, opened: bool) -> None:
    """It is over, unless it may be running right now."""
    session = sessions.get(conn, session_id)
    if session.status == Status.ACTIVE or (session.status == Status.INITIALIZED and not opened):
        return
    turns.close_open(conn, session.id, by="backfill", at=session.last_event_at)
    if session.status != Status.FAILED:
        sessions.set_status(conn, session.id, Status.COMPLETED, at=session.last_event_at)


def _digest(conn: Connection, session_id: int, *, now: int) -> None:
    for turn_id, seq in turns.undigested(conn, session_id):
        jobs.ask(conn, jobs.PAST, f"{turn_id}.{seq}", now=now)


def _end(conn: Connection, file: File, part: Part, session_id: int, *, now: int) -> None:
    """Read, if anything was told. A file that told nothing is no success."""
    if session_id:
        _digest(conn, session_id, now=now)
        backfills.end(conn, file, host=part.host, state="read", problem="", bad_lines=part.bad_lines)
        return
    why = "format" if part.bad_lines or backfills.bad_lines(conn, file) else "empty"
    backfills.end(conn, file, host=part.host, state="skipped", problem=why, bad_lines=part.bad_lines)
