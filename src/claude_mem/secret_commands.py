"""Secrets in shell commands: random arguments of commands that log in or set a secret, and printed secrets."""

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
_MAX_LINE = 600


def edits(text: str) -> Iterator[Edit]:
    """Yield edits that redact random arguments of commands that take a secret (`cargo login …`) and secrets that
    commands printed in a copied terminal."""
    for literal, pattern, plain in COMMANDS:
        if literal not in text:
            continue
        for command in in_lines(pattern, literal, text):
            end = _LINE_END.search(text, command.end(), command.end() + _MAX_LINE)
            stop = end.start() if end else min(len(text), command.end() + _MAX_LINE)
            for word in _ARGUMENT.finditer(text, command.end(), stop):
                if _is_secret_argument(word[0], plain=plain):
                    yield word.start(), word.end(), "[redacted]"
    yield from _terminal_edits(text)


# A copied terminal: a prompt, the command, and in the next line the single word that the command printed.
_TERMINAL = re.compile(
    r"(?:\A|\n)[\w.@~:/\-]{0,64} ?\$ (?P<command>[^\n]{4,400})\n(?P<word>[^\s\"\[\]]{8,512})(?=\r?\n|\Z)"
)


def _terminal_edits(text: str) -> Iterator[Edit]:
    """Yield edits that redact secrets which a command printed in a copied terminal: `$ pass show mail`."""
    if "$ " not in text:
        return
    for match in _TERMINAL.finditer(text):
        if _is_printed_secret(match["word"]) and any(_matching_printers(match["command"])):
            yield match.start("word"), match.end("word"), "[redacted]"


def _matching_printers(command: str) -> Iterator[tuple[bool]]:
    """Yield, for every rule that matches a secret-printing command, whether the command may print several secrets."""
    return ((every,) for literal, pattern, every in PRINTERS if literal in command and pattern.search(command))


def _is_printed_secret(word: str) -> bool:
    return is_random(word) or (is_uniform(word) and "-" not in word and len(word) >= 16)


def _is_secret_argument(word: str, *, plain: bool) -> bool:
    """Return whether an argument is a secret. `plain`: the command also takes hexadecimal keys."""
    return is_strong(word) if not is_uniform(word) else plain and len(word) >= 20


_OUTPUT_WORD = re.compile(r"[^\s\"'`,;:(){}\[\]<>]{8,4096}")


def redact_printed(commands: Iterable[str], output: Any) -> Any:
    """Return the output of commands without the secrets they print: `vault kv get -field=password …`."""
    prints_several = [every for command in commands for (every,) in _matching_printers(command)]
    return map_strings(output, partial(_redact_output, every=any(prints_several))) if prints_several else output


def _redact_output(text: str, *, every: bool) -> str:
    """Redact all random-looking words if `every`; otherwise only an output that consists of a single such word."""
    if every:
        return _OUTPUT_WORD.sub(lambda word: "[redacted]" if is_random(word[0]) else word[0], text)
    word = text.strip()
    return text.replace(word, "[redacted]") if _is_printed_secret(word) else text
