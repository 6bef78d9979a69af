"""What this machine remembers of the exchanges of a space, beside the logs in the database.

The file can be lost: positions are then checked from the start again, and the next manifest is accepted as the first.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from claude_mem import hook
from claude_mem.domain import ids
from claude_mem.sync.errors import Problem, SpaceError
from claude_mem.sync.keys import FOLDER, NEXT, key_path
from claude_mem.sync.segments import SegmentLog, read_plain_file
from claude_mem.system.spool import write_private

MAX_STATE_BYTES = 8 << 20
MAX_NOTES = 20


class Position(msgspec.Struct, frozen=True):
    """Up to where a device's log was verified: the index and the hash of the last sealed entry."""

    index: int
    hash: bytes


class SpaceState(msgspec.Struct, kw_only=True):
    """`manifest` is the last one that was accepted; `heads` are those of the transport at the last exchange. `problems`
    are those of the last exchange, `notes` what was put right, newest last. `offline`: why the last attempt failed to
    reach the transport; "" if it did reach it."""

    manifest: bytes = b""
    positions: dict[str, Position] = {}
    heads: dict[str, int] = {}
    attempted_at: int = 0
    exchanged_at: int = 0
    offline: str = ""
    problems: list[Problem] = []
    notes: list[Problem] = []

    def note(self, code: str, message: str, *, machine: str = "", hint: str = "") -> None:
        """Add a note; one that says the same is replaced."""
        others = [note for note in self.notes if note.message != message]
        self.notes = [*others, Problem(code, message, hint, machine, ids.now_ms())][-MAX_NOTES:]


_DECODE = msgspec.json.Decoder(SpaceState)  # made at import: two threads that first decode a type at once crash msgspec


def problem_of(error: Exception) -> Problem:
    """Return an error as a problem to show."""
    machine = error.machine if isinstance(error, SpaceError) else ""
    return Problem(type(error).__name__, str(error), getattr(error, "hint", ""), machine, ids.now_ms())


def space_folder(data_dir: Path, space: str) -> Path:
    """Return the directory with the files of a space, its keys aside."""
    return data_dir / FOLDER / space


def own_log(data_dir: Path, space: str, device: str) -> SegmentLog:
    """Return the sealed copy of this machine's own log. An entry is sealed once: sealed again, it would be another
    entry for those that have verified the first."""
    return SegmentLog(space_folder(data_dir, space) / "own" / device)


def load_state(data_dir: Path, space: str) -> SpaceState:
    """Return the state; an empty one if the file is missing or damaged."""
    raw = read_plain_file(space_folder(data_dir, space) / "state.json", MAX_STATE_BYTES)
    try:
        return _DECODE.decode(raw) if raw else SpaceState()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return SpaceState()


def save_state(data_dir: Path, space: str, state: SpaceState) -> None:
    """Write the state."""
    folder = space_folder(data_dir, space)
    hook.make_private_dir(str(folder))
    write_private(folder / "state.json", msgspec.json.encode(state), sync=True)


def delete_files(data_dir: Path, space: str) -> None:
    """Delete everything of a space from this machine but its database rows. The keys go last."""
    folder = space_folder(data_dir, space)
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
    for path in (key_path(data_dir, space).with_suffix(NEXT), key_path(data_dir, space)):
        path.unlink(missing_ok=True)
