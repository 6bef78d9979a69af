"""The worker's service: create every part, run the loops, and close the parts again.

All wiring is done here. Routes use the parts directly; the methods of `Service` are the operations that involve
several parts, such as writing to the database and then waking a runner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from claude_mem.capture import drain, timeouts, turns
from claude_mem.capture.backfill import backfill, stat_transcripts
from claude_mem.capture.timeouts import Clock
from claude_mem.capture.transcripts import UnfinishedReads, reconcile
from claude_mem.config import Config
from claude_mem.curate import erasure, saving
from claude_mem.curate.deletion import DeletionService
from claude_mem.curate.redaction import Scrubber
from claude_mem.curate.reprocess import TranscriptReader, count_reprocessable, fill_anchors, reprocess_turn
from claude_mem.digest import modes
from claude_mem.digest.compress import compress
from claude_mem.digest.models.base import Compressor
from claude_mem.digest.models.chain import ProviderChain
from claude_mem.digest.refine import Refiner
from claude_mem.digest.writer import LocalCompressor
from claude_mem.domain import ids
from claude_mem.domain.project_reports import MergePreview
from claude_mem.domain.records import Job, ObservationType, Receipt, StreamEvent
from claude_mem.domain.reports import BackfillRequested, DeletionProgress, EventAccount, ReprocessCounts
from claude_mem.inject.render import render
from claude_mem.inject.service import ContextService
from claude_mem.inject.worth import Holdout
from claude_mem.maintain.audit import AuditRecorder, SelfCheck
from claude_mem.maintain.maintenance import MAINTENANCE_POLL_SECONDS, Maintenance
from claude_mem.privacy import secret_rules, secrets
from claude_mem.recall import models
from claude_mem.recall.embed import Embedder
from claude_mem.recall.matrix import Indexer
from claude_mem.storage.base import Transaction
from claude_mem.storage.files import DatabaseFiles, is_transient_disk_error
from claude_mem.storage.journal_records import (
    ANCHOR_JOB,
    BACKFILL_JOB,
    DIGEST_BACKFILLED_JOB,
    IMPORT_JOB,
    REFINE_JOB,
    REPROCESS_JOB,
    ClaimOrder,
    ReprocessFilter,
)
from claude_mem.storage.records import PERSON, DeletionScope
from claude_mem.storage.sqlite.database import Database
from claude_mem.system import data_directory, process
from claude_mem.system.failpoints import failpoint
from claude_mem.system.project_folders import ResolvedProject
from claude_mem.system.spool import Spool, write_private
from claude_mem.transfer.import_ import import_batch
from claude_mem.worker.runner import Runner, wait_any
from claude_mem.worker.spaces import SpaceService
from claude_mem.worker.stream import Stream

log = logging.getLogger(__name__)

DRAIN_POLL_SECONDS = 2.0
SWEEP_SECONDS = 30.0
STALE_TEMP_SECONDS = 600.0  # after which a partial spool file was left by a process that died
SETTLE_SECONDS = 0.1  # that the start of a session waits for events captured just before
SETTLE_POLL_SECONDS = 0.004
REFINE_SECONDS = 150.0  # longer than a request's own deadline
REFINE_GRACE_SECONDS = 0.5
INDEX_REST_SECONDS = 0.005
INDEX_POLL_SECONDS = 5.0
BACKFILL_REST_SECONDS = 0.5
REPROCESS_REST_SECONDS = 0.02
YIELD_SECONDS, YIELD_POLL_SECONDS = 2.0, 0.005
DISK_RETRY_SECONDS = 2.0
BACKFILL_BATCH_FILES = 500


class Service:
    """Everything that runs inside one worker. The process must hold the lock of the data directory."""

    def __init__(
        self,
        config: Config,
        *,
        compressor: Compressor | None = None,
        chain: ProviderChain | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        self.config = config
        self.started_at = ids.now_ms()
        self.clock = Clock()
        self.stop = asyncio.Event()
        self.restart_requested = False  # after the stop, open another service with the current settings
        self.is_in_place: Callable[[], bool] = lambda: True  # whether the data directory is still the locked one
        self.damage_reason = ""  # why the database seems damaged; the next start examines and repairs it
        self.wake = asyncio.Event()
        self.spool = Spool(config.spool, config.aside)
        secrets.add_known_secret(process.read_token(config.data_dir))
        secret_rules.load_user_rules(config.data_dir)
        self.files = DatabaseFiles(config)
        self.files.prepare()
        erasure.erase_unfinished_copies(self.files)
        self.db = Database(self.files.path, backups=config.backups)
        self.db.write_now(_repair_own_files, self.files)
        self.maintenance = Maintenance(
            self.db,
            config,
            self.spool,
            self.files,
            on_damage=self.report_damage,
            stopping=self.stop.is_set,
            started_at=self.started_at,
        )
        self.db.free_disk_space = self.maintenance.reserve_file.release
        self._create_services(chain, embedder)
        self._create_runners(compressor or LocalCompressor(config.foreign_text))
        failpoint("serve.opened")

    def _create_services(self, chain: ProviderChain | None, embedder: Embedder | None) -> None:
        """Create what answers requests and runs jobs, and connect the parts with one another."""
        config = self.config
        self.stream = Stream()
        self.response_times: dict[str, deque[float]] = {}  # milliseconds of the last responses, by trigger
        self.mode, self.mode_problem = modes.load_mode_lenient(config.mode, config.modes)
        if self.mode_problem:
            log.error("%s; using `%s`", self.mode_problem, self.mode.name)
        self.icons = modes.type_icons(self.mode)
        self.chain = chain or ProviderChain(config)
        self.refiner = Refiner(self.db, self.chain, config, self.mode, runtime=ids.new_event_id())
        self.indexer = Indexer(self.db, embedder or models.open_embedder(config.models, config.embedding_model))
        self.scrubber = Scrubber(self.db, self.indexer, config, self.files)
        self.index_wake = asyncio.Event()
        self.recorder = AuditRecorder(self.db, config.data_dir)
        self.refiner.outgoing_recorder = self.recorder.record_request
        self.context_service = ContextService(
            self.db,
            config,
            self.indexer,
            self.recorder,
            self.icons,
            ready=self._settle_briefly,
            holdout=Holdout(config.holdout, self.files.make_keyed_hash()),
        )
        self.self_check = SelfCheck(self.db, self.spool, self.recorder)
        self.deletion_service = DeletionService(
            self.db,
            config,
            self.files,
            drain=self.drain_once,
            after=self._after_deletion,
            tidy=self._purge_derived,
            record=self.recorder.record,
        )
        self.spaces = SpaceService(
            self.db, config, after_exchange=partial(self.publish, ()), erase=self.deletion_service.complete
        )
        self.maintenance.copy_lock = self.scrubber.copy_lock = self.deletion_service.lock

    def _create_runners(self, compressor: Compressor) -> None:
        """Assign job kinds to runners. A job waits for the jobs before it in its own runner only."""
        digest = partial(compress, db=self.db, compressor=compressor, refining=self.refiner.is_available)
        stages = {
            "reconcile": partial(reconcile, db=self.db, config=self.config, unfinished=UnfinishedReads()),
            IMPORT_JOB: partial(import_batch, db=self.db, config=self.config),
            "compress": digest,
            "render": partial(render, db=self.db, config=self.config, icons=self.icons),
        }
        self.runner = Runner(self.db, stages, self.publish)
        # A separate runner: a slow model must not delay new memories. Newest first: they are the likeliest to be read.
        slow = {REFINE_JOB: self.refiner.refine}
        self.refine_runner = Runner(self.db, slow, self.publish, seconds=REFINE_SECONDS, order=ClaimOrder.NEWEST)
        # Back-fill yields to current work. It handles one part or turn at a time and in order, since a turn is digested
        # with the memories of the turns before it. Reading and digesting run side by side.
        self.backfill_runners = tuple(
            Runner(
                self.db,
                {kind: stage},
                self._publish_backfill,
                order=ClaimOrder.SUBJECT,
                gate=self._yield_to_current_work,
            )
            for kind, stage in (
                (BACKFILL_JOB, partial(backfill, db=self.db, config=self.config)),
                (DIGEST_BACKFILLED_JOB, partial(digest, past=True)),
            )
        )
        transcripts = TranscriptReader(self.config)
        reprocess = partial(reprocess_turn, db=self.db, compressor=compressor, transcripts=transcripts)
        anchor = partial(fill_anchors, db=self.db, transcripts=transcripts)
        # Never during a deletion: the rows that are deleted must be the rows that were selected.
        self.reprocess_runner = Runner(
            self.db,
            {REPROCESS_JOB: reprocess, ANCHOR_JOB: anchor},
            self._publish_backfill,
            order=ClaimOrder.SUBJECT,
            gate=self._yield_to_all_work,
            lock=self.deletion_service.lock,
        )

    def close(self) -> None:
        """Disconnect the listeners of the stream and close the database."""
        self.stream.close()
        self.db.close()

    def request_restart(self) -> None:
        """Request a restart in the same process. This is an ordinary graceful stop, so no work is lost."""
        self.restart_requested = True
        self.stop.set()

    def report_damage(self, problem: str) -> None:
        """Note the first sign of database damage and restart, so that the database is examined."""
        self.damage_reason = self.damage_reason or problem
        self.request_restart()

    # --- starting and loops ------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Apply pending deletions before the first request is accepted, so that no request can read deleted content."""
        loop = asyncio.get_running_loop()

        def report(error: BaseException) -> None:  # called from the database's threads
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has stopped already
                loop.call_soon_threadsafe(self.report_damage, str(error))

        self.db.on_damage = report
        await self._retry_disk_errors(self.deletion_service.recover)

    async def run(self) -> None:
        """Run until `stop` is set. If a loop fails, the whole worker exits with its error rather than run in part."""
        await self.prepare()
        await self._retry_disk_errors(self.recover)
        self.deletion_service.finish()
        try:
            async with asyncio.TaskGroup() as group:
                for work in (self._drain_loop, self._sweep_loop, self._index_loop, self._maintenance_loop):
                    group.create_task(self._retry_disk_errors(work))
                for runner in (self.runner, *self.backfill_runners, self.reprocess_runner):
                    group.create_task(self._retry_disk_errors(partial(runner.run, self.stop)))
                group.create_task(self._refine_loop())
                group.create_task(self._retry_disk_errors(partial(self.spaces.run, self.stop)))
        finally:
            await self.scrubber.stop()  # not resumed: it can be requested again
            await self.deletion_service.stop()

    async def _retry_disk_errors(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work`, retrying while the disk is full, busy or failing. What could not be written is still pending."""
        last_error = ""
        while True:
            try:
                return await work()
            except Exception as error:
                if not is_transient_disk_error(error):
                    raise
                if str(error) != last_error:
                    log.error("could not write to disk (%s); retrying", error)
                last_error = str(error)
                if self.stop.is_set():
                    return None
                await wait_any(self.stop, seconds=DISK_RETRY_SECONDS)

    async def _maintenance_loop(self) -> None:
        await self.maintenance.start()
        while not self.stop.is_set():
            await self.maintenance.step(now=ids.now_ms())
            await wait_any(self.stop, seconds=MAINTENANCE_POLL_SECONDS)

    async def _refine_loop(self) -> None:
        """Refine turns until stopped. A request that runs then gets a grace period; its lease brings the job back."""
        await self.chain.tidy()  # leftovers of a worker that was killed
        work = asyncio.create_task(self._retry_disk_errors(partial(self.refine_runner.run, self.stop)))
        stopping = asyncio.create_task(self.stop.wait())
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            await asyncio.wait({work}, timeout=REFINE_GRACE_SECONDS)
            work.cancel()
        stopping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work  # re-raises its error
        await self.chain.close()

    async def recover(self) -> None:
        """Recover at start: release all leases, delete partial spool files, reconcile transcripts that have grown."""
        now = ids.now_ms()
        await self.deletion_service.recover()
        await self.db.write(lambda tx: tx.journal.release_all_leases(now=now))
        self.spool.sweep(older_than_seconds=STALE_TEMP_SECONDS, now=time.time())
        await self.close_orphaned_turns()  # first: the turn of a dead agent is over, and its closing message counts
        await self.db.write(timeouts.enqueue_grown_transcripts, now=now)

    async def run_until_idle(self) -> None:
        """Process everything that is waiting, then return. Used by `claude-mem drain` and the tests."""
        await self.recover()
        await self.deletion_service.finish()
        while await self.drain_once():
            pass
        await self.sweep()
        while any([await runner.step() for runner in (*self.backfill_runners, self.reprocess_runner, self.runner)]):
            pass
        while await self.indexer.catch_up():
            pass

    async def _yield_to_current_work(self) -> None:
        """Wait until no current work is pending, for at most `YIELD_SECONDS`."""
        deadline = time.monotonic() + YIELD_SECONDS
        while time.monotonic() < deadline:
            if not self.spool.pending(1) and not await self.db.read(lambda tx: tx.journal.count_urgent_jobs()):
                return
            await asyncio.sleep(YIELD_POLL_SECONDS)

    async def _yield_to_all_work(self) -> None:
        """Wait for current work and back-fill before reprocessing a turn, and pause between two turns.

        The wait is limited, so that reprocessing advances even while other work continues.
        """
        deadline = time.monotonic() + YIELD_SECONDS
        await self._yield_to_current_work()
        while time.monotonic() < deadline and any(runner.busy for runner in self.backfill_runners):
            await asyncio.sleep(REPROCESS_REST_SECONDS)
        await wait_any(self.stop, seconds=REPROCESS_REST_SECONDS)

    async def _index_loop(self) -> None:
        """Index in small steps with a pause after each, so that captures and queries go first.

        The pause is longer during a back-fill: its turns still change and would only be indexed again.
        """
        while not self.stop.is_set():
            self.index_wake.clear()
            while not self.stop.is_set() and await self.indexer.step():
                busy = any(runner.busy for runner in (*self.backfill_runners, self.reprocess_runner))
                await wait_any(self.stop, seconds=BACKFILL_REST_SECONDS if busy else INDEX_REST_SECONDS)
            await wait_any(self.index_wake, self.stop, seconds=INDEX_POLL_SECONDS)

    async def _drain_loop(self) -> None:
        while not self.stop.is_set():
            self.wake.clear()
            while not self.stop.is_set() and await self.drain_once():
                pass
            await wait_any(self.wake, self.stop, seconds=DRAIN_POLL_SECONDS)

    async def drain_once(self) -> int:
        """Store one batch of spooled events. Return their number."""
        if not self.is_in_place():
            return 0  # these events belong to another worker; storing them in our unlinked database would lose them
        count, stream_events = await drain.drain_spool(self.db, self.spool, self.config)
        if count:
            prompts_and_ends = ("new_prompt", "turn_ended", "session_completed")
            if activity := [item for item in stream_events if item.type in prompts_and_ends]:
                self.write_activity_flag(activity[-1].type == "new_prompt", activity[-1].data["project"])
                if any(item.type != "new_prompt" for item in activity):
                    self.spaces.turn_ended()
            await self.publish(stream_events)
            self.runner.wake.set()
        return count

    async def _sweep_loop(self) -> None:
        while not self.stop.is_set():
            await self.sweep()
            await wait_any(self.stop, seconds=SWEEP_SECONDS)

    async def sweep(self) -> None:
        """Close turns and sessions that no event will close any more, and run the other periodic tasks."""
        if set_back_ms := self.clock.set_back():
            log.warning("the system clock was set back by %d seconds", set_back_ms // 1000)
            await self.db.write(timeouts.shift_due_times, by=set_back_ms)
        now = ids.now_ms()
        silence_ms = self.config.silence_minutes * 60_000
        closed_count = await self.db.write(timeouts.close_silent_turns, now=now, silence_ms=silence_ms)
        closed_count += await self.close_orphaned_turns()
        await self.db.write(
            lambda tx: tx.journal.interrupt_idle_sessions(before=now - self.config.session_hours * 3_600_000)
        )
        await self._erase_expired(now)
        if await self.db.read(lambda tx: tx.journal.has_outdated_turns()):
            await self.db.write(lambda tx: tx.journal.enqueue_next_outdated_turns(now=now))
            self.reprocess_runner.wake.set()
        await self.self_check.run()
        failpoint("sweep.stale")
        if closed_count:
            self.runner.wake.set()

    async def _erase_expired(self, now: int) -> None:
        """Erase deleted content, from files as well, once it can no longer be restored."""
        if await self.db.read(lambda tx: tx.memory.has_expired_deletions(now=now)):
            await self.db.write(lambda tx: tx.memory.erase_expired_deletions(now=now))
            await self.db.truncate_wal()
        await self.deletion_service.expire(now)
        if self.db.has_untruncated_wal:
            await self.db.truncate_wal()

    async def close_orphaned_turns(self) -> int:
        """Close turns whose agent process has exited, without waiting for the silence timeout. Return how many."""
        unfinished = await self.db.read(lambda tx: tx.journal.list_unfinished_sessions())
        session_ids = [session.id for session in unfinished if timeouts.has_agent_exited(session)]
        if not session_ids:
            return 0
        if count := await self.db.write(timeouts.close_orphaned_turns, session_ids, now=ids.now_ms()):
            self.runner.wake.set()
        return count

    # --- publishing and waiting --------------------------------------------------------------------------------------

    @property
    def _runners(self) -> tuple[Runner, ...]:
        return (self.runner, self.refine_runner, *self.backfill_runners, self.reprocess_runner)

    @property
    def running_jobs(self) -> list[Job]:
        """The jobs that are running now."""
        return [runner.job for runner in self._runners if runner.job]

    async def publish(self, stream_events: Sequence[StreamEvent]) -> None:
        """Publish committed changes to the stream and wake every runner. Truncate the WAL if content was hidden."""
        if any(item.type == turns.TURN_HIDDEN for item in stream_events):
            await self.db.truncate_wal()
        self.index_wake.set()
        self.stream.publish(stream_events)
        for runner in self._runners:
            runner.wake.set()  # one runner's result may have enqueued a job for another

    async def _publish_backfill(self, stream_events: Sequence[StreamEvent]) -> None:
        """Publish events of a back-fill, if any, and wake only the parts that continue the back-fill."""
        if stream_events:
            await self.publish(stream_events)
        self.index_wake.set()
        self.backfill_runners[1].wake.set()

    async def settle(self, seconds: float) -> bool:
        """Wait up to `seconds` until everything captured so far is digested. Return whether it is."""
        deadline = time.monotonic() + seconds
        self.wake.set()
        while self.spool.pending(1) or await self.db.read(lambda tx: tx.journal.count_urgent_jobs()) > 0:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(SETTLE_POLL_SECONDS)
        return True

    async def _settle_briefly(self) -> None:
        """Digest what can be digested at once; a starting session is waiting for this."""
        await self.close_orphaned_turns()
        await self.settle(SETTLE_SECONDS)

    async def wait_for_receipt(self, event_id: str, seconds: float) -> Receipt | None:
        """Return the receipt of an event as soon as there is one, or None after `seconds`."""
        deadline = time.monotonic() + seconds
        while (
            receipt := await self.db.read(lambda tx: tx.journal.find_receipt(event_id))
        ) is None and time.monotonic() < deadline:
            await asyncio.sleep(SETTLE_POLL_SECONDS)
        return receipt

    async def accept_event(self, header: dict[str, str], payload: bytes) -> str:
        """Write an event received over HTTP to the spool, so that it is on disk before it is acknowledged."""
        event_id = await asyncio.to_thread(self.spool.put, header, payload)
        self.wake.set()
        return event_id

    # --- memories and projects ---------------------------------------------------------------------------------------

    async def save(
        self,
        project: ResolvedProject,
        title: str,
        text: str,
        *,
        by: str = "user",
        place: ResolvedProject | None = None,
        type_: str = ObservationType.DISCOVERY,
    ) -> tuple[int, str]:
        """Save a memory stated by the user or by an agent working in `place`.

        Return its id and the reason why it needs approval ("" if it does not).
        """
        saved = await self.db.write(saving.save_memory, project, title, text, by=by, place=place, type_=type_)
        self.stream.publish([StreamEvent("new_observation", {"id": saved.id, "session_id": None, "title": title})])
        await self.enqueue_renders(sorted(saved.project_ids))
        return saved.id, saved.pending_reason

    async def forget(self, row_id: int, *, by: str = PERSON) -> int:
        """Delete an observation so that it is neither injected nor found. Return until when that can be undone."""
        until = await self.deletion_service.forget_one(row_id, by=by)
        await self.publish_correction(
            await self.db.read(lambda tx: tx.memory.get_observation_project_id(row_id)), row_id=row_id
        )
        await self.recorder.record("forgotten", ids=[row_id], by=by)
        return until

    async def erase(self, row_id: int) -> list[int]:
        """Erase an observation irreversibly from every file. Return the ids of all observations erased with it."""
        erased_ids = await self.db.read(lambda tx: tx.memory.list_ids_to_erase(row_id))
        await self.deletion_service.forget(DeletionScope(ids=tuple(erased_ids)), DeletionProgress(erased=True))
        await self.publish_correction(
            await self.db.read(lambda tx: tx.memory.get_observation_project_id(row_id)), row_id=row_id
        )
        return erased_ids

    async def _after_deletion(self, project_ids: Sequence[int]) -> None:
        """Refresh the index and the start contexts after rows were deleted or restored."""
        self.stream.publish([StreamEvent("forgotten", {})])
        self.index_wake.set()
        await self.enqueue_renders(project_ids)

    async def _purge_derived(self) -> None:
        """Remove deleted content from the index, from memory and from the transcripts of the model's own sessions."""
        while await self.indexer.catch_up():
            pass
        await self.chain.tidy(
            keep=await self.db.read(lambda tx: tx.journal.list_resumable_memory_sessions(self.refiner.runtime))
        )

    async def publish_correction(self, project_id: int, *, kind: str = "observation", row_id: int = 0) -> None:
        """Publish that a memory was corrected, and refresh the index and the start context."""
        self.index_wake.set()
        self.stream.publish([StreamEvent("corrected", {"kind": kind, "id": row_id, "project_id": project_id})])
        await self.enqueue_renders([project_id])

    async def merge_projects(self, source: int, target: int) -> MergePreview:
        """Merge two projects in the database, the index and the start contexts on disk."""
        result = await self.db.write(lambda tx: tx.memory.merge_project_into(source, target))
        await self.indexer.moved(source, target)
        self.index_wake.set()
        await self.enqueue_renders([target])
        return result

    async def enqueue_renders(self, project_ids: Sequence[int]) -> None:
        """Render start contexts on disk again: they must not show deleted or outdated content, nor miss new content."""
        for project_id in project_ids:
            await self.db.write(
                lambda tx, project_id: tx.journal.enqueue_render(project_id, now=ids.now_ms()), project_id
            )
        self.runner.wake.set()

    # --- back-fill, reprocessing and status --------------------------------------------------------------------------

    async def backfill(self, paths: Sequence[Path]) -> BackfillRequested:
        """Enqueue old transcripts for reading, except those that were read before and have not changed."""
        files = await asyncio.to_thread(lambda: list(stat_transcripts(paths)))
        result = BackfillRequested(backfill=None, unchanged=0)
        for start in range(0, len(files), BACKFILL_BATCH_FILES):
            batch = files[start : start + BACKFILL_BATCH_FILES]
            enqueued = await self.db.write(
                lambda tx, batch: tx.journal.enqueue_transcripts(batch, now=ids.now_ms()), batch
            )
            unchanged = result.unchanged + enqueued.unchanged
            result = BackfillRequested(backfill=enqueued.backfill, unchanged=unchanged)
        for runner in self.backfill_runners:
            runner.wake.set()
        return result

    async def reprocess(self, selection: ReprocessFilter) -> tuple[ReprocessCounts, int]:
        """Enqueue memories of earlier versions for reprocessing. Return the counts and the number of jobs."""
        counts = await count_reprocessable(self.db, selection)
        enqueued = await self.db.write(lambda tx: tx.journal.enqueue_reprocessing(selection, now=ids.now_ms()))
        self.reprocess_runner.wake.set()
        return counts, enqueued

    async def event_account(self) -> EventAccount:
        """Return how many events were captured, and how many of them are in each state."""
        return await self.db.read(lambda tx: tx.journal.count_event_account(in_spool=len(self.spool.pending())))

    def write_activity_flag(self, active: bool, project: str) -> None:
        """Write the activity file, which status lines read without asking the worker."""
        flag = {"active": active, "project": project, "timestamp": ids.now_ms()}
        with contextlib.suppress(OSError):  # for example a full disk: nothing depends on this file
            write_private(self.config.data_dir / "activity.flag", msgspec.json.encode(flag))


def _repair_own_files(tx: Transaction, files: DatabaseFiles) -> None:
    """Repair the tombstone files, and put up notices about own files that were damaged or lost."""
    now, folder = ids.now_ms(), files.data_dir
    if problem := tx.deletions.complete_tombstone_file(folder):
        log.error("%s", problem)
        tx.journal.add_notice(f"file:{now}", f"claude-mem: {problem}.", now=now)
    files.replace_lost_key()
    if problem := tx.deletions.insert_match_all_tombstone(folder, now=now):
        tx.journal.add_notice(f"file:{problem}", f"claude-mem: {problem}.", now=now)
    for moved in data_directory.recently_quarantined(folder, now=now):
        text = f"claude-mem: its file {moved}. It was created again if it is needed."
        tx.journal.add_notice(f"file:{moved.at}:{moved.name}", text, now=now)
