"""The validity of observations over time, and a person's word on it.

`validity_changes` has a row for each change, the latest of an observation is its present state; `record_changes` adds
rows for what triggers have queued. A person's confirmation outweighs what looks at the code found, until the code
changes again.
"""

from __future__ import annotations

from collections.abc import Sequence

from claude_mem.domain.errors import OperationFailed
from claude_mem.domain.memory_items import UNKNOWN_STATE, MemoryItem, MemoryState, Successor, ValidityChange
from claude_mem.storage.sqlite.engine import (
    Connection,
    Row,
    fetch_all,
    fetch_one,
    fetch_record,
    fetch_records,
    fetch_value,
)
from claude_mem.storage.sqlite.memory import anchors
from claude_mem.storage.sqlite.memory.observations import encode_json, get_memory, load_observations

RECORD_BATCH = 500
MAX_CHANGES = 50  # of one observation that are shown


def has_queue(conn: Connection) -> bool:
    """Return whether the validity of any observation may have changed."""
    return bool(fetch_value(conn, "select 1 from validity_queue limit 1"))


def find_command_memories(conn: Connection, project_id: int) -> list[int]:
    """Return the observations of a project about commands. They change with later calls, which no trigger follows."""
    rows = fetch_all(
        conn,
        "select o.id from anchors a join observations o on o.id = a.observation_id"
        " where a.kind = 'command' and o.project_id = ? and not o.forgotten",
        (project_id,),
    )
    return [row["id"] for row in rows]


def queue(conn: Connection, observation_ids: Sequence[int]) -> None:
    """Have the validity of these observations examined."""
    conn.execute(
        "insert or ignore into validity_queue (observation_id) select value from json_each(?)",
        (encode_json(list(observation_ids)),),
    )


def record_changes(conn: Connection, *, now: int) -> int:
    """Record which queued observations have changed, up to `RECORD_BATCH`. Return the number of those examined."""
    queued = fetch_all(conn, "select observation_id as id, head from validity_queue limit ?", (RECORD_BATCH,))
    ids = encode_json([row["id"] for row in queued])
    conn.execute("delete from validity_queue where observation_id in (select value from json_each(?))", (ids,))
    heads = {row["id"]: row["head"] for row in queued}
    rows = fetch_all(
        conn,
        """
        select o.id, coalesce(p.root, '') as root, v.validity, v.superseded_by
          from observations o join projects p on p.id = o.project_id
          left join validity_changes v on v.observation_id = o.id and v.latest
         where o.id in (select value from json_each(?)) and not o.forgotten order by o.id
        """,
        (ids,),
    )
    states: dict[int, MemoryState] = {}
    for root in {row["root"] for row in rows}:
        states |= anchors.load_states(conn, [row["id"] for row in rows if row["root"] == root], root)
    for row in rows:
        state = states.get(row["id"], UNKNOWN_STATE)
        if (row["validity"], row["superseded_by"]) != (state.validity, state.superseded_by):
            _add_change(conn, row["id"], state, head=heads[row["id"]], now=now)
    return len(queued)


def _add_change(conn: Connection, row_id: int, state: MemoryState, *, head: str, now: int) -> None:
    conn.execute("update validity_changes set latest = 0 where observation_id = ? and latest", (row_id,))
    conn.execute(
        "insert into validity_changes (observation_id, at, validity, superseded_by, head, commit_id)"
        " values (?, ?, ?, ?, ?, ?)",
        (row_id, now, state.validity, state.superseded_by, head, state.commit_id),
    )


def list_changes(conn: Connection, row_id: int) -> list[ValidityChange]:
    """Return what was seen of an observation, the newest first, each with the title of the one that superseded it."""
    return fetch_records(
        conn,
        ValidityChange,
        """
        select v.at, v.validity, v.superseded_by, v.head, v.commit_id, n.title as successor
          from validity_changes v left join observations n on n.id = v.superseded_by and not n.forgotten
         where v.observation_id = ? and not (v.validity = '' and v.id = (
               select min(id) from validity_changes where observation_id = v.observation_id))
         order by v.id desc limit ?
        """,
        (row_id, MAX_CHANGES),
    )


# --- what is to be reviewed ------------------------------------------------------------------------------------------


def list_changed(
    conn: Connection, project_ids: Sequence[int] | None, validities: Sequence[str], *, limit: int, offset: int
) -> list[MemoryItem]:
    """Return the observations with one of these validities, the last changed first, each with the change (`changed_at`,
    `head`) and its successor. Those that were marked wrong are left out."""
    changes = fetch_all(
        conn,
        """
        select o.id, v.at as changed_at, v.head
          from validity_changes v join observations o on o.id = v.observation_id
         where v.latest and v.validity in (select value from json_each(:validities))
           and not o.forgotten and o.verdict != 'wrong'
           and (:all or o.project_id in (select value from json_each(:projects)))
         order by v.at desc, v.id desc limit :limit offset :offset
        """,
        {
            "validities": encode_json(list(validities)),
            "all": int(project_ids is None),
            "projects": encode_json(list(project_ids or ())),
            "limit": limit,
            "offset": offset,
        },
    )
    rows = anchors.add_states(conn, load_observations(conn, [change["id"] for change in changes]))
    by_id = {change["id"]: change for change in changes}
    for row in rows:
        change = by_id[row["id"]]
        row["changed_at"], row["head"], row["successor"] = (
            change["changed_at"],
            change["head"],
            _find_successor(conn, row),
        )
    return rows


def _find_successor(conn: Connection, row: MemoryItem) -> Successor | None:
    return fetch_record(
        conn,
        Successor,
        "select id, type, title, narrative, created_at from observations where id = ? and not forgotten",
        (row["superseded_by"],),
    )


def count_changed(conn: Connection, project_ids: Sequence[int] | None) -> dict[str, int]:
    """Return how many observations of these projects have each validity."""
    counts = fetch_all(
        conn,
        """
        select v.validity, count(*) as count from validity_changes v join observations o on o.id = v.observation_id
         where v.latest and not o.forgotten and o.verdict != 'wrong'
           and (:all or o.project_id in (select value from json_each(:projects))) group by v.validity
        """,
        {"all": int(project_ids is None), "projects": encode_json(list(project_ids or ()))},
    )
    return {row["validity"]: row["count"] for row in counts if row["validity"]}


# --- a person's word -------------------------------------------------------------------------------------------------


def confirm(conn: Connection, row_id: int, *, now: int) -> MemoryItem:
    """Record that a person says that an observation holds, and return it. It is injected again, and its code counts as
    seen: only when that changes again does the confirmation end. What had superseded it does not do so any more."""
    row = get_memory(conn, "observation", row_id)
    root = fetch_value(conn, "select coalesce(root, '') from projects where id = ?", (row["project_id"],))
    conn.execute(
        """
        insert into confirmations values (:id, :now, :fingerprint, :superseded_by)
        on conflict do update set at = excluded.at, fingerprint = excluded.fingerprint,
            superseded_by = coalesce(excluded.superseded_by, superseded_by)
        """,
        {
            "id": row_id,
            "now": now,
            "fingerprint": anchors.fingerprint_code(conn, row_id, root),
            "superseded_by": row["superseded_by"],
        },
    )
    conn.execute("update observations set superseded_by = null where id = ?", (row_id,))
    return _after_decision(conn, row_id, now=now)


def withdraw_confirmation(conn: Connection, row_id: int, *, now: int) -> MemoryItem:
    """Take a confirmation back and return the observation, superseded again if it was."""
    get_memory(conn, "observation", row_id)
    confirmation = fetch_one(
        conn, "delete from confirmations where observation_id = ? returning superseded_by", (row_id,)
    )
    if confirmation is None:
        raise OperationFailed(f"observation {row_id} was not kept", hint="there is nothing to take back")
    conn.execute(
        """
        update observations set superseded_by = :successor where id = :id and superseded_by is null
           and exists (select 1 from observations where id = :successor and not forgotten)
        """,
        {"id": row_id, "successor": confirmation["superseded_by"]},
    )
    return _after_decision(conn, row_id, now=now)


def get_confirmation(conn: Connection, row_id: int) -> Row | None:
    """Return a person's word on an observation, to be restored with it."""
    return fetch_one(
        conn, "select at, fingerprint, superseded_by from confirmations where observation_id = ?", (row_id,)
    )


def restore_confirmation(conn: Connection, row_id: int, confirmation: Row) -> None:
    """Store a person's word on an observation again. It counts for the code that the person saw."""
    conn.execute(
        "insert or ignore into confirmations values (:id, :at, :fingerprint, :superseded_by)",
        {**confirmation, "id": row_id},
    )


def list_kept(conn: Connection, observation_ids: Sequence[int]) -> dict[int, int]:
    """Return when a person confirmed these observations, of those whose code has not changed since."""
    rows = fetch_all(
        conn,
        """
        select c.observation_id as id, c.at, coalesce(p.root, '') as root
          from confirmations c join observations o on o.id = c.observation_id join projects p on p.id = o.project_id
         where c.observation_id in (select value from json_each(?))
        """,
        (encode_json(list(observation_ids)),),
    )
    states: dict[int, MemoryState] = {}
    for root in {row["root"] for row in rows}:
        states |= anchors.load_states(conn, [row["id"] for row in rows if row["root"] == root], root)
    return {row["id"]: row["at"] for row in rows if states.get(row["id"], UNKNOWN_STATE).is_confirmed}


def _after_decision(conn: Connection, row_id: int, *, now: int) -> MemoryItem:
    queue(conn, [row_id])
    while record_changes(conn, now=now):
        pass
    (row,) = anchors.add_states(conn, [get_memory(conn, "observation", row_id)])
    return row
