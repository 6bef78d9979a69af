"""Spaces and the logs of their devices. An entry never changes; only its text can be dropped."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from claude_mem.domain.errors import InvalidRequest, LogDiffers, LogGap, NotFound
from claude_mem.domain.log_entries import entry_hash
from claude_mem.storage.spaces import Conflict, LogCounts, Space
from claude_mem.storage.sqlite.engine import Connection, Row, fetch_all, fetch_one, fetch_records, fetch_value
from claude_mem.storage.sqlite.memory.observations import encode_json

EMPTIED = b""  # the body of an entry whose text was dropped
_COLUMNS = ("id", "name", "kind", "device", "transport", "projects", "epoch", "created_at", "published")
_SELECT_SPACE = f"select {', '.join(_COLUMNS)} from spaces"
_QUEUE_ALL = """
    insert or ignore into space_changes (kind, row_id, changed)
        select 'project', id, 0 from projects
        union all select 'session', id, 0 from sdk_sessions
        union all select 'prompt', id, 0 from user_prompts
        union all select 'observation', id, 0 from observations where not forgotten
        union all select 'summary', id, 0 from session_summaries
"""
_TABLES = ("space_devices", "space_log", "space_replaced", "space_items")


# --- spaces ----------------------------------------------------------------------------------------------------------


def create_space(conn: Connection, space: Space) -> None:
    """Store a space and queue all of the memory for collection. Raise `InvalidRequest` if the id or name is used."""
    if fetch_value(conn, "select 1 from spaces where id in (?1, ?2) or name in (?1, ?2)", (space.id, space.name)):
        raise InvalidRequest(
            f"there is a space {space.name!r} already", hint="choose another name, or leave that space first"
        )
    values = {name: getattr(space, name) for name in _COLUMNS} | {"projects": encode_json(space.projects)}
    placeholders = ", ".join(f":{name}" for name in _COLUMNS)
    conn.execute(f"insert into spaces ({', '.join(_COLUMNS)}) values ({placeholders})", values)
    conn.execute("insert into space_devices values (?, ?, 0)", (space.id, space.device))
    conn.execute(_QUEUE_ALL)


def get_space(conn: Connection, id_or_name: str) -> Space:
    """Return the space; raise `NotFound` if there is none."""
    row = fetch_one(conn, f"{_SELECT_SPACE} where id = ?1 or name = ?1", (id_or_name,))
    if row is None:
        raise NotFound(f"there is no space {id_or_name!r}", hint="`claude-mem space list` shows all spaces")
    return _to_space(row)


def list_spaces(conn: Connection) -> list[Space]:
    """List the spaces, oldest first."""
    return [_to_space(row) for row in fetch_all(conn, f"{_SELECT_SPACE} order by created_at, id")]


def _to_space(row: Row) -> Space:
    return Space(**{**row, "projects": tuple(msgspec.json.decode(row["projects"], type=list[str]))})


def leave_space(conn: Connection, space_id: str) -> None:
    """Remove the space, its logs and everything else about it. The memory stays as it is."""
    conn.execute("delete from spaces where id = ?", (space_id,))  # first: a log of a space that exists is kept
    for table in _TABLES:
        conn.execute(f"delete from {table} where space_id = ?", (space_id,))
    drop_collected_changes(conn)


def drop_collected_changes(conn: Connection) -> None:
    """Drop the changes that every space has collected; without a space, all."""
    conn.execute("delete from space_changes where seq <= (select coalesce(min(collected), 9e18) from spaces)")


def select_projects(conn: Connection, space_id: str, identities: Sequence[str]) -> None:
    """Set which projects are shared; empty for all."""
    _update(conn, space_id, "projects", encode_json(list(identities)))
    conn.execute("update space_log set state = 'new', reason = '' where space_id = ? and state = 'held'", (space_id,))


def set_transport(conn: Connection, space_id: str, transport: str) -> None:
    """Set where the space is exchanged."""
    _update(conn, space_id, "transport", transport)


def set_epoch(conn: Connection, space_id: str, epoch: int) -> None:
    """Set the number of the space's key."""
    _update(conn, space_id, "epoch", epoch)


def _update(conn: Connection, space_id: str, column: str, value: object) -> None:
    conn.execute(f"update spaces set {column} = ? where id = ?", (value, space_id))
    if not conn.changes():
        raise NotFound(f"there is no space {space_id!r}", hint="`claude-mem space list` shows all spaces")


# --- logs ------------------------------------------------------------------------------------------------------------


def heads(conn: Connection, space_id: str) -> dict[str, int]:
    """Return the index of the last entry of every device, as stored here, this device's own included."""
    sql = "select device, head from space_devices where space_id = ? order by device"
    return {row["device"]: row["head"] for row in fetch_all(conn, sql, (space_id,))}


def read_log(conn: Connection, space_id: str, device: str, *, after: int, limit: int) -> list[tuple[int, bytes]]:
    """Return the next entries of a device. An emptied entry has the body b""."""
    sql = "select idx, body from space_log where space_id = ? and device = ? and idx > ? order by idx limit ?"
    return [(row["idx"], row["body"]) for row in fetch_all(conn, sql, (space_id, device, after, limit))]


def append_own(conn: Connection, space_id: str, bodies: Sequence[bytes]) -> int:
    """Append entries to the log of this device. Return the new head."""
    space = get_space(conn, space_id)
    return _append(conn, space_id, space.device, heads(conn, space_id)[space.device], bodies, state="own")


def append_foreign(conn: Connection, space_id: str, device: str, *, after: int, bodies: Sequence[bytes]) -> int:
    """Append entries of another device, the first with index `after` + 1. Return the new head.

    Entries that are stored already are ignored. Raises `LogGap` if entries are missing before the first, and
    `LogDiffers` if an entry differs from the one that is stored under its index: two writers, or a damaged log.
    """
    if device == get_space(conn, space_id).device:
        raise InvalidRequest("only this device writes its own log", hint="compare it with `confirm_published`")
    head = heads(conn, space_id).get(device, 0)
    if after > head:
        raise LogGap(f"the log of device {device} ends at {head:,}, before entry {after + 1:,}", head=head)
    if differing := find_difference(conn, space_id, device, after=after, bodies=bodies):
        raise LogDiffers(f"the log of device {device} has another entry {differing:,} than before", idx=differing)
    return _append(conn, space_id, device, head, bodies[head - after :], state="new")


def find_difference(conn: Connection, space_id: str, device: str, *, after: int, bodies: Sequence[bytes]) -> int:
    """Return the first index under which the stored log has another entry than these; 0 if there is none.

    An entry that was emptied, on either side, is compared by its hash alone; without a text it has none to compare.
    """
    sql = "select idx, hash from space_log where space_id = ? and device = ? and idx > ? and idx <= ? order by idx"
    for row in fetch_all(conn, sql, (space_id, device, after, after + len(bodies))):
        body = bodies[row["idx"] - after - 1]
        if body != EMPTIED and row["hash"] not in (entry_hash(body), entry_hash(EMPTIED)):
            return int(row["idx"])
    return 0


def _append(conn: Connection, space_id: str, device: str, head: int, bodies: Sequence[bytes], *, state: str) -> int:
    conn.executemany(
        "insert into space_log (space_id, device, idx, body, hash, state) values (?, ?, ?, ?, ?, ?)",
        [(space_id, device, idx, body, entry_hash(body), state) for idx, body in enumerate(bodies, head + 1)],
    )
    head += len(bodies)
    conn.execute(
        "insert into space_devices values (?1, ?2, ?3) on conflict do update set head = ?3", (space_id, device, head)
    )
    return head


def mark_published(conn: Connection, space_id: str, head: int) -> None:
    """Record that the transport has this device's entries up to this index."""
    conn.execute("update spaces set published = max(published, ?) where id = ?", (head, space_id))


def confirm_published(conn: Connection, space_id: str, *, after: int, bodies: Sequence[bytes], new_device: str) -> str:
    """Compare what the transport has of this device's log after an index with the log here. Return the device id.

    If they agree, the entries count as published. If the transport has other or more entries, this database is older
    than its published log, as after a restored backup, or another machine writes with the same id. This device then
    continues as `new_device`: its unpublished entries move to the new log, and the old one is from then on read like
    that of another device, with these entries as its continuation.
    """
    space = get_space(conn, space_id)
    head = heads(conn, space_id)[space.device]
    if after > head:
        raise LogGap(f"this device's log ends at {head:,}, before entry {after + 1:,}", head=head)
    differing = find_difference(conn, space_id, space.device, after=after, bodies=bodies)
    if not differing and after + len(bodies) <= head:
        mark_published(conn, space_id, after + len(bodies))
        return space.device
    last_common = differing - 1 if differing else head
    _renew_device(conn, space, last_common=last_common, new_device=new_device)
    append_foreign(conn, space_id, space.device, after=last_common, bodies=bodies[last_common - after :])
    return new_device


def _renew_device(conn: Connection, space: Space, *, last_common: int, new_device: str) -> None:
    """Continue as another device. Entries after the last common one move to its log and are numbered from 1."""
    if fetch_value(conn, "select 1 from space_devices where space_id = ? and device = ?", (space.id, new_device)):
        raise InvalidRequest("the new device id is used already", hint="choose a random one")
    params = {"space": space.id, "old": space.device, "new": new_device, "common": last_common}
    conn.execute("update spaces set device = :new, published = 0 where id = :space", params)
    conn.execute("insert into space_devices values (:space, :new, 0)", params)
    own = "space_id = :space and device = :old"
    columns = "body, hash, item_hash, version, at, content, state, reason"
    conn.execute(
        f"insert into space_log (space_id, device, idx, {columns})"
        f" select space_id, :new, idx - :common, {columns} from space_log where {own} and idx > :common",
        params,
    )
    conn.execute(f"update space_items set device = :new, idx = idx - :common where {own} and idx > :common", params)
    conn.execute("update space_devices set head = (select count(*) from space_log where space_id = :space and"
                 " device = :new) where space_id = :space and device = :new", params)  # fmt: skip
    conn.execute(f"update space_devices set head = :common where {own}", params)
    conn.execute(f"update space_log set state = 'applied' where {own} and idx <= :common and state = 'own'", params)
    _remove_moved_entries(conn, space, last_common)


def _remove_moved_entries(conn: Connection, space: Space, last_common: int) -> None:
    """Remove the entries that moved. The trigger that keeps a log allows it only of a device's own unpublished ones."""
    new_device = fetch_value(conn, "select device from spaces where id = ?", (space.id,))
    conn.execute("update spaces set device = ?, published = ? where id = ?", (space.device, last_common, space.id))
    conn.execute(
        "delete from space_log where space_id = ? and device = ? and idx > ?", (space.id, space.device, last_common)
    )
    conn.execute("update spaces set device = ?, published = 0 where id = ?", (new_device, space.id))


# --- looking at logs -------------------------------------------------------------------------------------------------


def list_emptied(conn: Connection, space_id: str, device: str) -> list[int]:
    """Return the indexes of the entries of a device that have no text any more."""
    sql = "select idx from space_log where space_id = ? and device = ? and body = x'' order by idx"
    return [row["idx"] for row in fetch_all(conn, sql, (space_id, device))]


def count_logs(conn: Connection, space_id: str) -> list[LogCounts]:
    """Count the entries of every device by what became of them."""
    sql = """
        select device, state, count(*) as n, count(*) filter (where body = x'') as emptied
          from space_log where space_id = ? group by device, state
    """
    rows = fetch_all(conn, sql, (space_id,))
    return [
        LogCounts(
            device=device,
            head=head,
            emptied=sum(row["emptied"] for row in rows if row["device"] == device),
            states={row["state"]: row["n"] for row in rows if row["device"] == device},
        )
        for device, head in heads(conn, space_id).items()
    ]


def count_refused(conn: Connection, space_id: str) -> dict[str, int]:
    """Count the entries that could not be applied, by reason."""
    sql = """
        select reason, count(*) as n from space_log where space_id = ? and state in ('refused', 'held', 'later')
         group by reason order by n desc, reason
    """
    return {row["reason"]: row["n"] for row in fetch_all(conn, sql, (space_id,))}


def list_conflicts(conn: Connection, space_id: str) -> list[Conflict]:
    """List versions that lost to another one without being replaced by it."""
    sql = """
        select i.kind, i.row_id, w.device, w.body, l.device as other_device, l.body as other_body
          from space_log l join space_items i on i.space_id = l.space_id and i.item_hash = l.item_hash
          join space_log w on w.space_id = i.space_id and w.device = i.device and w.idx = i.idx
         where l.space_id = ? and l.state = 'conflict' order by l.id
    """
    return fetch_records(conn, Conflict, sql, (space_id,))
