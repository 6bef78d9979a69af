"""Reads events that hooks missed from the agent's transcript, exactly once and in order.

Hooks are not guaranteed to fire: an interrupt fires no Stop, a refused tool call fires no hook at all, and a killed
client fires nothing. A transcript is read in parts, each a job of its own: however large the file is, one part takes
little memory, and other jobs run between two parts. The position of the next part is kept in memory only; after a crash
the file is read again from the end of its last complete read, which adds nothing that is already stored. After the last
part, a digest is enqueued for every turn that is over and has none.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from claude_mem.agents import registry
from claude_mem.agents.base import Transcripts
from claude_mem.agents.canonical import TranscriptContent
from claude_mem.capture import sanitize
from claude_mem.capture.turns import Accepted, hide_turn, record_event
from claude_mem.config import Config
from claude_mem.domain import ids
from claude_mem.domain.errors import NotFound
from claude_mem.domain.records import ENDED_STATUSES, Event, Job, Prompted, Session, Stopped, StreamEvent, ToolUsed
from claude_mem.domain.text import clip, make_storable
from claude_mem.storage.base import Commit, Database, Transaction, write_nothing
from claude_mem.storage.journal_records import TurnState
from claude_mem.system import untrusted_files
from claude_mem.system.failpoints import failpoint
from claude_mem.system.project_folders import ResolvedProject, identify_project

PART_BYTES = 2 << 20  # takes some tenths of a second to read and some milliseconds to write
MAX_STOP_DELAY_MS = 60_000  # longest time between a closing message in the transcript and the hook that reports it
_NO_PROJECT = ResolvedProject("", "", ())


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a part ended: in the session's file, or in the file of a subagent. `text` is the reader's own position."""

    agent: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptPart:
    """The cleaned events of one part, in order.

    `offset` is how far the session's own file was read, or `None` if its end was not reached. `rest` is where the next
    part begins.
    """

    events: tuple[Event, ...] = ()
    closings: dict[str, Event]
    lines: dict[str, int]
    offset: int | None = None
    rest: ResumePoint | None = None


class UnfinishedReads:
    """Positions at which unfinished reads continue.

    A position is valid only while its job is waiting. A failed transaction leaves no job, so its part is read again.
    """

    def __init__(self) -> None:
        self._marks: dict[str, tuple[int, str, ResumePoint]] = {}

    async def mark(self, db: Database, job: Job) -> ResumePoint | None:
        """Return where this job continues. Another job of the session may have started to read its file."""
        for key in (job.subject, _session_key(job)):
            job_id, subject, mark = self._marks.get(key, (0, "", ResumePoint()))
            if job_id and (job_id, subject) == (job.id, job.subject):
                return mark
            if job_id and await db.read(
                lambda tx, job_id, subject: tx.journal.is_job_waiting(job_id, subject), job_id, subject
            ):
                return mark
            self._marks.pop(key, None)
        return None

    def go_on(self, tx: Transaction, job: Job, mark: ResumePoint, *, now: int) -> None:
        """Enqueue the next part. All jobs of a session share its own file; each reads subagent files for itself."""
        next_id = tx.journal.enqueue_job_again(job, now=now)
        self._marks[job.subject if mark.agent else _session_key(job)] = (next_id, job.subject, mark)

    def end(self, job: Job, *, own_file: bool) -> None:
        """Forget where a read continues: that of the session's own file, or that of this job's subagent files."""
        self._marks.pop(_session_key(job) if own_file else job.subject, None)


def _session_key(job: Job) -> str:
    return job.subject.partition(".")[0]


# --- the job ---------------------------------------------------------------------------------------------------------


async def reconcile(job: Job, *, db: Database, config: Config, unfinished: UnfinishedReads) -> Commit:
    """Read the next part of a session's transcript and return the transaction that adds the missing events."""
    session_id, _, rest = job.subject.partition(".")
    try:
        session = await db.read(lambda tx: tx.memory.get_session(int(session_id)))
    except NotFound:
        return write_nothing
    mark = await unfinished.mark(db, job)
    transcripts = registry.get_agent(session.host).transcripts
    if mark is None and transcripts is not None and transcripts.late_seconds:
        await asyncio.sleep(transcripts.late_seconds)
    part = await asyncio.to_thread(read_next_part, session, rest.partition(".")[2], config, mark)
    failpoint("reconcile.read")
    return lambda tx: _commit(tx, job, session, part, unfinished)


def _commit(
    tx: Transaction, job: Job, session: Session, part: TranscriptPart, unfinished: UnfinishedReads
) -> Sequence[StreamEvent]:
    now = ids.now_ms()
    news = add_missing_events(tx, session, part.events, now=now)
    if part.offset is not None:
        unfinished.end(job, own_file=True)
        if tx.memory.get_session(session.id).status in ENDED_STATUSES:
            tx.journal.close_open_turns(session.id, by="session_end", at=session.last_event_at)
        tx.journal.set_transcript_offset(session.id, _resume_at(tx, session, part, part.offset))
    failpoint("reconcile.offset")
    add_closing_messages(tx, session, part.closings, news, now=now)
    if part.rest is not None:
        unfinished.go_on(tx, job, part.rest, now=now)
    else:
        unfinished.end(job, own_file=False)
        for turn_id, seq in tx.journal.list_undigested_turns(session.id):
            tx.journal.enqueue_job("compress", f"{turn_id}.{seq}", now=now)
    return news


def _resume_at(tx: Transaction, session: Session, part: TranscriptPart, offset: int) -> int:
    """Return the offset of the next read. An open turn is read again, because its closing message is not known yet."""
    open_lines = [
        part.lines[prompt_id]
        for prompt_id in part.closings
        if (turn := _find_turn(tx, session, prompt_id)) is not None and not turn.closed
    ]
    return min([offset, *open_lines])


# --- reading ---------------------------------------------------------------------------------------------------------


def read_next_part(session: Session, subagents: str, config: Config, mark: ResumePoint | None) -> TranscriptPart:
    """Read the next part. `subagents` is "agents" to read the files of all subagents, or "agent-<id>" for one."""
    transcripts = registry.get_agent(session.host).transcripts
    unchanged = TranscriptPart(closings={}, lines={}, offset=session.transcript_offset)
    if not session.transcript_path or transcripts is None:
        return unchanged
    path = Path(session.transcript_path)
    project = identify_project(session.cwd, excluded=config.excluded_projects) if session.cwd else _NO_PROJECT
    if not project.enabled:  # skip to the end: what is written while memory is off is never read later
        return TranscriptPart(closings={}, lines={}, offset=_file_size(path))
    if not _is_live(path) or not transcripts.belongs_to_session(path, session.content_session_id):
        return unchanged  # a hook payload may name any file
    main, events, next_mark = _read_files(session, subagents, transcripts, mark or ResumePoint())
    return TranscriptPart(
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


def read_in_parts(
    transcripts: Transcripts, path: Path, *, host: str, content_session_id: str = ""
) -> Iterator[TranscriptContent]:
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


def read_allowed_events(
    transcripts: Transcripts,
    path: Path,
    project: ResolvedProject,
    config: Config,
    *,
    host: str,
    content_session_id: str = "",
    most: int | None = None,
) -> list[Event]:
    """Return what may be stored of a file that is no longer written to: the events that the capture rules allow,
    cleaned, without those of private prompts. Only the first `most` events are considered.

    A later part of the file may show that a prompt is private, so the private ones are removed after the last part.
    """
    allowed: list[Event] = []
    private_prompts: set[str] = set()
    count = 0
    for part in read_in_parts(transcripts, path, host=host, content_session_id=content_session_id):
        private_prompts |= part.private
        events = [*part.events, *part.closings.values()]
        considered = events if most is None else events[: max(0, most - count)]
        allowed += _filter_and_clean((event for event in considered if not event.private), project, config)
        count += len(events)
    private_ids = set(map(make_storable, private_prompts))  # as in cleaned events
    return [event for event in allowed if event.prompt_id not in private_ids]


def _read_files(
    session: Session, subagents: str, transcripts: Transcripts, mark: ResumePoint
) -> tuple[TranscriptContent, list[Event], ResumePoint | None]:
    """Read one part: return the content of the session's own file, the events of all files, and where to continue."""
    path, events, bytes_left = Path(session.transcript_path), [], PART_BYTES
    next_part = partial(_read_file_part, transcripts, host=session.host, content_session_id=session.content_session_id)
    main = TranscriptContent()
    if not mark.agent:
        main, size, next_mark = next_part(path, mark=mark.text, offset=session.transcript_offset, most=bytes_left)
        events, bytes_left = list(main.events), bytes_left - size
        if next_mark:
            return main, events, ResumePoint("", next_mark)
    for agent_id, file in _subagent_files(transcripts, path, subagents):
        if agent_id < mark.agent or not transcripts.belongs_to_session(file, session.content_session_id):
            continue
        if bytes_left <= 0:
            return main, events, ResumePoint(agent_id)
        text = mark.text if agent_id == mark.agent else ""
        transcript, size, next_mark = next_part(file, mark=text, agent_id=agent_id, most=bytes_left)
        events, bytes_left = events + transcript.events, bytes_left - size
        if next_mark:
            return main, events, ResumePoint(agent_id, next_mark)
    return main, events, None


def _subagent_files(transcripts: Transcripts, path: Path, subagents: str) -> list[tuple[str, Path]]:
    """Return the ids and files of the subagents to read, in a stable order."""
    agents = transcripts.subagents(path) if subagents else ()
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
) -> tuple[TranscriptContent, int, str]:
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
    return path.suffix != ".gz" and untrusted_files.is_owned_by_user_or_root(path)


def _filter_and_clean(events: Iterable[Event], project: ResolvedProject, config: Config) -> Iterator[Event]:
    """Yield the events that may be stored, cleaned. Events that are nested too deeply are skipped."""
    for event in events:
        try:
            cleaned_event = sanitize.filter_and_clean(event, project, config)
        except RecursionError:
            continue
        if cleaned_event is not None:
            yield cleaned_event


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return 0


# --- adding events ---------------------------------------------------------------------------------------------------


def add_missing_events(
    tx: Transaction, session: Session, candidates: Sequence[Event], *, now: int
) -> list[StreamEvent]:
    """Store the candidates that are not stored yet, in the order in which they happened."""
    news: list[StreamEvent] = []
    for event in _possibly_missed(tx, session, candidates):
        if _is_missing(tx, session, event, news):
            _store(tx, event, news, now=now)
            failpoint("reconcile.added")
    return news


def _possibly_missed(tx: Transaction, session: Session, candidates: Sequence[Event]) -> Sequence[Event]:
    """Return the events that hooks may have missed.

    These are all events if hooks and transcript use the same tool-call ids. If not, duplicates could not be recognised,
    so only events older than the first hook count: since then the hooks have reported everything.
    """
    transcripts = registry.get_agent(session.host).transcripts
    first = (
        None if transcripts is None or transcripts.shares_tool_ids else tx.journal.find_first_live_event_at(session.id)
    )
    return candidates if first is None else [event for event in candidates if 0 < event.at < first]


def _store(tx: Transaction, event: Event, news: list[StreamEvent], *, now: int) -> None:
    record_event(tx, Accepted(event, _NO_PROJECT, "transcript"), news, now=now)


def _is_missing(tx: Transaction, session: Session, event: Event, news: list[StreamEvent]) -> bool:
    match event.body:
        case ToolUsed(failed=failed):
            is_stored = tx.journal.is_tool_call_stored(session.id, event)
            if is_stored and failed:  # some agents do not report failures to hooks
                tx.journal.mark_tool_call_failed(session.id, event.tool_use_id)
            return not is_stored and not _is_turn_closed_to_events(tx, session, event)
        case Prompted():
            return not _is_prompt_stored(tx, session, event, news)
    return False


def _is_turn_closed_to_events(tx: Transaction, session: Session, event: Event) -> bool:
    """Return whether an event belongs to a turn that takes no more events: a private turn, or one whose events were
    purged, which was complete."""
    turn = tx.journal.find_turn_by_prompt(session.id, event.prompt_id) or tx.journal.find_turn_at(session.id, event.at)
    return event.private or (turn is not None and (turn.private or turn.events_purged))


def _is_prompt_stored(tx: Transaction, session: Session, event: Event, news: list[StreamEvent]) -> bool:
    """Return whether a prompt is stored: matched by prompt id, or by its text if the agent gives none. A prompt that
    turns out to be private hides its turn."""
    assert isinstance(event.body, Prompted)
    turn = tx.journal.find_turn_by_prompt(session.id, event.prompt_id)
    if turn is None:
        text = clip(event.body.text, sanitize.PROMPT_CHARS)
        turn = tx.journal.find_turn_by_text(session.id, text, event.at)
        if turn is not None:
            tx.journal.set_prompt_id(turn.id, event.prompt_id)
    if turn is None:
        return tx.journal.is_prompt_known(session.host, event.prompt_id)
    if event.private and not turn.private:
        hide_turn(tx, session, turn, news, now=ids.now_ms())
        return True
    return turn.private or tx.journal.has_event_of_kind(turn.id, "prompt")


def _find_turn(tx: Transaction, session: Session, prompt_id: str) -> TurnState | None:
    return (
        tx.journal.find_turn_by_prompt(session.id, prompt_id) if prompt_id else tx.journal.find_latest_turn(session.id)
    )


def add_closing_messages(
    tx: Transaction, session: Session, closings: Mapping[str, Event], news: list[StreamEvent], *, now: int
) -> None:
    """Add the closing message of turns that ended without a Stop, or whose Stop did not contain it.

    For agents whose transcript alone has the exact message, it replaces the one that the Stop reported.
    """
    for prompt_id, closing in closings.items():
        turn = _find_turn(tx, session, prompt_id)
        if turn is not None and not turn.private and turn.closed and not tx.journal.has_closing_message(turn.id):
            _store(tx, replace(closing, prompt_id=turn.prompt_id or ""), news, now=now)
    if (transcripts := registry.get_agent(session.host).transcripts) is not None and transcripts.corrects_closing:
        _correct_stops(tx, session, closings.values())


def _correct_stops(tx: Transaction, session: Session, closings: Iterable[Event]) -> None:
    """Replace the message of each reported Stop by the transcript's: the last one written before the hook ran."""
    dated_closings = sorted(
        (closing for closing in closings if closing.at and not closing.private), key=lambda each: each.at
    )
    times = [closing.at for closing in dated_closings]
    corrected: set[int] = set()
    for stop in tx.journal.list_live_stops(session.id) if dated_closings else ():
        index = bisect_right(times, stop.at) - 1
        if index < 0 or index in corrected or stop.at - times[index] > MAX_STOP_DELAY_MS:
            continue
        corrected.add(index)
        body = dated_closings[index].body
        assert isinstance(body, Stopped)
        if stop.message != body.message:
            tx.journal.replace_stop_message(stop.seq, body.message)
            if stop.turn_id is not None:
                tx.journal.mark_turn_extended(stop.turn_id, at=stop.at)
