"""The HTTP API as an OpenAPI document, made of the types of the endpoints: `claude-mem routes --openapi`.

Of routes without types, `PARAMETERS` lists the parameters, one word each: `limit:1-100` is an integer in a range,
`at:date` a day or milliseconds, `kind:a|b` one of these values, `ids:ids` a list of integers, `dry_run:flag` a boolean,
a bare `query` a string. `!` marks required parameters, `?` query parameters of a method that has a body.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import NODEFAULT, UNSET
from msgspec.structs import fields as struct_fields

from claude_mem import __version__
from claude_mem.worker.http.endpoints import Endpoint, Field, request_fields
from claude_mem.worker.http.route import AnyRoute, RawRoute
from claude_mem.worker.http.routes import viewer

Schema = dict[str, object]
Document = dict[str, Any]
_TEMPLATE = "#/components/schemas/{name}"

_PAGE = "limit:1-100 offset:0-1000000000"
_CONTEXT = "cwd project projects"
PARAMETERS = {
    "GET /api/context/inject": _CONTEXT,
    "GET /api/context/preview": _CONTEXT,
    "POST /api/context/semantic": "q! query prompt project limit:1-50",
    "GET /api/search": "query q limit:1-100 offset:0-10000 project project_id:0-999999999 kind type obs_type concepts"
    " files dateStart:date dateEnd:date host session orderBy:relevance|date_desc|date_asc format:json|text explain:flag"
    " typing:flag",
    "GET /api/observations": f"{_PAGE} project type",
    "GET /api/summaries": f"{_PAGE} project",
    "GET /api/prompts": f"{_PAGE} project",
    "POST /api/observations/batch": "ids!:ids",
    "GET /api/why": "file! line:0-10000000 cwd!",
    "GET /api/observations/by-file": "path! project project_id:0-1000000000 limit:1-100",
    "PATCH /api/observation/{id}": "type title subtitle narrative facts:texts concepts:texts",
    "DELETE /api/observation/{id}": "now:0-1",
    "POST /api/observation/{id}/merge": "ids!:ids",
    "GET /api/quarantine": "limit:1-100 offset:0-100000",
    "POST /api/quarantine": "trust! project_id!:id verdict:approved|wrong",
    "GET /api/timeline": "anchor query depth_before:0-50 depth_after:0-50 project format:json|text",
    "POST /api/memory/save": "text! title project cwd type",
    "GET /api/feed": "limit:1-100 before project:0-999999999 kind type concept host since:date until:date",
    "POST /api/open": "path printed:flag",
    "POST /open": "code!",
    "POST /open/again": "id! proof!",
}
# The body is a hook's record.
HOOK_RECORDS = tuple(f"POST /api/context/{name}" for name in ("inject", "prompt", "file", "failure"))
MEDIA_TYPES = {
    "GET /api/context/inject": "text/plain",
    "GET /api/context/preview": "text/plain",
    **{f"GET {path}": "text/html" for path in (*viewer.PATHS, "/open")},
}
_SCHEMAS: dict[str, Schema] = {
    "": {"type": "string"},
    "date": {"type": "string", "description": "2026-01-31, or milliseconds since 1970"},
    "flag": {"type": "boolean"},
    "id": {"type": "integer", "minimum": 1, "maximum": (1 << 62) - 1},
    "ids": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": (1 << 62) - 1}, "maxItems": 200},
    "texts": {"type": "array", "items": {"type": "string"}},
    "any": {},
}
_ERROR: Schema = {
    "type": "object",
    "required": ["error", "hint"],
    "properties": {name: {"type": "string"} for name in ("error", "hint", "field")},
}


def build_document(routes: Mapping[str, Mapping[str, AnyRoute]]) -> Document:
    """Return the OpenAPI document of these routes."""
    answers, components = _answer_schemas(route for by_method in routes.values() for route in by_method.values())
    return {
        "openapi": "3.1.0",
        "info": {"title": "claude-mem", "version": __version__, "description": (__doc__ or "").partition("\n")[0]},
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {**components, "Error": _ERROR},
        },
        "security": [{"token": []}],
        "paths": {
            path.replace(":path", ""): {
                method.lower(): _describe_operation(route, answers) for method, route in by_method.items()
            }
            for path, by_method in routes.items()
        },
    }


def _answer_schemas(routes: Iterable[AnyRoute]) -> tuple[dict[object, Schema], dict[str, Schema]]:
    """Return the schema of each answer, and those of the types in them by name."""
    types: list[object] = []
    for route in routes:
        if not isinstance(route, RawRoute) and _is_json(route.endpoint):
            types += [each for each in (route.endpoint.answer, *route.endpoint.others) if each not in types]
    schemas, components = msgspec.json.schema_components(types, ref_template=_TEMPLATE)
    return dict(zip(types, schemas, strict=True)), components


def _is_json(endpoint: Endpoint[Any, Any]) -> bool:
    return endpoint.media_type == "application/json"


def _describe_operation(route: AnyRoute, answers: Mapping[object, Schema]) -> Schema:
    name = f"{route.method} {route.path}"
    doc = inspect.cleandoc(route.handler.__doc__ or "")
    described = _describe_raw(route) if isinstance(route, RawRoute) else _describe_typed(route.endpoint, answers)
    return {
        "operationId": re.sub(r"\W+", "_", name).strip("_"),
        "summary": doc.partition("\n")[0],
        "description": doc,
        **described,
    }


# --- typed routes ----------------------------------------------------------------------------------------------------


def _describe_typed(endpoint: Endpoint[Any, Any], answers: Mapping[object, Schema]) -> Schema:
    content: dict[str, Schema] = {endpoint.media_type: {}}
    if _is_json(endpoint):
        schemas = [answers[each] for each in (endpoint.answer, *endpoint.others)]
        content = {"application/json": {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}}
    if endpoint.or_text:
        content["text/plain"] = {}
    fields = request_fields(endpoint)
    operation: Schema = {
        "parameters": [_describe_parameter(field, endpoint) for field in fields if field.place in ("path", "query")],
        "responses": {"200": {"description": "success", "content": content}, "4XX": _failure(endpoint.name)},
    }
    if endpoint.method in ("POST", "PATCH"):
        operation["requestBody"] = {"content": {"application/json": {"schema": _body_schema(endpoint, fields)}}}
    return operation


def _describe_parameter(field: Field, endpoint: Endpoint[Any, Any]) -> Schema:
    schema = _field_schema(field, endpoint)
    return {"name": field.names[0], "in": field.place, "required": field.required, "schema": schema}


def _body_schema(endpoint: Endpoint[Any, Any], fields: Iterable[Field]) -> Schema:
    in_body = [field for field in fields if field.place == "body"]
    properties: dict[str, Schema] = {}
    for field in in_body:
        properties[field.names[0]] = _field_schema(field, endpoint)
        for other in field.names[1:]:
            properties[other] = {"description": f"Another name of `{field.names[0]}`.", "deprecated": True}
    return {
        "type": "object",
        "properties": properties,
        "required": [field.names[0] for field in in_body if field.required],
        "additionalProperties": any(field.place == "whole body" for field in fields),
    }


def _field_schema(field: Field, endpoint: Endpoint[Any, Any]) -> Schema:
    """Return the schema of a field as it is sent, with its default if that says something."""
    if field.wire.schema is not None:
        return dict(field.wire.schema)
    (schema,), components = msgspec.json.schema_components([field.type], ref_template=_TEMPLATE)
    assert not components, f"{endpoint.name}: `{field.names[0]}` must have a plain type"
    (default,) = [item.default for item in struct_fields(endpoint.request) if item.name == field.attribute]
    if default not in (NODEFAULT, UNSET, None, "", False):
        schema["default"] = default
    options = schema.get("anyOf", [])
    if {"type": "null"} in options and len(options) == 2:  # null counts as not given
        (schema,) = [option for option in options if option != {"type": "null"}]
    if "enum" in schema:
        schema["enum"] = [value for value in schema["enum"] if value != ""]
    return schema


# --- other routes ----------------------------------------------------------------------------------------------------


def _describe_raw(route: RawRoute) -> Schema:
    name = f"{route.method} {route.path}"
    params = [_parse_param(word) for word in PARAMETERS.get(name, "").split()]
    query_params = [item for item in params if item["in_query"] or route.method in ("GET", "DELETE")]
    operation: Schema = {
        "parameters": [*_path_parameters(route.path), *(_query_parameter(item) for item in query_params)],
        "responses": {"200": _success(route), "4XX": _failure(name)},
    }
    if route.method in ("POST", "PATCH"):
        body_params = [item for item in params if item not in query_params]
        operation["requestBody"] = {"content": _request_body(name, body_params)}
    return operation


def _parse_param(word: str) -> Schema:
    name, _, shape = word.partition(":")
    return {
        "name": name.strip("?!"),
        "in_query": name[0] == "?",
        "required": name[-1] == "!",
        "schema": _schema(shape),
    }


def _schema(word: str) -> Schema:
    if limits := re.fullmatch(r"(\d+)-(\d+)", word):
        return {"type": "integer", "minimum": int(limits[1]), "maximum": int(limits[2])}
    return {"type": "string", "enum": word.split("|")} if "|" in word else _SCHEMAS[word]


def _path_parameters(path: str) -> list[Schema]:
    schemas = {"id": _SCHEMAS["id"], "name": _SCHEMAS[""]}
    names = re.findall(r"{(\w+)", path)
    return [{"name": name, "in": "path", "required": True, "schema": schemas[name]} for name in names]


def _query_parameter(item: Schema) -> Schema:
    return {"name": item["name"], "in": "query", "required": item["required"], "schema": item["schema"]}


def _request_body(name: str, items: list[Schema]) -> Schema:
    if name in HOOK_RECORDS:
        return {"application/octet-stream": {"schema": {"type": "string", "contentEncoding": "binary"}}}
    schema = {
        "type": "object",
        "properties": {str(item["name"]): item["schema"] for item in items},
        "required": [item["name"] for item in items if item["required"]],
        "additionalProperties": name == "POST /mcp",
    }
    return {"application/json": {"schema": schema}}


def _success(route: RawRoute) -> Schema:
    name = f"{route.method} {route.path}"
    kinds = [MEDIA_TYPES.get(name, route.media_type)]
    kinds += ["text/plain"] if "format:" in PARAMETERS.get(name, "") else []
    return {"description": "success", "content": {kind: {} for kind in kinds}}


def _failure(name: str) -> Schema:
    if name == "POST /mcp":
        return {"description": "the error, as MCP defines it"}
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {"description": "what happened, and what to do", "content": content}
