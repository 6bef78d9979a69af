"""Projects, and the identities by which they are recognised.

A project has one identity for each way to recognise it: a name, a remote, a git directory, a folder. Git directories are
recorded as they were last seen, which shows whether one was moved or replaced, and which projects share a remote or a
first commit. Such projects are offered for merging; they are never merged automatically.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from msgspec import structs

from claude_mem.domain.errors import InvalidRequest, NotFound
from claude_mem.domain.project_reports import (
    MergePreview,
    Project,
    ProjectHere,
    ProjectSummary,
    RelatedProject,
    SimilarProject,
)
from claude_mem.domain.text import shorten, strip_invisible
from claude_mem.storage.sqlite.engine import (
    Connection,
    Row,
    fetch_all,
    fetch_one,
    fetch_record,
    fetch_records,
    fetch_value,
)
from claude_mem.storage.sqlite.journal import jobs, notices
from claude_mem.storage.sqlite.memory import observations
from claude_mem.system import git_files
from claude_mem.system.git_files import Repository
from claude_mem.system.project_folders import CREATION_PREFIX, GIT_PREFIX, LEGACY_PREFIX, REMOTE_PREFIX, ResolvedProject

# What belongs to a project: the name shown to the user, and the table.
PROJECT_TABLES = {
    "sessions": "sdk_sessions",
    "observations": "observations",
    "summaries": "session_summaries",
    "requests": "ledger",
    "documents": "documents",
    "aliases": "project_aliases",
    "folders": "project_dirs",
    "repositories": "repositories",
}
MAX_RELATED_PROJECTS = 5
_PATH_IDENTITIES = ("git", "dir")  # kinds of identity that are paths
_UNCOUNTED = ("documents", "repositories")  # not shown in the preview of a merge
_SUBMODULE = re.compile(r"(.+?\.git)/(?:worktrees/[^/]+/)?modules/")


# --- registering -----------------------------------------------------------------------------------------------------


def register_project(conn: Connection, project: ResolvedProject, folder: str, *, now: int) -> int:
    """Return the id of the project, creating it if none of its identities is known. Every identity is stored."""
    existing_id = _find_by_identity(conn, project)
    if existing_id is None and (existing_id := _find_by_name(conn, project)) is not None:
        conn.execute("update projects set root = ? where id = ?", (project.root, existing_id))
    if existing_id is None:
        insert = "insert into projects (name, root, created_at) values (?, ?, ?) returning id"
        existing_id = fetch_value(conn, insert, (project.name, project.root, now))
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


def find_project_id(conn: Connection, project: ResolvedProject) -> int | None:
    """Return the id of the project if it is known by an identity or by its name."""
    project_id = _find_by_identity(conn, project)
    return _find_by_name(conn, project) if project_id is None else project_id


def _find_by_identity(conn: Connection, project: ResolvedProject) -> int | None:
    for identity in project.every_identity:
        project_id = _find_alias(conn, identity)
        if project_id is not None and not _is_false_match(conn, project, identity, project_id):
            return project_id
    former_id = _find_alias(conn, project.former) if project.former else None
    return former_id if former_id is not None and get_project(conn, former_id).root == project.root else None


def _find_alias(conn: Connection, identity: str) -> int | None:
    project_id = fetch_value(conn, "select project_id from project_aliases where identity = ?", (identity,))
    return None if project_id is None else int(project_id)


def _is_false_match(conn: Connection, project: ResolvedProject, identity: str, project_id: int) -> bool:
    """Return whether an identity only seems to belong to this repository."""
    if project.repository is None:
        return False
    if identity.startswith(REMOTE_PREFIX):
        return not _may_join(conn, project.repository, project_id)
    if identity.startswith(GIT_PREFIX):
        return _was_repository_replaced(conn, project.repository)
    return identity.startswith(CREATION_PREFIX) and _is_repository_copy(conn, project.repository)


def _may_join(conn: Connection, repository: Repository, project_id: int) -> bool:
    """Return whether a repository that names a project's remote really belongs to the project.

    It does if it is where the project was (cloned again) or in the same git directory (a submodule in a worktree), or
    if the project has no folder on this machine yet.
    """
    return (
        _find_alias(conn, f"{GIT_PREFIX}{repository.git_dir}") == project_id
        or _has_sibling_repository(conn, repository, project_id)
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
        for kind, _, path in (name.partition(":") for name in list_project_aliases(conn, project_id))
        if kind in _PATH_IDENTITIES
    ]
    return bool(fetch_value(conn, query, (project_id,))) or any(map(os.path.lexists, paths))


def _find_by_name(conn: Connection, project: ResolvedProject) -> int | None:
    """Return the id of a project that an older claude-mem knew by name only.

    It belongs to the first repository in a folder of that name, not to one that only claims the name.
    """
    project_id = fetch_value(
        conn,
        """
        select p.id from project_aliases a join projects p on p.id = a.project_id
         where a.identity = ? and p.root = '' and ? != ''
           and not exists (select 1 from project_aliases b where b.project_id = p.id and b.identity not like 'older:%')
        """,
        (f"{LEGACY_PREFIX}{project.folder or project.name}", project.root),
    )
    return None if project_id is None else int(project_id)


# --- reading ---------------------------------------------------------------------------------------------------------


def list_project_ids_by_name(conn: Connection, name: str) -> list[int]:
    """Return the ids of all projects with this name, oldest first."""
    return [row["id"] for row in fetch_all(conn, "select id from projects where name = ? order by id", (name,))]


def find_project(conn: Connection, project_id: int) -> Project | None:
    """Return the project, or None."""
    return fetch_record(conn, Project, "select id, name, root, created_at from projects where id = ?", (project_id,))


def get_project(conn: Connection, project_id: int) -> Project:
    """Return the project; raise `NotFound` if there is none."""
    project = find_project(conn, project_id)
    if project is None:
        raise NotFound(
            f"there is no project {project_id}", hint="run `claude-mem project list` to see the existing ones"
        )
    return project


def list_project_aliases(conn: Connection, project_id: int) -> list[str]:
    """Return every identity by which the project is recognised."""
    alias_rows = fetch_all(
        conn, "select identity from project_aliases where project_id = ? order by identity", (project_id,)
    )
    return [row["identity"] for row in alias_rows]


def list_project_folders(conn: Connection, project_id: int) -> list[str]:
    """Return the known folders of the project."""
    return [row["dir"] for row in fetch_all(conn, "select dir from project_dirs where project_id = ?", (project_id,))]


def list_all_folders(conn: Connection) -> list[str]:
    """Return the known folders of all projects."""
    return [row["dir"] for row in fetch_all(conn, "select dir from project_dirs")]


def list_projects_with_folders(conn: Connection) -> list[int]:
    """Return the ids of projects whose brief is cached on disk."""
    return [row["project_id"] for row in fetch_all(conn, "select distinct project_id from project_dirs")]


def list_projects_with_counts(conn: Connection) -> list[ProjectSummary]:
    """List the projects with their counts, the most recently active first."""
    return fetch_records(
        conn,
        ProjectSummary,
        """
        select p.id, p.name, p.root,
               (select count(*) from sdk_sessions s where s.project_id = p.id) as sessions,
               (select count(*) from observations o where o.project_id = p.id and not o.forgotten) as observations,
               (select max(last_event_at) from sdk_sessions s where s.project_id = p.id) as last_event_at
          from projects p order by last_event_at desc, p.id
        """,
    )


def list_related_projects(
    conn: Connection, project_id: int, repository: Repository | None = None
) -> list[RelatedProject]:
    """Return other projects with the `same` remote or first commit, each with the command that merges the two."""
    return [
        RelatedProject(
            **structs.asdict(project), command=_format_merge_command(project_id, project.id) if project_id else ""
        )
        for project in _find_projects_with_same_origin(conn, project_id, repository)
    ]


def describe_project_here(conn: Connection, project: ResolvedProject) -> ProjectHere:
    """Return the id of a folder's project, if it is known yet, and the projects it may have to be merged with."""
    project_id = find_project_id(conn, project)
    return ProjectHere(id=project_id, related=list_related_projects(conn, project_id or 0, project.repository))


# --- renaming and merging --------------------------------------------------------------------------------------------


def rename_project(conn: Connection, project_id: int, name: str) -> Project:
    """Change the name of a project and return the project."""
    get_project(conn, project_id)
    conn.execute("update projects set name = ? where id = ?", (name, project_id))
    return get_project(conn, project_id)


def preview_project_merge(conn: Connection, source: int, target: int) -> MergePreview:
    """Preview a merge: both projects, and how many rows of each kind would move."""
    if source == target:
        raise InvalidRequest("a project cannot be merged into itself", hint="name two different projects")
    counts = {word: _count(conn, table, source) for word, table in PROJECT_TABLES.items() if word not in _UNCOUNTED}
    return MergePreview(from_=get_project(conn, source), into=get_project(conn, target), moves=counts)


def _count(conn: Connection, table: str, project_id: int) -> int:
    """Count the visible rows. A deleted observation is only an empty row."""
    visible = "and not forgotten" if table == "observations" else ""
    return int(fetch_value(conn, f"select count(*) from {table} where project_id = ? {visible}", (project_id,)))


def merge_project_into(conn: Connection, source: int, target: int) -> MergePreview:
    """Move everything of the source project to the target, including its identities, and delete the source."""
    preview = preview_project_merge(conn, source, target)
    index_queue = fetch_all(conn, "select kind, row_id from index_queue")
    for table in PROJECT_TABLES.values():
        conn.execute(f"update {table} set project_id = ? where project_id = ?", (target, source))
    _move_known_files(conn, source, target)
    conn.execute("delete from trusted_sources where project_id = ?", (source,))  # trust is not transferred
    _move_deleted_rows(conn, source, target)
    conn.execute(
        """
        update projects set created_at = min(created_at, ?2), root = iif(root = '', ?3, root) where id = ?1
        """,
        (target, preview.from_.created_at, preview.from_.root),
    )
    conn.execute("delete from projects where id = ?", (source,))
    notices.withdraw_merge_offers(conn, source)
    _restore_index_queue(conn, target, index_queue)
    observations.link_statements(conn, target)
    return structs.replace(preview, into=get_project(conn, target))


def _move_deleted_rows(conn: Connection, source: int, target: int) -> None:
    """Move deleted rows that can still be restored to the target as well."""
    conn.execute(
        """
        update deleted_rows set project_id = ?1,
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
    """Restore the index queue to what it was before the merge.

    A merge changes no text, so nothing has to be indexed again except observations saved by hand, which have new
    neighbours.
    """
    for kind, table, condition in (
        ("observation", "observations", "turn_id is not null"),
        ("summary", "session_summaries", "1"),
    ):
        moved_sql = f"select id from {table} where project_id = ? and {condition}"
        conn.execute(f"delete from index_queue where kind = '{kind}' and row_id in ({moved_sql})", (target,))
    conn.executemany(
        "insert or ignore into index_queue values (?, ?)", [(row["kind"], row["row_id"]) for row in index_queue]
    )


# --- moved and replaced repositories ---------------------------------------------------------------------------------


def _record_repository(
    conn: Connection, project: ResolvedProject, repository: Repository, project_id: int, *, now: int
) -> None:
    """Record where a repository is now, and update projects that this affects."""
    for git_dir in _list_former_git_dirs(conn, repository, project_id):
        _follow_move(conn, project, git_dir, repository.git_dir, project_id, now=now)
    previous_id = _find_alias(conn, f"{GIT_PREFIX}{repository.git_dir}")
    if previous_id is not None and previous_id != project_id and _was_repository_replaced(conn, repository):
        _replace_repository(conn, project, repository, project_id, previous_id, now=now)
    _update_taken_root(conn, _main_root(project, repository.git_dir), project_id)
    _upsert_repository(conn, repository, project_id)
    # One offer is enough, however many clones there are.
    for other in _find_projects_with_same_origin(conn, project_id, repository)[:1]:
        text = f"{_describe(conn, project_id)} has the same {other.same} as {_describe(conn, other.id)}."
        _offer_merge(conn, project_id, other.id, text, now=now)


def _main_root(project: ResolvedProject, git_dir: str) -> str:
    """Return the main work tree of the repository, even if `project` was found in a linked worktree."""
    return str(Path(git_dir).parent) if Path(git_dir).name == ".git" else project.root


def _follow_move(
    conn: Connection, project: ResolvedProject, old_git_dir: str, new_git_dir: str, project_id: int, *, now: int
) -> None:
    """Remove the former path of a git directory that was moved, and update the folders that moved with it.

    Another repository may be created at the former path.
    """
    _delete_repository(conn, old_git_dir)
    conn.execute(
        "delete from project_aliases where identity = ? and project_id = ?", (f"{GIT_PREFIX}{old_git_dir}", project_id)
    )
    known_root, root = get_project(conn, project_id).root, _main_root(project, new_git_dir)
    old_root = str(Path(old_git_dir).parent) if Path(old_git_dir).name == ".git" else known_root
    for folder in _folders_below(conn, project_id, old_root) if old_root else ():
        new_folder = root + folder.removeprefix(old_root)
        conn.execute("update or replace project_dirs set dir = ? where dir = ?", (new_folder, folder))
    if known_root == old_root:
        conn.execute("update projects set root = ? where id = ?", (root, project_id))
    _enqueue_render(conn, project_id, now=now)


def _replace_repository(
    conn: Connection, project: ResolvedProject, repository: Repository, project_id: int, previous_id: int, *, now: int
) -> None:
    """Give the path and the folders below it to a new repository, which is where another project's repository was."""
    conn.execute(
        "update project_aliases set project_id = ? where identity = ?",
        (project_id, f"{GIT_PREFIX}{repository.git_dir}"),
    )
    _delete_repository(conn, repository.git_dir)
    for folder in _folders_below(conn, previous_id, _main_root(project, repository.git_dir)):
        conn.execute("delete from project_dirs where dir = ?", (folder,))
    for changed_id in (previous_id, project_id):
        _enqueue_render(conn, changed_id, now=now)
    if not _has_present_repository(conn, previous_id):
        text = f"{_describe(conn, project_id)} is a new repository in the place of {_describe(conn, previous_id)}."
        _offer_merge(conn, project_id, previous_id, text, now=now)


def _update_taken_root(conn: Connection, root: str, project_id: int) -> None:
    """Move a project's root to where it was last seen if the stored root now belongs to another project."""
    own = get_project(conn, project_id).root
    if own != root and _find_alias(conn, f"{GIT_PREFIX}{own}/.git") not in (None, project_id):
        conn.execute("update projects set root = ? where id = ?", (root, project_id))


def _folders_below(conn: Connection, project_id: int, root: str) -> list[str]:
    return [folder for folder in list_project_folders(conn, project_id) if Path(folder).is_relative_to(root)]


def _enqueue_render(conn: Connection, project_id: int, *, now: int) -> None:
    """Enqueue a job that writes the brief for the project's current folders and removes it from former ones."""
    jobs.enqueue_job(conn, "render", f"{project_id}.moved.{now}", now=now)


# --- offers to merge -------------------------------------------------------------------------------------------------


def _offer_group_merge(conn: Connection, project: ResolvedProject, project_id: int, *, now: int) -> None:
    """Offer to merge a folder into the one above it that a `.claude-mem.toml` names.

    The file alone merges nothing: it may have come with an archive.
    """
    group_id = _find_alias(conn, f"dir:{project.group}") if project.group else None
    if group_id is not None and group_id != project_id:
        here, above = _describe(conn, project_id), _describe(conn, group_id)
        text = f"{here} is inside {above}, which a .claude-mem.toml names."
        _offer_merge(conn, project_id, group_id, text, now=now)


def _offer_merge(conn: Connection, project_id: int, other_id: int, text: str, *, now: int) -> None:
    """Tell the user once how to merge two projects. They are never merged automatically: anyone can copy a history."""
    key = notices.merge_offer_key(project_id, other_id)
    instruction = (
        f"If they are the same project, merge their memories: `{_format_merge_command(project_id, other_id)}`."
    )
    notices.add_notice(conn, key, f"claude-mem: {text} {instruction}", now=now)


def _format_merge_command(source: int, target: int) -> str:
    return f"claude-mem project merge {source} {target}"


def _describe(conn: Connection, project_id: int) -> str:
    """Describe a project for the user: id, name and location."""
    row = get_project(conn, project_id)
    return f"project {project_id}, {shorten(strip_invisible(row.name), 60)} ({shorten(strip_invisible(row.root), 200)})"


# --- git directories -------------------------------------------------------------------------------------------------


def _upsert_repository(conn: Connection, repository: Repository, project_id: int) -> None:
    """Record a git directory as it is now.

    A first commit that its files no longer show, because a reflog expired, is kept.
    """
    conn.execute(
        """
        insert into repositories (git_dir, project_id, creation_id, root_commit, remote) values (?1, ?2, ?3, ?4, ?5)
            on conflict (git_dir) do update set project_id = ?2, creation_id = ?3, remote = ?5,
               root_commit = iif(?4 = '' and creation_id = ?3, root_commit, ?4)
        """,
        (repository.git_dir, project_id, repository.creation_id, repository.root_commit, repository.remote),
    )


def _was_repository_replaced(conn: Connection, repository: Repository) -> bool:
    """Return whether another repository was at this path before.

    A repository restored from a backup has another inode but the same creation time; one that was cloned again has
    another time but the same first commit.
    """
    previous = fetch_one(
        conn, "select creation_id, root_commit from repositories where git_dir = ?", (repository.git_dir,)
    )
    if previous is None:
        return False
    previous_made_at, root_commit = git_files.creation_time(previous["creation_id"]), previous["root_commit"]
    if previous_made_at and previous_made_at == repository.made_at:
        return False
    if root_commit and root_commit == repository.root_commit:
        return False
    if previous_made_at and repository.made_at:
        return not git_files.contains_commit(Path(repository.git_dir), root_commit)
    return bool(root_commit and repository.root_commit)


def _is_repository_copy(conn: Connection, repository: Repository) -> bool:
    """Return whether the directory that this one appears to be still exists where it was last seen."""
    candidates = fetch_all(
        conn,
        "select git_dir from repositories where creation_id = ? and git_dir != ?",
        (repository.creation_id, repository.git_dir),
    )
    return any(git_files.has_copy_at(repository, row["git_dir"]) for row in candidates)


def _list_former_git_dirs(conn: Connection, repository: Repository, project_id: int) -> list[str]:
    """Return paths where this git directory was seen before and no longer is, because it was moved."""
    if not repository.creation_id:
        return []
    candidates = fetch_all(
        conn,
        "select git_dir from repositories where creation_id = ? and project_id = ? and git_dir != ?",
        (repository.creation_id, project_id, repository.git_dir),
    )
    return [row["git_dir"] for row in candidates if not git_files.is_repository_at(repository, row["git_dir"])]


def _delete_repository(conn: Connection, git_dir: str) -> None:
    conn.execute("delete from repositories where git_dir = ?", (git_dir,))


def _has_present_repository(conn: Connection, project_id: int) -> bool:
    """Return whether any repository of the project is still where it was last seen, as far as is known."""
    repository_rows = fetch_all(
        conn, "select git_dir, creation_id from repositories where project_id = ?", (project_id,)
    )
    return any(
        git_files.is_repository_at(Repository(row["git_dir"], row["creation_id"], ""), row["git_dir"])
        for row in repository_rows
    )


def _find_projects_with_same_origin(
    conn: Connection, project_id: int, repository: Repository | None = None
) -> list[SimilarProject]:
    """Return other projects with the same remote or first commit."""
    return fetch_records(
        conn,
        SimilarProject,
        f"""
        with own as (
            select remote, root_commit from repositories where project_id = :project
             union all select :remote, :root_commit),
        alike as (
            select project_id, 1 as rank from repositories where remote != '' and remote in (select remote from own)
             union all select project_id, 1 from project_aliases
              where identity in (select '{REMOTE_PREFIX}' || remote from own where remote != '')
             union all select project_id, 2 from repositories
              where root_commit != '' and root_commit in (select root_commit from own))
        select p.id, p.name, p.root, iif(min(a.rank) = 1, 'remote', 'first commit') as same
          from alike a join projects p on p.id = a.project_id
         where a.project_id != :project group by p.id order by p.id limit :most
        """,
        {
            "project": project_id,
            "remote": repository.remote if repository else "",
            "root_commit": repository.root_commit if repository else "",
            "most": MAX_RELATED_PROJECTS,
        },
    )


def _has_sibling_repository(conn: Connection, repository: Repository, project_id: int) -> bool:
    """Return whether a repository of this project is in the same git directory.

    A submodule has one git directory per worktree there.
    """
    own_match = _SUBMODULE.match(repository.git_dir)
    repository_rows = (
        fetch_all(conn, "select git_dir from repositories where project_id = ?", (project_id,)) if own_match else []
    )
    other_matches = [_SUBMODULE.match(row["git_dir"]) for row in repository_rows]
    return any(other is not None and own_match is not None and other[1] == own_match[1] for other in other_matches)
