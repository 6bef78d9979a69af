"""Routes of the session pages: the list, one session as a story, its raw events, and current activity."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from claude_mem import ids
from claude_mem.pipeline import story
from claude_mem.records import Job
from claude_mem.store import activity, sessions, stories
from claude_mem.store.database import Connection, Row
from claude_mem.text import storable
from claude_mem.worker.requests import number, row_id
from claude_mem.worker.service import Service

MOST_TURNS, MOST_EVENTS = 50, 200


async def list_sessions(service: Service, request: Request) -> Any:
    """`limit` (1–100), `offset`, `project` (name), `project_id`, `host` → `{items, hasMore, …}`, newest first."""
    params = request.query_params
    limit, offset = number(request, "limit", 20, low=1, high=100), number(request, "offset", 0)
    rows = await service.db.read(
        sessions.listing,
        limit=limit + 1,
        offset=offset,
        project=storable(params.get("project", "")),
        project_id=number(request, "project_id", 0),
        host=storable(params.get("host", "")),
    )
    return {"items": rows[:limit], "hasMore": len(rows) > limit, "offset": offset, "limit": limit}


async def show_story(service: Service, request: Request) -> Any:
    """One session as a story: `from` (turns to skip), `limit` (1–50) → `{session, turns, hasMore, …}`."""
    start, limit = number(request, "from", 0), number(request, "limit", 10, low=1, high=MOST_TURNS)
    return await service.db.read(story.tell, row_id(request), start=start, limit=limit)


async def show_events(service: Service, request: Request) -> Any:
    """Stored events of a session or of its turn number `turn`: `from`, `limit` (1–200)."""
    start, limit = number(request, "from", 0), number(request, "limit", 50, low=1, high=MOST_EVENTS)
    turn = number(request, "turn", 0, low=1) if "turn" in request.query_params else None
    session = await service.db.read(sessions.get, row_id(request))
    rows = await service.db.read(stories.raw, session.id, number=turn, start=start, limit=limit + 1)
    return {"items": rows[:limit], "hasMore": len(rows) > limit, "from": start, "limit": limit}


async def now(service: Service, _: Request) -> Any:
    """Current activity: active sessions, jobs that run, wait or failed, the spool, a running back-fill."""
    status = await service.db.read(_now, service.running_jobs, now=ids.now())
    return {**status, "spool": len(service.spool.pending())}


def _now(conn: Connection, claimed: list[Job], *, now: int) -> Row:
    kinds = activity.queue(conn)
    queue = {state: sum(row[state] for row in kinds) for state in ("waiting", "retrying", "dead")}
    return {
        "at": now,
        "sessions": activity.sessions(conn, now=now),
        "working": activity.work(conn, claimed),
        "queue": {**queue, "running": len(claimed), "kinds": kinds},
        "troubles": activity.troubles(conn),
        "set_aside": activity.set_aside(conn),
        "backfill": activity.backfill(conn),
    }
