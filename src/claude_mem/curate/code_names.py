"""Which files, commands and symbols a repository has at a commit, read from git's objects only."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property

import msgspec

from claude_mem.system.git_objects import GitObjects

MAX_CODE_FILES, MAX_CODE_BYTES, READ_FILES = 8_000, 96 << 20, 200
MAX_DEFINITION_FILES = 300
_CODE = re.compile(
    r"\.(?:py|pyi|go|rs|ts|tsx|js|jsx|mjs|cjs|java|kt|kts|scala|rb|php|c|h|cc|cpp|hpp|cs|swift|m|mm|sh|bash|zsh|lua|ex|exs|erl|hs"
    r"|ml|clj|dart|vue|svelte|sql|proto|graphql|css|scss|less|html|tf|zig|nim|pl|r|jl|toml|ya?ml|json|mk|gradle|cmake)$|(?:^|/)"
    r"(?:GNU)?[Mm]akefile$|(?:^|/)[Dd]ockerfile",
    re.I,
)
_DEFINITIONS = {
    "make": re.compile(r"(?:^|/)(?:(?:GNU)?[Mm]akefile|[\w.-]+\.mk)$"),
    "npm": re.compile(r"(?:^|/)package\.json$"),
    "mise": re.compile(r"(?:^|/)(?:\.?mise(?:\.local)?|\.?mise/config|\.config/mise(?:/config)?)\.toml$"),
    "just": re.compile(r"(?:^|/)\.?[Jj]ustfile$"),
}
_MISE_TASK = re.compile(r"(?:^|/)(?:mise-tasks|\.mise-tasks|mise/tasks|\.mise/tasks|\.config/mise/tasks)/(.+)$")
_TARGET = re.compile(r"^([A-Za-z_.%][\w.%/-]*+(?: ++[\w.%/-]++)*+) *+::?(?![=:])", re.M)
_RECIPE = re.compile(r"^@?([A-Za-z_][\w-]*+)(?:[ \t][^:=\n]*+)?+:(?!=)", re.M)
_WORD = re.compile(r"[A-Za-z_]\w{5,}")


class Tree:
    """The files and directories of a commit."""

    def __init__(self, commit: str, blobs: Mapping[str, str]) -> None:
        self.commit = commit
        self.blobs = blobs

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        """Files and directories by their last name."""
        by_name: defaultdict[str, list[str]] = defaultdict(list)
        for path in (*self.blobs, *self.folders):
            by_name[path.rpartition("/")[2]].append(path)
        return by_name

    @cached_property
    def folders(self) -> frozenset[str]:
        """All directories."""
        return frozenset(path[:index] for path in self.blobs for index, char in enumerate(path) if char == "/")

    def has(self, path: str) -> bool:
        """Return whether there is such a file or directory."""
        return path in self.blobs or path in self.folders

    def resolve(self, name: str, folder: str) -> list[str]:
        """Return what a name in a file of that folder may mean: a path from the root or the folder, or else every path
        that ends with it."""
        name = name.removeprefix("./").rstrip("/")
        exact = [path for path in (f"{folder}/{name}".lstrip("/"), name) if self.has(path)]
        if exact or not name:
            return exact[:1]
        return [path for path in self._by_name[name.rpartition("/")[2]] if path.endswith(f"/{name}")]


def read_files(git: GitObjects, blob_ids: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the text of files by the ids of their contents, in portions: one answer of git is limited in size."""
    ordered = list(dict.fromkeys(blob_ids))
    for start in range(0, len(ordered), READ_FILES):
        for blob_id, content in git.read_blobs(ordered[start : start + READ_FILES]).items():
            yield blob_id, content.decode("utf-8", "replace")


# --- symbols ---------------------------------------------------------------------------------------------------------


def code_blobs(tree: Tree) -> dict[str, str]:
    """Return the source files of a commit by the ids of their contents."""
    return {blob_id: path for path, blob_id in tree.blobs.items() if _CODE.search(path)}


def find_symbols(git: GitObjects, blobs: Mapping[str, str], names: Collection[str]) -> dict[str, str] | None:
    """Return a file for each of the names that the source files contain as a word; None if they are too many."""
    if len(blobs) > MAX_CODE_FILES:
        return None
    paths_by_name: dict[str, str] = {}
    size = 0
    for blob_id, text in read_files(git, blobs):
        size += len(text)
        if size > MAX_CODE_BYTES:
            return None
        for name in set(_WORD.findall(text)) & set(names) - paths_by_name.keys():
            paths_by_name[name] = blobs[blob_id]
    return paths_by_name


# --- commands --------------------------------------------------------------------------------------------------------


def definition_files(paths: Iterable[str], tool: str) -> list[str]:
    """Return the files in which a tool's commands may be defined."""
    return sorted(path for path in paths if _DEFINITIONS[tool].search(path))[:MAX_DEFINITION_FILES]


def defined_commands(tool: str, text: str) -> dict[str, str]:
    """Return the commands that a file defines, each with its text if that is simple. Empty if it can't be read."""
    try:
        return _READERS[tool](text)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _npm_scripts(text: str) -> dict[str, str]:
    scripts = msgspec.json.decode(text)["scripts"] if '"scripts"' in text else {}
    return {str(name): str(command) for name, command in scripts.items()}


def _mise_tasks(text: str) -> dict[str, str]:
    tasks = tomllib.loads(text).get("tasks", {})
    return {name: str(task.get("run", "")) if isinstance(task, dict) else str(task) for name, task in tasks.items()}


def _make_targets(text: str) -> dict[str, str]:
    names = [name for match in _TARGET.finditer(text) for name in match[1].split()]
    phony = [name for line in re.findall(r"^\.PHONY\s*:(.*)$", text, re.M) for name in line.split()]
    return dict.fromkeys([*names, *phony], "")


def _recipes(text: str) -> dict[str, str]:
    return dict.fromkeys(_RECIPE.findall(text), "")


_READERS = {"npm": _npm_scripts, "mise": _mise_tasks, "make": _make_targets, "just": _recipes}


def task_files(paths: Iterable[str]) -> set[str]:
    """Return the names of the tasks that mise finds as files."""
    names = [match[1].removesuffix("/_default") for path in paths if (match := _MISE_TASK.search(path))]
    return {other.replace("/", ":") for name in names for other in (name, re.sub(r"\.\w+$", "", name))}


def is_defined(name: str, commands: Collection[str]) -> bool:
    """Return whether a command is among these; one with `%` stands for many."""
    return name in commands or any(_stands_for(pattern, name) for pattern in commands if "%" in pattern)


def _stands_for(pattern: str, name: str) -> bool:
    start, _, end = pattern.partition("%")
    return name.startswith(start) and name.endswith(end) and len(name) > len(start) + len(end)
