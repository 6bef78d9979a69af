"""Compose titles from evidence: small replacements, documented definitions, headings and tasks that state the work."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from claude_mem.providers import prose
from claude_mem.providers.evidence import Edit, Evidence
from claude_mem.providers.markdown import Statement
from claude_mem.providers.words import content_words, names

QUOTED_CHARS = 60
MOST_DOCUMENTED = 4
SMALL_LINES = 24  # maximum size of an edit that a replacement can describe

_DONE = re.compile(
    r"(?i)^(?:add|creat|implement|fix|remov|delet|renam|mov|extract|refactor|simplif|consolidat|replac|chang|updat|switch|improv|introduc|support|drop|enabl|disabl|clean|rewr|rework|migrat|convert|merg|hid|show)\w*\s+\S"
)
_NUMBERED = re.compile(r"^(?:(?:step|phase|task|part|change|fix)\s{0,2})?\d{1,2}[.):]\s{0,3}", re.I)
_MARKS = ("\\", '"', "`", "$(", "${")
_EMPTY = re.compile(
    r"(?i)^(?:added|updated|removed|changed|fixed|modified|new|improved|created)(?: (?:the|new|some|existing|all|related|unit|integration|test|tests|files?|code|imports?|docs?|documentation|comments?|changes?))*$"
)


def listed(items: Sequence[str], most: int = 3) -> str:
    """Return the first few items, and the number of the others."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def swapped_title(edits: Sequence[Edit], is_test: Sequence[bool]) -> str:
    """Return a title for a replacement, if it is most of the work."""
    own = [edit for edit, test in zip(edits, is_test, strict=True) if not test] or list(edits)
    lines = sum(edit.change.added_lines + edit.change.removed_lines for edit in own)
    counts = Counter(swap for edit in own for swap in edit.change.swaps)
    if not counts or lines > max(SMALL_LINES, 4 * counts.total()):
        return ""
    (swap, times), *_ = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0].kind != "text", -len(pair[0].new)))
    where = _where([edit.path for edit in own if swap in edit.change.swaps])
    if swap.kind == "value":
        return f"Changed `{swap.key}` from `{swap.old}` to `{swap.new}` in {where}" if swap.key else ""
    if swap.kind == "name":
        if 2 * 2 * times < lines:  # the replacement must be most of the changed lines
            return ""
        removed_names = {name for edit in edits for name in edit.change.removed}
        renamed = swap.new not in removed_names and any(
            swap.new in edit.change.added and swap.old in edit.change.removed for edit in own
        )
        if renamed:
            return f"Renamed `{swap.old}` to `{swap.new}` in {where}"
        return f"Replaced `{swap.old}` with `{swap.new}` in {where}"
    return _reworded(swap.old, swap.new, where)


def _reworded(old: str, new: str, where: str) -> str:
    """Return a title for a changed text; if both versions are long, only with the part that differs."""
    old, new = old.strip(), new.strip()
    worded = " " in old + new or not (old + new).islower()  # excludes names of packages and keys
    if len(old) > QUOTED_CHARS or len(new) > QUOTED_CHARS or any(mark in old + new for mark in _MARKS):
        old, new = _difference(old, new)
    if any(mark in old + new for mark in _MARKS) or max(len(old), len(new)) > 100:
        return ""
    if old and new and worded and content_words(f"{old} {new}"):
        return f'Changed "{old}" to "{new}" in {where}'
    added, removed = len(content_words(new)) >= 2, len(content_words(old)) >= 2
    if new and added:
        return f'Added "{new}" to a text in {where}'
    return f'Removed "{old}" from a text in {where}' if old and removed else ""


def _difference(old: str, new: str) -> tuple[str, str]:
    """Return the words in which two texts differ, without their common beginning and end."""
    before, after = old.split(), new.split()
    start = next((at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), None)
    start = min(len(before), len(after)) if start is None else start
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return " ".join(before[start : len(before) - end]), " ".join(after[start : len(after) - end])


def _where(paths: Sequence[str]) -> str:
    files = [f"`{PurePosixPath(path).name}`" for path in dict.fromkeys(paths)]
    return listed(files, 2)


def documented_titles(evidence: Evidence) -> Iterator[str]:
    """Yield the added definitions with the purpose stated in their own comments."""
    titles = 0
    removed_names = {name for edit in evidence.edits for name in edit.change.removed}  # moved or rewritten
    for edit in evidence.edits:
        for name, comment in [pair for pair in edit.change.documented if pair[0] not in removed_names][:3]:
            own = comment[len(name) :].lstrip() if comment.lower().startswith(f"{name.lower()} ") else comment
            bare = re.sub(r"(?i)\A(?:is|are)\s", "", own).strip().rstrip(".")
            if len(content_words(bare)) >= 3 and len(bare) <= 110 and "://" not in bare:
                where = PurePosixPath(edit.path).name
                titles += 1
                if titles <= MOST_DOCUMENTED:
                    yield f"Added `{name}` in `{where}`: {bare[:1].lower()}{bare[1:]}"


def joined_titles(statements: Sequence[Statement], evidence: Evidence) -> Iterator[str]:
    """Yield the work stated by several consecutive headings, labels or tasks, as one line."""
    for texts in (
        [one.text for one in statements if one.kind == "heading"],
        [one.label for one in statements if one.label and one.first and one.depth <= 1],
        [task.subject for task in evidence.tasks if task.is_done],
    ):
        bare = [prose.as_title(_NUMBERED.sub("", text), 100) for text in texts[:12]]
        telling = [line for line in bare if _DONE.match(line) and not _EMPTY.match(line) and len(line) <= 90]
        telling = [prose.past(line) for line in telling if len(content_words(line)) >= (3 if names(line) else 4)]
        if len(telling) >= 2 and len(telling) * 2 >= len(bare):
            yield _fitting(telling)


def _fitting(lines: Sequence[str]) -> str:
    """Return as many whole lines as fit into a title."""
    title = lines[0]
    for line in lines[1:]:
        longer = f"{title}; {line[:1].lower()}{line[1:]}"
        if len(longer) > prose.TITLE_CHARS:
            break
        title = longer
    return title
