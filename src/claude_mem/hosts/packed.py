"""A gzip file as the text that was packed into it, streamed and within limits.

A few kilobytes may unpack to gigabytes, and a file may consist of millions of empty parts. `gzip.GzipFile` has no limit
for either.
"""

from __future__ import annotations

import io
import os
import zlib
from typing import IO, Any

from claude_mem.untrusted_files import TooLarge

MAX_BYTES = 512 << 20  # unpacked
MAX_MEMBERS = 10_000  # a file may be several, one after the other
_READ = 256 << 10
_FEED = 256  # bytes at a time: where a file is damaged, what these unpack to is lost
_GZIP = 31  # for zlib: with the head and the checksum of gzip


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
        """Go back by beginning again, and on by reading: there is no other way."""
        wanted = offset if whence == os.SEEK_SET else self.position + offset
        if whence == os.SEEK_END:
            raise io.UnsupportedOperation("the end of a packed file is not known")
        if wanted < self.position:
            self._restart()
        while self.position < wanted and self._next(min(_READ, wanted - self.position)):
            pass
        return self.position

    def readinto(self, buffer: Any) -> int:
        piece = self._next(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def _next(self, size: int) -> bytes:
        """Return up to `size` bytes; none at the end. EOFError if the file ends in the middle."""
        while True:
            if self.stream is None and not self._next_member():
                return b""
            assert self.stream is not None
            packed = self.rest or self.file.read(_FEED)
            piece = self.stream.decompress(packed, size)
            self.rest = self.stream.unconsumed_tail or self.stream.unused_data
            if self.stream.eof:
                self.stream = None
            elif not piece and not packed:
                raise EOFError("the packed file ends in the middle")
            if piece:
                self.position += len(piece)
                if self.position > MAX_BYTES:
                    raise TooLarge(f"unpacks to more than {MAX_BYTES >> 20} MB")
                return piece

    def _next_member(self) -> bool:
        """Begin the next part of the file. False if there is none: zeros may follow the last."""
        if self.members:
            self.rest = self.rest.lstrip(b"\0")
        while not self.rest:
            if not (more := self.file.read(_FEED)):
                return False
            self.rest = more.lstrip(b"\0") if self.members else more
        self.members += 1
        if self.members > MAX_MEMBERS:
            raise TooLarge(f"consists of more than {MAX_MEMBERS} parts")
        self.stream = zlib.decompressobj(_GZIP)
        return True


class Unpacked(io.BufferedReader):
    """What was packed into a gzip file."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(_Raw(file), buffer_size=64 << 10)
