"""Parse and validate parts of a request. Invalid input raises `InvalidRequest`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from starlette.requests import Request

from claude_mem.domain.errors import InvalidRequest, OperationFailed, RequestTooLarge
from claude_mem.domain.text import make_storable, parse_time
from claude_mem.domain.validity import CHANGED, Validity
from claude_mem.privacy.trust import ACTOR_HEADER, AGENT, USER
from claude_mem.worker.app import Service

Handler = Callable[[Service, Request], Awaitable[Any]]

MAX_BODY = 8 * 1024 * 1024
MAX_STRANGER_BODY = 4 * 1024  # of a request without a credential: many of them wait at the same time


async def read_body(request: Request, *, most: int = MAX_BODY) -> bytes:
    """Return the body, or raise `RequestTooLarge` if it has more than `most` bytes."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise RequestTooLarge(f"the body is larger than {most >> 10:,} KB", hint="send less")
    return bytes(body)


async def read_json_body(request: Request, *, most: int = MAX_BODY) -> dict[str, Any]:
    """Return the body as a JSON object; empty without a body."""
    try:
        body = msgspec.json.decode(await read_body(request, most=most) or b"{}")
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise InvalidRequest("the body is not a JSON object")
    return body


def requested_by(request: Request) -> str:
    """Return `user`, or `agent` if the command line reports that no person typed the command."""
    return AGENT if request.headers.get(ACTOR_HEADER) == AGENT else USER


def require_user(request: Request) -> None:
    """Raise an error if the request comes from an agent."""
    if requested_by(request) != USER:
        raise OperationFailed("only the user can decide this, not an agent", hint="use the viewer: `claude-mem open`")


def int_query(request: Request, name: str, default: int, *, low: int = 0, high: int = 1_000_000_000) -> int:
    """Return an integer from the query; raise `InvalidRequest` if it is out of range."""
    text = request.query_params.get(name, str(default))
    if not text.isdigit() or not text.isascii() or len(text) > 10 or not low <= int(text) <= high:
        raise InvalidRequest(f"{name} must be an integer from {low} to {high}")
    return int(text)


def id_param(params: Mapping[str, str], name: str) -> int:
    """Return a row id from the query, or 0 if it is not given."""
    text = params.get(name, "")
    if text and (not text.isdigit() or not text.isascii() or len(text) > 15):
        raise InvalidRequest(f"{name} must be an integer")
    return int(text or 0)


def bool_param(params: Mapping[str, str], name: str) -> bool:
    """Return whether a query parameter is `1`, `true` or `yes`."""
    return params.get(name, "").lower() in ("1", "true", "yes")


def path_id(request: Request) -> int:
    """Return the row id in the path."""
    text = request.path_params["id"]
    if not text.isdigit() or not text.isascii() or len(text) > 18:
        raise InvalidRequest("the id must be an integer")
    return int(text)


def str_field(body: dict[str, Any], *names: str, required: bool = False, limit: int = 1_000_000) -> str:
    """Return the first non-empty string among these fields, cut to `limit` characters."""
    for name in names:
        if isinstance(value := body.get(name), str) and value.strip():
            return make_storable(value[:limit])
    if required:
        raise InvalidRequest(f"`{names[0]}` is missing", hint="it must be a non-empty string")
    return ""


def is_id(item: Any) -> bool:
    """Return whether a JSON value can be a row id."""
    return isinstance(item, int) and not isinstance(item, bool) and 0 < item < 1 << 62


def list_param(params: dict[str, str], *names: str) -> tuple[str, ...]:
    """Return the comma-separated values of the first of these parameters that is given."""
    text = next((params[name] for name in names if params.get(name)), "")
    return tuple(part.strip() for part in make_storable(text).split(",") if part.strip())


def validities_param(params: dict[str, str]) -> tuple[str, ...]:
    """Return the validities to filter by. `changed` stands for all that something has changed about."""
    names = list_param(params, "validity")
    if unknown := set(names) - {*filter(None, Validity), "changed"}:
        hint = "use changed, " + ", ".join(filter(None, Validity))
        raise InvalidRequest(f"there is no validity {min(unknown)!r}", hint=hint)
    return tuple(dict.fromkeys(item for name in names for item in (CHANGED if name == "changed" else (name,))))


def date_param(params: Mapping[str, str], name: str, *, end: bool = False) -> int | None:
    """Return a date as milliseconds, or None if it is not given. `end`: a day means the end of that day."""
    try:
        return parse_time(params.get(name, ""), end=end)
    except ValueError as error:
        raise InvalidRequest(f"{name} is not a date", hint="use 2026-01-31, or milliseconds since 1970") from error
