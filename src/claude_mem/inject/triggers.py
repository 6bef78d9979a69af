"""Injections during a session: at a prompt, before a file is read or edited, and after a command failed.

Most of the time nothing is injected. A memory is injected only if it concerns what is going on, was not injected into
this session before, and does not come from this session itself. Injections are short, fenced, and mere information:
they never block or change what the agent was about to do.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from claude_mem.agents.canonical import string_or_empty
from claude_mem.agents.payload import Trigger
from claude_mem.digest.evidence import error_line, is_specific
from claude_mem.digest.modes import Icons
from claude_mem.domain import words
from claude_mem.domain.anchors import ABSENT, NOT_DONE, hash_line
from claude_mem.domain.memory_items import UNKNOWN_STATE, MemoryItem, MemoryState
from claude_mem.domain.project_reports import Project
from claude_mem.domain.text import estimate_tokens, local_time, shorten
from claude_mem.inject.brief import fenced, is_user_approved, state_note, which_may_be_injected, with_states
from claude_mem.inject.select import state_of
from claude_mem.privacy.display import defuse_links
from claude_mem.privacy.injection_rules import is_name
from claude_mem.privacy.trust import is_injectable
from claude_mem.recall import likely_files, rank
from claude_mem.recall.matrix import Indexer
from claude_mem.storage.base import Database, Transaction
from claude_mem.storage.records import SearchFilter
from claude_mem.system import git_files

PROMPT_ITEMS, PROMPT_FILES, PROMPT_TOKENS = 5, 5, 600
FILE_ITEMS, FILE_TOKENS = 4, 250
FAILURE_ITEMS, FAILURE_TOKENS = 2, 250
MIN_WORDS = 4
_COMMAND = re.compile(r"/[a-z][\w:-]*(?:\s|$)|[!<]")  # commands of the agent, and text that it inserts itself
_INJECTED_KINDS = ("observation", "summary")
FILE_PREFIX = "known:"  # of the item name that stands for the memories of a file
REPEATED_PREFIX = "repeated:"  # of the item name that stands for a warning that an edit repeats undone work
MAX_EDIT_LINES = 4_000


@dataclass(frozen=True, slots=True)
class Injection:
    """The injected text, and the names of the items that count as injected from then on.

    `always_text` and `always_names` are the part that the user wrote or approved. In a moment that is `held_out`, only
    that part is said.
    """

    text: str = ""
    item_names: tuple[str, ...] = ()
    always_text: str = ""
    always_names: tuple[str, ...] = ()
    holdout: float = 0.0
    held_out: bool = False

    @property
    def said(self) -> str:
        """The text that is given to the session."""
        return self.always_text if self.held_out else self.text


NO_INJECTION = Injection()
Line = tuple[str, list[str], bool]  # its text, the names of its items, and whether the user wrote or approved it


def item_name(kind: str, row_id: int) -> str:
    """Return the name under which an item is recorded as injected: `o12`, `s5`."""
    return f"{kind[0]}{row_id}"


def injected_file(injection: Injection) -> str:
    """Return the file that an injection is about, or "" if the trigger was not a file."""
    return next((name.removeprefix(FILE_PREFIX) for name in injection.item_names if name.startswith(FILE_PREFIX)), "")


# --- at a prompt -----------------------------------------------------------------------------------------------------


async def inject_at_prompt(
    trigger: Trigger,
    project_id: int,
    *,
    db: Database,
    indexer: Indexer,
    injected_names: frozenset[str],
    icons: Icons,
    session_id: int = 0,
    root: str = "",
) -> Injection:
    """Return the memories and files that concern a prompt. What no longer holds in the work tree at `root` is left
    out."""
    if not is_searchable(trigger.text):
        return NO_INJECTION
    where = SearchFilter(project_ids=(project_id,), exclude_session_id=session_id)
    (hits, ranked), history = await asyncio.gather(
        rank.find_for_prompt(db, indexer, trigger.text, where, items=4 * PROMPT_ITEMS),
        db.read(likely_files.gather_history, where),
    )
    files = await asyncio.to_thread(_rank_files, trigger.text, ranked, history, root)
    candidates = [hit for hit in hits if _may_inject(hit) and item_name(hit.kind, hit.id) not in injected_names]
    candidates = await db.read(_by_use, candidates)
    row_ids = [hit.id for hit in candidates if hit.kind == "observation"]
    states = await db.read(lambda tx: tx.memory.load_states(row_ids, root))
    by_hit = [states.get(hit.id, UNKNOWN_STATE) if hit.kind == "observation" else UNKNOWN_STATE for hit in candidates]
    new_hits = [(hit, state) for hit, state in zip(candidates, by_hit, strict=True) if state.holds]
    file_names = [f"file:{path}" for path in files]
    use_counts = await db.read(lambda tx: tx.journal.count_uses(file_names, project_id=project_id))
    never_used = {name for name, counts in use_counts.items() if counts.is_never_used}
    likely = [path for path in files if f"file:{path}" not in never_used][:PROMPT_FILES]
    # What was said before is not replaced by the next likely: in replayed sessions, those were hardly ever used.
    new_files = [path for path in likely if f"file:{path}" not in injected_names]
    return _compose_for_prompt(new_hits[:PROMPT_ITEMS], new_files, icons)


def _rank_files(
    prompt: str, ranked: Sequence[rank.SearchCandidate], history: likely_files.FileHistory, root: str
) -> list[str]:
    """Return the files that a prompt probably concerns, likeliest first, without those that are gone."""
    if not likely_files.is_predictable(ranked):
        return []
    branch = git_files.current_branch(Path(os.path.realpath(root))) if root else ""
    files = likely_files.predict(likely_files.signs_of(prompt, ranked, branch), history, limit=3 * PROMPT_FILES)
    if not root or not Path(root).is_dir():  # a worktree that was removed, or another machine's
        return files
    return [path for path in files if os.path.lexists(f"{root}/{path}")]


def is_searchable(prompt: str) -> bool:
    """Return whether a prompt has enough words to search for, and is not a command or a note to the agent."""
    prompt = prompt.strip()[: rank.MAX_PROMPT_CHARS]
    if _COMMAND.match(prompt) or (prompt.startswith("#") and "\n" not in prompt):
        return False
    return len(re.findall(r"\w+", prompt)) >= MIN_WORDS or len(words.search_terms(prompt)) >= MIN_WORDS


def _may_inject(hit: rank.Hit) -> bool:
    """Return whether a hit may be injected.

    Prompts and turns are only found by an explicit search, and external memories are not injected.
    """
    return hit.kind in _INJECTED_KINDS and is_injectable(hit.row)


def _by_use(tx: Transaction, hits: Sequence[rank.Hit]) -> list[rank.Hit]:
    """Return the hits by their scores, each weighted by how often the memory was used when it was shown."""
    counts = tx.journal.count_uses([item_name(hit.kind, hit.id) for hit in hits])
    factors = {name: count.factor for name, count in counts.items()}
    return sorted(hits, key=lambda hit: -hit.score * factors.get(item_name(hit.kind, hit.id), 1.0))


def _compose_for_prompt(hits: Sequence[tuple[rank.Hit, MemoryState]], files: Sequence[str], icons: Icons) -> Injection:
    files = [path for path in files if is_name(path)]
    lines: list[Line] = []
    if files:
        text = f"Files this may concern: {', '.join(map(defuse_links, files))}"
        lines.append((text, [f"file:{path}" for path in files], False))
    lines += [
        (_hit_line(hit, icons) + state_note(state), [item_name(hit.kind, hit.id)], is_user_approved(hit.row))
        for hit, state in hits
    ]
    return compose("# claude-mem: from earlier sessions, as information; it may be out of date", lines, PROMPT_TOKENS)


def _hit_line(hit: rank.Hit, icons: Icons) -> str:
    letter = "S" if hit.kind == "summary" else ""
    icon = icons.get(hit.row["type"] or "", "·")
    return f"{letter}{hit.id} {icon} {defuse_links(shorten(hit.title, 160))}"


def compose(head: str, lines: Iterable[Line], budget: int) -> Injection:
    """Return an injection with as many safe lines as fit into the budget, or `NO_INJECTION`."""
    text_lines, item_names, always_names = [head], list[str](), list[str]()
    always_lines = [head]
    room = budget - estimate_tokens(fenced([head]))
    candidates = list(lines)
    is_safe = which_may_be_injected([(line, trusted) for line, _, trusted in candidates])
    for line, names, is_always in (candidates[index] for index in range(len(candidates)) if is_safe[index]):
        room -= estimate_tokens(line) + 1
        if room < 0:
            break
        text_lines.append(line)
        item_names += names
        if is_always:
            always_lines.append(line)
            always_names += names
    if not item_names:
        return NO_INJECTION
    always_text = fenced(always_lines) if always_names else ""
    return Injection(fenced(text_lines), tuple(item_names), always_text, tuple(always_names))


# --- before a file is read or edited ---------------------------------------------------------------------------------


def inject_at_file(
    tx: Transaction,
    trigger: Trigger,
    project: Project,
    *,
    injected_names: frozenset[str],
    icons: Icons,
    root: str = "",
    hints: bool = True,
    outline: Sequence[Line] = (),
) -> Injection:
    """Return what is known about a file, once per session, and whether an edit repeats work that did not last.

    Memories whose code is gone are left out. Work that was dropped, reverted or failed is only a warning.
    """
    path = find_relative_path(trigger.text, (project.root, trigger.cwd))
    if not path:
        return NO_INJECTION
    repeated = _repeated_lines(tx, trigger, project, path, injected_names=injected_names, root=root) if hints else []
    repeated_ids = {int(names[0].removeprefix(REPEATED_PREFIX)) for _, names, _ in repeated}
    is_new = f"{FILE_PREFIX}{path}" not in injected_names
    rows = _rows_about(tx, trigger, project, path, injected_names=injected_names, root=root) if is_new else []
    rows = [row for row in rows if row["id"] not in repeated_ids][:FILE_ITEMS]
    head = f"# claude-mem: known about {defuse_links(path) if is_name(path) else 'this file'}"
    lines = [(_row_line(row, icons), [item_name("observation", row["id"])], is_user_approved(row)) for row in rows]
    outline = [line for line in outline if line[1][0] not in injected_names]
    room = FILE_TOKENS + sum(estimate_tokens(text) + 1 for text, _, _ in outline)
    injection = compose(head, [*repeated, *lines, *outline], room)
    if not rows or not injection.text:
        return injection
    return replace(injection, item_names=(*injection.item_names, f"{FILE_PREFIX}{path}"))


def _rows_about(
    tx: Transaction, trigger: Trigger, project: Project, path: str, *, injected_names: frozenset[str], root: str
) -> list[MemoryItem]:
    """Return the observations about a file that the session was not given and whose code is not gone."""
    rows = tx.memory.list_observations_by_file(
        project.id, path, exclude_content_session_id=trigger.content_session_id, limit=3 * FILE_ITEMS
    )
    new_rows = [row for row in rows if item_name("observation", row["id"]) not in injected_names]
    states = tx.memory.load_states([row["id"] for row in new_rows], root or project.root or "")
    return [
        row
        for row in with_states(new_rows, states)
        if state_of(row).is_confirmed or state_of(row).freshness not in ABSENT
    ]


def _repeated_lines(
    tx: Transaction, trigger: Trigger, project: Project, path: str, *, injected_names: frozenset[str], root: str
) -> list[Line]:
    """Return a line for earlier work that was dropped or reverted, if the edit that is about to be made repeats it."""
    added = _added_lines(trigger.tool.input) if trigger.tool else frozenset()
    row_ids = tx.memory.find_undone_work(project.id, path, added) if added else []
    new_ids = [row_id for row_id in row_ids if f"{REPEATED_PREFIX}{row_id}" not in injected_names][:1]
    states = tx.memory.load_states(new_ids, root or project.root or "")
    lines: list[Line] = []
    for row in with_states(tx.memory.load_observations(new_ids), states):
        if state_of(row).is_confirmed:
            continue
        title = defuse_links(shorten(row["title"] or "", 140))
        text = f"This edit repeats {row['id']}, {_warning(row)}{title}"
        lines.append((text, [f"{REPEATED_PREFIX}{row['id']}"], is_user_approved(row)))
    return lines


def _added_lines(tool_input: dict[str, Any]) -> frozenset[bytes]:
    """Return the hashes of the lines that an edit would add."""
    edits = tool_input.get("edits")
    added, removed = set[str](), set[str]()
    for edit in [tool_input, *(edits if isinstance(edits, list) else ())]:
        if isinstance(edit, dict):
            new_text = string_or_empty(edit.get("new_string")) or string_or_empty(edit.get("content"))
            added.update(line.strip() for line in new_text.splitlines()[:MAX_EDIT_LINES])
            old_text = string_or_empty(edit.get("old_string"))
            removed.update(line.strip() for line in old_text.splitlines()[:MAX_EDIT_LINES])
    return frozenset(map(hash_line, added - removed))


def find_relative_path(path: str, roots: Sequence[str]) -> str:
    """Return a path relative to the first root that contains it, as observations store it; "" if none does.

    Links and worktrees are resolved.
    """
    real = os.path.realpath(path) if path.startswith("/") else ""
    for root in roots:
        base = os.path.realpath(root).rstrip("/") + "/" if root else ""
        if base and real.startswith(base):
            return real[len(base) :]
    return ""


def _row_line(row: MemoryItem, icons: Icons) -> str:
    icon = icons.get(row["type"] or "", icons["change"])
    detail = shorten(row["narrative"] or row["subtitle"] or "", 200)
    note = state_note(state_of(row))
    line = f"{row['id']} {icon} {_warning(row)}{defuse_links(shorten(row['title'] or '', 140))}{note}"
    return f"{line} — {defuse_links(detail)}" if detail else line


def _warning(row: MemoryItem) -> str:
    """Return how a line begins whose work did not last: `tried on 3 Feb, reverted: `."""
    state = state_of(row)
    outcome = state.outcome
    if state.is_confirmed or outcome not in NOT_DONE:
        return ""
    at = local_time(row["created_at"])
    return f"tried on {at.day} {at:%b}, {outcome}: "


# --- after a command failed ------------------------------------------------------------------------------------------


def inject_at_failure(
    tx: Transaction,
    trigger: Trigger,
    project_id: int,
    *,
    injected_names: frozenset[str],
    icons: Icons,
    session_id: int = 0,
    first_lines: Sequence[Line] = (),
) -> Injection:
    """Return what solved the same error before, after the first lines. A solution that did not last is a warning."""
    where = SearchFilter(project_ids=(project_id,), exclude_session_id=session_id)
    hits = tx.search.find_by_signal(where, kinds=("error",), values=_signatures(trigger.text))
    solved = tx.memory.list_solutions(sorted({hit.group for hit in hits if hit.group > 0}, reverse=True)[:50])
    project = tx.memory.find_project(project_id)
    states = tx.memory.load_states([row["id"] for row in solved], project.root if project else "")
    fresh = [
        row
        for row in with_states(solved, states)
        if item_name("observation", row["id"]) not in injected_names
        and state_of(row).freshness not in ABSENT
        and not row["superseded_by"]
    ][:FAILURE_ITEMS]
    lines = [(_row_line(row, icons), [item_name("observation", row["id"])], is_user_approved(row)) for row in fresh]
    lines = [*(line for line in first_lines if line[1][0] not in injected_names), *lines]
    return compose("# claude-mem: this error was met before, as information", lines, FAILURE_TOKENS)


def _signatures(text: str) -> list[str]:
    """Return the signatures of the error lines, as they are stored when an error occurs.

    Only lines that are specific enough to occur again count.
    """
    lines = [error_line(text), *(shorten(line, 160) for line in text.splitlines()[-40:])]
    return sorted({words.error_signature(line.strip()) for line in lines if is_specific(line.strip())})
