"""Sessions of the agents. One agent session (`host`, `content_session_id`) is always one row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from claude_mem.domain.errors import NotFound
from claude_mem.domain.records import Session, Status
from claude_mem.domain.session_reports import SessionDetails
from claude_mem.privacy.secrets import redact
from claude_mem.storage.records import MemorySession
from claude_mem.storage.sqlite.engine import Connection, fetch_all, fetch_one, fetch_record, fetch_records
from claude_mem.storage.sqlite.memory.observations import encode_json

MAX_BRANCHES, MAX_BRANCH_CHARS = 20, 200  # of a session
_COLUMNS = (
    "id, host, content_session_id, project_id, status, prompt_counter, cwd, transcript_path, transcript_offset,"
    " host_pid, newest_injected_id as informed_upto, last_event_at"
)
_LIST_QUERY = """
    select s.id, s.host, s.content_session_id, s.memory_session_id, s.project_id, p.name as project, s.first_prompt,
           s.prompt_counter, s.title, s.subtitle, s.status, s.started_at, s.last_event_at, s.ended_at,
           (select count(*) from observations o where o.session_id = s.id and not o.forgotten) as observations,
           (select coalesce(sum(l.input_tokens + l.output_tokens), 0) from ledger l where l.session_id = s.id)
               as model_tokens,
           (select coalesce(sum(l.cost), 0) from ledger l where l.session_id = s.id) as cost
      from sdk_sessions s join projects p on p.id = s.project_id
"""


# --- opening and reading ---------------------------------------------------------------------------------------------


def find_session(conn: Connection, host: str, content_session_id: str) -> Session | None:
    """Return the session with the agent's own id, or None."""
    row = fetch_one(
        conn,
        f"select {_COLUMNS} from sdk_sessions where host = ? and content_session_id = ?",
        (host, content_session_id),
    )
    return Session(**row) if row else None


def get_session(conn: Connection, session_id: int) -> Session:
    """Return the session by row id; raise `NotFound` if there is none."""
    row = fetch_one(conn, f"select {_COLUMNS} from sdk_sessions where id = ?", (session_id,))
    if row is None:
        raise NotFound(f"there is no session {session_id}", hint="create one with POST /api/sessions/init")
    return Session(**row)


def resolve_session_id(conn: Connection, name: str) -> int:
    """Return the row id of a session given its row id or the id its agent gave it."""
    row = fetch_one(
        conn,
        "select id from sdk_sessions where id = ? or content_session_id = ?"
        " order by content_session_id = ? desc, id desc",
        (int(name) if name.isdigit() and name.isascii() and len(name) < 19 else -1, name, name),
    )
    if row is None:
        raise NotFound(f"there is no session {name!r}", hint="run `claude-mem list sessions` to see the existing ones")
    return int(row["id"])


def open_session(
    conn: Connection, host: str, content_session_id: str, *, project_id: int, at: int, cwd: str = ""
) -> Session:
    """Return the session, creating it at its first event."""
    conn.execute(
        """
        insert or ignore into sdk_sessions (host, content_session_id, project_id, cwd, started_at, last_event_at)
        values (?, ?, ?, ?, ?, ?)
        """,
        (host, content_session_id, project_id, cwd, at, at),
    )
    session = find_session(conn, host, content_session_id)
    assert session is not None
    return session


def list_unfinished_sessions(conn: Connection) -> list[Session]:
    """Return sessions whose agent may still be running, or exited without reporting an end."""
    return [
        Session(**row)
        for row in fetch_all(
            conn,
            f"select {_COLUMNS} from sdk_sessions where status in ('initialized', 'active') order by id",
        )
    ]


def list_sessions_with_counts(
    conn: Connection, *, limit: int, offset: int, project: str = "", project_id: int = 0, host: str = ""
) -> list[SessionDetails]:
    """List sessions, the most recently active first.

    The page is selected first; counts are computed only for its rows.
    """
    filters = {
        "project_id in (select id from projects where name = :project)": project,
        "project_id = :project_id": project_id,
        "host = :host": host,
    }
    condition = " and ".join(["not forgotten", *(rule for rule, is_set in filters.items() if is_set)])
    return fetch_records(
        conn,
        SessionDetails,
        f"""
        {_LIST_QUERY} where s.id in (select id from sdk_sessions where {condition}
                                  order by last_event_at desc, id desc limit :limit offset :offset)
         order by s.last_event_at desc, s.id desc
        """,
        {"project": project, "project_id": project_id, "host": host, "limit": limit, "offset": offset},
    )


def get_session_details(conn: Connection, session_id: int) -> SessionDetails:
    """Return a session with its counts; raise `NotFound` if there is none."""
    session = fetch_record(conn, SessionDetails, f"{_LIST_QUERY} where s.id = ?", (session_id,))
    if session is None:
        raise NotFound(
            f"there is no session {session_id}", hint="run `claude-mem list sessions` to see the existing ones"
        )
    return session


# --- recording what happens ------------------------------------------------------------------------------------------


def touch_session(conn: Connection, session_id: int, *, at: int, transcript_path: str, host_pid: int | None) -> None:
    """Record activity.

    An interrupted session becomes active again; a completed or failed one stays so until the next prompt.
    """
    conn.execute(
        """
        update sdk_sessions
           set last_event_at = max(last_event_at, ?1),
               transcript_path = iif(?2 = '', transcript_path, ?2),
               host_pid = coalesce(?3, host_pid),
               status = iif(status = 'interrupted', 'active', status), forgotten = 0
         where id = ?4
        """,
        (at, transcript_path, host_pid, session_id),
    )


def advance_last_event(conn: Connection, session_id: int, at: int, *, opened_by_us: bool) -> None:
    """Advance the time of the last event to what the transcript shows.

    A session that may still be running is left unchanged, because its transcript may lag behind.
    """
    running = ("active",) if opened_by_us else ("active", "initialized")
    placeholders = ", ".join("?" * len(running))
    conn.execute(
        "update sdk_sessions set last_event_at = max(last_event_at, ?)"
        f" where id = ? and status not in ({placeholders})",
        (at, session_id, *running),
    )


def set_session_status(conn: Connection, session_id: int, status: Status, *, at: int | None = None) -> None:
    """Set the session's status. `ended_at` is never before `started_at`, whatever the clock says."""
    conn.execute(
        "update sdk_sessions set status = ?1, ended_at = iif(?2 is null, null, max(?2, started_at)) where id = ?3",
        (str(status), at, session_id),
    )


def interrupt_idle_sessions(conn: Connection, *, before: int) -> int:
    """Mark running sessions without an event since `before` as interrupted. Return their number."""
    conn.execute(
        "update sdk_sessions set status = 'interrupted'"
        " where status in ('initialized', 'active') and last_event_at < ?",
        (before,),
    )
    return conn.changes()


def next_prompt_number(conn: Connection, session_id: int) -> int:
    """Increment the prompt counter and return the new prompt's number."""
    row = fetch_one(
        conn,
        "update sdk_sessions set prompt_counter = prompt_counter + 1 where id = ? returning prompt_counter",
        (session_id,),
    )
    assert row is not None
    return int(row["prompt_counter"])


def set_first_prompt(conn: Connection, session_id: int, text: str, *, title: str) -> None:
    """Store the first prompt and the title made from it. Later prompts change neither."""
    conn.execute(
        "update sdk_sessions set first_prompt = ?, title = ? where id = ? and first_prompt is null",
        (text, title, session_id),
    )


def set_session_subtitle(conn: Connection, session_id: int, subtitle: str, *, at: int) -> None:
    """Set the subtitle to what the newest turn did, whatever the order in which turns are digested."""
    conn.execute(
        """
        update sdk_sessions set subtitle = ?1
         where id = ?2 and ?1 != ''
           and ?3 >= (select max(created_at) from session_summaries where session_id = ?2)
        """,
        (subtitle, session_id, at),
    )


def set_session_title(conn: Connection, session_id: int, title: str) -> None:
    """Replace the session's title."""
    conn.execute("update sdk_sessions set title = ? where id = ?", (title, session_id))


def set_transcript_offset(conn: Connection, session_id: int, offset: int) -> None:
    """Record up to which byte the transcript was read."""
    conn.execute("update sdk_sessions set transcript_offset = ? where id = ?", (offset, session_id))


def record_informed_up_to(conn: Connection, session_id: int, observation_id: int) -> None:
    """Record that the session was given everything up to this observation."""
    conn.execute(
        "update sdk_sessions set newest_injected_id = max(newest_injected_id, ?) where id = ?",
        (observation_id, session_id),
    )


# --- memory sessions -------------------------------------------------------------------------------------------------


def record_memory_session(
    conn: Connection, session_id: int, memory_session_id: str, *, provider: str, runtime: str, now: int
) -> None:
    """Record the id of the provider's session.

    It belongs to this agent session permanently; no other one can claim it.
    """
    conn.execute(
        "insert or ignore into memory_sessions (id, session_id, provider, runtime, created_at) values (?, ?, ?, ?, ?)",
        (memory_session_id, session_id, provider, runtime, now),
    )
    conn.execute(
        """
        update sdk_sessions set memory_session_id = ?1
         where id = ?2 and exists (select 1 from memory_sessions where id = ?1 and session_id = ?2)
        """,
        (memory_session_id, session_id),
    )


def find_memory_session(conn: Connection, session_id: int) -> MemorySession | None:
    """Return the current memory session, or None."""
    row = fetch_one(
        conn,
        """
        select m.id, m.session_id, m.provider, m.runtime, m.created_at
          from sdk_sessions s join memory_sessions m on m.id = s.memory_session_id
         where s.id = ?
        """,
        (session_id,),
    )
    return MemorySession(**row) if row else None


def list_resumable_memory_sessions(conn: Connection, runtime: str) -> list[str]:
    """Return the ids of memory sessions that can be continued: same runtime, and the agent session has not ended."""
    session_rows = fetch_all(
        conn,
        """
        select m.id from memory_sessions m join sdk_sessions s on s.memory_session_id = m.id
         where m.runtime = ? and s.status in ('initialized', 'active')
        """,
        (runtime,),
    )
    return [row["id"] for row in session_rows]


def get_last_activity(conn: Connection, project_id: int) -> int:
    """Return the time of the last event in any session of a project; 0 if it has none."""
    row = fetch_one(conn, "select max(last_event_at) as at from sdk_sessions where project_id = ?", (project_id,))
    return int(row["at"] or 0) if row else 0


# --- branches --------------------------------------------------------------------------------------------------------


def record_session_branches(conn: Connection, session_id: int, branches: Iterable[str]) -> None:
    """Store that a session worked on these branches, in addition to those that are known. A name that contains a secret
    is left out."""
    row = fetch_one(conn, "select branches from sdk_sessions where id = ?", (session_id,))
    known_branches = msgspec.json.decode(row["branches"], type=list[str]) if row else []
    unknown = [
        branch for branch in dict.fromkeys(branches) if branch not in known_branches and len(branch) <= MAX_BRANCH_CHARS
    ]
    if row and (new := [branch for branch in unknown if redact(branch) == branch]):
        stored = encode_json([*known_branches, *new][-MAX_BRANCHES:])
        conn.execute("update sdk_sessions set branches = ? where id = ?", (stored, session_id))


def record_branch_of_recent_work(conn: Connection, project_id: int, root: str, branch: str, *, since: int) -> None:
    """Store the branch of a work tree for the sessions that were started in it and have worked since a time."""
    rows = fetch_all(
        conn,
        """
        select id from sdk_sessions
         where project_id = :project and last_event_at > :since and not forgotten
           and (cwd = :root or substr(cwd, 1, length(:root) + 1) = :root || '/')
        """,
        {"project": project_id, "root": root, "since": since},
    )
    for row in rows:
        record_session_branches(conn, row["id"], [branch])


def list_session_branches(conn: Connection, session_ids: Sequence[int]) -> dict[int, list[str]]:
    """Return the branches on which these sessions worked, by session; sessions without any are left out."""
    rows = fetch_all(
        conn,
        "select id, branches from sdk_sessions where branches != '[]' and id in (select value from json_each(?))",
        (encode_json(list(session_ids)),),
    )
    return {row["id"]: msgspec.json.decode(row["branches"], type=list[str]) for row in rows}
