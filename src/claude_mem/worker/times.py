"""Response times: the last thousand of each trigger, kept in memory and reported as percentiles."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from functools import wraps
from typing import Any

from starlette.requests import Request

from claude_mem.worker.requests import Handler
from claude_mem.worker.service import Service

KEPT = 1_000


def percentiles(milliseconds: Iterable[float]) -> dict[str, float | int | None]:
    """Return p50, p95 and p99 by nearest rank, so that each is a measured value."""
    ordered = sorted(milliseconds)
    ranks = {name: -(-len(ordered) * share // 100) - 1 for name, share in (("p50", 50), ("p95", 95), ("p99", 99))}
    return {"count": len(ordered), **{name: round(ordered[at], 2) if ordered else None for name, at in ranks.items()}}


def measured(moment: str, handler: Handler) -> Handler:
    """Wrap a handler to record its response time. Requests that fail are not counted."""

    @wraps(handler)
    async def timed(service: Service, request: Request) -> Any:
        started = time.perf_counter()
        answer = await handler(service, request)
        samples = service.response_times.setdefault(moment, deque(maxlen=KEPT))
        samples.append((time.perf_counter() - started) * 1000)
        return answer

    return timed
