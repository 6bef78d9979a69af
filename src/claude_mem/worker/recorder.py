"""Append to the audit log, and store its latest hash in the database."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from pathlib import Path

from claude_mem.auditlog import AuditLog, Fact
from claude_mem.errors import MemError
from claude_mem.store import audit
from claude_mem.store.database import Database

log = logging.getLogger(__name__)


class Recorder:
    def __init__(self, db: Database, folder: Path) -> None:
        self.db = db
        self.log = AuditLog(folder, db.read_now(audit.head))

    async def record_request(self, body: bytes, **facts: Fact) -> None:
        """Record a request to a provider before it is sent. If this raises, it must not be sent."""
        await self._write("transfer", **facts, bytes=len(body), sha256=hashlib.sha256(body).hexdigest())

    async def record(self, action: str, **facts: Fact) -> None:
        """Record an operation that was carried out. A failure is only logged, since the operation is done already."""
        try:
            await self._write(action, **facts)
        except (MemError, OSError) as problem:
            log.error("could not write to the audit log: %s (%s)", action, problem)

    async def _write(self, action: str, **facts: Fact) -> None:
        head = await asyncio.to_thread(lambda: self.log.append(action, **facts))
        await self.db.write(audit.set_head, head)
