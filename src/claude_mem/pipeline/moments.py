"""The moments at which memory speaks by itself: at a prompt, before a file is touched, after a command has failed.

Silence is the rule. Something is said only if it is about what is going on, and only if this session has not been told
it yet; what the session did itself, it knows. What is said is short, fenced, and information: it never stops or changes
what the agent was about to do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from claude_mem import words
from claude_mem.hosts.payload import Moment
from claude_mem.pipeline import recall
from claude_mem.pipeline.context import Icons, apart, fenced, vouched
from claude_mem.pipeline.context import told as as_told
from claude_mem.pipeline.index import Indexer
from claude_mem.providers.evidence import error_line, is_specific
from claude_mem.store import observations, search
from claude_mem.store.database import Connection, Database, Row
from claude_mem.store.search import Filter
from claude_mem.suspicion import is_name
from claude_mem.text import shorten, tokens

PROMPT_ITEMS, PROMPT_FILES, PROMPT_TOKENS = 5, 10, 600
FILE_ITEMS, FILE_TOKENS = 4, 250
FAILURE_ITEMS, FAILURE_TOKENS = 2, 250
LEAST_WORDS = 4
GRACE_MS = 60_000  # a file is written a little before the turn that wrote it ends
_COMMAND = re.compile(r"/[a-z][\w:-]*(?:\s|$)|[!<]")  # of the host, and what it puts in itself
_INJECTED_KINDS = ("observation", "summary")


@dataclass(frozen=True, slots=True)
class Speech:
    """What is said, and the names under which it counts as told."""

    text: str = ""
    told: tuple[str, ...] = ()


SILENCE = Speech()
KNOWN = "known:"  # before the path of a file about which has been told what is known


def mark(kind: str, row_id: int) -> str:
    return f"{kind[0]}{row_id}"


def about(speech: Speech) -> str:
    """The file that was spoken about, if that was the moment."""
    return next((name.removeprefix(KNOWN) for name in speech.told if name.startswith(KNOWN)), "")


# --- at a prompt -----------------------------------------------------------------------------------------------------


async def at_prompt(
    moment: Moment,
    project_id: int,
    *,
    db: Database,
    indexer: Indexer,
    injected_names: frozenset[str],
    icons: Icons,
    session_id: int = 0,
) -> Speech:
    if not is_question(moment.text):
        return SILENCE
    where = Filter(project_ids=(project_id,), but_session=session_id)
    hits, files = await recall.about(db, indexer, moment.text, where, items=4 * PROMPT_ITEMS, files=PROMPT_FILES)
    fresh = [hit for hit in hits if _may_inject(hit) and mark(hit.kind, hit.id) not in injected_names][:PROMPT_ITEMS]
    return _compose_for_prompt(fresh, [path for path in files if f"file:{path}" not in injected_names], icons)


def is_question(prompt: str) -> bool:
    """Enough words to know what it is about, and no command or note to the host."""
    prompt = prompt.strip()[: recall.MOST_PROMPT]
    if _COMMAND.match(prompt) or (prompt.startswith("#") and "\n" not in prompt):
        return False
    return len(re.findall(r"\w+", prompt)) >= LEAST_WORDS or len(words.terms(prompt)) >= LEAST_WORDS


def _may_inject(hit: recall.Hit) -> bool:
    """What was only asked or said is found by searching; what came from outside is not told unasked."""
    return hit.kind in _INJECTED_KINDS and observations.may_tell(hit.row)


def _compose_for_prompt(hits: Sequence[recall.Hit], files: Sequence[str], icons: Icons) -> Speech:
    files = [path for path in files if is_name(path)]
    lines = (
        [(f"Files this may concern: {', '.join(map(as_told, files))}", [f"file:{path}" for path in files], False)]
        if files
        else []
    )
    lines += [(_hit_line(hit, icons), [mark(hit.kind, hit.id)], vouched(hit.row)) for hit in hits]
    return _compose("# claude-mem: from earlier sessions, as information; it may be out of date", lines, PROMPT_TOKENS)


def _hit_line(hit: recall.Hit, icons: Icons) -> str:
    letter = "S" if hit.kind == "summary" else ""
    icon = icons.get(hit.row["type"] or "", "·")
    return f"{letter}{hit.id} {icon} {as_told(shorten(hit.title, 160))}"


def _compose(head: str, lines: Iterable[tuple[str, list[str], bool]], budget: int) -> Speech:
    """As many lines as there is room for."""
    text_lines, item_names = [head], list[str]()
    room = budget - tokens(fenced([head]))
    candidates = list(lines)
    fine = apart([(line, trusted) for line, _, trusted in candidates])
    for line, names, _ in (candidates[index] for index in range(len(candidates)) if fine[index]):
        room -= tokens(line) + 1
        if room < 0:
            break
        text_lines.append(line)
        item_names += names
    return Speech(fenced(text_lines), tuple(item_names)) if item_names else SILENCE


# --- before a file is touched ----------------------------------------------------------------------------------------


def at_file(conn: Connection, moment: Moment, project: Row, *, injected_names: frozenset[str], icons: Icons) -> Speech:
    """What is known about it, once a session."""
    path = _relative_path(moment.text, (project["root"], moment.cwd))
    if not path or f"{KNOWN}{path}" in injected_names:
        return SILENCE
    rows = observations.by_file(
        conn, project["id"], path, exclude_content_session_id=moment.content_session_id, limit=FILE_ITEMS
    )
    fresh = [row for row in rows if mark("observation", row["id"]) not in injected_names]
    if not fresh:
        return SILENCE
    old = _changed_since(Path(moment.text), rows[0]["created_at"])
    head = f"# claude-mem: known about {as_told(path) if is_name(path) else 'this file'}" + (
        "; it has changed since, so this may be outdated" if old else ""
    )
    lines = [(_row_line(row, icons), [mark("observation", row["id"])], vouched(row)) for row in fresh]
    injection = _compose(head, lines, FILE_TOKENS)
    return Speech(injection.text, (*injection.told, f"{KNOWN}{path}")) if injection.text else SILENCE


def _relative_path(path: str, roots: Sequence[str]) -> str:
    """As observations name it: within the project, also where that is reached by a link or as a worktree."""
    real = os.path.realpath(path) if path.startswith("/") else ""
    for root in roots:
        base = os.path.realpath(root).rstrip("/") + "/" if root else ""
        if base and real.startswith(base):
            return real[len(base) :]
    return ""


def _changed_since(path: Path, at: int) -> bool:
    try:
        return path.stat().st_mtime * 1000 > at + GRACE_MS
    except OSError:
        return False


def _row_line(row: Row, icons: Icons) -> str:
    icon = icons.get(row["type"], icons["change"])
    more = shorten(row["narrative"] or row["subtitle"] or "", 200)
    return f"{row['id']} {icon} {as_told(shorten(row['title'] or '', 140))}{f' — {as_told(more)}' if more else ''}"


# --- after a command has failed --------------------------------------------------------------------------------------


def at_failure(
    conn: Connection,
    moment: Moment,
    project_id: int,
    *,
    injected_names: frozenset[str],
    icons: Icons,
    session_id: int = 0,
) -> Speech:
    """Has the same error been met before, and what solved it?"""
    where = Filter(project_ids=(project_id,), but_session=session_id)
    hits = search.by_signal(conn, where, kinds=("error",), values=_signatures(moment.text))
    solved = observations.solutions(conn, sorted({row["group"] for row in hits if row["group"] > 0}, reverse=True)[:50])
    fresh = [row for row in solved if mark("observation", row["id"]) not in injected_names][:FAILURE_ITEMS]
    lines = [(_row_line(row, icons), [mark("observation", row["id"])], vouched(row)) for row in fresh]
    return _compose("# claude-mem: this error was met before, as information", lines, FAILURE_TOKENS)


def _signatures(text: str) -> list[str]:
    """As they were noted when such an error was met; only of lines that name something that could be met again."""
    lines = [error_line(text), *(shorten(line, 160) for line in text.splitlines()[-40:])]
    return sorted({words.signature(line.strip()) for line in lines if is_specific(line.strip())})
