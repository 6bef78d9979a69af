"""Find out whether the code that memories speak of still stands, and what became of the work they describe.

A look compares the telling lines of each anchor with the files of one work tree; a file whose time and size are the
same as at the last look is not read again. At the start of a session only files are looked at, within a few
milliseconds. After each turn git's objects are read as well, for renames and outcomes. Files and repositories are
untrusted: see `untrusted_files` and `git_objects`.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import takewhile
from pathlib import Path

from claude_mem.domain import anchors, ids
from claude_mem.domain.errors import NotFound, OperationFailed
from claude_mem.inject.outcomes import Verdict, judge_outcomes
from claude_mem.storage.base import Database, Transaction
from claude_mem.storage.records import NOT_LOOKED_FOR, Look, StoredAnchor, StoredOutcome, apply_looks
from claude_mem.system import git_files, untrusted_files
from claude_mem.system.git_objects import GitObjects

MAX_FILE_BYTES = 2 << 20
START_RECORDS, START_SECONDS = 400, 0.015
MAX_RECORDS, MAX_SECONDS = 5_000, 20.0
MAX_RENAME_CANDIDATES = 40
MAX_NAME_CHARS = 250
COMMIT_FILES = 100  # of a commit that are read at once
RECENT_MS = 10 * 60_000  # work since then was done on the branch that is checked out now


# --- files of a work tree --------------------------------------------------------------------------------------------


def look_at_files(
    root: str,
    items: Iterable[StoredAnchor],
    *,
    seconds: float,
    paths: Collection[str] = (),
    list_paths: Callable[[], Collection[str]] | None = None,
) -> list[Look]:
    """Compare anchors with the files of a work tree and return what changed since the last look.

    `paths` are the files of the commit that is checked out: missing files are searched among them. `list_paths` returns
    files to search for what is missing since the last look, if there are no `paths`. If not one of the
    files is there, and none ever was, this is not the checkout that the memories speak of: nothing is known. Of a
    sparse checkout, nothing is known of the files that are not there. A file that changed and that there was no time to
    read is unknown: what was found in it before may be wrong now.
    """
    deadline = time.monotonic() + seconds
    by_path: defaultdict[str, list[StoredAnchor]] = defaultdict(list)
    for item in items:
        by_path[item.path].append(item)
    tree = _Tree(root)
    names = _RenameIndex(list_paths if list_paths and not paths else lambda: paths)
    looks: list[Look] = []
    for path, group in list(_changed_paths(tree, by_path, deadline=deadline, is_full=bool(paths))):
        if time.monotonic() < deadline:
            looks += _look_at_path(tree, path, group, names, deadline=deadline)
        else:
            looks += [Look(item.id, None, 0) for item in group if item.stamp is not None]
    was_seen = any(item.stamp for group in by_path.values() for item in group)
    return looks if was_seen or any(look.stamp for look in looks) else []


def _changed_paths(
    tree: _Tree, by_path: Mapping[str, Sequence[StoredAnchor]], *, deadline: float, is_full: bool
) -> Iterator[tuple[str, Sequence[StoredAnchor]]]:
    """Yield the files that are not as the last look found them. A full look searches missing files again."""
    for path, group in by_path.items():
        if time.monotonic() > deadline:
            return
        stamp = tree.stamp(path)
        if not all(_is_unchanged(tree, item, stamp, is_full=is_full) for item in group):
            yield path, group


def _is_unchanged(tree: _Tree, item: StoredAnchor, stamp: str, *, is_full: bool) -> bool:
    if stamp:
        return _is_as_seen(item, stamp)
    if item.moved_to:
        return item.stamp == tree.stamp(item.moved_to)
    return item.stamp == "" and not is_full


def _is_as_seen(item: StoredAnchor, stamp: str) -> bool:
    """Return whether the last look at an anchor was at its own file, as it is now, and with the phrases it has now."""
    is_complete = not item.phrases or item.phrases_present != NOT_LOOKED_FOR
    return item.stamp == stamp and not item.moved_to and is_complete


def _look_at_path(
    tree: _Tree, path: str, group: Sequence[StoredAnchor], names: _RenameIndex, *, deadline: float
) -> Iterator[Look]:
    stamp = tree.stamp(path)
    if not stamp and tree.is_sparse:
        return
    if stamp:
        changed = [item for item in group if not _is_as_seen(item, stamp)]
        file = tree.read_hashes(path, changed) if changed else None
        if file is not None:
            yield from (file.look(item, stamp) for item in changed)
        return
    for item in group:
        if item.kind == anchors.REMOVAL:  # the same lines in another file are not the removed ones
            if item.stamp != "":
                yield Look(item.id, "", 0)
            continue
        moved_stamp = tree.stamp(item.moved_to) if item.moved_to else ""
        if moved_stamp and moved_stamp == item.stamp:
            continue
        look = _find_moved(tree, item, names, deadline=deadline)
        if item.stamp is None or (look.stamp, look.moved_to) != (item.stamp, item.moved_to):
            yield look


def _find_moved(tree: _Tree, item: StoredAnchor, names: _RenameIndex, *, deadline: float) -> Look:
    """Return a look at the file that now contains most lines of an anchor whose file is missing. If there is no time to
    look for it, nothing is known."""
    last_path = (item.moved_to,) if item.moved_to else ()
    best = Look(item.id, "", 0)
    for path in (*last_path, *names.candidates(item.path)):
        if best.present == item.all_lines and best.stamp:
            break
        if time.monotonic() > deadline:
            return best if best.stamp else Look(item.id, None, 0)
        stamp = tree.stamp(path)
        file = tree.read_hashes(path, (item,)) if stamp else None
        look = file.look(item, stamp, path) if file else best
        if look.present.bit_count() * 2 >= len(item.lines) and look.present.bit_count() > best.present.bit_count():
            best = look
    return best


@dataclass(frozen=True, slots=True)
class _FileHashes:
    """The hashes of a file's lines, and those of its phrases unless all lines of the anchors are there."""

    lines: frozenset[bytes]
    phrases: frozenset[int] = frozenset()

    @classmethod
    def of(cls, content: bytes, items: Iterable[StoredAnchor]) -> _FileHashes:
        """Return the hashes that looks at these anchors need."""
        lines = anchors.hash_content(content)
        phrases = {phrase for item in items if not lines.issuperset(item.lines) for phrase in item.phrases}
        return cls(lines, anchors.hash_phrases(content) & phrases if phrases else frozenset())

    def look(self, item: StoredAnchor, stamp: str, moved_to: str = "") -> Look:
        """Return what this file has of an anchor."""
        present = anchors.match_lines(item.lines, self.lines)
        if not item.phrases:
            return Look(item.id, stamp, present, moved_to)
        phrases = anchors.match_lines(item.phrases, item.phrases if present == item.all_lines else self.phrases)
        return Look(item.id, stamp, present, moved_to, phrases)


class _RenameIndex:
    """The files of a tree by name and by directory, to find where a missing file may be now."""

    def __init__(self, list_paths: Callable[[], Collection[str]]) -> None:
        self._list_paths = list_paths
        self._by_name: defaultdict[str, list[str]] | None = None
        self._by_folder: defaultdict[tuple[str, str], list[str]] = defaultdict(list)

    def candidates(self, path: str) -> list[str]:
        """Return files with the same name, then files with the same suffix in the same directory."""
        if self._by_name is None:
            self._by_name = defaultdict(list)
            for other in self._list_paths():
                folder, _, name = other.rpartition("/")
                self._by_name[name].append(other)
                self._by_folder[folder, Path(name).suffix].append(other)
        folder, _, name = path.rpartition("/")
        same_name = [other for other in self._by_name.get(name, ()) if other != path]
        same_name.sort(key=lambda other: -_common_end(other, path))  # a renamed folder keeps the rest
        beside = self._by_folder.get((folder, Path(name).suffix), ())
        return list(dict.fromkeys((*same_name, *beside)))[:MAX_RENAME_CANDIDATES]


def _common_end(path: str, other: str) -> int:
    """Return how many of the last parts of two paths are the same."""
    pairs = zip(reversed(path.split("/")), reversed(other.split("/")), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


class _Tree:
    """The regular files of a work tree. Nothing is read through links, or from `.git`."""

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)
        self._folders: dict[str, bool] = {}  # whether a folder is reached without links; many files share one
        self._nested: dict[str, bool] = {}

    @cached_property
    def is_sparse(self) -> bool:
        """Whether files of the commit may be absent from the work tree on purpose."""
        return git_files.is_sparse(Path(self._root))

    def is_in_other_repository(self, path: str) -> bool:
        """Return whether a file belongs to a submodule or another repository inside the work tree."""
        folder = path.rpartition("/")[0]
        if folder and folder not in self._nested:
            is_top = os.path.lexists(f"{self._root}/{folder}/.git")
            self._nested[folder] = is_top or self.is_in_other_repository(folder)
        return bool(folder) and self._nested[folder]

    def stamp(self, path: str) -> str:
        """Return the modification time and size of a file; "" if there is none."""
        if not self._is_inside(path):
            return ""
        try:
            status = os.lstat(f"{self._root}/{path}")
        except (OSError, ValueError):
            return ""
        return f"{status.st_mtime_ns}:{status.st_size}" if status.st_mode & 0o170000 == 0o100000 else ""

    def read_hashes(self, path: str, items: Iterable[StoredAnchor]) -> _FileHashes | None:
        """Return the hashes of a file that these anchors need; None if the file can't be read or is too large."""
        try:
            content = untrusted_files.read(Path(self._root, path), most=MAX_FILE_BYTES)
        except OSError:
            return None
        return _FileHashes.of(content, items)

    def _is_inside(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        return not path.startswith("~") and _is_plain(name) and ("/" not in path or self._is_real_folder(folder))

    def _is_real_folder(self, folder: str) -> bool:
        """Return whether a folder of the tree is one, and is reached without links."""
        if folder not in self._folders:
            above, _, name = folder.rpartition("/")
            is_real = _is_plain(name) and ("/" not in folder or self._is_real_folder(above))
            self._folders[folder] = is_real and _is_directory(f"{self._root}/{folder}")
        return self._folders[folder]


def _is_plain(name: str) -> bool:
    """Return whether a part of a path is a name, and not that of git's own folder."""
    return name not in ("", ".", "..", ".git") and "\0" not in name


def _is_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


# --- files of a commit -----------------------------------------------------------------------------------------------


def look_at_commit(git: GitObjects, commit: str, items: Iterable[StoredAnchor]) -> list[Look]:
    """Compare anchors with the files of a commit. Nothing is checked out; files that can't be read are left out, so
    that nothing is claimed about them."""
    by_path: defaultdict[str, list[StoredAnchor]] = defaultdict(list)
    for item in items:
        if item.kind != anchors.COMMAND:
            by_path[item.path].append(item)
    paths = git.list_paths(commit)
    names, present = _RenameIndex(lambda: paths), frozenset(paths)
    candidates = {path: [path] if path in present else names.candidates(path) for path in by_path}
    readers: defaultdict[str, list[StoredAnchor]] = defaultdict(list)  # the anchors that a file may have
    for path, others in candidates.items():
        for other in others:
            readers[other] += by_path[path]
    hashes = _hash_files(git, commit, readers)
    return [
        look
        for path, group in by_path.items()
        if not candidates[path] or any(other in hashes for other in candidates[path])
        for look in (_look_at_blobs(item, candidates[path], hashes, commit) for item in group)
    ]


def _hash_files(git: GitObjects, commit: str, readers: Mapping[str, Sequence[StoredAnchor]]) -> dict[str, _FileHashes]:
    """Return the hashes of files at a commit, read in portions: one answer of git is limited in size."""
    ordered = sorted(readers)
    hashes: dict[str, _FileHashes] = {}
    for start in range(0, len(ordered), COMMIT_FILES):
        specs = {f"{commit}:{path}": path for path in ordered[start : start + COMMIT_FILES]}
        for spec, content in git.read_blobs(list(specs)).items():
            hashes[specs[spec]] = _FileHashes.of(content, readers[specs[spec]])
    return hashes


def _look_at_blobs(item: StoredAnchor, paths: Sequence[str], hashes: Mapping[str, _FileHashes], commit: str) -> Look:
    """Return which lines of an anchor its file has at a commit, or else the file that has most of them."""
    looks = {path: hashes[path].look(item, commit, path) for path in paths if path in hashes}
    if item.path in looks:
        return replace(looks[item.path], moved_to="")
    if item.kind == anchors.REMOVAL:  # the same lines in another file are not the removed ones
        return Look(item.id, "", 0)
    best = max(looks.values(), key=lambda look: look.present.bit_count(), default=None)
    if best is None or best.present.bit_count() * 2 < len(item.lines):
        return Look(item.id, "", 0)
    return best


# --- the two moments -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a look at a work tree and its repository found."""

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
    observation_ids = await db.read(lambda tx: tx.memory.list_anchored_ids(project_id, limit=START_RECORDS))
    items = await db.read(lambda tx: tx.memory.list_anchors(observation_ids, root))
    return await asyncio.to_thread(look_at_start, root, items)


def look_at_start(root: str, items: Iterable[StoredAnchor], *, seconds: float = START_SECONDS) -> list[Look]:
    """Return what has changed in a work tree, without git."""
    return look_at_files(root, items, seconds=seconds, list_paths=partial(_list_index, root))


def _list_index(root: str) -> list[str]:
    """Return the files in git's index, which a start can read in time: a folder may have been renamed a moment ago."""
    tree = git_files.find_work_tree(Path(os.path.realpath(root)))
    if tree is None:
        return []
    inside = os.path.relpath(os.path.realpath(root), tree.root)
    prefix = "" if inside == "." else f"{inside}/"
    return [path.removeprefix(prefix) for path in git_files.list_index(tree) if path.startswith(prefix)]


async def refresh_project(db: Database, project_id: int, root: str) -> int:
    """Look at all files that a project's memories speak of, and at its commits. Return the number of changed states."""
    observation_ids = await db.read(lambda tx: tx.memory.list_anchored_ids(project_id, limit=MAX_RECORDS))
    changed = await refresh_observations(db, project_id, root, observation_ids)
    if about_commands := await db.read(lambda tx: tx.memory.find_command_observations(project_id)):
        await db.write(lambda tx: tx.memory.queue_validity_checks(about_commands))
    await record_changes(db)
    return changed


async def record_changes(db: Database) -> None:
    """Record what has changed since the last look, in portions so that other writers wait briefly."""
    while await db.read(lambda tx: tx.memory.has_validity_checks()):
        await db.write(lambda tx: tx.memory.record_validity_changes(now=ids.now_ms()))


async def refresh_observations(db: Database, project_id: int, root: str, observation_ids: Sequence[int]) -> int:
    """Look at the files that these observations speak of, and at the commits. Return the number of changed states."""
    if not root or not observation_ids or not await asyncio.to_thread(os.path.isdir, root):
        return 0
    items = await db.read(lambda tx: tx.memory.list_anchors(observation_ids, root))
    outcomes = await db.read(lambda tx: tx.memory.list_outcomes(observation_ids))
    if not items:
        return 0
    inspection = await asyncio.to_thread(inspect, root, items, outcomes)
    if not (inspection.looks or inspection.verdicts or inspection.head):
        return 0
    await db.write(_store_inspection, root, inspection, project_id=project_id, now=ids.now_ms())
    return len(inspection.looks) + len(inspection.verdicts)


async def look_at_root_commit(db: Database, project_id: int, root: str, name: str) -> tuple[str, list[Look]]:
    """Return the id of a commit of the repository at `root`, and what all memories of the project look like there."""
    observation_ids = await db.read(lambda tx: tx.memory.list_anchored_ids(project_id, limit=MAX_RECORDS))
    items = await db.read(lambda tx: tx.memory.list_anchors(observation_ids, ""))
    return await asyncio.to_thread(_look_at_named_commit, root, name, items)


def _look_at_named_commit(root: str, name: str, items: Sequence[StoredAnchor]) -> tuple[str, list[Look]]:
    git = _open_git(root)
    if git is None or not git.program:
        hint = "run it inside a repository" if git is None else "install git"
        raise OperationFailed(f"commits can't be read in {root or 'this project'}", hint=hint)
    (commit,) = git.resolve(name) if name.isprintable() and len(name) <= MAX_NAME_CHARS else ("",)
    if not commit:
        raise NotFound(f"there is no commit {name[:MAX_NAME_CHARS]!r} in {root}", hint="`git log --oneline` lists them")
    return commit, look_at_commit(git, commit, items)


def _open_git(root: str) -> GitObjects | None:
    tree = git_files.find_work_tree(Path(os.path.realpath(root))) if root else None
    return GitObjects(str(tree.root)) if tree and tree.git_dir else None


def inspect(root: str, items: Sequence[StoredAnchor], outcomes: Sequence[StoredOutcome]) -> Inspection:
    """Look at the files of a work tree and, if there is a trusted repository, at its commits."""
    git = _open_git(root)
    head, branch = git.head() if git else ("", "")
    files = _Tree(root)
    is_missing = any(not files.stamp(item.path) for item in items)
    paths = git.list_paths(head) if git and head and is_missing else ()
    looks = look_at_files(root, items, seconds=MAX_SECONDS, paths=paths)
    anchors_now = [item for item in apply_looks(items, looks) if not files.is_in_other_repository(item.path)]
    verdicts = judge_outcomes(git, anchors_now, outcomes, head=head, now=ids.now_ms()) if git and head else []
    return Inspection(head, branch, looks, verdicts)


def _store_inspection(tx: Transaction, root: str, inspection: Inspection, *, project_id: int, now: int) -> None:
    for verdict in inspection.verdicts:
        tx.memory.record_committed_lines(verdict.anchors)
        tx.memory.record_outcome(verdict.observation_id, verdict.outcome, commit=verdict.commit, now=now)
    tx.memory.record_looks(root, inspection.looks, commit=inspection.head)
    if inspection.head:
        since = now - RECENT_MS
        tx.memory.record_head(project_id, head=inspection.head, branch=inspection.branch, since=since)
        if inspection.branch:
            tx.memory.record_branch_of_recent_work(project_id, root, inspection.branch, since=since)
