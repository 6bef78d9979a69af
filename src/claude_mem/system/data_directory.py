"""Makes sure that the data directory is private and intact. The checks run whenever a process takes the lock.

- A token that others could read is no longer secret; it is replaced.
- A file of another user could be changed by that user at any time. A small file, such as one that `sudo` left, is moved
  to quarantine; because of any other file, the worker refuses to start and says why.
- A directory, link or pipe in place of a small file, or one of many megabytes, would keep the worker from starting, and
  then nothing would be remembered; it is moved to quarantine, and the move is recorded in a journal there.
- A link in place of the database is refused, because the user may have put it there on purpose. The user's own links to
  directories and to `config.toml` are allowed: users may keep them on another disk or in a repository.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from claude_mem import hook
from claude_mem.domain import ids
from claude_mem.domain.errors import OperationFailed
from claude_mem.system.spool import append_private

log = logging.getLogger(__name__)

TOKEN_FILE = "token"  # noqa: S105 -- the name of its file
DATABASES = tuple(f"{name}.db{side}" for name in ("claude-mem", "memory") for side in ("", "-wal", "-shm"))
FILES = (
    TOKEN_FILE, "worker.json", "worker.lock", "worker.fifo", "worker.starting", hook.STOP_STAMP, hook.WARNING_STAMP,
    "claude-mem-hook",
    "mcp-answers.json", "worker.log", "activity.flag", "ballast", "missed",
    *DATABASES,
)  # fmt: skip
FOLDERS = (
    "spool",
    "aside",
    "starts",
    "backups",
    "exports",
    "logs",
    "modes",
    "models",
    "observer",
    "quarantine",
    "spaces",
)
LOCK_FILE, PIPE_FILE = "worker.lock", "worker.fifo"
KEY_FILE, TOMBSTONES_FILE = "forget.key", "forgotten.jsonl"
_MORE_FILES = (KEY_FILE, TOMBSTONES_FILE, "audit.jsonl", "forgetting.json", "logs/worker.log", "logs/start.log")
SMALL_FILES = (*(name for name in FILES if ".db" not in name), *_MORE_FILES)
BALLAST_FILE = "ballast"
MAX_SMALL_BYTES = 64 << 20  # those that grow are rotated earlier, or can be written again from the database
FOLDER, JOURNAL = "files", "about.jsonl"  # in `quarantine`
REPORT_MS = 7 * 86_400_000  # how long the user is reminded of a file in quarantine


def secure_data_dir(folder: Path) -> None:
    """Create the data directory, deny others access to it, and check that everything in it belongs to this user."""
    hook.make_private_dir(str(folder))
    if not is_owned_by_user(folder.stat()):
        raise OperationFailed(
            f"{folder} belongs to another user", hint="set CLAUDE_MEM_DATA_DIR to a directory that you own"
        )
    folder.chmod(0o700)
    for path in list(_entries(folder)):
        with contextlib.suppress(FileNotFoundError):  # renamed by a hook or removed by a worker just now
            status = path.lstat()
            if not is_owned_by_user(status) and str(path.relative_to(folder)) in SMALL_FILES:
                move_to_quarantine(folder, path, "belonged to another user")
            else:
                _check_entry(path, status)


def _entries(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        yield path
        if path.name in FOLDERS and path.is_dir():
            yield from path.iterdir()


def _check_entry(path: Path, status: os.stat_result) -> None:
    if not (is_owned_by_user(status) or status.st_uid == 0):
        hint = "that user may have put it there: inspect it, then move it away"
        raise OperationFailed(f"{path} belongs to another user", hint=hint)
    if stat.S_ISLNK(status.st_mode):
        if path.name in DATABASES:
            raise OperationFailed(
                f"{path} is a symbolic link, which is not followed", hint="replace it by the file itself, or remove it"
            )
    elif status.st_mode & 0o077 and is_owned_by_user(status):
        if path.name == TOKEN_FILE and stat.S_ISREG(status.st_mode):
            path.unlink()  # others could read it, so it is no longer secret
        else:
            path.chmod(stat.S_IMODE(status.st_mode) & 0o700)


def is_owned_by_user(status: os.stat_result) -> bool:
    """Return whether a file belongs to the user of this process."""
    return status.st_uid == os.geteuid()


def world_writable_parent(folder: Path) -> Path | None:
    """Return the first parent directory in which anyone could replace this path, or None."""
    for parent in folder.resolve().parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return parent
    return None


def open_for_append(path: str, flags: int) -> int:
    """Open a log file for appending, for use as an `opener`. Symbolic links and hard links are refused."""
    fd = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    if os.fstat(fd).st_nlink > 1:
        os.close(fd)
        raise OSError(f"{path} has a second hard link")
    return fd


# --- quarantine of damaged files -------------------------------------------------------------------------------------


class QuarantinedFile(msgspec.Struct, frozen=True):
    """A line of the journal: the file, what was wrong, and its new path; both paths relative to the data directory."""

    name: str
    why: str
    at: int
    moved_to: str = msgspec.field(name="kept")

    def __str__(self) -> str:
        return f"{self.name} {self.why}; it was moved to {self.moved_to}"


def quarantine_damaged(folder: Path) -> None:
    """Move everything that has the wrong file type to quarantine. The caller must hold the lock."""
    for name in ("quarantine", *FOLDERS):
        if why := _wrong_folder(folder / name):
            move_to_quarantine(folder, folder / name, why)
    _move_displaced_by_hooks(folder)
    for name in SMALL_FILES:
        clear_path(folder, name)
    for name in DATABASES:  # a link was refused before, and what a file beside the database holds is SQLite's affair
        path = folder / name
        if name.endswith(("-wal", "-shm")) and os.path.lexists(path) and not path.is_file():
            move_to_quarantine(folder, path, _kind(path.lstat()))


def clear_path(folder: Path, name: str) -> None:
    """Move anything that is not a regular file from this path to quarantine."""
    if why := _wrong_file(folder / name):
        move_to_quarantine(folder, folder / name, why)


def move_to_quarantine(folder: Path, path: Path, why: str, *, name: str = "") -> None:
    """Move a path to quarantine and record it in the journal, as `name` if it was renamed before."""
    quarantine = folder / "quarantine" / FOLDER
    target = quarantine / f"{path.name}-{ids.new_event_id()}"
    try:
        hook.make_private_dir(str(quarantine))
        path.rename(target)
    except OSError:  # the quarantine is missing or on another disk
        target = path.with_name(f"{path.name}{hook.DISPLACED_MARKER}{ids.new_event_id()}")
        path.rename(target)
    moved = QuarantinedFile(name or str(path.relative_to(folder)), why, ids.now_ms(), str(target.relative_to(folder)))
    log.error("%s", moved)
    with contextlib.suppress(OSError):
        append_private(quarantine / JOURNAL, msgspec.json.encode(moved) + b"\n")


def list_quarantined(folder: Path) -> list[QuarantinedFile]:
    """Return the journal's entries whose files are still in quarantine, newest first."""
    entries = []
    try:
        lines = (folder / "quarantine" / FOLDER / JOURNAL).read_bytes().splitlines()
    except OSError:
        return []
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError, RecursionError):
            entry = msgspec.json.decode(line, type=QuarantinedFile)
            if os.path.lexists(folder / entry.moved_to):
                entries.append(entry)
    return entries[::-1]


def recently_quarantined(folder: Path, *, now: int) -> Iterator[QuarantinedFile]:
    """Return the entries that are recent enough to be reported to the user."""
    return (moved for moved in list_quarantined(folder) if now - moved.at < REPORT_MS)


def _move_displaced_by_hooks(folder: Path) -> None:
    """Move to quarantine what hooks had to rename in order to start a worker."""
    for place in (folder, folder / "logs"):
        for path in [path for path in place.iterdir() if hook.DISPLACED_MARKER in path.name] if place.is_dir() else []:
            original = path.with_name(path.name.partition(hook.DISPLACED_MARKER)[0])
            move_to_quarantine(folder, path, _kind(path.lstat()), name=str(original.relative_to(folder)))


def _wrong_file(path: Path) -> str:
    """Return what is wrong with a file, or "" if it is a proper file or does not exist."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    if stat.S_ISREG(status.st_mode):
        if status.st_size > MAX_SMALL_BYTES and path.name != BALLAST_FILE:
            return f"was larger than {MAX_SMALL_BYTES >> 20} MB"
        return "has a second hard link" if status.st_nlink > 1 and path.name in (LOCK_FILE, "worker.log") else ""
    if stat.S_ISFIFO(status.st_mode) and path.name == PIPE_FILE:
        return ""
    return _kind(status)


def _wrong_folder(path: Path) -> str:
    """Return what is wrong with a directory, or "". A broken link is left alone: its disk may be mounted later."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return ""
    if stat.S_ISDIR(status.st_mode) or path.is_dir() or (stat.S_ISLNK(status.st_mode) and not path.exists()):
        return ""
    return "was a file, not a directory" if stat.S_ISREG(status.st_mode) else _kind(status)


def _kind(status: os.stat_result) -> str:
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFREG: "a file"}
    return f"was {kinds.get(stat.S_IFMT(status.st_mode), 'not a file')}"
