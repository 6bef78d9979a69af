"""What each session was already given. A memory is injected once per session, and so is the note about a file."""

from __future__ import annotations

from collections.abc import Iterable

from claude_mem.store.database import Connection, rows


def note(conn: Connection, host: str, content_session_id: str, items: Iterable[str], *, trigger: str, now: int) -> None:
    for item in items:
        conn.execute(
            "insert or ignore into told (host, content_session_id, what, moment, at) values (?, ?, ?, ?, ?)",
            (host, content_session_id, item, trigger, now),
        )


def of(conn: Connection, host: str, content_session_id: str) -> frozenset[str]:
    item_rows = rows(
        conn, "select what from told where host = ? and content_session_id = ?", (host, content_session_id)
    )
    return frozenset(row["what"] for row in item_rows)


def forget(conn: Connection, host: str, content_session_id: str) -> None:
    """Delete the record, because the session starts over with an empty conversation."""
    conn.execute("delete from told where host = ? and content_session_id = ?", (host, content_session_id))
