"""Whether what is injected is used, and whether it fits the session better than any other, over two real projects.

    python bench/uses.py [--project sessions|evaluator]

Every session is replayed in order of time through the functions that answer the hooks (`replay.py`); when it ends, it is
back-filled, so that the shipped code judges its injections, and later sessions are shown what that code has learnt. The
sessions are recordings made without memory: what is measured is whether the right things were said, not whether saying
them changed anything.

The lift is the share of items that the session used, less the share that ten other sessions of the project, drawn at
random, would count as having used. Intervals are by a paired bootstrap over sessions.

The sessions are not part of this project (`CLAUDE_MEM_BENCH_DATA`, or `../shared/data`); where they are absent, this says
so and measures nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import figures
import replay
import turns
from figures import Figure, at_least

from claude_mem.digest.uses import TurnActions, find_uses
from claude_mem.domain.uses import ShownItem, is_helpful
from claude_mem.domain.worth import Lift, estimate_lift
from claude_mem.inject.worth import compare_sessions, read_session_actions
from claude_mem.storage.sqlite.engine import Connection, fetch_all
from claude_mem.storage.sqlite.journal import uses

RESULTS = Path(__file__).with_name("results")
NAMES = {"sessions": "cli", "evaluator": "evaluator"}
TOP = 3  # of a list of files or memories
Judged = tuple[Sequence[ShownItem], TurnActions]


async def measure(project: str, data: Path) -> list[Figure]:
    playing = replay.open_replay(project, data)
    try:
        async for _ in playing.run():
            pass
        db = playing.service.db
        sessions = await db.read(load_sessions)
        totals = await db.read(uses.count_use_totals, project_id=0, since=0)
        left = await db.read(count_left)
    finally:
        playing.service.close()
    name = NAMES[project]
    return [
        *lift_figures(name, "all items", sessions, lambda _: True, goals=True),
        *(
            figure
            for label, chosen in groups(sessions).items()
            for figure in lift_figures(name, label, sessions, chosen)
        ),
        *opened_figures(name, sessions),
        *share_figures(name, sessions),
        Figure(f"{name}: warnings that were followed", totals.followed, "", totals.warnings),
        Figure(f"{name}: warnings that were contradicted", totals.contradicted, "", totals.warnings),
        Figure(f"{name}: tokens injected for one used item", totals.tokens / max(1, totals.used), "", totals.used),
        Figure(f"{name}: items that left, because they were never used", left, "", totals.shown),
    ]  # fmt: skip


def load_sessions(tx: Any) -> list[Judged]:
    rows = fetch_all(tx, "select id from sdk_sessions order by started_at, id")
    return [(uses.load_session_items(tx, row["id"]), read_session_actions(tx, row["id"])) for row in rows]


def count_left(conn: Connection) -> int:
    names = [row["item"] for row in fetch_all(conn, "select distinct item from uses")]
    return sum(counts.is_never_used for counts in uses.count_uses(conn, names).values())


def groups(sessions: Sequence[Judged]) -> dict[str, Callable[[ShownItem], bool]]:
    """Every trigger, and every kind of item at each."""
    kinds = sorted({(item.trigger, kind_of(item)) for items, _ in sessions for item in items})
    by_label: dict[str, Callable[[ShownItem], bool]] = {}
    for trigger in sorted({trigger for trigger, _ in kinds}):
        by_label[f"at {trigger}"] = lambda item, trigger=trigger: item.trigger == trigger  # type: ignore[misc]
    for trigger, kind in kinds:
        by_label[f"at {trigger}, {kind}"] = lambda item, key=(trigger, kind): (item.trigger, kind_of(item)) == key  # type: ignore[misc]
    return by_label


def kind_of(item: ShownItem) -> str:
    kinds = {
        "o": "memories",
        "s": "summaries",
        "file": "files",
        "call": "warnings",
        "rule": "rules",
        "repeated": "undone",
    }
    return kinds[item.name.partition(":")[0] if ":" in item.name else item.name[0]]


def lift_figures(
    name: str, label: str, sessions: Sequence[Judged], chosen: Callable[[ShownItem], bool], *, goals: bool = False
) -> list[Figure]:
    part = [([item for item in items if chosen(item)], actions) for items, actions in sessions]
    return as_figures(f"{name}: {label}", estimate_lift(compare_sessions(part)), part, goals=goals)


def as_figures(title: str, lift: Lift, sessions: Sequence[Judged], *, goals: bool) -> list[Figure]:
    count = sum(item.at <= actions.end for items, actions in sessions for item in items)
    if lift.own is None or lift.others is None or lift.difference.value is None:
        own = sum(is_used(item, actions) for items, actions in sessions for item in items)
        return [Figure(f"{title}: used (in too few sessions for a lift)", own / max(1, count), "share", count)]
    low, high = lift.difference.low or 0, lift.difference.high or 0
    return [
        Figure(f"{title}: used", lift.own, "share", count, at_least(0.5) if goals else None),
        Figure(
            f"{title}: lift over other sessions [{low:.2f}, {high:.2f}]", lift.difference.value, "share", count,
            at_least(0.25) if goals else None,
        ),
    ]  # fmt: skip


def is_used(item: ShownItem, actions: TurnActions) -> bool:
    return item.at <= actions.end and is_helpful([use.use for use in find_uses(actions, [item])])


def opened_figures(name: str, sessions: Sequence[Judged]) -> list[Figure]:
    """The stricter comparison for what is said before a file: with sessions that opened the same file."""
    own, others = [0, 0], [0, 0]
    for place, (items, actions) in enumerate(sessions):
        for item in (item for item in items if item.trigger == "file" and item.at <= actions.end):
            own[0], own[1] = own[0] + is_used(item, actions), own[1] + 1
            for other_place, (_, other) in enumerate(sessions):
                if other_place != place and other.opened.get(item.about):
                    others[0], others[1] = others[0] + is_used(replace(item, at=0), other), others[1] + 1
    if not (own[1] and others[1]):
        return []
    lift = own[0] / own[1] - others[0] / others[1]
    return [Figure(f"{name}: at file: lift over other sessions that opened the same file", lift, "share", own[1])]


def share_figures(name: str, sessions: Sequence[Judged]) -> list[Figure]:
    """Of injections and sessions the share with a use, and of lists the share of the first and the other places."""
    injections: defaultdict[tuple[int, int], bool] = defaultdict(bool)
    ranks: defaultdict[tuple[str, bool], list[bool]] = defaultdict(list)
    for place, (items, actions) in enumerate(sessions):
        position: defaultdict[tuple[int, str], int] = defaultdict(int)
        for item in (item for item in items if item.at <= actions.end):
            used = is_used(item, actions)
            injections[place, item.injection_id] |= used
            position[item.injection_id, kind_of(item)] += 1
            if item.trigger == "prompt":
                ranks[kind_of(item), position[item.injection_id, kind_of(item)] <= TOP].append(used)
    with_use = {place for (place, _), used in injections.items() if used}
    shown = {place for place, _ in injections}
    found = [
        Figure(f"{name}: injections with a used item", sum(injections.values()) / max(1, len(injections)), "share", len(injections)),
        Figure(f"{name}: sessions with a used item", len(with_use) / max(1, len(shown)), "share", len(shown)),
    ]  # fmt: skip
    for (kind, is_first), hits in sorted(ranks.items(), reverse=True):
        where = f"first {TOP}" if is_first else f"after the first {TOP}"
        found.append(Figure(f"{name}: at prompt, {kind}, {where}: used", sum(hits) / len(hits), "share", len(hits)))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--project", choices=turns.PROJECTS, action="append")
    options = parser.parse_args()
    if problem := turns.missing():
        print(problem)
        return 0
    found: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        setting = figures.setting(Path(folder))
        for project in options.project or turns.PROJECTS:
            found += asyncio.run(measure(project, Path(folder, project)))
    print(figures.as_text(found))
    if not options.project:
        figures.write(RESULTS / "uses", "Uses of what is injected", found, setting)
    return int(any(figure.missed for figure in found))


if __name__ == "__main__":
    sys.exit(main())
