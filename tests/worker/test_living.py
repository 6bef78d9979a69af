"""Living memory, with real repositories: what became of the work, what is still true, and that nothing of a repository
is ever run."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import apsw
import pytest

from claude_mem.domain import anchors
from claude_mem.domain.anchors import Freshness, Outcome
from claude_mem.domain.memory_items import MemoryState
from claude_mem.inject import freshness, outcomes
from claude_mem.storage import sqlite
from claude_mem.storage.records import StoredAnchor, apply_looks
from claude_mem.storage.sqlite.memory.anchors import judge_freshness
from claude_mem.system import git_files, git_objects
from claude_mem.system.git_objects import GitObjects
from tests.support.lab import Lab
from tests.support.repositories import CODE, NOW, OTHER, Repository, functions, work
from tests.support.waiting import wait_for

PHRASES = (Path(sqlite.__file__).parent / "migrations" / "0030_phrases.sql").read_text()
MIGRATION = (Path(sqlite.__file__).parent / "migrations" / "0026_anchor_kinds.sql").read_text()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "shop")


def test_work_is_tried_then_committed_then_landed(repository: Repository) -> None:
    repository.git("checkout", "-q", "-b", "feature")
    repository.put("a.py", CODE)
    assert repository.outcome() == Outcome.TRIED
    repository.commit("Add the steps")
    assert repository.outcome() == Outcome.COMMITTED
    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "feature")
    assert repository.outcome() == Outcome.LANDED


@pytest.mark.parametrize("command", [("checkout", "-q", "--", "a.py"), ("stash", "-q"), ("reset", "-q", "--hard")])
def test_edits_that_git_discarded_were_dropped(repository: Repository, command: tuple[str, ...]) -> None:
    repository.put("a.py", OTHER)
    repository.commit("Add baskets")
    repository.put("a.py", OTHER + CODE)
    assert repository.outcome() == Outcome.TRIED
    repository.git(*command)
    if command[0] == "stash":
        repository.git("stash", "drop", "-q")
    assert repository.outcome() == Outcome.DROPPED


def test_dropped_work_that_is_taken_up_again_has_landed(repository: Repository) -> None:
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    assert repository.outcome(Outcome.DROPPED) == Outcome.LANDED


def test_of_old_work_all_lines_count_that_commits_of_its_time_had(repository: Repository) -> None:
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    repository.put("a.py", "\n".join(CODE.splitlines()[:3]) + "\n")
    repository.commit("Remove most steps")
    verdict = repository.judge(created_at=NOW - 2 * outcomes.DAY_MS, now=NOW)
    assert verdict is not None
    (item,) = verdict.anchors
    assert item.committed.bit_count() == 9, "not only the three that are left"
    assert judge_freshness([item]) == Freshness.OUTDATED


def test_a_reverted_commit_is_reverted(repository: Repository) -> None:
    repository.put("a.py", OTHER)
    repository.commit("Add baskets")
    repository.put("a.py", OTHER + CODE)
    repository.commit("Add the steps")
    assert repository.outcome() == Outcome.LANDED
    repository.git("revert", "--no-edit", "HEAD")
    assert repository.outcome(Outcome.LANDED) == Outcome.REVERTED


RESTORED = OTHER + "\n# the same as before\n"


def days(repository: Repository, *versions: str | None) -> Outcome | str:
    """Commit each version of a file two days after the one before, and return what became of `CODE` at the end."""
    for number, text in enumerate(versions):
        if text is None:
            repository.git("rm", "-q", "a.py")
        else:
            repository.put("a.py", text)
        repository.commit(f"Version {number}", in_days=2 * number)
    return repository.outcome(Outcome.LANDED)


@pytest.mark.parametrize(
    ("versions", "is_reverted"),
    [
        ((RESTORED, RESTORED + CODE, RESTORED), True),
        ((RESTORED, RESTORED + CODE, RESTORED + CODE + "total = 0\n", RESTORED), True),
        ((RESTORED, RESTORED + CODE, RESTORED + "total = 0\n"), False),  # something else took the place
        ((RESTORED, RESTORED + CODE, OTHER), False),  # it went together with more
        ((CODE, None), False),  # a file that is not needed any more
    ],
)
def test_files_that_are_exactly_as_before_were_reverted_whatever_the_commit_says(
    repository: Repository, versions: tuple[str | None, ...], is_reverted: bool
) -> None:
    assert (days(repository, *versions) == Outcome.REVERTED) == is_reverted


def test_the_commit_that_restored_the_files_is_named(repository: Repository) -> None:
    days(repository, RESTORED, RESTORED + CODE)
    repository.put("a.py", RESTORED)
    commit = repository.commit("Simplify the basket", in_days=9)
    repository.put("README", "A shop.\n")
    repository.commit("Shorten it", in_days=10)
    verdict = repository.judge(Outcome.LANDED)
    assert verdict is not None
    assert (verdict.outcome, verdict.commit) == (Outcome.REVERTED, commit)


def test_committed_work_that_was_replaced_later_is_not_called_dropped(repository: Repository) -> None:
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    repository.put("a.py", OTHER)
    repository.commit("Use classes")
    assert repository.outcome() in (Outcome.COMMITTED, Outcome.LANDED)


def test_work_in_a_renamed_folder_has_landed(repository: Repository) -> None:
    repository.put("old/a.py", CODE)
    repository.commit("Add the steps")
    repository.git("mv", "old", "new")
    repository.commit("Rename the folder")
    assert repository.outcome(path="old/a.py") == Outcome.LANDED


def test_history_that_was_rewritten_is_read_as_it_is_now(repository: Repository) -> None:
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    repository.git("commit", "-q", "--amend", "-m", "Add all steps")
    repository.git("gc", "-q", "--prune=now")
    assert repository.outcome() == Outcome.LANDED


# --- git as a tool ---------------------------------------------------------------------------------------------------


def test_nothing_that_a_repository_names_is_run(repository: Repository, tmp_path: Path) -> None:
    trap, mark = tmp_path / "trap.sh", tmp_path / "ran"
    trap.write_text(f"#!/bin/sh\necho ran >> {mark}\n")
    trap.chmod(trap.stat().st_mode | stat.S_IXUSR)
    repository.put("a.py", CODE)
    repository.put(".gitattributes", "* filter=trap diff=trap\n")
    repository.commit("Add the steps")
    for name in ("core.fsmonitor", "filter.trap.clean", "filter.trap.smudge", "diff.trap.command", "diff.trap.textconv",
                 "core.sshCommand", "core.pager", "core.editor", "gpg.program", "uploadpack.packObjectsHook",
                 "core.alternateRefsCommand", "alias.cat-file", "alias.rev-list"):  # fmt: skip
        repository.git("config", name, f"!{trap}" if name.startswith("alias") else str(trap))
    repository.git("config", "log.showSignature", "true")
    hooks = repository.root / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"):
        (hooks / name).write_text(trap.read_text())
        (hooks / name).chmod(0o755)
    mark.unlink(missing_ok=True)  # git itself ran some of them while the trap was set up
    assert repository.outcome() == Outcome.LANDED
    git = GitObjects(str(repository.root))
    assert git.list_commits("--all", most=5)
    assert not mark.exists()


def test_missing_objects_of_a_partial_clone_are_not_fetched(repository: Repository, tmp_path: Path) -> None:
    trap, mark = tmp_path / "upload", tmp_path / "ran"
    trap.write_text(f"#!/bin/sh\necho ran > {mark}\n")
    trap.chmod(0o755)
    repository.put("a.py", CODE)
    repository.commit("Add the steps")
    blob = repository.git("rev-parse", "HEAD:a.py")
    (repository.root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for name, value in {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": f"ext::{trap}",
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": str(trap),
        "protocol.ext.allow": "always",
        "protocol.allow": "always",
    }.items():
        repository.git("config", name, value)
    (commit, *_) = GitObjects(str(repository.root)).resolve("HEAD")
    assert commit
    assert GitObjects(str(repository.root)).read_blobs([f"{commit}:a.py"]) == {}
    assert not mark.exists()


@pytest.mark.parametrize("script", ["sleep 60", "exit 3", "echo nonsense; echo more nonsense", "yes"])
def test_a_git_that_hangs_fails_or_babbles_says_nothing(
    repository: Repository, tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\nexec 2>&1\n{'exec ' if script[0] in 'sy' else ''}{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(git_objects, "TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(git_objects, "MAX_OUTPUT_BYTES", 1 << 16)
    git = GitObjects(str(repository.root), str(program))
    assert git.resolve("HEAD") == [""]
    assert git.default_branch() == ""
    assert git.read_blobs(["HEAD:README"]) == {}
    assert git.list_commits("HEAD", most=3) == []


def test_without_git_or_a_repository_only_files_are_looked_at(tmp_path: Path) -> None:
    assert GitObjects(str(tmp_path)).head() == ("", "")
    assert GitObjects(str(tmp_path), "").list_paths("HEAD") == []


# --- the story of a week ---------------------------------------------------------------------------------------------


def adopt(lab: Lab) -> Repository:
    """The repository of a lab's project."""
    return Repository(lab.project)


def start(lab: Lab, session: str) -> str:
    answer = lab.hook("SessionStart", session_id=session, source="startup")
    return str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))


PRICES = CODE.replace("step", "price")
TAXES = CODE.replace("step", "tax")
PRICES_SAID = "Prices are now computed by nine price functions in the basket module, one for each customer group."
TAXES_SAID = "Taxes are now looked up in a table of nine tax functions, so that a new country needs one more line."
CLASS_SAID = "Replaced the nine price functions with basket classes, because groups differ in more than the price."


def test_a_session_is_given_what_holds_and_not_what_does_not(lab: Lab) -> None:
    repository = adopt(lab)
    work(lab, "a", "src/prices.py", PRICES, PRICES_SAID)
    work(lab, "b", "src/taxes.py", TAXES, TAXES_SAID)
    lab.start()
    lab.wait_digested()
    repository.commit("Add prices and taxes")
    text = start(lab, "c")
    assert "price functions" in text
    assert "tax functions" in text

    repository.git("mv", "src", "lib")
    repository.commit("Rename the folder")
    (lab.project / "lib" / "prices.py").write_text(OTHER)  # somebody else replaces it, outside of any session
    repository.commit("Use classes")
    work(lab, "d", "README", "A shop with taxes and totals, for nine countries and their currencies.\n", "Reworded it.")
    lab.wait_digested()
    text = start(lab, "e")
    assert "tax functions" in text, "its lines have only moved"
    assert "price functions" not in text, "its lines are gone"
    lab.mem("stop")
    states = dict(lab.rows("select o.title, u.outcome from outcomes u join observations o on o.id = u.observation_id"))
    assert "landed" in {outcome for title, outcome in states.items() if "tax" in title.lower()}


def test_the_branch_on_which_a_session_worked_is_known(lab: Lab) -> None:
    repository = adopt(lab)
    for branch, session, path, code in (("ann/prices", "a", "src/p.py", PRICES), ("ann/taxes", "b", "src/t.py", TAXES)):
        repository.git("checkout", "-q", "-b", branch)
        work(lab, session, path, code, PRICES_SAID if session == "a" else TAXES_SAID)
        repository.commit(f"Work on {branch}")
        lab.start()
        lab.wait_digested()
        wait_for(lambda: not lab.client().get("/api/index")["busy"])
        lab.mem("stop")
    stored = dict(lab.rows("select content_session_id, branches from sdk_sessions"))
    assert "ann/prices" in stored["a"]
    assert "ann/taxes" in stored["b"]


def test_a_later_edit_supersedes_the_memory_of_the_lines_it_removed(lab: Lab) -> None:
    work(lab, "a", "src/prices.py", PRICES, PRICES_SAID)
    work(lab, "b", "src/prices.py", OTHER, CLASS_SAID)
    lab.start()
    lab.wait_digested()
    text = start(lab, "c")
    assert "basket classes" in text
    assert "one for each customer group" not in text
    lab.mem("stop")
    ((old, successor),) = lab.rows("select id, superseded_by from observations where superseded_by is not null")
    assert successor > old


def test_a_memory_is_valid_again_when_the_edit_that_replaced_it_was_discarded(lab: Lab) -> None:
    repository = adopt(lab)
    work(lab, "a", "src/prices.py", PRICES, PRICES_SAID)
    repository.commit("Add prices")
    work(lab, "b", "src/prices.py", OTHER, CLASS_SAID)
    lab.start()
    lab.wait_digested()
    repository.git("checkout", "-q", "--", "src/prices.py")
    work(lab, "c", "README", "A shop with taxes and totals, for nine countries and their currencies.\n", "Reworded it.")
    lab.wait_digested()
    text = start(lab, "d")
    assert "one for each customer group" in text
    assert "basket classes" not in text
    lab.mem("stop")
    assert lab.rows("select id from observations where superseded_by is not null") == []


def test_an_edit_that_still_names_what_a_memory_names_does_not_replace_it(lab: Lab) -> None:
    work(lab, "a", "src/prices.py", PRICES, f"{PRICES_SAID} See `compute_total`.")
    work(lab, "b", "src/prices.py", OTHER, CLASS_SAID)
    lab.start()
    lab.wait_digested()
    lab.mem("stop")
    assert lab.rows("select id from observations where superseded_by is not null") == []


def links(lab: Lab, before: str, after: str, said: str) -> list[Any]:
    """Return what a later session's edit of a file superseded."""
    work(lab, "a", "src/prices.py", before, PRICES_SAID)
    work(lab, "b", "src/prices.py", after, said)
    lab.start()
    lab.wait_digested()
    lab.mem("stop")
    return list(lab.rows("select id from observations where superseded_by is not null"))


def test_an_edit_that_only_removes_lines_replaces_nothing(lab: Lab) -> None:
    one = "def only(basket): return basket.total(1, 2)\n"
    assert links(lab, PRICES, one, "Kept one function and deleted the other nine, nothing else calls them.") == []


def test_a_forgotten_observation_leaves_no_anchor(lab: Lab) -> None:
    work(lab, "a", "src/prices.py", PRICES, PRICES_SAID)
    client = lab.start()
    lab.wait_digested()
    (item,) = client.get("/api/observations")["items"]
    lab.mem("forget", str(item["id"]), "--yes")
    lab.mem("stop")
    assert lab.rows("select * from anchors") == []
    assert lab.rows("select * from outcomes") == []


def test_undoing_a_deletion_brings_the_anchors_back(lab: Lab) -> None:
    work(lab, "a", "src/prices.py", PRICES, PRICES_SAID)
    client = lab.start()
    lab.wait_digested()
    (item,) = client.get("/api/observations")["items"]
    lab.mem("forget", str(item["id"]), "--yes")
    lab.mem("forget", "--undo", str(item["id"]))
    wait_for(lambda: client.get(f"/api/observation/{item['id']}")["work_outcome"])
    lab.mem("stop")
    ((kind, size),) = lab.rows("select kind, length(lines) / 8 from anchors")
    assert (kind, size) == ("edit", 9)


def test_a_deleted_session_that_is_restored_has_its_anchors_again(lab: Lab) -> None:
    work(lab, "a", "src/prices.py", PRICES, PRICES_SAID)
    client = lab.start()
    lab.wait_digested()
    lab.mem("forget", "--session", "a", "--yes")
    assert client.get("/api/observations")["items"] == []
    lab.mem("forget", "--undo", "F1")
    wait_for(lambda: [item for item in client.get("/api/observations")["items"] if explained(client, item)])
    lab.mem("stop")
    assert lab.rows("select length(lines) / 8 from anchors") == [(9,)]


def explained(client: Any, item: dict[str, Any]) -> str:
    """What became of an observation's work; "" if it has no anchors."""
    return str(client.get(f"/api/observation/{item['id']}")["work_outcome"])


def test_records_from_before_there_were_anchors_get_theirs(lab: Lab) -> None:
    work(lab, "a", "src/prices.py", PRICES, PRICES_SAID)
    client = lab.start()
    lab.wait_digested()
    (item,) = client.get("/api/observations")["items"]
    lab.mem("edit", str(item["id"]), "--title", "Prices are computed by nine functions")
    lab.mem("stop")
    with apsw.Connection(str(lab.data / "claude-mem.db")) as conn:  # as an upgrade leaves it
        conn.execute("delete from anchors; delete from outcomes")
        (job,) = [part for part in MIGRATION.split(";") if "insert or ignore into jobs" in part]
        conn.execute(job)
    client = lab.start()
    wait_for(lambda: explained(client, item))
    lab.mem("stop")
    assert lab.rows("select length(lines) / 8 from anchors") == [(9,)]


def test_code_that_changed_in_part_is_said_to_have(lab: Lab) -> None:
    work(lab, "a", "src/prices.py", PRICES, PRICES_SAID)
    lab.start()
    lab.wait_digested()
    half = PRICES.splitlines()[:6] + OTHER.splitlines()[:3]
    (lab.project / "src" / "prices.py").write_text("\n".join(half) + "\n")
    assert "its code has changed in part since" in start(lab, "b")


def test_code_that_was_reworked_is_said_to_be(lab: Lab) -> None:
    work(lab, "a", "src/prices.py", PRICES, PRICES_SAID)
    work(lab, "b", "README", "A shop with taxes and totals, for nine countries and their currencies.\n", "Reworded it.")
    client = lab.start()
    lab.wait_digested()
    (lab.project / "src" / "prices.py").write_text(PRICES.replace("(basket)", "(basket, customer)"))
    client.post("/api/review", {"project": "shop"})
    assert "price functions" not in start(lab, "c"), "nobody asked"
    prompt = "How many price functions are there in the basket module, and for which customer groups?"
    answer = lab.hook("UserPromptSubmit", session_id="c", prompt=prompt)
    assert "its code was reworked since" in json.dumps(answer)
    (item,) = client.get("/api/review", validity="changed")["items"]
    assert (item["validity"], item["freshness"]) == ("reworked", "reworked")
    assert client.get("/api/review")["items"] == [], "it is not known to be outdated"
    assert "its code was reworked since" in lab.mem("show", str(item["id"])).stdout


@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize("folder", [".", "packages"])
def test_a_folder_that_was_renamed_a_moment_ago_is_not_gone(repository: Repository, version: str, folder: str) -> None:
    root = repository.root / folder
    repository.put(f"{folder}/src/prices.py", CODE)
    repository.commit("Add prices")
    item = StoredAnchor(1, 1, "src/prices.py", "edit", anchors.choose_lines(CODE.splitlines()))

    def look(item: StoredAnchor) -> StoredAnchor:
        return apply_looks([item], freshness.look_at_start(str(root), [item], seconds=60))[0]

    item = look(item)
    assert judge_freshness([item]) == Freshness.CURRENT
    (root / "later.py").write_text("total = 0\n")
    if version == "3":
        repository.git("add", "-N", ".")  # an entry with more flags
    repository.git("update-index", "--index-version", version)
    repository.git("mv", f"{folder}/src", f"{folder}/lib")
    item = look(item)
    assert (judge_freshness([item]), item.moved_to) == (Freshness.MOVED, "lib/prices.py")
    repository.git("rm", "-rqf", f"{folder}/lib")
    assert judge_freshness([look(item)]) == Freshness.GONE


@pytest.mark.parametrize(
    "index", [b"", b"DIRC", b"DIRC" + bytes(99), b"DIRC\0\0\0\4\0\0\0\2" + b"\xff" * 200, b"x" * 999]
)
def test_an_index_that_is_not_one_lists_nothing_false(repository: Repository, index: bytes) -> None:
    (repository.root / ".git" / "index").write_bytes(index)
    tree = git_files.find_work_tree(repository.root.resolve())
    assert tree is not None
    assert git_files.list_index(tree) == []


def test_anchors_from_before_there_were_phrases_get_theirs(lab: Lab) -> None:
    work(lab, "a", "src/prices.py", PRICES, PRICES_SAID)
    lab.start()
    lab.wait_digested()
    lab.mem("stop")
    with apsw.Connection(str(lab.data / "claude-mem.db")) as conn:
        conn.execute("update anchors set phrases = x''; delete from jobs where kind = 'anchor'")
        (job,) = [part for part in PHRASES.split(";") if "insert or ignore into jobs" in part]
        conn.execute(job)
    (lab.project / "src" / "prices.py").write_text(PRICES.replace("(basket)", "(basket, customer)"))
    client = lab.start()

    def is_reworked() -> bool:
        client.post("/api/review", {"project": "shop"})
        return bool(client.get("/api/review", validity="reworked")["items"])

    wait_for(is_reworked)


def run_command(lab: Lab, session: str, command: str, output: str, *, failed: bool = False) -> None:
    """A session that runs one command."""
    who = {"session_id": session, "prompt_id": f"{session}-1"}
    lab.spool("UserPromptSubmit", prompt=f"Please run {command}", **who)
    call = {"tool_name": "Bash", "tool_input": {"command": command}}
    if failed:
        lab.spool("PostToolUseFailure", **call, error=output, **who)
    else:
        lab.spool("PostToolUse", **call, tool_response={"stdout": output, "stderr": ""}, **who)
    lab.spool("Stop", last_assistant_message="I ran it.", **who)
    lab.wait_digested()


def test_a_memory_that_a_command_fails_holds_until_the_command_works(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab.project)
    client = lab.start()
    lab.mem("save", "`make dist` does not work here")
    lab.mem("save", "`make docs` works again")
    (docs, dist) = (item["id"] for item in client.get("/api/observations")["items"])
    assert "does not work" in start(lab, "a")
    run_command(lab, "b", "make dist", "wheel written")
    run_command(lab, "b2", "make docs", "make: *** No rule to make target 'docs'.  Stop.", failed=True)
    wait_for(lambda: client.get(f"/api/observation/{dist}")["freshness"] == "outdated")
    wait_for(lambda: client.get(f"/api/observation/{docs}")["freshness"] == "outdated")
    text = start(lab, "c")
    assert "does not work" not in text
    assert "works again" not in text
    run_command(lab, "d", "make dist", "make: *** No rule to make target 'dist'.  Stop.", failed=True)
    wait_for(lambda: client.get(f"/api/observation/{dist}")["freshness"] == "current")
    assert "does not work" in start(lab, "e")


def test_a_memory_with_another_title_is_not_about_the_command_any_more(lab: Lab) -> None:
    client = lab.start()
    lab.mem("save", "`make dist` does not work here")
    (item,) = client.get("/api/observations")["items"]
    lab.mem("edit", str(item["id"]), "--title", "Wheels are made by the CI only")
    lab.mem("stop")
    assert lab.rows("select path from anchors") == []


def test_work_whose_last_check_failed_is_never_shown_as_done(lab: Lab) -> None:
    repository = adopt(lab)
    target = lab.project / "src" / "prices.py"
    target.parent.mkdir()
    target.write_text(PRICES)
    who = {"session_id": "a", "prompt_id": "a-1"}
    lab.spool("UserPromptSubmit", prompt="Please compute prices by functions", **who)
    written = {"tool_name": "Write", "tool_input": {"file_path": str(target), "content": PRICES}}
    lab.spool("PostToolUse", **written, tool_response={"type": "create"}, **who)
    check = {"tool_name": "Bash", "tool_input": {"command": "pytest"}}
    lab.spool("PostToolUseFailure", **check, error="FAILED test_prices.py::test_total\n1 failed in 0.1s", **who)
    lab.spool("Stop", last_assistant_message=PRICES_SAID, **who)
    client = lab.start()
    lab.wait_digested()
    (item,) = [one for one in client.get("/api/observations")["items"] if "price" in one["title"]]
    assert client.get(f"/api/observation/{item['id']}")["work_outcome"] == "failed"
    (line,) = [line for line in start(lab, "b").splitlines() if line.startswith(f"{item['id']} ")]
    assert "failed" in line
    assert not MemoryState(outcome=Outcome.FAILED).holds, "not told at a prompt"
    repository.commit("Add prices")
    work(lab, "c", "README", "A shop with taxes and totals, for nine countries and their currencies.\n", "Reworded it.")
    lab.wait_digested()
    wait_for(lambda: explained(client, item) == "landed", "it was committed in the end")


def test_a_solution_whose_code_is_gone_is_not_offered_at_the_next_failure(lab: Lab) -> None:
    adopt(lab)
    target = lab.project / "coil.py"
    error = "CoilError: coil 7 is magnetised"
    failing = {"tool_name": "Bash", "tool_input": {"command": "sh jump.sh"}, "error": error}
    lab.start()
    for session in ("b", "d"):
        start(lab, session)
    who = {"session_id": "a", "prompt_id": "a-1"}
    lab.spool("UserPromptSubmit", prompt="Please make the jump work", **who)
    lab.spool("PostToolUseFailure", **failing, **who)
    target.write_text(PRICES)
    written = {"tool_name": "Write", "tool_input": {"file_path": str(target), "content": PRICES}}
    lab.spool("PostToolUse", **written, tool_response={"type": "create"}, **who)
    passing = {"tool_name": "Bash", "tool_input": {"command": "sh jump.sh"}}
    lab.spool("PostToolUse", **passing, tool_response={"stdout": "jumped"}, **who)
    lab.spool("Stop", last_assistant_message="The coil is degaussed before each jump now.", **who)
    lab.wait_digested()
    assert "this error was met before" in str(lab.hook("PostToolUseFailure", **{**failing, "session_id": "b"}))
    target.write_text(OTHER)
    work(
        lab,
        "c",
        "README",
        "A ship with coils, for nine officers and their machines of tea and coffee.\n",
        "Reworded it.",
    )
    lab.wait_digested()
    assert "this error was met before" not in str(lab.hook("PostToolUseFailure", **{**failing, "session_id": "d"}))


def test_the_preview_of_a_prompt_is_what_the_hook_injects(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = adopt(lab)
    for name in ("price", "tax", "fee"):
        said = f"Added nine {name} functions that the basket totals use, one for each customer group."
        work(lab, name, f"src/{name}s.py", functions(name), said)
    repository.commit("Add the totals")
    lab.start()
    lab.wait_digested()
    (lab.project / "src" / "taxs.py").unlink()
    repository.commit("Remove the taxes", in_days=3)
    work(lab, "last", "README", "A shop of prices and fees, for nine customer groups and baskets.\n", "Reworded it.")
    lab.wait_digested()
    asked = "Why do the tax functions and the fee functions of the basket differ for customer groups?"
    answer = lab.hook("UserPromptSubmit", session_id="new", prompt=asked)
    told = answer["hookSpecificOutput"]["additionalContext"].splitlines()
    monkeypatch.chdir(lab.project)
    by_folder = lab.mem("context", "--prompt", asked).stdout.splitlines()
    by_name = lab.mem("context", "--project", lab.project.name, "--prompt", asked).stdout.splitlines()
    assert any(line.startswith("Files this may concern: ") for line in told)
    assert [line for line in told if line not in by_folder] == []
    assert by_folder == by_name
    assert "taxs.py" not in "".join(by_folder), "the file is gone"
    assert "nine tax functions" not in "".join(by_folder), "and what was said of it does not hold"


# --- from a line to its reason ---------------------------------------------------------------------------------------


@pytest.fixture
def asked(lab: Lab) -> Lab:
    """A worker that knows who wrote two files of a repository."""
    Repository(lab.project)
    work(lab, "a", "src/prices.py", PRICES, PRICES_SAID)
    work(lab, "b", "src/taxes.py", TAXES + "\n\n" + "x = 1\n" * 30, TAXES_SAID)
    lab.start()
    lab.wait_digested()
    return lab


def why(lab: Lab, place: str) -> dict[str, Any]:
    done = lab.mem("why", str(lab.project / place), "--json")
    return dict(json.loads(done.stdout))


def test_a_line_leads_to_the_work_and_the_prompt_that_wrote_it(asked: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(asked.project)
    result = why(asked, "src/prices.py:3")
    assert (result["match"], result["file"]) == ("line", "src/prices.py")
    (item,) = result["items"]
    assert "price functions" in item["title"]
    assert item["prompt"].startswith("Please change src/prices.py")
    assert (item["freshness"], item["work_outcome"]) == ("current", "tried")
    text = asked.mem("why", "src/prices.py:3").stdout
    assert "Written by:" in text
    assert "its code still stands" in text
    assert "its code still stands" in asked.mem("show", str(item["id"])).stdout


def test_a_line_without_an_anchor_is_explained_by_its_neighbours_or_its_file(
    asked: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(asked.project)
    assert why(asked, "src/taxes.py:11")["match"] == "near"
    assert why(asked, "src/taxes.py:40")["match"] == "file"
    assert why(asked, "src/taxes.py")["items"] != []
    assert asked.mem("why", "README", ok=False).returncode == 1


@pytest.mark.parametrize("place", ["src/prices.py:0", "src/prices.py:-1", "src/prices.py:abc", "src/prices.py:3:0:x"])
def test_a_line_that_is_no_number_is_a_usage_error(asked: Lab, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(asked.project)
    done = asked.mem("why", place, ok=False)
    assert done.returncode == 2
    assert "is not the number of a line" in done.stderr


@pytest.mark.parametrize("place", ["src/prices.py:3:5", "src/prices.py:3:5:", "src/prices.py:3:"])
def test_a_place_is_understood_as_grep_prints_it(asked: Lab, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(asked.project)
    assert (why(asked, place)["line"], why(asked, place)["match"]) == (3, "line")


def test_a_colon_may_be_part_of_a_name(asked: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(asked.project)
    work(asked, "c", "src/a:7", OTHER, "Wrote nine basket classes to a file whose name has a colon.")
    asked.wait_digested()
    assert (why(asked, "src/a:7")["file"], why(asked, "src/a:7")["line"]) == ("src/a:7", 0)
    assert why(asked, "src/a:7:2")["match"] == "line"


def test_of_many_memories_of_a_file_a_few_are_shown_in_full(asked: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(asked.project)
    for number in range(11):
        text = "".join(f"def fee_{number}_{part}(basket): return basket.fee({part})\n" for part in range(9))
        path = asked.project / "src" / "fees.py"
        text = (path.read_text() if path.exists() else "") + text
        work(asked, f"f{number}", "src/fees.py", text, f"Added nine fee functions of group {number} to the module.")
    asked.wait_digested()
    result = why(asked, "src/fees.py")
    assert (result["total"], len(result["items"])) == (11, 10)
    text = asked.mem("why", "src/fees.py").stdout
    assert text.count(" ❯ ") == 3
    assert "8 more" in text
    assert "and 1 older" in text


@pytest.mark.parametrize("place", ["src/prices.py:999", "src/missing.py:1", "/etc/passwd:1", "../outside.py"])
def test_a_place_that_does_not_exist_is_a_clear_error(asked: Lab, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(asked.project)
    done = asked.mem("why", place, ok=False)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "root:" not in done.stdout
