"""One exchange of a space: check the key, upload this machine's entries, download and verify those of the others.

Every step can be repeated: an entry is sealed once and kept in this machine's own sealed log, from which it is uploaded
as often as needed; the transport skips what it has; and the database ignores what it has stored. A crash or a cut
connection therefore loses nothing and doubles nothing, and the next exchange continues where the last one ended.

What is wrong with the log of one machine stops that log at that entry, and is shown; the others continue. What is wrong
with the manifest or the key stops the exchange before anything is uploaded.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TypeVar

from claude_mem.domain import ids
from claude_mem.domain.errors import ClaudeMemError, OperationFailed
from claude_mem.storage.base import Database
from claude_mem.storage.spaces import Space
from claude_mem.sync import manifest as manifests
from claude_mem.sync import seal
from claude_mem.sync.errors import Conflict, Forged, Problem, Revoked, SpaceLost, SpaceUnavailable
from claude_mem.sync.keys import create_keys, load_device_keys, save_keys
from claude_mem.sync.manifest import Manifest, Member
from claude_mem.sync.state import Position, load_state, own_log, problem_of, save_state
from claude_mem.sync.transports.base import Transport
from claude_mem.system.failpoints import failpoint

PAGE = 200
MANIFEST_ATTEMPTS = 5
T = TypeVar("T")


@dataclass(slots=True)
class Progress:
    """How far an exchange is: per machine the entries done and those to do, and what is being done."""

    phase: str = ""
    uploaded: int = 0
    to_upload: int = 0
    downloaded: dict[str, int] = field(default_factory=dict)
    to_download: dict[str, int] = field(default_factory=dict)


class Exchange:
    """A space of this machine with its keys, its state and its transport, for one exchange or one change of its list of
    machines. The caller makes sure that there is one at a time."""

    def __init__(self, db: Database, data_dir: Path, space: Space, transport: Transport) -> None:
        self.db = db
        self.data_dir = data_dir
        self.space = space
        self.transport = transport
        self.keys = load_device_keys(data_dir, space.id, space.device)
        self.state = load_state(data_dir, space.id)
        self.progress = Progress()
        self.problems: list[Problem] = []

    # --- the exchange ------------------------------------------------------------------------------------------------

    async def run(self, *, collect: Callable[[], Awaitable[object]], apply: Callable[[], Awaitable[object]]) -> None:
        """Exchange once. `collect` appends what changed here to this machine's log, `apply` puts what came from the
        others into the memory. Raises what stopped it; the state has it, too."""
        self.state.attempted_at = ids.now_ms()
        try:
            self.progress.phase = "checking the key"
            manifest = await self.refresh_manifest()
            self.progress.phase = "collecting"
            await collect()
            heads = await self._call(self.transport.heads)
            self.progress.phase = "uploading"
            await self._upload(manifest, heads)
            self.progress.phase = "downloading"
            await self._download(manifest, heads)
            self.progress.phase = "applying"
            await apply()
            self.state.heads = await self._call(self.transport.heads)
            self.state.exchanged_at, self.state.offline = ids.now_ms(), ""
        except SpaceUnavailable as error:
            self.state.offline = str(error)
            raise
        except ClaudeMemError as error:
            self.state.offline = ""
            self.problems.append(problem_of(error))
            raise
        finally:
            self.progress.phase = ""
            if not self.state.offline:
                self.state.problems = self.problems
            self._save()

    async def _call(self, fn: Callable[..., T], *args: object, **kwargs: object) -> T:
        """Run a method of the transport, which blocks, in a thread."""
        return await asyncio.to_thread(fn, *args, **kwargs)

    def _save(self) -> None:
        save_state(self.data_dir, self.space.id, self.state)

    # --- the manifest ------------------------------------------------------------------------------------------------

    async def refresh_manifest(self) -> Manifest:
        """Return the transport's manifest, verified against the one that was accepted last, with this machine in it."""
        for _ in range(MANIFEST_ATTEMPTS):
            manifest, tag = await self._read_manifest()
            member = manifest.members.get(self.keys.device)
            if member is not None and not member.is_active:
                raise Revoked(
                    f"this machine was removed from the space {self.space.name!r}",
                    hint="`claude-mem space leave` forgets the space here; the memory stays",
                )
            if member is None:
                manifest = manifests.join(manifest, self.keys, now=ids.now_ms())
            if tag is None or member is None:
                try:
                    await self.write_manifest(manifest, expected=tag)
                except Conflict:
                    continue
            return manifest
        raise SpaceUnavailable("other machines change the manifest all the time; the next exchange tries again")

    async def _read_manifest(self) -> tuple[Manifest, str | None]:
        """Return the manifest to use and the tag of the one at the transport; None if it must be written again."""
        current = await self._call(self.transport.read_manifest)
        if current is None:
            raise SpaceLost(
                f"{self.transport.name} has nothing of the space {self.space.name!r} any more",
                hint="if it is the right place, `claude-mem space sync --restore` uploads this machine's part again",
            )
        raw, tag = current
        manifest = manifests.decode(raw, self.keys)
        accepted = manifests.decode(self.state.manifest, self.keys) if self.state.manifest else None
        forked = accepted is not None and not manifests.continues(manifest, accepted)
        if accepted is not None and forked and self._resolve_fork(accepted, manifest) is accepted:
            await self.write_manifest(accepted, expected=tag)
            return await self._read_manifest()
        await self._accept(manifest, raw)
        return manifest, tag

    def _resolve_fork(self, accepted: Manifest, received: Manifest) -> Manifest:
        """Return which manifest counts: the known one, or a received one that does not continue it."""
        if manifests.continues(accepted, received):
            self.state.note(
                "Truncated", f"{self.transport.name} lost the newest list of machines; this machine put it back"
            )
            return accepted
        common = next(i for i in count() if accepted.changes[i : i + 1] != received.changes[i : i + 1])
        authors = {change.by for change in received.changes[common:]}
        if removed := [
            member for device, member in accepted.members.items() if device in authors and not member.is_active
        ]:
            raise Forged(
                f"the list of machines was changed by {removed[0].name!r}, which was removed before",
                hint="nothing is exchanged; rotate the key on a machine that you trust, or use another transport",
                machine=removed[0].name,
            )
        if received.epoch < accepted.epoch:
            self.state.note("Conflict", "two machines changed the list of machines at once; the newer key counts")
            return accepted
        revoked = [m.name for m in accepted.members.values() if not m.is_active]
        lost = [name for name in revoked if any(m.name == name and m.is_active for m in received.members.values())]
        if lost:
            self.problems.append(
                Problem(
                    "Conflict", f"the removal of {', '.join(lost)} was overtaken by another change", "remove it again"
                )
            )
        return received

    async def restore_manifest(self) -> None:
        """Write the manifest that was accepted last to a transport that has none."""
        if not self.state.manifest:
            raise SpaceLost("this machine has never exchanged this space, so it can't restore it")
        accepted = manifests.decode(self.state.manifest, self.keys)
        await self.write_manifest(accepted, expected=None)
        self.state.note("SpaceLost", f"{self.transport.name} had lost the space; this machine uploaded its part again")

    async def write_manifest(self, manifest: Manifest, *, expected: str | None) -> None:
        """Write a manifest to the transport; its keys are kept here first."""
        raw = manifests.encode(manifest, self.keys.device_name)
        await self._keep_keys(manifest)
        await self._call(self.transport.write_manifest, raw, expected=expected)
        failpoint("sync.manifest")
        await self._accept(manifest, raw)

    async def _accept(self, manifest: Manifest, raw: bytes) -> None:
        await self._keep_keys(manifest)
        if raw != self.state.manifest:
            self.state.manifest = raw
            self._save()

    async def _keep_keys(self, manifest: Manifest) -> None:
        if self.keys.epochs == manifest.keys or self.keys.device not in manifest.members:
            return
        self.keys.epochs = dict(manifest.keys)
        await asyncio.to_thread(save_keys, self.data_dir, self.keys)
        await self.db.write(lambda tx: tx.spaces.set_epoch(self.space.id, manifest.epoch))

    # --- uploading ---------------------------------------------------------------------------------------------------

    async def _upload(self, manifest: Manifest, heads: dict[str, int]) -> None:
        """Seal what is new in this machine's log, and upload what the transport does not have."""
        device = self.space.device
        log = own_log(self.data_dir, self.space.id, device)
        theirs = heads.get(device, 0)
        stored_head = (await self.db.read(lambda tx: tx.spaces.heads(self.space.id))).get(device, 0)
        if not await self._is_own_log_intact(manifest, theirs):
            await self._reconcile_own_log(manifest, theirs)
            if self.space.device != device:
                return await self._upload(await self.refresh_manifest(), heads)
        self.progress.to_upload = stored_head - theirs
        if theirs < self.space.published:
            self.state.note(
                "Truncated",
                f"{self.transport.name} lost entries {theirs + 1:,} to {self.space.published:,} of this machine; they"
                " were uploaded again",
                machine=self.keys.device_name,
            )
        await self._seal_new(manifest)
        at = theirs
        while entries := log.read(after=at, most_bytes=1 << 20, limit=PAGE):
            await self._call(self.transport.append_entries, device, after=at, entries=entries)
            failpoint("sync.uploaded")
            at += len(entries)
            await self.db.write(lambda tx, head: tx.spaces.mark_published(self.space.id, head), at)
            self.progress.uploaded = at - theirs
        return None

    async def _is_own_log_intact(self, manifest: Manifest, theirs: int) -> bool:
        """Return whether the database, the sealed log and the transport agree about this machine's entries. The last
        entry of each tells: it depends on all before it."""
        device, log = self.space.device, own_log(self.data_dir, self.space.id, self.space.device)
        sealed_head = log.head()
        stored_head = (await self.db.read(lambda tx: tx.spaces.heads(self.space.id))).get(device, 0)
        if sealed_head > stored_head or theirs > sealed_head:
            return False
        if theirs:
            last = await self._call(self.transport.read_entries, device, after=theirs - 1, limit=1)
            if last[:1] != log.read(after=theirs - 1, most_bytes=1, limit=1):
                return False
        if not sealed_head:
            return True
        after = max(sealed_head - 2, 0)
        page = log.read(after=after, most_bytes=1 << 30, limit=2)
        previous = seal.hash_sealed(page[0]) if len(page) == 2 else seal.START
        bodies, _ = self._open_page(manifest.members[device], page[-1:], sealed_head - 1, previous, manifest)
        return not await self.db.read(
            lambda tx: tx.spaces.find_difference(self.space.id, device, after=sealed_head - 1, bodies=bodies)
        )

    async def _seal_new(self, manifest: Manifest) -> None:
        """Seal the entries of the database that were not sealed yet."""
        space, log = self.space, own_log(self.data_dir, self.space.id, self.space.device)
        at = log.head()
        last = log.read(after=at - 1, most_bytes=1, limit=1) if at else []
        previous = seal.hash_sealed(last[0]) if last else seal.START
        while rows := await self.db.read(
            lambda tx, after: tx.spaces.read_log(space.id, space.device, after=after, limit=PAGE), at
        ):
            sealed, previous = await asyncio.to_thread(self._seal_rows, rows, previous, manifest)
            log.append(sealed, after=at)
            failpoint("sync.sealed")
            at += len(sealed)

    def _seal_rows(
        self, rows: Sequence[tuple[int, bytes]], previous: bytes, manifest: Manifest
    ) -> tuple[list[bytes], bytes]:
        sealed: list[bytes] = []
        epoch, signing_key = manifest.epoch, self.keys.signing_key
        for index, body in rows:
            place = seal.Place(self.space.id, self.space.device, index, previous)
            sealed.append(seal.seal(place, body, epoch=epoch, key=manifest.keys[epoch], signing_key=signing_key))
            previous = seal.hash_sealed(sealed[-1])
        return sealed, previous

    async def _reconcile_own_log(self, manifest: Manifest, theirs: int) -> None:
        """Compare the published log of this machine with the log here. If it continues differently, the database was
        restored from a backup, or another machine runs a copy of the data directory: continue under a new id, which
        loses nothing. If they agree, the sealed copy was lost, and is made again."""
        old = self.space.device
        fresh = create_keys(self.space.id, self.keys.name, self.keys.device_name)
        fresh.epochs, fresh.token = self.keys.epochs, self.keys.token
        await asyncio.to_thread(save_keys, self.data_dir, fresh, is_next=True)  # used once the database has the new id
        failpoint("sync.new_device")
        after, previous = 0, seal.START
        while self.space.device == old:
            page = await self._read_published(old, after=after, theirs=theirs)
            if not page:
                break
            bodies, previous = await asyncio.to_thread(
                self._open_page, manifest.members[old], page, after, previous, manifest
            )
            await self.db.write(
                lambda tx, after, bodies: tx.spaces.confirm_published(
                    self.space.id, after=after, bodies=bodies, new_device=fresh.device
                ),
                after,
                bodies,
            )
            self.space = await self.db.read(lambda tx: tx.spaces.get_space(self.space.id))
            if self.space.device == old:  # these entries agree: only their sealed copy may be missing here
                with suppress(Conflict):
                    own_log(self.data_dir, self.space.id, old).append(page, after=after)
            after += len(page)
        if self.space.device == old:
            return
        self.keys = load_device_keys(self.data_dir, self.space.id, self.space.device)
        self.state.note(
            "TwoWriters",
            f"the published log of this machine ({old}) differs from its database: the database was restored, or"
            f" another machine uses a copy of it. This machine continues as {self.space.device}",
            machine=self.keys.device_name,
        )

    async def _read_published(self, device: str, *, after: int, theirs: int) -> list[bytes]:
        """Return the next entries of this machine's log as they were published or sealed."""
        if after < theirs:
            return await self._call(self.transport.read_entries, device, after=after, limit=PAGE)
        log = own_log(self.data_dir, self.space.id, device)
        return log.read(after=after, most_bytes=1 << 20, limit=PAGE)

    # --- downloading -------------------------------------------------------------------------------------------------

    async def _download(self, manifest: Manifest, heads: dict[str, int]) -> None:
        """Download, verify and store what the other machines wrote."""
        stored = await self.db.read(lambda tx: tx.spaces.heads(self.space.id))
        for device in sorted({*heads, *stored} - {self.space.device}):
            member = manifest.members.get(device)
            if member is None:
                error = Forged(
                    f"{self.transport.name} has a log of {device}, which no machine of the space added",
                    hint="it is ignored",
                )
                self.problems.append(problem_of(error))
                continue
            theirs = heads.get(device, 0)
            if theirs < stored.get(device, 0):
                self.problems.append(self._truncated(member, theirs, stored[device]))
            try:
                await self._download_log(manifest, member, stored.get(device, 0), theirs)
            except SpaceUnavailable:
                raise
            except OperationFailed as error:
                self.problems.append(problem_of(error))

    def _truncated(self, member: Member, theirs: int, stored: int) -> Problem:
        return Problem(
            "Truncated",
            f"{self.transport.name} lost entries {theirs + 1:,} to {stored:,} of {member.name}; this machine has them",
            f"{member.name} uploads them again at its next exchange",
            member.name,
            ids.now_ms(),
        )

    async def _download_log(self, manifest: Manifest, member: Member, stored: int, theirs: int) -> None:
        last = theirs if member.last_index is None else min(theirs, member.last_index)
        if theirs > last:
            self.state.note(
                "Revoked", f"entries of {member.name} after {last:,} are not taken: it was removed", machine=member.name
            )
        at = self.state.positions.get(member.device, Position(0, seal.START))
        if at.index > stored:  # the database is older than this file: check from the start
            at = Position(0, seal.START)
        self.progress.to_download[member.name] = max(last - at.index, 0)
        begun = at.index
        while at.index < last:
            page = await self._call(
                self.transport.read_entries, member.device, after=at.index, limit=min(PAGE, last - at.index)
            )
            if not page:
                return
            failpoint("sync.downloaded")
            at = await self._store_page(manifest, member, page[: last - at.index], at)
            self.progress.downloaded[member.name] = at.index - begun

    async def _store_page(self, manifest: Manifest, member: Member, page: Sequence[bytes], at: Position) -> Position:
        """Verify and store a page. If an entry is refused, those before it are stored."""
        try:
            bodies, previous = await asyncio.to_thread(self._open_page, member, page, at.index, at.hash, manifest)
        except _RefusedEntry as refused:
            if refused.bodies:
                await self._store(member, at.index, refused.bodies, refused.previous)
            raise refused.reason from None
        return await self._store(member, at.index, bodies, previous)

    async def _store(self, member: Member, after: int, bodies: Sequence[bytes], previous: bytes) -> Position:
        await self.db.write(
            lambda tx: tx.spaces.append_foreign(self.space.id, member.device, after=after, bodies=bodies)
        )
        failpoint("sync.stored")
        position = Position(after + len(bodies), previous)
        self.state.positions = {**self.state.positions, member.device: position}
        self._save()
        return position

    def _open_page(
        self, member: Member, page: Sequence[bytes], after: int, previous: bytes, manifest: Manifest
    ) -> tuple[list[bytes], bytes]:
        """Return the bodies and the hash of the last entry."""
        bodies: list[bytes] = []
        for index, sealed in enumerate(page, start=after + 1):
            place = seal.Place(self.space.id, member.device, index, previous)
            try:
                bodies.append(
                    seal.open_(place, sealed, keys=manifest.keys, public_key=member.signing_key, machine=member.name)
                )
            except OperationFailed as error:
                raise _RefusedEntry(error, bodies, previous) from None
            previous = seal.hash_sealed(sealed)
        return bodies, previous

    # --- who belongs to the space ------------------------------------------------------------------------------------

    async def rotate(self, *, revoked: str = "") -> Manifest:
        """Give the space a new key, without the machine `revoked`. Entries of that machine count up to the last one
        that is stored here. The caller exchanged before."""
        heads = await self.db.read(lambda tx: tx.spaces.heads(self.space.id))
        for _ in range(MANIFEST_ATTEMPTS):
            manifest, tag = await self._read_manifest()
            changed = manifests.rotate(
                manifest, self.keys, revoked=revoked, last_index=heads.get(revoked, 0), now=ids.now_ms()
            )
            try:
                await self.write_manifest(changed, expected=tag)
            except Conflict:
                continue
            if revoked:
                await self._call(self.transport.revoke_device, revoked)
            return changed
        raise SpaceUnavailable("other machines change the manifest all the time; try again")

    async def leave(self) -> None:
        """Tell the others that this machine left. What it shared stays."""
        for _ in range(MANIFEST_ATTEMPTS):
            manifest, tag = await self._read_manifest()
            member = manifest.members.get(self.keys.device)
            if member is None or not member.is_active:
                return
            changed = manifests.leave(manifest, self.keys, last_index=self.space.published, now=ids.now_ms())
            try:
                await self._call(
                    self.transport.write_manifest, manifests.encode(changed, self.keys.device_name), expected=tag
                )
            except Conflict:
                continue
            return


class _RefusedEntry(OperationFailed):
    """An entry that was refused, with what came before it in the same page."""

    def __init__(self, reason: OperationFailed, bodies: list[bytes], previous: bytes) -> None:
        super().__init__(str(reason), hint=reason.hint)
        self.reason = reason
        self.bodies = bodies
        self.previous = previous


def new_space_id() -> str:
    """Return a random id of a space."""
    return os.urandom(16).hex()
