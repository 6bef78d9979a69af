"""Which project a folder belongs to.

A project is a repository, not a folder name: worktrees share one, two repositories called `api` do not. It is
recognised by its git folder, by path and by inode; the store remembers both, so that a repository which is moved or
renamed keeps its memory. `git_files` reads them from git's own files. A remote is remembered too, but anyone can write
one into a file: a folder that names the remote of a known project is a project of its own until a person merges them.

A file `.claude-mem.toml` in the folder or above it may say otherwise; `docs/projects.md` tells what. Such a file may
come with a repository or an archive, so it decides how the project is called in whose top folder it lies, and never
whose memory it shares: two projects are made one by a person only (`claude-mem project merge`).
"""

from __future__ import annotations

import asyncio
import os
import re
import tomllib
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from claude_mem import git_files, untrusted_files
from claude_mem.git_files import Repository

OVERRIDE = ".claude-mem.toml"
GENERAL = "general"  # what is saved where there is no folder; no folder is called so
GIT, MADE = "git:", "made:"  # begin the identities of a git folder: its path, and its inode with when it was made
REMOTE = "remote:"  # begins an identity that proves nothing by itself
OLDER = "older:"  # begins the identity of a project that came from an older claude-mem, which knew names only
# What it may say, in words for people.
SAYS = {
    "enabled": "`enabled` is true or false: remember what is done here",
    "project": "`project` is a text: what this project is called",
    "skip_tools": "`skip_tools` is a list of texts: tools whose calls are not kept here, beside those of the settings",
    "subagents": "`subagents` is true or false: keep what subagents do",
    "worktrees": '`worktrees` is "share" or "isolate": is a worktree part of its repository, or a project of its own',
}

_IDENTITY = ("project", "worktrees")  # which project a folder is: not to be said from outside of it


@dataclass(frozen=True, slots=True)
class Project:
    """`identities` from the strongest to the weakest; any one that is known decides. `repository` may add one, and may
    show that a known path holds another repository now. `former` is the identity that version 0.1.0 had for a folder
    whose `.git` is no longer believed; it counts only for a project that was first seen in this very folder. `group` is
    a folder above that a file there gives a name: the person is offered to merge the two."""

    name: str
    root: str
    identities: tuple[str, ...]
    enabled: bool = True
    skip_tools: tuple[str, ...] = ()  # beside those of the settings
    subagents: bool = True  # is what they do kept?
    folder: str = ""  # what it would be called if no file said otherwise
    repository: Repository | None = None
    former: str = ""
    group: str = ""

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
    tree = git_files.locate(start)
    root, common = (tree.root, tree.git_dir) if tree else (start, None)
    said = _override(start, root)
    if tree and tree.linked and said.get("worktrees") == "isolate":
        common = None  # a worktree that is to be a project of its own
    repository = git_files.describe(common) if common else None
    identities = [f"{GIT}{common}"] if common else [f"dir:{root}"]
    if common and repository and (remote := _remote(common)):
        identities.append(f"{REMOTE}{remote}")
        repository = replace(repository, remote=remote)
    name = str(said.get("project", "")).strip()[:100]
    called = _name(root, common)
    if name.casefold() in ("", GENERAL):
        name = called
    enabled = said.get("enabled", True) is not False and not is_excluded(folder, excluded)
    skip_tools, subagents = tuple(said.get("skip_tools", ())), said.get("subagents", True)
    former = f"{GIT}{tree.former}" if tree and tree.former else ""
    return Project(
        name, str(root), tuple(identities), enabled, skip_tools, subagents, called,
        repository=repository, former=former, group=str(said.get("group", "")),
    )  # fmt: skip


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
    said = _override_of(folder)
    if said.get("enabled", True):
        return None
    return ("problem", str(said["problem"])) if said.get("problem") else ("file", str(said["off"]))


def _name(root: Path, common: Path | None) -> str:
    """For people. A worktree is called what its repository is called."""
    named = common.parent if common and common.name == ".git" else root
    short = named.name.removesuffix(".git")
    return (str(named) if short.casefold() in ("", GENERAL) else short)[:100]


def _override_of(folder: str) -> dict[str, Any]:
    start = Path(os.path.realpath(folder))
    tree = git_files.locate(start)
    return _override(start, tree.root if tree else start)


def _override(start: Path, top: Path) -> dict[str, Any]:
    """What the files on the way up say. The nearest word counts; one `enabled = false` anywhere is enough, and so is a
    file that can't be understood: whoever wrote it wanted something. Above the `top` folder of a project a file can
    only leave things out; whose memory is meant is no matter of what lies outside. `group` is the nearest folder there
    to which a file gives a name."""
    found: dict[str, Any] = {}
    for folder, owner in git_files.owned_upwards(start):
        path = folder / OVERRIDE
        said = _words_of(path, owner)
        wrong = [name for name, given in said.items() if name != "problem" and not _makes_sense(name, given)]
        if wrong:
            said = _problem(path, f": {SAYS.get(wrong[0], f'there is no setting {wrong[0][:100]!r}')}")
        if said.get("enabled") is False:
            said["off"] = str(path)
        if not folder.is_relative_to(top):
            said = {**({"group": str(folder)} if "project" in said else {}), **_without(said, _IDENTITY)}
        found = {**said, **found, "enabled": found.get("enabled", True) and said.get("enabled") is not False}
    return found


def _without(said: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: given for name, given in said.items() if name not in names}


def _words_of(path: Path, owner: int) -> dict[str, Any]:
    """What one file says; nothing if there is none, or if it belongs to neither this user, root nor `owner`: anyone may
    put a file into /tmp."""
    try:
        return tomllib.loads(untrusted_files.read_text(path, owner=owner))
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
    return str(_override_of(folder).get("problem", ""))


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
