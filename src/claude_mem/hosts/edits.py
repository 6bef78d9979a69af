"""A file of an agent's, with us in it and without: text in, text out, nothing else touched.

What is ours is recognised by the launcher's name, wherever it stands. Three kinds are enough for every agent: our part
of a JSON file, a marked block in a file of another kind, and a file that is all ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from claude_mem.errors import CannotDo
from claude_mem.process import LAUNCHER

SERVER = "claude-mem"  # the name of our tools in every agent's settings
_MARKS = (LAUNCHER, "claude_mem/launch.py")  # the second is how the first version called itself
MARK = "put here by claude-mem"  # in every file that is all ours
_BEGIN, _END = "# >>> claude-mem >>>", "# <<< claude-mem <<<"

Settings = dict[str, Any]


class Edit(Protocol):
    """`""` stands for a file that is not there."""

    @property
    def path(self) -> Path: ...
    @property
    def what(self) -> str: ...  # for people: what is put there
    def with_ours(self, text: str) -> str: ...
    def without_ours(self, text: str) -> str: ...


def is_ours(command: Any) -> bool:
    """A command line, or a program with its arguments, that runs our launcher."""
    words = command if isinstance(command, list) else [command]
    return any(mark in word for word in words if isinstance(word, str) for mark in _MARKS)


# --- our part of a JSON file -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JsonEdit:
    path: Path
    what: str
    add: Callable[[Settings], None]  # in place, to settings that have nothing of ours
    drop: Callable[[Settings], None]  # in place

    def with_ours(self, text: str) -> str:
        before, after = self._read(text), self._read(text)
        self._change(self.drop, after)
        self._change(self.add, after)
        return text if after == before else _dump(after, like=text)

    def without_ours(self, text: str) -> str:
        before, after = self._read(text), self._read(text)
        self._change(self.drop, after)
        return text if after == before else _dump(after, like=text) if after else ""

    def _read(self, text: str) -> Settings:
        try:
            found = json.loads(text, parse_float=_as_it_is, parse_constant=_as_it_is) if text.strip() else {}
        except ValueError as error:
            raise CannotDo(
                f"{self.path} is not valid JSON: {error}", hint="mend it first (it may not have comments in it)"
            ) from error
        if not isinstance(found, dict):
            raise CannotDo(f"{self.path} has an unexpected shape", hint="mend it first: it has to be one JSON object")
        return found

    def _change(self, change: Callable[[Settings], None], settings: Settings) -> None:
        try:
            change(settings)
        except (AttributeError, KeyError, TypeError) as error:
            raise CannotDo(f"{self.path} has an unexpected shape", hint="mend it first") from error


def _as_it_is(number: str) -> str:
    """A number that a computer would round, or that is none: it goes back as it came."""
    return f"\0{number}\0"


def _dump(settings: Settings, *, like: str) -> str:
    """As the person's editor wrote it: their indentation, their ends of lines, their last line, their numbers."""
    indent = re.search(r"^([ \t]+)\S", like, re.MULTILINE)
    text = json.dumps(settings, indent=indent[1] if indent else 2, ensure_ascii=False)
    text = re.sub(r'"\\u0000([^"\\]*)\\u0000"', r"\1", text)
    text = re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)  # of a character that someone cut
    text += "\n" if like.endswith("\n") or not like else ""
    return text.replace("\n", "\r\n") if "\r\n" in like else text


@dataclass(frozen=True, slots=True)
class HookLine:
    command: str
    timeout: int
    matcher: str | None = None
    more: Mapping[str, Any] | None = None  # what else the host wants in a handler

    def entry(self) -> Settings:
        """As Claude Code, Codex, Gemini and Qwen write it."""
        handler = {"type": "command", **(self.more or {}), "command": self.command, "timeout": self.timeout}
        return ({} if self.matcher is None else {"matcher": self.matcher}) | {"hooks": [handler]}


def add_hooks(settings: Settings, lines: Mapping[str, HookLine]) -> None:
    """Beside theirs, which have to be in the shape that the host reads: it would drop the whole file otherwise."""
    hooks = settings.setdefault("hooks", {})
    theirs = [entry for entries in hooks.values() for entry in entries]
    if not all(isinstance(entry["hooks"], list) for entry in theirs):
        raise TypeError
    for event, line in lines.items():
        hooks.setdefault(event, []).append(line.entry())


def drop_hooks(settings: Settings) -> None:
    """Our handlers, and what only they had needed. Anything in a shape we do not know is not ours and stays."""
    hooks = settings.get("hooks", {})
    touched = False
    for event, entries in list(hooks.items()):
        if not isinstance(entries, list):
            continue
        kept = [entry for entry in map(_without_ours, entries) if entry is not None]
        if kept != entries:
            touched = True
            hooks[event] = kept
            if not kept:
                del hooks[event]
    if touched and not hooks:
        del settings["hooks"]


def _without_ours(entry: Any) -> Any:
    handlers = entry.get("hooks") if isinstance(entry, dict) else None
    if not isinstance(handlers, list):
        return entry
    kept = [item for item in handlers if not (isinstance(item, dict) and is_ours(item.get("command")))]
    if len(kept) == len(handlers):
        return entry
    return {**entry, "hooks": kept} if kept else None


def add_server(settings: Settings, entry: Settings, *, under: str = "mcpServers") -> None:
    """Our tools, under our name; someone else's server of that name stays what it is."""
    servers = settings.setdefault(under, {})
    if SERVER in servers:
        raise CannotDo(f"another tool server is called {SERVER!r} already", hint="rename it first")
    servers[SERVER] = entry


def drop_server(settings: Settings, *, under: str = "mcpServers") -> None:
    entry = settings.get(under, {}).get(SERVER)
    if isinstance(entry, dict) and is_ours([*_words(entry.get("command")), *_words(entry.get("args"))]):
        del settings[under][SERVER]
        if not settings[under]:
            del settings[under]


def _words(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found]


# --- a block in a file of another kind -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BlockEdit:
    """At the end, between two marks, where `#` begins a comment."""

    path: Path
    what: str
    block: str

    def with_ours(self, text: str) -> str:
        block = f"{_BEGIN}\n{self.block.rstrip()}\n{_END}\n"
        if block in text:
            return text
        kept = self.without_ours(text)
        return f"{kept}{'' if not kept or kept.endswith(chr(10)) else chr(10)}{block}"

    def without_ours(self, text: str) -> str:
        begin = text.find(_BEGIN)
        end = text.find(_END, begin)
        if begin < 0 or end < 0:
            return text
        return text[:begin] + text[end + len(_END) :].removeprefix("\n")


def unmarked(text: str) -> str:
    """Without our marks, of which someone else may have moved one."""
    return "".join(line for line in text.splitlines(keepends=True) if line.strip() not in (_BEGIN, _END))


# --- a file that is all ours -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileEdit:
    """`mark` tells it from someone else's file of the same name. Theirs stays what it is: where we can do without ours
    (`needed` is false) in silence, else with a word."""

    path: Path
    what: str
    content: str
    mark: str = MARK
    needed: bool = False

    def with_ours(self, text: str) -> str:
        if not text or self.mark in text:
            return self.content
        if self.needed:
            raise CannotDo(f"{self.path} is there and not ours", hint="move it away first")
        return text

    def without_ours(self, text: str) -> str:
        return "" if self.mark in text else text
