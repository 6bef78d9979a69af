"""The viewer: its files, and how a browser logs in. The data it shows comes from the other routes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from claude_mem.agents.registry import AGENTS
from claude_mem.domain import ids
from claude_mem.domain.errors import InvalidRequest, NotFound, OperationFailed
from claude_mem.domain.text import make_storable
from claude_mem.privacy import secrets
from claude_mem.storage.sqlite.journal import notices
from claude_mem.storage.sqlite.memory import browse, projects
from claude_mem.system import process
from claude_mem.worker.app import Service
from claude_mem.worker.http import auth
from claude_mem.worker.http.auth import (
    OPEN,
    OPEN_AGAIN,
    OPENED_SECONDS,
    PRINTED_SECONDS,
    Alert,
    BrowserSessions,
    credential_of,
)
from claude_mem.worker.http.params import (
    MAX_STRANGER_BODY,
    date_param,
    id_param,
    int_query,
    read_json_body,
    str_field,
    validities_param,
)

log = logging.getLogger(__name__)

FILES = Path(__file__).parents[3] / "data" / "viewer"
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# All of them return the same page; its script shows the view for the address.
PATHS = (
    "/", "/search", "/sessions", "/session/{id}", "/observation/{id}", "/projects", "/project/{id}", "/context",
    "/cost", "/health", "/logs", "/settings", "/quarantine",
    "/changes",
)  # fmt: skip
# What a browser loads before it can send its credential; it contains no data.
PUBLIC = (*PATHS, OPEN, OPEN_AGAIN, "/static/{name:path}", "/healthz")


async def show_page(_: Service, request: Request) -> Any:
    """The viewer. Its views: recent memory, search, sessions, observations, projects, next context, cost, health."""
    return _respond_with_file(request, "index.html")


async def serve_file(_: Service, request: Request) -> Any:
    """The viewer's own files."""
    return _respond_with_file(request, request.path_params["name"])


def _respond_with_file(request: Request, name: str) -> Response:
    files = {path.relative_to(FILES).as_posix(): path for path in FILES.rglob("*") if path.suffix in MEDIA_TYPES}
    if name not in files:  # never use a path from the request
        raise NotFound(f"there is no file {name[:100]!r}", hint="reload the page")
    content = files[name].read_bytes()
    headers = {"ETag": f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"', "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=MEDIA_TYPES[files[name].suffix], headers=headers)


async def show_feed(service: Service, request: Request) -> Any:
    """Recent memory of all kinds, newest first: `limit` (1–100), `before` (the `next` of the previous page), `project`
    (its id), `kind`, `type`, `concept`, `validity`, `host`, `since`, `until` → `{items, next}`."""
    params = request.query_params
    feed_filter = browse.FeedFilter(
        project_id=id_param(params, "project"),
        **{name: make_storable(params.get(name, "")) for name in ("kind", "type", "concept", "host")},
        validities=validities_param(dict(params)),
        since=date_param(params, "since"),
        until=date_param(params, "until", end=True),
    )
    before = browse.FeedCursor.parse(params["before"]) if params.get("before") else None
    limit = int_query(request, "limit", 30, low=1, high=100)
    items, next_cursor = await service.db.read(browse.load_feed_page, feed_filter, before=before, limit=limit)
    return {"items": items, "next": str(next_cursor) if next_cursor else ""}


async def show_facets(service: Service, _: Request) -> Any:
    """Values to filter by: types, concepts, agents, projects."""
    return {
        "types": [{"name": name, "icon": icon} for name, icon in service.icons.items()],
        "concepts": list(service.mode.concepts),
        "hosts": [{"name": host.name, "title": host.label} for host in AGENTS.values()],
        "projects": await service.db.read(projects.list_projects_with_counts),
    }


async def create_link(_: Service, request: Request) -> Any:
    """Create a link that logs in one browser, once and within `seconds`: `{path?, printed?}` → `{id, url, seconds}`.

    It is valid longer if it is `printed` for pasting. The code follows the `#`, which browsers never send.
    """
    body = await read_json_body(request)
    path = str_field(body, "path", limit=2_000) or "/"
    if not path.startswith("/") or path.startswith("//") or "\\" in path:
        raise InvalidRequest("`path` is not a page of the viewer", hint="for example /search?q=rounding")
    browser_sessions = browser_sessions_of(request)
    seconds = PRINTED_SECONDS if body.get("printed") is True else OPENED_SECONDS
    link_id, code = browser_sessions.create_link(path, seconds=seconds)
    return {"id": link_id, "url": f"http://127.0.0.1:{browser_sessions.port}{OPEN}#{code}", "seconds": seconds}


async def show_link(_: Service, request: Request) -> Any:
    """The state of a link → `{state}`: waiting, used, expired, or misused (its code was used by someone else)."""
    return {"state": browser_sessions_of(request).state(request.path_params["id"])}


async def log_in(service: Service, request: Request) -> Any:
    """Log in a browser: the `{code}` of a link → `{credential, path}`.

    The credential is sent as `Authorization: Viewer CREDENTIAL` until the worker exits. If a code is used a second
    time, all browsers are logged out and the token is replaced.
    """
    code = str_field(await read_json_body(request, most=MAX_STRANGER_BODY), "code", required=True, limit=200)
    client, server = request.scope.get("client"), request.scope.get("server")
    stranger = await asyncio.to_thread(auth.foreign_user, client, server)
    entry = browser_sessions_of(request).redeem(code, credential=credential_of(request.headers), stranger=stranger)
    if isinstance(entry, Alert):
        log.warning("%s", entry.text)
        await rotate_token(service, request)  # otherwise whatever a thief got in between would stay valid
        await service.db.write(notices.add_notice, f"door:{entry.id}", f"claude-mem: {entry.text}", now=ids.now_ms())
        raise OperationFailed("Someone else used this link as well.", hint=entry.text)
    if entry is None:
        raise OperationFailed(
            "This link was used or has expired.", hint="Type `claude-mem open` in a terminal for a new one."
        )
    return entry


async def create_renewal(_: Service, request: Request) -> Any:
    """Issue the key by which an open page logs in by itself after a restart of the worker → `{id, key}`."""
    return browser_sessions_of(request).create_renewal()


async def show_challenge(_: Service, request: Request) -> Any:
    """The challenge a page signs to log in again → `{challenge}`."""
    return {"challenge": browser_sessions_of(request).challenge}


async def log_in_again(_: Service, request: Request) -> Any:
    """Log in a page again that was open when the worker exited: `{id, proof}` → `{credential, proof}`.

    The first proof is the HMAC-SHA256, with the key of its renewal, of "page CHALLENGE"; the second, which the page
    checks, of "worker CHALLENGE CREDENTIAL".
    """
    body = await read_json_body(request, most=MAX_STRANGER_BODY)
    renewal_id, proof = (str_field(body, name, required=True, limit=200) for name in ("id", "proof"))
    renewed = browser_sessions_of(request).renew(renewal_id, proof)
    if renewed is None:
        raise OperationFailed("This page is not logged in.", hint="Type `claude-mem open` in a terminal.")
    return renewed


async def rotate_token(service: Service, request: Request) -> Any:
    """Replace the token. The old token and all browsers are refused from now on → `{rotated}`."""
    fresh = process.create_token(service.config.data_dir)
    secrets.add_known_secret(fresh)
    browser_sessions_of(request).replace_token(fresh)
    if (worker := process.read_worker_info(service.config.data_dir)) is not None:
        process.write_worker_info(service.config.data_dir, msgspec.structs.replace(worker, token=fresh))
    service.stream.hang_up()  # listeners were authorized by the old token
    log.info("the token was replaced")
    return {"rotated": True}


def browser_sessions_of(request: Request) -> BrowserSessions:
    """Return the browser sessions of the request's app."""
    browser_sessions = request.app.state.browser_sessions
    assert isinstance(browser_sessions, BrowserSessions)
    return browser_sessions
