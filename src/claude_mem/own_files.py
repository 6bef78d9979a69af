"""Damage to the small files of the data directory: what stands in the place of one is moved aside, and work goes on.

A folder, a link or a pipe where a file of ours should be keeps a worker from starting, and then nothing is remembered.
So the holder of the lock moves it to `quarantine/files/`, where it stays, notes it there and makes the file again. What
another user has put there is still refused (`box.py`), and so is a link in the place of the database: that may be where
a person keeps it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from claude_mem import box, hook, ids
from claude_mem.spool import append_private

log = logging.getLogger(__name__)

LOCK, PIPE = "worker.lock", "worker.fifo"
KEY, STONES = "forget.key", "forgotten.jsonl"
_MORE = (KEY, STONES, "audit.jsonl", "forgetting.json", "logs/worker.log", "logs/start.log")
FILES = (*(name for name in box.FILES if ".db" not in name), *_MORE)
FOLDER, JOURNAL = "files", "about.jsonl"  # in `quarantine`
TOLD_MS = 7 * 86_400_000


class Moved(msgspec.Struct, frozen=True):
    """A line of the journal: which file, what was wrong, and where it is kept, both below the data directory."""

    name: str
    why: str
    at: int
    kept: str

    def __str__(self) -> str:
        return f"{self.name} {self.why}; it was moved to {self.kept}"


def tidy(folder: Path) -> None:
    """Move aside what is not what it should be. Only for the holder of the lock."""
    for name in ("quarantine", *box.FOLDERS):
        if why := _wrong_folder(folder / name):
            move(folder, folder / name, why)
    _adopt(folder)
    for name in FILES:
        clear(folder, name)


def clear(folder: Path, name: str) -> None:
    """Move aside whatever stands in the place of a file, unless it is one."""
    if why := _wrong_file(folder / name):
        move(folder, folder / name, why)


def move(folder: Path, path: Path, why: str, *, name: str = "") -> None:
    """Move a file or folder into the quarantine and note it there, as `name` if its own was changed before."""
    place = folder / "quarantine" / FOLDER
    kept = place / f"{path.name}-{ids.new()}"
    try:
        hook.make_private(str(place))
        path.rename(kept)
    except OSError:  # there is no such place, or it is on another disk
        kept = path.with_name(f"{path.name}{hook.DAMAGED}{ids.new()}")
        path.rename(kept)
    moved = Moved(name or str(path.relative_to(folder)), why, ids.now(), str(kept.relative_to(folder)))
    log.error("%s", moved)
    with contextlib.suppress(OSError):
        append_private(place / JOURNAL, msgspec.json.encode(moved) + b"\n")


def listing(folder: Path) -> list[Moved]:
    """What was moved aside and is still kept, newest first."""
    found = []
    try:
        lines = (folder / "quarantine" / FOLDER / JOURNAL).read_bytes().splitlines()
    except OSError:
        return []
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError):
            moved = msgspec.json.decode(line, type=Moved)
            if os.path.lexists(folder / moved.kept):
                found.append(moved)
    return found[::-1]


def recent(folder: Path, *, now: int) -> Iterator[Moved]:
    """What a person should be told of."""
    return (moved for moved in listing(folder) if now - moved.at < TOLD_MS)


def _adopt(folder: Path) -> None:
    """What a hook had to rename to be able to start a worker."""
    for place in (folder, folder / "logs"):
        for path in [path for path in place.iterdir() if hook.DAMAGED in path.name] if place.is_dir() else []:
            original = path.with_name(path.name.partition(hook.DAMAGED)[0])
            move(folder, path, _kind(path.lstat()), name=str(original.relative_to(folder)))


def _wrong_file(path: Path) -> str:
    """Why it can't be a file of ours; '' if it is one, or there is none."""
    try:
        about = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    if stat.S_ISREG(about.st_mode):
        return "has a second name" if about.st_nlink > 1 and path.name in (LOCK, "worker.log") else ""
    if stat.S_ISFIFO(about.st_mode) and path.name == PIPE:
        return ""
    return _kind(about)


def _wrong_folder(path: Path) -> str:
    """Likewise. A link that leads nowhere is left: the disk it leads to may come back."""
    try:
        about = path.lstat()
    except FileNotFoundError:
        return ""
    if stat.S_ISDIR(about.st_mode) or path.is_dir() or (stat.S_ISLNK(about.st_mode) and not path.exists()):
        return ""
    return "was a file, and no folder" if stat.S_ISREG(about.st_mode) else _kind(about)


def _kind(about: os.stat_result) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFREG: "a file"}
    return f"was {kinds.get(stat.S_IFMT(about.st_mode), 'no file')}"
