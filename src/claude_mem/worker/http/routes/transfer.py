"""Routes for back-fill, reprocessing, import, export and backup. Paths named by a client are read, never written."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

from claude_mem.curate import refine_on_demand, reprocess
from claude_mem.domain import ids
from claude_mem.domain.errors import InvalidRequest, NotFound
from claude_mem.domain.text import make_storable
from claude_mem.storage.sqlite import backup
from claude_mem.storage.sqlite.journal import backfills, imports, notices, reprocessing
from claude_mem.storage.sqlite.memory import projects
from claude_mem.system import project_folders
from claude_mem.transfer import export, import_
from claude_mem.worker.app import Service
from claude_mem.worker.http.params import date_param, path_id, read_json_body, str_field

# --- back-fill --------------------------------------------------------------------------------------------------------


async def start_backfill(service: Service, request: Request) -> Any:
    """Back-fill from transcripts, each once: `{path}` or `{paths}`, absolute paths on this machine."""
    body = await read_json_body(request)
    paths = [Path(str_field(body, "path", limit=4096))] if body.get("path") else _paths(body)
    if body.get("path") and not (paths[0].is_absolute() and paths[0].is_file()):
        raise NotFound(f"there is no file {paths[0]}", hint="give the absolute path of a transcript")
    return {"status": "queued", **await service.backfill(paths)}


async def show_backfill(service: Service, _: Request) -> Any:
    """Progress of the latest back-fill: files, bytes, counts of `new` rows, whether it is `busy`, and errors."""
    return await service.db.read(backfills.get_backfill_progress)


async def cancel_backfill(service: Service, _: Request) -> Any:
    """Cancel: skip files that have not been started. Started files are finished."""
    return {"dropped": await service.db.write(backfills.cancel_unread_transcripts)}


async def list_unchanged(service: Service, request: Request) -> Any:
    """List which of these files (`{paths}`) were read before and have not changed."""
    files = list(backfills.stat_transcripts(_paths(await read_json_body(request))))
    return {"unchanged": await service.db.read(backfills.list_unchanged_transcripts, files)}


async def refine_backfill(service: Service, request: Request) -> Any:
    """Refine the turns of back-filled transcripts (`{paths}`) with a model, within the caps; with `dry_run` only
    estimate the cost."""
    body = await read_json_body(request)
    paths = [str(path) for path in _paths(body)]
    if body.get("dry_run") is True:
        return await refine_on_demand.estimate_cost(service.refiner, paths)
    result = await refine_on_demand.enqueue_turns(service.refiner, paths)
    service.refine_runner.wake.set()
    return result


def _paths(body: dict[str, Any]) -> list[Path]:
    paths = body.get("paths")
    if not isinstance(paths, list) or not all(isinstance(path, str) and path.startswith("/") for path in paths):
        raise InvalidRequest("`paths` must be a list of absolute paths")
    return [Path(make_storable(path)[:4096]) for path in paths]


# --- reprocessing -----------------------------------------------------------------------------------------------------


async def start_reprocess(service: Service, request: Request) -> Any:
    """Reprocess memories of earlier versions: `{project? or cwd?, since?, dry_run?}` → how many turns are `rewritable`,
    how many stay as they are (`events_gone`, `a_persons`, `a_models`), and how many jobs were enqueued (`asked`)."""
    body = await read_json_body(request)
    selection = await _reprocess_selection(service, body)
    if body.get("dry_run") is True:
        return {**await reprocess.count_reprocessable(service.db, selection), "asked": 0}
    return await service.reprocess(selection)


async def _reprocess_selection(service: Service, params: dict[str, Any]) -> reprocessing.ReprocessFilter:
    since = date_param({"since": str_field(params, "since", limit=40)}, "since")
    return reprocessing.ReprocessFilter(project_ids=await _project_ids(service, params), since=since)


async def _project_ids(service: Service, body: dict[str, Any]) -> tuple[int, ...] | None:
    """Return the projects named by name or folder, or None if neither is given."""
    name, cwd = str_field(body, "project", limit=200), str_field(body, "cwd", limit=4096)
    if not name and not cwd:
        return None
    if name:
        project_ids = await service.db.read(projects.list_project_ids_by_name, name)
    else:
        place = await project_folders.identify_project_in_thread(cwd, excluded=service.config.excluded_projects)
        project_id = await service.db.read(projects.find_project_id, place)
        project_ids = [project_id] if project_id else []
    if not project_ids:
        raise NotFound(f"there is no project {name or cwd!r}", hint="`claude-mem list projects` shows the projects")
    return tuple(project_ids)


async def show_reprocess(service: Service, request: Request) -> Any:
    """Progress of reprocessing for the same `project` or `cwd` and `since`: turns `left` and `failed`."""
    return await service.db.read(
        reprocessing.get_reprocess_progress, await _reprocess_selection(service, dict(request.query_params))
    )


# --- export, import and backup ---------------------------------------------------------------------------------------


async def export_memories(service: Service, request: Request) -> Any:
    """Export all memories as JSON Lines; `project`, `query`, `since` and `until` limit them."""
    params = request.query_params
    scope = await export.resolve_scope(
        service.db,
        service.indexer,
        project=make_storable(params.get("project", "")),
        query=make_storable(params.get("query", "")),
        since=date_param(dict(params), "since"),
        until=date_param(dict(params), "until", end=True),
    )
    await service.recorder.record("exported", whole=scope.whole)
    return StreamingResponse(export.export_lines(service.db, scope), media_type="application/x-ndjson")


async def start_import(service: Service, request: Request) -> Any:
    """Import an export or an older database: `{path, project?, untrusted?, dry_run?}` → `{id, source}`."""
    body = await read_json_body(request)
    path = Path(str_field(body, "path", required=True, limit=4096))
    if not path.is_absolute() or not path.is_file():
        raise NotFound(f"there is no file {path}", hint="give the absolute path of a file on this machine")
    source = await asyncio.to_thread(import_.detect_source, path)
    import_id = await service.db.write(
        imports.create_import,
        path,
        source=source,
        project=str_field(body, "project", limit=200),
        untrusted=body.get("untrusted") is True,
        dry_run=body.get("dry_run") is True,
        now=ids.now_ms(),
    )
    service.runner.wake.set()
    await service.recorder.record("imported", number=import_id, source=source, untrusted=body.get("untrusted") is True)
    return {"id": import_id, "source": source}


async def show_import(service: Service, request: Request) -> Any:
    """Progress or result of an import."""
    import_ = await service.db.read(imports.get_import, path_id(request))
    failure = await service.db.read(imports.find_import_error, import_.id) if import_.ended_at is None else None
    return {**asdict(import_), "error": import_.error or failure}


async def list_backups(service: Service, _: Request) -> Any:
    """All backups, newest first, each with its `drill`: when a test restore was done, and its result."""
    drills = await service.db.read(notices.list_drills)
    backups = await asyncio.to_thread(backup.list_backup_files, service.config.backups)
    return [{**row, "drill": drills.get(row["name"])} for row in backups]


async def create_backup(service: Service, request: Request) -> Any:
    """Back up the database to `backups/`: `{digest?}` → its path and row counts."""
    digest = (await read_json_body(request)).get("digest") is True
    folder = service.config.backups
    async with service.deletion_service.lock:  # a copy made during an erase would still contain what is erased
        copy = await asyncio.to_thread(backup.write_backup, service.db.path, folder, digest=digest)
    await service.recorder.record("copied", bytes=copy.size)
    return asdict(copy)
