"""Every error we raise on purpose.

MemError
├── Misuse          the caller asked for something that makes no sense (exit 2, HTTP 400)
│   ├── BadSetting  a setting has a value it cannot have
│   └── TooLarge    more than we take at once (HTTP 413)
├── CannotDo        the request is fine, the world is not (exit 1, HTTP 409)
│   ├── WorkerDown  nothing answers
│   ├── WorkerHeld  another worker owns this data directory
│   ├── TooNew      the database was written by a newer version
│   └── Damaged     the database is not what it was: the worker sets it aside and puts a backup in its place
├── NotFound        no such row (exit 1, HTTP 404)
├── BadRecord       a spool file that can't be taken in: it is set aside and counted
│   └── Noise       one that tells nothing: it is filtered and counted
└── LeaseLost       the job was given to someone else meanwhile; write nothing
"""

from __future__ import annotations


class MemError(Exception):
    """`str(error)` says what is wrong; `hint` says what to do next."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Misuse(MemError):
    pass


class BadSetting(Misuse):
    """`name` is the setting's, where it is about one."""

    def __init__(self, message: str, *, hint: str = "", name: str = "") -> None:
        super().__init__(message, hint=hint)
        self.name = name


class TooLarge(Misuse):
    pass


class CannotDo(MemError):
    pass


class WorkerDown(CannotDo):
    pass


class WorkerHeld(CannotDo):
    pass


class TooNew(CannotDo):
    pass


class Damaged(CannotDo):
    pass


class NotFound(MemError):
    pass


class BadRecord(MemError):
    """`reason` is one of a few fixed words, so that they can be counted."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


class Noise(BadRecord):
    def __init__(self) -> None:
        super().__init__("noise")


class LeaseLost(MemError):
    pass
