"""Seals the entries of a device's log, so that a transport can neither read, change, move nor replace them.

A sealed entry is a header in the clear, the encrypted body and a signature of both:

- Header: format, epoch, space, device, index, the hash of the device's previous sealed entry, and a salt. A transport
  knows space, device and index anyway, because it stores the entries by them.
- Body: encrypted with ChaCha20-Poly1305 under a key of its own, derived from the epoch's key and the salt. The header
  is its associated data. It is padded to size classes, so that its length tells little.
- Signature: Ed25519, by the device.

The signature is verified first. What is then wrong with the header is wrong with a genuine entry, so the error can say
whether the entry was moved, belongs elsewhere or was written by a second machine.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from claude_mem.domain.errors import OperationFailed
from claude_mem.sync.crypto import (
    NONCE,
    ChaCha20Poly1305,
    Ed25519PrivateKey,
    Ed25519PublicKey,
    InvalidSignature,
    InvalidTag,
    derive_key,
)
from claude_mem.sync.errors import ForeignSpace, Forged, NewerFormat, Reordered, TwoWriters, WrongKey

FORMAT = 1
MAGIC = b"CMSE"
_HEADER = struct.Struct(">4sBI16s8sQ32s32s")
_LENGTH = struct.Struct(">I")
TAG_BYTES, SIGNATURE_BYTES = 16, 64
OVERHEAD = _HEADER.size + TAG_BYTES + SIGNATURE_BYTES
MAX_SEALED_BYTES = 1 << 20  # limit of an entry at every transport
MAX_PADDED_BYTES = MAX_SEALED_BYTES - OVERHEAD
MAX_BODY_BYTES = 1_000_000
SMALLEST_CLASS = 256
START = bytes(32)  # what the first entry of a log has as the hash of the previous one
_SIGNED, _ENTRY = b"claude-mem sealed entry\0", b"claude-mem entry"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an entry: the space and the device in hexadecimal, its index from 1, the hash of the one before."""

    space: str
    device: str
    index: int
    previous: bytes


def hash_sealed(sealed: bytes) -> bytes:
    """Return the hash by which the next entry refers to this one."""
    return hashlib.sha256(sealed).digest()


def pad(body: bytes) -> bytes:
    """Return the body with its length before it and zeros after it, in the next size class: 256 bytes, and from there
    on four classes per power of two."""
    size = len(body) + _LENGTH.size
    target = SMALLEST_CLASS
    if size > target:
        step = 1 << max((size - 1).bit_length() - 3, 0)
        target = min(-(-size // step) * step, MAX_PADDED_BYTES)
    return (_LENGTH.pack(len(body)) + body).ljust(target, b"\0")


def unpad(padded: bytes) -> bytes:
    """Return the body of `pad`, or raise ValueError."""
    if len(padded) < _LENGTH.size:
        raise ValueError("too short")
    (length,) = _LENGTH.unpack_from(padded)
    body = padded[_LENGTH.size : _LENGTH.size + length]
    if pad(body) != padded:
        raise ValueError("bad padding")
    return body


def seal(place: Place, body: bytes, *, epoch: int, key: bytes, signing_key: bytes) -> bytes:
    """Return the sealed entry for this place."""
    if len(body) > MAX_BODY_BYTES:
        raise OperationFailed(f"an entry of {len(body):,} bytes is too large for a space")
    salt = os.urandom(32)
    space, device = bytes.fromhex(place.space), bytes.fromhex(place.device)
    header = _HEADER.pack(MAGIC, FORMAT, epoch, space, device, place.index, place.previous, salt)
    cipher = ChaCha20Poly1305(derive_key(key, _ENTRY, salt))
    content = header + cipher.encrypt(NONCE, pad(body), header)
    return content + Ed25519PrivateKey.from_private_bytes(signing_key).sign(_SIGNED + content)


def open_(place: Place, sealed: bytes, *, keys: Mapping[int, bytes], public_key: bytes, machine: str = "") -> bytes:
    """Return the body of an entry that belongs to this place, or raise the error that says what is wrong.

    `keys`: by epoch. `public_key`: of the device in whose log the entry was. `machine`: its name, for the errors.
    """
    where = f"entry {place.index:,} of {machine or place.device}"
    if sealed[:4] != MAGIC or not OVERHEAD + SMALLEST_CLASS <= len(sealed) <= MAX_SEALED_BYTES:
        raise Forged(f"{where} is not an entry of claude-mem", hint=_DAMAGED, machine=machine)
    if sealed[4] > FORMAT:
        raise NewerFormat(f"{where} has format {sealed[4]}", hint=_UPGRADE, machine=machine)
    content, signature = sealed[:-SIGNATURE_BYTES], sealed[-SIGNATURE_BYTES:]
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, _SIGNED + content)
    except InvalidSignature:
        raise Forged(f"{where} was not written by that machine", hint=_DAMAGED, machine=machine) from None
    header, encrypted = content[: _HEADER.size], content[_HEADER.size :]
    _, _, epoch, space, device, index, previous, salt = _HEADER.unpack(header)
    if space.hex() != place.space:
        raise ForeignSpace(f"{where} belongs to another space", hint=_DAMAGED, machine=machine)
    if device.hex() != place.device:
        raise Forged(f"{where} is an entry of another machine", hint=_DAMAGED, machine=machine)
    if index != place.index:
        what = "was repeated" if index < place.index else "is missing"
        raise Reordered(f"{where} {what}: entry {index:,} is in its place", hint=_DAMAGED, machine=machine)
    if previous != place.previous:
        raise TwoWriters(
            f"{where} does not continue the entries that were received before: two machines write as this one, or its"
            " data directory was restored from a copy",
            hint=f"on {machine or 'that machine'} run `claude-mem space leave` and join again",
            machine=machine,
        )
    if epoch not in keys:
        raise WrongKey(f"{where} is sealed with key {epoch}, which this machine does not have", machine=machine)
    try:
        return unpad(ChaCha20Poly1305(derive_key(keys[epoch], _ENTRY, salt)).decrypt(NONCE, encrypted, header))
    except (InvalidTag, ValueError):
        raise WrongKey(f"{where} is sealed with another key than this machine has", machine=machine) from None


_DAMAGED = "the transport changed it; nothing of that log is taken from there on until it is restored"
_UPGRADE = "upgrade claude-mem on this machine"
