"""Looks up hundreds of literals in a text at once.

All runs of four bytes in a text are collected in one pass. A literal with a run that is not among them is ruled out. The
few others are searched among the distinct words. Searching the whole text for each literal would take most of the time
of redaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

_RUN = 4  # bytes
_COMMON_FIRST = " etaoinsrhldcumfpgwybvkxjqz"  # letters by their frequency in texts; all other characters are rarer
_SHORT = 500  # characters of a text whose words are not worth collecting


class LiteralIndex:
    """Literals by the rarest run of bytes in their longest word. Shorter words have no run."""

    def __init__(self, literals: Iterable[str]) -> None:
        self._by_run: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)  # literals with their longest word
        self._short: list[tuple[str, str]] = []
        for literal in set(literals):
            word = max(literal.split(), key=len)
            runs = [word[at : at + _RUN] for at in range(len(word) - _RUN + 1)]
            same_run = self._by_run[_runs(max(runs, key=_rarity)).pop()] if runs else self._short
            same_run.append((literal, word))

    def possible_in(self, text: str) -> set[str]:
        """Return the literals that may occur in a text."""
        words = text if len(text) < _SHORT else " ".join(set(text.split()))  # texts repeat their words
        possible = [item for run in self._by_run.keys() & _runs(words) for item in self._by_run[run]]
        return {literal for literal, word in (*possible, *self._short) if word in words}


def _runs(text: str) -> set[int]:
    """Return all runs of four bytes in a text, as numbers."""
    data = text.encode("utf-8", "surrogatepass")
    runs: set[int] = set()
    for start in range(min(_RUN, len(data))):
        end = start + (len(data) - start) // _RUN * _RUN
        runs.update(memoryview(data)[start:end].cast("I"))
    return runs


def _rarity(letters: str) -> int:
    """Return how rare these letters are in texts."""
    return sum(_COMMON_FIRST.index(letter) if letter in _COMMON_FIRST else len(_COMMON_FIRST) for letter in letters)
