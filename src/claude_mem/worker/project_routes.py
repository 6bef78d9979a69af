"""A project: what it knows and what it is known by, two made one, on and off, and what its next session is told."""

from __future__ import annotations

import asyncio
import glob
from collections.abc import Sequence
from datetime import date
from pathlib import PurePath
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from claude_mem import ids, projects
from claude_mem.config import Config, check
from claude_mem.errors import CannotDo, Misuse
from claude_mem.pipeline import context, render
from claude_mem.store import observations, overview
from claude_mem.store import projects as project_rows
from claude_mem.store.database import Connection, Row
from claude_mem.text import LATEST, storable, tokens
from claude_mem.worker import settings
from claude_mem.worker.requests import body_of, date_of, is_id, number, row_id, text_in
from claude_mem.worker.service import Service

MOST_FOLDERS = 200  # that are looked at on disk
_DAY = 86_400_000
_ALIAS_LABELS = {
    "git": "git folder",
    "made": "git folder, wherever it is",
    "remote": "remote",
    "dir": "folder",
    "name": "name",
    "older": "name in an older claude-mem",
}


async def show(service: Service, request: Request) -> Any:
    """A project: name, root, `aliases` (what it is recognised by), `folders`, `counts`, `first_at`, `last_at`,
    `agents`, `switch` (is it `on`, and what turns it off where), `open` next steps, its `last_summary`, and `related`
    projects: those that have the `same` remote or first commit, each with the `command` that makes the two one."""
    project = await service.db.read(_details, row_id(request), limit=service.config.context_observations)
    switch = await asyncio.to_thread(_switch, project, service.config.excluded_projects)
    return {**project, "switch": switch}


def _details(conn: Connection, project_id: int, *, limit: int) -> Row:
    project = project_rows.show(conn, project_id)
    memory = context.gather(conn, [project_id], limit=limit)
    return {
        **project,
        "aliases": [_describe_alias(identity) for identity in project_rows.aliases(conn, project_id)],
        "folders": project_rows.folders(conn, project_id),
        **overview.numbers(conn, project_id),
        "open": memory.open if memory else [],
        "last_summary": memory.summary if memory else None,
        "related": project_rows.related(conn, project_id),
    }


def _describe_alias(identity: str) -> Row:
    kind, _, value = identity.partition(":")
    return {"identity": identity, "kind": _ALIAS_LABELS.get(kind, kind), "what": value}


# --- by file, day, session -------------------------------------------------------------------------------------------


async def files(service: Service, request: Request) -> Any:
    """One level of the tree of files with memories: `under` (a folder, as in an item's `path`) → `{items, under}`: of
    folders how many `files`, of all how many memories `edited` and `read` them, and when the newest was."""
    project_id, under = row_id(request), storable(request.query_params.get("under", ""))
    if under and not under.endswith("/"):
        raise Misuse("`under` is a folder", hint="it ends with a slash: src/")
    await service.indexer.catch_up()
    await service.db.read(project_rows.show, project_id)
    return {"items": await service.db.read(overview.files, project_id, under), "under": under}


async def days(service: Service, request: Request) -> Any:
    """What was done on each day of a `year` (default: this one): observations, sessions and turns, by local date."""
    project_id, year = row_id(request), number(request, "year", date.today().year, low=1971, high=2099)
    await service.db.read(project_rows.show, project_id)
    return {"items": await service.db.read(overview.days, project_id, year), "year": year}


async def lanes(service: Service, request: Request) -> Any:
    """The sessions between `from` and `to` (default: the last 30 days), the latest first: `limit` (1–500), `offset` →
    `{items, hasMore}`."""
    project_id, params = row_id(request), dict(request.query_params)
    limit, offset = number(request, "limit", 100, low=1, high=500), number(request, "offset", 0)
    until = date_of(params, "to", end=True) or LATEST
    since = date_of(params, "from")
    if since is None:
        since = min(until, ids.now()) - 30 * _DAY
    await service.db.read(project_rows.show, project_id)
    query = {"since": since, "until": until, "limit": limit + 1, "offset": offset}
    rows = await service.db.read(overview.lanes, project_id, **query)
    more = {"hasMore": len(rows) > limit, "offset": offset, "limit": limit}
    return {"items": rows[:limit], **more, "from": since, "to": min(until, max(ids.now(), since))}


# --- one name, one project -------------------------------------------------------------------------------------------


async def rename(service: Service, request: Request) -> Any:
    """Give it another `{name}`. It is still recognised by its aliases."""
    name = text_in(await body_of(request), "name", required=True).strip()
    if len(name) > 100 or not name.isprintable():
        raise Misuse("that can't be a name", hint="one line of at most 100 characters")
    project = await service.db.write(project_rows.rename, row_id(request), name)
    await service.enqueue_renders([project["id"]])
    return project


async def merge(service: Service, request: Request) -> Any:
    """Make two projects one: `{into: ID}` or `{from: ID}` → what `moves`. Everything of the one becomes the other's,
    which is then known by the aliases of both. `?dry_run=1` only tells."""
    own, body = row_id(request), await body_of(request)
    directions = [name for name in ("into", "from") if is_id(body.get(name))]
    if len(directions) != 1:
        raise Misuse("which project?", hint='say {"into": ID} or {"from": ID}')
    other = int(body[directions[0]])
    source, target = (own, other) if directions == ["into"] else (other, own)
    if request.query_params.get("dry_run", "") in ("1", "true", "yes"):
        return {**await service.db.read(project_rows.would_move, source, target), "dry_run": True}
    return {**await service.merge_projects(source, target), "dry_run": False}


# --- on and off ------------------------------------------------------------------------------------------------------


def _switch(project: Row, excluded: tuple[str, ...]) -> Row:
    """Is anything remembered of it? Where not, what says so."""
    folders = _folders(project)[:MOST_FOLDERS]
    reasons = [(folder, projects.why_off(folder, excluded)) for folder in folders]
    off = [{"folder": folder, "by": why[0], "what": why[1]} for folder, why in reasons if why]
    return {"on": not folders or len(off) < len(folders), "off": off, "folders": len(folders)}


def _folders(project: Row) -> list[str]:
    """Where its sessions are: the root and whatever lies elsewhere."""
    return list(dict.fromkeys(folder for folder in (project["root"], *project["folders"]) if folder))


def _outermost(folders: Sequence[str]) -> list[str]:
    """Without those that lie in another of them: excluding a folder excludes what is in it."""
    folder_set = set(folders)
    return [folder for folder in folders if not folder_set & {str(parent) for parent in PurePath(folder).parents}]


async def turn_off(service: Service, request: Request) -> Any:
    """Remember nothing more in its folders, and tell nothing there: they are added to `excluded_projects`. What is
    remembered stays."""
    project = await service.db.read(_with_folders, row_id(request))
    if not _folders(project):
        raise CannotDo("this project has no folder that could be switched off", hint="it is known by name only")
    excluded = await _excluded(service)
    to_exclude = [folder for folder in _outermost(_folders(project)) if not projects.is_excluded(folder, excluded)]
    return await _exclude(service, project, (*excluded, *(glob.escape(folder) for folder in to_exclude)))


async def turn_on(service: Service, request: Request) -> Any:
    """Its folders are taken out of `excluded_projects`. A wider pattern there, or a file, may still turn it off: then
    `switch` says which."""
    project = await service.db.read(_with_folders, row_id(request))
    own = {f"{glob.escape(folder)}{end}" for folder in _folders(project) for end in ("", "/", "/**")}
    patterns = tuple(pattern for pattern in await _excluded(service) if pattern not in own)
    return await _exclude(service, project, patterns)


async def _excluded(service: Service) -> tuple[str, ...]:
    """As the file says it now: someone may have changed it since the worker was started."""
    return (await settings.loaded(service)).config.excluded_projects


async def _exclude(service: Service, project: Row, globs: tuple[str, ...]) -> Response:
    answer, config = await settings.store(service, {"excluded_projects": list(globs)}, by_token=False)
    await render.keep(project["id"], db=service.db, config=config, icons=service.icons)
    switch = await asyncio.to_thread(_switch, project, config.excluded_projects)
    return settings.then_anew(service, {**answer, "switch": switch})


# --- what the next session is told -----------------------------------------------------------------------------------


async def preview(service: Service, request: Request) -> Any:
    """What the next session of this project is told at its start, to the byte: `context_tokens` and
    `context_observations` try other values → `{text, tokens, room, told, settings, switch}`."""
    project_id, stored = row_id(request), service.config
    budget = _trial_value(request, stored, "context_tokens")
    most = _trial_value(request, stored, "context_observations")
    project = await service.db.read(_with_folders, project_id)
    start = await service.teller.compose_start(project_id, project["name"], budget=budget, limit=most)
    return {
        "project": {"id": project_id, "name": project["name"]},
        "text": start.text,
        "tokens": tokens(start.text),
        "room": budget - tokens(start.text),
        "told": await service.db.read(_injected_items, start.told),
        "settings": {"context_tokens": budget, "context_observations": most},
        "stored": {name: getattr(stored, name) for name in ("context_tokens", "context_observations")},
        "switch": await asyncio.to_thread(_switch, project, stored.excluded_projects),
    }


def _with_folders(conn: Connection, project_id: int) -> Row:
    return {**project_rows.show(conn, project_id), "folders": project_rows.folders(conn, project_id)}


def _trial_value(request: Request, config: Config, name: str) -> int:
    raw = request.query_params.get(name)
    stored: int = getattr(config, name)
    return int(check(name, number(request, name, stored), "this value")) if raw else stored


def _injected_items(conn: Connection, injection_ids: Sequence[str]) -> list[Row]:
    """What a text tells, by name: `o12` an observation, `s5` a summary."""
    observation_ids = [int(name[1:]) for name in injection_ids if name.startswith("o")]
    items: list[Row] = [
        {"kind": "observation", "id": row["id"], "title": row["title"]}
        for row in observations.get_many(conn, observation_ids)
    ]
    for name in injection_ids:
        if name.startswith("s"):
            row = observations.get(conn, "summary", int(name[1:]))
            title = row["completed"] or row["request"]
            items.append({"kind": "summary", "id": row["id"], "title": title, "session_id": row["session_id"]})
    return items
