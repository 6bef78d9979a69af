"""What a person is told unasked: a line at the first start of a day, and a line in the status line."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import apsw

from claude_mem.domain import ids
from tests.support.lab import MEM, Lab
from tests.support.waiting import wait_for


def start(lab: Lab, **fields: Any) -> str:
    answer = lab.hook("SessionStart", source="startup", **fields)
    return str((answer or {}).get("systemMessage", ""))


def work(lab: Lab, name: str) -> None:
    """A turn that leaves one memory."""
    lab.spool("UserPromptSubmit", prompt=f"write {name}", prompt_id=name, session_id=name)
    edit = {"tool_name": "Write", "tool_input": {"file_path": str(lab.project / name)}, "tool_use_id": name}
    lab.spool("PostToolUse", prompt_id=name, session_id=name, **edit)
    lab.spool("Stop", prompt_id=name, session_id=name)


def test_the_first_start_says_that_it_is_on_and_the_second_nothing(lab: Lab) -> None:
    lab.mem("start")
    assert "claude-mem is on" in start(lab, session_id="a")
    wait_for(lambda: start(lab, session_id="b") == "")  # the worker notes what it told after it has answered


def test_once_a_day_it_says_how_much_is_remembered_and_what_is_new(lab: Lab) -> None:
    lab.mem("start")
    work(lab, "a.py")
    lab.wait_digested()
    assert start(lab, session_id="x").startswith("claude-mem remembers 1 thing about shop.")
    lab.mem("stop")
    db = apsw.Connection(str(lab.data / "claude-mem.db"))
    db.execute("update notices set shown_at = ? where key = 'greeting'", (ids.now_ms() - 86_400_000,))
    db.close()
    lab.mem("start")
    work(lab, "b.py")
    lab.wait_digested()
    assert "remembers 2 things about shop, 2 of them new since" in start(lab, session_id="y")
    wait_for(lambda: start(lab, session_id="z") == "")


def test_it_can_be_switched_off(lab: Lab) -> None:
    lab.mem("config", "set", "greeting", "false")
    lab.mem("start")
    assert start(lab) == ""


def line(lab: Lab, given: str) -> str:
    command = [*MEM, "status", "--line"]
    done = subprocess.run(command, input=given, env=lab.env(), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


def test_a_status_line_tells_how_it_is(lab: Lab) -> None:
    here = json.dumps({"workspace": {"project_dir": str(lab.project)}})
    assert line(lab, here) == "mem: asleep"
    lab.mem("start")
    work(lab, "a.py")
    lab.wait_digested()
    assert line(lab, here) == "mem: 1 here · 1 today"
    for odd in ("", "no json", "[]", '{"workspace": null}'):
        assert line(lab, odd) == "mem: 1"
    lab.raw_spool(b"garbage")
    lab.wait_digested()
    assert "1 set aside" in line(lab, here)
