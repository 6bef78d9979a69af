"""Classes of memories that readers of real projects found useless or wrong, each with a turn of the same shape."""

from __future__ import annotations

import pytest

from claude_mem.agents.canonical import drop_redundant_fields, is_user_prompt
from claude_mem.digest import markdown, prose
from claude_mem.digest.compress import measure_reading
from claude_mem.digest.writer import compose_digest
from claude_mem.domain.records import Body, ObservationType, Stopped, ToolUsed
from claude_mem.domain.text import normalize_title
from claude_mem.privacy import phrases
from tests.unit.test_composed import lines
from tests.unit.test_writer import bash, committed, edit, record, title, turn

CHANGED = edit("src/cart.py", "total = 1", "total = 2")
WITH_SYMBOL = edit("src/cart.py", "def total():\n    return 1", "def total():\n    return round(1)")


# --- titles that end before their point ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "The cart says more about its rows, distinguishing between newly added vs",
        "The `sum_rows()` helper of the cart needs",
        "The comment in the cart shows uncertainty about whether",
        "A basket is only marked as active if",
        "Both baskets were rounded after the sale - both have",
        "The `rounded` field of the order is still used for",
        "Updated the guide with a new section covering",
        "The empty order was a stub that: 1",
        "The notice of the till now reads",
    ],
)
def test_a_line_that_ends_before_its_point_is_a_fragment(line: str) -> None:
    assert prose.is_fragment(line)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (
            "Makes the output of `shop close` more informative by showing the rows, the tax and the sums, distinguishing "
            "between newly added vs. already-present vouchers of the customer.",
            "Makes the output of `shop close` more informative by showing the rows, the tax and the sums",
        ),
        (
            "The address bar of the shop is now a thin sticky strip with a border that sits just below the main header "
            "— only visible when the basket holds an order that nobody paid.",
            "The address bar of the shop is now a thin sticky strip with a border that sits just below the main header",
        ),
    ],
)
def test_a_long_sentence_is_cut_where_a_clause_ends(sentence: str, expected: str) -> None:
    assert prose.as_title(sentence) == expected


def test_a_list_that_goes_on_after_a_paragraph_is_a_list() -> None:
    first, second, third, _ = markdown.read(
        "Later:\n8. Ann opens the till at `noon`\n9. → **It refuses!** The drawer is open"
    )
    assert first.text == "Later:"
    assert (second.kind, second.text, second.lead) == ("item", "Ann opens the till at `noon`", "Later:")
    assert third.text == "→ It refuses!"


def test_an_item_whose_words_are_removed_goes_with_its_number() -> None:
    source = phrases.ReadTexts(["round the total of every order to two digits before it is stored"])
    text = "Fixes:\n\n1. Round the total of every order to two digits before it is stored\n2. Prints `cents` on bills"
    assert phrases.remove_repeats(text, source).splitlines() == ["Fixes:", "", "", "2. Prints `cents` on bills"]


# --- tables ----------------------------------------------------------------------------------------------------------


def test_the_cells_of_a_row_keep_the_headings_of_their_columns() -> None:
    table = (
        "| # | File | Function | Fix |\n|---|---|---|---|\n| 5 | `cart.py` | `total()` | Rounds the sum, not the rows |"
    )
    (row,) = markdown.read(table)
    assert (row.label, row.text) == ("`cart.py`", "Function: `total()`; Fix: Rounds the sum, not the rows")


def test_an_empty_cell_does_not_shift_the_headings() -> None:
    (row,) = markdown.read("| Case | Before | After | Note |\n|---|---|---|---|\n| sale | - | rounded | by Ann |")
    assert row.text == "After: rounded; Note: by Ann"


def test_a_title_from_a_table_is_the_cell_that_states_something() -> None:
    said = Stopped(
        "| # | File | Function | Fix |\n|---|---|---|---|\n| 1 | `cart.py` | `total()` | Rounds the sum instead of every row |"
    )
    assert not any("Function:" in line for line in lines("round it", CHANGED, said))


# --- chat ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "chat",
    [
        "Based on our earlier discussion, this should stay as `checkpoints` in the cart.",
        "If the till deleted the order as expected, then my timeline is wrong about `cart.py`.",
        "The key condition for the `total` is #3 of the cart.",
        "The comment refers to the `sum_rows` case we discussed earlier in the cart.",
    ],
)
def test_a_line_that_points_to_the_conversation_titles_nothing(chat: str) -> None:
    said = Stopped(f"{chat}\n\nThe `sum_rows` helper rounds every row before the cart adds them up.")
    assert title("why is the total of the cart wrong?", said).endswith(
        "The `sum_rows` helper rounds every row before the cart adds them up"
    )


def test_the_word_that_agrees_is_no_part_of_a_title() -> None:
    assert prose.as_title("Correct - the order adds five rows") == "The order adds five rows"


@pytest.mark.parametrize("topic", ["anna/multi-order", "shop.io", "go run"])
def test_a_branch_a_domain_or_a_command_is_no_prefix(topic: str) -> None:
    said = Stopped(f"The order of `{topic}` rounds. `{topic}` is fine. Seen with `{topic}` twice: {topic}.")
    asked = f"does `{topic}` still lose cents of orders?"
    assert not any(line.startswith(f"{topic}: ") for line in lines(asked, said))


def test_capitals_stay_capitals_when_two_sentences_are_joined() -> None:
    said = Stopped(
        "**Root cause:** The till rounds `rows` twice.\n\n**Fix:** AFTER (not before) the sum, `total` rounds."
    )
    assert not any("aFTER" in line for line in lines("the total is wrong", CHANGED, said))


# --- the user's words ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prompt",
    [
        "remove the owners change from the cart and rebase to main please",
        "add something to the cart to find out why it is slow",
        "make the rounding of the cart something that should be injected like we do with the key",
    ],
)
def test_a_request_with_more_in_it_is_not_told_as_done(prompt: str) -> None:
    said = Stopped("Done. The cart has the owners, the trace and the rounding.")
    assert lines(prompt, CHANGED, said, source="wish") == []


@pytest.mark.parametrize("more", [" please", " or something to find out why it is slow"])
def test_a_request_is_told_as_done_without_what_is_no_part_of_it(more: str) -> None:
    asked = f"remove the voucher field from the cart of the shop{more}"
    said = Stopped("Done. It's gone from the cart.")
    assert lines(asked, CHANGED, said, source="wish") == ["Removed the voucher field from the cart of the shop"]


# --- what changed ----------------------------------------------------------------------------------------------------


def test_work_of_which_nothing_is_said_is_told_by_its_definitions() -> None:
    found = title("go", WITH_SYMBOL, Stopped("Done."))
    assert found == "Changed `total` in `cart.py`"


def test_the_cause_of_a_fault_that_was_fixed_is_told_as_fixed() -> None:
    said = Stopped("**Root cause:** the `sum_rows` helper of the cart never rounded the total of an order.")
    assert title("the total is wrong", CHANGED, said).startswith("Fixed bug: the `sum_rows` helper of the cart never")


def test_a_fix_is_a_bugfix() -> None:
    said = Stopped("Fixed the midnight bug of the cart by making order numbers stable across days.")
    made = record("orders get new numbers at midnight", edit("src/cart.py", "", "def number():\n    return 1"), said)
    assert made.type == ObservationType.BUGFIX


def test_a_commit_of_work_that_is_told_already_is_not_told_again() -> None:
    bodies = (
        edit("CHANGELOG.md"),
        committed("Fixed cart rounding: show the cents of every row"),
        Stopped("Committed."),
    )
    known = frozenset({normalize_title("Fixed Cart Rounding - Show the Cents of Every Row (cart.py)")})
    before = turn("finish the notes about the cents of the cart", *bodies)
    assert compose_digest(before).observations
    after = turn("finish the notes about the cents of the cart", *bodies)
    object.__setattr__(after, "known_titles", known)
    assert not compose_digest(after).observations


# --- outcomes and open steps -----------------------------------------------------------------------------------------


def outcome(prompt: str, *bodies: Body) -> str:
    made = compose_digest(turn(prompt, *bodies)).summary
    assert made is not None
    return made.outcome


def test_a_test_that_was_to_fail_first_is_no_failure() -> None:
    failing = bash(
        "pytest tests/test_cart.py", "FAILED tests/test_cart.py::test_total - assert 2 == 3\n1 failed", failed=True
    )
    written = edit("tests/test_cart.py", "", "def test_total():\n    assert total() == 3")
    assert (
        outcome("write a failing test for the total first", written, failing, Stopped("It fails as expected."))
        == "done"
    )
    assert outcome("round the total", written, failing, Stopped("It fails.")) == "failed"


def test_work_whose_pipeline_fails_for_missing_settings_is_done_in_part() -> None:
    said = Stopped(
        'The pipeline works:\n\n- **Tests** — passed\n- **Sign** — failed at "Install certificate", because the secrets aren\'t configured yet\n\n'
        "To complete the setup, you need to add these secrets:\n\n- `SHOP_CERT`\n- `SHOP_CERT_PASSWORD`"
    )
    assert outcome("sign the release of the shop", edit(".github/ci.yml"), said) == "partly"


def test_a_rejected_call_does_not_make_an_answered_turn_abandoned() -> None:
    rejected = bash(
        "rm cart.py", "The user doesn't want to proceed with this tool use. The tool use was rejected", failed=True
    )
    assert outcome("clean up the cart", rejected, CHANGED) == "done"


@pytest.mark.parametrize(
    "question", ["Does this feel right?", "What's your instinct on that?", "Does the cart feel right to anyone?"]
)
def test_a_question_of_the_chat_is_no_open_step(question: str) -> None:
    made = compose_digest(turn("how is the total rounded?", Stopped(f"Row by row, in `sum_rows`. {question}"))).summary
    assert made is not None
    assert not made.next_steps


# --- what is read ----------------------------------------------------------------------------------------------------


def test_the_notice_of_a_hook_is_no_prompt() -> None:
    assert not is_user_prompt("Operation stopped by hook: another till is open.\n\nPress the up arrow key.")
    assert is_user_prompt("why do I see: Operation stopped by hook: another till is open")


def test_characters_that_were_read_are_counted_from_the_stored_event() -> None:
    output = {"type": "text", "file": {"filePath": "/shop/src/cart.py", "content": "x" * 120, "numLines": 1}}
    stored = ToolUsed("Read", {"file_path": "/shop/src/cart.py"}, drop_redundant_fields(output))
    assert "xxx" not in str(stored.output)
    assert measure_reading(turn("read it", stored), known_paths=()).characters == 120


# --- answers ---------------------------------------------------------------------------------------------------------


def test_an_answer_that_names_its_subject_needs_no_question() -> None:
    said = Stopped(
        "`cart.total` holds the rounded sum of every order, and only the till writes to that field at night."
    )
    asked = "What is the rounded total of the orders used for in the shop?"
    assert title(asked, said).startswith("`cart.total` holds the rounded sum")
