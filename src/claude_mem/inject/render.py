"""Write each project's brief to disk, so that a session gets it even while no worker is running."""

from __future__ import annotations

import asyncio

from claude_mem import answers, hook
from claude_mem.config import Config
from claude_mem.digest import modes
from claude_mem.domain.records import Job
from claude_mem.inject import brief, freshness
from claude_mem.storage.base import Commit, Database, write_nothing
from claude_mem.system.failpoints import failpoint
from claude_mem.system.project_folders import disabled_reason
from claude_mem.system.spool import write_private


async def render(job: Job, *, db: Database, config: Config, icons: modes.Icons) -> Commit:
    """Run one render job: write the briefs of its project."""
    project_id, _, reason = job.subject.partition(".")
    await write_briefs(int(project_id), db=db, config=config, icons=icons)
    if reason.startswith("moved."):
        await _drop_orphans(db, config)
    return write_nothing


async def _drop_orphans(db: Database, config: Config) -> None:
    """Delete the briefs of directories that no longer belong to any project because their repository was moved."""
    paths = await asyncio.to_thread(lambda: list(config.starts.glob("*.json")))
    names = {hook.brief_filename(folder) for folder in await db.read(lambda tx: tx.memory.list_all_folders())}
    for path in paths:
        if path.name not in names:
            await asyncio.to_thread(path.unlink, missing_ok=True)


async def write_briefs(project_id: int, *, db: Database, config: Config, icons: modes.Icons) -> None:
    """Write a project's brief for each of its directories.

    Delete it where memory is switched off: the hook would still inject it.
    """
    project = await db.read(lambda tx: tx.memory.find_project(project_id))
    if project is not None:
        await freshness.refresh_project(db, project_id, project.root or "")
    memory = await db.read(brief.gather_memory, [project_id], limit=config.context_observations)
    folders = await db.read(lambda tx: tx.memory.list_project_folders(project_id))
    failpoint("render.read")
    if memory is not None:
        text = brief.render_brief(memory, budget_tokens=config.context_tokens, icons=icons)
        answer = answers.compose_answer("claude", "SessionStart", text)
        await asyncio.to_thread(_write, config, folders, answer)


def _write(config: Config, folders: list[str], answer: bytes) -> None:
    hook.make_private_dir(str(config.starts))
    for folder in folders:
        path = config.starts / hook.brief_filename(folder)
        if disabled_reason(folder, config.excluded_projects):
            path.unlink(missing_ok=True)
        else:
            write_private(path, answer)
        failpoint("render.written")
