"""The deletion service: preview a deletion, run it in small batches and, when erasing, clear every other file too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec

from claude_mem import hook
from claude_mem.config import Config
from claude_mem.curate import erasure
from claude_mem.curate.erasure import ErasedContent, ErasureRequest
from claude_mem.domain import ids
from claude_mem.domain.errors import ClaudeMemError, OperationFailed
from claude_mem.domain.memory_items import UndoneChange
from claude_mem.domain.reports import AffectedSummary, DeletionProgress, Restored
from claude_mem.domain.text_pattern import TextPattern, rare_words
from claude_mem.storage.base import Database, Transaction
from claude_mem.storage.files import DatabaseFiles
from claude_mem.storage.journal_records import DRILL_PREFIX, FORGOTTEN_RULE
from claude_mem.storage.records import UNDO_WINDOW_MS, AffectedRows, DeletionScope, Tombstone
from claude_mem.system import disk

log = logging.getLogger(__name__)

MIN_FREE_BYTES = 4 << 20


class DeletionService:
    """Runs deletions one at a time.

    `drain` stores one batch of spooled events; `after` is called with the ids of the projects whose rows were deleted
    or restored; `tidy` removes deleted content from the index and from memory; `record` writes to the audit log.
    """

    def __init__(
        self,
        db: Database,
        config: Config,
        files: DatabaseFiles,
        *,
        drain: Callable[[], Awaitable[int]],
        after: Callable[[Sequence[int]], Awaitable[None]],
        tidy: Callable[[], Awaitable[None]],
        record: Callable[..., Awaitable[None]],
    ) -> None:
        self.db, self.config, self.files = db, config, files
        self.drain, self.after, self.tidy, self.record = drain, after, tidy, record
        self.lock = asyncio.Lock()  # also held while a copy of the database is made
        self.file_lock = asyncio.Lock()
        self.progress = DeletionProgress()
        self.task: asyncio.Task[None] | None = None
        self.is_recovered = False
        self.unfinished: list[tuple[ErasureRequest, list[Tombstone], DeletionProgress]] = []  # only the files remain
        self.finish_task: asyncio.Task[None] | None = None

    # --- preview and start -------------------------------------------------------------------------------------------

    async def preview(self, scope: DeletionScope, *, erase: bool) -> tuple[AffectedSummary, bool]:
        """Return what a deletion would delete, and whether that is nothing."""
        await self._drain_spool()
        affected = await self.db.read(lambda tx: tx.deletions.find_affected_rows(scope, erase=erase))
        summary = await self.db.read(lambda tx: tx.deletions.summarize_affected_rows(affected))
        if not erase:
            return summary, not affected
        files = await asyncio.to_thread(erasure.find_waiting_files, self.config, scope, until=ids.now_ms())
        copies = await asyncio.to_thread(self.files.list_copies)
        counts = {**summary.counts, "waiting files": len(files), "backups": len(copies)}
        return msgspec.structs.replace(
            summary, counts=counts
        ), False  # a backup or a log may still contain rows deleted from the tables long ago

    def start(self, scope: DeletionScope, *, erase: bool) -> DeletionProgress:
        """Start a deletion in the background. The returned object is updated as it proceeds."""
        if self.progress.busy:
            raise OperationFailed("another deletion is running", hint="try again in a moment")
        self.progress = DeletionProgress(erased=erase, busy=True)
        self.task = asyncio.create_task(self._run_and_report(self.forget(scope, self.progress), self.progress))
        return self.progress

    async def stop(self) -> None:
        """Cancel running deletions. The next start resumes them."""
        tasks = {task for task in (self.task, self.finish_task) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run_and_report(self, work: Coroutine[Any, Any, None], progress: DeletionProgress) -> None:
        try:
            await work
        except ClaudeMemError as problem:
            progress.error = str(problem)
        except asyncio.CancelledError:
            progress.error = "interrupted because the worker is stopping or restarting; the next start resumes it"
            raise
        except Exception as problem:
            log.exception("deletion failed")
            progress.error = f"unexpected error ({type(problem).__name__}); see `claude-mem logs` for details"
        finally:
            progress.busy = False

    # --- running -----------------------------------------------------------------------------------------------------

    async def forget(self, scope: DeletionScope, progress: DeletionProgress) -> None:
        """Delete everything in the scope; if `progress.erased`, irreversibly and from every file."""
        async with self.lock:
            self._ensure_free_space()
            await self._drain_spool()
            now, erase = ids.now_ms(), progress.erased
            affected = await self.db.read(lambda tx: tx.deletions.find_affected_rows(scope, erase=erase))
            progress.counts = (
                await self.db.read(lambda tx: tx.deletions.summarize_affected_rows(affected, first=0))
            ).counts
            rare = await self._find_rare_words(affected) if erase else frozenset()
            progress.number = await self.db.write(lambda tx: tx.deletions.begin_deletion(erased=erase, now=now))
            request = ErasureRequest(progress.number, now, erase, scope, rare, dict(progress.counts))
            await asyncio.to_thread(erasure.write_erasure_request, self.config.data_dir, request)
            tombstones = await self._delete_from_database(request, affected, (), progress)
            await self._erase_from_files(request, tombstones, progress)
        await self._write_audit_record(progress)

    async def _write_audit_record(self, progress: DeletionProgress) -> None:
        copies = {outcome: len(names) for outcome, names in progress.copies.items()}
        action = "erased" if progress.erased else "forgotten"
        await self.record(action, number=progress.number, counts=progress.counts, copies=copies)

    def _ensure_free_space(self) -> None:
        """Free the reserve file if the disk is nearly full.

        Tombstones and rewritten backups are separate files, so a full disk would not raise the database error that
        otherwise frees the reserve.
        """
        if disk.free_disk_bytes(self.config.data_dir) < MIN_FREE_BYTES:
            self.db.free_disk_space()

    async def _drain_spool(self) -> None:
        """Ingest all spooled events first: some may be covered by the deletion."""
        while await self.drain():
            pass

    async def _find_rare_words(self, affected: AffectedRows) -> frozenset[str]:
        return await self.db.read(lambda tx: rare_words(tx.deletions.iterate_affected_texts(affected)))

    async def _delete_from_database(
        self, request: ErasureRequest, affected: AffectedRows, existing: Sequence[Tombstone], progress: DeletionProgress
    ) -> list[Tombstone]:
        """Delete the affected rows and, when erasing, spooled events. Return the existing and the new tombstones."""
        progress.total = affected.size()
        tombstones = [
            *existing,
            *await self._store_tombstones(request, affected, {tombstone.mark for tombstone in existing}),
        ]
        await self.delete_rows(affected, progress, now=request.at)
        if request.erased:
            await self._erase_waiting_files(request, progress)
        return tombstones

    async def _store_tombstones(
        self, request: ErasureRequest, affected: AffectedRows, existing_hashes: Collection[str]
    ) -> list[Tombstone]:
        built = await self.db.read(
            lambda tx: tx.deletions.build_tombstones(
                request.scope, affected, deletion_id=request.n, erased=request.erased, now=request.at
            )
        )
        new_tombstones = [tombstone for tombstone in built if tombstone.mark not in existing_hashes]
        await self._append_to_file(new_tombstones)
        await self.db.write(lambda tx: tx.deletions.insert_tombstones(new_tombstones))
        return new_tombstones

    async def delete_rows(self, affected: AffectedRows, progress: DeletionProgress, *, now: int) -> None:
        """Delete in small transactions, so that captures and queries can run in between."""
        project_ids = await self.db.read(lambda tx: tx.deletions.find_affected_projects(affected))
        await self._erase_cached_starts(project_ids)
        titled_sessions = await self.db.read(lambda tx: tx.deletions.find_sessions_to_retitle(affected))

        def delete(tx: Transaction, batch: AffectedRows) -> None:
            tx.deletions.delete_batch(batch, deletion_id=progress.number, erase=progress.erased, now=now)

        progress.doing = "the database"
        for batch in (*affected.batches(), AffectedRows(sessions=titled_sessions)):
            await self.db.write(delete, batch)
            progress.done += batch.size()
        await self.db.write(
            lambda tx: tx.deletions.enqueue_redigest(affected.turns, deletion_id=progress.number, now=now)
        )
        await self.db.write(
            lambda tx: tx.deletions.retitle_sessions(
                sorted({*titled_sessions, *affected.sessions} - {*affected.whole_sessions})
            )
        )
        await self.after(project_ids)

    async def _erase_cached_starts(self, project_ids: Sequence[int]) -> None:
        """Erase cached start contexts before the rows, so that no session gets deleted content from the disk."""
        for project_id in project_ids:
            for folder in await self.db.read(
                lambda tx, project_id: tx.memory.list_project_folders(project_id), project_id
            ):
                await asyncio.to_thread(erasure.shred_file, self.config.starts / hook.brief_filename(folder))

    async def _erase_waiting_files(self, request: ErasureRequest, progress: DeletionProgress) -> None:
        """Erase spool files that could not be ingested. A reversible deletion keeps them: they are never shown."""
        for path in await asyncio.to_thread(erasure.find_waiting_files, self.config, request.scope, until=request.at):
            progress.doing = "waiting files"
            await asyncio.to_thread(erasure.shred_file, path)
            await self.db.write(
                lambda tx, path: tx.journal.mark_event_filtered(path.name, FORGOTTEN_RULE, now=ids.now_ms()),
                path,
            )
            progress.counts["waiting files"] = progress.counts.get("waiting files", 0) + 1

    async def _erase_from_files(
        self, request: ErasureRequest, tombstones: list[Tombstone], progress: DeletionProgress
    ) -> None:
        pattern = TextPattern(request.scope.matching) if request.scope.matching else None
        if request.erased:
            await self._erase_files(request.scope, tombstones, ErasedContent(pattern, request.rare), progress)
        await asyncio.to_thread(erasure.delete_erasure_request, self.config.data_dir)
        if request.erased and pattern is not None:
            progress.doing = "searching for remaining copies"
            progress.left = sorted(
                {*progress.left, *await asyncio.to_thread(erasure.find_files_with_text, self.config, pattern)}
            )
        await self.db.write(lambda tx: tx.deletions.finish_deletion(request.n, progress.counts, now=ids.now_ms()))
        progress.undo_until = None if request.erased else request.at + UNDO_WINDOW_MS
        progress.doing = ""

    async def _erase_files(
        self, scope: DeletionScope, tombstones: list[Tombstone], content: ErasedContent, progress: DeletionProgress
    ) -> None:
        progress.doing = "logs and caches"
        await self.db.write(lambda tx: tx.deletions.erase_mentions(content.in_line, quotes=content.is_quoted_in))
        await self.db.write(lambda tx: tx.deletions.delete_empty_projects(scope.projects if scope.by_time else ()))
        progress.counts["log entries"] = await asyncio.to_thread(erasure.erase_from_logs, self.config, content)
        await asyncio.to_thread(erasure.erase_from_caches, self.config, content)
        await asyncio.to_thread(erasure.erase_unfinished_copies, self.files)
        await self.tidy()
        await self.db.truncate_wal()
        for path in await asyncio.to_thread(self.files.list_copies):
            progress.doing = f"backup {path.name}"
            outcome = await asyncio.to_thread(_erase_from_copy, path, self.files, scope, tombstones, content)
            progress.copies.setdefault(outcome, []).append(path.name)
            if outcome != "kept":  # the recorded restore test was of the file's earlier content
                await self.db.write(lambda tx, path: tx.journal.delete_check(f"{DRILL_PREFIX}{path.name}"), path)
        if self.db.has_untruncated_wal and not await self.db.truncate_wal():
            progress.left = [f"{self.db.path.name}-wal"]

    # --- single observations -----------------------------------------------------------------------------------------

    async def forget_one(self, row_id: int, *, by: str) -> int:
        """Delete one observation reversibly. Return the time until which it can be restored.

        Does not take the lock, so that the user does not wait for a running backup.
        """
        now, scope = ids.now_ms(), DeletionScope(ids=(row_id,))
        self._ensure_free_space()
        await self.db.read(lambda tx: tx.memory.get_memory("observation", row_id))  # raises before anything is written
        number = await self.db.write(lambda tx: tx.deletions.begin_deletion(erased=False, now=now))
        request = ErasureRequest(number, now, erased=False, scope=scope)
        tombstones = await self._store_tombstones(request, AffectedRows(observations=[row_id]), ())
        return await self.db.write(
            lambda tx: tx.deletions.forget_observation(row_id, tombstones, deletion_id=number, now=now, by=by)
        )

    async def undo_one(self, row_id: int, *, by: str) -> UndoneChange:
        """Undo the last change to an observation. Return `{undone, ids}`."""
        revocations = await self.db.read(lambda tx: tx.deletions.build_tombstone_revocations(row_id))
        await self._append_to_file(revocations)
        return await self.db.write(
            lambda tx: tx.deletions.undo_observation_change(row_id, revocations, now=ids.now_ms(), by=by)
        )

    async def _append_to_file(self, lines: Sequence[Tombstone]) -> None:
        """Append to the tombstone file, one writer at a time."""
        if lines:
            async with self.file_lock:
                await asyncio.to_thread(self.files.append_tombstones, lines)

    # --- undo --------------------------------------------------------------------------------------------------------

    async def undo(self, number: int) -> Restored:
        """Undo a deletion.

        The revocation is written to the file first: after a crash in between, the undo can be repeated and nothing is
        deleted again.
        """
        async with self.lock:
            await self.db.read(lambda tx: tx.deletions.get_restorable_rows(number))
            await self._append_to_file([Tombstone(number, back=True)])
            result = await self.db.write(lambda tx: tx.deletions.restore_deletion(number, now=ids.now_ms()))
        await self.after(result.projects)
        await self.record("undone", number=number, counts=result.counts)
        return result

    # --- recovery ----------------------------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Complete interrupted deletions and re-apply deletions missing from a restored database.

        Runs once at start, before any query is answered. It deletes only from the tables; `finish` clears the files.
        """
        if self.is_recovered:
            return
        all_tombstones = await asyncio.to_thread(self.files.read_tombstones)
        request = await asyncio.to_thread(erasure.read_erasure_request, self.config.data_dir)
        if request is not None:
            await self._resume(request, [tombstone for tombstone in all_tombstones if tombstone.n == request.n])
        for number in await self._find_unfinished(all_tombstones, request):
            await self._reapply(number, [tombstone for tombstone in all_tombstones if tombstone.n == number])
        self.is_recovered = True

    async def _find_unfinished(self, all_tombstones: list[Tombstone], request: ErasureRequest | None) -> list[int]:
        missing = await self.db.read(lambda tx: tx.deletions.find_missing_tombstones(all_tombstones))
        undone = await self.db.read(lambda tx: tx.deletions.find_undone_deletions())
        revoked = {tombstone.n for tombstone in missing if tombstone.at <= undone.get(tombstone.n, -1)}
        # Undone, but not yet revoked in the file.
        await self._append_to_file([Tombstone(n, back=True) for n in sorted(revoked)])
        interrupted = await self.db.read(lambda tx: tx.deletions.find_unfinished_deletions())
        return sorted({*interrupted, *(tombstone.n for tombstone in missing)} - revoked - {request.n if request else 0})

    async def _resume(self, request: ErasureRequest, existing: list[Tombstone]) -> None:
        """Resume an interrupted deletion from its request."""
        self.progress = progress = DeletionProgress(
            request.n, erased=request.erased, busy=True, counts=dict(request.counts)
        )
        await self.db.write(
            lambda tx: tx.deletions.record_missing_deletion(request.n, at=request.at, erased=request.erased)
        )
        affected = await self.db.write(
            lambda tx: tx.deletions.find_remaining_rows(request.scope, existing, erase=request.erased, upto=request.at)
        )
        await self.db.write(lambda tx: tx.deletions.insert_tombstones(existing))
        log.warning("deletion F%d is resumed: %d rows", request.n, affected.size())
        all_tombstones = await self._delete_from_database(request, affected, existing, progress)
        self.unfinished.append((request, all_tombstones, progress))

    async def _reapply(self, number: int, own_tombstones: list[Tombstone]) -> None:
        """Apply a deletion again from its tombstones alone."""
        if not own_tombstones:
            await self.db.write(
                lambda tx: tx.deletions.finish_deletion(number, {}, now=ids.now_ms())
            )  # interrupted before it began
            return
        first = own_tombstones[0]
        await self.db.write(lambda tx: tx.deletions.record_missing_deletion(number, at=first.at, erased=first.erased))
        await self.db.write(lambda tx: tx.deletions.insert_tombstones(own_tombstones))
        affected = await self.db.write(lambda tx: tx.deletions.find_tombstoned_rows(own_tombstones))
        log.warning("deletion F%d is applied again: %d rows", number, affected.size())
        progress = DeletionProgress(number=number, erased=first.erased)
        await self.delete_rows(affected, progress, now=first.at)
        self.unfinished.append(
            (ErasureRequest(number, first.at, first.erased, DeletionScope(ids=(-1,))), own_tombstones, progress)
        )

    async def complete(self, numbers: Sequence[int]) -> asyncio.Task[None]:
        """Complete erasures that another machine of a space asked for: their rows are gone, other copies are not."""
        all_tombstones = await asyncio.to_thread(self.files.read_tombstones)
        async with self.lock:
            for number in numbers:
                await self._reapply(number, [tombstone for tombstone in all_tombstones if tombstone.n == number])
        self.finish_task = None
        return self.finish()

    def finish(self) -> asyncio.Task[None]:
        """Clear the files of recovered deletions in the background. Failures are retried at the next start."""
        if self.finish_task is None:
            self.finish_task = asyncio.create_task(self._finish())
        return self.finish_task

    async def _finish(self) -> None:
        async with self.lock:
            while self.unfinished:
                request, tombstones, progress = self.unfinished.pop(0)
                await self._run_and_report(self._erase_from_files(request, tombstones, progress), progress)
                if progress.error:
                    log.error("deletion F%d could not be completed: %s", request.n, progress.error)
                elif progress is self.progress:  # requested by the user; the others are in the audit log already
                    await self._write_audit_record(progress)

    async def expire(self, now: int) -> None:
        """Erase rows that were kept for undo for thirty days."""
        if await self.db.read(lambda tx: tx.deletions.is_expiry_due(now=now)):
            while await self.db.write(lambda tx: tx.deletions.erase_expired_rows(now=now)):
                pass
            await self.db.truncate_wal()


def _erase_from_copy(
    path: Path, files: DatabaseFiles, scope: DeletionScope, tombstones: list[Tombstone], content: ErasedContent
) -> str:
    """Erase from one copy of the database and return the outcome.

    Any error is logged and reported as `failed`, so that it blocks neither the other copies nor the worker's start.
    """
    try:
        return erasure.erase_from_database_copy(path, files, scope, tombstones, content)
    except Exception as problem:
        log.error("%s could not be rewritten: %s: %s", path.name, type(problem).__name__, problem)
        return "failed"
