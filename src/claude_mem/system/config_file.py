"""Writes settings into the user's `config.toml` without touching its comments, order and line endings.

A set of changes is written completely or not at all, and only if the result parses back to the intended values.
"""

from __future__ import annotations

import os
import threading
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claude_mem import hook
from claude_mem.domain.errors import OperationFailed
from claude_mem.system import untrusted_files
from claude_mem.system.spool import write_private

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_write_lock = threading.Lock()


def set_value(path: Path, name: str, value: Any) -> None:
    """Set one value in the file and leave the rest unchanged."""
    apply_changes(path, {name: value})


def remove_value(path: Path, name: str) -> bool:
    """Remove a setting from the file; return False if the file did not contain it."""
    return apply_changes(path, {name: None})


def apply_changes(path: Path, values: Mapping[str, Any]) -> bool:
    """Set these values and remove those that are None. Return False if the file needs no change."""
    with _write_lock:
        document = _read(path)
        before = document.unwrap()
        for name, value in values.items():
            if value is None:
                document.pop(name, None)
                continue
            plain = list(value) if isinstance(value, tuple) else value
            if repr(plain) != repr(before.get(name)):  # `repr`, because 1 == True
                document[name] = plain
        after = document.unwrap()
        if repr(after) == repr(before):
            return False
        _write(path, document, after)
        return True


def _read(path: Path) -> TOMLDocument:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(
            untrusted_files.read_settings(path).decode("utf-8")
        )  # decoded here, which keeps the line endings
    except (FileNotFoundError, NotADirectoryError):
        return tomlkit.document()
    except (UnicodeDecodeError, TOMLKitError) as error:
        raise OperationFailed(
            f"{path} is not valid TOML: {error}", hint="correct it with `claude-mem config edit`"
        ) from error
    except OSError as error:
        raise OperationFailed(f"{path} cannot be read: {error}", hint="check its permissions") from error


def _write(path: Path, document: TOMLDocument, expected: Mapping[str, Any]) -> None:
    import tomlkit

    text = tomlkit.dumps(document)
    if tomllib.loads(text) != expected:
        raise OperationFailed(
            f"{path} cannot be changed without altering other settings", hint="edit it with `claude-mem config edit`"
        )
    try:
        hook.make_private_dir(str(path.parent))
        write_private(Path(os.path.realpath(path)), text.encode())  # the user's file may be a symlink
    except OSError as error:
        raise OperationFailed(
            f"{path} cannot be written: {error}", hint="check its permissions and the free disk space"
        ) from error
