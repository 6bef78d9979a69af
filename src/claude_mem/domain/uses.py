"""Whether injected items are used: the kinds of use, and what is learnt from them about an item.

Only what a session does afterwards counts, never that an item was shown or listed, so that being shown does not make
an item popular.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class Use(StrEnum):
    """What became of an injected item, the strongest evidence first."""

    CONTRADICTED = "contradicted"  # a call that was said to fail worked
    REPEATED = "repeated"  # the call was made again after the warning
    AVOIDED = "avoided"  # the call was not made again, and another one of the same program was
    FETCHED = "fetched"  # the session asked for the full record
    RAN = "ran"  # its command
    EDITED = "edited"  # one of its files
    QUOTED = "quoted"  # its words, in the agent's text, in an edit or in a command
    OPENED = "opened"  # one of its files
    NONE = "none"  # no use was seen


SPOILS = frozenset({Use.CONTRADICTED, Use.REPEATED})  # one of them in any turn, and the item was of no use
HELPFUL = frozenset(Use) - SPOILS - {Use.NONE}

PRIOR_USED, PRIOR_UNUSED = 1, 1  # a uniform beta prior
MIN_FACTOR, MAX_FACTOR = 0.8, 1.2  # of a rank: uses must not outweigh the subject
# An item leaves the brief once its share of uses is below this, but for this much doubt: after eight vain injections.
NEVER_USED_SHARE, NEVER_USED_DOUBT = 0.25, 0.1


def memory_name(name: str) -> str:
    """Return the name of the observation or summary that an item is about: of `rule:12` it is `o12`."""
    kind, _, rest = name.partition(":")
    return f"o{rest}" if kind in ("rule", "repeated") else name


def is_helpful(uses: Collection[Use]) -> bool:
    """Return whether these uses of one item, in all turns of a session, show that it was of use."""
    return not SPOILS.intersection(uses) and not HELPFUL.isdisjoint(uses)


@dataclass(frozen=True, slots=True)
class UseCounts:
    """In how many injections an item was shown and could be judged, and in how many it was used, and contradicted."""

    shown: int = 0
    used: int = 0
    contradicted: int = 0

    @property
    def share(self) -> float:
        """The mean of the posterior: the share of injections in which the item will be used."""
        return (PRIOR_USED + self.used) / (PRIOR_USED + PRIOR_UNUSED + self.shown)

    @property
    def factor(self) -> float:
        """The factor for the item's rank: 1 if nothing is known."""
        return MIN_FACTOR + (MAX_FACTOR - MIN_FACTOR) * self.share

    @property
    def is_never_used(self) -> bool:
        """Whether the item was shown often and its share is almost certainly below `NEVER_USED_SHARE`."""
        if self.used or not self.shown:
            return False
        # Without a use the posterior is Beta(1, 1 + shown), whose upper tail is a power.
        return (1 - NEVER_USED_SHARE) ** (PRIOR_UNUSED + self.shown) <= NEVER_USED_DOUBT


@dataclass(frozen=True, slots=True)
class TriggerUses:
    """How often an item was shown at a trigger, in how many of these injections it was used, and in which ways."""

    trigger: str
    shown: int
    used: int
    kinds: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownItem:
    """An item of an injection, with what is needed to recognize its use."""

    injection_id: int
    name: str
    trigger: str
    at: int
    about: str = ""  # the file that was about to be opened
    text: str = ""  # the words that were shown
    files: frozenset[str] = frozenset()
    commands: frozenset[str] = frozenset()  # keys of calls that it speaks of; of a warning, of what works instead
    warned: str = ""  # the key of the call that it says to fail
    rule: str = ""  # the words of a rule that forbids a call


@dataclass(frozen=True, slots=True)
class ItemUse:
    """A use of an item of an injection, and when it was seen first."""

    injection_id: int
    name: str
    use: Use
    at: int


@dataclass(frozen=True, slots=True)
class TurnReading:
    """Characters of files that a turn read; of these, of files that are new to the session and known to an earlier one;
    and the calls and characters before the first edit, None if there was none."""

    characters: int
    again_characters: int
    calls_before_edit: int | None
    characters_before_edit: int | None
