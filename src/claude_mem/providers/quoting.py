"""Reduce error lines to what may be shown: a package or a server may have written them.

Only words that error messages usually consist of (`data/foreign.toml`), or that the project's own text contains, are
kept.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Set
from dataclasses import replace
from pathlib import Path

from claude_mem import foreign, pasted, phrases
from claude_mem.providers.evidence import Evidence, Fix, error_line
from claude_mem.records import ToolUsed, Turn
from claude_mem.text import strings

LEFT_OUT = "…"
MOST_FIGURES = 6  # digits of a number
MOST_OWN = 100_000  # characters of the project's own text that are examined

_FILE = tomllib.loads((Path(__file__).parents[1] / "data" / "foreign.toml").read_text("utf-8"))
_ERROR_WORDS = frozenset(_FILE["error_words"].split())
_KIND = re.compile(
    r"(?:E\s+)?(?:[A-Za-z_][\w.]{0,80}(?:Error|Exception|Warning)|panic|fatal|error(?:\[\w{1,10}\])?)\b ?:?"
)
_PLAIN = re.compile(r"\W*\d[\d.,:]{0,12}\W*|\W+")


def with_plain_errors(evidence: Evidence, turn: Turn) -> Evidence:
    """Return the evidence with the output of each failure reduced to what may be shown."""
    failed = [command for command in evidence.commands if command.failed]
    if not failed:
        return evidence
    own = _own_words(turn)
    plain = {command: replace(command, output=plain_error(error_line(command.output), own)) for command in failed}
    return replace(
        evidence,
        commands=tuple(plain.get(command, command) for command in evidence.commands),
        fixes=tuple(Fix(plain.get(fix.failed, fix.failed), fix.passed) for fix in evidence.fixes),
        unsolved=tuple(plain.get(command, command) for command in evidence.unsolved),
    )


def plain_error(line: str, own: Set[str]) -> str:
    """Return an error line with `…` in place of words that neither error messages nor the project's own text
    contain."""
    kind = _KIND.match(line)
    begin = kind[0] if kind else ""
    chunks: list[str] = []

    def is_known(word: str) -> bool:
        return word in _ERROR_WORDS or word in own or (word.isdigit() and len(word) <= MOST_FIGURES)

    for chunk in line[len(begin) :].split():
        plain = _PLAIN.fullmatch(chunk) or all(map(is_known, phrases.words(chunk)))
        chunks.append(chunk if plain else LEFT_OUT)
    if chunks.count(LEFT_OUT) * 2 > len(chunks):
        chunks = []  # too little is left to be useful
    chunks = [chunk for chunk, before in zip(chunks, ["", *chunks], strict=False) if not chunk == before == LEFT_OUT]
    return " ".join([*([begin] if begin else []), *chunks]).rstrip(": ")


def _own_words(turn: Turn) -> frozenset[str]:
    """Return the words of the prompt, of the project's own files and of the agent's edits in the turn."""
    here = foreign.Here(turn.root, turn.cwd, turn.carried.fetched | foreign.fetched(turn.bodies))
    texts = [pasted.own_words(turn.prompt)]
    for body in turn.bodies:
        if isinstance(body, ToolUsed) and not body.name.startswith("mcp__") and not body.failed:
            shows_own = body.name != "Bash" and not foreign.name(body, here)
            texts += strings(body.input) if not shows_own else [*strings(body.input), *strings(body.output)]
    return frozenset(word for text in _bounded(texts) for word in phrases.words(text))


def _bounded(texts: Iterable[str]) -> Iterable[str]:
    remaining = MOST_OWN
    for text in texts:
        if remaining <= 0:
            return
        yield text[:remaining]
        remaining -= len(text)
