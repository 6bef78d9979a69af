"""Routes to list, add and remove the external sources the user trusts in a project. Agents cannot change them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from claude_mem import ids, origins
from claude_mem.errors import Misuse
from claude_mem.store import corrections, projects, trusted
from claude_mem.store.database import Connection, Row
from claude_mem.worker.requests import body_of, is_id, persons_only, text_in, whole
from claude_mem.worker.service import Service

MOST_CHARS = 100


async def show(service: Service, _: Request) -> Any:
    """The trusted sources → `{items}`, each with its project."""
    return {"items": await service.db.read(trusted.listing)}


async def add(service: Service, request: Request) -> Any:
    """Trust a source in one project: `{project_id, source}` → `{source, approved}`, the number of memories approved.

    Only memories that rest on trusted sources alone are approved; suspect text still waits for approval."""
    persons_only(request)
    body = await body_of(request)
    project_id: int = body.get("project_id", 0)
    if not is_id(project_id):
        raise Misuse("`project_id` is missing", hint="`GET /api/projects` lists the ids")
    text = text_in(body, "source", required=True, limit=MOST_CHARS).strip()
    result = await service.db.write(_add, project_id, text)
    await service.record("trusted", project=project_id, source=result["source"], count=result["approved"])
    await service.publish_correction(project_id)
    return result


def _add(conn: Connection, project_id: int, text: str) -> Row:
    projects.show(conn, project_id)
    source, now = _canonical_source(conn, project_id, origins.source(text)), ids.now()
    trusted.add(conn, project_id, source, now=now)
    waiting = trusted.approvable(conn, project_id)
    for kind, row_id in waiting:
        corrections.judge(conn, kind, row_id, "approved", now=now)
    return {"project_id": project_id, "source": source, "approved": len(waiting)}


def _canonical_source(conn: Connection, project_id: int, source: str) -> str:
    """Return `linear (MCP)` for `linear` if memories from that MCP server wait for approval."""
    server = f"{source} (MCP)"
    waiting = trusted.waiting_sources(conn, project_id)
    return server if source not in waiting and server in waiting else source


async def remove(service: Service, request: Request) -> Any:
    """Stop trusting a source: `?project_id=&source=`. What was approved stays approved."""
    persons_only(request)
    project_id = whole(request.query_params, "project_id")
    source = origins.source(request.query_params.get("source", "")[:MOST_CHARS].strip())
    await service.db.write(trusted.remove, project_id, source)
    await service.record("distrusted", project=project_id, source=source)
    return {"project_id": project_id, "source": source}
