"""SECURITY.md names tests: they exist, so that the page can't promise what nobody shows."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "SECURITY.md").read_text("utf-8"))
    assert len(named) >= 20
    missing = [(file, name) for file, name in named if f"def {name}(" not in (ROOT / file).read_text("utf-8")]
    assert missing == []
