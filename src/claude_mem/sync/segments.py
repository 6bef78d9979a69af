"""A device's sealed log in files: segments, each named by the index of its first entry.

Only one machine writes them, always at the end, and a segment that is full is never touched again. So a program that
copies the files to other machines, late, partly or in another order, can at worst hide the newest entries for a while:
each frame has a checksum, and reading stops at the first one that is incomplete, or at a gap between two segments.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from claude_mem import hook
from claude_mem.sync.errors import Conflict, SpaceUnavailable
from claude_mem.sync.seal import MAX_SEALED_BYTES
from claude_mem.system.spool import sync_directory

MAX_SEGMENT_BYTES = 4 << 20  # when it is full; the last entry may exceed it
MAX_SEGMENTS = 20_000
SUFFIX = ".seg"
_NAME = re.compile(r"(\d{10})\.seg")
_FRAME = struct.Struct(">I8s")


def encode_frame(entry: bytes) -> bytes:
    """Return an entry as it is stored."""
    return _FRAME.pack(len(entry), hashlib.sha256(entry).digest()[:8]) + entry


def decode_frames(data: bytes) -> tuple[list[bytes], int]:
    """Return the entries up to the first that is incomplete or damaged, and the number of bytes they take."""
    entries: list[bytes] = []
    at = 0
    while at + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, at)
        entry = data[at + _FRAME.size : at + _FRAME.size + length]
        if not 0 < length <= MAX_SEALED_BYTES or hashlib.sha256(entry).digest()[:8] != checksum:
            break
        entries.append(entry)
        at += _FRAME.size + length
    return entries, at


def segment_name(first: int) -> str:
    """Return the name of the segment that begins with this index."""
    return f"{first:010d}{SUFFIX}"


def first_index(name: str) -> int | None:
    """Return the index with which a segment begins, or None if the name is not a segment's."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


class SegmentLog:
    """The segments of one device in one directory. Others may have written into it: links and pipes are not opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._counts: dict[tuple[int, int, int], int] = {}  # entries of a segment, by index, size and time

    def head(self) -> int:
        """Return the index of the last entry that can be read."""
        return self._contiguous()[1]

    def read(self, *, after: int, most_bytes: int, limit: int) -> list[bytes]:
        """Return entries after an index, at least one if there is one."""
        page: list[bytes] = []
        size = 0
        firsts, head = self._contiguous()
        for number, first in enumerate(firsts):
            if number + 1 < len(firsts) and firsts[number + 1] <= after + 1:
                continue
            for index, entry in enumerate(self._load(first)[0], start=first):
                if not after < index <= head:
                    continue
                size += len(entry)
                if page and (size > most_bytes or len(page) >= limit):
                    return page
                page.append(entry)
        return page

    def append(self, entries: Sequence[bytes], *, after: int) -> None:
        """Append entries durably. Those that are there already are skipped; other ones in their place are a conflict.
        What a crash or a partial copy left after the last complete entry is overwritten."""
        hook.make_private_dir(str(self.folder))
        with locked(self.folder):
            firsts, head = self._contiguous()
            if after > head:
                raise Conflict(f"the log ends at entry {head:,}, not at {after:,}", head=head)
            present = self.read(after=after, most_bytes=1 << 62, limit=len(entries)) if after < head else []
            if present != list(entries[: len(present)]):
                raise Conflict(f"other entries follow entry {after:,}", head=head)
            fresh = entries[len(present) :]
            if fresh:
                self._write(fresh, firsts, head)

    def _write(self, entries: Sequence[bytes], firsts: Sequence[int], head: int) -> None:
        """Write into the last segment until it is full, then into new ones. Segments beyond a gap are in the way."""
        first = firsts[-1] if firsts else head + 1
        _, end = self._load(first)
        pending = list(entries)
        while pending:
            if end >= MAX_SEGMENT_BYTES:
                first, end = head + 1, 0
            block = b""
            while pending and (not block or end + len(block) < MAX_SEGMENT_BYTES):
                block += encode_frame(pending.pop(0))
                head += 1
            self._write_block(self.folder / segment_name(first), block, end)
            end += len(block)

    def _write_block(self, path: Path, block: bytes, end: int) -> None:
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "rb+") as file:
            file.truncate(end)
            file.seek(end)
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self.folder)

    def _contiguous(self) -> tuple[list[int], int]:
        """Return the segments that follow each other without a gap, and the last index."""
        usable: list[int] = []
        head = 0
        for first in self._list():
            if first != head + 1:
                break
            usable.append(first)
            head += self._count(first)
        return usable, head

    def _list(self) -> list[int]:
        try:
            names = [entry.name for entry in os.scandir(self.folder)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SpaceUnavailable(f"{self.folder} can't be read: {error.strerror}") from error
        return sorted(first for name in names[: 4 * MAX_SEGMENTS] if (first := first_index(name)))[:MAX_SEGMENTS]

    def _count(self, first: int) -> int:
        try:
            status = (self.folder / segment_name(first)).lstat()
        except OSError:
            return 0
        key = (first, status.st_size, status.st_mtime_ns)
        if key not in self._counts:
            self._counts[key] = len(self._load(first)[0])
        return self._counts[key]

    def _load(self, first: int) -> tuple[list[bytes], int]:
        return decode_frames(
            read_plain_file(self.folder / segment_name(first), MAX_SEGMENT_BYTES + 2 * MAX_SEALED_BYTES)
        )


def read_plain_file(path: Path, most: int) -> bytes:
    """Return the content of a regular file; nothing if it is missing, another kind of file, or larger than `most`."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return b""
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            return file.read(most) if stat.S_ISREG(status.st_mode) and status.st_size <= most else b""
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        raise SpaceUnavailable(f"{path} can't be read: {error.strerror}") from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a directory, against other processes of this machine."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
