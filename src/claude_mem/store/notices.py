"""What a person should be told, once."""

from __future__ import annotations

from collections.abc import Iterable

from claude_mem.store.database import Connection, rows, value


def put(conn: Connection, key: str, text: str, *, now: int) -> None:
    """Told already and not mended since: it is not told again."""
    conn.execute("insert or ignore into notices (key, text, at) values (?, ?, ?)", (key, text, now))


def untold(conn: Connection) -> dict[str, str]:
    notice_rows = rows(conn, "select key, text from notices where told_at is null order by at, key")
    return {row["key"]: row["text"] for row in notice_rows}


def told(conn: Connection, keys: Iterable[str], *, now: int) -> None:
    for key in keys:
        conn.execute("update notices set told_at = ? where key = ? and told_at is null", (now, key))


def clear(conn: Connection, prefix: str) -> None:
    """It is mended: should it happen again, that is news."""
    conn.execute("delete from notices where substr(key, 1, length(?1)) = ?1", (prefix,))


def merge_key(project_id: int, other_id: int) -> str:
    """The key of the offer to make two projects one."""
    return f"merge:{min(project_id, other_id)}:{max(project_id, other_id)}"


def drop_merges(conn: Connection, project_id: int) -> None:
    """Withdraw such offers for a project that is gone."""
    conn.execute(
        "delete from notices where key glob ?1 or key glob ?2", (f"merge:{project_id}:*", f"merge:*:{project_id}")
    )


GREETING = "greeting"


def greeted_at(conn: Connection) -> int:
    return int(value(conn, "select told_at from notices where key = ?", (GREETING,)) or 0)


def greeted(conn: Connection, *, now: int) -> None:
    conn.execute("insert or replace into notices (key, text, at, told_at) values (?, '', ?, ?)", (GREETING, now, now))
