"""Claim a job, run its stage, commit the result: one job at a time, until stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from claude_mem.domain import ids
from claude_mem.domain.errors import LeaseLost
from claude_mem.domain.records import Job, StreamEvent
from claude_mem.storage.base import Commit, Database, Stage, Transaction
from claude_mem.storage.files import is_transient_disk_error
from claude_mem.storage.journal_records import ClaimOrder
from claude_mem.system.failpoints import failpoint

log = logging.getLogger(__name__)

STAGE_SECONDS = 60  # that a stage may take, unless its runner allows more
POLL_SECONDS = 5.0
DISK_RETRY_SECONDS = 1.0
LOCKED_SECONDS = 0.2  # between attempts while the lock is held

Publish = Callable[[Sequence[StreamEvent]], Awaitable[None]]
Gate = Callable[[], Awaitable[None]]


class Runner:
    """Runs the jobs of certain kinds, one at a time, so that slow kinds do not delay others."""

    def __init__(
        self,
        db: Database,
        stages: Mapping[str, Stage],
        publish: Publish,
        *,
        seconds: float = STAGE_SECONDS,
        order: ClaimOrder = ClaimOrder.DUE,
        gate: Gate | None = None,
        lock: asyncio.Lock | None = None,
    ) -> None:
        self.db = db
        self.stages = stages
        self.publish = publish
        self.seconds = seconds
        self.order = order
        self.gate = gate  # awaited after each job, so that more urgent work goes first
        self.lock = lock or asyncio.Lock()  # held during each job, and by whatever must not run at the same time
        self.lease = int(2 * seconds * 1000)  # longer than any stage may take: a lease expires only if its worker died
        self.wake = asyncio.Event()
        self.busy = False
        self.job: Job | None = None  # the job that is running

    async def run(self, stop: asyncio.Event) -> None:
        """Run due jobs until `stop` is set; wait while none is due."""
        while not stop.is_set():
            self.wake.clear()  # before claiming: a wake-up between claim and wait must not be lost
            while not stop.is_set() and await self.step():
                self.busy = True
                if self.gate is not None:
                    await self.gate()
            self.busy = False
            await wait_any(self.wake, stop, seconds=await self._wait_seconds())

    async def _wait_seconds(self) -> float:
        """Return the seconds until the next job is due, at most `POLL_SECONDS`."""
        due = await self.db.read(lambda tx: tx.journal.get_next_due_time(list(self.stages)))
        return POLL_SECONDS if due is None else min(max((due - ids.now_ms()) / 1000, 0.01), POLL_SECONDS)

    async def step(self) -> bool:
        """Run one job. Return False if none was due."""
        if self.lock.locked():  # not awaited: it may be held for long, and a stop must not wait for it
            await asyncio.sleep(LOCKED_SECONDS)
            return False
        async with self.lock:
            return await self._step()

    async def _step(self) -> bool:
        kinds = list(self.stages)
        job = await self.db.write(
            lambda tx: tx.journal.claim_job(kinds, now=ids.now_ms(), lease=self.lease, order=self.order)
        )
        if job is None:
            return False
        failpoint("jobs.claimed")
        self.job = job
        try:
            async with asyncio.timeout(self.seconds):
                commit = await self.stages[job.kind](job)
            stream_events = await self.db.write(_finish, job, commit)
        except LeaseLost as lost:
            log.warning("%s", lost)
        except Exception as error:
            await (self._unclaim if is_transient_disk_error(error) else self._release)(job, error)
        else:
            await self.publish(stream_events)
        finally:
            self.job = None
        return True

    async def _unclaim(self, job: Job, error: Exception) -> None:
        """Undo the claim after a disk error, which is not the job's fault. Retry until that can be written."""
        log.error("%s %s could not be written: %s", job.kind, job.subject, error)
        while True:
            await asyncio.sleep(DISK_RETRY_SECONDS)
            try:
                return await self.db.write(lambda tx: tx.journal.unclaim_job(job, now=ids.now_ms()))
            except Exception as again:
                if not is_transient_disk_error(again):
                    raise

    async def _release(self, job: Job, error: Exception) -> None:
        """Schedule another attempt, or make the job a dead letter."""
        log.exception("%s %s failed, attempt %d", job.kind, job.subject, job.attempts)
        reason = f"{type(error).__name__}: {error}"
        if await self.db.write(lambda tx: tx.journal.release_failed_job(job, error=reason, now=ids.now_ms())):
            log.error("%s %s failed too often and is a dead letter now: %s", job.kind, job.subject, reason)


def _finish(tx: Transaction, job: Job, commit: Commit) -> Sequence[StreamEvent]:
    """Finish the job first: if its lease was lost, nothing is written."""
    tx.journal.finish_job(job)
    return commit(tx)


async def wait_any(*events: asyncio.Event, seconds: float) -> None:
    """Wait until one of the events is set or `seconds` have passed."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
