"""Which projects there are, and by what they are known."""

from __future__ import annotations

from claude_mem.errors import Misuse, NotFound
from claude_mem.projects import OLDER, Project
from claude_mem.store.database import Connection, Row, one, rows, value

# Whatever belongs to a project: in words, and the table it lies in.
BELONGS = {
    "sessions": "sdk_sessions",
    "observations": "observations",
    "summaries": "session_summaries",
    "requests": "ledger",
    "documents": "documents",
    "aliases": "project_aliases",
    "folders": "project_dirs",
}


def know(conn: Connection, found: Project, folder: str, *, now: int) -> int:
    """The id of the project, new or known by any of its identities; every identity is remembered."""
    known = None
    for identity in found.identities:
        known = known or value(conn, "select project_id from project_aliases where identity = ?", (identity,))
    if known is None and (known := _known_by_name(conn, found)) is not None:
        conn.execute("update projects set root = ? where id = ?", (found.root, known))
    if known is None:
        insert = "insert into projects (name, root, created_at) values (?, ?, ?) returning id"
        known = value(conn, insert, (found.name, found.root, now))
    for identity in found.identities:
        conn.execute("insert or ignore into project_aliases values (?, ?)", (identity, known))
    if folder:
        upsert = (
            "insert into project_dirs values (?, ?) on conflict (dir) do update set project_id = excluded.project_id"
        )
        conn.execute(upsert, (folder, known))
    return int(known)


def find(conn: Connection, wanted: Project) -> int | None:
    for identity in wanted.identities:
        if found := value(conn, "select project_id from project_aliases where identity = ?", (identity,)):
            return int(found)
    return _known_by_name(conn, wanted)


def _known_by_name(conn: Connection, wanted: Project) -> int | None:
    """What an older claude-mem knew by name only belongs to the first repository of that name; not to one that only
    says that it is called so."""
    found = value(
        conn,
        """
        select p.id from project_aliases a join projects p on p.id = a.project_id
         where a.identity = ? and p.root = '' and ? != ''
           and not exists (select 1 from project_aliases b where b.project_id = p.id and b.identity not like 'older:%')
        """,
        (f"{OLDER}{wanted.folder or wanted.name}", wanted.root),
    )
    return None if found is None else int(found)


def by_name(conn: Connection, name: str) -> list[int]:
    return [row["id"] for row in rows(conn, "select id from projects where name = ? order by id", (name,))]


def get(conn: Connection, project_id: int) -> Row | None:
    return one(conn, "select id, name, root, created_at from projects where id = ?", (project_id,))


def show(conn: Connection, project_id: int) -> Row:
    found = get(conn, project_id)
    if found is None:
        raise NotFound(f"there is no project {project_id}", hint="`claude-mem project list` shows what there is")
    return found


def aliases(conn: Connection, project_id: int) -> list[str]:
    """Everything by which it is recognised."""
    found = rows(conn, "select identity from project_aliases where project_id = ? order by identity", (project_id,))
    return [row["identity"] for row in found]


def folders(conn: Connection, project_id: int) -> list[str]:
    return [row["dir"] for row in rows(conn, "select dir from project_dirs where project_id = ?", (project_id,))]


def with_folders(conn: Connection) -> list[int]:
    """Those whose start context lies ready on disk."""
    return [row["project_id"] for row in rows(conn, "select distinct project_id from project_dirs")]


def listing(conn: Connection) -> list[Row]:
    return rows(
        conn,
        """
        select p.id, p.name, p.root,
               (select count(*) from sdk_sessions s where s.project_id = p.id) as sessions,
               (select count(*) from observations o where o.project_id = p.id and not o.forgotten) as observations,
               (select max(last_event_at) from sdk_sessions s where s.project_id = p.id) as last_event_at
          from projects p order by last_event_at desc, p.id
        """,
    )


# --- changing --------------------------------------------------------------------------------------------------------


def rename(conn: Connection, project_id: int, name: str) -> Row:
    show(conn, project_id)
    conn.execute("update projects set name = ? where id = ?", (name, project_id))
    return show(conn, project_id)


def would_move(conn: Connection, source: int, target: int) -> Row:
    """What a merge would move: how many of each, and into what."""
    if source == target:
        raise Misuse("a project can't be merged into itself", hint="name two projects")
    counts = {word: _count(conn, table, source) for word, table in BELONGS.items() if word != "documents"}
    return {"from": show(conn, source), "into": show(conn, target), "moves": counts}


def _count(conn: Connection, table: str, project_id: int) -> int:
    """What is seen: of a forgotten observation only an empty row is left."""
    seen = "and not forgotten" if table == "observations" else ""
    return int(value(conn, f"select count(*) from {table} where project_id = ? {seen}", (project_id,)))


def merge(conn: Connection, source: int, target: int) -> Row:
    """Everything of the one becomes the other's, which is known by all that either was known by. The one is gone."""
    found = would_move(conn, source, target)
    untouched = rows(conn, "select kind, row_id from stale")
    for table in BELONGS.values():
        conn.execute(f"update {table} set project_id = ? where project_id = ?", (target, source))
    _move_files(conn, source, target)
    conn.execute("delete from trusted_sources where project_id = ?", (source,))  # trust is not handed on
    _move_away(conn, source, target)
    conn.execute(
        """
        update projects set created_at = min(created_at, ?2), root = iif(root = '', ?3, root) where id = ?1
        """,
        (target, found["from"]["created_at"], found["from"]["root"]),
    )
    conn.execute("delete from projects where id = ?", (source,))
    _index_stays(conn, target, untouched)
    return {**found, "into": show(conn, target)}


def _move_away(conn: Connection, source: int, target: int) -> None:
    """What was forgotten and may be brought back belongs to the other as well then."""
    conn.execute(
        """
        update put_away set project_id = ?1,
               content = iif(content like '{%' and json_extract(content, '$.project_id') is not null,
                             json_set(content, '$.project_id', ?1), content)
         where project_id = ?2
        """,
        (target, source),
    )


def _move_files(conn: Connection, source: int, target: int) -> None:
    """All at once: a trigger for each document takes a minute where there are many."""
    conn.execute(
        """
        insert into known_files select ?2, path, edited, read, newest_at from known_files where project_id = ?1
            on conflict do update set edited = edited + excluded.edited, read = read + excluded.read,
               newest_at = max(newest_at, excluded.newest_at)
        """,
        (source, target),
    )
    conn.execute("delete from known_files where project_id = ?", (source,))


def _index_stays(conn: Connection, target: int, stale_before: list[Row]) -> None:
    """Nothing was reworded, so nothing has to be indexed again; but what is saved by hand has new neighbours."""
    for kind, table, own in (
        ("observation", "observations", "turn_id is not null"),
        ("summary", "session_summaries", "1"),
    ):
        moved = f"select id from {table} where project_id = ? and {own}"
        conn.execute(f"delete from stale where kind = '{kind}' and row_id in ({moved})", (target,))
    conn.executemany(
        "insert or ignore into stale values (?, ?)", [(row["kind"], row["row_id"]) for row in stale_before]
    )
