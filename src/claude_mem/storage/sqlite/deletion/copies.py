"""Erasing and redacting content in copies of the database: backups, and databases in quarantine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from claude_mem.domain.errors import OperationFailed
from claude_mem.storage import external_db
from claude_mem.storage.records import AffectedRows, DeletionScope, TextCleaner, Tombstone
from claude_mem.storage.sqlite import backup
from claude_mem.storage.sqlite.deletion import deletions, keyed_hash, redaction, scopes
from claude_mem.storage.sqlite.engine import Connection, fetch_all


def has_covered_rows(path: Path, scope: DeletionScope, tombstones: list[Tombstone], *, key_folder: Path) -> bool:
    """Return whether a copy has rows that the deletion covers."""
    with external_db.open_read_only(path) as conn:
        return bool(_find_covered_rows(conn, scope, tombstones, key_folder=key_folder))


def erase_covered_rows(
    path: Path,
    scope: DeletionScope,
    tombstones: list[Tombstone],
    *,
    key_folder: Path,
    mentions: Callable[[str], bool],
    quotes: Callable[[str], bool],
) -> None:
    """Rewrite a copy without the rows that the deletion covers, and without what other rows say of them."""

    def erase(conn: Connection) -> None:
        before = _find_dangling_references(conn)
        deletions.erase_rows_from_copy(conn, _find_covered_rows(conn, scope, tombstones, key_folder=key_folder))
        deletions.erase_mentions(conn, mentions, quotes=quotes)
        if dangling := _find_dangling_references(conn) - before:
            raise OperationFailed(f"erasing would leave {len(dangling)} dangling references", hint="please report this")

    backup.rewrite_backup(path, erase, vacuum=True)


def _find_covered_rows(
    conn: Connection, scope: DeletionScope, tombstones: list[Tombstone], *, key_folder: Path
) -> AffectedRows:
    """Return the rows of a copy that the deletion covers.

    They are found by the tombstones and by the scope, because the copy may contain rows that the database no longer
    has. A scope of row ids is not used: the same ids may mean other rows in the copy.
    """
    keyed_hash.register_keyed_hash(conn, key_folder)
    tombstoned = deletions.find_tombstoned_rows(conn, tombstones)
    if scope.ids:
        return tombstoned
    return deletions.union_affected_rows(conn, tombstoned, scopes.find_affected_rows(conn, scope, erase=True))


def _find_dangling_references(conn: Connection) -> set[tuple[object, ...]]:
    """Return the dangling references of a copy. A database in quarantine may have had some before."""
    return {tuple(row.values()) for row in fetch_all(conn, "pragma foreign_key_check")}


def redact_backup(path: Path, clean: TextCleaner, *, write: bool) -> bool:
    """Redact a backup and return whether it changed, or would change without `write`.

    It is checked first: most backups need no change, and rewriting a large one takes long.
    """
    with external_db.open_read_only(path) as conn:
        changed = redaction.redact_copy(conn, clean=clean, write=False)
    if changed and write:
        backup.rewrite_backup(path, lambda copy: redaction.redact_copy(copy, clean=clean, write=True))
    return bool(changed)
