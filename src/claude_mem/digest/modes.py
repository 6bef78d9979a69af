"""Modes: what is worth remembering. A mode defines observation types, concepts, and texts for requests to a model.

Modes are TOML files. `code` and `research` are built in; a file `NAME.toml` in the data directory's `modes/` adds a
mode or replaces a built-in one. A mode with `inherits` contains only the differences.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claude_mem.domain.errors import InvalidSetting
from claude_mem.system import untrusted_files

BUILTIN_MODES = Path(__file__).parents[1] / "data" / "modes"
DEFAULT_MODE = "code"
TEXT_PARTS = ("role", "record", "skip")
MAX_WORDS, MAX_MEANING_BYTES, MAX_TEXT_BYTES = 12, 100, 800  # so that the instructions always leave room for the turn
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,23}")

Icons = Mapping[str, str]  # by type


@dataclass(frozen=True, slots=True)
class ObservationTypeInfo:
    """A type of observation."""

    icon: str
    means: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """A mode: its observation types, its concepts, and its texts for requests."""

    name: str
    description: str
    types: Mapping[str, ObservationTypeInfo]
    concepts: Mapping[str, str]
    texts: Mapping[str, str]


def load_mode(name: str, folder: Path) -> Mode:
    """Return the mode of that name. Raises `InvalidSetting`, naming the file and the problem."""
    try:
        return _mode(name, _table(name, folder, ancestors=()))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidSetting(
            f"the mode {name!r} is invalid: {error}", hint=f"compare it with the modes in {BUILTIN_MODES}"
        ) from error


def load_mode_lenient(name: str, folder: Path) -> tuple[Mode, InvalidSetting | None]:
    """Return the mode, or `code` and the problem if it is invalid: a typing error must not stop the worker."""
    try:
        return load_mode(name, folder), None
    except InvalidSetting as problem:
        return load_mode(DEFAULT_MODE, BUILTIN_MODES), problem


def mode_names(folder: Path) -> list[str]:
    """Return the names of all modes, built-in and the user's."""
    return sorted({path.stem for place in (folder, BUILTIN_MODES) for path in place.glob("*.toml")})


def type_icons(mode: Mode) -> dict[str, str]:
    """Return the icons of the mode's types and of those of `code`, which the local writer always uses."""
    types = {**load_mode(DEFAULT_MODE, BUILTIN_MODES).types, **mode.types}
    return {name: kind.icon for name, kind in types.items()}


def _table(name: str, folder: Path, *, ancestors: tuple[str, ...]) -> dict[str, object]:
    """Return the content of a mode's file, merged with the mode it inherits from."""
    path = _find(name, folder, again=name in ancestors)
    try:
        own = tomllib.loads(untrusted_files.read_settings(path).decode("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidSetting(f"{path}: {error}", hint="correct the file, or set `mode` to another mode") from error
    parent = own.pop("inherits", None)
    if parent is None:
        return own
    return _merge(_table(str(parent), folder, ancestors=(*ancestors, name)), own)


def _find(name: str, folder: Path, *, again: bool) -> Path:
    """Return the file of a mode; the user's file takes precedence. With `again`, the name already occurred among the
    ancestors and means the built-in mode, so that no cycle can form."""
    if not _NAME.fullmatch(name):
        raise InvalidSetting(
            f"{name!r} is not a valid name for a mode", hint="use lowercase letters, digits, `-` and `_`"
        )
    for place in (BUILTIN_MODES,) if again else (folder, BUILTIN_MODES):
        if (path := place / f"{name}.toml").is_file():
            return path
    raise InvalidSetting(f"there is no mode {name!r}", hint=f"use one of {', '.join(mode_names(folder))}")


def _merge(parent: dict[str, Any], own: dict[str, Any]) -> dict[str, object]:
    merged = {**parent, **own}
    for part in ("types", "concepts", "texts"):
        dropped = set(own.get(f"drop_{part}", ()))
        inherited = {name: item for name, item in parent.get(part, {}).items() if name not in dropped}
        merged[part] = {**inherited, **own.get(part, {})}
    return merged


def _mode(name: str, table: dict[str, Any]) -> Mode:
    types = {
        _word(word): ObservationTypeInfo(_text(item["icon"], 8), _text(item["means"], MAX_MEANING_BYTES))
        for word, item in table["types"].items()
    }
    concepts = {_word(word): _text(means, MAX_MEANING_BYTES) for word, means in table["concepts"].items()}
    texts = {part: _text(table["texts"][part], MAX_TEXT_BYTES).strip() for part in TEXT_PARTS}
    if not 1 <= len(types) <= MAX_WORDS or not 1 <= len(concepts) <= MAX_WORDS:
        raise ValueError(f"it needs 1 to {MAX_WORDS} types and 1 to {MAX_WORDS} concepts")
    return Mode(
        name=name, description=_text(table.get("description", ""), 200), types=types, concepts=concepts, texts=texts
    )


def _word(word: str) -> str:
    if not _NAME.fullmatch(word):
        raise ValueError(f"{word!r} is not a valid name: use lowercase letters, digits, `-` and `_`")
    return word


def _text(value: Any, most: int) -> str:
    if not isinstance(value, str) or len(value.encode()) > most:
        raise TypeError(f"{str(value)[:40]!r} is not a string of at most {most} bytes")
    return value


ICONS = type_icons(load_mode(DEFAULT_MODE, BUILTIN_MODES))
