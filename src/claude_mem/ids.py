"""Time-ordered ids: sorting by name is sorting by age. The hook makes the same ones by hand."""

from __future__ import annotations

import os
import time


def new() -> str:
    return f"{time.time_ns():016x}-{os.urandom(4).hex()}"


def at(event_id: str) -> int | None:
    """When an id was made, in milliseconds, if it is one of ours."""
    found = nanoseconds(event_id)
    return None if found is None else found // 1_000_000


def nanoseconds(event_id: str) -> int | None:
    head = event_id.partition("-")[0]
    try:
        return int(head, 16) if len(head) == 16 else None
    except ValueError:
        return None


def now() -> int:
    """Milliseconds, UTC: the one clock of everything that is stored."""
    return time.time_ns() // 1_000_000
