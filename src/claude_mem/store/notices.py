"""What a person should be told, once."""

from __future__ import annotations

from claude_mem.store.database import Connection, rows


def put(conn: Connection, key: str, text: str, *, now: int) -> None:
    """Told already and not mended since: it is not told again."""
    conn.execute("insert or ignore into notices (key, text, at) values (?, ?, ?)", (key, text, now))


def untold(conn: Connection) -> list[str]:
    return [row["text"] for row in rows(conn, "select text from notices where told_at is null order by at, key")]


def told(conn: Connection, *, now: int) -> None:
    conn.execute("update notices set told_at = ? where told_at is null", (now,))


def clear(conn: Connection, prefix: str) -> None:
    """It is mended: should it happen again, that is news."""
    conn.execute("delete from notices where substr(key, 1, length(?1)) = ?1", (prefix,))
