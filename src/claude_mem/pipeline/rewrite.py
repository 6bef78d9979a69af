"""A turn that an earlier version of the writer digested → its memories, written again by the present one.

Nothing is asked of a model. What a person has touched stays as it is; what a model put into words keeps its words, and
gets the closing message. The job is finished in the transaction that writes, so a worker that is killed only does the
turn again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from claude_mem import ids
from claude_mem.failpoints import failpoint
from claude_mem.pipeline.compress import keep
from claude_mem.pipeline.stage import Commit, nothing
from claude_mem.providers.base import Compressor
from claude_mem.records import Digest, Job, News, Turn
from claude_mem.store import rewrites, turns
from claude_mem.store.database import Connection, Database


async def rewrite(job: Job, *, db: Database, compressor: Compressor) -> Commit:
    """The stage."""
    turn = await db.read(turns.load, int(job.subject.partition(".")[0]))
    if turn is None or not turn.bodies:
        return nothing  # it is gone or private, or its events are past keeping
    if await db.read(rewrites.owner, turn.id) == rewrites.PERSON:
        return partial(_leave, turn=turn)
    made = await compressor.compress(turn)
    failpoint("rewrite.drafted")
    return partial(_rewrite, turn=turn, made=made)


def _leave(conn: Connection, *, turn: Turn) -> Sequence[News]:
    rewrites.settle(conn, turn.id)
    return _and_next(conn, ())


def _rewrite(conn: Connection, *, turn: Turn, made: Digest) -> Sequence[News]:
    news: Sequence[News] = ()
    if turns.is_current(conn, turn):  # else more came in, or some of it was forgotten: another job sees to it
        owner = rewrites.owner(conn, turn.id)
        if not owner:
            rewrites.take_over(conn, turn.id, made.observations)
            news = keep(conn, turn, made, now=ids.now(), past=True)
        elif owner == rewrites.MODEL and made.summary is not None:
            summary = made.summary
            rewrites.add_ending(
                conn,
                turn.id,
                closing=summary.closing,
                closing_trust=summary.closing_trust,
                outcome=summary.outcome,
            )
        rewrites.settle(conn, turn.id)
    failpoint("rewrite.kept")
    return _and_next(conn, news)


def _and_next(conn: Connection, news: Sequence[News]) -> Sequence[News]:
    rewrites.ask_few(conn, now=ids.now())
    return news
