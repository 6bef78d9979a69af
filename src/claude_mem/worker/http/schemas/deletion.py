"""Deletion by scope, scrubbing, self-checks and the audit log."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from claude_mem.domain.reports import AffectedSummary, DeletionProgress, Finding, Restored
from claude_mem.worker.http.endpoints import ById, Date, Endpoint, NoFields, Path, RowId, Wire

Text = Annotated[str, Wire(limit=400)]


class DeletionRequest(msgspec.Struct, frozen=True):
    """What to delete: conditions that are combined with AND. `now`: irreversibly and from every file."""

    ids: list[RowId] = []
    session: Text = ""
    project: Text = ""
    before: Date | None = None
    after: Date | None = None
    source: Path = ""
    matching: Path = ""
    now: bool = False


class DeletionPreview(AffectedSummary, frozen=True):
    """What a deletion would delete, and whether that is nothing."""

    empty: bool


class DeletionUndone(Restored, frozen=True):
    """What was restored of a deletion."""

    number: int


class ScrubRequest(msgspec.Struct, frozen=True):
    """`dry_run`: only count what would change."""

    dry_run: bool = False


class ScrubStatus(msgspec.Struct, frozen=True):
    """Progress of scrubbing: rows `changed` by table, and copies that were `kept` as they are, with the reason."""

    dry_run: bool
    started_at: int
    ended_at: int | None
    doing: str
    done: int
    total: int
    changed: dict[str, int]
    kept: list[str]
    error: str
    busy: bool


class SelfChecks(msgspec.Struct, frozen=True):
    """The results of all self-checks."""

    at: int
    ok: bool
    items: list[Finding]


class AuditLogQuery(msgspec.Struct, frozen=True):
    """How many of the last entries to show."""

    limit: Annotated[int, Meta(ge=0, le=100_000)] = 50


class AuditLog(msgspec.Struct, frozen=True):
    """The last entries of the audit log, the number of lines, and what is wrong with its hash chain."""

    items: list[dict[str, Any]]
    lines: int
    wrong: list[str]


PREVIEW_DELETION = Endpoint("POST", "/api/forget/preview", DeletionRequest, DeletionPreview)
START_DELETION = Endpoint("POST", "/api/forget", DeletionRequest, DeletionProgress)
SHOW_DELETION = Endpoint("GET", "/api/forget", NoFields, DeletionProgress)
UNDO_DELETION = Endpoint("POST", "/api/forget/{id}/undo", ById, DeletionUndone)
START_SCRUB = Endpoint("POST", "/api/scrub", ScrubRequest, ScrubStatus)
SHOW_SCRUB = Endpoint("GET", "/api/scrub", NoFields, ScrubStatus)
RUN_CHECKS = Endpoint("GET", "/api/audit", NoFields, SelfChecks)
SHOW_AUDIT_LOG = Endpoint("GET", "/api/audit/log", AuditLogQuery, AuditLog)
