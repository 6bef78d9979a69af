"""The page at `/`: its files, and the link by which a browser is let in. What it shows comes from the other routes."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from claude_mem import process, redact
from claude_mem.errors import Misuse, NotFound
from claude_mem.hosts.registry import HOSTS
from claude_mem.store import feed, projects
from claude_mem.text import storable
from claude_mem.worker.guard import refused
from claude_mem.worker.requests import body_of, date_of, number, text_in, whole
from claude_mem.worker.service import Service
from claude_mem.worker.visits import COOKIE_SECONDS, Visits

log = logging.getLogger(__name__)

FILES = Path(__file__).parent.parent / "data" / "viewer"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# Every one of them is the same page: its script looks at the address.
PATHS = (
    "/", "/search", "/sessions", "/session/{id}", "/observation/{id}", "/projects", "/project/{id}", "/context",
    "/cost", "/health", "/logs", "/settings", "/quarantine",
)  # fmt: skip


async def page(_: Service, request: Request) -> Any:
    """The viewer. Its views: what is new, search, sessions, observations, projects, the next context, cost, health."""
    return index(request)


def index(request: Request) -> Response:
    return _file(request, "index.html")


async def static(_: Service, request: Request) -> Any:
    """The viewer's own files."""
    return _file(request, request.path_params["name"])


def _file(request: Request, name: str) -> Response:
    known = {path.relative_to(FILES).as_posix(): path for path in FILES.rglob("*") if path.suffix in TYPES}
    if name not in known:  # never a path of the request's making
        raise NotFound(f"there is no file {name[:100]!r}", hint="reload the page")
    content = known[name].read_bytes()
    headers = {"ETag": f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"', "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=TYPES[known[name].suffix], headers=headers)


async def show_feed(service: Service, request: Request) -> Any:
    """What was remembered lately, of all kinds, newest first: `limit` (1–100), `before` (the `next` of the page
    before), `project` (its number), `kind`, `type`, `concept`, `host`, `since`, `until` → `{items, next}`."""
    given = request.query_params
    wanted = feed.Wanted(
        project_id=whole(given, "project"),
        **{name: storable(given.get(name, "")) for name in ("kind", "type", "concept", "host")},
        since=date_of(given, "since"),
        until=date_of(given, "until", end=True),
    )
    before = feed.Place.parse(given["before"]) if given.get("before") else None
    limit = number(request, "limit", 30, low=1, high=100)
    items, more = await service.db.read(feed.page, wanted, before=before, limit=limit)
    return {"items": items, "next": str(more) if more else ""}


async def facets(service: Service, _: Request) -> Any:
    """What there is to filter by: types, concepts, agents, projects."""
    return {
        "types": [{"name": name, "icon": icon} for name, icon in service.icons.items()],
        "concepts": list(service.mode.concepts),
        "hosts": [{"name": host.name, "title": host.label} for host in HOSTS.values()],
        "projects": await service.db.read(projects.listing),
    }


async def make_link(_: Service, request: Request) -> Any:
    """A link that lets a browser in, once and within five minutes: `{path?}` → `{url}`."""
    path = text_in(await body_of(request), "path", limit=2_000) or "/"
    if not path.startswith("/") or path.startswith("//") or "\\" in path:
        raise Misuse("`path` is no page of ours", hint="for example /search?q=rounding")
    visits = _visits(request)
    return {"url": f"http://127.0.0.1:{visits.port}/open?code={visits.link(path)}"}


async def enter(_: Service, request: Request) -> Any:
    """Where such a link leads: it gives the browser its cookie and goes on to the page."""
    visits = _visits(request)
    path = visits.enter(request.query_params.get("code", "")) if request.method == "GET" else None
    if path is None:
        return refused(request.headers, 401, "this link was used, or is too old", "`claude-mem open` makes a new one")
    answer = RedirectResponse(path, 303)
    answer.set_cookie(
        visits.cookie_name, visits.cookie(), max_age=COOKIE_SECONDS, path="/", httponly=True, samesite="strict"
    )
    return answer


async def rotate_token(service: Service, request: Request) -> Any:
    """Make a new token. The old one and every browser's cookie are refused from now on → `{rotated}`."""
    fresh = process.new_token(service.config.data_dir)
    redact.know(fresh)
    _visits(request).change(fresh)
    if (worker := process.read_worker(service.config.data_dir)) is not None:
        process.announce(service.config.data_dir, msgspec.structs.replace(worker, token=fresh))
    service.stream.close()  # whoever listens was let in by what is no longer good
    log.info("there is a new token")
    return {"rotated": True}


def _visits(request: Request) -> Visits:
    found = request.app.state.visits
    assert isinstance(found, Visits)
    return found
