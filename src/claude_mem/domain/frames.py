"""The frames in which several sealed entries travel between a machine and a server: a length of four bytes, big-endian,
then that number of bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from claude_mem.domain.errors import InvalidRequest, RequestTooLarge

LENGTH = struct.Struct(">I")
MAX_ENTRY_BYTES = 1 << 20
MAX_ENTRIES = 10_000  # of one request


def encode(bodies: Iterable[bytes]) -> bytes:
    """Return the entries as frames."""
    return b"".join(part for body in bodies for part in (LENGTH.pack(len(body)), body))


def decode(raw: bytes, *, allow_empty: bool = False) -> list[bytes]:
    """Return the entries. Raises an error for truncated, empty, oversized and too many frames."""
    bodies: list[bytes] = []
    at = 0
    while at < len(raw):
        if len(raw) - at < LENGTH.size:
            raise InvalidRequest("the last frame is truncated")
        (size,) = LENGTH.unpack_from(raw, at)
        at += LENGTH.size
        if size > MAX_ENTRY_BYTES:
            raise RequestTooLarge(f"an entry may have {MAX_ENTRY_BYTES} bytes at most")
        if not size and not allow_empty:
            raise InvalidRequest("an entry may not be empty")
        if size > len(raw) - at:
            raise InvalidRequest("the last frame is truncated")
        if len(bodies) == MAX_ENTRIES:
            raise RequestTooLarge(f"a request may have {MAX_ENTRIES} entries at most")
        bodies.append(raw[at : at + size])
        at += size
    return bodies
