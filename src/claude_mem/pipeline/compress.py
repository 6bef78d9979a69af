"""Turn → digest → observations and a summary."""

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
    """The draft, at once and for free. If a model may refine it, that is asked for as well; never for what is past."""
    turn_id = int(job.subject.partition(".")[0])
    turn = await db.read(turns.load, turn_id)
    failpoint("compress.loaded")
    if turn is None or not turn.bodies:
        return nothing
    made = await compressor.compress(turn)
    failpoint("compress.drafted")
    refine = not past and worth_refining(turn) and refining()
    return partial(_keep_draft, turn=turn, made=made, refine=refine, past=past)


def worth_refining(turn: Turn) -> bool:
    """A few words without any work are a memory as they stand; a model would only cost."""
    tools = any(isinstance(body, ToolUsed | SubagentStopped) for body in turn.bodies)
    return tools or any(len(body.message) >= LONG_ANSWER for body in turn.bodies if isinstance(body, Stopped))


def _keep_draft(conn: Connection, *, turn: Turn, made: Digest, refine: bool, past: bool) -> Sequence[News]:
    if not turns.may_keep(conn, turn.id) or not turns.is_whole(conn, turn):
        return ()  # it turned out to be private while we were at it, or some of it was forgotten
    now = ids.now()
    imported = turns.is_imported(conn, turn.id)
    if imported and observations.has_other_summary(conn, turn.id, "local"):
        made = replace(made, summary=None)
    last = past or imported or not ledger.tries(conn, turn.id).left
    refined = last and observations.is_refined(conn, turn.id)
    news = [] if refined else keep(conn, turn, made, now=now, past=past)  # better words that can't be had again stay
    turns.digested(conn, turn, now=now)
    if refine and turns.is_live(conn, turn.id):
        # In a moment: what comes in late makes another turn of it, and that should not cost another request.
        jobs.ask(conn, jobs.REFINE, f"{turn.id}.{turn.newest_seq}", now=now, due=now + REFINE_DELAY_MS)
    return news


def _plain(text: str) -> str:
    """Return the sentences of a Markdown text, without its headings and marks."""
    return " ".join(one.labelled for one in markdown.read(text) if one.kind != "heading")


def keep(conn: Connection, turn: Turn, made: Digest, *, now: int, past: bool = False) -> list[News]:
    """The digest takes the place of whatever was made of the turn before."""
    news = []
    if made.summary is not None:
        if summary_id := observations.put_summary(conn, turn, made.summary, by=made.author, now=now):
            news.append(News("new_summary", {"id": summary_id, "session_id": turn.session_id}))
        told = made.summary.trust in TRUSTED
        subtitle = made.subtitle or (first_sentence(_plain(made.summary.completed), 140) if told else "")
        sessions.set_subtitle(conn, turn.session_id, subtitle, at=turn.ended_at)
    if made.title and turn.number == 1:
        sessions.set_title(conn, turn.session_id, made.title)
    states_rules = rules.of_turn(conn, turn.id) or any(draft.type == Type.RULE for draft in made.observations)
    for draft in made.observations:
        if draft.type == Type.RULE and rules.is_stated(conn, turn, draft):
            continue
        if row_id := observations.put(conn, turn, draft, by=made.author, now=now):
            said = {"id": row_id, "session_id": turn.session_id, "obs_type": draft.type, "title": draft.title}
            news.append(News("new_observation", said))
    for why in {draft.why for draft in made.observations if draft.trust == EXTERNAL}:
        observations.note_burst(conn, turn.project_id, why, since=turn.ended_at - BURST_MS, min_count=BURST)
    observations.keep_only(conn, turn.id, tuple(draft.key for draft in made.observations))
    if states_rules:
        rules.link(conn, turn.project_id)
    if past and turns.more_past(conn, turn.project_id):
        return []  # of many old turns, the last one is soon enough to tell of
    jobs.ask(conn, "render", f"{turn.project_id}.{turn.id}.{turn.newest_seq}", now=now)
    return [News("backfilled", {"project_id": turn.project_id})] if past else news
