"""Store the records of a person's other machines.

An import adds nothing to a turn that was captured here, because a file may be from anywhere. A record of a space is from
the person's own machine, and which version of it counts has been decided already: it is stored as it is. Two things
remain with this machine: content that was deleted here does not come back, and trust is never raised.
"""

from __future__ import annotations

from claude_mem.domain.export_format import (
    ContentRecord,
    ObservationRecord,
    ProjectRecord,
    PromptRecord,
    SessionRecord,
    SummaryRecord,
)
from claude_mem.domain.records import ObservationType
from claude_mem.domain.text import shorten, strip_invisible
from claude_mem.privacy.trust import SUSPECT, least_trusted
from claude_mem.storage.sqlite import export
from claude_mem.storage.sqlite.deletion import tombstones
from claude_mem.storage.sqlite.engine import Connection, Row, fetch_one, fetch_value
from claude_mem.storage.sqlite.export import CHANGED, FORGOTTEN, KNOWN
from claude_mem.storage.sqlite.memory import observations, sessions
from claude_mem.storage.sqlite.memory.observations import encode_json

_TEXT_COLUMNS = {
    "observation": ("title", "subtitle", "narrative", "facts", "concepts"),
    "summary": ("request", "investigated", "learned", "completed", "next_steps", "notes", "closing"),
}
_SUMMARY_COLUMNS = (
    *_TEXT_COLUMNS["summary"], "closing_trust", "outcome", "provider", "trust", "verdict", "updated_at",
)  # fmt: skip


# --- finding the row of a record -------------------------------------------------------------------------------------


def find_row(conn: Connection, record: ContentRecord) -> int | None:
    """Return the row that has this record here, by the names that are the same on every machine."""
    if isinstance(record, ProjectRecord):
        return _as_int(
            fetch_value(conn, "select project_id from project_aliases where identity = ?", (record.project,))
        )
    if record.host is None or record.session is None:
        assert isinstance(record, ObservationRecord)
        saved = "select id from observations where turn_id is null and key = ?"
        return _as_int(fetch_value(conn, saved, (record.key,)))
    session = sessions.find_session(conn, record.host, record.session)
    if session is None:
        return None
    if isinstance(record, SessionRecord):
        return session.id
    turn = _find_turn(conn, session.id, record)
    if turn is None:
        return None
    if isinstance(record, ObservationRecord):
        sql, params = "select id from observations where turn_id = ? and key = ?", (turn["id"], record.key)
        return _as_int(fetch_value(conn, sql, params))
    table = "user_prompts" if isinstance(record, PromptRecord) else "session_summaries"
    return _as_int(fetch_value(conn, f"select id from {table} where turn_id = ?", (turn["id"],)))


def find_project_id(conn: Connection, kind: str, row_id: int) -> int | None:
    """Return the id of a row's project, or None if the row is not there."""
    sql = {
        "project": "select id from projects where id = ?",
        "session": "select project_id from sdk_sessions where id = ?",
        "prompt": "select s.project_id from user_prompts p join sdk_sessions s on s.id = p.session_id where p.id = ?",
        "observation": "select project_id from observations where id = ?",
        "summary": "select project_id from session_summaries where id = ?",
    }[kind]
    return _as_int(fetch_value(conn, sql, (row_id,)))


def _as_int(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _find_turn(
    conn: Connection, session_id: int, record: PromptRecord | ObservationRecord | SummaryRecord
) -> Row | None:
    """Return the turn that a record belongs to: by the agent's id of its prompt, else by its time if it was captured
    here, else by its number. Numbers may differ between machines."""
    select = "select t.id, t.private from turns t where t.session_id = :session"
    params = {
        "session": session_id,
        "prompt": record.prompt_id,
        "number": record.prompt_number,
        "alias": f"import:{record.prompt_number}",
        "at": record.created_at,
    }
    early, late = export.EARLY_MS, export.LATE_MS
    captured = f"""
        {select} and {export.captured_sql("t")} and (t.prompt_id is null or :prompt is null)
           and t.opened_at <= :at + {early}
           and :at <= coalesce((select min(n.opened_at) from turns n
                                 where n.session_id = :session and n.opened_at > t.opened_at), t.last_at + {late})
         order by t.number = :number desc, t.opened_at desc limit 1
    """
    by_number = f"""
        {select} and t.number = :number and not {export.captured_sql("t")}
           and (:prompt is null or t.prompt_id is null or t.prompt_id = :prompt)
    """
    return (
        fetch_one(conn, f"{select} and t.prompt_id in (:prompt, :alias)", params)
        or fetch_one(conn, captured, params)
        or fetch_one(conn, by_number, params)
    )


def _tombstone_names(record: SessionRecord | PromptRecord | ObservationRecord | SummaryRecord) -> list[tuple[str, ...]]:
    """Return what a tombstone that names the record is the keyed hash of (`tombstones.ITEM_HASH_SQL`)."""
    if record.host is None or record.session is None:
        assert isinstance(record, ObservationRecord)
        return [("saved", record.key)]
    place = (record.host, record.session)
    names: list[tuple[str, ...]] = [("session", *place)]
    if isinstance(record, SessionRecord):
        return names
    turns = [f"#{record.prompt_number}", *([record.prompt_id] if record.prompt_id else [])]
    if isinstance(record, PromptRecord):
        names.append(("said", *place, "prompt", record.text.strip()))
        names += [("prompt", record.host, record.prompt_id)] if record.prompt_id else []
    elif isinstance(record, SummaryRecord):
        names += [("summary", *place, turn) for turn in turns]
    else:
        names += [("observation", *place, turn, record.key) for turn in turns]
    return names


def find_deletion(conn: Connection, record: ContentRecord) -> tuple[bool, bool]:
    """Return whether a tombstone of this machine names the record, and whether that deletion was an erasure."""
    if isinstance(record, ProjectRecord):
        return False, False
    at = record.started_at if isinstance(record, SessionRecord) else record.created_at
    marks = [
        fetch_value(conn, f"select keyed_hash({', '.join('?' * len(name))})", name) for name in _tombstone_names(record)
    ]
    row = fetch_one(
        conn,
        """
        select count(*) as n, max(coalesce(d.erased, 0)) as erased
          from tombstones t left join deletions d on d.id = t.deletion_id
         where t.keyed_hash in (select value from json_each(?)) and ? between t.since and t.until
        """,
        (encode_json(marks), at),
    )
    assert row is not None
    return bool(row["n"]), bool(row["erased"])


# --- adding a record -------------------------------------------------------------------------------------------------


def add_record(conn: Connection, record: ContentRecord, *, now: int) -> tuple[str, int | None]:
    """Add a record that has no row here. Return the outcome, as an import does, and the row that has it now."""
    if isinstance(record, ProjectRecord):
        project_id, outcome = export.find_or_add_project(conn, record, now=now)
        return outcome, project_id
    if not isinstance(record, SessionRecord) and tombstones.is_time_uncheckable(conn, at=record.created_at):
        return FORGOTTEN, None
    project_id = export.find_or_add_project_id(conn, record.project, now=now)
    if isinstance(record, SessionRecord):
        span = {"since": record.started_at, "until": record.last_event_at}
        if tombstones.is_session_tombstoned(conn, record.host, record.session, **span):
            return FORGOTTEN, None
        outcome = export.store_session(conn, export.without_tombstoned_titles(conn, record), project_id)
        return outcome, find_row(conn, record)
    if record.host is None or record.session is None:
        assert isinstance(record, ObservationRecord)
        return _with_row(conn, record, export.store_observation(conn, record, None, None, project_id))
    return _add_to_turn(conn, record, project_id, now=now)


def _add_to_turn(
    conn: Connection, record: PromptRecord | ObservationRecord | SummaryRecord, project_id: int, *, now: int
) -> tuple[str, int | None]:
    assert record.host is not None
    assert record.session is not None
    assert record.prompt_number is not None
    at = record.created_at
    if tombstones.is_session_tombstoned(conn, record.host, record.session, since=at, until=at):
        return FORGOTTEN, None
    session_id = sessions.open_session(conn, record.host, record.session, project_id=project_id, at=at).id
    turn = _find_turn(conn, session_id, record)
    if turn is not None and turn["private"]:
        return FORGOTTEN, None
    turn_id = (
        turn["id"]
        if turn
        else export.add_imported_turn(conn, session_id, record.prompt_number, record.prompt_id, at=at, now=now)
    )
    export.extend_session(conn, session_id, at)
    if isinstance(record, PromptRecord):
        if tombstones.is_prompt_tombstoned(conn, turn_id, record.text, at=at):
            return FORGOTTEN, None
        outcome = export.store_prompt(conn, record, session_id, turn_id)
    elif isinstance(record, SummaryRecord):
        if tombstones.is_summary_tombstoned(conn, turn_id, at=at):
            return FORGOTTEN, None
        outcome = export.store_summary(conn, record, session_id, turn_id, project_id)
    else:
        outcome = export.store_observation(conn, record, session_id, turn_id, project_id)
    return _with_row(conn, record, outcome)


def _with_row(conn: Connection, record: ContentRecord, outcome: str) -> tuple[str, int | None]:
    return outcome, None if outcome == FORGOTTEN else find_row(conn, record)


# --- replacing a record ----------------------------------------------------------------------------------------------


def replace_record(conn: Connection, record: ContentRecord, row_id: int, *, now: int) -> str:
    """Replace the content of a row by a record that counts more. Return the outcome, as an import does."""
    if isinstance(record, ProjectRecord):
        export.find_or_add_project(conn, record, now=now)
        name = shorten(strip_invisible(record.name), 100) or "unknown"
        conn.execute("update projects set name = ?1 where id = ?2 and name != ?1", (name, row_id))
    elif isinstance(record, SessionRecord):
        _replace_session(conn, export.without_tombstoned_titles(conn, record), row_id)
    elif isinstance(record, PromptRecord):
        sql = "update user_prompts set text = ?1 where id = ?2 and text != ?1"
        conn.execute(sql, (record.text, row_id))
    elif isinstance(record, SummaryRecord):
        _replace_summary(conn, record, row_id)
    else:
        _replace_observation(conn, record, row_id)
    return CHANGED if conn.changes() else KNOWN


def _replace_session(conn: Connection, record: SessionRecord, row_id: int) -> None:
    """Replace the titles of a session, and its state unless it runs on this machine."""
    fields = export.pick_fields(record, "title", "subtitle", "first_prompt", "status", "ended_at")
    columns = ("title", "subtitle", "first_prompt") if export.was_captured(conn, row_id) else tuple(fields)
    assignments = ", ".join(f"{name} = :{name}" for name in columns)
    if fields["status"] not in export.FINAL_STATUSES:
        fields["status"] = "interrupted"
    conn.execute(f"update sdk_sessions set {assignments} where id = :id", {**fields, "id": row_id})


def _replace_observation(conn: Connection, record: ObservationRecord, row_id: int) -> None:
    params = export.observation_params(record) | {"id": row_id}
    existing = fetch_one(conn, "select * from observations where id = ?", (row_id,))
    assert existing is not None
    params |= _standing(record, params, existing, kind="observation")
    if existing["facts"] == params["facts"]:
        params["sources"] = existing["sources"]  # the events of each fact are known on this machine only
    conn.execute(export.UPDATE_OBSERVATION, params)
    conn.execute("update observations set pinned = :pinned where id = :id and pinned != :pinned", params)
    if record.kept_at is not None:
        export.keep_confirmed(conn, row_id, record.kept_at)
    if ObservationType.RULE in (record.type, existing["type"]):
        observations.link_statements(conn, existing["project_id"])


def _replace_summary(conn: Connection, record: SummaryRecord, row_id: int) -> None:
    params = export.pick_fields(record, *_SUMMARY_COLUMNS) | {"id": row_id}
    params |= {name: encode_json(list(getattr(record, name))) for name in ("files_read", "files_edited")}
    existing = fetch_one(conn, "select * from session_summaries where id = ?", (row_id,))
    assert existing is not None
    params |= _standing(record, params, existing, kind="summary")
    assignments = ", ".join(f"{name} = :{name}" for name in params if name != "id")
    conn.execute(f"update session_summaries set {assignments} where id = :id", params)


def _standing(
    record: ObservationRecord | SummaryRecord, params: dict[str, object], existing: Row, *, kind: str
) -> dict[str, str]:
    """Return the trust and the verdict of a replaced row.

    A row that was not trusted stays so, unless a person wrote the new text. If the new text looks like an injection,
    it needs an approval again; the same text that a person approved here does not.
    """
    same_text = all((existing[name] or "") == (params[name] or "") for name in _TEXT_COLUMNS[kind])
    if same_text and record.trust == SUSPECT:
        return {"trust": existing["trust"], "verdict": existing["verdict"]}
    trust = record.trust if record.trust == "user" else least_trusted([existing["trust"], record.trust])
    return {"trust": trust, "verdict": record.verdict}


def remove_row(conn: Connection, kind: str, row_id: int) -> None:
    """Remove a row that another machine's program replaced. A session or a project stays."""
    table = {"prompt": "user_prompts", "observation": "observations", "summary": "session_summaries"}.get(kind)
    if table:
        conn.execute(f"delete from {table} where id = ?", (row_id,))
