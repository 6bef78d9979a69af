"""The items of the memory as they are listed, found and shown.

An item is a dictionary, because it is passed on as JSON with exactly the fields that were asked for. The types name the
fields, and mypy checks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Required, TypedDict

from claude_mem.domain import anchors
from claude_mem.domain.anchors import Freshness, Outcome
from claude_mem.domain.validity import Validity, judge_validity


@dataclass(frozen=True, slots=True)
class MemoryState:
    """The state of an observation, as far as it is known."""

    freshness: Freshness = Freshness.UNKNOWN
    outcome: Outcome = Outcome.UNKNOWN
    commit_id: str = ""
    paths: tuple[str, ...] = ()
    moved_to: tuple[str, ...] = ()
    superseded_by: int | None = None
    is_confirmed: bool = False  # by a person who saw the code as it is

    @property
    def holds(self) -> bool:
        """Whether the observation may be shown as something that is true now."""
        return self.is_confirmed or (self.freshness not in anchors.ABSENT and self.outcome not in anchors.NOT_DONE)

    @property
    def validity(self) -> Validity:
        """The state in one word."""
        is_superseded = self.superseded_by is not None
        return judge_validity(self.freshness, self.outcome, is_superseded=is_superseded, is_confirmed=self.is_confirmed)


UNKNOWN_STATE = MemoryState()


class MemoryUses(TypedDict):
    """How often an observation was shown and used, at which triggers, and whether it has left the start context."""

    shown: int
    used: int
    contradicted: int
    left: bool
    triggers: list[dict[str, Any]]


class MemoryItem(TypedDict, total=False):
    """An observation, a summary, a prompt or a turn. Which fields it has depends on its kind and on the listing."""

    id: Required[int]
    kind: Required[str]
    created_at: Required[int]
    updated_at: int | None
    project: str
    project_id: int
    session_id: int | None
    content_session_id: str | None
    host: str | None
    turn_id: int | None
    prompt_number: int | None
    # an observation
    key: str
    type: str | None
    title: str | None
    subtitle: str | None
    narrative: str | None
    facts: list[str]
    sources: list[Any]  # the events of each fact; in the approval queue, the sources that the user could trust
    concepts: list[str]
    files_read: list[str]
    files_modified: list[str]
    commit_id: str | None
    pinned: int
    superseded_by: int | None
    # a summary
    request: str | None
    investigated: str | None
    learned: str | None
    completed: str | None
    next_steps: str | None
    notes: str | None
    files_edited: list[str]
    outcome: str
    closing: str | None
    closing_trust: str | None
    writer: int | None
    # a prompt
    text: str
    # where the text of an observation or a summary comes from, and what a person decided
    memory_session_id: str | None
    provider: str | None
    model: str | None
    tokens: int | None
    trust: str | None
    why: str | None
    verdict: str
    uses: MemoryUses  # of an observation in full
    # the state of the code that an observation speaks of
    validity: str
    freshness: str
    work_outcome: str
    work_commit: str
    moved_to: list[str]
    summary_id: int | None  # of the turn, if its summary has the closing message
    # a result of a search, or an entry of the timeline
    document_id: int
    body: str
    files: list[str]
    score: float
    explain: dict[str, Any]
    snippet: str
    # an observation to review
    changed_at: int
    head: str
    successor: Successor | None
    prompt: str
    # a deleted observation
    forgotten: bool
    undo_until: int | None
    into_id: int | None  # the observation that it was merged into


class Successor(TypedDict):
    """The observation that superseded another."""

    id: int
    type: str | None
    title: str | None
    narrative: str | None
    created_at: int


class ObservationEdit(TypedDict, total=False):
    """The fields of an observation that a person or an agent changes."""

    type: str
    title: str
    subtitle: str
    narrative: str
    facts: list[str]
    concepts: list[str]


class HistoryEntry(TypedDict):
    """One change of an observation. `undo`: this is the change that undoing would revert."""

    id: int
    at: int
    what: str
    before: dict[str, Any] | None
    by: str
    undone: bool
    undo: bool


class ValidityChange(TypedDict):
    """When an observation was first seen with a validity, and the title of the one that superseded it."""

    at: int
    validity: str
    superseded_by: int | None
    head: str
    commit_id: str
    successor: str | None


class ObservationEvent(TypedDict):
    """An event that a fact comes from, in one line."""

    seq: int
    kind: str
    at: int
    tool: str | None
    failed: bool
    text: str


class ObservationOrigin(TypedDict):
    """Where an observation comes from. `events_gone`: the events of its turn were purged."""

    project_id: int
    session: dict[str, Any] | None
    turn: dict[str, Any] | None
    prompt: dict[str, Any] | None
    events: list[ObservationEvent]
    events_gone: int


class Copy(TypedDict):
    """A row that repeats an observation, with the number of words that both have."""

    kind: str
    id: int
    shared: int
    words: int


class ApprovalCount(TypedDict):
    """How many items of one trust level and project wait for approval."""

    trust: str
    project_id: int
    project: str
    count: int


class IndexEntries(TypedDict):
    """How many rows of the index belong to an observation."""

    documents: int
    passages: int
    signals: int
    vectors: int


class UndoneChange(TypedDict):
    """What was undone, and the ids of all observations that came back."""

    undone: str
    ids: list[int]


class DocumentSource(TypedDict, total=False):
    """The row that a document of the index is made from, as it is stored: lists are JSON."""

    id: Required[int]
    project_id: Required[int]
    session_id: Required[int | None]
    turn_id: int | None
    created_at: int
    number: int
    last_at: int
    type: str
    title: str | None
    subtitle: str | None
    narrative: str | None
    facts: str
    concepts: str
    files_read: str
    files_modified: str
    files_edited: str
    commit_id: str | None
    prompt: str
    request: str | None
    investigated: str | None
    learned: str | None
    completed: str | None
    next_steps: str | None
    notes: str | None
    closing: str | None
    text: str


class SavedNeighbour(TypedDict):
    """An observation that was saved by hand just before or after another."""

    id: int
    project_id: int
    created_at: int
    title: str | None
    narrative: str | None


class GroupItem(TypedDict):
    """The hits of a search that belong to one file or session: the best ones, and how many there are."""

    group: str
    key: str
    project: str
    score: float
    count: int
    created_at: int
    items: list[MemoryItem]
