"""Files beside the database in which something that is forgotten may stand: spool, logs, starts, copies."""

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

QUARANTINE = "quarantine"
GONE = "[forgotten]"
_HEAD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ [\w.]+: ", re.ASCII)
MOST_BYTES = 64 << 20
_SMALL = ("mcp-answers.json*", "activity.flag", "worker.starting", "worker.stopped", ".reading-*/*", ".restoring-*/*")


@dataclass(frozen=True, slots=True)
class Words:
    """By what a line is known to speak of it: the text that was asked for, or several long words of what goes."""

    needle: Needle | None
    rare: frozenset[str]

    def in_line(self, text: str) -> bool:
        return self.quoted(text) or speaks_of(text, self.rare)

    def quoted(self, text: str) -> bool:
        return self.needle is not None and self.needle.is_in(text)

    def in_bytes(self, data: bytes) -> bool:
        return self.needle is not None and self.needle.is_in_bytes(data)


# --- spool and set aside ---------------------------------------------------------------------------------------------


def waiting(config: Config, scope: Scope, *, until: int) -> list[Path]:
    """Events of up to then that have not been taken in, or could not be, and belong to the scope."""
    if scope.ids:
        return []
    found = [path for folder in (config.spool, config.aside) for path in _plain(folder)]
    return [path for path in found if (ids.at(path.name) or 0) <= until and _belongs(path, scope, config)]


def _plain(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.is_file() and not path.is_symlink())


def _belongs(path: Path, scope: Scope, config: Config) -> bool:
    try:
        raw = path.read_bytes()[:MOST_BYTES]
    except OSError:
        return False
    if scope.matching and not Needle(scope.matching).is_in_bytes(raw):
        return False
    at = ids.at(path.name) or 0
    if (scope.after is not None and at < scope.after) or (scope.before is not None and at >= scope.before):
        return False
    if not (scope.sessions or scope.projects or scope.source):
        return True
    host, session, cwd = _told(path.name, raw)
    if scope.sessions and (host, session) not in scope.sessions:
        return False
    if scope.source and host != scope.source:
        return False
    known = set(projects.resolve(cwd, excluded=config.excluded_projects).every_identity) if cwd else set()
    return not scope.projects or bool(known & set(scope.projects))


def _told(name: str, raw: bytes) -> tuple[str, str, str]:
    try:
        envelope = spool.parse(name, raw)
        fields = msgspec.json.decode(envelope.payload)
        return envelope.header.get("host", ""), str(fields.get("session_id", "")), str(fields.get("cwd", ""))
    except (MemError, msgspec.MsgspecError, UnicodeDecodeError, AttributeError):
        return "", "", ""


# --- text files ------------------------------------------------------------------------------------------------------


def clean_logs(config: Config, words: Words) -> int:
    """Entries that speak of it lose what they say; how many. The log that is being written keeps its file."""
    gone = 0
    for path in _plain(config.log_file.parent):
        with paused_log():
            text = path.read_bytes()[:MOST_BYTES].decode("utf-8", "surrogateescape")
            kept = [_silenced(line, words) for line in text.split("\n")]
            count = sum(line.endswith(GONE) for line in kept) - sum(line.endswith(GONE) for line in text.split("\n"))
            if count:
                spool.overwrite(path, "\n".join(kept).encode("utf-8", "surrogateescape"))
                gone += count
    return gone


def _silenced(line: str, words: Words) -> str:
    head = _HEAD.match(line)
    begin = head.end() if head else 0  # who says it and when is ours
    return f"{line[:begin]}{GONE}" if words.in_line(line[begin:]) else line


def clean_small(config: Config, words: Words) -> int:
    """Starts that lie ready, caches and flags: they are made again."""
    gone = 0
    for path in [*_plain(config.starts), *(path for name in _SMALL for path in config.data_dir.glob(name))]:
        if path.is_file() and words.in_bytes(path.read_bytes()[:MOST_BYTES]):
            shred(path)
            gone += 1
    return gone


def shred(path: Path) -> None:
    """Overwritten, unless it has another name too, and then removed."""
    try:
        if path.stat().st_nlink == 1:
            spool.overwrite(path, bytes(path.stat().st_size))
    except OSError:
        pass  # what can't be written can still be removed
    path.unlink(missing_ok=True)


# --- copies of the database ------------------------------------------------------------------------------------------


def copies(config: Config) -> list[Path]:
    """All that we made, and what was put into quarantine."""
    found = [*config.backups.glob("*.db"), *(config.data_dir / QUARANTINE).rglob("*.db")]
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def drop_unfinished(config: Config) -> None:
    """Copies that someone who was killed has left half made. Only for the holder of the lock, while it makes none."""
    for near in (config.data_dir, config.backups):
        for folder in near.glob(f"{backup.RESTORING}*"):
            if folder.is_dir() and not folder.is_symlink() and not backup.is_anothers(folder):
                for path in _plain(folder):
                    shred(path)
                shutil.rmtree(folder, ignore_errors=True)
    parts = (f"*{migrate.PART}", f"*{migrate.PART}-*")
    for path in [path for part in parts for path in (config.data_dir / QUARANTINE).rglob(part)]:
        if path.is_file() and not path.is_symlink():
            shred(path)


def clean_copy(path: Path, config: Config, scope: Scope, stones: list[Stone], words: Words) -> str:
    """`kept` as it was, `rewritten`, or `deleted`: one that can't be read can't be trusted to have nothing of it."""
    try:
        if foreign.whose(path) not in ("ours", "empty"):
            return "kept"
        with foreign.reading(path) as conn:
            wanted = bool(_in_copy(conn, config, scope, stones))
    except MemError as problem:
        return _drop(path, problem)
    if not wanted and not _says(path, words):
        return "kept"
    try:
        backup.rewrite(path, lambda conn: _wipe(conn, config, scope, stones, words), pack=True)
    except (MemError, *damage.SIGNS) as problem:
        if not damage.is_damage(problem):  # a full disk is no fault of the copy's
            raise
        return _drop(path, problem)
    finally:
        foreign.drop_copy(path)
    return "rewritten"


def _drop(path: Path, problem: Exception) -> str:
    log.warning("%s can't be read (%s) and is deleted", path.name, type(problem).__name__)
    for side in backup.SIDES:
        shred(path.with_name(path.name + side))
    return "deleted"


def _in_copy(conn: Connection, config: Config, scope: Scope, stones: list[Stone]) -> Found:
    """By the scope itself, since a copy may have what is long gone here; and by what was found here. Numbers may mean
    something else there."""
    marks.attach(conn, config.data_dir)
    named = forgetting.marked(conn, stones)
    if scope.ids:
        return named
    return forgetting.union(conn, named, find(conn, scope, erase=True))


def _wipe(conn: Connection, config: Config, scope: Scope, stones: list[Stone], words: Words) -> None:
    before = _dangling(conn)
    forgetting.wipe_copy(conn, _in_copy(conn, config, scope, stones))
    forgetting.wipe_traces(conn, words.in_line, quoted=words.quoted)
    if dangling := _dangling(conn) - before:
        raise CannotDo(f"{len(dangling)} rows would name what is not there", hint="please report this")


def _dangling(conn: Connection) -> set[tuple[Any, ...]]:
    """Rows that name what is not there. In quarantine some may have been so all along."""
    return {tuple(row.values()) for row in rows(conn, "pragma foreign_key_check")}


def _says(path: Path, words: Words) -> bool:
    return words.needle is not None and any(_chunks_say(path, words.needle))


def _chunks_say(path: Path, needle: Needle) -> Iterator[bool]:
    """Piece by piece, each overlapping the next by more than the text is long."""
    with path.open("rb") as file:
        before = b""
        while piece := file.read(4 << 20):
            yield needle.is_in_bytes(before + piece)
            before = piece[-4096:]


# --- is anything left? -----------------------------------------------------------------------------------------------


def left(config: Config, needle: Needle) -> list[str]:
    """Files of ours in which the text still stands, in any of its forms."""
    found = []
    for path in sorted(config.data_dir.rglob("*")):
        ours = path.is_file() and not path.is_symlink() and not path.is_relative_to(config.models)
        if ours and _safely(lambda path=path: any(_chunks_say(path, needle))):  # type: ignore[misc]
            found.append(str(path.relative_to(config.data_dir)))
    return found


def _safely(look: Callable[[], bool]) -> bool:
    try:
        return look()
    except OSError:
        return False  # gone meanwhile
