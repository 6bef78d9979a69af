"""The HTTP API: the table of all routes, and how errors are answered.

A handler receives a checked request, calls one function and returns an answer. Errors are `{"error", "hint"}`, with the
setting as `field` if one is invalid; times are milliseconds, UTC.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable

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
from claude_mem.storage.files import is_transient_disk_error
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
    review,
    sessions,
    settings,
    spaces,
    status,
    transfer,
    viewer,
)

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
            if is_transient_disk_error(error):
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


def _by_path(routes: Iterable[AnyRoute]) -> dict[str, dict[str, AnyRoute]]:
    table: dict[str, dict[str, AnyRoute]] = {}
    for route in routes:
        table.setdefault(route.path, {})[route.method] = route
    return table


MODULES = (
    status,
    sessions,
    context,
    observations,
    review,
    projects,
    health,
    cost,
    settings,
    deletion,
    transfer,
    spaces,
    viewer,
)
ROUTES = _by_path([*(route for module in MODULES for route in module.ROUTES), RawRoute("POST", "/mcp", mcp.serve_mcp)])
