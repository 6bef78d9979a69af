"""`claude-mem scrub`: apply the current redaction rules to everything that is already stored.

This covers rows, their search index and embeddings, start contexts on disk, files that were set aside, logs and
backups. It can be run at any time; a second run changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from claude_mem.capture import sanitize
from claude_mem.config import Config
from claude_mem.domain import ids
from claude_mem.domain.errors import ClaudeMemError
from claude_mem.domain.records import Body
from claude_mem.privacy import tags
from claude_mem.privacy.secrets import redact, redact_lines
from claude_mem.recall.matrix import Indexer
from claude_mem.storage.base import Database, Transaction
from claude_mem.storage.files import DatabaseFiles
from claude_mem.storage.journal_records import DRILL_PREFIX
from claude_mem.storage.records import RedactionStep, TextCleaner, TextTable
from claude_mem.system.spool import overwrite_in_place, write_private

log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.002  # pause after each batch, so that live work goes first
MAX_FILE_BYTES = 64 << 20  # the most that is kept of a file that was set aside, or redacted of a log at once


@dataclass(slots=True)
class ScrubProgress:
    """The progress of a scrub. `changed` counts rows by table, and files by directory."""

    dry_run: bool = False
    started_at: int = 0
    ended_at: int | None = None
    doing: str = ""
    done: int = 0
    total: int = 0
    changed: dict[str, int] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)  # copies that could not be rewritten, with the reason
    error: str = ""

    @property
    def busy(self) -> bool:
        """Whether the scrub is running."""
        return bool(self.started_at) and self.ended_at is None

    def add(self, name: str, seen_count: int, changed_count: int) -> None:
        """Count rows or files that were examined, and those that were changed."""
        self.done += seen_count
        if changed_count:
            self.changed[name] = self.changed.get(name, 0) + changed_count


class Scrubber:
    """Runs one scrub at a time. A scrub that is interrupted by a stop of the worker can simply be started again."""

    def __init__(self, db: Database, indexer: Indexer, config: Config, files: DatabaseFiles) -> None:
        self.db, self.indexer, self.config, self.files = db, indexer, config, files
        self.progress = ScrubProgress()
        self.task: asyncio.Task[None] | None = None
        self.copy_lock = asyncio.Lock()  # held while a backup is rewritten

    def start(self, *, dry_run: bool, after: Callable[[], None]) -> None:
        """Start a scrub unless one is running. `after` is called at the end, to wake the runner of render jobs."""
        if not self.progress.busy:
            self.progress = ScrubProgress(dry_run=dry_run, started_at=ids.now_ms())
            self.task = asyncio.create_task(self._run(self.progress, after))

    async def stop(self) -> None:
        """Cancel a running scrub."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait({self.task})

    async def _run(self, progress: ScrubProgress, after: Callable[[], None]) -> None:
        try:
            await self.scrub(progress)
            after()
        except ClaudeMemError as problem:
            progress.error = str(problem)
        except Exception as problem:
            log.exception("scrubbing failed")
            progress.error = f"{type(problem).__name__}: {problem}"
        finally:
            progress.ended_at = ids.now_ms()

    async def scrub(self, progress: ScrubProgress) -> None:
        """Scrub rows, files, derived data and backups; with `dry_run` only count what would change."""
        clean = make_cleaner(self.config)
        backups = await asyncio.to_thread(lambda: sorted(self.files.backups.glob("*.db")))
        text_tables = await self.db.read(lambda tx: tx.deletions.text_tables)
        files = await asyncio.to_thread(lambda: list(_list_files(self.config)))
        progress.total = (
            await self.db.read(lambda tx: sum(tx.deletions.count_text_rows(texts) for texts in text_tables))
            + len(backups)
            + len(files)
        )
        for texts in text_tables:
            await self._scrub_table(texts, progress, clean)
        for path in files:
            progress.doing = path.parent.name
            changed = await asyncio.to_thread(_clean_file, path, self.config, write=not progress.dry_run)
            progress.add(path.parent.name, 1, changed)
        if progress.changed and not progress.dry_run:
            await self._rebuild_derived()
        for path in backups:
            progress.doing = "backups"
            await self._scrub_backup(path, progress, clean)
        for path in sorted(self.config.quarantine.glob("*")):  # damaged: a rewrite might be incomplete
            progress.kept.append(f"{path.parent.name}/{path.name}: a damaged database; delete it if you do not need it")

    async def _scrub_table(self, texts: TextTable, progress: ScrubProgress, clean: TextCleaner) -> None:
        progress.doing = texts.label or texts.table
        ask = self.db.read if progress.dry_run else self.db.write
        position = None
        while True:
            step = await ask(_redact_batch, texts, position, clean, write=not progress.dry_run)
            progress.add(texts.label or texts.table, step.rows_read, step.rows_changed)
            if (position := step.after) is None:
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _rebuild_derived(self) -> None:
        """Rebuild everything derived from the rows, then remove their old content from the write-ahead log."""
        while await self.indexer.catch_up():
            await asyncio.sleep(PAUSE_SECONDS)
        await self.db.write(_enqueue_renders, now=ids.now_ms())
        await self.db.truncate_wal()

    async def _scrub_backup(self, path: Path, progress: ScrubProgress, clean: TextCleaner) -> None:
        try:
            async with self.copy_lock:
                changed = await asyncio.to_thread(self.files.redact_backup, path, clean, write=not progress.dry_run)
            progress.add("backups", 1, int(changed))
            if changed and not progress.dry_run:  # the restore test ran on the old content
                await self.db.write(lambda tx: tx.journal.delete_check(f"{DRILL_PREFIX}{path.name}"))
        except (ClaudeMemError, OSError) as problem:
            progress.kept.append(f"{path.name}: {problem}")


def make_cleaner(config: Config) -> TextCleaner:
    """Return the functions that redact a plain text, the body of an event, and a list of texts."""

    def body(text: str) -> str:
        try:
            event_body = msgspec.json.decode(text, type=Body)
        except msgspec.MsgspecError:
            return _clean_text(text)  # damaged: treat it as plain text
        new = sanitize.remove_secrets(event_body, config)
        return text if new == event_body else msgspec.json.encode(new).decode()

    return TextCleaner(_clean_text, body, texts=lambda texts: redact_lines(tags.strip_private_json(texts)))


def _clean_text(text: str) -> str:
    return redact(tags.strip_private(text))


def _redact_batch(
    tx: Transaction, texts: TextTable, after: int | str | None, clean: TextCleaner, *, write: bool
) -> RedactionStep:
    return tx.deletions.redact_batch(texts, after, clean=clean, write=write)


def _enqueue_renders(tx: Transaction, *, now: int) -> None:
    for project_id in tx.memory.list_projects_with_folders():
        tx.journal.enqueue_job("render", f"{project_id}.scrubbed.{now}", now=now)


# --- files -----------------------------------------------------------------------------------------------------------


def _list_files(config: Config) -> Iterator[Path]:
    for folder, names in ((config.aside, "*"), (config.log_file.parent, "*.log*")):
        yield from sorted(path for path in folder.glob(names) if path.is_file() and not path.is_symlink())


def _clean_file(path: Path, config: Config, *, write: bool) -> bool:
    """Redact a file and return whether it changed.

    Logs are changed in place, because the process that writes a log keeps the file open.
    """
    is_log = path.parent.name == "logs"
    with paused_log() if is_log else nullcontext():
        raw = path.read_bytes()
        if not is_log:
            raw = raw[:MAX_FILE_BYTES]
        text = raw.decode("utf-8", "surrogateescape")
        cleaned_text = _redact_log(text) if is_log else sanitize.clean_set_aside(text, config)
        if cleaned_text == text or not write:
            return cleaned_text != text
        if is_log:
            overwrite_in_place(path, cleaned_text.encode("utf-8", "surrogateescape"))
        else:
            write_private(path, cleaned_text.encode("utf-8", "surrogateescape"))
    return True


def _redact_log(text: str) -> str:
    """Redact a log in blocks of whole lines, without dropping any text."""
    blocks, begin = [], 0
    while begin < len(text):
        end = text.rfind("\n", begin, begin + MAX_FILE_BYTES) + 1 if len(text) - begin > MAX_FILE_BYTES else 0
        end = end or min(len(text), begin + MAX_FILE_BYTES)
        blocks.append(redact(text[begin:end]))
        begin = end
    return "".join(blocks)


@contextmanager
def paused_log() -> Iterator[None]:
    """Block all log handlers while a log is rewritten."""
    handlers = logging.getLogger().handlers
    for handler in handlers:
        handler.acquire()
    try:
        yield
    finally:
        for handler in handlers:
            handler.release()
