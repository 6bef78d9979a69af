"""JSON over HTTP: read the request, call one function, answer. Errors are `{"error", "hint"}`, times milliseconds
UTC.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection
from dataclasses import asdict
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from claude_mem import __version__, answers, ids, privacy, projects, spool
from claude_mem.config import names, reason, shown
from claude_mem.errors import BadRecord, CannotDo, MemError, Misuse, NotFound, TooLarge
from claude_mem.hosts import payload
from claude_mem.hosts.registry import of
from claude_mem.pipeline import bring, carry, context, hindsight, ingest, recall, tryout
from claude_mem.records import News, SessionStarted, Status
from claude_mem.store import (
    account,
    backfills,
    backup,
    events,
    imports,
    jobs,
    ledger,
    observations,
    sessions,
    timeline,
    turns,
)
from claude_mem.store import projects as project_rows
from claude_mem.store.database import Connection, Row
from claude_mem.store.search import KINDS, Filter, all_stale, is_stale, size
from claude_mem.text import first_sentence, map_strings, milliseconds, storable
from claude_mem.worker import mcp
from claude_mem.worker.guard import Guard
from claude_mem.worker.service import Service, keepable

log = logging.getLogger(__name__)

MAX_BODY = 8 * 1024 * 1024
INIT_SECONDS = 2.0

Handler = Callable[[Service, Request], Awaitable[Any]]


def build_app(service: Service, *, token: str, port: int) -> Starlette:
    """The app over an open service."""
    routes = [Route(path, _endpoint(service, handlers), methods=list(handlers)) for path, handlers in ROUTES.items()]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, token=token, port=port)],
        exception_handlers={HTTPException: _http_error},
    )


def _endpoint(service: Service, handlers: dict[str, Handler]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        try:
            return _answer(await handlers[method](service, request))
        except MemError as error:
            return _json({"error": str(error), "hint": error.hint}, status=_status(error))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:
            log.exception("%s %s", request.method, request.url.path)
            return _json({"error": "something went wrong", "hint": "`claude-mem logs` has the details"}, status=500)

    return endpoint


def _answer(result: Any) -> Response:
    return result if isinstance(result, Response) else _json(result)


def _json(value: Any, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _status(error: MemError) -> int:
    for kind, status in ((NotFound, 404), (TooLarge, 413), (Misuse, 400), (BadRecord, 400), (CannotDo, 503)):
        if isinstance(error, kind):
            return status
    return 500


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    hint = "`claude-mem routes` lists what there is" if error.status_code in (404, 405) else ""
    return _json({"error": error.detail.lower(), "hint": hint}, status=error.status_code)


# --- reading requests -------------------------------------------------------------------------------------------------


async def _raw(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise TooLarge("the body is larger than 8 MB", hint="send the parts that matter")
    return bytes(body)


async def _object(request: Request) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(await _raw(request) or b"{}")
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Misuse(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Misuse("the body is not a JSON object")
    return found


def _number(request: Request, name: str, default: int, *, low: int = 0, high: int = 1_000_000_000) -> int:
    given = request.query_params.get(name, str(default))
    if not given.isdigit() or not given.isascii() or len(given) > 10 or not low <= int(given) <= high:
        raise Misuse(f"{name} must be a whole number from {low} to {high}")
    return int(given)


def _id(request: Request) -> int:
    given = request.path_params["id"]
    if not given.isdigit() or not given.isascii() or len(given) > 18:
        raise Misuse("an id is a whole number")
    return int(given)


def _text(body: dict[str, Any], *given: str, required: bool = False, limit: int = 1_000_000) -> str:
    """A text under the first of these names that is there."""
    for name in given:
        if isinstance(found := body.get(name), str) and found.strip():
            return storable(found[:limit])
    if required:
        raise Misuse(f"`{given[0]}` is missing", hint="it must be a text that is not empty")
    return ""


# --- health -----------------------------------------------------------------------------------------------------------


async def healthz(_: Service, __: Request) -> Any:
    """`ok`, and nothing else."""
    return PlainTextResponse("ok")


async def health(service: Service, _: Request) -> Any:
    """Version, process, uptime, and where every event is."""
    return {
        "status": "ok",
        "version": __version__,
        "pid": os.getpid(),
        "started_at": service.started_at,
        "uptime_ms": ids.now() - service.started_at,
        "listeners": service.stream.listeners,
        **await service.totals(),
    }


async def readiness(service: Service, _: Request) -> Any:
    """200 when it works, 503 when it is about to stop."""
    ready = not service.stop.is_set()
    return _json({"status": "ready" if ready else "stopping"}, status=200 if ready else 503)


# --- sessions ---------------------------------------------------------------------------------------------------------

_SESSION_ID = ("contentSessionId", "content_session_id", "claudeSessionId", "sessionId", "session_id")


async def _hand_over(
    service: Service, command: str, payload: dict[str, Any], *, body: dict[str, Any], host: str
) -> str:
    """An event from another editor takes the same way as one from a hook, private parts cut out before it is kept."""
    header = {"command": command, "host": host, "source": "api"}
    if privacy.hides_all(str(payload.get("prompt", ""))):
        header["private"] = "yes"
    if cwd := _text(body, "cwd", limit=4096):
        header["project_dir"] = cwd
    elif name := _text(body, "project", limit=100):
        header["project"] = name
    return await service.take_in(header, msgspec.json.encode(privacy.strip_all(payload)))


def _host(body: dict[str, Any]) -> str:
    return _text(body, "platformSource", "host", limit=40) or "api"


async def init(service: Service, request: Request) -> Any:
    """A prompt: `{contentSessionId, prompt, project or cwd}` → `{sessionDbId, promptNumber, skipped, reason}`."""
    body = await _object(request)
    return await _init(service, body, _text(body, *_SESSION_ID, required=True), _host(body))


async def _init(service: Service, body: dict[str, Any], session_id: str, host: str) -> Row:
    prompt = _text(body, "prompt", "userPrompt", "user_prompt")
    payload = {"session_id": session_id, "hook_event_name": "UserPromptSubmit", "prompt": prompt}
    event_id = await _hand_over(service, "new", payload, body=body, host=host)
    outcome = await service.taken(event_id, INIT_SECONDS)
    session = await service.db.read(sessions.find, host, session_id)
    skipped = outcome is not None and outcome.what != "stored"
    return {
        "sessionDbId": session.id if session else None,
        "promptNumber": session.prompt_counter if session else None,
        "skipped": skipped,
        "reason": outcome.rule if outcome and skipped else None,
        "status": "skipped" if skipped else "initialized",
    }


async def add_tool_use(service: Service, request: Request) -> Any:
    """A tool call: `{contentSessionId, tool_name, tool_input, tool_response, tool_use_id?}` → `{status}`."""
    body = await _object(request)
    return await _add_tool_use(service, body, _text(body, *_SESSION_ID, required=True), _host(body))


async def _add_tool_use(service: Service, body: dict[str, Any], session_id: str, host: str) -> Row:
    payload = {
        "session_id": session_id,
        "hook_event_name": "PostToolUse",
        "tool_name": _text(body, "tool_name", "toolName", required=True, limit=200),
        "tool_input": _maybe_json(body.get("tool_input", body.get("toolInput"))),
        "tool_response": _maybe_json(body.get("tool_response", body.get("tool_output", body.get("toolResponse")))),
        "tool_use_id": _text(body, "tool_use_id", "toolUseId", limit=200),
    }
    if payload["tool_name"] in service.config.skip_tools:
        return {"status": "skipped", "reason": "skip_tool"}
    await _hand_over(service, "save", payload, body=body, host=host)
    return {"status": "queued", "queueLength": len(service.spool.pending())}


def _maybe_json(given: Any) -> Any:
    """Older clients send JSON as text."""
    if isinstance(given, str) and given[:1] in "{[":
        try:
            return msgspec.json.decode(given)
        except (msgspec.MsgspecError, RecursionError):
            return given
    return given


async def summarize(service: Service, request: Request) -> Any:
    """A turn is over: `{contentSessionId, last_assistant_message?}`."""
    body = await _object(request)
    return await _summarize(service, body, _text(body, *_SESSION_ID, required=True), _host(body))


async def _summarize(service: Service, body: dict[str, Any], session_id: str, host: str) -> Row:
    message = _text(body, "last_assistant_message", "lastAssistantMessage")
    payload = {"session_id": session_id, "hook_event_name": "Stop", "last_assistant_message": message}
    await _hand_over(service, "summary", payload, body=body, host=host)
    return {"status": "queued", "queueLength": len(service.spool.pending())}


async def complete(service: Service, request: Request) -> Any:
    """A session is over: `{contentSessionId, reason?}`."""
    body = await _object(request)
    session_id = _text(body, *_SESSION_ID, required=True)
    payload = {"session_id": session_id, "hook_event_name": "SessionEnd", "reason": _text(body, "reason", limit=100)}
    await _hand_over(service, "cleanup", payload, body=body, host=_host(body))
    return {"status": "queued"}


async def processing(service: Service, request: Request) -> Any:
    """An editor tells that it has begun or finished; status lines and the stream show it."""
    body = await _object(request)
    active = body.get("isProcessing") is True
    service.show_activity(active, _text(body, "project", limit=100))
    await service.tell([News("processing_status", {"isProcessing": active})])
    return {"status": "ok", "isProcessing": active}


async def init_by_id(service: Service, request: Request) -> Any:
    """A prompt in a known session: `{prompt}`."""
    session = await service.db.read(sessions.get, _id(request))
    return await _init(service, await _object(request), session.content_session_id, session.host)


async def add_tool_use_by_id(service: Service, request: Request) -> Any:
    """A tool call in a known session: `{tool_name, tool_input, tool_output}`."""
    session = await service.db.read(sessions.get, _id(request))
    return await _add_tool_use(service, await _object(request), session.content_session_id, session.host)


async def summarize_by_id(service: Service, request: Request) -> Any:
    """A turn of a known session is over: `{last_assistant_message?}`."""
    session = await service.db.read(sessions.get, _id(request))
    return await _summarize(service, await _object(request), session.content_session_id, session.host)


async def session_status(service: Service, request: Request) -> Any:
    """Where a session stands and how much of it still waits."""
    found = await service.db.read(sessions.show, _id(request))
    pending = await service.db.read(turns.undigested, found["id"])
    waiting = len(service.spool.pending())
    return {
        **found,
        "sessionDbId": found["id"],
        "contentSessionId": found["content_session_id"],
        "memorySessionId": found["memory_session_id"],
        "promptNumber": found["prompt_counter"],
        "queueLength": waiting + len(pending),
    }


async def delete_session(service: Service, request: Request) -> Any:
    """Marked, not thrown away: what waits in its queue is still digested."""
    session_id = _id(request)
    await service.db.write(_mark_failed, session_id)
    service.runner.wake.set()
    return {"status": "failed", "sessionDbId": session_id, "kept": True}


def _mark_failed(conn: Connection, session_id: int) -> None:
    sessions.get(conn, session_id)
    now = ids.now()
    turns.close_open(conn, session_id, by="deleted", at=now)
    sessions.set_status(conn, session_id, Status.FAILED, at=now)
    ingest.ask_reconcile(conn, session_id, events.newest(conn, session_id), now=now)


# --- context ----------------------------------------------------------------------------------------------------------


async def inject(service: Service, request: Request) -> Any:
    """GET: as text, by `cwd=` or by name: `project=` or `projects=` (the last is the session's own)."""
    if cwd := request.query_params.get("cwd", ""):
        start, _ = await service.start_context(
            projects.resolve(cwd, excluded=service.config.excluded_projects),
            host="",
            content_session_id="",
            source="startup",
        )
        return PlainTextResponse(start.text)
    given = request.query_params.get("projects") or request.query_params.get("project") or ""
    wanted = [name.strip() for name in given.split(",") if name.strip()]
    if not wanted:
        raise Misuse("`project` is missing", hint="/api/context/inject?project=NAME")
    known = await service.db.read(_gather_named, wanted, limit=service.config.context_observations)
    known = known or context.Known(wanted[-1], (), None, 0)
    text = context.render(known, budget_tokens=service.config.context_tokens, icons=service.icons)
    return PlainTextResponse(text)


def _gather_named(conn: Connection, wanted: list[str], *, limit: int) -> context.Known | None:
    found = [project_id for name in wanted for project_id in project_rows.by_name(conn, name)]
    return context.gather(conn, found, limit=limit)


async def inject_start(service: Service, request: Request) -> Any:
    """POST: a hook's own record; the answer is what the host wants on stdout."""
    event = payload.read(spool.parse(ids.new(), await _raw(request)))
    if not isinstance(event.body, SessionStarted):
        raise Misuse("only the start of a session is given context")
    project = projects.resolve(event.cwd, excluded=service.config.excluded_projects)
    if not project.enabled:
        return Response(answers.nod(event.host), media_type="application/json")
    who = {"host": event.host, "content_session_id": event.content_session_id}
    start, upto = await service.start_context(project, **who, source=event.body.source)
    greeting, greeted = await service.greeting(project) if of(event.host).greets else ("", [])
    notice, keys = await service.notice()
    note, anew = None, event.body.source != "resume"
    if not await request.is_disconnected():  # else the hook has given up, and nothing was told
        note = BackgroundTask(
            service.informed, **who, upto=upto, anew=anew, names_told=start.told, notices_told=[*greeted, *keys]
        )
    answer = answers.answer(event.host, "SessionStart", start.text, notice=f"{greeting} {notice}".strip())
    return Response(answer, media_type="application/json", background=note)


async def speak(service: Service, request: Request) -> Any:
    """A hook's own record at a prompt, before a file or after a failure; the answer is what the host wants."""
    moment = payload.moment(spool.parse(ids.new(), await _raw(request)))
    speech = await service.speak(moment)
    heard = speech.told and not await request.is_disconnected()
    note = BackgroundTask(service.spoken, moment, speech) if heard else None
    answer = answers.answer(moment.host, moment.event, speech.text)
    return Response(answer, media_type="application/json", background=note)


async def semantic(service: Service, request: Request) -> Any:
    """What would be said at a prompt: `{q, project, limit?}` → `{context, count}`."""
    body = await _object(request)
    question = recall.Question(
        text=_text(body, "q", "query", "prompt", required=True, limit=20_000),
        where=await service.db.read(_where, {"project": _text(body, "project", limit=200)}),
        limit=body["limit"] if _is_id(body.get("limit")) and body["limit"] <= 50 else 5,
        floor=recall.PROMPT_FLOOR,
    )
    await service.indexer.catch_up()
    hits = await recall.find(service.db, service.indexer, question)
    moment = payload.Moment(host="", content_session_id="", cwd="", event="UserPromptSubmit", text=question.text)
    said = [await service.at_prompt(moment, project_id) for project_id in question.where.project_ids or ()]
    text = "\n".join(speech.text for speech in said if speech.text)
    return {"context": text, "count": len(hits), "items": [hit.as_item() for hit in hits]}


# --- search -----------------------------------------------------------------------------------------------------------

_ORDERS = {"": "relevance", "relevance": "relevance", "date_desc": "date_desc", "date_asc": "date_asc"}
_PLURALS = {"observations": "observation", "summaries": "summary", "sessions": "summary", "prompts": "prompt"}


async def search(service: Service, request: Request) -> Any:
    """`query`, `limit` (1–100), `offset`, `project`, `kind`, `obs_type`, `concepts`, `files`, `dateStart`, `dateEnd`,
    `host`, `session`, `orderBy`, `format`, `explain` → `{items, hasMore, offset, limit}`, best first."""
    given = request.query_params
    limit, offset = _number(request, "limit", 20, low=1, high=100), _number(request, "offset", 0, high=10_000)
    if (order := _ORDERS.get(given.get("orderBy", ""))) is None:
        raise Misuse("orderBy must be relevance, date_desc or date_asc")
    await service.indexer.catch_up()
    question = recall.Question(
        text=storable(given.get("query", given.get("q", ""))[:20_000]),
        where=await service.db.read(_where, dict(given)),
        limit=limit + 1,
        offset=offset,
        order=order,
    )
    hits = await recall.find(service.db, service.indexer, question)
    if given.get("format") == "text":
        return PlainTextResponse(recall.listing(hits[:limit]))
    explain = given.get("explain", "").lower() in ("1", "true", "yes")
    items = [hit.as_item(explain=explain) for hit in hits[:limit]]
    return {"items": items, "hasMore": len(hits) > limit, "offset": offset, "limit": limit}


def _where(conn: Connection, given: dict[str, str]) -> Filter:
    """The filters of a request."""
    name = given.get("project", "")
    kinds = [_PLURALS.get(kind, kind) for kind in _list(given, "kind", "type")]
    if unknown := set(kinds) - set(KINDS):
        raise Misuse(f"there is no kind {min(unknown)!r}", hint="use " + ", ".join(KINDS))
    return Filter(
        project_ids=tuple(project_rows.by_name(conn, name)) if name else None,
        kinds=tuple(kinds),
        types=_list(given, "obs_type"),
        concepts=_list(given, "concepts"),
        files=_list(given, "files"),
        since=_date(given, "dateStart"),
        until=_date(given, "dateEnd", end=True),
        host=given.get("host", ""),
        session=given.get("session", ""),
    )


def _list(given: dict[str, str], *names_: str) -> tuple[str, ...]:
    found = next((given[name] for name in names_ if given.get(name)), "")
    return tuple(part.strip() for part in storable(found).split(",") if part.strip())


def _date(given: dict[str, str], name: str, *, end: bool = False) -> int | None:
    try:
        return milliseconds(given.get(name, ""), end=end)
    except ValueError as error:
        raise Misuse(f"{name} is no date", hint="2026-01-31, or milliseconds since 1970") from error


# --- data -------------------------------------------------------------------------------------------------------------


def _listing(select: Callable[..., list[Row]]) -> Handler:
    async def handler(service: Service, request: Request) -> Any:
        """`limit` (1–100), `offset`, `project` → `{items, hasMore, offset, limit}`, newest first."""
        limit, offset = _number(request, "limit", 20, low=1, high=100), _number(request, "offset", 0)
        project = request.query_params.get("project", "")
        found = await service.db.read(select, limit=limit + 1, offset=offset, project=project)
        return {"items": found[:limit], "hasMore": len(found) > limit, "offset": offset, "limit": limit}

    return handler


def _single(kind: str) -> Handler:
    async def handler(service: Service, request: Request) -> Any:
        """One of them, in full."""
        return await service.db.read(observations.get, kind, _id(request))

    return handler


async def show_session(service: Service, request: Request) -> Any:
    """A whole session: its turns, events, prompts, observations and summaries."""
    return await service.db.read(_whole_session, _id(request))


def _whole_session(conn: Connection, session_id: int) -> Row:
    found = sessions.show(conn, session_id)
    return {
        **found,
        "turns": turns.listing(conn, session_id),
        "events": events.listing(conn, session_id),
        "prompts": observations.of_session(conn, "prompt", session_id),
        "observations": observations.of_session(conn, "observation", session_id),
        "summaries": observations.of_session(conn, "summary", session_id),
    }


async def batch(service: Service, request: Request) -> Any:
    """Observations in full, in the order asked for: `{ids}`."""
    wanted = (await _object(request)).get("ids")
    if not isinstance(wanted, list) or len(wanted) > 200 or not all(_is_id(item) for item in wanted):
        raise Misuse("`ids` must be a list of at most 200 whole numbers")
    return {"items": await service.db.read(observations.get_many, wanted)}


def _is_id(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and 0 < item < 1 << 62


async def change_observation(service: Service, request: Request) -> Any:
    """Correct type, title, subtitle, narrative, facts or concepts."""
    fields = _corrections(await _object(request), types=service.icons)
    found = await service.db.write(observations.change, _id(request), fields, now=ids.now())
    await _render_again(service, found["project"])
    return found


def _corrections(body: dict[str, Any], *, types: Collection[str]) -> Row:
    shapes: dict[str, type] = dict.fromkeys(("type", "title", "subtitle", "narrative"), str)
    shapes |= dict.fromkeys(("facts", "concepts"), list)
    for name, item in body.items():
        if name not in shapes or not isinstance(item, shapes[name]):
            raise Misuse(f"`{name}` can't be set to that", hint="set " + ", ".join(shapes))
        if isinstance(item, list) and not all(isinstance(part, str) for part in item):
            raise Misuse(f"`{name}` must be a list of texts")
    if "type" in body and body["type"] not in types:
        raise Misuse(f"there is no type {body['type']!r}", hint="use one of " + ", ".join(types))
    return dict(map_strings(body, keepable))


async def forget_observation(service: Service, request: Request) -> Any:
    """DELETE erases the observation. (The summary of its turn and the raw events are rows of their own.)"""
    found = await service.forget(_id(request))
    return {"status": "forgotten", "id": found["id"]}


async def _render_again(service: Service, project: str) -> None:
    await service.render_again(await service.db.read(project_rows.by_name, project))


async def pin_observation(service: Service, request: Request) -> Any:
    """POST pins it, DELETE unpins it: pinned ones are told first at every session's start."""
    pinned = request.method == "POST"
    found = await service.db.write(observations.pin, _id(request), pinned=pinned, now=ids.now())
    await _render_again(service, found["project"])
    return found


async def by_file(service: Service, request: Request) -> Any:
    """What is known about a file: `path`, `project`, `limit`."""
    path, name = request.query_params.get("path", ""), request.query_params.get("project", "")
    if not path or not name:
        raise Misuse("`path` or `project` is missing", hint="/api/observations/by-file?project=NAME&path=src/x.py")
    limit = _number(request, "limit", 20, low=1, high=100)
    await service.indexer.catch_up()
    found: list[Row] = []
    for project_id in await service.db.read(project_rows.by_name, name):
        found += await service.db.read(observations.by_file, project_id, storable(path), limit=limit)
    return {"items": found[:limit]}


async def show_timeline(service: Service, request: Request) -> Any:
    """What happened around `anchor` (ID, S12, P12, date) or the best hit of `query`: `depth_before`, `depth_after`,
    `project`, `format`."""
    given = request.query_params
    before, after = _number(request, "depth_before", 5, high=50), _number(request, "depth_after", 5, high=50)
    name = given.get("project", "")
    ids_ = await service.db.read(project_rows.by_name, name) if name else None
    middle = await service.anchor(storable(given.get("anchor", "")), storable(given.get("query", "")), ids_)
    found = await service.db.read(timeline.around, middle, before=before, after=after, project_ids=ids_)
    if given.get("format") == "text":
        return PlainTextResponse(context.timeline_text(found, middle, service.icons))
    return {"items": found, "anchor": {"kind": middle.kind, "id": middle.id, "at": middle.at}}


async def save_memory(service: Service, request: Request) -> Any:
    """Remember what a person says: `{text, title?, project? or cwd?}`."""
    body = await _object(request)
    name, cwd = _text(body, "project", limit=100), _text(body, "cwd", limit=4096)
    project = projects.named(name or "general")
    if cwd and not name:
        project = projects.resolve(cwd, excluded=service.config.excluded_projects)
    if not project.enabled:
        raise Misuse("memory is switched off in this folder; nothing was kept", hint="name a `project`")
    text = keepable(_text(body, "text", required=True, limit=20_000))
    if not text.strip():
        raise Misuse("all of it is private; nothing was kept")
    title = keepable(_text(body, "title", limit=200)) or first_sentence(text, 100)
    row_id = await service.save(project, title, text)
    return {"success": True, "id": row_id, "title": title, "project": project.name}


# --- old transcripts --------------------------------------------------------------------------------------------------


async def ask_backfill(service: Service, request: Request) -> Any:
    """Read old transcripts, each once: `{path}` or `{paths}`, files on this machine, with their whole paths."""
    body = await _object(request)
    paths = [Path(_text(body, "path", limit=4096))] if body.get("path") else _paths(body)
    if body.get("path") and not (paths[0].is_absolute() and paths[0].is_file()):
        raise NotFound(f"there is no file {paths[0]}", hint="give the whole path of a transcript")
    return {"status": "queued", **await service.backfill(paths)}


async def show_backfill(service: Service, _: Request) -> Any:
    """How far the latest back-fill is: files, bytes, what is `new`, whether it is `busy`, and what went wrong."""
    return await service.db.read(backfills.progress)


async def drop_backfill(service: Service, _: Request) -> Any:
    """Leave the files unread that have not been begun; what was begun is finished."""
    return {"dropped": await service.db.write(backfills.drop)}


async def look_backfill(service: Service, request: Request) -> Any:
    """Which of these files (`{paths}`) were read before and have not changed since."""
    found = list(backfills.look(_paths(await _object(request))))
    return {"unchanged": await service.db.read(backfills.unchanged, found)}


async def refine_backfill(service: Service, request: Request) -> Any:
    """Let a model refine the turns of old transcripts (`{paths}`), within the caps; with `dry_run` only say what it may
    cost."""
    body = await _object(request)
    paths = [str(path) for path in _paths(body)]
    if body.get("dry_run") is True:
        return await hindsight.estimate(service.refiner, paths)
    asked = await hindsight.ask(service.refiner, paths)
    service.refining.wake.set()
    return asked


def _paths(body: dict[str, Any]) -> list[Path]:
    given = body.get("paths")
    if not isinstance(given, list) or not all(isinstance(path, str) and path.startswith("/") for path in given):
        raise Misuse("`paths` must be a list of whole paths")
    return [Path(storable(path)[:4096]) for path in given]


# --- moving -----------------------------------------------------------------------------------------------------------


async def export_memories(service: Service, request: Request) -> Any:
    """Everything that is remembered, as JSON Lines: `project`, `query`, `since`, `until` narrow it down."""
    given = request.query_params
    wanted = await carry.scope(
        service.db,
        service.indexer,
        project=storable(given.get("project", "")),
        query=storable(given.get("query", "")),
        since=_date(dict(given), "since"),
        until=_date(dict(given), "until", end=True),
    )
    return StreamingResponse(carry.lines(service.db, wanted), media_type="application/x-ndjson")


async def ask_import(service: Service, request: Request) -> Any:
    """Bring in an export or an older database: `{path, project?, untrusted?, dry_run?}` → `{id, source}`."""
    body = await _object(request)
    path = Path(_text(body, "path", required=True, limit=4096))
    if not path.is_absolute() or not path.is_file():
        raise NotFound(f"there is no file {path}", hint="give the whole path of a file on this machine")
    source = await asyncio.to_thread(bring.recognise, path)
    import_id = await service.db.write(
        imports.start,
        path,
        source=source,
        project=_text(body, "project", limit=200),
        untrusted=body.get("untrusted") is True,
        dry_run=body.get("dry_run") is True,
        now=ids.now(),
    )
    service.runner.wake.set()
    return {"id": import_id, "source": source}


async def show_import(service: Service, request: Request) -> Any:
    """How far an import is, and what came of it."""
    found = await service.db.read(imports.get, _id(request))
    gone = await service.db.read(imports.given_up, found.id) if found.ended_at is None else None
    return {**asdict(found), "error": found.error or gone}


async def make_backup(service: Service, request: Request) -> Any:
    """A copy of the database in our own `backups/`: `{digest?}` → where it is and how many rows of what it has."""
    digest = (await _object(request)).get("digest") is True
    folder = service.config.backups
    return asdict(await asyncio.to_thread(backup.make, service.db.path, folder, digest=digest))


# --- models -----------------------------------------------------------------------------------------------------------


async def cost(service: Service, request: Request) -> Any:
    """What models were asked and what it cost: `by` (day, month, project, model, session, verdict), `days`."""
    by = request.query_params.get("by", "day")
    if by not in ledger.BY:
        raise Misuse(f"there is no way to group by {by!r}", hint="use one of " + ", ".join(ledger.BY))
    now = ids.now()
    since = now - _number(request, "days", 30, low=1, high=3660) * 86_400_000
    return {"items": await service.db.read(ledger.table, by=by, since=since), **await service.refiner.standing(now)}


async def compress_turn(service: Service, request: Request) -> Any:
    """Try a provider on one turn: `{session or path, turn?, provider?, dry_run?}` → what would be sent, what came
    back, and the local draft beside it. Nothing is stored but the entry in the ledger."""
    body = await _object(request)
    wanted = tryout.Wanted(
        session=_text(body, "session", limit=200),
        path=_text(body, "path", limit=4096),
        number=body["turn"] if _is_id(body.get("turn")) else 0,
        provider=_text(body, "provider", limit=200),
        dry_run=body.get("dry_run") is True,
    )
    return await tryout.tried(wanted, refiner=service.refiner)


async def list_projects(service: Service, _: Request) -> Any:
    """Every project with its sessions and observations counted."""
    return {"items": await service.db.read(project_rows.listing)}


async def stats(service: Service, _: Request) -> Any:
    """How much there is of everything, and where every event is."""
    size = service.db.path.stat().st_size
    return {
        "worker": {"version": __version__, "uptime_ms": ids.now() - service.started_at, "pid": os.getpid()},
        "database": {"size": size, **await service.db.read(account.counts)},
        "events": await service.totals(),
        "index": await service.indexer.counts(),
    }


async def line(service: Service, request: Request) -> Any:
    """For a status line: `known` of the folder `cwd`'s project, `all`, `today`, `queued`, `set_aside`."""
    cwd = request.query_params.get("cwd", "")
    project = projects.resolve(cwd, excluded=service.config.excluded_projects) if cwd.startswith("/") else None
    totals = await service.totals()
    return {
        **await service.db.read(_line_counts, project),
        "queued": totals["queued"],
        "set_aside": totals["set_aside"],
    }


def _line_counts(conn: Connection, project: projects.Project | None) -> Row:
    midnight = milliseconds(date.today().isoformat()) or 0
    project_id = project_rows.find(conn, project) if project else None
    known, today = observations.count_since(conn, project_id, midnight) if project_id else (0, 0)
    return {"known": known, "today": today, "all": observations.count(conn)}


async def show_index(service: Service, _: Request) -> Any:
    """How far the index is: `stale` rows without words, `vectors` of about `embeddable`, `busy` until all is made."""
    waiting = await service.db.read(is_stale)  # first: what has its words by now is counted as owed below
    found = await service.indexer.counts()
    embeddable = await service.db.read(size, Filter(kinds=("observation", "turn")))
    return {**found, "embeddable": max(embeddable, found["vectors"]), "busy": waiting or found["owed"]}


async def reindex(service: Service, request: Request) -> Any:
    """Make words and vectors again from the rows, in the background; GET /api/index tells how far it is."""
    await service.db.write(all_stale)
    service.index_wake.set()
    return await show_index(service, request)


async def queue(service: Service, _: Request) -> Any:
    """What waits: files in the spool, jobs, and jobs that were given up with their errors."""
    return {
        "spool": len(service.spool.pending()),
        "waiting": await service.db.read(jobs.waiting),
        "jobs": await service.db.read(jobs.listing),
        **await service.totals(),
    }


async def retry(service: Service, _: Request) -> Any:
    """Give the jobs that were given up another chance."""
    count = await service.db.write(jobs.retry_dead, now=ids.now())
    service.runner.wake.set()
    return {"retried": count}


async def settings(service: Service, _: Request) -> Any:
    """Every setting: its value and its reason."""
    return {name: {"value": shown(service.config, name), "reason": reason(name)} for name in names()}


async def logs(service: Service, request: Request) -> Any:
    """The log's last `lines` (1–10,000)."""
    count = _number(request, "lines", 200, low=1, high=10_000)
    try:
        lines = service.config.log_file.read_text("utf-8", "replace").splitlines()[-count:]
    except OSError:
        lines = []
    return {"lines": lines}


async def stream(service: Service, _: Request) -> Any:
    """Server-sent events: prompts, ends of turns, summaries, observations, as they happen."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(service.stream.listen(), media_type="text/event-stream", headers=headers)


ROUTES: dict[str, dict[str, Handler]] = {
    "/healthz": {"GET": healthz},
    "/api/health": {"GET": health},
    "/api/readiness": {"GET": readiness},
    "/sessions/{id}": {"GET": session_status, "DELETE": delete_session},
    "/sessions/{id}/status": {"GET": session_status},
    "/sessions/{id}/init": {"POST": init_by_id},
    "/sessions/{id}/observations": {"POST": add_tool_use_by_id},
    "/sessions/{id}/summarize": {"POST": summarize_by_id},
    "/api/sessions": {"GET": _listing(sessions.listing)},
    "/api/sessions/init": {"POST": init},
    "/api/sessions/observations": {"POST": add_tool_use},
    "/api/sessions/summarize": {"POST": summarize},
    "/api/sessions/complete": {"POST": complete},
    "/api/processing": {"POST": processing},
    "/api/context/inject": {"GET": inject, "POST": inject_start},
    "/api/context/preview": {"GET": inject},
    "/api/context/prompt": {"POST": speak},
    "/api/context/file": {"POST": speak},
    "/api/context/failure": {"POST": speak},
    "/api/context/semantic": {"POST": semantic},
    "/api/search": {"GET": search},
    "/api/observations": {"GET": _listing(partial(observations.listing, kind="observation"))},
    "/api/observations/batch": {"POST": batch},
    "/api/observations/by-file": {"GET": by_file},
    "/api/summaries": {"GET": _listing(partial(observations.listing, kind="summary"))},
    "/api/prompts": {"GET": _listing(partial(observations.listing, kind="prompt"))},
    "/api/observation/{id}": {
        "GET": _single("observation"),
        "PATCH": change_observation,
        "DELETE": forget_observation,
    },
    "/api/observation/{id}/pin": {"POST": pin_observation, "DELETE": pin_observation},
    "/api/timeline": {"GET": show_timeline},
    "/api/summary/{id}": {"GET": _single("summary")},
    "/api/prompt/{id}": {"GET": _single("prompt")},
    "/api/session/{id}": {"GET": show_session},
    "/api/memory/save": {"POST": save_memory},
    "/api/backfill": {"GET": show_backfill, "POST": ask_backfill, "DELETE": drop_backfill},
    "/api/backfill/look": {"POST": look_backfill},
    "/api/backfill/refine": {"POST": refine_backfill},
    "/api/export": {"GET": export_memories},
    "/api/import": {"POST": ask_import},
    "/api/import/{id}": {"GET": show_import},
    "/api/backup": {"POST": make_backup},
    "/api/ledger": {"GET": _listing(ledger.listing)},
    "/api/cost": {"GET": cost},
    "/api/compress": {"POST": compress_turn},
    "/api/projects": {"GET": list_projects},
    "/api/stats": {"GET": stats},
    "/api/line": {"GET": line},
    "/api/index": {"GET": show_index},
    "/api/reindex": {"POST": reindex},
    "/api/queue": {"GET": queue},
    "/api/queue/retry": {"POST": retry},
    "/api/settings": {"GET": settings},
    "/api/logs": {"GET": logs},
    "/stream": {"GET": stream},
    "/mcp": {"POST": mcp.answer},
}
