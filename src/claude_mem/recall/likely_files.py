"""Predict which files a session will edit, from its prompt and from the files that earlier sessions touched.

No single sign is good on every project: on one, the files of similar work come next, on another the files that are
edited all the time. Several views each score the files from 0 to 1, and `rank.FILE_WEIGHTS` adds them up. They are
fitted by `bench/files_to_come.py`, which tests them on the project and on the sessions that they were not fitted on.

Recency is counted in sessions, never in time: neither a holiday nor a clock that jumps changes the order.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from claude_mem.domain import words
from claude_mem.recall.rank import FILE_WEIGHTS, FILES_FLOOR, MAX_PROMPT_CHARS, SearchCandidate
from claude_mem.storage.base import Transaction
from claude_mem.storage.records import FileTouch, SearchFilter

MEMORY_TURNS = 800  # the newest turns, whose files are considered: more would cost a prompt more than it gains
READ_SHARE = 0.5  # weight of a file that a similar session only read, relative to an edited one
READ_SHARE_OF_TURN = 0.3
SESSION_POWER, TURN_POWER = 2, 3  # of the similarity: how much more the most similar ones count
TURN_DECAY, RECENT_DECAY, BRANCH_DECAY = 0.95, 0.9, 0.9  # per session
LAST_DECAY, LAST_SESSIONS = 0.6, 3
SEEDS, NAMED_SEED = 10, 3.0  # files whose companions are likely too; how much more a named one counts
RARE_EDITS = 2  # added to how often a file was edited, so that one common edit is no evidence
LEAST_STEM = 5  # characters of a file name without suffix, for a word of the prompt to mean that file
DEFAULT_BRANCHES = frozenset({"", "HEAD", "main", "master", "trunk", "develop"})  # on which any work is done

Scores = dict[str, float]
Key = TypeVar("Key", int, str)

_OUTSIDE = re.compile(r"/|~|\.\./|[A-Za-z]:")
_TEST_AFFIX = re.compile(r"^test_|[._-]?(?:test|spec|tests)$")
_NAME = re.compile(r"(?<![\w-])[\w-]{5,60}(?![\w-])")
_NO_LETTER = re.compile(r"[^a-z0-9]")


@dataclass(frozen=True, slots=True)
class PromptSigns:
    """What is known at a prompt: its text, how similar earlier turns are (0 to 1), and the branch of the work tree."""

    prompt: str
    similarity: Mapping[int, float]
    branch: str = ""


@dataclass(slots=True)
class FileHistory:
    """Which files the sessions of a project touched. The age of a session is the number of sessions after it."""

    ages: dict[int, int] = field(default_factory=dict)
    edited: defaultdict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    read: defaultdict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    touches: list[FileTouch] = field(default_factory=list)
    turn_sizes: Counter[int] = field(default_factory=Counter)
    edit_counts: Counter[str] = field(default_factory=Counter)
    branches: Mapping[int, Collection[str]] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)


def gather_history(tx: Transaction, where: SearchFilter) -> FileHistory:
    """Return the files of the newest turns in scope."""
    touches = tx.search.list_touched_files(where, most_turns=MEMORY_TURNS)
    history = arrange(touches)
    history.branches = tx.memory.list_session_branches(list(history.ages))
    return history


def arrange(touches: Iterable[FileTouch]) -> FileHistory:
    """Arrange touches, oldest first, by session. Files outside the project are left out."""
    history = FileHistory(touches=[touch for touch in touches if not _OUTSIDE.match(touch.value)])
    paths: dict[str, None] = {}
    for touch in history.touches:
        paths[touch.value] = None
        if touch.kind == "edited":
            history.edited[touch.session_id][touch.value] += touch.times
            history.turn_sizes[touch.turn_id] += 1
        else:
            history.read[touch.session_id].add(touch.value)
    newest_first = dict.fromkeys(touch.session_id for touch in reversed(history.touches))
    history.ages = {session: age for age, session in enumerate(newest_first)}
    for edited in history.edited.values():
        history.edit_counts.update(edited.keys())
    history.paths = list(paths)
    return history


def is_predictable(ranked: Sequence[SearchCandidate]) -> bool:
    """Return whether a prompt is about anything that is known. Otherwise a list of files would be noise."""
    return max((candidate.evidence for candidate in ranked), default=0.0) >= FILES_FLOOR


def signs_of(prompt: str, ranked: Sequence[SearchCandidate], branch: str) -> PromptSigns:
    """Return the signs of a prompt whose similar turns were ranked."""
    similarity = relative({candidate.group: candidate.score for candidate in ranked})
    text = prompt[:MAX_PROMPT_CHARS].replace("\\", "/")  # paths of Windows
    return PromptSigns(text, similarity, "" if branch in DEFAULT_BRANCHES else branch)


def predict(signs: PromptSigns, history: FileHistory, *, limit: int) -> list[str]:
    """Return the files that a prompt probably concerns, likeliest first, without those that it names."""
    named_paths = find_named(signs.prompt, history.paths)
    total: defaultdict[str, float] = defaultdict(float)
    for name, view in score_views(signs, history, named_paths=named_paths).items():
        for path, score in view.items():
            total[path] += FILE_WEIGHTS[name] * score
    return sorted(total.keys() - named_paths, key=lambda path: (-total[path], path))[:limit]


def score_views(signs: PromptSigns, history: FileHistory, *, named_paths: Collection[str]) -> dict[str, Scores]:
    """Return the score of each file in each view, from 0 to 1."""
    views = {
        "similar sessions": relative(_of_similar_sessions(signs, history)),
        "similar turns": relative(_of_similar_turns(signs, history)),
        "recent": relative(_of_recent_sessions(history, decay=RECENT_DECAY)),
        "last": relative(_of_recent_sessions(history, decay=LAST_DECAY, most=LAST_SESSIONS)),
    }
    return views | {
        "edited with likely": relative(_edited_with(_choose_seeds(views.values(), named_paths), history)),
        "edited with named": relative(_edited_with(dict.fromkeys(named_paths, 1.0), history)),
        "same name": dict.fromkeys(_with_names(_names_in(signs.prompt), history.paths), 1.0),
        "beside named": dict.fromkeys(_with_stems({stem(path) for path in named_paths}, history.paths), 1.0),
        "path words": _of_words(words.search_terms(signs.prompt), history.paths),
        "branch": relative(_of_branch(signs.branch, history)),
        "branch words": _of_branch_words(signs.branch, history.paths),
    }


def relative(scores: Mapping[Key, float]) -> dict[Key, float]:
    """Scale scores so that the best is 1."""
    max_score = max(scores.values(), default=0.0) or 1.0
    return {key: score / max_score for key, score in scores.items()}


# --- similar and recent work -----------------------------------------------------------------------------------------


def _of_similar_sessions(signs: PromptSigns, history: FileHistory) -> Scores:
    """Whole sessions predict better than turns, because a first prompt rarely names what the session will touch."""
    nearest: defaultdict[int, float] = defaultdict(float)
    for touch in history.touches:
        nearest[touch.session_id] = max(nearest[touch.session_id], signs.similarity.get(touch.turn_id, 0.0))
    totals: defaultdict[str, float] = defaultdict(float)
    for session, similarity in nearest.items():
        weight, edited = similarity**SESSION_POWER, history.edited.get(session, Counter())
        if weight:
            for path, times in edited.items():
                totals[path] += weight * (1 + 0.3 * math.log1p(times))
            for path in history.read.get(session, set()) - edited.keys():
                totals[path] += weight * READ_SHARE
    return totals


def _of_similar_turns(signs: PromptSigns, history: FileHistory) -> Scores:
    """A turn that edited many files says less about each of them, and a recent one more."""
    totals: defaultdict[str, float] = defaultdict(float)
    for touch in history.touches:
        if similarity := signs.similarity.get(touch.turn_id):
            share = 1.0 if touch.kind == "edited" else READ_SHARE_OF_TURN
            size = math.sqrt(max(1, history.turn_sizes[touch.turn_id]))
            totals[touch.value] += share * similarity**TURN_POWER * TURN_DECAY ** history.ages[touch.session_id] / size
    return totals


def _of_recent_sessions(history: FileHistory, *, decay: float, most: int = 1_000) -> Scores:
    totals: defaultdict[str, float] = defaultdict(float)
    for session, edited in history.edited.items():
        if (age := history.ages[session]) < most:
            for path in edited:
                totals[path] += decay**age
    return totals


def _choose_seeds(views: Iterable[Scores], named_paths: Collection[str]) -> Scores:
    """Return the likeliest files so far, among them those that the prompt names."""
    totals: defaultdict[str, float] = defaultdict(float, dict.fromkeys(named_paths, NAMED_SEED))
    for view in views:
        for path, score in view.items():
            totals[path] += score
    best = sorted(totals, key=lambda path: (-totals[path], path))[:SEEDS]
    return {path: totals[path] for path in best}


def _edited_with(seeds: Mapping[str, float], history: FileHistory) -> Scores:
    """Return how strongly files were edited in the same sessions as these."""
    totals: defaultdict[str, float] = defaultdict(float)
    for edited in history.edited.values() if seeds else ():
        if weight := sum(seeds.get(path, 0.0) for path in edited):
            for path in edited:
                totals[path] += weight / math.sqrt(len(edited))
    return {path: score / (RARE_EDITS + history.edit_counts[path]) for path, score in totals.items()}


# --- names and words -------------------------------------------------------------------------------------------------


def find_named(prompt: str, paths: Collection[str]) -> frozenset[str]:
    """Return the files that a prompt names: by their path, by its end, or by an absolute path that ends with it."""
    names_by_file: defaultdict[str, set[str]] = defaultdict(set)
    for name in words.find_paths(prompt):
        names_by_file[name.rpartition("/")[2]].add("/" + name)
    return frozenset(
        path for path in paths for name in names_by_file.get(path.rpartition("/")[2], ()) if _is_same("/" + path, name)
    )


def _is_same(path: str, name: str) -> bool:
    return path.endswith(name) or (path.count("/") > 1 and name.endswith(path))


@lru_cache(maxsize=8_192)
def stem(path: str) -> str:
    """Return the name of a file without its suffix and without what marks it as a test."""
    return _TEST_AFFIX.sub("", path.rpartition("/")[2].partition(".")[0])


@lru_cache(maxsize=8_192)
def _bare(name: str) -> str:
    """Return a name without its style, so that `SelectionBar`, `selection_bar` and `selection-bar` are equal."""
    return _NO_LETTER.sub("", name.lower())


def _names_in(prompt: str) -> frozenset[str]:
    return frozenset(_bare(name) for name in _NAME.findall(prompt))


def _with_names(names: Collection[str], paths: Iterable[str]) -> Iterator[str]:
    """Yield the files whose name is a word of the prompt: a class is often alone in a file of its name."""
    for path in paths:
        bare = _bare(path.rpartition("/")[2].partition(".")[0])
        if len(bare) >= LEAST_STEM and bare in names:
            yield path


def _with_stems(stems: Collection[str], paths: Iterable[str]) -> Iterator[str]:
    """Yield the files with these stems: the test of a file, its header, its styles."""
    yield from (path for path in paths if stems and stem(path) in stems)


@lru_cache(maxsize=8_192)
def _terms(path: str) -> frozenset[str]:
    """Return the words of a path without its suffix, which prompts mention with any file."""
    folder, _, name = path.rpartition("/")
    return frozenset(words.search_terms(f"{folder}/{name.partition('.')[0] or name}"))


def _of_words(terms: Collection[str], paths: Sequence[str]) -> Scores:
    """Return the share of each path's words that the prompt has too; a word of many paths counts little."""
    prompt_terms, path_terms = set(terms), {path: _terms(path) for path in paths}
    common = Counter(term for own in path_terms.values() for term in own)
    weights = {term: math.log(1 + len(paths) / count) for term, count in common.items()}
    return {
        path: sum(weights[term] for term in sorted(both)) / sum(weights[term] for term in sorted(own))
        for path, own in path_terms.items()
        if (both := own & prompt_terms)
    }


# --- the branch ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1_024)
def _branch_terms(branch: str) -> frozenset[str]:
    """Return the words of a branch's name without its first part, which names a person or a kind of work."""
    return frozenset(words.search_terms(branch.rpartition("/")[2]))


def _of_branch(branch: str, history: FileHistory) -> Scores:
    """Return the files of sessions on the same branch, or on one with a similar name."""
    totals: defaultdict[str, float] = defaultdict(float)
    terms = _branch_terms(branch) if branch else frozenset()
    for session, names in history.branches.items() if branch else ():
        others = [name for name in names if name not in DEFAULT_BRANCHES]
        likeness = max((_likeness(branch, terms, other) for other in others), default=0.0)
        if likeness and session in history.edited:
            for path in history.edited[session]:
                totals[path] += likeness * BRANCH_DECAY ** history.ages[session]
    return totals


def _likeness(branch: str, terms: frozenset[str], other: str) -> float:
    if branch == other:
        return 1.0
    other_terms = _branch_terms(other)
    return len(terms & other_terms) / (1 + len(terms | other_terms))


def _of_branch_words(branch: str, paths: Iterable[str]) -> Scores:
    terms = _branch_terms(branch) if branch else frozenset()
    return {path: len(both) / len(terms) for path in paths if terms and (both := _terms(path) & terms)}
