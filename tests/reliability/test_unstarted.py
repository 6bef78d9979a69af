"""A worker that can't start, and a disk that can't be written to: the person is told, and what is known is still told."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from claude_mem import hook
from claude_mem.agents.registry import AGENTS
from claude_mem.domain import ids
from claude_mem.system import process
from tests.support import proof
from tests.support.lab import HOOK, Lab
from tests.support.waiting import wait_for
from tests.worker.test_hook import leave, payload, pretended_worker, reply, run

TEXT = "the basket was mended"
LONG_AGO_MS = 3 * 3_600_000


def start(lab: Lab, **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = lab.hook("SessionStart", source="startup", **fields)
    return found


def warned(found: dict[str, Any]) -> str:
    return str(found.get("systemMessage", ""))


def told(found: dict[str, Any]) -> str:
    return str(found.get("hookSpecificOutput", {}).get("additionalContext", ""))


# --- it can't start --------------------------------------------------------------------------------------------------


def folder(name: str) -> Callable[[Lab], None]:
    def wound(lab: Lab) -> None:
        path = lab.data / name
        path.unlink(missing_ok=True)
        (path / "inside").mkdir(parents=True)

    return wound


def link(name: str) -> Callable[[Lab], None]:
    def wound(lab: Lab) -> None:
        path = lab.data / name
        path.unlink(missing_ok=True)
        path.symlink_to(lab.folder / "nowhere" / "at-all")

    return wound


def content(name: str, text: bytes) -> Callable[[Lab], None]:
    def wound(lab: Lab) -> None:
        (lab.data / name).write_bytes(text)

    return wound


def keep_from_starting(lab: Lab) -> None:
    """A link in the place of the database is refused: that may be where a person keeps it."""
    database = lab.data / "claude-mem.db"
    database.rename(lab.folder / "elsewhere.db")
    database.symlink_to(lab.folder / "elsewhere.db")


def let_it_start(lab: Lab) -> None:
    (lab.data / "claude-mem.db").unlink()
    (lab.folder / "elsewhere.db").rename(lab.data / "claude-mem.db")


# What stops a worker, and is not for us to move aside.
STOPS: dict[str, Callable[[Lab], None]] = {
    "the database a link": keep_from_starting,
    "a log of the database a link": link("claude-mem.db-wal"),
}
# What is moved aside: by the next hook there is a worker.
WOUNDS = {
    "forget.key truncated": content("forget.key", b"ab"),
    "forget.key garbled": content("forget.key", b"\xff" * 140),
    **{
        f"{name} a folder": folder(name)
        for name in (
            "token", "forgotten.jsonl", "worker.lock", "logs/start.log", "worker.json", "worker.fifo",
            "worker.starting", "claude-mem-hook", "forget.key", "logs/worker.log",
        )
    },
    **{f"{name} a link": link(name) for name in ("token", "worker.lock", "worker.json", "worker.fifo", "worker.starting")},
}  # fmt: skip
FEW = [*WOUNDS] if proof.long() else [*WOUNDS][::4]


@pytest.fixture
def lived_in(lab: Lab) -> Lab:
    """A worker has run here, and has ended; one event has waited for hours."""
    lab.spool("UserPromptSubmit", prompt="go", prompt_id="p1")
    lab.mem("start")
    lab.wait_digested()
    lab.mem("stop")
    lab.spool("UserPromptSubmit", prompt="later", prompt_id="p2", at=ids.now_ms() - LONG_AGO_MS)
    return lab


def settled_start(lab: Lab) -> dict[str, Any]:
    """A start, and the end of the worker that it has tried to start."""
    found = start(lab)
    ended(lab)
    return found


def ended(lab: Lab) -> None:
    """Wait until a worker that a hook has started is gone again."""
    wait_for(lambda: not lab.processes())


@pytest.mark.parametrize("name", FEW)
def test_damage_to_a_small_file_stops_no_worker(lived_in: Lab, name: str) -> None:
    lab = lived_in
    WOUNDS[name](lab)
    _later(lab)
    lab.hook("UserPromptSubmit", prompt="and on", prompt_id="p3")
    found = lab.wait_digested()
    assert found["captured"] == found["stored"] == 3
    assert any(name.partition(" ")[0] in said for said in found["damage"])


@pytest.mark.parametrize("name", STOPS)
def test_a_worker_that_can_not_start_is_told_of_at_the_next_session(lived_in: Lab, name: str) -> None:
    lab = lived_in
    STOPS[name](lab)
    lab.hook("UserPromptSubmit", prompt="and on", prompt_id="p3")
    ended(lab)
    before = sorted(path.name for path in (lab.data / "spool").iterdir())
    _later(lab)
    leave(lab, lab.project, TEXT)
    found = start(lab)
    ended(lab)
    said = warned(found)
    assert said.startswith("claude-mem: the worker has not been able to start since ")
    assert "3 events are waiting, none is lost" in said
    assert "claude-mem doctor" in said
    assert "\n" not in said
    assert told(found) == TEXT  # what is known is told all the same
    assert set(before) <= {path.name for path in (lab.data / "spool").iterdir()}
    doctor = lab.mem("doctor", "--json", ok=False).stdout.splitlines()
    checks = {check["name"]: check for check in map(json.loads, doctor)}
    assert not checks["worker"]["ok"], checks["worker"]
    assert not lab.processes()


def _later(lab: Lab) -> None:
    """As if the last attempt had been a while ago."""
    a_while_ago = time.time() - 60
    stamp = lab.data / "worker.starting"
    if os.path.lexists(stamp):
        os.utime(stamp, (a_while_ago, a_while_ago), follow_symlinks=False)


def test_it_is_told_once_a_day_and_again_when_it_was_well_in_between(lived_in: Lab) -> None:
    lab = lived_in
    keep_from_starting(lab)
    lab.mem("start", ok=False)
    assert warned(settled_start(lab))
    assert not warned(settled_start(lab))
    stamp = lab.data / hook.WARNING_STAMP
    assert stat.S_IMODE(stamp.stat().st_mode) == 0o600
    yesterday = time.time() - 90_000
    os.utime(stamp, (yesterday, yesterday))
    assert warned(settled_start(lab))
    assert not warned(settled_start(lab))
    let_it_start(lab)
    lab.mem("start")
    lab.wait_digested()
    assert not stamp.exists()
    lab.mem("stop")
    keep_from_starting(lab)
    lab.spool("UserPromptSubmit", prompt="later", prompt_id="p9", at=ids.now_ms() - LONG_AGO_MS)
    lab.mem("start", ok=False)
    assert warned(settled_start(lab))


@pytest.mark.parametrize("host", AGENTS)
def test_every_agent_is_told_in_its_own_form(lived_in: Lab, host: str) -> None:
    lab = lived_in
    keep_from_starting(lab)
    lab.mem("start", ok=False)
    sent = payload("SessionStart", source="startup", cwd=str(lab.project))
    found = _as(lab, host, sent)
    ended(lab)
    assert "has not been able to start" in json.dumps(found)
    if host == "claude":
        assert found.keys() == {"continue", "suppressOutput", "systemMessage"}
    elif host in ("copilot", "cursor"):
        assert found.keys() <= {"additionalContext", "additional_context"}
    else:
        assert len(found) == 1


def _as(lab: Lab, host: str, sent: bytes) -> Any:
    done = subprocess.run([*HOOK, "context", "", host], input=sent, env=lab.env(), capture_output=True, check=True)
    return json.loads(done.stdout)


def test_nothing_is_said_while_nothing_is_wrong(lived_in: Lab) -> None:
    """Events have waited since the machine was switched off: the worker that is started now takes them in."""
    lab = lived_in
    assert not warned(start(lab))
    lab.wait_digested()
    lab.mem("stop")
    (lab.data / "logs" / "start.log").write_text("error: context_tokens must be a number; using the default\nhint: x\n")
    lab.spool("UserPromptSubmit", prompt="later", prompt_id="p4", at=ids.now_ms() - LONG_AGO_MS)
    lab.no_worker()
    assert not warned(start(lab))
    (lab.data / "logs" / "start.log").write_text("a worker is running already\n")
    _later(lab)
    lab.no_worker()
    assert not warned(start(lab))


def test_events_that_have_just_come_are_no_reason_to_say_anything(lab: Lab) -> None:
    lab.spool("UserPromptSubmit", prompt="go", prompt_id="p1")
    (lab.data / "claude-mem.db").symlink_to(lab.folder / "elsewhere.db")
    lab.mem("start", ok=False)
    assert not warned(start(lab))
    ended(lab)


@pytest.mark.parametrize(
    "words", ["", "/usr/bin/python3: No module named claude_mem\n", "Traceback (most recent\nOSError: x\n"]
)
def test_a_worker_that_ends_in_any_other_way_is_told_of_too(lived_in: Lab, words: str) -> None:
    lab = lived_in
    (lab.data / "logs" / "start.log").write_text(words)
    lab.no_worker()
    _later(lab)
    said = warned(start(lab))
    assert (words.splitlines() or ["it exited without an error message"])[-1] in said
    lab.wait_digested()


def test_a_file_in_place_of_the_pipe_does_not_pass_for_a_worker(lived_in: Lab) -> None:
    (lived_in.data / "worker.fifo").write_text("")
    start(lived_in)
    lived_in.wait_digested()
    assert process.running_worker(lived_in.data)


# --- it can't be written ---------------------------------------------------------------------------------------------


@pytest.fixture
def unwritable(lab: Lab) -> Iterator[Lab]:
    """Nothing can be made in the spool, whoever we are: it is on a disk that is not there."""
    leave(lab, lab.project, TEXT)
    shutil.rmtree(lab.data / "spool", ignore_errors=True)
    (lab.data / "spool").symlink_to("/nowhere/at/all")
    yield lab


def test_where_nothing_can_be_written_the_start_on_disk_is_told_with_the_warning(unwritable: Lab) -> None:
    found = json.loads(run(unwritable, "context", payload("SessionStart", source="startup")))
    assert told(found) == TEXT
    assert "nothing is being remembered" in warned(found)


def test_a_living_worker_is_asked_and_what_it_says_to_the_person_stays(unwritable: Lab) -> None:
    inner = {"hookEventName": "SessionStart", "additionalContext": "what the worker knows"}
    said = {"continue": True, "suppressOutput": True, "hookSpecificOutput": inner, "systemMessage": "claude-mem is on."}
    with pretended_worker(unwritable, [reply(json.dumps(said).encode())]) as asked:
        found = json.loads(run(unwritable, "context", payload("SessionStart", source="startup"), worker=True))
    assert asked
    assert told(found) == "what the worker knows"
    assert "nothing is being remembered" in warned(found)
    assert "claude-mem is on." in warned(found)


def test_a_worker_that_does_not_answer_leaves_the_start_on_disk(unwritable: Lab) -> None:
    with pretended_worker(unwritable, [reply(b"no", "500 no")]):
        found = json.loads(run(unwritable, "context", payload("SessionStart", source="startup"), worker=True))
    assert told(found) == TEXT


@pytest.mark.skipif(os.geteuid() == 0, reason="for root every folder can be written to")
def test_a_folder_without_the_right_to_write_tells_as_well(lab: Lab) -> None:
    leave(lab, lab.project, TEXT)
    lab.no_worker()
    lab.data.chmod(0o500)
    try:
        found = start(lab)
    finally:
        lab.data.chmod(0o700)
    assert told(found) == TEXT
    assert "nothing is being remembered" in warned(found)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to someone else")
def test_what_lies_in_someone_elses_folder_is_not_told(lab: Lab) -> None:
    leave(lab, lab.project, TEXT)
    os.chown(lab.data, 12345, 12345)
    lab.data.chmod(0o755)
    found = json.loads(run(lab, "context", payload("SessionStart", source="startup"), worker=True))
    assert told(found) == ""
    assert warned(found)


def test_other_moments_stay_silent(unwritable: Lab) -> None:
    for command in ("new", "save", "summary", "cleanup"):
        assert json.loads(run(unwritable, command, payload("Stop"), worker=True)) == json.loads(hook.EMPTY_ANSWER)


def test_a_project_without_a_start_on_disk_gets_the_warning_alone(unwritable: Lab, tmp_path: Path) -> None:
    found = json.loads(
        run(unwritable, "context", payload("SessionStart"), worker=True, CLAUDE_PROJECT_DIR=str(tmp_path))
    )
    assert told(found) == ""
    assert "nothing is being remembered" in warned(found)
