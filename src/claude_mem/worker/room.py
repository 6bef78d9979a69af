"""Room on the disk: a ballast that is given up when there is none, and how much everything takes."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
from pathlib import Path

from claude_mem import box

log = logging.getLogger(__name__)

BALLAST_BYTES = 16 << 20
_WRITE_FLAGS = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
LEAST_BYTES = 3 * BALLAST_BYTES  # free, before the ballast is made (again)


class Ballast:
    def __init__(self, path: Path) -> None:
        self.path = path

    def release(self) -> bool:
        """True if that has made room."""
        try:
            self.path.unlink()
        except OSError:
            return False
        log.error("the disk is full; %d MB of ballast were given up", BALLAST_BYTES >> 20)
        return True

    def make(self) -> bool:
        """True if it is there. It takes real room, not just a length."""
        if self.path.exists():
            return True
        if free(self.path.parent) < LEAST_BYTES:
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
        os.posix_fallocate(fd, 0, BALLAST_BYTES)
        return
    for _ in range(BALLAST_BYTES >> 20):
        os.write(fd, os.urandom(1 << 20))


class Missed:
    """How many events hooks could not write, because the disk was full: a byte each, after the first."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return  # it is there, or there is no room for it either
        with contextlib.suppress(OSError), os.fdopen(fd, "wb", buffering=0) as file:
            file.write(b"\n")  # from now on its block is there

    def take(self) -> int:
        """Since it was asked last."""
        try:
            with os.fdopen(os.open(self.path, _WRITE_FLAGS), "wb", buffering=0) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or not box.is_mine(status):
                    return 0  # someone else's file
                if (count := max(status.st_size - 1, 0)) > 0:
                    file.truncate(1)
                return count
        except OSError:
            return 0


def free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def used(folder: Path, *, but: tuple[str, ...] = ()) -> int:
    """What lies in a folder, without links and the named entries."""
    total = 0
    try:
        for entry in os.scandir(folder):
            if entry.name in but or entry.is_symlink():
                continue
            if entry.is_dir():
                total += used(Path(entry.path))
            else:
                total += entry.stat(follow_symlinks=False).st_size
    except OSError:
        pass  # gone meanwhile
    return total
