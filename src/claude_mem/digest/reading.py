"""How much a turn read, in numbers: what memory could save, and what sessions with and without it are compared by."""

from __future__ import annotations

from collections.abc import Collection

from claude_mem.digest.evidence import EDIT_TOOLS, READ_TOOLS, output_text, path_in_project
from claude_mem.domain import patches
from claude_mem.domain.records import ToolUsed, Turn
from claude_mem.domain.uses import TurnReading


def read_paths(turn: Turn) -> list[str]:
    """Return the files that a turn read, each once."""
    return list(dict.fromkeys(path for body in turn.bodies if (path := _path_read(body, turn))))


def measure_reading(turn: Turn, *, known_paths: Collection[str]) -> TurnReading:
    """Return how much the turn read. `known_paths`: files that an earlier session read, and this session did not before."""
    characters = again = calls = 0
    before_edit: tuple[int, int] | None = None
    rest = set(known_paths)
    for body in turn.bodies:
        if not isinstance(body, ToolUsed):
            continue
        if before_edit is None and not body.failed and body.name in (*EDIT_TOOLS, patches.PATCH_TOOL):
            before_edit = calls, characters
        calls += 1
        if path := _path_read(body, turn):
            size = _size(body)
            characters += size
            again += size if path in rest else 0
            rest.discard(path)
    return TurnReading(characters, again, *(before_edit or (None, None)))


def _path_read(body: object, turn: Turn) -> str:
    is_read = isinstance(body, ToolUsed) and body.name in READ_TOOLS and not body.failed
    return path_in_project(body, turn) if is_read and isinstance(body, ToolUsed) else ""


def _size(body: ToolUsed) -> int:
    file = body.output.get("file") if isinstance(body.output, dict) else None
    return len(str(file.get("content", ""))) if isinstance(file, dict) else len(output_text(body.output))
