"""Periodic corrections: close abandoned turns, reconcile grown transcripts, shift times after a clock change."""

from __future__ import annotations

import os
from pathlib import Path

from claude_mem.capture.turns import enqueue_reconcile
from claude_mem.domain.records import Session
from claude_mem.storage.sqlite.engine import Connection
from claude_mem.storage.sqlite.journal import events, jobs, ledger, turns
from claude_mem.storage.sqlite.memory import sessions
from claude_mem.system.failpoints import failpoint


def enqueue_grown_transcripts(conn: Connection, *, now: int) -> None:
    """Enqueue reconciling the unfinished sessions whose transcript has grown."""
    for session in sessions.list_unfinished_sessions(conn):
        try:
            grown = Path(session.transcript_path).stat().st_size > session.transcript_offset
        except OSError:
            continue
        if session.transcript_path and grown:
            _reconcile_session(conn, session.id, now=now)


def _reconcile_session(conn: Connection, session_id: int, *, now: int) -> None:
    enqueue_reconcile(conn, session_id, events.get_newest_seq(conn, session_id), now=now, subagents="agents")


def shift_due_times(conn: Connection, *, by: int) -> None:
    """Shift stored due times by `by` milliseconds after the system clock was set back."""
    jobs.shift_job_due_times(conn, by=by)
    ledger.shift_breaker_times(conn, by=by)


def close_silent_turns(conn: Connection, *, now: int, silence_ms: int) -> int:
    """Close turns without an event for `silence_ms`. Return how many."""
    silent = turns.list_silent_turns(conn, before=now - silence_ms)
    for turn in silent:
        turns.close_turn(conn, turn.id, by="silence", at=turn.last_at)
        _reconcile_session(conn, turn.session_id, now=now)
        failpoint("sweep.closed")
    return len(silent)


def close_orphaned_turns(conn: Connection, session_ids: list[int], *, now: int) -> int:
    """Close the open turns of sessions whose agent has exited. Return how many."""
    closed = 0
    for session_id in session_ids:
        session = sessions.get_session(conn, session_id)
        if turns.close_open_turns(conn, session_id, by="host_gone", at=session.last_event_at):
            _reconcile_session(conn, session_id, now=now)
            closed += 1
    return closed


def has_agent_exited(session: Session) -> bool:
    """Return whether the agent's process has exited. If its pid was reused, the turn waits for the silence timeout."""
    if not session.host_pid:
        return False
    try:
        os.kill(session.host_pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it runs as another user
    return False
