"""Routes: an endpoint and the handler that answers it.

A handler is `async def handler(service, request) -> answer`; with a third parameter it also receives the `Caller`. It
parses nothing: the request has the endpoint's type and is checked. Routes that are not JSON both ways (files, the
stream, records of hooks, MCP) are `RawRoute`s, whose handlers read the HTTP request themselves.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from claude_mem.domain.errors import InvalidRequest, OperationFailed, RequestTooLarge
from claude_mem.domain.text import make_storable, map_strings
from claude_mem.privacy.trust import ACTOR_HEADER, AGENT, USER
from claude_mem.worker.app import Service
from claude_mem.worker.http.auth import CREDENTIAL, BrowserSessions, credential_of
from claude_mem.worker.http.endpoints import MAX_BODY, A, Endpoint, Q, decode_request

RawHandler = Callable[[Service, Request], Awaitable[Response]]

B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, and the browsers that are logged in."""

    by: str  # `user`, or `agent` if the command line reports that no person typed the command
    by_token: bool  # not by the credential of a browser
    credential: str  # of the browser; "" if there is none
    addresses: tuple[Any, Any]  # of the two ends of the connection
    browser_sessions: BrowserSessions

    def require_user(self) -> None:
        """Raise an error if the request comes from an agent."""
        if self.by != USER:
            raise OperationFailed(
                "only the user can decide this, not an agent", hint="use the viewer: `claude-mem open`"
            )


@dataclass(frozen=True, slots=True)
class Reply(Generic[B]):
    """An answer with more than a body. `then` runs after it was sent."""

    body: B
    status: int = 200
    then: BackgroundTask | None = None


@dataclass(frozen=True)
class Route(Generic[Q, A]):
    """An endpoint and its handler."""

    endpoint: Endpoint[Q, A]
    handler: (
        Callable[[Service, Q], Awaitable[A | Reply[A] | Response]]
        | Callable[[Service, Q, Caller], Awaitable[A | Reply[A] | Response]]
    )

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self.endpoint.method

    @property
    def path(self) -> str:
        """The path, with its parameters in braces."""
        return self.endpoint.path

    async def respond(self, service: Service, http: Request) -> Response:
        """Decode the request, call the handler and return its answer."""
        has_body = self.method in ("POST", "PATCH")
        body = await read_json_body(http, most=self.endpoint.max_body) if has_body else {}
        request = decode_request(self.endpoint, path=http.path_params, query=dict(http.query_params), body=body)
        handler: Callable[..., Awaitable[A | Reply[A] | Response]] = self.handler
        more = (_caller(http),) if len(inspect.signature(handler).parameters) == 3 else ()
        answer = await handler(service, request, *more)
        if isinstance(answer, Response):
            return answer
        return encode(answer.body, answer.status, answer.then) if isinstance(answer, Reply) else encode(answer)


@dataclass(frozen=True)
class RawRoute:
    """A route whose handler reads the HTTP request itself, or answers something other than JSON."""

    method: str
    path: str
    handler: RawHandler
    media_type: str = "application/json"

    async def respond(self, service: Service, http: Request) -> Response:
        """Return the handler's answer."""
        return await self.handler(service, http)


AnyRoute = Route[Any, Any] | RawRoute


def encode(value: object, status: int = 200, then: BackgroundTask | None = None) -> Response:
    """Return a JSON response."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a path that is not UTF-8
        encoded = msgspec.json.encode(map_strings(msgspec.to_builtins(value), make_storable))
    return Response(encoded, status, media_type="application/json", background=then)


async def read_body(request: Request, *, most: int = MAX_BODY) -> bytes:
    """Return the body, or raise `RequestTooLarge` if it has more than `most` bytes."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise RequestTooLarge(f"the body is larger than {most >> 10:,} KB", hint="send less")
    return bytes(body)


async def read_json_body(request: Request, *, most: int = MAX_BODY) -> dict[str, object]:
    """Return the body as a JSON object; empty without a body."""
    try:
        body = msgspec.json.decode(await read_body(request, most=most) or b"{}")
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise InvalidRequest("the body is not a JSON object")
    return body


def _caller(http: Request) -> Caller:
    return Caller(
        by=AGENT if http.headers.get(ACTOR_HEADER) == AGENT else USER,
        by_token=http.scope.get(CREDENTIAL) == "token",
        credential=credential_of(http.headers),
        addresses=(http.scope.get("client"), http.scope.get("server")),
        browser_sessions=browser_sessions_of(http),
    )


def browser_sessions_of(request: Request) -> BrowserSessions:
    """Return the browser sessions of the request's app."""
    browser_sessions = request.app.state.browser_sessions
    assert isinstance(browser_sessions, BrowserSessions)
    return browser_sessions
