"""What someone wants forgotten, and which rows that is: in this database, or in a copy made by an older version.

Conditions add up: what is found fits all of them. A copy may lack a column or a table; what it lacks is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import msgspec

from claude_mem.errors import Misuse, NotFound
from claude_mem.needles import LEAST, Needle
from claude_mem.store import foreign, projects, sessions
from claude_mem.store.database import Connection, Row, one, rows, value
from claude_mem.store.observations import NOBODYS, TRUSTED
from claude_mem.store.stones import ITEMS, NUMBER, TIME, joined

EXTERNAL, IMPORT = "external", "import"
PART = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Sessions and projects by what they are known by everywhere, since numbers differ between copies."""

    ids: tuple[int, ...] = ()
    sessions: tuple[tuple[str, str], ...] = ()
    projects: tuple[str, ...] = ()
    after: int | None = None
    before: int | None = None
    source: str = ""
    matching: str = ""

    @property
    def by_time(self) -> bool:
        """Does it take all that happened in some sessions within some time, whatever it says?"""
        return not self.ids and not self.matching and not self.source


def named(
    conn: Connection, *, session: str = "", project: str = "", source: str = "", matching: str = "", **rest: Any
) -> Scope:
    """The scope that a person means."""
    scope = Scope(
        sessions=(_session(conn, session),) if session else (),
        projects=_project(conn, project) if project else (),
        source=source.strip(),
        matching=matching.strip(),
        **rest,
    )
    if scope == Scope():
        raise Misuse("nothing says what to forget", hint="name observations, --session, --project, --matching …")
    if matching and len(scope.matching) < LEAST:
        raise Misuse(f"{matching!r} is too short to look for", hint=f"at least {LEAST} characters")
    if scope.after is not None and scope.before is not None and scope.after >= scope.before:
        raise Misuse("nothing is after that and before that", hint="--after must be the earlier one")
    return scope


def _session(conn: Connection, name: str) -> tuple[str, str]:
    found = sessions.get(conn, sessions.named(conn, name))
    return found.host, found.content_session_id


def _project(conn: Connection, name: str) -> tuple[str, ...]:
    known = projects.by_name(conn, name)
    if not known:
        raise NotFound(f"there is no project {name!r}", hint="`claude-mem list projects` shows what there is")
    wanted = msgspec.json.encode(known).decode()
    found = rows(
        conn, "select identity from project_aliases where project_id in (select value from json_each(?))", (wanted,)
    )
    return tuple(row["identity"] for row in found)


# --- what is found ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Rows by their numbers. `derived`: what was made of what goes, and is made again where something is left to make
    it of (`again`: those turns). `indexed`: turns that can be found by it. `whole`: sessions of which nothing is left.
    `away`: what was forgotten before and is still kept, by kind, number and by which forgetting."""

    events: list[int] = field(default_factory=list)
    prompts: list[int] = field(default_factory=list)
    summaries: list[int] = field(default_factory=list)
    observations: list[int] = field(default_factory=list)
    derived_observations: list[int] = field(default_factory=list)
    derived_summaries: list[int] = field(default_factory=list)
    tellings: list[int] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    indexed: list[int] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    sessions: list[int] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    away: list[tuple[str, int, int]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(getattr(self, item.name) for item in fields(self))

    def size(self) -> int:
        return sum(len(getattr(self, item.name)) for item in fields(self))

    def parts(self) -> Iterator[Found]:
        """The same in small portions, sessions last: each fits into a transaction that holds up no one."""
        for name in ("derived_observations", "derived_summaries", "observations", "summaries", "prompts", "events",
                     "tellings", "turns", "indexed", "away", "sessions", "whole"):  # fmt: skip
            numbers = getattr(self, name)
            for begin in range(0, len(numbers), PART):
                yield replace(Found(), **{name: numbers[begin : begin + PART]})


TEXTS = {
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
_FILES = {"observation": ("files_read", "files_modified"), "summary": ("files_read", "files_edited")}
_SESSION_TEXTS = ("title", "subtitle", "first_prompt")


def find(conn: Connection, scope: Scope, *, erase: bool) -> Found:
    """`erase`: what was forgotten before and is still kept somewhere counts too."""
    if scope.matching:
        needle = Needle(scope.matching)
        conn.create_scalar_function("holds", lambda *text: needle.is_in(text[0]), 1, deterministic=True)
    tables = foreign.columns(conn)
    kinds = ("observation",) if scope.ids else tuple(ITEMS)
    items = {kind: _items(conn, kind, scope, tables, erase=erase) for kind in kinds}
    whole = _whole(conn, scope) if scope.by_time else []
    items = {kind: _with_all_of(conn, kind, numbers, whole) for kind, numbers in items.items()}
    return complete(
        conn,
        Found(
            events=items.get("event", []),
            prompts=items.get("prompt", []),
            summaries=items.get("summary", []),
            observations=items["observation"],
            whole=whole,
            tellings=_tellings(conn, scope, whole, tables),
            sessions=_stripped(conn, scope),
            away=_away(conn, scope) if erase and "put_away" in tables else [],
            indexed=_indexed(conn, scope, tables),
        ),
        tables,
    )


def _indexed(conn: Connection, scope: Scope, tables: Any) -> list[int]:
    """Turns that can be found by the text, though the events that said it may be past keeping."""
    if not scope.matching or "passages" not in tables:
        return []
    where = [f"({' or '.join(f'holds(p.{name})' for name in ('title', 'body', 'hints', 'around'))})"]
    where += [_OF_SESSIONS] if scope.sessions else []
    where += [_OF_PROJECTS.format("d.project_id")] if scope.projects else []
    where += ["d.created_at >= :after"] if scope.after is not None else []
    where += ["d.created_at < :before"] if scope.before is not None else []
    where += ["s.host = :source"] if scope.source else []
    where += ["false"] if scope.ids else []
    sql = f"""
        select distinct d.turn_id from passages p join documents d on d.id = p.document_id
          left join sdk_sessions s on s.id = d.session_id where d.turn_id is not null and {" and ".join(where)}
    """
    return [row["turn_id"] for row in rows(conn, sql, values(scope))]


def _items(conn: Connection, kind: str, scope: Scope, tables: Any, *, erase: bool) -> list[int]:
    where = list(_conditions(kind, scope, tables, erase=erase))
    found = rows(conn, f"select i.{NUMBER[kind]} as n {joined(kind)} where {' and '.join(where)}", values(scope))
    return [row["n"] for row in found]


def _with_all_of(conn: Connection, kind: str, numbers: list[int], whole: Sequence[int]) -> list[int]:
    """What belongs to a session of which nothing stays goes with it, whatever time it bears."""
    if not whole:
        return numbers
    and_ = " and not forgotten" if kind == "observation" else ""
    sql = f"select {NUMBER[kind]} as n from {ITEMS[kind]} where session_id in (select value from json_each(?)){and_}"
    return sorted({*numbers, *(row["n"] for row in rows(conn, sql, (dump(whole),)))})


def values(scope: Scope) -> Row:
    return {
        "ids": dump(scope.ids),
        "sessions": dump(["\x1f".join(name) for name in scope.sessions]),
        "projects": dump(scope.projects),
        "after": scope.after,
        "before": scope.before,
        "source": scope.source,
    }


_OF_SESSIONS = "s.host || char(31) || s.content_session_id in (select value from json_each(:sessions))"
_OF_PROJECTS = """{} in (select project_id from project_aliases
                          where identity in (select value from json_each(:projects)))"""


def _conditions(kind: str, scope: Scope, tables: Any, *, erase: bool) -> Iterator[str]:
    if kind == "observation":
        kept = "i.id in (select observation_id from attic)" if erase and "attic" in tables else "false"
        yield "true" if erase and (scope.ids or scope.matching) else f"(not i.forgotten or {kept})"
    if scope.ids:
        yield "i.id in (select value from json_each(:ids))"
    if scope.sessions:
        yield _OF_SESSIONS
    if scope.projects:
        yield _OF_PROJECTS.format("s.project_id" if kind in ("event", "prompt") else "i.project_id")
    if scope.after is not None:
        yield f"i.{TIME[kind]} >= :after"
    if scope.before is not None:
        yield f"i.{TIME[kind]} < :before"
    if scope.source:
        yield f"({' or '.join(_sources(kind, scope.source, tables[ITEMS[kind]]))})"
    if scope.matching:
        yield f"({' or '.join(_said(kind, tables))})"


def _sources(kind: str, source: str, columns: Iterable[str]) -> Iterator[str]:
    """A host, a door (hook, transcript, api), an origin or a trust, an import; a file or an address."""
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
            f"exists (select 1 from json_each(i.{name}) f where f.value = :source)" for name in _FILES.get(kind, ())
        )
        if kind == "event":
            yield "instr(json_extract(i.body, '$.input'), :source)"


def _said(kind: str, tables: Any) -> Iterator[str]:
    yield from (f"holds(i.{name})" for name in TEXTS[kind] if name in tables[ITEMS[kind]])
    if kind == "observation" and "attic" in tables:
        yield "exists (select 1 from attic a where a.observation_id = i.id and holds(a.content))"
        yield "exists (select 1 from history h where h.observation_id = i.id and holds(h.before))"


def _whole(conn: Connection, scope: Scope) -> list[int]:
    """Sessions of which nothing is left: they began and ended within the time."""
    where = ["true"]
    where += [_OF_SESSIONS] if scope.sessions else []
    where += [_OF_PROJECTS.format("s.project_id")] if scope.projects else []
    where += ["s.started_at >= :after"] if scope.after is not None else []
    where += ["s.last_event_at < :before"] if scope.before is not None else []
    found = rows(conn, f"select s.id from sdk_sessions s where {' and '.join(where)}", values(scope))
    return [row["id"] for row in found]


def _tellings(conn: Connection, scope: Scope, whole: Sequence[int], tables: Any) -> list[int]:
    if "tellings" not in tables:
        return []
    said = ["holds(g.about) or holds(g.names)", *_in_session(scope, "g.at")] if scope.matching else ["false"]
    found = rows(
        conn,
        f"""
        select g.id from tellings g
          left join sdk_sessions s on s.host = g.host and s.content_session_id = g.content_session_id
         where ({") and (".join(said)}) or s.id in (select value from json_each(:whole))
        """,
        {**values(scope), "whole": dump(whole)},
    )
    return [row["id"] for row in found]


def _in_session(scope: Scope, at: str) -> Iterator[str]:
    """Everything that is asked for but a text: of what belongs to a session (`s`) and happened at that time."""
    if scope.sessions:
        yield _OF_SESSIONS
    if scope.projects:
        yield _OF_PROJECTS.format("s.project_id")
    if scope.after is not None:
        yield f"{at} >= :after"
    if scope.before is not None:
        yield f"{at} < :before"
    if scope.source:
        yield "s.host = :source"
    if scope.ids:
        yield "false"


def _stripped(conn: Connection, scope: Scope) -> list[int]:
    """Sessions whose own row says it."""
    if not scope.matching:
        return []
    said = " or ".join(f"holds(s.{name})" for name in _SESSION_TEXTS)
    where = " and ".join((f"({said})", *_in_session(scope, "s.started_at")))
    return [row["id"] for row in rows(conn, f"select s.id from sdk_sessions s where {where}", values(scope))]


def _away(conn: Connection, scope: Scope) -> list[tuple[str, int, int]]:
    where = ["true"]
    where += [_OF_SESSIONS] if scope.sessions else []
    where += [_OF_PROJECTS.format("a.project_id")] if scope.projects else []
    where += ["a.at >= :after"] if scope.after is not None else []
    where += ["a.at < :before"] if scope.before is not None else []
    where += ["holds(a.content)"] if scope.matching else []
    where += ["s.host = :source"] if scope.source else []
    where += ["false"] if scope.ids else []
    sql = f"""
        select a.kind, a.row_id, a.forgetting_id from put_away a left join sdk_sessions s on s.id = a.session_id
         where {" and ".join(where)}
    """
    return [(row["kind"], row["row_id"], row["forgetting_id"]) for row in rows(conn, sql, values(scope))]


# --- what was made of it ---------------------------------------------------------------------------------------------


def complete(conn: Connection, found: Found, tables: Any) -> Found:
    """With what was made of the events and prompts that go, and which turns are digested again."""
    given = {"events": dump(found.events), "prompts": dump(found.prompts), "whole": dump(found.whole)}
    faded = "t.events_gone" if "events_gone" in tables["turns"] else "0"
    touched = rows(
        conn,
        f"""
        select t.id, {faded} as faded,
               (select count(*) from events e where e.turn_id = t.id
                   and e.seq not in (select value from json_each(:events))) as rest
          from turns t
         where t.session_id not in (select value from json_each(:whole))
           and t.id in (select turn_id from events where seq in (select value from json_each(:events))
                        union select turn_id from user_prompts where id in (select value from json_each(:prompts)))
        """,
        given,
    )
    turns = [row["id"] for row in touched]
    again = [row["id"] for row in touched if row["rest"] and not row["faded"]]
    return replace(
        found,
        turns=turns,
        again=again,
        derived_observations=_derived(conn, found, turns, tables, faded=[row["id"] for row in touched if row["faded"]]),
        derived_summaries=_without(conn, "session_summaries", turns, found.summaries, "true"),
    )


def _derived(conn: Connection, found: Found, turns: Sequence[int], tables: Any, *, faded: Sequence[int]) -> list[int]:
    """All that a program made of these turns; of one whose events are past keeping, what names an event that goes."""
    nobodys = NOBODYS if "verdict" in tables["observations"] else "not forgotten and trust != 'user'"
    gone, kept = dump(found.events), dump(faded)  # numbers only
    cites = f"exists (select 1 from json_tree(sources) c where c.atom in (select value from json_each('{gone}')))"
    where = f"{nobodys} and (turn_id not in (select value from json_each('{kept}')) or {cites})"
    return _without(conn, "observations", turns, found.observations, where)


def _without(conn: Connection, table: str, turns: Sequence[int], but: Sequence[int], where: str) -> list[int]:
    sql = (
        f"select id from {table} where turn_id in (select value from json_each(?))"
        f" and id not in (select value from json_each(?)) and {where}"
    )
    return [row["id"] for row in rows(conn, sql, (dump(turns), dump(but)))]


# --- telling what would go -------------------------------------------------------------------------------------------


def preview(conn: Connection, found: Found, *, first: int = 10) -> Row:
    counts = {
        "observations": len(found.observations) + len(found.derived_observations),
        "summaries": len(found.summaries) + len(found.derived_summaries),
        "prompts": len(found.prompts),
        "turns": _turns(conn, found),
        "events": len(found.events),
        "sessions": len(found.whole),
        "tellings": len(found.tellings),
        "kept from before": len(found.away),
    }
    return {"counts": counts, "made_again": len(found.again), "first": list(_first(conn, found, first))}


def _turns(conn: Connection, found: Found) -> int:
    of_whole = value(
        conn, "select count(*) from turns where session_id in (select value from json_each(?))", (dump(found.whole),)
    )
    return int(of_whole) + len(found.turns) - len(found.again)


_TITLES = {
    "observation": ("observations", "title", "created_at"),
    "summary": ("session_summaries", "coalesce(completed, request, learned)", "created_at"),
    "prompt": ("user_prompts", "text", "created_at"),
    "session": ("sdk_sessions", "coalesce(title, first_prompt)", "started_at"),
}


def _first(conn: Connection, found: Found, most: int) -> Iterator[Row]:
    named_ = {"session": found.whole, "observation": [*found.observations, *found.derived_observations],
              "summary": [*found.summaries, *found.derived_summaries], "prompt": found.prompts}  # fmt: skip
    for kind, numbers in named_.items():
        table, title, at = _TITLES[kind]
        for number in numbers[:most]:
            row = one(conn, f"select {title} as title, {at} as at from {table} where id = ?", (number,))
            if row is not None:
                yield {"kind": kind, "id": number, "title": (row["title"] or "")[:120], "at": row["at"]}


def dump(items: Any) -> str:
    return msgspec.json.encode(items).decode()
