"""The briefs that sessions of two real projects are given at their start, for reading and for judging blind.

    python bench/briefs.py [--moments tuned|first|second|third] [--count 10] [--data FOLDER] [--out FOLDER]

Sessions are replayed in order of time through the shipped path, in a work tree that has the default branch of that time
(`living_starts.Player`). At moments spread evenly over the sessions, the brief that the session is given is written to
`build/briefs/PROJECT-NNN.md`. Beside it, `PROJECT-NNN-sessions.md` has what a judge may look at: the turns behind the
lines, the requests of the sessions before, and the session that was given the brief. Moments are either those that the wording was
tuned on, or others between them, for a round of judging each: see `judging.py`.

The sessions are not part of this project (`CLAUDE_MEM_BENCH_DATA`, or `../shared/data`); where they are absent, this says
so. Briefs and sessions are other people's words: they are never committed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import living
import replay
import turns
from living import History
from living_starts import Player, Repository

from claude_mem.agents import claude
from claude_mem.domain.records import Prompted, Stopped
from claude_mem.domain.text import estimate_tokens
from claude_mem.storage.sqlite.engine import Connection, fetch_all

OUT = Path(__file__).parents[1] / "build" / "briefs"
Row = dict[str, Any]
PROJECTS = {"cli": "sessions", "evaluator": "evaluator"}  # the project's name and its folder of the data
TUNED = "tuned"
MOMENTS = {TUNED: 0.0, "first": 0.5, "second": 0.25, "third": 0.75}  # how far before a tuned moment; one for each round
BEFORE = 14  # sessions before the moment that a judge may look at
REQUEST_CHARS, CLOSING_CHARS, NEXT_CHARS, ASKED_CHARS = 900, 2_500, 700, 240


class Reader(Player):
    """Replays a project and writes the briefs at some of its starts."""

    def __init__(self, *player: Any, numbers: Collection[int], name: str, out: Path) -> None:
        super().__init__(*player)
        self._numbers, self._name, self._out = numbers, name, out
        self._number = 0
        self._ended: list[replay.Recorded] = []

    async def _ingest(self, session: replay.Recorded) -> None:
        await super()._ingest(session)
        self._ended.append(session)

    async def _start(self, session: replay.Recorded) -> None:
        self._number += 1
        if self._number not in self._numbers:
            return
        self.clock.at = session.begin
        self.repository.move_to(session.begin)
        context, root = self.service.context_service, str(self.repository.root)
        config = context.config
        start = await context.compose_start(
            self._project_id, self._name, budget=config.context_tokens, limit=config.context_observations, root=root
        )
        path = self._out / f"{self._name}-{self._number:03}.md"
        path.write_text(f"{start.text}\n", "utf-8")
        sources = self.service.db.read_now(_sources)
        page = described(start.text, sources, self._ended[-BEFORE:], session)
        path.with_stem(f"{path.stem}-sessions").write_text(page, "utf-8")
        print(f"{path.name}: {estimate_tokens(start.text)} tokens, {len(list(judged_lines(start.text)))} lines")


def judged_lines(text: str) -> Iterable[str]:
    """Yield the lines of a brief that say something about the project, without headings and the fixed first lines."""
    fixed = ("#", "<", "Records of past work", "Legend:", "More:")
    return (line for line in text.splitlines() if line and not line.startswith(fixed))


def described(text: str, sources: dict[int, Row], before: Sequence[replay.Recorded], session: replay.Recorded) -> str:
    """Return what a judge may look at: the turns behind the lines, the earlier requests, and the session that was given
    the brief."""
    parts = ["# The turns behind the lines"]
    for line in judged_lines(text):
        number = line.partition(" ")[0]
        if number.isdigit() and (row := sources.get(int(number))):
            parts += [f"## {number}", f"USER: {clipped(row['request'] or '', REQUEST_CHARS)}"]
            parts += [f"AGENT: {clipped(row['closing'] or '(no closing message)', CLOSING_CHARS)}"]
    parts.append("# What was asked in the sessions before, the oldest first")
    for position, one in enumerate(before, 1):
        parts.append("\n".join([f"## Session {position}", *(f"- {text}" for text in requests(one, ASKED_CHARS))]))
    closings = claude.read(session.path, host="claude").closings
    parts.append("# The session that was given the brief")
    for event in session.events:
        if isinstance(event.body, Prompted):
            closing = closings.get(event.prompt_id)
            message = closing.body.message if closing and isinstance(closing.body, Stopped) else ""
            parts.append(f"USER: {clipped(event.body.text, REQUEST_CHARS)}")
            parts.append(f"AGENT: {clipped(message or '(no closing message)', NEXT_CHARS)}")
    return "\n\n".join(parts) + "\n"


def requests(session: replay.Recorded, most: int) -> list[str]:
    """Return the requests of a session, each in one line."""
    texts = [event.body.text for event in session.events if isinstance(event.body, Prompted)]
    return [" ".join(clipped(text, most).split()) for text in texts]


def _sources(conn: Connection) -> dict[int, Row]:
    """Return the request and the closing message of the turn behind each observation."""
    rows = fetch_all(
        conn,
        "select o.id, y.request, y.closing from observations o left join session_summaries y on y.turn_id = o.turn_id",
    )
    return {row["id"]: dict(row) for row in rows}


def clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most * 2 // 3]} […] {text[-(most // 3) :]}"


def moments(kind: str, sessions: int, count: int) -> set[int]:
    """Return the numbers of the starts at which briefs are read. Those of each round of judging lie between the tuned
    ones."""
    return {max(1, min(sessions - 1, round(sessions * (n - MOMENTS[kind]) / count))) for n in range(1, count + 1)}


def write(project: str, options: argparse.Namespace) -> None:
    """Replay a project and write its briefs."""
    folder_name = PROJECTS[project]
    with tempfile.TemporaryDirectory(prefix="claude-mem-bench-") as name:
        folder = Path(name)
        git_dir = living.unpack_history(options.data / living.HISTORIES[folder_name], folder)
        for part in ("data", "tree"):
            (folder / part).mkdir(mode=0o700)
        history = History(git_dir)
        repository = Repository(folder / "tree", git_dir, history)
        numbers = moments(options.moments, len(replay.recorded_sessions(folder_name)), options.count)
        reader = Reader(
            folder_name, folder / "data", history, repository, numbers=numbers, name=project, out=options.out
        )
        try:
            asyncio.run(reader.run())
        finally:
            reader.service.close()
            history.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the briefs at moments of real projects.")
    parser.add_argument("--moments", choices=tuple(MOMENTS), default=TUNED)
    parser.add_argument("--count", type=int, default=10, help="briefs of each project (default: 10)")
    parser.add_argument("--project", choices=tuple(PROJECTS), help="only this project")
    parser.add_argument("--data", type=Path, default=turns.DATA, help="where the real sessions are")
    parser.add_argument("--out", type=Path, default=OUT, help="write the briefs there (default: build/briefs)")
    options = parser.parse_args()
    if why := turns.missing():
        print(why)
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    for project in [options.project] if options.project else PROJECTS:
        write(project, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
