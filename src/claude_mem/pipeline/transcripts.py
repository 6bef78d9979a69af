"""Reads what is new in a session's transcript files, in parts; each part is a job of its own.

However large a transcript is, one part takes little memory, and other jobs run between two parts. The position of the
next part is kept in memory only. After a crash the file is read again from the end of its last complete read, which
adds nothing that is already stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from claude_mem import untrusted_files
from claude_mem.config import Config
from claude_mem.hosts import registry
from claude_mem.hosts.dialect import Found
from claude_mem.hosts.host import Transcripts
from claude_mem.pipeline import ingest
from claude_mem.projects import Project, resolve
from claude_mem.records import Event, Job, Session
from claude_mem.store import jobs
from claude_mem.store.database import Connection, Database

PART_BYTES = 2 << 20  # takes some tenths of a second to read and some milliseconds to write
_NO_PROJECT = Project("", "", ())


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a part ended: in the session's file, or in the file of a subagent. `text` is the reader's own position."""

    agent: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The cleaned events of one part, in order.

    `offset` is how far the session's own file was read, or `None` if its end was not reached. `rest` is where the next
    part begins.
    """

    events: tuple[Event, ...] = ()
    closings: dict[str, Event]
    lines: dict[str, int]
    offset: int | None = None
    rest: Mark | None = None


class Unfinished:
    """Positions at which unfinished reads continue.

    A position is valid only while its job is waiting. A failed transaction leaves no job, so its part is read again.
    """

    def __init__(self) -> None:
        self._marks: dict[str, tuple[int, str, Mark]] = {}

    async def mark(self, db: Database, job: Job) -> Mark | None:
        """Return where this job continues. Another job of the session may have started to read its file."""
        for key in (job.subject, _session_key(job)):
            job_id, subject, mark = self._marks.get(key, (0, "", Mark()))
            if job_id and (job_id, subject) == (job.id, job.subject):
                return mark
            if job_id and await db.read(jobs.is_waiting, job_id, subject):
                return mark
            self._marks.pop(key, None)
        return None

    def go_on(self, conn: Connection, job: Job, mark: Mark, *, now: int) -> None:
        """Enqueue the next part. All jobs of a session share its own file; each reads subagent files for itself."""
        next_id = jobs.ask_again(conn, job, now=now)
        self._marks[job.subject if mark.agent else _session_key(job)] = (next_id, job.subject, mark)

    def end(self, job: Job, *, own_file: bool) -> None:
        self._marks.pop(_session_key(job) if own_file else job.subject, None)


def _session_key(job: Job) -> str:
    return job.subject.partition(".")[0]


def read(session: Session, subagents: str, config: Config, mark: Mark | None) -> Read:
    """Read the next part. `subagents` is "agents" to read the files of all subagents, or "agent-<id>" for one."""
    transcripts = registry.of(session.host).transcripts
    unchanged = Read(closings={}, lines={}, offset=session.transcript_offset)
    if not session.transcript_path or transcripts is None:
        return unchanged
    path = Path(session.transcript_path)
    project = resolve(session.cwd, excluded=config.excluded_projects) if session.cwd else _NO_PROJECT
    if not project.enabled:  # skip to the end: what is written while memory is off is never read later
        return Read(closings={}, lines={}, offset=_file_size(path))
    if not _is_live(path) or not transcripts.is_of(path, session.content_session_id):
        return unchanged  # a hook payload may name any file
    main, events, next_mark = _read_files(session, subagents, transcripts, mark or Mark())
    return Read(
        events=tuple(_filter_and_clean(events, project, config)),
        closings={
            prompt_id: event
            for prompt_id, closing in main.closings.items()
            for event in _filter_and_clean([closing], project, config)
        },
        lines=main.lines,
        offset=None if (mark and mark.agent) or (next_mark and not next_mark.agent) else main.offset,
        rest=next_mark,
    )


def whole(transcripts: Transcripts, path: Path, *, host: str, content_session_id: str = "") -> Iterator[Found]:
    """Yield the content of a file that is no longer written to, part by part."""
    if transcripts.part is None:
        yield transcripts.read(path, host=host, content_session_id=content_session_id, over=True)
        return
    mark, part = "", partial(transcripts.part, path, host=host, content_session_id=content_session_id)
    while True:
        transcript, mark = part(mark=mark, most=PART_BYTES)
        yield transcript
        if not mark or transcript.problem:
            return


def _read_files(
    session: Session, subagents: str, transcripts: Transcripts, mark: Mark
) -> tuple[Found, list[Event], Mark | None]:
    """Read one part: return the content of the session's own file, the events of all files, and where to continue."""
    path, events, bytes_left = Path(session.transcript_path), [], PART_BYTES
    next_part = partial(_read_file_part, transcripts, host=session.host, content_session_id=session.content_session_id)
    main = Found()
    if not mark.agent:
        main, size, next_mark = next_part(path, mark=mark.text, offset=session.transcript_offset, most=bytes_left)
        events, bytes_left = list(main.events), bytes_left - size
        if next_mark:
            return main, events, Mark("", next_mark)
    for agent_id, file in _subagent_files(transcripts, path, subagents):
        if agent_id < mark.agent or not transcripts.is_of(file, session.content_session_id):
            continue
        if bytes_left <= 0:
            return main, events, Mark(agent_id)
        text = mark.text if agent_id == mark.agent else ""
        transcript, size, next_mark = next_part(file, mark=text, agent_id=agent_id, most=bytes_left)
        events, bytes_left = events + transcript.events, bytes_left - size
        if next_mark:
            return main, events, Mark(agent_id, next_mark)
    return main, events, None


def _subagent_files(transcripts: Transcripts, path: Path, subagents: str) -> list[tuple[str, Path]]:
    """Return the ids and files of the subagents to read, in a stable order."""
    agents = transcripts.agents(path) if subagents else ()
    files = {id_: file for id_, file in agents if subagents in ("agents", f"agent-{id_}") and id_ and _is_live(file)}
    return sorted(files.items())


def _read_file_part(
    transcripts: Transcripts,
    path: Path,
    *,
    host: str,
    content_session_id: str,
    mark: str = "",
    offset: int = 0,
    agent_id: str = "",
    most: int,
) -> tuple[Found, int, str]:
    """Return the content of one part of a file, its approximate size in bytes, and the position to continue from."""
    session = content_session_id
    if transcripts.part is None:
        transcript = transcripts.read(path, host=host, content_session_id=session, offset=offset, agent_id=agent_id)
        return transcript, most, ""
    part = partial(transcripts.part, path, host=host, content_session_id=session, agent_id=agent_id, over=False)
    transcript, next_mark = part(mark=mark, offset=offset, most=most)
    if transcript.problem:
        transcript.offset = offset
        return transcript, 0, ""
    return transcript, most if next_mark else min(most, max(0, transcript.offset - offset)), next_mark


def _is_live(path: Path) -> bool:
    """Return whether an agent may be writing to a file: it belongs to the user and is not compressed."""
    return path.suffix != ".gz" and untrusted_files.is_own(path)


def _filter_and_clean(events: Iterable[Event], project: Project, config: Config) -> Iterator[Event]:
    """Yield the events that may be stored, cleaned. Events that are nested too deeply are skipped."""
    for event in events:
        try:
            cleaned_event = ingest.filter_and_clean(event, project, config)
        except RecursionError:
            continue
        if cleaned_event is not None:
            yield cleaned_event


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return 0
