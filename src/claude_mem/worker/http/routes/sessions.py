"""Routes of sessions: to read them, and for editors to report prompts, tool calls and ends of turns.

Reported events go through the spool, as those of hooks do.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request

from claude_mem.capture.turns import enqueue_reconcile
from claude_mem.domain import ids
from claude_mem.domain.records import Job, Status, StreamEvent
from claude_mem.domain.text import make_storable
from claude_mem.privacy import tags
from claude_mem.recall import story
from claude_mem.storage.sqlite.engine import Connection, Row
from claude_mem.storage.sqlite.journal import events, turns
from claude_mem.storage.sqlite.memory import browse, sessions, stories
from claude_mem.worker.app import Service
from claude_mem.worker.http.params import int_query, path_id, read_json_body, str_field

MAX_TURNS, MAX_EVENTS = 50, 200
INIT_SECONDS = 2.0  # that the response to a prompt waits for its receipt
_SESSION_ID = ("contentSessionId", "content_session_id", "claudeSessionId", "sessionId", "session_id")


# --- reading ---------------------------------------------------------------------------------------------------------


async def list_sessions(service: Service, request: Request) -> Any:
    """`limit` (1–100), `offset`, `project` (name), `project_id`, `host` → `{items, hasMore, …}`, newest first."""
    params = request.query_params
    limit, offset = int_query(request, "limit", 20, low=1, high=100), int_query(request, "offset", 0)
    rows = await service.db.read(
        sessions.list_sessions_with_counts,
        limit=limit + 1,
        offset=offset,
        project=make_storable(params.get("project", "")),
        project_id=int_query(request, "project_id", 0),
        host=make_storable(params.get("host", "")),
    )
    return {"items": rows[:limit], "hasMore": len(rows) > limit, "offset": offset, "limit": limit}


async def show_story(service: Service, request: Request) -> Any:
    """One session as a story: `from` (turns to skip), `limit` (1–50) → `{session, turns, hasMore, …}`."""
    start, limit = int_query(request, "from", 0), int_query(request, "limit", 10, low=1, high=MAX_TURNS)
    return await service.db.read(story.build_story, path_id(request), start=start, limit=limit)


async def show_events(service: Service, request: Request) -> Any:
    """Stored events of a session or of its turn number `turn`: `from`, `limit` (1–200)."""
    start, limit = int_query(request, "from", 0), int_query(request, "limit", 50, low=1, high=MAX_EVENTS)
    turn = int_query(request, "turn", 0, low=1) if "turn" in request.query_params else None
    session = await service.db.read(sessions.get_session, path_id(request))
    rows = await service.db.read(stories.list_raw_events, session.id, number=turn, start=start, limit=limit + 1)
    return {"items": rows[:limit], "hasMore": len(rows) > limit, "from": start, "limit": limit}


async def show_activity(service: Service, _: Request) -> Any:
    """Current activity: active sessions, jobs that run, wait or failed, the spool, a running back-fill."""
    status = await service.db.read(_read_activity, service.running_jobs, now=ids.now_ms())
    return {**status, "spool": len(service.spool.pending())}


def _read_activity(conn: Connection, running: list[Job], *, now: int) -> Row:
    kinds = browse.count_jobs_by_kind(conn)
    queue = {state: sum(row[state] for row in kinds) for state in ("waiting", "retrying", "dead")}
    return {
        "at": now,
        "sessions": browse.list_active_sessions(conn, now=now),
        "working": browse.describe_running_jobs(conn, running),
        "queue": {**queue, "running": len(running), "kinds": kinds},
        "troubles": browse.list_retrying_jobs(conn),
        "set_aside": browse.count_set_aside_events(conn),
        "backfill": browse.get_backfill_activity(conn),
    }


# --- events reported by editors --------------------------------------------------------------------------------------


async def _spool_event(
    service: Service, command: str, payload: dict[str, Any], *, body: dict[str, Any], host: str
) -> str:
    """Write an event to the spool like a hook does, with private parts removed first. Return its id."""
    header = {"command": command, "host": host, "source": "api"}
    if tags.is_entirely_private(str(payload.get("prompt", ""))):
        header["private"] = "yes"
    if cwd := str_field(body, "cwd", limit=4096):
        header["project_dir"] = cwd
    elif name := str_field(body, "project", limit=100):
        header["project"] = name
    return await service.accept_event(header, msgspec.json.encode(tags.strip_private_fields(payload)))


def _host(body: dict[str, Any]) -> str:
    return str_field(body, "platformSource", "host", limit=40) or "api"


async def init(service: Service, request: Request) -> Any:
    """A prompt: `{contentSessionId, prompt, project or cwd}` → `{sessionDbId, promptNumber, skipped, reason}`."""
    body = await read_json_body(request)
    return await _init(service, body, str_field(body, *_SESSION_ID, required=True), _host(body))


async def _init(service: Service, body: dict[str, Any], session_id: str, host: str) -> Row:
    prompt = str_field(body, "prompt", "userPrompt", "user_prompt")
    payload = {"session_id": session_id, "hook_event_name": "UserPromptSubmit", "prompt": prompt}
    event_id = await _spool_event(service, "new", payload, body=body, host=host)
    receipt = await service.wait_for_receipt(event_id, INIT_SECONDS)
    session = await service.db.read(sessions.find_session, host, session_id)
    skipped = receipt is not None and receipt.what != "stored"
    return {
        "sessionDbId": session.id if session else None,
        "promptNumber": session.prompt_counter if session else None,
        "skipped": skipped,
        "reason": receipt.rule if receipt and skipped else None,
        "status": "skipped" if skipped else "initialized",
    }


async def add_tool_use(service: Service, request: Request) -> Any:
    """A tool call: `{contentSessionId, tool_name, tool_input, tool_response, tool_use_id?}` → `{status}`."""
    body = await read_json_body(request)
    return await _add_tool_use(service, body, str_field(body, *_SESSION_ID, required=True), _host(body))


async def _add_tool_use(service: Service, body: dict[str, Any], session_id: str, host: str) -> Row:
    payload = {
        "session_id": session_id,
        "hook_event_name": "PostToolUse",
        "tool_name": str_field(body, "tool_name", "toolName", required=True, limit=200),
        "tool_input": _maybe_json(body.get("tool_input", body.get("toolInput"))),
        "tool_response": _maybe_json(body.get("tool_response", body.get("tool_output", body.get("toolResponse")))),
        "tool_use_id": str_field(body, "tool_use_id", "toolUseId", limit=200),
    }
    if payload["tool_name"] in service.config.skip_tools:
        return {"status": "skipped", "reason": "skip_tool"}
    await _spool_event(service, "save", payload, body=body, host=host)
    return {"status": "queued", "queueLength": len(service.spool.pending())}


def _maybe_json(value: Any) -> Any:
    """Decode a JSON string, as older clients send it; return other values unchanged."""
    if isinstance(value, str) and value[:1] in "{[":
        try:
            return msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError):
            return value
    return value


async def summarize(service: Service, request: Request) -> Any:
    """The end of a turn: `{contentSessionId, last_assistant_message?}`."""
    body = await read_json_body(request)
    return await _summarize(service, body, str_field(body, *_SESSION_ID, required=True), _host(body))


async def _summarize(service: Service, body: dict[str, Any], session_id: str, host: str) -> Row:
    message = str_field(body, "last_assistant_message", "lastAssistantMessage")
    payload = {"session_id": session_id, "hook_event_name": "Stop", "last_assistant_message": message}
    await _spool_event(service, "summary", payload, body=body, host=host)
    return {"status": "queued", "queueLength": len(service.spool.pending())}


async def complete(service: Service, request: Request) -> Any:
    """The end of a session: `{contentSessionId, reason?}`."""
    body = await read_json_body(request)
    session_id = str_field(body, *_SESSION_ID, required=True)
    payload = {
        "session_id": session_id,
        "hook_event_name": "SessionEnd",
        "reason": str_field(body, "reason", limit=100),
    }
    await _spool_event(service, "cleanup", payload, body=body, host=_host(body))
    return {"status": "queued"}


async def processing(service: Service, request: Request) -> Any:
    """Report that an editor is working or has finished, for status lines and the stream."""
    body = await read_json_body(request)
    active = body.get("isProcessing") is True
    service.write_activity_flag(active, str_field(body, "project", limit=100))
    await service.publish([StreamEvent("processing_status", {"isProcessing": active})])
    return {"status": "ok", "isProcessing": active}


async def init_by_id(service: Service, request: Request) -> Any:
    """A prompt in a known session: `{prompt}`."""
    session = await service.db.read(sessions.get_session, path_id(request))
    return await _init(service, await read_json_body(request), session.content_session_id, session.host)


async def add_tool_use_by_id(service: Service, request: Request) -> Any:
    """A tool call in a known session: `{tool_name, tool_input, tool_output}`."""
    session = await service.db.read(sessions.get_session, path_id(request))
    return await _add_tool_use(service, await read_json_body(request), session.content_session_id, session.host)


async def summarize_by_id(service: Service, request: Request) -> Any:
    """The end of a turn in a known session: `{last_assistant_message?}`."""
    session = await service.db.read(sessions.get_session, path_id(request))
    return await _summarize(service, await read_json_body(request), session.content_session_id, session.host)


async def session_status(service: Service, request: Request) -> Any:
    """The state of a session and the number of its pending events and turns."""
    session = await service.db.read(sessions.get_session_details, path_id(request))
    undigested = await service.db.read(turns.list_undigested_turns, session["id"])
    return {
        **session,
        "sessionDbId": session["id"],
        "contentSessionId": session["content_session_id"],
        "memorySessionId": session["memory_session_id"],
        "promptNumber": session["prompt_counter"],
        "queueLength": len(service.spool.pending()) + len(undigested),
    }


async def delete_session(service: Service, request: Request) -> Any:
    """Mark a session as failed. Nothing is deleted: its pending events are still processed."""
    session_id = path_id(request)
    await service.db.write(_mark_failed, session_id)
    service.runner.wake.set()
    return {"status": "failed", "sessionDbId": session_id, "kept": True}


def _mark_failed(conn: Connection, session_id: int) -> None:
    sessions.get_session(conn, session_id)
    now = ids.now_ms()
    at = turns.clamp_to_last_event(conn, session_id, now)
    turns.close_open_turns(conn, session_id, by="deleted", at=at)
    sessions.set_session_status(conn, session_id, Status.FAILED, at=at)
    enqueue_reconcile(conn, session_id, events.get_newest_seq(conn, session_id), now=now)
