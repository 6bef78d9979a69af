"""`config.toml` is the person's: what we write into it leaves comments, order and ends of lines as they were.

Changes are made altogether or not at all. What would not read back as it was meant is not written.
"""

from __future__ import annotations

import os
import threading
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claude_mem import hook, untrusted_files
from claude_mem.errors import CannotDo
from claude_mem.spool import write_private

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_one_at_a_time = threading.Lock()


def store(path: Path, name: str, value: Any) -> None:
    """Write one value into the file, which stays as it is otherwise."""
    change(path, {name: value})


def unset(path: Path, name: str) -> bool:
    """Take a setting out of the file; False if it was not in there."""
    return change(path, {name: None})


def change(path: Path, values: Mapping[str, Any]) -> bool:
    """Set these, take out those that are None. False if the file says all that already."""
    with _one_at_a_time:
        document = _read(path)
        before = document.unwrap()
        for name, value in values.items():
            if value is None:
                document.pop(name, None)
            elif repr(plain := _plain(value)) != repr(before.get(name)):  # 1 is equal to true, and not the same
                document[name] = plain
        wanted = document.unwrap()
        if repr(wanted) == repr(before):
            return False
        _write(path, document, wanted)
        return True


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _read(path: Path) -> TOMLDocument:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(untrusted_files.read_settings(path).decode("utf-8"))  # with their ends of lines
    except (FileNotFoundError, NotADirectoryError):
        return tomlkit.document()
    except (UnicodeDecodeError, TOMLKitError) as error:
        raise CannotDo(f"{path} is not TOML: {error}", hint="`claude-mem config edit` opens it") from error
    except OSError as error:
        raise CannotDo(f"{path} can't be read: {error}", hint="look at its permissions") from error


def _write(path: Path, document: TOMLDocument, wanted: Mapping[str, Any]) -> None:
    import tomlkit

    text = tomlkit.dumps(document)
    if tomllib.loads(text) != wanted:
        raise CannotDo(f"{path} can't be changed without changing more of it", hint="`claude-mem config edit` opens it")
    try:
        hook.make_private(str(path.parent))
        write_private(Path(os.path.realpath(path)), text.encode())  # theirs may be a link
    except OSError as error:
        raise CannotDo(f"{path} can't be written: {error}", hint="look at its permissions and at the disk") from error
