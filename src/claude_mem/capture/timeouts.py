"""Periodic corrections: close abandoned turns, reconcile grown transcripts, shift times after a clock change."""

from __future__ import annotations

import os
import time
from pathlib import Path

from claude_mem.capture.turns import enqueue_reconcile
from claude_mem.domain import ids
from claude_mem.domain.records import Session
from claude_mem.storage.base import Transaction
from claude_mem.system.failpoints import failpoint


def enqueue_grown_transcripts(tx: Transaction, *, now: int) -> None:
    """Enqueue reconciling the unfinished sessions whose transcript has grown."""
    for session in tx.journal.list_unfinished_sessions():
        try:
            grown = Path(session.transcript_path).stat().st_size > session.transcript_offset
        except OSError:
            continue
        if session.transcript_path and grown:
            _reconcile_session(tx, session.id, now=now)


def _reconcile_session(tx: Transaction, session_id: int, *, now: int) -> None:
    enqueue_reconcile(tx, session_id, tx.journal.get_newest_seq(session_id), now=now, subagents="agents")


def shift_due_times(tx: Transaction, *, by: int) -> None:
    """Shift stored due times by `by` milliseconds after the system clock was set back."""
    tx.journal.shift_job_due_times(by=by)
    tx.journal.shift_breaker_times(by=by)


def close_silent_turns(tx: Transaction, *, now: int, silence_ms: int) -> int:
    """Close turns without an event for `silence_ms`. Return how many."""
    silent = tx.journal.list_silent_turns(before=now - silence_ms)
    for turn in silent:
        tx.journal.close_turn(turn.id, by="silence", at=turn.last_at)
        _reconcile_session(tx, turn.session_id, now=now)
        failpoint("sweep.closed")
    return len(silent)


def close_orphaned_turns(tx: Transaction, session_ids: list[int], *, now: int) -> int:
    """Close the open turns of sessions whose agent has exited. Return how many."""
    closed = 0
    for session_id in session_ids:
        session = tx.memory.get_session(session_id)
        if tx.journal.close_open_turns(session_id, by="host_gone", at=session.last_event_at):
            _reconcile_session(tx, session_id, now=now)
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


# --- the clock -------------------------------------------------------------------------------------------------------


SLACK_MS = 1_000  # smaller changes are ordinary time synchronization


class Clock:
    """Detects that the wall clock was set back, by its difference from the monotonic clock.

    Stored times use the wall clock, because they must outlive the process. A clock set forward needs no handling: jobs
    are only due a little early.
    """

    def __init__(self) -> None:
        self.offset = _offset()

    def set_back(self) -> int:
        """Return by how many milliseconds the clock was set back since the last call; 0 if it was not."""
        before, self.offset = self.offset, _offset()
        back = before - self.offset
        return back if back > SLACK_MS else 0


def _offset() -> int:
    return ids.now_ms() - time.monotonic_ns() // 1_000_000
