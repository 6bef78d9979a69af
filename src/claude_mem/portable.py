"""The export format: JSON Lines, each line one record that says what it is.

A header, then projects, sessions, prompts, observations and summaries, then a line that says how many there were.
A record names its project, session and prompt by what they are called everywhere, never by the number of a row, so a
file can be read into any database, in any part, any number of times. A database of the older claude-mem is read as
the same records.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec

from claude_mem.errors import BadRecord, TooNew
from claude_mem.text import LATEST, safe_json

FORMAT = 1
IMPORTED = "import"  # the trust and, where nothing better is known, the provider of what came from elsewhere

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
    """`project` is the identity by which the other records of the file name it."""

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
    """Without a session: saved by hand. Its key names it within its turn or, without one, everywhere."""

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
    """The last line. A file without it was cut off."""

    records: int


@dataclass(slots=True)
class Batch:
    """A part of a file or of another's database: the records in it, and what could not be made one, by reason and kind.

    `position` is where the next part begins, None after the last; `done` of `total` is how far that is.
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
# What people and agents wrote: it is cleaned on the way in, like everything that is stored.
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
    """A record as a line of an export. Nothing in it drives a terminal that shows the file."""
    return safe_json(_ENCODE.encode(record).decode()).encode() + b"\n"


def read(raw: bytes) -> Header | Item | End:
    """One line; `BadRecord` says what is wrong with it."""
    try:
        return _DECODE.decode(raw)
    except RecursionError:
        raise BadRecord("bad line", "nested too deep") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRecord("bad line", str(error)) from error


def read_header(raw: bytes) -> Header | None:
    """The first line, if it is that of an export. It is read more loosely: a newer format may have more in it."""
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("record") != "claude-mem" or not isinstance(found.get("format"), int):
        return None
    if found["format"] > FORMAT:
        raise TooNew(
            f"the export is of format {found['format']}, this program knows {FORMAT}",
            hint="import it with a newer claude-mem",
        )
    return Header(format=found["format"], program=str(found.get("program", "")))
