"""Detection of a damaged database: before it is opened, and by the errors it raises.

Busy and locked databases and full or failing disks are separate problems and are never treated as damage.
"""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import apsw

from claude_mem.domain.errors import DatabaseDamaged

SQLITE_MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
RESERVE_FILE_NAME = "ballast"
# Name prefixes of backups: made by the user, made daily by the worker, made before a migration or a restore.
BACKUP_PREFIXES = ("memory-", "daily-", "before-")
AUDIT_FILES, TOMBSTONE_FILE = "audit*.jsonl", "forgotten.jsonl"  # files that outlive the database
# Errors that mean damage. We write only valid UTF-8, so text that cannot be decoded is damaged.
DAMAGE_ERRORS = (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError)
_TRANSIENT_ERRORS = (
    apsw.FullError, apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError,
)  # fmt: skip
_TRANSIENT_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
_HINT = "the worker moves it to the quarantine and restores the newest good backup"
_PAGE_SIZES = tuple(512 << n for n in range(7))
_SHM_HEADER_BYTES, _SHM_CHECKPOINTED_OFFSET = 48, 96  # layout of SQLite's -shm file


def is_database_damage(error: BaseException | None) -> bool:
    """Return whether the error, its cause or any error of its group means damage."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_database_damage(inner) for inner in error.exceptions)
    if error is None:
        return False
    return isinstance(error, (*DAMAGE_ERRORS, DatabaseDamaged)) or is_database_damage(error.__cause__)


def is_transient_disk_error(error: BaseException) -> bool:
    """Return whether the error is a disk or locking problem that may pass. None of these means damage."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_transient_disk_error(inner) for inner in error.exceptions)
    return isinstance(error, _TRANSIENT_ERRORS) or (isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNOS)


# --- the file, before it is opened -----------------------------------------------------------------------------------


def check_before_opening(path: Path, *, backups: Path) -> None:
    """Raise `DatabaseDamaged` if the file can't be our database.

    An empty or missing file is taken as new, unless other files show that there was a memory.
    """
    if path.is_dir():
        raise DatabaseDamaged(f"{path} is a folder", hint=_HINT)
    try:
        with path.open("rb") as file:
            head = file.read(HEADER_BYTES)
    except FileNotFoundError:
        if evidence := describe_memory_traces(path, backups=backups):
            raise DatabaseDamaged(f"{path} is missing, but there are: {evidence}", hint=_HINT) from None
        return
    if not head:
        evidence = describe_memory_traces(path, backups=backups)
        if evidence or path.with_name(RESERVE_FILE_NAME).exists():
            raise DatabaseDamaged(f"{path} is empty{f', but there are: {evidence}' if evidence else ''}", hint=_HINT)
        return
    if not _is_valid_header(head):
        raise DatabaseDamaged(f"{path} has no valid database header", hint=_HINT)


def describe_memory_traces(path: Path, *, backups: Path) -> str:
    """Describe the files that show that there was a memory; "" if there are none, so a missing database is new."""
    wal = path.with_name(f"{path.name}-wal")
    evidence = [wal.name] if wal.is_file() and wal.stat().st_size else []
    counts = {
        "backup": sum(1 for prefix in BACKUP_PREFIXES for _ in backups.glob(f"{prefix}*.db")),
        "audit record": sum(_count_lines(file) for file in path.parent.glob(AUDIT_FILES)),
        "tombstone": _count_lines(path.with_name(TOMBSTONE_FILE)),
    }
    evidence += [f"{count:,} {noun}{'s' if count > 1 else ''}" for noun, count in counts.items() if count]
    return ", ".join(evidence)


def _count_lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n") if path.is_file() else 0
    except OSError:
        return 0


def _is_valid_header(head: bytes) -> bool:
    """Check the header fields that SQLite sets once, and those without which it would refuse to open or write."""
    if len(head) < HEADER_BYTES or not head.startswith(SQLITE_MAGIC):
        return False
    page = int.from_bytes(head[16:18], "big")
    fixed = head[18] in (1, 2) and head[19] in (1, 2) and head[21:24] == b"\x40\x20\x20" and not head[20]
    schema_format, encoding = int.from_bytes(head[44:48], "big"), int.from_bytes(head[56:60], "big")
    return fixed and (page == 1 or page in _PAGE_SIZES) and schema_format <= 4 and encoding <= 1


def repair_header_bytes(head: bytes) -> bytes:
    """Return the header with its constant fields repaired, which is enough to read the rest of the file."""
    return SQLITE_MAGIC + b"\x10\x00\x02\x02\x00\x40\x20\x20" + head[24:44] + bytes((0, 0, 0, 4)) + head[48:56] + (
        bytes((0, 0, 0, 1)) + head[60:]
    )  # fmt: skip


# --- the WAL ---------------------------------------------------------------------------------------------------------


def read_claimed_wal_frames(path: Path) -> int:
    """Return how many frames the WAL must contain according to SQLite's -shm file, if not all are checkpointed yet.

    The -shm file is accurate after a crash. Return 0 if it is missing or belongs to another WAL.
    """
    try:
        shm = path.with_name(f"{path.name}-shm").read_bytes()[:128]
    except OSError:
        return 0
    first, second = shm[:_SHM_HEADER_BYTES], shm[_SHM_HEADER_BYTES : 2 * _SHM_HEADER_BYTES]
    if len(shm) < 128 or first != second or not first[12] or _wal_checksum(first[:40]) != first[40:48]:
        return 0
    checkpointed = struct.unpack_from("=I", shm, _SHM_CHECKPOINTED_OFFSET)[0]
    frames = struct.unpack_from("=I", first, 16)[0]
    wal_header = _read_wal_header(path.with_name(f"{path.name}-wal"))
    is_other_wal = wal_header is not None and wal_header[16:24] != first[32:40]
    return 0 if is_other_wal or checkpointed >= frames else frames


def _read_wal_header(wal: Path) -> bytes | None:
    """Return the header of the WAL, or None if it is missing or invalid."""
    try:
        with wal.open("rb") as file:
            head = file.read(32)
    except OSError:
        return None
    return head if len(head) == 32 and head[:3] == b"\x37\x7f\x06" else None


def _wal_checksum(data: bytes) -> bytes:
    """Compute SQLite's WAL checksum, in native byte order."""
    a = b = 0
    for x, y in struct.iter_unpack("=II", data):
        a = (a + x + b) & 0xFFFFFFFF
        b = (b + y + a) & 0xFFFFFFFF
    return struct.pack("=II", a, b)


def check_wal_frames(conn: apsw.Connection, claimed_frames: int) -> None:
    """Raise `DatabaseDamaged` if the WAL has fewer frames than the -shm file claimed."""
    cursor = conn.cursor()
    cursor.row_trace = None
    ((_, frames, _),) = cursor.execute("pragma wal_checkpoint(noop)")
    if frames < claimed_frames:
        raise DatabaseDamaged(
            f"the WAL has lost {claimed_frames - max(frames, 0)} of {claimed_frames} pages", hint=_HINT
        )
