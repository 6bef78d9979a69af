"""Living memory in repositories that are rewritten, moved, incomplete, huge, planted or broken: it degrades, says nothing
false, and runs nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from claude_mem.domain import anchors
from claude_mem.domain.anchors import Freshness, Outcome
from claude_mem.inject import freshness, outcomes
from claude_mem.storage.records import StoredAnchor, StoredOutcome, apply_looks
from claude_mem.storage.sqlite.memory.anchors import judge_freshness
from claude_mem.system import git_files, git_objects
from claude_mem.system.git_objects import GitObjects
from tests.support.repositories import CODE, NOW, OTHER, Repository

DAY = 86_400_000
UNSEEN = StoredAnchor(1, 1, "a.py", anchors.EDIT, anchors.choose_lines(CODE.splitlines()))
WORK = StoredOutcome(1, Outcome.TRIED, "", NOW)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "shop")


def inspected(
    root: Path, item: StoredAnchor = UNSEEN, before: Outcome = Outcome.TRIED
) -> tuple[Freshness, Outcome | None]:
    """Return what a look after a turn says of work that added `CODE` to `a.py`."""
    result = freshness.inspect(str(root), [item], [replace(WORK, outcome=before)])
    (seen,) = apply_looks([item], result.looks)
    (verdict,) = result.verdicts or (None,)
    (updated,) = (verdict.anchors if verdict else ()) or (seen,)
    return judge_freshness([updated]), Outcome(verdict.outcome) if verdict else None


def dated(repository: Repository, subject: str, seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit with a clock that is wrong."""
    monkeypatch.setenv("GIT_COMMITTER_DATE", f"@{seconds} +0000")
    monkeypatch.setenv("GIT_AUTHOR_DATE", f"@{seconds} +0000")
    repository.commit(subject)
    monkeypatch.delenv("GIT_COMMITTER_DATE")
    monkeypatch.delenv("GIT_AUTHOR_DATE")


# --- history that changes --------------------------------------------------------------------------------------------


def test_work_survives_a_rebase(repository: Repository) -> None:
    repository.git("checkout", "-q", "-b", "feature")
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    repository.git("checkout", "-q", "main")
    repository.put("b.py", OTHER)
    repository.commit("Add baskets")
    repository.git("checkout", "-q", "feature")
    repository.git("rebase", "-q", "main")
    assert inspected(repository.root) == (Freshness.CURRENT, Outcome.COMMITTED)


def test_work_that_a_force_push_removed_from_the_default_branch_has_not_landed(
    repository: Repository, tmp_path: Path
) -> None:
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    clone = tmp_path / "clone"
    repository.git("clone", "-q", str(repository.root), str(clone))
    assert inspected(clone) == (Freshness.CURRENT, Outcome.LANDED)
    repository.git("reset", "-q", "--hard", "HEAD~")
    subprocess.run(["git", "-C", str(clone), "fetch", "-q", "--force"], check=True)
    assert inspected(clone) == (Freshness.CURRENT, Outcome.COMMITTED), "it is on a branch of this clone only"


def test_a_history_in_which_every_commit_was_rewritten_is_read_as_it_is_now(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.put("secret.txt", "a key that nobody should have committed")
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    before = repository.git("rev-parse", "HEAD")
    monkeypatch.setenv("FILTER_BRANCH_SQUELCH_WARNING", "1")
    repository.git(
        "filter-branch", "-f", "--index-filter", "git rm -q --cached --ignore-unmatch secret.txt", "--", "--all"
    )
    repository.git("update-ref", "-d", "refs/original/refs/heads/main")
    repository.git("reflog", "expire", "--expire=now", "--all")
    repository.git("gc", "-q", "--prune=now")
    assert GitObjects(str(repository.root)).resolve(before) == [""]
    assert inspected(repository.root, before=Outcome.LANDED) == (Freshness.CURRENT, Outcome.LANDED)


@pytest.mark.parametrize("seconds", [86_400, 4_000_000_000])
def test_a_commit_whose_clock_is_wrong_hides_no_history(
    repository: Repository, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    repository.put("b.py", OTHER)
    dated(repository, "Add baskets", seconds, monkeypatch)
    repository.put("a.py", OTHER)
    dated(repository, "Use classes", seconds + 1, monkeypatch)
    state, outcome = inspected(repository.root)
    assert (state, outcome) == (Freshness.OUTDATED, Outcome.LANDED)


def test_much_work_on_other_branches_does_not_keep_new_work_from_being_looked_for(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.git("checkout", "-q", "-b", "feature")
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    repository.git("checkout", "-q", "main")
    ticks = iter([0.0, 0.0, *[outcomes.HISTORY_SECONDS + 1] * 9])  # time for one check
    monkeypatch.setattr(outcomes, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    items = [replace(UNSEEN, id=number, observation_id=number) for number in (1, 2)]
    stored = [replace(WORK, outcome=Outcome.COMMITTED), replace(WORK, observation_id=2, created_at=NOW - DAY)]
    items.append(StoredAnchor(3, 3, "README", anchors.READ, anchors.choose_lines(["A shop with baskets and totals."])))
    result = freshness.inspect(str(repository.root), items, stored)
    assert [(one.observation_id, one.outcome) for one in result.verdicts] == [(2, Outcome.COMMITTED)]


# --- work trees ------------------------------------------------------------------------------------------------------


def test_a_deleted_and_a_renamed_work_tree(repository: Repository, tmp_path: Path) -> None:
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    linked = tmp_path / "linked"
    repository.git("worktree", "add", "-q", str(linked), "-b", "feature")
    assert inspected(linked) == (Freshness.CURRENT, Outcome.LANDED)
    renamed = tmp_path / "renamed"
    linked.rename(renamed)  # its `.git` still names a folder that does not point back
    assert inspected(linked)[0] == Freshness.UNKNOWN
    assert inspected(renamed)[0] == Freshness.CURRENT
    shutil.rmtree(renamed)
    assert inspected(renamed) == (Freshness.UNKNOWN, None)
    assert inspected(repository.root) == (Freshness.CURRENT, Outcome.LANDED)


def test_two_clones_at_different_commits_have_states_of_their_own(repository: Repository, tmp_path: Path) -> None:
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    clone = tmp_path / "clone"
    repository.git("clone", "-q", str(repository.root), str(clone))
    repository.put("a.py", OTHER)
    repository.commit("Use classes")
    assert inspected(clone)[0] == Freshness.CURRENT
    assert inspected(repository.root)[0] == Freshness.OUTDATED


def test_a_file_that_became_a_folder(repository: Repository) -> None:
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    repository.git("rm", "-q", "a.py")
    repository.put("a.py/__init__.py", CODE)
    repository.put("b.py", OTHER)
    repository.commit("Make a package of it")
    there = StoredAnchor(2, 2, "b.py", anchors.EDIT, anchors.choose_lines(OTHER.splitlines()))
    paths = GitObjects(str(repository.root)).list_paths("HEAD")
    seen, _ = apply_looks(
        [UNSEEN, there], freshness.look_at_files(str(repository.root), [UNSEEN, there], seconds=60, paths=paths)
    )
    assert judge_freshness([seen]) == Freshness.GONE


def test_what_a_sparse_checkout_leaves_out_is_not_gone(repository: Repository) -> None:
    repository.put("lib/a.py", CODE)
    repository.put("app/b.py", OTHER)
    repository.commit("Add the steps")
    items = [replace(UNSEEN, path="lib/a.py"), StoredAnchor(2, 2, "app/b.py", anchors.EDIT, UNSEEN.lines)]
    repository.git("sparse-checkout", "set", "app")
    assert not (repository.root / "lib").exists()
    result = freshness.inspect(str(repository.root), items, [WORK])
    hidden, _ = apply_looks(items, result.looks)
    assert judge_freshness([hidden]) == Freshness.UNKNOWN
    repository.git("sparse-checkout", "disable")
    assert not git_files.is_sparse(repository.root)
    assert inspected(repository.root, items[0]) == (Freshness.CURRENT, Outcome.LANDED)


def test_a_linked_work_tree_may_be_sparse_on_its_own(repository: Repository, tmp_path: Path) -> None:
    repository.put("lib/a.py", CODE)
    repository.commit("Add the steps")
    linked = tmp_path / "linked"
    repository.git("worktree", "add", "-q", str(linked), "-b", "feature")
    subprocess.run(["git", "-C", str(linked), "sparse-checkout", "set", "app"], check=True)
    assert (git_files.is_sparse(linked), git_files.is_sparse(repository.root)) == (True, False)


def test_work_in_a_submodule_is_not_judged_by_the_commits_around_it(repository: Repository, tmp_path: Path) -> None:
    part = Repository(tmp_path / "part")
    part.put("a.py", CODE)
    part.commit("Add the steps")
    repository.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(part.root), "part")
    repository.commit("Add the part")
    inside = replace(UNSEEN, path="part/a.py")
    assert inspected(repository.root, inside) == (Freshness.CURRENT, None)
    assert inspected(repository.root / "part") == (Freshness.CURRENT, Outcome.LANDED), "opened on its own"
    (repository.root / "part" / "a.py").write_text(OTHER)
    assert inspected(repository.root, inside) == (Freshness.OUTDATED, None), "not dropped: nobody knows"


# --- incomplete clones -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--depth=1", "--filter=blob:none"])
def test_history_that_a_clone_does_not_have_says_nothing(repository: Repository, tmp_path: Path, option: str) -> None:
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    repository.put("a.py", OTHER)
    repository.commit("Use classes")
    repository.git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    repository.git("clone", "-q", option, f"file://{repository.root}", str(clone))
    assert inspected(repository.root)[1] == Outcome.LANDED
    assert inspected(clone)[1] is None, "not dropped: the commit that had it is not here"


# --- size ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def huge(repository: Repository) -> Repository:
    """A commit of 200,000 files, which are not checked out, among them the renamed one."""
    repository.put("new/a.py", CODE)
    repository.commit("Add the steps")
    blob = repository.git("rev-parse", "HEAD:README")
    many = "".join(f"100644 blob {blob}\tfile{number:06}.txt\n" for number in range(2_000))
    folder = subprocess.run(
        ["git", "-C", str(repository.root), "mktree"], input=many, capture_output=True, text=True, check=True
    ).stdout.strip()
    new = repository.git("rev-parse", "HEAD:new")
    top = "".join(f"040000 tree {folder}\tpart{number:03}\n" for number in range(100)) + f"040000 tree {new}\tnew\n"
    tree = subprocess.run(
        ["git", "-C", str(repository.root), "mktree"], input=top, capture_output=True, text=True, check=True
    ).stdout.strip()
    commit = repository.git("commit-tree", tree, "-m", "Generate files", "-p", "HEAD")
    repository.git("update-ref", "refs/heads/main", commit)
    return repository


def test_a_renamed_file_is_found_among_200_000(huge: Repository) -> None:
    old = replace(UNSEEN, path="old/a.py")
    assert len(GitObjects(str(huge.root)).list_paths("HEAD")) == 200_001
    assert inspected(huge.root, old)[0] == Freshness.MOVED


def test_a_listing_of_files_has_an_end(huge: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_objects, "MAX_PATHS", 1_000)
    assert len(GitObjects(str(huge.root)).list_paths("HEAD")) == 1_000
    monkeypatch.setattr(git_objects, "MAX_PATHS_BYTES", 1 << 16)
    assert GitObjects(str(huge.root)).list_paths("HEAD") == []


def test_minified_and_generated_files(repository: Repository) -> None:
    repository.put("a.py", CODE + "var a=1;" * 180_000)
    repository.commit("Bundle")
    assert inspected(repository.root) == (Freshness.CURRENT, None), "too large for a look at commits"
    repository.put("a.py", "\n".join(f"row_{number} = table.insert({number})" for number in range(50_000)))
    repository.commit("Generate")
    assert inspected(repository.root)[0] == Freshness.OUTDATED


def test_a_file_whose_name_looks_like_an_answer_of_git(repository: Repository) -> None:
    for name in ("my blob", "a 1 blob 2", "tree"):
        repository.put(name, CODE)
        assert inspected(repository.root, replace(UNSEEN, path=name)) == (Freshness.CURRENT, None)
    repository.commit("Add files")
    assert inspected(repository.root, replace(UNSEEN, path="my blob")) == (Freshness.CURRENT, Outcome.LANDED)


# --- git itself ------------------------------------------------------------------------------------------------------


def test_a_repository_that_another_git_has_locked_is_read_all_the_same(repository: Repository) -> None:
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    for name in ("index.lock", "HEAD.lock", "packed-refs.lock", "config.lock", "shallow.lock", "refs/heads/main.lock"):
        (repository.root / ".git" / name).touch()
    assert inspected(repository.root) == (Freshness.CURRENT, Outcome.LANDED)


OLD_GIT = """#!/bin/sh
# As git 2.16 (January 2018) knew its options: anything newer is a usage error.
for word in "$@"; do
  case "$word" in
    --no-pager|--no-replace-objects|--literal-pathspecs|--git-dir=*|-c|core.*|protocol.*|gc.*|cat-file|--batch|--batch-check=*) ;;
    rev-list|--max-count=*|--format=*|--all|--topo-order|ls-tree|-r|-z|--name-only|--full-tree) ;;
    rev-parse|--abbrev-ref|--git-common-dir|HEAD) ;;
    [0-9a-f]*) ;;
    *) echo "error: unknown option $word" >&2; exit 129 ;;
  esac
done
exec {git} "$@"
"""


def test_a_git_of_2018_is_enough(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "old-git"
    program.write_text(OLD_GIT.replace("{git}", git_objects.find_git()))
    program.chmod(0o755)
    monkeypatch.setattr(git_objects, "find_git", lambda: str(program))
    repository.put("old/a.py", CODE)
    repository.commit("Add the steps")
    repository.git("mv", "old", "new")
    repository.commit("Rename the folder")
    item = replace(UNSEEN, path="old/a.py")
    assert inspected(repository.root, item) == (Freshness.MOVED, Outcome.LANDED)
    repository.put("new/a.py", OTHER)
    repository.commit("Use classes")
    assert inspected(repository.root, item)[1] == Outcome.LANDED


@pytest.mark.parametrize("program", ["", "/nonexistent/git", "/bin/false"])
def test_without_a_working_git_only_files_are_looked_at(
    repository: Repository, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    monkeypatch.setattr(git_objects, "find_git", lambda: program)
    assert inspected(repository.root) == (Freshness.CURRENT, None)
    repository.put("a.py", OTHER)
    assert inspected(repository.root) == (Freshness.OUTDATED, None)


def test_a_planted_repository_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trap, mark = tmp_path / "trap.sh", tmp_path / "ran"
    trap.write_text(f"#!/bin/sh\necho ran >> {mark}\n")
    trap.chmod(0o755)
    repository = Repository(tmp_path / "shop")
    repository.put("a.py", CODE)
    repository.put(".gitattributes", "* filter=trap diff=trap merge=trap textconv=trap\n")
    repository.commit("Add the steps")
    included = tmp_path / "included"
    included.write_text(f"[core]\n\tfsmonitor = {trap}\n\thooksPath = {tmp_path}\n\tsshCommand = {trap}\n")
    with (repository.root / ".git" / "config").open("a") as config:
        config.write(
            f'[include]\n\tpath = {included}\n[filter "trap"]\n\tclean = {trap}\n\tsmudge = {trap}\n\tprocess = {trap}\n'
            f'\trequired = true\n[diff "trap"]\n\ttextconv = {trap}\n\tcommand = {trap}\n[merge "trap"]\n\tdriver = {trap}\n'
            f"[diff]\n\texternal = {trap}\n[alias]\n\tls-tree = !{trap}\n\trev-parse = !{trap}\n"
            f'[credential]\n\thelper = !{trap}\n[remote "origin"]\n\turl = ext::{trap}\n\tpromisor = true\n'
            f"\tuploadpack = {trap}\n[log]\n\tshowSignature = true\n[gpg]\n\tprogram = {trap}\n"
        )
    hooks = repository.root / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "post-index-change", "reference-transaction", "fsmonitor-watchman", "pre-commit"):
        shutil.copy(trap, hooks / name)
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(trap))
    monkeypatch.setenv("GIT_SSH_COMMAND", str(trap))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    shutil.copy(trap, tmp_path / "git")
    state, outcome = inspected(repository.root)
    assert (state, outcome) == (Freshness.CURRENT, Outcome.LANDED)
    (repository.root / "a.py").unlink()
    freshness.inspect(str(repository.root), [UNSEEN], [WORK])
    assert not mark.exists()
