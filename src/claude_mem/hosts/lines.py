"""Reads the lines of a transcript, from a given offset to the last complete line, in bounded memory.

The size of a transcript, the length of its lines, the unpacked size of a compressed file and the number of values in a
line are under the control of its author. Each of these is limited here, and all transcript readers use this module.
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
MAX_VALUES = 100_000  # per line: a value may take a hundred bytes of memory, but only two in the file
WHOLE_BYTES = 32 << 20  # unpacked size limit of a file that cannot be read in parts
MAX_DOCUMENT = 16 << 20  # size limit of a file that is a single record
MAX_AGAIN, MAX_AGAIN_BYTES = 200, 8 << 20  # limits for lines of earlier parts that are read again for the next part
LOOK_BACK = 16 << 20  # bytes after which a tool call without a result is given up
_HEAD_LINES, _HEAD_BYTES = 200, 16 << 20
_PIECE = 1 << 20
_TAIL_BYTES = 1 << 16
_SKIPPED_COST = 32  # skipped bytes that count as one parsed byte
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


class TooMuch(Exception):
    """The file exceeds the limit for reading it at once."""


class Line(NamedTuple):
    """A line, or a piece of an oversized one. `goes_on`: the rest follows and is skipped as well."""

    size: int
    raw: bytes
    goes_on: bool = False


@dataclass(slots=True)
class Place:
    """How far a file was read. `inside`: the offset is inside an oversized line. `ended`: all complete lines were
    read."""

    offset: int
    inside: bool = False
    ended: bool = False


def read(
    path: Path, result: Found, take: Callable[[int, Fields], None], *, offset: int = 0, over: bool = False
) -> None:
    """Pass each record and its offset to `take`.

    Sets the offset, the number of unparsable lines and the problem with the file in `result`. See `dialect.Reader` for
    `over`.
    """
    with problems(result), opened(path) as file:
        place = Place(start_of(path, offset))
        feed(file, result, take, place, over=over, most_in_file=place.offset + WHOLE_BYTES)


def start_of(path: Path, offset: int) -> int:
    """Return the offset, or 0 if the file is shorter than that, because it then is another file."""
    return offset if offset <= path.stat().st_size or path.suffix == ".gz" else 0


def feed(
    file: IO[bytes],
    result: Found,
    take: Callable[[int, Fields], None],
    place: Place,
    *,
    over: bool,
    most: int | None = None,
    most_in_file: int | None = None,
) -> None:
    """Read about `most` bytes from a place, and pass each record and its offset to `take`.

    `place` and `result.offset` are moved behind a record before it is passed.
    """
    file.seek(place.offset)
    result.offset, remaining = place.offset, most
    for line in each(file, over=over, inside=place.inside, most=most_in_file):
        start, skipped = place.offset, place.inside
        place.offset = result.offset = start + line.size
        place.inside = line.goes_on
        if not skipped and not _parse_and_take(line.raw, partial(take, start)):
            result.bad_lines += 1
            if not line.raw.endswith(b"\n"):
                result.problem = "truncated"
        if remaining is not None:
            remaining -= line.size // _SKIPPED_COST if skipped else line.size
            if remaining <= 0:
                return
    place.ended = True


def look_back(place: int, unfinished: list[int]) -> int:
    """Return where to continue: at the first unfinished line, unless that is too far back."""
    return min([place, *(line for line in unfinished if line >= place - LOOK_BACK)])


def again(file: IO[bytes], places: list[int]) -> Iterator[tuple[int, Fields]]:
    """Yield the records at these offsets, in order; only the last ones if there are too many."""
    raw: list[tuple[int, bytes]] = []
    for place in reversed(places[-MAX_AGAIN:]):
        file.seek(place)
        raw.append((place, file.readline(MAX_LINE)))
        if sum(len(line) for _, line in raw) > MAX_AGAIN_BYTES:
            break
    for place, line in reversed(raw):
        if fields := record(line):
            yield place, fields


def _parse_and_take(line: bytes, take: Callable[[Fields], None]) -> bool:
    """Parse a line and pass it to `take`. Return False if it cannot be parsed or is nested too deeply."""
    if (fields := record(line)) is None:
        return not line.strip()
    try:
        take(fields)
    except RecursionError:
        return False
    return True


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a transcript, compressed or not. Only regular files are accepted: a pipe or device may be endless."""
    with untrusted_files.opened_transcript(path) as file:
        if path.suffix != ".gz":
            yield file
            return
        with Unpacked(file) as whole:
            yield whole


@contextmanager
def problems(result: Found) -> Iterator[None]:
    """Turn errors of reading a file into `result.problem`."""
    try:
        yield
    except FileNotFoundError:
        result.problem = "gone"
    except IsADirectoryError:
        result.problem = "not_a_file"
    except (TooMuch, untrusted_files.TooLarge):
        result.problem = "huge"
    except untrusted_files.Foreign:
        result.problem = "not_yours"
    except EOFError:
        result.problem = "truncated"
    except zlib.error:
        result.problem = "broken"
    except (OSError, ValueError):
        result.problem = "unreadable"


def each(file: IO[bytes], *, over: bool = False, inside: bool = False, most: int | None = None) -> Iterator[Line]:
    """Yield each complete line.

    An oversized line yields unparsable placeholders, one per piece. A last line without a newline is skipped unless the
    file is `over`. `inside`: start inside an oversized line.
    """
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
    """Read the beginning and the end of a transcript.

    `learn` extracts the session id and the directory from the first records; the last records give the end time.
    """
    result = Found()
    began = ended = 0
    with problems(result), opened(path) as file:
        for line in islice(each(file, over=True), _HEAD_LINES):
            fields = record(line.raw) or {}
            learn(result, fields)
            began = began or milliseconds(fields.get("timestamp"))
            if (result.content_session_id and result.cwd and began) or file.tell() > _HEAD_BYTES:
                break
        for last in reversed(tail(file).splitlines()):
            ended = ended or milliseconds((record(last) or {}).get("timestamp"))
    return Head(result.content_session_id, result.cwd, began, max(began, ended))


def tail(file: IO[bytes]) -> bytes:
    """Return the end of a file. A compressed file has to be read completely for that."""
    if not isinstance(file, Unpacked):
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return file.read(_TAIL_BYTES)
    end = b""
    while piece := file.read(_PIECE):
        end = (end + piece)[-_TAIL_BYTES:]
    return end


def record(line: bytes) -> dict[str, Any] | None:
    """Parse a line into a record, or return None. Lone surrogates and invalid bytes are replaced, not rejected."""
    if has_too_many_values(line):
        return None
    try:
        fields = msgspec.json.decode(line)
    except RecursionError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        try:
            fields = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
    return fields if isinstance(fields, dict) else None


def has_too_many_values(text: bytes, *, most: int = MAX_VALUES) -> bool:
    """Return whether parsed JSON would need far more memory than its text; millions of empty lists need 30 times as
    much."""
    return _max_values(text) > most and _max_values(_STRING.sub(b"", text)) > most


def _max_values(text: bytes) -> int:
    """Return an upper bound of the number of values; separators inside strings are counted too."""
    return sum(text.count(sign) for sign in (b",", b"[", b"{"))
