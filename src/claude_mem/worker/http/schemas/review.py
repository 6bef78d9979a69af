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


class OutdatedName(msgspec.Struct, frozen=True):
    """A name that a commit has removed since the line was written. `was`: where it was; `now`: what it is called now,
    if that is known; `subject`: of the commit."""

    kind: str
    name: str
    was: str
    now: str
    commit: str
    subject: str


class OutdatedStatement(msgspec.Struct, frozen=True):
    """A line of an instruction file that no longer holds. `replacement` is what is proposed: null to delete it."""

    file: str
    line: int
    text: str
    problems: list[OutdatedName]
    has_proposal: bool
    replacement: str | None


class InstructionReview(msgspec.Struct, frozen=True):
    """Which instruction files were checked, how many of their statements name something that the repository has or had,
    and the lines that no longer hold."""

    files: list[str]
    statements: int
    items: list[OutdatedStatement]


LIST_CHANGED = Endpoint("GET", "/api/review", ReviewQuery, ReviewPage)
LOOK_AGAIN = Endpoint("POST", "/api/review", ReviewedProject, LookedAgain)
REVIEW_INSTRUCTIONS = Endpoint("GET", "/api/review/instructions", ReviewedProject, InstructionReview)
KEEP = Endpoint("POST", "/api/observation/{id}/keep", ById, MemoryItem)
WITHDRAW_KEEP = Endpoint("DELETE", "/api/observation/{id}/keep", ById, MemoryItem)
