"""Circuit breakers: which providers are paused, and why.

Stored in the database, so that a restart does not cost another failing request.
"""

from __future__ import annotations

from dataclasses import dataclass

from claude_mem.store.database import Connection, Row, one, rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    provider: str
    failures: int = 0
    until: int = 0
    verdict: str = ""
    message: str = ""
    settings: str = ""


def get(conn: Connection, provider: str) -> Breaker:
    """Return the provider's circuit breaker; a closed one if none is stored."""
    row = one(conn, "select * from breakers where provider = ?", (provider,))
    return Breaker(**row) if row else Breaker(provider=provider)


def put(conn: Connection, breaker: Breaker) -> None:
    conn.execute(
        "insert or replace into breakers (provider, failures, until, verdict, message, settings)"
        " values (?, ?, ?, ?, ?, ?)",
        (breaker.provider, breaker.failures, breaker.until, breaker.verdict, breaker.message, breaker.settings),
    )


def reset(conn: Connection, provider: str) -> None:
    conn.execute("delete from breakers where provider = ?", (provider,))


def set_back(conn: Connection, *, by: int) -> None:
    """Shift the end of each pause after the system clock moved backwards, so that its length stays the same."""
    conn.execute("update breakers set until = until - ?", (by,))


def listing(conn: Connection) -> list[Row]:
    return rows(conn, "select provider, failures, until, verdict, message from breakers order by provider")
