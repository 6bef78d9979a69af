"""Every agent that we know."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec

from claude_mem.hosts import claude, codex, copilot, cursor, gemini, opencode, qwen, windsurf
from claude_mem.hosts.host import Host

# In the order in which they are shown.
_ALL = (
    claude.HOST, codex.HOST, gemini.HOST, opencode.HOST, copilot.HOST, qwen.HOST, cursor.HOST, windsurf.HOST,
)  # fmt: skip
HOSTS: dict[str, Host] = {host.name: host for host in _ALL}
FIRST_BYTES = 1 << 20


def of(name: str) -> Host:
    """A host, or a stranger who speaks our dialect over HTTP."""
    return HOSTS.get(name) or Host(name=name, label=name)


def whose(path: Path) -> Host | None:
    """The host whose transcript this is, by its first records; None if it is nobody's."""
    for record in _first_records(path):
        for host in HOSTS.values():
            if host.transcripts is not None and host.transcripts.owns(record):
                return host
    return None


def _first_records(path: Path, most: int = 20) -> list[dict[str, Any]]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            text = file.read() if path.suffix == ".json" else file.read(FIRST_BYTES)
            lines = [text] if path.suffix == ".json" else text.splitlines()[:most]
    except (OSError, EOFError, ValueError):
        return []
    found = []
    for line in lines:
        try:
            record = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(record, dict):
            found.append(record)
    return found
