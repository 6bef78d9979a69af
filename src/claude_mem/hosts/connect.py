"""Puts us into agents' files and takes us out again, so that afterwards nothing tells that we were there.

All or nothing: if one file can't be written, those already written are put back. What a file was without us is kept
beside our data; as long as nobody has changed the file since, taking us out restores it to the byte. If someone has,
only our own part is taken out. A file or a folder that we made is removed again, unless there is more in it by then.
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

from claude_mem import hook, untrusted_files
from claude_mem.errors import CannotDo, MemError
from claude_mem.hosts.edits import Edit
from claude_mem.hosts.host import Host, Ours
from claude_mem.process import LAUNCHER
from claude_mem.spool import write_private

RECORD = "connected.json"
KEPT = "agents"  # under the backups: each file as it was


@dataclass(frozen=True, slots=True)
class Change:
    """One file, as it is and as it will be. `None`: not there."""

    host: str
    edit: Edit
    before: str | None
    after: str | None

    @property
    def path(self) -> Path:
        return self.edit.path

    @property
    def what(self) -> str:
        return self.edit.what


class Entry(msgspec.Struct, frozen=True):
    """What we did to a file."""

    host: str
    path: str
    made: bool  # without us it would not be there
    folders: list[str]  # the ones we made for it
    kept: str  # the name of the copy of what it was; "" if there is none to go back to
    after: str  # the hash of what we wrote


# --- planning --------------------------------------------------------------------------------------------------------


def plan(host: Host, ours: Ours) -> list[Change]:
    """What would change so that this agent runs us; nothing if it does already. `CannotDo` names the file."""
    if host.elsewhere(ours.env):
        return removal(host, ours)
    return [change for edit in host.edits(ours) for change in _change(host, edit, edit.with_ours)]


def removal(host: Host, ours: Ours) -> list[Change]:
    return [change for edit in host.edits(ours) for change in _change(host, edit, edit.without_ours)]


def _change(host: Host, edit: Edit, how: Callable[[str], str]) -> list[Change]:
    before = _read(edit.path)
    after = how(before or "")
    return [Change(host.name, edit, before, after or None)] if after != (before or "") else []


def _read(path: Path) -> str | None:
    try:
        return untrusted_files.read_settings(path).decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CannotDo(f"{path} can't be read: {error.strerror}", hint="see who owns it, then try again") from error
    except UnicodeDecodeError as error:
        raise CannotDo(f"{path} is not text in UTF-8", hint="mend it first; nothing was changed") from error


# --- the record ------------------------------------------------------------------------------------------------------


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

    def keep(self, path: Path, text: str) -> str:
        name = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        hook.make_private(str(self.kept))
        write_private(self.kept / name, text.encode())
        return name

    def original(self, entry: Entry) -> str | None:
        return _read(self.kept / entry.kept) if entry.kept else None

    def forget(self, entry: Entry) -> None:
        if entry.kept:
            (self.kept / entry.kept).unlink(missing_ok=True)
        _rmdir(self.kept)


# --- in --------------------------------------------------------------------------------------------------------------


def put_in(changes: Sequence[Change], record: Record) -> None:
    earlier = record.entries()
    entries = {str(change.path): _entry(change, earlier.get(str(change.path)), record) for change in changes}
    record.write({**earlier, **entries})
    try:
        _write_all([(change.path, change.before, change.after) for change in changes])
    except CannotDo:
        record.write(earlier)
        raise


def _entry(change: Change, earlier: Entry | None, record: Record) -> Entry:
    """An update of ours goes back to where the first one would. Otherwise the way back is the file as it would be
    without us: whatever an earlier record says, the file has gone its own way, or was never written."""
    after = _hash(change.after or "")
    if earlier is not None and _hash(change.before or "") == earlier.after:
        return msgspec.structs.replace(earlier, after=after)
    bare = change.edit.without_ours(change.before or "")
    folders = [*(earlier.folders if earlier else ()), *_missing(change.path)]
    kept = record.keep(change.path, bare) if bare else ""
    return Entry(change.host, str(change.path), not bare, list(dict.fromkeys(folders)), kept, after)


# --- out -------------------------------------------------------------------------------------------------------------


def take_out(host: Host, ours: Ours, record: Record) -> tuple[list[Path], list[CannotDo]]:
    """The files that were changed or removed, and what could not be done: one broken file does not protect the rest."""
    entries = record.entries()
    done: list[Path] = []
    problems: list[CannotDo] = []
    for edit in host.edits(ours):
        try:
            done += _take_out_one(edit, entries.get(str(edit.path)), record)
            if entry := entries.pop(str(edit.path), None):
                _tidy(entry, record)
        except CannotDo as problem:
            problems.append(problem)
    for entry in [entry for entry in entries.values() if entry.host == host.name]:
        try:
            done += _restore(entry, record)
            _tidy(entries.pop(entry.path), record)
        except CannotDo as problem:
            problems.append(problem)
    for trace in list(host.traces(ours.env)):
        shutil.rmtree(trace, ignore_errors=True)
        _rmdir(trace.parent)
        _rmdir(trace.parent.parent)
    record.write(entries)
    return done, problems


def _take_out_one(edit: Edit, entry: Entry | None, record: Record) -> list[Path]:
    _temp(edit.path).unlink(missing_ok=True)  # of a write that was killed
    before = _read(edit.path)
    if before is None:
        return []
    bare: str | None = edit.without_ours(before)
    if entry is not None and _hash(before) == entry.after and (entry.made or entry.kept):
        bare = record.original(entry)
    elif bare == before:
        return []
    elif not bare:
        theirs = edit.path.is_symlink() if entry is None else not entry.made
        bare = "{}\n" if theirs and edit.path.suffix == ".json" else None
    _write_all([(edit.path, before, bare)])
    return [edit.path]


def _restore(entry: Entry, record: Record) -> list[Path]:
    """A file of another place, such as a folder that a variable named when we were put in."""
    path = Path(entry.path)
    before = _read(path)
    if before is None:
        return []
    if _hash(before) != entry.after or not (entry.made or entry.kept):
        raise CannotDo(f"{path} has changed since", hint=f"take out by hand what runs {LAUNCHER}")
    _write_all([(path, before, record.original(entry))])
    return [path]


def _tidy(entry: Entry, record: Record) -> None:
    for folder in reversed(entry.folders):
        _rmdir(Path(folder))
    record.forget(entry)


# --- files -----------------------------------------------------------------------------------------------------------


def _write_all(writes: Sequence[tuple[Path, str | None, str | None]]) -> None:
    done: list[tuple[Path, str | None]] = []
    try:
        for path, before, after in writes:
            if _read(path) != before:  # the agent may be at work
                raise CannotDo(f"{path} was changed in this very moment", hint="nothing was changed by us; try again")
            done.append((path, before))
            _write(path, after)
    except (OSError, CannotDo) as error:
        for path, before in reversed(done):
            with contextlib.suppress(OSError):
                _write(path, before)
        if isinstance(error, CannotDo):
            raise
        raise CannotDo(
            f"{error.filename or done[-1][0]} can't be written: {error.strerror}",
            hint="nothing was changed; see who owns it and whether the disk is full, then try again",
        ) from error


def _write(path: Path, text: str | None) -> None:
    """All at once, keeping the file's mode and, if it is a link, the link."""
    target = Path(os.path.realpath(path))
    if text is None:
        target.unlink(missing_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    temp = _temp(path)
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


def _temp(path: Path) -> Path:
    target = Path(os.path.realpath(path))
    return target.with_name(f".{target.name}.claude-mem")


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
    """`connected`, `waiting` (for something that only the user can do), `partly`, `absent` or `broken`; and by what way
    it is connected, what it waits for, or what is wrong."""
    try:
        missing, ours_there = plan(host, ours), removal(host, ours)
    except MemError as problem:
        return "broken", f"{problem}{f' ({problem.hint})' if problem.hint else ''}"
    if not missing:
        if way := host.elsewhere(ours.env):
            return "connected", way
        obstacle = host.waits_for(ours.env)
        return ("waiting", obstacle) if obstacle else ("connected", "")
    if not ours_there:
        return "absent", ""
    return "partly", ", ".join(sorted({str(change.path) for change in missing}))
