"""Erase deleted content from files other than the database: spool, logs, caches and copies of the database.

The request of the running deletion is kept in a file until it is done, because after a crash the deletion is resumed
from it: tombstones do not contain the scope. The request may contain the text to be erased, so the file is shredded at
the end.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from claude_mem.config import Config
from claude_mem.curate.redaction import paused_log
from claude_mem.domain import ids
from claude_mem.domain.errors import ClaudeMemError
from claude_mem.domain.text_pattern import TextPattern, shares_rare_words
from claude_mem.storage import external_db
from claude_mem.storage.files import DatabaseFiles, is_database_damage
from claude_mem.storage.records import DeletionScope, Tombstone
from claude_mem.system import project_folders, spool
from claude_mem.system.spool import sync_directory

log = logging.getLogger(__name__)

ERASURE_REQUEST_FILE = "forgetting.json"
_ERASED_TEXT = b"[forgotten]"
_LOG_PREFIX = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ [\w.]+: ")
_SEGMENT_BYTES = 1 << 20
_OVERLAP_BYTES = 64 << 10  # between two segments of a line: more than the longest form of a text to forget
_CACHE_PATTERNS = (
    "mcp-answers.json*",
    "activity.flag",
    "worker.starting",
    "worker.stopped",
    ".reading-*/*",
    ".restoring-*/*",
)


@dataclass(frozen=True, slots=True)
class ErasedContent:
    """How to recognize erased content in a text: by the requested text, or by several rare words of the content."""

    pattern: TextPattern | None
    rare_words: frozenset[str]

    def in_line(self, text: str) -> bool:
        """Return whether a line mentions the content."""
        return self.is_quoted_in(text) or shares_rare_words(text, self.rare_words)

    def is_quoted_in(self, text: str) -> bool:
        """Return whether a text contains the requested text itself."""
        return self.pattern is not None and self.pattern.is_in(text)

    def in_file(self, path: Path) -> bool:
        """Return whether a file contains the requested text, in any encoding."""
        return self.pattern is not None and any(_search_chunks(path, self.pattern))


# --- event files -----------------------------------------------------------------------------------------------------


def find_waiting_files(config: Config, scope: DeletionScope, *, until: int) -> list[Path]:
    """Return the spooled and set-aside event files from before `until` that the scope covers."""
    if scope.ids:
        return []
    paths = [path for folder in (config.spool, config.aside) for path in _regular_files(folder)]
    return [
        path for path in paths if (ids.created_at_ms(path.name) or 0) <= until and _is_in_scope(path, scope, config)
    ]


def _regular_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.is_file() and not path.is_symlink())


def _is_in_scope(path: Path, scope: DeletionScope, config: Config) -> bool:
    try:
        if scope.matching and not any(_search_chunks(path, TextPattern(scope.matching))):
            return False
        with path.open("rb") as file:
            raw = file.read(spool.MAX_BYTES + 1)  # a larger file is no event, and its session can't be read
    except OSError:
        return False
    at = ids.created_at_ms(path.name) or 0
    if (scope.after is not None and at < scope.after) or (scope.before is not None and at >= scope.before):
        return False
    if not (scope.sessions or scope.projects or scope.source):
        return True
    host, session, cwd = _parse_identity(path.name, raw)
    if scope.sessions and (host, session) not in scope.sessions:
        return False
    if scope.source and host != scope.source:
        return False
    identities = (
        set(project_folders.identify_project(cwd, excluded=config.excluded_projects).every_identity) if cwd else set()
    )
    return not scope.projects or bool(identities & set(scope.projects))


def _parse_identity(name: str, raw: bytes) -> tuple[str, str, str]:
    try:
        envelope = spool.parse_envelope(name, raw)
        fields = msgspec.json.decode(envelope.payload)
        return envelope.header.get("host", ""), str(fields.get("session_id", "")), str(fields.get("cwd", ""))
    except (ClaudeMemError, msgspec.MsgspecError, UnicodeDecodeError, AttributeError, RecursionError):
        return "", "", ""


# --- logs and caches -------------------------------------------------------------------------------------------------


def erase_from_logs(config: Config, content: ErasedContent) -> int:
    """Erase the text of log entries that mention the content. Return their number.

    Files are overwritten in place, because the current log stays open.
    """
    erased_count = 0
    for path in _regular_files(config.log_file.parent):
        with paused_log():
            erased_count += _erase_from_log(path, content)
    return erased_count


def _erase_from_log(path: Path, content: ErasedContent) -> int:
    """Erase the lines of a log that mention the content, and return their number.

    No line becomes longer, so that writing in place never overtakes reading. The memory needed does not depend on the
    size of the file or of a line.
    """
    count = 0
    with path.open("rb") as source, os.fdopen(os.open(path, os.O_WRONLY | os.O_NOFOLLOW), "wb") as target:
        begin = 0
        while head := source.readline(_SEGMENT_BYTES):
            is_mentioned, line_end = _read_line(head, source, content)
            end = source.tell()
            erased_line = _erased_line(head, line_end)
            if is_mentioned and not (len(head) == end - begin and head == erased_line):
                if not count:
                    target.seek(begin)
                target.write(erased_line)
                count += 1
            elif count:
                _copy_line(source, target, begin, end)
            begin = end
        if count:
            target.truncate()
    return count


def _read_line(head: bytes, source: BinaryIO, content: ErasedContent) -> tuple[bool, bytes]:
    """Read to the end of a line that begins with `head`. Return whether it mentions the content, and its line break."""
    segment, is_mentioned = head, content.in_line(_decode(head[_prefix_length(head) :]))
    while len(segment) == _SEGMENT_BYTES and not segment.endswith(b"\n"):
        overlap, segment = segment[-_OVERLAP_BYTES:], source.readline(_SEGMENT_BYTES)
        is_mentioned = is_mentioned or content.in_line(_decode(overlap + segment))
    return is_mentioned, b"\n" if segment.endswith(b"\n") else b""


def _copy_line(source: BinaryIO, target: BinaryIO, begin: int, end: int) -> None:
    source.seek(begin)
    while begin < end:
        begin += target.write(source.read(min(_SEGMENT_BYTES, end - begin)))


def _erased_line(head: bytes, line_end: bytes) -> bytes:
    """Return what replaces a line that begins with `head`. The prefix with time and logger name stays."""
    text_start = _prefix_length(head)
    text_length = len(head.removesuffix(b"\n")) - text_start
    return head[:text_start] + _ERASED_TEXT[:text_length] + line_end


def _prefix_length(line: bytes) -> int:
    prefix = _LOG_PREFIX.match(line)
    return prefix.end() if prefix else 0


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def erase_from_caches(config: Config, content: ErasedContent) -> int:
    """Erase cached start contexts, caches and flag files that contain the text. They are created again when needed."""
    erased_count = 0
    caches = (path for pattern in _CACHE_PATTERNS for path in config.data_dir.glob(pattern))
    for path in [*_regular_files(config.starts), *caches]:
        if path.is_file() and content.in_file(path):
            shred_file(path)
            erased_count += 1
    return erased_count


def shred_file(path: Path) -> None:
    """Overwrite the file with zeros and remove it. A file with several hard links is only removed."""
    try:
        if path.stat().st_nlink == 1:
            _overwrite_with_zeros(path)
    except OSError:
        pass  # a file that can't be written can still be removed
    path.unlink(missing_ok=True)


def _overwrite_with_zeros(path: Path) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_NOFOLLOW), "wb") as file:
        remaining = os.fstat(file.fileno()).st_size
        while remaining > 0:
            remaining -= file.write(bytes(min(_SEGMENT_BYTES, remaining)))


# --- copies of the database ------------------------------------------------------------------------------------------


def erase_unfinished_copies(files: DatabaseFiles) -> None:
    """Erase unfinished copies left by a killed process.

    The caller must hold the worker lock and must not be making a copy.
    """
    for folder in files.list_unfinished_restores():
        for path in _regular_files(folder):
            shred_file(path)
        shutil.rmtree(folder, ignore_errors=True)
    for path in files.list_unfinished_copies():
        shred_file(path)


def erase_from_database_copy(
    path: Path, files: DatabaseFiles, scope: DeletionScope, tombstones: list[Tombstone], content: ErasedContent
) -> str:
    """Erase the content from a copy of the database. Return `kept` (unchanged), `rewritten` or `deleted`.

    A copy that can't be read is deleted, because it may contain the content.
    """
    try:
        if external_db.identify_database(path) not in ("ours", "empty"):
            return "kept"
        has_rows = files.has_covered_rows(path, scope, tombstones)
    except ClaudeMemError as problem:
        return _delete_unreadable(files.list_side_files(path), problem)
    if not has_rows and not content.in_file(path):
        return "kept"
    try:
        files.erase_covered_rows(path, scope, tombstones, mentions=content.in_line, quotes=content.is_quoted_in)
    except ClaudeMemError as problem:
        if not is_database_damage(problem):  # for example a full disk
            raise
        return _delete_unreadable(files.list_side_files(path), problem)
    finally:
        external_db.drop_database_copy(path)
    return "rewritten"


def _delete_unreadable(paths: list[Path], problem: Exception) -> str:
    log.warning("%s can't be read (%s) and was deleted", paths[0].name, type(problem).__name__)
    for path in paths:
        shred_file(path)
    return "deleted"


def _search_chunks(path: Path, pattern: TextPattern) -> Iterator[bool]:
    """Yield for each chunk of the file whether it contains the text. Chunks overlap by more than the text's length."""
    with path.open("rb") as file:
        overlap = b""
        while chunk := file.read(4 << 20):
            yield pattern.is_in_bytes(overlap + chunk)
            overlap = (overlap + chunk)[-_OVERLAP_BYTES:]


# --- verification ----------------------------------------------------------------------------------------------------


def find_files_with_text(config: Config, pattern: TextPattern) -> list[str]:
    """Return the names of files in the data directory that still contain the text in any of its encodings."""
    names = []
    for path in sorted(config.data_dir.rglob("*")):
        if not path.is_file() or path.is_symlink() or path.is_relative_to(config.models):
            continue
        with suppress(OSError):  # removed since it was listed
            if any(_search_chunks(path, pattern)):
                names.append(str(path.relative_to(config.data_dir)))
    return names


# --- the request of the running deletion -----------------------------------------------------------------------------


class ErasureRequest(msgspec.Struct, frozen=True):
    """A deletion request. `rare`: rare words of the content, to recognize log lines after the rows are deleted."""

    n: int
    at: int
    erased: bool
    scope: DeletionScope
    rare: frozenset[str] = frozenset()
    counts: dict[str, int] = {}


def write_erasure_request(folder: Path, request: ErasureRequest) -> None:
    """Write and sync the request. Call this before deleting anything."""
    temp = _temp_path(folder)
    with os.fdopen(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(msgspec.json.encode(request))
        file.flush()
        os.fsync(file.fileno())
    temp.rename(folder / ERASURE_REQUEST_FILE)
    sync_directory(folder)


def read_erasure_request(folder: Path) -> ErasureRequest | None:
    """Return the request of an interrupted deletion, if there is one."""
    try:
        return msgspec.json.decode((folder / ERASURE_REQUEST_FILE).read_bytes(), type=ErasureRequest)
    except FileNotFoundError:
        pass  # no deletion was running, or its request was not yet complete
    except (msgspec.MsgspecError, RecursionError):
        log.error("the request of the interrupted deletion can't be read; it is resumed from its tombstones")
    delete_erasure_request(folder)
    return None


def delete_erasure_request(folder: Path) -> None:
    """Shred the request, including one that was not written completely."""
    for path in (folder / ERASURE_REQUEST_FILE, _temp_path(folder)):
        shred_file(path)


def _temp_path(folder: Path) -> Path:
    return folder / f".{ERASURE_REQUEST_FILE}"
