"""The feed: observations, summaries and prompts together, newest first."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from claude_mem.errors import Misuse
from claude_mem.store.database import Connection, Row, rows
from claude_mem.store.observations import QUERIES, loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which items to list. An empty field means no restriction; only observations have a type or a concept."""

    project_id: int = 0
    kind: str = ""
    type: str = ""
    concept: str = ""
    host: str = ""
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A cursor in the feed. The next page has the items older than this one."""

    at: int
    kind: str
    id: int

    @classmethod
    def parse(cls, text: str) -> Place:
        at, _, rest = text.partition(".")
        kind, _, row_id = rest.partition(".")
        if not (at.isascii() and at.isdigit() and len(at) < 16 and row_id.isascii() and row_id.isdigit()):
            raise Misuse("`before` is not a valid cursor", hint="pass the `next` value of the previous page")
        return cls(int(at), kind, int(row_id[:15]))

    def __str__(self) -> str:
        return f"{self.at}.{self.kind}.{self.id}"


def page(conn: Connection, feed_filter: Wanted, *, before: Place | None, limit: int) -> tuple[list[Row], Place | None]:
    """Return one page and the cursor of the next page. Each kind is one query along its index."""
    candidates = [
        row for kind in _kinds(feed_filter) for row in _fetch_kind(conn, kind, feed_filter, before, limit + 1)
    ]
    ordered = sorted(candidates, key=_sort_key, reverse=True)
    items, has_more = ordered[:limit], len(ordered) > limit
    return [loaded(row) for row in items], Place(*_sort_key(items[-1])) if has_more else None


def _kinds(feed_filter: Wanted) -> list[str]:
    only = "observation" if feed_filter.type or feed_filter.concept else feed_filter.kind
    if feed_filter.kind and only != feed_filter.kind:
        return []
    return [kind for kind in QUERIES if only in ("", kind)]


def _sort_key(row: Row) -> tuple[int, str, int]:
    return row["created_at"], row["kind"], row["id"]


def _fetch_kind(conn: Connection, kind: str, feed_filter: Wanted, before: Place | None, limit: int) -> list[Row]:
    project = "s.project_id" if kind == "prompt" else "o.project_id"
    # Items of the same millisecond are ordered by kind and id.
    before_cursor = "(o.created_at, :kind, o.id) < (:at, :at_kind, :at_id) and o.created_at <= :at" if before else ""
    conditions = {
        before_cursor: before,
        f"{project} = :project": feed_filter.project_id,
        "o.type = :type": feed_filter.type,
        "instr(o.concepts, :concept)": feed_filter.concept,
        "s.host = :host": feed_filter.host,
        "o.created_at >= :since": feed_filter.since is not None,
        "o.created_at < :until": feed_filter.until is not None,
    }
    where = " and ".join(["", *(text for text, is_set in conditions.items() if text and is_set)])
    return rows(
        conn,
        f"{QUERIES[kind]} {where} order by o.created_at desc, o.id desc limit :limit",
        {
            "kind": kind,
            "at": before.at if before else None,
            "at_kind": before.kind if before else None,
            "at_id": before.id if before else None,
            "project": feed_filter.project_id,
            "type": feed_filter.type,
            "concept": msgspec.json.encode(feed_filter.concept).decode(),  # as in the JSON list, with quotes
            "host": feed_filter.host,
            "since": feed_filter.since,
            "until": feed_filter.until,
            "limit": limit,
        },
    )
