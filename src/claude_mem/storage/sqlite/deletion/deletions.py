"""Delete and erase rows by scope, and undo deletions.

A reversible deletion moves rows out of their tables at once, so that they are neither injected nor found, and keeps
them for thirty days. An erasure removes the rows, their index entries and every other copy in the database.

A deletion first stores its tombstones, then removes the rows they identify in small batches. After a crash in between,
the next start completes the deletion from the tombstones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypedDict

import msgspec

from claude_mem.domain.errors import NotFound, OperationFailed
from claude_mem.domain.memory_items import UndoneChange
from claude_mem.domain.reports import Restored
from claude_mem.domain.text import first_sentence, shorten
from claude_mem.domain.text_pattern import TextPattern
from claude_mem.storage import external_db
from claude_mem.storage.journal_records import ANCHOR_JOB, FORGOTTEN_RULE
from claude_mem.storage.records import UNDO_WINDOW_MS, AffectedRows, DeletionScope, Tombstone
from claude_mem.storage.sqlite import former_names
from claude_mem.storage.sqlite.deletion import tombstones
from claude_mem.storage.sqlite.deletion.scopes import add_derived_rows, find_affected_rows
from claude_mem.storage.sqlite.deletion.tombstones import (
    ITEM_AND_SESSION_HASH_SQL,
    ITEM_HASH_SQL,
    ITEM_ID_COLUMNS,
    ITEM_TABLES,
    ITEM_TIME_COLUMNS,
    SESSION_HASH_SQL,
    SESSION_TEXT_COLUMNS,
    item_from_clause,
)
from claude_mem.storage.sqlite.engine import Connection, Row, fetch_all, fetch_one, fetch_records, fetch_value
from claude_mem.storage.sqlite.journal import jobs, notices
from claude_mem.storage.sqlite.memory import edits, observations
from claude_mem.storage.sqlite.memory.observations import MACHINE_OWNED, encode_json
from claude_mem.system.failpoints import failpoint

# Columns that may quote erased content: table, key column, column, and the SQL of its empty value.
_MESSAGE_COLUMNS = (
    ("ledger", "id", "message", "null"),
    ("jobs", "id", "error", "null"),
    ("imports", "id", "notes", "'[]'"),
    ("imports", "id", "error", "null"),
    ("imports", "id", "path", "''"),
    ("breakers", "provider", "message", "''"),
)
# Kind of a restorable row: its table and id column.
_RESTORABLE_TABLES = {
    "event": ("events", "seq"),
    "prompt": ("user_prompts", "id"),
    "summary": ("session_summaries", "id"),
    "draft": ("observations", "id"),
    "telling": ("injections", "id"),
}
# Kind of a restorable row: its item kind, and the columns its tombstones are computed from.
_RESTORABLE_COLUMNS = {
    "event": ("event", ("event_id", "tool_use_id", "kind", "body", "turn_id", "at")),
    "prompt": ("prompt", ("text", "turn_id", "created_at")),
    "draft": ("observation", ("key", "turn_id", "created_at")),
    "summary": ("summary", ("turn_id", "created_at")),
}
# SQL expressions for the text of an item.
_TEXT_SQL = {
    "event": "body",
    "prompt": "text",
    "observation": "coalesce(title, '') || ' ' || coalesce(narrative, '') || ' ' || facts",
    "summary": "concat_ws(' ', request, completed, learned, closing)",
}
_UNION_FIELDS = (
    "events",
    "prompts",
    "summaries",
    "observations",
    "injections",
    "sessions",
    "whole_sessions",
    "restorable",
    "indexed_turns",
)
_IN_AFFECTED_SESSIONS = """
    s.id in (select value from json_each(:whole_sessions))
    or s.id in (select session_id from events where seq in (select value from json_each(:events)))
    or s.id in (select session_id from user_prompts where id in (select value from json_each(:prompts)))
    or s.id in (select session_id from observations where id in (select value from json_each(:observations)))
    or s.id in (select session_id from session_summaries where id in (select value from json_each(:summaries)))
"""
_WHERE_RESTORABLE = """
    where (kind, row_id, deletion_id) in
          (select value ->> 0, value ->> 1, value ->> 2 from json_each(:restorable))
"""
_SELECT_LATE = "select {0} as n from {1} where session_id = ? and {2} <= ?"


# --- records of deletions --------------------------------------------------------------------------------------------


def begin_deletion(conn: Connection, *, erased: bool, now: int) -> int:
    """Record a new deletion and return its id, by which it can be undone."""
    return int(fetch_value(conn, "insert into deletions (at, erased) values (?, ?) returning id", (now, int(erased))))


def finish_deletion(conn: Connection, deletion_id: int, counts: Row, *, now: int) -> None:
    """Record that a deletion is complete, and how many rows of each kind it removed."""
    conn.execute("update deletions set done_at = ?, counts = ? where id = ?", (now, encode_json(counts), deletion_id))


def record_missing_deletion(conn: Connection, deletion_id: int, *, at: int, erased: bool) -> None:
    """Record a deletion that this database lacks because it was restored from an older backup."""
    conn.execute("insert or ignore into deletions (id, at, erased) values (?, ?, ?)", (deletion_id, at, int(erased)))


def find_unfinished_deletions(conn: Connection) -> list[int]:
    """Return the ids of deletions that were interrupted."""
    return [
        row["id"] for row in fetch_all(conn, "select id from deletions where done_at is null and undone_at is null")
    ]


def find_undone_deletions(conn: Connection) -> dict[int, int]:
    """Return the ids of deletions that were undone, with the time."""
    deletion_rows = fetch_all(conn, "select id, undone_at from deletions where undone_at is not null")
    return {row["id"]: row["undone_at"] for row in deletion_rows}


# --- tombstones for a scope ------------------------------------------------------------------------------------------


def build_tombstones(
    conn: Connection, scope: DeletionScope, affected: AffectedRows, *, deletion_id: int, erased: bool, now: int
) -> list[Tombstone]:
    """Return tombstones for all affected rows. Where the scope is a period, one for each session is enough."""
    by_hash: dict[str, Tombstone] = {}
    if scope.by_time:
        until = min(now, scope.before - 1) if scope.before is not None else now
        session_ids = encode_json([*_affected_session_ids(conn, affected), *_restorable_session_ids(conn, affected)])
        sql = f"select distinct {SESSION_HASH_SQL} as mark from sdk_sessions s where s.id in (select value from json_each(?))"
        for row in fetch_all(conn, sql, (session_ids,)):
            by_hash[row["mark"]] = Tombstone(deletion_id, row["mark"], scope.after or 0, until, erased, now)
    for title_hash in _title_hashes(conn, scope, affected):
        by_hash[title_hash] = Tombstone(deletion_id, title_hash, 0, now, erased, now)
    for name, row_ids in _ids_by_kind(affected):
        if scope.by_time and name != "observation":
            continue
        without_session = " and i.session_id is null" if scope.by_time else ""
        for item in _item_hashes(conn, name, row_ids, without_session):
            by_hash[item["mark"]] = Tombstone(deletion_id, item["mark"], 0, max(now, item["at"]), erased, now)
    if not scope.by_time:
        for item in _restorable_hashes(conn, scope, affected):
            by_hash[item["mark"]] = Tombstone(deletion_id, item["mark"], 0, max(now, item["at"]), erased, now)
    return list(by_hash.values())


def _title_hashes(conn: Connection, scope: DeletionScope, affected: AffectedRows) -> Iterator[str]:
    """Yield the hashes of session titles taken from deleted content; with a text scope, of titles that contain it."""
    pattern = TextPattern(scope.matching) if scope.matching else None
    for name in SESSION_TEXT_COLUMNS if pattern else ("title", "first_prompt"):
        hash_sql = f"keyed_hash('titled', s.host, s.content_session_id, s.{name})"
        sql = f"select s.{name} as text, {hash_sql} as mark from sdk_sessions s where s.{name} != ''"
        session_ids = encode_json([*affected.sessions, *_sessions_losing_first_prompt(conn, affected)])
        for row in fetch_all(conn, f"{sql} and s.id in (select value from json_each(?))", (session_ids,)):
            if pattern is None or pattern.is_in(row["text"]):
                yield row["mark"]


class _ItemHash(TypedDict):
    mark: str
    at: int


def _item_hashes(
    conn: Connection, name: str, row_ids: Sequence[int], condition: str = "", *, with_clause: str = "", **params: str
) -> Iterator[_ItemHash]:
    sql = " union all ".join(
        f"select {hash_sql} as mark, i.{ITEM_TIME_COLUMNS[name]} as at {item_from_clause(name)}"
        f" where i.{ITEM_ID_COLUMNS[name]} in (select value from json_each(:numbers)){condition}"
        for hash_sql in ITEM_HASH_SQL[name]
    )
    yield from (
        row
        for row in fetch_records(conn, _ItemHash, f"{with_clause} {sql}", {**params, "numbers": encode_json(row_ids)})
        if row["mark"]
    )


def _restorable_hashes(conn: Connection, scope: DeletionScope, affected: AffectedRows) -> Iterator[_ItemHash]:
    """Yield hashes of rows that an earlier deletion keeps for undo.

    These rows need tombstones of this deletion, because undoing the earlier one lifts its own.
    """
    for kind, (name, columns) in _RESTORABLE_COLUMNS.items():
        restorable = [item for item in affected.restorable if item[0] == kind]
        column_sql = ", ".join(f"json_extract(content, '$.{column}') as {column}" for column in columns)
        select = (
            f"select row_id as {ITEM_ID_COLUMNS[name]}, session_id, {column_sql} from deleted_rows {_WHERE_RESTORABLE}"
        )
        with_clause = f"with {ITEM_TABLES[name]} as ({select})"
        yield from (
            _item_hashes(
                conn,
                name,
                [item[1] for item in restorable],
                "",
                with_clause=with_clause,
                restorable=encode_json(restorable),
            )
            if restorable
            else ()
        )
    yield from _restorable_title_hashes(conn, scope, affected)


def _restorable_title_hashes(conn: Connection, scope: DeletionScope, affected: AffectedRows) -> Iterator[_ItemHash]:
    pattern = TextPattern(scope.matching) if scope.matching else None
    params = {"restorable": encode_json([item for item in affected.restorable if item[0] == "session"])}
    for name in SESSION_TEXT_COLUMNS:
        sql = f"""
            select a.at, a.text, keyed_hash('titled', s.host, s.content_session_id, a.text) as mark
              from (select at, session_id, content ->> '{name}' as text from deleted_rows {_WHERE_RESTORABLE}) a
              join sdk_sessions s on s.id = a.session_id
        """
        for row in fetch_all(conn, sql, params):
            if row["text"] and (pattern is None or pattern.is_in(row["text"])):
                yield {"mark": row["mark"], "at": row["at"]}


# --- rows that tombstones cover --------------------------------------------------------------------------------------


def find_tombstoned_rows(conn: Connection, tombstones: Sequence[Tombstone]) -> AffectedRows:
    """Return the rows that match these tombstones, as in a restored database or in a copy made before the deletion."""
    tables = external_db.read_table_columns(conn)
    conn.execute("drop table if exists temp.named")
    conn.execute("create temp table named (mark text primary key, since integer, until integer) without rowid")
    params = [(tombstone.mark, tombstone.since, tombstone.until) for tombstone in tombstones]
    conn.executemany("insert or replace into temp.named values (?, ?, ?)", params)
    items = {name: _tombstoned_items(conn, name) for name in ITEM_TABLES}
    affected = AffectedRows(
        events=items["event"],
        prompts=items["prompt"],
        observations=items["observation"],
        summaries=items["summary"],
        whole_sessions=_tombstoned_sessions(
            conn, "not s.forgotten" if "forgotten" in tables["sdk_sessions"] else "true"
        ),
        sessions=_sessions_with_tombstoned_title(conn),
    )
    conn.execute("drop table temp.named")
    return add_derived_rows(conn, affected, tables)


def find_remaining_rows(
    conn: Connection, scope: DeletionScope, known_tombstones: Sequence[Tombstone], *, erase: bool, upto: int
) -> AffectedRows:
    """Return the rows that an interrupted deletion has not removed yet.

    Events that a session added after `upto` are not covered. If an older database was restored in between, its row ids
    may mean other rows, so only the tombstones are used.
    """
    tombstoned = find_tombstoned_rows(conn, known_tombstones)
    if scope.ids and tombstones.find_missing_tombstones(conn, known_tombstones):
        return tombstoned
    if scope.by_time:
        scope = replace(scope, before=min(upto + 1, scope.before or upto + 1))
    return union_affected_rows(conn, tombstoned, find_affected_rows(conn, scope, erase=erase))


def union_affected_rows(conn: Connection, first: AffectedRows, second: AffectedRows) -> AffectedRows:
    """Return the rows that either deletion affects, with the rows derived from them."""
    both = {name: sorted({*getattr(first, name), *getattr(second, name)}) for name in _UNION_FIELDS}
    return add_derived_rows(conn, replace(AffectedRows(), **both), external_db.read_table_columns(conn))


def _tombstoned_items(conn: Connection, name: str) -> list[int]:
    hashes_sql = ", ".join(ITEM_AND_SESSION_HASH_SQL[name])
    not_forgotten = " and not i.forgotten" if name == "observation" else ""
    item_rows = fetch_all(
        conn,
        f"""
        select i.{ITEM_ID_COLUMNS[name]} as n {item_from_clause(name)}
         where exists (select 1 from temp.named x where x.mark in ({hashes_sql})
                          and i.{ITEM_TIME_COLUMNS[name]} between x.since and x.until){not_forgotten}
        """,
    )
    return [row["n"] for row in item_rows]


def _tombstoned_sessions(conn: Connection, where: str) -> list[int]:
    sql = f"""
        select s.id from sdk_sessions s join temp.named x on x.mark = {SESSION_HASH_SQL}
         where x.since <= s.started_at and s.last_event_at <= x.until and {where}
    """
    return [row["id"] for row in fetch_all(conn, sql)]


def _sessions_with_tombstoned_title(conn: Connection) -> list[int]:
    hashes_sql = [
        f"iif(s.{name} is null, '', keyed_hash('titled', s.host, s.content_session_id, s.{name}))"
        for name in SESSION_TEXT_COLUMNS
    ]
    matches = f"exists (select 1 from temp.named x where x.mark in ({', '.join(hashes_sql)}))"
    return [row["id"] for row in fetch_all(conn, f"select s.id from sdk_sessions s where {matches}")]


# --- what affected rows belong to ------------------------------------------------------------------------------------


def find_affected_projects(conn: Connection, affected: AffectedRows) -> list[int]:
    """Return the ids of projects whose cached start context may mention any of these rows."""
    params = {**_id_params(affected), "derived": encode_json(affected.derived_observations)}
    sql = f"""
        select project_id from sdk_sessions s where {_IN_AFFECTED_SESSIONS}
        union select project_id from observations where id in (select value from json_each(:observations))
           or id in (select value from json_each(:derived))
    """
    return [row["project_id"] for row in fetch_all(conn, sql, params)]


def iterate_affected_texts(conn: Connection, affected: AffectedRows) -> Iterator[str]:
    """Yield the texts about to be erased, so that log lines that mention them can be recognized.

    Events come last: there are many, and most of their text is tool output.
    """
    for name, row_ids in reversed([*_ids_by_kind(affected)]):
        condition = f"{ITEM_ID_COLUMNS[name]} in (select value from json_each(?))"
        for row in conn.execute(
            f"select {_TEXT_SQL[name]} as text from {ITEM_TABLES[name]} where {condition}", (encode_json(row_ids),)
        ):
            yield row["text"]


def _affected_session_ids(conn: Connection, affected: AffectedRows) -> list[int]:
    sql = f"select s.id from sdk_sessions s where {_IN_AFFECTED_SESSIONS}"
    return [row["id"] for row in fetch_all(conn, sql, _id_params(affected))]


def _restorable_session_ids(conn: Connection, affected: AffectedRows) -> list[int]:
    if not affected.restorable:
        return []
    sql = f"select distinct session_id from deleted_rows {_WHERE_RESTORABLE} and session_id is not null"
    return [row["session_id"] for row in fetch_all(conn, sql, {"restorable": encode_json(affected.restorable)})]


def _sessions_losing_first_prompt(conn: Connection, affected: AffectedRows) -> list[int]:
    sql = "select session_id from user_prompts where prompt_number = 1 and id in (select value from json_each(?))"
    return [row["session_id"] for row in fetch_all(conn, sql, (encode_json(affected.prompts),))]


def _id_params(affected: AffectedRows) -> dict[str, object]:
    return {
        name: encode_json(getattr(affected, name))
        for name in ("whole_sessions", "events", "prompts", "observations", "summaries")
    }


def _ids_by_kind(affected: AffectedRows) -> Iterator[tuple[str, Sequence[int]]]:
    yield "event", affected.events
    yield "prompt", affected.prompts
    yield "observation", affected.observations
    yield "summary", affected.summaries


# --- deleting rows ---------------------------------------------------------------------------------------------------


def delete_batch(conn: Connection, part: AffectedRows, *, deletion_id: int, erase: bool, now: int) -> None:
    """Delete one batch. Unless `erase` is set, the rows are kept for an undo."""
    project_ids = find_affected_projects(conn, part)
    if not erase:
        _save_for_undo(conn, part, deletion_id)
    for row_id in part.observations:
        _delete_observation(conn, row_id, deletion_id=deletion_id, erase=erase, now=now)
    _delete_rows(conn, part)
    if part.restorable:
        _delete_restorable(conn, part.restorable)
    _strip_sessions(conn, part, deletion_id=deletion_id, erase=erase, upto=now)
    for project_id in project_ids:
        observations.link_statements(conn, project_id)
    failpoint("forget.part")


def erase_rows_from_copy(conn: Connection, affected: AffectedRows) -> None:
    """Erase rows from a copy of the database. Foreign keys are not enforced there, so every table is cleared here."""
    tables = external_db.read_table_columns(conn)
    observation_ids = [*affected.observations, *affected.derived_observations]
    for table in (former_names.stored_table(conn, "deleted_observations"), "history"):
        if table in tables:
            _delete_by_ids(conn, table, "observation_id", observation_ids)
    session_ids = _affected_session_ids(conn, affected)
    _delete_by_ids(conn, "observations", "id", observation_ids)
    _delete_rows(conn, replace(affected, derived_observations=[]))
    if affected.restorable:
        _delete_restorable(conn, affected.restorable)
    _strip_sessions(
        conn, replace(affected, sessions=[*affected.sessions, *session_ids]), deletion_id=0, erase=True, upto=None
    )
    _remove_dangling_rows(conn, tables, session_ids)


def _remove_dangling_rows(conn: Connection, tables: Any, session_ids: Sequence[int]) -> None:
    """Remove the rows that foreign keys would remove if they were enforced."""
    for table in ("turns", "user_prompts", "events", "observations", "session_summaries", "memory_sessions"):
        if table in tables:
            conn.execute(f"delete from {table} where session_id not in (select id from sdk_sessions)")
    of_observations = ("history", "anchors", "outcomes", "confirmations", "validity_changes")
    for table in (former_names.stored_table(conn, "deleted_observations"), *of_observations):
        if table in tables:
            conn.execute(f"delete from {table} where observation_id not in (select id from observations)")
    if "sightings" in tables:
        conn.execute("delete from sightings where anchor_id not in (select id from anchors)")
    for table, column, referenced_table in (
        ("ledger", "session_id", "sdk_sessions"),
        ("ledger", "turn_id", "turns"),
        ("backfill_files", "session_id", "sdk_sessions"),
        ("observations", "superseded_by", "observations"),
    ):
        if column in tables.get(table, ()):
            conn.execute(
                f"update {table} set {column} = null where {column} not in (select id from {referenced_table})"
            )
    if "documents" in tables:
        for table in ("passages", "signals", "vectors", "calls"):
            if table in tables:
                conn.execute(f"delete from {table} where document_id not in (select id from documents)")
        conn.execute(
            "update passages set around = '' where around != '' and document_id in"
            " (select id from documents where session_id in (select value from json_each(?)))",
            (encode_json(session_ids),),
        )
        conn.execute("insert into words (words) values ('optimize')")


def _delete_observation(conn: Connection, row_id: int, *, deletion_id: int, erase: bool, now: int) -> None:
    """Delete one observation. An empty row stays, as when a single observation is forgotten."""
    if not erase:
        edits.delete_scoped_observation(conn, row_id, now=now)
        project = fetch_value(conn, "select project_id from observations where id = ?", (row_id,))
        session = fetch_value(conn, "select session_id from observations where id = ?", (row_id,))
        conn.execute(
            "insert or replace into deleted_rows values (?, 'observation', ?, ?, ?, ?, '')",
            (deletion_id, row_id, session, project, now),
        )
        return
    for observation_id in (row_id, *edits.list_merged_into(conn, row_id)):
        conn.execute("delete from deleted_rows where kind = 'observation' and row_id = ?", (observation_id,))
        edits.erase_observation(conn, observation_id, now=now)


def _delete_rows(conn: Connection, part: AffectedRows) -> None:
    """Delete rows with their injections and jobs, and correct their receipts and ledger entries."""
    for table, row_ids in (("observations", part.derived_observations), ("session_summaries", part.derived_summaries)):
        _delete_by_ids(conn, table, "id", row_ids)
    _delete_by_ids(conn, "session_summaries", "id", part.summaries)
    _delete_by_ids(conn, "user_prompts", "id", part.prompts)
    if part.injections:
        _delete_by_ids(conn, former_names.stored_table(conn, "injections"), "id", part.injections)
    conn.execute(
        f"""
        update receipts set outcome = 'filtered', rule = '{FORGOTTEN_RULE}'
         where outcome = 'stored' and event_id in
               (select event_id from events where seq in (select value from json_each(?)))
        """,
        (encode_json(part.events),),
    )
    _delete_by_ids(conn, "events", "seq", part.events)
    if part.turns and fetch_value(conn, "select 1 from sqlite_schema where name = 'uses'"):
        _delete_by_ids(conn, "uses", "turn_id", part.turns)  # what remains of the turn is judged again
    _queue_reindex(conn, [*part.turns, *part.indexed_turns])
    for turn_id in part.turns:
        conn.execute("update ledger set message = null where turn_id = ?", (turn_id,))
        _drop_jobs(conn, turn_id)


def _delete_by_ids(conn: Connection, table: str, column: str, values: Sequence[int]) -> None:
    if values:
        conn.execute(f"delete from {table} where {column} in (select value from json_each(?))", (encode_json(values),))


def _delete_restorable(conn: Connection, restorable: Sequence[tuple[str, int, int]]) -> None:
    table = former_names.stored_table(conn, "deleted_rows")
    deletion_id = former_names.stored_column(conn, "deleted_rows", "deletion_id")
    conn.executemany(f"delete from {table} where kind = ? and row_id = ? and {deletion_id} = ?", list(restorable))


def _queue_reindex(conn: Connection, turn_ids: Sequence[int]) -> None:
    """Remove these turns from the search index and queue what remains of them for indexing."""
    if not turn_ids or not fetch_value(conn, "select 1 from sqlite_schema where name = 'documents'"):
        return
    params, queue = (encode_json(turn_ids),), former_names.stored_table(conn, "index_queue")
    conn.execute("delete from documents where kind = 'turn' and turn_id in (select value from json_each(?))", params)
    for kind, table, column in (
        ("turn", "turns", "id"),
        ("prompt", "user_prompts", "turn_id"),
        ("observation", "observations", "turn_id"),
        ("summary", "session_summaries", "turn_id"),
    ):
        conn.execute(
            f"insert into {queue} select '{kind}', id from {table} where {column} in (select value from json_each(?))"
            " on conflict do nothing",
            params,
        )


def _drop_jobs(conn: Connection, turn_id: int) -> None:
    """Drop the turn's jobs: their subject names the turn as it was before the deletion."""
    kinds = ", ".join(f"'{kind}'" for kind in jobs.TURN_JOBS)
    conn.execute(f"delete from jobs where kind in ({kinds}) and subject like ?", (f"{turn_id}.%",))


def enqueue_redigest(conn: Connection, turn_ids: Sequence[int], *, deletion_id: int, now: int) -> None:
    """Enqueue these turns so that their records are composed again from the remaining events."""
    for turn_id in turn_ids:
        newest = fetch_value(conn, "select max(seq) from events where turn_id = ?", (turn_id,))
        if newest is None:
            conn.execute("update turns set digested_at = ? where id = ? and closed_at is not null", (now, turn_id))
            continue
        conn.execute("update turns set digested_at = null where id = ?", (turn_id,))
        if fetch_value(conn, "select closed_at from turns where id = ?", (turn_id,)) is not None:
            jobs.enqueue_job(conn, "compress", f"{turn_id}.{newest}.f{deletion_id}", now=now)


# --- deleting sessions and projects ----------------------------------------------------------------------------------


def _strip_sessions(conn: Connection, part: AffectedRows, *, deletion_id: int, erase: bool, upto: int | None) -> None:
    """Remove the titles of sessions and, when erasing, the rows of sessions of which nothing remains.

    `upto` is the time of the deletion, or None in a copy, where a session cannot have continued since.
    """
    for session_id in (*part.sessions, *part.whole_sessions):
        _strip_session(conn, session_id, deletion_id=deletion_id, erase=erase)
    for session_id in part.whole_sessions:
        goes_on = upto is not None and _delete_late_items(
            conn, session_id, deletion_id=deletion_id, erase=erase, upto=upto
        )
        if erase and not goes_on:
            _delete_session(conn, session_id)
        elif not erase:
            conn.execute(
                "update sdk_sessions set forgotten = ? where id = ?", (0 if goes_on else deletion_id, session_id)
            )
            _queue_reindex(conn, _turn_ids(conn, session_id))


def _delete_late_items(conn: Connection, session_id: int, *, deletion_id: int, erase: bool, upto: int) -> bool:
    """Delete items of the session that arrived after the search but date from before `upto`.

    Return whether newer events remain.
    """
    if not fetch_value(conn, "select 1 from events where session_id = ?", (session_id,)):
        return False
    late_ids = {
        name: [
            row["n"]
            for row in fetch_all(
                conn,
                _SELECT_LATE.format(ITEM_ID_COLUMNS[name], ITEM_TABLES[name], ITEM_TIME_COLUMNS[name]),
                (session_id, upto),
            )
        ]
        for name in ITEM_TABLES
    }
    part = AffectedRows(
        events=late_ids["event"],
        prompts=late_ids["prompt"],
        observations=late_ids["observation"],
        summaries=late_ids["summary"],
    )
    delete_batch(conn, part, deletion_id=deletion_id, erase=erase, now=upto)
    remaining = fetch_all(conn, "select distinct turn_id as id from events where session_id = ?", (session_id,))
    remaining_turns = [row["id"] for row in remaining if row["id"] is not None]
    if erase and remaining:
        for turn_id in {*_turn_ids(conn, session_id)} - {*remaining_turns}:
            _drop_jobs(conn, turn_id)
            conn.execute("delete from turns where id = ?", (turn_id,))
    _queue_reindex(conn, remaining_turns)
    enqueue_redigest(conn, remaining_turns, deletion_id=deletion_id, now=upto)
    return bool(remaining)


def _turn_ids(conn: Connection, session_id: int) -> list[int]:
    return [row["id"] for row in fetch_all(conn, "select id from turns where session_id = ?", (session_id,))]


def _strip_session(conn: Connection, session_id: int, *, deletion_id: int, erase: bool) -> None:
    row = fetch_one(
        conn,
        "select title, subtitle, first_prompt, project_id, started_at from sdk_sessions where id = ?",
        (session_id,),
    )
    if row is None:
        return
    texts = {name: row[name] for name in SESSION_TEXT_COLUMNS}
    if not erase and any(texts.values()):
        conn.execute(
            "insert or ignore into deleted_rows values (?, 'session', ?, ?, ?, ?, ?)",
            (deletion_id, session_id, session_id, row["project_id"], row["started_at"], encode_json(texts)),
        )
    conn.execute(
        "update sdk_sessions set title = null, subtitle = null, first_prompt = null where id = ?", (session_id,)
    )
    if erase:
        conn.execute("update ledger set message = null where session_id = ?", (session_id,))
        conn.execute("update sdk_sessions set memory_session_id = null where id = ?", (session_id,))
        conn.execute("delete from memory_sessions where session_id = ?", (session_id,))


def _delete_session(conn: Connection, session_id: int) -> None:
    row = fetch_one(conn, "select host, content_session_id from sdk_sessions where id = ?", (session_id,))
    if row is None:
        return
    items = former_names.stored_table(conn, "injected_items")
    if fetch_value(conn, "select 1 from sqlite_schema where name = ?", (items,)):
        conn.execute(f"delete from {items} where host = ? and content_session_id = ?", (*row.values(),))
    for turn_id in _turn_ids(conn, session_id):
        _drop_jobs(conn, turn_id)
    conn.execute("delete from jobs where kind = 'reconcile' and subject like ?", (f"{session_id}.%",))
    conn.execute("delete from turns where session_id = ?", (session_id,))
    conn.execute("delete from sdk_sessions where id = ?", (session_id,))


def find_sessions_to_retitle(conn: Connection, affected: AffectedRows) -> list[int]:
    """Return the sessions whose title or subtitle was taken from a deleted first prompt or summary."""
    summary_ids = encode_json([*affected.summaries, *affected.derived_summaries])
    sql = "select distinct session_id from session_summaries where id in (select value from json_each(?))"
    return [
        *_sessions_losing_first_prompt(conn, affected),
        *(row["session_id"] for row in fetch_all(conn, sql, (summary_ids,))),
    ]


def retitle_sessions(conn: Connection, session_ids: Sequence[int]) -> None:
    """Give the sessions a title and subtitle from what remains: the first prompt and the latest summary."""
    for session_id in session_ids:
        prompt = fetch_value(
            conn, "select text from user_prompts where session_id = ? and prompt_number = 1", (session_id,)
        )
        newest_summary = "select completed from session_summaries where session_id = ? order by created_at desc limit 1"
        subtitle = first_sentence(fetch_value(conn, newest_summary, (session_id,)) or "", 140)
        conn.execute(
            """
            update sdk_sessions set first_prompt = coalesce(first_prompt, ?1), title = coalesce(title, ?2),
                   subtitle = coalesce(subtitle, nullif(?3, '')) where id = ?4
            """,
            (prompt, shorten(prompt, 80) if prompt else None, subtitle, session_id),
        )


def delete_empty_projects(conn: Connection, identities: Sequence[str]) -> None:
    """Delete the projects of which nothing remains but their names."""
    empty_projects = fetch_all(
        conn,
        """
        select distinct project_id as id from project_aliases a
         where identity in (select value from json_each(?))
           and not exists (select 1 from sdk_sessions s where s.project_id = a.project_id)
           and not exists (select 1 from observations o where o.project_id = a.project_id and not o.forgotten)
        """,
        (encode_json(identities),),
    )
    for row in empty_projects:
        conn.execute("delete from observations where project_id = ?", (row["id"],))
        for table in ("project_aliases", "project_dirs", "known_files", "repositories", "trusted_sources"):
            conn.execute(f"delete from {table} where project_id = ?", (row["id"],))
        conn.execute("update ledger set project_id = null where project_id = ?", (row["id"],))
        conn.execute("delete from projects where id = ?", (row["id"],))
        notices.withdraw_merge_offers(conn, row["id"])


# --- mentions in other tables ----------------------------------------------------------------------------------------


def erase_mentions(conn: Connection, mentions: Callable[[str], bool], *, quotes: Callable[[str], bool]) -> int:
    """Erase messages and notes that mention erased content. Return their number.

    A notice that the user has yet to see is erased only if it quotes the text itself.
    """
    tables, wiped_count = external_db.read_table_columns(conn), 0
    for table, key, column, empty in _MESSAGE_COLUMNS:
        if column not in tables.get(table, ()):
            continue
        for row in fetch_all(conn, f"select {key} as key, {column} as text from {table} where {column} is not null"):
            if mentions(row["text"]):
                conn.execute(f"update {table} set {column} = {empty} where {key} = ?", (row["key"],))
                wiped_count += 1
    if "notices" in tables:
        for row in fetch_all(conn, "select key, text from notices"):
            if quotes(row["text"]):
                conn.execute("delete from notices where key = ?", (row["key"],))
                wiped_count += 1
    if "space_log" in tables:
        wiped_count += _drop_quoting_entries(conn, quotes)
    table = former_names.stored_table(conn, "injected_items")
    if table in tables:
        column = former_names.stored_column(conn, "injected_items", "item")
        for row in fetch_all(conn, f"select distinct {column} as item from {table}"):
            if mentions(row["item"]):
                conn.execute(f"delete from {table} where {column} = ?", (row["item"],))
                wiped_count += 1
    return wiped_count


def _drop_quoting_entries(conn: Connection, quotes: Callable[[str], bool]) -> int:
    """Drop the text of log entries that no row has: of versions that lost, or that were not applied."""
    bodies = fetch_all(conn, "select id, body from space_log where body != x''")
    quoting = [(row["id"],) for row in bodies if quotes(row["body"].decode("utf-8", "replace"))]
    conn.executemany("update space_log set body = x'' where id = ?", quoting)
    return len(quoting)


# --- undoing a deletion ----------------------------------------------------------------------------------------------


def _save_for_undo(conn: Connection, part: AffectedRows, deletion_id: int) -> None:
    """Save complete rows, so that an undo can restore them unchanged."""
    row_ids_by_kind = {
        "event": part.events,
        "prompt": part.prompts,
        "summary": [*part.summaries, *part.derived_summaries],
        "draft": part.derived_observations,
        "telling": part.injections,
    }
    for kind, row_ids in row_ids_by_kind.items():
        table, id_column = _RESTORABLE_TABLES[kind]
        sql = f"select * from {table} where {id_column} in (select value from json_each(?))"
        for row in fetch_all(conn, sql, (encode_json(row_ids),)):
            at = row.get("at", row.get("created_at"))
            session_id = row.get("session_id")
            project_id = fetch_value(conn, "select project_id from sdk_sessions where id = ?", (session_id,))
            conn.execute(
                "insert or replace into deleted_rows values (?, ?, ?, ?, ?, ?, ?)",
                (deletion_id, kind, row[id_column], session_id, project_id, at, encode_json(row)),
            )


def get_restorable_rows(conn: Connection, deletion_id: int) -> list[Row]:
    """Return all restorable rows of a deletion. Raise an error if it cannot be undone."""
    row = fetch_one(conn, "select * from deletions where id = ?", (deletion_id,))
    if row is None:
        raise NotFound(f"there is no deletion F{deletion_id}", hint="`claude-mem forget` prints the id when it is done")
    if row["erased"]:
        raise OperationFailed(
            f"F{deletion_id} was an erasure and cannot be undone", hint="only `forget` without --now can be undone"
        )
    items = fetch_all(conn, "select * from deleted_rows where deletion_id = ?", (deletion_id,))
    if row["undone_at"] or not (items or deletion_id == tombstones.LOST_KEY_DELETION_ID):
        raise OperationFailed(
            f"there is nothing left of F{deletion_id} to restore", hint="a deletion can be undone once, for 30 days"
        )
    return items


def restore_deletion(conn: Connection, deletion_id: int, *, now: int) -> Restored:
    """Restore everything the deletion removed."""
    items = get_restorable_rows(conn, deletion_id)
    tombstones.delete_tombstones_of_deletion(conn, deletion_id)
    counts: dict[str, int] = {}
    for kind in ("session", "draft", "prompt", "event", "summary", "telling", "observation"):
        for item in (item for item in items if item["kind"] == kind):
            if _restore_item(conn, item, now=now):
                counts[kind] = counts.get(kind, 0) + 1
    turns = {content["turn_id"] for item in items if (content := _decode_content(item)).get("turn_id")}
    _queue_reindex(conn, sorted(turns))
    for turn_id in sorted(turns):
        jobs.enqueue_job(conn, ANCHOR_JOB, str(turn_id), now=now)
    conn.execute("update sdk_sessions set forgotten = 0 where forgotten = ?", (deletion_id,))
    conn.execute("delete from deleted_rows where deletion_id = ?", (deletion_id,))
    conn.execute("update deletions set undone_at = ? where id = ?", (now, deletion_id))
    project_ids = sorted({item["project_id"] for item in items if item["project_id"]})
    for project_id in project_ids:
        observations.link_statements(conn, project_id)
    return Restored(counts=counts, projects=project_ids)


def _restore_item(conn: Connection, item: Row, *, now: int) -> bool:
    kind, content = item["kind"], _decode_content(item)
    if kind == "observation":
        return edits.restore_observation(conn, item["row_id"], now=now)
    if item["session_id"] and not fetch_value(conn, "select 1 from sdk_sessions where id = ?", (item["session_id"],)):
        return False  # the session was erased in the meantime
    if kind == "session":
        assignments = ", ".join(f"{name} = coalesce(:{name}, {name})" for name in content)
        conn.execute(f"update sdk_sessions set {assignments} where id = :id", {**content, "id": item["row_id"]})
        return True
    if kind == "draft":  # replaces the observation composed while the restored events were missing
        conn.execute(
            f"delete from observations where turn_id = ? and key = ? and {MACHINE_OWNED}",
            (content["turn_id"], content["key"]),
        )
    if kind == "summary":
        conn.execute("delete from session_summaries where turn_id = ?", (content["turn_id"],))
    if kind == "prompt":
        conn.execute("delete from user_prompts where turn_id = ?", (content["turn_id"],))
    table, _ = _RESTORABLE_TABLES[kind]
    columns = external_db.read_table_columns(conn)[table]
    saved = former_names.current_row(table, content)  # perhaps by a version that used other names
    row = {name: item for name, item in saved.items() if name in columns and name != "superseded_by"}
    placeholders = ", ".join(f":{name}" for name in row)
    conn.execute(f"insert or ignore into {table} ({', '.join(row)}) values ({placeholders})", row)
    if kind == "event" and conn.changes():
        conn.execute(
            f"update receipts set outcome = 'stored', rule = '' where event_id = ? and rule = '{FORGOTTEN_RULE}'",
            (content["event_id"],),
        )
    return True


def _decode_content(item: Row) -> Row:
    content: Row = msgspec.json.decode(item["content"]) if item["content"] else {}
    return content


def is_expiry_due(conn: Connection, *, now: int) -> bool:
    """Return whether any restorable row is older than thirty days."""
    sql = "select 1 from deleted_rows a join deletions f on f.id = a.deletion_id where f.at < ? limit 1"
    return bool(fetch_value(conn, sql, (now - UNDO_WINDOW_MS,)))


def erase_expired_rows(conn: Connection, *, now: int, limit: int = 500) -> int:
    """Erase one batch of restorable rows older than thirty days. Return its size. The tombstones stay."""
    due = "select a.kind, a.row_id, f.id from deleted_rows a join deletions f on f.id = a.deletion_id where f.at < ?"
    restorable = [tuple(row.values()) for row in fetch_all(conn, f"{due} limit ?", (now - UNDO_WINDOW_MS, limit))]
    _delete_restorable(conn, restorable)
    return len(restorable)


# --- single observations ---------------------------------------------------------------------------------------------


def forget_observation(
    conn: Connection, row_id: int, new_tombstones: Sequence[Tombstone], *, deletion_id: int, now: int, by: str
) -> int:
    """Delete one observation reversibly. Return the time until which it can be restored."""
    tombstones.insert_tombstones(conn, new_tombstones)
    row = fetch_one(conn, "select session_id, project_id from observations where id = ?", (row_id,)) or {}
    until = edits.delete_observation(conn, row_id, now=now, by=by)
    conn.execute(
        "insert into deleted_rows values (?, 'observation', ?, ?, ?, ?, '')",
        (deletion_id, row_id, row["session_id"], row["project_id"], now),
    )
    finish_deletion(conn, deletion_id, {"observations": 1}, now=now)
    return until


def build_tombstone_revocations(conn: Connection, row_id: int) -> list[Tombstone]:
    """Return revocations for the tombstones of a single observation; empty if it cannot be restored."""
    if not fetch_value(conn, "select 1 from deleted_observations where observation_id = ?", (row_id,)):
        return []
    hashes = [row["mark"] for row in _item_hashes(conn, "observation", [row_id])]
    sql = "select keyed_hash as mark, deletion_id as n from tombstones where keyed_hash in (select value from json_each(?))"
    return [Tombstone(row["n"], row["mark"], back=True) for row in fetch_all(conn, sql, (encode_json(hashes),))]


def undo_observation_change(
    conn: Connection, row_id: int, revocations: Sequence[Tombstone], *, now: int, by: str
) -> UndoneChange:
    """Undo the last change to an observation. If that was a deletion, remove its tombstones too."""
    result = edits.undo_last_change(conn, row_id, now=now, by=by)
    if result["undone"] == "forgotten":
        conn.execute("delete from deleted_rows where kind = 'observation' and row_id = ?", (row_id,))
        conn.executemany(
            "delete from tombstones where keyed_hash = ? and deletion_id = ?", [(s.mark, s.n) for s in revocations]
        )
    return result
