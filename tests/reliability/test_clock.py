"""The clock is turned: forward, back, by a day, by an hour, or it stood still while the machine slept. Nothing is lost,
doubled, tried more often or left waiting for the clock to catch up."""

from __future__ import annotations

import ast
import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import claude_mem
from claude_mem.capture.drain import BATCH
from claude_mem.capture.timeouts import Clock
from claude_mem.config import load
from claude_mem.digest.models.base import Compressor
from claude_mem.digest.writer import LocalCompressor
from claude_mem.domain import ids
from claude_mem.domain.records import Digest, Turn
from claude_mem.storage.journal_records import Breaker
from claude_mem.storage.sqlite.journal import jobs, ledger
from claude_mem.storage.sqlite.journal.arrival_order import order_events
from claude_mem.system.spool import Spool
from claude_mem.worker.app import Service
from tests.support import proof
from tests.support.history import check, send, state
from tests.support.lab import Lab

HOUR, DAY = 3_600_000, 86_400_000
JUMPS = {"a day on": DAY, "a day back": -DAY, "an hour back": -HOUR, "an hour on": HOUR, "asleep for a week": 7 * DAY}
# Where things are stored, planned and done, the machine's own clock is read only for the name of a file, the day that a
# person is shown, a cookie's end, and to compare with a file's time.
PLACES = ("store", "pipeline", "worker")
MAY_READ = {
    "storage/sqlite/backup.py", "storage/sqlite/repair.py", "worker/http/routes/status.py", "worker/http/schemas/projects.py",
    "worker/http/routes/projects.py", "worker/app.py", "worker/http/auth.py",
}  # fmt: skip
READS = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("date", "today")}


class Turned:
    """The wall clock, so many milliseconds off."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.off = 0
        monkeypatch.setattr(ids, "now_ms", lambda: time.time_ns() // 1_000_000 + self.off)


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
        assert await service.db.read(jobs.count_urgent_jobs) > 0
        turned.off = JUMPS[jump]
        await _finish(service)
        assert await service.db.read(jobs.list_jobs) == []

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
        assert await service.db.read(jobs.list_jobs) == []

    _live(work, Turning())
    assert len(digested) == len(set(digested))  # no lease ran out under anyone's hands
    assert "claimed again" not in caplog.text
    assert check(lab, sent) == []
    assert _memory(lab, JUMPS[jump]) == undisturbed


def test_turned_back_a_pause_stays_as_long_as_it_was(lab: Lab, turned: Turned) -> None:
    async def work(service: Service) -> None:
        until = ids.now_ms() + 7_000
        await service.db.write(ledger.save_breaker, Breaker(provider="anthropic", failures=1, until=until))
        turned.off = -DAY
        await service.sweep()
        left = (await service.db.read(ledger.get_breaker, "anthropic")).until - ids.now_ms()
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


CHECK = {"tool_name": "Bash", "tool_input": {"command": "python3 -m unittest -q"}}
ERROR = "ValueError: could not convert string to float: '1.234,50'"
EDIT = {
    "tool_name": "Edit",
    "tool_input": {"file_path": "prices.py", "old_string": "a", "new_string": "b"},
    "tool_response": {},
}
BACK = {"a second": 1_000, "an hour": HOUR, "a day": DAY}
Said = tuple[str, dict[str, Any]]


def _mended(**more: Any) -> list[Said]:
    """A check fails, a file is edited, the same check passes."""
    return [
        ("UserPromptSubmit", {"prompt": "The import breaks, please mend it", **more}),
        ("PostToolUseFailure", {**CHECK, "error": f"Exit code 1\n{ERROR}", "tool_use_id": "c1", **more}),
        ("PostToolUse", {**EDIT, "tool_use_id": "c2", **more}),
        ("PostToolUse", {**CHECK, "tool_response": {"stdout": "OK"}, "tool_use_id": "c3", **more}),
        ("Stop", {"last_assistant_message": "The import reads such prices now.", **more}),
        ("SessionEnd", {"reason": "exit", **more}),
    ]


def _times(count: int, *, jump: int, after: int) -> list[int]:
    """So many milliseconds, a tenth of a second apart; after some of them the clock is set back."""
    begin = time.time_ns() // 1_000_000
    return [begin + 100 * number - (jump if number >= after else 0) for number in range(count)]


def _assert_mended(lab: Lab) -> None:
    facts = [facts for (facts,) in lab.rows("select facts from observations")]
    assert any("failed before: ValueError" in each for each in facts), facts
    assert lab.rows("select outcome, next_steps from session_summaries") == [("done", None)]
    assert lab.rows("select count(*) from turns where closed_at < opened_at or last_at < opened_at") == [(0,)]
    assert lab.rows("select count(*) from turns") == [(1,)]
    assert lab.rows("select closed_by, digested_at is not null from turns") == [("stop", 1)]
    assert lab.rows("select ended_at >= started_at, status from sdk_sessions") == [(1, "completed")]


@pytest.mark.parametrize("prompt_id", ["p1", ""])
@pytest.mark.parametrize("after", range(1, 6))
@pytest.mark.parametrize("back", BACK)
def test_set_back_between_two_events_the_order_of_arrival_counts(
    lab: Lab, back: str, after: int, prompt_id: str
) -> None:
    said = _mended(prompt_id=prompt_id)
    times = _times(len(said), jump=BACK[back], after=after)

    async def work(service: Service) -> None:
        await service.recover()
        for at, (event, fields) in zip(times, said, strict=True):
            lab.spool(event, at=at, **fields)
            assert await service.drain_once() == 1
        await _finish(service)

    _live(work)
    _assert_mended(lab)
    assert [at for (at,) in lab.rows("select at from events order by seq")] == times  # each keeps its own time


@pytest.mark.parametrize("after", range(1, 6))
def test_set_back_while_no_worker_ran_the_file_system_tells_the_order(lab: Lab, after: int) -> None:
    """If its clock was not set back too: on a server, or outside of a container."""
    said = _mended()
    times = _times(len(said), jump=HOUR, after=after)
    for number, (at, (event, fields)) in enumerate(zip(times, said, strict=True), start=1):
        written(lab, lab.spool(event, at=at, **fields), number)
    assert lab.drain() == 0
    _assert_mended(lab)


def written(lab: Lab, name: str, number: int) -> None:
    """Have a file be the n-th that was written."""
    os.utime(lab.data / "spool" / name, ns=(0, number * 10**7))


def test_set_back_in_the_middle_of_many_waiting_events_their_order_counts(lab: Lab) -> None:
    """More than are taken in at once, and the later ones have the earlier names."""
    count = 3 * BATCH
    for number, at in enumerate(_times(count, jump=HOUR, after=count // 2)):
        call = {"tool_name": "Bash", "tool_input": {"command": f"echo {number}"}, "tool_use_id": f"c{number}"}
        written(lab, lab.spool("PostToolUse", at=at, **call), number)
    assert lab.drain() == 0
    calls = [call for (call,) in lab.rows("select tool_use_id from events order by seq")]
    assert calls == [f"c{number}" for number in range(count)]


def test_where_names_and_files_agree_the_names_decide(lab: Lab) -> None:
    """They are finer: files of the same moment may have any number."""
    now = time.time_ns()
    names = [lab.raw_spool(b"x", at=now // 1_000_000 + number) for number in (3, 1, 2)]
    for name in names:
        os.utime(lab.data / "spool" / name, ns=(now, now))
    spool = Spool(lab.data / "spool", lab.data / "aside")
    assert spool.arrivals(2) == sorted(names)[:2]


@pytest.mark.parametrize("back", BACK)
def test_set_back_between_two_prompts_what_follows_belongs_to_the_second(lab: Lab, back: str) -> None:
    begin = time.time_ns() // 1_000_000
    said: list[Said] = [
        ("UserPromptSubmit", {"prompt": "First the till"}),
        ("Stop", {"last_assistant_message": "The till is mended now, with a new drawer."}),
        ("UserPromptSubmit", {"prompt": "Then the shelf"}),
        ("PostToolUse", {**EDIT, "tool_use_id": "c1"}),
        ("Stop", {"last_assistant_message": "The shelf is mended now, with a new board."}),
        ("UserPromptSubmit", {"prompt": "<private>CANARY</private>"}),
        ("PostToolUse", {"tool_name": "Bash", "tool_input": {"command": "echo CANARY"}, "tool_use_id": "c2"}),
    ]

    async def work(service: Service) -> None:
        await service.recover()
        for number, (event, fields) in enumerate(said):
            lab.spool(event, at=begin + number - (BACK[back] if number >= 2 else 0), **fields)
            assert await service.drain_once() == 1
        await _finish(service)

    _live(work)
    told = "select t.number, e.kind from events e join turns t on t.id = e.turn_id order by e.seq"
    assert lab.rows(told) == [(1, "prompt"), (1, "stop"), (2, "prompt"), (2, "tool"), (2, "stop")]
    assert lab.rows("select number, closed_by, private from turns order by number") == [
        (1, "stop", 0), (2, "stop", 0), (3, None, 1),
    ]  # fmt: skip
    newest = "select completed from session_summaries order by created_at desc, id desc limit 1"
    assert lab.rows(newest) == [("The shelf is mended now, with a new board.",)]


def _event(seq: int, at: int, source: str = "hook", agent_id: str = "") -> dict[str, Any]:
    return {"seq": seq, "at": at, "source": source, "agent_id": agent_id}


@pytest.mark.parametrize(
    ("live", "read", "order"),
    [
        ([10, 20, 30], [15, 5, 40], [5, 10, 15, 20, 30, 40]),
        ([100, 110, 10, 20], [105, 15, 115, 25], [100, 105, 110, 115, 10, 15, 20, 25]),
        ([100, 110, 10, 20], [50], [100, 110, 10, 20, 50]),
        ([100, 10], [5], [5, 100, 10]),
        ([], [30, 10, 20], [30, 10, 20]),
        ([], [], []),
    ],
)
def test_what_was_read_back_is_placed_by_its_time(live: list[int], read: list[int], order: list[int]) -> None:
    rows = [_event(number, at) for number, at in enumerate(live)]
    rows += [_event(100 + number, at, "transcript") for number, at in enumerate(read)]
    assert [row["at"] for row in order_events(rows[::-1])] == order


def test_a_subagents_events_are_placed_within_a_transcript() -> None:
    rows = [_event(1, 10, "transcript"), _event(2, 30, "transcript"), _event(3, 20, "transcript", "a1")]
    assert [row["seq"] for row in order_events(rows)] == [1, 3, 2]


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
