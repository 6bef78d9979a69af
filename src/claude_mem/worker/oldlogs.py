"""Lines of the log that are past keeping."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from claude_mem.spool import changed_at


def trim(folder: Path, *, before: int) -> None:
    """A file in which nothing is newer goes as a whole."""
    limit = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(before / 1000))
    for path in folder.glob("*.log*"):
        if changed_at(path) * 1000 < before:
            path.unlink(missing_ok=True)
        else:
            with suppress(FileNotFoundError):  # it was renamed meanwhile, and is seen to tomorrow; or leads nowhere
                if _begins_before(path, limit):
                    _cut(path, limit)


def _begins_before(path: Path, limit: str) -> bool:
    with path.open("rb") as file:
        first = file.readline(200).decode("utf-8", "replace")
    return _is_dated(first) and first < limit


def _is_dated(line: str) -> bool:
    """Only the first line of an entry is."""
    return line[:2] == "20" and line[4:5] == "-"


def _cut(path: Path, limit: str) -> None:
    """In place: whoever writes to it appends, and goes on at its new end."""
    with _quiet(path), path.open("rb+") as file:
        kept = b""
        for line in file:
            text = line[:200].decode("utf-8", "replace")
            if _is_dated(text) and text >= limit:
                kept = line + file.read()
                break
        file.seek(0)
        file.write(kept)
        file.truncate()


@contextmanager
def _quiet(path: Path) -> Iterator[None]:
    """Nothing is written to it meanwhile."""
    writers = [each for each in logging.getLogger().handlers if getattr(each, "baseFilename", "") == str(path)]
    for writer in writers:
        writer.acquire()
    try:
        yield
    finally:
        for writer in writers:
            writer.release()
