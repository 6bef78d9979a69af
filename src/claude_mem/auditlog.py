"""What left this machine, what was told to whom, what was deleted: one line each, none of them with any content.

`audit.jsonl` only grows. Each line has its number and the hash of the line before, so that a line that was changed,
taken out or put in shows; how far it had come is in the database as well, so that a cut-off end shows too. A file that
has grown large is put beside under the number of its first line, and the chain goes on in the next.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from claude_mem import ids
from claude_mem.errors import CannotDo
from claude_mem.spool import append_private

NAME = "audit.jsonl"
MOST_BYTES = 8 << 20
START = "0" * 64

Fact = int | float | str | bool | None | Sequence[Any] | dict[str, Any]


@dataclass(frozen=True, slots=True)
class Head:
    """How far the chain has come."""

    n: int = 0
    hash: str = START


class AuditLog:
    """Written by the one process that holds the data directory's lock."""

    def __init__(self, folder: Path, head: Head | None = None, *, most_bytes: int = MOST_BYTES) -> None:
        self.path = folder / NAME
        self.most_bytes = most_bytes
        self._lock = threading.Lock()
        self.head = _last(folder, head or Head())

    def append(self, what: str, **facts: Fact) -> Head:
        """On disk when it returns. `CannotDo` if it can't be written: then what it tells of must not happen."""
        with self._lock:
            line: dict[str, Any] = {
                "n": self.head.n + 1,
                "at": ids.now(),
                "what": what,
                **facts,
                "prev": self.head.hash,
            }
            line["hash"] = digest(line)
            try:
                self._rotate()
                append_private(self.path, msgspec.json.encode(line) + b"\n")
            except OSError as error:
                raise CannotDo(f"{self.path} can't be written: {error.strerror}", hint="nothing was sent") from error
            self.head = Head(line["n"], line["hash"])
            return self.head

    def _rotate(self) -> None:
        try:
            full = self.path.stat().st_size >= self.most_bytes
        except FileNotFoundError:
            return
        if full:
            with self.path.open("rb") as file:
                first = _parsed(file.readline()) or {"n": 0}
            self.path.rename(self.path.with_name(f"audit-{first['n']:09d}.jsonl"))


def digest(line: dict[str, Any]) -> str:
    told = {name: item for name, item in line.items() if name != "hash"}
    return hashlib.sha256(msgspec.json.encode(told, order="sorted")).hexdigest()


# --- reading ---------------------------------------------------------------------------------------------------------


def files(folder: Path) -> list[Path]:
    """Oldest first."""
    now = folder / NAME
    return [*sorted(folder.glob("audit-*.jsonl")), *([now] if now.is_file() else [])]


def lines(folder: Path) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Each with where it stands; None if it can't be read."""
    for path in files(folder):
        for number, raw in enumerate(path.read_bytes().splitlines(), 1):
            yield f"{path.name}:{number}", _parsed(raw)


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("n"), int) else None


def _last(folder: Path, head: Head) -> Head:
    """Where to go on. A file that ends before the head has lost lines: the numbers go on after them, and show it."""
    found = Head()
    for path in reversed(files(folder)):
        told = [line for raw in path.read_bytes().splitlines()[-5:] if (line := _parsed(raw))]
        if told:
            found = Head(told[-1]["n"], str(told[-1].get("hash", "")))
            break
    return found if found.n >= head.n else head


def verify(folder: Path, head: Head) -> tuple[int, list[str]]:
    """How many lines there are, and everything that is wrong with them."""
    wrong: list[str] = []
    before, count, seen = Head(), 0, head.n == 0
    for place, line in lines(folder):
        count += 1
        if line is None:
            wrong.append(f"{place} can't be read")
            continue
        if line.get("hash") != digest(line):
            wrong.append(f"{place}: line {line['n']} was changed")
        elif line.get("prev") != before.hash or line["n"] != before.n + 1:
            wrong.append(f"{place}: line {line['n']} does not follow line {before.n}")
        before = Head(line["n"], str(line.get("hash", "")))
        seen = seen or before == head
    if before.n < head.n:
        wrong.append(f"the end is missing: {head.n - before.n} lines after line {before.n}")
    elif not seen:
        wrong.append(f"line {head.n} is not the one that was written")
    return count, wrong
