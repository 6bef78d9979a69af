"""Detection of programs in shell commands that fetch remote content: `curl`, `gh issue view`, or any program that is
given a URL and is not known to leave it alone.

The running time is linear in the length of the command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from claude_mem import shell
from claude_mem.shell import Call

MOST = 100_000  # characters of a command that are examined
_MAX_DEPTH = 4  # nesting depth of commands in commands

URL = re.compile(r"https?://[^\s'\"<>|;)]{1,500}", re.I)
_LOCAL_HOST = r"(?:localhost|127(?:\.\d{1,3}){3}|0\.0\.0\.0|\[::1\]|host\.docker\.internal)"
_LOCAL_NAME = re.compile(rf"{_LOCAL_HOST}(?::\d{{1,5}})?", re.I)
_LOCAL = re.compile(
    rf"(?:https?://)?(?:[^/@\s]{{0,100}}@)?(?:{_LOCAL_HOST}(?::\d{{1,5}})?|:\d{{1,5}})(?:[/?#:].*)?", re.I | re.S
)

# A command without any of these cannot fetch, so most commands are not parsed at all.
_HINT = re.compile(
    r"https?://|curl|wget|http|xh|aria2c|axel|lynx|w3m|links|ftp|scp|rsync|ssh|nc|telnet|netcat|gh\b|glab|npm|yarn|pip"
    r"|uv\b|cargo|gem\b|go\b|docker|brew|FETCH_HEAD|pull/|merge-requests/",
    re.I,
)
_WEB_CLIENTS = (
    "curl", "curlie", "wget", "wget2", "http", "https", "xh", "xhs", "aria2c", "axel", "lynx", "w3m", "links", "elinks",
)  # fmt: skip
_REMOTE_CLIENTS = ("ssh", "scp", "sftp", "rsync", "nc", "ncat", "netcat", "telnet", "ftp", "lftp")
_COPIES = ("scp", "rsync")  # they also copy between local directories
_SHELLS = ("sh", "bash", "zsh", "dash", "ksh", "fish", "su")
_INTERPRETERS = re.compile(r"(?:python|pypy|node|deno|bun|ruby|perl|php|lua|Rscript|tsx|ts-node)[\d.]{0,5}$")
# They run another program, which may be anywhere among their arguments.
_RUNNERS = (
    "docker", "podman", "kubectl", "nix", "nix-shell", "flatpak", "poetry", "pipenv", "uv", "mise", "direnv", "conda",
    "parallel", "watch", "chroot", "firejail",
)  # fmt: skip
# Sub-commands that fetch, as formatted by `_without_options`. The value of an option may come between two words.
_FETCHING_SUBCOMMANDS = re.compile(
    r"gh (?:[^/\s]*+/\S*+ )?(?:api|search|(?:issue|pr|release|gist|run|repo|workflow|project|label) (?:[^/\s]*+/\S*+ )?"
    r"(?:view|list|diff|checks|status|watch))(?= |$)"
    r"|glab (?:[^/\s]*+/\S*+ )?(?:api|(?:issue|mr) (?:[^/\s]*+/\S*+ )?(?:view|list|diff))(?= |$)"
    r"|p?npm (?:view|info|show|search|audit)(?= |$)|yarn (?:npm )?info(?= |$)"
    r"|pip[\d.]{0,4} (?:download|search|index)(?= |$)|uv pip download|cargo (?:search|info)(?= |$)"
    r"|gem (?:info|search)(?= |$)|go list (?:\S+ ){0,3}?-m(?= |$)|docker search|brew info"
    r"|git (?:\S+ ){0,40}?(?:\S{0,40}FETCH_HEAD|\+?(?:refs/)?(?:pull|merge-requests)/\d)"
)
# Programs that do not fetch a URL given as an argument.
_IGNORES_URLS = re.compile(
    r"(?:echo|printf|cat|tee|grep|egrep|fgrep|rg|ag|ack|sed|awk|gawk|jq|yq|find|fd|ls|cd|cp|mv|rm|mkdir|touch|ln|head|tail"
    r"|wc|sort|uniq|diff|test|\[|\[\[|for|case|in|select|function|export|declare|local|readonly|alias|set|return|true|false"
    r"|git|gh|glab|claude-mem|open|xdg-open|code|sqlite3|psql|=)(?= |$)"
    r"|(?:p?npm|yarn|bun|pip[\d.]{0,4}|pipx|uv|poetry|cargo|go|gem|brew|apt|apt-get|docker|podman|helm|terraform|claude|codex"
    r"|gemini) (?:\S+ ){0,2}?(?:install|i|ci|add|get|config|set|publish|init|login|pull|push|build|tag|repo|mcp|remove"
    r"|uninstall)(?= |$)"
)
_SHORT_VALUES = {"wget": "OPTtoaeUiQwBDAR", "wget2": "OPTtoaeUiQwBDAR"}
_CURL_VALUES = "XHdouAebcmFTwxKErYyzCPQtUD"
_LONG_FLAGS = re.compile(
    r"--(?:silent|fail|fail-with-body|location|show-error|insecure|compressed|include|head|verbose|get|globoff|ipv[46]"
    r"|http[\d.]+|no-progress-meter|no-buffer|remote-name|quiet|no-verbose|spider|no-check-certificate|json|raw|url)$"
)
_LONG_ADDRESSES = re.compile(r"--(?:proxy|preproxy|socks\w+|referer|doh-url|noproxy|resolve|connect-to)$")
_ADDRESS = re.compile(r"https?://|\$|[\w-]+(?:\.[\w-]+)+(?::\d+)?(?:[/?#]|$)", re.I)


@dataclass(frozen=True, slots=True)
class Fetch:
    """A call that fetches. `name` is the program with its sub-command; `takes_input_arguments`: run by `xargs`."""

    name: str
    call: Call
    takes_input_arguments: bool = False


def program(command: str) -> str:
    """Return the first program of a command that fetches, with its sub-command; "" if none does."""
    return next((fetch.name for fetch in fetches(command)), "")


def fetches(command: str) -> Iterator[Fetch]:
    """Yield every call of a command that recognizably fetches remote content."""
    if _HINT.search(command[:MOST]):
        yield from _fetches_in(command[:MOST], 0)


def is_remote(url: str) -> bool:
    """Return whether a URL points to another machine."""
    try:
        host = urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        return True
    return not _LOCAL_NAME.fullmatch(host[:100])


def _fetches_in(command: str, depth: int) -> Iterator[Fetch]:
    if depth > _MAX_DEPTH:
        return
    for line in shell.lines(command):
        for call in line:
            yield from _fetches(call, depth)
        if text := "\n".join(call.text for call in line if call.text):
            yield from _fetches_in_text([call.program for call in line], text, depth)


def _fetches_in_text(programs: Sequence[str], text: str, depth: int) -> Iterator[Fetch]:
    """Yield the fetches in a here-document: commands for a shell, or a program for an interpreter."""
    if any(name in (*_SHELLS, "ssh") for name in programs):
        yield from _fetches_in(text, depth + 1)
    elif any(map(is_remote, URL.findall(text))):
        yield from (Fetch(name, Call(name, ())) for name in programs if _INTERPRETERS.match(name))


def _fetches(call: Call, depth: int) -> Iterator[Fetch]:
    name, arguments = call.program, call.words
    if name in (*_WEB_CLIENTS, *_REMOTE_CLIENTS):
        if not (_is_local(name, arguments) if name in _WEB_CLIENTS else _connects_locally(name, arguments)):
            yield Fetch(name, call)
    elif name == "xargs":
        yield from (replace(fetch, takes_input_arguments=True) for fetch in _fetches(shell.run_by_xargs(call), depth))
    elif match := _FETCHING_SUBCOMMANDS.match(line := _without_options(name, arguments)):
        yield Fetch(" ".join(match[0].split()[:2]), call)
    elif name == "eval" or (name in _SHELLS and any(re.match(r"-\w*c$", word) for word in arguments)):
        for word in arguments:
            yield from _fetches_in(word, depth + 1)
    else:
        inner_call = _inner_call(arguments) if name in _RUNNERS else None
        inner_fetches = list(_fetches(inner_call, depth)) if inner_call else []
        yield from inner_fetches or (
            [Fetch(name, call)] if is_handed_url(call) and not _IGNORES_URLS.match(line) else []
        )


def is_handed_url(call: Call) -> bool:
    """Return whether a call has the URL of another machine among its words."""
    short = () if "\n" in call.text else (call.text,)  # a single line counts as a word
    words = (*call.before, call.program, *call.words, *short)
    return any(is_remote(url) for word in words for url in URL.findall(word))


def _inner_call(words: Sequence[str]) -> Call | None:
    names = [word.rpartition("/")[2] for word in words]
    at = next((at for at, name in enumerate(names) if name in (*_WEB_CLIENTS, *_REMOTE_CLIENTS)), None)
    return None if at is None else Call(names[at], tuple(words[at + 1 :]))


def _without_options(name: str, arguments: Sequence[str]) -> str:
    """Return the program and its arguments joined by spaces, without options except `-m`. Spaces within an argument
    become `_`; a missing program becomes `=`."""
    plain = [re.sub(r"\s", "_", word) for word in arguments if word == "-m" or (word and not word.startswith("-"))]
    return " ".join((name or "=", *plain))


def _is_local(name: str, arguments: Sequence[str]) -> bool:
    """Return whether all URLs that a call fetches are on this machine. A URL given to an option (a proxy) does not
    count."""
    values = _SHORT_VALUES.get(name, _CURL_VALUES)
    targets, option = [], ""
    for word in arguments:
        if word.startswith("-") and not word.startswith("--url="):
            option = "" if _LONG_FLAGS.match(word) else word
        elif not _is_value(word := word.removeprefix("--url="), option, values):
            targets += [word] if _LOCAL.fullmatch(word) or _ADDRESS.match(word) else []
            option = ""
        else:
            option = ""
    return bool(targets) and all(_LOCAL.fullmatch(target) for target in targets)


def _is_value(word: str, option: str, values: str) -> bool:
    """Return whether a word is the value of the option before it. After an unknown long option, any word that does not
    look like a URL is taken as its value."""
    if not option.startswith("--"):
        return bool(option) and option[-1] in values
    return bool(_LONG_ADDRESSES.match(option)) or not (word.lower().startswith("http") or _LOCAL.fullmatch(word))


def _connects_locally(name: str, arguments: Sequence[str]) -> bool:
    hosts = [word.partition("@")[2] or word for word in arguments if not word.startswith("-")]
    if name in _COPIES:
        hosts = [host for host in hosts if ":" in host]
        return all(_LOCAL.fullmatch(host) for host in hosts)
    return any(_LOCAL.fullmatch(host) for host in hosts[:3]) and not any(
        map(is_remote, URL.findall(" ".join(arguments)))
    )
