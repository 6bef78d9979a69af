"""Train the weights of `data/secret_weights.txt`, and cross-validate them by author.

    python bench/secret_score.py train [--also SET.jsonl …]        # writes the file
    python bench/secret_score.py crossval [--also SET.jsonl …]     # weights without an author, on that author's sets

The examples are the sets of texts in `tests/support/shapes`, the innocent texts of `secret_corpus.py` (and of files as in `bench/secret_rules.py`, one author each),
passwords of words put in the place of theirs, and a sample of the texts of real sessions, which hold no secret. The
threshold is the score above which 0.5 % of innocent texts and no text of a session are altered by weights that were
trained without their authors. `crossval` redacts the texts of an author by the rules as they were when they met the
author's first set (`git archive`), and scores what is left; so it tells what to expect of the next author.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from claude_mem.privacy import secret_context, secret_score, secret_words  # noqa: E402
from tests.support import secret_corpus, secret_shapes  # noqa: E402
from tests.support.secret_corpus import pieces  # noqa: E402

DATA = Path(os.environ.get("CLAUDE_MEM_BENCH_DATA", ROOT.parent / "shared" / "data"))
SETS = {
    "first": ["", "later_", "last_"], "second": ["fourth_"], "third": ["fifth_", "sixth_", "seventh_", "eighth_"],
    "fourth": ["ninth_", "tenth_"], "fifth": ["eleventh_"], "sixth": ["twelfth_"],
}  # fmt: skip
# The rules before they met the sets of an author.
RULES_BEFORE = {"third": "ec9a17ae~1", "fourth": "6128b3dc", "sixth": "7113adda"}
SHARE_ALTERED = 0.01
FEATURES, ROUNDS, DECAY = 1_000, 120, 1e-4
SAMPLE = 5  # one record of so many of the real sessions
WORDLIST = re.compile(r"(?<![\w.`])[a-z]{4,9}(?![\w`(])")


@dataclass(slots=True)
class Case:
    """A text, its secrets, and its judged values with their features."""

    author: str
    group: str
    text: str
    secrets: list[str]
    innocent: bool
    raw: dict[str, Any] = field(default_factory=dict)
    spans: list[tuple[int, int]] = field(default_factory=list)
    rows: list[tuple[list[str], bool, float]] = field(default_factory=list)  # features, is a secret, weight
    is_altered: bool = False


# --- examples --------------------------------------------------------------------------------------------------------


def cases(also: list[Path]) -> list[Case]:
    found = []
    for author, names in SETS.items():
        for name in names:
            for kind in ("secrets", "innocent"):
                if (secret_shapes.FOLDER / f"{name}{kind}.txt").exists():
                    for shape in secret_shapes.read(f"{name}{kind}"):
                        raw = {"input": shape.body.input, "output": shape.body.output}
                        found.append(_case(author, name, raw, list(shape.secrets), innocent=kind == "innocent"))
    for kind, text in secret_corpus.negatives():
        raw = {"input": {"command": "make"}, "output": {"stdout": text}}
        found.append(_case("corpus", kind, raw, [], innocent=True))
    for path in also:
        for line in path.read_text("utf-8").splitlines():
            item = json.loads(line)
            text = item["text"]
            raw = {
                "input": {"command": "make"},
                "output": {"stdout": text} if isinstance(text, str) else {"content": text},
            }
            found.append(_case(path.parent.name, path.parent.name, raw, item["secrets"], innocent=item["innocent"]))
    return found


def _case(author: str, group: str, raw: dict[str, Any], secrets: list[str], *, innocent: bool) -> Case:
    case = Case(author, group, "", secrets, innocent, raw)
    case.text = flat(raw)
    return case


def flat(raw: dict[str, Any]) -> str:
    output, command = raw["output"], raw["input"].get("command", "make")
    if isinstance(output, dict) and all(isinstance(item, str) for item in output.values()):
        output = "\n".join(item for item in output.values() if item)
    elif (
        isinstance(output, dict)
        and set(output) == {"content"}
        and all(isinstance(item, str) for item in output["content"])
    ):
        output = "\n".join(output["content"])
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, indent=1)
    return text if command == "make" else f"$ {command}\n{text}"


def judged(text: str, *, all_values: bool) -> list[tuple[int, int]]:
    """Return the values of a text that are scored; with `all_values`, also those which the context gives away."""
    unsure: list[tuple[int, int]] = []
    edits = list(secret_context.context_edits(text, None, unsure))
    return secret_score.candidates(text, unsure + [edit[:2] for edit in edits] * all_values)


def describe(case: Case, words: list[str], chance: random.Random) -> None:
    """Fill in the rows of a case, with other passwords in the places of its own."""
    case.spans = judged(case.text, all_values=True)
    for start, end in case.spans:
        label = 0 if case.innocent else _label(case.text, case.secrets, start, end)
        if label is None:
            continue
        names = secret_score.features(case.text, start, end)
        case.rows.append((names, bool(label), 1.0 if label or case.innocent else 0.5))
        if label and end - start <= 40 and {"before best password", "before best pass", "behind password"} & set(names):
            for _ in range(2):
                value = password(words, chance, several=" " in case.text[start:end])
                text = case.text[:start] + value + case.text[end:]
                case.rows.append((secret_score.features(text, start, start + len(value)), True, 0.3))


def _label(text: str, secrets: list[str], start: int, end: int) -> int | None:
    """Return whether a value is a secret; None if it is a part of one, or more than one."""
    value, label = text[start:end], 0
    for secret in secrets:
        for part in [secret] if secret in text else [line for line in secret.splitlines() if len(line) > 5]:
            if part in value:
                return 1 if len(value) <= 1.6 * len(part) + 2 else None
            if value in part and len(value) >= min(12, 0.5 * len(part)):
                return 1
            at = text.find(part)
            if 0 <= at < end and at + len(part) > start:
                label = -1
    return None if label else 0


def password(words: list[str], chance: random.Random, *, several: bool) -> str:
    """Return a password of words, as people make them."""
    one, two, three = (chance.choice(words) for _ in range(3))
    if several:
        return " ".join(chance.choice(words) for _ in range(chance.choice([3, 4, 4, 5, 6])))
    number, joint = str(chance.randrange(1, 10 ** chance.choice([1, 2, 2, 3, 4]))), chance.choice("-_.!+#")
    changed = one.replace("e", "3", 1) if chance.random() < 0.5 else one.replace("o", "0", 1).replace("a", "4", 1)
    return chance.choice([
        one + two, one.title() + two.title(), one.title() + joint + two, one + joint + two + joint + three,
        one + joint + two.title() + number, one + number, changed + two.title(), one.title() + joint + two.title() + "!",
        one + "_" + two, one + two[:3], number + one + two.title(), one.title() + number + chance.choice("!?#$."),
    ])  # fmt: skip


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def session_rows(rest: int = 3) -> list[tuple[str, list[str]]]:
    """Return project and features of every judged value in a sample of the real sessions, none of which is a secret."""
    rows: dict[tuple[str, ...], str] = {}
    for project in ("sessions", "evaluator"):
        for path in sorted((DATA / project / "transcripts").glob("*.jsonl.gz")):
            for line in gzip.decompress(path.read_bytes()).splitlines():
                if SAMPLE > 1 and zlib.crc32(line) % SAMPLE != rest:
                    continue
                for text in strings(json.loads(line)):
                    for start, end in judged(text, all_values=False):
                        rows.setdefault(tuple(secret_score.features(text, start, end)), project)
    return [(project, list(names)) for names, project in rows.items()]


# --- logistic regression ---------------------------------------------------------------------------------------------

Rows = list[tuple[list[str], bool, float, str]]  # features, is a secret, weight, the set


def rows_of(some: Iterable[Case], sessions: list[tuple[str, list[str]]]) -> Rows:
    rows = [(names, label, weight, case.group) for case in some for names, label, weight in case.rows]
    return rows + [(names, False, 0.3, project) for project, names in sessions]


def fit(rows: Rows) -> dict[str, float]:
    """Return the weights of the features that matter most: those that occur in two sets, three times or more."""
    counts, groups = Counter[str](), defaultdict(set)
    for names, _, _, group in rows:
        for name in set(names):
            counts[name] += 1
            groups[name].add(group)
    vocabulary = ["bias", *sorted(name for name in counts if counts[name] >= 3 and len(groups[name]) >= 2)]
    first = _fit(rows, vocabulary)
    strongest = sorted(zip(vocabulary[1:], first[1:], strict=True), key=lambda item: -abs(item[1]))[:FEATURES]
    vocabulary = ["bias", *sorted(name for name, _ in strongest)]
    return dict(zip(vocabulary, (float(weight) for weight in _fit(rows, vocabulary)), strict=True))


def _fit(rows: Rows, vocabulary: list[str]) -> NDArray[np.float64]:
    """Minimize the logistic loss by Adam."""
    number = {name: at for at, name in enumerate(vocabulary)}
    encoded = [[0, *{number[name] for name in names if name in number}] for names, _, _, _ in rows]
    columns = np.array([column for row in encoded for column in row])
    lines = np.repeat(np.arange(len(rows)), [len(row) for row in encoded])
    label, share = np.array([row[1] for row in rows], float), np.array([row[2] for row in rows])
    share = share / share.sum()
    weights, mean, square = (np.zeros(len(vocabulary)) for _ in range(3))
    for step in range(1, ROUNDS + 1):
        total = np.bincount(lines, weights=weights[columns], minlength=len(rows))
        slope = share * (1 / (1 + np.exp(-total)) - label)
        gradient = np.bincount(columns, weights=slope[lines], minlength=len(weights)) + DECAY * weights
        mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
        rate = 0.1 if step < ROUNDS / 2 else 0.03
        weights -= rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-9)
    return weights


def total(weights: dict[str, float], names: Iterable[str]) -> float:
    return weights["bias"] + sum(weights.get(name, 0.0) for name in set(names))


def threshold(some: list[Case], sessions: list[tuple[str, list[str]]]) -> float:
    """Return the score above which no session and `SHARE_ALTERED` of innocent texts are altered by weights trained without them."""
    authors = sorted({case.author for case in some})
    folds = [authors[at::3] for at in range(3)]
    highest: list[float] = []
    of_sessions: list[float] = [0.0]
    for at, fold in enumerate(folds):
        weights = fit(rows_of((case for case in some if case.author not in fold), _without(sessions, at)))
        for case in some:
            if case.author in fold and case.innocent and case.author != "corpus":
                highest.append(max((total(weights, names) for names, _, _ in case.rows), default=-99.0))
        of_sessions += [total(weights, names) for _, names in sessions[at::3]]
    highest.sort(reverse=True)
    return max(highest[int(SHARE_ALTERED * len(highest))], max(of_sessions) + 0.25)


def _without(sessions: list[tuple[str, list[str]]], at: int) -> list[tuple[str, list[str]]]:
    return [row for number, row in enumerate(sessions) if number % 3 != at]


# --- commands --------------------------------------------------------------------------------------------------------

_CLEANER = """
import json, sys
sys.path[:0] = [sys.argv[1]]
from claude_mem.capture import sanitize
from claude_mem.config import Config
from claude_mem.domain.records import Event, ToolUsed
for line in sys.stdin:
    raw = json.loads(line)
    body = ToolUsed("Bash", raw["input"], raw["output"])
    body = sanitize.clean_event(Event(id="e1", host="claude", content_session_id="s1", at=0, body=body), Config()).body
    print(json.dumps({"input": body.input, "output": body.output}))
"""


def left_by_rules(some: list[Case], commit: str) -> list[Case]:
    """Return cases as the rules of a commit leave them."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        lines = "".join(json.dumps(case.raw) + "\n" for case in some).encode()
        done = subprocess.run(
            [sys.executable, "-c", _CLEANER, f"{folder}/src"], input=lines, check=True, capture_output=True
        )
    left = []
    for case, line in zip(some, done.stdout.splitlines(), strict=True):
        raw = json.loads(line)
        left.append(_case(case.author, case.group, raw, case.secrets, innocent=case.innocent))
        left[-1].is_altered = raw != case.raw
    return left


def outcome(some: list[Case], weights: dict[str, float], least: float) -> tuple[str, str]:
    """Return recall and altered innocent texts, as percentages: of the rules, and of the rules with the weights."""
    secret = [case for case in some if not case.innocent]
    innocent = [case for case in some if case.innocent]
    by_rules = sum(_leaks(case, case.text) for case in secret)
    left = sum(_leaks(case, _redacted(case, weights, least)) for case in secret)
    altered = sum(case.is_altered for case in innocent)
    also = sum(case.is_altered or _redacted(case, weights, least) != case.text for case in innocent)
    return _figures(secret, by_rules, innocent, altered), _figures(secret, left, innocent, also)


def _figures(secret: list[Case], missed: int, innocent: list[Case], altered: int) -> str:
    recall, share = 100 - 100 * missed / len(secret), 100 * altered / len(innocent)
    return (
        f"{recall:.1f} % found, {share:.1f} % altered ({len(secret) - missed}/{len(secret)}, {altered}/{len(innocent)})"
    )


def _leaks(case: Case, text: str) -> bool:
    return any(piece in text for secret in case.secrets for piece in pieces(secret))


def _redacted(case: Case, weights: dict[str, float], least: float) -> str:
    text = case.text
    for start, end in reversed(judged(text, all_values=True)):
        if total(weights, secret_score.features(text, start, end)) >= least:
            text = f"{text[:start]}[redacted]{text[end:]}"
    return text


def main() -> None:
    options = _options()
    words = sorted(
        {word for page in sorted((ROOT / "docs").glob("*.md")) for word in WORDLIST.findall(page.read_text())}
    )
    words = [word for word in words if secret_words.is_chosen(word + "xyz") and not secret_words.common_share(word)]
    some, chance = cases(options.also), random.Random(5)
    for case in some:
        describe(case, words, chance)
    sessions = session_rows()
    print(f"{len(some)} texts, {sum(len(case.rows) for case in some)} values, {len(sessions)} of sessions")
    if options.command == "train":
        write(fit(rows_of(some, sessions)), threshold(some, sessions))
        return
    before = {**RULES_BEFORE, **dict(item.split("=", 1) for item in options.before)}
    for author, commit in before.items():
        own = [case for case in some if case.author == author]
        others = [case for case in some if case.author not in (author, *options.without.get(author, ()))]
        if own:
            least, weights = threshold(others, sessions), fit(rows_of(others, sessions))
            by_rules, with_weights = outcome(left_by_rules(own, commit), weights, least)
            print(f"{author}: rules {by_rules}; with weights {with_weights}; threshold {least:.2f}", flush=True)


def write(weights: dict[str, float], least: float) -> None:
    lines = [f"{weight:.2f} {name}" for name, weight in sorted(weights.items()) if abs(weight) >= 0.05]
    head = "# Weights of `privacy/secret_score.py`, written by `python bench/secret_score.py train`.\n"
    secret_score.FILE.write_text(f"{head}{least:.2f} threshold\n" + "\n".join(lines) + "\n", "utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train or cross-validate the weights of values near nouns of secrets.")
    parser.add_argument("command", choices=["train", "crossval"])
    parser.add_argument("--also", type=Path, nargs="*", default=[], help="further sets, as files of JSON lines")
    parser.add_argument("--before", nargs="*", default=[], help="AUTHOR=COMMIT: the rules that had not met an author")
    parser.add_argument("--without", type=json.loads, default={}, help='also leave out, as JSON: {"author": ["…"]}')
    return parser.parse_args()


if __name__ == "__main__":
    main()
