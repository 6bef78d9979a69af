"""Observations, session summaries and user prompts: writing them and reading them back.

A rule or decision may supersede an earlier one on the same subject. The link (`observations.superseded_by`) follows
from the injectable statements of a project in the order they were made. It is computed again, in the same transaction,
whenever one is added, edited, judged, deleted or restored; deleting a rule therefore makes the rule it superseded
current again. What cites code is superseded by what became of the code instead (`anchors.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from claude_mem.domain import rules
from claude_mem.domain.errors import NotFound
from claude_mem.domain.memory_items import MemoryItem
from claude_mem.domain.records import Author, Draft, ObservationType, Summary, Turn
from claude_mem.domain.rules import Statement
from claude_mem.domain.text import clip_closing, estimate_tokens, strip_labels
from claude_mem.privacy import trust
from claude_mem.storage.sqlite.deletion import tombstones
from claude_mem.storage.sqlite.engine import Connection, Row, fetch_all, fetch_one, fetch_records, fetch_value
from claude_mem.system.failpoints import failpoint

# Which trust levels may be injected without being asked for. A person can allow more (`approved`) or less (`wrong`).
# The functions and SQL conditions below are the only place that combines the two, for observations and summaries alike.
TRUSTED = trust.TRUSTED
TRUSTED_OR_APPROVED = f"(o.trust in {TRUSTED} or o.verdict = 'approved')"
INJECTABLE = f"(o.verdict != 'wrong' and {TRUSTED_OR_APPROVED})"
PENDING_APPROVAL = f"o.verdict = '' and o.trust not in {TRUSTED}"  # waits for a person's approval
MACHINE_OWNED = "not forgotten and trust != 'user' and verdict = ''"  # no person edited, judged or deleted it
NOT_SUPERSEDED = "o.superseded_by is null"
VALIDITY = "exists (select 1 from validity_changes v where v.observation_id = o.id and {})"
STATEMENT_COLUMNS = ("type", "title", "trust", "verdict", "forgotten")  # columns on which the links depend
MAX_STATEMENTS = 500  # of a project, that are compared: rules, then the newest
# Rules, decisions, and what was saved on its own, if they cite no code.
_IS_STATEMENT = """
    (o.type = 'rule' or ((o.type = 'decision' or o.turn_id is null)
                         and not exists (select 1 from anchors a where a.observation_id = o.id)))
"""
_IS_RULE_OF_PROJECT = f"o.project_id = ? and o.type = '{ObservationType.RULE}' and not o.forgotten"
_KNOWLEDGE = """(o.type = 'decision' or o.concepts like '%"gotcha"%')"""
_KNOWLEDGE_SCAN_LIMIT = 2_000  # newest observations searched for decisions and gotchas, to keep session starts fast
JSON_LIST_COLUMNS = ("facts", "sources", "concepts", "files_read", "files_modified", "files_edited")
SUMMARY_FIELDS = ("request", "investigated", "learned", "completed", "next_steps", "notes")
_RECENTLY_SAVED_BY_AGENTS = "created_at > ? and key like 'saved:%' and provider = 'agent' and not forgotten"
_SELECT_OBSERVATIONS = """
    select o.id, 'observation' as kind, s.content_session_id, s.host, o.session_id, p.id as project_id,
           p.name as project, o.prompt_number,
           o.type, o.title, o.subtitle, o.narrative, o.facts, o.sources, o.concepts, o.files_read, o.files_modified,
           o.memory_session_id, o.provider, o.model, o.tokens, o.trust, o.why, o.verdict, o.commit_id, o.pinned,
           o.superseded_by, o.created_at, o.updated_at
      from observations o join projects p on p.id = o.project_id left join sdk_sessions s on s.id = o.session_id
     where not o.forgotten
"""
_SELECT_WITH_KEY = _SELECT_OBSERVATIONS.replace("select o.id,", "select o.id, o.key,")
_SELECT_SUMMARIES = """
    select o.id, 'summary' as kind, s.content_session_id, s.host, o.session_id, p.id as project_id,
           p.name as project, o.prompt_number,
           o.request, o.investigated, o.learned, o.completed, o.next_steps, o.notes, o.files_read, o.files_edited,
           o.outcome, o.memory_session_id, o.provider, o.trust, o.why, o.verdict, o.created_at, o.updated_at
      from session_summaries o join projects p on p.id = o.project_id join sdk_sessions s on s.id = o.session_id
     where true
"""
_SELECT_PROMPTS = """
    select o.id, 'prompt' as kind, s.content_session_id, s.host, o.session_id, p.id as project_id,
           p.name as project, o.prompt_number,
           o.text, o.created_at
      from user_prompts o join sdk_sessions s on s.id = o.session_id join projects p on p.id = s.project_id
     where true
"""
MEMORY_QUERIES = {"observation": _SELECT_OBSERVATIONS, "summary": _SELECT_SUMMARIES, "prompt": _SELECT_PROMPTS}
# Queries for a single item. Listings omit the closing message, because it is long and may contain external text.
_FULL_QUERIES = {
    **MEMORY_QUERIES,
    "summary": _SELECT_SUMMARIES.replace("o.outcome,", "o.outcome, o.closing, o.closing_trust,"),
}


# --- writing observations --------------------------------------------------------------------------------------------


def upsert_observation(conn: Connection, turn: Turn, draft: Draft, *, by: Author, now: int) -> int:
    """Add an observation, or update the one made from the same evidence. Return its id, or 0 if nothing was written.

    A deleted observation is not added again, and one that a person edited or judged is left unchanged.
    """
    if tombstones.is_observation_tombstoned(conn, turn.id, draft.key, at=turn.ended_at):
        return 0
    content = _content(draft)
    row = fetch_one(
        conn,
        f"""
        insert into observations (session_id, project_id, turn_id, prompt_number, key, type, title, subtitle, narrative,
                                  facts, sources, concepts, files_read, files_modified, commit_id, memory_session_id,
                                  provider, model, trust, why, tokens, hash, created_at, updated_at)
        values (:session_id, :project_id, :turn_id, :number, :key, :type, :title, :subtitle, :narrative,
                :facts, :sources, :concepts, :files_read, :files_modified, :commit_id, :memory_session_id,
                :provider, :model, :trust, :why, :tokens, :hash, :at, :now)
        on conflict (turn_id, key) where turn_id is not null do update set
            type = excluded.type, title = excluded.title, subtitle = excluded.subtitle, narrative = excluded.narrative,
            facts = excluded.facts, sources = excluded.sources, concepts = excluded.concepts,
            files_read = excluded.files_read,
            files_modified = excluded.files_modified, commit_id = excluded.commit_id, provider = excluded.provider,
            model = excluded.model, memory_session_id = excluded.memory_session_id, tokens = excluded.tokens,
            trust = excluded.trust, why = excluded.why,
            hash = excluded.hash, updated_at = excluded.updated_at
         where {MACHINE_OWNED}
        returning id
        """,
        {
            **content,
            "session_id": turn.session_id,
            "project_id": turn.project_id,
            "turn_id": turn.id,
            "number": turn.number,
            "key": draft.key,
            "provider": by.provider,
            "model": by.model or None,
            "memory_session_id": by.memory_session_id,
            "trust": draft.trust,
            "why": draft.why,
            "tokens": count_observation_tokens(content),
            "hash": hash_observation(content),
            "at": turn.ended_at,
            "now": now,
        },
    )
    failpoint("store.observation")
    return int(row["id"]) if row else 0


def _content(draft: Draft) -> dict[str, str | None]:
    return {
        "type": draft.type,
        "title": draft.title,
        "subtitle": draft.subtitle or None,
        "narrative": draft.narrative or None,
        "facts": encode_json([fact.text for fact in draft.facts]),
        "sources": encode_json([list(fact.events) for fact in draft.facts]),
        "concepts": encode_json(draft.concepts),
        "files_read": encode_json(draft.files_read),
        "files_modified": encode_json(draft.files_modified),
        "commit_id": draft.commit or None,
    }


def delete_observations_except(conn: Connection, turn_id: int, keys: tuple[str, ...]) -> None:
    """Remove the observations of the turn that the current digest no longer produces.

    Observations that a person edited, judged or pinned stay.
    """
    conn.execute(
        f"""
        delete from observations
         where turn_id = ? and {MACHINE_OWNED} and not pinned and key not in (select value from json_each(?))
        """,
        (turn_id, encode_json(keys)),
    )
    failpoint("store.swept")


def delete_local_draft(conn: Connection, turn_id: int, key: str) -> bool:
    """Remove a draft written without a model, unless a person corrected or pinned it.

    Return whether a row was removed.
    """
    conn.execute(
        f"delete from observations where turn_id = ? and key = ? and provider = 'local' and {MACHINE_OWNED} and not pinned",
        (turn_id, key),
    )
    return conn.changes() > 0


def save_observation(
    conn: Connection,
    *,
    project_id: int,
    title: str,
    text: str,
    key: str,
    now: int,
    trust: str = "user",
    by: str = "user",
    why: str = "",
    type_: str = ObservationType.DISCOVERY,
) -> int:
    """Store text that a person (`by="user"`) or an agent (`by="agent"`) asked to be remembered, and return its id."""
    content = {"type": str(type_), "title": title, "narrative": text, "facts": "[]", "concepts": "[]"}
    row = fetch_one(
        conn,
        """
        insert into observations (project_id, key, type, title, narrative, provider, trust, why, tokens, hash,
                                  created_at, updated_at)
        values (:project_id, :key, :type, :title, :narrative, :by, :trust, :why, :tokens, :hash, :now, :now)
        returning id
        """,
        {
            **content,
            "project_id": project_id,
            "key": key,
            "trust": trust,
            "by": by,
            "why": why,
            "tokens": count_observation_tokens(content),
            "hash": hash_observation(content),
            "now": now,
        },
    )
    assert row is not None
    return int(row["id"])


def count_agent_saves(conn: Connection, *, since: int) -> int:
    """Count the observations that agents saved since then.

    All projects count: otherwise an agent could evade the limit by naming another project each time.
    """
    return int(fetch_value(conn, f"select count(*) from observations where {_RECENTLY_SAVED_BY_AGENTS}", (since,)))


def hold_agent_saves(conn: Connection, *, since: int) -> set[int]:
    """Move the observations that agents saved since then to the approval queue, because they came too fast.

    Return the ids of their projects.
    """
    sql = f"update observations set trust = 'suspect', why = 'burst' where {_RECENTLY_SAVED_BY_AGENTS} and {MACHINE_OWNED}"
    return {row["project_id"] for row in fetch_all(conn, f"{sql} returning project_id", (since,))}


def mark_burst(conn: Connection, project_id: int, why: str, *, since: int, min_count: int) -> None:
    """Mark external observations of one source as a burst if at least `min_count` were created since then.

    The person who approves them sees the mark.
    """
    same_source = f"project_id = ? and created_at > ? and trust = 'external' and why = ? and {MACHINE_OWNED}"
    params = (project_id, since, why)
    if fetch_value(conn, f"select count(*) from observations where {same_source}", params) >= min_count:
        conn.execute(f"update observations set why = 'burst, ' || why where {same_source}", params)


# --- writing summaries and prompts -----------------------------------------------------------------------------------


def upsert_summary(conn: Connection, turn: Turn, summary: Summary, *, by: Author, now: int) -> int:
    """Add or update the summary of a turn. Return its id, or 0 if it was deleted before or a person has judged it."""
    if tombstones.is_summary_tombstoned(conn, turn.id, at=turn.ended_at):
        return 0
    row = fetch_one(
        conn,
        """
        insert into session_summaries (session_id, project_id, turn_id, prompt_number, request, investigated, learned,
                                       completed, next_steps, notes, files_read, files_edited, closing, closing_trust,
                                       outcome, memory_session_id, provider, trust, why, created_at, updated_at)
        values (:session_id, :project_id, :turn_id, :number, :request, :investigated, :learned, :completed, :next_steps,
                :notes, :files_read, :files_edited, :closing, :closing_trust, :outcome, :memory_session_id, :provider,
                :trust, :why, :at, :now)
        on conflict (turn_id) do update set
            request = excluded.request, investigated = excluded.investigated, learned = excluded.learned,
            completed = excluded.completed, next_steps = excluded.next_steps, notes = excluded.notes,
            files_read = excluded.files_read, files_edited = excluded.files_edited, closing = excluded.closing,
            closing_trust = excluded.closing_trust, outcome = excluded.outcome, provider = excluded.provider,
            memory_session_id = excluded.memory_session_id, trust = excluded.trust, why = excluded.why,
            created_at = excluded.created_at, updated_at = excluded.updated_at
         where verdict = ''
        returning id
        """,
        {
            "session_id": turn.session_id,
            "project_id": turn.project_id,
            "turn_id": turn.id,
            "number": turn.number,
            "request": strip_labels("request", summary.request) or None,
            "investigated": strip_labels("investigated", summary.investigated) or None,
            "learned": strip_labels("learned", summary.learned) or None,
            "completed": strip_labels("completed", summary.completed) or None,
            "next_steps": strip_labels("next_steps", summary.next_steps) or None,
            "notes": strip_labels("notes", summary.notes) or None,
            "files_read": encode_json(summary.files_read),
            "files_edited": encode_json(summary.files_edited),
            "closing": clip_closing(summary.closing),
            "closing_trust": summary.closing_trust,
            "outcome": summary.outcome,
            "provider": by.provider,
            "memory_session_id": by.memory_session_id,
            "trust": summary.trust,
            "why": summary.why,
            "at": turn.ended_at,
            "now": now,
        },
    )
    failpoint("store.summary")
    return int(row["id"]) if row else 0


def add_prompt(conn: Connection, *, session_id: int, turn_id: int, number: int, text: str, at: int) -> None:
    """Add the prompt of a turn, unless the turn has one."""
    conn.execute(
        """
        insert or ignore into user_prompts (session_id, turn_id, prompt_number, text, created_at)
        values (?, ?, ?, ?, ?)
        """,
        (session_id, turn_id, number, text, at),
    )


def append_to_prompt(conn: Connection, turn_id: int, text: str) -> bool:
    """Append text that the user sent later in the same turn; return False if the prompt already contains it."""
    conn.execute(
        "update user_prompts set text = text || char(10) || ?1 where turn_id = ?2 and instr(text, ?1) = 0",
        (text, turn_id),
    )
    return bool(conn.changes())


# --- reading items ---------------------------------------------------------------------------------------------------


def list_memories(
    conn: Connection,
    *,
    kind: str,
    limit: int,
    offset: int,
    project: str = "",
    type_: str = "",
    validities: Sequence[str] = (),
) -> list[MemoryItem]:
    """List items of one kind, newest first. Only observations have a type and a validity."""
    where = ("and p.name = :project " if project else "") + ("and o.type = :type" if type_ else "")
    if validities:
        where += " and " + VALIDITY.format("v.latest and v.validity in (select value from json_each(:validities))")
    items = fetch_all(
        conn,
        f"{MEMORY_QUERIES[kind]} {where} order by o.created_at desc, o.id desc limit :limit offset :offset",
        {
            "project": project,
            "type": type_,
            "validities": encode_json(list(validities)),
            "limit": limit,
            "offset": offset,
        },
    )
    return [decode_item(row) for row in items]


def get_memory(conn: Connection, kind: str, row_id: int) -> MemoryItem:
    """Return one item in full; an observation also has the id of its turn's summary.

    Raise `NotFound` if there is none.
    """
    row = fetch_one(conn, f"{_FULL_QUERIES[kind]} and o.id = ?", (row_id,))
    if row is None:
        raise NotFound(f"there is no {kind} {row_id}", hint=_not_found_hint(conn, kind, row_id))
    return _add_summary_ids(conn, [decode_item(row)])[0] if kind == "observation" else decode_item(row)


def _not_found_hint(conn: Connection, kind: str, row_id: int) -> str:
    """Return the hint for a missing item.

    A deleted observation counts as missing, but its hint says how to restore it.
    """
    is_restorable = kind == "observation" and fetch_value(
        conn, "select 1 from deleted_observations where observation_id = ?", (row_id,)
    )
    undo_hint = f"it was deleted; to restore it, run `claude-mem forget --undo {row_id}`"
    return undo_hint if is_restorable else "run `claude-mem list` to see the existing ones"


def load_observations(conn: Connection, ids: list[int]) -> list[MemoryItem]:
    """Return observations in the order of `ids`; ids that do not exist are skipped."""
    observation_rows = fetch_all(
        conn, f"{_SELECT_OBSERVATIONS} and o.id in (select value from json_each(?))", (encode_json(ids),)
    )
    by_id = {row["id"]: row for row in _add_summary_ids(conn, [decode_item(row) for row in observation_rows])}
    return [by_id[observation_id] for observation_id in ids if observation_id in by_id]


def _add_summary_ids(conn: Connection, observations: list[MemoryItem]) -> list[MemoryItem]:
    """Return observations, each with the id of the summary that holds its turn's closing message, if one does."""
    summaries = fetch_all(
        conn,
        """
        select o.id, y.id as summary_id from observations o join session_summaries y on y.turn_id = o.turn_id
         where o.id in (select value from json_each(?)) and y.closing != ''
        """,
        (encode_json([row["id"] for row in observations]),),
    )
    summary_ids = {row["id"]: row["summary_id"] for row in summaries}
    for row in observations:
        row["summary_id"] = summary_ids.get(row["id"])
    return observations


def list_session_memories(conn: Connection, kind: str, session_id: int) -> list[MemoryItem]:
    """List a session's items of one kind in full, oldest first."""
    items = fetch_all(conn, f"{_FULL_QUERIES[kind]} and o.session_id = ? order by o.created_at, o.id", (session_id,))
    return [decode_item(row) for row in items]


# --- reading what may be injected ------------------------------------------------------------------------------------


def list_recent_observations(
    conn: Connection, project_ids: list[int], *, limit: int, after_id: int = 0, exclude_session_id: int = 0
) -> list[MemoryItem]:
    """Return the newest injectable observations of these projects, without pinned ones and rules."""
    return _newest_injectable(
        conn,
        project_ids,
        "not o.pinned and o.type != 'rule'",
        limit=limit,
        after_id=after_id,
        exclude_session_id=exclude_session_id,
    )


def list_pinned_observations(
    conn: Connection, project_ids: list[int], *, limit: int, after_id: int = 0, exclude_session_id: int = 0
) -> list[MemoryItem]:
    """Return the newest injectable pinned observations, without rules."""
    return _newest_injectable(
        conn,
        project_ids,
        "o.pinned and o.type != 'rule'",
        limit=limit,
        after_id=after_id,
        exclude_session_id=exclude_session_id,
    )


def list_injectable_rules(
    conn: Connection, project_ids: list[int], *, limit: int, after_id: int = 0, exclude_session_id: int = 0
) -> list[MemoryItem]:
    """Return the current injectable rules: pinned ones first, then the newest."""
    rule_rows = _newest_injectable(
        conn, project_ids, "o.type = 'rule'", limit=limit, after_id=after_id, exclude_session_id=exclude_session_id
    )
    return sorted(rule_rows, key=lambda row: -row["pinned"])


def list_decisions_and_gotchas(
    conn: Connection, project_ids: list[int], *, limit: int, after_id: int = 0, exclude_session_id: int = 0
) -> list[MemoryItem]:
    """Return the newest injectable decisions and gotchas, without pinned ones."""
    condition = f"""not o.pinned and {_KNOWLEDGE} and o.created_at >= coalesce(
        (select created_at from observations where project_id = o.project_id and not forgotten
          order by created_at desc limit 1 offset {_KNOWLEDGE_SCAN_LIMIT}), 0)"""
    return _newest_injectable(
        conn, project_ids, condition, limit=limit, after_id=after_id, exclude_session_id=exclude_session_id
    )


def _newest_injectable(
    conn: Connection, project_ids: list[int], condition: str, *, limit: int, after_id: int, exclude_session_id: int
) -> list[MemoryItem]:
    """Return injectable observations that meet the condition, newest first.

    One query per project, so that each uses the index.
    """
    candidates: list[Row] = []
    for project_id in project_ids:
        candidates += fetch_all(
            conn,
            f"""{_SELECT_WITH_KEY} and o.project_id = ? and o.id > ? and coalesce(o.session_id, -1) != ?
                and {condition} and {NOT_SUPERSEDED} and {INJECTABLE}
                order by o.created_at desc, o.id desc limit ?""",
            (project_id, after_id, exclude_session_id, limit),
        )
    return [decode_item(row) for row in sorted(candidates, key=_age_key, reverse=True)[:limit]]


def list_observations_by_file(
    conn: Connection, project_id: int, path: str, *, exclude_content_session_id: str = "", limit: int
) -> list[MemoryItem]:
    """Return injectable observations about a file.

    Those that changed the file come before those that only read it, each newest first.
    """
    observations = fetch_all(
        conn,
        f"""{_SELECT_OBSERVATIONS} and {INJECTABLE} and o.superseded_by is null
            and coalesce(s.content_session_id, '') != :but
            and o.id in (select d.row_id from signals f join documents d on d.id = f.document_id
                          where f.kind in ('edited', 'read') and f.value = :path
                            and d.kind = 'observation' and d.project_id = :project)
            order by exists (select 1 from json_each(o.files_modified) where value = :path) desc,
                     o.created_at desc, o.id desc limit :limit""",
        {"project": project_id, "but": exclude_content_session_id or "\0", "path": path, "limit": limit},
    )
    return [decode_item(row) for row in observations]


def list_solutions(conn: Connection, turn_ids: list[int]) -> list[MemoryItem]:
    """Return injectable observations that say how an error in one of these turns was solved, newest first."""
    observations = fetch_all(
        conn,
        f"""{_SELECT_OBSERVATIONS} and o.turn_id in (select value from json_each(?))
            and {INJECTABLE}
            and (o.key like 'fix:%' or o.type = 'bugfix'
                 or exists (select 1 from json_each(o.concepts) where value = 'problem-solution'))
            order by o.key like 'fix:%' desc, o.created_at desc, o.id desc""",
        (encode_json(turn_ids),),
    )
    return [decode_item(row) for row in observations]


def find_last_summary(conn: Connection, project_ids: list[int], *, exclude_session_id: int = 0) -> MemoryItem | None:
    """Return the newest injectable summary of these projects."""
    summaries: list[Row] = []
    for project_id in project_ids:  # one query each: only an equality condition lets the index return rows in order
        summaries += fetch_all(
            conn,
            f"""{_SELECT_SUMMARIES} and o.project_id = ? and o.session_id != ?
                and {INJECTABLE} order by o.created_at desc, o.id desc limit 1""",
            (project_id, exclude_session_id),
        )
    newest = max(summaries, key=_age_key, default=None)
    return decode_item(newest) if newest else None


def list_last_turns(
    conn: Connection, project_ids: list[int], *, limit: int, exclude_session_id: int = 0
) -> list[MemoryItem]:
    """Return request, result and open steps from the newest injectable summaries of these projects, newest first."""
    summaries: list[Row] = []
    for project_id in project_ids:
        summaries += fetch_all(
            conn,
            f"""
            select o.id, 'summary' as kind, o.session_id, o.prompt_number, o.request, o.completed, o.next_steps, o.notes, o.outcome,
                   o.files_edited, o.provider, t.writer, o.created_at
              from session_summaries o join turns t on t.id = o.turn_id
             where o.project_id = ? and o.session_id != ? and {INJECTABLE}
             order by o.created_at desc, o.id desc limit ?
            """,
            (project_id, exclude_session_id, limit),
        )
    return [decode_item(row) for row in sorted(summaries, key=_age_key, reverse=True)[:limit]]


def list_earlier_titles(conn: Connection, turn: Turn, *, limit: int) -> list[str]:
    """Return titles of earlier injectable observations.

    Those of the turn's own session come before the others, each newest first.
    """
    title_rows = fetch_all(
        conn,
        f"""
        select title from observations o
         where project_id = ? and not forgotten and title is not null and created_at <= ?
           and coalesce(turn_id, -1) != ? and {INJECTABLE}
         order by session_id is ? desc, created_at desc, id desc limit ?
        """,
        (turn.project_id, turn.ended_at, turn.id, turn.session_id, limit),
    )
    return [row["title"] for row in title_rows]


def _age_key(row: Row) -> tuple[int, int]:
    return row["created_at"], row["id"]


# --- the state of a turn ---------------------------------------------------------------------------------------------


def list_user_owned_keys(conn: Connection, turn_id: int) -> frozenset[str]:
    """Return the keys of the turn's observations that a person corrected, judged or deleted.

    No digest may replace them.
    """
    owned_by_user = "forgotten or trust = 'user' or verdict != ''"
    key_rows = fetch_all(conn, f"select key from observations where turn_id = ? and ({owned_by_user})", (turn_id,))
    return frozenset(row["key"] for row in key_rows)


def is_turn_refined(conn: Connection, turn_id: int) -> bool:
    """Return whether a model has worded this turn, and the result is trusted, approved or marked external or suspect.

    Imported and team text does not count: our own draft from the events is as good.
    """
    return bool(
        fetch_one(
            conn,
            "select 1 from observations o where turn_id = ? and provider not in ('local', 'user')"
            f" and ({TRUSTED_OR_APPROVED} or o.trust in ('external', 'suspect'))",
            (turn_id,),
        )
    )


def has_summary_by_other_provider(conn: Connection, turn_id: int, provider: str) -> bool:
    """Return whether the turn has a summary that another provider wrote."""
    sql = "select 1 from session_summaries where turn_id = ? and provider != ?"
    return bool(fetch_value(conn, sql, (turn_id, provider)))


def has_turn_statement(conn: Connection, turn_id: int) -> bool:
    """Return whether the turn stated a rule or a decision."""
    sql = "select 1 from observations where turn_id = ? and type in ('rule', 'decision')"
    return bool(fetch_value(conn, sql, (turn_id,)))


# --- counts ----------------------------------------------------------------------------------------------------------


def count_observations(conn: Connection) -> int:
    """Return how many observations there are in all projects."""
    return int(fetch_value(conn, "select count(*) from observations where not forgotten"))


def count_observations_since(conn: Connection, project_id: int, at: int) -> tuple[int, int]:
    """Return how many observations a project has, and how many of them are about work after `at`."""
    sql = (
        "select count(*) as known, sum(created_at > ?) as new from observations where project_id = ? and not forgotten"
    )
    counts = fetch_one(conn, sql, (at, project_id))
    return (counts["known"], counts["new"] or 0) if counts else (0, 0)


def get_newest_observation_id(conn: Connection) -> int:
    """Return the highest id of an observation; 0 if there is none."""
    row = fetch_one(conn, "select coalesce(max(id), 0) as id from observations")
    assert row is not None
    return int(row["id"])


# --- rules -----------------------------------------------------------------------------------------------------------


def list_current_rules(conn: Connection, project_ids: list[int]) -> list[MemoryItem]:
    """Return the current injectable rules, the latest first: id, title, trust and time."""
    rule_rows: list[MemoryItem] = []
    for project_id in project_ids:
        rule_rows += fetch_records(
            conn,
            MemoryItem,
            f"""
            select o.id, 'observation' as kind, o.title, o.trust, o.created_at from observations o
             where {_IS_RULE_OF_PROJECT} and o.superseded_by is null and {INJECTABLE}
            """,
            (project_id,),
        )
    return sorted(rule_rows, key=lambda row: (row["created_at"], row["id"]), reverse=True)


def is_rule_stated(conn: Connection, turn: Turn, draft: Draft) -> bool:
    """Return whether the same words are already a current rule or were judged wrong.

    Rules of other turns and rules saved by hand count.
    """
    rule_rows = fetch_all(
        conn,
        f"""
        select o.title from observations o
         where {_IS_RULE_OF_PROJECT} and coalesce(o.turn_id, -1) != ?
           and (o.verdict = 'wrong' or (o.superseded_by is null and {INJECTABLE}))
        """,
        (turn.project_id, turn.id),
    )
    normal_title = rules.normalize_rule(draft.title)
    return any(rules.normalize_rule(row["title"] or "") == normal_title for row in rule_rows)


def affects_statement_links(conn: Connection, row_id: int) -> bool:
    """Return whether an observation is a rule or a decision, or a link depends on it."""
    sql = f"""
        select 1 from observations o where id = ?1 and ({_IS_STATEMENT} or superseded_by is not null)
        union all select 1 from observations where superseded_by = ?1
    """
    return bool(fetch_value(conn, sql, (row_id,)))


def relink_statements_of_observation(conn: Connection, row_id: int) -> None:
    """Link the rules and decisions of the observation's project again."""
    if project_id := fetch_value(conn, "select project_id from observations where id = ?", (row_id,)):
        link_statements(conn, int(project_id))


def link_statements(conn: Connection, project_id: int) -> None:
    """Store for each rule and decision of a project which later one superseded it, replacing the previous links."""
    rows = fetch_all(
        conn,
        f"""
        select o.id, o.title, (o.type = 'rule') + (o.trust = 'user') > 0 as authority, o.created_at as at from observations o
         where o.project_id = ? and not o.forgotten and {_IS_STATEMENT} and {INJECTABLE}
         order by o.type = 'rule' desc, o.created_at desc, o.id desc limit {MAX_STATEMENTS}
        """,
        (project_id,),
    )
    links = rules.find_superseded(
        [
            Statement(row["id"], row["title"] or "", row["authority"])
            for row in sorted(rows, key=lambda row: (row["at"], row["id"]))
        ]
    )
    linked_rows = fetch_all(
        conn,
        f"select id, superseded_by from observations o where project_id = ? and {_IS_STATEMENT} and superseded_by is not null",
        (project_id,),
    )
    stored_links = {row["id"]: row["superseded_by"] for row in linked_rows}
    if len(rows) == MAX_STATEMENTS:  # the links of older ones stay
        compared_ids = {row["id"] for row in rows}
        stored_links = {row_id: link for row_id, link in stored_links.items() if row_id in compared_ids}
    for row_id in stored_links.keys() | links.keys():
        if stored_links.get(row_id) != links.get(row_id):
            conn.execute("update observations set superseded_by = ? where id = ?", (links.get(row_id), row_id))


# --- columns ---------------------------------------------------------------------------------------------------------


def hash_observation(content: Row) -> str:
    """Hash the text columns of an observation.

    SQLite detects few flipped bits itself; this hash reveals those in the text.
    """
    parts = [content.get(name) for name in ("type", "title", "subtitle", "narrative", "facts", "concepts")]
    return hashlib.blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()


def count_observation_tokens(content: Row) -> int:
    """Return how many tokens it takes to read the observation."""
    return estimate_tokens(
        " ".join(str(content.get(name) or "") for name in ("title", "subtitle", "narrative", "facts"))
    )


def encode_json(items: Any) -> str:
    """Encode a value as JSON text, for a column or for `json_each`."""
    return msgspec.json.encode(items).decode()


def decode_item(row: Mapping[str, Any]) -> MemoryItem:
    """Return the row of an item as it is shown."""
    return cast(MemoryItem, decode_row(row))


def decode_row(row: Mapping[str, Any]) -> Row:
    """Return a row as it is shown.

    JSON lists are decoded, and the labels that version 0.1.0 stored in summaries are removed.
    """
    summary_texts = {name: strip_labels(name, row[name]) or None for name in SUMMARY_FIELDS if row.get(name)}
    return {
        name: msgspec.json.decode(item) if name in JSON_LIST_COLUMNS else item for name, item in row.items()
    } | summary_texts
