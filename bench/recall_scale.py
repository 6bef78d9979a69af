"""How long a search takes, and how much room it needs, with many memories. Over HTTP, one request at a time."""

from __future__ import annotations

from pathlib import Path

from lab import Lab


def measure(lab: Lab, model: Path | None) -> list[tuple[str, tuple[float | None, ...]]]:
    return []
