"""Which titles can stand alone."""

from __future__ import annotations

import re

_LEAD_IN = re.compile(r"(?:[:,;…–—(-]|\.\.\.|\b(?:that|the|a|an|to|of|for|with|and|or|by|in|on|at|from))$", re.I)
_CHAT = re.compile(
    r"(?:yes|no|ok(?:ay)?|done|great|perfect|sure|now|let me|let's|i'll|i will|all (?:the )?tests pass)\b"
    r"|(?:this|that|it|they)\b",
    re.I,
)
_WORD = re.compile(r"[^\W\d_]{2,}")


def is_presentable(title: str) -> bool:
    """Return whether a line can stand alone where titles are shown: a list, a search, a session's start."""
    line = " ".join(title.split()).strip("*_# ")
    return len(_WORD.findall(line)) >= 3 and not _LEAD_IN.search(line) and not _CHAT.match(line)
