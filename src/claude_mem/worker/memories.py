"""What is remembered: listed, read, saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request

from claude_mem import projects
from claude_mem.errors import Misuse
from claude_mem.store import events, observations, sessions, turns
from claude_mem.store import projects as project_rows
from claude_mem.store.database import Connection, Row
from claude_mem.text import first_sentence, storable
from claude_mem.worker.requests import Handler, body_of, is_id, number, row_id, speaker, text_in
from claude_mem.worker.saving import keepable
from claude_mem.worker.service import Service


def listing(select: Callable[..., list[Row]]) -> Handler:
    async def handler(service: Service, request: Request) -> Any:
        """`limit` (1–100), `offset`, `project` → `{items, hasMore, offset, limit}`, newest first."""
        limit, offset = number(request, "limit", 20, low=1, high=100), number(request, "offset", 0)
        project = request.query_params.get("project", "")
        found = await service.db.read(select, limit=limit + 1, offset=offset, project=project)
        return {"items": found[:limit], "hasMore": len(found) > limit, "offset": offset, "limit": limit}

    return handler


def single(kind: str) -> Handler:
    async def handler(service: Service, request: Request) -> Any:
        """One of them, in full."""
        return await service.db.read(observations.get, kind, row_id(request))

    return handler


async def show_session(service: Service, request: Request) -> Any:
    """A whole session: its turns, events, prompts, observations and summaries."""
    return await service.db.read(_whole_session, row_id(request))


def _whole_session(conn: Connection, session_id: int) -> Row:
    found = sessions.show(conn, session_id)
    return {
        **found,
        "turns": turns.listing(conn, session_id),
        "events": events.listing(conn, session_id),
        "prompts": observations.of_session(conn, "prompt", session_id),
        "observations": observations.of_session(conn, "observation", session_id),
        "summaries": observations.of_session(conn, "summary", session_id),
    }


async def batch(service: Service, request: Request) -> Any:
    """Observations in full, in the order asked for: `{ids}`."""
    wanted = (await body_of(request)).get("ids")
    if not isinstance(wanted, list) or len(wanted) > 200 or not all(is_id(item) for item in wanted):
        raise Misuse("`ids` must be a list of at most 200 whole numbers")
    return {"items": await service.db.read(observations.get_many, wanted)}


async def by_file(service: Service, request: Request) -> Any:
    """What is known about a file: `path`, `project` or `project_id`, `limit`."""
    path, name = request.query_params.get("path", ""), request.query_params.get("project", "")
    own = number(request, "project_id", 0)
    if not path or not (name or own):
        raise Misuse("`path` or `project` is missing", hint="/api/observations/by-file?project=NAME&path=src/x.py")
    limit = number(request, "limit", 20, low=1, high=100)
    await service.indexer.catch_up()
    found: list[Row] = []
    for project_id in [own] if own else await service.db.read(project_rows.by_name, name):
        found += await service.db.read(observations.by_file, project_id, storable(path), limit=limit)
    return {"items": found[:limit]}


async def save_memory(service: Service, request: Request) -> Any:
    """Remember what a person says: `{text, title?, project? or cwd?}`. With `X-Claude-Mem-By: agent` it is an agent's
    word, which waits if something from outside was read just before, wherever: a command may be run in any folder."""
    body = await body_of(request)
    name, cwd = text_in(body, "project", limit=100), text_in(body, "cwd", limit=4096)
    project = projects.named(name or projects.GENERAL)
    if cwd and not name:
        project = await projects.resolve_off_loop(cwd, excluded=service.config.excluded_projects)
    if not project.enabled:
        raise Misuse("memory is switched off in this folder; nothing was kept", hint="name a `project`")
    text = keepable(text_in(body, "text", required=True, limit=20_000))
    if not text.strip():
        raise Misuse("all of it is private; nothing was kept")
    title = keepable(text_in(body, "title", limit=200)) or first_sentence(text, 100)
    row_id, why = await service.save(project, title, text, by=speaker(request))
    return {"success": True, "id": row_id, "title": title, "project": project.name, "held": why}
