"""Which project a folder belongs to.

A project is a repository, not a folder name: worktrees share one, two repositories called `api` do not. Its
identities are its remote and its git folder; the store remembers both, so that a repository which moves or
gains a remote keeps its memory. The files of git are read directly: two `git` calls per event would cost more
than everything else.

A file `.claude-mem.toml` in the folder or above it may say otherwise; `docs/projects.md` tells what. Such a file may
come with a repository, so it decides how a project is called, and never whose memory it shares: what a file joins is
what lies below it, and two projects that lie apart are made one by a person only (`claude-mem project merge`).
"""

from __future__ import annotations

import configparser
import os
import re
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

OVERRIDE = ".claude-mem.toml"
GENERAL = "general"  # what is saved where there is no folder; no folder is called so
OLDER = "older:"  # begins the identity of a project that came from an older claude-mem, which knew names only
# What it may say, in words for people.
SAYS = {
    "enabled": "`enabled` is true or false: remember what is done here",
    "project": "`project` is a text: what this project is called",
    "skip_tools": "`skip_tools` is a list of texts: tools whose calls are not kept here, beside those of the settings",
    "subagents": "`subagents` is true or false: keep what subagents do",
    "worktrees": '`worktrees` is "share" or "isolate": is a worktree part of its repository, or a project of its own',
}
_FAR = 64  # folders looked through on the way up; deeper than any real tree


@dataclass(frozen=True, slots=True)
class Project:
    """`identities` from the strongest to the weakest; any one that is known decides."""

    name: str
    root: str
    identities: tuple[str, ...]
    enabled: bool = True
    skip_tools: tuple[str, ...] = ()  # beside those of the settings
    subagents: bool = True  # is what they do kept?
    folder: str = ""  # what it would be called if no file said otherwise


def resolve(folder: str, *, excluded: tuple[str, ...] = ()) -> Project:
    """Never fails: a folder that is gone, can't be read or can't even be is a project of its own."""
    folder = folder.replace("\0", "\ufffd")
    start = Path(os.path.realpath(folder or "/"))
    said = _override(start)
    git = _git_folder(start)
    root, common = git if git else (start, None)
    if common and said.get("worktrees") == "isolate" and not (root / ".git").is_dir():
        common = None  # a worktree that is to be a project of its own
    identities = [f"git:{common}"] if common else [f"dir:{root}"]
    if common and (remote := _remote(common)):
        identities.append(f"remote:{remote}")
    name = str(said.get("project", "")).strip()[:100]
    if name and _git_folder(above := Path(said["named_in"])) is None:
        identities.insert(0, f"dir:{above}")  # it came with no repository: what lies below it is one project
    called = _name(root, common)
    if name.casefold() in ("", GENERAL):
        name = called
    enabled = said.get("enabled", True) is not False and not is_excluded(folder, excluded)
    skip_tools, subagents = tuple(said.get("skip_tools", ())), said.get("subagents", True)
    return Project(name, str(root), tuple(identities), enabled, skip_tools, subagents, called)


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


def _upwards(start: Path) -> tuple[Path, ...]:
    return (start, *start.parents)[:_FAR]


def _override(start: Path) -> dict[str, Any]:
    """What the files on the way up say. The nearest word counts; one `enabled = false` anywhere is enough, and so is a
    file that can't be understood: whoever wrote it wanted something."""
    found: dict[str, Any] = {}
    for folder in _upwards(start):
        path = folder / OVERRIDE
        try:
            said: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            said = {"enabled": False, "problem": f"{path} can't be read: {error.strerror}"} if _is_there(path) else {}
        except (ValueError, RecursionError):
            said = {"enabled": False, "problem": f"{path} is not TOML"}
        wrong = [name for name, given in said.items() if name != "problem" and not _makes_sense(name, given)]
        if wrong:
            said = {"enabled": False, "problem": f"{path}: {SAYS.get(wrong[0], f'there is no setting {wrong[0]!r}')}"}
        if said.get("enabled") is False:
            said["off"] = str(path)
        if "project" in said:
            said["named_in"] = str(folder)
        found = {**said, **found, "enabled": found.get("enabled", True) and said.get("enabled") is not False}
    return found


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
            return folder, _common(folder / _line(pointer.removeprefix("gitdir:")))
    return None


def _common(git: Path) -> Path:
    try:
        return Path(os.path.realpath(git / _line((git / "commondir").read_text("utf-8"))))
    except (OSError, UnicodeDecodeError):
        return Path(os.path.realpath(git))  # a submodule: a repository of its own


def _line(text: str) -> str:
    """As git reads it: a name may end with a space."""
    return text.lstrip(" ").rstrip("\r\n")


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
    url = re.sub(r"^[^/]*@", "", url)
    host, separator, path = re.sub(r"^([^/:]+):(?:\d+(?=/))?/?", r"\1/", url).partition("/")
    return f"{host.lower()}/{path}" if separator else url
