"""The HTTP API as an OpenAPI document, made of the types of the endpoints: `claude-mem routes --openapi`."""

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

Schema = dict[str, object]
Document = dict[str, Any]
_TEMPLATE = "#/components/schemas/{name}"

# Routes whose body is a hook's record, and those whose body another specification defines.
HOOK_RECORDS = tuple(f"POST /api/context/{name}" for name in ("inject", "prompt", "file", "failure"))
MCP = "POST /mcp"
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
    operation: Schema = {
        "parameters": [
            {
                "name": parameter,
                "in": "path",
                "required": True,
                "schema": {"type": "integer"} if parameter == "id" else {"type": "string"},
            }
            for parameter in re.findall(r"{(\w+)", route.path)
        ],
        "responses": {
            "200": {"description": "success", "content": {route.media_type: {}}},
            "4XX": _failure(name),
        },
    }
    if name in HOOK_RECORDS:
        record = {"type": "string", "contentEncoding": "binary"}
        operation["requestBody"] = {"content": {"application/octet-stream": {"schema": record}}}
    elif route.method == "POST":
        operation["requestBody"] = {"content": {"application/json": {"schema": {"type": "object"}}}}
    return operation


def _failure(name: str) -> Schema:
    if name == MCP:
        return {"description": "the error, as MCP defines it"}
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {"description": "what happened, and what to do", "content": content}
