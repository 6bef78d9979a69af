"""The worker's log: entries with their tracebacks, newest first, from all rotated files."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from starlette.requests import Request

from claude_mem.errors import Misuse
from claude_mem.worker.requests import date_of, number
from claude_mem.worker.service import Service

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MOST_CHARS = 20_000
MOST_AT_ONCE = 1_000
_HEAD = re.compile(
    r"(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (?P<level>[A-Z]+) (?P<logger>[\w.]+): (?P<message>.*)", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Entry:
    at: int
    level: str
    logger: str
    message: str


@dataclass(frozen=True, slots=True)
class Wanted:
    level: str = ""
    text: str = ""
    before: int | None = None

    def matches(self, entry: Entry) -> bool:
        if self.before is not None and entry.at >= self.before:
            return False
        if self.level and _rank(entry.level) < _rank(self.level):
            return False
        return not self.text or self.text in f"{entry.logger}: {entry.message}".casefold()

    def may_match_in(self, text: str) -> bool:
        """Return False if no entry of this file can match, which saves parsing it."""
        levels = LEVELS[_rank(self.level) :] if self.level else ()
        return self.text in text.casefold() and (not levels or any(f" {level} " in text for level in levels))


def _rank(level: str) -> int:
    return LEVELS.index(level) if level in LEVELS else 0


async def show(service: Service, request: Request) -> Any:
    """The last `lines` (1–10,000) as text, and as entries with their tracebacks, newest first. `level` (this or more
    severe), `text`, `before` (milliseconds) → `{lines, items: [{at, level, logger, message}], hasMore}`."""
    params = request.query_params
    level = params.get("level", "").upper()
    if level and level not in LEVELS:
        raise Misuse(f"there is no level {level!r}", hint="use one of " + ", ".join(LEVELS))
    log_filter = Wanted(
        level=level,
        text=params.get("text", "").casefold(),
        before=date_of(params, "before"),
    )
    count = number(request, "lines", 200, low=1, high=10_000)
    return await asyncio.to_thread(read, service.config.log_file, log_filter, count)


def read(file: Path, log_filter: Wanted, count: int) -> dict[str, Any]:
    """Return `count` entries plus those with the same time as the last: the next page starts `before` that time."""
    items: list[Entry] = []
    more = False
    for entry in _newest_first(file, log_filter):
        if not log_filter.matches(entry):
            continue
        if len(items) >= count and (entry.at != items[-1].at or len(items) >= count + MOST_AT_ONCE):
            more = True
            break
        items.append(entry)
    lines = [line for entry in reversed(items) for line in _as_text(entry)][-count:]
    return {"lines": lines, "items": [asdict(entry) for entry in items], "hasMore": more}


def _newest_first(file: Path, log_filter: Wanted) -> Iterator[Entry]:
    """Yield entries of the current file, then of `.1`, `.2` …; older files are read only if needed."""
    for path in (file, *sorted(file.parent.glob(f"{file.name}.*"), key=_age)):
        try:
            text = path.read_text("utf-8", "replace")
        except OSError:
            continue  # just rotated, or missing
        if log_filter.may_match_in(text):
            yield from parse(text)


def _age(path: Path) -> int:
    tail = path.name.rpartition(".")[2]
    return int(tail) if tail.isdigit() else 1 << 30


def parse(text: str) -> Iterator[Entry]:
    """Yield entries, newest first. A line that starts no entry belongs to the entry before it."""
    continuation: list[str] = []
    for line in reversed(text.split("\n")):
        match = _HEAD.fullmatch(line)
        if match is None:
            continuation.append(line)
            continue
        message = "\n".join((match["message"], *reversed(continuation))).rstrip()
        yield Entry(_milliseconds(match["at"]), match["level"], match["logger"], message[:MOST_CHARS])
        continuation.clear()


def _milliseconds(at: str) -> int:
    """Parse a log time, which is local time; 0 if it is invalid."""
    try:
        return round(datetime.fromisoformat(at.replace(",", ".")).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0


def _as_text(entry: Entry) -> list[str]:
    moment = datetime.fromtimestamp(entry.at / 1000)
    head = f"{moment:%Y-%m-%d %H:%M:%S},{entry.at % 1000:03d} {entry.level} {entry.logger}: "
    return (head + entry.message).split("\n")
