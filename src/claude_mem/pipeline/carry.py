"""Exports memory as lines, one page at a time, so that no read transaction stays open."""

from __future__ import annotations

from collections.abc import AsyncIterator

from claude_mem import __version__, portable
from claude_mem.errors import NotFound
from claude_mem.pipeline import recall
from claude_mem.pipeline.index import Indexer
from claude_mem.portable import FORMAT, End, Header
from claude_mem.store import portable as rows
from claude_mem.store import projects
from claude_mem.store.database import Database
from claude_mem.store.portable import Scope
from claude_mem.store.search import Filter

PAGE = 500
MOST_HITS = 1_000


async def scope(
    db: Database, indexer: Indexer, *, project: str, query: str, since: int | None, until: int | None
) -> Scope:
    """Return the rows to export. With a query, these are the rows that a search finds."""
    project_ids = tuple(await db.read(projects.by_name, project)) if project else None
    if project_ids == ():
        raise NotFound(f"there is no project {project!r}", hint="`claude-mem list projects` shows all projects")
    picked = None
    if query.strip():
        await indexer.catch_up()
        where = Filter(project_ids=project_ids, since=since, until=until)
        picked = await _matching_row_ids(db, indexer, recall.Question(text=query, where=where, limit=MOST_HITS))
    return await db.read(rows.scope, project_ids=project_ids, since=since, until=until, picked=picked)


async def _matching_row_ids(db: Database, indexer: Indexer, question: recall.Question) -> dict[str, tuple[int, ...]]:
    """Return the ids of the rows a search finds, by kind. A turn stands for everything remembered about it."""
    hits = await recall.find(db, indexer, question)
    row_ids = await db.read(rows.of_turns, [hit.id for hit in hits if hit.kind == "turn"])
    for hit in hits:
        if hit.kind in row_ids:
            row_ids[hit.kind].append(hit.id)
    return {kind: tuple(sorted(set(ids))) for kind, ids in row_ids.items()}


async def lines(db: Database, export_scope: Scope) -> AsyncIterator[bytes]:
    """Yield the lines of an export, from its header to its end record."""
    yield portable.line(Header(format=FORMAT, program=__version__))
    count = 0
    for kind in portable.KINDS:
        last_id = 0
        while page := await db.read(rows.page, kind, export_scope, after=last_id, limit=PAGE):
            yield b"".join(portable.line(record) for _, record in page)
            last_id, count = page[-1][0], count + len(page)
    yield portable.line(End(records=count))
