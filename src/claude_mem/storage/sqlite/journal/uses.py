"""Uses: what became of the items of each injection, and the counts that ranking learns from.

Rows belong to a turn and are replaced when the turn is digested again. Injections that were held out are judged like
the others, but do not count for an item: it was not shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import msgspec

from claude_mem.domain.records import Turn
from claude_mem.domain.uses import ItemUse, ShownItem, Use, UseCounts
from claude_mem.storage.sqlite.engine import Connection, Row, fetch_all, fetch_value
from claude_mem.storage.sqlite.memory.observations import encode_json

MAX_INJECTIONS = 300  # of a session, the last ones: an agent may run for days
DETAIL_CHARS = 200  # of the narrative, which is shown before a file and after a failure

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


def _item(conn: Connection, name: str, row: Row, memories: dict[str, Row]) -> ShownItem | None:
    shown = ShownItem(injection_id=row["id"], name=name, trigger=row["trigger"], at=row["at"], about=row["about"])
    kind, _, rest = name.partition(":")
    if kind == "file":
        return replace(shown, files=frozenset({rest}))
    if kind == "call":
        remedy = _find_remedy(conn, row["project_id"], rest, before=row["at"])
        return replace(shown, warned=rest, commands=remedy)
    memory = memories.get(f"o{rest}" if rest else name)
    if memory is None:
        return None  # forgotten since
    if kind == "rule":
        return replace(shown, rule=memory["title"] or "")
    detail = (memory["narrative"] or "")[:DETAIL_CHARS] if row["trigger"] in ("file", "failure") else ""
    return replace(
        shown,
        text=f"{memory['title'] or ''}\n{detail}",
        files=frozenset(msgspec.json.decode(memory["files"], type=list[str])),
        commands=frozenset(msgspec.json.decode(memory["commands"], type=list[str])),
    )


def _load_memories(conn: Connection, names: Iterable[str]) -> dict[str, Row]:
    """Return the words, files and commands of observations (`o12`) and summaries (`s5`), by name."""
    ids: defaultdict[str, list[int]] = defaultdict(list)
    for name in names:
        kind, _, rest = name.partition(":")
        number = rest if kind in ("rule", "repeated") else name[1:] if name[:1] in "os" else ""
        if number.isdigit():
            ids["s" if kind[:1] == "s" else "o"].append(int(number))
    rows = fetch_all(
        conn,
        """
        select 'o' || id as name, title, narrative,
               (select json_group_array(f.value) from (select value from json_each(files_read)
                                                       union select value from json_each(files_modified)) f) as files,
               (select json_group_array(a.path) from anchors a
                 where a.observation_id = observations.id and a.kind = 'command') as commands
          from observations where not forgotten and id in (select value from json_each(?))
        """,
        (encode_json(ids["o"]),),
    )
    rows += fetch_all(
        conn,
        """
        select 's' || id as name, concat_ws(' ', request, next_steps) as title, '' as narrative,
               files_edited as files, '[]' as commands
          from session_summaries where id in (select value from json_each(?))
        """,
        (encode_json(ids["s"]),),
    )
    return {row["name"]: row for row in rows}


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


# --- what became of it -----------------------------------------------------------------------------------------------


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


def count_uses(conn: Connection, names: Iterable[str]) -> dict[str, UseCounts]:
    """Return how often these items were shown and used. Items that were never judged are left out."""
    rows = fetch_all(
        conn,
        """
        select item, count(*) as shown, sum(used) as used, sum(contradicted) as contradicted from (
            select u.item, max(u.use not in ('none', 'contradicted')) as used, max(u.use = 'contradicted') as contradicted
              from uses u join injections i on i.id = u.injection_id
             where u.item in (select value from json_each(?)) and not i.held_out
             group by u.item, u.injection_id)
         group by item
        """,
        (encode_json(sorted(set(names))),),
    )
    return {row["item"]: UseCounts(row["shown"], row["used"], row["contradicted"]) for row in rows}


def count_uses_by_trigger(conn: Connection, name: str) -> list[Row]:
    """Return how often an item was shown at each trigger, and how it was used."""
    return fetch_all(
        conn,
        """
        select i.trigger, count(distinct i.id) as shown, count(distinct iif(u.use in ('none', 'contradicted'), null, i.id)) as used,
               coalesce(group_concat(distinct iif(u.use = 'none', null, u.use)), '') as kinds, max(i.at) as last_at
          from uses u join injections i on i.id = u.injection_id
         where u.item = ? and not i.held_out group by i.trigger order by shown desc, i.trigger
        """,
        (name,),
    )
