"""Rules: which rules of a project are current, and which later rule superseded an earlier one.

The link (`observations.superseded_by`) follows from the injectable rules in the order they were stated. It is computed
again, in the same transaction, whenever a rule is added, edited, judged, deleted or restored. Deleting a rule therefore
makes the rule it superseded current again.
"""

from __future__ import annotations

from claude_mem import rule_topics
from claude_mem.records import Draft, Turn, Type
from claude_mem.store.database import Connection, Row, rows, value
from claude_mem.store.observations import TELLABLE

LINKED = ("type", "title", "trust", "verdict", "forgotten")  # columns on which the links depend
_RULES = f"o.project_id = ? and o.type = '{Type.RULE}' and not o.forgotten"


def current(conn: Connection, project_ids: list[int]) -> list[Row]:
    """Return the current injectable rules, the latest first: id, title, trust and time."""
    rule_rows: list[Row] = []
    for project_id in project_ids:
        rule_rows += rows(
            conn,
            f"""
            select o.id, o.title, o.trust, o.created_at from observations o
             where {_RULES} and o.superseded_by is null and {TELLABLE}
            """,
            (project_id,),
        )
    return sorted(rule_rows, key=lambda row: (row["created_at"], row["id"]), reverse=True)


def is_stated(conn: Connection, turn: Turn, draft: Draft) -> bool:
    """Return whether the same words are already a current rule (of another turn or saved by hand) or were judged
    wrong."""
    rule_rows = rows(
        conn,
        f"""
        select o.title from observations o
         where {_RULES} and coalesce(o.turn_id, -1) != ?
           and (o.verdict = 'wrong' or (o.superseded_by is null and {TELLABLE}))
        """,
        (turn.project_id, turn.id),
    )
    normal_title = rule_topics.normal(draft.title)
    return any(rule_topics.normal(row["title"] or "") == normal_title for row in rule_rows)


def of_turn(conn: Connection, turn_id: int) -> bool:
    """Return whether the turn stated a rule."""
    sql = f"select 1 from observations where turn_id = ? and type = '{Type.RULE}'"
    return bool(value(conn, sql, (turn_id,)))


def touches(conn: Connection, row_id: int) -> bool:
    """Return whether an observation is a rule, or a link depends on it."""
    sql = f"""
        select 1 from observations where id = ?1 and (type = '{Type.RULE}' or superseded_by is not null)
        union all select 1 from observations where superseded_by = ?1
    """
    return bool(value(conn, sql, (row_id,)))


def link_project_of(conn: Connection, row_id: int) -> None:
    """Link the rules of the observation's project again."""
    if project_id := value(conn, "select project_id from observations where id = ?", (row_id,)):
        link(conn, int(project_id))


def link(conn: Connection, project_id: int) -> None:
    """Store for each rule of a project which later rule superseded it, replacing the previous links."""
    rule_rows = rows(
        conn,
        f"select o.id, o.title from observations o where {_RULES} and {TELLABLE} order by o.created_at, o.id",
        (project_id,),
    )
    links = rule_topics.superseded([(row["id"], row["title"] or "") for row in rule_rows])
    linked_rows = rows(
        conn,
        "select id, superseded_by from observations where project_id = ? and superseded_by is not null",
        (project_id,),
    )
    stored_links = {row["id"]: row["superseded_by"] for row in linked_rows}
    for row_id in stored_links.keys() | links.keys():
        if stored_links.get(row_id) != links.get(row_id):
            conn.execute("update observations set superseded_by = ? where id = ?", (links.get(row_id), row_id))
