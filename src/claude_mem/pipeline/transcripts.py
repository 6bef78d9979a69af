"""What the files of a session tell beyond what was read before: part by part, each a job of its own.

However large a transcript is, a part takes little memory, and whoever else waits gets in between two of them. Where the
next part begins is kept in memory only: after a crash the file is read again from where its last whole reading ended,
which adds nothing that is stored already.
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

PART_BYTES = 2 << 20  # takes some tenths of a second to read, and the writer some milliseconds
_NO_PROJECT = Project("", "", ())


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a part ended: in the file of the session or of a subagent. `text` is the reader's own mark."""

    agent: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a part tells, cleaned, in order. `offset`: how far the session's own file was read; None if not to its end.
    `rest`: where the next part begins."""

    events: tuple[Event, ...] = ()
    closings: dict[str, Event]
    lines: dict[str, int]
    offset: int | None = None
    rest: Mark | None = None


class Unfinished:
    """Where the readings that are not finished go on.

    A mark counts only while the job for it waits: a transaction that failed has left none, so its part is read again.
    """

    def __init__(self) -> None:
        self._marks: dict[str, tuple[int, str, Mark]] = {}

    async def mark(self, db: Database, job: Job) -> Mark | None:
        """Return where this job goes on. Another job of the session may have begun to read its file."""
        for key in (job.subject, _session_key(job)):
            job_id, subject, mark = self._marks.get(key, (0, "", Mark()))
            if job_id and (job_id, subject) == (job.id, job.subject):
                return mark
            if job_id and await db.read(jobs.is_waiting, job_id, subject):
                return mark
            self._marks.pop(key, None)
        return None

    def go_on(self, conn: Connection, job: Job, mark: Mark, *, now: int) -> None:
        """Ask for the next part. All jobs of a session share its own file; each reads subagents' for itself."""
        next_id = jobs.ask_again(conn, job, now=now)
        self._marks[job.subject if mark.agent else _session_key(job)] = (next_id, job.subject, mark)

    def end(self, job: Job, *, own_file: bool) -> None:
        self._marks.pop(_session_key(job) if own_file else job.subject, None)


def _session_key(job: Job) -> str:
    return job.subject.partition(".")[0]


def read(session: Session, also: str, config: Config, mark: Mark | None) -> Read:
    """Read the next part. `also`: "agents" for the files of all subagents, "agent-<id>" for that of one."""
    transcripts = registry.of(session.host).transcripts
    unchanged = Read(closings={}, lines={}, offset=session.transcript_offset)
    if not session.transcript_path or transcripts is None:
        return unchanged
    path = Path(session.transcript_path)
    project = resolve(session.cwd, excluded=config.excluded_projects) if session.cwd else _NO_PROJECT
    if not project.enabled:  # what was said meanwhile is not made up for later
        return Read(closings={}, lines={}, offset=_size(path))
    if not _is_live(path) or not transcripts.is_of(path, session.content_session_id):
        return unchanged  # a payload may name any file
    main, told, rest = _files(session, also, transcripts, mark or Mark())
    return Read(
        events=tuple(_cleaned(told, project, config)),
        closings={id_: event for id_, closing in main.closings.items() for event in _cleaned([closing], None, config)},
        lines=main.lines,
        offset=None if (mark and mark.agent) or (rest and not rest.agent) else main.offset,
        rest=rest,
    )


def whole(transcripts: Transcripts, path: Path, *, host: str, content_session_id: str = "") -> Iterator[Found]:
    """Yield what a file tells that nobody writes to any more, part by part."""
    if transcripts.part is None:
        yield transcripts.read(path, host=host, content_session_id=content_session_id, over=True)
        return
    mark, part = "", partial(transcripts.part, path, host=host, content_session_id=content_session_id)
    while True:
        found, mark = part(mark=mark, most=PART_BYTES)
        yield found
        if not mark or found.problem:
            return


def _files(session: Session, also: str, transcripts: Transcripts, mark: Mark) -> tuple[Found, list[Event], Mark | None]:
    """Return what the session's own file tells, the events of all files, and where to go on, within one part."""
    path, told, left = Path(session.transcript_path), [], PART_BYTES
    next_part = partial(_part, transcripts, host=session.host, content_session_id=session.content_session_id)
    main = Found()
    if not mark.agent:
        main, size, rest = next_part(path, mark=mark.text, offset=session.transcript_offset, most=left)
        told, left = list(main.events), left - size
        if rest:
            return main, told, Mark("", rest)
    for agent_id, file in _agents(transcripts, path, also):
        if agent_id < mark.agent or not transcripts.is_of(file, session.content_session_id):
            continue
        if left <= 0:
            return main, told, Mark(agent_id)
        text = mark.text if agent_id == mark.agent else ""
        found, size, rest = next_part(file, mark=text, agent_id=agent_id, most=left)
        told, left = told + found.events, left - size
        if rest:
            return main, told, Mark(agent_id, rest)
    return main, told, None


def _agents(transcripts: Transcripts, path: Path, also: str) -> list[tuple[str, Path]]:
    """Return the subagents whose files are to be read, in an order that stays."""
    every = transcripts.agents(path) if also else ()
    wanted = {id_: file for id_, file in every if also in ("agents", f"agent-{id_}") and id_ and _is_live(file)}
    return sorted(wanted.items())


def _part(
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
    """Return what a part of a file tells, about how many bytes it was, and the mark to go on from."""
    session = content_session_id
    if transcripts.part is None:
        found = transcripts.read(path, host=host, content_session_id=session, offset=offset, agent_id=agent_id)
        return found, most, ""
    part = partial(transcripts.part, path, host=host, content_session_id=session, agent_id=agent_id, over=False)
    found, rest = part(mark=mark, offset=offset, most=most)
    if found.problem:
        found.offset = offset
        return found, 0, ""
    return found, most if rest else min(most, max(0, found.offset - offset)), rest


def _is_live(path: Path) -> bool:
    """Whether an agent may be writing to it: a file of the person's, and not packed."""
    return path.suffix != ".gz" and untrusted_files.is_own(path)


def _cleaned(told: Iterable[Event], project: Project | None, config: Config) -> Iterator[Event]:
    """Yield what is to be kept, cleaned. What is nested deeper than anyone can follow is left out."""
    for event in told:
        try:
            wanted = event if project is None else ingest.kept(event, project, config)
            cleaned = None if wanted is None else ingest.clean(wanted, config)
        except RecursionError:
            continue
        if cleaned is not None:
            yield cleaned


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return 0
