"""Whether a memory holds, in one word: what every listing says about it, and what can be filtered by."""

from __future__ import annotations

from enum import StrEnum

from claude_mem.domain.anchors import Freshness, Outcome


class Validity(StrEnum):
    """The state of a memory, from its freshness, the outcome of its work, later memories and a person's word."""

    CURRENT = "current"
    PARTLY = "partly"
    REWORKED = "reworked"
    MOVED = "moved"
    OUTDATED = "outdated"
    GONE = "gone"
    ELSEWHERE = "elsewhere"
    SUPERSEDED = "superseded"
    DROPPED = "dropped"
    REVERTED = "reverted"
    FAILED = "failed"
    KEPT = "kept"  # a person said that it holds all the same
    UNKNOWN = ""


TO_REVIEW = (Validity.SUPERSEDED, Validity.OUTDATED, Validity.GONE)  # they were said to be true, and may not be
CHANGED = (*TO_REVIEW, Validity.PARTLY, Validity.REWORKED, Validity.MOVED, Validity.DROPPED, Validity.REVERTED)
_MARKED = (*TO_REVIEW, Validity.ELSEWHERE, Validity.DROPPED, Validity.REVERTED, Validity.FAILED)
_FRESHNESS = {
    Freshness.PARTLY: Validity.PARTLY,
    Freshness.REWORKED: Validity.REWORKED,
    Freshness.MOVED: Validity.MOVED,
    Freshness.CURRENT: Validity.CURRENT,
}


def judge_validity(
    freshness: Freshness, outcome: Outcome, *, is_superseded: bool = False, is_confirmed: bool = False
) -> Validity:
    """Return the validity of a memory: what weighs most against it, unless a person confirmed it."""
    reasons = (
        (is_superseded, Validity.SUPERSEDED),
        (outcome == Outcome.REVERTED, Validity.REVERTED),
        (outcome == Outcome.DROPPED, Validity.DROPPED),
        (freshness == Freshness.GONE, Validity.GONE),
        (freshness == Freshness.OUTDATED, Validity.OUTDATED),
        (freshness == Freshness.ELSEWHERE, Validity.ELSEWHERE),
        (outcome == Outcome.FAILED, Validity.FAILED),
    )
    against = next((validity for applies, validity in reasons if applies), None)
    if is_confirmed and (against or freshness != Freshness.CURRENT):
        return Validity.KEPT
    return against or _FRESHNESS.get(freshness, Validity.UNKNOWN)


def mark(validity: str, superseded_by: int | None = None) -> str:
    """Return the mark behind the title of a memory that does not hold: ` ⟨outdated⟩`; "" for others."""
    if superseded_by:
        return f" ⟨superseded by {superseded_by}⟩"
    if validity == Validity.ELSEWHERE:
        return " ⟨not on this branch⟩"
    return f" ⟨{validity}⟩" if validity in _MARKED else ""
