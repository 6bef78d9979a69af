"""The manifest of a space: which machines belong to it, from when to when, and with which key they read it.

It is a log of signed changes. Each names the change before it, so a machine that has accepted the first changes accepts
a newer manifest only if it continues them, and only if each further change is signed by a machine that belonged to the
space at that point. A new machine signs its own joining, with a proof that it knows the key. Somebody who has the
transport but not the key can therefore neither add a machine nor take one away, and can't go back to an earlier state
without being noticed.

The changes are encrypted with the key of the newest epoch. In the clear are: the ids of the keys, the name of the
machine that wrote the manifest (so that a wrong recovery phrase can be answered with where the right one is), and the
newest key wrapped for each machine that still belongs to the space.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import msgspec

from claude_mem.domain.text import MAX_TIME_MS
from claude_mem.sync.crypto import (
    KEY_BYTES,
    NONCE,
    ChaCha20Poly1305,
    Ed25519PrivateKey,
    Ed25519PublicKey,
    InvalidSignature,
    InvalidTag,
    derive_key,
)
from claude_mem.sync.errors import ForeignSpace, Forged, NewerFormat, Revoked, WrongKey
from claude_mem.sync.keys import SpaceKeys, key_id, unwrap_for_device, unwrap_older, wrap_for_device, wrap_older
from claude_mem.sync.seal import pad, unpad

FORMAT = 1
MAX_MANIFEST_BYTES = 1 << 20
MAX_CHANGES = 2_000
_CHANGE, _PROOF, _MANIFEST = b"claude-mem change\0", b"claude-mem proof of the key", b"claude-mem manifest"

DeviceId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
SpaceId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
MachineName = Annotated[str, msgspec.Meta(min_length=1, max_length=80)]
Epoch = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change of who belongs to the space, by machine `by`. `epoch`: the one after the change; `revoke` and `rotate`
    begin a new one. `last_index`: the last entry that is taken from a machine that was revoked or that left."""

    kind: Literal["join", "revoke", "rotate", "leave"]
    by: DeviceId
    device: DeviceId
    at: Annotated[int, msgspec.Meta(ge=0, le=MAX_TIME_MS)]
    epoch: Epoch
    key_id: str
    previous: bytes
    name: Annotated[str, msgspec.Meta(max_length=80)] = ""
    signing_key: bytes = b""
    exchange_key: bytes = b""
    last_index: Annotated[int, msgspec.Meta(ge=0)] | None = None
    proof: bytes = b""
    signature: bytes = b""


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What is encrypted."""

    name: str
    changes: tuple[Change, ...]
    older_keys: dict[Epoch, bytes] = {}  # each wrapped with the key of the next epoch


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest as it is stored."""

    format: int
    space: SpaceId
    kind: str
    epoch: Epoch
    key_ids: tuple[str, ...]  # of all epochs
    writer: MachineName
    wraps: dict[DeviceId, bytes]
    salt: bytes
    sealed: bytes = b""

    def associated_data(self) -> bytes:
        """Return everything that is in the clear, for the encryption to authenticate."""
        return _MANIFEST + msgspec.json.encode(msgspec.structs.replace(self, sealed=b""), order="deterministic")


@dataclass(frozen=True, slots=True)
class Member:
    """A machine. `until`: when it was revoked or left, and `last_index` its last entry that counts."""

    device: str
    name: str
    signing_key: bytes
    exchange_key: bytes
    since: int
    until: int | None = None
    last_index: int | None = None

    @property
    def is_active(self) -> bool:
        """Whether the machine belongs to the space now."""
        return self.until is None


@dataclass(frozen=True, slots=True)
class Manifest:
    """An opened and verified manifest."""

    space: str
    name: str
    changes: tuple[Change, ...]
    keys: Mapping[int, bytes] = field(repr=False)
    members: Mapping[str, Member] = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        """The newest epoch."""
        return self.changes[-1].epoch if self.changes else 1

    def find_name(self, device: str) -> str:
        """Return the name of a machine, or its id if it is unknown."""
        return self.members[device].name if device in self.members else device


# --- changes ---------------------------------------------------------------------------------------------------------


def create(keys: SpaceKeys, *, now: int) -> Manifest:
    """Return the manifest of a new space, with this machine in it."""
    return join(Manifest(keys.space, keys.name, (), dict(keys.epochs)), keys, now=now)


def join(manifest: Manifest, keys: SpaceKeys, *, now: int) -> Manifest:
    """Return the manifest with this machine added."""
    change = Change(
        kind="join",
        by=keys.device,
        device=keys.device,
        at=now,
        epoch=manifest.epoch,
        key_id=key_id(manifest.keys[manifest.epoch], manifest.space),
        previous=_last_hash(manifest.changes),
        name=keys.device_name[:80],
        signing_key=keys.signing_public(),
        exchange_key=keys.exchange_public(),
    )
    change = msgspec.structs.replace(change, proof=_prove(change, manifest.keys[manifest.epoch]))
    return _append(manifest, change, keys)


def leave(manifest: Manifest, keys: SpaceKeys, *, last_index: int, now: int) -> Manifest:
    """Return the manifest without this machine. What it shared stays."""
    epoch = manifest.epoch
    change = Change(
        kind="leave",
        by=keys.device,
        device=keys.device,
        at=now,
        epoch=epoch,
        key_id=key_id(manifest.keys[epoch], manifest.space),
        previous=_last_hash(manifest.changes),
        last_index=last_index,
    )
    return _append(manifest, change, keys)


def rotate(manifest: Manifest, keys: SpaceKeys, *, revoked: str = "", last_index: int = 0, now: int) -> Manifest:
    """Return the manifest with a new key, and without the machine `revoked` if one is given."""
    epoch, key = manifest.epoch + 1, os.urandom(KEY_BYTES)
    change = Change(
        kind="revoke" if revoked else "rotate",
        by=keys.device,
        device=revoked or keys.device,
        at=now,
        epoch=epoch,
        key_id=key_id(key, manifest.space),
        previous=_last_hash(manifest.changes),
        last_index=last_index if revoked else None,
    )
    return _append(replace(manifest, keys={**manifest.keys, epoch: key}), change, keys)


def _append(manifest: Manifest, change: Change, keys: SpaceKeys) -> Manifest:
    signature = Ed25519PrivateKey.from_private_bytes(keys.signing_key).sign(_signed_bytes(change))
    change = msgspec.structs.replace(change, signature=signature)
    members = _apply(manifest, change)
    return replace(manifest, changes=(*manifest.changes, change), members=members)


def _signed_bytes(change: Change) -> bytes:
    return _CHANGE + msgspec.json.encode(msgspec.structs.replace(change, signature=b""))


def _prove(change: Change, key: bytes) -> bytes:
    unproven = msgspec.json.encode(msgspec.structs.replace(change, signature=b"", proof=b""))
    return hmac.digest(derive_key(key, _PROOF), unproven, hashlib.sha256)


def _last_hash(changes: tuple[Change, ...]) -> bytes:
    return hashlib.sha256(msgspec.json.encode(changes[-1])).digest() if changes else b""


def _apply(manifest: Manifest, change: Change) -> Mapping[str, Member]:
    """Return the members after a change, or raise `Forged` if the machine that signed it may not make it."""
    members, key = manifest.members, manifest.keys.get(change.epoch)
    author = members.get(change.by)
    is_new_epoch = change.kind in ("revoke", "rotate")
    public = change.signing_key if change.kind == "join" else author.signing_key if author else b""
    checks = (
        key is not None and change.key_id == key_id(key, manifest.space),
        change.epoch == manifest.epoch + is_new_epoch,
        change.previous == _last_hash(manifest.changes),
        _is_signed(change, public),
    )
    if change.kind == "join":
        new_one = author is None and change.by == change.device and change.name and len(change.exchange_key) == 32
        allowed = bool(new_one) and key is not None and hmac.compare_digest(change.proof, _prove(change, key))
    else:
        target = members.get(change.device)
        own = change.by == change.device
        allowed = bool(author and author.is_active and target and target.is_active) and own != (change.kind == "revoke")
    if not all(checks) or not allowed:
        raise Forged("the list of machines contains a change that no machine of the space made", hint=_CHANGED)
    if change.kind == "join":
        new = Member(change.device, change.name, change.signing_key, change.exchange_key, change.at)
        return {**members, change.device: new}
    if change.kind == "rotate":
        return members
    former = replace(members[change.device], until=change.at, last_index=change.last_index or 0)
    return {**members, change.device: former}


def _is_signed(change: Change, public: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(change.signature, _signed_bytes(change))
    except (InvalidSignature, ValueError):
        return False
    return True


def verify(manifest: Manifest) -> Manifest:
    """Return the manifest with its members, or raise `Forged` at the first change that is not right."""
    verified = Manifest(manifest.space, manifest.name, (), manifest.keys)
    for change in manifest.changes:
        members = _apply(verified, change)
        verified = replace(verified, changes=(*verified.changes, change), members=members)
    return verified


def continues(newer: Manifest, older: Manifest) -> bool:
    """Return whether one manifest is the other with further changes, or the same."""
    return newer.changes[: len(older.changes)] == older.changes


# --- bytes -----------------------------------------------------------------------------------------------------------


def encode(manifest: Manifest, writer: str) -> bytes:
    """Return the manifest as it is stored at the transport."""
    key = manifest.keys[manifest.epoch]
    envelope = Envelope(
        format=FORMAT,
        space=manifest.space,
        kind="personal",
        epoch=manifest.epoch,
        key_ids=tuple(key_id(manifest.keys[epoch], manifest.space) for epoch in range(1, manifest.epoch + 1)),
        writer=writer[:80],
        wraps={
            member.device: wrap_for_device(key, member.exchange_key, _context(manifest, member.device, manifest.epoch))
            for member in manifest.members.values()
            if member.is_active
        },
        salt=os.urandom(32),
    )
    contents = Contents(
        name=manifest.name,
        changes=manifest.changes,
        older_keys={
            epoch: wrap_older(manifest.keys[epoch], manifest.keys[epoch + 1], _context(manifest, "", epoch))
            for epoch in range(1, manifest.epoch)
        },
    )
    cipher = ChaCha20Poly1305(derive_key(key, _MANIFEST, envelope.salt))
    sealed = cipher.encrypt(NONCE, pad(msgspec.json.encode(contents)), envelope.associated_data())
    return msgspec.json.encode(msgspec.structs.replace(envelope, sealed=sealed))


def _context(manifest: Manifest | Envelope, device: str, epoch: int) -> bytes:
    return f"claude-mem key {manifest.space} {device} {epoch}".encode()


def read_envelope(raw: bytes) -> Envelope:
    """Return what a manifest says in the clear."""
    if len(raw) > MAX_MANIFEST_BYTES:
        raise Forged(f"the manifest is larger than {MAX_MANIFEST_BYTES >> 10:,} KB", hint=_CHANGED)
    try:
        version = _DECODE_VERSION.decode(raw).format
        if version > FORMAT:
            raise NewerFormat(
                f"the space has format {version}; this version supports up to {FORMAT}",
                hint="upgrade claude-mem on this machine",
            )
        envelope = _DECODE_ENVELOPE.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Forged(f"the manifest can't be read: {error}", hint=_CHANGED) from error
    if msgspec.json.encode(envelope) != raw:  # the last character of a base64 text has bits that decoding ignores
        raise Forged("the manifest is not as a machine of the space writes it", hint=_CHANGED)
    return envelope


class _Version(msgspec.Struct):
    format: int


# Made while the module is imported: msgspec crashes if two threads are the first to decode a type at the same time.
_DECODE_VERSION = msgspec.json.Decoder(_Version)
_DECODE_ENVELOPE = msgspec.json.Decoder(Envelope)
_DECODE_CONTENTS = msgspec.json.Decoder(Contents)


def decode(raw: bytes, keys: SpaceKeys) -> Manifest:
    """Return the verified manifest, or raise the error that names what is wrong and which machine has the right key."""
    envelope = read_envelope(raw)
    if envelope.space != keys.space:
        raise ForeignSpace(
            f"the transport has another space ({envelope.space[:8]}) in this place", hint="check the address"
        )
    key = _find_key(envelope, keys)
    cipher = ChaCha20Poly1305(derive_key(key, _MANIFEST, envelope.salt))
    try:
        contents = _DECODE_CONTENTS.decode(unpad(cipher.decrypt(NONCE, envelope.sealed, envelope.associated_data())))
    except (InvalidTag, ValueError) as error:  # msgspec.MsgspecError is a ValueError
        raise Forged("the manifest was changed by somebody who does not have the key", hint=_CHANGED) from error
    if not 0 < len(contents.changes) <= MAX_CHANGES:
        raise Forged("the manifest has no machine, or too many changes", hint=_CHANGED)
    keys_by_epoch = {envelope.epoch: key}
    for epoch in range(envelope.epoch - 1, 0, -1):
        older = unwrap_older(
            contents.older_keys.get(epoch, b""), keys_by_epoch[epoch + 1], _context(envelope, "", epoch)
        )
        if older is None:
            raise Forged(f"the manifest lacks the key of epoch {epoch}", hint=_CHANGED)
        keys_by_epoch[epoch] = older
    return verify(Manifest(envelope.space, contents.name, contents.changes, keys_by_epoch))


def _find_key(envelope: Envelope, keys: SpaceKeys) -> bytes:
    """Return the key of the manifest's epoch: this machine's, or the one that was wrapped for it."""
    newest_id = envelope.key_ids[-1] if len(envelope.key_ids) == envelope.epoch else ""
    for key in keys.epochs.values():
        if hmac.compare_digest(key_id(key, envelope.space), newest_id):
            return key
    wrapped = envelope.wraps.get(keys.device, b"")
    unwrapped = unwrap_for_device(wrapped, keys.exchange_key, _context(envelope, keys.device, envelope.epoch))
    if unwrapped is not None and key_id(unwrapped, envelope.space) == newest_id:
        return unwrapped
    hint = f"run `claude-mem space phrase` on the machine {envelope.writer!r}, which has the right one"
    if key_id(keys.key, envelope.space) in envelope.key_ids:
        raise Revoked(
            "the key of the space was replaced, and this machine was not given the new one: it was removed from the"
            " space, or the recovery phrase is an old one",
            hint=hint + ", then join again",
            machine=envelope.writer,
        )
    raise WrongKey(
        f"the key does not fit this space; the machine {envelope.writer!r} has the right one",
        hint=hint,
        machine=envelope.writer,
    )


_CHANGED = "the transport was changed by somebody else; nothing is exchanged until its manifest is restored"
