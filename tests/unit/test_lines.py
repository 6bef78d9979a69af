"""Which titles are worth a line at a session's start, and how such a line reads."""

from __future__ import annotations

import pytest

from claude_mem.domain import mistakes
from claude_mem.domain.mistakes import KnownMistake
from claude_mem.inject import select
from claude_mem.inject.mistake_lines import is_about_work
from claude_mem.inject.select import group_work
from tests.support.growth import LIMIT, growth
from tests.unit.test_context import NOON, Row, _lines, _row, _turn

from claude_mem.inject.brief import ProjectMemory, render_brief  # isort: skip


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
        ("Moved `ring()`, `sum_up()` and 6 more from `till.py` to `bell.py`", "Moved `ring()` and `sum_up()` from `till.py` to `bell.py`"),
        ("Deleted `ring()`, `sum_up()` and 2 more files from the cellar", "Deleted `ring()`, `sum_up()` and 2 more files from the cellar"),
        ("Refused orders without an address in till.py - An order without an address passes through", "Refused orders without an address in till.py"),
        ("Use cents - not floats", "Use cents - not floats"),
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
        "Implemented: Redesign of the order page as a table",  # the title of a plan that was carried out
        "Implemented: Multi-drawer support (till.py)",
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
        "Updated the `TillTotal` comment which had a similar mistake",
        "Added a defensive handling when the drawer opens",
        "Fixed two issues in `open_till` and `close_till` of the till",
        "Fixed P1 #2: the drawer of the till opens twice",
        "Changed “…” to have a check mark in front of the till",
        "The till is just a simpler version of the drawer",
        "Summary of the review of all `open_till()` calls",
        "The `till open` command now",
        "The `drawer` field of the till is still used for (till.py)",
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


@pytest.mark.parametrize(
    "line",
    [
        "`close_till()` could never be called before `open_till()` by the web shop",  # an idea
        "`TillMetadata` is no longer used in the code of the shop",  # the next turn removed it
        "GitHub's merge API doesn't keep trailers, and that's what we'll live with",  # spoken
    ],
)
def test_a_finding_that_ends_with_its_conversation_is_not_told(line: str) -> None:
    assert not select.is_informative(line, finding=True)


@pytest.mark.parametrize(
    "line",
    [
        "Added `TillState` in `till.py`: contains what is known of a till",
        "Removed `open_till`, `close_till` and 2 more from `till.py`",
        'Changed "Cash" to "Coins" in `till.py`',
        "Updated `till.py` to call `drawer.open()` instead of its own function",
        "Added `till.Open()` to `setupDrawer` for consistency",
        "Added field drawer to the till; updated callers",
    ],
)
def test_a_detail_of_code_is_told_only_for_want_of_better_lines(line: str) -> None:
    assert select.is_detail(line)
    row = _row(1, line, type="change", files_modified=["till.py"])
    assert not select.is_informative_row(row)


@pytest.mark.parametrize(
    "line",
    [
        "Added `--trust` to the arguments of the till",
        "Added JSON report import feature to the web shop",
        "Added PostHog telemetry for the usage of the till",
        "Removed the `till open` command",
        "Updated the layout of the header bar",
    ],
)
def test_a_change_that_people_notice_is_no_detail(line: str) -> None:
    assert not select.is_detail(line)


def test_several_details_of_work_on_many_files_are_told() -> None:
    title = "Added TillState struct to the ledger; added drawers to the receipts of the shop"
    row = _row(1, title, type="feature", files_modified=["till.py", "drawer.py", "receipt.py"])
    assert select.is_informative_row(row)


@pytest.mark.parametrize(
    ("title", "line"),
    [
        ("Problem: The till was opened twice", "Fixed: the till was opened twice"),
        ("Root cause: when the drawer is full, the till never opens", "Fixed: when the drawer is full, the till never opens"),
        ("`open_till()` was creating two drawers", "Fixed: `open_till()` was creating two drawers"),
        ("Fixed: `open_till()` is now called once", "`open_till()` is now called once"),
        ("The till opens once", "The till opens once"),
    ],
)  # fmt: skip
def test_a_fault_that_was_fixed_is_told_as_fixed(title: str, line: str) -> None:
    assert (
        select.title_line(_row(1, title, type="bugfix", files_modified=["till.py"], facts=["`make test` passes"]))
        == line
    )


def test_a_fault_that_nobody_fixed_stays_a_fault() -> None:
    assert select.title_line(_row(1, "Problem: the till was opened twice", type="discovery")).startswith("Problem: ")


def test_a_discovery_does_not_stand_for_the_work_before_it() -> None:
    same: Row = {"session_id": 7, "files_modified": ["src/till.py"], "prompt_number": 1}
    found = {**same, "type": "discovery", "files_modified": [], "files_read": ["src/till.py"]}
    rows = [
        _row(1, "`till.State` never keeps the field of the drawer type", **found),
        _row(2, "Added `TillState` in `till.py`: contains what is known of a till", **{**same, "type": "feature"}),
    ]
    (piece,) = group_work(rows)
    assert piece.title["id"] == 2
    assert not piece.is_informative


def test_two_lines_of_a_session_about_the_same_are_one() -> None:
    same: Row = {"type": "change", "session_id": 1}
    rows = [
        _row(1, "Changed the telemetry default of the till to disabled", files_modified=["a.py"], **same),
        _row(2, "Changed telemetry of the till so that nothing set means disabled", files_modified=["b.py"], **same),
    ]
    pieces = [select.PieceOfWork(row, (), (NOON, row["id"]), 1) for row in rows]
    assert len(select.choose_work(pieces, most=9)) == 1


def test_work_longer_ago_than_a_few_pieces_is_left_to_search() -> None:
    rows = [_row(n, f"Added counter{n} to the entrance of hall{n}", type="feature") for n in range(1, 30)]
    told = [line for line in _lines(ProjectMemory("shop", recent=rows), budget=2000) if line[0].isdigit()]
    assert len(told) == select.MAX_WORK_LINES


def test_a_title_that_tells_little_gives_way_to_those_that_tell_more() -> None:
    weak = [_row(n, f"Added `paint{n}` to the drawer of can{n} and hall{n}") for n in range(1, 9)]
    strong = [_row(n, f"Added counter{n} to the entrance of hall{n}") for n in range(20, 20 + select.MIN_WORK_LINES)]
    told = [line for line in _lines(ProjectMemory("shop", recent=[*weak, *strong])) if line[0].isdigit()]
    assert len(told) == select.MIN_WORK_LINES
    assert not any("drawer" in line for line in told)
    few = [line for line in _lines(ProjectMemory("shop", recent=[*weak, *strong[:2]])) if line[0].isdigit()]
    assert len(few) == select.MIN_WORK_LINES, "a young project has nothing better"
    talk = [_row(n, f"The drawer is now painted as paint{n} of can{n}", type="discovery") for n in range(1, 9)]
    assert not [line for line in _lines(ProjectMemory("shop", recent=talk)) if line[0].isdigit()]


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
        ("Run tests and lint after all changes", False),
        ("Embedded files vs inline strings?", False),
        ("Which colour should the doors have?", True),
        ("Proceed with the drawer, or leave it as it is (awaiting go-ahead)", False),
        ("Not confirmed yet: Give the till another try", False),
    ],
)
def test_a_step_is_open_only_with_its_subject_and_if_it_is_one(step: str, is_open: bool) -> None:
    turns = [_turn(next_steps=step, created_at=NOON)]
    assert bool(list(select.find_open_steps(turns, [], sessions=3))) == is_open


def test_what_a_turn_left_open_is_not_open_once_the_work_went_on() -> None:
    turns = [
        _turn(2, request="Paint the doors", files_edited=["src/door.py"]),
        _turn(1, next_steps="Refuse vouchers that have expired", created_at=NOON - 9),
    ]
    assert not list(select.find_open_steps(turns, [], sessions=3))
    turns[0]["files_edited"] = []
    assert list(select.find_open_steps(turns, [], sessions=3)), "only a question came after it"


def test_an_offer_ends_with_its_session() -> None:
    offer = _turn(
        1, session_id=1, next_steps="Create the pull request of the vouchers (awaiting go-ahead)", created_at=NOON - 9
    )
    assert list(select.find_open_steps([offer], [], sessions=3))
    assert not list(select.find_open_steps([_turn(2, session_id=2), offer], [], sessions=3))


@pytest.mark.parametrize(
    ("request_", "line"),
    [
        ("can you add a standard MIT license?", "Add a standard MIT license"),
        ("let's include the drawer in the receipt", "Include the drawer in the receipt"),
        ("The drawer does not open when the till is full", "The drawer does not open when the till is full"),
    ],
)
def test_a_request_is_told_without_its_politeness(request_: str, line: str) -> None:
    assert select.format_request(request_) == line


@pytest.mark.parametrize(
    "request_",
    [
        "can we change “…” to something shorter",
        "I got this feedback for the changes in till.py",
        "can you take a look at this?",
        "Remove the first two",
        "If we would remove the drawer, would that change anything?",
        "yes please, update the documentation",
        "looking at the till it currently has two drawers",
    ],
)
def test_a_request_that_needs_its_conversation_is_not_told(request_: str) -> None:
    assert not select.is_clear_request(select.format_request(request_))


def test_the_remark_about_an_outcome_is_that_of_the_work_in_the_title() -> None:
    same: Row = {"session_id": 1, "files_modified": ["src/till.py"]}
    rows = [
        _row(1, "The drawer of the till", type="discovery", prompt_number=2, **same),
        _row(2, "Added counters to the entrance of the hall", type="feature", prompt_number=1, **same),
    ]
    turns = [
        _turn(3, session_id=2, request="Paint the doors"),
        _turn(2, session_id=1, prompt_number=2, outcome="proposed", created_at=NOON - 5),
        _turn(1, session_id=1, prompt_number=1, outcome="done", created_at=NOON - 9),
    ]
    (line,) = (line for line in _lines(ProjectMemory("shop", recent=rows, turns=turns)) if "counters" in line)
    assert "not carried out" not in line


def test_a_proposal_after_work_does_not_change_how_the_session_ended() -> None:
    turns = [_turn(2, outcome="proposed"), _turn(1, outcome="done", created_at=NOON - 9)]
    assert select.session_outcome(turns) == "done"
    assert select.session_outcome(turns[:1]) == "proposed"


def test_a_plan_that_was_carried_out_in_its_session_is_not_pending() -> None:
    plan = _row(
        2, "Proposed: `till.py` gets a drawer that must never open twice", type="discovery", verdict=None, session_id=2
    )
    turns = [_turn(2, session_id=2, outcome="proposed", created_at=plan["created_at"])]
    assert any("Proposed" in line for line in _lines(ProjectMemory("shop", recent=[plan], turns=turns)))
    later = [_turn(3, session_id=2, files_edited=["till.py"], created_at=plan["created_at"] + 9), *turns]
    assert not any("Proposed" in line for line in _lines(ProjectMemory("shop", recent=[plan], turns=later)))


def test_a_session_that_leaves_nothing_to_tell_has_no_heading() -> None:
    turns = [_turn(1, request="yes", outcome="done")]
    text = render_brief(ProjectMemory("shop", recent=[_row(1, session_id=9)], turns=turns), budget_tokens=800)
    assert "Last session" not in text
    turns = [_turn(1, request="yes", outcome="failed")]
    text = render_brief(ProjectMemory("shop", recent=[_row(1, session_id=9)], turns=turns), budget_tokens=800)
    assert "Last session (2023-11-14): failed" in text


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


@pytest.mark.parametrize(
    "title",
    [
        "Improved Till Prompt Quality",
        "Drawer Security Fix",
        "Added a single retry (till.yaml)",
        "Core Changes: `shop/till.py`, `shop/drawer.py` and `ring()`",
        "Replaced the placeholder path with the logo of the shop",
        "Increased the visibility of the sums on the receipt",
        "The orders of each customer are now sorted alphabetically by their street",
        "Removed `ring`, `sum_up` and 1 more from `test_till.py`",
    ],
)
def test_a_title_without_content_is_not_worth_a_line(title: str) -> None:
    assert not select.is_informative_row(_row(1, title, type="feature"))


def test_a_title_without_content_is_told_with_the_parts_of_the_work() -> None:
    facts = ["Larger header text: raised the size", "Link on the sum: it leads to the receipt"]
    line = select.title_line(_row(1, "Improved Past Receipts UI (till.tsx)", type="feature", facts=facts))
    assert line == "Improved Past Receipts UI: larger header text, link on the sum"


def test_a_fault_that_was_only_made_easier_to_find_is_not_told_as_fixed() -> None:
    facts = ["`make test` passes", "Next time the till fails, you'll see why"]
    row = _row(1, "Problem: the till was opened twice", type="bugfix", files_modified=["till.py"], facts=facts)
    assert select.title_line(row) == "Worked on: the till was opened twice"


def test_a_fault_of_which_nothing_says_that_it_is_gone_is_told_only_while_there_is_little_else() -> None:
    fault = _row(1, "Problem: the till was never closed at night by the robot", type="bugfix")
    assert [line for line in _lines(ProjectMemory("shop", recent=[fault])) if "Worked on: the till" in line]
    others = [_row(n, f"Added counter{n} to the entrance of hall{n}") for n in range(2, 2 + select.MIN_WORK_LINES)]
    assert not [line for line in _lines(ProjectMemory("shop", recent=[fault, *others])) if "robot" in line]


def _feature(number: int, title: str, **more: Row) -> Row:
    return _row(number, title, type="feature", files_modified=["src/till.py"], **more)


def test_later_work_on_the_same_takes_the_place_of_earlier_work() -> None:
    earlier = _feature(9, "Redesigned the printed receipt of the till as a table")
    later = _feature(1, "Redesigned the printed receipt of the till as a list with sums")
    between = [_row(n, f"Added counter{n} to the entrance of hall{n}") for n in (3, 4, 5)]
    (piece,) = (
        piece for piece in group_work([later, *between, earlier]) if "receipt" in select.title_line(piece.title)
    )
    assert (piece.title, piece.others) == (later, (earlier,))
    assert piece.session_id == earlier["session_id"], "another place would displace a second line"
    elsewhere = later | {"files_modified": ["src/web.py"]}
    pieces = group_work([elsewhere, *between, earlier])
    assert len([piece for piece in pieces if "receipt" in select.title_line(piece.title)]) == 2


def test_work_that_was_undone_gives_way_to_what_undid_it() -> None:
    taken_out = _feature(9, "Fixed: The till asks for the address twice", facts=["Removed `address: street` from it"])
    put_in = _row(1, "Fixed: Orders were sent without a street", facts=["Added `address: street` to the order"])
    between = [_row(n, f"Added counter{n} to the entrance of hall{n}") for n in (3, 4, 5)]
    told = "\n".join(_lines(ProjectMemory("shop", recent=[put_in, *between, taken_out])))
    assert "without a street" in told
    assert "address twice" not in told


def test_what_the_user_chose_gives_way_to_nothing() -> None:
    earlier = _feature(9, "Redesigned the printed receipt of the till as a table", verdict="approved")
    later = _feature(1, "Redesigned the printed receipt of the till as a list with sums")
    between = [_row(n, f"Added counter{n} to the entrance of hall{n}") for n in (3, 4, 5)]
    assert len(group_work([later, *between, earlier])) == 5


def test_work_that_the_last_session_continued_is_told_by_what_that_session_did() -> None:
    begun = _feature(9, "Added vouchers to the till of the shop", commit_id="a1", session_id=1)
    went_on = _feature(1, "Added expiry dates to vouchers of the till", session_id=2)
    moved = _row(
        1, "Moved the vouchers of the till to a shelf", type="change", session_id=2, files_modified=["src/till.py"]
    )
    (piece,) = group_work([went_on, begun], newest_session=2)
    assert piece.title == went_on
    (piece,) = group_work([went_on, begun])
    assert piece.title == begun, "of work long ago, the most important part is told"
    (piece,) = group_work([moved, begun], newest_session=2)
    assert piece.title == begun, "a lesser kind of work does not name a feature"


def test_what_a_session_was_asked_is_told_only_if_it_edited_nothing() -> None:
    talk = _turn(request="Compare the ledgers of both shops")
    assert "Asked: Compare the ledgers of both shops" in _lines(ProjectMemory("shop", turns=[talk]))
    work = _turn(request="Compare the ledgers of both shops", files_edited=["src/till.py"])
    assert not [line for line in _lines(ProjectMemory("shop", turns=[work])) if "Asked" in line]


def test_a_better_line_displaces_one_weak_line() -> None:
    """Also the weak line that stands for the last session while it has nothing better."""
    of_last = [_row(n, f"Repainted door{n}", session_id=1, prompt_number=90 - 9 * n) for n in (2, 3)]
    weak = [_row(n, f"Repainted roof{n}") for n in range(20, 25)]
    better = _row(1, "Added counters to the entrance of the hall", session_id=1, prompt_number=99)
    turns = [_turn(files_edited=["src/till.py"])]
    before = set(_lines(ProjectMemory("shop", recent=[*of_last, *weak], turns=turns)))
    after = set(_lines(ProjectMemory("shop", recent=[better, *of_last, *weak], turns=turns)))
    assert (len(after - before), len(before - after)) == (1, 1)


@pytest.mark.parametrize(
    ("key", "kind", "is_told"),
    [
        ("cat -A", mistakes.OPTION, False),
        ("wrap bun", mistakes.PROGRAM, True),
        ("src/till.py", mistakes.PATH, False),
    ],
)
def test_mistakes_in_reading_files_are_not_told_at_the_start(key: str, kind: str, is_told: bool) -> None:
    assert is_about_work(KnownMistake(key, kind, 3, NOON)) is is_told
