"""Uses: what became of the items of each injection, and the counts that ranking learns from.

Rows belong to a turn and are replaced when the turn is digested again. Injections that were held out are judged like
the others, but do not count for an item: it was not shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from claude_mem.domain.records import Turn
from claude_mem.domain.uses import ItemUse, ShownItem, TriggerUses, TurnReading, Use, UseCounts
from claude_mem.domain.worth import Moment, TriggerWorth, UseCount, UseTotals
from claude_mem.storage.sqlite.engine import (
    Connection,
    Row,
    fetch_all,
    fetch_one,
    fetch_record,
    fetch_records,
    fetch_value,
)
from claude_mem.storage.sqlite.memory.observations import encode_json

MAX_INJECTIONS = 300  # of a session, the last ones: an agent may run for days
DETAIL_CHARS = 200  # of the narrative, which is shown before a file and after a failure

# Of the uses of one item of one injection: whether it was of use, as in `domain.uses.is_helpful`.
_IS_USED = "(max({0} not in ('none', 'contradicted', 'repeated')) and not max({0} in ('contradicted', 'repeated')))"

_SHOWN_ROWS = """
    select i.id, i.trigger, i.at, i.about, i.names, s.project_id
      from injections i join sdk_sessions s on (s.host, s.content_session_id) = (i.host, i.content_session_id)
"""


# --- what was shown --------------------------------------------------------------------------------------------------


def load_shown_items(conn: Connection, turn: Turn) -> list[ShownItem]:
    """Return the items that the turn's session had been shown, or would have been, before the end of the turn."""
    rows = fetch_all(
        conn,
        f"{_SHOWN_ROWS} where s.id = ? and i.at <= ? order by i.at desc, i.id desc limit {MAX_INJECTIONS}",
        (turn.session_id, turn.ended_at),
    )
    return list(_items(conn, rows))


def _items(conn: Connection, rows: Sequence[Row]) -> Iterator[ShownItem]:
    names_by_injection = {row["id"]: msgspec.json.decode(row["names"], type=list[str]) for row in rows}
    names = {name for each in names_by_injection.values() for name in each}
    memories = _load_memories(conn, names)
    for row in rows:
        for name in names_by_injection[row["id"]]:
            item = _item(conn, name, row, memories)
            if item is not None:
                yield item


def _item(conn: Connection, name: str, row: Row, memories: dict[str, _Memory]) -> ShownItem | None:
    item = ShownItem(injection_id=row["id"], name=name, trigger=row["trigger"], at=row["at"], about=row["about"])
    kind, _, rest = name.partition(":")
    if kind == "file":
        return replace(item, files=frozenset({rest}))
    if kind == "call":
        remedy = _find_remedy(conn, row["project_id"], rest, before=row["at"])
        return replace(item, warned=rest, commands=remedy)
    memory = memories.get(f"o{rest}" if rest else name)
    if memory is None:
        return None  # forgotten since
    if kind == "rule":
        return replace(item, rule=memory.title)
    detail = memory.narrative[:DETAIL_CHARS] if row["trigger"] in ("file", "failure") else ""
    return replace(
        item,
        text=f"{memory.title}\n{detail}",
        files=frozenset(msgspec.json.decode(memory.files, type=list[str])),
        commands=frozenset(msgspec.json.decode(memory.commands, type=list[str])),
    )


class _Memory(NamedTuple):
    """The words of an observation (`o12`) or summary (`s5`), and the files and commands that it is about."""

    name: str
    title: str
    narrative: str
    files: str  # a JSON list, like `commands`
    commands: str


def _load_memories(conn: Connection, names: Iterable[str]) -> dict[str, _Memory]:
    """Return the observations and summaries among the names of items, by name."""
    ids: defaultdict[str, list[int]] = defaultdict(list)
    for name in names:
        kind, _, rest = name.partition(":")
        number = rest if kind in ("rule", "repeated") else name[1:] if name[:1] in "os" else ""
        if number.isdigit():
            ids["s" if kind[:1] == "s" else "o"].append(int(number))
    memories = fetch_records(
        conn,
        _Memory,
        """
        select 'o' || id as name, coalesce(title, '') as title, coalesce(narrative, '') as narrative,
               (select json_group_array(f.value) from (select value from json_each(files_read)
                                                       union select value from json_each(files_modified)) f) as files,
               (select json_group_array(a.path) from anchors a
                 where a.observation_id = observations.id and a.kind = 'command') as commands
          from observations where not forgotten and id in (select value from json_each(?))
        """,
        (encode_json(ids["o"]),),
    )
    memories += fetch_records(
        conn,
        _Memory,
        """
        select 's' || id as name, concat_ws(' ', request, next_steps) as title, '' as narrative,
               files_edited as files, '[]' as commands
          from session_summaries where id in (select value from json_each(?))
        """,
        (encode_json(ids["s"]),),
    )
    return {memory.name: memory for memory in memories}


def _find_remedy(conn: Connection, project_id: int, key: str, *, before: int) -> frozenset[str]:
    """Return the key of what worked in place of a call, as it was known when the line was said."""
    remedy = fetch_value(
        conn,
        """
        select c.counts_as from calls c join documents d on d.id = c.document_id
         where c.key = ? and d.project_id = ? and d.created_at <= ? and c.counts_as != ''
         order by d.created_at desc limit 1
        """,
        (key, project_id, before),
    )
    return frozenset({remedy} if remedy else ())


# --- uses -----------------------------------------------------------------------------------------------


def replace_uses(conn: Connection, turn_id: int, uses: Iterable[ItemUse]) -> None:
    """Store what a turn shows of the uses of items, in place of what was stored for the turn before."""
    conn.execute("delete from uses where turn_id = ?", (turn_id,))
    conn.executemany(
        """
        insert or ignore into uses (injection_id, turn_id, item, use, at)
        select ?1, ?2, ?3, ?4, ?5 where exists (select 1 from injections where id = ?1)
           and (?4 != 'none' or not exists (select 1 from uses where injection_id = ?1 and item = ?3))
        """,
        [(use.injection_id, turn_id, use.name, use.use, use.at) for use in uses],
    )


def list_known_paths(conn: Connection, turn: Turn, paths: Sequence[str]) -> frozenset[str]:
    """Return those of these files that an earlier session of the project read, and this one did not before."""
    rows = fetch_all(
        conn,
        """
        select f.value as path from signals f join documents d on d.id = f.document_id
         where f.kind = 'read' and f.value in (select value from json_each(:paths)) and d.project_id = :project
           and d.kind = 'turn' and d.created_at < :at
         group by f.value having sum(d.session_id = :session) = 0
        """,
        {
            "paths": encode_json(list(paths)),
            "project": turn.project_id,
            "session": turn.session_id,
            "at": turn.started_at,
        },
    )
    return frozenset(row["path"] for row in rows)


def record_reading(conn: Connection, turn_id: int, reading: TurnReading) -> None:
    """Store how much a turn read, in place of what was stored for the turn before."""
    conn.execute(
        "insert or replace into turn_reading values (?, ?, ?, ?, ?)",
        (
            turn_id,
            reading.characters,
            reading.again_characters,
            reading.calls_before_edit,
            reading.characters_before_edit,
        ),
    )


def list_session_uses(conn: Connection, session_id: int) -> dict[tuple[int, str], Use]:
    """Return the strongest use of each item of a session's injections, by injection and name."""
    rows = fetch_all(
        conn,
        """
        select u.injection_id, u.item, u.use from uses u join turns t on t.id = u.turn_id where t.session_id = ?
        """,
        (session_id,),
    )
    strongest: dict[tuple[int, str], Use] = {}
    order = list(Use)
    for row in rows:
        key, use = (row["injection_id"], row["item"]), Use(row["use"])
        strongest[key] = min(strongest.get(key, use), use, key=order.index)
    return strongest


def count_uses(conn: Connection, names: Iterable[str], *, project_id: int = 0) -> dict[str, UseCounts]:
    """Return how often these items were shown and used; for files, in one project. Items that were never judged are left
    out."""
    rows = fetch_all(
        conn,
        f"""
        select item, count(*) as shown, sum(used) as used, sum(contradicted) as contradicted from (
            select item, {_IS_USED.format("use")} as used, max(use = 'contradicted') as contradicted
              from uses
             where item in (select value from json_each(:names))
               and injection_id not in (select id from injections where held_out)
               and (:project = 0 or exists (
                    select 1 from injections i join sdk_sessions s
                        on (s.host, s.content_session_id) = (i.host, i.content_session_id)
                     where i.id = injection_id and s.project_id = :project))
             group by item, injection_id)
         group by item
        """,
        {"names": encode_json(sorted(set(names))), "project": project_id},
    )
    return {row["item"]: UseCounts(row["shown"], row["used"], row["contradicted"]) for row in rows}


def list_uses_by_trigger(conn: Connection, names: Iterable[str]) -> dict[str, list[TriggerUses]]:
    """Return at which triggers these items were shown, how often, and which uses were seen."""
    rows = fetch_all(
        conn,
        """
        select u.item, i.trigger, count(distinct i.id) as shown,
               count(distinct iif(u.use in ('none', 'contradicted', 'repeated'), null, i.id)) as used,
               json_group_array(distinct u.use) filter (where u.use != 'none') as kinds
          from uses u join injections i on i.id = u.injection_id
         where u.item in (select value from json_each(?)) and not i.held_out
         group by u.item, i.trigger order by shown desc, i.trigger
        """,
        (encode_json(sorted(set(names))),),
    )
    by_item: defaultdict[str, list[TriggerUses]] = defaultdict(list)
    for row in rows:
        kinds = sorted(msgspec.json.decode(row["kinds"], type=list[str]))
        by_item[row["item"]].append(TriggerUses(row["trigger"], row["shown"], row["used"], kinds))
    return by_item


# --- what it is worth ------------------------------------------------------------------------------------------------

_IN_PERIOD = """
      from injections i join sdk_sessions s on (s.host, s.content_session_id) = (i.host, i.content_session_id)
     where i.at >= :since and (:project = 0 or s.project_id = :project)
"""
# One row for each item of an injection that was judged.
_JUDGED = f"""
    with judged as (
        select s.id as session_id, i.id as injection_id, i.trigger, i.holdout, i.held_out, u.item,
               {_IS_USED.format("u.use")} as used, max(u.use = 'contradicted') as contradicted
          from uses u join injections i on i.id = u.injection_id
          join sdk_sessions s on (s.host, s.content_session_id) = (i.host, i.content_session_id)
         where i.at >= :since and (:project = 0 or s.project_id = :project)
         group by i.id, u.item)
"""


def count_use_totals(conn: Connection, *, project_id: int, since: int) -> UseTotals:
    """Return how many sessions there were, how many were shown something and used something, and the sums over all
    items that could be judged."""
    period = {"project": project_id, "since": since}
    totals = fetch_record(
        conn,
        UseTotals,
        f"""
        {_JUDGED}
        select (select count(*) from sdk_sessions s
                 where s.last_event_at >= :since and (:project = 0 or s.project_id = :project)) as sessions,
               (select count(distinct s.id) {_IN_PERIOD} and not i.held_out and i.names != '[]') as sessions_shown,
               count(distinct iif(used, session_id, null)) as sessions_used,
               (select count(*) {_IN_PERIOD} and not i.held_out and i.names != '[]') as injections,
               (select coalesce(sum(i.tokens), 0) {_IN_PERIOD} and not i.held_out) as tokens,
               count(*) as shown, coalesce(sum(used), 0) as used, coalesce(sum(contradicted), 0) as contradicted,
               count(*) filter (where item like 'call:%' or item like 'rule:%') as warnings,
               count(*) filter (where (item like 'call:%' or item like 'rule:%') and used and not contradicted) as followed
          from judged where not held_out
        """,
        period,
    )
    assert totals is not None
    return totals


def count_reading(conn: Connection, *, project_id: int, since: int) -> tuple[int, int]:
    """Return how many characters of files were read, and how many of them an earlier session had read."""
    row = fetch_one(
        conn,
        """
        select coalesce(sum(r.characters), 0) as characters, coalesce(sum(r.again_characters), 0) as again
          from turn_reading r join turns t on t.id = r.turn_id join sdk_sessions s on s.id = t.session_id
         where t.opened_at >= :since and (:project = 0 or s.project_id = :project)
        """,
        {"project": project_id, "since": since},
    )
    assert row is not None
    return row["characters"], row["again"]


def list_trigger_totals(conn: Connection, *, project_id: int, since: int) -> list[TriggerWorth]:
    """Return what was shown and used at each trigger, and the tokens."""
    return fetch_records(
        conn,
        TriggerWorth,
        f"""
        {_JUDGED}, said as (
            select i.trigger, count(*) as injections, sum(i.tokens) as tokens {_IN_PERIOD} and not i.held_out
               and i.names != '[]' group by i.trigger)
        select said.trigger, injections, tokens,
               (select count(*) from judged j where j.trigger = said.trigger and not held_out) as shown,
               (select coalesce(sum(used), 0) from judged j where j.trigger = said.trigger and not held_out) as used
          from said order by tokens desc
        """,
        {"project": project_id, "since": since},
    )


def list_use_totals(conn: Connection, *, project_id: int, since: int) -> list[UseCount]:
    """Return how many items were used in each way, the most frequent first."""
    return fetch_records(
        conn,
        UseCount,
        """
        select u.use, count(distinct u.injection_id || ' ' || u.item) as items
          from uses u join injections i on i.id = u.injection_id
          join sdk_sessions s on (s.host, s.content_session_id) = (i.host, i.content_session_id)
         where i.at >= :since and (:project = 0 or s.project_id = :project) and not i.held_out and u.use != 'none'
         group by u.use order by items desc, u.use
        """,
        {"project": project_id, "since": since},
    )


def list_moments(conn: Connection, *, project_id: int, since: int) -> list[Moment]:
    """Return the moments at which chance decided, with the share of their items that were used."""
    rows = fetch_all(
        conn,
        f"""
        {_JUDGED}
        select session_id as session, holdout, held_out as is_silent, avg(used) as outcome
          from judged where holdout > 0 group by injection_id
        """,
        {"project": project_id, "since": since},
    )
    return [_moment(row) for row in rows]


def list_start_moments(conn: Connection, *, project_id: int, since: int) -> list[Moment]:
    """Return the starts at which chance decided, with the characters that the session read before its first edit."""
    rows = fetch_all(
        conn,
        """
        select s.id as session, i.holdout, i.held_out as is_silent,
               (select sum(iif(r.turn_id = first.turn_id, r.characters_before_edit, r.characters))
                  from turn_reading r join turns t on t.id = r.turn_id
                 where t.session_id = s.id and t.opened_at <= first.opened_at) as outcome
          from injections i join sdk_sessions s on (s.host, s.content_session_id) = (i.host, i.content_session_id)
          join (select t.session_id, t.id as turn_id, min(t.opened_at) as opened_at
                  from turn_reading r join turns t on t.id = r.turn_id
                 where r.characters_before_edit is not null group by t.session_id) first on first.session_id = s.id
         where i.trigger = 'start' and i.holdout > 0 and i.at >= :since and (:project = 0 or s.project_id = :project)
         group by s.id having i.id = min(i.id)
        """,
        {"project": project_id, "since": since},
    )
    return [_moment(row) for row in rows]


def _moment(row: Row) -> Moment:
    return Moment(str(row["session"]), row["holdout"], bool(row["is_silent"]), float(row["outcome"] or 0))


# --- lift ------------------------------------------------------------------------------------------------------------


def list_judgeable_sessions(conn: Connection, *, project_id: int, since: int, limit: int) -> list[tuple[int, int]]:
    """Return the newest sessions that were shown something and whose events are stored, with their projects."""
    rows = fetch_all(
        conn,
        f"""
        select distinct s.id, s.project_id {_IN_PERIOD} and not i.held_out and i.names != '[]'
           and exists (select 1 from events e where e.session_id = s.id and e.kind = 'tool')
         order by s.id desc limit :limit
        """,
        {"project": project_id, "since": since, "limit": limit},
    )
    return [(row["id"], row["project_id"]) for row in rows]


def load_session_items(conn: Connection, session_id: int) -> list[ShownItem]:
    """Return the items that a session was shown."""
    rows = fetch_all(
        conn,
        f"{_SHOWN_ROWS} where s.id = ? and not i.held_out order by i.at desc limit {MAX_INJECTIONS}",
        (session_id,),
    )
    return list(_items(conn, rows))
