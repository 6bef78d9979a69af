"""Edits an agent's settings files as text: adds our entries, or removes them, and leaves the rest unchanged.

Our entries are recognized by the name of the launcher, wherever they are. Three kinds of edits cover all agents:
entries in a JSON file, a marked block in a file of another format, and a file that belongs to us as a whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from claude_mem.domain.errors import OperationFailed
from claude_mem.system.process import LAUNCHER

SERVER_NAME = "claude-mem"  # name of our MCP server in every agent's settings
_MARKS = (LAUNCHER, "claude_mem/launch.py")  # the second was used by the first version
OWN_FILE_MARK = "put here by claude-mem"  # contained in every file that belongs to us as a whole
_BEGIN, _END = "# >>> claude-mem >>>", "# <<< claude-mem <<<"

Settings = dict[str, Any]


class SettingsEdit(Protocol):
    """An edit of one file. An empty text means that the file does not exist."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def what(self) -> str:
        """What is added, described for the user."""

    def apply(self, text: str) -> str:
        """Return the text of the file with our part."""

    def revert(self, text: str) -> str:
        """Return the text of the file without our part."""


def runs_launcher(command: Any) -> bool:
    """Return whether a command line, or a list of program and arguments, runs our launcher."""
    words = command if isinstance(command, list) else [command]
    return any(mark in word for word in words if isinstance(word, str) for mark in _MARKS)


# --- our part of a JSON file -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JsonEdit:
    """Our entries in a JSON file."""

    path: Path
    what: str
    add: Callable[[Settings], None]  # modifies settings without our entries
    drop: Callable[[Settings], None]  # modifies the settings

    def apply(self, text: str) -> str:
        before, after = self._read(text), self._read(text)
        self._change(self.drop, after)
        self._change(self.add, after)
        return text if after == before else _dump(after, like=text)

    def revert(self, text: str) -> str:
        before, after = self._read(text), self._read(text)
        self._change(self.drop, after)
        return text if after == before else _dump(after, like=text) if after else ""

    def _read(self, text: str) -> Settings:
        try:
            settings = (
                json.loads(text, parse_float=_keep_number_text, parse_constant=_keep_number_text)
                if text.strip()
                else {}
            )
        except ValueError as error:
            raise OperationFailed(
                f"{self.path} is not valid JSON: {error}", hint="correct it first; comments are not allowed"
            ) from error
        if not isinstance(settings, dict):
            hint = "correct it first: it must be a JSON object"
            raise OperationFailed(f"{self.path} has an unexpected structure", hint=hint)
        return settings

    def _change(self, change: Callable[[Settings], None], settings: Settings) -> None:
        try:
            change(settings)
        except (AttributeError, KeyError, TypeError) as error:
            hint = "correct it first: the agent could not read it either"
            raise OperationFailed(f"{self.path} has an unexpected structure", hint=hint) from error


def _keep_number_text(number: str) -> str:
    """Mark a float or NaN as text, so that it is written back exactly as it was."""
    return f"\0{number}\0"


def _dump(settings: Settings, *, like: str) -> str:
    """Format the settings like the original text: same indentation, line endings, final newline and numbers."""
    indent = re.search(r"^([ \t]+)\S", like, re.MULTILINE)
    text = json.dumps(settings, indent=indent[1] if indent else 2, ensure_ascii=False)
    text = re.sub(r'"\\u0000([^"\\]*)\\u0000"', r"\1", text)
    text = re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)  # lone surrogates
    text += "\n" if like.endswith("\n") or not like else ""
    return text.replace("\n", "\r\n") if "\r\n" in like else text


@dataclass(frozen=True, slots=True)
class HookEntry:
    """A hook that runs the launcher in an agent's settings."""

    command: str
    timeout: int
    matcher: str | None = None
    more: Mapping[str, Any] | None = None  # further fields that the agent requires

    def entry(self) -> Settings:
        """Return the entry in the format of Claude Code, Codex, Gemini and Qwen."""
        handler = {"type": "command", **(self.more or {}), "command": self.command, "timeout": self.timeout}
        return ({} if self.matcher is None else {"matcher": self.matcher}) | {"hooks": [handler]}


def add_hooks(settings: Settings, lines: Mapping[str, HookEntry]) -> None:
    """Add our hooks to the existing ones. Raise TypeError if those are malformed: the agent would ignore the file."""
    hooks = settings.setdefault("hooks", {})
    existing = [entry for entries in hooks.values() for entry in entries]
    if not all(isinstance(entry["hooks"], list) for entry in existing):
        raise TypeError
    for event, line in lines.items():
        hooks.setdefault(event, []).append(line.entry())


def remove_hooks(settings: Settings) -> None:
    """Remove our handlers and containers that are then empty. Entries in an unknown format are not ours and stay."""
    hooks = settings.get("hooks", {})
    changed = False
    for event, entries in list(hooks.items()):
        if not isinstance(entries, list):
            continue
        remaining = [entry for entry in map(_without_ours, entries) if entry is not None]
        if remaining != entries:
            changed = True
            hooks[event] = remaining
            if not remaining:
                del hooks[event]
    if changed and not hooks:
        del settings["hooks"]


def _without_ours(entry: Any) -> object:
    handlers = entry.get("hooks") if isinstance(entry, dict) else None
    if not isinstance(handlers, list):
        return entry
    remaining = [item for item in handlers if not (isinstance(item, dict) and runs_launcher(item.get("command")))]
    if len(remaining) == len(handlers):
        return entry
    return {**entry, "hooks": remaining} if remaining else None


def add_server(settings: Settings, entry: Settings, *, under: str = "mcpServers") -> None:
    """Add our MCP server. Another server of the same name is left alone and causes an error."""
    servers = settings.setdefault(under, {})
    if SERVER_NAME in servers:
        raise OperationFailed(f"another MCP server is already called {SERVER_NAME!r}", hint="rename it first")
    servers[SERVER_NAME] = entry


def remove_server(settings: Settings, *, under: str = "mcpServers") -> None:
    """Remove our MCP server. Another server of the same name stays."""
    entry = settings.get(under, {}).get(SERVER_NAME)
    if isinstance(entry, dict) and runs_launcher([*_as_list(entry.get("command")), *_as_list(entry.get("args"))]):
        del settings[under][SERVER_NAME]
        if not settings[under]:
            del settings[under]


def _as_list(value: Any) -> list[object]:
    return value if isinstance(value, list) else [value]


# --- a block in a file of another kind -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BlockEdit:
    """A block at the end of a file, between two marker lines that are comments starting with `#`."""

    path: Path
    what: str
    block: str

    def apply(self, text: str) -> str:
        block = f"{_BEGIN}\n{self.block.rstrip()}\n{_END}\n"
        if block in text:
            return text
        rest = self.revert(text)
        return f"{rest}{'' if not rest or rest.endswith(chr(10)) else chr(10)}{block}"

    def revert(self, text: str) -> str:
        begin = text.find(_BEGIN)
        end = text.find(_END, begin)
        if begin < 0 or end < 0:
            return text
        return text[:begin] + text[end + len(_END) :].removeprefix("\n")


def strip_markers(text: str) -> str:
    """Remove our marker lines, one of which another program may have moved."""
    return "".join(line for line in text.splitlines(keepends=True) if line.strip() not in (_BEGIN, _END))


# --- a file that belongs to us as a whole ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A file that belongs to us as a whole.

    `mark` distinguishes it from another file of the same name, which is left unchanged: silently if our file is
    optional, with an error if it is `needed`.
    """

    path: Path
    what: str
    content: str
    mark: str = OWN_FILE_MARK
    needed: bool = False

    def apply(self, text: str) -> str:
        if not text or self.mark in text:
            return self.content
        if self.needed:
            raise OperationFailed(f"{self.path} exists and was not created by claude-mem", hint="move it away first")
        return text

    def revert(self, text: str) -> str:
        return "" if self.mark in text else text
