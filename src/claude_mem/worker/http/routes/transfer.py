"""Routes for back-fill, reprocessing, import, export and backup. Paths named by a client are read, never written."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

from msgspec.structs import asdict
from starlette.responses import Response, StreamingResponse

from claude_mem.capture.backfill import stat_transcripts
from claude_mem.curate import refine_on_demand, reprocess
from claude_mem.domain import ids
from claude_mem.domain.errors import InvalidRequest, NotFound
from claude_mem.domain.reports import BackfillProgress, BackupCopy, ReprocessProgress, TurnsQueued
from claude_mem.storage.journal_records import ReprocessFilter
from claude_mem.system import project_folders
from claude_mem.transfer import export, import_
from claude_mem.worker.app import Service
from claude_mem.worker.http.endpoints import ById, NoFields
from claude_mem.worker.http.route import AnyRoute, Route
from claude_mem.worker.http.schemas.transfer import (
    CANCEL_BACKFILL,
    CREATE_BACKUP,
    EXPORT,
    LIST_BACKUPS,
    LIST_UNCHANGED,
    REFINE_BACKFILL,
    SHOW_BACKFILL,
    SHOW_IMPORT,
    SHOW_REPROCESS,
    START_BACKFILL,
    START_IMPORT,
    START_REPROCESS,
    BackfillQueued,
    BackfillRequest,
    BackupRequest,
    Cancelled,
    ExportQuery,
    ImportRequest,
    ImportStarted,
    ImportStatus,
    ListedBackup,
    RefineBackfill,
    ReprocessQuery,
    ReprocessQueued,
    ReprocessRequest,
    TranscriptPaths,
    Unchanged,
)

# --- back-fill --------------------------------------------------------------------------------------------------------


async def start_backfill(service: Service, request: BackfillRequest) -> BackfillQueued:
    """Back-fill from transcripts, each once: `{path}` or `{paths}`, absolute paths on this machine."""
    if request.path:
        path = Path(request.path)
        if not (path.is_absolute() and path.is_file()):
            raise NotFound(f"there is no file {path}", hint="give the absolute path of a transcript")
        paths = [path]
    elif request.paths is None:
        raise InvalidRequest("`paths` must be a list of absolute paths")
    else:
        paths = [Path(path) for path in request.paths]
    return BackfillQueued(**asdict(await service.backfill(paths)), status="queued")


async def show_backfill(service: Service, _: NoFields) -> BackfillProgress:
    """Progress of the latest back-fill: files, bytes, counts of `new` rows, whether it is `busy`, and errors."""
    return await service.db.read(lambda tx: tx.journal.get_backfill_progress())


async def cancel_backfill(service: Service, _: NoFields) -> Cancelled:
    """Cancel: skip files that have not been started. Started files are finished."""
    return Cancelled(await service.db.write(lambda tx: tx.journal.cancel_unread_transcripts()))


async def list_unchanged(service: Service, request: TranscriptPaths) -> Unchanged:
    """List which of these files (`{paths}`) were read before and have not changed."""
    files = list(stat_transcripts(Path(path) for path in request.paths))
    return Unchanged(await service.db.read(lambda tx: tx.journal.list_unchanged_transcripts(files)))


async def refine_backfill(service: Service, request: RefineBackfill) -> TurnsQueued:
    """Refine the turns of back-filled transcripts (`{paths}`) with a model, within the caps; with `dry_run` only
    estimate the cost."""
    if request.dry_run:
        return await refine_on_demand.estimate_cost(service.refiner, request.paths)
    count = await refine_on_demand.enqueue_turns(service.refiner, request.paths)
    service.refine_runner.wake.set()
    return TurnsQueued(count)


# --- reprocessing -----------------------------------------------------------------------------------------------------


async def start_reprocess(service: Service, request: ReprocessRequest) -> ReprocessQueued:
    """Reprocess memories of earlier versions: `{project? or cwd?, since?, dry_run?}` → how many turns are `rewritable`,
    how many stay as they are (`events_gone`, `a_persons`, `a_models`), and how many jobs were enqueued (`asked`)."""
    selection = await _reprocess_selection(service, request)
    if request.dry_run:
        counts, job_count = await reprocess.count_reprocessable(service.db, selection), 0
    else:
        counts, job_count = await service.reprocess(selection)
    return ReprocessQueued(**asdict(counts), asked=job_count)


async def _reprocess_selection(service: Service, request: ReprocessQuery) -> ReprocessFilter:
    project_ids = await _project_ids(service, request.project, request.cwd)
    return ReprocessFilter(project_ids=project_ids, since=request.since)


async def _project_ids(service: Service, name: str, cwd: str) -> tuple[int, ...] | None:
    """Return the projects named by name or folder, or None if neither is given."""
    if not name and not cwd:
        return None
    if name:
        project_ids = await service.db.read(lambda tx: tx.memory.list_project_ids_by_name(name))
    else:
        place = await project_folders.identify_project_in_thread(cwd, excluded=service.config.excluded_projects)
        project_id = await service.db.read(lambda tx: tx.memory.find_project_id(place))
        project_ids = [project_id] if project_id else []
    if not project_ids:
        raise NotFound(f"there is no project {name or cwd!r}", hint="`claude-mem list projects` shows the projects")
    return tuple(project_ids)


async def show_reprocess(service: Service, request: ReprocessQuery) -> ReprocessProgress:
    """Progress of reprocessing for the same `project` or `cwd` and `since`: turns `left` and `failed`."""
    selection = await _reprocess_selection(service, request)
    return await service.db.read(lambda tx: tx.journal.get_reprocess_progress(selection))


# --- export, import and backup ---------------------------------------------------------------------------------------


async def export_memories(service: Service, request: ExportQuery) -> Response:
    """Export all memories as JSON Lines; `project`, `query`, `since` and `until` limit them."""
    scope = await export.resolve_scope(
        service.db,
        service.indexer,
        project=request.project,
        query=request.query,
        since=request.since,
        until=request.until,
    )
    await service.recorder.record("exported", whole=scope.whole)
    return StreamingResponse(export.export_lines(service.db, scope), media_type="application/x-ndjson")


async def start_import(service: Service, request: ImportRequest) -> ImportStarted:
    """Import an export or an older database: `{path, project?, untrusted?, dry_run?}` → `{id, source}`."""
    path = Path(request.path)
    if not path.is_absolute() or not path.is_file():
        raise NotFound(f"there is no file {path}", hint="give the absolute path of a file on this machine")
    source = await asyncio.to_thread(import_.detect_source, path)
    import_id = await service.db.write(
        lambda tx: tx.journal.create_import(
            path,
            source=source,
            project=request.project,
            untrusted=request.untrusted,
            dry_run=request.dry_run,
            now=ids.now_ms(),
        ),
    )
    service.runner.wake.set()
    await service.recorder.record("imported", number=import_id, source=source, untrusted=request.untrusted)
    return ImportStarted(import_id, source)


async def show_import(service: Service, request: ById) -> ImportStatus:
    """Progress or result of an import."""
    import_ = await service.db.read(lambda tx: tx.journal.get_import(request.id))
    failure = (
        await service.db.read(lambda tx: tx.journal.find_import_error(import_.id)) if import_.ended_at is None else None
    )
    return ImportStatus(**{**dataclasses.asdict(import_), "error": import_.error or failure})


async def list_backups(service: Service, _: NoFields) -> list[ListedBackup]:
    """All backups, newest first, each with its `drill`: when a test restore was done, and its result."""
    drills = await service.db.read(lambda tx: tx.journal.list_drills())
    backups = await asyncio.to_thread(service.files.list_backups)
    return [ListedBackup(**asdict(file), drill=drills.get(file.name)) for file in backups]


async def create_backup(service: Service, request: BackupRequest) -> BackupCopy:
    """Back up the database to `backups/`: `{digest?}` → its path and row counts."""
    async with service.deletion_service.lock:  # a copy made during an erase would still contain what is erased
        copy = await asyncio.to_thread(service.files.write_backup, digest=request.digest)
    await service.recorder.record("copied", bytes=copy.size)
    return copy


ROUTES: tuple[AnyRoute, ...] = (
    Route(START_BACKFILL, start_backfill),
    Route(SHOW_BACKFILL, show_backfill),
    Route(CANCEL_BACKFILL, cancel_backfill),
    Route(LIST_UNCHANGED, list_unchanged),
    Route(REFINE_BACKFILL, refine_backfill),
    Route(START_REPROCESS, start_reprocess),
    Route(SHOW_REPROCESS, show_reprocess),
    Route(EXPORT, export_memories),
    Route(START_IMPORT, start_import),
    Route(SHOW_IMPORT, show_import),
    Route(LIST_BACKUPS, list_backups),
    Route(CREATE_BACKUP, create_backup),
)
