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

from claude_mem import ids, process, redact
from claude_mem.errors import CannotDo, Misuse, NotFound
from claude_mem.hosts.registry import HOSTS
from claude_mem.store import feed, notices, projects
from claude_mem.text import storable
from claude_mem.worker import peers
from claude_mem.worker.guard import AGAIN, OPEN, credential_of
from claude_mem.worker.requests import body_of, date_of, number, text_in, whole
from claude_mem.worker.service import Service
from claude_mem.worker.visits import OPENED_SECONDS, PRINTED_SECONDS, Alert, Visits

log = logging.getLogger(__name__)

FILES = Path(__file__).parent.parent / "data" / "viewer"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# All of them return the same page; its script shows the view for the address.
PATHS = (
    "/", "/search", "/sessions", "/session/{id}", "/observation/{id}", "/projects", "/project/{id}", "/context",
    "/cost", "/health", "/logs", "/settings", "/quarantine",
)  # fmt: skip
# What a browser loads before it can send its credential; none of it contains data.
PUBLIC = (*PATHS, OPEN, AGAIN, "/static/{name:path}", "/healthz")


async def page(_: Service, request: Request) -> Any:
    """The viewer. Its views: recent memory, search, sessions, observations, projects, next context, cost, health."""
    return _file(request, "index.html")


async def static(_: Service, request: Request) -> Any:
    """The viewer's own files."""
    return _file(request, request.path_params["name"])


def _file(request: Request, name: str) -> Response:
    files = {path.relative_to(FILES).as_posix(): path for path in FILES.rglob("*") if path.suffix in TYPES}
    if name not in files:  # never use a path from the request
        raise NotFound(f"there is no file {name[:100]!r}", hint="reload the page")
    content = files[name].read_bytes()
    headers = {"ETag": f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"', "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=TYPES[files[name].suffix], headers=headers)


async def show_feed(service: Service, request: Request) -> Any:
    """Recent memory of all kinds, newest first: `limit` (1–100), `before` (the `next` of the previous page), `project`
    (its id), `kind`, `type`, `concept`, `host`, `since`, `until` → `{items, next}`."""
    params = request.query_params
    feed_filter = feed.Wanted(
        project_id=whole(params, "project"),
        **{name: storable(params.get(name, "")) for name in ("kind", "type", "concept", "host")},
        since=date_of(params, "since"),
        until=date_of(params, "until", end=True),
    )
    before = feed.Place.parse(params["before"]) if params.get("before") else None
    limit = number(request, "limit", 30, low=1, high=100)
    items, next_cursor = await service.db.read(feed.page, feed_filter, before=before, limit=limit)
    return {"items": items, "next": str(next_cursor) if next_cursor else ""}


async def facets(service: Service, _: Request) -> Any:
    """Values to filter by: types, concepts, agents, projects."""
    return {
        "types": [{"name": name, "icon": icon} for name, icon in service.icons.items()],
        "concepts": list(service.mode.concepts),
        "hosts": [{"name": host.name, "title": host.label} for host in HOSTS.values()],
        "projects": await service.db.read(projects.listing),
    }


async def make_link(_: Service, request: Request) -> Any:
    """Create a link that logs in one browser, once and within `seconds`: `{path?, printed?}` → `{id, url, seconds}`.

    It is valid longer if it is `printed` for pasting. The code follows the `#`, which browsers never send.
    """
    body = await body_of(request)
    path = text_in(body, "path", limit=2_000) or "/"
    if not path.startswith("/") or path.startswith("//") or "\\" in path:
        raise Misuse("`path` is not a page of the viewer", hint="for example /search?q=rounding")
    visits, seconds = visits_of(request), PRINTED_SECONDS if body.get("printed") is True else OPENED_SECONDS
    link_id, code = visits.create_link(path, seconds=seconds)
    return {"id": link_id, "url": f"http://127.0.0.1:{visits.port}{OPEN}#{code}", "seconds": seconds}


async def show_link(_: Service, request: Request) -> Any:
    """The state of a link → `{state}`: waiting, used, expired, or misused (its code was used by someone else)."""
    return {"state": visits_of(request).state(request.path_params["id"])}


async def enter(service: Service, request: Request) -> Any:
    """Log in a browser: the `{code}` of a link → `{credential, path}`.

    The credential is sent as `Authorization: Viewer CREDENTIAL` until the worker exits. If a code is used a second
    time, all browsers are logged out and the token is replaced.
    """
    code = text_in(await body_of(request), "code", required=True, limit=200)
    client, server = request.scope.get("client"), request.scope.get("server")
    stranger = await asyncio.to_thread(peers.stranger, client, server)
    entry = visits_of(request).redeem(code, credential=credential_of(request.headers), stranger=stranger)
    if isinstance(entry, Alert):
        log.warning("%s", entry.text)
        await rotate_token(service, request)  # otherwise whatever a thief got in between would stay valid
        await service.db.write(notices.put, f"door:{entry.id}", f"claude-mem: {entry.text}", now=ids.now())
        raise CannotDo("Someone else used this link as well.", hint=entry.text)
    if entry is None:
        raise CannotDo("This link was used or has expired.", hint="Type `claude-mem open` in a terminal for a new one.")
    return entry


async def make_renewal(_: Service, request: Request) -> Any:
    """Issue the key by which an open page logs in by itself after a restart of the worker → `{id, key}`."""
    return visits_of(request).create_renewal()


async def show_challenge(_: Service, request: Request) -> Any:
    """The challenge a page signs to log in again → `{challenge}`."""
    return {"challenge": visits_of(request).challenge}


async def renew(_: Service, request: Request) -> Any:
    """Log in a page again that was open when the worker exited: `{id, proof}` → `{credential, proof}`.

    The first proof is the HMAC-SHA256, with the key of its renewal, of "page CHALLENGE"; the second, which the page
    checks, of "worker CHALLENGE CREDENTIAL".
    """
    body = await body_of(request)
    renewal_id, proof = (text_in(body, name, required=True, limit=200) for name in ("id", "proof"))
    renewed = visits_of(request).renew(renewal_id, proof)
    if renewed is None:
        raise CannotDo("This page is not logged in.", hint="Type `claude-mem open` in a terminal.")
    return renewed


async def rotate_token(service: Service, request: Request) -> Any:
    """Replace the token. The old token and all browsers are refused from now on → `{rotated}`."""
    fresh = process.new_token(service.config.data_dir)
    redact.know(fresh)
    visits_of(request).replace_token(fresh)
    if (worker := process.read_worker(service.config.data_dir)) is not None:
        process.announce(service.config.data_dir, msgspec.structs.replace(worker, token=fresh))
    service.stream.hang_up()  # listeners were authorized by the old token
    log.info("the token was replaced")
    return {"rotated": True}


def visits_of(request: Request) -> Visits:
    """Return the browser sessions of the request's app."""
    visits = request.app.state.visits
    assert isinstance(visits, Visits)
    return visits
