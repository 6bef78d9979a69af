"""Chooses which memories of a project get a line in the brief.

The functions are pure and stable: one more observation adds at most one line to a choice and displaces at most one,
because each choice takes from the front of a fixed order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

from claude_mem.labels import as_line
from claude_mem.pipeline import lines
from claude_mem.pipeline.pieces import Piece, Row, age, is_failure
from claude_mem.titles import is_presentable
from claude_mem.words import terms

MOST_OF_SESSION = 3  # lines of work per session: a long session must not hide all others
FEW = 6  # lines of work that are shown even if uninformative: a young project has nothing better
ALIKE = 0.8  # share of the shorter line's terms that the other must contain to count as a repetition
LEAST_TERMS = 3  # lines with fewer terms repeat each other only if their terms are equal
CLOSED = 0.5  # an open step is done if something later contains more than this share of its terms
_QUESTION = "open question:"

Terms = frozenset[str]
T = TypeVar("T")


# --- repetition ------------------------------------------------------------------------------------------------------


def subject(text: str) -> Terms:
    return frozenset(terms(text))


def is_alike(one: Terms, other: Terms) -> bool:
    """Return whether two lines say the same. Different numbers make them different: version 2 is not version 3."""
    if not _numbers(one) <= other and not _numbers(other) <= one:
        return False
    fewer = min(len(one), len(other))
    return one == other if fewer < LEAST_TERMS else len(one & other) >= ALIKE * fewer


@lru_cache(maxsize=4096)  # each line is compared with hundreds of others
def _numbers(subject: Terms) -> Terms:
    return frozenset(term for term in subject if any(map(str.isdigit, term)))


def repeats(text: str, others: Iterable[Terms]) -> bool:
    own = subject(text)
    return any(is_alike(own, other) for other in others)


def distinct(items: Iterable[T], before: Iterable[str], *, title: Callable[[T], str]) -> list[T]:
    """Return the items that repeat neither a line of `before` nor an earlier item, whether that was returned or not."""
    seen_subjects = [subject(line) for line in before]
    distinct_items = []
    for item in items:
        own = subject(title(item))
        if not any(is_alike(own, other) for other in seen_subjects):
            distinct_items.append(item)
        seen_subjects.append(own)
    return distinct_items


# --- work ------------------------------------------------------------------------------------------------------------


def work(pieces: Sequence[Piece], *, most: int) -> list[Piece]:
    """Return the newest pieces of work, newest first, with only the most important ones of each session. Pieces with an
    uninformative title are included only while there are few others."""
    of_session: Counter[int] = Counter()
    candidates = []
    for piece in sorted(pieces, key=lambda piece: (-piece.is_telling, -piece.weight, -piece.at[0], -piece.at[1])):
        of_session[piece.session_id] += 1
        if of_session[piece.session_id] <= MOST_OF_SESSION:
            candidates.append(piece)
    newest = sorted(candidates, key=lambda piece: piece.at, reverse=True)
    informative = [piece for piece in newest if piece.is_telling][:most]
    others = [piece for piece in newest if not piece.is_telling][: max(0, min(FEW, most) - len(informative))]
    return sorted([*informative, *others], key=lambda piece: piece.at, reverse=True)


# --- decisions and traps ---------------------------------------------------------------------------------------------


def knowledge(rows: Sequence[Row], turns: Sequence[Row], *, since: int, most: int) -> list[Row]:
    """Return decisions and traps that matter for the files in use, newest first. Going back in time, each one made
    since `since` adds itself, and each turn adds the newest one about the files it changed."""
    chosen_rows: dict[int, Row] = {}
    pool = [(row, frozenset(row.get("files_modified") or row.get("files_read") or ())) for row in rows]
    moments = [(age(row), row["id"], frozenset[str]()) for row in rows if row["created_at"] >= since]
    moments += [(age(turn), 0, frozenset(turn.get("files_edited", ()))) for turn in turns]
    for _, own, changed in sorted(moments, key=lambda moment: moment[0], reverse=True):
        fits = (row for row, files in pool if row["id"] == own or files & changed)
        next_row = next((row for row in fits if row["id"] not in chosen_rows), None)
        if next_row is not None and len(chosen_rows) < most:
            chosen_rows[next_row["id"]] = next_row
    return sorted(chosen_rows.values(), key=age, reverse=True)


def lasting(rows: Sequence[Row]) -> list[Row]:
    """Return the decisions and traps without failures that occurred in a single session: a lasting one occurs again."""
    failures = [(row["session_id"], age(row), subject(row["title"] or "")) for row in rows if is_failure(row)]

    def came_before(row: Row) -> bool:
        own = subject(row["title"] or "")
        return any(
            session != row["session_id"] and at < age(row) and is_alike(own, other) for session, at, other in failures
        )

    return [row for row in rows if not is_failure(row) or came_before(row)]


# --- where things stand ----------------------------------------------------------------------------------------------


def asked(turns: Sequence[Row]) -> Row | None:
    """Return the turn of the last session whose request describes it best: the first that asks for work, otherwise the
    first question. Requests such as "yes" and "commit this" describe nothing."""
    last = [turn for turn in turns if turn["session_id"] == turns[0]["session_id"]]
    candidates = [
        turn for turn in reversed(last) if is_presentable(request(turn)) and not lines.is_errand(request(turn))
    ]
    return next(
        (turn for turn in candidates if not lines.is_question(request(turn))), candidates[0] if candidates else None
    )


_TOPIC = re.compile(r"\s\(“[^”]{0,80}”\)$")


def request(turn: Row) -> str:
    """Return a request in one line; for "Implement this plan:" followed by a plan, the plan's title."""
    text = _TOPIC.sub("", (turn["request"] or "").strip())
    lead, _, plan = text.partition("\n")
    heading = plan.lstrip().partition("\n")[0]
    is_plan = lead.endswith(":") and heading.startswith("#")
    return as_line("request", heading.lstrip("# ").removeprefix("Plan: ") if is_plan else text)


def outcome(turns: Sequence[Row]) -> str:
    """Return the outcome of the last session: that of its last turn, unless that turn only answered a question after
    work was done. An answer does not change the state of the work."""
    outcomes = [turn.get("outcome") or "" for turn in turns if turn["session_id"] == turns[0]["session_id"]]
    if outcomes[0] not in ("", "answered"):
        return outcomes[0]
    return next((candidate for candidate in outcomes if candidate in _WORK_OUTCOMES), next(filter(None, outcomes), ""))


_WORK_OUTCOMES = ("done", "partly", "failed")


def still_open(turns: Sequence[Row], observations: Sequence[Row], *, sessions: int) -> Iterator[tuple[Row, str]]:
    """Yield the open steps of the last sessions that nothing later covers, each with its turn. `turns` and
    `observations` have the newest first."""
    last = list(dict.fromkeys(turn["session_id"] for turn in turns))[:sessions]
    seen_subjects: list[Terms] = []
    for index, turn in enumerate(turns):
        answered = any(other["session_id"] == turn["session_id"] for other in turns[:index])
        steps = _steps(turn, with_notes=index == 0, answered=answered) if turn["session_id"] in last else ()
        for step in steps:
            own = subject(step)
            fresh = own and not any(is_alike(own, other) for other in seen_subjects)
            if fresh and not any(
                covers(subject(text), own) for text in _later_texts(turn, turns[:index], observations)
            ):
                seen_subjects.append(own)
                yield turn, step


def _later_texts(turn: Row, turns: Sequence[Row], observations: Sequence[Row]) -> Iterator[str]:
    """Yield what was requested, completed and observed after a turn. If the next request only says "yes", it covers all
    steps that the turn left open."""
    following = next((other for other in reversed(turns) if other["session_id"] == turn["session_id"]), None)
    if following and request(following) and not is_presentable(request(following)):
        yield " ".join((turn["next_steps"] or "", turn["notes"] or ""))
    for other in turns:
        yield from (request(other), *(other["completed"] or "").splitlines())
    yield from (row["title"] or "" for row in observations if row["created_at"] > turn["created_at"])


def covers(other: Terms, own: Terms) -> bool:
    """Return whether `other` contains most terms of `own`."""
    return len(own & other) > CLOSED * len(own)


# Steps that wait for the user's next prompt; any prompt settles them.
_AWAITS_USER = re.compile(r"^(?:Decide|Question): |\((?:awaiting go-ahead|asked, not done)\)$")


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
            step = as_line(field, line).strip()
            step = step[len(_QUESTION) :].strip() if step.lower().startswith(_QUESTION) else step
            if is_presentable(step) and lines.is_step(step) and not (answered and _AWAITS_USER.search(step)):
                yield step
