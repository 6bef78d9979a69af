"""Which local tools show what strangers wrote: packages, clones, fetched branches, logs, databases, other programs.

A text does not become the project's own because a local command shows it. Own is what the person says, what the agent
writes, and the files and commits of the project; `origins.py` sees to what comes by the network. Everything else is
foreign. It is not held as such: `providers/trust.py` holds the sentences that repeat it.

Commands are known by a list of what shows nothing foreign (`data/foreign.toml`); what is not on it counts as foreign,
so a program that nobody thought of does too.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from claude_mem import phrases, shell
from claude_mem.records import Body, SubagentStopped, ToolUsed
from claude_mem.shell import Call
from claude_mem.text import clip, strings

MOST = 20_000  # characters of a command that are looked at
MOST_DEEP = 12  # folders below the project that are looked at
MOST_FOLDERS = 50  # clones of a session that are remembered

PACKAGES, CLONE, BRANCH, LOG, ELSEWHERE, TASK, SUBAGENT = (
    "packages", "clone", "branch", "log", "elsewhere", "task", "subagent",
)  # fmt: skip
BUILD = "build"  # the project's own build or tests: mostly our words, but they may quote a stranger's

_FILE = tomllib.loads((Path(__file__).parent / "data" / "foreign.toml").read_text("utf-8"))
_FOLDERS, _SHOWS_FILES, _SAYS_NOTHING, _BUILDS, _ASKS_REGISTRY = (
    frozenset(_FILE[name].split())
    for name in ("package_folders", "shows_files", "says_nothing", "builds", "asks_registry")
)
_PACKAGE = re.compile(rf"(?:^|[/\s\"'=:])(?:{'|'.join(map(re.escape, sorted(_FOLDERS)))})/")
_LOG_FILE = re.compile(r"\.(?:log|out|err|trace|dmp|har|eml|mbox)(?:\.\d{1,3})?$|(?:^|/)logs?/")
_READERS = ("Read", "NotebookRead", "Grep", "Glob", "LS")
_WRITERS = ("Edit", "Write", "MultiEdit", "NotebookEdit", "apply_patch")
_TASKS = re.compile(
    r"(?:Bash|Task|Agent|Shell|Command|Process)_?Output|Monitor|read_?(?:terminal|process)|KillShell", re.I
)
_AGENTS = ("Task", "Agent")
_OWN_TOOLS = (
    "TodoWrite", "TodoRead", "TaskCreate", "TaskUpdate", "TaskList", "TaskGet", "ExitPlanMode", "EnterPlanMode",
    "Skill", "AskUserQuestion", "LSP", "ToolSearch",
)  # fmt: skip

# Branches that are the project's own, also where a remote has them.
_MAIN = r"(?:main|master|develop|development|trunk|HEAD|default|next|stable|release\S{0,40})"
_REMOTE = re.compile(
    rf"FETCH_HEAD|@\{{u|(?:refs/)?(?:pull|merge-requests|changes)/\d"
    rf"|(?:refs/remotes/|remotes/)?(?:origin|upstream|fork)/(?!{_MAIN}(?:$|[\s~^:@.]))\S"
)
_SHOWS_COMMITS = (
    "log", "show", "diff", "shortlog", "cherry", "blame", "whatchanged", "range-diff", "format-patch", "reflog",
    "notes", "for-each-ref", "ls-remote", "grep", "cat-file", "branch", "tag",
)  # fmt: skip
_GIT_VALUES = ("-C", "-c", "--git-dir", "--work-tree")
_ARCHIVES = ("tar", "bsdtar", "unzip", "7z", "7za", "unrar", "gunzip", "bunzip2", "unxz", "zstd", "cpio", "ditto")


@dataclass(frozen=True, slots=True)
class Here:
    """Where the work is done, and the folders and remotes that came from elsewhere in the session."""

    root: str = ""
    cwd: str = ""
    fetched: frozenset[str] = frozenset()


def name(body: Body, here: Here) -> str:
    """Return what kind of strangers' text a result carries, in a word; empty if it carries none."""
    if isinstance(body, SubagentStopped):
        return SUBAGENT if body.message else ""
    if not isinstance(body, ToolUsed) or body.name in (*_WRITERS, *_OWN_TOOLS) or body.name.startswith("mcp__"):
        return ""
    if body.name == "Bash":
        return _of_command(_command(body), here)
    if body.name in _READERS:
        return _of_files(body, here)
    if body.name in _AGENTS:
        return SUBAGENT
    return TASK if _TASKS.fullmatch(body.name) else body.name[:60]


def fetched(bodies: Iterable[Body]) -> frozenset[str]:
    """Return the folders that these calls cloned or unpacked, and the names of the remotes that they added."""
    found: dict[str, None] = {}
    for body in bodies:
        if isinstance(body, ToolUsed) and (command := _command(body)) and _MAY_FETCH.search(command):
            for call in shell.calls(command):
                found.update(dict.fromkeys(_brought(call)))
    return frozenset(list(found)[:MOST_FOLDERS])


def may_fetch(text: str) -> bool:
    """Could this event be one that `fetched` looks for?"""
    return bool(_MAY_FETCH.search(text))


def texts(body: Body, *, whole: bool = False) -> Iterator[str]:
    """Yield what a result shows, without what it only repeats of the call; of a long text both ends, unless `whole`."""
    if isinstance(body, SubagentStopped):
        yield clip(body.message, MOST)
    elif isinstance(body, ToolUsed):
        asked = "\n".join(strings(body.input))
        yield from phrases.answered((text if whole else clip(text, MOST) for text in phrases.shown(body.output)), asked)


_MAY_FETCH = re.compile(r"clone|remote|checkout|tar|unzip|7z|degit|create|init|submodule|worktree|fetch|pull")


def _command(body: ToolUsed) -> str:
    command = body.input.get("command")
    return command[:MOST] if body.name == "Bash" and isinstance(command, str) else ""


# --- files -----------------------------------------------------------------------------------------------------------


def _of_files(body: ToolUsed, here: Here) -> str:
    paths = [body.input.get(key) for key in ("file_path", "notebook_path", "path", "glob")]
    for path in paths:
        if isinstance(path, str) and (found := of_path(path, here)):
            return found
    shown = (text[:MOST] for text in strings(body.output)) if body.name != "Read" else ()
    return PACKAGES if any(map(_PACKAGE.search, shown)) else ""


def of_path(path: str, here: Here) -> str:
    """Return whose file it is, if not the project's."""
    if _PACKAGE.search(f"{path}/"):
        return PACKAGES
    if _is_below(path, here.fetched, here):
        return CLONE
    if _LOG_FILE.search(path):
        return LOG
    if not path.startswith(("/", "~", "..")):
        return ""
    own = [folder.rstrip("/") for folder in (here.root, here.cwd) if folder.rstrip("/")]
    if not own or path.startswith(("/dev/", "/proc/")) or "/.claude/" in path:
        return ""
    return "" if any(path == folder or path.startswith(f"{folder}/") for folder in own) else ELSEWHERE


def is_nested(body: ToolUsed, cwd: str) -> bool:
    """Was a file read that belongs to another repository inside this folder, as a clone does?"""
    path = body.input.get("file_path") or body.input.get("path")
    if not isinstance(path, str) or not cwd or not path.startswith(f"{cwd.rstrip('/')}/"):
        return False
    parts = path[len(cwd.rstrip("/")) + 1 :].split("/")[:MOST_DEEP]
    folders = [f"{cwd.rstrip('/')}/{'/'.join(parts[:depth])}" for depth in range(1, len(parts))]
    return any(os.path.lexists(f"{folder}/.git") for folder in folders if "\0" not in folder)


def _is_below(path: str, folders: Iterable[str], here: Here) -> bool:
    bare = path.removeprefix("./")
    for folder in (here.root, here.cwd):
        bare = bare.removeprefix(f"{folder.rstrip('/')}/") if folder else bare
    return any(bare == folder or bare.startswith(f"{folder}/") or f"/{folder}/" in bare for folder in folders)


# --- commands --------------------------------------------------------------------------------------------------------


def _of_command(command: str, here: Here) -> str:
    """The first foreign thing that a command shows; that of a build counts only if there is nothing else."""
    calls = list(shell.calls(command))
    brought = {folder for call in calls for folder in _brought(call)}
    here = Here(here.root, here.cwd, here.fetched | brought) if brought else here
    names = [found for call in calls if (found := _of_call(call, here))]
    return next((found for found in names if found != BUILD), BUILD if names else "")


def _of_call(call: Call, here: Here) -> str:
    words = [word for word in call.words if not word.startswith("-")]
    paths = [*words, *call.reads, *(word.partition("=")[2] for word in call.words if "=" in word)]
    if call.program in ("cd", "pushd"):
        return next((found for word in words[:1] if (found := of_path(word, here))), "")
    if not call.program or call.program in _SAYS_NOTHING:
        return ""
    if call.program == "git":
        return _of_git(call, here)
    if found := next((found for path in paths if (found := of_path(path, here))), ""):
        return found
    if call.program in _SHOWS_FILES:
        return ""
    if call.program.endswith((".sh", ".py", ".js", ".ts")):
        return BUILD
    if call.program in ("npx", "bunx", "pnpx", "uvx", "pipx"):
        return call.program
    if call.program in _BUILDS:
        return _of_build(call, words)
    return call.program[:60]


def _of_build(call: Call, words: Sequence[str]) -> str:
    if words and words[0] in _ASKS_REGISTRY and words[0] not in ("tool", "exec", "list", "ls", "x", "create"):
        return f"{call.program}"
    runs = any(re.search(r".@(?:latest|v?\d|next)|^(?:git\+)?https?://|^github:", word) for word in words)
    asks = words[:1] and words[0] in ("dlx", "x", "create", "list", "ls", "init") and len(words) > 1
    module = call.program.startswith("python") and re.search(r"\bpip\b", " ".join(call.words[:3]))
    return call.program if runs or asks or module else BUILD


def _of_git(call: Call, here: Here) -> str:
    sub, rest = _sub_command(call.words)
    folder = next((word for option, word in zip(call.words, call.words[1:], strict=False) if option == "-C"), "")
    if folder and (found := of_path(folder, here)):
        return found
    if sub in ("clone", "fetch", "pull", "am", "submodule", "ls-remote"):
        return BRANCH
    refs = [part for word in rest if not word.startswith("-") for part in _shown_refs(word)]
    remotes = tuple(f"{name}/" for name in here.fetched)
    if any(_REMOTE.match(ref) or (remotes and ref.startswith(remotes)) for ref in refs):
        return BRANCH
    if sub in _SHOWS_COMMITS and ("HEAD" in here.fetched or any(word in ("--all", "--remotes") for word in rest)):
        return BRANCH
    return next((found for word in rest if (found := of_path(word, here))), "") if "--no-index" in rest else ""


def _sub_command(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    at = 0
    while at < len(words):
        if words[at] in _GIT_VALUES:
            at += 1
        elif not words[at].startswith("-"):
            return words[at], words[at + 1 :]
        at += 1
    return "", ()


def _shown_refs(word: str) -> Iterator[str]:
    """Of a range only its end: `origin/x..HEAD` shows what is ours."""
    left, dots, right = word.partition("...") if "..." in word else word.partition("..")
    yield (right or "HEAD") if dots else left.partition(":")[0]
    if dots and right and left in ("HEAD", "main", "master"):
        yield right


def _brought(call: Call) -> Iterator[str]:
    """Folders that a call fills from elsewhere; a remote that it adds; `HEAD` if it takes a stranger's branch."""
    words = [word for word in call.words if not word.startswith("-")]
    if call.program == "git":
        sub, rest = _sub_command(call.words)
        plain = [word for word in rest if not word.startswith("-")]
        if sub == "clone" or plain[:1] == ["add"]:
            yield from _target(plain[sub != "clone" :], sub)
        if sub in ("checkout", "switch", "merge", "cherry-pick", "rebase") and any(map(_REMOTE.match, plain)):
            yield "HEAD"
    elif call.program in ("gh", "glab") and words[:2] in (["repo", "clone"], ["pr", "checkout"], ["mr", "checkout"]):
        yield from _target(words[2:], "clone") if words[1] == "clone" else ("HEAD",)
    elif call.program in _ARCHIVES:
        yield from _unpacked(call)
    elif call.program in ("degit", "tiged", "giget", "cookiecutter", "copier"):
        yield from _target(words, "clone")


def _target(words: Sequence[str], sub: str) -> Iterator[str]:
    """`URL [folder]` of a clone or a submodule; `name URL` of a remote."""
    if not words:
        return
    if sub == "remote":
        yield words[0]
        return
    folder = words[1] if len(words) > 1 else words[0].rstrip("/").rpartition("/")[2].partition(":")[2] or words[0]
    bare = PurePosixPath(folder.rstrip("/")).name.removesuffix(".git").partition("#")[0]
    if bare and bare not in (".", ".."):
        yield bare if len(words) < 2 else folder.rstrip("/").removeprefix("./")


def _unpacked(call: Call) -> Iterator[str]:
    options = ("-C", "-d", "--directory", "-o")
    chosen = [word for option, word in zip(call.words, call.words[1:], strict=False) if option in options]
    yield from (folder.rstrip("/").removeprefix("./") for folder in chosen if folder.strip("./"))
    if not chosen:
        for word in call.words:
            if re.search(r"\.(?:zip|tgz|tar|tar\.\w{2,4}|7z|rar|gz)$", word):
                yield re.sub(r"\.(?:zip|tgz|tar|tar\.\w{2,4}|7z|rar|gz)$", "", PurePosixPath(word).name)
