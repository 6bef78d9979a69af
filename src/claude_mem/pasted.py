"""What of a prompt the person said, and what was pasted into it: an issue, a log, a quotation.

What was pasted is a stranger's, though it came by the person's hand: it is no wish, no title and no rule. Where nothing
shows that something was pasted, all of a prompt is the person's.
"""

from __future__ import annotations

import re

LONG_QUOTE = 60  # characters between quotation marks that nobody says of their own
LEFT_OUT = "…"

_FENCED = re.compile(r"^(```|~~~).*?(?:^\1[^\n]*$|\Z)", re.M | re.S)
_CITED = re.compile(r"^[ \t]{0,3}>.*$", re.M)
_QUOTED = re.compile(rf"[\"“«][^\"”»\n]{{{LONG_QUOTE},4000}}[\"”»]")
# "Here is the issue:" and the like, at the end of a line; what follows was written elsewhere.
_INTRODUCED = re.compile(
    r"\b(?:issues?|tickets?|bug reports?|reports?|e-?mails?|messages?|comments?|reviews?|threads?|slack|posts?|logs?"
    r"|output|errors?|traceback|stack ?trace|descriptions?|changelog|readme|says?|said|wrote|writes|reads|pasted?"
    r"|quote[ds]?|feedback|article|page|docs?|response|answer)\b[^\n:]{0,80}:[ \t]{0,4}\n",
    re.I,
)
# The head of a document that people paste: an issue with its parts, an e-mail.
_HEAD = re.compile(
    r"^[ \t#*]{0,6}(?:(?:issue|bug|ticket|pr|pull request)\b[ \t]{0,2}[#:]|(?:title|subject|from|description|summary"
    r"|steps to reproduce|expected (?:behaviou?r|result)|actual (?:behaviou?r|result)|environment|reported by|labels)\b"
    r"[*]{0,2}[ \t]{0,2}(?::|$))",
    re.I | re.M,
)


def own_words(prompt: str) -> str:
    """Return the person's own words of a prompt; all of it if nothing shows what was pasted, or if nothing is left."""
    bare = _QUOTED.sub(f"“{LEFT_OUT}”", _CITED.sub("", _FENCED.sub("", prompt)))
    ends = [found.end() for found in (_INTRODUCED.search(bare),) if found and bare[found.end() :].strip()]
    ends += [found.start() for found in (_HEAD.search(bare),) if found and found.start()]
    own = bare[: min(ends)] if ends else bare
    return own.strip() if re.search(r"\w", own) else prompt


def others_words(prompt: str) -> tuple[str, ...]:
    """Return the lines of a prompt that are not the person's own words."""
    own = own_words(prompt)
    if own == prompt.strip():
        return ()
    said = set(own.splitlines())
    return tuple(line for line in prompt.splitlines() if line.strip() and line not in said)
