"""The gate for titles: what names something passes in any language; chat, status and fragments do not."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_mem.digest.titles import is_presentable

GOOD = [
    "Fix the total of an empty price list",
    "validate agent UUID and generate safe fallback",
    "Chose cents over floats: floats lose the last digit",
    "Removed `paths.SessionMetadataDir`",
    "The `actualHumanRemoved` count now includes deleted files",
    "This class keeps the lease of a job",
    "That cache is shared by all workers",
    "IT department accounts are created by the sync job",
    "Right-align the totals in the basket",
    "No-op commits are skipped by the hook",
    "Users stay logged in after they log in",
    "Telemetry is an opt in",
    "Orders are numbered from one hundred on",
    "Which colour should the doors have?",
    "Done flag is set after the flush",
    "Added tags",
    "The filter `a | b | c` is read from the left",
    "A `||` between two lists joins them",
    "Upgrade sqlite to 3.50",
    "`rtk bun run test` still fails: error: unrecognized subcommand 'bun'",
    "合計の丸めを最後に一度だけ行う",
    "空のかごの合計を修正",
    "Die Summe wird erst am Ende gerundet",
    "Der Worker teilt dem Hook den Status mit",
    "Сумма округляется один раз в конце",
    "Le total d'un panier vide est zéro",
    "합계는 마지막에 한 번만 반올림한다",
    "يتم تقريب المجموع مرة واحدة",
    "The tests pass a temporary HOME to every hook",
    "Can we track the branch in metadata.json?",
]
CHAT = [
    "Done", "Perfect!", "Great!", "Yes", "yes and yes", "1", "2.", "1 and 2", "lgtm", "LGTM!", "continue", "go on", "ok", "ship it",
    "Looks good to me", "Perfect! Now I have a clear picture", "Good, I now have a clear picture", "You were absolutely right",
    "You're right to ask - the branch is shared", "Let me look at the basket", "Let's see what the basket does",
    "I'll rewrite the parser now", "Good catch, the basket was empty", "Also added two helper functions",
    "But the working tree might be clean now", "Here's a summary of the basket changes", "Want me to fix the basket that way?",
    "Now let me run the basket", "No, there are no direct tests for the basket",
]  # fmt: skip
STATUS = [
    "All tests pass", "All tests pass and the linter is happy", "All 1351 tests pass, lint is clean", "The fix is complete and all tests pass",
    "Ready to commit or merge", "All changes are complete and verified", "The implementation is complete", "Build succeeded",
    "All PR review comments have been addressed", "Both issues have been addressed", "Replied to all 4 comments",
    "All docs-finder tests pass", "The PR is ready to merge", "Everything works as expected", "The commit went through successfully", "The changes are staged and ready",
    "Both files have been updated successfully",
]  # fmt: skip
FRAGMENTS = [
    "| |------|---------------------| | `UserPromptSubmit` | No - just captures initial state | | `PreTask` | Before",
    "Are the review comments still valid? | 5 | Copilot | `GetOrCreateID` does not validate its argument |",
    "| Comment | Status | Commit |",
    "", "   ", "…", "!!!", "🎉🎉 🎉", "Added one focused test that", "Now the output will look like", "The summary of the basket:",
    "The basket is rounded when…", "Created the shared module with", "The basket field is still used for", "The basket and the",
    'Wrap the prompt in "', "Removed the regex (and the functions", "Changed `basket", "The basket is in", "Files: `basket.py`",
    "File: src/basket.py:181", "Location: `basket.py:252-284`", "<thinking> Looks like there are some tool issues", "basket.py",
    "はい", "続けて：",
]  # fmt: skip
PRONOUNS = [
    "It now keeps the basket in cents", "It's called in several baskets", "They are rounded at the end", "This gives the user feedback",
    "This is the basket of the user", "These will catch any regression in baskets", "That's why the basket was empty",
    "Now it reads as `basket.Total`", "This fixes the basket", "This now returns zero",
]  # fmt: skip


@pytest.mark.parametrize("title", GOOD)
def test_a_title_that_names_something_passes_in_any_language(title: str) -> None:
    assert is_presentable(title)


@pytest.mark.parametrize("title", [*CHAT, *STATUS, *FRAGMENTS, *PRONOUNS])
def test_what_says_nothing_alone_does_not_pass(title: str) -> None:
    assert not is_presentable(title)


@given(st.text())
def test_any_text_is_judged_the_same_however_it_is_spaced(text: str) -> None:
    assert is_presentable(text) == is_presentable(f"\n {text}\t ")


@pytest.mark.parametrize(
    "piece",
    ["a", "a ", "`", "(", "it's ", "a.b/", "漢", "a_", "'s", "all test ", ".", "\t", "Perfect! ", "-", "…", "a’"],
)
@pytest.mark.parametrize("before", ["", "Files: ", "All tests "])
def test_the_time_grows_with_the_length_only(before: str, piece: str) -> None:
    text = before + (piece * 200_000)[:200_000]
    begin = time.thread_time()
    is_presentable(text)
    assert time.thread_time() - begin < 2, "a quadratic step would take minutes"
