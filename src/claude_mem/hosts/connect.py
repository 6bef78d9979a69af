"""Puts us into agents' files and takes us out again, so that afterwards nothing tells that we were there.

All or nothing: if one file can't be written, those already written are put back. What a file was before is kept beside
our data; as long as nobody has changed the file since, taking us out restores it to the byte. If someone has, only our
own part is taken out. A file or a folder that we made is removed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from claude_mem import hook
from claude_mem.errors import CannotDo, MemError
from claude_mem.hosts.edits import Edit
from claude_mem.hosts.host import Host, Ours
from claude_mem.spool import write_private

RECORD = "connected.json"
KEPT = "agents"  # under the backups: each file as it was


@dataclass(frozen=True, slots=True)
class Change:
    """One file, as it is and as it will be. `None`: not there."""

    host: str
    path: Path
    what: str
    before: str | None
    after: str | None


class Entry(msgspec.Struct, frozen=True):
    """What we did to a file."""

    host: str
    path: str
    made: bool  # it was not there before
    folders: list[str]  # the ones we made for it
    kept: str  # the name of the copy of what it was; "" if there is none to go back to
    after: str  # the hash of what we wrote


# --- planning --------------------------------------------------------------------------------------------------------


def plan(host: Host, ours: Ours) -> list[Change]:
    """What would change so that this agent runs us; nothing if it does already. `CannotDo` names the file."""
    if host.elsewhere(ours.env):
        return removal(host, ours)
    return _changes(host, host.edits(ours), lambda edit, text: edit.with_ours(text))


def removal(host: Host, ours: Ours) -> list[Change]:
    return _changes(host, host.edits(ours), lambda edit, text: edit.without_ours(text))


def _changes(host: Host, edits: Sequence[Edit], change: Callable[[Edit, str], str]) -> list[Change]:
    found = []
    for edit in edits:
        before = _read(edit.path)
        after = change(edit, before or "")
        if after != (before or ""):
            found.append(Change(host.name, edit.path, edit.what, before, after or None))
    return found


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CannotDo(f"{path} can't be read: {error.strerror}", hint="see who owns it, then try again") from error
    except UnicodeDecodeError as error:
        raise CannotDo(f"{path} is not text in UTF-8", hint="mend it first; nothing was changed") from error


# --- carrying out ----------------------------------------------------------------------------------------------------


class Record:
    """What we changed, in the data directory: written before the files are, so that nothing can be forgotten."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / RECORD
        self.kept = data_dir / "backups" / KEPT

    def entries(self) -> dict[str, Entry]:
        try:
            found = msgspec.json.decode(self.path.read_bytes(), type=list[Entry])
        except (OSError, msgspec.MsgspecError):
            return {}  # then taking out goes by what is ours in each file
        return {entry.path: entry for entry in found}

    def write(self, entries: dict[str, Entry]) -> None:
        if entries:
            hook.make_private(str(self.path.parent))
            write_private(self.path, msgspec.json.encode(list(entries.values())))
        else:
            self.path.unlink(missing_ok=True)

    def keep(self, change: Change) -> str:
        if change.before is None:
            return ""
        name = hashlib.sha256(str(change.path).encode()).hexdigest()[:16]
        hook.make_private(str(self.kept))
        write_private(self.kept / name, change.before.encode())
        return name

    def original(self, entry: Entry) -> str | None:
        return _read(self.kept / entry.kept) if entry.kept else None

    def forget(self, entry: Entry) -> None:
        if entry.kept:
            (self.kept / entry.kept).unlink(missing_ok=True)
        _rmdir(self.kept)


def put_in(changes: Sequence[Change], record: Record) -> None:
    entries = record.entries()
    for change in changes:
        entries[str(change.path)] = _entry(change, entries.get(str(change.path)), record)
    record.write(entries)
    _write_all([(change.path, change.before, change.after) for change in changes])


def _entry(change: Change, earlier: Entry | None, record: Record) -> Entry:
    after = _hash(change.after or "")
    if earlier is None:
        made = change.before is None
        return Entry(change.host, str(change.path), made, _missing(change.path), record.keep(change), after)
    # An update of ours. If someone else has changed the file meanwhile, there is no going back to the byte.
    untouched = _hash(change.before or "") == earlier.after
    return msgspec.structs.replace(earlier, after=after, kept=earlier.kept if untouched else "")


def take_out(host: Host, ours: Ours, record: Record) -> list[Path]:
    """The files that were changed or removed."""
    entries = record.entries()
    changes = {str(change.path): change for change in removal(host, ours)}
    writes = [(change.path, change.before, _without_us(change, entries, record)) for change in changes.values()]
    _write_all(writes)
    for trace in list(host.traces(ours.env)):
        shutil.rmtree(trace, ignore_errors=True)
        _rmdir(trace.parent)
        _rmdir(trace.parent.parent)
    for entry in [entry for entry in entries.values() if entry.host == host.name]:
        for folder in reversed(entry.folders):
            _rmdir(Path(folder))
        record.forget(entry)
        del entries[entry.path]
    record.write(entries)
    return [path for path, _, _ in writes]


def _without_us(change: Change, entries: dict[str, Entry], record: Record) -> str | None:
    entry = entries.get(str(change.path))
    if entry is not None and _hash(change.before or "") == entry.after and (entry.made or entry.kept):
        return record.original(entry)
    if change.after is None and (entry is None or not entry.made) and change.path.suffix == ".json":
        return "{}\n" if entry is not None else None  # it was there before us
    return change.after


def _write_all(writes: Sequence[tuple[Path, str | None, str | None]]) -> None:
    done: list[tuple[Path, str | None]] = []
    try:
        for path, before, after in writes:
            done.append((path, before))
            _write(path, after)
    except OSError as error:
        for path, before in reversed(done):
            with contextlib.suppress(OSError):
                _write(path, before)
        raise CannotDo(
            f"{error.filename or done[-1][0]} can't be written: {error.strerror}",
            hint="nothing was changed; see who owns it and whether the disk is full, then try again",
        ) from error


def _write(path: Path, text: str | None) -> None:
    """All at once, keeping the file's mode and, if it is a link, the link."""
    if text is None:
        path.unlink(missing_ok=True)
        return
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    temp = target.with_name(f".{target.name}.claude-mem")
    temp.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(temp, flags, 0o600), "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temp.chmod(mode)
        temp.rename(target)
    except OSError:
        temp.unlink(missing_ok=True)
        raise


def _missing(path: Path) -> list[str]:
    """The folders above a file that are not there, the outermost first."""
    return [str(folder) for folder in reversed(path.parents) if not folder.exists()]


def _rmdir(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()  # unless something is in it


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# --- how it stands ---------------------------------------------------------------------------------------------------


def standing(host: Host, ours: Ours) -> tuple[str, str]:
    """`connected`, `partly`, `absent` or `broken`, and what is wrong."""
    try:
        missing, ours_there = plan(host, ours), removal(host, ours)
    except MemError as problem:
        return "broken", f"{problem}{f' ({problem.hint})' if problem.hint else ''}"
    if not missing:
        return "connected", host.elsewhere(ours.env) or host.waits_for(ours.env)
    if not ours_there:
        return "absent", ""
    return "partly", ", ".join(sorted({str(change.path) for change in missing}))
