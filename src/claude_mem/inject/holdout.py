"""Which moments stay silent, so that the effect of memory can be measured on this machine (the setting `holdout`).

The choice is random but stable: a keyed hash of the session and the moment, so that a repeated request of a hook gets
the same answer, and neither the clock nor a restart changes it. What the user wrote, pinned or approved is said in any
case, and so is a line that says that a rule of the user forbids a command: silence there could do harm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

KeyedHash = Callable[..., str]
_BITS = 52  # of the hash: as many as a float holds exactly


@dataclass(frozen=True, slots=True)
class Holdout:
    """The setting, and the hash that decides."""

    share: float
    keyed_hash: KeyedHash

    def is_silent(self, host: str, content_session_id: str, trigger: str, moment: str) -> bool:
        """Return whether a moment stays silent. `moment` identifies it among those of its trigger in the session."""
        if not self.share:
            return False
        digest = self.keyed_hash("holdout", host, content_session_id, trigger, moment)
        return int(digest[: _BITS // 4], 16) < self.share * (1 << _BITS)
