"""Event accounting: captured = stored + queued + set aside + filtered, at every instant.

`captured` is counted from the receipts and the spool, the other four from where the events are. The two sides are
independent: if they ever differ, an event was lost or duplicated. Purged events were counted in `purged_counts` when they
were deleted.
"""

from __future__ import annotations

from claude_mem.domain.reports import EventAccount, RowCounts
from claude_mem.storage.sqlite.engine import Connection, fetch_all, fetch_one, fetch_value, savepoint

# Events of a turn that is closed but not digested wait for a job; if that job is a dead letter, they count as set
# aside. Only such turns are examined one by one; the events of all others, up to a million, are only counted.
_PLACES = """
    with dead as (
        select distinct t.id
          from jobs j
          join turns t on j.subject like iif(j.kind = 'reconcile', t.session_id, t.id) || '.%'
         where j.dead and j.kind in ('compress', 'past', 'reconcile')
           and t.closed_at is not null and t.digested_at is null
    ), undone as (
        select (select count(*) from events where turn_id = t.id) as events, t.id in (select id from dead) as is_dead
          from turns t where t.closed_at is not null and t.digested_at is null
    )
    select (select count(*) from events) - coalesce(sum(events), 0) as stored,
           coalesce(sum(events) filter (where not is_dead), 0) as queued,
           coalesce(sum(events) filter (where is_dead), 0) as dead
      from undone
"""

_NOT_STORED = """
    select outcome, rule, sum(n) as n from (
        select outcome, rule, count(*) as n from receipts where outcome in ('filtered', 'set_aside') group by 1, 2
        union all select outcome, rule, n from purged_counts where outcome != 'stored')
     group by 1, 2
"""


def count_event_account(conn: Connection, *, in_spool: int) -> EventAccount:
    """Return the account from one snapshot; a commit between two queries would be counted by only one of them."""
    with savepoint(conn):
        return _totals(conn, in_spool=in_spool)


def _totals(conn: Connection, *, in_spool: int) -> EventAccount:
    receipts = fetch_all(conn, _NOT_STORED)
    places = fetch_one(conn, _PLACES)
    assert places is not None
    filtered = {row["rule"]: row["n"] for row in receipts if row["outcome"] == "filtered"}
    set_aside = {row["rule"]: row["n"] for row in receipts if row["outcome"] == "set_aside"}
    purged = fetch_one(
        conn,
        "select coalesce(sum(n), 0) as n, coalesce(sum(n) filter (where outcome = 'stored'), 0) as stored from purged_counts",
    )
    assert purged is not None
    if places["dead"]:
        set_aside["dead_job"] = places["dead"]
    return EventAccount(
        captured=fetch_value(conn, "select count(*) from receipts") + purged["n"] + in_spool,
        stored=places["stored"] + purged["stored"],
        queued=places["queued"] + in_spool,
        set_aside=sum(set_aside.values()),
        filtered=sum(filtered.values()),
        filtered_by=filtered,
        set_aside_by=set_aside,
        faded=purged["stored"],
    )


def get_content_state(conn: Connection) -> str:
    """Return a text that changes with every added row and every correction; '' for an empty database."""
    sequences = fetch_all(
        conn, "select name, seq from sqlite_sequence where name not in ('jobs', 'injections') order by name"
    )
    return " ".join(f"{row['name']}:{row['seq']}" for row in sequences)


def count_all_rows(conn: Connection) -> RowCounts:
    """Return how many rows there are of each kind."""
    tables = ("projects", "sdk_sessions", "turns", "user_prompts", "events", "session_summaries")
    return RowCounts(
        **{name: fetch_value(conn, f"select count(*) from {name}") for name in tables},
        observations=fetch_value(conn, "select count(*) from observations where not forgotten"),
        jobs=fetch_value(conn, "select count(*) from jobs where not dead"),
        dead_jobs=fetch_value(conn, "select count(*) from jobs where dead"),
        last_event_at=fetch_value(conn, "select max(last_event_at) from sdk_sessions"),
    )
