"""How a known mistake is worded: what fails in a project, and what works instead.

Only our own words and the words of commands that the agent itself ran in the project are shown, never the output of a
tool.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from claude_mem.digest.calls import mistaken_path
from claude_mem.domain import mistakes
from claude_mem.domain.mistakes import KnownMistake
from claude_mem.domain.text import shorten
from claude_mem.privacy.display import defuse_links
from claude_mem.storage.base import Transaction

CALL_PREFIX = "call:"  # of the item name of a mistake
RECENT_MS = 30 * 86_400_000  # before the project's last activity; a mistake not made since is no habit
RECURRING_SESSIONS, MAX_RECURRING = 3, 2  # sessions that must have made a mistake for the brief to name it; how many

_READERS = frozenset(
    tomllib.loads((Path(__file__).parents[1] / "data" / "lines.toml").read_text("utf-8"))["readers"]["commands"].split()
)


def find_known_mistakes(
    tx: Transaction, project_id: int, keys: Sequence[str], *, session_id: int = 0
) -> Iterator[KnownMistake]:
    """Yield the mistakes that these keys of calls are in a project. The session's own failures do not count."""
    histories = tx.journal.list_call_histories(project_id, keys, exclude_session_id=session_id)
    now = tx.memory.get_last_activity(project_id) if histories else 0
    for key in keys:
        if mistake := mistakes.find_mistake(histories.get(key, ()), now=now):
            yield mistake


def find_recurring_mistakes(tx: Transaction, project_id: int) -> list[KnownMistake]:
    """Return the mistakes that session after session makes, so that the next one is warned at its start."""
    keys = tx.journal.list_recurring_calls(project_id, sessions=RECURRING_SESSIONS)
    now = tx.memory.get_last_activity(project_id) if keys else 0
    recurring = [
        mistake
        for mistake in find_known_mistakes(tx, project_id, keys)
        if now - mistake.at <= RECENT_MS and is_about_work(mistake)
    ]
    return sorted(recurring, key=lambda mistake: (-mistake.sessions, mistake.key))[:MAX_RECURRING]


def is_about_work(mistake: KnownMistake) -> bool:
    """Return whether a mistake concerns the work on the project: its tests, builds and tools. Whether a path exists
    depends on the directory, and mistakes in reading files are shown when they are about to be made again."""
    return mistake.kind != mistakes.PATH and mistake.key.partition(" ")[0] not in _READERS


def describe_at_start(mistake: KnownMistake) -> str:
    """Return the line of the brief. It has no counts: they would change the brief with every session."""
    return _statement(mistake) + (f"; {quote(mistake.instead)} works" if mistake.instead else "")


def describe(tx: Transaction, mistake: KnownMistake, project_id: int) -> str:
    """Return the line before a command that makes the mistake."""
    times = f" (failed in {mistake.sessions} sessions)" if mistake.sessions > 1 else ""
    return f"{_statement(mistake)}{times}{_remedy(tx, mistake, project_id)}"


def quote(text: str) -> str:
    """Return words of a command as code."""
    return f"`{defuse_links(shorten(text.replace('`', ''), 100))}`"


def _statement(mistake: KnownMistake) -> str:
    head, _, last = mistake.key.rpartition(" ")
    match mistake.kind:
        case mistakes.OPTION:
            return f"{quote(head)} does not know {quote(last)} here"
        case mistakes.PATH:
            return f"{quote(mistaken_path(mistake.key))} does not exist here"
        case mistakes.PROGRAM:
            return f"{quote(mistake.key)} is not installed here"
    return f"{quote(mistake.key)} is unknown here"


def _remedy(tx: Transaction, mistake: KnownMistake, project_id: int) -> str:
    if mistake.instead:
        worked = tx.journal.count_worked_calls(project_id, mistake.counts_as) if mistake.counts_as else 0
        counted = "" if mistake.counts_as == mistake.instead else f" ({quote(mistake.counts_as)})"
        return f"; {quote(mistake.instead)} works" + (f"{counted}: {worked} times" if worked > 1 else "")
    head = mistake.key.rpartition(" ")[0]
    worked = tx.journal.count_worked_calls(project_id, head) if mistake.kind == mistakes.OPTION else 0
    return f"; without it {quote(head)} worked {worked} times" if worked > 1 else ""
