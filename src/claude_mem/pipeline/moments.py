"""The moments at which memory speaks by itself: at a prompt, before a file is touched, after a command has failed.

Silence is the rule. Something is said only if it is about what is going on, and only if this session has not been told
it yet; what the session did itself, it knows. What is said is short, fenced, and information: it never stops or changes
what the agent was about to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from claude_mem import words
from claude_mem.hosts.claude import Moment
from claude_mem.pipeline import recall
from claude_mem.pipeline.context import Icons, safe
from claude_mem.pipeline.index import Indexer
from claude_mem.store import observations, search
from claude_mem.store.database import Connection, Database, Row
from claude_mem.store.search import Filter
from claude_mem.text import shorten, tokens

PROMPT_ITEMS, PROMPT_FILES, PROMPT_TOKENS = 5, 10, 600
FILE_ITEMS, FILE_TOKENS = 4, 250
FAILURE_ITEMS, FAILURE_TOKENS = 2, 250
LEAST_WORDS = 4
GRACE_MS = 60_000  # a file is written a little before the turn that wrote it ends
_NOT_ASKED = ("/", "!", "#", "<")  # commands of the host, and what it puts in itself
_TOLD_KINDS = ("observation", "summary")


@dataclass(frozen=True, slots=True)
class Speech:
    """What is said, and the names under which it counts as told."""

    text: str = ""
    told: tuple[str, ...] = ()


SILENCE = Speech()


def mark(kind: str, row_id: int) -> str:
    return f"{kind[0]}{row_id}"


# --- at a prompt -----------------------------------------------------------------------------------------------------


async def at_prompt(
    moment: Moment, project_id: int, *, db: Database, indexer: Indexer, told: frozenset[str], icons: Icons
) -> Speech:
    prompt = moment.text.strip()
    if prompt.startswith(_NOT_ASKED) or len(re.findall(r"\w+", prompt)) < LEAST_WORDS:
        return SILENCE
    where = Filter(project_ids=(project_id,), but_session=moment.content_session_id)
    question = recall.Question(text=prompt, where=where, limit=4 * PROMPT_ITEMS, floor=recall.PROMPT_FLOOR)
    hits = [hit for hit in await recall.find(db, indexer, question) if hit.kind in _TOLD_KINDS]
    fresh = [hit for hit in hits if mark(hit.kind, hit.id) not in told][:PROMPT_ITEMS]
    files = await recall.files_for(db, indexer, prompt, where, limit=PROMPT_FILES)
    new_files = [path for path in files if f"file:{path}" not in told]
    return _prompt_speech(fresh, new_files, icons)


def _prompt_speech(hits: Sequence[recall.Hit], files: Sequence[str], icons: Icons) -> Speech:
    lines = (
        [(f"Files this may concern: {', '.join(map(safe, files))}", [f"file:{path}" for path in files])]
        if files
        else []
    )
    lines += [(_hit_line(hit, icons), [mark(hit.kind, hit.id)]) for hit in hits]
    return _speech("# claude-mem: from earlier sessions, as information; it may be out of date", lines, PROMPT_TOKENS)


def _hit_line(hit: recall.Hit, icons: Icons) -> str:
    letter = "S" if hit.kind == "summary" else ""
    icon = icons.get(hit.row["type"] or "", "·")
    return f"{letter}{hit.id} {icon} {safe(shorten(hit.title, 160))}"


def _speech(head: str, lines: Iterable[tuple[str, list[str]]], budget: int) -> Speech:
    """As many lines as there is room for."""
    said, told = [head], list[str]()
    room = budget - tokens(_fenced([head]))
    for line, names in lines:
        room -= tokens(line) + 1
        if room < 0:
            break
        said.append(line)
        told += names
    return Speech(_fenced(said), tuple(told)) if told else SILENCE


def _fenced(lines: Sequence[str]) -> str:
    return "<claude-mem-context>\n" + "\n".join(lines) + "\n</claude-mem-context>"


# --- before a file is touched ----------------------------------------------------------------------------------------


def at_file(conn: Connection, moment: Moment, project: Row, *, told: frozenset[str], icons: Icons) -> Speech:
    """What is known about it, once a session."""
    path = _inside(moment.text, project["root"])
    if not path or f"known:{path}" in told:
        return SILENCE
    found = observations.by_file(conn, project["id"], path, but_session=moment.content_session_id, limit=FILE_ITEMS)
    fresh = [row for row in found if mark("observation", row["id"]) not in told]
    if not fresh:
        return SILENCE
    old = _changed_since(Path(moment.text), found[0]["created_at"])
    head = f"# claude-mem: known about {safe(path)}" + (
        "; it has changed since, so this may be outdated" if old else ""
    )
    lines = [(_row_line(row, icons), [mark("observation", row["id"])]) for row in fresh]
    said = _speech(head, lines, FILE_TOKENS)
    return Speech(said.text, (*said.told, f"known:{path}")) if said.text else SILENCE


def _inside(path: str, root: str) -> str:
    """As observations name it: within the project."""
    return path.removeprefix(root.rstrip("/") + "/") if root and path.startswith(root.rstrip("/") + "/") else ""


def _changed_since(path: Path, at: int) -> bool:
    try:
        return path.stat().st_mtime * 1000 > at + GRACE_MS
    except OSError:
        return False


def _row_line(row: Row, icons: Icons) -> str:
    icon = icons.get(row["type"], icons["change"])
    more = shorten(row["narrative"] or row["subtitle"] or "", 200)
    return f"{row['id']} {icon} {safe(shorten(row['title'] or '', 140))}{f' — {safe(more)}' if more else ''}"


# --- after a command has failed --------------------------------------------------------------------------------------


def at_failure(conn: Connection, moment: Moment, project_id: int, *, told: frozenset[str], icons: Icons) -> Speech:
    """Has the same error been met before, and what solved it?"""
    lines = [line.strip() for line in moment.text.splitlines() if line.strip()][-40:]
    where = Filter(project_ids=(project_id,), but_session=moment.content_session_id)
    found = search.by_signal(conn, where, kinds=("error",), values={words.signature(line) for line in lines} - {""})
    solved = observations.solutions(
        conn, sorted({row["group"] for row in found if row["group"] > 0}, reverse=True)[:50]
    )
    fresh = [row for row in solved if mark("observation", row["id"]) not in told][:FAILURE_ITEMS]
    said = [(_row_line(row, icons), [mark("observation", row["id"])]) for row in fresh]
    return _speech("# claude-mem: this error was met before, as information", said, FAILURE_TOKENS)
