"""How well outdated memories are detected, on the sessions and the git histories of two real projects.

    python bench/living.py [--data FOLDER] [--show]

The sessions are back-filled through the shipped path. For each observation that describes edits, and for several
horizons after it, the newest commit of the default branch at that time is laid out as a work tree; the shipped code
looks at that tree. The reference is the full history: of all telling lines that the turn added and that landed on the
default branch, fewer than half are left in their files, renames followed. The shipped code knows at most 60 lines of
eight files and sees one tree. No figure in it was chosen by these results; both halves of each history are reported.

The data is not part of this project (`CLAUDE_MEM_BENCH_DATA`, or `../shared/data`); without it this says so and
measures nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import figures
import turns

from claude_mem.capture import backfill
from claude_mem.config import Config
from claude_mem.digest.line_anchors import collect_lines
from claude_mem.domain import anchors
from claude_mem.inject import freshness, outcomes
from claude_mem.storage.records import Look, StoredAnchor, apply_looks, is_committed
from claude_mem.storage.sqlite.engine import Connection, fetch_all, fetch_one
from claude_mem.storage.sqlite.journal.turns import load_turn
from claude_mem.storage.sqlite.memory import anchors as store
from claude_mem.worker.app import Service

RESULTS = Path(__file__).with_name("results")
HISTORIES = {"sessions": "repos/cli.bundle", "evaluator": "repos/evaluator.git.tar.gz"}
HORIZON_DAYS = (1, 3, 7, 14, 30)
LANDING_DAYS = 14
DAY_MS = 86_400_000
SAMPLES = 40
CHANGED_FILES = 10
OURS = "lines, as shipped"
AT_START = "lines, without a search for renames"
LINKS = "superseded by a later turn"
CHANGED = "file changed"
GONE = "path gone"
DETECTORS = (OURS, AT_START, LINKS, CHANGED, GONE)


# --- history ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of the default branch, its files by path, and the files that it renamed."""

    id: str
    at: int
    files: dict[str, str]
    renames: dict[str, str]


class History:
    """The first-parent commits of a default branch, oldest first, and the line hashes of their files."""

    def __init__(self, git_dir: Path) -> None:
        self._git_dir = git_dir
        command = ["git", f"--git-dir={git_dir}", "cat-file", "--batch"]
        no_fetch = {**os.environ, "GIT_NO_LAZY_FETCH": "1"}
        self._objects = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=no_fetch
        )
        self._hashes: dict[str, frozenset[bytes]] = {}
        self._trees: dict[str, Counter[bytes]] = {}
        log = self._git("rev-list", "--first-parent", "--format=%H %P|%ct", "main").decode()
        rows = [line.split("|") for line in log.splitlines() if "|" in line]
        self.commits = [self._commit(names.split(), int(seconds)) for names, seconds in reversed(rows)]
        self._times = [commit.at for commit in self.commits]

    def _commit(self, names: Sequence[str], seconds: int) -> Commit:
        listing = self._git("ls-tree", "-r", "-z", names[0]).decode("utf-8", "replace")
        entries = [entry.partition("\t") for entry in listing.split("\0") if entry.startswith("100")]
        files = {path: about.split()[2] for about, _, path in entries}
        return Commit(names[0], seconds * 1000, files, self._renames(names) if len(names) > 1 else {})

    def _renames(self, names: Sequence[str]) -> dict[str, str]:
        diff = ("diff-tree", "-r", "-z", "--name-status", "--diff-filter=R")
        try:
            output = self._git(*diff, "-M", names[1], names[0])
        except subprocess.CalledProcessError:  # a blob is missing from the stored history
            output = self._git(*diff, "-M100%", names[1], names[0])
        fields = output.decode("utf-8", "replace").split("\0")
        return dict(zip(fields[1::3], fields[2::3], strict=False))

    def newest_index(self, at: int) -> int:
        """Return the index of the newest commit at a time; -1 if there is none."""
        return bisect_right(self._times, at) - 1

    @property
    def end(self) -> int:
        return self._times[-1]

    def hashes(self, blob: str) -> frozenset[bytes]:
        """Return the line hashes of a file version."""
        if blob not in self._hashes:
            self._hashes[blob] = anchors.hash_content(self.content(blob))
        return self._hashes[blob]

    def other_hashes(self, commit: Commit, path: str) -> frozenset[bytes]:
        """Return the line hashes of all files of a commit but one."""
        if commit.id not in self._trees:
            self._trees[commit.id] = Counter(line for blob in commit.files.values() for line in self.hashes(blob))
        counts = self._trees[commit.id]
        own = self.hashes(commit.files[path]) if path in commit.files else frozenset()
        return frozenset(line for line, count in counts.items() if count > (line in own))

    def content(self, blob: str) -> bytes:
        """Return a file version; nothing if it is missing from the stored history."""
        assert self._objects.stdin is not None
        assert self._objects.stdout is not None
        self._objects.stdin.write(f"{blob}\n".encode())
        self._objects.stdin.flush()
        words = self._objects.stdout.readline().split()
        return self._objects.stdout.read(int(words[2]) + 1)[:-1] if len(words) == 3 else b""

    def all_blobs(self) -> list[str]:
        """Return the file versions of all commits of all branches."""
        listing = self._git("cat-file", "--batch-all-objects", "--batch-check").decode().splitlines()
        return [line.split()[0] for line in listing if line.split()[1] == "blob"]

    def close(self) -> None:
        """End the process that reads objects."""
        self._objects.communicate()

    def _git(self, *args: str) -> bytes:
        command = ["git", f"--git-dir={self._git_dir}", *args]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def unpack_history(packed: Path, folder: Path) -> Path:
    """Return a bare repository with a project's history."""
    if packed.suffix == ".bundle":
        subprocess.run(["git", "clone", "--quiet", "--bare", str(packed), str(folder / "history.git")], check=True)
    else:
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter="data")
    return next(folder.glob("*.git"))


class Tree:
    """A work tree that is moved from commit to commit by writing only the files that differ."""

    def __init__(self, root: Path, history: History) -> None:
        self.root, self._history = root, history
        self._files: dict[str, str] = {}

    def move_to(self, commit: Commit) -> None:
        for path in self._files.keys() - commit.files.keys():
            (self.root / path).unlink()
        for path, blob in commit.files.items():
            if self._files.get(path) != blob:
                (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                (self.root / path).write_bytes(self._history.content(blob))
        self._files = dict(commit.files)


# --- reference -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Work:
    """An observation that describes edits: all telling lines that its turn added, by path."""

    id: int
    title: str
    started_at: int
    created_at: int
    successor_at: int | None
    lines: dict[str, frozenset[bytes]]


@dataclass(frozen=True, slots=True)
class Survival:
    """How many landed lines of an observation are left at a commit, and what the files themselves show."""

    landed: int
    left: int
    is_changed: bool
    is_path_gone: bool

    @property
    def is_outdated(self) -> bool:
        return self.left * 2 < self.landed


def load_work(conn: Connection) -> list[Work]:
    """Return the observations that have anchors of edited lines."""
    rows = fetch_all(
        conn,
        """
        select o.id, o.title, o.turn_id, o.created_at, o.files_modified, n.created_at as successor_at
          from observations o left join observations n on n.id = o.superseded_by
         where o.id in (select observation_id from anchors where kind = 'edit') order by o.id
        """,
    )
    return [_work(conn, row) for row in rows]


def _work(conn: Connection, row: Any) -> Work:
    turn = load_turn(conn, row["turn_id"], with_earlier=False)
    assert turn is not None
    files = collect_lines(turn).files
    paths = [path for path in json.loads(row["files_modified"]) if path in files]
    lines = {path: _telling(files[path].added) for path in paths}
    return Work(row["id"], row["title"], turn.started_at, row["created_at"], row["successor_at"], lines)


def _telling(lines: Iterable[str]) -> frozenset[bytes]:
    return frozenset(anchors.hash_line(line) for line in lines if anchors.is_telling(line.strip()))


def survive(history: History, work: Work, until: int) -> Survival | None:
    """Compare an observation's lines with a commit of the history; None if its work had not landed by then."""
    parts = [
        part for path, lines in work.lines.items() if (part := _survive_in_file(history, work, path, lines, until))
    ]
    if not parts:
        return None
    return Survival(
        sum(part.landed for part in parts),
        sum(part.left for part in parts),
        any(part.is_changed for part in parts),
        any(part.is_path_gone for part in parts),
    )


def _survive_in_file(history: History, work: Work, path: str, lines: frozenset[bytes], until: int) -> Survival | None:
    """Return the survival of one file's lines; None if fewer than three of them, or fewer than half, have landed."""
    name, landed, elsewhere, blob_then = path, frozenset[bytes](), frozenset[bytes](), ""
    for commit in history.commits[history.newest_index(work.started_at) + 1 : until + 1]:
        name = commit.renames.get(name, name)
        blob = commit.files.get(name, "")
        if blob and commit.at <= work.created_at + LANDING_DAYS * DAY_MS:
            new = (lines & history.hashes(blob)) - landed
            landed |= new
            elsewhere |= new & history.other_hashes(commit, name) if new else new
        if not blob_then and len(landed) * 2 >= len(lines):
            blob_then = blob
    if len(landed) < anchors.MIN_LINES or len(landed) * 2 < len(lines):
        return None
    files = history.commits[until].files
    blob = files.get(name, "")
    left = landed & history.hashes(blob) if blob else frozenset()
    moved = (landed - left - elsewhere) & history.other_hashes(history.commits[until], name)
    return Survival(len(landed), len(left | moved), blob != blob_then, path not in files)


# --- measure ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """One observation at one horizon: the reference and what each detector says."""

    work: Work
    days: int
    survival: Survival
    flags: dict[str, bool]
    note: str
    commit: str = ""
    state: str = ""


def collect_cases(conn: Connection, history: History, root: Path, horizons: Sequence[int] = HORIZON_DAYS) -> list[Case]:
    """Judge every observation at every horizon, commit by commit."""
    moments: defaultdict[int, list[tuple[Work, int, Survival]]] = defaultdict(list)
    for work in load_work(conn):
        for days in horizons:
            at = work.created_at + days * DAY_MS
            index = history.newest_index(at)
            if at <= history.end and (survival := survive(history, work, index)):
                moments[index].append((work, days, survival))
    tree = Tree(root, history)
    cases: list[Case] = []
    for index in sorted(moments):
        tree.move_to(history.commits[index])
        cases += _judge_at(conn, root, history, index, moments[index])
    return cases


def _judge_at(
    conn: Connection, root: Path, history: History, index: int, moments: Sequence[tuple[Work, int, Survival]]
) -> list[Case]:
    commit = history.commits[index]
    rows = fetch_all(conn, "select id, created_at from observations where created_at <= ? order by id", (commit.at,))
    starts = {row["id"]: row["created_at"] for row in rows} | {work.id: work.started_at for work, _, _ in moments}
    groups: defaultdict[int, list[StoredAnchor]] = defaultdict(list)
    for item in store.list_anchors(conn, list(starts), str(root)):
        groups[item.observation_id].append(item)
    items = [item for row_id, group in groups.items() for item in _mark(history, group, starts[row_id], index)]
    looks = freshness.look_at_files(str(root), items, seconds=60, paths=list(commit.files))
    states = _freshness(items, looks)
    at_start = _freshness(items, freshness.look_at_files(str(root), items, seconds=60))
    counts = defaultdict(list)
    for item in apply_looks(items, looks):
        seen, known = (item.present & item.committed).bit_count(), item.committed.bit_count()
        about = f"{item.path} {seen}/{known} of {len(item.lines)} {item.moved_to}"
        counts[item.observation_id].append(about.strip())
    return [
        Case(
            work,
            days,
            survival,
            {
                OURS: states[work.id] in anchors.REWRITTEN,
                AT_START: at_start[work.id] in anchors.REWRITTEN,
                LINKS: work.successor_at is not None and work.successor_at <= work.created_at + days * DAY_MS,
                CHANGED: survival.is_changed,
                GONE: survival.is_path_gone,
            },
            f"{states[work.id]}: {'; '.join(counts[work.id])}",
            commit.id,
            states[work.id],
        )
        for work, days, survival in moments
    ]


def _mark(history: History, group: Sequence[StoredAnchor], started_at: int, until: int) -> Sequence[StoredAnchor]:
    """Return an observation's anchors with the lines marked that commits of the two weeks after the work have had."""
    for commit in history.commits[history.newest_index(started_at) + 1 : until + 1]:
        if commit.at <= started_at + LANDING_DAYS * DAY_MS:
            lines = {item.path: history.hashes(blob) for item in group if (blob := commit.files.get(item.path, ""))}
            group = outcomes.mark_committed(group, lines, is_default=True)
    return group if is_committed(group) else [replace(item, committed=0, landed=0) for item in group]


def _freshness(items: Sequence[StoredAnchor], looks: Sequence[Look]) -> dict[int, anchors.Freshness]:
    groups: defaultdict[int, list[StoredAnchor]] = defaultdict(list)
    for item in apply_looks(items, looks):
        groups[item.observation_id].append(item)
    return {row_id: store.judge_freshness(group) for row_id, group in groups.items()}


@dataclass(frozen=True, slots=True)
class Score:
    """How well a detector agrees with the reference."""

    right: int
    false: int
    missed: int
    passed: int

    @property
    def precision(self) -> float | None:
        return self.right / (self.right + self.false) if self.right + self.false else None

    @property
    def recall(self) -> float | None:
        return self.right / (self.right + self.missed) if self.right + self.missed else None

    @property
    def f1(self) -> float | None:
        total = 2 * self.right + self.false + self.missed
        return 2 * self.right / total if total else None

    @property
    def held_back(self) -> float | None:
        """The share of current observations that would be held back."""
        return self.false / (self.false + self.passed) if self.false + self.passed else None


def score(cases: Sequence[Case], detector: str) -> Score:
    pairs = [(case.flags[detector], case.survival.is_outdated) for case in cases]
    return Score(*(pairs.count(pair) for pair in ((True, True), (True, False), (False, True), (False, False))))


def time_looks(conn: Connection, root: Path, commit: Commit) -> tuple[int, list[float], list[float]]:
    """Return the number of observations, and the milliseconds of looks with no changed file and with ten."""
    row = fetch_one(conn, "select min(id) as id from projects")
    assert row is not None
    ids = store.list_anchored_ids(conn, row["id"], limit=freshness.START_RECORDS)
    items = store.list_anchors(conn, ids, str(root))
    items = apply_looks(items, freshness.look_at_files(str(root), items, seconds=60, paths=list(commit.files)))
    unchanged = [_look_ms(root, items) for _ in range(SAMPLES)]
    for path in sorted({item.path for item in items} & commit.files.keys())[:CHANGED_FILES]:
        with (root / path).open("ab") as file:
            file.write(b"\n")
    return len(ids), unchanged, [_look_ms(root, items) for _ in range(SAMPLES)]


def _look_ms(root: Path, items: Sequence[StoredAnchor]) -> float:
    begin = time.perf_counter()
    freshness.look_at_files(str(root), items, seconds=60)
    return (time.perf_counter() - begin) * 1000


async def ingest(folder: Path, data: Path) -> Service:
    """Back-fill all sessions of a project and return the service that holds them."""
    service = Service(Config(data_dir=data, embedding_model="none"))
    for path in sorted((folder / "transcripts").glob("*.jsonl.gz")):
        service.db.write_now(backfill.enqueue_files, path, now=0)
    await service.run_until_idle()
    return service


def measure(project: str, data: Path, folder: Path) -> tuple[dict[str, Any], list[Case]]:
    history = History(unpack_history(data / HISTORIES[project], folder))
    (folder / "data").mkdir(mode=0o700)
    (folder / "tree").mkdir()
    service = asyncio.run(ingest(data / project, folder / "data"))
    try:
        return service.db.read_now(_measure_stored, history, folder / "tree")
    finally:
        service.close()
        history.close()


def anchors_size(conn: Connection) -> tuple[int, int]:
    """The bytes of all anchors, and the number of observations that have any."""
    row = fetch_one(
        conn,
        "select coalesce(sum(length(path) + length(lines) + length(phrases) + length(blob_id) + 16), 0) as bytes,"
        " count(distinct observation_id) as observations from anchors",
    )
    return (int(row["bytes"]), int(row["observations"])) if row else (0, 0)


def _measure_stored(conn: Connection, history: History, root: Path) -> tuple[dict[str, Any], list[Case]]:
    size, anchored = anchors_size(conn)
    totals = fetch_one(
        conn, "select count(*) as n, count(superseded_by) filter (where type != 'rule') as links from observations"
    )
    assert totals is not None
    cases = collect_cases(conn, history, root)
    Tree(root, history).move_to(history.commits[-1])
    count, unchanged, changed = time_looks(conn, root, history.commits[-1])
    result = {
        "observations": totals["n"],
        "with anchors": anchored,
        "bytes of anchors for each of them": round(size / max(1, anchored)),
        "supersession links": totals["links"],
        f"ms to look at {count} observations, nothing changed, p50": round(figures.median(unchanged), 2),
        "the same, p95": round(figures.percentile(unchanged, 95), 2),
        f"ms with {CHANGED_FILES} changed files, p50": round(figures.median(changed), 2),
        f"ms with {CHANGED_FILES} changed files, p95": round(figures.percentile(changed, 95), 2),
    }
    return result, cases


# --- results ---------------------------------------------------------------------------------------------------------

COLUMNS = ("days", "detector", "judged", "outdated", "precision", "recall", "F1", "current held back")


def table(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Return one row for each horizon and detector, and one of all horizons together."""
    groups = [(str(days), [case for case in cases if case.days == days]) for days in HORIZON_DAYS]
    middle = sorted(case.work.created_at for case in cases)[len(cases) // 2] if cases else 0
    halves = [
        ("all, first half", [case for case in cases if case.work.created_at < middle]),
        ("all, second half", [case for case in cases if case.work.created_at >= middle]),
    ]
    rows = []
    for name, group in [*groups, ("all", cases), *halves]:
        for detector in DETECTORS if group else ():
            result = score(group, detector)
            share = sum(case.survival.is_outdated for case in group) / len(group)
            values = (share, result.precision, result.recall, result.f1, result.held_back)
            rounded = [None if value is None else round(value, 3) for value in values]
            rows.append(dict(zip(COLUMNS, (name, detector, len(group), *rounded), strict=True)))
    return rows


def as_markdown(results: dict[str, Any], setting: dict[str, Any]) -> str:
    lines = ["# Detection of outdated memories", "", "Written by `python bench/living.py`.", ""]
    lines += [f"- {name}: {value}" for name, value in setting.items()]
    lines += [
        "",
        "Reference: of all telling lines that a turn added and that landed on the default branch within 14 days, fewer"
        " than half are left (renames followed). An observation is counted once for each horizon.",
    ]
    for project, result in results.items():
        lines += ["", f"## {project}", ""]
        lines += [f"- {name}: {value:,}" for name, value in result["figures"].items()]
        lines += ["", f"| {' | '.join(COLUMNS)} |", "|--:|---|" + "--:|" * (len(COLUMNS) - 2)]
        for row in result["rows"]:
            cells = [f"{value:.3f}" if isinstance(value, float) else str(value or "") for value in row.values()]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def show_errors(cases: Sequence[Case], most: int = 20) -> None:
    """Print the observations that the shipped code judges otherwise than the reference, each once."""
    seen: set[int] = set()
    for case in cases:
        if case.flags[OURS] != case.survival.is_outdated and case.work.id not in seen and len(seen) < most:
            seen.add(case.work.id)
            kind = "false" if case.flags[OURS] else "missed"
            added = sum(map(len, case.work.lines.values()))
            survival = f"{case.survival.left}/{case.survival.landed} of {added}"
            print(f"{kind} +{case.days} d, left {survival}, {case.note} | {case.work.title[:60]}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the detection of outdated memories.")
    parser.add_argument("--data", type=Path, default=turns.DATA, help="where the sessions and histories are")
    parser.add_argument("--show", action="store_true", help="print wrong verdicts")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    setting = figures.setting(Path(tempfile.gettempdir()))
    for project, packed in HISTORIES.items():
        if not (options.data / packed).exists() or not (options.data / project).is_dir():
            print(f"{project}: no data in {options.data.name} (set CLAUDE_MEM_BENCH_DATA): not measured")
            continue
        with tempfile.TemporaryDirectory() as folder:
            result, cases = measure(project, options.data, Path(folder))
        results[project] = {"figures": result, "rows": table(cases)}
        if options.show:
            show_errors(cases)
    if results:
        text = as_markdown(results, setting)
        print(text)
        if len(results) == len(HISTORIES):
            (RESULTS / "living.md").write_text(text, "utf-8")
            saved = json.dumps({**setting, "projects": results}, indent=1, ensure_ascii=False)
            (RESULTS / "living.json").write_text(saved + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
