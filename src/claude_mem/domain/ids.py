"""Time-ordered event ids: sorting by id is sorting by age. The hook generates the same format itself."""

from __future__ import annotations

import os
import time


def new_event_id() -> str:
    """Return an id that sorts by time of creation."""
    return f"{time.time_ns():016x}-{os.urandom(4).hex()}"


def created_at_ms(event_id: str) -> int | None:
    """Return the creation time of an id in milliseconds, or None if it has another format."""
    created_ns = created_at_ns(event_id)
    return None if created_ns is None else created_ns // 1_000_000


def created_at_ns(event_id: str) -> int | None:
    """Return the creation time of an id in nanoseconds, or None if it has another format."""
    head = event_id.partition("-")[0]
    try:
        return int(head, 16) if len(head) == 16 else None
    except ValueError:
        return None


def now_ms() -> int:
    """Return the current time in milliseconds, UTC. All stored times come from this clock."""
    return time.time_ns() // 1_000_000
