"""Which local tools show text written by strangers: packages, clones, fetched branches, logs, databases, programs.

A text does not become the project's own because a local command prints it. The project's own text is what the user
says, what the agent writes, and the files and commits of the project; `trust.py` covers content from the network.
Everything else is foreign. Foreign text is not held as such: `digest/provenance.py` holds the sentences that repeat it.

`data/foreign.toml` lists the commands that show nothing foreign. A program that is not listed counts as foreign, so an
unknown program does too.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from claude_mem.domain.records import Body, SubagentStopped, ToolUsed
from claude_mem.domain.text import clip, iter_strings
from claude_mem.privacy import phrases, shell
from claude_mem.privacy.shell import Call

MAX_CHARS = 20_000  # characters of a command or a text that are examined
MAX_DEPTH = 12  # directory levels below the project that are examined
MAX_FETCHED = 50  # clones that are remembered per session

PACKAGES, CLONE, BRANCH, LOG, ELSEWHERE, TASK, SUBAGENT = (
    "packages", "clone", "branch", "log", "elsewhere", "task", "subagent",
)  # fmt: skip
BUILD = "build"  # the project's own build or tests: mostly our own text, but it may quote a stranger's

_FILE = tomllib.loads((Path(__file__).parents[1] / "data" / "foreign.toml").read_text("utf-8"))
_PACKAGE_FOLDERS, _SHOWS_FILES, _SILENT, _BUILDS, _QUERIES_REGISTRY = (
    frozenset(_FILE[key].split())
    for key in ("package_folders", "shows_files", "says_nothing", "builds", "asks_registry")
)
_PACKAGE = re.compile(rf"(?:^|[/\s\"'=:])(?:{'|'.join(map(re.escape, sorted(_PACKAGE_FOLDERS)))})/")
_LOG_FILE = re.compile(r"\.(?:log|out|err|trace|dmp|har|eml|mbox)(?:\.\d{1,3})?$|(?:^|/)logs?/")
_READ_TOOLS = ("Read", "NotebookRead", "Grep", "Glob", "LS")
_WRITE_TOOLS = ("Edit", "Write", "MultiEdit", "NotebookEdit", "apply_patch")
_TASK_TOOLS = re.compile(
    r"(?:Bash|Task|Agent|Shell|Command|Process)_?Output|Monitor|read_?(?:terminal|process)|KillShell", re.I
)
_AGENT_TOOLS = ("Task", "Agent")
_OWN_TOOLS = (
    "TodoWrite", "TodoRead", "TaskCreate", "TaskUpdate", "TaskList", "TaskGet", "ExitPlanMode", "EnterPlanMode",
    "Skill", "AskUserQuestion",
)  # fmt: skip

# Branches that belong to the project itself, even on a remote.
_MAIN_BRANCHES = r"(?:main|master|develop|development|trunk|HEAD|default|next|stable|release\S{0,40})"
_REMOTE = re.compile(
    rf"FETCH_HEAD|@\{{u|(?:refs/)?(?:pull|merge-requests|changes)/\d"
    rf"|(?:refs/remotes/|remotes/)?(?:origin|upstream|fork)/(?!{_MAIN_BRANCHES}(?:$|[\s~^:@.]))\S"
)
_SHOWS_COMMITS = (
    "log", "show", "diff", "shortlog", "cherry", "blame", "whatchanged", "range-diff", "format-patch", "reflog",
    "notes", "for-each-ref", "ls-remote", "grep", "cat-file", "branch", "tag",
)  # fmt: skip
_GIT_OPTIONS_WITH_VALUE = ("-C", "-c", "--git-dir", "--work-tree")
_DOWNLOADERS = ("curl", "wget", "wget2", "aria2c", "http", "https", "xh", "yt-dlp", "gh", "glab")
_COPIERS = ("scp", "rsync", "sftp")
_CLOUDS = ("rclone", "aws", "gsutil", "gcloud", "s3cmd", "mc", "kubectl", "docker", "podman")
_COPY_WORDS = frozenset(("cp", "copy", "copyto", "sync", "mv", "get"))
_OUTPUT_OPTION = re.compile(r"-[a-zA-Z]{0,6}o|-O|--output(?:-document)?|--out|--dir|-D")
_ARCHIVES = ("tar", "bsdtar", "unzip", "7z", "7za", "unrar", "gunzip", "bunzip2", "unxz", "zstd", "cpio", "ditto")


@dataclass(frozen=True, slots=True)
class Workspace:
    """The working directory, and the directories and remotes that were fetched in the session."""

    root: str = ""
    cwd: str = ""
    fetched: frozenset[str] = frozenset()


def foreign_kind(body: Body, here: Workspace) -> str:
    """Return the kind of foreign text that a tool result carries; "" if it carries none."""
    if isinstance(body, SubagentStopped):
        return SUBAGENT if body.message else ""
    if isinstance(body, ToolUsed) and body.name == "mcp__ide__executeCode":
        return BUILD
    if not isinstance(body, ToolUsed) or body.name in (*_WRITE_TOOLS, *_OWN_TOOLS) or body.name.startswith("mcp__"):
        return ""
    if body.name == "Bash":
        return _kind_of_command(_command(body), here)
    if body.name in _READ_TOOLS:
        return _kind_of_files(body, here)
    if body.name in _AGENT_TOOLS:
        return SUBAGENT
    return TASK if _TASK_TOOLS.fullmatch(body.name) else body.name[:60]


def find_fetched(bodies: Iterable[Body]) -> frozenset[str]:
    """Return the directories that these calls cloned or unpacked, the files they downloaded, and the names of the
    remotes they added."""
    fetched_names: dict[str, None] = {}
    for body in bodies:
        if isinstance(body, ToolUsed) and (command := _command(body)) and _MAY_FETCH.search(command):
            for line in shell.parse_lines(command):
                fetched_names.update(dict.fromkeys(name for call in line for name in _fetched_by(call)))
                fetched_names.update(dict.fromkeys(_saved_by(line)))
    return frozenset(list(fetched_names)[:MAX_FETCHED])


def may_fetch(text: str) -> bool:
    """Return whether `fetched` may find something in an event with this text."""
    return bool(_MAY_FETCH.search(text))


def foreign_texts(body: Body, *, whole: bool = False) -> Iterator[str]:
    """Yield the texts of a tool result without sentences that only repeat the call. A long text is reduced to its two
    ends, unless `whole`."""
    if isinstance(body, SubagentStopped):
        yield clip(body.message, MAX_CHARS)
    elif isinstance(body, ToolUsed):
        output_texts = (text if whole else clip(text, MAX_CHARS) for text in phrases.output_texts(body.output))
        yield from phrases.without_echoes(output_texts, "\n".join(iter_strings(body.input)))


_MAY_FETCH = re.compile(
    r"clone|remote|checkout|tar|unzip|7z|degit|create|init|submodule|worktree|fetch|pull|restore|>|tee|curl|wget|aria2"
    r"|scp|rsync|sftp|rclone|aws|gsutil|gcloud|\baz\b|s3cmd|\bmc\b|(?:kubectl|docker|podman)\s+cp|download"
)


def _command(body: ToolUsed) -> str:
    command = body.input.get("command")
    return command[:MAX_CHARS] if body.name == "Bash" and isinstance(command, str) else ""


# --- files -----------------------------------------------------------------------------------------------------------


def _kind_of_files(body: ToolUsed, here: Workspace) -> str:
    paths = [body.input.get(key) for key in ("file_path", "notebook_path", "path", "glob")]
    for path in paths:
        if isinstance(path, str) and (kind := kind_of_path(path, here)):
            return kind
    listing = [text[:MAX_CHARS] for text in iter_strings(body.output)] if body.name != "Read" else []
    if any(map(_PACKAGE.search, listing)):
        return PACKAGES
    return CLONE if any(f"{name}:" in text for text in listing for name in here.fetched) else ""


def kind_of_path(path: str, here: Workspace) -> str:
    """Return the kind of foreign text that a file contains; "" if the file is the project's own."""
    if _PACKAGE.search(f"{path}/"):
        return PACKAGES
    if _is_below(path, here.fetched, here):
        return CLONE
    if _LOG_FILE.search(path):
        return LOG
    if path.endswith(".git/FETCH_HEAD"):
        return BRANCH
    if not path.startswith(("/", "~", "..")):
        return ""
    own_folders = [folder.rstrip("/") for folder in (here.root, here.cwd) if folder.rstrip("/")]
    if not own_folders or path.startswith(("/dev/", "/proc/")) or "/.claude/" in path:
        return ""
    return "" if any(path == folder or path.startswith(f"{folder}/") for folder in own_folders) else ELSEWHERE


def reads_files(body: Body) -> bool:
    """Return whether this is a call of a tool that reads files."""
    return isinstance(body, ToolUsed) and body.name in _READ_TOOLS


def known_output(body: ToolUsed) -> object:
    """Return the output of a call without the content of files: the agent may have written into them what it had read
    elsewhere."""
    if not reads_files(body) or not isinstance(body.output, dict):
        return body.output
    return {name: item for name, item in body.output.items() if name not in ("content", "file")}


def reads_nested_repository(body: ToolUsed, cwd: str) -> bool:
    """Return whether a file was read that belongs to another repository inside this directory, such as a clone."""
    path = body.input.get("file_path") or body.input.get("path")
    if not isinstance(path, str) or not cwd or not path.startswith(f"{cwd.rstrip('/')}/"):
        return False
    parts = path[len(cwd.rstrip("/")) + 1 :].split("/")[:MAX_DEPTH]
    folders = [f"{cwd.rstrip('/')}/{'/'.join(parts[:depth])}" for depth in range(1, len(parts))]
    return any(os.path.lexists(f"{folder}/.git") for folder in folders if "\0" not in folder)


def _is_below(path: str, folders: Iterable[str], here: Workspace) -> bool:
    bare = path.removeprefix("./")
    for folder in (here.root, here.cwd):
        bare = bare.removeprefix(f"{folder.rstrip('/')}/") if folder else bare
    return any(
        bare == folder or bare.startswith(f"{folder}/") or f"/{folder}/" in bare or bare.endswith(f"/{folder}")
        for folder in folders
    )


# --- commands --------------------------------------------------------------------------------------------------------


def _kind_of_command(command: str, here: Workspace) -> str:
    """Return the first kind of foreign text that a command shows; `build` only if there is no other."""
    calls = list(shell.parse_calls(command))
    fetched_here = {folder for call in calls for folder in _fetched_by(call)}
    here = Workspace(here.root, here.cwd, here.fetched | fetched_here) if fetched_here else here
    kinds = [kind for call in calls if (kind := _kind_of_call(call, here))]
    return next((kind for kind in kinds if kind != BUILD), BUILD if kinds else "")


def _kind_of_call(call: Call, here: Workspace) -> str:
    if kind := next((kind for path in call.reads if (kind := kind_of_path(path, here))), ""):
        return kind  # also of `while read line; do …; done < file`
    words = [word for word in call.words if not word.startswith("-")]
    paths = [*words, *(word.partition("=")[2] for word in call.words if "=" in word)]
    if call.program in ("cd", "pushd"):
        return next((kind for word in words[:1] if (kind := kind_of_path(word, here))), "")
    if not call.program or call.program in _SILENT:
        return ""
    if call.program == "git":
        return _kind_of_git(call, here)
    if kind := next((kind for path in paths if (kind := kind_of_path(path, here))), ""):
        return kind
    if call.program in _SHOWS_FILES:
        return ""
    if call.program.endswith((".sh", ".py", ".js", ".ts")):
        return BUILD
    if call.program in ("npx", "bunx", "pnpx", "uvx", "pipx"):
        return call.program
    if call.program in _BUILDS:
        return _kind_of_build(call, words)
    return call.program[:60]


def _kind_of_build(call: Call, words: Sequence[str]) -> str:
    if words and words[0] in _QUERIES_REGISTRY and words[0] not in ("tool", "exec", "list", "ls", "x", "create"):
        return call.program
    runs = any(re.search(r".@(?:latest|v?\d|next)|^(?:git\+)?https?://|^github:", word) for word in words)
    asks = words[:1] and words[0] in ("dlx", "x", "create", "list", "ls", "init") and len(words) > 1
    module = call.program.startswith("python") and re.search(r"\bpip\b", " ".join(call.words[:3]))
    return call.program if runs or asks or module else BUILD


def _kind_of_git(call: Call, here: Workspace) -> str:
    sub, arguments = _sub_command(call.words)
    folder = next((word for option, word in zip(call.words, call.words[1:], strict=False) if option == "-C"), "")
    if folder and (kind := kind_of_path(folder, here)):
        return kind
    if sub in ("clone", "fetch", "pull", "am", "submodule", "ls-remote"):
        return BRANCH
    refs = [part for word in arguments if not word.startswith("-") for part in _shown_refs(word)]
    remotes = tuple(f"{remote}/" for remote in here.fetched)
    if any(_REMOTE.match(ref) or (remotes and ref.startswith(remotes)) for ref in refs):
        return BRANCH
    if sub in ("blame", "show", "grep", "cat-file") and (
        kind := next((kind for word in arguments if (kind := kind_of_path(word.partition(":")[2] or word, here))), "")
    ):
        return kind
    if sub in _SHOWS_COMMITS and ("HEAD" in here.fetched or any(word in ("--all", "--remotes") for word in arguments)):
        return BRANCH
    return (
        next((kind for word in arguments if (kind := kind_of_path(word, here))), "")
        if "--no-index" in arguments
        else ""
    )


def _sub_command(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    at = 0
    while at < len(words):
        if words[at] in _GIT_OPTIONS_WITH_VALUE:
            at += 1
        elif not words[at].startswith("-"):
            return words[at], words[at + 1 :]
        at += 1
    return "", ()


def _shown_refs(word: str) -> Iterator[str]:
    """Yield the refs whose commits are shown: of a range only its end, since `origin/x..HEAD` shows our own commits."""
    start, dots, end = word.partition("...") if "..." in word else word.partition("..")
    yield (end or "HEAD") if dots else start.partition(":")[0]
    if dots and end and start in ("HEAD", "main", "master"):
        yield end


def _fetched_by(call: Call) -> Iterator[str]:
    """Yield the directories that a call fills with foreign files, a remote that it adds, and `HEAD` if it checks out or
    merges a foreign branch."""
    words = [word for word in call.words if not word.startswith("-")]
    if call.program == "git":
        sub, rest = _sub_command(call.words)
        plain = [word for word in rest if not word.startswith("-")]
        if sub == "clone" or plain[:1] == ["add"]:
            yield from _fetch_target(plain[sub != "clone" :], sub)
        is_foreign = any(_REMOTE.match(word.partition("=")[2] or word) for word in rest)
        if sub in ("checkout", "restore") and is_foreign and "--" in rest:
            yield from (path.removeprefix("./") for path in rest[rest.index("--") + 1 :])
        elif sub in ("checkout", "switch", "merge", "cherry-pick", "rebase") and is_foreign:
            yield "HEAD"
    elif call.program in ("gh", "glab") and words[:2] in (["repo", "clone"], ["pr", "checkout"], ["mr", "checkout"]):
        yield from _fetch_target(words[2:], "clone") if words[1] == "clone" else ("HEAD",)
    elif call.program in _ARCHIVES:
        yield from _unpack_targets(call)
    elif call.program in ("npm", "pnpm", "yarn", "bun") and words[:1] in (["create"], ["init"]) and len(words) > 2:
        yield words[-1].rstrip("/").removeprefix("./")
    elif call.program in ("degit", "tiged", "giget", "cookiecutter", "copier"):
        yield from _fetch_target(words, "clone")


def _fetch_target(words: Sequence[str], sub: str) -> Iterator[str]:
    """Yield the target of a clone or a submodule (`URL [directory]`) or of a remote (`name URL`)."""
    if not words:
        return
    if sub == "remote":
        yield words[0]
        return
    folder = words[1] if len(words) > 1 else words[0].rstrip("/").rpartition("/")[2].partition(":")[2] or words[0]
    bare = PurePosixPath(folder.rstrip("/")).name.removesuffix(".git").partition("#")[0]
    if bare and bare not in (".", ".."):
        yield bare if len(words) < 2 else folder.rstrip("/").removeprefix("./")


def _saved_by(line: Sequence[Call]) -> Iterator[str]:
    """Yield the files into which a pipeline writes foreign text."""
    shows_foreign = any(_kind_of_call(call, Workspace()) not in ("", BUILD) for call in line)
    for call in line:
        names = [*call.writes, *(call.words if call.program == "tee" else ())] if shows_foreign else []
        for name in (*names, *_downloaded_by(call)):
            bare = name.removeprefix("./").rstrip("/")
            if (
                not bare.isdigit()
                and bare not in ("", ".", "..", "-")
                and not bare.startswith(("-", "/dev/", "&"))
                and "$" not in bare
            ):
                yield bare


def _downloaded_by(call: Call) -> Iterator[str]:
    """Yield the files that a program was to write what it downloads to."""
    plain = [word for word in call.words if not word.startswith("-")]
    if call.program in _DOWNLOADERS:
        pairs = list(zip(call.words, call.words[1:], strict=False))
        yield from (name for option, name in pairs if _OUTPUT_OPTION.fullmatch(option))
        yield from (word.partition("=")[2] for word in call.words if word.startswith("--output"))
        if call.program != "curl" or any(re.fullmatch(r"-\w*O\w*|--remote-name(?:-all)?", word) for word in call.words):
            yield from (PurePosixPath(word.partition("?")[0]).name for word in plain if "/" in word)
    elif (
        len(plain) > 1
        and ":" not in plain[-1]
        and (call.program in _COPIERS or (call.program in _CLOUDS and _COPY_WORDS.intersection(plain[:-2])))
    ):
        source, target = plain[-2:]
        yield PurePosixPath(source).name if target in (".", "./") else target


def _unpack_targets(call: Call) -> Iterator[str]:
    options = ("-C", "-d", "--directory", "-o")
    targets = [word for option, word in zip(call.words, call.words[1:], strict=False) if option in options]
    yield from (folder.rstrip("/").removeprefix("./") for folder in targets if folder.strip("./"))
    if not targets:
        for word in call.words:
            if re.search(r"\.(?:zip|tgz|tar|tar\.\w{2,4}|7z|rar|gz)$", word):
                yield re.sub(r"\.(?:zip|tgz|tar|tar\.\w{2,4}|7z|rar|gz)$", "", PurePosixPath(word).name)
