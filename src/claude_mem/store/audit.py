"""What the product can check of itself: nothing lost or doubled, nothing owed left out, nothing forgotten told.

The quick checks run along indexes and are done all the time; the thorough ones look at every row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import apsw

from claude_mem.auditlog import Head
from claude_mem.store import account, backup, forgetting, ledger, search, stones
from claude_mem.store.database import Connection, one, rows, value
from claude_mem.store.observations import fingerprint
from claude_mem.store.savepoint import savepoint

PLACES = ("stored", "queued", "set_aside", "filtered")
AT_ONCE = 200
INDEXED = {
    "observation": "observations", "prompt": "user_prompts", "summary": "session_summaries", "turn": "turns",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    ok: bool
    found: str
    hint: str = ""


# --- how far the audit log has come ----------------------------------------------------------------------------------


def head(conn: Connection) -> Head:
    row = one(conn, "select n, hash from audit_head")
    return Head(**row) if row else Head()


def set_head(conn: Connection, now: Head) -> None:
    """Never backwards: two lines may be written before the first is noted."""
    conn.execute(
        "insert into audit_head values (1, ?, ?) on conflict do update set n = excluded.n, hash = excluded.hash"
        " where excluded.n > n",
        (now.n, now.hash),
    )


# --- quick -----------------------------------------------------------------------------------------------------------


def quick(conn: Connection, *, in_spool: int) -> list[Finding]:
    """In one state of the database, or what comes in meanwhile would look like a mistake."""
    with savepoint(conn):
        return [_conserved(conn, in_spool), _owed(conn), _attempts(conn), _not_told(conn)]


def _conserved(conn: Connection, in_spool: int) -> Finding:
    found = account.totals(conn, in_spool=in_spool)
    parts = " + ".join(f"{found[name]:,} {name.replace('_', ' ')}" for name in PLACES)
    right = found["captured"] == sum(found[name] for name in PLACES)
    hint = "" if right else "events were lost or doubled: please report this"
    return Finding("events", right, f"{found['captured']:,} captured {'=' if right else '≠'} {parts}", hint)


def _owed(conn: Connection) -> Finding:
    """Every turn that is over is digested, or some job (a dead one too: that is told elsewhere) will see to it."""
    lost = value(
        conn,
        """
        select count(*) from turns t
         where t.closed_at is not null and t.digested_at is null and not t.private
           and exists (select 1 from events e where e.turn_id = t.id)
           and not exists (select 1 from jobs j where j.kind in ('compress', 'past') and j.subject like t.id || '.%')
           and not exists (select 1 from jobs j where j.kind = 'reconcile' and j.subject like t.session_id || '.%')
           and not exists (select 1 from backfill_files f where f.session_id = t.session_id and f.state = 'waiting')
        """,
    )
    hint = "`claude-mem retry`; if that does not help, please report this" if lost else ""
    return Finding("turns", not lost, f"{lost:,} that are over and nobody will digest", hint)


def _attempts(conn: Connection) -> Finding:
    unseen = ", ".join(f"'{verdict}'" for verdict in ledger.UNSEEN)
    most = value(
        conn,
        f"""
        select coalesce(max(n), 0) from (select count(*) as n from ledger
         where turn_id is not null and purpose = 'refine' and coalesce(verdict, '') not in ({unseen})
         group by turn_id)
        """,
    )
    return Finding("attempts", most <= ledger.MAX_TRIES, f"at most {most} of {ledger.MAX_TRIES} for one turn")


def _not_told(conn: Connection) -> Finding:
    """Nothing was told after it was forgotten, and nothing forgotten can be found."""
    told = value(
        conn,
        """
        select count(*) from history h join tellings t on t.at > h.at
          join observations o on o.id = h.observation_id
         where o.forgotten and h.what = 'forgotten' and not h.undone
           and exists (select 1 from json_each(t.names) n where n.value = 'o' || h.observation_id)
        """,
    )
    found = value(
        conn,
        "select count(*) from documents d join observations o on o.id = d.row_id where d.kind = 'observation'"
        " and (o.forgotten or o.verdict = 'wrong')",
    )
    right = not told and not found
    return Finding(
        "forgotten", right, f"{told:,} told afterwards, {found:,} that can be found", "" if right else _INDEX
    )


_INDEX = "`claude-mem reindex` makes the index again; please report this"


def altered(conn: Connection, after: int, limit: int = AT_ONCE) -> tuple[int, list[int]]:
    """Some observations, after that one: where to go on (0: from the beginning), and which are not what they were."""
    found = rows(conn, "select * from observations where id > ? and not forgotten order by id limit ?", (after, limit))
    wrong = [row["id"] for row in found if fingerprint(row) != row["hash"]]
    return (found[-1]["id"] if len(found) == limit else 0), wrong


# --- thorough --------------------------------------------------------------------------------------------------------


def thorough(conn: Connection) -> list[Finding]:
    return [check(conn) for check in (_hashes, _seals, _rows_of_index, _pages, _gone)]


def index(conn: Connection) -> Finding:
    """On the connection that may write: SQLite lets no other check it."""
    right = _catches(lambda: search.check(conn))
    said = "says what the texts say" if right else "does not say what the texts say"
    return Finding("index", right, said, "" if right else _INDEX)


def _hashes(conn: Connection) -> Finding:
    after, wrong, more = 0, list[int](), True
    while more:
        after, some = altered(conn, after)
        wrong, more = wrong + some, bool(after)
    said = f"{len(wrong):,} observations are not what they were"
    return Finding("hashes", not wrong, said, f"{wrong[:5]}: restore a backup" if wrong else "")


def _seals(conn: Connection) -> Finding:
    wrong = backup.broken_seals(conn)
    hint = "the worker puts a backup in place; `claude-mem doctor` says more" if wrong else ""
    return Finding("seals", not wrong, f"{len(wrong):,} rows are not what they were", hint)


def _rows_of_index(conn: Connection) -> Finding:
    alone = " union all ".join(
        f"select d.id from documents d where d.kind = '{kind}'"
        f" and not exists (select 1 from {table} r where r.id = d.row_id)"
        for kind, table in INDEXED.items()
    )
    counts = {
        "without their row": f"select count(*) from ({alone})",
        "not indexed and not owed": "select count(*) from observations o where not forgotten and verdict != 'wrong'"
        " and not exists (select 1 from documents d where d.kind = 'observation' and d.row_id = o.id)"
        " and not exists (select 1 from stale s where s.kind = 'observation' and s.row_id = o.id)",
    }
    found = {name: int(value(conn, sql)) for name, sql in counts.items()}
    said = [f"{n:,} {name}" for name, n in found.items()]
    right = not any(found.values())
    return Finding("indexed", right, ", ".join(said), "" if right else _INDEX)


def _pages(conn: Connection) -> Finding:
    found = [str(next(iter(row.values()))) for row in rows(conn, "pragma quick_check(3)")]
    dangling = len(rows(conn, "pragma foreign_key_check"))
    right = found == ["ok"] and not dangling
    said = "sound" if right else "; ".join([*found, f"{dangling} dangling"])
    return Finding("database", right, said, "" if right else "`claude-mem doctor`")


def _gone(conn: Connection) -> Finding:
    """Nothing is here again that was forgotten."""
    told = [
        stones.Stone(row["forgetting_id"], row["mark"], row["since"], row["until"])
        for row in rows(conn, "select * from tombstones")
    ]
    back = forgetting.marked(conn, told).size() if told else 0
    hint = "restart the worker: it forgets it again" if back else ""
    return Finding("tombstones", not back, f"{len(told):,}, and {back:,} rows that they name", hint)


def _catches(check: Callable[[], None]) -> bool:
    try:
        check()
    except apsw.Error:
        return False
    return True
