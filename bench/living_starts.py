"""How many of the lines that sessions are given are outdated, replayed over the starts of two real projects.

    python bench/living_starts.py [--data FOLDER] [--show]

Sessions are replayed in order of time. When one ends, it is back-filled, and the shipped code looks at a repository
whose default branch and work tree are those of that time, as it does after each turn. When the next one begins, its
start and its first prompt are answered in the work tree of that moment, once as shipped and once without anything that
this project knows of code. Each observation in the two answers is compared with the full history (`living.survive`).

Branches are squashed when they are merged and then deleted, so that most are not in the stored history. A commit on a
branch of its own stands in for each session's: it has the lines that any commit ever had. Lines that are in no commit
were dropped, and are in no work tree here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import figures
import living
import replay
import turns
from living import History, Survival, Tree, Work

from claude_mem.agents.payload import Trigger
from claude_mem.capture import backfill
from claude_mem.config import Config
from claude_mem.digest.line_anchors import collect_lines
from claude_mem.domain import anchors
from claude_mem.domain.anchors import Outcome
from claude_mem.domain.memory_items import UNKNOWN_STATE, MemoryState
from claude_mem.domain.records import Prompted
from claude_mem.inject import freshness
from claude_mem.storage.sqlite.engine import Connection, fetch_all
from claude_mem.storage.sqlite.journal.turns import load_turn
from claude_mem.storage.sqlite.memory import anchors as store
from claude_mem.storage.sqlite.memory.store import SqliteMemory
from claude_mem.worker.app import Service

RESULTS = Path(__file__).with_name("results")
BRANCH = "refs/heads/main"


class Repository:
    """A repository with a work tree that is moved through time. It has the objects of the stored history."""

    def __init__(self, root: Path, git_dir: Path, history: History) -> None:
        self.root, self._history, self._tree = root, history, Tree(root, history)
        self._git("init", "--quiet", "--initial-branch=main")
        (root / ".git/objects/info/alternates").write_text(f"{git_dir / 'objects'}\n", "utf-8")
        self.index = -1

    def move_to(self, at: int) -> None:
        """Make the default branch and the work tree those of a time."""
        self.index = self._history.newest_index(at)
        if self.index >= 0:
            commit = self._history.commits[self.index]
            self._git("update-ref", BRANCH, commit.id)
            self._tree.move_to(commit)

    def add_branch(self, name: str, files: dict[str, list[str]], at: int) -> None:
        """Commit these lines on a branch of their own, without touching the work tree."""
        parts = [f"commit refs/heads/{name}\ncommitter A <a@example.org> {at // 1000} +0000\ndata 4\nwork\n".encode()]
        for path, lines in files.items():
            content = "\n".join(lines).encode("utf-8", "replace")
            parts.append(f"M 100644 inline {json.dumps(path)}\ndata {len(content)}\n".encode() + content + b"\n")
        self._git("fast-import", "--quiet", "--force", stdin=b"".join(parts))

    def _git(self, *args: str, stdin: bytes = b"") -> None:
        subprocess.run(["git", "-C", str(self.root), *args], input=stdin, check=True, stdout=subprocess.DEVNULL)


@dataclass(frozen=True, slots=True)
class Line:
    """An observation in an answer: what the reference and the shipped code say of it."""

    title: str
    moment: str
    survival: Survival | None  # None: its work had not landed
    was_never_committed: bool
    state: MemoryState
    is_superseded: bool
    details: str = ""

    @property
    def is_outdated(self) -> bool:
        return self.survival is not None and self.survival.is_outdated

    @property
    def is_current(self) -> bool:
        return self.survival is not None and not self.survival.is_outdated

    @property
    def says_it_did_not_last(self) -> bool:
        return self.state.outcome in (*anchors.UNDONE, Outcome.FAILED)


@dataclass(slots=True)
class Answers:
    """The lines of all answers, as shipped and without a look at any code."""

    shipped: list[Line] = field(default_factory=list)
    plain: list[Line] = field(default_factory=list)
    moments: int = 0


@dataclass(slots=True)
class Clock:
    """The time of the replay."""

    at: int = 0

    def now_ms(self) -> int:
        return self.at


class Player:
    """Replays one project."""

    def __init__(self, project: str, folder: Path, history: History, repository: Repository) -> None:
        self.project, self.history, self.repository = project, history, repository
        self.service = Service(Config(data_dir=folder, embedding_model="none"))
        self.clock = Clock()
        self.ever = _all_lines(history)
        self.answers = Answers()
        self._works: dict[int, Work] = {}
        self._titles: dict[int, str] = {}
        self._project_id = 0

    async def run(self) -> None:
        freshness.ids = SimpleNamespace(now_ms=self.clock.now_ms)  # type: ignore[attr-defined, assignment]
        waiting: list[replay.Recorded] = []
        for session in replay.recorded_sessions(self.project):
            for ended in sorted((one for one in waiting if one.end <= session.begin), key=lambda one: one.end):
                waiting.remove(ended)
                await self._ingest(ended)
            if self._project_id:
                await self._start(session)
            waiting.append(session)

    async def _ingest(self, session: replay.Recorded) -> None:
        db = self.service.db
        db.write_now(backfill.enqueue_files, session.path, now=0)
        await self.service.run_until_idle()
        while await self.service.indexer.step():
            pass
        rows = db.read_now(fetch_all, "select min(id) as id from projects")
        self._project_id = rows[0]["id"] or 0
        works = {work.id: work for work in db.read_now(living.load_work)}
        new_works = [work for row_id, work in works.items() if row_id not in self._works]
        self._works = works
        self._titles = {
            row["id"]: row["title"] or "" for row in db.read_now(fetch_all, "select id, title from observations")
        }
        self.clock.at = session.end
        self.repository.move_to(session.end)
        self._commit_elsewhere(session, new_works)
        await freshness.refresh_project(db, self._project_id, str(self.repository.root))

    def _commit_elsewhere(self, session: replay.Recorded, works: list[Work]) -> None:
        files: dict[str, list[str]] = {}
        for work in works:
            for path, lines in self.service.db.read_now(_added_lines, work.id).items():
                files.setdefault(path, []).extend(line for line in lines if anchors.hash_line(line) in self.ever)
        if any(files.values()):
            self.repository.add_branch(f"work-{session.id}", files, session.end)

    async def _start(self, session: replay.Recorded) -> None:
        self.clock.at = session.begin
        self.repository.move_to(session.begin)
        if self.repository.index < 0:
            return
        prompt = next((event.body.text for event in session.events if isinstance(event.body, Prompted)), "")
        shipped = await self._item_ids(prompt)
        states = await self._states(shipped)
        with self._without_looks():
            plain = await self._item_ids(prompt)
        links = self._links()
        states |= await self._states(plain)
        self.answers.moments += 1
        moment = session.id[:8]
        self.answers.shipped += [self._line(row_id, moment, states, links) for row_id in shipped]
        self.answers.plain += [self._line(row_id, moment, states, links) for row_id in plain]

    async def _item_ids(self, prompt: str) -> list[int]:
        """Return the observations that a session is given at its start and at its first prompt."""
        context, root = self.service.context_service, str(self.repository.root)
        config = context.config
        start = await context.compose_start(
            self._project_id, "cli", budget=config.context_tokens, limit=config.context_observations, root=root
        )
        who = Trigger(host="claude", content_session_id="new", event="UserPromptSubmit", text=prompt, cwd=root)
        said = await context.at_prompt(who, self._project_id, frozenset(start.item_names), root=root)
        names = dict.fromkeys((*start.item_names, *said.item_names))
        return [int(name[1:]) for name in names if name[0] == "o" and name[1:].isdigit()]

    async def _states(self, row_ids: Collection[int]) -> dict[int, MemoryState]:
        root = str(self.repository.root)
        looks = await freshness.refresh_at_start(self.service.db, self._project_id, root)
        return self.service.db.read_now(store.load_states, list(row_ids), root, looks)

    def _links(self) -> dict[int, int]:
        rows = self.service.db.read_now(
            fetch_all,
            "select id, superseded_by from observations where superseded_by is not null and type != 'rule'",
        )
        return {row["id"]: row["superseded_by"] for row in rows}

    @contextmanager
    def _without_looks(self) -> Iterator[None]:
        """Answer as if nothing were known of any code."""
        links = self._links()
        shipped = SqliteMemory.load_states
        self.service.db.write_now(_set_links, dict.fromkeys(links))
        SqliteMemory.load_states = lambda *_args, **_options: {}  # type: ignore[assignment]
        try:
            yield
        finally:
            SqliteMemory.load_states = shipped
            self.service.db.write_now(_set_links, links)

    def _line(self, row_id: int, moment: str, states: dict[int, MemoryState], links: dict[int, int]) -> Line:
        work = self._works.get(row_id)
        survival = living.survive(self.history, work, self.repository.index) if work else None
        counts = [(len(lines), len(lines & self.ever)) for lines in work.lines.values()] if work else []
        is_enough = sum(total for total, _ in counts) >= anchors.MIN_LINES
        never = is_enough and not anchors.is_committed(counts)
        title = f"{row_id} {self._titles.get(row_id, '')}"
        items = self.service.db.read_now(store.list_anchors, [row_id], str(self.repository.root))
        details = "; ".join(
            f"{item.path} {item.present.bit_count()} seen, {item.landed.bit_count()} landed, {item.committed.bit_count()}"
            f" committed of {len(item.lines)}"
            for item in items
        )
        state = states.get(row_id, UNKNOWN_STATE)
        return Line(title, moment, survival, never, state, row_id in links, details)


def _added_lines(conn: Connection, observation_id: int) -> dict[str, list[str]]:
    (row,) = fetch_all(conn, "select turn_id, files_modified from observations where id = ?", (observation_id,))
    turn = load_turn(conn, row["turn_id"], with_earlier=False)
    files = collect_lines(turn).files if turn else {}
    return {path: files[path].added for path in json.loads(row["files_modified"]) if path in files and path[0] != "/"}


def _set_links(conn: Connection, links: dict[int, Any]) -> None:
    conn.executemany(
        "update observations set superseded_by = ? where id = ?", [(new, row_id) for row_id, new in links.items()]
    )


def _all_lines(history: History) -> frozenset[bytes]:
    """Return the hashes of all lines that any commit of any branch has."""
    return frozenset(line for blob in history.all_blobs() for line in history.hashes(blob))


# --- results ---------------------------------------------------------------------------------------------------------


def summarize(answers: Answers) -> dict[str, Any]:
    """Return the figures of a project."""
    shipped, plain = answers.shipped, answers.plain
    current = [line for line in plain if line.is_current]
    held = [line for line in current if not line.state.holds or line.is_superseded]
    claimed = [
        line for line in plain if line.survival and (line.is_superseded or line.state.freshness in anchors.STALE)
    ]
    outdated = [line for line in plain if line.is_outdated]
    undone = [line for line in shipped if line.was_never_committed and not line.says_it_did_not_last]
    return {
        "starts": answers.moments,
        "lines, without looks": len(plain),
        "of them with landed work": sum(line.survival is not None for line in plain),
        "of them outdated": len(outdated),
        "outdated, % of lines with landed work, without looks": _percent(len(outdated), len(current) + len(outdated)),
        "lines, as shipped": len(shipped),
        "of them outdated, as shipped": sum(line.is_outdated for line in shipped),
        "outdated, % of lines with landed work, as shipped": _percent(
            sum(line.is_outdated for line in shipped), sum(line.survival is not None for line in shipped)
        ),
        "outdated, % of all lines, as shipped": _percent(sum(line.is_outdated for line in shipped), len(shipped)),
        "current lines held back, %": _percent(len(held), len(current)),
        "precision of what is held back": _ratio(sum(line.is_outdated for line in claimed), len(claimed)),
        "recall of what is held back": _ratio(
            sum(not line.state.holds or line.is_superseded for line in outdated), len(outdated)
        ),
        "lines of work in no commit ever, without looks": sum(line.was_never_committed for line in plain),
        "the same, as shipped, shown as done": len(undone),
    }


def _percent(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 2) if whole else None


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None


def show_errors(answers: Answers) -> None:
    """Print each observation that was told although it is outdated, or held back although it is current, once."""
    for kind, lines in (
        ("told", [line for line in answers.shipped if line.is_outdated]),
        ("held", [line for line in answers.plain if line.is_current and (not line.state.holds or line.is_superseded)]),
        ("undone", [line for line in answers.shipped if line.was_never_committed and not line.says_it_did_not_last]),
    ):
        for title, count in Counter(line.title for line in lines).most_common(25):
            line = next(line for line in lines if line.title == title)
            left = f"left {line.survival.left}/{line.survival.landed}" if line.survival else "never landed"
            link = " superseded" if line.is_superseded else ""
            state = f"{line.state.freshness or '?'} {line.state.outcome or '?'}{link}"
            print(f"{kind} {count}x {left}, {state} | {title[:90]} | {line.details}", file=sys.stderr)


def measure(project: str, data: Path, folder: Path) -> Answers:
    """Replay a project in an empty folder."""
    git_dir = living.unpack_history(data / living.HISTORIES[project], folder)
    for name in ("data", "tree"):
        (folder / name).mkdir(mode=0o700)
    history = History(git_dir)
    player = Player(project, folder / "data", history, Repository(folder / "tree", git_dir, history))
    try:
        asyncio.run(player.run())
    finally:
        player.service.close()
        history.close()
    return player.answers


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how many injected lines are outdated.")
    parser.add_argument("--data", type=Path, default=turns.DATA, help="where the sessions and histories are")
    parser.add_argument("--show", action="store_true", help="print wrong lines")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for project, packed in living.HISTORIES.items():
        if not (options.data / packed).exists() or not (options.data / project).is_dir():
            print(f"{project}: no data in {options.data.name} (set CLAUDE_MEM_BENCH_DATA): not measured")
            continue
        with tempfile.TemporaryDirectory() as folder:
            answers = measure(project, options.data, Path(folder))
        results[project] = summarize(answers)
        if options.show:
            show_errors(answers)
        print(json.dumps({project: results[project]}, indent=1))
    if len(results) == len(living.HISTORIES):
        setting = figures.setting(Path(tempfile.gettempdir()))
        names = list(next(iter(results.values())))
        rows = [f"| {name} | {' | '.join(str(result[name]) for result in results.values())} |" for name in names]
        lines = ["# Outdated lines that sessions are given", "", "Written by `python bench/living_starts.py`.", ""]
        lines += [f"- {name}: {value}" for name, value in setting.items()]
        lines += ["", f"| | {' | '.join(results)} |", "|---|" + "--:|" * len(results), *rows]
        (RESULTS / "living_starts.md").write_text("\n".join(lines) + "\n", "utf-8")
        saved = json.dumps({**setting, "projects": results}, indent=1)
        (RESULTS / "living_starts.json").write_text(saved + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
