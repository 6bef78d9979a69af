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
    """What the logs say about an item: the newest version, the entry that has it and the row that has it here.

    Version 0: only the row is known, because something that belongs to it arrived first.

    `state` is `live`, `withdrawn` or `deleted`. `dirty`: the row changed since it was collected or applied, and the text
    of the item's entries has been dropped. `heads` are the hashes of the entries that no other entry replaces.
    `erased`: the deletion can't be undone. `deletion_id` is the deletion here that another device asked for; 0: the row is still to be deleted.
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
    dirty: bool
    erased: bool
    deletion_id: int | None
    heads: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRow:
    """A row that is noted since the last collection. `record` is what it holds now; None if the row is gone.
    `settled`: the row is as it was collected or received, and `record` is not read."""

    seq: int
    kind: str
    row_id: int
    settled: bool
    project_id: int | None
    record: ContentRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """An entry of a log and what it says. `content` is the hash of its record, or `TOMBSTONE_CONTENT`."""

    body: bytes
    item_hash: str
    version: int
    at: int
    parents: tuple[str, ...] = ()
    state: str = "live"
    content: str = ""
    generation: int = 0
    erased: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEntry:
    """An entry of another device that was not applied yet."""

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

    def find_difference(self, space_id: str, device: str, *, after: int, bodies: Sequence[bytes]) -> int:
        """Return the first index under which the stored log has another entry than these; 0 if there is none."""

    def list_emptied(self, space_id: str, device: str) -> list[int]:
        """Return the indexes of the entries of a device that have no text any more."""

    def count_logs(self, space_id: str) -> list[LogCounts]:
        """Count the entries of every device by what became of them."""

    def count_refused(self, space_id: str) -> dict[str, int]:
        """Count the entries that could not be applied, by reason."""

    def list_conflicts(self, space_id: str) -> list[Conflict]:
        """List versions that lost to another one without being replaced by it."""

    # --- rows to collect ----------------------------------------------------------------------------------------------

    def read_changes(self, space_id: str, *, limit: int) -> list[ChangedRow]:
        """Return the next rows that changed since the last collection."""

    def is_current(self, change: ChangedRow) -> bool:
        """Return whether a row has not changed again since the change was read."""

    def finish_changes(self, space_id: str, *, upto: int) -> None:
        """Record that the changes up to this one were collected, and drop those that every space collected."""

    def get_held_back(self, space_id: str) -> list[int]:
        """Return the ids of the projects whose rows were not collected."""

    def set_held_back(self, space_id: str, project_ids: Collection[int]) -> None:
        """Set the projects that are not shared, and queue what waits for those that are shared again."""

    # --- items --------------------------------------------------------------------------------------------------------

    def find_item(self, space_id: str, kind: str, row_id: int) -> ItemState | None:
        """Return the newest item to which a row is bound."""

    def get_item(self, space_id: str, item_hash: str) -> ItemState | None:
        """Return what the logs say about an item."""

    def find_own_deletion(self, space_id: str, item_hash: str) -> tuple[bool, bool]:
        """Return whether a tombstone of this machine covers the item, and whether that deletion was an erasure."""

    def get_marks(self, space_id: str, item_hash: str) -> tuple[list[str], int]:
        """Return the keyed hashes by which a tombstone names the item here, and when its row was made."""

    def is_forgotten(self, row_id: int) -> bool:
        """Return whether a person deleted an observation, which is not so if it was merged into another one."""

    def append_entry(self, space_id: str, entry: NewEntry, *, kind: str, row_id: int | None) -> int:
        """Append an entry about an item to the log of this device, and bind the item to its row. Return its index."""

    def note_entry(self, space_id: str, device: str, idx: int, entry: NewEntry, *, state: str) -> None:
        """Record what an entry of a log says, and which entries it replaces."""

    def set_item(self, space_id: str, device: str, idx: int, entry: NewEntry, *, kind: str, row_id: int | None) -> None:
        """Record that an entry has the newest version of its item, and bind the item to its row."""

    def unbind_row(self, space_id: str, item_hash: str) -> None:
        """Unbind an item from its row while the row is replaced by a version from a log, so that its text stays there."""

    def bind_row(self, space_id: str, item_hash: str, *, kind: str, row_id: int | None) -> None:
        """Bind an item to the row that has it."""

    def set_deletion(self, space_id: str, item_hash: str, deletion_id: int) -> None:
        """Record the deletion here that another machine's tombstone asked for."""

    def list_doomed(self, space_id: str, *, limit: int) -> list[ItemState]:
        """Return items that another machine deleted and whose row is still here."""

    def list_live_items(self, space_id: str, *, after: str, limit: int) -> list[tuple[ItemState, bytes]]:
        """Return the next items by hash, each with the body of its newest version."""

    def undo_deletion(self, space_id: str, item: ItemState, *, now: int) -> None:
        """Undo a deletion that another machine asked for and has undone: the content may be stored here again."""

    def has_row(self, kind: str, row_id: int) -> bool:
        """Return whether a row is there and not deleted."""

    def settle_conflicts(self, space_id: str, item_hash: str) -> int:
        """Find the versions of an item that no version replaces and that say something else than the newest. Return
        how many there are, the newest not counted."""

    def drop_body(self, space_id: str, device: str, idx: int) -> None:
        """Drop the text of one entry."""

    def drop_bodies(self, space_id: str, item_hash: str) -> None:
        """Drop the text of every version of an item. A tombstone has none, and stays."""

    # --- entries of other devices -------------------------------------------------------------------------------------

    def list_pending(self, space_id: str, *, limit: int, states: Sequence[str] = ("new",)) -> list[PendingEntry]:
        """Return entries of other devices that were not applied yet, in the order in which they arrived."""

    def set_state(self, space_id: str, device: str, idx: int, state: str, *, reason: str = "") -> None:
        """Record what became of an entry of another device."""

    # --- records ------------------------------------------------------------------------------------------------------

    def find_row(self, record: ContentRecord) -> int | None:
        """Return the row that has this record here, by the names that are the same on every machine."""

    def find_project_id(self, kind: str, row_id: int) -> int | None:
        """Return the id of a row's project, or None if the row is not there."""

    def find_deletion(self, record: ContentRecord) -> tuple[bool, bool]:
        """Return whether a tombstone of this machine names the record, and whether that deletion was an erasure."""

    def add_record(self, record: ContentRecord, *, now: int) -> tuple[str, int | None]:
        """Add a record that has no row here. Return the outcome, as an import does, and the row that has it now."""

    def replace_record(self, record: ContentRecord, row_id: int, *, now: int) -> str:
        """Replace the content of a row by a record that counts more. Return the outcome, as an import does."""

    def remove_row(self, kind: str, row_id: int) -> None:
        """Remove a row that another machine's program replaced. A session or a project stays."""
