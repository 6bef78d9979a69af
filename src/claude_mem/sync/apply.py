"""Apply what other devices say: their entries become memory here.

An entry is cleaned as an import is, after it was received, whatever its device did before sending it. The order in
which entries arrive does not matter: which version of an item counts follows from the entries alone, a version that
loses without having been replaced stays visible as a conflict, and after a tombstone no version counts. Each page is
applied in one transaction, so that a crash repeats a page at most, and applying it again changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from claude_mem import hook
from claude_mem.config import Config
from claude_mem.curate.erasure import shred_file
from claude_mem.domain import ids
from claude_mem.domain.errors import UnreadableEvent
from claude_mem.domain.export_format import (
    ContentRecord,
    ProjectRecord,
    SessionRecord,
    project_from_identity,
    record_kind,
)
from claude_mem.domain.log_entries import (
    DROPPED,
    NEWER,
    TOMBSTONE_CONTENT,
    LogEntry,
    content_hash,
    decode_entry,
    hash_item,
    item_name,
    session_name,
    version_order,
)
from claude_mem.storage.base import Database, Transaction
from claude_mem.storage.files import DatabaseFiles
from claude_mem.storage.records import AffectedRows, Tombstone
from claude_mem.storage.spaces import ItemState, NewEntry, PendingEntry, Space
from claude_mem.sync.changes import collect_all, find_held_back, make_removal
from claude_mem.system.failpoints import failpoint
from claude_mem.transfer.import_ import clamp_times, clean_as_configured, is_empty

log = logging.getLogger(__name__)

PAGE = 200
MAX_IDLE_ROUNDS = 3  # rounds in which every entry waits for a change here to be collected
NOT_SHARED, DELETED_HERE, PRIVATE, WAITS = "project not shared here", "deleted here", "private", "not shared from here"
_ROWS = {"prompt": "prompts", "summary": "summaries", "observation": "observations", "session": "whole_sessions"}


@dataclass(slots=True)
class Applied:
    """What became of the entries: `outcomes` by outcome, `refused` by reason, and the number of versions that lost
    without having been replaced. `projects` are those of the changed rows. `erasures` are deletions that remove more
    than rows: backups and logs are still to be erased (`DeletionService.complete`)."""

    outcomes: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    conflicts: int = 0
    projects: set[int] = field(default_factory=set)
    erasures: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """An entry that was decoded and cleaned, or the reason why it can't be applied."""

    pending: PendingEntry
    entry: LogEntry | None = None
    record: ContentRecord | None = None
    cleaned: bool = False  # cleaning removed something: the text of the entry is not kept
    problem: str = ""


async def apply_pending(
    db: Database, space_id: str, *, item_key: bytes, config: Config, retry_held: bool = False
) -> Applied:
    """Apply all entries that were received. Own changes are collected first, so that both have versions to compare.

    `retry_held` looks again at entries of projects that were not shared here, as after a change of the settings.
    """
    applied, idle = Applied(), 0
    await _requeue(db, space_id, retry_held=retry_held)
    while True:
        await collect_all(db, space_id, item_key=item_key, config=config)
        await _delete_doomed(db, space_id, applied, config)
        pending = await db.read(lambda tx: tx.spaces.list_pending(space_id, limit=PAGE))
        if not pending:
            break
        space = await db.read(lambda tx: tx.spaces.get_space(space_id))
        prepared = await _prepare(db, space, pending, config)
        revived = await _revoke_undone_deletions(db, space_id, item_key, prepared, config)
        page = _Page(space, item_key, applied, give_up=idle >= MAX_IDLE_ROUNDS)
        waiting = await db.write(page.apply, prepared, revived)
        failpoint("space.applied")
        idle = idle + 1 if waiting == len(pending) else 0
    await _finish(db, space_id, applied)
    return applied


async def _requeue(db: Database, space_id: str, *, retry_held: bool) -> None:
    """Queue again the entries that this version can read now."""
    states = ("later", "held") if retry_held else ("later",)
    waiting = await db.read(lambda tx: tx.spaces.list_pending(space_id, limit=1_000_000, states=states))
    readable = [one for one in waiting if _decode(one)[1] != NEWER]

    def requeue(tx: Transaction) -> None:
        for one in readable:
            tx.spaces.set_state(space_id, one.device, one.idx, "new")

    if readable:
        await db.write(requeue)


async def _finish(db: Database, space_id: str, applied: Applied) -> None:
    conflicts = await db.read(lambda tx: tx.spaces.list_conflicts(space_id))
    applied.conflicts = len(conflicts)

    def render(tx: Transaction) -> None:
        now = ids.now_ms()
        for project_id in applied.projects.intersection(tx.memory.list_projects_with_folders()):
            tx.journal.enqueue_job("render", f"{project_id}.space.{now}", now=now)

    if applied.projects:
        await db.write(render)


# --- reading entries -------------------------------------------------------------------------------------------------


def _decode(pending: PendingEntry) -> tuple[LogEntry | None, str]:
    try:
        return decode_entry(pending.body), ""
    except UnreadableEvent as problem:
        return None, problem.reason


async def _prepare(db: Database, space: Space, pending: Sequence[PendingEntry], config: Config) -> list[_Prepared]:
    prepared = await asyncio.to_thread(lambda: [_prepare_one(one, config) for one in pending])
    refs = {one.record.project for one in prepared if one.record is not None}
    not_shared = await _refs_not_shared(db, space, refs, config)
    return [
        _Prepared(pending=one.pending, entry=one.entry, problem=NOT_SHARED)
        if one.record is not None and one.record.project in not_shared
        else one
        for one in prepared
    ]


def _prepare_one(pending: PendingEntry, config: Config) -> _Prepared:
    entry, problem = _decode(pending)
    if entry is None or entry.record is None:
        return _Prepared(pending=pending, entry=entry, problem=problem)
    clean = clean_as_configured(entry.record, config, untrusted=False)
    if is_empty(clean):
        return _Prepared(pending=pending, entry=entry, problem=PRIVATE)
    now = ids.now_ms()
    record = clamp_times(clean, (now, min(entry.at, now)))
    return _Prepared(pending=pending, entry=entry, record=record, cleaned=_has_less(clean, entry.record))


def _has_less(clean: ContentRecord, record: ContentRecord) -> bool:
    """Return whether cleaning changed a text, not only a decision about it."""
    decisions = {"trust", "verdict", "pinned", "kept_at", "closing_trust"}
    return any(
        getattr(clean, name) != getattr(record, name) for name in record.__struct_fields__ if name not in decisions
    )


async def _refs_not_shared(db: Database, space: Space, refs: set[str], config: Config) -> set[str]:
    """Return the projects, by their identity in the entries, that are not shared with this machine."""
    rows = await db.read(lambda tx: {ref: tx.spaces.find_row(project_from_identity(ref)) for ref in refs})
    held_back = await find_held_back(db, space, {row_id for row_id in rows.values() if row_id is not None}, config)
    return {
        ref
        for ref, row_id in rows.items()
        if (row_id in held_back if row_id is not None else bool(space.projects) and ref not in space.projects)
    }


# --- applying a page -------------------------------------------------------------------------------------------------


class _Page:
    """Applies one page of entries, in one transaction. Tombstones of items with a row only mark them: deleting writes
    the tombstone file first (`_delete_doomed`)."""

    def __init__(self, space: Space, item_key: bytes, applied: Applied, *, give_up: bool) -> None:
        self.space_id, self.item_key, self.applied, self.give_up = space.id, item_key, applied, give_up
        self.now = ids.now_ms()

    def apply(self, tx: Transaction, prepared: Sequence[_Prepared], revived: Sequence[ItemState]) -> int:
        """Return the number of entries that wait for a change here to be collected."""
        waiting = 0
        for item in revived:
            tx.spaces.undo_deletion(self.space_id, item, now=self.now)
        for one in prepared:
            if one.problem or one.entry is None:
                self._set_aside(tx, one)
            elif one.entry.kind == "tombstone":
                self._apply_tombstone(tx, one.pending, one.entry)
            elif not self._apply_version(tx, one, one.entry):
                waiting += 1
                if self.give_up:
                    self._set_state(tx, one.pending, "held", WAITS)
        return waiting

    def _set_aside(self, tx: Transaction, one: _Prepared) -> None:
        if one.problem == DROPPED:
            self._set_state(tx, one.pending, "applied")
        elif one.problem in (NEWER, NOT_SHARED):
            self._set_state(tx, one.pending, "later" if one.problem == NEWER else "held", one.problem)
        else:
            self._set_state(tx, one.pending, "refused", one.problem or "unknown kind")
            tx.spaces.drop_body(self.space_id, one.pending.device, one.pending.idx)

    def _set_state(self, tx: Transaction, pending: PendingEntry, state: str, reason: str = "") -> None:
        tx.spaces.set_state(self.space_id, pending.device, pending.idx, state, reason=reason)
        if reason:
            self.applied.refused[reason] += 1

    # --- versions -----------------------------------------------------------------------------------------------------

    def _apply_version(self, tx: Transaction, one: _Prepared, entry: LogEntry) -> bool:
        """Apply a record or a withdrawal. Return False if it must wait for a change here to be collected."""
        item, pending = tx.spaces.get_item(self.space_id, entry.item), one.pending
        if item is not None and item.state == "deleted":
            self._note(tx, pending, entry)
            tx.spaces.drop_body(self.space_id, pending.device, pending.idx)
            self.applied.outcomes["deleted before"] += 1
            return True
        if item is not None and _order(item) > version_order(entry.version, entry.at, pending.device):
            self._note(tx, pending, entry)
            tx.spaces.settle_conflicts(self.space_id, entry.item)
            self.applied.outcomes["older"] += 1
            return True
        if item is not None and item.dirty:
            return False
        if one.record is None:
            return self._withdraw(tx, pending, entry, item)
        return self._store(tx, one, entry, one.record, item)

    def _withdraw(self, tx: Transaction, pending: PendingEntry, entry: LogEntry, item: ItemState | None) -> bool:
        kind = item.kind if item else ""
        if item is not None and item.row_id is not None:
            self._note_project(tx, kind, item.row_id)
            tx.spaces.unbind_row(self.space_id, entry.item)
            tx.spaces.remove_row(kind, item.row_id)
        self._take(tx, pending, entry, kind=kind, row_id=None, is_new=item is None)
        self.applied.outcomes["withdrawn"] += 1
        return True

    def _store(
        self, tx: Transaction, one: _Prepared, entry: LogEntry, record: ContentRecord, item: ItemState | None
    ) -> bool:
        kind, row_id = record_kind(record), item.row_id if item else None
        if row_id is None:
            row_id = tx.spaces.find_row(record)
            if row_id is not None and not tx.spaces.has_row(kind, row_id):
                row_id = None  # deleted here, before anything was said about it
            other = tx.spaces.find_item(self.space_id, kind, row_id) if row_id is not None else None
            if row_id is not None and other is None and kind != "project":
                return False  # a row that this device has not said anything about yet
            if other is not None and other.state != "deleted":
                return self._store_alias(tx, one, entry, record)
        parents = self._missing_parents(tx, record)
        if item is not None:
            tx.spaces.unbind_row(self.space_id, entry.item)
        if row_id is not None and tx.spaces.has_row(kind, row_id):
            outcome = tx.spaces.replace_record(record, row_id, now=self.now)
        else:
            outcome, row_id = tx.spaces.add_record(record, now=self.now)
        self._bind_parents(tx, parents)
        self._take(tx, one.pending, entry, kind=kind, row_id=row_id, is_new=item is None)
        if outcome == "forgotten":
            self._set_state(tx, one.pending, "refused", DELETED_HERE)
            self._announce_deletion(tx, record, entry)
        if outcome == "forgotten" or one.cleaned:
            tx.spaces.drop_body(self.space_id, one.pending.device, one.pending.idx)
        if outcome != "forgotten":
            self.applied.outcomes[outcome] += 1
            self._note_project(tx, kind, row_id)
        return True

    def _announce_deletion(self, tx: Transaction, record: ContentRecord, entry: LogEntry) -> None:
        """Tell the other machines that the person deleted the item here, before it was known there: before the
        space, or after a backup that was restored since."""
        deleted, erased = tx.spaces.find_deletion(record)
        item = tx.spaces.get_item(self.space_id, entry.item)
        if deleted and item is not None:
            removal = make_removal(item, deleted=True, erased=erased, now=self.now)
            tx.spaces.append_entry(self.space_id, removal, kind=record_kind(record), row_id=None)
            tx.spaces.drop_bodies(self.space_id, entry.item)

    def _note_project(self, tx: Transaction, kind: str, row_id: int | None) -> None:
        if row_id is not None and (project_id := tx.spaces.find_project_id(kind, row_id)) is not None:
            self.applied.projects.add(project_id)

    def _store_alias(self, tx: Transaction, one: _Prepared, entry: LogEntry, record: ContentRecord) -> bool:
        """Store what two machines named differently before they knew each other: the row has one name already."""
        if isinstance(record, ProjectRecord):
            tx.spaces.add_record(record, now=self.now)  # adds the identities
        self._take(tx, one.pending, entry, kind=record_kind(record), row_id=None, is_new=False)
        self.applied.outcomes["known by another name"] += 1
        return True

    def _take(
        self, tx: Transaction, pending: PendingEntry, entry: LogEntry, *, kind: str, row_id: int | None, is_new: bool
    ) -> None:
        """Record that this entry has the newest version of its item, which may have had none before (`is_new`)."""
        new = self._note(tx, pending, entry)
        tx.spaces.set_item(self.space_id, pending.device, pending.idx, new, kind=kind, row_id=row_id)
        if entry.version > 1 or not is_new:
            tx.spaces.settle_conflicts(self.space_id, entry.item)

    def _note(self, tx: Transaction, pending: PendingEntry, entry: LogEntry) -> NewEntry:
        content = content_hash(entry.record) if entry.record else ""
        states = {"record": "live", "withdrawal": "withdrawn", "tombstone": "deleted"}
        new = NewEntry(
            body=pending.body, item_hash=entry.item, version=entry.version, at=entry.at, parents=entry.parents,
            content=TOMBSTONE_CONTENT if entry.kind == "tombstone" else content, generation=entry.generation,
            state=states[entry.kind], erased=entry.erased,
        )  # fmt: skip
        tx.spaces.note_entry(self.space_id, pending.device, pending.idx, new, state="applied")
        return new

    # --- what a record belongs to -------------------------------------------------------------------------------------

    def _missing_parents(self, tx: Transaction, record: ContentRecord) -> list[ContentRecord]:
        """Return the project and the session of a record that are not here yet. Storing the record adds them, but what
        they are, another machine says."""
        if isinstance(record, ProjectRecord):
            return []
        parents: list[ContentRecord] = [project_from_identity(record.project)]
        if not isinstance(record, SessionRecord) and record.host is not None and record.session is not None:
            parents.append(
                SessionRecord(
                    host=record.host, session=record.session, project=record.project,
                    started_at=record.created_at, last_event_at=record.created_at,
                )
            )  # fmt: skip
        return [parent for parent in parents if tx.spaces.find_row(parent) is None]

    def _bind_parents(self, tx: Transaction, parents: Sequence[ContentRecord]) -> None:
        for parent in parents:
            name = session_name(parent.host, parent.session) if isinstance(parent, SessionRecord) else item_name(parent)
            item_hash, row_id = hash_item(self.item_key, name), tx.spaces.find_row(parent)
            if row_id is not None and tx.spaces.get_item(self.space_id, item_hash) is None:
                unknown = NewEntry(body=b"", item_hash=item_hash, version=0, at=0)
                tx.spaces.set_item(self.space_id, "", 0, unknown, kind=record_kind(parent), row_id=row_id)

    # --- tombstones ---------------------------------------------------------------------------------------------------

    def _apply_tombstone(self, tx: Transaction, pending: PendingEntry, entry: LogEntry) -> None:
        """A tombstone wins, whatever the versions say. Nothing of the item's text stays in any log here."""
        item = tx.spaces.get_item(self.space_id, entry.item)
        new = self._note(tx, pending, entry)
        if item is None or item.state != "deleted" or (entry.erased and not item.erased):
            kind, row_id = (item.kind, item.row_id) if item else ("", None)
            tx.spaces.set_item(self.space_id, pending.device, pending.idx, new, kind=kind, row_id=row_id)
            tx.spaces.set_deletion(self.space_id, entry.item, 0)
            self.applied.outcomes["deleted"] += 1
        tx.spaces.drop_bodies(self.space_id, entry.item)
        tx.spaces.settle_conflicts(self.space_id, entry.item)


def _order(item: ItemState) -> tuple[int, int, str]:
    return version_order(item.version, item.at, item.device)


# --- deletions -------------------------------------------------------------------------------------------------------


async def _delete_doomed(db: Database, space_id: str, applied: Applied, config: Config) -> None:
    """Delete the rows of items that another machine deleted, and keep them from coming back in any other way.

    The tombstones are written to the file before anything is deleted: after a crash in between, the next start deletes
    the rows by them.
    """
    while items := await db.read(lambda tx: tx.spaces.list_doomed(space_id, limit=PAGE)):
        now = ids.now_ms()
        for erase in (False, True):
            part = [item for item in items if item.erased is erase]
            if part:
                number = await _delete(db, space_id, part, applied, erase=erase, now=now, config=config)
                applied.erasures += [number] if erase else []


async def _delete(
    db: Database,
    space_id: str,
    items: Sequence[ItemState],
    applied: Applied,
    *,
    erase: bool,
    now: int,
    config: Config,
) -> int:
    """Delete the rows of these items. Return the id of the deletion. An erasure stays open: other copies remain."""
    number = await db.write(lambda tx: tx.deletions.begin_deletion(erased=erase, now=now))
    marks = await db.read(lambda tx: [tx.spaces.get_marks(space_id, item.item_hash) for item in items])
    new = [Tombstone(number, mark, 0, max(now, made_at), erase, now) for names, made_at in marks for mark in names]
    await asyncio.to_thread(DatabaseFiles(config).append_tombstones, new)
    failpoint("space.deleted")
    await _erase_cached_starts(db, items, applied, config)

    def delete(tx: Transaction) -> None:
        tx.deletions.insert_tombstones(new)
        for item in items:
            if item.row_id is not None and (tx.spaces.has_row(item.kind, item.row_id) or erase):
                row_ids: dict[str, Any] = {_ROWS[item.kind]: [item.row_id]}
                rows = AffectedRows(**row_ids)
                tx.deletions.delete_batch(rows, deletion_id=number, erase=erase, now=now)
            tx.spaces.set_deletion(space_id, item.item_hash, number)
            tx.spaces.bind_row(space_id, item.item_hash, kind=item.kind, row_id=item.row_id)
        if not erase:
            tx.deletions.finish_deletion(number, dict(Counter(item.kind for item in items)), now=now)

    await db.write(delete)
    return number


async def _erase_cached_starts(db: Database, items: Sequence[ItemState], applied: Applied, config: Config) -> None:
    """Erase cached start contexts before the rows, so that no session gets deleted content from the disk."""

    def find(tx: Transaction) -> tuple[set[int], set[str]]:
        maybe_ids = {tx.spaces.find_project_id(item.kind, item.row_id) for item in items if item.row_id is not None}
        project_ids = {project_id for project_id in maybe_ids if project_id is not None}
        return project_ids, {folder for one in project_ids for folder in tx.memory.list_project_folders(one)}

    project_ids, folders = await db.read(find)
    applied.projects |= project_ids
    for folder in folders:
        await asyncio.to_thread(shred_file, config.starts / hook.brief_filename(folder))


async def _revoke_undone_deletions(
    db: Database, space_id: str, item_key: bytes, prepared: Sequence[_Prepared], config: Config
) -> list[ItemState]:
    """Return the items whose deletion another machine has undone, after revoking their tombstones in the file."""
    former = [
        hash_item(item_key, item_name(one.entry.record), one.entry.generation - 1)
        for one in prepared
        if one.entry is not None and one.entry.record is not None and one.entry.generation
    ]
    former_items = await db.read(lambda tx: [tx.spaces.get_item(space_id, item_hash) for item_hash in former])
    items = [item for item in former_items if item is not None and item.state == "deleted" and item.deletion_id]
    revocations = [
        Tombstone(item.deletion_id or 0, mark, back=True)
        for item in items
        for mark in (await db.read(lambda tx, item: tx.spaces.get_marks(space_id, item.item_hash), item))[0]
    ]
    if revocations:
        await asyncio.to_thread(DatabaseFiles(config).append_tombstones, revocations)
    return items


# --- rebuilding ------------------------------------------------------------------------------------------------------


async def rebuild(db: Database, space_id: str, *, item_key: bytes, config: Config) -> Counter[str]:
    """Store again what the logs have and the memory lost. Return the number of items by outcome.

    Changes that were not collected yet are not touched. An item whose text was dropped from the logs stays as it is.
    """
    await collect_all(db, space_id, item_key=item_key, config=config)
    space = await db.read(lambda tx: tx.spaces.get_space(space_id))
    counts, after = Counter[str](), ""
    while page := await db.read(lambda tx, after: tx.spaces.list_live_items(space_id, after=after, limit=PAGE), after):
        after = page[-1][0].item_hash
        pending = [PendingEntry(device=item.device, idx=item.idx, body=body) for item, body in page]
        prepared = await _prepare(db, space, pending, config)
        items = [item for item, _ in page]
        counts += await db.write(
            lambda tx, items, prepared: _rebuild_page(tx, space_id, items, prepared), items, prepared
        )
    return counts


def _rebuild_page(
    tx: Transaction, space_id: str, items: Sequence[ItemState], prepared: Sequence[_Prepared]
) -> Counter[str]:
    counts = Counter[str]()
    for item, one in zip(items, prepared, strict=True):
        if one.record is None:
            counts["no text in the log" if one.problem == DROPPED else one.problem] += 1
            continue
        kind, row_id = record_kind(one.record), item.row_id
        tx.spaces.unbind_row(space_id, item.item_hash)
        if row_id is not None and tx.spaces.has_row(kind, row_id):
            outcome = tx.spaces.replace_record(one.record, row_id, now=ids.now_ms())
        else:
            outcome, row_id = tx.spaces.add_record(one.record, now=ids.now_ms())
        tx.spaces.bind_row(space_id, item.item_hash, kind=kind, row_id=row_id)
        counts[outcome] += 1
    return counts
