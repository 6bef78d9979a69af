"""A transcript's lines, from where it was last read to the last whole one, in bounded memory."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from claude_mem import untrusted_files
from claude_mem.hosts.dialect import Fields, Found, Head, milliseconds

MAX_LINE = 8 << 20  # what stands in it may take thirty times as much memory
WHOLE_BYTES = 64 << 20  # the most of a file that can't be read in parts, unpacked
MAX_DOCUMENT = 16 << 20  # the most of a file that is one record
_HEAD_LINES = 200
_PIECE = 1 << 20
_TAIL_BYTES = 1 << 16


class TooMuch(Exception):
    """More than can be read at once."""


def read(path: Path, found: Found, take: Callable[[int, Fields], None], *, offset: int = 0, over: bool = False) -> None:
    """Hand over each record with the place where it begins. `found` learns how far that went, how many lines could not
    be understood, and what was wrong with the file. See `dialect.Reader` for `over`."""
    with problems(found), opened(path) as file:
        found.offset = start = offset if offset <= path.stat().st_size else 0  # a shorter file is another file
        file.seek(start)
        for size, line in each(file, over=over, most=WHOLE_BYTES if over else None):
            if not _taken(line, partial(take, start)):
                found.bad_lines += 1
                if not line.endswith(b"\n"):
                    found.problem = "truncated"
            start += size
            found.offset = start


def _taken(line: bytes, take: Callable[[Fields], None]) -> bool:
    """False if it could not be understood, or is nested deeper than anyone can follow."""
    if (known := record(line)) is None:
        return not line.strip()
    try:
        take(known)
    except RecursionError:
        return False
    return True


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a transcript, packed or not. Anything but a regular file is refused: a pipe or a device has no end."""
    with untrusted_files.opened_transcript(path) as file:
        if path.suffix != ".gz":
            yield file
            return
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield cast("IO[bytes]", unpacked)


@contextmanager
def problems(found: Found) -> Iterator[None]:
    """Gone, unreadable, or no name a file can have: it tells nothing more, and says why."""
    try:
        yield
    except FileNotFoundError:
        found.problem = "gone"
    except IsADirectoryError:
        found.problem = "not_a_file"
    except TooMuch:
        found.problem = "huge"
    except EOFError:
        found.problem = "truncated"
    except (gzip.BadGzipFile, zlib.error):
        found.problem = "broken"
    except (OSError, ValueError):
        found.problem = "unreadable"


def each(file: IO[bytes], *, over: bool = False, most: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Each whole line with its length; in place of one that is too long, something that can't be understood. What has
    no end yet is left, unless the file is over."""
    while line := _piece(file, MAX_LINE, most):
        size, ends = len(line), line.endswith(b"\n")
        if size == MAX_LINE and not ends:
            while more := _piece(file, _PIECE, most):
                size += len(more)
                if ends := more.endswith(b"\n"):
                    break
            line = b"-\n" if ends else b"-"
        if ends or over:
            yield size, line


def _piece(file: IO[bytes], size: int, most: int | None) -> bytes:
    piece = file.readline(size)
    if most is not None and file.tell() > most:
        raise TooMuch
    return piece


def head(path: Path, learn: Callable[[Found, Fields], None]) -> Head:
    """A quick look: `learn` looks for the session and its folder in the first records; the last has the last time."""
    found = Found()
    began = ended = 0
    with problems(found), opened(path) as file:
        for _, line in islice(each(file, over=True), _HEAD_LINES):
            known = record(line) or {}
            learn(found, known)
            began = began or milliseconds(known.get("timestamp"))
            if found.content_session_id and found.cwd and began:
                break
        for line in reversed(tail(file).splitlines()):
            ended = ended or milliseconds((record(line) or {}).get("timestamp"))
    return Head(found.content_session_id, found.cwd, began, max(began, ended))


def tail(file: IO[bytes]) -> bytes:
    """The end of a file. A packed one has to be gone through."""
    if not isinstance(file, gzip.GzipFile):
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return file.read()
    kept = b""
    while piece := file.read(_PIECE):
        kept = (kept + piece)[-_TAIL_BYTES:]
    return kept


def record(line: bytes) -> dict[str, Any] | None:
    """One bad line says nothing about the next; half a surrogate or a stray byte is no reason to lose one."""
    try:
        found = msgspec.json.decode(line)
    except RecursionError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        try:
            found = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None
