"""Makes sure that the data directory is private: only its owner can read it, and no other user put anything into it.

The check runs whenever a process takes the lock, because the directory may have been accessible to others before:

- A token that others could read is no longer secret; it is replaced.
- A file of another user could be changed by that user at any time; the worker refuses to start and says why.
- A link would redirect what the worker writes. In place of the database it is refused; in place of a small file it is
  moved aside (`own_files.py`). The user's own links to directories and to `config.toml` are allowed, because users may
  keep them on another disk or in a repository.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from claude_mem import hook
from claude_mem.errors import CannotDo

TOKEN = "token"  # noqa: S105 -- the name of its file
DATABASES = tuple(f"{name}.db{side}" for name in ("claude-mem", "memory") for side in ("", "-wal", "-shm"))
FILES = (
    TOKEN, "worker.json", "worker.lock", "worker.fifo", "worker.starting", hook.STOPPED, hook.WARNED, "claude-mem-hook",
    "mcp-answers.json", "worker.log", "activity.flag", "ballast", "missed",
    *DATABASES,
)  # fmt: skip
FOLDERS = ("spool", "aside", "starts", "backups", "exports", "logs", "modes", "models", "observer", "quarantine")


def shut(folder: Path) -> None:
    """Create the data directory, deny others access to it, and check that everything in it belongs to this user."""
    hook.make_private(str(folder))
    if not is_mine(folder.stat()):
        raise CannotDo(f"{folder} belongs to another user", hint="set CLAUDE_MEM_DATA_DIR to a directory that you own")
    folder.chmod(0o700)
    for path in _entries(folder):
        with contextlib.suppress(FileNotFoundError):  # renamed by a hook or removed by a worker just now
            _check_entry(path, path.lstat())


def _entries(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        yield path
        if path.name in FOLDERS and path.is_dir():
            yield from path.iterdir()


def _check_entry(path: Path, status: os.stat_result) -> None:
    if not (is_mine(status) or status.st_uid == 0):
        hint = "that user may have put it there: inspect it, then move it away"
        raise CannotDo(f"{path} belongs to another user", hint=hint)
    if stat.S_ISLNK(status.st_mode):
        if path.name in DATABASES:
            raise CannotDo(
                f"{path} is a symbolic link, which is not followed", hint="replace it by the file itself, or remove it"
            )
    elif status.st_mode & 0o077 and is_mine(status):
        if path.name == TOKEN and stat.S_ISREG(status.st_mode):
            path.unlink()  # others could read it, so it is no longer secret
        else:
            path.chmod(stat.S_IMODE(status.st_mode) & 0o700)


def is_mine(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid()


def open_to_others(folder: Path) -> Path | None:
    """Return the first parent directory in which anyone could replace this path, or None."""
    for parent in folder.resolve().parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return parent
    return None


def appending(path: str, flags: int) -> int:
    """Open a log file for appending, for use as an `opener`. Symbolic links and hard links are refused."""
    fd = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    if os.fstat(fd).st_nlink > 1:
        os.close(fd)
        raise OSError(f"{path} has a second hard link")
    return fd
