"""Anchors of observations, what became of the work, and what looks at work trees have found."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from claude_mem.domain import anchors
from claude_mem.domain.anchors import Anchor, Freshness, Outcome
from claude_mem.domain.memory_items import UNKNOWN_STATE, MemoryItem, MemoryState
from claude_mem.storage.records import (
    NOT_LOOKED_FOR,
    Look,
    Replaced,
    StoredAnchor,
    StoredOutcome,
    apply_looks,
    is_in_work_tree,
)
from claude_mem.storage.sqlite.engine import Connection, Row, fetch_all, fetch_one, fetch_value
from claude_mem.storage.sqlite.memory.observations import INJECTABLE, decode_item, encode_json, load_observations

_FILE_COUNT = re.compile(r" \(\d+ files? changed\b")  # behind a commit's subject in a fact

# --- writing ---------------------------------------------------------------------------------------------------------


def replace_anchors(
    conn: Connection,
    observation_id: int,
    new_anchors: Sequence[Anchor],
    *,
    blob_ids: Mapping[str, str] = MappingProxyType({}),
    outcome: Outcome = Outcome.TRIED,
    now: int,
) -> None:
    """Store the anchors of an observation in place of earlier ones. Anchors that did not change keep their rows."""
    before = {
        (row["path"], row["kind"], bytes(row["lines"])): row["id"]
        for row in fetch_all(
            conn, "select id, path, kind, lines from anchors where observation_id = ?", (observation_id,)
        )
    }
    new_keys = {(item.path, item.kind, anchors.pack_lines(item.lines)) for item in new_anchors}
    outdated = [row_id for key, row_id in before.items() if key not in new_keys]
    conn.execute("delete from anchors where id in (select value from json_each(?))", (encode_json(outdated),))
    for path, kind, lines in sorted(new_keys - before.keys()):
        conn.execute(
            "insert into anchors (observation_id, path, kind, lines, blob_id) values (?, ?, ?, ?, ?)",
            (observation_id, path, kind, lines, blob_ids.get(path, "")),
        )
    conn.executemany(
        "update anchors set phrases = ?1 where observation_id = ?2 and path = ?3 and phrases != ?1",
        [(anchors.pack_phrases(item.phrases), observation_id, item.path) for item in new_anchors],
    )
    if any(item.kind == "edit" for item in new_anchors):
        conn.execute(
            "insert into outcomes (observation_id, outcome, judged_at) values (?, ?, ?) on conflict do nothing",
            (observation_id, outcome, now),
        )
    elif not new_anchors:
        conn.execute("delete from outcomes where observation_id = ?", (observation_id,))


def list_unanchored(conn: Connection, turn_id: int) -> list[MemoryItem]:
    """Return the observations of a turn that have no anchors, or some without phrases, with the outcome of the turn."""
    rows = fetch_all(
        conn,
        """
        select o.*, coalesce(s.outcome, '') as outcome
          from observations o left join session_summaries s on s.turn_id = o.turn_id
         where o.turn_id = ? and not o.forgotten and not exists (
               select 1 from anchors where observation_id = o.id and (kind != 'edit' or phrases != x''))
        """,
        (turn_id,),
    )
    return [decode_item(row) for row in rows]


def record_committed_lines(conn: Connection, items: Iterable[StoredAnchor]) -> None:
    """Store which lines of these anchors commits have had, in addition to what is stored."""
    for item in items:
        conn.execute(
            "update anchors set committed = committed | ?, landed = landed | ? where id = ?",
            (item.committed, item.landed, item.id),
        )


def find_replaced(
    conn: Connection, project_id: int, successor: int, dropped: Mapping[str, Collection[bytes]]
) -> list[Replaced]:
    """Return the earlier observations of a project most of whose lines are among the dropped ones, given by path.

    Observations that a person wrote, judged or pinned are left out, and those of which only a line or two are known.
    """
    rows = fetch_all(
        conn,
        """
        select a.observation_id, a.path, a.lines, a.phrases
          from anchors a join observations o on o.id = a.observation_id
          join observations n on n.id = :successor
         where a.kind = 'edit' and o.project_id = :project and o.superseded_by is null and not o.forgotten
           and o.trust != 'user' and o.verdict = '' and not o.pinned and o.type != 'rule'
           and o.turn_id is not n.turn_id and (o.created_at, o.id) < (n.created_at, n.id)
           and o.id in (select observation_id from anchors where path in (select value from json_each(:paths)))
        """,
        {"project": project_id, "successor": successor, "paths": encode_json(sorted(dropped))},
    )
    counts: dict[int, list[tuple[int, int]]] = {}
    phrases: dict[int, set[int]] = {}
    for row in rows:
        lines = anchors.unpack_lines(bytes(row["lines"]))
        count = sum(line in dropped.get(row["path"], ()) for line in lines)
        counts.setdefault(row["observation_id"], []).append((len(lines), count))
        phrases.setdefault(row["observation_id"], set()).update(anchors.unpack_phrases(bytes(row["phrases"])))
    replaced = [row_id for row_id, files in counts.items() if anchors.is_replaced(files)]
    texts = fetch_all(
        conn,
        "select id, concat_ws(char(10), title, narrative, facts) as text from observations"
        " where id in (select value from json_each(?)) order by id",
        (encode_json(replaced),),
    )
    return [Replaced(row["id"], row["text"], frozenset(phrases[row["id"]] - {anchors.NO_PHRASE})) for row in texts]


def supersede(conn: Connection, observation_ids: Sequence[int], successor: int) -> None:
    """Link observations to the one that replaced them."""
    conn.execute(
        "update observations set superseded_by = ? where id in (select value from json_each(?))",
        (successor, encode_json(list(observation_ids))),
    )


def record_looks(conn: Connection, root: str, looks: Iterable[Look], *, commit: str = "") -> None:
    """Store what a look at a work tree found, replacing the last one. Anchors that no longer exist are skipped."""
    for look in (look for look in looks if look.stamp is not None):
        conn.execute(
            """
            insert into sightings (anchor_id, root, stamp, present, moved_to, commit_id, phrases)
            select id, ?, ?, ?, ?, ?, ? from anchors where id = ?
            on conflict do update set stamp = excluded.stamp, present = excluded.present,
                moved_to = excluded.moved_to, commit_id = excluded.commit_id, phrases = excluded.phrases
            """,
            (root, look.stamp, look.present, look.moved_to, commit, look.phrases, look.anchor_id),
        )


def record_outcome(conn: Connection, observation_id: int, outcome: Outcome, *, commit: str, now: int) -> None:
    """Store what became of an observation's work. Work that did not last has replaced nothing."""
    conn.execute(
        "update outcomes set outcome = ?1, commit_id = ?2, judged_at = iif(outcome = ?1, judged_at, ?3)"
        " where observation_id = ?4 and (outcome != ?1 or commit_id = '')",
        (outcome, commit, now, observation_id),
    )
    if outcome in anchors.UNDONE:
        conn.execute(
            "update observations set superseded_by = null where superseded_by = ?"
            " and id in (select observation_id from anchors where kind = 'edit')",
            (observation_id,),
        )


def record_head(conn: Connection, project_id: int, *, head: str, branch: str, since: int) -> None:
    """Store the commit and branch of the work tree with the work that was just done there."""
    conn.execute(
        """
        update outcomes set head = :head, branch = :branch
         where head = '' and observation_id in
               (select id from observations where project_id = :project and created_at > :since)
        """,
        {"head": head, "branch": branch, "project": project_id, "since": since},
    )


# --- reading ---------------------------------------------------------------------------------------------------------


def list_anchors(conn: Connection, observation_ids: Sequence[int], root: str) -> list[StoredAnchor]:
    """Return the anchors of these observations with what the last look at this work tree found."""
    rows = fetch_all(
        conn,
        """
        select a.id, a.observation_id, a.path, a.kind, a.lines, s.stamp, s.present, s.moved_to, a.committed,
               a.landed, a.phrases, s.phrases as phrases_present
          from anchors a left join sightings s on s.anchor_id = a.id and s.root = ?
         where a.observation_id in (select value from json_each(?)) order by a.observation_id, a.id
        """,
        (root, encode_json(list(observation_ids))),
    )
    return [
        StoredAnchor(
            row["id"], row["observation_id"], row["path"], row["kind"], anchors.unpack_lines(bytes(row["lines"])),
            row["stamp"], row["present"] or 0, row["moved_to"] or "", row["committed"], row["landed"],
            anchors.unpack_phrases(bytes(row["phrases"])),
            NOT_LOOKED_FOR if row["phrases_present"] is None else row["phrases_present"],
        )
        for row in rows
    ]  # fmt: skip


def list_anchored_ids(conn: Connection, project_id: int, *, limit: int) -> list[int]:
    """Return the newest observations of a project that have anchors in files and are not superseded."""
    rows = fetch_all(
        conn,
        """
        select o.id from observations o
         where o.project_id = ? and not o.forgotten and o.superseded_by is null
           and exists (select 1 from anchors a where a.observation_id = o.id and a.kind != 'command')
         order by o.created_at desc, o.id desc limit ?
        """,
        (project_id, limit),
    )
    return [row["id"] for row in rows]


def list_outcomes(conn: Connection, observation_ids: Sequence[int]) -> list[StoredOutcome]:
    """Return the outcomes of these observations, with the commit that their turn reported."""
    rows = fetch_all(
        conn,
        """
        select u.observation_id, u.outcome, u.head, o.created_at, u.commit_id, u.branch,
               coalesce(c.commit_id, '') as own_commit,
               coalesce((select value from json_each(c.facts) where value like 'Commit ' || c.commit_id || ': %'), '')
               as own_fact
          from outcomes u join observations o on o.id = u.observation_id
          left join observations c on c.id = (
               select id from observations where commit_id is not null and (id = o.id or turn_id = o.turn_id)
                order by id != o.id, id limit 1)
         where u.observation_id in (select value from json_each(?))
        """,
        (encode_json(list(observation_ids)),),
    )
    return [
        StoredOutcome(
            row["observation_id"], row["outcome"], row["head"], row["created_at"], row["commit_id"], row["branch"],
            row["own_commit"], _commit_subject(row["own_fact"]),
        )
        for row in rows
    ]  # fmt: skip


def _commit_subject(fact: str) -> str:
    """Return the subject from a fact such as "Commit 1a2b3c4: Add tax (2 files changed, 3 insertions(+))"."""
    subject = fact.partition(": ")[2]
    counts = list(_FILE_COUNT.finditer(subject)) if subject.endswith(")") else []
    return subject[: counts[-1].start()] if counts else subject


def load_states(
    conn: Connection, observation_ids: Sequence[int], root: str, looks: Iterable[Look] = ()
) -> dict[int, MemoryState]:
    """Return the states of these observations in a work tree, with looks that are not stored yet.

    Observations of which nothing is known are missing from the result.
    """
    by_observation: dict[int, list[StoredAnchor]] = {}
    for anchor in apply_looks(list_anchors(conn, observation_ids, root), looks):
        by_observation.setdefault(anchor.observation_id, []).append(anchor)
    outcomes = {item.observation_id: item for item in list_outcomes(conn, list(by_observation))}
    links = fetch_all(
        conn,
        """
        select o.id, o.superseded_by, c.fingerprint
          from observations o left join confirmations c on c.observation_id = o.id
         where o.id in (select value from json_each(?))
        """,
        (encode_json(list(observation_ids)),),
    )
    return {
        row["id"]: _state(conn, by_observation.get(row["id"], []), outcomes.get(row["id"]), row)
        for row in links
        if row["id"] in by_observation or row["superseded_by"] or row["fingerprint"]
    }


def _state(conn: Connection, items: Sequence[StoredAnchor], outcome: StoredOutcome | None, link: Row) -> MemoryState:
    result = _judge_outcome(items, outcome)
    is_command = bool(items) and items[0].kind == anchors.COMMAND
    freshness = _judge_command(conn, items[0]) if is_command else judge_freshness(items)
    if result == Outcome.COMMITTED and freshness in anchors.STALE:
        freshness = Freshness.ELSEWHERE
    return MemoryState(
        freshness,
        result,
        outcome.commit_id if outcome else "",
        tuple(item.path for item in items),
        tuple(item.moved_to for item in items if item.moved_to),
        link["superseded_by"],
        link["fingerprint"] is not None and link["fingerprint"] == _fingerprint(items, result, freshness),
    )


def _judge_outcome(items: Sequence[StoredAnchor], outcome: StoredOutcome | None) -> Outcome:
    """Return what became of the work. It was tried if a look has found it in the work tree: before the first look, and
    once the lines are gone and nothing tells where, the outcome is unknown."""
    result = Outcome(outcome.outcome) if outcome else Outcome.UNKNOWN
    was_seen = bool(items) and all(item.stamp is not None for item in items) and is_in_work_tree(items)
    return Outcome.UNKNOWN if result == Outcome.TRIED and not was_seen else result


def fingerprint_code(conn: Connection, observation_id: int, root: str) -> str:
    """Return a hash of what a look found of an observation's code, and of whether its work was undone.

    It changes when more of its lines go or some come back, not with the rest of the file.
    """
    items = list_anchors(conn, [observation_id], root)
    state = load_states(conn, [observation_id], root).get(observation_id, UNKNOWN_STATE)
    return _fingerprint(items, state.outcome, state.freshness)


def _fingerprint(items: Iterable[StoredAnchor], outcome: Outcome, freshness: Freshness) -> str:
    parts = [
        f"{item.path}\n{freshness}"
        if item.kind == anchors.COMMAND
        else f"{item.path}\n{item.present}\n{bool(item.stamp)}"
        for item in items
    ]
    not_done = outcome if outcome in anchors.NOT_DONE else ""
    text = "\0".join([not_done, *sorted(parts)])
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _judge_command(conn: Connection, anchor: StoredAnchor) -> Freshness:
    """Return whether what a memory says of a command still holds, by the command's calls in later turns.

    A call may also have failed by fewer of its words: `rtk bun` for `rtk bun run test`.
    """
    row = fetch_one(
        conn,
        """
        select coalesce(max(case when c.key = :key and c.worked > 0 then d.created_at end), 0) as worked_at,
               coalesce(max(case when c.failed > 0 then d.created_at end), 0) as failed_at
          from calls c join documents d on d.id = c.document_id join observations o on o.id = :observation
         where c.key in (select value from json_each(:keys)) and d.project_id = o.project_id
           and d.created_at > o.created_at and not (d.kind = 'turn' and d.row_id is o.turn_id)
        """,
        {"key": anchor.path, "keys": encode_json(_key_and_prefixes(anchor.path)), "observation": anchor.observation_id},
    )
    assert row is not None
    return anchors.judge_command(was_failing=bool(anchor.lines), worked_at=row["worked_at"], failed_at=row["failed_at"])


def _key_and_prefixes(key: str) -> list[str]:
    words = key.split(" ")
    return [" ".join(words[:size]) for size in range(1, len(words) + 1)]


def judge_freshness(items: Sequence[StoredAnchor]) -> Freshness:
    """Return the freshness of an observation from its anchors.

    Of committed work, only the lines that were committed count: what was rewritten before says nothing later. Of work
    that landed, only those that landed: a review may have changed the rest.
    """
    if not items or any(item.stamp is None for item in items):
        return Freshness.UNKNOWN
    kind = items[0].kind
    lasting = lasting_lines(items)
    if kind == anchors.REMOVAL or not lasting:
        return anchors.judge([item.sight(item.all_lines) for item in items], kind=kind)
    total, count = sum(len(item.lines) for item in items), sum(lines.bit_count() for lines in lasting)
    sightings = [item.sight(lines) for item, lines in zip(items, lasting, strict=True) if lines]
    return anchors.judge(sightings, kind=kind, is_partial=count * 2 < total)


def lasting_lines(items: Sequence[StoredAnchor]) -> list[int]:
    """Return for each anchor of an observation the lines that landed, else those that were committed, as bit sets;
    nothing if neither are enough for its work to count as committed."""
    for bits in ([item.landed for item in items], [item.committed for item in items]):
        if any(bits) and _is_enough(items, bits):
            return bits
    return []


def _is_enough(items: Sequence[StoredAnchor], bits: Sequence[int]) -> bool:
    return anchors.is_committed((len(item.lines), lines.bit_count()) for item, lines in zip(items, bits, strict=True))


def find_line_authors(conn: Connection, project_id: int, path: str) -> list[tuple[int, frozenset[bytes]]]:
    """Return the observations of a project that are anchored at a file, under its present or a former name, each with
    its lines: those that edited the file first, each newest first."""
    rows = fetch_all(
        conn,
        """
        select a.observation_id, a.lines from anchors a join observations o on o.id = a.observation_id
         where o.project_id = :project and not o.forgotten and a.kind in ('edit', 'read')
           and (a.path = :path or a.id in (select anchor_id from sightings where moved_to = :path))
         order by a.kind, o.created_at desc, o.id desc
        """,
        {"project": project_id, "path": path},
    )
    return [(row["observation_id"], frozenset(anchors.unpack_lines(bytes(row["lines"])))) for row in rows]


def find_undone_work(conn: Connection, project_id: int, path: str, added: frozenset[bytes]) -> list[int]:
    """Return the injectable observations whose work on a file was dropped or reverted, and at least half of whose lines
    there are among the added ones; the newest first."""
    rows = fetch_all(
        conn,
        f"""
        select o.id, a.lines from anchors a join observations o on o.id = a.observation_id
          join outcomes u on u.observation_id = o.id
         where o.project_id = ? and a.path = ? and a.kind = 'edit' and u.outcome in ('dropped', 'reverted')
           and not o.forgotten and {INJECTABLE} order by o.created_at desc, o.id desc
        """,
        (project_id, path),
    )
    shares = [(row["id"], [line in added for line in anchors.unpack_lines(bytes(row["lines"]))]) for row in rows]
    return [row_id for row_id, present in shares if 2 * sum(present) >= len(present) and sum(present) >= 2]


def add_states(conn: Connection, rows: Sequence[MemoryItem]) -> list[MemoryItem]:
    """Return rows, those of observations with their validity, freshness in the project's own work tree, the outcome of
    the work and its commit, and where the code has moved.

    Each is "" if it is unknown.
    """
    roots = {row["id"]: row["root"] or "" for row in fetch_all(conn, "select id, root from projects")}
    ids_by_root: dict[str, list[int]] = {}
    for row in rows:
        if row["kind"] == "observation":
            ids_by_root.setdefault(roots.get(row["project_id"], ""), []).append(row["id"])
    states: dict[int, MemoryState] = {}
    for root, ids in ids_by_root.items():
        states |= load_states(conn, ids, root)
    return [
        _with_state(row, states.get(row["id"], UNKNOWN_STATE)) if row["kind"] == "observation" else row for row in rows
    ]


def _with_state(row: MemoryItem, state: MemoryState) -> MemoryItem:
    return {
        **row,
        "validity": state.validity,
        "freshness": state.freshness,
        "work_outcome": state.outcome,
        "work_commit": state.commit_id,
        "moved_to": list(state.moved_to),
    }


def load_explained(conn: Connection, observation_ids: Sequence[int]) -> list[MemoryItem]:
    """Return observations with their states and the prompts that asked for the work."""
    rows = add_states(conn, load_observations(conn, list(observation_ids)))
    return [{**row, "prompt": _find_prompt(conn, row)} for row in rows]


def _find_prompt(conn: Connection, row: MemoryItem) -> str:
    text = fetch_value(
        conn,
        "select text from user_prompts where session_id = ? and prompt_number = ?",
        (row["session_id"], row["prompt_number"]),
    )
    return str(text or "")
