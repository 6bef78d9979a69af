"""Routes of one project: its memory and aliases, merging, switching it on and off, its next start context, and the
external sources the user trusts in it. Agents cannot change the trusted sources.
"""

from __future__ import annotations

import asyncio
import glob
from collections.abc import Sequence
from datetime import date
from pathlib import PurePath
from typing import Any

from msgspec.structs import asdict
from starlette.requests import Request

from claude_mem.config import Config, validate
from claude_mem.domain import ids
from claude_mem.domain.errors import InvalidRequest, OperationFailed
from claude_mem.domain.text import MAX_TIME_MS, estimate_tokens, make_storable
from claude_mem.inject import brief, render
from claude_mem.privacy import trust
from claude_mem.storage.sqlite.engine import Connection, Row
from claude_mem.storage.sqlite.memory import browse, edits, observations, projects, trusted_sources
from claude_mem.system import project_folders
from claude_mem.worker.app import Service
from claude_mem.worker.http.params import (
    date_param,
    id_param,
    int_query,
    is_id,
    path_id,
    read_json_body,
    require_user,
    str_field,
)
from claude_mem.worker.http.route import encode
from claude_mem.worker.http.routes import settings

MAX_CHECKED_FOLDERS = 200  # that are checked on disk
MAX_SOURCE_CHARS = 100
_DAY = 86_400_000
_ALIAS_LABELS = {
    "git": "git folder",
    "made": "git folder, wherever it is",
    "remote": "remote",
    "dir": "folder",
    "name": "name",
    "older": "name in an older claude-mem",
}


async def list_projects(service: Service, request: Request) -> Any:
    """All projects with counts of sessions and observations. With a folder `cwd`, `here` is `{id, related}`: its
    project, and other projects with the `same` remote or first commit, each with the `command` that merges them."""
    items = await service.db.read(projects.list_projects_with_counts)
    project = await _identify_project(service, request.query_params.get("cwd", ""))
    return {
        "items": items,
        "here": await service.db.read(projects.describe_project_here, project) if project else None,
    }


async def _identify_project(service: Service, cwd: str) -> project_folders.ResolvedProject | None:
    """Return the project of a folder, or None without an absolute path."""
    if not cwd.startswith("/"):
        return None
    return await project_folders.identify_project_in_thread(cwd, excluded=service.config.excluded_projects)


async def show_project(service: Service, request: Request) -> Any:
    """A project: name, root, `aliases` (by which it is recognized), `folders`, `counts`, `first_at`, `last_at`,
    `agents`, `switch` (whether it is `on`, and what turns it off where), `open` steps, its `last_summary`, and
    `related` projects: those with the `same` remote or first commit, each with the `command` that merges the two."""
    project = await service.db.read(_read_project, path_id(request), limit=service.config.context_observations)
    switch = await asyncio.to_thread(_describe_switch, project, service.config.excluded_projects)
    return {**project, "switch": switch}


def _read_project(conn: Connection, project_id: int, *, limit: int) -> Row:
    project = projects.get_project_row(conn, project_id)
    memory = brief.gather_memory(conn, [project_id], limit=limit)
    return {
        **project,
        "aliases": [_describe_alias(identity) for identity in projects.list_project_aliases(conn, project_id)],
        "folders": projects.list_project_folders(conn, project_id),
        **browse.get_project_totals(conn, project_id),
        "open": memory.open if memory else [],
        "last_summary": memory.summary if memory else None,
        "related": projects.list_related_projects(conn, project_id),
    }


def _describe_alias(identity: str) -> Row:
    kind, _, value = identity.partition(":")
    return {"identity": identity, "kind": _ALIAS_LABELS.get(kind, kind), "what": value}


# --- by file, day, session -------------------------------------------------------------------------------------------


async def list_files(service: Service, request: Request) -> Any:
    """One level of the tree of files with memories: `under` (a folder, as in an item's `path`) → `{items, under}`, with
    the number of `files` in folders, of memories that `edited` and `read` them, and the time of the newest."""
    project_id, under = path_id(request), make_storable(request.query_params.get("under", ""))
    if under and not under.endswith("/"):
        raise InvalidRequest("`under` must be a folder", hint="end it with a slash: src/")
    await service.indexer.catch_up()
    await service.db.read(projects.get_project_row, project_id)
    return {"items": await service.db.read(browse.list_known_files, project_id, under), "under": under}


async def list_days(service: Service, request: Request) -> Any:
    """Counts of observations, sessions and turns for each local day of a `year` (default: the current one)."""
    project_id, year = path_id(request), int_query(request, "year", date.today().year, low=1971, high=2099)
    await service.db.read(projects.get_project_row, project_id)
    return {"items": await service.db.read(browse.list_active_days, project_id, year), "year": year}


async def list_session_lanes(service: Service, request: Request) -> Any:
    """Sessions between `from` and `to` (default: the last 30 days), newest first: `limit` (1–500), `offset` → `{items,
    hasMore}`."""
    project_id, params = path_id(request), dict(request.query_params)
    limit, offset = int_query(request, "limit", 100, low=1, high=500), int_query(request, "offset", 0)
    until = date_param(params, "to", end=True) or MAX_TIME_MS
    since = date_param(params, "from")
    if since is None:
        since = min(until, ids.now_ms()) - 30 * _DAY
    await service.db.read(projects.get_project_row, project_id)
    query = {"since": since, "until": until, "limit": limit + 1, "offset": offset}
    rows = await service.db.read(browse.list_sessions_in_range, project_id, **query)
    more = {"hasMore": len(rows) > limit, "offset": offset, "limit": limit}
    return {"items": rows[:limit], **more, "from": since, "to": min(until, max(ids.now_ms(), since))}


# --- renaming and merging ---------------------------------------------------------------------------------------------


async def rename(service: Service, request: Request) -> Any:
    """Rename the project: `{name}`. It is still recognized by its aliases."""
    name = str_field(await read_json_body(request), "name", required=True).strip()
    if len(name) > 100 or not name.isprintable():
        raise InvalidRequest("the name is invalid", hint="use one line of at most 100 characters")
    project = await service.db.write(projects.rename_project, path_id(request), name)
    await service.enqueue_renders([project["id"]])
    return project


async def merge(service: Service, request: Request) -> Any:
    """Merge two projects: `{into: ID}` or `{from: ID}` → what `moves`. The target gets all rows and aliases of the
    source. `?dry_run=1` only shows what would move."""
    own, body = path_id(request), await read_json_body(request)
    directions = [name for name in ("into", "from") if is_id(body.get(name))]
    if len(directions) != 1:
        raise InvalidRequest("`into` or `from` is missing", hint='send {"into": ID} or {"from": ID}')
    other = int(body[directions[0]])
    source, target = (own, other) if directions == ["into"] else (other, own)
    if request.query_params.get("dry_run", "") in ("1", "true", "yes"):
        return {**await service.db.read(projects.preview_project_merge, source, target), "dry_run": True}
    return {**await service.merge_projects(source, target), "dry_run": False}


# --- on and off ------------------------------------------------------------------------------------------------------


def _describe_switch(project: Row, excluded: tuple[str, ...]) -> Row:
    """Return whether the project is on, and for each folder that is off the setting or file that turns it off."""
    folders = _folders(project)[:MAX_CHECKED_FOLDERS]
    reasons = [(folder, project_folders.disabled_reason(folder, excluded)) for folder in folders]
    off = [{"folder": folder, "by": why[0], "what": why[1]} for folder, why in reasons if why]
    return {"on": not folders or len(off) < len(folders), "off": off, "folders": len(folders)}


def _folders(project: Row) -> list[str]:
    """Return the root and all other folders of its sessions."""
    return list(dict.fromkeys(folder for folder in (project["root"], *project["folders"]) if folder))


def _outermost(folders: Sequence[str]) -> list[str]:
    """Drop folders inside another one of the list: excluding a folder excludes its subfolders."""
    folder_set = set(folders)
    return [folder for folder in folders if not folder_set & {str(parent) for parent in PurePath(folder).parents}]


async def turn_off(service: Service, request: Request) -> Any:
    """Stop capturing and injecting in its folders by adding them to `excluded_projects`. Existing memory stays."""
    project = await service.db.read(_read_with_folders, path_id(request))
    if not _folders(project):
        raise OperationFailed("this project has no folder to switch off", hint="it is known by name only")
    excluded = await _load_excluded(service)
    to_exclude = [
        folder for folder in _outermost(_folders(project)) if not project_folders.is_excluded(folder, excluded)
    ]
    return await _store_excluded(service, project, (*excluded, *(glob.escape(folder) for folder in to_exclude)))


async def turn_on(service: Service, request: Request) -> Any:
    """Remove its folders from `excluded_projects`. A wider pattern or a file may still turn it off; `switch` names
    it."""
    project = await service.db.read(_read_with_folders, path_id(request))
    own = {f"{glob.escape(folder)}{end}" for folder in _folders(project) for end in ("", "/", "/**")}
    patterns = tuple(pattern for pattern in await _load_excluded(service) if pattern not in own)
    return await _store_excluded(service, project, patterns)


async def _load_excluded(service: Service) -> tuple[str, ...]:
    """Read the setting from the file: it may have been changed since the worker was started."""
    return (await settings.load_settings(service)).config.excluded_projects


async def _store_excluded(service: Service, project: Row, globs: tuple[str, ...]) -> Any:
    answer, config = await settings.store_settings(service, {"excluded_projects": list(globs)}, by_token=False)
    await render.write_briefs(project["id"], db=service.db, config=config, icons=service.icons)
    switch = await asyncio.to_thread(_describe_switch, project, config.excluded_projects)
    reply = settings.respond_and_restart(service, answer)
    return encode({**asdict(answer), "switch": switch}, then=reply.then)


# --- next start context ----------------------------------------------------------------------------------------------


async def preview_context(service: Service, request: Request) -> Any:
    """The exact start context of the next session of this project; `context_tokens` and `context_observations` try
    other values → `{text, tokens, room, told, settings, switch}`."""
    project_id, stored = path_id(request), service.config
    budget = _trial_value(request, stored, "context_tokens")
    most = _trial_value(request, stored, "context_observations")
    project = await service.db.read(_read_with_folders, project_id)
    start = await service.context_service.compose_start(project_id, project["name"], budget=budget, limit=most)
    return {
        "project": {"id": project_id, "name": project["name"]},
        "text": start.text,
        "tokens": estimate_tokens(start.text),
        "room": budget - estimate_tokens(start.text),
        "told": await service.db.read(_read_injected_items, start.item_names),
        "settings": {"context_tokens": budget, "context_observations": most},
        "stored": {name: getattr(stored, name) for name in ("context_tokens", "context_observations")},
        "switch": await asyncio.to_thread(_describe_switch, project, stored.excluded_projects),
    }


def _read_with_folders(conn: Connection, project_id: int) -> Row:
    return {
        **projects.get_project_row(conn, project_id),
        "folders": projects.list_project_folders(conn, project_id),
    }


def _trial_value(request: Request, config: Config, name: str) -> int:
    raw = request.query_params.get(name)
    stored: int = getattr(config, name)
    return int(validate(name, int_query(request, name, stored), "this value")) if raw else stored


def _read_injected_items(conn: Connection, injection_ids: Sequence[str]) -> list[Row]:
    """Return the rows behind the ids of an injection: `o12` is an observation, `s5` a summary."""
    observation_ids = [int(name[1:]) for name in injection_ids if name.startswith("o")]
    items: list[Row] = [
        {"kind": "observation", "id": row["id"], "title": row["title"]}
        for row in observations.load_observations(conn, observation_ids)
    ]
    for name in injection_ids:
        if name.startswith("s"):
            row = observations.get_memory(conn, "summary", int(name[1:]))
            title = row["completed"] or row["request"]
            items.append({"kind": "summary", "id": row["id"], "title": title, "session_id": row["session_id"]})
    return items


# --- trusted sources -------------------------------------------------------------------------------------------------


async def list_trusted(service: Service, _: Request) -> Any:
    """The trusted sources → `{items}`, each with its project."""
    return {"items": await service.db.read(trusted_sources.list_trusted_sources)}


async def trust_source(service: Service, request: Request) -> Any:
    """Trust a source in one project: `{project_id, source}` → `{source, approved}`, the number of memories approved.

    Only memories that rest on trusted sources alone are approved; suspect text still waits for approval."""
    require_user(request)
    body = await read_json_body(request)
    project_id: int = body.get("project_id", 0)
    if not is_id(project_id):
        raise InvalidRequest("`project_id` is missing", hint="`GET /api/projects` lists the ids")
    text = str_field(body, "source", required=True, limit=MAX_SOURCE_CHARS).strip()
    result = await service.db.write(_trust_source, project_id, text)
    await service.recorder.record("trusted", project=project_id, source=result["source"], count=result["approved"])
    await service.publish_correction(project_id)
    return result


def _trust_source(conn: Connection, project_id: int, text: str) -> Row:
    projects.get_project_row(conn, project_id)
    source, now = _canonical_source(conn, project_id, trust.normalize_source(text)), ids.now_ms()
    trusted_sources.add_trusted_source(conn, project_id, source, now=now)
    waiting = trusted_sources.list_approvable_items(conn, project_id)
    for kind, row_id in waiting:
        edits.set_verdict(conn, kind, row_id, "approved", now=now)
    return {"project_id": project_id, "source": source, "approved": len(waiting)}


def _canonical_source(conn: Connection, project_id: int, source: str) -> str:
    """Return `linear (MCP)` for `linear` if memories from that MCP server wait for approval."""
    server = f"{source} (MCP)"
    waiting = trusted_sources.list_pending_sources(conn, project_id)
    return server if source not in waiting and server in waiting else source


async def distrust_source(service: Service, request: Request) -> Any:
    """Stop trusting a source: `?project_id=&source=`. What was approved stays approved."""
    require_user(request)
    project_id = id_param(request.query_params, "project_id")
    source = trust.normalize_source(request.query_params.get("source", "")[:MAX_SOURCE_CHARS].strip())
    await service.db.write(trusted_sources.remove_trusted_source, project_id, source)
    await service.recorder.record("distrusted", project=project_id, source=source)
    return {"project_id": project_id, "source": source}
