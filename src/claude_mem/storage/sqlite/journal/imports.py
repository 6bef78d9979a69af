"""Imports: one row each, with its progress. `transfer.import_` writes the imported rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from claude_mem.domain.errors import NotFound
from claude_mem.storage.journal_records import IMPORT_JOB, ImportCounts, ImportRun
from claude_mem.storage.sqlite.engine import Connection, fetch_one
from claude_mem.storage.sqlite.journal import jobs
from claude_mem.system.disk import get_file_signature

MAX_IMPORT_NOTES = 20


def create_import(
    conn: Connection, path: Path, *, source: str, project: str, untrusted: bool, dry_run: bool, now: int
) -> int:
    """Record an import, enqueue its first batch and return its id."""
    row = fetch_one(
        conn,
        """
        insert into imports (path, file_signature, source, project, untrusted, dry_run, started_at)
        values (?, ?, ?, ?, ?, ?, ?)
        returning id
        """,
        (str(path), get_file_signature(path), source, project, int(untrusted), int(dry_run), now),
    )
    assert row is not None
    enqueue_import_batch(conn, row["id"], "", now=now)
    return int(row["id"])


def enqueue_import_batch(conn: Connection, import_id: int, position: str, *, now: int) -> None:
    """Enqueue the batch that begins at `position`."""
    jobs.enqueue_job(conn, IMPORT_JOB, f"{import_id}.{position}", now=now)


def get_import(conn: Connection, import_id: int) -> ImportRun:
    """Return the import; raise `NotFound` if there is none."""
    row = fetch_one(conn, "select * from imports where id = ?", (import_id,))
    if row is None:
        raise NotFound(f"there is no import {import_id}")
    lists: dict[str, Any] = {name: msgspec.json.decode(row[name]) for name in ("counts", "notes")}
    row["mark"] = row.pop("file_signature")
    return ImportRun(**{**row, **lists, "untrusted": bool(row["untrusted"]), "dry_run": bool(row["dry_run"])})


def find_import_error(conn: Connection, import_id: int) -> str | None:
    """Return the error if the import's job is a dead letter, otherwise None."""
    row = fetch_one(
        conn,
        "select error from jobs where kind = ? and dead and subject like ? || '.%'",
        (IMPORT_JOB, str(import_id)),
    )
    return row["error"] or "it failed" if row else None


def advance_import(
    conn: Connection,
    import_: ImportRun,
    *,
    position: str | None,
    done_count: int,
    total: int,
    counts: Counter[tuple[str, str]],
    notes: Iterable[str],
    now: int,
) -> None:
    """Record that a batch was written and enqueue the next one. `position` is None after the last batch."""
    merged: ImportCounts = {outcome: dict(kinds) for outcome, kinds in import_.counts.items()}
    for (outcome, kind), count in counts.items():
        kinds = merged.setdefault(outcome, {})
        kinds[kind] = kinds.get(kind, 0) + count
    conn.execute(
        """
        update imports set position = ?, done = ?, total = ?, counts = ?, notes = ?, ended_at = ? where id = ?
        """,
        (
            position or "",
            done_count,
            total,
            msgspec.json.encode(merged).decode(),
            msgspec.json.encode([*import_.notes, *notes][:MAX_IMPORT_NOTES]).decode(),
            now if position is None else None,
            import_.id,
        ),
    )
    if position is not None:
        enqueue_import_batch(conn, import_.id, position, now=now)


def fail_import(conn: Connection, import_id: int, error: str, *, now: int) -> None:
    """Record that the import ended with an error."""
    conn.execute("update imports set error = ?, ended_at = ? where id = ?", (error[:2000], now, import_id))
