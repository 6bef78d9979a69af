"""Reads a database of the older claude-mem, which was written in TypeScript, as records of an import.

It went through some fifty versions: columns were added, renamed and abandoned, and values did not always match their
column. So every value is checked for what it actually is; empty rows are set aside and counted. Original times are
kept. The same row always becomes the same record, so reading the database again adds nothing.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from claude_mem.config import Config
from claude_mem.domain.errors import OperationFailed
from claude_mem.domain.export_format import (
    IMPORTED_TRUST,
    ContentRecord,
    ImportBatch,
    ObservationRecord,
    ProjectRecord,
    PromptRecord,
    SessionRecord,
    SummaryRecord,
)
from claude_mem.domain.records import ObservationType
from claude_mem.domain.text import MAX_TIME_MS, first_sentence, make_storable, shorten
from claude_mem.privacy import tags
from claude_mem.storage import external_db
from claude_mem.storage.external_db import LegacyDatabase, LegacyPage, Row
from claude_mem.system.project_folders import LEGACY_PREFIX, ResolvedProject, identify_project

T = TypeVar("T")

ATTEMPTS = 3
BATCH_SESSIONS = 4  # per batch; the same limit applies to groups of rows without a session
BATCH_ROWS = 500  # of one session per batch; a larger session is read in parts, so that live turns wait for one only
MAX_ROWS = 5_000  # prompts and summaries of one session; more are set aside. Observations have no limit
BATCH_PROJECTS = 200  # per batch
MAX_PROJECTS = 10_000
MAX_FILES = 500  # paths that are tried to find the directory of a project
TOO_MANY = "too many in one session"
OBSERVER = "claude-mem"  # the agent of sessions of which only the id of the observer session remains
_HOSTS = {"": "claude", "claude-code": "claude", "gemini-cli": "gemini", "copilot-cli": "copilot"}  # to our names
_STATUS = {"completed": "completed", "failed": "failed"}
_PARTS = ("request", "investigated", "learned", "completed", "next_steps", "notes")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_EARLIEST = 1_000_000_000_000  # 2001, in milliseconds: smaller numbers are seconds


def read_batch(path: Path, position: str, *, project: str, config: Config) -> ImportBatch:
    """Return the next sessions with all their rows; after the last session, the rows without a session.

    A database that no process has open is read without a lock. If its owner writes to it during the read, it is read
    again.
    """
    for _ in range(ATTEMPTS):
        before, problem = external_db.read_file_state(path), None
        try:
            batch = _read(path, position, project=project, config=config)
        except OperationFailed as error:
            problem = error
        if external_db.read_file_state(path) == before or external_db.has_wal(before):
            break
    if problem:
        raise problem
    return batch


def _read(path: Path, position: str, *, project: str, config: Config) -> ImportBatch:
    with external_db.open_legacy(path) as legacy:
        reader = LegacyReader(legacy, project, config, changed=int(path.stat().st_mtime * 1000))
        if position.startswith("orphans:"):
            return reader.orphans(position.removeprefix("orphans:") or None)
        if position.startswith("orphan+"):
            part, _, link = position.removeprefix("orphan+").partition(":")
            return reader.orphan(link, part)
        if not position or position.startswith("projects:"):
            return reader.projects(position.removeprefix("projects:"), has_position=bool(position))
        number, _, part = position.partition("+")
        return reader.session(int(number), part) if part else reader.sessions(int(number))


@dataclass(slots=True)
class LegacySession:
    """A session and its rows."""

    host: str
    session: str | None  # None if not even the name of the session is known
    project: str
    row: Row
    rows: Callable[[str, int, int], LegacyPage]  # (table, after, limit) -> a page of rows
    count: Callable[[str, int], int]  # (table, after) -> number of rows
    prompts: list[Row] = field(default_factory=list)
    observations: list[Row] = field(default_factory=list)
    summaries: list[Row] = field(default_factory=list)
    is_large: bool = False  # `observations` is incomplete, or there are too many rows for one batch
    at: int = 0  # the time of rows that have none
    numbers: list[tuple[int, int]] = field(default_factory=list)  # (time, number) of each prompt
    private: set[int] = field(default_factory=set)  # numbers of prompts whose turns must not be stored


class LegacyReader:
    def __init__(self, older: LegacyDatabase, project: str, config: Config, changed: int) -> None:
        self.older = older
        self.only = project
        self.config = config
        self.changed = changed
        self.batch = ImportBatch()
        self._projects: dict[str, ResolvedProject | None] = {}

    def sessions(self, after: int) -> ImportBatch:
        """Return the next sessions. A large session gets batches of its own."""
        last: int | None = None
        rows = self.older.list_sessions(after, BATCH_SESSIONS)
        for row in rows:
            group = self._group(row)
            if group.is_large and last is None:
                return self._part(group, "p0", within=str(row["row_id"]))
            if group.is_large or len(self.batch.records) > BATCH_ROWS:
                break
            self._add(group)
            last = row["row_id"]
        return self._at("orphans:" if last is None else str(last), upto=last)

    def session(self, number: int, part: str) -> ImportBatch:
        """Return one part of a large session."""
        row = next(iter(self.older.list_sessions(number - 1, 1)), None)
        if row is None or row["row_id"] != number:  # the row was removed since
            return self._at(str(number), upto=number)
        return self._part(self._group(row), part, within=str(number))

    def orphans(self, after: str | None) -> ImportBatch:
        links = self.older.list_orphan_links(after, BATCH_SESSIONS)
        for place, link in enumerate(links):
            group = self._orphan_group(link)
            if group.is_large and place == 0:
                return self._part(group, "p0", within=link, orphan=True)
            if group.is_large:
                return self._at(f"orphans:{links[place - 1]}")
            self._add(group)
        if len(links) == BATCH_SESSIONS and links[-1]:
            return self._at(f"orphans:{links[-1]}")
        return self._finish()

    def orphan(self, link: str, part: str) -> ImportBatch:
        return self._part(self._orphan_group(link), part, within=link, orphan=True)

    def _at(self, position: str, *, upto: int | None = None) -> ImportBatch:
        """Return the batch, with the position of the next one and the progress so far."""
        total = self.older.count_sessions()
        self.batch.position = position
        self.batch.progress, self.batch.total = total if upto is None else self.older.count_sessions(upto), total
        return self.batch

    def _finish(self) -> ImportBatch:
        self._at("")
        self.batch.position = None
        if lost := self.older.count_orphan_prompts():
            self.batch.aside["no session", "prompt"] += lost
        return self.batch

    # --- large sessions ---------------------------------------------------------------------------------------------

    def _part(self, group: LegacySession, part: str, *, within: str, orphan: bool = False) -> ImportBatch:
        """Return one part: the session and its prompts (`p`), its observations (`o`) or its summaries (`s`), each from
        a position on. All parts together have the same records in the same order as a small session."""
        next_part = self._add_part(group, part[:1], int(part[1:]))
        if orphan:
            if next_part:
                return self._at(f"orphan+{next_part}:{within}")
            return self._at(f"orphans:{within}") if within else self._finish()
        return self._at(f"{within}+{next_part}" if next_part else within, upto=int(within))

    def _add_part(self, group: LegacySession, kind: str, place: int) -> str:
        """Add one part to the batch and return the name of the next part; '' after the last."""
        if self._resolve_project(group.project) is None:
            self.batch.aside["project switched off", "session"] += 1
            return ""
        group.at = _first_time(group) or self.changed
        if kind == "p":
            return self._add_prompts(group, place)
        self._uncounted(self._prompts, group)  # fills in the turn numbers and which turns are private
        if kind == "o":
            page = group.rows("observations", place, BATCH_ROWS)
            group.observations = page.rows
            self.batch.records += self._observations(group)
            return f"o{page.rows[-1]['row_id']}" if page.more else "s0"
        return self._add_summaries(group, place)

    def _add_prompts(self, group: LegacySession, place: int) -> str:
        if _is_saved_by_hand(group) or group.session is None:
            self._count_sessionless(group)
            return "o0"
        prompts = list(self._prompts(group)) if place == 0 else self._uncounted(self._prompts, group)
        summaries = self._uncounted(self._summaries, group)
        records: list[ContentRecord] = list(prompts)
        if not group.row or self._is_selected(group.project):
            records.insert(0, self._session(group, prompts, [*prompts, *summaries]))
        if place == 0:
            self._count_too_many(group)
        self.batch.records += records[place : place + BATCH_ROWS]
        return f"p{place + BATCH_ROWS}" if len(records) > place + BATCH_ROWS else "o0"

    def _add_summaries(self, group: LegacySession, place: int) -> str:
        if _is_saved_by_hand(group) or group.session is None:
            return ""
        records = list(self._summaries(group)) if place == 0 else self._uncounted(self._summaries, group)
        self.batch.records += records[place : place + BATCH_ROWS]
        return f"s{place + BATCH_ROWS}" if len(records) > place + BATCH_ROWS else ""

    def _count_too_many(self, group: LegacySession) -> None:
        for kind, table, rows in (
            ("prompt", "user_prompts", group.prompts),
            ("summary", "session_summaries", group.summaries),
        ):
            if rows and (excess := group.count(table, rows[-1]["row_id"])):
                self.batch.aside[TOO_MANY, kind] += excess

    def _uncounted(self, read: Callable[[LegacySession], Iterator[T]], group: LegacySession) -> list[T]:
        """Return records that another part adds to the import, without counting what they set aside a second time."""
        before = Counter(self.batch.aside)
        records = list(read(group))
        self.batch.aside = before
        return records

    # --- projects ---------------------------------------------------------------------------------------------------

    def projects(self, after: str, *, has_position: bool) -> ImportBatch:
        """Return the next projects, followed by the first sessions if these are the last projects."""
        names = self.older.list_projects(after, BATCH_PROJECTS)
        if not has_position and len(self.older.list_projects("", MAX_PROJECTS + 1)) > MAX_PROJECTS:
            raise OperationFailed(
                f"the database names more than {MAX_PROJECTS:,} projects",
                hint="claude-mem does not write such databases; import one project with `--project NAME`",
            )
        self._add_projects(names)
        if len(names) == BATCH_PROJECTS:
            return self._at(f"projects:{names[-1]}", upto=0)
        return self.sessions(0)

    def _add_projects(self, names: Sequence[str]) -> None:
        for name in names:
            if not self._is_selected(name):
                continue
            project = self._resolve_project(name)
            if project is not None:
                identities = (_project_ref(name), _project_ref(_repository_name(name)), *project.identities)
                self.batch.records.append(
                    ProjectRecord(
                        project=_project_ref(name),
                        name=project.name,
                        root=project.root,
                        identities=identities,
                        created_at=0,
                    )
                )

    def _is_selected(self, name: str) -> bool:
        return not self.only or self.only in (name, _repository_name(name))

    def _resolve_project(self, name: str) -> ResolvedProject | None:
        """Return the project of a name: the repository that contains the files of its observations, if it still exists,
        otherwise a project that has only a name. `None` if memory is switched off in its directory."""
        if name not in self._projects:
            project = self._by_files(name)
            if project is None:
                project = ResolvedProject(_repository_name(name), "", ())
            self._projects[name] = project if project.enabled else None
        return self._projects[name]

    def _by_files(self, name: str) -> ResolvedProject | None:
        files = (file for value in self.older.list_files(name) for file in _list(value))
        for file in islice(files, MAX_FILES):
            folder = Path(file).parent
            if file.startswith("/") and "\0" not in file and len(file) < 4096 and _is_dir(folder):
                project = identify_project(str(folder), excluded=self.config.excluded_projects)
                if _repository_name(name) in (project.name, Path(project.root).name):
                    return project
        return None

    # --- sessions ---------------------------------------------------------------------------------------------------

    def _group(self, row: Row) -> LegacySession:
        link = row.get("memory_session_id") if "memory_session_id" in row else row.get("sdk_session_id")
        name = _text(row.get("content_session_id") or row.get("claude_session_id"))
        host = _text(row.get("platform_source")).strip().lower()[:40]
        if not name.strip() and _text(link).strip():
            name, host = _text(link), OBSERVER

        def rows(table: str, after: int, limit: int) -> LegacyPage:
            if table == "user_prompts":
                return self.older.list_prompts(row, after=after, limit=limit)
            return self.older.list_session_items(table, link, after=after, limit=limit)

        def count(table: str, after: int) -> int:
            if table == "user_prompts":
                return self.older.count_prompts(row, after=after)
            return self.older.count_session_items(table, link, after=after)

        return _load_rows(LegacySession(_HOSTS.get(host, host), name[:1000] or None, _project(row), row, rows, count))

    def _orphan_group(self, link: str) -> LegacySession:
        def rows(table: str, after: int, limit: int) -> LegacyPage:
            if table == "user_prompts":
                return LegacyPage([], more=False)
            return self.older.list_orphan_items(table, link, after=after, limit=limit)

        def count(table: str, after: int) -> int:
            return 0 if table == "user_prompts" else self.older.count_orphan_items(table, link, after=after)

        group = _load_rows(LegacySession(OBSERVER, make_storable(link)[:1000] or None, "", {}, rows, count))
        group.project = _project(next(iter((*group.observations, *group.summaries)), {}))
        return group

    def _add(self, group: LegacySession) -> None:
        """Add all importable records of a session. A session without any is not imported."""
        aside = self.batch.aside
        if self._resolve_project(group.project) is None:
            aside["project switched off", "session"] += 1
            return
        group.at = _first_time(group) or self.changed
        if _is_saved_by_hand(group) or group.session is None:
            self._count_sessionless(group)
            self.batch.records += [*self._observations(group)]
            return
        prompts = [*self._prompts(group)]
        records: list[ContentRecord] = [*prompts, *self._observations(group), *self._summaries(group)]
        if records or (group.row and self._is_selected(group.project)):
            self.batch.records += [self._session(group, prompts, records), *records]

    def _count_sessionless(self, group: LegacySession) -> None:
        if not _is_saved_by_hand(group):
            self.batch.aside["no session", "prompt"] += len(group.prompts)
            self.batch.aside["no session", "summary"] += len(group.summaries)

    def _session(self, group: LegacySession, prompts: Sequence[PromptRecord], records: Sequence[Any]) -> SessionRecord:
        row, times = group.row, [item.created_at for item in records]
        first = "" if 1 in group.private else _text(row.get("user_prompt")) or (prompts[0].text if prompts else "")
        started = _time(row, "started_at") or min([*times, group.at])
        ended = _time(row, "completed_at")
        completed_texts = [item.completed for item in records if isinstance(item, SummaryRecord) and item.completed]
        return SessionRecord(
            host=group.host,
            session=group.session or "",
            project=_project_ref(group.project),
            title=_text(row.get("custom_title") or row.get("title")) or shorten(first, 80) or None,
            subtitle=first_sentence(completed_texts[-1], 140) if completed_texts else None,
            first_prompt=first or None,
            status=_STATUS.get(_text(row.get("status")), "interrupted"),
            started_at=started,
            last_event_at=max([started, ended or 0, *times]),
            ended_at=ended,
        )

    def _prompts(self, group: LegacySession) -> Iterator[PromptRecord]:
        if tags.is_entirely_private(_text(group.row.get("user_prompt"))):
            group.private.add(1)
        seen_numbers: set[int] = set()
        for place, row in enumerate(group.prompts, start=1):
            text = _text(row.get("prompt_text"))
            number, at = _number(row.get("prompt_number")) or place, _time(row, "created_at") or group.at
            if tags.is_entirely_private(text) or number in group.private:
                group.private.add(number)
                self.batch.aside["private", "prompt"] += 1
            elif not text.strip():
                self.batch.aside["empty", "prompt"] += 1
            elif number in seen_numbers:
                self.batch.aside["same number twice", "prompt"] += 1
            elif self._is_selected(group.project):
                seen_numbers.add(number)
                group.numbers.append((at, number))
                yield PromptRecord(**_turn_ref(group, group.project, number), text=text, created_at=at)
        group.numbers.sort()

    def _observations(self, group: LegacySession) -> Iterator[ObservationRecord]:
        by_hand = group.session is None or _is_saved_by_hand(group)
        for row in group.observations:
            at = _time(row, "created_at") or group.at
            number = _turn_number(group, row, at)
            project = _project(row) or group.project
            if number in group.private:
                self.batch.aside["private", "observation"] += 1
            elif not _has_text(row):
                self.batch.aside["empty", "observation"] += 1
            elif self._resolve_project(project) is None:
                self.batch.aside["project switched off", "observation"] += 1
            elif self._is_selected(project):
                where = {"project": _project_ref(project)} if by_hand else _turn_ref(group, project, number)
                yield _observation(row, self._root(project), where, key=_key(group, row, at), at=at)

    def _summaries(self, group: LegacySession) -> Iterator[SummaryRecord]:
        """Yield the summaries. A turn has one, so later summaries with the same number get a turn of their own."""
        seen_numbers: set[int] = set()
        dated = [(_time(row, "created_at") or group.at, row) for row in group.summaries]
        for at, row in sorted(dated, key=lambda item: (item[0], item[1]["row_id"])):
            number, project = _turn_number(group, row, at), _project(row) or group.project
            parts: dict[str, Any] = {name: _text(row.get(name)) or None for name in _PARTS}
            parts["completed"] = parts["completed"] or _text(row.get("summary")) or None
            if number in group.private:
                self.batch.aside["private", "summary"] += 1
            elif not any(parts.values()):
                self.batch.aside["empty", "summary"] += 1
            elif self._resolve_project(project) is None:
                self.batch.aside["project switched off", "summary"] += 1
            elif self._is_selected(project):
                root = self._root(project)
                yield SummaryRecord(
                    **_turn_ref(group, project, number),
                    prompt_id=f"import:summary:{at}" if number in seen_numbers else None,
                    **parts,
                    files_read=_files(row.get("files_read"), root),
                    files_edited=_files(row.get("files_edited"), root),
                    memory_session_id=_text(row.get("memory_session_id") or row.get("sdk_session_id"))[:1000] or None,
                    provider=IMPORTED_TRUST,
                    created_at=at,
                    updated_at=at,
                )
                seen_numbers.add(number)

    def _root(self, project: str) -> str:
        resolved_project = self._resolve_project(project)
        return resolved_project.root if resolved_project else ""


def _load_rows(group: LegacySession) -> LegacySession:
    """Load the rows of a group, up to the limits of a batch."""
    prompts, summaries = (group.rows(table, 0, MAX_ROWS) for table in ("user_prompts", "session_summaries"))
    observations = group.rows("observations", 0, BATCH_ROWS)
    group.prompts, group.summaries, group.observations = prompts.rows, summaries.rows, observations.rows
    count = len(prompts.rows) + len(summaries.rows) + len(observations.rows)
    group.is_large = prompts.more or summaries.more or observations.more or count > BATCH_ROWS
    return group


def _observation(row: Row, root: str, where: dict[str, Any], *, key: str, at: int) -> ObservationRecord:
    """Convert a row to an observation. In the first versions an observation was a single text."""
    text = _text(row.get("narrative")) or _text(row.get("text"))
    kind = _text(row.get("type")).strip().lower()
    concepts = _list(row.get("concepts"))
    return ObservationRecord(
        **where,
        key=key,
        type=kind if kind in set(ObservationType) else str(ObservationType.CHANGE),
        title=_text(row.get("title")) or first_sentence(text) or None,
        subtitle=_text(row.get("subtitle")) or None,
        narrative=text or None,
        facts=_list(row.get("facts")),
        concepts=concepts if kind in set(ObservationType) or not kind else (*concepts, kind[:100]),
        files_read=_files(row.get("files_read"), root),
        files_modified=_files(row.get("files_modified"), root),
        memory_session_id=_text(row.get("memory_session_id") or row.get("sdk_session_id"))[:1000] or None,
        provider=IMPORTED_TRUST,
        model=_text(row.get("generated_by_model"))[:200] or None,
        trust="agent",
        created_at=at,
        updated_at=at,
    )


def _has_text(row: Row) -> bool:
    return any(_text(row.get(name)).strip() for name in ("title", "narrative", "text")) or bool(_list(row.get("facts")))


def _key(group: LegacySession, row: Row, at: int) -> str:
    """Return a key derived from the content and the session: the same in every copy of the database, whatever the row
    id."""
    parts = [
        group.host,
        group.session,
        at,
        *(_text(row.get(name)) for name in ("type", "title", "narrative", "text", "facts")),
    ]
    return f"{LEGACY_PREFIX}{hashlib.blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()}"


def _is_saved_by_hand(group: LegacySession) -> bool:
    """Return whether a group holds memories saved by hand; the older version invented a session for them."""
    link = group.row.get("memory_session_id") or (group.observations[0] if group.observations else {}).get(
        "memory_session_id"
    )
    return _text(link).startswith("manual-")


def _turn_ref(group: LegacySession, project: str, number: int) -> dict[str, Any]:
    return {"host": group.host, "session": group.session, "project": _project_ref(project), "prompt_number": number}


def _turn_number(group: LegacySession, row: Row, at: int) -> int:
    """Return the turn number of a row: its own, or that of the last prompt before it."""
    if number := _number(row.get("prompt_number")):
        return number
    place = bisect_right(group.numbers, (at, 1 << 40))
    return group.numbers[place - 1][1] if place else 1


def _first_time(group: LegacySession) -> int | None:
    started_at = _time(group.row, "started_at")
    rows = (*group.prompts, *group.observations, *group.summaries)
    return started_at or min((at for row in rows if (at := _time(row, "created_at"))), default=None)


# --- projects by name ------------------------------------------------------------------------------------------------


def _project(row: Row) -> str:
    """Return the project of a row. Rows of a merged worktree belong to the project it was merged into."""
    return (_text(row.get("merged_into_project")).strip() or _text(row.get("project")).strip() or "unknown")[:200]


def _repository_name(name: str) -> str:
    """Return the repository part of a name. The older version named worktrees `repository/worktree`; here all worktrees
    of a repository share its memory."""
    return name.strip("/").partition("/")[0][:100] or "unknown"


def _project_ref(name: str) -> str:
    return f"{LEGACY_PREFIX}{name}"


def _is_dir(folder: Path) -> bool:
    try:
        return folder.is_dir()
    except OSError:
        return False


# --- values that may be anything -------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return make_storable(value) if isinstance(value, str) else "" if value is None else str(value)


def _list(value: Any) -> tuple[str, ...]:
    """Return the items of a JSON list. A damaged list yields its quoted strings; any other text is a single item."""
    text = _text(value).strip()
    if not text:
        return ()
    try:
        data = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        data = list(_QUOTED.findall(text)) if text.startswith("[") else [text]
    if isinstance(data, dict):
        data = list(data.values())
    items = data if isinstance(data, list) else [] if data is None else [data]
    return tuple(part for item in items[:1000] if item is not None and (part := _item(item).strip()))


def _item(value: Any) -> str:
    return make_storable(value) if isinstance(value, str) else msgspec.json.encode(value).decode()


def _files(value: Any, root: str) -> tuple[str, ...]:
    """Return paths relative to the project's root, as observations store them."""
    prefix = f"{root.rstrip('/')}/" if root else ""
    return tuple(dict.fromkeys(file.removeprefix(prefix) for file in _list(value)))


def _number(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().isdigit() and value.strip().isascii():
        value = int(value.strip()[:12])
    return value if isinstance(value, int) and 0 < value < 1_000_000_000 else None


def _time(row: Row, name: str) -> int | None:
    """Return milliseconds from `<name>_epoch`, else from the text in `<name>`; `None` if neither is plausible."""
    for value in (row.get(f"{name}_epoch"), row.get(name)):
        at = _milliseconds(value)
        if at is not None and _EARLIEST < at < MAX_TIME_MS:
            return at
    return None


def _milliseconds(value: Any) -> int | None:
    text = _text(value).strip()
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        return int(number * (1000 if abs(number) < 100_000_000_000 else 1)) if abs(number) < MAX_TIME_MS else None
    try:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None
