"""Open files that someone else may have prepared: files of a project folder, transcripts, settings of other programs.

A repository, an unpacked archive or another user may put anything at a path that claude-mem reads: a link to
`/dev/zero`, a FIFO that blocks whoever opens it, a sparse file of many gigabytes, a file of another user. So a path is
looked at before it is opened (opening a device or a FIFO has effects of its own), opened without blocking, checked
again through the descriptor, and read up to a limit. Every file that claude-mem did not write itself is opened here;
`tests/test_reading.py` lists the exceptions.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

MOST_BYTES = 64 << 10
MOST_SETTINGS = 4 << 20
MOST_TRANSCRIPT = 2 << 30
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
# Regular files by their mode, but made by the kernel as they are read: endless, blocking, or someone's memory.
_KERNEL_FOLDERS = ("/proc", "/sys", "/dev")


class Refused(OSError):
    """A file that is not read. `str(error)` says why, without the path."""

    foreign = False  # whether it belongs to another user

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EPERM, reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class TooLarge(Refused):
    """A file that is larger than any honest one of its kind."""


class Foreign(Refused):
    """A file of another user."""

    foreign = True


def is_mine(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid()


def read(path: Path, *, most: int = MOST_BYTES, owner: int | None = None) -> bytes:
    """Return the content of a regular file of at most `most` bytes that belongs to this user, to root or to `owner`."""
    with opened(path, owner=owner) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise TooLarge(f"is larger than {most >> 10} KB")
    return content


def read_text(path: Path, *, most: int = MOST_BYTES, owner: int | None = None) -> str:
    return read(path, most=most, owner=owner).decode("utf-8")


def read_start(path: Path, size: int) -> bytes:
    """Return the first `size` bytes of a regular file, however large the file is."""
    with opened(path) as file:
        return file.read(size)


def read_settings(path: Path, *, most: int = MOST_SETTINGS) -> bytes:
    """Return the content of a file that the person or their settings have named. Links are followed, and any owner will
    do; it must be a regular file of at most `most` bytes."""
    _check_regular(path.stat())
    with os.fdopen(os.open(path, _FLAGS), "rb", buffering=0) as file:
        _check_regular(os.fstat(file.fileno()))
        content = file.read(most + 1)
    if len(content) > most:
        raise TooLarge(f"is larger than {most >> 10} KB")
    return content


@contextmanager
def opened(path: Path, *, owner: int | None = None) -> Iterator[IO[bytes]]:
    """Open a regular file of this user, of root or of `owner`. A symbolic link is refused, not followed."""
    _check(path.lstat(), owner=owner)
    with os.fdopen(os.open(path, _FLAGS | os.O_NOFOLLOW), "rb", buffering=0) as file:
        _check(os.fstat(file.fileno()), owner=owner)
        yield file


@contextmanager
def opened_transcript(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file of up to 2 GB that belongs to this user, to root or to the owner of its folder. Links are
    followed: people keep transcripts on other disks."""
    _check_transcript(path.stat(), path)
    real = Path(os.path.realpath(path))
    if any(real.is_relative_to(folder) for folder in _KERNEL_FOLDERS):
        raise Refused("is a file of the kernel")
    with os.fdopen(os.open(path, _FLAGS), "rb") as file:
        _check_transcript(os.fstat(file.fileno()), real)
        yield file


def is_own(path: Path) -> bool:
    """Whether a file belongs to this user or to root. True if there is none: whoever reads it will notice."""
    try:
        return path.stat().st_uid in (os.geteuid(), 0)
    except (OSError, ValueError):
        return True


def _check(status: os.stat_result, *, owner: int | None) -> None:
    if status.st_uid not in (os.geteuid(), 0, owner):
        raise Foreign("belongs to another user")
    if stat.S_ISLNK(status.st_mode):
        raise Refused("is a link, and is not followed")
    _check_regular(status)


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Refused("is not a regular file")


def _check_transcript(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise IsADirectoryError("not a file")
    if status.st_uid not in (os.geteuid(), 0, path.parent.stat().st_uid):
        raise Foreign("belongs to another user")
    if status.st_size > MOST_TRANSCRIPT:
        raise TooLarge(f"is larger than {MOST_TRANSCRIPT >> 30} GB")
