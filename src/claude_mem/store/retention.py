"""What is past keeping goes, and the account still adds up: each step moves what it removes into `tally` at once.

Of an event a few marks stay, eight bytes each: should a file bring it again, it is known. The words of its turn stay
in the index, and so does everything that was made of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from claude_mem.failpoints import failpoint
from claude_mem.records import WRITER
from claude_mem.store import jobs, owed
from claude_mem.store.database import Connection, Row, rows, value

BATCH = 50
NEAR_MS = 2_000  # how far two accounts of the same call may be apart
EXPIRED = "expired"  # the rule by which a failed event that was kept for its time counts as left out

_WORKED_ON = f"select cast(subject as integer) from jobs where kind in ('compress', '{jobs.PAST}', '{jobs.REFINE}')"

_TO_REWRITE = f"(abs(t.writer) < {WRITER} and exists (select 1 from session_summaries y where y.turn_id = t.id))"


# --- raw events ------------------------------------------------------------------------------------------------------


def fade(conn: Connection, *, before: int, anyway: int, limit: int = BATCH) -> int:
    """Let go of the events of turns that were digested before then and are in the index; how many turns it were. Who
    still wants to put a turn in better words, a model or a newer writer, is waited for, but only to a second point in
    time."""
    found = rows(
        conn,
        f"""
        select t.id from turns t
         where t.digested_at is not null and not t.events_gone and t.digested_at < :before and t.closed_at is not null
           and exists (select 1 from events e where e.turn_id = t.id)
           and not exists (select 1 from stale s where s.kind = 'turn' and s.row_id = t.id)
           and (t.digested_at < :anyway or (not {_TO_REWRITE} and t.id not in ({_WORKED_ON} and not dead)))
         order by t.digested_at limit :limit
        """,
        {"before": before, "anyway": anyway, "limit": limit},
    )
    for row in found:
        gone = _let_go(conn, rows(conn, f"{_EVENTS} where e.turn_id = ?", (row["id"],)))
        conn.execute("update turns set events_gone = ? where id = ?", (gone, row["id"]))
    failpoint("retention.faded")
    return len(found)


def fade_loose(conn: Connection, *, before: int, limit: int = BATCH) -> int:
    """Likewise events that belong to no turn: a session's start and end, a word of the host."""
    where = "where e.turn_id is null and e.at < ? order by e.at limit ?"
    return _let_go(conn, rows(conn, f"{_EVENTS} {where}", (before, limit)))


_EVENTS = """
    select e.seq, e.event_id, e.session_id, e.at, e.tool_use_id, e.source, e.body, s.host
      from events e join sdk_sessions s on s.id = e.session_id
"""


def _let_go(conn: Connection, found: Sequence[Row]) -> int:
    marks = [(mark,) for row in found for mark in _marks(row)]
    conn.executemany("insert into seen values (?) on conflict do nothing", marks)
    for row in found:
        if row["source"] != "transcript":
            conn.execute(
                "update sdk_sessions set heard_at = min(coalesce(heard_at, ?1), ?1) where id = ?2",
                (row["at"], row["session_id"]),
            )
    names = [row["event_id"] for row in found]
    conn.execute("delete from receipts where event_id in (select value from json_each(?))", (_dump(names),))
    _count(conn, "stored", "", conn.changes())
    conn.executemany("delete from events where seq = ?", [(row["seq"],) for row in found])
    return len(found)


def _count(conn: Connection, outcome: str, rule: str, n: int) -> None:
    if n:
        conn.execute(
            "insert into tally values (?, ?, ?) on conflict do update set n = n + excluded.n", (outcome, rule, n)
        )


# --- marks -----------------------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """As much of a tool call as is the same wherever it is told of. The id alone may be a mere count."""

    host: str
    tool_use_id: str
    name: str


def _marks(row: Row) -> Iterable[int]:
    yield mark("id", row["event_id"])
    if row["tool_use_id"]:
        body = msgspec.json.decode(row["body"])
        call = Call(row["host"], row["tool_use_id"], body.get("name", ""))
        yield _input_mark(call, body.get("input"))
        yield mark("time", *call, row["at"] // NEAR_MS)


def _input_mark(call: Call, given: Any) -> int:
    return mark("input", *call, msgspec.json.encode(given).decode())


def mark(*parts: Any) -> int:
    digest = hashlib.blake2b(msgspec.json.encode(parts), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def was_seen(conn: Connection, event_id: str) -> bool:
    return _is_marked(conn, [mark("id", event_id)])


def was_called(conn: Connection, call: Call, given: Any, *, at: int) -> bool:
    """The same, with the same input or at about the same time."""
    times = [mark("time", *call, at // NEAR_MS + step) for step in (-1, 0, 1)]
    return _is_marked(conn, [_input_mark(call, given), *times])


def _is_marked(conn: Connection, marks: list[int]) -> bool:
    return bool(value(conn, "select 1 from seen where mark in (select value from json_each(?))", (_dump(marks),)))


# --- what failed, and what was left out ------------------------------------------------------------------------------


def drop_dead(conn: Connection, *, before: int, now: int) -> int:
    """Jobs that were given up before then, as if a person had dropped them."""
    found = rows(conn, "select id, kind, subject from jobs where dead and due_at < ?", (before,))
    for row in found:
        if row["kind"] in owed.DROPPING:
            owed.drop(conn, row["id"], now=now)
        else:  # a part of an old file
            conn.execute("delete from jobs where id = ?", (row["id"],))
            conn.execute(
                "update backfill_files set state = 'skipped', problem = 'failed' where state = 'waiting' and id = ?",
                (int(row["subject"].partition(".")[0]),),
            )
    return len(found)


def compact(conn: Connection, *, before: int, limit: int = 10 * BATCH) -> tuple[int, list[str]]:
    """Receipts of what was left out or set aside before then become numbers; how many, and which were set aside. Not
    of what was forgotten and may still be brought back: it counts as stored again then."""
    found = rows(
        conn,
        """
        select event_id, outcome, rule from receipts where outcome != 'stored' and at < ?
           and not (rule = 'forgotten' and event_id in
                    (select json_extract(content, '$.event_id') from put_away where kind = 'event')) limit ?
        """,
        (before, limit),
    )
    for row in found:
        _count(conn, "filtered", row["rule"] if row["outcome"] == "filtered" else EXPIRED, 1)
    conn.executemany(
        "insert into seen values (?) on conflict do nothing", [(mark("id", row["event_id"]),) for row in found]
    )
    conn.executemany("delete from receipts where event_id = ?", [(row["event_id"],) for row in found])
    return len(found), [row["event_id"] for row in found if row["outcome"] == "set_aside"]


def _dump(items: object) -> str:
    return msgspec.json.encode(items).decode()
