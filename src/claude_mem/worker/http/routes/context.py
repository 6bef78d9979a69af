"""Routes for injections, search and the timeline."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from claude_mem import answers
from claude_mem.agents import payload
from claude_mem.agents.registry import get_agent
from claude_mem.domain import ids
from claude_mem.domain.errors import InvalidRequest
from claude_mem.domain.records import SessionStarted
from claude_mem.domain.text import make_storable
from claude_mem.inject import brief
from claude_mem.privacy import display
from claude_mem.recall import rank, timeline
from claude_mem.storage.sqlite.engine import Connection, Row
from claude_mem.storage.sqlite.memory import browse, projects
from claude_mem.storage.sqlite.memory.search import DOCUMENT_KINDS, SearchFilter, complete_last_word
from claude_mem.system import project_folders, spool
from claude_mem.system.failpoints import failpoint
from claude_mem.worker.app import Service
from claude_mem.worker.http.params import (
    bool_param,
    date_param,
    id_param,
    int_query,
    is_id,
    list_param,
    read_body,
    read_json_body,
    str_field,
    validities_param,
)

log = logging.getLogger(__name__)

_ORDERS = {"": "relevance", "relevance": "relevance", "date_desc": "date_desc", "date_asc": "date_asc"}
_PLURALS = {"observations": "observation", "summaries": "summary", "sessions": "summary", "prompts": "prompt"}


async def show_start_context(service: Service, request: Request) -> Any:
    """GET: the start context as text, by `cwd=`, `project=` or `projects=` (names; the last is the session's own)."""
    if cwd := request.query_params.get("cwd", ""):
        place = await project_folders.identify_project_in_thread(cwd, excluded=service.config.excluded_projects)
        start, _ = await service.context_service.start_context(place, host="", content_session_id="", source="startup")
        return PlainTextResponse(start.text)
    names_text = request.query_params.get("projects") or request.query_params.get("project") or ""
    names = [name.strip() for name in names_text.split(",") if name.strip()]
    if not names:
        raise InvalidRequest("`project` is missing", hint="/api/context/inject?project=NAME")
    memory = await service.db.read(_gather_named, names, limit=service.config.context_observations)
    memory = memory or brief.ProjectMemory(names[-1])
    text = brief.render_brief(memory, budget_tokens=service.config.context_tokens, icons=service.icons)
    return PlainTextResponse(text)


async def show_context_at_commit(service: Service, request: Request) -> Any:
    """The start context of a session whose work tree is at the commit `at`, by `cwd` or `project` → `{project, commit,
    context}`. Validity is judged by the commit's tree; nothing is checked out or run."""
    params = request.query_params
    if not params.get("at") or not (params.get("cwd") or params.get("project")):
        hint = "/api/context/at?project=NAME&at=main~3"
        raise InvalidRequest("`at`, or `cwd` and `project`, is missing", hint=hint)
    row = await _find_requested_project(service, params.get("cwd", ""), make_storable(params.get("project", "")))
    commit, start = await service.context_service.compose_at_commit(row["id"], row["root"] or "", params["at"])
    return {"project": row["name"], "commit": commit, "context": start.text}


async def _find_requested_project(service: Service, cwd: str, name: str) -> Row:
    """Return the project of a folder, with the work tree of that folder as its root, or the project of a name."""
    if not cwd:
        (project_id, *_) = await service.db.read(projects.list_project_ids_by_name, name) or [0]
        return await service.db.read(projects.get_project_row, project_id)
    place = await project_folders.identify_project_in_thread(cwd, excluded=service.config.excluded_projects)
    place_id = await service.db.read(projects.find_project_id, place)
    row = await service.db.read(projects.get_project_row, place_id or 0)
    return {**row, "root": place.root or row["root"]}


def _gather_named(conn: Connection, names: list[str], *, limit: int) -> brief.ProjectMemory | None:
    project_ids = [project_id for name in names for project_id in projects.list_project_ids_by_name(conn, name)]
    return brief.gather_memory(conn, project_ids, limit=limit)


async def inject_at_start(service: Service, request: Request) -> Any:
    """POST: a hook's record of a session start; the response is what the agent expects on stdout."""
    event = payload.read_event(spool.parse_envelope(ids.new_event_id(), await read_body(request)))
    if not isinstance(event.body, SessionStarted):
        raise InvalidRequest(
            "this is not the start of a session", hint="see POST /api/context/prompt, file and failure"
        )
    project = await project_folders.identify_project_in_thread(event.cwd, excluded=service.config.excluded_projects)
    if not project.enabled:
        return Response(answers.empty_answer(event.host), media_type="application/json")
    session_key = {"host": event.host, "content_session_id": make_storable(event.content_session_id)}
    start, upto = await service.context_service.start_context(project, **session_key, source=event.body.source)
    greeting, greeted = (
        await service.context_service.greeting(project) if get_agent(event.host).shows_greeting else ("", [])
    )
    notice, keys = await service.context_service.notice()
    background, is_new_conversation = None, event.body.source != "resume"
    if not await request.is_disconnected():  # otherwise the hook has given up and nothing was injected
        record = partial(
            service.context_service.record_start,
            **session_key,
            upto=upto,
            is_new_conversation=is_new_conversation,
            start=start,
            notice_keys=[*greeted, *keys],
        )
        background = BackgroundTask(_record_quietly, record)
    failpoint("inject.composed")
    answer = answers.compose_answer(event.host, "SessionStart", start.text, notice=f"{greeting} {notice}".strip())
    return Response(answer, media_type="application/json", background=background)


async def inject_at_trigger(service: Service, request: Request) -> Any:
    """A hook's record of a prompt, file, command or failure; the response is what the agent expects."""
    trigger = payload.read_trigger(spool.parse_envelope(ids.new_event_id(), await read_body(request)))
    injection = await service.context_service.inject(trigger)
    is_delivered = injection.item_names and not await request.is_disconnected()
    background = (
        BackgroundTask(_record_quietly, partial(service.context_service.record_injection, trigger, injection))
        if is_delivered
        else None
    )
    is_for_user = trigger.kind == "permission"  # who decides; the model is not told
    context, notice = ("", injection.text) if is_for_user else (injection.text, "")
    answer = answers.compose_answer(trigger.host, trigger.event, context, notice=notice)
    return Response(answer, media_type="application/json", background=background)


async def _record_quietly(record: Callable[[], Awaitable[None]]) -> None:
    """Record an injection after the response was sent. Errors are logged: the session has the text already."""
    try:
        await record()
    except Exception:
        log.exception("an injection could not be recorded")


async def preview_prompt_injection(service: Service, request: Request) -> Any:
    """Preview the injection for a prompt: `{q, project, limit?}` → `{context, count, items}`."""
    body = await read_json_body(request)
    question = rank.SearchQuery(
        text=str_field(body, "q", "query", "prompt", required=True, limit=20_000),
        where=await service.db.read(_parse_filter, {"project": str_field(body, "project", limit=200)}),
        limit=body["limit"] if is_id(body.get("limit")) and body["limit"] <= 50 else 5,
        floor=rank.PROMPT_FLOOR,
    )
    await service.indexer.catch_up()
    hits = await rank.find_hits(service.db, service.indexer, question)
    trigger = payload.Trigger(host="", content_session_id="", cwd="", event="UserPromptSubmit", text=question.text)
    # A second ranking: it differs for prompts over `rank.MAX_PROMPT_CHARS` and for names of several projects.
    injections = [
        await service.context_service.at_prompt(trigger, project_id) for project_id in question.where.project_ids or ()
    ]
    text = "\n".join(injection.text for injection in injections if injection.text)
    return {"context": text, "count": len(hits), "items": [hit.as_item() for hit in hits]}


async def search(service: Service, request: Request) -> Any:
    """`query`, `limit` (1–100), `offset`, `project`, `kind`, `obs_type`, `concepts`, `validity`, `files`, `dateStart`,
    `dateEnd`, `host`, `session`, `orderBy`, `format`, `explain`, `typing` (the last word may be incomplete)
    → `{items, hasMore, offset, limit}`, best first."""
    params = request.query_params
    limit, offset = int_query(request, "limit", 20, low=1, high=100), int_query(request, "offset", 0, high=10_000)
    if (order := _ORDERS.get(params.get("orderBy", ""))) is None:
        raise InvalidRequest("orderBy must be relevance, date_desc or date_asc")
    await service.indexer.catch_up()
    text = make_storable(params.get("query", params.get("q", ""))[:20_000])
    question = rank.SearchQuery(
        text=await service.db.read(complete_last_word, text) if bool_param(params, "typing") else text,
        where=await service.db.read(_parse_filter, dict(params)),
        limit=limit + 1,
        offset=offset,
        order=order,
    )
    hits = await rank.find_marked_hits(service.db, service.indexer, question)
    if params.get("format") == "text":
        return PlainTextResponse(rank.format_hits(hits[:limit]))
    items = [hit.as_item(explain=bool_param(params, "explain")) for hit in hits[:limit]]
    return {"items": items, "hasMore": len(hits) > limit, "offset": offset, "limit": limit}


def _parse_filter(conn: Connection, params: dict[str, str]) -> SearchFilter:
    """Return the search filter of a request."""
    kinds = [_PLURALS.get(kind, kind) for kind in list_param(params, "kind", "type")]
    if unknown := set(kinds) - set(DOCUMENT_KINDS):
        raise InvalidRequest(f"there is no kind {min(unknown)!r}", hint="use " + ", ".join(DOCUMENT_KINDS))
    return SearchFilter(
        project_ids=_project_ids(conn, params),
        kinds=tuple(kinds),
        types=list_param(params, "obs_type"),
        concepts=list_param(params, "concepts"),
        validities=validities_param(params),
        files=list_param(params, "files"),
        since=date_param(params, "dateStart"),
        until=date_param(params, "dateEnd", end=True),
        host=params.get("host", ""),
        session=params.get("session", ""),
    )


def _project_ids(conn: Connection, params: dict[str, str]) -> tuple[int, ...] | None:
    """Return the project by id, or all projects of that name."""
    if params.get("project_id"):
        return (id_param(params, "project_id"),)
    return tuple(projects.list_project_ids_by_name(conn, params["project"])) if params.get("project") else None


async def show_timeline(service: Service, request: Request) -> Any:
    """Records around `anchor` (ID, S12, P12, date) or the best hit of `query`: `depth_before`, `depth_after`,
    `project`, `format`."""
    params = request.query_params
    before, after = int_query(request, "depth_before", 5, high=50), int_query(request, "depth_after", 5, high=50)
    name = params.get("project", "")
    project_ids = await service.db.read(projects.list_project_ids_by_name, name) if name else None
    center = await timeline.find_center(
        service.db,
        service.indexer,
        anchor=make_storable(params.get("anchor", "")),
        query=make_storable(params.get("query", "")),
        project_ids=project_ids,
    )
    rows = await service.db.read(browse.list_timeline, center, before=before, after=after, project_ids=project_ids)
    if params.get("format") == "text":
        text = brief.format_timeline(rows, center, service.icons).rstrip("\n")
        return PlainTextResponse(display.with_external_note(text, rows) + "\n")
    return {"items": rows, "anchor": {"kind": center.kind, "id": center.id, "at": center.at}}
