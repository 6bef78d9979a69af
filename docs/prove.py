"""`make proof` has measured; this writes what it found into `proof.md`: every promise, its figure, how to see it again."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
FOUND = DOCS.parent / "build" / "proof"
# The suites in the order of what they promise; one that is not named here comes last, under its own name.
TITLES = {
    "kills": "Nothing is lost and nothing is twice, whoever is killed when",
    "chores": "Killed at its chores: index, context, checkpoint, backup, forgetting",
    "powerloss": "A power cut loses nothing that was acknowledged",
    "io_errors": "A disk that fails, fills up or goes read-only",
    "processes": "One worker, whatever else lies around; when it stops, everything stops",
    "clocks": "Clocks that jump",
    "damage": "A damaged database is noticed, set aside and replaced",
    "keeping": "Backups that are proven, and how long things are kept",
    "soak": "A heavy day in ten minutes",
    "port": "The port: who is let in",
    "wire": "The port: odd requests, and the five clients beside them",
    "box": "Other users of the machine",
    "schema": "The API keeps to what it says of itself",
    "fuzz": "Inputs made up by the thousand",
    "fuzz_atheris": "Inputs found by coverage",
    "secrets": "Secrets",
    "scrub": "Secrets that were stored before the rules knew them",
    "withheld": "Files whose content is never kept",
    "poison": "What came from outside gives no orders",
    "forget": "Forgotten means gone",
    "audit": "What was done is on record",
    "egress": "Whom we talk to",
    "viewer": "The viewer",
}
NOT_COVERED = """\
- The machine it ran on: two cores of a virtual machine with a fast virtual disk. Times depend on it; counts do not.
- Power loss is simulated at the level of files (only what was synced survives, sectors torn); whether a drive honours a
  sync is not ours to test. macOS and Windows were not run.
- No real model was in the loop of the poisoning suite: an obedient scripted one is the worst case for what is kept, not
  for what an agent then does with it.
- What was sent to a provider can't be recalled; file-system snapshots and copies of your own are not ours.
- Twenty-four hours of soaking are pressed into ten minutes; leaks that need a calendar to show would not show."""


def main() -> int:
    found = {path.stem: _records(path) for path in sorted(FOUND.glob("*.json"))}
    if not found:
        sys.exit(f"{FOUND} holds no figures; `make proof` makes them")
    (DOCS / "proof.md").write_text("\n".join(_page(found)) + "\n", "utf-8")
    missed = sum(not record["ok"] for records in found.values() for record in records)
    sys.stdout.write(f"docs/proof.md: {sum(map(len, found.values()))} figures, {missed} missed\n")
    return int(missed > 0)


def _records(path: Path) -> list[dict[str, Any]]:
    """The last of each name: a suite may have been run again."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    return list({record["name"]: record for record in lines}.values())


def _page(found: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    every = [record for records in found.values() for record in records]
    missed = [record for record in every if not record["ok"]]
    dates = sorted({record["date"] for record in every})
    yield "# Proof"
    yield ""
    yield "What is promised, and what was measured. Written by `make proof`, which runs every suite named here and fails if a"
    yield f"figure is missed. {len(every)} figures, {len(missed)} missed; measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))}."
    for suite in sorted(found, key=_order):
        yield f"\n## {TITLES.get(suite, suite.replace('_', ' '))}\n"
        yield "| what | goal | measured | |\n|---|---|--:|---|"
        for record in found[suite]:
            yield f"| {_cell(record['name'])} | {_cell(record['goal'])} | {_measured(record)} | {_verdict(record)} |"
        for command in dict.fromkeys(record["command"] for record in found[suite]):
            yield f"\n`{command}`"
    yield f"\n## What is not covered\n\n{NOT_COVERED}"


def _order(suite: str) -> tuple[int, str]:
    return (list(TITLES).index(suite) if suite in TITLES else len(TITLES), suite)


def _measured(record: dict[str, Any]) -> str:
    value = record["measured"]
    shown = f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else _cell(value)
    return f"{shown} {_cell(record['unit'])}".strip()


def _verdict(record: dict[str, Any]) -> str:
    return " ".join(part for part in ("" if record["ok"] else "**missed**", _cell(record["note"])) if part)


def _cell(text: Any) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
