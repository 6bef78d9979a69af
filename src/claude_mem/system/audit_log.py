"""The audit log: one line for everything that was sent from this machine, injected or deleted, without any content.

`audit.jsonl` is append-only. Each line has a number and the hash of the previous line, so that changed, removed or
inserted lines are detected. The number and hash of the last line are also stored in the database, so that a truncated
end is detected too. A large file is renamed to the number of its first line, and the chain continues in a new file.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from claude_mem.domain import ids
from claude_mem.domain.errors import OperationFailed
from claude_mem.system.spool import append_private

FILE_NAME = "audit.jsonl"
MAX_FILE_BYTES = 8 << 20
FIRST_HASH = "0" * 64

AuditValue = int | float | str | bool | None | Sequence[Any] | dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChainHead:
    """Number and hash of the last line of the chain."""

    n: int = 0
    hash: str = FIRST_HASH


class AuditLog:
    """The audit log of a data directory. Only the process that holds the directory's lock may write to it."""

    def __init__(self, folder: Path, head: ChainHead | None = None, *, most_bytes: int = MAX_FILE_BYTES) -> None:
        self.path = folder / FILE_NAME
        self.most_bytes = most_bytes
        self._lock = threading.Lock()
        self.head = _resume_head(folder, head or ChainHead())

    def append(self, what: str, **facts: AuditValue) -> ChainHead:
        """Append a line, durable on return. Raises `OperationFailed` on failure: the caller must then not proceed."""
        with self._lock:
            line: dict[str, Any] = {
                "n": self.head.n + 1,
                "at": ids.now_ms(),
                "what": what,
                **facts,
                "prev": self.head.hash,
            }
            line["hash"] = line_hash(line)
            try:
                self._rotate()
                append_private(self.path, msgspec.json.encode(line) + b"\n")
            except OSError as error:
                raise OperationFailed(
                    f"{self.path} cannot be written: {error.strerror}", hint="nothing was sent"
                ) from error
            self.head = ChainHead(line["n"], line["hash"])
            return self.head

    def _rotate(self) -> None:
        try:
            full = self.path.stat().st_size >= self.most_bytes
        except FileNotFoundError:
            return
        if full:
            with self.path.open("rb") as file:
                first = _parse(file.readline()) or {"n": 0}
            self.path.rename(self.path.with_name(f"audit-{first['n']:09d}.jsonl"))


def line_hash(line: dict[str, Any]) -> str:
    hashed = {name: item for name, item in line.items() if name != "hash"}
    return hashlib.sha256(msgspec.json.encode(hashed, order="sorted")).hexdigest()


# --- reading ---------------------------------------------------------------------------------------------------------


def log_files(folder: Path) -> list[Path]:
    """Return the files of the audit log, oldest first."""
    current = folder / FILE_NAME
    return [*sorted(folder.glob("audit-*.jsonl")), *([current] if current.is_file() else [])]


def read_lines(folder: Path) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Yield each line's position and content; the content is None if the line cannot be parsed."""
    for path in log_files(folder):
        for number, raw in enumerate(path.read_bytes().splitlines(), 1):
            yield f"{path.name}:{number}", _parse(raw)


def _parse(raw: bytes) -> dict[str, Any] | None:
    try:
        entry = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("n"), int) else None


def _resume_head(folder: Path, head: ChainHead) -> ChainHead:
    """Return where to continue the chain.

    If the file ends before `head`, lines were lost: numbering continues after `head`, so that the gap is detected.
    """
    last = ChainHead()
    for path in reversed(log_files(folder)):
        entries = [line for raw in path.read_bytes().splitlines()[-5:] if (line := _parse(raw))]
        if entries:
            last = ChainHead(entries[-1]["n"], str(entries[-1].get("hash", "")))
            break
    return last if last.n >= head.n else head


def verify_chain(folder: Path, head: ChainHead) -> tuple[int, list[str]]:
    """Check the chain. Return the number of lines and the problems found."""
    problems: list[str] = []
    previous, count, head_found = ChainHead(), 0, head.n == 0
    for place, line in read_lines(folder):
        count += 1
        if line is None:
            problems.append(f"{place} cannot be read")
            continue
        if line.get("hash") != line_hash(line):
            problems.append(f"{place}: line {line['n']} was changed")
        elif line.get("prev") != previous.hash or line["n"] != previous.n + 1:
            problems.append(f"{place}: line {line['n']} does not follow line {previous.n}")
        previous = ChainHead(line["n"], str(line.get("hash", "")))
        head_found = head_found or previous == head
    if previous.n < head.n:
        problems.append(f"the end is missing: {head.n - previous.n} lines after line {previous.n}")
    elif not head_found:
        problems.append(f"line {head.n} is not the one that was written")
    return count, problems
