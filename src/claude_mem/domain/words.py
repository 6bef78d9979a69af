"""Search terms: which words of a text count, and how identifiers are split, for stored texts and queries alike.

The tokenizer of the index folds case and accents, stems English and splits at everything but letters and digits. It
cannot split `getUserById` or text without spaces; this module does that for documents and queries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_TERMS = 48
# For `str.translate`: spaces for the ASCII characters between words, so that `split` finds words faster than a pattern.
BETWEEN_WORDS = {code: " " for code in range(128) if not chr(code).isalnum()}

_WORD = re.compile(r"[^\W_]+")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_POSSESSIVE = re.compile(r"['’]s\b")
# Stop words: they say nothing about the subject of a query.
STOP_WORDS = frozenset(
    """
    a about above after again against all also am an and any are as at be because been before being below between both
    but by can could did do does doing done down during each few for from further get got had has have having he her
    here hers him his how i if in into is it its itself just let like ll me more most my no nor not now of off on once
    only or other our out over own please re s same she should so some such t than that the their them then there these
    they this those through to too under until up us use used using ve very want was we were what when where which while
    who whom why will with would you your yours
    """.split()  # noqa: SIM905 -- a list literal of this many words would be unreadable
)


def search_terms(question: str) -> list[str]:
    """Return the distinct search terms of a query, in order; its stop words if it has no others."""
    all_terms = list(dict.fromkeys(_terms(_POSSESSIVE.sub("", question))))
    content = [
        term for term in all_terms if term not in STOP_WORDS and (len(term) > 1 or not term.isascii() or term.isdigit())
    ]
    return (content or all_terms)[:MAX_TERMS]


def _terms(text: str) -> Iterator[str]:
    for word in _WORD.findall(text):
        if runs := _CJK.findall(word):
            for run in runs:
                yield from character_pairs(run)
            yield from (rest.lower() for rest in _CJK.split(word) if rest)
            continue
        yield word.lower()
        parts = _PARTS.findall(word)
        if len(parts) > 1 and word.isascii():
            yield from (part.lower() for part in parts)


def split_identifiers(text: str) -> str:
    """Return the parts of identifiers that the tokenizer would not split, and CJK runs as pairs of characters."""
    index_words: list[str] = []
    for word in _WORD.findall(text):
        if word.isascii():
            parts = _PARTS.findall(word)
            if len(parts) > 1:
                index_words += [part.lower() for part in parts]
        elif _CJK.search(word):
            index_words += [pair for run in _CJK.findall(word) for pair in character_pairs(run)]
    return " ".join(index_words)


def character_pairs(run: str) -> list[str]:
    """Split a CJK run into overlapping pairs: `数据库` → `数据`, `据库`. No dictionary is needed, and any part of a
    run can be found."""
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


_FILE_PATH = re.compile(r"(?<![\w.@~-])(?:[A-Za-z]:)?[\w.@~-]*+(?:[/\\][\w.@~-]++)+")
_NUMBER = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{7,40}\b|\d+", re.I)


def error_signature(error: str) -> str:
    """Return an error message without directories and numbers, so that recurrences of the same error are equal."""
    line = " ".join(error.split())[:300]
    line = _FILE_PATH.sub(lambda path: re.split(r"[/\\]", path[0])[-1], line)
    return _NUMBER.sub("#", line).lower().strip(" .:")


# Possessive, and anchored at the start of a run: a long run must not be tried again from each of its letters.
PATH = re.compile(r"(?<![\w@~.-])[\w@~.-]++(?:/[\w@~.-]++)+|(?<![\w-])[\w-]{1,120}\.[A-Za-z]{1,5}\b")


def find_paths(text: str) -> list[str]:
    """Return the distinct strings in a text that look like the path of a file or directory."""
    return list(dict.fromkeys(path.strip("./~") for path in PATH.findall(text) if len(path.strip("./~")) > 3))
