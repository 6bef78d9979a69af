"""What the rooms know of storage: a database that runs their functions, each in a transaction with the stores.

A stage of the job queue does its slow work with no transaction open and returns a function that writes the result. The
runner calls that function, finishes the job and enqueues the next one in a single transaction, so that a crash cannot
separate them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from claude_mem.domain.records import Job, StreamEvent
from claude_mem.storage.memory import MemoryStore, SearchIndex
from claude_mem.storage.spaces import SpaceStore

if TYPE_CHECKING:
    from claude_mem.storage.sqlite.deletion.store import Deletions
    from claude_mem.storage.sqlite.integrity import IntegrityChecks
    from claude_mem.storage.sqlite.journal.store import Journal

P = ParamSpec("P")
T = TypeVar("T")


class Transaction(Protocol):
    """One transaction: what is written through its stores is committed completely or not at all."""

    @property
    def memory(self) -> MemoryStore:
        """What a person moves to another machine, and what a team shares."""

    @property
    def search(self) -> SearchIndex:
        """The index of the memory. It can be rebuilt from the memory and the journal."""

    @property
    def journal(self) -> Journal:
        """What this machine saw and still has to do. It is always in SQLite."""

    @property
    def deletions(self) -> Deletions:
        """Deletion of memory and journal, and the tombstones that keep deleted content from coming back."""

    @property
    def spaces(self) -> SpaceStore:
        """Spaces, the logs of their devices, and which items of the memory these are about."""

    @property
    def integrity(self) -> IntegrityChecks:
        """Checks of the database itself."""

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """Errors of the disk or the database, such as a full disk. What was being written did not cause them."""

    @property
    def rejections(self) -> tuple[type[Exception], ...]:
        """Errors of data that the database does not accept."""

    def savepoint(self, *, undo: bool = False) -> AbstractContextManager[None]:
        """Run a block so that only its writes are undone if it fails, or in any case if `undo`."""


class Database(Protocol):
    """The open database. One thread writes; readers cannot write."""

    @property
    def path(self) -> Path:
        """The file of the database."""

    @property
    def has_untruncated_wal(self) -> bool:
        """Whether the WAL may still contain deleted rows."""

    @property
    def free_disk_space(self) -> Callable[[], bool]:
        """Frees the space kept in reserve, and returns whether there was any."""

    def write_now(self, fn: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` in a writing transaction and wait for the result."""

    async def write(self, fn: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` in a writing transaction."""

    def read_now(self, fn: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` with stores that cannot write, and wait for the result."""

    async def read(self, fn: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` with stores that cannot write."""

    async def vacuum(self) -> None:
        """Return the space of deleted rows to the file system."""

    async def truncate_wal(self) -> bool:
        """Overwrite deleted rows that are still in the WAL. Return False if a reader prevents it."""


Commit = Callable[[Transaction], Sequence[StreamEvent]]
Stage = Callable[[Job], Awaitable[Commit]]


def write_nothing(_: Transaction) -> Sequence[StreamEvent]:
    """Write nothing: the result of a stage that has no work."""
    return ()
