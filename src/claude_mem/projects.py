"""Which project a folder belongs to.

A project is a repository, not a folder name: worktrees share one, two repositories called `api` do not. Its
identities are its remote and its git folder; the store remembers both, so that a repository which moves or
gains a remote keeps its memory. The files of git are read directly: two `git` calls per event would cost more
than everything else.

A file `.claude-mem.toml` in the folder or above it may say `project = "name"` (share one memory under that
name) or `enabled = false` (remember nothing here).
"""

from __future__ import annotations

import configparser
import os
import re
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

OVERRIDE = ".claude-mem.toml"
OLDER = "older:"  # begins the identity of a project that came from an older claude-mem, which knew names only
_FAR = 64  # folders looked through on the way up; deeper than any real tree


@dataclass(frozen=True, slots=True)
class Project:
    """`identities` from the strongest to the weakest; any one that is known decides."""

    name: str
    root: str
    identities: tuple[str, ...]
    enabled: bool = True


def resolve(folder: str, *, excluded: tuple[str, ...] = ()) -> Project:
    """Never fails: a folder that is gone or can't be read is a project of its own."""
    start = Path(os.path.realpath(folder or "/"))
    override = _override(start)
    git = _git_folder(start)
    root, common = git if git else (start, None)
    identities = [f"git:{common}"] if common else [f"dir:{root}"]
    if common and (remote := _remote(common)):
        identities.append(f"remote:{remote}")
    name = _name(root, common)
    if isinstance(given := override.get("project"), str) and given.strip():
        name = given.strip()[:100]
        identities.insert(0, f"name:{name}")
    enabled = override.get("enabled", True) is not False and not is_excluded(folder, excluded)
    return Project(name, str(root), tuple(identities), enabled)


def named(name: str) -> Project:
    """The project of a client that knows a name but no folder."""
    return Project(name[:100], "", (f"name:{name[:100]}",))


def is_excluded(folder: str, globs: tuple[str, ...]) -> bool:
    """By its name or by where it really lies: a link to an excluded folder is excluded too."""
    named, real = Path(folder), Path(os.path.realpath(folder))
    paths = {named, *named.parents, real, *real.parents}
    patterns = [str(Path(glob).expanduser()) for glob in globs]
    if any(pattern.endswith("/**") and Path(pattern[:-3]) in (named, real) for pattern in patterns):
        return True
    return any(fnmatch(str(path), pattern) for path in paths for pattern in patterns)


def _name(root: Path, common: Path | None) -> str:
    """For people. A worktree is called what its repository is called."""
    named = common.parent if common and common.name == ".git" else root
    return (named.name.removesuffix(".git") or str(named))[:100]


def _upwards(start: Path) -> tuple[Path, ...]:
    return (start, *start.parents)[:_FAR]


def _override(start: Path) -> dict[str, object]:
    """What the files on the way up say. The nearest name counts; one `enabled = false` anywhere is enough, and so is a
    file that can't be understood: whoever wrote it wanted something."""
    found: dict[str, object] = {}
    for folder in _upwards(start):
        try:
            said: dict[str, object] = tomllib.loads((folder / OVERRIDE).read_text("utf-8"))
        except OSError:
            continue  # absent, or no folder that could have one
        except ValueError:
            said = {"enabled": False, "problem": str(folder / OVERRIDE)}
        found = {**said, **found, "enabled": found.get("enabled", True) and said.get("enabled") is not False}
    return found


def override_problem(folder: str) -> str:
    """The file that can't be understood, if there is one; for `doctor`."""
    return str(_override(Path(os.path.realpath(folder))).get("problem", ""))


def _git_folder(start: Path) -> tuple[Path, Path] | None:
    """The root of the work tree, and the folder that all its worktrees have in common."""
    for folder in _upwards(start):
        dot = folder / ".git"
        try:
            if dot.is_dir():
                return folder, dot
            pointer = dot.read_text("utf-8")[:4096]
        except (OSError, UnicodeDecodeError):
            continue
        if pointer.startswith("gitdir:"):
            return folder, _common(folder / pointer.removeprefix("gitdir:").strip())
    return None


def _common(git: Path) -> Path:
    try:
        return Path(os.path.realpath(git / (git / "commondir").read_text("utf-8").strip()))
    except (OSError, UnicodeDecodeError):
        return Path(os.path.realpath(git))  # a submodule: a repository of its own


def _remote(common: Path) -> str:
    """The address of `origin`, or of the only remote, without scheme, user or `.git`."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
    try:
        parser.read_string((common / "config").read_text("utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error, AttributeError):
        return ""  # the last: some files of git confuse the parser itself
    sections = [name for name in parser.sections() if name.startswith('remote "')]
    chosen = 'remote "origin"' if 'remote "origin"' in sections else (sections[0] if len(sections) == 1 else "")
    return normal_remote(parser.get(chosen, "url", fallback="") or "") if chosen else ""


def normal_remote(url: str) -> str:
    """`git@host:a/b.git`, `https://user:key@host/a/b` and `ssh://git@host:22/a/b` are one place."""
    url = url.strip().rstrip("/").removesuffix(".git")
    url = re.sub(r"^[a-z+]+://", "", url, flags=re.IGNORECASE)
    url = re.sub(r"^[^/@]*@", "", url)
    host, separator, path = re.sub(r"^([^/:]+):(?:\d+(?=/))?/?", r"\1/", url).partition("/")
    return f"{host.lower()}/{path}" if separator else url
