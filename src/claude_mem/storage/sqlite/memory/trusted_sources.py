"""External sources that a person trusts in a project: `gh`, `linear (MCP)`, an internet host.

Trust only changes what is injected without approval. Suspect text is held whatever its source. The list stays on this
machine: it is neither exported nor imported.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePosixPath

from claude_mem.domain.errors import NotFound
from claude_mem.domain.project_reports import TrustedSource
from claude_mem.domain.records import Body, ToolUsed
from claude_mem.privacy import sources, trust
from claude_mem.privacy.sources import ProjectRepository
from claude_mem.storage.sqlite.engine import Connection, fetch_all, fetch_records
from claude_mem.storage.sqlite.memory.observations import PENDING_APPROVAL


def get_trusted_sources(conn: Connection, project_id: int) -> frozenset[str]:
    """Return the trusted sources of one project."""
    source_rows = fetch_all(conn, "select source from trusted_sources where project_id = ?", (project_id,))
    return frozenset(row["source"] for row in source_rows)


def get_project_place(conn: Connection, project_id: int) -> ProjectRepository:
    """Return the remotes and the directory name of a project."""
    query = """
        select substr(identity, 8) as remote from project_aliases where project_id = ?1 and identity like 'remote:%'
         union select remote from repositories where project_id = ?1 and remote != '' order by remote
        """
    remotes = tuple(row["remote"] for row in fetch_all(conn, query, (project_id,)))
    root = fetch_all(conn, "select root from projects where id = ?", (project_id,))
    return ProjectRepository(remotes, PurePosixPath(root[0]["root"]).name if root else "")


def is_from_trusted_sources(body: Body, trusted_names: Collection[str], place: ProjectRepository) -> bool:
    """Return whether everything in a tool call was read from trusted sources.

    A forge is trusted only for the project's own repositories.
    """
    if (
        not trusted_names
        or not isinstance(body, ToolUsed)
        or not set(source_names := trust.source_names(body)) <= set(trusted_names)
    ):
        return False
    return not set(source_names) & set(sources.FORGES) or sources.is_team_source(body, place)


def list_trusted_sources(conn: Connection) -> list[TrustedSource]:
    """List every trusted source by project and name."""
    return fetch_records(
        conn,
        TrustedSource,
        """
        select t.project_id, p.name as project, t.source, t.at
          from trusted_sources t join projects p on p.id = t.project_id order by p.name, t.project_id, t.source
        """,
    )


def add_trusted_source(conn: Connection, project_id: int, source: str, *, now: int) -> None:
    """Trust a source in one project."""
    conn.execute("insert or ignore into trusted_sources values (?, ?, ?)", (project_id, source, now))


def remove_trusted_source(conn: Connection, project_id: int, source: str) -> None:
    """Stop trusting a source in one project; raise `NotFound` if it is not trusted there."""
    conn.execute("delete from trusted_sources where project_id = ? and source = ?", (project_id, source))
    if not conn.changes():
        raise NotFound(
            f"{source!r} is not trusted in this project", hint="run `claude-mem trust` to list the trusted sources"
        )


def list_approvable_items(conn: Connection, project_id: int) -> list[tuple[str, int]]:
    """Return kind and id of queued external items in a project that rest on trusted sources alone.

    Suspect items are never included.
    """
    trusted_names = get_trusted_sources(conn, project_id)
    return [
        (item.kind, item.id)
        for item in _pending_external(conn, project_id)
        if (source_names := trust.parse_sources(item.why)) and trusted_names.issuperset(source_names)
    ]


def list_pending_sources(conn: Connection, project_id: int) -> set[str]:
    """Return the external sources of all queued items of the project."""
    return {name for item in _pending_external(conn, project_id) for name in trust.parse_sources(item.why)}


@dataclass(frozen=True, slots=True)
class _PendingItem:
    """An item that waits for approval, and why."""

    kind: str
    id: int
    why: str


def _pending_external(conn: Connection, project_id: int) -> list[_PendingItem]:
    where = f"where o.project_id = ?1 and o.trust = 'external' and {PENDING_APPROVAL}"
    return fetch_records(
        conn,
        _PendingItem,
        f"""
        select 'observation' as kind, o.id, o.why from observations o {where} and not o.forgotten
        union all select 'summary', o.id, o.why from session_summaries o {where}
        """,
        (project_id,),
    )
