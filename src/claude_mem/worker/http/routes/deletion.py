"""Routes for deletion by scope, for scrubbing stored secrets, and for the checks and the log that prove both."""

from __future__ import annotations

import asyncio
import dataclasses

from msgspec.structs import asdict

from claude_mem.curate.redaction import ScrubProgress
from claude_mem.domain import ids
from claude_mem.domain.reports import DeletionProgress
from claude_mem.maintain import audit
from claude_mem.storage.records import DeletionScope
from claude_mem.system import audit_log
from claude_mem.worker.app import Service
from claude_mem.worker.http.endpoints import ById, NoFields
from claude_mem.worker.http.route import AnyRoute, Route
from claude_mem.worker.http.schemas.deletion import (
    PREVIEW_DELETION,
    RUN_CHECKS,
    SHOW_AUDIT_LOG,
    SHOW_DELETION,
    SHOW_SCRUB,
    START_DELETION,
    START_SCRUB,
    UNDO_DELETION,
    AuditLog,
    AuditLogQuery,
    DeletionPreview,
    DeletionRequest,
    DeletionUndone,
    ScrubRequest,
    ScrubStatus,
    SelfChecks,
)

WAIT_SECONDS = 2.0  # that the response waits; most deletions are done by then


# --- deletion --------------------------------------------------------------------------------------------------------


async def preview_deletion(service: Service, request: DeletionRequest) -> DeletionPreview:
    """Preview a deletion: `{ids, session, project, before, after, source, matching, now}`, combined with AND →
    `{counts, first, made_again, empty}`."""
    scope = await _resolve_scope(service, request)
    summary, is_empty = await service.deletion_service.preview(scope, erase=request.now)
    return DeletionPreview(**asdict(summary), empty=is_empty)


async def start_deletion(service: Service, request: DeletionRequest) -> DeletionProgress:
    """Start a deletion, with the same body as the preview → `{number, busy, counts, undo_until, …}`. With `now` it is
    irreversible and covers every file; otherwise POST /api/forget/{number}/undo restores it within 30 days. GET shows
    the progress."""
    progress = service.deletion_service.start(await _resolve_scope(service, request), erase=request.now)
    assert service.deletion_service.task is not None
    await asyncio.wait({service.deletion_service.task}, timeout=WAIT_SECONDS)
    return progress


async def show_progress(service: Service, _: NoFields) -> DeletionProgress:
    """Progress or result of the last deletion."""
    return service.deletion_service.progress


async def undo_deletion(service: Service, request: ById) -> DeletionUndone:
    """Restore what the deletion with that number removed → `{number, counts}`."""
    return DeletionUndone(**asdict(await service.deletion_service.undo(request.id)), number=request.id)


async def _resolve_scope(service: Service, request: DeletionRequest) -> DeletionScope:
    return await service.db.read(
        lambda tx: tx.deletions.resolve_deletion_scope(
            session=request.session,
            project=request.project,
            source=request.source,
            matching=request.matching,
            ids=tuple(dict.fromkeys(request.ids)),
            before=request.before,
            after=request.after,
        )
    )


# --- scrubbing -------------------------------------------------------------------------------------------------------


async def start_scrub(service: Service, request: ScrubRequest) -> ScrubStatus:
    """Apply the current secret rules to everything stored: `{dry_run?}` → its progress. Only one runs at a time."""
    service.scrubber.start(dry_run=request.dry_run, after=service.runner.wake.set)
    return _scrub_status(service.scrubber.progress)


async def show_scrub(service: Service, _: NoFields) -> ScrubStatus:
    """Progress of scrubbing: `doing`, `done` of `total`, rows `changed` by table, `kept` copies, whether `busy`."""
    return _scrub_status(service.scrubber.progress)


def _scrub_status(progress: ScrubProgress) -> ScrubStatus:
    return ScrubStatus(**dataclasses.asdict(progress), busy=progress.busy)


# --- self-checks and audit log ---------------------------------------------------------------------------------------


async def run_checks(service: Service, _: NoFields) -> SelfChecks:
    """Run all self-checks now → `{ok, items: [{name, ok, found, hint}]}`."""
    findings = await audit.run_all_checks(service.db, service.config, service.spool)
    return SelfChecks(
        at=ids.now_ms(), ok=all(item.ok for item in findings), items=[item.as_finding() for item in findings]
    )


async def show_log(service: Service, request: AuditLogQuery) -> AuditLog:
    """The last `limit` entries of the audit log, and a check of its whole hash chain → `{items, lines, wrong}`."""
    folder = service.config.data_dir
    entries = await asyncio.to_thread(lambda: [line for _, line in audit_log.read_lines(folder) if line])
    count, wrong = await audit.verify_audit_log(service.db, service.config)
    return AuditLog(items=entries[-request.limit :] if request.limit else [], lines=count, wrong=wrong)


ROUTES: tuple[AnyRoute, ...] = (
    Route(PREVIEW_DELETION, preview_deletion),
    Route(START_DELETION, start_deletion),
    Route(SHOW_DELETION, show_progress),
    Route(UNDO_DELETION, undo_deletion),
    Route(START_SCRUB, start_scrub),
    Route(SHOW_SCRUB, show_scrub),
    Route(RUN_CHECKS, run_checks),
    Route(SHOW_AUDIT_LOG, show_log),
)
