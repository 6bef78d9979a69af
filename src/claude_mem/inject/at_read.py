"""Before a file is read again: its outline, if it has not changed since an earlier session had it open.

The outline is made of the file as it is now, so it is right whatever the clock says; the time of the file only decides
whether anything is said. Names and line numbers are shown, never other text of the file. Off by default: replayed over
two projects (`bench/rereading.py`), it saves little, because most files that are read again are then edited or quoted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from claude_mem.agents.payload import Trigger
from claude_mem.digest.evidence import READ_TOOLS
from claude_mem.digest.symbols import Definition, find_definitions
from claude_mem.domain.project_reports import Project
from claude_mem.inject.triggers import Line, find_relative_path
from claude_mem.privacy.injection_rules import is_name
from claude_mem.storage.base import Transaction
from claude_mem.system import untrusted_files

OUTLINE_PREFIX = "outline:"  # of the item name that stands for the outline of a file
MAX_FILE_BYTES = 512 << 10
MIN_LINES = 120  # a shorter file is read as fast as its outline
MIN_DEFINITIONS, MAX_DEFINITIONS = 3, 60
OUTLINE_TOKENS = 350


def is_whole_read(trigger: Trigger) -> bool:
    """Return whether a file is about to be read from its start, rather than a part that the agent has chosen."""
    tool = trigger.tool
    return tool is not None and tool.name in READ_TOOLS and not tool.input.get("offset") and not tool.input.get("limit")


def outline_at_read(tx: Transaction, trigger: Trigger, project: Project, root: str) -> list[Line]:
    """Return the outline of a file that is about to be read, or nothing if it is unknown, changed or short."""
    path = find_relative_path(trigger.text, (project.root, trigger.cwd))
    base = root or project.root or ""
    if not path or not base:
        return []
    last_at = tx.search.find_last_touch(
        project.id, path, exclude_content_session_id=trigger.content_session_id, host=trigger.host
    )
    lines = _read_unchanged(Path(os.path.realpath(base), path), last_at) if last_at else []
    text = describe_outline(find_definitions(lines)) if len(lines) >= MIN_LINES else ""
    if not text:
        return []
    about = f"Outline, unchanged since an earlier session read it ({len(lines)} lines): {text}"
    return [(about, [f"{OUTLINE_PREFIX}{path}"], False)]


def _read_unchanged(path: Path, last_at: int) -> list[str]:
    """Return the lines of a file; none if it changed after that time, or is no text file of a moderate size."""
    try:
        if path.lstat().st_mtime_ns // 1_000_000 > last_at:
            return []
        content = untrusted_files.read(path, most=MAX_FILE_BYTES)
    except (OSError, ValueError):
        return []
    return [] if b"\0" in content else content.decode("utf-8", "replace").splitlines()


def describe_outline(definitions: Sequence[Definition]) -> str:
    """Return the names of definitions with their lines, the outermost first if there are many; "" if there are few."""
    names = [item for item in definitions if is_name(item.name)]
    if len(names) < MIN_DEFINITIONS:
        return ""
    outermost = sorted(names, key=lambda item: item.depth)[:MAX_DEFINITIONS]
    in_order = sorted(outermost, key=lambda item: item.line)
    return ", ".join(f"{item.name} {item.line}" for item in in_order)
