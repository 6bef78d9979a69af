"""Which program of a shell command plainly brings something from elsewhere: `curl`, `gh issue view`, or any that is
handed an address and is not known to leave it alone.

The command is taken apart as a shell would: operators, quotes, substitutions, texts behind `<<`, wrappers such as
`sudo`. What we can't take apart is read as far as it goes. It takes time in proportion to the command's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

MOST = 100_000  # characters that are looked at
_DEEP = 4  # commands in commands

URL = re.compile(r"https?://[^\s'\"<>|;)]{1,500}", re.I)
_LOCAL_HOST = r"(?:localhost|127(?:\.\d{1,3}){3}|0\.0\.0\.0|\[::1\]|host\.docker\.internal)"
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
    "curl",
    "curlie",
    "wget",
    "wget2",
    "http",
    "https",
    "xh",
    "xhs",
    "aria2c",
    "axel",
    "lynx",
    "w3m",
    "links",
    "elinks",
)
_REMOTE = ("ssh", "scp", "sftp", "rsync", "nc", "ncat", "netcat", "telnet", "ftp", "lftp")
_COPIES = ("scp", "rsync")  # from one folder to another too
_SHELLS = ("sh", "bash", "zsh", "dash", "ksh", "fish", "su")
_INTERPRETERS = re.compile(r"(?:python|pypy|node|deno|bun|ruby|perl|php|lua|Rscript|tsx|ts-node)[\d.]{0,5}$")
# In front of a command, and what of theirs takes a value.
_WRAPPERS = (
    "sudo", "doas", "env", "time", "command", "builtin", "exec", "nohup", "nice", "ionice", "stdbuf", "setsid",
    "timeout", "gtimeout", "xargs", "caffeinate", "unbuffer", "proxychains", "proxychains4", "torsocks", "strace",
    "busybox", "if", "elif", "while", "until", "then", "else", "do", "!", "{", "coproc",
)  # fmt: skip
_WRAPPER_VALUES = re.compile(r"-[ugpnIPskLoCdahUDRTtrES]$|--(?:user|group|chdir|unset|signal|kill-after|adjustment)$")
# They run another program, anywhere among their words.
_RUNNERS = (
    "docker", "podman", "kubectl", "nix", "nix-shell", "flatpak", "poetry", "pipenv", "uv", "mise", "direnv", "conda",
    "parallel", "watch", "chroot", "firejail",
)  # fmt: skip
# Sub-commands that read from elsewhere, as `_line` writes them. A value of an option may stand between two words.
_READS = re.compile(
    r"gh (?:\S*/\S* )?(?:api|search|(?:issue|pr|release|gist|run|repo|workflow|project|label) (?:\S*/\S* )?"
    r"(?:view|list|diff|checks|status|watch))(?= |$)"
    r"|glab (?:\S*/\S* )?(?:api|(?:issue|mr) (?:\S*/\S* )?(?:view|list|diff))(?= |$)"
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

_ASSIGNED = re.compile(r"\w+\+?=")
_TOKEN = re.compile(
    r"(?P<gap>[ \t\r\f\v]+|\\\n)|(?P<comment>#[^\n]*)|(?P<redirect>\d?(?:<<<|<<-?|[<>]{1,2}[&|]?|&>{1,2}))"
    r"|(?P<end>\n|[;&|()`]+|\$\()|(?P<word>(?:'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|\$(?!\()|[^\s;&|()`<>'\"\\$])+)|.",
    re.S,
)
_PART = re.compile(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|\\(.)|([^'\"\\]+)", re.S)
_HANDED = re.compile(r"<<-?[ \t]*(?P<quote>['\"\\]?)(?P<end>\w+)")


def program(command: str) -> str:
    """The one that fetches, with its sub-command; "" if none does."""
    return next(_found(command[:MOST], 0), "") if _HINT.search(command[:MOST]) else ""


def is_remote(url: str) -> bool:
    """What runs on this machine is not elsewhere."""
    try:
        host = urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        return True
    return not re.fullmatch(rf"{_LOCAL_HOST}(?::\d{{1,5}})?", host[:100], re.I)


def _found(command: str, depth: int) -> Iterator[str]:
    if depth > _DEEP:
        return
    bare, handed = _without_handed(command)
    for words, inner in _simple(bare):
        if fetches := _fetches(words, depth):
            yield fetches
        for text in inner:
            yield from _found(text, depth + 1)
    for head, text, plain in handed:
        yield from _of_handed(head, text, depth, plain=plain)


def _of_handed(head: str, text: str, depth: int, *, plain: bool) -> Iterator[str]:
    """A text behind `<<`: a program for an interpreter, commands for a shell, for others at most substitutions."""
    who = [_program(words)[0] for words, _ in _simple(head.replace('"', " "))]
    if any(name in (*_SHELLS, "ssh") for name in who):
        yield from _found(text, depth + 1)
    elif any(_INTERPRETERS.match(name) for name in who) and any(map(is_remote, URL.findall(text))):
        yield next(name for name in who if _INTERPRETERS.match(name))
    elif not plain:
        for inner in _substituted(text):
            yield from _found(inner, depth + 1)


def _without_handed(command: str) -> tuple[str, list[tuple[str, str, bool]]]:
    """The command without the texts behind `<<`, and these: the line that hands it over, the text, is it plain?"""
    lines, kept = command.split("\n"), list[str]()
    handed = list[tuple[str, str, bool]]()
    at = 0
    while at < len(lines):
        line = lines[at]
        kept.append(line)
        at += 1
        if "<<" not in line:
            continue
        for mark in list(_HANDED.finditer(line))[:20]:
            if line[mark.start() - 1 : mark.start()] == "<":
                continue  # `<<<` hands over a word
            begun = at
            while at < len(lines) and lines[at].strip() != mark["end"]:
                at += 1
            handed.append((line, "\n".join(lines[begun:at]), bool(mark["quote"])))
            at += 1
    return "\n".join(kept), handed


def _simple(command: str) -> Iterator[tuple[list[str], list[str]]]:
    """Each simple command: its words, without quotes and redirections, and the commands substituted in them."""
    words, inner, target = list[str](), list[str](), False
    for token in _TOKEN.finditer(command):
        kind = token.lastgroup
        if kind == "end":
            yield words, inner
            words, inner, target = [], [], False
        elif kind == "redirect":
            target = token[0] != "<<<"
        elif kind == "word":
            inner += [text for part in _PART.finditer(token[0]) if part[2] for text in _substituted(part[2])]
            if not target:
                words.append(
                    "".join(part[1] or part[2] or part[3] or part[4] or "" for part in _PART.finditer(token[0]))
                )
            target = False
    yield words, inner


def _substituted(text: str) -> list[str]:
    """What stands in `$(…)` or between backticks in a text."""
    bare = re.sub(r"\\.", "", text, flags=re.S)
    return [*(part.partition(")")[0] for part in bare.split("$(")[1:]), *bare.split("`")[1::2]]


def _program(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """What is run, whatever is put in front of it, and its words."""
    at, wrapped = 0, False
    while at < len(words):
        word, name = words[at], words[at].rpartition("/")[2]
        if wrapped and _WRAPPER_VALUES.match(word):
            at += 1  # and its value
        elif name == "command" and words[at + 1 : at + 2] in (["-v"], ["-V"]):
            break  # only asks where it is
        elif name in _WRAPPERS:
            wrapped = True
        elif not (_ASSIGNED.match(word) or (wrapped and re.match(r"-|\d+(?:\.\d+)?[smhd]?$", word))):
            return name, words[at + 1 :]
        at += 1
    return "", ()


def _fetches(words: Sequence[str], depth: int) -> str:
    name, rest = _program(words)
    if name in _WEB:
        return "" if _is_local(name, rest) else name
    if name in _REMOTE:
        return "" if _stays(name, rest) else name
    if found := _READS.match(line := _line(name, rest)):
        return " ".join(found[0].split()[:2])
    if name == "eval" or (name in _SHELLS and any(re.match(r"-\w*c$", word) for word in rest)):
        return next((found for word in rest for found in _found(word, depth + 1)), "")
    for at, word in enumerate(rest if name in _RUNNERS else ()):
        if word.rpartition("/")[2] in (*_WEB, *_REMOTE) and (fetches := _fetches(rest[at:], depth)):
            return fetches
    named = any(is_remote(url) for word in words for url in URL.findall(word))
    return name or "address" if named and not _LEAVES_ALONE.match(line) else ""


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
