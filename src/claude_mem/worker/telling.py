"""Routes for injections, search and the timeline."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from claude_mem import answers, ids, projects, spool
from claude_mem.errors import Misuse
from claude_mem.failpoints import failpoint
from claude_mem.hosts import payload
from claude_mem.hosts.registry import of
from claude_mem.pipeline import context, recall
from claude_mem.records import SessionStarted
from claude_mem.store import projects as project_rows
from claude_mem.store import timeline
from claude_mem.store.database import Connection
from claude_mem.store.search import KINDS, Filter, completed
from claude_mem.text import storable
from claude_mem.worker.requests import body_of, date_of, is_id, listed, number, raw, text_in, whole, yes
from claude_mem.worker.service import Service

log = logging.getLogger(__name__)


async def inject(service: Service, request: Request) -> Any:
    """GET: the start context as text, by `cwd=`, `project=` or `projects=` (names; the last is the session's own)."""
    if cwd := request.query_params.get("cwd", ""):
        place = await projects.resolve_off_loop(cwd, excluded=service.config.excluded_projects)
        start, _ = await service.teller.start_context(place, host="", content_session_id="", source="startup")
        return PlainTextResponse(start.text)
    names_text = request.query_params.get("projects") or request.query_params.get("project") or ""
    names = [name.strip() for name in names_text.split(",") if name.strip()]
    if not names:
        raise Misuse("`project` is missing", hint="/api/context/inject?project=NAME")
    memory = await service.db.read(_gather_named, names, limit=service.config.context_observations)
    memory = memory or context.Known(names[-1])
    text = context.render(memory, budget_tokens=service.config.context_tokens, icons=service.icons)
    return PlainTextResponse(text)


def _gather_named(conn: Connection, names: list[str], *, limit: int) -> context.Known | None:
    project_ids = [project_id for name in names for project_id in project_rows.by_name(conn, name)]
    return context.gather(conn, project_ids, limit=limit)


async def inject_start(service: Service, request: Request) -> Any:
    """POST: a hook's record of a session start; the response is what the agent expects on stdout."""
    event = payload.read(spool.parse(ids.new(), await raw(request)))
    if not isinstance(event.body, SessionStarted):
        raise Misuse("this is not the start of a session", hint="see POST /api/context/prompt, file and failure")
    project = await projects.resolve_off_loop(event.cwd, excluded=service.config.excluded_projects)
    if not project.enabled:
        return Response(answers.nod(event.host), media_type="application/json")
    session_key = {"host": event.host, "content_session_id": storable(event.content_session_id)}
    start, upto = await service.teller.start_context(project, **session_key, source=event.body.source)
    greeting, greeted = await service.teller.greeting(project) if of(event.host).greets else ("", [])
    notice, keys = await service.teller.notice()
    background, is_new_conversation = None, event.body.source != "resume"
    if not await request.is_disconnected():  # otherwise the hook has given up and nothing was injected
        record = partial(
            service.teller.record_start,
            **session_key,
            upto=upto,
            is_new_conversation=is_new_conversation,
            start=start,
            notice_keys=[*greeted, *keys],
        )
        background = BackgroundTask(_record_quietly, record)
    failpoint("inject.composed")
    answer = answers.answer(event.host, "SessionStart", start.text, notice=f"{greeting} {notice}".strip())
    return Response(answer, media_type="application/json", background=background)


async def speak(service: Service, request: Request) -> Any:
    """A hook's record of a prompt, file or failure; the response is what the agent expects."""
    moment = payload.moment(spool.parse(ids.new(), await raw(request)))
    injection = await service.teller.inject(moment)
    is_delivered = injection.told and not await request.is_disconnected()
    background = (
        BackgroundTask(_record_quietly, partial(service.teller.record_injection, moment, injection))
        if is_delivered
        else None
    )
    answer = answers.answer(moment.host, moment.event, injection.text)
    return Response(answer, media_type="application/json", background=background)


async def _record_quietly(record: Callable[[], Awaitable[None]]) -> None:
    """Record an injection after the response was sent. Errors are logged: the session has the text already."""
    try:
        await record()
    except Exception:
        log.exception("an injection could not be recorded")


async def semantic(service: Service, request: Request) -> Any:
    """Preview the injection for a prompt: `{q, project, limit?}` → `{context, count, items}`."""
    body = await body_of(request)
    question = recall.Question(
        text=text_in(body, "q", "query", "prompt", required=True, limit=20_000),
        where=await service.db.read(_where, {"project": text_in(body, "project", limit=200)}),
        limit=body["limit"] if is_id(body.get("limit")) and body["limit"] <= 50 else 5,
        floor=recall.PROMPT_FLOOR,
    )
    await service.indexer.catch_up()
    hits = await recall.find(service.db, service.indexer, question)
    moment = payload.Moment(host="", content_session_id="", cwd="", event="UserPromptSubmit", text=question.text)
    # A second ranking: it differs for prompts over `recall.MOST_PROMPT` characters and for names of several projects.
    injections = [await service.teller.at_prompt(moment, project_id) for project_id in question.where.project_ids or ()]
    text = "\n".join(injection.text for injection in injections if injection.text)
    return {"context": text, "count": len(hits), "items": [hit.as_item() for hit in hits]}


_ORDERS = {"": "relevance", "relevance": "relevance", "date_desc": "date_desc", "date_asc": "date_asc"}
_PLURALS = {"observations": "observation", "summaries": "summary", "sessions": "summary", "prompts": "prompt"}


async def search(service: Service, request: Request) -> Any:
    """`query`, `limit` (1–100), `offset`, `project`, `kind`, `obs_type`, `concepts`, `files`, `dateStart`, `dateEnd`,
    `host`, `session`, `orderBy`, `format`, `explain`, `typing` (the last word may be incomplete)
    → `{items, hasMore, offset, limit}`, best first."""
    params = request.query_params
    limit, offset = number(request, "limit", 20, low=1, high=100), number(request, "offset", 0, high=10_000)
    if (order := _ORDERS.get(params.get("orderBy", ""))) is None:
        raise Misuse("orderBy must be relevance, date_desc or date_asc")
    await service.indexer.catch_up()
    text = storable(params.get("query", params.get("q", ""))[:20_000])
    question = recall.Question(
        text=await service.db.read(completed, text) if yes(params, "typing") else text,
        where=await service.db.read(_where, dict(params)),
        limit=limit + 1,
        offset=offset,
        order=order,
    )
    hits = await recall.find(service.db, service.indexer, question)
    if params.get("format") == "text":
        return PlainTextResponse(recall.listing(hits[:limit]))
    items = [hit.as_item(explain=yes(params, "explain")) for hit in hits[:limit]]
    return {"items": items, "hasMore": len(hits) > limit, "offset": offset, "limit": limit}


def _where(conn: Connection, params: dict[str, str]) -> Filter:
    """Return the search filter of a request."""
    kinds = [_PLURALS.get(kind, kind) for kind in listed(params, "kind", "type")]
    if unknown := set(kinds) - set(KINDS):
        raise Misuse(f"there is no kind {min(unknown)!r}", hint="use " + ", ".join(KINDS))
    return Filter(
        project_ids=_project_ids(conn, params),
        kinds=tuple(kinds),
        types=listed(params, "obs_type"),
        concepts=listed(params, "concepts"),
        files=listed(params, "files"),
        since=date_of(params, "dateStart"),
        until=date_of(params, "dateEnd", end=True),
        host=params.get("host", ""),
        session=params.get("session", ""),
    )


def _project_ids(conn: Connection, params: dict[str, str]) -> tuple[int, ...] | None:
    """Return the project by id, or all projects of that name."""
    if params.get("project_id"):
        return (whole(params, "project_id"),)
    return tuple(project_rows.by_name(conn, params["project"])) if params.get("project") else None


async def show_timeline(service: Service, request: Request) -> Any:
    """Records around `anchor` (ID, S12, P12, date) or the best hit of `query`: `depth_before`, `depth_after`,
    `project`, `format`."""
    params = request.query_params
    before, after = number(request, "depth_before", 5, high=50), number(request, "depth_after", 5, high=50)
    name = params.get("project", "")
    project_ids = await service.db.read(project_rows.by_name, name) if name else None
    anchor = await service.anchor(storable(params.get("anchor", "")), storable(params.get("query", "")), project_ids)
    rows = await service.db.read(timeline.around, anchor, before=before, after=after, project_ids=project_ids)
    if params.get("format") == "text":
        text = context.timeline_text(rows, anchor, service.icons).rstrip("\n")
        return PlainTextResponse(context.noted(text, rows) + "\n")
    return {"items": rows, "anchor": {"kind": anchor.kind, "id": anchor.id, "at": anchor.at}}
