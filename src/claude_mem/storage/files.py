"""The files of one memory: the database where no worker has it open, its backups, and the databases in quarantine.

Rooms use an open database through `storage.base`, and everything else of SQLite through `DatabaseFiles`: checks, backup,
restore, repair, and erasing from copies. Commands that only need the path of the database take it from
`storage.external_db`, which loads in a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

import apsw

from claude_mem.config import Config
from claude_mem.domain.errors import DatabaseDamaged
from claude_mem.domain.reports import BackupCheck, BackupCopy, BackupFile, EventAccount, RowCounts
from claude_mem.storage import external_db
from claude_mem.storage.journal_records import TranscriptFile
from claude_mem.storage.records import DeletionScope, StopCheck, TextCleaner, Tombstone
from claude_mem.storage.sqlite import backup, damage, engine, integrity, repair
from claude_mem.storage.sqlite.damage import is_database_damage, is_transient_disk_error
from claude_mem.storage.sqlite.database import Database
from claude_mem.storage.sqlite.deletion import copies, keyed_hash
from claude_mem.storage.sqlite.deletion import tombstones as tombstone_file
from claude_mem.storage.sqlite.journal import accounting, backfills
from claude_mem.storage.sqlite.repair import RepairRecord
from claude_mem.system import data_directory

__all__ = ["DatabaseFiles", "RepairRecord", "is_database_damage", "is_transient_disk_error", "sqlite_version"]


def sqlite_version() -> tuple[str, bool]:
    """Return the version of SQLite, and whether it is free of known bugs that can corrupt a database."""
    version = apsw.sqlite_lib_version()
    return version, tuple(int(part) for part in version.split(".")) >= engine.MIN_SQLITE_VERSION


class DatabaseFiles:
    """The database files of one data directory. Nothing is opened before a method needs it."""

    def __init__(self, config: Config) -> None:
        self.data_dir, self.backups, self.quarantine = config.data_dir, config.backups, config.quarantine
        self._usual_path = config.database

    @cached_property
    def path(self) -> Path:
        """The path of the database, resolved once: it stays the same while a worker runs."""
        return external_db.resolve_database_path(self._usual_path)

    # --- without a worker --------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Remove what killed processes left. Call this before the database is opened, with the worker lock held."""
        external_db.set_copy_folder(self.data_dir)
        backup.delete_unfinished_backups(self.backups)

    def describe_traces(self) -> str:
        """Describe the files that show that there was a database; "" if there are none."""
        return damage.describe_memory_traces(self.path, backups=self.backups)

    def count_events(self, *, in_spool: int) -> EventAccount:
        """Return the account of all events. The caller must hold the worker lock."""
        db = Database(self.path, backups=self.backups)
        try:
            return db.read_now(lambda tx: tx.journal.count_event_account(in_spool=in_spool))
        finally:
            db.close()

    def count_rows(self) -> RowCounts:
        """Return how many rows there are of each kind, without changing or locking the database."""
        if not self.path.exists():
            return RowCounts()
        with external_db.open_read_only(self.path) as conn:
            return accounting.count_all_rows(conn)

    def list_unchanged_transcripts(self, files: Iterable[TranscriptFile]) -> list[str]:
        """Return the paths of the transcripts that were read before and have not changed."""
        with external_db.open_read_only(self.path) as conn:
            if "backfill_files" not in external_db.read_table_columns(conn):  # before the migration
                return []
            return backfills.list_unchanged_transcripts(conn, files)

    # --- checks ------------------------------------------------------------------------------------------------------

    def quick_check(self, *, should_stop: StopCheck) -> list[str]:
        """Check the pages quickly and a random sample of the rows. Return the problems.

        This and `check` raise `CheckInterrupted` if `should_stop` ended the check.
        """
        return integrity.quick_check_database(self.path, should_stop=should_stop)

    def check(self, *, should_stop: StopCheck) -> list[str]:
        """Check all pages, references and rows. Return the problems of the first check that finds any."""
        return integrity.check_database(self.path, should_stop=should_stop)

    def check_closed(self) -> list[str]:
        """Run the full check while no process has the database open. Return the problems."""
        return integrity.check_closed_database(self.path)

    def count_stray_bits(self) -> int:
        """Count pages that have a single bit set in unused space: a sign of a failing disk."""
        return integrity.count_stray_bits(self.path)

    # --- backups -----------------------------------------------------------------------------------------------------

    def write_backup(self, *, digest: bool = False) -> BackupCopy:
        """Make a backup for the user. With `digest`, also return a digest of all memory."""
        return backup.write_backup(self.path, self.backups, digest=digest)

    def write_daily_backup(self, *, now: int) -> BackupCopy:
        """Make a backup that the rotation deletes some day."""
        return backup.write_backup(self.path, self.backups, prefix=backup.DAILY_PREFIX, now=now)

    def list_backups(self) -> list[BackupFile]:
        """Describe all backups, newest first."""
        return backup.list_backup_files(self.backups)

    def list_backup_paths(self) -> list[Path]:
        """Return the paths of all backups, without opening them."""
        return backup.list_backup_paths(self.backups)

    def examine_backup(self, path: Path) -> BackupCheck:
        """Check every page, reference and row of a backup. Raise `OperationFailed` if it is damaged."""
        return backup.examine_backup(path)

    def verify_restore(self, copy: BackupCopy, *, should_stop: StopCheck) -> str:
        """Restore a new backup into a temporary folder and compare the row counts. Return the problem, or ''."""
        return backup.verify_restore(copy, self.backups, should_stop=should_stop)

    def verify_backup(self, path: Path, *, should_stop: StopCheck) -> str:
        """Test the restore of an existing backup against its own row counts. Return the problem, or ''."""
        return backup.verify_backup(path, self.backups, should_stop=should_stop)

    def find_unverified_backups(self, tested_names: Collection[str]) -> list[Path]:
        """Return the backups whose restore was never tested, or that have changed since, oldest first."""
        return backup.find_unverified_backups(self.backups, tested_names=tested_names)

    def find_surplus_backups(self, good_names: Collection[str]) -> list[Path]:
        """Return the backups that the rotation deletes."""
        pinned_names = repair.list_pinned_backups(self.quarantine)
        return backup.find_surplus_backups(self.backups, good_names=good_names, pinned_names=pinned_names)

    def find_expendable_backups(self, good_names: Collection[str]) -> list[Path]:
        """Return the backups that may be deleted when space is short, oldest first."""
        pinned_names = repair.list_pinned_backups(self.quarantine)
        return backup.find_expendable_backups(self.backups, good_names=good_names, pinned_names=pinned_names)

    # --- restore -----------------------------------------------------------------------------------------------------

    def prepare_restore(self, path: Path) -> AbstractContextManager[Path]:
        """Yield a new database with the rows of a backup, in a temporary folder beside the database."""
        return backup.prepare_restore(path, self.data_dir)

    def digest_restored(self, path: Path) -> str:
        """Restore a backup into a temporary folder, and return the digest of its memory."""
        with backup.prepare_restore(path, self.backups) as fresh:
            return backup.digest_file(fresh)

    def count_uncheckable_tombstones(self, path: Path) -> int:
        """Return how many tombstones with a lost key the backup lacks, so that it may contain what they cover."""
        return backup.count_uncheckable_tombstones(path, self.data_dir)

    def replace(self, fresh: Path) -> Path | None:
        """Replace the database by a prepared one. Return the path under which the previous one is kept, if any.

        The caller must hold the worker lock.
        """
        return backup.replace_database(fresh, self.path, self.backups)

    # --- repair ------------------------------------------------------------------------------------------------------

    def list_repairs(self) -> list[RepairRecord]:
        """Return the records of all repairs whose damaged database still exists, newest first."""
        return repair.list_repairs(self.quarantine)

    def find_unfinished_repair(self) -> RepairRecord | None:
        """Return the repair that was interrupted, or None."""
        return repair.find_unfinished_repair(self.quarantine)

    def describe_damage(self) -> list[str]:
        """Describe the damaged databases and other files that were moved away and still exist, newest first."""
        moved_files = data_directory.list_quarantined(self.data_dir)
        return [record.describe() for record in self.list_repairs()] + [str(moved) for moved in moved_files]

    def repair(self, problem: str) -> RepairRecord:
        """Move the damaged database to the quarantine and put a repaired one or a backup in its place."""
        return repair.replace_damaged_database(
            self.path, backups=self.backups, quarantine=self.quarantine, problem=problem
        )

    # --- deletion ----------------------------------------------------------------------------------------------------

    def list_copies(self) -> list[Path]:
        """Return all backups, and all databases in quarantine."""
        paths = [*self.backups.glob("*.db"), *self.quarantine.rglob("*.db")]
        return sorted(path for path in paths if path.is_file() and not path.is_symlink())

    def list_unfinished_restores(self) -> list[Path]:
        """Return the temporary folders of restores that killed processes left."""
        folders = [*backup.find_stale_restores(self.data_dir), *backup.find_stale_restores(self.backups)]
        return [folder for folder in folders if folder.is_dir() and not folder.is_symlink()]

    def list_unfinished_copies(self) -> list[Path]:
        """Return the files of unfinished copies of databases in quarantine."""
        patterns = (f"*{engine.PARTIAL_SUFFIX}", f"*{engine.PARTIAL_SUFFIX}-*")
        paths = [path for pattern in patterns for path in self.quarantine.rglob(pattern)]
        return [path for path in paths if path.is_file() and not path.is_symlink()]

    def list_side_files(self, path: Path) -> list[Path]:
        """Return the paths of the up to three files of a copy."""
        return [backup.side_file(path, side) for side in backup.DATABASE_FILE_SUFFIXES]

    def has_covered_rows(self, path: Path, scope: DeletionScope, tombstones: list[Tombstone]) -> bool:
        """Return whether a copy has rows that the deletion covers."""
        return copies.has_covered_rows(path, scope, tombstones, key_folder=self.data_dir)

    def erase_covered_rows(
        self,
        path: Path,
        scope: DeletionScope,
        tombstones: list[Tombstone],
        *,
        mentions: Callable[[str], bool],
        quotes: Callable[[str], bool],
    ) -> None:
        """Rewrite a copy without the rows that the deletion covers, and without what other rows say of them.

        Raise `DatabaseDamaged` if the copy can't be read.
        """
        try:
            copies.erase_covered_rows(
                path, scope, tombstones, key_folder=self.data_dir, mentions=mentions, quotes=quotes
            )
        except damage.DAMAGE_ERRORS as error:
            raise DatabaseDamaged(f"{path.name} can't be read: {error}") from error

    def redact_backup(self, path: Path, clean: TextCleaner, *, write: bool) -> bool:
        """Redact a backup. Return whether it changed, or would change without `write`."""
        return copies.redact_backup(path, clean, write=write)

    def append_tombstones(self, tombstones: Iterable[Tombstone]) -> None:
        """Append tombstones to their file and sync it. Call this before deleting anything."""
        tombstone_file.append_tombstones(self.data_dir, tombstones)

    def read_tombstones(self) -> list[Tombstone]:
        """Return the tombstones of the file that were not revoked."""
        return tombstone_file.read_tombstones(self.data_dir)

    def replace_lost_key(self) -> None:
        """If the key of the tombstones is lost, move its damaged file aside and create a new key where needed."""
        tombstone_file.replace_lost_key(self.data_dir)

    def make_keyed_hash(self) -> Callable[..., str]:
        """Return a hash function that uses the key of this data directory."""
        return keyed_hash.make_keyed_hash(self.data_dir)
