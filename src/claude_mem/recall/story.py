"""The story of a session: what was asked and done, what failed and was fixed, what memory injected and whether that
was used.

The story is computed from stored rows; nothing is stored for it. Facts that cannot be determined are `None`, and a
private turn shows nothing but the fact that it was private.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from msgspec import UNSET

from claude_mem.digest import evidence
from claude_mem.digest.evidence import Command, Evidence
from claude_mem.domain.records import ENDED_STATUSES, Status
from claude_mem.domain.session_reports import (
    FixPoint,
    InjectedItem,
    Story,
    StoryCommit,
    StoryFailure,
    StoryFile,
    StoryInjection,
    StoryObservation,
    StoryPrompt,
    StorySession,
    StorySummary,
    StoryTurn,
    StoryTurnRow,
    TurnUsage,
)
from claude_mem.domain.text import shorten
from claude_mem.domain.uses import HELPFUL, Use, memory_name
from claude_mem.recall.documents import FRAGMENT
from claude_mem.storage.base import Transaction
from claude_mem.storage.journal_records import MAX_STORY_EVENTS, NamedItem, SessionInjection, StoryHeader, TurnSummary

MAX_LATER_TURNS = 5  # turns beyond the page that are searched for a command that passed in the end
COMMAND_CHARS = 300
DELETED_TITLE, PURGED_TITLE = "(forgotten)", "(no longer kept)"


@dataclass(frozen=True, slots=True)
class TurnEvidence:
    """The evidence of one turn. `whole` says that all its events were read."""

    turn: StoryTurnRow
    evidence: Evidence
    times: Mapping[int, int]
    events: int

    @property
    def whole(self) -> bool:
        return self.events <= MAX_STORY_EVENTS


PassedCommand = tuple[tuple[int, int], TurnEvidence, Command]  # (time, event), the turn, the command


def build_story(tx: Transaction, session_id: int, *, start: int, limit: int) -> Story:
    """Return the session and `limit` of its turns, beginning with turn `start`."""
    session = tx.journal.get_story_header(session_id)
    turns = tx.journal.list_story_turns(session_id)
    page = turns[start : start + limit]
    evidence_by_turn = {turn.id: _load_turn(tx, session, turn) for turn in page if not turn.private}
    injections = _injections_by_turn(tx, session, turns, page, first=start == 0)
    visible_turns = [turn for turn in page if not turn.private]
    details = _describe_turns(tx, visible_turns, evidence_by_turn, _failures(tx, session, turns, evidence_by_turn))
    return Story(
        session=StorySession(**{name: getattr(session, name) for name in StorySession.__struct_fields__}),
        told_at_start=injections.get(0, []),
        turns=[_turn(turn, injections.get(turn.id, []), details.get(turn.id, _NO_DETAILS)) for turn in page],
        from_=start,
        limit=limit,
        has_more=len(turns) > start + limit,
        outline=tx.journal.list_story_outline(session_id) if start == 0 else UNSET,
    )


def _load_turn(tx: Transaction, session: StoryHeader, turn: StoryTurnRow) -> TurnEvidence:
    turn_input, times = tx.journal.load_turn_evidence(session, turn)
    return TurnEvidence(
        turn, evidence.gather_evidence(turn_input, symbols=False), times, tx.journal.count_turn_events(turn.id)
    )


class TurnDetails(TypedDict, total=False):
    """The fields of a turn that is not private."""

    prompt: StoryPrompt | None
    summary: StorySummary | None
    observations: list[StoryObservation]
    files: list[StoryFile]
    commits: list[StoryCommit]
    failures: list[StoryFailure]
    spent: TurnUsage
    events: int
    events_gone: int
    whole: bool


_NO_DETAILS: TurnDetails = {}


def _turn(turn: StoryTurnRow, injections: list[StoryInjection], details: TurnDetails) -> StoryTurn:
    return StoryTurn(
        id=turn.id,
        number=turn.number,
        opened_at=turn.opened_at,
        last_at=turn.last_at,
        closed_at=turn.closed_at,
        closed_by=turn.closed_by,
        private=bool(turn.private),
        digested=turn.digested_at is not None,
        told=injections,
        **details,
    )


# --- what was done ---------------------------------------------------------------------------------------------------


def _describe_turns(
    tx: Transaction,
    turns: Sequence[StoryTurnRow],
    evidence_by_turn: Mapping[int, TurnEvidence],
    failures: Mapping[int, list[StoryFailure]],
) -> dict[int, TurnDetails]:
    """Return the details of turns that are not private, by turn id."""
    ids = [turn.id for turn in turns]
    prompts, summaries = tx.journal.load_turn_prompts(ids), tx.journal.load_turn_summaries(ids)
    observations, costs = tx.journal.load_turn_observations(ids), tx.journal.load_turn_usage(ids)
    return {
        turn_id: {
            "prompt": prompts.get(turn_id),
            "summary": summaries[turn_id].summary if turn_id in summaries else None,
            "observations": observations.get(turn_id, []),
            "files": _files(evidence_by_turn[turn_id].evidence, summaries.get(turn_id)),
            "commits": _commits(evidence_by_turn[turn_id].evidence, observations.get(turn_id, [])),
            "failures": failures.get(turn_id, []),
            "spent": costs.get(turn_id, TurnUsage(requests=0, tokens=0, cost=0)),
            "events": evidence_by_turn[turn_id].events,
            "events_gone": evidence_by_turn[turn_id].turn.events_gone,  # deleted after their retention period
            "whole": evidence_by_turn[turn_id].whole,
        }
        for turn_id in ids
    }


def _files(turn_evidence: Evidence, summary: TurnSummary | None) -> list[StoryFile]:
    """Return how often each file was edited and read. Imported turns have no events and therefore no counts."""
    edited, read = (
        Counter(edit.path for edit in turn_evidence.edits),
        Counter(item.text for item in turn_evidence.reads),
    )
    if not edited and not read and summary:
        only_read = [path for path in summary.files_read if path not in summary.files_edited]
        counts = [(path, None, 0) for path in summary.files_edited] + [(path, 0, None) for path in only_read]
        return [StoryFile(path=path, edited=changed, read=opened) for path, changed, opened in counts]
    paths = evidence.unique([*edited, *read])
    return [StoryFile(path=path, edited=edited[path], read=read[path]) for path in paths]


def _commits(turn_evidence: Evidence, observations: Sequence[StoryObservation]) -> list[StoryCommit]:
    unique_commits = {(commit.id, commit.subject): commit for commit in turn_evidence.commits}
    items = [
        StoryCommit(id=commit.id, subject=commit.subject, branch=commit.branch) for commit in unique_commits.values()
    ]
    seen_ids = {commit.id for commit in turn_evidence.commits}
    commit_ids = evidence.unique(row.commit_id or "" for row in observations)
    return items + [
        StoryCommit(id=commit_id, subject="", branch="") for commit_id in commit_ids if commit_id not in seen_ids
    ]


# --- what failed, and what fixed it ----------------------------------------------------------------------------------


def _failures(
    tx: Transaction, session: StoryHeader, turns: Sequence[StoryTurnRow], evidence_by_turn: Mapping[int, TurnEvidence]
) -> dict[int, list[StoryFailure]]:
    passes = _passes_by_command(tx, session, turns, evidence_by_turn)
    failures_by_turn: dict[int, list[StoryFailure]] = {}
    for turn in evidence_by_turn.values():
        items = [_failure(turn, fix.failed, turn, fix.passed) for fix in turn.evidence.fixes]
        for failed in turn.evidence.unsolved:
            failed_at = (turn.times[failed.seq], failed.seq)
            passed = next(
                (
                    (later_turn, command)
                    for passed_at, later_turn, command in passes[failed.key]
                    if passed_at > failed_at
                ),
                (None, None),
            )
            items.append(_failure(turn, failed, *passed))
        failures_by_turn[turn.turn.id] = sorted(items, key=lambda item: item.at)
    return failures_by_turn


def _failure(
    turn: TurnEvidence, failed: Command, later_turn: TurnEvidence | None, passed: Command | None
) -> StoryFailure:
    fixed = None
    if later_turn is not None and passed is not None:
        fixed = FixPoint(turn=later_turn.turn.number, at=later_turn.times[passed.seq])
    return StoryFailure(
        command=shorten(failed.text, COMMAND_CHARS),
        error=evidence.error_line(failed.output),
        at=turn.times[failed.seq],
        fixed=fixed,
    )


def _passes_by_command(
    tx: Transaction, session: StoryHeader, turns: Sequence[StoryTurnRow], evidence_by_turn: Mapping[int, TurnEvidence]
) -> dict[str, list[PassedCommand]]:
    """Return, in order, when and where each command passed that was still failing at the end of its turn."""
    failing_keys = {command.key for turn in evidence_by_turn.values() for command in turn.evidence.unsolved}
    passed: defaultdict[str, list[PassedCommand]] = defaultdict(list)
    for turn in (
        [*evidence_by_turn.values(), *_turns_beyond_page(tx, session, turns, evidence_by_turn, failing_keys)]
        if failing_keys
        else []
    ):
        for command in turn.evidence.commands:
            if command.key in failing_keys and not command.failed:
                passed[command.key].append(((turn.times[command.seq], command.seq), turn, command))
    return passed


def _turns_beyond_page(
    tx: Transaction,
    session: StoryHeader,
    turns: Sequence[StoryTurnRow],
    evidence_by_turn: Mapping[int, TurnEvidence],
    commands: Iterable[str],
) -> Iterator[TurnEvidence]:
    """Return the next turns beyond the page in which one of these commands was run again."""
    newest_opened_at = max(evidence.turn.opened_at for evidence in evidence_by_turn.values())
    rerun_ids = tx.journal.find_turns_running(
        session.id, [command[:FRAGMENT] for command in commands], after=newest_opened_at
    )
    beyond = [turn for turn in turns if turn.id in rerun_ids and turn.id not in evidence_by_turn and not turn.private]
    return (_load_turn(tx, session, turn) for turn in beyond[:MAX_LATER_TURNS])


# --- what was injected, and whether it was used ----------------------------------------------------------------------


def _injections_by_turn(
    tx: Transaction,
    session: StoryHeader,
    turns: Sequence[StoryTurnRow],
    page: Sequence[StoryTurnRow],
    *,
    first: bool,
) -> dict[int, list[StoryInjection]]:
    """Return the injections of each turn of the page, by turn id; those before the first turn are under 0."""
    turn_ids = {turn.id for turn in page if not turn.private} | ({0} if first else set())
    injections = [
        (turn_id, injection)
        for injection in tx.journal.list_session_injections(session.id)
        if (turn_id := _turn_of(injection, turns)) in turn_ids
    ]
    if not injections:
        return {}
    rows_by_name = tx.journal.load_named_items({name for _, injection in injections for name in injection.names})
    strongest_uses = tx.journal.list_session_uses(session.id)
    is_over = session.status in (*ENDED_STATUSES, Status.INTERRUPTED)
    unknown_until = max((turn.last_at for turn in turns if turn.private), default=0) if is_over else None
    by_turn: defaultdict[int, list[StoryInjection]] = defaultdict(list)
    for turn_id, injection in injections:
        is_final = unknown_until is not None and unknown_until < injection.at
        items = [
            _item(name, rows_by_name, use=strongest_uses.get((injection.id, name)), is_final=is_final)
            for name in injection.names
        ]
        by_turn[turn_id].append(
            StoryInjection(
                id=injection.id,
                moment=injection.moment,
                about=injection.about,
                at=injection.at,
                tokens=injection.tokens,
                held_out=injection.held_out,
                items=items,
            )
        )
    return by_turn


def _turn_of(injection: SessionInjection, turns: Sequence[StoryTurnRow]) -> int:
    """Return the id of the turn an injection belongs to. The brief of a resumed session belongs to the next turn."""
    index = bisect_right(turns, injection.at, key=lambda turn: turn.opened_at) - 1
    if index < 0:
        return 0
    closed_at = turns[index].closed_at
    if injection.moment == "start" and closed_at is not None and closed_at <= injection.at and index + 1 < len(turns):
        index += 1
    return int(turns[index].id)


def _item(name: str, rows_by_name: Mapping[str, NamedItem], *, use: Use | None, is_final: bool) -> InjectedItem:
    """Return an item with its use. That it was not used is said only if no event can show it any more."""
    is_used = None if use is None or (use == Use.NONE and not is_final) else use in HELPFUL
    how = "" if use in (None, Use.NONE) else str(use)
    kind, _, rest = name.partition(":")
    if kind == "file":
        return InjectedItem(kind="file", path=rest, used=is_used, how=how)
    if kind == "call":
        return InjectedItem(kind="call", title=rest, used=is_used, how=how)
    is_summary = name[0] == "s"
    row = rows_by_name.get(memory_name(name))
    if row is None or row.forgotten:
        title = DELETED_TITLE if row else PURGED_TITLE
        return InjectedItem(kind="summary" if is_summary else "observation", id=None, title=title, used=None, how="")
    return InjectedItem(
        kind="summary" if is_summary else "observation",
        id=row.id,
        type=row.type,
        title=shorten(row.title or "Untitled", 200),
        used=is_used,
        how=how,
    )
