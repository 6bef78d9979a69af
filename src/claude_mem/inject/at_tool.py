"""Injections before and after single tool calls.

Before a command, and after it failed: what fails here, what works instead, and the user's rules. Before a file is read
again: its outline, if it has not changed since an earlier session had it open. One line for each, once per session. The
lines are information: the call runs in any case.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from claude_mem.agents.payload import Trigger
from claude_mem.digest.calls import command_keys, find_mistake, mistaken_path, parse_command
from claude_mem.digest.evidence import READ_TOOLS, Command
from claude_mem.digest.modes import Icons
from claude_mem.digest.symbols import Definition, find_definitions
from claude_mem.domain import mistakes
from claude_mem.domain.memory_items import MemoryItem
from claude_mem.domain.mistakes import KnownMistake, Permissions
from claude_mem.domain.project_reports import Project
from claude_mem.domain.rules import forbids_call
from claude_mem.domain.text import local_time, shorten
from claude_mem.inject import triggers
from claude_mem.inject.mistake_lines import CALL_PREFIX, describe, find_known_mistakes, quote
from claude_mem.inject.triggers import Injection, Line, compose, find_relative_path
from claude_mem.privacy.display import defuse_links
from claude_mem.privacy.injection_rules import is_name
from claude_mem.storage.base import Transaction
from claude_mem.system import untrusted_files

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


# --- before a file is read again -------------------------------------------------------------------------------------
#
# The outline is made of the file as it is now, so it is right whatever the clock says; the time of the file only
# decides whether anything is said. Names and line numbers are shown, never other text of the file. Off by default:
# replayed over two projects (`bench/rereading.py`), it saves little, because most files that are read again are then
# edited or quoted.


OUTLINE_PREFIX = "outline:"  # of the item name that stands for the outline of a file
MAX_FILE_BYTES = 512 << 10
MIN_LINES = 120  # a shorter file is read as fast as its outline
MIN_DEFINITIONS, MAX_DEFINITIONS = 3, 60


def is_whole_read(trigger: Trigger) -> bool:
    """Return whether a file is about to be read from its start, rather than a part that the agent has chosen."""
    tool = trigger.tool
    return tool is not None and tool.name in READ_TOOLS and not tool.input.get("offset") and not tool.input.get("limit")


def outline_at_read(tx: Transaction, trigger: Trigger, project: Project, root: str) -> list[Line]:
    """Return the outline of a file that is about to be read, or nothing if it is unknown, changed or short."""
    path = find_relative_path(trigger.text, (project.root, trigger.cwd))
    base = root or project.root or ""
    if not path or not base:
        return []
    last_at = tx.search.find_last_touch(
        project.id, path, exclude_content_session_id=trigger.content_session_id, host=trigger.host
    )
    lines = _read_unchanged(Path(os.path.realpath(base), path), last_at) if last_at else []
    text = describe_outline(find_definitions(lines)) if len(lines) >= MIN_LINES else ""
    if not text:
        return []
    about = f"Outline, unchanged since an earlier session read it ({len(lines)} lines): {text}"
    return [(about, [f"{OUTLINE_PREFIX}{path}"], False)]


def _read_unchanged(path: Path, last_at: int) -> list[str]:
    """Return the lines of a file; none if it changed after that time, or is no text file of a moderate size."""
    try:
        if path.lstat().st_mtime_ns // 1_000_000 > last_at:
            return []
        content = untrusted_files.read(path, most=MAX_FILE_BYTES)
    except (OSError, ValueError):
        return []
    return [] if b"\0" in content else content.decode("utf-8", "replace").splitlines()


def describe_outline(definitions: Sequence[Definition]) -> str:
    """Return the names of definitions with their lines, the outermost first if there are many; "" if there are few."""
    names = [item for item in definitions if is_name(item.name)]
    if len(names) < MIN_DEFINITIONS:
        return ""
    outermost = sorted(names, key=lambda item: item.depth)[:MAX_DEFINITIONS]
    in_order = sorted(outermost, key=lambda item: item.line)
    return ", ".join(f"{item.name} {item.line}" for item in in_order)
