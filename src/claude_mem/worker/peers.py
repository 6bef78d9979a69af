"""Which user of this machine has opened a loopback connection. Only Linux tells; elsewhere nobody is a stranger."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

TABLE = Path("/proc/net/tcp")
Address = tuple[str, int]


def stranger(client: Address | None, server: Address | None) -> str:
    """Return the user at the other end in words if that is another user than ours; "" if it is ours, root or unknown.

    Root can read our files anyway, and forwards connections of ours (WSL, containers).
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
    """As the kernel prints it: the bytes of the IPv4 address as one number of this machine, and the port."""
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
