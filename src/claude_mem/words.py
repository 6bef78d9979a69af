"""Which words of a text count, and how names are taken apart: the same for what is kept and for what is asked.

The index's tokenizer folds case and accents, stems English and splits at everything but letters and digits. It can't
split `getUserById` or text without spaces: that is done here, for documents and questions alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST_TERMS = 48

_WORD = re.compile(r"[^\W_]+")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_POSSESSIVE = re.compile(r"['’]s\b")
# Words that say nothing about what is looked for.
STOP = frozenset(
    """
    a about above after again against all also am an and any are as at be because been before being below between both
    but by can could did do does doing done down during each few for from further get got had has have having he her
    here hers him his how i if in into is it its itself just let like ll me more most my no nor not now of off on once
    only or other our out over own please re s same she should so some such t than that the their them then there these
    they this those through to too under until up us use used using ve very want was we were what when where which while
    who whom why will with would you your yours
    """.split()  # noqa: SIM905 -- a list of so many words can't be read
)


def terms(question: str) -> list[str]:
    """What to look for, each once, in order. If nothing but small words was said, those."""
    found = list(dict.fromkeys(_terms(_POSSESSIVE.sub("", question))))
    telling = [term for term in found if term not in STOP and (len(term) > 1 or not term.isascii() or term.isdigit())]
    return (telling or found)[:MOST_TERMS]


def _terms(text: str) -> Iterator[str]:
    for word in _WORD.findall(text):
        if runs := _CJK.findall(word):
            for run in runs:
                yield from pairs(run)
            yield from (rest.lower() for rest in _CJK.split(word) if rest)
            continue
        yield word.lower()
        parts = _PARTS.findall(word)
        if len(parts) > 1 and word.isascii():
            yield from (part.lower() for part in parts)


def names(text: str) -> str:
    """The parts of identifiers that the tokenizer would leave whole, and CJK runs as pairs."""
    found: list[str] = []
    for word in _WORD.findall(text):
        if word.isascii():
            parts = _PARTS.findall(word)
            if len(parts) > 1:
                found += [part.lower() for part in parts]
        elif _CJK.search(word):
            found += [pair for run in _CJK.findall(word) for pair in pairs(run)]
    return " ".join(found)


def pairs(run: str) -> list[str]:
    """`数据库` → `数据`, `据库`: no dictionary needed, and any part of a run can be found."""
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


_PLACE = re.compile(r"(?<![\w.@~-])(?:[A-Za-z]:)?[\w.@~-]*+(?:[/\\][\w.@~-]++)+")
_NUMBER = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{7,40}\b|\d+", re.I)


def signature(error: str) -> str:
    """What two errors have in common when they are the same one: not the place, the number or the time."""
    line = " ".join(error.split())[:300]
    line = _PLACE.sub(lambda found: re.split(r"[/\\]", found[0])[-1], line)
    return _NUMBER.sub("#", line).lower().strip(" .:")


# Possessive, and only from the beginning of a run: a long one must not be tried again from each of its letters.
PATH = re.compile(r"(?<![\w@~.-])[\w@~.-]++(?:/[\w@~.-]++)+|(?<![\w-])[\w-]{1,120}\.[A-Za-z]{1,5}\b")


def paths(text: str) -> list[str]:
    """What looks like a file or a folder in a text, each once."""
    return list(dict.fromkeys(found.strip("./~") for found in PATH.findall(text) if len(found.strip("./~")) > 3))
