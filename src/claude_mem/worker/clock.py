"""Notices that the machine's clock was set back. Forward needs nothing: then things are due a little early.

What is stored is timed by the clock on the wall, because it has to outlive the process. Beside it runs the one that
only goes forward; how far the two are apart tells when someone has turned the first.
"""

from __future__ import annotations

import time

from claude_mem import ids

SLACK_MS = 1_000  # less is a clock that is being kept right


class Clock:
    def __init__(self) -> None:
        self.apart = _apart()

    def set_back(self) -> int:
        """By how many milliseconds since the last look; 0 if it was not."""
        before, self.apart = self.apart, _apart()
        back = before - self.apart
        return back if back > SLACK_MS else 0


def _apart() -> int:
    return ids.now() - time.monotonic_ns() // 1_000_000
