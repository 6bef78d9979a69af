"""`make bench`: measure the spine against its goals. Exit 1 if one is missed.

    python bench/run.py [--only capture|giant|start|drain|idle] [--quick] [--out FOLDER]

A whole run leaves `results/spine.json` and `results/spine.md`; a part of one or a quick one only with `--out`, so that
it never replaces a whole one by accident.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

import capture
import drain
import figures
import giant
import idle
import start
from figures import Figure, at_most
from lab import Broken, Lab

PARTS = {
    "capture": capture.measure,
    "giant": giant.measure,
    "start": start.measure,
    "drain": drain.measure,
    "idle": idle.measure,
}
RESULTS = Path(__file__).with_name("results")


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that our processes are ended on the way out
    parts = [options.only] if options.only else list(PARTS)
    found, setting = _measure(parts, quick=options.quick)
    print(figures.as_text(found))
    whole = not options.only and not options.quick
    if folder := options.out or (RESULTS if whole else None):
        told = {**setting, "quick": options.quick, "parts": ", ".join(parts)}
        figures.write(folder / "spine", "Capture, session start and throughput", found, told)
    missed = [figure for figure in found if figure.missed]
    for figure in missed:
        print(f"missed: {figure.name} is {figure.value:.2f} {figure.unit}, goal {figure.goal}", file=sys.stderr)
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the spine against its goals.")
    parser.add_argument("--only", choices=PARTS, help="one part instead of all")
    parser.add_argument("--quick", action="store_true", help="fewer samples: enough to see what is broken")
    parser.add_argument("--out", type=Path, help="write the results there")
    return parser.parse_args()


def _measure(parts: list[str], *, quick: bool) -> tuple[list[Figure], dict[str, Any]]:
    found: list[Figure] = []
    with Lab() as lab:
        setting = figures.setting(lab.root)
        for name in parts:
            print(f"{name} …", file=sys.stderr, flush=True)
            found += PARTS[name](lab, quick=quick)
    found.append(Figure("processes left behind", lab.left, "", 1, at_most(0)))
    return found, setting


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Broken as problem:
        sys.exit(f"could not be measured: {problem}")
