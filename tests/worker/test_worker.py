"""The worker's life: one at a time, found by everyone, stopped without a trace; and the runner's bad days."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable

import pytest

from claude_mem.config import Config
from claude_mem.domain.errors import OperationFailed
from claude_mem.domain.records import Digest, Job, Turn
from claude_mem.storage.base import Commit
from claude_mem.storage.sqlite.journal import jobs
from claude_mem.system import process
from claude_mem.worker.app import Service
from claude_mem.worker.runner import Runner
from tests.support import forks
from tests.support.lab import LAUNCH, Lab
from tests.support.waiting import wait_for


def test_start_status_restart_stop(lab: Lab) -> None:
    assert "worker running" in lab.mem("start").stdout
    first = process.running_worker(lab.data)
    assert first is not None
    assert json.loads((lab.data / "worker.json").read_bytes()).keys() == {
        "pid",
        "port",
        "token",
        "version",
        "started_at",
    }
    assert lab.mem("start").stdout.count(str(first.pid)) == 1
    found = lab.status()
    assert (found["worker"], found["pid"]) == ("running", first.pid)
    lab.mem("restart")
    second = process.running_worker(lab.data)
    assert second is not None
    assert second.pid != first.pid
    assert second.token == first.token
    assert "worker stopped" in lab.mem("stop").stdout
    assert "no worker was running" in lab.mem("stop").stdout
    assert not (lab.data / "worker.json").exists()
    assert "worker stopped" in lab.mem("logs").stdout


def test_a_hook_starts_the_worker_and_does_not_wait(lab: Lab) -> None:
    lab.hook("UserPromptSubmit", prompt="go", prompt_id="p1")
    lab.wait_digested()
    assert lab.status()["worker"] == "running"


def test_a_worker_that_ends_at_once_is_not_waited_for(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still, so only the end of the started process can end the wait."""
    lab.mem("start")
    lab.mem("stop")
    (lab.data / "claude-mem.db").rename(lab.folder / "elsewhere.db")
    (lab.data / "claude-mem.db").symlink_to(lab.folder / "elsewhere.db")
    monkeypatch.setattr("claude_mem.system.process.time.monotonic", lambda: 0.0)
    with pytest.raises(OperationFailed, match="did not start"):
        process.ensure_worker(lab.data)


def test_a_hung_worker_is_noticed_and_replaced(lab: Lab) -> None:
    worker = lab.start().worker
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        assert lab.hook("UserPromptSubmit", program=LAUNCH, prompt="go", prompt_id="p1")["continue"] is True
        assert lab.status()["worker"] == "hung"
        process.stop_worker(lab.data, seconds=0.5)
    finally:
        if process.lock_holder(lab.data) == worker.pid:
            os.kill(worker.pid, signal.SIGKILL)
    lab.start()
    assert lab.wait_digested()["stored"] == 1


def test_only_one_of_many_workers_serves(lab: Lab) -> None:
    lab.workers += [forks.start(["serve"], lab.env(), lab.folder) for _ in range(6)]
    wait_for(lambda: sum(not rival.ended() for rival in lab.workers) == 1)
    lab.workers.sort(key=lambda rival: not rival.ended())  # whoever is still there comes last
    *losers, winner = lab.workers
    assert {rival.wait() for rival in losers} == {0}
    winner.terminate()
    assert winner.wait() == 0


def test_list_and_show_start_a_worker_by_themselves(lab: Lab) -> None:
    lab.spool("UserPromptSubmit", prompt="Write it", prompt_id="p1")
    lab.spool(
        "PostToolUse",
        tool_name="Write",
        tool_input={"file_path": str(lab.project / "a.py")},
        tool_use_id="c",
        prompt_id="p1",
    )
    lab.spool("Stop", last_assistant_message="The module is written and lies in a.py.", prompt_id="p1")
    lab.drain()
    rows = [json.loads(line) for line in lab.mem("list", "--json").stdout.splitlines()]
    assert rows[0]["content_session_id"] == "s1"
    assert "The module is written" in lab.mem("list").stdout
    assert "- Edited a.py" in lab.mem("show", str(rows[0]["id"])).stdout
    for kind in ("summaries", "prompts", "sessions", "projects"):
        assert lab.mem("list", kind).stdout
    missing = lab.mem("show", "999", ok=False)
    assert (missing.returncode, "no observation 999" in missing.stderr) == (1, True)


def test_misuse_is_told_apart_from_failure(lab: Lab) -> None:
    assert lab.mem("nonsense", ok=False).returncode == 2
    assert lab.mem("retry", ok=False).returncode == 1
    assert "start it with" in lab.mem("retry", ok=False).stderr


# --- the runner -----------------------------------------------------------------------------------------------------


def _with_runner(
    config: Config, stage: Callable[[Job], Awaitable[Commit]], work: Callable[[Service, Runner], Awaitable[None]]
) -> None:
    async def go() -> None:
        service = Service(config)
        try:
            await work(service, Runner(service.db, {"try": stage}, service.publish))
        finally:
            service.close()

    asyncio.run(go())


def test_a_stage_that_fails_is_tried_again_later(config: Config) -> None:
    async def stage(job: Job) -> Commit:
        raise ValueError("not today")

    async def work(service: Service, runner: Runner) -> None:
        await service.db.write(jobs.enqueue_job, "try", "1", now=0)
        assert await runner.step()
        assert not await runner.step()
        (row,) = await service.db.read(jobs.list_jobs)
        assert (row.attempts, row.dead, row.error) == (1, 0, "ValueError: not today")

    _with_runner(config, stage, work)


def test_a_commit_that_fails_leaves_the_job_and_nothing_else(config: Config) -> None:
    async def stage(job: Job) -> Commit:
        def commit(conn: object) -> list[object]:
            jobs.enqueue_job(conn, "other", "2", now=0)  # type: ignore[arg-type]
            raise ValueError("at the last moment")

        return commit  # type: ignore[return-value]

    async def work(service: Service, runner: Runner) -> None:
        await service.db.write(jobs.enqueue_job, "try", "1", now=0)
        await runner.step()
        assert [row.kind for row in await service.db.read(jobs.list_jobs)] == ["try"]

    _with_runner(config, stage, work)


def test_an_unknown_kind_of_job_does_not_stop_the_others(config: Config) -> None:
    async def stage(job: Job) -> Commit:
        return lambda conn: ()

    async def work(service: Service, runner: Runner) -> None:
        await service.db.write(jobs.enqueue_job, "unheard of", "1", now=0)
        await service.db.write(jobs.enqueue_job, "try", "1", now=1)
        while await runner.step():
            pass
        assert [row.kind for row in await service.db.read(jobs.list_jobs)] == ["unheard of"]

    _with_runner(config, stage, work)


def test_a_compressor_that_fails_for_ever_is_visible_and_can_be_retried(config: Config, lab: Lab) -> None:
    class Broken:
        name = "broken"

        async def compress(self, turn: Turn) -> Digest:
            raise RuntimeError("no words")

    async def go() -> None:
        service = Service(config, compressor=Broken())
        lab.spool("UserPromptSubmit", prompt="go", prompt_id="p1")
        lab.spool("Stop", prompt_id="p1")
        await service.run_until_idle()
        for _ in range(2):
            await service.run_until_idle()
        totals = await service.event_account()
        assert totals.set_aside_by == {"dead_job": 2}
        assert "doctor" in (await service.context_service.notice())[0]
        service.close()

    asyncio.run(go())
    doctor = lab.mem("doctor", ok=False)
    assert "claude-mem retry" in doctor.stdout
