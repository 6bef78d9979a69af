"""Memories when the provider is the user's `claude` program, and the program is not what it should be.

Whatever it does, the record that was made without it stays as it was, nothing waits for it, and a person is told in one line.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from claude_mem.digest.models.base import Verdict
from claude_mem.digest.models.claude import Claude
from tests.agents.client.harness import alive
from tests.models.test_claude import BAD, LOGGED_OUT, RESULT, SPENT, limit, printing, program
from tests.support.lab import Lab
from tests.support.refining import GOOD, Place, place, spool_turn
from tests.support.waiting import wait_for

Story = Callable[[Place], Coroutine[Any, Any, None]]
INIT = {"type": "system", "subtype": "init", "session_id": "mem-1", "apiKeySource": "none"}
ANSWER = {**RESULT, "result": GOOD, "usage": {"input_tokens": 1500, "output_tokens": 120}, "total_cost_usd": 0.01}


def run(folder: Path, script: Path, story: Story) -> None:
    async def main() -> None:
        settings = {"provider": "claude", "claude_path": str(script)}
        async with place(folder, chain=False, settings=settings) as here:
            await story(here)

    asyncio.run(main())


def test_an_answer_takes_the_place_of_the_draft_and_is_booked_as_counted(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        (draft,) = await here.observations()
        await here.refine()
        (found,) = await here.observations()
        assert (found["id"], found["provider"]) == (draft["id"], "claude")
        assert found["title"] == "Basket totals are rounded once, at the end"
        (entry,) = await here.ledger()
        assert (entry["verdict"], entry["input_tokens"], entry["output_tokens"]) == ("ok", 1500, 120)
        assert entry["cost"] == 0, "a plan is paid already"

    run(tmp_path, program(tmp_path / "claude", *printing(INIT, ANSWER)), story)


@pytest.mark.parametrize("name", BAD)
def test_a_program_that_fails_leaves_a_plain_record(tmp_path: Path, name: str) -> None:
    lines, verdict, _ = BAD[name]
    script = program(tmp_path / "claude", *lines) if lines else tmp_path / "nowhere"

    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        before = await here.observations(), await here.summaries()
        assert [row["provider"] for row in before[0]] == ["local"], "it was there before anyone was asked"
        await here.hurry()
        await here.service.refine_runner.step()
        assert (await here.observations(), await here.summaries()) == before
        assert [row["verdict"] for row in await here.ledger()] == [verdict]
        await here.check_account()

    run(tmp_path, script, story)


def test_a_slow_program_holds_no_other_memory_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(here: Place) -> None:
        here.turn(prompt="The first part")
        await here.digest()
        await here.hurry()
        asking = asyncio.create_task(here.service.refine_runner.step())
        while not (tmp_path / "asked").exists():
            await asyncio.sleep(0.01)
        here.turn(prompt="The second part")
        await here.digest()
        assert len(await here.summaries()) == 2
        assert not asking.done()
        await asking
        assert [row["verdict"] for row in await here.ledger()] == [Verdict.TRANSIENT]

    usual = Claude.__init__
    monkeypatch.setattr(Claude, "__init__", lambda self, **given: usual(self, **{**given, "seconds": 3.0}))
    script = program(tmp_path / "claude", "trap '' TERM INT", f"touch {tmp_path}/asked", "while :; do sleep 1; done")
    run(tmp_path, script, story)


def test_a_plan_that_is_used_up_is_asked_again_when_it_is_renewed(tmp_path: Path) -> None:
    renewed = time.time() + 7200

    async def story(here: Place) -> None:
        here.turn()
        await here.digest()
        await here.refine()
        (breaker,) = await here.rows("select provider, until, message from breakers")
        assert breaker["until"] / 1000 == pytest.approx(renewed, abs=60)
        (job,) = await here.rows("select due_at from jobs where kind = 'refine'")
        assert len(await here.ledger()) == 1, "and not before"
        assert job["due_at"]
        (told,) = await here.untold()
        assert "5-hour limit" in told
        assert "still stored" in told

    run(tmp_path, program(tmp_path / "claude", *printing(limit(renewed), SPENT, code=1)), story)


def test_rubbish_again_and_again_is_not_asked_for_ever(tmp_path: Path) -> None:
    async def story(here: Place) -> None:
        for number in range(5):
            here.turn(f"s{number}", prompt=f"Part {number}")
        await here.digest()
        await here.refine()
        assert len(await here.ledger()) == 9, "three turns, three attempts each; then it is left alone"
        (told,) = await here.untold()
        assert "update Claude Code" in told
        assert {row["provider"] for row in await here.observations()} == {"local"}

    run(tmp_path, program(tmp_path / "claude", "echo hello"), story)


# --- what a person is told -------------------------------------------------------------------------------------------

STATUS = """if [ "$1" = auth ]; then echo '{"loggedIn": %s}'; exit; fi"""


def use(lab: Lab, script: Path) -> None:
    lab.mem("config", "set", "provider", "claude")
    lab.mem("config", "set", "claude_path", str(script))
    lab.env = _without_provider(lab)  # type: ignore[method-assign]
    lab.start()


def _without_provider(lab: Lab) -> Callable[..., dict[str, str]]:
    env = lab.env()
    del env["CLAUDE_MEM_PROVIDER"]
    return lambda **more: {**env, **more}


def told(lab: Lab) -> dict[str, str]:
    """What the doctor, the status and the price list say about it."""
    checks = [json.loads(line) for line in lab.mem("doctor", "--json", ok=False).stdout.splitlines()]
    (refining,) = [check["found"] for check in checks if check["name"] == "refining"]
    return {"doctor": refining, **{name: lab.mem(name, ok=False).stdout for name in ("status", "cost")}}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (None, "is not an executable file: correct `claude_path`"),
        ([STATUS % "false"], "Claude Code is not logged in: run `claude` and `/login`"),
        (["echo hello"], "printed an unknown format: update Claude Code"),
    ],
    ids=["missing", "logged out", "another program"],
)
def test_a_program_that_can_not_be_used_is_named_in_one_line(lab: Lab, lines: list[str] | None, words: str) -> None:
    script = program(lab.folder / "claude", *lines) if lines else lab.folder / "nowhere"
    use(lab, script)
    for who, text in told(lab).items():
        assert sum(words in line for line in text.splitlines()) == 1, (who, text)


def test_a_program_that_works_is_nothing_to_talk_about(lab: Lab) -> None:
    use(lab, program(lab.folder / "claude", STATUS % "true"))
    said = told(lab)
    assert "by claude haiku" in said["doctor"]
    assert "refining" not in said["status"]
    assert "problem" not in said["cost"]


def test_a_program_that_hangs_does_not_hang_the_status(lab: Lab) -> None:
    use(lab, program(lab.folder / "claude", f"echo $$ > {lab.folder}/pid", "while :; do sleep 1; done"))
    assert lab.client().get("/api/cost", days=1)["problem"] == ""
    assert alive(int((lab.folder / "pid").read_text())), "nobody waited for its end"
    wait_for(
        lambda: "did not answer" in json.loads(lab.mem("status", "--json").stdout)["refining"], "it was never noticed"
    )


def test_logged_out_meanwhile_the_record_stays_and_the_reason_is_told(lab: Lab) -> None:
    """It was logged in when it was looked at; the request then shows that it is not."""
    use(lab, program(lab.folder / "claude", STATUS % "true", *printing(LOGGED_OUT, code=1)))
    spool_turn(lab)
    wait_for(lambda: "claude is paused: auth: Not logged in" in lab.mem("status").stdout, "nobody was told")
    (row,) = lab.client().get("/api/observations")["items"]
    assert row["provider"] == "local"
