"""The search index, and the rankings it answers with: by words, and by exact signals such as files, errors and commits.

The table `index_queue` is the index queue; triggers fill it. Each ranking function returns scored documents and decides
nothing: `recall/rank.py` weighs the rankings against each other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import msgspec

from claude_mem.domain.memory_items import DocumentSource, MemoryItem, SavedNeighbour
from claude_mem.domain.reports import IndexCounts
from claude_mem.storage.external_db import fetch_tuples
from claude_mem.storage.records import (
    PASSAGES_PER_DOCUMENT,
    Document,
    FileTouch,
    PassageMatch,
    PendingPassage,
    SearchFilter,
    SignalMatch,
    StoredVector,
    WordScores,
)
from claude_mem.storage.sqlite.engine import (
    Connection,
    fetch_all,
    fetch_one,
    fetch_record,
    fetch_records,
    fetch_value,
)
from claude_mem.storage.sqlite.memory.observations import INJECTABLE, VALIDITY, encode_json

# BM25 weights of title, body, hints and around. The text around a passage counts least.
BM25_WEIGHTS = "1.5, 1.0, 0.5, 0.3"
# Limits per query, the rarest words first: common words say little and cost the most. Passages that are read only to
# find that they are out of scope cost less than those that are scored.
MAX_MATCHES, MAX_SCANNED_PASSAGES = 4_000, 16_000
MAX_QUERY_WORDS = 24
_SOURCES = {
    "observation": """
        select o.*, coalesce(u.text, '') as prompt
          from observations o left join user_prompts u on u.turn_id = o.turn_id
         where o.id = ? and not o.forgotten and o.verdict != 'wrong'
    """,
    "summary": "select * from session_summaries where id = ? and verdict != 'wrong'",
    "prompt": """
        select u.*, s.project_id from user_prompts u join sdk_sessions s on s.id = u.session_id where u.id = ?
    """,
    "turn": """
        select t.id, t.session_id, t.number, t.last_at, s.project_id
          from turns t join sdk_sessions s on s.id = t.session_id
         where t.id = ? and not t.private
    """,
}
_INJECTABLE_ONLY = f"""
    not exists (select 1 from observations o where d.kind = 'observation' and o.id = d.row_id and not {INJECTABLE})
    and not exists (select 1 from session_summaries o where d.kind = 'summary' and o.id = d.row_id and not {INJECTABLE})
"""
_OBSERVATION_WHERE = "(d.kind = 'observation' and exists (select 1 from observations o where o.id = d.row_id and {}))"
_ABOUT_FILES = """
    exists (select 1 from signals f join json_each(:files) w
             where f.document_id = d.id and f.kind in ('edited', 'read')
               and (f.value = w.value or f.value like '%/' || w.value or f.value like w.value || '/%'))
"""


# --- records ---------------------------------------------------------------------------------------------------------


# --- the index queue -------------------------------------------------------------------------------------------------


def list_index_queue(conn: Connection, *, limit: int) -> list[tuple[str, int]]:
    """Return what has to be indexed, newest first. A turn that is still open is skipped until it closes."""
    queue_rows = fetch_all(
        conn,
        """
        select s.kind, s.row_id from index_queue s left join turns t on s.kind = 'turn' and t.id = s.row_id
         where s.kind != 'turn' or t.closed_at is not null order by s.row_id desc limit ?
        """,
        (limit,),
    )
    return [(row["kind"], row["row_id"]) for row in queue_rows]


def has_index_queue(conn: Connection) -> bool:
    """Return whether anything can be indexed now."""
    return bool(list_index_queue(conn, limit=1))


def remove_from_index_queue(conn: Connection, kind: str, row_id: int) -> None:
    """Remove a row from the index queue after it was indexed."""
    conn.execute("delete from index_queue where kind = ? and row_id = ?", (kind, row_id))


def queue_full_reindex(conn: Connection) -> None:
    """Queue everything for indexing (`claude-mem reindex`)."""
    rebuild_word_index(conn)  # because `upsert_document` does not write unchanged passages
    conn.execute("insert or ignore into index_queue select 'observation', id from observations where not forgotten")
    conn.execute("insert or ignore into index_queue select 'summary', id from session_summaries")
    conn.execute("insert or ignore into index_queue select 'prompt', id from user_prompts")
    conn.execute("insert or ignore into index_queue select 'turn', id from turns where not private")


def count_index(conn: Connection, model: str) -> IndexCounts:
    """Return how complete the index is."""
    return IndexCounts(
        documents=fetch_value(conn, "select count(*) from documents"),
        stale=fetch_value(conn, "select count(*) from index_queue"),
        vectors=fetch_value(conn, "select count(distinct document_id) from vectors where model = ?", (model,)),
    )


# --- documents -------------------------------------------------------------------------------------------------------


def upsert_document(conn: Connection, document: Document) -> int:
    """Add or replace a document and return its id."""
    row = fetch_one(
        conn,
        """
        insert into documents (kind, row_id, project_id, session_id, turn_id, created_at, trust)
        values (?, ?, ?, ?, ?, ?, ?)
        on conflict (kind, row_id) do update set project_id = excluded.project_id, session_id = excluded.session_id,
               turn_id = excluded.turn_id, created_at = excluded.created_at, trust = excluded.trust
        returning id
        """,
        (
            document.kind,
            document.row_id,
            document.project_id,
            document.session_id,
            document.turn_id,
            document.created_at,
            document.trust,
        ),
    )
    assert row is not None
    document_id = int(row["id"])
    _replace_passages(conn, document_id, document)
    _replace_signals(conn, document_id, document.signals)
    if document.kind == "turn":  # a turn contains its prompt: a second vector of the same text would crowd out others
        own_prompt = "select id from documents where kind = 'prompt' and turn_id = ?"
        conn.execute(f"delete from vectors where document_id in ({own_prompt})", (document.turn_id,))
    return document_id


def _replace_passages(conn: Connection, document_id: int, document: Document) -> None:
    """Replace the document's passages. Unchanged ones are not written, so that their vectors stay valid."""
    passages = document.passages[:PASSAGES_PER_DOCUMENT]
    first_passage_id = document_id * PASSAGES_PER_DOCUMENT
    conn.execute(
        "delete from passages where document_id = ? and id >= ?",
        (document_id, first_passage_id + len(passages)),
    )
    conn.executemany(
        """
        insert into passages (id, document_id, title, body, hints, around) values (?, ?, ?, ?, ?, ?)
        on conflict (id) do update set title = excluded.title, body = excluded.body, hints = excluded.hints,
               around = excluded.around
         where (title, body, hints, around) is not (excluded.title, excluded.body, excluded.hints, excluded.around)
        """,
        [
            (
                first_passage_id + part,
                document_id,
                passage.title,
                passage.body,
                passage.hints,
                "" if part else document.around,
            )
            for part, passage in enumerate(passages)
        ],
    )


def _replace_signals(conn: Connection, document_id: int, signals: tuple[tuple[str, str, int], ...]) -> None:
    """Replace the document's signals. Unchanged rows stay: triggers count files on every insert and delete."""
    conn.execute(
        "delete from signals where document_id = ?"
        " and (kind, value) not in (select value ->> 0, value ->> 1 from json_each(?))",
        (document_id, encode_json(signals)),
    )
    conn.executemany(
        "insert into signals values (?, ?, ?, ?)"
        " on conflict do update set times = excluded.times where times != excluded.times",
        [(document_id, *signal) for signal in signals],
    )


def delete_document(conn: Connection, kind: str, row_id: int) -> None:
    """Remove a row from the index."""
    conn.execute("delete from documents where kind = ? and row_id = ?", (kind, row_id))


def set_turn_surroundings(conn: Connection, turn_id: int, around: str) -> None:
    """Set the surrounding text of a turn's documents. Observations are excluded: theirs is the turn's own prompt."""
    conn.execute(
        """
        update passages set around = ?1
         where around != ?1 and id in (select id * 1000 from documents where turn_id = ?2 and kind != 'observation')
        """,
        (around, turn_id),
    )


def set_saved_surroundings(conn: Connection, row_id: int, around: str) -> None:
    """Set the surrounding text of an observation that was saved by hand."""
    conn.execute(
        """
        update passages set around = ?1
         where around != ?1 and id = (select id * 1000 from documents where kind = 'observation' and row_id = ?2)
        """,
        (around, row_id),
    )


def rebuild_word_index(conn: Connection) -> None:
    """Rebuild the FTS index from the passages."""
    conn.execute("insert into words (words) values ('rebuild')")


def check_word_index(conn: Connection) -> None:
    """Raise if the FTS index does not match the passages."""
    conn.execute("insert into words (words, rank) values ('integrity-check', 1)")


# --- sources of documents --------------------------------------------------------------------------------------------


def get_document_source(conn: Connection, kind: str, row_id: int) -> DocumentSource | None:
    """Return the row a document is made from, or None if it must not be indexed."""
    return fetch_record(conn, DocumentSource, _SOURCES[kind], (row_id,))


def list_neighbour_turns(conn: Connection, turn_id: int) -> list[tuple[int, str, str]]:
    """Return id, prompt and last message of the turns directly before and after.

    If their events were purged, the message comes from the index.
    """
    neighbours = fetch_all(
        conn,
        """
        select near.id, coalesce(u.text, '') as prompt,
               coalesce((select json_extract(e.body, '$.message') from events e where e.turn_id = near.id
                            and e.kind = 'stop' order by e.seq desc limit 1),
                        (select p.body from documents d join passages p on p.id = d.id * 1000
                          where near.events_purged and d.kind = 'turn' and d.row_id = near.id), '') as said
          from turns t join turns near using (session_id) left join user_prompts u on u.turn_id = near.id
         where t.id = ? and near.number in (t.number - 1, t.number + 1) and not near.private order by near.number
        """,
        (turn_id,),
    )
    return [(row["id"], row["prompt"], row["said"]) for row in neighbours]


def list_neighbour_saves(conn: Connection, row: DocumentSource | SavedNeighbour) -> list[SavedNeighbour]:
    """Return the observations saved by hand directly before and after this one, within ten minutes."""
    neighbours: list[SavedNeighbour] = []
    for sign, order in (("<", "desc"), (">", "asc")):
        neighbours += fetch_records(
            conn,
            SavedNeighbour,
            f"""
            select id, project_id, created_at, title, narrative from observations
             where turn_id is null and not forgotten and verdict != 'wrong' and project_id = ? and id {sign} ?
               and abs(created_at - ?) <= 600000 order by id {order} limit 1
            """,
            (row["project_id"], row["id"], row["created_at"]),
        )
    return neighbours


def list_turn_trust_levels(conn: Connection, turn_id: int) -> list[str]:
    """Return the trust levels of all observations and summaries of a turn."""
    query = (
        "select trust from observations where turn_id = ?1 union select trust from session_summaries where turn_id = ?1"
    )
    return [trust for (trust,) in fetch_tuples(conn, query, (turn_id,))]


# --- filters ---------------------------------------------------------------------------------------------------------


def _filter_sql(search_filter: SearchFilter) -> tuple[str, dict[str, object]]:
    """Return conditions on `documents d`, and their parameters."""
    parts: list[str] = []
    values: dict[str, object] = {}

    def add(condition: str, name: str, param: object) -> None:
        parts.append(condition)
        values[name] = encode_json(param) if isinstance(param, tuple) else param

    in_list = "(select value from json_each(:{}))"
    if search_filter.project_ids is not None:
        add(f"d.project_id in {in_list.format('projects')}", "projects", search_filter.project_ids)
    if search_filter.kinds:
        add(f"d.kind in {in_list.format('kinds')}", "kinds", search_filter.kinds)
    if search_filter.types:
        add(_OBSERVATION_WHERE.format(f"o.type in {in_list.format('types')}"), "types", search_filter.types)
    if search_filter.concepts:
        has_concept = f"exists (select 1 from json_each(o.concepts) c where c.value in {in_list.format('concepts')})"
        add(_OBSERVATION_WHERE.format(has_concept), "concepts", search_filter.concepts)
    if search_filter.validities:
        of_validity = f"v.latest and v.validity in {in_list.format('validities')}"
        add(_OBSERVATION_WHERE.format(VALIDITY.format(of_validity)), "validities", search_filter.validities)
    if search_filter.files:
        add(_ABOUT_FILES, "files", search_filter.files)
    if search_filter.since is not None:
        add("d.created_at >= :since", "since", search_filter.since)
    if search_filter.until is not None:
        add("d.created_at <= :until", "until", search_filter.until)
    for name, condition in (("host", "host = :host"), ("session", "content_session_id = :session")):
        if field_value := getattr(search_filter, name):
            add(f"d.session_id in (select id from sdk_sessions where {condition})", name, field_value)
    if search_filter.exclude_session_id:
        add("coalesce(d.session_id, 0) != :but_session", "but_session", search_filter.exclude_session_id)
    if search_filter.injectable_only:
        parts.append(_INJECTABLE_ONLY)
    return "".join(f" and {part}" for part in parts), values


def list_documents_in_scope(conn: Connection, search_filter: SearchFilter) -> list[int]:
    """Return the ids of all documents that the filter covers."""
    where, values = _filter_sql(search_filter)
    return [
        document_id for (document_id,) in fetch_tuples(conn, f"select d.id from documents d where true {where}", values)
    ]


def count_documents_in_scope(conn: Connection, search_filter: SearchFilter) -> int:
    """Return how many documents are in scope.

    The excluded session is counted: it hardly changes how rare a word is, and without that condition the index alone
    can count.
    """
    where, values = _filter_sql(replace(search_filter, exclude_session_id=0))
    return int(fetch_value(conn, f"select count(*) from documents d where true {where}", values))


# --- ranking by words ------------------------------------------------------------------------------------------------


def score_by_words(conn: Connection, terms: Sequence[str], search_filter: SearchFilter) -> WordScores:
    """Score passages by BM25, with word weights computed within the scope.

    A name that is everywhere in this project carries no information here, however rare it is in other projects.
    """
    scores = WordScores()
    total = _count_indexed_passages(conn)
    scope_size = total if search_filter == SearchFilter() else count_documents_in_scope(conn, search_filter)
    matches_left, scans_left = MAX_MATCHES, MAX_SCANNED_PASSAGES
    for term, count in _rarest_terms(conn, terms):
        if scores.matches and (
            count > scans_left or (count > matches_left and scope_size == total) or matches_left <= 0
        ):
            break
        scans_left -= count
        # SQLite multiplies by the word's weight over all projects; `_add_scores` replaces it by the weight in scope.
        global_weight = max(math.log((total - count + 0.5) / (count + 0.5)), 1e-6) if count < total else 1e-6
        matches = _match_term(conn, term, search_filter)
        _add_scores(scores, term, matches, global_weight=global_weight, scope_size=scope_size)
        matches_left -= len(matches)
    return scores


def _count_indexed_passages(conn: Connection) -> int:
    """Return the number of passages from the FTS index's own record; counting rows would take milliseconds."""
    block = fetch_value(conn, "select block from words_data where id = 1")
    number = 0
    for byte in block or b"":
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return number


def _rarest_terms(conn: Connection, terms: Sequence[str]) -> list[tuple[str, int]]:
    term_counts = [(term, _count_passages_with(conn, term)) for term in terms]
    return sorted(((term, count) for term, count in term_counts if count), key=lambda pair: pair[1])[:MAX_QUERY_WORDS]


def _count_passages_with(conn: Connection, term: str) -> int:
    """Count the passages that contain the term, up to `MAX_SCANNED_PASSAGES` + 1."""
    limited_sql = "select 1 from words where words match ? limit ?"
    return int(
        fetch_value(conn, f"select count(*) from ({limited_sql})", (_quote_term(term), MAX_SCANNED_PASSAGES + 1))
    )


class _TermMatch(NamedTuple):
    """A passage that contains a term, and its rank in SQLite."""

    passage: int
    group: int
    thread: int
    rank: float


def _match_term(conn: Connection, term: str, search_filter: SearchFilter) -> list[_TermMatch]:
    where, values = _filter_sql(search_filter)
    match_rows = fetch_tuples(
        conn,
        f"""
        select words.rowid, coalesce(d.turn_id, -d.id), coalesce(d.session_id, -d.project_id), bm25(words, {BM25_WEIGHTS})
          from words join documents d on d.id = words.rowid / {PASSAGES_PER_DOCUMENT} where words match :term {where}
         order by words.rowid desc limit {MAX_MATCHES}
        """,
        {**values, "term": _quote_term(term)},
    )
    return [_TermMatch(*row) for row in match_rows]


def _add_scores(
    scores: WordScores, term: str, passage_rows: list[_TermMatch], *, global_weight: float, scope_size: int
) -> None:
    if not passage_rows:
        return
    match_count = min(len(passage_rows), scope_size)
    weight = math.log(1 + (scope_size - match_count + 0.5) / (match_count + 0.5))
    factor, bit = weight / global_weight, 1 << len(scores.terms)
    scores.terms.append(term)
    scores.weights.append(weight)
    matches = scores.matches
    for passage, group, thread, rank in passage_rows:
        if match := matches.get(passage):
            match.score -= rank * factor
            match.terms |= bit
        else:
            matches[passage] = PassageMatch(-rank * factor, group, thread, bit)


def _quote_term(term: str) -> str:
    """Quote a term so that FTS5 never reads it as query syntax."""
    return '"' + term.replace('"', "") + '"'


def complete_last_word(conn: Connection, text: str) -> str:
    """Complete a query that is still being typed.

    The last word is replaced by up to three indexed words that start with it, or removed if there are none.
    """
    match = re.search(r"(?<![^\W_])[^\W_]++$", text)
    if not match or fetch_value(conn, "select 1 from words where words match ? limit 1", (f'"{match[0]}"',)):
        return text
    conn.execute("create virtual table if not exists temp.vocabulary using fts5vocab(main, words, row)")
    prefix = match[0].casefold()
    term_rows = fetch_tuples(
        conn,
        "select term from vocabulary where term >= ? and term < ? order by doc desc limit 3",
        (prefix, prefix + "\U0010ffff"),
    )
    return text[: match.start()] + " ".join(term for (term,) in term_rows)


# --- looking up signals and documents --------------------------------------------------------------------------------


def find_by_signal(
    conn: Connection, search_filter: SearchFilter, *, kinds: Sequence[str], values: Iterable[str]
) -> list[SignalMatch]:
    """Return documents that have exactly one of these files, errors, commands, commits or branches."""
    where, params = _filter_sql(search_filter)
    return fetch_records(
        conn,
        SignalMatch,
        f"""
        select d.id, coalesce(d.turn_id, -d.id) as "group", coalesce(d.session_id, -d.project_id) as thread,
               f.kind, f.value
          from signals f join documents d on d.id = f.document_id
         where f.kind in (select value from json_each(:signal_kinds))
           and f.value in (select value from json_each(:values)) {where} limit 5000
        """,
        {**params, "values": encode_json(list(values)), "signal_kinds": encode_json(list(kinds))},
    )


def find_paths_by_suffix(conn: Connection, suffixes: Sequence[str]) -> list[str]:
    """Return known files with these path suffixes: `jwt.py` matches `src/auth/jwt.py`.

    Looked up by bare file name, which is a signal of its own; comparing suffixes would scan every path.
    """
    path_rows = fetch_all(
        conn,
        """
        select distinct f.value from signals n join signals f on f.document_id = n.document_id
         where n.kind = 'name' and n.value in (select value from json_each(?)) and f.kind in ('edited', 'read')
         limit 2000
        """,
        (encode_json([suffix.rpartition("/")[2] for suffix in suffixes]),),
    )
    paths = [row["value"] for row in path_rows]
    return [path for path in paths if any(path == suffix or path.endswith("/" + suffix) for suffix in suffixes)][:200]


def find_commits_by_prefix(conn: Connection, prefixes: Sequence[str]) -> list[str]:
    """Return known commit ids with these prefixes."""
    commit_ids: list[str] = []
    for prefix in prefixes:
        range_sql = "select distinct value from signals where kind = 'commit' and value >= ? and value < ? limit 20"
        commit_ids += [row["value"] for row in fetch_all(conn, range_sql, (prefix, prefix + "g"))]
    return commit_ids


def list_documents_by_date(
    conn: Connection, search_filter: SearchFilter, *, limit: int, offset: int, oldest_first: bool = False
) -> list[int]:
    """Return document ids by date, for a listing without a query.

    Turns are left out unless requested: their text only serves to find what they produced.
    """
    where, values = _filter_sql(search_filter)
    order = "asc" if oldest_first else "desc"
    without_turns = "" if search_filter.kinds else " and d.kind != 'turn'"
    document_rows = fetch_tuples(
        conn,
        f"select d.id from documents d where true {where}{without_turns} order by d.created_at {order}, d.id {order}"
        " limit :limit offset :offset",
        {**values, "limit": limit, "offset": offset},
    )
    return [document_id for (document_id,) in document_rows]


def list_turn_documents(
    conn: Connection, groups: Sequence[int], search_filter: SearchFilter
) -> dict[int, list[tuple[int, str]]]:
    """Return all documents of these turns that are in scope: by turn, their ids and kinds."""
    where, values = _filter_sql(search_filter)
    document_rows = fetch_tuples(
        conn,
        f"""
        select d.turn_id, d.id, d.kind from json_each(:turns) w join documents d on d.turn_id = w.value
         where true {where} order by d.id
        """,
        {**values, "turns": encode_json([group for group in groups if group > 0])},
    )
    by_turn: dict[int, list[tuple[int, str]]] = {}
    for turn_id, document_id, kind in document_rows:
        by_turn.setdefault(turn_id, []).append((document_id, kind))
    return by_turn


def list_touched_files(conn: Connection, search_filter: SearchFilter, *, most_turns: int) -> list[FileTouch]:
    """Return which of the newest turns touched which files, oldest first, to predict where work will continue."""
    where, values = _filter_sql(search_filter)
    rows = fetch_tuples(
        conn,
        f"""
        select d.turn_id, d.session_id, f.kind, f.value, f.times
          from (select * from documents d where d.kind = 'turn' {where} order by d.created_at desc limit :turns) d
          join signals f on f.document_id = d.id
         where f.kind in ('edited', 'read') order by d.created_at, d.id
        """,
        {**values, "turns": most_turns},
    )
    return list(map(FileTouch._make, rows))


def find_last_touch(conn: Connection, project_id: int, path: str, *, exclude_content_session_id: str, host: str) -> int:
    """Return when another session of a project last edited or read a file; 0 if none did."""
    at = fetch_value(
        conn,
        """
        select max(d.created_at) from signals f join documents d on d.id = f.document_id
          left join sdk_sessions s on s.id = d.session_id
         where f.kind in ('edited', 'read') and f.value = ? and d.kind = 'turn' and d.project_id = ?
           and not (s.content_session_id is ? and s.host is ?)
        """,
        (path, project_id, exclude_content_session_id, host),
    )
    return int(at or 0)


def load_hits(conn: Connection, document_ids: Sequence[int]) -> dict[int, MemoryItem]:
    """Return what a hit displays, by document id."""
    hits = fetch_all(
        conn,
        """
        select d.id as document_id, d.row_id as id, d.kind, s.content_session_id, s.host, d.session_id,
               d.project_id, p.name as project, d.turn_id, d.created_at, x.title, x.body, o.type,
               coalesce(o.trust, y.trust, nullif(d.trust, '')) as trust,
               coalesce(o.verdict, y.verdict, '') as verdict, o.superseded_by, o.subtitle, o.tokens,
               coalesce(o.prompt_number, y.prompt_number, u.prompt_number, t.number) as prompt_number,
               (select json_group_array(value) from signals where document_id = d.id and kind = 'edited') as edited,
               (select json_group_array(value) from signals where document_id = d.id and kind = 'read') as read
          from json_each(?) w join documents d on d.id = w.value join passages x on x.id = d.id * 1000
          join projects p on p.id = d.project_id left join sdk_sessions s on s.id = d.session_id
          left join observations o on d.kind = 'observation' and o.id = d.row_id
          left join session_summaries y on d.kind = 'summary' and y.id = d.row_id
          left join user_prompts u on d.kind = 'prompt' and u.id = d.row_id
          left join turns t on t.id = d.turn_id
        """,
        (encode_json(list(document_ids)),),
    )
    for row in hits:
        row["files"] = [*msgspec.json.decode(row.pop("edited")), *msgspec.json.decode(row.pop("read"))]
    return {row["document_id"]: cast(MemoryItem, row) for row in hits}


# --- vectors ---------------------------------------------------------------------------------------------------------


def list_passages_without_vector(conn: Connection, model: str, *, limit: int) -> list[PendingPassage]:
    """Return passages that have no vector of this model, newest first.

    Turns and observations are enough: a turn's text contains its prompt and its summary, and its observations say the
    rest. A prompt is embedded only if its turn has no document.
    """
    return fetch_records(
        conn,
        PendingPassage,
        """
        select d.id, x.id - d.id * 1000 as part, d.kind, d.project_id, d.session_id, d.turn_id, d.created_at, x.title,
               x.body
          from (select x.id, d.id as document_id
                  from documents d join passages x on x.document_id = d.id
                 where not exists (select 1 from vectors v
                                    where v.document_id = d.id and v.model = ?1 and v.part = x.id - d.id * 1000)
                   and (d.kind in ('observation', 'turn') or d.kind = 'prompt'
                        and not exists (select 1 from documents t where t.turn_id = d.turn_id and t.kind = 'turn')
                        and exists (select 1 from turns t where t.id = d.turn_id and t.closed_at is not null))
                 order by d.created_at desc, x.id limit ?2) w
          join documents d on d.id = w.document_id join passages x on x.id = w.id
         order by d.created_at desc, x.id
        """,
        (model, limit),
    )


def get_passage_text(conn: Connection, document_id: int, part: int) -> tuple[str, str] | None:
    """Return title and body of a passage, or None."""
    row = fetch_one(
        conn, "select title, body from passages where id = ?", (document_id * PASSAGES_PER_DOCUMENT + part,)
    )
    return (row["title"], row["body"]) if row else None


def store_vector(conn: Connection, document_id: int, part: int, *, model: str, hash_: str, vector: bytes) -> None:
    """Store the vector of a passage, with the hash of the text it was computed from."""
    conn.execute("insert or replace into vectors values (?, ?, ?, ?, ?)", (document_id, model, part, hash_, vector))


def list_outdated_vectors(conn: Connection, family: str, *, current: str, limit: int) -> list[tuple[int, str, int]]:
    """Return the keys of vectors of other versions of a model; the names of its versions begin with `family`."""
    query = "select document_id, model, part from vectors where model glob ? || '*' and model != ? limit ?"
    return fetch_tuples(conn, query, (family, current, limit))


def delete_vectors(conn: Connection, keys: Sequence[tuple[int, str, int]]) -> None:
    """Delete these vectors."""
    conn.executemany("delete from vectors where (document_id, model, part) = (?, ?, ?)", keys)


def take_deleted_vectors(conn: Connection) -> list[int]:
    """Return, and clear, the documents whose vectors were deleted since the last call."""
    return [row["document_id"] for row in fetch_all(conn, "delete from deleted_vectors returning document_id")]


def load_vectors(conn: Connection, model: str, *, after: tuple[int, int], limit: int) -> list[StoredVector]:
    """Return a page of vectors."""
    vector_rows = fetch_tuples(
        conn,
        """
        select v.document_id, v.part, d.project_id, coalesce(d.turn_id, -d.id), coalesce(d.session_id, -d.project_id),
               d.created_at, length(x.title) + length(x.body), v.vector
          from vectors v join documents d on d.id = v.document_id join passages x on x.id = d.id * 1000 + v.part
         where v.model = ? and (v.document_id, v.part) > (?, ?) order by v.document_id, v.part limit ?
        """,
        (model, *after, limit),
    )
    return [StoredVector(*row) for row in vector_rows]
