"""What can go wrong when a space is exchanged. Each error names the machine concerned, and its hint says what to do.

SpaceError
├── SpaceUnavailable    the transport can't be reached now; this is normal
├── SpaceLost           the transport answers, but has nothing of this space
├── Conflict            the transport holds something else than the caller assumed
├── WrongKey            the key does not fit; `machine` has the right one
├── Revoked             this machine was removed from the space
├── NewerFormat         written by a newer version of claude-mem
├── ForeignSpace        belongs to another space
├── Forged              not written by the machine in whose log it is
├── Reordered           a genuine entry at another place: moved, repeated, or one before it was removed
└── TwoWriters          two machines write the log of one device
"""

from __future__ import annotations

import msgspec

from claude_mem.domain.errors import OperationFailed


class SpaceError(OperationFailed):
    """`machine` is the name of the machine concerned, "" if it is unknown."""

    def __init__(self, message: str, *, hint: str = "", machine: str = "") -> None:
        super().__init__(message, hint=hint)
        self.machine = machine


class SpaceUnavailable(SpaceError):
    pass


class SpaceLost(SpaceError):
    pass


class Conflict(SpaceError):
    """`head` is the index of the log's last entry at the transport."""

    def __init__(self, message: str, *, head: int = 0) -> None:
        super().__init__(message, hint="the next exchange tries again")
        self.head = head


class WrongKey(SpaceError):
    pass


class Revoked(SpaceError):
    pass


class NewerFormat(SpaceError):
    pass


class ForeignSpace(SpaceError):
    pass


class Forged(SpaceError):
    pass


class Reordered(SpaceError):
    pass


class TwoWriters(SpaceError):
    pass


class Problem(msgspec.Struct, frozen=True):
    """Something that a person should know. `code` is the error's class, `machine` the name of the one concerned."""

    code: str
    message: str
    hint: str = ""
    machine: str = ""
    at: int = 0
