"""Repairs the small files of the data directory: anything that occupies the path of one is moved to quarantine.

A directory, link or pipe in place of one of our files would keep the worker from starting, and then nothing would be
remembered. So the holder of the lock moves it to `quarantine/files/`, records the move in a journal there, and creates
the file again. Files of another user are still refused (`box.py`), and so is a link in place of the database, because
the user may have put it there on purpose.
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
_MORE_FILES = (KEY, STONES, "audit.jsonl", "forgetting.json", "logs/worker.log", "logs/start.log")
FILES = (*(name for name in box.FILES if ".db" not in name), *_MORE_FILES)
FOLDER, JOURNAL = "files", "about.jsonl"  # in `quarantine`
TOLD_MS = 7 * 86_400_000


class Moved(msgspec.Struct, frozen=True):
    """A line of the journal: the file, what was wrong, and its new path; both paths relative to the data directory."""

    name: str
    why: str
    at: int
    kept: str

    def __str__(self) -> str:
        return f"{self.name} {self.why}; it was moved to {self.kept}"


def tidy(folder: Path) -> None:
    """Move everything that has the wrong file type to quarantine. The caller must hold the lock."""
    for name in ("quarantine", *box.FOLDERS):
        if why := _wrong_folder(folder / name):
            move(folder, folder / name, why)
    _move_displaced_by_hooks(folder)
    for name in FILES:
        clear(folder, name)


def clear(folder: Path, name: str) -> None:
    """Move anything that is not a regular file from this path to quarantine."""
    if why := _wrong_file(folder / name):
        move(folder, folder / name, why)


def move(folder: Path, path: Path, why: str, *, name: str = "") -> None:
    """Move a path to quarantine and record it in the journal, as `name` if it was renamed before."""
    quarantine = folder / "quarantine" / FOLDER
    target = quarantine / f"{path.name}-{ids.new()}"
    try:
        hook.make_private(str(quarantine))
        path.rename(target)
    except OSError:  # the quarantine is missing or on another disk
        target = path.with_name(f"{path.name}{hook.DAMAGED}{ids.new()}")
        path.rename(target)
    moved = Moved(name or str(path.relative_to(folder)), why, ids.now(), str(target.relative_to(folder)))
    log.error("%s", moved)
    with contextlib.suppress(OSError):
        append_private(quarantine / JOURNAL, msgspec.json.encode(moved) + b"\n")


def listing(folder: Path) -> list[Moved]:
    """Return the journal's entries whose files are still in quarantine, newest first."""
    entries = []
    try:
        lines = (folder / "quarantine" / FOLDER / JOURNAL).read_bytes().splitlines()
    except OSError:
        return []
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError):
            entry = msgspec.json.decode(line, type=Moved)
            if os.path.lexists(folder / entry.kept):
                entries.append(entry)
    return entries[::-1]


def recent(folder: Path, *, now: int) -> Iterator[Moved]:
    """Return the entries that are recent enough to be reported to the user."""
    return (moved for moved in listing(folder) if now - moved.at < TOLD_MS)


def _move_displaced_by_hooks(folder: Path) -> None:
    """Move to quarantine what hooks had to rename in order to start a worker."""
    for place in (folder, folder / "logs"):
        for path in [path for path in place.iterdir() if hook.DAMAGED in path.name] if place.is_dir() else []:
            original = path.with_name(path.name.partition(hook.DAMAGED)[0])
            move(folder, path, _kind(path.lstat()), name=str(original.relative_to(folder)))


def _wrong_file(path: Path) -> str:
    """Return what is wrong with a file, or "" if it is a proper file or does not exist."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    if stat.S_ISREG(status.st_mode):
        return "has a second hard link" if status.st_nlink > 1 and path.name in (LOCK, "worker.log") else ""
    if stat.S_ISFIFO(status.st_mode) and path.name == PIPE:
        return ""
    return _kind(status)


def _wrong_folder(path: Path) -> str:
    """Return what is wrong with a directory, or "". A broken link is left alone: its disk may be mounted later."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return ""
    if stat.S_ISDIR(status.st_mode) or path.is_dir() or (stat.S_ISLNK(status.st_mode) and not path.exists()):
        return ""
    return "was a file, not a directory" if stat.S_ISREG(status.st_mode) else _kind(status)


def _kind(status: os.stat_result) -> str:
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFREG: "a file"}
    return f"was {kinds.get(stat.S_IFMT(status.st_mode), 'not a file')}"
