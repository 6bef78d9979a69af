"""The timeline: prompts, observations and summaries around a point in time, in chronological order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

import msgspec

from claude_mem.errors import Misuse, NotFound
from claude_mem.store.database import Connection, Row, one, rows

# The letter that people and agents write before the id of an item of each kind.
MARKS = {"observation": "", "summary": "S", "prompt": "P"}
_KIND_BY_PREFIX = {"": "observation", "#": "observation", "S": "summary", "P": "prompt"}

# One query per kind, each along its own index: a union would have to be sorted completely.
_QUERIES = {
    "observation": """
        select 'observation' as kind, a.id, a.created_at, a.project_id, a.session_id, a.type, a.title, a.tokens,
               a.files_modified as files, a.trust, a.verdict
          from observations a where not a.forgotten
    """,
    "summary": """
        select 'summary' as kind, a.id, a.created_at, a.project_id, a.session_id, null as type,
               coalesce(a.completed, a.request) as title, null as tokens, a.files_edited as files,
               a.trust, a.verdict
          from session_summaries a where true
    """,
    "prompt": """
        select 'prompt' as kind, a.id, a.created_at, s.project_id, a.session_id, null as type, a.text as title,
               null as tokens, '[]' as files, null as trust, '' as verdict
          from user_prompts a join sdk_sessions s on s.id = a.session_id where true
    """,
}
_NOT_WRONG = dict.fromkeys(("observation", "summary"), "and a.verdict != 'wrong'")
_TIES = 50  # extra rows to fetch, so that up to this many with the same time are ordered correctly


@dataclass(frozen=True, slots=True)
class Anchor:
    """A point on the timeline: an item, or only a time."""

    at: int
    project_id: int | None = None
    kind: str = ""
    id: int = 0


def anchor(conn: Connection, text: str) -> Anchor:
    """Parse a point: `12` or `#12` is an observation, `S12` a summary, `P12` a prompt; anything else must be a date."""
    match = re.fullmatch(r"([#SP]?)(\d{1,15})", text.strip().upper())
    if match:
        return item(conn, _KIND_BY_PREFIX[match[1]], int(match[2]))
    try:
        return Anchor(int(datetime.fromisoformat(text.strip()).timestamp() * 1000))
    except (ValueError, OverflowError, OSError) as error:
        raise Misuse(
            f"{text!r} is not a point on the timeline", hint="use an id (12, S12, P12) or a date (2026-01-31)"
        ) from error


def item(conn: Connection, kind: str, item_id: int) -> Anchor:
    """Return the point of an item; raise `NotFound` if there is none."""
    row = one(conn, f"{_QUERIES[kind]} and a.id = ?", (item_id,))
    if row is None:
        raise NotFound(f"there is no {kind} {item_id}", hint="run `claude-mem list` to see the existing ones")
    return Anchor(row["created_at"], row["project_id"], kind, item_id)


def around(
    conn: Connection, point: Anchor, *, before: int, after: int, project_ids: list[int] | None = None
) -> list[Row]:
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
    return [_add_names(conn, row) for row in window]


def _sort_key(row: Row) -> tuple[int, str, int]:
    return row["created_at"], row["kind"], row["id"]


def _fetch_side(conn: Connection, at: int, project_ids: list[int] | None, count: int, *, later: bool) -> list[Row]:
    """Return candidates on one side of the point.

    One query per project: only an equality condition lets the index return rows in order.
    """
    sign, order = (">=", "asc") if later else ("<=", "desc")
    items: list[Row] = []
    for kind, query in _QUERIES.items():
        column = "s.project_id" if kind == "prompt" else "a.project_id"
        for project_id in [None] if project_ids is None else project_ids:
            scope = f"and {column} = :project" if project_id is not None else ""
            items += rows(
                conn,
                f"{query} {scope} {_NOT_WRONG.get(kind, '')} and a.created_at {sign} :at"
                f" order by a.created_at {order} limit :limit",
                {"project": project_id, "at": at, "limit": count + _TIES},
            )
    return items


def _add_names(conn: Connection, row: Row) -> Row:
    """Replace the ids of project and session by the project's name and the agent's session id."""
    names = one(
        conn,
        "select p.name as project, s.content_session_id from projects p left join sdk_sessions s on s.id = ?"
        " where p.id = ?",
        (row["session_id"], row["project_id"]),
    )
    fields = {name: item for name, item in row.items() if name not in ("project_id", "session_id", "files")}
    return {**fields, **(names or {}), "files": msgspec.json.decode(row["files"])}
