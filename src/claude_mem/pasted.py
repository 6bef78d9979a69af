"""Separation of a prompt into the user's own words and pasted text: an issue, a log, a quotation.

Pasted text was written by someone else, so it is not a request and becomes neither a title nor a rule. If nothing
indicates pasted text, the whole prompt counts as the user's own words.
"""

from __future__ import annotations

import re

LONG_QUOTE = 60  # characters; a longer text in quotation marks counts as pasted
LEFT_OUT = "…"

_FENCED = re.compile(r"^(```|~~~).*?(?:^\1[^\n]*$|\Z)", re.M | re.S)
_CITED = re.compile(r"^[ \t]{0,3}>.*$", re.M)
_QUOTED = re.compile(rf"[\"“«][^\"”»\n]{{{LONG_QUOTE},4000}}[\"”»]")
# "Here is the issue:" and the like at the end of a line; the text after it is pasted.
_INTRODUCED = re.compile(
    r"\b(?:issues?|tickets?|bug reports?|reports?|e-?mails?|messages?|comments?|reviews?|threads?|slack|posts?|logs?"
    r"|output|errors?|traceback|stack ?trace|descriptions?|changelog|readme|says?|said|wrote|writes|reads|pasted?"
    r"|quote[ds]?|feedback|article|page|docs?|response|answer)\b[^\n:]{0,80}:[ \t]{0,4}\n",
    re.I,
)
# The beginning of a document that people paste: an issue with its sections, an e-mail.
_HEAD = re.compile(
    r"^[ \t#*]{0,6}(?:(?:issue|bug|ticket|pr|pull request)\b[ \t]{0,2}[#:]|(?:title|subject|from|description|summary"
    r"|steps to reproduce|expected (?:behaviou?r|result)|actual (?:behaviou?r|result)|environment|reported by|labels)\b"
    r"[*]{0,2}[ \t]{0,2}(?::|$))",
    re.I | re.M,
)


def own_words(prompt: str) -> str:
    """Return the user's own words of a prompt; the whole prompt if no pasted text is recognized or nothing is left."""
    bare = _QUOTED.sub(f"“{LEFT_OUT}”", _CITED.sub("", _FENCED.sub("", prompt)))
    ends: list[int] = []
    if (introduction := _INTRODUCED.search(bare)) and bare[introduction.end() :].strip():
        ends.append(introduction.end())
    if (head := _HEAD.search(bare)) and head.start():
        ends.append(head.start())
    own = bare[: min(ends)] if ends else bare
    return own.strip() if re.search(r"\w", own) else prompt


def others_words(prompt: str) -> tuple[str, ...]:
    """Return the lines of a prompt that are not the user's own words."""
    own = own_words(prompt)
    if own == prompt.strip():
        return ()
    own_lines = set(own.splitlines())
    return tuple(line for line in prompt.splitlines() if line.strip() and line not in own_lines)
