"""Transcript file → session, turns and events, as if the hooks had been there.

The code that reconciles live sessions reads it, so what the hooks did capture is not doubled, and reading a file
twice adds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from claude_mem import ids
from claude_mem.config import Config
from claude_mem.hosts import registry
from claude_mem.hosts.dialect import Found
from claude_mem.pipeline import ingest, reconcile
from claude_mem.pipeline.stage import Commit, nothing
from claude_mem.projects import Project, resolve
from claude_mem.records import Job, News, Session, Status
from claude_mem.store import jobs, projects, sessions, turns
from claude_mem.store.database import Connection


def ask(conn: Connection, path: Path, *, now: int) -> None:
    """Keyed by the file as it is now: when it has grown, asking again is asking for something else."""
    about = path.stat()
    jobs.ask(conn, "backfill", f"{about.st_size}.{about.st_mtime_ns}.{path}", now=now)


async def backfill(job: Job, *, config: Config) -> Commit:
    path = Path(job.subject.split(".", 2)[2])
    host = await asyncio.to_thread(registry.whose, path)
    if host is None or host.transcripts is None:
        return nothing
    found = await asyncio.to_thread(host.transcripts.read, path, host=host.name)
    project = resolve(found.cwd, excluded=config.excluded_projects)
    if not found.events or not project.enabled:
        return nothing
    clean = replace(
        found,
        events=[ingest.clean(event, config) for event in found.events],
        closings={prompt_id: ingest.clean(event, config) for prompt_id, event in found.closings.items()},
    )
    return lambda conn: _add(conn, host.name, clean, project, config)


def _add(conn: Connection, host: str, found: Found, project: Project, config: Config) -> Sequence[News]:
    now = ids.now()
    known = sessions.find(conn, host, found.content_session_id)
    session = known or _open(conn, host, found, project, now=now)
    news = reconcile.add(conn, session, found.events, config, now=now)
    if known is None or known.status not in (Status.ACTIVE, Status.INITIALIZED):  # else it may be running right now
        turns.close_open(conn, session.id, by="backfill", at=session.last_event_at)
        sessions.set_status(conn, session.id, Status.COMPLETED, at=found.events[-1].at)
    reconcile.finish(conn, session, found.closings, news, now=now)
    return news


def _open(conn: Connection, host: str, found: Found, project: Project, *, now: int) -> Session:
    project_id = projects.know(conn, project, "", now=now)
    start, end = found.events[0].at, found.events[-1].at
    opened = sessions.open_(conn, host, found.content_session_id, project_id=project_id, at=start, cwd=found.cwd)
    sessions.touch(conn, opened.id, at=end, transcript_path="", host_pid=None)
    return sessions.get(conn, opened.id)
