"""Tombstones, which keep forgotten content from being stored again, whichever way it arrives.

A tombstone holds no content: only the keyed hash of an item's identity and the period it covers. It is stored in the
table, which is checked before anything is stored, and in `forgotten.jsonl`, which outlives the database: after an older
database is restored, later deletions are applied again from the file before anything is shown. If the key is lost,
tombstones can no longer be compared with content. One tombstone that matches everything in their period (`MATCH_ALL`)
then refuses content that cannot be checked, until the user lifts it (deletion `F0`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from claude_mem.domain import ids
from claude_mem.domain.records import Event, body_kind
from claude_mem.domain.text import local_time
from claude_mem.storage.records import Tombstone
from claude_mem.storage.sqlite import damage, former_names
from claude_mem.storage.sqlite.deletion import keyed_hash
from claude_mem.storage.sqlite.engine import Connection, fetch_all, fetch_value
from claude_mem.system import data_directory
from claude_mem.system.spool import append_private

# Made at import: msgspec crashes if two threads are the first to decode a type at the same time.
_DECODE = msgspec.json.Decoder(Tombstone)
TOMBSTONE_FILE = damage.TOMBSTONE_FILE
MATCH_ALL = "*"  # in place of a hash: this tombstone matches everything that is not reported live by a hook
LOST_KEY_DELETION_ID = 0  # id of the deletion that stands for all deletions whose key was lost
ITEM_TABLES = {
    "event": "events",
    "prompt": "user_prompts",
    "observation": "observations",
    "summary": "session_summaries",
}
ITEM_ID_COLUMNS = {"event": "seq", "prompt": "id", "observation": "id", "summary": "id"}
ITEM_TIME_COLUMNS = {"event": "at", "prompt": "created_at", "observation": "created_at", "summary": "created_at"}
SESSION_TEXT_COLUMNS = ("title", "subtitle", "first_prompt")  # the text columns of a session row
_TURN_KEYS = ("'#' || t.number", "t.prompt_id")
SESSION_HASH_SQL = "keyed_hash('session', s.host, s.content_session_id)"
# SQL expressions for the keyed hashes that identify a row, over the row (`i`), its session (`s`) and its turn (`t`).
# An expression is '' where the row lacks the identifying value.
ITEM_HASH_SQL = {
    "event": (
        "keyed_hash('event', i.event_id)",
        "iif(i.tool_use_id is null, '', keyed_hash('tool', s.host, s.content_session_id, i.tool_use_id))",
        "iif(i.tool_use_id is null, '', keyed_hash('call', s.host, i.tool_use_id, json_extract(i.body, '$.name'),"
        " json_extract(i.body, '$.input')))",
        "iif(i.kind != 'prompt' or t.prompt_id is null, '', keyed_hash('prompt', s.host, t.prompt_id))",
        "iif(i.kind != 'prompt', '', keyed_hash('said', s.host, s.content_session_id, 'prompt',"
        " trim(json_extract(i.body, '$.text'))))",
        "iif(i.kind != 'stop', '', keyed_hash('said', s.host, s.content_session_id, 'stop',"
        " trim(json_extract(i.body, '$.message'))))",
    ),
    "prompt": (
        "iif(t.prompt_id is null, '', keyed_hash('prompt', s.host, t.prompt_id))",
        "keyed_hash('said', s.host, s.content_session_id, 'prompt', trim(i.text))",
    ),
    "observation": (
        "iif(i.turn_id is null, keyed_hash('saved', i.key), '')",
        *(
            f"iif({turn} is null, '', keyed_hash('observation', s.host, s.content_session_id, {turn}, i.key))"
            for turn in _TURN_KEYS
        ),
    ),
    "summary": tuple(
        f"iif({turn} is null, '', keyed_hash('summary', s.host, s.content_session_id, {turn}))" for turn in _TURN_KEYS
    ),
}  # fmt: skip
ITEM_AND_SESSION_HASH_SQL = {name: (*expressions, SESSION_HASH_SQL) for name, expressions in ITEM_HASH_SQL.items()}


def item_from_clause(kind: str) -> str:
    """Return the SQL `from` clause of a kind's rows (`i`) with their session (`s`) and turn (`t`)."""
    return f"from {ITEM_TABLES[kind]} i left join sdk_sessions s on s.id = i.session_id left join turns t on t.id = i.turn_id"


# --- the file --------------------------------------------------------------------------------------------------------


def append_tombstones(folder: Path, tombstones: Iterable[Tombstone]) -> None:
    """Append tombstones to the file and sync it.

    Call this before deleting anything: after a crash in between, the next start completes the deletion from the file.
    """
    append_private(
        folder / TOMBSTONE_FILE, b"".join(msgspec.json.encode(tombstone) + b"\n" for tombstone in tombstones)
    )


def read_tombstones(folder: Path) -> list[Tombstone]:
    """Return the tombstones of the file that were not revoked. A line cut off by a crash is ignored."""
    return _read_file(folder)[0]


def _read_file(folder: Path) -> tuple[list[Tombstone], int]:
    """Return the tombstones in force and the number of unreadable lines, not counting a last line that was cut off."""
    tombstones: list[Tombstone] = []
    broken_lines = 0
    try:
        content = (folder / TOMBSTONE_FILE).read_bytes()
    except FileNotFoundError:
        return [], 0
    for line in content.splitlines():
        try:
            tombstone = _DECODE.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            broken_lines += 1
            continue
        if tombstone.back:
            tombstones = [
                earlier
                for earlier in tombstones
                if earlier.n != tombstone.n or (tombstone.mark and earlier.mark != tombstone.mark)
            ]
        else:
            tombstones.append(tombstone)
    return tombstones, broken_lines - (broken_lines > 0 and not content.endswith(b"\n"))


def read_uncheckable_tombstones(folder: Path) -> list[Tombstone]:
    """Return the tombstones whose key was lost, which can no longer be compared with any content."""
    tombstones = read_tombstones(folder)
    last = max((index for index, tombstone in enumerate(tombstones) if tombstone.mark == MATCH_ALL), default=0)
    return [tombstone for tombstone in tombstones[:last] if tombstone.mark != MATCH_ALL]


# --- the table -------------------------------------------------------------------------------------------------------


def insert_tombstones(conn: Connection, tombstones: Iterable[Tombstone]) -> None:
    """Insert tombstones into the table."""
    conn.executemany(
        "insert or replace into tombstones (keyed_hash, deletion_id, since, until) values (?, ?, ?, ?)",
        [(tombstone.mark, tombstone.n, tombstone.since, tombstone.until) for tombstone in tombstones],
    )


def find_missing_tombstones(conn: Connection, tombstones: Sequence[Tombstone]) -> list[Tombstone]:
    """Return the tombstones that this database does not have, as happens after an older database was restored."""
    columns = [former_names.stored_column(conn, "tombstones", name) for name in ("keyed_hash", "deletion_id")]
    known_keys = {tuple(row.values()) for row in fetch_all(conn, f"select {', '.join(columns)} from tombstones")}
    return [tombstone for tombstone in tombstones if (tombstone.mark, tombstone.n) not in known_keys]


def delete_tombstones(conn: Connection, tombstones: Iterable[Tombstone]) -> None:
    """Remove these tombstones from the table so that the next start applies them again from the file.

    For a database that was assembled from a backup and the readable rows of a damaged database.
    """
    conn.executemany(
        "delete from tombstones where keyed_hash = ? and deletion_id = ?",
        [(tombstone.mark, tombstone.n) for tombstone in tombstones],
    )


def delete_tombstones_of_deletion(conn: Connection, deletion_id: int) -> None:
    """Remove the tombstones of a deletion that is undone."""
    conn.execute("delete from tombstones where deletion_id = ?", (deletion_id,))


# --- a damaged file or a lost key ------------------------------------------------------------------------------------


def complete_tombstone_file(conn: Connection, folder: Path) -> str:
    """Add to the file all tombstones that only the database has.

    Return a message that says what was wrong with the file; '' if nothing was.
    """
    file_tombstones, broken_lines = _read_file(folder)
    known_keys = {(tombstone.mark, tombstone.n) for tombstone in file_tombstones}
    missing_tombstones = [
        tombstone for tombstone in _database_tombstones(conn) if (tombstone.mark, tombstone.n) not in known_keys
    ]
    if broken_lines:
        data_directory.move_to_quarantine(folder, folder / TOMBSTONE_FILE, f"had {broken_lines} unreadable lines")
        append_tombstones(folder, file_tombstones)
    if missing_tombstones:
        append_tombstones(folder, missing_tombstones)
    if not broken_lines and not missing_tombstones:
        return ""
    unreadable = f"{broken_lines:,} of its lines could not be read, and " if broken_lines else ""
    return f"{TOMBSTONE_FILE} was damaged: {unreadable}{len(missing_tombstones):,} tombstones were restored from the database"


def _database_tombstones(conn: Connection) -> list[Tombstone]:
    sql = """
        select t.keyed_hash as mark, t.deletion_id as n, t.since, t.until, coalesce(f.erased, 0) as erased,
               coalesce(f.at, 0) as at
          from tombstones t left join deletions f on f.id = t.deletion_id where f.undone_at is null
    """
    return [Tombstone(**{**row, "erased": bool(row["erased"])}) for row in fetch_all(conn, sql)]


def replace_lost_key(folder: Path) -> None:
    """If the key is lost, move its damaged file aside; if there are tombstones, also create a new key.

    A tombstone that matches everything then covers the period of those that can no longer be checked.
    """
    if not keyed_hash.is_hash_key_lost(folder):
        return
    if (folder / keyed_hash.HASH_KEY_FILE).exists():
        data_directory.move_to_quarantine(folder, folder / keyed_hash.HASH_KEY_FILE, "could not be read")
    tombstones = read_tombstones(folder)
    if not [tombstone for tombstone in tombstones if tombstone.mark != MATCH_ALL]:
        return
    since, until = min(tombstone.since for tombstone in tombstones), max(tombstone.until for tombstone in tombstones)
    append_tombstones(folder, [Tombstone(LOST_KEY_DELETION_ID, MATCH_ALL, since, until, at=ids.now_ms())])
    keyed_hash.make_keyed_hash(folder)()  # creates the key, so that the next start does not repeat this


def insert_match_all_tombstone(conn: Connection, folder: Path, *, now: int) -> str:
    """Insert the tombstone that matches everything into the table, if the file has one.

    Return a message that explains its effect; '' if there is none.
    """
    lost = next((tombstone for tombstone in reversed(read_tombstones(folder)) if tombstone.mark == MATCH_ALL), None)
    if lost is None:
        return ""
    insert_tombstones(conn, [lost])
    conn.execute(
        "insert into deletions (id, at, done_at) values (?, ?, ?) on conflict do update set undone_at = null",
        (LOST_KEY_DELETION_ID, lost.at, now),
    )
    return (
        f"{keyed_hash.HASH_KEY_FILE} was lost on {local_time(lost.at):%d %b %Y}, so forgotten content can no longer be recognized."
        f" To keep it forgotten, backups, imports and transcripts from before {local_time(lost.until):%d %b %Y, %H:%M}"
        f" are refused; `claude-mem forget --undo F{LOST_KEY_DELETION_ID}` allows them again"
    )


# --- checks before anything is stored --------------------------------------------------------------------------------


def _has_tombstones(conn: Connection) -> bool:
    return bool(fetch_value(conn, "select 1 from tombstones limit 1"))


def is_event_tombstoned(conn: Connection, event: Event, *, live: bool = False) -> bool:
    """Return whether this event was forgotten, or everything in its session at that time.

    An event that a hook reports (`live`) is new, so the tombstone that matches everything does not apply to it.
    """
    if not _has_tombstones(conn):
        return False
    row = (
        event.id,
        body_kind(event.body),
        event.tool_use_id or None,
        event.at,
        msgspec.json.encode(event.body).decode(),
    )
    return _has_matching_tombstone(
        conn,
        "event",
        ITEM_AND_SESSION_HASH_SQL["event"] if live else (*ITEM_AND_SESSION_HASH_SQL["event"], f"'{MATCH_ALL}'"),
        "with i (event_id, kind, tool_use_id, at, body) as (values (?, ?, ?, ?, ?)),"
        " s (host, content_session_id) as (values (?, ?)), t (prompt_id) as (values (?))",
        (*row, event.host, event.content_session_id, event.prompt_id or None),
    )


def is_time_uncheckable(conn: Connection, *, at: int) -> bool:
    """Return whether imported content from that time must be refused because its tombstones can't be checked."""
    return bool(
        fetch_value(
            conn, "select 1 from tombstones where keyed_hash = ? and ? between since and until", (MATCH_ALL, at)
        )
    )


def is_observation_tombstoned(conn: Connection, turn_id: int | None, key: str, *, at: int) -> bool:
    """Return whether the observation with this key was forgotten."""
    return _has_tombstones(conn) and _is_turn_item_tombstoned(conn, "observation", turn_id, key, at=at)


def is_summary_tombstoned(conn: Connection, turn_id: int, *, at: int) -> bool:
    """Return whether the summary of this turn was forgotten."""
    return _has_tombstones(conn) and _is_turn_item_tombstoned(conn, "summary", turn_id, "", at=at)


def is_prompt_tombstoned(conn: Connection, turn_id: int, text: str, *, at: int) -> bool:
    """Return whether a prompt with this text was forgotten."""
    return _has_tombstones(conn) and _is_turn_item_tombstoned(conn, "prompt", turn_id, text, at=at)


def is_session_tombstoned(conn: Connection, host: str, content_session_id: str, *, since: int, until: int) -> bool:
    """Return whether the whole session was forgotten, from its start to its end."""
    sql = """
        with s (host, content_session_id) as (values (?, ?))
        select 1 from s, tombstones x where x.keyed_hash in (keyed_hash('session', s.host, s.content_session_id), '*')
           and x.since <= ? and ? <= x.until
    """
    return _has_tombstones(conn) and bool(fetch_value(conn, sql, (host, content_session_id, since, until)))


def is_title_tombstoned(conn: Connection, host: str, content_session_id: str, text: str | None, *, at: int) -> bool:
    """Return whether this title, subtitle or first prompt of the session was forgotten."""
    sql = "select 1 from tombstones where keyed_hash in (keyed_hash('titled', ?, ?, ?), '*') and ? <= until"
    return bool(text) and _has_tombstones(conn) and bool(fetch_value(conn, sql, (host, content_session_id, text, at)))


def _is_turn_item_tombstoned(conn: Connection, name: str, turn_id: int | None, text: str, *, at: int) -> bool:
    with_clause = (
        f"with i (turn_id, {'text' if name == 'prompt' else 'key'}, {ITEM_TIME_COLUMNS[name]}) as (values (?, ?, ?)),"
        " t as (select w.number, w.prompt_id, w.session_id from (select 1) left join turns w on w.id = ?),"
        " s as (select o.host, o.content_session_id from t left join sdk_sessions o on o.id = t.session_id)"
    )
    return _has_matching_tombstone(
        conn, name, ITEM_AND_SESSION_HASH_SQL[name], with_clause, (turn_id, text, at, turn_id)
    )


def _has_matching_tombstone(
    conn: Connection, name: str, hashes_sql: Sequence[str], with_clause: str, params: tuple[object, ...]
) -> bool:
    sql = f"""
        {with_clause} select 1 from i, s, t, tombstones x
         where x.keyed_hash in ({", ".join(hashes_sql)})
           and i.{ITEM_TIME_COLUMNS[name]} between x.since and x.until limit 1
    """
    return bool(fetch_value(conn, sql, params))
