"""Row checksums (table `checksums`), which reveal bits that flipped since a row was written.

Triggers queue new and changed rows in `checksum_queue`; their checksums are computed a moment later, so that writing
costs next to nothing. A column added to the list below needs a migration that queues all rows of its table again.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from claude_mem.storage.sqlite import former_names
from claude_mem.storage.sqlite.engine import Connection, Row, fetch_all, fetch_value

CHECKSUM_KINDS = 16  # the id of a checksum is the row id × CHECKSUM_KINDS + the number of its table


@dataclass(frozen=True, slots=True)
class ChecksummedTable:
    """A table with checksums: its number, its key column and the columns that the checksum covers."""

    table: str
    number: int
    key: str
    columns: tuple[str, ...]


CHECKSUMMED_TABLES = (
    ChecksummedTable("events", 1, "seq", ("event_id", "session_id", "turn_id", "kind", "at", "tool_use_id", "source", "body")),
    ChecksummedTable("user_prompts", 2, "id", ("session_id", "turn_id", "prompt_number", "text", "created_at")),
    ChecksummedTable(
        "session_summaries",
        3,
        "id",
        ("session_id", "project_id", "turn_id", "prompt_number", "request", "investigated", "learned", "completed",
         "next_steps", "notes", "files_read", "files_edited", "closing", "closing_trust", "outcome", "provider",
         "trust", "verdict", "created_at", "updated_at"),
    ),
    ChecksummedTable(
        "observations",
        4,
        "id",
        ("session_id", "project_id", "turn_id", "prompt_number", "key", "type", "title", "subtitle", "narrative",
         "facts", "sources", "concepts", "files_read", "files_modified", "provider", "model", "tokens", "trust",
         "commit_id", "hash", "forgotten", "pinned", "verdict", "created_at", "updated_at"),
    ),
    ChecksummedTable(
        "sdk_sessions",
        5,
        "id",
        ("host", "content_session_id", "project_id", "first_prompt", "title", "subtitle", "cwd", "transcript_path",
         "started_at"),
    ),
    ChecksummedTable("turns", 6, "id", ("session_id", "number", "prompt_id", "private", "opened_at")),
    ChecksummedTable("projects", 7, "id", ("name", "root", "created_at")),
    ChecksummedTable("deleted_observations", 8, "observation_id", ("content", "merged_into_id", "at")),
    ChecksummedTable("passages", 9, "id", ("document_id", "title", "body", "hints", "around")),
    ChecksummedTable("vectors", 10, "document_id", ("model", "part", "hash", "vector")),
)  # fmt: skip
_TABLES_BY_NUMBER = {spec.number: spec for spec in CHECKSUMMED_TABLES}
CHECKSUMMED_TABLES_BY_NAME = {spec.table: spec for spec in CHECKSUMMED_TABLES}
# Columns covered only from a schema version on, although earlier versions already had them.
_CHECKSUMMED_SINCE = {"updated_at": 20}


def store_checksums(conn: Connection, *, limit: int) -> int:
    """Store checksums for up to `limit` queued rows. Return how many were taken from the queue."""
    queued_ids = [row["id"] for row in fetch_all(conn, "select id from checksum_queue limit ?", (limit,))]
    sums_by_id = compute_checksums(conn, queued_ids)
    conn.executemany("insert or replace into checksums values (?, ?)", sums_by_id.items())
    conn.executemany("delete from checksum_queue where id = ?", [(checksum_id,) for checksum_id in queued_ids])
    return len(queued_ids)


def has_queued_checksums(conn: Connection) -> bool:
    """Return whether any rows wait for their checksum."""
    return bool(fetch_value(conn, "select 1 from checksum_queue limit 1"))


def find_checksum_mismatches(conn: Connection, *, after: int, limit: int) -> tuple[list[str], int]:
    """Check the next `limit` checksums. Return a description of each mismatch, and the cursor; 0 at the end."""
    table = former_names.stored_table(conn, "checksums")
    checksum_rows = fetch_all(conn, f"select id, sum from {table} where id > ? order by id limit ?", (after, limit))
    return _mismatches(conn, checksum_rows), checksum_rows[-1]["id"] if len(checksum_rows) == limit else 0


def sample_checksum_mismatches(conn: Connection, *, count: int, rng: random.Random) -> list[str]:
    """Check `count` random checksums, which is quick however many there are. Return a description of each mismatch."""
    table = former_names.stored_table(conn, "checksums")
    last = fetch_value(conn, f"select max(id) from {table}") or 0
    checksum_rows: dict[int, Row] = {}
    for _ in range(count if last else 0):
        for row in fetch_all(conn, f"select id, sum from {table} where id >= ? limit 1", (rng.randint(1, last),)):
            checksum_rows[row["id"]] = row
    return _mismatches(conn, checksum_rows.values())


def _mismatches(conn: Connection, checksum_rows: Iterable[Row]) -> list[str]:
    stored_sums = {row["id"]: row["sum"] for row in checksum_rows}
    actual_sums = compute_checksums(conn, stored_sums)
    return [
        _describe(checksum_id) for checksum_id, stored in stored_sums.items() if actual_sums.get(checksum_id) != stored
    ]


def _describe(checksum_id: int) -> str:
    spec = _TABLES_BY_NUMBER.get(checksum_id % CHECKSUM_KINDS)
    return (
        f"{spec.table} {checksum_id // CHECKSUM_KINDS} does not match its checksum"
        if spec
        else f"checksum {checksum_id} is invalid"
    )


def compute_checksums(conn: Connection, checksum_ids: Iterable[int]) -> dict[int, int]:
    """Compute the current checksums of the rows with these checksum ids. Missing rows are left out."""
    by_kind: dict[int, list[int]] = {}
    for checksum_id in checksum_ids:
        by_kind.setdefault(checksum_id % CHECKSUM_KINDS, []).append(checksum_id // CHECKSUM_KINDS)
    sums_by_id: dict[int, int] = {}
    for number, row_ids in by_kind.items():
        if spec := _TABLES_BY_NUMBER.get(number):
            for row_id, checksum in _row_checksums(conn, spec, row_ids):
                sums_by_id[row_id * CHECKSUM_KINDS + number] = checksum
    return sums_by_id


def _row_checksums(conn: Connection, spec: ChecksummedTable, row_ids: list[int]) -> Iterator[tuple[int, int]]:
    table = former_names.stored_table(conn, spec.table)
    select = f"""
        select {spec.key} as "~key", {", ".join(_present_columns(conn, spec))} from {table}
         where {spec.key} in (select value from json_each(?)) order by 1
        """
    order = ", model, part" if spec.table == "vectors" else ""  # several rows share one checksum
    values_by_row: dict[int, list[object]] = {}
    for row in conn.execute(select + order, (msgspec.json.encode(row_ids).decode(),)):
        row_id = row.pop("~key")
        values_by_row.setdefault(row_id, []).append(list(row.values()))
    return ((row_id, _checksum(values)) for row_id, values in values_by_row.items())


def _present_columns(conn: Connection, spec: ChecksummedTable) -> list[str]:
    """Return the columns that the checksums of this database cover. A backup of an earlier version has fewer."""
    stored = former_names.stored_columns(conn, spec.table)
    return [stored[name] for name in _covered_columns(spec, int(conn.pragma("user_version"))) if name in stored]


def _covered_columns(spec: ChecksummedTable, version: int) -> list[str]:
    """Return the columns that checksums cover in a database of this schema version."""
    return [name for name in spec.columns if _CHECKSUMMED_SINCE.get(name, 0) <= version]


def matches_checksum(spec: ChecksummedTable, row: Row, stored: int) -> bool:
    """Return whether a row matches its stored checksum.

    In a damaged database the version number can't be trusted, so the columns of every version are tried.
    """
    versions = {0, *_CHECKSUMMED_SINCE.values()}
    return any(_checksum([[row[name] for name in _covered_columns(spec, version)]]) == stored for version in versions)


def _checksum(values: object) -> int:
    digest = hashlib.blake2b(msgspec.msgpack.encode(values), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
