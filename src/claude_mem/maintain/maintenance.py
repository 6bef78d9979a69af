"""Maintenance: store checksums, look for damage, make and test backups, apply retention and the disk quota.

The work is done in small steps while the worker is idle. Time is passed in (`step(now=…)`), so that tests control it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from claude_mem.config import Config
from claude_mem.domain import ids
from claude_mem.domain.errors import ClaudeMemError
from claude_mem.storage.base import Database, Transaction
from claude_mem.storage.files import DatabaseFiles
from claude_mem.storage.journal_records import DRILL_PREFIX
from claude_mem.storage.records import CheckInterrupted
from claude_mem.system import disk
from claude_mem.system.disk import DroppedEventCounter, ReserveFile
from claude_mem.system.spool import Spool, modified_at

log = logging.getLogger(__name__)

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
MAINTENANCE_POLL_SECONDS = 5.0
PAUSE_SECONDS = 0.01
CHECKSUM_BATCH = 300
QUICK_CHECK_SECONDS = 20.0  # time limit of the quick check at start
HEAVY_WORK_AFTER_MS = 10 * MINUTE  # that the worker must have run before heavy work: many workers live only shortly
BACKUP_INTERVAL_MS = 23 * HOUR  # leaves an hour to make and test the next backup within a day
SPARE_BYTES = 200 << 20
QUOTA_TARGET = 0.95  # the fraction of the quota to which usage is reduced after it was exceeded
MAX_BATCHES = 200  # of one kind of work in a row


@dataclass(slots=True)
class LastRun:
    """When each kind of work was last done by this process."""

    retention: int = 0
    quota: int = 0
    backup_failed: int = 0


class Maintenance:
    """Runs the maintenance work. `on_damage` is called with the first problem found; `stopping` says when to end."""

    def __init__(
        self,
        db: Database,
        config: Config,
        spool: Spool,
        files: DatabaseFiles,
        *,
        on_damage: Callable[[str], None],
        stopping: Callable[[], bool],
        started_at: int,
    ) -> None:
        self.db = db
        self.config = config
        self.spool = spool
        self.files = files
        self.on_damage = on_damage
        self.stopping = stopping
        self.started_at = started_at
        self.copy_lock = asyncio.Lock()  # an erasure takes it too, so as not to miss a copy being made
        self.reserve_file = ReserveFile(config.ballast)
        self.dropped_events = DroppedEventCounter(config.data_dir / "missed")
        self.last_run = LastRun()

    async def start(self) -> None:
        """Check the database for gross damage right after it was opened, while the worker is already in use."""
        deadline = time.monotonic() + QUICK_CHECK_SECONDS
        try:
            problems = await asyncio.to_thread(
                self.files.quick_check,
                should_stop=lambda: self.stopping() or time.monotonic() > deadline,
            )
        except CheckInterrupted:
            return  # the daily full check follows
        await self._report_problems("start", problems, ids.now_ms())
        if not problems:
            await self._check_index(ids.now_ms())

    async def step(self, *, now: int) -> None:
        """Do all work that is due."""
        await self.store_checksums()
        await self._report_dropped_events(now)
        if now - self.started_at >= MINUTE:
            await asyncio.to_thread(self.reserve_file.make)
        if now - self.last_run.retention >= (HOUR if self.config.keep_events_days else 0):
            self.last_run.retention = now
            await self.apply_retention(now=now)
        if now - self.started_at < HEAVY_WORK_AFTER_MS or not await self.is_idle():
            return
        if now - self.last_run.quota >= HOUR:
            self.last_run.quota = now
            await self.enforce_quota(now=now)
        if await self._is_due("full", now):
            await self.check_database(now=now)
        if await self.backup_is_due(now):
            await self.back_up(now=now)
        await self.verify_backups(now=now)

    async def _report_dropped_events(self, now: int) -> None:
        self.dropped_events.make()
        if count := self.dropped_events.take():
            log.error("the hooks could not write %d events", count)
            text = (
                f"claude-mem could not store {count:,} events because the disk could not be written to. Events that are"
                " in the transcripts are read from there."
            )
            await self.db.write(lambda tx: tx.journal.add_notice(f"missed:{now}", text, now=now))

    async def is_idle(self) -> bool:
        """Return whether neither spooled events nor urgent jobs wait."""
        return not self.spool.pending(1) and not await self.db.read(lambda tx: tx.journal.count_urgent_jobs())

    async def _is_due(self, name: str, now: int) -> bool:
        last = await self.db.read(lambda tx: tx.journal.find_check(name))
        return last is None or now - last.at >= DAY

    # --- damage ----------------------------------------------------------------------------------------------

    async def store_checksums(self) -> int:
        """Store a checksum for every queued row. Return their number."""
        checksum_count = 0
        while not self.stopping() and await self.db.read(lambda tx: tx.integrity.has_queued_checksums()):
            checksum_count += await self.db.write(lambda tx: tx.integrity.store_checksums(limit=CHECKSUM_BATCH))
            await asyncio.sleep(PAUSE_SECONDS)
        return checksum_count

    async def check_database(self, *, now: int) -> list[str]:
        """Check every page, reference, row and index entry. Return the problems."""
        try:
            problems = await asyncio.to_thread(self.files.check, should_stop=self.stopping)
        except CheckInterrupted:
            return []
        await self._report_problems("full", problems, now)
        if not problems:
            await self._check_index(now)
            await self._record_stray_bits(await asyncio.to_thread(self.files.count_stray_bits), now)
        return problems

    async def _record_stray_bits(self, bit_count: int, now: int) -> None:
        text = f"{bit_count} flipped bits in unused space: nothing is lost, but the disk may be failing"
        await self.db.write(
            lambda tx: tx.journal.record_check("stray", ok=not bit_count, text=text if bit_count else "", now=now)
        )

    async def _report_problems(self, name: str, problems: list[str], now: int) -> None:
        if problems:
            log.error("the database is damaged: %s", "; ".join(problems))
            self.on_damage(problems[0])  # the next opening replaces the database by a backup
            return
        await self.db.write(lambda tx: tx.journal.record_check(name, ok=True, now=now))

    async def _check_index(self, now: int) -> None:
        """Check the word index. It is derived data: if it is damaged it is rebuilt, and nothing is lost."""
        try:
            is_intact = await self.db.write(
                lambda tx: tx.integrity.is_index_intact(lambda: self.stopping() or bool(self.spool.pending(1)))
            )
        except CheckInterrupted:
            return
        if not is_intact:
            log.error("the word index was damaged and is rebuilt")
            await self.db.write(_rebuild_index, now=now)

    # --- backups ---------------------------------------------------------------------------------------------

    async def backup_is_due(self, now: int) -> bool:
        """Return whether the last good backup is a day old and the content has changed since."""
        if now - self.last_run.backup_failed < HOUR:
            return False
        last = await self.db.read(lambda tx: tx.journal.find_check("backup"))
        state = await self.db.read(lambda tx: tx.journal.get_content_state())
        if last is not None and last.ok and (now - last.at < BACKUP_INTERVAL_MS or last.text == state):
            return False
        return bool(state)

    async def back_up(self, *, now: int) -> str:
        """Make a backup, test it and delete surplus ones. Return the problem, or ''."""
        state, needed_bytes = (
            await self.db.read(lambda tx: tx.journal.get_content_state()),
            2 * self.db.path.stat().st_size + SPARE_BYTES,
        )
        if disk.free_disk_bytes(self.config.data_dir) < needed_bytes:
            problem = "not enough free disk space"
        else:
            async with self.copy_lock:
                problem = await asyncio.to_thread(self._make_and_test, now)
        if problem:
            self.last_run.backup_failed = now
            if self.stopping():
                return problem
            log.error("the backup failed: %s", problem)
            text = f"claude-mem could not make its daily backup: {problem}. Run `claude-mem doctor` for details."
            await self.db.write(lambda tx: tx.journal.add_notice("backup:failed", text, now=now))
        else:
            await self.db.write(lambda tx: tx.journal.clear_notices("backup:"))
        await self.db.write(
            lambda tx: tx.journal.record_check("backup", ok=not problem, text=problem or state, now=now)
        )
        await self.rotate_backups()
        return problem

    def _make_and_test(self, now: int) -> str:
        try:
            copy = self.files.write_daily_backup(now=now)
        except (ClaudeMemError, OSError) as error:
            return str(error)
        problem = self.files.verify_restore(copy, should_stop=self.stopping)
        if problem:  # a backup that cannot be restored is useless
            Path(copy.path).unlink(missing_ok=True)
            return f"the restore test failed: {problem}"
        self.db.write_now(
            lambda tx: tx.journal.record_check(
                f"{DRILL_PREFIX}{Path(copy.path).name}",
                ok=True,
                text=", ".join(f"{count} {name}" for name, count in copy.counts.items() if count),
                now=now,
            ),
        )
        return ""

    async def verify_backups(self, *, now: int) -> None:
        """Test once each backup not tested when it was made: before a migration, by the user, or before a crash."""
        tested_names = await self.db.read(lambda tx: tx.journal.list_drills())
        for path in await asyncio.to_thread(self.files.find_unverified_backups, tested_names):
            if disk.free_disk_bytes(self.config.data_dir) < 2 * path.stat().st_size + SPARE_BYTES:
                return
            async with self.copy_lock:
                problem = await asyncio.to_thread(self.files.verify_backup, path, should_stop=self.stopping)
            if self.stopping():
                return
            await self.db.write(
                lambda tx, path, problem: tx.journal.record_check(
                    f"{DRILL_PREFIX}{path.name}", ok=not problem, text=problem, now=now
                ),
                path,
                problem,
            )
            if problem:
                log.error("the backup %s can't be restored: %s", path.name, problem)
                text = (
                    f"claude-mem's backup {path.name} can't be restored: {problem}. Run `claude-mem backup` to make"
                    " a new one."
                )
                await self.db.write(
                    lambda tx, path, text: tx.journal.add_notice(f"drill:{path.name}", text, now=now), path, text
                )

    async def rotate_backups(self) -> list[str]:
        """Delete surplus backups. Return their names."""
        good_names = await self.db.read(lambda tx: tx.journal.list_proven_backups())
        surplus = await asyncio.to_thread(self.files.find_surplus_backups, good_names)
        return [await self._drop_backup(path) for path in surplus]

    async def _drop_backup(self, path: Path) -> str:
        path.unlink(missing_ok=True)
        await self.db.write(lambda tx: tx.journal.delete_check(f"{DRILL_PREFIX}{path.name}"))
        log.info("the backup %s was deleted", path.name)
        return path.name

    # --- retention -------------------------------------------------------------------------------------------

    async def apply_retention(self, *, now: int) -> None:
        """Apply the retention periods to events, dead letters, receipts and log lines."""
        config = self.config
        events_before, dead_before = now - config.keep_events_days * DAY, now - config.keep_dead_days * DAY
        deadline = min(dead_before, events_before)
        await self._run_batches(lambda tx: tx.journal.purge_turn_events(before=events_before, deadline=deadline))
        await self._run_batches(lambda tx: tx.journal.purge_loose_events(before=events_before))
        await self.db.write(lambda tx: tx.journal.drop_old_dead_letters(before=dead_before, now=now))
        await self._expire_receipts(dead_before)
        await asyncio.to_thread(trim_logs, config.log_file.parent, before=now - config.keep_log_days * DAY)

    async def _run_batches(self, purge: Callable[[Transaction], int]) -> int:
        total = 0
        for _ in range(MAX_BATCHES):
            count = await self.db.write(purge)
            total += count
            if not count or self.stopping():
                break
            await asyncio.sleep(PAUSE_SECONDS)
        return total

    async def _expire_receipts(self, before: int) -> None:
        while True:
            count, event_ids = await self.db.write(lambda tx: tx.journal.compact_receipts(before=before))
            for event_id in event_ids:
                (self.spool.aside / event_id).unlink(missing_ok=True)
            if not count or self.stopping():
                break
        for path in self.spool.aside.iterdir():  # left by a crash between the commit and the unlink
            at = ids.created_at_ms(path.name) or int(modified_at(path) * 1000)
            if (
                at < before
                and not path.is_dir()
                and not await self.db.read(lambda tx, path: tx.journal.has_receipt(path.name), path)
            ):
                path.unlink(missing_ok=True)

    # --- quota -----------------------------------------------------------------------------------------------

    def used_bytes(self) -> int:
        """Return the bytes that count toward the quota: all except downloaded models, exports and the reserve file."""
        return disk.folder_bytes(self.config.data_dir, exclude=("models", "exports", "ballast"))

    async def enforce_quota(self, *, now: int) -> None:
        """If the disk quota is exceeded, purge raw events and delete backups, the oldest first."""
        quota = self.config.disk_quota_mb << 20
        if await asyncio.to_thread(self.used_bytes) <= quota:
            await self.db.write(lambda tx: tx.journal.clear_notices("quota:"))
            return
        target = int(quota * QUOTA_TARGET)
        purged_turns = await self._purge_down_to(target, now)
        dropped = await self._drop_backups_down_to(target)
        used = await asyncio.to_thread(self.used_bytes)
        log.warning(
            "disk quota exceeded: purged the events of %d turns and %d backups; now %d MB",
            purged_turns,
            dropped,
            used >> 20,
        )
        still_over = f" It still uses {used >> 20:,} MB; memories are never removed." if used > quota else ""
        text = (
            f"claude-mem exceeded its disk quota of {self.config.disk_quota_mb:,} MB: the oldest raw events"
            f" ({purged_turns:,} turns) and {dropped:,} backups were removed.{still_over} Change the quota with"
            " `disk_quota_mb`."
        )
        await self.db.write(lambda tx: tx.journal.add_notice("quota:exceeded", text, now=now))

    async def _purge_down_to(self, target: int, now: int) -> int:
        """Purge the oldest events first. Return the number of turns.

        The file shrinks only when it is vacuumed at the end, so free pages count as already freed.
        """
        purged_turns, free_bytes = 0, 0
        while not self.stopping() and await asyncio.to_thread(self.used_bytes) - free_bytes > target:
            count = await self.db.write(lambda tx: tx.journal.purge_turn_events(before=now, deadline=now))
            purged_turns += count
            free_bytes = await self.db.read(lambda tx: tx.integrity.count_free_bytes())
            if not count:
                break
        if purged_turns:
            await self.db.vacuum()
        return purged_turns

    async def _drop_backups_down_to(self, target: int) -> int:
        good_names, dropped = await self.db.read(lambda tx: tx.journal.list_proven_backups()), 0
        for path in await asyncio.to_thread(self.files.find_expendable_backups, good_names):
            if await asyncio.to_thread(self.used_bytes) <= target:
                break
            await self._drop_backup(path)
            dropped += 1
        return dropped


def _rebuild_index(tx: Transaction, *, now: int) -> None:
    tx.search.rebuild_word_index()
    tx.journal.record_check("index", ok=False, text="the word index was damaged and was rebuilt", now=now)


# --- log files -------------------------------------------------------------------------------------------------------


def trim_logs(folder: Path, *, before: int) -> None:
    """Remove log lines older than `before`. A file last changed before then is deleted."""
    limit = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(before / 1000))
    for path in folder.glob("*.log*"):
        if modified_at(path) * 1000 < before:
            path.unlink(missing_ok=True)
        else:
            with suppress(FileNotFoundError):  # rotated in the meantime, so trimmed next time; or a dangling link
                if _starts_before(path, limit):
                    _drop_lines_before(path, limit)


def _starts_before(path: Path, limit: str) -> bool:
    with path.open("rb") as file:
        first = file.readline(200).decode("utf-8", "replace")
    return _starts_with_date(first) and first < limit


def _starts_with_date(line: str) -> bool:
    """Return whether the line starts with a date, as only the first line of an entry does."""
    return line[:2] == "20" and line[4:5] == "-"


def _drop_lines_before(path: Path, limit: str) -> None:
    """Remove the older lines in place. Open handles append, so they continue at the new end of the file."""
    with _paused_handlers(path), path.open("rb+") as file:
        remainder = b""
        for line in file:
            text = line[:200].decode("utf-8", "replace")
            if _starts_with_date(text) and text >= limit:
                remainder = line + file.read()
                break
        file.seek(0)
        file.write(remainder)
        file.truncate()


@contextmanager
def _paused_handlers(path: Path) -> Iterator[None]:
    """Hold the locks of the log handlers that write to this file."""
    handlers = [
        candidate for candidate in logging.getLogger().handlers if getattr(candidate, "baseFilename", "") == str(path)
    ]
    for handler in handlers:
        handler.acquire()
    try:
        yield
    finally:
        for handler in handlers:
            handler.release()
