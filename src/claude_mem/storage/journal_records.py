"""The records of the journal: what its functions take and return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from claude_mem.domain.reports import Finding
from claude_mem.domain.session_reports import StorySession, StorySummary

# Verdicts before a model saw the request: no cost, and no attempt counted.
UNSEEN_VERDICTS = ("auth", "quota", "rate_limited")
ImportCounts = dict[str, dict[str, int]]  # outcome or reason → kind → count
BACKFILL_JOB = "backfill"  # read a part of an old transcript
DIGEST_BACKFILLED_JOB = "past"  # digest a turn of an old transcript
IMPORT_JOB = "import"
REFINE_JOB = "refine"  # the ledger counts its attempts
REPROCESS_JOB = "rewrite"  # reprocess a turn that an earlier version of the writer digested
ANCHOR_JOB = "anchor"  # find the anchors of a turn's observations that have none
OWNED_BY_PERSON, OWNED_BY_MODEL = "person", "model"  # who may replace the records of a turn
MAX_REFINE_ATTEMPTS = 3
DRILL_PREFIX = "drill:"  # of the check that records the restore drill of a backup
GREETING = "greeting"  # the key of the daily greeting
FORGOTTEN_RULE = "forgotten"  # the filter rule in the receipts of forgotten events
MAX_STORY_EVENTS = 1_000  # read per turn: an agent may run for days on one prompt


@dataclass(frozen=True, slots=True)
class TurnState:
    """The part of a turn that is needed to decide where an event belongs."""

    id: int
    number: int
    private: bool
    closed: bool
    prompt_id: str | None
    events_purged: bool = False  # its events were purged: it is complete and not digested again


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """A request about to be sent, with the maximum it may cost."""

    purpose: str
    session_id: int | None
    turn_id: int | None
    project_id: int | None
    provider: str
    model: str
    input_tokens: int
    output_tokens: int
    cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Input plus output tokens, and the cost in millionths of a dollar."""

    tokens: int
    cost: int


@dataclass(frozen=True, slots=True)
class RefineAttempts:
    """The attempts to refine a turn that a model may have seen: their verdicts ('' without a reply) and the last
    provider."""

    verdicts: tuple[str, ...] = ()
    last_provider: str = ""

    @property
    def may_retry(self) -> bool:
        """Whether another attempt is allowed.

        At most three in total, at most one retry with less text after `too_long`, and none after `refused`.
        """
        verdicts = self.verdicts
        return len(verdicts) < MAX_REFINE_ATTEMPTS and verdicts.count("too_long") < 2 and "refused" not in verdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """The circuit breaker of a provider: its failures in a row, and until when and why it is paused."""

    provider: str
    failures: int = 0
    until: int = 0
    verdict: str = ""
    message: str = ""
    settings: str = ""


class ClaimOrder(StrEnum):
    """Which due job comes first: the one due for longest, the newest, or the one with the lowest number as subject."""

    DUE = "due_at, id"
    NEWEST = "id desc"
    SUBJECT = "cast(subject as integer), id"


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectionRecord:
    """One injection. Only names of items are stored, not their text."""

    trigger: str  # start | prompt | file | failure | command
    at: int
    tokens: int
    names: Sequence[str] = ()
    about: str = ""
    holdout: float = 0.0  # the probability with which nothing would have been said
    held_out: bool = False  # nothing was said: the moment serves for comparison


@dataclass(frozen=True, slots=True)
class SessionInjection:
    """One injection into a session, with the names of its items."""

    id: int
    moment: str
    about: str
    at: int
    tokens: int
    names: list[str]
    held_out: bool


@dataclass(frozen=True, slots=True)
class TranscriptFile:
    """A transcript file as it is on disk now."""

    path: str
    size: int
    changed_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillFile:
    """A part of a transcript that is to be read."""

    id: int
    path: str
    host: str
    size: int
    session_id: int | None
    opened: bool
    parts: int
    agent: str
    mark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRun:
    """An import and its progress."""

    id: int
    path: str
    mark: str
    source: str  # export | older
    project: str
    untrusted: bool
    dry_run: bool
    position: str
    done: int
    total: int
    counts: ImportCounts
    notes: list[str]
    error: str | None
    started_at: int
    ended_at: int | None


@dataclass(frozen=True, slots=True)
class TranscriptSource:
    """The transcript of a session."""

    path: str
    host: str
    content_session_id: str
    cwd: str


@dataclass(frozen=True, slots=True)
class ReprocessFilter:
    """Which turns to reprocess: those of these projects (None: all) that ended at or after `since`."""

    project_ids: tuple[int, ...] | None = None
    since: int | None = None


class StoryHeader(StorySession, frozen=True):
    """A session with its counts and costs, and the root of its project."""

    root: str


class TurnSummary(msgspec.Struct, frozen=True):
    """The summary of a turn, and the files that it names."""

    summary: StorySummary
    files_read: list[str]
    files_edited: list[str]


class NamedItem(msgspec.Struct, frozen=True):
    """An observation or a summary of an injection."""

    id: int
    type: str | None
    title: str | None
    forgotten: bool
    files: list[str]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one self-check, for the user."""

    name: str
    ok: bool
    detail: str
    hint: str = ""

    def as_finding(self) -> Finding:
        """Return the result as the API shows it."""
        return Finding(name=self.name, ok=self.ok, found=self.detail, hint=self.hint)
