"""What lists, status pages and progress displays show: records that are selected from storage and answered as they are.

Field names are those of the API. Times are milliseconds, UTC; costs are millionths of a dollar.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, UnsetType

from claude_mem.domain.records import Draft, Summary

# --- events and jobs -------------------------------------------------------------------------------------------------


class EventAccount(msgspec.Struct, frozen=True):
    """How many events were captured, and how many of them are in each state."""

    captured: int
    stored: int
    queued: int
    set_aside: int
    filtered: int
    filtered_by: dict[str, int]
    set_aside_by: dict[str, int]
    faded: int  # stored events that were purged

    @property
    def adds_up(self) -> bool:
        """Whether every captured event is in one of the states."""
        return self.captured == self.stored + self.queued + self.set_aside + self.filtered


class RowCounts(msgspec.Struct, frozen=True):
    """The number of rows of each kind."""

    projects: int = 0
    sdk_sessions: int = 0
    turns: int = 0
    user_prompts: int = 0
    events: int = 0
    session_summaries: int = 0
    observations: int = 0
    jobs: int = 0
    dead_jobs: int = 0
    last_event_at: int | None = None


class QueuedJob(msgspec.Struct, frozen=True):
    """A job as it is stored."""

    id: int
    kind: str
    subject: str
    due_at: int
    attempts: int
    dead: int
    error: str | None
    created_at: int


class DescribedJob(msgspec.Struct, frozen=True):
    """A job as the user sees it. `dropping`: what happens if it is dropped; "" if that is impossible."""

    id: int
    kind: str
    due_at: int
    attempts: int
    error: str | None
    created_at: int
    dead: bool
    about: str
    session_id: int | None
    dropping: str


class JobStates(msgspec.Struct, frozen=True):
    """The number of jobs by state, and the time of the oldest that is not a dead letter."""

    waiting: int
    retrying: int
    dead: int
    oldest_at: int | None


class IndexCounts(msgspec.Struct, frozen=True):
    """How complete the index is: `stale` rows are not indexed, `vectors` are computed by the current model."""

    documents: int
    stale: int
    vectors: int


class IndexState(IndexCounts, frozen=True):
    """`owed`: whether vectors are still to be computed."""

    model: str | None
    ready: bool
    owed: bool


# --- checks ----------------------------------------------------------------------------------------------------------


class CheckRecord(msgspec.Struct, frozen=True):
    """The newest result of a periodic check."""

    at: int
    ok: int
    text: str


class Drill(msgspec.Struct, frozen=True):
    """The result of the test restore of a backup."""

    at: int
    ok: bool
    text: str


class Finding(msgspec.Struct, frozen=True):
    """The result of one self-check, as the user sees it."""

    name: str
    ok: bool
    found: str
    hint: str


class AuditState(msgspec.Struct, frozen=True):
    """The last result of the periodic self-checks. `at` is null before the first."""

    at: int | None
    ok: bool
    wrong: list[Finding]


class BackupFile(msgspec.Struct, frozen=True):
    """A backup. Its version and row count are null if it cannot be read; `problem` says why."""

    name: str
    made_at: int
    size: int
    version: int | None
    observations: int | None
    problem: str | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class BackupCopy:
    """A backup, with the row counts of the database at the time it was made."""

    path: str
    size: int
    counts: dict[str, int]
    digest: str = ""  # of all memory, see `digest_memory`


@dataclass(frozen=True, slots=True)
class BackupCheck:
    """The result of checking an intact backup."""

    path: str
    size: int
    version: int
    counts: dict[str, int]
    strange: list[str]  # schema objects that our migrations do not create; never restored


# --- requests to models ----------------------------------------------------------------------------------------------


class UsageTotals(msgspec.Struct, frozen=True):
    """Requests to models and what they used."""

    requests: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost: int
    failed: int


class LedgerGroup(UsageTotals, frozen=True):
    """The usage of one day, month, project, model, session or verdict."""

    name: str | int  # a session is named by its id


class DailyUsage(UsageTotals, frozen=True):
    """The usage of one model or project (`id`) on one day."""

    day: str
    name: str
    id: int


class LedgerLine(msgspec.Struct, frozen=True):
    """One request to a model."""

    id: int
    at: int
    ended_at: int | None
    purpose: str
    session_id: int | None
    turn_id: int | None
    project: str | None
    provider: str
    model: str
    input_tokens: int
    cached_tokens: int
    written_tokens: int
    output_tokens: int
    cost: int
    verdict: str | None
    message: str | None
    memory_session_id: str | None


class PausedProvider(msgspec.Struct, frozen=True):
    """A provider with failures: until when it is paused, and why."""

    provider: str
    failures: int
    until: int
    verdict: str
    message: str


class RefiningState(msgspec.Struct, frozen=True):
    """Providers, spending against the caps, and paused providers."""

    providers: list[str]
    today_tokens: int
    daily_tokens: int
    month_cost: int
    monthly_cost: int
    waiting: int
    paused: list[PausedProvider]
    prices_problem: str
    problem: str


# --- back-fill and reprocessing --------------------------------------------------------------------------------------


class BackfillRequested(msgspec.Struct, frozen=True):
    """The id of the running back-fill, null if no file was enqueued, and the number of unchanged files."""

    backfill: int | None
    unchanged: int


class BackfillRows(msgspec.Struct, frozen=True):
    """Rows that a back-fill added."""

    sessions: int
    turns: int
    events: int
    observations: int


class BackfillFileProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A transcript that was not read, or not completely. `error`: the error of a job that was given up."""

    path: str
    problem: str
    state: str = ""
    bad_lines: int | None = None
    error: str | None = None


class BackfillProgress(msgspec.Struct, frozen=True):
    """The state of the latest back-fill."""

    backfill: int | None
    asked_at: int | None
    files: int
    read: int
    skipped: int
    bytes: int
    bytes_done: int
    waiting: int
    digesting: int
    busy: bool
    new: BackfillRows
    problems: list[BackfillFileProblem]


class ReprocessCounts(msgspec.Struct, frozen=True):
    """Turns that can be digested again, and those that stay as they are, by reason."""

    rewritable: int
    events_gone: int
    a_persons: int
    a_models: int


class FailedTurn(msgspec.Struct, frozen=True):
    """A turn that could not be digested again."""

    turn: int
    error: str


class ReprocessProgress(msgspec.Struct, frozen=True):
    """Turns still to be digested again, and those for which that failed."""

    left: int
    failed: list[FailedTurn]


class UsageDetails(msgspec.Struct, frozen=True):
    """Token counts as the provider reported them, and the cost in dollars if it did."""

    input_tokens: int
    cached_tokens: int
    written_tokens: int
    output_tokens: int
    cost: float | None


class PreviewedRequest(msgspec.Struct, frozen=True):
    """A request to a model; `tokens_at_most` with its longest possible reply."""

    system: str
    prompt: str
    tokens_at_most: int


class PreviewedDigest(msgspec.Struct, frozen=True):
    """The memories of a turn."""

    title: str
    subtitle: str
    summary: Summary | None
    observations: tuple[Draft, ...]


class TurnPreview(msgspec.Struct, frozen=True):
    """The request for a turn, and the draft by rules. If the request was sent, also the reply and what it costs.

    `refined` is null if the reply cannot be used.
    """

    turn: int
    prompt: str
    request: PreviewedRequest
    local: PreviewedDigest
    provider: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    verdict: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    answer: str | UnsetType = UNSET
    usage: UsageDetails | UnsetType = UNSET
    cost: int | UnsetType = UNSET
    refined: PreviewedDigest | UnsetType | None = UNSET


class TurnsQueued(msgspec.Struct, frozen=True):
    """The number of turns to refine."""

    turns: int


class RefiningEstimate(TurnsQueued, frozen=True):
    """The maximum cost of refining turns, and the days it takes under the caps."""

    tokens: int
    cost: int
    model: str
    daily_tokens: int
    monthly_cost: int
    days: int


# --- deletion --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class DeletionProgress:
    """Progress of a deletion and, once it has ended, its result."""

    number: int = 0
    erased: bool = False
    busy: bool = False
    doing: str = ""
    done: int = 0
    total: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    undo_until: int | None = None
    # The names of database copies by outcome: kept, rewritten, deleted, failed.
    copies: dict[str, list[str]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)  # files that still contain the requested text
    error: str = ""


class AffectedTitle(msgspec.Struct, frozen=True):
    """A row that a deletion would delete."""

    kind: str
    id: int
    title: str
    at: int


class AffectedSummary(msgspec.Struct, frozen=True):
    """What a deletion would delete. `made_again`: turns that are digested again without what is deleted."""

    counts: dict[str, int]
    made_again: int
    first: list[AffectedTitle]


class Restored(msgspec.Struct, frozen=True):
    """What was restored, by kind, and the projects concerned."""

    counts: dict[str, int]
    projects: list[int]
