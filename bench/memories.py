"""What the local writer's memories are worth, on real turns.

Two kinds of figures. From all sessions of both projects: how long a turn takes, and how much of what a transcript itself
proves (commits, edited files) its records carry. From the 100 judged turns (`memories/dev.jsonl`): the proxies of
`score_memories.py`, each turn decided by weights that were learned without its session. The verdicts of blind judges and
their protocol are in `results/judges.md` and `judges.json`, and are printed along. The data is not part of this project;
without it this says so and measures nothing.
"""

from __future__ import annotations

import importlib.util
import json
import re
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import train_writer
import turns

from claude_mem.digest import ranking
from claude_mem.digest.writer import compose_digest
from claude_mem.domain.records import Digest, ToolUsed, Turn
from claude_mem.domain.text import normalize_title

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SCORER = turns.DATA.parent / "tools" / "score_memories.py"
GOALS = {"title": 0.50, "facts": 0.82, "type": 0.80, "named": 0.85, "missed": 0.03, "open": 0.75}
P95_MS = 10
COMMITTED = re.compile(r"^\[\S+(?: \(root-commit\))? [0-9a-f]{7,40}\] (.+)$", re.M)


def scorer() -> ModuleType | None:
    if not SCORER.is_file():
        return None
    spec = importlib.util.spec_from_file_location("score_memories", SCORER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_scored(made: Digest) -> dict[str, Any]:
    """Return a digest as the scorer reads it. The closing message is kept for good, so it counts."""
    assert made.summary is not None
    fields = ("request", "investigated", "learned", "completed", "next_steps", "notes", "closing")
    return {
        "observations": [
            {
                "type": str(draft.type),
                "title": draft.title,
                "subtitle": draft.subtitle,
                "narrative": draft.narrative,
                "facts": [fact.text for fact in draft.facts],
            }
            for draft in made.observations
        ],
        "summary": {name: getattr(made.summary, name) for name in fields},
    }


def proxies(score: ModuleType) -> dict[str, float]:
    """Return the proxies for the judged turns, cross-validated by session."""
    rows = train_writer.load()
    fold = train_writer.folds(rows)
    known = dict(turns.sessions("sessions"))
    judged = [json.loads(line) for line in (turns.DATA / "memories" / "dev.jsonl").read_text("utf-8").splitlines()]
    scores: list[dict[str, float | None]] = []
    for number in range(train_writer.FOLDS):
        weights = train_writer.learn([row for row in rows if fold[row.session] != number])
        ranking.weights = lambda weights=weights: weights  # type: ignore[assignment]
        for reference in judged:
            if fold.get(reference["session"], 0) == number:  # a held-out session: no weights were learned from it
                made = compose_digest(known[reference["session"]][reference["number"] - 1])
                scores.append(score.score(reference, as_scored(made)))
    return {name: score.mean([row[name] for row in scores]) for name in (*GOALS, "extra")}


def measure(project: str) -> dict[str, float]:
    """Return what every turn of a project shows by itself."""
    times: list[float] = []
    carried: Counter[str] = Counter()
    all_: Counter[str] = Counter()
    records = worked = repeats = 0
    for _, session in turns.sessions(project):
        seen: set[str] = set()
        for turn in session:
            begin = time.process_time()
            made = compose_digest(turn)
            times.append((time.process_time() - begin) * 1000)
            records += len(made.observations)
            worked += any(isinstance(body, ToolUsed) for body in turn.bodies)
            names = {normalize_title(draft.title) for draft in made.observations}
            repeats += len(names & seen)
            seen |= names
            _count(turn, made, carried, all_)
    slow = sorted(times)
    return {
        "turns": len(times),
        "records": records,
        "milliseconds a turn, p50": statistics.median(slow),
        "milliseconds a turn, p95": slow[int(len(slow) * 0.95)],
        "commits whose subject is kept": carried["commit"] / max(1, all_["commit"]),
        "edited files named": carried["file"] / max(1, all_["file"]),
        "records that repeat a title of their session": repeats / max(1, records),
    }


def _count(turn: Turn, made: Digest, carried: Counter[str], all_: Counter[str]) -> None:
    text = json.dumps(as_scored(made), ensure_ascii=False)
    words = set(re.findall(r"\w+", text.lower()))
    files = {path for draft in made.observations for path in draft.files_modified} | set(
        made.summary.files_edited if made.summary else ()
    )
    for body in turn.bodies:
        if isinstance(body, ToolUsed) and not body.failed:
            output = body.output.get("stdout", "") if isinstance(body.output, dict) else ""
            for subject in COMMITTED.findall(str(output)) if body.name == "Bash" else ():
                all_["commit"] += 1
                carried["commit"] += set(re.findall(r"\w+", subject.lower())) <= words
            if body.name in ("Edit", "Write", "MultiEdit"):
                all_["file"] += 1
                carried["file"] += str(body.input.get("file_path", "")).removeprefix(f"{turns.ROOT}/") in files


def page(figures: dict[str, dict[str, float]], found: dict[str, float]) -> list[str]:
    lines = [
        "# Quality of memories",
        "",
        "Written by `make bench`, on the real sessions of two projects; local writer only, no model.",
        "",
    ]
    if found:
        lines += [
            "## Proxies on the judged turns, cross-validated by session",
            "",
            "| figure | value | goal |",
            "|---|--:|---|",
        ]
        lines += [f"| {name} | {value:.3f} | {_goal(name)} |" for name, value in found.items()]
    lines += ["", "## All turns", "", "| figure | " + " | ".join(figures) + " |", "|---|" + "--:|" * len(figures)]
    for name in next(iter(figures.values())):
        lines.append(f"| {name} | " + " | ".join(f"{values[name]:,.3g}" for values in figures.values()) + " |")
    judges = RESULTS / "judges.md"
    return [*lines, "", *judges.read_text("utf-8").splitlines()] if judges.is_file() else lines


def _goal(name: str) -> str:
    return f"{'≤' if name == 'missed' else '≥'} {GOALS[name]}" if name in GOALS else ""


def main() -> int:
    if why := turns.missing():
        print(why)
        return 0
    figures = {project: measure(project) for project in turns.PROJECTS}
    score = scorer()
    found = proxies(score) if score else {}
    lines = page(figures, found)
    (RESULTS / "memories.md").write_text("\n".join(lines) + "\n", "utf-8")
    (RESULTS / "memories.json").write_text(json.dumps({"proxies": found, **figures}, indent=1) + "\n")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
