"""A project is a repository, not a folder name."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from claude_mem.config import Config
from claude_mem.projects import Project, named, normal_remote, override_problem, resolve
from claude_mem.store import projects
from claude_mem.store.database import Database


def _git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "one" / "api"
    folder.mkdir(parents=True)
    _git(folder, "init", "-q")
    _git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def test_worktrees_and_subfolders_share_a_project(repo: Path, tmp_path: Path) -> None:
    _git(repo, "worktree", "add", "-q", str(tmp_path / "feature"))
    (repo / "src").mkdir()
    assert resolve(str(tmp_path / "feature")).identities == resolve(str(repo)).identities
    assert resolve(str(tmp_path / "feature")).name == "api"
    assert resolve(str(repo / "src")).identities == resolve(str(repo)).identities


def test_two_repositories_of_one_name_do_not(repo: Path, tmp_path: Path) -> None:
    other = tmp_path / "two" / "api"
    other.mkdir(parents=True)
    _git(other, "init", "-q")
    assert resolve(str(other)).name == resolve(str(repo)).name
    assert not set(resolve(str(other)).identities) & set(resolve(str(repo)).identities)


def test_a_submodule_is_a_project_of_its_own(repo: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    _git(outer, "init", "-q")
    _git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repo), "inner")
    inner, around = resolve(str(outer / "inner")), resolve(str(outer))
    assert not set(inner.identities) & set(around.identities)
    assert inner.name == "inner"


def test_a_symbolic_link_leads_to_the_same_project(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(repo)
    assert resolve(str(tmp_path / "link")) == resolve(str(repo))


@pytest.mark.parametrize("path", ["/does/not/exist", "", "/", "relative", "x" * 5000, "/tmp/\udcff"])
def test_any_folder_is_some_project(path: str) -> None:
    assert resolve(path).identities


def test_addresses_of_one_place_are_one_identity() -> None:
    forms = [
        "git@Example.org:team/api.git",
        "https://example.org/team/api",
        "https://user:key@example.org/team/api.git/",
        "ssh://git@example.org:22/team/api.git",
    ]
    assert {normal_remote(form) for form in forms} == {"example.org/team/api"}


def test_a_repository_that_moves_or_gains_a_remote_keeps_its_memory(repo: Path, config: Config) -> None:
    db = Database(config.database, backups=config.backups)
    before = db.write_now(projects.know, resolve(str(repo)), str(repo), now=1)
    _git(repo, "remote", "add", "origin", "git@example.org:team/api.git")
    assert db.write_now(projects.know, resolve(str(repo)), str(repo), now=2) == before
    moved = repo.with_name("renamed")
    repo.rename(moved)
    assert db.write_now(projects.know, resolve(str(moved)), str(moved), now=3) == before
    db.close()


def test_a_file_in_the_project_gives_it_a_name_or_switches_it_off(repo: Path) -> None:
    (repo / ".claude-mem.toml").write_text('project = "payments"\n')
    found = resolve(str(repo))
    assert (found.name, found.identities, found.enabled) == ("payments", (f"git:{repo}/.git",), True)
    (repo / ".claude-mem.toml").write_text("enabled = false\n")
    assert resolve(str(repo / "deep" / "down")).enabled is False
    (repo / "deep").mkdir()
    (repo / "deep" / ".claude-mem.toml").write_text('project = "other"\n')
    assert resolve(str(repo / "deep")).enabled is False
    (repo / ".claude-mem.toml").write_text("= nonsense")
    assert resolve(str(repo)).enabled is False
    assert override_problem(str(repo)).endswith(".claude-mem.toml is not TOML")


def test_a_name_that_comes_with_a_repository_joins_no_other_memory(repo: Path, tmp_path: Path, config: Config) -> None:
    """Whoever wrote the repository chose the name; the person did not."""
    stranger = tmp_path / "downloads" / "stranger"
    stranger.mkdir(parents=True)
    _git(stranger, "init", "-q")
    unpacked = tmp_path / "downloads" / "unpacked"
    unpacked.mkdir()
    for folder in (repo, stranger, unpacked):
        (folder / ".claude-mem.toml").write_text('project = "shop"\n')
    db = Database(config.database, backups=config.backups)
    by_name = db.write_now(projects.know, named("shop"), "", now=1)
    older = db.write_now(projects.know, Project("shop", "", ("older:shop",)), "", now=1)
    ids = [db.write_now(projects.know, resolve(str(folder)), "", now=1) for folder in (repo, stranger, unpacked)]
    assert len({by_name, older, *ids}) == 5
    assert {db.read_now(projects.show, found)["name"] for found in ids} == {"shop"}
    db.write_now(projects.merge, ids[1], ids[0])
    assert db.write_now(projects.know, resolve(str(stranger)), "", now=2) == ids[0], "a person has said so"
    db.close()


@pytest.mark.parametrize("said", ["general", " General "])
def test_no_folder_is_called_what_belongs_to_none(tmp_path: Path, said: str) -> None:
    folder = tmp_path / "general"
    folder.mkdir()
    assert resolve(str(folder)).name == str(folder)
    (folder / ".claude-mem.toml").write_text(f'project = "{said}"\n')
    assert resolve(str(folder)).name == str(folder)
    assert not set(resolve(str(folder)).identities) & set(named("general").identities)


def test_a_name_outside_of_any_repository_makes_what_lies_below_it_one_project(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "one" / ".claude-mem.toml").write_text('project = "work"\n')
    (tmp_path / "one" / "notes").mkdir()
    inside, beside = resolve(str(repo)), resolve(str(tmp_path / "one" / "notes"))
    assert (inside.name, beside.name) == ("work", "work")
    assert inside.identities[0] == beside.identities[0] == resolve(str(tmp_path / "one")).identities[0]
    assert inside.identities[0] not in resolve(str(tmp_path)).identities
    inner = repo / "vendor" / "lib"
    inner.mkdir(parents=True)
    _git(inner, "init", "-q")
    (repo / ".claude-mem.toml").write_text('project = "around"\n')
    assert not set(resolve(str(inner)).identities) & set(resolve(str(repo)).identities), "a repository in another"


@pytest.mark.parametrize(
    "line",
    ["enabeld = true", "enabled = 'no'", "skip_tools = 'Bash'", "worktrees = true", "subagents = 0", "[project]"],
)
def test_what_makes_no_sense_switches_off_and_is_named(repo: Path, line: str) -> None:
    (repo / ".claude-mem.toml").write_text(line)
    assert resolve(str(repo)).enabled is False
    assert re.findall(r"\w+", line)[0] in override_problem(str(repo))


def test_a_worktree_can_be_a_project_of_its_own(repo: Path) -> None:
    _git(repo, "remote", "add", "origin", "git@example.org:team/api.git")
    (repo / ".claude-mem.toml").write_text('worktrees = "isolate"\n')
    _git(repo, "add", ".")
    _git(repo, "commit", "--quiet", "--message", "isolate")
    tree = repo.with_name("tree")
    _git(repo, "worktree", "add", "--quiet", str(tree))
    alone, whole = resolve(str(tree)), resolve(str(repo))
    assert alone.name == "tree"
    assert set(alone.identities) & set(whole.identities) == set()
    (tree / ".claude-mem.toml").write_text('worktrees = "share"\n')
    assert resolve(str(tree)).identities == whole.identities


def test_tools_and_subagents_can_be_left_out(repo: Path) -> None:
    (repo / ".claude-mem.toml").write_text('skip_tools = ["Bash"]\nsubagents = false\n')
    found = resolve(str(repo))
    assert (found.enabled, found.skip_tools, found.subagents) == (True, ("Bash",), False)


@pytest.mark.parametrize(
    ("glob", "hit"), [("/a/b", True), ("/a/*", True), ("/a/b/**", True), ("/a/b/c/d", False), ("~/x", False)]
)
def test_folders_are_excluded_by_globs(glob: str, hit: bool) -> None:
    found: Project = resolve("/a/b/c", excluded=(glob,))
    assert found.enabled is not hit


def test_a_password_with_an_at_sign_is_not_part_of_an_identity() -> None:
    assert normal_remote("https://user:p@ss@host/a/b.git") == "host/a/b"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything; a loop of links is the test for root")
def test_a_file_that_may_not_be_read_switches_off(repo: Path) -> None:
    (repo / ".claude-mem.toml").write_text("enabled = true\n")
    (repo / ".claude-mem.toml").chmod(0)
    assert resolve(str(repo)).enabled is False


def test_a_file_that_leads_nowhere_or_too_deep_switches_off(repo: Path) -> None:
    (repo / ".claude-mem.toml").symlink_to(repo / ".claude-mem.toml")
    assert resolve(str(repo)).enabled is False
    (repo / ".claude-mem.toml").unlink()
    (repo / ".claude-mem.toml").write_text("skip_tools = " + "[" * 3_000)
    assert resolve(str(repo)).enabled is False
