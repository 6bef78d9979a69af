"""Turns that an earlier version of the writer digested: which can be digested again, and which stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from claude_mem.records import WRITER, Draft
from claude_mem.store import jobs
from claude_mem.store.database import Connection, Row, one, rows, value
from claude_mem.store.observations import NOBODYS, dump
from claude_mem.text import clip_closing

FEW = 50  # turns asked for at a time when nobody has asked
MOST_NAMED = 100

PERSON, MODEL = "person", "model"

# Only what was made before is made again: of a turn without a summary someone wanted no memory, or has forgotten it.
_BEHIND = f"""t.writer < {WRITER} and t.digested_at is not null and not t.private
    and exists (select 1 from session_summaries y where y.turn_id = t.id)"""
_OUTDATED = f"{_BEHIND} and t.writer > -{WRITER}"  # without those of which the present writer found nothing left
_HAS_EVENTS = "not t.events_gone and exists (select 1 from events e where e.turn_id = t.id)"
_DEAD_JOB_TURNS = "select cast(subject as integer) from jobs where kind = :kind and dead"
_SUBJECTS = (
    "select t.id || '.' || coalesce((select max(seq) from events where turn_id = t.id), 0) as subject from turns t"
)
# Whatever a person or, at their word, an agent did to an observation is in its history; what was imported has none.
_OWNED_BY_USER = """(
    exists (select 1 from session_summaries y where y.turn_id = t.id and y.verdict != '')
    or exists (select 1 from observations o where o.turn_id = t.id
                  and (o.forgotten or o.pinned or o.verdict != '' or o.trust = 'user'
                       or exists (select 1 from history h where h.observation_id = o.id))))"""
_WRITTEN_BY_MODEL = """(
    exists (select 1 from observations o where o.turn_id = t.id and o.provider not in ('local', 'user'))
    or exists (select 1 from session_summaries y where y.turn_id = t.id and y.provider != 'local'))"""
# The file that may still tell of a turn. Not of one in which something came from outside: a subagent may have read it,
# and what subagents did is in other files.
_TRANSCRIPT = """coalesce(nullif(s.transcript_path, ''),
    (select f.path from backfill_files f where f.session_id = s.id order by f.id desc limit 1), '')"""
_MAY_READ_TRANSCRIPT = """(t.prompt_id is not null and exists (
    select 1 from documents d where d.kind = 'turn' and d.row_id = t.id and d.trust = ''))"""


@dataclass(frozen=True, slots=True)
class Source:
    """A session's transcript."""

    path: str
    host: str
    content_session_id: str
    cwd: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which turns: of these projects (None: of all), and that ended after this time."""

    project_ids: tuple[int, ...] | None = None
    since: int | None = None


ALL = Wanted()


def _filter_sql(turn_filter: Wanted, condition: str = _OUTDATED) -> tuple[str, Row]:
    parts = [condition]
    if turn_filter.project_ids is not None:
        in_projects = "select id from sdk_sessions where project_id in (select value from json_each(:projects))"
        parts.append(f"t.session_id in ({in_projects})")
    if turn_filter.since is not None:
        parts.append("t.last_at >= :since")
    return " and ".join(parts), {"projects": dump(turn_filter.project_ids or ()), "since": turn_filter.since}


# --- which and how many ----------------------------------------------------------------------------------------------


def counts(conn: Connection, turn_filter: Wanted = ALL) -> Row:
    """How many turns can be rewritten from their events, and how many stay as they are: because they are a person's or
    a model's, or for lack of events."""
    where, params = _filter_sql(turn_filter, _BEHIND)
    turn_counts = one(
        conn,
        f"""
        with those as (
            select {_HAS_EVENTS} as has_events, {_OWNED_BY_USER} as persons, {_WRITTEN_BY_MODEL} as models
              from turns t where {where})
        select count(*) filter (where has_events and not persons and not models) as rewritable,
               count(*) filter (where not has_events and not persons and not models) as events_gone,
               count(*) filter (where persons) as a_persons,
               count(*) filter (where models and not persons) as a_models
          from those
        """,
        params,
    )
    assert turn_counts is not None
    return turn_counts


def sources(conn: Connection, turn_filter: Wanted = ALL) -> list[tuple[Source, int]]:
    """Transcripts that may tell of turns whose events are gone, each with how many turns that are."""
    where, params = _filter_sql(turn_filter)
    session_rows = rows(
        conn,
        f"""
        select {_TRANSCRIPT} as path, s.host, s.content_session_id, s.cwd, count(*) as turns
          from turns t join sdk_sessions s on s.id = t.session_id
         where {where} and not ({_HAS_EVENTS}) and {_MAY_READ_TRANSCRIPT}
           and not {_OWNED_BY_USER} and not {_WRITTEN_BY_MODEL}
         group by s.id having path != ''
        """,
        params,
    )
    return [
        (Source(row["path"], row["host"], row["content_session_id"], row["cwd"]), row["turns"]) for row in session_rows
    ]


def source(conn: Connection, turn_id: int) -> tuple[Source, str] | None:
    """The transcript that may tell of a turn whose events are gone, and the turn's prompt id in it."""
    row = one(
        conn,
        f"""
        select {_TRANSCRIPT} as path, s.host, s.content_session_id, s.cwd, t.prompt_id
          from turns t join sdk_sessions s on s.id = t.session_id where t.id = ? and {_MAY_READ_TRANSCRIPT}
        """,
        (turn_id,),
    )
    if row is None or not row["path"]:
        return None
    return Source(row["path"], row["host"], row["content_session_id"], row["cwd"]), row["prompt_id"]


def is_any(conn: Connection) -> bool:
    """Whether there is a turn that the present writer has not looked at."""
    return bool(value(conn, f"select 1 from turns t where {_OUTDATED} limit 1"))


def left(conn: Connection, turn_filter: Wanted = ALL) -> int:
    """How many turns are still to be looked at; not those that were given up."""
    where, params = _filter_sql(turn_filter)
    sql = f"select count(*) from turns t where {where} and t.id not in ({_DEAD_JOB_TURNS})"
    return int(value(conn, sql, {**params, "kind": jobs.REWRITE}))


def progress(conn: Connection, turn_filter: Wanted = ALL) -> Row:
    """How many turns are still to be looked at, and which were given up and why."""
    where, params = _filter_sql(turn_filter)
    failed = rows(
        conn,
        f"""
        select t.id as turn, j.error from jobs j join turns t on t.id = cast(j.subject as integer)
         where j.kind = :kind and j.dead and {where} order by t.id limit {MOST_NAMED}
        """,
        {**params, "kind": jobs.REWRITE},
    )
    return {"left": left(conn, turn_filter), "failed": failed}


# --- asking ----------------------------------------------------------------------------------------------------------


def ask(conn: Connection, turn_filter: Wanted, *, now: int) -> int:
    """Have all of these digested again, those that failed before too; return how many jobs that makes."""
    where, params = _filter_sql(turn_filter)
    conn.execute(
        "update jobs set dead = 0, attempts = 0, due_at = :now, error = null where dead and kind = :kind",
        {"now": now, "kind": jobs.REWRITE},
    )
    subject_rows = rows(conn, f"{_SUBJECTS} where {where}", params)
    for row in subject_rows:
        jobs.ask(conn, jobs.REWRITE, row["subject"], now=now)
    return len(subject_rows)


def ask_few(conn: Connection, *, now: int) -> int:
    """Have the next few digested again, unless some are under way; return how many. Those given up are left alone."""
    if jobs.count(conn, jobs.REWRITE):
        return 0
    subject_rows = rows(
        conn,
        f"{_SUBJECTS} where {_OUTDATED} and t.id not in ({_DEAD_JOB_TURNS}) order by t.writer, t.id limit :few",
        {"kind": jobs.REWRITE, "few": FEW},
    )
    for row in subject_rows:
        jobs.ask(conn, jobs.REWRITE, row["subject"], now=now)
    return len(subject_rows)


# --- one turn --------------------------------------------------------------------------------------------------------


def owner(conn: Connection, turn_id: int) -> str:
    """Whose words are kept of a turn: a person's, a model's, or (empty) the local writer's."""
    owners = one(
        conn,
        f"select {_OWNED_BY_USER} as persons, {_WRITTEN_BY_MODEL} as models from turns t where t.id = ?",
        (turn_id,),
    )
    if owners is None or not (owners["persons"] or owners["models"]):
        return ""
    return PERSON if owners["persons"] else MODEL


def settle(conn: Connection, turn_id: int, *, has_source: bool = True) -> None:
    """The turn has what the present writer can give it, or (not `found`) there is nothing left to write from. When it
    was digested stays: its events are kept no longer."""
    conn.execute("update turns set writer = ? where id = ?", (WRITER if has_source else -WRITER, turn_id))


def is_bare(conn: Connection, turn_id: int) -> bool:
    """Whether a turn that may be kept has no events."""
    no_events = "not exists (select 1 from events where turn_id = t.id)"
    return bool(value(conn, f"select 1 from turns t where t.id = ? and not t.private and {no_events}", (turn_id,)))


def add_ending(conn: Connection, turn_id: int, *, closing: str, closing_trust: str, outcome: str) -> None:
    """Add the closing message to a summary that has none, and leave its words as they are."""
    conn.execute(
        "update session_summaries set closing = ?, closing_trust = ?, outcome = ?"
        " where turn_id = ? and closing = '' and verdict = ''",
        (clip_closing(closing), closing_trust, outcome, turn_id),
    )


def take_over(conn: Connection, turn_id: int, drafts: Sequence[Draft]) -> None:
    """Give observations that a new digest makes the rows of those that it no longer makes, so that their IDs, which
    were told and linked, still lead somewhere: the row of the same commit, else the first."""
    draft_keys = {draft.key for draft in drafts}
    existing_keys = {row["key"] for row in rows(conn, "select key from observations where turn_id = ?", (turn_id,))}
    query = f"select id, key, commit_id, trust from observations where turn_id = ? and {NOBODYS} and not pinned"
    free = [row for row in rows(conn, f"{query} order by id", (turn_id,)) if row["key"] not in draft_keys]
    for draft in drafts:
        if free and draft.key not in existing_keys:
            best = min(free, key=lambda row: (_differs(draft.commit, row["commit_id"]), row["trust"] != draft.trust))
            free.remove(best)
            conn.execute("update observations set key = ? where id = ?", (draft.key, best["id"]))


def _differs(commit: str, other: str | None) -> bool:
    return not commit or commit != other
