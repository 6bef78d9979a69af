"""The types shared by all stages of the job queue.

A stage does its slow work with no transaction open and returns a function that writes the result. The runner calls it,
finishes the job and enqueues the next one in a single transaction, so that no half can be lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from claude_mem.records import Job, News
from claude_mem.store.database import Connection

Commit = Callable[[Connection], Sequence[News]]
Stage = Callable[[Job], Awaitable[Commit]]


def nothing(_: Connection) -> Sequence[News]:
    """Write nothing: the result of a stage that has no work."""
    return ()
