"""What the local compressor's memories are worth, on real sessions, by measures that need no model.

For each turn the transcript itself says what should be there: the subjects of its commits, the files it edited, the
commands that failed and then passed. How much of that do the turn's observations carry? The data is not part of this
project (`CLAUDE_MEM_BENCH_DATA`, or `../shared/data`); without it this says so and measures nothing.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claude_mem.hosts import claude_transcript
from claude_mem.hosts.dialect import Found
from claude_mem.providers.local import digest
from claude_mem.records import Body, Digest, Prompted, ToolUsed, Turn
from claude_mem.text import normal_title

HERE = Path(__file__).parent
DATA = Path(os.environ.get("CLAUDE_MEM_BENCH_DATA", HERE.parent.parent / "shared" / "data"))
ROOT = "/home/dev/cli"  # the folder that all sessions of the data set were renamed to
SAMPLE = HERE.parent / "build" / "memories.md"  # for reading; made of other people's words, so never committed
COMMITTED = re.compile(r"^\[\S+(?: \(root-commit\))? [0-9a-f]{7,40}\] (.+)$", re.M)


@dataclass
class Tally:
    hit: int = 0
    all: int = 0

    def add(self, ok: bool) -> None:
        self.hit += ok
        self.all += 1

    @property
    def share(self) -> float:
        return self.hit / self.all if self.all else 0.0


@dataclass
class Figures:
    commits: Tally = field(default_factory=Tally)
    files: Tally = field(default_factory=Tally)
    fixes: Tally = field(default_factory=Tally)
    repeats: Tally = field(default_factory=Tally)
    counts: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)


def sessions() -> Iterator[list[Turn]]:
    """Each session of the data set as its turns, in order."""
    for path in sorted((DATA / "sessions" / "transcripts").glob("*.jsonl.gz")):
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
            file.write(gzip.decompress(path.read_bytes()))
            file.flush()
            yield list(_turns(claude_transcript.read(Path(file.name), host="claude")))


def _turns(found: Found) -> Iterator[Turn]:
    by_prompt: dict[str, list[Body]] = {}
    for event in found.events:
        by_prompt.setdefault(event.prompt_id, []).append(event.body)
    for number, (prompt_id, bodies) in enumerate(by_prompt.items(), start=1):
        if prompt_id in found.closings:
            bodies.append(found.closings[prompt_id].body)
        yield Turn(
            id=number,
            session_id=1,
            project_id=1,
            number=number,
            prompt=next((body.text for body in bodies if isinstance(body, Prompted)), ""),
            root=ROOT,
            started_at=0,
            ended_at=0,
            bodies=tuple(bodies),
            seqs=tuple(range(1, len(bodies) + 1)),
        )


def measure() -> tuple[Figures, list[tuple[Turn, Digest]]]:
    figures, kept = Figures(), []
    for turns in sessions():
        known: set[str] = set()
        for turn in turns:
            turn = Turn(**{**_fields(turn), "known": frozenset(known)})  # noqa: PLW2901 -- the same turn, knowing more
            begin = time.process_time()
            made = digest(turn)
            figures.milliseconds.append((time.process_time() - begin) * 1000)
            _judge(figures, turn, made, known)
            known |= {normal_title(draft.title) for draft in made.observations}
            kept.append((turn, made))
    return figures, kept


def _fields(turn: Turn) -> dict[str, Any]:
    return {name: getattr(turn, name) for name in Turn.__dataclass_fields__}


def _judge(figures: Figures, turn: Turn, made: Digest, known: set[str]) -> None:
    text = "\n".join(_text(draft) for draft in made.observations)
    tools = [body for body in turn.bodies if isinstance(body, ToolUsed)]
    for subject in _subjects(tools):
        figures.commits.add(_words(subject) <= _words(text))
    for path in _edited(tools):
        figures.files.add(path in text)
    for command in _fixed(tools):
        figures.fixes.add(" ".join(command.split())[:40] in " ".join(text.split()))
    for draft in made.observations:
        figures.repeats.add(normal_title(draft.title) in known)
        figures.lengths.append(len(_text(draft)))
        figures.kinds[str(draft.type)] = figures.kinds.get(str(draft.type), 0) + 1
    if tools:
        figures.counts.append(len(made.observations))


def _text(draft: Any) -> str:
    return "\n".join([draft.title, draft.narrative, *(fact.text for fact in draft.facts), *draft.files_modified])


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def _subjects(tools: list[ToolUsed]) -> Iterator[str]:
    for body in tools:
        if body.name == "Bash" and not body.failed and isinstance(body.output, dict):
            yield from COMMITTED.findall(str(body.output.get("stdout", "")))


def _edited(tools: list[ToolUsed]) -> set[str]:
    done = [body for body in tools if body.name in ("Edit", "Write", "MultiEdit") and not body.failed]
    return {str(body.input.get("file_path", "")).removeprefix(ROOT + "/") for body in done}


def _fixed(tools: list[ToolUsed]) -> set[str]:
    """The very same command, refused by the shell and later not."""
    failed: set[str] = set()
    fixed: set[str] = set()
    for body in tools:
        command = body.input.get("command")
        if body.name == "Bash" and isinstance(command, str):
            if body.failed:
                failed.add(command)
            elif command in failed:
                fixed.add(re.sub(r"^cd \S+ *(?:&&|;) *", "", command).split(" 2>&1")[0].split(" |")[0].strip())
    return fixed


def rows(figures: Figures) -> list[tuple[str, float, str]]:
    slow = sorted(figures.milliseconds)
    return [
        ("turns", len(slow), ""),
        ("observations", len(figures.lengths), ""),
        ("milliseconds a turn, p50", statistics.median(slow), "≤ 50"),
        ("milliseconds a turn, p95", slow[int(len(slow) * 0.95)], "≤ 50"),
        (f"commits whose subject is in the turn's observations (of {figures.commits.all})", figures.commits.share, ""),
        (f"edited files named (of {figures.files.all})", figures.files.share, ""),
        (f"commands failed and then passed, recorded (of {figures.fixes.all})", figures.fixes.share, ""),
        ("observations a turn with tools, median", statistics.median(figures.counts), "1–4"),
        ("share of observations that repeat an earlier title of the session", figures.repeats.share, "≤ 0.02"),
        ("characters an observation, median", statistics.median(figures.lengths), ""),
        *((f"of the kind {kind}", number, "") for kind, number in sorted(figures.kinds.items())),
    ]


def _sample(kept: list[tuple[Turn, Digest]]) -> str:
    worked = [(turn, made) for turn, made in kept if any(isinstance(body, ToolUsed) for body in turn.bodies)]
    parts = []
    for turn, made in random.Random(7).sample(worked, 20):
        parts.append(f"## {turn.prompt[:300]}\n\ndone: {made.summary.completed if made.summary else ''}\n")
        parts += [
            f"- **{draft.type}** {draft.title}\n" + "".join(f"    - {fact.text}\n" for fact in draft.facts)
            for draft in made.observations
        ]
    return "\n".join(parts)


def main() -> int:
    if not (DATA / "sessions" / "transcripts").is_dir():
        print(f"no transcripts in {DATA.name}/sessions: nothing measured (set CLAUDE_MEM_BENCH_DATA)")
        return 0
    figures, kept = measure()
    SAMPLE.parent.mkdir(exist_ok=True)
    SAMPLE.write_text(_sample(kept), "utf-8")
    table = rows(figures)
    lines = [
        "# What the memories are worth",
        "",
        "Written by `make bench`, on 115 real sessions.",
        "",
        "| figure | value | goal |",
        "|---|--:|---|",
    ]
    lines += [f"| {name} | {value:,.3g} | {goal} |" for name, value, goal in table]
    (HERE / "results" / "memories.md").write_text("\n".join(lines) + "\n", "utf-8")
    (HERE / "results" / "memories.json").write_text(
        json.dumps({name: value for name, value, _ in table}, indent=1) + "\n"
    )
    print("\n".join(lines))
    slow = sorted(figures.milliseconds)[int(len(figures.milliseconds) * 0.95)]
    return 0 if slow <= 50 and figures.repeats.share <= 0.02 else 1


if __name__ == "__main__":
    sys.exit(main())
