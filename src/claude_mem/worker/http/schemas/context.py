"""Injections, search and the timeline."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from claude_mem.domain.memory_items import MemoryItem
from claude_mem.domain.validity import CHANGED, Validity
from claude_mem.worker.http.endpoints import Date, EndDate, Endpoint, Page, PageSize, Path, Wire, Words, read_words

# A memory as it is stored: its fields depend on its kind (`observation`, `summary`, `prompt` or `turn`).
Depth = Annotated[int, Meta(ge=0, le=50)]
Format = Literal["", "json", "text"]


def _read_validities(value: object) -> tuple[str, ...]:
    """Return validities to filter by. `changed` stands for all by which something has changed about a memory."""
    names = read_words(value)
    if set(names) - {*filter(None, Validity), "changed"}:
        raise ValueError(value)
    return tuple(dict.fromkeys(item for name in names for item in (CHANGED if name == "changed" else (name,))))


Validities = Annotated[
    tuple[str, ...],
    Wire(
        read=_read_validities,
        expects="of changed, " + ", ".join(filter(None, Validity)) + ", with commas between them",
        schema={"type": "string"},
    ),
]


class StartContextQuery(msgspec.Struct, frozen=True):
    """Whose start context: that of a folder, or of projects by name, of which the last is the session's own."""

    cwd: Path = ""
    project: Words = ()
    projects: Words = ()


class ContextAtQuery(msgspec.Struct, frozen=True):
    """Whose start context, and the commit at which the work tree is."""

    at: str
    cwd: Path = ""
    project: Annotated[str, Wire(limit=200)] = ""


class ContextAt(msgspec.Struct, frozen=True):
    """The start context at a commit."""

    project: str
    commit: str
    context: str


class PromptQuery(msgspec.Struct, frozen=True):
    """A prompt, and the project or the folder in which it is given."""

    query: Annotated[str, Wire(also=("query", "prompt"), limit=20_000)] = msgspec.field(name="q")
    project: Annotated[str, Wire(limit=200)] = ""
    limit: Annotated[int, Meta(ge=1, le=50)] = 5
    cwd: Annotated[str, Wire(limit=4_096)] = ""


class PromptContext(msgspec.Struct, frozen=True):
    """What would be injected, and the memories that were found."""

    context: str
    count: int
    items: list[MemoryItem]


class SearchQuery(msgspec.Struct, frozen=True):
    """A search. `typing`: its last word may be incomplete; `explain`: say why each result was found; `group`:
    one item per file or session, with its best results as `items`."""

    query: Annotated[str, Wire(also=("q",), limit=20_000)] = ""
    limit: PageSize = 20
    offset: Annotated[int, Meta(ge=0, le=10_000)] = 0
    project: str = ""
    project_id: Annotated[int, Meta(ge=0, le=10**15)] = 0
    kind: Annotated[Words, Wire(also=("type",))] = ()
    obs_type: Words = ()
    concepts: Words = ()
    validity: Validities = ()
    files: Words = ()
    since: Date | None = msgspec.field(default=None, name="dateStart")
    until: EndDate | None = msgspec.field(default=None, name="dateEnd")
    host: str = ""
    session: str = ""
    order: Literal["", "relevance", "date_desc", "date_asc"] = msgspec.field(default="", name="orderBy")
    format: Format = ""
    group: Literal["", "file", "session"] = ""
    explain: bool = False
    typing: bool = False


class TimelineQuery(msgspec.Struct, frozen=True):
    """The point to show (an ID, S12, P12 or a date), or words whose best result it is, and how much around it."""

    anchor: str = ""
    query: str = ""
    before: Depth = msgspec.field(default=5, name="depth_before")
    after: Depth = msgspec.field(default=5, name="depth_after")
    project: str = ""
    format: Format = ""


class TimelineAnchor(msgspec.Struct, frozen=True):
    """The point that a timeline is about; without a kind, only a time."""

    kind: str
    id: int
    at: int


class TimelinePage(msgspec.Struct, frozen=True):
    """What happened around a point."""

    items: list[MemoryItem]
    anchor: TimelineAnchor


PREVIEW_PROMPT = Endpoint("POST", "/api/context/semantic", PromptQuery, PromptContext)
SEARCH = Endpoint("GET", "/api/search", SearchQuery, Page[MemoryItem], or_text=True)
SHOW_TIMELINE = Endpoint("GET", "/api/timeline", TimelineQuery, TimelinePage, or_text=True)
SHOW_START_CONTEXT = Endpoint("GET", "/api/context/inject", StartContextQuery, str, media_type="text/plain")
PREVIEW_START_CONTEXT = Endpoint("GET", "/api/context/preview", StartContextQuery, str, media_type="text/plain")
SHOW_CONTEXT_AT_COMMIT = Endpoint("GET", "/api/context/at", ContextAtQuery, ContextAt)
