"""Opening a service over a database that may be damaged: then a backup is put in its place first."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

from claude_mem import ids
from claude_mem.auditlog import AuditLog, Fact
from claude_mem.config import Config
from claude_mem.errors import CannotDo, Damaged, MemError
from claude_mem.store import examine, repair, stones
from claude_mem.store.database import ours
from claude_mem.store.repair import Repair
from claude_mem.worker.service import Service

log = logging.getLogger(__name__)

MOST, WITHIN_MS = 3, 3_600_000  # a disk that damages everything is not mended by more backups
_alarms: deque[int] = deque(maxlen=MOST)  # that a close look did not confirm


def opened(config: Config) -> Service:
    """For the holder of the lock."""
    stones.replace_key(config.data_dir)  # first: what is put in place of a database must be what can be checked
    if repair.unfinished(config.quarantine):
        mend(config, "")
    try:
        return Service(config)
    except Damaged as problem:
        mend(config, str(problem))
        return Service(config)


def _check_frequency(times: Sequence[int], problem: str) -> None:
    if sum(ids.now() - at < WITHIN_MS for at in times) >= MOST:
        raise CannotDo(
            f"the database was damaged {MOST} times within an hour: {problem}",
            hint="the disk may be failing; move CLAUDE_MEM_DATA_DIR to another one. Events wait in the spool",
        )


def mend(config: Config, problem: str) -> None:
    # By what lies there, not by what this process has seen: a hook would start the next one.
    _check_frequency([result.ended_at for result in repair.listing(config.quarantine)], problem)
    log.error("the database is damaged and set aside: %s", problem)
    result = repair.mend(ours(config.database), backups=config.backups, quarantine=config.quarantine, problem=problem)
    log.error("%s", repair.said(result))
    _record_repair(config, result)
    for start in config.starts.glob("*"):  # of another state of the database; the worker writes them again
        start.unlink(missing_ok=True)


def _record_repair(config: Config, result: Repair) -> None:
    """On the audit log. It is done by then: what can't be noted is only complained about."""
    facts: dict[str, Fact] = {"gone": result.gone, "backup": result.backup, "saved": result.taken, "lost": result.lost}
    try:
        AuditLog(config.data_dir).append("repaired", **facts)
    except (MemError, OSError) as problem:
        log.error("not on the audit log: repaired (%s)", problem)


def look_again(config: Config, problem: str) -> None:
    """Something met damage, or thought so. What can't be confirmed is only noted."""
    problems = examine.closely(ours(config.database))
    if problems:
        mend(config, problems[0])
    else:
        _check_frequency(_alarms, problem)
        _alarms.append(ids.now())
        log.error("damage was met, and a close look finds none: %s", problem)
