"""The means of the other tests: what they rely on holds, however and wherever they are run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from claude_mem import bridge, hook
from claude_mem.system import process
from tests.support import forks, patient_bridge, patient_hook, scheduling, waiting
from tests.support.lab import HOOK, LAUNCH, Lab
from tests.worker.test_hook import payload, run

ROOT = Path(__file__).parents[2]
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGCHLD)
# Started with all of these ignored, as by a runner; then a child tells what it ignores, and the exit code of another.
RUN = """
import json, subprocess, sys
from tests.support import signals
signals.give_back()
shown = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
ignored = int(next(line for line in shown.splitlines() if line.startswith("SigIgn")).split()[1], 16)
blocked = int(next(line for line in shown.splitlines() if line.startswith("SigBlk")).split()[1], 16)
print(json.dumps([ignored, blocked, subprocess.run(["sh", "-c", "exit 7"]).returncode]))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells which signals a process ignores")
def test_what_a_runner_ignores_the_programs_that_tests_start_do_not() -> None:
    def ignore() -> None:
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)

    done = subprocess.run(
        [sys.executable, "-c", RUN], cwd=ROOT, capture_output=True, text=True, check=True, preexec_fn=ignore
    )
    ignored, blocked, code = json.loads(done.stdout)
    assert [number for number in IGNORED if (ignored | blocked) >> (number - 1) & 1] == []
    assert code == 7


def test_whoever_ignored_a_signal_goes_on_ignoring_it() -> None:
    code = (
        "import os, signal; from tests.support import signals; signals.give_back(); os.kill(os.getpid(), signal.SIGHUP)"
    )
    command = ["/bin/sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-c", code]
    subprocess.run(command, cwd=ROOT, check=True)


def test_a_wait_in_vain_says_what_was_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SECONDS", 0.05)
    with pytest.raises(AssertionError, match="in vain: a parcel"):
        waiting.wait_for(lambda: None, lambda: "a parcel")
    with pytest.raises(AssertionError, match=r"still \[\]"):
        waiting.wait_for(list)


def test_the_patient_hook_is_the_hook_but_for_its_limits(lab: Lab) -> None:
    assert all(getattr(hook, name) < patient_hook.SECONDS for name in patient_hook.LIMITS)
    assert all(getattr(bridge, name) < patient_bridge.SECONDS for name in patient_bridge.LIMITS)
    sent = payload("UserPromptSubmit", prompt="a <private>b</private> c")
    answers = [run(lab, "new", sent, program=program) for program in (LAUNCH, HOOK)]
    first, second = sorted((lab.data / "spool").iterdir())
    assert answers[0] == answers[1]
    assert first.read_bytes() == second.read_bytes()


def test_files_whose_tests_share_something_are_kept_together() -> None:
    assert [name for name in (*scheduling.FILES, *scheduling.FOLDERS) if not (ROOT / name).exists()] == []
    assert scheduling.scope("tests/viewer/test_home.py::test_x[a::b]") == "tests/viewer/test_home.py"
    assert scheduling.scope("tests/worker/test_mcp.py::test_x") == "tests/worker/test_mcp.py"
    assert scheduling.scope("tests/worker/test_hook.py::test_x[a]") == "tests/worker/test_hook.py::test_x[a]"


def test_a_lab_leaves_nothing_running_even_if_its_test_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that does not hear its signal, one that is no worker at all, and one that nobody has waited for."""
    lab = Lab(tmp_path)
    deaf = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])"
    lab.workers.append(forks.start(["serve"], lab.env(), lab.folder, change=deaf))
    waiting.wait_for(lambda: process.running_worker(lab.data))
    stray = subprocess.Popen(["sleep", "1000"], env=lab.env())
    monkeypatch.setattr(waiting, "SECONDS", 0.5)
    monkeypatch.setattr(process, "stop_worker", lambda _: False)
    pids = [stray.pid, *(worker.pid for worker in lab.workers)]
    with pytest.raises(AssertionError, match=f"still running: .*{stray.pid}"):
        lab.close()
    assert stray.wait() == -signal.SIGKILL
    assert process.lock_holder(lab.data) is None
    with pytest.raises(ProcessLookupError):
        os.kill(pids[1], 0)
