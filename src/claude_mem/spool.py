"""The handoff between hook and worker: a directory, one file an event, its name the event's id.

A rename needs no lock, no running worker and no database. The worker takes the files in the order of their
arrival, commits, and only then removes them: a crash costs a second look, never an event.
"""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from claude_mem import hook, ids
from claude_mem.errors import BadRecord

MAX_BYTES = hook.MAX_PAYLOAD + (1 << 16)
ASIDE_BYTES = 1 << 20
LOOK_BACK = 1 << 16
LONGEST_DELAY_NS = 60 * 10**9  # no hook lives that long: the clock was set, or the file is a copy
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Envelope:
    """A spool file: what the hook wrote above the payload, and the payload."""

    id: str
    header: Mapping[str, str]
    payload: bytes


class Spool:
    def __init__(self, folder: Path, aside: Path) -> None:
        self.folder = folder
        self.aside = aside
        self.delays: deque[float] = deque(maxlen=1_000)  # milliseconds
        for path in (folder, aside):
            hook.make_private(str(path))

    def put(self, header: Mapping[str, str], payload: bytes) -> str:
        """What the hook does, for events that come in by HTTP. When it returns, the event is safe."""
        name = ids.new()
        lines = "".join(f"{key} {_escape(value)}\n" for key, value in header.items())
        temp = self.folder / f".{name}"
        with os.fdopen(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(lines.encode("utf-8", "surrogateescape") + b"\n" + payload)
            file.flush()
            os.fsync(file.fileno())
        temp.rename(self.folder / name)
        sync_folder(self.folder)
        return name

    def pending(self, limit: int | None = None) -> list[str]:
        """Names, oldest first. A hook's unfinished file begins with a dot and is nobody's business."""
        names = sorted(entry.name for entry in os.scandir(self.folder) if not entry.name.startswith("."))
        return names if limit is None else names[:limit]

    def arrivals(self, limit: int) -> list[str]:
        """Return names in the order in which the files arrived, as far as it can be known.

        Names begin with the time, and the clock may have been set back between two hooks. A worker that runs takes each
        file as it comes, so this concerns what came while none ran. The file system's own times decide where they
        contradict the names: those of a file server, or of a machine around ours. Where the file system's clock was set
        back too, nothing tells the order, and the names decide.
        """
        times = dict(map(_arrived, (entry for entry in os.scandir(self.folder) if not entry.name.startswith("."))))
        names = sorted(times)
        if any(abs((ids.nanoseconds(name) or 0) - at) > LONGEST_DELAY_NS for name, (at, _) in times.items()):
            names.sort(key=times.__getitem__)
        return names[:limit]

    def load(self, name: str) -> Envelope:
        try:
            with os.fdopen(os.open(self.folder / name, _READ_FLAGS), "rb") as file:
                raw, safe_at = file.read(MAX_BYTES + 1), os.fstat(file.fileno()).st_ctime_ns
        except OSError as error:
            raise BadRecord("unreadable", str(error)) from error
        if not raw:
            raise BadRecord("empty")
        envelope = parse(name, raw)
        if envelope.header.get("source") != "api":
            self._note_delay(name, safe_at)
        return envelope

    def _note_delay(self, name: str, safe_at: int) -> None:
        """How long the hook took to bring its event into safety: its name tells when it began to write, the file's last
        change, a rename, when it was done. Nothing is asked of the hook for it. The file system's clock is coarser."""
        begun = ids.nanoseconds(name)
        if begun is not None and (taken := max(safe_at - begun, 0)) <= LONGEST_DELAY_NS:
            self.delays.append(taken / 1e6)

    def remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def set_aside(self, name: str, *, clean: Callable[[str], str]) -> None:
        """Out of the way, but there for whoever wants to know what it was; without what must not be kept."""
        try:
            with os.fdopen(os.open(self.folder / name, _READ_FLAGS), "rb") as file:
                text = file.read(ASIDE_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return  # done before the crash that brought us here again
        except OSError:
            (self.folder / name).rename(self.aside / name)  # no file that could be read
            return
        cleaned = clean(text).encode("utf-8", "replace")
        try:
            write_private(self.aside / name, cleaned)
            self.remove(name)
        except OSError:  # no room for a second one: then in its own place
            overwrite(self.folder / name, cleaned[: len(text)])
            (self.folder / name).rename(self.aside / name)

    def sweep(self, *, older_than_seconds: float, now: float) -> int:
        """Remove what hooks left half written when they were killed: they never reported it as kept."""
        gone = 0
        for entry in os.scandir(self.folder):
            if entry.name.startswith(".") and now - _modified(entry, now) > older_than_seconds:
                Path(entry.path).unlink(missing_ok=True)
                gone += 1
        return gone


def _arrived(entry: os.DirEntry[str]) -> tuple[str, tuple[int, int]]:
    """Return a file's name, when it was written by the file system's clock, and its number there: of two files that
    were written in the same moment, the later one mostly has the higher number."""
    try:
        about = entry.stat(follow_symlinks=False)
    except OSError:
        return entry.name, (ids.nanoseconds(entry.name) or 0, 0)
    return entry.name, (about.st_mtime_ns, about.st_ino)


def parse(name: str, raw: bytes) -> Envelope:
    head, separator, payload = raw.partition(b"\n\n")
    if not separator or len(raw) > MAX_BYTES:
        raise BadRecord("garbage")
    header = {}
    for line in head.decode("utf-8", "surrogateescape").split("\n"):
        key, _, value = line.partition(" ")
        header[key] = value.replace("%0A", "\n").replace("%25", "%")
    if "command" not in header:
        raise BadRecord("garbage")
    return Envelope(name, header, payload)


def _modified(entry: os.DirEntry[str], now: float) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return now  # its hook has just finished it


def write_private(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Replace a file that only its owner may read, all at once. `sync`: and its content outlives a power cut."""
    temp = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    temp.rename(path)


def append_private(path: Path, lines: bytes) -> None:
    """At the end of a file that only its owner may read: all of it, safe when this returns, or nothing. What a crash
    has left there of a line goes: it would swallow the next one."""
    new = not path.exists()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "rb+", buffering=0) as file:
        end = _whole_lines(file)
        file.truncate(end)
        try:
            left = memoryview(lines)
            while left:
                left = left[file.write(left) or 0 :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)
            raise
    if new:
        sync_folder(path.parent)


def _whole_lines(file: io.FileIO) -> int:
    """Where the last whole line of a file ends."""
    at = file.seek(0, os.SEEK_END)
    while at:
        begin = max(0, at - LOOK_BACK)
        file.seek(begin)
        found = file.read(at - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        at = begin
    return 0


def changed_at(path: Path) -> float:
    """When it was last written; 0 if it has gone meanwhile. Of a link, the link: it may lead nowhere."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def sync_folder(folder: Path) -> None:
    """A rename is only safe from a power cut when its folder has been written too."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def overwrite(path: Path, data: bytes) -> None:
    """In its own place: for a full disk, and for a file that someone has open."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_NOFOLLOW), "wb") as file:
        file.write(data)
        file.truncate()


def _escape(value: str) -> str:
    return value.replace("%", "%25").replace("\n", "%0A")
