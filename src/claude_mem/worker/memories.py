"""Routes to list, read and save memories."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.requests import Request

from claude_mem import projects, rule_words
from claude_mem.errors import Misuse
from claude_mem.origins import USER
from claude_mem.records import Type
from claude_mem.store import events, observations, sessions, turns
from claude_mem.store import projects as project_rows
from claude_mem.store.database import Connection, Row
from claude_mem.text import first_sentence, storable
from claude_mem.worker.requests import Handler, body_of, is_id, number, persons_only, row_id, speaker, text_in
from claude_mem.worker.saving import keepable
from claude_mem.worker.service import Service


def listing(select: Callable[..., list[Row]]) -> Handler:
    async def handler(service: Service, request: Request) -> Any:
        """`limit` (1–100), `offset`, `project` → `{items, hasMore, offset, limit}`, newest first."""
        return await _list_page(service, request, select)

    return handler


async def list_observations(service: Service, request: Request) -> Any:
    """`limit` (1–100), `offset`, `project`, `type` → `{items, hasMore, offset, limit}`, newest first."""
    kind = request.query_params.get("type", "")
    if kind and kind not in service.icons:
        raise Misuse(f"there is no type {kind!r}", hint="use one of " + ", ".join(service.icons))
    return await _list_page(service, request, partial(observations.listing, kind="observation", type_=kind))


async def _list_page(service: Service, request: Request, select: Callable[..., list[Row]]) -> Any:
    limit, offset = number(request, "limit", 20, low=1, high=100), number(request, "offset", 0)
    project = request.query_params.get("project", "")
    rows = await service.db.read(select, limit=limit + 1, offset=offset, project=project)
    return {"items": rows[:limit], "hasMore": len(rows) > limit, "offset": offset, "limit": limit}


def single(kind: str) -> Handler:
    async def handler(service: Service, request: Request) -> Any:
        """One record in full."""
        return await service.db.read(observations.get, kind, row_id(request))

    return handler


async def show_session(service: Service, request: Request) -> Any:
    """A whole session: its turns, events, prompts, observations and summaries."""
    return await service.db.read(_session_details, row_id(request))


def _session_details(conn: Connection, session_id: int) -> Row:
    session = sessions.show(conn, session_id)
    return {
        **session,
        "turns": turns.listing(conn, session_id),
        "events": events.listing(conn, session_id),
        "prompts": observations.of_session(conn, "prompt", session_id),
        "observations": observations.of_session(conn, "observation", session_id),
        "summaries": observations.of_session(conn, "summary", session_id),
    }


async def batch(service: Service, request: Request) -> Any:
    """Observations in full, in the order of the request: `{ids}`."""
    observation_ids = (await body_of(request)).get("ids")
    if (
        not isinstance(observation_ids, list)
        or len(observation_ids) > 200
        or not all(is_id(item) for item in observation_ids)
    ):
        raise Misuse("`ids` must be a list of at most 200 integers")
    return {"items": await service.db.read(observations.get_many, observation_ids)}


async def by_file(service: Service, request: Request) -> Any:
    """Observations about a file: `path`, `project` or `project_id`, `limit`."""
    path, name = request.query_params.get("path", ""), request.query_params.get("project", "")
    own_id = number(request, "project_id", 0)
    if not path or not (name or own_id):
        raise Misuse("`path` or `project` is missing", hint="/api/observations/by-file?project=NAME&path=src/x.py")
    limit = number(request, "limit", 20, low=1, high=100)
    await service.indexer.catch_up()
    rows: list[Row] = []
    for project_id in [own_id] if own_id else await service.db.read(project_rows.by_name, name):
        rows += await service.db.read(observations.by_file, project_id, storable(path), limit=limit)
    return {"items": rows[:limit]}


async def save_memory(service: Service, request: Request) -> Any:
    """Save a memory: `{text, title?, project? or cwd?, type?}`. The type `rule` makes it a rule, as does a user's text
    that consists of rules ("always …"); only the user can state one. `X-Claude-Mem-By: agent` marks an agent's memory,
    which needs approval if external text was read just before, in any folder."""
    body = await body_of(request)
    by, kind = speaker(request), _saved_type(request, text_in(body, "type", limit=40))
    name, cwd = text_in(body, "project", limit=100), text_in(body, "cwd", limit=4096)
    project = projects.named(name or projects.GENERAL)
    if cwd and not name:
        project = await projects.resolve_off_loop(cwd, excluded=service.config.excluded_projects)
    if not project.enabled:
        raise Misuse("memory is switched off in this folder; nothing was saved", hint="name a `project`")
    text = keepable(text_in(body, "text", required=True, limit=20_000))
    if not text.strip():
        raise Misuse("the text is entirely private; nothing was saved")
    title = keepable(text_in(body, "title", limit=200)) or first_sentence(text, 100)
    kind = kind or (Type.RULE if by == USER and rule_words.is_all_rules(text) else Type.DISCOVERY)
    row_id, why = await service.save(project, title, text, by=by, type_=kind)
    return {"success": True, "id": row_id, "type": kind, "title": title, "project": project.name, "held": why}


def _saved_type(request: Request, type_name: str) -> str:
    """Return the requested type: `rule` or ""."""
    if type_name not in ("", Type.RULE):
        raise Misuse(f"the type {type_name!r} cannot be saved", hint="use `rule`, or leave `type` out")
    if type_name:
        persons_only(request)
    return type_name
