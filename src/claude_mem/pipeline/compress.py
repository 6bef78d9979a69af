"""Turn → digest → observations and a summary."""

from __future__ import annotations

from collections.abc import Sequence

from claude_mem import ids
from claude_mem.failpoints import failpoint
from claude_mem.pipeline.stage import Commit, nothing
from claude_mem.providers.base import Compressor
from claude_mem.records import Digest, Job, News, Turn
from claude_mem.store import jobs, observations, sessions, turns
from claude_mem.store.database import Connection, Database
from claude_mem.text import first_sentence


async def compress(job: Job, *, db: Database, compressor: Compressor) -> Commit:
    turn_id = int(job.subject.partition(".")[0])
    turn = await db.read(turns.load, turn_id)
    failpoint("compress.loaded")
    if turn is None or not turn.bodies:
        return nothing
    made = await compressor.compress(turn)
    failpoint("compress.drafted")
    return lambda conn: _keep(conn, turn, made)


def _keep(conn: Connection, turn: Turn, made: Digest) -> Sequence[News]:
    if not turns.may_keep(conn, turn.id):
        return ()  # it turned out to be private while we were at it
    now = ids.now()
    news = []
    if made.summary is not None:
        summary_id = observations.put_summary(conn, turn, made.summary, provider=made.provider, now=now)
        news.append(News("new_summary", {"id": summary_id, "session_id": turn.session_id}))
        subtitle = first_sentence(made.summary.completed, 140)
        sessions.set_subtitle(conn, turn.session_id, subtitle, at=turn.ended_at)
    for draft in made.observations:
        if row_id := observations.put(conn, turn, draft, provider=made.provider, now=now):
            news.append(News("new_observation", {"id": row_id, "obs_type": draft.type, "title": draft.title}))
    observations.keep_only(conn, turn.id, tuple(draft.key for draft in made.observations))
    turns.digested(conn, turn, now=now)
    jobs.ask(conn, "render", f"{turn.project_id}.{turn.id}.{turn.newest_seq}", now=now)
    return news
