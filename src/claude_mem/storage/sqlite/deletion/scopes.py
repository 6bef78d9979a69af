"""Deletion scopes, and the rows they cover in this database or in a copy made by an older version.

A row is covered if it meets all conditions of the scope. A copy may lack columns or tables; they are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from claude_mem.domain.errors import InvalidRequest, NotFound
from claude_mem.domain.reports import AffectedSummary, AffectedTitle
from claude_mem.domain.text_pattern import MIN_CHARS, TextPattern
from claude_mem.storage import external_db
from claude_mem.storage.records import AffectedRows, DeletionScope
from claude_mem.storage.sqlite import former_names
from claude_mem.storage.sqlite.deletion.tombstones import (
    ITEM_ID_COLUMNS,
    ITEM_TABLES,
    ITEM_TIME_COLUMNS,
    SESSION_TEXT_COLUMNS,
    item_from_clause,
)
from claude_mem.storage.sqlite.engine import Connection, fetch_all, fetch_one, fetch_value
from claude_mem.storage.sqlite.memory import projects, sessions
from claude_mem.storage.sqlite.memory.observations import MACHINE_OWNED, TRUSTED, encode_json

EXTERNAL, IMPORT = "external", "import"
_TEXT_COLUMNS = {
    "event": ("body",),
    "prompt": ("text",),
    "observation": (
        "key", "title", "subtitle", "narrative", "facts", "concepts", "files_read", "files_modified", "commit_id",
    ),
    "summary": (
        "request", "investigated", "learned", "completed", "next_steps", "notes", "closing", "files_read",
        "files_edited",
    ),
}  # fmt: skip
_FILE_COLUMNS = {"observation": ("files_read", "files_modified"), "summary": ("files_read", "files_edited")}
# What the preview shows of a row: table, SQL expression for its title, and time column.
_TITLE_SQL = {
    "observation": ("observations", "title", "created_at"),
    "summary": ("session_summaries", "coalesce(completed, request, learned)", "created_at"),
    "prompt": ("user_prompts", "text", "created_at"),
    "session": ("sdk_sessions", "coalesce(title, first_prompt)", "started_at"),
}
_IN_SESSIONS = "s.host || char(31) || s.content_session_id in (select value from json_each(:sessions))"
_IN_PROJECTS = """{} in (select project_id from project_aliases
                          where identity in (select value from json_each(:projects)))"""


# --- scopes ----------------------------------------------------------------------------------------------------------


def resolve_deletion_scope(
    conn: Connection, /, *, session: str = "", project: str = "", source: str = "", matching: str = "", **rest: Any
) -> DeletionScope:
    """Build the scope from the names a user gives. Raise an error if it covers nothing or cannot be applied."""
    scope = DeletionScope(
        sessions=(_session_key(conn, session),) if session else (),
        projects=_project_identities(conn, project) if project else (),
        source=source.strip(),
        matching=matching.strip(),
        **rest,
    )
    if scope == DeletionScope():
        raise InvalidRequest("no scope given", hint="name observations, or use --session, --project, --matching …")
    if matching and len(scope.matching) < MIN_CHARS:
        raise InvalidRequest(f"{matching!r} is too short to search for", hint=f"give at least {MIN_CHARS} characters")
    if scope.after is not None and scope.before is not None and scope.after >= scope.before:
        raise InvalidRequest("the time range is empty", hint="--after must be earlier than --before")
    return scope


def _session_key(conn: Connection, name: str) -> tuple[str, str]:
    session = sessions.get_session(conn, sessions.resolve_session_id(conn, name))
    return session.host, session.content_session_id


def _project_identities(conn: Connection, name: str) -> tuple[str, ...]:
    project_ids = projects.list_project_ids_by_name(conn, name)
    if not project_ids:
        raise NotFound(f"there is no project {name!r}", hint="`claude-mem list projects` shows all projects")
    sql = "select identity from project_aliases where project_id in (select value from json_each(?))"
    return tuple(row["identity"] for row in fetch_all(conn, sql, (encode_json(project_ids),)))


# --- affected rows ---------------------------------------------------------------------------------------------------


def find_affected_rows(conn: Connection, scope: DeletionScope, *, erase: bool) -> AffectedRows:
    """Return the rows that the scope covers. With `erase`, include rows of earlier deletions that are still stored."""
    if scope.matching:
        pattern = TextPattern(scope.matching)
        conn.create_scalar_function("holds", lambda *text: pattern.is_in(text[0]), 1, deterministic=True)
    tables = external_db.read_table_columns(conn)
    kinds = ("observation",) if scope.ids else tuple(ITEM_TABLES)
    items = {kind: _matching_items(conn, kind, scope, tables, erase=erase) for kind in kinds}
    whole_sessions = _whole_sessions(conn, scope) if scope.by_time else []
    items = {kind: _with_items_of_sessions(conn, kind, row_ids, whole_sessions) for kind, row_ids in items.items()}
    return add_derived_rows(
        conn,
        AffectedRows(
            events=items.get("event", []),
            prompts=items.get("prompt", []),
            summaries=items.get("summary", []),
            observations=items["observation"],
            whole_sessions=whole_sessions,
            injections=_matching_injections(conn, scope, whole_sessions, tables),
            sessions=_matching_sessions(conn, scope),
            restorable=_matching_restorable(conn, scope)
            if erase and former_names.stored_table(conn, "deleted_rows") in tables
            else [],
            indexed_turns=_matching_indexed_turns(conn, scope, tables),
        ),
        tables,
    )


def _matching_items(conn: Connection, kind: str, scope: DeletionScope, tables: Any, *, erase: bool) -> list[int]:
    where = list(_conditions(kind, scope, tables, erase=erase))
    item_rows = fetch_all(
        conn,
        f"select i.{ITEM_ID_COLUMNS[kind]} as n {item_from_clause(kind)} where {' and '.join(where)}",
        _scope_params(scope),
    )
    return [row["n"] for row in item_rows]


def _conditions(kind: str, scope: DeletionScope, tables: Any, *, erase: bool) -> Iterator[str]:
    if kind == "observation":
        deleted = _deleted_observations(tables)
        restorable = f"i.id in (select observation_id from {deleted})" if erase and deleted else "false"
        yield "true" if erase and (scope.ids or scope.matching) else f"(not i.forgotten or {restorable})"
    if scope.ids:
        yield "i.id in (select value from json_each(:ids))"
    if scope.sessions:
        yield _IN_SESSIONS
    if scope.projects:
        yield _IN_PROJECTS.format("s.project_id" if kind in ("event", "prompt") else "i.project_id")
    if scope.after is not None:
        yield f"i.{ITEM_TIME_COLUMNS[kind]} >= :after"
    if scope.before is not None:
        yield f"i.{ITEM_TIME_COLUMNS[kind]} < :before"
    if scope.source:
        yield f"({' or '.join(_source_conditions(kind, scope.source, tables[ITEM_TABLES[kind]]))})"
    if scope.matching:
        yield f"({' or '.join(_text_conditions(kind, tables))})"


def _source_conditions(kind: str, source: str, columns: Iterable[str]) -> Iterator[str]:
    """Yield the SQL conditions for the meanings of `--source`.

    It names an agent, a path of capture (hook, transcript, api), an origin, a trust level, imports, a file or an
    address.
    """
    yield "s.host = :source"
    for name in ("source", "origin", "trust"):
        if name in columns:
            yield f"i.{name} = :source"
            if source == EXTERNAL and name != "source":
                yield f"i.{name} not in {('', *TRUSTED)}"
    if source == IMPORT:
        yield "t.closed_by = 'import'"
    if "/" in source or "." in source:
        yield from (
            f"exists (select 1 from json_each(i.{name}) f where f.value = :source)"
            for name in _FILE_COLUMNS.get(kind, ())
        )
        if kind == "event":
            yield "instr(json_extract(i.body, '$.input'), :source)"


def _text_conditions(kind: str, tables: Any) -> Iterator[str]:
    yield from (f"holds(i.{name})" for name in _TEXT_COLUMNS[kind] if name in tables[ITEM_TABLES[kind]])
    if kind == "observation" and (deleted := _deleted_observations(tables)):
        yield f"exists (select 1 from {deleted} a where a.observation_id = i.id and holds(a.content))"
        yield "exists (select 1 from history h where h.observation_id = i.id and holds(h.before))"


def _with_items_of_sessions(conn: Connection, kind: str, row_ids: list[int], session_ids: Sequence[int]) -> list[int]:
    """Add all items of sessions of which nothing remains, whatever their time."""
    if not session_ids:
        return row_ids
    where = "session_id in (select value from json_each(?))"
    where += " and not forgotten" if kind == "observation" else ""
    sql = f"select {ITEM_ID_COLUMNS[kind]} as n from {ITEM_TABLES[kind]} where {where}"
    return sorted({*row_ids, *(row["n"] for row in fetch_all(conn, sql, (encode_json(session_ids),)))})


def _deleted_observations(tables: Any) -> str:
    """Return the name of the table with the content of deleted observations; '' if the copy has none."""
    return next((name for name in ("deleted_observations", "attic") if name in tables), "")


def _whole_sessions(conn: Connection, scope: DeletionScope) -> list[int]:
    """Return the sessions of which nothing remains: they started and ended within the period."""
    where = ["true"]
    where += [_IN_SESSIONS] if scope.sessions else []
    where += [_IN_PROJECTS.format("s.project_id")] if scope.projects else []
    where += ["s.started_at >= :after"] if scope.after is not None else []
    where += ["s.last_event_at < :before"] if scope.before is not None else []
    session_rows = fetch_all(conn, f"select s.id from sdk_sessions s where {' and '.join(where)}", _scope_params(scope))
    return [row["id"] for row in session_rows]


def _matching_sessions(conn: Connection, scope: DeletionScope) -> list[int]:
    """Return the sessions whose own row contains the text."""
    if not scope.matching:
        return []
    text_matches = " or ".join(f"holds(s.{name})" for name in SESSION_TEXT_COLUMNS)
    where = " and ".join((f"({text_matches})", *_session_conditions(scope, "s.started_at")))
    return [
        row["id"] for row in fetch_all(conn, f"select s.id from sdk_sessions s where {where}", _scope_params(scope))
    ]


def _matching_injections(
    conn: Connection, scope: DeletionScope, whole_sessions: Sequence[int], tables: Any
) -> list[int]:
    table = former_names.stored_table(conn, "injections")
    if table not in tables:
        return []
    text_conditions = (
        ["holds(g.about) or holds(g.names)", *_session_conditions(scope, "g.at")] if scope.matching else ["false"]
    )
    injection_rows = fetch_all(
        conn,
        f"""
        select g.id from {table} g
          left join sdk_sessions s on s.host = g.host and s.content_session_id = g.content_session_id
         where ({") and (".join(text_conditions)}) or s.id in (select value from json_each(:whole_sessions))
        """,
        {**_scope_params(scope), "whole_sessions": encode_json(whole_sessions)},
    )
    return [row["id"] for row in injection_rows]


def _session_conditions(scope: DeletionScope, at: str, *, project: str = "s.project_id") -> Iterator[str]:
    """Yield all conditions except the text, for rows that belong to a session (`s`).

    `at` and `project` are the columns with their time and project.
    """
    if scope.sessions:
        yield _IN_SESSIONS
    if scope.projects:
        yield _IN_PROJECTS.format(project)
    if scope.after is not None:
        yield f"{at} >= :after"
    if scope.before is not None:
        yield f"{at} < :before"
    if scope.source:
        yield "s.host = :source"
    if scope.ids:
        yield "false"


def _matching_restorable(conn: Connection, scope: DeletionScope) -> list[tuple[str, int, int]]:
    table = former_names.stored_table(conn, "deleted_rows")
    deletion_id = former_names.stored_column(conn, "deleted_rows", "deletion_id")
    where = ["true", *_session_conditions(scope, "a.at", project="a.project_id")]
    where += ["holds(a.content)"] if scope.matching else []
    sql = f"""
        select a.kind, a.row_id, a.{deletion_id} as deletion_id
          from {table} a left join sdk_sessions s on s.id = a.session_id
         where {" and ".join(where)}
    """
    return [(row["kind"], row["row_id"], row["deletion_id"]) for row in fetch_all(conn, sql, _scope_params(scope))]


def _matching_indexed_turns(conn: Connection, scope: DeletionScope, tables: Any) -> list[int]:
    """Return the turns whose search index contains the text. Their events may already have been purged."""
    if not scope.matching or "passages" not in tables:
        return []
    where = [f"({' or '.join(f'holds(p.{name})' for name in ('title', 'body', 'hints', 'around'))})"]
    where += _session_conditions(scope, "d.created_at", project="d.project_id")
    sql = f"""
        select distinct d.turn_id from passages p join documents d on d.id = p.document_id
          left join sdk_sessions s on s.id = d.session_id where d.turn_id is not null and {" and ".join(where)}
    """
    return [row["turn_id"] for row in fetch_all(conn, sql, _scope_params(scope))]


def _scope_params(scope: DeletionScope) -> dict[str, object]:
    return {
        "ids": encode_json(scope.ids),
        "sessions": encode_json(["\x1f".join(name) for name in scope.sessions]),
        "projects": encode_json(scope.projects),
        "after": scope.after,
        "before": scope.before,
        "source": scope.source,
    }


# --- derived rows ----------------------------------------------------------------------------------------------------


def add_derived_rows(conn: Connection, affected: AffectedRows, tables: Any) -> AffectedRows:
    """Add the rows derived from the affected events and prompts, and the turns that must be digested again."""
    params = {
        "events": encode_json(affected.events),
        "prompts": encode_json(affected.prompts),
        "whole_sessions": encode_json(affected.whole_sessions),
    }
    purged_sql = next((f"t.{name}" for name in ("events_purged", "events_gone") if name in tables["turns"]), "0")
    turn_rows = fetch_all(
        conn,
        f"""
        select t.id, {purged_sql} as purged,
               (select count(*) from events e where e.turn_id = t.id
                   and e.seq not in (select value from json_each(:events))) as rest
          from turns t
         where t.session_id not in (select value from json_each(:whole_sessions))
           and t.id in (select turn_id from events where seq in (select value from json_each(:events))
                        union select turn_id from user_prompts where id in (select value from json_each(:prompts)))
        """,
        params,
    )
    turns = [row["id"] for row in turn_rows]
    purged_turns = [row["id"] for row in turn_rows if row["purged"]]
    return replace(
        affected,
        turns=turns,
        turns_to_redigest=[row["id"] for row in turn_rows if row["rest"] and not row["purged"]],
        derived_observations=_derived_observations(conn, affected, turns, tables, purged_turns=purged_turns),
        derived_summaries=_ids_of_turns(conn, "session_summaries", turns, affected.summaries, "true"),
    )


def _derived_observations(
    conn: Connection, affected: AffectedRows, turns: Sequence[int], tables: Any, *, purged_turns: Sequence[int]
) -> list[int]:
    """Return the machine-written observations of these turns.

    Of turns whose events were purged, return only those that cite a deleted event.
    """
    machine_owned = MACHINE_OWNED if "verdict" in tables["observations"] else "not forgotten and trust != 'user'"
    # Both contain only numbers, so they are safe to put into the SQL.
    event_ids, purged_turn_ids = encode_json(affected.events), encode_json(purged_turns)
    cites = f"exists (select 1 from json_tree(sources) c where c.atom in (select value from json_each('{event_ids}')))"
    where = f"{machine_owned} and (turn_id not in (select value from json_each('{purged_turn_ids}')) or {cites})"
    return _ids_of_turns(conn, "observations", turns, affected.observations, where)


def _ids_of_turns(
    conn: Connection, table: str, turns: Sequence[int], excluded_ids: Sequence[int], where: str
) -> list[int]:
    sql = (
        f"select id from {table} where turn_id in (select value from json_each(?))"
        f" and id not in (select value from json_each(?)) and {where}"
    )
    return [row["id"] for row in fetch_all(conn, sql, (encode_json(turns), encode_json(excluded_ids)))]


# --- preview ---------------------------------------------------------------------------------------------------------


def summarize_affected_rows(conn: Connection, affected: AffectedRows, *, first: int = 10) -> AffectedSummary:
    """Return the number of rows of each kind, and the titles of the `first` rows of each kind."""
    counts = {
        "observations": len(affected.observations) + len(affected.derived_observations),
        "summaries": len(affected.summaries) + len(affected.derived_summaries),
        "prompts": len(affected.prompts),
        "turns": _count_turns(conn, affected),
        "events": len(affected.events),
        "sessions": len(affected.whole_sessions),
        "tellings": len(affected.injections),
        "kept from before": len(affected.restorable),
    }
    return AffectedSummary(
        counts=counts,
        made_again=len(affected.turns_to_redigest),
        first=list(_first_titles(conn, affected, first)),
    )


def _count_turns(conn: Connection, affected: AffectedRows) -> int:
    turns_of_whole_sessions = fetch_value(
        conn,
        "select count(*) from turns where session_id in (select value from json_each(?))",
        (encode_json(affected.whole_sessions),),
    )
    return int(turns_of_whole_sessions) + len(affected.turns) - len(affected.turns_to_redigest)


def _first_titles(conn: Connection, affected: AffectedRows, limit: int) -> Iterator[AffectedTitle]:
    row_ids_by_kind = {
        "session": affected.whole_sessions,
        "observation": [*affected.observations, *affected.derived_observations],
        "summary": [*affected.summaries, *affected.derived_summaries],
        "prompt": affected.prompts,
    }
    for kind, row_ids in row_ids_by_kind.items():
        table, title, at = _TITLE_SQL[kind]
        for row_id in row_ids[:limit]:
            row = fetch_one(conn, f"select {title} as title, {at} as at from {table} where id = ?", (row_id,))
            if row is not None:
                yield AffectedTitle(kind=kind, id=row_id, title=(row["title"] or "")[:120], at=row["at"])
