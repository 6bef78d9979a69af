"""At a prompt, which files will the session edit? Fits the weights of `recall/likely_files.py`, and tests them.

    python bench/files_to_come.py [--only-new-weights]

Every session of two real projects is replayed in order of time; only the sessions that had ended are known. At its first
prompts the shipped code scores the files in each of its views. The weights are those that bring the files which were then
edited into the first ten, begun from equal weights. They are fitted again for every test, and tested only on what they
have not seen: the other project, later sessions, and each fifth of a project in turn.

`hidden@10` as the data's README defines it: of the files that the session goes on to edit and the prompt does not name,
the share among the first ten. It is measured at the first prompt of each task. Beside it stand the simple orders (most
recently edited, most often edited, most often touched, recent and similar work together) and what the injected text
names, alone and after the start context. The branch of each session comes from its transcript, as git would tell it.

The sessions are not part of this project (`CLAUDE_MEM_BENCH_DATA`, or `../shared/data`); where they are absent, this says
so and measures nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import figures
import replay
import turns
from figures import Figure, Goal, at_least
from recall_files import BUDGET, named_files

from claude_mem.agents.payload import Trigger
from claude_mem.digest.evidence import EDIT_TOOLS
from claude_mem.domain.records import Prompted, ToolUsed
from claude_mem.recall import likely_files, rank
from claude_mem.recall.rank import FILE_WEIGHTS, SearchQuery
from claude_mem.storage.records import SearchFilter
from claude_mem.system import git_files
from claude_mem.system.project_folders import identify_project

RESULTS = Path(__file__).with_name("results")
NAMES = {"sessions": "cli", "evaluator": "evaluator"}
GOALS = {"cli": at_least(0.5), "evaluator": at_least(0.6)}
FIRST_PROMPTS, LATER_SHARE = 3, 0.3  # of a session, from which the weights are learnt; how much the later ones count
START, PENALTY, WIDTH, STEPS, STEP = 0.5, 0.2, 0.3, 200, 0.05
FOLDS, ROUNDS = 5, 2_000
VIEWS = tuple(FILE_WEIGHTS)
Weights = dict[str, float]
Order = dict[str, float]  # the score of each file


@dataclass(slots=True)
class Example:
    """A prompt, the files that its session then edited, and the score of each known file in each view."""

    session: str
    place: int  # of its session in the order of time
    number: int  # of the prompt in its session, from 0
    is_task: bool
    gold: frozenset[str]
    views: dict[str, Order]
    paths: tuple[str, ...]  # the files that may be predicted
    simple: dict[str, Order] = field(default_factory=dict)
    said: dict[str, float] = field(default_factory=dict)  # hidden@10 of the injected text


# --- replay ----------------------------------------------------------------------------------------------------------


async def gather_examples(project: str, data: Path) -> list[Example]:
    tasks = json.loads((turns.DATA / project / "tasks.json").read_text())
    asked = {task["session"]: task for task in tasks["prompt_to_files"] if "prompt" in task}
    repository, found = frozenset(tasks["repository_files"]), list[Example]()
    playing = replay.open_replay(project, data, moments=frozenset({"start"}))
    place = 0
    try:
        async for recorded, answers in playing.run():
            branches = list(_branches(recorded.path))
            found += [
                example
                async for example in _examples(
                    playing, recorded, answers[0].injection.text, asked.get(recorded.id), repository, branches, place
                )
            ]
            place += 1
    finally:
        playing.service.close()
    return found


async def _examples(
    playing: replay.Replay,
    recorded: replay.Recorded,
    start: str,
    task: Mapping[str, Any] | None,
    repository: frozenset[str],
    branches: Sequence[tuple[int, str]],
    place: int,
) -> Any:
    service = playing.service
    project_id = await service.db.read(lambda tx: tx.memory.find_project_id(identify_project(turns.ROOT)))
    if project_id is None:
        return
    where = SearchFilter(project_ids=(project_id,))
    history = await service.db.read(likely_files.gather_history, where)
    prompts = [event for event in recorded.events if isinstance(event.body, Prompted)][:FIRST_PROMPTS]
    for number, event in enumerate(prompts):
        assert isinstance(event.body, Prompted)
        text = event.body.text
        is_task = task is not None and number == 0
        named = likely_files.find_named(text[: rank.MAX_PROMPT_CHARS].replace("\\", "/"), history.paths)
        before = _touched(recorded, until=event.at)
        gold = frozenset(task["gold"]) - frozenset(task["given"]) if is_task and task else frozenset(
            path for path in _edited(recorded, since=event.at) if path in repository and path in set(history.paths)
        ) - named - before  # fmt: skip
        if not gold:
            continue
        branch = next((name for at, name in branches if at >= event.at - 2_000), branches[-1][1] if branches else "")
        query = SearchQuery(text=text[: rank.MAX_PROMPT_CHARS], where=where, floor=0.0)
        _, ranked = await rank.rank_candidates(service.db, service.indexer, query)
        signs = likely_files.signs_of(text, ranked, branch)
        views = likely_files.score_views(signs, history, named_paths=named)
        allowed = tuple(path for path in history.paths if path not in named and path not in before)
        example = Example(recorded.id, place, number, is_task, gold, views, allowed)
        if is_task and task:
            example.simple = _simple_orders(history, views)
            example.said = await _said(playing, recorded.id, text, start, branch, gold, repository, task["given"])
        yield example


def _branches(path: Path) -> Iterator[tuple[int, str]]:
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and record.get("gitBranch") and record.get("timestamp"):
                yield int(datetime.fromisoformat(record["timestamp"]).timestamp() * 1000), str(record["gitBranch"])


def _paths(recorded: replay.Recorded) -> Iterator[tuple[int, str, bool]]:
    for event in recorded.events:
        body = event.body
        if isinstance(body, ToolUsed):
            path = str(body.input.get("file_path") or body.input.get("notebook_path") or "")
            if path.startswith(turns.ROOT + "/"):
                yield event.at, path.removeprefix(turns.ROOT + "/"), body.name in EDIT_TOOLS and not body.failed


def _edited(recorded: replay.Recorded, *, since: int) -> set[str]:
    return {path for at, path, is_edit in _paths(recorded) if at >= since and is_edit}


def _touched(recorded: replay.Recorded, *, until: int) -> frozenset[str]:
    return frozenset(path for at, path, _ in _paths(recorded) if at < until)


def _simple_orders(history: likely_files.FileHistory, views: Mapping[str, Order]) -> dict[str, Order]:
    touched = Counter(touch.value for touch in history.touches)
    recency = {touch.value: float(place) for place, touch in enumerate(history.touches) if touch.kind == "edited"}
    both = views["recent"].keys() | views["similar turns"].keys()
    together = {path: views["recent"].get(path, 0.0) + views["similar turns"].get(path, 0.0) for path in both}
    return {
        "most recently edited": recency,
        "most often edited": {path: float(count) for path, count in history.edit_counts.items()},
        "most often touched": {path: float(count) for path, count in touched.items()},
        "recent + similar turns": together,
    }


async def _said(
    playing: replay.Replay,
    session: str,
    text: str,
    start: str,
    branch: str,
    gold: frozenset[str],
    repository: frozenset[str],
    given: Sequence[str],
) -> dict[str, float]:
    """Return hidden@10 of the text that is injected at the prompt, alone and after the start context."""
    shipped = git_files.current_branch
    git_files.current_branch = lambda start: branch  # noqa: ARG005
    try:
        asked = Trigger(
            host="claude", content_session_id=f"{session}!", cwd=turns.ROOT, event="UserPromptSubmit", text=text
        )
        said = (await playing.service.context_service.inject(asked)).text
    finally:
        git_files.current_branch = shipped
    texts = {"text at the prompt": said, "text of start and prompt": f"{start}\n{said}"}
    found = {}
    for name, shown in texts.items():
        paths = [path for path in named_files(shown[:BUDGET], sorted(repository)) if path not in given]
        found[name] = len(gold & set(paths[:10])) / len(gold)
    return found


# --- fitting ---------------------------------------------------------------------------------------------------------


def fit(examples: Mapping[str, Sequence[Example]]) -> Weights:
    """Return the weights that lift the edited files above the tenth file of their list (gradient descent, Adam).

    Each project counts the same. All weights begin equal and are pulled back there: what few sessions seem to say about
    one view is mostly noise.
    """
    import numpy as np

    cases = [case for part in examples.values() for case in _cases(part)]
    weights = np.full(len(VIEWS), START)
    first, second = np.zeros(len(VIEWS)), np.zeros(len(VIEWS))
    for step in range(1, STEPS + 1):
        slope = PENALTY * (weights - START)
        for scores, gold, share in cases:
            total = scores @ weights
            place = min(10, len(total) - 1)
            tenth = np.argpartition(-total, place)[place]
            above = 1 / (1 + np.exp(-np.clip((total[gold] - total[tenth]) / WIDTH, -30, 30)))
            lift = above * (1 - above) / WIDTH
            slope -= share * (lift[:, None] * (scores[gold] - scores[tenth])).mean(axis=0)
        first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope * slope
        change = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-9)
        weights = np.maximum(weights - STEP * change, 0)
    return {view: round(float(weight), 2) for view, weight in zip(VIEWS, weights, strict=True)}


def _cases(examples: Sequence[Example]) -> list[tuple[Any, Any, float]]:
    """Return the scores of the files, the places of the edited ones, and the share of each prompt in its project."""
    import numpy as np

    usable = [example for example in examples if example.gold & set(example.paths)]
    total = sum(LATER_SHARE if example.number else 1.0 for example in usable)
    return [
        (
            np.array([[example.views[view].get(path, 0.0) for view in VIEWS] for path in example.paths]),
            np.array([place for place, path in enumerate(example.paths) if path in example.gold]),
            (LATER_SHARE if example.number else 1.0) / total / 2,
        )
        for example in usable
    ]


def hidden(example: Example, order: Mapping[str, float]) -> float:
    allowed = set(example.paths)
    best = sorted((path for path in order if path in allowed), key=lambda path: (-order[path], path))[:10]
    return len(example.gold & set(best)) / len(example.gold)


def score(example: Example, weights: Weights) -> float:
    total: defaultdict[str, float] = defaultdict(float)
    for view, weight in weights.items():
        for path, value in example.views[view].items():
            total[path] += weight * value
    return hidden(example, total)


# --- tests -----------------------------------------------------------------------------------------------------------

Tested = list[tuple[Example, float]]


def by_project(examples: Mapping[str, list[Example]], project: str) -> Tested:
    """Weights of the other project."""
    weights = fit({other: part for other, part in examples.items() if other != project})
    return [(example, score(example, weights)) for example in examples[project] if example.is_task]


def by_time(examples: Mapping[str, list[Example]], project: str) -> Tested:
    """Weights of the earlier half of both projects, on the later half of one."""
    weights = fit({name: [one for one in part if one.place < middle(part)] for name, part in examples.items()})
    late = [example for example in examples[project] if example.is_task and example.place >= middle(examples[project])]
    return [(example, score(example, weights)) for example in late]


def middle(examples: Sequence[Example]) -> int:
    """Return the place of the session that halves the tasks."""
    places = sorted(example.place for example in examples if example.is_task)
    return places[len(places) // 2]


def by_fifths(examples: Mapping[str, list[Example]], project: str) -> Tested:
    """Weights of everything but one fifth of the sessions, on this fifth."""
    places = sorted({example.place for example in examples[project]})
    tested: Tested = []
    for fold in range(FOLDS):
        part = set(places[fold * len(places) // FOLDS : (fold + 1) * len(places) // FOLDS])
        rest = {name: [one for one in examples[name] if name != project or one.place not in part] for name in examples}
        weights = fit(rest)
        tested += [(one, score(one, weights)) for one in examples[project] if one.is_task and one.place in part]
    return tested


def mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def interval(values: Sequence[float]) -> str:
    """95 % by resampling sessions."""
    draw = random.Random(1)
    means = sorted(mean(draw.choices(values, k=len(values))) for _ in range(ROUNDS))
    return f"[{means[int(0.025 * ROUNDS)]:+.2f}, {means[int(0.975 * ROUNDS)]:+.2f}]"


def measure(examples: Mapping[str, list[Example]], project: str) -> list[Figure]:
    name = NAMES[project]
    tasks = [example for example in examples[project] if example.is_task]
    late = [example for example in tasks if example.place >= middle(examples[project])]
    found: list[Figure] = []

    def add(title: str, values: Sequence[float], goal: Goal | None = None) -> None:
        found.append(Figure(f"{name}: hidden@10, {title} {interval(values)}", mean(values), "share", len(values), goal))

    tests = {"weights of the other project": by_project, "weights without this fifth": by_fifths}
    for title, test in tests.items():
        tested = test(examples, project)
        add(title, [value for _, value in tested], GOALS[name])
        best = max(tasks[0].simple, key=lambda simple: mean([hidden(one, one.simple[simple]) for one in tasks]))
        gain = [value - hidden(one, one.simple[best]) for one, value in tested]
        add(f"{title}, more than the best simple order ({best})", gain, at_least(0))
    add("shipped weights", [score(one, FILE_WEIGHTS) for one in tasks])
    no_branch = {view: 0.0 if view.startswith("branch") else weight for view, weight in FILE_WEIGHTS.items()}
    add("shipped weights, no branch known", [score(one, no_branch) for one in tasks])
    for simple in tasks[0].simple:
        add(simple, [hidden(one, one.simple[simple]) for one in tasks])
    for text in tasks[0].said:
        add(text, [one.said[text] for one in tasks])
    late_values = by_time(examples, project)
    add("later half, weights of the earlier half", [value for _, value in late_values], at_least(0.57))
    for simple in tasks[0].simple:
        add(f"later half, {simple}", [hidden(one, one.simple[simple]) for one in late])
    return found


# --- the program -----------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only-new-weights", action="store_true", help="fit the weights and print them")
    options = parser.parse_args()
    if problem := turns.missing():
        print(problem)
        return 0
    try:
        import numpy  # noqa: F401
    except ImportError:
        print("numpy is not installed (the extra `vectors`): nothing measured")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        setting = figures.setting(Path(folder))
        examples = {project: asyncio.run(gather_examples(project, Path(folder, project))) for project in turns.PROJECTS}
    weights = fit(examples)
    print("weights of both projects:", json.dumps(weights, indent=4))
    if options.only_new_weights:
        return 0
    if weights != FILE_WEIGHTS:
        print("these are not the weights in recall/rank.py: what is measured of the shipped ones is out of date")
    found = [figure for project in examples for figure in measure(examples, project)]
    print(figures.as_text(found))
    figures.write(RESULTS / "files_to_come", "At a prompt: the files to come", found, setting)
    return int(any(figure.missed for figure in found))


if __name__ == "__main__":
    sys.exit(main())
