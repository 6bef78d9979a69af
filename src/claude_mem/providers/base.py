"""What a compressor is. It knows nothing of our tables."""

from __future__ import annotations

from typing import Protocol

from claude_mem.records import Digest, Turn


class Compressor(Protocol):
    async def compress(self, turn: Turn) -> Digest:
        """What the turn did and what is worth keeping of it. Raises if it can't; the job is then tried again."""
        ...
