"""Routes to apply the current secret rules to everything already stored."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from claude_mem.worker.requests import body_of
from claude_mem.worker.service import Service


async def ask(service: Service, request: Request) -> Any:
    """Apply the current secret rules to everything stored: `{dry_run?}` → its progress. Only one runs at a time."""
    dry_run = (await body_of(request)).get("dry_run") is True
    service.scrubber.start(dry_run=dry_run, after=service.runner.wake.set)
    return service.scrubber.told()


async def show(service: Service, _: Request) -> Any:
    """Progress of scrubbing: `doing`, `done` of `total`, rows `changed` by table, `kept` copies, whether `busy`."""
    return service.scrubber.told()
