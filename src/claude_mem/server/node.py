"""A node: the parts that every request uses, and how a request is admitted, answered, counted and logged."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from claude_mem.domain.errors import (
    ClaudeMemError,
    DatabaseUnavailable,
    InvalidRequest,
    LogConflict,
    ManifestConflict,
    NotFound,
    NotPermitted,
    OperationFailed,
    RequestTooLarge,
)
from claude_mem.server import tokens
from claude_mem.server.capacity import Capacity, Overloaded
from claude_mem.server.json_log import FIELDS
from claude_mem.server.metrics import Metrics
from claude_mem.server.settings import ServerSettings
from claude_mem.storage.postgres import people
from claude_mem.storage.postgres.engine import TeamDatabase, TeamTransaction
from claude_mem.storage.postgres.people import Caller
from claude_mem.system.failpoints import failpoint

log = logging.getLogger(__name__)

T = TypeVar("T")
MAX_JSON_BYTES = 64 << 10
SPACE = re.compile(r"[0-9a-f]{32}")
DEVICE = re.compile(r"[0-9a-f]{16}")
MAX_INDEX = (1 << 63) - 1 - (1 << 20)  # of a bigint, with room for one request's entries

# What an error is answered with: status and code. The first that fits counts.
STATUS: tuple[tuple[type[ClaudeMemError], int, str], ...] = (
    (Overloaded, 429, "overloaded"),
    (DatabaseUnavailable, 503, "unavailable"),
    (LogConflict, 409, "log_conflict"),
    (ManifestConflict, 412, "manifest_conflict"),
    (NotPermitted, 403, "not_permitted"),
    (NotFound, 404, "not_found"),
    (RequestTooLarge, 413, "too_large"),
    (InvalidRequest, 400, "invalid"),
    (OperationFailed, 409, "failed"),
)


class Problem(Exception):
    """An answer that only HTTP knows."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers


UNAUTHORIZED = partial(
    Problem, 401, "unauthorized", "the token is missing, unknown or revoked", **{"WWW-Authenticate": "Bearer"}
)


@dataclass(slots=True)
class Node:
    """The parts that requests share."""

    db: TeamDatabase
    settings: ServerSettings
    metrics: Metrics = field(default_factory=Metrics)
    capacity: Capacity = field(init=False)

    def __post_init__(self) -> None:
        self.capacity = Capacity(
            running=max(1, self.settings.requests_per_organisation),
            waiting=self.settings.waiting_per_organisation,
            body_bytes=self.settings.body_megabytes << 20,
        )


@dataclass(slots=True)
class Call:
    """A request with the node that answers it. `caller` is set once the token was checked."""

    node: Node
    http: Request
    caller: Caller
    facts: dict[str, object]  # for the log line

    async def run(self, work: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        """Run a function of `storage.postgres` in a transaction of the caller's organisation."""

        async def bound(tx: TeamTransaction) -> T:
            return await work(tx, *args, **options)

        return await self.node.db.run(self.caller.org_id, bound)

    @property
    def space_id(self) -> UUID:
        """The space in the path."""
        text = self.http.path_params["space"]
        if not SPACE.fullmatch(text):
            raise NotFound("a space id has 32 hexadecimal characters")
        return UUID(text)

    @property
    def device(self) -> str:
        """The device in the path."""
        return check_device(self.http.path_params["device"])

    def number(self, name: str, default: int | None, most: int = MAX_INDEX) -> int:
        """Return a number of the query, at most `most`."""
        text = self.http.query_params.get(name)
        if text is None and default is not None:
            return default
        if not text or not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > MAX_INDEX:
            raise InvalidRequest(f"`{name}` must be a number")
        return min(int(text), most)

    @asynccontextmanager
    async def body(self, most: int) -> AsyncIterator[bytes]:
        """Read the request's body, and hold the memory for it until the request is answered."""
        async with _body(self.node, self.http, most) as body:
            self.facts["bytes_in"] = len(body)
            yield body


def check_device(text: str) -> str:
    """Return the device id, or raise an error if it is not one."""
    if not DEVICE.fullmatch(text):
        raise InvalidRequest("a device id has exactly 16 hexadecimal characters")
    return text


@asynccontextmanager
async def _body(node: Node, http: Request, most: int) -> AsyncIterator[bytes]:
    length = http.headers.get("content-length", "")
    if not length.isascii() or not length.isdigit():
        raise Problem(411, "length_required", "send the body with its Content-Length")
    if len(length) > 12 or int(length) > most:
        raise RequestTooLarge(f"the body of this request may have {most} bytes at most")
    with node.capacity.memory(int(length)):
        try:
            async with asyncio.timeout(node.settings.body_seconds):
                body = await http.body()
        except TimeoutError as error:
            raise Problem(408, "timeout", "the body did not arrive in time", Connection="close") from error
        failpoint("team.received")
        yield body


async def read_json(node: Node, http: Request, kind: type[T]) -> T:
    """Return the request's JSON body as a value of this type."""
    async with _body(node, http, MAX_JSON_BYTES) as body:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:  # a ValidationError is a DecodeError
            raise InvalidRequest(f"the body does not fit: {error}") from error


def json_answer(value: object, status: int = 200) -> Response:
    """Return a JSON answer."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


Handler = Callable[[Call], Awaitable[Response]]
PublicHandler = Callable[[Node, Request], Awaitable[Response]]


def authenticated(node: Node, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that checks the token, waits for the organisation's turn and calls the handler."""

    async def endpoint(http: Request) -> Response:
        facts: dict[str, object] = {}

        async def respond() -> Response:
            caller = await _authenticate(node, http)
            facts["org"], facts["device"] = caller.org_id.hex, caller.device
            async with node.capacity.turn(caller.org_id):
                return await handler(Call(node, http, caller, facts))

        return await _answer(node, http, respond, facts)

    return endpoint


def public(node: Node, handler: PublicHandler) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that needs no token of a device."""

    async def endpoint(http: Request) -> Response:
        return await _answer(node, http, lambda: handler(node, http), {})

    return endpoint


async def _authenticate(node: Node, http: Request) -> Caller:
    scheme, _, text = http.headers.get("authorization", "").partition(" ")
    parts = tokens.parse_token(text.strip()) if scheme.lower() == "bearer" else None
    if parts is None:
        node.metrics.count("rejected_tokens")
        raise UNAUTHORIZED()
    # Read for every request, on every node: a token that was revoked is refused from the next request on.
    caller = await node.db.run(parts.org_id, partial(people.find_caller, device=parts.device))
    if caller is None or not tokens.is_same(caller.token_hash, parts.hash):
        node.metrics.count("rejected_tokens")
        raise UNAUTHORIZED()
    return caller


async def _answer(
    node: Node, http: Request, respond: Callable[[], Awaitable[Response]], facts: dict[str, object]
) -> Response:
    """Answer a request, whatever happens, and write its log line."""
    began = time.perf_counter()
    request_id = secrets.token_hex(8)
    try:
        if "origin" in http.headers:
            raise Problem(403, "origin", "requests of web pages are refused")
        response = await respond()
    except Exception as error:  # the outermost frame of a request
        response = _failure(node, error, request_id)
    seconds = time.perf_counter() - began
    route = getattr(http.scope.get("route"), "path", "")
    node.metrics.count("requests", route=route, method=http.method, status=str(response.status_code))
    node.metrics.observe(route, seconds)
    response.headers["X-Request-Id"] = request_id
    response.headers.setdefault("Cache-Control", "no-store")
    line = {"method": http.method, "route": route, "status": response.status_code, "ms": round(seconds * 1000, 2)}
    log.info("request", extra={FIELDS: {"request": request_id, **line, "bytes_out": len(response.body), **facts}})
    return response


def _failure(node: Node, error: Exception, request_id: str) -> Response:
    match error:
        case Problem():
            response = json_answer({"error": error.code, "message": str(error)}, error.status)
            response.headers.update(error.headers)
            return response
        case ClientDisconnect():
            return Response(status_code=400)  # it is not read
        case ClaudeMemError():
            return _refusal(node, error)
    log.error("request failed", exc_info=error, extra={FIELDS: {"request": request_id}})
    return json_answer({"error": "internal", "message": f"internal error; request {request_id}"}, 500)


def _refusal(node: Node, error: ClaudeMemError) -> Response:
    status, code = next((status, code) for kind, status, code in STATUS if isinstance(error, kind))
    body: dict[str, object] = {"error": code, "message": str(error)}
    if error.hint:
        body["hint"] = error.hint
    if isinstance(error, LogConflict):
        body["head"] = error.head
    if isinstance(error, Overloaded):
        node.metrics.count("refused", reason=error.reason)
    if isinstance(error, DatabaseUnavailable) and error.is_read_only:
        body["error"] = "read_only"
    response = json_answer(body, status)
    if status in (429, 503):
        response.headers["Retry-After"] = "2"
    return response
