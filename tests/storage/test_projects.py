"""A project is a repository, not a folder name."""

from __future__ import annotations

import contextlib
import os
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from claude_mem import hook
from claude_mem.config import Config
from claude_mem.domain.errors import InvalidRequest
from claude_mem.storage.sqlite.database import Database
from claude_mem.storage.sqlite.journal import notices
from claude_mem.storage.sqlite.memory import projects
from claude_mem.system.project_folders import (
    ResolvedProject,
    identify_project,
    normalize_remote,
    override_problem,
    project_from_name,
)
from tests.support import proof
from tests.support.lab import Lab


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
    assert identify_project(str(tmp_path / "feature")).identities == identify_project(str(repo)).identities
    assert identify_project(str(tmp_path / "feature")).name == "api"
    assert identify_project(str(repo / "src")).identities == identify_project(str(repo)).identities


def test_two_repositories_of_one_name_do_not(repo: Path, tmp_path: Path) -> None:
    other = tmp_path / "two" / "api"
    other.mkdir(parents=True)
    _git(other, "init", "-q")
    assert identify_project(str(other)).name == identify_project(str(repo)).name
    assert not set(identify_project(str(other)).identities) & set(identify_project(str(repo)).identities)


def test_a_submodule_is_a_project_of_its_own(repo: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    _git(outer, "init", "-q")
    _git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repo), "inner")
    inner, around = identify_project(str(outer / "inner")), identify_project(str(outer))
    assert not set(inner.identities) & set(around.identities)
    assert inner.name == "inner"


def test_a_symbolic_link_leads_to_the_same_project(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(repo)
    assert identify_project(str(tmp_path / "link")) == identify_project(str(repo))


@pytest.mark.parametrize("path", ["/does/not/exist", "", "/", "relative", "x" * 5000, "/tmp/\udcff"])
def test_any_folder_is_some_project(path: str) -> None:
    assert identify_project(path).identities


def test_addresses_of_one_place_are_one_identity() -> None:
    forms = [
        "git@Example.org:team/api.git",
        "https://example.org/team/api",
        "https://user:key@example.org/team/api.git/",
        "ssh://git@example.org:22/team/api.git",
    ]
    assert {normalize_remote(form) for form in forms} == {"example.org/team/api"}


def test_a_repository_that_moves_or_gains_a_remote_keeps_its_memory(repo: Path, config: Config) -> None:
    db = Database(config.database, backups=config.backups)
    before = db.write_now(projects.register_project, identify_project(str(repo)), str(repo), now=1)
    _git(repo, "remote", "add", "origin", "git@example.org:team/api.git")
    assert db.write_now(projects.register_project, identify_project(str(repo)), str(repo), now=2) == before
    moved = repo.with_name("renamed")
    repo.rename(moved)
    assert db.write_now(projects.register_project, identify_project(str(moved)), str(moved), now=3) == before
    db.close()


def test_a_file_in_the_project_gives_it_a_name_or_switches_it_off(repo: Path) -> None:
    (repo / ".claude-mem.toml").write_text('project = "payments"\n')
    found = identify_project(str(repo))
    assert (found.name, found.identities, found.enabled) == ("payments", (f"git:{repo}/.git",), True)
    (repo / ".claude-mem.toml").write_text("enabled = false\n")
    assert identify_project(str(repo / "deep" / "down")).enabled is False
    (repo / "deep").mkdir()
    (repo / "deep" / ".claude-mem.toml").write_text('project = "other"\n')
    assert identify_project(str(repo / "deep")).enabled is False
    (repo / ".claude-mem.toml").write_text("= nonsense")
    assert identify_project(str(repo)).enabled is False
    assert override_problem(str(repo)).endswith(".claude-mem.toml is not valid TOML")


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
    by_name = db.write_now(projects.register_project, project_from_name("shop"), "", now=1)
    older = db.write_now(projects.register_project, ResolvedProject("shop", "", ("older:shop",)), "", now=1)
    ids = [
        db.write_now(projects.register_project, identify_project(str(folder)), "", now=1)
        for folder in (repo, stranger, unpacked)
    ]
    assert len({by_name, older, *ids}) == 5
    assert {db.read_now(projects.get_project, found).name for found in ids} == {"shop"}
    db.write_now(projects.merge_project_into, ids[1], ids[0])
    assert db.write_now(projects.register_project, identify_project(str(stranger)), "", now=2) == ids[0], (
        "a person has said so"
    )
    db.close()


@pytest.mark.parametrize("said", ["general", " General "])
def test_no_folder_is_called_what_belongs_to_none(tmp_path: Path, said: str) -> None:
    folder = tmp_path / "general"
    folder.mkdir()
    assert identify_project(str(folder)).name == str(folder)
    (folder / ".claude-mem.toml").write_text(f'project = "{said}"\n')
    assert identify_project(str(folder)).name == str(folder)
    assert not set(identify_project(str(folder)).identities) & set(project_from_name("general").identities)


def test_a_file_outside_of_a_project_says_nothing_about_whose_memory_it_shares(
    repo: Path, tmp_path: Path, config: Config
) -> None:
    """An archive that is unpacked beside other folders may leave one there."""
    above, other = tmp_path / "one", tmp_path / "one" / "other"
    other.mkdir()
    _git(other, "init", "-q")
    (above / "notes").mkdir()
    folders = (above, repo, other, above / "notes")
    db = Database(config.database, backups=config.backups)
    before = [
        db.write_now(projects.register_project, identify_project(str(folder)), str(folder), now=1) for folder in folders
    ]
    (above / ".claude-mem.toml").write_text('project = "work"\nworktrees = "isolate"\n')
    (above / "new").mkdir()
    places = [*folders, above / "new"]
    ids = [
        db.write_now(projects.register_project, identify_project(str(folder)), str(folder), now=2) for folder in places
    ]
    assert ids[:4] == before
    assert len(set(ids)) == 5
    assert [identify_project(str(place)).name for place in places] == ["work", "api", "other", "notes", "new"]
    offers = db.read_now(notices.list_unshown_notices).values()
    assert any(f"`claude-mem project merge {ids[4]} {ids[0]}`" in offer for offer in offers), "a person may do it"
    db.close()


def test_a_worktree_is_not_split_off_by_a_file_outside_of_it(repo: Path) -> None:
    tree = repo.with_name("tree")
    _git(repo, "commit", "--quiet", "--allow-empty", "--message", "first")
    _git(repo, "worktree", "add", "--quiet", str(tree))
    (repo.parent / ".claude-mem.toml").write_text('worktrees = "isolate"\n')
    assert identify_project(str(tree)).identities == identify_project(str(repo)).identities


def test_what_a_file_above_leaves_out_is_left_out(repo: Path, tmp_path: Path) -> None:
    (tmp_path / ".claude-mem.toml").write_text('skip_tools = ["Bash"]\nsubagents = false\n')
    found = identify_project(str(repo))
    assert (found.enabled, found.skip_tools, found.subagents) == (True, ("Bash",), False)
    (tmp_path / ".claude-mem.toml").write_text("enabled = false\n")
    assert identify_project(str(repo)).enabled is False


@pytest.mark.parametrize(
    "line",
    ["enabeld = true", "enabled = 'no'", "skip_tools = 'Bash'", "worktrees = true", "subagents = 0", "[project]"],
)
def test_what_makes_no_sense_switches_off_and_is_named(repo: Path, line: str) -> None:
    (repo / ".claude-mem.toml").write_text(line)
    assert identify_project(str(repo)).enabled is False
    assert re.findall(r"\w+", line)[0] in override_problem(str(repo))


def test_a_worktree_can_be_a_project_of_its_own(repo: Path) -> None:
    _git(repo, "remote", "add", "origin", "git@example.org:team/api.git")
    (repo / ".claude-mem.toml").write_text('worktrees = "isolate"\n')
    _git(repo, "add", ".")
    _git(repo, "commit", "--quiet", "--message", "isolate")
    tree = repo.with_name("tree")
    _git(repo, "worktree", "add", "--quiet", str(tree))
    alone, whole = identify_project(str(tree)), identify_project(str(repo))
    assert alone.name == "tree"
    assert set(alone.identities) & set(whole.identities) == set()
    (tree / ".claude-mem.toml").write_text('worktrees = "share"\n')
    assert identify_project(str(tree)).identities == whole.identities


def test_tools_and_subagents_can_be_left_out(repo: Path) -> None:
    (repo / ".claude-mem.toml").write_text('skip_tools = ["Bash"]\nsubagents = false\n')
    found = identify_project(str(repo))
    assert (found.enabled, found.skip_tools, found.subagents) == (True, ("Bash",), False)


@pytest.mark.parametrize(
    ("glob", "hit"), [("/a/b", True), ("/a/*", True), ("/a/b/**", True), ("/a/b/c/d", False), ("~/x", False)]
)
def test_folders_are_excluded_by_globs(glob: str, hit: bool) -> None:
    found: ResolvedProject = identify_project("/a/b/c", excluded=(glob,))
    assert found.enabled is not hit


def test_a_password_with_an_at_sign_is_not_part_of_an_identity() -> None:
    assert normalize_remote("https://user:p@ss@host/a/b.git") == "host/a/b"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything; a loop of links is the test for root")
def test_a_file_that_may_not_be_read_switches_off(repo: Path) -> None:
    (repo / ".claude-mem.toml").write_text("enabled = true\n")
    (repo / ".claude-mem.toml").chmod(0)
    assert identify_project(str(repo)).enabled is False


def test_a_file_that_leads_nowhere_or_too_deep_switches_off(repo: Path) -> None:
    (repo / ".claude-mem.toml").symlink_to(repo / ".claude-mem.toml")
    assert identify_project(str(repo)).enabled is False
    (repo / ".claude-mem.toml").unlink()
    (repo / ".claude-mem.toml").write_text("skip_tools = " + "[" * 3_000)
    assert identify_project(str(repo)).enabled is False


# --- two thousand folders --------------------------------------------------------------------------------------------

SAME_NAMES = (
    "api",
    "Api",
    "a-b",
    "a",
    "b",
    "é",
    "e\u0301",
    "shop.git",
    " x",
    "x ",
    "-",
    "--",
    "a.b",
    "漢字",
    "🦄",
    "a\\b",
    "%2f",
    "a:b",
)


def _made_repo(folder: Path) -> None:
    """As git would make it; a thousand calls of git would take a minute."""
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text("[core]\n\tbare = false\n")


def _made_worktree(repo: Path, tree: Path) -> None:
    notes = repo / ".git" / "worktrees" / tree.name
    notes.mkdir(parents=True)
    (notes / "commondir").write_text("../..\n")
    (notes / "gitdir").write_text(f"{tree}/.git\n")
    tree.mkdir(parents=True)
    (tree / ".git").write_text(f"gitdir: {notes}\n")


def _made_submodule(repo: Path, name: str) -> Path:
    inner = repo / name
    inner.mkdir(exist_ok=True)
    (repo / ".git" / "modules" / name).mkdir(parents=True)
    (repo / ".git" / "modules" / name / "config").write_text(f"[core]\n\tworktree = ../../../{name}\n")
    (inner / ".git").write_text(f"gitdir: ../.git/modules/{name}\n")
    return inner


def _places(top: Path, chance: random.Random, count: int) -> Iterator[tuple[str, str]]:
    """A folder, and which project it is. Half of them are not there; nearly all have names like those of others."""
    for number in range(count // 20):
        repo = top / chance.choice(SAME_NAMES) / chance.choice(SAME_NAMES) / f"{number:03}" / chance.choice(SAME_NAMES)
        _made_repo(repo)
        (repo / "deep" / "down").mkdir(parents=True)
        tree, link = top / "trees" / f"{number}" / repo.name, top / "links" / f"{number}"
        _made_worktree(repo, tree)
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(repo)
        yield from ((str(path), f"repo {number}") for path in (repo, repo / "deep", repo / "deep" / "down", tree, link))
        yield f"{repo}/deep/../deep/./down/", f"repo {number}"
        yield f"{link}/deep", f"repo {number}"
        yield str(repo / "gone" / "since"), f"repo {number}"
        yield str(_made_submodule(repo, "inner")), f"inner {number}"
        for other in range(11):
            names = chance.choices(SAME_NAMES, k=chance.randrange(1, 5))
            path = f"{top}/plain/{number}/{other}/" + chance.choice("/-").join(names)
            yield path, f"plain {os.path.realpath(path)}"


def test_of_two_thousand_folders_none_is_taken_for_another(tmp_path: Path, config: Config) -> None:
    db = Database(config.database, backups=config.backups)
    meant: dict[str, int] = {}
    mixed = []
    places = list(_places(tmp_path / "top", random.Random(7), 2_000 if proof.long() else 100))
    for now, (path, expected) in enumerate(places, 1):
        found = db.write_now(projects.register_project, identify_project(path), path, now=now)
        if meant.setdefault(expected, found) != found:
            mixed.append(f"{path!r} is not {expected}")
    split = [name for name, count in Counter(meant.values()).items() if count > 1]
    db.close()
    names = len({name for _, name in places})
    proof.record(
        "folders taken for another project, or for one of their own", of="I7", goal="0 of 2,000", measured=len(mixed) + len(split),
        ok=not mixed and not split, unit=f"of {len(places):,}", note=f"{names:,} projects: repositories, worktrees, submodules, links, plain",
    )  # fmt: skip
    assert (mixed, split) == ([], [])


def test_the_name_of_a_project_never_becomes_a_path(lab: Lab) -> None:
    """Names that would lead elsewhere, from whoever may name a project."""
    client = lab.start()
    before = _tree(lab.folder)
    names = ["../../x", "../../../../../../tmp/owned", "/etc/passwd", "a\0b", "a/../../b", "~root", "..", ".", "x" * 4096, "\\..\\x",
             "%2e%2e%2fx", "‥/x", "\u202e../x", "file:///etc/passwd", "-rf", "$(touch owned)", "`touch owned`", "\ud800", ""]  # fmt: skip
    for name in names:
        given = {"text": f"kept under {name!r}", "project": name.encode("utf-8", "replace").decode()}
        with contextlib.suppress(InvalidRequest):  # some are no names at all
            client.post("/api/memory/save", given)
            client.get("/api/context/inject", projects=given["project"])
        assert re.fullmatch(r"[0-9a-f]{32}\.json", hook.brief_filename(name.encode("utf-8", "replace").decode()))
    fresh = {
        path
        for path in _tree(lab.folder) - before
        if not re.match(r"data/(missed$|starts$|starts/[0-9a-f]{32}\.json$|claude-mem\.db|logs/)", path)
    }
    proof.record(
        "names of projects that touched a file",
        of="I7",
        goal="0",
        measured=len(fresh),
        ok=not fresh,
        unit=f"of {len(names)} names",
    )
    assert fresh == set()


def _tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}
