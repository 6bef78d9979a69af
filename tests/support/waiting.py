"""Waiting for events, with one limit for all tests. Only a hang reaches it: a busy machine must not.

`SECONDS` is also the timeout of every program and connection that a test starts. pytest's own timeout (pyproject.toml)
is longer, so that a wait in vain is reported by what was awaited.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from claude_mem import client
from claude_mem.cli import projects, worker
from claude_mem.system import process

SECONDS = 120.0
STEP_SECONDS = 0.01
T = TypeVar("T")


def wait_for(
    condition: Callable[[], T | None], what: str | Callable[[], object] = "", *, step: float = STEP_SECONDS
) -> T:
    """Poll until the condition is true and return its value. `what` tells, in the failure, what never happened."""
    deadline = time.monotonic() + SECONDS
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(_in_vain(value, what))
        time.sleep(step)
    return value


async def until(condition: Callable[[], object], what: str | Callable[[], object] = "") -> None:
    """`wait_for` inside an event loop, which goes on meanwhile."""
    deadline = time.monotonic() + SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, _in_vain(value, what)
        await asyncio.sleep(STEP_SECONDS)


def raise_limits() -> None:
    """Let this process's commands and clients wait for a worker as long as tests do: people have 10 s, and busy machines
    need more. The limits that users meet stay what they are; only defaults of this process are changed."""
    for function in (process.ensure_worker, client.Client.__init__, client.Client.of):
        defaults: dict[str, Any] = function.__kwdefaults__ or {}
        assert defaults["seconds"] <= SECONDS
        defaults["seconds"] = SECONDS
    worker.LINE_SECONDS = projects.RESTART_SECONDS = SECONDS


def _in_vain(value: object, what: str | Callable[[], object]) -> str:
    reason = (what() if callable(what) else what) or f"the condition is still {value!r}"
    return f"waited {SECONDS:g} s in vain: {reason}"
