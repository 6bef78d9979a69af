"""Titles that no sentence of the agent gives by itself, and sentences that need their subject: one test for each way."""

from __future__ import annotations

import pytest

from claude_mem.digest import candidates, composed, markdown, prose, ranking, symbols
from claude_mem.digest.candidates import TitleCandidate
from claude_mem.digest.evidence import gather_evidence
from claude_mem.digest.subjects import find_request
from claude_mem.digest.writer import build_story, compose_digest
from claude_mem.domain.records import Body, Exchange, Stopped, ToolUsed
from tests.unit.test_writer import bash, edit, title, turn, write


def lines(prompt: str, *bodies: Body, source: str = "", previous: tuple[Exchange, ...] = ()) -> list[str]:
    """Return the titles that could be given to a turn, of one source or of all."""
    story = build_story(turn(prompt, *bodies, previous=previous))
    return [one.title for one in candidates.candidates(story) if source in ("", one.source)]


# --- from edits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('label = "Cart"', 'label = "Shopping cart"', 'Changed "Cart" to "Shopping cart" in `view.py`'),
        ("timeout: 20m", "timeout: 45m", "Changed `timeout` from `20m` to `45m` in `view.py`"),
        ("retry = True", "retry = False", "Changed `retry` from `True` to `False` in `view.py`"),
        ("return total(items)", "return grand_total(items)", "Replaced `total` with `grand_total` in `view.py`"),
        ("def total(items):", "def grand_total(items):", "Renamed `total` to `grand_total` in `view.py`"),
        (
            'say("The basket is empty.\\nTo go on, add one item and press the key.")',
            'say("The basket is empty.\\nTo go on, scan one item and press the key.")',
            'Changed "add" to "scan" in `view.py`',
        ),
    ],
)
def test_a_small_replacement_is_told_as_what_took_the_place_of_what(old: str, new: str, expected: str) -> None:
    assert lines("please", edit("src/view.py", old, new), Stopped("Done."), source="swapped") == [expected]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a = 1\nb = 2", "c = [1, 2]"),  # written anew
        ('import "sort"', 'import "slices"'),  # the name of a package is no text
        ("x", "y" * 500),
        ("", "def total():\n    return 1"),
    ],
)
def test_what_is_no_single_replacement_makes_no_such_title(old: str, new: str) -> None:
    assert lines("please", edit("src/view.py", old, new), Stopped("Done."), source="swapped") == []


def test_a_name_that_gives_way_to_one_that_stood_there_before_is_not_renamed() -> None:
    """The wrapper is swapped for what it called, and then the doubled definition goes."""
    swapped = edit("src/a.py", "def preview(x):\ny = preview(1)", "def extract(x):\ny = extract(1)")
    gone = edit("src/a.py", "def extract(x):\n    pass\n", "")
    (made,) = lines("inline it", swapped, gone, Stopped("Done."), source="swapped")
    assert made == "Replaced `preview` with `extract` in `a.py`"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("// Retry runs the call again.\nfunc Retry(n int) error {", "Added `Retry` in `x`: runs the call again"),
        ("/** Rounds the total once. */\nfunction round(t) {", "Added `round` in `x`: rounds the total once"),
        ('def once(total):\n    """Round the total once."""', "Added `once` in `x`: round the total once"),
    ],
)
def test_a_definition_that_was_added_is_told_with_its_own_comment(code: str, expected: str) -> None:
    made = lines("go on", write("src/x", code), Stopped("Done."), source="documented")
    assert made == [expected]


def test_a_definition_that_only_moved_was_not_added() -> None:
    body = "// Retry runs the call again.\nfunc Retry(n int) error {\n}\n"
    moved = (edit("src/a.go", body, ""), edit("src/b.go", "", body))
    assert lines("move it", *moved, Stopped("Done."), source="documented") == []


@pytest.mark.parametrize(
    "command",
    [
        "sed -i 's/old/new/' src/cart.py",
        "sed -i '' -e 's/old/new/' src/cart.py",
        "cat > src/cart.py <<'EOF'\nTOTAL = 1\nEOF",
        "cd /shop && cat <<EOF > src/cart.py\nTOTAL = 1\nEOF",
    ],
)
def test_a_file_that_a_shell_changes_was_edited(command: str) -> None:
    assert gather_evidence(turn("go on", bash(command))).edited_paths == ("src/cart.py",)


@pytest.mark.parametrize(
    "command",
    [
        "sed 's/old/new/' src/cart.py",
        "cd /tmp/probe && cat > cart.py <<EOF\nx\nEOF",
        "cd ~/other && sed -i 's/a/b/' cart.py",
        "cat > /etc/cart.conf <<EOF\nx\nEOF",
        "cat src/cart.py",
        "git commit -F - <<EOF\nsed -i 's/a/b/' cart.py\nEOF",
    ],
)
def test_a_shell_that_changes_nothing_of_the_project_edits_nothing(command: str) -> None:
    assert gather_evidence(turn("go on", bash(command))).edited_paths == ()


def test_a_failed_command_edits_nothing() -> None:
    assert gather_evidence(turn("go on", bash("sed -i 's/a/b/' cart.py", failed=True))).edited_paths == ()


# --- from headings, tasks, plans -------------------------------------------------------------------------------------


def test_headings_that_tell_what_was_done_make_one_line() -> None:
    said = Stopped(
        "## Changes\n\n### 1. Removed the skip logic for baskets\n- a\n\n### 2. Updated the warning of the open basket\n- b\n\n"
        "### 3. Added the prompt to rewind points\n- c"
    )
    (made,) = lines("go on", edit("src/a.py"), edit("src/b.py"), said, source="joined")[:1]
    assert made.startswith(
        "Removed the skip logic for baskets; updated the warning of the open basket; added the prompt"
    )


def test_a_plan_without_a_verb_was_implemented() -> None:
    plan = "Implement the following plan:\n\n# Plan: Tree view for the context tab\n\n## Context\n…"
    assert title(plan, edit("src/tab.py"), Stopped("All done.")).startswith(
        "Implemented: Tree view for the context tab"
    )


def test_a_choice_with_a_condition_keeps_the_condition() -> None:
    closing = "Which one?\n\n1. **Keep the cache**\n2. **Drop the cache of rates**\n3. **Ship it disabled**"
    wish = find_request(turn("2, but only for guests", previous=(Exchange("rates are slow", closing),)))
    assert "Drop the cache of rates" in wish.text
    assert "only for guests" in wish.text


# --- from what is said -----------------------------------------------------------------------------------------------


def test_a_lead_in_takes_the_line_along_that_it_shows() -> None:
    said = Stopped("Done. The empty basket now reads:\n\n> Nothing here yet. Add your first item.\n")
    (made, *_) = lines("reword it", edit("src/a.py"), said, source="shown")
    assert made == "The empty basket now reads: `Nothing here yet. Add your first item.`"


@pytest.mark.parametrize("block", ['```json\n{\n  "a": 1\n}\n```', "```go\nfunc a() {\n```", "```\n├── a\n```"])
def test_code_is_no_line_that_is_shown(block: str) -> None:
    said = Stopped(f"The settings file of the basket now holds:\n\n{block}")
    assert lines("reword it", edit("src/a.py"), said, source="shown") == []


def test_an_answer_is_told_by_its_question_its_first_claim_and_the_most_telling_one() -> None:
    said = Stopped(
        "Good question.\n\nIntegration tests carry the build tag `integration`. They live beside the others.\n\n"
        "**Why:** plain `go test` skips tagged files because they are never compiled.\n\nWant me to change that?"
    )
    made = lines("why did the integration tests not fail?", said, source="told")
    assert any(
        one.startswith("Why did the integration tests not fail? Integration tests carry the build tag") for one in made
    )
    assert any("skips tagged files because they are never compiled" in one for one in made)


@pytest.mark.parametrize(
    "listed",
    [
        "How strict should `dupl` be?\n\n1. **Warn only** - never block\n2. **Block above a threshold** - ten lines",
        "We have a few options:\n\n- **Warn only** - never block\n- **Block above a threshold** - ten lines\n\nYour call?",
        "**Option A**: Warn only\n- never block\n\n**Option B**: Block above a threshold\n- ten lines\n\nWhich one?",
    ],
)
def test_an_option_and_what_stands_below_it_title_nothing(listed: str) -> None:
    made = lines("what can we do?", Stopped(f"The hook runs on every commit of the basket.\n\n{listed}"))
    plain = [one for one in made if not one.startswith("To decide: ")]
    assert not any("never block" in one or "ten lines" in one for one in plain)


def test_a_question_with_its_options_is_what_is_to_be_decided() -> None:
    said = Stopped("How strict should `dupl` be?\n\n1. **Warn only** - never block\n2. **Block on ten lines** - safe")
    assert lines("guard it", said, source="choice") == [
        "To decide: How strict should `dupl` be? Warn only, Block on ten lines"
    ]


@pytest.mark.parametrize(
    "sentence",
    [
        "The cleanest fix would be to round the total once, in `cart.py`.",
        "I'd recommend to round the total once, in `cart.py`.",
        "I'd round the total once, in `cart.py`.",
        "We should round the total once, in `cart.py`.",
    ],
)
def test_what_an_answer_recommends_is_a_proposal_and_after_work_it_is_none(sentence: str) -> None:
    expected = "Proposed: round the total once, in `cart.py`"
    assert lines("why is it off?", Stopped(sentence), source="proposed")[:1] == [expected]
    assert lines("fix it", edit("src/cart.py"), Stopped(sentence), source="proposed") == []


@pytest.mark.parametrize("mark", ["### Before\n", "**Before:** ", "### Previous behavior\n", "**Old flow:** "])
def test_how_things_were_before_a_change_titles_nothing(mark: str) -> None:
    said = Stopped(f"{mark}\nTwo reads of every blob in the basket tree.\n\n### After\nOne hash of every blob is kept.")
    assert not any("Two reads" in one for one in lines("speed it up", edit("src/a.py"), said))


def test_a_list_is_told_in_whole_items_and_says_how_many_more_there_are() -> None:
    items = "\n".join(f"- another basket number {n} exists in the same shop" for n in range(9))
    made = lines("when?", Stopped(f"The warning of the basket is shown in these cases:\n\n{items}"), source="list")
    assert made
    for one in made:
        assert one.endswith(" more")
        assert all(part.endswith("in the same shop") for part in one.rpartition(" and ")[0].split(": ")[-1].split(", "))


def test_a_sentence_is_told_with_the_heading_that_names_its_subject() -> None:
    said = Stopped(
        "## Wrong basket after a restart\n\nThe worker reads a stale cache of prices.\n\n## Summary\n\nSo far."
    )
    assert "Wrong basket after a restart: The worker reads a stale cache of prices" in lines("why?", said)
    assert not any(one.startswith("Summary:") for one in lines("why?", said))


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("They return interfaces, so I added a directive.", "They return interfaces, so added a directive"),
        ("The edit ends up in your basket.", "The edit ends up in the basket"),
        ("There's no stale cache in the worker.", "No stale cache in the worker"),
        ("We have two names for one agent.", "Two names for one agent"),
        ("You can now trace the start with a variable.", "Trace the start with a variable"),
    ],
)
def test_a_title_speaks_of_the_thing_and_not_to_a_person(sentence: str, expected: str) -> None:
    assert prose.as_title(sentence) == expected


def test_a_persons_own_words_stay_as_they_are() -> None:
    assert prose.as_wish("choose your colour for the doors") == "Choose your colour for the doors"


def test_two_statements_share_a_title_where_both_fit() -> None:
    said = Stopped("Old orders have no currency in `orders`.\n\nThe export in `export.py` falls back to euros.")
    made = title("what happens to old orders on export?", ToolUsed("Read", {"file_path": "/shop/export.py"}, "…"), said)
    assert "no currency" in made
    assert "falls back to euros" in made


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("I do like how stripe does it. Adapt our client to follow the same pattern", "Adapt our client"),
        ("sorry, that was me. can we add the branch to the metadata?", "add the branch to the metadata"),
        ("when running the suite I get failures, can you check?", "when running the suite I get failures"),
        ("question: does the id contain a date?", "does the id contain a date"),
    ],
)
def test_the_sentence_that_asks_for_something_is_the_wish(prompt: str, expected: str) -> None:
    assert find_request(turn(prompt)).text.startswith(expected)


@pytest.mark.parametrize("item", ["Two options", "Plan opened", "Found the root cause.", "It's actually quite simple!"])
def test_a_sentence_that_says_nothing_is_no_title(item: str) -> None:
    assert not any(item.rstrip(".!") in one for one in lines("why?", Stopped(item)))


# --- what is open ----------------------------------------------------------------------------------------------------


def steps(prompt: str, *bodies: Body) -> str:
    summary = compose_digest(turn(prompt, *bodies)).summary
    assert summary is not None
    return summary.next_steps


def test_an_offer_is_open_with_what_it_offers() -> None:
    said = "The basket is read twice. The loader should keep a cached copy instead:\n\n```go\nx\n```\n\nWant me to fix it that way?"
    assert steps("why?", Stopped(said)) == (
        "Fix it that way: The loader should keep a cached copy instead (awaiting go-ahead)"
    )


def test_an_offer_about_several_things_names_them() -> None:
    said = "- **Empty basket** - not handled\n- **Blob failures** - not logged\n\nWant me to address all of them?"
    assert "Empty basket" in steps("more comments", Stopped(said))
    assert "Blob failures" in steps("more comments", Stopped(said))


@pytest.mark.parametrize(
    "question",
    [
        "Or keep it as it is?",
        "Any preferences on the flow?",
        "Is there something different you'd like?",
        "Ready to go?",
    ],
)
def test_a_question_in_passing_is_not_open(question: str) -> None:
    assert steps("look at it", Stopped(f"The basket in `cart.py` rounds each line.\n\n{question}")) == ""


# --- whatever comes in -----------------------------------------------------------------------------------------------

HOSTILE = [
    "", " ", "`", "```", "> ", "- ", "|a|b|\n|-|-|\n|1|2|", "# ", "#" * 500, "**" * 2_000, "1. " * 3_000, "?" * 5_000,
    "```go\n" + "x := 1\n" * 5_000, "合計は最後に一度だけ丸めます。" * 200, "Сумма округляется один раз. " * 200, "a: " * 4_000,
    "To decide: x? a, b", "Proposed: y", "The fix is: " * 900, "We should " * 900, "Option A: " * 900, "“" * 900, "word " * 40_000,
    "- **Option A** - x?\n" * 300, "> quoted:\n" * 300, "Why?\n\n- a\n- b\n" * 200,
]  # fmt: skip


@pytest.mark.parametrize("message", HOSTILE)
@pytest.mark.parametrize("prompt", ["x", "why does `cart.py` fail?"])
def test_any_message_makes_a_plain_record_or_none(message: str, prompt: str) -> None:
    for bodies in ((Stopped(message),), (edit("src/cart.py"), Stopped(message))):
        for made in compose_digest(turn(prompt, *bodies)).observations:
            assert 0 < len(made.title) <= 240
            assert "\n" not in made.title
            assert not prose.is_chat(made.title)


@pytest.mark.parametrize(
    "text", ["", "+", "-", "-a\n+b", "+" * 3_000, '-"\n+"', "-`x\n+`y", "+// \n+func A() {", "+'''\n+def a():"]
)
def test_any_diff_can_be_read(text: str) -> None:
    change = symbols.change_of_lines(text.split("\n"))
    assert len(change.swaps) <= 12


def test_four_hundred_calls_are_read() -> None:
    calls = [edit(f"src/a{number}.py", f"x = {number}", f"y = {number}") for number in range(400)]
    assert compose_digest(turn("rename it everywhere", *calls, Stopped("Done."))).observations


def test_a_line_that_is_shown_is_read_in_bounds() -> None:
    (one, *_) = markdown.read("It now reads:\n\n```\n" + "word " * 50_000 + "\n```")
    assert len(one.shown_line) <= 400


def test_a_joined_title_holds_whole_lines_only() -> None:
    tasks = [f"Added the number {n} of the rows to the table of the shop" for n in range(9)]
    assert all(part.lower() in [task.lower() for task in tasks] for part in composed._fitting(tasks).split("; "))


def test_a_candidate_knows_whether_the_turn_changed_something() -> None:
    worked = candidates.candidates(
        build_story(turn("fix it", edit("src/a.py"), Stopped("The basket of `a.py` is rounded once.")))
    )
    answered = candidates.candidates(build_story(turn("why?", Stopped("The basket of `a.py` is rounded once."))))
    assert {one.worked for one in worked} == {True}
    assert {one.worked for one in answered} == {False}
    assert isinstance(answered[0], TitleCandidate)


# --- from definitions, headings and questions ------------------------------------------------------------------------

TOTAL = "def total(rows):\n    return sum(rows)\n"


def test_a_definition_that_was_removed_is_told_by_its_name() -> None:
    removed = edit("src/cart.py", TOTAL, "")
    assert lines("yes", removed, Stopped("Done, the dead code is gone."), source="removed") == [
        "Removed `total` from `cart.py`"
    ]
    assert lines("sort the rows", removed, Stopped("Done."), source="removed") == []  # a means, not the point


def test_a_definition_that_was_rewritten_is_not_told_as_removed() -> None:
    rewritten = edit("src/cart.py", TOTAL, "def grand_total(rows):\n    return round(sum(rows))\n")
    assert lines("yes", rewritten, Stopped("Done."), source="removed") == []


def test_a_definition_that_changed_its_file_is_told_as_moved() -> None:
    moved = [edit("src/cart.py", TOTAL, ""), edit("src/money/sums.py", "", TOTAL)]
    assert lines("yes", *moved, Stopped("Done."), source="relocated") == ["Moved `total` from `cart.py` to `sums.py`"]
    same_name = [edit("src/cart.py", TOTAL, ""), edit("src/money/cart.py", "", TOTAL)]
    assert lines("yes", *same_name, Stopped("Done."), source="relocated") == [
        "Moved `total` from `cart.py` to `money/cart.py`"
    ]


def test_faults_that_were_fixed_one_by_one_are_told_together() -> None:
    message = Stopped(
        "**Bug 1 — Wrong label of the cart**: it said Basket.\n\n**Bug 2 — Order of the rows**: they were not sorted."
    )
    assert lines("fix both", edit("src/cart.py"), message, source="faults") == [
        "Fixed: Wrong label of the cart; order of the rows"
    ]


def test_a_heading_that_names_the_work_is_told_with_what_came_of_it() -> None:
    message = Stopped(
        "## Rounding check for open orders\n\n**Changes:**\n- `shop close` now warns if the cents do not add up\n"
    )
    told = lines("can we add a check?", edit("src/cart.py"), message, source="headed")
    assert told[0] == "Rounding check for open orders: `shop close` now warns if the cents do not add up"


@pytest.mark.parametrize(
    "heading", ["Summary of Changes", "Step 2: the sums of rows", "Complete summary of this session"]
)
def test_a_heading_that_names_no_work_titles_nothing(heading: str) -> None:
    message = Stopped(f"## {heading}\n\n- `shop close` now warns if the cents do not add up\n")
    assert lines("can we add a check?", edit("src/cart.py"), message, source="headed") == []


def test_the_fault_a_reviewer_states_titles_its_fix() -> None:
    review = "The `sum_rows` helper in the cart never rounds the total, so orders are off by a cent. Please fix it."
    assert lines(review, edit("src/cart.py"), Stopped("Done."), source="fault")[:1] == [
        "Fixed bug: the `sum_rows` helper in the cart never rounds the total, so orders are off by a cent"
    ]
    assert lines(review, Stopped("I disagree."), source="fault") == []
    failing = bash("pytest tests", "1 failed", failed=True)
    assert lines(review, edit("src/cart.py"), failing, Stopped("Not yet."), source="fault") == []


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("No, it adds the rows first and rounds the sum.", "No: it adds the rows first and rounds the sum"),
        ("Currently, no. Only the sum is rounded, in `cart.py`.", "No: only the sum is rounded, in `cart.py`"),
    ],
)
def test_a_no_keeps_its_question(answer: str, expected: str) -> None:
    asked = "Does the cart round every row of an order?"
    assert lines(asked, Stopped(answer), source="verdict")[:1] == [f"{asked} {expected}"]


def test_a_yes_is_told_by_what_confirms_it() -> None:
    asked = "Does the cart round every row of an order?"
    confirmed = lines(asked, Stopped("Yes. The helper `sum_rows` rounds every row."), source="verdict")
    assert confirmed == ["The helper `sum_rows` rounds every row"]
    assert lines(asked, Stopped("Yes, an easy fix!"), source="verdict") == []


def test_the_cause_that_an_answer_names_is_called_a_cause() -> None:
    message = Stopped("## Root cause\n\nThe helper `sum_rows` rounds every row before the tax is added.\n")
    assert lines("why is the total wrong?", message, source="cause") == [
        "Root cause: the helper `sum_rows` rounds every row before the tax is added"
    ]
    unfinished = Stopped(
        "## Root cause\n\nThere are two kinds of rows in `cart.py`:\n- `Row` of an order\n- `Row` of a cart\n"
    )
    assert lines("why is the total wrong?", unfinished, source="cause") == [
        "Root cause: two kinds of rows in `cart.py`: `Row` of an order, `Row` of a cart"
    ]


def test_the_steps_under_an_approach_are_a_proposal() -> None:
    message = Stopped(
        "## Proposed refactor\n\n1. **Remove `total` from the cart**\n2. **Add a helper `sum_rows` to money**\n"
    )
    assert lines("could it move?", message, source="proposed")[0] == (
        "Proposed: remove `total` from the cart; add a helper `sum_rows` to money"
    )
    assert lines("move it", edit("src/cart.py"), message, source="proposed") == []


def test_an_offer_is_a_proposal_if_it_is_specific() -> None:
    offer = Stopped("It is rounded twice. Want me to remove the rounding from `sum_rows()`?")
    assert lines("why is it off?", offer, source="offered") == ["Proposed: remove the rounding from `sum_rows()`"]
    assert lines("why is it off?", Stopped("It is rounded twice. Want me to fix it?"), source="offered") == []


def test_what_it_now_does_is_told_of_the_only_file() -> None:
    message = Stopped("Done! Now it rounds the sum of the order, not every row.")
    assert lines("round once", edit("src/cart.py"), message, source="subjected") == [
        "`cart.py` now rounds the sum of the order, not every row"
    ]
    assert lines("round once", edit("src/cart.py"), edit("src/view.py"), message, source="subjected") == []


def test_a_lead_in_is_joined_with_the_items_that_end_its_sentence() -> None:
    message = Stopped("Changed `sum_rows()` to:\n- Add the rows first\n- Round the sum\n")
    assert lines("round once", edit("src/cart.py"), message, source="list")[0] == (
        "Changed `sum_rows()` to add the rows first, round the sum"
    )


def test_work_without_an_edit_is_told_in_the_words_of_the_request() -> None:
    rebased = bash("git rebase main", "Successfully rebased")
    asked = "please remove the cart commit and update the branch of the shop"
    assert lines(asked, rebased, Stopped("Done. The cart commit is gone from main."), source="wish") == [
        "Removed the cart commit and updated the branch of the shop"
    ]
    assert lines(asked, Stopped("Which commit?"), source="wish") == []


def test_tasks_that_an_earlier_turn_finished_are_not_told_again() -> None:
    def todo(content: str, status: str) -> dict[str, str]:
        return {"content": content, "status": status}

    old = [todo("Add the rounding", "completed"), todo("Sort the rows", "completed")]
    new = [*old, todo("Add a test of the rounding", "completed")]
    listed = ToolUsed(name="TodoWrite", input={"todos": new}, output={"oldTodos": old, "newTodos": new})
    evidence = gather_evidence(turn("can we add a test?", edit("tests/test_cart.py"), listed, Stopped("Done.")))
    assert [task.subject for task in evidence.tasks] == ["Add a test of the rounding"]


def test_files_that_come_and_go_in_a_trial_title_nothing() -> None:
    trial = bash("rm shop/settings.json && shop start", "started")
    story = build_story(turn("it still shows the notice", trial, Stopped("It works now.")))
    (moved,) = [one for one in candidates.candidates(story) if one.source == "moved" and not one.placed]
    assert ranking.sureness(moved, story) == 0


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The fix adds a rounding to the sum of an order", "Added a rounding to the sum of an order"),
        ("The issue is that rows are rounded twice", "Problem: rows are rounded twice"),
        ("The fix should be: round the sum once", "Proposed fix: round the sum once"),
        ("I think `sum` is better here", "`sum` is better here"),
        ("Looking at `sum_rows()`, I can see that yes, both are rounded", "In `sum_rows()`, both are rounded"),
    ],
)
def test_the_point_of_a_sentence_is_told_without_its_wrapping(sentence: str, expected: str) -> None:
    assert prose.as_title(sentence) == expected


def test_a_sentence_knows_its_bold_words() -> None:
    (one,) = markdown.read("The rows are **not rounded** and **never were rounded** here.")
    assert one.strong == "never were rounded"


def test_small_changes_and_purposes_are_facts() -> None:
    swapped = edit("src/view.py", "timeout: 20m", "timeout: 45m")
    added = edit("src/cart.py", "", "# Returns the sum of all rows of an order.\ndef sum_rows(rows):\n    return 1\n")
    (record,) = compose_digest(turn("please", swapped, added, Stopped("Reworked the cart of the shop."))).observations
    texts = [fact.text for fact in record.facts]
    assert "Changed `timeout` from `20m` to `45m` in `view.py`" in texts
    assert "Added `sum_rows` in `cart.py`: returns the sum of all rows of an order" in texts
