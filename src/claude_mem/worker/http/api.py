"""The HTTP API: the table of all routes, and the handlers that belong to no resource of their own.

A handler reads the request, calls one function and returns JSON. Errors are `{"error", "hint"}`, with the setting as
`field` if one is invalid; times are milliseconds, UTC.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from datetime import date, timedelta
from functools import partial
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from claude_mem import __version__, hook
from claude_mem.curate import refine_on_demand
from claude_mem.digest import refine
from claude_mem.domain import ids
from claude_mem.domain.errors import (
    ClaudeMemError,
    InvalidRequest,
    InvalidSetting,
    NotFound,
    OperationFailed,
    RequestTooLarge,
    UnreadableEvent,
)
from claude_mem.domain.text import make_storable, map_strings, parse_time
from claude_mem.storage.sqlite import damage
from claude_mem.storage.sqlite.engine import Connection, Row
from claude_mem.storage.sqlite.journal import accounting, jobs, ledger, reprocessing
from claude_mem.storage.sqlite.memory.observations import (
    count_observations,
    count_observations_since,
    list_memories,
)
from claude_mem.storage.sqlite.memory.projects import (
    describe_project_here,
    find_project_id,
    list_projects_with_counts,
)
from claude_mem.storage.sqlite.memory.search import (
    SearchFilter,
    count_documents_in_scope,
    has_index_queue,
    queue_full_reindex,
)
from claude_mem.system import project_folders
from claude_mem.worker import mcp
from claude_mem.worker.app import Service
from claude_mem.worker.http.auth import BrowserSessions, Guard
from claude_mem.worker.http.params import Handler, int_query, is_id, read_json_body, str_field
from claude_mem.worker.http.routes import (
    context,
    deletion,
    health,
    observations,
    projects,
    review,
    sessions,
    settings,
    transfer,
    viewer,
)
from claude_mem.worker.http.routes.health import with_timing

log = logging.getLogger(__name__)


def build_app(service: Service, *, token: str, port: int, browser_sessions: BrowserSessions | None = None) -> Starlette:
    """Return the app for an open service. `browser_sessions`: those of an earlier app in the same process."""
    routes = [Route(path, _endpoint(service, handlers), methods=list(handlers)) for path, handlers in ROUTES.items()]
    browser_sessions = browser_sessions or BrowserSessions(token, port)
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, browser_sessions=browser_sessions, public=viewer.PUBLIC)],
        exception_handlers={HTTPException: _http_error},
    )
    app.state.browser_sessions = browser_sessions
    return app


def _endpoint(service: Service, handlers: dict[str, Handler]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        try:
            result = await handlers[method](service, request)
            return result if isinstance(result, Response) else _json(result)
        except ClaudeMemError as error:
            field = {"field": error.name} if isinstance(error, InvalidSetting) and error.name else {}
            return _json({"error": str(error), "hint": error.hint, **field}, status=_status(error))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            log.exception("%s %s", request.method, request.url.path)
            if damage.is_transient_disk_error(error):
                problem = {"error": f"could not write to disk: {error}", "hint": "free disk space, then try again"}
                return _json(problem, status=503)
            return _json({"error": "internal error", "hint": "`claude-mem logs` has the details"}, status=500)

    return endpoint


def _json(value: Any, *, status: int = 200) -> Response:
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a path that is not UTF-8
        encoded = msgspec.json.encode(map_strings(msgspec.to_builtins(value), make_storable))
    return Response(encoded, status, media_type="application/json")


def _status(error: ClaudeMemError) -> int:
    for kind, status in (
        (NotFound, 404),
        (RequestTooLarge, 413),
        (InvalidRequest, 400),
        (UnreadableEvent, 400),
        (OperationFailed, 409),
    ):
        if isinstance(error, kind):
            return status
    return 500


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    hint = "`claude-mem routes` lists all routes" if error.status_code in (404, 405) else ""
    return _json({"error": error.detail.lower(), "hint": hint}, status=error.status_code)


# --- the worker ------------------------------------------------------------------------------------------------------


async def ping(_: Service, __: Request) -> Any:
    """Return the text `ok`."""
    return PlainTextResponse("ok")


async def show_status(service: Service, request: Request) -> Any:
    """Version (and the installed one, which takes over within seconds), process, uptime, event counts by state."""
    return {
        "status": "ok",
        "version": __version__,
        "installed_version": hook.installed_version(),
        "pid": os.getpid(),
        "started_at": service.started_at,
        "uptime_ms": ids.now_ms() - service.started_at,
        "listeners": service.stream.listeners,
        **await service.event_account(),
        "to_rewrite": await service.db.read(reprocessing.count_outdated_turns),
        "audit": service.self_check.as_row(),
        "door": [alert.text for alert in viewer.browser_sessions_of(request).alerts],
    }


async def show_readiness(service: Service, _: Request) -> Any:
    """200 while the worker runs, 503 while it is stopping."""
    ready = not service.stop.is_set()
    return _json({"status": "ready" if ready else "stopping"}, status=200 if ready else 503)


# --- requests to models ----------------------------------------------------------------------------------------------


async def show_cost(service: Service, request: Request) -> Any:
    """Requests to providers and their cost: `by` (day, month, project, model, session, verdict), `days`."""
    by = request.query_params.get("by", "day")
    if by not in ledger.LEDGER_GROUPINGS:
        raise InvalidRequest(f"cannot group by {by!r}", hint="use one of " + ", ".join(ledger.LEDGER_GROUPINGS))
    now = ids.now_ms()
    since = now - int_query(request, "days", 30, low=1, high=3660) * 86_400_000
    return {
        "items": await service.db.read(ledger.summarize_ledger, by=by, since=since),
        **await service.refiner.status(now),
    }


async def show_daily_cost(service: Service, request: Request) -> Any:
    """Cost per day for a chart: the last `days` days, and the requests of each day split `by` model or project."""
    by = request.query_params.get("by", "model")
    if by not in ledger.LEDGER_SERIES:
        raise InvalidRequest(f"cannot split days by {by!r}", hint="use one of " + ", ".join(ledger.LEDGER_SERIES))
    now, count = ids.now_ms(), int_query(request, "days", 30, low=1, high=366)
    today = refine.day_start(now)
    days = [today - timedelta(days=back) for back in range(count - 1, -1, -1)]
    return {
        "days": [f"{day:%Y-%m-%d}" for day in days],
        "items": await service.db.read(ledger.list_daily_usage, by=by, since=refine.to_ms(days[0])),
        **await service.refiner.status(now),
    }


async def preview_refining(service: Service, request: Request) -> Any:
    """Try a provider on one turn: `{session or path, turn?, provider?, dry_run?}` → the request, the reply and the
    local draft. Nothing is stored except the entry in the ledger."""
    body = await read_json_body(request)
    selection = refine_on_demand.PreviewOptions(
        session=str_field(body, "session", limit=200),
        path=str_field(body, "path", limit=4096),
        number=body["turn"] if is_id(body.get("turn")) else 0,
        provider=str_field(body, "provider", limit=200),
        dry_run=body.get("dry_run") is True,
    )
    return await refine_on_demand.preview_refining(selection, refiner=service.refiner)


# --- projects and counts ---------------------------------------------------------------------------------------------


async def list_projects(service: Service, request: Request) -> Any:
    """All projects with counts of sessions and observations. With a folder `cwd`, `here` is `{id, related}`: its
    project, and other projects with the `same` remote or first commit, each with the `command` that merges them."""
    items = await service.db.read(list_projects_with_counts)
    project = await _identify_project(service, request.query_params.get("cwd", ""))
    return {
        "items": items,
        "here": await service.db.read(describe_project_here, project) if project else None,
    }


async def show_stats(service: Service, _: Request) -> Any:
    """Row counts, database size, index size, and event counts by state."""
    size = service.db.path.stat().st_size
    return {
        "worker": {"version": __version__, "uptime_ms": ids.now_ms() - service.started_at, "pid": os.getpid()},
        "database": {"size": size, **await service.db.read(accounting.count_all_rows)},
        "events": await service.event_account(),
        "index": await service.indexer.counts(),
    }


async def show_line(service: Service, request: Request) -> Any:
    """Counts for a status line: `known` in the project of the folder `cwd`, `all`, `today`, `queued`, `set_aside`."""
    project = await _identify_project(service, request.query_params.get("cwd", ""))
    account = await service.event_account()
    counts = await service.db.read(_count_for_line, project)
    return {**counts, "queued": account["queued"], "set_aside": account["set_aside"]}


async def _identify_project(service: Service, cwd: str) -> project_folders.ResolvedProject | None:
    """Return the project of a folder, or None without an absolute path."""
    if not cwd.startswith("/"):
        return None
    return await project_folders.identify_project_in_thread(cwd, excluded=service.config.excluded_projects)


def _count_for_line(conn: Connection, project: project_folders.ResolvedProject | None) -> Row:
    midnight = parse_time(date.today().isoformat()) or 0
    project_id = find_project_id(conn, project) if project else None
    in_project, today = count_observations_since(conn, project_id, midnight) if project_id else (0, 0)
    return {"known": in_project, "today": today, "all": count_observations(conn)}


# --- index, job queue and stream -------------------------------------------------------------------------------------


async def show_index(service: Service, _: Request) -> Any:
    """Progress of the index: `stale` rows without words, `vectors` of about `embeddable`, `busy` until complete."""
    waiting = await service.db.read(has_index_queue)  # first: rows indexed by now are counted as owed below
    counts = await service.indexer.counts()
    embeddable = await service.db.read(count_documents_in_scope, SearchFilter(kinds=("observation", "turn")))
    return {**counts, "embeddable": max(embeddable, counts["vectors"]), "busy": waiting or counts["owed"]}


async def reindex(service: Service, request: Request) -> Any:
    """Rebuild words and vectors from the rows, in the background; GET /api/index shows the progress."""
    await service.db.write(queue_full_reindex)
    service.index_wake.set()
    return await show_index(service, request)


async def show_queue(service: Service, _: Request) -> Any:
    """What is waiting: files in the spool, jobs, and dead letters with their errors."""
    return {
        "spool": len(service.spool.pending()),
        "waiting": await service.db.read(jobs.count_urgent_jobs),
        "jobs": await service.db.read(jobs.list_jobs),
        **await service.event_account(),
    }


async def retry_all(service: Service, _: Request) -> Any:
    """Retry all dead letters."""
    count = await service.db.write(jobs.retry_dead_jobs, now=ids.now_ms())
    await service.publish([])  # wakes every runner: the jobs may be of any kind
    return {"retried": count}


async def open_stream(service: Service, _: Request) -> Any:
    """Server-sent events for prompts, ends of turns, summaries and observations, as they happen."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(service.stream.listen(), media_type="text/event-stream", headers=headers)


# --- all routes ------------------------------------------------------------------------------------------------------


ROUTES: dict[str, dict[str, Handler]] = {
    "/healthz": {"GET": ping},
    "/api/health": {"GET": show_status},
    "/api/health/page": {"GET": health.show_health},
    "/api/readiness": {"GET": show_readiness},
    "/sessions/{id}": {"GET": sessions.session_status, "DELETE": sessions.delete_session},
    "/sessions/{id}/status": {"GET": sessions.session_status},
    "/sessions/{id}/init": {"POST": sessions.init_by_id},
    "/sessions/{id}/observations": {"POST": sessions.add_tool_use_by_id},
    "/sessions/{id}/summarize": {"POST": sessions.summarize_by_id},
    "/api/sessions": {"GET": sessions.list_sessions},
    "/api/sessions/init": {"POST": sessions.init},
    "/api/sessions/observations": {"POST": sessions.add_tool_use},
    "/api/sessions/summarize": {"POST": sessions.summarize},
    "/api/sessions/complete": {"POST": sessions.complete},
    "/api/processing": {"POST": sessions.processing},
    "/api/context/inject": {"GET": context.show_start_context, "POST": with_timing("start", context.inject_at_start)},
    "/api/context/preview": {"GET": context.show_start_context},
    "/api/context/at": {"GET": context.show_context_at_commit},
    "/api/context/prompt": {"POST": with_timing("prompt", context.inject_at_trigger)},
    "/api/context/file": {"POST": with_timing("file", context.inject_at_trigger)},
    "/api/context/failure": {"POST": with_timing("failure", context.inject_at_trigger)},
    "/api/context/semantic": {"POST": context.preview_prompt_injection},
    "/api/search": {"GET": context.search},
    "/api/observations": {"GET": observations.list_observations},
    "/api/observations/batch": {"POST": observations.get_observations},
    "/api/why": {"GET": observations.explain_line},
    "/api/observations/by-file": {"GET": observations.list_by_file},
    "/api/summaries": {"GET": observations.list_handler(partial(list_memories, kind="summary"))},
    "/api/prompts": {"GET": observations.list_handler(partial(list_memories, kind="prompt"))},
    "/api/observation/{id}": {
        "GET": observations.record_handler("observation"),
        "PATCH": observations.change,
        "DELETE": observations.forget,
    },
    "/api/observation/{id}/page": {"GET": observations.show_page},
    "/api/observation/{id}/related": {"GET": observations.show_related},
    "/api/observation/{id}/history": {"GET": observations.show_history},
    "/api/observation/{id}/forget": {"GET": observations.preview_deletion},
    "/api/observation/{id}/undo": {"POST": observations.undo},
    "/api/observation/{id}/pin": {"POST": observations.pin, "DELETE": observations.pin},
    "/api/observation/{id}/keep": dict.fromkeys(("POST", "DELETE"), review.keep),
    "/api/observation/{id}/merge": {"POST": observations.merge},
    "/api/observation/{id}/wrong": dict.fromkeys(("POST", "DELETE"), observations.judge("observation", "wrong")),
    "/api/observation/{id}/approve": {"POST": observations.judge("observation", "approved")},
    "/api/summary/{id}/wrong": dict.fromkeys(("POST", "DELETE"), observations.judge("summary", "wrong")),
    "/api/summary/{id}/approve": {"POST": observations.judge("summary", "approved")},
    "/api/review": {"GET": review.list_changed, "POST": review.look_again},
    "/api/quarantine": {"GET": observations.show_approval_queue, "POST": observations.judge_source},
    "/api/trust": {
        "GET": projects.list_trusted,
        "POST": projects.trust_source,
        "DELETE": projects.distrust_source,
    },
    "/api/forget": {"GET": deletion.show_progress, "POST": deletion.start_deletion},
    "/api/forget/preview": {"POST": deletion.preview_deletion},
    "/api/forget/{id}/undo": {"POST": deletion.undo_deletion},
    "/api/audit": {"GET": deletion.run_checks},
    "/api/audit/log": {"GET": deletion.show_log},
    "/api/timeline": {"GET": context.show_timeline},
    "/api/summary/{id}": {"GET": observations.record_handler("summary")},
    "/api/prompt/{id}": {"GET": observations.record_handler("prompt")},
    "/api/session/{id}": {"GET": observations.show_session},
    "/api/session/{id}/story": {"GET": sessions.show_story},
    "/api/session/{id}/events": {"GET": sessions.show_events},
    "/api/now": {"GET": sessions.show_activity},
    "/api/memory/save": {"POST": observations.save_memory},
    "/api/backfill": {
        "GET": transfer.show_backfill,
        "POST": transfer.start_backfill,
        "DELETE": transfer.cancel_backfill,
    },
    "/api/backfill/look": {"POST": transfer.list_unchanged},
    "/api/backfill/refine": {"POST": transfer.refine_backfill},
    "/api/reprocess": {"GET": transfer.show_reprocess, "POST": transfer.start_reprocess},
    "/api/export": {"GET": transfer.export_memories},
    "/api/import": {"POST": transfer.start_import},
    "/api/import/{id}": {"GET": transfer.show_import},
    "/api/backup": {"GET": transfer.list_backups, "POST": transfer.create_backup},
    "/api/scrub": {"GET": deletion.show_scrub, "POST": deletion.start_scrub},
    "/api/backup/check": {"POST": health.check_backup},
    "/api/ledger": {"GET": observations.list_handler(ledger.list_ledger_entries)},
    "/api/cost": {"GET": show_cost},
    "/api/cost/days": {"GET": show_daily_cost},
    "/api/compress": {"POST": preview_refining},
    "/api/projects": {"GET": list_projects},
    "/api/project/{id}": {"GET": projects.show_project, "PATCH": projects.rename},
    "/api/project/{id}/files": {"GET": projects.list_files},
    "/api/project/{id}/days": {"GET": projects.list_days},
    "/api/project/{id}/lanes": {"GET": projects.list_session_lanes},
    "/api/project/{id}/context": {"GET": projects.preview_context},
    "/api/project/{id}/merge": {"POST": projects.merge},
    "/api/project/{id}/off": {"POST": projects.turn_off},
    "/api/project/{id}/on": {"POST": projects.turn_on},
    "/api/stats": {"GET": show_stats},
    "/api/line": {"GET": show_line},
    "/api/index": {"GET": show_index},
    "/api/reindex": {"POST": reindex},
    "/api/queue": {"GET": show_queue},
    "/api/queue/retry": {"POST": retry_all},
    "/api/queue/{id}": {"DELETE": health.drop_job},
    "/api/queue/{id}/retry": {"POST": health.retry_job},
    "/api/settings": {"GET": settings.show_settings, "PATCH": settings.change_settings},
    "/api/logs": {"GET": health.show_log},
    "/stream": {"GET": open_stream},
    "/mcp": {"POST": mcp.serve_mcp},
    "/api/feed": {"GET": viewer.show_feed},
    "/api/facets": {"GET": viewer.show_facets},
    "/api/open": {"POST": viewer.create_link},
    "/api/token/rotate": {"POST": viewer.rotate_token},
    "/api/open/{id}": {"GET": viewer.show_link},
    **{path: {"GET": viewer.show_page} for path in viewer.PATHS},
    "/open": {"GET": viewer.show_page, "POST": viewer.log_in},
    "/open/again": {"GET": viewer.show_challenge, "POST": viewer.log_in_again},
    "/api/renewal": {"GET": viewer.create_renewal},
    "/static/{name:path}": {"GET": viewer.serve_file},
}
