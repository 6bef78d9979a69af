"""The shape all steps share.

A stage does its slow work with no transaction open and returns *what to write*. The runner writes it, finishes
the job and asks for the next one in one transaction, so that forgetting a half is not possible.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from claude_mem.records import Job, News
from claude_mem.store.database import Connection

Commit = Callable[[Connection], Sequence[News]]
Stage = Callable[[Job], Awaitable[Commit]]


def nothing(_: Connection) -> Sequence[News]:
    """There is nothing to write."""
    return ()
