"""Check what agents' instruction and memory files (CLAUDE.md, AGENTS.md, MEMORY.md …) say of the repository.

A statement is reported only if what it names was in the repository when its line was written, and a later commit
removed it: anything else that is missing may be an example, a plan, or something that is made when it is needed. Git is
asked for objects only, files of the work tree are read directly and bounded, and nothing is written unless a person
accepts the change that is proposed.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from claude_mem.domain import anchors
from claude_mem.domain.errors import OperationFailed
from claude_mem.domain.statements import Mention, find_mentions, is_entry_for
from claude_mem.system import git_files, untrusted_files
from claude_mem.system.git_objects import CommitInfo, GitObjects

MAX_BYTES, MAX_FILES, MAX_VERSIONS, MAX_STEPS = 512 << 10, 200, 100, 50
MAX_SUBJECT = 80  # characters of a commit's subject that are shown
MAX_OLD_TREES = 8  # commits whose source files are searched for a symbol
MAX_RENAMES, MAX_ADDED = 3, 400  # renames that are followed; new files that are compared with one that is gone
_NAMES = ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "AGENTS.override.md", "GEMINI.md", "QWEN.md", "MEMORY.md")
_FILE = re.compile(
    rf"(?:^|/)(?:{'|'.join(map(re.escape, _NAMES))}|\.cursorrules)$"
    r"|(?:^|/)\.github/(?:copilot-instructions|instructions/.+\.instructions)\.md$|(?:^|/)\.cursor/rules/.+\.mdc?$"
    r"|(?:^|/)\.claude/(?:rules|memory)/.+\.md$"
)
_NOT_OURS = re.compile(r"(?:^|/)(?:node_modules|vendor|third_party|testdata|fixtures?|examples?|templates?)/", re.I)
_SLUG = re.compile(r"[^a-zA-Z0-9]")
_SYMBOL = "symbol"


@dataclass(frozen=True, slots=True)
class Problem:
    """A name that no longer holds: what it was, since which commit, and what it is called now ("" if unknown)."""

    kind: str
    name: str
    was: str
    commit: CommitInfo | None
    now: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of an instruction file that no longer holds. `replacement` is what is proposed: other text, None to delete
    the line, or the text itself if there is no proposal."""

    file: str
    line: int
    text: str
    problems: tuple[Problem, ...]
    replacement: str | None

    @property
    def has_proposal(self) -> bool:
        """Whether there is a change to propose."""
        return self.replacement != self.text


@dataclass(frozen=True, slots=True)
class InstructionFile:
    """An instruction file as it was read."""

    path: Path
    name: str  # relative to the work tree, or absolute
    content: bytes

    @property
    def lines(self) -> list[str]:
        return self.content.decode("utf-8", "replace").splitlines()


@dataclass(slots=True)
class Report:
    """What was checked and what no longer holds."""

    files: list[InstructionFile] = field(default_factory=list)
    statements: int = 0  # that name something the repository has or had
    findings: list[Finding] = field(default_factory=list)


# --- finding the files -----------------------------------------------------------------------------------------------


def find_instruction_files(root: Path, tracked: Iterable[str], agent_folder: Path | None) -> list[InstructionFile]:
    """Return the instruction files of a work tree, and what Claude Code remembered about it in its own folder."""
    names = [path for path in tracked if _FILE.search(path) and not _NOT_OURS.search(path)]
    names += [name for name in _NAMES if name not in names]
    files = [_read(root / name, name, within=root) for name in names[:MAX_FILES]]
    if agent_folder:
        memory = agent_folder / "projects" / _SLUG.sub("-", str(root)) / "memory"
        files += [_read(path, str(path), within=memory) for path in sorted(memory.glob("*.md"))[:MAX_FILES]]
    return [file for file in files if file]


def _read(path: Path, name: str, *, within: Path) -> InstructionFile | None:
    with contextlib.suppress(OSError):
        if not path.parent.resolve().is_relative_to(within.resolve()):
            return None  # a link leads outside
        return InstructionFile(path, name, untrusted_files.read(path, most=MAX_BYTES))
    return None


# --- checking them ---------------------------------------------------------------------------------------------------


def check(folder: Path, *, agent_folder: Path | None = None) -> Report:
    """Check the instruction files of the work tree that contains a folder against its newest commit.

    `agent_folder`: where Claude Code keeps its own memory of projects.
    """
    tree = git_files.find_work_tree(folder.resolve())
    if tree is None or not tree.git_dir:
        return Report()
    git = GitObjects(str(tree.root))
    (head,) = git.resolve("HEAD")
    if not head:
        return Report()
    checker = Checker(git, head, root=tree.root)
    return checker.check(find_instruction_files(tree.root, checker.now.blobs, agent_folder))


class Checker:
    """Compares what instruction files name with a commit, and with the commits at which their lines were written."""

    def __init__(self, git: GitObjects, commit: str, *, root: Path | None = None) -> None:
        self.git = git
        self.root = root  # of a work tree whose files count as well
        self.now = Tree(commit, git.list_blobs(commit))
        self._trees: dict[str, Tree] = {commit: self.now}
        self._commands: dict[tuple[str, str], set[str]] = {}

    def check(self, files: Sequence[InstructionFile]) -> Report:
        """Return what no longer holds in these files."""
        report = Report(list(files))
        for file in files:
            written = self._line_origins(file)
            problems: defaultdict[int, list[Problem]] = defaultdict(list)
            symbols: list[tuple[Mention, Tree]] = []
            for mention in find_mentions(file.content.decode("utf-8", "replace")):
                origin = written.get(file.lines[mention.line - 1].strip())
                if not origin:
                    continue
                if mention.kind == _SYMBOL:
                    symbols.append((mention, self._tree(origin)))
                    continue
                is_known, problem = self._check_one(mention, self._tree(origin), _folder(file.name))
                report.statements += is_known
                problems[mention.line] += [problem] if problem else []
            count, missing = self._check_symbols(symbols)
            report.statements += count
            for line, problem in missing:
                problems[line].append(problem)
            report.findings += [
                _finding(file, line, tuple(of_line)) for line, of_line in sorted(problems.items()) if of_line
            ]
        return report

    def _tree(self, commit: str) -> Tree:
        if commit not in self._trees:
            self._trees[commit] = Tree(commit, self.git.list_blobs(commit))
        return self._trees[commit]

    def _line_origins(self, file: InstructionFile) -> dict[str, str]:
        """Return for each line of a file the commit that wrote it. Lines that are in no commit are missing.

        Of a file that is in no commit, only the time of its last change is known: its lines are as old as that.
        """
        if file.name not in self.now.blobs:
            commit = self._commit_before(file.path)
            return {line.strip(): commit for line in file.lines} if commit else {}
        versions = self.git.list_changes(self.now.commit, file.name, most=MAX_VERSIONS)
        contents = self.git.read_blobs([f"{version.id}:{file.name}" for version in versions])
        origins: dict[str, str] = {}
        open_lines = {line.strip() for line in file.lines}
        for version in versions:  # the newest first
            content = contents.get(f"{version.id}:{file.name}", b"")
            open_lines &= {line.strip() for line in content.decode("utf-8", "replace").splitlines()}
            origins.update(dict.fromkeys(open_lines, version.id))
        return origins

    def _commit_before(self, path: Path) -> str:
        try:
            changed_at = int(path.stat().st_mtime)
        except OSError:
            return ""
        commits = self.git.list_commits(f"--until=@{changed_at}", self.now.commit, most=1)
        return commits[0].id if commits else ""

    # --- files and commands ------------------------------------------------------------------------------------------

    def _check_one(self, mention: Mention, then: Tree, folder: str) -> tuple[bool, Problem | None]:
        """Return whether the repository has or had what a line names, and what is wrong with it now."""
        if mention.kind == "command":
            return self._check_command(mention, then)
        paths = then.resolve(mention.name, folder)
        if not paths:
            return False, None
        if self.now.resolve(mention.name, folder) or self._is_in_work_tree(mention.name, folder, paths):
            return True, None
        commit = next(iter(self.git.list_changes(self.now.commit, paths[0], most=1)), None)
        if commit is None:  # the history ends before
            return True, None
        now = self._find_renamed(paths[0], commit) if len(paths) == 1 else ""
        return True, Problem(mention.kind, mention.name, paths[0], commit, _rename(mention.name, paths[0], now))

    def _is_in_work_tree(self, name: str, folder: str, paths: Sequence[str]) -> bool:
        """Return whether a file is there that is in no commit yet."""
        name = name.removeprefix("./")
        names = [name, f"{folder}/{name}".lstrip("/"), *paths]
        return self.root is not None and any(
            ".." not in other.split("/") and os.path.lexists(self.root / other) for other in names
        )

    def _find_renamed(self, path: str, commit: CommitInfo, *, steps: int = MAX_RENAMES) -> str:
        """Return what a file is called now that a commit removed; "" if it has no successor."""
        (before,) = self.git.resolve(f"{commit.id}^")
        if not before or not steps:
            return ""
        old, new = self._tree(before), self._tree(commit.id)
        successor = _moved_folder(path, old, new) if path in old.folders else self._moved_file(path, old, new)
        if not successor or self.now.has(successor):
            return successor
        following = next(iter(self.git.list_changes(self.now.commit, successor, most=1)), None)
        return self._find_renamed(successor, following, steps=steps - 1) if following else ""

    def _moved_file(self, path: str, old: Tree, new: Tree) -> str:
        blob = old.blobs.get(path, "")
        added = [other for other in new.blobs if other not in old.blobs]
        if same := [other for other in added if new.blobs[other] == blob]:
            return same[0] if len(same) == 1 else ""
        suffix = Path(path).suffix
        alike = [other for other in added if Path(other).suffix == suffix][:MAX_ADDED]
        texts = self.git.read_blobs([blob, *(new.blobs[other] for other in alike)])
        lines = anchors.hash_lines(texts.get(blob, b"").decode("utf-8", "replace"))
        shares = {
            other: len(lines & anchors.hash_lines(texts.get(new.blobs[other], b"").decode("utf-8", "replace")))
            for other in alike
        }
        best = max(shares, key=lambda other: shares[other], default="")
        return best if best and shares[best] * 2 >= len(lines) > 2 else ""

    def _check_command(self, mention: Mention, then: Tree) -> tuple[bool, Problem | None]:
        if not is_defined(mention.name, self._commands_at(then, mention.tool)):
            return False, None
        defined = self._commands_at(self.now, mention.tool) | self._commands_in_work_tree(mention.tool)
        if is_defined(mention.name, defined):
            return True, None
        for path in definition_files(then.blobs, mention.tool):
            if problem := self._removed_command(mention, path):
                return True, problem
        return True, None

    def _commands_at(self, tree: Tree, tool: str) -> set[str]:
        key = (tree.commit, tool)
        if key not in self._commands:
            blobs = [tree.blobs[path] for path in definition_files(tree.blobs, tool)]
            texts = [text for _, text in read_files(self.git, blobs)]
            names = {name for text in texts for name in defined_commands(tool, text)}
            self._commands[key] = names | (task_files(tree.blobs) if tool == "mise" else set())
        return self._commands[key]

    def _commands_in_work_tree(self, tool: str) -> set[str]:
        """Return what the files of the work tree define, which may be in no commit yet."""
        names: set[str] = set()
        for path in definition_files(self.now.blobs, tool) if self.root else ():
            with contextlib.suppress(OSError):
                text = untrusted_files.read(Path(str(self.root), path), most=MAX_BYTES).decode("utf-8", "replace")
                names |= defined_commands(tool, text).keys()
        return names

    def _removed_command(self, mention: Mention, path: str) -> Problem | None:
        """Return since when a file no longer defines a command, and what the same command is called now."""
        changes = self.git.list_changes(self.now.commit, path, most=MAX_STEPS)
        contents = self.git.read_blobs([f"{change.id}:{path}" for change in changes])
        later: CommitInfo | None = None
        later_commands: dict[str, str] = {}
        for change in changes:  # the newest first
            text = contents.get(f"{change.id}:{path}", b"").decode("utf-8", "replace")
            commands = defined_commands(mention.tool, text)
            if mention.name in commands:
                now = self._same_command(mention.tool, commands[mention.name], later_commands)
                return Problem("command", mention.name, path, later, now) if later else None
            later, later_commands = change, commands
        return None

    def _same_command(self, tool: str, body: str, commands: Mapping[str, str]) -> str:
        """Return the command that does the same under another name; "" if there is none or not one only."""
        same = [name for name, other in commands.items() if other == body]
        return same[0] if body and len(same) == 1 and same[0] in self._commands_at(self.now, tool) else ""

    # --- symbols -----------------------------------------------------------------------------------------------------

    def _check_symbols(self, mentions: Sequence[tuple[Mention, Tree]]) -> tuple[int, list[tuple[int, Problem]]]:
        """Return how many of these symbols the source code has or had, and those that it has no longer, by line."""
        names = {mention.name for mention, _ in mentions}
        blobs = code_blobs(self.now)
        present = find_symbols(self.git, blobs, names) if names else {}
        if present is None:  # too much code to be sure
            return 0, []
        missing = [(mention, then) for mention, then in mentions if mention.name not in present]
        problems: list[tuple[int, Problem]] = []
        for then in list({then.commit: then for _, then in missing}.values())[:MAX_OLD_TREES]:
            symbols = {mention.name for mention, tree in missing if tree is then}
            # No file that is still the same has them.
            old_blobs = {key: path for key, path in code_blobs(then).items() if key not in blobs}
            for name, path in (find_symbols(self.git, old_blobs, symbols) or {}).items():
                lines = [mention.line for mention, tree in missing if tree is then and mention.name == name]
                commit = self._removed_symbol(name, path)
                problems += [(line, Problem(_SYMBOL, name, path, commit)) for line in lines if commit]
        return len(mentions) - len(missing) + len(problems), problems

    def _removed_symbol(self, name: str, path: str) -> CommitInfo | None:
        """Return the commit since which a file does not contain a word any more."""
        changes = self.git.list_changes(self.now.commit, path, most=MAX_STEPS)
        contents = self.git.read_blobs([f"{change.id}:{path}" for change in changes])
        later: CommitInfo | None = None
        for change in changes:  # the newest first
            text = contents.get(f"{change.id}:{path}", b"").decode("utf-8", "replace")
            if re.search(rf"\b{re.escape(name)}\b", text):
                return later
            later = change
        return None


def _folder(name: str) -> str:
    return "" if name.startswith("/") else name.rpartition("/")[0]


def _moved_folder(path: str, old: Tree, new: Tree) -> str:
    """Return the directory to which at least half of a directory's files were moved unchanged; "" if there is none."""
    by_blob: defaultdict[str, list[str]] = defaultdict(list)
    for other, blob in new.blobs.items():
        by_blob[blob].append(other)
    inside = [other for other in old.blobs if other.startswith(f"{path}/")]
    counts: defaultdict[str, int] = defaultdict(int)
    for other in inside:
        tail = other[len(path) :]
        for moved in by_blob[old.blobs[other]]:
            if moved.endswith(tail) and moved != other:
                counts[moved[: -len(tail)]] += 1
    best = max(counts, key=lambda folder: counts[folder], default="")
    return best if best and counts[best] * 2 >= len(inside) else ""


def _rename(name: str, path: str, now: str) -> str:
    """Return the new name in the form of the old one, which may be only the end of its path."""
    bare = name.removeprefix("./").rstrip("/")
    prefix = path[: -len(bare)] if path.endswith(bare) else ""
    if not now or (prefix and not now.startswith(prefix)):
        return now
    return ("./" if name.startswith("./") else "") + now[len(prefix) :] + ("/" if name.endswith("/") else "")


# --- proposing and making changes ------------------------------------------------------------------------------------


def _finding(file: InstructionFile, line: int, problems: tuple[Problem, ...]) -> Finding:
    """Propose other text for a line if the new names are known; its deletion if it is an entry about what is gone."""
    text = file.lines[line - 1]
    renames = [problem for problem in problems if problem.now]
    replacement: str | None = text
    for problem in renames:
        now = problem.now.replace("\\", "\\\\")
        replacement = re.sub(rf"(?<![\w./-]){re.escape(problem.name)}(?![\w-])", now, replacement or "")
    if not renames and any(is_entry_for(text, problem.name) for problem in problems):
        replacement = None
    return Finding(file.name, line, text, problems, replacement)


def as_row(finding: Finding) -> dict[str, Any]:
    """Return a finding as `review --json` and the API show it."""
    problems = [
        {
            "kind": problem.kind,
            "name": problem.name,
            "was": problem.was,
            "now": problem.now,
            "commit": problem.commit.id if problem.commit else "",
            "subject": problem.commit.subject[:MAX_SUBJECT] if problem.commit else "",
        }
        for problem in finding.problems
    ]
    return {
        "kind": "statement",
        "file": finding.file,
        "line": finding.line,
        "text": finding.text,
        "problems": problems,
        "has_proposal": finding.has_proposal,
        "replacement": finding.replacement,
    }


def apply(file: InstructionFile, accepted: Sequence[Finding]) -> None:
    """Write the accepted changes of a file at once, unless it was changed since it was read."""
    changes: Mapping[int, str | None] = {finding.line: finding.replacement for finding in accepted}
    lines = file.content.decode("utf-8").splitlines(keepends=True)
    text = "".join(_changed_lines(lines, changes))
    with tempfile.NamedTemporaryFile("wb", dir=file.path.parent, prefix=".claude-mem-", delete=False) as temp:
        try:
            temp.write(text.encode())
            temp.flush()
            os.fsync(temp.fileno())
            Path(temp.name).chmod(file.path.stat().st_mode & 0o777)
            if untrusted_files.read(file.path, most=MAX_BYTES) != file.content:
                raise OperationFailed(f"{file.name} was changed meanwhile", hint="nothing was written; run it again")
            Path(temp.name).replace(file.path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temp.name).unlink()
            raise


def _changed_lines(lines: Sequence[str], changes: Mapping[int, str | None]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if number not in changes:
            yield line
        elif (replacement := changes[number]) is not None:
            yield replacement + line[len(line.rstrip("\r\n")) :]


# --- names in the code -----------------------------------------------------------------------------------------------
#
# Which files, commands and symbols the repository has at a commit, read from git's objects only.


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
