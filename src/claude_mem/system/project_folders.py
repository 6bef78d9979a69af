"""Determines which project a directory belongs to.

A project is a repository, not a directory name: worktrees share a project, two repositories called `api` do not. A
repository is recognized by its git directory, by path and by inode; both are stored, so that a repository that is moved
or renamed keeps its memory. `git_files` reads them from git's own files. The remote is stored too, but anyone can write
one into a file: a directory that names the remote of an existing project is a separate project until the user merges
them.

A file `.claude-mem.toml` in the directory or above it can change settings; see `docs/projects.md`. Such a file may come
with a repository or an archive, so it can name the project in whose top directory it is, but never decides whose memory
the project shares: only the user can merge two projects (`claude-mem project merge`).
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

from claude_mem.system import git_files, untrusted_files
from claude_mem.system.git_files import Repository

OVERRIDE_FILE = ".claude-mem.toml"
GENERAL_PROJECT = "general"  # the project of memories saved without a directory; no directory gets this name
GIT_PREFIX, CREATION_PREFIX = (
    "git:",
    "made:",
)  # prefixes of a git directory's identities: its path; its inode and creation time
REMOTE_PREFIX = "remote:"  # prefix of an identity that proves nothing by itself
LEGACY_PREFIX = "older:"  # prefix of the identity of a project imported from an older claude-mem, which knew only names
# The settings allowed in the file, described for the user.
OVERRIDE_SETTINGS = {
    "enabled": "`enabled` must be true or false: whether work here is remembered",
    "project": "`project` must be a string: the name of this project",
    "skip_tools": "`skip_tools` must be a list of strings: tools whose calls are not captured here, in addition to the"
    " setting `skip_tools`",
    "subagents": "`subagents` must be true or false: whether the work of subagents is captured",
    "worktrees": '`worktrees` must be "share" or "isolate": whether a worktree belongs to the project of its'
    " repository or is a project of its own",
}

MAX_OVERRIDE_BYTES, MAX_DOTS = 16 << 10, 200
_IDENTITY_SETTINGS = (
    "project",
    "worktrees",
)  # they decide which project a directory is, so they only count inside the project


@dataclass(frozen=True, slots=True)
class ResolvedProject:
    """The project of a directory, as far as files tell.

    `identities` are ordered from the strongest to the weakest; the first that is stored decides. `repository` may add
    an identity, and may show that a stored path now holds another repository. `former` is the identity that version
    0.1.0 used for a directory whose `.git` is no longer trusted; it counts only for a project that was first seen in
    this same directory. `group` is a parent directory that has a project name of its own; the user is offered to merge
    the two.
    """

    name: str
    root: str
    identities: tuple[str, ...]
    enabled: bool = True
    skip_tools: tuple[str, ...] = ()  # in addition to those of the settings
    subagents: bool = True  # whether the work of subagents is captured
    folder: str = ""  # the name without an override file
    repository: Repository | None = None
    former: str = ""
    group: str = ""

    @property
    def every_identity(self) -> tuple[str, ...]:
        """The identities, with that of the git directory's inode before that of its path."""
        if self.repository is None or not self.repository.creation_id:
            return self.identities
        creation_identity = f"{CREATION_PREFIX}{self.repository.creation_id}"
        index = next((number for number, name in enumerate(self.identities) if name.startswith(GIT_PREFIX)), 0)
        return (*self.identities[:index], creation_identity, *self.identities[index:])


def identify_project(folder: str, *, excluded: tuple[str, ...] = ()) -> ResolvedProject:
    """Return the project of a directory. Never fails: a missing, unreadable or impossible path is its own project."""
    folder = folder.replace("\0", "\ufffd")
    start = Path(os.path.realpath(folder or "/"))
    tree = git_files.find_work_tree(start)
    root, git_dir = (tree.root, tree.git_dir) if tree else (start, None)
    override = _merged_override(start, root)
    if tree and tree.linked and override.get("worktrees") == "isolate":
        git_dir = None  # this worktree is a project of its own
    repository = git_files.describe_repository(git_dir) if git_dir else None
    identities = [f"{GIT_PREFIX}{git_dir}"] if git_dir else [f"dir:{root}"]
    if git_dir and repository and (remote := _remote(git_dir)):
        identities.append(f"{REMOTE_PREFIX}{remote}")
        repository = replace(repository, remote=remote)
    name = str(override.get("project", "")).strip()[:100]
    default_name = _default_name(root, git_dir)
    if name.casefold() in ("", GENERAL_PROJECT):
        name = default_name
    enabled = override.get("enabled", True) is not False and not is_excluded(folder, excluded)
    skip_tools, subagents = tuple(override.get("skip_tools", ())), override.get("subagents", True)
    former = f"{GIT_PREFIX}{tree.former}" if tree and tree.former else ""
    if repository:
        repository = replace(repository, git_dir=_as_text(repository.git_dir))
    group = _as_text(str(override.get("group", "")))
    return ResolvedProject(
        _as_text(name), _as_text(str(root)), tuple(map(_as_text, identities)), enabled, skip_tools, subagents,
        _as_text(default_name), repository=repository, former=_as_text(former),
        group=group,
    )  # fmt: skip


def _as_text(path: str) -> str:
    """Return a storable path. Bytes that are not UTF-8 become `\\xff`, so that different paths stay different.

    The path that an agent reports may be valid and a link to one that is not.
    """
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


async def identify_project_in_thread(folder: str, *, excluded: tuple[str, ...]) -> ResolvedProject:
    """Run `identify_project` in a thread: it reads files, and a slow disk must not block the event loop."""
    return await asyncio.to_thread(identify_project, folder, excluded=excluded)


def project_from_name(name: str) -> ResolvedProject:
    """Return the project for a client that knows a name but no directory."""
    return ResolvedProject(name[:100], "", (f"name:{name[:100]}",))


def is_excluded(folder: str, globs: tuple[str, ...]) -> bool:
    """Return whether a directory is excluded, by its path or its real path: a link to an excluded one counts too."""
    return bool(excluding_glob(folder, globs))


def excluding_glob(folder: str, globs: tuple[str, ...]) -> str:
    """Return the first glob that excludes the directory, or ""."""
    literal, real = Path(folder), Path(os.path.realpath(folder))
    paths = {literal, *literal.parents, real, *real.parents}
    for glob in globs:
        pattern = str(Path(glob).expanduser())
        if pattern.endswith("/**") and Path(pattern[:-3]) in (literal, real):
            return glob
        if any(fnmatch(str(path), pattern) for path in paths):
            return glob
    return ""


def disabled_reason(folder: str, excluded: tuple[str, ...]) -> tuple[str, str] | None:
    """Return what disables memory in a directory: ("setting", glob), ("file", path) or ("problem", description)."""
    if glob := excluding_glob(folder, excluded):
        return "setting", glob
    override = _override_of(folder)
    if override.get("enabled", True):
        return None
    return ("problem", str(override["problem"])) if override.get("problem") else ("file", str(override["off"]))


def _default_name(root: Path, git_dir: Path | None) -> str:
    """Return the display name of a project. A worktree has the name of its repository."""
    folder = git_dir.parent if git_dir and git_dir.name == ".git" else root
    short = folder.name.removesuffix(".git")
    return (str(folder) if short.casefold() in ("", GENERAL_PROJECT) else short)[:100]


def _override_of(folder: str) -> dict[str, object]:
    start = Path(os.path.realpath(folder))
    tree = git_files.find_work_tree(start)
    return _merged_override(start, tree.root if tree else start)


def _merged_override(start: Path, top: Path) -> dict[str, Any]:
    """Merge the override files of a directory and its parents; the nearest value wins.

    One `enabled = false` anywhere disables memory, and so does an invalid file, because its author meant to change
    something. A file above the `top` directory of the project can only exclude; it cannot change which project this
    is. `group` is the nearest directory above `top` that has a project name.
    """
    merged: dict[str, Any] = {}
    for folder, owner in git_files.parents_with_trusted_owner(start):
        path = folder / OVERRIDE_FILE
        values = _read_override(path, owner)
        invalid = [name for name, value in values.items() if name != "problem" and not _is_valid(name, value)]
        if invalid:
            values = _problem(
                path, f": {OVERRIDE_SETTINGS.get(invalid[0], f'there is no setting {invalid[0][:100]!r}')}"
            )
        if values.get("enabled") is False:
            values["off"] = str(path)
        if not folder.is_relative_to(top):
            group = {"group": str(folder)} if "project" in values else {}
            values = group | {name: value for name, value in values.items() if name not in _IDENTITY_SETTINGS}
        merged = {**values, **merged, "enabled": merged.get("enabled", True) and values.get("enabled") is not False}
    return merged


def _read_override(path: Path, owner: int) -> dict[str, object]:
    """Return the content of one override file.

    Empty if it does not exist, or belongs to neither this user, root nor `owner`: anyone may put a file into /tmp.
    """
    try:
        text = untrusted_files.read_text(path, most=MAX_OVERRIDE_BYTES, owner=owner)
        if any(line.count(".") > MAX_DOTS for line in text.splitlines()):
            return _problem(path, " has a name with too many dots")  # parsing takes the square of their number
        return tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except untrusted_files.FileRefused as refused:
        return {} if refused.foreign else _problem(path, f" {refused}")
    except OSError as error:
        # A path that is too long, or in a directory that cannot be entered, hides no override file.
        return _problem(path, f" cannot be read: {error.strerror}") if os.path.lexists(path) else {}
    except (ValueError, RecursionError):
        return _problem(path, " is not valid TOML")


def _problem(path: Path, text: str) -> dict[str, object]:
    return {"enabled": False, "problem": f"{path}{text}"}


def _is_valid(name: str, value: Any) -> bool:
    match name:
        case "enabled" | "subagents":
            return isinstance(value, bool)
        case "project":
            return isinstance(value, str)
        case "skip_tools":
            return isinstance(value, list) and all(isinstance(tool, str) for tool in value)
        case "worktrees":
            return value in ("share", "isolate")
    return False


def override_problem(folder: str) -> str:
    """Return what is wrong with an override file of this directory, or ""; for `doctor`."""
    return str(_override_of(folder).get("problem", ""))


def git_distrust_reason(folder: str) -> str:
    """Return why the `.git` of a directory or of a parent is not trusted, or ""; for `doctor`."""
    return git_files.distrust_reason(Path(os.path.realpath(folder)))


def _remote(git_dir: Path) -> str:
    """Return the URL of `origin`, or of the only remote, without scheme, user and `.git`."""
    parser = git_files.read_config(git_dir)
    sections = [name for name in parser.sections() if name.startswith('remote "')]
    section = 'remote "origin"' if 'remote "origin"' in sections else (sections[0] if len(sections) == 1 else "")
    return normalize_remote(parser.get(section, "url", fallback="") or "") if section else ""


def normalize_remote(url: str) -> str:
    """Normalize a remote URL: `git@host:a/b.git`, `https://user:key@host/a/b` and `ssh://git@host:22/a/b` are equal."""
    url = url.strip().rstrip("/").removesuffix(".git")
    url = re.sub(r"^[a-z+]+://", "", url, flags=re.IGNORECASE)
    url = re.sub(r"^[^/]*@", "", url)
    host, separator, path = re.sub(r"^([^/:]+):(?:\d+(?=/))?/?", r"\1/", url).partition("/")
    return f"{host.lower()}/{path}" if separator else url


def is_existing_folder(path: str) -> bool:
    """Return whether this is an existing absolute folder. Imported text may not be a path at all."""
    try:
        return path.startswith("/") and Path(path).is_dir()
    except (OSError, ValueError):
        return False
