"""Projects, and the identities by which they are recognised."""

from __future__ import annotations

import os
from pathlib import Path

from claude_mem.errors import Misuse, NotFound
from claude_mem.git_files import Repository
from claude_mem.projects import GIT, MADE, OLDER, REMOTE, Project
from claude_mem.store import jobs, notices, repositories, rules
from claude_mem.store.database import Connection, Row, one, rows, value
from claude_mem.text import plain, shorten

# What belongs to a project: the name shown to the user, and the table.
BELONGS = {
    "sessions": "sdk_sessions",
    "observations": "observations",
    "summaries": "session_summaries",
    "requests": "ledger",
    "documents": "documents",
    "aliases": "project_aliases",
    "folders": "project_dirs",
    "repositories": "repositories",
}
_PATH_IDENTITIES = ("git", "dir")  # kinds of identity that are paths
_UNCOUNTED = ("documents", "repositories")  # not shown in the preview of a merge


def know(conn: Connection, project: Project, folder: str, *, now: int) -> int:
    """Return the id of the project, creating it if none of its identities is known. Every identity is stored."""
    existing_id = _find_by_identity(conn, project)
    if existing_id is None and (existing_id := _find_by_name(conn, project)) is not None:
        conn.execute("update projects set root = ? where id = ?", (project.root, existing_id))
    if existing_id is None:
        insert = "insert into projects (name, root, created_at) values (?, ?, ?) returning id"
        existing_id = value(conn, insert, (project.name, project.root, now))
    project_id = int(existing_id)
    if project.repository:
        _record_repository(conn, project, project.repository, project_id, now=now)
    _offer_group_merge(conn, project, project_id, now=now)
    for identity in project.every_identity:
        conn.execute("insert or ignore into project_aliases values (?, ?)", (identity, project_id))
    if folder:
        upsert = (
            "insert into project_dirs values (?, ?) on conflict (dir) do update set project_id = excluded.project_id"
        )
        conn.execute(upsert, (folder, project_id))
    return project_id


def find(conn: Connection, project: Project) -> int | None:
    """Return the id of the project if it is known by an identity or by its name."""
    project_id = _find_by_identity(conn, project)
    return _find_by_name(conn, project) if project_id is None else project_id


def _find_by_identity(conn: Connection, project: Project) -> int | None:
    for identity in project.every_identity:
        project_id = _find_alias(conn, identity)
        if project_id is not None and not _is_false_match(conn, project, identity, project_id):
            return project_id
    former_id = _find_alias(conn, project.former) if project.former else None
    return former_id if former_id is not None and show(conn, former_id)["root"] == project.root else None


def _find_alias(conn: Connection, identity: str) -> int | None:
    project_id = value(conn, "select project_id from project_aliases where identity = ?", (identity,))
    return None if project_id is None else int(project_id)


def _is_false_match(conn: Connection, project: Project, identity: str, project_id: int) -> bool:
    """Return whether an identity only seems to belong to this repository."""
    if project.repository is None:
        return False
    if identity.startswith(REMOTE):
        return not _may_join(conn, project.repository, project_id)
    if identity.startswith(GIT):
        return repositories.was_replaced(conn, project.repository)
    return identity.startswith(MADE) and repositories.is_copy(conn, project.repository)


def _may_join(conn: Connection, repository: Repository, project_id: int) -> bool:
    """Return whether a repository that names a project's remote really belongs to the project: it is where the project
    was (cloned again), in the same git directory (a submodule in a worktree), or the project has no folder on this
    machine yet."""
    return (
        _find_alias(conn, f"{GIT}{repository.git_dir}") == project_id
        or repositories.has_sibling(conn, repository, project_id)
        or not _has_local_folder(conn, project_id)
    )


def _has_local_folder(conn: Connection, project_id: int) -> bool:
    """Return whether a project has or had a folder on this machine.

    A project that was only imported has none until it is first opened here.
    """
    query = """
        select exists (select 1 from repositories where project_id = ?1)
            or exists (select 1 from project_dirs where project_id = ?1)
        """
    paths = [
        path
        for kind, _, path in (name.partition(":") for name in aliases(conn, project_id))
        if kind in _PATH_IDENTITIES
    ]
    return bool(value(conn, query, (project_id,))) or any(map(os.path.lexists, paths))


def _find_by_name(conn: Connection, project: Project) -> int | None:
    """Return the id of a project that an older claude-mem knew by name only.

    It belongs to the first repository in a folder of that name, not to one that only claims the name.
    """
    project_id = value(
        conn,
        """
        select p.id from project_aliases a join projects p on p.id = a.project_id
         where a.identity = ? and p.root = '' and ? != ''
           and not exists (select 1 from project_aliases b where b.project_id = p.id and b.identity not like 'older:%')
        """,
        (f"{OLDER}{project.folder or project.name}", project.root),
    )
    return None if project_id is None else int(project_id)


def by_name(conn: Connection, name: str) -> list[int]:
    return [row["id"] for row in rows(conn, "select id from projects where name = ? order by id", (name,))]


def get(conn: Connection, project_id: int) -> Row | None:
    """Return the project, or None."""
    return one(conn, "select id, name, root, created_at from projects where id = ?", (project_id,))


def show(conn: Connection, project_id: int) -> Row:
    """Return the project; raise `NotFound` if there is none."""
    project = get(conn, project_id)
    if project is None:
        raise NotFound(
            f"there is no project {project_id}", hint="run `claude-mem project list` to see the existing ones"
        )
    return project


def aliases(conn: Connection, project_id: int) -> list[str]:
    """Return every identity by which the project is recognised."""
    alias_rows = rows(
        conn, "select identity from project_aliases where project_id = ? order by identity", (project_id,)
    )
    return [row["identity"] for row in alias_rows]


def folders(conn: Connection, project_id: int) -> list[str]:
    return [row["dir"] for row in rows(conn, "select dir from project_dirs where project_id = ?", (project_id,))]


def all_folders(conn: Connection) -> list[str]:
    return [row["dir"] for row in rows(conn, "select dir from project_dirs")]


def with_folders(conn: Connection) -> list[int]:
    """Return the ids of projects whose brief is cached on disk."""
    return [row["project_id"] for row in rows(conn, "select distinct project_id from project_dirs")]


def listing(conn: Connection) -> list[Row]:
    """List the projects with their counts, the most recently active first."""
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


# --- moved and replaced repositories ---------------------------------------------------------------------------------


def _record_repository(
    conn: Connection, project: Project, repository: Repository, project_id: int, *, now: int
) -> None:
    """Record where a repository is now, and update projects that this affects."""
    for git_dir in repositories.left_behind(conn, repository, project_id):
        _follow_move(conn, project, git_dir, repository.git_dir, project_id, now=now)
    previous_id = _find_alias(conn, f"{GIT}{repository.git_dir}")
    if previous_id is not None and previous_id != project_id and repositories.was_replaced(conn, repository):
        _replace_repository(conn, project, repository, project_id, previous_id, now=now)
    _update_taken_root(conn, _main_root(project, repository.git_dir), project_id)
    repositories.note(conn, repository, project_id)
    # One offer is enough, however many clones there are.
    for other in repositories.related(conn, project_id, repository)[:1]:
        text = f"{_describe(conn, project_id)} has the same {other['same']} as {_describe(conn, other['id'])}."
        _offer_merge(conn, project_id, other["id"], text, now=now)


def _offer_group_merge(conn: Connection, project: Project, project_id: int, *, now: int) -> None:
    """Offer to merge a folder into the one above it that a `.claude-mem.toml` names.

    The file alone merges nothing: it may have come with an archive.
    """
    group_id = _find_alias(conn, f"dir:{project.group}") if project.group else None
    if group_id is not None and group_id != project_id:
        here, above = _describe(conn, project_id), _describe(conn, group_id)
        text = f"{here} is inside {above}, which a .claude-mem.toml names."
        _offer_merge(conn, project_id, group_id, text, now=now)


def _main_root(project: Project, git_dir: str) -> str:
    """Return the main work tree of the repository, even if `project` was found in a linked worktree."""
    return str(Path(git_dir).parent) if Path(git_dir).name == ".git" else project.root


def _follow_move(
    conn: Connection, project: Project, old_git_dir: str, new_git_dir: str, project_id: int, *, now: int
) -> None:
    """Remove the path that a git directory was moved away from, since another repository may be created there, and
    update the folders that moved with it."""
    repositories.drop(conn, old_git_dir)
    conn.execute(
        "delete from project_aliases where identity = ? and project_id = ?", (f"{GIT}{old_git_dir}", project_id)
    )
    known_root, root = show(conn, project_id)["root"], _main_root(project, new_git_dir)
    old_root = str(Path(old_git_dir).parent) if Path(old_git_dir).name == ".git" else known_root
    for folder in _folders_below(conn, project_id, old_root) if old_root else ():
        new_folder = root + folder.removeprefix(old_root)
        conn.execute("update or replace project_dirs set dir = ? where dir = ?", (new_folder, folder))
    if known_root == old_root:
        conn.execute("update projects set root = ? where id = ?", (root, project_id))
    _enqueue_render(conn, project_id, now=now)


def _replace_repository(
    conn: Connection, project: Project, repository: Repository, project_id: int, previous_id: int, *, now: int
) -> None:
    """Give the path and the folders below it to a new repository, which is where another project's repository was."""
    conn.execute(
        "update project_aliases set project_id = ? where identity = ?", (project_id, f"{GIT}{repository.git_dir}")
    )
    repositories.drop(conn, repository.git_dir)
    for folder in _folders_below(conn, previous_id, _main_root(project, repository.git_dir)):
        conn.execute("delete from project_dirs where dir = ?", (folder,))
    for changed_id in (previous_id, project_id):
        _enqueue_render(conn, changed_id, now=now)
    if not repositories.is_seen(conn, previous_id):
        text = f"{_describe(conn, project_id)} is a new repository in the place of {_describe(conn, previous_id)}."
        _offer_merge(conn, project_id, previous_id, text, now=now)


def _update_taken_root(conn: Connection, root: str, project_id: int) -> None:
    """Move a project's root to where it was last seen if the stored root now belongs to another project."""
    own = show(conn, project_id)["root"]
    if own != root and _find_alias(conn, f"{GIT}{own}/.git") not in (None, project_id):
        conn.execute("update projects set root = ? where id = ?", (root, project_id))


def _folders_below(conn: Connection, project_id: int, root: str) -> list[str]:
    return [folder for folder in folders(conn, project_id) if Path(folder).is_relative_to(root)]


def _enqueue_render(conn: Connection, project_id: int, *, now: int) -> None:
    """Enqueue a job that writes the brief for the project's current folders and removes it from former ones."""
    jobs.ask(conn, "render", f"{project_id}.moved.{now}", now=now)


def _describe(conn: Connection, project_id: int) -> str:
    """Describe a project for the user: id, name and location."""
    row = show(conn, project_id)
    return f"project {project_id}, {shorten(plain(row['name']), 60)} ({shorten(plain(row['root']), 200)})"


def _offer_merge(conn: Connection, project_id: int, other_id: int, text: str, *, now: int) -> None:
    """Tell the user once how to merge two projects. They are never merged automatically: anyone can copy a history."""
    key = notices.merge_key(project_id, other_id)
    instruction = f"If they are the same project, merge their memories: `{merge_command(project_id, other_id)}`."
    notices.put(conn, key, f"claude-mem: {text} {instruction}", now=now)


def merge_command(source: int, target: int) -> str:
    return f"claude-mem project merge {source} {target}"


def related(conn: Connection, project_id: int, repository: Repository | None = None) -> list[Row]:
    """Return other projects with the `same` remote or first commit, each with the command that merges the two."""
    related_rows = repositories.related(conn, project_id, repository)
    return [{**row, "command": merge_command(project_id, row["id"]) if project_id else ""} for row in related_rows]


def here(conn: Connection, project: Project) -> Row:
    """Return the id of a folder's project, if it is known yet, and the projects it may have to be merged with."""
    project_id = find(conn, project)
    return {"id": project_id, "related": related(conn, project_id or 0, project.repository)}


# --- changing --------------------------------------------------------------------------------------------------------


def rename(conn: Connection, project_id: int, name: str) -> Row:
    show(conn, project_id)
    conn.execute("update projects set name = ? where id = ?", (name, project_id))
    return show(conn, project_id)


def would_move(conn: Connection, source: int, target: int) -> Row:
    """Preview a merge: both projects, and how many rows of each kind would move."""
    if source == target:
        raise Misuse("a project cannot be merged into itself", hint="name two different projects")
    counts = {word: _count(conn, table, source) for word, table in BELONGS.items() if word not in _UNCOUNTED}
    return {"from": show(conn, source), "into": show(conn, target), "moves": counts}


def _count(conn: Connection, table: str, project_id: int) -> int:
    """Count the visible rows. A deleted observation is only an empty row."""
    visible = "and not forgotten" if table == "observations" else ""
    return int(value(conn, f"select count(*) from {table} where project_id = ? {visible}", (project_id,)))


def merge(conn: Connection, source: int, target: int) -> Row:
    """Move everything of the source project to the target, including its identities, and delete the source."""
    preview = would_move(conn, source, target)
    index_queue = rows(conn, "select kind, row_id from stale")
    for table in BELONGS.values():
        conn.execute(f"update {table} set project_id = ? where project_id = ?", (target, source))
    _move_known_files(conn, source, target)
    conn.execute("delete from trusted_sources where project_id = ?", (source,))  # trust is not transferred
    _move_deleted_rows(conn, source, target)
    conn.execute(
        """
        update projects set created_at = min(created_at, ?2), root = iif(root = '', ?3, root) where id = ?1
        """,
        (target, preview["from"]["created_at"], preview["from"]["root"]),
    )
    conn.execute("delete from projects where id = ?", (source,))
    notices.drop_merges(conn, source)
    _restore_index_queue(conn, target, index_queue)
    rules.link(conn, target)
    return {**preview, "into": show(conn, target)}


def _move_deleted_rows(conn: Connection, source: int, target: int) -> None:
    """Move deleted rows that can still be restored to the target as well."""
    conn.execute(
        """
        update put_away set project_id = ?1,
               content = iif(content like '{%' and json_extract(content, '$.project_id') is not null,
                             json_set(content, '$.project_id', ?1), content)
         where project_id = ?2
        """,
        (target, source),
    )


def _move_known_files(conn: Connection, source: int, target: int) -> None:
    """Move the file counts in one statement; a trigger per document takes a minute in large projects."""
    conn.execute(
        """
        insert into known_files select ?2, path, edited, read, newest_at from known_files where project_id = ?1
            on conflict do update set edited = edited + excluded.edited, read = read + excluded.read,
               newest_at = max(newest_at, excluded.newest_at)
        """,
        (source, target),
    )
    conn.execute("delete from known_files where project_id = ?", (source,))


def _restore_index_queue(conn: Connection, target: int, index_queue: list[Row]) -> None:
    """Restore the index queue: a merge changes no text, so nothing has to be indexed again except observations saved by
    hand, which have new neighbours."""
    for kind, table, condition in (
        ("observation", "observations", "turn_id is not null"),
        ("summary", "session_summaries", "1"),
    ):
        moved_sql = f"select id from {table} where project_id = ? and {condition}"
        conn.execute(f"delete from stale where kind = '{kind}' and row_id in ({moved_sql})", (target,))
    conn.executemany("insert or ignore into stale values (?, ?)", [(row["kind"], row["row_id"]) for row in index_queue])
