"""The values that are passed from one package to the next. They are frozen: a step returns a new value.

Values stored as JSON in a table (event bodies) are tagged msgspec structs, so that reading them back validates them.
Times are milliseconds, UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec


class SessionStarted(msgspec.Struct, frozen=True, tag="session_start"):
    source: str = "startup"


class Prompted(msgspec.Struct, frozen=True, tag="prompt"):
    text: str


class AgentNotice(msgspec.Struct, frozen=True, tag="notice"):
    """A message of the agent program in place of a prompt, such as the end of a background task. Its text is not
    stored."""


class ToolUsed(msgspec.Struct, frozen=True, tag="tool", omit_defaults=True):
    name: str
    input: dict[str, Any]
    output: Any = None
    failed: bool = False
    agent_id: str = ""
    whole: bool = False  # for external content: whether `output` holds everything the agent saw


class Stopped(msgspec.Struct, frozen=True, tag="stop"):
    """The end of a turn, with the agent's closing message, which usually is a summary already."""

    message: str = ""


class SubagentStopped(msgspec.Struct, frozen=True, tag="subagent_stop"):
    message: str = ""
    agent_id: str = ""
    transcript_path: str = ""


class Compacting(msgspec.Struct, frozen=True, tag="compact"):
    trigger: str = ""


class SessionEnded(msgspec.Struct, frozen=True, tag="session_end"):
    reason: str = ""


Body = SessionStarted | Prompted | AgentNotice | ToolUsed | Stopped | SubagentStopped | Compacting | SessionEnded


def body_kind(body: Body) -> str:
    """Return the kind of an event's body, as stored."""
    return str(body.__struct_config__.tag)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened in a session, as an agent reported it."""

    id: str
    host: str
    content_session_id: str
    at: int
    body: Body
    cwd: str = ""
    project: str = ""  # name sent by a client that knows no directory
    prompt_id: str = ""
    tool_use_id: str = ""
    transcript_path: str = ""
    host_pid: int | None = None
    private: bool = False  # the prompt was private as a whole
    origin: str = ""  # where the text comes from; empty: derived from the body
    stripped: bool = False  # private parts were removed before it was received


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of an event. Every event gets exactly one receipt."""

    what: str  # stored | filtered | set_aside
    rule: str = ""


STORED = Receipt("stored")


class Status(StrEnum):
    INITIALIZED = "initialized"
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


ENDED_STATUSES = (Status.COMPLETED, Status.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    id: int
    host: str
    content_session_id: str
    project_id: int
    status: str
    prompt_counter: int
    cwd: str
    transcript_path: str
    transcript_offset: int
    host_pid: int | None
    informed_upto: int
    last_event_at: int


@dataclass(frozen=True, slots=True)
class Job:
    id: int
    kind: str
    subject: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """An earlier turn of the same session: the prompt and the closing message."""

    prompt: str
    closing: str = ""


@dataclass(frozen=True, slots=True)
class EarlierReads:
    """Texts that earlier turns of the session have read."""

    foreign: tuple[str, ...] = ()  # external text
    built: tuple[str, ...] = ()  # output of builds and tests, which may quote external text
    own: tuple[str, ...] = ()  # files of the project
    fetched: frozenset[str] = frozenset()  # directories that were cloned or unpacked, remotes that were added


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A prompt and everything that followed, as the writer receives it."""

    id: int
    session_id: int
    project_id: int
    number: int
    prompt: str
    root: str
    started_at: int
    ended_at: int
    bodies: Sequence[Body]
    seqs: Sequence[int]  # of the events that the bodies belong to
    cwd: str = ""  # where the session began; in a worktree it is not below `root`
    known_titles: frozenset[str] = frozenset()  # normalized titles of observations from earlier turns of the session
    origins: Sequence[str] = ()  # of the same events; if empty, derived from the bodies
    remotes: tuple[str, ...] = ()  # of the project's repository, `host/owner/name`
    host: str = ""  # the agent, if known
    previous: tuple[Exchange, ...] = ()  # the turns just before this one, nearest last; "yes" answers one of them
    earlier_reads: EarlierReads = EarlierReads()
    trusted_sources: frozenset[str] = frozenset()  # sources that the user trusts in the project
    foreign_text: str = "balanced"  # the setting of that name

    @property
    def newest_seq(self) -> int:
        """The sequence number of the last event; 0 if there is none."""
        return max(self.seqs, default=0)


class ObservationType(StrEnum):
    DECISION = "decision"
    BUGFIX = "bugfix"
    FEATURE = "feature"
    REFACTOR = "refactor"
    DISCOVERY = "discovery"
    CHANGE = "change"
    RULE = "rule"  # what the user insists on, in the user's words


@dataclass(frozen=True, slots=True)
class Fact:
    """A factual statement and the events that support it."""

    text: str
    events: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An observation before it is stored.

    `key` identifies the evidence it is based on: processing the same turn again yields the same key and so updates the
    row instead of adding one.
    """

    key: str
    type: str
    title: str
    subtitle: str = ""
    narrative: str = ""
    facts: tuple[Fact, ...] = ()
    concepts: tuple[str, ...] = ()
    files_read: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    commit: str = ""
    trust: str = "agent"  # the lowest of its sources
    why: str = ""  # if `trust` is too low for injection: the source of the text, or the rule it violates


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    request: str = ""
    investigated: str = ""
    learned: str = ""
    completed: str = ""
    next_steps: str = ""
    notes: str = ""
    files_read: tuple[str, ...] = ()
    files_edited: tuple[str, ...] = ()
    closing: str = ""  # the agent's closing message, verbatim
    closing_trust: str = "agent"  # the other fields omit external text; the closing message may repeat it
    outcome: str = ""  # done | partly | failed | abandoned | answered | proposed; empty: unknown
    trust: str = "agent"
    why: str = ""


@dataclass(frozen=True, slots=True)
class Author:
    """Who wrote a digest: the local writer, or a model in a session of its own."""

    provider: str = "local"
    model: str = ""
    memory_session_id: str | None = None


LOCAL = Author()
# Version of the local writer. Raise it when the writer improves: turns that an earlier version processed
# (`turns.writer`) are then reprocessed in the background.
WRITER_VERSION = 6


@dataclass(frozen=True, slots=True)
class Digest:
    """The summary and observations written for one turn."""

    summary: Summary | None
    observations: tuple[Draft, ...]
    author: Author = LOCAL
    title: str = ""  # new title of the session, if a model proposed one
    subtitle: str = ""


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """An event for the viewer's live stream."""

    type: str
    data: dict[str, Any]
