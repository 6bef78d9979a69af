"""Routes of memories: list, read, save, correct (edit, pin, judge, merge, undo), forget and approve them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import asdict
from typing import Any, cast

from msgspec import UNSET, structs

from claude_mem.curate.saving import classify_trust, sanitize_user_lines, sanitize_user_text
from claude_mem.domain import ids, rules
from claude_mem.domain.errors import InvalidRequest, OperationFailed
from claude_mem.domain.memory_items import HistoryEntry, MemoryItem, MemoryUses, ObservationEdit
from claude_mem.domain.records import ObservationType
from claude_mem.domain.text import first_sentence, iter_strings, map_strings
from claude_mem.domain.uses import UseCounts
from claude_mem.inject import brief, select
from claude_mem.privacy import trust
from claude_mem.privacy.trust import USER
from claude_mem.recall import line_history, rank
from claude_mem.storage.base import Transaction
from claude_mem.storage.records import PERSON, SearchFilter
from claude_mem.system import project_folders
from claude_mem.worker.app import Service
from claude_mem.worker.http.endpoints import ById, Items, Page, page
from claude_mem.worker.http.route import AnyRoute, Caller, Route
from claude_mem.worker.http.schemas.observations import (
    APPROVE,
    APPROVE_SUMMARY,
    CHANGE_OBSERVATION,
    EXPLAIN_LINE,
    FORGET_OBSERVATION,
    GET_OBSERVATIONS,
    JUDGE_SOURCE,
    LIST_BY_FILE,
    LIST_OBSERVATIONS,
    LIST_PROMPTS,
    LIST_SUMMARIES,
    MARK_RIGHT,
    MARK_SUMMARY_RIGHT,
    MARK_SUMMARY_WRONG,
    MARK_WRONG,
    MERGE,
    PIN,
    PREVIEW_FORGETTING,
    SAVE_MEMORY,
    SHOW_APPROVAL_QUEUE,
    SHOW_HISTORY,
    SHOW_OBSERVATION,
    SHOW_PAGE,
    SHOW_PROMPT,
    SHOW_RELATED,
    SHOW_SESSION,
    SHOW_SUMMARY,
    UNDO,
    UNPIN,
    ApprovalQueue,
    ByFileQuery,
    ChangeObservation,
    DeletionOfOne,
    ForgetObservation,
    Forgotten,
    GoesWithIt,
    Ids,
    Judged,
    JudgeSource,
    LineHistory,
    LineQuery,
    MemoriesQuery,
    MemorySaved,
    MergeObservations,
    ObservationPage,
    ObservationsQuery,
    QueueQuery,
    QueueSource,
    SaveMemory,
    SessionContent,
    Undone,
)

MAX_RELATED = 8
JUDGE_BATCH = 200


# --- listing, reading and saving -------------------------------------------------------------------------------------


async def list_observations(service: Service, request: ObservationsQuery) -> Page[MemoryItem]:
    """`limit` (1–100), `offset`, `project`, `type`, `validity` → `{items, hasMore, offset, limit}`, newest first."""
    if request.type and request.type not in service.icons:
        raise InvalidRequest(f"there is no type {request.type!r}", hint="use one of " + ", ".join(service.icons))
    return await _list_page(service, request, "observation", type_=request.type, validities=request.validity)


async def list_summaries(service: Service, request: MemoriesQuery) -> Page[MemoryItem]:
    """`limit` (1–100), `offset`, `project` → `{items, hasMore, offset, limit}`, newest first."""
    return await _list_page(service, request, "summary")


async def list_prompts(service: Service, request: MemoriesQuery) -> Page[MemoryItem]:
    """`limit` (1–100), `offset`, `project` → `{items, hasMore, offset, limit}`, newest first."""
    return await _list_page(service, request, "prompt")


async def _list_page(
    service: Service, request: MemoriesQuery, kind: str, *, type_: str = "", validities: tuple[str, ...] = ()
) -> Page[MemoryItem]:
    rows = await service.db.read(
        _list_with_states,
        kind=kind,
        type_=type_,
        validities=validities,
        limit=request.limit + 1,
        offset=request.offset,
        project=request.project,
    )
    return page(rows, offset=request.offset, limit=request.limit)


def _list_with_states(tx: Transaction, /, *, kind: str, **options: Any) -> list[MemoryItem]:
    rows = tx.memory.list_memories(kind=kind, **options)
    return tx.memory.add_states(rows) if kind == "observation" else rows


async def show_observation(service: Service, request: ById) -> MemoryItem:
    """One record in full."""
    return await service.db.read(_get_with_state, "observation", request.id)


async def show_summary(service: Service, request: ById) -> MemoryItem:
    """One record in full."""
    return await service.db.read(_get_with_state, "summary", request.id)


async def show_prompt(service: Service, request: ById) -> MemoryItem:
    """One record in full."""
    return await service.db.read(_get_with_state, "prompt", request.id)


def _get_with_state(tx: Transaction, kind: str, row_id: int) -> MemoryItem:
    row = tx.memory.get_memory(kind, row_id)
    return _with_uses(tx, tx.memory.add_states([row]))[0] if kind == "observation" else row


async def show_session(service: Service, request: ById) -> SessionContent:
    """A whole session: its turns, events, prompts, observations and summaries."""
    return await service.db.read(_session_content, request.id)


def _session_content(tx: Transaction, session_id: int) -> SessionContent:
    content = {
        **structs.asdict(tx.memory.get_session_details(session_id)),
        "turns": tx.journal.list_turns(session_id),
        "events": tx.journal.list_session_events(session_id),
        "prompts": tx.memory.list_session_memories("prompt", session_id),
        "observations": tx.memory.add_states(tx.memory.list_session_memories("observation", session_id)),
        "summaries": tx.memory.list_session_memories("summary", session_id),
    }
    return SessionContent(**content)


async def get_observations(service: Service, request: Ids) -> Items[MemoryItem]:
    """Observations in full, in the order of the request: `{ids}`."""
    return Items(await service.db.read(_load_with_states, request.ids))


def _load_with_states(tx: Transaction, observation_ids: list[int]) -> list[MemoryItem]:
    return _with_uses(tx, tx.memory.add_states(tx.memory.load_observations(observation_ids)))


def _with_uses(tx: Transaction, rows: list[MemoryItem]) -> list[MemoryItem]:
    """Return observations with how often each was shown and used, and whether it has left the start context."""
    names = {row["id"]: f"o{row['id']}" for row in rows}
    all_counts = tx.journal.count_uses(names.values())
    triggers = tx.journal.list_uses_by_trigger(names.values())

    def uses_of(row: MemoryItem) -> MemoryUses:
        counts = all_counts.get(names[row["id"]], UseCounts())
        return {
            "shown": counts.shown,
            "used": counts.used,
            "contradicted": counts.contradicted,
            "left": select.has_left(row, counts),
            "triggers": [asdict(each) for each in triggers.get(names[row["id"]], ())],
        }

    return [{**row, "uses": uses_of(row)} for row in rows]


async def explain_line(service: Service, request: LineQuery) -> LineHistory:
    """Which work wrote a line, and why: `file`, `line`, `cwd` → `{file, line, text, match, items}`."""
    project = await project_folders.identify_project_in_thread(request.cwd, excluded=service.config.excluded_projects)
    return LineHistory(**await line_history.explain_line(service.db, project, request.file, request.line))


async def list_by_file(service: Service, request: ByFileQuery) -> Items[MemoryItem]:
    """Observations about a file: `path`, `project` or `project_id`, `limit`."""
    project_ids, name, limit = [request.project_id], request.project, request.limit
    if not request.project_id and not name:
        raise InvalidRequest("`project` is missing", hint="/api/observations/by-file?project=NAME&path=src/x.py")
    if not request.project_id:
        project_ids = await service.db.read(lambda tx: tx.memory.list_project_ids_by_name(name))
    await service.indexer.catch_up()
    rows: list[MemoryItem] = []
    for project_id in project_ids:
        rows += await service.db.read(
            lambda tx, project_id: tx.memory.list_observations_by_file(project_id, request.path, limit=limit),
            project_id,
        )
    return Items(await service.db.read(lambda tx: tx.memory.add_states(rows[:limit])))


async def save_memory(service: Service, request: SaveMemory, caller: Caller) -> MemorySaved:
    """Save a memory: `{text, title?, project? or cwd?, type?}`. The type `rule` makes it a rule, as does a user's text
    that consists of rules ("always …"); only the user can state one. `X-Claude-Mem-By: agent` marks an agent's memory,
    which needs approval if external text was read just before, in any folder."""
    by, kind, name, cwd = caller.by, _requested_type(request.type, caller), request.project, request.cwd
    project = project_folders.project_from_name(name or project_folders.GENERAL_PROJECT)
    if cwd and not name:
        project = await project_folders.identify_project_in_thread(cwd, excluded=service.config.excluded_projects)
    if not project.enabled:
        raise InvalidRequest("memory is switched off in this folder; nothing was saved", hint="name a `project`")
    text = sanitize_user_text(request.text)
    if not text.strip():
        raise InvalidRequest("the text is entirely private; nothing was saved")
    title = sanitize_user_text(request.title) or first_sentence(text, 100)
    kind = kind or (ObservationType.RULE if by == USER and rules.is_all_rules(text) else ObservationType.DISCOVERY)
    row_id, why = await service.save(project, title, text, by=by, type_=kind)
    return MemorySaved(success=True, id=row_id, type=kind, title=title, project=project.name, held=why)


def _requested_type(type_name: str, caller: Caller) -> str:
    """Return the requested type: `rule` or ""."""
    if type_name not in ("", ObservationType.RULE):
        raise InvalidRequest(f"the type {type_name!r} cannot be saved", hint="use `rule`, or leave `type` out")
    if type_name:
        caller.require_user()
    return type_name


# --- correcting ------------------------------------------------------------------------------------------------------


async def change(service: Service, request: ChangeObservation, caller: Caller) -> MemoryItem:
    """PATCH changes type, title, subtitle, narrative, facts or concepts."""
    fields = _clean_edit(request, types=service.icons)
    return await _publish_change(service, await service.db.write(_edit, request.id, fields, caller.by))


def _edit(tx: Transaction, observation_id: int, fields: ObservationEdit, by: str) -> MemoryItem:
    """Apply an edit. An agent's edit is classified like a memory it saves.

    The agent's working directory is unknown here, so external text read in any project counts.
    """
    now, words = ids.now_ms(), "\n".join(iter_strings(list(fields.values())))
    types = (fields.get("type"), tx.memory.get_memory("observation", observation_id)["type"])
    if by != PERSON and ObservationType.RULE in types:
        raise OperationFailed("only the user can state or change a rule", hint="use the viewer: `claude-mem open`")
    trust, why = (by, "") if by == PERSON else classify_trust(tx, None, words, by, now=now)
    return tx.memory.edit_observation(observation_id, fields, now=now, by=by, trust=trust, why=why)


def _clean_edit(request: ChangeObservation, *, types: Collection[str]) -> ObservationEdit:
    """Return the fields to change, without secrets and private parts."""
    values = {name: item for name, item in structs.asdict(request).items() if name != "id" and item is not UNSET}
    if "type" in values and values["type"] not in types:
        raise InvalidRequest(f"there is no type {values['type']!r}", hint="use one of " + ", ".join(types))
    lines = {name: sanitize_user_lines(item) if isinstance(item, list) else item for name, item in values.items()}
    fields = cast(ObservationEdit, map_strings(lines, sanitize_user_text))
    if "title" in fields and not fields["title"].strip():
        raise InvalidRequest("the title is empty", hint="sessions are shown the title, so it needs one")
    return fields


async def pin(service: Service, request: ById, caller: Caller) -> MemoryItem:
    """Pin an observation: it comes first at every session start."""
    return await _set_pinned(service, request, caller, pinned=True)


async def unpin(service: Service, request: ById, caller: Caller) -> MemoryItem:
    """Unpin an observation."""
    return await _set_pinned(service, request, caller, pinned=False)


async def _set_pinned(service: Service, request: ById, caller: Caller, *, pinned: bool) -> MemoryItem:
    row = await service.db.write(
        lambda tx: tx.memory.set_pinned(request.id, pinned=pinned, now=ids.now_ms(), by=caller.by)
    )
    return await _publish_change(service, row)


def judge(kind: str, verdict: str) -> Callable[[Service, ById, Caller], Awaitable[MemoryItem]]:
    """Return a handler that gives a record of this kind that verdict."""

    async def handler(service: Service, request: ById, caller: Caller) -> MemoryItem:
        caller.require_user()
        row = await service.db.write(lambda tx: tx.memory.set_verdict(kind, request.id, verdict, now=ids.now_ms()))
        await service.recorder.record("judged", kind=kind, id=row["id"], verdict=verdict)
        return await _publish_change(service, row)

    handler.__doc__ = {
        "wrong": "Mark it wrong: it is neither injected nor found.",
        "right": "Withdraw the mark.",
        "approved": "Approve it for injection although it rests on external text.",
    }[verdict]
    return handler


async def merge(service: Service, request: MergeObservations, caller: Caller) -> MemoryItem:
    """Merge other observations of the same project into this one: `{ids}`. Undo restores all of them."""
    caller.require_user()
    row = await service.db.write(lambda tx: tx.memory.merge_observations(request.id, request.ids, now=ids.now_ms()))
    return await _publish_change(service, row)


async def undo(service: Service, request: ById, caller: Caller) -> Undone:
    """Undo the last edit, merge, verdict or deletion, within 30 days → `{undone, ids, observation}`."""
    result = await service.deletion_service.undo_one(request.id, by=caller.by)
    await service.recorder.record("undone", deed=result["undone"], ids=result["ids"])
    row = await service.db.read(lambda tx: tx.memory.get_memory("observation", request.id))
    return Undone(**result, observation=await _publish_change(service, row))


async def _publish_change(service: Service, row: MemoryItem) -> MemoryItem:
    """Publish the change and refresh the start context; return the row."""
    await service.publish_correction(row["project_id"], kind=row["kind"], row_id=row["id"])
    return row


# --- forgetting ------------------------------------------------------------------------------------------------------


async def forget(service: Service, request: ForgetObservation, caller: Caller) -> Forgotten:
    """DELETE forgets it, which can be undone for 30 days; with `now=1` it and every copy are erased at once."""
    if request.now:
        return Forgotten("erased", request.id, ids=await service.erase(request.id))
    return Forgotten("forgotten", request.id, undo_until=await service.forget(request.id, by=caller.by))


async def preview_deletion(service: Service, request: ById) -> DeletionOfOne:
    """Preview a deletion: what goes with it, and which rows about the same thing stay."""
    preview = await service.db.read(_read_deletion_preview, request.id)
    folders = await _folders_injecting(service, request.id, preview.project_id)
    backups = len(list(service.config.backups.glob("*.db")))
    return structs.replace(preview, goes=structs.replace(preview.goes, starts=folders), backups=backups)


def _read_deletion_preview(tx: Transaction, observation_id: int) -> DeletionOfOne:
    deleted = tx.memory.find_deleted_observation(observation_id)
    row = tx.memory.find_deleted_content(observation_id) if deleted else None
    if row is None:
        row = tx.memory.get_memory("observation", observation_id)
    merged = tx.memory.list_merged_into(observation_id)
    dates = deleted or row
    return DeletionOfOne(
        id=observation_id,
        title=row["title"],
        forgotten=deleted is not None,
        type=dates["type"] or "",
        created_at=dates["created_at"],
        undo_until=dates.get("undo_until"),
        project_id=tx.memory.get_observation_project_id(observation_id),
        into=deleted["into_id"] if deleted else None,
        goes=GoesWithIt(
            index=tx.search.count_index_entries(observation_id),
            history=len(tx.memory.list_observation_history(observation_id)),
            merged=merged,
            starts=[],
        ),
        stays=tx.memory.find_copies(
            row,
            turn_id=tx.memory.find_observation_turn_id(observation_id),
            exclude_ids=[observation_id, *merged],
        ),
        backups=0,
    )


async def _folders_injecting(service: Service, observation_id: int, project_id: int) -> list[str]:
    """Return the folders whose start context contains this observation."""
    limit, budget = service.config.context_observations, service.config.context_tokens
    memory = await service.db.read(brief.gather_memory, [project_id], limit=limit)
    if memory is None:
        return []
    start = await asyncio.to_thread(brief.compose_brief, memory, budget_tokens=budget, icons=service.icons)
    if f"o{observation_id}" not in start.item_names:
        return []
    return await service.db.read(lambda tx: tx.memory.list_project_folders(project_id))


# --- the page of one observation -------------------------------------------------------------------------------------


async def show_history(service: Service, request: ById) -> Items[HistoryEntry]:
    """Its changes, newest first → `{items}`, each with the values before it while they are kept."""
    return Items(await service.db.read(lambda tx: tx.memory.list_observation_history(request.id)))


async def show_page(service: Service, request: ById) -> ObservationPage:
    """One observation with its origin and its history of changes."""
    return await service.db.read(_read_page, request.id, types=list(service.icons))


async def show_related(service: Service, request: ById) -> Items[MemoryItem]:
    """Related observations → `{items}`. A separate request, since a search takes longer than the rest of the page."""
    observation = await service.db.read(lambda tx: tx.memory.get_memory("observation", request.id))
    await service.indexer.catch_up()
    return Items(await _find_related(service, observation))


def _read_page(tx: Transaction, observation_id: int, *, types: list[str]) -> ObservationPage:
    deleted = tx.memory.find_deleted_observation(observation_id)
    row = deleted or _get_with_state(tx, "observation", observation_id)
    needs_approval = not deleted and not trust.is_trusted_or_approved(row)
    return ObservationPage(
        observation=row,
        told=deleted is None and trust.is_injectable(row),
        held=trust.reason_held(row["trust"] or "", row["why"] or "") if needs_approval else "",
        origin=tx.memory.get_observation_origin(observation_id),
        history=tx.memory.list_observation_history(observation_id),
        validity=[] if deleted else tx.memory.list_validity_changes(observation_id),
        types=types,
    )


async def _find_related(service: Service, observation: MemoryItem) -> list[MemoryItem]:
    """Return the hits for its title and the observations about the same files."""
    where = SearchFilter(project_ids=(observation["project_id"],), kinds=("observation",))
    question = rank.SearchQuery(text=observation["title"] or "", where=where, limit=MAX_RELATED + 1)
    hits = await rank.find_marked_hits(service.db, service.indexer, question) if question.text.strip() else []
    similar: list[MemoryItem] = [{**hit.as_item(), "why": "words"} for hit in hits if hit.id != observation["id"]]
    shared = await service.db.read(
        lambda tx: tx.memory.list_observations_sharing_files(observation["id"], limit=MAX_RELATED)
    )
    shared = await service.db.read(lambda tx: tx.memory.add_states(shared))
    similar_ids = {item["id"] for item in similar}
    sharing_files: list[MemoryItem] = [{**row, "why": "files"} for row in shared if row["id"] not in similar_ids]
    half = MAX_RELATED // 2
    return [*similar[: MAX_RELATED - min(half, len(sharing_files))], *sharing_files][:MAX_RELATED]


# --- approval queue ---------------------------------------------------------------------------------------------------


async def show_approval_queue(service: Service, request: QueueQuery) -> ApprovalQueue:
    """The approval queue: `limit`, `offset` → `{items, hasMore, total, …}`."""
    limit, offset = request.limit, request.offset
    rows = await service.db.read(lambda tx: tx.memory.list_approval_queue(limit=limit + 1, offset=offset))
    sources = await service.db.read(lambda tx: tx.memory.count_approval_queue())
    return ApprovalQueue(
        items=[
            {**row, "why": trust.reason_held(row["trust"] or "", row["why"] or ""), "sources": _trustable_sources(row)}
            for row in rows[:limit]
        ],
        has_more=len(rows) > limit,
        offset=offset,
        limit=limit,
        total=sum(source["count"] for source in sources),
        sources=[QueueSource(**source, why=trust.reason_held(source["trust"])) for source in sources],
    )


def _trustable_sources(row: MemoryItem) -> list[str]:
    """Return the sources the user could trust instead of approving this row; none if its text is suspect."""
    return sorted(trust.parse_sources(row["why"] or "")) if row["trust"] == trust.EXTERNAL else []


async def judge_source(service: Service, request: JudgeSource, caller: Caller) -> Judged:
    """Approve or mark wrong everything pending from one source in one project: `{trust, project_id, verdict}`."""
    caller.require_user()
    trust, project_id, verdict = request.trust, request.project_id, request.verdict
    count = 0
    while batch := await service.db.read(
        lambda tx: tx.memory.list_approval_queue_ids(trust=trust, project_id=project_id, limit=JUDGE_BATCH)
    ):
        await service.db.write(_judge_all, batch, verdict)
        count += len(batch)
    await service.recorder.record(
        "judged", kind="source", trust=trust, project=project_id, verdict=verdict, count=count
    )
    await service.publish_correction(project_id)
    return Judged(count)


def _judge_all(tx: Transaction, batch: Sequence[tuple[str, int]], verdict: str) -> None:
    for kind, item_id in batch:
        tx.memory.set_verdict(kind, item_id, verdict, now=ids.now_ms())


ROUTES: tuple[AnyRoute, ...] = (
    Route(LIST_OBSERVATIONS, list_observations),
    Route(GET_OBSERVATIONS, get_observations),
    Route(EXPLAIN_LINE, explain_line),
    Route(LIST_BY_FILE, list_by_file),
    Route(LIST_SUMMARIES, list_summaries),
    Route(LIST_PROMPTS, list_prompts),
    Route(SHOW_OBSERVATION, show_observation),
    Route(CHANGE_OBSERVATION, change),
    Route(FORGET_OBSERVATION, forget),
    Route(SHOW_PAGE, show_page),
    Route(SHOW_RELATED, show_related),
    Route(SHOW_HISTORY, show_history),
    Route(PREVIEW_FORGETTING, preview_deletion),
    Route(UNDO, undo),
    Route(PIN, pin),
    Route(UNPIN, unpin),
    Route(MERGE, merge),
    Route(MARK_WRONG, judge("observation", "wrong")),
    Route(MARK_RIGHT, judge("observation", "right")),
    Route(APPROVE, judge("observation", "approved")),
    Route(MARK_SUMMARY_WRONG, judge("summary", "wrong")),
    Route(MARK_SUMMARY_RIGHT, judge("summary", "right")),
    Route(APPROVE_SUMMARY, judge("summary", "approved")),
    Route(SHOW_APPROVAL_QUEUE, show_approval_queue),
    Route(JUDGE_SOURCE, judge_source),
    Route(SHOW_SUMMARY, show_summary),
    Route(SHOW_PROMPT, show_prompt),
    Route(SHOW_SESSION, show_session),
    Route(SAVE_MEMORY, save_memory),
)
