"""What a person does to an observation: edit, pin, judge, merge and delete; and what is shown before that.

Every change is recorded in `history` with the previous content, so that it can be undone for 30 days. Deleting clears
the row immediately, so that nothing injects or finds it, and moves its content to `deleted_observations`; erasing leaves no
copy anywhere. The page of an observation and the preview of its deletion show its origin and where else its words are
stored.
"""

from __future__ import annotations

import re
from typing import TypedDict, cast

import msgspec

from claude_mem.domain.errors import InvalidRequest, NotFound, OperationFailed
from claude_mem.domain.memory_items import (
    ApprovalCount,
    Copy,
    HistoryEntry,
    IndexEntries,
    MemoryItem,
    ObservationEdit,
    ObservationEvent,
    ObservationOrigin,
    UndoneChange,
)
from claude_mem.domain.records import Body, Prompted, Stopped, SubagentStopped, ToolUsed, body_kind
from claude_mem.domain.text import shorten
from claude_mem.privacy.trust import least_trusted
from claude_mem.storage.journal_records import ANCHOR_JOB
from claude_mem.storage.records import PERSON, UNDO_WINDOW_MS
from claude_mem.storage.sqlite.engine import (
    Connection,
    Row,
    fetch_all,
    fetch_one,
    fetch_record,
    fetch_records,
    fetch_value,
)
from claude_mem.storage.sqlite.journal import arrival_order, jobs
from claude_mem.storage.sqlite.memory import observations, validity
from claude_mem.storage.sqlite.memory.observations import (
    JSON_LIST_COLUMNS,
    PENDING_APPROVAL,
    SUMMARY_FIELDS,
    count_observation_tokens,
    decode_item,
    decode_row,
    encode_json,
    get_memory,
    hash_observation,
    load_observations,
)
from claude_mem.system.failpoints import failpoint

MAX_MERGED = 20
MAX_EVENT_TEXT, MAX_PROMPT_TEXT, MAX_SOURCE_EVENTS = 300, 2_000, 50
MAX_COPIES = 20
COPY_THRESHOLD = 0.5  # a row that shares at least this part of the words counts as a copy
_EDITABLE = ("type", "title", "subtitle", "narrative", "facts", "concepts")
_LIST_COLUMNS = ("facts", "sources", "concepts", "files_read", "files_modified")
_EMPTY_CONTENT: Row = {
    **dict.fromkeys(("title", "subtitle", "narrative", "commit_id")),
    **dict.fromkeys(_LIST_COLUMNS, "[]"),
}
_UNDOABLE = ("edited", "merged", "wrong", "approved", "forgotten")
_TABLES = {"observation": "observations", "summary": "session_summaries"}
_SUMMARY_COLUMNS = (*SUMMARY_FIELDS, "closing")
_PENDING_FROM = {
    "observation": f"observations o indexed by observations_to_approve where not o.forgotten and {PENDING_APPROVAL}",
    "summary": f"session_summaries o indexed by session_summaries_to_approve where {PENDING_APPROVAL}",
}
_BODY_DECODER: msgspec.json.Decoder[Body] = msgspec.json.Decoder(Body)
_WORD = re.compile(r"\w{3,}")


# --- editing, pinning, judging ---------------------------------------------------------------------------------------


def edit_observation(
    conn: Connection,
    row_id: int,
    fields: ObservationEdit,
    *,
    now: int,
    by: str = PERSON,
    trust: str = PERSON,
    why: str = "",
) -> MemoryItem:
    """Edit columns of an observation and return the result.

    After a person's edit the observation is the user's own, and no digest changes it. After an agent's edit it gets the
    lower of the agent's trust and its own, and an earlier approval is dropped, because the new text was not approved.
    """
    assert fields.keys() <= set(_EDITABLE), fields
    old = _get_stored_visible(conn, row_id)
    new = {name: encode_json(content) if name in JSON_LIST_COLUMNS else content for name, content in fields.items()}
    if "facts" in fields:
        new["sources"] = _sources_for(old, fields["facts"])
    before = {name: old[name] for name in new if (old[name] or "") != (new[name] or "")}
    trust_columns = {"trust": PERSON} if by == PERSON else _lower_trust(old, trust, why)
    if before or any(old[name] != trust_columns[name] for name in trust_columns):
        _add_history(conn, row_id, "edited", {**before, **{name: old[name] for name in trust_columns}}, now=now, by=by)
    _set_content(conn, row_id, {**new, **trust_columns}, now=now)
    return get_memory(conn, "observation", row_id)


def _lower_trust(old: Row, trust: str, why: str) -> dict[str, str]:
    lowest = least_trusted([old["trust"], trust])
    verdict = "" if old["verdict"] == "approved" else old["verdict"]
    return {"trust": lowest, "why": why if lowest == trust else old["why"], "verdict": verdict}


def _sources_for(old: Row, facts: list[str]) -> str:
    """Return the source events of the edited facts.

    An unchanged fact keeps its events; a new one has none, since it is the person's own.
    """
    sources_by_fact = dict(zip(msgspec.json.decode(old["facts"]), msgspec.json.decode(old["sources"]), strict=False))
    return encode_json([sources_by_fact.get(fact, []) for fact in facts])


def set_pinned(conn: Connection, row_id: int, *, pinned: bool, now: int, by: str = PERSON) -> MemoryItem:
    """Pin or unpin. Pinned observations come first in every brief."""
    if bool(_get_stored_visible(conn, row_id)["pinned"]) != pinned:
        _add_history(conn, row_id, "pinned" if pinned else "unpinned", None, now=now, by=by)
    _set_content(conn, row_id, {"pinned": int(pinned)}, now=now)
    return get_memory(conn, "observation", row_id)


def set_verdict(conn: Connection, kind: str, row_id: int, verdict: str, *, now: int, by: str = PERSON) -> MemoryItem:
    """Set a person's verdict.

    `wrong`: neither injected nor found. `approved`: injected although it is external. `right`: takes `wrong` back and
    restores the verdict before it.
    """
    row = get_memory(conn, kind, row_id)
    old_verdict, new_verdict = row["verdict"], _verdict_before_wrong(conn, row) if verdict == "right" else verdict
    if old_verdict == new_verdict or (verdict == "right" and old_verdict != "wrong"):
        return row
    if kind == "observation":
        if old_verdict == "wrong":  # this verdict undoes the earlier `wrong`
            _mark_undone(conn, row_id, "wrong")
        _add_history(conn, row_id, verdict, None if verdict == "right" else {"verdict": old_verdict}, now=now, by=by)
        _update_columns(conn, row_id, {"verdict": new_verdict, "updated_at": now})
    else:
        _enqueue_render(conn, kind, row_id, now=now)
        conn.execute(
            "update session_summaries set verdict = ?, updated_at = ? where id = ?", (new_verdict, now, row_id)
        )
    return get_memory(conn, kind, row_id)


def _verdict_before_wrong(conn: Connection, row: MemoryItem) -> str:
    sql = "select before from history where observation_id = ? and what = 'wrong' and not undone order by id desc"
    before = fetch_value(conn, sql, (row["id"],)) if row["kind"] == "observation" else None
    return str(msgspec.json.decode(before)["verdict"]) if before else ""


# --- merging ---------------------------------------------------------------------------------------------------------


def merge_observations(
    conn: Connection, row_id: int, other_ids: list[int], *, now: int, by: str = PERSON
) -> MemoryItem:
    """Merge other observations into one and delete them. The result is the user's own, like an edited observation."""
    other_ids = list(dict.fromkeys(other_ids))
    if not other_ids or len(other_ids) > MAX_MERGED or row_id in other_ids:
        raise InvalidRequest(
            f"merge an observation with one to {MAX_MERGED} others", hint="pass the ids of other observations"
        )
    first, *rest = observations = [_get_stored_visible(conn, observation_id) for observation_id in (row_id, *other_ids)]
    if any(row["project_id"] != first["project_id"] for row in rest):
        raise InvalidRequest(
            "the observations belong to different projects", hint="merge observations of one project only"
        )
    if wrong_ids := [row["id"] for row in observations if row["verdict"] == "wrong"]:
        raise InvalidRequest(
            f"observation {wrong_ids[0]} is marked wrong",
            hint="mark it right first, or delete it instead of merging it",
        )
    new = _combine_content(observations)
    before = {name: first[name] for name in (*new, "trust")}
    _add_history(conn, row_id, "merged", {**before, "ids": other_ids}, now=now, by=by)
    _set_content(conn, row_id, {**new, "trust": PERSON}, now=now)
    for row in rest:
        _soft_delete(conn, row, into=row_id, now=now, by=by)
    return get_memory(conn, "observation", row_id)


def _combine_content(observations: list[Row]) -> dict[str, object]:
    facts: dict[str, list[int]] = {}
    for row in observations:
        fact_texts, sources = msgspec.json.decode(row["facts"]), msgspec.json.decode(row["sources"])
        for number, fact in enumerate(fact_texts):
            fact_sources = sources[number] if number < len(sources) else []
            facts[fact] = sorted({*facts.get(fact, []), *fact_sources})
    lists = {
        name: list(dict.fromkeys(item for row in observations for item in msgspec.json.decode(row[name])))
        for name in ("concepts", "files_read", "files_modified")
    }
    edited = set(lists["files_modified"])
    lists["files_read"] = [path for path in lists["files_read"] if path not in edited]
    narratives = dict.fromkeys(row["narrative"].strip() for row in observations if (row["narrative"] or "").strip())
    return {
        "facts": encode_json(list(facts)),
        "sources": encode_json(list(facts.values())),
        **{name: encode_json(items) for name, items in lists.items()},
        "narrative": "\n\n".join(narratives) or None,
        "commit_id": next((row["commit_id"] for row in observations if row["commit_id"]), None),
        "pinned": max(row["pinned"] for row in observations),
    }


# --- deleting --------------------------------------------------------------------------------------------------------


def delete_observation(conn: Connection, row_id: int, *, now: int, by: str = PERSON) -> int:
    """Delete an observation reversibly. Return the time until which that can be undone."""
    _soft_delete(conn, _get_stored_visible(conn, row_id), into=None, now=now, by=by)
    return now + UNDO_WINDOW_MS


def delete_scoped_observation(conn: Connection, row_id: int, *, now: int, by: str = PERSON) -> None:
    """Delete an observation as part of a deletion by scope; skip one that is deleted already."""
    row = _get_stored(conn, row_id)
    if not row["forgotten"]:
        _soft_delete(conn, row, into=None, now=now, by=by)


def restore_observation(conn: Connection, row_id: int, *, now: int, by: str = PERSON) -> bool:
    """Restore an observation as part of undoing a deletion.

    Return False if it was restored or erased in the meantime.
    """
    if not fetch_value(conn, "select 1 from deleted_observations where observation_id = ?", (row_id,)):
        return False
    _restore_content(conn, row_id, now=now)
    _mark_undone(conn, row_id, "forgotten")
    _add_history(conn, row_id, "restored", None, now=now, by=by)
    return True


def _soft_delete(conn: Connection, row: Row, *, into: int | None, now: int, by: str) -> None:
    """Move the content to `deleted_observations`. The empty row stays, so that digesting its turn again does not
    recreate it."""
    _add_history(conn, row["id"], "forgotten", {"into": into} if into else {}, now=now, by=by)
    content = {name: row[name] for name in (*_EMPTY_CONTENT, "hash")}
    if confirmation := validity.get_confirmation(conn, row["id"]):
        content["confirmation"] = confirmation
    conn.execute("insert into deleted_observations values (?, ?, ?, ?)", (row["id"], encode_json(content), into, now))
    _clear_content(conn, row["id"], now=now)
    failpoint("forget.put_away")


def _clear_content(conn: Connection, row_id: int, *, now: int, **overrides: str) -> None:
    values = {**_EMPTY_CONTENT, "forgotten": 1, "hash": "", "updated_at": now, **overrides}
    _update_columns(conn, row_id, values)


def list_ids_to_erase(conn: Connection, row_id: int) -> list[int]:
    """Return the ids that erasing this observation covers.

    These are its own and those of the observations merged into it, which have no other copy.
    """
    row = _get_stored(conn, row_id)
    if row["forgotten"] and not fetch_value(
        conn, "select 1 from deleted_observations where observation_id = ?", (row_id,)
    ):
        raise NotFound(f"observation {row_id} is erased already", hint="only its id is left; there is nothing to do")
    return [row_id, *list_merged_into(conn, row_id)]


def erase_observation(conn: Connection, row_id: int, *, now: int, by: str = PERSON) -> None:
    """Erase one observation and its key, which may quote the evidence.

    Its tombstone keeps it from being stored again.
    """
    if not _get_stored(conn, row_id)["forgotten"]:
        _add_history(conn, row_id, "forgotten", None, now=now, by=by)
    _erase_content(conn, row_id, now=now, key=f"gone:{row_id}")


def _erase_content(conn: Connection, row_id: int, *, now: int, **overrides: str) -> None:
    _clear_content(conn, row_id, now=now, **overrides)
    conn.execute("delete from deleted_observations where observation_id = ?", (row_id,))
    conn.execute("update history set before = null where observation_id = ? and before is not null", (row_id,))
    failpoint("forget.erased")


def list_merged_into(conn: Connection, row_id: int) -> list[int]:
    """Return the restorable observations that were merged into this one, directly or through others."""
    merged_rows = fetch_all(
        conn,
        """
        with recursive gone (id) as (
            select observation_id from deleted_observations where merged_into_id = ?
            union select a.observation_id from deleted_observations a join gone g on a.merged_into_id = g.id)
        select id from gone order by id
        """,
        (row_id,),
    )
    return [row["id"] for row in merged_rows]


def has_expired_deletions(conn: Connection, *, now: int) -> bool:
    """Return whether anything has passed its 30 days of being restorable."""
    expired_sql = "select 1 from deleted_observations where at < ?1 union all select 1 from history where at < ?1 and before is not null"
    return bool(fetch_value(conn, f"{expired_sql} limit 1", (now - UNDO_WINDOW_MS,)))


def erase_expired_deletions(conn: Connection, *, now: int, limit: int = 500) -> int:
    """Erase deleted content that has passed its 30 days. Return how many rows changed."""
    expired_rows = fetch_all(
        conn, "select observation_id from deleted_observations where at < ? limit ?", (now - UNDO_WINDOW_MS, limit)
    )
    for row in expired_rows:
        _erase_content(conn, row["observation_id"], now=now)
    conn.execute("update history set before = null where at < ? and before is not null", (now - UNDO_WINDOW_MS,))
    return len(expired_rows) + conn.changes()


# --- undoing ---------------------------------------------------------------------------------------------------------


def undo_last_change(conn: Connection, row_id: int, *, now: int, by: str = PERSON) -> UndoneChange:
    """Undo the last undoable change.

    Return `{undone, ids}`: what was undone, and the ids of all restored observations.
    """
    row = _get_stored(conn, row_id)
    entry = _last_undoable(conn, row_id)
    if row["forgotten"] and (entry is None or entry["what"] != "forgotten"):
        raise OperationFailed(
            f"observation {row_id} was erased and cannot be restored",
            hint="only a deletion without `--now` can be undone",
        )
    if entry is None:
        raise OperationFailed(
            f"there is nothing to undo for observation {row_id}", hint="changes can be undone for 30 days"
        )
    if by != PERSON and entry["what"] != "forgotten" and entry["by"] == PERSON:
        raise OperationFailed(
            f"only a person can undo a person's change of observation {row_id}",
            hint="undo it in the viewer: `claude-mem open`",
        )
    before = msgspec.json.decode(entry["before"])
    restored_ids = [row_id]
    if entry["what"] == "forgotten":
        _restore_content(conn, row_id, now=now)
    else:
        restored_ids += [other_id for other_id in before.pop("ids", []) if _is_merged_into(conn, other_id, into=row_id)]
        _set_content(conn, row_id, before, now=now)
    for other_id in restored_ids[1:]:
        restore_observation(conn, other_id, now=now, by=by)
    conn.execute("update history set undone = 1 where id = ?", (entry["id"],))
    _add_history(conn, row_id, "restored", None, now=now, by=by)
    return {"undone": entry["what"], "ids": restored_ids}


class _UndoableChange(TypedDict):
    id: int
    what: str
    before: str
    by: str


def _last_undoable(conn: Connection, row_id: int) -> _UndoableChange | None:
    return fetch_record(
        conn,
        _UndoableChange,
        f"""
        select id, what, before, by from history
         where observation_id = ? and what in {_UNDOABLE} and not undone and before is not null
         order by id desc limit 1
        """,
        (row_id,),
    )


def _is_merged_into(conn: Connection, row_id: int, *, into: int) -> bool:
    return bool(
        fetch_value(
            conn, "select 1 from deleted_observations where observation_id = ? and merged_into_id = ?", (row_id, into)
        )
    )


def _restore_content(conn: Connection, row_id: int, *, now: int) -> None:
    saved_row = fetch_one(conn, "select content from deleted_observations where observation_id = ?", (row_id,))
    assert saved_row is not None  # history entries lose their content together with this row
    content = msgspec.json.decode(saved_row["content"])
    confirmation = content.pop("confirmation", None)
    _update_columns(conn, row_id, {**content, "forgotten": 0, "updated_at": now})
    if confirmation:
        validity.restore_confirmation(conn, row_id, confirmation)
    conn.execute("delete from deleted_observations where observation_id = ?", (row_id,))
    if turn_id := fetch_value(conn, "select turn_id from observations where id = ?", (row_id,)):
        jobs.enqueue_job(conn, ANCHOR_JOB, str(turn_id), now=now)


def _mark_undone(conn: Connection, row_id: int, action: str) -> None:
    conn.execute("update history set undone = 1 where observation_id = ? and what = ?", (row_id, action))


# --- history and deleted content -------------------------------------------------------------------------------------


def list_observation_history(conn: Connection, row_id: int) -> list[HistoryEntry]:
    """Return an observation's history, newest first. `undo` is true for the entry that undoing would revert."""
    _get_stored(conn, row_id)
    last_undoable = _last_undoable(conn, row_id)
    entries = fetch_all(
        conn,
        "select id, at, what, before, by, undone from history where observation_id = ? order by id desc limit 200",
        (row_id,),
    )
    for row in entries:
        row["before"] = decode_row(msgspec.json.decode(row["before"])) if row["before"] else None
        row["undone"], row["undo"] = bool(row["undone"]), last_undoable is not None and last_undoable["id"] == row["id"]
    return cast(list[HistoryEntry], entries)


def find_deleted_observation(conn: Connection, row_id: int) -> MemoryItem | None:
    """Return what is still known about a deleted observation, or None if it is not deleted."""
    row = fetch_one(
        conn,
        """
        select o.id, 'observation' as kind, o.type, p.name as project, o.project_id, o.session_id, o.prompt_number,
               o.created_at, a.at, a.merged_into_id as into_id
          from observations o join projects p on p.id = o.project_id
          left join deleted_observations a on a.observation_id = o.id
         where o.id = ? and o.forgotten
        """,
        (row_id,),
    )
    if row is None:
        return None
    at = row.pop("at")
    undo_until = at + UNDO_WINDOW_MS if at is not None else None
    return cast(MemoryItem, {**row, "forgotten": True, "undo_until": undo_until})


def find_deleted_content(conn: Connection, row_id: int) -> MemoryItem | None:
    """Return the content of a deleted observation, while the deletion can be undone."""
    content = fetch_value(conn, "select content from deleted_observations where observation_id = ?", (row_id,))
    return None if content is None else decode_item(msgspec.json.decode(content))


# --- the approval queue ----------------------------------------------------------------------------------------------


def list_approval_queue(conn: Connection, *, limit: int, offset: int) -> list[MemoryItem]:
    """List the approval queue, newest first. Each kind is read along its own index."""
    selects = [f"select o.created_at, o.id, '{kind}' as kind from {where}" for kind, where in _PENDING_FROM.items()]
    query = f"{' union all '.join(selects)} order by 1 desc, 2 desc limit ? offset ?"
    return [get_memory(conn, row["kind"], row["id"]) for row in fetch_all(conn, query, (limit, offset))]


def count_approval_queue(conn: Connection) -> list[ApprovalCount]:
    """Count the approval queue by trust and project."""
    count_sql = "select o.trust, o.project_id, count(*) as n from {} group by o.trust, o.project_id"
    selects = [count_sql.format(where) for where in _PENDING_FROM.values()]
    return fetch_records(
        conn,
        ApprovalCount,
        f"""
        select h.trust, h.project_id, p.name as project, sum(n) as count
          from ({" union all ".join(selects)}) h join projects p on p.id = h.project_id
         group by h.trust, h.project_id order by count desc
        """,
    )


def list_approval_queue_ids(conn: Connection, *, trust: str, project_id: int, limit: int) -> list[tuple[str, int]]:
    """Return kind and id of the queued items with this trust in one project."""
    return [
        (kind, row["id"])
        for kind, where in _PENDING_FROM.items()
        for row in fetch_all(
            conn,
            f"select o.id from {where} and o.trust = ? and o.project_id = ? order by o.created_at desc limit ?",
            (trust, project_id, limit),
        )
    ]


# --- where an observation comes from ---------------------------------------------------------------------------------


def get_observation_origin(conn: Connection, row_id: int) -> ObservationOrigin:
    """Return the observation's project, session, turn and prompt, and the events its facts come from."""
    row = fetch_one(
        conn,
        """
        select o.sources, o.project_id, p.root, s.id as session_id, s.title, s.host, t.id as turn_id, t.number,
               t.events_purged as events_gone, u.id as prompt_id, u.text
          from observations o join projects p on p.id = o.project_id left join sdk_sessions s on s.id = o.session_id
          left join turns t on t.id = o.turn_id left join user_prompts u on u.turn_id = o.turn_id where o.id = ?
        """,
        (row_id,),
    )
    assert row is not None
    seqs = [seq for of_fact in msgspec.json.decode(row["sources"]) for seq in of_fact]
    return {
        "project_id": row["project_id"],
        "session": {"id": row["session_id"], "title": row["title"], "host": row["host"]} if row["session_id"] else None,
        "turn": {"id": row["turn_id"], "number": row["number"]} if row["turn_id"] else None,
        "prompt": {"id": row["prompt_id"], "text": shorten(row["text"], MAX_PROMPT_TEXT)} if row["prompt_id"] else None,
        "events": _events(conn, list(dict.fromkeys(seqs))[:MAX_SOURCE_EVENTS], root=row["root"]),
        "events_gone": row["events_gone"] or 0,  # purged
    }


def find_observation_turn_id(conn: Connection, row_id: int) -> int | None:
    """Return the turn of an observation, or None if it was saved by hand."""
    turn_id = fetch_value(conn, "select turn_id from observations where id = ?", (row_id,))
    return None if turn_id is None else int(turn_id)


def get_observation_project_id(conn: Connection, row_id: int) -> int:
    """Return the project of an observation."""
    return int(fetch_value(conn, "select project_id from observations where id = ?", (row_id,)))


def _events(conn: Connection, seqs: list[int], *, root: str) -> list[ObservationEvent]:
    query = (
        f"select {arrival_order.ORDER_COLUMNS}, kind, body from events where seq in (select value from json_each(?))"
    )
    event_rows = arrival_order.order_events(fetch_all(conn, query, (encode_json(seqs),)))
    events: list[ObservationEvent] = []
    for row in event_rows:
        tool, failed, text = _event_line(row["body"], root)
        events.append(
            {"seq": row["seq"], "kind": row["kind"], "at": row["at"], "tool": tool, "failed": failed, "text": text}
        )
    return events


def _event_line(raw: str, root: str) -> tuple[str | None, bool, str]:
    """Return the tool of an event, whether it failed, and the event in one line, with paths relative to the root."""
    try:
        body = _BODY_DECODER.decode(raw)
    except msgspec.MsgspecError:  # written by another version
        return None, False, ""
    if isinstance(body, ToolUsed):
        argument = _main_argument(body)
        text = argument.removeprefix(f"{root.rstrip('/')}/") if root else argument
        return body.name, body.failed, shorten(text, MAX_EVENT_TEXT)
    text = body.text if isinstance(body, Prompted) else ""
    text = body.message if isinstance(body, Stopped | SubagentStopped) else text
    return None, False, shorten(text or body_kind(body).replace("_", " "), MAX_EVENT_TEXT)


def _main_argument(tool: ToolUsed) -> str:
    """Return the most telling argument of a tool call."""
    for name in ("command", "file_path", "notebook_path", "path", "pattern", "query", "url", "prompt", "input"):
        if isinstance(argument := tool.input.get(name), str) and argument.strip():
            return argument
    return next((argument for argument in tool.input.values() if isinstance(argument, str)), "")


# --- related observations and copies ---------------------------------------------------------------------------------


def list_observations_sharing_files(conn: Connection, row_id: int, *, limit: int) -> list[MemoryItem]:
    """Return observations of the project about the same files, those that share the most files first."""
    shared_rows = fetch_all(
        conn,
        """
        select d.row_id as id, count(*) as shared
          from documents own join signals mine on mine.document_id = own.id and mine.kind = 'edited'
          join signals f on f.kind in ('edited', 'read') and f.value = mine.value
          join documents d on d.id = f.document_id and d.kind = 'observation' and d.project_id = own.project_id
         where own.kind = 'observation' and own.row_id = ?1 and d.row_id != ?1
         group by d.row_id order by count(*) desc, d.created_at desc limit ?2
        """,
        (row_id, limit),
    )
    return load_observations(conn, [row["id"] for row in shared_rows])


def count_index_entries(conn: Connection, row_id: int) -> IndexEntries:
    """Count the index rows of an observation, which are removed together with it."""
    document = fetch_one(conn, "select id from documents where kind = 'observation' and row_id = ?", (row_id,))
    document_id = document["id"] if document else 0

    def count(table: str) -> int:
        return int(fetch_value(conn, f"select count(*) from {table} where document_id = ?", (document_id,)))

    return {
        "documents": int(document_id > 0),
        "passages": count("passages"),
        "signals": count("signals"),
        "vectors": count("vectors"),
    }


def find_copies(conn: Connection, row: MemoryItem, *, turn_id: int | None, exclude_ids: list[int]) -> list[Copy]:
    """Return the rows of the observation's turn that would stay after its deletion, most similar first.

    Only rows that share at least half of the observation's words are returned, with the number of shared words.
    """
    own_words = _words(" ".join([row["title"] or "", row["subtitle"] or "", row["narrative"] or "", *row["facts"]]))
    if turn_id is None or not own_words:
        return []
    overlaps = [
        (len(own_words & _words(text)), where, row_id)
        for where, row_id, text in _texts_of_turn(conn, turn_id, exclude_ids)
    ]
    similar = sorted(
        (item for item in overlaps if item[0] >= COPY_THRESHOLD * len(own_words)), key=lambda item: -item[0]
    )
    return [
        {"kind": kind, "id": row_id, "shared": count, "words": len(own_words)}
        for count, kind, row_id in similar[:MAX_COPIES]
    ]


def _texts_of_turn(conn: Connection, turn_id: int, exclude_ids: list[int]) -> list[tuple[str, int, str]]:
    summary_text = "coalesce(" + ", '') || ' ' || coalesce(".join(_SUMMARY_COLUMNS) + ", '')"
    observation_text = (
        "coalesce(title, '') || ' ' || coalesce(subtitle, '') || ' ' || coalesce(narrative, '') || ' ' || facts"
    )
    text_rows = fetch_all(
        conn,
        f"""
        select 'summary' as kind, id, {summary_text} as text from session_summaries where turn_id = ?1
        union all select 'prompt', id, text from user_prompts where turn_id = ?1
        union all select 'observation', id, {observation_text} from observations where turn_id = ?1 and not forgotten
                     and id not in (select value from json_each(?2))
        union all select 'event', seq, body from events where turn_id = ?1
        """,
        (turn_id, encode_json(exclude_ids)),
    )
    return [(row["kind"], row["id"], row["text"]) for row in text_rows]


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


# --- stored rows -----------------------------------------------------------------------------------------------------


def _get_stored_visible(conn: Connection, row_id: int) -> Row:
    """Return the stored row; raise `NotFound` if the observation does not exist or is deleted."""
    get_memory(conn, "observation", row_id)
    return _get_stored(conn, row_id)


def _get_stored(conn: Connection, row_id: int) -> Row:
    row = fetch_one(conn, "select * from observations where id = ?", (row_id,))
    if row is None:
        raise NotFound(f"there is no observation {row_id}", hint="run `claude-mem list` to see the existing ones")
    return row


def _set_content(conn: Connection, row_id: int, values: Row, *, now: int) -> None:
    """Update columns, and the hash and token count that depend on them."""
    _update_columns(conn, row_id, {**values, "updated_at": now})
    row = _get_stored(conn, row_id)
    _update_columns(conn, row_id, {"hash": hash_observation(row), "tokens": count_observation_tokens(row)})


def _update_columns(conn: Connection, row_id: int, values: Row) -> None:
    """Update columns as they are. If one of them decides which rules are current, link the project's rules again."""
    names = ", ".join(f"{name} = :{name}" for name in values)
    conn.execute(f"update observations set {names} where id = :row_id", {**values, "row_id": row_id})
    if not values.keys().isdisjoint(observations.STATEMENT_COLUMNS) and observations.affects_statement_links(
        conn, row_id
    ):
        observations.relink_statements_of_observation(conn, row_id)


def _add_history(conn: Connection, row_id: int, action: str, before: Row | None, *, now: int, by: str) -> None:
    before_json = None if before is None else encode_json(before)
    sql = "insert into history (observation_id, at, what, before, by) values (?, ?, ?, ?, ?)"
    conn.execute(sql, (row_id, now, action, before_json, by))
    _enqueue_render(conn, "observation", row_id, now=now)


def _enqueue_render(conn: Connection, kind: str, row_id: int, *, now: int) -> None:
    """Enqueue a new brief for the project in the same transaction.

    Otherwise a crash in between would leave cached briefs on disk that still contain the old text.
    """
    project_id = int(fetch_value(conn, f"select project_id from {_TABLES[kind]} where id = ?", (row_id,)))
    jobs.enqueue_render(conn, project_id, now=now)
