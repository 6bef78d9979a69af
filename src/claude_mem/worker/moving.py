"""Routes for back-fill, reprocessing, import, export and backup. Paths named by a client are read, never written."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

from claude_mem import ids, projects
from claude_mem.errors import Misuse, NotFound
from claude_mem.pipeline import bring, carry, hindsight
from claude_mem.store import backfills, backup, checks, imports, rewrites
from claude_mem.store import projects as project_rows
from claude_mem.text import storable
from claude_mem.worker.requests import body_of, date_of, row_id, text_in
from claude_mem.worker.service import Service

# --- back-fill --------------------------------------------------------------------------------------------------------


async def ask_backfill(service: Service, request: Request) -> Any:
    """Back-fill from transcripts, each once: `{path}` or `{paths}`, absolute paths on this machine."""
    body = await body_of(request)
    paths = [Path(text_in(body, "path", limit=4096))] if body.get("path") else _paths(body)
    if body.get("path") and not (paths[0].is_absolute() and paths[0].is_file()):
        raise NotFound(f"there is no file {paths[0]}", hint="give the absolute path of a transcript")
    return {"status": "queued", **await service.backfill(paths)}


async def show_backfill(service: Service, _: Request) -> Any:
    """Progress of the latest back-fill: files, bytes, counts of `new` rows, whether it is `busy`, and errors."""
    return await service.db.read(backfills.progress)


async def drop_backfill(service: Service, _: Request) -> Any:
    """Cancel: skip files that have not been started. Started files are finished."""
    return {"dropped": await service.db.write(backfills.drop)}


async def look_backfill(service: Service, request: Request) -> Any:
    """List which of these files (`{paths}`) were read before and have not changed."""
    files = list(backfills.look(_paths(await body_of(request))))
    return {"unchanged": await service.db.read(backfills.unchanged, files)}


async def refine_backfill(service: Service, request: Request) -> Any:
    """Refine the turns of back-filled transcripts (`{paths}`) with a model, within the caps; with `dry_run` only
    estimate the cost."""
    body = await body_of(request)
    paths = [str(path) for path in _paths(body)]
    if body.get("dry_run") is True:
        return await hindsight.estimate(service.refiner, paths)
    result = await hindsight.ask(service.refiner, paths)
    service.refine_runner.wake.set()
    return result


def _paths(body: dict[str, Any]) -> list[Path]:
    paths = body.get("paths")
    if not isinstance(paths, list) or not all(isinstance(path, str) and path.startswith("/") for path in paths):
        raise Misuse("`paths` must be a list of absolute paths")
    return [Path(storable(path)[:4096]) for path in paths]


# --- reprocessing -----------------------------------------------------------------------------------------------------


async def ask_reprocess(service: Service, request: Request) -> Any:
    """Reprocess memories of earlier versions: `{project? or cwd?, since?, dry_run?}` → how many turns are `rewritable`,
    how many stay as they are (`events_gone`, `a_persons`, `a_models`), and how many jobs were enqueued (`asked`)."""
    body = await body_of(request)
    selection = await _reprocess_selection(service, body)
    if body.get("dry_run") is True:
        return {**await service.rewritable(selection), "asked": 0}
    return await service.reprocess(selection)


async def _reprocess_selection(service: Service, params: dict[str, Any]) -> rewrites.Wanted:
    since = date_of({"since": text_in(params, "since", limit=40)}, "since")
    return rewrites.Wanted(project_ids=await _project_ids(service, params), since=since)


async def _project_ids(service: Service, body: dict[str, Any]) -> tuple[int, ...] | None:
    """Return the projects named by name or folder, or None if neither is given."""
    name, cwd = text_in(body, "project", limit=200), text_in(body, "cwd", limit=4096)
    if not name and not cwd:
        return None
    if name:
        project_ids = await service.db.read(project_rows.by_name, name)
    else:
        place = await projects.resolve_off_loop(cwd, excluded=service.config.excluded_projects)
        project_id = await service.db.read(project_rows.find, place)
        project_ids = [project_id] if project_id else []
    if not project_ids:
        raise NotFound(f"there is no project {name or cwd!r}", hint="`claude-mem list projects` shows the projects")
    return tuple(project_ids)


async def show_reprocess(service: Service, request: Request) -> Any:
    """Progress of reprocessing for the same `project` or `cwd` and `since`: turns `left` and `failed`."""
    return await service.db.read(rewrites.progress, await _reprocess_selection(service, dict(request.query_params)))


# --- transfer ---------------------------------------------------------------------------------------------------------


async def export_memories(service: Service, request: Request) -> Any:
    """Export all memories as JSON Lines; `project`, `query`, `since` and `until` limit them."""
    params = request.query_params
    scope = await carry.scope(
        service.db,
        service.indexer,
        project=storable(params.get("project", "")),
        query=storable(params.get("query", "")),
        since=date_of(dict(params), "since"),
        until=date_of(dict(params), "until", end=True),
    )
    await service.record("exported", whole=scope.whole)
    return StreamingResponse(carry.lines(service.db, scope), media_type="application/x-ndjson")


async def ask_import(service: Service, request: Request) -> Any:
    """Import an export or an older database: `{path, project?, untrusted?, dry_run?}` → `{id, source}`."""
    body = await body_of(request)
    path = Path(text_in(body, "path", required=True, limit=4096))
    if not path.is_absolute() or not path.is_file():
        raise NotFound(f"there is no file {path}", hint="give the absolute path of a file on this machine")
    source = await asyncio.to_thread(bring.recognise, path)
    import_id = await service.db.write(
        imports.start,
        path,
        source=source,
        project=text_in(body, "project", limit=200),
        untrusted=body.get("untrusted") is True,
        dry_run=body.get("dry_run") is True,
        now=ids.now(),
    )
    service.runner.wake.set()
    await service.record("imported", number=import_id, source=source, untrusted=body.get("untrusted") is True)
    return {"id": import_id, "source": source}


async def show_import(service: Service, request: Request) -> Any:
    """Progress or result of an import."""
    import_ = await service.db.read(imports.get, row_id(request))
    failure = await service.db.read(imports.given_up, import_.id) if import_.ended_at is None else None
    return {**asdict(import_), "error": import_.error or failure}


async def list_backups(service: Service, _: Request) -> Any:
    """All backups, newest first, each with its `drill`: when a test restore was done, and its result."""
    drills = await service.db.read(checks.drills)
    backups = await asyncio.to_thread(backup.listing, service.config.backups)
    return [{**row, "drill": drills.get(row["name"])} for row in backups]


async def make_backup(service: Service, request: Request) -> Any:
    """Back up the database to `backups/`: `{digest?}` → its path and row counts."""
    digest = (await body_of(request)).get("digest") is True
    folder = service.config.backups
    async with service.forgetter.lock:  # a copy made during an erase would still contain what is erased
        copy = await asyncio.to_thread(backup.make, service.db.path, folder, digest=digest)
    await service.record("copied", bytes=copy.size)
    return asdict(copy)
