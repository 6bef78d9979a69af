"""Jobs as the user sees them: a description of each, and retrying or dropping dead letters.

Dropping a job must keep the event accounting correct: every event is stored, queued, set aside or filtered, and nothing
waits any longer for the turn of a dropped job.
"""

from __future__ import annotations

from collections.abc import Callable

from claude_mem.domain.errors import InvalidRequest, NotFound
from claude_mem.domain.reports import DescribedJob, JobStates, QueuedJob
from claude_mem.storage.journal_records import (
    ANCHOR_JOB,
    BACKFILL_JOB,
    DIGEST_BACKFILLED_JOB,
    IMPORT_JOB,
    REFINE_JOB,
    REPROCESS_JOB,
)
from claude_mem.storage.sqlite.engine import Connection, fetch_one, fetch_record, fetch_value
from claude_mem.storage.sqlite.journal import imports, jobs, reprocessing, turns

MAX_LISTED_JOBS = 200

_UNDIGESTED = "No memory is made of this turn. Its events stay stored and are counted as stored."
# The consequence of dropping a job, by kind. Jobs of other kinds cannot be dropped: a part of a transcript belongs
# between other parts and is retried with the whole file.
DROP_CONSEQUENCES = {
    "compress": _UNDIGESTED,
    DIGEST_BACKFILLED_JOB: _UNDIGESTED,
    "reconcile": "The transcript is not read. The session's turns are digested from what the hooks reported.",
    "render": "The cached brief stays as it is until something changes in that project.",
    REFINE_JOB: "The memory keeps its current wording.",
    REPROCESS_JOB: "The memory keeps its current wording.",
    ANCHOR_JOB: "It stays unknown whether the code of these memories still stands.",
    IMPORT_JOB: "The import ends here. What it has imported so far stays.",
}


def list_described_jobs(conn: Connection) -> list[DescribedJob]:
    """List the jobs: dead letters first, then by due time."""
    return [_describe(conn, job) for job in jobs.list_jobs(conn, limit=MAX_LISTED_JOBS)]


def count_jobs_by_state(conn: Connection) -> JobStates:
    """Return the number of waiting, retrying and dead jobs, and the age of the oldest."""
    states = fetch_record(
        conn,
        JobStates,
        """
        select count(*) filter (where not dead and error is null) as waiting,
               count(*) filter (where not dead and error is not null) as retrying,
               count(*) filter (where dead) as dead, min(created_at) filter (where not dead) as oldest_at
          from jobs
        """,
    )
    assert states is not None
    return states


def _describe(conn: Connection, job: QueuedJob) -> DescribedJob:
    about, session_id = _DESCRIBERS.get(job.kind, _describe_unknown)(conn, _subject_number(job.subject))
    return DescribedJob(
        id=job.id,
        kind=job.kind,
        due_at=job.due_at,
        attempts=job.attempts,
        error=job.error,
        created_at=job.created_at,
        dead=bool(job.dead),
        about=about,
        session_id=session_id,
        dropping=DROP_CONSEQUENCES.get(job.kind, "") if job.dead else "",
    )


def _subject_number(subject: str) -> int:
    head = subject.partition(".")[0]
    return int(head) if head.isdigit() and len(head) < 19 else 0


# --- descriptions ----------------------------------------------------------------------------------------------------

JobDescription = tuple[str, int | None]


def _describe_turn(doing: str) -> Callable[[Connection, int], JobDescription]:
    def about(conn: Connection, turn_id: int) -> JobDescription:
        row = fetch_one(conn, "select session_id, number from turns where id = ?", (turn_id,))
        if row is None:
            return f"{doing} a deleted turn", None
        return f"{doing} turn {row['number']} of {_session_name(conn, row['session_id'])}", row["session_id"]

    return about


def _session_name(conn: Connection, session_id: int) -> str:
    row = fetch_one(
        conn,
        "select s.title, p.name from sdk_sessions s join projects p on p.id = s.project_id where s.id = ?",
        (session_id,),
    )
    if row is None:
        return "a deleted session"
    return f"“{row['title']}” ({row['name']})" if row["title"] else f"session {session_id} ({row['name']})"


def _describe_session(conn: Connection, session_id: int) -> JobDescription:
    exists = bool(fetch_value(conn, "select 1 from sdk_sessions where id = ?", (session_id,)))
    return f"read the transcript of {_session_name(conn, session_id)}", session_id if exists else None


def _describe_project(conn: Connection, project_id: int) -> JobDescription:
    name = fetch_value(conn, "select name from projects where id = ?", (project_id,))
    return f"write the brief of {name or 'a deleted project'}", None


def _describe_import(conn: Connection, import_id: int) -> JobDescription:
    return (
        f"import {fetch_value(conn, 'select path from imports where id = ?', (import_id,)) or 'a deleted import'}",
        None,
    )


def _describe_file(conn: Connection, file_id: int) -> JobDescription:
    return (
        f"read {fetch_value(conn, 'select path from backfill_files where id = ?', (file_id,)) or 'a deleted file'}",
        None,
    )


def _describe_unknown(_: Connection, number: int) -> JobDescription:
    return f"unknown to this version ({number})", None


_DESCRIBERS: dict[str, Callable[[Connection, int], JobDescription]] = {
    "compress": _describe_turn("digest"),
    DIGEST_BACKFILLED_JOB: _describe_turn("digest"),
    REFINE_JOB: _describe_turn("refine"),
    REPROCESS_JOB: _describe_turn("reprocess"),
    ANCHOR_JOB: _describe_turn("find the code of"),
    "reconcile": _describe_session,
    "render": _describe_project,
    IMPORT_JOB: _describe_import,
    BACKFILL_JOB: _describe_file,
}


# --- retrying and dropping -------------------------------------------------------------------------------------------


def retry_dead_job(conn: Connection, job_id: int, *, now: int) -> None:
    """Retry a dead letter."""
    _get_dead(conn, job_id)
    conn.execute("update jobs set dead = 0, attempts = 0, due_at = ?, error = null where id = ?", (now, job_id))


def drop_dead_job(conn: Connection, job_id: int, *, now: int) -> str:
    """Drop a dead letter and return a sentence that explains the consequence."""
    job = _get_dead(conn, job_id)
    if job.kind not in DROP_CONSEQUENCES:
        raise InvalidRequest(f"a job of kind {job.kind} cannot be dropped", hint="retry it, or leave it")
    conn.execute("delete from jobs where id = ?", (job_id,))
    number = _subject_number(job.subject)
    if job.kind in ("compress", DIGEST_BACKFILLED_JOB):
        turns.mark_turn_skipped(conn, number, now=now)
    elif job.kind == REPROCESS_JOB:
        reprocessing.mark_turn_reprocessed(conn, number)
    elif job.kind == "reconcile":
        for turn_id, seq in turns.list_undigested_turns(conn, number):
            jobs.enqueue_job(conn, "compress", f"{turn_id}.{seq}", now=now)
    elif job.kind == IMPORT_JOB:
        imports.fail_import(conn, number, f"dropped: {job.error or 'it failed'}", now=now)
    return DROP_CONSEQUENCES[job.kind]


def _get_dead(conn: Connection, job_id: int) -> QueuedJob:
    job = jobs.find_job(conn, job_id)
    if job is None:
        raise NotFound(f"there is no job {job_id}", hint="it may have finished in the meantime")
    if not job.dead:
        raise InvalidRequest(f"job {job_id} is not a dead letter", hint="it runs automatically; there is nothing to do")
    return job
