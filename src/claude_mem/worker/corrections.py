"""Routes for correcting memories: edit, pin, judge, merge, forget, undo, and the page of one observation."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request

from claude_mem import ids, origins, quarantine
from claude_mem.errors import CannotDo, Misuse
from claude_mem.pipeline import context, recall
from claude_mem.records import Type
from claude_mem.store import corrections, observations, projects, provenance
from claude_mem.store.database import Connection, Row
from claude_mem.store.search import Filter
from claude_mem.text import map_strings, strings
from claude_mem.worker.requests import Handler, body_of, is_id, number, persons_only, row_id, speaker
from claude_mem.worker.saving import keepable, keepable_lines, whose
from claude_mem.worker.service import Service

MOST_RELATED = 8
JUDGE_BATCH = 200
_SHAPES: dict[str, type] = {
    **dict.fromkeys(("type", "title", "subtitle", "narrative"), str),
    **dict.fromkeys(("facts", "concepts"), list),
}


# --- one observation -------------------------------------------------------------------------------------------------


async def change(service: Service, request: Request) -> Any:
    """PATCH changes type, title, subtitle, narrative, facts or concepts."""
    fields = _corrections(await body_of(request), types=service.icons)
    return await _publish_change(service, await service.db.write(_change, row_id(request), fields, speaker(request)))


def _change(conn: Connection, observation_id: int, fields: Row, by: str) -> Row:
    """Apply an edit. An agent's edit is classified like a memory it saves.

    The agent's working directory is unknown here, so external text read in any project counts.
    """
    now, words = ids.now(), "\n".join(strings(list(fields.values())))
    types = (fields.get("type"), observations.get(conn, "observation", observation_id)["type"])
    if by != corrections.PERSON and Type.RULE in types:
        raise CannotDo("only the user can state or change a rule", hint="use the viewer: `claude-mem open`")
    trust, why = (by, "") if by == corrections.PERSON else whose(conn, None, words, by, now=now)
    return corrections.change(conn, observation_id, fields, now=now, by=by, trust=trust, why=why)


def _corrections(body: dict[str, Any], *, types: Collection[str]) -> Row:
    for name, item in body.items():
        if name not in _SHAPES or not isinstance(item, _SHAPES[name]):
            raise Misuse(f"`{name}` cannot be set to that value", hint="settable: " + ", ".join(_SHAPES))
        if isinstance(item, list) and not all(isinstance(part, str) for part in item):
            raise Misuse(f"`{name}` must be a list of strings")
    if "type" in body and body["type"] not in types:
        raise Misuse(f"there is no type {body['type']!r}", hint="use one of " + ", ".join(types))
    fields = {name: keepable_lines(item) if isinstance(item, list) else item for name, item in body.items()}
    fields = dict(map_strings(fields, keepable))
    if "title" in fields and not fields["title"].strip():
        raise Misuse("the title is empty", hint="sessions are shown the title, so it needs one")
    return fields


async def pin(service: Service, request: Request) -> Any:
    """POST pins an observation, DELETE unpins it. Pinned observations come first at every session start."""
    pinned = request.method == "POST"
    row = await service.db.write(corrections.pin, row_id(request), pinned=pinned, now=ids.now(), by=speaker(request))
    return await _publish_change(service, row)


def judge(kind: str, verdict: str) -> Handler:
    async def handler(service: Service, request: Request) -> Any:
        persons_only(request)
        new_verdict = "right" if request.method == "DELETE" else verdict
        row = await service.db.write(corrections.judge, kind, row_id(request), new_verdict, now=ids.now())
        await service.record("judged", kind=kind, id=row["id"], verdict=new_verdict)
        return await _publish_change(service, row)

    handler.__doc__ = {
        "wrong": "POST marks it wrong: it is neither injected nor found. DELETE withdraws that.",
        "approved": "Approve it for injection although it rests on external text.",
    }[verdict]
    return handler


async def merge(service: Service, request: Request) -> Any:
    """Merge other observations of the same project into this one: `{ids}`. Undo restores all of them."""
    persons_only(request)
    merged_ids = (await body_of(request)).get("ids")
    if not isinstance(merged_ids, list) or not all(is_id(item) for item in merged_ids):
        raise Misuse("`ids` must be a list of integers")
    return await _publish_change(
        service, await service.db.write(corrections.merge, row_id(request), merged_ids, now=ids.now())
    )


async def undo(service: Service, request: Request) -> Any:
    """Undo the last edit, merge, verdict or deletion, within 30 days → `{undone, ids, observation}`."""
    observation_id = row_id(request)
    result = await service.forgetter.undo_one(observation_id, by=speaker(request))
    await service.record("undone", deed=result["undone"], ids=result["ids"])
    row = await service.db.read(observations.get, "observation", observation_id)
    return {**result, "observation": await _publish_change(service, row)}


async def _publish_change(service: Service, row: Row) -> Row:
    """Publish the change and refresh the start context; return the row."""
    await service.publish_correction(row["project_id"], kind=row["kind"], row_id=row["id"])
    return row


# --- deletion --------------------------------------------------------------------------------------------------------


async def forget(service: Service, request: Request) -> Any:
    """DELETE forgets it, which can be undone for 30 days; with `now=1` it and every copy are erased at once."""
    observation_id = row_id(request)
    if number(request, "now", 0, high=1):
        return {"status": "erased", "id": observation_id, "ids": await service.erase(observation_id)}
    return {
        "status": "forgotten",
        "id": observation_id,
        "undo_until": await service.forget(observation_id, by=speaker(request)),
    }


async def show_forgetting(service: Service, request: Request) -> Any:
    """Preview a deletion: what goes with it, and which rows about the same thing stay."""
    observation_id = row_id(request)
    preview = await service.db.read(_deletion_preview, observation_id)
    folders = await _folders_injecting(service, observation_id, preview["project_id"])
    backups = len(list(service.config.backups.glob("*.db")))
    return {**preview, "goes": {**preview["goes"], "starts": folders}, "backups": backups}


def _deletion_preview(conn: Connection, observation_id: int) -> Row:
    deleted = corrections.forgotten(conn, observation_id)
    row = provenance.kept(conn, observation_id) if deleted else None
    if row is None:
        row = observations.get(conn, "observation", observation_id)
    merged = corrections.merged_into(conn, observation_id)
    dates = deleted or row
    return {
        "id": observation_id,
        "title": row["title"],
        "forgotten": deleted is not None,
        "type": dates["type"],
        "created_at": dates["created_at"],
        "undo_until": dates.get("undo_until"),
        "project_id": provenance.project_of(conn, observation_id),
        "into": deleted["into_id"] if deleted else None,
        "goes": {
            "index": provenance.index_entries(conn, observation_id),
            "history": len(corrections.history(conn, observation_id)),
            "merged": merged,
        },
        "stays": provenance.copies(
            conn, row, turn_id=provenance.turn_of(conn, observation_id), exclude_ids=[observation_id, *merged]
        ),
    }


async def _folders_injecting(service: Service, observation_id: int, project_id: int) -> list[str]:
    """Return the folders whose start context contains this observation."""
    limit, budget = service.config.context_observations, service.config.context_tokens
    memory = await service.db.read(context.gather, [project_id], limit=limit)
    if memory is None:
        return []
    injected_ids = (await asyncio.to_thread(context.compose, memory, budget_tokens=budget, icons=service.icons)).told
    return await service.db.read(projects.folders, project_id) if f"o{observation_id}" in injected_ids else []


# --- details ---------------------------------------------------------------------------------------------------------


async def show_history(service: Service, request: Request) -> Any:
    """Its changes, newest first → `{items}`, each with the values before it while they are kept."""
    return {"items": await service.db.read(corrections.history, row_id(request))}


async def page(service: Service, request: Request) -> Any:
    """One observation with its origin and its history of changes."""
    details = await service.db.read(_page, row_id(request))
    return {**details, "types": list(service.icons)}


async def related(service: Service, request: Request) -> Any:
    """Related observations → `{items}`. A separate request, since a search takes longer than the rest of the page."""
    observation = await service.db.read(observations.get, "observation", row_id(request))
    await service.indexer.catch_up()
    return {"items": await _related(service, observation)}


def _page(conn: Connection, observation_id: int) -> Row:
    deleted = corrections.forgotten(conn, observation_id)
    row = deleted or observations.get(conn, "observation", observation_id)
    return {
        "observation": row,
        "told": deleted is None and observations.may_tell(row),
        "held": "" if deleted or observations.is_believed(row) else quarantine.why(row["trust"], row["why"]),
        "origin": provenance.origin(conn, observation_id),
        "history": corrections.history(conn, observation_id),
    }


async def _related(service: Service, observation: Row) -> list[Row]:
    """Return the hits for its title and the observations about the same files."""
    where = Filter(project_ids=(observation["project_id"],), kinds=("observation",))
    question = recall.Question(text=observation["title"] or "", where=where, limit=MOST_RELATED + 1)
    hits = await recall.find(service.db, service.indexer, question) if question.text.strip() else []
    similar = [{**hit.as_item(), "why": "words"} for hit in hits if hit.id != observation["id"]]
    shared = await service.db.read(provenance.sharing_files, observation["id"], limit=MOST_RELATED)
    sharing_files = [{**row, "why": "files"} for row in shared if row["id"] not in {item["id"] for item in similar}]
    half = MOST_RELATED // 2
    return [*similar[: MOST_RELATED - min(half, len(sharing_files))], *sharing_files][:MOST_RELATED]


# --- approval queue ---------------------------------------------------------------------------------------------------


async def show_held(service: Service, request: Request) -> Any:
    """The approval queue: `limit`, `offset` → `{items, hasMore, total, …}`."""
    limit, offset = number(request, "limit", 20, low=1, high=100), number(request, "offset", 0, high=100_000)
    rows = await service.db.read(corrections.held, limit=limit + 1, offset=offset)
    sources = await service.db.read(corrections.held_by_source)
    return {
        "items": [{**row, "why": quarantine.why(row["trust"], row["why"]), **_sources(row)} for row in rows[:limit]],
        "hasMore": len(rows) > limit,
        "offset": offset,
        "limit": limit,
        "total": sum(source["count"] for source in sources),
        "sources": [{**source, "why": quarantine.why(source["trust"])} for source in sources],
    }


def _sources(row: Row) -> Row:
    """Return the sources the user could trust instead of approving this row; none if its text is suspect."""
    return {"sources": sorted(origins.sources_of(row["why"])) if row["trust"] == origins.EXTERNAL else []}


async def settle_source(service: Service, request: Request) -> Any:
    """Approve or mark wrong everything pending from one source in one project: `{trust, project_id, verdict}`."""
    persons_only(request)
    body = await body_of(request)
    trust, project_id, verdict = body.get("trust"), body.get("project_id", 0), body.get("verdict", "approved")
    if not isinstance(trust, str) or not is_id(project_id) or verdict not in ("approved", "wrong"):
        raise Misuse(
            "`trust`, `project_id` or `verdict` is missing or invalid", hint="see `sources` in GET /api/quarantine"
        )
    find = partial(corrections.held_ids, trust=trust, project_id=project_id, limit=JUDGE_BATCH)
    count = 0
    while batch := await service.db.read(find):
        await service.db.write(_judge_all, batch, verdict)
        count += len(batch)
    await service.record("judged", kind="source", trust=trust, project=project_id, verdict=verdict, count=count)
    await service.publish_correction(project_id)
    return {"count": count}


def _judge_all(conn: Connection, batch: Sequence[tuple[str, int]], verdict: str) -> None:
    for kind, item_id in batch:
        corrections.judge(conn, kind, item_id, verdict, now=ids.now())
