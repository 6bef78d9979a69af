"""Routes by which editors report prompts, tool calls and ends of turns. Events go through the spool, as from hooks."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request

from claude_mem import ids, privacy
from claude_mem.pipeline import ingest
from claude_mem.records import News, Status
from claude_mem.store import events, sessions, turns
from claude_mem.store.database import Connection, Row
from claude_mem.worker.requests import body_of, row_id, text_in
from claude_mem.worker.service import Service

INIT_SECONDS = 2.0
_SESSION_ID = ("contentSessionId", "content_session_id", "claudeSessionId", "sessionId", "session_id")


async def _hand_over(
    service: Service, command: str, payload: dict[str, Any], *, body: dict[str, Any], host: str
) -> str:
    """Write an event to the spool like a hook does, with private parts removed first. Return its id."""
    header = {"command": command, "host": host, "source": "api"}
    if privacy.hides_all(str(payload.get("prompt", ""))):
        header["private"] = "yes"
    if cwd := text_in(body, "cwd", limit=4096):
        header["project_dir"] = cwd
    elif name := text_in(body, "project", limit=100):
        header["project"] = name
    return await service.accept_event(header, msgspec.json.encode(privacy.strip_fields(payload)))


def _host(body: dict[str, Any]) -> str:
    return text_in(body, "platformSource", "host", limit=40) or "api"


async def init(service: Service, request: Request) -> Any:
    """A prompt: `{contentSessionId, prompt, project or cwd}` → `{sessionDbId, promptNumber, skipped, reason}`."""
    body = await body_of(request)
    return await _init(service, body, text_in(body, *_SESSION_ID, required=True), _host(body))


async def _init(service: Service, body: dict[str, Any], session_id: str, host: str) -> Row:
    prompt = text_in(body, "prompt", "userPrompt", "user_prompt")
    payload = {"session_id": session_id, "hook_event_name": "UserPromptSubmit", "prompt": prompt}
    event_id = await _hand_over(service, "new", payload, body=body, host=host)
    outcome = await service.wait_for_receipt(event_id, INIT_SECONDS)
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
    body = await body_of(request)
    return await _add_tool_use(service, body, text_in(body, *_SESSION_ID, required=True), _host(body))


async def _add_tool_use(service: Service, body: dict[str, Any], session_id: str, host: str) -> Row:
    payload = {
        "session_id": session_id,
        "hook_event_name": "PostToolUse",
        "tool_name": text_in(body, "tool_name", "toolName", required=True, limit=200),
        "tool_input": _maybe_json(body.get("tool_input", body.get("toolInput"))),
        "tool_response": _maybe_json(body.get("tool_response", body.get("tool_output", body.get("toolResponse")))),
        "tool_use_id": text_in(body, "tool_use_id", "toolUseId", limit=200),
    }
    if payload["tool_name"] in service.config.skip_tools:
        return {"status": "skipped", "reason": "skip_tool"}
    await _hand_over(service, "save", payload, body=body, host=host)
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
    body = await body_of(request)
    return await _summarize(service, body, text_in(body, *_SESSION_ID, required=True), _host(body))


async def _summarize(service: Service, body: dict[str, Any], session_id: str, host: str) -> Row:
    message = text_in(body, "last_assistant_message", "lastAssistantMessage")
    payload = {"session_id": session_id, "hook_event_name": "Stop", "last_assistant_message": message}
    await _hand_over(service, "summary", payload, body=body, host=host)
    return {"status": "queued", "queueLength": len(service.spool.pending())}


async def complete(service: Service, request: Request) -> Any:
    """The end of a session: `{contentSessionId, reason?}`."""
    body = await body_of(request)
    session_id = text_in(body, *_SESSION_ID, required=True)
    payload = {"session_id": session_id, "hook_event_name": "SessionEnd", "reason": text_in(body, "reason", limit=100)}
    await _hand_over(service, "cleanup", payload, body=body, host=_host(body))
    return {"status": "queued"}


async def processing(service: Service, request: Request) -> Any:
    """Report that an editor is working or has finished, for status lines and the stream."""
    body = await body_of(request)
    active = body.get("isProcessing") is True
    service.show_activity(active, text_in(body, "project", limit=100))
    await service.publish([News("processing_status", {"isProcessing": active})])
    return {"status": "ok", "isProcessing": active}


async def init_by_id(service: Service, request: Request) -> Any:
    """A prompt in a known session: `{prompt}`."""
    session = await service.db.read(sessions.get, row_id(request))
    return await _init(service, await body_of(request), session.content_session_id, session.host)


async def add_tool_use_by_id(service: Service, request: Request) -> Any:
    """A tool call in a known session: `{tool_name, tool_input, tool_output}`."""
    session = await service.db.read(sessions.get, row_id(request))
    return await _add_tool_use(service, await body_of(request), session.content_session_id, session.host)


async def summarize_by_id(service: Service, request: Request) -> Any:
    """The end of a turn in a known session: `{last_assistant_message?}`."""
    session = await service.db.read(sessions.get, row_id(request))
    return await _summarize(service, await body_of(request), session.content_session_id, session.host)


async def session_status(service: Service, request: Request) -> Any:
    """The state of a session and the number of its pending events and turns."""
    session = await service.db.read(sessions.show, row_id(request))
    pending = await service.db.read(turns.undigested, session["id"])
    waiting = len(service.spool.pending())
    return {
        **session,
        "sessionDbId": session["id"],
        "contentSessionId": session["content_session_id"],
        "memorySessionId": session["memory_session_id"],
        "promptNumber": session["prompt_counter"],
        "queueLength": waiting + len(pending),
    }


async def delete_session(service: Service, request: Request) -> Any:
    """Mark a session as failed. Nothing is deleted: its pending events are still processed."""
    session_id = row_id(request)
    await service.db.write(_mark_failed, session_id)
    service.runner.wake.set()
    return {"status": "failed", "sessionDbId": session_id, "kept": True}


def _mark_failed(conn: Connection, session_id: int) -> None:
    sessions.get(conn, session_id)
    now = ids.now()
    at = turns.not_before(conn, session_id, now)
    turns.close_open(conn, session_id, by="deleted", at=at)
    sessions.set_status(conn, session_id, Status.FAILED, at=at)
    ingest.ask_reconcile(conn, session_id, events.newest(conn, session_id), now=now)
