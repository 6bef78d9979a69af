"""Savepoints: parts of a transaction that can be rolled back on their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw


@contextmanager
def savepoint(conn: apsw.Connection) -> Iterator[None]:
    """Run the block in a savepoint and roll the savepoint back if the block fails.

    apsw's own `with conn` is not used: when the disk fails, SQLite rolls back the whole transaction and the savepoint
    with it, and apsw then hides the disk failure behind an error about the missing savepoint.
    """
    conn.execute("savepoint part")
    try:
        yield
        conn.execute("release part")
    except BaseException:
        if conn.in_transaction:
            conn.execute("rollback to part")
            conn.execute("release part")
        raise
