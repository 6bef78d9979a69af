"""What a person says of what is remembered: corrected, pinned, judged, merged, forgotten, undone; and the page of one
observation, where that is done."""

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
AT_ONCE = 200
_SHAPES: dict[str, type] = {
    **dict.fromkeys(("type", "title", "subtitle", "narrative"), str),
    **dict.fromkeys(("facts", "concepts"), list),
}


# --- one observation -------------------------------------------------------------------------------------------------


async def change(service: Service, request: Request) -> Any:
    """PATCH corrects type, title, subtitle, narrative, facts or concepts."""
    fields = _corrections(await body_of(request), types=service.icons)
    return await _done(service, await service.db.write(_change, row_id(request), fields, speaker(request)))


def _change(conn: Connection, wanted: int, fields: Row, by: str) -> Row:
    """An agent's words are weighed as what it saves is: where it has read, nobody knows here."""
    now, words = ids.now(), "\n".join(strings(list(fields.values())))
    types = (fields.get("type"), observations.get(conn, "observation", wanted)["type"])
    if by != corrections.PERSON and Type.RULE in types:
        raise CannotDo("only a person states a rule or changes one", hint="`claude-mem open` shows where")
    trust, why = (by, "") if by == corrections.PERSON else whose(conn, None, words, by, now=now)
    return corrections.change(conn, wanted, fields, now=now, by=by, trust=trust, why=why)


def _corrections(body: dict[str, Any], *, types: Collection[str]) -> Row:
    for name, item in body.items():
        if name not in _SHAPES or not isinstance(item, _SHAPES[name]):
            raise Misuse(f"`{name}` can't be set to that", hint="set " + ", ".join(_SHAPES))
        if isinstance(item, list) and not all(isinstance(part, str) for part in item):
            raise Misuse(f"`{name}` must be a list of texts")
    if "type" in body and body["type"] not in types:
        raise Misuse(f"there is no type {body['type']!r}", hint="use one of " + ", ".join(types))
    cleaned = {name: keepable_lines(item) if isinstance(item, list) else item for name, item in body.items()}
    cleaned = dict(map_strings(cleaned, keepable))
    if "title" in cleaned and not cleaned["title"].strip():
        raise Misuse("the title is empty", hint="what is told of it at a session's start is its title")
    return cleaned


async def pin(service: Service, request: Request) -> Any:
    """POST pins it, DELETE unpins it: pinned ones are told first at every session's start."""
    pinned = request.method == "POST"
    found = await service.db.write(corrections.pin, row_id(request), pinned=pinned, now=ids.now(), by=speaker(request))
    return await _done(service, found)


def judge(kind: str, verdict: str) -> Handler:
    async def handler(service: Service, request: Request) -> Any:
        persons_only(request)
        given = "right" if request.method == "DELETE" else verdict
        found = await service.db.write(corrections.judge, kind, row_id(request), given, now=ids.now())
        await service.record("judged", kind=kind, id=found["id"], verdict=given)
        return await _done(service, found)

    handler.__doc__ = {
        "wrong": "POST: it is wrong, and no longer told or found. DELETE: it is right after all.",
        "approved": "It may be told unasked, though it came from outside.",
    }[verdict]
    return handler


async def merge(service: Service, request: Request) -> Any:
    """Put others of the same project into this one: `{ids}`. They are forgotten; undoing brings all of them back."""
    persons_only(request)
    others = (await body_of(request)).get("ids")
    if not isinstance(others, list) or not all(is_id(item) for item in others):
        raise Misuse("`ids` must be a list of whole numbers")
    return await _done(service, await service.db.write(corrections.merge, row_id(request), others, now=ids.now()))


async def undo(service: Service, request: Request) -> Any:
    """Take back the last edit, merge, verdict or forgetting: `{undone, ids, observation}`. For 30 days."""
    wanted = row_id(request)
    back = await service.forgetter.undo_one(wanted, by=speaker(request))
    await service.record("undone", deed=back["undone"], ids=back["ids"])
    found = await service.db.read(observations.get, "observation", wanted)
    return {**back, "observation": await _done(service, found)}


async def _done(service: Service, found: Row) -> Row:
    """What lies ready to be told is made again, and whoever is looking hears of it."""
    await service.corrected(found["project_id"], kind=found["kind"], row_id=found["id"])
    return found


# --- forgetting ------------------------------------------------------------------------------------------------------


async def forget(service: Service, request: Request) -> Any:
    """DELETE forgets it, and that can be undone for 30 days; with `now=1` it is erased at once, with every copy."""
    wanted = row_id(request)
    if number(request, "now", 0, high=1):
        return {"status": "erased", "id": wanted, "ids": await service.erase(wanted)}
    return {"status": "forgotten", "id": wanted, "undo_until": await service.forget(wanted, by=speaker(request))}


async def show_forgetting(service: Service, request: Request) -> Any:
    """What exactly goes if it is forgotten, and which rows that tell about the same stay."""
    wanted = row_id(request)
    found = await service.db.read(_forgetting, wanted)
    told = await _starts_with(service, wanted, found["project_id"])
    backups = len(list(service.config.backups.glob("*.db")))
    return {**found, "goes": {**found["goes"], "starts": told}, "backups": backups}


def _forgetting(conn: Connection, wanted: int) -> Row:
    away = corrections.forgotten(conn, wanted)
    row = provenance.kept(conn, wanted) if away else None
    if row is None:
        row = observations.get(conn, "observation", wanted)
    merged = corrections.merged_into(conn, wanted)
    found = {"id": wanted, "title": row["title"], "forgotten": away is not None, **_dates(away or row)}
    return {
        **found,
        "project_id": provenance.project_of(conn, wanted),
        "into": away["into_id"] if away else None,
        "goes": {
            "index": provenance.index_entries(conn, wanted),
            "history": len(corrections.history(conn, wanted)),
            "merged": merged,
        },
        "stays": provenance.copies(conn, row, turn_id=provenance.turn_of(conn, wanted), but=[wanted, *merged]),
    }


def _dates(row: Row) -> Row:
    return {"type": row["type"], "created_at": row["created_at"], "undo_until": row.get("undo_until")}


async def _starts_with(service: Service, wanted: int, project_id: int) -> list[str]:
    """The folders whose start context names it."""
    limit, budget = service.config.context_observations, service.config.context_tokens
    known = await service.db.read(context.gather, [project_id], limit=limit)
    if known is None:
        return []
    told = (await asyncio.to_thread(context.compose, known, budget_tokens=budget, icons=service.icons)).told
    return await service.db.read(projects.folders, project_id) if f"o{wanted}" in told else []


# --- its page --------------------------------------------------------------------------------------------------------


async def show_history(service: Service, request: Request) -> Any:
    """What was done to it, newest first: `{items}`, each with what was before while that is kept."""
    return {"items": await service.db.read(corrections.history, row_id(request))}


async def page(service: Service, request: Request) -> Any:
    """Everything about one observation: where it comes from and what was done to it."""
    found = await service.db.read(_page, row_id(request))
    return {**found, "types": list(service.icons)}


async def related(service: Service, request: Request) -> Any:
    """Others that are about the same, `{items}`: a question of its own, since a search takes longer than the rest of
    the page."""
    known = await service.db.read(observations.get, "observation", row_id(request))
    await service.indexer.catch_up()
    return {"items": await _related(service, known)}


def _page(conn: Connection, wanted: int) -> Row:
    away = corrections.forgotten(conn, wanted)
    row = away or observations.get(conn, "observation", wanted)
    return {
        "observation": row,
        "told": away is None and observations.may_tell(row),
        "held": "" if away or observations.is_believed(row) else quarantine.why(row["trust"], row["why"]),
        "origin": provenance.origin(conn, wanted),
        "history": corrections.history(conn, wanted),
    }


async def _related(service: Service, known: Row) -> list[Row]:
    """What a search for its title finds, and what is about the same files."""
    where = Filter(project_ids=(known["project_id"],), kinds=("observation",))
    question = recall.Question(text=known["title"] or "", where=where, limit=MOST_RELATED + 1)
    hits = await recall.find(service.db, service.indexer, question) if question.text.strip() else []
    alike = [{**hit.as_item(), "why": "words"} for hit in hits if hit.id != known["id"]]
    shared = await service.db.read(provenance.sharing_files, known["id"], limit=MOST_RELATED)
    beside = [{**row, "why": "files"} for row in shared if row["id"] not in {item["id"] for item in alike}]
    half = MOST_RELATED // 2
    return [*alike[: MOST_RELATED - min(half, len(beside))], *beside][:MOST_RELATED]


# --- what waits for a person's word ----------------------------------------------------------------------------------


async def show_held(service: Service, request: Request) -> Any:
    """What is not told unasked because of where it came from: `limit`, `offset` → `{items, hasMore, total, …}`."""
    limit, offset = number(request, "limit", 20, low=1, high=100), number(request, "offset", 0, high=100_000)
    found = await service.db.read(corrections.held, limit=limit + 1, offset=offset)
    sources = await service.db.read(corrections.held_by_source)
    return {
        "items": [{**row, "why": quarantine.why(row["trust"], row["why"]), **_sources(row)} for row in found[:limit]],
        "hasMore": len(found) > limit,
        "offset": offset,
        "limit": limit,
        "total": sum(source["count"] for source in sources),
        "sources": [{**source, "why": quarantine.why(source["trust"])} for source in sources],
    }


def _sources(row: Row) -> Row:
    """What a person could trust so that this need not be approved; nothing if its words look like an attack."""
    return {"sources": sorted(origins.sources_of(row["why"])) if row["trust"] == origins.EXTERNAL else []}


async def settle_source(service: Service, request: Request) -> Any:
    """Approve, or mark wrong, all that waits of one source in one project: `{trust, project_id, verdict}`."""
    persons_only(request)
    body = await body_of(request)
    trust, project_id, verdict = body.get("trust"), body.get("project_id", 0), body.get("verdict", "approved")
    if not isinstance(trust, str) or not is_id(project_id) or verdict not in ("approved", "wrong"):
        raise Misuse("`trust`, `project_id` or `verdict` is missing", hint="as in `sources` of GET /api/quarantine")
    find = partial(corrections.held_ids, trust=trust, project_id=project_id, limit=AT_ONCE)
    count = 0
    while some := await service.db.read(find):
        await service.db.write(_judge_all, some, verdict)
        count += len(some)
    await service.record("judged", kind="source", trust=trust, project=project_id, verdict=verdict, count=count)
    await service.corrected(project_id)
    return {"count": count}


def _judge_all(conn: Connection, some: Sequence[tuple[str, int]], verdict: str) -> None:
    for kind, wanted in some:
        corrections.judge(conn, kind, wanted, verdict, now=ids.now())
