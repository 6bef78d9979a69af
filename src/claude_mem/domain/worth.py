"""What memory is worth on this machine: the figures of `claude-mem worth` and of the viewer's page, and how they are
estimated.

All random draws are seeded, so equal data give equal figures.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

MIN_MOMENTS = 30  # of each kind that is compared; fewer say too little
MIN_SESSIONS = 10
ROUNDS = 2_000
SEED = 1
T = TypeVar("T")


class TriggerWorth(msgspec.Struct, frozen=True):
    """What was shown at one trigger, how much was used, and what it cost."""

    trigger: str
    injections: int
    shown: int
    used: int
    tokens: int


class UseCount(msgspec.Struct, frozen=True):
    """How many shown items were used in one way. An item can be used in several."""

    use: str
    items: int


class Estimate(msgspec.Struct, frozen=True):
    """A difference with its 95 % interval. `samples` of at least `needed` are there; with fewer, nothing is claimed."""

    samples: int
    needed: int
    value: float | None = None
    low: float | None = None
    high: float | None = None


class Lift(msgspec.Struct, frozen=True):
    """Use of shown items by the sessions that saw them, and by other sessions that did not. `p`: of at least this
    difference if it were chance."""

    sessions: int
    own: float | None
    others: float | None
    difference: Estimate
    p: float | None


class HoldoutEffect(msgspec.Struct, frozen=True):
    """Moments at which something was said, moments that were kept silent by chance, and how they differ."""

    setting: float
    spoken: int
    silent: int
    used: Estimate  # share of items
    characters: Estimate  # read before the first edit, after a start


class UseTotals(msgspec.Struct, frozen=True):
    """Sessions that there were, that were shown something and that used something, and sums over all items that could
    be judged. `tokens`: what all injections cost."""

    sessions: int
    sessions_shown: int
    sessions_used: int
    injections: int
    tokens: int
    shown: int
    used: int
    contradicted: int
    warnings: int
    followed: int


class Worth(UseTotals, frozen=True, kw_only=True):
    """What memory was worth in a period: what was shown, what was used, and what can be said about the effect."""

    project: str
    since: int
    characters_read: int
    characters_again: int
    triggers: list[TriggerWorth]
    uses: list[UseCount]
    lift: Lift
    holdout: HoldoutEffect


# --- use by the own session and by others ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionUses:
    """Of one session: how many items it was shown, how many of them it used, and how many each of some other sessions
    would count as having used."""

    items: int
    own: int
    others: Sequence[int]


def estimate_lift(sessions: Sequence[SessionUses], *, rounds: int = ROUNDS) -> Lift:
    """Return the lift over other sessions, with a bootstrap over sessions and a permutation test."""
    sessions = [session for session in sessions if session.items]
    if len(sessions) < MIN_SESSIONS:
        return Lift(len(sessions), None, None, Estimate(len(sessions), MIN_SESSIONS), None)
    total = sum(session.items for session in sessions)
    own = sum(session.own for session in sessions) / total
    others = sum(sum(session.others) / len(session.others) for session in sessions) / total
    low, high = bootstrap(sessions, _difference, rounds=rounds)
    draw = random.Random(SEED)  # noqa: S311 -- statistics
    choices = [(session.own, *session.others) for session in sessions]
    as_high = sum(sum(draw.choice(each) for each in choices) / total >= own for _ in range(rounds))
    difference = Estimate(len(sessions), MIN_SESSIONS, own - others, low, high)
    return Lift(len(sessions), own, others, difference, (as_high + 1) / (rounds + 1))


def _difference(sessions: Sequence[SessionUses]) -> float:
    total = sum(session.items for session in sessions)
    return sum(session.own - sum(session.others) / len(session.others) for session in sessions) / total


# --- moments that were kept silent -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment at which chance decided: of which session, with which probability of silence, and the outcome."""

    session: str
    holdout: float
    is_silent: bool
    outcome: float


def estimate_effect(moments: Sequence[Moment], *, rounds: int = ROUNDS) -> Estimate:
    """Return the difference of the outcome, spoken less silent.

    Each moment is weighted by the inverse of the probability of what happened to it, so that the setting may change in
    between. The interval is by resampling sessions: moments of one session are not independent.
    """
    silent = sum(moment.is_silent for moment in moments)
    samples = min(silent, len(moments) - silent)
    if samples < MIN_MOMENTS:
        return Estimate(samples, MIN_MOMENTS)
    by_session: dict[str, list[Moment]] = {}
    for moment in moments:
        by_session.setdefault(moment.session, []).append(moment)
    groups = [tuple(group) for group in by_session.values()]
    low, high = bootstrap(groups, _weighted_difference, rounds=rounds)
    return Estimate(samples, MIN_MOMENTS, _weighted_difference(groups), low, high)


def _weighted_difference(groups: Sequence[Sequence[Moment]]) -> float:
    sums, weights = {True: 0.0, False: 0.0}, {True: 0.0, False: 0.0}
    for group in groups:
        for moment in group:
            weight = 1 / (moment.holdout if moment.is_silent else 1 - moment.holdout)
            sums[moment.is_silent] += weight * moment.outcome
            weights[moment.is_silent] += weight
    if not all(weights.values()):
        return 0.0  # a resample without one of the two kinds
    return sums[False] / weights[False] - sums[True] / weights[True]


def bootstrap(
    samples: Sequence[T], statistic: Callable[[Sequence[T]], float], *, rounds: int = ROUNDS
) -> tuple[float, float]:
    """Return the 95 % interval of a statistic, by resampling with a fixed seed."""
    draw = random.Random(SEED)  # noqa: S311 -- statistics
    values = sorted(statistic(draw.choices(samples, k=len(samples))) for _ in range(rounds))
    return values[int(0.025 * rounds)], values[int(0.975 * rounds)]
