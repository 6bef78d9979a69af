"""Files whose content is nobody's business: keys, passwords, settings of an environment.

What a tool has read from or written to one is not kept at all, whatever it looks like; that it was touched is. The
rules of `redact` know many secrets by their looks; here the place is enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Any

import msgspec

from claude_mem import patches
from claude_mem.records import ToolUsed

NOTE = "[content withheld]"

# A pattern with a slash is about the end of the path, one without about the name alone. The last that fits decides;
# after `!`: not these.
FILES = (
    "credentials", ".credentials", "credentials.*", ".credentials.*", "*-credentials.json", "*_credentials.json",
    "service-account*.json", "service_account*.json", "client_secret*.json", "secrets.*", "*.secrets",
    "!*.py", "!*.pyi", "!*.js", "!*.mjs", "!*.ts", "!*.tsx", "!*.jsx", "!*.vue", "!*.go", "!*.rs", "!*.rb", "!*.java",
    "!*.kt", "!*.cs", "!*.php", "!*.c", "!*.h", "!*.cpp", "!*.swift", "!*.md", "!*.rst",
    ".env", ".env.*", "*.env", ".envrc", ".dev.vars", "!*.example", "!*.sample", "!*.template", "!*.dist",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".ssh/*", ".gnupg/*", "!*.pub", "!known_hosts*",
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.ppk", "*.kdbx", "*.keytab",
    ".netrc", "_netrc", ".npmrc", ".yarnrc.yml", ".pypirc", ".pgpass", ".my.cnf", ".git-credentials", ".htpasswd",
    ".boto", ".s3cfg", ".vault-token", ".terraformrc", "*.tfvars", "*.tfstate", "*.tfstate.backup", "kubeconfig",
    "*.kubeconfig", ".kube/config", ".docker/config.json", ".dockerconfigjson", ".dockercfg", ".aws/*", ".azure/*",
    ".config/gcloud/*", ".config/gh/hosts.yml", ".codex/auth.json", ".claude-mem/*", "etc/shadow",
)  # fmt: skip

# Where tools are told which file: Claude Code's names, and those of agents and servers that have their own.
_PATHS = (
    "file_path", "filePath", "path", "paths", "notebook_path", "absolute_path", "target_file", "filename", "file",
    "files", "relative_workspace_path", "uri", "glob", "moved_to",
)  # fmt: skip
_NAMES_ONLY = ("Glob", "LS", "list_directory")  # they tell of names, not of what is inside
# Programs that print what is in a file, or part of it.
_PRINTS = re.compile(
    r"(?<![\w./-])(?:\S{0,64}/)?(?:cat|bat|batcat|less|more|head|tail|tac|nl|sed|g?awk|[ef]?grep|rg|ag|cut|sort|uniq|strings|"
    r"xxd|od|hexdump|base64|openssl|gpg|jq|yq|tee|diff|dd|column|fold|rev|paste|xargs|type|Get-Content|gc|"
    r"git\s{1,4}(?:-\S{1,64}\s{1,4}){0,4}(?:diff|show|log|blame|stash|cat-file|grep))(?![\w-])|<"
)
_WRITES = re.compile(
    r">{1,2}\s{0,4}[\"']?([^\s\"'|;&<>()]{1,512})|\btee\s{1,4}(?:-a\s{1,4})?[\"']?([^\s\"'|;&<>()]{1,512})"
)
_WORDS = re.compile(r"[^\s\"'`|;&<>()=:,]{1,512}")
_LEFT_OUT = re.compile(r"(?:--(?:exclude|ignore)[\w-]{0,32}[= ]|:?!)[\"']?[^\s\"']{1,512}")


def hide(body: ToolUsed, more: Sequence[str] = ()) -> ToolUsed:
    """The same, without what was in such a file; itself if it has nothing to do with one."""
    rules = (*FILES, *more)
    if isinstance(command := body.input.get("command"), str) and not _paths(body.input):
        return _shell(body, command, rules)
    if body.name == patches.TOOL:
        return _patch(body, rules)
    if body.name in _NAMES_ONLY or not any(is_withheld(path, rules) for path in _paths(body.input)):
        return body
    return msgspec.structs.replace(body, input=_only_paths(body.input), output=_hidden(body.output))


def mentions(text: str, more: Sequence[str] = ()) -> bool:
    """Does it name such a file anywhere? For what could not be understood."""
    return any(is_withheld(word, (*FILES, *more)) for word in set(_WORDS.findall(text)))


@lru_cache(4096)
def is_withheld(path: str, rules: tuple[str, ...]) -> bool:
    whole = "/" + path.strip().replace("\\", "/").lower().rstrip("*?")
    if not _any(rules).match(whole):  # as almost all
        return False
    last = next(rule for rule in reversed(rules) if _pattern(rule).match(whole))
    return not last.startswith("!")


@lru_cache(8)
def _any(rules: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(_pattern(rule).pattern for rule in rules if not rule.startswith("!")))


@lru_cache(1024)
def _pattern(rule: str) -> re.Pattern[str]:
    return re.compile(translate(f"*/{rule.removeprefix('!').lstrip('/').lower()}"))


def _paths(given: dict[str, Any]) -> list[str]:
    return [path for name in _PATHS if name in given for path in _strings(given[name])]


def _strings(found: Any) -> Iterator[str]:
    if isinstance(found, str):
        yield found.removeprefix("file://")
    elif isinstance(found, list):
        for item in found:
            yield from _strings(item.get("path") if isinstance(item, dict) else item)


def _only_paths(given: dict[str, Any]) -> dict[str, Any]:
    """Where, and numbers; every other text may be content."""
    return {key: item if key in _PATHS or isinstance(item, int | float) else NOTE for key, item in given.items()}


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
    if isinstance(change, dict) and any(is_withheld(path, rules) for path in _paths(change)):
        return {**change, "patch": NOTE}
    return change


def _shell(body: ToolUsed, command: str, rules: tuple[str, ...]) -> ToolUsed:
    """What it printed, if it may have printed such a file; and what it was, if it wrote one."""
    written = [path for match in _WRITES.finditer(command) if is_withheld(path := match[1] or match[2], rules)]
    if written:
        given = {**_but_command(body.input), "command": f"{NOTE} > {' '.join(written)}"}
        return msgspec.structs.replace(body, input=given, output=_hidden(body.output))
    named = any(is_withheld(word, rules) for word in _named(command))
    if not named or not _PRINTS.search(command):
        return body
    return msgspec.structs.replace(body, output=_hidden(body.output))


def _but_command(given: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in given.items() if isinstance(item, int | float)}


def _named(command: str) -> Iterable[str]:
    return set(_WORDS.findall(_LEFT_OUT.sub(" ", command)))
