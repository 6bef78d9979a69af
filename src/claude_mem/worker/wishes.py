"""The erasure journal: the request of the running deletion, in a file until it is done.

After a crash the deletion is resumed from this file, because tombstones do not contain the scope. The request may
contain the text to be erased, so the file is shredded at the end.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from claude_mem.spool import sync_folder
from claude_mem.store.scopes import Scope
from claude_mem.worker import traces

log = logging.getLogger(__name__)

FILE = "forgetting.json"


class Wish(msgspec.Struct, frozen=True):
    """A deletion request. `rare`: rare words of the content, to recognize log lines after the rows are deleted."""

    n: int
    at: int
    erased: bool
    scope: Scope
    rare: frozenset[str] = frozenset()
    counts: dict[str, int] = {}


def keep(folder: Path, request: Wish) -> None:
    """Write and sync the request. Call this before deleting anything."""
    temp = _temp_path(folder)
    with os.fdopen(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(msgspec.json.encode(request))
        file.flush()
        os.fsync(file.fileno())
    temp.rename(folder / FILE)
    sync_folder(folder)


def kept(folder: Path) -> Wish | None:
    """Return the request of an interrupted deletion, if there is one."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Wish)
    except FileNotFoundError:
        pass  # no deletion was running, or its request was not yet complete
    except msgspec.MsgspecError:
        log.error("the request of the interrupted deletion can't be read; it is resumed from its tombstones")
    drop(folder)
    return None


def drop(folder: Path) -> None:
    for path in (folder / FILE, _temp_path(folder)):
        traces.shred(path)


def _temp_path(folder: Path) -> Path:
    return folder / f".{FILE}"
