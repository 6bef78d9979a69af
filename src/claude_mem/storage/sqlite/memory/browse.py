"""Queries for browsing memory: the feed, the timeline, the overview of a project, and current activity.

The viewer shows these pages and asks for the activity every second, so every query runs along an index or reads a small
table.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from itertools import pairwise, takewhile
from typing import TypedDict, cast

import msgspec

from claude_mem.domain.errors import InvalidRequest, NotFound
from claude_mem.domain.memory_items import MemoryItem
from claude_mem.domain.project_reports import ActiveDay, AgentSessions, FileEntry, ProjectTotals, SessionLane
from claude_mem.domain.records import Job
from claude_mem.domain.session_reports import (
    ActiveSession,
    BackfillActivity,
    JobKindCounts,
    LastEvent,
    RetryingJob,
    RunningJob,
)
from claude_mem.storage.external_db import fetch_tuples
from claude_mem.storage.journal_records import BACKFILL_JOB, DIGEST_BACKFILLED_JOB
from claude_mem.storage.records import FeedCursor, FeedFilter, TimelinePoint
from claude_mem.storage.sqlite.engine import (
    Connection,
    Row,
    fetch_all,
    fetch_one,
    fetch_record,
    fetch_records,
    fetch_value,
)
from claude_mem.storage.sqlite.journal import jobs
from claude_mem.storage.sqlite.memory import anchors
from claude_mem.storage.sqlite.memory.observations import MEMORY_QUERIES, VALIDITY, decode_item, encode_json

_KIND_BY_PREFIX = {"": "observation", "#": "observation", "S": "summary", "P": "prompt"}
# One query per kind, each along its own index: a union would have to be sorted completely.
_TIMELINE_QUERIES = {
    "observation": """
        select 'observation' as kind, a.id, a.created_at, a.project_id, a.session_id, a.type, a.title, a.tokens,
               a.files_modified as files, a.trust, a.verdict, a.superseded_by
          from observations a where not a.forgotten
    """,
    "summary": """
        select 'summary' as kind, a.id, a.created_at, a.project_id, a.session_id, null as type,
               coalesce(a.completed, a.request) as title, null as tokens, a.files_edited as files,
               a.trust, a.verdict, null as superseded_by
          from session_summaries a where true
    """,
    "prompt": """
        select 'prompt' as kind, a.id, a.created_at, s.project_id, a.session_id, null as type, a.text as title,
               null as tokens, '[]' as files, null as trust, '' as verdict, null as superseded_by
          from user_prompts a join sdk_sessions s on s.id = a.session_id where true
    """,
}
_NOT_WRONG = dict.fromkeys(("observation", "summary"), "and a.verdict != 'wrong'")
_TIES = 50  # extra rows to fetch, so that up to this many with the same time are ordered correctly
OUTSIDE_PREFIX = "/"  # first character of the path of a file outside the project
_TURNS = "turns t join sdk_sessions s on s.id = t.session_id where s.project_id = ?"
_OBSERVATIONS = "from observations where project_id = ? and not forgotten"
ACTIVE_SESSION_MS = 5 * 60_000  # a session with an event this recent counts as active
MAX_ACTIVE_SESSIONS, MAX_LISTED_ERRORS = 50, 20


# --- the feed --------------------------------------------------------------------------------------------------------


def load_feed_page(
    conn: Connection, feed_filter: FeedFilter, *, before: FeedCursor | None, limit: int
) -> tuple[list[MemoryItem], FeedCursor | None]:
    """Return one page and the cursor of the next page. Each kind is one query along its index."""
    candidates = [
        row for kind in _kinds(feed_filter) for row in _fetch_kind(conn, kind, feed_filter, before, limit + 1)
    ]
    ordered = sorted(candidates, key=_sort_key, reverse=True)
    items, has_more = ordered[:limit], len(ordered) > limit
    return anchors.add_states(conn, [decode_item(row) for row in items]), FeedCursor(
        *_sort_key(items[-1])
    ) if has_more else None


def _kinds(feed_filter: FeedFilter) -> list[str]:
    is_of_observations = feed_filter.type or feed_filter.concept or feed_filter.validities
    only = "observation" if is_of_observations else feed_filter.kind
    if feed_filter.kind and only != feed_filter.kind:
        return []
    return [kind for kind in MEMORY_QUERIES if only in ("", kind)]


def _fetch_kind(
    conn: Connection, kind: str, feed_filter: FeedFilter, before: FeedCursor | None, limit: int
) -> list[MemoryItem]:
    project = "s.project_id" if kind == "prompt" else "o.project_id"
    # Items of the same millisecond are ordered by kind and id.
    before_cursor = "(o.created_at, :kind, o.id) < (:at, :at_kind, :at_id) and o.created_at <= :at" if before else ""
    conditions = {
        before_cursor: before,
        f"{project} = :project": feed_filter.project_id,
        "o.type = :type": feed_filter.type,
        "instr(o.concepts, :concept)": feed_filter.concept,
        VALIDITY.format("v.latest and v.validity in (select value from json_each(:validities))"): (
            feed_filter.validities
        ),
        "s.host = :host": feed_filter.host,
        "o.created_at >= :since": feed_filter.since is not None,
        "o.created_at < :until": feed_filter.until is not None,
    }
    where = " and ".join(["", *(text for text, is_set in conditions.items() if text and is_set)])
    return fetch_records(
        conn,
        MemoryItem,
        f"{MEMORY_QUERIES[kind]} {where} order by o.created_at desc, o.id desc limit :limit",
        {
            "kind": kind,
            "at": before.at if before else None,
            "at_kind": before.kind if before else None,
            "at_id": before.id if before else None,
            "project": feed_filter.project_id,
            "type": feed_filter.type,
            "concept": encode_json(feed_filter.concept),  # as in the JSON list, with quotes
            "validities": encode_json(list(feed_filter.validities)),
            "host": feed_filter.host,
            "since": feed_filter.since,
            "until": feed_filter.until,
            "limit": limit,
        },
    )


def _sort_key(row: MemoryItem) -> tuple[int, str, int]:
    return row["created_at"], row["kind"], row["id"]


# --- the timeline ----------------------------------------------------------------------------------------------------


def parse_timeline_point(conn: Connection, text: str) -> TimelinePoint:
    """Parse a point: `12` or `#12` is an observation, `S12` a summary, `P12` a prompt; anything else must be a date."""
    match = re.fullmatch(r"([#SP]?)(\d{1,15})", text.strip().upper())
    if match:
        return get_timeline_point(conn, _KIND_BY_PREFIX[match[1]], int(match[2]))
    try:
        return TimelinePoint(int(datetime.fromisoformat(text.strip()).timestamp() * 1000))
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidRequest(
            f"{text!r} is not a point on the timeline", hint="use an id (12, S12, P12) or a date (2026-01-31)"
        ) from error


def get_timeline_point(conn: Connection, kind: str, item_id: int) -> TimelinePoint:
    """Return the point of an item; raise `NotFound` if there is none."""
    row = fetch_one(conn, f"{_TIMELINE_QUERIES[kind]} and a.id = ?", (item_id,))
    if row is None:
        raise NotFound(f"there is no {kind} {item_id}", hint="run `claude-mem list` to see the existing ones")
    return TimelinePoint(row["created_at"], row["project_id"], kind, item_id)


def list_timeline(
    conn: Connection, point: TimelinePoint, *, before: int, after: int, project_ids: list[int] | None = None
) -> list[MemoryItem]:
    """Return up to `before` items before the point and `after` items after it, in chronological order.

    If the point is an item, it is included.
    """
    scope = project_ids if project_ids is not None else [point.project_id] if point.project_id else None
    point_key = (point.at, point.kind, point.id)
    candidates = [
        *_fetch_side(conn, point.at, scope, before, later=False),
        *_fetch_side(conn, point.at, scope, after + 1, later=True),
    ]
    ordered = sorted({(row["kind"], row["id"]): row for row in candidates}.values(), key=_sort_key)
    earlier = [row for row in ordered if _sort_key(row) < point_key]
    later = [row for row in ordered if _sort_key(row) >= point_key]
    window = [*earlier[len(earlier) - min(before, len(earlier)) :], *later[: after + bool(point.id)]]
    items = anchors.add_states(conn, window)
    return [_add_names(conn, item) for item in items]


def _fetch_side(
    conn: Connection, at: int, project_ids: list[int] | None, count: int, *, later: bool
) -> list[MemoryItem]:
    """Return candidates on one side of the point.

    One query per project: only an equality condition lets the index return rows in order.
    """
    sign, order = (">=", "asc") if later else ("<=", "desc")
    items: list[MemoryItem] = []
    for kind, query in _TIMELINE_QUERIES.items():
        column = "s.project_id" if kind == "prompt" else "a.project_id"
        for project_id in [None] if project_ids is None else project_ids:
            scope = f"and {column} = :project" if project_id is not None else ""
            items += fetch_records(
                conn,
                MemoryItem,
                f"{query} {scope} {_NOT_WRONG.get(kind, '')} and a.created_at {sign} :at"
                f" order by a.created_at {order} limit :limit",
                {"project": project_id, "at": at, "limit": count + _TIES},
            )
    return items


def _add_names(conn: Connection, row: MemoryItem) -> MemoryItem:
    """Replace the ids of project and session by the project's name and the agent's session id."""
    names = fetch_one(
        conn,
        "select p.name as project, s.content_session_id from projects p left join sdk_sessions s on s.id = ?"
        " where p.id = ?",
        (row["session_id"], row["project_id"]),
    )
    fields = {name: item for name, item in row.items() if name not in ("project_id", "session_id", "files")}
    files = msgspec.json.decode(cast(str, row["files"]))  # stored as JSON
    return cast(MemoryItem, {**fields, **(names or {}), "files": files})


# --- overview of a project -------------------------------------------------------------------------------------------


def get_project_totals(conn: Connection, project_id: int) -> ProjectTotals:
    """Return how much is stored, for which period, and from which agents."""
    first_at, last_at = _span(conn, project_id)
    return ProjectTotals(
        counts={
            "sessions": fetch_value(conn, "select count(*) from sdk_sessions where project_id = ?", (project_id,)),
            "turns": fetch_value(conn, f"select count(*) from {_TURNS}", (project_id,)),
            "observations": fetch_value(conn, f"select count(*) {_OBSERVATIONS}", (project_id,)),
            "pinned": fetch_value(conn, f"select count(*) {_OBSERVATIONS} and pinned", (project_id,)),
            "summaries": fetch_value(
                conn, "select count(*) from session_summaries where project_id = ?", (project_id,)
            ),
            "files": fetch_value(conn, "select count(*) from known_files where project_id = ?", (project_id,)),
        },
        first_at=first_at,
        last_at=last_at,
        agents=fetch_records(
            conn,
            AgentSessions,
            """
            select host, count(*) as sessions, max(last_event_at) as last_at from sdk_sessions
             where project_id = ? group by host order by sessions desc, host
            """,
            (project_id,),
        ),
    )


def _span(conn: Connection, project_id: int) -> tuple[int | None, int | None]:
    """Return the times of the first and last thing known about a project.

    Observations are included because those saved by hand have no session.
    """
    bounds = fetch_one(
        conn,
        f"""
        select (select min(started_at) from sdk_sessions where project_id = ?1) as began,
               (select max(last_event_at) from sdk_sessions where project_id = ?1) as went_on,
               (select min(created_at) {_OBSERVATIONS.replace("?", "?1")}) as oldest,
               (select max(created_at) {_OBSERVATIONS.replace("?", "?1")}) as newest
        """,
        (project_id,),
    )
    times = [at for at in (bounds or {}).values() if at is not None]
    return min(times, default=None), max(times, default=None)


def list_sessions_in_range(
    conn: Connection, project_id: int, *, since: int, until: int, limit: int, offset: int
) -> list[SessionLane]:
    """List the sessions of a time range, the most recently active first."""
    return fetch_records(
        conn,
        SessionLane,
        """
        select s.id, s.host, s.title, s.status, s.started_at as start_at, max(s.last_event_at, s.started_at) as end_at,
               s.prompt_counter as turns,
               (select count(*) from observations o where o.session_id = s.id and not o.forgotten) as observations
          from sdk_sessions s
         where s.project_id = :project and s.last_event_at >= :since and s.started_at <= :until
         order by s.last_event_at desc, s.id desc limit :limit offset :offset
        """,
        {"project": project_id, "since": since, "until": until, "limit": limit, "offset": offset},
    )


# --- files of a project ----------------------------------------------------------------------------------------------


def list_known_files(conn: Connection, project_id: int, under: str) -> list[FileEntry]:
    """Return one level of the tree of known files: folders first, each with the totals of everything below it."""
    level_rows = fetch_all(
        conn,
        """
        select substr(path, :skip, instr(substr(path, :skip) || '/', '/')) as part,
               min(path) as first, max(path) as last, count(*) as files, sum(edited) as edited, sum(read) as read,
               max(newest_at) as newest_at
          from known_files where project_id = :project and path >= :under and path < :beyond group by part
        """,
        {"project": project_id, "under": under, "skip": len(under) + 1, "beyond": _prefix_end(under)},
    )
    entries = [_tree_entry(row, under) for row in level_rows]
    return sorted(
        entries, key=lambda entry: (entry.kind == "file", entry.path.startswith(OUTSIDE_PREFIX), entry.name.lower())
    )


def _prefix_end(under: str) -> str:
    """Return the first string that sorts after every string with this prefix."""
    return under[:-1] + chr(ord(under[-1]) + 1) if under else "\U0010ffff"


def _tree_entry(row: Row, under: str) -> FileEntry:
    """Return a file or folder entry. A folder that contains nothing but one subfolder is shown together with it."""
    counts = {name: row[name] for name in ("edited", "read", "newest_at")}
    if not row["part"].endswith("/"):
        return FileEntry(kind="file", name=row["part"], path=row["first"], **counts)
    same = takewhile(lambda pair: pair[0] == pair[1], zip(row["first"], row["last"], strict=False))
    path = "".join(letter for letter, _ in same).rpartition("/")[0] + "/"
    return FileEntry(kind="folder", name=path[len(under) :], path=path, files=row["files"], **counts)


# --- active days of a project ----------------------------------------------------------------------------------------


def list_active_days(conn: Connection, project_id: int, year: int) -> list[ActiveDay]:
    """Return what was done on each day of a year, in local time; days without activity are left out."""
    midnights = _midnights(year)
    params = {"project": project_id, "begin": midnights[0], "end": midnights[-1]}
    in_year = "s.project_id = :project and s.last_event_at >= :begin and s.started_at < :end"
    session_starts = _fetch_times(conn, f"select s.started_at from sdk_sessions s where {in_year}", params)
    turn_starts = _fetch_times(
        conn, f"select t.opened_at from sdk_sessions s join turns t on t.session_id = s.id where {in_year}", params
    )
    counts = {
        "observations": _count_observations_by_day(conn, project_id, midnights),
        "sessions": _count_by_day(session_starts, midnights),
        "turns": _count_by_day(turn_starts, midnights),
    }
    first = date(year, 1, 1)
    return [
        ActiveDay(day=(first + timedelta(days=day)).isoformat(), **{name: count[day] for name, count in counts.items()})
        for day in sorted(set().union(*counts.values()))
    ]


def _midnights(year: int) -> list[int]:
    """Return when each day of the year begins, and when the next year begins.

    Days with a clock change do not have 24 hours.
    """
    first, last = date(year, 1, 1), date(year + 1, 1, 1)
    every = (first + timedelta(days=n) for n in range((last - first).days + 1))
    return [int(datetime(day.year, day.month, day.day).timestamp() * 1000) for day in every]


def _fetch_times(conn: Connection, sql: str, values: Row) -> Iterable[int]:
    return (at for (at,) in fetch_tuples(conn, sql, values))


def _count_by_day(times: Iterable[int], midnights: Sequence[int]) -> Counter[int]:
    return Counter(bisect_right(midnights, at) - 1 for at in times if midnights[0] <= at < midnights[-1])


def _count_observations_by_day(conn: Connection, project_id: int, midnights: Sequence[int]) -> Counter[int]:
    """Count observations day by day along the index, without fetching what may be a hundred thousand times."""
    day_counts = fetch_all(
        conn,
        f"""
        select d.key as day, (select count(*) {_OBSERVATIONS.replace("?", ":project")}
                                 and created_at >= d.value ->> 0 and created_at < d.value ->> 1) as n
          from json_each(:days) d
        """,
        {"project": project_id, "days": encode_json(list(pairwise(midnights)))},
    )
    return Counter({row["day"]: row["n"] for row in day_counts if row["n"]})


# --- current activity ------------------------------------------------------------------------------------------------


class _LatestTurn(TypedDict):
    turn: int | None
    private: bool
    since: int | None
    open: bool


def list_active_sessions(conn: Connection, *, now: int) -> list[ActiveSession]:
    """Return sessions with an open turn and those with events in the last minutes, newest first."""
    session_rows = fetch_all(
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
        {"since": now - ACTIVE_SESSION_MS, "limit": MAX_ACTIVE_SESSIONS},
    )
    return [
        ActiveSession(**row, **_latest_turn(conn, row["id"]), last_event=_last_event(conn, row["id"]))
        for row in session_rows
    ]


def _latest_turn(conn: Connection, session_id: int) -> _LatestTurn:
    turn = fetch_one(
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


def _last_event(conn: Connection, session_id: int) -> LastEvent | None:
    """Return kind and tool name of the last event, never its input."""
    return fetch_record(
        conn,
        LastEvent,
        """
        select at, kind, json_extract(body, '$.name') as tool from events where session_id = ? order by seq desc limit 1
        """,
        (session_id,),
    )


def describe_running_jobs(conn: Connection, claimed_jobs: Iterable[Job]) -> list[RunningJob]:
    """Return the jobs in progress, with the session and turn each is about."""
    return [_describe_running(conn, job) for job in claimed_jobs]


def _describe_running(conn: Connection, job: Job) -> RunningJob:
    number = int(head) if (head := job.subject.partition(".")[0]).isdigit() else 0
    session_id, turn_number, title = None, None, None
    if job.kind in jobs.TURN_JOBS:
        turn = fetch_one(conn, "select session_id, number from turns where id = ?", (number,))
        session_id, turn_number = (turn["session_id"], turn["number"]) if turn else (None, None)
    elif job.kind == "reconcile":
        session_id = number
    if session_id is not None:
        title = fetch_value(conn, "select title from sdk_sessions where id = ?", (session_id,))
    return RunningJob(kind=job.kind, attempts=job.attempts, session_id=session_id, turn=turn_number, title=title)


def count_jobs_by_kind(conn: Connection) -> list[JobKindCounts]:
    """Return how many jobs of each kind wait for the first attempt, wait for a retry, and are dead."""
    return fetch_records(
        conn,
        JobKindCounts,
        """
        select kind, count(*) filter (where not dead and error is null) as waiting,
               count(*) filter (where not dead and error is not null) as retrying,
               count(*) filter (where dead) as dead
          from jobs group by kind order by kind
        """,
    )


def list_retrying_jobs(conn: Connection) -> list[RetryingJob]:
    """Return the jobs that will be retried, with their errors."""
    return fetch_records(
        conn,
        RetryingJob,
        """
        select id, kind, attempts, due_at, error from jobs where not dead and error is not null
         order by due_at limit ?
        """,
        (MAX_LISTED_ERRORS,),
    )


def count_set_aside_events(conn: Connection) -> int:
    """Return how many events are set aside."""
    return int(fetch_value(conn, "select count(*) from receipts where outcome = 'set_aside'"))


def get_backfill_activity(conn: Connection) -> BackfillActivity | None:
    """Return the progress of the running back-fill, or None."""
    run = fetch_value(conn, "select max(id) from backfills")
    files = run and fetch_one(
        conn,
        """
        select count(*) as files, count(*) filter (where state != 'waiting') as done, coalesce(sum(size), 0) as bytes,
               coalesce(sum(iif(state = 'waiting', min(offset, size), size)), 0) as bytes_done
          from backfill_files where backfill_id = ?
        """,
        (run,),
    )
    reading, digesting = jobs.count_jobs(conn, BACKFILL_JOB), jobs.count_jobs(conn, DIGEST_BACKFILLED_JOB)
    return BackfillActivity(**files, digesting=digesting) if files and (reading or digesting) else None
