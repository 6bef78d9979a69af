"""Keyed hashes of identities: without the key, a hash does not reveal what was hashed, not even by guessing.

The key is created once, is stored in the data directory and is readable only by its owner. In SQL the hash is
available as `keyed_hash(…)`.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
from collections.abc import Callable
from pathlib import Path

import apsw

from claude_mem.domain.errors import OperationFailed
from claude_mem.system import untrusted_files
from claude_mem.system.spool import sync_directory, write_private

HASH_KEY_FILE = "forget.key"
HASH_KEY_BYTES = 32
_MAX_KEY_FILE_BYTES = 4096


def make_keyed_hash(folder: Path) -> Callable[..., str]:
    """Return a hash function that uses this folder's key. The key is read, or created, on the first call."""
    cached_key: list[bytes] = []

    def keyed_hash(*parts: object) -> str:
        if not cached_key:
            cached_key.append(_read_or_create_key(folder / HASH_KEY_FILE))
        text = "\0".join("" if part is None else str(part) for part in parts)
        return hmac.digest(cached_key[0], text.encode("utf-8", "surrogatepass"), "sha256")[:16].hex()

    return keyed_hash


def register_keyed_hash(conn: apsw.Connection, folder: Path) -> None:
    """Register `keyed_hash(…)` as an SQL function of this connection."""
    conn.create_scalar_function("keyed_hash", make_keyed_hash(folder), -1, deterministic=True)


def is_hash_key_lost(folder: Path) -> bool:
    """Return whether the key is missing or can no longer be read."""
    path = folder / HASH_KEY_FILE
    return not path.exists() or _read_key(path) is None


def _read_or_create_key(path: Path) -> bytes:
    if not path.exists():
        new_key = secrets.token_bytes(HASH_KEY_BYTES)
        write_private(path, (_key_line(new_key) + "\n").encode() * 2, sync=True)
        sync_directory(path.parent)
        return new_key
    if key := _read_key(path):
        return key
    raise OperationFailed(f"{path} is damaged", hint="`claude-mem start` moves it aside and creates a new one")


def _read_key(path: Path) -> bytes | None:
    for line in untrusted_files.read_start(path, _MAX_KEY_FILE_BYTES).decode("ascii", "replace").split("\n"):
        with contextlib.suppress(ValueError):
            key = bytes.fromhex(line.partition(" ")[0])
            if len(key) == HASH_KEY_BYTES and line in (key.hex(), _key_line(key)):  # earlier versions wrote no checksum
                return key
    return None


def _key_line(key: bytes) -> str:
    """Return a line of the key file. The file has the line twice, each with a checksum, to survive a flipped bit."""
    return f"{key.hex()} {hashlib.sha256(key).hexdigest()[:16]}"
