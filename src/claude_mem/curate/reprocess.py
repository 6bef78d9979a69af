"""Reprocess turns: compose their records again after the writer improved.

A turn is read from its raw events or, after they were purged, from its session's transcript. No model is asked. Records
that a person changed stay as they are; records that a model refined keep their wording and get the closing message.

A transcript is read by the same rules as in reconciling, and none of its events is stored. Transcripts of subagents
name no prompt and are not read, so only turns without external text are eligible (`find_transcript_source`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from claude_mem.agents import registry
from claude_mem.capture.transcripts import read_allowed_events
from claude_mem.config import Config
from claude_mem.digest.compress import store_digest, store_missing_anchors
from claude_mem.digest.models.base import Compressor
from claude_mem.domain import ids
from claude_mem.domain.records import Digest, Event, Fact, Job, Prompted, Stopped, StreamEvent, Turn
from claude_mem.domain.reports import ReprocessCounts
from claude_mem.storage.base import Commit, Database, Transaction, write_nothing
from claude_mem.storage.journal_records import OWNED_BY_MODEL, OWNED_BY_PERSON, ReprocessFilter, TranscriptSource
from claude_mem.system import untrusted_files
from claude_mem.system.failpoints import failpoint
from claude_mem.system.project_folders import identify_project

MAX_TRANSCRIPT_BYTES = 64 << 20
MAX_TRANSCRIPT_EVENTS = 20_000  # they are all held in memory, and later ones are ignored

EventsByPrompt = Mapping[str, Sequence[Event]]


async def count_reprocessable(db: Database, selection: ReprocessFilter) -> ReprocessCounts:
    """Count turns that can be reprocessed, from events or from a transcript, and turns that stay as they are."""
    counts = await db.read(lambda tx: tx.journal.count_reprocessable_turns(selection))
    sources = await db.read(lambda tx: tx.journal.list_transcript_sources(selection))
    from_transcripts = await asyncio.to_thread(lambda: sum(turns for source, turns in sources if is_readable(source)))
    return msgspec.structs.replace(
        counts,
        rewritable=counts.rewritable + from_transcripts,
        events_gone=counts.events_gone - from_transcripts,
    )


async def reprocess_turn(job: Job, *, db: Database, compressor: Compressor, transcripts: TranscriptReader) -> Commit:
    """Run one job of the queue.

    The returned commit writes the records in the transaction that finishes the job, so a worker that is killed only
    processes the turn again.
    """
    turn_id = int(job.subject.partition(".")[0])
    if await db.read(lambda tx: tx.journal.get_turn_owner(turn_id)) == OWNED_BY_PERSON:
        return partial(_finish_unchanged, turn_id=turn_id)
    turn = await db.read(lambda tx: tx.journal.load_turn(turn_id))
    if turn is None:
        return write_nothing  # deleted, or marked private
    from_transcript = not turn.bodies
    if from_transcript:
        turn = await _reread(turn_id, db, transcripts)
    if turn is None:
        return partial(_finish_unchanged, turn_id=turn_id, has_source=False)
    digest = await compressor.compress(turn)
    failpoint("rewrite.drafted")
    return partial(_replace_records, turn=turn, digest=digest, from_transcript=from_transcript)


async def _reread(turn_id: int, db: Database, transcripts: TranscriptReader) -> Turn | None:
    """Return the turn as read from its transcript; None if the transcript does not contain it."""
    source = await db.read(lambda tx: tx.journal.find_transcript_source(turn_id))
    events = await asyncio.to_thread(transcripts.events, *source) if source else ()
    return await db.read(lambda tx: tx.journal.load_turn_from_transcript(turn_id, events)) if events else None


async def fill_anchors(job: Job, *, db: Database, transcripts: TranscriptReader) -> Commit:
    """Run one job of the queue: find the anchors of a turn's observations that have none, because they were restored,
    or are older than anchors."""
    turn_id = int(job.subject.partition(".")[0])
    turn = await db.read(lambda tx: tx.journal.load_turn(turn_id))
    if turn is not None and not turn.bodies:
        turn = await _reread(turn_id, db, transcripts)
    return partial(_store_missing_anchors, turn=turn) if turn else write_nothing


def _store_missing_anchors(tx: Transaction, *, turn: Turn) -> Sequence[StreamEvent]:
    if store_missing_anchors(tx, turn):
        tx.journal.enqueue_render(turn.project_id, now=ids.now_ms())
    return ()


def _finish_unchanged(tx: Transaction, *, turn_id: int, has_source: bool = True) -> Sequence[StreamEvent]:
    has_owner = bool(tx.journal.get_turn_owner(turn_id))
    tx.journal.mark_turn_reprocessed(turn_id, has_source=has_source or has_owner)
    tx.journal.enqueue_next_outdated_turns(now=ids.now_ms())
    return ()


def _replace_records(tx: Transaction, *, turn: Turn, digest: Digest, from_transcript: bool) -> Sequence[StreamEvent]:
    if from_transcript:
        is_unchanged, digest = tx.journal.is_turn_without_events(turn.id), _without_event_references(digest)
    else:
        is_unchanged = tx.journal.is_turn_current(turn)
    if not is_unchanged:
        return ()  # new events or a deletion: another job handles the turn
    stream_events = _store(tx, turn, digest)
    tx.journal.mark_turn_reprocessed(turn.id)
    failpoint("rewrite.kept")
    tx.journal.enqueue_next_outdated_turns(now=ids.now_ms())
    return stream_events


def _store(tx: Transaction, turn: Turn, digest: Digest) -> Sequence[StreamEvent]:
    owner, summary = tx.journal.get_turn_owner(turn.id), digest.summary
    if not owner:
        tx.journal.reuse_observation_rows(turn.id, digest.observations)
        return store_digest(tx, turn, digest, now=ids.now_ms(), past=True)
    if owner == OWNED_BY_MODEL and summary is not None:
        tx.journal.add_closing_message(
            turn.id, closing=summary.closing, closing_trust=summary.closing_trust, outcome=summary.outcome
        )
    return ()


def _without_event_references(digest: Digest) -> Digest:
    """Return the digest without the events of its facts: these events are not in the database."""
    drafts = (replace(draft, facts=tuple(Fact(fact.text) for fact in draft.facts)) for draft in digest.observations)
    return replace(digest, observations=tuple(drafts))


# --- reading a turn from its transcript ------------------------------------------------------------------------------


class TranscriptReader:
    """Reads transcripts and caches the last one, because turns of one session are processed in sequence."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._last: tuple[TranscriptSource | None, EventsByPrompt] = None, {}

    def events(self, source: TranscriptSource, prompt_id: str) -> Sequence[Event]:
        """Return the events of the turn in order; none unless the transcript has both its prompt and its end."""
        if self._last[0] != source:
            self._last = source, _events_by_prompt(source, self.config)
        turn_events = self._last[1].get(prompt_id, ())
        kinds = {type(event.body) for event in turn_events}
        return turn_events if {Prompted, Stopped} <= kinds else ()


def is_readable(source: TranscriptSource) -> bool:
    """Return whether the transcript belongs to the user and is neither empty nor too large."""
    path = Path(source.path)
    try:
        return untrusted_files.is_owned_by_user_or_root(path) and 0 < path.stat().st_size <= MAX_TRANSCRIPT_BYTES
    except (OSError, ValueError):
        return False


def _events_by_prompt(source: TranscriptSource, config: Config) -> EventsByPrompt:
    """Return the events of a transcript by prompt id, after capture rules and sanitizing."""
    transcripts = registry.get_agent(source.host).transcripts
    if transcripts is None or not is_readable(source):
        return {}
    project = identify_project(source.cwd, excluded=config.excluded_projects)
    if not project.enabled or not transcripts.belongs_to_session(Path(source.path), source.content_session_id):
        return {}
    events = read_allowed_events(
        transcripts,
        Path(source.path),
        project,
        config,
        host=source.host,
        content_session_id=source.content_session_id,
        most=MAX_TRANSCRIPT_EVENTS,
    )
    by_prompt: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.prompt_id:
            by_prompt[event.prompt_id].append(event)
    return by_prompt
