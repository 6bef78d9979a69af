"""Composes the draft of a turn and stores its observations and summary."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from claude_mem.digest import markdown
from claude_mem.digest.evidence import EDIT_TOOLS, READ_TOOLS, output_text, path_in_project
from claude_mem.digest.line_anchors import TurnLines, collect_lines, find_anchors, mentioned_names
from claude_mem.digest.models.base import Compressor
from claude_mem.digest.uses import find_uses, read_actions
from claude_mem.domain import anchors, ids, patches
from claude_mem.domain.anchors import Outcome
from claude_mem.domain.records import (
    Digest,
    Draft,
    Fact,
    Job,
    ObservationType,
    Stopped,
    StreamEvent,
    SubagentStopped,
    ToolUsed,
    Turn,
)
from claude_mem.domain.text import first_sentence
from claude_mem.domain.uses import ItemUse, TurnReading
from claude_mem.privacy.trust import BURST_MS, BURST_RECORDS, EXTERNAL, TRUSTED
from claude_mem.storage.base import Commit, Database, Transaction, write_nothing
from claude_mem.storage.journal_records import REFINE_JOB
from claude_mem.system.failpoints import failpoint

LONG_ANSWER = 400
REFINE_DELAY_MS = 2000


async def compress(
    job: Job, *, db: Database, compressor: Compressor, refining: Callable[[], bool], past: bool = False
) -> Commit:
    """Compose the draft, without a model, and enqueue a refine job if a model may refine it.

    Back-filled turns (`past`) are not refined.
    """
    turn_id = int(job.subject.partition(".")[0])
    turn = await db.read(lambda tx: tx.journal.load_turn(turn_id))
    failpoint("compress.loaded")
    if turn is None or not turn.bodies:
        return write_nothing
    digest = await compressor.compress(turn)
    judged = await _judge(db, turn)
    failpoint("compress.drafted")
    refine = not past and is_worth_refining(turn) and refining()
    return partial(_store_draft, turn=turn, digest=digest, judged=judged, refine=refine, past=past)


@dataclass(frozen=True, slots=True)
class _Judged:
    """What a turn shows of the uses of what its session was shown, and how much it read."""

    uses: Sequence[ItemUse]
    reading: TurnReading


async def _judge(db: Database, turn: Turn) -> _Judged:
    items = await db.read(lambda tx: tx.journal.load_shown_items(turn))
    times = await db.read(lambda tx: tx.journal.load_times(turn.id))
    known_paths = await db.read(lambda tx: tx.journal.list_known_paths(turn, read_paths(turn)))

    def judge() -> _Judged:
        item_uses = find_uses(read_actions(turn, times), items) if items else []
        return _Judged(item_uses, measure_reading(turn, known_paths=known_paths))

    return await asyncio.to_thread(judge)


def is_worth_refining(turn: Turn) -> bool:
    """Return whether a model can improve the turn. A short answer without tool calls is stored as it is."""
    tools = any(isinstance(body, ToolUsed | SubagentStopped) for body in turn.bodies)
    return tools or any(len(body.message) >= LONG_ANSWER for body in turn.bodies if isinstance(body, Stopped))


def _store_draft(
    tx: Transaction, *, turn: Turn, digest: Digest, judged: _Judged, refine: bool, past: bool
) -> Sequence[StreamEvent]:
    if not tx.journal.is_turn_public(turn.id) or not tx.journal.has_all_loaded_events(turn):
        return ()  # marked private or partly deleted since it was loaded
    now = ids.now_ms()
    imported = tx.journal.is_turn_imported(turn.id)
    if imported and tx.memory.has_summary_by_other_provider(turn.id, "local"):
        digest = replace(digest, summary=None)
    is_final = past or imported or not tx.journal.get_refine_attempts(turn.id).may_retry
    is_refined = is_final and tx.memory.is_turn_refined(turn.id)
    # Refined records that cannot be refined again are not replaced by a draft.
    news = [] if is_refined else store_digest(tx, turn, digest, now=now, past=past)
    tx.journal.replace_uses(turn.id, judged.uses)
    tx.journal.record_reading(turn.id, judged.reading)
    tx.journal.mark_turn_digested(turn, now=now)
    if refine and tx.journal.is_turn_live(turn.id):
        # With a delay: a late event changes the turn, and that should not cost a second request.
        tx.journal.enqueue_job(REFINE_JOB, f"{turn.id}.{turn.newest_seq}", now=now, due=now + REFINE_DELAY_MS)
    return news


def _sentences(text: str) -> str:
    """Return the sentences of a Markdown text without headings and markup."""
    return " ".join(block.labelled for block in markdown.read(text) if block.kind != "heading")


def store_digest(tx: Transaction, turn: Turn, digest: Digest, *, now: int, past: bool = False) -> list[StreamEvent]:
    """Store a digest, replacing all records written earlier for the turn."""
    news = []
    lines = collect_lines(turn)
    if digest.summary is not None:
        if summary_id := tx.memory.upsert_summary(turn, digest.summary, by=digest.author, now=now):
            news.append(StreamEvent("new_summary", {"id": summary_id, "session_id": turn.session_id}))
        is_trusted = digest.summary.trust in TRUSTED
        subtitle = digest.subtitle or (first_sentence(_sentences(digest.summary.completed), 140) if is_trusted else "")
        tx.memory.set_session_subtitle(turn.session_id, subtitle, at=turn.ended_at)
    if digest.title and turn.number == 1:
        tx.memory.set_session_title(turn.session_id, digest.title)
    has_statements = tx.memory.has_turn_statement(turn.id) or any(
        draft.type in (ObservationType.RULE, ObservationType.DECISION) for draft in digest.observations
    )
    for draft in digest.observations:
        if draft.type == ObservationType.RULE and tx.memory.is_rule_stated(turn, draft):
            continue
        if row_id := tx.memory.upsert_observation(turn, draft, by=digest.author, now=now):
            _store_anchors(tx, turn, row_id, draft, lines, outcome=digest.summary.outcome if digest.summary else "")
            payload = {"id": row_id, "session_id": turn.session_id, "obs_type": draft.type, "title": draft.title}
            news.append(StreamEvent("new_observation", payload))
    for reason in {draft.why for draft in digest.observations if draft.trust == EXTERNAL}:
        tx.memory.mark_burst(turn.project_id, reason, since=turn.ended_at - BURST_MS, min_count=BURST_RECORDS)
    tx.memory.delete_observations_except(turn.id, tuple(draft.key for draft in digest.observations))
    if has_statements:
        tx.memory.link_statements(turn.project_id)
    if past and tx.journal.has_more_old_turns(turn.project_id):
        return []  # publish once, after the last back-filled turn of the project
    tx.journal.enqueue_job("render", f"{turn.project_id}.{turn.id}.{turn.newest_seq}", now=now)
    return [StreamEvent("backfilled", {"project_id": turn.project_id})] if past else news


def store_missing_anchors(tx: Transaction, turn: Turn) -> int:
    """Store the anchors of a turn's observations that have none. Return the number of these observations."""
    lines = collect_lines(turn)
    rows = tx.memory.list_unanchored_observations(turn.id)
    for row in rows:
        draft = Draft(
            key="",
            type=row["type"] or "",
            title=row["title"] or "",
            narrative=row["narrative"] or "",
            facts=tuple(Fact(text) for text in row["facts"]),
            files_read=tuple(row["files_read"]),
            files_modified=tuple(row["files_modified"]),
            trust=row["trust"] or "",
        )
        _store_anchors(tx, turn, row["id"], draft, lines, outcome=row["outcome"])
    return len(rows)


def _store_anchors(tx: Transaction, turn: Turn, row_id: int, draft: Draft, lines: TurnLines, *, outcome: str) -> None:
    """Store the lines that an observation speaks of, and link the observations whose lines the turn removed."""
    new_anchors = find_anchors(draft, lines)
    tx.memory.replace_anchors(
        row_id,
        new_anchors,
        blob_ids={anchor.path: lines.blob_id(anchor.path) for anchor in new_anchors},
        outcome=Outcome.FAILED if outcome == Outcome.FAILED else Outcome.TRIED,
        now=turn.ended_at,
    )
    dropped = {
        path: hashes for path in draft.files_modified if path in lines.files if (hashes := lines.dropped_hashes(path))
    }
    is_replacing = any(anchor.kind == anchors.EDIT for anchor in new_anchors)  # what only removes replaces nothing
    if dropped and is_replacing and draft.trust in TRUSTED:
        replaced = tx.memory.find_replaced_observations(turn.project_id, row_id, dropped)
        # What the later edit still names, or says in other words, was reworked, and the memory of it may well hold.
        outdated_ids = [
            item.id
            for item in replaced
            if not lines.adds_any(mentioned_names(item.text)) and not lines.repeats(item.phrases)
        ]
        tx.memory.supersede_observations(outdated_ids, row_id)


# --- how much a turn read --------------------------------------------------------------------------------------------


def read_paths(turn: Turn) -> list[str]:
    """Return the files that a turn read, each once."""
    return list(dict.fromkeys(path for body in turn.bodies if (path := _path_read(body, turn))))


def measure_reading(turn: Turn, *, known_paths: Collection[str]) -> TurnReading:
    """Return how much the turn read. `known_paths`: files that an earlier session read, and this session did not before."""
    characters = again = calls = 0
    before_edit: tuple[int, int] | None = None
    rest = set(known_paths)
    for body in turn.bodies:
        if not isinstance(body, ToolUsed):
            continue
        if before_edit is None and not body.failed and body.name in (*EDIT_TOOLS, patches.PATCH_TOOL):
            before_edit = calls, characters
        calls += 1
        if path := _path_read(body, turn):
            size = _characters_read(body)
            characters += size
            again += size if path in rest else 0
            rest.discard(path)
    return TurnReading(characters, again, *(before_edit or (None, None)))


def _characters_read(body: ToolUsed) -> int:
    """Return the number of characters that a call read; the stored output has their number instead of the content."""
    file = body.output.get("file") if isinstance(body.output, dict) else None
    if not isinstance(file, dict):
        return len(output_text(body.output))
    stored = file.get("contentChars")
    return stored if isinstance(stored, int) else len(str(file.get("content", "")))


def _path_read(body: object, turn: Turn) -> str:
    is_read = isinstance(body, ToolUsed) and body.name in READ_TOOLS and not body.failed
    return path_in_project(body, turn) if is_read and isinstance(body, ToolUsed) else ""
