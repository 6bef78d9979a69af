"""Turns spool files into event rows, and enqueues a job when a turn ends.

`read_spool_file` parses and cleans a file without using the database; `turns.record_batch` decides inside a
transaction what becomes of each event. Every event gets exactly one receipt: stored, filtered by a named rule, or set
aside.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from claude_mem.agents import payload
from claude_mem.capture.sanitize import clean_set_aside, filter_and_clean, skip_reason
from claude_mem.capture.turns import Accepted, IngestResult, Refused, record_batch
from claude_mem.config import Config
from claude_mem.domain import ids
from claude_mem.domain.errors import IgnoredEvent, UnreadableEvent
from claude_mem.domain.records import Receipt, StreamEvent
from claude_mem.storage.base import Database
from claude_mem.system.failpoints import failpoint
from claude_mem.system.project_folders import ResolvedProject, identify_project, project_from_name
from claude_mem.system.spool import Spool

log = logging.getLogger(__name__)

BATCH = 100


async def drain_spool(db: Database, spool: Spool, config: Config) -> tuple[int, list[StreamEvent]]:
    """Ingest the next batch of spool files in order of arrival: commit first, then remove the files.

    Return the number of files and the news to publish.
    """
    names = await asyncio.to_thread(spool.arrivals, BATCH)
    failpoint("drain.listed")
    if not names:
        return 0, []
    items = await asyncio.to_thread(_read_batch, spool, names, config)
    failpoint("drain.read")
    news, outcomes = await db.write(record_batch, items, now=ids.now_ms())
    failpoint("drain.committed")
    # After the commit: a crash in between only causes the files to be read a second time.
    await asyncio.to_thread(_remove_files, spool, names, outcomes, config)
    failpoint("drain.all_unlinked")
    return len(names), news


def _read_batch(spool: Spool, names: list[str], config: Config) -> list[IngestResult]:
    """Read a batch of spool files.

    The project of a directory is looked up once per batch: often enough to notice that memory was switched off, and
    rarely enough to be cheap.
    """
    resolve_once = cache(partial(identify_project, excluded=config.excluded_projects))
    return [_read_safely(spool, name, config, resolve_once) for name in names]


def _read_safely(
    spool: Spool, name: str, config: Config, resolve_project: Callable[[str], ResolvedProject]
) -> IngestResult:
    """Read one spool file; set it aside on any error, so that a bad file never blocks the next one."""
    try:
        return read_spool_file(spool, name, config, resolve_project)
    except RecursionError:
        return Refused(name, Receipt("set_aside", "too_deep"))
    except Exception:
        log.exception("spool file %s cannot be read; it is set aside", name)
        return Refused(name, Receipt("set_aside", "error"))


def _remove_files(spool: Spool, names: list[str], outcomes: list[Receipt], config: Config) -> None:
    """Delete the files of stored and filtered events; move the others to the set-aside directory, redacted."""
    for name, outcome in zip(names, outcomes, strict=True):
        if outcome.what == "set_aside":
            failpoint("drain.refused")
            spool.set_aside(name, clean=partial(clean_set_aside, config=config))
            failpoint("drain.put_aside")
        else:
            spool.remove(name)
            failpoint("drain.unlinked")


def read_spool_file(
    spool: Spool, name: str, config: Config, resolve_project: Callable[[str], ResolvedProject]
) -> IngestResult:
    """Return the file as a cleaned event, or the reason why it is not stored."""
    try:
        envelope = spool.load(name)
        event = payload.read_event(envelope)
    except IgnoredEvent:
        return Refused(name, Receipt("filtered", "noise"))
    except UnreadableEvent as problem:
        return Refused(name, Receipt("set_aside", problem.reason))
    if event.cwd and Path(event.cwd).is_relative_to(config.data_dir):  # our own sessions with a model run there
        return Refused(name, Receipt("filtered", "observer"))
    project = project_from_name(event.project) if event.project else resolve_project(event.cwd)
    if not project.enabled:
        return Refused(name, Receipt("filtered", "project_off"))
    cleaned_event = filter_and_clean(event, project, config)
    if cleaned_event is None:
        return Refused(name, Receipt("filtered", skip_reason(event.body, project, config)))
    return Accepted(cleaned_event, project, "api" if envelope.header.get("source") == "api" else "hook")
