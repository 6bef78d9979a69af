"""Memories on their way out of this database and into it.

Out: pages of records, in the order of their rows, as far as there were any when the export began. In: `take` says of
each record what became of it. What is here already is not added again, what was forgotten here does not come back, and
a turn that was captured here is better known here than anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from claude_mem import projects as projects_
from claude_mem.portable import Item, Observation, Project, Prompt, Session, Summary
from claude_mem.records import Status, Type
from claude_mem.store import observations, projects, rules, sessions, stones
from claude_mem.store.database import Connection, Row, one, rows, value
from claude_mem.text import LATEST, plain, shorten

# A turn read from elsewhere is the captured one if it falls into its time; what was noted of it may have come later.
EARLY_MS, LATE_MS = 2_000, 600_000
MOST_PROJECTS = 20_000  # that imports may bring; folders in which sessions run make as many as there are
OVER = (Status.COMPLETED, Status.FAILED, Status.INTERRUPTED)

# --- out -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is wanted, and up to which row of each table. Of sessions and projects: those that it needs."""

    upto: Mapping[str, int]
    project_ids: tuple[int, ...] | None = None
    since: int | None = None
    until: int | None = None
    picked: Mapping[str, tuple[int, ...]] | None = None  # by table; None: whatever there is
    whole: bool = field(default=True)  # nothing is left out


TABLES = {
    "project": "projects",
    "session": "sdk_sessions",
    "prompt": "user_prompts",
    "observation": "observations",
    "summary": "session_summaries",
}


def scope(
    conn: Connection,
    *,
    project_ids: tuple[int, ...] | None = None,
    since: int | None = None,
    until: int | None = None,
    picked: Mapping[str, tuple[int, ...]] | None = None,
) -> Scope:
    upto = {kind: int(value(conn, f"select coalesce(max(id), 0) from {table}")) for kind, table in TABLES.items()}
    whole = project_ids is None and since is None and until is None and picked is None
    return Scope(upto=upto, project_ids=project_ids, since=since, until=until, picked=picked, whole=whole)


def of_turns(conn: Connection, turn_ids: list[int]) -> dict[str, list[int]]:
    """What is remembered of these turns, by kind."""
    wanted = _dump(turn_ids)
    return {
        kind: [
            row["id"]
            for row in rows(
                conn, f"select id from {TABLES[kind]} where turn_id in (select value from json_each(?))", (wanted,)
            )
        ]
        for kind in ("prompt", "observation", "summary")
    }


def _wanted(kind: str, alias: str, project: str, given: Scope) -> str:
    """The condition on a prompt, an observation or a summary; its values are those of `_values`."""
    parts = ["true"] if kind != "observation" else [f"not {alias}.forgotten"]
    if given.project_ids is not None:
        parts.append(f"{project} in (select value from json_each(:projects))")
    if given.since is not None:
        parts.append(f"{alias}.created_at >= :since")
    if given.until is not None:
        parts.append(f"{alias}.created_at <= :until")
    if given.picked is not None:
        parts.append(f"{alias}.id in (select value from json_each(:{kind}s))")
    return " and ".join(parts)


def _values(given: Scope) -> Row:
    picked = given.picked or {}
    return {
        "projects": _dump(given.project_ids or ()),
        "since": given.since,
        "until": given.until,
        **{f"{kind}s": _dump(picked.get(kind, ())) for kind in ("prompt", "observation", "summary")},
    }


def _needed(given: Scope, *, by: str) -> str:
    """Does anything that is wanted belong to this session (`by` = `s.id`)?"""
    if given.whole:
        return "true"
    return " or ".join(
        f"exists (select 1 from {TABLES[kind]} w where w.session_id = {by}"
        f" and {_wanted(kind, 'w', 's.project_id' if kind == 'prompt' else 'w.project_id', given)})"
        for kind in ("prompt", "observation", "summary")
    )


def _begins(given: Scope) -> str:
    """Is its first prompt wanted? It is in the session's own row, too."""
    return _has_wanted("prompt", "min(prompt_number)", "prompt_number", given)


def _ends(given: Scope) -> str:
    """Is its last summary wanted? The subtitle is made of it."""
    return _has_wanted("summary", "max(created_at)", "created_at", given)


def _has_wanted(kind: str, which: str, column: str, given: Scope) -> str:
    if given.since is None and given.until is None and given.picked is None:
        return "true" if given.whole else "s.project_id in (select value from json_each(:projects))"
    table, wanted = TABLES[kind], _wanted(kind, "w", "s.project_id", given)
    one_of_all = f"w.{column} = (select {which} from {table} where session_id = s.id)"
    return f"exists (select 1 from {table} w where w.session_id = s.id and {wanted} and {one_of_all})"


def _sql(kind: str, given: Scope) -> str:
    """Rows after `:after`, up to where the export began."""
    if kind == "project":
        needed = _needed(given, by="s.id")
        condition = (
            "true"
            if given.whole
            else f"exists (select 1 from sdk_sessions s where s.project_id = p.id and ({needed})) or"
            f" exists (select 1 from observations w where w.project_id = p.id"
            f" and {_wanted('observation', 'w', 'w.project_id', given)}) or"
            f" exists (select 1 from session_summaries w where w.project_id = p.id"
            f" and {_wanted('summary', 'w', 'w.project_id', given)})"
        )
        select, alias = "select p.* from projects p", "p"
    elif kind == "session":
        told = f"{_begins(given)} as begins, {_ends(given)} as ends"
        select, alias, condition = f"select s.*, {told} from sdk_sessions s", "s", _needed(given, by="s.id")
    else:
        own = ", s.project_id" if kind == "prompt" else ""
        select = (
            f"select o.*, s.host, s.content_session_id, t.prompt_id{own} from {TABLES[kind]} o"
            " left join sdk_sessions s on s.id = o.session_id left join turns t on t.id = o.turn_id"
        )
        alias = "o"
        condition = _wanted(kind, "o", "s.project_id" if kind == "prompt" else "o.project_id", given)
    return (
        f"{select} where {alias}.id > :after and {alias}.id <= :upto and ({condition}) order by {alias}.id limit :limit"
    )


def page(conn: Connection, kind: str, given: Scope, *, after: int, limit: int) -> list[tuple[int, Item]]:
    """The next records of a kind, each with its row's number."""
    numbers = {"after": after, "upto": given.upto[kind], "limit": limit}
    found = rows(conn, _sql(kind, given), {**_values(given), **numbers})
    names = refs(conn)
    return [(row["id"], _MAKE[kind](_in_time(row), names)) for row in found]


def _in_time(row: Row) -> Row:
    """A clock may have been wrong, but a time that no one reads would keep its record from coming back."""
    times = {name: at for name, at in row.items() if name.endswith("_at") and at is not None}
    return {**row, **{name: min(max(at, 0), LATEST) for name, at in times.items()}}


# The strongest first: a name that someone gave it, then what it is everywhere, then where it lies on this machine.
_STRENGTH = ("name:", "remote:", "git:", "dir:")


def refs(conn: Connection) -> dict[int, list[str]]:
    """Of every project its identities, the strongest first."""
    found: dict[int, list[str]] = {}
    for row in rows(conn, "select project_id, identity from project_aliases order by identity"):
        found.setdefault(row["project_id"], []).append(row["identity"])
    return {project_id: sorted(names, key=_strength) for project_id, names in found.items()}


def _names_of(conn: Connection, project_id: int) -> list[str]:
    found = rows(conn, "select identity from project_aliases where project_id = ?", (project_id,))
    return [row["identity"] for row in found]


def _strength(identity: str) -> tuple[int, str]:
    rank = next((number for number, prefix in enumerate(_STRENGTH) if identity.startswith(prefix)), len(_STRENGTH))
    return rank, identity


def _project(row: Row, names: dict[int, list[str]]) -> Project:
    own = names.get(row["id"]) or [f"name:{row['name']}"]
    return Project(
        project=own[0], name=row["name"], root=row["root"], identities=tuple(own), created_at=row["created_at"]
    )


def _session(row: Row, names: dict[int, list[str]]) -> Session:
    """One that is still going on is, in the copy, one that was broken off."""
    if not row["begins"]:
        row = {**row, "title": None, "subtitle": None, "first_prompt": None}
    if not row["ends"]:
        row = {**row, "subtitle": None}
    return Session(
        host=row["host"],
        session=row["content_session_id"],
        project=_ref(row, names),
        status=row["status"] if row["status"] in OVER else str(Status.INTERRUPTED),
        **_same(row, "title", "subtitle", "first_prompt", "cwd", "started_at", "last_event_at", "ended_at"),
    )


def _prompt(row: Row, names: dict[int, list[str]]) -> Prompt:
    return Prompt(**_where(row, names), **_same(row, "prompt_id", "prompt_number", "text", "created_at"))


_CONTENT = (
    "type", "title", "subtitle", "narrative", "commit_id", "memory_session_id", "provider", "model", "trust", "verdict",
)  # fmt: skip
_LISTS = ("facts", "concepts", "files_read", "files_modified")
_PARTS = ("request", "investigated", "learned", "completed", "next_steps", "notes")
_ABOUT = ("memory_session_id", "provider", "trust", "verdict")
_ENDING = ("closing", "closing_trust", "outcome")
_TIMES = ("created_at", "updated_at")


def _observation(row: Row, names: dict[int, list[str]]) -> Observation:
    return Observation(
        **_where(row, names),
        **_same(row, "prompt_id", "prompt_number", "key", *_CONTENT, *_TIMES),
        **_loaded(row, *_LISTS),
        pinned=bool(row["pinned"]),
    )


def _summary(row: Row, names: dict[int, list[str]]) -> Summary:
    return Summary(
        **_where(row, names),
        **_same(row, "prompt_id", "prompt_number", *_ABOUT, *_PARTS, *_ENDING, *_TIMES),
        **_loaded(row, "files_read", "files_edited"),
    )


_MAKE: dict[str, Callable[[Row, dict[int, list[str]]], Item]] = {
    "project": _project,
    "session": _session,
    "prompt": _prompt,
    "observation": _observation,
    "summary": _summary,
}


def _same(row: Row, *wanted: str) -> dict[str, Any]:
    return {name: row[name] for name in wanted}


def _where(row: Row, names: dict[int, list[str]]) -> dict[str, Any]:
    return {"host": row["host"], "session": row["content_session_id"], "project": _ref(row, names)}


def _ref(row: Row, names: dict[int, list[str]]) -> str:
    return (names.get(row["project_id"]) or [f"name:{row['project_id']}"])[0]


def _loaded(row: Row, *wanted: str) -> dict[str, Any]:
    return {name: tuple(msgspec.json.decode(row[name], type=list[str])) for name in wanted}


def _dump(items: Any) -> str:
    return msgspec.json.encode(items).decode()


# --- in --------------------------------------------------------------------------------------------------------------

ADDED, CHANGED, KNOWN, FORGOTTEN = "added", "changed", "known", "forgotten"


def take(conn: Connection, record: Item, *, now: int) -> str:
    """What became of it: added, changed, known or forgotten."""
    if isinstance(record, Project):
        return _adopt(conn, record, now=now)[1]
    if not isinstance(record, Session) and stones.bars_unknown(conn, at=record.created_at):
        return FORGOTTEN
    project_id = _project_id(conn, record.project, now=now)
    if isinstance(record, Session):
        span = {"since": record.started_at, "until": record.last_event_at}
        if stones.bars_session(conn, record.host, record.session, **span):
            return FORGOTTEN
        return _put_session(conn, _untitled(conn, record), project_id)
    if record.host is None or record.session is None:
        assert isinstance(record, Observation)
        return _put_observation(conn, record, None, None, project_id)
    at = record.created_at
    if stones.bars_session(conn, record.host, record.session, since=at, until=at):
        return FORGOTTEN
    session_id = _session_of(conn, record.host, record.session, project_id, at=at)
    assert record.prompt_number is not None
    turn_id = _turn(conn, session_id, record.prompt_number, record.prompt_id, at=record.created_at, now=now)
    if turn_id is None:
        return KNOWN
    _stretch(conn, session_id, record.created_at)
    if isinstance(record, Prompt):
        if stones.bars_prompt(conn, turn_id, record.text, at=at):
            return FORGOTTEN
        return _put_prompt(conn, record, session_id, turn_id)
    if isinstance(record, Summary):
        if stones.bars_summary(conn, turn_id, at=at):
            return FORGOTTEN
        return _put_summary(conn, record, session_id, turn_id, project_id)
    return _put_observation(conn, record, session_id, turn_id, project_id)


def _untitled(conn: Connection, record: Session) -> Session:
    """Without what was forgotten here of what it was called."""
    barred = partial(stones.bars_title, conn, record.host, record.session, at=record.started_at)
    gone = dict.fromkeys(name for name in stones.TITLES if barred(getattr(record, name)))
    return msgspec.structs.replace(record, **gone)


def _adopt(conn: Connection, record: Project, *, now: int) -> tuple[int, str]:
    """The project that is known by any of the identities; else a new one. All of them are remembered, except, of a new
    one, what is another's."""
    record = msgspec.structs.replace(record, name=shorten(plain(record.name), 100) or "unknown")  # it will be shown
    identities = _identities(record)
    known = _same_project(conn, record, identities)
    if known is None:
        if int(value(conn, "select count(*) from projects")) >= MOST_PROJECTS:
            raise ValueError(f"there are {MOST_PROJECTS:,} projects already")
        free = tuple(identity for identity in identities if not _is_taken(conn, "project_aliases", identity))
        found = projects_.Project(record.name, record.root, free)
        its = is_folder(record.root) and not _is_taken(conn, "project_dirs", record.root)
        return projects.know(conn, found, record.root if its else "", now=record.created_at or now), ADDED
    for identity in identities:
        conn.execute("insert or ignore into project_aliases values (?, ?)", (identity, known))
    conn.execute("update projects set root = ? where id = ? and root = ''", (record.root, known))
    return known, KNOWN


def _identities(record: Project) -> tuple[str, ...]:
    return tuple(dict.fromkeys((record.project, *record.identities)))


def is_folder(path: str) -> bool:
    """What comes from elsewhere may be no path at all."""
    try:
        return path.startswith("/") and Path(path).is_dir()
    except (OSError, ValueError):
        return False


def _is_taken(conn: Connection, table: str, name: str) -> bool:
    column = {"project_aliases": "identity", "project_dirs": "dir"}[table]
    return bool(value(conn, f"select 1 from {table} where {column} = ?", (name,)))


def _same_project(conn: Connection, record: Project, identities: tuple[str, ...]) -> int | None:
    """A folder of the same name on another machine may be another repository: a remote that differs says so."""
    remotes = {identity for identity in identities if identity.startswith("remote:")}
    for identity in sorted(identities, key=_strength):
        known = value(conn, "select project_id from project_aliases where identity = ?", (identity,))
        if known is None:
            continue
        own = {name for name in _names_of(conn, known) if name.startswith("remote:")}
        if not identity.startswith(("git:", "dir:")) or not remotes or not own or remotes & own:
            return int(known)
    return _of_the_name(conn, record.name, identities)


def _by_name_only(identities: Iterable[str]) -> bool:
    """As an older claude-mem knew its projects."""
    return all(identity.startswith(projects_.OLDER) for identity in identities)


def _of_the_name(conn: Connection, name: str, identities: Sequence[str]) -> int | None:
    """What is known by name only is the first project of that name, whichever of the two comes first."""
    if _by_name_only(identities):
        return next(iter(projects.by_name(conn, identities[0].removeprefix(projects_.OLDER))), None)
    older = value(conn, "select project_id from project_aliases where identity = ?", (f"{projects_.OLDER}{name}",))
    return int(older) if older is not None and _by_name_only(_names_of(conn, older)) else None


def _project_id(conn: Connection, ref: str, *, now: int) -> int:
    """By the identity that its own line had. Was that line lost, the identity is all that is known of it."""
    if known := value(conn, "select project_id from project_aliases where identity = ?", (ref,)):
        return int(known)
    return _adopt(conn, only_named(ref), now=now)[0]


def only_named(ref: str) -> Project:
    name = ref.partition(":")[2].removesuffix("/.git").rstrip("/").rpartition("/")[2] or ref
    return Project(project=ref, name=name, created_at=0)


def folders(conn: Connection, given: Sequence[Project]) -> dict[str, str]:
    """Where those of them lie that are known here, by the identity that names them in their file."""
    known = {record.project: _same_project(conn, record, _identities(record)) for record in given}
    found = {ref: projects.get(conn, project_id) for ref, project_id in known.items() if project_id is not None}
    return {ref: row["root"] for ref, row in found.items() if row}


def _captured(turn: str) -> str:
    """Was it seen by a hook or read from a transcript here, or was it meant to be private?"""
    return f"({turn}.private or {turn}.events_gone or exists (select 1 from events e where e.turn_id = {turn}.id))"


def _put_session(conn: Connection, record: Session, project_id: int) -> str:
    """One that was captured here is left as it is: what it lacks may have been hidden."""
    known = sessions.find(conn, record.host, record.session)
    if known is None:
        opened = _session_of(conn, record.host, record.session, project_id, at=record.started_at)
    elif _was_captured(conn, known.id):
        return KNOWN
    else:
        opened = known.id
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
            **_fields(record, "title", "subtitle", "first_prompt", "cwd", "started_at", "last_event_at", "ended_at"),
            "status": record.status if record.status in OVER else str(Status.INTERRUPTED),
            "id": opened,
        },
    )
    return ADDED if known is None else KNOWN


def _was_captured(conn: Connection, session_id: int) -> bool:
    seen = (
        "select 1 from events where session_id = ?1"
        " union all select 1 from turns where session_id = ?1 and (private or events_gone)"
    )
    return bool(value(conn, seen, (session_id,)))


def _session_of(conn: Connection, host: str, name: str, project_id: int, *, at: int) -> int:
    return sessions.open_(conn, host, name, project_id=project_id, at=at).id


def _turn(conn: Connection, session_id: int, number: int, prompt_id: str | None, *, at: int, now: int) -> int | None:
    """The turn a record belongs to, made if it is not there. None: it was captured here, and nothing is added to it."""
    found = one(
        conn,
        f"select id, {_captured('t')} as captured from turns t where session_id = ? and prompt_id = ?",
        (session_id, prompt_id),
    )
    if found is None and _captured_then(conn, session_id, at):
        return None
    if found is None and not (prompt_id or "").startswith("import:"):
        found = one(
            conn,
            f"""
            select id, 0 as captured from turns t
             where session_id = ?1 and number = ?2 and not {_captured("t")}
               and (?3 is null or prompt_id is null or prompt_id = ?3)
            """,
            (session_id, number, prompt_id),
        )
    if found is None:
        return _new_turn(conn, session_id, number, prompt_id, at=at, now=now)
    if found["captured"]:
        return None
    conn.execute(
        """
        update turns set opened_at = min(opened_at, ?1), last_at = max(last_at, ?1), prompt_id = coalesce(prompt_id, ?2)
         where id = ?3
        """,
        (at, prompt_id, found["id"]),
    )
    return int(found["id"])


def _captured_then(conn: Connection, session_id: int, at: int) -> bool:
    """Numbers may differ between those who counted; the time does not: did we see the turn that went on then?"""
    return bool(
        value(
            conn,
            f"""
            select 1 from turns t
             where t.session_id = :session and {_captured("t")} and t.opened_at <= :at + {EARLY_MS}
               and :at <= coalesce((select min(n.opened_at) from turns n
                                     where n.session_id = :session and n.opened_at > t.opened_at),
                                   t.last_at + {LATE_MS})
            """,
            {"session": session_id, "at": at},
        )
    )


def _new_turn(conn: Connection, session_id: int, number: int, prompt_id: str | None, *, at: int, now: int) -> int:
    """Closed and digested. If another turn has its number it gets the next free one, and a name to find it by again."""
    taken = value(conn, "select 1 from turns where session_id = ? and number = ?", (session_id, number))
    if taken:
        prompt_id = prompt_id or f"import:{number}"
        again = value(conn, "select id from turns where session_id = ? and prompt_id = ?", (session_id, prompt_id))
        if again is not None:
            return int(again)
        number = 1 + int(value(conn, "select max(number) from turns where session_id = ?", (session_id,)))
    found = value(
        conn,
        """
        insert into turns (session_id, number, prompt_id, opened_at, last_at, closed_at, closed_by, digested_at)
        values (?1, ?2, ?3, ?4, ?4, ?4, 'import', ?5) returning id
        """,
        (session_id, number, prompt_id, at, now),
    )
    conn.execute("update sdk_sessions set prompt_counter = max(prompt_counter, ?2) where id = ?1", (session_id, number))
    return int(found)


def _stretch(conn: Connection, session_id: int, at: int) -> None:
    """A session lasts from its first record to its last."""
    conn.execute(
        """
        update sdk_sessions set started_at = min(started_at, ?2), last_event_at = max(last_event_at, ?2)
         where id = ?1 and not ?2 between started_at and last_event_at
        """,
        (session_id, at),
    )


def _put_prompt(conn: Connection, record: Prompt, session_id: int, turn_id: int) -> str:
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


def _fields(record: Item, *wanted: str) -> Row:
    return {name: getattr(record, name) for name in wanted}


_COLUMNS = (
    *_CONTENT, *_LISTS, *_TIMES, "session_id", "turn_id", "project_id", "prompt_number", "key", "sources", "pinned",
    "tokens", "hash",
)  # fmt: skip
_UPDATED = (*_CONTENT, *_LISTS, "updated_at", "sources", "tokens", "hash")


def _put_observation(
    conn: Connection, record: Observation, session_id: int | None, turn_id: int | None, project_id: int
) -> str:
    where = "turn_id is null" if turn_id is None else "turn_id = :turn"
    about = "select id, forgotten, trust, verdict, updated_at from observations where"
    known = one(conn, f"{about} {where} and key = :key", {"turn": turn_id, "key": record.key})
    if known is not None and known["forgotten"]:
        return FORGOTTEN
    if stones.bars_observation(conn, turn_id, record.key, at=record.created_at):
        return FORGOTTEN
    if known is None:
        if turn_id is not None and not _make_room(conn, turn_id, record):
            return KNOWN
        outcome, sql = ADDED, _INSERT
    elif _is_better(record, known):
        outcome, sql = CHANGED, _UPDATE
    else:
        return KNOWN
    conn.execute(
        sql, {**_content(record), **_places(conn, session_id, turn_id, project_id), "id": known and known["id"]}
    )
    if record.type == Type.RULE:
        rules.link(conn, project_id)
    return outcome


def _is_better(record: Observation | Summary, known: Row) -> bool:
    """The later word counts, but a person's is not changed by a program's, and no one's by a stranger's."""
    told = _standing(record)
    if not observations.is_believed(told):
        return False
    if not observations.is_believed(known) and not _is_settled(known):
        return True
    return bool(known["updated_at"] < record.updated_at) and (_is_settled(told) or not _is_settled(known))


def _standing(record: Observation | Summary) -> Row:
    return {"trust": record.trust, "verdict": record.verdict}


def _is_settled(row: Row) -> bool:
    """Has a person spoken: corrected it, or said that it is right or wrong?"""
    return bool(row["trust"] == "user" or row["verdict"])


_INSERT = f"insert into observations ({', '.join(_COLUMNS)}) values ({', '.join(f':{name}' for name in _COLUMNS)})"
_UPDATE = (
    f"update observations set {', '.join(f'{name} = :{name}' for name in _UPDATED)}, pinned = max(pinned, :pinned)"
    " where id = :id"
)


def _content(record: Observation) -> Row:
    lists = {name: _dump(getattr(record, name)) for name in _LISTS}
    content = {**_fields(record, "key", *_CONTENT, *_TIMES), **lists, "pinned": int(record.pinned)}
    return {
        **content,
        "sources": _dump([[] for _ in record.facts]),
        "tokens": observations.cost(content),
        "hash": observations.fingerprint(content),
    }


def _places(conn: Connection, session_id: int | None, turn_id: int | None, project_id: int) -> Row:
    number = value(conn, "select number from turns where id = ?", (turn_id,))
    return {"session_id": session_id, "turn_id": turn_id, "project_id": project_id, "prompt_number": number}


def _make_room(conn: Connection, turn_id: int, record: Observation) -> bool:
    """Of a turn there is the draft or what a model made of it, never both. The latter goes before the former, unless
    it is a stranger's."""
    if record.trust == "user":
        return True
    if record.provider == "local":
        return not observations.is_refined(conn, turn_id)
    drafts = f"from observations where turn_id = ? and provider = 'local' and {observations.NOBODYS}"
    if not observations.is_believed(_standing(record)):
        return not value(conn, f"select 1 {drafts}", (turn_id,))
    conn.execute(f"delete {drafts}", (turn_id,))
    return True


def _put_summary(conn: Connection, record: Summary, session_id: int, turn_id: int, project_id: int) -> str:
    known = one(conn, "select id, trust, verdict, updated_at from session_summaries where turn_id = ?", (turn_id,))
    if known is not None and not _is_better(record, known):
        return KNOWN
    given = {
        **_fields(record, *_ABOUT, *_PARTS, *_ENDING, *_TIMES),
        **{name: _dump(getattr(record, name)) for name in ("files_read", "files_edited")},
        **_places(conn, session_id, turn_id, project_id),
    }
    columns, values = ", ".join(given), ", ".join(f":{name}" for name in given)
    changed = ", ".join(f"{name} = {_changed_to(name)}" for name in given if name not in ("session_id", "turn_id"))
    conn.execute(
        f"insert into session_summaries ({columns}) values ({values}) on conflict (turn_id) do update set {changed}",
        given,
    )
    return ADDED if known is None else CHANGED


def _changed_to(name: str) -> str:
    """A file of an earlier version has no closing message; the one that is known stays."""
    return f"iif(excluded.closing = '', {name}, excluded.{name})" if name in _ENDING else f"excluded.{name}"
