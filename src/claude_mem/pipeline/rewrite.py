"""Reprocesses a turn: composes its records again after the writer improved.

The source is the turn's raw events or, after they were purged, the session's transcript. No model is asked. Records a
person changed stay as they are; records a model refined keep their wording and get the closing message. The job is
finished in the transaction that writes the records, so a worker that is killed only processes the turn again.
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
    """Run one reprocess job: the stage of the job queue."""
    turn_id = int(job.subject.partition(".")[0])
    if await db.read(rewrites.owner, turn_id) == rewrites.PERSON:
        return partial(_finish, turn_id=turn_id)
    turn = await db.read(turns.load, turn_id)
    if turn is None:
        return nothing  # deleted, or marked private
    from_transcript = not turn.bodies
    if from_transcript:
        turn = await _reread(turn_id, db, transcripts)
    if turn is None:
        return partial(_finish, turn_id=turn_id, has_source=False)
    digest = await compressor.compress(turn)
    failpoint("rewrite.drafted")
    return partial(_rewrite, turn=turn, digest=digest, from_transcript=from_transcript)


async def _reread(turn_id: int, db: Database, transcripts: Transcripts) -> Turn | None:
    """Return the turn as read from its transcript; None if the transcript does not contain it."""
    source = await db.read(rewrites.source, turn_id)
    events = await asyncio.to_thread(transcripts.events, *source) if source else ()
    return await db.read(turns.load_from, turn_id, events) if events else None


def _finish(conn: Connection, *, turn_id: int, has_source: bool = True) -> Sequence[News]:
    rewrites.settle(conn, turn_id, has_source=has_source or bool(rewrites.owner(conn, turn_id)))
    return _enqueue_next(conn, ())


def _rewrite(conn: Connection, *, turn: Turn, digest: Digest, from_transcript: bool) -> Sequence[News]:
    if not (rewrites.is_bare(conn, turn.id) if from_transcript else turns.is_current(conn, turn)):
        return ()  # new events or a deletion: another job handles the turn
    news = _store(conn, turn, _without_events(digest) if from_transcript else digest)
    rewrites.settle(conn, turn.id)
    failpoint("rewrite.kept")
    return _enqueue_next(conn, news)


def _store(conn: Connection, turn: Turn, digest: Digest) -> Sequence[News]:
    owner, summary = rewrites.owner(conn, turn.id), digest.summary
    if not owner:
        rewrites.take_over(conn, turn.id, digest.observations)
        return keep(conn, turn, digest, now=ids.now(), past=True)
    if owner == rewrites.MODEL and summary is not None:
        ending = {"closing": summary.closing, "closing_trust": summary.closing_trust, "outcome": summary.outcome}
        rewrites.add_ending(conn, turn.id, **ending)
    return ()


def _without_events(digest: Digest) -> Digest:
    """Remove the event references of the facts: these events are not in the database."""
    drafts = (replace(draft, facts=tuple(Fact(fact.text) for fact in draft.facts)) for draft in digest.observations)
    return replace(digest, observations=tuple(drafts))


def _enqueue_next(conn: Connection, news: Sequence[News]) -> Sequence[News]:
    rewrites.ask_few(conn, now=ids.now())
    return news
