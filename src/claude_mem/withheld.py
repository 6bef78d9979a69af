"""Files whose content is nobody's business: keys, passwords, settings of an environment.

What a tool has read from or written to one is not kept at all, whatever it looks like; that it was touched is. The
rules of `redact` know many secrets by their looks; here the place is enough.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase, translate
from functools import cache, lru_cache
from typing import Any

import msgspec

from claude_mem import patches, shell
from claude_mem.records import ToolUsed
from claude_mem.shell import Call

NOTE = "[content withheld]"

# A pattern with a slash is about the end of the path, one without about the name alone. The last that fits decides;
# after `!`: not these.
FILES = (
    "credentials", ".credentials", "credentials.*", ".credentials.*", "*-credentials.json", "*_credentials.json",
    "oauth_creds.json", "service-account*.json", "service_account*.json", "client_secret*.json", "secrets.*",
    "*.secrets", "*-secrets.*", "*_secrets.*", "secrets/*", "!*.py", "!*.pyi", "!*.js", "!*.mjs", "!*.ts", "!*.tsx",
    "!*.jsx", "!*.vue", "!*.go", "!*.rs", "!*.rb", "!*.java", "!*.kt", "!*.cs", "!*.php", "!*.c", "!*.h", "!*.cpp",
    "!*.swift", "!*.md", "!*.rst", ".env", ".env.*", ".env-*", ".env_*", "*.env", "*.env.bak", "*.env.old",
    "*.env.orig", "*.env.backup", "*.env.local", "*.env.dev*", "*.env.prod*", "*.env.staging", ".envrc", ".dev.vars",
    "!process.env*", "!*.meta.env*", "!*.example", "!*.sample", "!*.template", "!*.dist", "!.env[-_]example",
    "!.env[-_]sample", "!.env[-_]template", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".ssh/*", ".gnupg/*",
    "!*.pub", "!known_hosts*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.ppk", "*.kdbx", "*.keytab",
    ".netrc", "_netrc", ".npmrc", ".yarnrc.yml", ".pypirc", ".pgpass", ".my.cnf", ".git-credentials", ".htpasswd",
    ".boto", ".s3cfg", ".vault-token", ".terraformrc", "*.tfvars", "*.tfstate", "*.tfstate.backup", "kubeconfig",
    "*.kubeconfig", ".kube/config", ".docker/config.json", ".dockerconfigjson", ".dockercfg", ".aws/*", ".azure/*",
    ".config/gcloud/*", ".config/gh/hosts.yml", ".config/op/*", ".codex/auth.json", ".bash_history", ".zsh_history",
    ".claude-mem/*", "$claude_mem_data_dir/*", "etc/shadow",
)  # fmt: skip

# Where tools are told which file: Claude Code's names, and those of agents and servers that have their own.
_PATHS = (
    "file_path", "filePath", "path", "paths", "notebook_path", "absolute_path", "target_file", "filename", "file",
    "files", "relative_workspace_path", "uri", "glob", "moved_to", "relative_path", "filepath", "file_name",
    "pathInProject",
)  # fmt: skip
# What is a text under these names is no path, even if it is the name of a file: an editor puts `.env` into .gitignore.
_TEXTS = frozenset({
    "content", "contents", "file_text", "old_string", "new_string", "oldString", "newString", "old_str", "new_str",
    "old_text", "new_text", "oldText", "newText", "insert_text", "text", "pattern", "regex", "query", "search",
    "prompt", "description", "message", "title", "body", "replacement", "reason", "explanation", "summary", "question",
    "subject",
})  # fmt: skip
_COMMANDS = frozenset({
    "command", "cmd", "commands", "commandLine", "command_line", "shell_command", "script", "code", "args", "argv",
})  # fmt: skip
_NAMES_ONLY = ("Glob", "LS", "list_directory")  # they tell of names, not of what is inside
_WORDS = re.compile(r"[^\s\"'`|;&<>()=:,{}]{1,512}")
_ESCAPES = re.compile(r"\\{1,64}(?:u(?P<code>[0-9A-Fa-f]{4})|[nrtbf\"/])")


def hide(body: ToolUsed, more: Sequence[str] = ()) -> ToolUsed:
    """The same, without what was in such a file; itself if it has nothing to do with one."""
    rules = (*FILES, *more)
    if body.name == patches.TOOL:
        return _patch(body, rules)
    if body.name in _NAMES_ONLY:
        return body
    given = list(_texts(body.input))
    if any(is_withheld(text, rules) for name, text in given if _may_be_path(name, text)):
        return msgspec.structs.replace(body, input=_only_paths(body.input, rules), output=_hidden(body.output))
    commands = [_calls(text, rules) for name, text in given if name in _COMMANDS]
    if written := [path for calls in commands for path in _written(calls, rules)]:
        told = {**_numbers(body.input), "command": f"{NOTE} > {' '.join(written)}"}
        return msgspec.structs.replace(body, input=told, output=_hidden(body.output))
    if any(map(_print, commands)):
        return msgspec.structs.replace(body, output=_hidden(body.output))
    output = _without_its_lines(body.output, cache(lambda path: is_withheld(path, rules)))
    return body if output == body.output else msgspec.structs.replace(body, output=output)


def commands(body: ToolUsed) -> list[str]:
    """The commands that a tool was given."""
    return [text for name, text in _texts(body.input) if name in _COMMANDS]


def mentions(text: str, more: Sequence[str] = ()) -> bool:
    """Does it name such a file anywhere? For what could not be understood: half of some JSON, say."""
    text = _ESCAPES.sub(lambda found: chr(int(found["code"], 16)) if found["code"] else " ", text)
    return any(is_withheld(word, (*FILES, *more)) for word in set(_WORDS.findall(text)))


@lru_cache(4096)
def is_withheld(path: str, rules: tuple[str, ...]) -> bool:
    whole = "/" + path.strip().removeprefix("file://").replace("\\", "/").lower().rstrip("*?")
    name = whole.rpartition("/")[2]
    if not any(pattern.match(part) for pattern, part in zip(_any(rules), (name, whole), strict=True)):  # as almost all
        return False
    last = next(rule for rule in reversed(rules) if _pattern(rule).match(whole if "/" in rule else name))
    return not last.startswith("!")


@lru_cache(8)
def _any(rules: tuple[str, ...]) -> list[re.Pattern[str]]:
    """One for names, one for paths. A name is short, and most begin with other letters than any rule."""
    wanted = [rule for rule in rules if not rule.startswith("!")]
    apart = ([rule for rule in wanted if ("/" in rule) is with_slash] for with_slash in (False, True))
    return [re.compile("|".join(_pattern(rule).pattern for rule in some) or "(?!)") for some in apart]


@lru_cache(1024)
def _pattern(rule: str) -> re.Pattern[str]:
    rule = rule.removeprefix("!").lower()
    return re.compile(translate(f"*/{rule.lstrip('/')}" if "/" in rule else rule))


# --- what a tool was given -------------------------------------------------------------------------------------------


def _texts(given: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every string in it, with the name that it has, or the list that it is in."""
    if isinstance(given, str):
        yield name, given
    elif isinstance(given, dict):
        for key, item in given.items():
            yield from _texts(item, str(key))
    elif isinstance(given, list):
        for item in given:
            yield from _texts(item, name)


def _may_be_path(name: str, text: str) -> bool:
    return "\n" not in text and name not in _TEXTS and not (name in _COMMANDS and " " in text)


def _only_paths(given: Any, rules: tuple[str, ...], name: str = "") -> Any:
    """Where, and numbers; every other text may be content."""
    if isinstance(given, dict):
        return {key: _only_paths(item, rules, str(key)) for key, item in given.items()}
    if isinstance(given, list):
        return [_only_paths(item, rules, name) for item in given]
    is_content = isinstance(given, str) and name not in _PATHS and (name in _TEXTS or not is_withheld(given, rules))
    return NOTE if is_content else given


def _numbers(given: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in given.items() if isinstance(item, int | float)}


def _hidden(output: Any) -> Any:
    return NOTE if output else output


def _patch(body: ToolUsed, rules: tuple[str, ...]) -> ToolUsed:
    """A patch is of several files: only those that are withheld lose their lines."""
    changes = body.input.get("changes")
    if not isinstance(changes, list):
        named = any(is_withheld(path, rules) for patch in patches.changes(body.input) for path in patch.paths)
        return msgspec.structs.replace(body, input={"changes": []}, output=NOTE) if named else body
    hidden = [_change(change, rules) for change in changes]
    if hidden == changes:
        return body
    return msgspec.structs.replace(body, input={**body.input, "changes": hidden}, output=_hidden(body.output))


def _change(change: Any, rules: tuple[str, ...]) -> Any:
    if isinstance(change, dict) and any(is_withheld(path, rules) for _, path in _texts({**change, "patch": ""})):
        return {**change, "patch": NOTE}
    return change


# --- commands --------------------------------------------------------------------------------------------------------

# Programs that don't print what is in the files they are given, and the like among the commands of some others.
_QUIET = frozenset({
    "ls", "ll", "la", "dir", "exa", "eza", "tree", "rm", "unlink", "shred", "mv", "cp", "ln", "touch", "mkdir", "rmdir",
    "chmod", "chown", "chgrp", "stat", "file", "test", "[", "[[", "du", "wc", "realpath", "readlink", "basename",
    "dirname", "echo", "printf", "md5sum", "sha1sum", "sha256sum", "sha512sum", "shasum", "cmp", "scp", "rsync", "zip",
    "ssh-add", "ssh-keygen", "export", "unset", "which", "source", ".", "find", "fd",
})  # fmt: skip
_QUIET_PARTS = {
    "git": frozenset({
        "add", "rm", "mv", "status", "commit", "check-ignore", "check-attr", "ls-files", "ls-tree", "restore",
        "checkout", "reset", "clean", "update-index", "push", "pull", "fetch", "clone", "init", "branch", "switch",
        "merge", "rebase", "tag", "remote", "config", "log", "filter-branch", "filter-repo", "rev-parse", "worktree",
    }),
    "gh": frozenset({"pr", "issue", "release", "run", "repo", "workflow", "secret"}),
}  # fmt: skip
_SHOW_VARIABLES = frozenset({"printenv", "set", "declare", "typeset", "export"})
_SEARCH = frozenset({"grep", "egrep", "fgrep", "rg", "ag"})
_SHELLS_OUT = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec"})
_EDIT = frozenset({"sed", "gsed", "perl", "ruby", "awk", "gawk"})
_IN_PLACE = re.compile(r"--in-place|-[A-Za-z]{0,8}i")
_RUN_CODE = re.compile(
    r"(?:python|node|deno|bun|perl|ruby|php|bash|sh|zsh|dash|fish|pwsh|powershell|ssh|docker|tsx?)[0-9.]{0,8}\Z"
)
_PUTS = re.compile(r"(?i)write|append|[\"'][wax]b?\+?[\"']|>")
# After these a file is only to be used: a key, an environment. (But `docker compose config` prints it.)
_USED = re.compile(
    r"--?(?:(?:exclude|ignore)[\w-]{0,32}|env-file|var-file|kubeconfig|userconfig|netrc-file|cacert|certfile|keyfile|"
    r"(?:[a-z]{1,12}-)?(?:identity|key|cert|password|ca)(?:-file)?)(?:=|\Z)"
)
_USED_BY = {
    **dict.fromkeys(("ssh", "scp", "sftp", "rsync", "ssh-copy-id"), ("-i", "-F")),
    **dict.fromkeys(("dotenv", "dotenvx"), ("-e", "-f")),
}
_VARIABLE = re.compile(r"\$\{(\w{1,64})\}")


Calls = list[tuple[Call, list[str]]]  # each with the files of the list that it names


def _calls(command: str, rules: tuple[str, ...]) -> Calls:
    return [(call, _named(call, rules)) for call in shell.calls(_VARIABLE.sub(r"$\1", command))]


def _print(calls: Calls) -> bool:
    """May they have printed such a file? Yes, unless the program that is given its name is known not to."""
    if not any(named for _, named in calls):
        return False
    if any(named and not _is_quiet(call) for call, named in calls):
        return True
    run = [shell.run_by_xargs(call) for call, _ in calls if call.program == "xargs"]
    if any(call.program and not _is_quiet(call) for call in run):
        return True
    sourced = any(named and call.program in ("source", ".") for call, named in calls)
    return sourced and any(_shows_variables(call) for call, _ in calls)


def _is_quiet(call: Call) -> bool:
    if call.reads or (call.program in ("find", "fd") and not _SHELLS_OUT.isdisjoint(call.words)):
        return False
    if call.program in _QUIET_PARTS:
        part = next((word for word in call.words if not word.startswith("-") and "/" not in word), "")
        return part in _QUIET_PARTS[call.program]
    return call.program in _QUIET


def _shows_variables(call: Call) -> bool:
    if call.program in ("echo", "printf"):
        return any("$" in word for word in call.words)
    if not call.program:
        return "env" in call.words  # which runs nothing, then
    return call.program in _SHOW_VARIABLES and all(word.startswith("-p") for word in call.words)


def _written(calls: Calls, rules: tuple[str, ...]) -> list[str]:
    """The files of the list that they write. What they write stands in the command."""
    found: list[str] = []
    for call, named in calls:
        found += _listed(call.writes, rules)
        if named and _puts(call, rules):
            found += named
    return found


def _puts(call: Call, rules: tuple[str, ...]) -> bool:
    if call.program == "tee" or (
        call.program == "dd" and _listed([w for w in call.words if w.startswith("of=")], rules)
    ):
        return True
    if call.program in _EDIT and any(_IN_PLACE.match(word) for word in call.words):
        return True
    if call.text and _listed(call.words, rules):
        return True
    return bool(_RUN_CODE.match(call.program)) and any(_PUTS.search(code) for code in (*call.words, call.text))


def _named(call: Call, rules: tuple[str, ...]) -> list[str]:
    """Which files of the list it is given, for anything but to use them."""
    words = list(_given(call))
    if call.text and call.program not in ("cat", "tee", "git", "gh", ""):  # else it is the text of another file
        words.append(call.text)
    return _listed(words, rules)


def _given(call: Call) -> Iterator[str]:
    yield from call.reads
    yield call.program
    pattern = call.program in _SEARCH and not any(
        word.startswith(("-e", "--regexp", "-f", "--file")) for word in call.words
    )
    shows_used, skip = "config" in call.words, False
    for word in call.words:
        used = bool(_USED.match(word)) or word in _USED_BY.get(call.program, ())
        if pattern and not word.startswith("-"):
            pattern = False  # what is looked for, not where
        elif shows_used or not (skip or used):
            yield word
        skip = used and "=" not in word


def _listed(words: Iterable[str], rules: tuple[str, ...]) -> list[str]:
    parts = (part for word in words for part in _WORDS.findall(word))
    return list(dict.fromkeys(part for part in parts if _may_be_withheld(part, rules)))


def _may_be_withheld(path: str, rules: tuple[str, ...]) -> bool:
    """Also the folder of such files, and a pattern that stands for `.env`."""
    if is_withheld(path, rules):
        return True
    name = path.rstrip("/").rpartition("/")[2]
    return name[:1] == "." and (is_withheld(f"{path}/", rules) or (len(name) > 2 and fnmatchcase(".env", name)))


# --- what was printed ------------------------------------------------------------------------------------------------

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}[mK]")
_FOUND = re.compile(r"(?P<path>[^\s:]{1,512}):(?! \S)(?:(?P<second>[^\s:]{1,512}):)?")
_NEAR = re.compile(r"(?P<path>[^\s:]{1,512}?)-[0-9]{1,7}-")  # the lines around one that was found
_COMMIT = re.compile(r"commit [0-9a-f]{7,64}\b")
_NUMBERED = re.compile(r"[0-9]{1,7}[:\-]")


def _without_its_lines(output: Any, listed: Callable[[str], bool]) -> Any:
    """Some programs say of each line which file it is from: `git diff`, `grep -r`, `head` of several."""
    if isinstance(output, str):
        return _lines(output, listed) if ":" in output or "\n" in output else output
    if isinstance(output, dict):
        return {
            key: NOTE if item and "." in str(key) and listed(str(key)) else _without_its_lines(item, listed)
            for key, item in output.items()
        }
    return [_without_its_lines(item, listed) for item in output] if isinstance(output, list) else output


def _lines(text: str, listed: Callable[[str], bool]) -> str:
    lines = text.split("\n")
    kept: list[str] = []
    hiding = ""
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        plain = _COLOUR.sub("", line) if "\x1b" in line else line
        begun = _begins(plain, following, listed)
        if begun is not None:
            hiding = begun
            kept += [line, NOTE] if hiding else [line]
        elif hiding == "heading" and plain != "--" and not _NUMBERED.match(plain):
            hiding = ""
            kept.append(line)
        elif not hiding:
            kept.append(_found_line(line, plain, listed))
    return "\n".join(kept)


def _begins(line: str, following: str, listed: Callable[[str], bool]) -> str | None:
    """What is to be hidden from here on: "" for nothing, None if nothing begins."""
    if line.startswith("diff ") or (line.startswith("--- ") and _COLOUR.sub("", following).startswith("+++ ")):
        paths = line.split()[1:] + (following.split()[1:2] if line.startswith("---") else [])
        return "diff" if any(map(listed, paths)) else ""
    if line.startswith("==> ") and line.endswith(" <=="):
        return "file" if listed(line[4:-4]) else ""
    if _COMMIT.match(line):
        return ""
    if line and " " not in line and _NUMBERED.match(_COLOUR.sub("", following)) and listed(line):
        return "heading"
    return None


def _found_line(line: str, plain: str, listed: Callable[[str], bool]) -> str:
    near, found = _NEAR.match(plain), _FOUND.match(plain)
    for match, name in ((near, "path"), (found, "path"), (found, "second")):
        if match and match[name] and listed(match[name]):
            end = match.end(name) + 1
            return line if not plain[end:] or plain[end:].isdigit() else f"{plain[:end]}{NOTE}"
    return line
