"""Items: what the logs say about a row of the memory, and which rows are still to be collected."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from claude_mem.domain.export_format import ContentRecord
from claude_mem.domain.log_entries import TOMBSTONE_CONTENT, version_order
from claude_mem.storage.spaces import ChangedRow, ItemState, NewEntry, PendingEntry
from claude_mem.storage.sqlite import export
from claude_mem.storage.sqlite.deletion import tombstones
from claude_mem.storage.sqlite.engine import Connection, Row, fetch_all, fetch_one, fetch_records, fetch_value
from claude_mem.storage.sqlite.memory import edits
from claude_mem.storage.sqlite.memory.observations import encode_json
from claude_mem.storage.sqlite.spaces import logs
from claude_mem.storage.sqlite.spaces.logs import EMPTIED

_SELECT_ITEM = """
    select item_hash, kind, row_id, state, version, at, device, idx, generation, dirty, erased, deletion_id
      from space_items
"""
_UPSERT_ITEM = """
    insert into space_items (space_id, item_hash, kind, row_id, state, version, at, device, idx, generation, erased)
        values (:space_id, :item_hash, :kind, :row_id, :state, :version, :at, :device, :idx, :generation, :erased)
        on conflict do update set kind = :kind, row_id = :row_id, state = :state, version = :version, at = :at,
            device = :device, idx = :idx, generation = :generation, erased = :erased, dirty = 0
"""


# --- rows to collect -------------------------------------------------------------------------------------------------


def read_changes(conn: Connection, space_id: str, *, limit: int) -> list[ChangedRow]:
    """Return the next rows that changed since the last collection."""
    sql = """
        select c.seq, c.kind, c.row_id, exists (
                   select 1 from space_items i where i.kind = c.kind and i.row_id = c.row_id and i.space_id = ?1
                      and i.state = 'live' and not i.dirty) as settled
          from space_changes c where c.seq > (select collected from spaces where id = ?1) order by c.seq limit ?2
    """
    changes = fetch_all(conn, sql, (space_id, limit))
    news = [row for row in changes if not row["settled"]]
    records = {
        kind: export.read_records(conn, kind, [row["row_id"] for row in news if row["kind"] == kind])
        for kind in {row["kind"] for row in news}
    }
    return [_to_changed_row(row, records.get(row["kind"], {}).get(row["row_id"])) for row in changes]


def _to_changed_row(row: Row, stored: tuple[int, ContentRecord] | None) -> ChangedRow:
    project_id, record = stored or (None, None)
    return ChangedRow(
        seq=row["seq"], kind=row["kind"], row_id=row["row_id"], settled=bool(row["settled"]), project_id=project_id,
        record=record,
    )  # fmt: skip


def is_current(conn: Connection, change: ChangedRow) -> bool:
    """Return whether a row has not changed again since the change was read."""
    sql = "select 1 from space_changes where seq = ? and kind = ? and row_id = ?"
    return bool(fetch_value(conn, sql, (change.seq, change.kind, change.row_id)))


def finish_changes(conn: Connection, space_id: str, *, upto: int) -> None:
    """Record that the changes up to this one were collected, and drop those that every space collected."""
    conn.execute("update spaces set collected = max(collected, ?) where id = ?", (upto, space_id))
    logs.drop_collected_changes(conn)


def get_held_back(conn: Connection, space_id: str) -> list[int]:
    """Return the ids of the projects whose rows were not collected."""
    text = fetch_value(conn, "select held_back from spaces where id = ?", (space_id,)) or "[]"
    return msgspec.json.decode(text, type=list[int])


def set_held_back(conn: Connection, space_id: str, project_ids: Collection[int]) -> None:
    """Set the projects that are not shared, and queue what waits for those that are shared again."""
    freed = sorted({*get_held_back(conn, space_id)} - {*project_ids})
    conn.execute("update spaces set held_back = ? where id = ?", (encode_json(sorted(project_ids)), space_id))
    if not freed:
        return
    params = (encode_json(freed),)
    rows = fetch_all(
        conn,
        """
        with freed (id) as (select value from json_each(?))
        select 'project' as kind, id from projects where id in freed
        union all select 'session', id from sdk_sessions where project_id in freed
        union all select 'prompt', p.id from user_prompts p join sdk_sessions s on s.id = p.session_id
                   where s.project_id in freed
        union all select 'observation', id from observations where project_id in freed and not forgotten
        union all select 'summary', id from session_summaries where project_id in freed
        """,
        params,
    )
    row_keys = [(row["kind"], row["id"]) for row in rows]
    conn.executemany("delete from space_changes where kind = ? and row_id = ?", row_keys)
    conn.executemany("insert into space_changes (kind, row_id, changed) values (?, ?, 0)", row_keys)
    conn.execute("update space_log set state = 'new', reason = '' where space_id = ? and state = 'held'", (space_id,))


# --- items -----------------------------------------------------------------------------------------------------------


def find_item(conn: Connection, space_id: str, kind: str, row_id: int) -> ItemState | None:
    """Return the newest item to which a row is bound."""
    sql = f"{_SELECT_ITEM} where space_id = ? and kind = ? and row_id = ? order by generation desc limit 1"
    return _to_item(conn, space_id, fetch_one(conn, sql, (space_id, kind, row_id)))


def get_item(conn: Connection, space_id: str, item_hash: str) -> ItemState | None:
    """Return what the logs say about an item."""
    sql = f"{_SELECT_ITEM} where space_id = ? and item_hash = ?"
    return _to_item(conn, space_id, fetch_one(conn, sql, (space_id, item_hash)))


def _to_item(conn: Connection, space_id: str, row: Row | None) -> ItemState | None:
    if row is None:
        return None
    heads = tuple(head["hash"] for head in _heads(conn, space_id, row["item_hash"]))
    return ItemState(**{**row, "dirty": bool(row["dirty"]), "erased": bool(row["erased"]), "heads": heads})


def _heads(conn: Connection, space_id: str, item_hash: str) -> list[Row]:
    """Return the entries of an item that no known entry replaces."""
    sql = """
        select l.id, l.device, l.idx, l.hash, l.version, l.at, l.content, l.state from space_log l
         where l.space_id = ?1 and l.item_hash = ?2
           and not exists (select 1 from space_replaced r where r.space_id = ?1 and r.hash = l.hash)
    """
    return fetch_all(conn, sql, (space_id, item_hash))


def bind_row(conn: Connection, space_id: str, item_hash: str, *, kind: str, row_id: int | None) -> None:
    """Bind an item to the row that has it, with the keyed hashes that a tombstone of this machine would have.

    A row that was bound to an earlier generation of the item, before a deletion was undone, belongs to this one.
    """
    if row_id is not None:
        conn.execute(
            "update space_items set row_id = null where space_id = ? and kind = ? and row_id = ? and item_hash != ?",
            (space_id, kind, row_id, item_hash),
        )
    marks, session_mark, made_at = _marks(conn, kind, row_id) if row_id is not None else ([], "", 0)
    mark_columns = ", marks = :marks, session_mark = :session_mark, made_at = :made_at" if marks else ""
    conn.execute(
        f"""
        update space_items set kind = :kind, row_id = :row_id, dirty = 0{mark_columns}
         where space_id = :space_id and item_hash = :item_hash
        """,
        {
            "kind": kind, "row_id": row_id, "marks": encode_json(marks), "session_mark": session_mark,
            "made_at": made_at, "space_id": space_id, "item_hash": item_hash,
        },
    )  # fmt: skip


def _marks(conn: Connection, kind: str, row_id: int) -> tuple[list[str], str, int]:
    """Return the keyed hashes that a tombstone of a row has, that of its session, and when the row was made."""
    if kind == "project":
        return [], "", 0
    if kind == "session":
        sql = f"select {tombstones.SESSION_HASH_SQL} as mark, s.started_at as at from sdk_sessions s where s.id = ?"
        row = fetch_one(conn, sql, (row_id,))
        return ([row["mark"]], row["mark"], row["at"]) if row else ([], "", 0)
    expressions = tombstones.ITEM_HASH_SQL[kind]
    columns = ", ".join(f"{expression} as mark{number}" for number, expression in enumerate(expressions))
    session = f"iif(s.id is null, '', {tombstones.SESSION_HASH_SQL})"
    sql = (
        f"select {columns}, {session} as session, i.created_at as at {tombstones.item_from_clause(kind)} where i.id = ?"
    )
    row = fetch_one(conn, sql, (row_id,))
    if row is None:
        return [], "", 0
    marks = [row[f"mark{number}"] for number in range(len(expressions)) if row[f"mark{number}"]]
    return marks, row["session"], row["at"]


def find_own_deletion(conn: Connection, space_id: str, item_hash: str) -> tuple[bool, bool]:
    """Return whether a tombstone of this machine covers the item, and whether that deletion was an erasure."""
    row = fetch_one(
        conn,
        """
        select max(coalesce(d.erased, 0)) as erased, count(*) as n
          from space_items i join tombstones t
            on (t.keyed_hash in (select value from json_each(i.marks)) or t.keyed_hash = i.session_mark and i.session_mark != '')
           and i.made_at between t.since and t.until
          left join deletions d on d.id = t.deletion_id
         where i.space_id = ? and i.item_hash = ?
        """,
        (space_id, item_hash),
    )
    return (bool(row["n"]), bool(row["erased"])) if row else (False, False)


def get_marks(conn: Connection, space_id: str, item_hash: str) -> tuple[list[str], int]:
    """Return the keyed hashes by which a tombstone names the item here, and when its row was made."""
    sql = "select marks, made_at from space_items where space_id = ? and item_hash = ?"
    row = fetch_one(conn, sql, (space_id, item_hash))
    return (msgspec.json.decode(row["marks"], type=list[str]), row["made_at"]) if row else ([], 0)


def is_forgotten(conn: Connection, row_id: int) -> bool:
    """Return whether a person deleted an observation, which is not so if it was merged into another one."""
    sql = """
        select 1 from observations o where o.id = ? and o.forgotten and not exists
            (select 1 from deleted_observations d where d.observation_id = o.id and d.merged_into_id is not null)
    """
    return bool(fetch_value(conn, sql, (row_id,)))


def append_entry(conn: Connection, space_id: str, entry: NewEntry, *, kind: str, row_id: int | None) -> int:
    """Append an entry about an item to the log of this device, and bind the item to its row. Return its index."""
    idx = logs.append_own(conn, space_id, [entry.body])
    device = fetch_value(conn, "select device from spaces where id = ?", (space_id,))
    note_entry(conn, space_id, device, idx, entry, state="own")
    set_item(conn, space_id, device, idx, entry, kind=kind, row_id=row_id)
    return idx


def note_entry(conn: Connection, space_id: str, device: str, idx: int, entry: NewEntry, *, state: str) -> None:
    """Record what an entry of a log says, and which entries it replaces."""
    conn.execute(
        """
        update space_log set item_hash = ?, version = ?, at = ?, content = ?, state = ?, reason = ''
         where space_id = ? and device = ? and idx = ?
        """,
        (entry.item_hash, entry.version, entry.at, entry.content, state, space_id, device, idx),
    )
    if entry.parents:
        replaced = [(space_id, parent) for parent in entry.parents]
        conn.executemany("insert or ignore into space_replaced values (?, ?)", replaced)
    drop_replaced_bodies(conn, space_id, entry.item_hash)


def drop_replaced_bodies(conn: Connection, space_id: str, item_hash: str) -> None:
    """Drop the text of an item's versions that a later version replaces."""
    conn.execute(
        """
        update space_log set body = x'' where space_id = ?1 and item_hash = ?2 and body != x''
           and exists (select 1 from space_replaced r where r.space_id = ?1 and r.hash = space_log.hash)
        """,
        (space_id, item_hash),
    )


def drop_bodies(conn: Connection, space_id: str, item_hash: str) -> None:
    """Drop the text of every version of an item. A tombstone has none, and stays."""
    conn.execute(
        "update space_log set body = x'' where space_id = ? and item_hash = ? and body != x'' and content != ?",
        (space_id, item_hash, TOMBSTONE_CONTENT),
    )


def drop_body(conn: Connection, space_id: str, device: str, idx: int) -> None:
    """Drop the text of one entry."""
    conn.execute(
        "update space_log set body = ? where space_id = ? and device = ? and idx = ?", (EMPTIED, space_id, device, idx)
    )


def set_item(
    conn: Connection, space_id: str, device: str, idx: int, entry: NewEntry, *, kind: str, row_id: int | None
) -> None:
    """Record that an entry has the newest version of its item, and bind the item to its row."""
    conn.execute(
        _UPSERT_ITEM,
        {
            "space_id": space_id, "item_hash": entry.item_hash, "kind": kind, "row_id": row_id, "state": entry.state,
            "version": entry.version, "at": entry.at, "device": device, "idx": idx, "generation": entry.generation,
            "erased": int(entry.erased),
        },
    )  # fmt: skip
    if entry.state == "live":
        bind_row(conn, space_id, entry.item_hash, kind=kind, row_id=row_id)


def unbind_row(conn: Connection, space_id: str, item_hash: str) -> None:
    """Unbind an item from its row while the row is replaced by a version from a log, so that its text stays there."""
    conn.execute("update space_items set row_id = null where space_id = ? and item_hash = ?", (space_id, item_hash))


def set_deletion(conn: Connection, space_id: str, item_hash: str, deletion_id: int) -> None:
    """Record the deletion here that another machine's tombstone asked for."""
    conn.execute(
        "update space_items set deletion_id = ? where space_id = ? and item_hash = ?",
        (deletion_id, space_id, item_hash),
    )


def list_doomed(conn: Connection, space_id: str, *, limit: int) -> list[ItemState]:
    """Return items that another machine deleted and whose row is still here."""
    sql = f"{_SELECT_ITEM} where space_id = ? and state = 'deleted' and deletion_id = 0 and row_id is not null limit ?"
    items = [_to_item(conn, space_id, row) for row in fetch_all(conn, sql, (space_id, limit))]
    return [item for item in items if item is not None]


def list_live_items(conn: Connection, space_id: str, *, after: str, limit: int) -> list[tuple[ItemState, bytes]]:
    """Return the next items by hash, each with the body of its newest version."""
    sql = """
        select i.item_hash, l.body from space_items i
          join space_log l on l.space_id = i.space_id and l.device = i.device and l.idx = i.idx
         where i.space_id = ? and i.state = 'live' and not i.dirty and i.item_hash > ? order by i.item_hash limit ?
    """
    rows = fetch_all(conn, sql, (space_id, after, limit))
    items = [(get_item(conn, space_id, row["item_hash"]), row["body"]) for row in rows]
    return [(item, body) for item, body in items if item is not None]


def undo_deletion(conn: Connection, space_id: str, item: ItemState, *, now: int) -> None:
    """Undo a deletion that another machine asked for and has undone: the content may be stored here again."""
    marks, _ = get_marks(conn, space_id, item.item_hash)
    conn.execute(
        "delete from tombstones where deletion_id = ? and keyed_hash in (select value from json_each(?))",
        (item.deletion_id, encode_json(marks)),
    )
    conn.execute(
        "delete from deleted_rows where deletion_id = ? and kind = ? and row_id = ?",
        (item.deletion_id, item.kind, item.row_id),
    )
    if item.row_id is not None and item.kind == "observation":
        edits.restore_observation(conn, item.row_id, now=now)
    elif item.kind == "session":
        conn.execute("update sdk_sessions set forgotten = 0 where id = ?", (item.row_id,))
    conn.execute(
        "update space_items set deletion_id = null where space_id = ? and item_hash = ?", (space_id, item.item_hash)
    )


def has_row(conn: Connection, kind: str, row_id: int) -> bool:
    """Return whether a row is there and not deleted."""
    return row_id in export.read_records(conn, kind, [row_id])


def settle_conflicts(conn: Connection, space_id: str, item_hash: str) -> int:
    """Find the versions of an item that no version replaces and that say something else than the newest. Return how
    many there are, the newest not counted."""
    heads = sorted(
        _heads(conn, space_id, item_hash), key=lambda row: version_order(row["version"], row["at"], row["device"])
    )
    newest = heads[-1] if heads else None
    deleted = fetch_value(
        conn,
        "select 1 from space_items where space_id = ? and item_hash = ? and state = 'deleted'",
        (space_id, item_hash),
    )
    losers = [] if deleted else [row["id"] for row in heads if newest and row["content"] != newest["content"]]
    conn.execute(
        """
        update space_log set state = iif(device = (select device from spaces where id = ?1), 'own', 'applied')
         where space_id = ?1 and item_hash = ?2 and state = 'conflict'
        """,
        (space_id, item_hash),
    )
    conn.executemany("update space_log set state = 'conflict' where id = ?", [(row_id,) for row_id in losers])
    return len(losers)


# --- entries of other devices ----------------------------------------------------------------------------------------


def list_pending(
    conn: Connection, space_id: str, *, limit: int, states: Sequence[str] = ("new",)
) -> list[PendingEntry]:
    """Return entries of other devices that were not applied yet, in the order in which they arrived."""
    sql = """
        select device, idx, body from space_log
         where space_id = ? and state in (select value from json_each(?)) order by id limit ?
    """
    return fetch_records(conn, PendingEntry, sql, (space_id, encode_json(list(states)), limit))


def set_state(conn: Connection, space_id: str, device: str, idx: int, state: str, *, reason: str = "") -> None:
    """Record what became of an entry of another device."""
    conn.execute(
        "update space_log set state = ?, reason = ? where space_id = ? and device = ? and idx = ?",
        (state, reason, space_id, device, idx),
    )
