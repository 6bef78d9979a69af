"""The database as the rooms see it: `Database` runs their functions with a `Transaction`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import apsw

from claude_mem.storage.sqlite.deletion.store import Deletions
from claude_mem.storage.sqlite.engine import Connection, Engine, savepoint
from claude_mem.storage.sqlite.integrity import IntegrityChecks
from claude_mem.storage.sqlite.journal.store import Journal
from claude_mem.storage.sqlite.memory.store import SqliteMemory, SqliteSearch
from claude_mem.storage.sqlite.spaces.store import SqliteSpaces


class SqliteTransaction(Connection):
    """The connection of a transaction, with the stores that use it.

    Rooms see it as a `storage.base.Transaction`, which has the stores only. Functions of `storage/sqlite`, and tests,
    can use it as the connection it is.
    """

    failures = (
        apsw.FullError, apsw.IOError, apsw.BusyError, apsw.LockedError, apsw.CorruptError, apsw.NotADBError,
        apsw.CantOpenError, apsw.ReadOnlyError, apsw.NoMemError, apsw.InterruptError, apsw.PermissionsError,
    )  # fmt: skip
    rejections = (
        apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, ValueError, OverflowError, TypeError
    )  # fmt: skip

    def __init__(self, filename: str, **options: Any) -> None:
        super().__init__(filename, **options)
        self.memory = SqliteMemory(self)
        self.search = SqliteSearch(self)
        self.journal = Journal(self)
        self.deletions = Deletions(self)
        self.spaces = SqliteSpaces(self)
        self.integrity = IntegrityChecks(self)

    def savepoint(self, *, undo: bool = False) -> AbstractContextManager[None]:
        """Run a block so that only its writes are undone if it fails, or in any case if `undo`."""
        return savepoint(self, undo=undo)


class Database(Engine[SqliteTransaction]):
    """The open database. `write` and `read` run functions of a transaction in its threads."""

    def __init__(self, path: Path, *, backups: Path) -> None:
        super().__init__(path, backups=backups, connection_type=SqliteTransaction)
