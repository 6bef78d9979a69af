"""Parses shell command lines: which programs are called, with which arguments, and which of them fetch remote content.

It does not emulate a shell: variables, aliases and loops are left as written, and text that cannot be parsed is read as
far as possible. A program fetches if it is known to (`curl`, `gh issue view`), or if it is given a URL and is not known
to leave it alone. The running time is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from urllib.parse import urlsplit

# A separator, or a piece of a word: quoted, escaped or bare. A quote that is never closed is read both ways: as
# extending to the end of the text, and as if it were absent.
_PIECE = re.compile(
    r"(?P<space>[ \t\r\f\v]+|\\\r?\n|(?<![^\s;&|()`])#[^\n]*+)|(?P<arrow>\d?(?:<<<|<<-?|[<>]{1,2}[|&]?)|&>{1,2})"
    r"|(?P<end>[;&|\n()`]+|\$\()|'(?P<plain>[^']*+)'|\"(?P<quoted>(?:[^\"\\]|\\.)*+)\"|\\(?P<escaped>.)"
    r"|(?P<bare>(?:[^\s\\;&|()`<>\"'$]|\$(?!\())++)|[\"'](?=(?P<open>.*+))|.",
    re.DOTALL,
)
_HERE = re.compile(r"(?<!<)(?P<arrow><<-?)[ \t]{0,4}(?P<quote>[\\\"']?)(?P<word>[A-Za-z_][\w.\-]{0,64})[\"']?")
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_ASSIGNMENT = re.compile(r"\w{1,128}\+?=")
# Words that precede the actual program, each with its one-letter options that take a value.
_PREFIXES = {
    **dict.fromkeys((
        "command", "builtin", "nohup", "setsid", "unbuffer", "torsocks", "busybox", "if", "elif", "while", "until",
        "then", "else", "do", "!", "{", "coproc",
    ), ""),
    "sudo": "CDghpRrTtUu", "doas": "Cu", "env": "Cu", "time": "fo", "exec": "a", "nice": "n", "ionice": "cnpPu",
    "stdbuf": "eio", "timeout": "ks", "gtimeout": "ks", "caffeinate": "tw", "proxychains": "f", "proxychains4": "f",
    "strace": "abeEIoOpPsSuUX", "npx": "p",
}  # fmt: skip
_XARGS_PREFIXES = {**_PREFIXES, "xargs": "adEILnPs"}
_LONG_WITH_VALUE = re.compile(r"--(?:user|group|chdir|unset|signal|kill-after|adjustment|package)\Z")
_OPTION = re.compile(r"-|\d+(?:\.\d+)?[smhd]?\Z")

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """One program with its arguments. `reads` and `writes` are files that the shell opens for it: `< a > b`."""

    program: str  # without its directory, except for a URL; "" if there is no program, only variables
    words: Words
    before: Words = ()  # words before the program: variables, `sudo -u me`
    reads: Words = ()
    writes: Words = ()
    text: str = ""  # content of here-documents and here-strings


@dataclass(frozen=True, slots=True)
class _HereDocument:
    """A here-document. `plain`: its delimiter is quoted, so nothing is substituted in it."""

    text: str
    plain: bool


@dataclass(slots=True)
class _CallParser:
    """A call that is still being parsed."""

    texts: dict[str, _HereDocument]
    words: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    input_texts: list[str] = field(default_factory=list)
    substitutions: list[str] = field(default_factory=list)
    arrow: str = ""
    pieces: list[tuple[str, bool]] = field(default_factory=list)  # text, and whether the shell substitutes in it

    def end_word(self) -> None:
        if not self.pieces:
            return
        word = "".join(piece for piece, _ in self.pieces)
        self.substitutions += _substitutions("".join(piece for piece, live in self.pieces if live))
        if self.arrow.endswith("<<<"):
            self.input_texts.append(word)
        elif "<<" in self.arrow:
            self._add_text(self.texts.pop(word, None))  # used only once, even if its number occurs several times
        else:
            (self.writes if ">" in self.arrow else self.reads if self.arrow else self.words).append(word)
        self.pieces, self.arrow = [], ""

    def _add_text(self, text: _HereDocument | None) -> None:
        if text:
            self.input_texts.append(text.text)
            self.substitutions += [] if text.plain else _substitutions(text.text)

    def finish(self) -> Iterator[Call]:
        self.end_word()
        if self.words or self.input_texts or self.reads or self.writes:
            before, program, words = _split_call(tuple(self.words))
            yield Call(program, words, before, tuple(self.reads), tuple(self.writes), "\n".join(self.input_texts))
        for inner in self.substitutions:
            yield from chain.from_iterable(_lines(inner, self.texts))


def parse_calls(command: str) -> Iterator[Call]:
    """Yield every call of a command line, including those within `$(…)`."""
    return chain.from_iterable(parse_lines(command))


def parse_lines(command: str) -> Iterator[list[Call]]:
    """Yield the calls of a command line grouped by line: text passed to one call may reach the others in its line."""
    return _lines(*_extract_here_documents(command))


def call_run_by_xargs(call: Call) -> Call:
    """Return the call that a call of `xargs` runs."""
    before, program, words = _split_call((call.program, *call.words), _XARGS_PREFIXES)
    return Call(program, words, before)


def _lines(command: str, texts: dict[str, _HereDocument]) -> Iterator[list[Call]]:
    line: list[Call] = []
    parser = _CallParser(texts)
    for piece in _PIECE.finditer(command):
        kind = piece.lastgroup
        if kind == "end":
            line += parser.finish()
            parser = _CallParser(texts)
            if "\n" in piece[0]:
                yield line
                line = []
        elif kind in ("plain", "quoted", "escaped", "bare"):
            parser.pieces.append((piece[kind], kind in ("quoted", "bare")))
        else:
            parser.pieces += [(piece["open"], True)] if kind == "open" else []
            parser.end_word()
            parser.arrow = piece["arrow"] or parser.arrow
    yield [*line, *parser.finish()]


def _substitutions(text: str) -> list[str]:
    """Return the commands in `$(…)` and between backticks. Each contains at most one of the other kind, so this
    terminates."""
    if "$(" not in text and "`" not in text:
        return []
    bare = _ESCAPED.sub("", text)
    return [*(part.partition(")")[0] for part in bare.split("$(")[1:]), *bare.split("`")[1::2]]


def _split_call(words: Words, prefixes: Mapping[str, str] = _PREFIXES) -> tuple[Words, str, Words]:
    """Split words into those before the program, the program, and its arguments; without a program, all words are
    arguments."""
    at, with_value = 0, None  # `with_value`: the options of the last preceding word that take a value
    while at < len(words):
        word, name = words[at], _program_name(words[at])
        if name == "command" and words[at + 1 : at + 2] in (("-v",), ("-V",)):
            break  # only looks up where the program is
        if name in prefixes:
            with_value = prefixes[name]
        elif with_value is not None and _OPTION.match(word):
            at += _takes_value(word, with_value)
        elif not _ASSIGNMENT.match(word):
            return words[:at], name, words[at + 1 :]
        at += 1
    return (), "", words


def _program_name(word: str) -> str:
    return word if "://" in word else word.rstrip("/").rpartition("/")[2]


def _takes_value(option: str, with_value: str) -> bool:
    if option.startswith("--"):
        return _LONG_WITH_VALUE.match(option) is not None
    return option[:1] == "-" and option[-1] in with_value


def _extract_here_documents(command: str) -> tuple[str, dict[str, _HereDocument]]:
    """Replace here-documents by numbers: their quotes and lines must not be parsed as part of the command."""
    if "<<" not in command:
        return command, {}
    new_lines: list[str] = []
    texts: dict[str, _HereDocument] = {}
    numbers = count()
    remaining = iter(command.split("\n"))
    for line in remaining:
        new_lines.append(_HERE.sub(lambda mark: f"{mark['arrow']}{next(numbers)}", line))
        for mark in _HERE.finditer(line):
            text, after = _read_here_document(remaining, mark["word"])
            texts[str(len(texts))] = _HereDocument(text, plain=bool(mark["quote"]))
            new_lines += after
    return "\n".join(new_lines), texts


def _read_here_document(remaining: Iterator[str], delimiter: str) -> tuple[str, list[str]]:
    """Return the lines up to the one that begins with the delimiter, and the rest of that line."""
    text: list[str] = []
    for line in remaining:
        after = line.strip().removeprefix(delimiter)
        if line.strip().startswith(delimiter) and not after[:1].isalnum():
            return "\n".join(text), ["", after]
        text.append(line)
    return "\n".join(text), []


# --- programs that fetch ---------------------------------------------------------------------------------------------


MAX_COMMAND_CHARS = 100_000  # characters of a command that are examined
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


def fetching_program(command: str) -> str:
    """Return the first program of a command that fetches, with its sub-command; "" if none does."""
    return next((fetch.name for fetch in find_fetches(command)), "")


def find_fetches(command: str) -> Iterator[Fetch]:
    """Yield every call of a command that recognizably fetches remote content."""
    if _HINT.search(command[:MAX_COMMAND_CHARS]):
        yield from _fetches_in(command[:MAX_COMMAND_CHARS], 0)


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
    for line in parse_lines(command):
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
        yield from (replace(fetch, takes_input_arguments=True) for fetch in _fetches(call_run_by_xargs(call), depth))
    elif match := _FETCHING_SUBCOMMANDS.match(line := _without_options(name, arguments)):
        yield Fetch(" ".join(match[0].split()[:2]), call)
    elif name == "eval" or (name in _SHELLS and any(re.match(r"-\w*c$", word) for word in arguments)):
        for word in arguments:
            yield from _fetches_in(word, depth + 1)
    else:
        inner_call = _inner_call(arguments) if name in _RUNNERS else None
        inner_fetches = list(_fetches(inner_call, depth)) if inner_call else []
        yield from inner_fetches or (
            [Fetch(name, call)] if has_remote_url(call) and not _IGNORES_URLS.match(line) else []
        )


def has_remote_url(call: Call) -> bool:
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
