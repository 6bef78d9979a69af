"""Removes labels from the beginning of a summary's fields: "Next steps:", "**Done:**", "### Learned".

Wherever a field is shown, its label is shown with it, but closing messages and model replies often repeat the label in
the text.
"""

from __future__ import annotations

import re

_OF_WORK = r"(?: (?:work|actions?|steps?|tasks?|items?|points?|issues?))?"
_WORDS = {
    "request": r"asked|request|user(?:'s)? request",
    "investigated": r"investigated|investigations?|looked (?:into|at)",
    "learned": r"learn(?:ed|t|ings?)|(?:key )?(?:lessons?|findings?|insights?|takeaways?)(?: learn(?:ed|t))?",
    "completed": r"(?:all |work )?done|complet(?:ed?|ions?)|finished|accomplished|what (?:was done|I did)",
    "next_steps": rf"next(?: up)?{_OF_WORK}|to[- ]?dos?|remaining{_OF_WORK}|still to do|left(?: to do)?"
    rf"|(?:still )?(?:open|pending|outstanding|missing){_OF_WORK}|follow[- ]?ups?|what(?:'s| is) (?:next|left|open)",
    "notes": r"notes?|open",
}
_BULLET = r"(?:(?:[-*+•–]|\d{1,2}[.)])[ \t]++)?(?:\[[ xX]\][ \t]++)?"
_SIGN = r"(?:[✓✅✔☑➡→▶⏭🔜📝💡⚠]\ufe0f?[ \t]*+)?"
_GAP = r"[ \t]{0,4}"  # bounded: two gaps may follow each other, and a long run of spaces must not be tried twice
# The label in matching emphasis marks, with the colon inside or outside of them; or followed by a dash; or on a line of
# its own.
_LABELS = {
    field: re.compile(
        rf"\A\s*+{_BULLET}(?:\#{{1,6}}[ \t]++)?(?P<mark>\*\*\*|\*\*|\*|__|_|){_SIGN}"
        rf"(?:(?:{words})[:：]{_GAP}){{0,2}}(?:{words}){_GAP}"
        rf"(?:[:：]{_GAP}(?P=mark)|(?P=mark){_GAP}(?:[:：]| [-–—] |(?=\n)))\s*+",
        re.I,
    )
    for field, words in _WORDS.items()
}
_FIRST_BULLET = re.compile(rf"\A\s*+{_BULLET}(?=\S)")
MOST_LABELS = 3  # consecutive labels


def unlabelled(field: str, text: str) -> str:
    """Return a summary field without the labels at its beginning; a single item also loses its bullet."""
    bare = text
    for _ in range(MOST_LABELS):
        if (label := _LABELS[field].match(bare)) is None:
            break
        bare = bare[label.end() :]
    if "\n" not in bare.strip() and field != "request":
        bare = _FIRST_BULLET.sub("", bare, count=1)
    return bare.strip() if bare != text else text


def as_line(field: str, text: str) -> str:
    """Return a summary field without labels on one line; list items are separated by semicolons."""
    bare = unlabelled(field, text)
    lines = [line.strip() for line in bare.splitlines() if line.strip()]
    items = [_FIRST_BULLET.sub("", line, count=1) for line in lines]
    if field == "request" or items == lines:
        return " ".join(lines)
    ended = [item if item[-1] in ".!?:;,…" else f"{item};" for item in items[:-1]]
    return " ".join([*ended, *items[-1:]])
