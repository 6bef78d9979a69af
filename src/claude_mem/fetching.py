"""Which program of a shell command plainly brings something from elsewhere: `curl`, `gh issue view`, or any that is
handed an address and is not known to leave it alone.

It takes time in proportion to the command's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from claude_mem import shell
from claude_mem.shell import Call

MOST = 100_000  # characters that are looked at
_DEEP = 4  # commands in commands

URL = re.compile(r"https?://[^\s'\"<>|;)]{1,500}", re.I)
_LOCAL_HOST = r"(?:localhost|127(?:\.\d{1,3}){3}|0\.0\.0\.0|\[::1\]|host\.docker\.internal)"
_LOCAL_NAME = re.compile(rf"{_LOCAL_HOST}(?::\d{{1,5}})?", re.I)
_LOCAL = re.compile(
    rf"(?:https?://)?(?:[^/@\s]{{0,100}}@)?(?:{_LOCAL_HOST}(?::\d{{1,5}})?|:\d{{1,5}})(?:[/?#:].*)?", re.I | re.S
)

# Nothing else can be the beginning of what is found here: most commands are not taken apart at all.
_HINT = re.compile(
    r"https?://|curl|wget|http|xh|aria2c|axel|lynx|w3m|links|ftp|scp|rsync|ssh|nc|telnet|netcat|gh\b|glab|npm|yarn|pip"
    r"|uv\b|cargo|gem\b|go\b|docker|brew|FETCH_HEAD|pull/|merge-requests/",
    re.I,
)
_WEB = (
    "curl", "curlie", "wget", "wget2", "http", "https", "xh", "xhs", "aria2c", "axel", "lynx", "w3m", "links", "elinks",
)  # fmt: skip
_REMOTE = ("ssh", "scp", "sftp", "rsync", "nc", "ncat", "netcat", "telnet", "ftp", "lftp")
_COPIES = ("scp", "rsync")  # from one folder to another too
_SHELLS = ("sh", "bash", "zsh", "dash", "ksh", "fish", "su")
_INTERPRETERS = re.compile(r"(?:python|pypy|node|deno|bun|ruby|perl|php|lua|Rscript|tsx|ts-node)[\d.]{0,5}$")
# They run another program, anywhere among their words.
_RUNNERS = (
    "docker", "podman", "kubectl", "nix", "nix-shell", "flatpak", "poetry", "pipenv", "uv", "mise", "direnv", "conda",
    "parallel", "watch", "chroot", "firejail",
)  # fmt: skip
# Sub-commands that read from elsewhere, as `_line` writes them. A value of an option may stand between two words.
_READS = re.compile(
    r"gh (?:[^/\s]*+/\S*+ )?(?:api|search|(?:issue|pr|release|gist|run|repo|workflow|project|label) (?:[^/\s]*+/\S*+ )?"
    r"(?:view|list|diff|checks|status|watch))(?= |$)"
    r"|glab (?:[^/\s]*+/\S*+ )?(?:api|(?:issue|mr) (?:[^/\s]*+/\S*+ )?(?:view|list|diff))(?= |$)"
    r"|p?npm (?:view|info|show|search|audit)(?= |$)|yarn (?:npm )?info(?= |$)"
    r"|pip[\d.]{0,4} (?:download|search|index)(?= |$)|uv pip download|cargo (?:search|info)(?= |$)"
    r"|gem (?:info|search)(?= |$)|go list (?:\S+ ){0,3}?-m(?= |$)|docker search|brew info"
    r"|git (?:\S+ ){0,40}?(?:\S{0,40}FETCH_HEAD|\+?(?:refs/)?(?:pull|merge-requests)/\d)"
)
# An address among their words is not one that they read.
_LEAVES_ALONE = re.compile(
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
    """A call that fetches. `name` is the program with its sub-command; `handed`: it takes more words from elsewhere."""

    name: str
    call: Call
    handed: bool = False


def program(command: str) -> str:
    """The one that fetches, with its sub-command; "" if none does."""
    return next((fetch.name for fetch in fetches(command)), "")


def fetches(command: str) -> Iterator[Fetch]:
    """Every call of a command that plainly brings something from elsewhere."""
    if _HINT.search(command[:MOST]):
        yield from _found(command[:MOST], 0)


def is_remote(url: str) -> bool:
    """What runs on this machine is not elsewhere."""
    try:
        host = urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        return True
    return not _LOCAL_NAME.fullmatch(host[:100])


def _found(command: str, depth: int) -> Iterator[Fetch]:
    if depth > _DEEP:
        return
    for line in shell.lines(command):
        for call in line:
            yield from _fetches(call, depth)
        if text := "\n".join(call.text for call in line if call.text):
            yield from _of_text([call.program for call in line], text, depth)


def _of_text(programs: Sequence[str], text: str, depth: int) -> Iterator[Fetch]:
    """A text behind `<<`: commands for a shell, a program for an interpreter."""
    if any(name in (*_SHELLS, "ssh") for name in programs):
        yield from _found(text, depth + 1)
    elif any(map(is_remote, URL.findall(text))):
        yield from (Fetch(name, Call(name, ())) for name in programs if _INTERPRETERS.match(name))


def _fetches(call: Call, depth: int) -> Iterator[Fetch]:
    name, rest = call.program, call.words
    if name in (*_WEB, *_REMOTE):
        if not (_is_local(name, rest) if name in _WEB else _stays(name, rest)):
            yield Fetch(name, call)
    elif name == "xargs":
        yield from (replace(fetch, handed=True) for fetch in _fetches(shell.run_by_xargs(call), depth))
    elif found := _READS.match(line := _line(name, rest)):
        yield Fetch(" ".join(found[0].split()[:2]), call)
    elif name == "eval" or (name in _SHELLS and any(re.match(r"-\w*c$", word) for word in rest)):
        for word in rest:
            yield from _found(word, depth + 1)
    else:
        run = _run(rest) if name in _RUNNERS else None
        within = list(_fetches(run, depth)) if run else []
        yield from within or ([Fetch(name, call)] if is_handed_url(call) and not _LEAVES_ALONE.match(line) else [])


def is_handed_url(call: Call) -> bool:
    """Is an address that is not of this machine among its words?"""
    short = () if "\n" in call.text else (call.text,)  # as good as a word
    words = (*call.before, call.program, *call.words, *short)
    return any(is_remote(url) for word in words for url in URL.findall(word))


def _run(words: Sequence[str]) -> Call | None:
    names = [word.rpartition("/")[2] for word in words]
    at = next((at for at, name in enumerate(names) if name in (*_WEB, *_REMOTE)), None)
    return None if at is None else Call(names[at], tuple(words[at + 1 :]))


def _line(name: str, rest: Sequence[str]) -> str:
    """The words that are no options but `-m`, one space between them; a text is one word. Nothing is run: `=`."""
    plain = [re.sub(r"\s", "_", word) for word in rest if word == "-m" or (word and not word.startswith("-"))]
    return " ".join((name or "=", *plain))


def _is_local(name: str, rest: Sequence[str]) -> bool:
    """Does all that it fetches lie on this machine? An address that is an option's value (a proxy) is not fetched."""
    values = _SHORT_VALUES.get(name, _CURL_VALUES)
    targets, option = [], ""
    for word in rest:
        if word.startswith("-") and not word.startswith("--url="):
            option = "" if _LONG_FLAGS.match(word) else word
        elif not _is_value(word := word.removeprefix("--url="), option, values):
            targets += [word] if _LOCAL.fullmatch(word) or _ADDRESS.match(word) else []
            option = ""
        else:
            option = ""
    return bool(targets) and all(_LOCAL.fullmatch(target) for target in targets)


def _is_value(word: str, option: str, values: str) -> bool:
    """Of the option before it. Of a long one that we do not know, whatever does not look like an address."""
    if not option.startswith("--"):
        return bool(option) and option[-1] in values
    return bool(_LONG_ADDRESSES.match(option)) or not (word.lower().startswith("http") or _LOCAL.fullmatch(word))


def _stays(name: str, rest: Sequence[str]) -> bool:
    hosts = [word.partition("@")[2] or word for word in rest if not word.startswith("-")]
    if name in _COPIES:
        hosts = [host for host in hosts if ":" in host]
        return all(_LOCAL.fullmatch(host) for host in hosts)
    return any(_LOCAL.fullmatch(host) for host in hosts[:3]) and not any(map(is_remote, URL.findall(" ".join(rest))))
