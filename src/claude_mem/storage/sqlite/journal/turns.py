"""Turns: which are open, what is in them, and which are still to be digested."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from claude_mem.domain.records import WRITER_VERSION, Body, EarlierReads, Event, Exchange, Prompted, Turn
from claude_mem.domain.session_reports import OpenTurn, TurnRecord
from claude_mem.domain.text import normalize_title
from claude_mem.privacy import external, trust
from claude_mem.storage.journal_records import DIGEST_BACKFILLED_JOB, REPROCESS_JOB, TurnState
from claude_mem.storage.sqlite.deletion import tombstones
from claude_mem.storage.sqlite.engine import Connection, Row, fetch_all, fetch_one, fetch_records, fetch_value
from claude_mem.storage.sqlite.journal import arrival_order
from claude_mem.storage.sqlite.memory import sessions
from claude_mem.storage.sqlite.memory.trusted_sources import (
    get_project_place,
    get_trusted_sources,
    is_from_trusted_sources,
)
from claude_mem.system.failpoints import failpoint

MAX_CLOCK_SKEW_MS = 10_000  # largest difference between two clocks for the same prompt
MAX_IMPORT_DELAY_MS = 3_600_000  # longest time between a prompt and its first imported memory
MAX_PREVIOUS_TURNS = 3
MAX_CARRIED_EVENTS, MAX_CARRIED_CHARS = 150, 60_000  # events of earlier turns, and characters of each kind

_TRUSTED_OR_APPROVED = f"(o.trust in {trust.TRUSTED} or o.verdict = 'approved')"
_CARRIED_KINDS = {"": "own", external.BUILD: "built"}
_DECODE = msgspec.json.Decoder(Body)


def _turn_state(row: Row | None) -> TurnState | None:
    if row is None:
        return None
    closed, faded = row["closed_at"] is not None, bool(row["events_purged"])
    return TurnState(row["id"], row["number"], bool(row["private"]), closed, row["prompt_id"], faded)


def find_latest_turn(conn: Connection, session_id: int) -> TurnState | None:
    """Return the newest turn of the session."""
    query = "select * from turns where session_id = ? order by opened_at desc, number desc limit 1"
    return _turn_state(fetch_one(conn, query, (session_id,)))


def clamp_to_last_event(conn: Connection, session_id: int, time_ms: int) -> int:
    """Return this time, or the time of the session's last event if that is later.

    The clock may have been set back, and what is reported next must not begin or end earlier than what it follows.
    """
    last = fetch_value(conn, "select max(last_at) from turns where session_id = ?", (session_id,))
    return max(time_ms, last or 0)


def find_turn_at(conn: Connection, session_id: int, time_ms: int) -> TurnState | None:
    """Return the turn in which something happened.

    Needed for subagent transcripts, which name no prompt and arrive late.
    """
    query = "select * from turns where session_id = ? and opened_at <= ? order by opened_at desc, number desc limit 1"
    return _turn_state(fetch_one(conn, query, (session_id, time_ms))) or find_latest_turn(conn, session_id)


def find_turn_by_prompt(conn: Connection, session_id: int, prompt_id: str) -> TurnState | None:
    """Return the turn of a prompt id, or None."""
    query = "select * from turns where session_id = ? and prompt_id = ?"
    return _turn_state(fetch_one(conn, query, (session_id, prompt_id))) if prompt_id else None


def open_turn(conn: Connection, session_id: int, *, at: int, prompt_id: str = "", private: bool = False) -> TurnState:
    """Open a new turn with the next prompt number."""
    number = sessions.next_prompt_number(conn, session_id)
    row = fetch_one(
        conn,
        """
        insert into turns (session_id, number, prompt_id, private, opened_at, last_at)
        values (?, ?, nullif(?, ''), ?, ?, ?) returning *
        """,
        (session_id, number, prompt_id, int(private), at, at),
    )
    turn = _turn_state(row)
    assert turn is not None
    return turn


def touch_turn(conn: Connection, turn_id: int, *, at: int) -> None:
    """Record activity: a closed turn is opened again and will be digested again."""
    conn.execute(
        "update turns set last_at = max(last_at, ?), closed_at = null, closed_by = null, digested_at = null"
        " where id = ?",
        (at, turn_id),
    )


def mark_turn_extended(conn: Connection, turn_id: int, *, at: int) -> None:
    """Record that something was added to a turn that may be closed: digest it again, but do not wait for more."""
    conn.execute("update turns set last_at = max(last_at, ?), digested_at = null where id = ?", (at, turn_id))


def close_turn(conn: Connection, turn_id: int, *, by: str, at: int) -> None:
    """Close a turn unless it is closed already."""
    conn.execute("update turns set closed_at = ?, closed_by = ? where id = ? and closed_at is null", (at, by, turn_id))


def close_open_turns(conn: Connection, session_id: int, *, by: str, at: int) -> bool:
    """Close the session's open turns that began at or before `at`.

    A turn read from a transcript must not close one that is running.
    """
    conn.execute(
        "update turns set closed_at = ?1, closed_by = ?2"
        " where session_id = ?3 and closed_at is null and opened_at <= ?1",
        (at, by, session_id),
    )
    return conn.changes() > 0


def has_later_turn(conn: Connection, turn_id: int) -> bool:
    """Return whether the session has a later turn than this one."""
    query = "select 1 from turns a join turns b using (session_id) where a.id = ? and b.opened_at > a.opened_at"
    return bool(fetch_value(conn, query, (turn_id,)))


def list_silent_turns(conn: Connection, *, before: int) -> list[OpenTurn]:
    """Return open turns without activity since `before`.

    Sessions that are being back-filled are excluded: all their events are old, and more are coming.
    """
    return fetch_records(
        conn,
        OpenTurn,
        """
        select id, session_id, last_at from turns where closed_at is null and last_at < ?
           and session_id not in (select f.session_id from backfill_files f
                                    join jobs j on j.kind = 'backfill' and j.subject = f.id || '.' || f.parts
                                   where f.state = 'waiting' and f.session_id > 0 and not j.dead)
         order by id
        """,
        (before,),
    )


def list_undigested_turns(conn: Connection, session_id: int) -> list[tuple[int, int]]:
    """Return closed turns that are not digested, each with its newest `seq`, which makes the job's subject unique."""
    turn_rows = fetch_all(
        conn,
        """
        select t.id, coalesce(max(e.seq), 0) as seq
          from turns t left join events e on e.turn_id = t.id
         where t.session_id = ? and t.closed_at is not null and t.digested_at is null and not t.private
         group by t.id having seq > 0 order by t.number
        """,
        (session_id,),
    )
    return [(row["id"], row["seq"]) for row in turn_rows]


def has_more_old_turns(conn: Connection, project_id: int) -> bool:
    """Return whether more back-filled or outdated turns of this project wait to be digested."""
    return bool(
        fetch_value(
            conn,
            """
            select 1 from jobs j join turns t on t.id = cast(j.subject as integer)
              join sdk_sessions s on s.id = t.session_id
             where j.kind in (?, ?) and not j.dead and s.project_id = ? limit 1
            """,
            (DIGEST_BACKFILLED_JOB, REPROCESS_JOB, project_id),
        )
    )


def mark_turn_digested(conn: Connection, turn: Turn, *, now: int) -> None:
    """Mark the turn as digested, unless events were added since it was loaded: then another job digests it."""
    conn.execute(
        "update turns set digested_at = ?1, writer = ?4"
        " where id = ?2 and ?3 = (select max(seq) from events where turn_id = ?2)",
        (now, turn.id, turn.newest_seq, WRITER_VERSION),
    )
    failpoint("store.digested")


def mark_turn_skipped(conn: Connection, turn_id: int, *, now: int) -> None:
    """Mark a turn as digested without a result, because a person dropped its job.

    It is digested only if more events arrive.
    """
    conn.execute(
        "update turns set digested_at = ?, writer = ? where id = ? and closed_at is not null and digested_at is null",
        (now, WRITER_VERSION, turn_id),
    )


def is_turn_current(conn: Connection, turn: Turn) -> bool:
    """Return whether no event was added or deleted since the turn was loaded, and the turn is not private."""
    newest = fetch_value(conn, "select max(seq) from events where turn_id = ?", (turn.id,))
    return newest == turn.newest_seq and is_turn_public(conn, turn.id) and has_all_loaded_events(conn, turn)


def has_all_loaded_events(conn: Connection, turn: Turn) -> bool:
    """Return whether all loaded events still exist.

    Events that were deleted in the meantime must not come back in a digest.
    """
    seqs = msgspec.json.encode(list(turn.seqs)).decode()
    query = "select count(*) from events where turn_id = ? and seq in (select value from json_each(?))"
    return bool(fetch_value(conn, query, (turn.id, seqs)) == len(turn.seqs))


def is_turn_live(conn: Connection, turn_id: int) -> bool:
    """Return whether a hook or a client reported the turn; otherwise it was only read from an old transcript."""
    return bool(
        fetch_value(conn, "select 1 from events where turn_id = ? and source != 'transcript' limit 1", (turn_id,))
    )


def is_turn_imported(conn: Connection, turn_id: int) -> bool:
    """Return whether the turn was imported before any of its events were captured here."""
    return bool(fetch_value(conn, "select closed_by = 'import' from turns where id = ?", (turn_id,)))


def is_turn_public(conn: Connection, turn_id: int) -> bool:
    """Return whether the turn exists and is not private."""
    return bool(fetch_value(conn, "select not private from turns where id = ?", (turn_id,)))


def make_turn_private(conn: Connection, turn_id: int) -> None:
    """Make a turn private: delete all its content and record its events as filtered."""
    conn.execute(
        "update sdk_sessions set subtitle = null where id = (select session_id from turns where id = ?)", (turn_id,)
    )
    conn.execute(
        "update sdk_sessions set title = null, first_prompt = null"
        " where id = (select session_id from turns where id = ? and number = 1)",
        (turn_id,),
    )
    conn.execute(
        "update receipts set outcome = 'filtered', rule = 'private'"
        " where event_id in (select event_id from events where turn_id = ?)",
        (turn_id,),
    )
    for table in ("events", "user_prompts", "observations", "session_summaries"):
        conn.execute(f"delete from {table} where turn_id = ?", (turn_id,))
    conn.execute("update turns set private = 1, digested_at = null where id = ?", (turn_id,))


def find_turn_by_text(conn: Connection, session_id: int, text: str, at: int) -> TurnState | None:
    """Return the turn of a prompt without a prompt id: the same words, nearest in time.

    An imported turn may have other words or none, so there the time decides.
    """
    return _turn_state(
        fetch_one(
            conn,
            f"""
            select t.* from turns t left join user_prompts p on p.turn_id = t.id
             where t.session_id = :session and t.prompt_id is null
               and (trim(p.text) = trim(:text) or (t.closed_by = 'import' and (
                    abs(p.created_at - :at) <= {MAX_CLOCK_SKEW_MS}
                    or (p.id is null and t.opened_at between :at - {MAX_CLOCK_SKEW_MS} and :at + {MAX_IMPORT_DELAY_MS}))))
             order by abs(coalesce(p.created_at, t.opened_at) - :at) limit 1
            """,
            {"session": session_id, "text": text, "at": at},
        )
    )


def is_prompt_known(conn: Connection, host: str, prompt_id: str) -> bool:
    """Return whether any session of the agent has this prompt.

    The transcript of a forked session begins with a copy of another session.
    """
    return bool(
        fetch_value(
            conn,
            "select 1 from turns t join sdk_sessions s on s.id = t.session_id where t.prompt_id = ? and s.host = ?",
            (prompt_id, host),
        )
    )


def set_prompt_id(conn: Connection, turn_id: int, prompt_id: str) -> None:
    """Set the turn's prompt id if it has none."""
    conn.execute("update turns set prompt_id = ? where id = ? and prompt_id is null", (prompt_id, turn_id))


_TURN_QUERY = """
    select t.id, t.session_id, t.number, t.opened_at, t.last_at, s.project_id, s.cwd, s.host, p.root
      from turns t join sdk_sessions s on s.id = t.session_id join projects p on p.id = s.project_id
     where not t.private
"""


def load_turn(conn: Connection, turn_id: int, *, with_earlier: bool = True) -> Turn | None:
    """Return everything that is needed to digest a turn, or None if it does not exist or is private.

    `with_earlier`: include what earlier turns of the session have read, to compare the turn's text with it.
    """
    row = fetch_one(conn, f"{_TURN_QUERY} and t.id = ?", (turn_id,))
    if row is None:
        return None
    query = f"select {arrival_order.ORDER_COLUMNS}, origin, body from events where turn_id = ?"
    event_rows = arrival_order.order_events(fetch_all(conn, query, (turn_id,)))
    bodies: list[Body] = [_DECODE.decode(event["body"]) for event in event_rows]
    event_origins = [
        event["origin"] or trust.origin_of(body, cwd=row["cwd"]) for event, body in zip(event_rows, bodies, strict=True)
    ]
    seqs = tuple(event["seq"] for event in event_rows)
    return _build_turn(conn, row, bodies, event_origins, seqs=seqs, with_earlier=with_earlier)


def load_turn_from_transcript(conn: Connection, turn_id: int, events: Sequence[Event]) -> Turn | None:
    """Build a turn from its transcript, after its stored events were purged.

    Return None if the turn does not exist or is private, or if anything in it was deleted here. The `seqs` are not
    those of any stored events.
    """
    row = fetch_one(conn, f"{_TURN_QUERY} and t.id = ?", (turn_id,))
    if row is None or tombstones.is_summary_tombstoned(conn, turn_id, at=row["last_at"]):
        return None
    if any(tombstones.is_event_tombstoned(conn, event) for event in events):
        return None
    bodies = [event.body for event in events]
    event_origins = [event.origin or trust.origin_of(event.body, cwd=row["cwd"]) for event in events]
    return _build_turn(conn, row, bodies, event_origins, seqs=tuple(range(1, len(events) + 1)))


def _build_turn(
    conn: Connection,
    row: Row,
    bodies: Sequence[Body],
    event_origins: Sequence[str],
    *,
    seqs: tuple[int, ...],
    with_earlier: bool = True,
) -> Turn:
    trusted_sources = get_trusted_sources(conn, row["project_id"])
    place = get_project_place(conn, row["project_id"])
    return Turn(
        id=row["id"],
        session_id=row["session_id"],
        project_id=row["project_id"],
        number=row["number"],
        prompt="\n".join(body.text for body in bodies if isinstance(body, Prompted)),
        root=row["root"],
        cwd=row["cwd"],
        started_at=row["opened_at"],
        ended_at=row["last_at"],
        bodies=tuple(bodies),
        seqs=seqs,
        origins=tuple(
            trust.TOOL if origin == trust.EXTERNAL and is_from_trusted_sources(body, trusted_sources, place) else origin
            for origin, body in zip(event_origins, bodies, strict=True)
        ),
        remotes=place.remotes,
        known_titles=_load_known_titles(conn, row["session_id"], before=row["number"]),
        host=row["host"],
        previous=_load_previous(conn, row["session_id"], before=row["number"]),
        earlier_reads=_load_carried(conn, row, trusted_sources) if with_earlier else EarlierReads(),
        trusted_sources=trusted_sources,
    )


def _load_carried(conn: Connection, row: Row, trusted_sources: frozenset[str]) -> EarlierReads:
    """Return the newest texts that earlier turns of the session have read."""
    event_rows = fetch_all(
        conn,
        """
        select e.origin, e.body from events e join turns t on t.id = e.turn_id
         where e.session_id = ? and t.number < ? and not t.private and e.kind in ('tool', 'subagent_stop')
         order by e.seq desc limit ?
        """,
        (row["session_id"], row["number"], MAX_CARRIED_EVENTS),
    )
    fetched = frozenset().union(*(_fetched_by(event["body"]) for event in event_rows)) if event_rows else frozenset()
    here = external.Workspace(row["root"], row["cwd"], fetched)
    texts: dict[str, list[str]] = {"foreign": [], "built": [], "own": []}
    chars_left = dict.fromkeys(texts, MAX_CARRIED_CHARS)
    for event in event_rows:
        source = _foreign_source(event["body"], event["origin"] or "", here)
        if source in trusted_sources or chars_left[kind := _CARRIED_KINDS.get(source, "foreign")] <= 0:
            continue
        if kind == "own" and _is_reading(event["body"]):
            continue  # the agent may have written into that file what it had read elsewhere
        event_texts = _foreign_texts(event["body"])
        texts[kind] += event_texts
        chars_left[kind] -= sum(map(len, event_texts))
    return EarlierReads(tuple(texts["foreign"]), tuple(texts["built"]), tuple(texts["own"]), fetched)


@lru_cache(maxsize=512)
def _fetched_by(body: str) -> frozenset[str]:
    return external.find_fetched([_DECODE.decode(body)]) if external.may_fetch(body) else frozenset()


@lru_cache(maxsize=512)  # consecutive turns decode mostly the same events
def _foreign_source(body: str, origin: str, here: external.Workspace) -> str:
    """Return the external source of an event's text, or an empty string if it has none."""
    return external.foreign_kind(_DECODE.decode(body), here) if origin in trust.TRUSTED else origin


@lru_cache(maxsize=512)
def _is_reading(body: str) -> bool:
    return external.reads_files(_DECODE.decode(body))


@lru_cache(maxsize=512)
def _foreign_texts(body: str) -> tuple[str, ...]:
    return tuple(external.foreign_texts(_DECODE.decode(body)))


def _load_previous(conn: Connection, session_id: int, *, before: int) -> tuple[Exchange, ...]:
    """Return the last few turns before this one, the nearest last.

    Private turns are left out, and so are closing messages that may repeat external text.
    """
    exchange_rows = fetch_all(
        conn,
        f"""
        select p.text, coalesce(s.closing, '') as closing from turns t join user_prompts p on p.turn_id = t.id
          left join session_summaries s on s.turn_id = t.id and s.closing_trust in {trust.TRUSTED}
         where t.session_id = ? and t.number < ? and not t.private order by t.number desc limit ?
        """,
        (session_id, before, MAX_PREVIOUS_TURNS),
    )
    return tuple(Exchange(row["text"], row["closing"] or "") for row in reversed(exchange_rows))


def _load_known_titles(conn: Connection, session_id: int, *, before: int) -> frozenset[str]:
    """Return the normalized titles of the trusted observations from earlier turns of the session."""
    title_rows = fetch_all(
        conn,
        "select title from observations o"
        f" where session_id = ? and prompt_number < ? and title is not null and {_TRUSTED_OR_APPROVED}",
        (session_id, before),
    )
    return frozenset(normalize_title(row["title"]) for row in title_rows)


def list_turns(conn: Connection, session_id: int) -> list[TurnRecord]:
    """Return the turns of a session by number."""
    return fetch_records(
        conn,
        TurnRecord,
        """
        select id, number, private, opened_at, closed_at, closed_by, digested_at from turns
         where session_id = ? order by number
        """,
        (session_id,),
    )
