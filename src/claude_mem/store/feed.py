"""What was remembered, said and done lately, of all kinds together, newest first."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from claude_mem.errors import Misuse
from claude_mem.store.database import Connection, Row, rows
from claude_mem.store.observations import QUERIES, loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which ones. Empty means any; a type or a concept only an observation has."""

    project_id: int = 0
    kind: str = ""
    type: str = ""
    concept: str = ""
    host: str = ""
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Between two items: after it come those that are older."""

    at: int
    kind: str
    id: int

    @classmethod
    def parse(cls, given: str) -> Place:
        at, _, rest = given.partition(".")
        kind, _, row_id = rest.partition(".")
        if not (at.isascii() and at.isdigit() and len(at) < 16 and row_id.isascii() and row_id.isdigit()):
            raise Misuse("`before` is no place in the feed", hint="use the `next` of the page before")
        return cls(int(at), kind, int(row_id[:15]))

    def __str__(self) -> str:
        return f"{self.at}.{self.kind}.{self.id}"


def page(conn: Connection, wanted: Wanted, *, before: Place | None, limit: int) -> tuple[list[Row], Place | None]:
    """One page, and where the next one begins. One query a kind, each along its index."""
    found = [row for kind in _kinds(wanted) for row in _of_kind(conn, kind, wanted, before, limit + 1)]
    ordered = sorted(found, key=_key, reverse=True)
    shown, more = ordered[:limit], len(ordered) > limit
    return [loaded(row) for row in shown], Place(*_key(shown[-1])) if more else None


def _kinds(wanted: Wanted) -> list[str]:
    only = "observation" if wanted.type or wanted.concept else wanted.kind
    if wanted.kind and only != wanted.kind:
        return []
    return [kind for kind in QUERIES if only in ("", kind)]


def _key(row: Row) -> tuple[int, str, int]:
    return row["created_at"], row["kind"], row["id"]


def _of_kind(conn: Connection, kind: str, wanted: Wanted, before: Place | None, limit: int) -> list[Row]:
    project = "s.project_id" if kind == "prompt" else "o.project_id"
    # One that is of the very same moment comes after, if its kind and number do.
    place = "(o.created_at, :kind, o.id) < (:at, :at_kind, :at_id) and o.created_at <= :at" if before else ""
    conditions = {
        place: before,
        f"{project} = :project": wanted.project_id,
        "o.type = :type": wanted.type,
        "instr(o.concepts, :concept)": wanted.concept,
        "s.host = :host": wanted.host,
        "o.created_at >= :since": wanted.since is not None,
        "o.created_at < :until": wanted.until is not None,
    }
    where = " and ".join(["", *(text for text, given in conditions.items() if text and given)])
    return rows(
        conn,
        f"{QUERIES[kind]} {where} order by o.created_at desc, o.id desc limit :limit",
        {
            "kind": kind,
            "at": before.at if before else None,
            "at_kind": before.kind if before else None,
            "at_id": before.id if before else None,
            "project": wanted.project_id,
            "type": wanted.type,
            "concept": msgspec.json.encode(wanted.concept).decode(),  # as it stands in the list, quotes and all
            "host": wanted.host,
            "since": wanted.since,
            "until": wanted.until,
            "limit": limit,
        },
    )
