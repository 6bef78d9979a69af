"""The moments at which memory speaks by itself, through the real hook: rarely, briefly, once, and never in the way."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apsw
import pytest

from claude_mem.domain.text import estimate_tokens
from claude_mem.inject import triggers
from claude_mem.privacy import tags
from tests.support.lab import LAUNCH, Lab
from tests.support.waiting import wait_for

QUIET = {"continue": True, "suppressOutput": True}


def context(answer: Any) -> str:
    return str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))


def work(lab: Lab, session: str = "a") -> None:
    """A session that mends the rounding of baskets, with an error on the way."""
    who = {"session_id": session, "prompt_id": f"{session}-1"}
    path = str(lab.project / "src" / "basket.py")
    lab.spool("UserPromptSubmit", prompt="The basket total is off by one cent, please fix the rounding", **who)
    failed = {"tool_name": "Bash", "tool_input": {"command": "pytest -q"}}
    lab.spool(
        "PostToolUseFailure", **failed, error="E  decimal.DecimalError: quantize result has too many digits", **who
    )
    edit = {"file_path": path, "old_string": "round(x)", "new_string": "def total(lines): return quantize(sum(lines))"}
    lab.spool("PostToolUse", tool_name="Edit", tool_input=edit, tool_response={}, **who)
    lab.spool("PostToolUse", **failed, tool_response={"stdout": "4 passed"}, **who)
    words = "Basket totals are rounded once, at the very end, because rounding each line added up to a cent too much."
    lab.spool("Stop", last_assistant_message=words, **who)


@pytest.fixture
def known(lab: Lab) -> Lab:
    """A worker that knows one piece of work."""
    (lab.project / "src").mkdir()
    (lab.project / "src" / "basket.py").write_text("def total(): ...\n")
    work(lab)
    client = lab.start()
    lab.wait_digested()
    wait_for(lambda: not client.get("/api/index")["busy"])  # its files are told from the index
    return lab


def start(lab: Lab, session: str) -> str:
    return context(lab.hook("SessionStart", session_id=session, source="startup"))


def prompt(lab: Lab, session: str, text: str, *, program: Any = None) -> Any:
    given = {"session_id": session, "prompt": text, "prompt_id": f"{session}-{time.time_ns()}"}
    return lab.hook("UserPromptSubmit", program=program, **given)


ASKED = "Why is the rounding of the basket total done at the end?"


# --- at a prompt -----------------------------------------------------------------------------------------------------


def test_a_prompt_about_something_else_is_met_with_silence(known: Lab) -> None:
    assert prompt(known, "fresh", "Something about flowers in the garden of my neighbour, please") == QUIET


def test_what_the_start_has_told_is_not_told_again_at_a_prompt(known: Lab) -> None:
    assert "rounded once" in start(known, "b")
    text = context(prompt(known, "b", ASKED))
    assert "rounded once" not in text
    assert "src/basket.py" in text, "but where the work will probably be is news"
    assert prompt(known, "b", ASKED) == QUIET, "and that too is said once"


def test_what_came_after_the_start_is_told_at_a_prompt_once(known: Lab) -> None:
    start(known, "b")
    who = {"session_id": "c", "prompt_id": "c-1"}
    known.spool("UserPromptSubmit", prompt="Make vouchers expire after a year", **who)
    edit = {"file_path": str(known.project / "src" / "voucher.py"), "old_string": "a", "new_string": "b"}
    known.spool("PostToolUse", tool_name="Edit", tool_input=edit, tool_response={}, **who)
    known.spool(
        "Stop",
        last_assistant_message="Vouchers expire one year after they were issued; expired ones are refused.",
        **who,
    )
    known.wait_digested()
    text = context(prompt(known, "b", "What happens when a voucher is older than one year, is it refused?"))
    assert "ouchers expire" in text
    assert tags.strip_private(text) == "", "it is fenced, so our own capture cuts it out again"
    assert estimate_tokens(text) <= 600
    assert "Vouchers expire" not in context(prompt(known, "b", "And when is an expired voucher refused by the shop?"))


@pytest.mark.parametrize(
    "text", ["/compact rounding basket total", "fix it", "# basket rounding total note", "go on", ""]
)
def test_commands_and_a_few_words_are_met_with_silence(known: Lab, text: str) -> None:
    assert prompt(known, "b", text) == QUIET


def test_a_session_is_not_told_what_it_did_itself(known: Lab) -> None:
    assert "rounded" not in context(prompt(known, "a", ASKED))


def test_a_project_that_is_switched_off_is_met_with_silence(known: Lab) -> None:
    (known.project / ".claude-mem.toml").write_text("enabled = false\n")
    assert prompt(known, "b", ASKED) == QUIET


def test_a_hung_worker_holds_no_prompt_up(known: Lab) -> None:
    pid = known.status()["pid"]
    os.kill(pid, 19)
    try:
        assert prompt(known, "b", ASKED, program=LAUNCH) == QUIET
    finally:
        os.kill(pid, 18)
    known.wait_digested()
    assert known.client().get("/api/prompts")["items"][0]["text"] == ASKED, "and it was captured all the same"


def test_the_summary_that_the_start_told_is_not_told_again(known: Lab) -> None:
    assert "### Last session" in start(known, "b")
    assert "S1 " not in context(prompt(known, "b", ASKED))


def test_what_came_from_outside_is_found_but_not_told_unasked(known: Lab) -> None:
    start(known, "b")
    work(known, "c")
    known.wait_digested()
    known.mem("stop")
    conn = apsw.Connection(str(known.data / "claude-mem.db"))
    conn.execute("update observations set trust = 'web'")
    conn.close()
    known.start()
    text = context(prompt(known, "b", ASKED))
    assert not [line for line in text.splitlines() if line[:1].isdigit()], "no observation is told"
    assert known.client().get("/api/search", query=ASKED)["items"]


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("/home/ann/shop/src/basket.py has a wrong total, why?", True),
        ("# Task\nThe basket total is wrong again", True),
        ("バスケットの合計が間違っています。直してください。", True),
        ("# remember the basket total", False),
        ("/clear the basket of all totals", False),
        ("!ls -la src basket total", False),
        ("yes please do", False),
    ],
)
def test_what_is_a_question(text: str, asks: bool) -> None:
    assert triggers.is_searchable(text) is asks


def test_a_pasted_blob_holds_nobody_up(known: Lab) -> None:
    prompt(known, "b", "Why does this basket total fail? " + "QUJD" * 20_000)
    assert known.client().get("/api/health")["status"] == "ok"


# --- before a file ---------------------------------------------------------------------------------------------------


def touch(lab: Lab, session: str, tool: str = "Read", path: str = "src/basket.py") -> str:
    given = {"file_path": str(lab.project / path)}
    return context(lab.hook("PreToolUse", session_id=session, tool_name=tool, tool_input=given))


@pytest.mark.parametrize("tool", ["Read", "Edit", "Write"])
def test_what_is_known_about_a_file_is_told_once_a_session(known: Lab, tool: str) -> None:
    text = touch(known, "unstarted", tool)
    # What the start tells counts as told, even if no worker was there to tell it.
    assert text == ""
    work(known, "z")
    known.wait_digested()
    start_text = start(known, "b")
    assert "basket" in start_text
    assert touch(known, "b", tool) == "", "the start has told it"


def test_a_file_that_the_start_did_not_tell_of_is_spoken_of(known: Lab) -> None:
    start(known, "b")
    work(known, "c")
    known.wait_digested()
    text = touch(known, "b")
    assert "known about src/basket.py" in text
    assert "rounded once" in text
    assert touch(known, "b") == ""
    assert estimate_tokens(text) <= 250


def test_a_file_that_never_had_the_one_line_is_not_said_to_have_changed(known: Lab) -> None:
    start(known, "b")
    work(known, "c")
    known.wait_digested()
    text = touch(known, "b")
    assert "rounded once" in text
    assert "changed" not in text, "of a single line nothing is concluded"


def test_a_newer_file_with_the_same_lines_is_not_said_to_have_changed(known: Lab) -> None:
    path = known.project / "src" / "basket.py"
    path.write_text("# rounding\n    def total(lines): return quantize(sum(lines))\n")
    start(known, "b")
    work(known, "c")
    known.wait_digested()
    later = time.time() + 3600
    os.utime(path, (later, later))
    text = touch(known, "b")
    assert "rounded once" in text
    assert "changed" not in text


def test_two_reads_at_once_are_told_once(known: Lab) -> None:
    start(known, "b")
    work(known, "c")
    known.wait_digested()
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda _: touch(known, "b"), range(4)))
    assert sum(bool(text) for text in said) == 1


def test_a_file_is_known_in_a_worktree_too_and_through_a_link(known: Lab) -> None:
    link = known.folder / "linked"
    link.symlink_to(known.project)
    start(known, "b")
    work(known, "c")
    known.wait_digested()
    given = {"file_path": str(link / "src" / "basket.py")}
    assert "known about src/basket.py" in context(
        known.hook("PreToolUse", session_id="b", tool_name="Read", tool_input=given)
    )


@pytest.mark.parametrize("path", ["src/other.py", "/etc/passwd", "../outside.py", ""])
def test_an_unknown_file_is_met_with_silence(known: Lab, path: str) -> None:
    assert touch(known, "b", path=path) == ""


def test_asking_about_a_file_keeps_nothing(known: Lab) -> None:
    before = known.status()["captured"]
    touch(known, "b")
    assert known.status()["captured"] == before


def test_after_a_compaction_it_may_be_told_again(known: Lab) -> None:
    start(known, "b")
    work(known, "c")
    known.wait_digested()
    assert touch(known, "b")
    known.hook("SessionStart", session_id="b", source="resume")
    assert touch(known, "b") == "", "a resumed session has its conversation"
    known.hook("SessionStart", session_id="b", source="compact")
    known.mem("stop")
    told = {what for (what,) in known.rows("select item from injected_items where content_session_id = 'b'")}
    assert "known:src/basket.py" not in told
    assert "start" in told


# --- after a failure -------------------------------------------------------------------------------------------------


def test_the_same_error_brings_up_what_solved_it(known: Lab) -> None:
    start(known, "b")
    work(known, "c")
    known.wait_digested()
    failed = {"session_id": "b", "tool_name": "Bash", "tool_input": {"command": "pytest tests"}, "tool_use_id": "t1"}
    error = "Exit code 1\nE  decimal.DecimalError: quantize result has too many digits"
    text = context(known.hook("PostToolUseFailure", **failed, error=error))
    assert "this error was met before" in text
    assert "rounded once, at the very end" in text
    assert context(known.hook("PostToolUseFailure", **{**failed, "tool_use_id": "t2"}, error=error)) == ""
    known.wait_digested()
    assert known.status()["set_aside"] == 0


@pytest.mark.parametrize("error", ["1 failed", "error", "Exit code 1", "FAILED"])
def test_an_error_that_says_nothing_matches_nothing(known: Lab, error: str) -> None:
    failed = {"session_id": "b", "tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "t1"}
    assert known.hook("PostToolUseFailure", **failed, error=error) == QUIET


def test_another_error_is_met_with_silence(known: Lab) -> None:
    failed = {"session_id": "b", "tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "t1"}
    assert known.hook("PostToolUseFailure", **failed, error="make: no rule to make target 'all'") == QUIET
