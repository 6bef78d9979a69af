"""Events, and the receipt of everything that was ever captured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from claude_mem.domain.records import STORED, Body, Event, Receipt, Stopped, ToolUsed, body_kind
from claude_mem.domain.session_reports import EventLine
from claude_mem.privacy import trust
from claude_mem.storage.sqlite.engine import Connection, fetch_all, fetch_one, fetch_records, fetch_value
from claude_mem.storage.sqlite.journal import arrival_order, retention
from claude_mem.storage.sqlite.memory import trusted_sources
from claude_mem.system.failpoints import failpoint

_DECODE = msgspec.json.Decoder(Body)


def find_receipt(conn: Connection, event_id: str) -> Receipt | None:
    """Return what became of an event, or None if it is new.

    If the event was purged, only that it was stored is known.
    """
    receipts = fetch_all(conn, "select outcome, rule from receipts where event_id = ?", (event_id,))
    if receipts:
        return Receipt(receipts[0]["outcome"], receipts[0]["rule"])
    return STORED if retention.was_event_purged(conn, event_id) else None


def has_receipt(conn: Connection, event_id: str) -> bool:
    """Return whether the receipt of an event is stored; that of a purged event is not."""
    return bool(fetch_value(conn, "select 1 from receipts where event_id = ?", (event_id,)))


def get_receipt_rules(conn: Connection, event_ids: Sequence[str]) -> dict[str, str]:
    """Return, for each of these events, the rule that filtered it or the reason it was set aside."""
    ids_json = msgspec.json.encode(event_ids).decode()
    receipts = fetch_all(
        conn, "select event_id, rule from receipts where event_id in (select value from json_each(?))", (ids_json,)
    )
    return {row["event_id"]: row["rule"] for row in receipts}


def add_receipt(conn: Connection, event_id: str, outcome: Receipt, *, at: int) -> None:
    """Store the receipt of an event."""
    conn.execute("insert into receipts values (?, ?, ?, ?)", (event_id, outcome.what, outcome.rule, at))
    failpoint("drain.receipt")


def mark_event_filtered(conn: Connection, event_id: str, rule: str, *, now: int) -> None:
    """Record an unreadable event, whose file was deleted, as filtered instead of set aside."""
    conn.execute(
        "insert into receipts values (?1, 'filtered', ?2, ?3)"
        " on conflict do update set outcome = 'filtered', rule = ?2 where outcome = 'set_aside'",
        (event_id, rule, now),
    )


def load_times(conn: Connection, turn_id: int) -> dict[int, int]:
    """Return the time of each event of a turn, by `seq`."""
    return {
        row["seq"]: row["at"] for row in fetch_all(conn, "select seq, at from events where turn_id = ?", (turn_id,))
    }


def add_event(conn: Connection, event: Event, *, session_id: int, turn_id: int | None, source: str) -> int | None:
    """Store an event. Return its `seq`, or None if the same tool call is already stored."""
    conn.execute(
        """
        insert into events (event_id, session_id, turn_id, kind, at, tool_use_id, source, origin, body)
        values (?, ?, ?, ?, ?, nullif(?, ''), ?, ?, ?)
        on conflict do nothing
        """,
        (
            event.id,
            session_id,
            turn_id,
            body_kind(event.body),
            event.at,
            event.tool_use_id,
            source,
            event.origin or trust.origin_of(event.body, cwd=event.cwd),
            msgspec.json.encode(event.body).decode(),
        ),
    )
    failpoint("drain.event")
    return conn.last_insert_rowid() if conn.changes() else None


def is_tool_call_stored(conn: Connection, session_id: int, event: Event) -> bool:
    """Return whether the tool call is stored in this session, or as a copy in another session of the agent.

    The transcript of a forked session begins with a copy. The id alone is not enough, since some models just count their calls. A copy has the same tool, and the same input
    or (as far as a hook can tell) the same time.
    """
    assert isinstance(event.body, ToolUsed)
    match = fetch_value(
        conn,
        """
        select 1 from events e join sdk_sessions s on s.id = e.session_id
         where e.tool_use_id = ? and s.host = ?
           and (s.id = ? or json_extract(e.body, '$.name') = ?
                            and (abs(e.at - ?) < 2000 or json_extract(e.body, '$.input') = json(?)))
        """,
        (
            event.tool_use_id,
            event.host,
            session_id,
            event.body.name,
            event.at,
            msgspec.json.encode(event.body.input).decode(),
        ),
    )
    call = retention.ToolCallKey(event.host, event.tool_use_id, event.body.name)
    return bool(match) or retention.was_call_purged(conn, call, event.body.input, at=event.at)


def is_tool_call_in_session(conn: Connection, session_id: int, tool_use_id: str) -> bool:
    """Return whether the session has a tool call with this id."""
    return bool(
        fetch_value(conn, "select 1 from events where session_id = ? and tool_use_id = ?", (session_id, tool_use_id))
    )


def mark_tool_call_failed(conn: Connection, session_id: int, tool_use_id: str) -> None:
    """Mark a stored tool call as failed; the failure was reported after the call itself."""
    conn.execute(
        "update events set body = json_set(body, '$.failed', json('true'))"
        " where session_id = ? and tool_use_id = ? and kind = 'tool' and json_extract(body, '$.failed') is null",
        (session_id, tool_use_id),
    )


def has_event_of_kind(conn: Connection, turn_id: int, event_kind: str) -> bool:
    """Return whether the turn has an event of this kind. If its events were purged, assume it had one."""
    query = "select 1 from events where turn_id = ?1 and kind = ?2"
    return bool(
        fetch_value(
            conn, f"{query} union all select 1 from turns where id = ?1 and events_purged", (turn_id, event_kind)
        )
    )


def is_message_from_transcript(conn: Connection, turn_id: int, message: str) -> bool:
    """Return whether a transcript reported this message as the turn's last one."""
    query = (
        "select body ->> 'message' as said from events where turn_id = ? and kind = 'stop' and source = 'transcript'"
    )
    return any(row["said"] == message for row in fetch_all(conn, query, (turn_id,)))


def find_first_live_event_at(conn: Connection, session_id: int) -> int | None:
    """Return when a hook or a client first reported the session, or None if it is only known from its transcript."""
    first_stored = "select min(at) from events where session_id = ?1 and source != 'transcript'"
    first_purged = "select first_purged_at from sdk_sessions where id = ?1"
    times = [at for sql in (first_stored, first_purged) if (at := fetch_value(conn, sql, (session_id,))) is not None]
    return min(times, default=None)


def has_closing_message(conn: Connection, turn_id: int) -> bool:
    """Return whether a stop event with a message is stored: not every agent sends one.

    If the events were purged, assume so.
    """
    query = "select 1 from events where turn_id = ?1 and kind = 'stop' and trim(json_extract(body, '$.message')) != ''"
    return bool(fetch_value(conn, f"{query} union all select 1 from turns where id = ?1 and events_purged", (turn_id,)))


@dataclass(frozen=True, slots=True)
class LiveStop:
    """A stop event that a hook or a client reported."""

    seq: int
    turn_id: int | None
    at: int
    message: str


def list_live_stops(conn: Connection, session_id: int) -> list[LiveStop]:
    """Return the stop events that hooks and clients reported, by time."""
    return fetch_records(
        conn,
        LiveStop,
        """
        select seq, turn_id, at, body ->> 'message' as message from events
         where session_id = ? and kind = 'stop' and source != 'transcript' order by at, seq
        """,
        (session_id,),
    )


def replace_stop_message(conn: Connection, seq: int, message: str) -> None:
    """Replace the message of a stop event.

    The row gets a new `seq`, so that a digest of the old message is not kept.
    """
    row = fetch_one(conn, "delete from events where seq = ? returning *", (seq,))
    assert row is not None
    columns = {**row, "body": msgspec.json.encode(Stopped(message)).decode()}
    del columns["seq"]
    names = ", ".join(columns)
    conn.execute(f"insert into events ({names}) values ({', '.join('?' * len(columns))})", tuple(columns.values()))


def has_external_read(
    conn: Connection, *, since: int, session_id: int = 0, project_ids: Sequence[int] | None = ()
) -> bool:
    """Return whether untrusted external content was read since then.

    The events of the session and of these projects are searched; `project_ids=None` means all projects.
    """
    external_rows = conn.execute(
        """
        select s.project_id, e.body from sdk_sessions s join events e on e.session_id = s.id
         where (s.id = ?1 or ?2 is null or s.project_id in (select value from json_each(?2)))
           and s.last_event_at >= ?3 and e.at >= ?3 and e.origin = 'external'
        """,
        (session_id, None if project_ids is None else msgspec.json.encode(project_ids).decode(), since),
    )
    trusted_by_project: dict[int, frozenset[str]] = {}
    for row in external_rows:
        project_id = row["project_id"]
        if project_id not in trusted_by_project:
            trusted_by_project[project_id] = trusted_sources.get_trusted_sources(conn, project_id)
        names = trusted_by_project[project_id]
        if not names or not trusted_sources.is_from_trusted_sources(
            _DECODE.decode(row["body"]), names, trusted_sources.get_project_place(conn, project_id)
        ):
            return True
    return False


def get_newest_seq(conn: Connection, session_id: int) -> int:
    """Return the highest `seq` of the session, or 0."""
    return int(fetch_value(conn, "select coalesce(max(seq), 0) from events where session_id = ?", (session_id,)))


def list_session_events(conn: Connection, session_id: int) -> list[EventLine]:
    """Return the events of a session in the order in which they happened."""
    event_rows = fetch_all(
        conn,
        f"""
        select {arrival_order.ORDER_COLUMNS}, event_id, turn_id, kind, tool_use_id, origin, json_extract(body, '$.name') as tool,
               coalesce(json_extract(body, '$.failed'), 0) as failed
          from events where session_id = ?
        """,
        (session_id,),
    )
    ordered = arrival_order.order_events(event_rows)
    return [EventLine(**{name: row[name] for name in row if name != "agent_id"}) for row in ordered]
