"""Forgets by scope: shows what will go, takes it away a portion at a time, and, for good, from every file of ours."""

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

FEW_BYTES = 4 << 20


@dataclass(slots=True)
class Progress:
    """How far it is, and when it is done what came of it."""

    number: int = 0
    erased: bool = False
    busy: bool = False
    doing: str = ""
    done: int = 0
    total: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    undo_until: int | None = None
    copies: dict[str, list[str]] = field(default_factory=dict)  # names, by what became of them
    left: list[str] = field(default_factory=list)  # files in which the text that was asked for still stands
    error: str = ""


class Forgetter:
    """One at a time: each waits for the one before."""

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
        self.lock = asyncio.Lock()  # also taken by whoever makes a copy of the database
        self.noting = asyncio.Lock()
        self.progress = Progress()
        self.task: asyncio.Task[None] | None = None
        self.recovered = False
        self.owed: list[tuple[Wish, list[Stone], Progress]] = []  # whose files are still to be seen to
        self.finishing: asyncio.Task[None] | None = None

    # --- asking ------------------------------------------------------------------------------------------------------

    async def preview(self, scope: Scope, *, erase: bool) -> Row:
        await self._drain()
        found = await self.db.read(scopes.find, scope, erase=erase)
        told = await self.db.read(scopes.preview, found)
        if not erase:
            return {**told, "empty": not found}
        files = await asyncio.to_thread(traces.waiting, self.config, scope, until=ids.now())
        copies = await asyncio.to_thread(traces.copies, self.config)
        told["counts"] |= {"waiting files": len(files), "backups": len(copies)}
        return {**told, "empty": False}  # a copy or a log may have what is long gone from the tables

    def start(self, scope: Scope, *, erase: bool) -> Progress:
        """In the background; `progress` tells how far it is."""
        if self.progress.busy:
            raise CannotDo("something is being forgotten just now", hint="try again in a moment")
        self.progress = Progress(erased=erase, busy=True)
        self.task = asyncio.create_task(self._watched(self.forget(scope, self.progress), self.progress))
        return self.progress

    async def stop(self) -> None:
        """Whoever opens the database next goes on."""
        tasks = {task for task in (self.task, self.finishing) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _watched(self, work: Coroutine[Any, Any, None], progress: Progress) -> None:
        try:
            await work
        except MemError as problem:
            progress.error = str(problem)
        except asyncio.CancelledError:
            progress.error = "it was broken off, since the worker stops or opens anew"
            raise
        except Exception as problem:
            log.exception("forgetting ended")
            progress.error = f"something went wrong ({type(problem).__name__}); `claude-mem logs` has the details"
        finally:
            progress.busy = False

    # --- doing -------------------------------------------------------------------------------------------------------

    async def forget(self, scope: Scope, progress: Progress) -> None:
        async with self.lock:
            self._see_to_room()
            await self._drain()
            now, erase = ids.now(), progress.erased
            found = await self.db.read(scopes.find, scope, erase=erase)
            progress.counts = (await self.db.read(scopes.preview, found, first=0))["counts"]
            rare = await self._rare(found) if erase else frozenset()
            progress.number = await self.db.write(forgetting.begin, erased=erase, now=now)
            wish = Wish(progress.number, now, erase, scope, rare, dict(progress.counts))
            await asyncio.to_thread(wishes.keep, self.config.data_dir, wish)
            made = await self._from_database(wish, found, (), progress)
            await self._from_files(wish, made, progress)
        await self._on_record(progress)

    async def _on_record(self, progress: Progress) -> None:
        told = {"number": progress.number, "counts": progress.counts, "copies": _many(progress)}
        await self.record("erased" if progress.erased else "forgotten", **told)

    def _see_to_room(self) -> None:
        """The stones and the copies are files of their own, for which no full database gives the ballast up."""
        if room.free(self.config.data_dir) < FEW_BYTES:
            self.db.make_room()

    async def _drain(self) -> None:
        """What waits may be of it."""
        while await self.drain():
            pass

    async def _rare(self, found: Found) -> frozenset[str]:
        return await self.db.read(lambda conn: rare_words(forgetting.texts_of(conn, found)))

    async def _from_database(self, wish: Wish, found: Found, known: Sequence[Stone], progress: Progress) -> list[Stone]:
        """All that is told or found from, and what could still come in. The stones: those left before, and new ones."""
        progress.total = found.size()
        made = [*known, *await self._leave_stones(wish, found, {stone.mark for stone in known})]
        await self.take_away(found, progress, now=wish.at)
        if wish.erased:
            await self._waiting_files(wish, progress)
        return made

    async def _leave_stones(self, wish: Wish, found: Found, known: Collection[str]) -> list[Stone]:
        make = partial(forgetting.stones_for, n=wish.n, erased=wish.erased, now=wish.at)
        made = [stone for stone in await self.db.read(make, wish.scope, found) if stone.mark not in known]
        await self._note(made)
        await self.db.write(stones.put, made)
        return made

    async def take_away(self, found: Found, progress: Progress, *, now: int) -> None:
        """In small transactions: whoever captures or asks meanwhile goes in between."""
        affected = await self.db.read(forgetting.projects_of, found)
        await self._drop_starts(affected)
        titled = await self.db.read(forgetting.strip_touched, found)
        take = partial(forgetting.take_away, n=progress.number, erase=progress.erased, now=now)
        progress.doing = "the database"
        for part in (*found.parts(), Found(sessions=titled)):
            await self.db.write(take, part)
            progress.done += part.size()
        await self.db.write(forgetting.digest_again, found.turns, n=progress.number, now=now)
        await self.db.write(forgetting.retitle, sorted({*titled, *found.sessions} - {*found.whole}))
        await self.after(affected)

    async def _drop_starts(self, project_ids: Sequence[int]) -> None:
        """Before it is gone from the tables: no session may be told of it from the disk meanwhile."""
        for project_id in project_ids:
            for folder in await self.db.read(projects.folders, project_id):
                await asyncio.to_thread(traces.shred, self.config.starts / hook.start_name(folder))

    async def _waiting_files(self, wish: Wish, progress: Progress) -> None:
        """Events that could not be taken in. Softly they stay: nothing tells or finds them."""
        for path in await asyncio.to_thread(traces.waiting, self.config, wish.scope, until=wish.at):
            progress.doing = "files that wait"
            await asyncio.to_thread(traces.shred, path)
            await self.db.write(events.left_out, path.name, forgetting.FORGOTTEN, now=ids.now())
            progress.counts["waiting files"] = progress.counts.get("waiting files", 0) + 1

    async def _from_files(self, wish: Wish, made: list[Stone], progress: Progress) -> None:
        needle = Needle(wish.scope.matching) if wish.scope.matching else None
        if wish.erased:
            await self._erase_files(wish.scope, made, Words(needle, wish.rare), progress)
        await asyncio.to_thread(wishes.drop, self.config.data_dir)
        if wish.erased and needle is not None:
            progress.doing = "looking for what is left"
            progress.left = sorted({*progress.left, *await asyncio.to_thread(traces.left, self.config, needle)})
        await self.db.write(forgetting.end, wish.n, progress.counts, now=ids.now())
        progress.undo_until = None if wish.erased else wish.at + KEEP_MS
        progress.doing = ""

    async def _erase_files(self, scope: Scope, made: list[Stone], words: Words, progress: Progress) -> None:
        progress.doing = "logs and caches"
        await self.db.write(forgetting.wipe_traces, words.in_line, quoted=words.quoted)
        await self.db.write(forgetting.drop_projects, scope.projects if scope.by_time else ())
        progress.counts["log entries"] = await asyncio.to_thread(traces.clean_logs, self.config, words)
        await asyncio.to_thread(traces.clean_small, self.config, words)
        await asyncio.to_thread(traces.drop_unfinished, self.config)
        await self.tidy()
        await self.db.scrub()
        for path in await asyncio.to_thread(traces.copies, self.config):
            progress.doing = f"backup {path.name}"
            outcome = await asyncio.to_thread(_clean_copy, path, self.config, scope, made, words)
            progress.copies.setdefault(outcome, []).append(path.name)
            if outcome != "kept":  # what was proven is not what is there now
                await self.db.write(checks.drop, f"{checks.DRILL}{path.name}")
        if self.db.unscrubbed and not await self.db.scrub():
            progress.left = [f"{self.db.path.name}-wal"]

    # --- one by itself -----------------------------------------------------------------------------------------------

    async def forget_one(self, row_id: int, *, by: str) -> int:
        """An observation, softly; until when it can be brought back. Nobody waits for a backup that is being made."""
        now, scope = ids.now(), Scope(ids=(row_id,))
        self._see_to_room()
        await self.db.read(observations.get, "observation", row_id)  # an error, before anything is noted
        number = await self.db.write(forgetting.begin, erased=False, now=now)
        wish = Wish(number, now, erased=False, scope=scope)
        made = await self._leave_stones(wish, Found(observations=[row_id]), ())
        return await self.db.write(forgetting.put_one_away, row_id, made, n=number, now=now, by=by)

    async def undo_one(self, row_id: int, *, by: str) -> Row:
        """What was last done to an observation: `{undone, ids}`."""
        named = await self.db.read(forgetting.named_by, row_id)
        await self._note(named)
        return await self.db.write(forgetting.undo_one, row_id, named, now=ids.now(), by=by)

    async def _note(self, told: Sequence[Stone]) -> None:
        """In the file; one after the other."""
        if told:
            async with self.noting:
                await asyncio.to_thread(stones.keep, self.config.data_dir, told)

    # --- undoing -----------------------------------------------------------------------------------------------------

    async def undo(self, number: int) -> Row:
        """Noted in the file first: whoever dies in between can undo it again, and nothing is forgotten anew."""
        async with self.lock:
            await self.db.read(forgetting.undoable, number)
            await self._note([Stone(number, back=True)])
            back = await self.db.write(forgetting.undo, number, now=ids.now())
        await self.after(back["projects"])
        await self.record("undone", number=number, counts=back["counts"])
        return {"number": number, **back}

    # --- what was not finished ---------------------------------------------------------------------------------------

    async def recover(self) -> None:
        """At a start, once, before anyone can ask. A database that was put back has what was forgotten since; one that
        we died at is half done. Here it leaves the tables; `finish` sees to the files."""
        if self.recovered:
            return
        kept = await asyncio.to_thread(stones.kept, self.config.data_dir)
        wish = await asyncio.to_thread(wishes.kept, self.config.data_dir)
        if wish is not None:
            await self._go_on(wish, [stone for stone in kept if stone.n == wish.n])
        for number in await self._left_over(kept, wish):
            await self._again(number, [stone for stone in kept if stone.n == number])
        self.recovered = True

    async def _left_over(self, kept: list[Stone], wish: Wish | None) -> list[int]:
        new = await self.db.read(stones.missing, kept)
        undone = await self.db.read(forgetting.undone)
        back = {stone.n for stone in new if stone.at <= undone.get(stone.n, -1)}
        await self._note([Stone(n, back=True) for n in sorted(back)])  # undone, but the file was not told
        broken_off = await self.db.read(forgetting.unfinished)
        return sorted({*broken_off, *(stone.n for stone in new)} - back - {wish.n if wish else 0})

    async def _go_on(self, wish: Wish, known: list[Stone]) -> None:
        """With what was asked for, as far as it has not been done."""
        self.progress = progress = Progress(wish.n, erased=wish.erased, busy=True, counts=dict(wish.counts))
        await self.db.write(forgetting.known, wish.n, at=wish.at, erased=wish.erased)
        found = await self.db.write(forgetting.rest, wish.scope, known, erase=wish.erased, upto=wish.at)
        await self.db.write(stones.put, known)
        log.warning("forgetting F%d goes on: %d rows", wish.n, found.size())
        made = await self._from_database(wish, found, known, progress)
        self.owed.append((wish, made, progress))

    async def _again(self, number: int, made: list[Stone]) -> None:
        """By the stones alone."""
        if not made:
            await self.db.write(forgetting.end, number, {}, now=ids.now())  # it died before it had begun
            return
        first = made[0]
        await self.db.write(forgetting.known, number, at=first.at, erased=first.erased)
        await self.db.write(stones.put, made)
        found = await self.db.write(forgetting.marked, made)
        log.warning("forgetting F%d is applied again: %d rows", number, found.size())
        progress = Progress(number=number, erased=first.erased)
        await self.take_away(found, progress, now=first.at)
        self.owed.append((Wish(number, first.at, first.erased, Scope(ids=(-1,))), made, progress))

    def finish(self) -> asyncio.Task[None]:
        """The files of what was not finished, in the background. What fails is tried again at the next start."""
        if self.finishing is None:
            self.finishing = asyncio.create_task(self._finish())
        return self.finishing

    async def _finish(self) -> None:
        async with self.lock:
            while self.owed:
                wish, made, progress = self.owed.pop(0)
                await self._watched(self._from_files(wish, made, progress), progress)
                if progress.error:
                    log.error("forgetting F%d is not finished: %s", wish.n, progress.error)
                elif progress is self.progress:  # what a person asked for; the rest was on record before
                    await self._on_record(progress)

    async def expire(self, now: int) -> None:
        """What was kept for its thirty days."""
        if await self.db.read(forgetting.is_due, now=now):
            while await self.db.write(forgetting.expire, now=now):
                pass
            await self.db.scrub()

    def told(self) -> Row:
        return asdict(self.progress)


def _many(progress: Progress) -> dict[str, int]:
    return {outcome: len(names) for outcome, names in progress.copies.items()}


def _clean_copy(path: Path, config: Config, scope: Scope, made: list[Stone], words: Words) -> str:
    """Whatever is the matter with one copy, the others are cleaned and the worker starts; it is named as `failed`."""
    try:
        return traces.clean_copy(path, config, scope, made, words)
    except Exception as problem:
        log.error("%s could not be rewritten: %s: %s", path.name, type(problem).__name__, problem)
        return "failed"
