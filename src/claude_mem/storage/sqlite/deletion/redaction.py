"""Apply the current redaction rules to everything stored earlier: every text of every table.

Rows are processed in batches, each in its own transaction; unchanged rows are not written. A copy of the database may
have an older schema; tables and columns that it lacks are skipped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from claude_mem.domain import ids
from claude_mem.domain.text import map_strings
from claude_mem.storage.records import RedactionStep, RowKey, TextCleaner, TextTable
from claude_mem.storage.sqlite import former_names
from claude_mem.storage.sqlite.engine import Connection, Row, fetch_all, fetch_value, has_table
from claude_mem.storage.sqlite.memory.observations import (
    JSON_LIST_COLUMNS,
    count_observation_tokens,
    encode_json,
    hash_observation,
)

REDACTION_BATCH = 100


TEXT_TABLES = (
    # Before the events: the calls of a changed event are deleted, and would be missing in the count.
    TextTable("calls", "document_id", plain=("key", "reason", "instead", "counts_as", "words")),
    TextTable("events", "seq"),
    TextTable("user_prompts", "id", plain=("text",)),
    TextTable(
        "observations",
        "id",
        plain=("key", "title", "subtitle", "narrative", "why"),
        lists=("facts", "concepts", "files_read", "files_modified"),
    ),
    TextTable(
        "session_summaries",
        "id",
        plain=("request", "investigated", "learned", "completed", "next_steps", "notes", "closing", "why"),
        lists=("files_read", "files_edited"),
    ),
    TextTable("sdk_sessions", "id", plain=("first_prompt", "title", "subtitle"), lists=("branches",)),
    TextTable("deleted_observations", "observation_id", columns=("content",), label="attic"),
    TextTable("deleted_rows", "row_id", columns=("content",), label="put_away"),
    TextTable("history", "id", columns=("before",)),
    TextTable("ledger", "id", plain=("message",)),
    TextTable("jobs", "id", plain=("error",)),
    TextTable("imports", "id", plain=("error",), lists=("notes",)),
    TextTable("breakers", "provider", plain=("message",)),
    TextTable("notices", "key", plain=("text",)),
    TextTable("injections", "id", plain=("about",), lists=("names",), label="tellings"),
    TextTable("uses", "id", plain=("item",)),
    # Derived, but not always rebuilt: of a turn whose events were purged, only this remains.
    TextTable("passages", "id", plain=("title", "body", "hints", "around")),
    TextTable("signals", "document_id", plain=("value",)),
)


def count_text_rows(conn: Connection, texts: TextTable) -> int:
    """Return how many rows a redaction of this table reads."""
    return int(fetch_value(conn, f"select count(*) from {texts.table}")) if has_table(conn, texts.table) else 0


def redact_batch(
    conn: Connection, texts: TextTable, after: RowKey | None, *, clean: TextCleaner, write: bool
) -> RedactionStep:
    """Process the next batch of a table. Without `write`, changes are only counted."""
    stored = replace(texts, table=former_names.stored_table(conn, texts.table))
    if not has_table(conn, stored.table):
        return RedactionStep(None, 0, 0)
    batch = _next_batch(conn, stored, after)
    changed = 0
    for row in batch:
        changes = {
            name: new_value for name, new_value in _clean_row(row, texts, clean).items() if new_value != row[name]
        }
        if changes:
            changed += 1
            if write:
                _WRITERS.get(texts.table, _update)(conn, stored, row, changes)
    more = len(batch) >= REDACTION_BATCH
    return RedactionStep(batch[-1][texts.key] if more else None, len(batch), changed)


def redact_copy(conn: Connection, *, clean: TextCleaner, write: bool) -> dict[str, int]:
    """Process a copy that no other process uses, all at once. Return the number of changed rows by table."""
    changed: dict[str, int] = {}
    for texts in TEXT_TABLES:
        after: RowKey | None = None
        while True:
            result = redact_batch(conn, texts, after, clean=clean, write=write)
            changed[texts.table] = changed.get(texts.table, 0) + result.rows_changed
            if (after := result.after) is None:
                break
    return {table: number for table, number in changed.items() if number}


def _next_batch(conn: Connection, texts: TextTable, after: RowKey | None) -> list[Row]:
    """Return the next batch, completed with all rows of its last key: keys need not be unique."""
    where, params = (f"where {texts.key} > ?", (after,)) if after is not None else ("", ())
    batch = fetch_all(conn, f"select * from {texts.table} {where} order by {texts.key} limit {REDACTION_BATCH}", params)
    if len(batch) < REDACTION_BATCH:
        return batch
    last = batch[-1][texts.key]
    rest = [row for row in batch if row[texts.key] != last]
    return rest + fetch_all(conn, f"select * from {texts.table} where {texts.key} = ?", (last,))


def _clean_row(row: Row, texts: TextTable, clean: TextCleaner) -> dict[str, str]:
    new = {name: clean.text(row[name]) for name in texts.plain if row.get(name)}
    new |= {name: _clean_list(row[name], clean) for name in texts.lists if row.get(name)}
    new |= {name: _clean_record(row[name], clean) for name in texts.columns if row.get(name)}
    if texts.table == "events":
        new["body"] = clean.body(row["body"])
    return new


def _clean_list(text: str, clean: TextCleaner) -> str:
    try:
        items = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return clean.text(text)  # not valid JSON: treat it as a text
    is_plain = isinstance(items, list) and all(isinstance(item, str) for item in items)
    new = clean.texts(items) if clean.texts and is_plain else map_strings(items, clean.text)
    return text if new == items else encode_json(new)


def _clean_record(text: str, clean: TextCleaner) -> str:
    """Clean a JSON object with the columns of a row. A list column is JSON within the JSON."""
    try:
        columns = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return clean.text(text)
    if not isinstance(columns, dict):
        return _clean_list(text, clean)
    new = {name: _clean_column(name, item, clean) for name, item in columns.items()}
    return text if new == columns else encode_json(new)


def _clean_column(name: str, item: Any, clean: TextCleaner) -> object:
    if not isinstance(item, str) or name == "hash":
        return item
    return _clean_list(item, clean) if name in JSON_LIST_COLUMNS else clean.text(item)


# --- writing changed rows --------------------------------------------------------------------------------------------


def _update(conn: Connection, texts: TextTable, row: Row, changes: Row) -> None:
    names = ", ".join(f"{name} = :{name}" for name in changes)
    conn.execute(
        f"update {texts.table} set {names} where {texts.key} = :the_key", {**changes, "the_key": row[texts.key]}
    )


def _update_event(conn: Connection, texts: TextTable, row: Row, changes: Row) -> None:
    """Update an event, and delete the calls of its turn: a word of a key alone does not show that it is a secret."""
    _update(conn, texts, row, changes)
    if row["turn_id"] is None:
        return
    queue = former_names.stored_table(conn, "index_queue")
    if has_table(conn, queue):
        conn.execute(f"insert or ignore into {queue} values ('turn', ?)", (row["turn_id"],))
    if has_table(conn, "calls"):
        turn = "select id from documents where kind = 'turn' and row_id = ?"
        conn.execute(f"delete from calls where document_id in ({turn})", (row["turn_id"],))


def _update_observation(conn: Connection, texts: TextTable, row: Row, changes: Row) -> None:
    """Update an observation with its hash and token count. Keys that differed only in a secret stay different."""
    if "key" in changes:
        changes["key"] = f"{changes['key']} {row['id']}"
    content = {**row, **changes}
    _update(
        conn,
        texts,
        row,
        {
            **changes,
            "hash": hash_observation(content),
            "tokens": count_observation_tokens(content),
            "updated_at": ids.now_ms(),
        },
    )


def _update_deleted_observation(conn: Connection, texts: TextTable, row: Row, changes: Row) -> None:
    content = msgspec.json.decode(changes["content"])
    kind = fetch_value(conn, "select type from observations where id = ?", (row["observation_id"],))
    content["hash"] = hash_observation({**content, "type": kind})
    _update(conn, texts, row, {"content": encode_json(content)})


def _update_deleted_row(conn: Connection, texts: TextTable, row: Row, changes: Row) -> None:
    """Update a row of `deleted_rows`, whose key has three columns."""
    deletion_id = former_names.stored_column(conn, "deleted_rows", "deletion_id")
    params = (changes["content"], row["kind"], row["row_id"], row[deletion_id])
    conn.execute(f"update {texts.table} set content = ? where kind = ? and row_id = ? and {deletion_id} = ?", params)


def _replace_signal(conn: Connection, _: TextTable, row: Row, changes: Row) -> None:
    """Delete and re-insert instead of updating: `known_files` is maintained by insert and delete triggers."""
    signal_key = (row["document_id"], row["kind"], row["value"])
    conn.execute("delete from signals where (document_id, kind, value) = (?, ?, ?)", signal_key)
    insert = "insert or ignore into signals (document_id, kind, value, times) values (?, ?, ?, ?)"
    conn.execute(insert, (row["document_id"], row["kind"], changes["value"], row["times"]))


def _replace_call(conn: Connection, _: TextTable, row: Row, changes: Row) -> None:
    """Update a call, whose key has two columns. A call whose words contain a secret is dropped."""
    call_key = {"document": row["document_id"], "before": row["key"]}
    if "key" in changes:
        conn.execute("delete from calls where document_id = :document and key = :before", call_key)
        return
    names = ", ".join(f"{name} = :{name}" for name in changes)
    conn.execute(f"update calls set {names} where document_id = :document and key = :before", {**changes, **call_key})


def _delete_use(conn: Connection, _: TextTable, row: Row, __: Row) -> None:
    """Delete a use: without its name, it says nothing about any item."""
    conn.execute("delete from uses where id = ?", (row["id"],))


_WRITERS = {
    "calls": _replace_call,
    "events": _update_event,
    "observations": _update_observation,
    "deleted_observations": _update_deleted_observation,
    "deleted_rows": _update_deleted_row,
    "signals": _replace_signal,
    "uses": _delete_use,
}
