"""Machines of one person that exchange their logs, in this process: a data directory each, and what lies between them."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from claude_mem.config import Config
from claude_mem.curate.deletion import DeletionService
from claude_mem.domain import ids
from claude_mem.domain.export_format import (
    RECORD_TYPES,
    ContentRecord,
    ObservationRecord,
    ProjectRecord,
    PromptRecord,
    SessionRecord,
    SummaryRecord,
)
from claude_mem.domain.log_entries import LogEntry, decode_entry, item_name
from claude_mem.domain.reports import DeletionProgress
from claude_mem.storage.base import Transaction
from claude_mem.storage.files import DatabaseFiles
from claude_mem.storage.records import DeletionScope
from claude_mem.storage.spaces import Space
from claude_mem.storage.sqlite import export
from claude_mem.storage.sqlite.database import Database
from claude_mem.sync import apply, changes
from claude_mem.sync.apply import Applied

SPACE = "5" * 32
ITEM_KEY = b"k" * 32
CLOCK = 1_700_000_000_000
PROJECT = "remote:example.org/shop"


class Wire:
    """What a transport has: the log of each device, in bytes. With a file, other processes see it too."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.logs: dict[str, list[bytes]] = {}
        if path is not None and path.exists():
            stored = msgspec.json.decode(path.read_bytes(), type=dict[str, list[str]])
            self.logs = {device: [bytes.fromhex(body) for body in log] for device, log in stored.items()}

    def keep(self) -> None:
        if self.path is not None:
            part = self.path.with_suffix(".part")
            part.write_bytes(
                msgspec.json.encode({device: [body.hex() for body in log] for device, log in self.logs.items()})
            )
            part.rename(self.path)


class Device:
    """One machine. `number` tells it from the others."""

    def __init__(self, folder: Path, number: int, **settings: Any) -> None:
        self.folder = folder / f"device{number}"
        self.config = dataclasses.replace(Config(), data_dir=self.folder, provider="local", **settings)
        self.number, self.renewed = number, 0
        self.db = self._open()

    def _open(self) -> Database:
        """Migrating an empty database takes a while, so it is done once for all."""
        if not self.folder.exists():
            template = self.folder.parent / "template.db"
            if not template.exists():
                Database(template, backups=self.folder.parent / "backups").close()
            self.folder.mkdir(mode=0o700)
            shutil.copy(template, self.folder / "claude-mem.db")
        return Database(self.folder / "claude-mem.db", backups=self.folder / "backups")

    # --- the machine itself -------------------------------------------------------------------------------------------

    def reopen(self) -> None:
        self.db.close()
        self.db = self._open()

    def save(self, name: str) -> Path:
        """Keep a copy of the database, as a backup does."""
        self.db.close()
        copy = self.folder.parent / f"{name}{self.number}.db"
        shutil.copy(self.folder / "claude-mem.db", copy)
        self.db = self._open()
        return copy

    def restore(self, copy: Path) -> None:
        self.db.close()
        for path in self.folder.glob("claude-mem.db*"):
            path.unlink()
        shutil.copy(copy, self.folder / "claude-mem.db")
        self.db = self._open()

    def recover(self) -> None:
        """What the worker does at its start: delete again what the restored database lacks the deletion of."""
        self._deletions(lambda service: service.recover())

    def close(self) -> None:
        self.db.close()

    # --- the space ----------------------------------------------------------------------------------------------------

    def join(self, *, projects: Sequence[str] = ()) -> Device:
        space = Space(
            id=SPACE, name="mine", kind="personal", device=f"{self.number:016x}", transport="file:///x",
            projects=tuple(projects), created_at=CLOCK,
        )  # fmt: skip
        self.db.write_now(lambda tx: tx.spaces.create_space(space))
        return self

    @property
    def name(self) -> str:
        return self.db.read_now(lambda tx: tx.spaces.get_space(SPACE)).device

    def collect(self) -> changes.Collected:
        return asyncio.run(changes.collect_all(self.db, SPACE, item_key=ITEM_KEY, config=self.config))

    def apply(self, *, retry_held: bool = False) -> Applied:
        return asyncio.run(
            apply.apply_pending(self.db, SPACE, item_key=ITEM_KEY, config=self.config, retry_held=retry_held)
        )

    def rebuild(self) -> dict[str, int]:
        return dict(asyncio.run(apply.rebuild(self.db, SPACE, item_key=ITEM_KEY, config=self.config)))

    def push(self, wire: Wire, limit: int = 1_000_000) -> None:
        """Send own entries, as an exchange does: first see whether the wire has what this device published."""
        space = self.db.read_now(lambda tx: tx.spaces.get_space(SPACE))
        sent = wire.logs.setdefault(space.device, [])
        if len(sent) > space.published:
            self.renewed += 1
            fresh = f"{self.number + 16 * self.renewed:016x}"
            self.db.write_now(
                lambda tx: tx.spaces.confirm_published(
                    SPACE, after=space.published, bodies=sent[space.published :], new_device=fresh
                )
            )
            if self.name != space.device:
                return self.push(wire, limit)
        log = self.db.read_now(lambda tx: tx.spaces.read_log(SPACE, self.name, after=len(sent), limit=limit))
        sent.extend(body for _, body in log)
        wire.keep()
        self.db.write_now(lambda tx: tx.spaces.mark_published(SPACE, len(sent)))
        return None

    def pull(self, wire: Wire, limit: int = 1_000_000) -> None:
        for device, log in wire.logs.items():
            if device == self.name:
                continue
            head = self.db.read_now(lambda tx: tx.spaces.heads(SPACE)).get(device, 0)
            bodies = log[head : head + limit]
            self.db.write_now(
                lambda tx, device, head, bodies: tx.spaces.append_foreign(SPACE, device, after=head, bodies=bodies),
                device, head, bodies,
            )  # fmt: skip

    def exchange(self, wire: Wire) -> Applied:
        self.collect()
        self.push(wire)
        self.pull(wire)
        applied = self.apply()
        self.push(wire)
        return applied

    def log(self, device: str = "") -> list[bytes]:
        name = device or self.name
        return [body for _, body in self.db.read_now(lambda tx: tx.spaces.read_log(SPACE, name, after=0, limit=10**6))]

    def entries(self, device: str = "") -> list[LogEntry]:
        return [decode_entry(body) for body in self.log(device) if body]

    def conflicts(self) -> list[tuple[str, str]]:
        found = self.db.read_now(lambda tx: tx.spaces.list_conflicts(SPACE))
        return sorted((_title(one.body), _title(one.other_body)) for one in found)

    # --- what a person does -------------------------------------------------------------------------------------------

    def add(self, *records: ContentRecord) -> None:
        def write(tx: Transaction) -> None:
            for record in records:
                assert tx.memory.import_record(record, now=ids.now_ms()) in ("added", "known", "changed")

        self.db.write_now(write)

    def find(self, key: str) -> int:
        return int(self.value("select id from observations where key = ? order by forgotten, id desc", key))

    def edit(self, key: str, title: str) -> None:
        row_id = self.find(key)
        self.db.write_now(lambda tx: tx.memory.edit_observation(row_id, {"title": title}, now=ids.now_ms()))

    def forget(self, key: str) -> int:
        return self._delete(DeletionScope(ids=(self.find(key),)), erase=False)

    def erase(self, scope: DeletionScope) -> int:
        return self._delete(scope, erase=True)

    def forget_scope(self, scope: DeletionScope) -> int:
        return self._delete(scope, erase=False)

    def undo(self, number: int) -> None:
        self._deletions(lambda service: service.undo(number))

    def _delete(self, scope: DeletionScope, *, erase: bool) -> int:
        progress = DeletionProgress(erased=erase)
        self._deletions(lambda service: service.forget(scope, progress))
        assert not progress.error
        return progress.number

    def _deletions(self, do: Any) -> None:
        async def inside() -> None:
            await do(
                DeletionService(
                    self.db,
                    self.config,
                    DatabaseFiles(self.config),
                    drain=_nothing,
                    after=_pass,
                    tidy=_pass,
                    record=_pass,
                )
            )

        asyncio.run(inside())

    # --- what there is ------------------------------------------------------------------------------------------------

    def value(self, sql: str, *values: Any) -> Any:
        row = self.db.read_now(lambda conn: conn.execute(sql, values).fetchone())
        return next(iter(row.values())) if row else None

    def records(self) -> dict[str, ContentRecord]:
        """Everything that the memory has, by name."""
        found: dict[str, ContentRecord] = {}
        for kind, table in export.EXPORT_TABLES.items():
            assert kind in RECORD_TYPES
            rows = self.db.read_now(
                lambda conn, table: [row["id"] for row in conn.execute(f"select id from {table}")], table
            )
            stored = self.db.read_now(export.read_records, kind, rows)
            for _, record in stored.values():
                assert item_name(record) not in found, "doubled"
                found[item_name(record)] = record
        return found

    def view(self) -> dict[str, str]:
        """What a person sees: the text of everything, by name."""
        return {name: _text(record) for name, record in self.records().items()}

    def titles(self) -> list[str]:
        return sorted(record.title or "" for record in self.records().values() if isinstance(record, ObservationRecord))

    def holds(self, text: str) -> bool:
        """Whether any file of the database has the text."""
        self.reopen()
        asyncio.run(self.db.truncate_wal())
        return any(text.encode() in path.read_bytes() for path in self.folder.glob("claude-mem.db*"))


async def _nothing() -> int:
    return 0


async def _pass(*_: Any, **__: Any) -> None:
    pass


def _title(body: bytes) -> str:
    record = decode_entry(body).record if body else None
    return str(getattr(record, "title", "")) if record else ""


def _text(record: ContentRecord) -> str:
    names = (
        "name",
        "title",
        "subtitle",
        "first_prompt",
        "text",
        "narrative",
        "facts",
        "completed",
        "pinned",
        "verdict",
        "trust",
    )
    return msgspec.json.encode([getattr(record, name) for name in names if name in record.__struct_fields__]).decode()


# --- records ---------------------------------------------------------------------------------------------------------


def project(ref: str = PROJECT, name: str = "shop") -> ProjectRecord:
    return ProjectRecord(project=ref, name=name, created_at=CLOCK)


def session(name: str = "s1", **more: Any) -> SessionRecord:
    fields = {"title": f"Session {name}", "status": "completed", **more}
    return SessionRecord(
        host="claude-code", session=name, project=more.pop("project", PROJECT), started_at=CLOCK,
        last_event_at=CLOCK + 60_000, **{key: value for key, value in fields.items() if key != "project"},
    )  # fmt: skip


def prompt(name: str = "s1", number: int = 1, text: str = "Round the total", **more: Any) -> PromptRecord:
    return PromptRecord(
        host="claude-code", session=name, project=PROJECT, prompt_number=number, text=text,
        created_at=CLOCK + number * 1_000, **more,
    )  # fmt: skip


def observation(key: str = "k1", *, name: str | None = "s1", number: int = 1, **more: Any) -> ObservationRecord:
    fields: dict[str, Any] = {
        "type": "bugfix", "title": f"Title of {key}", "narrative": f"What {key} is about", "facts": (f"fact of {key}",),
        "provider": "local", "trust": "agent", "created_at": CLOCK + number * 1_000, "updated_at": CLOCK, "project": PROJECT,
    }  # fmt: skip
    place = {"host": "claude-code", "session": name, "prompt_number": number} if name else {}
    return ObservationRecord(key=key, **{**fields, **place, **more})


def summary(name: str = "s1", number: int = 1, completed: str = "Rounded once", **more: Any) -> SummaryRecord:
    return SummaryRecord(
        host="claude-code", session=name, project=PROJECT, prompt_number=number, completed=completed, provider="local",
        created_at=CLOCK + number * 1_000, updated_at=CLOCK, **more,
    )  # fmt: skip


def work(name: str = "s1") -> list[ContentRecord]:
    """A session with one of each kind."""
    return [project(), session(name), prompt(name), observation(f"{name}.k1", name=name), summary(name)]


def settle(wire: Wire, devices: Sequence[Device], rounds: int = 4) -> None:
    """Exchange until every device has heard of everything."""
    for _ in range(rounds):
        for device in devices:
            device.exchange(wire)


if __name__ == "__main__":  # FOLDER NUMBER: one exchange, in a process that may be killed
    one = Device(Path(sys.argv[1]), int(sys.argv[2]))
    one.exchange(Wire(Path(sys.argv[1]) / "wire.json"))
    one.close()
