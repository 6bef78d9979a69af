"""Retention of log files."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from claude_mem.spool import changed_at


def trim(folder: Path, *, before: int) -> None:
    """Remove log lines older than `before`. A file last changed before then is deleted."""
    limit = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(before / 1000))
    for path in folder.glob("*.log*"):
        if changed_at(path) * 1000 < before:
            path.unlink(missing_ok=True)
        else:
            with suppress(FileNotFoundError):  # rotated in the meantime, so trimmed next time; or a dangling link
                if _starts_before(path, limit):
                    _drop_lines_before(path, limit)


def _starts_before(path: Path, limit: str) -> bool:
    with path.open("rb") as file:
        first = file.readline(200).decode("utf-8", "replace")
    return _starts_with_date(first) and first < limit


def _starts_with_date(line: str) -> bool:
    """Return whether the line starts with a date, as only the first line of an entry does."""
    return line[:2] == "20" and line[4:5] == "-"


def _drop_lines_before(path: Path, limit: str) -> None:
    """Remove the older lines in place. Open handles append, so they continue at the new end of the file."""
    with _paused_handlers(path), path.open("rb+") as file:
        remainder = b""
        for line in file:
            text = line[:200].decode("utf-8", "replace")
            if _starts_with_date(text) and text >= limit:
                remainder = line + file.read()
                break
        file.seek(0)
        file.write(remainder)
        file.truncate()


@contextmanager
def _paused_handlers(path: Path) -> Iterator[None]:
    """Hold the locks of the log handlers that write to this file."""
    handlers = [
        candidate for candidate in logging.getLogger().handlers if getattr(candidate, "baseFilename", "") == str(path)
    ]
    for handler in handlers:
        handler.acquire()
    try:
        yield
    finally:
        for handler in handlers:
            handler.release()
