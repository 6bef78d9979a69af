"""How many generated inputs a test takes: a fifth of them at every change, all with `make test-long` and `make proof`."""

from __future__ import annotations

import os

from tests.support import proof

LONG = bool(os.environ.get("CLAUDE_MEM_LONG")) or proof.long()


def many(count: int) -> int:
    return count if LONG else count // 5
