"""Every exception the package raises deliberately.

ClaudeMemError
├── InvalidRequest          the request itself is invalid (exit 2, HTTP 400)
│   ├── InvalidSetting      a setting has an invalid value
│   └── RequestTooLarge     the request exceeds a size limit (HTTP 413)
├── OperationFailed         the request is valid but cannot be carried out now (exit 1, HTTP 409)
│   ├── WorkerNotRunning    no worker answers
│   ├── UnknownAnswer       the worker runs another version, whose answer this one cannot read
│   ├── DataDirLocked       another worker holds the lock of this data directory
│   ├── DatabaseTooNew      the database was written by a newer version
│   ├── DatabaseDamaged     the database is corrupt; the worker moves it to quarantine and restores a backup
│   ├── DatabaseUnavailable the team server's database does not answer, or accepts no writes (HTTP 503)
│   ├── LogConflict         entries do not continue a device's log, or differ from those in it (HTTP 409)
│   ├── ManifestConflict    a space's manifest is not the one that was read (HTTP 412)
│   ├── NotPermitted        the member's role, or the device, does not allow the request (HTTP 403)
│   ├── LogGap              entries of a device's log are missing before those that were to be appended
│   └── LogDiffers          a device's log has another entry under an index that is known
├── NotFound                no such row (exit 1, HTTP 404)
├── UnreadableEvent         a spool file that cannot be ingested; it is set aside and counted
│   └── IgnoredEvent        a spool file without content worth storing; it is filtered and counted
└── LeaseLost               another worker has claimed the job in the meantime; the caller must write nothing
"""

from __future__ import annotations


class ClaudeMemError(Exception):
    """Base class. `str(error)` says what happened; `hint` says what to do next."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class InvalidRequest(ClaudeMemError):
    pass


class InvalidSetting(InvalidRequest):
    """`name` is the setting concerned, or empty if the problem is the file as a whole."""

    def __init__(self, message: str, *, hint: str = "", name: str = "") -> None:
        super().__init__(message, hint=hint)
        self.name = name


class RequestTooLarge(InvalidRequest):
    pass


class OperationFailed(ClaudeMemError):
    pass


class WorkerNotRunning(OperationFailed):
    pass


class UnknownAnswer(OperationFailed):
    pass


class DataDirLocked(OperationFailed):
    pass


class DatabaseTooNew(OperationFailed):
    pass


class DatabaseDamaged(OperationFailed):
    pass


class DatabaseUnavailable(OperationFailed):
    def __init__(self, message: str, *, is_read_only: bool = False) -> None:
        super().__init__(message, hint="try again in a few seconds")
        self.is_read_only = is_read_only


class LogConflict(OperationFailed):
    """`head` is the index of the last entry that is stored."""

    def __init__(self, message: str, *, head: int) -> None:
        super().__init__(message)
        self.head = head


class ManifestConflict(OperationFailed):
    pass


class NotPermitted(OperationFailed):
    pass


class LogGap(OperationFailed):
    """`head` is the index of the last entry that is stored."""

    def __init__(self, message: str, *, head: int) -> None:
        super().__init__(message, hint="exchange the space again; the missing entries are read first")
        self.head = head


class LogDiffers(OperationFailed):
    """`idx` is the index of the first entry that differs."""

    def __init__(self, message: str, *, idx: int) -> None:
        super().__init__(message, hint="two machines may write with the same device id, or the log is damaged")
        self.idx = idx


class NotFound(ClaudeMemError):
    pass


class UnreadableEvent(ClaudeMemError):
    """`reason` is one of a few fixed words, so that occurrences can be counted by reason."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


class IgnoredEvent(UnreadableEvent):
    def __init__(self) -> None:
        super().__init__("noise")


class LeaseLost(ClaudeMemError):
    pass
