"""Patches in the format of Codex, which other agents use too: several files in one text.

    *** Begin Patch
    *** Update File: src/cart.py
    *** Move to: src/basket.py
    @@ def total(self):
    -    return 0
    +    return self.sum
    *** Add File: notes.txt
    +One line.
    *** Delete File: old.py
    *** End Patch

They are stored file by file (`as_tool_input`), so that clipping a long patch loses lines but never a whole file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

PATCH_TOOL = "apply_patch"
BEGIN_PATCH = "*** Begin Patch"
_END = "*** End Patch"
_FILE = re.compile(r"\*\*\* (?P<kind>Add|Update|Delete) File: (?P<path>.+)")
_MOVE = re.compile(r"\*\*\* Move to: (?P<path>.+)")
_PATCH_FIELDS = ("command", "input", "patch", "patchText", "patch_text")  # fields in which agents pass a patch


@dataclass(frozen=True, slots=True)
class FilePatch:
    """The part of a patch for one file. Its lines begin with `+`, `-` or a space."""

    kind: str  # add, update or delete
    path: str
    moved_to: str
    lines: tuple[str, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the file, the current one first."""
        return tuple(path for path in (self.moved_to, self.path) if path)


def parse_patch(text: str) -> list[FilePatch]:
    """Return the patches of all files. Unknown lines are skipped; an incomplete patch yields the files it has."""
    file_patches: list[FilePatch] = []
    kind = path = moved_to = ""
    lines: list[str] = []
    for line in text.partition(BEGIN_PATCH)[2].splitlines():
        begins = _FILE.match(line)
        if (begins or line.startswith(_END)) and path:
            file_patches.append(FilePatch(kind, path, moved_to, tuple(lines)))
            kind = path = moved_to = ""
        if begins:
            kind, path, moved_to, lines = begins["kind"].lower(), begins["path"].strip(), "", []
        elif moves := _MOVE.match(line):
            moved_to = moves["path"].strip()
        elif line.startswith("@@"):
            lines.append(f" {line[2:].strip()}")  # the definition that contains the hunk
        elif line[:1] in ("+", "-", " "):
            lines.append(line)
    return [*file_patches, FilePatch(kind, path, moved_to, tuple(lines))] if path else file_patches


def as_tool_input(text: str, cwd: str) -> dict[str, object]:
    """Return a patch as the input of a tool call, to be stored. Paths become absolute, because the working directory is
    known only now."""
    return {"changes": [_change(patch, cwd) for patch in parse_patch(text)]}


def _change(patch: FilePatch, cwd: str) -> dict[str, str]:
    moved_to = {"moved_to": _absolute(patch.moved_to, cwd)} if patch.moved_to else {}
    return {"kind": patch.kind, "file_path": _absolute(patch.path, cwd), **moved_to, "patch": "\n".join(patch.lines)}


def _absolute(path: str, cwd: str) -> str:
    return path if path.startswith("/") or not cwd else f"{cwd.rstrip('/')}/{path.removeprefix('./')}"


def stored_patches(tool_input: Mapping[str, Any]) -> Iterator[FilePatch]:
    """Yield the file patches of a stored tool input, or of the raw patch if it was stored without being parsed."""
    items = tool_input.get("changes")
    if not isinstance(items, list):
        yield from parse_patch(raw_patch(tool_input))
        return
    for change in items:
        if isinstance(change, dict) and (path := _text(change, "file_path")):
            lines = tuple(_text(change, "patch").splitlines())
            yield FilePatch(_text(change, "kind"), path, _text(change, "moved_to"), lines)


def raw_patch(tool_input: Mapping[str, Any]) -> str:
    """Return the raw patch in a tool input; "" if there is none."""
    return next((text for name in _PATCH_FIELDS if BEGIN_PATCH in (text := _text(tool_input, name))), "")


def _text(fields: Mapping[str, Any], name: str) -> str:
    return text if isinstance(text := fields.get(name), str) else ""
