"""How the commands of a turn went, call by call: which tools and places were mistaken, and what worked instead.

A *mistake* is a call that failed because of its tool or its place: an unknown program, subcommand, script or option, or
a path that does not exist. Failed tests, lint findings and build errors are ordinary work and no mistakes. A mistake
counts only if the output names a word of the command itself, so text that a command merely prints is never taken for
one.

A call is known by its *keys*: its program, the program with its subcommands, and these with each option or path:
`gh`, `gh pr`, `gh pr diff`, `gh pr diff --stat`. A mistake has exactly one key, that of the mistaken word.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from claude_mem.digest import user_rules
from claude_mem.digest.evidence import Command, gather_commands
from claude_mem.domain.mistakes import OPTION, PATH, PROGRAM, WORD, CallRecord
from claude_mem.domain.records import ToolUsed, Turn
from claude_mem.domain.text import shorten
from claude_mem.privacy import shell
from claude_mem.privacy.secret_rules import is_random
from claude_mem.privacy.shell import Call
from claude_mem.privacy.trust import TRUSTED

MAX_COMMAND_CHARS = 4_000  # of a command that are parsed
MAX_CALLS, MAX_WORDS, MAX_WORD_CHARS = 40, 60, 120
MAX_KEYS = 200
_EDGE_LINES, _LINE_CHARS = 40, 300  # of an output that are examined, at either end
_HIDDEN_CHARS = 2_000  # the longest output that may report a mistake although the exit status does not
_LOOKAHEAD = 6  # commands after a mistake among which the one that worked instead is looked for
_TEXT_CHARS = 100

# Words that may be a subcommand, a script or a target.
_PLAIN = re.compile(r"[A-Za-z][\w:-]{0,39}\Z")
# Programs whose first argument is no subcommand; a key for each of their arguments would only be noise.
_WITHOUT_SUBCOMMANDS = frozenset(
    """
    : . [ [[ awk basename break cat cd chmod chown command continue cp curl cut date declare diff dirname done do du echo
    egrep else eval exit export expr false fgrep fi find for function grep gunzip gzip head if in jq kill less ln local
    ls mkdir mktemp mv nl node nproc open perl printf ps pwd python python3 read readlink realpath return rg rm rmdir
    ruby sed select seq set sh bash zsh shift sleep sort source stat sqlite3 tail tar tee test then time touch tr trap
    tree true type uname uniq unset unzip wait wc wget which while xargs yes zip
    """.split()  # noqa: SIM905 -- a list literal of this many words would be unreadable
)
# How many words name what is called: `gh pr diff`, `git diff`, `npm run test`. Other programs have no subcommands.
_ONE_WORD = frozenset(
    """
    ansible apt apt-get brew bun cargo claude codex composer conda dart deno docker dotnet flutter gem git go
    golangci-lint gradle helm just kubectl make mise mix mvn npm nx pip pip3 pipenv pnpm podman poetry rails rake rustup
    swift systemctl task terraform turbo uv yarn
    """.split()  # noqa: SIM905
)
_TWO_WORDS = frozenset({"aws", "az", "gcloud", "gh", "glab"})
_GROUPS = frozenset({"run", "exec", "compose", "container", "image", "volume", "network", "buildx", "tool", "x"})

_NAME = r"['\"`‘“]?([^\s'\"`’”‘“:,;()]{1,120}?)['\"`’”]?"
_FLAG = r"['\"`‘“]?(--?[\w][\w-]{0,60}|[\w?])['\"`’”]?(?![\w-])"
_PATH = r"['\"`‘“]?([^\s'\"`’”‘“:,;()]{1,200})['\"`’”]?"
_MISTAKES = tuple(
    (kind, re.compile(pattern, re.I))
    for kind, pattern in (
        (PROGRAM, rf"(?:^|:\s*){_NAME}: (?:command )?not found\s*$"),
        (PROGRAM, rf"command not found: {_NAME}\s*$"),
        (PROGRAM, rf"^{_NAME} : The term '|^{_NAME} is not recognized as an internal or external command"),
        (PROGRAM, rf"\benv: {_NAME}: No such file or directory"),
        (WORD, rf"\b(?:unrecognized|unknown|invalid|no such) (?:sub-?)?command:? {_NAME}(?:$|[\s,.;])"),
        (WORD, rf"^\w[\w-]*: {_NAME} is not an? [\w ]{{0,30}}command\b"),
        (WORD, rf"\bmissing script:? {_NAME}\s*$"),
        (WORD, rf"\bscript not found:? {_NAME}\s*$"),
        (WORD, rf"\b(?:error )?command {_NAME} not found\.?\s*$"),
        (WORD, rf"\bno rule to make target {_NAME}(?:[\s.,]|$)"),
        (WORD, rf"\bno (?:task|recipe|target|job)s? (?:named )?{_NAME} (?:was )?(?:found|exists?|defined)"),
        (WORD, rf"\bdoes not contain recipe {_NAME}(?:[\s.]|$)"),
        (WORD, rf"\b(?:task|target|script|command) {_NAME} (?:does not exist|is not defined|not found)\b"),
        (WORD, rf"\bno module named {_NAME}(?:[\s;.]|$)"),
        (WORD, rf"\binvalid choice: {_NAME} "),
        (OPTION, rf"\b(?:unknown|unrecognized|invalid|illegal|unsupported|unexpected|bad|no such)"
                 rf" (?:long |short(?:hand)? )?(?:flag|option|switch|argument)s?(?:\(s\))?(?: --)?:? ?{_FLAG}"),
        (OPTION, rf"\bflag provided but not defined: {_FLAG}"),
        (OPTION, rf"\boption {_FLAG} (?:not recognized|does not exist|is not recognized)"),
        (PATH, rf"\bno such file or directory: {_PATH}"),
        (PATH, rf"\bENOENT: no such file or directory, \w+ {_PATH}"),
        (PATH, rf"(?:^|[\s:'\"`‘]){_PATH}:?(?: open:)? No such file or directory"),
        (PATH, rf"\bcan'?t (?:cd to|open file) {_PATH}"),
        (PATH, rf"\bcannot (?:access|stat|open|find) {_PATH}"),
        (PATH, rf"\bstat {_PATH}: directory not found"),
    )
)  # fmt: skip
# What an output must contain to be examined line by line.
_HINT = re.compile(
    r"not found|unknown|unrecognized|invalid|illegal|unsupported|unexpected|bad option|bad flag|no such|missing script"
    r"|not an? |no rule|no task|no recipe|no target|no job|no module|contain recipe|not exist|not defined|not recognized"
    r"|ENOENT|can'?t |cannot |The term ",
    re.I,
)
_CHAINED_ONLY = re.compile(r"\|\||;|\n|&\s*$|<<")


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistaken word of a call: what kind of word, the key under which it is known, and the line that reported it."""

    kind: str
    key: str
    name: str
    line: str
    call: Call


# --- keys ------------------------------------------------------------------------------------------------------------


def parse_command(command: str) -> list[Call]:
    """Return the calls of a command line that name a program, as far as they are examined."""
    calls: list[Call] = []
    for call in shell.parse_calls(command[:MAX_COMMAND_CHARS]):
        if call.program:
            calls.append(call)
        if len(calls) == MAX_CALLS:
            break
    return calls


def head_words(call: Call) -> tuple[str, ...]:
    """Return the words that name what is called: the program and its subcommands."""
    return (call.program, *_plain_words(call)[: _depth(call)])


def _counted_words(call: Call) -> tuple[str, ...]:
    """Return the words by which a call that worked is counted. Of a program that is not known, every plain word may name
    what is called."""
    has_fixed_depth = call.program in _ONE_WORD or call.program in _TWO_WORDS
    return head_words(call) if has_fixed_depth else (call.program, *_plain_words(call))


def _depth(call: Call) -> int:
    if call.program in _TWO_WORDS:
        return 2
    words = _plain_words(call)
    return 0 if call.program not in _ONE_WORD else 2 if words and words[0] in _GROUPS else 1


def _plain_words(call: Call) -> tuple[str, ...]:
    """Return the words before the first one that can be no subcommand. Options before them are skipped."""
    if call.program in _WITHOUT_SUBCOMMANDS:
        return ()
    plain: list[str] = []
    for word in call.words[:MAX_WORDS]:
        if not _PLAIN.match(word) or is_random(word):  # a token is no subcommand, and must not be kept in a key
            if word.startswith("-") and not plain:
                continue
            break
        plain.append(word)
    return tuple(plain[:3])


def call_keys(call: Call) -> dict[str, None]:
    """Return all keys of a call."""
    keys = {" ".join((call.program, *_plain_words(call)[:size])): None for size in range(len(_plain_words(call)) + 1)}
    head = " ".join(head_words(call))
    keys |= {f"{head} {name}": None for word in call.words[:MAX_WORDS] for name in _option_names(word)}
    keys |= {f"{call.program} {word}": None for word in (*call.words[:MAX_WORDS], *call.reads) if _is_path(word)}
    if call.program in ("python", "python3") and "-m" in call.words[:4]:
        keys |= {f"python -m {word}": None for word in call.words[call.words.index("-m") + 1 :][:1]}
    keys |= {word: None for word in call.before if _PLAIN.match(word)}
    return {key: None for key in keys if 0 < len(key) <= 2 * MAX_WORD_CHARS}


def command_keys(command: str) -> dict[str, Call]:
    """Return the keys of all calls of a command line, each with the first call that has it."""
    keys: dict[str, Call] = {}
    for call in parse_command(command):
        for key in call_keys(call):
            if len(keys) < MAX_KEYS:
                keys.setdefault(key, call)
    return keys


def _option_names(word: str) -> Iterator[str]:
    if word.startswith("-") and 1 < len(word) <= MAX_WORD_CHARS and word != "--":
        name = word.partition("=")[0]
        yield name
        if re.fullmatch(r"-[A-Za-z]{2,8}", name):
            yield from (f"-{letter}" for letter in dict.fromkeys(name[1:]))


def _is_path(word: str) -> bool:
    return len(word) <= MAX_WORD_CHARS and "/" in word and not re.search(r"[\s*?$`{}<>|]|://", word)


# --- mistakes --------------------------------------------------------------------------------------------------------


def find_mistake(command: Command) -> Mistake | None:
    """Return the mistake that a command's output reports.

    A command that succeeded may have hidden one in a pipe or before a `;`; then only a short output counts.
    """
    output = command.output
    if not command.failed and (len(output) > _HIDDEN_CHARS or not re.search(r"[|;\n]", command.text)):
        return None
    if not _HINT.search(output):
        return None
    calls = parse_command(command.text)
    lines = output.splitlines()
    for line in lines if len(lines) <= 2 * _EDGE_LINES else (*lines[:_EDGE_LINES], *lines[-_EDGE_LINES:]):
        if len(line) <= _LINE_CHARS and (mistake := _mistake_in(line.strip(), calls)):
            return mistake
    return None


def _mistake_in(line: str, calls: Sequence[Call]) -> Mistake | None:
    for kind, pattern in _MISTAKES:
        for match in pattern.finditer(line):
            name = next((group for group in match.groups() if group), "")
            for call in calls:
                if name and (key := _mistaken_key(kind, name, call)):
                    return Mistake(kind, key, name, shorten(line, 160), call)
    return None


def _mistaken_key(kind: str, name: str, call: Call) -> str:
    """Return the key of the word of a call that a message names; "" if the call has no such word."""
    words = call.words[:MAX_WORDS]
    if kind == PROGRAM:
        is_called = name.rpartition("/")[2] == call.program or name in call.before
        return (call.program if name not in call.before else name) if is_called else ""
    if kind == WORD:
        if call.program in ("python", "python3"):
            return f"python -m {name}" if "-m" in words[:4] and name in words else ""
        plain = _plain_words(call)
        return " ".join((call.program, *plain[: plain.index(name) + 1])) if name in plain else ""
    if kind == OPTION:
        options = [option for word in words for option in _option_names(word)]
        dashed = (
            name if name.startswith("-") else next((f"{d}{name}" for d in ("-", "--") if f"{d}{name}" in options), "")
        )
        return f"{' '.join(head_words(call))} {dashed}" if dashed and dashed in options else ""
    written = next((word for word in (*words, *call.reads) if _is_path(word) and _same_path(word, name)), "")
    return f"{call.program} {written}" if written else ""


def mistaken_path(key: str) -> str:
    """Return the path in the key of a mistaken path."""
    return key.partition(" ")[2]


def _same_path(written: str, reported: str) -> bool:
    written = written.rstrip("/")
    return written == reported.rstrip("/") or reported.rstrip("/").endswith("/" + written.removeprefix("./"))


# --- what worked -----------------------------------------------------------------------------------------------------


def _working_calls(command: Command) -> list[Call]:
    """Return the calls that certainly succeeded. After `;` or `||` and within pipes, only the last status is known."""
    calls = [] if command.failed else parse_command(command.text)
    if not calls:
        return []
    if _CHAINED_ONLY.search(command.text[:MAX_COMMAND_CHARS]):
        return [calls[-1]]
    piped = "|" in command.text
    return [call for call in calls[:-1] if not piped or "/dev/null" not in call.writes] + [calls[-1]]


def _serves_same_purpose(mistake: Mistake, call: Call) -> bool:
    """Return whether a call that worked after a mistake served the same purpose."""
    failed = mistake.call
    if mistake.key in call_keys(call):
        return False
    if mistake.kind == OPTION:
        return head_words(call) == head_words(failed)
    if mistake.kind == PATH:
        base = mistake.key.rpartition("/")[2]
        return call.program == failed.program and any(
            word.rstrip("/").rpartition("/")[2] == base for word in call.words if _is_path(word)
        )
    if _unwrapped(failed, call):
        return True
    failed_words, words = _content_words(failed), _content_words(call)
    if call.program == failed.program and mistake.kind == WORD:
        mine = _plain_words(call)
        return any(SequenceMatcher(None, mistake.name, word).ratio() >= 0.6 for word in mine) or bool(
            (failed_words & words) - set(_plain_words(failed))
        )
    return call.program != failed.program and bool((failed_words & words) - {failed.program})


def _unwrapped(failed: Call, call: Call) -> bool:
    """Return whether a call is a failed one without its first word: `rtk bun run test` → `bun run test`."""
    size = min(len(failed.words), 2)
    return size > 0 and (call.program, *call.words)[:size] == failed.words[:size]


def _content_words(call: Call) -> set[str]:
    return {word for word in (call.program, *call.words[:MAX_WORDS]) if len(word) >= 4 and not word.startswith("-")}


def format_call(call: Call) -> str:
    """Return a call as text, shortened; what cannot be shown in one line is left out."""
    words = [word for word in call.words if word and len(word) <= MAX_WORD_CHARS and not re.search(r"\s", word)]
    return shorten(" ".join((call.program, *words)), _TEXT_CHARS)


# --- records of a turn -----------------------------------------------------------------------------------------------


def record_calls(turn: Turn) -> list[CallRecord]:
    """Return how the calls of a turn went, by key.

    Of a command whose output is external (`gh pr diff`) only the exit status is believed, and which of its own words the
    output names: it may be a mistake, but it is never offered as what works.
    """
    origins = turn.origins or [""] * len(turn.seqs)
    events = zip(turn.seqs, turn.bodies, origins, strict=True)
    tools = [(seq, body, origin) for seq, body, origin in events if isinstance(body, ToolUsed)]
    refusals = {seq: words for seq, body, _ in tools if (words := user_rules.rejection(body)) is not None}
    external = frozenset(seq for seq, _, origin in tools if origin not in ("", *TRUSTED))
    commands = list(gather_commands((seq, body) for seq, body, _ in tools))
    ran = [command for command in commands if command.seq not in refusals]
    mistakes = [find_mistake(one) if one.failed or one.seq not in external else None for one in ran]
    records: dict[str, CallRecord] = {}
    for key, times in _count_working(ran, mistakes).items():
        records[key] = CallRecord(key=key, worked=times)
    for mistake, call in _with_remedies(ran, mistakes, external):
        record = records.get(mistake.key, CallRecord(key=mistake.key))
        records[mistake.key] = _add_mistake(record, mistake, call)
    for command in commands:
        if command.seq in refusals:
            _add_refusal(records, command, refusals[command.seq])
    return list(records.values())


def _count_working(ran: Sequence[Command], mistakes: Sequence[Mistake | None]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for command, mistake in zip(ran, mistakes, strict=True):
        if mistake is None:
            for call in _working_calls(command):
                counts.update(tuple(call_keys(call)))
    return counts


def _with_remedies(
    ran: Sequence[Command], mistakes: Sequence[Mistake | None], external: frozenset[int]
) -> Iterator[tuple[Mistake, Call | None]]:
    """Yield each mistake with the call that then worked for the same purpose, if there is one."""
    for number, (command, mistake) in enumerate(zip(ran, mistakes, strict=True)):
        if mistake is not None:
            later = list(zip(ran, mistakes, strict=True))[number + 1 :][:_LOOKAHEAD]
            own = (one for one, other in later if other is None and one.seq not in external)
            working = (call for one in own for call in _working_calls(one))
            stored_mistake = replace(mistake, line="") if command.seq in external else mistake
            yield stored_mistake, next((call for call in working if _serves_same_purpose(mistake, call)), None)


def _add_mistake(record: CallRecord, mistake: Mistake, call: Call | None) -> CallRecord:
    record = replace(record, failed=record.failed + 1, kind=mistake.kind, reason=mistake.line)
    if call is None:
        return record
    counts_as = "" if mistake.kind in (PATH, OPTION) else " ".join(_counted_words(call))
    return replace(record, instead=format_call(call), counts_as=counts_as)


def _add_refusal(records: dict[str, CallRecord], command: Command, words: str) -> None:
    for key in {" ".join(head_words(call)) for call in parse_command(command.text)}:
        record = records.get(key, CallRecord(key=key))
        records[key] = replace(record, refused=record.refused + 1, words=shorten(words, 160) or record.words)
