"""The deletion service: previews a deletion, runs it in small batches and, when erasing, clears every file we own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from claude_mem import hook, ids
from claude_mem.config import Config
from claude_mem.errors import CannotDo, MemError
from claude_mem.needles import Needle, rare_words
from claude_mem.store import checks, events, forgetting, observations, projects, scopes, stones
from claude_mem.store.corrections import KEEP_MS
from claude_mem.store.database import Database, Row
from claude_mem.store.scopes import Found, Scope
from claude_mem.store.stones import Stone
from claude_mem.worker import room, traces, wishes
from claude_mem.worker.traces import Words
from claude_mem.worker.wishes import Wish

log = logging.getLogger(__name__)

MIN_FREE_BYTES = 4 << 20


@dataclass(slots=True)
class Progress:
    """Progress of a deletion and, once it has ended, its result."""

    number: int = 0
    erased: bool = False
    busy: bool = False
    doing: str = ""
    done: int = 0
    total: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    undo_until: int | None = None
    copies: dict[str, list[str]] = field(
        default_factory=dict
    )  # file names by outcome: kept, rewritten, deleted, failed
    left: list[str] = field(default_factory=list)  # files that still contain the requested text
    error: str = ""


class Forgetter:
    """Runs deletions one at a time."""

    def __init__(
        self,
        db: Database,
        config: Config,
        *,
        drain: Callable[[], Awaitable[int]],
        after: Callable[[Sequence[int]], Awaitable[None]],
        tidy: Callable[[], Awaitable[None]],
        record: Callable[..., Awaitable[None]],
    ) -> None:
        self.db, self.config = db, config
        self.drain, self.after, self.tidy, self.record = drain, after, tidy, record
        self.lock = asyncio.Lock()  # also held while a copy of the database is made
        self.file_lock = asyncio.Lock()
        self.progress = Progress()
        self.task: asyncio.Task[None] | None = None
        self.recovered = False
        self.unfinished: list[tuple[Wish, list[Stone], Progress]] = []  # only the files remain
        self.finishing: asyncio.Task[None] | None = None

    # --- preview and start -------------------------------------------------------------------------------------------

    async def preview(self, scope: Scope, *, erase: bool) -> Row:
        await self._drain_spool()
        affected = await self.db.read(scopes.find, scope, erase=erase)
        summary = await self.db.read(scopes.preview, affected)
        if not erase:
            return {**summary, "empty": not affected}
        files = await asyncio.to_thread(traces.waiting, self.config, scope, until=ids.now())
        copies = await asyncio.to_thread(traces.copies, self.config)
        summary["counts"] |= {"waiting files": len(files), "backups": len(copies)}
        return {**summary, "empty": False}  # a backup or a log may still contain rows deleted from the tables long ago

    def start(self, scope: Scope, *, erase: bool) -> Progress:
        """Start a deletion in the background. The returned object is updated as it proceeds."""
        if self.progress.busy:
            raise CannotDo("another deletion is running", hint="try again in a moment")
        self.progress = Progress(erased=erase, busy=True)
        self.task = asyncio.create_task(self._run_and_report(self.forget(scope, self.progress), self.progress))
        return self.progress

    async def stop(self) -> None:
        """Cancel running deletions. The next start resumes them."""
        tasks = {task for task in (self.task, self.finishing) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run_and_report(self, work: Coroutine[Any, Any, None], progress: Progress) -> None:
        try:
            await work
        except MemError as problem:
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

    async def forget(self, scope: Scope, progress: Progress) -> None:
        async with self.lock:
            self._ensure_free_space()
            await self._drain_spool()
            now, erase = ids.now(), progress.erased
            affected = await self.db.read(scopes.find, scope, erase=erase)
            progress.counts = (await self.db.read(scopes.preview, affected, first=0))["counts"]
            rare = await self._rare(affected) if erase else frozenset()
            progress.number = await self.db.write(forgetting.begin, erased=erase, now=now)
            request = Wish(progress.number, now, erase, scope, rare, dict(progress.counts))
            await asyncio.to_thread(wishes.keep, self.config.data_dir, request)
            tombstones = await self._delete_from_database(request, affected, (), progress)
            await self._erase_from_files(request, tombstones, progress)
        await self._write_audit_record(progress)

    async def _write_audit_record(self, progress: Progress) -> None:
        details = {"number": progress.number, "counts": progress.counts, "copies": _count_outcomes(progress)}
        await self.record("erased" if progress.erased else "forgotten", **details)

    def _ensure_free_space(self) -> None:
        """Free the reserve file if the disk is nearly full.

        Tombstones and rewritten backups are separate files, so a full disk would not raise the database error that
        otherwise frees the reserve.
        """
        if room.free(self.config.data_dir) < MIN_FREE_BYTES:
            self.db.make_room()

    async def _drain_spool(self) -> None:
        """Ingest all spooled events first: some may be covered by the deletion."""
        while await self.drain():
            pass

    async def _rare(self, affected: Found) -> frozenset[str]:
        return await self.db.read(lambda conn: rare_words(forgetting.texts_of(conn, affected)))

    async def _delete_from_database(
        self, request: Wish, affected: Found, existing: Sequence[Stone], progress: Progress
    ) -> list[Stone]:
        """Delete the affected rows and, when erasing, spooled events. Return the existing and the new tombstones."""
        progress.total = affected.size()
        tombstones = [
            *existing,
            *await self._store_tombstones(request, affected, {tombstone.mark for tombstone in existing}),
        ]
        await self.take_away(affected, progress, now=request.at)
        if request.erased:
            await self._erase_waiting_files(request, progress)
        return tombstones

    async def _store_tombstones(self, request: Wish, affected: Found, existing_hashes: Collection[str]) -> list[Stone]:
        build = partial(forgetting.stones_for, n=request.n, erased=request.erased, now=request.at)
        new_tombstones = [
            tombstone
            for tombstone in await self.db.read(build, request.scope, affected)
            if tombstone.mark not in existing_hashes
        ]
        await self._append_to_file(new_tombstones)
        await self.db.write(stones.put, new_tombstones)
        return new_tombstones

    async def take_away(self, affected: Found, progress: Progress, *, now: int) -> None:
        """Delete in small transactions, so that captures and queries can run in between."""
        project_ids = await self.db.read(forgetting.projects_of, affected)
        await self._erase_cached_starts(project_ids)
        titled_sessions = await self.db.read(forgetting.strip_touched, affected)
        delete = partial(forgetting.take_away, n=progress.number, erase=progress.erased, now=now)
        progress.doing = "the database"
        for batch in (*affected.batches(), Found(sessions=titled_sessions)):
            await self.db.write(delete, batch)
            progress.done += batch.size()
        await self.db.write(forgetting.digest_again, affected.turns, n=progress.number, now=now)
        await self.db.write(
            forgetting.retitle, sorted({*titled_sessions, *affected.sessions} - {*affected.whole_sessions})
        )
        await self.after(project_ids)

    async def _erase_cached_starts(self, project_ids: Sequence[int]) -> None:
        """Erase cached start contexts before the rows, so that no session gets deleted content from the disk."""
        for project_id in project_ids:
            for folder in await self.db.read(projects.folders, project_id):
                await asyncio.to_thread(traces.shred, self.config.starts / hook.start_name(folder))

    async def _erase_waiting_files(self, request: Wish, progress: Progress) -> None:
        """Erase spool files that could not be ingested. A reversible deletion keeps them: they are never shown."""
        for path in await asyncio.to_thread(traces.waiting, self.config, request.scope, until=request.at):
            progress.doing = "waiting files"
            await asyncio.to_thread(traces.shred, path)
            await self.db.write(events.left_out, path.name, forgetting.FORGOTTEN, now=ids.now())
            progress.counts["waiting files"] = progress.counts.get("waiting files", 0) + 1

    async def _erase_from_files(self, request: Wish, tombstones: list[Stone], progress: Progress) -> None:
        pattern = Needle(request.scope.matching) if request.scope.matching else None
        if request.erased:
            await self._erase_files(request.scope, tombstones, Words(pattern, request.rare), progress)
        await asyncio.to_thread(wishes.drop, self.config.data_dir)
        if request.erased and pattern is not None:
            progress.doing = "searching for remaining copies"
            progress.left = sorted({*progress.left, *await asyncio.to_thread(traces.left, self.config, pattern)})
        await self.db.write(forgetting.end, request.n, progress.counts, now=ids.now())
        progress.undo_until = None if request.erased else request.at + KEEP_MS
        progress.doing = ""

    async def _erase_files(self, scope: Scope, tombstones: list[Stone], content: Words, progress: Progress) -> None:
        progress.doing = "logs and caches"
        await self.db.write(forgetting.wipe_traces, content.in_line, quotes=content.quoted)
        await self.db.write(forgetting.drop_projects, scope.projects if scope.by_time else ())
        progress.counts["log entries"] = await asyncio.to_thread(traces.clean_logs, self.config, content)
        await asyncio.to_thread(traces.clean_small, self.config, content)
        await asyncio.to_thread(traces.drop_unfinished, self.config)
        await self.tidy()
        await self.db.truncate_wal()
        for path in await asyncio.to_thread(traces.copies, self.config):
            progress.doing = f"backup {path.name}"
            outcome = await asyncio.to_thread(_clean_copy, path, self.config, scope, tombstones, content)
            progress.copies.setdefault(outcome, []).append(path.name)
            if outcome != "kept":  # the recorded restore test was of the file's earlier content
                await self.db.write(checks.drop, f"{checks.DRILL}{path.name}")
        if self.db.unscrubbed and not await self.db.truncate_wal():
            progress.left = [f"{self.db.path.name}-wal"]

    # --- single observations -----------------------------------------------------------------------------------------

    async def forget_one(self, row_id: int, *, by: str) -> int:
        """Delete one observation reversibly. Return the time until which it can be restored.

        Does not take the lock, so that the user does not wait for a running backup.
        """
        now, scope = ids.now(), Scope(ids=(row_id,))
        self._ensure_free_space()
        await self.db.read(observations.get, "observation", row_id)  # raises before anything is written
        number = await self.db.write(forgetting.begin, erased=False, now=now)
        request = Wish(number, now, erased=False, scope=scope)
        tombstones = await self._store_tombstones(request, Found(observations=[row_id]), ())
        return await self.db.write(forgetting.put_one_away, row_id, tombstones, n=number, now=now, by=by)

    async def undo_one(self, row_id: int, *, by: str) -> Row:
        """Undo the last change to an observation. Return `{undone, ids}`."""
        revocations = await self.db.read(forgetting.named_by, row_id)
        await self._append_to_file(revocations)
        return await self.db.write(forgetting.undo_one, row_id, revocations, now=ids.now(), by=by)

    async def _append_to_file(self, lines: Sequence[Stone]) -> None:
        """Append to the tombstone file, one writer at a time."""
        if lines:
            async with self.file_lock:
                await asyncio.to_thread(stones.keep, self.config.data_dir, lines)

    # --- undo --------------------------------------------------------------------------------------------------------

    async def undo(self, number: int) -> Row:
        """Undo a deletion.

        The revocation is written to the file first: after a crash in between, the undo can be repeated and nothing is
        deleted again.
        """
        async with self.lock:
            await self.db.read(forgetting.undoable, number)
            await self._append_to_file([Stone(number, back=True)])
            result = await self.db.write(forgetting.undo, number, now=ids.now())
        await self.after(result["projects"])
        await self.record("undone", number=number, counts=result["counts"])
        return {"number": number, **result}

    # --- recovery ----------------------------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Complete interrupted deletions and re-apply deletions missing from a restored database.

        Runs once at start, before any query is answered. It deletes only from the tables; `finish` clears the files.
        """
        if self.recovered:
            return
        all_tombstones = await asyncio.to_thread(stones.kept, self.config.data_dir)
        request = await asyncio.to_thread(wishes.kept, self.config.data_dir)
        if request is not None:
            await self._resume(request, [tombstone for tombstone in all_tombstones if tombstone.n == request.n])
        for number in await self._unfinished_ids(all_tombstones, request):
            await self._reapply(number, [tombstone for tombstone in all_tombstones if tombstone.n == number])
        self.recovered = True

    async def _unfinished_ids(self, all_tombstones: list[Stone], request: Wish | None) -> list[int]:
        missing = await self.db.read(stones.missing, all_tombstones)
        undone = await self.db.read(forgetting.undone)
        revoked = {tombstone.n for tombstone in missing if tombstone.at <= undone.get(tombstone.n, -1)}
        await self._append_to_file(
            [Stone(n, back=True) for n in sorted(revoked)]
        )  # undone, but not yet revoked in the file
        interrupted = await self.db.read(forgetting.unfinished)
        return sorted({*interrupted, *(tombstone.n for tombstone in missing)} - revoked - {request.n if request else 0})

    async def _resume(self, request: Wish, existing: list[Stone]) -> None:
        """Resume an interrupted deletion from its request."""
        self.progress = progress = Progress(request.n, erased=request.erased, busy=True, counts=dict(request.counts))
        await self.db.write(forgetting.known, request.n, at=request.at, erased=request.erased)
        affected = await self.db.write(forgetting.rest, request.scope, existing, erase=request.erased, upto=request.at)
        await self.db.write(stones.put, existing)
        log.warning("deletion F%d is resumed: %d rows", request.n, affected.size())
        all_tombstones = await self._delete_from_database(request, affected, existing, progress)
        self.unfinished.append((request, all_tombstones, progress))

    async def _reapply(self, number: int, own_tombstones: list[Stone]) -> None:
        """Apply a deletion again from its tombstones alone."""
        if not own_tombstones:
            await self.db.write(forgetting.end, number, {}, now=ids.now())  # interrupted before it began
            return
        first = own_tombstones[0]
        await self.db.write(forgetting.known, number, at=first.at, erased=first.erased)
        await self.db.write(stones.put, own_tombstones)
        affected = await self.db.write(forgetting.marked, own_tombstones)
        log.warning("deletion F%d is applied again: %d rows", number, affected.size())
        progress = Progress(number=number, erased=first.erased)
        await self.take_away(affected, progress, now=first.at)
        self.unfinished.append((Wish(number, first.at, first.erased, Scope(ids=(-1,))), own_tombstones, progress))

    def finish(self) -> asyncio.Task[None]:
        """Clear the files of recovered deletions in the background. Failures are retried at the next start."""
        if self.finishing is None:
            self.finishing = asyncio.create_task(self._finish())
        return self.finishing

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
        if await self.db.read(forgetting.is_due, now=now):
            while await self.db.write(forgetting.expire, now=now):
                pass
            await self.db.truncate_wal()

    def progress_as_dict(self) -> Row:
        return asdict(self.progress)


def _count_outcomes(progress: Progress) -> dict[str, int]:
    return {outcome: len(names) for outcome, names in progress.copies.items()}


def _clean_copy(path: Path, config: Config, scope: Scope, tombstones: list[Stone], content: Words) -> str:
    """Clean one copy. Any error is logged and reported as `failed`, so that it blocks neither the other copies nor the
    start of the worker."""
    try:
        return traces.clean_copy(path, config, scope, tombstones, content)
    except Exception as problem:
        log.error("%s could not be rewritten: %s: %s", path.name, type(problem).__name__, problem)
        return "failed"
