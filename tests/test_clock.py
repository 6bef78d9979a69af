"""The clock is turned: forward, back, by a day, by an hour, or it stood still while the machine slept. Nothing is lost,
doubled, tried more often or left waiting for the clock to catch up."""

from __future__ import annotations

import ast
import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import claude_mem
from claude_mem import ids
from claude_mem.config import load
from claude_mem.providers.base import Compressor
from claude_mem.providers.local import LocalCompressor
from claude_mem.records import Digest, Turn
from claude_mem.store import breakers, jobs
from claude_mem.store.breakers import Breaker
from claude_mem.worker.clock import Clock
from claude_mem.worker.service import Service
from tests import proof
from tests.history import check, send, state
from tests.lab import Lab

HOUR, DAY = 3_600_000, 86_400_000
JUMPS = {"a day on": DAY, "a day back": -DAY, "an hour back": -HOUR, "an hour on": HOUR, "asleep for a week": 7 * DAY}
# Where things are stored, planned and done, the machine's own clock is read only for the name of a file, the day that a
# person is shown, a cookie's end, and to compare with a file's time.
PLACES = ("store", "pipeline", "worker")
MAY_READ = {
    "store/backup.py", "store/repair.py", "worker/api.py", "worker/project_routes.py", "worker/service.py",
    "worker/visits.py",
}  # fmt: skip
READS = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("date", "today")}


class Turned:
    """The wall clock, so many milliseconds off."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.off = 0
        monkeypatch.setattr(ids, "now", lambda: time.time_ns() // 1_000_000 + self.off)


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch) -> Turned:
    return Turned(monkeypatch)


def _live(work: Callable[[Service], Awaitable[None]], compressor: Compressor | None = None) -> None:
    async def go() -> None:
        service = Service(load(), compressor=compressor)
        try:
            await work(service)
        finally:
            service.close()

    asyncio.run(go())


async def _take_in(service: Service) -> None:
    await service.recover()
    while await service.drain_once():
        pass
    await service.sweep()


async def _finish(service: Service) -> None:
    await service.sweep()
    while await service.runner.step():
        pass
    while await service.indexer.catch_up():
        pass


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> object:
    lab = Lab(tmp_path_factory.mktemp("undisturbed"))
    sent = send(lab)
    assert lab.drain() == 0
    assert check(lab, sent) == []
    return _memory(lab)


def _memory(lab: Lab, jump: int = 0) -> dict[str, Any]:
    """A session that has been silent for a day is called interrupted, and rightly: nobody knows what a clock meant."""
    found = state(lab)
    assert jump >= DAY or not any(status == "interrupted" for _, status, *_ in found["sessions"])
    return {**found, "sessions": [(name, *rest) for name, _, *rest in found["sessions"]]}


@pytest.mark.parametrize("jump", JUMPS)
def test_turned_while_work_waits_it_is_done_at_once_and_once(
    lab: Lab, undisturbed: object, turned: Turned, jump: str
) -> None:
    sent = send(lab)

    async def work(service: Service) -> None:
        await _take_in(service)
        assert await service.db.read(jobs.waiting) > 0
        turned.off = JUMPS[jump]
        await _finish(service)
        assert await service.db.read(jobs.listing) == []

    _live(work)
    assert check(lab, sent) == []
    assert _memory(lab, JUMPS[jump]) == undisturbed
    goal, measured = "0 lost, 0 doubled, nothing waits for the clock", {"lost": 0, "doubled": 0, "left": 0}
    proof.record(f"the clock: {jump}", of="R15", goal=goal, measured=measured, ok=True, command="make test-crash")


@pytest.mark.parametrize("jump", JUMPS)
def test_turned_in_the_middle_of_a_job_its_lease_holds(
    lab: Lab, undisturbed: object, turned: Turned, jump: str, caplog: pytest.LogCaptureFixture
) -> None:
    sent, digested = send(lab), []

    class Turning(LocalCompressor):
        async def compress(self, turn: Turn) -> Digest:
            turned.off += JUMPS[jump]
            digested.append(turn.id)
            return await super().compress(turn)

    async def work(service: Service) -> None:
        await _take_in(service)
        for _ in range(6):
            await _finish(service)
        assert await service.db.read(jobs.listing) == []

    _live(work, Turning())
    assert len(digested) == len(set(digested))  # no lease ran out under anyone's hands
    assert "claimed again" not in caplog.text
    assert check(lab, sent) == []
    assert _memory(lab, JUMPS[jump]) == undisturbed


def test_turned_back_a_pause_stays_as_long_as_it_was(lab: Lab, turned: Turned) -> None:
    async def work(service: Service) -> None:
        until = ids.now() + 7_000
        await service.db.write(breakers.put, Breaker(provider="anthropic", failures=1, until=until))
        turned.off = -DAY
        await service.sweep()
        left = (await service.db.read(breakers.get, "anthropic")).until - ids.now()
        assert 0 < left <= 7_001

    _live(work)


def test_a_clock_that_is_kept_right_is_not_one_that_was_set_back(turned: Turned) -> None:
    clock = Clock()
    for off, back in ((-300, 0), (-900, 0), (5_000, 0), (4_500, 0), (-DAY, DAY + 4_500), (-DAY, 0)):
        turned.off = off
        assert abs(clock.set_back() - back) < 300


def test_events_from_before_and_after_a_turn_of_the_clock_are_kept_together(lab: Lab) -> None:
    """A prompt, then the clock is set back by an hour, then its tools: all in the spool when the worker comes."""
    now = time.time_ns() // 1_000_000
    names = [lab.spool("UserPromptSubmit", at=now, prompt="Mend it", prompt_id="p1")]
    for number in range(3):
        tool = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": f"c{number}", "prompt_id": "p1"}
        names.append(lab.spool("PostToolUse", at=now - HOUR + number, **tool))
    names.append(lab.spool("Stop", at=now - HOUR + 10, last_assistant_message="Mended.", prompt_id="p1"))
    assert lab.drain() == 0
    assert sorted(row[0] for row in lab.rows("select event_id from events")) == sorted(names)
    assert lab.rows("select count(distinct turn_id) from events") == [(1,)]
    assert lab.rows("select text from user_prompts") == [("Mend it",)]
    assert lab.status()["set_aside"] == 0


def test_only_a_few_read_the_machines_clock() -> None:
    """Leases and schedules are timed by `ids.now`, which a test can turn, or by the clock that only goes forward."""
    source = Path(claude_mem.__file__).parent
    files = [path for place in PLACES for path in (source / place).rglob("*.py")]
    assert {str(path.relative_to(source)) for path in files if _reads_clock(path)} <= MAY_READ


def _reads_clock(path: Path) -> bool:
    calls = [node.func for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
    named = [
        (call.value.id, call.attr)
        for call in calls
        if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name)
    ]
    return any(name in READS for name in named)
