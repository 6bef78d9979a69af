"""The audit log and the self-checks.

The latest hash of the audit log is stored in the database, so that a truncated log is noticed. The quick self-checks
run at each sweep, all of them on request.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import stat
from pathlib import Path

from claude_mem.config import Config
from claude_mem.domain import ids
from claude_mem.domain.errors import ClaudeMemError
from claude_mem.domain.reports import AuditState
from claude_mem.storage.base import Database
from claude_mem.storage.journal_records import CheckResult
from claude_mem.system import audit_log
from claude_mem.system.audit_log import AuditLog, AuditValue
from claude_mem.system.spool import Spool

log = logging.getLogger(__name__)


class AuditRecorder:
    """Appends to the audit log: names and numbers, never content."""

    def __init__(self, db: Database, folder: Path) -> None:
        self.db = db
        self.log = AuditLog(folder, db.read_now(lambda tx: tx.integrity.get_audit_head()))

    async def record_request(self, body: bytes, **facts: AuditValue) -> None:
        """Record a request to a provider before it is sent. If this raises, it must not be sent."""
        await self._write("transfer", **facts, bytes=len(body), sha256=hashlib.sha256(body).hexdigest())

    async def record(self, action: str, **facts: AuditValue) -> None:
        """Record an operation that was carried out. A failure is only logged, since the operation is done already."""
        try:
            await self._write(action, **facts)
        except (ClaudeMemError, OSError) as problem:
            log.error("could not write to the audit log: %s (%s)", action, problem)

    async def _write(self, action: str, **facts: AuditValue) -> None:
        head = await asyncio.to_thread(lambda: self.log.append(action, **facts))
        await self.db.write(lambda tx: tx.integrity.set_audit_head(head))


# --- self-checks -----------------------------------------------------------------------------------------------------


async def verify_audit_log(db: Database, config: Config) -> tuple[int, list[str]]:
    """Verify the hash chain of the audit log. Return the number of lines and the problems."""
    head = await db.read(
        lambda tx: tx.integrity.get_audit_head()
    )  # first: lines appended in between only make the file longer
    return await asyncio.to_thread(audit_log.verify_chain, config.data_dir, head)


async def run_all_checks(db: Database, config: Config, spool: Spool) -> list[CheckResult]:
    """Run all checks, which may take seconds, and return their results."""
    quick = await db.read(lambda tx: tx.integrity.run_quick_checks(in_spool=len(spool.pending())))
    count, problems = await verify_audit_log(db, config)
    text = f"{count:,} lines, {'the chain is intact' if not problems else problems[0]}"
    chain = CheckResult("audit log", not problems, text, "the file was changed outside claude-mem" if problems else "")
    modes = await asyncio.to_thread(check_file_modes, config)
    return [
        *quick,
        *await db.read(lambda tx: tx.integrity.run_thorough_checks()),
        await db.write(lambda tx: tx.integrity.check_full_text_index()),
        chain,
        modes,
    ]


def check_file_modes(config: Config) -> CheckResult:
    """Check that no other user can read or change the data directory."""
    paths = [path for path in (config.data_dir, *config.data_dir.rglob("*")) if _is_accessible_to_others(path)]
    names = [str(path.relative_to(config.data_dir)) or "." for path in paths]
    examples = f": {', '.join(names[:3])}" if names else ""
    hint = f"chmod -R go= {config.data_dir}" if paths else ""
    return CheckResult("modes", not paths, f"{len(paths):,} files that other users can read{examples}", hint)


def _is_accessible_to_others(path: Path) -> bool:
    try:
        info = path.lstat()
    except OSError:
        return False
    return not stat.S_ISLNK(info.st_mode) and bool(info.st_mode & 0o077)


class SelfCheck:
    """Runs the quick checks at each sweep and keeps the last result."""

    def __init__(self, db: Database, spool: Spool, recorder: AuditRecorder) -> None:
        self.db, self.spool, self.recorder = db, spool, recorder
        self.at = 0
        self.problems: list[CheckResult] = []
        self._after = 0  # the last observation that was checked

    async def run(self) -> None:
        """Run the quick checks, and verify the hashes of the next observations."""
        results = await self.db.read(lambda tx: tx.integrity.run_quick_checks(in_spool=len(self.spool.pending())))
        self._after, altered = await self.db.read(lambda tx: tx.integrity.find_altered_observations(self._after))
        if altered:
            text = f"{len(altered):,} observations do not match their hash"
            results.append(CheckResult("hashes", False, text, "run `claude-mem audit`"))
        self.problems = [item for item in (*results, *self._check_log_exists()) if not item.ok]
        self.at = ids.now_ms()

    def _check_log_exists(self) -> list[CheckResult]:
        """Return a failed check if the audit log file has disappeared."""
        path = self.recorder.log.path
        if not self.recorder.log.head.n or path.exists():
            return []
        return [CheckResult("audit log", False, f"{path.name} is missing", "the file was removed outside claude-mem")]

    def state(self) -> AuditState:
        """Return the last result for the API."""
        wrong = [item.as_finding() for item in self.problems]
        return AuditState(at=self.at or None, ok=not self.problems, wrong=wrong)

    def line(self) -> str:
        """Return the result as one line for the user."""
        if not self.at:
            return "not checked yet"
        return "; ".join(f"{item.name}: {item.detail}" for item in self.problems) or "all periodic checks passed"
