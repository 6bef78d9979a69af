"""Back-fill: which transcripts were requested, how far each has been read, and the result.

A file that was read and has not changed since is not read again, unless there was a problem with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from claude_mem.domain.reports import BackfillFileProblem, BackfillProgress, BackfillRequested, BackfillRows
from claude_mem.storage.journal_records import BACKFILL_JOB, DIGEST_BACKFILLED_JOB, BackfillFile, TranscriptFile
from claude_mem.storage.sqlite.engine import Connection, Row, fetch_all, fetch_one, fetch_records, fetch_value
from claude_mem.storage.sqlite.journal import jobs

_ID_COLUMNS = {
    "sessions": "sdk_sessions.id",
    "turns": "turns.id",
    "events": "events.seq",
    "observations": "observations.id",
}
MAX_LISTED_PROBLEMS = 1_000


def enqueue_transcripts(conn: Connection, files: Iterable[TranscriptFile], *, now: int) -> BackfillRequested:
    """Enqueue each file for reading once. Return the id of the back-fill and the number of files that are unchanged."""
    backfill_id, unchanged_count = 0, 0
    conn.execute(  # the user asked again: retry digests that are dead letters
        "update jobs set dead = 0, attempts = 0, due_at = ?, error = null where dead and kind = ?",
        (now, DIGEST_BACKFILLED_JOB),
    )
    for file in files:
        file_row = fetch_one(conn, "select * from backfill_files where path = ?", (file.path,))
        state = ""  # if the file is new or has changed
        if file_row and (file_row["size"], file_row["changed_at"]) == (file.size, file.changed_at):
            state = file_row["state"]
        if file_row and state == "read" and not file_row["problem"]:
            unchanged_count += 1
            continue
        backfill_id = backfill_id or _get_or_create_current(conn, now=now)
        if file_row and state == "waiting":
            _continue_reading(conn, file_row, backfill_id, now=now)
        else:
            _start_reading(conn, file, backfill_id, now=now)
    return BackfillRequested(backfill=backfill_id or None, unchanged=unchanged_count)


def _get_or_create_current(conn: Connection, *, now: int) -> int:
    """Return the id of the running back-fill, or of a new one."""
    latest_id = fetch_value(conn, "select max(id) from backfills")
    if latest_id is not None and _is_busy(conn, latest_id):
        return int(latest_id)
    high_water_marks = [
        fetch_value(conn, f"select coalesce(max({column}), 0) from {column.partition('.')[0]}")
        for column in _ID_COLUMNS.values()
    ]
    insert = "insert into backfills (requested_at, sessions, turns, events, observations) values (?, ?, ?, ?, ?) returning id"
    return int(fetch_value(conn, insert, (now, *high_water_marks)))


def _is_busy(conn: Connection, backfill_id: int) -> bool:
    """Return whether the back-fill is still running. Files whose job is a dead letter do not count."""
    query = (
        "select 1 from backfill_files f join jobs j on j.kind = ? and j.subject = f.id || '.' || f.parts"
        " where f.backfill_id = ? and f.state = 'waiting' and not j.dead limit 1"
    )
    return (
        bool(fetch_value(conn, query, (BACKFILL_JOB, backfill_id))) or jobs.count_jobs(conn, DIGEST_BACKFILLED_JOB) > 0
    )


def _start_reading(conn: Connection, file: TranscriptFile, backfill_id: int, *, now: int) -> None:
    file_row = fetch_one(
        conn,
        """
        insert into backfill_files (backfill_id, path, size, changed_at, state) values (?, ?, ?, ?, 'waiting')
        on conflict (path) do update set backfill_id = excluded.backfill_id, size = excluded.size,
               changed_at = excluded.changed_at, opened_session = iif(state = 'waiting', opened_session, 0),
               state = 'waiting',
               host = '', session_id = null, problem = '', bad_lines = 0, agent = '', cursor = '', offset = 0,
               parts = parts + 1
        returning id, parts
        """,
        (backfill_id, file.path, file.size, file.changed_at),
    )
    assert file_row is not None
    conn.execute("delete from jobs where kind = ? and subject like ?", (BACKFILL_JOB, f"{file_row['id']}.%"))
    jobs.enqueue_job(conn, BACKFILL_JOB, _job_subject(file_row["id"], file_row["parts"]), now=now)


def _job_subject(file_id: int, parts: int) -> str:
    """Return the subject of a part's job.

    Each part is a job of its own, so that a part that was read is not read again.
    """
    return f"{file_id}.{parts}"


def _continue_reading(conn: Connection, file_row: Row, backfill_id: int, *, now: int) -> None:
    """Move a waiting file to this back-fill. If its job is a dead letter, asking again means another attempt."""
    subject = _job_subject(file_row["id"], file_row["parts"])
    conn.execute("update backfill_files set backfill_id = ? where id = ?", (backfill_id, file_row["id"]))
    conn.execute("delete from jobs where kind = ? and subject = ? and dead", (BACKFILL_JOB, subject))
    jobs.enqueue_job(conn, BACKFILL_JOB, subject, now=now)


def find_backfill_file(conn: Connection, subject: str) -> BackfillFile | None:
    """Return the file of a job, or None if that part was read already."""
    file_id, _, parts = subject.partition(".")
    row = fetch_one(
        conn,
        "select id, path, host, size, session_id, opened_session as opened, parts, agent, cursor as mark from backfill_files"
        " where id = ? and parts = ? and state = 'waiting'",
        (int(file_id), int(parts)),
    )
    return BackfillFile(**{**row, "opened": bool(row["opened"])}) if row else None


def set_backfill_session(conn: Connection, file: BackfillFile, *, host: str, session_id: int, opened: bool) -> None:
    """Record the agent and session of a file, and whether the back-fill created that session."""
    conn.execute(
        "update backfill_files set host = ?, session_id = ?, opened_session = ? where id = ?",
        (host, session_id, int(opened), file.id),
    )


def enqueue_next_part(
    conn: Connection, file: BackfillFile, *, host: str, agent: str, mark: str, offset: int, bad_lines: int, now: int
) -> None:
    """Record that a part was read, and enqueue the next one."""
    conn.execute(
        """
        update backfill_files
           set host = ?, agent = ?, cursor = ?, offset = ?, bad_lines = bad_lines + ?, parts = parts + 1
         where id = ?
        """,
        (host, agent, mark, offset, bad_lines, file.id),
    )
    jobs.enqueue_job(conn, BACKFILL_JOB, _job_subject(file.id, file.parts + 1), now=now)


def finish_backfill_file(
    conn: Connection, file: BackfillFile, *, host: str, state: str, problem: str, bad_lines: int = 0
) -> None:
    """Record that the file was read or skipped."""
    conn.execute(
        "update backfill_files set host = ?, state = ?, problem = iif(problem = '', ?, problem),"
        " bad_lines = bad_lines + ?, cursor = '', agent = '', offset = size where id = ?",
        (host, state, problem, bad_lines, file.id),
    )


def record_backfill_problem(conn: Connection, file: BackfillFile, problem: str) -> None:
    """Record a problem with a part; only the first problem of a file is kept."""
    conn.execute("update backfill_files set problem = ? where id = ? and problem = ''", (problem, file.id))


def count_bad_lines(conn: Connection, file: BackfillFile) -> int:
    """Return how many lines of the file could not be read so far."""
    return int(fetch_value(conn, "select bad_lines from backfill_files where id = ?", (file.id,)))


def cancel_unread_transcripts(conn: Connection) -> int:
    """Cancel: remove files that have not been started; files that have been started are finished.

    Return how many were removed.
    """
    conn.execute("delete from backfill_files where state = 'waiting' and session_id is null and offset = 0")
    dropped = conn.changes()
    conn.execute(
        "delete from jobs where kind = ?1 and not exists"
        " (select 1 from backfill_files f where jobs.subject = f.id || '.' || f.parts and f.state = 'waiting')",
        (BACKFILL_JOB,),
    )
    return dropped


@dataclass(frozen=True, slots=True)
class _DeadFileJob:
    """The job of a file that was given up."""

    backfill_id: int
    path: str
    error: str


# --- progress --------------------------------------------------------------------------------------------------------


def get_backfill_progress(conn: Connection) -> BackfillProgress:
    """Return the state of the latest back-fill: files and bytes, new rows, remaining work and problems."""
    run = fetch_one(conn, "select * from backfills order by id desc limit 1")
    if run is None:
        run = {"id": 0, "requested_at": None, **dict.fromkeys(_ID_COLUMNS, 0)}
    files = fetch_one(
        conn,
        """
        select count(*) as files, count(*) filter (where state = 'read') as read,
               count(*) filter (where state = 'skipped') as skipped, coalesce(sum(size), 0) as bytes,
               coalesce(sum(iif(state = 'waiting', min(offset, size), size)), 0) as bytes_done
          from backfill_files where backfill_id = ?
        """,
        (run["id"],),
    )
    assert files is not None
    dead = _dead_file_jobs(conn)
    waiting = files["files"] - files["read"] - files["skipped"] - sum(job.backfill_id == run["id"] for job in dead)
    digesting = jobs.count_jobs(conn, DIGEST_BACKFILLED_JOB)
    return BackfillProgress(
        backfill=run["id"] or None,
        asked_at=run["requested_at"],
        **files,
        waiting=waiting,
        digesting=digesting,
        busy=waiting > 0 or digesting > 0,
        new=_count_new(conn, run),
        problems=[
            *_problems(conn, run["id"]),
            *(BackfillFileProblem(path=job.path, problem="failed", error=job.error) for job in dead),
        ],
    )


def _count_new(conn: Connection, run: Row) -> BackfillRows:
    """Count what the back-fill's sessions have that did not exist when it was requested."""
    in_sessions = "in (select session_id from backfill_files where backfill_id = :id)"
    tables = {
        "sessions": f"sdk_sessions where id > :sessions and id {in_sessions}",
        "turns": f"turns where id > :turns and session_id {in_sessions}",
        "events": f"events where seq > :events and source = 'transcript' and session_id {in_sessions}",
        "observations": f"observations where id > :observations and not forgotten and session_id {in_sessions}",
    }
    counts = {name: fetch_value(conn, f"select count(*) from {where}", run) for name, where in tables.items()}
    return BackfillRows(**counts)


def _problems(conn: Connection, backfill_id: int) -> list[BackfillFileProblem]:
    return fetch_records(
        conn,
        BackfillFileProblem,
        """
        select path, state, problem, bad_lines from backfill_files
         where backfill_id = ? and state != 'waiting' and (problem != '' or bad_lines > 0)
         order by problem, path limit ?
        """,
        (backfill_id, MAX_LISTED_PROBLEMS),
    )


def _dead_file_jobs(conn: Connection) -> list[_DeadFileJob]:
    return fetch_records(
        conn,
        _DeadFileJob,
        """
        select f.backfill_id, f.path, j.error from jobs j join backfill_files f on j.subject = f.id || '.' || f.parts
         where j.kind = ? and j.dead order by f.path
        """,
        (BACKFILL_JOB,),
    )


def list_unchanged_transcripts(conn: Connection, files: Iterable[TranscriptFile]) -> list[str]:
    """Return the paths of files that would not be read again."""
    paths = []
    for file in files:
        same = "path = ? and size = ? and changed_at = ? and state = 'read' and problem = ''"
        if fetch_value(conn, f"select 1 from backfill_files where {same}", (file.path, file.size, file.changed_at)):
            paths.append(file.path)
    return paths


def list_unrefined_turns(conn: Connection, paths: Sequence[str]) -> list[tuple[int, int]]:
    """Return the turns of these files' sessions that no model has refined yet, each with its newest `seq`."""
    turn_rows = fetch_all(
        conn,
        """
        select t.id, max(e.seq) as seq
          from turns t join events e on e.turn_id = t.id
         where t.session_id in (select session_id from backfill_files
                                 where path in (select value from json_each(?)))
           and t.digested_at is not null and not t.private
           and not exists (select 1 from observations o where o.turn_id = t.id and o.provider not in ('local', 'user'))
         group by t.id order by t.last_at
        """,
        (msgspec.json.encode(list(paths)).decode(),),
    )
    return [(row["id"], row["seq"]) for row in turn_rows]
