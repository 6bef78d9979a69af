"""From a line of code to the turns that wrote it, and why."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TypedDict

from claude_mem.domain import anchors
from claude_mem.domain.errors import InvalidRequest, NotFound
from claude_mem.domain.memory_items import MemoryItem
from claude_mem.domain.validity import Validity
from claude_mem.storage.base import Database
from claude_mem.system import untrusted_files
from claude_mem.system.project_folders import ResolvedProject

MAX_FILE_BYTES = 2 << 20
NEAR_LINES = 10
MAX_ITEMS = 10
_FRESHNESS = {
    "current": "its code still stands",
    "partly": "its code has changed in part since",
    "reworked": "its code was reworked since",
    "moved": "its code has moved to another file",
    "outdated": "its code was replaced since",
    "gone": "its files are gone",
    "elsewhere": "its code is not on this branch",
}
MATCHES = {
    "line": "Written by:",
    "near": "No memory has this line. Lines near it were written by:",
    "file": "No memory has this line or one near it. The file was changed by:",
}


class LineExplanation(TypedDict):
    """A line, and the observations whose work wrote it."""

    file: str
    line: int
    text: str
    match: str
    total: int  # of which `items` has the first
    items: list[MemoryItem]


async def explain_line(db: Database, project: ResolvedProject, file: str, line: int = 0) -> LineExplanation:
    """Return the observations whose work wrote a line (`match`: line), else lines near it (near), else the file (file).

    Without a line: all observations that are anchored at the file.
    """
    path = os.path.relpath(os.path.realpath(Path(project.root, file)), project.root)
    if path.startswith("..") or path == ".":
        raise InvalidRequest(f"{file} is not a file of the project {project.name}", hint="run it inside the repository")
    project_id = await db.read(lambda tx: tx.memory.find_project_id(project))
    if project_id is None:
        raise NotFound(f"nothing is remembered about {project.name} yet")
    lines = await asyncio.to_thread(_read_lines, Path(project.root, path)) if line else []
    if line > len(lines):
        raise InvalidRequest(f"{path} has {len(lines)} lines")
    authors = await db.read(lambda tx: tx.memory.find_line_authors(project_id, path))
    match, observation_ids = _choose(authors, lines, line)
    unique_ids = list(dict.fromkeys(observation_ids))
    items = await db.read(lambda tx: tx.memory.load_explained(unique_ids[:MAX_ITEMS]))
    text = lines[line - 1].strip() if line else ""
    return {"file": path, "line": line, "text": text, "match": match, "total": len(unique_ids), "items": items}


def _choose(authors: list[tuple[int, frozenset[bytes]]], lines: list[str], line: int) -> tuple[str, list[int]]:
    def writers_of(texts: list[str]) -> list[int]:
        hashes = {anchors.hash_line(text) for text in texts if len(text.strip()) >= anchors.MIN_CHARS}
        return [row_id for row_id, own in authors if own & hashes]

    if line and (exact := writers_of(lines[line - 1 : line])):
        return "line", exact
    if line and (near := writers_of(lines[max(0, line - 1 - NEAR_LINES) : line + NEAR_LINES])):
        return "near", near
    return "file", [row_id for row_id, _ in authors]


def _read_lines(path: Path) -> list[str]:
    try:
        content = untrusted_files.read(path, most=MAX_FILE_BYTES)
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {path.name}") from error
    except OSError as error:
        raise InvalidRequest(f"{path.name} can't be read: {error}") from error
    return content.decode("utf-8", "replace").splitlines()


def describe_state(item: MemoryItem) -> str:
    """Return in one line whether an observation's code still stands and what became of the work; "" if unknown."""
    parts = [f"replaced by {item['superseded_by']}"] if item["superseded_by"] else []
    parts += ["kept by the user"] if item["validity"] == Validity.KEPT else []
    parts += [_FRESHNESS[item["freshness"]]] if item["freshness"] else []
    commit = f" ({item['work_commit'][:10]})" if item["work_commit"] else ""
    is_known = item["work_outcome"] not in ("", "tried") or item["freshness"]
    parts += [f"work {item['work_outcome']}{commit}"] if item["work_outcome"] and is_known else []
    return "state: " + " · ".join(parts) if parts else ""
