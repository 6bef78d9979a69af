"""Health, counts, the job queue, the index, the log, and requests to models."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from claude_mem.domain.reports import (
    AuditState,
    BackupCheck,
    CheckRecord,
    DailyUsage,
    DescribedJob,
    Drill,
    EventAccount,
    IndexState,
    JobStates,
    LedgerGroup,
    LedgerLine,
    QueuedJob,
    RefiningState,
    RowCounts,
    TurnPreview,
)
from claude_mem.domain.worth import Worth
from claude_mem.worker.http.endpoints import (
    MAX_ID,
    ById,
    Date,
    Endpoint,
    Name,
    NoFields,
    Offset,
    Page,
    PageSize,
    Path,
    Wire,
)

# --- status ----------------------------------------------------------------------------------------------------------


class WorkerStatus(EventAccount, frozen=True):
    """Version (and the installed one, which takes over within seconds), process, uptime, event counts by state."""

    status: str
    version: str
    installed_version: str | None
    pid: int
    started_at: int
    uptime_ms: int
    listeners: int
    to_rewrite: int
    audit: AuditState
    door: list[str]


class Readiness(msgspec.Struct, frozen=True):
    """Whether the worker takes requests: `ready` or `stopping`."""

    status: str


class InFolder(msgspec.Struct, frozen=True):
    """A request about the project of a folder."""

    cwd: Path = ""


class LineCounts(msgspec.Struct, frozen=True):
    """Counts for a status line: memories in the project of the folder, in all, and of today."""

    known: int
    today: int
    all: int
    queued: int
    set_aside: int


class WorkerProcess(msgspec.Struct, frozen=True):
    """The worker as it reports itself in the statistics."""

    version: str
    uptime_ms: int
    pid: int


class DatabaseCounts(RowCounts, frozen=True):
    """The row counts, and the size of the file in bytes."""

    size: int = 0


class Stats(msgspec.Struct, frozen=True):
    """Row counts, sizes, and event counts by state."""

    worker: WorkerProcess
    database: DatabaseCounts
    events: EventAccount
    index: IndexState


# --- the health page -------------------------------------------------------------------------------------------------


class ProcessState(msgspec.Struct, frozen=True):
    """The worker's process."""

    version: str
    installed_version: str | None
    pid: int
    started_at: int
    uptime_ms: int
    memory: int
    listeners: int
    data_dir: str


class CheckedAccount(EventAccount, frozen=True):
    """The event counts, and whether they add up."""

    adds_up: bool


class SetAsideFile(msgspec.Struct, frozen=True):
    """An event that was set aside."""

    name: str
    at: int | None
    size: int
    reason: str


class SetAside(msgspec.Struct, frozen=True):
    """Events that were set aside: how many, where, and the newest."""

    count: int
    folder: str
    newest: list[SetAsideFile]


class NewestBackup(msgspec.Struct, frozen=True):
    """The newest backup."""

    name: str
    made_at: int
    size: int


class BackupsState(msgspec.Struct, frozen=True):
    """The number and size of all backups, their restore drills, and the last daily backup."""

    count: int
    size: int
    newest: NewestBackup | None
    drills: dict[str, Drill]
    last: CheckRecord | None


class DiskUsage(msgspec.Struct, frozen=True):
    """The size of each part in bytes, and the free space on its disk."""

    parts: dict[str, int]
    all: int
    free: int
    total: int


class ResponseTimes(msgspec.Struct, frozen=True):
    """Response times in milliseconds, null without a measurement."""

    name: str
    what: str
    count: int
    p50: float | None
    p95: float | None
    p99: float | None


class Issue(msgspec.Struct, frozen=True):
    """A current problem and what to do about it."""

    level: Literal["bad", "warn"]
    text: str
    hint: str


class Health(msgspec.Struct, frozen=True):
    """The state of the worker, from which the current problems follow."""

    at: int
    process: ProcessState
    account: CheckedAccount
    spool: int
    queue: JobStates
    jobs: list[DescribedJob]
    aside: SetAside
    backup: BackupsState
    damage: list[str]
    checks: dict[str, CheckRecord | None]
    disk: DiskUsage
    times: list[ResponseTimes]
    refining: RefiningState
    audit: AuditState
    door: list[str]
    settings: list[str]
    secret_rules: list[str]


class HealthPage(Health, frozen=True):
    """The state of the worker, and current problems; none if the list is empty."""

    concerns: list[Issue]


# --- the job queue and the index -------------------------------------------------------------------------------------


class Queue(EventAccount, frozen=True):
    """What is waiting: files in the spool, jobs, and dead letters with their errors."""

    spool: int
    waiting: int
    jobs: list[QueuedJob]


class Retried(msgspec.Struct, frozen=True):
    """The number of jobs that are retried, or the id of the one."""

    retried: int


class Dropped(msgspec.Struct, frozen=True):
    """The job that was dropped, and what that means."""

    dropped: int
    means: str


class IndexProgress(IndexState, frozen=True):
    """Progress of the index. `embeddable`: documents that get vectors; `busy`: it is not complete."""

    embeddable: int
    busy: bool


# --- backups and log -------------------------------------------------------------------------------------------------


class BackupName(msgspec.Struct, frozen=True):
    """A backup in `backups/`."""

    name: Name


LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
Level = Annotated[
    Literal["", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], Wire(read=lambda value: str(value).upper())
]


class LogQuery(msgspec.Struct, frozen=True):
    """Which entries of the log to show: this level or more severe, with this text, before that time."""

    lines: Annotated[int, Meta(ge=1, le=10_000)] = 200
    level: Level = ""
    text: str = ""
    before: Date | None = None


class LogEntry(msgspec.Struct, frozen=True):
    """One entry of the log; `message` includes its traceback."""

    at: int
    level: str
    logger: str
    message: str


class LogPage(msgspec.Struct, frozen=True):
    """The last lines as text, and entries with their tracebacks, newest first."""

    lines: list[str]
    items: list[LogEntry]
    has_more: bool = msgspec.field(name="hasMore")


# --- requests to models ----------------------------------------------------------------------------------------------

Grouping = Literal["day", "month", "project", "model", "session", "verdict"]
Series = Literal["model", "project"]


class CostQuery(msgspec.Struct, frozen=True):
    """How to group requests to models, and over how many days."""

    by: Grouping = "day"
    days: Annotated[int, Meta(ge=1, le=3660)] = 30


class CostReport(RefiningState, frozen=True):
    """Requests to models and their cost by group, and the state of refining."""

    items: list[LedgerGroup]


class WorthQuery(msgspec.Struct, frozen=True):
    """The project, by name or id (all if it is left out), and the beginning of the period."""

    project: Name = ""
    project_id: Offset = 0
    since: Date | None = None


class DailyCostQuery(msgspec.Struct, frozen=True):
    """How to split the requests of each day, and how many days."""

    by: Series = "model"
    days: Annotated[int, Meta(ge=1, le=366)] = 30


class DailyCost(RefiningState, frozen=True):
    """Requests to models by day: all days of the period, and the usage on those that have any."""

    days: list[str]
    items: list[DailyUsage]


class LedgerQuery(msgspec.Struct, frozen=True):
    """A page of the ledger."""

    limit: PageSize = 20
    offset: Offset = 0
    project: str = ""


class CompressRequest(msgspec.Struct, frozen=True):
    """Which turn to preview, of a session or a transcript, and with which provider. 0: the last one."""

    session: Name = ""
    path: Path = ""
    turn: Annotated[int, Meta(ge=0, le=MAX_ID)] = 0
    provider: Name = ""
    dry_run: bool = False


SHOW_STATUS = Endpoint("GET", "/api/health", NoFields, WorkerStatus)
SHOW_HEALTH = Endpoint("GET", "/api/health/page", NoFields, HealthPage)
SHOW_READINESS = Endpoint("GET", "/api/readiness", NoFields, Readiness)
CHECK_BACKUP = Endpoint("POST", "/api/backup/check", BackupName, BackupCheck)
LIST_LEDGER = Endpoint("GET", "/api/ledger", LedgerQuery, Page[LedgerLine])
SHOW_COST = Endpoint("GET", "/api/cost", CostQuery, CostReport)
SHOW_DAILY_COST = Endpoint("GET", "/api/cost/days", DailyCostQuery, DailyCost)
SHOW_WORTH = Endpoint("GET", "/api/worth", WorthQuery, Worth)
COMPRESS = Endpoint("POST", "/api/compress", CompressRequest, TurnPreview)
SHOW_STATS = Endpoint("GET", "/api/stats", NoFields, Stats)
SHOW_LINE = Endpoint("GET", "/api/line", InFolder, LineCounts)
SHOW_INDEX = Endpoint("GET", "/api/index", NoFields, IndexProgress)
REINDEX = Endpoint("POST", "/api/reindex", NoFields, IndexProgress)
SHOW_QUEUE = Endpoint("GET", "/api/queue", NoFields, Queue)
RETRY_ALL = Endpoint("POST", "/api/queue/retry", NoFields, Retried)
DROP_JOB = Endpoint("DELETE", "/api/queue/{id}", ById, Dropped)
RETRY_JOB = Endpoint("POST", "/api/queue/{id}/retry", ById, Retried)
SHOW_LOG = Endpoint("GET", "/api/logs", LogQuery, LogPage)
