"""Injections: which items each session was given already, and the record of each injection.

A memory is injected once per session, and so is the note about a file. The record says when and why a text was
injected, and names the items in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from claude_mem.storage.journal_records import InjectionRecord, SessionInjection
from claude_mem.storage.sqlite.engine import Connection, fetch_all

# Names of observations, summaries, files and calls, and of rules and undone work by the number of their observation.
# Other names, such as `start`, only prevent a second injection.
_RECORDED_NAME = re.compile(r"[os]\d+$|file:|call:|rule:\d+$|repeated:\d+$")


# --- items -----------------------------------------------------------------------------------------------------------


def record_injected_items(
    conn: Connection, host: str, content_session_id: str, items: Iterable[str], *, trigger: str, now: int
) -> None:
    """Record that a session was given these items."""
    for item in items:
        conn.execute(
            "insert or ignore into injected_items (host, content_session_id, item, trigger, at) values (?, ?, ?, ?, ?)",
            (host, content_session_id, item, trigger, now),
        )


def list_injected_items(conn: Connection, host: str, content_session_id: str) -> frozenset[str]:
    """Return the names of the items that a session was given."""
    item_rows = fetch_all(
        conn, "select item from injected_items where host = ? and content_session_id = ?", (host, content_session_id)
    )
    return frozenset(row["item"] for row in item_rows)


def clear_injected_items(conn: Connection, host: str, content_session_id: str) -> None:
    """Delete the record, because the session starts over with an empty conversation."""
    conn.execute("delete from injected_items where host = ? and content_session_id = ?", (host, content_session_id))


# --- records ---------------------------------------------------------------------------------------------------------


def add_injection_record(conn: Connection, host: str, content_session_id: str, injection: InjectionRecord) -> None:
    """Record an injection. A trigger in the database drops the record if the turn is private."""
    names = [name for name in injection.names if _RECORDED_NAME.match(name)]
    conn.execute(
        """
        insert into injections (host, content_session_id, trigger, about, at, tokens, names, holdout, held_out)
        values (?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        (
            host,
            content_session_id,
            injection.trigger,
            injection.about,
            injection.at,
            injection.tokens,
            msgspec.json.encode(names).decode(),
            injection.holdout,
            int(injection.held_out),
        ),
    )


def list_session_injections(conn: Connection, session_id: int) -> list[SessionInjection]:
    """Return a session's injections in chronological order."""
    injection_rows = fetch_all(
        conn,
        """
        select t.id, t.trigger as moment, t.about, t.at, t.tokens, t.names, t.held_out
          from sdk_sessions s join injections t on (t.host, t.content_session_id) = (s.host, s.content_session_id)
         where s.id = ? order by t.at, t.id
        """,
        (session_id,),
    )
    return [
        SessionInjection(
            **{
                **row,
                "names": msgspec.json.decode(row["names"], type=list[str]),
                "held_out": bool(row["held_out"]),
            }
        )
        for row in injection_rows
    ]
