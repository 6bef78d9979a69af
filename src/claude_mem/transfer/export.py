"""Exports memory as lines, one page at a time, so that no read transaction stays open."""

from __future__ import annotations

from collections.abc import AsyncIterator

from claude_mem import __version__
from claude_mem.domain import export_format
from claude_mem.domain.errors import NotFound
from claude_mem.domain.export_format import FORMAT, ExportEnd, ExportHeader
from claude_mem.recall import rank
from claude_mem.recall.matrix import Indexer
from claude_mem.storage.base import Database
from claude_mem.storage.records import ExportScope, SearchFilter

PAGE = 500
MAX_HITS = 1_000


async def resolve_scope(
    db: Database, indexer: Indexer, *, project: str, query: str, since: int | None, until: int | None
) -> ExportScope:
    """Return the rows to export. With a query, these are the rows that a search finds."""
    project_ids = tuple(await db.read(lambda tx: tx.memory.list_project_ids_by_name(project))) if project else None
    if project_ids == ():
        raise NotFound(f"there is no project {project!r}", hint="`claude-mem list projects` shows all projects")
    item_ids = None
    if query.strip():
        await indexer.catch_up()
        where = SearchFilter(project_ids=project_ids, since=since, until=until)
        item_ids = await _matching_row_ids(db, indexer, rank.SearchQuery(text=query, where=where, limit=MAX_HITS))
    return await db.read(
        lambda tx: tx.memory.build_export_scope(project_ids=project_ids, since=since, until=until, item_ids=item_ids)
    )


async def _matching_row_ids(db: Database, indexer: Indexer, question: rank.SearchQuery) -> dict[str, tuple[int, ...]]:
    """Return the ids of the rows a search finds, by kind. A turn stands for everything remembered about it."""
    hits = await rank.find_hits(db, indexer, question)
    row_ids = await db.read(lambda tx: tx.memory.find_items_of_turns([hit.id for hit in hits if hit.kind == "turn"]))
    for hit in hits:
        if hit.kind in row_ids:
            row_ids[hit.kind].append(hit.id)
    return {kind: tuple(sorted(set(ids))) for kind, ids in row_ids.items()}


async def export_lines(db: Database, export_scope: ExportScope) -> AsyncIterator[bytes]:
    """Yield the lines of an export, from its header to its end record."""
    yield export_format.encode_line(ExportHeader(format=FORMAT, program=__version__))
    count = 0
    for kind in export_format.RECORD_TYPES:
        last_id = 0
        while page := await db.read(
            lambda tx, kind, last_id: tx.memory.read_export_page(kind, export_scope, after=last_id, limit=PAGE),
            kind,
            last_id,
        ):
            yield b"".join(export_format.encode_line(record) for _, record in page)
            last_id, count = page[-1][0], count + len(page)
    yield export_format.encode_line(ExportEnd(records=count))
