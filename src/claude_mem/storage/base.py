"""The types shared by all stages of the job queue.

A stage does its slow work with no transaction open and returns a function that writes the result. The runner calls that
function, finishes the job and enqueues the next one in a single transaction, so that a crash cannot separate them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from claude_mem.domain.records import Job, StreamEvent
from claude_mem.storage.sqlite.engine import Connection

Commit = Callable[[Connection], Sequence[StreamEvent]]
Stage = Callable[[Job], Awaitable[Commit]]


def write_nothing(_: Connection) -> Sequence[StreamEvent]:
    """Write nothing: the result of a stage that has no work."""
    return ()
