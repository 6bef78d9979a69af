"""The HTTP API. A handler reads the request, calls one function and returns JSON.

Errors are `{"error", "hint"}`, with the setting as `field` if one is invalid; times are milliseconds, UTC.
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
from claude_mem.storage.sqlite.memory import observations as memory_observations
from claude_mem.storage.sqlite.memory import projects as memory_projects
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
from claude_mem.worker.http.routes import context, deletion, sessions, settings, transfer, viewer
from claude_mem.worker.http.routes import health as routes_health
from claude_mem.worker.http.routes import observations as routes_observations
from claude_mem.worker.http.routes import projects as routes_projects
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


# --- health -----------------------------------------------------------------------------------------------------------


async def healthz(_: Service, __: Request) -> Any:
    """Return the text `ok`."""
    return PlainTextResponse("ok")


async def health(service: Service, request: Request) -> Any:
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


async def readiness(service: Service, _: Request) -> Any:
    """200 while the worker runs, 503 while it is stopping."""
    ready = not service.stop.is_set()
    return _json({"status": "ready" if ready else "stopping"}, status=200 if ready else 503)


# --- models -----------------------------------------------------------------------------------------------------------


async def cost(service: Service, request: Request) -> Any:
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


async def cost_days(service: Service, request: Request) -> Any:
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


async def compress_turn(service: Service, request: Request) -> Any:
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


async def list_projects(service: Service, request: Request) -> Any:
    """All projects with counts of sessions and observations. With a folder `cwd`, `here` is `{id, related}`: its
    project, and other projects with the `same` remote or first commit, each with the `command` that merges them."""
    items = await service.db.read(memory_projects.list_projects_with_counts)
    place = await _place(service, request.query_params.get("cwd", ""))
    return {
        "items": items,
        "here": await service.db.read(memory_projects.describe_project_here, place) if place else None,
    }


async def stats(service: Service, _: Request) -> Any:
    """Row counts, database size, index size, and event counts by state."""
    size = service.db.path.stat().st_size
    return {
        "worker": {"version": __version__, "uptime_ms": ids.now_ms() - service.started_at, "pid": os.getpid()},
        "database": {"size": size, **await service.db.read(accounting.count_all_rows)},
        "events": await service.event_account(),
        "index": await service.indexer.counts(),
    }


async def line(service: Service, request: Request) -> Any:
    """Counts for a status line: `known` in the project of the folder `cwd`, `all`, `today`, `queued`, `set_aside`."""
    cwd = request.query_params.get("cwd", "")
    project = await _place(service, cwd)
    totals = await service.event_account()
    return {
        **await service.db.read(_line_counts, project),
        "queued": totals["queued"],
        "set_aside": totals["set_aside"],
    }


async def _place(service: Service, cwd: str) -> project_folders.ResolvedProject | None:
    """Return the project of a folder, or None without an absolute path."""
    if not cwd.startswith("/"):
        return None
    return await project_folders.identify_project_in_thread(cwd, excluded=service.config.excluded_projects)


def _line_counts(conn: Connection, project: project_folders.ResolvedProject | None) -> Row:
    midnight = parse_time(date.today().isoformat()) or 0
    project_id = memory_projects.find_project_id(conn, project) if project else None
    in_project, today = (
        memory_observations.count_observations_since(conn, project_id, midnight) if project_id else (0, 0)
    )
    return {"known": in_project, "today": today, "all": memory_observations.count_observations(conn)}


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


async def queue(service: Service, _: Request) -> Any:
    """What is waiting: files in the spool, jobs, and dead letters with their errors."""
    return {
        "spool": len(service.spool.pending()),
        "waiting": await service.db.read(jobs.count_urgent_jobs),
        "jobs": await service.db.read(jobs.list_jobs),
        **await service.event_account(),
    }


async def retry(service: Service, _: Request) -> Any:
    """Retry all dead letters."""
    count = await service.db.write(jobs.retry_dead_jobs, now=ids.now_ms())
    await service.publish([])  # wakes every runner: the jobs may be of any kind
    return {"retried": count}


async def stream(service: Service, _: Request) -> Any:
    """Server-sent events for prompts, ends of turns, summaries and observations, as they happen."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(service.stream.listen(), media_type="text/event-stream", headers=headers)


ROUTES: dict[str, dict[str, Handler]] = {
    "/healthz": {"GET": healthz},
    "/api/health": {"GET": health},
    "/api/health/page": {"GET": routes_health.show_health},
    "/api/readiness": {"GET": readiness},
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
    "/api/context/prompt": {"POST": with_timing("prompt", context.inject_at_trigger)},
    "/api/context/file": {"POST": with_timing("file", context.inject_at_trigger)},
    "/api/context/failure": {"POST": with_timing("failure", context.inject_at_trigger)},
    "/api/context/semantic": {"POST": context.preview_prompt_injection},
    "/api/search": {"GET": context.search},
    "/api/observations": {"GET": routes_observations.list_observations},
    "/api/observations/batch": {"POST": routes_observations.get_observations},
    "/api/observations/by-file": {"GET": routes_observations.list_by_file},
    "/api/summaries": {
        "GET": routes_observations.list_handler(partial(memory_observations.list_memories, kind="summary"))
    },
    "/api/prompts": {
        "GET": routes_observations.list_handler(partial(memory_observations.list_memories, kind="prompt"))
    },
    "/api/observation/{id}": {
        "GET": routes_observations.record_handler("observation"),
        "PATCH": routes_observations.change,
        "DELETE": routes_observations.forget,
    },
    "/api/observation/{id}/page": {"GET": routes_observations.show_page},
    "/api/observation/{id}/related": {"GET": routes_observations.show_related},
    "/api/observation/{id}/history": {"GET": routes_observations.show_history},
    "/api/observation/{id}/forget": {"GET": routes_observations.preview_deletion},
    "/api/observation/{id}/undo": {"POST": routes_observations.undo},
    "/api/observation/{id}/pin": {"POST": routes_observations.pin, "DELETE": routes_observations.pin},
    "/api/observation/{id}/merge": {"POST": routes_observations.merge},
    "/api/observation/{id}/wrong": dict.fromkeys(("POST", "DELETE"), routes_observations.judge("observation", "wrong")),
    "/api/observation/{id}/approve": {"POST": routes_observations.judge("observation", "approved")},
    "/api/summary/{id}/wrong": dict.fromkeys(("POST", "DELETE"), routes_observations.judge("summary", "wrong")),
    "/api/summary/{id}/approve": {"POST": routes_observations.judge("summary", "approved")},
    "/api/quarantine": {"GET": routes_observations.show_approval_queue, "POST": routes_observations.judge_source},
    "/api/trust": {
        "GET": routes_projects.list_trusted,
        "POST": routes_projects.trust_source,
        "DELETE": routes_projects.distrust_source,
    },
    "/api/forget": {"GET": deletion.show_progress, "POST": deletion.start_deletion},
    "/api/forget/preview": {"POST": deletion.preview_deletion},
    "/api/forget/{id}/undo": {"POST": deletion.undo_deletion},
    "/api/audit": {"GET": deletion.run_checks},
    "/api/audit/log": {"GET": deletion.show_log},
    "/api/timeline": {"GET": context.show_timeline},
    "/api/summary/{id}": {"GET": routes_observations.record_handler("summary")},
    "/api/prompt/{id}": {"GET": routes_observations.record_handler("prompt")},
    "/api/session/{id}": {"GET": routes_observations.show_session},
    "/api/session/{id}/story": {"GET": sessions.show_story},
    "/api/session/{id}/events": {"GET": sessions.show_events},
    "/api/now": {"GET": sessions.show_activity},
    "/api/memory/save": {"POST": routes_observations.save_memory},
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
    "/api/backup/check": {"POST": routes_health.check_backup},
    "/api/ledger": {"GET": routes_observations.list_handler(ledger.list_ledger_entries)},
    "/api/cost": {"GET": cost},
    "/api/cost/days": {"GET": cost_days},
    "/api/compress": {"POST": compress_turn},
    "/api/projects": {"GET": list_projects},
    "/api/project/{id}": {"GET": routes_projects.show_project, "PATCH": routes_projects.rename},
    "/api/project/{id}/files": {"GET": routes_projects.files},
    "/api/project/{id}/days": {"GET": routes_projects.days},
    "/api/project/{id}/lanes": {"GET": routes_projects.list_session_lanes},
    "/api/project/{id}/context": {"GET": routes_projects.preview},
    "/api/project/{id}/merge": {"POST": routes_projects.merge},
    "/api/project/{id}/off": {"POST": routes_projects.turn_off},
    "/api/project/{id}/on": {"POST": routes_projects.turn_on},
    "/api/stats": {"GET": stats},
    "/api/line": {"GET": line},
    "/api/index": {"GET": show_index},
    "/api/reindex": {"POST": reindex},
    "/api/queue": {"GET": queue},
    "/api/queue/retry": {"POST": retry},
    "/api/queue/{id}": {"DELETE": routes_health.drop_job},
    "/api/queue/{id}/retry": {"POST": routes_health.retry_job},
    "/api/settings": {"GET": settings.show_settings, "PATCH": settings.change_settings},
    "/api/logs": {"GET": routes_health.show_log},
    "/stream": {"GET": stream},
    "/mcp": {"POST": mcp.serve_mcp},
    "/api/feed": {"GET": viewer.show_feed},
    "/api/facets": {"GET": viewer.show_facets},
    "/api/open": {"POST": viewer.create_link},
    "/api/token/rotate": {"POST": viewer.rotate_token},
    "/api/open/{id}": {"GET": viewer.show_link},
    **{path: {"GET": viewer.page} for path in viewer.PATHS},
    "/open": {"GET": viewer.page, "POST": viewer.log_in},
    "/open/again": {"GET": viewer.show_challenge, "POST": viewer.log_in_again},
    "/api/renewal": {"GET": viewer.create_renewal},
    "/static/{name:path}": {"GET": viewer.static},
}
