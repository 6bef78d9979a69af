"""Reads the lines of a transcript, compressed or not, from a given offset to the last complete line.

The size of a transcript, the length of its lines, the unpacked size of a gzip file, the number of its members and the
number of values in a line are under the control of its author: a few kilobytes may unpack to gigabytes. Each of these
is limited here, so that reading takes bounded memory, and all transcript readers use this module. (`gzip.GzipFile` has
no limits.)
"""

from __future__ import annotations

import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, TypeVar

import msgspec

from claude_mem.agents.canonical import Fields, TranscriptContent, TranscriptHead, parse_timestamp
from claude_mem.system import untrusted_files
from claude_mem.system.untrusted_files import FileTooLarge

MAX_LINE_BYTES = 8 << 20
MAX_VALUES = 100_000  # per line: a value may take a hundred bytes of memory, but only two in the file
MAX_WHOLE_FILE_BYTES = 32 << 20  # unpacked size limit of a file that cannot be read in parts
MAX_DOCUMENT_BYTES = 16 << 20  # size limit of a file that is a single record
MAX_REREAD_LINES, MAX_REREAD_BYTES = 200, 8 << 20  # lines of earlier parts that are read again for the next part
LOOK_BACK_BYTES = 16 << 20  # bytes after which a tool call without a result is given up
_HEAD_LINES, _HEAD_BYTES = 200, 16 << 20
_PIECE = 1 << 20
_TAIL_BYTES = 1 << 16
_SKIPPED_COST = 32  # skipped bytes that count as one parsed byte
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
MAX_BYTES = 512 << 20  # unpacked size of a gzip file
MAX_MEMBERS = 10_000  # a gzip file may consist of several members
_SKIP_BYTES = 256 << 10
_INPUT_BYTES = 256  # read at a time; in a damaged file, the data unpacked from the last such piece is lost
_GZIP = 31  # `wbits` for zlib: with gzip header and checksum


class ReadLimitExceeded(Exception):
    """The file exceeds the limit for reading it at once."""


class Line(NamedTuple):
    """A line, or a piece of an oversized one. `goes_on`: the rest follows and is skipped as well."""

    size: int
    raw: bytes
    goes_on: bool = False


@dataclass(slots=True)
class ReadPosition:
    """How far a file was read. `inside`: the offset is inside an oversized line. `ended`: all complete lines were
    read."""

    offset: int
    inside: bool = False
    ended: bool = False


class Mark(msgspec.Struct, kw_only=True):
    """Where a part ended, with the state that the next part needs. Each agent adds fields of its own.

    `inside`: the part ended inside a line that is too long. `lines`: offsets of lines that are read again, such as a
    tool call without a result.
    """

    offset: int = 0
    inside: bool = False
    session: str = ""
    cwd: str = ""
    private: bool = False
    lines: list[int] = []


M = TypeVar("M", bound=Mark)


class RecordReader(Protocol[M]):
    """What turns the records of one agent's transcript into events."""

    transcript: TranscriptContent

    def take(self, start: int, record: dict[str, Any]) -> None:
        """Process the record at offset `start`."""

    def resume_at(self, place: int) -> int:
        """Return the offset of the next read, given where this one ended: the first record that lacks its result."""

    def mark(self, place: ReadPosition) -> M:
        """Return the mark from which the next part continues."""

    def resume(self, mark: M, unfinished: Iterable[tuple[int, dict[str, Any]]]) -> None:
        """Continue where a part ended, after reading its unfinished records again."""

    def drop_open_closing(self) -> None:
        """Drop the closing message of a turn that continues in the next part."""


def read_from(path: Path, reader: RecordReader[M], *, offset: int, over: bool) -> TranscriptContent:
    """Read a transcript from an offset to its end; see `canonical.Reader`."""
    transcript = reader.transcript
    read_records(path, transcript, reader.take, offset=offset, over=over)
    transcript.offset = offset if transcript.problem else reader.resume_at(transcript.offset)
    return transcript


def decode_mark(decoder: msgspec.json.Decoder[M], mark: str, *, offset: int, session: str) -> M:
    """Return the mark as a record, or the start of a file if there is none yet.

    The decoder is made at import: msgspec crashes if two threads are the first to decode a type at the same time.
    """
    start: M = decoder.type(offset=offset, session=session)
    return decoder.decode(mark) if mark else start


def read_part(
    path: Path, reader: RecordReader[M], start: M, *, session: str, most: int, over: bool
) -> tuple[TranscriptContent, str]:
    """Read one part of a transcript; see `canonical.PartReader`."""
    transcript = reader.transcript
    with record_problems(transcript), open_transcript(path) as file:
        if valid_offset(path, start.offset) != start.offset:
            start = type(start)(session=session)
        reader.resume(start, reread_records(file, start.lines))
        place = ReadPosition(start.offset, start.inside)
        read_records_from(file, transcript, reader.take, place, over=over, most=most)
        if not place.ended:
            reader.drop_open_closing()
            return transcript, msgspec.json.encode(reader.mark(place)).decode()
        if not over:
            transcript.offset = reader.resume_at(place.offset)
    return transcript, ""


def read_records(
    path: Path, result: TranscriptContent, take: Callable[[int, Fields], None], *, offset: int = 0, over: bool = False
) -> None:
    """Pass each record and its offset to `take`.

    Sets the offset, the number of unparsable lines and the problem with the file in `result`. See `canonical.Reader`
    for `over`.
    """
    with record_problems(result), open_transcript(path) as file:
        place = ReadPosition(valid_offset(path, offset))
        read_records_from(file, result, take, place, over=over, most_in_file=place.offset + MAX_WHOLE_FILE_BYTES)


def valid_offset(path: Path, offset: int) -> int:
    """Return the offset, or 0 if the file is shorter than that, because it then is another file."""
    return offset if offset <= path.stat().st_size or path.suffix == ".gz" else 0


def read_records_from(
    file: IO[bytes],
    result: TranscriptContent,
    take: Callable[[int, Fields], None],
    place: ReadPosition,
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
    for line in iter_lines(file, over=over, inside=place.inside, most=most_in_file):
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


def resume_offset(place: int, unfinished: list[int]) -> int:
    """Return where to continue: at the first unfinished line, unless that is too far back."""
    return min([place, *(line for line in unfinished if line >= place - LOOK_BACK_BYTES)])


def reread_records(file: IO[bytes], places: list[int]) -> Iterator[tuple[int, Fields]]:
    """Yield the records at these offsets, in order; only the last ones if there are too many."""
    raw: list[tuple[int, bytes]] = []
    for place in reversed(places[-MAX_REREAD_LINES:]):
        file.seek(place)
        raw.append((place, file.readline(MAX_LINE_BYTES)))
        if sum(len(line) for _, line in raw) > MAX_REREAD_BYTES:
            break
    for place, line in reversed(raw):
        if fields := parse_record(line):
            yield place, fields


def _parse_and_take(line: bytes, take: Callable[[Fields], None]) -> bool:
    """Parse a line and pass it to `take`. Return False if it cannot be parsed or is nested too deeply."""
    if (fields := parse_record(line)) is None:
        return not line.strip()
    try:
        take(fields)
    except RecursionError:
        return False
    return True


@contextmanager
def record_problems(result: TranscriptContent) -> Iterator[None]:
    """Turn errors of reading a file into `result.problem`."""
    try:
        yield
    except FileNotFoundError:
        result.problem = "gone"
    except IsADirectoryError:
        result.problem = "not_a_file"
    except (ReadLimitExceeded, FileTooLarge):
        result.problem = "huge"
    except untrusted_files.FileOfOtherUser:
        result.problem = "not_yours"
    except EOFError:
        result.problem = "truncated"
    except zlib.error:
        result.problem = "broken"
    except (OSError, ValueError):
        result.problem = "unreadable"


def iter_lines(file: IO[bytes], *, over: bool = False, inside: bool = False, most: int | None = None) -> Iterator[Line]:
    """Yield each complete line.

    An oversized line yields unparsable placeholders, one per piece. A last line without a newline is skipped unless the
    file is `over`. `inside`: start inside an oversized line.
    """
    while piece := file.readline(_PIECE if inside else MAX_LINE_BYTES):
        if most is not None and file.tell() > most:
            raise ReadLimitExceeded
        size, ends = len(piece), piece.endswith(b"\n")
        goes_on = not ends and (inside or size == MAX_LINE_BYTES)
        if inside or goes_on:
            yield Line(size, b"-\n", goes_on)
        elif ends or over:
            yield Line(size, piece)
        inside = goes_on


def read_head(path: Path, learn: Callable[[TranscriptContent, Fields], None]) -> TranscriptHead:
    """Read the beginning and the end of a transcript.

    `learn` extracts the session id and the directory from the first records; the last records give the end time.
    """
    result = TranscriptContent()
    began = ended = 0
    with record_problems(result), open_transcript(path) as file:
        for line in islice(iter_lines(file, over=True), _HEAD_LINES):
            fields = parse_record(line.raw) or {}
            learn(result, fields)
            began = began or parse_timestamp(fields.get("timestamp"))
            if (result.content_session_id and result.cwd and began) or file.tell() > _HEAD_BYTES:
                break
        for last in reversed(read_tail(file).splitlines()):
            ended = ended or parse_timestamp((parse_record(last) or {}).get("timestamp"))
    return TranscriptHead(result.content_session_id, result.cwd, began, max(began, ended))


def read_tail(file: IO[bytes]) -> bytes:
    """Return the end of a file. A compressed file has to be read completely for that."""
    if not isinstance(file, GzipReader):
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return file.read(_TAIL_BYTES)
    end = b""
    while piece := file.read(_PIECE):
        end = (end + piece)[-_TAIL_BYTES:]
    return end


def parse_record(line: bytes) -> dict[str, object] | None:
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


# --- opening, compressed or not --------------------------------------------------------------------------------------


@contextmanager
def open_transcript(path: Path) -> Iterator[IO[bytes]]:
    """Open a transcript, compressed or not. Only regular files are accepted: a pipe or device may be endless."""
    with untrusted_files.open_transcript(path) as file:
        if path.suffix != ".gz":
            yield file
            return
        with GzipReader(file) as whole:
            yield whole


class _GzipStream(io.RawIOBase):
    """The uncompressed content of a gzip file as a stream, within limits."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self._restart()

    def _restart(self) -> None:
        self.file.seek(0)
        self.position = self.members = 0
        self.rest = b""
        self.stream: zlib._Decompress | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Seek backwards by starting again, and forwards by reading."""
        target = offset if whence == os.SEEK_SET else self.position + offset
        if whence == os.SEEK_END:
            raise io.UnsupportedOperation("the size of a compressed file is unknown")
        if target < self.position:
            self._restart()
        while self.position < target and self._next(min(_SKIP_BYTES, target - self.position)):
            pass
        return self.position

    def readinto(self, buffer: Any) -> int:
        piece = self._next(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def _next(self, size: int) -> bytes:
        """Return up to `size` bytes, or b"" at the end. Raise EOFError if the file is truncated."""
        while True:
            if self.stream is None and not self._next_member():
                return b""
            assert self.stream is not None
            packed = self.rest or self.file.read(_INPUT_BYTES)
            piece = self.stream.decompress(packed, size)
            self.rest = self.stream.unconsumed_tail or self.stream.unused_data
            if self.stream.eof:
                self.stream = None
            elif not piece and not packed:
                raise EOFError("the compressed file is truncated")
            if piece:
                self.position += len(piece)
                if self.position > MAX_BYTES:
                    raise FileTooLarge(f"unpacks to more than {MAX_BYTES >> 20} MB")
                return piece

    def _next_member(self) -> bool:
        """Start the next member; return False if there is none. The last member may be followed by zeros."""
        if self.members:
            self.rest = self.rest.lstrip(b"\0")
        while not self.rest:
            if not (more := self.file.read(_INPUT_BYTES)):
                return False
            self.rest = more.lstrip(b"\0") if self.members else more
        self.members += 1
        if self.members > MAX_MEMBERS:
            raise FileTooLarge(f"consists of more than {MAX_MEMBERS} members")
        self.stream = zlib.decompressobj(_GZIP)
        return True


class GzipReader(io.BufferedReader):
    """Reader for the uncompressed content of a gzip file."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(_GzipStream(file), buffer_size=64 << 10)
