"""Which projects there are, and by what they are known."""

from __future__ import annotations

from claude_mem.projects import OLDER, Project
from claude_mem.store.database import Connection, Row, one, rows, value


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
    """What an older claude-mem knew by name only belongs to the first repository of that name."""
    found = value(
        conn,
        """
        select p.id from project_aliases a join projects p on p.id = a.project_id
         where a.identity = ? and p.root = '' and ? != ''
        """,
        (f"{OLDER}{wanted.name}", wanted.root),
    )
    return None if found is None else int(found)


def by_name(conn: Connection, name: str) -> list[int]:
    return [row["id"] for row in rows(conn, "select id from projects where name = ? order by id", (name,))]


def get(conn: Connection, project_id: int) -> Row | None:
    return one(conn, "select id, name, root, created_at from projects where id = ?", (project_id,))


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
