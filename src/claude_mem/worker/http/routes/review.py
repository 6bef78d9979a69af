"""Routes of the review: the memories whose code has changed, or that a later one contradicts, and a person's word."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec

from claude_mem.agents import claude
from claude_mem.curate import instruction_files
from claude_mem.curate.instruction_files import Report
from claude_mem.domain import ids
from claude_mem.domain.errors import InvalidRequest
from claude_mem.domain.memory_items import MemoryItem
from claude_mem.domain.validity import TO_REVIEW
from claude_mem.inject import freshness
from claude_mem.system import project_folders
from claude_mem.worker.app import Service
from claude_mem.worker.http.endpoints import ById
from claude_mem.worker.http.route import AnyRoute, Caller, Route
from claude_mem.worker.http.schemas.review import (
    KEEP,
    LIST_CHANGED,
    LOOK_AGAIN,
    REVIEW_INSTRUCTIONS,
    WITHDRAW_KEEP,
    InstructionReview,
    LookedAgain,
    OutdatedStatement,
    ReviewedProject,
    ReviewPage,
    ReviewQuery,
)


async def list_changed(service: Service, request: ReviewQuery) -> ReviewPage:
    """What changed under the memories, newest first: `limit` (1–100), `offset`, `project`, `project_id` or `cwd`,
    `validity` (default: superseded, outdated, gone; `changed`: all that changed) → `{items, counts, hasMore, offset,
    limit}`. An item is an observation with its `successor`, and when the change was seen at which commit (`head`)."""
    limit, offset = request.limit, request.offset
    project_ids = await _find_projects(service, request)
    validities = request.validity or TO_REVIEW
    rows = await service.db.read(
        lambda tx: tx.memory.list_changed_observations(project_ids, validities, limit=limit + 1, offset=offset)
    )
    counts = await service.db.read(lambda tx: tx.memory.count_changed_observations(project_ids))
    return ReviewPage(items=rows[:limit], counts=counts, has_more=len(rows) > limit, offset=offset, limit=limit)


async def look_again(service: Service, request: ReviewedProject) -> LookedAgain:
    """Look at the code that a project's memories speak of: `{project}`, `{project_id}` or `{cwd}` → `{changed}`."""
    project_ids = await _find_projects(service, request)
    if project_ids is None:
        raise InvalidRequest("`project`, `project_id` or `cwd` is missing", hint="look at one project at a time")
    changed = 0
    for project_id in project_ids:
        project = await service.db.read(lambda tx, project_id: tx.memory.get_project(project_id), project_id)
        changed += await freshness.refresh_project(service.db, project_id, project.root or "")
    return LookedAgain(changed)


async def review_instructions(service: Service, request: ReviewedProject) -> InstructionReview:
    """Lines of a project's instruction files (CLAUDE.md, AGENTS.md …) that name what a commit has removed since:
    `project`, `project_id` or `cwd` → `{files, statements, items}`. The files are only read."""
    project_ids = await _find_projects(service, request)
    if project_ids is None:
        raise InvalidRequest("`project`, `project_id` or `cwd` is missing", hint="check one project at a time")
    reports = [await _check_instructions(service, project_id) for project_id in project_ids]
    rows = [instruction_files.as_row(finding) for report in reports for finding in report.findings]
    return InstructionReview(
        files=[file.name for report in reports for file in report.files],
        statements=sum(report.statements for report in reports),
        items=msgspec.convert(rows, list[OutdatedStatement]),
    )


async def _check_instructions(service: Service, project_id: int) -> Report:
    root = (await service.db.read(lambda tx: tx.memory.get_project(project_id))).root or ""
    folder = await project_folders.identify_project_in_thread(root, excluded=service.config.excluded_projects)
    if not root or not folder.enabled:
        return Report()
    agent_folder = claude.config_dir(os.environ)
    return await asyncio.to_thread(instruction_files.check, Path(root), agent_folder=agent_folder)


async def _find_projects(service: Service, request: ReviewedProject) -> list[int] | None:
    """Return the projects of a request; None if it names none."""
    if request.project_id:
        return [request.project_id]
    if request.project:
        return await service.db.read(lambda tx: tx.memory.list_project_ids_by_name(request.project))
    if not request.cwd:
        return None
    folder = await project_folders.identify_project_in_thread(request.cwd, excluded=service.config.excluded_projects)
    project_id = await service.db.read(lambda tx: tx.memory.find_project_id(folder))
    return [project_id] if project_id else []


async def keep(service: Service, request: ById, caller: Caller) -> MemoryItem:
    """Record that a person says that a memory holds: it is injected again until its code changes again, and nothing
    supersedes it."""
    caller.require_user()
    before = await service.db.read(lambda tx: tx.memory.get_memory("observation", request.id))
    project = await service.db.read(lambda tx: tx.memory.get_project(before["project_id"]))
    # What is confirmed is the code as it is now; of a superseded observation it was not looked at any more.
    await freshness.refresh_observations(service.db, project.id, project.root or "", [request.id])
    row = await service.db.write(lambda tx: tx.memory.confirm_observation(request.id, now=ids.now_ms()))
    return await _publish(service, row, "kept")


async def withdraw_keep(service: Service, request: ById, caller: Caller) -> MemoryItem:
    """Take back that a person said that a memory holds."""
    caller.require_user()
    row = await service.db.write(lambda tx: tx.memory.withdraw_confirmation(request.id, now=ids.now_ms()))
    return await _publish(service, row, "not kept")


async def _publish(service: Service, row: MemoryItem, verdict: str) -> MemoryItem:
    await service.recorder.record("judged", kind="observation", id=row["id"], verdict=verdict)
    await service.publish_correction(row["project_id"], row_id=row["id"])
    return row


ROUTES: tuple[AnyRoute, ...] = (
    Route(LIST_CHANGED, list_changed),
    Route(LOOK_AGAIN, look_again),
    Route(REVIEW_INSTRUCTIONS, review_instructions),
    Route(KEEP, keep),
    Route(WITHDRAW_KEEP, withdraw_keep),
)
