"""Injections before a command, and after it failed: what fails here, what works instead, and the user's rules.

One line for each, once per session. The lines are information: the command runs in any case.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from claude_mem.agents.payload import Trigger
from claude_mem.digest.calls import command_keys, find_mistake, mistaken_path, parse_command
from claude_mem.digest.evidence import Command
from claude_mem.digest.modes import Icons
from claude_mem.domain import mistakes
from claude_mem.domain.forbidden_calls import forbids_call
from claude_mem.domain.memory_items import MemoryItem
from claude_mem.domain.mistakes import KnownMistake, Permissions
from claude_mem.domain.text import local_time, shorten
from claude_mem.inject import triggers
from claude_mem.inject.mistake_lines import CALL_PREFIX, describe, find_known_mistakes, quote
from claude_mem.inject.triggers import Injection, Line, compose
from claude_mem.privacy.display import defuse_links
from claude_mem.storage.base import Transaction

COMMAND_TOKENS = 150
MAX_LINES = 2
RULE_PREFIX = "rule:"  # of the item name of a rule that forbids a command
HEAD = "# claude-mem: about this command, from earlier sessions, as information"


def inject_at_command(
    tx: Transaction, trigger: Trigger, project_id: int, *, injected_names: frozenset[str], session_id: int
) -> Injection:
    """Return what earlier sessions know about a command that is about to run."""
    lines = [
        *_rule_lines(tx, trigger.text, project_id),
        *_mistake_lines(tx, trigger, project_id, session_id=session_id),
    ]
    return compose(HEAD, [line for line in lines if line[1][0] not in injected_names][:MAX_LINES], COMMAND_TOKENS)


def inject_at_failure(
    tx: Transaction,
    trigger: Trigger,
    project_id: int,
    *,
    injected_names: frozenset[str],
    icons: Icons,
    session_id: int,
    hints: bool = True,
) -> Injection:
    """Return what earlier sessions know about the mistake by which a command has just failed, and what solved the same
    error before."""
    return triggers.inject_at_failure(
        tx,
        trigger,
        project_id,
        injected_names=injected_names,
        icons=icons,
        session_id=session_id,
        first_lines=_lines_at_failure(tx, trigger, project_id, session_id=session_id) if hints else (),
    )


def _lines_at_failure(tx: Transaction, trigger: Trigger, project_id: int, *, session_id: int) -> list[Line]:
    """Return what worked instead in earlier sessions, if the command failed by a mistake that they made too."""
    mistake = find_mistake(Command(trigger.command, trigger.text, True, 0)) if trigger.command else None
    if mistake is None:
        return []
    known_mistakes = find_known_mistakes(tx, project_id, [mistake.key], session_id=session_id)
    return [_mistake_line(tx, mistake, project_id) for mistake in known_mistakes if mistake.instead]


def _mistake_lines(tx: Transaction, trigger: Trigger, project_id: int, *, session_id: int) -> Iterator[Line]:
    for mistake in find_known_mistakes(tx, project_id, list(command_keys(trigger.text)), session_id=session_id):
        if mistake.kind != mistakes.PATH or _is_missing(mistaken_path(mistake.key), trigger.place):
            yield _mistake_line(tx, mistake, project_id)


def _is_missing(path: str, folder: str) -> bool:
    """Return whether a path certainly does not exist, as seen from the directory in which the command will run."""
    if not path or path.startswith(("~", "\\")) or not folder.startswith("/"):
        return False
    try:
        return not os.path.lexists(f"{folder}/{path}" if path[:1] != "/" else path)
    except ValueError:
        return False


def _mistake_line(tx: Transaction, mistake: KnownMistake, project_id: int) -> Line:
    return describe(tx, mistake, project_id), [f"{CALL_PREFIX}{mistake.key}"], False


# --- rules -----------------------------------------------------------------------------------------------------------


def _rule_lines(tx: Transaction, command: str, project_id: int) -> Iterator[Line]:
    """Yield the current rules of the user that forbid a call of the command."""
    rule_rows = tx.memory.list_current_rules([project_id])
    if not rule_rows:
        return
    called = [(call.program, *call.words) for call in parse_command(command)]
    for row in rule_rows:
        if any(forbids_call(row["title"] or "", words) for words in called):
            yield _rule_line(row)


def _rule_line(row: MemoryItem) -> Line:
    text = f"{row['id']} the user said: {defuse_links(shorten(row['title'] or '', 200))}"
    return text, [f"{RULE_PREFIX}{row['id']}"], row["trust"] == "user"


# --- permission hints ------------------------------------------------------------------------------------------------


def permission_hint(tx: Transaction, trigger: Trigger, project_id: int) -> str:
    """Return what the user decided about such a command before; "" if the user never refused one."""
    keys = command_keys(trigger.text)
    histories = tx.journal.list_call_histories(project_id, list(keys))
    for key in sorted(histories, key=len, reverse=True):
        if decided := mistakes.count_permissions(histories[key]):
            return f"claude-mem: {_describe(key, decided)}"
    return ""


def _describe(key: str, decided: Permissions) -> str:
    at = local_time(decided.at)
    times = "once" if decided.refused == 1 else f"{decided.refused} times"
    words = f" (“{defuse_links(shorten(decided.words, 120))}”)" if decided.words else ""
    ran = "once" if decided.ran == 1 else f"{decided.ran} times" if decided.ran else "never"
    return f"you refused {quote(key)} here {times}, last on {at.day} {at:%b}{words}; it ran {ran}."
