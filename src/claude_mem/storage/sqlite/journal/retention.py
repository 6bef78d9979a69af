"""Purge raw events, failed jobs and old receipts after their retention period.

Each step adds the number of purged rows to `purged_counts` in the same transaction, so that the event accounting still
adds up. A few hashes of each purged event stay, eight bytes each, so that the event is recognized if a file delivers
it again. The text of its turn stays in the search index, as do the observations and summaries derived from the event.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from claude_mem.domain.records import WRITER_VERSION
from claude_mem.storage.journal_records import DIGEST_BACKFILLED_JOB, REFINE_JOB
from claude_mem.storage.sqlite.engine import Connection, Row, fetch_all, fetch_value
from claude_mem.storage.sqlite.journal import job_details
from claude_mem.system.failpoints import failpoint

RETENTION_BATCH = 50
SAME_CALL_WINDOW_MS = 2_000  # hook and transcript may report the same call this far apart
EXPIRED_RULE = "expired"  # the filter rule under which set-aside events are counted after their retention period

_TURNS_WITH_JOBS = (
    f"select cast(subject as integer) from jobs where kind in ('compress', '{DIGEST_BACKFILLED_JOB}', '{REFINE_JOB}')"
)

_NEEDS_REPROCESSING = (
    f"(abs(t.writer) < {WRITER_VERSION} and exists (select 1 from session_summaries y where y.turn_id = t.id))"
)


# --- raw events ------------------------------------------------------------------------------------------------------


def purge_turn_events(conn: Connection, *, before: int, deadline: int, limit: int = RETENTION_BATCH) -> int:
    """Purge the raw events of turns digested before `before` and already indexed. Return the number of turns.

    Turns that a model is still to refine, or that a newer writer is to reprocess, are kept until `deadline`.
    """
    turn_rows = fetch_all(
        conn,
        f"""
        select t.id from turns t
         where t.digested_at is not null and not t.events_purged and t.digested_at < :before and t.closed_at is not null
           and exists (select 1 from events e where e.turn_id = t.id)
           and not exists (select 1 from index_queue s where s.kind = 'turn' and s.row_id = t.id)
           and (t.digested_at < :deadline
                or (not {_NEEDS_REPROCESSING} and t.id not in ({_TURNS_WITH_JOBS} and not dead)))
         order by t.digested_at limit :limit
        """,
        {"before": before, "deadline": deadline, "limit": limit},
    )
    for row in turn_rows:
        purged_count = _purge(conn, fetch_all(conn, f"{_SELECT_EVENTS} where e.turn_id = ?", (row["id"],)))
        conn.execute("update turns set events_purged = ? where id = ?", (purged_count, row["id"]))
    failpoint("retention.faded")
    return len(turn_rows)


def purge_loose_events(conn: Connection, *, before: int, limit: int = RETENTION_BATCH) -> int:
    """Purge events that belong to no turn, such as session start, session end and agent notifications."""
    where = "where e.turn_id is null and e.at < ? order by e.at limit ?"
    return _purge(conn, fetch_all(conn, f"{_SELECT_EVENTS} {where}", (before, limit)))


_SELECT_EVENTS = """
    select e.seq, e.event_id, e.session_id, e.at, e.tool_use_id, e.source, e.body, s.host
      from events e join sdk_sessions s on s.id = e.session_id
"""


def _purge(conn: Connection, event_rows: Sequence[Row]) -> int:
    hashes = [(event_hash,) for row in event_rows for event_hash in _event_hashes(row)]
    conn.executemany("insert into purged_event_hashes values (?) on conflict do nothing", hashes)
    for row in event_rows:
        if row["source"] != "transcript":
            conn.execute(
                "update sdk_sessions set first_purged_at = min(coalesce(first_purged_at, ?1), ?1) where id = ?2",
                (row["at"], row["session_id"]),
            )
    event_ids = [row["event_id"] for row in event_rows]
    conn.execute("delete from receipts where event_id in (select value from json_each(?))", (_to_json(event_ids),))
    _add_to_tally(conn, "stored", "", conn.changes())
    conn.executemany("delete from events where seq = ?", [(row["seq"],) for row in event_rows])
    return len(event_rows)


def _add_to_tally(conn: Connection, outcome: str, rule: str, n: int) -> None:
    if n:
        conn.execute(
            "insert into purged_counts values (?, ?, ?) on conflict do update set n = n + excluded.n",
            (outcome, rule, n),
        )


# --- hashes of purged events -----------------------------------------------------------------------------------------


class ToolCallKey(NamedTuple):
    """The parts of a tool call that hooks and transcripts report alike. The id alone may be a plain counter."""

    host: str
    tool_use_id: str
    name: str


def _event_hashes(row: Row) -> Iterable[int]:
    yield short_event_hash("id", row["event_id"])
    if row["tool_use_id"]:
        body = msgspec.json.decode(row["body"])
        call = ToolCallKey(row["host"], row["tool_use_id"], body.get("name", ""))
        yield _input_hash(call, body.get("input"))
        yield short_event_hash("time", *call, row["at"] // SAME_CALL_WINDOW_MS)


def _input_hash(call: ToolCallKey, tool_input: Any) -> int:
    return short_event_hash("input", *call, msgspec.json.encode(tool_input).decode())


def short_event_hash(*parts: Any) -> int:
    """Return an eight-byte hash of these values."""
    digest = hashlib.blake2b(msgspec.json.encode(parts), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def was_event_purged(conn: Connection, event_id: str) -> bool:
    """Return whether an event with this id was purged."""
    return _has_hash(conn, [short_event_hash("id", event_id)])


def was_call_purged(conn: Connection, call: ToolCallKey, tool_input: Any, *, at: int) -> bool:
    """Return whether this call was purged: the same call with the same input, or at about the same time."""
    time_hashes = [short_event_hash("time", *call, at // SAME_CALL_WINDOW_MS + step) for step in (-1, 0, 1)]
    return _has_hash(conn, [_input_hash(call, tool_input), *time_hashes])


def _has_hash(conn: Connection, hashes: list[int]) -> bool:
    return bool(
        fetch_value(
            conn,
            "select 1 from purged_event_hashes where hash in (select value from json_each(?))",
            (_to_json(hashes),),
        )
    )


# --- failed jobs and old receipts ------------------------------------------------------------------------------------


def drop_old_dead_letters(conn: Connection, *, before: int, now: int) -> int:
    """Drop dead letters that were due before `before`, exactly as if the user had dropped them. Return their number."""
    job_rows = fetch_all(conn, "select id, kind, subject from jobs where dead and due_at < ?", (before,))
    for row in job_rows:
        if row["kind"] in job_details.DROP_CONSEQUENCES:
            job_details.drop_dead_job(conn, row["id"], now=now)
        else:  # one part of a back-filled file
            conn.execute("delete from jobs where id = ?", (row["id"],))
            conn.execute(
                "update backfill_files set state = 'skipped', problem = 'failed' where state = 'waiting' and id = ?",
                (int(row["subject"].partition(".")[0]),),
            )
    return len(job_rows)


def compact_receipts(conn: Connection, *, before: int, limit: int = 10 * RETENTION_BATCH) -> tuple[int, list[str]]:
    """Replace receipts of events filtered or set aside before `before` by counts in `purged_counts`.

    Return the number of receipts and the ids of the events that were set aside. Receipts of forgotten events that can
    still be restored are kept: after an undo these events count as stored again.
    """
    receipt_rows = fetch_all(
        conn,
        """
        select event_id, outcome, rule from receipts where outcome != 'stored' and at < ?
           and not (rule = 'forgotten' and event_id in
                    (select json_extract(content, '$.event_id') from deleted_rows where kind = 'event')) limit ?
        """,
        (before, limit),
    )
    for row in receipt_rows:
        _add_to_tally(conn, "filtered", row["rule"] if row["outcome"] == "filtered" else EXPIRED_RULE, 1)
    conn.executemany(
        "insert into purged_event_hashes values (?) on conflict do nothing",
        [(short_event_hash("id", row["event_id"]),) for row in receipt_rows],
    )
    conn.executemany("delete from receipts where event_id = ?", [(row["event_id"],) for row in receipt_rows])
    return len(receipt_rows), [row["event_id"] for row in receipt_rows if row["outcome"] == "set_aside"]


def _to_json(items: object) -> str:
    return msgspec.json.encode(items).decode()
