"""The registry of supported agents."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from claude_mem.hosts import claude, codex, copilot, cursor, gemini, lines, opencode, qwen, windsurf
from claude_mem.hosts.dialect import Head
from claude_mem.hosts.host import Host

# In the order in which they are shown.
_ALL = (
    claude.HOST, codex.HOST, gemini.HOST, opencode.HOST, copilot.HOST, qwen.HOST, cursor.HOST, windsurf.HOST,
)  # fmt: skip
HOSTS: dict[str, Host] = {host.name: host for host in _ALL}
FIRST_BYTES, FIRST_LINES = 1 << 20, 1_000


def of(name: str) -> Host:
    """Return an agent by name. An unknown name means a client that posts our event format over HTTP."""
    return HOSTS.get(name) or Host(name=name, label=name)


def whose(path: Path) -> Host | None:
    """Return the agent that wrote a transcript, by its first records, or None if no agent recognizes it."""
    for record in _first_records(path):
        for host in HOSTS.values():
            if host.transcripts is not None and host.transcripts.owns(record):
                return host
    return None


def head(host: Host, path: Path) -> Head:
    return host.transcripts.head(path) if host.transcripts is not None else Head()


def _first_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the first records. Many are needed: a continued conversation begins with those of the earlier one."""
    try:
        for line in _first_lines(path):
            if (record := lines.record(line)) is not None:
                yield record
    except (OSError, EOFError, ValueError, zlib.error):
        return  # the records before the damage have been yielded


def _first_lines(path: Path) -> Iterator[bytes]:
    with lines.opened(path) as file:
        if path.name.removesuffix(".gz").endswith(".json"):  # one record over many lines
            yield file.read(lines.MAX_DOCUMENT)
            return
        remaining = FIRST_BYTES
        for _ in range(FIRST_LINES):
            line = file.readline(remaining)
            remaining -= len(line)
            if not line or remaining <= 0:
                return
            yield line
