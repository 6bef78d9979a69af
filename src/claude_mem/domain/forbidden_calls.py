"""Which rules of the user forbid a command: "never run `npm`", "use pnpm, not npm", "don't push without asking".

The words after the prohibition must be the words with which the call begins, up to the first word that only connects.
English only, like the rules themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_PHRASE = r"(?P<phrase>`[^`\n]{1,80}`|[^`,.;:!?()\n]{1,80})"
_FORBIDS = (
    re.compile(
        r"\b(?:never|don['’]?t|do not|stop|avoid|must not|mustn['’]?t|should not|shouldn['’]?t|no longer)\s+"
        r"(?:ever\s+|please\s+)?"
        rf"(?:(?:run|use|call|execute|invoke|try|start)(?:n?ing)?\s+)?{_PHRASE}",
        re.I,
    ),
    re.compile(rf"\b(?:instead of|rather than)\s+(?:(?:run|us|call)(?:n?ing|e)?\s+)?{_PHRASE}", re.I),
    re.compile(rf"\b(?:use|run|prefer)\b[^.;\n]{{1,80}}?(?:, (?:and )?not|,? never| over)\s+{_PHRASE}", re.I),
)
_END = re.compile(
    r"\s(?:without|before|after|unless|until|if|when|while|because|as|and|or|but|instead|for|from|in)\s.*", re.S
)
_CONNECTS = (
    "a",
    "an",
    "the",
    "to",
    "on",
    "into",
    "of",
    "at",
    "with",
    "any",
    "anymore",
    "again",
    "here",
    "directly",
    "it",
)
_GIT_VERBS = ("commit", "push", "merge", "rebase", "amend", "stash", "reset", "checkout", "tag", "pull")


def forbids_call(rule: str, words: Sequence[str]) -> bool:
    """Return whether a rule forbids a call, given as its program and arguments."""
    return any(_is_meant(phrase, words) for phrase in _phrases(rule))


def _phrases(rule: str) -> Iterator[list[str]]:
    for pattern in _FORBIDS:
        for match in pattern.finditer(rule[:1_000]):
            text = match["phrase"]
            phrase = (text.strip("`") if text.startswith("`") else _END.sub("", f"{text} ")).lower().split()
            if phrase and phrase[0] in _GIT_VERBS:
                phrase = ["git", *phrase]
            if phrase:
                yield [word.strip("\"'“”‘’") for word in phrase]


def _is_meant(phrase: Sequence[str], words: Sequence[str]) -> bool:
    called = [word.lower() for word in words]
    size = next((place for place, word in enumerate(phrase) if word in _CONNECTS), len(phrase))
    lead = [word for word in phrase[:size] if not word.startswith("-")]
    plain = [word for word in called if not word.startswith("-")]
    rest = [word for word in (*phrase[:size], *phrase[size:]) if word.startswith("-")]
    rest += [word for word in phrase[size:] if word not in _CONNECTS and not word.startswith("-")]
    return bool(lead) and plain[: len(lead)] == lead and all(word in called for word in rest)
