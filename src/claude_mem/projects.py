"""Which project a folder belongs to.

A project is a repository, not a folder name: worktrees share one, two repositories called `api` do not. Its
identities are its git folder, by path and by inode, and its remote; the store remembers all of them, so that a
repository which is moved, renamed or gains a remote keeps its memory. `git_files` reads them from git's own files.

A file `.claude-mem.toml` in the folder or above it may say otherwise; `docs/projects.md` tells what. Such a file may
come with a repository, so it decides how a project is called, and never whose memory it shares: what a file joins is
what lies below it, and two projects that lie apart are made one by a person only (`claude-mem project merge`).
"""

from __future__ import annotations

import asyncio
import os
import re
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from claude_mem import git_files, untrusted_files
from claude_mem.git_files import Repository, upwards

OVERRIDE = ".claude-mem.toml"
GENERAL = "general"  # what is saved where there is no folder; no folder is called so
GIT, MADE = "git:", "made:"  # begin the identities of a git folder: its path, and its inode with when it was made
OLDER = "older:"  # begins the identity of a project that came from an older claude-mem, which knew names only
# What it may say, in words for people.
SAYS = {
    "enabled": "`enabled` is true or false: remember what is done here",
    "project": "`project` is a text: what this project is called",
    "skip_tools": "`skip_tools` is a list of texts: tools whose calls are not kept here, beside those of the settings",
    "subagents": "`subagents` is true or false: keep what subagents do",
    "worktrees": '`worktrees` is "share" or "isolate": is a worktree part of its repository, or a project of its own',
}


@dataclass(frozen=True, slots=True)
class Project:
    """`identities` from the strongest to the weakest; any one that is known decides. `repository` may add one, and may
    show that a known path holds another repository now. `former` is the identity that version 0.1.0 had for a folder
    whose `.git` is no longer believed; it counts only for a project that was first seen in this very folder."""

    name: str
    root: str
    identities: tuple[str, ...]
    enabled: bool = True
    skip_tools: tuple[str, ...] = ()  # beside those of the settings
    subagents: bool = True  # is what they do kept?
    folder: str = ""  # what it would be called if no file said otherwise
    repository: Repository | None = None
    former: str = ""

    @property
    def every_identity(self) -> tuple[str, ...]:
        """The identities, with that of the git folder itself before that of its path."""
        if self.repository is None or not self.repository.made:
            return self.identities
        made = f"{MADE}{self.repository.made}"
        at = next((number for number, name in enumerate(self.identities) if name.startswith(GIT)), 0)
        return (*self.identities[:at], made, *self.identities[at:])


def resolve(folder: str, *, excluded: tuple[str, ...] = ()) -> Project:
    """Never fails: a folder that is gone, can't be read or can't even be is a project of its own."""
    folder = folder.replace("\0", "\ufffd")
    start = Path(os.path.realpath(folder or "/"))
    said = _override(start)
    tree = git_files.locate(start)
    root, common = (tree.root, tree.git_dir) if tree else (start, None)
    if tree and tree.linked and said.get("worktrees") == "isolate":
        common = None  # a worktree that is to be a project of its own
    repository = git_files.describe(common) if common else None
    identities = [f"{GIT}{common}"] if common else [f"dir:{root}"]
    if common and (remote := _remote(common)):
        identities.append(f"remote:{remote}")
    name = str(said.get("project", "")).strip()[:100]
    if name and git_files.locate(above := Path(said["named_in"])) is None:
        identities.insert(0, f"dir:{above}")  # it came with no repository: what lies below it is one project
    called = _name(root, common)
    if name.casefold() in ("", GENERAL):
        name = called
    enabled = said.get("enabled", True) is not False and not is_excluded(folder, excluded)
    skip_tools, subagents = tuple(said.get("skip_tools", ())), said.get("subagents", True)
    former = f"{GIT}{tree.former}" if tree and tree.former else ""
    return Project(
        name, str(root), tuple(identities), enabled, skip_tools, subagents, called, repository=repository, former=former
    )


async def resolve_off_loop(folder: str, *, excluded: tuple[str, ...]) -> Project:
    """`resolve` in a thread: it reads files, and a slow disk must not keep the worker from answering others."""
    return await asyncio.to_thread(resolve, folder, excluded=excluded)


def named(name: str) -> Project:
    """The project of a client that knows a name but no folder."""
    return Project(name[:100], "", (f"name:{name[:100]}",))


def is_excluded(folder: str, globs: tuple[str, ...]) -> bool:
    """By its name or by where it really lies: a link to an excluded folder is excluded too."""
    return bool(excluded_by(folder, globs))


def excluded_by(folder: str, globs: tuple[str, ...]) -> str:
    """The first of the globs that excludes it; empty if none does."""
    named, real = Path(folder), Path(os.path.realpath(folder))
    paths = {named, *named.parents, real, *real.parents}
    for glob in globs:
        pattern = str(Path(glob).expanduser())
        if pattern.endswith("/**") and Path(pattern[:-3]) in (named, real):
            return glob
        if any(fnmatch(str(path), pattern) for path in paths):
            return glob
    return ""


def why_off(folder: str, excluded: tuple[str, ...]) -> tuple[str, str] | None:
    """What switches memory off in a folder: a glob in the `setting`, a `file`, or a file with a `problem`."""
    if glob := excluded_by(folder, excluded):
        return "setting", glob
    said = _override(Path(os.path.realpath(folder)))
    if said.get("enabled", True):
        return None
    return ("problem", str(said["problem"])) if said.get("problem") else ("file", str(said["off"]))


def _name(root: Path, common: Path | None) -> str:
    """For people. A worktree is called what its repository is called."""
    named = common.parent if common and common.name == ".git" else root
    short = named.name.removesuffix(".git")
    return (str(named) if short.casefold() in ("", GENERAL) else short)[:100]


def _override(start: Path) -> dict[str, Any]:
    """What the files on the way up say. The nearest word counts; one `enabled = false` anywhere is enough, and so is a
    file that can't be understood: whoever wrote it wanted something."""
    found: dict[str, Any] = {}
    for folder in upwards(start):
        path = folder / OVERRIDE
        said = _words_of(path)
        wrong = [name for name, given in said.items() if name != "problem" and not _makes_sense(name, given)]
        if wrong:
            said = _problem(path, f": {SAYS.get(wrong[0], f'there is no setting {wrong[0][:100]!r}')}")
        if said.get("enabled") is False:
            said["off"] = str(path)
        if "project" in said:
            said["named_in"] = str(folder)
        found = {**said, **found, "enabled": found.get("enabled", True) and said.get("enabled") is not False}
    return found


def _words_of(path: Path) -> dict[str, Any]:
    """What one file says; nothing if there is none, or if it belongs to neither this user nor the folder's owner:
    anyone may put a file into /tmp."""
    try:
        return tomllib.loads(untrusted_files.read_text(path, owner=path.parent.stat().st_uid))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except untrusted_files.Refused as refused:
        return {} if refused.foreign else _problem(path, f" {refused}")
    except OSError as error:
        return _problem(path, f" can't be read: {error.strerror}") if _is_there(path) else {}
    except (ValueError, RecursionError):
        return _problem(path, " is not TOML")


def _problem(path: Path, what: str) -> dict[str, Any]:
    return {"enabled": False, "problem": f"{path}{what}"}


def _is_there(path: Path) -> bool:
    """A name that is too long, or a folder that no one may enter, hides no file of anyone's."""
    return os.path.lexists(path)


def _makes_sense(name: str, given: Any) -> bool:
    match name:
        case "enabled" | "subagents":
            return isinstance(given, bool)
        case "project":
            return isinstance(given, str)
        case "skip_tools":
            return isinstance(given, list) and all(isinstance(tool, str) for tool in given)
        case "worktrees":
            return given in ("share", "isolate")
    return False


def override_problem(folder: str) -> str:
    """What can't be understood in which file, if anything; for `doctor`."""
    return str(_override(Path(os.path.realpath(folder))).get("problem", ""))


def git_doubt(folder: str) -> str:
    """Why the `.git` of a folder, or one above it, is not believed, if so; for `doctor`."""
    return git_files.doubt(Path(os.path.realpath(folder)))


def _remote(common: Path) -> str:
    """The address of `origin`, or of the only remote, without scheme, user or `.git`."""
    parser = git_files.config(common)
    sections = [name for name in parser.sections() if name.startswith('remote "')]
    chosen = 'remote "origin"' if 'remote "origin"' in sections else (sections[0] if len(sections) == 1 else "")
    return normal_remote(parser.get(chosen, "url", fallback="") or "") if chosen else ""


def normal_remote(url: str) -> str:
    """`git@host:a/b.git`, `https://user:key@host/a/b` and `ssh://git@host:22/a/b` are one place."""
    url = url.strip().rstrip("/").removesuffix(".git")
    url = re.sub(r"^[a-z+]+://", "", url, flags=re.IGNORECASE)
    url = re.sub(r"^[^/]*@", "", url)
    host, separator, path = re.sub(r"^([^/:]+):(?:\d+(?=/))?/?", r"\1/", url).partition("/")
    return f"{host.lower()}/{path}" if separator else url
