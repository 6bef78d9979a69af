"""Tombstones: what was forgotten does not come back, by whatever door.

A stone holds no content: the keyed hash of what a thing is known by (`marks.py`) and the time for which it counts. The
same stones are in the table, where every door looks, and in `forgotten.jsonl`, which outlives the database: one that
is put back learns from it what was forgotten since, and forgets it again before anyone can see it.

Without their key, stones can't be compared with anything any more. Then one that fits everything takes their place,
`ANY`, for the time that they count for: what can't be checked does not come in, until a person lifts it (`F0`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from claude_mem import ids, own_files
from claude_mem.records import Event, kind
from claude_mem.spool import append_private
from claude_mem.store import damage, marks
from claude_mem.store.database import Connection, rows, value
from claude_mem.text import local

FILE = damage.STONES
ANY = "*"  # the mark of a stone that fits everything from elsewhere
LOST = 0  # the number of the forgetting that stands for all whose key was lost

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
    return _read(folder)[0]


def _read(folder: Path) -> tuple[list[Stone], int]:
    """The stones that count, and how many lines are no stones. The last line may be cut off."""
    found: list[Stone] = []
    broken = 0
    try:
        content = (folder / FILE).read_bytes()
    except FileNotFoundError:
        return [], 0
    for line in content.splitlines():
        try:
            stone = msgspec.json.decode(line, type=Stone)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            broken += 1
            continue
        if stone.back:
            found = [other for other in found if other.n != stone.n or (stone.mark and other.mark != stone.mark)]
        else:
            found.append(stone)
    return found, broken - (broken > 0 and not content.endswith(b"\n"))


def unchecked(folder: Path) -> list[Stone]:
    """Those whose key was lost: whether something is what they stand for can't be told."""
    found = kept(folder)
    last = max((place for place, stone in enumerate(found) if stone.mark == ANY), default=0)
    return [stone for stone in found[:last] if stone.mark != ANY]


# --- damage ----------------------------------------------------------------------------------------------------------


def complete(conn: Connection, folder: Path) -> str:
    """See that the file has all stones that the database knows. What was wrong with it, in words; '' if nothing was."""
    found, broken = _read(folder)
    known = {(stone.mark, stone.n) for stone in found}
    missing_ = [stone for stone in _of_database(conn) if (stone.mark, stone.n) not in known]
    if broken:
        own_files.move(folder, folder / FILE, f"had {broken} lines that can't be read")
        keep(folder, found)
    keep(folder, missing_) if missing_ else None
    if not broken and not missing_:
        return ""
    lines = f"{broken:,} lines of it could not be read, and " if broken else ""
    return f"{FILE} was damaged: {lines}{len(missing_):,} tombstones were written again from the database"


def _of_database(conn: Connection) -> list[Stone]:
    sql = """
        select t.mark, t.forgetting_id as n, t.since, t.until, coalesce(f.erased, 0) as erased, coalesce(f.at, 0) as at
          from tombstones t left join forgettings f on f.id = t.forgetting_id where f.undone_at is null
    """
    return [Stone(**{**row, "erased": bool(row["erased"])}) for row in rows(conn, sql)]


def replace_key(folder: Path) -> None:
    """If the key is lost and there are stones, move what is left of it aside, bar all that they may stand for, and make
    another key."""
    if not marks.is_lost(folder):
        return
    if (folder / marks.KEY_FILE).exists():
        own_files.move(folder, folder / marks.KEY_FILE, "could not be read")
    found = kept(folder)
    if not [stone for stone in found if stone.mark != ANY]:
        return
    since, until = min(stone.since for stone in found), max(stone.until for stone in found)
    keep(folder, [Stone(LOST, ANY, since, until, at=ids.now())])
    marks.marker(folder)()  # makes the key, so that this is not done again


def put_lost(conn: Connection, folder: Path, *, now: int) -> str:
    """Put the stone that fits everything into the table, if there is one. What it means, in words; '' without one."""
    lost = next((stone for stone in reversed(kept(folder)) if stone.mark == ANY), None)
    if lost is None:
        return ""
    put(conn, [lost])
    conn.execute(
        "insert into forgettings (id, at, done_at) values (?, ?, ?) on conflict do update set undone_at = null",
        (LOST, lost.at, now),
    )
    return (
        f"{marks.KEY_FILE} was lost on {local(lost.at):%d %b %Y}, so what you had forgotten can't be recognised any"
        f" more. To keep it forgotten, backups, imports and transcripts from before {local(lost.until):%d %b %Y, %H:%M}"
        f" are refused; `claude-mem forget --undo F{LOST}` allows them again"
    )


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


def bars_event(conn: Connection, event: Event, *, live: bool = False) -> bool:
    """Was this event forgotten, or all of its session at that time? One that a hook reports (`live`) is new, so it is
    not barred by a stone that fits everything."""
    if not any_(conn):
        return False
    row = (event.id, kind(event.body), event.tool_use_id or None, event.at, msgspec.json.encode(event.body).decode())
    return _barred(
        conn,
        "event",
        ALL["event"] if live else (*ALL["event"], f"'{ANY}'"),
        "with i (event_id, kind, tool_use_id, at, body) as (values (?, ?, ?, ?, ?)),"
        " s (host, content_session_id) as (values (?, ?)), t (prompt_id) as (values (?))",
        (*row, event.host, event.content_session_id, event.prompt_id or None),
    )


def bars_unknown(conn: Connection, *, at: int) -> bool:
    """Can't it be told whether something from elsewhere, of that time, was forgotten?"""
    return bool(value(conn, "select 1 from tombstones where mark = ? and ? between since and until", (ANY, at)))


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
        select 1 from s, tombstones x where x.mark in (mark('session', s.host, s.content_session_id), '*')
           and x.since <= ? and ? <= x.until
    """
    return any_(conn) and bool(value(conn, sql, (host, content_session_id, since, until)))


def bars_title(conn: Connection, host: str, content_session_id: str, text: str | None, *, at: int) -> bool:
    """Was it forgotten that the session was called this?"""
    sql = "select 1 from tombstones where mark in (mark('titled', ?, ?, ?), '*') and ? <= until"
    return bool(text) and any_(conn) and bool(value(conn, sql, (host, content_session_id, text, at)))


def _barred_in(conn: Connection, name: str, turn_id: int | None, text: str, *, at: int) -> bool:
    head = (
        f"with i (turn_id, {'text' if name == 'prompt' else 'key'}, {TIME[name]}) as (values (?, ?, ?)),"
        " t as (select w.number, w.prompt_id, w.session_id from (select 1) left join turns w on w.id = ?),"
        " s as (select o.host, o.content_session_id from t left join sdk_sessions o on o.id = t.session_id)"
    )
    return _barred(conn, name, ALL[name], head, (turn_id, text, at, turn_id))


def _barred(conn: Connection, name: str, known_by: Sequence[str], head: str, given: tuple[object, ...]) -> bool:
    sql = f"""
        {head} select 1 from i, s, t, tombstones x
         where x.mark in ({", ".join(known_by)}) and i.{TIME[name]} between x.since and x.until limit 1
    """
    return bool(value(conn, sql, given))
