"""Adds claude-mem to the settings files of agents and removes it again without leaving traces.

Changes are all or nothing: if one file cannot be written, those already written are restored. The original content of
each file is kept in the data directory. If the file has not been changed since, removal restores it byte for byte;
otherwise only our own part is removed. Files and directories that we created are removed too, unless they now contain
anything else.
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
from claude_mem.agents.base import Agent, LauncherCommands
from claude_mem.agents.files import SettingsEdit
from claude_mem.domain.errors import ClaudeMemError, OperationFailed
from claude_mem.system import untrusted_files
from claude_mem.system.process import LAUNCHER
from claude_mem.system.spool import write_private

RECORD_FILE = "connected.json"
ORIGINALS_DIR = "agents"  # directory in the backups that holds the original files


@dataclass(frozen=True, slots=True)
class FileChange:
    """The content of one file before and after the change. `None` means that the file does not exist."""

    host: str
    edit: SettingsEdit
    before: str | None
    after: str | None

    @property
    def path(self) -> Path:
        """The file."""
        return self.edit.path

    @property
    def what(self) -> str:
        """What is added, described for the user."""
        return self.edit.what


class ConnectionEntry(msgspec.Struct, frozen=True):
    """A record of what we changed in a file."""

    host: str
    path: str
    created_file: bool = msgspec.field(name="made")  # whether we created the file
    folders: list[str]  # directories that we created for it
    copy_name: str = msgspec.field(name="kept")  # name of the copy of the original content; "" if there is none
    after: str  # hash of the content we wrote


# --- planning --------------------------------------------------------------------------------------------------------


def plan_connection(agent: Agent, ours: LauncherCommands) -> list[FileChange]:
    """Return the changes needed for this agent to run claude-mem; empty if it is connected already.

    Raises `OperationFailed`, naming the file.
    """
    if agent.connected_via(ours.env):
        return plan_removal(agent, ours)
    return [change for edit in agent.edits(ours) for change in _change(agent, edit, edit.apply)]


def plan_removal(agent: Agent, ours: LauncherCommands) -> list[FileChange]:
    """Return the changes that remove claude-mem from this agent's files."""
    return [change for edit in agent.edits(ours) for change in _change(agent, edit, edit.revert)]


def _change(agent: Agent, edit: SettingsEdit, edit_text: Callable[[str], str]) -> list[FileChange]:
    before = _read(edit.path)
    after = edit_text(before or "")
    return [FileChange(agent.name, edit, before, after or None)] if after != (before or "") else []


def _read(path: Path) -> str | None:
    try:
        return untrusted_files.read_settings(path).decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise OperationFailed(
            f"{path} cannot be read: {error.strerror}", hint="check its owner and permissions, then try again"
        ) from error
    except UnicodeDecodeError as error:
        raise OperationFailed(
            f"{path} is not valid UTF-8 text; nothing was changed", hint="correct it, then try again"
        ) from error


# --- the record of all changes ---------------------------------------------------------------------------------------


class ConnectionRecord:
    """The record of all changes, in the data directory. It is written before the files, so that no change is lost."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / RECORD_FILE
        self.originals_dir = data_dir / "backups" / ORIGINALS_DIR

    def entries(self) -> dict[str, ConnectionEntry]:
        """Return the entries by path; none if the file is missing or damaged."""
        try:
            stored = msgspec.json.decode(self.path.read_bytes(), type=list[ConnectionEntry])
        except (OSError, msgspec.MsgspecError):
            return {}  # removal then recognizes our part in each file
        return {entry.path: entry for entry in stored}

    def write(self, entries: dict[str, ConnectionEntry]) -> None:
        """Replace the record, or delete its file if there are no entries."""
        if entries:
            hook.make_private_dir(str(self.path.parent))
            write_private(self.path, msgspec.json.encode(list(entries.values())))
        else:
            self.path.unlink(missing_ok=True)

    def save_original(self, path: Path, text: str) -> str:
        """Save the original content of a file and return the name of the copy."""
        name = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        hook.make_private_dir(str(self.originals_dir))
        write_private(self.originals_dir / name, text.encode())
        return name

    def original(self, entry: ConnectionEntry) -> str | None:
        """Return the saved original content; None if the file did not exist."""
        return _read(self.originals_dir / entry.copy_name) if entry.copy_name else None

    def delete_original(self, entry: ConnectionEntry) -> None:
        """Delete the copy of the original content."""
        if entry.copy_name:
            (self.originals_dir / entry.copy_name).unlink(missing_ok=True)
        _rmdir_if_empty(self.originals_dir)


# --- connecting ------------------------------------------------------------------------------------------------------


def apply_changes(changes: Sequence[FileChange], record: ConnectionRecord) -> None:
    """Write the changed files and record them; on failure, restore both."""
    earlier = record.entries()
    entries = {str(change.path): _entry(change, earlier.get(str(change.path)), record) for change in changes}
    record.write({**earlier, **entries})
    try:
        _write_all([(change.path, change.before, change.after) for change in changes])
    except OperationFailed:
        record.write(earlier)
        raise


def _entry(change: FileChange, earlier: ConnectionEntry | None, record: ConnectionRecord) -> ConnectionEntry:
    """Return the record of a change.

    If the file is unchanged since our last edit, the original content stays that of the first edit. Otherwise the
    original is the file without our part: the file was changed by others since the earlier record, or never written.
    """
    after = _hash(change.after or "")
    if earlier is not None and _hash(change.before or "") == earlier.after:
        return msgspec.structs.replace(earlier, after=after)
    without_ours = change.edit.revert(change.before or "")
    folders = [*(earlier.folders if earlier else ()), *_missing_folders(change.path)]
    backup_name = record.save_original(change.path, without_ours) if without_ours else ""
    return ConnectionEntry(
        change.host, str(change.path), not without_ours, list(dict.fromkeys(folders)), backup_name, after
    )


# --- disconnecting ---------------------------------------------------------------------------------------------------


def disconnect(
    agent: Agent, ours: LauncherCommands, record: ConnectionRecord
) -> tuple[list[Path], list[OperationFailed]]:
    """Remove claude-mem from an agent. Return the files that were changed or removed, and the problems.

    A problem with one file does not stop the others.
    """
    entries = record.entries()
    changed_paths: list[Path] = []
    problems: list[OperationFailed] = []
    for edit in agent.edits(ours):
        try:
            changed_paths += _revert_file(edit, entries.get(str(edit.path)), record)
            if entry := entries.pop(str(edit.path), None):
                _remove_leftovers(entry, record)
        except OperationFailed as problem:
            problems.append(problem)
    for entry in [entry for entry in entries.values() if entry.host == agent.name]:
        try:
            changed_paths += _restore(entry, record)
            _remove_leftovers(entries.pop(entry.path), record)
        except OperationFailed as problem:
            problems.append(problem)
    for trace in list(agent.traces(ours.env)):
        shutil.rmtree(trace, ignore_errors=True)
        _rmdir_if_empty(trace.parent)
        _rmdir_if_empty(trace.parent.parent)
    record.write(entries)
    return changed_paths, problems


def _revert_file(edit: SettingsEdit, entry: ConnectionEntry | None, record: ConnectionRecord) -> list[Path]:
    """Remove our part from a file, or restore its original if nothing else changed it. Return the changed paths."""
    _temp(edit.path).unlink(missing_ok=True)  # left by an interrupted write
    before = _read(edit.path)
    if before is None:
        return []
    restored: str | None = edit.revert(before)
    if entry is not None and _hash(before) == entry.after and (entry.created_file or entry.copy_name):
        restored = record.original(entry)
    elif restored == before:
        return []
    elif not restored:
        is_users = edit.path.is_symlink() if entry is None else not entry.created_file
        restored = "{}\n" if is_users and edit.path.suffix == ".json" else None
    _write_all([(edit.path, before, restored)])
    return [edit.path]


def _restore(entry: ConnectionEntry, record: ConnectionRecord) -> list[Path]:
    """Restore a file that is no longer in the agent's current location, for example because a variable has changed."""
    path = Path(entry.path)
    before = _read(path)
    if before is None:
        return []
    if _hash(before) != entry.after or not (entry.created_file or entry.copy_name):
        raise OperationFailed(
            f"{path} was changed after claude-mem was added", hint=f"remove the entries that run {LAUNCHER} by hand"
        )
    _write_all([(path, before, record.original(entry))])
    return [path]


def _remove_leftovers(entry: ConnectionEntry, record: ConnectionRecord) -> None:
    for folder in reversed(entry.folders):
        _rmdir_if_empty(Path(folder))
    record.delete_original(entry)


# --- writing files ---------------------------------------------------------------------------------------------------


def _write_all(writes: Sequence[tuple[Path, str | None, str | None]]) -> None:
    """Write files given as path, expected content and new content; restore all of them if one fails."""
    written: list[tuple[Path, str | None]] = []
    try:
        for path, before, after in writes:
            if _read(path) != before:  # the agent may be running
                raise OperationFailed(
                    f"{path} was changed by another program just now", hint="nothing was written; try again"
                )
            written.append((path, before))
            _write(path, after)
    except (OSError, OperationFailed) as error:
        for path, before in reversed(written):
            with contextlib.suppress(OSError):
                _write(path, before)
        if isinstance(error, OperationFailed):
            raise
        raise OperationFailed(
            f"{error.filename or written[-1][0]} cannot be written: {error.strerror}; nothing was changed",
            hint="check its owner and the free disk space, then try again",
        ) from error


def _write(path: Path, text: str | None) -> None:
    """Write a file atomically, keeping its mode and, if it is a link, the link."""
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


def _missing_folders(path: Path) -> list[str]:
    """Return the missing parent directories of a file, outermost first."""
    return [str(folder) for folder in reversed(path.parents) if not folder.exists()]


def _rmdir_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# --- status ----------------------------------------------------------------------------------------------------------


def connection_status(agent: Agent, ours: LauncherCommands) -> tuple[str, str]:
    """Return the status of an agent, with a detail: how it is connected, what it waits for, or what is wrong.

    The status is `connected`, `waiting` (for something that only the user can do), `partly`, `absent` or `broken`.
    """
    try:
        missing, removable = plan_connection(agent, ours), plan_removal(agent, ours)
    except ClaudeMemError as problem:
        return "broken", f"{problem}{f' ({problem.hint})' if problem.hint else ''}"
    if not missing:
        if other_way := agent.connected_via(ours.env):
            return "connected", other_way
        obstacle = agent.pending_user_action(ours.env)
        return ("waiting", obstacle) if obstacle else ("connected", "")
    if not removable:
        return "absent", ""
    return "partly", ", ".join(sorted({str(change.path) for change in missing}))
