"""What became of the work, with real repositories: work that landed is never called dropped or reverted, and the commit
that is named is the one that brought the work."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from claude_mem.domain import anchors
from claude_mem.domain.anchors import Freshness, Outcome
from claude_mem.inject import freshness, outcomes
from claude_mem.inject.outcomes import Verdict
from claude_mem.storage.records import StoredAnchor, StoredOutcome
from tests.support.lab import Lab
from tests.support.repositories import CODE, NOW, OTHER, Repository, functions, work

LINES = CODE.splitlines()
WORK = StoredOutcome(1, Outcome.TRIED, "", NOW)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "shop")


def edit(lines: list[str] = LINES, path: str = "a.py", row_id: int = 1) -> StoredAnchor:
    chosen = [line.strip() for line in lines]
    hashes = anchors.choose_lines(chosen)
    return StoredAnchor(row_id, 1, path, anchors.EDIT, hashes, phrases=anchors.choose_phrases(chosen, 30))


def judge(repository: Repository, *items: StoredAnchor, stored: StoredOutcome = WORK) -> Verdict:
    """Return what a look after a turn says of work whose outcome was `stored`."""
    result = freshness.inspect(str(repository.root), items or (edit(),), [stored])
    return result.verdicts[0] if result.verdicts else Verdict(1, Outcome(stored.outcome), stored.commit_id)


# --- work that landed ------------------------------------------------------------------------------------------------


def test_the_turns_own_commit_shows_that_the_work_landed(repository: Repository) -> None:
    repository.put("a.py", OTHER + "total = 0\n")
    commit = repository.commit("Round the totals down")
    verdict = judge(repository, stored=replace(WORK, own_commit=commit[:7]))
    assert (verdict.outcome, verdict.commit) == (Outcome.LANDED, commit)


@pytest.mark.parametrize("claimed", ["", "0" * 40, "HEAD", "--all", "*", "zzzzzzz"])
def test_a_commit_that_is_not_one_shows_nothing(repository: Repository, claimed: str) -> None:
    repository.put("a.py", OTHER)
    repository.commit("Add baskets")
    assert judge(repository, stored=replace(WORK, own_commit=claimed)).outcome == Outcome.DROPPED


def test_the_turns_own_commit_of_other_files_shows_nothing(repository: Repository) -> None:
    repository.put("a.py", OTHER)
    repository.commit("Add baskets")
    repository.put("b.py", OTHER)
    commit = repository.commit("Add more baskets")
    assert judge(repository, stored=replace(WORK, own_commit=commit)).outcome == Outcome.DROPPED


@pytest.mark.parametrize("is_known", [True, False])
def test_work_that_was_squashed_under_the_same_subject_landed(repository: Repository, is_known: bool) -> None:
    repository.git("checkout", "-q", "-b", "feature")
    repository.put("a.py", CODE)
    own = repository.commit("Add the nine steps")
    repository.git("checkout", "-q", "main")
    if not is_known:
        repository.git("branch", "-D", "feature")
        repository.git("reflog", "expire", "--expire=now", "--all")
        repository.git("gc", "-q", "--prune=now")
    repository.put("a.py", OTHER)
    squash = repository.commit("Add the nine steps (#12)")
    stored = replace(WORK, own_commit=own[:7], own_subject="Add the nine steps")
    verdict = judge(repository, stored=stored)
    assert (verdict.outcome, verdict.commit) == (Outcome.LANDED, squash)


def test_one_file_of_the_work_that_a_commit_took_shows_that_it_landed(repository: Repository) -> None:
    repository.put("lint.yaml", "rules:\n")
    repository.commit("Add rules")
    repository.put("lint.yaml", "rules:\n  forbid the working directory: always\n  but not in tests: never\n")
    commit = repository.commit("Forbid it")
    verdict = judge(
        repository, edit(), edit(["forbid the working directory: always", "but not in tests: never"], "lint.yaml", 2)
    )
    assert (verdict.outcome, verdict.commit) == (Outcome.LANDED, commit)


@pytest.mark.parametrize(
    "text",
    [
        CODE.replace("return", "yield"),  # reformatted
        OTHER + LINES[0] + "\n",  # a line of the work
    ],
)
def test_work_of_which_something_is_there_was_not_dropped(repository: Repository, text: str) -> None:
    repository.put("a.py", text)
    repository.commit("Add baskets")
    assert judge(repository).outcome == Outcome.TRIED, "in no commit, but not dropped"


def test_of_one_or_two_lines_that_are_not_there_nothing_is_concluded(repository: Repository) -> None:
    repository.put("a.py", OTHER)
    repository.commit("Add baskets")
    assert judge(repository, edit(LINES[:2])).outcome == Outcome.TRIED
    assert judge(repository, edit(LINES[:3])).outcome == Outcome.DROPPED


# --- work that was taken back ----------------------------------------------------------------------------------------


def later(repository: Repository, text: str, subject: str = "Simplify the basket") -> Verdict:
    """Land `CODE`, commit another version of the file an hour later, and return what became of the work."""
    repository.put("a.py", "total = 0\n")
    repository.commit("Begin the basket")
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    repository.put("a.py", text)
    repository.commit(subject)
    return judge(repository, stored=replace(WORK, outcome=Outcome.LANDED))


def test_work_that_was_reworked_within_a_day_was_not_reverted(repository: Repository) -> None:
    assert later(repository, OTHER).outcome == Outcome.LANDED


def test_a_revert_that_removed_nothing_of_the_work_did_not_revert_it(repository: Repository) -> None:
    repository.put("a.py", OTHER)
    repository.commit("Begin the basket")
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    repository.put("a.py", functions("price"))
    repository.commit("Use classes")
    repository.put("b.py", OTHER)
    repository.commit('Revert "Add the steps"')
    assert judge(repository).outcome == Outcome.LANDED


def test_lines_that_were_removed_within_a_day_without_replacement_were_reverted(repository: Repository) -> None:
    verdict = later(repository, "\n".join(LINES[:2]) + "\ntotal = 0\n")
    assert (verdict.outcome, verdict.commit) == (Outcome.REVERTED, repository.git("rev-parse", "HEAD"))


def test_work_that_went_together_with_much_more_was_not_reverted(repository: Repository) -> None:
    more = "\n".join(f"def older_{number}(basket): return basket.older({number})" for number in range(30)) + "\n"
    repository.put("a.py", more)
    repository.commit("Begin the basket")
    repository.put("a.py", more + CODE)
    repository.commit("Add the steps")
    repository.git("rm", "-q", "a.py")
    repository.commit("Remove the basket")
    assert judge(repository, stored=replace(WORK, outcome=Outcome.LANDED)).outcome == Outcome.LANDED


def test_lines_that_were_there_before_do_not_name_a_commit(repository: Repository) -> None:
    repository.put("a.py", "\n".join(LINES[:4]) + "\n")
    repository.git("add", "-A")
    repository.git("commit", "-q", "--amend", "--no-edit", GIT_COMMITTER_DATE=f"@{NOW // 1000 - 9 * 86_400} +0000")
    repository.put("a.py", CODE)
    commit = repository.commit("Add the steps")
    verdict = judge(repository)
    assert (verdict.outcome, verdict.commit) == (Outcome.LANDED, commit)


def test_lines_that_moved_to_another_file_were_not_reverted(repository: Repository) -> None:
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    repository.put("a.py", "from steps import *\n")
    repository.put("steps.py", CODE)
    repository.commit("Give the steps a file")
    assert judge(repository, stored=replace(WORK, outcome=Outcome.LANDED)).outcome == Outcome.LANDED


# --- the commit that is named ----------------------------------------------------------------------------------------


def test_the_commit_that_brought_the_work_is_named_and_not_the_newest(repository: Repository) -> None:
    repository.put("a.py", CODE)
    commit = repository.commit("Add the steps")
    for number in range(3):
        repository.put("b.py", f"total = {number}\n")
        repository.commit(f"Version {number}")
    repository.put("a.py", CODE + OTHER)
    repository.commit("Add baskets")
    assert (judge(repository).outcome, judge(repository).commit) == (Outcome.LANDED, commit)
    repository.put("a.py", OTHER)
    repository.commit("Remove the steps", in_days=3)
    assert judge(repository).commit == commit


def test_of_merged_work_the_commit_of_the_branch_is_named(repository: Repository) -> None:
    repository.git("checkout", "-q", "-b", "feature")
    repository.put("a.py", CODE)
    commit = repository.commit("Add the steps")
    assert judge(repository).commit == commit
    repository.git("checkout", "-q", "main")
    repository.put("b.py", OTHER)
    repository.commit("Add baskets")
    repository.git("merge", "-q", "--no-edit", "feature")
    verdict = judge(repository, stored=replace(WORK, outcome=Outcome.COMMITTED, commit_id=commit))
    assert (verdict.outcome, verdict.commit) == (Outcome.LANDED, commit)


@pytest.mark.parametrize("in_days", [1, 40])
def test_of_squashed_work_the_commit_of_the_default_branch_is_named(repository: Repository, in_days: int) -> None:
    repository.git("checkout", "-q", "-b", "feature")
    repository.put("a.py", CODE)
    repository.commit("wip")
    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "--squash", "feature")
    squash = repository.commit("Steps (#4)", in_days=in_days)
    repository.put("b.py", OTHER)
    repository.commit("Add baskets", in_days=in_days)
    verdict = judge(repository)
    assert (verdict.outcome, verdict.commit) == (Outcome.LANDED, squash)


def test_a_commit_that_was_not_known_is_named_by_a_later_look(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.put("a.py", CODE)
    commit = repository.commit("Add the steps")
    ticks = iter([0.0, *[outcomes.HISTORY_SECONDS + 1] * 9])
    with monkeypatch.context() as patch:
        patch.setattr(outcomes, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
        verdict = judge(repository)
    assert (verdict.outcome, verdict.commit) == (Outcome.LANDED, ""), "there was no time to look for the commit"
    verdict = judge(repository, stored=replace(WORK, outcome=Outcome.LANDED))
    assert (verdict.outcome, verdict.commit) == (Outcome.LANDED, commit)


# --- what a memory says about it -------------------------------------------------------------------------------------


def shown(lab: Lab, title: str) -> tuple[str, str, str]:
    rows = [json.loads(line) for line in lab.mem("list", "--json").stdout.splitlines()]
    (item,) = [row for row in rows if title in row["title"]]
    return item["work_outcome"], item["freshness"], item["validity"]


def test_unmerged_work_is_not_gone_but_not_on_this_branch(lab: Lab) -> None:
    repository = Repository(lab.project)
    repository.git("checkout", "-q", "-b", "feature")
    work(lab, "a", "src/steps.py", functions("step"), "Added nine step functions that walk the basket.")
    repository.commit("Add the steps")
    lab.start()
    lab.wait_digested()
    lab.mem("review", "--project", lab.project.name)
    assert shown(lab, "step functions") == (Outcome.COMMITTED, Freshness.CURRENT, "current")
    repository.git("checkout", "-q", "main")
    done = lab.mem("review", "--project", lab.project.name)
    assert shown(lab, "step functions") == (Outcome.COMMITTED, Freshness.ELSEWHERE, "elsewhere")
    assert "step functions" not in done.stdout, "nothing to review: the work waits on its branch"
    assert "⟨not on this branch⟩" in lab.mem("search", "step functions").stdout
    asked = "How do the nine step functions walk the basket?"
    assert "step functions" not in lab.mem("context", "--project", lab.project.name, "--prompt", asked).stdout
    repository.git("merge", "-q", "feature")
    lab.mem("review", "--project", lab.project.name)
    assert shown(lab, "step functions") == (Outcome.LANDED, Freshness.CURRENT, "current")
