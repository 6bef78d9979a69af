"""Routes for injections, search and the timeline."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

import msgspec
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from claude_mem import answers
from claude_mem.agents import payload
from claude_mem.agents.registry import get_agent
from claude_mem.domain import ids
from claude_mem.domain.errors import InvalidRequest
from claude_mem.domain.memory_items import MemoryItem
from claude_mem.domain.project_reports import Project
from claude_mem.domain.records import SessionStarted
from claude_mem.domain.text import make_storable
from claude_mem.inject import brief
from claude_mem.privacy import display
from claude_mem.recall import rank
from claude_mem.storage.base import Transaction
from claude_mem.storage.records import DOCUMENT_KINDS, SearchFilter
from claude_mem.system import project_folders, spool
from claude_mem.system.failpoints import failpoint
from claude_mem.worker.app import Service
from claude_mem.worker.http.endpoints import Page, page
from claude_mem.worker.http.route import AnyRoute, RawRoute, Route, read_body
from claude_mem.worker.http.routes.health import with_timing
from claude_mem.worker.http.schemas.context import (
    PREVIEW_PROMPT,
    PREVIEW_START_CONTEXT,
    SEARCH,
    SHOW_CONTEXT_AT_COMMIT,
    SHOW_START_CONTEXT,
    SHOW_TIMELINE,
    ContextAt,
    ContextAtQuery,
    PromptContext,
    PromptQuery,
    SearchQuery,
    StartContextQuery,
    TimelineAnchor,
    TimelinePage,
    TimelineQuery,
)

log = logging.getLogger(__name__)

_PLURALS = {"observations": "observation", "summaries": "summary", "sessions": "summary", "prompts": "prompt"}


async def show_start_context(service: Service, request: StartContextQuery) -> Response:
    """GET: the start context as text, by `cwd=`, `project=` or `projects=` (names; the last is the session's own)."""
    if request.cwd:
        place = await project_folders.identify_project_in_thread(request.cwd, excluded=service.config.excluded_projects)
        start, _ = await service.context_service.start_context(place, host="", content_session_id="", source="startup")
        return PlainTextResponse(start.text)
    names = list(request.projects or request.project)
    if not names:
        raise InvalidRequest("`project` is missing", hint="/api/context/inject?project=NAME")
    memory = await service.db.read(_gather_named, names, limit=service.config.context_observations)
    memory = memory or brief.ProjectMemory(names[-1])
    text = brief.render_brief(memory, budget_tokens=service.config.context_tokens, icons=service.icons)
    return PlainTextResponse(text)


async def show_context_at_commit(service: Service, request: ContextAtQuery) -> ContextAt:
    """The start context of a session whose work tree is at the commit `at`, by `cwd` or `project` → `{project, commit,
    context}`. Validity is judged by the commit's tree; nothing is checked out or run."""
    if not (request.cwd or request.project):
        raise InvalidRequest("`cwd` or `project` is missing", hint="/api/context/at?project=NAME&at=main~3")
    project = await _find_requested_project(service, request.cwd, request.project)
    commit, start = await service.context_service.compose_at_commit(project.id, project.root or "", request.at)
    return ContextAt(project=project.name, commit=commit, context=start.text)


async def _find_requested_project(service: Service, cwd: str, name: str) -> Project:
    """Return the project of a folder, with the work tree of that folder as its root, or the project of a name."""
    if not cwd:
        (project_id, *_) = await service.db.read(lambda tx: tx.memory.list_project_ids_by_name(name)) or [0]
        return await service.db.read(lambda tx: tx.memory.get_project(project_id))
    place = await project_folders.identify_project_in_thread(cwd, excluded=service.config.excluded_projects)
    place_id = await service.db.read(lambda tx: tx.memory.find_project_id(place))
    project = await service.db.read(lambda tx: tx.memory.get_project(place_id or 0))
    return msgspec.structs.replace(project, root=place.root or project.root)


def _gather_named(tx: Transaction, names: list[str], *, limit: int) -> brief.ProjectMemory | None:
    project_ids = [project_id for name in names for project_id in tx.memory.list_project_ids_by_name(name)]
    return brief.gather_memory(tx, project_ids, limit=limit)


async def inject_at_start(service: Service, request: Request) -> Response:
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
    answer = answers.compose_answer(event.host, "SessionStart", start.said, notice=f"{greeting} {notice}".strip())
    return Response(answer, media_type="application/json", background=background)


async def inject_at_trigger(service: Service, request: Request) -> Response:
    """A hook's record of a prompt, file, command or failure; the response is what the agent expects."""
    trigger = payload.read_trigger(spool.parse_envelope(ids.new_event_id(), await read_body(request)))
    injection = await service.context_service.inject(trigger)
    is_delivered = injection.item_names and not await request.is_disconnected()
    background = (
        BackgroundTask(_record_quietly, partial(service.context_service.record_injection, trigger, injection))
        if is_delivered
        else None
    )
    is_for_user = trigger.kind == "permission"  # who decides; the model does not see it
    context, notice = ("", injection.text) if is_for_user else (injection.said, "")
    answer = answers.compose_answer(trigger.host, trigger.event, context, notice=notice)
    return Response(answer, media_type="application/json", background=background)


async def _record_quietly(record: Callable[[], Awaitable[None]]) -> None:
    """Record an injection after the response was sent. Errors are logged: the session has the text already."""
    try:
        await record()
    except Exception:
        log.exception("an injection could not be recorded")


async def preview_prompt_injection(service: Service, request: PromptQuery) -> PromptContext:
    """Preview the injection for a prompt: `{q, project or cwd, limit?}` → `{context, count, items}`. It is checked
    against the work tree that `cwd` is in, or that of the project."""
    roots = await _work_trees(service, request)
    project_ids = tuple(roots)
    question = rank.SearchQuery(
        text=request.query,
        where=SearchFilter(project_ids=project_ids),
        limit=request.limit,
        floor=rank.PROMPT_FLOOR,
    )
    await service.indexer.catch_up()
    hits = await rank.find_hits(service.db, service.indexer, question)
    trigger = payload.Trigger(host="", content_session_id="", cwd="", event="UserPromptSubmit", text=question.text)
    # A second ranking: it differs for prompts over `rank.MAX_PROMPT_CHARS` and for names of several projects.
    injections = [
        await service.context_service.at_prompt(trigger, project_id, root=root) for project_id, root in roots.items()
    ]
    text = "\n".join(injection.text for injection in injections if injection.text)
    return PromptContext(context=text, count=len(hits), items=[hit.as_item() for hit in hits])


async def _work_trees(service: Service, request: PromptQuery) -> dict[int, str]:
    """Return the work tree of each project that a prompt is given in, as an agent that runs there would name it."""
    if request.cwd:
        here = await project_folders.identify_project_in_thread(request.cwd, excluded=service.config.excluded_projects)
        project_id = await service.db.read(lambda tx: tx.memory.find_project_id(here)) if here.enabled else None
        return {project_id: here.root} if project_id else {}
    project_ids = await service.db.read(_project_ids, request.project, 0)
    projects = [
        await service.db.read(lambda tx, project_id: tx.memory.get_project(project_id), project_id)
        for project_id in project_ids or ()
    ]
    return {project.id: project.root or "" for project in projects}


async def search(service: Service, request: SearchQuery) -> Page[MemoryItem] | Response:
    """`query`, `limit` (1–100), `offset`, `project`, `kind`, `obs_type`, `concepts`, `validity`, `files`, `dateStart`,
    `dateEnd`, `host`, `session`, `orderBy`, `format`, `explain`, `typing` (the last word may be incomplete), `group`
    (`file` or `session`: one item for each, with its best records) → `{items, hasMore, offset, limit}`, best first."""
    if unknown := set(request.obs_type) - set(service.icons):
        raise InvalidRequest(f"there is no type {min(unknown)!r}", hint="use one of " + ", ".join(service.icons))
    await service.indexer.catch_up()
    text = request.query
    question = rank.SearchQuery(
        text=await service.db.read(lambda tx: tx.search.complete_last_word(text)) if request.typing else text,
        where=await service.db.read(_search_filter, request),
        limit=request.limit + 1,
        offset=request.offset,
        order=request.order or "relevance",
    )
    if request.group:
        groups = await rank.find_groups(service.db, service.indexer, question, request.group)
        if request.format == "text":
            return PlainTextResponse(rank.format_groups(groups[: request.limit]))
        group_items = [group.as_item(request.group, explain=request.explain) for group in groups]
        # An answer has one type in the OpenAPI document: that of a search that is not grouped.
        return page(cast(list[MemoryItem], group_items), offset=request.offset, limit=request.limit)
    hits = await rank.find_marked_hits(service.db, service.indexer, question)
    if request.format == "text":
        return PlainTextResponse(rank.format_hits(hits[: request.limit]))
    items = [hit.as_item(explain=request.explain) for hit in hits]
    return page(items, offset=request.offset, limit=request.limit)


def _search_filter(tx: Transaction, request: SearchQuery) -> SearchFilter:
    """Return the search filter of a request."""
    kinds = [_PLURALS.get(kind, kind) for kind in request.kind]
    if unknown := set(kinds) - set(DOCUMENT_KINDS):
        raise InvalidRequest(f"there is no kind {min(unknown)!r}", hint="use " + ", ".join(DOCUMENT_KINDS))
    return SearchFilter(
        project_ids=_project_ids(tx, request.project, request.project_id),
        kinds=tuple(kinds),
        types=request.obs_type,
        concepts=request.concepts,
        validities=request.validity,
        files=request.files,
        since=request.since,
        until=request.until,
        host=request.host,
        session=request.session,
    )


def _project_ids(tx: Transaction, name: str, project_id: int) -> tuple[int, ...] | None:
    """Return the project by id, or all projects of that name; None if neither is given."""
    if project_id:
        return (project_id,)
    return tuple(tx.memory.list_project_ids_by_name(name)) if name else None


async def show_timeline(service: Service, request: TimelineQuery) -> TimelinePage | Response:
    """Records around `anchor` (ID, S12, P12, date) or the best hit of `query`: `depth_before`, `depth_after`,
    `project`, `format`."""
    name = request.project
    project_ids = await service.db.read(lambda tx: tx.memory.list_project_ids_by_name(name)) if name else None
    center = await rank.find_center(
        service.db,
        service.indexer,
        anchor=request.anchor,
        query=request.query,
        project_ids=project_ids,
    )
    rows = await service.db.read(
        lambda tx: tx.memory.list_timeline(center, before=request.before, after=request.after, project_ids=project_ids)
    )
    if request.format == "text":
        text = brief.format_timeline(rows, center, service.icons).rstrip("\n")
        return PlainTextResponse(display.with_external_note(text, rows) + "\n")
    return TimelinePage(items=rows, anchor=TimelineAnchor(kind=center.kind, id=center.id, at=center.at))


ROUTES: tuple[AnyRoute, ...] = (
    Route(SHOW_START_CONTEXT, show_start_context),
    Route(PREVIEW_START_CONTEXT, show_start_context),
    Route(SHOW_CONTEXT_AT_COMMIT, show_context_at_commit),
    RawRoute("POST", "/api/context/inject", with_timing("start", inject_at_start)),
    *(
        RawRoute("POST", f"/api/context/{name}", with_timing(name, inject_at_trigger))
        for name in ("prompt", "file", "failure")
    ),
    Route(PREVIEW_PROMPT, preview_prompt_injection),
    Route(SEARCH, search),
    Route(SHOW_TIMELINE, show_timeline),
)
