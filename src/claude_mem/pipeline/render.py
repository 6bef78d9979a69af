"""Writes each project's brief to disk, so that a session gets it even while no worker is running."""

from __future__ import annotations

import asyncio

from claude_mem import answers, hook
from claude_mem.config import Config
from claude_mem.failpoints import failpoint
from claude_mem.pipeline import context
from claude_mem.pipeline.stage import Commit, nothing
from claude_mem.projects import why_off
from claude_mem.records import Job
from claude_mem.spool import write_private
from claude_mem.store import projects
from claude_mem.store.database import Database


async def render(job: Job, *, db: Database, config: Config, icons: context.Icons) -> Commit:
    project_id, _, reason = job.subject.partition(".")
    await keep(int(project_id), db=db, config=config, icons=icons)
    if reason.startswith("moved."):
        await _drop_orphans(db, config)
    return nothing


async def _drop_orphans(db: Database, config: Config) -> None:
    """Delete the briefs of directories that no longer belong to any project because their repository was moved."""
    paths = await asyncio.to_thread(lambda: list(config.starts.glob("*.json")))
    names = {hook.start_name(folder) for folder in await db.read(projects.all_folders)}
    for path in paths:
        if path.name not in names:
            await asyncio.to_thread(path.unlink, missing_ok=True)


async def keep(project_id: int, *, db: Database, config: Config, icons: context.Icons) -> None:
    """Write a project's brief for each of its directories. Delete it where memory is switched off: the hook would still
    inject it."""
    memory = await db.read(context.gather, [project_id], limit=config.context_observations)
    folders = await db.read(projects.folders, project_id)
    failpoint("render.read")
    if memory is not None:
        text = context.render(memory, budget_tokens=config.context_tokens, icons=icons)
        answer = answers.answer("claude", "SessionStart", text)
        await asyncio.to_thread(_write, config, folders, answer)


def _write(config: Config, folders: list[str], answer: bytes) -> None:
    hook.make_private(str(config.starts))
    for folder in folders:
        path = config.starts / hook.start_name(folder)
        if why_off(folder, config.excluded_projects):
            path.unlink(missing_ok=True)
        else:
            write_private(path, answer)
        failpoint("render.written")
