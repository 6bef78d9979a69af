"""Titles composed from what tools and headings show, for turns whose closing message has no sentence that stands alone.

Every part of such a title is a fact: a definition that a diff adds, removes or moves, a replacement in a line, a file,
a finished task, or a heading of the closing message.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import PurePosixPath

from claude_mem.digest import prose
from claude_mem.digest.evidence import Edit, Evidence, unique
from claude_mem.digest.markdown import Statement
from claude_mem.digest.prose import content_words, names
from claude_mem.digest.subjects import GENERIC_SECTION, is_test

QUOTED_CHARS = 60
MAX_DOCUMENTED = 4
SMALL_LINES = 24  # maximum size of an edit that a replacement can describe

_DONE = re.compile(
    r"(?i)^(?:add|creat|implement|fix|remov|delet|renam|mov|extract|refactor|simplif|consolidat|replac|chang|updat|switch|improv|introduc|support|drop|enabl|disabl|clean|rewr|rework|migrat|convert|merg|hid|show)\w*\s+\S"
)
_NUMBERED = re.compile(r"^(?:(?:step|phase|task|part|change|fix)\s{0,2})?\d{1,2}[.):]\s{0,3}", re.I)
_MARKS = ("\\", '"', "`", "$(", "${")
_EMPTY = re.compile(
    r"(?i)^(?:added|updated|removed|changed|fixed|modified|new|improved|created)(?: (?:the|new|some|existing|all|related|unit|integration|test|tests|files?|code|imports?|docs?|documentation|comments?|changes?))*$"
)


def join_listed(items: Sequence[str], most: int = 3) -> str:
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
    paths = dict.fromkeys(edit.path for edit in own if swap in edit.change.swaps)
    where = join_listed([f"`{PurePosixPath(path).name}`" for path in paths], 2)
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


def documented_titles(evidence: Evidence) -> Iterator[str]:
    """Yield the added definitions with the purpose stated in their own comments."""
    removed_names = {name for edit in evidence.edits for name in edit.change.removed}  # moved or rewritten
    titles = (title for edit in evidence.edits for title in documented_in(edit, removed_names))
    yield from islice(titles, MAX_DOCUMENTED)


def documented_in(edit: Edit, others: Container[str] = ()) -> Iterator[str]:
    """Yield the definitions that an edit added, without the others, with the purpose stated in their own comments."""
    for name, comment in [pair for pair in edit.change.documented if pair[0] not in others][:3]:
        own = comment[len(name) :].lstrip() if comment.lower().startswith(f"{name.lower()} ") else comment
        bare = re.sub(r"(?i)\A(?:is|are)\s", "", own).strip().rstrip(".")
        if len(content_words(bare)) >= 3 and len(bare) <= 110 and "://" not in bare:
            yield f"Added `{name}` in `{PurePosixPath(edit.path).name}`: {bare[:1].lower()}{bare[1:]}"


def joined_titles(statements: Sequence[Statement], evidence: Evidence) -> Iterator[str]:
    """Yield the work stated by several consecutive headings, labels or tasks, as one line."""
    for texts in (
        [one.text for one in statements if one.kind == "heading"],
        [one.label for one in statements if one.label and one.first and one.depth <= 1],
        [task.subject for task in evidence.tasks if task.is_done],
    ):
        bare = [prose.as_title(_NUMBERED.sub("", text), 100) for text in texts[:12]]
        telling = [line for line in bare if _DONE.match(line) and not _EMPTY.match(line) and len(line) <= 90]
        telling = [
            prose.to_past_tense(line) for line in telling if len(content_words(line)) >= (3 if names(line) else 4)
        ]
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


def moved_title(evidence: Evidence) -> str:
    deleted = [f"`{move.old}`" for move in evidence.moves if not move.new]
    moved = [f"`{move.old}` to `{move.new}`" for move in evidence.moves if move.new]
    parts = [f"moved {join_listed(moved)}"] if moved else []
    parts += [f"deleted {join_listed(deleted)}"] if deleted else []
    return prose.as_title(" and ".join(parts), 160)


def added_title(evidence: Evidence) -> str:
    """Return a title that lists the added definitions, if they are few and in one file."""
    added = {
        edit.path: [name for other in evidence.edits if other.path == edit.path for name in other.change.added]
        for edit in evidence.edits
    }
    filled = {path: list(dict.fromkeys(names)) for path, names in added.items() if names}
    if not filled:
        return ""
    path = max(filled, key=lambda path: len(filled[path]))
    own = filled[path]
    if is_test(path) and (tests := [name for name in own if re.search(r"(?i)test", name)]):
        kind = "test" if len(tests) == 1 else f"{len(tests)} tests"
        return f"Added {kind} {join_listed([f'`{name}`' for name in tests])} in `{PurePosixPath(path).name}`"
    if len(filled) > 1 or len(own) > 3:
        return ""
    return f"Added {join_listed([f'`{name}`' for name in own])} in `{PurePosixPath(path).name}`"


def edited_title(evidence: Evidence) -> str:
    """Return the plainest title: the definitions that were added, changed or removed in the files with most of them, or
    the files."""
    own = [edit for edit in evidence.edits if not is_test(edit.path)] or list(evidence.edits)
    added = unique(name for edit in own for name in edit.change.added)
    removed = unique(name for edit in own for name in edit.change.removed)
    rewritten = [name for name in removed if name in added]
    changes = {
        "added": [name for name in added if name not in removed],
        "changed": unique([*(name for edit in own for name in edit.change.changed), *rewritten]),
        "removed": [name for name in removed if name not in added],
    }
    places: Counter[str] = Counter()
    for edit in own:
        places[PurePosixPath(edit.path).name] += len({*edit.change.added, *edit.change.changed, *edit.change.removed})
    parts = [
        f"{verb} {join_listed([f'`{name}`' for name in symbols], 2)}" for verb, symbols in changes.items() if symbols
    ]
    if parts:
        files = [f"`{name}`" for name, count in places.most_common() if count]
        return prose.as_title(f"{' and '.join(parts[:2])} in {join_listed(files, 2)}", 160)
    created = unique(edit.path for edit in evidence.edits if edit.created)
    verb = "Created" if created and set(created) == set(evidence.edited_paths) else "Edited"
    return f"{verb} {join_listed([f'`{PurePosixPath(path).name}`' for path in evidence.edited_paths])}"


def removed_title(evidence: Evidence) -> str:
    """Return a title for definitions that were removed and not defined again, if nothing else was defined."""
    own = [edit for edit in evidence.edits if not is_test(edit.path)] or list(evidence.edits)
    added = {name for edit in evidence.edits for name in edit.change.added}
    removed = {name: edit.path for edit in own for name in edit.change.removed if name not in added}
    if not removed or any(name not in removed for edit in own for name in edit.change.added):
        return ""
    lines = [(edit.change.added_lines, edit.change.removed_lines) for edit in own]
    if 2 * sum(new for new, _ in lines) > sum(old for _, old in lines):
        return ""  # more was rewritten than removed
    where = join_listed([f"`{name}`" for name in unique(PurePosixPath(path).name for path in removed.values())], 2)
    return f"Removed {join_listed([f'`{name}`' for name in removed])} from {where}"


def relocated_title(evidence: Evidence) -> str:
    """Return a title for definitions that were moved to another file: removed in one, added in the other."""
    removed = {name: edit.path for edit in evidence.edits for name in edit.change.removed}
    moved = {
        name: edit.path
        for edit in evidence.edits
        for name in edit.change.added
        if removed.get(name, edit.path) != edit.path and not is_test(edit.path)
    }
    targets = tuple(dict.fromkeys(moved.values()))
    if not moved or len(targets) > 1:
        return ""
    sources = dict.fromkeys(PurePosixPath(removed[name]).name for name in moved)
    target = _distinct(targets[0], sources)
    definitions = join_listed([f"`{name}`" for name in moved])
    return f"Moved {definitions} from {join_listed([f'`{name}`' for name in sources], 2)} to `{target}`"


def _distinct(path: str, others: Iterable[str]) -> str:
    """Return the name of a file, with its directory if another file has the same name."""
    own = PurePosixPath(path)
    return "/".join(own.parts[-2:]) if own.name in others else own.name


_NUMBERED_FAULT = re.compile(
    r"(?i)^(?:bug|issue|problem|fix)\s{0,2}#?\d{1,2}\s{0,2}[:.)–—-]{1,2}\s{0,3}(?P<what>\S.{5,80})$"
)


def faults_title(statements: Sequence[Statement]) -> str:
    """Return a title for several faults that the message fixes one by one: "Bug 1 — Label", "Bug 2 — Order"."""
    labels = [one.label if one.label else one.text for one in statements if one.label or one.kind == "heading"]
    faults = [match["what"].rstrip(":") for label in labels if (match := _NUMBERED_FAULT.match(label))]
    faults = list(dict.fromkeys(fault for fault in faults if len(content_words(fault)) >= 2))
    return f"Fixed: {join_with('; ', [faults[0], *map(lowered, faults[1:])])}" if len(faults) >= 2 else ""


_HEADING_NUMBER = re.compile(
    r"(?i)^(?:(?:summary|overview)(?: of (?:the |all )?(?:changes?|work|fix(?:es)?))?|section \d+|step \d+|\d+\.)\s*[:.)–-]+\s*"
)
_REFERRING = re.compile(
    r"(?i)\b(?:understanding|analysis|before|after|scenario|what happens|format|day|example|verdict|day|test|question|option|approach|phase|part|task|step|test results?|verification|pr) ?#?\d*\b|\b(?:additional|updated|new|remaining|final|further) (?:changes|user experience|tests?)\b|\bchanges? (?:made|summary)\b|\bthis session\b|^(?:added|updated|modified|created) (?:\w+ )?(?:in|to) `|\bhow (?:it|this)\b"
)
HEADLINE_POSITION = 8


def headline(statements: Sequence[Statement]) -> Statement | None:
    """Return the heading at the top of the message if it names the piece of work: "Timestamp check for `resume`"."""
    top = (
        one
        for one in statements
        if one.kind == "heading" and one.position <= HEADLINE_POSITION and not re.match(r"\W*\d", one.text)
    )
    return next((one for one in top if _names_work(headline_text(one))), None)


def _names_work(heading: str) -> bool:
    """Return whether a heading names a piece of work, unlike a number in a list, a file or a part of an example."""
    generic = GENERIC_SECTION.match(heading) or _REFERRING.search(heading) or heading.endswith("?")
    own = re.sub(r"`[^`]*`", "", heading)
    return (
        len(content_words(heading)) >= 3
        and len(content_words(own)) >= 2
        and not (generic or prose.is_chat(heading) or prose.is_status(heading) or prose.is_pointing(heading))
    )


def headline_text(one: Statement) -> str:
    """Return a heading without "Summary:" and numbers."""
    return prose.as_title(_HEADING_NUMBER.sub("", one.text), 90)


def lowered(text: str) -> str:
    """Return a text with its first letter in lower case, unless it begins with an abbreviation."""
    return text if text[:2].isupper() else text[:1].lower() + text[1:]


def join_with(separator: str, parts: Sequence[str], limit: int = prose.TITLE_CHARS) -> str:
    """Return as many whole parts as fit, and the number of the others."""
    line, used = parts[0], 1
    for part in parts[1:]:
        if len(line) + len(separator) + len(part) > limit:
            break
        line, used = f"{line}{separator}{part}", used + 1
    return f"{line} and {len(parts) - used} more" if used < len(parts) else line
