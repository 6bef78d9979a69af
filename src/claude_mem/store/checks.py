"""Results of self-checks: the newest result of each check, by name."""

from __future__ import annotations

from claude_mem.store.database import Connection, Row, one, rows

DRILL = "drill:"


def note(conn: Connection, name: str, *, ok: bool, text: str = "", now: int) -> None:
    conn.execute("insert or replace into checks values (?, ?, ?, ?)", (name, now, int(ok), text[:2000]))


def get(conn: Connection, name: str) -> Row | None:
    return one(conn, "select at, ok, text from checks where name = ?", (name,))


def drills(conn: Connection) -> dict[str, Row]:
    """Return the results of restore drills, by the backup's name."""
    drill_rows = rows(conn, "select name, at, ok, text from checks where substr(name, 1, ?) = ?", (len(DRILL), DRILL))
    return {row.pop("name").removeprefix(DRILL): {**row, "ok": bool(row["ok"])} for row in drill_rows}


def proven(conn: Connection) -> set[str]:
    """Return the names of the backups that passed their restore drill."""
    return {name for name, drill in drills(conn).items() if drill["ok"]}


def drop(conn: Connection, name: str) -> None:
    conn.execute("delete from checks where name = ?", (name,))
