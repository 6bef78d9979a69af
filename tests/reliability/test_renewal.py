"""After an upgrade a worker of the new version takes over by itself, and no event is lost or doubled by it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from claude_mem import __version__, hook
from claude_mem.system import process
from claude_mem.system.process import WorkerInfo
from claude_mem.worker.serve import WorkerProcess
from tests.support import forks
from tests.support.installed import SOURCE, Installation
from tests.support.lab import Lab
from tests.support.moving import Home
from tests.support.waiting import wait_for

NEWER, OLDER = "99.1.0", "0.0.9"


@pytest.fixture
def here(lab: Lab, tmp_path: Path) -> Installation:
    return Installation(tmp_path / "venv", lab)


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = int(listener.getsockname()[1])
    yield found


def running(lab: Lab) -> WorkerInfo:
    worker: WorkerInfo = wait_for(lambda: process.running_worker(lab.data))
    return worker


def renewed(lab: Lab, version: str) -> WorkerInfo:
    """The worker of this version, as soon as it is there."""

    def of_version() -> WorkerInfo | None:
        worker = process.running_worker(lab.data)
        return worker if worker is not None and worker.version == version else None

    worker: WorkerInfo = wait_for(of_version)
    return worker


def stored(lab: Lab) -> list[str]:
    """The commands of all events, when everything was taken in and the worker has ended."""
    wait_for(lambda: not any((lab.data / "spool").iterdir()))
    process.stop_worker(lab.data)
    return [json.loads(body)["input"]["command"] for (body,) in lab.rows("select body from events order by seq")]


@pytest.mark.parametrize("version", [NEWER, OLDER])
def test_after_an_upgrade_the_next_hook_brings_the_new_version(here: Installation, lab: Lab, version: str) -> None:
    here.mem("start")
    here.tell(1)
    before = running(lab)
    assert before.version == __version__
    here.set_version(version)
    here.tell(2)
    after = renewed(lab, version)
    assert after.token == before.token
    here.tell(3)
    assert stored(lab) == ["make 1", "make 2", "make 3"]
    assert f"hands over to {version}" in here.mem("logs").stdout


def test_the_new_worker_has_the_settings_that_the_old_one_was_started_with(
    here: Installation, lab: Lab, port: int
) -> None:
    here.mem("start", CLAUDE_MEM_WORKER_PORT=str(port), CLAUDE_MEM_SILENCE_MINUTES="77", CLAUDE_MEM_KEEP_LOG_DAYS="3")
    here.set_version(NEWER)
    here.tell(1)
    assert renewed(lab, NEWER).port == port
    found = lab.client().get("/api/settings")
    assert [found[name]["current"] for name in ("silence_minutes", "keep_log_days")] == [77, 3]


def test_an_upgrade_that_takes_its_time_is_waited_for(here: Installation, lab: Lab) -> None:
    """As a package manager does it: everything away, then one file after the other, the version first."""
    here.mem("start")
    before = running(lab)
    shutil.rmtree(here.package)
    files = sorted(path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert files[0].name == "__init__.py"
    for number, path in enumerate(files):
        target = here.package / path.relative_to(SOURCE)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        if number == 0:
            here.set_version(NEWER)
        if number % 20 == 0:
            os.write(_pipe(lab), b"\n")  # a hook's nudge
            assert running(lab).version == before.version
    here.tell(1)
    renewed(lab, NEWER)
    assert "worker failed" not in here.mem("logs").stdout
    assert stored(lab) == ["make 1"]


def _pipe(lab: Lab) -> int:
    return os.open(lab.data / "worker.fifo", os.O_WRONLY | os.O_NONBLOCK)


def test_code_that_can_not_be_imported_does_not_take_over(here: Installation, lab: Lab) -> None:
    here.mem("start")
    before = running(lab)
    (here.package / "worker" / "serve.py").write_text("this is no Python\n")
    here.set_version(NEWER)
    here.tell(1)
    wait_for(lambda: "cannot be started" in (lab.data / "logs" / "worker.log").read_text())
    assert running(lab) == before
    here.restore()
    here.set_version(NEWER)
    here.tell(2)
    renewed(lab, NEWER)
    assert stored(lab) == ["make 1", "make 2"]


def test_the_same_version_written_again_restarts_nothing(here: Installation, lab: Lab) -> None:
    here.mem("start")
    before = running(lab)
    here.restore()
    here.set_version(__version__)
    here.tell(1)
    here.mem("list")
    assert running(lab) == before


@pytest.mark.parametrize("text", [None, "", '"""x"""\n\n__version__ = "1.2', "__version__ = 7\n"])
def test_a_version_that_can_not_be_read_yet_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    assert hook.installed_version() == __version__
    monkeypatch.setattr(hook, "__file__", str(tmp_path / "hook.py"))
    if text is not None:
        (tmp_path / "__init__.py").write_text(text)
    assert hook.installed_version() == ""


def test_a_worker_that_is_told_to_stop_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)

    async def inside() -> bool:
        life = WorkerProcess(Home(tmp_path / "data", worker_port=0).config)
        ends = asyncio.create_task(life.run())
        while life.service is None or not (tmp_path / "data" / "worker.json").exists():
            await asyncio.sleep(0.01)
        life.start_successor = True
        os.kill(os.getpid(), signal.SIGTERM)
        await ends
        return life.start_successor

    assert asyncio.run(inside()) is False


# --- a worker that knows nothing of upgrades, as 0.1.0 ---------------------------------------------------------------


@pytest.fixture
def old(here: Installation, lab: Lab) -> WorkerInfo:
    """A worker of a version without any of this, and in its place the present code under another version."""
    here.forget_upgrades()
    here.mem("start", CLAUDE_MEM_KEEP_LOG_DAYS="3")
    worker = running(lab)
    here.restore()
    here.set_version(NEWER)
    return worker


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize("event", ["SessionStart", "UserPromptSubmit"])
def test_a_hook_replaces_a_worker_that_does_not_renew_itself(here: Installation, lab: Lab, event: str) -> None:
    here.tell(1)
    here.hook(event, source="startup", prompt="go", prompt_id="p1")
    after = renewed(lab, NEWER)
    assert lab.client().get("/api/settings")["keep_log_days"]["current"] == 3  # as the old one was told
    here.tell(2)
    wait_for(lambda: not any((lab.data / "spool").iterdir()))
    assert running(lab) == after
    process.stop_worker(lab.data)
    assert lab.rows("select count(*) from events where kind = 'tool'") == [(2,)]
    assert lab.rows("select count(*) from receipts") == [(3,)]


@pytest.mark.parametrize("words", [("list",), ("search", "basket"), ("retry",), ("save", "a fact")])
def test_a_command_replaces_it_and_goes_on(
    here: Installation, lab: Lab, old: WorkerInfo, words: tuple[str, ...]
) -> None:
    here.mem(*words)
    after = running(lab)
    assert (after.version, after.pid == old.pid) == (NEWER, False)


def test_until_then_status_and_doctor_say_so(here: Installation, lab: Lab, old: WorkerInfo) -> None:
    said = f"worker version {__version__}, installed version {NEWER}; it restarts at the next event"
    assert said in here.mem("status").stdout
    found = json.loads(here.mem("status", "--json").stdout)
    assert (found["version"], found["installed_version"], found["outdated"]) == (__version__, NEWER, said)
    doctor = [json.loads(line) for line in here.mem("doctor", "--json", ok=False).stdout.splitlines()]
    assert [check["found"] for check in doctor if check["name"] == "version"] == [said]
    assert running(lab) == old  # whoever only looks changes nothing
    here.mem("list")
    assert "installed version" not in here.mem("status").stdout + here.mem("doctor", ok=False).stdout
    assert json.loads(here.mem("status", "--json").stdout)["outdated"] == ""


def test_a_worker_that_says_no_version_is_replaced(lab: Lab) -> None:
    lab.mem("start")
    before = running(lab)
    told = json.loads((lab.data / "worker.json").read_bytes())
    del told["version"], told["started_at"]
    (lab.data / "worker.json").write_text(json.dumps(told))
    (lab.data / "worker.fifo").unlink()  # and it can't be woken
    assert "worker version unknown" in lab.mem("status").stdout
    lab.mem("list")
    after = running(lab)
    assert (after.version, after.pid == before.pid) == (__version__, False)


# --- two installations -----------------------------------------------------------------------------------------------


def test_another_installation_leaves_the_worker_alone_and_says_so(here: Installation, lab: Lab, tmp_path: Path) -> None:
    there = Installation(tmp_path / "second", lab)
    there.set_version(NEWER)
    here.mem("start")
    before = running(lab)
    for _ in range(2):
        assert "another installation" in there.mem("list").stderr
        here.mem("list")
    assert (
        f"worker version {__version__}, installed version {NEWER} (in another location)" in there.mem("status").stdout
    )
    here.tell(1)
    assert running(lab) == before
    there.mem("start")  # a person has asked for this one
    assert running(lab).version == NEWER
    assert "another installation" in here.mem("list").stderr
    assert running(lab).version == NEWER


def test_an_installation_that_is_gone_is_replaced(here: Installation, lab: Lab, tmp_path: Path) -> None:
    there = Installation(tmp_path / "second", lab)
    there.set_version(NEWER)
    there.mem("start")
    shutil.rmtree(tmp_path / "second")
    here.mem("list")
    assert running(lab).version == __version__


# --- the folder under a worker ---------------------------------------------------------------------------------------


@pytest.fixture
def worker(lab: Lab) -> Iterator[forks.Running]:
    """A worker that nobody finds any more once its folder is gone: it is ended here if it does not end by itself."""
    lab.start()
    (started,) = lab.workers
    lab.workers.clear()
    yield started
    if Path(f"/proc/{started.pid}").exists():
        os.kill(started.pid, signal.SIGKILL)
    started.wait()


@pytest.mark.parametrize("how", ["moved", "removed", "lock removed"])
def test_a_worker_leaves_when_its_folder_is_not_its_own_any_more(lab: Lab, worker: forks.Running, how: str) -> None:
    """And what comes in afterwards is stored by the one that takes its place, once."""
    lab.hook("UserPromptSubmit", prompt="before", prompt_id="p1")
    wait_for(lambda: not any((lab.data / "spool").iterdir()))
    if how == "moved":
        lab.data.rename(lab.folder / "elsewhere")
    elif how == "removed":
        shutil.rmtree(lab.data)
    else:
        (lab.data / "worker.lock").unlink()
    names = [lab.spool("UserPromptSubmit", prompt=f"after {i}", prompt_id=f"a{i}") for i in range(3)]
    lab.data.chmod(0o700)
    wait_for(lambda: not Path(f"/proc/{worker.pid}").exists())
    lab.hook("UserPromptSubmit", prompt="last", prompt_id="z")
    lab.wait_digested()
    process.stop_worker(lab.data)
    found = [row[0] for row in lab.rows("select event_id from receipts order by event_id")]
    assert set(names) <= set(found)
    assert len(found) == len(names) + (2 if how == "lock removed" else 1)


def test_a_worker_whose_folder_was_replaced_leaves_the_files_of_the_next_one(lab: Lab, worker: forks.Running) -> None:
    os.kill(worker.pid, signal.SIGSTOP)
    lab.data.rename(lab.folder / "elsewhere")
    lab.mem("start")
    new = running(lab)
    os.kill(worker.pid, signal.SIGCONT)
    wait_for(lambda: not Path(f"/proc/{worker.pid}").exists())
    assert running(lab) == new
    assert (lab.data / "worker.fifo").is_fifo()
