"""The job queue. A job names something that no longer changes, so enqueueing it twice has the effect of once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from claude_mem.domain import ids
from claude_mem.domain.errors import LeaseLost
from claude_mem.domain.records import Job
from claude_mem.domain.reports import QueuedJob
from claude_mem.storage.journal_records import (
    ANCHOR_JOB,
    BACKFILL_JOB,
    DIGEST_BACKFILLED_JOB,
    IMPORT_JOB,
    REFINE_JOB,
    REPROCESS_JOB,
    ClaimOrder,
)
from claude_mem.storage.sqlite.engine import (
    Connection,
    fetch_one,
    fetch_record,
    fetch_records,
    fetch_value,
)
from claude_mem.system.failpoints import failpoint

MAX_JOB_ATTEMPTS = 3
TURN_JOBS = ("compress", DIGEST_BACKFILLED_JOB, REFINE_JOB, REPROCESS_JOB, ANCHOR_JOB)  # whose subject is a turn
# No active session waits for these.
BACKGROUND_JOB_KINDS = (REFINE_JOB, IMPORT_JOB, BACKFILL_JOB, DIGEST_BACKFILLED_JOB, REPROCESS_JOB, ANCHOR_JOB)


def enqueue_job(conn: Connection, kind: str, subject: str, *, now: int, due: int | None = None) -> None:
    """Enqueue a job unless the same one is queued already."""
    conn.execute(
        "insert or ignore into jobs (kind, subject, due_at, created_at) values (?, ?, ?, ?)",
        (kind, subject, now if due is None else due, now),
    )
    failpoint("jobs.asked")


def enqueue_render(conn: Connection, project_id: int, *, now: int) -> None:
    """Enqueue rendering a project's start context, unless a render job that has not started yet will do it.

    A job that was claimed before may have read the rows already, so it does not count: only unclaimed jobs do.
    """
    is_waiting = fetch_value(
        conn,
        """
        select exists (select 1 from jobs
                        where kind = 'render' and subject >= :project || '.' and subject < :project || '/'
                          and attempts = 0 and not dead)
        """,
        {"project": str(project_id)},
    )
    if not is_waiting:
        enqueue_job(conn, "render", f"{project_id}.changed.{ids.new_event_id()}", now=now)


def enqueue_job_again(conn: Connection, job: Job, *, now: int) -> int:
    """Enqueue the job that is being finished again, behind all waiting jobs, and return the new job's id."""
    enqueue_job(conn, job.kind, job.subject, now=now)
    return int(fetch_value(conn, "select id from jobs where kind = ? and subject = ?", (job.kind, job.subject)))


def is_job_waiting(conn: Connection, job_id: int, subject: str) -> bool:
    """Return whether this job is still queued and not a dead letter."""
    return bool(fetch_value(conn, "select 1 from jobs where id = ? and subject = ? and not dead", (job_id, subject)))


def claim_job(
    conn: Connection, kinds: Sequence[str], *, now: int, lease: int, order: ClaimOrder = ClaimOrder.DUE
) -> Job | None:
    """Take the first due job of these kinds. If the worker dies, the job becomes due again when the lease expires."""
    row = fetch_one(
        conn,
        f"""
        update jobs set attempts = attempts + 1, due_at = :now + :lease
         where id = (select id from jobs
                      where due_at <= :now and not dead and kind in (select value from json_each(:kinds))
                      order by {order.value} limit 1)
        returning id, kind, subject, attempts
        """,
        {"now": now, "lease": lease, "kinds": msgspec.json.encode(kinds).decode()},
    )
    return Job(**row) if row else None


def get_next_due_time(conn: Connection, kinds: Sequence[str]) -> int | None:
    """Return when the next job of these kinds becomes due, or None."""
    due_at = fetch_value(
        conn,
        "select min(due_at) from jobs where not dead and kind in (select value from json_each(?))",
        (msgspec.json.encode(kinds).decode(),),
    )
    return None if due_at is None else int(due_at)


def finish_job(conn: Connection, job: Job) -> None:
    """Remove a finished job.

    Raise `LeaseLost` if another worker has claimed it since, so that the caller's transaction is rolled back.
    """
    conn.execute("delete from jobs where id = ? and attempts = ?", (job.id, job.attempts))
    failpoint("jobs.finished")
    if not conn.changes():
        raise LeaseLost(f"{job.kind} {job.subject} was claimed again")


def release_failed_job(conn: Connection, job: Job, *, error: str, now: int) -> bool:
    """Schedule another attempt, or make the job a dead letter after `MAX_JOB_ATTEMPTS`. Return whether it is dead now."""
    dead = job.attempts >= MAX_JOB_ATTEMPTS
    delay_ms = 1000 * 4**job.attempts
    conn.execute(
        "update jobs set due_at = ?, dead = ?, error = ? where id = ? and attempts = ?",
        (now + delay_ms, int(dead), error[:2000], job.id, job.attempts),
    )
    return dead


def unclaim_job(conn: Connection, job: Job, *, now: int) -> None:
    """Undo the claim, so that the attempt does not count."""
    conn.execute(
        "update jobs set due_at = ?, attempts = attempts - 1 where id = ? and attempts = ?", (now, job.id, job.attempts)
    )


def release_all_leases(conn: Connection, *, now: int) -> None:
    """Release all leases at startup: only one process opens the database, so no other worker can hold one.

    A job that has used up its attempts becomes a dead letter: the worker died during each of them, and the job may be
    the cause.
    """
    conn.execute(
        "update jobs set dead = 1, error = coalesce(error, 'the worker died while running this job')"
        " where attempts >= ? and not dead and kind != ?",
        (MAX_JOB_ATTEMPTS, REFINE_JOB),
    )
    conn.execute("update jobs set due_at = min(due_at, ?) where not dead", (now,))


def shift_job_due_times(conn: Connection, *, by: int) -> None:
    """Shift due times after the system clock moved backwards.

    A job due in one minute stays due in one minute.
    """
    conn.execute("update jobs set due_at = due_at - ? where not dead", (by,))


def retry_dead_jobs(conn: Connection, *, now: int) -> int:
    """Retry all dead letters, after their cause was fixed. Return how many."""
    conn.execute("update jobs set dead = 0, attempts = 0, due_at = ?, error = null where dead", (now,))
    return conn.changes()


def count_urgent_jobs(conn: Connection) -> int:
    """Count the jobs that will run soon, without those that failed before and `BACKGROUND_JOB_KINDS`."""
    query = f"select count(*) from jobs where not dead and error is null and kind not in {BACKGROUND_JOB_KINDS}"
    return int(fetch_value(conn, query))


def count_jobs(conn: Connection, kind: str) -> int:
    """Count the jobs of a kind, without dead letters."""
    return int(fetch_value(conn, "select count(*) from jobs where not dead and kind = ?", (kind,)))


_JOB_COLUMNS = "id, kind, subject, due_at, attempts, dead, error, created_at"


def list_jobs(conn: Connection, *, limit: int = 200) -> list[QueuedJob]:
    """List the jobs: dead letters first, then by due time."""
    return fetch_records(
        conn, QueuedJob, f"select {_JOB_COLUMNS} from jobs order by dead desc, due_at limit ?", (limit,)
    )


def find_job(conn: Connection, job_id: int) -> QueuedJob | None:
    """Return a job, or None."""
    return fetch_record(conn, QueuedJob, f"select {_JOB_COLUMNS} from jobs where id = ?", (job_id,))
