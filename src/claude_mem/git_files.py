"""Read what git itself wrote: where a repository is, whether its `.git` can be believed, and what tells it from others.

No git is run: two calls per event would cost more than everything else, and a repository's own settings can make git
run programs. Everything read here may come from an archive or from another user, so a `.git` that leads elsewhere is
believed only if the place it leads to points back, and all of it belongs to this user.
"""

from __future__ import annotations

import configparser
import os
import re
import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from claude_mem import untrusted_files
from claude_mem.untrusted_files import is_mine

MOST_FOLDERS = 64  # looked through on the way up; deeper than any real tree
MOST_LOOSE, MOST_IN_GRAPH, MOST_PACKS = 1_000, 200_000, 64
MOST_REFS_BYTES = 4 << 20
_MOST_REMEMBERED = 1_000
_NO_PARENT = 0x7000_0000  # in a commit-graph
_MADE_ONCE = ("description", "info/exclude")  # git writes them when it makes a repository; people seldom edit the first
_WITH_EACH_COMMIT = ("logs/HEAD", "index", "objects/info", "refs/heads")  # one of them changes with the first commit
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_INITIAL = re.compile(rb"0+ ([0-9a-f]{40}(?:[0-9a-f]{24})?) [^\t\n]*\tcommit \(initial\)")
# By git folder and when it was made: the root commit, and when the files changed that may tell of another.
_root_commits: dict[tuple[str, str], tuple[str, tuple[int, ...]]] = {}


@dataclass(frozen=True, slots=True)
class WorkTree:
    """A folder that holds `.git`.

    `git_dir` is the folder that all its worktrees have in common; None if `.git` is not believed, and `doubt` says why.
    `linked`: `.git` is a file, as in a linked worktree or a submodule. `former` is the git folder that version 0.1.0
    took it for, if that can be no other folder's.
    """

    root: Path
    git_dir: Path | None
    linked: bool = False
    doubt: str = ""
    former: str = ""


@dataclass(frozen=True, slots=True)
class Repository:
    """What tells a repository from another at the same path, and makes it known at another path.

    `made`: the inode of its git folder and when git made it; survives a rename on the same file system. `root_commit`
    is the same in every copy, and anyone can write any `remote` into a file: these two prove nothing. Each may be "".
    """

    git_dir: str
    made: str
    root_commit: str
    remote: str = ""

    @property
    def made_at(self) -> str:
        return made_at(self.made)


def made_at(made: str) -> str:
    return made.partition(":")[2]


def upwards(start: Path) -> tuple[Path, ...]:
    return (start, *start.parents)[:MOST_FOLDERS]


# --- where a repository is -------------------------------------------------------------------------------------------


def locate(start: Path) -> WorkTree | None:
    """Return the work tree that a folder lies in. `start` must be a real path."""
    for folder, owner in owned_upwards(start):
        tree = _look(folder, owner)
        if isinstance(tree, WorkTree):
            return tree
    return None


def doubt(start: Path) -> str:
    """Say why a `.git` on the way up was not believed; "" if each was."""
    for folder, owner in owned_upwards(start):
        tree = _look(folder, owner)
        if isinstance(tree, WorkTree):
            return tree.doubt
        if tree:
            return tree
    return ""


def owned_upwards(start: Path) -> Iterator[tuple[Path, int]]:
    """Yield a folder and those above it, each with the user whose files count there beside this user's own.

    That is the folder's owner, as for a repository that is mounted into a container. But above a folder of this user's
    it is this user alone: whoever owns a shared folder has no say in what others keep below it.
    """
    passed_own = False
    for folder in upwards(start):
        try:
            status = folder.stat()
        except (OSError, ValueError):
            yield folder, os.geteuid()  # it is gone, and so are its files
            continue
        passed_own = passed_own or is_mine(status)
        yield folder, os.geteuid() if passed_own else status.st_uid


def _look(folder: Path, owner: int) -> WorkTree | str:
    """The work tree whose `.git` lies in a folder. A text: there is none, and why not, if there is something to say."""
    dot = folder / ".git"
    try:
        status = dot.lstat()
    except (OSError, ValueError):
        return ""
    if not is_mine(status) and status.st_uid != owner:
        return f"{dot} belongs to another user"  # anyone may put one into /tmp
    if stat.S_ISLNK(status.st_mode):
        return _behind_link(folder)
    if stat.S_ISDIR(status.st_mode):
        if is_mine(status):
            return WorkTree(folder, dot)
        return _doubted(folder, "belongs to another user", former=str(dot))
    return _behind_file(folder, owner)


def _doubted(folder: Path, reason: str, *, former: str = "") -> WorkTree:
    return WorkTree(folder, None, doubt=f"{folder / '.git'} {reason}", former=former)


def _behind_link(folder: Path) -> WorkTree:
    git = Path(os.path.realpath(folder / ".git"))
    if _is_work_tree_of(folder, git) and _all_mine(folder / ".git", git):
        return WorkTree(folder, git)
    return _doubted(folder, f"is a link to {git}, which does not point back", former=str(folder / ".git"))


def _behind_file(folder: Path, owner: int) -> WorkTree | str:
    dot = folder / ".git"
    try:
        pointer = untrusted_files.read_text(dot, owner=owner)
    except untrusted_files.Refused as refused:
        return f"{dot} {refused}"
    except (OSError, UnicodeDecodeError):
        return ""
    if not pointer.startswith("gitdir:"):
        return ""
    git = Path(os.path.realpath(folder / _line(pointer.removeprefix("gitdir:"))))
    common = _common(git)
    if common and _leads_back(git, dot) and git.parent == common / "worktrees" and _all_mine(dot, git, common):
        return WorkTree(folder, common, linked=True)
    if _is_work_tree_of(folder, git) and _all_mine(dot, git):
        return WorkTree(folder, git, linked=True)
    # A git folder apart from its work tree, as of `git init --separate-git-dir`, lies in no `.git` of another.
    former = "" if ".git" in git.parts or common else str(git)
    return _doubted(folder, f"names {git}, which does not point back", former=former)


def _common(git: Path) -> Path | None:
    """The git folder that a linked worktree shares with others, by its own word."""
    try:
        return Path(os.path.realpath(git / _line(untrusted_files.read_text(git / "commondir"))))
    except (OSError, ValueError):
        return None


def _leads_back(git: Path, dot: Path) -> bool:
    """Whether the files that git keeps about a linked worktree name this `.git` file."""
    try:
        return os.path.realpath(git / _line(untrusted_files.read_text(git / "gitdir"))) == str(dot)
    except (OSError, ValueError):
        return False


def _is_work_tree_of(folder: Path, git: Path) -> bool:
    """Whether a git folder says that its work tree is this one, as those of submodules do."""
    named = setting(git, "core", "worktree")
    return bool(named) and os.path.realpath(git / named) == str(folder)


def _all_mine(*paths: Path) -> bool:
    try:
        return all(is_mine(path.lstat()) for path in paths)
    except OSError:
        return False


def _line(text: str) -> str:
    """As git reads it: a name may end with a space."""
    return text.lstrip(" ").rstrip("\r\n").replace("\0", "\ufffd")


# --- its settings ----------------------------------------------------------------------------------------------------


def config(git_dir: Path) -> configparser.ConfigParser:
    """Return a repository's own settings; none if they can't be read."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
    try:
        parser.read_string(untrusted_files.read_text(git_dir / "config"))
    except (OSError, UnicodeDecodeError, configparser.Error, AttributeError):
        return configparser.ConfigParser()  # the last: some files of git confuse the parser itself
    return parser


def setting(git_dir: Path, section: str, name: str) -> str:
    return _unquoted(config(git_dir).get(section, name, fallback="") or "")


def _unquoted(value: str) -> str:
    """As git writes a value that has special characters."""
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return value.replace('\\"', '"').replace("\\\\", "\\").replace("\0", "\ufffd")


# --- what tells it from others ---------------------------------------------------------------------------------------


def describe(git_dir: Path) -> Repository:
    made = _made(git_dir)
    return Repository(str(git_dir), made, _root_commit_once(git_dir, made))


def _made(git_dir: Path) -> str:
    """`<inode>:<time>`: a file system uses the inode of a deleted folder again, but not at the same time."""
    for name in _MADE_ONCE:
        try:
            status = (git_dir / name).lstat()
            if stat.S_ISREG(status.st_mode):
                return f"{git_dir.stat().st_ino}:{status.st_mtime_ns}"
        except OSError:
            continue
    return ""


def is_elsewhere(repository: Repository, path: str) -> bool:
    """Whether another path still holds the same repository, on another file system: a snapshot of the whole disk has
    the same inodes and times. The same folder under another name, as by a bind mount, is not elsewhere."""
    try:
        there, here = Path(path).stat(), Path(repository.git_dir).stat()
    except OSError:
        return False
    return _made(Path(path)) == repository.made and there.st_dev != here.st_dev


def is_at(repository: Repository, path: str) -> bool:
    """Whether a path holds this very repository."""
    return bool(repository.made) and _made(Path(path)) == repository.made


# --- its first commit ------------------------------------------------------------------------------------------------


def _root_commit_once(git_dir: Path, made: str) -> str:
    key, changed = (str(git_dir), made), tuple(_changed_at(git_dir / name) for name in _WITH_EACH_COMMIT)
    known, looked_at = _root_commits.get(key, ("", ()))
    if (known and made) or looked_at == changed:
        return known
    if len(_root_commits) >= _MOST_REMEMBERED:
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
    """Return the commit that a repository's history began with; "" if there is none, or if it can't be found cheaply:
    its log has expired, and its commits lie in packs that no commit-graph describes."""
    try:
        first_entry = _INITIAL.match(untrusted_files.read_start(git_dir / "logs" / "HEAD", 4096))
        return first_entry[1].decode() if first_entry else _walk_back(git_dir)
    except (OSError, ValueError):
        return _walk_back(git_dir)


def _walk_back(git_dir: Path) -> str:
    """Follow first parents from HEAD, through loose objects and then through the commit-graph."""
    try:
        commit = _head(git_dir)
        for _ in range(MOST_LOOSE):
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
    """The commit that HEAD names; "" before the first."""
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


def _packed_ref(git_dir: Path, name: str) -> str:
    try:
        lines = untrusted_files.read_text(git_dir / "packed-refs", most=MOST_REFS_BYTES).splitlines()
    except FileNotFoundError:
        return ""
    return next((line.partition(" ")[0] for line in lines if line.partition(" ")[2] == name), "")


def _loose_path(git_dir: Path, commit: str) -> Path:
    return git_dir / "objects" / commit[:2] / commit[2:]


def _loose_parent(git_dir: Path, commit: str) -> str | None:
    """The first parent; "" if a commit has none, None if it is no loose object."""
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
        raise ValueError("not a whole commit")
    return lines[1].removeprefix(b"parent ").decode("ascii") if lines[1].startswith(b"parent ") else ""


@dataclass(frozen=True, slots=True)
class _Names:
    """A sorted list of object names in a file, behind a table of how many begin with each byte."""

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

    def find(self, wanted: bytes) -> int | None:
        low = self._count(wanted[0] - 1) if wanted[0] else 0
        high = self._count(wanted[0])
        while low < high:
            middle = (low + high) // 2
            name = self.name(middle)
            if name == wanted:
                return middle
            low, high = (middle + 1, high) if name < wanted else (low, middle)
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
        with untrusted_files.opened(git_dir / "objects" / "info" / "commit-graph") as file:
            magic, version, hash_version, chunks, bases = struct.unpack(">4sBBBB", _bytes(file, 0, 8))
            width = {1: 20, 2: 32}.get(hash_version, 0)
            if (magic, version, bases) != (b"CGPH", 1, 0) or width * 2 != len(commit):
                return ""
            at = dict(struct.unpack(">4sQ", _bytes(file, 8 + 12 * number, 12)) for number in range(chunks))
            if not {b"OIDF", b"OIDL", b"CDAT"} <= at.keys():
                return ""
            names = _Names(file, at[b"OIDF"], at[b"OIDL"], width)
            return _follow(names, at[b"CDAT"], names.find(bytes.fromhex(commit)))
    except FileNotFoundError:
        return ""


def _follow(names: _Names, data_at: int, position: int | None) -> str:
    count = len(names)
    for _ in range(MOST_IN_GRAPH):
        if position is None or position >= count:
            return ""
        parent = _number(names.file, data_at + position * (names.width + 16) + names.width)
        if parent == _NO_PARENT:
            return names.name(position).hex()
        position = parent
    return ""


def contains(git_dir: Path, commit: str) -> bool:
    """Whether a repository has an object, loose or in a pack."""
    if not _COMMIT.fullmatch(commit):
        return False
    if _loose_path(git_dir, commit).is_file():
        return True
    try:
        indexes = sorted((git_dir / "objects" / "pack").glob("*.idx"))[:MOST_PACKS]
        return any(_in_pack(index, bytes.fromhex(commit)) for index in indexes)
    except (OSError, ValueError):
        return False


def _in_pack(index: Path, name: bytes) -> bool:
    with untrusted_files.opened(index) as file:
        if _bytes(file, 0, 8) != b"\xfftOc\0\0\0\x02":
            return False
        return _Names(file, 8, 8 + 4 * 256, len(name)).find(name) is not None
