"""Claim, work, commit: one job at a time, until told to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from claude_mem import ids
from claude_mem.errors import LeaseLost
from claude_mem.failpoints import failpoint
from claude_mem.pipeline.stage import Commit, Stage
from claude_mem.records import Job, News
from claude_mem.store import damage, jobs
from claude_mem.store.database import Connection, Database
from claude_mem.store.jobs import Order

log = logging.getLogger(__name__)

STAGE_SECONDS = 60
POLL_SECONDS = 5.0
TROUBLE_SECONDS = 1.0
LOCKED_SECONDS = 0.2

Tell = Callable[[Sequence[News]], Awaitable[None]]
Gate = Callable[[], Awaitable[None]]


class Runner:
    """A lane: it claims jobs of its own kinds only, so that what is slow in one holds nothing up in another."""

    def __init__(
        self,
        db: Database,
        stages: Mapping[str, Stage],
        tell: Tell,
        *,
        seconds: float = STAGE_SECONDS,
        order: Order = Order.DUE,
        gate: Gate | None = None,
        lock: asyncio.Lock | None = None,
    ) -> None:
        self.db = db
        self.stages = stages
        self.tell = tell
        self.seconds = seconds
        self.order = order
        self.gate = gate  # what has to be waited for before each job: those who are in a hurry
        self.lock = lock or asyncio.Lock()  # held for each job: what must not happen at the same time holds it too
        self.lease = int(2 * seconds * 1000)  # longer than any stage may take: it only ends when its holder is dead
        self.wake = asyncio.Event()
        self.busy = False
        self.job: Job | None = None  # what it is at

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self.wake.clear()  # before looking: a wake-up between the look and the wait must not be lost
            while not stop.is_set() and await self.step():
                self.busy = True
                if self.gate is not None:
                    await self.gate()
            self.busy = False
            await wait_any(self.wake, stop, seconds=await self._patience())

    async def _patience(self) -> float:
        """Until the next job falls due, and not for long."""
        due = await self.db.read(jobs.next_due, list(self.stages))
        return POLL_SECONDS if due is None else min(max((due - ids.now()) / 1000, 0.01), POLL_SECONDS)

    async def step(self) -> bool:
        """Work on one job. False if there was none."""
        if self.lock.locked():  # not waited for: whoever holds it may take long, and a stop must not
            await asyncio.sleep(LOCKED_SECONDS)
            return False
        async with self.lock:
            return await self._step()

    async def _step(self) -> bool:
        kinds = list(self.stages)
        job = await self.db.write(jobs.claim, kinds, now=ids.now(), lease=self.lease, order=self.order)
        if job is None:
            return False
        failpoint("jobs.claimed")
        self.job = job
        try:
            async with asyncio.timeout(self.seconds):
                commit = await self.stages[job.kind](job)
            news = await self.db.write(_finish, job, commit)
        except LeaseLost as lost:
            log.warning("%s", lost)
        except Exception as error:
            await (self._put_back if damage.is_trouble(error) else self._give_back)(job, error)
        else:
            await self.tell(news)
        finally:
            self.job = None
        return True

    async def _put_back(self, job: Job, error: Exception) -> None:
        """The disk did not take the result, which is no fault of the job: it is as if it had not been claimed. That has
        to be written too, so it may take a while."""
        log.error("%s %s could not be written: %s", job.kind, job.subject, error)
        while True:
            await asyncio.sleep(TROUBLE_SECONDS)
            try:
                return await self.db.write(jobs.put_back, job, now=ids.now())
            except Exception as again:
                if not damage.is_trouble(again):
                    raise

    async def _give_back(self, job: Job, error: Exception) -> None:
        log.exception("%s %s failed, attempt %d", job.kind, job.subject, job.attempts)
        reason = f"{type(error).__name__}: {error}"
        if await self.db.write(jobs.give_back, job, error=reason, now=ids.now()):
            log.error("%s %s is given up: %s", job.kind, job.subject, reason)


def _finish(conn: Connection, job: Job, commit: Commit) -> Sequence[News]:
    """The job is done first: if it is no longer ours, nothing is written."""
    jobs.finish(conn, job)
    return commit(conn)


async def wait_any(*events: asyncio.Event, seconds: float) -> None:
    """Until one of them is set or the time is over: the wake-up is for speed, the time for truth."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
