"""Find the lines of code that the observations of a turn speak of."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from claude_mem.digest import symbols
from claude_mem.digest.calls import command_keys
from claude_mem.digest.evidence import EDIT_TOOLS, READ_TOOLS, output_text, path_in_project
from claude_mem.domain import anchors, patches
from claude_mem.domain.anchors import Anchor
from claude_mem.domain.records import Draft, ToolUsed, Turn

MAX_READ_LINES = 4_000
MAX_BLOCK_LINES = 400  # of a diff, to compare each removed line with each added one
REPEATED_SHARE = 0.4  # of the phrases of removed lines that added lines have, if they say much of the same
SIMILAR_SHARE = 0.6  # of the words of two lines, for one to be called a rewording of the other
_WORD = re.compile(r"\w+")
# Names that look like code: `in_backticks`, snake_case, camelCase, CONSTANT_CASE, calls().
_QUOTED = re.compile(r"`([^`\n]{3,60})`")
_CODE_NAME = re.compile(r"\b(?:[A-Za-z]\w*_\w+|[a-z]+[A-Z]\w+|[A-Z][a-z]+[A-Z]\w+|\w{3,}(?=\())")
_NUMBERED = re.compile(r"^ *\d+[→\t|:]")  # agents number the lines of a file they show


@dataclass(slots=True)
class FileLines:
    """The lines that a turn added to a file, removed from it, and saw in it. `whole`: the file as it was written.

    `dropped` are the removed lines that the turn had not added itself and in whose place no similar line was put.
    """

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    whole: str | None = None


@dataclass(frozen=True, slots=True)
class TurnLines:
    """The lines of a turn's tool calls, by path."""

    files: dict[str, FileLines]

    def dropped_hashes(self, path: str) -> frozenset[bytes]:
        """Return the hashes of the lines that the turn removed from a file, without those that it only reworded or
        added to another file."""
        return frozenset(map(anchors.hash_line, self.dropped_lines(path)))

    def dropped_lines(self, path: str) -> list[str]:
        """Return these lines."""
        added = {line.strip() for lines in self.files.values() for line in lines.added}
        return [line for line in self.files[path].dropped if line.strip() not in added]

    def adds_any(self, names: Collection[str]) -> bool:
        """Return whether the turn added lines with one of these names."""
        return any(name in line for lines in self.files.values() for line in lines.added for name in names)

    def repeats(self, phrases: Collection[int]) -> bool:
        """Return whether the turn added lines with enough of these phrases to say much of the same."""
        added = "\n".join(line for lines in self.files.values() for line in lines.added)
        repeated = anchors.hash_phrases(added.encode("utf-8", "replace")) & set(phrases)
        return bool(phrases) and len(repeated) >= len(phrases) * REPEATED_SHARE

    def blob_id(self, path: str) -> str:
        """Return git's id of the file as the turn left it; "" if the turn did not write the whole file."""
        whole = self.files[path].whole if path in self.files else None
        if whole is None:
            return ""
        content = whole.encode("utf-8", "replace")
        return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def collect_lines(turn: Turn) -> TurnLines:
    """Return the lines that the turn's tool calls added, removed and showed, in the order of the calls.

    A line that a later call of the turn removed again does not count as added.
    """
    files: defaultdict[str, FileLines] = defaultdict(FileLines)
    for body in turn.bodies:
        if not isinstance(body, ToolUsed) or body.failed:
            continue
        for path, lines in _changed_lines(body, turn):
            _apply(files[path], lines)
        if body.name == "Write" and isinstance(content := body.input.get("content"), str):
            files[path_in_project(body, turn)].whole = content
        elif body.name in READ_TOOLS and (path := path_in_project(body, turn)):
            files[path].shown += _shown_lines(body.output)
    return TurnLines({path: lines for path, lines in files.items() if path})


def _changed_lines(body: ToolUsed, turn: Turn) -> Iterator[tuple[str, Sequence[str]]]:
    if body.name == patches.PATCH_TOOL:
        for patch in patches.stored_patches(body.input):
            yield path_in_project(ToolUsed("Edit", {"file_path": patch.paths[0]}), turn), patch.lines
    elif body.name in EDIT_TOOLS and (path := path_in_project(body, turn)):
        yield path, symbols.diff_lines(body)


def _apply(file: FileLines, lines: Sequence[str]) -> None:
    added = [line[1:] for line in lines if line.startswith("+")]
    removed = [line[1:] for line in lines if line.startswith("-")]
    own_texts = {line.strip() for line in file.added}
    removed_texts = {line.strip() for line in removed} - {line.strip() for line in added}
    file.added = [line for line in file.added if line.strip() not in removed_texts] + added
    file.removed += removed
    file.dropped += [line for line in _dropped_lines(lines) if line.strip() not in own_texts]
    file.whole = None


def _dropped_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield the removed lines of a diff in whose place no similar line was put."""
    for changed, block in groupby(lines, key=lambda line: line[:1] in ("+", "-")):
        if changed:
            run = list(block)[:MAX_BLOCK_LINES]
            added = [_words(line) for line in run if line.startswith("+")]
            for line in run:
                if line.startswith("-") and not _is_like_any(_words(line), added):
                    yield line[1:]


def _words(line: str) -> frozenset[str]:
    return frozenset(_WORD.findall(line))


def _is_like_any(words: frozenset[str], others: Sequence[frozenset[str]]) -> bool:
    return any(len(words & other) >= SIMILAR_SHARE * max(len(words), len(other)) for other in others)


def _shown_lines(output: Any) -> list[str]:
    """Return the lines of a file that a tool showed, without line numbers."""
    content = output.get("file") if isinstance(output, dict) else None
    text = content.get("content") if isinstance(content, dict) else output_text(output)
    return [_NUMBERED.sub("", line) for line in str(text or "").splitlines()[:MAX_READ_LINES]]


def find_anchors(draft: Draft, lines: TurnLines) -> tuple[Anchor, ...]:
    """Return the anchors of an observation: of the files it changed, else of the lines it read and speaks of."""
    if draft.files_modified:
        inside = [path for path in draft.files_modified if path in lines.files and not path.startswith(("/", "~"))]
        edited = {path: lines.files[path].added for path in inside}
        dropped = {path: lines.dropped_lines(path) for path in inside}
        if anchors.is_removal(_count_telling(edited), _count_telling(dropped)):
            return _edit_anchors(dropped, anchors.REMOVAL)
        return _edit_anchors(edited, anchors.EDIT)
    if command_anchors := find_command_anchors(draft.title):
        return command_anchors
    names = mentioned_names("\n".join((draft.title, draft.narrative, *(fact.text for fact in draft.facts))))
    read = [path for path in draft.files_read if path in lines.files and names]
    mentions = [(path, anchors.mention_lines(lines.files[path].shown, names)) for path in read]
    candidates = [Anchor(path, anchors.READ, anchors.choose_lines(mention)) for path, mention in mentions]
    candidates = [anchor for anchor in candidates if len(anchor.lines) >= anchors.MIN_LINES]
    return tuple(sorted(candidates, key=lambda anchor: -len(anchor.lines))[: anchors.MAX_FILES])


def find_command_anchors(title: str) -> tuple[Anchor, ...]:
    """Return the anchor of an observation whose point is that a command fails or works."""
    claim = find_claim(title)
    if claim is None:
        return ()
    return (Anchor(claim.key, anchors.COMMAND, (anchors.hash_line(claim.text),) if claim.fails else ()),)


def _edit_anchors(files: Mapping[str, Sequence[str]], kind: str) -> tuple[Anchor, ...]:
    """Return the anchors of an edit. What was removed needs no phrases: it matters whether the very lines are back."""
    samples = anchors.choose_edit_lines(files)
    total = sum(map(len, samples.values()))
    return tuple(
        Anchor(
            path,
            kind,
            tuple(map(anchors.hash_line, lines)),
            anchors.choose_phrases(lines, anchors.MAX_PHRASES * len(lines) // total) if kind == anchors.EDIT else (),
        )
        for path, lines in samples.items()
    )


def _count_telling(files: Mapping[str, Sequence[str]]) -> int:
    return sum(anchors.is_telling(line.strip()) for lines in files.values() for line in lines)


def mentioned_names(text: str) -> frozenset[str]:
    """Return the names in a text that look like code."""
    names = {*_QUOTED.findall(text), *_CODE_NAME.findall(text)}
    return frozenset(name.removesuffix("()") for name in names if "/" not in name)


# --- claims about commands -------------------------------------------------------------------------------------------


_FAILS = (
    r"(?:always |still )?fails|does(?: not|n'?t) work|can(?:not|'?t| not) work|never works|is broken|is not supported"
)
_WORKS = r"(?:now |again )?works(?: now| again)?|is fixed"
_CLAIM = re.compile(
    rf"(?:(?:note|gotcha|trap|warning|careful)[:,] *)?(?:here,? |in this (?:project|repository),? )?(?:the command )?"
    rf"`(?P<command>[^`\n]{{2,200}})` (?:(?P<fails>{_FAILS})|(?:{_WORKS}))\b"
    r"(?! *,? *(?:if|when|whenever|unless|until|without|with|on|for|only|in|after|before|as long)\b(?! this| here))",
    re.I,
)


@dataclass(frozen=True, slots=True)
class CommandClaim:
    """What a title says of a command, where its whole point is that the command fails here, or works.

    Only a title that states it without a condition counts: "`make dist` fails when the cache is cold" is not disproved
    by a `make dist` that works. `key` names the command as `calls` do.
    """

    key: str
    fails: bool
    text: str


def find_claim(title: str) -> CommandClaim | None:
    """Return what a title says of a command; None if that is not its point, or depends on a condition."""
    match = _CLAIM.match(title.strip())
    key = _key(match["command"]) if match else ""
    return CommandClaim(key, bool(match["fails"]), title.strip()) if match and key else None


def _key(command: str) -> str:
    """Return the key of the one thing that distinguishes a command: its option or path, else all its words."""
    calls = command_keys(command)
    is_one_call = len({id(call) for call in calls.values()}) == 1
    if not is_one_call or not re.fullmatch(r"[\w./-]+(?: [^()]*)?", command):
        return ""
    plain = [key for key in calls if not any(word.startswith("-") or "/" in word for word in key.split(" ")[1:])]
    special = [key for key in calls if key not in plain]
    return special[0] if len(special) == 1 else "" if special else max(plain, key=len)
