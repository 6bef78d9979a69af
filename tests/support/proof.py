"""Figures that a suite measured, for `make proof`: one JSON line each in `<folder>/<suite>.json`.

The folder is named by CLAUDE_MEM_PROOF. Without it nothing is written: a figure is a by-product of a test. Which goal a
figure is for is said by the goal's name; `docs/goals.toml` has them all.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = os.environ.get("CLAUDE_MEM_PROOF", "")  # read once: no test sees a variable of ours


def long() -> bool:
    """Is this the long version that `make proof` runs?"""
    return bool(FOLDER)


def record(
    name: str,
    *,
    of: str,
    goal: str,
    measured: Any,
    ok: bool,
    unit: str = "",
    command: str = "",
    note: str = "",
    tally: bool = False,
) -> None:
    """`of`: the goals it speaks for, "R1 R2". `tally`: figures of this name are added up, one test's to the next's."""
    if not FOLDER:
        return
    suite = sys._getframe(1).f_globals["__name__"].rpartition(".")[2].removeprefix("test_")
    line = {
        "name": name, "of": of.split(), "goal": goal, "measured": measured, "unit": unit, "ok": ok, "note": note,
        "command": command or "make proof", "tally": tally, "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }  # fmt: skip
    Path(FOLDER).mkdir(parents=True, exist_ok=True)
    with (Path(FOLDER) / f"{suite}.json").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
