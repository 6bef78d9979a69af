"""A transcript's lines, from where it was last read to the last whole one, in bounded memory.

Whoever writes a transcript decides how large it is, how long its lines are, how far a packed one unpacks and how many
values a line has. Each of these has a limit here, and every reader of transcripts reads through this module.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from claude_mem import untrusted_files
from claude_mem.hosts.dialect import Fields, Found, Head, milliseconds
from claude_mem.hosts.packed import Unpacked

MAX_LINE = 8 << 20
MAX_VALUES = 100_000  # of a line: each may take a hundred bytes of memory, and as little as two in the file
WHOLE_BYTES = 32 << 20  # the most of a file that can't be read in parts, unpacked
MAX_DOCUMENT = 16 << 20  # the most of a file that is one record
MAX_AGAIN, MAX_AGAIN_BYTES = 200, 8 << 20  # of lines of earlier parts that are read again for the next
LOOK_BACK = 16 << 20  # bytes: a call that was not answered since is given up
_HEAD_LINES, _HEAD_BYTES = 200, 16 << 20
_PIECE = 1 << 20
_TAIL_BYTES = 1 << 16
_SKIPPED = 32  # bytes of a line that is left out cost as little as one byte that is understood
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


class TooMuch(Exception):
    """More than can be read at once."""


class Line(NamedTuple):
    """A line, or a piece of one that is too long. `goes_on`: its rest follows, and is left out as well."""

    size: int
    raw: bytes
    goes_on: bool = False


@dataclass(slots=True)
class Place:
    """How far a file was read: `inside` a line that is too long, or before a line; `ended`: to its last whole line."""

    offset: int
    inside: bool = False
    ended: bool = False


def read(path: Path, found: Found, take: Callable[[int, Fields], None], *, offset: int = 0, over: bool = False) -> None:
    """Hand over each record with the place where it begins. `found` learns how far that went, how many lines could not
    be understood, and what was wrong with the file. See `dialect.Reader` for `over`."""
    with problems(found), opened(path) as file:
        place = Place(start_of(path, offset))
        feed(file, found, take, place, over=over, most_in_file=place.offset + WHOLE_BYTES)


def start_of(path: Path, offset: int) -> int:
    """Return the offset, or 0 for a file that is shorter than that: it is another file."""
    return offset if offset <= path.stat().st_size or path.suffix == ".gz" else 0


def feed(
    file: IO[bytes],
    found: Found,
    take: Callable[[int, Fields], None],
    place: Place,
    *,
    over: bool,
    most: int | None = None,
    most_in_file: int | None = None,
) -> None:
    """Read on from a place, for about `most` bytes, and hand over each record with where it begins. `place` and
    `found.offset` are behind it by then."""
    file.seek(place.offset)
    found.offset, left = place.offset, most
    for line in each(file, over=over, inside=place.inside, most=most_in_file):
        start, skipped = place.offset, place.inside
        place.offset = found.offset = start + line.size
        place.inside = line.goes_on
        if not skipped and not _taken(line.raw, partial(take, start)):
            found.bad_lines += 1
            if not line.raw.endswith(b"\n"):
                found.problem = "truncated"
        if left is not None:
            left -= line.size // _SKIPPED if skipped else line.size
            if left <= 0:
                return
    place.ended = True


def look_back(place: int, unfinished: list[int]) -> int:
    """Return where to read on: at the first line that is not done with, unless that is too far back."""
    return min([place, *(line for line in unfinished if line >= place - LOOK_BACK)])


def again(file: IO[bytes], places: list[int]) -> Iterator[tuple[int, Fields]]:
    """Yield the records that begin at these places, in order; of too many, the last."""
    raw: list[tuple[int, bytes]] = []
    for place in reversed(places[-MAX_AGAIN:]):
        file.seek(place)
        raw.append((place, file.readline(MAX_LINE)))
        if sum(len(line) for _, line in raw) > MAX_AGAIN_BYTES:
            break
    for place, line in reversed(raw):
        if known := record(line):
            yield place, known


def _taken(line: bytes, take: Callable[[Fields], None]) -> bool:
    """False if it could not be understood, or is nested deeper than anyone can follow."""
    if (known := record(line)) is None:
        return not line.strip()
    try:
        take(known)
    except RecursionError:
        return False
    return True


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a transcript, packed or not. Anything but a regular file is refused: a pipe or a device has no end."""
    with untrusted_files.opened_transcript(path) as file:
        if path.suffix != ".gz":
            yield file
            return
        with Unpacked(file) as whole:
            yield whole


@contextmanager
def problems(found: Found) -> Iterator[None]:
    """Gone, unreadable, or no name a file can have: it tells nothing more, and says why."""
    try:
        yield
    except FileNotFoundError:
        found.problem = "gone"
    except IsADirectoryError:
        found.problem = "not_a_file"
    except (TooMuch, untrusted_files.TooLarge):
        found.problem = "huge"
    except untrusted_files.Foreign:
        found.problem = "not_yours"
    except EOFError:
        found.problem = "truncated"
    except zlib.error:
        found.problem = "broken"
    except (OSError, ValueError):
        found.problem = "unreadable"


def each(file: IO[bytes], *, over: bool = False, inside: bool = False, most: int | None = None) -> Iterator[Line]:
    """Each whole line; in place of one that is too long, something that can't be understood, and then its rest, piece
    by piece. What has no end yet is left, unless the file is over. `inside`: begin within a line that is too long."""
    while piece := file.readline(_PIECE if inside else MAX_LINE):
        if most is not None and file.tell() > most:
            raise TooMuch
        size, ends = len(piece), piece.endswith(b"\n")
        goes_on = not ends and (inside or size == MAX_LINE)
        if inside or goes_on:
            yield Line(size, b"-\n", goes_on)
        elif ends or over:
            yield Line(size, piece)
        inside = goes_on


def head(path: Path, learn: Callable[[Found, Fields], None]) -> Head:
    """A quick look: `learn` looks for the session and its folder in the first records; the last has the last time."""
    found = Found()
    began = ended = 0
    with problems(found), opened(path) as file:
        for line in islice(each(file, over=True), _HEAD_LINES):
            known = record(line.raw) or {}
            learn(found, known)
            began = began or milliseconds(known.get("timestamp"))
            if (found.content_session_id and found.cwd and began) or file.tell() > _HEAD_BYTES:
                break
        for last in reversed(tail(file).splitlines()):
            ended = ended or milliseconds((record(last) or {}).get("timestamp"))
    return Head(found.content_session_id, found.cwd, began, max(began, ended))


def tail(file: IO[bytes]) -> bytes:
    """The end of a file. A packed one has to be gone through."""
    if not isinstance(file, Unpacked):
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return file.read(_TAIL_BYTES)
    kept = b""
    while piece := file.read(_PIECE):
        kept = (kept + piece)[-_TAIL_BYTES:]
    return kept


def record(line: bytes) -> dict[str, Any] | None:
    """One bad line says nothing about the next; half a surrogate or a stray byte is no reason to lose one."""
    if has_too_many_values(line):
        return None
    try:
        found = msgspec.json.decode(line)
    except RecursionError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        try:
            found = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def has_too_many_values(text: bytes, *, most: int = MAX_VALUES) -> bool:
    """Whether JSON would take far more memory than its text: a list of millions of empty lists takes thirty times."""
    return _values(text) > most and _values(_STRING.sub(b"", text)) > most


def _values(text: bytes) -> int:
    """Return how many values there are at most, without regard to strings."""
    return sum(text.count(sign) for sign in (b",", b"[", b"{"))
