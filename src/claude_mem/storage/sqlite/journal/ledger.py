"""The ledger of requests to providers, with tokens and cost, and the circuit breakers of the providers.

Budgets are checked in the transaction that adds the row. Breakers are stored, so that a restart does not cost another
failing request.
"""

from __future__ import annotations

from claude_mem.domain.reports import DailyUsage, LedgerGroup, LedgerLine, PausedProvider
from claude_mem.storage.journal_records import UNSEEN_VERDICTS, Breaker, LedgerEntry, RefineAttempts, Spending
from claude_mem.storage.sqlite.engine import Connection, fetch_all, fetch_one, fetch_records


def open_ledger_entry(conn: Connection, entry: LedgerEntry, *, now: int) -> int:
    """Add a request and return its id."""
    row = fetch_one(
        conn,
        """
        insert into ledger (at, purpose, session_id, turn_id, project_id, provider, model, input_tokens, output_tokens,
                            cost)
        values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) returning id
        """,
        (
            now, entry.purpose, entry.session_id, entry.turn_id, entry.project_id, entry.provider, entry.model,
            entry.input_tokens, entry.output_tokens, entry.cost,
        ),
    )  # fmt: skip
    assert row is not None
    return int(row["id"])


def close_ledger_entry(conn: Connection, entry_id: int, *, verdict: str, message: str, model: str, now: int) -> None:
    """Record how a request ended. `record_actual_usage` sets its actual cost; until then the maximum stays booked."""
    conn.execute(
        "update ledger set ended_at = ?, verdict = ?, message = nullif(?, ''), model = iif(?4 = '', model, ?4)"
        " where id = ?",
        (now, verdict, message, model, entry_id),
    )


def record_actual_usage(
    conn: Connection, entry_id: int, *, input_tokens: int, cached: int, written: int, output_tokens: int, cost: int
) -> None:
    """Replace the booked maximum by the actual tokens and cost."""
    conn.execute(
        "update ledger set input_tokens = ?, cached_tokens = ?, written_tokens = ?, output_tokens = ?, cost = ?"
        " where id = ?",
        (input_tokens, cached, written, output_tokens, cost, entry_id),
    )


def set_entry_memory_session(conn: Connection, entry_id: int, memory_session_id: str) -> None:
    """Record in which memory session of the model the request was made."""
    conn.execute("update ledger set memory_session_id = ? where id = ?", (memory_session_id, entry_id))


def count_session_tokens(conn: Connection, memory_session_id: str) -> int:
    """Return how many tokens continuing that memory session reads again: its last request and the reply."""
    row = fetch_one(
        conn,
        "select input_tokens + output_tokens as tokens from ledger where memory_session_id = ?"
        " order by id desc limit 1",
        (memory_session_id,),
    )
    return int(row["tokens"]) if row else 0


def get_spending_since(conn: Connection, *, since: int) -> Spending:
    """Return the tokens and cost of all requests since then."""
    row = fetch_one(
        conn,
        "select coalesce(sum(input_tokens + output_tokens), 0) as tokens, coalesce(sum(cost), 0) as cost"
        " from ledger where at >= ?",
        (since,),
    )
    assert row is not None
    return Spending(tokens=row["tokens"], cost=row["cost"])


def get_refine_attempts(conn: Connection, turn_id: int) -> RefineAttempts:
    """Return the attempts to refine a turn that a model may have seen."""
    attempt_rows = fetch_all(
        conn,
        "select provider, coalesce(verdict, '') as verdict, input_tokens from ledger"
        " where turn_id = ? and purpose = 'refine' order by id",
        (turn_id,),
    )
    # A request that was never sent, or was rejected before a model saw it, has no tokens.
    verdicts = [
        row["verdict"]
        for row in attempt_rows
        if row["verdict"] not in UNSEEN_VERDICTS and (row["input_tokens"] or row["verdict"] != "transient")
    ]
    return RefineAttempts(tuple(verdicts), attempt_rows[-1]["provider"] if attempt_rows else "")


_GROUP_SQL = {
    "day": "strftime('%Y-%m-%d', l.at / 1000, 'unixepoch', 'localtime')",
    "month": "strftime('%Y-%m', l.at / 1000, 'unixepoch', 'localtime')",
    "project": "coalesce(p.name, '(deleted)')",
    "model": "l.provider || ' ' || l.model",
    "session": "coalesce(l.session_id, 0)",
    "verdict": "coalesce(l.verdict, 'no answer')",
}


def summarize_ledger(conn: Connection, *, by: str, since: int) -> list[LedgerGroup]:
    """Return totals grouped by one of the names in `_GROUP_SQL`."""
    return fetch_records(
        conn,
        LedgerGroup,
        f"""
        select {_GROUP_SQL[by]} as name, count(*) as requests, sum(l.input_tokens) as input_tokens,
               sum(l.cached_tokens) as cached_tokens, sum(l.output_tokens) as output_tokens, sum(l.cost) as cost,
               count(*) filter (where l.verdict not in ('ok', 'empty') or l.verdict is null) as failed
          from ledger l left join projects p on p.id = l.project_id
         where l.at >= ? group by 1 order by 1 desc
        """,
        (since,),
    )


LEDGER_SERIES = {
    "model": ("l.provider || ' ' || l.model", "0"),
    "project": ("coalesce(p.name, '(deleted)')", "l.project_id"),
}


def list_daily_usage(conn: Connection, *, by: str, since: int) -> list[DailyUsage]:
    """Return totals by day, split by model or by project. Project names are not unique, so their ids are included."""
    name, key = LEDGER_SERIES[by]
    return fetch_records(
        conn,
        DailyUsage,
        f"""
        select {_GROUP_SQL["day"]} as day, {name} as name, coalesce({key}, 0) as id, count(*) as requests,
               sum(l.input_tokens) as input_tokens, sum(l.cached_tokens) as cached_tokens,
               sum(l.output_tokens) as output_tokens, sum(l.cost) as cost,
               count(*) filter (where l.verdict not in ('ok', 'empty') or l.verdict is null) as failed
          from ledger l left join projects p on p.id = l.project_id
         where l.at >= ? group by 1, 2, 3 order by 1, 2, 3
        """,
        (since,),
    )


def list_ledger_entries(conn: Connection, *, limit: int, offset: int, project: str = "") -> list[LedgerLine]:
    """List requests, newest first."""
    where = "where p.name = :project" if project else ""
    return fetch_records(
        conn,
        LedgerLine,
        f"""
        select l.id, l.at, l.ended_at, l.purpose, l.session_id, l.turn_id, p.name as project, l.provider, l.model,
               l.input_tokens, l.cached_tokens, l.written_tokens, l.output_tokens, l.cost, l.verdict, l.message,
               l.memory_session_id
          from ledger l left join projects p on p.id = l.project_id {where}
         order by l.id desc limit :limit offset :offset
        """,
        {"project": project, "limit": limit, "offset": offset},
    )


# --- circuit breakers ------------------------------------------------------------------------------------------------


def get_breaker(conn: Connection, provider: str) -> Breaker:
    """Return the provider's circuit breaker; a closed one if none is stored."""
    row = fetch_one(conn, "select * from breakers where provider = ?", (provider,))
    return Breaker(**row) if row else Breaker(provider=provider)


def save_breaker(conn: Connection, breaker: Breaker) -> None:
    """Store a circuit breaker."""
    conn.execute(
        "insert or replace into breakers (provider, failures, until, verdict, message, settings)"
        " values (?, ?, ?, ?, ?, ?)",
        (breaker.provider, breaker.failures, breaker.until, breaker.verdict, breaker.message, breaker.settings),
    )


def reset_breaker(conn: Connection, provider: str) -> None:
    """Close the circuit breaker of a provider."""
    conn.execute("delete from breakers where provider = ?", (provider,))


def shift_breaker_times(conn: Connection, *, by: int) -> None:
    """Shift the end of each pause after the system clock moved backwards, so that its length stays the same."""
    conn.execute("update breakers set until = until - ?", (by,))


def list_breakers(conn: Connection) -> list[PausedProvider]:
    """Return the stored circuit breakers, by provider."""
    sql = "select provider, failures, until, verdict, message from breakers order by provider"
    return fetch_records(conn, PausedProvider, sql)
