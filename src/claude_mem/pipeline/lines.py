"""Decides which titles get a line in the brief, and how such a line is worded.

`titles` checks whether a title can stand alone. A brief has room for about a dozen lines, so the requirements here are
stricter: a line says what became of a named thing, in whole clauses. Titles that only report a detail, a check or a
routine request are left out; fewer lines are better than weak ones. Text that the user chose is never judged here. The
patterns are English and stored in `data/lines.toml`; in other languages weak titles may pass, but no good one is lost.
"""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from itertools import islice
from pathlib import Path

from claude_mem.providers.prose import fit, undangled
from claude_mem.text import shorten
from claude_mem.titles import is_presentable

MOST_CHARS, MOST_COLONS = 600, 4  # the most characters and colons of a title that are examined
LINE_CHARS = 150  # a longer line is cut between clauses
LEAST_HEAD_WORDS = 3  # before a colon, for that part to describe the work by itself
LEAST_TAIL_WORDS = 3
LEAST_ASKED = 40  # characters before pasted text, for them to be a request
WHOLE_HEAD_WORDS = 5  # before a colon, for everything after it to be detail
LEAST_WORDS, ENOUGH_WORDS = 3, 5
FINDING_WORDS = 7  # for a finding to be understandable without its conversation

_FILE = tomllib.loads((Path(__file__).parents[1] / "data" / "lines.toml").read_text("utf-8"))


def _patterns(*names: str) -> list[re.Pattern[str]]:
    """Return the patterns with the given names from a table, or without names the whole table as one pattern."""
    table = {name: text.replace("\n", "") for name, text in _FILE[names[0]].items()}
    return [re.compile(table[name], re.I) for name in names[1:]] or [re.compile("|".join(table.values()), re.I)]


(_BEGINS,), (_CHORES,), (_PASTED,), (_WHY,) = map(_patterns, ("begins", "chores", "pasted", "why"))
_POINTS, _UNTOLD, _HEDGED, _DEFECT = _patterns("inside", "points", "untold", "hedged", "defect")
(_NO_STEP,) = _patterns("no_step")
_IS_QUESTION, _ERRAND = _patterns("asked", "question", "errand")
_LABEL, _PARTS = _patterns("labels", "label", "parts")

_CODE = re.compile(r"`[^`]*`")
_FIXED = re.compile(r"(?:Bug ?fix|Fix(?:ed)?)\s?:\s+(?=[A-Z`\"])")
_FIXES = re.compile(r"Fix(?:e[sd])?\b")
_OF_FILE = re.compile(
    r"`?(?P<path>[\w./-]*\w\.[A-Za-z]{1,5})`?(?::\d+(?:-\d+)?)?\s?(?::| [—–-])\s+(?P<rest>\S.*)", re.S
)
_QUESTION = re.compile(r"[^?\"]{8,200}\?\s+(?P<answer>[A-Z`].*)", re.S)
_SUFFIX = re.compile(r"\s\((?:CHANGELOG\.md|changelog\.md|[a-z]+-[a-z]+-[a-z]+\.md)\)$")
_FILE_LABEL = re.compile(r"`?[\w./@-]+\.[A-Za-z]{1,5}`?:")
_FILE_SUFFIX = re.compile(r"\s\([\w./@-]+\.[A-Za-z]{1,5}\)$")
_LIST = re.compile(r"(?:,? (?:and )?(?:`[^`]{1,80}`|[\w.-]+\(\)|\d+ more),?){2,}")
_CLAUSES = re.compile(r"[A-Z][^,]{2,80}(?:, [A-Z][^,]{2,80})+")
_ODD_LABEL = re.compile(r"^[0-9a-f]{1,12}(?:/[0-9a-f]{1,12})?: (?=[A-Z])")  # part of a hash
_DANGLING_CODE = re.compile(r";\s`[^`]{1,80}`(?:\s\([^()]*\))?$")
_SENTENCE = re.compile(r"(?<=[.!])\s+(?=[A-Z`\"])|(?<=\?)\s+")


@lru_cache(maxsize=4_096)
def shown(title: str) -> str:
    """Return the line of a title: without labels and enumerations of details, in whole clauses."""
    line = " ".join(title[:MOST_CHARS].split()).rstrip(" .")
    line = _ODD_LABEL.sub("", _SUFFIX.sub("", line))
    for shape in (_without_label, _answer_only, _file_as_suffix, _heading):
        line = shape(line)
    line = _DANGLING_CODE.sub("", line)
    if len(line) > LINE_CHARS:
        shorter = fit(line, LINE_CHARS)
        line = shorter if is_presentable(shorter) else line
    return line[:1].upper() + line[1:] if line[:1].islower() and line[1:2].islower() else line


def within(line: str, limit: int) -> str:
    """Return a line of at most `limit` characters: whole clauses if possible, otherwise cut with an ellipsis."""
    if len(line) <= limit:
        return line
    clauses = fit(line[:MOST_CHARS], limit)
    return clauses if len(clauses) <= limit and is_presentable(clauses) else shorten(line, limit)


def _without_label(line: str) -> str:
    if fixed := _FIXED.match(line):
        rest = line[fixed.end() :]
        line = rest if _FIXES.match(rest) else f"Fixed: {rest}"
    bare = _LABEL.sub("", line, count=1) if _LABEL.match(line) else line
    return bare if is_presentable(bare) else line


def _answer_only(line: str) -> str:
    """Return the answer that follows a question, if the answer stands alone."""
    match = _QUESTION.fullmatch(line)
    return match["answer"] if match and is_presentable(match["answer"]) else line


def _file_as_suffix(line: str) -> str:
    """ "`src/a.py`: Changed the label of b" → "Changed the label of b (a.py)"."""
    match = _OF_FILE.fullmatch(line)
    if match is None or not is_presentable(match["rest"]) or _CODE.match(match["rest"]):
        return line
    name = match["path"].rpartition("/")[2]
    rest = _FILE_SUFFIX.sub("", match["rest"])
    return f"{rest} ({name})" if name not in rest else rest


def _heading(line: str) -> str:
    """Return the part before a colon, if it describes the work by itself and only details follow."""
    masked = _CODE.sub(lambda code: "¤" * len(code[0]), line)
    for colon in islice(re.finditer(r":\s", masked), MOST_COLONS):
        head, tail = undangled(line[: colon.start()]), line[colon.end() :]
        words = len(masked[: colon.start()].split())
        if words < LEAST_HEAD_WORDS - 1 or not is_presentable(head):
            continue
        long = words >= LEAST_HEAD_WORDS and (len(line) > LINE_CHARS or masked.count(": ") + masked.count(", ") > 2)
        if words >= WHOLE_HEAD_WORDS or long or _is_enumeration(tail):
            return head
    return line


def _is_enumeration(text: str) -> bool:
    bare = _FILE_SUFFIX.sub("", text)
    few = len(_CODE.sub(" ", bare).split()) < LEAST_TAIL_WORDS
    return bool(
        _LIST.fullmatch(bare)
        or _CLAUSES.fullmatch(bare)
        or _CODE.match(bare)
        or _PARTS.match(bare)
        or _FILE_LABEL.match(bare)
        or few
    )


_CHANGED = r"(?:[A-Za-z-]+ed|Made|Set|Wrote|Built|Split|Rewrote|Hid|Kept|Put|Sent|Cut|Undid)\b"
_NAME = re.compile(r"`|[a-z][A-Z]|[A-Z]{2,}|--\w|\w\.\w|\w_\w|\w/\w")
_CHANGE = re.compile(rf"(?:[\w-]+: )?{_CHANGED}")
_NAME_LABEL = re.compile(
    r"(?!(?:Problem|Issue|Bug|Cause|Root cause|Fixed|Planned|Proposed):)"
    rf"(?:`x`(?: \w+| \([^()]*\))?|[\w/.-]+):\s(?!{_CHANGED})"
)
# A finding is shown only if it begins with its subject.
_FINDING = re.compile(r"(?:The |In |For )?(?:`x`|[A-Z][\w'-]*(?:[A-Z./_-]\w+|(?: [A-Z]\w+)+)|[A-Z]{2,}\w*)")


@lru_cache(maxsize=4_096)
def is_telling(line: str, *, finding: bool = False) -> bool:
    """Return whether a line is worth its place in a brief: it names a thing and says what became of it.

    A `finding` comes from a conversation: it must also begin with its subject and say something that is not obvious.
    """
    masked = _CODE.sub("`x`", line)
    if finding and not (_FINDING.match(masked) and ":" not in masked and _WHY.search(masked)):
        return False
    least = FINDING_WORDS if finding else 0
    return is_sound(line) and _says_enough(line) and len(line.split()) >= least


@lru_cache(maxsize=4_096)
def is_sound(line: str) -> bool:
    """Return whether a line has no fault: it is no detail, chore, guess or question, and refers to nothing outside."""
    masked = _CODE.sub("`x`", line)
    faults = (_CHORES.search(line), _PASTED.search(line), _BEGINS.match(masked), _NAME_LABEL.match(masked))
    if any(faults) or any(pattern.search(masked) for pattern in (_POINTS, _UNTOLD, _HEDGED, _DEFECT)):
        return False
    return "?" not in masked and is_presentable(line)


def is_pointing(line: str) -> bool:
    """Return whether a line refers to something said before it, or addresses someone."""
    return bool(_POINTS.search(_CODE.sub("`x`", line)))


def is_step(line: str) -> bool:
    """Return whether a line names an open step together with its subject, rather than an idea, a report or a question
    to the user of an earlier session."""
    return not (_NO_STEP.search(line[:MOST_CHARS]) or is_pointing(line[:MOST_CHARS]))


def is_errand(request: str) -> bool:
    """Return whether a request is routine and says nothing about the work, such as "commit this"."""
    return bool(_ERRAND.match(request))


def is_question(request: str) -> bool:
    return bool(_IS_QUESTION.match(request))


def asked(request: str) -> str:
    """Return a request in whole clauses: its first sentences, without text pasted after them."""
    line = " ".join(request[:MOST_CHARS].split())
    if pasted := _PASTED.search(line):
        line = undangled(line[: pasted.start()]) if pasted.start() >= LEAST_ASKED else line
    sentences = _SENTENCE.split(line)
    text = sentences[0]
    for sentence in sentences[1:]:
        if len(text) + len(sentence) >= LINE_CHARS:
            break
        text = f"{text} {sentence}"
    text = text if len(text) <= LINE_CHARS else fit(text, LINE_CHARS)
    return f'{text}"' if text.count('"') % 2 else text


def _says_enough(line: str) -> bool:
    """Return whether a line has enough words. Few are enough if one of them is a name, or if they form a heading."""
    words = _FILE_SUFFIX.sub("", line).split()
    least = LEAST_WORDS + bool(_CHANGE.match(line))  # "Updated Usage Section" could be anything
    is_heading = sum(word[:1].isupper() for word in words) >= LEAST_WORDS
    prose = _CODE.sub(" ", " ".join(words)).split()
    if line.startswith("`") or "`" in line:
        return sum(any(map(str.isalpha, word)) for word in prose) >= LEAST_WORDS
    return len(words) >= (least if is_heading or _NAME.search(line) else ENOUGH_WORDS)


def strength(line: str) -> int:
    """Return a score of how informative a line is, for choosing among the titles of one piece of work."""
    return bool(_CHANGE.match(line)) + bool(_NAME.search(line)) + (len(line.split()) >= FINDING_WORDS)
