"""What a person says of an observation: corrected, pinned, judged, merged with others, forgotten.

Everything is noted with what was before, so that for thirty days it can be undone. Forgetting empties the row at once,
so that nothing tells or finds it any more, and puts its content into the attic; erasing leaves no copy anywhere.
"""

from __future__ import annotations

from typing import Any

import msgspec

from claude_mem import origins
from claude_mem.errors import CannotDo, Misuse, NotFound
from claude_mem.failpoints import failpoint
from claude_mem.store import jobs, rules
from claude_mem.store.database import Connection, Row, one, rows, value
from claude_mem.store.observations import HELD, LISTS, cost, dump, fingerprint, get, loaded

KEEP_MS = 30 * 86_400_000
MOST_MERGED = 20
PERSON = "user"
_EDITABLE = ("type", "title", "subtitle", "narrative", "facts", "concepts")
_LIST_COLUMNS = ("facts", "sources", "concepts", "files_read", "files_modified")
_EMPTY_CONTENT: Row = {
    **dict.fromkeys(("title", "subtitle", "narrative", "commit_id")),
    **dict.fromkeys(_LIST_COLUMNS, "[]"),
}
_UNDOABLE = ("edited", "merged", "wrong", "approved", "forgotten")
_TABLES = {"observation": "observations", "summary": "session_summaries"}


# --- correcting, pinning, judging ------------------------------------------------------------------------------------


def change(
    conn: Connection,
    row_id: int,
    fields: dict[str, Any],
    *,
    now: int,
    by: str = PERSON,
    trust: str = PERSON,
    why: str = "",
) -> Row:
    """A person corrects what we thought. From then on it is theirs, and no digest changes it again. An agent's change
    has its own trust or that of what it changes, whichever is lower; a word of approval was not about these words."""
    assert fields.keys() <= set(_EDITABLE), fields
    old = _get_stored_visible(conn, row_id)
    new = {name: dump(content) if name in LISTS else content for name, content in fields.items()}
    if "facts" in fields:
        new["sources"] = _sources_for(old, fields["facts"])
    before = {name: old[name] for name in new if (old[name] or "") != (new[name] or "")}
    trust_columns = {"trust": PERSON} if by == PERSON else _lower_trust(old, trust, why)
    if before or any(old[name] != trust_columns[name] for name in trust_columns):
        _add_history(conn, row_id, "edited", {**before, **{name: old[name] for name in trust_columns}}, now=now, by=by)
    _set_content(conn, row_id, {**new, **trust_columns}, now=now)
    return get(conn, "observation", row_id)


def _lower_trust(old: Row, trust: str, why: str) -> Row:
    lowest = origins.lowest([old["trust"], trust])
    verdict = "" if old["verdict"] == "approved" else old["verdict"]
    return {"trust": lowest, "why": why if lowest == trust else old["why"], "verdict": verdict}


def _sources_for(old: Row, facts: list[str]) -> str:
    """A fact that stays keeps the events it was taken from; a new one is the person's own."""
    sources_by_fact = dict(zip(msgspec.json.decode(old["facts"]), msgspec.json.decode(old["sources"]), strict=False))
    return dump([sources_by_fact.get(fact, []) for fact in facts])


def pin(conn: Connection, row_id: int, *, pinned: bool, now: int, by: str = PERSON) -> Row:
    """Pinned ones are told first, at every start of a session."""
    if bool(_get_stored_visible(conn, row_id)["pinned"]) != pinned:
        _add_history(conn, row_id, "pinned" if pinned else "unpinned", None, now=now, by=by)
    _set_content(conn, row_id, {"pinned": int(pinned)}, now=now)
    return get(conn, "observation", row_id)


def judge(conn: Connection, kind: str, row_id: int, verdict: str, *, now: int, by: str = PERSON) -> Row:
    """`wrong`: neither told nor found; `approved`: told though it came from outside; `right`: not wrong after all."""
    row = get(conn, kind, row_id)
    old_verdict, new_verdict = row["verdict"], _verdict_before_wrong(conn, row) if verdict == "right" else verdict
    if old_verdict == new_verdict or (verdict == "right" and old_verdict != "wrong"):
        return row
    if kind == "observation":
        if old_verdict == "wrong":  # what was said of it before has been taken back by this
            conn.execute("update history set undone = 1 where observation_id = ? and what = 'wrong'", (row_id,))
        _add_history(conn, row_id, verdict, None if verdict == "right" else {"verdict": old_verdict}, now=now, by=by)
    else:
        _enqueue_render(conn, kind, row_id, now=now)
    if kind == "observation":
        _update_columns(conn, row_id, {"verdict": new_verdict, "updated_at": now})
    else:
        conn.execute(
            "update session_summaries set verdict = ?, updated_at = ? where id = ?", (new_verdict, now, row_id)
        )
    return get(conn, kind, row_id)


def _verdict_before_wrong(conn: Connection, row: Row) -> str:
    sql = "select before from history where observation_id = ? and what = 'wrong' and not undone order by id desc"
    before = value(conn, sql, (row["id"],)) if row["kind"] == "observation" else None
    return str(msgspec.json.decode(before)["verdict"]) if before else ""


# --- merging ---------------------------------------------------------------------------------------------------------


def merge(conn: Connection, row_id: int, other_ids: list[int], *, now: int, by: str = PERSON) -> Row:
    """One observation of several: what the others know goes into it, and they are forgotten. It is a person's then."""
    other_ids = list(dict.fromkeys(other_ids))
    if not other_ids or len(other_ids) > MOST_MERGED or row_id in other_ids:
        raise Misuse(f"merge an observation with one to {MOST_MERGED} others", hint="name others than itself")
    first, *rest = observations = [_get_stored_visible(conn, observation_id) for observation_id in (row_id, *other_ids)]
    if any(row["project_id"] != first["project_id"] for row in rest):
        raise Misuse("they belong to different projects", hint="only observations of one project can be merged")
    if wrong_ids := [row["id"] for row in observations if row["verdict"] == "wrong"]:
        raise Misuse(f"{wrong_ids[0]} is marked wrong", hint="mark it right again first, or forget it")
    new = _combine_content(observations)
    before = {name: first[name] for name in (*new, "trust")}
    _add_history(conn, row_id, "merged", {**before, "ids": other_ids}, now=now, by=by)
    _set_content(conn, row_id, {**new, "trust": PERSON}, now=now)
    for row in rest:
        _soft_delete(conn, row, into=row_id, now=now, by=by)
    return get(conn, "observation", row_id)


def _combine_content(observations: list[Row]) -> Row:
    facts: dict[str, list[int]] = {}
    for row in observations:
        fact_texts, sources = msgspec.json.decode(row["facts"]), msgspec.json.decode(row["sources"])
        for number, fact in enumerate(fact_texts):
            fact_sources = sources[number] if number < len(sources) else []
            facts[fact] = sorted({*facts.get(fact, []), *fact_sources})
    lists = {name: _unique_items(observations, name) for name in ("concepts", "files_read", "files_modified")}
    edited = set(lists["files_modified"])
    lists["files_read"] = [path for path in lists["files_read"] if path not in edited]
    narratives = dict.fromkeys(row["narrative"].strip() for row in observations if (row["narrative"] or "").strip())
    return {
        "facts": dump(list(facts)),
        "sources": dump(list(facts.values())),
        **{name: dump(items) for name, items in lists.items()},
        "narrative": "\n\n".join(narratives) or None,
        "commit_id": next((row["commit_id"] for row in observations if row["commit_id"]), None),
        "pinned": max(row["pinned"] for row in observations),
    }


def _unique_items(observations: list[Row], name: str) -> list[str]:
    return list(dict.fromkeys(item for row in observations for item in msgspec.json.decode(row[name])))


# --- forgetting ------------------------------------------------------------------------------------------------------


def forget(conn: Connection, row_id: int, *, now: int, by: str = PERSON) -> int:
    """Softly: until when it can be undone."""
    _soft_delete(conn, _get_stored_visible(conn, row_id), into=None, now=now, by=by)
    return now + KEEP_MS


def put_away(conn: Connection, row_id: int, *, now: int, by: str = PERSON) -> None:
    """With others, by a scope."""
    row = _get_stored(conn, row_id)
    if not row["forgotten"]:
        _soft_delete(conn, row, into=None, now=now, by=by)


def come_back(conn: Connection, row_id: int, *, now: int, by: str = PERSON) -> bool:
    """Likewise. False if it came back by itself, or was erased meanwhile."""
    if not value(conn, "select 1 from attic where observation_id = ?", (row_id,)):
        return False
    _restore_content(conn, row_id, now=now)
    _mark_undone(conn, row_id, "forgotten")
    _add_history(conn, row_id, "restored", None, now=now, by=by)
    return True


def _soft_delete(conn: Connection, row: Row, *, into: int | None, now: int, by: str) -> None:
    """The empty row stays, so that digesting its turn again does not bring it back."""
    _add_history(conn, row["id"], "forgotten", {"into": into} if into else {}, now=now, by=by)
    content = {name: row[name] for name in (*_EMPTY_CONTENT, "hash")}
    conn.execute("insert into attic values (?, ?, ?, ?)", (row["id"], dump(content), into, now))
    _clear_content(conn, row["id"], now=now)
    failpoint("forget.put_away")


def _clear_content(conn: Connection, row_id: int, *, now: int, **overrides: str) -> None:
    values = {**_EMPTY_CONTENT, "forgotten": 1, "hash": "", "updated_at": now, **overrides}
    _update_columns(conn, row_id, values)


def erasing(conn: Connection, row_id: int) -> list[int]:
    """Which observations go if it is erased: those that were merged into it have no other copy."""
    row = _get_stored(conn, row_id)
    if row["forgotten"] and not value(conn, "select 1 from attic where observation_id = ?", (row_id,)):
        raise NotFound(f"{row_id} is erased already", hint="nothing of it is left but its number")
    return [row_id, *merged_into(conn, row_id)]


def erase(conn: Connection, row_id: int, *, now: int, by: str = PERSON) -> list[int]:
    """For good, with every copy in the database: in the attic, in the history, and of those merged into it."""
    erased_ids = erasing(conn, row_id)
    for erased_id in erased_ids:
        wipe(conn, erased_id, now=now, by=by)
    return erased_ids


def wipe(conn: Connection, row_id: int, *, now: int, by: str = PERSON) -> None:
    """For good, and its key too: that may quote what it was made of. What it was, its tombstone knows."""
    if not _get_stored(conn, row_id)["forgotten"]:
        _add_history(conn, row_id, "forgotten", None, now=now, by=by)
    _erase_content(conn, row_id, now=now, key=f"gone:{row_id}")


def _erase_content(conn: Connection, row_id: int, *, now: int, **overrides: str) -> None:
    _clear_content(conn, row_id, now=now, **overrides)
    conn.execute("delete from attic where observation_id = ?", (row_id,))
    conn.execute("update history set before = null where observation_id = ? and before is not null", (row_id,))
    failpoint("forget.erased")


def merged_into(conn: Connection, row_id: int) -> list[int]:
    """Those that went into it and are still kept, and those that had gone into those."""
    merged_rows = rows(
        conn,
        """
        with recursive gone (id) as (
            select observation_id from attic where into_id = ?
            union select a.observation_id from attic a join gone g on a.into_id = g.id)
        select id from gone order by id
        """,
        (row_id,),
    )
    return [row["id"] for row in merged_rows]


def is_due(conn: Connection, *, now: int) -> bool:
    """Is there something that was kept for its thirty days?"""
    expired_sql = (
        "select 1 from attic where at < ?1 union all select 1 from history where at < ?1 and before is not null"
    )
    return bool(value(conn, f"{expired_sql} limit 1", (now - KEEP_MS,)))


def sweep(conn: Connection, *, now: int, limit: int = 500) -> int:
    """Erase what was kept long enough; how many rows that changed."""
    expired_rows = rows(conn, "select observation_id from attic where at < ? limit ?", (now - KEEP_MS, limit))
    for row in expired_rows:
        _erase_content(conn, row["observation_id"], now=now)
    conn.execute("update history set before = null where at < ? and before is not null", (now - KEEP_MS,))
    return len(expired_rows) + conn.changes()


# --- undoing ---------------------------------------------------------------------------------------------------------


def undo(conn: Connection, row_id: int, *, now: int, by: str = PERSON) -> Row:
    """Take back the last thing that was done to it and can be taken back: `{undone, ids}`, all that came back by it."""
    row = _get_stored(conn, row_id)
    entry = _last_undoable(conn, row_id)
    if row["forgotten"] and (entry is None or entry["what"] != "forgotten"):
        raise CannotDo(f"{row_id} was erased; nothing of it is left", hint="only what was forgotten softly comes back")
    if entry is None:
        raise CannotDo(f"there is nothing to undo at {row_id}", hint="a change can be undone for 30 days")
    if by != PERSON and entry["what"] != "forgotten" and entry["by"] == PERSON:
        raise CannotDo(f"what a person said of {row_id} is theirs to take back", hint="`claude-mem open` shows where")
    before = msgspec.json.decode(entry["before"])
    restored_ids = [row_id]
    if entry["what"] == "forgotten":
        _restore_content(conn, row_id, now=now)
    else:
        restored_ids += [other_id for other_id in before.pop("ids", []) if _is_merged_into(conn, other_id, into=row_id)]
        _set_content(conn, row_id, before, now=now)
    for other_id in restored_ids[1:]:
        _restore_content(conn, other_id, now=now)
        _mark_undone(conn, other_id, "forgotten")
        _add_history(conn, other_id, "restored", None, now=now, by=by)
    conn.execute("update history set undone = 1 where id = ?", (entry["id"],))
    _add_history(conn, row_id, "restored", None, now=now, by=by)
    return {"undone": entry["what"], "ids": restored_ids}


def _last_undoable(conn: Connection, row_id: int) -> Row | None:
    return one(
        conn,
        f"""
        select id, what, before, by from history
         where observation_id = ? and what in {_UNDOABLE} and not undone and before is not null
         order by id desc limit 1
        """,
        (row_id,),
    )


def _is_merged_into(conn: Connection, row_id: int, *, into: int) -> bool:
    return bool(value(conn, "select 1 from attic where observation_id = ? and into_id = ?", (row_id, into)))


def _restore_content(conn: Connection, row_id: int, *, now: int) -> None:
    attic_row = one(conn, "select content from attic where observation_id = ?", (row_id,))
    assert attic_row is not None  # the history forgets with the attic
    _update_columns(conn, row_id, {**msgspec.json.decode(attic_row["content"]), "forgotten": 0, "updated_at": now})
    conn.execute("delete from attic where observation_id = ?", (row_id,))


def _mark_undone(conn: Connection, row_id: int, action: str) -> None:
    conn.execute("update history set undone = 1 where observation_id = ? and what = ?", (row_id, action))


# --- reading ---------------------------------------------------------------------------------------------------------


def history(conn: Connection, row_id: int) -> list[Row]:
    """Newest first; `undo` marks the one that undoing would take back."""
    _get_stored(conn, row_id)
    last_undoable = _last_undoable(conn, row_id)
    entries = rows(
        conn,
        "select id, at, what, before, by, undone from history where observation_id = ? order by id desc limit 200",
        (row_id,),
    )
    for row in entries:
        row["before"] = loaded(msgspec.json.decode(row["before"])) if row["before"] else None
        row["undone"], row["undo"] = bool(row["undone"]), last_undoable is not None and last_undoable["id"] == row["id"]
    return entries


def forgotten(conn: Connection, row_id: int) -> Row | None:
    """What is still known of one that was forgotten; None if it was not."""
    row = one(
        conn,
        """
        select o.id, 'observation' as kind, o.type, p.name as project, o.project_id, o.session_id, o.prompt_number,
               o.created_at, a.at, a.into_id
          from observations o join projects p on p.id = o.project_id left join attic a on a.observation_id = o.id
         where o.id = ? and o.forgotten
        """,
        (row_id,),
    )
    if row is None:
        return None
    at = row.pop("at")
    return {**row, "forgotten": True, "undo_until": at + KEEP_MS if at is not None else None}


def held(conn: Connection, *, limit: int, offset: int) -> list[Row]:
    """What waits for a person's word before it may be told, newest first, each kind along its own index."""
    selects = [f"select o.created_at, o.id, '{kind}' as kind from {where}" for kind, where in _PENDING_FROM.items()]
    query = f"{' union all '.join(selects)} order by 1 desc, 2 desc limit ? offset ?"
    return [get(conn, row["kind"], row["id"]) for row in rows(conn, query, (limit, offset))]


_PENDING_FROM = {
    "observation": f"observations o indexed by observations_held where not o.forgotten and {HELD}",
    "summary": f"session_summaries o indexed by session_summaries_held where {HELD}",
}


def held_by_source(conn: Connection) -> list[Row]:
    """How many wait, by where they came from and the project they belong to."""
    count_sql = "select o.trust, o.project_id, count(*) as n from {} group by o.trust, o.project_id"
    selects = [count_sql.format(where) for where in _PENDING_FROM.values()]
    return rows(
        conn,
        f"""
        select h.trust, h.project_id, p.name as project, sum(n) as count
          from ({" union all ".join(selects)}) h join projects p on p.id = h.project_id
         group by h.trust, h.project_id order by count desc
        """,
    )


def held_ids(conn: Connection, *, trust: str, project_id: int, limit: int) -> list[tuple[str, int]]:
    """Those of one source in one project."""
    return [
        (kind, row["id"])
        for kind, where in _PENDING_FROM.items()
        for row in rows(
            conn,
            f"select o.id from {where} and o.trust = ? and o.project_id = ? order by o.created_at desc limit ?",
            (trust, project_id, limit),
        )
    ]


# --- helpers ---------------------------------------------------------------------------------------------------------


def _get_stored_visible(conn: Connection, row_id: int) -> Row:
    """As it is stored, if it is not forgotten."""
    get(conn, "observation", row_id)
    return _get_stored(conn, row_id)


def _get_stored(conn: Connection, row_id: int) -> Row:
    row = one(conn, "select * from observations where id = ?", (row_id,))
    if row is None:
        raise NotFound(f"there is no observation {row_id}", hint="`claude-mem list` shows what there is")
    return row


def _set_content(conn: Connection, row_id: int, values: Row, *, now: int) -> None:
    """Some columns, and what follows from them."""
    _update_columns(conn, row_id, {**values, "updated_at": now})
    row = _get_stored(conn, row_id)
    _update_columns(conn, row_id, {"hash": fingerprint(row), "tokens": cost(row)})


def _update_columns(conn: Connection, row_id: int, values: Row) -> None:
    """Some columns as they are given. Which rules stand may follow from them."""
    names = ", ".join(f"{name} = :{name}" for name in values)
    conn.execute(f"update observations set {names} where id = :row_id", {**values, "row_id": row_id})
    if not values.keys().isdisjoint(rules.LINKED) and rules.touches(conn, row_id):
        rules.link_project_of(conn, row_id)


def _add_history(conn: Connection, row_id: int, action: str, before: Row | None, *, now: int, by: str) -> None:
    before_json = None if before is None else dump(before)
    sql = "insert into history (observation_id, at, what, before, by) values (?, ?, ?, ?, ?)"
    conn.execute(sql, (row_id, now, action, before_json, by))
    _enqueue_render(conn, "observation", row_id, now=now)


def _enqueue_render(conn: Connection, kind: str, row_id: int, *, now: int) -> None:
    """In the same transaction: else, killed in between, the contexts that lie ready on disk would go on telling it."""
    project_id = int(value(conn, f"select project_id from {_TABLES[kind]} where id = ?", (row_id,)))
    jobs.enqueue_render(conn, project_id, now=now)
