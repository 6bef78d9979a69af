"""The spool: a directory through which hooks hand events to the worker, one file per event, named by the event's id.

A rename needs no lock, no running worker and no database. The worker reads the files in the order of their arrival,
commits, and only then removes them: a crash in between causes a duplicate read, never a lost event.
"""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from claude_mem import hook
from claude_mem.domain import ids
from claude_mem.domain.errors import UnreadableEvent

MAX_BYTES = hook.MAX_PAYLOAD_BYTES + (1 << 16)
SET_ASIDE_BYTES = 1 << 20
LOOK_BACK_BYTES = 1 << 16
LONGEST_DELAY_NS = 60 * 10**9  # no hook runs that long: the clock was changed, or the file is a copy
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Envelope:
    """A parsed spool file: the header lines that the hook wrote, and the payload."""

    id: str
    header: Mapping[str, str]
    payload: bytes


class Spool:
    def __init__(self, folder: Path, aside: Path) -> None:
        self.folder = folder
        self.aside = aside
        self.delays: deque[float] = deque(maxlen=1_000)  # milliseconds
        for path in (folder, aside):
            hook.make_private_dir(str(path))

    def put(self, header: Mapping[str, str], payload: bytes) -> str:
        """Store an event that arrived over HTTP, as the hook would. On return, the event is durable on disk."""
        name = ids.new_event_id()
        escaped = {key: value.replace("%", "%25").replace("\n", "%0A") for key, value in header.items()}
        lines = "".join(f"{key} {value}\n" for key, value in escaped.items())
        temp = self.folder / f".{name}"
        with os.fdopen(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(lines.encode("utf-8", "surrogateescape") + b"\n" + payload)
            file.flush()
            os.fsync(file.fileno())
        temp.rename(self.folder / name)
        sync_directory(self.folder)
        return name

    def pending(self, limit: int | None = None) -> list[str]:
        """Return file names, oldest first, without unfinished files of hooks, whose names begin with a dot."""
        names = sorted(entry.name for entry in os.scandir(self.folder) if not entry.name.startswith("."))
        return names if limit is None else names[:limit]

    def arrivals(self, limit: int) -> list[str]:
        """Return file names in the order in which the files arrived, as far as it can be determined.

        Names begin with the time, and the clock may have been set back between two hooks. A running worker reads each
        file as it arrives, so this concerns files that arrived while no worker ran. Where the file system's timestamps
        contradict the names, the timestamps decide: they may come from a file server or from the machine that hosts a
        container. If the file system's clock was set back too, the order cannot be determined, and the names decide.
        """
        times = dict(map(_arrival, (entry for entry in os.scandir(self.folder) if not entry.name.startswith("."))))
        names = sorted(times)
        if any(abs((ids.created_at_ns(name) or 0) - at) > LONGEST_DELAY_NS for name, (at, _) in times.items()):
            names.sort(key=times.__getitem__)
        return names[:limit]

    def load(self, name: str) -> Envelope:
        """Read and parse a spool file."""
        try:
            with os.fdopen(os.open(self.folder / name, _READ_FLAGS), "rb") as file:
                raw, stored_ns = file.read(MAX_BYTES + 1), os.fstat(file.fileno()).st_ctime_ns
        except OSError as error:
            raise UnreadableEvent("unreadable", str(error)) from error
        if not raw:
            raise UnreadableEvent("empty")
        envelope = parse_envelope(name, raw)
        if envelope.header.get("source") != "api":
            self._note_delay(name, stored_ns)
        return envelope

    def _note_delay(self, name: str, stored_ns: int) -> None:
        """Record how long the hook took to store its event, without any cost for the hook.

        The file name contains the time at which the hook started writing; the file's last status change is the final
        rename. The file system's clock is coarser.
        """
        started_ns = ids.created_at_ns(name)
        if started_ns is not None and (delay_ns := max(stored_ns - started_ns, 0)) <= LONGEST_DELAY_NS:
            self.delays.append(delay_ns / 1e6)

    def remove(self, name: str) -> None:
        """Delete a spool file."""
        (self.folder / name).unlink(missing_ok=True)

    def set_aside(self, name: str, *, clean: Callable[[str], str]) -> None:
        """Move an unreadable event to the set-aside directory for inspection. `clean` removes secrets from its text."""
        try:
            with os.fdopen(os.open(self.folder / name, _READ_FLAGS), "rb") as file:
                text = file.read(SET_ASIDE_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return  # already moved, before a crash
        except OSError:
            (self.folder / name).rename(self.aside / name)  # not a readable file
            return
        content = clean(text).encode("utf-8", "replace")
        try:
            write_private(self.aside / name, content)
            self.remove(name)
        except OSError:  # no space for a second file: overwrite in place
            overwrite_in_place(self.folder / name, content[: len(text)])
            (self.folder / name).rename(self.aside / name)

    def sweep(self, *, older_than_seconds: float, now: float) -> int:
        """Remove unfinished files of hooks that were killed; those events were never reported as stored."""
        count = 0
        for entry in os.scandir(self.folder):
            if entry.name.startswith(".") and now - _modified(entry, now) > older_than_seconds:
                Path(entry.path).unlink(missing_ok=True)
                count += 1
        return count


def _arrival(entry: os.DirEntry[str]) -> tuple[str, tuple[int, int]]:
    """Return a file's name, its modification time and its inode number.

    Of two files with the same modification time, the later one usually has the higher inode number.
    """
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return entry.name, (ids.created_at_ns(entry.name) or 0, 0)
    return entry.name, (status.st_mtime_ns, status.st_ino)


def parse_envelope(name: str, raw: bytes) -> Envelope:
    """Parse the content of a spool file, or raise `UnreadableEvent`."""
    head, separator, payload = raw.partition(b"\n\n")
    if not separator or len(raw) > MAX_BYTES:
        raise UnreadableEvent("garbage")
    header = {}
    for line in head.decode("utf-8", "surrogateescape").split("\n"):
        key, _, value = line.partition(" ")
        header[key] = value.replace("%0A", "\n").replace("%25", "%")
    if "command" not in header:
        raise UnreadableEvent("garbage")
    return Envelope(name, header, payload)


def _modified(entry: os.DirEntry[str], now: float) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return now  # its hook has just renamed it


def write_private(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Replace a file atomically; only its owner can read it. With `sync`, the content survives a power failure."""
    temp = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    temp.rename(path)


def append_private(path: Path, lines: bytes) -> None:
    """Append lines to a file that only its owner can read: either all of them, durable on return, or none.

    A partial line that a crash left at the end is removed first, because it would swallow the next line.
    """
    is_new = not path.exists()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "rb+", buffering=0) as file:
        end = _end_of_last_line(file)
        file.truncate(end)
        try:
            unwritten = memoryview(lines)
            while unwritten:
                unwritten = unwritten[file.write(unwritten) or 0 :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)
            raise
    if is_new:
        sync_directory(path.parent)


def _end_of_last_line(file: io.FileIO) -> int:
    """Return the offset at which the last complete line ends."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - LOOK_BACK_BYTES)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def modified_at(path: Path) -> float:
    """Return the modification time, or 0 if the path no longer exists. Does not follow links: one may be broken."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def sync_directory(folder: Path) -> None:
    """Sync a directory; a rename in it survives a power failure only after this."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def overwrite_in_place(path: Path, data: bytes) -> None:
    """Replace a file's content in place: for a full disk, or a file that another process has open."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_NOFOLLOW), "wb") as file:
        file.write(data)
        file.truncate()
