"""Routes for deletion by scope, for scrubbing stored secrets, and for the checks and the log that prove both."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from starlette.requests import Request

from claude_mem.domain import ids
from claude_mem.domain.errors import InvalidRequest
from claude_mem.maintain import audit
from claude_mem.storage.sqlite.deletion import scopes
from claude_mem.storage.sqlite.deletion.scopes import DeletionScope
from claude_mem.system import audit_log
from claude_mem.worker.app import Service
from claude_mem.worker.http.params import date_param, int_query, is_id, path_id, read_json_body, str_field

WAIT_SECONDS = 2.0  # that the response waits; most deletions are done by then


# --- deletion --------------------------------------------------------------------------------------------------------


async def preview_deletion(service: Service, request: Request) -> Any:
    """Preview a deletion: `{ids, session, project, before, after, source, matching, now}`, combined with AND →
    `{counts, first, made_again, empty}`."""
    body = await read_json_body(request)
    return await service.deletion_service.preview(await _parse_scope(service, body), erase=body.get("now") is True)


async def start_deletion(service: Service, request: Request) -> Any:
    """Start a deletion, with the same body as the preview → `{number, busy, counts, undo_until, …}`. With `now` it is
    irreversible and covers every file; otherwise POST /api/forget/{number}/undo restores it within 30 days. GET shows
    the progress."""
    body = await read_json_body(request)
    progress = service.deletion_service.start(await _parse_scope(service, body), erase=body.get("now") is True)
    assert service.deletion_service.task is not None
    await asyncio.wait({service.deletion_service.task}, timeout=WAIT_SECONDS)
    return progress


async def show_progress(service: Service, _: Request) -> Any:
    """Progress or result of the last deletion."""
    return service.deletion_service.progress


async def undo_deletion(service: Service, request: Request) -> Any:
    """Restore what the deletion with that number removed → `{number, counts}`."""
    return await service.deletion_service.undo(path_id(request))


async def _parse_scope(service: Service, body: dict[str, Any]) -> DeletionScope:
    row_ids = body.get("ids", [])
    if not isinstance(row_ids, list) or not all(is_id(item) for item in row_ids):
        raise InvalidRequest("`ids` must be a list of integers")
    dates = {name: str(body[name]) for name in ("before", "after") if body.get(name) not in (None, "")}
    resolve = partial(
        scopes.resolve_deletion_scope,
        session=str_field(body, "session", limit=400),
        project=str_field(body, "project", limit=400),
        source=str_field(body, "source", limit=4096),
        matching=str_field(body, "matching", limit=4096),
        ids=tuple(dict.fromkeys(row_ids)),
        before=date_param(dates, "before"),
        after=date_param(dates, "after"),
    )
    return await service.db.read(resolve)


# --- scrubbing -------------------------------------------------------------------------------------------------------


async def start_scrub(service: Service, request: Request) -> Any:
    """Apply the current secret rules to everything stored: `{dry_run?}` → its progress. Only one runs at a time."""
    dry_run = (await read_json_body(request)).get("dry_run") is True
    service.scrubber.start(dry_run=dry_run, after=service.runner.wake.set)
    return service.scrubber.status()


async def show_scrub(service: Service, _: Request) -> Any:
    """Progress of scrubbing: `doing`, `done` of `total`, rows `changed` by table, `kept` copies, whether `busy`."""
    return service.scrubber.status()


# --- self-checks and audit log ---------------------------------------------------------------------------------------


async def run_checks(service: Service, _: Request) -> Any:
    """Run all self-checks now → `{ok, items: [{name, ok, found, hint}]}`."""
    findings = await audit.run_all_checks(service.db, service.config, service.spool)
    return {"at": ids.now_ms(), "ok": all(item.ok for item in findings), "items": [item.as_json() for item in findings]}


async def show_log(service: Service, request: Request) -> Any:
    """The last `limit` entries of the audit log, and a check of its whole hash chain → `{items, lines, wrong}`."""
    limit = int_query(request, "limit", 50, high=100_000)
    folder = service.config.data_dir
    entries = await asyncio.to_thread(lambda: [line for _, line in audit_log.read_lines(folder) if line])
    count, wrong = await audit.verify_audit_log(service.db, service.config)
    return {"items": entries[-limit:] if limit else [], "lines": count, "wrong": wrong}
