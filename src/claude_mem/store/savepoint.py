"""A part of a transaction that can be undone by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw


@contextmanager
def savepoint(conn: apsw.Connection) -> Iterator[None]:
    """When the disk fails SQLite undoes the whole transaction, and there is no part left to undo. apsw's own
    `with conn` then hides that failure behind one about the missing savepoint, as if it were a fault of the part."""
    conn.execute("savepoint part")
    try:
        yield
        conn.execute("release part")
    except BaseException:
        if conn.in_transaction:
            conn.execute("rollback to part")
            conn.execute("release part")
        raise
