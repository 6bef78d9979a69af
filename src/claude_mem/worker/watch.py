"""Self-checks: the quick ones run at each sweep, all of them on request."""

from __future__ import annotations

import asyncio
import stat
from dataclasses import asdict
from pathlib import Path

from claude_mem import auditlog, ids
from claude_mem.config import Config
from claude_mem.spool import Spool
from claude_mem.store import audit
from claude_mem.store.audit import Finding
from claude_mem.store.database import Database, Row
from claude_mem.worker.recorder import Recorder


async def verified(db: Database, config: Config) -> tuple[int, list[str]]:
    """Verify the hash chain of the audit log. Return the number of lines and the problems."""
    head = await db.read(audit.head)  # first: lines appended in between only make the file longer
    return await asyncio.to_thread(auditlog.verify, config.data_dir, head)


async def thorough(db: Database, config: Config, spool: Spool) -> list[Finding]:
    quick = await db.read(audit.quick, in_spool=len(spool.pending()))
    count, problems = await verified(db, config)
    text = f"{count:,} lines, {'the chain is intact' if not problems else problems[0]}"
    chain = Finding("audit log", not problems, text, "the file was changed outside claude-mem" if problems else "")
    modes = await asyncio.to_thread(loose, config)
    return [*quick, *await db.read(audit.thorough), await db.write(audit.index), chain, modes]


def loose(config: Config) -> Finding:
    """Check that no other user can read or change the data directory."""
    paths = [path for path in (config.data_dir, *config.data_dir.rglob("*")) if _is_loose(path)]
    names = [str(path.relative_to(config.data_dir)) or "." for path in paths]
    examples = f": {', '.join(names[:3])}" if names else ""
    hint = f"chmod -R go= {config.data_dir}" if paths else ""
    return Finding("modes", not paths, f"{len(paths):,} files that other users can read{examples}", hint)


def _is_loose(path: Path) -> bool:
    try:
        info = path.lstat()
    except OSError:
        return False
    return not stat.S_ISLNK(info.st_mode) and bool(info.st_mode & 0o077)


class Watch:
    """Runs the quick checks at each sweep and keeps the last result."""

    def __init__(self, db: Database, spool: Spool, recorder: Recorder) -> None:
        self.db, self.spool, self.recorder = db, spool, recorder
        self.at = 0
        self.wrong: list[Finding] = []
        self._after = 0  # the last observation that was checked

    async def run(self) -> None:
        findings = await self.db.read(audit.quick, in_spool=len(self.spool.pending()))
        self._after, altered = await self.db.read(audit.altered, self._after)
        if altered:
            text = f"{len(altered):,} observations do not match their hash"
            findings.append(Finding("hashes", False, text, "run `claude-mem audit`"))
        self.wrong = [item for item in (*findings, *self._lost_lines()) if not item.ok]
        self.at = ids.now()

    def _lost_lines(self) -> list[Finding]:
        """Return a finding if the audit log file has disappeared."""
        path = self.recorder.log.path
        there = not self.recorder.log.head.n or path.exists()
        return (
            []
            if there
            else [Finding("audit log", False, f"{path.name} is missing", "the file was removed outside claude-mem")]
        )

    def as_row(self) -> Row:
        return {"at": self.at or None, "ok": not self.wrong, "wrong": [asdict(item) for item in self.wrong]}

    def line(self) -> str:
        """Return the result as one line for the user."""
        if not self.at:
            return "not checked yet"
        return "; ".join(f"{item.name}: {item.found}" for item in self.wrong) or "all periodic checks passed"
