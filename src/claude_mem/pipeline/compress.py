"""Composes the draft of a turn and stores its observations and summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from claude_mem import ids
from claude_mem.failpoints import failpoint
from claude_mem.origins import BURST, BURST_MS, EXTERNAL, TRUSTED
from claude_mem.pipeline.stage import Commit, nothing
from claude_mem.providers import markdown
from claude_mem.providers.base import Compressor
from claude_mem.records import Digest, Job, News, Stopped, SubagentStopped, ToolUsed, Turn, Type
from claude_mem.store import jobs, ledger, observations, rules, sessions, turns
from claude_mem.store.database import Connection, Database
from claude_mem.text import first_sentence

LONG_ANSWER = 400
REFINE_DELAY_MS = 2000


async def compress(
    job: Job, *, db: Database, compressor: Compressor, refining: Callable[[], bool], past: bool = False
) -> Commit:
    """Compose the draft, without a model, and enqueue a refine job if a model may refine it.

    Back-filled turns (`past`) are not refined.
    """
    turn_id = int(job.subject.partition(".")[0])
    turn = await db.read(turns.load, turn_id)
    failpoint("compress.loaded")
    if turn is None or not turn.bodies:
        return nothing
    digest = await compressor.compress(turn)
    failpoint("compress.drafted")
    refine = not past and worth_refining(turn) and refining()
    return partial(_store_draft, turn=turn, digest=digest, refine=refine, past=past)


def worth_refining(turn: Turn) -> bool:
    """Return whether a model can improve the turn. A short answer without tool calls is stored as it is."""
    tools = any(isinstance(body, ToolUsed | SubagentStopped) for body in turn.bodies)
    return tools or any(len(body.message) >= LONG_ANSWER for body in turn.bodies if isinstance(body, Stopped))


def _store_draft(conn: Connection, *, turn: Turn, digest: Digest, refine: bool, past: bool) -> Sequence[News]:
    if not turns.may_keep(conn, turn.id) or not turns.is_whole(conn, turn):
        return ()  # marked private or partly deleted since it was loaded
    now = ids.now()
    imported = turns.is_imported(conn, turn.id)
    if imported and observations.has_other_summary(conn, turn.id, "local"):
        digest = replace(digest, summary=None)
    is_final = past or imported or not ledger.tries(conn, turn.id).may_retry
    is_refined = is_final and observations.is_refined(conn, turn.id)
    # Refined records that cannot be refined again are not replaced by a draft.
    news = [] if is_refined else keep(conn, turn, digest, now=now, past=past)
    turns.digested(conn, turn, now=now)
    if refine and turns.is_live(conn, turn.id):
        # With a delay: a late event changes the turn, and that should not cost a second request.
        jobs.ask(conn, jobs.REFINE, f"{turn.id}.{turn.newest_seq}", now=now, due=now + REFINE_DELAY_MS)
    return news


def _sentences(text: str) -> str:
    """Return the sentences of a Markdown text without headings and markup."""
    return " ".join(block.labelled for block in markdown.read(text) if block.kind != "heading")


def keep(conn: Connection, turn: Turn, digest: Digest, *, now: int, past: bool = False) -> list[News]:
    """Store a digest, replacing all records written earlier for the turn."""
    news = []
    if digest.summary is not None:
        if summary_id := observations.put_summary(conn, turn, digest.summary, by=digest.author, now=now):
            news.append(News("new_summary", {"id": summary_id, "session_id": turn.session_id}))
        is_trusted = digest.summary.trust in TRUSTED
        subtitle = digest.subtitle or (first_sentence(_sentences(digest.summary.completed), 140) if is_trusted else "")
        sessions.set_subtitle(conn, turn.session_id, subtitle, at=turn.ended_at)
    if digest.title and turn.number == 1:
        sessions.set_title(conn, turn.session_id, digest.title)
    states_rules = rules.of_turn(conn, turn.id) or any(draft.type == Type.RULE for draft in digest.observations)
    for draft in digest.observations:
        if draft.type == Type.RULE and rules.is_stated(conn, turn, draft):
            continue
        if row_id := observations.put(conn, turn, draft, by=digest.author, now=now):
            payload = {"id": row_id, "session_id": turn.session_id, "obs_type": draft.type, "title": draft.title}
            news.append(News("new_observation", payload))
    for reason in {draft.why for draft in digest.observations if draft.trust == EXTERNAL}:
        observations.note_burst(conn, turn.project_id, reason, since=turn.ended_at - BURST_MS, min_count=BURST)
    observations.keep_only(conn, turn.id, tuple(draft.key for draft in digest.observations))
    if states_rules:
        rules.link(conn, turn.project_id)
    if past and turns.more_past(conn, turn.project_id):
        return []  # publish once, after the last back-filled turn of the project
    jobs.ask(conn, "render", f"{turn.project_id}.{turn.id}.{turn.newest_seq}", now=now)
    return [News("backfilled", {"project_id": turn.project_id})] if past else news
