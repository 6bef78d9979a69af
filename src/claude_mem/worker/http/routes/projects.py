"""Routes of one project: its memory and aliases, merging, switching it on and off, its next start context, and the
external sources the user trusts in it. Agents cannot change the trusted sources.
"""

from __future__ import annotations

import asyncio
import glob
from collections.abc import Sequence
from pathlib import PurePath

from msgspec import UNSET
from msgspec.structs import asdict

from claude_mem.config import validate
from claude_mem.domain import ids
from claude_mem.domain.errors import InvalidRequest, OperationFailed
from claude_mem.domain.project_reports import Project, TrustedSource
from claude_mem.domain.text import MAX_TIME_MS, estimate_tokens
from claude_mem.inject import brief, render
from claude_mem.privacy import trust
from claude_mem.storage.base import Transaction
from claude_mem.system import project_folders
from claude_mem.worker.app import Service
from claude_mem.worker.http.endpoints import ById, Items, NoFields
from claude_mem.worker.http.route import AnyRoute, Caller, Reply, Route
from claude_mem.worker.http.routes import settings
from claude_mem.worker.http.schemas.health import InFolder
from claude_mem.worker.http.schemas.projects import (
    DISTRUST_SOURCE,
    LIST_DAYS,
    LIST_FILES,
    LIST_LANES,
    LIST_PROJECTS,
    LIST_TRUSTED,
    MERGE_PROJECTS,
    PREVIEW_CONTEXT,
    RENAME_PROJECT,
    SHOW_PROJECT,
    TRUST_SOURCE,
    TURN_OFF,
    TURN_ON,
    Alias,
    ContextProject,
    ContextQuery,
    ContextSettings,
    Days,
    DaysQuery,
    DisabledFolder,
    DistrustRequest,
    Files,
    FilesQuery,
    Lanes,
    LanesQuery,
    Merge,
    MergeProjects,
    NextContext,
    ProjectContent,
    ProjectList,
    ProjectPage,
    Rename,
    SourceDistrusted,
    SourceTrusted,
    Switch,
    Switched,
    ToldItem,
    TrustRequest,
)

MAX_CHECKED_FOLDERS = 200  # that are checked on disk
_DAY = 86_400_000
_ALIAS_LABELS = {
    "git": "git folder",
    "made": "git folder, wherever it is",
    "remote": "remote",
    "dir": "folder",
    "name": "name",
    "older": "name in an older claude-mem",
}


async def list_projects(service: Service, request: InFolder) -> ProjectList:
    """All projects with counts of sessions and observations. With a folder `cwd`, `here` is `{id, related}`: its
    project, and other projects with the `same` remote or first commit, each with the `command` that merges them."""
    items = await service.db.read(lambda tx: tx.memory.list_projects_with_counts())
    project = await _identify_project(service, request.cwd)
    here = await service.db.read(lambda tx: tx.memory.describe_project_here(project)) if project else None
    return ProjectList(items=items, here=here)


async def _identify_project(service: Service, cwd: str) -> project_folders.ResolvedProject | None:
    """Return the project of a folder, or None without an absolute path."""
    if not cwd.startswith("/"):
        return None
    return await project_folders.identify_project_in_thread(cwd, excluded=service.config.excluded_projects)


async def show_project(service: Service, request: ById) -> ProjectPage:
    """A project: name, root, `aliases` (by which it is recognized), `folders`, `counts`, `first_at`, `last_at`,
    `agents`, `switch` (whether it is `on`, and what turns it off where), `open` steps, its `last_summary`, and
    `related` projects: those with the `same` remote or first commit, each with the `command` that merges the two."""
    project = await service.db.read(_read_project, request.id, limit=service.config.context_observations)
    folders = _distinct_folders(project.root, project.folders)
    switch = await asyncio.to_thread(_describe_switch, folders, service.config.excluded_projects)
    return ProjectPage(**asdict(project), switch=switch)


def _read_project(tx: Transaction, project_id: int, *, limit: int) -> ProjectContent:
    project = tx.memory.get_project(project_id)
    memory = brief.gather_memory(tx, [project_id], limit=limit)
    return ProjectContent(
        **asdict(project),
        **asdict(tx.memory.get_project_totals(project_id)),
        aliases=[_describe_alias(identity) for identity in tx.memory.list_project_aliases(project_id)],
        folders=tx.memory.list_project_folders(project_id),
        open=list(memory.open) if memory else [],
        last_summary=memory.summary if memory else None,
        related=tx.memory.list_related_projects(project_id),
    )


def _describe_alias(identity: str) -> Alias:
    kind, _, value = identity.partition(":")
    return Alias(identity=identity, kind=_ALIAS_LABELS.get(kind, kind), what=value)


# --- by file, day, session -------------------------------------------------------------------------------------------


async def list_files(service: Service, request: FilesQuery) -> Files:
    """One level of the tree of files with memories: `under` (a folder, as in an item's `path`) → `{items, under}`, with
    the number of `files` in folders, of memories that `edited` and `read` them, and the time of the newest."""
    project_id, under = request.id, request.under
    if under and not under.endswith("/"):
        raise InvalidRequest("`under` must be a folder", hint="end it with a slash: src/")
    await service.indexer.catch_up()
    await service.db.read(lambda tx: tx.memory.get_project(project_id))
    return Files(items=await service.db.read(lambda tx: tx.memory.list_known_files(project_id, under)), under=under)


async def list_days(service: Service, request: DaysQuery) -> Days:
    """Counts of observations, sessions and turns for each local day of a `year` (default: the current one)."""
    await service.db.read(lambda tx: tx.memory.get_project(request.id))
    items = await service.db.read(lambda tx: tx.memory.list_active_days(request.id, request.year))
    return Days(items=items, year=request.year)


async def list_session_lanes(service: Service, request: LanesQuery) -> Lanes:
    """Sessions between `from` and `to` (default: the last 30 days), newest first: `limit` (1–500), `offset` → `{items,
    hasMore}`."""
    limit, until, since = request.limit, request.to or MAX_TIME_MS, request.from_
    if since is None:
        since = min(until, ids.now_ms()) - 30 * _DAY
    await service.db.read(lambda tx: tx.memory.get_project(request.id))
    query = {"since": since, "until": until, "limit": limit + 1, "offset": request.offset}
    rows = await service.db.read(lambda tx: tx.memory.list_sessions_in_range(request.id, **query))
    return Lanes(
        items=rows[:limit],
        has_more=len(rows) > limit,
        offset=request.offset,
        limit=limit,
        from_=since,
        to=min(until, max(ids.now_ms(), since)),
    )


# --- renaming and merging ---------------------------------------------------------------------------------------------


async def rename(service: Service, request: Rename) -> Project:
    """Rename the project: `{name}`. It is still recognized by its aliases."""
    name = request.name.strip()
    if len(name) > 100 or not name.isprintable():
        raise InvalidRequest("the name is invalid", hint="use one line of at most 100 characters")
    project = await service.db.write(lambda tx: tx.memory.rename_project(request.id, name))
    await service.enqueue_renders([project.id])
    return project


async def merge(service: Service, request: MergeProjects) -> Merge:
    """Merge two projects: `{into: ID}` or `{from: ID}` → what `moves`. The target gets all rows and aliases of the
    source. `?dry_run=1` only shows what would move."""
    if (request.into is None) == (request.from_ is None):
        raise InvalidRequest("`into` or `from` is missing", hint='send {"into": ID} or {"from": ID}')
    source, target = (request.id, request.into) if request.into else (request.from_ or 0, request.id)
    if request.dry_run:
        plan = await service.db.read(lambda tx: tx.memory.preview_project_merge(source, target))
    else:
        plan = await service.merge_projects(source, target)
    return Merge(**asdict(plan), dry_run=request.dry_run)


# --- on and off ------------------------------------------------------------------------------------------------------


def _describe_switch(all_folders: Sequence[str], excluded: tuple[str, ...]) -> Switch:
    """Return whether the project is on, and for each folder that is off the setting or file that turns it off."""
    folders = all_folders[:MAX_CHECKED_FOLDERS]
    reasons = [(folder, project_folders.disabled_reason(folder, excluded)) for folder in folders]
    off = [DisabledFolder(folder=folder, by=why[0], what=why[1]) for folder, why in reasons if why]
    return Switch(on=not folders or len(off) < len(folders), off=off, folders=len(folders))


def _distinct_folders(root: str, folders: Sequence[str]) -> list[str]:
    """Return the root of a project and all other folders of its sessions."""
    return list(dict.fromkeys(folder for folder in (root, *folders) if folder))


def _outermost(folders: Sequence[str]) -> list[str]:
    """Drop folders inside another one of the list: excluding a folder excludes its subfolders."""
    folder_set = set(folders)
    return [folder for folder in folders if not folder_set & {str(parent) for parent in PurePath(folder).parents}]


async def turn_off(service: Service, request: ById) -> Reply[Switched]:
    """Stop capturing and injecting in its folders by adding them to `excluded_projects`. Existing memory stays."""
    _, folders = await service.db.read(_read_folders, request.id)
    if not folders:
        raise OperationFailed("this project has no folder to switch off", hint="it is known by name only")
    excluded = await _load_excluded(service)
    to_exclude = [folder for folder in _outermost(folders) if not project_folders.is_excluded(folder, excluded)]
    patterns = (*excluded, *(glob.escape(folder) for folder in to_exclude))
    return await _store_excluded(service, request.id, folders, patterns)


async def turn_on(service: Service, request: ById) -> Reply[Switched]:
    """Remove its folders from `excluded_projects`. A wider pattern or a file may still turn it off; `switch` names
    it."""
    _, folders = await service.db.read(_read_folders, request.id)
    own = {f"{glob.escape(folder)}{end}" for folder in folders for end in ("", "/", "/**")}
    patterns = tuple(pattern for pattern in await _load_excluded(service) if pattern not in own)
    return await _store_excluded(service, request.id, folders, patterns)


async def _load_excluded(service: Service) -> tuple[str, ...]:
    """Read the setting from the file: it may have been changed since the worker was started."""
    return (await settings.load_settings(service)).config.excluded_projects


async def _store_excluded(
    service: Service, project_id: int, folders: Sequence[str], globs: tuple[str, ...]
) -> Reply[Switched]:
    answer, config = await settings.store_settings(service, {"excluded_projects": list(globs)}, by_token=False)
    await render.write_briefs(project_id, db=service.db, config=config, icons=service.icons)
    switch = await asyncio.to_thread(_describe_switch, folders, config.excluded_projects)
    return settings.respond_and_restart(service, Switched(**asdict(answer), switch=switch))


# --- next start context ----------------------------------------------------------------------------------------------


async def preview_context(service: Service, request: ContextQuery) -> NextContext:
    """The exact start context of the next session of this project; `context_tokens` and `context_observations` try
    other values → `{text, tokens, room, told, settings, switch}`."""
    config = service.config
    stored = ContextSettings(context_tokens=config.context_tokens, context_observations=config.context_observations)
    trial = ContextSettings(
        context_tokens=_trial_value("context_tokens", request.context_tokens, stored.context_tokens),
        context_observations=_trial_value(
            "context_observations", request.context_observations, stored.context_observations
        ),
    )
    project, folders = await service.db.read(_read_folders, request.id)
    start = await service.context_service.compose_start(
        project.id, project.name, budget=trial.context_tokens, limit=trial.context_observations
    )
    return NextContext(
        project=ContextProject(id=project.id, name=project.name),
        text=start.text,
        tokens=estimate_tokens(start.text),
        room=trial.context_tokens - estimate_tokens(start.text),
        told=await service.db.read(_read_injected_items, start.item_names),
        settings=trial,
        stored=stored,
        switch=await asyncio.to_thread(_describe_switch, folders, config.excluded_projects),
    )


def _read_folders(tx: Transaction, project_id: int) -> tuple[Project, list[str]]:
    """Return a project and its folders."""
    project = tx.memory.get_project(project_id)
    return project, _distinct_folders(project.root, tx.memory.list_project_folders(project_id))


def _trial_value(name: str, trial: int | None, stored: int) -> int:
    """Return the value to try, which must be valid for the setting, or the stored one."""
    return stored if trial is None else int(validate(name, trial, "this value"))


def _read_injected_items(tx: Transaction, injection_ids: Sequence[str]) -> list[ToldItem]:
    """Return the rows behind the ids of an injection: `o12` is an observation, `s5` a summary."""
    observation_ids = [int(name[1:]) for name in injection_ids if name.startswith("o")]
    items = [
        ToldItem(kind="observation", id=row["id"], title=row["title"])
        for row in tx.memory.load_observations(observation_ids)
    ]
    for name in injection_ids:
        if name.startswith("s"):
            row = tx.memory.get_memory("summary", int(name[1:]))
            title = row["completed"] or row["request"]
            session_id = row["session_id"] or UNSET
            items.append(ToldItem(kind="summary", id=row["id"], title=title, session_id=session_id))
    return items


# --- trusted sources -------------------------------------------------------------------------------------------------


async def list_trusted(service: Service, _: NoFields) -> Items[TrustedSource]:
    """The trusted sources → `{items}`, each with its project."""
    return Items(await service.db.read(lambda tx: tx.journal.list_trusted_sources()))


async def trust_source(service: Service, request: TrustRequest, caller: Caller) -> SourceTrusted:
    """Trust a source in one project: `{project_id, source}` → `{source, approved}`, the number of memories approved.

    Only memories that rest on trusted sources alone are approved; suspect text still waits for approval."""
    caller.require_user()
    result = await service.db.write(_trust_source, request.project_id, request.source.strip())
    await service.recorder.record("trusted", project=request.project_id, source=result.source, count=result.approved)
    await service.publish_correction(request.project_id)
    return result


def _trust_source(tx: Transaction, project_id: int, text: str) -> SourceTrusted:
    tx.memory.get_project(project_id)
    source, now = _canonical_source(tx, project_id, trust.normalize_source(text)), ids.now_ms()
    tx.journal.add_trusted_source(project_id, source, now=now)
    waiting = tx.journal.list_approvable_items(project_id)
    for kind, row_id in waiting:
        tx.memory.set_verdict(kind, row_id, "approved", now=now)
    return SourceTrusted(project_id=project_id, source=source, approved=len(waiting))


def _canonical_source(tx: Transaction, project_id: int, source: str) -> str:
    """Return `linear (MCP)` for `linear` if memories from that MCP server wait for approval."""
    server = f"{source} (MCP)"
    waiting = tx.journal.list_pending_sources(project_id)
    return server if source not in waiting and server in waiting else source


async def distrust_source(service: Service, request: DistrustRequest, caller: Caller) -> SourceDistrusted:
    """Stop trusting a source: `?project_id=&source=`. What was approved stays approved."""
    caller.require_user()
    source = trust.normalize_source(request.source.strip())
    await service.db.write(lambda tx: tx.journal.remove_trusted_source(request.project_id, source))
    await service.recorder.record("distrusted", project=request.project_id, source=source)
    return SourceDistrusted(project_id=request.project_id, source=source)


ROUTES: tuple[AnyRoute, ...] = (
    Route(LIST_PROJECTS, list_projects),
    Route(SHOW_PROJECT, show_project),
    Route(RENAME_PROJECT, rename),
    Route(LIST_FILES, list_files),
    Route(LIST_DAYS, list_days),
    Route(LIST_LANES, list_session_lanes),
    Route(PREVIEW_CONTEXT, preview_context),
    Route(MERGE_PROJECTS, merge),
    Route(TURN_OFF, turn_off),
    Route(TURN_ON, turn_on),
    Route(LIST_TRUSTED, list_trusted),
    Route(TRUST_SOURCE, trust_source),
    Route(DISTRUST_SOURCE, distrust_source),
)
