"""What counts as a use of an injected item, what is learnt from it, and how lift and effect are estimated."""

from __future__ import annotations

import random
from typing import Any

import pytest

from claude_mem.digest.compress import measure_reading
from claude_mem.digest.uses import find_uses, read_actions
from claude_mem.domain.records import Body, Prompted, Stopped, ToolUsed, Turn
from claude_mem.domain.uses import MAX_FACTOR, MIN_FACTOR, ShownItem, Use, UseCounts
from claude_mem.domain.worth import (
    MIN_MOMENTS,
    MIN_SESSIONS,
    Moment,
    SessionUses,
    estimate_effect,
    estimate_lift,
)
from claude_mem.inject.worth import Holdout
from claude_mem.storage.sqlite.deletion.keyed_hash import make_keyed_hash

ROOT = "/home/dev/shop"
TITLE = "Basket totals rounded half even at the very end by `round_basket`"


def turn_of(*bodies: Body) -> Turn:
    """A turn whose events are one second apart, beginning at 1,000."""
    return Turn(
        id=1, session_id=1, project_id=1, number=1, prompt="", root=ROOT, started_at=1_000,
        ended_at=1_000 * len(bodies), bodies=bodies, seqs=tuple(range(1, len(bodies) + 1)),
    )  # fmt: skip


def uses_of(item: ShownItem, *bodies: Body) -> set[Use]:
    turn = turn_of(*bodies)
    return {use.use for use in find_uses(read_actions(turn, {seq: 1_000 * seq for seq in turn.seqs}), [item])}


def item(name: str = "o1", *, at: int = 1_000, trigger: str = "prompt", **fields: Any) -> ShownItem:
    return ShownItem(injection_id=7, name=name, trigger=trigger, at=at, **fields)


def tool(name: str, **given: Any) -> ToolUsed:
    return ToolUsed(name, given, "")


ASK = Prompted("Please look at the rounding")
READ = tool("Read", file_path=f"{ROOT}/src/basket.py")
EDIT = tool("Edit", file_path=f"{ROOT}/src/basket.py", old_string="a", new_string="b")
BASKET = frozenset({"src/basket.py"})


@pytest.mark.parametrize(
    ("body", "use"),
    [
        (READ, Use.OPENED),
        (tool("Bash", command="sed -n 1,40p src/basket.py"), Use.OPENED),
        (EDIT, Use.EDITED),
        (tool("Read", file_path=f"{ROOT}/src/other.py"), Use.NONE),
        (tool("mcp__mem__get_observations", ids=[1]), Use.FETCHED),
        (tool("mcp__mem__get_observations", ids=[2]), Use.NONE),
        (tool("Bash", command="cd x && make dist"), Use.RAN),
        (tool("Bash", command="make test"), Use.NONE),
        (Stopped("As basket totals rounded half even are expected, nothing is to be done."), Use.QUOTED),
        (tool("Grep", pattern="round_basket"), Use.QUOTED),
        (Stopped("At the very end, once, it is done."), Use.NONE),
    ],
)
def test_what_a_session_does_afterwards_shows_the_use(body: Body, use: Use) -> None:
    memory = item(text=TITLE, files=BASKET, commands=frozenset({"make dist"}))
    assert uses_of(memory, ASK, body) == {use}


def test_what_was_done_before_does_not_count() -> None:
    assert uses_of(item(files=BASKET, at=2_500), ASK, READ, Stopped("Done.")) == {Use.NONE}
    assert uses_of(item(files=BASKET, at=2_500), ASK, READ, READ) == {Use.OPENED}


def test_an_item_that_was_shown_after_the_turn_is_not_judged() -> None:
    assert uses_of(item(files=BASKET, at=9_000), ASK, READ) == set()


def test_a_file_that_was_about_to_be_opened_anyway_does_not_count() -> None:
    about = item(trigger="file", about="src/basket.py", files=BASKET | {"src/cart.py"})
    assert uses_of(about, ASK, READ, EDIT) == {Use.NONE}
    assert uses_of(about, ASK, READ, tool("Edit", file_path=f"{ROOT}/src/cart.py")) == {Use.EDITED}


def test_words_of_the_prompt_are_not_quoted_from_memory() -> None:
    asked = Prompted("Are basket totals rounded half even at the very end by round_basket?")
    assert uses_of(item(text=TITLE), asked, Stopped("Yes: basket totals rounded half even.")) == {Use.NONE}


WARNING: dict[str, Any] = {"name": "call:rtk bun", "warned": "rtk bun", "commands": frozenset({"bun run test"})}
WRONG, RIGHT = tool("Bash", command="rtk bun run test"), tool("Bash", command="bun run test")
FAILS = ToolUsed("Bash", {"command": "rtk bun run test"}, "error: unrecognized subcommand 'bun'", failed=True)
GIT = tool("Bash", command="rtk git status")


@pytest.mark.parametrize(
    ("trigger", "bodies", "uses"),
    [
        ("start", (RIGHT,), {Use.RAN, Use.AVOIDED}),
        ("start", (GIT,), {Use.AVOIDED}),
        ("start", (FAILS, RIGHT), {Use.REPEATED}),
        ("start", (READ,), {Use.NONE}),
        ("start", (WRONG,), {Use.CONTRADICTED}),
        ("command", (FAILS, RIGHT), {Use.RAN, Use.AVOIDED}),  # the line came before the first of them
        ("command", (FAILS, FAILS), {Use.REPEATED}),
    ],
)
def test_a_warning_is_followed_contradicted_or_ignored(trigger: str, bodies: tuple[Body, ...], uses: set[Use]) -> None:
    assert uses_of(item(trigger=trigger, **WARNING), ASK, *bodies) == uses


def test_a_rule_is_followed_if_the_call_is_not_made_again() -> None:
    rule = item("rule:3", trigger="command", rule="Never run `npm`")
    npm, pnpm = tool("Bash", command="npm install"), tool("Bash", command="pnpm install")
    assert uses_of(rule, ASK, npm, pnpm) == {Use.AVOIDED}
    assert uses_of(rule, ASK, npm, npm) == {Use.REPEATED}


# --- what is learnt --------------------------------------------------------------------------------------------------


def test_one_session_says_little_and_the_factor_is_bounded() -> None:
    assert UseCounts().factor == pytest.approx(1)
    assert 0.9 < UseCounts(shown=1).factor < 1 < UseCounts(shown=1, used=1).factor < 1.1
    assert MIN_FACTOR < UseCounts(shown=10_000).factor < UseCounts(shown=10_000, used=10_000).factor < MAX_FACTOR


def test_an_item_leaves_after_eight_vain_injections_and_comes_back_with_one_use() -> None:
    assert [UseCounts(shown=count).is_never_used for count in (0, 7, 8, 50)] == [False, False, True, True]
    assert not UseCounts(shown=50, used=1).is_never_used


# --- lift and effect -------------------------------------------------------------------------------------------------


def sessions(count: int, *, own: float, others: float) -> list[SessionUses]:
    draw = random.Random(4)

    def used(share: float) -> int:
        return sum(draw.random() < share for _ in range(10))

    return [SessionUses(10, used(own), [used(others) for _ in range(5)]) for _ in range(count)]


def test_the_lift_is_found_where_it_is_and_not_where_it_is_not() -> None:
    lift = estimate_lift(sessions(40, own=0.6, others=0.2))
    assert lift.difference.low is not None
    assert lift.difference.high is not None
    assert lift.p is not None
    assert lift.difference.low < 0.4 < lift.difference.high
    assert lift.p < 0.01
    none = estimate_lift(sessions(40, own=0.3, others=0.3))
    assert none.difference.low is not None
    assert none.difference.high is not None
    assert none.p is not None
    assert none.difference.low < 0 < none.difference.high
    assert none.p > 0.05
    assert estimate_lift(sessions(40, own=0.6, others=0.2)) == lift, "equal data, equal figures"


def test_a_lift_of_few_sessions_is_not_claimed() -> None:
    lift = estimate_lift(sessions(MIN_SESSIONS - 1, own=1, others=0))
    assert (lift.own, lift.p, lift.difference.value) == (None, None, None)
    assert (lift.difference.samples, lift.difference.needed) == (MIN_SESSIONS - 1, MIN_SESSIONS)


def moments(count: int, *, spoken: float, silent: float, holdout: float = 0.5) -> list[Moment]:
    draw = random.Random(2)
    kinds = [draw.random() < holdout for _ in range(count)]
    return [
        Moment(str(place // 2), holdout, is_silent, float(draw.random() < (silent if is_silent else spoken)))
        for place, is_silent in enumerate(kinds)
    ]


def test_the_effect_of_speaking_is_found_where_it_is() -> None:
    effect = estimate_effect(moments(400, spoken=0.6, silent=0.3))
    assert effect.low is not None
    assert effect.high is not None
    assert 0 < effect.low < 0.3 < effect.high
    none = estimate_effect(moments(400, spoken=0.4, silent=0.4))
    assert none.low is not None
    assert none.high is not None
    assert none.low < 0 < none.high


def test_a_changed_setting_does_not_bias_the_effect() -> None:
    """Early moments were often silent and seldom used in any case; late ones the other way round."""
    early = moments(4_000, spoken=0.2, silent=0.2, holdout=0.5)
    late = moments(4_000, spoken=0.8, silent=0.8, holdout=0.05)
    value = estimate_effect([*early, *late], rounds=100).value
    assert value is not None
    assert abs(value) < 0.08
    plain = [[one.outcome for one in (*early, *late) if one.is_silent == is_silent] for is_silent in (False, True)]
    assert sum(plain[0]) / len(plain[0]) - sum(plain[1]) / len(plain[1]) > 0.2, "without the weights"


def test_an_effect_of_few_moments_is_not_claimed() -> None:
    effect = estimate_effect(moments(60, spoken=1, silent=0, holdout=0.1))
    assert effect.value is None
    assert effect.samples < effect.needed == MIN_MOMENTS


def test_which_moments_are_silent_is_chance_but_stable(tmp_path: Any) -> None:
    def silent(share: float) -> list[bool]:
        holdout = Holdout(share, make_keyed_hash(tmp_path))
        return [holdout.is_silent("claude", f"s{number}", "prompt", "words") for number in range(2_000)]

    assert 150 < sum(silent(0.1)) < 250
    assert silent(0.1) == silent(0.1)
    assert not any(silent(0))
    assert all(more for more, less in zip(silent(0.3), silent(0.1), strict=True) if less), "more keeps what was silent"


# --- reading ---------------------------------------------------------------------------------------------------------


def test_characters_of_known_files_count_once_a_session() -> None:
    read = ToolUsed("Read", {"file_path": f"{ROOT}/src/basket.py"}, "x" * 100)
    other = ToolUsed("Read", {"file_path": f"{ROOT}/src/new.py"}, "x" * 30)
    reading = measure_reading(turn_of(ASK, read, other, read, EDIT, read), known_paths=["src/basket.py"])
    assert (reading.characters, reading.again_characters) == (330, 100)
    assert (reading.calls_before_edit, reading.characters_before_edit) == (3, 230)
    none = measure_reading(turn_of(ASK, read), known_paths=[])
    assert (none.again_characters, none.calls_before_edit) == (0, None)
