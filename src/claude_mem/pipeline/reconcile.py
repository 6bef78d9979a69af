"""Reads events that hooks missed from the agent's transcript, exactly once and in order.

Hooks are not guaranteed to fire: an interrupt fires no Stop, a refused tool call fires no hook at all, and a killed
client fires nothing. After reading, a job is enqueued for every turn that is over and not digested.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from claude_mem import ids
from claude_mem.config import Config
from claude_mem.errors import NotFound
from claude_mem.failpoints import failpoint
from claude_mem.hosts import registry
from claude_mem.pipeline import ingest
from claude_mem.pipeline import transcripts as transcripts_of
from claude_mem.pipeline.ingest import Accepted
from claude_mem.pipeline.stage import Commit, nothing
from claude_mem.pipeline.transcripts import Read, Unfinished
from claude_mem.projects import Project
from claude_mem.records import OVER, Event, Job, News, Prompted, Session, Stopped, ToolUsed
from claude_mem.store import events, jobs, sessions, turns
from claude_mem.store.database import Connection, Database
from claude_mem.text import clip

STOP_MS = 60_000  # longest time between a closing message in the transcript and the hook that reports it
_NO_PROJECT = Project("", "", ())  # a placeholder that is never used: the session already has a project


async def reconcile(job: Job, *, db: Database, config: Config, unfinished: Unfinished) -> Commit:
    """Read the next part of a session's transcript and return the transaction that adds the missing events."""
    session_id, _, rest = job.subject.partition(".")
    try:
        session = await db.read(sessions.get, int(session_id))
    except NotFound:
        return nothing
    mark = await unfinished.mark(db, job)
    if mark is None and (transcripts := registry.of(session.host).transcripts) is not None and transcripts.late_seconds:
        await asyncio.sleep(transcripts.late_seconds)
    part = await asyncio.to_thread(transcripts_of.read, session, rest.partition(".")[2], config, mark)
    failpoint("reconcile.read")
    return lambda conn: _commit(conn, job, session, part, unfinished)


def _commit(conn: Connection, job: Job, session: Session, part: Read, unfinished: Unfinished) -> Sequence[News]:
    now = ids.now()
    news = add(conn, session, part.events, now=now)
    if part.offset is not None:
        unfinished.end(job, own_file=True)
        if sessions.get(conn, session.id).status in OVER:
            turns.close_open(conn, session.id, by="session_end", at=session.last_event_at)
        sessions.set_offset(conn, session.id, _resume_at(conn, session, part, part.offset))
    failpoint("reconcile.offset")
    add_last_words(conn, session, part.closings, news, now=now)
    if part.rest is not None:
        unfinished.go_on(conn, job, part.rest, now=now)
    else:
        unfinished.end(job, own_file=False)
        _enqueue_digests(conn, session, now=now)
    return news


def _resume_at(conn: Connection, session: Session, part: Read, offset: int) -> int:
    """Return the offset of the next read. An open turn is read again, because its closing message is not known yet."""
    open_lines = [
        part.lines[prompt_id]
        for prompt_id in part.closings
        if (turn := _find_turn(conn, session, prompt_id)) is not None and not turn.closed
    ]
    return min([offset, *open_lines])


def _find_turn(conn: Connection, session: Session, prompt_id: str) -> turns.TurnState | None:
    return turns.by_prompt(conn, session.id, prompt_id) if prompt_id else turns.latest(conn, session.id)


def add(conn: Connection, session: Session, candidates: Sequence[Event], *, now: int) -> list[News]:
    """Store the candidates that are not stored yet, in the order in which they happened."""
    news: list[News] = []
    for event in _possibly_missed(conn, session, candidates):
        if _is_missing(conn, session, event, news):
            _store(conn, event, news, now=now)
            failpoint("reconcile.added")
    return news


def _possibly_missed(conn: Connection, session: Session, candidates: Sequence[Event]) -> Sequence[Event]:
    """Return the events that hooks may have missed.

    These are all events if hooks and transcript use the same tool-call ids. If not, duplicates could not be recognised,
    so only events older than the first hook count: since then the hooks have reported everything.
    """
    transcripts = registry.of(session.host).transcripts
    first = None if transcripts is None or transcripts.named else events.first_heard(conn, session.id)
    return candidates if first is None else [event for event in candidates if 0 < event.at < first]


def _enqueue_digests(conn: Connection, session: Session, *, now: int) -> None:
    """Enqueue a digest for each turn that is over and has none."""
    for turn_id, seq in turns.undigested(conn, session.id):
        jobs.ask(conn, "compress", f"{turn_id}.{seq}", now=now)


def _store(conn: Connection, event: Event, news: list[News], *, now: int) -> None:
    ingest.take(conn, Accepted(event, _NO_PROJECT, "transcript"), news, now=now)


def _is_missing(conn: Connection, session: Session, event: Event, news: list[News]) -> bool:
    match event.body:
        case ToolUsed(failed=failed):
            is_stored = events.has_tool_use(conn, session.id, event)
            if is_stored and failed:  # some agents do not report failures to hooks
                events.note_failure(conn, session.id, event.tool_use_id)
            return not is_stored and not _is_turn_closed_to_events(conn, session, event)
        case Prompted():
            return not _is_prompt_stored(conn, session, event, news)
    return False


def _is_turn_closed_to_events(conn: Connection, session: Session, event: Event) -> bool:
    """Return whether an event belongs to a turn that takes no more events: a private turn, or one whose events were
    purged, which was complete."""
    turn = turns.by_prompt(conn, session.id, event.prompt_id) or turns.at(conn, session.id, event.at)
    return event.private or (turn is not None and (turn.private or turn.faded))


def _is_prompt_stored(conn: Connection, session: Session, event: Event, news: list[News]) -> bool:
    """Return whether a prompt is stored: matched by prompt id, or by its text if the agent gives none. A prompt that
    turns out to be private hides its turn."""
    assert isinstance(event.body, Prompted)
    turn = turns.by_prompt(conn, session.id, event.prompt_id)
    if turn is None:
        text = clip(event.body.text, ingest.PROMPT_CHARS)
        turn = turns.untold(conn, session.id, text, event.at)
        if turn is not None:
            turns.name_prompt(conn, turn.id, event.prompt_id)
    if turn is None:
        return turns.prompt_elsewhere(conn, session.host, event.prompt_id)
    if event.private and not turn.private:
        ingest.hide(conn, session, turn, news, now=ids.now())
        return True
    return turn.private or events.has_kind(conn, turn.id, "prompt")


def add_last_words(
    conn: Connection, session: Session, closings: Mapping[str, Event], news: list[News], *, now: int
) -> None:
    """Add the closing message of turns that ended without a Stop, or whose Stop did not contain it.

    For agents whose transcript alone has the exact message, it replaces the one that the Stop reported.
    """
    for prompt_id, closing in closings.items():
        turn = _find_turn(conn, session, prompt_id)
        if turn is not None and not turn.private and turn.closed and not events.has_last_words(conn, turn.id):
            _store(conn, replace(closing, prompt_id=turn.prompt_id or ""), news, now=now)
    if (transcripts := registry.of(session.host).transcripts) is not None and transcripts.corrects_closing:
        _correct_stops(conn, session, closings.values())


def _correct_stops(conn: Connection, session: Session, closings: Iterable[Event]) -> None:
    """Replace the message of each reported Stop by the transcript's: the last one written before the hook ran."""
    dated_closings = sorted(
        (closing for closing in closings if closing.at and not closing.private), key=lambda each: each.at
    )
    times = [closing.at for closing in dated_closings]
    corrected: set[int] = set()
    for stop in events.reported_stops(conn, session.id) if dated_closings else ():
        index = bisect_right(times, stop["at"]) - 1
        if index < 0 or index in corrected or stop["at"] - times[index] > STOP_MS:
            continue
        corrected.add(index)
        body = dated_closings[index].body
        assert isinstance(body, Stopped)
        if stop["message"] != body.message:
            events.reword_stop(conn, stop["seq"], body.message)
            if stop["turn_id"] is not None:
                turns.add_late(conn, stop["turn_id"], at=stop["at"])
