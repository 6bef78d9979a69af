"""Line anchors: the lines of code that a memory speaks of, and what their survival says about the memory.

Whether a file or a symbol has changed says little: most files change every week, and most of what was remembered about
them still holds. The lines themselves decide. The anchors of a memory hold hashes of up to 60 lines that a turn added,
taken evenly from its whole edit, or of lines that it read; the share of them that is still in the files gives the
freshness of the memory.

A line that was reworded is not in the file any more, but says the same. So anchors also hold hashes of up to 30
phrases, pairs of neighbouring words of these lines. Where most lines are gone and most phrases are not, the code was
reworked, and what the memory says about the code usually holds.
"""

from __future__ import annotations

import codecs
import hashlib
import re
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TypeVar
from zlib import crc32

MAX_EDIT_LINES = 60  # hashes per observation of an edit
MAX_LINES = 12  # hashes per anchor of what was only read
MAX_EDIT_FILES, MAX_FILES = 8, 4  # anchors per observation
MIN_CHARS = 15  # shorter lines occur in many places
MIN_LINES = 3  # with fewer lines, the reformatting of one would look like a rewrite
HASH_BYTES = 8
MAX_PHRASES = 30  # hashes per observation
PHRASE_BYTES = 3
NO_PHRASE = 0  # in the place of a phrase of a line that has fewer than others
CURRENT_SHARE, OUTDATED_SHARE = 0.8, 0.5
COMMITTED_SHARE = 1 / 3  # work with fewer of its lines in commits is not in any commit
REPLACED_SHARE = 2 / 3
REMOVAL_RATIO = 2  # an edit that removed this many times more than it added is recognized by what is absent
_WORD = re.compile(r"[A-Za-z]\w{2,}")
_PHRASE_WORD = re.compile(rb"[a-z_\x80-\xff][\w\x80-\xff]+")
_PLAIN = re.compile(r"(?:import|from|using|package|#include|use|require)\b|[-=*#/_\s]+$|[\"']use ")

T = TypeVar("T", bytes, int, str)


class Freshness(StrEnum):
    """What a memory's code looks like in a work tree now."""

    CURRENT = "current"
    PARTLY = "partly"  # some of the lines have changed
    MOVED = "moved"  # the lines are in a file of another name
    REWORKED = "reworked"  # most of the lines were reworded; most of what they say is still there
    OUTDATED = "outdated"  # most of the lines are gone
    GONE = "gone"  # the files are gone
    ELSEWHERE = "elsewhere"  # the work is in commits of a branch, and not in this work tree
    UNKNOWN = ""  # the memory cites no code, or it was not looked at


class Outcome(StrEnum):
    """What became of the work that a memory describes."""

    TRIED = "tried"  # edited, in no commit yet
    COMMITTED = "committed"
    LANDED = "landed"  # in the default branch
    DROPPED = "dropped"  # gone without a commit
    REVERTED = "reverted"  # taken back after it was committed
    FAILED = "failed"  # the last check failed
    UNKNOWN = ""


# What the lines of an anchor are. A command that was said to fail has one line, its error; one that works has none.
EDIT, READ, REMOVAL, COMMAND = "edit", "read", "removal", "command"
STALE = (Freshness.OUTDATED, Freshness.GONE)
ABSENT = (*STALE, Freshness.ELSEWHERE)  # the code is not in the work tree
REWRITTEN = (*ABSENT, Freshness.REWORKED)  # most of the lines are gone: not in a start brief
UNDONE = (Outcome.DROPPED, Outcome.REVERTED)
NOT_DONE = (*UNDONE, Outcome.FAILED)


@dataclass(frozen=True, slots=True)
class Anchor:
    """The telling lines of one file."""

    path: str  # of a command: its key
    kind: str
    lines: tuple[bytes, ...]
    phrases: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sighting:
    """How many lines of an anchor a look at the work tree found, and how many phrases of the other lines. `exists`: the
    file is there, under any name."""

    total: int
    present: int
    exists: bool = True
    moved_to: str = ""
    phrases: int = 0
    phrases_present: int = 0


def hash_line(line: str) -> bytes:
    """Hash a line without its indentation, so that moving it into a block does not change it."""
    return hashlib.blake2b(line.strip("\ufeff").strip().encode("utf-8", "replace"), digest_size=HASH_BYTES).digest()


def hash_lines(text: str) -> frozenset[bytes]:
    """Return the hashes of all lines of a file that are long enough to be telling."""
    return frozenset(hash_line(line) for line in text.splitlines() if len(line.strip()) >= MIN_CHARS)


def hash_content(content: bytes) -> frozenset[bytes]:
    """Return the hashes of all lines of a file that are long enough to be telling. A byte order mark is no part of the
    first line."""
    return hash_lines(_decode(content))


def hash_phrases(content: bytes) -> frozenset[int]:
    """Return the hashes of all phrases of a file. They may span the end of a line: a formatter may have wrapped it."""
    return frozenset(_phrases(_decode(content)))


def _decode(content: bytes) -> str:
    has_utf16_mark = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if has_utf16_mark else "utf-8-sig", "replace")


def _phrases(text: str) -> list[int]:
    words = _PHRASE_WORD.findall(text.lower().encode("utf-8", "replace"))
    firsts = map(crc32, words)
    return [crc32(second, first) % 0xFFFFFF + 1 for first, second in zip(firsts, words[1:], strict=False)]


def choose_lines(lines: Iterable[str], *, most: int = MAX_LINES) -> tuple[bytes, ...]:
    """Return the hashes of telling lines, taken evenly from all of them.

    A sample from one place would say nothing about the rest of an edit.
    """
    return tuple(map(hash_line, _take_evenly(_telling_lines(lines), most)))


def choose_edit_lines(files: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Return telling lines of an edit by path, the largest files first.

    They are taken evenly from the whole edit: a file with most of its lines decides most, and the share of the chosen
    lines that is left is about the share of all lines that is left.
    """
    telling = {path: telling_lines for path, lines in files.items() if (telling_lines := _telling_lines(lines))}
    largest = sorted(telling, key=lambda path: -len(telling[path]))[:MAX_EDIT_FILES]
    part = min(1.0, MAX_EDIT_LINES / max(1, sum(len(telling[path]) for path in largest)))
    return {path: _take_evenly(telling[path], max(1, round(len(telling[path]) * part))) for path in largest}


def _telling_lines(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(stripped for line in lines if is_telling(stripped := line.strip())))


def _take_evenly(items: Sequence[T], most: int) -> list[T]:
    step = max(1.0, len(items) / most)
    return [items[int(index * step)] for index in range(min(most, len(items)))]


def choose_phrases(lines: Sequence[str], most: int) -> tuple[int, ...]:
    """Return hashes of phrases of these lines: as many of each, or one of some of the lines if there are many.

    A phrase of several lines says nothing about one of them. `phrase_lines` tells which line has which. A line with
    fewer phrases has `NO_PHRASE` instead.
    """
    all_phrases = [_phrases(line) for line in lines]
    counts = Counter(phrase for phrases in all_phrases for phrase in set(phrases))
    by_line = [[phrase for phrase in dict.fromkeys(phrases) if counts[phrase] == 1] for phrases in all_phrases]
    if not any(by_line):
        return ()
    each = min(most // len(lines), max(map(len, by_line)))
    if each == 0:
        count = min(most, len(lines))
        middles = [by_line[number] for number in phrase_lines(len(lines), count)]
        return tuple(phrases[len(phrases) // 2] if phrases else NO_PHRASE for phrases in middles)
    samples = [_take_evenly(phrases, each) for phrases in by_line]
    return tuple(phrase for some in samples for phrase in (*some, *[NO_PHRASE] * (each - len(some))))


def phrase_lines(lines: int, phrases: int) -> list[int]:
    """Return for each phrase of an anchor with this many lines the number of its line."""
    return [number * lines // phrases for number in range(phrases)]


def select_phrases(phrases: Sequence[int], count: int, lines: int) -> int:
    """Return the phrases of some lines of an anchor, both as bit sets. `count`: how many lines it has."""
    if not lines:
        return 0
    numbers = phrase_lines(count, len(phrases))
    return sum(1 << bit for bit, line in enumerate(numbers) if lines >> line & 1 and phrases[bit] != NO_PHRASE)


def is_telling(line: str) -> bool:
    """Return whether a stripped line is likely to occur only where it was written."""
    return len(line) >= MIN_CHARS and len(_WORD.findall(line)) >= 2 and not _PLAIN.match(line)


def mention_lines(lines: Iterable[str], names: Collection[str]) -> list[str]:
    """Return the lines that contain one of the names."""
    return [line for line in lines if any(name in line for name in names)]


def judge(sightings: Sequence[Sighting], *, kind: str = EDIT, is_partial: bool = False) -> Freshness:
    """Return the freshness of a memory from a look at each of its anchors.

    A removal holds while the removed lines are absent. The lines of what was only read are a sample of its
    surroundings: their change is reported as partial, and only a missing file makes such a memory stale. Of one or two
    lines that are not there, nothing is concluded. Lines whose phrases are mostly there were reworded, not replaced.
    `is_partial`: the sightings are of the lines that were committed, and most of the work was not.
    """
    total, present = sum(item.total for item in sightings), sum(item.present for item in sightings)
    if not total:
        return Freshness.UNKNOWN
    if kind == REMOVAL:
        return Freshness.OUTDATED if present > total * OUTDATED_SHARE else Freshness.CURRENT
    if not any(item.exists for item in sightings):
        return Freshness.GONE
    share = present / total
    if share < CURRENT_SHARE and total < MIN_LINES:
        return Freshness.UNKNOWN
    if share < OUTDATED_SHARE and kind == EDIT:
        return Freshness.REWORKED if _is_reworded(sightings, share) else Freshness.OUTDATED
    if share < CURRENT_SHARE or is_partial:
        return Freshness.PARTLY
    return Freshness.MOVED if any(item.moved_to for item in sightings) else Freshness.CURRENT


def _is_reworded(sightings: Sequence[Sighting], share: float) -> bool:
    """Return whether at least half of what the lines say is still there: a share of them, and phrases of the others."""
    phrases, present = sum(item.phrases for item in sightings), sum(item.phrases_present for item in sightings)
    return phrases >= MIN_LINES and share + (1 - share) * present / phrases >= OUTDATED_SHARE


def is_committed(counts: Iterable[tuple[int, int]]) -> bool:
    """Return whether work was committed, from the number of its lines in each file and of those that a commit has had.

    A third of all lines shows it, or half of those in one file: agents often edit more than is committed in the end.
    """
    files = list(counts)
    total, committed = sum(total for total, _ in files), sum(committed for _, committed in files)
    in_one_file = any(committed * 2 >= total >= MIN_LINES for total, committed in files)
    is_enough = committed >= min(total, MIN_LINES) and committed >= total * COMMITTED_SHARE
    return total > 0 and (in_one_file or is_enough)


def is_replaced(counts: Sequence[tuple[int, int]]) -> bool:
    """Return whether an edit replaced what a memory speaks of.

    `counts` has the number of the memory's lines in each file, and of those that the edit dropped. What the memory says
    of a file that kept its lines still holds.
    """
    total, dropped = sum(total for total, _ in counts), sum(dropped for _, dropped in counts)
    is_enough = dropped >= MIN_LINES and dropped >= total * REPLACED_SHARE
    return is_enough and all(in_file * 2 >= lines for lines, in_file in counts)


def is_removal(added: int, removed: int) -> bool:
    """Return whether an edit mostly removed lines."""
    return removed >= MIN_LINES and removed >= added * REMOVAL_RATIO


def judge_command(*, was_failing: bool, worked_at: int, failed_at: int) -> Freshness:
    """Return whether a memory that a command fails, or works, still holds, from when it last did either since; 0 if it
    did not."""
    if not (worked_at or failed_at):
        return Freshness.UNKNOWN
    fails_now = failed_at > worked_at
    return Freshness.CURRENT if fails_now == was_failing else Freshness.OUTDATED


def match_lines(lines: Sequence[T], present: Collection[T]) -> int:
    """Return which of the lines, or phrases, are present, as a bit set."""
    return sum(1 << index for index, line in enumerate(lines) if line in present)


def pack_lines(lines: Sequence[bytes]) -> bytes:
    """Return the hashes as one value for a column."""
    return b"".join(lines)


@lru_cache(maxsize=2_048)  # a session start reads the same anchors twice
def unpack_lines(packed: bytes) -> tuple[bytes, ...]:
    """Return the hashes of a column."""
    return struct.unpack(f"{HASH_BYTES}s" * (len(packed) // HASH_BYTES), packed)


def pack_phrases(phrases: Sequence[int]) -> bytes:
    """Return the hashes as one value for a column."""
    return b"".join(phrase.to_bytes(PHRASE_BYTES) for phrase in phrases)


@lru_cache(maxsize=2_048)
def unpack_phrases(packed: bytes) -> tuple[int, ...]:
    """Return the hashes of a column."""
    return tuple(int.from_bytes(packed[start : start + PHRASE_BYTES]) for start in range(0, len(packed), PHRASE_BYTES))
