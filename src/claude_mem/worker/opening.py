"""Start a service on a database that may be damaged, restoring a backup first if it is."""

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

MOST, WITHIN_MS = 3, 3_600_000  # restoring more backups does not help on a failing disk
_alarms: deque[int] = deque(maxlen=MOST)  # times of reported damage that a full check did not confirm


def opened(config: Config) -> Service:
    """Open the service, repairing the database first if necessary. The caller must hold the lock."""
    stones.replace_key(config.data_dir)  # first: a restored database is verified with this key
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
            hint="the disk may be failing; move CLAUDE_MEM_DATA_DIR to another one. Events stay in the spool",
        )


def mend(config: Config, problem: str) -> None:
    """Set the damaged database aside and put a repaired one or a backup in its place."""
    # Count the repairs on disk, not those of this process: a hook would start another process.
    _check_frequency([result.ended_at for result in repair.listing(config.quarantine)], problem)
    log.error("the database is damaged and was set aside: %s", problem)
    result = repair.mend(ours(config.database), backups=config.backups, quarantine=config.quarantine, problem=problem)
    log.error("%s", repair.said(result))
    _record_repair(config, result)
    for start in config.starts.glob("*"):  # rendered from the damaged database; the worker writes them again
        start.unlink(missing_ok=True)


def _record_repair(config: Config, result: Repair) -> None:
    """Append the repair to the audit log. A failure is only logged, since the repair is done already."""
    facts: dict[str, Fact] = {"gone": result.gone, "backup": result.backup, "saved": result.taken, "lost": result.lost}
    try:
        AuditLog(config.data_dir).append("repaired", **facts)
    except (MemError, OSError) as problem:
        log.error("could not write to the audit log: repaired (%s)", problem)


def look_again(config: Config, problem: str) -> None:
    """Check the whole database after reported damage, and repair it if the damage is confirmed."""
    problems = examine.closely(ours(config.database))
    if problems:
        mend(config, problems[0])
    else:
        _check_frequency(_alarms, problem)
        _alarms.append(ids.now())
        log.error("damage was reported, but a full check found none: %s", problem)
