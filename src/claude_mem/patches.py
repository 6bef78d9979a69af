"""Patches as Codex writes them, and agents that borrowed the form: several files in one text.

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

They are kept file by file (`given`), so that clipping a long one costs lines and never a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

TOOL = "apply_patch"
BEGIN = "*** Begin Patch"
_END = "*** End Patch"
_FILE = re.compile(r"\*\*\* (?P<kind>Add|Update|Delete) File: (?P<path>.+)")
_MOVE = re.compile(r"\*\*\* Move to: (?P<path>.+)")
_GIVEN_AS = ("command", "input", "patch", "patchText", "patch_text")  # the names under which agents hand one over


@dataclass(frozen=True, slots=True)
class FilePatch:
    """What a patch does to one file. Its lines begin with `+`, `-` or a space."""

    kind: str  # add, update or delete
    path: str
    moved_to: str
    lines: tuple[str, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Where it is now comes first."""
        return tuple(path for path in (self.moved_to, self.path) if path)


def parse(text: str) -> list[FilePatch]:
    """Every file of it. Whatever is not understood is passed over: half a patch tells of half its files."""
    found: list[FilePatch] = []
    kind = path = moved_to = ""
    lines: list[str] = []
    for line in text.partition(BEGIN)[2].splitlines():
        begins = _FILE.match(line)
        if (begins or line.startswith(_END)) and path:
            found.append(FilePatch(kind, path, moved_to, tuple(lines)))
            kind = path = moved_to = ""
        if begins:
            kind, path, moved_to, lines = begins["kind"].lower(), begins["path"].strip(), "", []
        elif moves := _MOVE.match(line):
            moved_to = moves["path"].strip()
        elif line.startswith("@@"):
            lines.append(f" {line[2:].strip()}")  # where it is: the definition that the hunk stands in
        elif line[:1] in ("+", "-", " "):
            lines.append(line)
    return [*found, FilePatch(kind, path, moved_to, tuple(lines))] if path else found


def given(text: str, cwd: str) -> dict[str, Any]:
    """A patch as the input of a tool call, to be stored. Paths are absolute, since the folder is known only now."""
    return {"changes": [_change(patch, cwd) for patch in parse(text)]}


def _change(patch: FilePatch, cwd: str) -> dict[str, str]:
    moved = {"moved_to": _absolute(patch.moved_to, cwd)} if patch.moved_to else {}
    return {"kind": patch.kind, "file_path": _absolute(patch.path, cwd), **moved, "patch": "\n".join(patch.lines)}


def _absolute(path: str, cwd: str) -> str:
    return path if path.startswith("/") or not cwd else f"{cwd.rstrip('/')}/{path.removeprefix('./')}"


def changes(stored: Mapping[str, Any]) -> Iterator[FilePatch]:
    """What a tool call was given, as it was stored; or the patch itself, if nobody took it apart."""
    found = stored.get("changes")
    if not isinstance(found, list):
        yield from parse(text_in(stored))
        return
    for change in found:
        if isinstance(change, dict) and (path := _text(change, "file_path")):
            lines = tuple(_text(change, "patch").splitlines())
            yield FilePatch(_text(change, "kind"), path, _text(change, "moved_to"), lines)


def text_in(stored: Mapping[str, Any]) -> str:
    return next((text for name in _GIVEN_AS if BEGIN in (text := _text(stored, name))), "")


def _text(found: Mapping[str, Any], name: str) -> str:
    return text if isinstance(text := found.get(name), str) else ""
