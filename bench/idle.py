"""What a worker costs while nothing happens: memory and processor."""

from __future__ import annotations

import os
import time
from pathlib import Path

import drain
from figures import Figure, at_most
from lab import Home, Lab, cpu_seconds

IDLE_SECONDS, QUICK_SECONDS = 20, 5
REST_SECONDS = 2.0  # what follows upon the last job is not idleness yet
MEGABYTES, CPU_PERCENT = 80, 0.5


def measure(lab: Lab, *, quick: bool) -> list[Figure]:
    fresh, used = lab.home("idle-fresh"), lab.home("idle-used")
    drain.fill(lab, used, transcripts=True)
    try:
        drain.work_off(used)
        fresh.start()
        time.sleep(REST_SECONDS)
        shares = _cpu_percent([fresh, used], QUICK_SECONDS if quick else IDLE_SECONDS)
        found = _figures("just started", fresh, shares[0])
        return found + _figures(f"after {drain.EVENTS:,} events", used, shares[1])
    finally:
        fresh.end()
        used.end()


def _cpu_percent(homes: list[Home], seconds: float) -> list[float]:
    """Of one core, over the same time for all: each process has its own account."""
    before = [cpu_seconds(home.pid) for home in homes]
    time.sleep(seconds)
    return [100 * (cpu_seconds(home.pid) - used) / seconds for home, used in zip(homes, before, strict=True)]


def _figures(name: str, home: Home, share: float) -> list[Figure]:
    memory = _memory(home.pid)
    return [
        Figure(f"idle worker, {name}: resident", memory["Rss"], "MB", 1, at_most(MEGABYTES)),
        Figure(f"idle worker, {name}: proportional", memory["Pss"], "MB", 1, at_most(MEGABYTES)),
        Figure(f"idle worker, {name}: processor", share, "%", 1, at_most(CPU_PERCENT)),
        Figure(f"idle worker, {name}: threads", len(os.listdir(f"/proc/{home.pid}/task")), "", 1),
        Figure(f"idle worker, {name}: open files", len(os.listdir(f"/proc/{home.pid}/fd")), "", 1),
    ]


def _memory(pid: int) -> dict[str, float]:
    """In MB of a million bytes; the kernel counts in 1,024."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, amount = line.partition(":")
        found[name] = int(amount.split()[0]) * 1024 / 1e6
    return found
