"""Names that tables and columns had before migration 22, for backups and damaged databases of earlier versions.

The names in a file are looked up in its schema, not derived from its version number, which may itself be damaged.
"""

from __future__ import annotations

import apsw

FORMER_TABLES = {
    "checksum_queue": "unsealed",
    "checksums": "seals",
    "deleted_observations": "attic",
    "deleted_rows": "put_away",
    "deleted_vectors": "vectors_gone",
    "deletions": "forgettings",
    "index_queue": "stale",
    "injected_items": "told",
    "injections": "tellings",
    "purged_counts": "tally",
    "purged_event_hashes": "seen",
}
# By the current names of the table and the column.
FORMER_COLUMNS = {
    ("backfill_files", "cursor"): "mark",
    ("backfill_files", "opened_session"): "opened",
    ("backfills", "requested_at"): "asked_at",
    ("deleted_observations", "merged_into_id"): "into_id",
    ("deleted_rows", "deletion_id"): "forgetting_id",
    ("imports", "file_signature"): "mark",
    ("injected_items", "item"): "what",
    ("injected_items", "trigger"): "moment",
    ("injections", "trigger"): "moment",
    ("notices", "shown_at"): "told_at",
    ("purged_event_hashes", "hash"): "mark",
    ("repositories", "creation_id"): "made",
    ("sdk_sessions", "first_purged_at"): "heard_at",
    ("sdk_sessions", "newest_injected_id"): "informed_upto",
    ("tombstones", "deletion_id"): "forgetting_id",
    ("tombstones", "keyed_hash"): "mark",
    ("turns", "events_purged"): "events_gone",
}


def stored_table(conn: apsw.Connection, table: str) -> str:
    """Return the name that a table has in this database; its current name if the database has no such table."""
    former = FORMER_TABLES.get(table)
    return former if former and not _columns(conn, table) and _columns(conn, former) else table


def stored_column(conn: apsw.Connection, table: str, column: str) -> str:
    """Return the name that a column has in this database. `table` and `column` are the current names."""
    former = FORMER_COLUMNS.get((table, column))
    return former if former and former in _columns(conn, stored_table(conn, table)) else column


def stored_columns(conn: apsw.Connection, table: str) -> dict[str, str]:
    """Return the columns of a table in this database: their names there, by their current names."""
    current = {former: column for (of, column), former in FORMER_COLUMNS.items() if of == table}
    return {current.get(name, name): name for name in _columns(conn, stored_table(conn, table))}


def current_row(table: str, row: dict[str, object]) -> dict[str, object]:
    """Return a row that was saved by an earlier version with the current names of its columns."""
    current = {former: column for (of, column), former in FORMER_COLUMNS.items() if of == table}
    return {current.get(name, name): value for name, value in row.items()}


def _columns(conn: apsw.Connection, table: str) -> list[str]:
    cursor = conn.cursor()
    cursor.row_trace = None
    return [str(name) for (name,) in cursor.execute("select name from pragma_table_info(?)", (table,))]
