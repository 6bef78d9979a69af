"""Applies today's rules for secrets to what was stored before there were such rules: every text of every table.

A batch of rows at a time, each in a transaction of its own; what a rule does not change is not written. A copy of the
database may be older than its tables are here: what it lacks is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from claude_mem import ids
from claude_mem.store.database import Connection, Row, rows, value
from claude_mem.store.observations import LISTS, cost, dump, fingerprint
from claude_mem.text import map_strings

BATCH = 100
Key = int | str


@dataclass(frozen=True, slots=True)
class Clean:
    """A text without its secrets and private parts; the texts of a list; the body of an event, as JSON."""

    text: Callable[[str], str]
    body: Callable[[str], str]
    texts: Callable[[list[str]], list[str]] | None = None  # None: each by itself


@dataclass(frozen=True, slots=True)
class Texts:
    """A table: what orders its rows, and which of its columns hold text, lists of texts, or another table's columns."""

    table: str
    key: str
    plain: Sequence[str] = ()
    lists: Sequence[str] = ()
    columns: Sequence[str] = ()


TABLES = (
    Texts("events", "seq"),
    Texts("user_prompts", "id", plain=("text",)),
    Texts(
        "observations",
        "id",
        plain=("key", "title", "subtitle", "narrative", "why"),
        lists=("facts", "concepts", "files_read", "files_modified"),
    ),
    Texts(
        "session_summaries",
        "id",
        plain=("request", "investigated", "learned", "completed", "next_steps", "notes", "closing", "why"),
        lists=("files_read", "files_edited"),
    ),
    Texts("sdk_sessions", "id", plain=("first_prompt", "title", "subtitle")),
    Texts("attic", "observation_id", columns=("content",)),
    Texts("put_away", "row_id", columns=("content",)),
    Texts("history", "id", columns=("before",)),
    Texts("ledger", "id", plain=("message",)),
    Texts("jobs", "id", plain=("error",)),
    Texts("imports", "id", plain=("error",), lists=("notes",)),
    Texts("breakers", "provider", plain=("message",)),
    Texts("notices", "key", plain=("text",)),
    Texts("tellings", "id", plain=("about",)),
    # Derived, but not always made again: of a turn whose events are gone by now, this is what is left.
    Texts("passages", "id", plain=("title", "body", "hints", "around")),
    Texts("signals", "document_id", plain=("value",)),
)


@dataclass(frozen=True, slots=True)
class Step:
    """After which row to go on (None: that was the last), how many were looked at, and how many changed."""

    after: Key | None
    seen: int
    changed: int


def count(conn: Connection, texts: Texts) -> int:
    return int(value(conn, f"select count(*) from {texts.table}")) if _is_there(conn, texts.table) else 0


def step(conn: Connection, texts: Texts, after: Key | None, *, clean: Clean, write: bool) -> Step:
    """The next batch of a table. Without `write` it is only counted."""
    if not _is_there(conn, texts.table):
        return Step(None, 0, 0)
    found = _page(conn, texts, after)
    changed = 0
    for row in found:
        new = {name: item for name, item in _cleaned(row, texts, clean).items() if item != row[name]}
        if new:
            changed += 1
            if write:
                _WRITE.get(texts.table, _update)(conn, texts, row, new)
    more = len(found) >= BATCH
    return Step(found[-1][texts.key] if more else None, len(found), changed)


def whole(conn: Connection, *, clean: Clean, write: bool) -> dict[str, int]:
    """All of it at once, for a copy that nobody uses: how many rows changed, by table."""
    changed: dict[str, int] = {}
    for texts in TABLES:
        after: Key | None = None
        while True:
            done = step(conn, texts, after, clean=clean, write=write)
            changed[texts.table] = changed.get(texts.table, 0) + done.changed
            if (after := done.after) is None:
                break
    return {table: number for table, number in changed.items() if number}


def _is_there(conn: Connection, table: str) -> bool:
    return bool(value(conn, "select 1 from sqlite_schema where type = 'table' and name = ?", (table,)))


def _page(conn: Connection, texts: Texts, after: Key | None) -> list[Row]:
    """All rows of the last key of a batch: a table may have several for one."""
    where, given = (f"where {texts.key} > ?", (after,)) if after is not None else ("", ())
    found = rows(conn, f"select * from {texts.table} {where} order by {texts.key} limit {BATCH}", given)
    if len(found) < BATCH:
        return found
    last = found[-1][texts.key]
    rest = [row for row in found if row[texts.key] != last]
    return rest + rows(conn, f"select * from {texts.table} where {texts.key} = ?", (last,))


def _cleaned(row: Row, texts: Texts, clean: Clean) -> Row:
    new = {name: clean.text(row[name]) for name in texts.plain if row.get(name)}
    new |= {name: _list(row[name], clean) for name in texts.lists if row.get(name)}
    new |= {name: _record(row[name], clean) for name in texts.columns if row.get(name)}
    if texts.table == "events":
        new["body"] = clean.body(row["body"])
    return new


def _list(text: str, clean: Clean) -> str:
    try:
        found = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return clean.text(text)  # damaged: then it is only a text
    is_plain = isinstance(found, list) and all(isinstance(item, str) for item in found)
    new = clean.texts(found) if clean.texts and is_plain else map_strings(found, clean.text)
    return text if new == found else dump(new)


def _record(text: str, clean: Clean) -> str:
    """Columns of an observation as they were; a list among them is JSON in JSON."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return clean.text(text)
    if not isinstance(found, dict):
        return _list(text, clean)
    new = {name: _column(name, item, clean) for name, item in found.items()}
    return text if new == found else dump(new)


def _column(name: str, item: Any, clean: Clean) -> Any:
    if not isinstance(item, str) or name == "hash":
        return item
    return _list(item, clean) if name in LISTS else clean.text(item)


# --- writing ---------------------------------------------------------------------------------------------------------


def _update(conn: Connection, texts: Texts, row: Row, new: Row) -> None:
    names = ", ".join(f"{name} = :{name}" for name in new)
    conn.execute(f"update {texts.table} set {names} where {texts.key} = :the_key", {**new, "the_key": row[texts.key]})


def _event(conn: Connection, texts: Texts, row: Row, new: Row) -> None:
    _update(conn, texts, row, new)
    if row["turn_id"] is not None and _is_there(conn, "stale"):
        conn.execute("insert or ignore into stale values ('turn', ?)", (row["turn_id"],))


def _observation(conn: Connection, texts: Texts, row: Row, new: Row) -> None:
    """With what follows from its texts. Two keys that were different only in a secret must stay different."""
    if "key" in new:
        new["key"] = f"{new['key']} {row['id']}"
    content = {**row, **new}
    _update(conn, texts, row, {**new, "hash": fingerprint(content), "tokens": cost(content), "updated_at": ids.now()})


def _attic(conn: Connection, texts: Texts, row: Row, new: Row) -> None:
    content = msgspec.json.decode(new["content"])
    kind = value(conn, "select type from observations where id = ?", (row["observation_id"],))
    content["hash"] = fingerprint({**content, "type": kind})
    _update(conn, texts, row, {"content": dump(content)})


def _away(conn: Connection, _: Texts, row: Row, new: Row) -> None:
    """Rows of every kind lie there, each under its own number."""
    where = (new["content"], row["kind"], row["row_id"], row["forgetting_id"])
    conn.execute("update put_away set content = ? where kind = ? and row_id = ? and forgetting_id = ?", where)


def _signal(conn: Connection, _: Texts, row: Row, new: Row) -> None:
    """Anew, not changed: what is counted of files hears of rows that come and go."""
    where = (row["document_id"], row["kind"], row["value"])
    conn.execute("delete from signals where (document_id, kind, value) = (?, ?, ?)", where)
    put = "insert or ignore into signals (document_id, kind, value, times) values (?, ?, ?, ?)"
    conn.execute(put, (row["document_id"], row["kind"], new["value"], row["times"]))


_WRITE = {"events": _event, "observations": _observation, "attic": _attic, "put_away": _away, "signals": _signal}
