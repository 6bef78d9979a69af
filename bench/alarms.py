"""How much of ordinary work is held back, on the real sessions of two projects.

    python bench/alarms.py [--list] [--data FOLDER] [--out FOLDER]

Each project is back-filled into a data folder of its own by a real worker; then its memories are counted: how many wait
in the quarantine, on whose account (`external`, `suspect`) and for which reason. Nobody attacked these sessions, so
every `suspect` record is a false alarm. The sessions are not part of this project (`CLAUDE_MEM_BENCH_DATA`, or
`../shared/data`); where they are absent, this says so and measures nothing. `--list` prints every held record, for
reading: the words are other people's, so they are never written to the results.
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import figures
from figures import Figure, at_most
from lab import Broken, Home, Lab, wait_until

from claude_mem.client import Client
from claude_mem.privacy.trust import SUSPECT, TRUSTED

RESULTS = Path(__file__).with_name("results")
DATA = Path(os.environ.get("CLAUDE_MEM_BENCH_DATA", Path(__file__).parents[2] / "shared" / "data"))
PROJECTS = {"cli": "sessions", "evaluator": "evaluator"}  # the project's name and its folder of the data
MOST_HELD_PERCENT = 2
# The same measured with 0.1.0, so that the results show what has changed.
BEFORE = {
    "cli": {"called an attack": (21, 1662), "observations held back": (10.22, 802), "summaries held back": (0, 860)},
    "evaluator": {
        "called an attack": (3, 483),
        "observations held back": (2.57, 272),
        "summaries held back": (0.47, 211),
    },
}  # each with the number of memories it was counted among
BACKFILL_SECONDS = 900.0
_TABLES = {
    "observations": "select trust, why, title from observations where not forgotten order by id",
    "summaries": "select trust, why, request from session_summaries order by id",
}


@dataclass(frozen=True, slots=True)
class Memory:
    kind: str
    trust: str
    why: str
    title: str

    @property
    def is_held(self) -> bool:
        return self.trust not in TRUSTED


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that our processes are ended on the way out
    measured: list[Figure] = []
    with Lab() as lab:
        setting = figures.setting(lab.root)
        for project, folder in PROJECTS.items():
            files = sorted((options.data / folder / "transcripts").glob("*.jsonl.gz"))
            if not files:
                print(f"no transcripts in {options.data.name}/{folder}: {project} is not measured", file=sys.stderr)
                continue
            memories = _backfilled(lab.home(project), files)
            measured += _figures(project, memories)
            if options.list:
                print("\n".join(_listing(project, memories)))
    print(figures.as_text(measured))
    whole = all(any(figure.name.startswith(f"{project}:") for figure in measured) for project in PROJECTS)
    if target := options.out or (RESULTS if whole else None):
        figures.write(target / "alarms", "Ordinary records held for approval", measured, setting)
    return int(any(figure.missed for figure in measured))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Count what is held back of ordinary work.")
    parser.add_argument("--list", action="store_true", help="print each held record: trust, reason, title")
    parser.add_argument("--data", type=Path, default=DATA, help="where the real sessions are")
    parser.add_argument("--out", type=Path, help="write the results there")
    return parser.parse_args()


def _backfilled(home: Home, files: Sequence[Path]) -> list[Memory]:
    """The memories that a back-fill of these transcripts leaves."""
    home.start()
    try:
        client = Client.of(home.data, seconds=60)
        client.post("/api/backfill", {"paths": [str(path) for path in files]})
        wait_until(lambda: not client.get("/api/backfill")["busy"], BACKFILL_SECONDS, "the back-fill does not end")
        return list(_memories(home.data / "claude-mem.db"))
    finally:
        home.end()


def _memories(database: Path) -> Iterator[Memory]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as conn:
        for kind, sql in _TABLES.items():
            for trust, why, title in conn.execute(sql):
                yield Memory(kind, trust, why or "", title or "")


# --- counting --------------------------------------------------------------------------------------------------------


def _figures(project: str, memories: Sequence[Memory]) -> list[Figure]:
    held = [memory for memory in memories if memory.is_held]
    suspect = sum(memory.trust == SUSPECT for memory in held)
    reasons = Counter(f"{memory.trust}, {memory.why}" for memory in held)
    measured = [
        Figure(f"{project}: called an attack", suspect, "memories", len(memories), at_most(0)),
        *(_held(project, kind, memories) for kind in _TABLES),
    ]
    return [
        *measured,
        *(
            Figure(f"{project}, before (0.1.0): {name}", value, figure.unit, samples)
            for figure, (name, (value, samples)) in zip(measured, BEFORE[project].items(), strict=True)
        ),
        *(
            Figure(f"{project}: held: {reason}", count, "memories", len(held))
            for reason, count in reasons.most_common()
        ),
    ]


def _held(project: str, kind: str, memories: Sequence[Memory]) -> Figure:
    held = [memory.is_held for memory in memories if memory.kind == kind]
    return Figure(
        f"{project}: {kind} held back", 100 * sum(held) / (len(held) or 1), "%", len(held), at_most(MOST_HELD_PERCENT)
    )


def _listing(project: str, memories: Sequence[Memory]) -> Iterator[str]:
    for memory in sorted((memory for memory in memories if memory.is_held), key=lambda memory: memory.trust):
        yield f"{project}\t{memory.kind}\t{memory.trust}\t{memory.why}\t{memory.title}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Broken as problem:
        sys.exit(f"could not be measured: {problem}")
