"""What an endpoint is: a method, a path, the type of its request and the type of its answer.

The worker decodes requests by these types, the client encodes them, and the OpenAPI document is derived from them. This
module imports no server, so that commands start quickly.

A request type is a frozen `msgspec.Struct`. Its fields travel in the path if the path names them, otherwise in the
query of GET and DELETE, otherwise in the body. `Wire` says what a type cannot: another place, other accepted names, or
how the value is written. A value that is empty or null counts as not given; a wrong one is an `InvalidRequest` that
names the field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Generic, Literal, TypeVar, get_args, get_origin
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET, Meta
from msgspec import inspect as types

from claude_mem.domain.errors import InvalidRequest
from claude_mem.domain.text import make_storable, parse_time

Place = Literal["path", "query", "body", "whole body"]
Q = TypeVar("Q", bound=msgspec.Struct)
A = TypeVar("A")

MAX_DIGITS = 18
MAX_BODY = 8 * 1024 * 1024
MAX_STRANGER_BODY = 4 * 1024  # of a request without a credential: many of them wait at the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """How a field travels, where its type does not say. Put it into `Annotated`."""

    place: Place | None = None
    also: tuple[str, ...] = ()  # other names that clients use
    limit: int | None = None  # longer strings are cut
    read: Callable[[object], object] | None = None  # makes the value of what was sent, or raises ValueError
    expects: str = ""  # completes "it must be …"
    schema: Mapping[str, object] | None = field(default=None, compare=False)  # a dict has no hash


@dataclass(frozen=True)
class Endpoint(Generic[Q, A]):
    """One method of one path. `others`: what the answer can be instead; `or_text`: it can also be text."""

    method: str
    path: str
    request: type[Q]
    answer: type[A]
    others: tuple[type, ...] = ()
    or_text: bool = False
    media_type: str = "application/json"
    max_body: int = MAX_BODY

    @property
    def name(self) -> str:
        """`GET /api/line`."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a request as an endpoint receives it."""

    attribute: str
    names: tuple[str, ...]  # the first is the one to use
    place: Place
    type: object
    required: bool
    is_exact: bool  # an empty string is a value, as in a change of a text
    wire: Wire
    expects: str

    def find(self, values: Mapping[str, object]) -> tuple[str, object]:
        """Return the name under which the field was sent, and its value; `UNSET` if it was not sent."""
        for name in self.names:
            value = values.get(name, UNSET)
            if value is not UNSET and (self.is_exact or not (value is None or _is_blank(value))):
                return name, value
        return self.names[0], UNSET

    def read(self, name: str, value: object) -> object:
        """Return the checked value."""
        try:
            if self.wire.read is not None:
                value = self.wire.read(value)
            elif self.place in ("path", "query") and isinstance(value, str):
                value = _from_text(value, self.type)
            if isinstance(value, str):
                value = make_storable(value[: self.wire.limit])
            return msgspec.convert(value, self.type)
        except (ValueError, RecursionError) as error:  # msgspec.ValidationError is a ValueError
            what = "the id in the path" if self.place == "path" else f"`{name}`"
            hint = "`claude-mem routes --openapi` describes every route"
            raise InvalidRequest(f"{what} must be {self.expects}", hint=hint) from error


def decode_request(
    endpoint: Endpoint[Q, A], *, path: Mapping[str, object], query: Mapping[str, object], body: Mapping[str, object]
) -> Q:
    """Return the request, or raise `InvalidRequest`."""
    sources = {"path": path, "query": query, "body": body}
    fields = request_fields(endpoint)
    values: dict[str, object] = {}
    for each in fields:
        if each.place == "whole body":
            values[each.attribute] = body
            continue
        name, value = each.find(sources[each.place])
        if value is not UNSET:
            values[each.attribute] = each.read(name, value)
        elif each.required:
            raise InvalidRequest(f"`{name}` is missing", hint=f"it must be {each.expects}")
    if endpoint.request.__struct_config__.forbid_unknown_fields:
        names = {name for each in fields if each.place == "body" for name in each.names}
        if unknown := [name for name in body if name not in names]:
            choices = ", ".join(each.names[0] for each in fields if each.place == "body")
            raise InvalidRequest(f"there is no field `{unknown[0][:100]}`", hint=f"use {choices}")
    return endpoint.request(**values)


def encode_request(endpoint: Endpoint[Q, A], request: Q) -> tuple[str, dict[str, object]]:
    """Return the address with its query, and the body. Fields that have their default are left out."""
    address, query, body = endpoint.path, dict[str, object](), dict[str, object]()
    defaults = {item.name: item.default for item in msgspec.structs.fields(endpoint.request) if not item.required}
    for each in request_fields(endpoint):
        value = getattr(request, each.attribute)
        if each.place == "path":
            address = address.replace(f"{{{each.names[0]}}}", quote(str(value), safe=""))
        elif each.place == "whole body":
            body = value
        elif each.attribute not in defaults or value != defaults[each.attribute]:
            if each.place == "body":
                body[each.names[0]] = value
            else:
                query[each.names[0]] = _to_text(value)
    return (f"{address}?{urlencode(query)}" if query else address), body


@cache
def request_fields(endpoint: Endpoint[Q, A]) -> tuple[Field, ...]:
    """Return the fields of an endpoint's request."""
    in_path = set(re.findall(r"{(\w+)", endpoint.path))
    default_place: Place = "query" if endpoint.method in ("GET", "DELETE") else "body"
    fields = []
    for item in msgspec.structs.fields(endpoint.request):
        wire = _wire_of(item.type)
        place: Place = "path" if item.encode_name in in_path else wire.place or default_place
        # An absent `UNSET` field differs from an empty one, so that one too is taken as it is sent.
        is_exact = item.default is UNSET
        bare = _without_unset(item.type)
        fields.append(
            Field(
                attribute=item.name,
                names=(item.encode_name, *wire.also),
                place=place,
                type=bare,
                required=item.required,
                is_exact=is_exact,
                wire=wire,
                expects=wire.expects or _describe(types.type_info(bare), required=item.required),
            )
        )
    return tuple(fields)


def _wire_of(type_: object) -> Wire:
    """Return the `Wire` of a type; of several, a later one adds to those before it."""
    wire = Wire()
    for mark in getattr(type_, "__metadata__", ()):
        if isinstance(mark, Wire):
            names = ("place", "also", "limit", "read", "expects", "schema")
            wire = replace(wire, **{name: getattr(mark, name) for name in names if getattr(mark, name)})
    inner = get_args(type_) if get_origin(type_) is not Annotated else ()
    annotated = [each for each in inner if getattr(each, "__metadata__", ())]
    return wire if wire != Wire() or len(annotated) != 1 else _wire_of(annotated[0])


def _without_unset(type_: object) -> object:
    args = get_args(type_)
    if msgspec.UnsetType not in args:
        return type_
    (bare,) = [each for each in args if each is not msgspec.UnsetType]
    return bare


def _is_blank(value: object) -> bool:
    return isinstance(value, str) and not value.strip()


def _from_text(text: str, type_: object) -> object:
    """Convert a value of the path or the query, which is text, to what its type needs."""
    info = types.type_info(type_)
    options = info.types if isinstance(info, types.UnionType) else (info,)
    if any(isinstance(each, types.IntType) for each in options):
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
            raise ValueError(text)
        return int(text)
    if any(isinstance(each, types.BoolType) for each in options):
        return _FLAGS.get(text.lower(), text)
    return text


_FLAGS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def _to_text(value: object) -> object:
    if isinstance(value, bool):
        return "1" if value else "0"
    return ",".join(value) if isinstance(value, tuple) else value


def _describe(info: types.Type, *, required: bool) -> str:
    """Describe the values of a type, to complete "it must be …"."""
    match info:
        case types.Metadata():
            return _describe(info.type, required=required)
        case types.UnionType():
            (bare,) = [each for each in info.types if not isinstance(each, types.NoneType)]
            return _describe(bare, required=required)
        case types.IntType(ge=low, le=high) if low is not None and high is not None:
            return f"an integer from {low} to {high}" if high < 1 << 60 else "an integer"
        case types.IntType():
            return "an integer"
        case types.BoolType():
            return "true or false"
        case types.LiteralType():
            return "one of " + ", ".join(str(value) for value in info.values if value)
        case types.ListType():
            most = f"at most {info.max_length} " if info.max_length else ""
            is_integers = isinstance(info.item_type, types.IntType)
            return f"a list of {most}{'integers' if is_integers else 'strings'}"
        case types.DictType():
            return "an object"
    return "a non-empty string" if required else "a string"


# --- types of fields -------------------------------------------------------------------------------------------------


def _read_date(value: object, *, end: bool = False) -> int | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(value)
    return parse_time(str(value), end=end)


def _read_end_date(value: object) -> int | None:
    return _read_date(value, end=True)


def read_words(value: object) -> tuple[str, ...]:
    """Return the words of a list with commas, or raise ValueError."""
    if not isinstance(value, str):
        raise ValueError(value)
    return tuple(part.strip() for part in make_storable(value).split(",") if part.strip())


def _read_paths(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(path, str) and path.startswith("/") for path in value):
        raise ValueError(value)
    return [make_storable(path)[:4096] for path in value]


MAX_ID = (1 << 62) - 1
_ID: dict[str, object] = {"type": "integer", "minimum": 1, "maximum": MAX_ID}
_DATE: dict[str, object] = {"type": "string", "description": "2026-01-31, or milliseconds since 1970"}
_DATE_TEXT = "a date: 2026-01-31, or milliseconds since 1970"

RowId = Annotated[int, Meta(ge=1, le=MAX_ID)]
PathId = Annotated[int, Meta(ge=0, le=10**18), Wire(expects="an integer", schema=_ID)]
RowIds = Annotated[list[RowId], Meta(max_length=200)]
Offset = Annotated[int, Meta(ge=0, le=1_000_000_000)]
PageSize = Annotated[int, Meta(ge=1, le=100)]
Date = Annotated[int, Wire(read=_read_date, expects=_DATE_TEXT, schema=_DATE)]
EndDate = Annotated[int, Wire(read=_read_end_date, expects=_DATE_TEXT, schema=_DATE)]  # a day means the end of that day
Words = Annotated[
    tuple[str, ...], Wire(read=read_words, expects="values with commas between them", schema={"type": "string"})
]
Paths = Annotated[list[str], Wire(read=_read_paths, expects="a list of absolute paths")]
Name = Annotated[str, Wire(limit=200)]
Path = Annotated[str, Wire(limit=4096)]


class NoFields(msgspec.Struct, frozen=True):
    """A request without parameters."""


class ById(msgspec.Struct, frozen=True):
    """A request about the row whose id is in the path."""

    id: PathId


T = TypeVar("T")


class Items(msgspec.Struct, Generic[T], frozen=True):
    """A whole list."""

    items: list[T]


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A part of a list. `hasMore`: there are more after it."""

    items: list[T]
    has_more: bool = msgspec.field(name="hasMore")
    offset: int
    limit: int


def page(rows: list[T], *, offset: int, limit: int) -> Page[T]:
    """Return a page of rows, of which one more than `limit` was selected."""
    return Page(items=rows[:limit], has_more=len(rows) > limit, offset=offset, limit=limit)
