"""Reads gzip files as a stream, within limits.

A few kilobytes may unpack to gigabytes, and a file may consist of millions of empty members. `gzip.GzipFile` limits
neither.
"""

from __future__ import annotations

import io
import os
import zlib
from typing import IO, Any

from claude_mem.untrusted_files import TooLarge

MAX_BYTES = 512 << 20  # unpacked
MAX_MEMBERS = 10_000  # a gzip file may consist of several members
_SKIP_BYTES = 256 << 10
_INPUT_BYTES = 256  # read at a time; in a damaged file, the data unpacked from the last such piece is lost
_GZIP = 31  # `wbits` for zlib: with gzip header and checksum


class _Raw(io.RawIOBase):
    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self._restart()

    def _restart(self) -> None:
        self.file.seek(0)
        self.position = self.members = 0
        self.rest = b""
        self.stream: zlib._Decompress | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Seek backwards by starting again, and forwards by reading."""
        target = offset if whence == os.SEEK_SET else self.position + offset
        if whence == os.SEEK_END:
            raise io.UnsupportedOperation("the size of a compressed file is unknown")
        if target < self.position:
            self._restart()
        while self.position < target and self._next(min(_SKIP_BYTES, target - self.position)):
            pass
        return self.position

    def readinto(self, buffer: Any) -> int:
        piece = self._next(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def _next(self, size: int) -> bytes:
        """Return up to `size` bytes, or b"" at the end. Raise EOFError if the file is truncated."""
        while True:
            if self.stream is None and not self._next_member():
                return b""
            assert self.stream is not None
            packed = self.rest or self.file.read(_INPUT_BYTES)
            piece = self.stream.decompress(packed, size)
            self.rest = self.stream.unconsumed_tail or self.stream.unused_data
            if self.stream.eof:
                self.stream = None
            elif not piece and not packed:
                raise EOFError("the compressed file is truncated")
            if piece:
                self.position += len(piece)
                if self.position > MAX_BYTES:
                    raise TooLarge(f"unpacks to more than {MAX_BYTES >> 20} MB")
                return piece

    def _next_member(self) -> bool:
        """Start the next member; return False if there is none. The last member may be followed by zeros."""
        if self.members:
            self.rest = self.rest.lstrip(b"\0")
        while not self.rest:
            if not (more := self.file.read(_INPUT_BYTES)):
                return False
            self.rest = more.lstrip(b"\0") if self.members else more
        self.members += 1
        if self.members > MAX_MEMBERS:
            raise TooLarge(f"consists of more than {MAX_MEMBERS} members")
        self.stream = zlib.decompressobj(_GZIP)
        return True


class Unpacked(io.BufferedReader):
    """Reader for the uncompressed content of a gzip file."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(_Raw(file), buffer_size=64 << 10)
