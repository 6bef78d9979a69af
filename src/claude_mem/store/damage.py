"""Is a database damaged? What is seen before it is opened, by its errors, and by a close look.

Busy, locked, full and failing disks are troubles of their own and never taken for damage.
"""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import apsw

from claude_mem.errors import Damaged

MAGIC = b"SQLite format 3\0"
HEADER = 100
BALLAST = "ballast"
# The names of our copies: what a person asked for, what the worker makes every day, what we made before a change.
BACKUPS = ("memory-", "daily-", "before-")
AUDIT, STONES = "audit*.jsonl", "forgotten.jsonl"  # files that outlive the database
_HINT = "the worker sets it aside and puts the newest good backup in its place"
_SHM_HEADER, _BACKFILLED = 48, 96  # where SQLite keeps its notes about the log, and how much of it is in the database


# What damage looks like to whoever meets it. We write only text that can be read again.
SIGNS = (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError)


def is_damage(error: BaseException | None) -> bool:
    """Whatever it is wrapped in."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_damage(each) for each in error.exceptions)
    if error is None:
        return False
    return isinstance(error, (*SIGNS, Damaged)) or is_damage(error.__cause__)


_TROUBLE = (
    apsw.FullError, apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError,
)  # fmt: skip
_TROUBLE_CODES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


def is_trouble(error: BaseException) -> bool:
    """The disk does not take it now, and may take it later. None of these is damage."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_trouble(each) for each in error.exceptions)
    return isinstance(error, _TROUBLE) or (isinstance(error, OSError) and error.errno in _TROUBLE_CODES)


# --- before it is opened ---------------------------------------------------------------------------------------------


def look(path: Path, *, backups: Path) -> None:
    """`Damaged` if it can't be a database of ours. One that is empty, or not there, was never used, unless there are
    traces of it."""
    if path.is_dir():
        raise Damaged(f"{path} is a folder", hint=_HINT)
    try:
        with path.open("rb") as file:
            head = file.read(HEADER)
    except FileNotFoundError:
        if left := traces(path, backups=backups):
            raise Damaged(f"{path} is gone; what is left of it: {left}", hint=_HINT) from None
        return
    if not head:
        left = traces(path, backups=backups)
        if left or path.with_name(BALLAST).exists():
            raise Damaged(f"{path} is empty{f'; what is left of it: {left}' if left else ''}", hint=_HINT)
        return
    if not _is_header(head):
        raise Damaged(f"{path} does not begin as a database does", hint=_HINT)


def traces(path: Path, *, backups: Path) -> str:
    """What shows that there was a memory, in words; "" if nothing does: then a missing database is a new one."""
    log = path.with_name(f"{path.name}-wal")
    found = [log.name] if log.is_file() and log.stat().st_size else []
    counts = {
        "backup": sum(1 for prefix in BACKUPS for _ in backups.glob(f"{prefix}*.db")),
        "audit record": sum(_lines(file) for file in path.parent.glob(AUDIT)),
        "tombstone": _lines(path.with_name(STONES)),
    }
    found += [f"{count:,} {what}{'s' if count > 1 else ''}" for what, count in counts.items() if count]
    return ", ".join(found)


def _lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n") if path.is_file() else 0
    except OSError:
        return 0


def _is_header(head: bytes) -> bool:
    """The fields that SQLite sets once, and those it would not open, or not write to."""
    if len(head) < HEADER or not head.startswith(MAGIC):
        return False
    page = int.from_bytes(head[16:18], "big")
    fixed = head[18] in (1, 2) and head[19] in (1, 2) and head[21:24] == b"\x40\x20\x20" and not head[20]
    shape, encoding = int.from_bytes(head[44:48], "big"), int.from_bytes(head[56:60], "big")
    return fixed and (page == 1 or page in _PAGE_SIZES) and shape <= 4 and encoding <= 1


_PAGE_SIZES = tuple(512 << n for n in range(7))


def mend_header(head: bytes) -> bytes:
    """The same with the fields that never change put right: enough to read what else is there."""
    return MAGIC + b"\x10\x00\x02\x02\x00\x40\x20\x20" + head[24:44] + bytes((0, 0, 0, 4)) + head[48:56] + (
        bytes((0, 0, 0, 1)) + head[60:]
    )  # fmt: skip


def claimed(path: Path) -> int:
    """How many pages the log must hold that are not in the database yet, by SQLite's own notes beside it. After a kill
    they are true; where there are none, or they are of another log, nothing is claimed."""
    try:
        notes = path.with_name(f"{path.name}-shm").read_bytes()[:128]
    except OSError:
        return 0
    first, second = notes[:_SHM_HEADER], notes[_SHM_HEADER : 2 * _SHM_HEADER]
    if len(notes) < 128 or first != second or not first[12] or _checksum(first[:40]) != first[40:48]:
        return 0
    done = struct.unpack_from("=I", notes, _BACKFILLED)[0]
    frames = struct.unpack_from("=I", first, 16)[0]
    log = _log_header(path.with_name(f"{path.name}-wal"))
    of_another = log is not None and log[16:24] != first[32:40]
    return 0 if of_another or done >= frames else frames


def _log_header(log: Path) -> bytes | None:
    """None if it is no header any more."""
    try:
        with log.open("rb") as file:
            head = file.read(32)
    except OSError:
        return None
    return head if len(head) == 32 and head[:3] == b"\x37\x7f\x06" else None


def _checksum(data: bytes) -> bytes:
    """As SQLite computes it, in the machine's own order of bytes."""
    a = b = 0
    for x, y in struct.iter_unpack("=II", data):
        a = (a + x + b) & 0xFFFFFFFF
        b = (b + y + a) & 0xFFFFFFFF
    return struct.pack("=II", a, b)


def check_log(conn: apsw.Connection, claim: int) -> None:
    """What the notes claimed must have been found in the log."""
    cursor = conn.cursor()
    cursor.row_trace = None
    ((_, frames, _),) = cursor.execute("pragma wal_checkpoint(noop)")
    if frames < claim:
        raise Damaged(f"the log has lost {claim - max(frames, 0)} of {claim} pages", hint=_HINT)
