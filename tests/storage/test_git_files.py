"""A `.git` that leads elsewhere is believed only if that place points back, and all of it is this user's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from claude_mem.storage.sqlite.engine import Connection
from claude_mem.system import git_files
from claude_mem.system.project_folders import git_distrust_reason, identify_project
from tests.storage.test_repositories import Memory, git, make, memory
from tests.support import forks, proof
from tests.support.lab import Lab

COMMAND = "CLAUDE_MEM_PROOF=build/proof pytest tests/storage/test_git_files.py"

__all__ = ["memory"]  # a fixture
SOMEONE = 4321  # no user of this machine
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A repository of the user's, with a linked worktree and a submodule."""
    shop, library = make(tmp_path / "shop"), make(tmp_path / "library")
    git(shop, "remote", "add", "origin", "git@example.org:team/shop.git")
    git(shop, "worktree", "add", "-q", str(tmp_path / "tree"))
    git(shop, "submodule", "add", "-q", str(library), "inner")
    return shop


# --- archives that claim to be another's -----------------------------------------------------------------------------


def pointer_to_git_folder(evil: Path, shop: Path) -> None:
    (evil / ".git").write_text(f"gitdir: {shop}/.git\n")


def relative_pointer(evil: Path, shop: Path) -> None:
    (evil / ".git").write_text(f"gitdir: {os.path.relpath(shop / '.git', evil)}\n")


def pointer_to_worktree(evil: Path, shop: Path) -> None:
    (evil / ".git").write_text(f"gitdir: {shop}/.git/worktrees/tree\n")


def pointer_to_submodule(evil: Path, shop: Path) -> None:
    (evil / ".git").write_text(f"gitdir: {shop}/.git/modules/inner\n")


def link_to_git_folder(evil: Path, shop: Path) -> None:
    (evil / ".git").symlink_to(shop / ".git")


def link_to_worktree(evil: Path, shop: Path) -> None:
    (evil / ".git").symlink_to(shop / ".git" / "worktrees" / "tree")


def link_to_pointer(evil: Path, shop: Path) -> None:
    (evil / ".git").symlink_to(shop.parent / "tree" / ".git")


def pointer_through_link(evil: Path, shop: Path) -> None:
    (evil / "hidden").symlink_to(shop / ".git")
    (evil / ".git").write_text("gitdir: hidden\n")


def common_folder_named_in_git_folder(evil: Path, shop: Path) -> None:
    make(evil, commits=0)
    (evil / ".git" / "commondir").write_text(f"{shop}/.git\n")
    (evil / ".git" / "gitdir").write_text(f"{evil}/.git\n")


def forged_worktree(evil: Path, shop: Path) -> None:
    notes = evil / "fake" / "worktrees" / "evil"
    notes.mkdir(parents=True)
    (notes / "commondir").write_text(f"{shop}/.git\n")
    (notes / "gitdir").write_text("../../../.git\n")
    (evil / ".git").write_text("gitdir: fake/worktrees/evil\n")


def forged_worktree_behind_link(evil: Path, shop: Path) -> None:
    (evil / "fake").mkdir()
    (evil / "fake" / "worktrees").symlink_to(shop / ".git" / "worktrees")
    (evil / ".git").write_text("gitdir: fake/worktrees/tree\n")


def forged_submodule(evil: Path, shop: Path) -> None:
    """It points back, but it is its own: what it names as common does not count."""
    notes = evil / ".x" / ".git" / "modules" / "evil"
    notes.mkdir(parents=True)
    (notes / "commondir").write_text(f"{shop}/.git\n")
    (notes / "config").write_text("[core]\n\tworktree = ../../../..\n")
    (evil / ".git").write_text("gitdir: .x/.git/modules/evil\n")


def settings_behind_link(evil: Path, shop: Path) -> None:
    make(evil, commits=0)
    (evil / ".git" / "config").unlink()
    (evil / ".git" / "config").symlink_to(shop / ".git" / "config")


CLAIMS: list[Callable[[Path, Path], None]] = [
    pointer_to_git_folder,
    relative_pointer,
    pointer_to_worktree,
    pointer_to_submodule,
    link_to_git_folder,
    link_to_worktree,
    link_to_pointer,
    pointer_through_link,
    common_folder_named_in_git_folder,
    forged_worktree,
    forged_worktree_behind_link,
    forged_submodule,
    settings_behind_link,
]


@pytest.mark.parametrize("claim", CLAIMS)
def test_no_archive_gets_another_projects_memory(
    memory: Memory, shop: Path, tmp_path: Path, claim: Callable[[Path, Path], None]
) -> None:
    places = (shop, shop / "inner", tmp_path / "library", tmp_path / "tree")
    own = {memory.know(place) for place in places}
    evil = tmp_path / "downloads" / "evil"
    (evil / "src").mkdir(parents=True)
    claim(evil, shop)
    assert memory.find(evil) is None
    evil_id = memory.know(evil)
    assert evil_id not in own
    assert memory.know(evil / "src") == evil_id, "what lies in it is part of it"
    assert {memory.know(place) for place in places} == own
    proof.record(
        "folders whose `.git` points at another repository: kept apart", of="S14", goal="all", measured=1, ok=True,
        tally=True, command=COMMAND,
    )  # fmt: skip


@pytest.mark.parametrize("claim", [pointer_to_git_folder, link_to_git_folder, forged_worktree])
def test_doctor_says_why_it_is_not_believed(lab: Lab, shop: Path, claim: Callable[[Path, Path], None]) -> None:
    evil = lab.folder / "evil"
    evil.mkdir()
    claim(evil, shop)
    found = identify_project(str(evil))
    assert (found.identities, found.name, found.root) == ((f"dir:{evil}",), "evil", str(evil))
    assert "does not point back" in git_distrust_reason(str(evil))
    said = forks.run(["doctor"], lab.env(), cwd=evil).stdout
    assert f"{evil}/.git" in said
    assert "does not point back" in said


def test_a_session_in_an_archive_neither_reads_nor_writes_the_other_memory(lab: Lab, shop: Path) -> None:
    evil = lab.folder / "evil"
    evil.mkdir()
    pointer_to_git_folder(evil, shop)
    for place, word in ((shop, "precious"), (evil, "planted")):
        lab.project = place
        lab.spool("UserPromptSubmit", prompt=f"{word} words", prompt_id=word, session_id=word)
        lab.spool("Stop", last_assistant_message=f"The {word} work is done.", prompt_id=word, session_id=word)
    client = lab.start()
    lab.wait_digested()
    told = {place: client.get("/api/context/inject", cwd=str(place)) for place in (shop, evil)}
    assert ("precious" in told[shop], "planted" in told[shop]) == (True, False)
    assert ("precious" in told[evil], "planted" in told[evil]) == (False, True)


def test_a_name_that_comes_with_such_an_archive_groups_nothing(shop: Path, tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    evil.mkdir()
    pointer_to_git_folder(evil, shop)
    (evil / ".claude-mem.toml").write_text('project = "mine"\n')
    inner = make(evil / "vendor")
    assert not set(identify_project(str(inner)).identities) & set(identify_project(str(evil)).identities)


# --- what is believed ------------------------------------------------------------------------------------------------


def test_linked_worktrees_are_believed_wherever_they_lie(shop: Path, tmp_path: Path) -> None:
    whole = identify_project(str(shop))
    assert identify_project(str(tmp_path / "tree")).identities == whole.identities
    git(shop, "worktree", "add", "-q", "-b", "spaces", str(tmp_path / "a b" / "tree "))
    assert identify_project(str(tmp_path / "a b" / "tree ")).identities == whole.identities
    git(shop, "worktree", "move", str(tmp_path / "a b" / "tree "), str(tmp_path / "moved"))
    assert identify_project(str(tmp_path / "moved")).identities == whole.identities
    notes = shop / ".git" / "worktrees" / "tree"
    (notes / "gitdir").write_text(f"{os.path.relpath(tmp_path / 'tree' / '.git', notes)}\n")
    (tmp_path / "tree" / ".git").write_text(f"gitdir: {os.path.relpath(notes, tmp_path / 'tree')}\n")
    assert identify_project(str(tmp_path / "tree")).identities == whole.identities, "as newer versions of git write it"
    (tmp_path / "link").symlink_to(tmp_path / "tree")
    assert identify_project(str(tmp_path / "link")).identities == whole.identities


def test_a_worktree_that_was_moved_by_hand_is_believed_when_it_is_repaired(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "tree").rename(tmp_path / "moved")
    assert identify_project(str(tmp_path / "moved")).identities == (f"dir:{tmp_path}/moved",)
    git(tmp_path / "moved", "worktree", "repair")
    assert identify_project(str(tmp_path / "moved")).identities == identify_project(str(shop)).identities


def test_worktrees_of_a_bare_repository_and_of_a_submodule_share_it(shop: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(shop), "bare.git")
    for name in ("one", "two"):
        git(tmp_path / "bare.git", "worktree", "add", "-q", "-b", name, str(tmp_path / name))
    assert identify_project(str(tmp_path / "one")).identities == identify_project(str(tmp_path / "two")).identities
    assert identify_project(str(tmp_path / "one")).identities[0] == f"git:{tmp_path}/bare.git"
    git(shop / "inner", "worktree", "add", "-q", str(tmp_path / "inner-tree"))
    assert identify_project(str(tmp_path / "inner-tree")).identities == identify_project(str(shop / "inner")).identities


def test_submodules_are_believed_also_within_others_and_in_worktrees(shop: Path, tmp_path: Path) -> None:
    git(shop, "commit", "-q", "-m", "inner")
    outer = make(tmp_path / "outer")
    git(outer, "submodule", "add", "-q", str(shop), "shop")
    git(outer, "submodule", "update", "-q", "--init", "--recursive")
    found = [identify_project(str(path)) for path in (outer, outer / "shop", outer / "shop" / "inner")]
    assert [project.identities[0].removeprefix(f"git:{outer}/.git") for project in found] == [
        "",
        "/modules/shop",
        "/modules/shop/modules/inner",
    ]
    assert [project.name for project in found] == ["outer", "shop", "inner"]


# --- a git folder that lies apart ------------------------------------------------------------------------------------


@pytest.fixture
def apart(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "gits").mkdir()
    git(tmp_path, "init", "-q", f"--separate-git-dir={tmp_path}/gits/work", "work")
    return tmp_path / "work"


def test_a_git_folder_that_lies_apart_leaves_one_project(memory: Memory, apart: Path, tmp_path: Path) -> None:
    (apart / "src").mkdir()
    project = memory.know(apart)
    assert memory.know(apart / "src") == project
    evil = tmp_path / "evil"
    evil.mkdir()
    shutil.copy(apart / ".git", evil / ".git")
    assert memory.know(evil) != project
    assert "does not point back" in git_distrust_reason(str(apart))
    git(apart, "config", "core.worktree", str(apart))
    assert git_distrust_reason(str(apart)) == ""
    assert identify_project(str(apart)).identities == (f"git:{tmp_path}/gits/work",)
    assert memory.know(evil) != memory.know(apart)


@pytest.mark.parametrize("first", [False, True])
def test_what_an_earlier_version_knew_of_it_goes_on(memory: Memory, apart: Path, tmp_path: Path, first: bool) -> None:
    before = memory.know(apart)
    memory.db.write_now(_known_as, before, f"git:{tmp_path}/gits/work")
    evil = tmp_path / "evil"
    evil.mkdir()
    shutil.copy(apart / ".git", evil / ".git")
    order = (evil, apart) if first else (apart, evil)
    ids = {place.name: memory.know(place) for place in order}
    assert ids["work"] == before != ids["evil"]


def _known_as(conn: Connection, project_id: int, identity: str) -> None:
    conn.execute("delete from project_aliases where project_id = ?", (project_id,))
    conn.execute("insert into project_aliases values (?, ?)", (identity, project_id))


# --- other users -----------------------------------------------------------------------------------------------------


def _put_git(folder: Path, shop: Path, kind: str) -> None:
    if kind == "folder":
        make(folder)
    elif kind == "file":
        pointer_to_git_folder(folder, shop)
    else:
        link_to_git_folder(folder, shop)


@as_root
@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_another_users_git_claims_nothing_below(shop: Path, tmp_path: Path, kind: str) -> None:
    """Anyone may put one into /tmp."""
    shared = tmp_path / "shared"
    (shared / "work").mkdir(parents=True)
    _put_git(shared, shop, kind)
    os.chown(shared / ".git", SOMEONE, -1, follow_symlinks=False)
    assert identify_project(str(shared / "work")).identities == (f"dir:{shared}/work",)
    assert git_distrust_reason(str(shared / "work")) == f"{shared}/.git belongs to another user"


@as_root
@pytest.mark.parametrize("whose", ["tree/.git", "shop/.git", "shop/.git/worktrees/tree"])
def test_a_worktree_is_believed_only_if_all_of_it_is_ones_own(shop: Path, tmp_path: Path, whose: str) -> None:
    os.chown(tmp_path / whose, SOMEONE, -1)
    assert not set(identify_project(str(tmp_path / "tree")).identities) & {
        f"git:{shop}/.git",
        "remote:example.org/team/shop",
    }


@as_root
def test_a_repository_of_another_user_is_known_by_its_path_alone(memory: Memory, shop: Path) -> None:
    """As one of the host that is mounted in a container. What was known of it stays known."""
    before = memory.know(shop)
    for path in (shop, shop / ".git"):
        os.chown(path, SOMEONE, -1)
    found = identify_project(str(shop / "src"))
    assert (found.identities, found.root) == ((f"dir:{shop}",), str(shop))
    assert memory.know(shop / "src") == before


@as_root
@pytest.mark.parametrize("kind", ["folder", "file", "link"])
@pytest.mark.parametrize("owner", [SOMEONE, SOMEONE + 1])
def test_the_owner_of_a_shared_folder_claims_nothing_of_yours_below(
    memory: Memory, shop: Path, tmp_path: Path, kind: str, owner: int
) -> None:
    """Two folders of yours in a folder of someone else's are two projects, whatever lies there."""
    shared = tmp_path / "shared"
    for name in ("one", "two"):
        (shared / name / "src").mkdir(parents=True)
    before = [memory.know(shared / name / "src") for name in ("one", "two")]
    _put_git(shared, shop, kind)
    (shared / ".claude-mem.toml").write_text('project = "theirs"\nenabled = false\n')
    for path in (shared, shared / ".git", shared / ".claude-mem.toml"):
        os.chown(path, SOMEONE if path == shared else owner, -1, follow_symlinks=False)
    (shared / "three").mkdir()
    assert [memory.know(shared / name / "src") for name in ("one", "two")] == before
    assert memory.know(shared / "three") not in before
    assert identify_project(str(shared / "three")).enabled


# --- the branch that is checked out ----------------------------------------------------------------------------------


def test_the_branch_of_a_work_tree_is_read_also_where_git_is_a_file(shop: Path, tmp_path: Path) -> None:
    git(shop, "checkout", "-q", "-b", "ann/prices")
    (shop / "src").mkdir()
    assert git_files.current_branch(shop) == "ann/prices"
    assert git_files.current_branch(shop / "src") == "ann/prices"
    assert git_files.current_branch(tmp_path / "tree") == "tree"
    assert git_files.current_branch(shop / "inner") in ("main", "master")
    git(shop, "checkout", "-q", "--detach")
    assert git_files.current_branch(shop) == ""


def test_a_work_tree_that_is_not_trusted_has_no_branch(shop: Path, tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    evil.mkdir()
    pointer_to_worktree(evil, shop)
    assert git_files.current_branch(evil) == ""


@pytest.mark.parametrize("head", ["", "ref: refs/heads/a\x1b[31m", "ref: refs/heads/" + "x" * 300, "ref: ../../x"])
def test_a_strange_head_is_no_branch(shop: Path, head: str) -> None:
    (shop / ".git" / "HEAD").write_text(head)
    assert git_files.current_branch(shop) == ""
