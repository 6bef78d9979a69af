"""What something is known by, as a keyed hash: whoever finds it can't tell what it was, not even by guessing.

The key is made once, lies in the data directory and is readable by its owner alone. SQL reaches it as `mark(…)`.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
from collections.abc import Callable
from pathlib import Path

import apsw

from claude_mem import untrusted_files
from claude_mem.errors import CannotDo
from claude_mem.spool import sync_folder, write_private

KEY_FILE = "forget.key"
KEY_BYTES = 32
MOST_BYTES = 4096


def marker(folder: Path) -> Callable[..., str]:
    """The function that makes marks, with the key of this folder; it is read, or made, when it is first needed."""
    known: list[bytes] = []

    def mark(*parts: object) -> str:
        if not known:
            known.append(_key(folder / KEY_FILE))
        text = "\0".join("" if part is None else str(part) for part in parts)
        return hmac.digest(known[0], text.encode("utf-8", "surrogatepass"), "sha256")[:16].hex()

    return mark


def attach(conn: apsw.Connection, folder: Path) -> None:
    conn.create_scalar_function("mark", marker(folder), -1, deterministic=True)


def is_lost(folder: Path) -> bool:
    """Whether the key is missing, or can't be read any more."""
    path = folder / KEY_FILE
    return not path.exists() or _read(path) is None


def _key(path: Path) -> bytes:
    if not path.exists():
        fresh = secrets.token_bytes(KEY_BYTES)
        write_private(path, (_line(fresh) + "\n").encode() * 2, sync=True)
        sync_folder(path.parent)
        return fresh
    if key := _read(path):
        return key
    raise CannotDo(f"{path} is damaged", hint="`claude-mem start` moves it aside and makes another")


def _read(path: Path) -> bytes | None:
    for line in untrusted_files.read_start(path, MOST_BYTES).decode("ascii", "replace").split("\n"):
        with contextlib.suppress(ValueError):
            key = bytes.fromhex(line.partition(" ")[0])
            if len(key) == KEY_BYTES and line in (key.hex(), _line(key)):  # of an earlier version, without its sum
                return key
    return None


def _line(key: bytes) -> str:
    """Twice in the file, each with a sum: one flipped bit costs nothing."""
    return f"{key.hex()} {hashlib.sha256(key).hexdigest()[:16]}"
