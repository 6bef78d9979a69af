"""Which titles are worth a line at a session's start, and how such a line reads."""

from __future__ import annotations

import pytest

from claude_mem.inject import select
from claude_mem.inject.select import group_work
from tests.support.growth import LIMIT, growth
from tests.unit.test_context import NOON, Row, _lines, _row, _turn

from claude_mem.inject.brief import ProjectMemory  # isort: skip


@pytest.mark.parametrize(
    ("title", "line"),
    [
        ("Redesigned the order page: The list was rebuilt: Groups by day, Sums", "Redesigned the order page"),
        ("Removed the `till open` command: Removed `open_till()`, Removed `ring()`", "Removed the `till open` command"),
        ("Added vouchers to the order form: Modified files (7): `a.py`, `b.py`", "Added vouchers to the order form"),
        ("Fixed the order page: show a message while it loads", "Fixed the order page: show a message while it loads"),
        ("`src/shop/till.py`: Changed the label of the drawer to Cash", "Changed the label of the drawer to Cash (till.py)"),
        ("The fix: `open_till()` waits for the drawer now", "`open_till()` waits for the drawer now"),
        ("Fix: Vouchers count twice in the basket", "Fixed: Vouchers count twice in the basket"),
        ("Is `ring()` still used? `ring()` is only called by the tests of the till", "`ring()` is only called by the tests of the till"),
        ("Added vouchers to the web shop (CHANGELOG.md)", "Added vouchers to the web shop"),
        ("Chose cents over floats", "Chose cents over floats"),
    ],
)  # fmt: skip
def test_a_line_reads_without_labels_and_enumerations(title: str, line: str) -> None:
    assert select.format_title(title) == line


def test_a_long_line_is_cut_between_clauses() -> None:
    title = (
        "Vouchers that have expired are refused by the till of the shop and by the web shop, because the ledger would"
        " otherwise count them twice, which nobody had noticed until the sums of a whole year were compared"
    )
    line = select.format_title(title)
    assert len(line) <= select.LINE_CHARS
    assert title.startswith(line)
    assert not line.endswith("…")
    assert title[len(line)] in ", "


def test_a_line_with_little_room_left_is_cut_between_clauses_too_but_a_persons_words_are_not() -> None:
    long = "Orders of the web shop are numbered by the till, so that the receipts of the counter and of the web agree with it"
    others = [_row(n, "Made two changes", session_id=1, files_modified=["src/basket1.py"]) for n in range(101, 105)]
    (line,) = (line for line in _lines(ProjectMemory("shop", recent=[_row(1, long), *others])) if "Orders" in line)
    assert "…" not in line
    note = (
        "Releases are signed in the cellar, because the machine there has the key of the shop and nobody else has one. "
        * 3
    )
    (line,) = (
        line for line in _lines(ProjectMemory("shop", recent=[_row(1, note, trust="user")])) if "Releases" in line
    )
    assert line.endswith("…"), "whoever wrote it sees that it goes on"


@pytest.mark.parametrize(
    "line",
    [
        "Added vouchers to the order form",
        "Fixed: Vouchers count twice in the basket",
        "`open_till()` waits until the drawer is closed",
        "Plan-First Remediation Pipeline",
        "Increased the timeout of the till from 20 to 45 seconds",
        "Orders below ten euros ship without insurance",
    ],
)
def test_a_line_that_names_a_thing_and_what_became_of_it_is_worth_its_place(line: str) -> None:
    assert select.is_informative(line)


@pytest.mark.parametrize(
    "line",
    [
        "The prompt is truncated to sixty characters",  # which one?
        "The simpler approach is to install from the path",
        "Fixed by replacing `a()` with `b()` in `till.py`",
        "Added to `open_till` in `till.py`",
        "Line 761: the label is Cash",
        "10 tasks covering the fields of the till",
        "Just the existing static text of the till",
        "Just checked how vouchers are counted in the till",
        "Added 2 tests `test_till`, `test_drawer` in `test_till.py`",
        "Updated the changelog to mention vouchers",
        "Fixed gofmt alignment in till.go",
        "Deleted `docs/color.md`",
        "Mise run lint fails",
        "PR created: vouchers for the till",
        "Vouchers of the till are now implemented",
        "The drawer will now show (till.py)",
        "Applied this approach to the vouchers of the till",
        "Vouchers are likely counted twice by the ledger",
        "I got these errors when the till was opened",
        "Till log [11:35:44.030] GET /till failed with an error",
        "AgentType: right there in the parameter list",
        "How are vouchers counted in the till?",
        "Changed `a()` → `b()` (till.py)",
        "The inline comment for DrawerLines is misleading",
    ],
)
def test_details_errands_guesses_and_what_points_back_are_not(line: str) -> None:
    assert not select.is_informative(line)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("`ListCommitted()` already parses the metadata that `ReadCommitted()` reads again", True),
        ("GitHub's merge API doesn't keep trailers of squashed commits in the message", True),
        ("`dupl` output shows file paths and line numbers for both sides", False),  # anyone sees that
        ("Archive logic of the till and merging of metadata without locks", False),  # begins with no name
    ],
)
def test_a_finding_is_told_if_it_begins_with_its_subject_and_could_not_be_guessed(line: str, told: bool) -> None:
    assert select.is_informative(line, finding=True) == told


def test_a_title_that_tells_little_gives_way_to_those_that_tell_more() -> None:
    weak = [_row(n, f"The drawer is now painted as paint{n} of can{n}") for n in range(1, 9)]
    strong = [_row(n, f"Added counter{n} to the entrance of hall{n}") for n in range(20, 20 + select.MIN_WORK_LINES)]
    told = [line for line in _lines(ProjectMemory("shop", recent=[*weak, *strong])) if line[0].isdigit()]
    assert len(told) == select.MIN_WORK_LINES
    assert not any("drawer" in line for line in told)
    few = [line for line in _lines(ProjectMemory("shop", recent=[*weak, *strong[:2]])) if line[0].isdigit()]
    assert len(few) == select.MIN_WORK_LINES, "a young project has nothing better"


def test_of_a_piece_of_work_the_best_title_is_told() -> None:
    same: Row = {"session_id": 7, "files_modified": ["src/till.py"], "type": "feature"}
    rows = [
        _row(1, "The fix is in `till.py` for all of them", prompt_number=3, **same),
        _row(2, "Added a drawer to the till of the web shop", prompt_number=2, **same),
        _row(3, "Made two changes", prompt_number=1, **same),
    ]
    (piece,) = group_work(rows)
    assert piece.title["id"] == 2


def test_what_was_found_before_the_work_does_not_stand_for_it() -> None:
    same: Row = {"session_id": 7, "files_modified": ["src/till.py"]}
    found = {"type": "discovery", "files_modified": [], "files_read": ["src/till.py"], "session_id": 7}
    rows = [
        _row(1, "Added to `open_till` in `till.py`", prompt_number=2, type="feature", **same),
        _row(2, "`till.State` never keeps the field of the drawer type", prompt_number=2, **found),
    ]
    (piece,) = group_work(rows)
    assert piece.title["id"] == 1
    assert not piece.is_informative
    (piece,) = group_work(rows[1:])
    assert piece.is_informative, "nothing was done about it"


@pytest.mark.parametrize(
    ("step", "is_open"),
    [
        ("Refuse vouchers that have expired", True),
        ("`pytest tests/test_till.py` fails: KeyError: 'cash'", True),
        ("Decide: Refuse expired vouchers; Warn about them", True),
        ("Create the pull request of the voucher branch (awaiting go-ahead)", True),
        ("Negative prices are still accepted without a word", True),
        ("Not tried by hand yet: Manual: open the till and ring", False),
        ("Verify that vouchers are refused when they have expired", False),
        ("Consider a comment on the vouchers", False),
        ("Proceed with all three locations using this approach (awaiting go-ahead)", False),
        ("`till.py`: Vouchers have no context", False),
        ("Question: Is there something different you'd like?", False),
        ("Vouchers could be cached by the ledger", False),
        ("Reviewer - Inlined the voucher helpers", False),
    ],
)
def test_a_step_is_open_only_with_its_subject_and_if_it_is_one(step: str, is_open: bool) -> None:
    turns = [_turn(next_steps=step, created_at=NOON)]
    assert bool(list(select.find_open_steps(turns, [], sessions=3))) == is_open


def test_work_that_is_not_done_says_so() -> None:
    rows = [_row(n, f"Added counter{n} to the entrance of hall{n}", type="feature") for n in (1, 2, 3)]
    turns = [_turn(n, session_id=n, outcome=end) for n, end in ((1, "done"), (2, "failed"), (3, "partly"))]
    told = [line for line in _lines(ProjectMemory("shop", recent=rows, turns=turns)) if line[0].isdigit()]
    assert [line.partition(" — ")[2] for line in told] == ["", "failed", "partly done"]


def test_a_plan_is_told_until_another_session_has_come() -> None:
    plan = _row(2, "Planned: a drawer for the till of the web shop", type="discovery", verdict=None)
    plan["title"] = "Proposed: `till.py` gets a drawer that must never open twice"
    turns = [_turn(2, session_id=2, outcome="proposed")]
    assert any("Proposed" in line for line in _lines(ProjectMemory("shop", recent=[plan], turns=turns)))
    later = [_turn(3, session_id=1, created_at=NOON + 9), *turns]
    assert not any("Proposed" in line for line in _lines(ProjectMemory("shop", recent=[plan], turns=later)))


def test_an_answer_after_work_does_not_change_how_the_session_ended() -> None:
    turns = [_turn(2, outcome="answered"), _turn(1, outcome="done", created_at=NOON - 9)]
    assert select.session_outcome(turns) == "done"
    assert select.session_outcome([_turn(3, outcome="failed"), *turns]) == "failed"
    assert select.session_outcome(turns[:1]) == "answered"


@pytest.mark.parametrize(
    "unit", ["`a`, ", "a: ", "Added `x`, ", "the ", "a b? ", "; `a`", "(a.py) ", "fix: ", "Fix the till: "]
)
def test_shaping_a_request_takes_time_in_proportion_to_its_length(unit: str) -> None:
    assert growth(select.format_request, unit * 2_000) <= LIMIT
    assert growth(select.is_open_step, unit * 2_000) <= LIMIT
