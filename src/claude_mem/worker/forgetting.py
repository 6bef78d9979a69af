"""Routes for deletion by scope: preview, start, progress, undo."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from starlette.requests import Request

from claude_mem.errors import Misuse
from claude_mem.store import scopes
from claude_mem.store.scopes import Scope
from claude_mem.worker.requests import body_of, date_of, is_id, row_id, text_in
from claude_mem.worker.service import Service

WAIT_SECONDS = 2.0  # that the response waits; most deletions are done by then


async def preview(service: Service, request: Request) -> Any:
    """Preview a deletion: `{ids, session, project, before, after, source, matching, now}`, combined with AND →
    `{counts, first, made_again, empty}`."""
    body = await body_of(request)
    return await service.forgetter.preview(await _scope(service, body), erase=body.get("now") is True)


async def forget(service: Service, request: Request) -> Any:
    """Start a deletion, with the same body as the preview → `{number, busy, counts, undo_until, …}`. With `now` it is
    irreversible and covers every file; otherwise POST /api/forget/{number}/undo restores it within 30 days. GET shows
    the progress."""
    body = await body_of(request)
    progress = service.forgetter.start(await _scope(service, body), erase=body.get("now") is True)
    assert service.forgetter.task is not None
    await asyncio.wait({service.forgetter.task}, timeout=WAIT_SECONDS)
    return progress


async def show(service: Service, _: Request) -> Any:
    """Progress or result of the last deletion."""
    return service.forgetter.progress_as_dict()


async def undo(service: Service, request: Request) -> Any:
    """Restore what the deletion with that number removed → `{number, counts}`."""
    return await service.forgetter.undo(row_id(request))


async def _scope(service: Service, body: dict[str, Any]) -> Scope:
    ids = body.get("ids", [])
    if not isinstance(ids, list) or not all(is_id(item) for item in ids):
        raise Misuse("`ids` must be a list of integers")
    dates = {name: str(body[name]) for name in ("before", "after") if body.get(name) not in (None, "")}
    resolve = partial(
        scopes.named,
        session=text_in(body, "session", limit=400),
        project=text_in(body, "project", limit=400),
        source=text_in(body, "source", limit=4096),
        matching=text_in(body, "matching", limit=4096),
        ids=tuple(dict.fromkeys(ids)),
        before=date_of(dates, "before"),
        after=date_of(dates, "after"),
    )
    return await service.db.read(resolve)
