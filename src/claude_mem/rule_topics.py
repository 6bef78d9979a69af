"""Which standing rules say the same, and which later one takes the place of an earlier one.

Decided by the rules' own words and nothing else: that pnpm and npm are both package managers is not known here; that
"use pnpm instead of npm" rejects what "we use npm here" chose is. Where it is not plain, both rules stand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from claude_mem.rule_data import WORDS, part

LEAST_ALIKE = 0.6  # of the words of two rules of which one has all the words of the other

_HERE, _FROM_NOW_ON = part("here"), part("from_now_on")
_WORD = re.compile(r"(?<![\w.#+/@-])[.#+/@-]{0,8}\w++(?:[.#+/@-]{1,8}\w++)*+")
_REJECTS = re.compile(r",? (?:and )?(?:not|instead of|rather than|over|no longer|never)\s+", re.I)
_USES = re.compile(r"\b(?:use|uses|using|prefer)\b\s*", re.I)
_FORBIDS = re.compile(r"\b(?:never|don'?t|do not|stop|avoid|no longer|must not|mustn'?t|should not|shouldn'?t)\b", re.I)
_SCOPE = re.compile(r"\b(?:for|in|when|whenever|before|after|with|on|as|to|while|if|unless|here|everywhere)\b", re.I)


def normal(text: str) -> str:
    """Return what two rules have in common when they say the same: their words, without courtesies."""
    return " ".join(word for word in _words(text) if word not in WORDS["courtesies"])


def superseded_mark(row: Mapping[str, Any]) -> str:
    """Return the words that stand behind a rule's title when another has taken its place."""
    return f" ⟨superseded by {row['superseded_by']}⟩" if row.get("superseded_by") else ""


def superseded(rules: Sequence[tuple[int, str]]) -> dict[int, int]:
    """Return which rule takes the place of which: of rules in the order they were stated, the next on the subject."""
    topics = [(row_id, _topic(text)) for row_id, text in rules]
    found: dict[int, int] = {}
    for place, (row_id, old) in enumerate(topics):
        later = next((other for other, new in topics[place + 1 :] if _replaces(new, old)), None)
        if later is not None:
            found[row_id] = later
    return found


def replaces(later: str, earlier: str) -> bool:
    """Return whether a later rule takes the place of an earlier one: it is about the same by its own words, or it
    chooses what the other rejects."""
    return _replaces(_topic(later), _topic(earlier))


def _replaces(new: _Topic, old: _Topic) -> bool:
    shared = new.words & old.words
    if new.words == old.words:
        return bool(shared)
    is_reversed = (old.chosen and old.chosen == new.rejected) or (new.chosen and new.chosen == old.rejected)
    if is_reversed and new.scope <= old.scope:
        return True
    contains = shared in (new.words, old.words)
    return contains and len(shared) / len(new.words | old.words) >= LEAST_ALIKE


@dataclass(frozen=True, slots=True)
class _Topic:
    """What a rule is about: all its content words; and of a choice what is to be used, what is not, and for what."""

    words: frozenset[str]
    chosen: frozenset[str] = frozenset()
    rejected: frozenset[str] = frozenset()
    scope: frozenset[str] = frozenset()


def _topic(text: str) -> _Topic:
    words, use = _content(text), _USES.search(text)
    if use is None:
        return _Topic(words)
    parts = [_SCOPE.split(part, maxsplit=1) for part in _REJECTS.split(text[use.end() :])]
    named, *others = (_content(part[0]) for part in parts)
    scope = _content(" ".join(part[1] for part in parts if len(part) > 1))
    if _FORBIDS.search(text[: use.start()]):
        return _Topic(words, rejected=named, scope=scope)
    return _Topic(words, chosen=named, rejected=frozenset[str]().union(*others), scope=scope)


def _content(text: str) -> frozenset[str]:
    return frozenset(_root(word) for word in _words(text) if word not in WORDS["function_words"])


def _words(text: str) -> list[str]:
    return _WORD.findall(_without_frame(text.lower().replace("’", "'")).replace("'", ""))


def _without_frame(text: str) -> str:
    """Return a rule without the words that only say where and from when on it holds."""
    return _HERE.sub(" ", _FROM_NOW_ON.sub(" ", text))


def _root(word: str) -> str:
    """Return a word without the endings in which two wordings of the same rule differ most."""
    bare = re.sub(r"(?:ing|ed|es|s)$", "", word) if len(word) > 4 and word.isalpha() else word
    return re.sub(r"([bdgklmnprt])\1$|e$", r"\1", bare) if len(bare) > 3 else bare
