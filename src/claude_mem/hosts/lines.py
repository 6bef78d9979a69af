"""A transcript's lines, from where it was last read to the last whole one."""

from __future__ import annotations

import gzip
import json
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from claude_mem.hosts.dialect import Found

MAX_LINE = 64 << 20
_PIECE = 1 << 20
_TAIL_BYTES = 1 << 16


def read_lines(path: Path, offset: int) -> Iterator[tuple[int, bytes]]:
    """Where each begins, and the line. Raises what opening and reading raise."""
    with opened(path) as file:
        start = offset if offset <= path.stat().st_size else 0  # a shorter file is another file
        file.seek(start)
        for size, line in each(file):
            yield start, line
            start += size


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    if not stat.S_ISREG(path.stat().st_mode):
        raise IsADirectoryError("not a file")  # opening a pipe would wait for ever
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        yield cast("IO[bytes]", file)


@contextmanager
def problems(found: Found) -> Iterator[None]:
    """Gone, unreadable, or no name a file can have: it tells nothing more, and says why."""
    try:
        yield
    except FileNotFoundError:
        found.problem = "gone"
    except IsADirectoryError:
        found.problem = "not_a_file"
    except EOFError:
        found.problem = "truncated"
    except (gzip.BadGzipFile, zlib.error):
        found.problem = "broken"
    except (OSError, ValueError):
        found.problem = "unreadable"


def each(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Each whole line with its length; in place of one that is too long, something that can't be understood. What has
    no end yet is left."""
    while line := file.readline(MAX_LINE):
        size = len(line)
        if size == MAX_LINE and not line.endswith(b"\n"):
            more = line = b"-"
            while more and not more.endswith(b"\n"):
                more = file.readline(_PIECE)
                size += len(more)
            if not more:
                return
        elif not line.endswith(b"\n"):
            return
        yield size, line


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
