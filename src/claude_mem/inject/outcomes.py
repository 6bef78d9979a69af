"""Judge what became of the work that memories describe, by the lines that commits have.

Evidence that work landed weighs more than its absence: the turn's own commit on the default branch, a commit of the
same subject there, or the lines themselves. Work is only called dropped if every commit of its time is known and none
has a trace of it, and only called reverted if a commit says so, restored the files, or removed the lines and put
nothing in their place. Lines that were replaced were reworked; that is a matter of freshness, not of the outcome.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from claude_mem.domain import anchors
from claude_mem.domain.anchors import Outcome
from claude_mem.storage.records import StoredAnchor, StoredOutcome, is_committed, is_in_work_tree
from claude_mem.system.git_objects import CommitInfo, GitObjects

HISTORY_SECONDS = 20.0  # that a look spends on commits; the rest is judged by the next look
MAX_COMMITS = 400  # commits searched for each observation
MAX_WALK = 20_000  # commits that are listed
MAX_CHANGES = 400  # of the default branch's commits of a file, to find the one that brought the lines
MAX_CHANGED_FILES = 100  # of a commit that are searched for lines that moved
DAY_MS = 86_400_000
TURN_MS = DAY_MS // 8  # a turn may commit so long before its end; what was in a commit before is not its work
COMMIT_MS = 14 * DAY_MS  # work that is in no commit after this time was dropped
TRACE_SHARE = 0.1  # of the lines of work: a commit that brought as many took some of the work
REPLACED_RATIO = 10  # a commit that removed this many times more lines than it added replaced nothing
_ENDED = (Outcome.DROPPED, Outcome.REVERTED)
_IN_COMMIT = (Outcome.COMMITTED, Outcome.LANDED)
_COMMIT_ID = re.compile(r"[0-9a-f]{7,40}")

Lines = Mapping[str, Collection[bytes]]  # line hashes by path


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of an observation's work, the commit that shows it, and the anchors of which commits had more
    lines."""

    observation_id: int
    outcome: Outcome
    commit: str = ""
    anchors: tuple[StoredAnchor, ...] = ()


def judge_outcomes(
    git: GitObjects,
    items: Sequence[StoredAnchor],
    outcomes: Sequence[StoredOutcome],
    *,
    head: str,
    now: int,
    seconds: float = HISTORY_SECONDS,
) -> list[Verdict]:
    """Return what changed, by comparing the lines with HEAD, the default branch and recent history.

    Work that ended is only looked for in the newest commits: it may have been taken up again. The newest work of which
    no commit is known comes first, because a look reads history for a limited time.
    """
    by_observation: defaultdict[int, list[StoredAnchor]] = defaultdict(list)
    for item in items:
        if item.kind == anchors.EDIT:
            by_observation[item.observation_id].append(item)
    default = git.default_branch() or head
    edits = [item for group in by_observation.values() for item in group]
    past = PastCommits(git, default, LineVersions(git, edits))
    past.versions.read([default, head], {item.moved_to or item.path for item in edits})
    verdicts: list[Verdict] = []
    deadline = time.monotonic() + seconds
    for outcome in sorted(outcomes, key=lambda one: (one.outcome in _IN_COMMIT, bool(one.commit_id), -one.created_at)):
        group = by_observation.get(outcome.observation_id, [])
        if group and (verdict := _judge(past, group, outcome, head=head, now=now, deadline=deadline)):
            verdicts.append(verdict)
    return verdicts


def _judge(
    past: PastCommits, group: Sequence[StoredAnchor], outcome: StoredOutcome, *, head: str, now: int, deadline: float
) -> Verdict | None:
    state, updated = _present_outcome(past, group, head=head)
    commit = outcome.commit_id if state == outcome.outcome else ""
    if _needs_history(group, outcome, state, now=now) and time.monotonic() < deadline:
        past_state, commit, updated = _past_outcome(past, updated, outcome, state, now=now)
        state = state or past_state
    news = tuple(item for item, before in zip(updated, group, strict=True) if item != before)
    is_new = state != outcome.outcome or bool(commit and not outcome.commit_id)
    return Verdict(outcome.observation_id, state, commit, news) if state and (is_new or news) else None


def _needs_history(group: Sequence[StoredAnchor], outcome: StoredOutcome, state: Outcome, *, now: int) -> bool:
    """Return whether history must be searched: for lines that are nowhere now, for the commit that brought them, and
    once for old work of which only commits of its time tell how much was committed."""
    is_committed_now = bool(state)
    if outcome.outcome in _ENDED and not is_committed_now:
        return False
    is_unnamed = is_committed_now and (state != outcome.outcome or not outcome.commit_id)
    is_old = outcome.outcome not in _IN_COMMIT and now - outcome.created_at > DAY_MS
    return is_unnamed or is_old or not (is_committed_now or is_in_work_tree(group))


def mark_committed(group: Sequence[StoredAnchor], committed: Lines, *, is_default: bool = False) -> list[StoredAnchor]:
    """Return the anchors of an observation, with the lines marked that a commit has. `committed`: its lines by path;
    `is_default`: it belongs to the default branch."""
    matches = [anchors.match_lines(item.lines, committed.get(item.path, ())) for item in group]
    return [
        replace(item, committed=item.committed | lines, landed=item.landed | (lines if is_default else 0))
        for item, lines in zip(group, matches, strict=True)
    ]


def has_committed(group: Sequence[StoredAnchor], committed: Lines) -> bool:
    """Return whether one commit has enough lines of an observation for its work to count as committed."""
    bare = [replace(item, committed=0) for item in group]
    return is_committed(mark_committed(bare, committed))


def _present_outcome(
    past: PastCommits, group: Sequence[StoredAnchor], *, head: str
) -> tuple[Outcome, list[StoredAnchor]]:
    """Return the outcome that the newest commits show, and the anchors with their lines marked."""
    state, updated = Outcome.UNKNOWN, list(group)
    for tip, outcome in ((past.default, Outcome.LANDED), (head, Outcome.COMMITTED)):
        now = {item.moved_to or item.path for item in group}
        (present,) = past.versions.read([tip], now).values()
        lines = {item.path: present.get(item.moved_to or item.path, frozenset()) for item in group}
        if not state and has_committed(group, lines):
            state = outcome
        updated = mark_committed(updated, lines, is_default=tip == past.default)
    return state, updated


# --- history ---------------------------------------------------------------------------------------------------------


class LineVersions:
    """The anchored lines of files at commits. Each version of a file is read once, and only hashes that matter are
    held: those of all lines of many versions would fill the memory."""

    def __init__(self, git: GitObjects, items: Iterable[StoredAnchor]) -> None:
        self._git = git
        self._anchored = frozenset(line for item in items for line in item.lines)
        self._blobs: dict[str, str] = {}  # by `COMMIT:PATH`; "" if there is none
        self._lines: dict[str, frozenset[bytes]] = {}  # by blob

    def read(self, commits: Iterable[str], paths: Collection[str]) -> dict[str, dict[str, frozenset[bytes]]]:
        """Return the line hashes of these files at each commit, by path. Files that can't be read are left out."""
        commits = list(dict.fromkeys(commits))
        ordered = sorted(paths)
        new = [spec for commit in commits for path in ordered if (spec := f"{commit}:{path}") not in self._blobs]
        sizes = self._git.find_blobs(new)
        self._blobs |= dict.fromkeys(new, "") | {spec: blob for spec, (blob, _) in sizes.items()}
        unread = {blob: size for blob, size in sizes.values() if blob not in self._lines}
        for blob, content in self._git.read_contents(unread):
            self._lines[blob] = anchors.hash_content(content) & self._anchored
        return {
            commit: {path: self._lines[blob] for path in ordered if (blob := self._blob(commit, path)) in self._lines}
            for commit in commits
        }

    def differ(self, commit: str, other: str, paths: Collection[str]) -> bool:
        """Return whether one of these files differs between two commits."""
        self.read([commit, other], paths)
        return any(self._blob(commit, path) != self._blob(other, path) for path in paths)

    def _blob(self, commit: str, path: str) -> str:
        return self._blobs.get(f"{commit}:{path}", "")


class PastCommits:
    """The newest commits of all branches, listed once when they are first needed. Of a shallow or partial clone they
    are never all.

    Clocks of authors may be wrong, so a commit may belong to any time from its own to that of its newest ancestor.
    """

    def __init__(self, git: GitObjects, default: str, versions: LineVersions) -> None:
        self.git, self.default, self.versions = git, default, versions
        self._commits: list[CommitInfo] | None = None
        self._is_incomplete = False
        self._latest: dict[str, int] = {}
        self._landed: frozenset[str] = frozenset()

    def within(self, since: int, until: int) -> tuple[list[CommitInfo], bool]:
        """Return the commits of a time, the newest first, and whether these are all. Of too many, these are the oldest:
        work is usually committed soon."""
        commits = self._list()
        inside = [commit for commit in commits if commit.at <= until and self._latest[commit.id] >= since]
        is_listed = len(commits) < MAX_WALK or self._latest[commits[-1].id] < since
        is_complete = is_listed and len(inside) <= MAX_COMMITS and not self._is_incomplete
        return inside[-MAX_COMMITS:], is_complete

    def reaches(self, commit: CommitInfo, since: int) -> bool:
        """Return whether a commit may be from this time or later."""
        self._list()
        return self._latest.get(commit.id, commit.at) >= since

    def is_on_default(self, commit: CommitInfo) -> bool:
        """Return whether a commit is reachable from the default branch."""
        return commit.id in self._landed

    def find(self, prefix: str) -> CommitInfo | None:
        """Return the only commit whose id begins so."""
        if not _COMMIT_ID.fullmatch(prefix):
            return None
        matches = [commit for commit in self._list() if commit.id.startswith(prefix)]
        return matches[0] if len(matches) == 1 else None

    def changes(self, commit: CommitInfo, paths: Collection[str]) -> bool:
        """Return whether a commit changed one of these files."""
        return self.versions.differ(commit.id, commit.parents[0] if commit.parents else "", paths)

    def _list(self) -> list[CommitInfo]:
        if self._commits is None:
            self._commits = self.git.list_commits("--all", "--topo-order", most=MAX_WALK)
            for commit in reversed(self._commits):
                newest = max((self._latest.get(parent, 0) for parent in commit.parents), default=0)
                self._latest[commit.id] = max(commit.at, newest)
            self._landed = self._ancestors()
            self._is_incomplete = self.git.is_incomplete()
        return self._commits

    def _ancestors(self) -> frozenset[str]:
        parents = {commit.id: commit.parents for commit in self._commits or ()}
        ancestors, waiting = set[str](), [self.default]
        while waiting:
            commit = waiting.pop()
            if commit in parents and commit not in ancestors:
                ancestors.add(commit)
                waiting += parents[commit]
        return frozenset(ancestors)


def _past_outcome(
    past: PastCommits, group: Sequence[StoredAnchor], outcome: StoredOutcome, state: Outcome, *, now: int
) -> tuple[Outcome, str, list[StoredAnchor]]:
    """Return the outcome that the commits of the time of the work show, with the commit that brought the work or took
    it back, and the anchors with all lines marked that one of these commits had. `state`: what the newest commits show.

    If some commit had the work, the work was replaced later, or taken back. If none had a trace, it was dropped.
    """
    commits, is_complete = past.within(outcome.created_at - DAY_MS, outcome.created_at + COMMIT_MS)
    paths = {item.path for item in group}
    by_commit = past.versions.read([name for commit in commits for name in (commit.id, *commit.parents)], paths)
    holders = [commit for commit in commits if has_committed(group, by_commit[commit.id])]
    since = outcome.created_at - TURN_MS
    bringers = [commit for commit in _find_bringers(group, commits, holders, by_commit) if past.reaches(commit, since)]
    bringers += _claimed_commits(past, commits, bringers, outcome, paths)
    bringers.sort(key=lambda commit: commit.at)  # a rebase makes copies; the first is the work itself
    landings = [commit for commit in bringers if past.is_on_default(commit)]
    was_landed = outcome.outcome == Outcome.LANDED or bool(landings) or any(map(past.is_on_default, holders))
    if not (holders or bringers):
        is_known = is_complete and (bool(commits) or now - outcome.created_at < COMMIT_MS)
        is_dropped = is_known and outcome.outcome not in _IN_COMMIT and _is_gone(group)
        is_dropped = is_dropped and not _has_trace(group, commits, by_commit)
        name = _bringer_of_landed(past, group, outcome) if state else ""
        return Outcome.DROPPED if is_dropped else Outcome.UNKNOWN, name, list(group)
    updated = list(group)
    for commit in commits:
        updated = mark_committed(updated, by_commit[commit.id], is_default=past.is_on_default(commit))
    if not state and (end := _end_of(past, group, commits, holders, landings)):
        return Outcome.REVERTED, end.id, updated
    is_landed = state == Outcome.LANDED or was_landed
    if is_landed and not landings:
        name = _bringer_of_landed(past, group, outcome)
    else:
        first = (landings if is_landed else bringers) or holders[-1:]
        name = first[0].id
    return Outcome.LANDED if is_landed else Outcome.COMMITTED, name, updated


def _find_bringers(
    group: Sequence[StoredAnchor],
    commits: Sequence[CommitInfo],
    holders: Sequence[CommitInfo],
    by_commit: Mapping[str, Lines],
) -> list[CommitInfo]:
    """Return the commits that brought the work, the oldest first: none of their parents had it. If there is none, the
    one that brought most of it, because enough of its lines were there before, or those that brought a part."""
    whole = [
        commit
        for commit in reversed(holders)
        if not any(has_committed(group, by_commit[parent]) for parent in commit.parents)
    ]
    if holders:
        return whole or _brings_most(group, holders, by_commit)
    return [commit for commit in reversed(commits) if _brings_part(_count_new(group, commit, by_commit))]


def _brings_most(
    group: Sequence[StoredAnchor], commits: Sequence[CommitInfo], by_commit: Mapping[str, Lines]
) -> list[CommitInfo]:
    """Return the commit that brought most lines, the oldest of several; none if no commit brought any."""
    counts = {commit: sum(new for _, new in _count_new(group, commit, by_commit)) for commit in reversed(commits)}
    best = max(counts, key=lambda commit: counts[commit], default=None)
    return [best] if best and counts[best] else []


def _count_new(
    group: Sequence[StoredAnchor], commit: CommitInfo, by_commit: Mapping[str, Lines]
) -> list[tuple[int, int]]:
    """Return the number of an observation's lines in each file, and of those that a commit brought."""
    now, before = by_commit[commit.id], [by_commit[parent] for parent in commit.parents]
    return [(len(item.lines), sum(_is_new(line, item.path, now, before) for line in item.lines)) for item in group]


def _brings_part(counts: Sequence[tuple[int, int]]) -> bool:
    """Return whether a commit brought a part of the work: half of the lines in one file, or some of all."""
    total, new = sum(total for total, _ in counts), sum(new for _, new in counts)
    in_one_file = any(new * 2 >= total and new > 1 for total, new in counts)
    return in_one_file or (new >= anchors.MIN_LINES and new >= total * TRACE_SHARE)


def _is_new(line: bytes, path: str, now: Lines, before: Iterable[Lines]) -> bool:
    return line in now.get(path, ()) and not any(line in lines.get(path, ()) for lines in before)


def _claimed_commits(
    past: PastCommits,
    commits: Sequence[CommitInfo],
    bringers: Sequence[CommitInfo],
    outcome: StoredOutcome,
    paths: Collection[str],
) -> list[CommitInfo]:
    """Return the turn's own commit, and those of the same subject on the default branch as the commits that are known
    to have brought the work (a rebase or a squash keeps the subject), if they changed the files."""
    own = past.find(outcome.own_commit)
    if own and not past.changes(own, paths):
        own = None
    own_subjects = [commit.subject for commit in (*bringers, *([own] if own else []))]
    subjects = {_plain_subject(subject) for subject in (*own_subjects, outcome.own_subject) if subject} - {""}
    same = [
        commit
        for commit in reversed(commits)
        if past.is_on_default(commit) and _plain_subject(commit.subject) in subjects and past.changes(commit, paths)
    ]
    return [commit for commit in dict.fromkeys((*([own] if own else []), *same)) if commit not in bringers]


def _plain_subject(subject: str) -> str:
    """Return a commit's subject without the number that a squash adds; "" if it is too short to tell commits apart."""
    plain = re.sub(r"\(#\d+\)$", "", subject.strip()).strip().lower()
    return plain if len(plain.split()) >= 3 else ""


def _is_gone(group: Sequence[StoredAnchor]) -> bool:
    """Return whether the work tree has neither the lines nor what they say. One or two lines prove nothing."""
    was_seen = all(item.stamp is not None for item in group)
    return was_seen and anchors.judge([item.sight(item.all_lines) for item in group]) in anchors.STALE


def _has_trace(group: Sequence[StoredAnchor], commits: Iterable[CommitInfo], by_commit: Mapping[str, Lines]) -> bool:
    """Return whether a commit brought any line of the work."""
    return any(any(new for _, new in _count_new(group, commit, by_commit)) for commit in commits)


def _bringer_of_landed(past: PastCommits, group: Sequence[StoredAnchor], outcome: StoredOutcome) -> str:
    """Return the commit by which work came to the default branch, however late; "" if that is not known."""
    largest = max(group, key=lambda item: len(item.lines))
    changes = past.git.list_changes(past.default, largest.moved_to or largest.path, most=MAX_WALK)
    later = [commit for commit in changes if past.reaches(commit, outcome.created_at - TURN_MS)][-MAX_CHANGES:]
    paths = {item.path for item in group} | {item.moved_to for item in group if item.moved_to}
    names = [name for commit in later for name in (commit.id, *commit.parents)]
    by_commit = {
        commit: {item.path: lines.get(item.path) or lines.get(item.moved_to, frozenset()) for item in group}
        for commit, lines in past.versions.read(names, paths).items()
    }
    return next((commit.id for commit in _brings_most(group, later, by_commit)), "")


# --- the end of work -------------------------------------------------------------------------------------------------


def _end_of(
    past: PastCommits,
    group: Sequence[StoredAnchor],
    commits: Sequence[CommitInfo],
    holders: Sequence[CommitInfo],
    landings: Sequence[CommitInfo],
) -> CommitInfo | None:
    """Return the commit that took work back: it says so, it removed the lines within a day of their landing and put
    nothing in their place, or it restored the files."""
    had = {commit.id for commit in holders}
    removals = [
        commit for commit in commits if commit.id not in had and len(commit.parents) == 1 and commit.parents[0] in had
    ]
    for commit in removals:
        if commit.subject.lower().startswith("revert") and any(
            holder.subject and holder.subject in commit.subject for holder in holders
        ):
            return commit
    for commit in removals:
        is_soon = bool(landings) and 0 <= commit.at - landings[0].at <= DAY_MS
        if is_soon and past.is_on_default(commit) and _only_removes(past, commit, group, landings[0]):
            return commit
    return _restoring_commit(past, group, landings)


def _only_removes(past: PastCommits, commit: CommitInfo, group: Sequence[StoredAnchor], landed: CommitInfo) -> bool:
    """Return whether a commit removed what `landed` had brought to an observation's files, and little else, put nothing
    in its place, and did not move it to another file."""
    paths = sorted({item.path for item in group})
    removed, added = _changed_lines(past.git, commit, paths)
    _, brought = _changed_lines(past.git, landed, paths)
    is_taken_back = len(removed & brought) * 2 >= len(removed) and len(added) * REPLACED_RATIO <= len(removed)
    return is_taken_back and not _has_moved_lines(past, commit, group)


def _changed_lines(git: GitObjects, commit: CommitInfo, paths: Iterable[str]) -> tuple[set[bytes], set[bytes]]:
    """Return the lines that a commit removed from these files and those that it added."""
    parent = commit.parents[0] if commit.parents else ""
    contents = git.read_blobs([f"{name}:{path}" for name in (parent, commit.id) for path in paths])
    removed, added = set[bytes](), set[bytes]()
    for path in paths:
        before, after = (anchors.hash_content(contents.get(f"{name}:{path}", b"")) for name in (parent, commit.id))
        removed |= before - after
        added |= after - before
    return removed, added


def _has_moved_lines(past: PastCommits, commit: CommitInfo, group: Sequence[StoredAnchor]) -> bool:
    """Return whether other files that a commit changed have at least half of the lines that it removed."""
    before, after = past.git.list_blobs(commit.parents[0]), past.git.list_blobs(commit.id)
    own = {item.path for item in group}
    others = [path for path, blob in after.items() if path not in own and before.get(path) != blob][:MAX_CHANGED_FILES]
    versions = past.versions.read([commit.parents[0], commit.id], {*own, *others})
    was = frozenset(line for path in own for line in versions[commit.parents[0]].get(path, ()))
    ours = frozenset(line for item in group for line in item.lines) & was
    moved = frozenset(line for path in others for line in versions[commit.id].get(path, ())) & ours
    return len(moved) * 2 >= len(ours)


def _restoring_commit(
    past: PastCommits, group: Sequence[StoredAnchor], landings: Sequence[CommitInfo]
) -> CommitInfo | None:
    """Return the commit that restored exactly what the files were before the work landed, however much later.

    A file that the work had created and that was deleted later does not show that: it may just not be needed any more.
    """
    landed = next(iter(landings), None)
    if landed is None or not landed.parents:
        return None
    paths = list(dict.fromkeys(item.path for item in group))
    moments = (landed.parents[0], landed.id, past.default)
    contents = past.git.read_blobs([f"{commit}:{path}" for commit in moments for path in paths])
    versions = {path: [contents.get(f"{commit}:{path}") for commit in moments] for path in paths}
    changed = {path: (before, now) for path, (before, during, now) in versions.items() if before != during}
    if any(before != now for before, now in changed.values()) or all(before is None for before, _ in changed.values()):
        return None
    return next(iter(past.git.list_changes(past.default, next(iter(changed)), most=1)), None)
