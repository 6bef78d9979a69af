"""Queries for the page of one session: a page of turns with everything that belongs to each. All run along indexes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from claude_mem.domain.errors import NotFound
from claude_mem.domain.memory_items import MemoryItem
from claude_mem.domain.records import Body, Prompted, Turn
from claude_mem.domain.session_reports import (
    OutlineLine,
    RawEvent,
    StoryCounts,
    StoryObservation,
    StoryPrompt,
    StorySummary,
    StoryTurnRow,
    TurnUsage,
)
from claude_mem.domain.uses import memory_name
from claude_mem.privacy import trust
from claude_mem.storage.journal_records import MAX_STORY_EVENTS, NamedItem, StoryHeader, TurnSummary
from claude_mem.storage.sqlite.engine import Connection, Row, fetch_all, fetch_one, fetch_records, fetch_value
from claude_mem.storage.sqlite.journal import arrival_order
from claude_mem.storage.sqlite.memory import anchors
from claude_mem.storage.sqlite.memory.observations import encode_json

MAX_OUTLINE_TURNS = 2_000  # turns in the outline
OUTLINE_CHARS = 80
_BODY_DECODER = msgspec.json.Decoder(Body)


def get_story_header(conn: Connection, session_id: int) -> StoryHeader:
    """Return the session with its counts and costs; raise `NotFound` if there is none."""
    row = fetch_one(
        conn,
        """
        select s.id, s.title, s.subtitle, s.host, s.content_session_id, s.status, s.cwd, s.started_at, s.last_event_at,
               s.ended_at, p.id as project_id, p.name as project, p.root
          from sdk_sessions s join projects p on p.id = s.project_id where s.id = ?
        """,
        (session_id,),
    )
    if row is None:
        raise NotFound(
            f"there is no session {session_id}", hint="run `claude-mem list sessions` to see the existing ones"
        )
    usage = fetch_one(
        conn,
        "select count(*) as requests, coalesce(sum(input_tokens + output_tokens), 0) as model_tokens,"
        " coalesce(sum(cost), 0) as cost from ledger where session_id = ?",
        (session_id,),
    )
    assert usage is not None
    return StoryHeader(**row, **usage, counts=_counts(conn, session_id))


def _counts(conn: Connection, session_id: int) -> StoryCounts:
    tables = {
        "turns": "turns where session_id = ?",
        "private": "turns where session_id = ? and private",
        "events": "events where session_id = ?",
        "observations": "observations where session_id = ? and not forgotten",
    }
    counts = {name: fetch_value(conn, f"select count(*) from {where}", (session_id,)) for name, where in tables.items()}
    purged_sql = "select coalesce(sum(events_purged), 0) from turns where session_id = ?"
    return StoryCounts(**counts, events_gone=fetch_value(conn, purged_sql, (session_id,)))


def list_story_turns(conn: Connection, session_id: int) -> list[StoryTurnRow]:
    """Return all turns in chronological order. A turn that was read from a transcript later has a late number."""
    return fetch_records(
        conn,
        StoryTurnRow,
        """
        select id, number, private, opened_at, last_at, closed_at, closed_by, digested_at,
               events_purged as events_gone
          from turns
         where session_id = ? order by opened_at, number
        """,
        (session_id,),
    )


def list_story_outline(conn: Connection, session_id: int) -> list[OutlineLine]:
    """Return one line per turn, for navigation."""
    return fetch_records(
        conn,
        OutlineLine,
        f"""
        select t.number, t.opened_at, t.private, substr(trim(p.text), 1, {OUTLINE_CHARS}) as text
          from turns t left join user_prompts p on p.turn_id = t.id and not t.private
         where t.session_id = ? order by t.opened_at, t.number limit {MAX_OUTLINE_TURNS}
        """,
        (session_id,),
    )


# --- a page of turns -------------------------------------------------------------------------------------------------


def load_turn_prompts(conn: Connection, turn_ids: Sequence[int]) -> dict[int, StoryPrompt]:
    """Return the prompt of each turn."""
    query = "select turn_id, id, text from user_prompts where turn_id in (select value from json_each(?))"
    prompt_rows = fetch_all(conn, query, (encode_json(turn_ids),))
    return {row["turn_id"]: StoryPrompt(id=row["id"], text=row["text"]) for row in prompt_rows}


def load_turn_summaries(conn: Connection, turn_ids: Sequence[int]) -> dict[int, TurnSummary]:
    """Return the summary of each turn."""
    summary_rows = fetch_all(
        conn,
        """
        select turn_id, id, request, investigated, learned, completed, next_steps, notes, files_read, files_edited,
               closing, closing_trust, outcome, verdict
          from session_summaries where turn_id in (select value from json_each(?))
        """,
        (encode_json(turn_ids),),
    )
    return {row["turn_id"]: _summary(row) for row in summary_rows}


def _summary(row: Row) -> TurnSummary:
    texts = {name: row[name] for name in row if name not in ("turn_id", "files_read", "files_edited")}
    summary = StorySummary(**texts, closing_held=trust.held_closing_origin(row))
    return TurnSummary(summary, _decode_list(row["files_read"]), _decode_list(row["files_edited"]))


def load_turn_observations(conn: Connection, turn_ids: Sequence[int]) -> dict[int, list[StoryObservation]]:
    """Return the observations of each turn."""
    by_turn: dict[int, list[StoryObservation]] = {}
    for turn_id in turn_ids:  # one query each, along the index on (turn_id, key)
        query = "select *, 'observation' as kind from observations where turn_id = ? and not forgotten"
        rows = anchors.add_states(conn, fetch_records(conn, MemoryItem, f"{query} order by created_at, id", (turn_id,)))
        by_turn[turn_id] = [msgspec.convert(row, StoryObservation, strict=False) for row in rows]
    return by_turn


def load_turn_usage(conn: Connection, turn_ids: Sequence[int]) -> dict[int, TurnUsage]:
    """Return the number, tokens and cost of the model requests of each turn."""
    usage_rows = fetch_all(
        conn,
        """
        select turn_id, count(*) as requests, sum(input_tokens + output_tokens) as tokens, sum(cost) as cost
          from ledger where turn_id in (select value from json_each(?)) group by turn_id
        """,
        (encode_json(turn_ids),),
    )
    return {
        row["turn_id"]: TurnUsage(requests=row["requests"], tokens=row["tokens"], cost=row["cost"])
        for row in usage_rows
    }


def load_turn_evidence(conn: Connection, session: StoryHeader, turn: StoryTurnRow) -> tuple[Turn, dict[int, int]]:
    """Return a turn as evidence for the writer, and the time of each of its events."""
    query = f"select {arrival_order.ORDER_COLUMNS}, body from events where turn_id = ? order by seq limit ?"
    event_rows = arrival_order.order_events(fetch_all(conn, query, (turn.id, MAX_STORY_EVENTS)))
    readable = [(row, body) for row in event_rows if (body := _decode_body(row["body"])) is not None]
    bodies = [body for _, body in readable]
    evidence_turn = Turn(
        id=turn.id,
        session_id=session.id,
        project_id=session.project_id,
        number=turn.number,
        prompt="\n".join(body.text for body in bodies if isinstance(body, Prompted)),
        root=session.root,
        cwd=session.cwd,
        started_at=turn.opened_at,
        ended_at=turn.last_at,
        bodies=bodies,
        seqs=[row["seq"] for row, _ in readable],
    )
    return evidence_turn, {row["seq"]: row["at"] for row, _ in readable}


def _decode_body(text: str) -> Body | None:
    """Decode an event, or return None: one damaged event must not make the page fail."""
    try:
        body: Body = _BODY_DECODER.decode(text)
    except msgspec.MsgspecError:
        return None
    return body


def count_turn_events(conn: Connection, turn_id: int) -> int:
    """Return how many events a turn has."""
    return int(fetch_value(conn, "select count(*) from events where turn_id = ?", (turn_id,)))


# --- later turns -------------------------------------------------------------------------------------------------------


def find_turns_running(conn: Connection, session_id: int, commands: Sequence[str], *, after: int) -> set[int]:
    """Return the turns that had not ended by `after` and ran one of these commands."""
    turn_rows = fetch_all(
        conn,
        """
        select distinct d.turn_id from documents d cross join signals f on f.document_id = d.id
         where d.session_id = ? and d.kind = 'turn' and d.created_at >= ?
           and f.kind = 'command' and +f.value in (select value from json_each(?))
        """,
        (session_id, after, encode_json(commands)),
    )
    return {row["turn_id"] for row in turn_rows}


# --- items of injections ---------------------------------------------------------------------------------------------


def load_named_items(conn: Connection, names: Iterable[str]) -> dict[str, NamedItem]:
    """Return observations (`o12`) and summaries (`s5`) as they are now: title, files, and whether they still exist."""
    unique_names = {memory_name(name) for name in names}
    ids_json = {
        kind: encode_json([int(name[1:]) for name in unique_names if name[:1] == kind and name[1:].isdigit()])
        for kind in "os"
    }
    item_rows = fetch_all(
        conn,
        """
        select 'o' || id as name, id, type, title, forgotten, files_read, files_modified as files_edited
          from observations where id in (select value from json_each(?))
        """,
        (ids_json["o"],),
    )
    item_rows += fetch_all(
        conn,
        """
        select 's' || id as name, id, null as type, coalesce(completed, request) as title, 0 as forgotten, files_read,
               files_edited
          from session_summaries where id in (select value from json_each(?))
        """,
        (ids_json["s"],),
    )
    return {
        row["name"]: NamedItem(
            id=row["id"],
            type=row["type"],
            title=row["title"],
            forgotten=bool(row["forgotten"]),
            files=[*_decode_list(row["files_read"]), *_decode_list(row["files_edited"])],
        )
        for row in item_rows
    }


# --- raw events ------------------------------------------------------------------------------------------------------


def list_raw_events(conn: Connection, session_id: int, *, number: int | None, start: int, limit: int) -> list[RawEvent]:
    """Return stored events: those of one turn by time, those of the whole session in order of arrival."""
    where, order, parent_id = "session_id = ?", "seq", session_id
    if number is not None:
        turn = fetch_value(conn, "select id from turns where session_id = ? and number = ?", (session_id, number))
        if turn is None:
            raise NotFound(f"session {session_id} has no turn {number}")
        where, order, parent_id = "turn_id = ?", "at, seq", int(turn)
    event_rows = fetch_all(
        conn,
        f"""
        select seq, turn_id, kind, at, tool_use_id, source, body from events
         where {where} order by {order} limit ? offset ?
        """,
        (parent_id, limit, start),
    )
    return [RawEvent(**{**row, "body": _decode_stored(row["body"])}) for row in event_rows]


def _decode_stored(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return {"type": "damaged", "text": text}


def _decode_list(text: str) -> list[str]:
    return msgspec.json.decode(text, type=list[str])
