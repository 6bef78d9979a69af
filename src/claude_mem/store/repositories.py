"""Git folders as they were last seen: which were moved, which were replaced by others, which share a first commit."""

from __future__ import annotations

from pathlib import Path

from claude_mem import git_files
from claude_mem.git_files import Repository
from claude_mem.store.database import Connection, Row, one, rows

MOST_RELATED = 5


def note(conn: Connection, repository: Repository, project_id: int) -> None:
    """Remember a git folder as it is now. What its files no longer say, because a log has expired, stays known."""
    conn.execute(
        """
        insert into repositories values (?1, ?2, ?3, ?4) on conflict (git_dir) do update set
               project_id = ?2, made = ?3, root_commit = iif(?4 = '' and made = ?3, root_commit, ?4)
        """,
        (repository.git_dir, project_id, repository.made, repository.root_commit),
    )


def was_replaced(conn: Connection, repository: Repository) -> bool:
    """Whether another repository lay at this path before. One that was restored from a backup has another inode but
    the same time; one that was cloned again has another time but the same first commit."""
    before = one(conn, "select made, root_commit from repositories where git_dir = ?", (repository.git_dir,))
    if before is None:
        return False
    known, root_commit = git_files.made_at(before["made"]), before["root_commit"]
    if known and known == repository.made_at:
        return False
    if root_commit and root_commit == repository.root_commit:
        return False
    if known and repository.made_at:
        return not git_files.contains(Path(repository.git_dir), root_commit)
    return bool(root_commit and repository.root_commit)


def is_copy(conn: Connection, repository: Repository) -> bool:
    """Whether the folder that this one seems to be still lies where it was last seen."""
    found = rows(
        conn, "select git_dir from repositories where made = ? and git_dir != ?", (repository.made, repository.git_dir)
    )
    return any(git_files.is_elsewhere(repository, row["git_dir"]) for row in found)


def left_behind(conn: Connection, repository: Repository, project_id: int) -> list[str]:
    """Paths at which this git folder was seen and is no longer: it was moved."""
    if not repository.made:
        return []
    found = rows(
        conn,
        "select git_dir from repositories where made = ? and project_id = ? and git_dir != ?",
        (repository.made, project_id, repository.git_dir),
    )
    return [row["git_dir"] for row in found if not git_files.is_at(repository, row["git_dir"])]


def drop(conn: Connection, git_dir: str) -> None:
    conn.execute("delete from repositories where git_dir = ?", (git_dir,))


def is_seen(conn: Connection, project_id: int) -> bool:
    """Whether any repository of a project is where it was last seen, as far as is known."""
    found = rows(conn, "select git_dir, made from repositories where project_id = ?", (project_id,))
    return any(git_files.is_at(Repository(row["git_dir"], row["made"], ""), row["git_dir"]) for row in found)


def related(conn: Connection, project_id: int, root_commit: str = "") -> list[Row]:
    """Other projects whose history began with the same commit: `id`, `name`, `root`."""
    return rows(
        conn,
        """
        select distinct p.id, p.name, p.root from repositories r join projects p on p.id = r.project_id
         where r.project_id != ?1 and r.root_commit != ''
           and (r.root_commit = ?2 or r.root_commit in (select root_commit from repositories where project_id = ?1))
         order by p.id limit ?3
        """,
        (project_id, root_commit, MOST_RELATED),
    )
