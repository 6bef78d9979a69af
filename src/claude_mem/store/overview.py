"""Overview of a project: totals, files, days and sessions. Every query runs along an index."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from itertools import pairwise, takewhile

import msgspec

from claude_mem.store.database import Connection, Row, one, rows, value

OUTSIDE = "/"  # first character of the path of a file outside the project


def numbers(conn: Connection, project_id: int) -> Row:
    """Return how much is stored, for which period, and from which agents."""
    return {
        "counts": {
            "sessions": value(conn, "select count(*) from sdk_sessions where project_id = ?", (project_id,)),
            "turns": value(conn, f"select count(*) from {_TURNS}", (project_id,)),
            "observations": value(conn, f"select count(*) {_OBSERVATIONS}", (project_id,)),
            "pinned": value(conn, f"select count(*) {_OBSERVATIONS} and pinned", (project_id,)),
            "summaries": value(conn, "select count(*) from session_summaries where project_id = ?", (project_id,)),
            "files": value(conn, "select count(*) from known_files where project_id = ?", (project_id,)),
        },
        **_span(conn, project_id),
        "agents": rows(
            conn,
            """
            select host, count(*) as sessions, max(last_event_at) as last_at from sdk_sessions
             where project_id = ? group by host order by sessions desc, host
            """,
            (project_id,),
        ),
    }


_TURNS = "turns t join sdk_sessions s on s.id = t.session_id where s.project_id = ?"
_OBSERVATIONS = "from observations where project_id = ? and not forgotten"


def _span(conn: Connection, project_id: int) -> Row:
    """Return the times of the first and last thing known about a project.

    Observations are included because those saved by hand have no session.
    """
    bounds = one(
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
    return {"first_at": min(times, default=None), "last_at": max(times, default=None)}


# --- by file ---------------------------------------------------------------------------------------------------------


def files(conn: Connection, project_id: int, under: str) -> list[Row]:
    """Return one level of the tree of known files: folders first, each with the totals of everything below it."""
    level_rows = rows(
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
        entries, key=lambda row: (row["kind"] == "file", row["path"].startswith(OUTSIDE), row["name"].lower())
    )


def _prefix_end(under: str) -> str:
    """Return the first string that sorts after every string with this prefix."""
    return under[:-1] + chr(ord(under[-1]) + 1) if under else "\U0010ffff"


def _tree_entry(row: Row, under: str) -> Row:
    """Return a file or folder entry. A folder that contains nothing but one subfolder is shown together with it."""
    counts = {name: row[name] for name in ("edited", "read", "newest_at")}
    if not row["part"].endswith("/"):
        return {"kind": "file", "name": row["part"], "path": row["first"], **counts}
    same = takewhile(lambda pair: pair[0] == pair[1], zip(row["first"], row["last"], strict=False))
    path = "".join(letter for letter, _ in same).rpartition("/")[0] + "/"
    return {"kind": "folder", "name": path[len(under) :], "path": path, "files": row["files"], **counts}


# --- by day ----------------------------------------------------------------------------------------------------------


def days(conn: Connection, project_id: int, year: int) -> list[Row]:
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
        {"day": (first + timedelta(days=day)).isoformat(), **{name: count[day] for name, count in counts.items()}}
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
    cursor = conn.cursor()
    cursor.row_trace = None  # tuples: creating a dict for each of thousands of numbers would take most of the time
    return (at for (at,) in cursor.execute(sql, values))


def _count_by_day(times: Iterable[int], midnights: Sequence[int]) -> Counter[int]:
    return Counter(bisect_right(midnights, at) - 1 for at in times if midnights[0] <= at < midnights[-1])


def _count_observations_by_day(conn: Connection, project_id: int, midnights: Sequence[int]) -> Counter[int]:
    """Count observations day by day along the index, without fetching what may be a hundred thousand times."""
    day_counts = rows(
        conn,
        f"""
        select d.key as day, (select count(*) {_OBSERVATIONS.replace("?", ":project")}
                                 and created_at >= d.value ->> 0 and created_at < d.value ->> 1) as n
          from json_each(:days) d
        """,
        {"project": project_id, "days": msgspec.json.encode(list(pairwise(midnights))).decode()},
    )
    return Counter({row["day"]: row["n"] for row in day_counts if row["n"]})


# --- by session ------------------------------------------------------------------------------------------------------


def lanes(conn: Connection, project_id: int, *, since: int, until: int, limit: int, offset: int) -> list[Row]:
    """List the sessions of a time range, the most recently active first."""
    return rows(
        conn,
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
