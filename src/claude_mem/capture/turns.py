"""Event to rows: which session and turn an event belongs to, and which jobs the end of a turn enqueues."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from claude_mem.capture.sanitize import PROMPT_CHARS
from claude_mem.domain.records import (
    ENDED_STATUSES,
    STORED,
    AgentNotice,
    Body,
    Compacting,
    Event,
    Prompted,
    Receipt,
    Session,
    SessionEnded,
    SessionStarted,
    Status,
    Stopped,
    StreamEvent,
    SubagentStopped,
    ToolUsed,
)
from claude_mem.domain.text import clip, make_storable, shorten
from claude_mem.storage.base import Transaction
from claude_mem.storage.journal_records import TurnState
from claude_mem.system.failpoints import failpoint
from claude_mem.system.project_folders import ResolvedProject

log = logging.getLogger(__name__)
TURN_HIDDEN = "turn_hidden"


@dataclass(frozen=True, slots=True)
class Accepted:
    """An event that may be stored, already cleaned, with its project."""

    event: Event
    project: ResolvedProject
    source: str = "hook"


@dataclass(frozen=True, slots=True)
class Refused:
    """The id of an event that may not be stored, with the reason."""

    event_id: str
    outcome: Receipt


IngestResult = Accepted | Refused


def record_batch(
    tx: Transaction, batch: Sequence[IngestResult], *, now: int
) -> tuple[list[StreamEvent], list[Receipt]]:
    """Store a batch. Return the news to publish and the outcome of each item."""
    news: list[StreamEvent] = []
    outcomes = [_record_safely(tx, item, news, now=now) for item in batch]
    failpoint("drain.batch")
    return news, outcomes


def _record_safely(tx: Transaction, item: IngestResult, news: list[StreamEvent], *, now: int) -> Receipt:
    """Store one event. If that fails, set the event aside and undo its partial writes."""
    news_count = len(news)
    outcome = Receipt("set_aside", "error")
    event_id = make_storable(item.event.id if isinstance(item, Accepted) else item.event_id)
    try:
        with tx.savepoint():
            outcome = record_event(tx, item, news, now=now)
    except tx.failures:
        raise
    except Exception:
        log.exception("event %s cannot be stored; it is set aside", event_id)
        del news[news_count:]
        tx.journal.add_receipt(event_id, outcome, at=now)
    return outcome


def record_event(tx: Transaction, item: IngestResult, news: list[StreamEvent], *, now: int) -> Receipt:
    """Store or refuse one event and write its receipt. An event that already has one (the worker died between commit
    and unlink) keeps its outcome."""
    event_id = make_storable(item.event.id if isinstance(item, Accepted) else item.event_id)
    if before := tx.journal.find_receipt(event_id):
        return before
    outcome = route_event(tx, item, news, now=now) if isinstance(item, Accepted) else item.outcome
    tx.journal.add_receipt(event_id, outcome, at=now)
    return outcome


def _event_time(tx: Transaction, session: Session, item: Accepted) -> int:
    """Return the time at which an event counts as having happened.

    A live event is never earlier than the events reported before it, even if the clock was set back. An event from a
    transcript keeps its own time.
    """
    at = item.event.at
    return at if item.source == "transcript" else tx.journal.clamp_to_last_event(session.id, at)


def route_event(tx: Transaction, item: Accepted, news: list[StreamEvent], *, now: int) -> Receipt:
    """Store an event in its session and turn, opening them if necessary."""
    event = item.event
    if tx.deletions.is_event_tombstoned(event, live=item.source != "transcript"):
        return Receipt("filtered", "forgotten")
    session = tx.memory.find_session(event.host, event.content_session_id)
    if session is None:
        project_id = tx.memory.register_project(item.project, event.cwd, now=now)
        name, cwd = event.content_session_id, event.cwd
        session = tx.memory.open_session(event.host, name, project_id=project_id, at=event.at, cwd=cwd)
    elif isinstance(event.body, SessionStarted):
        tx.memory.register_project(item.project, event.cwd, now=now)
    if item.source != "transcript":  # an event from a transcript does not show that the session is alive
        path, pid = event.transcript_path, event.host_pid
        tx.memory.touch_session(session.id, at=event.at, transcript_path=path, host_pid=pid)
    match event.body:
        case SessionStarted():
            return _store_session_start(tx, session, item, now=now)
        case Prompted():
            return _store_prompt(tx, session, item, news, now=now)
        case AgentNotice():
            return _store_notice(tx, session, item)
        case Compacting():  # belongs to no turn: it may come between two turns, with a prompt id of its own
            tx.journal.add_event(event, session_id=session.id, turn_id=None, source=item.source)
            return STORED
        case SessionEnded():
            return _store_session_end(tx, session, item, news, now=now)
        case _:
            return _store_in_turn(tx, session, item, news, now=now)


def _store_session_start(tx: Transaction, session: Session, item: Accepted, *, now: int) -> Receipt:
    event, body = item.event, item.event.body
    assert isinstance(body, SessionStarted)
    seq = tx.journal.add_event(event, session_id=session.id, turn_id=None, source=item.source)
    if body.source != "compact" and session.prompt_counter:  # compaction happens in the middle of a turn
        tx.journal.close_open_turns(session.id, by="session_start", at=_event_time(tx, session, item))
        enqueue_reconcile(tx, session.id, seq, now=now)
    if body.source in ("startup", "clear", "compact"):
        tx.journal.record_informed_up_to(session.id, tx.memory.get_newest_observation_id())
    return STORED


def _store_prompt(tx: Transaction, session: Session, item: Accepted, news: list[StreamEvent], *, now: int) -> Receipt:
    event, body = item.event, item.event.body
    assert isinstance(body, Prompted)
    turn = tx.journal.find_turn_by_prompt(session.id, event.prompt_id)
    if turn is None:
        turn = _open_turn(tx, session, item, now=now)
    elif event.private:
        hide_turn(tx, session, turn, news, now=now)
    elif turn.private:
        return Receipt("filtered", "private")
    elif tx.journal.has_event_of_kind(turn.id, "prompt"):
        return _append_to_prompt(tx, session, turn, item)
    if item.source != "transcript":
        tx.memory.set_session_status(session.id, Status.ACTIVE)
    if event.private:
        return Receipt("filtered", "private")
    text = clip(body.text, PROMPT_CHARS)
    tx.journal.add_event(event, session_id=session.id, turn_id=turn.id, source=item.source)
    at = _event_time(tx, session, item)
    tx.memory.add_prompt(session_id=session.id, turn_id=turn.id, number=turn.number, text=text, at=at)
    tx.memory.set_first_prompt(session.id, text, title=shorten(text, 80))
    news.append(_make_news(tx, "new_prompt", session, prompt_number=turn.number, text=text))
    return STORED


def _append_to_prompt(tx: Transaction, session: Session, turn: TurnState, item: Accepted) -> Receipt:
    """Append to a turn's prompt: some agents accept more input while they work. Repeated text is a duplicate."""
    assert isinstance(item.event.body, Prompted)
    text = clip(item.event.body.text, PROMPT_CHARS)
    if not tx.memory.append_to_prompt(turn.id, text):
        return Receipt("filtered", "duplicate")
    tx.journal.add_event(item.event, session_id=session.id, turn_id=turn.id, source=item.source)
    return STORED


def _store_notice(tx: Transaction, session: Session, item: Accepted) -> Receipt:
    """Store a notice that the agent program, not the user, put in the prompt's place. If it continues a private turn,
    everything that follows is private too."""
    latest = tx.journal.find_latest_turn(session.id)
    if latest is not None and latest.private:
        if tx.journal.find_turn_by_prompt(session.id, item.event.prompt_id) is None:
            at = _event_time(tx, session, item)
            tx.journal.open_turn(session.id, at=at, prompt_id=item.event.prompt_id, private=True)
        return Receipt("filtered", "private")
    tx.journal.add_event(item.event, session_id=session.id, turn_id=None, source=item.source)
    return STORED


def hide_turn(tx: Transaction, session: Session, turn: TurnState, news: list[StreamEvent], *, now: int) -> None:
    """Hide a turn whose prompt turned out to be private. Receivers of the news must erase it from files too."""
    tx.journal.make_turn_private(turn.id)
    tx.journal.enqueue_job("render", f"{session.project_id}.{turn.id}.hidden", now=now)
    news.append(StreamEvent(TURN_HIDDEN, {"turn_id": turn.id}))


def _store_in_turn(tx: Transaction, session: Session, item: Accepted, news: list[StreamEvent], *, now: int) -> Receipt:
    """Store an event that happens within a turn: a tool call or a stop."""
    event = item.event
    if event.tool_use_id and tx.journal.is_tool_call_in_session(session.id, event.tool_use_id):
        return Receipt("filtered", "duplicate")
    turn = _turn_of(tx, session, item, now=now)
    at = _event_time(tx, session, item)
    if event.private or (turn is not None and turn.private):
        if isinstance(event.body, Stopped) and turn is not None:
            tx.journal.close_turn(turn.id, by="stop", at=at)
        return Receipt("filtered", "private")
    if turn is not None and item.source != "transcript" and _is_stop_known(tx, turn.id, event.body):
        enqueue_reconcile(tx, session.id, tx.journal.get_newest_seq(session.id), now=now)
        return Receipt("filtered", "duplicate")
    seq = tx.journal.add_event(event, session_id=session.id, turn_id=turn.id if turn else None, source=item.source)
    if item.source == "transcript":  # the reader of the transcript closes turns and enqueues jobs itself
        if turn is not None:
            tx.journal.mark_turn_extended(turn.id, at=event.at)
        return STORED
    if turn is not None:
        _keep_open(tx, session, turn, event, now=now)
    if isinstance(event.body, Stopped):
        if turn is not None:
            tx.journal.close_turn(turn.id, by="stop", at=at)
        enqueue_reconcile(tx, session.id, seq, now=now)
        news.append(_make_news(tx, "turn_ended", session))
    if isinstance(event.body, SubagentStopped):
        enqueue_reconcile(tx, session.id, seq, now=now, subagents=f"agent-{event.body.agent_id}")
    return STORED


def _is_stop_known(tx: Transaction, turn_id: int, body: Body) -> bool:
    """Return whether a Stop waited in the spool for so long that its message was already read from the transcript."""
    return (
        isinstance(body, Stopped)
        and bool(body.message)
        and tx.journal.is_message_from_transcript(turn_id, body.message)
    )


def _turn_of(tx: Transaction, session: Session, item: Accepted, *, now: int) -> TurnState | None:
    """Return the turn of an event: by prompt id, else the newest turn; for an event from a transcript, the turn at its
    time.

    If the prompt was missed, open the turn without it; the prompt is read from the transcript later.
    """
    event = item.event
    if turn := tx.journal.find_turn_by_prompt(session.id, event.prompt_id):
        return _resume_after_purge(tx, session, item, now=now) if turn.events_purged else turn
    if event.prompt_id:
        return _open_turn(tx, session, item, now=now)
    turn = (
        tx.journal.find_turn_at(session.id, event.at)
        if item.source == "transcript"
        else tx.journal.find_latest_turn(session.id)
    )
    if turn is not None and turn.events_purged:
        return _resume_after_purge(tx, session, item, now=now)
    return _open_turn(tx, session, item, now=now) if turn is None and isinstance(event.body, ToolUsed) else turn


def _resume_after_purge(tx: Transaction, session: Session, item: Accepted, *, now: int) -> TurnState:
    """Return the turn that continues a turn whose events were purged, as on a machine that slept for weeks: the newest
    turn if its events remain, else a new one."""
    latest = tx.journal.find_latest_turn(session.id)
    if latest is not None and not latest.events_purged:
        return latest
    without_prompt_id = replace(item, event=replace(item.event, prompt_id=""))
    return _open_turn(tx, session, without_prompt_id, now=now)


def _open_turn(tx: Transaction, session: Session, item: Accepted, *, now: int) -> TurnState:
    """Open a turn, closing any open turn before it. A turn from a transcript is closed at once if later turns exist."""
    event, live, at = item.event, item.source != "transcript", _event_time(tx, session, item)
    if tx.journal.close_open_turns(session.id, by="prompt", at=at) and live:
        enqueue_reconcile(tx, session.id, tx.journal.get_newest_seq(session.id), now=now)
    turn = tx.journal.open_turn(session.id, at=at, prompt_id=event.prompt_id, private=event.private)
    if not live and tx.journal.has_later_turn(turn.id):
        tx.journal.close_turn(turn.id, by="prompt", at=at)
    return turn


def _keep_open(tx: Transaction, session: Session, turn: TurnState, event: Event, *, now: int) -> None:
    """Keep the newest turn open after an event. An event for an older turn, or in a session that is over, comes late:
    the turn is digested again without waiting for more events."""
    newest = tx.journal.find_latest_turn(session.id)
    if session.status not in ENDED_STATUSES and (newest is None or newest.id == turn.id):
        tx.journal.touch_turn(turn.id, at=event.at)
    else:
        tx.journal.mark_turn_extended(turn.id, at=event.at)
        enqueue_reconcile(tx, session.id, tx.journal.get_newest_seq(session.id), now=now)


def _store_session_end(
    tx: Transaction, session: Session, item: Accepted, news: list[StreamEvent], *, now: int
) -> Receipt:
    event = item.event
    seq = tx.journal.add_event(event, session_id=session.id, turn_id=None, source=item.source)
    at = _event_time(tx, session, item)
    tx.journal.close_open_turns(session.id, by="session_end", at=at)
    tx.memory.set_session_status(session.id, Status.COMPLETED, at=at)
    enqueue_reconcile(tx, session.id, seq, now=now, subagents="agents")
    news.append(_make_news(tx, "session_completed", session))
    return STORED


def _make_news(tx: Transaction, type_: str, session: Session, **fields: int | str) -> StreamEvent:
    project = tx.memory.find_project(session.project_id)
    return StreamEvent(type_, {"session_id": session.id, "project": project.name if project else "", **fields})


def enqueue_reconcile(tx: Transaction, session_id: int, seq: int | None, *, now: int, subagents: str = "") -> None:
    """Enqueue reading the transcript for missed events, then digesting. The job is keyed by the event that caused it.

    `subagents` names the subagent files to read as well: `agent-<id>` for one, `agents` for all.
    """
    tx.journal.enqueue_job("reconcile", f"{session_id}.{seq or 0}.{subagents}".rstrip("."), now=now)
