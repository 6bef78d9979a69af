"""The HTTP API: the table of all routes, and how errors are answered.

A handler receives a checked request, calls one function and returns an answer. Errors are `{"error", "hint"}`, with the
setting as `field` if one is invalid; times are milliseconds, UTC.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from starlette import routing
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from claude_mem.domain.errors import (
    ClaudeMemError,
    InvalidRequest,
    InvalidSetting,
    NotFound,
    OperationFailed,
    RequestTooLarge,
    UnreadableEvent,
)
from claude_mem.storage.sqlite import damage
from claude_mem.storage.sqlite.memory.observations import list_memories
from claude_mem.worker import mcp
from claude_mem.worker.app import Service
from claude_mem.worker.http.auth import BrowserSessions, Guard
from claude_mem.worker.http.route import AnyRoute, RawRoute, encode
from claude_mem.worker.http.routes import (
    context,
    cost,
    deletion,
    health,
    observations,
    projects,
    sessions,
    settings,
    status,
    transfer,
    viewer,
)
from claude_mem.worker.http.routes.health import with_timing

log = logging.getLogger(__name__)


def build_app(service: Service, *, token: str, port: int, browser_sessions: BrowserSessions | None = None) -> Starlette:
    """Return the app for an open service. `browser_sessions`: those of an earlier app in the same process."""
    routes = [
        routing.Route(path, _endpoint(service, by_method), methods=list(by_method))
        for path, by_method in ROUTES.items()
    ]
    browser_sessions = browser_sessions or BrowserSessions(token, port)
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, browser_sessions=browser_sessions, public=viewer.PUBLIC)],
        exception_handlers={HTTPException: _http_error},
    )
    app.state.browser_sessions = browser_sessions
    return app


def _endpoint(service: Service, by_method: dict[str, AnyRoute]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        try:
            return await by_method[method].respond(service, request)
        except ClaudeMemError as error:
            field = {"field": error.name} if isinstance(error, InvalidSetting) and error.name else {}
            return encode({"error": str(error), "hint": error.hint, **field}, status=_status(error))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            log.exception("%s %s", request.method, request.url.path)
            if damage.is_transient_disk_error(error):
                problem = {"error": f"could not write to disk: {error}", "hint": "free disk space, then try again"}
                return encode(problem, status=503)
            return encode({"error": "internal error", "hint": "`claude-mem logs` has the details"}, status=500)

    return endpoint


def _status(error: ClaudeMemError) -> int:
    for kind, status_code in (
        (NotFound, 404),
        (RequestTooLarge, 413),
        (InvalidRequest, 400),
        (UnreadableEvent, 400),
        (OperationFailed, 409),
    ):
        if isinstance(error, kind):
            return status_code
    return 500


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    hint = "`claude-mem routes` lists all routes" if error.status_code in (404, 405) else ""
    return encode({"error": error.detail.lower(), "hint": hint}, status=error.status_code)


# --- all routes ------------------------------------------------------------------------------------------------------

_UNTYPED: dict[str, dict[str, Callable[..., Awaitable[Any]]]] = {
    "/api/context/inject": {"GET": context.show_start_context, "POST": with_timing("start", context.inject_at_start)},
    "/api/context/preview": {"GET": context.show_start_context},
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
    "/api/observation/{id}/merge": {"POST": observations.merge},
    "/api/observation/{id}/wrong": dict.fromkeys(("POST", "DELETE"), observations.judge("observation", "wrong")),
    "/api/observation/{id}/approve": {"POST": observations.judge("observation", "approved")},
    "/api/summary/{id}/wrong": dict.fromkeys(("POST", "DELETE"), observations.judge("summary", "wrong")),
    "/api/summary/{id}/approve": {"POST": observations.judge("summary", "approved")},
    "/api/quarantine": {"GET": observations.show_approval_queue, "POST": observations.judge_source},
    "/api/timeline": {"GET": context.show_timeline},
    "/api/summary/{id}": {"GET": observations.record_handler("summary")},
    "/api/prompt/{id}": {"GET": observations.record_handler("prompt")},
    "/api/session/{id}": {"GET": observations.show_session},
    "/api/memory/save": {"POST": observations.save_memory},
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


def _by_path() -> dict[str, dict[str, AnyRoute]]:
    table: dict[str, dict[str, AnyRoute]] = {}
    for module in (status, sessions, projects, health, cost, settings, deletion, transfer):
        for route in module.ROUTES:
            table.setdefault(route.path, {})[route.method] = route
    for path, handlers in _UNTYPED.items():
        for method, handler in handlers.items():
            table.setdefault(path, {})[method] = RawRoute(method, path, handler)
    return table


ROUTES = _by_path()
