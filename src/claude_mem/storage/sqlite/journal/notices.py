"""Notices, which are shown to the user once, and the newest result of each self-check, by name."""

from __future__ import annotations

from collections.abc import Iterable

from claude_mem.domain.reports import CheckRecord, Drill
from claude_mem.storage.journal_records import DRILL_PREFIX, GREETING
from claude_mem.storage.sqlite.engine import Connection, fetch_all, fetch_record, fetch_value


def add_notice(conn: Connection, key: str, text: str, *, now: int) -> None:
    """Add a notice. One with the same key that was shown already, and not cleared since, is not shown again."""
    conn.execute("insert or ignore into notices (key, text, at) values (?, ?, ?)", (key, text, now))


def list_unshown_notices(conn: Connection) -> dict[str, str]:
    """Return the notices that were not shown yet, by key."""
    notice_rows = fetch_all(conn, "select key, text from notices where shown_at is null order by at, key")
    return {row["key"]: row["text"] for row in notice_rows}


def mark_notices_shown(conn: Connection, keys: Iterable[str], *, now: int) -> None:
    """Mark notices as shown."""
    for key in keys:
        conn.execute("update notices set shown_at = ? where key = ? and shown_at is null", (now, key))


def clear_notices(conn: Connection, prefix: str) -> None:
    """Remove the notices with this key prefix because their cause is fixed; if it returns, they are shown again."""
    conn.execute("delete from notices where substr(key, 1, length(?1)) = ?1", (prefix,))


def merge_offer_key(project_id: int, other_id: int) -> str:
    """Return the key of the offer to merge two projects."""
    return f"merge:{min(project_id, other_id)}:{max(project_id, other_id)}"


def withdraw_merge_offers(conn: Connection, project_id: int) -> None:
    """Withdraw merge offers of a project that no longer exists."""
    conn.execute(
        "delete from notices where key glob ?1 or key glob ?2", (f"merge:{project_id}:*", f"merge:*:{project_id}")
    )


def get_greeted_at(conn: Connection) -> int:
    """Return when the greeting was last shown, or 0."""
    return int(fetch_value(conn, "select shown_at from notices where key = ?", (GREETING,)) or 0)


def mark_greeted(conn: Connection, *, now: int) -> None:
    """Record that the greeting was shown now."""
    conn.execute("insert or replace into notices (key, text, at, shown_at) values (?, '', ?, ?)", (GREETING, now, now))


# --- self-checks -----------------------------------------------------------------------------------------------------


def record_check(conn: Connection, name: str, *, ok: bool, text: str = "", now: int) -> None:
    """Store the result of a check, replacing the one before."""
    conn.execute("insert or replace into checks values (?, ?, ?, ?)", (name, now, int(ok), text[:2000]))


def find_check(conn: Connection, name: str) -> CheckRecord | None:
    """Return the newest result of a check, or None if it never ran."""
    return fetch_record(conn, CheckRecord, "select at, ok, text from checks where name = ?", (name,))


def list_drills(conn: Connection) -> dict[str, Drill]:
    """Return the results of restore drills, by the backup's name."""
    drill_rows = fetch_all(
        conn, "select name, at, ok, text from checks where substr(name, 1, ?) = ?", (len(DRILL_PREFIX), DRILL_PREFIX)
    )
    return {
        row["name"].removeprefix(DRILL_PREFIX): Drill(at=row["at"], ok=bool(row["ok"]), text=row["text"])
        for row in drill_rows
    }


def list_proven_backups(conn: Connection) -> set[str]:
    """Return the names of the backups that passed their restore drill."""
    return {name for name, drill in list_drills(conn).items() if drill.ok}


def delete_check(conn: Connection, name: str) -> None:
    """Delete the result of a check."""
    conn.execute("delete from checks where name = ?", (name,))
