"""Memories: to list, read, save, correct, forget and approve them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from claude_mem.domain.memory_items import (
    Copy,
    HistoryEntry,
    IndexEntries,
    MemoryItem,
    ObservationOrigin,
    ValidityChange,
)
from claude_mem.domain.session_reports import EventLine, TurnRecord
from claude_mem.worker.http.endpoints import (
    ById,
    Endpoint,
    Items,
    Offset,
    Page,
    PageSize,
    Path,
    PathId,
    RowId,
    RowIds,
    Wire,
)
from claude_mem.worker.http.schemas.context import Validities

# --- listing and reading ---------------------------------------------------------------------------------------------


class MemoriesQuery(msgspec.Struct, frozen=True):
    """A page of memories, of all projects or of one."""

    limit: PageSize = 20
    offset: Offset = 0
    project: str = ""


class ObservationsQuery(MemoriesQuery, frozen=True):
    """A page of observations, of all types or of one."""

    type: str = ""
    validity: Validities = ()


class Ids(msgspec.Struct, frozen=True):
    """Ids of observations."""

    ids: RowIds


class LineQuery(msgspec.Struct, frozen=True):
    """A line of a file in the project of a folder; 0: the whole file."""

    file: str
    cwd: str
    line: Annotated[int, Meta(ge=0, le=10_000_000)] = 0


class LineHistory(msgspec.Struct, frozen=True):
    """The work that wrote a line. `match`: whether it wrote the `line`, lines `near` it, or only the `file`; `total`:
    how many memories there are, of which `items` has the first."""

    file: str
    line: int
    text: str
    match: str
    total: int
    items: list[MemoryItem]


class ByFileQuery(msgspec.Struct, frozen=True):
    """A file of a project, which is given by name or by id."""

    path: str
    project: str = ""
    project_id: Offset = 0
    limit: PageSize = 20


class SessionContent(msgspec.Struct, frozen=True):
    """A whole session. Not a kind of `SessionDetails`, because `observations` are the observations here."""

    id: int
    host: str
    content_session_id: str
    memory_session_id: str | None
    project_id: int
    project: str
    first_prompt: str | None
    prompt_counter: int
    title: str | None
    subtitle: str | None
    status: str
    started_at: int
    last_event_at: int
    ended_at: int | None
    model_tokens: int
    cost: int
    turns: list[TurnRecord]
    events: list[EventLine]
    prompts: list[MemoryItem]
    observations: list[MemoryItem]
    summaries: list[MemoryItem]


class ObservationPage(msgspec.Struct, frozen=True):
    """One observation with its origin and its history. `told`: it may be injected; `held`: why it may not be."""

    observation: MemoryItem
    told: bool
    held: str
    origin: ObservationOrigin
    history: list[HistoryEntry]
    validity: list[ValidityChange]
    types: list[str]


# --- saving and correcting -------------------------------------------------------------------------------------------


class SaveMemory(msgspec.Struct, frozen=True):
    """A memory to save, in the project of that name or of the folder."""

    text: Annotated[str, Wire(limit=20_000)]
    title: Annotated[str, Wire(limit=200)] = ""
    project: Annotated[str, Wire(limit=100)] = ""
    cwd: Path = ""
    type: Annotated[str, Wire(limit=40)] = ""


class MemorySaved(msgspec.Struct, frozen=True):
    """The memory that was saved. `held`: why it needs approval."""

    success: bool
    id: int
    type: str
    title: str
    project: str
    held: str


class ChangeObservation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields to change."""

    id: PathId
    type: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    subtitle: str | UnsetType = UNSET
    narrative: str | UnsetType = UNSET
    facts: list[str] | UnsetType = UNSET
    concepts: list[str] | UnsetType = UNSET


class MergeObservations(msgspec.Struct, frozen=True):
    """Observations to merge into this one."""

    id: PathId
    ids: list[RowId]


class Undone(msgspec.Struct, frozen=True):
    """What was undone, the observations concerned, and this one."""

    undone: str
    ids: list[int]
    observation: MemoryItem


# --- forgetting ------------------------------------------------------------------------------------------------------


class ForgetObservation(msgspec.Struct, frozen=True):
    """The observation to forget. `now`: irreversibly and from every file."""

    id: PathId
    now: Annotated[int, Meta(ge=0, le=1)] = 0


class Forgotten(msgspec.Struct, frozen=True):
    """The observation that was forgotten (until when that can be undone), or erased (all that went with it)."""

    status: Literal["forgotten", "erased"]
    id: int
    ids: list[int] | UnsetType = UNSET
    undo_until: int | UnsetType = UNSET


class GoesWithIt(msgspec.Struct, frozen=True):
    """What a deletion takes with it: index entries, changes, merged observations, and the starts that mention it."""

    index: IndexEntries
    history: int
    merged: list[int]
    starts: list[str]


class DeletionOfOne(msgspec.Struct, frozen=True):
    """What goes with an observation, and which rows about the same thing stay."""

    id: int
    title: str | None
    forgotten: bool
    type: str
    created_at: int
    undo_until: int | None
    project_id: int
    into: int | None
    goes: GoesWithIt
    stays: list[Copy]
    backups: int


# --- approval queue --------------------------------------------------------------------------------------------------


class QueueQuery(msgspec.Struct, frozen=True):
    """A page of the approval queue."""

    limit: PageSize = 20
    offset: Annotated[int, Meta(ge=0, le=100_000)] = 0


class QueueSource(msgspec.Struct, frozen=True):
    """How many memories of one origin wait in a project, and why."""

    trust: str
    project_id: int
    project: str
    count: int
    why: str


class ApprovalQueue(msgspec.Struct, frozen=True):
    """A page of the approval queue, the number of all that wait, and where they come from."""

    items: list[MemoryItem]
    has_more: bool = msgspec.field(name="hasMore")
    offset: int
    limit: int
    total: int
    sources: list[QueueSource]


class JudgeSource(msgspec.Struct, frozen=True):
    """The verdict on everything of one origin in a project."""

    trust: str
    project_id: RowId
    verdict: Literal["approved", "wrong"] = "approved"


class Judged(msgspec.Struct, frozen=True):
    """The number of memories that were judged."""

    count: int


LIST_OBSERVATIONS = Endpoint("GET", "/api/observations", ObservationsQuery, Page[MemoryItem])
LIST_SUMMARIES = Endpoint("GET", "/api/summaries", MemoriesQuery, Page[MemoryItem])
LIST_PROMPTS = Endpoint("GET", "/api/prompts", MemoriesQuery, Page[MemoryItem])
GET_OBSERVATIONS = Endpoint("POST", "/api/observations/batch", Ids, Items[MemoryItem])
EXPLAIN_LINE = Endpoint("GET", "/api/why", LineQuery, LineHistory)
LIST_BY_FILE = Endpoint("GET", "/api/observations/by-file", ByFileQuery, Items[MemoryItem])
SHOW_OBSERVATION = Endpoint("GET", "/api/observation/{id}", ById, MemoryItem)
SHOW_SUMMARY = Endpoint("GET", "/api/summary/{id}", ById, MemoryItem)
SHOW_PROMPT = Endpoint("GET", "/api/prompt/{id}", ById, MemoryItem)
SHOW_SESSION = Endpoint("GET", "/api/session/{id}", ById, SessionContent)
SAVE_MEMORY = Endpoint("POST", "/api/memory/save", SaveMemory, MemorySaved)
CHANGE_OBSERVATION = Endpoint("PATCH", "/api/observation/{id}", ChangeObservation, MemoryItem)
FORGET_OBSERVATION = Endpoint("DELETE", "/api/observation/{id}", ForgetObservation, Forgotten)
PREVIEW_FORGETTING = Endpoint("GET", "/api/observation/{id}/forget", ById, DeletionOfOne)
PIN = Endpoint("POST", "/api/observation/{id}/pin", ById, MemoryItem)
UNPIN = Endpoint("DELETE", "/api/observation/{id}/pin", ById, MemoryItem)
MERGE = Endpoint("POST", "/api/observation/{id}/merge", MergeObservations, MemoryItem)
UNDO = Endpoint("POST", "/api/observation/{id}/undo", ById, Undone)
MARK_WRONG = Endpoint("POST", "/api/observation/{id}/wrong", ById, MemoryItem)
MARK_RIGHT = Endpoint("DELETE", "/api/observation/{id}/wrong", ById, MemoryItem)
APPROVE = Endpoint("POST", "/api/observation/{id}/approve", ById, MemoryItem)
MARK_SUMMARY_WRONG = Endpoint("POST", "/api/summary/{id}/wrong", ById, MemoryItem)
MARK_SUMMARY_RIGHT = Endpoint("DELETE", "/api/summary/{id}/wrong", ById, MemoryItem)
APPROVE_SUMMARY = Endpoint("POST", "/api/summary/{id}/approve", ById, MemoryItem)
SHOW_PAGE = Endpoint("GET", "/api/observation/{id}/page", ById, ObservationPage)
SHOW_RELATED = Endpoint("GET", "/api/observation/{id}/related", ById, Items[MemoryItem])
SHOW_HISTORY = Endpoint("GET", "/api/observation/{id}/history", ById, Items[HistoryEntry])
SHOW_APPROVAL_QUEUE = Endpoint("GET", "/api/quarantine", QueueQuery, ApprovalQueue)
JUDGE_SOURCE = Endpoint("POST", "/api/quarantine", JudgeSource, Judged)
