"""The spaces of this machine: exchanges after turns and every few minutes, and changes of who belongs to them.

Without a space, nothing of `sync` is imported and the loop only waits. The modules of `sync` are imported when they are
needed, because they need an optional library.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from claude_mem.config import Config
from claude_mem.domain.errors import ClaudeMemError, InvalidRequest, NotFound
from claude_mem.storage.base import Database
from claude_mem.storage.spaces import Space
from claude_mem.sync.errors import Problem
from claude_mem.worker.http.schemas.spaces import Left, Machine, SpaceStatus
from claude_mem.worker.runner import wait_any

if TYPE_CHECKING:
    from claude_mem.sync.exchange import Exchange, Progress
    from claude_mem.sync.manifest import Manifest
    from claude_mem.sync.state import SpaceState

log = logging.getLogger(__name__)

SETTLE_SECONDS = 10.0  # after the end of a turn, in which further turns and the digest may follow
EXCHANGE_SECONDS = 300.0
IDLE_SECONDS = 3_600.0  # without a space: the loop only waits to be woken
STOP_SECONDS = 5.0  # that a stop waits for a running exchange


class SpaceService:
    """`after_exchange` is called when entries of others were applied; `erase` finishes erasures that others made."""

    def __init__(
        self,
        db: Database,
        config: Config,
        *,
        after_exchange: Callable[[], Awaitable[None]],
        erase: Callable[[Sequence[int]], Awaitable[object]],
    ) -> None:
        self.db = db
        self.config = config
        self.after_exchange = after_exchange
        self.erase = erase
        self.wake = asyncio.Event()
        self._lock = asyncio.Lock()  # one exchange, or one change of a space, at a time
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._progress: dict[str, Progress] = {}
        self._retried = set[str]()  # spaces whose held entries were looked at with the current settings
        self._has_spaces = (config.data_dir / "spaces").is_dir()
        self.turn_ended()  # others may have written while this machine was off

    # --- the loop ----------------------------------------------------------------------------------------------------

    def turn_ended(self) -> None:
        """Exchange soon."""
        if self._has_spaces:
            self.wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Exchange every space after turns and every few minutes, until stopped."""
        try:
            while not stop.is_set():
                await wait_any(self.wake, stop, seconds=EXCHANGE_SECONDS if self._has_spaces else IDLE_SECONDS)
                if stop.is_set() or not self._has_spaces:
                    self.wake.clear()
                    continue
                await wait_any(stop, seconds=SETTLE_SECONDS)
                self.wake.clear()
                if not stop.is_set():
                    await self._exchange_all(stop)
        finally:
            await self._stop()

    async def _exchange_all(self, stop: asyncio.Event) -> None:
        spaces = await self.db.read(lambda tx: tx.spaces.list_spaces())
        self._has_spaces = bool(spaces)
        for space in spaces:
            task = self.start(space)
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if stop.is_set():
                return

    async def _stop(self) -> None:
        """Give running exchanges a moment; what is cut off is continued by the next one."""
        if self._tasks:
            await asyncio.wait(set(self._tasks.values()), timeout=STOP_SECONDS)
        for task in [*self._tasks.values()]:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def start(self, space: Space, *, restore: bool = False) -> asyncio.Task[None]:
        """Start an exchange, or return the one that is running. Its errors are in the status."""
        task = self._tasks.get(space.id)
        if task is None:
            task = self._tasks[space.id] = asyncio.create_task(self._exchange_quietly(space.id, restore=restore))
            task.add_done_callback(lambda _: self._tasks.pop(space.id, None))
        return task

    async def _exchange_quietly(self, space_id: str, *, restore: bool) -> None:
        try:
            async with self._lock:
                await self._exchange(space_id, restore=restore)
        except ClaudeMemError as error:  # offline is normal; the status has the rest
            log.info("space %s: %s", space_id[:8], error)
        except Exception:
            log.exception("the exchange of space %s failed", space_id[:8])
            await self._note_failure(space_id)
        finally:
            self._progress.pop(space_id, None)

    async def _note_failure(self, space_id: str) -> None:
        from claude_mem.sync import state

        with suppress(OSError):
            current = state.load_state(self.config.data_dir, space_id)
            current.problems = [Problem("InternalError", "the exchange failed", "see `claude-mem logs`")]
            state.save_state(self.config.data_dir, space_id, current)

    async def _exchange(self, space_id: str, *, restore: bool = False) -> None:
        from claude_mem.sync.apply import apply_pending
        from claude_mem.sync.changes import collect_all
        from claude_mem.sync.keys import item_key

        exchange = await self._open(space_id)
        self._progress[space_id] = exchange.progress
        key = item_key(exchange.keys)

        async def collect() -> None:
            await collect_all(self.db, space_id, item_key=key, config=self.config)

        async def apply() -> None:
            retry_held = space_id not in self._retried
            self._retried.add(space_id)
            applied = await apply_pending(self.db, space_id, item_key=key, config=self.config, retry_held=retry_held)
            if applied.erasures:
                await self.erase(applied.erasures)
            if applied.outcomes:
                await self.after_exchange()

        with closing(exchange.transport):
            if restore:
                await exchange.restore_manifest()
            await exchange.run(collect=collect, apply=apply)

    async def _open(self, space_id: str) -> Exchange:
        from claude_mem.sync.exchange import Exchange
        from claude_mem.sync.keys import load_device_keys
        from claude_mem.sync.transports.address import open_transport

        space = await self.get(space_id)
        keys = load_device_keys(self.config.data_dir, space.id, space.device)
        transport = open_transport(space.transport, self.config.data_dir, keys)
        return Exchange(self.db, self.config.data_dir, space, transport)

    # --- spaces ------------------------------------------------------------------------------------------------------

    async def get(self, id_or_name: str) -> Space:
        """Return the space; raise `NotFound` if there is none."""
        return await self.db.read(lambda tx: tx.spaces.get_space(id_or_name))

    async def create(self, name: str, url: str, *, machine: str, code: str = "") -> Space:
        """Create a space at a transport, with this machine in it."""
        from claude_mem.sync import membership
        from claude_mem.sync.exchange import new_space_id
        from claude_mem.sync.transports.address import normalize

        url = normalize(url, base=Path("/"))
        async with self._lock:
            if name in {space.name for space in await self.db.read(lambda tx: tx.spaces.list_spaces())}:
                raise InvalidRequest(f"there is a space named {name!r} already", hint="choose another name")
            space = await asyncio.to_thread(
                membership.create_space,
                self.config.data_dir,
                new_space_id(),
                name,
                url,
                machine=machine or membership.default_machine_name(),
                code=code,
            )
            await self._store(space)
        return space

    async def add_joined(self, space_id: str, url: str) -> Space:
        """Store a space whose keys `claude-mem space join` has written."""
        from claude_mem.sync import membership
        from claude_mem.sync.keys import load_keys
        from claude_mem.sync.transports.address import normalize

        url = normalize(url, base=Path("/"))
        async with self._lock:
            space = membership.space_of(load_keys(self.config.data_dir, membership.check_id(space_id)), url)
            await self._store(space)
        return space

    async def _store(self, space: Space) -> None:
        await self.db.write(lambda tx: tx.spaces.create_space(space))
        self._has_spaces = True
        self.wake.set()  # the loop waits longer without a space
        self.start(space)

    async def leave(self, id_or_name: str) -> Left:
        """Forget a space here; the memory stays. The others are told if the transport can be reached."""
        from claude_mem.sync.state import delete_files

        space = await self.get(id_or_name)
        problem = ""
        async with self._lock:
            try:
                exchange = await self._open(space.id)
                with closing(exchange.transport):
                    await exchange.leave()
            except ClaudeMemError as error:
                problem = str(error)
            await self.db.write(lambda tx: tx.spaces.leave_space(space.id))
            await asyncio.to_thread(delete_files, self.config.data_dir, space.id)
        return Left(told=not problem, problem=problem)

    async def rotate(self, id_or_name: str, *, revoked: str = "") -> Space:
        """Give a space a new key, without the machine `revoked`. Exchanges before and after."""
        space = await self.get(id_or_name)
        if revoked == space.device:
            raise InvalidRequest("this is the machine itself", hint="use `claude-mem space leave`")
        async with self._lock:
            await self._exchange(space.id)
            exchange = await self._open(space.id)
            with closing(exchange.transport):
                manifest = await exchange.refresh_manifest()
                if revoked and (revoked not in manifest.members or not manifest.members[revoked].is_active):
                    raise NotFound(f"no machine {revoked} belongs to the space", hint="`claude-mem space devices`")
                await exchange.rotate(revoked=revoked)
            await self._exchange(space.id)
        return space

    async def select_projects(self, id_or_name: str, identities: Sequence[str]) -> Space:
        """Set which projects are shared; none for all."""
        space = await self.get(id_or_name)
        await self.db.write(lambda tx: tx.spaces.select_projects(space.id, identities))
        self._retried.discard(space.id)
        self.start(space)
        return space

    # --- status ------------------------------------------------------------------------------------------------------

    async def list(self) -> list[SpaceStatus]:
        """Return the status of every space."""
        if not self._has_spaces:
            return []
        return [await self.status(space) for space in await self.db.read(lambda tx: tx.spaces.list_spaces())]

    async def status(self, space: Space) -> SpaceStatus:
        """Return a space as this machine sees it. The transport is not asked."""
        heads, conflicts, refused = await self.db.read(
            lambda tx: (
                tx.spaces.heads(space.id),
                # Every machine has a record of its own of a common project: its path there is no conflict.
                sum(conflict.kind != "project" for conflict in tx.spaces.list_conflicts(space.id)),
                tx.spaces.count_refused(space.id),
            )
        )
        return await asyncio.to_thread(self._describe, space, heads, conflicts, refused)

    def _describe(self, space: Space, heads: dict[str, int], conflicts: int, refused: dict[str, int]) -> SpaceStatus:
        try:
            state, manifest, machine = self._load(space)
            machines = _machines(space, state, manifest, heads)
            problems, notes = state.problems, state.notes
            times = (state.attempted_at, state.exchanged_at, state.offline)
        except (ClaudeMemError, OSError) as error:  # the extra is not installed, or the keys are gone
            machine, machines, notes, times = "", [], [], (0, 0, "")
            problems = [Problem(type(error).__name__, str(error), getattr(error, "hint", ""))]
        progress = self._progress.get(space.id)
        return SpaceStatus(
            id=space.id,
            name=space.name,
            kind=space.kind,
            transport=space.transport,
            device=space.device,
            machine=machine,
            epoch=space.epoch,
            projects=list(space.projects),
            created_at=space.created_at,
            attempted_at=times[0],
            exchanged_at=times[1],
            offline=times[2],
            machines=machines,
            problems=problems,
            notes=notes,
            conflicts=conflicts,
            refused=refused,
            busy=space.id in self._tasks,
            phase=progress.phase if progress else "",
            done={machine: progress.uploaded, **progress.downloaded} if progress else {},
            total={machine: progress.to_upload, **progress.to_download} if progress else {},
        )

    def _load(self, space: Space) -> tuple[SpaceState, Manifest | None, str]:
        from claude_mem.sync import manifest as manifests
        from claude_mem.sync.keys import load_device_keys
        from claude_mem.sync.state import load_state

        keys = load_device_keys(self.config.data_dir, space.id, space.device)
        state = load_state(self.config.data_dir, space.id)
        manifest = manifests.decode(state.manifest, keys) if state.manifest else None
        return state, manifest, keys.device_name


def _machines(space: Space, state: SpaceState, manifest: Manifest | None, heads: dict[str, int]) -> list[Machine]:
    members = manifest.members.values() if manifest else ()
    return [
        Machine(
            device=member.device,
            name=member.name,
            own=member.device == space.device,
            here=heads.get(member.device, 0),
            there=state.heads.get(member.device, 0),
            since=member.since,
            until=member.until,
        )
        for member in members
    ]
