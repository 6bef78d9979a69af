"""A disk that loses power: what SQLite wrote and did not sync may be gone, in part or altogether.

A VFS that passes everything on to the real one and remembers, file by file, what was safe at the last sync and what was
written since. `strict` is the disk with only what is safe; `torn` keeps any of the 512-byte sectors that were on their
way, in no order. For the spool, `Safe` watches `fsync` and keeps what each one has made safe.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512
Image = dict[str, bytes]


@dataclass(slots=True)
class Disk:
    """What is on it for certain, and what is on its way: writes and cuts, oldest first. A cut has no bytes."""

    safe: dict[str, bytearray] = field(default_factory=dict)
    pending: dict[str, list[tuple[int, bytes | None]]] = field(default_factory=dict)
    before_sync: Callable[[], None] = lambda: None

    def note(self, name: str, offset: int, data: bytes | None) -> None:
        self.pending.setdefault(name, []).append((offset, data))

    def sync(self, name: str) -> None:
        self.before_sync()
        apply(self.safe.setdefault(name, bytearray()), self.pending.pop(name, []))

    def delete(self, name: str) -> None:
        self.safe.pop(name, None)
        self.pending.pop(name, None)

    def strict(self) -> Image:
        return {name: bytes(data) for name, data in self.safe.items()}

    def torn(self, chance: random.Random) -> Image:
        image = {name: bytearray(data) for name, data in self.safe.items()}
        for name, writes in self.pending.items():
            apply(image.setdefault(name, bytearray()), [some for each in writes for some in _sectors(each, chance)])
        return {name: bytes(data) for name, data in image.items()}


def apply(data: bytearray, writes: list[tuple[int, bytes | None]]) -> None:
    for offset, piece in writes:
        if piece is None:
            del data[offset:]
            continue
        data.extend(bytes(max(0, offset - len(data))))
        data[offset : offset + len(piece)] = piece


def _sectors(write: tuple[int, bytes | None], chance: random.Random) -> Iterator[tuple[int, bytes | None]]:
    """Those that made it."""
    offset, data = write
    if data is None:
        if chance.random() < 0.5:
            yield offset, None
        return
    for begin in range(0, len(data), SECTOR):
        if chance.random() < 0.5:
            yield offset + begin, data[begin : begin + SECTOR]


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, inherit: str, name: Any, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name or "temporary"
        self.disk, self.name = disk, Path(path).name
        super().__init__(inherit, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self.disk.note(self.name, offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self.disk.note(self.name, newsize, None)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self.disk.sync(self.name)


class _Vfs(apsw.VFS):
    def __init__(self, disk: Disk, base: str) -> None:
        self.disk, self.base = disk, base
        super().__init__("powerloss", base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _File(self.disk, self.base, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self.disk.delete(Path(filename).name)


@contextmanager
def disk() -> Iterator[Disk]:
    """Every database that is opened inside lies on it."""
    found = Disk()
    with default_vfs(lambda base: _Vfs(found, base)):
        yield found


@contextmanager
def default_vfs(make: Callable[[str], apsw.VFS]) -> Iterator[None]:
    base = apsw.vfs_names()[0]
    vfs = make(base)
    try:
        yield
    finally:
        vfs.unregister()
        assert apsw.vfs_names()[0] == base


def put(image: Image, folder: Path, database: str) -> Path:
    """The files as they are found when the power is back."""
    folder.mkdir(exist_ok=True)
    for left in folder.iterdir():
        left.unlink()
    for name, data in image.items():
        (folder / name).write_bytes(data)
    return folder / database


# --- files -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Safe:
    """Which files have which bytes for certain, by number; and which names stand in a folder for certain."""

    content: dict[int, bytes] = field(default_factory=dict)
    names: dict[str, dict[str, int]] = field(default_factory=dict)

    def synced(self, fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if path.is_dir():
            self.names[str(path)] = present(path)
        else:
            self.content[os.fstat(fd).st_ino] = path.read_bytes()

    def image(self, folder: Path, *, late: Callable[[], bool] = lambda: False) -> dict[str, bytes]:
        """What is there when the power is back. Names that were on their way may have made it: `late` decides."""
        names = dict(self.names.get(str(folder), {}))
        now = present(folder)
        for name in {*names, *now}:
            if names.get(name) != now.get(name) and late():
                names.pop(name, None)
                names.update({name: now[name]} if name in now else {})
        return {name: self.content.get(number, b"") for name, number in names.items()}


def present(folder: Path) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in os.scandir(folder)}
