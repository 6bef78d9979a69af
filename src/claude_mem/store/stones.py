"""Tombstones: what was forgotten does not come back, by whatever door.

A stone holds no content: the keyed hash of what a thing is known by (`marks.py`) and the time for which it counts. The
same stones are in the table, where every door looks, and in `forgotten.jsonl`, which outlives the database: one that
is put back learns from it what was forgotten since, and forgets it again before anyone can see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from claude_mem.records import Event, kind
from claude_mem.spool import append_private
from claude_mem.store import damage
from claude_mem.store.database import Connection, rows, value

FILE = damage.STONES

ITEMS = {"event": "events", "prompt": "user_prompts", "observation": "observations", "summary": "session_summaries"}
NUMBER = {"event": "seq", "prompt": "id", "observation": "id", "summary": "id"}
TIME = {"event": "at", "prompt": "created_at", "observation": "created_at", "summary": "created_at"}


def joined(kind: str) -> str:
    """A kind's rows (`i`) with their session (`s`) and turn (`t`)."""
    return f"from {ITEMS[kind]} i left join sdk_sessions s on s.id = i.session_id left join turns t on t.id = i.turn_id"


_TURN = ("'#' || t.number", "t.prompt_id")
SESSION = "mark('session', s.host, s.content_session_id)"
TITLES = ("title", "subtitle", "first_prompt")  # what a session's own row says

# What a row is known by, as SQL over the row (`i`), its session (`s`) and its turn (`t`). What has no name gives none.
KNOWN_BY = {
    "event": (
        "mark('event', i.event_id)",
        "iif(i.tool_use_id is null, '', mark('tool', s.host, s.content_session_id, i.tool_use_id))",
        "iif(i.tool_use_id is null, '', mark('call', s.host, i.tool_use_id, json_extract(i.body, '$.name'),"
        " json_extract(i.body, '$.input')))",
        "iif(i.kind != 'prompt' or t.prompt_id is null, '', mark('prompt', s.host, t.prompt_id))",
        "iif(i.kind != 'prompt', '', mark('said', s.host, s.content_session_id, 'prompt',"
        " trim(json_extract(i.body, '$.text'))))",
        "iif(i.kind != 'stop', '', mark('said', s.host, s.content_session_id, 'stop',"
        " trim(json_extract(i.body, '$.message'))))",
    ),
    "prompt": (
        "iif(t.prompt_id is null, '', mark('prompt', s.host, t.prompt_id))",
        "mark('said', s.host, s.content_session_id, 'prompt', trim(i.text))",
    ),
    "observation": (
        "iif(i.turn_id is null, mark('saved', i.key), '')",
        *(
            f"iif({turn} is null, '', mark('observation', s.host, s.content_session_id, {turn}, i.key))"
            for turn in _TURN
        ),
    ),
    "summary": tuple(
        f"iif({turn} is null, '', mark('summary', s.host, s.content_session_id, {turn}))" for turn in _TURN
    ),
}  # fmt: skip
ALL = {name: (*known, SESSION) for name, known in KNOWN_BY.items()}


class Stone(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the file. `back`: everything of that forgetting was brought back, or what has that mark."""

    n: int
    mark: str = ""
    since: int = 0
    until: int = 0
    erased: bool = False
    at: int = 0
    back: bool = False


# --- keeping ---------------------------------------------------------------------------------------------------------


def keep(folder: Path, stones: Iterable[Stone]) -> None:
    """Into the file, safe before anything is deleted: whoever dies in between is reminded at the next start."""
    append_private(folder / FILE, b"".join(msgspec.json.encode(stone) + b"\n" for stone in stones))


def kept(folder: Path) -> list[Stone]:
    """What is in the file and was not taken back. A line that was cut off by a crash is no stone."""
    found: list[Stone] = []
    try:
        lines = (folder / FILE).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    for line in lines:
        try:
            stone = msgspec.json.decode(line, type=Stone)
        except msgspec.MsgspecError:
            continue
        if stone.back:
            found = [other for other in found if other.n != stone.n or (stone.mark and other.mark != stone.mark)]
        else:
            found.append(stone)
    return found


def put(conn: Connection, stones: Iterable[Stone]) -> None:
    conn.executemany(
        "insert or replace into tombstones (mark, forgetting_id, since, until) values (?, ?, ?, ?)",
        [(stone.mark, stone.n, stone.since, stone.until) for stone in stones],
    )


def missing(conn: Connection, stones: Sequence[Stone]) -> list[Stone]:
    """Those that this database does not know: it is an older one that was put back."""
    known = {(row["mark"], row["forgetting_id"]) for row in rows(conn, "select mark, forgetting_id from tombstones")}
    return [stone for stone in stones if (stone.mark, stone.n) not in known]


def unlearn(conn: Connection, stones: Iterable[Stone]) -> None:
    """As if this database had never heard of them: whoever opens it forgets by them again. For one that was put
    together of an older one and what could be read of another."""
    conn.executemany(
        "delete from tombstones where mark = ? and forgetting_id = ?", [(stone.mark, stone.n) for stone in stones]
    )


def lift(conn: Connection, n: int) -> None:
    conn.execute("delete from tombstones where forgetting_id = ?", (n,))


# --- looking ---------------------------------------------------------------------------------------------------------


def any_(conn: Connection) -> bool:
    return bool(value(conn, "select 1 from tombstones limit 1"))


def bars_event(conn: Connection, event: Event) -> bool:
    """Was this event forgotten, or all of its session at that time?"""
    if not any_(conn):
        return False
    row = (event.id, kind(event.body), event.tool_use_id or None, event.at, msgspec.json.encode(event.body).decode())
    return _barred(
        conn,
        "event",
        "with i (event_id, kind, tool_use_id, at, body) as (values (?, ?, ?, ?, ?)),"
        " s (host, content_session_id) as (values (?, ?)), t (prompt_id) as (values (?))",
        (*row, event.host, event.content_session_id, event.prompt_id or None),
    )


def bars_observation(conn: Connection, turn_id: int | None, key: str, *, at: int) -> bool:
    return any_(conn) and _barred_in(conn, "observation", turn_id, key, at=at)


def bars_summary(conn: Connection, turn_id: int, *, at: int) -> bool:
    return any_(conn) and _barred_in(conn, "summary", turn_id, "", at=at)


def bars_prompt(conn: Connection, turn_id: int, text: str, *, at: int) -> bool:
    return any_(conn) and _barred_in(conn, "prompt", turn_id, text, at=at)


def bars_session(conn: Connection, host: str, content_session_id: str, *, since: int, until: int) -> bool:
    """Was all of it forgotten, from its beginning to its end?"""
    sql = """
        with s (host, content_session_id) as (values (?, ?))
        select 1 from s, tombstones x where x.mark = mark('session', s.host, s.content_session_id)
           and x.since <= ? and ? <= x.until
    """
    return any_(conn) and bool(value(conn, sql, (host, content_session_id, since, until)))


def bars_title(conn: Connection, host: str, content_session_id: str, text: str | None, *, at: int) -> bool:
    """Was it forgotten that the session was called this?"""
    sql = "select 1 from tombstones where mark = mark('titled', ?, ?, ?) and ? <= until"
    return bool(text) and any_(conn) and bool(value(conn, sql, (host, content_session_id, text, at)))


def _barred_in(conn: Connection, name: str, turn_id: int | None, text: str, *, at: int) -> bool:
    head = (
        f"with i (turn_id, {'text' if name == 'prompt' else 'key'}, {TIME[name]}) as (values (?, ?, ?)),"
        " t as (select w.number, w.prompt_id, w.session_id from (select 1) left join turns w on w.id = ?),"
        " s as (select o.host, o.content_session_id from t left join sdk_sessions o on o.id = t.session_id)"
    )
    return _barred(conn, name, head, (turn_id, text, at, turn_id))


def _barred(conn: Connection, name: str, head: str, given: tuple[object, ...]) -> bool:
    marks = ", ".join(ALL[name])
    sql = f"""
        {head} select 1 from i, s, t, tombstones x
         where x.mark in ({marks}) and i.{TIME[name]} between x.since and x.until limit 1
    """
    return bool(value(conn, sql, given))
