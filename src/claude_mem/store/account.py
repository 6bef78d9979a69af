"""The account of every event: captured = stored + queued + set aside + filtered, at every instant.

`captured` is counted from the receipts and the spool, the other four from where the events are. So the sum can
fail, and if it ever does, something was lost or doubled. What is past keeping was counted when it went (`tally`).
"""

from __future__ import annotations

from claude_mem.store.database import Connection, Row, one, rows, value
from claude_mem.store.savepoint import savepoint

# Events of a turn that is over but not digested wait for a job; if that job is dead, they are set aside, visibly. Only
# such turns are looked at one by one: all others' events are just counted, and there may be a million.
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
        union all select outcome, rule, n from tally where outcome != 'stored')
     group by 1, 2
"""


def totals(conn: Connection, *, in_spool: int) -> Row:
    """All of it of one moment: what is committed between two questions would be counted in one of them only."""
    with savepoint(conn):
        return _totals(conn, in_spool=in_spool)


def _totals(conn: Connection, *, in_spool: int) -> Row:
    receipts = rows(conn, _NOT_STORED)
    places = one(conn, _PLACES)
    assert places is not None
    filtered = {row["rule"]: row["n"] for row in receipts if row["outcome"] == "filtered"}
    set_aside = {row["rule"]: row["n"] for row in receipts if row["outcome"] == "set_aside"}
    purged = one(
        conn,
        "select coalesce(sum(n), 0) as n, coalesce(sum(n) filter (where outcome = 'stored'), 0) as stored from tally",
    )
    assert purged is not None
    if places["dead"]:
        set_aside["dead_job"] = places["dead"]
    return {
        "captured": value(conn, "select count(*) from receipts") + purged["n"] + in_spool,
        "stored": places["stored"] + purged["stored"],
        "queued": places["queued"] + in_spool,
        "set_aside": sum(set_aside.values()),
        "filtered": sum(filtered.values()),
        "filtered_by": filtered,
        "set_aside_by": set_aside,
        "faded": purged["stored"],
    }


def counts(conn: Connection) -> Row:
    """How much there is of everything."""
    tables = ("projects", "sdk_sessions", "turns", "user_prompts", "events", "session_summaries")
    totals_by_table = {name: value(conn, f"select count(*) from {name}") for name in tables}
    totals_by_table["observations"] = value(conn, "select count(*) from observations where not forgotten")
    totals_by_table["jobs"] = value(conn, "select count(*) from jobs where not dead")
    totals_by_table["dead_jobs"] = value(conn, "select count(*) from jobs where dead")
    totals_by_table["last_event_at"] = value(conn, "select max(last_event_at) from sdk_sessions")
    return totals_by_table
