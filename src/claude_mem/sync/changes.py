"""Collect what changed in the memory as entries of this device's log.

Triggers note each changed row, but only while there is a space. A collection reads the noted rows in pages, cleans them
as imports are cleaned, and appends the entries and its own position in one transaction, so that a crash neither loses
a change nor reports it twice. What arrived from another device is bound to its item already and is not reported again
until the row changes here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from claude_mem.config import Config
from claude_mem.domain import ids
from claude_mem.domain.export_format import ContentRecord, record_kind
from claude_mem.domain.log_entries import (
    MAX_ENTRY_BYTES,
    TOMBSTONE_CONTENT,
    LogEntry,
    content_hash,
    encode_entry,
    hash_item,
    item_name,
)
from claude_mem.domain.text import MAX_TIME_MS
from claude_mem.storage.base import Database, Transaction
from claude_mem.storage.spaces import ChangedRow, ItemState, NewEntry, Space
from claude_mem.system.failpoints import failpoint
from claude_mem.system.project_folders import identify_project, is_excluded, is_existing_folder
from claude_mem.transfer.import_ import clean_as_configured, is_empty

PAGE = 200
MAX_PARENTS = 100
# A person's decisions leave a machine as they are; only the text is cleaned. The other machine judges them again.
_DECISIONS = ("trust", "verdict", "pinned", "kept_at", "closing_trust")


@dataclass(slots=True)
class Collected:
    """The number of entries by kind, and of rows that are not shared, by reason. `more`: there are further pages."""

    entries: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    more: bool = False


async def collect_all(db: Database, space_id: str, *, item_key: bytes, config: Config) -> Collected:
    """Collect everything that changed until now."""
    total = Collected(more=True)
    while total.more:
        page = await collect(db, space_id, item_key=item_key, config=config)
        total.entries += page.entries
        total.skipped += page.skipped
        total.more = page.more
    return total


async def collect(db: Database, space_id: str, *, item_key: bytes, config: Config, limit: int = PAGE) -> Collected:
    """Collect one page of changes. `item_key` is derived from the first key of the space (`hash_item`)."""
    space = await db.read(lambda tx: tx.spaces.get_space(space_id))
    await _update_held_back(db, space, config)
    changes = await db.read(lambda tx: tx.spaces.read_changes(space_id, limit=limit))
    if not changes:
        return Collected()
    held_back = await find_held_back(db, space, {row.project_id for row in changes if row.project_id}, config)
    clean_records = await asyncio.to_thread(
        lambda: [
            _clean(row.record, config) if row.record and row.project_id not in held_back else None for row in changes
        ]
    )
    failpoint("space.read")
    page = _Page(space_id, item_key, held_back)
    result = await db.write(lambda tx: page.append(tx, list(zip(changes, clean_records, strict=True))))
    result.more = len(changes) == limit
    failpoint("space.collected")
    return result


def _clean(record: ContentRecord, config: Config) -> ContentRecord:
    """Apply the rules of today: a row may be older than a rule."""
    clean = clean_as_configured(record, config, untrusted=False)
    decisions = {name: getattr(record, name) for name in _DECISIONS if name in record.__struct_fields__}
    return msgspec.structs.replace(clean, **decisions)


# --- projects that are not shared ------------------------------------------------------------------------------------


async def _update_held_back(db: Database, space: Space, config: Config) -> None:
    """Queue again what waits for a project that is shared now."""
    before = await db.read(lambda tx: tx.spaces.get_held_back(space.id))
    still = await find_held_back(db, space, before, config) if before else frozenset[int]()
    if still != frozenset(before):
        await db.write(lambda tx: tx.spaces.set_held_back(space.id, still))


async def find_held_back(db: Database, space: Space, project_ids: Collection[int], config: Config) -> frozenset[int]:
    """Return those of the projects that are not selected for the space, or are excluded or switched off here."""
    projects = await db.read(
        lambda tx: {
            project_id: (tx.memory.list_project_aliases(project_id), _folders(tx, project_id))
            for project_id in project_ids
        }
    )
    return await asyncio.to_thread(
        lambda: frozenset(
            project_id
            for project_id, (identities, folders) in projects.items()
            if (space.projects and not {*space.projects} & {*identities})
            or any(_is_switched_off(folder, config) for folder in folders)
        )
    )


def _folders(tx: Transaction, project_id: int) -> set[str]:
    project = tx.memory.find_project(project_id)
    root = {project.root} if project and project.root else set[str]()
    return {*tx.memory.list_project_folders(project_id), *root}


def _is_switched_off(folder: str, config: Config) -> bool:
    if is_excluded(folder, config.excluded_projects):
        return True
    return is_existing_folder(folder) and not identify_project(folder, excluded=config.excluded_projects).enabled


# --- appending -------------------------------------------------------------------------------------------------------


class _Page:
    """Appends the entries of one page of changes, in one transaction."""

    def __init__(self, space_id: str, item_key: bytes, held_back: frozenset[int]) -> None:
        self.space_id, self.item_key, self.held_back = space_id, item_key, held_back
        self.now = min(ids.now_ms(), MAX_TIME_MS)
        self.result = Collected()

    def append(self, tx: Transaction, changes: Sequence[tuple[ChangedRow, ContentRecord | None]]) -> Collected:
        for change, record in changes:
            if change.settled or not tx.spaces.is_current(change):
                continue  # a row that changed again is noted again, further on
            if change.record is None:
                self._append_removal(tx, change)
            elif change.project_id in self.held_back:
                self.result.skipped["project not shared"] += 1
            elif record is None or is_empty(record):
                self.result.skipped["private"] += 1
            else:
                self._append_record(tx, change, record)
        tx.spaces.finish_changes(self.space_id, upto=changes[-1][0].seq)
        if self.held_back:
            before = tx.spaces.get_held_back(self.space_id)
            tx.spaces.set_held_back(self.space_id, {*before, *self.held_back})
        failpoint("space.appended")
        return self.result

    # --- a row that is there ------------------------------------------------------------------------------------------

    def _append_record(self, tx: Transaction, change: ChangedRow, record: ContentRecord) -> None:
        item = tx.spaces.find_item(self.space_id, change.kind, change.row_id)
        if item is not None and item.state == "live" and not item.dirty:
            return
        generation = item.generation if item else 0
        if item is not None and item.state == "deleted":
            if item.deletion_id == 0:
                return  # not deleted here yet
            generation += 1  # the deletion was undone: what a tombstone names never comes back under the same name
        if item is None or item.state == "deleted":
            item = self._find_by_name(tx, record, generation)
            if item is not None and item.state == "deleted":
                self._doom(tx, change, item)
                return
            if item is not None and item.row_id not in (None, change.row_id):
                self.result.skipped["two rows of one name"] += 1
                return
        self._append(tx, record, item, generation, row_id=change.row_id)

    def _doom(self, tx: Transaction, change: ChangedRow, item: ItemState) -> None:
        """Note that another machine deleted what this row has. It is deleted when entries are applied."""
        tx.spaces.bind_row(self.space_id, item.item_hash, kind=change.kind, row_id=change.row_id)
        tx.spaces.set_deletion(self.space_id, item.item_hash, 0)
        self.result.skipped["deleted on another machine"] += 1

    def _find_by_name(self, tx: Transaction, record: ContentRecord, generation: int) -> ItemState | None:
        return tx.spaces.get_item(self.space_id, hash_item(self.item_key, item_name(record), generation))

    def _append(
        self, tx: Transaction, record: ContentRecord, item: ItemState | None, generation: int, *, row_id: int
    ) -> None:
        parents = _parents(item)
        item_hash = item.item_hash if item else hash_item(self.item_key, item_name(record), generation)
        entry = LogEntry(
            kind="record", at=self.now, item=item_hash, version=1 + (item.version if item else 0),
            parents=parents, generation=generation, record=record,
        )  # fmt: skip
        body = encode_entry(entry)
        if len(body) > MAX_ENTRY_BYTES:
            self.result.skipped["too large"] += 1
            return
        new = NewEntry(
            body=body, item_hash=item_hash, version=entry.version, at=self.now, parents=parents,
            content=content_hash(record), generation=generation,
        )  # fmt: skip
        self._write(tx, new, kind=record_kind(record), row_id=row_id)
        self.result.entries[record_kind(record)] += 1

    # --- a row that is gone -------------------------------------------------------------------------------------------

    def _append_removal(self, tx: Transaction, change: ChangedRow) -> None:
        """Append a tombstone if a person deleted the row, or a withdrawal if a program replaced it."""
        item = tx.spaces.find_item(self.space_id, change.kind, change.row_id)
        if item is None or change.kind == "project":
            return
        deleted, erased = tx.spaces.find_own_deletion(self.space_id, item.item_hash)
        deleted = deleted or (change.kind == "observation" and tx.spaces.is_forgotten(change.row_id))
        is_news = item.state == "live" or (item.state == "deleted" and erased and not item.erased)
        if not is_news:
            return
        new = make_removal(item, deleted=deleted, erased=erased, now=self.now)
        tx.spaces.drop_bodies(self.space_id, item.item_hash)
        self._write(tx, new, kind=change.kind, row_id=change.row_id)
        self.result.entries["tombstone" if deleted else "withdrawal"] += 1

    def _write(self, tx: Transaction, entry: NewEntry, *, kind: str, row_id: int) -> None:
        tx.spaces.append_entry(self.space_id, entry, kind=kind, row_id=row_id)
        if entry.version > 1:
            tx.spaces.settle_conflicts(self.space_id, entry.item_hash)


def make_removal(item: ItemState, *, deleted: bool, erased: bool, now: int) -> NewEntry:
    """Return the entry that removes an item: a tombstone if a person deleted it, else a withdrawal."""
    kind: Literal["tombstone", "withdrawal"] = "tombstone" if deleted else "withdrawal"
    entry = LogEntry(
        kind=kind, at=now, item=item.item_hash, version=item.version + 1, parents=_parents(item),
        generation=item.generation, erased=erased,
    )  # fmt: skip
    return NewEntry(
        body=encode_entry(entry), item_hash=item.item_hash, version=entry.version, at=now, parents=entry.parents,
        generation=item.generation, content=TOMBSTONE_CONTENT if deleted else "",
        state="deleted" if deleted else "withdrawn", erased=erased,
    )  # fmt: skip


def _parents(item: ItemState | None) -> tuple[str, ...]:
    return item.heads[:MAX_PARENTS] if item else ()
