"""A transcript's lines, from where it was last read to the last whole one."""

from __future__ import annotations

import gzip
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

_MAX_LINE = 64 << 20


def read_lines(path: Path, offset: int) -> Iterator[tuple[int, bytes]]:
    """Where each begins, and the line. Raises what opening and reading raise."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise OSError("not a file")  # opening a pipe would wait for ever
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        start = offset if offset <= about.st_size else 0  # a shorter file is another file
        file.seek(start)
        for line in file:
            if not line.endswith(b"\n"):
                return  # still being written
            yield start, line
            start += len(line)


def record(line: bytes) -> dict[str, Any] | None:
    """One bad line says nothing about the next."""
    try:
        found = msgspec.json.decode(line) if len(line) < _MAX_LINE else None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None
