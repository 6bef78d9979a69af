"""A model may better a draft; it may not lose, delay or invent anything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from claude_mem.curate import refine_on_demand
from claude_mem.digest import refine, request
from claude_mem.digest.models import http
from claude_mem.digest.models.base import Reply, Request, SessionCallback, Usage, Verdict
from claude_mem.digest.models.fake import FakeModel
from claude_mem.digest.refine import ACTIONS, Action, breaker_pause_ms, session_to_resume
from claude_mem.domain import ids
from claude_mem.storage.journal_records import MAX_REFINE_ATTEMPTS, UNSEEN_VERDICTS, RefineAttempts
from claude_mem.storage.records import MemorySession
from claude_mem.storage.sqlite.journal import ledger, turns
from claude_mem.storage.sqlite.memory import edits, sessions
from claude_mem.worker import app
from tests.support.refining import GOOD, Place, place
from tests.worker.test_backfill import Old

Story = Callable[[Place], Coroutine[Any, Any, None]]


def run(folder: Path, story: Story, *models: Any, **given: str) -> None:
    async def main() -> None:
        async with place(folder, *models, settings=given) as here:
            await story(here)

    asyncio.run(main())


def failing(verdict: Verdict, message: str = "it says no", retry: float | None = None) -> Reply:
    return Reply(verdict=verdict, message=message, retry_seconds=retry)


# --- what a good answer does -----------------------------------------------------------------------------------------


def test_a_good_answer_takes_the_place_of_the_draft_and_the_evidence_stays(tmp_path: Path) -> None:
    model = FakeModel(GOOD, session="mem-1")

    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        (draft,) = await here.observations()
        assert draft["provider"] == "local"
        assert await here.refine() == 1
        (found,) = await here.observations()
        assert found["id"] == draft["id"], "who has seen its ID still finds it"
        assert found["title"] == "Basket totals are rounded once, at the end"
        assert (found["type"], found["provider"], found["model"]) == ("bugfix", "fake", "fake-1")
        assert found["memory_session_id"] == "mem-1"
        assert found["files_modified"] == ["src/basket.py"], "what no tool touched is not named"
        assert "round() was called for each line of src/basket.py" in found["facts"]
        assert any(fact.startswith("Edited src/basket.py") for fact in found["facts"])
        assert len(found["sources"]) == len(found["facts"])
        assert all(found["sources"]), "every fact can be traced to events"
        (summary,) = await here.summaries()
        assert summary["completed"] == "Totals are right"
        assert summary["next_steps"] == "Round tax too"
        assert summary["files_edited"] == ["src/basket.py"]
        (session,) = await here.rows("select title, subtitle, memory_session_id from sdk_sessions")
        assert tuple(session.values()) == ("Basket totals", "Rounding is done once", "mem-1")
        await here.check_account()

    run(tmp_path, story, model)


def test_one_request_a_turn(tmp_path: Path) -> None:
    model = FakeModel(GOOD)

    async def story(here: Place) -> None:
        for number in range(3):
            here.turn(prompt=f"Fix the basket totals, part {number}")
        await here.digest()
        await here.refine()
        assert len(model.requests) == 3
        assert len(await here.ledger()) == 3
        assert await here.refine() == 0

    run(tmp_path, story, model)


def test_the_context_of_the_next_session_has_the_refined_words(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        await here.refine()
        await here.digest()  # the render job
        text = "".join(path.read_text() for path in here.service.config.starts.iterdir())
        assert "Basket totals are rounded once" in text

    run(tmp_path, story, FakeModel(GOOD))


def test_a_turn_is_asked_about_within_a_minute_of_its_end_and_before_older_ones(tmp_path: Path) -> None:
    model = FakeModel(GOOD)

    async def story(here: Place) -> None:
        for number in range(4):
            here.turn(f"s{number}", prompt=f"Old part {number}")
        await here.digest()
        here.turn("new", prompt="The newest part")
        await here.digest()
        late = await here.rows(
            "select j.due_at - t.last_at as ms from jobs j join turns t on t.id = cast(j.subject as integer)"
            " where j.kind = 'refine'"
        )
        assert len(late) == 5
        assert all(0 <= row["ms"] <= 30_000 for row in late), "half of a minute is left for the answer"
        await here.hurry()
        await here.service.refine_runner.step()
        assert "The newest part" in model.requests[0].prompt

    run(tmp_path, story, model)


@pytest.mark.parametrize("deed", ["correct", "forget"])
def test_what_a_person_has_settled_is_not_spoken_for_again(tmp_path: Path, deed: str) -> None:
    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        (draft,) = await here.observations()
        if deed == "correct":
            await here.db.write(edits.edit_observation, draft["id"], {"title": "Mine"}, now=ids.now_ms())
        else:
            await here.db.write(edits.delete_observation, draft["id"], now=ids.now_ms())
        await here.refine()
        assert [row["title"] for row in await here.observations()] == (["Mine"] if deed == "correct" else [])
        assert (await here.ledger())[0]["verdict"] == "ok"

    run(tmp_path, story, FakeModel(GOOD))


@pytest.mark.parametrize("deed", ["correct", "forget"])
def test_the_memories_beside_a_settled_one_stay(tmp_path: Path, deed: str) -> None:
    async def story(here: Place) -> None:
        here.lab.spool("UserPromptSubmit", prompt="Fix the basket totals. We always round money at the end.")
        failed = {"tool_name": "Bash", "tool_input": {"command": "pytest -q"}, "error": "E  KeyError: 'total'"}
        here.lab.spool("PostToolUseFailure", **failed)
        edit = {"file_path": str(here.lab.project / "src/basket.py"), "old_string": "a", "new_string": "b"}
        here.lab.spool("PostToolUse", tool_name="Edit", tool_input=edit, tool_response={})
        done = {"tool_name": "Bash", "tool_input": {"command": "pytest -q"}, "tool_response": {"stdout": "1 passed"}}
        here.lab.spool("PostToolUse", **done)
        commit = {"stdout": "[main abc1234] Round basket totals once, at the end\n 1 file changed"}
        given = {"command": "git commit -am 'Round basket totals once, at the end'"}
        here.lab.spool("PostToolUse", tool_name="Bash", tool_input=given, tool_response=commit)
        here.lab.spool("Stop", last_assistant_message="Basket totals are rounded once now. Tests pass.")
        await here.digest()
        before = {row["id"]: row["title"] for row in await here.observations()}
        assert len(before) >= 2
        (settled,) = [row["id"] for row in await here.observations() if row["commit_id"]]
        if deed == "correct":
            await here.db.write(edits.edit_observation, settled, {"title": "Mine"}, now=ids.now_ms())
            before[settled] = "Mine"
        else:
            await here.db.write(edits.delete_observation, settled, now=ids.now_ms())
            del before[settled]
        await here.refine()
        after = {row["id"]: row["title"] for row in await here.observations()}
        assert before.items() <= after.items()
        assert GOOD.split("<title>")[1].split("<")[0] not in after.values()

    run(tmp_path, story, FakeModel(GOOD))


def test_an_empty_answer_leaves_the_draft_under_its_own_name(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        before = await here.observations()
        await here.refine()
        assert await here.observations() == before
        assert [row["verdict"] for row in await here.ledger()] == ["empty"]

    run(tmp_path, story, FakeModel('<skip_summary reason="routine"/>'))


def test_an_empty_answer_takes_the_draft_of_a_mere_answer_with_it(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        where = {"session_id": "talk", "prompt_id": "talk-1"}
        here.lab.spool("UserPromptSubmit", prompt="Why does the cart total differ from the receipt?", **where)
        read = {"tool_name": "Read", "tool_input": {"file_path": str(here.lab.project / "cart.py")}, "tool_use_id": "r"}
        here.lab.spool("PostToolUse", tool_response="def total(): ...", **read, **where)
        words = "Rounding runs once for each line because `total()` calls `round()` in its loop, so cents get lost."
        here.lab.spool("Stop", last_assistant_message=words, **where)
        await here.digest()
        assert [row["provider"] for row in await here.observations()] == ["local"]
        await here.refine()
        assert await here.observations() == []

    run(tmp_path, story, FakeModel('<skip_summary reason="nothing that was not known"/>'))


def test_words_that_cannot_be_had_again_outlive_a_late_event(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        here.turn()
        for _ in range(4):
            await here.digest()
            await here.refine()
            here.lab.spool("PostToolUse", tool_name="Bash", tool_input={"command": "ls"}, tool_response="late")
            here.lab.spool("Stop", last_assistant_message="One more thing was looked at.")
        await here.digest()
        assert len(await here.ledger()) == 3
        assert (await here.observations())[0]["provider"] == "fake"
        await here.check_account()

    run(tmp_path, story, FakeModel(GOOD))


def test_what_came_in_meanwhile_is_not_overwritten_by_an_older_answer(tmp_path: Path) -> None:
    class Slow(FakeModel):
        async def ask(self, request: Request, *, resume: str = "", on_session: SessionCallback) -> Reply:
            if not self.requests:
                here.lab.spool("PostToolUse", tool_name="Bash", tool_input={"command": "ls"}, tool_response="late")
                await here.digest()
            return await super().ask(request, resume=resume, on_session=on_session)

    model = Slow(GOOD)
    here: Place

    async def story(place: Place) -> None:
        nonlocal here
        here = place
        here.turn()
        await here.digest()
        await here.hurry()
        await here.service.refine_runner.step()
        assert (await here.observations())[0]["provider"] == "local"
        assert [row["verdict"] for row in await here.ledger()] == ["ok"], "it is booked all the same"

    run(tmp_path, story, model)


@pytest.mark.parametrize("provider", ["local", "auto"])
def test_without_a_model_nothing_is_asked_for(tmp_path: Path, provider: str) -> None:
    async def story(here: Place) -> None:
        here.service.chain.claude_present = False
        here.turn()
        await here.digest()
        assert await here.rows("select * from jobs where kind = 'refine'") == []
        assert len(await here.observations()) == 1

    async def main() -> None:
        async with place(tmp_path, chain=False, settings={"provider": provider}) as here:
            await story(here)

    asyncio.run(main())


def test_a_few_words_without_work_cost_nothing(tmp_path: Path) -> None:
    model = FakeModel(GOOD)

    async def story(here: Place) -> None:
        here.lab.spool("UserPromptSubmit", prompt="thanks")
        here.lab.spool("Stop", last_assistant_message="You are welcome.")
        await here.digest()
        await here.refine()
        assert model.requests == []

    run(tmp_path, story, model)


def _old(here: Place, *, hours: float = 24 * 365) -> Old:
    old = Old(here.lab.folder / "old.jsonl", "old-1", here.lab.project)
    old.clock = time.time() - hours * 3600
    for name in ("voucher", "coupon"):
        old.prompt(f"Add a {name} field", "")
        old.call(name, "Write", file_path=str(here.lab.project / f"{name}.py"))
        old.say(f"There is a module for each {name} now, with one class.")
    return old


def test_old_transcripts_are_not_refined_unasked(tmp_path: Path) -> None:
    """Not when they are read, not when the same session goes on today, not when a file is read again."""
    model = FakeModel(GOOD)

    async def story(here: Place) -> None:
        old = _old(here, hours=1)  # so lately that its age is no reason
        await here.service.backfill([old.path])
        await here.digest()
        assert len(await here.observations()) == 2
        await here.refine()
        assert model.requests == []
        here.turn("old-1", prompt="And today?")
        await here.digest()
        old.prompt("One more thing", "")
        old.call("late", "Write", file_path=str(here.lab.project / "late.py"))
        await here.service.backfill([old.path])
        await here.digest()
        await here.refine()
        (sent,) = model.requests
        assert "And today?" in sent.prompt

    run(tmp_path, story, model)


def test_old_turns_are_refined_when_a_person_asks_after_it_was_said_what_it_costs(tmp_path: Path) -> None:
    model = FakeModel(GOOD)

    async def story(here: Place) -> None:
        path = str(_old(here).path)
        await here.service.backfill([Path(path)])
        await here.digest()
        told = await refine_on_demand.estimate_cost(here.service.refiner, [path])
        sizes = [
            request.max_total_tokens(await here.service.refiner.prepare(await _turn(here, number))) for number in (1, 2)
        ]
        assert (told.turns, told.tokens, told.model) == (2, sum(sizes), "fake fake-1")
        assert (await refine_on_demand.estimate_cost(here.service.refiner, ["/another"])).turns == 0
        assert model.requests == []
        assert (await refine_on_demand.enqueue_turns(here.service.refiner, [path])) == 2
        await here.refine()
        assert len(model.requests) == 2
        assert {row["provider"] for row in await here.observations()} == {"fake"}
        assert (await refine_on_demand.enqueue_turns(here.service.refiner, [path])) == 0

    run(tmp_path, story, model)


async def _turn(here: Place, number: int) -> Any:
    return await here.db.read(turns.load_turn, number)


def test_the_caps_hold_for_old_turns_too(tmp_path: Path) -> None:
    model = FakeModel(GOOD)

    async def story(here: Place) -> None:
        path = str(_old(here).path)
        await here.service.backfill([Path(path)])
        await here.digest()
        await refine_on_demand.enqueue_turns(here.service.refiner, [path])
        await here.refine()
        assert len(model.requests) == 1
        assert any("daily_tokens" in text for text in await here.untold())

    run(tmp_path, story, model, daily_tokens="5500")


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", [v for v in Verdict if v not in (Verdict.OK, Verdict.EMPTY)])
def test_no_failure_costs_a_memory_or_more_than_three_attempts(tmp_path: Path, verdict: Verdict) -> None:
    model = FakeModel(failing(verdict))

    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        before = await here.observations(), await here.summaries()
        for _ in range(12):
            await here.db.write(lambda conn: conn.execute("update breakers set until = 0"))
            await here.db.write(lambda conn: conn.execute("update jobs set due_at = 0"))
            await here.service.refine_runner.step()
        assert (await here.observations(), await here.summaries()) == before
        tried = [row for row in await here.ledger() if row["verdict"] not in UNSEEN_VERDICTS]
        assert len(tried) <= 3
        assert len(await here.ledger()) == len(model.requests)
        await here.check_account()

    run(tmp_path, story, model)


def test_every_failure_has_its_action() -> None:
    assert set(ACTIONS) == set(Verdict) - {Verdict.OK, Verdict.EMPTY}


@pytest.mark.parametrize(
    ("tries", "may"),
    [
        ([], True),
        (["unparseable", "transient"], True),
        (["", "", ""], False),
        (["transient"] * 3, False),
        (["too_long"], True),
        (["too_long", "too_long"], False),
        (["refused"], False),
    ],
)
def test_how_often_a_turn_may_be_tried(tries: list[str], may: bool) -> None:
    assert RefineAttempts(tuple(tries)).may_retry is may


def test_an_answer_that_could_not_be_read_is_asked_for_more_strictly(tmp_path: Path) -> None:
    model = FakeModel("Sure, here is what I think about it.", GOOD)

    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        await here.refine()
        assert "could not be parsed" not in model.requests[0].prompt
        assert "could not be parsed" in model.requests[1].prompt
        assert (await here.observations())[0]["provider"] == "fake"

    run(tmp_path, story, model)


@pytest.mark.parametrize("verdict", [Verdict.TOO_LONG, Verdict.TRUNCATED])
def test_what_was_too_long_is_made_smaller(tmp_path: Path, verdict: Verdict) -> None:
    model = FakeModel(failing(verdict), GOOD)

    async def story(here: Place) -> None:
        here.turn(prompt="Fix the totals: " + "x" * 20_000, output="x" * 20_000)
        await here.digest()
        await here.refine()
        first, second = model.requests
        assert len(second.prompt) < len(first.prompt) * 0.7
        assert second.max_tokens < first.max_tokens

    run(tmp_path, story, model)


def test_a_provider_out_of_order_is_left_alone_and_a_person_is_told_once(tmp_path: Path) -> None:
    model = FakeModel(failing(Verdict.QUOTA, "Your credit balance is too low"), GOOD)

    async def story(here: Place) -> None:
        for session in ("s1", "s2", "s3"):
            here.turn(session)
        await here.digest()
        await here.refine()
        assert len(model.requests) == 1
        (told,) = await here.untold()
        assert "Your credit balance is too low" in told
        assert "fake" in told
        await here.tell()
        await here.refine()
        assert await here.untold() == []
        # The account is filled again: the first request that goes through opens the way for all.
        await here.db.write(lambda conn: conn.execute("update breakers set until = 0"))
        await here.db.write(lambda conn: conn.execute("update jobs set due_at = 0"))
        await here.refine()
        assert {row["provider"] for row in await here.observations()} == {"fake"}
        assert await here.rows("select * from breakers") == []
        assert len(model.requests) == 4

    run(tmp_path, story, model)


def test_the_notice_reaches_the_next_session(tmp_path: Path) -> None:
    model = FakeModel(failing(Verdict.AUTH, "invalid x-api-key"))

    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        await here.refine()
        text, keys = await here.service.context_service.notice()
        assert "invalid x-api-key" in text
        await here.service.context_service.record_start("claude", "s1", 0, notice_keys=keys)
        assert await here.service.context_service.notice() == ("", [])

    run(tmp_path, story, model)


def test_other_settings_are_tried_at_once(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        await here.refine()
        assert (await here.rows("select until from breakers"))[0]["until"] > ids.now_ms()
        here.service.chain.config = replace(here.service.chain.config, anthropic_api_key="another")
        here.service.chain.fixed_models = [FakeModel(GOOD)]
        await here.db.write(lambda conn: conn.execute("update jobs set due_at = 0"))
        await here.service.refine_runner.step()
        assert (await here.observations())[0]["provider"] == "fake"

    run(tmp_path, story, FakeModel(failing(Verdict.AUTH)))


def test_the_next_in_the_chain_takes_over(tmp_path: Path) -> None:
    first, second = FakeModel(failing(Verdict.AUTH), provider="one"), FakeModel(GOOD, provider="two")

    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        await here.refine()
        assert [row["provider"] for row in await here.ledger()] == ["one", "two"]
        assert (await here.observations())[0]["provider"] == "two"

    run(tmp_path, story, first, second)


@pytest.mark.parametrize("verdict", [Verdict.TRANSIENT, Verdict.PERMANENT])
def test_who_has_just_failed_at_a_turn_is_asked_last(tmp_path: Path, verdict: Verdict) -> None:
    first, second = FakeModel(failing(verdict), provider="one"), FakeModel(GOOD, provider="two")

    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        await here.refine()
        assert [row["provider"] for row in await here.ledger()] == ["one", "two"]

    run(tmp_path, story, first, second)


def test_three_failures_in_a_row_open_the_breaker(tmp_path: Path) -> None:
    model = FakeModel(failing(Verdict.TRANSIENT, "HTTP 529"))

    async def story(here: Place) -> None:
        for session in ("s1", "s2", "s3", "s4"):
            here.turn(session)
        await here.digest()
        await here.refine()
        assert len(model.requests) == 3
        (breaker,) = await here.rows("select * from breakers")
        assert 50_000 < breaker["until"] - ids.now_ms() <= 60_000
        assert len(await here.untold()) == 1

    run(tmp_path, story, model)


@pytest.mark.parametrize(
    ("failures", "asked", "pause"),
    [
        (3, None, 60_000),
        (4, None, 120_000),
        (30, None, 3_600_000),
        (3, 7.0, 7_000),
        (6, 7.0, 120_000),
        (9, 7.0, 960_000),
    ],
)
def test_how_long_a_provider_is_left_alone(failures: int, asked: float | None, pause: int) -> None:
    action = Action(retry=True, opens_after=3, first_pause_ms=60_000, longest_ms=3_600_000)
    assert breaker_pause_ms(action, failures, asked) == pause


def test_a_failed_probe_closes_the_door_again(tmp_path: Path) -> None:
    model = FakeModel(failing(Verdict.QUOTA), failing(Verdict.TRANSIENT, "HTTP 500"), GOOD)

    async def story(here: Place) -> None:
        here.turn("s1")
        here.turn("s2")
        await here.digest()
        await here.refine()
        await here.db.write(lambda conn: conn.execute("update breakers set until = 1"))
        await here.db.write(lambda conn: conn.execute("update jobs set due_at = 0"))
        await here.refine()
        assert len(model.requests) == 2
        assert len(await here.untold()) == 2, "another reason is news"

    run(tmp_path, story, model)


# --- the budget ------------------------------------------------------------------------------------------------------


def test_the_request_is_booked_before_it_is_sent_and_corrected_after(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    class Watching(FakeModel):
        async def ask(self, request: Request, *, resume: str = "", on_session: SessionCallback) -> Reply:
            seen.extend(await here.ledger())
            return await super().ask(request, resume=resume, on_session=on_session)

    usage = Usage(input_tokens=2000, cached_tokens=1000, output_tokens=300)
    model = Watching(Reply(verdict=Verdict.OK, text=GOOD, usage=usage), model="claude-haiku-4-5")
    here: Place

    async def story(place: Place) -> None:
        nonlocal here
        here = place
        here.turn()
        await here.digest()
        await here.refine()
        (before,), (after,) = seen, await here.ledger()
        assert before["verdict"] is None
        assert before["output_tokens"] == 2000
        assert (after["input_tokens"], after["cached_tokens"], after["output_tokens"]) == (2000, 1000, 300)
        assert after["cost"] == 1000 * 1 + 1000 * 0.1 + 300 * 5
        assert after["verdict"] == "ok"
        (session,) = await here.db.read(sessions.list_sessions_with_counts, limit=10, offset=0)
        assert (session.model_tokens, session.cost) == (2300, 2600)

    run(tmp_path, story, model)


def test_the_daily_cap_holds(tmp_path: Path) -> None:
    model = FakeModel(Reply(verdict=Verdict.OK, text=GOOD, usage=Usage(input_tokens=4000, output_tokens=500)))

    async def story(here: Place) -> None:
        for number in range(8):
            here.turn(f"s{number}")
        await here.digest()
        await here.refine()
        spent = await here.db.read(ledger.get_spending_since, since=0)
        assert 0 < spent.tokens <= 20_000
        assert len(model.requests) == len(await here.ledger()) == 4
        (told,) = await here.untold()
        assert "20,000 tokens" in told
        waiting = await here.rows("select due_at from jobs where kind = 'refine'")
        midnight = refine.to_ms(refine.next_day(refine.day_start(ids.now_ms())))
        assert [row["due_at"] for row in waiting] == [midnight] * 4
        assert len(await here.observations()) == 8
        await here.check_account()

    run(tmp_path, story, model, daily_tokens="20000")


def test_the_monthly_cap_holds_and_what_is_free_goes_on(tmp_path: Path) -> None:
    dear = FakeModel(Reply(verdict=Verdict.OK, text=GOOD), provider="dear", model="claude-opus-4")

    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        await here.refine()
        assert dear.requests == []
        assert "$0" in (await here.untold())[0]

    run(tmp_path, story, dear, monthly_cost="0")


def test_nothing_is_asked_for_when_the_day_has_no_tokens(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        assert await here.rows("select * from jobs where kind = 'refine'") == []

    run(tmp_path, story, FakeModel(GOOD), daily_tokens="0")


def test_an_answer_without_figures_is_booked_at_the_most(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        await here.refine(1)
        (row,) = await here.ledger()
        assert row["input_tokens"] > 1000
        assert row["output_tokens"] == 2000

    run(tmp_path, story, FakeModel(failing(Verdict.TRANSIENT, "reset")))


def test_days_and_months_begin_at_midnight_where_the_person_is() -> None:
    noon = int(datetime(2026, 12, 31, 12).timestamp() * 1000)
    assert datetime.fromtimestamp(refine.to_ms(refine.day_start(noon)) / 1000) == datetime(2026, 12, 31)
    assert datetime.fromtimestamp(refine.to_ms(refine.next_day(refine.day_start(noon))) / 1000) == datetime(2027, 1, 1)
    assert datetime.fromtimestamp(refine.to_ms(refine.next_month(refine.month_start(noon))) / 1000) == datetime(
        2027, 1, 1
    )


# --- the model's own sessions ----------------------------------------------------------------------------------------

CAPTURED = MemorySession("mem-1", 1, "claude", "now", 0)


@pytest.mark.parametrize(
    ("memory", "given", "resumed"),
    [
        (CAPTURED, {}, "mem-1"),
        (None, {}, ""),
        (CAPTURED, {"runtime": "another"}, ""),
        (CAPTURED, {"prompt_number": 1}, ""),
        (CAPTURED, {"must_restart": True}, ""),
    ],
)
def test_when_a_session_is_resumed(memory: MemorySession | None, given: dict[str, Any], resumed: str) -> None:
    rule: dict[str, Any] = {"runtime": "now", "prompt_number": 2, "must_restart": False, **given}
    assert session_to_resume(memory, **rule) == resumed


def test_a_model_that_keeps_no_sessions_is_given_one_name(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        here.turn(prompt="One")
        here.turn(prompt="Two")
        here.turn("s2")
        await here.digest()
        await here.refine()
        names = [(row["content_session_id"], row["memory_session_id"]) for row in await here.observations()]
        by_session = {session: {name for s, name in names if s == session} for session, _ in names}
        assert {session: len(found) for session, found in by_session.items()} == {"s1": 1, "s2": 1}
        assert by_session["s1"] != by_session["s2"]

    run(tmp_path, story, FakeModel(GOOD))


def test_refine_is_the_only_kind_nobody_waits_for(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        assert await here.rows("select 1 from jobs where kind = 'refine'")
        assert await here.service.settle(0.05)

    run(tmp_path, story, FakeModel(GOOD))


def test_the_deadline_of_a_step_is_longer_than_that_of_a_request() -> None:
    assert app.REFINE_SECONDS > http.CALL_SECONDS + 10
    assert MAX_REFINE_ATTEMPTS == 3
