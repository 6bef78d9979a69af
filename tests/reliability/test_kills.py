"""`kill -9` at every named point: nothing lost, nothing doubled, and in the end the same memory as undisturbed.

Each case kills the worker twice, at two points, and lets the third one finish. The checker compares what was sent
with what is stored, queued, set aside or filtered; the last tests break the design on purpose and show that it
notices.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

from claude_mem import hook
from claude_mem.system import failpoints, process
from tests.support import forks
from tests.support.amounts import LONG
from tests.support.history import Sent, check, send, state
from tests.support.lab import MEM, Lab
from tests.support.waiting import wait_for

pytestmark = pytest.mark.kills

# Points that this history does not pass, and the module that kills there.
ELSEWHERE = {
    "serve.stopping": "test_kills.py",
    "refine.booked": "test_spending.py",
    "refine.answered": "test_spending.py",
    "refine.closed": "test_spending.py",
    "import.read": "test_older.py",
    "import.batch": "test_older.py",
    "backfill.read": "test_backfill.py",
    "backfill.added": "test_backfill.py",
    **dict.fromkeys(("index.vectors", "inject.composed", "inject.noted", "checkpoint.begun"), "test_chores.py"),
    **dict.fromkeys(("checkpoint.done", "backup.step", "backup.copied", "backup.made"), "test_chores.py"),
    **dict.fromkeys(("repair.moved", "repair.salvaged"), "test_damage.py"),
    "retention.faded": "test_keeping.py",
    **dict.fromkeys(("rewrite.drafted", "rewrite.kept"), "test_reprocess.py"),
    **dict.fromkeys(("space.read", "space.appended", "space.collected"), "test_kills_between_machines.py"),
    **dict.fromkeys(("space.applied", "space.deleted"), "test_kills_between_machines.py"),
    **dict.fromkeys((point for point in failpoints.FAILPOINTS if point.startswith("sync.")), "test_spaces.py"),
    **dict.fromkeys(("forget.put_away", "forget.erased", "forget.part"), "test_chores.py"),
}
WORKER_POINTS = [point for point in failpoints.FAILPOINTS if point not in ELSEWHERE]
# How many times over: 1 in `make test`, 3 in `make test-crash`, 15 in `make test-crash-long`.
ROUNDS = int(os.environ.get("CLAUDE_MEM_KILL_ROUNDS", "1"))
NTH = (1, 3) if ROUNDS == 1 and not LONG else (1, 2, 3, 4, 6)
RANDOM_KILLS = 40 if ROUNDS == 1 else 150


def _pairs() -> list[tuple[str, str]]:
    """Every point, at several passes, each followed by a second death somewhere else."""
    chance = random.Random(1)
    places = [f"{point}:{nth}" for _ in range(ROUNDS) for point in WORKER_POINTS for nth in NTH]
    return [(place, f"{chance.choice(WORKER_POINTS)}:{chance.choice((1, 1, 2))}") for place in places]


def test_an_installed_package_has_no_failpoints(lab: Lab) -> None:
    """The environment of an agent may be a project's: it must not be able to kill the hook or the worker."""
    package = lab.folder / "installed" / "claude_mem"
    shutil.copytree(Path(hook.__file__).parent, package, ignore=shutil.ignore_patterns(hook.CHECKOUT_MARKER))
    payload = f'{{"session_id": "s", "hook_event_name": "UserPromptSubmit", "cwd": "{lab.project}", "prompt": "go"}}'
    lab.no_worker()
    for number, point in enumerate(hook.FAILPOINTS, start=1):
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(package / "launch.py"), "new"],
            input=payload.encode(),
            env=lab.env(CLAUDE_MEM_FAILPOINT=point),
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stdout[:1]) == (0, b"{"), point
        assert len(list((lab.data / "spool").glob("[!.]*"))) == number
    env = lab.env(CLAUDE_MEM_FAILPOINT="drain.committed", PYTHONPATH=str(package.parent))
    done = subprocess.run([*MEM, "drain"], env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert lab.status()["stored"] == len(hook.FAILPOINTS)


def test_the_wheel_leaves_out_the_marker_that_switches_failpoints_on() -> None:
    root = Path(__file__).parents[2]
    names = {Path(file.relative_path).name for file in WheelBuilder(str(root)).recurse_included_files()}
    assert "hook.py" in names
    assert hook.CHECKOUT_MARKER not in names


def test_every_point_is_named_in_one_place_and_killed_at_in_a_test() -> None:
    source = Path(hook.__file__).parent
    text = {path: path.read_text("utf-8") for path in source.rglob("*.py")}
    passed = [name for found in text.values() for name in re.findall(r'failpoint\("([a-z_.]+)"\)', found)]
    assert sorted(passed) == sorted((*failpoints.FAILPOINTS, *failpoints.SERVER_FAILPOINTS))  # each at one place
    hooked = re.findall(r'_failpoint\(b"([a-z_.]+)"\)', text[Path(hook.__file__)])
    assert sorted(hooked) == sorted(hook.FAILPOINTS)
    suites = {path.name: path.read_text("utf-8") for path in Path(__file__).parents[1].rglob("test_*.py")}
    unkilled = [point for point, suite in ELSEWHERE.items() if point not in suites[suite]]
    assert unkilled == []
    assert '@pytest.mark.parametrize("place", SERVER_FAILPOINTS)' in suites["test_logs.py"]


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the history comes to when nobody is killed."""
    lab = Lab(tmp_path_factory.mktemp("undisturbed"))
    sent = send(lab)
    assert lab.drain() == 0
    assert check(lab, sent) == []
    found = state(lab)
    assert found["jobs"] == []
    return found


def _first_places() -> list[str]:
    """Numbered where there is more than one round, since a name may stand for one case only."""
    firsts = [first for first, _ in _pairs()]
    return [first if ROUNDS == 1 else f"{first}-{number}" for number, first in enumerate(firsts)]


@pytest.mark.parametrize(("first", "second"), _pairs(), ids=_first_places())
def test_killed_twice_anywhere_the_memory_is_the_same(
    tmp_path: Path, undisturbed: dict[str, Any], first: str, second: str, record_property: Callable[[str, Any], None]
) -> None:
    lab = Lab(tmp_path)
    sent = send(lab)
    deaths = [lab.drain(CLAUDE_MEM_FAILPOINT=place) for place in (first, second)]
    assert set(deaths) <= {0, -signal.SIGKILL}
    record_property("kills", deaths.count(-signal.SIGKILL))
    if first.endswith(":1"):
        assert deaths[0] == -signal.SIGKILL, f"{first} was never reached"
    assert lab.drain() == 0
    assert check(lab, sent) == []
    assert state(lab) == undisturbed
    lab.status()
    assert lab.rows("pragma quick_check") == [("ok",)]


@pytest.mark.parametrize("point", hook.FAILPOINTS)
def test_an_event_whose_hook_was_killed_is_there_once_or_not_at_all(
    lab: Lab, point: str, record_property: Callable[[str, Any], None]
) -> None:
    lab.no_worker()
    for number in range(16):
        assert lab.hook("PostToolUse", env={"CLAUDE_MEM_FAILPOINT": point}, **_tool(f"killed-{number}")) is None
        assert lab.hook("PostToolUse", **_tool(f"kept-{number}")) is not None
    assert lab.drain() == 0
    found = [row[0] for row in lab.rows("select tool_use_id from events order by seq")]
    kept = [name for name in found if name.startswith("kept")]
    killed = [name for name in found if name.startswith("killed")]
    assert kept == [f"kept-{number}" for number in range(16)]
    acknowledged = point in ("hook.renamed", "hook.nudged")
    assert killed == ([f"killed-{number}" for number in range(16)] if acknowledged else [])
    assert lab.status()["set_aside"] == 0
    record_property("kills", 16)


def _tool(call: str) -> dict[str, Any]:
    return {"tool_name": "Bash", "tool_input": {"command": "true"}, "tool_response": "", "tool_use_id": call}


def test_killed_at_random_moments_while_events_pour_in(lab: Lab, record_property: Callable[[str, Any], None]) -> None:
    chance = random.Random(2)
    names: list[str] = []
    for round_ in range(RANDOM_KILLS):
        names += [lab.spool("PostToolUse", **_tool(f"{round_}-{number}")) for number in range(20)]
        worker = forks.start(["serve"], lab.env(), lab.folder)
        time.sleep(chance.uniform(0, 0.15))
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
    assert lab.drain() == 0
    found = [row[0] for row in lab.rows("select event_id from events order by seq")]
    assert found == names
    assert lab.status()["stored"] == len(names)
    record_property("kills", RANDOM_KILLS)


@pytest.mark.parametrize("point", ["", "serve.stopping", "drain.committed", "write.before_commit"])
def test_a_stop_with_200_events_queued_loses_none(lab: Lab, point: str) -> None:
    names = [lab.spool("PostToolUse", **_tool(f"call-{number}")) for number in range(200)]
    worker = forks.start(["serve"], lab.env(CLAUDE_MEM_FAILPOINT=point), lab.folder)
    wait_for(lambda: process.lock_holder(lab.data) is not None or worker.ended(), step=0.005)
    worker.terminate()
    assert worker.wait() in ((0, -15) if not point else (0, -9, -15))
    found = lab.status()
    assert found["captured"] == 200
    assert lab.drain() == 0
    assert [row[0] for row in lab.rows("select event_id from events order by seq")] == names
    assert lab.status()["stored"] == 200


def test_a_job_that_kills_its_worker_three_times_is_given_up_visibly(lab: Lab) -> None:
    sent = send(lab)
    deaths = 0
    while lab.drain(CLAUDE_MEM_FAILPOINT="compress.loaded") == -signal.SIGKILL:
        deaths += 1
    assert deaths == 3 * 3  # three turns, each tried three times and no more
    found = lab.status()
    assert found["set_aside_by"]["dead_job"] > 0
    assert found["queued"] == 0
    lab.start()
    assert "3 jobs" in lab.mem("retry").stdout
    lab.wait_digested()
    lab.mem("stop")
    assert check(lab, sent) == []


# --- the checker notices ------------------------------------------------------------------------------------------

UNLINK_FIRST = """
import claude_mem.capture.drain as ingest
right = ingest.read_spool_file
def wrong(spool, name, *rest):
    taken = right(spool, name, *rest)
    spool.remove(name)          # before the commit
    return taken
ingest.read_spool_file = wrong
"""
NO_RECEIPT = """
import dataclasses, os
import claude_mem.storage.sqlite.journal.events as events
from claude_mem.storage.sqlite.binding import bound
from claude_mem.storage.sqlite.journal.store import Journal
Journal.find_receipt = bound(lambda conn, event_id: None)        # forget what was seen before
def add(conn, event, **rest):
    conn.execute("delete from receipts where event_id = ?", (event.id,))
    return events.add_event(conn, dataclasses.replace(event, id=event.id + os.urandom(2).hex(), tool_use_id=""), **rest)
Journal.add_event = bound(add)
"""
FINISH_FIRST = """
from claude_mem.storage.sqlite.binding import bound
from claude_mem.storage.sqlite.journal import jobs
from claude_mem.storage.sqlite.journal.store import Journal
def claim(conn, *kinds, **rest):
    job = jobs.claim_job(conn, *kinds, **rest)
    if job and job.kind == "compress":
        conn.execute("delete from jobs where id = ?", (job.id,))      # done before it is done
    return job
Journal.claim_job = bound(claim)
Journal.finish_job = bound(lambda conn, job: None)
"""


@pytest.mark.parametrize(
    ("broken", "point", "complaint"),
    [
        (UNLINK_FIRST, "drain.read", "lost"),
        (NO_RECEIPT, "drain.committed", "from nowhere"),
        (FINISH_FIRST, "jobs.claimed:4", ""),
    ],
    ids=["unlink before commit", "no receipts", "finish before result"],
)
def test_the_checker_notices_a_broken_design(
    lab: Lab, undisturbed: dict[str, Any], broken: str, point: str, complaint: str
) -> None:
    sent = send(lab)
    assert _run_broken(lab, broken, CLAUDE_MEM_FAILPOINT=point) == -signal.SIGKILL
    _run_broken(lab, broken)
    complaints = _complaints(lab, sent, undisturbed)
    assert any(complaint in text for text in complaints), complaints


def _complaints(lab: Lab, sent: Sent, undisturbed: dict[str, Any]) -> list[str]:
    found = state(lab)
    return check(lab, sent) + [f"different {name}" for name in undisturbed if found[name] != undisturbed[name]]


def _run_broken(lab: Lab, broken: str, **env: str) -> int:
    return forks.start(["drain"], lab.env(**env), lab.folder, change=broken).wait()
