"""How the calls in the commands of past turns went. Derived from events and kept with the turn's document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from claude_mem.domain.mistakes import CallRecord, PastCall
from claude_mem.storage.sqlite.engine import Connection, fetch_all
from claude_mem.storage.sqlite.memory.observations import encode_json

_COLUMNS = "worked, failed, refused, kind, reason, instead, counts_as, words"


def replace_records(conn: Connection, turn_id: int, records: Iterable[CallRecord]) -> None:
    """Store how the calls of a turn went, in place of earlier records. A turn that is not indexed has none."""
    conn.execute(
        "delete from calls where document_id = (select id from documents where kind = 'turn' and row_id = ?)",
        (turn_id,),
    )
    conn.executemany(
        f"insert into calls (document_id, key, {_COLUMNS})"
        " select id, ?, ?, ?, ?, ?, ?, ?, ?, ? from documents where kind = 'turn' and row_id = ?",
        [
            (one.key, one.worked, one.failed, one.refused, one.kind, one.reason, one.instead, one.counts_as, one.words,
             turn_id)
            for one in records
        ],
    )  # fmt: skip


def list_histories(
    conn: Connection, project_id: int, keys: Sequence[str], *, exclude_session_id: int = 0
) -> dict[str, list[PastCall]]:
    """Return the history, oldest first, of each of these keys that ever failed by a mistake or was refused in a project.

    Failures of the excluded session do not count: a session knows its own. What came of an external text is not
    offered as what worked.
    """
    rows = fetch_all(
        conn,
        """
        select c.*, d.session_id, d.created_at as at, d.trust = '' as trusted
          from calls c join documents d on d.id = c.document_id
         where d.project_id = :project
           and c.key in (select key from calls indexed by calls_failed
                          where key in (select value from json_each(:keys)) and (failed > 0 or refused > 0))
         order by d.created_at, d.id
        """,
        {"project": project_id, "keys": encode_json(list(keys))},
    )
    by_key: dict[str, list[PastCall]] = {}
    for row in rows:
        own = row["session_id"] == exclude_session_id
        by_key.setdefault(row["key"], []).append(
            PastCall(
                at=row["at"],
                session_id=row["session_id"] or 0,
                record=CallRecord(
                    key=row["key"],
                    worked=row["worked"],
                    failed=0 if own else row["failed"],
                    refused=row["refused"],
                    kind=row["kind"],
                    reason=row["reason"],
                    instead=row["instead"] if row["trusted"] else "",
                    counts_as=row["counts_as"] if row["trusted"] else "",
                    words=row["words"],
                ),
            )
        )
    return by_key


def count_worked(conn: Connection, project_id: int, key: str) -> int:
    """Return how often the calls with this key worked in a project."""
    (row,) = fetch_all(
        conn,
        "select coalesce(sum(c.worked), 0) as n from calls c join documents d on d.id = c.document_id"
        " where c.key = ? and d.project_id = ?",
        (key, project_id),
    )
    return int(row["n"])


def list_recurring_keys(conn: Connection, project_id: int, *, sessions: int) -> list[str]:
    """Return the keys of calls that failed by a mistake in at least this many sessions of a project."""
    rows = fetch_all(
        conn,
        """
        select c.key from calls c indexed by calls_failed join documents d on d.id = c.document_id
         where (c.failed > 0 or c.refused > 0) and c.failed > 0 and d.project_id = ?
         group by c.key having count(distinct d.session_id) >= ? order by count(distinct d.session_id) desc limit 20
        """,
        (project_id, sessions),
    )
    return [row["key"] for row in rows]
