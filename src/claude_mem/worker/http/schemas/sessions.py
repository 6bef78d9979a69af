"""Sessions: to read them, and for editors to report what happens in them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from claude_mem.domain.session_reports import (
    ActiveSession,
    BackfillActivity,
    JobKindCounts,
    RawEvent,
    RetryingJob,
    RunningJob,
    SessionDetails,
    Story,
)
from claude_mem.worker.http.endpoints import ById, Endpoint, NoFields, Offset, Page, PageSize, PathId, Wire

MAX_TURNS, MAX_EVENTS = 50, 200

# --- reading ---------------------------------------------------------------------------------------------------------


class SessionsQuery(msgspec.Struct, frozen=True):
    """Which sessions to list: of a project by name or id, of an agent."""

    limit: PageSize = 20
    offset: Offset = 0
    project: str = ""
    project_id: Offset = 0
    host: str = ""


class StoryQuery(msgspec.Struct, frozen=True):
    """Which turns of a session to show: `limit` of them, after the first `from`."""

    id: PathId
    from_: Offset = msgspec.field(default=0, name="from")
    limit: Annotated[int, Meta(ge=1, le=MAX_TURNS)] = 10


class EventsQuery(msgspec.Struct, frozen=True):
    """Which events of a session to show: of one turn, or of all."""

    id: PathId
    turn: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    from_: Offset = msgspec.field(default=0, name="from")
    limit: Annotated[int, Meta(ge=1, le=MAX_EVENTS)] = 50


class EventsPage(msgspec.Struct, frozen=True):
    """A part of the events."""

    items: list[RawEvent]
    has_more: bool = msgspec.field(name="hasMore")
    from_: int = msgspec.field(name="from")
    limit: int


class QueueState(msgspec.Struct, frozen=True):
    """The number of jobs by state, and by kind."""

    waiting: int
    retrying: int
    dead: int
    running: int
    kinds: list[JobKindCounts]


class Activity(msgspec.Struct, frozen=True):
    """Active sessions, jobs that run, wait or failed, the spool, a running back-fill."""

    at: int
    sessions: list[ActiveSession]
    working: list[RunningJob]
    queue: QueueState
    troubles: list[RetryingJob]
    set_aside: int
    backfill: BackfillActivity | None
    spool: int


# --- events reported by editors --------------------------------------------------------------------------------------

Folder = Annotated[str, Wire(limit=4096)]
ProjectName = Annotated[str, Wire(limit=100)]
SessionName = Annotated[str, Wire(also=("content_session_id", "claudeSessionId", "sessionId", "session_id"))]
Prompt = Annotated[str, Wire(also=("userPrompt", "user_prompt"))]
Message = Annotated[str, Wire(also=("lastAssistantMessage",))]
ToolName = Annotated[str, Wire(also=("toolName",), limit=200)]
ToolInput = Annotated[Any, Wire(also=("toolInput",))]
ToolResponse = Annotated[Any, Wire(also=("tool_output", "toolResponse"))]
ToolUseId = Annotated[str, Wire(also=("toolUseId",), limit=200)]
Host = Annotated[str, Wire(also=("host",), limit=40)]


class ReportedPrompt(msgspec.Struct, frozen=True):
    """A prompt in a session, which is known by the agent's own id, and the folder or the name of the project."""

    session: SessionName = msgspec.field(name="contentSessionId")
    prompt: Prompt = ""
    cwd: Folder = ""
    project: ProjectName = ""
    host: Host = msgspec.field(default="api", name="platformSource")


class PromptById(msgspec.Struct, frozen=True):
    """A prompt in a known session."""

    id: PathId
    prompt: Prompt = ""
    cwd: Folder = ""
    project: ProjectName = ""


class PromptReceived(msgspec.Struct, frozen=True):
    """The session and the number of the prompt, and why it was skipped."""

    session_id: int | None = msgspec.field(name="sessionDbId")
    prompt_number: int | None = msgspec.field(name="promptNumber")
    skipped: bool
    reason: str | None
    status: str


class ReportedToolUse(msgspec.Struct, frozen=True):
    """A tool call in a session."""

    session: SessionName = msgspec.field(name="contentSessionId")
    tool_name: ToolName
    tool_input: ToolInput = None
    tool_response: ToolResponse = None
    tool_use_id: ToolUseId = ""
    cwd: Folder = ""
    project: ProjectName = ""
    host: Host = msgspec.field(default="api", name="platformSource")


class ToolUseById(msgspec.Struct, frozen=True):
    """A tool call in a known session."""

    id: PathId
    tool_name: ToolName
    tool_input: ToolInput = None
    tool_response: ToolResponse = None
    tool_use_id: ToolUseId = ""
    cwd: Folder = ""
    project: ProjectName = ""


class ReportedStop(msgspec.Struct, frozen=True):
    """The end of a turn, with the agent's closing message."""

    session: SessionName = msgspec.field(name="contentSessionId")
    last_assistant_message: Message = ""
    cwd: Folder = ""
    project: ProjectName = ""
    host: Host = msgspec.field(default="api", name="platformSource")


class StopById(msgspec.Struct, frozen=True):
    """The end of a turn in a known session."""

    id: PathId
    last_assistant_message: Message = ""
    cwd: Folder = ""
    project: ProjectName = ""


class ReportedEnd(msgspec.Struct, frozen=True):
    """The end of a session."""

    session: SessionName = msgspec.field(name="contentSessionId")
    reason: Annotated[str, Wire(limit=100)] = ""
    cwd: Folder = ""
    project: ProjectName = ""
    host: Host = msgspec.field(default="api", name="platformSource")


class Queued(msgspec.Struct, frozen=True):
    """Whether an event was queued or skipped, and why; the number of events that wait."""

    status: str
    reason: str | msgspec.UnsetType = msgspec.UNSET
    queue_length: int | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="queueLength")


class ProcessingReport(msgspec.Struct, frozen=True):
    """Whether an editor is working."""

    is_processing: bool = msgspec.field(default=False, name="isProcessing")
    project: ProjectName = ""


class ProcessingNoted(msgspec.Struct, frozen=True):
    """What was noted."""

    status: str
    is_processing: bool = msgspec.field(name="isProcessing")


class SessionStatus(SessionDetails, frozen=True):
    """A session under the field names of older clients, and the number of its pending events and turns."""

    session_id: int = msgspec.field(name="sessionDbId")
    content_session: str = msgspec.field(name="contentSessionId")
    memory_session: str | None = msgspec.field(name="memorySessionId")
    prompt_number: int = msgspec.field(name="promptNumber")
    queue_length: int = msgspec.field(name="queueLength")


class SessionFailed(msgspec.Struct, frozen=True):
    """The session that was marked as failed. `kept`: nothing of it is deleted."""

    status: str
    session_id: int = msgspec.field(name="sessionDbId")
    kept: bool


SHOW_SESSION_STATUS = Endpoint("GET", "/sessions/{id}", ById, SessionStatus)
DELETE_SESSION = Endpoint("DELETE", "/sessions/{id}", ById, SessionFailed)
SHOW_SESSION_STATUS_TOO = Endpoint("GET", "/sessions/{id}/status", ById, SessionStatus)
INIT_BY_ID = Endpoint("POST", "/sessions/{id}/init", PromptById, PromptReceived)
ADD_TOOL_USE_BY_ID = Endpoint("POST", "/sessions/{id}/observations", ToolUseById, Queued)
SUMMARIZE_BY_ID = Endpoint("POST", "/sessions/{id}/summarize", StopById, Queued)
LIST_SESSIONS = Endpoint("GET", "/api/sessions", SessionsQuery, Page[SessionDetails])
INIT = Endpoint("POST", "/api/sessions/init", ReportedPrompt, PromptReceived)
ADD_TOOL_USE = Endpoint("POST", "/api/sessions/observations", ReportedToolUse, Queued)
SUMMARIZE = Endpoint("POST", "/api/sessions/summarize", ReportedStop, Queued)
COMPLETE = Endpoint("POST", "/api/sessions/complete", ReportedEnd, Queued)
REPORT_PROCESSING = Endpoint("POST", "/api/processing", ProcessingReport, ProcessingNoted)
SHOW_STORY = Endpoint("GET", "/api/session/{id}/story", StoryQuery, Story)
SHOW_EVENTS = Endpoint("GET", "/api/session/{id}/events", EventsQuery, EventsPage)
SHOW_ACTIVITY = Endpoint("GET", "/api/now", NoFields, Activity)
