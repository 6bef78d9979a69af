"""What memory is worth: put the figures together, and estimate the lift over sessions that were shown other things."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from claude_mem.digest.uses import TurnActions, find_uses, read_actions
from claude_mem.domain.uses import ShownItem, Use, is_helpful
from claude_mem.domain.worth import SEED, HoldoutEffect, Lift, SessionUses, Worth, estimate_effect, estimate_lift
from claude_mem.storage.base import Database, Transaction

MAX_SESSIONS = 60  # of which the lift is estimated: the newest ones whose events are kept
OTHERS = 10  # sessions with which each is compared


async def measure_worth(db: Database, *, project_id: int, since: int, holdout: float) -> Worth:
    """Return what memory was worth since a time, in one project or (0) in all."""
    period = {"project_id": project_id, "since": since}
    totals = await db.read(lambda tx: tx.journal.count_use_totals(**period))
    read, again = await db.read(lambda tx: tx.journal.count_reading(**period))
    moments = await db.read(lambda tx: tx.journal.list_moments(**period))
    starts = await db.read(lambda tx: tx.journal.list_start_moments(**period))
    project = await db.read(lambda tx: tx.memory.get_project(project_id)) if project_id else None
    return Worth(
        project=project.name if project else "",
        since=since,
        **structs.asdict(totals),
        characters_read=read,
        characters_again=again,
        triggers=await db.read(lambda tx: tx.journal.list_trigger_totals(**period)),
        uses=await db.read(lambda tx: tx.journal.list_use_totals(**period)),
        lift=await db.read(measure_lift, **period),
        holdout=HoldoutEffect(
            setting=holdout,
            spoken=sum(not moment.is_silent for moment in moments),
            silent=sum(moment.is_silent for moment in moments),
            used=estimate_effect(moments),
            characters=estimate_effect(starts),
        ),
    )


def measure_lift(tx: Transaction, *, project_id: int, since: int) -> Lift:
    """Return the lift of use over other sessions of the same project, as far as the events are still stored."""
    sessions = tx.journal.list_judgeable_sessions(project_id=project_id, since=since, limit=MAX_SESSIONS)
    by_project: defaultdict[int, list[tuple[list[ShownItem], TurnActions]]] = defaultdict(list)
    for session_id, its_project in reversed(sessions):
        actions = read_session_actions(tx, session_id)
        by_project[its_project].append((tx.journal.load_session_items(session_id), actions))
    return estimate_lift([one for each in by_project.values() for one in compare_sessions(each)])


def read_session_actions(tx: Transaction, session_id: int) -> TurnActions:
    """Return what a session did, as far as its events are stored."""
    total = TurnActions()
    for record in tx.journal.list_turns(session_id):
        turn = tx.journal.load_turn(record.id, with_earlier=False)
        if turn is not None and turn.bodies:
            total.add(read_actions(turn, tx.journal.load_times(turn.id)))
    return total


def compare_sessions(sessions: Sequence[tuple[Sequence[ShownItem], TurnActions]]) -> list[SessionUses]:
    """Return how many of its items each session used, and how many each of some others would count as having used.

    The whole of another session counts, even what it did early, so the lift is rather too small than too large.
    """
    draw = random.Random(SEED)  # noqa: S311 -- statistics
    compared = []
    for index, (items, actions) in enumerate(sessions):
        judged = [item for item in items if item.at <= actions.end]
        unseen = [replace(item, at=0) for item in judged]
        others = [other for place, (_, other) in enumerate(sessions) if place != index]
        sample = draw.sample(others, min(OTHERS, len(others)))
        counts = [_count_used(unseen, other) for other in sample]
        compared.append(SessionUses(len(judged), _count_used(judged, actions), counts))
    return compared


def _count_used(items: Sequence[ShownItem], actions: TurnActions) -> int:
    by_item: defaultdict[tuple[int, str], set[Use]] = defaultdict(set)
    for use in find_uses(actions, items):
        by_item[use.injection_id, use.name].add(use.use)
    return sum(map(is_helpful, by_item.values()))


# --- silent moments --------------------------------------------------------------------------------------------------


KeyedHash = Callable[..., str]
_BITS = 52  # of the hash: as many as a float holds exactly


@dataclass(frozen=True, slots=True)
class Holdout:
    """Which moments stay silent, so that the effect of memory can be measured on this machine (the setting `holdout`).

    The choice is random but stable: a keyed hash of the session and the moment, so that a repeated request of a hook
    gets the same answer, and neither the clock nor a restart changes it. What the user wrote, pinned or approved is
    said in any case, and so is a line that says that a rule of the user forbids a command: silence there could do harm.
    """

    share: float
    keyed_hash: KeyedHash

    def is_silent(self, host: str, content_session_id: str, trigger: str, moment: str) -> bool:
        """Return whether a moment stays silent. `moment` identifies it among those of its trigger in the session."""
        if not self.share:
            return False
        digest = self.keyed_hash("holdout", host, content_session_id, trigger, moment)
        return int(digest[: _BITS // 4], 16) < self.share * (1 << _BITS)
