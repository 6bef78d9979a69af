"""Start a service on a database that may be damaged, restoring a backup first if it is."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

from claude_mem.config import Config
from claude_mem.domain import ids
from claude_mem.domain.errors import ClaudeMemError, DatabaseDamaged, OperationFailed
from claude_mem.storage.files import DatabaseFiles, RepairRecord
from claude_mem.system.audit_log import AuditLog, AuditValue
from claude_mem.worker.app import Service

log = logging.getLogger(__name__)

MAX_REPAIRS, REPAIR_WINDOW_MS = 3, 3_600_000  # restoring more backups does not help on a failing disk
_alarms: deque[int] = deque(maxlen=MAX_REPAIRS)  # times of reported damage that a full check did not confirm


def open_service(config: Config) -> Service:
    """Open the service, repairing the database first if necessary. The caller must hold the lock."""
    files = DatabaseFiles(config)
    files.replace_lost_key()  # first: a restored database is verified with this key
    if files.find_unfinished_repair():
        repair_database(config, "")
    try:
        return Service(config)
    except DatabaseDamaged as problem:
        repair_database(config, str(problem))
        return Service(config)


def _check_frequency(times: Sequence[int], problem: str) -> None:
    if sum(ids.now_ms() - at < REPAIR_WINDOW_MS for at in times) >= MAX_REPAIRS:
        raise OperationFailed(
            f"the database was damaged {MAX_REPAIRS} times within an hour: {problem}",
            hint="the disk may be failing; move CLAUDE_MEM_DATA_DIR to another one. Events stay in the spool",
        )


def repair_database(config: Config, problem: str) -> None:
    """Set the damaged database aside and put a repaired one or a backup in its place."""
    files = DatabaseFiles(config)
    # Count the repairs on disk, not those of this process: a hook would start another process.
    _check_frequency([result.ended_at for result in files.list_repairs()], problem)
    log.error("the database is damaged and was set aside: %s", problem)
    result = files.repair(problem)
    log.error("%s", result.describe())
    _record_repair(config, result)
    for start in config.starts.glob("*"):  # rendered from the damaged database; the worker writes them again
        start.unlink(missing_ok=True)


def _record_repair(config: Config, result: RepairRecord) -> None:
    """Append the repair to the audit log. A failure is only logged, since the repair is done already."""
    facts: dict[str, AuditValue] = {
        "gone": result.was_missing,
        "backup": result.backup,
        "saved": result.salvaged,
        "lost": result.lost,
    }
    try:
        AuditLog(config.data_dir).append("repaired", **facts)
    except (ClaudeMemError, OSError) as problem:
        log.error("could not write to the audit log: repaired (%s)", problem)


def verify_damage(config: Config, problem: str) -> None:
    """Check the whole database after reported damage, and repair it if the damage is confirmed."""
    problems = DatabaseFiles(config).check_closed()
    if problems:
        repair_database(config, problems[0])
    else:
        _check_frequency(_alarms, problem)
        _alarms.append(ids.now_ms())
        log.error("damage was reported, but a full check found none: %s", problem)
