"""Where a timeline is centered: at a named record or date, or at the best hit of a query."""

from __future__ import annotations

from claude_mem.domain.errors import NotFound
from claude_mem.recall import rank
from claude_mem.recall.matrix import Indexer
from claude_mem.storage.base import Database
from claude_mem.storage.records import ID_PREFIXES, SearchFilter, TimelinePoint


async def find_center(
    db: Database, indexer: Indexer, *, anchor: str, query: str, project_ids: list[int] | None
) -> TimelinePoint:
    """Return the point that `anchor` names, or else the best hit of `query`. Raise `NotFound` if there is none."""
    if anchor.strip():
        return await db.read(lambda tx: tx.memory.parse_timeline_point(anchor))
    await indexer.catch_up()
    where = SearchFilter(project_ids=tuple(project_ids) if project_ids is not None else None, kinds=tuple(ID_PREFIXES))
    hits = await rank.find_hits(db, indexer, rank.SearchQuery(text=query, where=where, limit=1))
    if not query.strip() or not hits:
        raise NotFound("nothing matches the query", hint="name an anchor (ID, S12, date) or use other words")
    return await db.read(lambda tx: tx.memory.get_timeline_point(hits[0].kind, hits[0].id))
