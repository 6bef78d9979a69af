"""Routes of the review: the memories whose code has changed, or that a later one contradicts, and a person's word."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from claude_mem.domain import ids
from claude_mem.domain.errors import InvalidRequest
from claude_mem.domain.text import make_storable
from claude_mem.domain.validity import TO_REVIEW
from claude_mem.inject import freshness
from claude_mem.storage.sqlite.memory import observations, projects, validity
from claude_mem.system import project_folders
from claude_mem.worker.app import Service
from claude_mem.worker.http.params import (
    id_param,
    int_query,
    path_id,
    read_json_body,
    require_user,
    validities_param,
)


async def list_changed(service: Service, request: Request) -> Any:
    """What changed under the memories, newest first: `limit` (1–100), `offset`, `project`, `project_id` or `cwd`,
    `validity` (default: superseded, outdated, gone; `changed`: all that changed) → `{items, counts, hasMore, offset,
    limit}`. An item is an observation with its `successor`, and when the change was seen at which commit (`head`)."""
    params = dict(request.query_params)
    limit, offset = int_query(request, "limit", 20, low=1, high=100), int_query(request, "offset", 0)
    project_ids = await _find_projects(service, params)
    validities = validities_param(params) or TO_REVIEW
    rows = await service.db.read(validity.list_changed, project_ids, validities, limit=limit + 1, offset=offset)
    counts = await service.db.read(validity.count_changed, project_ids)
    return {"items": rows[:limit], "counts": counts, "hasMore": len(rows) > limit, "offset": offset, "limit": limit}


async def look_again(service: Service, request: Request) -> Any:
    """Look at the code that a project's memories speak of: `{project}`, `{project_id}` or `{cwd}` → `{changed}`."""
    body = await read_json_body(request)
    params = {name: str(body[name]) for name in ("project", "project_id", "cwd") if body.get(name)}
    project_ids = await _find_projects(service, params)
    if project_ids is None:
        raise InvalidRequest("`project`, `project_id` or `cwd` is missing", hint="look at one project at a time")
    changed = 0
    for project_id in project_ids:
        row = await service.db.read(projects.get_project_row, project_id)
        changed += await freshness.refresh_project(service.db, project_id, row["root"] or "")
    return {"changed": changed}


async def _find_projects(service: Service, params: dict[str, str]) -> list[int] | None:
    """Return the projects of a request; None if it names none."""
    if params.get("project_id"):
        return [id_param(params, "project_id")]
    if params.get("project"):
        return await service.db.read(projects.list_project_ids_by_name, make_storable(params["project"]))
    if not params.get("cwd"):
        return None
    folder = await project_folders.identify_project_in_thread(params["cwd"], excluded=service.config.excluded_projects)
    project_id = await service.db.read(projects.find_project_id, folder)
    return [project_id] if project_id else []


async def keep(service: Service, request: Request) -> Any:
    """POST records that a person says that it holds: it is injected again until its code changes again, and nothing
    supersedes it. DELETE takes that back."""
    require_user(request)
    row_id, now = path_id(request), ids.now_ms()
    if request.method == "DELETE":
        row = await service.db.write(validity.withdraw_confirmation, row_id, now=now)
    else:
        before = await service.db.read(observations.get_memory, "observation", row_id)
        project = await service.db.read(projects.get_project_row, before["project_id"])
        # What is confirmed is the code as it is now; of a superseded observation it was not looked at any more.
        await freshness.refresh_observations(service.db, project["id"], project["root"] or "", [row_id])
        row = await service.db.write(validity.confirm, row_id, now=now)
    await service.recorder.record("judged", kind="observation", id=row_id, verdict=_VERDICTS[request.method])
    await service.publish_correction(row["project_id"], row_id=row_id)
    return row


_VERDICTS = {"POST": "kept", "DELETE": "not kept"}
