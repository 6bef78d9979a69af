"""The data directory is its owner's alone: no one else reads it, and nothing in it was put there by someone else.

Whoever takes the lock looks first. A folder that was open before may have been used: a token that others could read is
no secret any more, a file of another user's may be changed by them at any time, and a link would carry what we write
to wherever it leads. The first is made anew, the second is refused, with words; so is a link in the place of the
database. A link in the place of a small file is moved aside (`own_files.py`). A person's own link may stand for a
folder of ours or for `config.toml`: to have them on another disk, or in a repository, is theirs to choose.
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
    """Make it, close it to others, and see that everything in it is ours."""
    hook.make_private(str(folder))
    if not is_mine(folder.stat()):
        raise CannotDo(f"{folder} belongs to another user", hint="set CLAUDE_MEM_DATA_DIR to a folder of yours")
    folder.chmod(0o700)
    for path in _entries(folder):
        with contextlib.suppress(FileNotFoundError):  # a hook has just finished it, or a worker just read it
            _look(path, path.lstat())


def _entries(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        yield path
        if path.name in FOLDERS and path.is_dir():
            yield from path.iterdir()


def _look(path: Path, found: os.stat_result) -> None:
    if not (is_mine(found) or found.st_uid == 0):
        hint = "they may have put it there: look at it, then move it away"
        raise CannotDo(f"{path} belongs to another user", hint=hint)
    if stat.S_ISLNK(found.st_mode):
        if path.name in DATABASES:
            raise CannotDo(f"{path} is a link, and is not followed", hint="put the file itself there, or remove it")
    elif found.st_mode & 0o077 and is_mine(found):
        if path.name == TOKEN and stat.S_ISREG(found.st_mode):
            path.unlink()  # others could read it: it is no secret any more
        else:
            path.chmod(stat.S_IMODE(found.st_mode) & 0o700)


def is_mine(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid()


def open_to_others(folder: Path) -> Path | None:
    """The folder above it in which anyone may put another in its place, if there is one."""
    for parent in folder.resolve().parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return parent
    return None


def appending(path: str, flags: int) -> int:
    """An opener for logs: a link is not followed, and a second name of someone's file is not written to."""
    fd = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    if os.fstat(fd).st_nlink > 1:
        os.close(fd)
        raise OSError(f"{path} has a second name")
    return fd
