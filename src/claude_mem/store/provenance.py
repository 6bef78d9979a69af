"""Where an observation comes from, what is related to it, and where else its words are stored.

The observation's page and the preview of a deletion show this.
"""

from __future__ import annotations

import re

import msgspec

from claude_mem.records import Body, Prompted, Stopped, SubagentStopped, ToolUsed, kind
from claude_mem.store import arrival
from claude_mem.store.database import Connection, Row, one, rows, value
from claude_mem.store.observations import dump, get_many, loaded
from claude_mem.text import shorten

EVENT_TEXT, PROMPT_TEXT, MOST_EVENTS = 300, 2_000, 50
MOST_COPIES = 20
SAME = 0.5  # a row that shares at least this part of the words counts as a copy
_DECODE: msgspec.json.Decoder[Body] = msgspec.json.Decoder(Body)
_WORD = re.compile(r"\w{3,}")
_SUMMARY_COLUMNS = ("request", "investigated", "learned", "completed", "next_steps", "notes", "closing")


# --- origin ----------------------------------------------------------------------------------------------------------


def origin(conn: Connection, row_id: int) -> Row:
    """Return the observation's project, session, turn and prompt, and the events its facts come from."""
    row = one(
        conn,
        """
        select o.sources, o.project_id, p.root, s.id as session_id, s.title, s.host, t.id as turn_id, t.number,
               t.events_gone, u.id as prompt_id, u.text
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
        "prompt": {"id": row["prompt_id"], "text": shorten(row["text"], PROMPT_TEXT)} if row["prompt_id"] else None,
        "events": _events(conn, list(dict.fromkeys(seqs))[:MOST_EVENTS], root=row["root"]),
        "events_gone": row["events_gone"] or 0,  # purged
    }


def _events(conn: Connection, seqs: list[int], *, root: str) -> list[Row]:
    query = f"select {arrival.COLUMNS}, kind, body from events where seq in (select value from json_each(?))"
    event_rows = arrival.in_order(rows(conn, query, (dump(seqs),)))
    return [
        {"seq": row["seq"], "kind": row["kind"], "at": row["at"], **_event_line(row["body"], root)}
        for row in event_rows
    ]


def _event_line(raw: str, root: str) -> Row:
    """Return an event in one line, with file paths relative to the project's root."""
    try:
        body = _DECODE.decode(raw)
    except msgspec.MsgspecError:  # written by another version
        return {"tool": None, "failed": False, "text": ""}
    if isinstance(body, ToolUsed):
        argument = _main_argument(body)
        text = argument.removeprefix(f"{root.rstrip('/')}/") if root else argument
        return {"tool": body.name, "failed": body.failed, "text": shorten(text, EVENT_TEXT)}
    text = body.text if isinstance(body, Prompted) else ""
    text = body.message if isinstance(body, Stopped | SubagentStopped) else text
    return {"tool": None, "failed": False, "text": shorten(text or kind(body).replace("_", " "), EVENT_TEXT)}


def _main_argument(tool: ToolUsed) -> str:
    """Return the most telling argument of a tool call."""
    for name in ("command", "file_path", "notebook_path", "path", "pattern", "query", "url", "prompt", "input"):
        if isinstance(argument := tool.input.get(name), str) and argument.strip():
            return argument
    return next((argument for argument in tool.input.values() if isinstance(argument, str)), "")


# --- related observations --------------------------------------------------------------------------------------------


def sharing_files(conn: Connection, row_id: int, *, limit: int) -> list[Row]:
    """Return observations of the project about the same files, those that share the most files first."""
    shared_rows = rows(
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
    return get_many(conn, [row["id"] for row in shared_rows])


# --- copies ----------------------------------------------------------------------------------------------------------


def index_entries(conn: Connection, row_id: int) -> Row:
    """Count the index rows of an observation, which are removed together with it."""
    document = one(conn, "select id from documents where kind = 'observation' and row_id = ?", (row_id,))
    document_id = document["id"] if document else 0
    counts = {
        table: int(value(conn, f"select count(*) from {table} where document_id = ?", (document_id,)))
        for table in ("passages", "signals", "vectors")
    }
    return {"documents": int(document_id > 0), **counts}


def copies(conn: Connection, row: Row, *, turn_id: int | None, exclude_ids: list[int]) -> list[Row]:
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
    similar = sorted((item for item in overlaps if item[0] >= SAME * len(own_words)), key=lambda item: -item[0])
    return [
        {"kind": kind, "id": row_id, "shared": count, "words": len(own_words)}
        for count, kind, row_id in similar[:MOST_COPIES]
    ]


def _texts_of_turn(conn: Connection, turn_id: int, exclude_ids: list[int]) -> list[tuple[str, int, str]]:
    summary_text = "coalesce(" + ", '') || ' ' || coalesce(".join(_SUMMARY_COLUMNS) + ", '')"
    observation_text = (
        "coalesce(title, '') || ' ' || coalesce(subtitle, '') || ' ' || coalesce(narrative, '') || ' ' || facts"
    )
    text_rows = rows(
        conn,
        f"""
        select 'summary' as kind, id, {summary_text} as text from session_summaries where turn_id = ?1
        union all select 'prompt', id, text from user_prompts where turn_id = ?1
        union all select 'observation', id, {observation_text} from observations where turn_id = ?1 and not forgotten
                     and id not in (select value from json_each(?2))
        union all select 'event', seq, body from events where turn_id = ?1
        """,
        (turn_id, dump(exclude_ids)),
    )
    return [(row["kind"], row["id"], row["text"]) for row in text_rows]


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def turn_of(conn: Connection, row_id: int) -> int | None:
    turn_id = value(conn, "select turn_id from observations where id = ?", (row_id,))
    return None if turn_id is None else int(turn_id)


def project_of(conn: Connection, row_id: int) -> int:
    return int(value(conn, "select project_id from observations where id = ?", (row_id,)))


def kept(conn: Connection, row_id: int) -> Row | None:
    """Return the content of a deleted observation, while the deletion can be undone."""
    content = value(conn, "select content from attic where observation_id = ?", (row_id,))
    return None if content is None else loaded(msgspec.json.decode(content))
