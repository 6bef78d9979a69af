"""How many generated inputs a test takes: a fifth of them at every change, all with `make test-long`."""

from __future__ import annotations

import os

LONG = bool(os.environ.get("CLAUDE_MEM_LONG"))


def many(count: int) -> int:
    return count if LONG else count // 5
