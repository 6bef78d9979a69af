"""Find out whether the code that memories speak of still stands, and what became of the work they describe.

A look compares the telling lines of each anchor with the files of one work tree; a file whose time and size are the
same as at the last look is not read again. At the start of a session only files are looked at, within a few
milliseconds. After each turn git's objects are read as well, for renames and outcomes. Files and repositories are
untrusted: see `untrusted_files` and `git_objects`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from claude_mem.domain import anchors, ids
from claude_mem.domain.anchors import Outcome
from claude_mem.storage.sqlite.engine import Connection, Database
from claude_mem.storage.sqlite.memory import anchors as store
from claude_mem.storage.sqlite.memory.anchors import Look, StoredAnchor, StoredOutcome
from claude_mem.system import git_files, untrusted_files
from claude_mem.system.git_objects import CommitInfo, GitObjects

MAX_FILE_BYTES = 2 << 20
START_RECORDS, START_SECONDS = 400, 0.015
MAX_RECORDS, MAX_SECONDS = 5_000, 20.0
MAX_HISTORY_CHECKS, MAX_COMMITS = 60, 400  # of observations whose lines are nowhere; commits searched for each
MAX_RENAME_CANDIDATES = 40
DAY_MS = 86_400_000
COMMIT_MS = 14 * DAY_MS  # work that is in no commit after this time was dropped
_ENDED = (Outcome.DROPPED, Outcome.REVERTED)
_IN_COMMIT = (Outcome.COMMITTED, Outcome.LANDED)


# --- files of a work tree --------------------------------------------------------------------------------------------


def look_at_files(
    root: str, items: Iterable[StoredAnchor], *, seconds: float, paths: Collection[str] = ()
) -> list[Look]:
    """Compare anchors with the files of a work tree and return what changed since the last look.

    `paths` are the files of the commit that is checked out: missing files are searched among them. If not one of the
    files is there, and none ever was, this is not the checkout that the memories speak of: nothing is known.
    """
    deadline = time.monotonic() + seconds
    by_path: defaultdict[str, list[StoredAnchor]] = defaultdict(list)
    for item in items:
        by_path[item.path].append(item)
    real_root = os.path.realpath(root)
    names = _RenameIndex(paths)
    looks: list[Look] = []
    for path, group in by_path.items():
        if time.monotonic() > deadline:
            break
        looks += _look_at_path(real_root, path, group, names)
    was_seen = any(item.stamp for group in by_path.values() for item in group)
    return looks if was_seen or any(look.stamp for look in looks) else []


def _look_at_path(root: str, path: str, group: Sequence[StoredAnchor], names: _RenameIndex) -> Iterator[Look]:
    stamp = _stamp(root, path)
    if stamp:
        changed = [item for item in group if item.stamp != stamp or item.moved_to]
        lines = _read_hashes(root, path) if changed else None
        if lines is not None:
            yield from (Look(item.id, stamp, anchors.match_lines(item.lines, lines)) for item in changed)
        return
    for item in group:
        moved_stamp = _stamp(root, item.moved_to) if item.moved_to else ""
        if moved_stamp and moved_stamp == item.stamp:
            continue
        look = _find_moved(root, item, names)
        if item.stamp is None or (look.stamp, look.moved_to) != (item.stamp, item.moved_to):
            yield look


def _find_moved(root: str, item: StoredAnchor, names: _RenameIndex) -> Look:
    """Return a look at the file that now contains most lines of an anchor whose file is missing."""
    last_path = (item.moved_to,) if item.moved_to else ()
    best = Look(item.id, "", 0)
    for path in (*last_path, *names.candidates(item.path)):
        stamp = _stamp(root, path)
        lines = _read_hashes(root, path) if stamp else None
        present = anchors.match_lines(item.lines, lines or ())
        if present.bit_count() * 2 >= len(item.lines) and present.bit_count() > best.present.bit_count():
            best = Look(item.id, stamp, present, path)
    return best


class _RenameIndex:
    """The files of a tree by name and by directory, to find where a missing file may be now."""

    def __init__(self, paths: Collection[str]) -> None:
        self._paths = paths
        self._by_name: defaultdict[str, list[str]] | None = None
        self._by_folder: defaultdict[tuple[str, str], list[str]] = defaultdict(list)

    def candidates(self, path: str) -> list[str]:
        """Return files with the same name, then files with the same suffix in the same directory."""
        if self._by_name is None:
            self._by_name = defaultdict(list)
            for other in self._paths:
                folder, _, name = other.rpartition("/")
                self._by_name[name].append(other)
                self._by_folder[folder, Path(name).suffix].append(other)
        folder, _, name = path.rpartition("/")
        same_name = [other for other in self._by_name.get(name, ()) if other != path]
        beside = self._by_folder.get((folder, Path(name).suffix), ())
        return list(dict.fromkeys((*same_name, *beside)))[:MAX_RENAME_CANDIDATES]


def _stamp(root: str, path: str) -> str:
    """Return the modification time and size of a regular file inside the work tree; "" if there is none."""
    if not _is_inside(root, path):
        return ""
    try:
        status = os.lstat(f"{root}/{path}")
    except (OSError, ValueError):
        return ""
    return f"{status.st_mtime_ns}:{status.st_size}" if status.st_mode & 0o170000 == 0o100000 else ""


def _is_inside(root: str, path: str) -> bool:
    """Return whether a stored path is a file of the work tree, without passing through links or `.git`."""
    parts = path.split("/")
    if path.startswith(("/", "~")) or not path or ".." in parts or ".git" in parts or "\0" in path:
        return False
    folder = f"{root}/{path}".rpartition("/")[0]
    return os.path.realpath(folder) == folder


def _read_hashes(root: str, path: str) -> frozenset[bytes] | None:
    """Return the hashes of a file's lines; None if the file can't be read or is too large."""
    try:
        content = untrusted_files.read(Path(root, path), most=MAX_FILE_BYTES)
    except OSError:
        return None
    return anchors.hash_lines(content.decode("utf-8", "replace"))


# --- outcomes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of an observation's work, the commit that shows it, and the anchors of which commits had more
    lines."""

    observation_id: int
    outcome: Outcome
    commit: str = ""
    anchors: tuple[StoredAnchor, ...] = ()


def judge_outcomes(
    git: GitObjects, items: Sequence[StoredAnchor], outcomes: Sequence[StoredOutcome], *, head: str, now: int
) -> list[Verdict]:
    """Return what changed, by comparing the lines with HEAD, the default branch and recent history.

    Work that ended is only looked for in the newest commits: it may have been taken up again.
    """
    by_observation: defaultdict[int, list[StoredAnchor]] = defaultdict(list)
    for item in items:
        if item.kind == "edit":
            by_observation[item.observation_id].append(item)
    default = git.default_branch() or head
    hashes = _tip_hashes(git, [item for group in by_observation.values() for item in group], (default, head))
    verdicts: list[Verdict] = []
    checks = 0
    for outcome in outcomes:
        group = by_observation.get(outcome.observation_id, [])
        state, commit, updated = _present_outcome(group, hashes, default=default, head=head)
        if _needs_history(group, outcome, state, now=now):
            if checks >= MAX_HISTORY_CHECKS:
                continue
            checks += 1
            past, past_commit, updated = _past_outcome(git, updated, outcome, now=now)
            state, commit = (state, commit) if state else (past, past_commit)
        news = tuple(item for item, before in zip(updated, group, strict=True) if item.committed != before.committed)
        if state and (state != outcome.outcome or news):
            verdicts.append(Verdict(outcome.observation_id, state, commit, news))
    return verdicts


def _tip_hashes(git: GitObjects, items: Sequence[StoredAnchor], commits: Sequence[str]) -> dict[str, frozenset[bytes]]:
    """Return the line hashes of the anchored files at these commits, by `COMMIT:PATH`."""
    paths = sorted({item.moved_to or item.path for item in items})
    blobs = git.read_blobs([f"{commit}:{path}" for commit in dict.fromkeys(commits) for path in paths])
    lines_of_anchors = _anchored_lines(items)
    return {spec: _hash_lines(content) & lines_of_anchors for spec, content in blobs.items()}


def _anchored_lines(items: Iterable[StoredAnchor]) -> frozenset[bytes]:
    """Return the hashes that matter: those of all lines of many versions of a file would fill the memory."""
    return frozenset(line for item in items for line in item.lines)


def _hash_lines(content: bytes) -> frozenset[bytes]:
    return anchors.hash_lines(content.decode("utf-8", "replace"))


def _needs_history(group: Sequence[StoredAnchor], outcome: StoredOutcome, state: Outcome, *, now: int) -> bool:
    """Return whether history must be searched: for lines that are nowhere now, and once for old work of which only
    commits of its time tell how much was committed."""
    if not group or outcome.outcome in _ENDED:
        return False
    is_old = outcome.outcome not in _IN_COMMIT and now - outcome.created_at > DAY_MS
    return is_old or not (state or _is_in_work_tree(group))


def mark_committed(group: Sequence[StoredAnchor], committed: Mapping[str, Collection[bytes]]) -> list[StoredAnchor]:
    """Return the anchors of an observation, with the lines marked that a commit has. `committed`: its lines by path."""
    return [
        replace(item, committed=item.committed | anchors.match_lines(item.lines, committed.get(item.path, ())))
        for item in group
    ]


def _present_outcome(
    group: Sequence[StoredAnchor], hashes: dict[str, frozenset[bytes]], *, default: str, head: str
) -> tuple[Outcome, str, list[StoredAnchor]]:
    """Return the outcome that the newest commits show, with the commit, and the anchors with their lines marked."""
    state, commit, updated = Outcome.UNKNOWN, "", list(group)
    for tip, outcome in ((default, Outcome.LANDED), (head, Outcome.COMMITTED)):
        lines = {item.path: hashes.get(f"{tip}:{item.moved_to or item.path}", frozenset()) for item in group}
        if not state and store.is_committed(mark_committed([replace(item, committed=0) for item in group], lines)):
            state, commit = outcome, tip
        updated = mark_committed(updated, lines)
    return state, commit, updated


def _is_in_work_tree(group: Sequence[StoredAnchor]) -> bool:
    return sum(item.present.bit_count() for item in group) * 2 >= sum(len(item.lines) for item in group)


def _past_outcome(
    git: GitObjects, group: Sequence[StoredAnchor], outcome: StoredOutcome, *, now: int
) -> tuple[Outcome, str, list[StoredAnchor]]:
    """Return the outcome of lines that are neither in the work tree nor in the newest commits, with the commit that
    shows it, and the anchors with all lines marked that a commit of the time had.

    If some commit had them, they were replaced later, or taken back if that happened soon. If none had them, the work
    was dropped.
    """
    since, until = outcome.created_at - DAY_MS, outcome.created_at + COMMIT_MS
    period = (f"--since=@{since // 1000}", f"--until=@{until // 1000}")
    commits = git.list_commits("--all", "--topo-order", *period, most=MAX_COMMITS)  # the newest first
    by_commit = _lines_at(git, group, commits)
    bare = [replace(item, committed=0) for item in group]
    holders = [commit for commit in commits if store.is_committed(mark_committed(bare, by_commit[commit.id]))]
    updated = list(group)
    for lines in by_commit.values():
        updated = mark_committed(updated, lines)
    if not holders:
        return *_unfound_outcome(commits, outcome, now=now), list(group)
    first, last = holders[-1], holders[0]
    later = commits[: commits.index(last)]
    reverting = next((commit for commit in later if _reverts(commit, holders)), None)
    if reverting:
        return Outcome.REVERTED, reverting.id, updated
    if later and later[-1].at - first.at <= DAY_MS and outcome.outcome == Outcome.LANDED:
        return Outcome.REVERTED, later[-1].id, updated
    return Outcome.COMMITTED if outcome.outcome != Outcome.LANDED else Outcome.LANDED, last.id, updated


def _unfound_outcome(commits: Sequence[CommitInfo], outcome: StoredOutcome, *, now: int) -> tuple[Outcome, str]:
    """Return "dropped" if the history was searched in full; with too many commits or none, nothing is claimed."""
    if outcome.outcome in _IN_COMMIT or len(commits) >= MAX_COMMITS:
        return Outcome.UNKNOWN, ""
    is_known = bool(commits) or now - outcome.created_at < COMMIT_MS
    return (Outcome.DROPPED, "") if is_known else (Outcome.UNKNOWN, "")


def _lines_at(
    git: GitObjects, group: Sequence[StoredAnchor], commits: Sequence[CommitInfo]
) -> dict[str, dict[str, frozenset[bytes]]]:
    """Return the line hashes of an observation's files at each commit, by path."""
    paths = [item.path for item in group]
    blobs = git.read_blobs([f"{commit.id}:{path}" for commit in commits for path in paths])
    lines_of_anchors = _anchored_lines(group)
    hashed = {content: _hash_lines(content) & lines_of_anchors for content in set(blobs.values())}
    return {
        commit.id: {path: hashed[blobs[spec]] for path in paths if (spec := f"{commit.id}:{path}") in blobs}
        for commit in commits
    }


def _reverts(commit: CommitInfo, holders: Sequence[CommitInfo]) -> bool:
    subject = commit.subject
    return subject.lower().startswith("revert") and any(
        holder.subject and holder.subject in subject for holder in holders
    )


# --- the two moments -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Inspection:
    head: str
    branch: str
    looks: list[Look]
    verdicts: list[Verdict]


async def refresh_at_start(db: Database, project_id: int, root: str) -> list[Look]:
    """Look at the files that the newest memories speak of, within a few milliseconds, and return what changed.

    The caller stores the result after the session was answered.
    """
    if not root:
        return []
    observation_ids = await db.read(store.list_anchored_ids, project_id, limit=START_RECORDS)
    items = await db.read(store.list_anchors, observation_ids, root)
    return await asyncio.to_thread(look_at_files, root, items, seconds=START_SECONDS)


async def refresh_project(db: Database, project_id: int, root: str) -> int:
    """Look at all files that a project's memories speak of, and at its commits. Return the number of changed states."""
    if not root or not await asyncio.to_thread(os.path.isdir, root):
        return 0
    observation_ids = await db.read(store.list_anchored_ids, project_id, limit=MAX_RECORDS)
    items = await db.read(store.list_anchors, observation_ids, root)
    outcomes = await db.read(store.list_outcomes, observation_ids)
    if not items:
        return 0
    inspection = await asyncio.to_thread(_inspect, root, items, outcomes)
    if not (inspection.looks or inspection.verdicts or inspection.head):
        return 0
    await db.write(_store_inspection, root, inspection, project_id=project_id, now=ids.now_ms())
    return len(inspection.looks) + len(inspection.verdicts)


def _inspect(root: str, items: Sequence[StoredAnchor], outcomes: Sequence[StoredOutcome]) -> _Inspection:
    tree = git_files.find_work_tree(Path(os.path.realpath(root)))
    git = GitObjects(str(tree.root)) if tree and tree.git_dir else None
    head, branch = git.head() if git else ("", "")
    is_missing = any(not _stamp(os.path.realpath(root), item.path) for item in items)
    paths = git.list_paths(head) if git and head and is_missing else ()
    looks = look_at_files(root, items, seconds=MAX_SECONDS, paths=paths)
    anchors_now = store.apply_looks(items, looks)
    verdicts = judge_outcomes(git, anchors_now, outcomes, head=head, now=ids.now_ms()) if git and head else []
    return _Inspection(head, branch, looks, verdicts)


def _store_inspection(conn: Connection, root: str, inspection: _Inspection, *, project_id: int, now: int) -> None:
    for verdict in inspection.verdicts:
        store.record_committed_lines(conn, verdict.anchors)
        store.record_outcome(conn, verdict.observation_id, verdict.outcome, commit=verdict.commit, now=now)
    store.record_looks(conn, root, inspection.looks, commit=inspection.head)
    if inspection.head:
        store.record_head(conn, project_id, head=inspection.head, branch=inspection.branch, since=now - 10 * 60_000)
