"""Routes of memories: list, read, save, correct (edit, pin, judge, merge, undo), forget and approve them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request

from claude_mem.curate.saving import classify_trust, sanitize_user_lines, sanitize_user_text
from claude_mem.domain import ids, rules
from claude_mem.domain.errors import InvalidRequest, OperationFailed
from claude_mem.domain.records import ObservationType
from claude_mem.domain.text import first_sentence, iter_strings, make_storable, map_strings
from claude_mem.inject import brief
from claude_mem.privacy import trust
from claude_mem.privacy.trust import USER
from claude_mem.recall import line_history, rank
from claude_mem.storage.sqlite.engine import Connection, Row
from claude_mem.storage.sqlite.journal import events, turns
from claude_mem.storage.sqlite.memory import anchors, edits, observations, projects, sessions, validity
from claude_mem.storage.sqlite.memory.search import SearchFilter
from claude_mem.system import project_folders
from claude_mem.worker.app import Service
from claude_mem.worker.http.params import (
    Handler,
    int_query,
    is_id,
    path_id,
    read_json_body,
    requested_by,
    require_user,
    str_field,
    validities_param,
)

MAX_BATCH_IDS = 200
MAX_RELATED = 8
JUDGE_BATCH = 200
_EDITABLE_FIELDS: dict[str, type] = {
    **dict.fromkeys(("type", "title", "subtitle", "narrative"), str),
    **dict.fromkeys(("facts", "concepts"), list),
}


# --- listing, reading and saving -------------------------------------------------------------------------------------


def list_handler(select: Callable[..., list[Row]]) -> Handler:
    """Return a handler that lists the rows of `select`, a page at a time."""

    async def handler(service: Service, request: Request) -> Any:
        """`limit` (1–100), `offset`, `project` → `{items, hasMore, offset, limit}`, newest first."""
        return await _list_page(service, request, select)

    return handler


async def list_observations(service: Service, request: Request) -> Any:
    """`limit` (1–100), `offset`, `project`, `type`, `validity` → `{items, hasMore, offset, limit}`, newest first."""
    kind, validities = request.query_params.get("type", ""), validities_param(dict(request.query_params))
    if kind and kind not in service.icons:
        raise InvalidRequest(f"there is no type {kind!r}", hint="use one of " + ", ".join(service.icons))
    select = partial(_list_with_states, kind="observation", type_=kind, validities=validities)
    return await _list_page(service, request, select)


def _list_with_states(conn: Connection, **options: Any) -> list[Row]:
    return anchors.add_states(conn, observations.list_memories(conn, **options))


async def _list_page(service: Service, request: Request, select: Callable[..., list[Row]]) -> Any:
    limit, offset = int_query(request, "limit", 20, low=1, high=100), int_query(request, "offset", 0)
    project = request.query_params.get("project", "")
    rows = await service.db.read(select, limit=limit + 1, offset=offset, project=project)
    return {"items": rows[:limit], "hasMore": len(rows) > limit, "offset": offset, "limit": limit}


def record_handler(kind: str) -> Handler:
    """Return a handler that shows one record of this kind."""

    async def handler(service: Service, request: Request) -> Any:
        """One record in full."""
        return await service.db.read(_get_with_state, kind, path_id(request))

    return handler


def _get_with_state(conn: Connection, kind: str, row_id: int) -> Row:
    row = observations.get_memory(conn, kind, row_id)
    return anchors.add_states(conn, [row])[0] if kind == "observation" else row


async def show_session(service: Service, request: Request) -> Any:
    """A whole session: its turns, events, prompts, observations and summaries."""
    return await service.db.read(_session_details, path_id(request))


def _session_details(conn: Connection, session_id: int) -> Row:
    session = sessions.get_session_details(conn, session_id)
    return {
        **session,
        "turns": turns.list_turns(conn, session_id),
        "events": events.list_session_events(conn, session_id),
        "prompts": observations.list_session_memories(conn, "prompt", session_id),
        "observations": anchors.add_states(conn, observations.list_session_memories(conn, "observation", session_id)),
        "summaries": observations.list_session_memories(conn, "summary", session_id),
    }


async def get_observations(service: Service, request: Request) -> Any:
    """Observations in full, in the order of the request: `{ids}`."""
    observation_ids: Any = (await read_json_body(request)).get("ids")
    is_list_of_ids = isinstance(observation_ids, list) and all(is_id(item) for item in observation_ids)
    if not is_list_of_ids or len(observation_ids) > MAX_BATCH_IDS:
        raise InvalidRequest(f"`ids` must be a list of at most {MAX_BATCH_IDS} integers")
    return {"items": await service.db.read(_load_with_states, observation_ids)}


def _load_with_states(conn: Connection, observation_ids: list[int]) -> list[Row]:
    return anchors.add_states(conn, observations.load_observations(conn, observation_ids))


async def explain_line(service: Service, request: Request) -> Any:
    """Which work wrote a line, and why: `file`, `line`, `cwd` → `{file, line, text, match, items}`."""
    file, cwd = request.query_params.get("file", ""), request.query_params.get("cwd", "")
    if not file or not cwd:
        raise InvalidRequest("`file` or `cwd` is missing", hint="/api/why?cwd=/path/to/project&file=src/x.py&line=12")
    project = await project_folders.identify_project_in_thread(cwd, excluded=service.config.excluded_projects)
    line = int_query(request, "line", 0, high=10_000_000)
    return await line_history.explain_line(service.db, project, make_storable(file), line)


async def list_by_file(service: Service, request: Request) -> Any:
    """Observations about a file: `path`, `project` or `project_id`, `limit`."""
    path, name = request.query_params.get("path", ""), request.query_params.get("project", "")
    own_id = int_query(request, "project_id", 0)
    if not path or not (name or own_id):
        raise InvalidRequest(
            "`path` or `project` is missing", hint="/api/observations/by-file?project=NAME&path=src/x.py"
        )
    limit = int_query(request, "limit", 20, low=1, high=100)
    await service.indexer.catch_up()
    rows: list[Row] = []
    for project_id in [own_id] if own_id else await service.db.read(projects.list_project_ids_by_name, name):
        rows += await service.db.read(
            observations.list_observations_by_file, project_id, make_storable(path), limit=limit
        )
    return {"items": await service.db.read(anchors.add_states, rows[:limit])}


async def save_memory(service: Service, request: Request) -> Any:
    """Save a memory: `{text, title?, project? or cwd?, type?}`. The type `rule` makes it a rule, as does a user's text
    that consists of rules ("always …"); only the user can state one. `X-Claude-Mem-By: agent` marks an agent's memory,
    which needs approval if external text was read just before, in any folder."""
    body = await read_json_body(request)
    by, kind = requested_by(request), _requested_type(request, str_field(body, "type", limit=40))
    name, cwd = str_field(body, "project", limit=100), str_field(body, "cwd", limit=4096)
    project = project_folders.project_from_name(name or project_folders.GENERAL_PROJECT)
    if cwd and not name:
        project = await project_folders.identify_project_in_thread(cwd, excluded=service.config.excluded_projects)
    if not project.enabled:
        raise InvalidRequest("memory is switched off in this folder; nothing was saved", hint="name a `project`")
    text = sanitize_user_text(str_field(body, "text", required=True, limit=20_000))
    if not text.strip():
        raise InvalidRequest("the text is entirely private; nothing was saved")
    title = sanitize_user_text(str_field(body, "title", limit=200)) or first_sentence(text, 100)
    kind = kind or (ObservationType.RULE if by == USER and rules.is_all_rules(text) else ObservationType.DISCOVERY)
    row_id, why = await service.save(project, title, text, by=by, type_=kind)
    return {"success": True, "id": row_id, "type": kind, "title": title, "project": project.name, "held": why}


def _requested_type(request: Request, type_name: str) -> str:
    """Return the requested type: `rule` or ""."""
    if type_name not in ("", ObservationType.RULE):
        raise InvalidRequest(f"the type {type_name!r} cannot be saved", hint="use `rule`, or leave `type` out")
    if type_name:
        require_user(request)
    return type_name


# --- correcting ------------------------------------------------------------------------------------------------------


async def change(service: Service, request: Request) -> Any:
    """PATCH changes type, title, subtitle, narrative, facts or concepts."""
    fields = _parse_edit(await read_json_body(request), types=service.icons)
    return await _publish_change(
        service, await service.db.write(_edit, path_id(request), fields, requested_by(request))
    )


def _edit(conn: Connection, observation_id: int, fields: Row, by: str) -> Row:
    """Apply an edit. An agent's edit is classified like a memory it saves.

    The agent's working directory is unknown here, so external text read in any project counts.
    """
    now, words = ids.now_ms(), "\n".join(iter_strings(list(fields.values())))
    types = (fields.get("type"), observations.get_memory(conn, "observation", observation_id)["type"])
    if by != edits.PERSON and ObservationType.RULE in types:
        raise OperationFailed("only the user can state or change a rule", hint="use the viewer: `claude-mem open`")
    trust, why = (by, "") if by == edits.PERSON else classify_trust(conn, None, words, by, now=now)
    return edits.edit_observation(conn, observation_id, fields, now=now, by=by, trust=trust, why=why)


def _parse_edit(body: dict[str, Any], *, types: Collection[str]) -> Row:
    for name, item in body.items():
        if name not in _EDITABLE_FIELDS or not isinstance(item, _EDITABLE_FIELDS[name]):
            raise InvalidRequest(
                f"`{name}` cannot be set to that value", hint="settable: " + ", ".join(_EDITABLE_FIELDS)
            )
        if isinstance(item, list) and not all(isinstance(part, str) for part in item):
            raise InvalidRequest(f"`{name}` must be a list of strings")
    if "type" in body and body["type"] not in types:
        raise InvalidRequest(f"there is no type {body['type']!r}", hint="use one of " + ", ".join(types))
    fields = {name: sanitize_user_lines(item) if isinstance(item, list) else item for name, item in body.items()}
    fields = dict(map_strings(fields, sanitize_user_text))
    if "title" in fields and not fields["title"].strip():
        raise InvalidRequest("the title is empty", hint="sessions are shown the title, so it needs one")
    return fields


async def pin(service: Service, request: Request) -> Any:
    """POST pins an observation, DELETE unpins it. Pinned observations come first at every session start."""
    pinned = request.method == "POST"
    row = await service.db.write(
        edits.set_pinned, path_id(request), pinned=pinned, now=ids.now_ms(), by=requested_by(request)
    )
    return await _publish_change(service, row)


def judge(kind: str, verdict: str) -> Handler:
    """Return a handler that gives a record of this kind that verdict (POST) or withdraws it (DELETE)."""

    async def handler(service: Service, request: Request) -> Any:
        require_user(request)
        new_verdict = "right" if request.method == "DELETE" else verdict
        row = await service.db.write(edits.set_verdict, kind, path_id(request), new_verdict, now=ids.now_ms())
        await service.recorder.record("judged", kind=kind, id=row["id"], verdict=new_verdict)
        return await _publish_change(service, row)

    handler.__doc__ = {
        "wrong": "POST marks it wrong: it is neither injected nor found. DELETE withdraws that.",
        "approved": "Approve it for injection although it rests on external text.",
    }[verdict]
    return handler


async def merge(service: Service, request: Request) -> Any:
    """Merge other observations of the same project into this one: `{ids}`. Undo restores all of them."""
    require_user(request)
    merged_ids = (await read_json_body(request)).get("ids")
    if not isinstance(merged_ids, list) or not all(is_id(item) for item in merged_ids):
        raise InvalidRequest("`ids` must be a list of integers")
    return await _publish_change(
        service, await service.db.write(edits.merge_observations, path_id(request), merged_ids, now=ids.now_ms())
    )


async def undo(service: Service, request: Request) -> Any:
    """Undo the last edit, merge, verdict or deletion, within 30 days → `{undone, ids, observation}`."""
    observation_id = path_id(request)
    result = await service.deletion_service.undo_one(observation_id, by=requested_by(request))
    await service.recorder.record("undone", deed=result["undone"], ids=result["ids"])
    row = await service.db.read(observations.get_memory, "observation", observation_id)
    return {**result, "observation": await _publish_change(service, row)}


async def _publish_change(service: Service, row: Row) -> Row:
    """Publish the change and refresh the start context; return the row."""
    await service.publish_correction(row["project_id"], kind=row["kind"], row_id=row["id"])
    return row


# --- forgetting ------------------------------------------------------------------------------------------------------


async def forget(service: Service, request: Request) -> Any:
    """DELETE forgets it, which can be undone for 30 days; with `now=1` it and every copy are erased at once."""
    observation_id = path_id(request)
    if int_query(request, "now", 0, high=1):
        return {"status": "erased", "id": observation_id, "ids": await service.erase(observation_id)}
    return {
        "status": "forgotten",
        "id": observation_id,
        "undo_until": await service.forget(observation_id, by=requested_by(request)),
    }


async def preview_deletion(service: Service, request: Request) -> Any:
    """Preview a deletion: what goes with it, and which rows about the same thing stay."""
    observation_id = path_id(request)
    preview = await service.db.read(_read_deletion_preview, observation_id)
    folders = await _folders_injecting(service, observation_id, preview["project_id"])
    backups = len(list(service.config.backups.glob("*.db")))
    return {**preview, "goes": {**preview["goes"], "starts": folders}, "backups": backups}


def _read_deletion_preview(conn: Connection, observation_id: int) -> Row:
    deleted = edits.find_deleted_observation(conn, observation_id)
    row = edits.find_deleted_content(conn, observation_id) if deleted else None
    if row is None:
        row = observations.get_memory(conn, "observation", observation_id)
    merged = edits.list_merged_into(conn, observation_id)
    dates = deleted or row
    return {
        "id": observation_id,
        "title": row["title"],
        "forgotten": deleted is not None,
        "type": dates["type"],
        "created_at": dates["created_at"],
        "undo_until": dates.get("undo_until"),
        "project_id": edits.get_observation_project_id(conn, observation_id),
        "into": deleted["into_id"] if deleted else None,
        "goes": {
            "index": edits.count_index_entries(conn, observation_id),
            "history": len(edits.list_observation_history(conn, observation_id)),
            "merged": merged,
        },
        "stays": edits.find_copies(
            conn,
            row,
            turn_id=edits.find_observation_turn_id(conn, observation_id),
            exclude_ids=[observation_id, *merged],
        ),
    }


async def _folders_injecting(service: Service, observation_id: int, project_id: int) -> list[str]:
    """Return the folders whose start context contains this observation."""
    limit, budget = service.config.context_observations, service.config.context_tokens
    memory = await service.db.read(brief.gather_memory, [project_id], limit=limit)
    if memory is None:
        return []
    start = await asyncio.to_thread(brief.compose_brief, memory, budget_tokens=budget, icons=service.icons)
    if f"o{observation_id}" not in start.item_names:
        return []
    return await service.db.read(projects.list_project_folders, project_id)


# --- the page of one observation -------------------------------------------------------------------------------------


async def show_history(service: Service, request: Request) -> Any:
    """Its changes, newest first → `{items}`, each with the values before it while they are kept."""
    return {"items": await service.db.read(edits.list_observation_history, path_id(request))}


async def show_page(service: Service, request: Request) -> Any:
    """One observation with its origin and its history of changes."""
    details = await service.db.read(_read_page, path_id(request))
    return {**details, "types": list(service.icons)}


async def show_related(service: Service, request: Request) -> Any:
    """Related observations → `{items}`. A separate request, since a search takes longer than the rest of the page."""
    observation = await service.db.read(observations.get_memory, "observation", path_id(request))
    await service.indexer.catch_up()
    return {"items": await _find_related(service, observation)}


def _read_page(conn: Connection, observation_id: int) -> Row:
    deleted = edits.find_deleted_observation(conn, observation_id)
    row = deleted or _get_with_state(conn, "observation", observation_id)
    needs_approval = not deleted and not observations.is_trusted_or_approved(row)
    return {
        "observation": row,
        "told": deleted is None and observations.is_injectable(row),
        "held": trust.reason_held(row["trust"], row["why"]) if needs_approval else "",
        "origin": edits.get_observation_origin(conn, observation_id),
        "history": edits.list_observation_history(conn, observation_id),
        "validity": [] if deleted else validity.list_changes(conn, observation_id),
    }


async def _find_related(service: Service, observation: Row) -> list[Row]:
    """Return the hits for its title and the observations about the same files."""
    where = SearchFilter(project_ids=(observation["project_id"],), kinds=("observation",))
    question = rank.SearchQuery(text=observation["title"] or "", where=where, limit=MAX_RELATED + 1)
    hits = await rank.find_marked_hits(service.db, service.indexer, question) if question.text.strip() else []
    similar = [{**hit.as_item(), "why": "words"} for hit in hits if hit.id != observation["id"]]
    shared = await service.db.read(edits.list_observations_sharing_files, observation["id"], limit=MAX_RELATED)
    shared = await service.db.read(anchors.add_states, shared)
    sharing_files = [{**row, "why": "files"} for row in shared if row["id"] not in {item["id"] for item in similar}]
    half = MAX_RELATED // 2
    return [*similar[: MAX_RELATED - min(half, len(sharing_files))], *sharing_files][:MAX_RELATED]


# --- approval queue ---------------------------------------------------------------------------------------------------


async def show_approval_queue(service: Service, request: Request) -> Any:
    """The approval queue: `limit`, `offset` → `{items, hasMore, total, …}`."""
    limit, offset = int_query(request, "limit", 20, low=1, high=100), int_query(request, "offset", 0, high=100_000)
    rows = await service.db.read(edits.list_approval_queue, limit=limit + 1, offset=offset)
    sources = await service.db.read(edits.count_approval_queue)
    return {
        "items": [
            {**row, "why": trust.reason_held(row["trust"], row["why"]), "sources": _trustable_sources(row)}
            for row in rows[:limit]
        ],
        "hasMore": len(rows) > limit,
        "offset": offset,
        "limit": limit,
        "total": sum(source["count"] for source in sources),
        "sources": [{**source, "why": trust.reason_held(source["trust"])} for source in sources],
    }


def _trustable_sources(row: Row) -> list[str]:
    """Return the sources the user could trust instead of approving this row; none if its text is suspect."""
    return sorted(trust.parse_sources(row["why"])) if row["trust"] == trust.EXTERNAL else []


async def judge_source(service: Service, request: Request) -> Any:
    """Approve or mark wrong everything pending from one source in one project: `{trust, project_id, verdict}`."""
    require_user(request)
    body = await read_json_body(request)
    trust, project_id, verdict = body.get("trust"), body.get("project_id", 0), body.get("verdict", "approved")
    if not isinstance(trust, str) or not is_id(project_id) or verdict not in ("approved", "wrong"):
        raise InvalidRequest(
            "`trust`, `project_id` or `verdict` is missing or invalid", hint="see `sources` in GET /api/quarantine"
        )
    find = partial(edits.list_approval_queue_ids, trust=trust, project_id=project_id, limit=JUDGE_BATCH)
    count = 0
    while batch := await service.db.read(find):
        await service.db.write(_judge_all, batch, verdict)
        count += len(batch)
    await service.recorder.record(
        "judged", kind="source", trust=trust, project=project_id, verdict=verdict, count=count
    )
    await service.publish_correction(project_id)
    return {"count": count}


def _judge_all(conn: Connection, batch: Sequence[tuple[str, int]], verdict: str) -> None:
    for kind, item_id in batch:
        edits.set_verdict(conn, kind, item_id, verdict, now=ids.now_ms())
