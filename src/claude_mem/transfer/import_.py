"""Imports memory from an export of claude-mem or from a database of the older claude-mem.

Each job imports one batch and enqueues the next in the same transaction. Events captured during an import therefore
wait for one batch at most, and a killed worker continues where it stopped. Records are cleaned like events: private
parts and secrets are removed, whatever their source.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from claude_mem.config import Config
from claude_mem.domain import export_format, ids
from claude_mem.domain.errors import ClaudeMemError, InvalidRequest, OperationFailed, UnreadableEvent
from claude_mem.domain.export_format import (
    IMPORTED_TRUST,
    ContentRecord,
    ExportEnd,
    ExportHeader,
    ImportBatch,
    ObservationRecord,
    ProjectRecord,
    PromptRecord,
    SummaryRecord,
    project_from_identity,
)
from claude_mem.domain.records import Job, StreamEvent
from claude_mem.domain.text import CLOSING_CHARS, clip, make_storable
from claude_mem.privacy import injection_rules, tags
from claude_mem.privacy.secrets import redact, redact_lines
from claude_mem.privacy.trust import SUSPECT, TRUSTED
from claude_mem.storage import external_db
from claude_mem.storage.base import Commit, Database, Transaction, write_nothing
from claude_mem.storage.journal_records import ImportRun
from claude_mem.system.disk import get_file_signature
from claude_mem.system.failpoints import failpoint
from claude_mem.system.project_folders import identify_project, is_existing_folder
from claude_mem.transfer import legacy

log = logging.getLogger(__name__)

MAX_STRIP_ROUNDS, CLIP_MARK_CHARS = 5, 100
BATCH_LINES = 100  # per batch; small, because captured events wait for one batch
BATCH_BYTES = 16 << 20
MAX_LINE_BYTES = 8 << 20  # the longest line
MAX_PROJECTS, MAX_PROJECT_BYTES = 10_000, 32 << 20  # limits for the projects an export may name


def detect_source(path: Path) -> str:
    """Return the kind of a file by its content: `export` or `older`. Raise `InvalidRequest` for any other file."""
    try:
        if external_db.is_sqlite_file(path):
            return _recognise_database(path)
        with path.open("rb") as file:
            first = file.readline(MAX_LINE_BYTES)
    except OSError as error:
        raise OperationFailed(
            f"{path} can't be read: {error.strerror}", hint="check the path and its permissions"
        ) from error
    if export_format.decode_header(first) is None:
        raise InvalidRequest(
            f"{path} is neither an export nor a database of an older claude-mem",
            hint="create an export with `claude-mem export`; to read transcripts, use `claude-mem backfill`",
        )
    return "export"


def _recognise_database(path: Path) -> str:
    owner = external_db.identify_database(path)
    if owner == "ours":
        raise InvalidRequest(
            f"{path} is a database of this claude-mem",
            hint=f"to replace the current database, run `claude-mem restore {path}`; to merge two, export one of them",
        )
    if owner != "older":
        raise InvalidRequest(
            f"{path} is a database of another program",
            hint="`claude-mem import` reads exports and databases of claude-mem",
        )
    return owner


# --- the job ---------------------------------------------------------------------------------------------------------


async def import_batch(job: Job, *, db: Database, config: Config) -> Commit:
    """Read the next batch of an import and return the transaction that stores it."""
    import_run = await db.read(lambda tx: tx.journal.get_import(int(job.subject.partition(".")[0])))
    if import_run.ended_at is not None:
        return write_nothing
    try:
        batch = await asyncio.to_thread(read_batch, import_run, config)
        await _drop_disabled_projects(batch, import_run, db=db, config=config)
    except (ClaudeMemError, OSError) as error:
        log.warning("import of %s failed: %s", import_run.path, error)
        return partial(_fail, import_run=import_run, error=str(error))
    failpoint("import.read")
    return partial(_write, import_run=import_run, batch=batch)


def read_batch(import_run: ImportRun, config: Config) -> ImportBatch:
    """Return the next batch, cleaned."""
    path = Path(import_run.path)
    if import_run.source == "older":
        batch = legacy.read_batch(path, import_run.position, project=import_run.project, config=config)
        if batch.position is None:
            external_db.drop_database_copy(path)
    else:
        batch = _read_lines(path, import_run)
    records = [clean_as_configured(record, config, untrusted=import_run.untrusted) for record in batch.records]
    latest = _time_limits(path, import_run)
    batch.records = [clamp_times(record, latest) for record in records if _has_content(record, batch.aside)]
    return batch


def clean_as_configured(record: ContentRecord, config: Config, *, untrusted: bool) -> ContentRecord:
    """Clean a record by the settings of this machine."""
    change = partial(_clean_text, config=config)
    longer = partial(_clean_text, config=config, most=max(config.event_chars, CLOSING_CHARS))
    return clean_record(record, change, clean_closing=longer, untrusted=untrusted, redacts=config.redact_secrets)


def _time_limits(path: Path, import_run: ImportRun) -> tuple[int, int]:
    """Return the time of the import, and the time that replaces any later one: when the file was written. Importing the
    same file again therefore yields the same times."""
    written_at = max(size_and_time[1] for size_and_time in external_db.read_file_state(path)) // 1_000_000
    return import_run.started_at, min(written_at, import_run.started_at)


_TIMES = ("created_at", "updated_at", "started_at", "last_event_at", "ended_at")


def clamp_times(record: ContentRecord, latest: tuple[int, int]) -> ContentRecord:
    """Replace times in the future: such a record would remain the newest for years."""
    now, replacement = latest
    times = {name: getattr(record, name, None) for name in _TIMES}
    late = {name: replacement for name, at in times.items() if at is not None and at > now}
    return msgspec.structs.replace(record, **late) if late else record


async def _drop_disabled_projects(batch: ImportBatch, import_run: ImportRun, *, db: Database, config: Config) -> None:
    """Remove records of projects that are switched off here, by the directory that the import names or by the one that
    is known here."""
    lines = await asyncio.to_thread(_project_lines, Path(import_run.path)) if import_run.source == "export" else []
    lines += [record for record in batch.records if isinstance(record, ProjectRecord)]
    lines_by_ref = {line.project: line for line in lines}
    referenced_projects = [
        lines_by_ref.get(ref) or project_from_identity(ref) for ref in {record.project for record in batch.records}
    ]
    local_folders = await db.read(lambda tx: tx.memory.find_project_folders(referenced_projects))
    disabled_refs = await asyncio.to_thread(_disabled_refs, referenced_projects, local_folders, config)
    batch.aside.update(
        ("project switched off", export_format.record_kind(item))
        for item in batch.records
        if item.project in disabled_refs
    )
    batch.records = [item for item in batch.records if item.project not in disabled_refs]


def _disabled_refs(
    referenced_projects: Sequence[ProjectRecord], local_folders: Mapping[str, str], config: Config
) -> set[str]:
    return {
        line.project
        for line in referenced_projects
        if _is_disabled(line.root, config) or _is_disabled(local_folders.get(line.project, ""), config)
    }


def _is_disabled(folder: str, config: Config) -> bool:
    return is_existing_folder(folder) and not identify_project(folder, excluded=config.excluded_projects).enabled


def _fail(tx: Transaction, *, import_run: ImportRun, error: str) -> Sequence[StreamEvent]:
    external_db.drop_database_copy(Path(import_run.path))
    tx.journal.fail_import(import_run.id, error, now=ids.now_ms())
    return ()


def _write(tx: Transaction, *, import_run: ImportRun, batch: ImportBatch) -> Sequence[StreamEvent]:
    now, counts, notes = ids.now_ms(), Counter(batch.aside), list(batch.notes)
    with tx.savepoint(undo=import_run.dry_run):
        for record in batch.records:
            counts[_store_record(tx, record, notes, now=now), export_format.record_kind(record)] += 1
    failpoint("import.batch")
    if batch.position is None and not import_run.dry_run:  # at the end: render the start contexts on disk again
        for project_id in tx.memory.list_projects_with_folders():
            tx.journal.enqueue_job("render", f"{project_id}.import.{import_run.id}", now=now)
    tx.journal.advance_import(
        import_run,
        position=batch.position,
        done_count=batch.progress,
        total=batch.total,
        counts=counts,
        notes=notes,
        now=now,
    )
    return ()


def _store_record(tx: Transaction, record: ContentRecord, notes: list[str], *, now: int) -> str:
    """Store one record and return its outcome. If that fails, undo its partial writes and add a note."""
    outcome = "can't be stored"
    try:
        with tx.savepoint():
            outcome = tx.memory.import_record(record, now=now)
    except tx.rejections as error:
        notes.append(f"a {export_format.record_kind(record)} can't be stored: {error}")
    return outcome


# --- cleaning --------------------------------------------------------------------------------------------------------


_EMPTY_VALUES = {
    "text": "",
    "name": "unknown",
    "type": "change",
    "cwd": "",
    "root": "",
}  # a field that is not listed becomes None when nothing remains of its text


def clean_record(
    record: ContentRecord,
    change: Callable[[str], str],
    *,
    untrusted: bool,
    redacts: bool = False,
    clean_closing: Callable[[str], str] | None = None,
) -> ContentRecord:
    """Remove private parts and secrets from prose and file names, and unstorable characters from everything.

    `change` cleans one text. `redacts` says that `change` replaces secrets; the texts of a list are then also redacted
    together. `clean_closing` cleans the closing message, which may be longer than other texts.
    """
    fields = {name: value for name in record.__struct_fields__ if (value := getattr(record, name)) is not None}
    texts = {name: make_storable(value) for name, value in fields.items() if isinstance(value, str)}
    if "key" in texts:
        texts["key"] = _clean_key(texts["key"], change)
    prose = {
        name: change(texts[name]) or _EMPTY_VALUES.get(name) for name in export_format.TEXT_FIELDS if name in texts
    }
    closing: dict[str, str] = {}
    if isinstance(record, SummaryRecord):
        closing = _clean_closing(record, clean_closing or change, untrusted=untrusted)
    lists = {
        name: _clean_list(fields[name], change, redacts=redacts) for name in export_format.LIST_FIELDS if name in fields
    }
    overrides = {"trust": IMPORTED_TRUST, "pinned": False, "verdict": "", "kept_at": None} if untrusted else {}
    words = "\n".join([*(text for text in prose.values() if text), *(item for name in lists for item in lists[name])])
    if (
        not overrides
        and _would_be_injected(fields)
        and injection_rules.injection_rule(words, by_user=fields.get("trust") == "user")
    ):
        overrides = _approval_reset(fields)
    overrides = {name: value for name, value in overrides.items() if name in fields}
    return msgspec.structs.replace(record, **{**texts, **prose, **lists, **closing, **overrides})


def _clean_closing(record: SummaryRecord, change: Callable[[str], str], *, untrusted: bool) -> dict[str, str]:
    """Return the cleaned closing message and its trust. It is judged by itself, as it is when captured."""
    text, trust = change(make_storable(record.closing)), make_storable(record.closing_trust)
    if untrusted:
        trust = IMPORTED_TRUST
    elif trust in TRUSTED and injection_rules.injection_rule(text):
        trust = SUSPECT
    return {"closing": text, "closing_trust": trust}


def _would_be_injected(fields: Mapping[str, Any]) -> bool:
    """Return whether a record would be injected, judging by the trust and verdict in the file."""
    return fields.get("trust") in TRUSTED or fields.get("verdict") == "approved"


def _approval_reset(fields: Mapping[str, Any]) -> dict[str, object]:
    """Return the fields that put a suspect record into the approval queue. Anyone can write an approval into a file, so
    a user of this machine must approve such text again."""
    approved = fields.get("verdict") == "approved"
    return {"trust": SUSPECT, "pinned": False, "kept_at": None} | ({"verdict": ""} if approved else {})


def _clean_key(key: str, change: Callable[[str], str]) -> str:
    """Clean a key, which may quote the text it was derived from."""
    return change(key).strip() or f"{IMPORTED_TRUST}:{hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}"


def _clean_list(items: Sequence[str], change: Callable[[str], str], *, redacts: bool) -> tuple[str, ...]:
    texts = tags.strip_private_json(list(items))
    texts = redact_lines(texts) if redacts else texts
    return tuple(text for item in texts if (text := change(item)).strip())


def _clean_text(text: str, *, config: Config, most: int = 0) -> str:
    """Clean a text as ingest does, but so that cleaning it again changes nothing. `most` is the limit in characters
    and defaults to `event_chars`."""
    most = most or config.event_chars
    for _ in range(MAX_STRIP_ROUNDS):
        text, before = tags.strip_private(text), text
        if text == before:
            break  # otherwise the text around a removed part may have joined into another tag
    text = _clip(text, max(config.event_chars * 10, most * 2))
    return _clip(redact(text) if config.redact_secrets else text, most)


def _clip(text: str, limit: int) -> str:
    """Clip a text, tolerating the mark that an earlier clip left."""
    return clip(text, limit) if len(text) > limit + CLIP_MARK_CHARS else text


def _has_content(record: ContentRecord, aside: Counter[tuple[str, str]]) -> bool:
    """Return whether any text of a record remains after cleaning; count it as private if not."""
    if is_empty(record):
        aside["private", export_format.record_kind(record)] += 1
        return False
    return True


def is_empty(record: ContentRecord) -> bool:
    """Return whether nothing of a prompt or an observation remains after cleaning."""
    if isinstance(record, PromptRecord):
        return not record.text.strip()
    return isinstance(record, ObservationRecord) and not any((record.title, record.narrative, record.facts))


# --- lines of an export ----------------------------------------------------------------------------------------------


def _read_lines(path: Path, import_run: ImportRun) -> ImportBatch:
    """Read a batch of lines. `position` holds the next byte and line number. A line that can't be read is noted and
    skipped."""
    if get_file_signature(path) != import_run.mark:
        raise OperationFailed(f"{path} has changed since the import began", hint="import it again")
    offset, _, number = (import_run.position or "0.0").partition(".")
    project_refs = _selected_refs(path, import_run.project)
    batch, line = ImportBatch(total=path.stat().st_size), int(number)
    with path.open("rb") as file:
        file.seek(int(offset))
        for raw in islice(iter(partial(_next_line, file), b""), BATCH_LINES):
            line += 1
            _add_line(raw, line, batch, project_refs)
            if file.tell() - int(offset) > BATCH_BYTES:
                break
        batch.progress = file.tell()
    if batch.progress < batch.total:
        batch.position = f"{batch.progress}.{line}"
    elif not _is_whole(path):
        batch.notes.append(f"the file was cut off after line {line:,}: its last line is missing")
        batch.aside["cut off", "file"] += 1
    return batch


def _next_line(file: BinaryIO) -> bytes:
    """Return the next line, or only its beginning if it is longer than the limit; empty at the end of the file."""
    raw = chunk = file.readline(MAX_LINE_BYTES)
    while chunk and not chunk.endswith(b"\n"):
        chunk = file.readline(MAX_LINE_BYTES)
    return raw


def _add_line(raw: bytes, line: int, batch: ImportBatch, project_refs: frozenset[str] | None) -> None:
    if not raw.strip():
        return
    try:
        record = export_format.decode_line(raw)
    except UnreadableEvent as problem:
        batch.aside[problem.reason, "line"] += 1
        batch.notes.append(f"line {line:,}: {problem}")
        return
    if not isinstance(record, ExportHeader | ExportEnd) and (project_refs is None or record.project in project_refs):
        batch.records.append(record)


def _selected_refs(path: Path, project: str) -> frozenset[str] | None:
    """Return the references of the projects with this name, or `None` for all projects."""
    return frozenset(line.project for line in _project_lines(path) if line.name == project) if project else None


def _project_lines(path: Path) -> list[ProjectRecord]:
    """Return the project records of an export. They precede all records that refer to them."""
    project_lines: list[ProjectRecord] = []
    with path.open("rb") as file:
        for raw in iter(partial(_next_line, file), b""):
            most_bytes = MAX_PROJECT_BYTES + (0 if project_lines else MAX_LINE_BYTES)
            if len(project_lines) > MAX_PROJECTS or file.tell() > most_bytes:
                raise OperationFailed(
                    f"{path} names more than {MAX_PROJECTS:,} projects, or too much about them",
                    hint="claude-mem does not write such files; export the projects one at a time",
                )
            try:
                record = export_format.decode_line(raw)
            except UnreadableEvent:
                continue
            if isinstance(record, ProjectRecord):
                project_lines.append(record)
            elif not isinstance(record, ExportHeader):
                break
    return project_lines


def _is_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        last = file.read().rstrip().rpartition(b"\n")[2]
    try:
        return isinstance(export_format.decode_line(last), ExportEnd)
    except UnreadableEvent:
        return False
