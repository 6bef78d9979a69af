"""Messages for the user that are shown once."""

from __future__ import annotations

from collections.abc import Iterable

from claude_mem.store.database import Connection, rows, value


def put(conn: Connection, key: str, text: str, *, now: int) -> None:
    """Add a notice. One with the same key that was shown already, and not cleared since, is not shown again."""
    conn.execute("insert or ignore into notices (key, text, at) values (?, ?, ?)", (key, text, now))


def untold(conn: Connection) -> dict[str, str]:
    """Return the notices that were not shown yet, by key."""
    notice_rows = rows(conn, "select key, text from notices where told_at is null order by at, key")
    return {row["key"]: row["text"] for row in notice_rows}


def told(conn: Connection, keys: Iterable[str], *, now: int) -> None:
    """Mark notices as shown."""
    for key in keys:
        conn.execute("update notices set told_at = ? where key = ? and told_at is null", (now, key))


def clear(conn: Connection, prefix: str) -> None:
    """Remove the notices with this key prefix because their cause is fixed; if it returns, they are shown again."""
    conn.execute("delete from notices where substr(key, 1, length(?1)) = ?1", (prefix,))


def merge_key(project_id: int, other_id: int) -> str:
    """Return the key of the offer to merge two projects."""
    return f"merge:{min(project_id, other_id)}:{max(project_id, other_id)}"


def drop_merges(conn: Connection, project_id: int) -> None:
    """Withdraw merge offers of a project that no longer exists."""
    conn.execute(
        "delete from notices where key glob ?1 or key glob ?2", (f"merge:{project_id}:*", f"merge:*:{project_id}")
    )


GREETING = "greeting"


def greeted_at(conn: Connection) -> int:
    """Return when the greeting was last shown, or 0."""
    return int(value(conn, "select told_at from notices where key = ?", (GREETING,)) or 0)


def greeted(conn: Connection, *, now: int) -> None:
    """Record that the greeting was shown now."""
    conn.execute("insert or replace into notices (key, text, at, told_at) values (?, '', ?, ?)", (GREETING, now, now))
