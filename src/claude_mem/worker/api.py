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

from claude_mem import __version__, hook, ids, projects
from claude_mem.errors import BadRecord, BadSetting, CannotDo, MemError, Misuse, NotFound, TooLarge
from claude_mem.pipeline import budget, tryout
from claude_mem.store import account, damage, jobs, ledger, observations
from claude_mem.store import projects as project_rows
from claude_mem.store.database import Connection, Row
from claude_mem.store.search import Filter, all_stale, is_stale, size
from claude_mem.text import map_strings, milliseconds, storable
from claude_mem.worker import (
    auditing,
    checkup,
    corrections,
    forgetting,
    intake,
    logs,
    mcp,
    memories,
    moving,
    project_routes,
    scrubbing,
    settings,
    stories,
    telling,
    trusting,
    viewer,
)
from claude_mem.worker.guard import Guard
from claude_mem.worker.requests import Handler, body_of, is_id, number, text_in
from claude_mem.worker.service import Service
from claude_mem.worker.times import measured
from claude_mem.worker.visits import Visits

log = logging.getLogger(__name__)


def build_app(service: Service, *, token: str, port: int, visits: Visits | None = None) -> Starlette:
    """Return the app for an open service. `visits`: browser sessions of an earlier app in the same process."""
    routes = [Route(path, _endpoint(service, handlers), methods=list(handlers)) for path, handlers in ROUTES.items()]
    visits = visits or Visits(token, port)
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, visits=visits, public=viewer.PUBLIC)],
        exception_handlers={HTTPException: _http_error},
    )
    app.state.visits = visits
    return app


def _endpoint(service: Service, handlers: dict[str, Handler]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        try:
            result = await handlers[method](service, request)
            return result if isinstance(result, Response) else _json(result)
        except MemError as error:
            field = {"field": error.name} if isinstance(error, BadSetting) and error.name else {}
            return _json({"error": str(error), "hint": error.hint, **field}, status=_status(error))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            log.exception("%s %s", request.method, request.url.path)
            if damage.is_trouble(error):
                problem = {"error": f"could not write to disk: {error}", "hint": "free disk space, then try again"}
                return _json(problem, status=503)
            return _json({"error": "internal error", "hint": "`claude-mem logs` has the details"}, status=500)

    return endpoint


def _json(value: Any, *, status: int = 200) -> Response:
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a path that is not UTF-8
        encoded = msgspec.json.encode(map_strings(msgspec.to_builtins(value), storable))
    return Response(encoded, status, media_type="application/json")


def _status(error: MemError) -> int:
    for kind, status in ((NotFound, 404), (TooLarge, 413), (Misuse, 400), (BadRecord, 400), (CannotDo, 409)):
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
        "uptime_ms": ids.now() - service.started_at,
        "listeners": service.stream.listeners,
        **await service.totals(),
        "to_rewrite": await service.reprocess_count(),
        "audit": service.self_check.as_row(),
        "door": [alert.text for alert in viewer.visits_of(request).alerts],
    }


async def readiness(service: Service, _: Request) -> Any:
    """200 while the worker runs, 503 while it is stopping."""
    ready = not service.stop.is_set()
    return _json({"status": "ready" if ready else "stopping"}, status=200 if ready else 503)


# --- models -----------------------------------------------------------------------------------------------------------


async def cost(service: Service, request: Request) -> Any:
    """Requests to providers and their cost: `by` (day, month, project, model, session, verdict), `days`."""
    by = request.query_params.get("by", "day")
    if by not in ledger.BY:
        raise Misuse(f"cannot group by {by!r}", hint="use one of " + ", ".join(ledger.BY))
    now = ids.now()
    since = now - number(request, "days", 30, low=1, high=3660) * 86_400_000
    return {"items": await service.db.read(ledger.table, by=by, since=since), **await service.refiner.standing(now)}


async def cost_days(service: Service, request: Request) -> Any:
    """Cost per day for a chart: the last `days` days, and the requests of each day split `by` model or project."""
    by = request.query_params.get("by", "model")
    if by not in ledger.SERIES:
        raise Misuse(f"cannot split days by {by!r}", hint="use one of " + ", ".join(ledger.SERIES))
    now, count = ids.now(), number(request, "days", 30, low=1, high=366)
    today = budget.day_start(now)
    days = [today - timedelta(days=back) for back in range(count - 1, -1, -1)]
    return {
        "days": [f"{day:%Y-%m-%d}" for day in days],
        "items": await service.db.read(ledger.series, by=by, since=budget.ms(days[0])),
        **await service.refiner.standing(now),
    }


async def compress_turn(service: Service, request: Request) -> Any:
    """Try a provider on one turn: `{session or path, turn?, provider?, dry_run?}` → the request, the reply and the
    local draft. Nothing is stored except the entry in the ledger."""
    body = await body_of(request)
    selection = tryout.Wanted(
        session=text_in(body, "session", limit=200),
        path=text_in(body, "path", limit=4096),
        number=body["turn"] if is_id(body.get("turn")) else 0,
        provider=text_in(body, "provider", limit=200),
        dry_run=body.get("dry_run") is True,
    )
    return await tryout.tried(selection, refiner=service.refiner)


async def list_projects(service: Service, request: Request) -> Any:
    """All projects with counts of sessions and observations. With a folder `cwd`, `here` is `{id, related}`: its
    project, and other projects with the `same` remote or first commit, each with the `command` that merges them."""
    items = await service.db.read(project_rows.listing)
    place = await _place(service, request.query_params.get("cwd", ""))
    return {"items": items, "here": await service.db.read(project_rows.here, place) if place else None}


async def stats(service: Service, _: Request) -> Any:
    """Row counts, database size, index size, and event counts by state."""
    size = service.db.path.stat().st_size
    return {
        "worker": {"version": __version__, "uptime_ms": ids.now() - service.started_at, "pid": os.getpid()},
        "database": {"size": size, **await service.db.read(account.counts)},
        "events": await service.totals(),
        "index": await service.indexer.counts(),
    }


async def line(service: Service, request: Request) -> Any:
    """Counts for a status line: `known` in the project of the folder `cwd`, `all`, `today`, `queued`, `set_aside`."""
    cwd = request.query_params.get("cwd", "")
    project = await _place(service, cwd)
    totals = await service.totals()
    return {
        **await service.db.read(_line_counts, project),
        "queued": totals["queued"],
        "set_aside": totals["set_aside"],
    }


async def _place(service: Service, cwd: str) -> projects.Project | None:
    """Return the project of a folder, or None without an absolute path."""
    if not cwd.startswith("/"):
        return None
    return await projects.resolve_off_loop(cwd, excluded=service.config.excluded_projects)


def _line_counts(conn: Connection, project: projects.Project | None) -> Row:
    midnight = milliseconds(date.today().isoformat()) or 0
    project_id = project_rows.find(conn, project) if project else None
    in_project, today = observations.count_since(conn, project_id, midnight) if project_id else (0, 0)
    return {"known": in_project, "today": today, "all": observations.count(conn)}


async def show_index(service: Service, _: Request) -> Any:
    """Progress of the index: `stale` rows without words, `vectors` of about `embeddable`, `busy` until complete."""
    waiting = await service.db.read(is_stale)  # first: rows indexed by now are counted as owed below
    counts = await service.indexer.counts()
    embeddable = await service.db.read(size, Filter(kinds=("observation", "turn")))
    return {**counts, "embeddable": max(embeddable, counts["vectors"]), "busy": waiting or counts["owed"]}


async def reindex(service: Service, request: Request) -> Any:
    """Rebuild words and vectors from the rows, in the background; GET /api/index shows the progress."""
    await service.db.write(all_stale)
    service.index_wake.set()
    return await show_index(service, request)


async def queue(service: Service, _: Request) -> Any:
    """What is waiting: files in the spool, jobs, and dead letters with their errors."""
    return {
        "spool": len(service.spool.pending()),
        "waiting": await service.db.read(jobs.waiting),
        "jobs": await service.db.read(jobs.listing),
        **await service.totals(),
    }


async def retry(service: Service, _: Request) -> Any:
    """Retry all dead letters."""
    count = await service.db.write(jobs.retry_dead, now=ids.now())
    await service.publish([])  # wakes every runner: the jobs may be of any kind
    return {"retried": count}


async def stream(service: Service, _: Request) -> Any:
    """Server-sent events for prompts, ends of turns, summaries and observations, as they happen."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(service.stream.listen(), media_type="text/event-stream", headers=headers)


ROUTES: dict[str, dict[str, Handler]] = {
    "/healthz": {"GET": healthz},
    "/api/health": {"GET": health},
    "/api/health/page": {"GET": checkup.page},
    "/api/readiness": {"GET": readiness},
    "/sessions/{id}": {"GET": intake.session_status, "DELETE": intake.delete_session},
    "/sessions/{id}/status": {"GET": intake.session_status},
    "/sessions/{id}/init": {"POST": intake.init_by_id},
    "/sessions/{id}/observations": {"POST": intake.add_tool_use_by_id},
    "/sessions/{id}/summarize": {"POST": intake.summarize_by_id},
    "/api/sessions": {"GET": stories.list_sessions},
    "/api/sessions/init": {"POST": intake.init},
    "/api/sessions/observations": {"POST": intake.add_tool_use},
    "/api/sessions/summarize": {"POST": intake.summarize},
    "/api/sessions/complete": {"POST": intake.complete},
    "/api/processing": {"POST": intake.processing},
    "/api/context/inject": {"GET": telling.inject, "POST": measured("start", telling.inject_start)},
    "/api/context/preview": {"GET": telling.inject},
    "/api/context/prompt": {"POST": measured("prompt", telling.speak)},
    "/api/context/file": {"POST": measured("file", telling.speak)},
    "/api/context/failure": {"POST": measured("failure", telling.speak)},
    "/api/context/semantic": {"POST": telling.semantic},
    "/api/search": {"GET": telling.search},
    "/api/observations": {"GET": memories.list_observations},
    "/api/observations/batch": {"POST": memories.batch},
    "/api/observations/by-file": {"GET": memories.by_file},
    "/api/summaries": {"GET": memories.listing(partial(observations.listing, kind="summary"))},
    "/api/prompts": {"GET": memories.listing(partial(observations.listing, kind="prompt"))},
    "/api/observation/{id}": {
        "GET": memories.single("observation"),
        "PATCH": corrections.change,
        "DELETE": corrections.forget,
    },
    "/api/observation/{id}/page": {"GET": corrections.page},
    "/api/observation/{id}/related": {"GET": corrections.related},
    "/api/observation/{id}/history": {"GET": corrections.show_history},
    "/api/observation/{id}/forget": {"GET": corrections.show_forgetting},
    "/api/observation/{id}/undo": {"POST": corrections.undo},
    "/api/observation/{id}/pin": {"POST": corrections.pin, "DELETE": corrections.pin},
    "/api/observation/{id}/merge": {"POST": corrections.merge},
    "/api/observation/{id}/wrong": dict.fromkeys(("POST", "DELETE"), corrections.judge("observation", "wrong")),
    "/api/observation/{id}/approve": {"POST": corrections.judge("observation", "approved")},
    "/api/summary/{id}/wrong": dict.fromkeys(("POST", "DELETE"), corrections.judge("summary", "wrong")),
    "/api/summary/{id}/approve": {"POST": corrections.judge("summary", "approved")},
    "/api/quarantine": {"GET": corrections.show_held, "POST": corrections.settle_source},
    "/api/trust": {"GET": trusting.show, "POST": trusting.add, "DELETE": trusting.remove},
    "/api/forget": {"GET": forgetting.show, "POST": forgetting.forget},
    "/api/forget/preview": {"POST": forgetting.preview},
    "/api/forget/{id}/undo": {"POST": forgetting.undo},
    "/api/audit": {"GET": auditing.show},
    "/api/audit/log": {"GET": auditing.show_log},
    "/api/timeline": {"GET": telling.show_timeline},
    "/api/summary/{id}": {"GET": memories.single("summary")},
    "/api/prompt/{id}": {"GET": memories.single("prompt")},
    "/api/session/{id}": {"GET": memories.show_session},
    "/api/session/{id}/story": {"GET": stories.show_story},
    "/api/session/{id}/events": {"GET": stories.show_events},
    "/api/now": {"GET": stories.now},
    "/api/memory/save": {"POST": memories.save_memory},
    "/api/backfill": {"GET": moving.show_backfill, "POST": moving.ask_backfill, "DELETE": moving.drop_backfill},
    "/api/backfill/look": {"POST": moving.look_backfill},
    "/api/backfill/refine": {"POST": moving.refine_backfill},
    "/api/reprocess": {"GET": moving.show_reprocess, "POST": moving.ask_reprocess},
    "/api/export": {"GET": moving.export_memories},
    "/api/import": {"POST": moving.ask_import},
    "/api/import/{id}": {"GET": moving.show_import},
    "/api/backup": {"GET": moving.list_backups, "POST": moving.make_backup},
    "/api/scrub": {"GET": scrubbing.show, "POST": scrubbing.ask},
    "/api/backup/check": {"POST": checkup.check_backup},
    "/api/ledger": {"GET": memories.listing(ledger.listing)},
    "/api/cost": {"GET": cost},
    "/api/cost/days": {"GET": cost_days},
    "/api/compress": {"POST": compress_turn},
    "/api/projects": {"GET": list_projects},
    "/api/project/{id}": {"GET": project_routes.show, "PATCH": project_routes.rename},
    "/api/project/{id}/files": {"GET": project_routes.files},
    "/api/project/{id}/days": {"GET": project_routes.days},
    "/api/project/{id}/lanes": {"GET": project_routes.lanes},
    "/api/project/{id}/context": {"GET": project_routes.preview},
    "/api/project/{id}/merge": {"POST": project_routes.merge},
    "/api/project/{id}/off": {"POST": project_routes.turn_off},
    "/api/project/{id}/on": {"POST": project_routes.turn_on},
    "/api/stats": {"GET": stats},
    "/api/line": {"GET": line},
    "/api/index": {"GET": show_index},
    "/api/reindex": {"POST": reindex},
    "/api/queue": {"GET": queue},
    "/api/queue/retry": {"POST": retry},
    "/api/queue/{id}": {"DELETE": checkup.drop_job},
    "/api/queue/{id}/retry": {"POST": checkup.retry_job},
    "/api/settings": {"GET": settings.show, "PATCH": settings.change},
    "/api/logs": {"GET": logs.show},
    "/stream": {"GET": stream},
    "/mcp": {"POST": mcp.answer},
    "/api/feed": {"GET": viewer.show_feed},
    "/api/facets": {"GET": viewer.facets},
    "/api/open": {"POST": viewer.make_link},
    "/api/token/rotate": {"POST": viewer.rotate_token},
    "/api/open/{id}": {"GET": viewer.show_link},
    **{path: {"GET": viewer.page} for path in viewer.PATHS},
    "/open": {"GET": viewer.page, "POST": viewer.enter},
    "/open/again": {"GET": viewer.show_challenge, "POST": viewer.renew},
    "/api/renewal": {"GET": viewer.make_renewal},
    "/static/{name:path}": {"GET": viewer.static},
}
