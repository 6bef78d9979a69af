"""Export and import of memory records.

An export reads pages of records in row order, up to the last row that existed when the export began. An import stores
one record at a time: a record that exists is not added again, and forgotten content does not come back. Nothing is
added to a turn that was captured here, because the local record is better than any imported one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from claude_mem.domain.export_format import (
    ContentRecord,
    ObservationRecord,
    ProjectRecord,
    PromptRecord,
    SessionRecord,
    SummaryRecord,
    project_from_identity,
)
from claude_mem.domain.records import ObservationType, Status
from claude_mem.domain.text import MAX_TIME_MS, shorten, strip_invisible
from claude_mem.privacy import trust
from claude_mem.storage.records import ExportScope
from claude_mem.storage.sqlite.deletion import tombstones
from claude_mem.storage.sqlite.engine import Connection, Row, fetch_all, fetch_one, fetch_value
from claude_mem.storage.sqlite.memory import observations, projects, sessions, validity
from claude_mem.storage.sqlite.memory.observations import SUMMARY_FIELDS, encode_json
from claude_mem.system.project_folders import LEGACY_PREFIX, ResolvedProject, is_existing_folder

# An imported record belongs to a captured turn if its time falls into that turn; records may be written a while later.
EARLY_MS, LATE_MS = 2_000, 600_000
MAX_IMPORTED_PROJECTS = 20_000  # limit for imports; sessions may add any number of projects
FINAL_STATUSES = (Status.COMPLETED, Status.FAILED, Status.INTERRUPTED)
ADDED, CHANGED, KNOWN, FORGOTTEN = "added", "changed", "known", "forgotten"
EXPORT_TABLES = {
    "project": "projects",
    "session": "sdk_sessions",
    "prompt": "user_prompts",
    "observation": "observations",
    "summary": "session_summaries",
}
# Strongest first: a name the user gave, then identities valid on every machine, then paths on this machine.
_PREFIXES_BY_STRENGTH = ("name:", "remote:", "git:", "dir:")
_CONTENT_COLUMNS = (
    "type", "title", "subtitle", "narrative", "commit_id", "memory_session_id", "provider", "model", "trust", "verdict",
)  # fmt: skip
_LIST_COLUMNS = ("facts", "concepts", "files_read", "files_modified")
_PROVENANCE_COLUMNS = ("memory_session_id", "provider", "trust", "verdict")
_CLOSING_COLUMNS = ("closing", "closing_trust", "outcome")
_TIME_COLUMNS = ("created_at", "updated_at")
_OBSERVATION_COLUMNS = (
    *_CONTENT_COLUMNS, *_LIST_COLUMNS, *_TIME_COLUMNS, "session_id", "turn_id", "project_id", "prompt_number", "key",
    "sources", "pinned", "tokens", "hash",
)  # fmt: skip
_UPDATED_COLUMNS = (*_CONTENT_COLUMNS, *_LIST_COLUMNS, "updated_at", "sources", "tokens", "hash")
_INSERT_OBSERVATION = (
    f"insert into observations ({', '.join(_OBSERVATION_COLUMNS)})"
    f" values ({', '.join(f':{name}' for name in _OBSERVATION_COLUMNS)})"
)
UPDATE_OBSERVATION = (
    f"update observations set {', '.join(f'{name} = :{name}' for name in _UPDATED_COLUMNS)},"
    " pinned = max(pinned, :pinned) where id = :id"
)


# --- what to export --------------------------------------------------------------------------------------------------


def build_export_scope(
    conn: Connection,
    *,
    project_ids: tuple[int, ...] | None = None,
    since: int | None = None,
    until: int | None = None,
    item_ids: Mapping[str, tuple[int, ...]] | None = None,
) -> ExportScope:
    """Return the scope of an export of the rows that exist now."""
    upto = {
        kind: int(fetch_value(conn, f"select coalesce(max(id), 0) from {table}"))
        for kind, table in EXPORT_TABLES.items()
    }
    whole = project_ids is None and since is None and until is None and item_ids is None
    return ExportScope(upto=upto, project_ids=project_ids, since=since, until=until, item_ids=item_ids, whole=whole)


def find_items_of_turns(conn: Connection, turn_ids: list[int]) -> dict[str, list[int]]:
    """Return the ids of the prompts, observations and summaries of these turns, by kind."""
    sql = "select id from {} where turn_id in (select value from json_each(?))"
    return {
        kind: [row["id"] for row in fetch_all(conn, sql.format(EXPORT_TABLES[kind]), (encode_json(turn_ids),))]
        for kind in ("prompt", "observation", "summary")
    }


def _page_sql(kind: str, export: ExportScope) -> str:
    """Return the query for rows after `:after`, up to the last row that existed when the export began."""
    select, alias, condition = _select_parts(kind, export)
    return (
        f"{select} where {alias}.id > :after and {alias}.id <= :upto and ({condition}) order by {alias}.id limit :limit"
    )


def _select_parts(kind: str, export: ExportScope) -> tuple[str, str, str]:
    """Return the query for rows of a kind without its condition, the alias of their table, and the condition."""
    if kind == "project":
        needed = _session_condition(export, by="s.id")
        condition = (
            "true"
            if export.whole
            else f"exists (select 1 from sdk_sessions s where s.project_id = p.id and ({needed})) or"
            f" exists (select 1 from observations w where w.project_id = p.id"
            f" and {_item_condition('observation', 'w', 'w.project_id', export)}) or"
            f" exists (select 1 from session_summaries w where w.project_id = p.id"
            f" and {_item_condition('summary', 'w', 'w.project_id', export)})"
        )
        select, alias = "select p.* from projects p", "p"
    elif kind == "session":
        # The session row contains its first prompt, and its subtitle is taken from the last summary.
        has_first_prompt = _has_item_sql("prompt", "min(prompt_number)", "prompt_number", export)
        has_last_summary = _has_item_sql("summary", "max(created_at)", "created_at", export)
        flags = f"{has_first_prompt} as begins, {has_last_summary} as ends"
        select, alias, condition = (
            f"select s.*, {flags} from sdk_sessions s",
            "s",
            _session_condition(export, by="s.id"),
        )
    else:
        project_column = ", s.project_id" if kind == "prompt" else ""
        select = (
            f"select o.*, s.host, s.content_session_id, t.prompt_id{project_column} from {EXPORT_TABLES[kind]} o"
            " left join sdk_sessions s on s.id = o.session_id left join turns t on t.id = o.turn_id"
        )
        alias = "o"
        condition = _item_condition(kind, "o", "s.project_id" if kind == "prompt" else "o.project_id", export)
    return select, alias, condition


def _item_condition(kind: str, alias: str, project: str, export: ExportScope) -> str:
    """Return the SQL condition on a prompt, an observation or a summary, with the parameters of `_scope_params`."""
    conditions = ["true"] if kind != "observation" else [f"not {alias}.forgotten"]
    if export.project_ids is not None:
        conditions.append(f"{project} in (select value from json_each(:projects))")
    if export.since is not None:
        conditions.append(f"{alias}.created_at >= :since")
    if export.until is not None:
        conditions.append(f"{alias}.created_at <= :until")
    if export.item_ids is not None:
        conditions.append(f"{alias}.id in (select value from json_each(:{kind}s))")
    return " and ".join(conditions)


def _scope_params(export: ExportScope) -> dict[str, object]:
    item_ids = export.item_ids or {}
    return {
        "projects": encode_json(export.project_ids or ()),
        "since": export.since,
        "until": export.until,
        **{f"{kind}s": encode_json(item_ids.get(kind, ())) for kind in ("prompt", "observation", "summary")},
    }


def _session_condition(export: ExportScope, *, by: str) -> str:
    """Return the SQL condition that any exported item belongs to the session with the id `by`."""
    if export.whole:
        return "true"
    return " or ".join(
        f"exists (select 1 from {EXPORT_TABLES[kind]} w where w.session_id = {by}"
        f" and {_item_condition(kind, 'w', 's.project_id' if kind == 'prompt' else 'w.project_id', export)})"
        for kind in ("prompt", "observation", "summary")
    )


def _has_item_sql(kind: str, aggregate: str, column: str, export: ExportScope) -> str:
    """Return the SQL condition that the session's first or last item of a kind is exported."""
    if export.since is None and export.until is None and export.item_ids is None:
        return "true" if export.whole else "s.project_id in (select value from json_each(:projects))"
    table, condition = EXPORT_TABLES[kind], _item_condition(kind, "w", "s.project_id", export)
    is_that_row = f"w.{column} = (select {aggregate} from {table} where session_id = s.id)"
    return f"exists (select 1 from {table} w where w.session_id = s.id and {condition} and {is_that_row})"


# --- exporting records -----------------------------------------------------------------------------------------------


def read_export_page(
    conn: Connection, kind: str, export: ExportScope, *, after: int, limit: int
) -> list[tuple[int, ContentRecord]]:
    """Return the next records of a kind, each with its row id."""
    bounds = {"after": after, "upto": export.upto[kind], "limit": limit}
    page_rows = fetch_all(conn, _page_sql(kind, export), {**_scope_params(export), **bounds})
    return [(row["id"], record) for row, record in _to_records(conn, kind, page_rows)]


def read_records(conn: Connection, kind: str, row_ids: Sequence[int]) -> dict[int, tuple[int, ContentRecord]]:
    """Return these rows as records by row id, each with the id of its project. Deleted rows are left out."""
    select, alias, condition = _select_parts(kind, ExportScope(upto={}))
    condition += " and not s.forgotten" if kind == "session" else ""
    sql = f"{select} where {condition} and {alias}.id in (select value from json_each(?))"
    rows = fetch_all(conn, sql, (encode_json(list(row_ids)),))
    column = "id" if kind == "project" else "project_id"
    return {row["id"]: (row[column], record) for row, record in _to_records(conn, kind, rows)}


def _to_records(conn: Connection, kind: str, rows: Sequence[Row]) -> list[tuple[Row, ContentRecord]]:
    identities = _list_project_identities(conn)
    if kind == "observation":
        confirmed_at = validity.list_kept(conn, [row["id"] for row in rows])
        rows = [{**row, "kept_at": confirmed_at.get(row["id"])} for row in rows]
    return [(row, _CONVERTERS[kind](_clamp_times(row), identities)) for row in rows]


def _clamp_times(row: Row) -> dict[str, object]:
    """Clamp times to the valid range: a wrong clock must not produce a record that an import rejects."""
    times = {name: at for name, at in row.items() if name.endswith("_at") and at is not None}
    return {**row, **{name: min(max(at, 0), MAX_TIME_MS) for name, at in times.items()}}


def _list_project_identities(conn: Connection) -> dict[int, list[str]]:
    """Return the identities of every project, strongest first."""
    identities: dict[int, list[str]] = {}
    for row in fetch_all(conn, "select project_id, identity from project_aliases order by identity"):
        identities.setdefault(row["project_id"], []).append(row["identity"])
    return {project_id: sorted(own_identities, key=_strength) for project_id, own_identities in identities.items()}


def _strength(identity: str) -> tuple[int, str]:
    rank = next(
        (number for number, prefix in enumerate(_PREFIXES_BY_STRENGTH) if identity.startswith(prefix)),
        len(_PREFIXES_BY_STRENGTH),
    )
    return rank, identity


def _to_project(row: Row, identities: dict[int, list[str]]) -> ProjectRecord:
    own = identities.get(row["id"]) or [f"name:{row['name']}"]
    return ProjectRecord(
        project=own[0], name=row["name"], root=row["root"], identities=tuple(own), created_at=row["created_at"]
    )


def _to_session(row: Row, identities: dict[int, list[str]]) -> SessionRecord:
    """Convert a session row. A running session is exported as interrupted."""
    if not row["begins"]:
        row = {**row, "title": None, "subtitle": None, "first_prompt": None}
    if not row["ends"]:
        row = {**row, "subtitle": None}
    return SessionRecord(
        host=row["host"],
        session=row["content_session_id"],
        project=_project_ref(row, identities),
        status=row["status"] if row["status"] in FINAL_STATUSES else str(Status.INTERRUPTED),
        **_pick(row, "title", "subtitle", "first_prompt", "cwd", "started_at", "last_event_at", "ended_at"),
    )


def _to_prompt(row: Row, identities: dict[int, list[str]]) -> PromptRecord:
    return PromptRecord(
        **_origin_fields(row, identities), **_pick(row, "prompt_id", "prompt_number", "text", "created_at")
    )


def _to_observation(row: Row, identities: dict[int, list[str]]) -> ObservationRecord:
    return ObservationRecord(
        **_origin_fields(row, identities),
        **_pick(row, "prompt_id", "prompt_number", "key", *_CONTENT_COLUMNS, *_TIME_COLUMNS),
        **_decode_lists(row, *_LIST_COLUMNS),
        pinned=bool(row["pinned"]),
        kept_at=row["kept_at"],
    )


def _to_summary(row: Row, identities: dict[int, list[str]]) -> SummaryRecord:
    return SummaryRecord(
        **_origin_fields(row, identities),
        **_pick(
            row,
            "prompt_id",
            "prompt_number",
            *_PROVENANCE_COLUMNS,
            *SUMMARY_FIELDS,
            *_CLOSING_COLUMNS,
            *_TIME_COLUMNS,
        ),
        **_decode_lists(row, "files_read", "files_edited"),
    )


_CONVERTERS: dict[str, Callable[[Row, dict[int, list[str]]], ContentRecord]] = {
    "project": _to_project,
    "session": _to_session,
    "prompt": _to_prompt,
    "observation": _to_observation,
    "summary": _to_summary,
}


def _pick(row: Row, *columns: str) -> dict[str, Any]:
    return {name: row[name] for name in columns}


def _origin_fields(row: Row, identities: dict[int, list[str]]) -> dict[str, Any]:
    return {"host": row["host"], "session": row["content_session_id"], "project": _project_ref(row, identities)}


def _project_ref(row: Row, identities: dict[int, list[str]]) -> str:
    return (identities.get(row["project_id"]) or [f"name:{row['project_id']}"])[0]


def _decode_lists(row: Row, *columns: str) -> dict[str, Any]:
    return {name: tuple(msgspec.json.decode(row[name], type=list[str])) for name in columns}


# --- importing records -----------------------------------------------------------------------------------------------


def import_record(conn: Connection, record: ContentRecord, *, now: int) -> str:
    """Store a record. Return `added`, `changed`, `known` or `forgotten`."""
    if isinstance(record, ProjectRecord):
        return find_or_add_project(conn, record, now=now)[1]
    if not isinstance(record, SessionRecord) and tombstones.is_time_uncheckable(conn, at=record.created_at):
        return FORGOTTEN
    project_id = find_or_add_project_id(conn, record.project, now=now)
    if isinstance(record, SessionRecord):
        span = {"since": record.started_at, "until": record.last_event_at}
        if tombstones.is_session_tombstoned(conn, record.host, record.session, **span):
            return FORGOTTEN
        return store_session(conn, without_tombstoned_titles(conn, record), project_id)
    if record.host is None or record.session is None:
        assert isinstance(record, ObservationRecord)
        return store_observation(conn, record, None, None, project_id)
    at = record.created_at
    if tombstones.is_session_tombstoned(conn, record.host, record.session, since=at, until=at):
        return FORGOTTEN
    session_id = sessions.open_session(conn, record.host, record.session, project_id=project_id, at=at).id
    assert record.prompt_number is not None
    turn_id = _find_or_add_turn(conn, session_id, record.prompt_number, record.prompt_id, at=record.created_at, now=now)
    if turn_id is None:
        return KNOWN
    extend_session(conn, session_id, record.created_at)
    if isinstance(record, PromptRecord):
        if tombstones.is_prompt_tombstoned(conn, turn_id, record.text, at=at):
            return FORGOTTEN
        return store_prompt(conn, record, session_id, turn_id)
    if isinstance(record, SummaryRecord):
        if tombstones.is_summary_tombstoned(conn, turn_id, at=at):
            return FORGOTTEN
        return store_summary(conn, record, session_id, turn_id, project_id)
    return store_observation(conn, record, session_id, turn_id, project_id)


# --- importing projects ----------------------------------------------------------------------------------------------


def find_or_add_project(conn: Connection, record: ProjectRecord, *, now: int) -> tuple[int, str]:
    """Return the id of the project with any of these identities, or add one; and `known` or `added`.

    All identities are stored, except that a new project does not take those of another one.
    """
    display_name = shorten(strip_invisible(record.name), 100) or "unknown"
    record = msgspec.structs.replace(record, name=display_name)
    identities = _identities(record)
    project_id = _find_project(conn, record, identities)
    if project_id is None:
        if int(fetch_value(conn, "select count(*) from projects")) >= MAX_IMPORTED_PROJECTS:
            raise ValueError(f"there are {MAX_IMPORTED_PROJECTS:,} projects already")
        free = tuple(identity for identity in identities if not _is_used(conn, "project_aliases", identity))
        project = ResolvedProject(record.name, record.root, free)
        has_own_folder = is_existing_folder(record.root) and not _is_used(conn, "project_dirs", record.root)
        return projects.register_project(
            conn, project, record.root if has_own_folder else "", now=record.created_at or now
        ), ADDED
    for identity in identities:
        conn.execute("insert or ignore into project_aliases values (?, ?)", (identity, project_id))
    conn.execute("update projects set root = ? where id = ? and root = ''", (record.root, project_id))
    return project_id, KNOWN


def _identities(record: ProjectRecord) -> tuple[str, ...]:
    return tuple(dict.fromkeys((record.project, *record.identities)))


def _is_used(conn: Connection, table: str, name: str) -> bool:
    column = {"project_aliases": "identity", "project_dirs": "dir"}[table]
    return bool(fetch_value(conn, f"select 1 from {table} where {column} = ?", (name,)))


def _find_project(conn: Connection, record: ProjectRecord, identities: tuple[str, ...]) -> int | None:
    """Return the id of the project with any of these identities.

    A folder of the same name on another machine may be another repository, so a match by path does not count if the
    remotes differ.
    """
    remotes = {identity for identity in identities if identity.startswith("remote:")}
    for identity in sorted(identities, key=_strength):
        project_id = fetch_value(conn, "select project_id from project_aliases where identity = ?", (identity,))
        if project_id is None:
            continue
        own_remotes = {name for name in projects.list_project_aliases(conn, project_id) if name.startswith("remote:")}
        if not identity.startswith(("git:", "dir:")) or not remotes or not own_remotes or remotes & own_remotes:
            return int(project_id)
    return _find_project_by_name(conn, record.name, identities)


def _are_only_names(identities: Iterable[str]) -> bool:
    """Return whether the identities consist only of a name, as in the older claude-mem."""
    return all(identity.startswith(LEGACY_PREFIX) for identity in identities)


def _find_project_by_name(conn: Connection, name: str, identities: Sequence[str]) -> int | None:
    """Match a project known only by its name with the first project of that name, whichever was stored first."""
    if _are_only_names(identities):
        return next(iter(projects.list_project_ids_by_name(conn, identities[0].removeprefix(LEGACY_PREFIX))), None)
    older = fetch_value(conn, "select project_id from project_aliases where identity = ?", (f"{LEGACY_PREFIX}{name}",))
    return int(older) if older is not None and _are_only_names(projects.list_project_aliases(conn, older)) else None


def find_or_add_project_id(conn: Connection, ref: str, *, now: int) -> int:
    """Return the id of the project with this identity. If its own record is missing, add one from the identity."""
    if project_id := fetch_value(conn, "select project_id from project_aliases where identity = ?", (ref,)):
        return int(project_id)
    return find_or_add_project(conn, project_from_identity(ref), now=now)[0]


def find_project_folders(conn: Connection, records: Sequence[ProjectRecord]) -> dict[str, str]:
    """Return the root folders of those projects that are known here, by their identity in the import file."""
    project_ids = {record.project: _find_project(conn, record, _identities(record)) for record in records}
    projects_by_ref = {
        ref: projects.find_project(conn, project_id)
        for ref, project_id in project_ids.items()
        if project_id is not None
    }
    return {ref: row.root for ref, row in projects_by_ref.items() if row}


# --- importing sessions and turns ------------------------------------------------------------------------------------


def store_session(conn: Connection, record: SessionRecord, project_id: int) -> str:
    """Store a session. One that was captured here stays unchanged: what it lacks may have been removed on purpose."""
    existing = sessions.find_session(conn, record.host, record.session)
    if existing is not None and was_captured(conn, existing.id):
        return KNOWN
    session = existing or sessions.open_session(
        conn, record.host, record.session, project_id=project_id, at=record.started_at
    )
    conn.execute(
        """
        update sdk_sessions
           set title = coalesce(title, :title), subtitle = coalesce(subtitle, :subtitle),
               first_prompt = coalesce(first_prompt, :first_prompt), cwd = iif(cwd = '', :cwd, cwd),
               status = iif(status in ('initialized', 'active'), :status, status),
               started_at = min(started_at, :started_at), last_event_at = max(last_event_at, :last_event_at),
               ended_at = coalesce(ended_at, :ended_at)
         where id = :id
        """,
        {
            **pick_fields(
                record, "title", "subtitle", "first_prompt", "cwd", "started_at", "last_event_at", "ended_at"
            ),
            "status": record.status if record.status in FINAL_STATUSES else str(Status.INTERRUPTED),
            "id": session.id,
        },
    )
    return ADDED if existing is None else KNOWN


def without_tombstoned_titles(conn: Connection, record: SessionRecord) -> SessionRecord:
    """Remove the titles that were forgotten here."""
    is_tombstoned = partial(tombstones.is_title_tombstoned, conn, record.host, record.session, at=record.started_at)
    tombstoned = dict.fromkeys(name for name in tombstones.SESSION_TEXT_COLUMNS if is_tombstoned(getattr(record, name)))
    return msgspec.structs.replace(record, **tombstoned)


def was_captured(conn: Connection, session_id: int) -> bool:
    sql = (
        "select 1 from events where session_id = ?1"
        " union all select 1 from turns where session_id = ?1 and (private or events_purged)"
    )
    return bool(fetch_value(conn, sql, (session_id,)))


def captured_sql(turn: str) -> str:
    """Return the SQL condition that the turn was captured here by a hook or from a transcript, or was private."""
    return f"({turn}.private or {turn}.events_purged or exists (select 1 from events e where e.turn_id = {turn}.id))"


def _find_or_add_turn(
    conn: Connection, session_id: int, number: int, prompt_id: str | None, *, at: int, now: int
) -> int | None:
    """Return the id of the turn a record belongs to, adding it if needed; None if that turn was captured here."""
    turn = fetch_one(
        conn,
        f"select id, {captured_sql('t')} as captured from turns t where session_id = ? and prompt_id = ?",
        (session_id, prompt_id),
    )
    if turn is None and _was_turn_captured_at(conn, session_id, at):
        return None
    if turn is None and not (prompt_id or "").startswith("import:"):
        turn = fetch_one(
            conn,
            f"""
            select id, 0 as captured from turns t
             where session_id = ?1 and number = ?2 and not {captured_sql("t")}
               and (?3 is null or prompt_id is null or prompt_id = ?3)
            """,
            (session_id, number, prompt_id),
        )
    if turn is None:
        return add_imported_turn(conn, session_id, number, prompt_id, at=at, now=now)
    if turn["captured"]:
        return None
    conn.execute(
        """
        update turns set opened_at = min(opened_at, ?1), last_at = max(last_at, ?1), prompt_id = coalesce(prompt_id, ?2)
         where id = ?3
        """,
        (at, prompt_id, turn["id"]),
    )
    return int(turn["id"])


def _was_turn_captured_at(conn: Connection, session_id: int, at: int) -> bool:
    """Return whether a captured turn was running at that time.

    Turn numbers may differ between machines; times do not.
    """
    return bool(
        fetch_value(
            conn,
            f"""
            select 1 from turns t
             where t.session_id = :session and {captured_sql("t")} and t.opened_at <= :at + {EARLY_MS}
               and :at <= coalesce((select min(n.opened_at) from turns n
                                     where n.session_id = :session and n.opened_at > t.opened_at),
                                   t.last_at + {LATE_MS})
            """,
            {"session": session_id, "at": at},
        )
    )


def add_imported_turn(
    conn: Connection, session_id: int, number: int, prompt_id: str | None, *, at: int, now: int
) -> int:
    """Add a closed and digested turn.

    If its number is used, the turn gets the next free one, and a prompt id by which it is found again.
    """
    is_number_used = fetch_value(conn, "select 1 from turns where session_id = ? and number = ?", (session_id, number))
    if is_number_used:
        prompt_id = prompt_id or f"import:{number}"
        existing_id = fetch_value(
            conn, "select id from turns where session_id = ? and prompt_id = ?", (session_id, prompt_id)
        )
        if existing_id is not None:
            return int(existing_id)
        number = 1 + int(fetch_value(conn, "select max(number) from turns where session_id = ?", (session_id,)))
    turn_id = fetch_value(
        conn,
        """
        insert into turns (session_id, number, prompt_id, opened_at, last_at, closed_at, closed_by, digested_at)
        values (?1, ?2, ?3, ?4, ?4, ?4, 'import', ?5) returning id
        """,
        (session_id, number, prompt_id, at, now),
    )
    conn.execute("update sdk_sessions set prompt_counter = max(prompt_counter, ?2) where id = ?1", (session_id, number))
    return int(turn_id)


def extend_session(conn: Connection, session_id: int, at: int) -> None:
    """Extend the session's time span to include `at`."""
    conn.execute(
        """
        update sdk_sessions set started_at = min(started_at, ?2), last_event_at = max(last_event_at, ?2)
         where id = ?1 and not ?2 between started_at and last_event_at
        """,
        (session_id, at),
    )


# --- importing items -------------------------------------------------------------------------------------------------


def store_prompt(conn: Connection, record: PromptRecord, session_id: int, turn_id: int) -> str:
    conn.execute(
        """
        insert or ignore into user_prompts (session_id, turn_id, prompt_number, text, created_at)
        values (?1, ?2, (select number from turns where id = ?2), ?3, ?4)
        """,
        (session_id, turn_id, record.text, record.created_at),
    )
    if not conn.changes():
        return KNOWN
    conn.execute(
        """
        update sdk_sessions set first_prompt = ?2, title = coalesce(title, ?3)
         where id = ?1 and first_prompt is null and (select number from turns where id = ?4) = 1
        """,
        (session_id, record.text, shorten(record.text, 80), turn_id),
    )
    return ADDED


def store_observation(
    conn: Connection, record: ObservationRecord, session_id: int | None, turn_id: int | None, project_id: int
) -> str:
    where = "turn_id is null" if turn_id is None else "turn_id = :turn"
    select = "select id, forgotten, trust, verdict, updated_at from observations where"
    existing = fetch_one(conn, f"{select} {where} and key = :key", {"turn": turn_id, "key": record.key})
    if existing is not None and existing["forgotten"]:
        return FORGOTTEN
    if tombstones.is_observation_tombstoned(conn, turn_id, record.key, at=record.created_at):
        return FORGOTTEN
    row_id = existing["id"] if existing else None
    if existing is None:
        if turn_id is not None and not _make_way_for(conn, turn_id, record):
            return KNOWN
        outcome, sql = ADDED, _INSERT_OBSERVATION
    elif _should_replace(record, existing):
        outcome, sql = CHANGED, UPDATE_OBSERVATION
    elif record.kept_at is not None and existing["updated_at"] == record.updated_at:
        return CHANGED if keep_confirmed(conn, existing["id"], record.kept_at) else KNOWN
    else:
        return KNOWN
    params = {**observation_params(record), **_place_params(conn, session_id, turn_id, project_id), "id": row_id}
    row_id = int(fetch_value(conn, f"{sql} returning id", params))
    if record.kept_at is not None:
        keep_confirmed(conn, row_id, record.kept_at)
    if record.type == ObservationType.RULE:
        observations.link_statements(conn, project_id)
    return outcome


def keep_confirmed(conn: Connection, row_id: int, kept_at: int) -> bool:
    """Store a person's word that an observation holds, unless there is one. It counts for the code as it is here."""
    if validity.get_confirmation(conn, row_id):
        return False
    validity.confirm(conn, row_id, now=kept_at)
    return True


def _should_replace(record: ObservationRecord | SummaryRecord, existing: Row) -> bool:
    """Return whether the record should replace the existing row.

    The later version wins, but the user's words are not replaced by a program's, and untrusted text replaces nothing.
    """
    standing = _standing(record)
    if not trust.is_trusted_or_approved(standing):
        return False
    if not trust.is_trusted_or_approved(existing) and not _is_decided_by_user(existing):
        return True
    return bool(existing["updated_at"] < record.updated_at) and (
        _is_decided_by_user(standing) or not _is_decided_by_user(existing)
    )


def _standing(record: ObservationRecord | SummaryRecord) -> dict[str, object]:
    return {"trust": record.trust, "verdict": record.verdict}


def _is_decided_by_user(row: Row) -> bool:
    """Return whether the user corrected the record, or judged it right or wrong."""
    return bool(row["trust"] == "user" or row["verdict"])


def observation_params(record: ObservationRecord) -> dict[str, object]:
    lists = {name: encode_json(getattr(record, name)) for name in _LIST_COLUMNS}
    content = {**pick_fields(record, "key", *_CONTENT_COLUMNS, *_TIME_COLUMNS), **lists, "pinned": int(record.pinned)}
    return {
        **content,
        "sources": encode_json([[] for _ in record.facts]),
        "tokens": observations.count_observation_tokens(content),
        "hash": observations.hash_observation(content),
    }


def _place_params(conn: Connection, session_id: int | None, turn_id: int | None, project_id: int) -> dict[str, object]:
    number = fetch_value(conn, "select number from turns where id = ?", (turn_id,))
    return {"session_id": session_id, "turn_id": turn_id, "project_id": project_id, "prompt_number": number}


def _make_way_for(conn: Connection, turn_id: int, record: ObservationRecord) -> bool:
    """Return whether the observation may be added to the turn, deleting drafts that it replaces.

    A turn has either drafts or refined observations, never both. Refined ones win, unless they are untrusted.
    """
    if record.trust == "user":
        return True
    if record.provider == "local":
        return not observations.is_turn_refined(conn, turn_id)
    drafts = f"from observations where turn_id = ? and provider = 'local' and {observations.MACHINE_OWNED}"
    if not trust.is_trusted_or_approved(_standing(record)):
        return not fetch_value(conn, f"select 1 {drafts}", (turn_id,))
    conn.execute(f"delete {drafts}", (turn_id,))
    return True


def store_summary(conn: Connection, record: SummaryRecord, session_id: int, turn_id: int, project_id: int) -> str:
    existing = fetch_one(
        conn, "select id, trust, verdict, updated_at from session_summaries where turn_id = ?", (turn_id,)
    )
    if existing is not None and not _should_replace(record, existing):
        return KNOWN
    params = {
        **pick_fields(record, *_PROVENANCE_COLUMNS, *SUMMARY_FIELDS, *_CLOSING_COLUMNS, *_TIME_COLUMNS),
        **{name: encode_json(getattr(record, name)) for name in ("files_read", "files_edited")},
        **_place_params(conn, session_id, turn_id, project_id),
    }
    columns, placeholders = ", ".join(params), ", ".join(f":{name}" for name in params)
    assignments = ", ".join(
        f"{name} = {_update_expression(name)}" for name in params if name not in ("session_id", "turn_id")
    )
    conn.execute(
        f"insert into session_summaries ({columns}) values ({placeholders})"
        f" on conflict (turn_id) do update set {assignments}",
        params,
    )
    return ADDED if existing is None else CHANGED


def _update_expression(name: str) -> str:
    """Return the new value of a column. Exports of earlier versions lack the closing message; the stored one stays."""
    return f"iif(excluded.closing = '', {name}, excluded.{name})" if name in _CLOSING_COLUMNS else f"excluded.{name}"


def pick_fields(record: ContentRecord, *names: str) -> dict[str, object]:
    return {name: getattr(record, name) for name in names}
