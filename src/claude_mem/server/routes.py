"""The routes of a node. `docs/server.md` lists them for the authors of clients."""

from __future__ import annotations

import hmac
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from claude_mem.domain import frames
from claude_mem.domain.errors import InvalidRequest, NotFound, NotPermitted
from claude_mem.server import tokens
from claude_mem.server.node import (
    UNAUTHORIZED,
    Call,
    Node,
    Problem,
    authenticated,
    check_device,
    json_answer,
    public,
    read_json,
)
from claude_mem.storage.postgres import logs, people, spaces
from claude_mem.storage.postgres.engine import DatabaseState, TeamTransaction
from claude_mem.storage.postgres.people import Caller
from claude_mem.system.failpoints import failpoint

PROTOCOL = 1
MAX_MANIFEST_BYTES = 1 << 20
MAX_APPEND_BYTES = 8 << 20
FRAMES = "application/octet-stream"
READY_SECONDS = 1.0  # for which the result of a check is reported again

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class EnrolRequest(msgspec.Struct, frozen=True):
    """Body of `POST /v1/devices`."""

    code: str
    device: str
    name: Annotated[str, msgspec.Meta(max_length=200)] = ""


class SpaceRequest(msgspec.Struct, frozen=True):
    """Body of `POST /v1/spaces`."""

    space: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    kind: Literal["personal", "team"]


# --- manifests and logs ----------------------------------------------------------------------------------------------


async def read_manifest(call: Call) -> Response:
    """`GET /v1/spaces/{space}/manifest`."""

    async def work(tx: TeamTransaction) -> spaces.Manifest | None:
        await spaces.require(tx, call.caller, call.space_id)
        return await spaces.read_manifest(tx, call.space_id)

    manifest = await call.run(work)
    if manifest is None:
        raise Problem(404, "no_manifest", "this space has no manifest yet")
    return Response(manifest.body, media_type=FRAMES, headers={"ETag": f'"{manifest.etag}"'})


async def write_manifest(call: Call) -> Response:
    """`PUT /v1/spaces/{space}/manifest` with `If-Match` or `If-None-Match: *`."""
    expected = _expected_tag(call.http)

    async def work(tx: TeamTransaction, body: bytes) -> str:
        await spaces.require(tx, call.caller, call.space_id, writes=True)
        return await spaces.write_manifest(tx, call.caller, call.space_id, body, expected=expected)

    async with call.body(MAX_MANIFEST_BYTES) as body:
        if not body:
            raise InvalidRequest("a manifest may not be empty")
        etag = await call.run(work, body)
    return Response(status_code=204, headers={"ETag": f'"{etag}"'})


def _expected_tag(http: Request) -> str | None:
    """Return the tag that the manifest must have, or None if there must be no manifest."""
    tag, none = http.headers.get("if-match"), http.headers.get("if-none-match")
    if tag is None and none is not None and none.strip() == "*":
        return None
    if tag is None or none is not None:
        raise Problem(428, "precondition_required", "send If-Match with a tag, or If-None-Match: *")
    return tag.strip().removeprefix("W/").strip('"')


async def read_heads(call: Call) -> Response:
    """`GET /v1/spaces/{space}/heads`."""

    async def work(tx: TeamTransaction) -> dict[str, int]:
        await spaces.require(tx, call.caller, call.space_id)
        return await logs.heads(tx, call.space_id)

    return json_answer({"heads": await call.run(work)})


async def read_log(call: Call) -> Response:
    """`GET /v1/spaces/{space}/logs/{device}?after=n&limit=m`."""
    device, after = call.device, call.number("after", 0)
    limit = call.number("limit", logs.MAX_READ_ENTRIES, logs.MAX_READ_ENTRIES)

    async def work(tx: TeamTransaction) -> list[bytes]:
        await spaces.require(tx, call.caller, call.space_id)
        return await logs.read(tx, call.space_id, device, after=after, limit=limit)

    bodies = await call.run(work)
    call.node.metrics.count("entries_read", len(bodies))
    return Response(frames.encode(bodies), media_type=FRAMES)


async def append_to_log(call: Call) -> Response:
    """`POST /v1/spaces/{space}/logs/{device}?after=n`."""
    device, after = call.device, call.number("after", None)
    if device != call.caller.device:
        raise NotPermitted("only the device itself may append to its log")

    async def work(tx: TeamTransaction, bodies: list[bytes]) -> None:
        await spaces.require(tx, call.caller, call.space_id, writes=True)
        await logs.append(tx, call.space_id, device, after=after, bodies=bodies)
        failpoint("team.appended")

    async with call.body(MAX_APPEND_BYTES) as body:
        bodies = frames.decode(body)
        if not bodies:
            raise InvalidRequest("the request has no entries")
        await call.run(work, bodies)
        failpoint("team.committed")
    call.node.metrics.count("entries_appended", len(bodies))
    return Response(status_code=204)


# --- spaces, devices, codes ------------------------------------------------------------------------------------------


async def create_space(call: Call) -> Response:
    """`POST /v1/spaces`."""
    request = await read_json(call.node, call.http, SpaceRequest)
    is_new = await call.run(spaces.create, call.caller, UUID(request.space), request.kind)
    return json_answer({"space": request.space, "kind": request.kind}, 201 if is_new else 200)


async def list_spaces(call: Call) -> Response:
    """`GET /v1/spaces`."""
    return json_answer({"spaces": await call.run(spaces.list_of, call.caller)})


async def set_membership(call: Call) -> Response:
    """`PUT` or `DELETE /v1/spaces/{space}/members/{member}`."""
    try:
        member_id = UUID(call.http.path_params["member"])
    except ValueError:
        raise NotFound("no such member") from None
    belongs = call.http.method == "PUT"
    await call.run(spaces.set_membership, call.caller, call.space_id, member_id, belongs=belongs)
    return Response(status_code=204)


async def enrol(node: Node, http: Request) -> Response:
    """`POST /v1/devices`: the one route whose credential is a code."""
    request = await read_json(node, http, EnrolRequest)
    device = check_device(request.device)
    if (code := tokens.parse_code(request.code.strip())) is None:
        raise NotFound("the code is unknown, expired or used", hint="ask for a new code")
    token = tokens.new_token(code.org_id, device)
    enrolment = partial(
        people.enrol, code_hash=code.hash, device=device, name=request.name, token_hash=tokens.hash_secret(token)
    )
    # Not repeated: after a lost confirmation the code is used, and only a new one is sure to give a valid token.
    await node.db.run(code.org_id, enrolment, is_idempotent=False)
    return json_answer({"token": token, "device": device, "organisation": code.org_id.hex}, 201)


async def list_devices(call: Call) -> Response:
    """`GET /v1/devices`: the member's own, or all of the organisation for a maintainer."""
    return json_answer({"devices": await call.run(people.list_devices, _own_unless_maintainer(call.caller))})


async def revoke_device(call: Call) -> Response:
    """`DELETE /v1/devices/{device}`."""
    member_id = _own_unless_maintainer(call.caller)
    await call.run(people.revoke, call.device, member_id=member_id, actor=call.caller.device)
    return Response(status_code=204)


async def create_code(call: Call) -> Response:
    """`POST /v1/codes`: a code for another device of the same member."""
    code, seconds = tokens.new_code(call.caller.org_id), call.node.settings.code_minutes * 60
    code_hash = tokens.hash_secret(code)
    await call.run(people.create_code, call.caller.member_id, code_hash, seconds=seconds, actor=call.caller.device)
    return json_answer({"code": code, "seconds": seconds}, 201)


def _own_unless_maintainer(caller: Caller) -> UUID | None:
    return None if caller.role == "maintainer" else caller.member_id


# --- about the node --------------------------------------------------------------------------------------------------


async def about(_node: Node, _http: Request) -> Response:
    """`GET /v1`: what a client may expect."""
    limits = {
        "entry_bytes": frames.MAX_ENTRY_BYTES,
        "request_bytes": MAX_APPEND_BYTES,
        "request_entries": frames.MAX_ENTRIES,
        "read_bytes": logs.MAX_READ_BYTES,
        "read_entries": logs.MAX_READ_ENTRIES,
    }
    return json_answer({"protocol": PROTOCOL, "limits": limits})


async def healthz(_node: Node, _http: Request) -> Response:
    """`GET /healthz`: the process answers."""
    return json_answer({"status": "ok"})


@dataclass(slots=True)
class Readiness:
    """The last check of the database. Anyone may ask, so that the answers of a second share one check."""

    state: DatabaseState = field(default_factory=DatabaseState)
    until: float = 0

    async def __call__(self, node: Node, _http: Request) -> Response:
        """`GET /readyz`: the database answers and has the schema of this version."""
        if time.monotonic() > self.until:
            self.until = time.monotonic() + READY_SECONDS
            self.state = await node.db.check()
        if self.state.problem:
            return json_answer({"status": "unavailable", "message": self.state.problem}, 503)
        return json_answer({"status": "ok", "writes": not self.state.is_read_only})


async def metrics(node: Node, http: Request) -> Response:
    """`GET /metrics`."""
    expected = node.settings.metrics_token
    header = http.headers.get("authorization", "")
    if expected and not hmac.compare_digest(header.encode(), f"Bearer {expected}".encode()):
        raise UNAUTHORIZED()
    text = node.metrics.render(node.db.statistics)
    return Response(text, media_type="text/plain; version=0.0.4")


AUTHENTICATED: tuple[tuple[str, str, Callable[[Call], Awaitable[Response]]], ...] = (
    ("GET", "/v1/spaces", list_spaces),
    ("POST", "/v1/spaces", create_space),
    ("GET", "/v1/spaces/{space}/manifest", read_manifest),
    ("PUT", "/v1/spaces/{space}/manifest", write_manifest),
    ("GET", "/v1/spaces/{space}/heads", read_heads),
    ("GET", "/v1/spaces/{space}/logs/{device}", read_log),
    ("POST", "/v1/spaces/{space}/logs/{device}", append_to_log),
    ("PUT", "/v1/spaces/{space}/members/{member}", set_membership),
    ("DELETE", "/v1/spaces/{space}/members/{member}", set_membership),
    ("GET", "/v1/devices", list_devices),
    ("DELETE", "/v1/devices/{device}", revoke_device),
    ("POST", "/v1/codes", create_code),
)


def build_app(node: Node) -> Starlette:
    """Return the application of a node."""
    open_routes = (
        ("GET", "/v1", about),
        ("POST", "/v1/devices", enrol),
        ("GET", "/healthz", healthz),
        ("GET", "/readyz", Readiness()),
        ("GET", "/metrics", metrics),
    )
    routes = [Route(path, authenticated(node, handler), methods=[method]) for method, path, handler in AUTHENTICATED]
    routes += [Route(path, public(node, handler), methods=[method]) for method, path, handler in open_routes]
    return Starlette(routes=routes, exception_handlers={HTTPException: _http_error})


async def _http_error(_http: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "no_route", 405: "method"}.get(error.status_code, "http")
    return json_answer({"error": code, "message": error.detail}, error.status_code)
