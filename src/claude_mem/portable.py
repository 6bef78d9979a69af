"""The export format: JSON Lines, one tagged record per line.

A file consists of a header, then projects, sessions, prompts, observations and summaries, then a line with the number
of records. A record refers to its project, session and prompt by globally valid names, never by row ids, so that a file
can be imported into any database, in any part, any number of times. A database of the older claude-mem is read into the
same records.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec

from claude_mem.errors import BadRecord, TooNew
from claude_mem.text import LATEST, safe_json

FORMAT = 1
IMPORTED = "import"  # trust level of imported records and, if unknown, their provider

Time = Annotated[int, msgspec.Meta(ge=0, le=LATEST)]
Number = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]
Verdict = Literal["", "approved", "wrong"]
Outcome = Literal["", "done", "partly", "failed", "abandoned", "answered", "proposed"]
Names = Annotated[tuple[str, ...], msgspec.Meta(max_length=1_000)]


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="record"):
    pass


class Header(Record, frozen=True, kw_only=True, tag="claude-mem"):
    format: int
    program: str = ""


class Project(Record, frozen=True, kw_only=True, tag="project"):
    """`project` is the identity by which the other records of the file refer to it."""

    project: Name
    name: Name
    root: str = ""
    identities: Names = ()
    created_at: Time


class Session(Record, frozen=True, kw_only=True, tag="session"):
    host: Name
    session: Name
    project: Name
    title: str | None = None
    subtitle: str | None = None
    first_prompt: str | None = None
    status: str = "interrupted"
    cwd: str = ""
    started_at: Time
    last_event_at: Time
    ended_at: Time | None = None


class Prompt(Record, frozen=True, kw_only=True, tag="prompt"):
    host: Name
    session: Name
    project: Name
    prompt_number: Number
    prompt_id: str | None = None
    text: str
    created_at: Time


class Observation(Record, frozen=True, kw_only=True, tag="observation"):
    """Without a session, it was saved by hand. `key` is unique within the turn or, without a turn, globally."""

    project: Name
    host: Name | None = None
    session: Name | None = None
    prompt_number: Number | None = None
    prompt_id: str | None = None
    key: Name
    type: Name
    title: str | None = None
    subtitle: str | None = None
    narrative: str | None = None
    facts: Names = ()
    concepts: Names = ()
    files_read: Names = ()
    files_modified: Names = ()
    commit_id: str | None = None
    memory_session_id: str | None = None
    provider: Name
    model: str | None = None
    trust: Name
    verdict: Verdict = ""
    pinned: bool = False
    created_at: Time
    updated_at: Time

    def __post_init__(self) -> None:
        if len({self.host is None, self.session is None, self.prompt_number is None}) > 1:
            raise ValueError("`host`, `session` and `prompt_number` belong together")


class Summary(Record, frozen=True, kw_only=True, tag="summary"):
    project: Name
    host: Name
    session: Name
    prompt_number: Number
    prompt_id: str | None = None
    request: str | None = None
    investigated: str | None = None
    learned: str | None = None
    completed: str | None = None
    next_steps: str | None = None
    notes: str | None = None
    files_read: Names = ()
    files_edited: Names = ()
    closing: str = ""
    closing_trust: Name = "agent"
    outcome: Outcome = ""
    memory_session_id: str | None = None
    provider: Name
    trust: Name = "agent"
    verdict: Verdict = ""
    created_at: Time
    updated_at: Time


class End(Record, frozen=True, kw_only=True, tag="end"):
    """The last line. A file without it is truncated."""

    records: int


@dataclass(slots=True)
class Batch:
    """A part of a file or of another program's database: its records, and counts of those that are invalid, by reason
    and kind.

    `position` is where the next part begins, None after the last; `done` of `total` is the progress.
    """

    records: list[Item] = field(default_factory=list)
    aside: Counter[tuple[str, str]] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    position: str | None = None
    done: int = 0
    total: int = 0


Item = Project | Session | Prompt | Observation | Summary
KINDS: dict[str, type[Any]] = {
    "project": Project,
    "session": Session,
    "prompt": Prompt,
    "observation": Observation,
    "summary": Summary,
}
# Fields written by users and agents; they are sanitized on import, like everything that is stored.
PROSE = (
    "name", "title", "subtitle", "first_prompt", "text", "narrative", "request", "investigated", "learned", "completed",
    "next_steps", "notes", "type", "model", "cwd", "root",
)  # fmt: skip
LISTS = ("facts", "concepts", "files_read", "files_modified", "files_edited")

_ENCODE = msgspec.json.Encoder()
_DECODE: msgspec.json.Decoder[Header | Item | End] = msgspec.json.Decoder(
    Header | Project | Session | Prompt | Observation | Summary | End
)


def kind(record: Record) -> str:
    return str(record.__struct_config__.tag)


def line(record: Record) -> bytes:
    """Encode a record as a line of an export, without characters that control a terminal."""
    return safe_json(_ENCODE.encode(record).decode()).encode() + b"\n"


def read(raw: bytes) -> Header | Item | End:
    """Decode one line. Raises `BadRecord` with the problem."""
    try:
        return _DECODE.decode(raw)
    except RecursionError:
        raise BadRecord("bad line", "nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRecord("bad line", str(error)) from error


def read_header(raw: bytes) -> Header | None:
    """Decode the first line, or return None if it is not that of an export.

    Unknown fields are ignored, because a newer format may have more.
    """
    try:
        fields = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if (
        not isinstance(fields, dict)
        or fields.get("record") != "claude-mem"
        or not isinstance(fields.get("format"), int)
    ):
        return None
    if fields["format"] > FORMAT:
        raise TooNew(
            f"the export has format {fields['format']}; this version supports up to {FORMAT}",
            hint="upgrade claude-mem, then import it again",
        )
    return Header(format=fields["format"], program=str(fields.get("program", "")))
