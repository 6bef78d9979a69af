"""Disk space: a reserve file that is deleted when the disk is full, and the measurement of used and free space."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
from pathlib import Path

from claude_mem.system import data_directory

log = logging.getLogger(__name__)

RESERVE_BYTES = 16 << 20
_WRITE_FLAGS = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
RESERVE_MIN_FREE_BYTES = 3 * RESERVE_BYTES  # of free space required to create the reserve file


class ReserveFile:
    """The reserve file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def release(self) -> bool:
        """Delete the reserve file. Return whether that freed space."""
        try:
            self.path.unlink()
        except OSError:
            return False
        log.error("the disk is full; the reserve file of %d MB was deleted", RESERVE_BYTES >> 20)
        return True

    def make(self) -> bool:
        """Create the reserve file if there is space. Return whether it exists. It is allocated, not sparse."""
        if self.path.exists():
            return True
        if free_disk_bytes(self.path.parent) < RESERVE_MIN_FREE_BYTES:
            return False
        temp = self.path.with_name(f".{self.path.name}")
        try:
            with os.fdopen(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
                _fill(file.fileno())
            temp.rename(self.path)
        except OSError:
            temp.unlink(missing_ok=True)
            return False
        return True


def _fill(fd: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, RESERVE_BYTES)
        return
    for _ in range(RESERVE_BYTES >> 20):
        os.write(fd, os.urandom(1 << 20))


class DroppedEventCounter:
    """Counts the events that hooks could not write because the disk was full.

    The count is the size of a file minus one: each hook appends one byte.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return  # it exists, or there is no space for it either
        with contextlib.suppress(OSError), os.fdopen(fd, "wb", buffering=0) as file:
            file.write(b"\n")  # allocates the block, so that hooks can append when the disk is full

    def take(self) -> int:
        """Return the number of events since the last call, and reset the counter."""
        try:
            with os.fdopen(os.open(self.path, _WRITE_FLAGS), "wb", buffering=0) as file:
                status = os.fstat(file.fileno())
                if (
                    not stat.S_ISREG(status.st_mode)
                    or status.st_nlink > 1
                    or not data_directory.is_owned_by_user(status)
                ):
                    return 0  # not a file this program created
                if (count := max(status.st_size - 1, 0)) > 0:
                    file.truncate(1)
                return count
        except OSError:
            return 0


def free_disk_bytes(folder: Path) -> int:
    """Return the free space on the disk of a folder."""
    return shutil.disk_usage(folder).free


def folder_bytes(folder: Path, *, exclude: tuple[str, ...] = ()) -> int:
    """Return the size of a folder in bytes, without symbolic links and the entries named in `exclude`."""
    total = 0
    try:
        for entry in os.scandir(folder):
            if entry.name in exclude or entry.is_symlink():
                continue
            if entry.is_dir():
                total += folder_bytes(Path(entry.path))
            else:
                total += entry.stat(follow_symlinks=False).st_size
    except OSError:
        pass  # removed in the meantime
    return total


def get_file_signature(path: Path) -> str:
    """Return a value that changes whenever the file's content does: its size and modification time."""
    status = path.stat()
    return f"{status.st_size}.{status.st_mtime_ns}"
