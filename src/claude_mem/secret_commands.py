"""Finds secrets in commands: random arguments of commands that log in or set a secret, and output that is one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from claude_mem.secret_names import Edit
from claude_mem.secret_rules import COMMANDS, PRINTERS, in_lines
from claude_mem.secret_values import is_random, is_strong, is_uniform
from claude_mem.text import map_strings

_ARGUMENT = re.compile(r"(?<![^\s\"'=:%])[^\s\"'`,;(){}\[\]<>|\\=:%][^\s\"'`;(){}\[\]<>|\\]{7,511}")
_LINE_END = re.compile(r"(?<!\\)\n|\\n|[|;&]\s|\x00")
_MOST_LINE = 600


def edits(text: str) -> Iterator[Edit]:
    """What to put in the place of random arguments of commands that are given a secret: `cargo login …`."""
    position = 0
    for literal, pattern, plain in COMMANDS:
        if literal not in text:
            continue
        for command in in_lines(pattern, literal, text):
            end = _LINE_END.search(text, command.end(), command.end() + _MOST_LINE)
            stop = end.start() if end else min(len(text), command.end() + _MOST_LINE)
            for word in _ARGUMENT.finditer(text, command.end(), stop):
                if word.start() >= position and _is_secret(word[0], plain=plain):
                    yield word.start(), word.end(), "[redacted]"
    yield from _shown_edits(text)


# A terminal as it was: a prompt, the command, and below it the one word that it printed.
_SHOWN = re.compile(
    r"(?:\A|\n)[\w.@~:/\-]{0,64} ?\$ (?P<command>[^\n]{4,400})\n(?P<word>[^\s\"\[\]]{8,512})(?=\r?\n|\Z)"
)


def _shown_edits(text: str) -> Iterator[Edit]:
    """What to put in the place of secrets that a command has printed in a copied terminal: `$ pass show mail`."""
    if "$ " not in text:
        return
    for shown in _SHOWN.finditer(text):
        if _is_printed(shown["word"]) and any(_printers(shown["command"])):
            yield shown.start("word"), shown.end("word"), "[redacted]"


def _printers(command: str) -> Iterator[tuple[bool]]:
    """For every rule that fits a command which prints a secret: whether it may print several."""
    return ((every,) for literal, pattern, every in PRINTERS if literal in command and pattern.search(command))


def _is_printed(word: str) -> bool:
    return is_random(word) or (is_uniform(word) and "-" not in word and len(word) >= 16)


def _is_secret(word: str, *, plain: bool) -> bool:
    """`plain`: after such a command hexadecimal is a key as well."""
    return is_strong(word) if not is_uniform(word) else plain and len(word) >= 20


_PRINTED = re.compile(r"[^\s\"'`,;:(){}\[\]<>]{8,4096}")


def redact_printed(commands: Iterable[str], output: Any) -> Any:
    """Return the output of commands without the secret that they print: `vault kv get -field=password …`."""
    fitting = [every for command in commands for (every,) in _printers(command)]
    return map_strings(output, partial(_without_printed, every=any(fitting))) if fitting else output


def _without_printed(text: str, *, every: bool) -> str:
    """Cut every word that looks random; if only one is expected, only where nothing else was printed."""
    if every:
        return _PRINTED.sub(lambda word: "[redacted]" if is_random(word[0]) else word[0], text)
    word = text.strip()
    return text.replace(word, "[redacted]") if _is_printed(word) else text
