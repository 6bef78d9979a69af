"""What every transport does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from claude_mem.domain.errors import OperationFailed

DEVICE = re.compile(r"[0-9a-f]{16}")
MAX_PAGE_BYTES = 4 << 20
MAX_PAGE_ENTRIES = 500
MAX_DEVICES = 1_000


class Transport(Protocol):
    """Carries opaque bytes. Its methods block; each is bounded in time. They raise `SpaceUnavailable` while the
    transport can't be reached."""

    @property
    def name(self) -> str:
        """What it is, in messages: "the folder /mnt/share"."""

    def read_manifest(self) -> tuple[bytes, str] | None:
        """Return the manifest and a tag that changes with it, or None if there is none."""

    def write_manifest(self, body: bytes, *, expected: str | None) -> None:
        """Replace the manifest that has this tag, or write the first one. Raise `Conflict` if it is another one."""

    def heads(self) -> dict[str, int]:
        """Return the index of each device's last entry."""

    def read_entries(self, device: str, *, after: int, limit: int) -> list[bytes]:
        """Return the entries after an index, at most `limit`, possibly fewer; none after the last. An empty one was
        erased at the transport."""

    def append_entries(self, device: str, *, after: int, entries: Sequence[bytes]) -> None:
        """Append entries; those that are there already are skipped. Raise `Conflict` if others are in their place."""

    def revoke_device(self, device: str) -> None:
        """Keep a device from reaching the transport, if the transport decides that."""

    def change_device(self, device: str, name: str) -> str:
        """Let this machine write as another device. Return its new token, "" if the transport has none."""

    def close(self) -> None:
        """Release what the transport holds open."""


def check_device(device: str) -> str:
    """Return the device's id, or raise an error if it is not one. It becomes part of paths and URLs."""
    if not DEVICE.fullmatch(device):
        raise OperationFailed(f"{device[:40]!r} is not the id of a machine")
    return device


def take_page(entries: Sequence[bytes], limit: int) -> list[bytes]:
    """Return the first entries that fit into a page, at least one."""
    page: list[bytes] = []
    size = 0
    for entry in entries[: min(limit, MAX_PAGE_ENTRIES)]:
        size += len(entry)
        if page and size > MAX_PAGE_BYTES:
            break
        page.append(entry)
    return page
