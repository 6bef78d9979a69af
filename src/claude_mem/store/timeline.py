"""What happened around a moment: prompts, observations and summaries, interleaved as they came."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

import msgspec

from claude_mem.errors import Misuse, NotFound
from claude_mem.store.database import Connection, Row, one, rows

# Each kind under the letter that people and agents write before its number.
MARKS = {"observation": "", "summary": "S", "prompt": "P"}
_BY_MARK = {"": "observation", "#": "observation", "S": "summary", "P": "prompt"}
_TABLES = {"observation": "observations", "summary": "session_summaries", "prompt": "user_prompts"}

_ALL = """
    select 'observation' as kind, o.id, o.created_at, o.project_id, o.session_id, o.type, o.title, o.tokens,
           o.files_modified as files
      from observations o where not o.forgotten
    union all
    select 'summary', y.id, y.created_at, y.project_id, y.session_id, null, coalesce(y.completed, y.request), null,
           y.files_edited
      from session_summaries y
    union all
    select 'prompt', u.id, u.created_at, s.project_id, u.session_id, null, u.text, null, '[]'
      from user_prompts u join sdk_sessions s on s.id = u.session_id
"""


@dataclass(frozen=True, slots=True)
class Anchor:
    """A moment in a project. Without an item it is only a time."""

    at: int
    project_id: int | None = None
    kind: str = ""
    id: int = 0


def anchor(conn: Connection, given: str) -> Anchor:
    """`12` or `#12` an observation, `S12` a summary, `P12` a prompt, anything else a date."""
    match = re.fullmatch(r"([#SP]?)(\d{1,15})", given.strip().upper())
    if match:
        return item(conn, _BY_MARK[match[1]], int(match[2]))
    try:
        return Anchor(int(datetime.fromisoformat(given.strip()).timestamp() * 1000))
    except (ValueError, OverflowError, OSError) as error:
        raise Misuse(f"{given!r} is no anchor", hint="use an ID (12), S12, P12, or a date (2026-01-31)") from error


def item(conn: Connection, kind: str, item_id: int) -> Anchor:
    row = one(conn, f"select created_at, project_id from ({_ALL}) where kind = ? and id = ?", (kind, item_id))
    if row is None:
        raise NotFound(f"there is no {kind} {item_id}", hint="`claude-mem list` shows what there is")
    return Anchor(row["created_at"], row["project_id"], kind, item_id)


def around(
    conn: Connection, middle: Anchor, *, before: int, after: int, project_ids: list[int] | None = None
) -> list[Row]:
    """So many before and after it, in the order they happened; the anchor itself is among them."""
    ids = project_ids if project_ids is not None else [middle.project_id] if middle.project_id else None
    scope = f"and a.project_id in ({', '.join(map(str, map(int, ids)))})" if ids is not None else ""
    listed = f"""
        select a.kind, a.id, a.created_at, a.type, a.title, a.tokens, a.files, p.name as project, s.content_session_id
          from ({_ALL}) a join projects p on p.id = a.project_id left join sdk_sessions s on s.id = a.session_id
         where {{side}} {scope}
    """
    key = "(a.created_at, a.kind, a.id)"
    place = (middle.at, middle.kind, middle.id)
    earlier = rows(
        conn,
        listed.format(side=f"{key} < (?, ?, ?)") + " order by a.created_at desc, a.kind desc, a.id desc limit ?",
        (*place, before),
    )
    later = rows(
        conn,
        listed.format(side=f"{key} >= (?, ?, ?)") + " order by a.created_at, a.kind, a.id limit ?",
        (*place, after + bool(middle.id)),
    )
    return [{**row, "files": msgspec.json.decode(row["files"])} for row in [*reversed(earlier), *later]]
