"""A repository keeps its memory when it moves, and another one that takes its place does not get it."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from claude_mem import hook
from claude_mem.config import Config
from claude_mem.storage.sqlite.database import Database
from claude_mem.storage.sqlite.engine import Connection, fetch_all
from claude_mem.storage.sqlite.journal import notices
from claude_mem.storage.sqlite.memory import projects
from claude_mem.system import git_files
from claude_mem.system.project_folders import ResolvedProject, identify_project
from tests.support import forks, proof
from tests.support.lab import Lab
from tests.support.waiting import wait_for

COMMAND = "CLAUDE_MEM_PROOF=build/proof pytest tests/storage/test_repositories.py"


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def make(folder: Path, *, commits: int = 1, template: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", *([] if template else ["--template="]))
    for number in range(commits):
        commit(folder, str(number))
    return folder


def commit(folder: Path, text: str = "more") -> None:
    (folder / "a.txt").write_text(f"{text} {os.urandom(8).hex()}\n")  # else two commits of one second were one
    git(folder, "add", "a.txt")
    git(folder, "commit", "-q", "-m", text)


class Memory:
    """The projects of a database, by folder."""

    def __init__(self, config: Config) -> None:
        self.db = Database(config.database, backups=config.backups)
        self.now = 0

    def know(self, folder: Path) -> int:
        """As at the start of a session in a folder."""
        self.now += 1
        return int(
            self.db.write_now(projects.register_project, identify_project(str(folder)), str(folder), now=self.now)
        )

    def find(self, folder: Path) -> int | None:
        return self.db.read_now(projects.find_project_id, identify_project(str(folder)))

    def offers(self) -> list[str]:
        return list(self.db.read_now(notices.list_unshown_notices).values())

    def forget_repositories(self) -> None:
        """Leave what version 0.1.0 knew: paths and remotes."""
        self.db.write_now(_as_in_0_1_0)


def _as_in_0_1_0(conn: Connection) -> None:
    conn.execute("delete from repositories")
    conn.execute("delete from project_aliases where identity glob 'made:*'")


@pytest.fixture
def memory(config: Config) -> Iterator[Memory]:
    memory = Memory(config)
    yield memory
    memory.db.close()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return make(tmp_path / "a" / "shop")


# --- the same repository, and others ---------------------------------------------------------------------------------


def renamed(shop: Path) -> Path:
    return shop.rename(shop.with_name("renamed"))


def moved_deeper(shop: Path) -> Path:
    (shop.parent / "x" / "y").mkdir(parents=True)
    return shop.rename(shop.parent / "x" / "y" / "shop")


def parent_renamed(shop: Path) -> Path:
    return shop.parent.rename(shop.parent.with_name("other")) / "shop"


def moved_twice(shop: Path) -> Path:
    return renamed(renamed(shop).rename(shop))


def collected(shop: Path) -> Path:
    git(shop, "gc", "-q", "--prune=now")
    return shop


def collected_and_moved(shop: Path) -> Path:
    return renamed(collected(shop))


def first_commit_then_moved(shop: Path) -> Path:
    commit(shop)
    return renamed(shop)


def gained_a_remote(shop: Path) -> Path:
    git(shop, "remote", "add", "origin", "git@example.org:team/shop.git")
    return renamed(shop)


def initialised_again(shop: Path) -> Path:
    git(shop, "init", "-q")
    return shop


def restored_in_place(shop: Path) -> Path:
    """As from a backup: the same times, other inodes."""
    shutil.copytree(shop, shop.with_name("backup"), symlinks=True)
    shop.rename(shop.with_name("broken"))
    shop.with_name("backup").rename(shop)
    shutil.rmtree(shop.with_name("broken"))
    return shop


def cloned_over(shop: Path) -> Path:
    git(shop.parent, "clone", "-q", str(shop), "fresh")
    shutil.rmtree(shop)
    return shop.with_name("fresh").rename(shop)


def cloned_over_packed(shop: Path) -> Path:
    """Nothing but a pack, as from a server: the first commit is in it, and no file says which it is."""
    git(shop.parent, "clone", "-q", f"file://{shop}", "fresh")
    shutil.rmtree(shop)
    return shop.with_name("fresh").rename(shop)


def other_branch_without_history(shop: Path) -> Path:
    git(shop, "checkout", "-q", "--orphan", "pages")
    commit(shop, "pages")
    return shop


def description_edited(shop: Path) -> Path:
    (shop / ".git" / "description").write_text("The shop\n")
    return shop


def files_excluded(shop: Path) -> Path:
    (shop / ".git" / "info" / "exclude").write_text("*.log\n")
    return renamed(shop)


@pytest.mark.parametrize(
    "change",
    [
        renamed,
        moved_deeper,
        parent_renamed,
        moved_twice,
        collected,
        collected_and_moved,
        gained_a_remote,
        initialised_again,
        restored_in_place,
        cloned_over,
        cloned_over_packed,
        other_branch_without_history,
        description_edited,
        files_excluded,
    ],
)
def test_it_keeps_its_memory(memory: Memory, shop: Path, change: Callable[[Path], Path]) -> None:
    before = memory.know(shop)
    now = change(shop)
    assert memory.find(now) == before, "told at once, before anything is captured"
    assert memory.know(now) == memory.know(now) == before
    assert memory.offers() == []


@pytest.mark.parametrize(
    "change", [renamed, moved_deeper, first_commit_then_moved, gained_a_remote, collected_and_moved]
)
def test_one_without_any_commit_keeps_its_memory(
    memory: Memory, tmp_path: Path, change: Callable[[Path], Path]
) -> None:
    shop = make(tmp_path / "a" / "shop", commits=0)
    before = memory.know(shop)
    assert memory.know(change(shop)) == before


def new_at_the_old_path(shop: Path) -> Path:
    renamed(shop)
    return make(shop, commits=2)


def new_and_empty_at_the_old_path(shop: Path) -> Path:
    renamed(shop)
    return make(shop, commits=0)


def started_over(shop: Path) -> Path:
    shutil.rmtree(shop / ".git")
    return make(shop)


def removed_and_made_again(shop: Path) -> Path:
    """The file system may use the inode again."""
    shutil.rmtree(shop)
    return make(shop)


def another_moved_to_the_old_path(shop: Path) -> Path:
    renamed(shop)
    return make(shop.with_name("other")).rename(shop)


def copied(shop: Path) -> Path:
    return _copy(shop, shop.with_name("copy"))


def copied_and_removed(shop: Path) -> Path:
    """As `mv` does between disks: nothing but the history tells that it is the same."""
    copy = copied(shop)
    shutil.rmtree(shop)
    return copy


def _copy(shop: Path, copy: Path) -> Path:
    subprocess.run(["cp", "-a", str(shop), str(copy)], check=True)
    return copy


@pytest.mark.parametrize(
    "change",
    [
        new_at_the_old_path,
        new_and_empty_at_the_old_path,
        started_over,
        removed_and_made_again,
        another_moved_to_the_old_path,
        copied,
        copied_and_removed,
    ],
)
def test_another_one_does_not_get_it(memory: Memory, shop: Path, change: Callable[[Path], Path]) -> None:
    before = memory.know(shop)
    now = change(shop)
    assert memory.find(now) is None
    other = memory.know(now)
    assert other != before
    assert memory.know(now) == other, "and it stays its own"
    proof.record(
        "other repositories in the place of a known one: kept apart", of="S14", goal="all", measured=1, ok=True,
        tally=True, command=COMMAND,
    )  # fmt: skip


def test_the_one_that_moved_away_is_known_where_it_is_now_whoever_is_seen_first(memory: Memory, shop: Path) -> None:
    old = memory.know(shop)
    moved = renamed(shop)
    new = memory.know(make(shop))
    assert memory.know(moved) == old
    assert memory.know(shop) == new
    shown = {row.id: row.root for row in memory.db.read_now(projects.list_projects_with_counts)}
    assert shown == {old: str(moved), new: str(shop)}
    assert memory.know(moved_deeper(moved)) == old
    assert memory.know(make(moved)) not in (old, new)


def test_two_that_changed_places_are_told_apart(memory: Memory, tmp_path: Path) -> None:
    one, two = make(tmp_path / "one"), make(tmp_path / "two")
    ids = memory.know(one), memory.know(two)
    one.rename(tmp_path / "three")
    two.rename(one)
    (tmp_path / "three").rename(two)
    assert (memory.know(two), memory.know(one)) == ids
    assert (memory.know(two), memory.know(one)) == ids


def test_without_the_files_that_git_makes_once_a_path_is_all_there_is(memory: Memory, tmp_path: Path) -> None:
    shop = make(tmp_path / "shop", template=False)
    before = memory.know(shop)
    commit(shop)
    assert memory.know(shop) == before
    shutil.rmtree(shop)
    other = memory.know(make(shop, template=False))
    assert other != before, "another first commit"


# --- what version 0.1.0 left -----------------------------------------------------------------------------------------


def test_what_an_earlier_version_knew_goes_on_and_moves_from_then_on(memory: Memory, shop: Path) -> None:
    before = memory.know(shop)
    memory.forget_repositories()
    assert memory.find(shop) == before
    assert memory.know(shop) == before
    assert memory.know(renamed(shop)) == before


def test_a_merged_project_of_an_earlier_version_is_not_torn_apart(memory: Memory, tmp_path: Path) -> None:
    """Each of its repositories is seen for the first time with what tells it from others."""
    one, two = make(tmp_path / "one"), make(tmp_path / "two")
    whole, part = memory.know(one), memory.know(two)
    memory.db.write_now(projects.merge_project_into, part, whole)
    memory.forget_repositories()
    assert memory.know(one) == memory.know(two) == memory.know(one) == whole
    assert memory.know(renamed(two)) == whole
    assert memory.db.read_now(projects.get_project, whole).root == str(one), "the other one did not move"


# --- what follows a move ---------------------------------------------------------------------------------------------


def test_folders_follow_and_the_old_ones_are_free(memory: Memory, shop: Path) -> None:
    (shop / "src").mkdir()
    project = memory.know(shop)
    memory.know(shop / "src")
    moved = renamed(shop)
    memory.know(moved)
    assert sorted(memory.db.read_now(projects.list_project_folders, project)) == [str(moved), str(moved / "src")]
    assert memory.db.read_now(projects.get_project, project).root == str(moved)
    assert f"git:{shop}/.git" not in memory.db.read_now(projects.list_project_aliases, project)


def test_a_worktree_and_a_submodule_move_with_their_repository(memory: Memory, shop: Path, tmp_path: Path) -> None:
    library = make(tmp_path / "library")
    git(shop, "submodule", "add", "-q", str(library), "inner")
    git(shop, "remote", "add", "origin", "x.example:y")
    git(shop / "inner", "remote", "remove", "origin")
    git(shop, "worktree", "add", "-q", str(tmp_path / "tree"))
    ids = memory.know(shop), memory.know(shop / "inner")
    assert memory.know(tmp_path / "tree") == ids[0] != ids[1]
    moved = renamed(shop)
    git(moved, "worktree", "repair")
    assert (memory.know(tmp_path / "tree"), memory.know(moved / "inner"), memory.know(moved)) == (
        ids[0],
        ids[1],
        ids[0],
    )
    assert memory.db.read_now(projects.get_project, ids[1]).root == str(moved / "inner")


# --- offers ----------------------------------------------------------------------------------------------------------


def test_a_copy_is_offered_to_be_joined_once(memory: Memory, shop: Path) -> None:
    old = memory.know(shop)
    new = memory.know(copied(shop))
    (offer,) = memory.offers()
    assert f"`claude-mem project merge {new} {old}`" in offer
    assert str(shop) in offer
    memory.db.write_now(notices.mark_notices_shown, [notices.merge_offer_key(old, new)], now=9)
    assert memory.know(shop) == old
    assert memory.know(shop.with_name("copy")) == new
    assert memory.offers() == []


def test_joining_two_withdraws_the_offer_and_both_places_are_one_project(memory: Memory, shop: Path) -> None:
    old, new = memory.know(shop), memory.know(copied(shop))
    memory.db.write_now(projects.merge_project_into, new, old)
    assert memory.offers() == []
    assert memory.know(shop) == memory.know(shop.with_name("copy")) == old
    assert memory.offers() == []
    assert memory.db.read_now(projects.list_related_projects, old) == []


def test_a_new_repository_at_a_known_path_is_offered_unless_the_old_one_is_seen(memory: Memory, shop: Path) -> None:
    old = memory.know(shop)
    moved = renamed(shop)
    new = memory.know(make(shop))
    (offer,) = memory.offers()
    assert f"`claude-mem project merge {new} {old}`" in offer
    assert memory.know(moved) == old
    shop.rename(shop.with_name("again"))
    assert memory.know(shop.with_name("again")) == new
    assert memory.know(make(shop)) not in (old, new)
    assert len(memory.offers()) == 1, "both are where they were seen last"


def test_a_history_that_someone_copied_joins_nothing(memory: Memory, shop: Path, tmp_path: Path) -> None:
    """An archive can have every file of git, with any content and any time."""
    old = memory.know(shop)
    evil = make(tmp_path / "downloads" / "evil")
    for name in ("logs/HEAD", "description", "info/exclude"):
        shutil.copy2(shop / ".git" / name, evil / ".git" / name)
    assert git_files.root_commit(evil / ".git") == git_files.root_commit(shop / ".git")
    assert memory.know(evil) != old


# --- remotes ---------------------------------------------------------------------------------------------------------

REMOTE = "git@example.org:team/shop.git"


@pytest.fixture
def cloned(shop: Path) -> Path:
    git(shop, "remote", "add", "origin", REMOTE)
    return shop


def archive(shop: Path) -> Path:
    """Not a commit in common, but the remote."""
    evil = make(shop.parent / "downloads" / "evil")
    git(evil, "remote", "add", "origin", "https://example.org/team/shop")
    return evil


def other_spelling(shop: Path) -> Path:
    evil = make(shop.parent / "evil")
    git(evil, "remote", "add", "upstream", "ssh://git@EXAMPLE.org:22/team/shop.git/")
    return evil


def bare_minimum(shop: Path) -> Path:
    """No repository that git would open."""
    evil = shop.parent / "evil"
    (evil / ".git").mkdir(parents=True)
    shutil.copy(shop / ".git" / "config", evil / ".git" / "config")
    return evil


def inside_of_it(shop: Path) -> Path:
    evil = make(shop / "vendor" / "evil")
    git(evil, "remote", "add", "origin", REMOTE)
    return evil


def with_worktree_of_its_own(shop: Path) -> Path:
    evil = archive(shop)
    git(evil, "worktree", "add", "-q", str(evil.parent / "tree"))
    return evil.parent / "tree"


def in_a_folder_that_looks_like_git(shop: Path) -> Path:
    evil = make(shop.parent / "x.git" / "modules" / "evil")
    git(evil, "remote", "add", "origin", REMOTE)
    return evil


def second_clone(shop: Path) -> Path:
    """Honest, and not to be told from the others."""
    git(shop.parent, "clone", "-q", str(shop), "second")
    git(shop.with_name("second"), "remote", "set-url", "origin", REMOTE)
    return shop.with_name("second")


CLAIMS = [
    archive,
    other_spelling,
    bare_minimum,
    inside_of_it,
    with_worktree_of_its_own,
    in_a_folder_that_looks_like_git,
    second_clone,
]


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("upgraded", [False, True])
def test_a_remote_alone_joins_nothing_and_a_merge_is_offered_once(
    memory: Memory, cloned: Path, claim: Callable[[Path], Path], upgraded: bool
) -> None:
    old = memory.know(cloned)
    if upgraded:
        memory.forget_repositories()
    evil = claim(cloned)
    assert memory.find(evil) is None, "nothing of it is told"
    new = memory.know(evil)
    assert (memory.know(evil), memory.know(cloned)) == (new, old)
    assert new != old
    (offer,) = memory.offers()
    assert "has the same remote as" in offer
    assert f"`claude-mem project merge {new} {old}`" in offer
    assert [row.id for row in memory.db.read_now(projects.list_related_projects, new)] == [old]
    memory.db.write_now(projects.merge_project_into, new, old)
    assert memory.know(evil) == memory.know(cloned) == old, "a person has said so"
    assert memory.offers() == []
    proof.record(
        "folders that name the remote of another repository: joined only by a person", of="S14", goal="all",
        measured=1, ok=True, tally=True, command=COMMAND,
    )  # fmt: skip


def test_clones_that_were_joined_before_stay_joined(memory: Memory, cloned: Path) -> None:
    """As versions up to now left them: each path is an identity of the one project."""
    second = second_clone(cloned)
    old = memory.know(cloned)
    memory.db.write_now(_also_known_as, old, f"git:{second}/.git")
    memory.forget_repositories()
    assert memory.know(second) == memory.know(cloned) == old
    assert memory.know(renamed(second)) == old
    assert memory.offers() == []


def _also_known_as(conn: Connection, project_id: int, identity: str) -> None:
    conn.execute("insert into project_aliases values (?, ?)", (identity, project_id))


def shallow_clone_over(shop: Path) -> Path:
    """Not even the first commit is in it."""
    commit(shop)
    git(shop.parent, "clone", "-q", "--depth=1", f"file://{shop}", "fresh")
    git(shop.with_name("fresh"), "remote", "set-url", "origin", REMOTE)
    shutil.rmtree(shop)
    return shop.with_name("fresh").rename(shop)


@pytest.mark.parametrize("change", [renamed, shallow_clone_over, cloned_over_packed, restored_in_place, collected])
def test_a_repository_with_a_remote_keeps_its_memory(
    memory: Memory, cloned: Path, change: Callable[[Path], Path]
) -> None:
    before = memory.know(cloned)
    now = change(cloned)
    assert memory.find(now) == before
    assert memory.know(now) == before
    assert memory.offers() == []


def test_worktrees_and_their_submodules_share_memory_without_a_question(
    memory: Memory, cloned: Path, tmp_path: Path
) -> None:
    git(cloned, "submodule", "add", "-q", str(make(tmp_path / "library")), "inner")
    git(cloned, "commit", "-q", "-m", "inner")
    ids = memory.know(cloned), memory.know(cloned / "inner")
    git(cloned, "worktree", "add", "-q", str(tmp_path / "tree"))
    git(tmp_path / "tree", "submodule", "update", "-q", "--init")
    assert "worktrees" in str(identify_project(str(tmp_path / "tree" / "inner")).repository)
    assert (memory.know(tmp_path / "tree"), memory.know(tmp_path / "tree" / "inner")) == ids
    assert memory.offers() == []


def test_what_was_imported_belongs_to_its_first_folder_here(memory: Memory, cloned: Path) -> None:
    elsewhere = ResolvedProject("shop", "/home/me/shop", ("git:/home/me/shop/.git", "remote:example.org/team/shop"))
    imported = memory.db.write_now(projects.register_project, elsewhere, "", now=1)
    assert memory.know(cloned) == imported
    assert memory.know(archive(cloned)) != imported, "and to no other"


def test_of_many_clones_one_merge_is_offered(memory: Memory, cloned: Path) -> None:
    first = memory.know(cloned)
    for number in range(4):
        git(cloned.parent, "clone", "-q", str(cloned), f"clone{number}")
        git(cloned.with_name(f"clone{number}"), "remote", "set-url", "origin", REMOTE)
        memory.know(cloned.with_name(f"clone{number}"))
    assert len(memory.offers()) == 4
    assert all(offer.endswith(f" {first}`.") for offer in memory.offers())


# --- the first commit ------------------------------------------------------------------------------------------------


def without_log(shop: Path) -> None:
    shutil.rmtree(shop / ".git" / "logs")


def packed_with_graph(shop: Path) -> None:
    without_log(shop)
    git(shop, "-c", "gc.writeCommitGraph=true", "gc", "-q", "--prune=now")
    assert not list((shop / ".git" / "objects").glob("[0-9a-f][0-9a-f]"))


def graph_and_newer(shop: Path) -> None:
    packed_with_graph(shop)
    commit(shop, "newer")
    without_log(shop)


def detached(shop: Path) -> None:
    git(shop, "checkout", "-q", "--detach")
    without_log(shop)


def packed_refs(shop: Path) -> None:
    git(shop, "pack-refs", "--all")
    without_log(shop)


@pytest.mark.parametrize(
    "change", [lambda _: None, without_log, packed_with_graph, graph_and_newer, detached, packed_refs]
)
def test_the_first_commit_is_read_from_gits_own_files(tmp_path: Path, change: Callable[[Path], Any]) -> None:
    shop = make(tmp_path / "shop", commits=40)
    first = git(shop, "rev-list", "--max-parents=0", "HEAD")
    change(shop)
    assert git_files.root_commit(shop / ".git") == first
    assert git_files.contains_commit(shop / ".git", first)
    assert not git_files.contains_commit(shop / ".git", "0" * 40)


@pytest.mark.parametrize("damage", [b"", b"\0" * 5000, b"CGPH\1\1\xff\0" + b"\xff" * 5000])
def test_damaged_files_of_git_say_nothing(tmp_path: Path, damage: bytes) -> None:
    shop = make(tmp_path / "shop", commits=3)
    packed_with_graph(shop)
    graph = shop / ".git" / "objects" / "info" / "commit-graph"
    graph.chmod(0o600)
    graph.write_bytes(damage)
    (shop / ".git" / "logs").mkdir(exist_ok=True)
    (shop / ".git" / "logs" / "HEAD").write_bytes(damage)
    assert git_files.root_commit(shop / ".git") == ""
    for index in (shop / ".git" / "objects" / "pack").glob("*.idx"):
        index.chmod(0o600)
        index.write_bytes(damage)
    assert not git_files.contains_commit(shop / ".git", "ab" * 20)


def test_a_snapshot_of_the_whole_disk_is_no_move(memory: Memory, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the same inodes and times, on another device; both are there."""
    old = memory.know(shop)
    snapshot = copied(shop)
    inode = (shop / ".git").stat().st_ino
    here = identify_project(str(snapshot))
    assert here.repository is not None
    seems = git_files.Repository(
        str(snapshot / ".git"), f"{inode}:{here.repository.made_at}", here.repository.root_commit
    )
    place = ResolvedProject(here.name, here.root, here.identities, repository=seems)
    monkeypatch.setattr(git_files, "has_copy_at", lambda repository, path: path == str(shop / ".git"))
    assert memory.db.write_now(projects.register_project, place, "", now=5) != old
    assert memory.db.read_now(lambda conn: fetch_all(conn, "select count(*) as n from repositories")) == [{"n": 2}]


# --- from the first session to the last ------------------------------------------------------------------------------


def _work(lab: Lab, session: str, count: int) -> None:
    for number in range(count):
        fields = {"session_id": session, "prompt_id": f"{session}.{number}"}
        lab.spool("UserPromptSubmit", prompt=f"write part {number}", **fields)
        edit = {"tool_name": "Write", "tool_input": {"file_path": str(lab.project / f"part{number}.py")}}
        lab.spool("PostToolUse", tool_use_id=f"{session}.{number}", **edit, **fields)
        lab.spool("Stop", last_assistant_message=f"Part {number} is written.", **fields)
    lab.spool("SessionEnd", session_id=session)


def _told_at_start(lab: Lab, folder: Path) -> str:
    """What the hook of a new session is answered. It waits only a moment for a worker, so it is asked again."""
    lab.project = folder
    numbers = itertools.count()

    def answered() -> str:
        answer = lab.hook("SessionStart", source="startup", session_id=f"new{next(numbers)}")
        return str(((answer or {}).get("hookSpecificOutput") or {}).get("additionalContext", ""))

    return wait_for(answered, "no start was answered")


def _start_file(lab: Lab, folder: Path) -> Path:
    return lab.data / "starts" / hook.brief_filename(str(folder))


def test_after_a_rename_the_first_session_is_told_everything(lab: Lab, tmp_path: Path) -> None:
    lab.project = shop = make(tmp_path / "work" / "shop")
    client = lab.start()
    _work(lab, "first", 8)
    lab.wait_digested()
    wait_for(_start_file(lab, shop).exists)
    before = client.get("/api/context/inject", cwd=str(shop))
    moved = renamed(shop)
    told = client.get("/api/context/inject", cwd=str(moved))
    assert "part 7" in told
    assert told.splitlines()[2:] == before.splitlines()[2:], "all but the heading is the same"
    assert len(client.get("/api/observations", limit=20)["items"]) == 8
    assert "part 7" in _told_at_start(lab, moved), "the hook is told, too"
    wait_for(_start_file(lab, moved).exists)
    wait_for(lambda: not _start_file(lab, shop).exists())
    assert "part 7" in _start_file(lab, moved).read_text()
    make(shop)
    assert "part " not in client.get("/api/context/inject", cwd=str(shop))
    assert len(client.get("/api/projects")["items"]) == 1


def test_a_new_repository_at_the_old_path_is_told_nothing_also_without_a_worker(lab: Lab, tmp_path: Path) -> None:
    lab.project = shop = make(tmp_path / "work" / "shop")
    client = lab.start()
    _work(lab, "first", 1)
    lab.wait_digested()
    wait_for(lambda: _start_file(lab, shop).exists() and "part 0" in _start_file(lab, shop).read_text())
    renamed(shop)
    make(shop)
    assert "part 0" not in client.get("/api/context/inject", cwd=str(shop))
    lab.spool("SessionStart", source="startup", session_id="other")
    lab.wait_digested()
    wait_for(lambda: "part 0" not in _start_file(lab, shop).read_text())


def test_a_person_is_told_how_to_join_a_copy(lab: Lab, tmp_path: Path) -> None:
    lab.project = shop = make(tmp_path / "work" / "shop")
    lab.start()
    _work(lab, "first", 1)
    lab.wait_digested()
    (old,) = [row["id"] for row in lab.client().get("/api/projects")["items"]]
    lab.project = copy = copied_and_removed(shop)
    before = forks.run(["project"], lab.env(), cwd=copy)
    assert f"same first commit as project {old}" in before.stderr
    _work(lab, "second", 1)
    lab.wait_digested()
    (new,) = [row["id"] for row in lab.client().get("/api/projects")["items"] if row["id"] != old]
    command = f"claude-mem project merge {new} {old}"
    assert command in forks.run(["project"], lab.env(), cwd=copy).stderr
    assert command in forks.run(["project", "show"], lab.env(), cwd=copy).stdout
    assert command in forks.run(["doctor"], lab.env(), cwd=copy).stdout
    assert lab.client().get(f"/api/project/{new}")["related"][0]["command"] == command
    told = [lab.hook("SessionStart", source="startup", session_id=f"n{number}") for number in range(40)]
    said = [str((answer or {}).get("systemMessage", "")) for answer in told]
    assert sum(command in text for text in said) == 1, "once"
    assert forks.run([*command.split()[1:], "--yes"], lab.env(), cwd=copy).returncode == 0
    assert "first commit" not in forks.run(["project"], lab.env(), cwd=copy).stderr


def test_an_archive_that_names_the_remote_reads_and_writes_a_memory_of_its_own(lab: Lab, tmp_path: Path) -> None:
    lab.project = shop = make(tmp_path / "work" / "shop")
    git(shop, "remote", "add", "origin", REMOTE)
    client = lab.start()
    _work(lab, "first", 1)
    lab.wait_digested()
    lab.project = evil = archive(shop)
    assert "part 0" not in client.get("/api/context/inject", cwd=str(evil))
    assert "same remote as project 1" in forks.run(["project"], lab.env(), cwd=evil).stderr
    lab.spool("UserPromptSubmit", prompt="planted words", prompt_id="p", session_id="evil")
    lab.spool("Stop", last_assistant_message="The planted work is done.", prompt_id="p", session_id="evil")
    lab.wait_digested()
    assert "planted" not in client.get("/api/context/inject", cwd=str(shop))
    said = forks.run(["project"], lab.env(), cwd=evil).stderr, forks.run(["doctor"], lab.env(), cwd=evil).stdout
    assert all("the same remote" in text and "`claude-mem project merge 2 1`" in text for text in said)
