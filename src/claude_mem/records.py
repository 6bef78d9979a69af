"""The values that travel between the steps. Frozen: a step returns a new one, it does not change what it was given.

What is kept as JSON in a table (the body of an event) is a tagged msgspec struct, so that reading it back checks it.
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


class Noticed(msgspec.Struct, frozen=True, tag="notice"):
    """The host's own words in the place of a prompt, such as the end of a background task. They are not kept."""


class ToolUsed(msgspec.Struct, frozen=True, tag="tool", omit_defaults=True):
    name: str
    input: dict[str, Any]
    output: Any = None
    failed: bool = False
    agent_id: str = ""
    whole: bool = False  # of something read from outside: is all that the agent was shown in `output`?


class Stopped(msgspec.Struct, frozen=True, tag="stop"):
    """The end of a turn. The agent's last words usually are a summary already."""

    message: str = ""


class SubagentStopped(msgspec.Struct, frozen=True, tag="subagent_stop"):
    message: str = ""
    agent_id: str = ""
    transcript_path: str = ""


class Compacting(msgspec.Struct, frozen=True, tag="compact"):
    trigger: str = ""


class SessionEnded(msgspec.Struct, frozen=True, tag="session_end"):
    reason: str = ""


Body = SessionStarted | Prompted | Noticed | ToolUsed | Stopped | SubagentStopped | Compacting | SessionEnded


def kind(body: Body) -> str:
    return str(body.__struct_config__.tag)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened, as a host told it."""

    id: str
    host: str
    content_session_id: str
    at: int
    body: Body
    cwd: str = ""
    project: str = ""  # a name given by a client that knows no folder
    prompt_id: str = ""
    tool_use_id: str = ""
    transcript_path: str = ""
    host_pid: int | None = None
    private: bool = False  # a prompt of which nothing was left
    origin: str = ""  # where it comes from; empty: what its body tells
    stripped: bool = False  # private parts were cut out of it before it came here


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an event: every one of them gets exactly one."""

    what: str  # stored | filtered | set_aside
    rule: str = ""


STORED = Outcome("stored")


class Status(StrEnum):
    INITIALIZED = "initialized"
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


OVER = (Status.COMPLETED, Status.FAILED)


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
    """An earlier turn of the same session: what was asked, and what the agent said at its end."""

    prompt: str
    closing: str = ""


@dataclass(frozen=True, slots=True)
class Carried:
    """What earlier turns of the session have read."""

    foreign: tuple[str, ...] = ()  # strangers' text
    built: tuple[str, ...] = ()  # what builds and tests printed, which may quote some
    own: tuple[str, ...] = ()  # files of the project
    fetched: frozenset[str] = frozenset()  # folders that were cloned or unpacked, remotes that were added


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A prompt and what followed, as the compressor sees it."""

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
    cwd: str = ""  # where the session began: in a worktree it is not below the root
    known: frozenset[str] = frozenset()  # what earlier turns of the session have already been remembered for
    origins: Sequence[str] = ()  # of the same events; where there are none, they follow from the bodies
    remotes: tuple[str, ...] = ()  # of the project's repository, `host/owner/name`
    host: str = ""  # the agent, where that is known
    previous: tuple[Exchange, ...] = ()  # the turns just before this one, the nearest last: "yes" answers one of them
    carried: Carried = Carried()
    trusted: frozenset[str] = frozenset()  # sources that the person trusts in the project
    foreign_text: str = "balanced"  # how words are treated that rest on strangers' text: a setting

    @property
    def newest_seq(self) -> int:
        return max(self.seqs, default=0)


class Type(StrEnum):
    DECISION = "decision"
    BUGFIX = "bugfix"
    FEATURE = "feature"
    REFACTOR = "refactor"
    DISCOVERY = "discovery"
    CHANGE = "change"
    RULE = "rule"  # what the user insists on, in the user's words


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that is so, and the events that show it."""

    text: str
    events: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An observation before it has a row. `key` says which evidence it comes from: the same turn digested again
    finds the same key, and so updates the row instead of adding one."""

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
    why: str = ""  # if that is too low to be told unasked: the source it comes from, or the rule that it breaks


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
    closing: str = ""  # the agent's closing message, word for word
    closing_trust: str = "agent"  # the other fields leave out what came from outside; these words may repeat it
    outcome: str = ""  # done | partly | failed | abandoned | answered | proposed, or empty: not known
    trust: str = "agent"
    why: str = ""


@dataclass(frozen=True, slots=True)
class Author:
    """Who made a digest: the local compressor, or a model in a session of its own."""

    provider: str = "local"
    model: str = ""
    memory_session_id: str | None = None


LOCAL = Author()
# The version of the local compressor. Raise it when it writes better memories: turns that an earlier version digested
# (`turns.writer`) are then digested again in the background.
WRITER = 2


@dataclass(frozen=True, slots=True)
class Digest:
    """What a compressor made of one turn."""

    summary: Summary | None
    observations: tuple[Draft, ...]
    author: Author = LOCAL
    title: str = ""  # of the session, if a model has found a better one
    subtitle: str = ""


@dataclass(frozen=True, slots=True)
class News:
    """Something the live stream should tell."""

    type: str
    data: dict[str, Any]
