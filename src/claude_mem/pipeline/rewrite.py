"""A turn that an earlier version of the writer digested → its memories, written again by the present one.

From its raw events; if they are no longer kept, from the session's transcript. Nothing is asked of a model. What a
person has touched stays as it is; what a model put into words keeps its words, and gets the closing message. The job
is finished in the transaction that writes, so a worker that is killed only does the turn again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from claude_mem import ids
from claude_mem.failpoints import failpoint
from claude_mem.pipeline.compress import keep
from claude_mem.pipeline.reread import Transcripts
from claude_mem.pipeline.stage import Commit, nothing
from claude_mem.providers.base import Compressor
from claude_mem.records import Digest, Fact, Job, News, Turn
from claude_mem.store import rewrites, turns
from claude_mem.store.database import Connection, Database


async def rewrite(job: Job, *, db: Database, compressor: Compressor, transcripts: Transcripts) -> Commit:
    """The stage."""
    turn_id = int(job.subject.partition(".")[0])
    if await db.read(rewrites.owner, turn_id) == rewrites.PERSON:
        return partial(_settle, turn_id=turn_id)
    turn = await db.read(turns.load, turn_id)
    if turn is None:
        return nothing  # it is gone, or private after all
    reread = not turn.bodies
    if reread:
        turn = await _reread(turn_id, db, transcripts)
    if turn is None:
        return partial(_settle, turn_id=turn_id, found=False)
    made = await compressor.compress(turn)
    failpoint("rewrite.drafted")
    return partial(_rewrite, turn=turn, made=made, reread=reread)


async def _reread(turn_id: int, db: Database, transcripts: Transcripts) -> Turn | None:
    """The turn as its transcript tells it; None if it does not."""
    known = await db.read(rewrites.source, turn_id)
    told = await asyncio.to_thread(transcripts.events, *known) if known else ()
    return await db.read(turns.load_from, turn_id, told) if told else None


def _settle(conn: Connection, *, turn_id: int, found: bool = True) -> Sequence[News]:
    rewrites.settle(conn, turn_id, has_source=found or bool(rewrites.owner(conn, turn_id)))
    return _and_next(conn, ())


def _rewrite(conn: Connection, *, turn: Turn, made: Digest, reread: bool) -> Sequence[News]:
    if not (rewrites.is_bare(conn, turn.id) if reread else turns.is_current(conn, turn)):
        return ()  # more came in, or some of it was forgotten: another job sees to it
    news = _keep(conn, turn, _without_events(made) if reread else made)
    rewrites.settle(conn, turn.id)
    failpoint("rewrite.kept")
    return _and_next(conn, news)


def _keep(conn: Connection, turn: Turn, made: Digest) -> Sequence[News]:
    owner, summary = rewrites.owner(conn, turn.id), made.summary
    if not owner:
        rewrites.take_over(conn, turn.id, made.observations)
        return keep(conn, turn, made, now=ids.now(), past=True)
    if owner == rewrites.MODEL and summary is not None:
        ending = {"closing": summary.closing, "closing_trust": summary.closing_trust, "outcome": summary.outcome}
        rewrites.add_ending(conn, turn.id, **ending)
    return ()


def _without_events(made: Digest) -> Digest:
    """Facts that name no events: those they were taken from are not in the database."""
    bare = (replace(draft, facts=tuple(Fact(fact.text) for fact in draft.facts)) for draft in made.observations)
    return replace(made, observations=tuple(bare))


def _and_next(conn: Connection, news: Sequence[News]) -> Sequence[News]:
    rewrites.ask_few(conn, now=ids.now())
    return news
