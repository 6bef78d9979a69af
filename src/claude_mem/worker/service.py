"""Opens everything, runs the loops, closes in reverse. The only place where parts are put together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from claude_mem import ids, modes, own_files, process, redact, secret_rules
from claude_mem.auditlog import Fact
from claude_mem.config import Config
from claude_mem.errors import NotFound
from claude_mem.failpoints import failpoint
from claude_mem.pipeline import ingest, recall
from claude_mem.pipeline.backfill import backfill
from claude_mem.pipeline.bring import bring
from claude_mem.pipeline.compress import compress
from claude_mem.pipeline.index import Indexer
from claude_mem.pipeline.reconcile import reconcile
from claude_mem.pipeline.refine import Refiner
from claude_mem.pipeline.render import render
from claude_mem.pipeline.reread import Transcripts, is_there
from claude_mem.pipeline.rewrite import rewrite
from claude_mem.pipeline.scrub import Scrubber
from claude_mem.pipeline.transcripts import Unfinished
from claude_mem.projects import Project
from claude_mem.providers import embed
from claude_mem.providers.base import Compressor
from claude_mem.providers.chain import Chain
from claude_mem.providers.embedding import Embedder
from claude_mem.providers.local import LocalCompressor
from claude_mem.records import Job, News, Outcome, Type
from claude_mem.spool import Spool, write_private
from claude_mem.store import (
    account,
    backfills,
    backup,
    corrections,
    damage,
    events,
    foreign,
    jobs,
    notices,
    projects,
    provenance,
    rewrites,
    sessions,
    stones,
    timeline,
)
from claude_mem.store.database import Connection, Database, Row, ours
from claude_mem.store.jobs import Order
from claude_mem.store.scopes import Scope
from claude_mem.store.search import Filter
from claude_mem.store.timeline import Anchor
from claude_mem.worker import saving, sweeps, traces
from claude_mem.worker.clock import Clock
from claude_mem.worker.forgetter import Forgetter, Progress
from claude_mem.worker.keeper import POLL_SECONDS, Keeper
from claude_mem.worker.recorder import Recorder
from claude_mem.worker.runner import Runner, wait_any
from claude_mem.worker.stream import Stream
from claude_mem.worker.teller import Teller
from claude_mem.worker.watch import Watch

log = logging.getLogger(__name__)

DRAIN_POLL_SECONDS = 2.0
SWEEP_SECONDS = 30.0
STALE_TEMP_SECONDS = 600.0
SETTLE_SECONDS = 0.1
REFINE_SECONDS = 150.0  # longer than a request's own deadline
REFINE_GRACE_SECONDS = 0.5
INDEX_REST_SECONDS = 0.005
INDEX_POLL_SECONDS = 5.0
BACKFILL_REST_SECONDS = 0.5
REWRITE_REST_SECONDS = 0.02
YIELD_SECONDS, YIELD_POLL_SECONDS = 2.0, 0.005
TROUBLE_SECONDS = 2.0
FILES_AT_ONCE = 500


class Service:
    """One worker's inside. It must be the holder of the data directory's lock."""

    def __init__(
        self,
        config: Config,
        *,
        compressor: Compressor | None = None,
        chain: Chain | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        self.config = config
        self.started_at = ids.now()
        self.clock = Clock()
        self.stop = asyncio.Event()
        self.anew = False  # after the stop: open again, with the settings as they are then
        self.is_in_place: Callable[[], bool] = lambda: True  # is the data directory still the one that was locked
        self.problem = ""  # the database is damaged, or seems so: whoever opens it again sees to it
        self.wake = asyncio.Event()
        self.spool = Spool(config.spool, config.aside)
        redact.know(process.known_token(config.data_dir))
        secret_rules.use_own(config.data_dir)
        foreign.keep_copies_in(config.data_dir)
        backup.sweep(config.backups)
        traces.drop_unfinished(config)
        self.db = Database(ours(config.database), backups=config.backups)
        self.db.write_now(_repair_own_files, config.data_dir)
        self.keeper = Keeper(
            self.db, config, self.spool, found=self.is_damaged, stopping=self.stop.is_set, started_at=self.started_at
        )
        self.db.make_room = self.keeper.ballast.release
        self.stream = Stream()
        self.answered: dict[str, deque[float]] = {}  # how long the last answers took, by moment, in milliseconds
        self.mode, self.mode_problem = modes.load_forgiving(config.mode, config.modes)
        if self.mode_problem:
            log.error("%s; using `%s`", self.mode_problem, self.mode.name)
        self.icons = modes.icons(self.mode)
        self.chain = chain or Chain(config)
        self.refiner = Refiner(self.db, self.chain, config, self.mode, runtime=ids.new())
        self.indexer = Indexer(self.db, embedder or _embedder(config))
        self.scrubber = Scrubber(self.db, self.indexer, config)
        self.index_wake = asyncio.Event()
        self.recorder = Recorder(self.db, config.data_dir)
        self.refiner.leaving = self.recorder.leaving
        self.teller = Teller(self.db, config, self.indexer, self.recorder, self.icons, ready=self._caught_up)
        self.watch = Watch(self.db, self.spool, self.recorder)
        self.forgetter = Forgetter(
            self.db, config, drain=self.drain_once, after=self._forgotten, tidy=self._tidy, record=self.record
        )
        self.keeper.copying = self.scrubber.copying = self.forgetter.lock
        self._open_lanes(compressor or LocalCompressor(config.foreign_text))
        failpoint("serve.opened")

    def _open_lanes(self, compressor: Compressor) -> None:
        """Who does which jobs. What is in one lane waits for what is before it there, and for nothing in another."""
        digest = partial(compress, db=self.db, compressor=compressor, refining=self.refiner.possible)
        stages = {
            "reconcile": partial(reconcile, db=self.db, config=self.config, unfinished=Unfinished()),
            jobs.IMPORT: partial(bring, db=self.db, config=self.config),
            "compress": digest,
            "render": partial(render, db=self.db, config=self.config, icons=self.icons),
        }
        self.runner = Runner(self.db, stages, self.tell)
        # A lane of its own: a slow model must not hold up a memory. The newest first: it is the likeliest to be read.
        slow = {jobs.REFINE: self.refiner.refine}
        self.refining = Runner(self.db, slow, self.tell, seconds=REFINE_SECONDS, order=Order.NEWEST)
        # What is long past waits for everyone else. One part or turn at a time and in order, since a turn knows what
        # those before it were remembered for; reading and digesting side by side.
        self.past = tuple(
            Runner(self.db, {kind: stage}, self._tell_past, order=Order.SUBJECT, gate=self._others_first)
            for kind, stage in (
                (jobs.BACKFILL, partial(backfill, db=self.db, config=self.config)),
                (jobs.PAST, partial(digest, past=True)),
            )
        )
        reprocess = partial(rewrite, db=self.db, compressor=compressor, transcripts=Transcripts(self.config))
        # Not while something is forgotten: the rows that go must be those that were found.
        self.rewriting = Runner(
            self.db,
            {jobs.REWRITE: reprocess},
            self._tell_past,
            order=Order.SUBJECT,
            gate=self._everyone_first,
            lock=self.forgetter.lock,
        )

    def close(self) -> None:
        self.stream.close()
        self.db.close()

    def open_anew(self) -> None:
        """Stop, and let whoever opened this one open another. Nothing is lost by it: it is a stop like any other."""
        self.anew = True
        self.stop.set()

    def is_damaged(self, problem: str) -> None:
        self.problem = self.problem or problem
        self.open_anew()

    # --- loops -----------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Before anyone may ask: what was forgotten must not be told or read again, not even by the first to come."""
        loop = asyncio.get_running_loop()
        self.db.damaged = lambda error: _call_soon(loop, partial(self.is_damaged, str(error)))
        await self._lasting(self.forgetter.recover)

    async def run(self) -> None:
        """Until `stop` is set. If a loop dies, the whole worker dies and says why: half a worker helps no one."""
        await self.prepare()
        await self._lasting(self.recover)
        self.forgetter.finish()
        try:
            async with asyncio.TaskGroup() as group:
                for work in (self._drain_loop, self._sweep_loop, self._index_loop, self._keep_loop):
                    group.create_task(self._lasting(work))
                for lane in (self.runner, *self.past, self.rewriting):
                    group.create_task(self._lasting(partial(lane.run, self.stop)))
                group.create_task(self._refine_loop())
        finally:
            await self.scrubber.stop()  # whoever asked for it can ask again
            await self.forgetter.stop()

    async def _lasting(self, work: Callable[[], Awaitable[None]]) -> None:
        """A disk that is full, busy or out of order is waited for: what could not be written is still there to do."""
        last_error = ""
        while True:
            try:
                return await work()
            except Exception as error:
                if not damage.is_trouble(error):
                    raise
                if str(error) != last_error:
                    log.error("the disk does not take it (%s); it is tried again", error)
                last_error = str(error)
                if self.stop.is_set():
                    return None
                await wait_any(self.stop, seconds=TROUBLE_SECONDS)

    async def _keep_loop(self) -> None:
        await self.keeper.start()
        while not self.stop.is_set():
            await self.keeper.step(now=ids.now())
            await wait_any(self.stop, seconds=POLL_SECONDS)

    async def _refine_loop(self) -> None:
        """A request that runs when we are told to stop is given a moment, then cut off: its lease brings it back."""
        await self.chain.tidy()  # of a worker that was killed
        work = asyncio.create_task(self._lasting(partial(self.refining.run, self.stop)))
        stopping = asyncio.create_task(self.stop.wait())
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            await asyncio.wait({work}, timeout=REFINE_GRACE_SECONDS)
            work.cancel()
        stopping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work  # if it died, so do we
        await self.chain.close()

    async def recover(self) -> None:
        """At a start: no lease is valid, no half-written file is coming, and transcripts may have grown unseen."""
        now = ids.now()
        await self.forgetter.recover()
        await self.db.write(jobs.release_all, now=now)
        self.spool.sweep(older_than_seconds=STALE_TEMP_SECONDS, now=time.time())
        await self.sweep_gone()  # first: a turn whose agent is gone is over, and its last words count
        await self.db.write(sweeps.ask_grown, now=now)

    async def work_off(self) -> None:
        """Everything that waits, then return: `claude-mem drain`, and the tests."""
        await self.recover()
        await self.forgetter.finish()
        while await self.drain_once():
            pass
        await self.sweep()
        while any([await lane.step() for lane in (*self.past, self.rewriting, self.runner)]):
            pass
        while await self.indexer.catch_up():
            pass

    async def _others_first(self) -> None:
        """Whoever is at work now goes before what is long past; but not for ever."""
        deadline = time.monotonic() + YIELD_SECONDS
        while time.monotonic() < deadline:
            if not self.spool.pending(1) and not await self.db.read(jobs.waiting):
                return
            await asyncio.sleep(YIELD_POLL_SECONDS)

    async def _everyone_first(self) -> None:
        """Nobody waits for an old memory to be rewritten: whatever else there is to do goes before, back-fill too, and
        between two turns there is a rest. But it goes on, however long the others take."""
        deadline = time.monotonic() + YIELD_SECONDS
        await self._others_first()
        while time.monotonic() < deadline and any(lane.busy for lane in self.past):
            await asyncio.sleep(REWRITE_REST_SECONDS)
        await wait_any(self.stop, seconds=REWRITE_REST_SECONDS)

    async def _index_loop(self) -> None:
        """In small steps with a rest after each: whoever works or asks goes first. While old sessions are taken in, a
        longer one: each of their turns still changes, and would only be indexed again."""
        while not self.stop.is_set():
            self.index_wake.clear()
            while not self.stop.is_set() and await self.indexer.step():
                busy = any(lane.busy for lane in (*self.past, self.rewriting))
                await wait_any(self.stop, seconds=BACKFILL_REST_SECONDS if busy else INDEX_REST_SECONDS)
            await wait_any(self.index_wake, self.stop, seconds=INDEX_POLL_SECONDS)

    async def _drain_loop(self) -> None:
        while not self.stop.is_set():
            self.wake.clear()
            while not self.stop.is_set() and await self.drain_once():
                pass
            await wait_any(self.wake, self.stop, seconds=DRAIN_POLL_SECONDS)

    async def drain_once(self) -> int:
        if not self.is_in_place():
            return 0  # these events are another worker's: what we keep of them would be kept where nobody looks
        count, news = await ingest.drain(self.db, self.spool, self.config)
        if count:
            self._show_activity(news)
            await self.tell(news)
            self.runner.wake.set()
        return count

    async def _sweep_loop(self) -> None:
        while not self.stop.is_set():
            await self.sweep()
            await wait_any(self.stop, seconds=SWEEP_SECONDS)

    async def sweep(self) -> None:
        """Close what nobody will close any more."""
        if back := self.clock.set_back():
            log.warning("the clock was set back by %d seconds", back // 1000)
            await self.db.write(sweeps.set_back, by=back)
        now = ids.now()
        closed = await self.db.write(sweeps.close_silent, now=now, silence_ms=self.config.silence_minutes * 60_000)
        closed += await self.sweep_gone()
        await self.db.write(sessions.interrupt_idle, before=now - self.config.session_hours * 3_600_000)
        await self._sweep_attic(now)
        if await self.db.read(rewrites.is_any):
            await self.db.write(rewrites.ask_few, now=now)
            self.rewriting.wake.set()
        await self.watch.look()
        failpoint("sweep.stale")
        if closed:
            self.runner.wake.set()

    async def _sweep_attic(self, now: int) -> None:
        """What was forgotten is kept for its time, then erased, in the files too."""
        if await self.db.read(corrections.is_due, now=now):
            await self.db.write(corrections.sweep, now=now)
            await self.db.scrub()
        await self.forgetter.expire(now)
        if self.db.unscrubbed:
            await self.db.scrub()

    async def sweep_gone(self) -> int:
        """Turns whose agent has died: they need not wait for the silence."""
        dead_sessions = [session for session in await self.db.read(sessions.unfinished) if sweeps.is_gone(session)]
        closed = (
            await self.db.write(sweeps.close_gone, [session.id for session in dead_sessions], now=ids.now())
            if dead_sessions
            else 0
        )
        if closed:
            self.runner.wake.set()
        return closed

    # --- what the API asks -----------------------------------------------------------------------------------

    @property
    def at_work(self) -> list[Job]:
        """The jobs that are being done at this moment."""
        return [lane.job for lane in (self.runner, self.refining, *self.past, self.rewriting) if lane.job]

    async def tell(self, news: Sequence[News]) -> None:
        """What was committed is told to the listeners; what was erased is erased from the log as well."""
        if any(item.type == ingest.HIDDEN for item in news):
            await self.db.scrub()
        self.index_wake.set()
        self.stream.publish(news)
        for lane in (self.runner, self.refining, *self.past, self.rewriting):
            lane.wake.set()  # what was done in one may have asked for something in another

    async def _tell_past(self, news: Sequence[News]) -> None:
        """Most of what is long past is no news, and then nobody is woken for it but who has to go on with it."""
        if news:
            await self.tell(news)
        self.index_wake.set()
        self.past[1].wake.set()

    async def settle(self, seconds: float) -> bool:
        """Wait, but not long, until everything captured so far is digested. True if it is."""
        deadline = time.monotonic() + seconds
        self.wake.set()
        while self.spool.pending(1) or await self.db.read(jobs.waiting) > 0:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.004)
        return True

    async def _caught_up(self) -> None:
        """As far as that can be had at once: whoever waits for it is about to start a session."""
        await self.sweep_gone()
        await self.settle(SETTLE_SECONDS)

    async def taken(self, event_id: str, seconds: float) -> Outcome | None:
        """What became of an event, as soon as that is known."""
        deadline = time.monotonic() + seconds
        while (outcome := await self.db.read(events.receipt, event_id)) is None and time.monotonic() < deadline:
            await asyncio.sleep(0.004)
        return outcome

    async def take_in(self, header: dict[str, str], payload: bytes) -> str:
        """An event that came by HTTP goes the same way as all others, and is safe before it is acknowledged."""
        event_id = await asyncio.to_thread(self.spool.put, header, payload)
        self.wake.set()
        return event_id

    async def save(
        self,
        project: Project,
        title: str,
        text: str,
        *,
        by: str = "user",
        place: Project | None = None,
        type_: str = Type.DISCOVERY,
    ) -> tuple[int, str]:
        """Something that is to be remembered, by itself and for good; said by a person, or by an agent that works in a
        place. Its number and, if it has to wait for a person's word, why."""
        saved = await self.db.write(saving.save, project, title, text, by=by, place=place, type_=type_)
        self.stream.publish([News("new_observation", {"id": saved.id, "session_id": None, "title": title})])
        await self.render_again(sorted(saved.project_ids))
        return saved.id, saved.held

    async def forget(self, row_id: int, *, by: str = corrections.PERSON) -> int:
        """It is no longer told or found; until when that can be undone."""
        until = await self.forgetter.forget_one(row_id, by=by)
        await self.corrected(await self.db.read(provenance.project_of, row_id), row_id=row_id)
        await self.record("forgotten", ids=[row_id], by=by)
        return until

    async def erase(self, row_id: int) -> list[int]:
        """For good, in every file; which observations that took with it."""
        erased_ids = await self.db.read(corrections.erasing, row_id)
        await self.forgetter.forget(Scope(ids=tuple(erased_ids)), Progress(erased=True))
        await self.corrected(await self.db.read(provenance.project_of, row_id), row_id=row_id)
        return erased_ids

    async def _forgotten(self, project_ids: Sequence[int]) -> None:
        """Something was forgotten, or came back: what is told and found is made again."""
        self.stream.publish([News("forgotten", {})])
        self.index_wake.set()
        await self.render_again(project_ids)

    async def _tidy(self) -> None:
        """What was made of it in memory, in the index, and in transcripts of a model's own."""
        while await self.indexer.catch_up():
            pass
        await self.chain.tidy(keep=await self.db.read(sessions.resumable, self.refiner.runtime))

    async def record(self, action: str, **facts: Fact) -> None:
        """On the audit log, after the deed: names and numbers, never content."""
        await self.recorder.note(action, **facts)

    async def corrected(self, project_id: int, *, kind: str = "observation", row_id: int = 0) -> None:
        """A person has changed what is remembered."""
        self.index_wake.set()
        self.stream.publish([News("corrected", {"kind": kind, "id": row_id, "project_id": project_id})])
        await self.render_again([project_id])

    async def merge_projects(self, source: int, target: int) -> Row:
        """Two projects become one, in the index and in the contexts on disk too."""
        moved = await self.db.write(projects.merge, source, target)
        await self.indexer.moved(source, target)
        self.index_wake.set()
        await self.render_again([target])
        return moved

    async def render_again(self, project_ids: Sequence[int]) -> None:
        """The contexts kept on disk must not tell what was corrected or forgotten, nor leave out what was saved."""
        for project_id in project_ids:
            await self.db.write(jobs.enqueue_render, project_id, now=ids.now())
        self.runner.wake.set()

    async def backfill(self, paths: Sequence[Path]) -> Row:
        """Have old transcripts read; those that were read before and have not changed are not."""
        files = await asyncio.to_thread(lambda: list(backfills.look(paths)))
        result: Row = {"backfill": None, "unchanged": 0}
        for begin in range(0, len(files), FILES_AT_ONCE):
            batch = files[begin : begin + FILES_AT_ONCE]
            enqueued = await self.db.write(backfills.ask, batch, now=ids.now())
            result = {**enqueued, "unchanged": result["unchanged"] + enqueued["unchanged"]}
        for lane in self.past:
            lane.wake.set()
        return result

    async def rewritable(self, selection: rewrites.Wanted) -> Row:
        """How many turns can be rewritten, from their events or from a transcript, and how many stay as they are."""
        counts = await self.db.read(rewrites.counts, selection)
        sources = await self.db.read(rewrites.sources, selection)
        from_transcripts = await asyncio.to_thread(lambda: sum(turns for source, turns in sources if is_there(source)))
        return {
            **counts,
            "rewritable": counts["rewritable"] + from_transcripts,
            "events_gone": counts["events_gone"] - from_transcripts,
        }

    async def reprocess(self, selection: rewrites.Wanted) -> Row:
        """Have memories of earlier versions written again; how many can be, how many stay as they are, and why."""
        counts = await self.rewritable(selection)
        enqueued = await self.db.write(rewrites.ask, selection, now=ids.now())
        self.rewriting.wake.set()
        return {**counts, "asked": enqueued}

    async def anchor(self, name: str, query: str, project_ids: list[int] | None) -> Anchor:
        """A moment, by its name or as the best hit of a question."""
        if name.strip():
            return await self.db.read(timeline.anchor, name)
        await self.indexer.catch_up()
        where = Filter(project_ids=tuple(project_ids) if project_ids is not None else None, kinds=tuple(timeline.MARKS))
        hits = await recall.find(self.db, self.indexer, recall.Question(text=query, where=where, limit=1))
        if not query.strip() or not hits:
            raise NotFound("nothing fits that", hint="name an anchor (ID, S12, date) or ask with other words")
        return await self.db.read(timeline.item, hits[0].kind, hits[0].id)

    async def totals(self) -> Row:
        return await self.db.read(account.totals, in_spool=len(self.spool.pending()))

    async def to_rewrite(self) -> int:
        """How many turns of earlier versions still wait to be rewritten."""
        return await self.db.read(rewrites.left)

    def _show_activity(self, news: Sequence[News]) -> None:
        relevant = [item for item in news if item.type in ("new_prompt", "turn_ended", "session_completed")]
        if relevant:
            self.show_activity(relevant[-1].type == "new_prompt", relevant[-1].data["project"])

    def show_activity(self, active: bool, project: str) -> None:
        """For status lines, which read a file and ask no one."""
        flag = {"active": active, "project": project, "timestamp": ids.now()}
        with contextlib.suppress(OSError):  # a full disk: nothing depends on it
            write_private(self.config.data_dir / "activity.flag", msgspec.json.encode(flag))


def _repair_own_files(conn: Connection, folder: Path) -> None:
    """Mend what protects a person's wishes, and have them told what was wrong with our files."""
    now = ids.now()
    if problem := stones.complete(conn, folder):
        log.error("%s", problem)
        notices.put(conn, f"file:{now}", f"claude-mem: {problem}.", now=now)
    stones.replace_key(folder)
    if problem := stones.put_lost(conn, folder, now=now):
        notices.put(conn, f"file:{problem}", f"claude-mem: {problem}.", now=now)
    for moved in own_files.recent(folder, now=now):
        text = f"claude-mem: its file {moved}. Another was made where one is needed."
        notices.put(conn, f"file:{moved.at}:{moved.name}", text, now=now)


def _call_soon(loop: asyncio.AbstractEventLoop, do: Callable[[], None]) -> None:
    """From another thread. If the loop has ended, there is nobody left to tell."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(do)


def _embedder(config: Config) -> Embedder | None:
    """The model that was fetched, if the name is one we know; words alone work without."""
    return embed.load(config.models, config.embedding_model) if config.embedding_model in embed.MODELS else None


def make_fifo(data_dir: Path) -> int:
    """Where hooks nudge us. Opened for both ends, so that it neither blocks nor ends when a hook closes it."""
    path = data_dir / "worker.fifo"
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
