"""Erasure of deleted content from files other than the database: spool, logs, cached start contexts, backups."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from claude_mem import ids, projects, spool
from claude_mem.config import Config
from claude_mem.errors import CannotDo, MemError
from claude_mem.needles import Needle, speaks_of
from claude_mem.pipeline.scrub import paused_log
from claude_mem.store import backup, damage, foreign, forgetting, marks, migrate
from claude_mem.store.database import Connection, rows
from claude_mem.store.scopes import Found, Scope, find
from claude_mem.store.stones import Stone

log = logging.getLogger(__name__)

_QUARANTINE = "quarantine"
_ERASED_TEXT = "[forgotten]"
_LOG_PREFIX = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ [\w.]+: ", re.ASCII)
_MAX_READ_BYTES = 64 << 20
_CACHE_PATTERNS = (
    "mcp-answers.json*",
    "activity.flag",
    "worker.starting",
    "worker.stopped",
    ".reading-*/*",
    ".restoring-*/*",
)


@dataclass(frozen=True, slots=True)
class Words:
    """How to recognize erased content in a text: by the requested text, or by several rare words of the content."""

    pattern: Needle | None
    rare_words: frozenset[str]

    def in_line(self, text: str) -> bool:
        return self.quoted(text) or speaks_of(text, self.rare_words)

    def quoted(self, text: str) -> bool:
        return self.pattern is not None and self.pattern.is_in(text)

    def in_bytes(self, data: bytes) -> bool:
        return self.pattern is not None and self.pattern.is_in_bytes(data)


# --- spool and set aside ---------------------------------------------------------------------------------------------


def waiting(config: Config, scope: Scope, *, until: int) -> list[Path]:
    """Return the spooled and set-aside event files from before `until` that the scope covers."""
    if scope.ids:
        return []
    paths = [path for folder in (config.spool, config.aside) for path in _regular_files(folder)]
    return [path for path in paths if (ids.at(path.name) or 0) <= until and _is_in_scope(path, scope, config)]


def _regular_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.is_file() and not path.is_symlink())


def _is_in_scope(path: Path, scope: Scope, config: Config) -> bool:
    try:
        raw = path.read_bytes()[:_MAX_READ_BYTES]
    except OSError:
        return False
    if scope.matching and not Needle(scope.matching).is_in_bytes(raw):
        return False
    at = ids.at(path.name) or 0
    if (scope.after is not None and at < scope.after) or (scope.before is not None and at >= scope.before):
        return False
    if not (scope.sessions or scope.projects or scope.source):
        return True
    host, session, cwd = _parse_identity(path.name, raw)
    if scope.sessions and (host, session) not in scope.sessions:
        return False
    if scope.source and host != scope.source:
        return False
    identities = set(projects.resolve(cwd, excluded=config.excluded_projects).every_identity) if cwd else set()
    return not scope.projects or bool(identities & set(scope.projects))


def _parse_identity(name: str, raw: bytes) -> tuple[str, str, str]:
    try:
        envelope = spool.parse(name, raw)
        fields = msgspec.json.decode(envelope.payload)
        return envelope.header.get("host", ""), str(fields.get("session_id", "")), str(fields.get("cwd", ""))
    except (MemError, msgspec.MsgspecError, UnicodeDecodeError, AttributeError):
        return "", "", ""


# --- text files ------------------------------------------------------------------------------------------------------


def clean_logs(config: Config, content: Words) -> int:
    """Erase the text of log entries that mention the content. Return their number.

    Files are overwritten in place, because the current log stays open.
    """
    erased_count = 0
    for path in _regular_files(config.log_file.parent):
        with paused_log():
            text = path.read_bytes()[:_MAX_READ_BYTES].decode("utf-8", "surrogateescape")
            lines = [_redact_line(line, content) for line in text.split("\n")]
            count = sum(line.endswith(_ERASED_TEXT) for line in lines) - sum(
                line.endswith(_ERASED_TEXT) for line in text.split("\n")
            )
            if count:
                spool.overwrite(path, "\n".join(lines).encode("utf-8", "surrogateescape"))
                erased_count += count
    return erased_count


def _redact_line(line: str, content: Words) -> str:
    head = _LOG_PREFIX.match(line)
    start = head.end() if head else 0  # the prefix with time and logger name stays
    return f"{line[:start]}{_ERASED_TEXT}" if content.in_line(line[start:]) else line


def clean_small(config: Config, content: Words) -> int:
    """Erase cached start contexts, caches and flag files that contain the text. They are created again when needed."""
    erased_count = 0
    for path in [
        *_regular_files(config.starts),
        *(path for name in _CACHE_PATTERNS for path in config.data_dir.glob(name)),
    ]:
        if path.is_file() and content.in_bytes(path.read_bytes()[:_MAX_READ_BYTES]):
            shred(path)
            erased_count += 1
    return erased_count


def shred(path: Path) -> None:
    """Overwrite the file with zeros and remove it. A file with several hard links is only removed."""
    try:
        if path.stat().st_nlink == 1:
            spool.overwrite(path, bytes(path.stat().st_size))
    except OSError:
        pass  # a file that can't be written can still be removed
    path.unlink(missing_ok=True)


# --- copies of the database ------------------------------------------------------------------------------------------


def copies(config: Config) -> list[Path]:
    """Return all backups, and all databases in quarantine."""
    paths = [*config.backups.glob("*.db"), *(config.data_dir / _QUARANTINE).rglob("*.db")]
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def drop_unfinished(config: Config) -> None:
    """Erase unfinished copies left by a killed process.

    The caller must hold the worker lock and must not be making a copy.
    """
    for parent in (config.data_dir, config.backups):
        for folder in parent.glob(f"{backup.RESTORING}*"):
            if folder.is_dir() and not folder.is_symlink() and not backup.is_anothers(folder):
                for path in _regular_files(folder):
                    shred(path)
                shutil.rmtree(folder, ignore_errors=True)
    patterns = (f"*{migrate.PART}", f"*{migrate.PART}-*")
    for path in [path for pattern in patterns for path in (config.data_dir / _QUARANTINE).rglob(pattern)]:
        if path.is_file() and not path.is_symlink():
            shred(path)


def clean_copy(path: Path, config: Config, scope: Scope, tombstones: list[Stone], content: Words) -> str:
    """Erase the content from a copy of the database. Return `kept` (unchanged), `rewritten` or `deleted`.

    A copy that can't be read is deleted, because it may contain the content.
    """
    try:
        if foreign.whose(path) not in ("ours", "empty"):
            return "kept"
        with foreign.reading(path) as conn:
            has_rows = bool(_find_in_copy(conn, config, scope, tombstones))
    except MemError as problem:
        return _delete_unreadable(path, problem)
    if not has_rows and not _contains_text(path, content):
        return "kept"
    try:
        backup.rewrite(path, lambda conn: _erase_from_copy(conn, config, scope, tombstones, content), vacuum=True)
    except (MemError, *damage.SIGNS) as problem:
        if not damage.is_damage(problem):  # for example a full disk
            raise
        return _delete_unreadable(path, problem)
    finally:
        foreign.drop_copy(path)
    return "rewritten"


def _delete_unreadable(path: Path, problem: Exception) -> str:
    log.warning("%s can't be read (%s) and was deleted", path.name, type(problem).__name__)
    for side in backup.SIDES:
        shred(path.with_name(path.name + side))
    return "deleted"


def _find_in_copy(conn: Connection, config: Config, scope: Scope, tombstones: list[Stone]) -> Found:
    """Return the rows of a copy that the deletion covers.

    They are found by the tombstones and by the scope, because the copy may contain rows that the database no longer
    has. A scope of row ids is not used: the same ids may mean other rows in the copy.
    """
    marks.attach(conn, config.data_dir)
    tombstoned = forgetting.marked(conn, tombstones)
    if scope.ids:
        return tombstoned
    return forgetting.union(conn, tombstoned, find(conn, scope, erase=True))


def _erase_from_copy(conn: Connection, config: Config, scope: Scope, tombstones: list[Stone], content: Words) -> None:
    before = _dangling_references(conn)
    forgetting.wipe_copy(conn, _find_in_copy(conn, config, scope, tombstones))
    forgetting.wipe_traces(conn, content.in_line, quotes=content.quoted)
    if dangling := _dangling_references(conn) - before:
        raise CannotDo(f"erasing would leave {len(dangling)} dangling references", hint="please report this")


def _dangling_references(conn: Connection) -> set[tuple[Any, ...]]:
    """Return the dangling references of a copy. A database in quarantine may have had some before."""
    return {tuple(row.values()) for row in rows(conn, "pragma foreign_key_check")}


def _contains_text(path: Path, content: Words) -> bool:
    return content.pattern is not None and any(_search_chunks(path, content.pattern))


def _search_chunks(path: Path, pattern: Needle) -> Iterator[bool]:
    """Yield for each chunk of the file whether it contains the text. Chunks overlap by more than the text's length."""
    with path.open("rb") as file:
        overlap = b""
        while chunk := file.read(4 << 20):
            yield pattern.is_in_bytes(overlap + chunk)
            overlap = chunk[-4096:]


# --- verification ----------------------------------------------------------------------------------------------------


def left(config: Config, pattern: Needle) -> list[str]:
    """Return the names of files in the data directory that still contain the text in any of its encodings."""
    names = []
    for path in sorted(config.data_dir.rglob("*")):
        is_searched = path.is_file() and not path.is_symlink() and not path.is_relative_to(config.models)
        if is_searched and _false_if_unreadable(lambda path=path: any(_search_chunks(path, pattern))):  # type: ignore[misc]
            names.append(str(path.relative_to(config.data_dir)))
    return names


def _false_if_unreadable(search: Callable[[], bool]) -> bool:
    try:
        return search()
    except OSError:
        return False  # the file was removed in the meantime
