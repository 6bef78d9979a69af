"""Periodic corrections: close abandoned turns, reconcile grown transcripts, shift times after a clock change."""

from __future__ import annotations

import os
from pathlib import Path

from claude_mem.failpoints import failpoint
from claude_mem.pipeline import ingest
from claude_mem.records import Session
from claude_mem.store import breakers, events, jobs, sessions, turns
from claude_mem.store.database import Connection


def ask_grown(conn: Connection, *, now: int) -> None:
    """Enqueue reconciling the unfinished sessions whose transcript has grown."""
    for session in sessions.unfinished(conn):
        try:
            grown = Path(session.transcript_path).stat().st_size > session.transcript_offset
        except OSError:
            continue
        if session.transcript_path and grown:
            ingest.ask_reconcile(conn, session.id, events.newest(conn, session.id), now=now, subagents="agents")


def set_back(conn: Connection, *, by: int) -> None:
    """Shift stored due times by `by` milliseconds after the system clock was set back."""
    jobs.set_back(conn, by=by)
    breakers.set_back(conn, by=by)


def close_silent(conn: Connection, *, now: int, silence_ms: int) -> int:
    """Close turns without an event for `silence_ms`. Return how many."""
    silent = turns.silent(conn, before=now - silence_ms)
    for turn in silent:
        turns.close(conn, turn["id"], by="silence", at=turn["last_at"])
        ingest.ask_reconcile(conn, turn["session_id"], events.newest(conn, turn["session_id"]), now=now, subagents="agents")
        failpoint("sweep.closed")
    return len(silent)


def close_gone(conn: Connection, session_ids: list[int], *, now: int) -> int:
    """Close the open turns of sessions whose agent has exited. Return how many."""
    closed = 0
    for session_id in session_ids:
        session = sessions.get(conn, session_id)
        if turns.close_open(conn, session_id, by="host_gone", at=session.last_event_at):
            ingest.ask_reconcile(conn, session_id, events.newest(conn, session_id), now=now, subagents="agents")
            closed += 1
    return closed


def is_gone(session: Session) -> bool:
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
