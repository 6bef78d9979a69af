"""Seals: what each row said when it was written, as one number. A bit that has flipped since breaks it.

Triggers note which rows wait for a seal (`unsealed`); it is put on a moment later, so writing costs next to nothing. A
column that is added to the list below must come with a migration that lets its table wait for new seals.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from claude_mem.store.database import Connection, Row, rows, value

KINDS = 16  # a seal's id is the row's number × this + the number of its kind


@dataclass(frozen=True, slots=True)
class Sealed:
    """A table, its number, its key, and the columns that a seal vouches for."""

    table: str
    number: int
    key: str
    columns: tuple[str, ...]


TABLES = (
    Sealed("events", 1, "seq", ("event_id", "session_id", "turn_id", "kind", "at", "tool_use_id", "source", "body")),
    Sealed("user_prompts", 2, "id", ("session_id", "turn_id", "prompt_number", "text", "created_at")),
    Sealed(
        "session_summaries",
        3,
        "id",
        ("session_id", "project_id", "turn_id", "prompt_number", "request", "investigated", "learned", "completed",
         "next_steps", "notes", "files_read", "files_edited", "closing", "closing_trust", "outcome", "provider",
         "trust", "verdict", "created_at", "updated_at"),
    ),
    Sealed(
        "observations",
        4,
        "id",
        ("session_id", "project_id", "turn_id", "prompt_number", "key", "type", "title", "subtitle", "narrative",
         "facts", "sources", "concepts", "files_read", "files_modified", "provider", "model", "tokens", "trust",
         "commit_id", "hash", "forgotten", "pinned", "verdict", "created_at", "updated_at"),
    ),
    Sealed(
        "sdk_sessions",
        5,
        "id",
        ("host", "content_session_id", "project_id", "first_prompt", "title", "subtitle", "cwd", "transcript_path",
         "started_at"),
    ),
    Sealed("turns", 6, "id", ("session_id", "number", "prompt_id", "private", "opened_at")),
    Sealed("projects", 7, "id", ("name", "root", "created_at")),
    Sealed("attic", 8, "observation_id", ("content", "into_id", "at")),
    Sealed("passages", 9, "id", ("document_id", "title", "body", "hints", "around")),
    Sealed("vectors", 10, "document_id", ("model", "part", "hash", "vector")),
)  # fmt: skip
BY_NUMBER = {sealed.number: sealed for sealed in TABLES}
BY_TABLE = {sealed.table: sealed for sealed in TABLES}
# Columns older than their seal: databases of an earlier version have them, but no seal there vouches for them.
SEALED_SINCE = {"updated_at": 20}
DERIVED = ("passages", "vectors")  # made again from the others


def seal(conn: Connection, *, limit: int) -> int:
    """Put seals on some of the rows that wait for one; how many waited."""
    waiting = [row["id"] for row in rows(conn, "select id from unsealed limit ?", (limit,))]
    found = sums(conn, waiting)
    conn.executemany("insert or replace into seals values (?, ?)", found.items())
    conn.executemany("delete from unsealed where id = ?", [(each,) for each in waiting])
    return len(waiting)


def is_waiting(conn: Connection) -> bool:
    return bool(value(conn, "select 1 from unsealed limit 1"))


def broken(conn: Connection, *, after: int, limit: int) -> tuple[list[str], int]:
    """Of the next so many seals: the rows that are not what they were, and where to go on; 0 at the end."""
    known = rows(conn, "select id, sum from seals where id > ? order by id limit ?", (after, limit))
    return _broken(conn, known), known[-1]["id"] if len(known) == limit else 0


def sample(conn: Connection, *, count: int, chance: random.Random) -> list[str]:
    """The same for some seals here and there: quick, however many there are."""
    last = value(conn, "select max(id) from seals") or 0
    known: dict[int, Row] = {}
    for _ in range(count if last else 0):
        for row in rows(conn, "select id, sum from seals where id >= ? limit 1", (chance.randint(1, last),)):
            known[row["id"]] = row
    return _broken(conn, known.values())


def _broken(conn: Connection, known: Iterable[Row]) -> list[str]:
    wanted = {row["id"]: row["sum"] for row in known}
    found = sums(conn, wanted)
    return [describe(each) for each, right in wanted.items() if found.get(each) != right]


def describe(seal_id: int) -> str:
    sealed = BY_NUMBER.get(seal_id % KINDS)
    return f"{sealed.table} {seal_id // KINDS} is not what it was" if sealed else f"there is an odd seal {seal_id}"


def sums(conn: Connection, wanted: Iterable[int]) -> dict[int, int]:
    """What the rows say now; a row that is not there has none."""
    by_kind: dict[int, list[int]] = {}
    for each in wanted:
        by_kind.setdefault(each % KINDS, []).append(each // KINDS)
    found: dict[int, int] = {}
    for number, row_ids in by_kind.items():
        if sealed := BY_NUMBER.get(number):
            for row_id, said in _said(conn, sealed, row_ids):
                found[row_id * KINDS + number] = said
    return found


def _said(conn: Connection, sealed: Sealed, row_ids: list[int]) -> Iterator[tuple[int, int]]:
    many = f"""
        select {sealed.key} as "~key", {", ".join(_columns(conn, sealed))} from {sealed.table}
         where {sealed.key} in (select value from json_each(?)) order by 1
        """
    order = ", model, part" if sealed.table == "vectors" else ""  # several rows under one seal
    parts: dict[int, list[object]] = {}
    for row in conn.execute(many + order, (msgspec.json.encode(row_ids).decode(),)):
        row_id = row.pop("~key")
        parts.setdefault(row_id, []).append(list(row.values()))
    return ((row_id, _number(said)) for row_id, said in parts.items())


def _columns(conn: Connection, sealed: Sealed) -> list[str]:
    """The columns that seals in this database vouch for: a backup of an earlier version has fewer."""
    there = {row["name"] for row in rows(conn, "select name from pragma_table_info(?)", (sealed.table,))}
    return [name for name in covered(sealed, int(conn.pragma("user_version"))) if name in there]


def covered(sealed: Sealed, version: int) -> list[str]:
    """Return the columns that seals of a database of this schema version vouch for."""
    return [name for name in sealed.columns if SEALED_SINCE.get(name, 0) <= version]


def matches(sealed: Sealed, row: Row, right: int) -> bool:
    """Return whether a row at hand is what its seal says. In a damaged database the version itself can't be trusted, so
    the columns of every version are tried."""
    versions = {0, *SEALED_SINCE.values()}
    return any(_number([[row[name] for name in covered(sealed, version)]]) == right for version in versions)


def _number(said: object) -> int:
    digest = hashlib.blake2b(msgspec.msgpack.encode(said), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
