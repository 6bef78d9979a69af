"""Limits of a node: how much one organisation may do at once, and how much memory request bodies may take.

Without the first, one organisation whose machines all come back on Monday morning would hold every connection to the
database. Both limits are per node.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from claude_mem.domain.errors import OperationFailed


class Overloaded(OperationFailed):
    """The request is refused for now. `reason` is a fixed word for the metrics."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message, hint="try again in a few seconds")
        self.reason = reason


@dataclass(slots=True)
class _Queue:
    turns: asyncio.Semaphore
    requests: int = 0


@dataclass(slots=True)
class Capacity:
    """The limits and what is in use of them."""

    running: int
    waiting: int
    body_bytes: int
    _queues: dict[UUID, _Queue] = field(default_factory=dict)

    @asynccontextmanager
    async def turn(self, org_id: UUID) -> AsyncIterator[None]:
        """Wait until the organisation may have another request worked on."""
        queue = self._queues.setdefault(org_id, _Queue(asyncio.Semaphore(self.running)))
        if queue.requests >= self.running + self.waiting:
            raise Overloaded("this organisation has too many requests at once", "organisation")
        queue.requests += 1
        try:
            async with queue.turns:
                yield
        finally:
            queue.requests -= 1
            if not queue.requests:
                self._queues.pop(org_id, None)

    @contextmanager
    def memory(self, size: int) -> Iterator[None]:
        """Reserve memory for a request body."""
        if size > self.body_bytes:
            raise Overloaded("the server has too many large requests at once", "memory")
        self.body_bytes -= size
        try:
            yield
        finally:
            self.body_bytes += size
