"""Mistakes about tools and places: calls that cannot work here, and when a session is warned.

A mistake is known from the moment it was made, and forgotten as soon as the same call works. A call that worked before
is only believed to be broken after it failed in two sessions, and a call that failed and then worked is never spoken of
again: something else decides whether it works.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

PROGRAM, WORD, OPTION, PATH = "program", "word", "option", "path"
MAX_AGE_MS = 180 * 86_400_000  # tools are updated: what failed longer ago may work now


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """How the calls with one key went in one turn. `counts_as` is the key of what worked `instead`."""

    key: str
    worked: int = 0
    failed: int = 0  # by a mistake; other failures are not counted
    refused: int = 0  # by the user
    kind: str = ""
    reason: str = ""
    instead: str = ""
    counts_as: str = ""
    words: str = ""  # what the user said when refusing


@dataclass(frozen=True, slots=True)
class PastCall:
    """The record of a call in one past turn."""

    at: int
    session_id: int
    record: CallRecord


@dataclass(frozen=True, slots=True)
class KnownMistake:
    """A call that cannot work here."""

    key: str
    kind: str
    sessions: int
    at: int
    instead: str = ""
    counts_as: str = ""


def find_mistake(history: Sequence[PastCall], *, now: int) -> KnownMistake | None:
    """Return the mistake that a call's history in a project shows, oldest first; None if the call may work."""
    failures = [past for past in history if past.record.failed]
    if not failures or now - failures[-1].at > MAX_AGE_MS:
        return None
    successes = [past.at for past in history if past.record.worked]
    sessions = {past.session_id for past in failures}
    if successes and (max(successes) >= failures[0].at or len(sessions) < 2):
        return None
    last, solved = failures[-1].record, _most_common_remedy(failures)
    return KnownMistake(last.key, last.kind, len(sessions), failures[-1].at, solved.instead, solved.counts_as)


def _most_common_remedy(failures: Sequence[PastCall]) -> CallRecord:
    """Return the last record with the remedy that was found most often, the last one if there is none."""
    remedies = [past.record for past in reversed(failures) if past.record.instead]
    counts = Counter(record.counts_as or record.instead for record in remedies)
    return max(remedies, key=lambda one: counts[one.counts_as or one.instead], default=failures[-1].record)


@dataclass(frozen=True, slots=True)
class Permissions:
    """How often a call ran, how often the user refused it, and what was said at the last refusal."""

    ran: int
    refused: int
    at: int
    words: str


def count_permissions(history: Sequence[PastCall]) -> Permissions | None:
    """Return how often a call ran and was refused in a project; None if it was never refused."""
    refusals = [past for past in history if past.record.refused]
    if not refusals:
        return None
    words = next((past.record.words for past in reversed(refusals) if past.record.words), "")
    ran = sum(past.record.worked for past in history)
    return Permissions(ran, sum(past.record.refused for past in refusals), refusals[-1].at, words)
