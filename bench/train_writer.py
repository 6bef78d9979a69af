"""Learns the local writer's weights from judged turns: which line titles a record, of which type, and whether at all.

    python bench/train_writer.py            cross-validate and print
    python bench/train_writer.py --answers  what a threshold for the titles of answers would give
    python bench/train_writer.py --write    learn from everything and write src/claude_mem/data/writer.toml

Two sources, both about real turns that are not part of this project: reference memories with their titles (the data
folder's `memories/dev.jsonl`), and `bench/labels.jsonl`, where readers scored composed titles 0 (noise), 1 (weak) or 2
(wanted at the next session's start). The labels hold no one's words, only hashes of titles. Folds are by session; the
figures are given per project, because what is tuned on one project may fail on the next. A quarter of the sessions, chosen
by a hash of their ids, is never learned from: turns of those are for blind judging.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import turns

from claude_mem.digest import classify, ranking
from claude_mem.digest.candidates import TitleCandidate, candidates
from claude_mem.digest.prose import content_words
from claude_mem.digest.subjects import Story
from claude_mem.digest.writer import build_story
from claude_mem.domain.records import Turn

HERE = Path(__file__).parent
LABELS = HERE / "labels.jsonl"
FOLDS = 5
HELD_OUT = "0123"  # first digits of the hashes of sessions that are kept for judging
TITLE_L2, TEMPERATURE = 2.0, 0.15
TYPE_L2, WORTH_L2 = 3.0, 1.0
Array = Any
Weights = dict[str, dict[str, float]]


@dataclass
class Row:
    """A judged turn."""

    project: str
    session: str
    turn: Turn
    types: list[str]  # of its reference memories; none: it leaves nothing behind
    titles: list[str]  # of the same, where they are known
    useful: Mapping[str, int]  # judged titles, by hash

    @cached_property
    def story(self) -> Story:
        return build_story(self.turn)

    @cached_property
    def candidates(self) -> list[TitleCandidate]:
        return candidates(self.story)

    @cached_property
    def values(self) -> list[dict[str, float]]:
        return [ranking.features(candidate, self.story) for candidate in self.candidates]

    @cached_property
    def scores(self) -> Array:
        """Return each candidate's judged score, 0 to 2; NaN: not judged."""
        return np.array([self.useful.get(hashed(one.title), np.nan) for one in self.candidates], float)

    @cached_property
    def overlaps(self) -> Array:
        """Return how alike each candidate is to the best of the reference titles (F1 of words)."""
        wanted = [content_words(title) for title in self.titles]
        return np.array(
            [
                max((overlap(content_words(one.title), words) for words in wanted), default=np.nan)
                for one in self.candidates
            ],
            float,
        )


def hashed(title: str) -> str:
    return hashlib.blake2b(title.lower().encode(), digest_size=6).hexdigest()


def is_held_out(session: str) -> bool:
    return hashlib.sha256(session.encode()).hexdigest()[0] in HELD_OUT


def overlap(one: frozenset[str], other: frozenset[str]) -> float:
    both = len(one & other)
    return 2 * both / (len(one) + len(other)) if both else 0.0


def load() -> list[Row]:
    known = {project: dict(turns.sessions(project)) for project in turns.PROJECTS}
    references = {}
    for line in (turns.DATA / "memories" / "dev.jsonl").read_text("utf-8").splitlines():
        judged = json.loads(line)
        references[judged["session"], judged["number"]] = [one["title"] for one in judged["references"]]
    rows = []
    for line in LABELS.read_text("utf-8").splitlines():
        label = json.loads(line)
        if is_held_out(label["session"]):
            continue
        turn = known[label["project"]][label["session"]][label["number"] - 1]
        titles = references.get((label["session"], label["number"]), [])
        rows.append(Row(label["project"], label["session"], turn, label["types"], titles, label["useful"]))
    return [row for row in rows if row.candidates]


# --- learning --------------------------------------------------------------------------------------------------------


def targets(rows: Sequence[Row]) -> list[Array]:
    """Return how much each candidate is wanted, 0 to 1: as judged, else as its likeness to a reference title suggests."""
    pairs = [(like, score / 2) for row in rows for like, score in zip(row.overlaps, row.scores, strict=True)]
    known = np.array([pair for pair in pairs if not np.isnan(pair).any()])
    slope, base = np.polyfit(known[:, 0], known[:, 1], 1)
    found = []
    for row in rows:
        guess = np.clip(base + slope * row.overlaps, 0, 1) * 0.85
        found.append(np.where(np.isnan(row.scores), np.nan_to_num(guess, nan=0.25), np.nan_to_num(row.scores) / 2))
    return found


def matrix(values: Sequence[Mapping[str, float]], names: Sequence[str]) -> Array:
    return np.array([[one.get(name, 0.0) for name in names] for one in values])


def ascend(shape: tuple[int, ...], gradient: Any, steps: int = 500, rate: float = 0.1) -> Array:
    """Maximize a concave function by its gradient (Adam, with a falling rate)."""
    weights, mean, square = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for step in range(steps):
        slope = gradient(weights)
        mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
        weights += rate * mean / (np.sqrt(square) + 1e-6) * (1 - step / steps)
    return weights


def softmax(values: Array) -> Array:
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def learn_titles(rows: Sequence[Row]) -> dict[str, float]:
    """Learn to order a turn's candidates: listwise, so that turns of many candidates weigh no more than others."""
    worth = [(row, wanted) for row, wanted in zip(rows, targets(rows), strict=True) if row.types and len(wanted) > 1]
    names = sorted({name for row, _ in worth for one in row.values for name in one})
    lists = [(matrix(row.values, names), softmax(wanted / TEMPERATURE)) for row, wanted in worth]

    def gradient(weights: Array) -> Array:
        return sum(values.T @ (wanted - softmax(values @ weights)) for values, wanted in lists) - TITLE_L2 * weights

    return dict(zip(names, ascend((len(names),), gradient), strict=True))


def learn_types(rows: Sequence[Row], titles: Mapping[str, float]) -> Weights:
    named = [row for row in rows if row.types]
    values = [classify.features(row.story, best(row, titles)[1].title) for row in named]
    names = sorted({name for one in values for name in one})
    known, right = matrix(values, names), np.zeros((len(named), len(classify.TYPES)))
    for number, row in enumerate(named):
        right[number, classify.TYPES.index(row.types[0])] = 1
    weights = ascend(
        (len(names), len(classify.TYPES)),
        lambda now: known.T @ (right - softmax(known @ now)) - TYPE_L2 * now,
        rate=0.05,
    )
    return {f"type {kind}": dict(zip(names, weights[:, at], strict=True)) for at, kind in enumerate(classify.TYPES)}


def learn_worth(rows: Sequence[Row], titles: Mapping[str, float]) -> dict[str, float]:
    values = []
    for row in rows:
        rank, candidate = best(row, titles)
        values.append(classify.worth_features(row.story, candidate.title, rank))
    names = sorted(values[0])
    known, right = matrix(values, names), np.array([float(bool(row.types)) for row in rows])
    weights = ascend(
        (len(names),), lambda now: known.T @ (right - 1 / (1 + np.exp(-known @ now))) - WORTH_L2 * now, rate=0.05
    )
    return dict(zip(names, weights, strict=True))


def learn(rows: Sequence[Row]) -> Weights:
    titles = learn_titles(rows)
    return {"title": titles, "worth": learn_worth(rows, titles), **learn_types(rows, titles)}


def best(row: Row, titles: Mapping[str, float]) -> tuple[float, TitleCandidate]:
    found = [
        (ranking.sureness(one, row.story), ranking.score(values, titles), number)
        for number, (one, values) in enumerate(zip(row.candidates, row.values, strict=True))
    ]
    _, rank, number = max(found)
    return rank, row.candidates[number]


# --- measuring -------------------------------------------------------------------------------------------------------


def folds(rows: Sequence[Row], seed: int = 0) -> dict[str, int]:
    """Return which fold each session belongs to."""
    sessions = sorted({row.session for row in rows})
    random.Random(seed).shuffle(sessions)
    return {session: number % FOLDS for number, session in enumerate(sessions)}


def cross_validate(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return figures per project, each turn decided by weights that were learned without its session."""
    fold = folds(rows)
    tallies: dict[str, dict[str, list[float]]] = {project: {} for project in turns.PROJECTS}
    for number in range(FOLDS):
        weights = learn([row for row in rows if fold[row.session] != number])
        ranking.weights = lambda weights=weights: weights  # type: ignore[assignment]
        for row in rows:
            if fold[row.session] == number:
                _judge(tallies[row.project], row, weights)
    return {
        project: {name: float(np.mean(values)) for name, values in tally.items()} for project, tally in tallies.items()
    }


def _judge(tally: dict[str, list[float]], row: Row, weights: Weights) -> None:
    rank, candidate = best(row, weights["title"])
    kept = classify.is_worth_keeping(row.story, candidate.title, rank)
    tally.setdefault("needless records a turn", []).append(float(kept and not row.types))
    if not row.types:
        return
    tally.setdefault("missed", []).append(float(not kept))
    tally.setdefault("type", []).append(float(classify.record_type(row.story, candidate.title) in row.types))
    score = row.useful.get(hashed(candidate.title))
    if score is not None:
        tally.setdefault("title useful (2 of 2)", []).append(float(score == 2))
        tally.setdefault("title useless (0 of 2)", []).append(float(score == 0))


def answer_frontier(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Return per project what titles of turns without work are worth above each threshold of the ranker's score, and the
    share of turns worth remembering that would be left without a title."""
    fold = folds(rows)
    answers: dict[str, list[tuple[float, int, bool]]] = {project: [] for project in turns.PROJECTS}
    for number in range(FOLDS):
        weights = learn([row for row in rows if fold[row.session] != number])
        ranking.weights = lambda weights=weights: weights  # type: ignore[assignment]
        for row in rows:
            if fold[row.session] != number or row.story.worked:
                continue
            rank, candidate = best(row, weights["title"])
            score = row.useful.get(hashed(candidate.title))
            if score is not None and classify.is_worth_keeping(row.story, candidate.title, rank):
                answers[row.project].append((rank, score, bool(row.types)))
    return {project: _frontier(found) for project, found in answers.items() if found}


def _frontier(found: Sequence[tuple[float, int, bool]]) -> list[str]:
    lines = []
    for share in (0.0, 0.2, 0.4, 0.6, 0.8):
        threshold = np.quantile([rank for rank, _, _ in found], share)
        scores = [score for rank, score, _ in found if rank >= threshold]
        worth = [rank < threshold for rank, _, is_worth in found if is_worth]
        useful, useless = np.mean([score == 2 for score in scores]), np.mean([score == 0 for score in scores])
        lines.append(
            f"≥ {threshold:.2f}: {len(scores)} titles, useful {useful:.2f}, useless {useless:.2f}, missed {np.mean(worth):.2f}"
        )
    return lines


def as_toml(weights: Weights) -> str:
    lines = [
        "# Learned by bench/train_writer.py from judged turns; not written by hand. Names as in digest/ranking.py and kinds.py."
    ]
    for table, values in weights.items():
        lines += ["", f'["{table}"]' if " " in table else f"[{table}]"]
        lines += [f"{json.dumps(name)} = {value:.2f}" for name, value in sorted(values.items()) if abs(value) >= 0.005]
    return "\n".join(lines) + "\n"


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--write", action="store_true", help="write the weights that the package uses")
    cli.add_argument("--answers", action="store_true", help="only what a threshold for answers would give")
    options = cli.parse_args()
    if why := turns.missing():
        print(why)
        return 0
    rows = load()
    if options.answers:
        for project, lines in answer_frontier(rows).items():
            print(project, *lines, sep="\n  ")
        return 0
    for project, figures in cross_validate(rows).items():
        print(project, *(f"{name} {value:.3f}" for name, value in figures.items()), sep="\n  ")
    if options.write:
        ranking.WEIGHTS.write_text(as_toml(learn(rows)), "utf-8")
        print(f"written: {ranking.WEIGHTS.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
