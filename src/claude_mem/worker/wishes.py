"""What someone wants forgotten, in a file of its own until it is done: whoever goes on after a kill must know what was
asked for, and the stones do not tell. It may say the very words that must go, so it is shredded at the end."""

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
    """`rare`: words of what goes, by which a log is known to speak of it when the rows themselves are gone."""

    n: int
    at: int
    erased: bool
    scope: Scope
    rare: frozenset[str] = frozenset()
    counts: dict[str, int] = {}


def keep(folder: Path, wish: Wish) -> None:
    """Safe before anything is taken away."""
    temp = _temp(folder)
    with os.fdopen(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(msgspec.json.encode(wish))
        file.flush()
        os.fsync(file.fileno())
    temp.rename(folder / FILE)
    sync_folder(folder)


def kept(folder: Path) -> Wish | None:
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Wish)
    except FileNotFoundError:
        pass  # nothing was under way, or it had only just begun
    except msgspec.MsgspecError:
        log.error("what was being forgotten can't be read any more; its stones tell what goes")
    drop(folder)
    return None


def drop(folder: Path) -> None:
    for path in (folder / FILE, _temp(folder)):
        traces.shred(path)


def _temp(folder: Path) -> Path:
    return folder / f".{FILE}"
