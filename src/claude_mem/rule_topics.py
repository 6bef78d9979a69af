"""Which standing rules say the same, and which later rule replaces an earlier one.

The decision is based on the words of the rules only: it is not known here that pnpm and npm are both package managers,
but "use pnpm instead of npm" rejects what "we use npm here" chose. If in doubt, both rules stay in force.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from claude_mem.rule_data import WORDS, part

LEAST_ALIKE = 0.6  # share of common words if one rule has all the words of the other

_HERE, _FROM_NOW_ON = part("here"), part("from_now_on")
_WORD = re.compile(r"(?<![\w.#+/@-])[.#+/@-]{0,8}\w++(?:[.#+/@-]{1,8}\w++)*+")
_REJECTS = re.compile(r",? (?:and )?(?:not|instead of|rather than|over|no longer|never)\s+", re.I)
_USES = re.compile(r"\b(?:use|uses|using|prefer)\b\s*", re.I)
_FORBIDS = re.compile(r"\b(?:never|don'?t|do not|stop|avoid|no longer|must not|mustn'?t|should not|shouldn'?t)\b", re.I)
_SCOPE = re.compile(r"\b(?:for|in|when|whenever|before|after|with|on|as|to|while|if|unless|here|everywhere)\b", re.I)


def normal(text: str) -> str:
    """Return the normalized words of a rule, without courtesies. Rules that say the same give the same result."""
    return " ".join(word for word in _words(text) if word not in WORDS["courtesies"])


def superseded_mark(row: Mapping[str, Any]) -> str:
    """Return the suffix for the title of a rule that another rule has replaced; "" if none has."""
    return f" ⟨superseded by {row['superseded_by']}⟩" if row.get("superseded_by") else ""


def superseded(rules: Sequence[tuple[int, str]]) -> dict[int, int]:
    """Return, for rules in the order they were stated, the id of each replaced rule and of the next rule that replaces
    it."""
    topics = [(row_id, _topic(text)) for row_id, text in rules]
    replaced_by: dict[int, int] = {}
    for place, (row_id, old) in enumerate(topics):
        later = next((later_id for later_id, new in topics[place + 1 :] if _replaces(new, old)), None)
        if later is not None:
            replaced_by[row_id] = later
    return replaced_by


def replaces(later: str, earlier: str) -> bool:
    """Return whether a later rule replaces an earlier one: both are about the same thing by their words, or one chooses
    what the other rejects."""
    return _replaces(_topic(later), _topic(earlier))


def _replaces(new: _Topic, old: _Topic) -> bool:
    shared_words = new.words & old.words
    if new.words == old.words:
        return bool(shared_words)
    is_reversed = (old.choice and old.choice == new.rejected) or (new.choice and new.choice == old.rejected)
    if is_reversed and new.scope <= old.scope:
        return True
    contains = shared_words in (new.words, old.words)
    return contains and len(shared_words) / len(new.words | old.words) >= LEAST_ALIKE


@dataclass(frozen=True, slots=True)
class _Topic:
    """The content words of a rule; if the rule states a choice, also what to use, what not to use, and for what."""

    words: frozenset[str]
    choice: frozenset[str] = frozenset()
    rejected: frozenset[str] = frozenset()
    scope: frozenset[str] = frozenset()


def _topic(text: str) -> _Topic:
    words, use = _content(text), _USES.search(text)
    if use is None:
        return _Topic(words)
    options = [_SCOPE.split(option, maxsplit=1) for option in _REJECTS.split(text[use.end() :])]
    first_option, *rejected_options = (_content(option[0]) for option in options)
    scope = _content(" ".join(option[1] for option in options if len(option) > 1))
    if _FORBIDS.search(text[: use.start()]):
        return _Topic(words, rejected=first_option, scope=scope)
    return _Topic(words, choice=first_option, rejected=frozenset[str]().union(*rejected_options), scope=scope)


def _content(text: str) -> frozenset[str]:
    return frozenset(_root(word) for word in _words(text) if word not in WORDS["function_words"])


def _words(text: str) -> list[str]:
    return _WORD.findall(_without_frame(text.lower().replace("’", "'")).replace("'", ""))


def _without_frame(text: str) -> str:
    """Return a rule without the words that only say where it applies and since when."""
    return _HERE.sub(" ", _FROM_NOW_ON.sub(" ", text))


def _root(word: str) -> str:
    """Return a word without the endings in which two wordings of the same rule most often differ."""
    bare = re.sub(r"(?:ing|ed|es|s)$", "", word) if len(word) > 4 and word.isalpha() else word
    return re.sub(r"([bdgklmnprt])\1$|e$", r"\1", bare) if len(bare) > 3 else bare
