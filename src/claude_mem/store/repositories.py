"""Git directories as they were last seen: which were moved or replaced, and which share a remote or first commit."""

from __future__ import annotations

import re
from pathlib import Path

from claude_mem import git_files
from claude_mem.git_files import Repository
from claude_mem.projects import REMOTE
from claude_mem.store.database import Connection, Row, one, rows

MOST_RELATED = 5
_SUBMODULE = re.compile(r"(.+?\.git)/(?:worktrees/[^/]+/)?modules/")


def note(conn: Connection, repository: Repository, project_id: int) -> None:
    """Record a git directory as it is now.

    A first commit that its files no longer show, because a reflog expired, is kept.
    """
    conn.execute(
        """
        insert into repositories (git_dir, project_id, made, root_commit, remote) values (?1, ?2, ?3, ?4, ?5)
            on conflict (git_dir) do update set project_id = ?2, made = ?3, remote = ?5,
               root_commit = iif(?4 = '' and made = ?3, root_commit, ?4)
        """,
        (repository.git_dir, project_id, repository.made, repository.root_commit, repository.remote),
    )


def was_replaced(conn: Connection, repository: Repository) -> bool:
    """Return whether another repository was at this path before.

    A repository restored from a backup has another inode but the same creation time; one that was cloned again has
    another time but the same first commit.
    """
    previous = one(conn, "select made, root_commit from repositories where git_dir = ?", (repository.git_dir,))
    if previous is None:
        return False
    previous_made_at, root_commit = git_files.made_at(previous["made"]), previous["root_commit"]
    if previous_made_at and previous_made_at == repository.made_at:
        return False
    if root_commit and root_commit == repository.root_commit:
        return False
    if previous_made_at and repository.made_at:
        return not git_files.contains(Path(repository.git_dir), root_commit)
    return bool(root_commit and repository.root_commit)


def is_copy(conn: Connection, repository: Repository) -> bool:
    """Return whether the directory that this one appears to be still exists where it was last seen."""
    candidates = rows(
        conn, "select git_dir from repositories where made = ? and git_dir != ?", (repository.made, repository.git_dir)
    )
    return any(git_files.is_elsewhere(repository, row["git_dir"]) for row in candidates)


def left_behind(conn: Connection, repository: Repository, project_id: int) -> list[str]:
    """Return paths where this git directory was seen before and no longer is, because it was moved."""
    if not repository.made:
        return []
    candidates = rows(
        conn,
        "select git_dir from repositories where made = ? and project_id = ? and git_dir != ?",
        (repository.made, project_id, repository.git_dir),
    )
    return [row["git_dir"] for row in candidates if not git_files.is_at(repository, row["git_dir"])]


def drop(conn: Connection, git_dir: str) -> None:
    conn.execute("delete from repositories where git_dir = ?", (git_dir,))


def is_seen(conn: Connection, project_id: int) -> bool:
    """Return whether any repository of the project is still where it was last seen, as far as is known."""
    repository_rows = rows(conn, "select git_dir, made from repositories where project_id = ?", (project_id,))
    return any(git_files.is_at(Repository(row["git_dir"], row["made"], ""), row["git_dir"]) for row in repository_rows)


def related(conn: Connection, project_id: int, repository: Repository | None = None) -> list[Row]:
    """Return other projects with the same remote or first commit: `id`, `name`, `root`, and what is the `same`."""
    return rows(
        conn,
        f"""
        with own as (
            select remote, root_commit from repositories where project_id = :project
             union all select :remote, :root_commit),
        alike as (
            select project_id, 1 as rank from repositories where remote != '' and remote in (select remote from own)
             union all select project_id, 1 from project_aliases
              where identity in (select '{REMOTE}' || remote from own where remote != '')
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
            "most": MOST_RELATED,
        },
    )


def has_sibling(conn: Connection, repository: Repository, project_id: int) -> bool:
    """Return whether a repository of this project is in the same git directory.

    A submodule has one git directory per worktree there.
    """
    own_match = _SUBMODULE.match(repository.git_dir)
    repository_rows = (
        rows(conn, "select git_dir from repositories where project_id = ?", (project_id,)) if own_match else []
    )
    other_matches = [_SUBMODULE.match(row["git_dir"]) for row in repository_rows]
    return any(other is not None and own_match is not None and other[1] == own_match[1] for other in other_matches)
