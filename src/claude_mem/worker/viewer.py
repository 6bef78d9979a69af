"""The page at `/`: its files, and how a browser is let in. What the page shows comes from the other routes."""

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
# Every one of them is the same page: its script looks at the address.
PATHS = (
    "/", "/search", "/sessions", "/session/{id}", "/observation/{id}", "/projects", "/project/{id}", "/context",
    "/cost", "/health", "/logs", "/settings", "/quarantine",
)  # fmt: skip
# What a browser loads before it can send its credential. There is no data in it.
PUBLIC = (*PATHS, OPEN, AGAIN, "/static/{name:path}", "/healthz")


async def page(_: Service, request: Request) -> Any:
    """The viewer. Its views: what is new, search, sessions, observations, projects, the next context, cost, health."""
    return _file(request, "index.html")


async def static(_: Service, request: Request) -> Any:
    """The viewer's own files."""
    return _file(request, request.path_params["name"])


def _file(request: Request, name: str) -> Response:
    files = {path.relative_to(FILES).as_posix(): path for path in FILES.rglob("*") if path.suffix in TYPES}
    if name not in files:  # never a path of the request's making
        raise NotFound(f"there is no file {name[:100]!r}", hint="reload the page")
    content = files[name].read_bytes()
    headers = {"ETag": f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"', "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=TYPES[files[name].suffix], headers=headers)


async def show_feed(service: Service, request: Request) -> Any:
    """What was remembered lately, of all kinds, newest first: `limit` (1–100), `before` (the `next` of the page
    before), `project` (its number), `kind`, `type`, `concept`, `host`, `since`, `until` → `{items, next}`."""
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
    """What there is to filter by: types, concepts, agents, projects."""
    return {
        "types": [{"name": name, "icon": icon} for name, icon in service.icons.items()],
        "concepts": list(service.mode.concepts),
        "hosts": [{"name": host.name, "title": host.label} for host in HOSTS.values()],
        "projects": await service.db.read(projects.listing),
    }


async def make_link(_: Service, request: Request) -> Any:
    """A link that lets one browser in, once and for `seconds`: `{path?, printed?}` → `{id, url, seconds}`.

    It works longer if it is `printed` for a person to paste. The code is behind the `#`, which browsers never send.
    """
    body = await body_of(request)
    path = text_in(body, "path", limit=2_000) or "/"
    if not path.startswith("/") or path.startswith("//") or "\\" in path:
        raise Misuse("`path` is no page of ours", hint="for example /search?q=rounding")
    visits, seconds = visits_of(request), PRINTED_SECONDS if body.get("printed") is True else OPENED_SECONDS
    link_id, code = visits.link(path, seconds=seconds)
    return {"id": link_id, "url": f"http://127.0.0.1:{visits.port}{OPEN}#{code}", "seconds": seconds}


async def show_link(_: Service, request: Request) -> Any:
    """What became of a link → `{state}`: waiting, used, expired, or misused (someone else had its code, too)."""
    return {"state": visits_of(request).state(request.path_params["id"])}


async def enter(service: Service, request: Request) -> Any:
    """Let a browser in: the `{code}` of a link → `{credential, path}`.

    The credential is sent as `Authorization: Viewer CREDENTIAL` from then on, until the worker ends. A code that is
    presented a second time locks everyone out: the token is changed, too.
    """
    code = text_in(await body_of(request), "code", required=True, limit=200)
    client, server = request.scope.get("client"), request.scope.get("server")
    stranger = await asyncio.to_thread(peers.stranger, client, server)
    entry = visits_of(request).enter(code, credential=credential_of(request.headers), stranger=stranger)
    if isinstance(entry, Alert):
        log.warning("%s", entry.text)
        await rotate_token(service, request)  # else what a thief was given meanwhile might be good for more
        await service.db.write(notices.put, f"door:{entry.id}", f"claude-mem: {entry.text}", now=ids.now())
        raise CannotDo("Someone else has had this link, too.", hint=entry.text)
    if entry is None:
        raise CannotDo("This link was used, or is too old.", hint="Type `claude-mem open` in a terminal for a new one.")
    return entry


async def make_renewal(_: Service, request: Request) -> Any:
    """For an open page, to come back by itself after the worker was restarted → `{id, key}`."""
    return visits_of(request).renewal()


async def show_challenge(_: Service, request: Request) -> Any:
    """What a page signs to come back → `{challenge}`."""
    return {"challenge": visits_of(request).challenge}


async def renew(_: Service, request: Request) -> Any:
    """Let a page in again that was open when the worker ended: `{id, proof}` → `{credential, proof}`.

    The first proof is the HMAC-SHA256, with the key of its renewal, of "page CHALLENGE"; the second, which the page
    checks, of "worker CHALLENGE CREDENTIAL".
    """
    body = await body_of(request)
    renewal_id, proof = (text_in(body, name, required=True, limit=200) for name in ("id", "proof"))
    renewed = visits_of(request).renew(renewal_id, proof)
    if renewed is None:
        raise CannotDo("this page is not known here", hint="Type `claude-mem open` in a terminal.")
    return renewed


async def rotate_token(service: Service, request: Request) -> Any:
    """Make a new token. The old one and every browser are refused from now on → `{rotated}`."""
    fresh = process.new_token(service.config.data_dir)
    redact.know(fresh)
    visits_of(request).change(fresh)
    if (worker := process.read_worker(service.config.data_dir)) is not None:
        process.announce(service.config.data_dir, msgspec.structs.replace(worker, token=fresh))
    service.stream.hang_up()  # whoever listens was let in by what is no longer good
    log.info("there is a new token")
    return {"rotated": True}


def visits_of(request: Request) -> Visits:
    """Return who is let in at the app that was asked."""
    visits = request.app.state.visits
    assert isinstance(visits, Visits)
    return visits
