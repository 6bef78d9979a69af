"""The review: memories whose code has changed, or that a later one contradicts."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from claude_mem.domain.memory_items import MemoryItem
from claude_mem.worker.http.endpoints import ById, Endpoint, Offset, PageSize, Path, Wire
from claude_mem.worker.http.schemas.context import Validities


class ReviewedProject(msgspec.Struct, frozen=True):
    """A project by its id, its name or a folder."""

    project: Annotated[str, Wire(limit=200)] = ""
    project_id: Annotated[int, Meta(ge=0, le=10**15)] = 0
    cwd: Path = ""


class ReviewQuery(ReviewedProject, frozen=True):
    """A page of what changed under the memories."""

    validity: Validities = ()
    limit: PageSize = 20
    offset: Offset = 0


class ReviewPage(msgspec.Struct, frozen=True):
    """Changed memories, each with its `successor` and when the change was seen, and how many there are of each kind."""

    items: list[MemoryItem]
    counts: dict[str, int]
    has_more: bool = msgspec.field(name="hasMore")
    offset: int
    limit: int


class LookedAgain(msgspec.Struct, frozen=True):
    """How many memories have another state than before."""

    changed: int


LIST_CHANGED = Endpoint("GET", "/api/review", ReviewQuery, ReviewPage)
LOOK_AGAIN = Endpoint("POST", "/api/review", ReviewedProject, LookedAgain)
KEEP = Endpoint("POST", "/api/observation/{id}/keep", ById, MemoryItem)
WITHDRAW_KEEP = Endpoint("DELETE", "/api/observation/{id}/keep", ById, MemoryItem)
