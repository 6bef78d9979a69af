"""Reads git's own files: where a repository is, whether its `.git` can be trusted, and what distinguishes it.

Git itself is not run here (see `git_objects` for commits and trees): two calls per event would cost more than
everything else, and a repository's own settings can make git run programs. Everything read here may come from an
archive or from another user, so a `.git` that points elsewhere is trusted only if its target points back and all files
involved belong to this user.
"""

from __future__ import annotations

import configparser
import os
import re
import stat
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

from claude_mem.system import untrusted_files
from claude_mem.system.untrusted_files import is_owned_by_user

MAX_PARENTS = 64  # parent directories to search; deeper than any real tree
MAX_LOOSE_COMMITS, MAX_GRAPH_COMMITS, MAX_PACKS, MAX_PACK_FILES = 1_000, 200_000, 64, 1_000
MAX_REFS_BYTES = 4 << 20
MAX_INDEX_BYTES, MAX_INDEX_FILES = 16 << 20, 300_000
_CACHE_SIZE = 1_000
MAX_BRANCH_CHARS = 200
_BRANCH_REF = "ref: refs/heads/"
_NO_PARENT = 0x7000_0000  # in a commit-graph
_WRITTEN_AT_CREATION = (
    "description",
    "info/exclude",
)  # git writes them when it creates a repository; users rarely edit the first
_CHANGED_BY_COMMITS = ("logs/HEAD", "index", "objects/info", "refs/heads")  # at least one changes with the first commit
_SPARSE = re.compile(r"^[ \t]*+sparseCheckout[ \t]*+=[ \t]*+(?:true|yes|on|1)[ \t\r]*+$", re.I | re.M)
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_INITIAL = re.compile(rb"0+ ([0-9a-f]{40}(?:[0-9a-f]{24})?) [^\t\n]*\tcommit \(initial\)")
# By git directory and creation id: the root commit, and the modification times of the files it was derived from.
_root_commits: dict[tuple[str, str], tuple[str, tuple[int, ...]]] = {}


@dataclass(frozen=True, slots=True)
class WorkTree:
    """A directory that contains `.git`.

    `git_dir` is the git directory that all worktrees share; None if `.git` is not trusted, and `doubt` says why.
    `linked`: `.git` is a file, as in a linked worktree or a submodule. `former` is the git directory that version 0.1.0
    used for it, unless that could be the git directory of another work tree.
    """

    root: Path
    git_dir: Path | None
    linked: bool = False
    doubt: str = ""
    former: str = ""


@dataclass(frozen=True, slots=True)
class Repository:
    """What distinguishes a repository from another at the same path, and identifies it at another path.

    `creation_id` is the inode of its git directory and the creation time; it survives a rename on the same file system.
    `root_commit` is the same in every copy, and anyone can write any `remote` into a file: these two prove nothing.
    Each may be "".
    """

    git_dir: str
    creation_id: str
    root_commit: str
    remote: str = ""

    @property
    def made_at(self) -> str:
        """The creation time of its git directory; "" if unknown."""
        return creation_time(self.creation_id)


def creation_time(creation_id: str) -> str:
    """Return the time part of a creation id."""
    return creation_id.partition(":")[2]


def directory_and_parents(start: Path) -> tuple[Path, ...]:
    """Return a directory and its parents, at most `MAX_PARENTS`."""
    return (start, *start.parents)[:MAX_PARENTS]


# --- location of a repository ----------------------------------------------------------------------------------------


def find_work_tree(start: Path) -> WorkTree | None:
    """Return the work tree that contains a directory. `start` must be a real path."""
    for folder, owner in parents_with_trusted_owner(start):
        tree = _examine(folder, owner)
        if isinstance(tree, WorkTree):
            return tree
    return None


def is_sparse(root: Path) -> bool:
    """Return whether a work tree is a sparse checkout, as its repository's settings say."""
    dot = root / ".git"
    git_dirs = [dot]
    with suppress(OSError, ValueError):
        if dot.is_file():
            own = root / untrusted_files.read_text(dot).removeprefix("gitdir:").strip()
            git_dirs = [own, own / untrusted_files.read_text(own / "commondir").strip()]
    for git_dir in git_dirs:
        for name in ("config.worktree", "config"):
            with suppress(OSError, ValueError):
                if _SPARSE.search(untrusted_files.read_text(git_dir / name)):
                    return True
    return False


def distrust_reason(start: Path) -> str:
    """Return why a `.git` in the directory or a parent is not trusted, or ""."""
    for folder, owner in parents_with_trusted_owner(start):
        tree = _examine(folder, owner)
        if isinstance(tree, WorkTree):
            return tree.doubt
        if tree:
            return tree
    return ""


def parents_with_trusted_owner(start: Path) -> Iterator[tuple[Path, int]]:
    """Yield a directory and its parents, each with a second user whose files are trusted there.

    That is the owner of the directory, as for a repository that is mounted into a container. But above a directory that
    this user owns, only this user's files count: the owner of a shared directory must not influence what other users
    keep below it.
    """
    below_own = False
    for folder in directory_and_parents(start):
        try:
            status = folder.stat()
        except (OSError, ValueError):
            yield folder, os.geteuid()  # it does not exist, so it has no files either
            continue
        below_own = below_own or is_owned_by_user(status)
        yield folder, os.geteuid() if below_own else status.st_uid


def _examine(folder: Path, owner: int) -> WorkTree | str:
    """Return the work tree whose `.git` is in a directory. If there is none, return the reason, or ""."""
    dot = folder / ".git"
    try:
        status = dot.lstat()
    except (OSError, ValueError):
        return ""
    if not is_owned_by_user(status) and status.st_uid != owner:
        return f"{dot} belongs to another user"  # anyone may put one into /tmp
    if stat.S_ISLNK(status.st_mode):
        return _follow_link(folder)
    if stat.S_ISDIR(status.st_mode):
        if is_owned_by_user(status):
            return WorkTree(folder, dot)
        return _rejected(folder, "belongs to another user", former=str(dot))
    return _follow_pointer_file(folder, owner)


def _rejected(folder: Path, reason: str, *, former: str = "") -> WorkTree:
    return WorkTree(folder, None, doubt=f"{folder / '.git'} {reason}", former=former)


def _follow_link(folder: Path) -> WorkTree:
    git = Path(os.path.realpath(folder / ".git"))
    if _is_work_tree_of(folder, git) and _all_owned(folder / ".git", git):
        return WorkTree(folder, git)
    return _rejected(folder, f"is a link to {git}, which does not point back", former=str(folder / ".git"))


def _follow_pointer_file(folder: Path, owner: int) -> WorkTree | str:
    dot = folder / ".git"
    try:
        pointer = untrusted_files.read_text(dot, owner=owner)
    except untrusted_files.FileRefused as refused:
        return f"{dot} {refused}"
    except (OSError, UnicodeDecodeError):
        return ""
    if not pointer.startswith("gitdir:"):
        return ""
    git = Path(os.path.realpath(folder / _line(pointer.removeprefix("gitdir:"))))
    common = _common_dir(git)
    if common and _points_back(git, dot) and git.parent == common / "worktrees" and _all_owned(dot, git, common):
        return WorkTree(folder, common, linked=True)
    if _is_work_tree_of(folder, git) and _all_owned(dot, git):
        return WorkTree(folder, git, linked=True)
    # A separate git directory, as from `git init --separate-git-dir`, is never inside the `.git` of another work tree.
    former = "" if ".git" in git.parts or common else str(git)
    return _rejected(folder, f"names {git}, which does not point back", former=former)


def _common_dir(git: Path) -> Path | None:
    """Return the git directory that a linked worktree claims to share with others."""
    try:
        return Path(os.path.realpath(git / _line(untrusted_files.read_text(git / "commondir"))))
    except (OSError, ValueError):
        return None


def _points_back(git: Path, dot: Path) -> bool:
    """Return whether git's files about a linked worktree name this `.git` file."""
    try:
        return os.path.realpath(git / _line(untrusted_files.read_text(git / "gitdir"))) == str(dot)
    except (OSError, ValueError):
        return False


def _is_work_tree_of(folder: Path, git: Path) -> bool:
    """Return whether a git directory names this work tree, as those of submodules do."""
    worktree = read_setting(git, "core", "worktree")
    return bool(worktree) and os.path.realpath(git / worktree) == str(folder)


def _all_owned(*paths: Path) -> bool:
    try:
        return all(is_owned_by_user(path.lstat()) for path in paths)
    except OSError:
        return False


def _line(text: str) -> str:
    """Return a line without its line ending, as git reads it: a name may end with a space."""
    return text.lstrip(" ").rstrip("\r\n").replace("\0", "\ufffd")


def is_tracked(git_dir: Path, path: str) -> bool:
    """Return whether git's index contains a path, relative to the work tree. True if that is unknown."""
    try:
        index = untrusted_files.read(git_dir / "index", most=MAX_INDEX_BYTES)
    except FileNotFoundError:
        return False  # nothing was added yet
    except OSError:
        return True
    if index[:4] != b"DIRC" or index[4:8] not in (b"\0\0\0\x02", b"\0\0\0\x03"):
        return True  # version 4 compresses paths
    return os.fsencode(path) + b"\0" in index


def list_index(tree: WorkTree) -> list[str]:
    """Return the files in the index of a work tree: what is committed, or will be. Empty if it cannot be read."""
    if tree.git_dir is None:
        return []
    try:
        folder = tree.git_dir
        if tree.linked:  # it has an index of its own
            folder = tree.root / _line(untrusted_files.read_text(tree.root / ".git").removeprefix("gitdir:"))
        index = untrusted_files.read(folder / "index", most=MAX_INDEX_BYTES)
    except (OSError, ValueError):
        return []
    id_bytes = 32 if read_setting(tree.git_dir, "extensions", "objectformat").lower() == "sha256" else 20
    return [os.fsdecode(path) for path in _index_paths(index, id_bytes)]


def _index_paths(index: bytes, id_bytes: int) -> Iterator[bytes]:
    """Yield the paths of an index file, up to the first entry that is not well formed."""
    if index[:4] != b"DIRC" or len(index) < 12:
        return
    version, count = int.from_bytes(index[4:8]), int.from_bytes(index[8:12])
    start, path = 12, b""
    for _ in range(min(count, MAX_INDEX_FILES)):
        flags = start + 40 + id_bytes
        name = flags + (4 if index[flags : flags + 1] and index[flags] & 0x40 else 2)
        excess = 0  # how many bytes of the path before do not belong to this one
        if version == 4:
            excess, name = _read_offset(index, name)
        end = index.find(b"\0", name)
        if end < 0 or excess > len(path):
            return
        path = path[: len(path) - excess] + index[name:end] if version == 4 else index[name:end]
        yield path
        start = end + 1 if version == 4 else start + (end - start) // 8 * 8 + 8


def _read_offset(index: bytes, start: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends."""
    value = -1
    for place, byte in enumerate(index[start : start + 5], start):
        value = (value + 1) << 7 | byte & 0x7F
        if not byte & 0x80:
            return value, place + 1
    return len(index), start


# --- settings of a repository ----------------------------------------------------------------------------------------


def read_config(git_dir: Path) -> configparser.ConfigParser:
    """Return a repository's own settings; empty if they cannot be read."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
    try:
        parser.read_string(untrusted_files.read_text(git_dir / "config"))
    except (OSError, UnicodeDecodeError, configparser.Error, AttributeError):
        return configparser.ConfigParser()  # AttributeError: some git files trigger a bug in the parser
    return parser


def read_setting(git_dir: Path, section: str, name: str) -> str:
    """Return a setting of a git configuration, or an empty string."""
    return _unquoted(read_config(git_dir).get(section, name, fallback="") or "")


def _unquoted(value: str) -> str:
    """Undo git's quoting of a value with special characters."""
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return value.replace('\\"', '"').replace("\\\\", "\\").replace("\0", "\ufffd")


# --- identity of a repository ----------------------------------------------------------------------------------------


def describe_repository(git_dir: Path) -> Repository:
    """Return what identifies the repository of a git directory."""
    creation_id = _creation_id(git_dir)
    return Repository(str(git_dir), creation_id, _cached_root_commit(git_dir, creation_id))


def _creation_id(git_dir: Path) -> str:
    """Return `<inode>:<creation time>`: an inode may be reused after a deletion, but not with the same time."""
    for name in _WRITTEN_AT_CREATION:
        try:
            status = (git_dir / name).lstat()
            if stat.S_ISREG(status.st_mode):
                return f"{git_dir.stat().st_ino}:{status.st_mtime_ns}"
        except OSError:
            continue
    return ""


def has_copy_at(repository: Repository, path: str) -> bool:
    """Return whether another path holds the same repository on another file system.

    A snapshot of a whole disk has the same inodes and times. The same directory under another path, as by a bind mount,
    does not count.
    """
    try:
        there, here = Path(path).stat(), Path(repository.git_dir).stat()
    except OSError:
        return False
    return _creation_id(Path(path)) == repository.creation_id and there.st_dev != here.st_dev


def is_repository_at(repository: Repository, path: str) -> bool:
    """Return whether a path holds this same repository."""
    return bool(repository.creation_id) and _creation_id(Path(path)) == repository.creation_id


# --- the first commit ------------------------------------------------------------------------------------------------


def _cached_root_commit(git_dir: Path, creation_id: str) -> str:
    key, changed = (str(git_dir), creation_id), tuple(_changed_at(git_dir / name) for name in _CHANGED_BY_COMMITS)
    commit_before, changed_before = _root_commits.get(key, ("", ()))
    if (commit_before and creation_id) or changed_before == changed:
        return commit_before
    if len(_root_commits) >= _CACHE_SIZE:
        _root_commits.clear()
    commit = root_commit(git_dir)
    _root_commits[key] = commit, changed
    return commit


def _changed_at(path: Path) -> int:
    try:
        return path.lstat().st_mtime_ns
    except OSError:
        return 0


def root_commit(git_dir: Path) -> str:
    """Return the first commit of a repository's history.

    Returns "" if there is none, or if it cannot be found cheaply because the reflog has expired and the commits are in
    packs without a commit-graph.
    """
    try:
        first_entry = _INITIAL.match(untrusted_files.read_start(git_dir / "logs" / "HEAD", 4096))
        return first_entry[1].decode() if first_entry else _walk_back(git_dir)
    except (OSError, ValueError):
        return _walk_back(git_dir)


def _walk_back(git_dir: Path) -> str:
    """Follow first parents from HEAD, through loose objects and then through the commit-graph."""
    try:
        commit = _head(git_dir)
        for _ in range(MAX_LOOSE_COMMITS):
            if not commit:
                return ""
            parent = _loose_parent(git_dir, commit)
            if parent is None:
                return _root_in_graph(git_dir, commit)
            if not parent:
                return commit
            commit = parent
    except (OSError, ValueError, struct.error, zlib.error):
        pass
    return ""


def _head(git_dir: Path) -> str:
    """Return the commit that HEAD names, or "" before the first commit."""
    head = untrusted_files.read_text(git_dir / "HEAD").strip()
    if not head.startswith("ref: "):
        return head if _COMMIT.fullmatch(head) else ""
    name = head.removeprefix("ref: ").strip()
    if not name.startswith("refs/") or ".." in name or "\0" in name:
        return ""
    try:
        commit = untrusted_files.read_text(git_dir / name).strip()
    except OSError:
        commit = _packed_ref(git_dir, name)
    return commit if _COMMIT.fullmatch(commit) else ""


def current_branch(start: Path) -> str:
    """Return the branch that is checked out in the work tree around a directory; "" if there is none or `.git` is not
    trusted. `start` must be a real path."""
    tree = find_work_tree(start)
    if tree is None or tree.git_dir is None:
        return ""
    try:
        git_dir = tree.git_dir if not tree.linked else _own_git_dir(tree.root)
        head = untrusted_files.read_text(git_dir / "HEAD").strip()
    except (OSError, ValueError):
        return ""
    branch = head.removeprefix(_BRANCH_REF)
    return branch if branch != head and branch.isprintable() and len(branch) <= MAX_BRANCH_CHARS else ""


def _own_git_dir(root: Path) -> Path:
    """Return the directory that the `.git` file of a linked worktree or a submodule names."""
    pointer = untrusted_files.read_text(root / ".git")
    return Path(os.path.realpath(root / _line(pointer.removeprefix("gitdir:"))))


def _packed_ref(git_dir: Path, name: str) -> str:
    try:
        lines = untrusted_files.read_text(git_dir / "packed-refs", most=MAX_REFS_BYTES).splitlines()
    except FileNotFoundError:
        return ""
    return next((line.partition(" ")[0] for line in lines if line.partition(" ")[2] == name), "")


def _loose_path(git_dir: Path, commit: str) -> Path:
    return git_dir / "objects" / commit[:2] / commit[2:]


def _loose_parent(git_dir: Path, commit: str) -> str | None:
    """Return the first parent; "" if the commit has none, None if it is not a loose object."""
    try:
        packed = untrusted_files.read(_loose_path(git_dir, commit))
    except FileNotFoundError:
        return None
    text = zlib.decompressobj().decompress(packed, 4096)
    head, _, body = text.partition(b"\0")
    if not head.startswith(b"commit "):
        raise ValueError("not a commit")
    lines = body.split(b"\n", 2)
    if len(lines) < 3:
        raise ValueError("incomplete commit")
    return lines[1].removeprefix(b"parent ").decode("ascii") if lines[1].startswith(b"parent ") else ""


@dataclass(frozen=True, slots=True)
class _Names:
    """A sorted list of object names in a file, preceded by a table with cumulative counts per first byte."""

    file: IO[bytes]
    counts_at: int
    names_at: int
    width: int

    def _count(self, first: int) -> int:
        return _number(self.file, self.counts_at + 4 * first)

    def __len__(self) -> int:
        return self._count(255)

    def name(self, position: int) -> bytes:
        return _bytes(self.file, self.names_at + position * self.width, self.width)

    def find(self, target: bytes) -> int | None:
        low = self._count(target[0] - 1) if target[0] else 0
        high = self._count(target[0])
        while low < high:
            middle = (low + high) // 2
            name = self.name(middle)
            if name == target:
                return middle
            low, high = (middle + 1, high) if name < target else (low, middle)
        return None


def _bytes(file: IO[bytes], at: int, size: int) -> bytes:
    content = os.pread(file.fileno(), size, at)
    if len(content) != size:
        raise ValueError("the file ends too early")
    return content


def _number(file: IO[bytes], at: int) -> int:
    return int.from_bytes(_bytes(file, at, 4), "big")


def _root_in_graph(git_dir: Path, commit: str) -> str:
    """Follow first parents through `objects/info/commit-graph`, which `git gc` writes."""
    try:
        with untrusted_files.open_regular(git_dir / "objects" / "info" / "commit-graph") as file:
            magic, version, hash_version, chunks, bases = struct.unpack(">4sBBBB", _bytes(file, 0, 8))
            width = {1: 20, 2: 32}.get(hash_version, 0)
            if (magic, version, bases) != (b"CGPH", 1, 0) or width * 2 != len(commit):
                return ""
            offsets = dict(struct.unpack(">4sQ", _bytes(file, 8 + 12 * number, 12)) for number in range(chunks))
            if not {b"OIDF", b"OIDL", b"CDAT"} <= offsets.keys():
                return ""
            names = _Names(file, offsets[b"OIDF"], offsets[b"OIDL"], width)
            return _follow_parents(names, offsets[b"CDAT"], names.find(bytes.fromhex(commit)))
    except FileNotFoundError:
        return ""


def _follow_parents(names: _Names, data_at: int, position: int | None) -> str:
    count = len(names)
    for _ in range(MAX_GRAPH_COMMITS):
        if position is None or position >= count:
            return ""
        parent = _number(names.file, data_at + position * (names.width + 16) + names.width)
        if parent == _NO_PARENT:
            return names.name(position).hex()
        position = parent
    return ""


def contains_commit(git_dir: Path, commit: str) -> bool:
    """Return whether a repository contains an object, loose or in a pack."""
    if not _COMMIT.fullmatch(commit):
        return False
    if _loose_path(git_dir, commit).is_file():
        return True
    try:
        with os.scandir(git_dir / "objects" / "pack") as entries:
            names = [entry.name for entry in islice(entries, MAX_PACK_FILES) if entry.name.endswith(".idx")]
        packs = git_dir / "objects" / "pack"
        return any(_in_pack(packs / name, bytes.fromhex(commit)) for name in sorted(names)[:MAX_PACKS])
    except (OSError, ValueError):
        return False


def _in_pack(index: Path, name: bytes) -> bool:
    with untrusted_files.open_regular(index) as file:
        if _bytes(file, 0, 8) != b"\xfftOc\0\0\0\x02":
            return False
        return _Names(file, 8, 8 + 4 * 256, len(name)).find(name) is not None
