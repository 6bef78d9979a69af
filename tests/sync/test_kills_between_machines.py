"""Whatever is killed, cut off, restored or edited at the same time: nothing is lost, doubled or brought back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from claude_mem.domain.export_format import ObservationRecord
from claude_mem.storage.records import DeletionScope
from claude_mem.storage.sqlite import engine
from claude_mem.sync import apply, changes
from tests.support import proof
from tests.support.devices import Device, Wire, observation, project, session, settle, work

POINTS = ("space.read", "space.appended", "space.collected", "space.applied", "space.deleted", "write.before_commit")
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # thousands of syncs of a disk would take minutes
EXAMPLES = 150 if proof.long() else 12


# --- real kills ------------------------------------------------------------------------------------------------------


@pytest.mark.kills
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("nth", [1, 2])
def test_a_killed_exchange_is_finished_by_the_next_one(tmp_path: Path, point: str, nth: int) -> None:
    a, b = Device(tmp_path, 1).join(), Device(tmp_path, 2).join()
    wire = Wire(tmp_path / "wire.json")
    a.add(*work("s1"), *work("s2"))
    settle(wire, [a, b])
    b.forget("s1.k1")
    b.add(*work("s3"))
    b.exchange(wire)
    a.edit("s2.k1", "Edited on a")
    a.close()
    env = {**os.environ, "CLAUDE_MEM_FAILPOINT": f"{point}:{nth}"}
    words = [sys.executable, "-m", "tests.support.devices", str(tmp_path), "1"]
    done = subprocess.run(words, env=env, capture_output=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    assert done.returncode or nth > 1
    a = Device(tmp_path, 1)
    a.recover()
    wire = Wire(tmp_path / "wire.json")
    settle(wire, [a, b])
    assert a.titles() == b.titles() == ["Edited on a", "Title of s3.k1"]
    assert a.view() == b.view()
    assert a.conflicts() == b.conflicts() == []
    versions = [(entry.item, entry.version) for device in wire.logs for entry in a.entries(device)]
    assert len(versions) == len(set(versions))
    for device in (a, b):
        device.close()


# --- any history -----------------------------------------------------------------------------------------------------


class Crash(BaseException):
    """The process dies here."""


class Histories:
    """Machines that do as they are told, and what must have come of it."""

    def __init__(self, folder: Path, machines: int) -> None:
        self.machines = [Device(folder, number).join() for number in range(1, machines + 1)]
        self.wire, self.number = Wire(), 0
        self.added: set[str] = set()
        self.ever: set[str] = set()
        self.deleted: set[str] = set()
        self.unsent: dict[int, set[str]] = {number: set() for number in range(machines)}
        self.backups: dict[int, Path] = {}
        self.crash_at = ("", 0)

    def pass_point(self, name: str) -> None:
        point, left = self.crash_at
        if name == point:
            self.crash_at = (point, left - 1)
            if left <= 1:
                self.crash_at = ("", 0)
                raise Crash

    def run(self, machine: int, action: str, choice: int) -> None:
        device = self.machines[machine % len(self.machines)]
        index = self.machines.index(device)
        keys = sorted(one.key for one in device.records().values() if isinstance(one, ObservationRecord))
        key = keys[choice % len(keys)] if keys else ""
        if action == "add" or not keys:
            self.number += 1
            name = f"m{index}n{self.number}"
            device.add(project(), session("shared"), observation(name, name="shared", number=1 + choice % 3))
            self.added.add(name)
            self.ever.add(name)
            self.unsent[index].add(name)
        elif action == "edit":
            self.number += 1
            device.edit(key, f"{key} edit {self.number}")
        elif action == "pin":
            row = device.find(key)
            device.db.write_now(lambda tx: tx.memory.set_pinned(row, pinned=bool(choice % 2), now=1))
        elif action in ("forget", "erase"):
            scope = DeletionScope(ids=(device.find(key),))
            (device.erase if action == "erase" else device.forget_scope)(scope)
            self.deleted.add(key)
        elif action == "backup":
            self.backups[index] = device.save(f"backup{self.number}-")
        elif action == "restore" and index in self.backups:
            device.restore(self.backups[index])
            device.recover()
            there = {one.key for one in device.records().values() if isinstance(one, ObservationRecord)}
            self.added -= self.unsent[index] - there  # nobody else had heard of these
        else:
            self.exchange(device, index, action, choice)

    def exchange(self, device: Device, index: int, action: str, choice: int) -> None:
        if action == "crash":
            self.crash_at = (POINTS[choice % len(POINTS)], 1 + choice % 3)
        try:
            device.collect()
            device.push(self.wire, limit=1 + choice % 5 if action == "part" else 10**6)
            if action != "part":
                self.unsent[index].clear()
            device.pull(self.wire, limit=1 + choice % 4 if action == "part" else 10**6)
            device.apply()
        except Crash:
            device.reopen()
            device.recover()
        self.crash_at = ("", 0)


ACTIONS = (
    "add", "add", "edit", "edit", "pin", "forget", "erase", "exchange", "exchange", "part", "crash", "crash", "backup",
    "restore",
)  # fmt: skip
STEPS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(ACTIONS), st.integers(0, 30)), min_size=6, max_size=24)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(machines=st.integers(2, 3), steps=STEPS)
def test_nothing_is_lost_doubled_or_brought_back(machines: int, steps: list[tuple[int, str, int]]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, pytest.MonkeyPatch.context() as patch:
        history = Histories(Path(folder), machines)
        for module in (changes, apply, engine):
            patch.setattr(module, "failpoint", history.pass_point)
        try:
            for step in steps:
                history.run(*step)
            settle(history.wire, history.machines)
            check(history)
        finally:
            for device in history.machines:
                device.close()


def check(history: Histories) -> None:
    views = [device.view() for device in history.machines]
    assert all(view == views[0] for view in views)
    keys = {one.key for one in history.machines[0].records().values() if isinstance(one, ObservationRecord)}
    lost, back = history.added - history.deleted - keys, history.deleted & keys
    unknown = keys - history.ever
    assert (lost, back, unknown) == (set(), set(), set())
    conflicts = [device.conflicts() for device in history.machines]
    assert all(one == conflicts[0] for one in conflicts)
