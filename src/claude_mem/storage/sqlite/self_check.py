"""Self-checks: no event is lost or duplicated, no turn is left undigested, nothing forgotten is injected.

The quick checks use indexes and run regularly; the thorough checks read every row.
"""

from __future__ import annotations

import apsw

from claude_mem.storage.journal_records import MAX_REFINE_ATTEMPTS, UNSEEN_VERDICTS, CheckResult
from claude_mem.storage.records import Tombstone
from claude_mem.storage.sqlite import backup
from claude_mem.storage.sqlite.deletion import deletions
from claude_mem.storage.sqlite.engine import Connection, fetch_all, fetch_one, fetch_value, savepoint
from claude_mem.storage.sqlite.journal import accounting
from claude_mem.storage.sqlite.memory import search
from claude_mem.storage.sqlite.memory.observations import hash_observation
from claude_mem.system.audit_log import ChainHead

_OUTCOMES = ("stored", "queued", "set_aside", "filtered")
_BATCH = 200
_INDEXED_TABLES = {
    "observation": "observations", "prompt": "user_prompts", "summary": "session_summaries", "turn": "turns",
}  # fmt: skip
_REINDEX_HINT = "run `claude-mem reindex` to rebuild the index, and please report this"


# --- quick checks ----------------------------------------------------------------------------------------------------


def run_quick_checks(conn: Connection, *, in_spool: int) -> list[CheckResult]:
    """Run the quick checks on one state of the database, so that new events do not look like errors."""
    with savepoint(conn):
        return [
            _check_event_accounting(conn, in_spool),
            _check_turns(conn),
            _check_attempts(conn),
            _check_forgotten(conn),
        ]


def _check_event_accounting(conn: Connection, in_spool: int) -> CheckResult:
    totals = accounting.count_event_account(conn, in_spool=in_spool)
    parts = " + ".join(f"{getattr(totals, name):,} {name.replace('_', ' ')}" for name in _OUTCOMES)
    ok = totals.captured == sum(getattr(totals, name) for name in _OUTCOMES)
    hint = "" if ok else "events were lost or duplicated; please report this"
    return CheckResult("events", ok, f"{totals.captured:,} captured {'=' if ok else '≠'} {parts}", hint)


def _check_turns(conn: Connection) -> CheckResult:
    """Check that every closed turn is digested or has a job. Dead letters count: they are reported elsewhere."""
    lost = fetch_value(
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
    hint = "run `claude-mem retry`; if that does not help, please report this" if lost else ""
    return CheckResult("turns", not lost, f"{lost:,} closed turns without a job to digest them", hint)


def _check_attempts(conn: Connection) -> CheckResult:
    unseen = ", ".join(f"'{verdict}'" for verdict in UNSEEN_VERDICTS)
    most = fetch_value(
        conn,
        f"""
        select coalesce(max(n), 0) from (select count(*) as n from ledger
         where turn_id is not null and purpose = 'refine' and coalesce(verdict, '') not in ({unseen})
         group by turn_id)
        """,
    )
    return CheckResult("attempts", most <= MAX_REFINE_ATTEMPTS, f"at most {most} of {MAX_REFINE_ATTEMPTS} for one turn")


def _check_forgotten(conn: Connection) -> CheckResult:
    """Check that nothing was injected after it was forgotten, and that nothing forgotten can be found."""
    injected_count = fetch_value(
        conn,
        """
        select count(*) from history h join injections t on t.at > h.at
          join observations o on o.id = h.observation_id
         where o.forgotten and h.what = 'forgotten' and not h.undone
           and exists (select 1 from json_each(t.names) n where n.value = 'o' || h.observation_id)
        """,
    )
    indexed_count = fetch_value(
        conn,
        "select count(*) from documents d join observations o on o.id = d.row_id where d.kind = 'observation'"
        " and (o.forgotten or o.verdict = 'wrong')",
    )
    ok = not injected_count and not indexed_count
    return CheckResult(
        "forgotten",
        ok,
        f"{injected_count:,} injected afterwards, {indexed_count:,} still indexed",
        "" if ok else _REINDEX_HINT,
    )


# --- thorough checks -------------------------------------------------------------------------------------------------


def run_thorough_checks(conn: Connection) -> list[CheckResult]:
    """Run the checks that read every row."""
    return [
        check(conn) for check in (_check_hashes, _check_checksums, _check_indexed_rows, _check_pages, _check_tombstones)
    ]


def _check_hashes(conn: Connection) -> CheckResult:
    after, altered_ids, more = 0, list[int](), True
    while more:
        after, some = find_altered_observations(conn, after)
        altered_ids, more = altered_ids + some, bool(after)
    text = f"{len(altered_ids):,} observations do not match their hash"
    return CheckResult("hashes", not altered_ids, text, f"{altered_ids[:5]}: restore a backup" if altered_ids else "")


def find_altered_observations(conn: Connection, after: int, limit: int = _BATCH) -> tuple[int, list[int]]:
    """Check the observations after this id. Return the cursor (0: start again) and the ids whose hash is wrong."""
    observation_rows = fetch_all(
        conn, "select * from observations where id > ? and not forgotten order by id limit ?", (after, limit)
    )
    altered_ids = [row["id"] for row in observation_rows if hash_observation(row) != row["hash"]]
    return (observation_rows[-1]["id"] if len(observation_rows) == limit else 0), altered_ids


def _check_checksums(conn: Connection) -> CheckResult:
    problems = backup.find_all_checksum_mismatches(conn)
    hint = "the worker restores a backup; run `claude-mem doctor` for details" if problems else ""
    return CheckResult("seals", not problems, f"{len(problems):,} rows do not match their checksum", hint)


def _check_indexed_rows(conn: Connection) -> CheckResult:
    orphans = " union all ".join(
        f"select d.id from documents d where d.kind = '{kind}'"
        f" and not exists (select 1 from {table} r where r.id = d.row_id)"
        for kind, table in _INDEXED_TABLES.items()
    )
    counts = {
        "without their row": f"select count(*) from ({orphans})",
        "neither indexed nor queued": "select count(*) from observations o where not forgotten and verdict != 'wrong'"
        " and not exists (select 1 from documents d where d.kind = 'observation' and d.row_id = o.id)"
        " and not exists (select 1 from index_queue s where s.kind = 'observation' and s.row_id = o.id)",
    }
    numbers = {name: int(fetch_value(conn, sql)) for name, sql in counts.items()}
    texts = [f"{n:,} {name}" for name, n in numbers.items()]
    ok = not any(numbers.values())
    return CheckResult("indexed", ok, ", ".join(texts), "" if ok else _REINDEX_HINT)


def _check_pages(conn: Connection) -> CheckResult:
    problems = [str(next(iter(row.values()))) for row in fetch_all(conn, "pragma quick_check(3)")]
    dangling = len(fetch_all(conn, "pragma foreign_key_check"))
    ok = problems == ["ok"] and not dangling
    text = "intact" if ok else "; ".join([*problems, f"{dangling} dangling references"])
    return CheckResult("database", ok, text, "" if ok else "run `claude-mem doctor`")


def _check_tombstones(conn: Connection) -> CheckResult:
    """Check that nothing forgotten has come back."""
    all_tombstones = [
        Tombstone(row["deletion_id"], row["keyed_hash"], row["since"], row["until"])
        for row in fetch_all(conn, "select * from tombstones")
    ]
    row_count = deletions.find_tombstoned_rows(conn, all_tombstones).size() if all_tombstones else 0
    hint = "restart the worker to delete them again" if row_count else ""
    return CheckResult(
        "tombstones", not row_count, f"{len(all_tombstones):,}, matching {row_count:,} stored rows", hint
    )


def check_full_text_index(conn: Connection) -> CheckResult:
    """Check the full-text index. Must run on the writer connection: SQLite refuses the check on others."""
    try:
        search.check_word_index(conn)
    except apsw.Error:
        return CheckResult("index", False, "does not match the texts", _REINDEX_HINT)
    return CheckResult("index", True, "matches the texts")


# --- the head of the audit log ---------------------------------------------------------------------------------------


def get_audit_head(conn: Connection) -> ChainHead:
    """Return the newest audit line that was recorded."""
    row = fetch_one(conn, "select n, hash from audit_head")
    return ChainHead(**row) if row else ChainHead()


def set_audit_head(conn: Connection, new_head: ChainHead) -> None:
    """Record the newest audit line. Never goes back: two lines may be written before the first is recorded."""
    conn.execute(
        "insert into audit_head values (1, ?, ?) on conflict do update set n = excluded.n, hash = excluded.hash"
        " where excluded.n > n",
        (new_head.n, new_head.hash),
    )
