"""The HTTP API as an OpenAPI document, generated from the route table: `claude-mem routes --openapi`.

`PARAMETERS` lists the parameters of each route, one word each: `limit:1-100` is an integer in a range, `at:date` a day
or milliseconds, `kind:a|b` one of these values, `ids:ids` a list of integers, `dry_run:flag` a boolean, a bare `query`
a string. `!` marks required parameters, `?` query parameters of a method that has a body. A test compares the names
with those that the handlers read.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from claude_mem import __version__
from claude_mem.storage.sqlite.journal.ledger import LEDGER_GROUPINGS
from claude_mem.worker.http.params import Handler
from claude_mem.worker.http.routes import viewer
from claude_mem.worker.http.routes.health import LEVELS

Row = dict[str, Any]

_PAGE = "limit:1-100 offset:0-1000000000"
_SESSION = "contentSessionId! content_session_id claudeSessionId sessionId session_id"
_ABOUT = "cwd project platformSource host"
_TOOL = "tool_name! toolName tool_input:any toolInput:any tool_response:any tool_output:any toolResponse:any"
_TOOL += " tool_use_id toolUseId"
_PROMPT, _MESSAGE = "prompt userPrompt user_prompt", "last_assistant_message lastAssistantMessage"
_CONTEXT = "cwd project projects"
_SCOPE = "ids:ids session project before:date after:date source matching now:flag"
PARAMETERS = {
    "POST /sessions/{id}/init": f"{_PROMPT} cwd project",
    "POST /sessions/{id}/observations": f"{_TOOL} cwd project",
    "POST /sessions/{id}/summarize": f"{_MESSAGE} cwd project",
    "GET /api/sessions": f"{_PAGE} project project_id:0-1000000000 host",
    "POST /api/sessions/init": f"{_SESSION} {_PROMPT} {_ABOUT}",
    "POST /api/sessions/observations": f"{_SESSION} {_TOOL} {_ABOUT}",
    "POST /api/sessions/summarize": f"{_SESSION} {_MESSAGE} {_ABOUT}",
    "POST /api/sessions/complete": f"{_SESSION} reason {_ABOUT}",
    "POST /api/processing": "isProcessing:flag project",
    "GET /api/context/inject": _CONTEXT,
    "GET /api/context/preview": _CONTEXT,
    "GET /api/context/at": "at! cwd project",
    "POST /api/context/semantic": "q! query prompt project limit:1-50",
    "GET /api/search": "query q limit:1-100 offset:0-10000 project project_id:0-999999999 kind type obs_type concepts"
    " validity"
    " files dateStart:date dateEnd:date host session orderBy:relevance|date_desc|date_asc format:json|text explain:flag"
    " typing:flag",
    "GET /api/observations": f"{_PAGE} project type validity",
    "GET /api/summaries": f"{_PAGE} project",
    "GET /api/prompts": f"{_PAGE} project",
    "GET /api/ledger": f"{_PAGE} project",
    "POST /api/observations/batch": "ids!:ids",
    "GET /api/why": "file! line:0-10000000 cwd!",
    "GET /api/observations/by-file": "path! project project_id:0-1000000000 limit:1-100",
    "PATCH /api/observation/{id}": "type title subtitle narrative facts:texts concepts:texts",
    "DELETE /api/observation/{id}": "now:0-1",
    "POST /api/observation/{id}/merge": "ids!:ids",
    "GET /api/review": f"{_PAGE} project project_id:0-999999999 cwd validity",
    "POST /api/review": "project project_id:id cwd",
    "GET /api/quarantine": "limit:1-100 offset:0-100000",
    "POST /api/quarantine": "trust! project_id!:id verdict:approved|wrong",
    "POST /api/trust": "project_id!:id source!",
    "DELETE /api/trust": "project_id!:0-999999999 source!",
    "GET /api/timeline": "anchor query depth_before:0-50 depth_after:0-50 project format:json|text",
    "GET /api/session/{id}/story": "from:0-1000000000 limit:1-50",
    "GET /api/session/{id}/events": "turn:1-1000000000 from:0-1000000000 limit:1-200",
    "POST /api/memory/save": "text! title project cwd type",
    "POST /api/backfill": "path paths:texts",
    "POST /api/backfill/look": "paths!:texts",
    "POST /api/backfill/refine": "paths!:texts dry_run:flag",
    "GET /api/reprocess": "project cwd since:date",
    "POST /api/reprocess": "project cwd since:date dry_run:flag",
    "GET /api/export": "project query since:date until:date",
    "POST /api/import": "path! project untrusted:flag dry_run:flag",
    "POST /api/backup": "digest:flag",
    "POST /api/backup/check": "name!",
    "GET /api/cost/days": "by:model|project days:1-366",
    "GET /api/cost": f"by:{'|'.join(LEDGER_GROUPINGS)} days:1-3660",
    "POST /api/compress": "session path turn:id provider dry_run:flag",
    "PATCH /api/project/{id}": "name!",
    "GET /api/project/{id}/files": "under",
    "GET /api/project/{id}/days": "year:1971-2099",
    "GET /api/project/{id}/lanes": "from:date to:date limit:1-500 offset:0-1000000000",
    "GET /api/project/{id}/context": "context_tokens:0-1000000 context_observations:0-1000000",
    "POST /api/project/{id}/merge": "into:id from:id ?dry_run:flag",
    "GET /api/line": "cwd",
    "GET /api/logs": f"lines:1-10000 level:{'|'.join(LEVELS)} text before:date",
    "GET /api/audit/log": "limit:0-100000",
    "POST /api/scrub": "dry_run:flag",
    "POST /api/forget": _SCOPE,
    "POST /api/forget/preview": _SCOPE,
    "GET /api/feed": "limit:1-100 before project:0-999999999 kind type concept validity host since:date until:date",
    "POST /api/open": "path printed:flag",
    "POST /open": "code!",
    "POST /open/again": "id! proof!",
}
MEDIA_TYPES = {
    "GET /healthz": "text/plain",
    "GET /api/context/inject": "text/plain",
    "GET /api/context/preview": "text/plain",
    "GET /stream": "text/event-stream",
    "GET /api/export": "application/x-ndjson",
    **{f"GET {path}": "text/html" for path in (*viewer.PATHS, "/open")},
}
# The body is a hook's record.
HOOK_RECORDS = tuple(f"POST /api/context/{name}" for name in ("inject", "prompt", "file", "failure"))
OPEN_BODIES = ("PATCH /api/settings", "POST /mcp")  # the body may have any field
_SCHEMAS: dict[str, Row] = {
    "": {"type": "string"},
    "date": {"type": "string", "description": "2026-01-31, or milliseconds since 1970"},
    "flag": {"type": "boolean"},
    "id": {"type": "integer", "minimum": 1, "maximum": (1 << 62) - 1},
    "ids": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": (1 << 62) - 1}, "maxItems": 200},
    "texts": {"type": "array", "items": {"type": "string"}},
    "any": {},
}
_ERROR = {
    "type": "object",
    "required": ["error", "hint"],
    "properties": {name: {"type": "string"} for name in ("error", "hint", "field")},
}


def build_document(routes: Mapping[str, Mapping[str, Handler]]) -> Row:
    """Return the OpenAPI document of these routes."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "claude-mem", "version": __version__, "description": (__doc__ or "").partition("\n")[0]},
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR},
        },
        "security": [{"token": []}],
        "paths": {
            path.replace(":path", ""): {
                method.lower(): _describe_operation(method, path, handler) for method, handler in handlers.items()
            }
            for path, handlers in routes.items()
        },
    }


def _describe_operation(method: str, path: str, handler: Handler) -> Row:
    name = f"{method} {path}"
    params = [_parse_param(word) for word in PARAMETERS.get(name, "").split()]
    query_params = [item for item in params if item["in_query"] or method in ("GET", "DELETE")]
    body_params = [item for item in params if item not in query_params]
    doc = inspect.cleandoc(handler.__doc__ or "")
    operation: Row = {
        "operationId": re.sub(r"\W+", "_", name).strip("_"),
        "summary": doc.partition("\n")[0],
        "description": doc,
        "parameters": [*_path_parameters(path), *(_query_parameter(item) for item in query_params)],
        "responses": {"200": _success(name), "4XX": _failure(name)},
    }
    if method in ("POST", "PATCH"):
        operation["requestBody"] = {"content": _request_body(name, body_params)}
    return operation


def _parse_param(word: str) -> Row:
    name, _, shape = word.partition(":")
    return {
        "name": name.strip("?!"),
        "in_query": name[0] == "?",
        "required": name[-1] == "!",
        "schema": _schema(shape),
    }


def _schema(word: str) -> Row:
    if limits := re.fullmatch(r"(\d+)-(\d+)", word):
        return {"type": "integer", "minimum": int(limits[1]), "maximum": int(limits[2])}
    return {"type": "string", "enum": word.split("|")} if "|" in word else _SCHEMAS[word]


def _path_parameters(path: str) -> list[Row]:
    schemas = {"id": _SCHEMAS["id"], "name": _SCHEMAS[""]}
    names = re.findall(r"{(\w+)", path)
    return [{"name": name, "in": "path", "required": True, "schema": schemas[name]} for name in names]


def _query_parameter(item: Row) -> Row:
    return {"name": item["name"], "in": "query", "required": item["required"], "schema": item["schema"]}


def _request_body(name: str, items: list[Row]) -> Row:
    if name in HOOK_RECORDS:
        return {"application/octet-stream": {"schema": {"type": "string", "contentEncoding": "binary"}}}
    schema = {
        "type": "object",
        "properties": {item["name"]: item["schema"] for item in items},
        "required": [item["name"] for item in items if item["required"]],
        "additionalProperties": name in OPEN_BODIES,
    }
    return {"application/json": {"schema": schema}}


def _success(name: str) -> Row:
    kinds = [MEDIA_TYPES.get(name, "application/json")]
    kinds += ["text/plain"] if "format:" in PARAMETERS.get(name, "") else []
    return {"description": "success", "content": {kind: {} for kind in kinds}}


def _failure(name: str) -> Row:
    if name == "POST /mcp":
        return {"description": "the error, as MCP defines it"}
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {"description": "what happened, and what to do", "content": content}
