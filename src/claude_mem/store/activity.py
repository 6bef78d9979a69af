"""What is happening now. The viewer asks every second, so every query runs along an index or reads a small table."""

from __future__ import annotations

from collections.abc import Iterable

from claude_mem.records import Job
from claude_mem.store import jobs
from claude_mem.store.database import Connection, Row, one, rows, value

RECENT_MS = 5 * 60_000  # a session with an event this recent counts as active
MOST_SESSIONS, MOST_ERRORS = 50, 20

_ABOUT_TURN = ("compress", jobs.PAST, jobs.REFINE, jobs.REWRITE)


def sessions(conn: Connection, *, now: int) -> list[Row]:
    """Return sessions with an open turn and those with events in the last minutes, newest first."""
    session_rows = rows(
        conn,
        """
        with busy (id) as (
            select session_id from turns where closed_at is null
            union
            select id from sdk_sessions where status in ('initialized', 'active') and last_event_at >= :since)
        select s.id, s.title, s.host, s.project_id, p.name as project, s.status, s.started_at, s.last_event_at
          from busy join sdk_sessions s using (id) join projects p on p.id = s.project_id
         order by s.last_event_at desc, s.id desc limit :limit
        """,
        {"since": now - RECENT_MS, "limit": MOST_SESSIONS},
    )
    return [
        {**row, **_latest_turn(conn, row["id"]), "last_event": _last_event(conn, row["id"])} for row in session_rows
    ]


def _latest_turn(conn: Connection, session_id: int) -> Row:
    turn = one(
        conn,
        """
        select number, private, opened_at, closed_at from turns where session_id = ?
         order by opened_at desc, number desc limit 1
        """,
        (session_id,),
    )
    if turn is None:
        return {"turn": None, "private": False, "since": None, "open": False}
    return {
        "turn": turn["number"],
        "private": bool(turn["private"]),
        "since": turn["opened_at"],
        "open": turn["closed_at"] is None,
    }


def _last_event(conn: Connection, session_id: int) -> Row | None:
    """Return kind and tool name of the last event, never its input."""
    return one(
        conn,
        """
        select at, kind, json_extract(body, '$.name') as tool from events where session_id = ? order by seq desc limit 1
        """,
        (session_id,),
    )


def work(conn: Connection, claimed_jobs: Iterable[Job]) -> list[Row]:
    """Return the jobs in progress, with the session and turn each is about."""
    return [{"kind": job.kind, "attempts": job.attempts, **_subject(conn, job)} for job in claimed_jobs]


def _subject(conn: Connection, job: Job) -> Row:
    number = int(head) if (head := job.subject.partition(".")[0]).isdigit() else 0
    subject: Row | None = None
    if job.kind in _ABOUT_TURN:
        subject = one(conn, "select session_id, number as turn from turns where id = ?", (number,))
    elif job.kind == "reconcile":
        subject = {"session_id": number, "turn": None}
    if subject is None:
        return {"session_id": None, "turn": None, "title": None}
    title = value(conn, "select title from sdk_sessions where id = ?", (subject["session_id"],))
    return {**subject, "title": title}


def queue(conn: Connection) -> list[Row]:
    """Return the job queue by kind: how many jobs wait for the first attempt, how many for a retry, how many are
    dead."""
    return rows(
        conn,
        """
        select kind, count(*) filter (where not dead and error is null) as waiting,
               count(*) filter (where not dead and error is not null) as retrying,
               count(*) filter (where dead) as dead
          from jobs group by kind order by kind
        """,
    )


def troubles(conn: Connection) -> list[Row]:
    """Return the jobs that will be retried, with their errors."""
    return rows(
        conn,
        """
        select id, kind, attempts, due_at, error from jobs where not dead and error is not null
         order by due_at limit ?
        """,
        (MOST_ERRORS,),
    )


def set_aside(conn: Connection) -> int:
    """Return how many events are set aside."""
    return int(value(conn, "select count(*) from receipts where outcome = 'set_aside'"))


def backfill(conn: Connection) -> Row | None:
    """Return the progress of the running back-fill, or None."""
    run = value(conn, "select max(id) from backfills")
    files = run and one(
        conn,
        """
        select count(*) as files, count(*) filter (where state != 'waiting') as done, coalesce(sum(size), 0) as bytes,
               coalesce(sum(iif(state = 'waiting', min(offset, size), size)), 0) as bytes_done
          from backfill_files where backfill_id = ?
        """,
        (run,),
    )
    reading, digesting = jobs.count(conn, jobs.BACKFILL), jobs.count(conn, jobs.PAST)
    return {**files, "digesting": digesting} if files and (reading or digesting) else None
