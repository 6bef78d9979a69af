"""Reprocessing: turns that an earlier version of the writer digested, and which of them can be digested again."""

from __future__ import annotations

from collections.abc import Sequence

from claude_mem.domain.records import WRITER_VERSION, Draft
from claude_mem.domain.reports import FailedTurn, ReprocessCounts, ReprocessProgress
from claude_mem.domain.text import clip_closing
from claude_mem.storage.journal_records import (
    OWNED_BY_MODEL,
    OWNED_BY_PERSON,
    REPROCESS_JOB,
    ReprocessFilter,
    TranscriptSource,
)
from claude_mem.storage.sqlite.engine import (
    Connection,
    fetch_all,
    fetch_one,
    fetch_record,
    fetch_records,
    fetch_value,
)
from claude_mem.storage.sqlite.journal import jobs
from claude_mem.storage.sqlite.memory.observations import MACHINE_OWNED, encode_json

REPROCESS_BATCH_SIZE = 50  # turns enqueued at a time without a request from the user
MAX_LISTED_FAILURES = 100


# Only existing memory is reprocessed: a turn without a summary was dropped or deleted by a person.
_BEHIND = f"""t.writer < {WRITER_VERSION} and t.digested_at is not null and not t.private
    and exists (select 1 from session_summaries y where y.turn_id = t.id)"""
_OUTDATED = f"{_BEHIND} and t.writer > -{WRITER_VERSION}"  # not those for which the current writer found no source
_HAS_EVENTS = "not t.events_purged and exists (select 1 from events e where e.turn_id = t.id)"
_DEAD_JOB_TURNS = "select cast(subject as integer) from jobs where kind = :kind and dead"
_SUBJECTS = (
    "select t.id || '.' || coalesce((select max(seq) from events where turn_id = t.id), 0) as subject from turns t"
)
# Changes by a person, or by an agent on request, are in the history; imported observations have no history, so the
# columns are checked too.
_OWNED_BY_USER = """(
    exists (select 1 from session_summaries y where y.turn_id = t.id and y.verdict != '')
    or exists (select 1 from observations o where o.turn_id = t.id
                  and (o.forgotten or o.pinned or o.verdict != '' or o.trust = 'user'
                       or exists (select 1 from history h where h.observation_id = o.id))))"""
_WRITTEN_BY_MODEL = """(
    exists (select 1 from observations o where o.turn_id = t.id and o.provider not in ('local', 'user'))
    or exists (select 1 from session_summaries y where y.turn_id = t.id and y.provider != 'local'))"""
# The transcript that may still contain a turn. It must not be used for a turn with external content: a subagent may
# have read that, and the transcripts of subagents are other files.
_TRANSCRIPT = """coalesce(nullif(s.transcript_path, ''),
    (select f.path from backfill_files f where f.session_id = s.id order by f.id desc limit 1), '')"""
_MAY_READ_TRANSCRIPT = """(t.prompt_id is not null and exists (
    select 1 from documents d where d.kind = 'turn' and d.row_id = t.id and d.trust = ''))"""


ALL_TURNS = ReprocessFilter()


def _filter_sql(turn_filter: ReprocessFilter, condition: str = _OUTDATED) -> tuple[str, dict[str, object]]:
    parts = [condition]
    if turn_filter.project_ids is not None:
        in_projects = "select id from sdk_sessions where project_id in (select value from json_each(:projects))"
        parts.append(f"t.session_id in ({in_projects})")
    if turn_filter.since is not None:
        parts.append("t.last_at >= :since")
    return " and ".join(parts), {"projects": encode_json(turn_filter.project_ids or ()), "since": turn_filter.since}


# --- selecting -------------------------------------------------------------------------------------------------------


def count_reprocessable_turns(conn: Connection, turn_filter: ReprocessFilter = ALL_TURNS) -> ReprocessCounts:
    """Count the turns that can be reprocessed from their events, and those that stay unchanged, by reason.

    A turn stays unchanged if a person or a model owns its text, or if its events were purged.
    """
    where, params = _filter_sql(turn_filter, _BEHIND)
    counts = fetch_record(
        conn,
        ReprocessCounts,
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
    assert counts is not None
    return counts


def list_transcript_sources(
    conn: Connection, turn_filter: ReprocessFilter = ALL_TURNS
) -> list[tuple[TranscriptSource, int]]:
    """Return transcripts that may contain turns whose events were purged, each with the number of such turns."""
    where, params = _filter_sql(turn_filter)
    session_rows = fetch_all(
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
        (TranscriptSource(row["path"], row["host"], row["content_session_id"], row["cwd"]), row["turns"])
        for row in session_rows
    ]


def find_transcript_source(conn: Connection, turn_id: int) -> tuple[TranscriptSource, str] | None:
    """Return the transcript that may contain a turn whose events were purged, and the turn's prompt id in it."""
    row = fetch_one(
        conn,
        f"""
        select {_TRANSCRIPT} as path, s.host, s.content_session_id, s.cwd, t.prompt_id
          from turns t join sdk_sessions s on s.id = t.session_id where t.id = ? and {_MAY_READ_TRANSCRIPT}
        """,
        (turn_id,),
    )
    if row is None or not row["path"]:
        return None
    return TranscriptSource(row["path"], row["host"], row["content_session_id"], row["cwd"]), row["prompt_id"]


def has_outdated_turns(conn: Connection) -> bool:
    """Return whether any turn is left that the current writer has not processed."""
    return bool(fetch_value(conn, f"select 1 from turns t where {_OUTDATED} limit 1"))


def count_outdated_turns(conn: Connection, turn_filter: ReprocessFilter = ALL_TURNS) -> int:
    """Count the turns still to be processed, without those whose job is a dead letter."""
    where, params = _filter_sql(turn_filter)
    sql = f"select count(*) from turns t where {where} and t.id not in ({_DEAD_JOB_TURNS})"
    return int(fetch_value(conn, sql, {**params, "kind": REPROCESS_JOB}))


def get_reprocess_progress(conn: Connection, turn_filter: ReprocessFilter = ALL_TURNS) -> ReprocessProgress:
    """Return how many turns are still to be processed, and which failed and why."""
    where, params = _filter_sql(turn_filter)
    failed = fetch_records(
        conn,
        FailedTurn,
        f"""
        select t.id as turn, j.error from jobs j join turns t on t.id = cast(j.subject as integer)
         where j.kind = :kind and j.dead and {where} order by t.id limit {MAX_LISTED_FAILURES}
        """,
        {**params, "kind": REPROCESS_JOB},
    )
    return ReprocessProgress(left=count_outdated_turns(conn, turn_filter), failed=failed)


# --- enqueueing ------------------------------------------------------------------------------------------------------


def enqueue_reprocessing(conn: Connection, turn_filter: ReprocessFilter, *, now: int) -> int:
    """Enqueue all these turns for reprocessing, including those that failed before. Return the number of jobs."""
    where, params = _filter_sql(turn_filter)
    conn.execute(
        "update jobs set dead = 0, attempts = 0, due_at = :now, error = null where dead and kind = :kind",
        {"now": now, "kind": REPROCESS_JOB},
    )
    subject_rows = fetch_all(conn, f"{_SUBJECTS} where {where}", params)
    for row in subject_rows:
        jobs.enqueue_job(conn, REPROCESS_JOB, row["subject"], now=now)
    return len(subject_rows)


def enqueue_next_outdated_turns(conn: Connection, *, now: int) -> int:
    """Enqueue the next few turns unless some are queued already. Return how many. Dead letters are left alone."""
    if jobs.count_jobs(conn, REPROCESS_JOB):
        return 0
    subject_rows = fetch_all(
        conn,
        f"{_SUBJECTS} where {_OUTDATED} and t.id not in ({_DEAD_JOB_TURNS}) order by t.writer, t.id limit :few",
        {"kind": REPROCESS_JOB, "few": REPROCESS_BATCH_SIZE},
    )
    for row in subject_rows:
        jobs.enqueue_job(conn, REPROCESS_JOB, row["subject"], now=now)
    return len(subject_rows)


# --- one turn --------------------------------------------------------------------------------------------------------


def get_turn_owner(conn: Connection, turn_id: int) -> str:
    """Return whose words a turn's memory has: `OWNED_BY_PERSON`, `OWNED_BY_MODEL`, or "" for the local writer."""
    owners = fetch_one(
        conn,
        f"select {_OWNED_BY_USER} as persons, {_WRITTEN_BY_MODEL} as models from turns t where t.id = ?",
        (turn_id,),
    )
    if owners is None or not (owners["persons"] or owners["models"]):
        return ""
    return OWNED_BY_PERSON if owners["persons"] else OWNED_BY_MODEL


def mark_turn_reprocessed(conn: Connection, turn_id: int, *, has_source: bool = True) -> None:
    """Mark the turn as processed by the current writer; without `has_source`, as having nothing left to write from.

    `digested_at` stays unchanged, so that the events are not kept longer.
    """
    conn.execute(
        "update turns set writer = ? where id = ?", (WRITER_VERSION if has_source else -WRITER_VERSION, turn_id)
    )


def is_turn_without_events(conn: Connection, turn_id: int) -> bool:
    """Return whether a turn that is not private has no events."""
    no_events = "not exists (select 1 from events where turn_id = t.id)"
    return bool(
        fetch_value(conn, f"select 1 from turns t where t.id = ? and not t.private and {no_events}", (turn_id,))
    )


def add_closing_message(conn: Connection, turn_id: int, *, closing: str, closing_trust: str, outcome: str) -> None:
    """Add closing message and outcome to a summary that has none, without changing its other fields."""
    conn.execute(
        "update session_summaries set closing = ?, closing_trust = ?, outcome = ?"
        " where turn_id = ? and closing = '' and verdict = ''",
        (clip_closing(closing), closing_trust, outcome, turn_id),
    )


def reuse_observation_rows(conn: Connection, turn_id: int, drafts: Sequence[Draft]) -> None:
    """Give new drafts the rows of observations that the digest no longer produces.

    Ids that were injected or linked stay valid in this way. A draft gets the row of the same commit, otherwise the first.
    """
    draft_keys = {draft.key for draft in drafts}
    existing_keys = {
        row["key"] for row in fetch_all(conn, "select key from observations where turn_id = ?", (turn_id,))
    }
    query = f"select id, key, commit_id, trust from observations where turn_id = ? and {MACHINE_OWNED} and not pinned"
    free = [row for row in fetch_all(conn, f"{query} order by id", (turn_id,)) if row["key"] not in draft_keys]
    for draft in drafts:
        if free and draft.key not in existing_keys:
            best = min(
                free,
                key=lambda row: (not draft.commit or draft.commit != row["commit_id"], row["trust"] != draft.trust),
            )
            free.remove(best)
            conn.execute("update observations set key = ? where id = ?", (draft.key, best["id"]))
