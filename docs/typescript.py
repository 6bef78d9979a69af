"""TypeScript declarations of the API's answers, from the same types as the OpenAPI document: `tools/js/api.d.ts`.

The viewer is plain JavaScript. Its JSDoc names these types, and `tsc` checks that it reads only what the worker answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from claude_mem.worker.http import openapi
from claude_mem.worker.http.route import AnyRoute

_MEMORY = "MemoryItem"  # its fields depend on its kind: the viewer reads it without a type
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def declarations(routes: Mapping[str, Mapping[str, AnyRoute]]) -> Iterator[str]:
    """Yield the lines of the file."""
    document = openapi.build_document(routes)
    yield "// Made by docs/generate.py from src/claude_mem/worker/http/schemas. Do not edit.\n"
    yield "declare namespace Api {"
    for name, schema in sorted(document["components"]["schemas"].items()):
        if name != _MEMORY:
            yield from _interface(_type_name(name), schema)
    for method in ("get", "post", "patch", "delete"):
        yield from _answers(method, document["paths"])
    yield "  /** The answer to a request with a body. */"
    yield "  type Send<Method, Path extends string> ="
    yield '    Method extends "POST" ? Post<Path> : Method extends "PATCH" ? Patch<Path> : Delete<Path>;'
    yield "}"


def _interface(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    if text := schema.get("description", ""):
        yield f"  /** {' '.join(text.split())} */"
    if "enum" in schema:
        yield f"  type {name} = {' | '.join(map(json.dumps, schema['enum']))};\n"
        return
    yield f"  interface {name} {{"
    required = schema.get("required", ())
    for field, value in schema["properties"].items():
        yield f"    {_key(field)}{'' if field in required else '?'}: {_type(value)};"
    yield "  }\n"


def _answers(method: str, paths: Mapping[str, Any]) -> Iterator[str]:
    """Yield a conditional type: the answer to a method of a path, most specific paths first."""
    yield f"  /** The answer to {method.upper()} of a path. */"
    yield f"  type {method.capitalize()}<Path extends string> ="
    with_method = [path for path, operations in paths.items() if method in operations]
    for path in sorted(with_method, key=lambda each: ("{" in each, -each.count("/"), each)):
        content = paths[path][method]["responses"]["200"]["content"].get("application/json")
        if content and "schema" in content:
            pattern = re.sub(r"{\w+}", "${string}", path)
            literal = f"`{pattern}`" if "$" in pattern else f'"{path}"'
            yield f"    Path extends {literal} ? {_type(content['schema'])} :"
    yield "    any;\n"


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return "any" if name == _MEMORY else _type_name(name)
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(option) for option in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_PLAIN[each] for each in kind)
    if kind == "array":
        inner = _type(schema.get("items") or {})
        return f"({inner})[]" if " " in inner else f"{inner}[]"
    if kind == "object":
        inner = _type(schema.get("additionalProperties") or {})
        return "any" if inner == "any" else f"Record<string, {inner}>"
    return _PLAIN.get(str(kind), "any")


def _type_name(name: str) -> str:
    """Return the name of a type: `Page_SessionDetails_` is `PageOfSessionDetails`."""
    return re.sub(r"^(\w+?)_(\w+)_$", r"\1Of\2", name)


def _key(field: str) -> str:
    return field if re.fullmatch(r"[A-Za-z_]\w*", field) else json.dumps(field)
