"""What the instruction files of agents (CLAUDE.md, AGENTS.md and the like) name: files, commands and symbols.

Only what stands in code spans, links, imports and shell examples counts. Much of it names nothing of the repository;
the caller keeps what the repository once had.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_LINE = 2_000
MIN_SYMBOL = 6
_FENCE = re.compile(r"\s{0,3}(?:>\s?)*(`{3,}|~{3,})\s*([\w+-]*)")
_SHELLS = ("", "bash", "sh", "shell", "zsh", "console", "terminal")
_SPAN = re.compile(r"(?<!`)(`++)(.{1,400}?)(?<!`)\1(?!`)")
_LINK = re.compile(r"\]\(\s*<?([^)\s>#]+)")
_IMPORT = re.compile(r"(?<![\w`@/])@((?:\./)?[\w.-]+(?:/[\w.-]+)*\.\w+)")
_PATH = re.compile(r"(?:\./)?[\w.@+-]+(?:/[\w.@+-]+)*/?")
_LINE_NUMBER = re.compile(r":\d+(?:[-:]\d+)?$")
_SYMBOL = re.compile(r"(?:[\w$]+(?:\.|::|#))*([A-Za-z_]\w+)(\([^()`]{0,80}\))?")
_HUMPS = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]|[A-Za-z0-9]_[A-Za-z0-9]")
_COMMANDS = (
    ("make", re.compile(r"(?:^|[;&|(]|\brtk)\s*make\s+(?:-[\w=-]+\s+)*([A-Za-z][\w.-]*)(?=$|[\s;&|)])")),
    ("npm", re.compile(r"(?:^|[;&|(]|\brtk)\s*(?:npm|pnpm|yarn|bun)\s+run\s+([A-Za-z][\w.:-]*)(?=$|[\s;&|)])")),
    ("mise", re.compile(r"(?:^|[;&|(]|\brtk)\s*mise\s+run\s+([A-Za-z][\w.:-]*)(?=$|[\s;&|)])")),
    ("just", re.compile(r"(?:^|[;&|(]|\brtk)\s*just\s+([A-Za-z][\w.-]*)(?=$|[\s;&|)])")),
)
# A line that says so itself that something is not there any more, is not wrong.
_PAST = re.compile(
    r"\b(?:removed|deleted|renamed|moved|no longer|formerly|previously|used to|deprecated|obsolete|legacy|replaced"
    r"|was (?:split|merged)|superseded|gone|old)\b",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Mention:
    """A file, a command or a symbol that a line names. `tool`: the program that runs the command."""

    line: int  # from 1
    kind: str  # path | command | symbol
    name: str
    tool: str = ""


def find_mentions(text: str) -> list[Mention]:
    """Return what the lines of an instruction file name, each thing once a line."""
    mentions: dict[Mention, None] = {}
    fence, language = "", ""
    for number, whole_line in enumerate(text.splitlines(), 1):
        line = whole_line[:MAX_LINE]
        mark = _FENCE.match(line)
        if mark and not fence:
            fence, language = mark[1], mark[2].lower()
        elif mark and mark[1].startswith(fence) and not mark[2]:
            fence = ""
        elif not _PAST.search(line):
            named_things = _commands(line, number) if fence else _in_prose(line, number)
            mentions.update(dict.fromkeys(named_things if not fence or language in _SHELLS else ()))
    return list(mentions)


def _in_prose(line: str, number: int) -> Iterator[Mention]:
    for span in _SPAN.finditer(line):
        content = span[2].strip()
        commands = list(_commands(content, number))
        yield from commands
        if commands or not content:
            continue
        name = _LINE_NUMBER.sub("", content)
        if _PATH.fullmatch(name) and ("/" in name.strip("/") or "." in name[1:] or name.endswith("/")):
            yield Mention(number, "path", name)
        if symbol := _SYMBOL.fullmatch(content):
            is_telling = symbol[2] or _HUMPS.search(symbol[1])
            if is_telling and len(symbol[1]) >= MIN_SYMBOL:
                yield Mention(number, "symbol", symbol[1])
    bare = _SPAN.sub(" ", line)
    for pattern in (_LINK, _IMPORT):
        for match in pattern.finditer(bare):
            if _PATH.fullmatch(match[1]):
                yield Mention(number, "path", match[1])


def _commands(line: str, number: int) -> Iterator[Mention]:
    line = line.split(" #", 1)[0].removeprefix("$ ")
    for tool, pattern in _COMMANDS:
        for match in pattern.finditer(line):
            yield Mention(number, "command", match[1], tool)


def is_entry_for(line: str, name: str) -> bool:
    """Return whether a line is an entry of a list or a table about this name, so that it goes with it."""
    return bool(re.match(rf"\s*(?:[-*+]|\d+[.)]|\|)\s*\**`(?:\./)?{re.escape(name)}(?:\(\))?`", line))
