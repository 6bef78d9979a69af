"""Sources from outside that a person trusts in a project: `gh`, `linear (MCP)`, a host.

Only what is told without a word of approval changes by it. What reads like an attack is held all the same, wherever it
comes from. The list stays on this machine: it is neither exported nor imported.
"""

from __future__ import annotations

from collections.abc import Collection

from claude_mem import origins
from claude_mem.errors import NotFound
from claude_mem.records import Body, ToolUsed
from claude_mem.store.database import Connection, Row, rows
from claude_mem.store.observations import HELD


def names(conn: Connection, project_id: int) -> frozenset[str]:
    """The trusted sources of one project."""
    found = rows(conn, "select source from trusted_sources where project_id = ?", (project_id,))
    return frozenset(row["source"] for row in found)


def is_from(body: Body, trusted: Collection[str]) -> bool:
    """Was it read from one of these sources?"""
    return bool(trusted) and isinstance(body, ToolUsed) and origins.named(body) in trusted


def listing(conn: Connection) -> list[Row]:
    """Every trusted source with its project, by project and name."""
    return rows(
        conn,
        """
        select t.project_id, p.name as project, t.source, t.at
          from trusted_sources t join projects p on p.id = t.project_id order by p.name, t.project_id, t.source
        """,
    )


def add(conn: Connection, project_id: int, source: str, *, now: int) -> None:
    conn.execute("insert or ignore into trusted_sources values (?, ?, ?)", (project_id, source, now))


def remove(conn: Connection, project_id: int, source: str) -> None:
    conn.execute("delete from trusted_sources where project_id = ? and source = ?", (project_id, source))
    if not conn.changes():
        raise NotFound(f"{source!r} is not trusted in this project", hint="`claude-mem trust` lists what is")


def approvable(conn: Connection, project_id: int) -> list[tuple[str, int]]:
    """What waits in a project and rests on trusted sources alone, as kind and id. Never what reads like an attack."""
    trusted = names(conn, project_id)
    found = []
    for kind, table in (("observation", "observations"), ("summary", "session_summaries")):
        kept = "and not o.forgotten" if kind == "observation" else ""
        sql = f"select o.id, o.why from {table} o where o.project_id = ? and o.trust = 'external' and {HELD} {kept}"
        for row in rows(conn, sql, (project_id,)):
            named = origins.sources_of(row["why"])
            if named and trusted.issuperset(named):
                found.append((kind, int(row["id"])))
    return found
