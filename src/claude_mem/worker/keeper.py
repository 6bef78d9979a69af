"""Keeps what is there: seals rows, looks for damage, makes backups and proves them, lets go of what is past keeping.

Everything in small steps, when nobody waits for anything, and by a clock that can be given: `step(now=…)`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from claude_mem import ids
from claude_mem.config import Config
from claude_mem.errors import MemError
from claude_mem.spool import Spool, changed_at
from claude_mem.store import backup, checks, examine, jobs, notices, repair, retention, seals, search
from claude_mem.store.backup import Copy
from claude_mem.store.database import Connection, Database, rows, value
from claude_mem.worker import oldlogs, room
from claude_mem.worker.room import Ballast, Missed

log = logging.getLogger(__name__)

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
POLL_SECONDS = 5.0
REST_SECONDS = 0.01
SEALS_AT_ONCE = 300
START_SECONDS = 20.0  # that long the look at the start may take
SETTLED_MS = 10 * MINUTE  # a worker that has run so long stays: time for what is heavy
BACKUP_MS = 23 * HOUR  # so that none is older than a day when the next one has been proven
NEARLY_FULL = 200 << 20
QUOTA_AGAIN = 0.95  # of the quota: so far down it goes when it is exceeded
MOST_STEPS = 200  # of one thing in a row


@dataclass(slots=True)
class Done:
    """When each thing was last done, in this life."""

    retention: int = 0
    quota: int = 0
    backup_failed: int = 0


class Keeper:
    """`found` is told of damage; `stopping` says whether to leave off."""

    def __init__(
        self,
        db: Database,
        config: Config,
        spool: Spool,
        *,
        found: Callable[[str], None],
        stopping: Callable[[], bool],
        started_at: int,
    ) -> None:
        self.db = db
        self.config = config
        self.spool = spool
        self.found = found
        self.stopping = stopping
        self.started_at = started_at
        self.copying = asyncio.Lock()  # whoever erases from copies must not miss one that is being made
        self.ballast = Ballast(config.ballast)
        self.missed = Missed(config.data_dir / "missed")
        self.done = Done()

    async def start(self) -> None:
        """Right after the opening, beside everything else: a quick look that says whether there is gross damage."""
        deadline = time.monotonic() + START_SECONDS
        try:
            problems = await asyncio.to_thread(
                examine.start, self.db.path, halted=lambda: self.stopping() or time.monotonic() > deadline
            )
        except examine.Hurried:
            return  # the full check will see to it
        await self._judge("start", problems, ids.now())
        if not problems:
            await self._check_index(ids.now())

    async def step(self, *, now: int) -> None:
        """Whatever is due."""
        await self.seal()
        await self._tell_missed(now)
        if now - self.started_at >= MINUTE:
            await asyncio.to_thread(self.ballast.make)
        if now - self.done.retention >= (HOUR if self.config.keep_events_days else 0):
            self.done.retention = now
            await self.retain(now=now)
        if now - self.started_at < SETTLED_MS or not await self.is_idle():
            return
        if now - self.done.quota >= HOUR:
            self.done.quota = now
            await self.keep_to_quota(now=now)
        if await self._is_due("full", now):
            await self.check(now=now)
        if await self.backup_is_due(now):
            await self.back_up(now=now)
        await self.prove(now=now)

    async def _tell_missed(self, now: int) -> None:
        self.missed.make()
        if count := self.missed.take():
            log.error("%d events could not be written by the hooks", count)
            text = (
                f"claude-mem could not keep {count:,} events: nothing could be written to the disk. What the"
                " transcripts have of them is read from there."
            )
            await self.db.write(notices.put, f"missed:{now}", text, now=now)

    async def is_idle(self) -> bool:
        return not self.spool.pending(1) and not await self.db.read(jobs.waiting)

    async def _is_due(self, name: str, now: int) -> bool:
        last = await self.db.read(checks.get, name)
        return last is None or now - last["at"] >= DAY

    # --- damage ----------------------------------------------------------------------------------------------

    async def seal(self) -> int:
        """Put a seal on every row that waits for one."""
        sealed = 0
        while not self.stopping() and (some := await self.db.read(seals.is_waiting)):
            sealed += await self.db.write(seals.seal, limit=SEALS_AT_ONCE) if some else 0
            await asyncio.sleep(REST_SECONDS)
        return sealed

    async def check(self, *, now: int) -> list[str]:
        """Everything: each page, reference, row and word."""
        try:
            problems = await asyncio.to_thread(examine.full, self.db.path, halted=self.stopping)
        except examine.Hurried:
            return []
        await self._judge("full", problems, now)
        if not problems:
            await self._check_index(now)
            await self._note_stray(await asyncio.to_thread(examine.stray, self.db.path), now)
        return problems

    async def _note_stray(self, pages: int, now: int) -> None:
        text = f"{pages} stray bits in unused space: nothing is lost, but the disk may be failing" if pages else ""
        await self.db.write(checks.note, "stray", ok=not pages, text=text, now=now)

    async def _judge(self, name: str, problems: list[str], now: int) -> None:
        if problems:
            log.error("the database is damaged: %s", "; ".join(problems))
            self.found(problems[0])  # whoever opens it next puts a backup in its place
            return
        await self.db.write(checks.note, name, ok=True, now=now)

    async def _check_index(self, now: int) -> None:
        """It is derived: if it is wrong it is made again, and nothing was lost."""
        waits = self.spool.pending
        try:
            right = await self.db.write(examine.index, lambda: self.stopping() or bool(waits(1)))
        except examine.Hurried:
            return
        if not right:
            log.error("the index of words was damaged and is made again")
            await self.db.write(_mend_index, now=now)

    # --- backups ---------------------------------------------------------------------------------------------

    async def backup_is_due(self, now: int) -> bool:
        """A day has passed since the last good one, and something has happened since."""
        if now - self.done.backup_failed < HOUR:
            return False
        last = await self.db.read(checks.get, "backup")
        if (
            last is not None
            and last["ok"]
            and (now - last["at"] < BACKUP_MS or last["text"] == await self.db.read(_state))
        ):
            return False
        return bool(await self.db.read(_state))

    async def back_up(self, *, now: int) -> str:
        """Make one, prove it, and let go of those that are too many. What was wrong, if anything was."""
        state, needed = await self.db.read(_state), 2 * self.db.path.stat().st_size + NEARLY_FULL
        if room.free(self.config.data_dir) < needed:
            problem = "there is no room for a backup"
        else:
            async with self.copying:
                problem = await asyncio.to_thread(self._make_and_prove, now)
        if problem:
            self.done.backup_failed = now
            if self.stopping():
                return problem
            log.error("the backup failed: %s", problem)
            text = f"claude-mem could not make its daily backup: {problem}. `claude-mem doctor` says more."
            await self.db.write(notices.put, "backup:failed", text, now=now)
        else:
            await self.db.write(notices.clear, "backup:")
        await self.db.write(checks.note, "backup", ok=not problem, text=problem or state, now=now)
        await self.rotate()
        return problem

    def _make_and_prove(self, now: int) -> str:
        try:
            made = backup.make(self.db.path, self.config.backups, prefix=backup.DAILY, now=now)
        except (MemError, OSError) as error:
            return str(error)
        problem = backup.drill(made, self.config.backups, halted=self.stopping)
        if problem:  # it is no backup
            Path(made.path).unlink(missing_ok=True)
            return f"it did not stand the drill: {problem}"
        self.db.write_now(checks.note, f"{checks.DRILL}{Path(made.path).name}", ok=True, text=_counted(made), now=now)
        return ""

    async def prove(self, *, now: int) -> None:
        """The copies that were made otherwise, each once: before a migration, by hand, or by one that was killed."""
        drilled = await self.db.read(checks.drills)
        for path in await asyncio.to_thread(backup.unproven, self.config.backups, drilled=drilled):
            if room.free(self.config.data_dir) < 2 * path.stat().st_size + NEARLY_FULL:
                return
            async with self.copying:
                problem = await asyncio.to_thread(backup.prove, path, self.config.backups, halted=self.stopping)
            if self.stopping():
                return
            await self.db.write(checks.note, f"{checks.DRILL}{path.name}", ok=not problem, text=problem, now=now)
            if problem:
                log.error("the backup %s can't be restored: %s", path.name, problem)
                text = (
                    f"claude-mem's backup {path.name} can't be restored: {problem}. `claude-mem backup` makes another."
                )
                await self.db.write(notices.put, f"drill:{path.name}", text, now=now)

    async def rotate(self) -> list[str]:
        good = await self.db.read(checks.proven)
        pinned = await asyncio.to_thread(repair.pinned, self.config.quarantine)
        extra = await asyncio.to_thread(backup.superfluous, self.config.backups, good=good, pinned=pinned)
        return [await self._drop_backup(path) for path in extra]

    async def _drop_backup(self, path: Path) -> str:
        path.unlink(missing_ok=True)
        await self.db.write(checks.drop, f"{checks.DRILL}{path.name}")
        log.info("the backup %s was let go", path.name)
        return path.name

    # --- retention -------------------------------------------------------------------------------------------

    async def retain(self, *, now: int) -> None:
        """Let go of what is past keeping: events, dead letters, the log's old lines."""
        config = self.config
        events, dead = now - config.keep_events_days * DAY, now - config.keep_dead_days * DAY
        await self._repeat(retention.fade, before=events, anyway=min(dead, events))
        await self._repeat(retention.fade_loose, before=events)
        await self.db.write(retention.drop_dead, before=dead, now=now)
        await self._expire(dead)
        await asyncio.to_thread(oldlogs.trim, config.log_file.parent, before=now - config.keep_log_days * DAY)

    async def _repeat(self, fn: Callable[..., int], **how: int) -> int:
        total = 0
        for _ in range(MOST_STEPS):
            gone = await self.db.write(fn, **how)
            total += gone
            if not gone or self.stopping():
                break
            await asyncio.sleep(REST_SECONDS)
        return total

    async def _expire(self, before: int) -> None:
        while True:
            gone, names = await self.db.write(retention.compact, before=before)
            for name in names:
                (self.spool.aside / name).unlink(missing_ok=True)
            if not gone or self.stopping():
                break
        for path in self.spool.aside.iterdir():  # what is left of one that was killed between the two
            when = ids.at(path.name) or int(changed_at(path) * 1000)
            if when < before and not path.is_dir() and not await self.db.read(_has_receipt, path.name):
                path.unlink(missing_ok=True)

    # --- the quota -------------------------------------------------------------------------------------------

    def used(self) -> int:
        """All that we take, but for the models a person has fetched and the exports a person has made."""
        return room.used(self.config.data_dir, but=("models", "exports", "ballast"))

    async def keep_to_quota(self, *, now: int) -> None:
        quota = self.config.disk_quota_mb << 20
        if await asyncio.to_thread(self.used) <= quota:
            await self.db.write(notices.clear, "quota:")
            return
        target = int(quota * QUOTA_AGAIN)
        gone = await self._fade_down_to(target, now)
        dropped = await self._drop_backups_down_to(target)
        used = await asyncio.to_thread(self.used)
        log.warning("above the quota: %d turns' events and %d backups went, %d MB are left", gone, dropped, used >> 20)
        over = f" It still takes {used >> 20:,} MB; memories are never removed." if used > quota else ""
        text = (
            f"claude-mem took more than its quota of {self.config.disk_quota_mb:,} MB: the oldest raw events"
            f" ({gone:,} turns) and {dropped:,} backups were removed.{over} `disk_quota_mb` sets the quota."
        )
        await self.db.write(notices.put, "quota:exceeded", text, now=now)

    async def _fade_down_to(self, target: int, now: int) -> int:
        """The oldest first. The file only shrinks when it is packed."""
        gone, free = 0, 0
        while not self.stopping() and await asyncio.to_thread(self.used) - free > target:
            some = await self.db.write(retention.fade, before=now, anyway=now)
            gone += some
            free = await self.db.read(_free_bytes)
            if not some:
                break
        if gone:
            await self.db.pack()
        return gone

    async def _drop_backups_down_to(self, target: int) -> int:
        good, dropped = await self.db.read(checks.proven), 0
        pinned = await asyncio.to_thread(repair.pinned, self.config.quarantine)
        for path in await asyncio.to_thread(backup.expendable, self.config.backups, good=good, pinned=pinned):
            if await asyncio.to_thread(self.used) <= target:
                break
            await self._drop_backup(path)
            dropped += 1
        return dropped


def _mend_index(conn: Connection, *, now: int) -> None:
    search.rebuild(conn)
    checks.note(conn, "index", ok=False, text="the index of words was damaged and was made again", now=now)


def _has_receipt(conn: Connection, name: str) -> bool:
    return bool(value(conn, "select 1 from receipts where event_id = ?", (name,)))


def _state(conn: Connection) -> str:
    """Changes with everything that is added, and with every correction; '' if there is nothing yet."""
    found = rows(conn, "select name, seq from sqlite_sequence where name not in ('jobs', 'tellings') order by name")
    return " ".join(f"{row['name']}:{row['seq']}" for row in found)


def _free_bytes(conn: Connection) -> int:
    return int(conn.pragma("freelist_count")) * int(conn.pragma("page_size"))


def _counted(made: Copy) -> str:
    return ", ".join(f"{n} {name}" for name, n in made.counts.items() if n)
