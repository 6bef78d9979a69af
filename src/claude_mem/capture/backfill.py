"""Turns a transcript file into a session with turns and events, as if hooks had captured it.

The events are added by the code that reconciles live sessions, so events that hooks captured are not duplicated, and
reading a file twice adds nothing. A file is read in parts, each a job and a transaction of its own: other jobs run
between two parts of a large file, and a killed worker continues where it stopped. After the session's own file come the
files of its subagents; then its turns are digested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from claude_mem.agents import registry, transcript_lines
from claude_mem.agents.base import Transcripts
from claude_mem.agents.canonical import TranscriptContent
from claude_mem.capture import sanitize, transcripts
from claude_mem.capture.turns import TURN_HIDDEN
from claude_mem.config import Config
from claude_mem.domain import ids
from claude_mem.domain.records import Event, Job, Status, StreamEvent
from claude_mem.domain.text import make_storable
from claude_mem.storage.base import Commit, Database, Transaction, write_nothing
from claude_mem.storage.journal_records import DIGEST_BACKFILLED_JOB, BackfillFile, TranscriptFile
from claude_mem.system import untrusted_files
from claude_mem.system.failpoints import failpoint
from claude_mem.system.project_folders import ResolvedProject, identify_project

K = TypeVar("K")

PART_BYTES = 2 << 20  # a part occupies the writer for some milliseconds, which is not noticeable
PACKED_PART_BYTES = 4 * PART_BYTES  # larger: seeking in a compressed file decompresses everything before the position


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that is not read, with the reason."""

    host: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillPart:
    """The cleaned content of one part, and where to continue: in which subagent's file (`agent`) and at which position
    (`mark`). Both are empty after the last part."""

    host: str
    project: ResolvedProject
    content_session_id: str
    cwd: str
    events: tuple[Event, ...]
    closings: dict[str, Event]
    branches: tuple[str, ...]
    problem: str
    bad_lines: int
    offset: int
    agent: str
    mark: str


def enqueue_files(tx: Transaction, *paths: Path, now: int) -> None:
    """Enqueue reading these files, except those that were read and have not changed since."""
    tx.journal.enqueue_transcripts(stat_transcripts(paths), now=now)


# --- reading ---------------------------------------------------------------------------------------------------------


async def backfill(job: Job, *, db: Database, config: Config) -> Commit:
    """Read the next part of a file and return the transaction that stores it."""
    file = await db.read(lambda tx: tx.journal.find_backfill_file(job.subject))
    if file is None:
        return write_nothing
    part = await asyncio.to_thread(read_part, file, config)
    failpoint("backfill.read")
    if isinstance(part, SkippedFile):
        return partial(_skip_file, file=file, skipped=part)
    return partial(_store_part, file=file, part=part)


def read_part(file: BackfillFile, config: Config) -> BackfillPart | SkippedFile:
    """Read and clean the next part of a file. Return why it is skipped if it must not be read."""
    path = Path(file.path)
    if problem := _read_problem(path):
        return SkippedFile(file.host, problem)
    host = registry.get_agent(file.host) if file.host else registry.identify_agent(path)
    if host is None or host.transcripts is None:
        return SkippedFile("", _unrecognised_reason(path))
    transcript, agent, mark = _read_next(file, path, host.name, host.transcripts)
    project = identify_project(transcript.cwd, excluded=config.excluded_projects)
    if transcript.cwd and Path(transcript.cwd).is_relative_to(config.data_dir):
        return SkippedFile(host.name, "ours")
    if not project.enabled:
        return SkippedFile(host.name, "project_off")
    events, bad_events = _filter_and_clean(enumerate(transcript.events), project, config)
    closings, bad_closings = _filter_and_clean(transcript.closings.items(), project, config)
    return BackfillPart(
        host=host.name,
        project=project,
        content_session_id=make_storable(transcript.content_session_id),
        cwd=transcript.cwd,
        events=tuple(events.values()),
        closings=closings,
        branches=tuple(map(make_storable, transcript.branches)),
        problem=transcript.problem,
        bad_lines=transcript.bad_lines + bad_events + bad_closings,
        offset=transcript.offset,
        agent=agent,
        mark=mark,
    )


def _read_next(
    file: BackfillFile, path: Path, host: str, transcripts: Transcripts
) -> tuple[TranscriptContent, str, str]:
    """Return this part and where the next one begins: the subagent (or "") and the position in that file. Both are ""
    after the last part."""
    agents = dict(transcripts.subagents(path))
    current_path = agents.get(file.agent) if file.agent else path
    transcript, mark = TranscriptContent(), ""
    if current_path and transcripts.part is not None:
        most = PACKED_PART_BYTES if current_path.suffix == ".gz" else PART_BYTES
        transcript, mark = transcripts.part(current_path, host=host, mark=file.mark, most=most, agent_id=file.agent)
    elif current_path:
        transcript = transcripts.read(current_path, host=host, agent_id=file.agent, over=True)
    if mark:
        return transcript, file.agent, mark
    return transcript, min((agent for agent in agents if agent > file.agent), default=""), ""


def _filter_and_clean(
    items: Iterable[tuple[K, Event]], project: ResolvedProject, config: Config
) -> tuple[dict[K, Event], int]:
    """Return the events that may be stored, cleaned, and how many were nested too deeply to be processed."""
    events: dict[K, Event] = {}
    too_deep = 0
    for key, event in items:
        try:
            cleaned_event = sanitize.filter_and_clean(event, project, config)
        except RecursionError:
            too_deep += 1
            continue
        if cleaned_event is not None:
            events[key] = cleaned_event
    return events, too_deep


def _read_problem(path: Path) -> str:
    """Return why a file cannot be read, or "". Checked first, so that reading never blocks on a pipe."""
    transcript = TranscriptContent()
    with transcript_lines.record_problems(transcript), untrusted_files.open_transcript(path) as file:
        file.read(1)
    return transcript.problem


def _unrecognised_reason(path: Path) -> str:
    """Return why no agent recognises a file as its transcript."""
    transcript, reason = TranscriptContent(), "foreign"
    with transcript_lines.record_problems(transcript), transcript_lines.open_transcript(path) as file:
        if not file.read(1):
            reason = "empty"
        else:
            file.seek(transcript_lines.MAX_DOCUMENT_BYTES)  # a file that is a single record is not read beyond this
            if path.name.removesuffix(".gz").endswith(".json") and file.read(1):
                reason = "huge"
    return "broken" if transcript.problem == "unreadable" else transcript.problem or reason


# --- writing ---------------------------------------------------------------------------------------------------------


def _skip_file(tx: Transaction, *, file: BackfillFile, skipped: SkippedFile) -> Sequence[StreamEvent]:
    """Skip the file. What was stored from it before stays and is digested."""
    if file.session_id:
        _close_session(tx, file.session_id, opened=file.opened)
        _enqueue_digests(tx, file.session_id, now=ids.now_ms())
    state = "read" if file.session_id else "skipped"
    tx.journal.finish_backfill_file(file, host=skipped.host, state=state, problem=skipped.problem)
    return ()


def _store_part(tx: Transaction, *, file: BackfillFile, part: BackfillPart) -> Sequence[StreamEvent]:
    """Store a part, and enqueue the next one or record the end of the file."""
    now = ids.now_ms()
    session_id, opened = _find_or_open_session(tx, file, part, now=now)
    news: list[StreamEvent] = []
    if session_id:
        session = tx.memory.get_session(session_id)
        events = [replace(event, content_session_id=session.content_session_id) for event in part.events]
        news = transcripts.add_missing_events(tx, session, events, now=now)
    if session_id:
        tx.memory.record_session_branches(session_id, part.branches)
    if session_id and not file.agent:
        tx.memory.advance_last_event(
            session_id, max((event.at for event in part.events), default=0), opened_by_us=opened
        )
        if not part.mark:  # the end of the session's own file
            _close_session(tx, session_id, opened=opened)
            if opened and not file.path.endswith(".gz"):  # a resumed session need not be read again from the start
                tx.journal.set_transcript_offset(session_id, part.offset)
        transcripts.add_closing_messages(tx, tx.memory.get_session(session_id), part.closings, news, now=now)
    failpoint("backfill.added")
    if part.problem:
        tx.journal.record_backfill_problem(file, part.problem)
    if part.mark or (part.agent and session_id):
        tx.journal.enqueue_next_part(
            file,
            host=part.host,
            agent=part.agent,
            mark=part.mark,
            offset=part.offset,
            bad_lines=part.bad_lines,
            now=now,
        )
    else:
        _finish(tx, file, part, session_id, now=now)
    return [item for item in news if item.type == TURN_HIDDEN]  # old events are not news to listeners


def _find_or_open_session(tx: Transaction, file: BackfillFile, part: BackfillPart, *, now: int) -> tuple[int, bool]:
    """Return the session id, opening the session at its first event, and whether this file opened it. The id is 0 as
    long as there was no event."""
    if file.session_id or not part.events or not part.content_session_id:
        return file.session_id or 0, file.opened
    existing = tx.memory.find_session(part.host, part.content_session_id)
    if existing is None and all(tx.deletions.is_event_tombstoned(event) for event in part.events):
        return 0, False  # the user has deleted the whole session
    session = existing
    if session is None:
        project_id = tx.memory.register_project(part.project, "", now=now)
        session_id, at = part.content_session_id, part.events[0].at
        session = tx.memory.open_session(part.host, session_id, project_id=project_id, at=at, cwd=part.cwd)
    opened = existing is None or file.opened
    tx.journal.set_backfill_session(file, host=part.host, session_id=session.id, opened=opened)
    return session.id, opened


def _close_session(tx: Transaction, session_id: int, *, opened: bool) -> None:
    """Close a session, unless it may be running right now."""
    session = tx.memory.get_session(session_id)
    if session.status == Status.ACTIVE or (session.status == Status.INITIALIZED and not opened):
        return
    tx.journal.close_open_turns(session.id, by="backfill", at=session.last_event_at)
    if session.status != Status.FAILED:
        tx.memory.set_session_status(session.id, Status.COMPLETED, at=session.last_event_at)


def _enqueue_digests(tx: Transaction, session_id: int, *, now: int) -> None:
    for turn_id, seq in tx.journal.list_undigested_turns(session_id):
        tx.journal.enqueue_job(DIGEST_BACKFILLED_JOB, f"{turn_id}.{seq}", now=now)


def _finish(tx: Transaction, file: BackfillFile, part: BackfillPart, session_id: int, *, now: int) -> None:
    """Record the end of a file: "read" if it had any event, otherwise "skipped" with the reason."""
    if session_id:
        _enqueue_digests(tx, session_id, now=now)
        tx.journal.finish_backfill_file(file, host=part.host, state="read", problem="", bad_lines=part.bad_lines)
        return
    reason = "format" if part.bad_lines or tx.journal.count_bad_lines(file) else "empty"
    tx.journal.finish_backfill_file(file, host=part.host, state="skipped", problem=reason, bad_lines=part.bad_lines)


def stat_transcripts(paths: Iterable[Path]) -> Iterator[TranscriptFile]:
    """Yield the current state of each file.

    A file that cannot be examined is included: reading it will report the problem.
    """
    for path in paths:
        try:
            status = path.stat()
        except (OSError, ValueError):
            yield TranscriptFile(str(path), 0, 0)
        else:
            yield TranscriptFile(str(path), status.st_size, status.st_mtime_ns)
