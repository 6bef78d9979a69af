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

from claude_mem.domain.errors import DatabaseTooNew, UnreadableEvent
from claude_mem.domain.text import MAX_TIME_MS, escape_json

FORMAT = 1
IMPORTED_TRUST = "import"  # trust level of imported records and, if unknown, their provider

Time = Annotated[int, msgspec.Meta(ge=0, le=MAX_TIME_MS)]
Number = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]
VerdictValue = Literal["", "approved", "wrong"]
OutcomeValue = Literal["", "done", "partly", "failed", "abandoned", "answered", "proposed"]
Names = Annotated[tuple[str, ...], msgspec.Meta(max_length=1_000)]


class ExportRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="record"):
    pass


class ExportHeader(ExportRecord, frozen=True, kw_only=True, tag="claude-mem"):
    format: int
    program: str = ""


class ProjectRecord(ExportRecord, frozen=True, kw_only=True, tag="project"):
    """`project` is the identity by which the other records of the file refer to it."""

    project: Name
    name: Name
    root: str = ""
    identities: Names = ()
    created_at: Time


class SessionRecord(ExportRecord, frozen=True, kw_only=True, tag="session"):
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


class PromptRecord(ExportRecord, frozen=True, kw_only=True, tag="prompt"):
    host: Name
    session: Name
    project: Name
    prompt_number: Number
    prompt_id: str | None = None
    text: str
    created_at: Time


class ObservationRecord(ExportRecord, frozen=True, kw_only=True, tag="observation"):
    """Without a session, it was saved by hand. `key` is unique within the turn or, without a turn, globally. `kept_at`:
    when a person said that it holds although its code changed or a later one superseded it."""

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
    verdict: VerdictValue = ""
    pinned: bool = False
    kept_at: Time | None = None
    created_at: Time
    updated_at: Time

    def __post_init__(self) -> None:
        if len({self.host is None, self.session is None, self.prompt_number is None}) > 1:
            raise ValueError("`host`, `session` and `prompt_number` belong together")


class SummaryRecord(ExportRecord, frozen=True, kw_only=True, tag="summary"):
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
    outcome: OutcomeValue = ""
    memory_session_id: str | None = None
    provider: Name
    trust: Name = "agent"
    verdict: VerdictValue = ""
    created_at: Time
    updated_at: Time


class ExportEnd(ExportRecord, frozen=True, kw_only=True, tag="end"):
    """The last line. A file without it is truncated."""

    records: int


@dataclass(slots=True)
class ImportBatch:
    """A part of a file or of another program's database: its records, and counts of those that are invalid, by reason
    and kind.

    `position` is where the next part begins, None after the last; `progress` of `total` is the progress.
    """

    records: list[ContentRecord] = field(default_factory=list)
    aside: Counter[tuple[str, str]] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    position: str | None = None
    progress: int = 0
    total: int = 0


ContentRecord = ProjectRecord | SessionRecord | PromptRecord | ObservationRecord | SummaryRecord
RECORD_TYPES: dict[str, type[Any]] = {
    "project": ProjectRecord,
    "session": SessionRecord,
    "prompt": PromptRecord,
    "observation": ObservationRecord,
    "summary": SummaryRecord,
}
# Fields written by users and agents; they are sanitized on import, like everything that is stored.
TEXT_FIELDS = (
    "name", "title", "subtitle", "first_prompt", "text", "narrative", "request", "investigated", "learned", "completed",
    "next_steps", "notes", "type", "model", "cwd", "root",
)  # fmt: skip
LIST_FIELDS = ("facts", "concepts", "files_read", "files_modified", "files_edited")

_ENCODE = msgspec.json.Encoder()
_DECODE: msgspec.json.Decoder[ExportHeader | ContentRecord | ExportEnd] = msgspec.json.Decoder(
    ExportHeader | ProjectRecord | SessionRecord | PromptRecord | ObservationRecord | SummaryRecord | ExportEnd
)


def record_kind(record: ExportRecord) -> str:
    """Return the kind of a record, as in `RECORD_TYPES`."""
    return str(record.__struct_config__.tag)


def encode_line(record: ExportRecord) -> bytes:
    """Encode a record as a line of an export, without characters that control a terminal."""
    return escape_json(_ENCODE.encode(record).decode()).encode() + b"\n"


def decode_line(raw: bytes) -> ExportHeader | ContentRecord | ExportEnd:
    """Decode one line. Raises `UnreadableEvent` with the problem."""
    try:
        return _DECODE.decode(raw)
    except RecursionError:
        raise UnreadableEvent("bad line", "nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadableEvent("bad line", str(error)) from error


def decode_header(raw: bytes) -> ExportHeader | None:
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
        raise DatabaseTooNew(
            f"the export has format {fields['format']}; this version supports up to {FORMAT}",
            hint="upgrade claude-mem, then import it again",
        )
    return ExportHeader(format=fields["format"], program=str(fields.get("program", "")))


def project_from_identity(ref: str) -> ProjectRecord:
    """Return a project record derived from an identity alone."""
    name = ref.partition(":")[2].removesuffix("/.git").rstrip("/").rpartition("/")[2] or ref
    return ProjectRecord(project=ref, name=name, created_at=0)
