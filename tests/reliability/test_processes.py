"""One worker, however many start at once; what is stale or strange stops nobody; and when it ends, nothing is left.

`make test` takes a small sample of races and lives, `make test-crash` fifty races of fifty and two hundred lives.
"""

from __future__ import annotations

import fcntl
import http.server
import json
import os
import random
import signal
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from claude_mem.client import Client
from claude_mem.system import process
from tests.support import forks, proof
from tests.support.lab import LAUNCH, Lab
from tests.support.waiting import wait_for

RACES, RIVALS = (50, 50) if proof.long() else (2, 8)
LIVES = 200 if proof.long() else 6

pytestmark = pytest.mark.timeout(1800 if proof.long() else 600)


def _sessions() -> dict[int, list[int]]:
    """Who belongs to which session of processes. A zombie has ended, unless one of its threads is still at it."""
    found: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            about = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        state, session, threads = about[0], about[3], about[17]
        if state != "Z" or int(threads) > 1:
            found.setdefault(int(session), []).append(int(folder.name))
    return found


def _is_over(session: int) -> bool:
    return not _sessions().get(session)


def test_of_all_who_start_at_once_exactly_one_works(lab: Lab) -> None:
    """Every other race begins with what a killed worker has left behind."""
    for race in range(RACES):
        rivals = [forks.start(["serve"], lab.env(), lab.folder) for _ in range(RIVALS)]
        worker = wait_for(lambda: process.running_worker(lab.data))
        (winner,) = [rival for rival in rivals if rival.pid == worker.pid]
        assert {rival.wait() for rival in rivals if rival is not winner} == {0}
        assert process.running_worker(lab.data) == worker
        assert Client(worker).get("/api/health")["captured"] == 0
        os.kill(worker.pid, signal.SIGKILL if race % 2 else signal.SIGTERM)
        assert winner.wait() == (-signal.SIGKILL if race % 2 else 0)
    measured = {"races": RACES, "of": RIVALS, "exactly one": RACES}
    goal = "exactly 1 of 50 in 50 of 50 races"
    proof.record(
        "workers that start at once", of="R3", goal=goal, measured=measured, ok=True, command="make test-crash"
    )


def test_however_a_worker_ends_nothing_of_it_is_left(lab: Lab) -> None:
    chance, names, slowest, cut = random.Random(5), [], 0.0, 0
    for life in range(LIVES):
        names += [
            lab.spool("PostToolUse", tool_name="Bash", tool_input={}, tool_use_id=f"{life}-{i}") for i in range(3)
        ]
        how = ("term", "kill", "orphan")[life % 3]
        if how == "orphan":
            lab.mem("start")  # whoever started it is gone by now
        else:
            lab.start()
        worker = process.running_worker(lab.data)
        assert worker is not None
        assert worker.pid in _sessions()[worker.pid]  # it leads a session of its own: all of its kind are found by that
        time.sleep(chance.uniform(0, 0.05))
        begin = time.monotonic()
        cut += how != "term"
        os.kill(worker.pid, signal.SIGTERM if how == "term" else signal.SIGKILL)
        wait_for(partial(_is_over, worker.pid))
        slowest = max(slowest, time.monotonic() - begin)
        for running in lab.workers:
            running.wait()
        lab.workers.clear()
    assert lab.processes() == []
    assert lab.drain() == 0
    assert [row[0] for row in lab.rows("select event_id from events order by seq")] == names
    measured = {"lives": LIVES, "killed": cut, "left over": 0, "slowest end in seconds": round(slowest, 2)}
    goal = "0 descendants within 2 s, 200 cycles"
    proof.record(
        "what is left of a worker", of="R12", goal=goal, measured=measured, ok=slowest <= 2, command="make test-crash"
    )


def test_a_straggler_does_not_undo_a_stop(lab: Lab) -> None:
    """A hook asked for a worker, a command for another, which was quicker; then a person stopped that one."""
    asked = time.time()
    lab.start()
    lab.mem("stop")
    straggler = forks.start(["serve"], {**lab.env(), "CLAUDE_MEM_SPAWNED_AT": str(asked)}, lab.folder)
    assert straggler.wait() == 0
    assert process.lock_holder(lab.data) is None
    later = forks.start(["serve"], {**lab.env(), "CLAUDE_MEM_SPAWNED_AT": str(time.time())}, lab.folder)
    assert wait_for(lambda: process.running_worker(lab.data)).pid == later.pid
    lab.mem("stop")
    assert later.wait() == 0


def test_a_new_worker_is_not_taken_for_the_one_that_was_killed_before_it(lab: Lab) -> None:
    """It holds the lock for a moment before it writes its pid. Until then the files name its predecessor."""
    old = lab.start().worker
    os.kill(old.pid, signal.SIGKILL)
    lab.workers.pop().wait()
    with open(lab.data / "worker.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert process.lock_holder(lab.data) == old.pid
        assert process.running_worker(lab.data) is None
    assert lab.start().get("/api/health")["pid"] != old.pid


def test_a_clock_that_was_set_back_keeps_no_worker_from_starting(lab: Lab) -> None:
    lab.start()
    lab.mem("stop")
    tomorrow = time.time() + 86_400
    os.utime(lab.data / "worker.stopped", (tomorrow, tomorrow))
    assert lab.start().worker.pid


def test_a_stopped_worker_is_replaced_within_seconds_and_there_are_never_two(lab: Lab) -> None:
    old = lab.start().worker
    os.kill(old.pid, signal.SIGSTOP)
    try:
        assert lab.hook("UserPromptSubmit", program=LAUNCH, prompt="go", prompt_id="p1")["continue"] is True
        assert lab.status()["worker"] == "hung"
        doctor = lab.mem("doctor", "--json", ok=False).stdout
        assert "hung" in next(line for line in doctor.splitlines() if '"worker"' in line)
        assert process.lock_holder(lab.data) == old.pid  # nobody takes the lock away from one that may wake up
        begin = time.monotonic()
        lab.mem("restart")
        taken = time.monotonic() - begin
    finally:
        if process.lock_holder(lab.data) == old.pid:
            os.kill(old.pid, signal.SIGKILL)
    new = process.running_worker(lab.data)
    assert new is not None
    assert new.pid != old.pid
    assert old.pid not in _sessions().get(old.pid, [])
    assert lab.wait_digested()["stored"] == 1
    measured = round(taken, 2)
    proof.record(
        "a stopped worker is replaced", of="R3", goal="takeover within 5 s", measured=measured, unit="s", ok=taken <= 5,
        command="make test-crash",
    )  # fmt: skip


# --- strangers -------------------------------------------------------------------------------------------------------


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(4096):
            self.server.heard.append(data)  # type: ignore[attr-defined]
            self.request.sendall(data)


class _Http(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.heard.append(str(self.headers).encode())  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status": "ok", "captured": 7}')

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


class _Threads(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def _stranger(kind: str) -> Iterator[tuple[int, list[bytes]]]:
    with _Threads(("127.0.0.1", 0), {"echo": _Echo, "http": _Http}[kind]) as server:
        server.heard = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_address[1], server.heard  # type: ignore[attr-defined]
        finally:
            server.shutdown()
            thread.join()


def _use(lab: Lab) -> None:
    lab.hook("UserPromptSubmit", prompt="go", prompt_id="p1")
    assert lab.wait_digested()["stored"] == 1


@pytest.mark.parametrize("kind", ["echo", "http"])
def test_a_stranger_at_our_port_is_left_alone(lab: Lab, kind: str) -> None:
    with _stranger(kind) as (port, heard):
        worker = lab.start(CLAUDE_MEM_WORKER_PORT=str(port)).worker
        assert worker.port != port
        _use(lab)
        assert heard == []


def test_another_one_of_us_at_our_port_is_left_alone(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Lab(tmp_path / "other")
    try:
        theirs = other.start().worker
        assert lab.start(CLAUDE_MEM_WORKER_PORT=str(theirs.port)).worker.port != theirs.port
        _use(lab)
        assert other.status()["captured"] == 0
    finally:
        other.close()


@pytest.mark.parametrize("kind", ["echo", "http"])
def test_where_a_dead_worker_listened_a_stranger_is_told_nothing(lab: Lab, kind: str) -> None:
    """Its file still names the port, the token and a process that lives: ours. Nothing holds the lock."""
    lab.data.mkdir(mode=0o700)
    with _stranger(kind) as (port, heard):
        told = {"pid": os.getpid(), "port": port, "token": "t" * 43, "version": "0.0.1", "started_at": 0}
        (lab.data / "worker.json").write_text(json.dumps(told))
        (lab.data / "worker.lock").write_text(str(os.getpid()))
        os.mkfifo(lab.data / "worker.fifo")  # without a reader
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(lab.data / "worker.sock"))  # without a listener; we have none, some did
        assert lab.status()["worker"] == "stopped"
        assert lab.mem("stop").stdout == "no worker was running\n"
        begin = time.monotonic()
        lab.start()
        taken = time.monotonic() - begin
        _use(lab)
        assert heard == []
    measured = round(taken, 2)
    proof.record(
        f"start over what is stale ({kind})", of="R3", goal="within 2 s, by itself", measured=measured, unit="s",
        ok=taken <= 2, command="make test-crash",
    )  # fmt: skip
