"""A folder as transport: a disk that both machines mount, or one that a program such as Syncthing copies.

Each device writes only its own segments, so no two machines ever write the same file, except the manifest. It is
replaced as a whole; where copies of two machines meet, one wins, and a machine that finds itself missing adds itself
again at its next exchange.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from claude_mem import hook
from claude_mem.sync.errors import Conflict, SpaceUnavailable
from claude_mem.sync.manifest import MAX_MANIFEST_BYTES
from claude_mem.sync.segments import SegmentLog, locked, read_plain_file
from claude_mem.sync.transports.base import (
    DEVICE,
    MAX_DEVICES,
    MAX_PAGE_BYTES,
    MAX_PAGE_ENTRIES,
    check_device,
)
from claude_mem.system.spool import sync_directory, write_private


class FolderTransport:
    def __init__(self, folder: Path, space: str) -> None:
        self.base = folder
        self.folder = folder / f"claude-mem-{space}"
        self.name = f"the folder {folder}"
        self._logs: dict[str, SegmentLog] = {}

    def read_manifest(self) -> tuple[bytes, str] | None:
        """Return the manifest and its hash, or None if there is none."""
        self._check_mounted()
        body = read_plain_file(self.folder / "manifest", MAX_MANIFEST_BYTES)
        return (body, hashlib.sha256(body).hexdigest()) if body else None

    def write_manifest(self, body: bytes, *, expected: str | None) -> None:
        """Replace the manifest that has this hash, or write the first one."""
        self._check_mounted()
        try:
            hook.make_private_dir(str(self.folder / "logs"))
            with locked(self.folder):
                current = self.read_manifest()
                if (current[1] if current else None) != expected:
                    raise Conflict("another machine changed the manifest at the same time")
                write_private(self.folder / "manifest", body, sync=True)
                sync_directory(self.folder)
        except OSError as error:
            raise SpaceUnavailable(f"{self.name} can't be written: {error.strerror}", hint=_HINT) from error

    def heads(self) -> dict[str, int]:
        """Return the index of each device's last entry that has arrived completely."""
        self._check_mounted()
        try:
            names = [entry.name for entry in os.scandir(self.folder / "logs") if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise SpaceUnavailable(f"{self.name} can't be read: {error.strerror}", hint=_HINT) from error
        devices = sorted(name for name in names if DEVICE.fullmatch(name))[:MAX_DEVICES]
        return {device: head for device in devices if (head := self._log(device).head())}

    def read_entries(self, device: str, *, after: int, limit: int) -> list[bytes]:
        """Return the entries after an index."""
        log = self._log(check_device(device))
        return log.read(after=after, most_bytes=MAX_PAGE_BYTES, limit=min(limit, MAX_PAGE_ENTRIES))

    def append_entries(self, device: str, *, after: int, entries: Sequence[bytes]) -> None:
        """Append entries to the device's log."""
        self._check_mounted()
        try:
            self._log(check_device(device)).append(entries, after=after)
        except OSError as error:
            raise SpaceUnavailable(f"{self.name} can't be written: {error.strerror}", hint=_HINT) from error

    def revoke_device(self, device: str) -> None:
        """Do nothing: who may reach it is decided elsewhere."""

    def change_device(self, device: str, name: str) -> str:  # noqa: ARG002 - of all transports
        """Do nothing: there are no tokens here."""
        return ""

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _log(self, device: str) -> SegmentLog:
        path = self.folder / "logs" / device
        if path.is_symlink() or self.folder.is_symlink() or path.parent.is_symlink():
            raise SpaceUnavailable(
                f"{path} is a symbolic link, which is not followed", hint="replace it by a directory"
            )
        return self._logs.setdefault(device, SegmentLog(path))

    def _check_mounted(self) -> None:
        if not self.base.is_dir():
            raise SpaceUnavailable(f"{self.name} is not there", hint=_HINT)


_HINT = "check that its disk is mounted and writable"
