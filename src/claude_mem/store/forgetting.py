"""Forgetting by scope. Softly: rows leave their tables at once, so that nothing tells or finds them, and can be brought
back for thirty days. For good: rows, index, and every copy in the database.

A forgetting first leaves its stones (`stones.py`), then takes away what they name, a portion at a time. Whoever dies in
between finds at the next start what is still to be done, by the stones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from claude_mem.errors import CannotDo, NotFound
from claude_mem.failpoints import failpoint
from claude_mem.needles import Needle
from claude_mem.store import corrections, foreign, jobs, notices, rules, stones
from claude_mem.store.corrections import KEEP_MS
from claude_mem.store.database import Connection, Row, one, rows, value
from claude_mem.store.observations import NOBODYS
from claude_mem.store.scopes import Found, Scope, complete, dump, find
from claude_mem.store.stones import ALL, ITEMS, KNOWN_BY, NUMBER, SESSION, TIME, TITLES, Stone, joined
from claude_mem.text import first_sentence, shorten

FORGOTTEN = "forgotten"  # the rule by which an event that was forgotten counts as left out
_DIGESTING = ("compress", jobs.PAST, jobs.REFINE, jobs.REWRITE)


# --- stones ----------------------------------------------------------------------------------------------------------


def begin(conn: Connection, *, erased: bool, now: int) -> int:
    """Its number, by which it can be undone."""
    return int(value(conn, "insert into forgettings (at, erased) values (?, ?) returning id", (now, int(erased))))


def stones_for(conn: Connection, scope: Scope, found: Found, *, n: int, erased: bool, now: int) -> list[Stone]:
    """Stones for all that is found. Of what was found by its time alone, one for each session is enough."""
    made: dict[str, Stone] = {}
    if scope.by_time:
        until = min(now, scope.before - 1) if scope.before is not None else now
        touched = dump([*_sessions_of(conn, found), *_sessions_away(conn, found)])
        sql = f"select distinct {SESSION} as mark from sdk_sessions s where s.id in (select value from json_each(?))"
        for row in rows(conn, sql, (touched,)):
            made[row["mark"]] = Stone(n, row["mark"], scope.after or 0, until, erased, now)
    for mark in _titles(conn, scope, found):
        made[mark] = Stone(n, mark, 0, now, erased, now)
    for name, numbers in _named_items(found):
        if scope.by_time and name != "observation":
            continue
        loose = " and i.session_id is null" if scope.by_time else ""
        for row in _marks(conn, name, numbers, loose):
            made[row["mark"]] = Stone(n, row["mark"], 0, max(now, row["at"]), erased, now)
    if not scope.by_time:
        for row in _marks_away(conn, scope, found):
            made[row["mark"]] = Stone(n, row["mark"], 0, max(now, row["at"]), erased, now)
    return list(made.values())


def _titles(conn: Connection, scope: Scope, found: Found) -> Iterator[str]:
    """What sessions were called after what goes: where a text is looked for, what says it."""
    needle = Needle(scope.matching) if scope.matching else None
    for name in TITLES if needle else ("title", "first_prompt"):
        mark = f"mark('titled', s.host, s.content_session_id, s.{name})"
        sql = f"select s.{name} as text, {mark} as mark from sdk_sessions s where s.{name} != ''"
        touched = dump([*found.sessions, *_beginnings(conn, found)])
        for row in rows(conn, f"{sql} and s.id in (select value from json_each(?))", (touched,)):
            if needle is None or needle.is_in(row["text"]):
                yield row["mark"]


_TOUCHED = """
    s.id in (select value from json_each(:whole))
    or s.id in (select session_id from events where seq in (select value from json_each(:events)))
    or s.id in (select session_id from user_prompts where id in (select value from json_each(:prompts)))
    or s.id in (select session_id from observations where id in (select value from json_each(:observations)))
    or s.id in (select session_id from session_summaries where id in (select value from json_each(:summaries)))
"""


def _of(found: Found) -> Row:
    return {name: dump(getattr(found, name)) for name in ("whole", "events", "prompts", "observations", "summaries")}


def _named_items(found: Found) -> Iterator[tuple[str, Sequence[int]]]:
    yield "event", found.events
    yield "prompt", found.prompts
    yield "observation", found.observations
    yield "summary", found.summaries


def _marks(
    conn: Connection, name: str, numbers: Sequence[int], more: str = "", *, head: str = "", **given: str
) -> Iterator[Row]:
    known = " union all ".join(
        f"select {mark} as mark, i.{TIME[name]} as at {joined(name)}"
        f" where i.{NUMBER[name]} in (select value from json_each(:numbers)){more}"
        for mark in KNOWN_BY[name]
    )
    yield from (row for row in rows(conn, f"{head} {known}", {**given, "numbers": dump(numbers)}) if row["mark"])


# What stones are made of, of rows that lie where they can be brought back from: under the name of their table.
_LAID_AWAY = {
    "event": ("event", ("event_id", "tool_use_id", "kind", "body", "turn_id", "at")),
    "prompt": ("prompt", ("text", "turn_id", "created_at")),
    "draft": ("observation", ("key", "turn_id", "created_at")),
    "summary": ("summary", ("turn_id", "created_at")),
}


def _marks_away(conn: Connection, scope: Scope, found: Found) -> Iterator[Row]:
    """Undoing the forgetting that put them away lifts its own stones; ours must stay."""
    for kind, (name, columns) in _LAID_AWAY.items():
        away = [item for item in found.away if item[0] == kind]
        told = ", ".join(f"json_extract(content, '$.{column}') as {column}" for column in columns)
        head = f"with {ITEMS[name]} as (select row_id as {NUMBER[name]}, session_id, {told} from put_away {_THESE})"
        yield from _marks(conn, name, [item[1] for item in away], "", head=head, away=dump(away)) if away else ()
    yield from _titles_away(conn, scope, found)


def _titles_away(conn: Connection, scope: Scope, found: Found) -> Iterator[Row]:
    needle = Needle(scope.matching) if scope.matching else None
    away = {"away": dump([item for item in found.away if item[0] == "session"])}
    for name in TITLES:
        sql = f"""
            select a.at, a.text, mark('titled', s.host, s.content_session_id, a.text) as mark
              from (select at, session_id, content ->> '{name}' as text from put_away {_THESE}) a
              join sdk_sessions s on s.id = a.session_id
        """
        for row in rows(conn, sql, away):
            if row["text"] and (needle is None or needle.is_in(row["text"])):
                yield row


_THESE = (
    """where (kind, row_id, forgetting_id) in (select value ->> 0, value ->> 1, value ->> 2 from json_each(:away))"""
)


def _sessions_away(conn: Connection, found: Found) -> list[int]:
    if not found.away:
        return []
    sql = f"select distinct session_id from put_away {_THESE} and session_id is not null"
    return [row["session_id"] for row in rows(conn, sql, {"away": dump(found.away)})]


def marked(conn: Connection, given: Sequence[Stone]) -> Found:
    """What these stones name and is here all the same: in a database or a copy that was made before."""
    tables = foreign.columns(conn)
    conn.execute("drop table if exists temp.named")
    conn.execute("create temp table named (mark text primary key, since integer, until integer) without rowid")
    told = [(stone.mark, stone.since, stone.until) for stone in given]
    conn.executemany("insert or replace into temp.named values (?, ?, ?)", told)
    items = {name: _present(conn, name) for name in ITEMS}
    found = Found(
        events=items["event"],
        prompts=items["prompt"],
        observations=items["observation"],
        summaries=items["summary"],
        whole=_present_sessions(conn, "not s.forgotten" if "forgotten" in tables["sdk_sessions"] else "true"),
        sessions=_present_titles(conn),
    )
    conn.execute("drop table temp.named")
    return complete(conn, found, tables)


def rest(conn: Connection, scope: Scope, known: Sequence[Stone], *, erase: bool, upto: int) -> Found:
    """What is still here of a forgetting that was broken off. A session may have gone on since; and in a database that
    was put back meanwhile numbers may mean something else."""
    named = marked(conn, known)
    if scope.ids and stones.missing(conn, known):
        return named
    if scope.by_time:
        scope = replace(scope, before=min(upto + 1, scope.before or upto + 1))
    return union(conn, named, find(conn, scope, erase=erase))


def _present_sessions(conn: Connection, where: str) -> list[int]:
    sql = f"""
        select s.id from sdk_sessions s join temp.named x on x.mark = {SESSION}
         where x.since <= s.started_at and s.last_event_at <= x.until and {where}
    """
    return [row["id"] for row in rows(conn, sql)]


def _present_titles(conn: Connection) -> list[int]:
    marks = [f"iif(s.{name} is null, '', mark('titled', s.host, s.content_session_id, s.{name}))" for name in TITLES]
    said = f"exists (select 1 from temp.named x where x.mark in ({', '.join(marks)}))"
    return [row["id"] for row in rows(conn, f"select s.id from sdk_sessions s where {said}")]


def union(conn: Connection, one_: Found, other: Found) -> Found:
    both = {name: sorted({*getattr(one_, name), *getattr(other, name)}) for name in _LISTS}
    return complete(conn, replace(Found(), **both), foreign.columns(conn))


_LISTS = ("events", "prompts", "summaries", "observations", "tellings", "sessions", "whole", "away", "indexed")


def _present(conn: Connection, name: str) -> list[int]:
    marks = ", ".join(ALL[name])
    still = " and not i.forgotten" if name == "observation" else ""
    found = rows(
        conn,
        f"""
        select i.{NUMBER[name]} as n {joined(name)}
         where exists (select 1 from temp.named x where x.mark in ({marks})
                          and i.{TIME[name]} between x.since and x.until){still}
        """,
    )
    return [row["n"] for row in found]


# --- taking away -----------------------------------------------------------------------------------------------------


def take_away(conn: Connection, part: Found, *, n: int, erase: bool, now: int) -> None:
    """One portion. Softly, each row is kept as it was; for good, it is not."""
    project_ids = projects_of(conn, part)
    if not erase:
        _keep(conn, part, n)
    for row_id in part.observations:
        _observation(conn, row_id, n=n, erase=erase, now=now)
    _remove(conn, part)
    if part.away:
        _drop_away(conn, part.away)
    _strip(conn, part, n=n, erase=erase, upto=now)
    for project_id in project_ids:
        rules.link(conn, project_id)
    failpoint("forget.part")


def wipe_copy(conn: Connection, found: Found) -> None:
    """In a copy nobody reads and nothing is noted: rows just go. References are not followed there, so all is named."""
    tables = foreign.columns(conn)
    numbers = [*found.observations, *found.derived_observations]
    for table in ("attic", "history"):
        if table in tables:
            _delete(conn, table, "observation_id", numbers)
    touched = _sessions_of(conn, found)
    _delete(conn, "observations", "id", numbers)
    _remove(conn, replace(found, derived_observations=[]))
    if found.away:
        _drop_away(conn, found.away)
    _strip(conn, replace(found, sessions=[*found.sessions, *touched]), n=0, erase=True, upto=None)
    _tidy_copy(conn, tables, touched)


def _tidy_copy(conn: Connection, tables: Any, touched: Sequence[int]) -> None:
    """What the database itself removes where references are followed."""
    for table in ("turns", "user_prompts", "events", "observations", "session_summaries", "memory_sessions"):
        if table in tables:
            conn.execute(f"delete from {table} where session_id not in (select id from sdk_sessions)")
    for table in ("attic", "history"):
        if table in tables:
            conn.execute(f"delete from {table} where observation_id not in (select id from observations)")
    for table, column, other in (
        ("ledger", "session_id", "sdk_sessions"),
        ("ledger", "turn_id", "turns"),
        ("backfill_files", "session_id", "sdk_sessions"),
        ("observations", "superseded_by", "observations"),
    ):
        if column in tables.get(table, ()):
            conn.execute(f"update {table} set {column} = null where {column} not in (select id from {other})")
    if "documents" in tables:
        for table in ("passages", "signals", "vectors"):
            conn.execute(f"delete from {table} where document_id not in (select id from documents)")
        conn.execute(
            "update passages set around = '' where around != '' and document_id in"
            " (select id from documents where session_id in (select value from json_each(?)))",
            (dump(touched),),
        )
        conn.execute("insert into words (words) values ('optimize')")


def _sessions_of(conn: Connection, found: Found) -> list[int]:
    sql = f"select s.id from sdk_sessions s where {_TOUCHED}"
    return [row["id"] for row in rows(conn, sql, _of(found))]


def _observation(conn: Connection, row_id: int, *, n: int, erase: bool, now: int) -> None:
    """The empty row stays, as it does when one is forgotten by itself."""
    if not erase:
        corrections.put_away(conn, row_id, now=now)
        project = value(conn, "select project_id from observations where id = ?", (row_id,))
        session = value(conn, "select session_id from observations where id = ?", (row_id,))
        conn.execute(
            "insert or replace into put_away values (?, 'observation', ?, ?, ?, ?, '')",
            (n, row_id, session, project, now),
        )
        return
    for each in (row_id, *corrections.merged_into(conn, row_id)):
        conn.execute("delete from put_away where kind = 'observation' and row_id = ?", (each,))
        corrections.wipe(conn, each, now=now)


def _remove(conn: Connection, part: Found) -> None:
    """Rows, and what was told, booked and owed because of them."""
    for table, numbers in (("observations", part.derived_observations), ("session_summaries", part.derived_summaries)):
        _delete(conn, table, "id", numbers)
    _delete(conn, "session_summaries", "id", part.summaries)
    _delete(conn, "user_prompts", "id", part.prompts)
    _delete(conn, "tellings", "id", part.tellings) if part.tellings else None
    conn.execute(
        f"""
        update receipts set outcome = 'filtered', rule = '{FORGOTTEN}'
         where outcome = 'stored' and event_id in
               (select event_id from events where seq in (select value from json_each(?)))
        """,
        (dump(part.events),),
    )
    _delete(conn, "events", "seq", part.events)
    _unindex(conn, [*part.turns, *part.indexed])
    for turn_id in part.turns:
        conn.execute("update ledger set message = null where turn_id = ?", (turn_id,))
        _drop_jobs(conn, turn_id)


def _delete(conn: Connection, table: str, column: str, numbers: Sequence[int]) -> None:
    if numbers:
        conn.execute(f"delete from {table} where {column} in (select value from json_each(?))", (dump(numbers),))


def _unindex(conn: Connection, turn_ids: Sequence[int]) -> None:
    """What could be found of these turns is made again of what is left; until then of nothing."""
    if not turn_ids or not value(conn, "select 1 from sqlite_schema where name = 'documents'"):
        return
    given = (dump(turn_ids),)
    conn.execute("delete from documents where kind = 'turn' and turn_id in (select value from json_each(?))", given)
    for kind, table, column in (
        ("turn", "turns", "id"),
        ("prompt", "user_prompts", "turn_id"),
        ("observation", "observations", "turn_id"),
        ("summary", "session_summaries", "turn_id"),
    ):
        conn.execute(
            f"insert into stale select '{kind}', id from {table} where {column} in (select value from json_each(?))"
            " on conflict do nothing",
            given,
        )


def _drop_jobs(conn: Connection, turn_id: int) -> None:
    """A job names the turn as it was; whoever asks again names it as it is."""
    marks = ", ".join(f"'{kind}'" for kind in _DIGESTING)
    conn.execute(f"delete from jobs where kind in ({marks}) and subject like ?", (f"{turn_id}.%",))


def _drop_away(conn: Connection, away: Sequence[tuple[str, int, int]]) -> None:
    conn.executemany("delete from put_away where kind = ? and row_id = ? and forgetting_id = ?", list(away))


# --- sessions --------------------------------------------------------------------------------------------------------


def _strip(conn: Connection, part: Found, *, n: int, erase: bool, upto: int | None) -> None:
    """What a session's own row says; and, for good, the row of one of which nothing is left. `upto`: the time of the
    forgetting, where the session may have gone on since."""
    for session_id in (*part.sessions, *part.whole):
        _strip_session(conn, session_id, n=n, erase=erase)
    for session_id in part.whole:
        goes_on = upto is not None and _goes_on(conn, session_id, n=n, erase=erase, upto=upto)
        if erase and not goes_on:
            _delete_session(conn, session_id)
        elif not erase:
            conn.execute("update sdk_sessions set forgotten = ? where id = ?", (0 if goes_on else n, session_id))
            _unindex(conn, _turns_of(conn, session_id))


def _goes_on(conn: Connection, session_id: int, *, n: int, erase: bool, upto: int) -> bool:
    """What came in since the session was looked for: of that time it goes as well, what is newer stays."""
    if not value(conn, "select 1 from events where session_id = ?", (session_id,)):
        return False
    late = {
        name: [row["n"] for row in rows(conn, _LATE.format(NUMBER[name], ITEMS[name], TIME[name]), (session_id, upto))]
        for name in ITEMS
    }
    part = Found(
        events=late["event"], prompts=late["prompt"], observations=late["observation"], summaries=late["summary"]
    )
    take_away(conn, part, n=n, erase=erase, now=upto)
    left = rows(conn, "select distinct turn_id as id from events where session_id = ?", (session_id,))
    going = [row["id"] for row in left if row["id"] is not None]
    if erase and left:
        for turn_id in {*_turns_of(conn, session_id)} - {*going}:
            _drop_jobs(conn, turn_id)
            conn.execute("delete from turns where id = ?", (turn_id,))
    _unindex(conn, going)
    digest_again(conn, going, n=n, now=upto)
    return bool(left)


_LATE = "select {0} as n from {1} where session_id = ? and {2} <= ?"


def _turns_of(conn: Connection, session_id: int) -> list[int]:
    return [row["id"] for row in rows(conn, "select id from turns where session_id = ?", (session_id,))]


def _strip_session(conn: Connection, session_id: int, *, n: int, erase: bool) -> None:
    row = one(
        conn,
        "select title, subtitle, first_prompt, project_id, started_at from sdk_sessions where id = ?",
        (session_id,),
    )
    if row is None:
        return
    said = {name: row[name] for name in ("title", "subtitle", "first_prompt")}
    if not erase and any(said.values()):
        conn.execute(
            "insert or ignore into put_away values (?, 'session', ?, ?, ?, ?, ?)",
            (n, session_id, session_id, row["project_id"], row["started_at"], dump(said)),
        )
    conn.execute(
        "update sdk_sessions set title = null, subtitle = null, first_prompt = null where id = ?", (session_id,)
    )
    if erase:
        conn.execute("update ledger set message = null where session_id = ?", (session_id,))
        conn.execute("update sdk_sessions set memory_session_id = null where id = ?", (session_id,))
        conn.execute("delete from memory_sessions where session_id = ?", (session_id,))


def _delete_session(conn: Connection, session_id: int) -> None:
    row = one(conn, "select host, content_session_id from sdk_sessions where id = ?", (session_id,))
    if row is None:
        return
    if value(conn, "select 1 from sqlite_schema where name = 'told'"):
        conn.execute("delete from told where host = ? and content_session_id = ?", (*row.values(),))
    for turn_id in _turns_of(conn, session_id):
        _drop_jobs(conn, turn_id)
    conn.execute("delete from jobs where kind = 'reconcile' and subject like ?", (f"{session_id}.%",))
    conn.execute("delete from turns where session_id = ?", (session_id,))
    conn.execute("delete from sdk_sessions where id = ?", (session_id,))


def strip_touched(conn: Connection, found: Found) -> list[int]:
    """Sessions whose title or subtitle was made of what goes: of its first prompt, or of a summary."""
    numbers = dump([*found.summaries, *found.derived_summaries])
    sql = "select distinct session_id from session_summaries where id in (select value from json_each(?))"
    return [*_beginnings(conn, found), *(row["session_id"] for row in rows(conn, sql, (numbers,)))]


def _beginnings(conn: Connection, found: Found) -> list[int]:
    sql = "select session_id from user_prompts where prompt_number = 1 and id in (select value from json_each(?))"
    return [row["session_id"] for row in rows(conn, sql, (dump(found.prompts),))]


def retitle(conn: Connection, session_ids: Sequence[int]) -> None:
    """Named after what is left: its first prompt, if that is, and where it got to."""
    for session_id in session_ids:
        prompt = value(conn, "select text from user_prompts where session_id = ? and prompt_number = 1", (session_id,))
        done = "select completed from session_summaries where session_id = ? order by created_at desc limit 1"
        subtitle = first_sentence(value(conn, done, (session_id,)) or "", 140)
        conn.execute(
            """
            update sdk_sessions set first_prompt = coalesce(first_prompt, ?1), title = coalesce(title, ?2),
                   subtitle = coalesce(subtitle, nullif(?3, '')) where id = ?4
            """,
            (prompt, shorten(prompt, 80) if prompt else None, subtitle, session_id),
        )


def drop_projects(conn: Connection, identities: Sequence[str]) -> None:
    """A project of which nothing is left but its name."""
    empty = rows(
        conn,
        """
        select distinct project_id as id from project_aliases a
         where identity in (select value from json_each(?))
           and not exists (select 1 from sdk_sessions s where s.project_id = a.project_id)
           and not exists (select 1 from observations o where o.project_id = a.project_id and not o.forgotten)
        """,
        (dump(identities),),
    )
    for row in empty:
        conn.execute("delete from observations where project_id = ?", (row["id"],))
        for table in ("project_aliases", "project_dirs", "known_files", "repositories", "trusted_sources"):
            conn.execute(f"delete from {table} where project_id = ?", (row["id"],))
        conn.execute("update ledger set project_id = null where project_id = ?", (row["id"],))
        conn.execute("delete from projects where id = ?", (row["id"],))
        notices.drop_merges(conn, row["id"])


# --- traces in other tables ------------------------------------------------------------------------------------------

_LOOSE = (
    ("ledger", "id", "message", "null"),
    ("jobs", "id", "error", "null"),
    ("imports", "id", "notes", "'[]'"),
    ("imports", "id", "error", "null"),
    ("imports", "id", "path", "''"),
    ("breakers", "provider", "message", "''"),
)


def wipe_traces(conn: Connection, says: Callable[[str], bool], *, quoted: Callable[[str], bool]) -> int:
    """Messages and notes that speak of what was erased; how many there were. What a person is still to be told goes
    only if the very text is in it."""
    tables, gone = foreign.columns(conn), 0
    for table, key, column, empty in _LOOSE:
        if column not in tables.get(table, ()):
            continue
        for row in rows(conn, f"select {key} as key, {column} as text from {table} where {column} is not null"):
            if says(row["text"]):
                conn.execute(f"update {table} set {column} = {empty} where {key} = ?", (row["key"],))
                gone += 1
    if "notices" in tables:
        for row in rows(conn, "select key, text from notices"):
            if quoted(row["text"]):
                conn.execute("delete from notices where key = ?", (row["key"],))
                gone += 1
    if "told" in tables:
        for row in rows(conn, "select distinct what from told"):
            if says(row["what"]):
                conn.execute("delete from told where what = ?", (row["what"],))
                gone += 1
    return gone


# --- bringing back ---------------------------------------------------------------------------------------------------

_TABLES = {
    "event": ("events", "seq"),
    "prompt": ("user_prompts", "id"),
    "summary": ("session_summaries", "id"),
    "draft": ("observations", "id"),
    "telling": ("tellings", "id"),
}


def _keep(conn: Connection, part: Found, n: int) -> None:
    """Whole rows, so that they can be put back as they were."""
    lists = {
        "event": part.events,
        "prompt": part.prompts,
        "summary": [*part.summaries, *part.derived_summaries],
        "draft": part.derived_observations,
        "telling": part.tellings,
    }
    for kind, numbers in lists.items():
        table, number = _TABLES[kind]
        sql = f"select * from {table} where {number} in (select value from json_each(?))"
        for row in rows(conn, sql, (dump(numbers),)):
            at = row.get("at", row.get("created_at"))
            session = row.get("session_id")
            conn.execute(
                "insert or replace into put_away values (?, ?, ?, ?, ?, ?, ?)",
                (n, kind, row[number], session, _project_of(conn, session), at, dump(row)),
            )


def _project_of(conn: Connection, session_id: int | None) -> int | None:
    found = value(conn, "select project_id from sdk_sessions where id = ?", (session_id,))
    return None if found is None else int(found)


def undoable(conn: Connection, n: int) -> list[Row]:
    """All that is kept of it; or an error that says why nothing comes back."""
    row = one(conn, "select * from forgettings where id = ?", (n,))
    if row is None:
        raise NotFound(f"there is no forgetting F{n}", hint="`claude-mem forget` prints the number when it is done")
    if row["erased"]:
        raise CannotDo(f"F{n} erased for good; nothing of it is left", hint="only what was forgotten softly comes back")
    kept = rows(conn, "select * from put_away where forgetting_id = ?", (n,))
    if row["undone_at"] or not (kept or n == stones.LOST):
        raise CannotDo(f"there is nothing left of F{n} to bring back", hint="it can be undone once, for 30 days")
    return kept


def undo(conn: Connection, n: int, *, now: int) -> Row:
    """Everything of it comes back, as it was: `{counts, projects}`."""
    kept = undoable(conn, n)
    stones.lift(conn, n)
    counts: dict[str, int] = {}
    for kind in ("session", "draft", "prompt", "event", "summary", "telling", "observation"):
        for item in (item for item in kept if item["kind"] == kind):
            if _bring_back(conn, item, now=now):
                counts[kind] = counts.get(kind, 0) + 1
    turns = {content["turn_id"] for item in kept if (content := _content(item)).get("turn_id")}
    _unindex(conn, sorted(turns))
    conn.execute("update sdk_sessions set forgotten = 0 where forgotten = ?", (n,))
    conn.execute("delete from put_away where forgetting_id = ?", (n,))
    conn.execute("update forgettings set undone_at = ? where id = ?", (now, n))
    project_ids = sorted({item["project_id"] for item in kept if item["project_id"]})
    for project_id in project_ids:
        rules.link(conn, project_id)
    return {"counts": counts, "projects": project_ids}


def _content(item: Row) -> Row:
    found: Row = msgspec.json.decode(item["content"]) if item["content"] else {}
    return found


def _bring_back(conn: Connection, item: Row, *, now: int) -> bool:
    kind, content = item["kind"], _content(item)
    if kind == "observation":
        return corrections.come_back(conn, item["row_id"], now=now)
    if item["session_id"] and not value(conn, "select 1 from sdk_sessions where id = ?", (item["session_id"],)):
        return False  # it was erased meanwhile
    if kind == "session":
        names = ", ".join(f"{name} = coalesce(:{name}, {name})" for name in content)
        conn.execute(f"update sdk_sessions set {names} where id = :id", {**content, "id": item["row_id"]})
        return True
    if kind == "draft":  # what was made of the turn without what is now back
        conn.execute(
            f"delete from observations where turn_id = ? and key = ? and {NOBODYS}",
            (content["turn_id"], content["key"]),
        )
    if kind == "summary":
        conn.execute("delete from session_summaries where turn_id = ?", (content["turn_id"],))
    if kind == "prompt":
        conn.execute("delete from user_prompts where turn_id = ?", (content["turn_id"],))
    table, _ = _TABLES[kind]
    columns = foreign.columns(conn)[table]
    row = {name: item for name, item in content.items() if name in columns and name != "superseded_by"}
    marks = ", ".join(f":{name}" for name in row)
    conn.execute(f"insert or ignore into {table} ({', '.join(row)}) values ({marks})", row)
    if kind == "event" and conn.changes():
        conn.execute(
            f"update receipts set outcome = 'stored', rule = '' where event_id = ? and rule = '{FORGOTTEN}'",
            (content["event_id"],),
        )
    return True


# --- one by itself ---------------------------------------------------------------------------------------------------


def put_one_away(conn: Connection, row_id: int, made: Sequence[Stone], *, n: int, now: int, by: str) -> int:
    """An observation; until when it can be brought back."""
    stones.put(conn, made)
    row = one(conn, "select session_id, project_id from observations where id = ?", (row_id,)) or {}
    until = corrections.forget(conn, row_id, now=now, by=by)
    conn.execute(
        "insert into put_away values (?, 'observation', ?, ?, ?, ?, '')",
        (n, row_id, row["session_id"], row["project_id"], now),
    )
    end(conn, n, {"observations": 1}, now=now)
    return until


def named_by(conn: Connection, row_id: int) -> list[Stone]:
    """The stones that keep a single observation away, if it can be brought back."""
    if not value(conn, "select 1 from attic where observation_id = ?", (row_id,)):
        return []
    marks = [row["mark"] for row in _marks(conn, "observation", [row_id])]
    sql = "select mark, forgetting_id as n from tombstones where mark in (select value from json_each(?))"
    return [Stone(row["n"], row["mark"], back=True) for row in rows(conn, sql, (dump(marks),))]


def undo_one(conn: Connection, row_id: int, named: Sequence[Stone], *, now: int, by: str) -> Row:
    """Take back the last thing that was done to an observation; if it was forgotten, with its stones."""
    back = corrections.undo(conn, row_id, now=now, by=by)
    if back["undone"] == "forgotten":
        conn.execute("delete from put_away where kind = 'observation' and row_id = ?", (row_id,))
        conn.executemany("delete from tombstones where mark = ? and forgetting_id = ?", [(s.mark, s.n) for s in named])
    return back


# --- afterwards ------------------------------------------------------------------------------------------------------


def digest_again(conn: Connection, turn_ids: Sequence[int], *, n: int, now: int) -> None:
    """What was made of these turns is made of what is left of them."""
    for turn_id in turn_ids:
        newest = value(conn, "select max(seq) from events where turn_id = ?", (turn_id,))
        if newest is None:
            conn.execute("update turns set digested_at = ? where id = ? and closed_at is not null", (now, turn_id))
            continue
        conn.execute("update turns set digested_at = null where id = ?", (turn_id,))
        if value(conn, "select closed_at from turns where id = ?", (turn_id,)) is not None:
            jobs.ask(conn, "compress", f"{turn_id}.{newest}.f{n}", now=now)


def end(conn: Connection, n: int, counts: Row, *, now: int) -> None:
    conn.execute("update forgettings set done_at = ?, counts = ? where id = ?", (now, dump(counts), n))


def known(conn: Connection, n: int, *, at: int, erased: bool) -> None:
    """A forgetting that this database has not seen: it is an older one that was put back."""
    conn.execute("insert or ignore into forgettings (id, at, erased) values (?, ?, ?)", (n, at, int(erased)))


def unfinished(conn: Connection) -> list[int]:
    return [row["id"] for row in rows(conn, "select id from forgettings where done_at is null and undone_at is null")]


def undone(conn: Connection) -> dict[int, int]:
    """Which were taken back, and when."""
    found = rows(conn, "select id, undone_at from forgettings where undone_at is not null")
    return {row["id"]: row["undone_at"] for row in found}


def get(conn: Connection, n: int) -> Row | None:
    return one(conn, "select * from forgettings where id = ?", (n,))


def is_due(conn: Connection, *, now: int) -> bool:
    sql = "select 1 from put_away a join forgettings f on f.id = a.forgetting_id where f.at < ? limit 1"
    return bool(value(conn, sql, (now - KEEP_MS,)))


def expire(conn: Connection, *, now: int, limit: int = 500) -> int:
    """What was kept for its thirty days goes for good; the stones stay."""
    due = "select a.kind, a.row_id, f.id from put_away a join forgettings f on f.id = a.forgetting_id where f.at < ?"
    away = [tuple(row.values()) for row in rows(conn, f"{due} limit ?", (now - KEEP_MS, limit))]
    _drop_away(conn, away)
    return len(away)


def projects_of(conn: Connection, found: Found) -> list[int]:
    """Whose starts tell of it."""
    given = {**_of(found), "derived": dump(found.derived_observations)}
    sql = f"""
        select project_id from sdk_sessions s where {_TOUCHED}
        union select project_id from observations where id in (select value from json_each(:observations))
           or id in (select value from json_each(:derived))
    """
    return [row["project_id"] for row in rows(conn, sql, given)]


_SAYS = {
    "event": "body",
    "prompt": "text",
    "observation": "coalesce(title, '') || ' ' || coalesce(narrative, '') || ' ' || facts",
    "summary": "concat_ws(' ', request, completed, learned, closing)",
}


def texts_of(conn: Connection, found: Found) -> Iterator[str]:
    """What is about to be erased, to know it again in a log. Events last: there are many, and most of it is output."""
    for name, numbers in reversed([*_named_items(found)]):
        chosen = f"{NUMBER[name]} in (select value from json_each(?))"
        for row in conn.execute(f"select {_SAYS[name]} as text from {ITEMS[name]} where {chosen}", (dump(numbers),)):
            yield row["text"]
