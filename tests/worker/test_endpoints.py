"""Requests are checked by their types, and answers have theirs."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec
import pytest
from msgspec import UNSET, Meta, UnsetType
from msgspec import inspect as types

from claude_mem.client import Client
from claude_mem.config import Config
from claude_mem.domain.errors import InvalidRequest, UnknownAnswer
from claude_mem.worker.app import Service
from claude_mem.worker.http.api import ROUTES, build_app
from claude_mem.worker.http.endpoints import (
    Date,
    Endpoint,
    Field,
    Name,
    NoFields,
    PathId,
    RowIds,
    Wire,
    Words,
    decode_request,
    encode_request,
    request_fields,
)
from claude_mem.worker.http.route import Route
from tests.support.lab import Lab
from tests.worker.test_schema import PORT, TOKEN, _ask, _filled

ENDPOINTS = [route.endpoint for by in ROUTES.values() for route in by.values() if isinstance(route, Route)]
FIELDS = [
    (endpoint, field) for endpoint in ENDPOINTS for field in request_fields(endpoint) if field.place != "whole body"
]
NESTED: list[Any] = [{"a": [{"b": None}]}, [[[1]]], [None]]


class Sample(msgspec.Struct, frozen=True):
    """A field of each sort."""

    id: PathId
    text: Annotated[Name, Wire(also=("other_text",))]
    limit: Annotated[int, Meta(ge=1, le=50)] = 5
    order: Literal["up", "down"] = "up"
    since: Date | None = None
    ids: RowIds = []
    kinds: Words = ()
    dry_run: Annotated[bool, Wire(place="query")] = False
    title: str | UnsetType = UNSET


SAMPLE = Endpoint("POST", "/api/sample/{id}", Sample, Sample)


def decode(**body: Any) -> Sample:
    query = {"dry_run": body.pop("dry_run")} if "dry_run" in body else {}
    return decode_request(SAMPLE, path={"id": body.pop("id", "4")}, query=query, body=body)


# --- decoding --------------------------------------------------------------------------------------------------------


def test_values_are_read_as_their_types_say() -> None:
    found = decode(other_text="a" * 300, since="2026-01-31", kinds="a, b,", dry_run="yes", title="", ids=[1])
    assert (found.id, found.text, found.kinds, found.dry_run) == (4, "a" * 200, ("a", "b"), True)
    assert (found.title, found.ids, found.limit) == ("", [1], 5)
    assert found.since == decode(text="x", since=found.since).since


def test_null_and_empty_count_as_not_given_except_where_they_are_a_value() -> None:
    assert decode(text=" ", other_text="y", limit=None, order="", since=None) == Sample(4, "y")
    with pytest.raises(InvalidRequest, match="`title` must be a string"):
        decode(text="x", title=None)
    with pytest.raises(InvalidRequest, match="`text` is missing"):
        decode(text=None, other_text="")


def test_the_client_sends_what_the_worker_reads() -> None:
    request = Sample(7, "x/y?", limit=9, order="down", kinds=("a", "b"), dry_run=True, title="", ids=[3])
    address, body = encode_request(SAMPLE, request)
    path, _, query = address.partition("?")
    assert (path, query) == ("/api/sample/7", "dry_run=1")
    body["kinds"] = ",".join(request.kinds)  # in a query, where it is meant for, it is written so
    assert decode_request(SAMPLE, path={"id": "7"}, query={"dry_run": "1"}, body=body) == request


# --- every route -----------------------------------------------------------------------------------------------------


def wrong_values(endpoint: Endpoint[Any, Any], field: Field) -> Iterator[Any]:
    """Values that the type of a field does not allow. Those of a query are text."""
    info = types.type_info(field.type)
    options = info.types if isinstance(info, types.UnionType) else (info,)
    (info,) = [each for each in options if not isinstance(each, types.NoneType)]
    info = info.type if isinstance(info, types.Metadata) else info
    in_body = field.place == "body"
    if field.wire.expects.startswith("a date"):
        yield from ("soon", "2026-02-30", "9999-99-99", *([True, 1.5, *NESTED] if in_body else ()))
    elif isinstance(info, types.IntType):
        yield from (["5", True, 1.5, *NESTED] if in_body else ["five", "-1", "1.0", "1e3", "٣", "0x1", "1" * 30])
        if info.ge:
            yield info.ge - 1 if in_body else str(info.ge - 1)
        if info.le and info.le < 10**17:
            yield info.le + 1 if in_body else str(info.le + 1)
    elif isinstance(info, types.BoolType):
        yield from ([1, "yes", *NESTED] if in_body else ["maybe", "2", "{}"])
    elif isinstance(info, types.LiteralType):
        yield from ([5, "nothing", *NESTED] if in_body else ["nothing"])
    elif isinstance(info, types.StrType) and in_body:
        yield from (5, True, *NESTED)
    elif isinstance(info, types.ListType):
        yield from (5, "x", {"a": 1}, [None], [[[1]]])
    if field.is_exact:
        yield None


def request_with(endpoint: Endpoint[Any, Any], field: Field, value: Any) -> tuple[str, bytes]:
    """Address and body of a request in which only this field is wrong."""
    body, query = dict[str, Any](), dict[str, Any]()
    path = endpoint.path
    for each in request_fields(endpoint):
        if each.place == "path":
            path = path.replace(f"{{{each.names[0]}}}", "1")
        elif each is field or each.required:
            (body if each.place == "body" else query)[each.names[0]] = value if each is field else _valid(each)
    return f"{path}?{urlencode(query)}", json.dumps(body).encode()


def _valid(field: Field) -> Any:
    info = types.type_info(field.type)
    info = info.type if isinstance(info, types.Metadata) else info
    if isinstance(info, types.ListType):
        return ["/x"] if field.wire.expects == "a list of absolute paths" else [1]
    return 1 if isinstance(info, types.IntType) else "x"


def test_every_wrong_value_of_every_field_is_refused_by_the_name_of_the_field(config: Config) -> None:
    async def ask_all() -> tuple[int, list[str]]:
        service, count, bad = Service(config), 0, []
        app = build_app(service, token=TOKEN, port=PORT)
        try:
            for endpoint, field in FIELDS:
                for value in wrong_values(endpoint, field) if field.place != "path" else ():
                    address, body = request_with(endpoint, field, value)
                    status, raw = await _ask(app, endpoint.method, address, body)
                    said, count = json.loads(raw), count + 1
                    if status != 400 or f"`{field.names[0]}`" not in said["error"] or not said["hint"]:
                        bad.append(f"{endpoint.method} {address} {body!r}: {status} {said}")
        finally:
            service.close()
        return count, bad

    count, bad = asyncio.run(ask_all())
    assert bad == []
    assert count > 800


def test_of_a_query_parameter_that_is_given_twice_the_last_counts(config: Config) -> None:
    async def ask_all() -> list[str]:
        service, bad = Service(config), []
        app = build_app(service, token=TOKEN, port=PORT)
        try:
            for endpoint, field in FIELDS:
                values = list(wrong_values(endpoint, field)) if field.place == "query" else []
                if not values:
                    continue
                address, _ = request_with(endpoint, field, values[0])
                complaint = f"`{field.names[0]}` must be".encode()
                for last, is_refused in (("", False), (values[0], True)):
                    again = urlencode({field.names[0]: last})
                    _, raw = await _ask(app, endpoint.method, f"{address}&{again}", b"{}")
                    if (complaint in raw) != is_refused:
                        bad.append(f"{endpoint.name} {field.names[0]}: {raw!r}")
        finally:
            service.close()
        return bad

    assert asyncio.run(ask_all()) == []


def test_every_answer_has_the_type_that_its_endpoint_names(lab: Lab) -> None:
    worker = _filled(lab)
    seen = 0
    for endpoint in ENDPOINTS:
        if endpoint.method != "GET" or endpoint.media_type != "application/json":
            continue
        required = {each.names[0]: "1" for each in request_fields(endpoint) if each.required and each.place == "query"}
        address = f"{re.sub(r'{[^}]+}', '1', endpoint.path)}?{urlencode(required)}"
        connection = http.client.HTTPConnection("127.0.0.1", worker.port)
        connection.request("GET", address, headers={"Authorization": f"Bearer {worker.token}"})
        answer = connection.getresponse()
        raw = answer.read()
        connection.close()
        if answer.status == 200:
            msgspec.json.decode(raw, type=endpoint.answer)
            seen += 1
    assert seen > 40


def test_an_answer_of_another_version_is_an_error_with_a_hint(lab: Lab) -> None:
    class Newer(msgspec.Struct, frozen=True):
        a_field_of_the_future: int

    client: Client = lab.start()
    with pytest.raises(UnknownAnswer, match="a_field_of_the_future") as error:
        client.call(Endpoint("GET", "/api/line", NoFields, Newer), NoFields())
    assert "claude-mem restart" in error.value.hint


def test_every_request_and_answer_of_a_program_has_a_type() -> None:
    """Raw routes are those whose body or answer is not JSON of ours."""
    raw = {
        (method, path) for path, by in ROUTES.items() for method, route in by.items() if not isinstance(route, Route)
    }
    assert {path for method, path in raw if method == "POST"} == {
        "/mcp", "/api/context/inject", "/api/context/prompt", "/api/context/file", "/api/context/failure",
    }  # fmt: skip
    assert {path for method, path in raw if path.startswith("/api/") and method != "POST"} == set()
