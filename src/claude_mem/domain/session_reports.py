"""Sessions and what happened in them: records that are selected from storage and answered as they are."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

# --- sessions and turns ----------------------------------------------------------------------------------------------


class SessionDetails(msgspec.Struct, frozen=True):
    """A session with its counts."""

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
    observations: int
    model_tokens: int
    cost: int


class TurnRecord(msgspec.Struct, frozen=True):
    """A turn as it is stored."""

    id: int
    number: int
    private: int
    opened_at: int
    closed_at: int | None
    closed_by: str | None
    digested_at: int | None


class OpenTurn(msgspec.Struct, frozen=True):
    """A turn that has not ended, and the time of its last event."""

    id: int
    session_id: int
    last_at: int


class EventLine(msgspec.Struct, frozen=True):
    """An event without its content."""

    seq: int
    at: int
    source: str
    event_id: str
    turn_id: int | None
    kind: str
    tool_use_id: str | None
    origin: str
    tool: str | None
    failed: int


class RawEvent(msgspec.Struct, frozen=True):
    """An event with its content."""

    seq: int
    turn_id: int | None
    kind: str
    at: int
    tool_use_id: str | None
    source: str
    body: Any


# --- the story of a session ------------------------------------------------------------------------------------------


class StoryCounts(msgspec.Struct, frozen=True):
    """What a session has. `events_gone`: events that were purged."""

    turns: int
    private: int
    events: int
    observations: int
    events_gone: int


class StorySession(msgspec.Struct, frozen=True):
    """A session with its counts and what its requests to models cost."""

    id: int
    title: str | None
    subtitle: str | None
    host: str
    content_session_id: str
    status: str
    cwd: str
    started_at: int
    last_event_at: int
    ended_at: int | None
    project_id: int
    project: str
    requests: int
    model_tokens: int
    cost: int
    counts: StoryCounts


class StoryTurnRow(msgspec.Struct, frozen=True):
    """A turn of a story as it is stored."""

    id: int
    number: int
    private: int
    opened_at: int
    last_at: int
    closed_at: int | None
    closed_by: str | None
    digested_at: int | None
    events_gone: int


class OutlineLine(msgspec.Struct, frozen=True):
    """A turn in the outline."""

    number: int
    opened_at: int
    private: int
    text: str | None


class StoryPrompt(msgspec.Struct, frozen=True):
    """The prompt of a turn."""

    id: int
    text: str


class StorySummary(msgspec.Struct, frozen=True):
    """The summary of a turn. `closing_held`: the origin of a closing message that is not injected."""

    id: int
    request: str | None
    investigated: str | None
    learned: str | None
    completed: str | None
    next_steps: str | None
    notes: str | None
    closing: str
    closing_trust: str
    outcome: str
    verdict: str
    closing_held: str


class StoryObservation(msgspec.Struct, frozen=True):
    """An observation of a turn."""

    id: int
    type: str
    title: str | None
    subtitle: str | None
    trust: str
    pinned: int
    verdict: str
    commit_id: str | None
    tokens: int | None
    created_at: int
    superseded_by: int | None
    validity: str = ""
    work_outcome: str = ""


class StoryFile(msgspec.Struct, frozen=True):
    """How often a file was edited and read; null if it is not known."""

    path: str
    edited: int | None
    read: int | None


class StoryCommit(msgspec.Struct, frozen=True):
    """A commit that was made."""

    id: str
    subject: str
    branch: str


class FixPoint(msgspec.Struct, frozen=True):
    """The turn in which a command passed again, and when."""

    turn: int
    at: int


class StoryFailure(msgspec.Struct, frozen=True):
    """A command that failed, and where it passed again."""

    command: str
    error: str
    at: int
    fixed: FixPoint | None


class TurnUsage(msgspec.Struct, frozen=True):
    """The requests to models about a turn."""

    requests: int
    tokens: int
    cost: int


class InjectedItem(msgspec.Struct, frozen=True):
    """A file, call or memory of an injection, and whether the session used it (null: unknown) and how."""

    kind: str
    used: bool | None
    how: str
    path: str | UnsetType = UNSET
    id: int | UnsetType | None = UNSET
    type: str | UnsetType | None = UNSET
    title: str | UnsetType = UNSET


class StoryInjection(msgspec.Struct, frozen=True):
    """What was injected at one moment; `held_out`: what would have been, in a moment that stayed silent."""

    id: int
    moment: str
    about: str
    at: int
    tokens: int
    items: list[InjectedItem]
    held_out: bool = False


class StoryTurn(msgspec.Struct, frozen=True):
    """A turn. Of a private one nothing is shown but its times."""

    id: int
    number: int
    opened_at: int
    last_at: int
    closed_at: int | None
    closed_by: str | None
    private: bool
    digested: bool
    told: list[StoryInjection]
    prompt: StoryPrompt | UnsetType | None = UNSET
    summary: StorySummary | UnsetType | None = UNSET
    observations: list[StoryObservation] | UnsetType = UNSET
    files: list[StoryFile] | UnsetType = UNSET
    commits: list[StoryCommit] | UnsetType = UNSET
    failures: list[StoryFailure] | UnsetType = UNSET
    spent: TurnUsage | UnsetType = UNSET
    events: int | UnsetType = UNSET
    events_gone: int | UnsetType = UNSET
    whole: bool | UnsetType = UNSET


class Story(msgspec.Struct, frozen=True):
    """A session and a page of its turns. The first page has an outline of all turns."""

    session: StorySession
    told_at_start: list[StoryInjection]
    turns: list[StoryTurn]
    from_: int = msgspec.field(name="from")
    limit: int
    has_more: bool = msgspec.field(name="hasMore")
    outline: list[OutlineLine] | UnsetType = UNSET


# --- current activity ------------------------------------------------------------------------------------------------


class LastEvent(msgspec.Struct, frozen=True):
    """Kind and tool of an event."""

    at: int
    kind: str
    tool: str | None


class ActiveSession(msgspec.Struct, frozen=True):
    """A session that is active, its last turn and its last event."""

    id: int
    title: str | None
    host: str
    project_id: int
    project: str
    status: str
    started_at: int
    last_event_at: int
    turn: int | None
    private: bool
    since: int | None
    open: bool
    last_event: LastEvent | None


class RunningJob(msgspec.Struct, frozen=True):
    """A job in progress, and the session and turn it is about."""

    kind: str
    attempts: int
    session_id: int | None
    turn: int | None
    title: str | None


class JobKindCounts(msgspec.Struct, frozen=True):
    """How many jobs of a kind wait, wait for a retry, and are dead letters."""

    kind: str
    waiting: int
    retrying: int
    dead: int


class RetryingJob(msgspec.Struct, frozen=True):
    """A job that will be retried."""

    id: int
    kind: str
    attempts: int
    due_at: int
    error: str


class BackfillActivity(msgspec.Struct, frozen=True):
    """The progress of the running back-fill."""

    files: int
    done: int
    bytes: int
    bytes_done: int
    digesting: int
