"""Real turns to measure with: the sessions of both projects, as the local writer sees them.

The data is not part of this project (`CLAUDE_MEM_BENCH_DATA`, or `../shared/data`).
"""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from claude_mem.agents import claude
from claude_mem.agents.canonical import TranscriptContent
from claude_mem.digest.evidence import closing_message
from claude_mem.domain.records import Body, Exchange, Prompted, Turn
from claude_mem.storage.sqlite.journal.turns import MAX_PREVIOUS_TURNS

DATA = Path(os.environ.get("CLAUDE_MEM_BENCH_DATA", Path(__file__).parents[2] / "shared" / "data"))
PROJECTS = ("sessions", "evaluator")
ROOT = "/home/dev/cli"  # the folder that all sessions of both data sets were renamed to


def missing() -> str:
    """Return why nothing can be measured, or nothing."""
    there = all((DATA / project / "transcripts").is_dir() for project in PROJECTS)
    return "" if there else f"no transcripts in {DATA.name}: nothing measured (set CLAUDE_MEM_BENCH_DATA)"


def sessions(project: str) -> Iterator[tuple[str, list[Turn]]]:
    """Return each session of a project by its id, as its turns, in order."""
    for path in sorted((DATA / project / "transcripts").glob("*.jsonl.gz")):
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
            # Labels and references number the turns as they were when a hook's notice still counted as a prompt.
            lines = gzip.decompress(path.read_bytes())
            file.write(
                lines.replace(b'"content":"Operation stopped by hook:', b'"content":"Operation stopped by a hook:')
            )
            file.flush()
            yield path.name.partition(".")[0], list(_turns(claude.read(Path(file.name), host="claude")))


def _turns(found: TranscriptContent) -> Iterator[Turn]:
    by_prompt: dict[str, list[Body]] = {}
    for event in found.events:
        by_prompt.setdefault(event.prompt_id, []).append(event.body)
    previous: list[Exchange] = []
    for number, (prompt_id, bodies) in enumerate(by_prompt.items(), start=1):
        if prompt_id in found.closings:
            bodies.append(found.closings[prompt_id].body)
        prompt = next((body.text for body in bodies if isinstance(body, Prompted)), "")
        yield Turn(
            id=number,
            session_id=1,
            project_id=1,
            number=number,
            prompt=prompt,
            root=ROOT,
            started_at=0,
            ended_at=0,
            bodies=tuple(bodies),
            seqs=tuple(range(1, len(bodies) + 1)),
            previous=tuple(previous[-MAX_PREVIOUS_TURNS:]),
        )
        previous.append(Exchange(prompt, closing_message(bodies)))
