"""Files whose content is never stored: keys, passwords, environment files.

Content that a tool read from or wrote to such a file is withheld regardless of what it looks like; the fact that the
file was used is kept. `redact` recognizes secrets by their form; here the path alone decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase, translate
from functools import cache, lru_cache
from typing import Any

import msgspec

from claude_mem.domain import patches
from claude_mem.domain.records import ToolUsed
from claude_mem.privacy import shell
from claude_mem.privacy.shell import Call

WITHHELD_NOTE = "[content withheld]"

# A pattern with a slash is matched against the end of the path, one without against the file name only. The last
# matching pattern decides; a leading `!` exempts files.
WITHHELD_FILES = (
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

# Fields in which tools are given a path: the names of Claude Code, and of agents and MCP servers with their own names.
_PATH_FIELDS = (
    "file_path", "filePath", "path", "paths", "notebook_path", "absolute_path", "target_file", "filename", "file",
    "files", "relative_workspace_path", "uri", "glob", "moved_to", "relative_path", "filepath", "file_name",
    "pathInProject",
)  # fmt: skip
# Text in these fields is not a path even if it looks like one: an editor may write `.env` into .gitignore.
_TEXT_FIELDS = frozenset({
    "content", "contents", "file_text", "old_string", "new_string", "oldString", "newString", "old_str", "new_str",
    "old_text", "new_text", "oldText", "newText", "insert_text", "text", "pattern", "regex", "query", "search",
    "prompt", "description", "message", "title", "body", "replacement", "reason", "explanation", "summary", "question",
    "subject",
})  # fmt: skip
_COMMAND_FIELDS = frozenset({
    "command", "cmd", "commands", "commandLine", "command_line", "shell_command", "script", "code", "args", "argv",
})  # fmt: skip
_LISTING_TOOLS = ("Glob", "LS", "list_directory")  # tools that return file names, not contents
_WORDS = re.compile(r"[^\s\"'`|;&<>()=:,{}]{1,512}")
_ESCAPES = re.compile(r"\\{1,64}(?:u(?P<code>[0-9A-Fa-f]{4})|[nrtbf\"/])")


def withhold_content(body: ToolUsed, more: Sequence[str] = ()) -> ToolUsed:
    """Return a tool call without the content of withheld files; the same object if it involves none. `more` are
    additional file patterns."""
    rules = (*WITHHELD_FILES, *more)
    if body.name == patches.PATCH_TOOL:
        return _withhold_in_patch(body, rules)
    if body.name in _LISTING_TOOLS:
        return body
    inputs = list(_named_strings(body.input))
    if any(is_withheld(text, rules) for name, text in inputs if _may_be_path(name, text)):
        return msgspec.structs.replace(body, input=_only_paths(body.input, rules), output=_withhold(body.output))
    parsed_commands = [_calls(text, rules) for name, text in inputs if name in _COMMAND_FIELDS]
    if paths := [path for calls in parsed_commands for path in _written_files(calls, rules)]:
        numbers = {key: item for key, item in body.input.items() if isinstance(item, int | float)}
        new_input = {**numbers, "command": f"{WITHHELD_NOTE} > {' '.join(paths)}"}
        return msgspec.structs.replace(body, input=new_input, output=_withhold(body.output))
    if any(map(_may_print, parsed_commands)):
        return msgspec.structs.replace(body, output=_withhold(body.output))
    output = _withhold_output(body.output, cache(lambda path: is_withheld(path, rules)))
    return body if output == body.output else msgspec.structs.replace(body, output=output)


def commands_of(body: ToolUsed) -> list[str]:
    """Return the shell commands in the input of a tool call."""
    return [text for name, text in _named_strings(body.input) if name in _COMMAND_FIELDS]


def mentions_withheld_file(text: str, more: Sequence[str] = ()) -> bool:
    """Return whether a text names a withheld file anywhere. For text that could not be parsed, such as partial JSON."""
    text = _ESCAPES.sub(lambda escape: chr(int(escape["code"], 16)) if escape["code"] else " ", text)
    return any(is_withheld(word, (*WITHHELD_FILES, *more)) for word in set(_WORDS.findall(text)))


@lru_cache(4096)
def is_withheld(path: str, rules: tuple[str, ...]) -> bool:
    """Return whether the content of a file is never stored."""
    whole = "/" + path.strip().removeprefix("file://").replace("\\", "/").lower().rstrip("*?")
    name = whole.rpartition("/")[2]
    if not any(pattern.match(part) for pattern, part in zip(_combined_patterns(rules), (name, whole), strict=True)):
        return False  # almost all paths
    last = next(rule for rule in reversed(rules) if _glob_pattern(rule).match(whole if "/" in rule else name))
    return not last.startswith("!")


@lru_cache(8)
def _combined_patterns(rules: tuple[str, ...]) -> list[re.Pattern[str]]:
    """Return one pattern for file names and one for paths. They reject most paths quickly: a name is short, and most
    names begin with a letter that no rule begins with."""
    withholding = [rule for rule in rules if not rule.startswith("!")]
    groups = ([rule for rule in withholding if ("/" in rule) is with_slash] for with_slash in (False, True))
    return [re.compile("|".join(_glob_pattern(rule).pattern for rule in group) or "(?!)") for group in groups]


@lru_cache(1024)
def _glob_pattern(rule: str) -> re.Pattern[str]:
    rule = rule.removeprefix("!").lower()
    return re.compile(translate(f"*/{rule.lstrip('/')}" if "/" in rule else rule))


# --- input of tool calls ---------------------------------------------------------------------------------------------


def _named_strings(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield every string of a JSON value with its key; strings in a list have the key of the list."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _named_strings(item, str(key))
    elif isinstance(value, list):
        for item in value:
            yield from _named_strings(item, name)


def _may_be_path(name: str, text: str) -> bool:
    return "\n" not in text and name not in _TEXT_FIELDS and not (name in _COMMAND_FIELDS and " " in text)


def _only_paths(value: Any, rules: tuple[str, ...], name: str = "") -> object:
    """Return a JSON value with only its paths and numbers; any other text may be content and is withheld."""
    if isinstance(value, dict):
        return {key: _only_paths(item, rules, str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_only_paths(item, rules, name) for item in value]
    is_content = (
        isinstance(value, str) and name not in _PATH_FIELDS and (name in _TEXT_FIELDS or not is_withheld(value, rules))
    )
    return WITHHELD_NOTE if is_content else value


def _withhold(output: Any) -> object:
    return WITHHELD_NOTE if output else output


def _withhold_in_patch(body: ToolUsed, rules: tuple[str, ...]) -> ToolUsed:
    """Withhold the lines of withheld files from a patch of several files."""
    changes = body.input.get("changes")
    if not isinstance(changes, list):
        is_affected = any(
            is_withheld(path, rules) for patch in patches.stored_patches(body.input) for path in patch.paths
        )
        return msgspec.structs.replace(body, input={"changes": []}, output=WITHHELD_NOTE) if is_affected else body
    new_changes = [_withhold_change(change, rules) for change in changes]
    if new_changes == changes:
        return body
    return msgspec.structs.replace(body, input={**body.input, "changes": new_changes}, output=_withhold(body.output))


def _withhold_change(change: Any, rules: tuple[str, ...]) -> object:
    if isinstance(change, dict) and any(
        is_withheld(path, rules) for _, path in _named_strings({**change, "patch": ""})
    ):
        return {**change, "patch": WITHHELD_NOTE}
    return change


# --- commands --------------------------------------------------------------------------------------------------------

# Programs that do not print the content of their file arguments, and sub-commands of other programs that do not.
_QUIET = frozenset({
    "ls", "ll", "la", "dir", "exa", "eza", "tree", "rm", "unlink", "shred", "mv", "cp", "ln", "touch", "mkdir", "rmdir",
    "chmod", "chown", "chgrp", "stat", "file", "test", "[", "[[", "du", "wc", "realpath", "readlink", "basename",
    "dirname", "echo", "printf", "md5sum", "sha1sum", "sha256sum", "sha512sum", "shasum", "cmp", "scp", "rsync", "zip",
    "ssh-add", "ssh-keygen", "export", "unset", "which", "source", ".", "find", "fd",
})  # fmt: skip
_QUIET_SUBCOMMANDS = {
    "git": frozenset({
        "add", "rm", "mv", "status", "commit", "check-ignore", "check-attr", "ls-files", "ls-tree", "restore",
        "checkout", "reset", "clean", "update-index", "push", "pull", "fetch", "clone", "init", "branch", "switch",
        "merge", "rebase", "tag", "remote", "config", "log", "filter-branch", "filter-repo", "rev-parse", "worktree",
    }),
    "gh": frozenset({"pr", "issue", "release", "run", "repo", "workflow", "secret"}),
}  # fmt: skip
_SHOW_VARIABLES = frozenset({"printenv", "set", "declare", "typeset", "export"})
_SEARCHERS = frozenset({"grep", "egrep", "fgrep", "rg", "ag"})
_EXEC_OPTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec"})
_EDITORS = frozenset({"sed", "gsed", "perl", "ruby", "awk", "gawk"})
_IN_PLACE = re.compile(r"--in-place|-[A-Za-z]{0,8}i")
_RUN_CODE = re.compile(
    r"(?:python|node|deno|bun|perl|ruby|php|bash|sh|zsh|dash|fish|pwsh|powershell|ssh|docker|tsx?)[0-9.]{0,8}\Z"
)
_WRITE_CALL = re.compile(r"(?i)write|append|[\"'][wax]b?\+?[\"']|>")
# Options whose file is only used, not printed: a key, an environment. (But `docker compose config` prints it.)
_USE_OPTION = re.compile(
    r"--?(?:(?:exclude|ignore)[\w-]{0,32}|env-file|var-file|kubeconfig|userconfig|netrc-file|cacert|certfile|keyfile|"
    r"(?:[a-z]{1,12}-)?(?:identity|key|cert|password|ca)(?:-file)?)(?:=|\Z)"
)
_USE_OPTIONS_OF = {
    **dict.fromkeys(("ssh", "scp", "sftp", "rsync", "ssh-copy-id"), ("-i", "-F")),
    **dict.fromkeys(("dotenv", "dotenvx"), ("-e", "-f")),
}
_VARIABLE = re.compile(r"\$\{(\w{1,64})\}")


Calls = list[tuple[Call, list[str]]]  # each call with the withheld files it names


def _calls(command: str, rules: tuple[str, ...]) -> Calls:
    return [(call, _withheld_arguments(call, rules)) for call in shell.parse_calls(_VARIABLE.sub(r"$\1", command))]


def _may_print(calls: Calls) -> bool:
    """Return whether a command may have printed a withheld file: yes, unless each program that is given its name is
    known not to print it."""
    if not any(paths for _, paths in calls):
        return False
    if any(paths and not _is_quiet(call) for call, paths in calls):
        return True
    xargs_calls = [shell.call_run_by_xargs(call) for call, _ in calls if call.program == "xargs"]
    if any(call.program and not _is_quiet(call) for call in xargs_calls):
        return True
    is_sourced = any(paths and call.program in ("source", ".") for call, paths in calls)
    return is_sourced and any(_shows_variables(call) for call, _ in calls)


def _is_quiet(call: Call) -> bool:
    if call.reads or (call.program in ("find", "fd") and not _EXEC_OPTIONS.isdisjoint(call.words)):
        return False
    if call.program in _QUIET_SUBCOMMANDS:
        subcommand = next((word for word in call.words if not word.startswith("-") and "/" not in word), "")
        return subcommand in _QUIET_SUBCOMMANDS[call.program]
    return call.program in _QUIET


def _shows_variables(call: Call) -> bool:
    if call.program in ("echo", "printf"):
        return any("$" in word for word in call.words)
    if not call.program:
        return "env" in call.words  # `env` without a program prints the environment
    return call.program in _SHOW_VARIABLES and all(word.startswith("-p") for word in call.words)


def _written_files(calls: Calls, rules: tuple[str, ...]) -> list[str]:
    """Return the withheld files that a command writes; the command itself then contains their content."""
    written_paths: list[str] = []
    for call, paths in calls:
        written_paths += _withheld_paths(call.writes, rules)
        if paths and _writes_files(call, rules):
            written_paths += paths
    return written_paths


def _writes_files(call: Call, rules: tuple[str, ...]) -> bool:
    if call.program == "tee" or (
        call.program == "dd" and _withheld_paths([w for w in call.words if w.startswith("of=")], rules)
    ):
        return True
    if call.program in _EDITORS and any(_IN_PLACE.match(word) for word in call.words):
        return True
    if call.text and _withheld_paths(call.words, rules):
        return True
    return bool(_RUN_CODE.match(call.program)) and any(_WRITE_CALL.search(code) for code in (*call.words, call.text))


def _withheld_arguments(call: Call, rules: tuple[str, ...]) -> list[str]:
    """Return the withheld files among the arguments of a call, except those that are only used as a key or the like."""
    words = list(_arguments(call))
    if call.text and call.program not in ("cat", "tee", "git", "gh", ""):  # for these it is the text of another file
        words.append(call.text)
    return _withheld_paths(words, rules)


def _arguments(call: Call) -> Iterator[str]:
    yield from call.reads
    yield call.program
    expects_pattern = call.program in _SEARCHERS and not any(
        word.startswith(("-e", "--regexp", "-f", "--file")) for word in call.words
    )
    shows_used, skip = "config" in call.words, False
    for word in call.words:
        is_used = bool(_USE_OPTION.match(word)) or word in _USE_OPTIONS_OF.get(call.program, ())
        if expects_pattern and not word.startswith("-"):
            expects_pattern = False  # the search pattern, not a file
        elif shows_used or not (skip or is_used):
            yield word
        skip = is_used and "=" not in word


def _withheld_paths(words: Iterable[str], rules: tuple[str, ...]) -> list[str]:
    parts = (part for word in words for part in _WORDS.findall(word))
    return list(dict.fromkeys(part for part in parts if _may_be_withheld(part, rules)))


def _may_be_withheld(path: str, rules: tuple[str, ...]) -> bool:
    """Return whether a path is withheld, is a directory of withheld files, or is a glob that matches `.env`."""
    if is_withheld(path, rules):
        return True
    name = path.rstrip("/").rpartition("/")[2]
    return name[:1] == "." and (is_withheld(f"{path}/", rules) or (len(name) > 2 and fnmatchcase(".env", name)))


# --- output of tool calls --------------------------------------------------------------------------------------------

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}[mK]")
_HIT = re.compile(r"(?P<path>[^\s:]{1,512}):(?! \S)(?:(?P<second>[^\s:]{1,512}):)?")
_CONTEXT_LINE = re.compile(r"(?P<path>[^\s:]{1,512}?)-[0-9]{1,7}-")  # context lines around a hit
_COMMIT = re.compile(r"commit [0-9a-f]{7,64}\b")
_NUMBERED = re.compile(r"[0-9]{1,7}[:\-]")


def _withhold_output(output: Any, is_listed: Callable[[str], bool]) -> object:
    """Withhold output lines that are attributed to a withheld file, as by `git diff`, `grep -r` or `head` of several
    files."""
    if isinstance(output, str):
        return _withhold_lines(output, is_listed) if ":" in output or "\n" in output else output
    if isinstance(output, dict):
        return {
            key: WITHHELD_NOTE
            if item and "." in str(key) and is_listed(str(key))
            else _withhold_output(item, is_listed)
            for key, item in output.items()
        }
    return [_withhold_output(item, is_listed) for item in output] if isinstance(output, list) else output


def _withhold_lines(text: str, is_listed: Callable[[str], bool]) -> str:
    lines = text.split("\n")
    new_lines: list[str] = []
    hiding = ""
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        plain = _COLOUR.sub("", line) if "\x1b" in line else line
        section = _section_start(plain, following, is_listed)
        if section is not None:
            hiding = section
            new_lines += [line, WITHHELD_NOTE] if hiding else [line]
        elif hiding == "heading" and plain != "--" and not _NUMBERED.match(plain):
            hiding = ""
            new_lines.append(line)
        elif not hiding:
            new_lines.append(_withhold_hit(line, plain, is_listed))
    return "\n".join(new_lines)


def _section_start(line: str, following: str, is_listed: Callable[[str], bool]) -> str | None:
    """Return what is hidden from this line on: "" for nothing, None if the line does not start a new section."""
    if line.startswith("diff ") or (line.startswith("--- ") and _COLOUR.sub("", following).startswith("+++ ")):
        paths = line.split()[1:] + (following.split()[1:2] if line.startswith("---") else [])
        return "diff" if any(map(is_listed, paths)) else ""
    if line.startswith("==> ") and line.endswith(" <=="):
        return "file" if is_listed(line[4:-4]) else ""
    if _COMMIT.match(line):
        return ""
    if line and " " not in line and _NUMBERED.match(_COLOUR.sub("", following)) and is_listed(line):
        return "heading"
    return None


def _withhold_hit(line: str, plain: str, is_listed: Callable[[str], bool]) -> str:
    near, hit = _CONTEXT_LINE.match(plain), _HIT.match(plain)
    for match, name in ((near, "path"), (hit, "path"), (hit, "second")):
        if match and match[name] and is_listed(match[name]):
            end = match.end(name) + 1
            return line if not plain[end:] or plain[end:].isdigit() else f"{plain[:end]}{WITHHELD_NOTE}"
    return line
