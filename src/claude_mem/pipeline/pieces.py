"""Groups observations into pieces of work, so that the brief has one line for work that took several turns.

Each observation joins the piece of the nearest earlier observation about the same thing, or starts a new piece. The
decision depends only on earlier observations: a new observation extends or starts one piece and changes no other.
Distance is counted in sessions of the project, never in calendar time.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from claude_mem.pipeline import lines
from claude_mem.records import Type
from claude_mem.titles import is_presentable
from claude_mem.words import terms

Row = dict[str, Any]

LOOKED_BACK = 60  # earlier observations that are searched for a part of the same work
NEAR_SESSIONS = 2  # a piece continues within the next two sessions; later work is a new piece
SHARED_FILES = 0.5  # share of the smaller set of changed files, for two sessions to do the same work
SHARED_TERMS = 0.3  # share of the shorter title's terms, for two titles to have the same subject
NEAR_TURNS = 5  # a conversation continues within this many turns
# Prefixes of observation keys: a commit, a command that failed and then passed, and one that still failed at the end.
COMMITTED, FIXED, FAILS = "commit:", "fix:", "open:"
FOUND = "discovery"
WEIGHTS = {"feature": 3, "bugfix": 3, "refactor": 2, "change": 1, "discovery": 0}
OTHER_WEIGHT, COMMIT_WEIGHT = 2, 4
CUT_AT = 60  # version 0.1.0 cut long titles; a cut title with at least this many characters is no fragment
_TEST = re.compile(r"^test_|(?:_test|\.test|\.spec|-test|Test|Tests)$")
_LEAST_STEM = 5  # a shorter file name ("main", "util", "mod") is too common to identify the work


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of work: the observation that provides the title, and the others, the most informative first."""

    title: Row
    others: tuple[Row, ...]
    at: tuple[int, int]  # the newest observation: its time and its id
    session_id: int  # where the work began
    last_session: int = 0  # where the work continued last
    last_turn: int = 0
    is_telling: bool = True  # the title is informative

    @property
    def weight(self) -> int:
        return weight(self.title)


@dataclass(frozen=True, slots=True)
class _Features:
    """The features by which observations of the same work are recognised."""

    session_id: int
    turn: int
    commit: str
    changed: frozenset[str]
    files: frozenset[str]
    terms: frozenset[str]

    @property
    def is_talk(self) -> bool:
        return not self.changed and not self.commit


def pieces(rows: Sequence[Row]) -> list[Piece]:
    """Group observations into pieces of work, newest first. Pieces without a presentable title are left out; decisions
    and traps are not part of any piece."""
    ordered = sorted((row for row in rows if not is_knowledge(row)), key=age)
    features = [_features(row) for row in ordered]
    piece_indexes: list[int] = []
    members: defaultdict[int, list[Row]] = defaultdict(list)
    for index, row in enumerate(ordered):
        before = _predecessor(index, features)
        piece_indexes.append(index if before is None else piece_indexes[before])
        members[piece_indexes[index]].append(row)
    candidates = (_piece(group) for group in members.values())
    return sorted((piece for piece in candidates if piece), key=lambda piece: piece.at, reverse=True)


def _piece(group: Sequence[Row]) -> Piece | None:
    ranked = sorted(group, key=lambda row: (-weight(row) - lines.strength(line(row)), -row["created_at"], -row["id"]))
    last_work = max((age(row) for row in group if row["type"] != FOUND), default=(0, 0))
    current = (row for row in ranked if row["type"] != FOUND or is_chosen(row) or age(row) > last_work)
    informative = next(filter(is_telling, current), None)  # a discovery made before the work may no longer be true
    title = informative or next(filter(has_title, ranked), None)
    if title is None:
        return None
    others = tuple(row for row in ranked if row is not title)
    last = group[-1]
    at = {"at": age(last), "last_session": last["session_id"], "last_turn": last.get("prompt_number") or 0}
    return Piece(title, others, session_id=group[0]["session_id"], is_telling=bool(informative), **at)


def line(row: Row) -> str:
    """Return the title as it appears in the brief. Text that the user chose stays unchanged."""
    title = (row["title"] or "").strip()
    return title if is_chosen(row) else lines.shown(title)


def weight(row: Row) -> int:
    """Return how well an observation represents its piece of work; a failure that was fixed ranks last."""
    if row.get("key", "").startswith(FIXED):
        return -1
    return WEIGHTS.get(row["type"], OTHER_WEIGHT) + COMMIT_WEIGHT * is_commit(row)


def has_title(row: Row) -> bool:
    """Return whether the title can be shown: the user chose it, or it passes the check of `titles`."""
    title = _complete_title(row)
    return bool(title) if is_chosen(row) else is_presentable(title)


def is_telling(row: Row) -> bool:
    """Return whether the title is worth a line in a brief: the user chose it, or it passes the checks of `lines`."""
    title = _complete_title(row)
    if is_chosen(row):
        return bool(title)
    if is_knowledge(row):
        return lines.is_sound(title)
    return lines.is_telling(title, finding=row["type"] == FOUND)


def _complete_title(row: Row) -> str:
    title = line(row)
    return f"{title[:-1]}." if title.endswith("…") and len(title) >= CUT_AT else title


def is_chosen(row: Row) -> bool:
    """Return whether the user chose the words (a rule, a note) or the row (pinned, approved)."""
    is_by_user = row["type"] == Type.RULE or row.get("trust") == "user" or row.get("session_id") is None
    return is_by_user or row.get("verdict") == "approved" or bool(row.get("pinned"))


def is_knowledge(row: Row) -> bool:
    """Return whether a row is a decision, a trap or a memory saved on its own: worth knowing, but no piece of work."""
    is_trap = is_failure(row) or "gotcha" in row.get("concepts", ())
    return is_trap or row["type"] == "decision" or row.get("session_id") is None


def is_commit(row: Row) -> bool:
    return bool(row.get("commit_id")) or row.get("key", "").startswith(COMMITTED)


def is_failure(row: Row) -> bool:
    return bool(row.get("key", "").startswith(FAILS))


def age(row: Row) -> tuple[int, int]:
    return row["created_at"], row["id"]


# --- what belongs together -------------------------------------------------------------------------------------------


def _features(row: Row) -> _Features:
    changed = frozenset(feature for path in row.get("files_modified", ()) for feature in _file_features(path))
    read = frozenset(feature for path in row.get("files_read", ()) for feature in _file_features(path))
    return _Features(
        session_id=row.get("session_id") or 0,
        turn=row.get("prompt_number") or 0,
        commit=row.get("commit_id") or (row["key"] if is_commit(row) else ""),
        changed=changed,
        files=changed | read,
        terms=frozenset(terms(row["title"] or "")),
    )


def _file_features(path: str) -> tuple[str, ...]:
    """Return the path, and the name that a file shares with its tests."""
    stem = PurePosixPath(path).stem
    bare = _TEST.sub("", stem)
    return (path, bare) if len(bare) >= _LEAST_STEM else (path,)


def _predecessor(index: int, features: Sequence[_Features]) -> int | None:
    """Return the nearest earlier observation that belongs to the same piece of work."""
    own, between = features[index], set[int]()
    for before in range(index - 1, max(-1, index - 1 - LOOKED_BACK), -1):
        other = features[before]
        if other.session_id == own.session_id:
            if _same_in_session(own, other):
                return before
            continue
        between.add(other.session_id)
        if len(between) <= NEAR_SESSIONS and _same_in_sessions(own, other):
            return before
    return None


def _same_in_session(own: _Features, other: _Features) -> bool:
    """Return whether two observations of one session belong together.

    Work continues on the same files, a commit belongs to the work before it, and a conversation continues from answer
    to answer. Work and conversation belong together if they have the same subject.
    """
    if own.turn == other.turn or _same_commit(own, other) or _same_subject(own, other):
        return True
    if other.is_talk or own.is_talk:
        return other.is_talk and own.is_talk and own.turn - other.turn <= NEAR_TURNS
    return not own.changed or bool(own.files & other.files)


def _same_in_sessions(own: _Features, other: _Features) -> bool:
    fewer = min(len(own.changed), len(other.changed))
    files = bool(fewer) and len(own.changed & other.changed) >= SHARED_FILES * fewer
    return _same_commit(own, other) or (files and _same_subject(own, other))


def _same_commit(own: _Features, other: _Features) -> bool:
    return bool(own.commit) and own.commit == other.commit


def _same_subject(own: _Features, other: _Features) -> bool:
    shared = len(own.terms & other.terms)
    return shared >= 2 and shared >= SHARED_TERMS * min(len(own.terms), len(other.terms))
