"""Projects: reading, renaming, merging, switching on and off, their next start context, and trusted sources."""

from __future__ import annotations

from datetime import date
from typing import Annotated

import msgspec
from msgspec import Meta

from claude_mem.domain.memory_items import MemoryItem
from claude_mem.domain.project_reports import (
    ActiveDay,
    FileEntry,
    MergePreview,
    Project,
    ProjectHere,
    ProjectSummary,
    ProjectTotals,
    RelatedProject,
    SessionLane,
    TrustedSource,
)
from claude_mem.worker.http.endpoints import ById, Date, EndDate, Endpoint, Items, NoFields, Offset, PathId, RowId, Wire
from claude_mem.worker.http.schemas.health import InFolder
from claude_mem.worker.http.schemas.settings import SettingsChanged

# --- reading ---------------------------------------------------------------------------------------------------------


class ProjectList(msgspec.Struct, frozen=True):
    """All projects. `here`: the project of the folder that was given."""

    items: list[ProjectSummary]
    here: ProjectHere | None


class Alias(msgspec.Struct, frozen=True):
    """An identity by which a project is recognized."""

    identity: str
    kind: str
    what: str


class DisabledFolder(msgspec.Struct, frozen=True):
    """A folder in which memory is off: the setting or file that turns it off, and what it says."""

    folder: str
    by: str
    what: str


class Switch(msgspec.Struct, frozen=True):
    """Whether a project is on: not all of its folders are off."""

    on: bool
    off: list[DisabledFolder]
    folders: int


class ProjectContent(ProjectTotals, frozen=True):
    """A project with everything that is stored about it."""

    id: int
    name: str
    root: str
    created_at: int
    aliases: list[Alias]
    folders: list[str]
    open: list[str]
    last_summary: MemoryItem | None
    related: list[RelatedProject]


class ProjectPage(ProjectContent, frozen=True):
    """A project, and whether it is on."""

    switch: Switch


class FilesQuery(msgspec.Struct, frozen=True):
    """The folder whose files and folders to list."""

    id: PathId
    under: str = ""


class Files(msgspec.Struct, frozen=True):
    """One level of the tree of files."""

    items: list[FileEntry]
    under: str


class DaysQuery(msgspec.Struct, frozen=True):
    """The year whose days to list."""

    id: PathId
    year: Annotated[int, Meta(ge=1971, le=2099)] = msgspec.field(default_factory=lambda: date.today().year)


class Days(msgspec.Struct, frozen=True):
    """The days of a year on which something was done."""

    items: list[ActiveDay]
    year: int


class LanesQuery(msgspec.Struct, frozen=True):
    """Which sessions to list: those of a period. Default: the last 30 days."""

    id: PathId
    from_: Date | None = msgspec.field(default=None, name="from")
    to: EndDate | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    offset: Offset = 0


class Lanes(msgspec.Struct, frozen=True):
    """A part of the sessions of a period."""

    items: list[SessionLane]
    has_more: bool = msgspec.field(name="hasMore")
    offset: int
    limit: int
    from_: int = msgspec.field(name="from")
    to: int


# --- changing --------------------------------------------------------------------------------------------------------


class Rename(msgspec.Struct, frozen=True):
    """The new name of a project."""

    id: PathId
    name: str


class MergeProjects(msgspec.Struct, frozen=True):
    """The project to merge with: `into` the other one, or `from` it. `dry_run` only shows what would move."""

    id: PathId
    into: RowId | None = None
    from_: RowId | None = msgspec.field(default=None, name="from")
    dry_run: Annotated[bool, Wire(place="query")] = False


class Merge(MergePreview, frozen=True):
    """What was moved, or would move."""

    dry_run: bool


class Switched(SettingsChanged, frozen=True):
    """The settings that changed, and whether the project is on now."""

    switch: Switch


# --- next start context ----------------------------------------------------------------------------------------------

Trial = Annotated[int, Meta(ge=0, le=1_000_000)]


class ContextQuery(msgspec.Struct, frozen=True):
    """Values of settings to try."""

    id: PathId
    context_tokens: Trial | None = None
    context_observations: Trial | None = None


class ContextProject(msgspec.Struct, frozen=True):
    """Id and name of a project."""

    id: int
    name: str


class ContextSettings(msgspec.Struct, frozen=True):
    """The settings that limit a start context."""

    context_tokens: int
    context_observations: int


class ToldItem(msgspec.Struct, frozen=True):
    """An observation or summary in a start context."""

    kind: str
    id: int
    title: str | None
    session_id: int | msgspec.UnsetType = msgspec.UNSET


class NextContext(msgspec.Struct, frozen=True):
    """The exact start context of the next session. `room`: tokens that are left."""

    project: ContextProject
    text: str
    tokens: int
    room: int
    told: list[ToldItem]
    settings: ContextSettings
    stored: ContextSettings
    switch: Switch


# --- trusted sources -------------------------------------------------------------------------------------------------

SourceName = Annotated[str, Wire(limit=100)]


class TrustRequest(msgspec.Struct, frozen=True):
    """The source to trust in a project."""

    project_id: RowId
    source: SourceName


class SourceTrusted(msgspec.Struct, frozen=True):
    """The source that is trusted, and the number of memories that were approved."""

    project_id: int
    source: str
    approved: int


class DistrustRequest(msgspec.Struct, frozen=True):
    """The source that is no longer trusted in a project."""

    project_id: Annotated[int, Meta(ge=0, le=10**15)] = 0
    source: SourceName = ""


class SourceDistrusted(msgspec.Struct, frozen=True):
    """The source that is no longer trusted."""

    project_id: int
    source: str


LIST_PROJECTS = Endpoint("GET", "/api/projects", InFolder, ProjectList)
SHOW_PROJECT = Endpoint("GET", "/api/project/{id}", ById, ProjectPage)
RENAME_PROJECT = Endpoint("PATCH", "/api/project/{id}", Rename, Project)
LIST_FILES = Endpoint("GET", "/api/project/{id}/files", FilesQuery, Files)
LIST_DAYS = Endpoint("GET", "/api/project/{id}/days", DaysQuery, Days)
LIST_LANES = Endpoint("GET", "/api/project/{id}/lanes", LanesQuery, Lanes)
PREVIEW_CONTEXT = Endpoint("GET", "/api/project/{id}/context", ContextQuery, NextContext)
MERGE_PROJECTS = Endpoint("POST", "/api/project/{id}/merge", MergeProjects, Merge)
TURN_OFF = Endpoint("POST", "/api/project/{id}/off", ById, Switched)
TURN_ON = Endpoint("POST", "/api/project/{id}/on", ById, Switched)
LIST_TRUSTED = Endpoint("GET", "/api/trust", NoFields, Items[TrustedSource])
TRUST_SOURCE = Endpoint("POST", "/api/trust", TrustRequest, SourceTrusted)
DISTRUST_SOURCE = Endpoint("DELETE", "/api/trust", DistrustRequest, SourceDistrusted)
