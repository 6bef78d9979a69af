"""Detect that the system clock was set back. A clock set forward needs no handling: jobs are only due a little early.

Stored times use the wall clock, because they must outlive the process. Comparing it with the monotonic clock shows when
the wall clock was changed.
"""

from __future__ import annotations

import time

from claude_mem.domain import ids

SLACK_MS = 1_000  # smaller changes are ordinary time synchronization


class Clock:
    """Remembers the difference between the wall clock and the monotonic clock."""

    def __init__(self) -> None:
        self.offset = _offset()

    def set_back(self) -> int:
        """Return by how many milliseconds the clock was set back since the last call; 0 if it was not."""
        before, self.offset = self.offset, _offset()
        back = before - self.offset
        return back if back > SLACK_MS else 0


def _offset() -> int:
    return ids.now_ms() - time.monotonic_ns() // 1_000_000
