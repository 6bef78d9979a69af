"""Projects, and what is stored about one: records that are selected from storage and answered as they are."""

from __future__ import annotations

from typing import Literal

import msgspec


class Project(msgspec.Struct, frozen=True):
    """A project as it is stored."""

    id: int
    name: str
    root: str
    created_at: int


class ProjectSummary(msgspec.Struct, frozen=True):
    """A project with the number of its sessions and observations."""

    id: int
    name: str
    root: str
    sessions: int
    observations: int
    last_event_at: int | None


class SimilarProject(msgspec.Struct, frozen=True):
    """A project with the `same` remote or first commit."""

    id: int
    name: str
    root: str
    same: str


class RelatedProject(SimilarProject, frozen=True):
    """A project that may be the same one. `command` merges the two; "" if one is not known yet."""

    command: str


class ProjectHere(msgspec.Struct, frozen=True):
    """The project of a folder, null if it is not known yet, and the projects it may have to be merged with."""

    id: int | None
    related: list[RelatedProject]


class MergePreview(msgspec.Struct, frozen=True):
    """Two projects, and how many rows of each kind move."""

    from_: Project = msgspec.field(name="from")
    into: Project
    moves: dict[str, int]


# --- what is stored about one ----------------------------------------------------------------------------------------


class AgentSessions(msgspec.Struct, frozen=True):
    """The sessions of one agent in a project."""

    host: str
    sessions: int
    last_at: int


class ProjectTotals(msgspec.Struct, frozen=True):
    """How much is stored about a project, for which period, and from which agents."""

    counts: dict[str, int]
    first_at: int | None
    last_at: int | None
    agents: list[AgentSessions]


class SessionLane(msgspec.Struct, frozen=True):
    """A session on the timeline of its project."""

    id: int
    host: str
    title: str | None
    status: str
    start_at: int
    end_at: int
    turns: int
    observations: int


class FileEntry(msgspec.Struct, frozen=True):
    """A file, or a folder with its number of `files`: how often they were edited and read, and when last."""

    kind: Literal["file", "folder"]
    name: str
    path: str
    edited: int
    read: int
    newest_at: int
    files: int | msgspec.UnsetType = msgspec.UNSET


class ActiveDay(msgspec.Struct, frozen=True):
    """What was done on one day."""

    day: str
    observations: int
    sessions: int
    turns: int


class TrustedSource(msgspec.Struct, frozen=True):
    """An external source that the user trusts in a project."""

    project_id: int
    project: str
    source: str
    at: int
