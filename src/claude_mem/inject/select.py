"""Choose which memories of a project get a line in its brief, and how each line is worded.

The brief has room for about a dozen lines, so only informative ones are chosen; text that the user chose is never
judged. Observations are grouped into pieces of work, so that work of several turns gets one line. All functions are
pure and stable: one more observation adds at most one line to a choice and displaces at most one, because each choice
takes from the front of a fixed order.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TypeVar, cast

from claude_mem.digest.composed import lowered
from claude_mem.digest.prose import as_wish, fit_title, strip_dangling, to_past_tense
from claude_mem.digest.titles import is_presentable
from claude_mem.domain.anchors import Freshness
from claude_mem.domain.memory_items import UNKNOWN_STATE, MemoryItem, MemoryState
from claude_mem.domain.records import ObservationType
from claude_mem.domain.text import shorten, single_line
from claude_mem.domain.uses import UseCounts
from claude_mem.domain.words import search_terms

Row = MemoryItem
Terms = frozenset[str]
T = TypeVar("T")

# Wording
MAX_CHARS, MAX_COLONS = 600, 4  # the most characters and colons of a title that are examined
LINE_CHARS = 170  # a longer line is cut between clauses
MIN_HEAD_WORDS = 3  # before a colon, for that part to describe the work by itself
MIN_TAIL_WORDS = 3
MIN_REQUEST_CHARS = 40  # characters before pasted text, for them to be a request
WHOLE_HEAD_WORDS = 5  # before a colon, for everything after it to be detail
MIN_WORDS, ENOUGH_WORDS = 3, 5
FINDING_WORDS = 7  # for a finding to be understandable without its conversation
PLANS = ("Planned: ", "Proposed: ")
IMPLEMENTED = "Implemented: "  # before the title of a plan that was carried out
WORKED_ON = "Worked on: "  # before a fault of which nothing says that it is gone
MANY_FILES = 3  # a title that lists details of work on at least this many files is shown
# Pieces of work
LOOK_BACK = 60  # earlier observations that are searched for a part of the same work
NEAR_SESSIONS = 2  # a piece continues within the next two sessions; later work is a new piece
SHARED_FILES = 0.5  # share of the smaller set of changed files, for two sessions to do the same work
SHARED_TERMS = 0.3  # share of the shorter title's terms, for two titles to have the same subject
NEAR_TURNS = 5  # a conversation continues within this many turns
# Prefixes of observation keys: a commit, a command that failed and then passed, and one that still failed at the end.
COMMIT_PREFIX, FIX_PREFIX, FAILURE_PREFIX = "commit:", "fix:", "open:"
DISCOVERY = "discovery"
STATE = "state"  # the key of a row's state; it is not a field of an item, and never sent
WEIGHTS = {"feature": 3, "bugfix": 3, "refactor": 2, "change": 1, "discovery": 0}
OTHER_WEIGHT, COMMIT_WEIGHT, DETAIL_WEIGHT = 2, 4, 4
CUT_AT = 60  # version 0.1.0 cut long titles; a cut title with at least this many characters is no fragment
# Choice
MAX_PER_SESSION = 2  # lines of work per session: a long session must not hide all others
MAX_WORK_LINES = 8  # older work is better found by search
MIN_WORK_LINES = 3  # lines of work that are shown even if uninformative: a young project has nothing better
REPETITION_SHARE = 0.8  # share of the shorter line's terms that the other must contain to count as a repetition
OVERLAP_SHARE = 0.5  # the same for two lines of one session
MIN_TERMS = 3  # lines with fewer terms repeat each other only if their terms are equal
RELATED_SHARE = 0.4  # the same for two lines about the same file, the older of which has changed since
MIN_CODE_CHARS = 8  # shorter code recurs by chance
MIN_PARTS, MAX_PARTS, MAX_PART_WORDS = (
    2,
    3,
    7,
)  # parts of the work that are added to a title that says nothing by itself
SIZE_STEP = 40  # lines edited, for one point of weight; twice as many for the next
MAX_SIZE_WEIGHT = 5
DONE_SHARE = 0.5  # an open step is done if something later contains more than this share of its terms

_FILE = tomllib.loads((Path(__file__).parents[1] / "data" / "lines.toml").read_text("utf-8"))


def _patterns(*names: str) -> list[re.Pattern[str]]:
    """Return the patterns with the given names from a table, or without names the whole table as one pattern."""
    table = {name: text.replace("\n", "") for name, text in _FILE[names[0]].items()}
    return [re.compile(table[name], re.I) for name in names[1:]] or [re.compile("|".join(table.values()), re.I)]


(_BEGINS,), (_SUBJECT,), (_CHORES,), (_DETAILS,), (_PASTED,), (_WHY,) = map(
    _patterns, ("begins", "subject", "chores", "details", "pasted", "why")
)
_POINTS, _UNTOLD, _HEDGED, _SPOKEN, _DEFECT = _patterns("inside", "points", "untold", "hedged", "spoken", "defect")
(_NO_STEP,) = _patterns("no_step")
_IS_QUESTION, _ERRAND, _UNCLEAR = _patterns("asked", "question", "errand", "unclear")
_LABEL, _PARTS = _patterns("labels", "label", "parts")
(_VAGUE,), (_CORRECTION,) = map(_patterns, ("vague", "correction"))
_FIX_CLAIMED, _ONLY_DIAGNOSED = _patterns("evidence", "fixed", "diagnosed")
_TAKEN_OUT, _PUT_IN = _patterns("reversal", "taken_out", "put_in")

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
_COUNT = re.compile(r"(?P<comma>,)? (?P<last>`[^`]{1,80}`) and \d{1,3} more\b(?! \w*[a-z]s\b)")
_CLAUSES = re.compile(r"[A-Z][^,]{2,80}(?:, [A-Z][^,]{2,80})+")
_ODD_LABEL = re.compile(r"^[0-9a-f]{1,12}(?:/[0-9a-f]{1,12})?: (?=[A-Z])")  # part of a hash
_DANGLING_CODE = re.compile(r";\s`[^`]{1,80}`(?:\s\([^()]*\))?$")
_SENTENCE = re.compile(r"(?<=[.!])\s+(?=[A-Z`\"])|(?<=\?)\s+")
_CHANGED = r"(?:[A-Za-z-]+ed|Made|Set|Wrote|Built|Split|Rewrote|Hid|Kept|Put|Sent|Cut|Undid)\b"
_NAME = re.compile(r"`|[a-z][A-Z]|[A-Z]{2,}|--\w|\w\.\w|\w_\w|\w/\w")
_CHANGE = re.compile(rf"(?:[\w-]+: )?{_CHANGED}")
_NAME_LABEL = re.compile(
    r"(?!(?:Problem|Issue|Bug|Cause|Root cause|Fixed|Implemented|Planned|Proposed):)"
    rf"(?:`x`(?: \w+| \([^()]*\))?|[\w/.-]+):\s(?!{_CHANGED})"
)
# A finding is shown only if it begins with its subject.
_FINDING = re.compile(r"(?:The |In |For )?(?:`x`|[A-Z][\w'-]*(?:[A-Z./_-]\w+|(?: [A-Z]\w+)+)|[A-Z]{2,}\w*)")
_TEST = re.compile(r"^test_|(?:_test|\.test|\.spec|-test|Test|Tests)$")
_LEAST_STEM = 5  # a shorter file name ("main", "util", "mod") is too common to identify the work
_POLITE = re.compile(
    r"(?i)(?:(?:ok|so|and|now|hey|please|actually)[, ]+){0,8}(?:(?:can|could|would|will) (?:you|we)|let(?:'|’)?s|please"
    r"|we (?:should|need to|want to)|i(?:'d| would) like (?:you )?to|i want (?:you )?to|i need (?:you )?to)"
    r"(?: please| also| now)* "
)
_BECAUSE = re.compile(r",? (?:because|since|as) ")
_FAULT_LABEL = re.compile(r"(?:Problem|Issue|Bug|Cause|Root [Cc]ause|The (?:problem|issue|bug)):\s+")
_NOW_RIGHT = re.compile(r"(?P<label>Fixed: )(?=.{1,80}\b(?:is|are) now\b)")
_WAS_FAULTY = re.compile(
    r"\b(?:was|were) (?:being |never |not |only |incorrectly |wrongly |\w+ing )"
    r"|\b(?:wasn't|weren't|didn't|only handled)\b"
)
# An idea, not a finding; or a finding that usually ends with the conversation, because something is done about it.
_PASSING = re.compile(
    r"\b(?:could|would|should|currently|no longer used|unused|dead code|no \w+(?: \w+)? (?:issue|problem))\b"
)
_OPEN_QUESTION = "open question:"
_EDITED = re.compile(r"Edited \S+ \(\+(?P<added>\d+) −(?P<removed>\d+)\)")
_PART = re.compile(r"(?!(?:Why|Problem|Cause|Root cause|Issue|Fix|Bug|Edited|Commit)\b)(?P<part>[A-Z][^`.:]{5,80}): \S")
_ASIDE = re.compile(r" \((?:would|should|could|maybe|perhaps|i think)\b[^()]*\)", re.I)
_FILE_SUBJECT = re.compile(r"`[\w/.-]+\.[a-z]{1,5}` (?:now|also|will)\b")
_TOPIC = re.compile(r"\s\(“[^”]{0,80}”\)$")
# Steps that wait for the user's next prompt; any prompt settles them.
_AWAITS_USER = re.compile(r"^(?:Decide|Question): |\((?:awaiting go-ahead|asked, not done)\)$")
_WORK_OUTCOMES = ("done", "partly", "failed")


# --- wording of a line -----------------------------------------------------------------------------------------------
# `digest.titles` checks whether a title can stand alone. The requirements here are stricter: a line says what became of
# a named thing, in whole clauses. Titles that only report a detail, a check or a routine request are left out; fewer
# lines are better than weak ones. The patterns are English and stored in `data/lines.toml`; in other languages weak
# titles may pass, but no good one is lost.


@lru_cache(maxsize=4_096)
def format_title(title: str) -> str:
    """Return the line of a title: without labels and enumerations of details, in whole clauses."""
    line = " ".join(title[:MAX_CHARS].split()).rstrip(" .")
    line = _whole_clauses(_ASIDE.sub("", _ODD_LABEL.sub("", _SUFFIX.sub("", line))))
    for shape in (_without_label, _without_fault, _answer_only, _file_as_suffix, _heading):
        line = shape(line)
    line = _without_count(_DANGLING_CODE.sub("", line))
    if len(line) > LINE_CHARS:
        shorter = fit_title(line, LINE_CHARS)
        line = shorter if is_presentable(shorter) else line
    return line[:1].upper() + line[1:] if line[:1].islower() and line[1:2].islower() else line


def fit_line(line: str, limit: int) -> str:
    """Return a line of at most `limit` characters: whole clauses if possible, otherwise cut with an ellipsis."""
    if len(line) <= limit:
        return line
    clauses = fit_title(line[:MAX_CHARS], limit)
    return clauses if len(clauses) <= limit and is_presentable(clauses) else shorten(line, limit)


def _whole_clauses(line: str) -> str:
    """Return the line without clauses after a semicolon that end before their object."""
    first, *others = line.split("; ")
    return "; ".join([first, *(clause for clause in others if not _UNTOLD.search(_CODE.sub("`x`", clause)))])


def _without_label(line: str) -> str:
    if fixed := _FIXED.match(line):
        rest = line[fixed.end() :]
        line = rest if _FIXES.match(rest) else f"Fixed: {rest}"
    bare = _LABEL.sub("", line, count=1) if _LABEL.match(line) else line
    return bare if is_presentable(bare) else line


def _without_fault(line: str) -> str:
    """ "Handled long lines in a.py - A long line passes through without error" → "Handled long lines in a.py":
    after the work, the fault is gone."""
    head, dash, _ = line.partition(" - ")
    is_work = bool(dash) and bool(_CHANGE.match(head)) and len(head.split()) >= ENOUGH_WORDS
    return head if is_work and is_presentable(head) else line


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
    for colon in islice(re.finditer(r":\s", masked), MAX_COLONS):
        head, tail = strip_dangling(line[: colon.start()]), line[colon.end() :]
        words = len(masked[: colon.start()].split())
        if words < MIN_HEAD_WORDS - 1 or not is_presentable(head) or _needs_tail(head, tail):
            continue
        long = words >= MIN_HEAD_WORDS and (len(line) > LINE_CHARS or masked.count(": ") + masked.count(", ") > 2)
        if words >= WHOLE_HEAD_WORDS or long or _is_enumeration(tail):
            return head
    return line


def _without_count(line: str) -> str:
    """ "Moved `a`, `b` and 6 more from `c`" → "Moved `a` and `b` from `c`": what was counted may belong to
    something else."""
    return _COUNT.sub(lambda match: f" and {match['last']}" if match["comma"] else f" {match['last']}", line)


def _needs_tail(head: str, tail: str) -> bool:
    """Return whether a heading says nothing by itself, and the text after it lists its parts or begins with a name."""
    return is_vague(head) and bool(_CODE.match(tail) or _CLAUSES.fullmatch(tail))


def _is_enumeration(text: str) -> bool:
    bare = _FILE_SUFFIX.sub("", text)
    few = len(_CODE.sub(" ", bare).split()) < MIN_TAIL_WORDS
    return bool(
        _LIST.fullmatch(bare)
        or _CLAUSES.fullmatch(bare)
        or _CODE.match(bare)
        or _PARTS.match(bare)
        or _FILE_LABEL.match(bare)
        or few
    )


@lru_cache(maxsize=4_096)
def is_informative(line: str, *, finding: bool = False) -> bool:
    """Return whether a line is worth its place in a brief: it names a thing and says what has become of that thing.

    A `finding` comes from a conversation: it must also begin with its subject and say something that is not obvious.
    """
    masked = _CODE.sub("`x`", line)
    if finding and not (_FINDING.match(masked) and ":" not in masked and _WHY.search(masked)):
        return False
    if finding and _PASSING.search(masked):
        return False
    least = FINDING_WORDS if finding else 0
    is_open = line.startswith(WORKED_ON)  # the fault is named, but not its end
    return is_faultless(line) and not is_open and _says_enough(line) and len(line.split()) >= least


@lru_cache(maxsize=4_096)
def is_faultless(line: str) -> bool:
    """Return whether a line has no fault: it is presentable, and names its subject."""
    return is_plain(line) and not _SUBJECT.match(_CODE.sub("`x`", line))


@lru_cache(maxsize=4_096)
def is_plain(line: str) -> bool:
    """Return whether a line is no chore, guess or question, and refers to nothing outside."""
    masked = _CODE.sub("`x`", line)
    faults = (_CHORES.search(line), _PASTED.search(line), _BEGINS.match(masked), _NAME_LABEL.match(masked))
    bare = _FILE_SUFFIX.sub("", masked)
    if any(faults) or _SPOKEN.search(bare) or is_vague(line) or _FILE_SUBJECT.match(line):
        return False
    if any(pattern.search(masked) for pattern in (_POINTS, _UNTOLD, _HEDGED, _DEFECT)):
        return False
    return "?" not in masked and is_presentable(line) and is_presentable(_FILE_SUFFIX.sub("", line))


@lru_cache(maxsize=4_096)
def is_vague(line: str) -> bool:
    """Return whether a line consists of a verb of improvement and a general noun: it says nothing about the work."""
    return bool(_VAGUE.match(_FILE_SUFFIX.sub("", line)))


def is_detail(line: str) -> bool:
    """Return whether a line names a change of code without what the change is for."""
    return bool(_DETAILS.search(line))


def refers_elsewhere(line: str) -> bool:
    """Return whether a line refers to something said before it, or addresses someone."""
    return bool(_POINTS.search(_CODE.sub("`x`", line)))


def is_open_step(line: str) -> bool:
    """Return whether a line names an open step together with its subject, rather than an idea, a report or a question
    to the user of an earlier session."""
    return not (_NO_STEP.search(line[:MAX_CHARS]) or refers_elsewhere(line[:MAX_CHARS]))


def is_routine_request(request: str) -> bool:
    """Return whether a request is routine and says nothing about the work, such as "commit this"."""
    return bool(_ERRAND.match(request))


def is_request(line: str) -> bool:
    """Return whether a line begins with an imperative: it says what should be done."""
    return to_past_tense(line) != line


def is_clear_request(request: str) -> bool:
    """Return whether a request can be understood without its conversation."""
    return is_presentable(request) and not (is_routine_request(request) or _UNCLEAR.search(request))


def is_question(request: str) -> bool:
    """Return whether a request is a question."""
    return bool(_IS_QUESTION.match(request))


def format_request(request: str) -> str:
    """Return a request in whole clauses: its first sentences, without text pasted after them."""
    line = " ".join(request[:MAX_CHARS].split())
    wish = as_wish(_POLITE.sub("", line, count=1), MAX_CHARS)
    line = wish.rstrip("?") if is_request(wish) else line
    if pasted := _PASTED.search(line):
        line = strip_dangling(line[: pasted.start()]) if pasted.start() >= MIN_REQUEST_CHARS else line
    sentences = _SENTENCE.split(line)
    text = sentences[0]
    for sentence in sentences[1:]:
        if len(text) + len(sentence) >= LINE_CHARS:
            break
        text = f"{text} {sentence}"
    text = text if len(text) <= LINE_CHARS else fit_title(text, LINE_CHARS)
    return f'{text}"' if text.count('"') % 2 else text


def _says_enough(line: str) -> bool:
    """Return whether a line has enough words. Few are enough if one of them is a name, or if they form a heading."""
    words = _FILE_SUFFIX.sub("", line).split()
    is_plan_title = line.startswith(IMPLEMENTED)
    # Of other titles, a file does not count: "Added a single retry (release.yaml)" does not say what is tried again.
    has_name = bool(_NAME.search(line if is_plan_title else " ".join(words)))
    is_general = _CHANGE.match(line) and not (has_name or is_plan_title)
    least = MIN_WORDS + bool(is_general)  # "Updated Usage Section" could be anything
    is_heading = sum(word[:1].isupper() for word in words) >= MIN_WORDS
    prose = _CODE.sub(" ", " ".join(words)).split()
    if line.startswith("`") or "`" in line:
        return sum(any(map(str.isalpha, word)) for word in prose) >= MIN_WORDS
    return len(words) >= (least if is_heading or has_name else ENOUGH_WORDS)


def informativeness(line: str) -> int:
    """Return a score of how informative a line is, for choosing among the titles of one piece of work."""
    has = bool(_CHANGE.match(line)) + bool(_NAME.search(line)) + (len(line.split()) >= FINDING_WORDS)
    return has + 2 * line.startswith(IMPLEMENTED) - DETAIL_WEIGHT * is_detail(line)


# --- pieces of work --------------------------------------------------------------------------------------------------
# Each observation joins the piece of the nearest earlier observation about the same thing, or starts a new piece. The
# decision depends only on earlier observations: a new observation extends or starts one piece and changes no other.
# Distance is counted in sessions of the project, never in calendar time.


@dataclass(frozen=True, slots=True)
class PieceOfWork:
    """A piece of work: the observation that provides the title, and the others, the most informative first."""

    title: Row
    others: tuple[Row, ...]
    at: tuple[int, int]  # the newest observation: its time and its id
    session_id: int | None  # where the work began
    last_session: int | None = 0  # where the work continued last
    last_turn: int = 0
    is_informative: bool = True  # the title is informative

    @property
    def weight(self) -> int:
        """How well the title represents the work."""
        return weight(self.title)


@dataclass(frozen=True, slots=True)
class _Features:
    """The features by which observations of the same work are recognised."""

    session_id: int
    turn: int
    commit: str
    changed: frozenset[str]
    files: frozenset[str]
    terms: frozenset[str]

    @property
    def is_talk(self) -> bool:
        return not self.changed and not self.commit


@dataclass(slots=True)
class _Group:
    """The observations of a piece of work, and the first of those that speak of its current state."""

    rows: list[Row]
    begin: int = 0  # what came before was superseded


def group_work(rows: Sequence[Row], *, newest_session: int | None = None) -> list[PieceOfWork]:
    """Group observations into pieces of work, newest first.

    Pieces without a presentable title are left out; decisions and traps are not part of any piece. A piece on which
    `newest_session` worked is named after what that session did.
    """
    ordered = sorted((row for row in rows if not is_knowledge(row)), key=time_and_id)
    features = [_features(row) for row in ordered]
    group_of: list[_Group] = []
    groups: list[_Group] = []
    for index, row in enumerate(ordered):
        before = _predecessor(index, features)
        if before is not None:
            group = group_of[before]
        elif superseded := _find_superseded(index, ordered, features, group_of):
            group = superseded
            group.begin = len(group.rows)
        else:
            group = _Group([])
            groups.append(group)
        group.rows.append(row)
        group_of.append(group)
    candidates = (_piece(group, newest_session) for group in groups)
    return sorted((piece for piece in candidates if piece), key=lambda piece: piece.at, reverse=True)


def _piece(group: _Group, newest_session: int | None = None) -> PieceOfWork | None:
    rows = group.rows
    ranked = sorted(
        rows,
        key=lambda row: (
            -weight(row) - informativeness(title_line(row)) - size_weight(row),
            -weight(row),
            -row["created_at"],
            -row["id"],
        ),
    )
    has_work = any(row["type"] != DISCOVERY for row in rows)
    # A discovery does not say what the work was, and one made before the work may no longer be true.
    current = [row for row in ranked if row["type"] != DISCOVERY or is_user_chosen(row) or not has_work]
    current = [row for row in current if not _is_corrected(row, rows)]
    since = time_and_id(rows[group.begin])
    titles = [row for row in current if time_and_id(row) >= since and is_informative_row(row)]
    informative = next(iter(titles), None)
    of_newest = (row for row in titles if row["session_id"] == newest_session and not is_plan(row))
    informative = next((row for row in of_newest if informative and _is_as_large(row, informative)), informative)
    valid = (row for row in (*current, *ranked) if has_title(row) and not _is_corrected(row, rows))
    title = informative or next(valid, None)
    if title is None:
        return None
    last = rows[-1]
    return PieceOfWork(
        title,
        tuple(row for row in ranked if row is not title),
        at=time_and_id(last),
        session_id=rows[0]["session_id"],
        last_session=last["session_id"],
        last_turn=last.get("prompt_number") or 0,
        is_informative=bool(informative),
    )


def _find_superseded(
    index: int, ordered: Sequence[Row], features: Sequence[_Features], group_of: Sequence[_Group]
) -> _Group | None:
    """Return the newest earlier piece of work whose place an observation takes: it says nearly the same about the same
    files, or undoes what that piece did.

    The observation continues that piece, so that it displaces no other line.
    """
    own = ordered[index]
    if not is_informative_row(own) or own["type"] == DISCOVERY:
        return None
    for before in range(index - 1, -1, -1):
        earlier, group = ordered[before], group_of[before]
        is_near = features[before].changed & features[index].changed or is_commit(own) or is_commit(earlier)
        is_superseded = (is_near and _is_said_again(earlier, own)) or _is_undone(earlier, own)
        if is_superseded and not any(map(is_user_chosen, group.rows)):
            piece = _piece(group)
            if piece and piece.title is earlier:  # what is said again is not some detail, but the whole work
                return group
    return None


def _is_said_again(earlier: Row, later: Row) -> bool:
    """Return whether two titles speak of the same. Of work that was not finished, or that changed since, fewer shared
    terms show it."""
    one, other = _matter(title_line(later)), _matter(title_line(earlier))
    shared = len(one & other)
    was_open = title_line(earlier).startswith(WORKED_ON)
    share = RELATED_SHARE if was_open or is_changed_since(earlier) else OVERLAP_SHARE
    return shared >= MIN_TERMS and shared >= share * min(len(one), len(other))


@lru_cache(maxsize=4_096)
def _matter(line: str) -> Terms:
    """Return the terms of what a title speaks of, without its verb, its label and its file."""
    line = _FILE_SUFFIX.sub("", line).removeprefix(IMPLEMENTED)
    head = line.partition(": ")[0]
    line = head if is_vague(head) else line
    return subject_terms(line.partition(" ")[2] if _CHANGE.match(line) else line)


def is_changed_since(row: Row) -> bool:
    """Return whether the code that a row speaks of has changed in part since."""
    return state_of(row).freshness == Freshness.PARTLY


def _is_undone(earlier: Row, later: Row) -> bool:
    """Return whether a row put in again the code that an earlier one took out, or took out what that one put in."""
    then, now = (_code_of(tuple(row.get("facts", ()))) for row in (earlier, later))
    return bool(then[0] & now[1] or then[1] & now[0])


@lru_cache(maxsize=4_096)
def _code_of(facts: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the code that the facts of a row say was taken out, and the code they say was put in."""
    changes = [fact for fact in facts if not fact.startswith(("Why: ", "Edited "))]

    def code_after(pattern: re.Pattern[str]) -> frozenset[str]:
        code = (match["code"] for fact in changes for match in pattern.finditer(fact))
        return frozenset(text for text in code if len(text) >= MIN_CODE_CHARS and " " in text)

    return code_after(_TAKEN_OUT), code_after(_PUT_IN)


def _is_corrected(row: Row, group: Iterable[Row]) -> bool:
    """Return whether the user had a later turn of the same session do otherwise what a row says, in the same files."""
    if is_user_chosen(row):
        return False
    files = set(row.get("files_modified", ()))
    return any(
        later["session_id"] == row["session_id"]
        and (later.get("prompt_number") or 0) > (row.get("prompt_number") or 0)
        and files & set(later.get("files_modified", ()))
        and _CORRECTION.search(later.get("subtitle") or "")
        for later in group
    )


def title_line(row: Row) -> str:
    """Return the title as it appears in the brief. Text that the user chose stays unchanged."""
    title = (row["title"] or "").strip()
    if is_user_chosen(row):
        return title
    if title.startswith(PLANS):
        title = _BECAUSE.split(title)[0]
    line = format_title(title)
    if row["type"] == "bugfix" and row.get("files_modified"):
        line = _as_fixed(line) if _is_fix_shown(row) else _as_worked_on(line)
    return _with_parts(line, row.get("facts", ())) if is_vague(line) else line


def _is_fix_shown(row: Row) -> bool:
    """Return whether a row says that its fault is gone. Only to have made the fault easier to find is not enough."""
    texts = "\n".join([row["title"] or "", *row.get("facts", ()), row.get("narrative") or ""])
    return bool(_FIX_CLAIMED.search(texts)) and not _ONLY_DIAGNOSED.search(texts)


def _as_worked_on(line: str) -> str:
    """Return the line of work on a fault of which nothing says that it is gone."""
    if label := _FAULT_LABEL.match(line):
        return f"{WORKED_ON}{lowered(line[label.end() :])}"
    is_fault = _WAS_FAULTY.search(line) and not _CHANGE.match(line)
    return f"{WORKED_ON}{lowered(line)}" if is_fault else line


def _with_parts(line: str, facts: Iterable[str]) -> str:
    """Return a title that says nothing by itself with the parts of the work that its facts name."""
    parts = [match["part"] for fact in facts if (match := _PART.match(fact))]
    parts = [part for part in dict.fromkeys(parts) if 2 <= len(part.split()) <= MAX_PART_WORDS and not is_vague(part)]
    bare = _FILE_SUFFIX.sub("", line)
    return f"{bare}: {', '.join(map(lowered, parts[:MAX_PARTS]))}" if len(parts) >= MIN_PARTS else line


def _as_fixed(line: str) -> str:
    """Return the line of a fix: a fault that the title describes is gone."""
    if label := _FAULT_LABEL.match(line):
        return f"Fixed: {lowered(line[label.end() :])}"
    if fixed := _NOW_RIGHT.match(line):
        return line[fixed.end("label") :]
    return f"Fixed: {lowered(line)}" if _WAS_FAULTY.search(line) and not _CHANGE.match(line) else line


def weight(row: Row) -> int:
    """Return how well an observation represents its piece of work; a failure that was fixed ranks last."""
    if row.get("key", "").startswith(FIX_PREFIX):
        return -1
    return WEIGHTS.get(row["type"] or "", OTHER_WEIGHT) + COMMIT_WEIGHT * is_commit(row)


def _is_as_large(row: Row, other: Row) -> bool:
    """Return whether a row is about a kind of work that weighs as much as that of another."""
    return WEIGHTS.get(row["type"] or "", OTHER_WEIGHT) >= WEIGHTS.get(other["type"] or "", OTHER_WEIGHT)


def size_weight(row: Row) -> int:
    """Return how much was edited, in a few steps: the largest part of a piece of work gives it its title. Lines
    that were only moved count little."""
    edits = (match for fact in row.get("facts", ()) if (match := _EDITED.match(fact)))
    lines = sum(int(edit["added"]) + int(edit["removed"]) for edit in edits)
    points = min(MAX_SIZE_WEIGHT, (lines // SIZE_STEP).bit_length())
    return min(1, points) if row["type"] == "refactor" else points


def state_of(row: Mapping[str, object]) -> MemoryState:
    """Return the state that was added to a row: whether the code it speaks of still stands, and what became of the
    work."""
    return cast(MemoryState, row.get(STATE, UNKNOWN_STATE))


def has_title(row: Row) -> bool:
    """Return whether the title can be shown: the user chose it, or it can stand alone."""
    title = _complete_title(row)
    return bool(title) if is_user_chosen(row) else is_presentable(title)


def is_informative_row(row: Row) -> bool:
    """Return whether the title is worth a line in a brief: the user chose it, or it is informative."""
    title = _complete_title(row)
    if is_user_chosen(row):
        return bool(title)
    if is_knowledge(row):
        return is_faultless(title) and not (is_detail(title) or is_request(title))
    if title.startswith(PLANS):
        return is_informative(title.partition(": ")[2])
    has_parts = "; " in title and len(row.get("files_modified", ())) >= MANY_FILES
    return is_informative(title, finding=row["type"] == DISCOVERY) and (has_parts or not is_detail(title))


def _complete_title(row: Row) -> str:
    title = title_line(row)
    return f"{title[:-1]}." if title.endswith("…") and len(title) >= CUT_AT else title


def is_user_chosen(row: Row) -> bool:
    """Return whether the user chose the words (a rule, a note) or the row (pinned, approved)."""
    is_by_user = row["type"] == ObservationType.RULE or row.get("trust") == "user" or row.get("session_id") is None
    return is_by_user or row.get("verdict") == "approved" or bool(row.get("pinned"))


def has_left(row: Row, counts: UseCounts | None) -> bool:
    """Return whether a row has left the brief, because it was shown many times and never used. What the user chose
    stays."""
    return counts is not None and counts.is_never_used and not is_user_chosen(row)


def is_knowledge(row: Row) -> bool:
    """Return whether a row is a decision, a trap or a memory saved on its own: worth knowing, but no piece of work."""
    is_trap = is_failure(row) or "gotcha" in row.get("concepts", ())
    return is_trap or row["type"] == "decision" or row.get("session_id") is None


def is_plan(row: Row) -> bool:
    """Return whether a title announces a plan."""
    return title_line(row).startswith(PLANS)


def is_commit(row: Row) -> bool:
    """Return whether an observation is about a commit."""
    return bool(row.get("commit_id")) or row.get("key", "").startswith(COMMIT_PREFIX)


def is_failure(row: Row) -> bool:
    """Return whether an observation is about a command that still failed at the end of its turn."""
    return bool(row.get("key", "").startswith(FAILURE_PREFIX))


def time_and_id(row: Row) -> tuple[int, int]:
    """Return the key that sorts rows by time."""
    return row["created_at"], row["id"]


def _features(row: Row) -> _Features:
    changed = frozenset(feature for path in row.get("files_modified", ()) for feature in _file_features(path))
    read = frozenset(feature for path in row.get("files_read", ()) for feature in _file_features(path))
    return _Features(
        session_id=row.get("session_id") or 0,
        turn=row.get("prompt_number") or 0,
        commit=row.get("commit_id") or (row["key"] if is_commit(row) else ""),
        changed=changed,
        files=changed | read,
        terms=frozenset(search_terms(row["title"] or "")),
    )


def _file_features(path: str) -> tuple[str, ...]:
    """Return the path, and the name that a file shares with its tests."""
    stem = PurePosixPath(path).stem
    bare = _TEST.sub("", stem)
    return (path, bare) if len(bare) >= _LEAST_STEM else (path,)


def _predecessor(index: int, features: Sequence[_Features]) -> int | None:
    """Return the nearest earlier observation that belongs to the same piece of work."""
    own, between = features[index], set[int]()
    for before in range(index - 1, max(-1, index - 1 - LOOK_BACK), -1):
        other = features[before]
        if other.session_id == own.session_id:
            if _same_in_session(own, other):
                return before
            continue
        between.add(other.session_id)
        if len(between) <= NEAR_SESSIONS and _same_in_sessions(own, other):
            return before
    return None


def _same_in_session(own: _Features, other: _Features) -> bool:
    """Return whether two observations of one session belong together.

    Work continues on the same files, a commit belongs to the work before it, and a conversation continues from answer
    to answer. Work and conversation belong together if they have the same subject.
    """
    if own.turn == other.turn or _same_commit(own, other) or _same_subject(own, other):
        return True
    if other.is_talk or own.is_talk:
        return other.is_talk and own.is_talk and own.turn - other.turn <= NEAR_TURNS
    return not own.changed or bool(own.files & other.files)


def _same_in_sessions(own: _Features, other: _Features) -> bool:
    fewer = min(len(own.changed), len(other.changed))
    files = bool(fewer) and len(own.changed & other.changed) >= SHARED_FILES * fewer
    return _same_commit(own, other) or (files and _same_subject(own, other))


def _same_commit(own: _Features, other: _Features) -> bool:
    return bool(own.commit) and own.commit == other.commit


def _same_subject(own: _Features, other: _Features) -> bool:
    shared = len(own.terms & other.terms)
    return shared >= 2 and shared >= SHARED_TERMS * min(len(own.terms), len(other.terms))


# --- repetition ------------------------------------------------------------------------------------------------------


def subject_terms(text: str) -> Terms:
    """Return the terms by which two lines are compared."""
    return frozenset(search_terms(text))


def is_alike(one: Terms, other: Terms) -> bool:
    """Return whether two lines say the same. Different numbers make them different: version 2 is not version 3."""
    if not _numbers(one) <= other and not _numbers(other) <= one:
        return False
    fewer = min(len(one), len(other))
    return one == other if fewer < MIN_TERMS else len(one & other) >= REPETITION_SHARE * fewer


@lru_cache(maxsize=4096)  # each line is compared with hundreds of others
def _numbers(subject: Terms) -> Terms:
    return frozenset(term for term in subject if any(map(str.isdigit, term)))


def repeats_any(text: str, others: Iterable[Terms]) -> bool:
    """Return whether a line says the same as one of the others."""
    own = subject_terms(text)
    return any(is_alike(own, other) for other in others)


def distinct(items: Iterable[T], before: Iterable[str], *, title: Callable[[T], str]) -> list[T]:
    """Return the items that repeat neither a line of `before` nor an earlier item, whether that was returned or not."""
    seen_subjects = [subject_terms(line) for line in before]
    distinct_items = []
    for item in items:
        own = subject_terms(title(item))
        if not any(is_alike(own, other) for other in seen_subjects):
            distinct_items.append(item)
        seen_subjects.append(own)
    return distinct_items


# --- choice of work --------------------------------------------------------------------------------------------------


def _overlaps(one: Terms, other: Terms) -> bool:
    """Return whether two lines of one session speak of the same, so that one of them is enough."""
    shared = len(one & other)
    return shared >= MIN_TERMS and shared >= OVERLAP_SHARE * min(len(one), len(other))


def choose_work(pieces: Sequence[PieceOfWork], *, most: int, newest_session: int | None = None) -> list[PieceOfWork]:
    """Return the newest pieces of work, newest first, with only the most important ones of each session.

    Pieces with an uninformative title are included only while there are few others, and mere answers not even then. Of
    the newest session, one is included if there is nothing better.
    """
    most = min(most, MAX_WORK_LINES)
    of_session: defaultdict[int | None, list[Terms]] = defaultdict(list)
    candidates = []
    for piece in sorted(pieces, key=_importance):
        beside, own = of_session[piece.session_id], subject_terms(title_line(piece.title))
        if len(beside) < MAX_PER_SESSION and not any(_overlaps(own, other) for other in beside):
            candidates.append(piece)
        beside.append(own)
    newest = sorted(candidates, key=lambda piece: piece.at, reverse=True)
    informative = [piece for piece in newest if piece.is_informative]
    weak = [piece for piece in newest if not piece.is_informative and piece.title["type"] != DISCOVERY]
    weak = [piece for piece in weak if is_plain(title_line(piece.title))]
    is_told = any(piece.last_session == newest_session for piece in informative)
    of_newest = (piece for piece in weak if piece.last_session == newest_session)
    plain = [] if is_told else list(islice((piece for piece in of_newest if is_faultless(title_line(piece.title))), 1))
    weak = [*plain, *(piece for piece in weak if piece not in plain)]
    weak = weak[: max(len(plain[:most]), min(MIN_WORK_LINES, most) - len(informative))]
    return sorted([*informative[: most - len(weak)], *weak], key=lambda piece: piece.at, reverse=True)


def _importance(piece: PieceOfWork) -> tuple[int, ...]:
    """Return the key that sorts pieces of work by their importance for the session in which they began. Work that went
    on in a later session comes first: its place must not depend on what else was done at its beginning."""
    is_continued = piece.last_session != piece.session_id
    return -piece.is_informative, -is_continued, -piece.weight, -piece.at[0], -piece.at[1]


# --- choice of decisions and traps -----------------------------------------------------------------------------------


def choose_knowledge(rows: Sequence[Row], turns: Sequence[Row], *, since: int, most: int) -> list[MemoryItem]:
    """Return decisions and traps that matter for the files in use, newest first.

    Going back in time, each one made since `since` adds itself, and each turn adds the newest one about the files it
    changed.
    """
    chosen_rows: dict[int, Row] = {}
    pool = [(row, frozenset(row.get("files_modified") or row.get("files_read") or ())) for row in rows]
    moments = [(time_and_id(row), row["id"], frozenset[str]()) for row in rows if row["created_at"] >= since]
    moments += [(time_and_id(turn), 0, frozenset(turn.get("files_edited", ()))) for turn in turns]
    for _, own, changed in sorted(moments, key=lambda moment: moment[0], reverse=True):
        fits = (row for row, files in pool if row["id"] == own or files & changed)
        next_row = next((row for row in fits if row["id"] not in chosen_rows), None)
        if next_row is not None and len(chosen_rows) < most:
            chosen_rows[next_row["id"]] = next_row
    return sorted(chosen_rows.values(), key=time_and_id, reverse=True)


def drop_single_failures(rows: Sequence[Row]) -> list[MemoryItem]:
    """Return the decisions and traps without failures that occurred in a single session: a lasting one occurs again."""
    failures = [
        (row["session_id"], time_and_id(row), subject_terms(row["title"] or "")) for row in rows if is_failure(row)
    ]

    def came_before(row: Row) -> bool:
        own = subject_terms(row["title"] or "")
        return any(
            session != row["session_id"] and at < time_and_id(row) and is_alike(own, other)
            for session, at, other in failures
        )

    return [row for row in rows if not is_failure(row) or came_before(row)]


# --- where the last sessions left off --------------------------------------------------------------------------------


def find_main_request(turns: Sequence[Row]) -> MemoryItem | None:
    """Return the turn whose request describes the last session best: the first that asks for work, or a question if no
    work was done.

    Requests such as "yes" and "commit this" describe nothing.
    """
    last = [turn for turn in turns if turn["session_id"] == turns[0]["session_id"]]
    candidates = [turn for turn in reversed(last) if is_clear_request(format_request(request_line(turn)))]
    asked_for_work = (turn for turn in candidates if not is_question(request_line(turn)))
    is_talk = session_outcome(turns) in ("", "answered")
    return next(asked_for_work, candidates[0] if candidates and is_talk else None)


def has_edited(turns: Sequence[Row]) -> bool:
    """Return whether the last session edited files."""
    return any(turn.get("files_edited") for turn in turns if turn["session_id"] == turns[0]["session_id"])


def request_line(turn: Row) -> str:
    """Return a request in one line; for "Implement this plan:" followed by a plan, the plan's title."""
    text = _TOPIC.sub("", (turn["request"] or "").strip())
    lead, _, plan = text.partition("\n")
    heading = plan.lstrip().partition("\n")[0]
    is_plan = lead.endswith(":") and heading.startswith("#")
    return single_line("request", heading.lstrip("# ").removeprefix("Plan: ") if is_plan else text)


def session_outcome(turns: Sequence[Row]) -> str:
    """Return the outcome of the last session: that of its last turn, unless that turn only answered or proposed.

    An answer or a proposal does not change the state of the work done before.
    """
    outcomes = [turn.get("outcome") or "" for turn in turns if turn["session_id"] == turns[0]["session_id"]]
    if outcomes[0] not in ("", "answered", "proposed"):
        return outcomes[0]
    return next((candidate for candidate in outcomes if candidate in _WORK_OUTCOMES), next(filter(None, outcomes), ""))


def find_open_steps(turns: Sequence[Row], observations: Sequence[Row], *, sessions: int) -> Iterator[tuple[Row, str]]:
    """Yield the open steps of the last sessions that nothing later covers, each with its turn.

    `turns` and `observations` have the newest first.
    """
    last = list(dict.fromkeys(turn["session_id"] for turn in turns))[:sessions]
    seen_subjects: list[Terms] = []
    for index, turn in enumerate(turns):
        later = [other for other in turns[:index] if other["session_id"] == turn["session_id"]]
        if turn["session_id"] not in last or any(other.get("files_edited") for other in later):
            continue  # the work went on, and what was left then says nothing about now
        steps = _steps(turn, with_notes=index == 0, answered=bool(later) or turn["session_id"] != last[0])
        for step in steps:
            own = subject_terms(step)
            fresh = own and not any(is_alike(own, other) for other in seen_subjects)
            if fresh and not any(
                covers_terms(subject_terms(text), own) for text in _later_texts(turn, turns[:index], observations)
            ):
                seen_subjects.append(own)
                yield turn, step


def _later_texts(turn: Row, turns: Sequence[Row], observations: Sequence[Row]) -> Iterator[str]:
    """Yield what was requested, completed and observed after a turn.

    If the next request only says "yes", it covers all steps that the turn left open.
    """
    following = next((other for other in reversed(turns) if other["session_id"] == turn["session_id"]), None)
    if following and request_line(following) and not is_presentable(request_line(following)):
        yield " ".join((turn["next_steps"] or "", turn["notes"] or ""))
    for other in turns:
        yield from (request_line(other), *(other["completed"] or "").splitlines())
    yield from (row["title"] or "" for row in observations if row["created_at"] > turn["created_at"])


def covers_terms(other: Terms, own: Terms) -> bool:
    """Return whether `other` contains most terms of `own`."""
    return len(own & other) > DONE_SHARE * len(own)


def _steps(turn: Row, *, with_notes: bool, answered: bool) -> Iterator[str]:
    """Yield the open steps of a turn.

    Notes count only if no turn followed, and offers or questions only if no turn of the same session followed (not
    `answered`). Steps written by version 0.1.0 are skipped: most of them were not open.
    """
    if turn["provider"] == "local" and not (turn.get("writer") or turn["outcome"]):
        return
    texts = [("next_steps", turn["next_steps"] or ""), ("notes", (turn["notes"] or "") if with_notes else "")]
    for field, text in texts:
        for line in text.splitlines():
            step = single_line(field, line).strip()
            step = step[len(_OPEN_QUESTION) :].strip() if step.lower().startswith(_OPEN_QUESTION) else step
            if is_presentable(step) and is_open_step(step) and not (answered and _AWAITS_USER.search(step)):
                yield step
