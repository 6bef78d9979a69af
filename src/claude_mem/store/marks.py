"""What something is known by, as a keyed hash: whoever finds it can't tell what it was, not even by guessing.

The key is made once, lies in the data directory and is readable by its owner alone. SQL reaches it as `mark(…)`.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Callable
from pathlib import Path

import apsw

KEY_FILE = "forget.key"
KEY_BYTES = 32


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


def _key(path: Path) -> bytes:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return bytes.fromhex(path.read_text("ascii").strip())
    fresh = secrets.token_bytes(KEY_BYTES)
    with os.fdopen(fd, "w") as file:
        file.write(fresh.hex())
        file.flush()
        os.fsync(file.fileno())
    return fresh
