"""The viewer: its files, and how a browser logs in. The data it shows comes from the other routes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from claude_mem.agents.registry import AGENTS
from claude_mem.domain import ids
from claude_mem.domain.errors import InvalidRequest, NotFound, OperationFailed
from claude_mem.privacy import secrets
from claude_mem.storage.records import FeedCursor, FeedFilter
from claude_mem.system import process
from claude_mem.worker.app import Service
from claude_mem.worker.http import auth
from claude_mem.worker.http.auth import (
    OPEN,
    OPEN_AGAIN,
    OPENED_SECONDS,
    PRINTED_SECONDS,
    Alert,
)
from claude_mem.worker.http.endpoints import NoFields
from claude_mem.worker.http.route import AnyRoute, Caller, RawRoute, Route
from claude_mem.worker.http.schemas.viewer import (
    CREATE_LINK,
    CREATE_RENEWAL,
    LOG_IN,
    LOG_IN_AGAIN,
    ROTATE_TOKEN,
    SHOW_CHALLENGE,
    SHOW_FACETS,
    SHOW_FEED,
    SHOW_LINK,
    Admission,
    Challenge,
    Facets,
    Feed,
    FeedQuery,
    HostFacet,
    Link,
    LinkId,
    LinkRequest,
    LinkState,
    LogIn,
    LogInAgain,
    Renewal,
    RenewedLogin,
    TokenRotated,
    TypeFacet,
)

log = logging.getLogger(__name__)

FILES = Path(__file__).parents[3] / "data" / "viewer"
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# All of them return the same page; its script shows the view for the address.
PATHS = (
    "/", "/search", "/sessions", "/session/{id}", "/observation/{id}", "/projects", "/project/{id}", "/context",
    "/cost", "/health", "/logs", "/settings", "/quarantine",
    "/changes", "/worth",
)  # fmt: skip
# What a browser loads before it can send its credential; it contains no data.
PUBLIC = (*PATHS, OPEN, OPEN_AGAIN, "/static/{name:path}", "/healthz")


async def show_page(_: Service, request: Request) -> Response:
    """The viewer. Its views: recent memory, search, sessions, observations, projects, context, worth, cost, health."""
    return _respond_with_file(request, "index.html")


async def serve_file(_: Service, request: Request) -> Response:
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


async def show_feed(service: Service, request: FeedQuery) -> Feed:
    """Recent memory of all kinds, newest first: `limit` (1–100), `before` (the `next` of the previous page), `project`
    (its id), `kind`, `type`, `concept`, `validity`, `host`, `since`, `until` → `{items, next}`."""
    feed_filter = FeedFilter(
        project_id=request.project,
        kind=request.kind,
        type=request.type,
        concept=request.concept,
        validities=request.validity,
        host=request.host,
        since=request.since,
        until=request.until,
    )
    before = FeedCursor.parse(request.before) if request.before else None
    items, next_cursor = await service.db.read(
        lambda tx: tx.memory.load_feed_page(feed_filter, before=before, limit=request.limit)
    )
    return Feed(items=items, next=str(next_cursor) if next_cursor else "")


async def show_facets(service: Service, _: NoFields) -> Facets:
    """Values to filter by: types, concepts, agents, projects."""
    return Facets(
        types=[TypeFacet(name=name, icon=icon) for name, icon in service.icons.items()],
        concepts=list(service.mode.concepts),
        hosts=[HostFacet(name=host.name, title=host.label) for host in AGENTS.values()],
        projects=await service.db.read(lambda tx: tx.memory.list_projects_with_counts()),
    )


async def create_link(_: Service, request: LinkRequest, caller: Caller) -> Link:
    """Create a link that logs in one browser, once and within `seconds`: `{path?, printed?}` → `{id, url, seconds}`.

    It is valid longer if it is `printed` for pasting. The code follows the `#`, which browsers never send.
    """
    path = request.path
    if not path.startswith("/") or path.startswith("//") or "\\" in path:
        raise InvalidRequest("`path` is not a page of the viewer", hint="for example /search?q=rounding")
    seconds = PRINTED_SECONDS if request.printed else OPENED_SECONDS
    link_id, code = caller.browser_sessions.create_link(path, seconds=seconds)
    url = f"http://127.0.0.1:{caller.browser_sessions.port}{OPEN}#{code}"
    return Link(id=link_id, url=url, seconds=seconds)


async def show_link(_: Service, request: LinkId, caller: Caller) -> LinkState:
    """The state of a link → `{state}`: waiting, used, expired, or misused (its code was used by someone else)."""
    return LinkState(caller.browser_sessions.state(request.id))


async def log_in(service: Service, request: LogIn, caller: Caller) -> Admission:
    """Log in a browser: the `{code}` of a link → `{credential, path}`.

    The credential is sent as `Authorization: Viewer CREDENTIAL` until the worker exits. If a code is used a second
    time, all browsers are logged out and the token is replaced.
    """
    stranger = await asyncio.to_thread(auth.foreign_user, *caller.addresses)
    entry = caller.browser_sessions.redeem(request.code, credential=caller.credential, stranger=stranger)
    if isinstance(entry, Alert):
        log.warning("%s", entry.text)
        await rotate_token(service, NoFields(), caller)  # otherwise whatever a thief got in between would stay valid
        await service.db.write(
            lambda tx: tx.journal.add_notice(f"door:{entry.id}", f"claude-mem: {entry.text}", now=ids.now_ms())
        )
        raise OperationFailed("Someone else used this link as well.", hint=entry.text)
    if entry is None:
        raise OperationFailed(
            "This link was used or has expired.", hint="Type `claude-mem open` in a terminal for a new one."
        )
    return entry


async def create_renewal(_: Service, __: NoFields, caller: Caller) -> Renewal:
    """Issue the key by which an open page logs in by itself after a restart of the worker → `{id, key}`."""
    return caller.browser_sessions.create_renewal()


async def show_challenge(_: Service, __: NoFields, caller: Caller) -> Challenge:
    """The challenge a page signs to log in again → `{challenge}`."""
    return Challenge(caller.browser_sessions.challenge)


async def log_in_again(_: Service, request: LogInAgain, caller: Caller) -> RenewedLogin:
    """Log in a page again that was open when the worker exited: `{id, proof}` → `{credential, proof}`.

    The first proof is the HMAC-SHA256, with the key of its renewal, of "page CHALLENGE"; the second, which the page
    checks, of "worker CHALLENGE CREDENTIAL".
    """
    renewed = caller.browser_sessions.renew(request.id, request.proof)
    if renewed is None:
        raise OperationFailed("This page is not logged in.", hint="Type `claude-mem open` in a terminal.")
    return renewed


async def rotate_token(service: Service, _: NoFields, caller: Caller) -> TokenRotated:
    """Replace the token. The old token and all browsers are refused from now on → `{rotated}`."""
    fresh = process.create_token(service.config.data_dir)
    secrets.add_known_secret(fresh)
    caller.browser_sessions.replace_token(fresh)
    if (worker := process.read_worker_info(service.config.data_dir)) is not None:
        process.write_worker_info(service.config.data_dir, msgspec.structs.replace(worker, token=fresh))
    service.stream.hang_up()  # listeners were authorized by the old token
    log.info("the token was replaced")
    return TokenRotated(rotated=True)


ROUTES: tuple[AnyRoute, ...] = (
    Route(SHOW_FEED, show_feed),
    Route(SHOW_FACETS, show_facets),
    Route(CREATE_LINK, create_link),
    Route(ROTATE_TOKEN, rotate_token),
    Route(SHOW_LINK, show_link),
    *(RawRoute("GET", path, show_page, media_type="text/html") for path in (*PATHS, OPEN)),
    Route(LOG_IN, log_in),
    Route(SHOW_CHALLENGE, show_challenge),
    Route(LOG_IN_AGAIN, log_in_again),
    Route(CREATE_RENEWAL, create_renewal),
    RawRoute("GET", "/static/{name:path}", serve_file),
)
