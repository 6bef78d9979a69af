"""Routes of sessions: to read them, and for editors to report prompts, tool calls and ends of turns.

Reported events go through the spool, as those of hooks do.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from msgspec import structs

from claude_mem.capture.turns import enqueue_reconcile
from claude_mem.domain import ids
from claude_mem.domain.records import Job, Status, StreamEvent
from claude_mem.domain.session_reports import SessionDetails, Story
from claude_mem.privacy import tags
from claude_mem.recall import story
from claude_mem.storage.base import Transaction
from claude_mem.worker.app import Service
from claude_mem.worker.http.endpoints import ById, NoFields, Page, page
from claude_mem.worker.http.route import AnyRoute, Route
from claude_mem.worker.http.schemas.sessions import (
    ADD_TOOL_USE,
    ADD_TOOL_USE_BY_ID,
    COMPLETE,
    DELETE_SESSION,
    INIT,
    INIT_BY_ID,
    LIST_SESSIONS,
    REPORT_PROCESSING,
    SHOW_ACTIVITY,
    SHOW_EVENTS,
    SHOW_SESSION_STATUS,
    SHOW_SESSION_STATUS_TOO,
    SHOW_STORY,
    SUMMARIZE,
    SUMMARIZE_BY_ID,
    Activity,
    EventsPage,
    EventsQuery,
    ProcessingNoted,
    ProcessingReport,
    PromptById,
    PromptReceived,
    Queued,
    QueueState,
    ReportedEnd,
    ReportedPrompt,
    ReportedStop,
    ReportedToolUse,
    SessionFailed,
    SessionsQuery,
    SessionStatus,
    StopById,
    StoryQuery,
    ToolUseById,
)

INIT_SECONDS = 2.0  # that the response to a prompt waits for its receipt


# --- reading ---------------------------------------------------------------------------------------------------------


async def list_sessions(service: Service, request: SessionsQuery) -> Page[SessionDetails]:
    """`limit` (1–100), `offset`, `project` (name), `project_id`, `host` → `{items, hasMore, …}`, newest first."""
    rows = await service.db.read(
        lambda tx: tx.memory.list_sessions_with_counts(
            limit=request.limit + 1,
            offset=request.offset,
            project=request.project,
            project_id=request.project_id,
            host=request.host,
        ),
    )
    return page(rows, offset=request.offset, limit=request.limit)


async def show_story(service: Service, request: StoryQuery) -> Story:
    """One session as a story: `from` (turns to skip), `limit` (1–50) → `{session, turns, hasMore, …}`."""
    return await service.db.read(story.build_story, request.id, start=request.from_, limit=request.limit)


async def show_events(service: Service, request: EventsQuery) -> EventsPage:
    """Stored events of a session or of its turn number `turn`: `from`, `limit` (1–200)."""
    start, limit = request.from_, request.limit
    session = await service.db.read(lambda tx: tx.memory.get_session(request.id))
    rows = await service.db.read(
        lambda tx: tx.journal.list_raw_events(session.id, number=request.turn, start=start, limit=limit + 1)
    )
    return EventsPage(items=rows[:limit], has_more=len(rows) > limit, from_=start, limit=limit)


async def show_activity(service: Service, _: NoFields) -> Activity:
    """Current activity: active sessions, jobs that run, wait or failed, the spool, a running back-fill."""
    spool = len(service.spool.pending())
    return await service.db.read(_read_activity, service.running_jobs, spool=spool, now=ids.now_ms())


def _read_activity(tx: Transaction, running: list[Job], *, spool: int, now: int) -> Activity:
    kinds = tx.journal.count_jobs_by_kind()
    return Activity(
        at=now,
        sessions=tx.journal.list_active_sessions(now=now),
        working=tx.journal.describe_running_jobs(running),
        queue=QueueState(
            waiting=sum(kind.waiting for kind in kinds),
            retrying=sum(kind.retrying for kind in kinds),
            dead=sum(kind.dead for kind in kinds),
            running=len(running),
            kinds=kinds,
        ),
        troubles=tx.journal.list_retrying_jobs(),
        set_aside=tx.journal.count_set_aside_events(),
        backfill=tx.journal.get_backfill_activity(),
        spool=spool,
    )


# --- events reported by editors --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """The session that an event belongs to, and where it happened."""

    session: str
    host: str
    cwd: str
    project: str


Reported = ReportedPrompt | ReportedToolUse | ReportedStop | ReportedEnd
ReportedById = PromptById | ToolUseById | StopById


def _place(request: Reported) -> _Place:
    return _Place(request.session, request.host, request.cwd, request.project)


async def _find_place(service: Service, request: ReportedById) -> _Place:
    session = await service.db.read(lambda tx: tx.memory.get_session(request.id))
    return _Place(session.content_session_id, session.host, request.cwd, request.project)


async def _spool_event(service: Service, command: str, event: str, place: _Place, **fields: object) -> str:
    """Write an event to the spool like a hook does, with private parts removed first. Return its id."""
    payload = {"session_id": place.session, "hook_event_name": event, **fields}
    header = {"command": command, "host": place.host, "source": "api"}
    if tags.is_entirely_private(str(fields.get("prompt", ""))):
        header["private"] = "yes"
    if place.cwd:
        header["project_dir"] = place.cwd
    elif place.project:
        header["project"] = place.project
    return await service.accept_event(header, msgspec.json.encode(tags.strip_private_fields(payload)))


async def init(service: Service, request: ReportedPrompt) -> PromptReceived:
    """A prompt: `{contentSessionId, prompt, project or cwd}` → `{sessionDbId, promptNumber, skipped, reason}`."""
    return await _init(service, request.prompt, _place(request))


async def _init(service: Service, prompt: str, place: _Place) -> PromptReceived:
    event_id = await _spool_event(service, "new", "UserPromptSubmit", place, prompt=prompt)
    receipt = await service.wait_for_receipt(event_id, INIT_SECONDS)
    session = await service.db.read(lambda tx: tx.memory.find_session(place.host, place.session))
    skipped = receipt is not None and receipt.what != "stored"
    return PromptReceived(
        session_id=session.id if session else None,
        prompt_number=session.prompt_counter if session else None,
        skipped=skipped,
        reason=receipt.rule if receipt and skipped else None,
        status="skipped" if skipped else "initialized",
    )


async def add_tool_use(service: Service, request: ReportedToolUse) -> Queued:
    """A tool call: `{contentSessionId, tool_name, tool_input, tool_response, tool_use_id?}` → `{status}`."""
    return await _add_tool_use(service, request, _place(request))


async def _add_tool_use(service: Service, request: ReportedToolUse | ToolUseById, place: _Place) -> Queued:
    if request.tool_name in service.config.skip_tools:
        return Queued("skipped", reason="skip_tool")
    await _spool_event(
        service,
        "save",
        "PostToolUse",
        place,
        tool_name=request.tool_name,
        tool_input=_maybe_json(request.tool_input),
        tool_response=_maybe_json(request.tool_response),
        tool_use_id=request.tool_use_id,
    )
    return Queued("queued", queue_length=len(service.spool.pending()))


def _maybe_json(value: object) -> object:
    """Decode a JSON string, as older clients send it; return other values unchanged."""
    if isinstance(value, str) and value[:1] in "{[":
        try:
            return msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError):
            return value
    return value


async def summarize(service: Service, request: ReportedStop) -> Queued:
    """The end of a turn: `{contentSessionId, last_assistant_message?}`."""
    return await _summarize(service, request.last_assistant_message, _place(request))


async def _summarize(service: Service, message: str, place: _Place) -> Queued:
    await _spool_event(service, "summary", "Stop", place, last_assistant_message=message)
    return Queued("queued", queue_length=len(service.spool.pending()))


async def complete(service: Service, request: ReportedEnd) -> Queued:
    """The end of a session: `{contentSessionId, reason?}`."""
    await _spool_event(service, "cleanup", "SessionEnd", _place(request), reason=request.reason)
    return Queued("queued")


async def processing(service: Service, request: ProcessingReport) -> ProcessingNoted:
    """Report that an editor is working or has finished, for status lines and the stream."""
    service.write_activity_flag(request.is_processing, request.project)
    await service.publish([StreamEvent("processing_status", {"isProcessing": request.is_processing})])
    return ProcessingNoted(status="ok", is_processing=request.is_processing)


async def init_by_id(service: Service, request: PromptById) -> PromptReceived:
    """A prompt in a known session: `{prompt}`."""
    return await _init(service, request.prompt, await _find_place(service, request))


async def add_tool_use_by_id(service: Service, request: ToolUseById) -> Queued:
    """A tool call in a known session: `{tool_name, tool_input, tool_output}`."""
    return await _add_tool_use(service, request, await _find_place(service, request))


async def summarize_by_id(service: Service, request: StopById) -> Queued:
    """The end of a turn in a known session: `{last_assistant_message?}`."""
    return await _summarize(service, request.last_assistant_message, await _find_place(service, request))


async def session_status(service: Service, request: ById) -> SessionStatus:
    """The state of a session and the number of its pending events and turns."""
    session = await service.db.read(lambda tx: tx.memory.get_session_details(request.id))
    undigested = await service.db.read(lambda tx: tx.journal.list_undigested_turns(session.id))
    return SessionStatus(
        **structs.asdict(session),
        session_id=session.id,
        content_session=session.content_session_id,
        memory_session=session.memory_session_id,
        prompt_number=session.prompt_counter,
        queue_length=len(service.spool.pending()) + len(undigested),
    )


async def delete_session(service: Service, request: ById) -> SessionFailed:
    """Mark a session as failed. Nothing is deleted: its pending events are still processed."""
    await service.db.write(_mark_failed, request.id)
    service.runner.wake.set()
    return SessionFailed(status="failed", session_id=request.id, kept=True)


def _mark_failed(tx: Transaction, session_id: int) -> None:
    tx.memory.get_session(session_id)
    now = ids.now_ms()
    at = tx.journal.clamp_to_last_event(session_id, now)
    tx.journal.close_open_turns(session_id, by="deleted", at=at)
    tx.memory.set_session_status(session_id, Status.FAILED, at=at)
    enqueue_reconcile(tx, session_id, tx.journal.get_newest_seq(session_id), now=now)


ROUTES: tuple[AnyRoute, ...] = (
    Route(SHOW_SESSION_STATUS, session_status),
    Route(DELETE_SESSION, delete_session),
    Route(SHOW_SESSION_STATUS_TOO, session_status),
    Route(INIT_BY_ID, init_by_id),
    Route(ADD_TOOL_USE_BY_ID, add_tool_use_by_id),
    Route(SUMMARIZE_BY_ID, summarize_by_id),
    Route(LIST_SESSIONS, list_sessions),
    Route(INIT, init),
    Route(ADD_TOOL_USE, add_tool_use),
    Route(SUMMARIZE, summarize),
    Route(COMPLETE, complete),
    Route(REPORT_PROCESSING, processing),
    Route(SHOW_STORY, show_story),
    Route(SHOW_EVENTS, show_events),
    Route(SHOW_ACTIVITY, show_activity),
)
