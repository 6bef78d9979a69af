"""Find the local user who opened a loopback connection. Works on Linux only; elsewhere no user counts as foreign."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

TABLE = Path("/proc/net/tcp")
Address = tuple[str, int]


def stranger(client: Address | None, server: Address | None) -> str:
    """Return a description of the connecting user if it is a different user; "" for the same user, root or unknown.

    Root can read the data directory anyway, and forwards the user's own connections (WSL, containers).
    """
    uid = _uid(client, server) if client and server else None
    return "" if uid in (None, 0, os.getuid()) else f"A program of another user of this machine (uid {uid})"


def _uid(client: Address, server: Address) -> int | None:
    try:
        ends = [_hexadecimal(*client), _hexadecimal(*server)]
        lines = TABLE.read_text("ascii").splitlines()[1:]
    except (OSError, ValueError):
        return None
    for columns in map(str.split, lines):
        if columns[1:3] == ends:
            return int(columns[7])
    return None


def _hexadecimal(host: str, port: int) -> str:
    """Format an address as /proc/net/tcp does: the IPv4 address as a native-endian number, and the port."""
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
