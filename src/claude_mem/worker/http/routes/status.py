"""Routes of the worker as a whole: its status, counts, the index and the job queue."""

from __future__ import annotations

import os
from datetime import date

from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from claude_mem import __version__, hook
from claude_mem.domain import ids
from claude_mem.domain.text import parse_time
from claude_mem.storage.base import Transaction
from claude_mem.storage.records import SearchFilter
from claude_mem.system import project_folders
from claude_mem.worker.app import Service
from claude_mem.worker.http.endpoints import NoFields
from claude_mem.worker.http.route import AnyRoute, Caller, RawRoute, Reply, Route
from claude_mem.worker.http.schemas.health import (
    REINDEX,
    RETRY_ALL,
    SHOW_INDEX,
    SHOW_LINE,
    SHOW_QUEUE,
    SHOW_READINESS,
    SHOW_STATS,
    SHOW_STATUS,
    DatabaseCounts,
    IndexProgress,
    InFolder,
    LineCounts,
    Queue,
    Readiness,
    Retried,
    Stats,
    WorkerProcess,
    WorkerStatus,
)

# --- the worker ------------------------------------------------------------------------------------------------------


async def ping(_: Service, __: Request) -> Response:
    """Return the text `ok`."""
    return PlainTextResponse("ok")


async def show_status(service: Service, _: NoFields, caller: Caller) -> WorkerStatus:
    """Version (and the installed one, which takes over within seconds), process, uptime, event counts by state."""
    return WorkerStatus(
        **asdict(await service.event_account()),
        status="ok",
        version=__version__,
        installed_version=hook.installed_version(),
        pid=os.getpid(),
        started_at=service.started_at,
        uptime_ms=ids.now_ms() - service.started_at,
        listeners=service.stream.listeners,
        to_rewrite=await service.db.read(lambda tx: tx.journal.count_outdated_turns()),
        audit=service.self_check.state(),
        door=[alert.text for alert in caller.browser_sessions.alerts],
    )


async def show_readiness(service: Service, _: NoFields) -> Reply[Readiness]:
    """200 while the worker runs, 503 while it is stopping."""
    ready = not service.stop.is_set()
    return Reply(Readiness("ready" if ready else "stopping"), status=200 if ready else 503)


async def open_stream(service: Service, _: Request) -> Response:
    """Server-sent events for prompts, ends of turns, summaries and observations, as they happen."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(service.stream.listen(), media_type="text/event-stream", headers=headers)


# --- counts ----------------------------------------------------------------------------------------------------------


async def show_stats(service: Service, _: NoFields) -> Stats:
    """Row counts, database size, index size, and event counts by state."""
    size = service.db.path.stat().st_size
    return Stats(
        worker=WorkerProcess(version=__version__, uptime_ms=ids.now_ms() - service.started_at, pid=os.getpid()),
        database=DatabaseCounts(**asdict(await service.db.read(lambda tx: tx.journal.count_all_rows())), size=size),
        events=await service.event_account(),
        index=await service.indexer.counts(),
    )


async def show_line(service: Service, request: InFolder) -> LineCounts:
    """Counts for a status line: `known` in the project of the folder `cwd`, `all`, `today`, `queued`, `set_aside`."""
    project = None
    if request.cwd.startswith("/"):
        project = await project_folders.identify_project_in_thread(
            request.cwd, excluded=service.config.excluded_projects
        )
    account = await service.event_account()
    in_project, today, in_all = await service.db.read(_count_for_line, project)
    return LineCounts(known=in_project, today=today, all=in_all, queued=account.queued, set_aside=account.set_aside)


def _count_for_line(tx: Transaction, project: project_folders.ResolvedProject | None) -> tuple[int, int, int]:
    """Return the number of memories in the project, of those made today, and of all."""
    midnight = parse_time(date.today().isoformat()) or 0
    project_id = tx.memory.find_project_id(project) if project else None
    in_project, today = tx.memory.count_observations_since(project_id, midnight) if project_id else (0, 0)
    return in_project, today, tx.memory.count_observations()


# --- index and job queue ---------------------------------------------------------------------------------------------


async def show_index(service: Service, _: NoFields) -> IndexProgress:
    """Progress of the index: `stale` rows without words, `vectors` of about `embeddable`, `busy` until complete."""
    waiting = await service.db.read(
        lambda tx: tx.search.has_index_queue()
    )  # first: rows indexed by now are counted as owed below
    state = await service.indexer.counts()
    embeddable = await service.db.read(
        lambda tx: tx.search.count_documents_in_scope(SearchFilter(kinds=("observation", "turn")))
    )
    return IndexProgress(**asdict(state), embeddable=max(embeddable, state.vectors), busy=waiting or state.owed)


async def reindex(service: Service, request: NoFields) -> IndexProgress:
    """Rebuild words and vectors from the rows, in the background; GET /api/index shows the progress."""
    await service.db.write(lambda tx: tx.search.queue_full_reindex())
    service.index_wake.set()
    return await show_index(service, request)


async def show_queue(service: Service, _: NoFields) -> Queue:
    """What is waiting: files in the spool, jobs, and dead letters with their errors."""
    return Queue(
        **asdict(await service.event_account()),
        spool=len(service.spool.pending()),
        waiting=await service.db.read(lambda tx: tx.journal.count_urgent_jobs()),
        jobs=await service.db.read(lambda tx: tx.journal.list_jobs()),
    )


async def retry_all(service: Service, _: NoFields) -> Retried:
    """Retry all dead letters."""
    count = await service.db.write(lambda tx: tx.journal.retry_dead_jobs(now=ids.now_ms()))
    await service.publish([])  # wakes every runner: the jobs may be of any kind
    return Retried(count)


ROUTES: tuple[AnyRoute, ...] = (
    RawRoute("GET", "/healthz", ping, media_type="text/plain"),
    Route(SHOW_STATUS, show_status),
    Route(SHOW_READINESS, show_readiness),
    Route(SHOW_STATS, show_stats),
    Route(SHOW_LINE, show_line),
    Route(SHOW_INDEX, show_index),
    Route(REINDEX, reindex),
    Route(SHOW_QUEUE, show_queue),
    Route(RETRY_ALL, retry_all),
    RawRoute("GET", "/stream", open_stream, media_type="text/event-stream"),
)
