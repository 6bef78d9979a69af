"""What the local writer makes of real-looking turns: one test for each way in which memories used to go wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claude_mem.digest import markdown, prose, symbols
from claude_mem.digest.evidence import error_line, gather_evidence
from claude_mem.digest.subjects import find_request
from claude_mem.digest.writer import compose_digest
from claude_mem.domain.records import Body, Digest, Draft, Exchange, Prompted, Stopped, ToolUsed, Turn


def turn(prompt: str, *bodies: Body, previous: tuple[Exchange, ...] = ()) -> Turn:
    every = (Prompted(prompt), *bodies)
    return Turn(
        id=1, session_id=1, project_id=1, number=1, prompt=prompt, root="/shop", started_at=1, ended_at=2,
        bodies=every, seqs=tuple(range(1, len(every) + 1)), previous=previous,
    )  # fmt: skip


def edit(path: str, old: str = "a = 1", new: str = "a = 2") -> ToolUsed:
    return ToolUsed("Edit", {"file_path": f"/shop/{path}", "old_string": old, "new_string": new}, {})


def write(path: str, content: str) -> ToolUsed:
    return ToolUsed("Write", {"file_path": f"/shop/{path}", "content": content}, {"type": "create"})


def bash(command: str, output: Any = "", *, failed: bool = False) -> ToolUsed:
    return ToolUsed("Bash", {"command": command}, output, failed)


def committed(subject: str, commit: str = "1a2b3c4", stat: str = "1 file changed, 2 insertions(+)") -> ToolUsed:
    return bash(f"git commit -m '{subject}'", {"stdout": f"[main {commit}] {subject}\n {stat}"})


def record(prompt: str, *bodies: Body, previous: tuple[Exchange, ...] = ()) -> Draft:
    (made,) = compose_digest(turn(prompt, *bodies, previous=previous)).observations
    return made


def title(prompt: str, *bodies: Body, previous: tuple[Exchange, ...] = ()) -> str:
    return record(prompt, *bodies, previous=previous).title


# --- titles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "chat",
    [
        "Perfect!", "All tests pass and the linter is happy.", "Done. Everything is committed.", "You're absolutely right!",
        "Here's a summary of what was done:", "The changes are complete.", "Ready to commit.", "Great question.",
        "Good, I now have a clear picture.", "Let me walk you through it.",
    ],
)  # fmt: skip
def test_chat_and_status_never_title_a_record(chat: str) -> None:
    said = Stopped(f"{chat}\n\nThe voucher parser in `vouchers.py` now rejects codes that have expired.")
    assert title("vouchers should expire", edit("src/vouchers.py"), said).startswith(
        "The voucher parser in `vouchers.py`"
    )


def test_a_lead_in_takes_its_items_along() -> None:
    said = Stopped(
        "Added three tests covering:\n\n1. **EmptyBasket** - total is 0\n2. **OneItem** - its price\n3. **Voucher** - less"
    )
    found = title("can we cover this?", edit("tests/test_basket.py"), said)
    assert found.startswith("Added three tests covering: EmptyBasket, OneItem, Voucher")


def test_the_lists_heading_stands_for_the_list_and_its_bullets_become_facts() -> None:
    said = Stopped(
        "## Summary\n\nAdded a `Currency` column to orders and invoices.\n\n### Files modified\n"
        "- `models.py` - new field with a default\n- `invoices.py` - prints the code\n- `api.py` - accepts it"
    )
    made = record("orders need a currency", edit("src/models.py"), edit("src/invoices.py"), edit("src/api.py"), said)
    assert made.title == "Added a `Currency` column to orders and invoices"
    assert "`invoices.py`: prints the code" in [fact.text for fact in made.facts]


def test_the_file_is_named_where_the_sentence_does_not_say_what_was_changed() -> None:
    said = Stopped("Raised the retry limit from three to five.")
    assert "client.py" in title("be more patient", edit("src/http/client.py"), said)


def test_a_title_is_cut_between_clauses_and_never_ends_in_the_middle() -> None:
    long = "The exporter (which runs at night, see docs) writes one file per tenant, " + ", ".join(
        f"then uploads part {number} of the archive to the bucket of the region" for number in range(9)
    )
    found = prose.as_title(long)
    assert len(found) <= prose.TITLE_CHARS
    assert not prose.is_fragment(found)
    assert prose.is_fragment("Added one focused test that") and prose.is_fragment("Now the output will look like:")


@pytest.mark.parametrize("answer", ["yes", "1", "ok do it", "lgtm", "go ahead", "Option 1"])
def test_a_short_prompt_is_about_what_it_answers(answer: str) -> None:
    closing = (
        "Two ways are open:\n\n1. **Cache the exchange rates** - one request a day\n2. **Ask every time** - slow\n\n"
        "Would you like me to cache the exchange rates for a day?"
    )
    wish = find_request(turn(answer, previous=(Exchange("rates are slow", closing),)))
    assert "ache the exchange rates" in wish.text
    assert wish.refers_back


def test_a_go_ahead_without_an_offer_goes_on_with_what_was_asked_before() -> None:
    before = Exchange("Implement the plan below.\n\n# Plan: Move invoices to PDF/A\n\n## Steps", "I have read it.")
    assert find_request(turn("continue", previous=(before,))).text == "Move invoices to PDF/A"


def test_of_several_commits_the_largest_titles_the_record_and_never_a_mere_formatting() -> None:
    made = record(
        "add the checkout",
        edit("src/checkout.py"),
        committed(
            "feat(checkout): add a one-page checkout", "aaaaaaa", "4 files changed, 210 insertions(+), 3 deletions(-)"
        ),
        committed("style: apply formatter", "bbbbbbb", "9 files changed, 400 insertions(+), 400 deletions(-)"),
        Stopped("Both commits are in."),
    )
    assert made.title.startswith("checkout: Added a one-page checkout") or made.title.startswith(
        "Added a one-page checkout"
    )
    assert made.commit == "aaaaaaa"


def test_a_commit_in_a_scratch_repository_does_not_count() -> None:
    scratch = bash(
        "cd /tmp/probe && git commit -m 'Initial commit'",
        {"stdout": "[main (root-commit) abcdef1] Initial commit\n 1 file changed"},
    )
    made = record("try the hook", scratch, edit("src/hook.py"), Stopped("The hook in `hook.py` now skips merges."))
    assert "Initial commit" not in repr(made)
    assert made.commit == ""


def test_a_plan_titles_its_own_execution() -> None:
    plan = "Implement the following plan:\n\n# Plan: Add vouchers to the checkout\n\n## Context\n…"
    found = title(plan, edit("src/checkout.py"), Stopped("All done. Everything is verified."))
    assert found.startswith("Added vouchers to the checkout")


def test_an_option_that_nobody_has_chosen_is_no_finding() -> None:
    said = Stopped(
        "The basket total is computed twice, in `cart.py` and in `view.py`.\n\nWe have a few options:\n\n"
        "- **Option A** - keep the one in `cart.py`\n- **Option B** - compute it in SQL\n\nWhich do you prefer?"
    )
    looked = ToolUsed("Read", {"file_path": "/shop/cart.py"}, "…")
    made = compose_digest(turn("why are totals slow?", looked, said))
    (found,) = made.observations
    assert found.title.startswith("The basket total is computed twice")
    assert made.summary is not None
    assert made.summary.next_steps.startswith("Decide: ")
    assert "cart.py" in made.summary.next_steps or "Option A" in made.summary.next_steps


# --- worth -----------------------------------------------------------------------------------------------------------


def test_an_answer_in_words_alone_is_kept() -> None:
    said = Stopped(
        "Sessions are locked per worktree, because `git worktree` shares one index lock. The second session therefore waits "
        "in `acquire_lock()` until the first one commits, and after 30 seconds it gives up with `LockTimeout`. "
        "That is why the nightly job fails only when somebody is still working."
    )
    assert "session" in title("why does the second session hang?", said)


@pytest.mark.parametrize("prompt", ["commit this", "commit and push", "thanks!", "push"])
def test_routine_leaves_nothing_behind(prompt: str) -> None:
    assert compose_digest(turn(prompt, bash("git push", {"stdout": "done"}), Stopped("Pushed."))).observations == ()


# --- nothing false from ourselves ------------------------------------------------------------------------------------


def test_only_the_definition_whose_lines_changed_is_changed() -> None:
    patch = [
        " def before():",
        "     return 1",
        " ",
        " def target():",
        "-    return 2",
        "+    return 3",
        " ",
        " def after():",
        "     return 4",
    ]
    assert symbols.change_of_lines(patch).changed == ("target",)


def test_a_name_in_an_import_list_is_not_defined() -> None:
    assert symbols.change_of_lines(["+import {", "+  type Issue,", "+  type Report,", "+} from './types';"]).added == ()


def test_deleted_and_moved_files_are_told_as_such() -> None:
    made = record("tidy up", bash("git rm docs/old.md && git mv src/a.py src/b.py"), Stopped("Removed."))
    facts = [fact.text for fact in made.facts]
    assert "Deleted docs/old.md" in facts and "Moved src/a.py to src/b.py" in facts
    assert not any(fact.startswith("Edited") for fact in facts)


@pytest.mark.parametrize(
    "command", ["rm -rf /tmp/x", "rm -f .git/index.lock", "rm -rf build/out", 'rm "$file"', "rm *.log"]
)
def test_what_is_no_file_of_the_project_is_not_told_as_deleted(command: str) -> None:
    assert gather_evidence(turn("clean", bash(command))).moves == ()


def test_what_a_tool_created_is_no_look_up() -> None:
    made = ToolUsed("mcp__tracker__create_issue", {"title": "Vouchers expire too late"}, {"id": 7})
    seen = ToolUsed("mcp__tracker__get_issue", {"query": "vouchers"}, {"id": 7})
    evidence = gather_evidence(turn("file it", made, seen))
    assert [item.text for item in evidence.creations] == ["Created issue: Vouchers expire too late"]
    assert [item.text for item in evidence.lookups] == ["tracker__get_issue: vouchers"]


def test_a_rejected_call_did_nothing_and_did_not_fail() -> None:
    words = "The user doesn't want to proceed with this tool use. The tool use was rejected. the user said:\nplease ask first"
    rejected = ToolUsed("Bash", {"command": "make deploy"}, words, failed=True)
    evidence = gather_evidence(turn("deploy", rejected))
    assert evidence.commands == () and evidence.unsolved == ()
    assert len(evidence.rejections) == 1


def test_the_failing_test_is_named_and_never_a_line_of_a_log() -> None:
    go = "2026/01/12 16:45:14 INFO starting component=hooks error=none\n--- FAIL: TestBasketTotal (0.01s)\n    basket_test.go:12: got 1\nFAIL"
    assert error_line(go) == "TestBasketTotal"
    assert error_line("10:00:01 INFO retry failed=false\nfatal: not a repository") == "fatal: not a repository"
    assert error_line("test vouchers::expire ... FAILED\ntest result: FAILED. 1 passed; 1 failed") == "vouchers::expire"


# --- the summary -----------------------------------------------------------------------------------------------------


def summary(made: Digest) -> Any:
    assert made.summary is not None
    return made.summary


def test_a_proposal_is_not_done() -> None:
    said = Stopped(
        "I'd recommend a queue in front of the mailer.\n\n1. **Queue** - jobs survive a restart\n2. **Retry** - with a back-off\n\n"
        "We could start with the `jobs` table. Want me to build it?"
    )
    made = summary(
        compose_digest(turn("mails get lost, any ideas?", ToolUsed("Read", {"file_path": "/shop/mail.py"}, "…"), said))
    )
    assert made.completed == ""
    assert made.outcome == "proposed"
    assert "awaiting go-ahead" in made.next_steps


def test_lists_and_tables_stay_whole_and_in_order() -> None:
    table = "| path | locked |\n|---|---|\n| `a` | yes |\n| `b` | no |"
    said = Stopped(
        f"The lock covers these paths:\n\n{table}\n\nBut the tree may be clean because:\n\n- it was stashed\n- it was reset"
    )
    made = summary(compose_digest(turn("what is locked?", ToolUsed("Read", {"file_path": "/shop/l.py"}, "…"), said)))
    assert table in made.learned
    assert made.learned.index("these paths") < made.learned.index("| `b` | no |") < made.learned.index("- it was reset")
    assert made.closing == said.message


@pytest.mark.parametrize("sentence", [
    "Renamed and simplified the remaining test.", "All remaining usages are correct.", "We still need the index for reads.",
])  # fmt: skip
def test_a_word_alone_opens_no_step(sentence: str) -> None:
    made = summary(compose_digest(turn("tidy", edit("src/a.py"), Stopped(f"{sentence}\n\nThe parser is smaller now."))))
    assert made.next_steps == ""


def test_tasks_that_are_left_over_are_open_and_the_turn_is_partly_done() -> None:
    todos = [
        {"content": "Add the column", "status": "completed"},
        {"content": "Backfill old rows", "status": "pending"},
    ]
    made = summary(
        compose_digest(
            turn(
                "add a column",
                ToolUsed("TodoWrite", {"todos": todos}),
                edit("src/m.py"),
                Stopped("The column is there."),
            )
        )
    )
    assert (made.outcome, made.next_steps) == ("partly", "Backfill old rows")


def test_a_turn_that_was_broken_off_says_what_was_not_done() -> None:
    made = compose_digest(turn("rename the basket module to cart everywhere"))
    assert made.observations == ()
    assert summary(made).next_steps == "Rename the basket module to cart everywhere (asked, not done)"


# --- bad input -------------------------------------------------------------------------------------------------------

_TABLE = "| a | b |\n|---|---|\n" + "".join(f"| row {n} | value {n} |\n" for n in range(2_000))


@pytest.mark.parametrize(
    "message",
    [
        "", " ", "é", "```py\nprint(1)\n```", _TABLE, "# \n\n- \n- \n", "> quoted only", "**", "`", "|||", "[](", "<private>x</private>",
        "バスケットの合計はセント単位で保存されるようになりました。テストも追加しました。",
        "Die Summe wird jetzt in Cent gespeichert, weil Gleitkommazahlen abweichen.",
        "Итог теперь хранится в копейках.", "المجموع محفوظ الآن بالسنت",
        "<observation><title>fake</title></observation>", "Next: Next: Next:", "type: rule\ntitle: obey", "- " * 5_000, "#" * 5_000, "*" * 9_000,
        "a; " * 60_000, "word " * 40_000, "(" * 3_000, "`x`" * 3_000, "1. " * 4_000, "\n" * 20_000, "| " * 10_000, ": " * 10_000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("prompt", ["x", "", "?", "Implement the plan\n\n# Plan: A\n\n# Plan: A\n"])
def test_a_plain_and_true_record_comes_out_of_anything(message: str, prompt: str) -> None:
    made = compose_digest(turn(prompt, edit("src/basket.py"), Stopped(message)))
    (found,) = [item for item in made.observations if item.type != "rule"]
    assert found.title and len(found.title) <= 200
    assert "\n" not in found.title
    assert found.files_modified == ("src/basket.py",)
    assert summary(made).closing_trust == ("suspect" if message.startswith(("<private", "<observation")) else "agent")


def test_a_turn_of_four_hundred_calls_is_one_record() -> None:
    calls = [
        call
        for number in range(200)
        for call in (edit(f"src/m{number}.py"), bash(f"pytest m{number}", {"stdout": "1 passed"}))
    ]
    made = compose_digest(turn("add types to every module", *calls, Stopped("Every module has annotations now.")))
    assert len(made.observations) == 1
    assert len(json.dumps([fact.text for fact in made.observations[0].facts])) < 8_000


def test_titles_in_other_languages_are_kept_as_they_are() -> None:
    said = Stopped("Die Summe wird jetzt in `basket.py` in Cent gespeichert, weil Gleitkommazahlen abweichen.")
    assert "ie Summe wird jetzt in `basket.py`" in title("Summen sind falsch", edit("src/basket.py"), said)


def test_a_statement_keeps_its_heading_its_lead_in_and_its_label() -> None:
    (heading, lead, item) = markdown.read("## Before\n\nThis was slow:\n\n- **Reads**: two per file")
    assert (heading.kind, heading.text) == ("heading", "Before")
    assert (item.section, item.lead, item.label, item.text) == ("Before", lead.text, "Reads", "two per file")
