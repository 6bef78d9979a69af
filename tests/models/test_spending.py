"""The caps hold and the ledger is right, whenever the worker dies. (`bench/spending.py` kills a hundred times.)"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from claude_mem.system import process
from tests.models.server import Hang, Hold, Say, Server, Trickle
from tests.support import proof
from tests.support.lab import Lab
from tests.support.refining import GOOD, spool_turn
from tests.support.waiting import SECONDS, wait_for

pytestmark = pytest.mark.kills


def settings(server: Server, **more: str) -> Any:
    return {
        "CLAUDE_MEM_PROVIDER": "anthropic",
        "CLAUDE_MEM_ANTHROPIC_BASE_URL": server.url,
        "CLAUDE_MEM_ANTHROPIC_API_KEY": "test-key",
        **more,
    }


def kill(lab: Lab) -> None:
    pid = process.lock_holder(lab.data)
    assert pid
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: process.lock_holder(lab.data) is None)


def work_off(lab: Lab, env: Any) -> None:
    lab.mem("start", **env)
    wait_for(lambda: not lab.client().get("/api/queue")["jobs"])
    lab.mem("stop")


def ledger(lab: Lab) -> list[tuple[Any, ...]]:
    return lab.rows("select turn_id, verdict, input_tokens + output_tokens from ledger order by id")


def test_killed_while_the_model_thinks_each_turn_is_asked_for_at_most_three_times(lab: Lab) -> None:
    with Server(Hang()) as server:
        env = settings(server)
        for number in range(3):
            spool_turn(lab, f"s{number}")
        for count in range(1, 8):
            lab.mem("start", **env)
            wait_for(lambda asked=count: len(server.asked) >= asked)  # type: ignore[misc]
            kill(lab)
        server.then(Say(GOOD))
        work_off(lab, env)
        asked = len(server.asked)
        assert len(ledger(lab)) == asked
        assert [verdict for _, verdict, _ in ledger(lab)].count(None) == 7
        per_turn = [turn for turn, _, _ in ledger(lab)]
        assert max(per_turn.count(turn) for turn in per_turn) == 3
        assert sorted(lab.rows("select provider, count(*) from observations group by 1")) == [
            ("anthropic", 1),
            ("local", 2),
        ]
        assert lab.status()["set_aside"] == 0


@pytest.mark.parametrize("point", ["refine.booked", "refine.answered", "refine.closed"])
def test_killed_at_any_step_of_a_request_the_turn_is_refined_in_the_end(lab: Lab, point: str) -> None:
    with Server(Say(GOOD)) as server:
        env = settings(server)
        spool_turn(lab)
        lab.mem("start", **env, CLAUDE_MEM_FAILPOINT=point)
        wait_for(lambda: process.lock_holder(lab.data) is None)
        work_off(lab, env)
        assert lab.rows("select provider, title from observations") == [
            ("anthropic", "Basket totals are rounded once, at the end")
        ]
        sent = 1 if point == "refine.booked" else 2  # it was booked and never sent: the ledger errs on the safe side
        assert len(server.asked) == sent
        assert len(ledger(lab)) == 2
        assert lab.status()["set_aside"] == 0


@pytest.mark.parametrize("sent", [0, 40], ids=["its head is here", "half of it is here"])
def test_killed_in_the_middle_of_an_answer_the_turn_is_refined_in_the_end(lab: Lab, sent: int) -> None:
    """What was half answered counts as an attempt, and is booked; the next worker asks again."""
    answer = Trickle(GOOD, most=sent)
    with Server(answer, Say(GOOD)) as server:
        env = settings(server)
        spool_turn(lab)
        lab.mem("start", **env)
        assert answer.reached.wait(SECONDS)
        kill(lab)
        work_off(lab, env)
        assert lab.rows("select provider from observations") == [("anthropic",)]
        assert len(server.asked) == len(ledger(lab)) == 2
        assert [verdict for _, verdict, _ in ledger(lab)].count(None) == 1
        assert lab.status()["set_aside"] == 0


def test_a_daily_cap_is_not_overrun_by_being_killed(lab: Lab) -> None:
    with Server(Hang()) as server:
        env = settings(server, CLAUDE_MEM_DAILY_TOKENS="14000")
        for number in range(6):
            spool_turn(lab, f"s{number}")
        for count in range(1, 4):
            lab.mem("start", **env)
            wait_for(lambda asked=count: len(server.asked) >= asked or _told(lab))  # type: ignore[misc]
            kill(lab)
        server.then(Say(GOOD, input_tokens=3000))
        lab.mem("start", **env)
        wait_for(lambda: _told(lab))
        lab.mem("stop")
        over = max(sum(tokens for _, _, tokens in ledger(lab)) - 14_000, 0)
        proof.record(
            "tokens beyond a daily cap, the worker killed again and again", of="R7", goal="0", measured=over, ok=not over,
            command="CLAUDE_MEM_PROOF=build/proof pytest tests/models/test_spending.py",
        )  # fmt: skip
        assert over == 0
        assert len(server.asked) == len(ledger(lab)) < 6
        assert lab.rows("select count(*) from observations") == [(6,)]


def _told(lab: Lab) -> bool:
    return any(row["due_at"] > (time.time() + 600) * 1000 for row in lab.client().get("/api/queue")["jobs"])


def test_a_stop_cuts_a_request_off_and_the_next_worker_makes_up_for_it(lab: Lab) -> None:
    held = Hold(GOOD)
    with Server(held, Say(GOOD)) as server:
        env = settings(server)
        spool_turn(lab)
        lab.mem("start", **env)
        assert held.reached.wait(SECONDS)
        lab.mem("stop")  # the answer would never come
        work_off(lab, env)
        assert lab.rows("select provider from observations") == [("anthropic",)]
        assert len(server.asked) == len(ledger(lab)) == 2


def test_a_model_that_hangs_holds_no_memory_up(lab: Lab) -> None:
    with Server(Hang()) as server:
        lab.mem("start", **settings(server))
        spool_turn(lab, "s1")
        wait_for(lambda: len(server.asked) == 1)
        spool_turn(lab, "s2", prompt="Another one")
        lab.wait_digested()
        assert len(lab.client().get("/api/observations")["items"]) == 2
        kill(lab)
