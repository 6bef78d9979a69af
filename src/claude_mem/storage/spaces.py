"""What a store knows of spaces: the logs of a space's devices, and which items of the memory they are about.

A space is a person's own machines, or a team. Each of its devices writes a log of its own: entries 1, 2, 3 …, without
gaps. A row of the memory is bound to the item that the logs have of it. Without a space, all these tables are empty.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from claude_mem.domain.export_format import ContentRecord

SpaceKind = Literal["personal", "team"]
# What became of an entry here: the device's own, not looked at yet, in the memory or replaced by a later one, one of two
# versions that do not know each other, of a newer format, of a project that is not shared here, not usable.
EntryState = Literal["own", "new", "applied", "conflict", "later", "held", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """`device` is this machine's id in the space, `published` the last of its entries that the transport has, and
    `projects` are the identities of the projects that are shared; empty for all. Keys are never in the database."""

    id: str
    name: str
    kind: SpaceKind
    device: str
    transport: str
    projects: tuple[str, ...] = ()
    epoch: int = 0
    created_at: int
    published: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCounts:
    """The log of one device as it is stored here. `emptied` entries have lost their text to a later change."""

    device: str
    head: int
    emptied: int
    states: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Two versions of an item, made by devices that did not know of each other's. The first is in the memory."""

    kind: str
    row_id: int | None
    device: str
    body: bytes
    other_device: str
    other_body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemState:
    """What the logs say about an item: its newest version and the entry that has it.

    `state` is `live`, `withdrawn` or `deleted`. `content` is the hash of the row as it was last collected or applied.
    `heads` are the hashes of the entries that no other entry replaces.
    """

    item_hash: str
    kind: str
    row_id: int | None
    state: str
    version: int
    at: int
    device: str
    idx: int
    generation: int
    content: str
    heads: tuple[str, ...] = ()
    deletion_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRow:
    """A row that changed since it was last collected, and what it holds now. `record` is None if the row is gone."""

    seq: int
    kind: str
    row_id: int
    project_id: int | None
    record: ContentRecord | None
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """An entry to append, and what it says: `content` is the hash of the row that it was made of."""

    body: bytes
    item_hash: str
    version: int
    at: int
    parents: tuple[str, ...] = ()
    state: str = "live"
    content: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEntry:
    """A foreign entry that was not applied yet."""

    device: str
    idx: int
    body: bytes


class SpaceStore(Protocol):
    """Spaces, logs, items and the queue of changed rows."""

    # --- spaces -------------------------------------------------------------------------------------------------------

    def create_space(self, space: Space) -> None:
        """Store a space and queue all of the memory for collection. Raise `InvalidRequest` if the id or name is used."""

    def get_space(self, id_or_name: str) -> Space:
        """Return the space; raise `NotFound` if there is none."""

    def list_spaces(self) -> list[Space]:
        """List the spaces, oldest first."""

    def leave_space(self, space_id: str) -> None:
        """Remove the space, its logs and everything else about it. The memory stays as it is."""

    def select_projects(self, space_id: str, identities: Sequence[str]) -> None:
        """Set which projects are shared; empty for all."""

    def set_transport(self, space_id: str, transport: str) -> None:
        """Set where the space is exchanged."""

    def set_epoch(self, space_id: str, epoch: int) -> None:
        """Set the number of the space's key."""

    # --- logs ---------------------------------------------------------------------------------------------------------

    def heads(self, space_id: str) -> dict[str, int]:
        """Return the index of the last entry of every device, as stored here, this device's own included."""

    def read_log(self, space_id: str, device: str, *, after: int, limit: int) -> list[tuple[int, bytes]]:
        """Return the next entries of a device. An emptied entry has the body b""."""

    def append_own(self, space_id: str, bodies: Sequence[bytes]) -> int:
        """Append entries to the log of this device. Return the new head."""

    def append_foreign(self, space_id: str, device: str, *, after: int, bodies: Sequence[bytes]) -> int:
        """Append entries of another device, the first with index `after` + 1. Return the new head.

        Entries that are stored already are ignored. Raises `LogGap` if entries are missing before the first, and
        `LogDiffers` if an entry differs from the one that is stored under its index: two writers, or a damaged log.
        """

    def mark_published(self, space_id: str, head: int) -> None:
        """Record that the transport has this device's entries up to this index."""

    def confirm_published(self, space_id: str, *, after: int, bodies: Sequence[bytes], new_device: str) -> str:
        """Compare what the transport has of this device's log after an index with the log here. Return the device id.

        If they agree, the entries count as published. If the transport has other or more entries, this database is
        older than its published log, as after a restored backup, or another machine writes with the same id. This
        device then continues as `new_device`: its unpublished entries move to the new log, and the old one is from
        then on read like that of another device, with these entries as its continuation.
        """

    def list_emptied(self, space_id: str, device: str) -> list[int]:
        """Return the indexes of the entries of a device that have no text any more."""

    def count_logs(self, space_id: str) -> list[LogCounts]:
        """Count the entries of every device by what became of them."""

    def count_refused(self, space_id: str) -> dict[str, int]:
        """Count the entries that could not be applied, by reason."""

    def list_conflicts(self, space_id: str) -> list[Conflict]:
        """List versions that lost to another one without being replaced by it."""

    # --- collecting ---------------------------------------------------------------------------------------------------

    def read_changes(self, space_id: str, *, limit: int) -> list[ChangedRow]:
        """Return the next rows that changed since the last collection."""

    def find_item(self, space_id: str, kind: str, row_id: int) -> ItemState | None:
        """Return the item to which a row is bound."""

    def get_item(self, space_id: str, item_hash: str) -> ItemState | None:
        """Return what the logs say about an item."""

    def is_deleted_by_user(self, space_id: str, item_hash: str) -> tuple[bool, bool]:
        """Return whether a tombstone of this device covers the item, and whether that deletion was an erasure."""

    def append_entry(self, space_id: str, entry: NewEntry, *, kind: str, row_id: int | None) -> int:
        """Append an entry about an item to the log of this device. Return its index."""

    def finish_changes(self, space_id: str, *, upto: int) -> None:
        """Record that the changes up to this one were collected, and drop those that every space collected."""

    def set_held_back(self, space_id: str, project_ids: Collection[int]) -> None:
        """Set the projects that are not shared, and queue the rows of those that are shared again."""
