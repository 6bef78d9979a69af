"""Memories from elsewhere → rows: an export of ours, or a database of the older claude-mem.

One batch a job, and each asks for the next in the transaction that writes it. So what is captured meanwhile waits for
one batch at most, and a worker that is killed goes on where it was. Records are cleaned as events are: private parts
and secrets stay out, whoever wrote them down.
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

import apsw
import msgspec

from claude_mem import ids, portable, privacy, suspicion
from claude_mem.config import Config
from claude_mem.errors import BadRecord, CannotDo, MemError, Misuse
from claude_mem.failpoints import failpoint
from claude_mem.origins import SUSPECT, TRUSTED
from claude_mem.pipeline import older
from claude_mem.pipeline.stage import Commit, nothing
from claude_mem.portable import IMPORTED, Batch, End, Header, Item, Observation, Project, Prompt, Summary
from claude_mem.projects import resolve
from claude_mem.records import Job, News
from claude_mem.redact import redact, redact_lines
from claude_mem.store import foreign, imports, jobs, projects
from claude_mem.store import portable as rows
from claude_mem.store.database import Connection, Database
from claude_mem.store.imports import Import
from claude_mem.store.savepoint import savepoint
from claude_mem.text import CLOSING_CHARS, clip, storable

log = logging.getLogger(__name__)

ROUNDS, MARK = 5, 100
LINES = 100  # a batch: what is captured meanwhile waits for one
BATCH_BYTES = 16 << 20
MOST_BYTES = 8 << 20  # of one line
MOST_PROJECTS, MOST_PROJECT_BYTES = 10_000, 32 << 20  # that an export may name
_ITS_FAULT = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, ValueError, OverflowError, TypeError)


def recognise(path: Path) -> str:
    """What a file is, by what is in it: `export` or `older`. `Misuse` says what else it is."""
    try:
        if foreign.is_database(path):
            return _recognise_database(path)
        with path.open("rb") as file:
            first = file.readline(MOST_BYTES)
    except OSError as error:
        raise CannotDo(f"{path} can't be read: {error.strerror}") from error
    if portable.read_header(first) is None:
        raise Misuse(
            f"{path} is neither an export nor a database of an older claude-mem",
            hint="`claude-mem export` makes one; `claude-mem backfill` reads transcripts",
        )
    return "export"


def _recognise_database(path: Path) -> str:
    found = foreign.whose(path)
    if found == "ours":
        raise Misuse(
            f"{path} is a database of this claude-mem",
            hint=f"`claude-mem restore {path}` puts it in place of the present one; to merge two, export one of them",
        )
    if found != "older":
        raise Misuse(f"{path} is a database of something else", hint="`claude-mem import` reads those of claude-mem")
    return found


# --- the job ---------------------------------------------------------------------------------------------------------


async def bring(job: Job, *, db: Database, config: Config) -> Commit:
    found = await db.read(imports.get, int(job.subject.partition(".")[0]))
    if found.ended_at is not None:
        return nothing
    try:
        batch = await asyncio.to_thread(read, found, config)
        await _leave_out(batch, found, db=db, config=config)
    except (MemError, OSError) as error:
        log.warning("import of %s ends: %s", found.path, error)
        return partial(_end, found=found, error=str(error))
    failpoint("import.read")
    return partial(_write, found=found, batch=batch)


def read(found: Import, config: Config) -> Batch:
    """The next batch, cleaned."""
    path = Path(found.path)
    if found.source == "older":
        batch = older.read(path, found.position, project=found.project, config=config)
        if batch.position is None:
            foreign.drop_copy(path)
    else:
        batch = _read_lines(path, found)
    change = partial(_clean_text, config=config)
    longer = partial(_clean_text, config=config, most=max(config.event_chars, CLOSING_CHARS))
    options = {"untrusted": found.untrusted, "redacts": config.redact_secrets}
    cleaned = [clean(record, change, clean_closing=longer, **options) for record in batch.records]
    latest = _latest(path, found)
    batch.records = [_not_later(record, latest) for record in cleaned if _is_left(record, batch.aside)]
    return batch


def _latest(path: Path, found: Import) -> tuple[int, int]:
    """The time of the import, and what stands for a later one: when the file was written. So importing the same file
    again brings the same times."""
    written = max(size_and_time[1] for size_and_time in foreign.state(path)) // 1_000_000
    return found.started_at, min(written, found.started_at)


_TIMES = ("created_at", "updated_at", "started_at", "last_event_at", "ended_at")


def _not_later(record: Item, latest: tuple[int, int]) -> Item:
    """A record of the future would be the newest for years."""
    now, instead = latest
    times = {name: getattr(record, name, None) for name in _TIMES}
    late = {name: instead for name, at in times.items() if at is not None and at > now}
    return msgspec.structs.replace(record, **late) if late else record


async def _leave_out(batch: Batch, found: Import, *, db: Database, config: Config) -> None:
    """What belongs to a project that is switched off here, by what its line says or by where it is known to lie."""
    lines = await asyncio.to_thread(_project_lines, Path(found.path)) if found.source == "export" else []
    lines += [record for record in batch.records if isinstance(record, Project)]
    told = {line.project: line for line in lines}
    named = [told.get(ref) or rows.only_named(ref) for ref in {record.project for record in batch.records}]
    here = await db.read(rows.folders, named)
    off = await asyncio.to_thread(_switched_off, named, here, config)
    batch.aside.update(("project switched off", portable.kind(item)) for item in batch.records if item.project in off)
    batch.records = [item for item in batch.records if item.project not in off]


def _switched_off(named: Sequence[Project], here: Mapping[str, str], config: Config) -> set[str]:
    return {line.project for line in named if _is_off(line.root, config) or _is_off(here.get(line.project, ""), config)}


def _is_off(folder: str, config: Config) -> bool:
    return rows.is_folder(folder) and not resolve(folder, excluded=config.excluded_projects).enabled


def _end(conn: Connection, *, found: Import, error: str) -> Sequence[News]:
    foreign.drop_copy(Path(found.path))
    imports.fail(conn, found.id, error, now=ids.now())
    return ()


def _write(conn: Connection, *, found: Import, batch: Batch) -> Sequence[News]:
    now, counts, notes = ids.now(), Counter(batch.aside), list(batch.notes)
    conn.execute("savepoint batch")
    for record in batch.records:
        counts[_take(conn, record, notes, now=now), portable.kind(record)] += 1
    if found.dry_run:
        conn.execute("rollback to batch")
    conn.execute("release batch")
    failpoint("import.batch")
    if batch.position is None and not found.dry_run:  # at the end: what lies rendered on disk is made again
        for project_id in projects.with_folders(conn):
            jobs.ask(conn, "render", f"{project_id}.import.{found.id}", now=now)
    imports.advance(
        conn,
        found,
        position=batch.position,
        done_count=batch.done,
        total=batch.total,
        counts=counts,
        notes=notes,
        now=now,
    )
    return ()


def _take(conn: Connection, record: Item, notes: list[str], *, now: int) -> str:
    """What can't be stored is set aside, and what it had begun to write is undone."""
    outcome = "can't be stored"
    try:
        with savepoint(conn):
            outcome = rows.take(conn, record, now=now)
    except _ITS_FAULT as error:
        notes.append(f"a {portable.kind(record)} can't be stored: {error}")
    return outcome


# --- cleaning --------------------------------------------------------------------------------------------------------


_EMPTY = {
    "text": "",
    "name": "unknown",
    "type": "change",
    "cwd": "",
    "root": "",
}  # of the others nothing at all is left


def clean(
    record: Item,
    change: Callable[[str], str],
    *,
    untrusted: bool,
    redacts: bool = False,
    clean_closing: Callable[[str], str] | None = None,
) -> Item:
    """Prose and names of files without private parts and secrets; everything else without what can't be stored.
    `redacts`: `change` replaces secrets, and the texts of a list are looked at together too. `clean_closing` does for
    a closing message, which may be longer, what `change` does for the rest."""
    fields = {name: value for name in record.__struct_fields__ if (value := getattr(record, name)) is not None}
    texts = {name: storable(value) for name, value in fields.items() if isinstance(value, str)}
    if "key" in texts:
        texts["key"] = _clean_key(texts["key"], change)
    prose = {name: change(texts[name]) or _EMPTY.get(name) for name in portable.PROSE if name in texts}
    closing: dict[str, str] = {}
    if isinstance(record, Summary):
        closing = _clean_closing(record, clean_closing or change, untrusted=untrusted)
    lists = {name: _clean_list(fields[name], change, redacts=redacts) for name in portable.LISTS if name in fields}
    strange = {"trust": IMPORTED, "pinned": False, "verdict": ""} if untrusted else {}
    words = "\n".join([*(text for text in prose.values() if text), *(item for name in lists for item in lists[name])])
    if not strange and _is_believed(fields) and suspicion.rule(words, by_user=fields.get("trust") == "user"):
        strange = _held(fields)
    strange = {name: value for name, value in strange.items() if name in fields}
    return msgspec.structs.replace(record, **{**texts, **prose, **lists, **closing, **strange})


def _clean_closing(record: Summary, change: Callable[[str], str], *, untrusted: bool) -> dict[str, str]:
    """The closing message, cleaned, and its trust: it is weighed by itself, as it is when it is captured."""
    text, trust = change(storable(record.closing)), storable(record.closing_trust)
    if untrusted:
        trust = IMPORTED
    elif trust in TRUSTED and suspicion.rule(text):
        trust = SUSPECT
    return {"closing": text, "closing_trust": trust}


def _is_believed(fields: Mapping[str, Any]) -> bool:
    """Would it be told, by what the file says of it?"""
    return fields.get("trust") in TRUSTED or fields.get("verdict") == "approved"


def _held(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Anyone can write into a file that a person approved of it: with such words it waits for a person here."""
    approved = fields.get("verdict") == "approved"
    return {"trust": SUSPECT, "pinned": False} | ({"verdict": ""} if approved else {})


def _clean_key(key: str, change: Callable[[str], str]) -> str:
    """A key may quote what it was made of."""
    return change(key).strip() or f"{IMPORTED}:{hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}"


def _clean_list(items: Sequence[str], change: Callable[[str], str], *, redacts: bool) -> tuple[str, ...]:
    texts = privacy.strip_all(list(items))
    texts = redact_lines(texts) if redacts else texts
    return tuple(text for item in texts if (text := change(item)).strip())


def _clean_text(text: str, *, config: Config, most: int = 0) -> str:
    """As ingest does it, and so that doing it again changes nothing. `most`: characters, if not `event_chars`."""
    most = most or config.event_chars
    for _ in range(ROUNDS):
        text, before = privacy.strip(text), text
        if text == before:
            break  # what was cut out has not left another tag behind
    text = _clip(text, max(config.event_chars * 10, most * 2))
    return _clip(redact(text) if config.redact_secrets else text, most)


def _clip(text: str, limit: int) -> str:
    """With room for the mark that an earlier clip has left."""
    return clip(text, limit) if len(text) > limit + MARK else text


def _is_left(record: Item, aside: Counter[tuple[str, str]]) -> bool:
    """Something must be left of it."""
    gone = isinstance(record, Prompt) and not record.text.strip()
    gone |= isinstance(record, Observation) and not any((record.title, record.narrative, record.facts))
    if gone:
        aside["private", portable.kind(record)] += 1
    return not gone


# --- lines of an export ----------------------------------------------------------------------------------------------


def _read_lines(path: Path, found: Import) -> Batch:
    """`position` is the byte and the line that come next. A line that can't be read is named, and the rest goes on."""
    if imports.mark(path) != found.mark:
        raise CannotDo(f"{path} has changed since the import began", hint="import it again")
    offset, _, number = (found.position or "0.0").partition(".")
    wanted = _wanted(path, found.project)
    batch, line = Batch(total=path.stat().st_size), int(number)
    with path.open("rb") as file:
        file.seek(int(offset))
        for raw in islice(iter(partial(_next_line, file), b""), LINES):
            line += 1
            _keep(raw, line, batch, wanted)
            if file.tell() - int(offset) > BATCH_BYTES:
                break
        batch.done = file.tell()
    if batch.done < batch.total:
        batch.position = f"{batch.done}.{line}"
    elif not _is_whole(path):
        batch.notes.append(f"the file ends with line {line:,}, and that is not its last: it was cut off")
        batch.aside["cut off", "file"] += 1
    return batch


def _next_line(file: BinaryIO) -> bytes:
    """The next line, or its beginning if it is longer than any can be; empty at the end of the file."""
    raw = more = file.readline(MOST_BYTES)
    while more and not more.endswith(b"\n"):
        more = file.readline(MOST_BYTES)
    return raw


def _keep(raw: bytes, line: int, batch: Batch, wanted: frozenset[str] | None) -> None:
    if not raw.strip():
        return
    try:
        record = portable.read(raw)
    except BadRecord as problem:
        batch.aside[problem.reason, "line"] += 1
        batch.notes.append(f"line {line:,}: {problem}")
        return
    if not isinstance(record, Header | End) and (wanted is None or record.project in wanted):
        batch.records.append(record)


def _wanted(path: Path, project: str) -> frozenset[str] | None:
    """The identities of the projects of that name."""
    return frozenset(line.project for line in _project_lines(path) if line.name == project) if project else None


def _project_lines(path: Path) -> list[Project]:
    """They come before all that name them."""
    found: list[Project] = []
    with path.open("rb") as file:
        for raw in iter(partial(_next_line, file), b""):
            if len(found) > MOST_PROJECTS or file.tell() > MOST_PROJECT_BYTES + MOST_BYTES * (not found):
                raise CannotDo(
                    f"{path} names more than {MOST_PROJECTS:,} projects, or too much about them",
                    hint="no claude-mem made it so; export one project of it at a time",
                )
            try:
                record = portable.read(raw)
            except BadRecord:
                continue
            if isinstance(record, Project):
                found.append(record)
            elif not isinstance(record, Header):
                break
    return found


def _is_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        last = file.read().rstrip().rpartition(b"\n")[2]
    try:
        return isinstance(portable.read(last), End)
    except BadRecord:
        return False
