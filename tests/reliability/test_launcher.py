"""What agents run when our Python, or our program, is not there any more: a valid answer, and a word to the person."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from claude_mem import hook
from claude_mem.agents.registry import AGENTS
from claude_mem.system import process
from tests.support.installed import Installation
from tests.support.lab import Lab

# All that each kind of agent understands of an answer at a session's start.
FLAT = {"copilot": "additionalContext", "cursor": "additional_context"}


def remove_python(here: Installation) -> None:
    """As a package manager does it that removes the interpreter behind the environment."""
    for name in here.python.parent.glob("python*"):
        name.unlink()
    here.python.symlink_to("/nowhere/bin/python3")


def remove_environment(here: Installation) -> None:
    shutil.rmtree(here.python.parent.parent)


def remove_package(here: Installation) -> None:
    shutil.rmtree(here.package)


def break_python(here: Installation) -> None:
    here.python.unlink()
    here.python.write_text("#!/bin/sh\nexit 134\n")
    here.python.chmod(0o700)


WAYS: dict[str, Callable[[Installation], None]] = {
    "its Python": remove_python,
    "the environment": remove_environment,
    "the package": remove_package,
    "what Python needs": break_python,
}


@pytest.fixture(params=["venv", "Ada's hömé 家 \\dir"])
def here(request: pytest.FixtureRequest, lab: Lab, tmp_path: Path) -> Installation:
    """An installation that has written its launcher, and whose worker does not run."""
    installed = Installation(tmp_path / request.param, lab)
    installed.mem("start")
    installed.mem("stop")
    return installed


def answer(lab: Lab, command: str, host: str, **env: str) -> Any:
    done = subprocess.run(
        [process.launcher_path(lab.data), command, *([host] if host else [])],
        input=b"{}",
        env=lab.env(**env),
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0
    return json.loads(done.stdout)


def warning(host: str, found: dict[str, Any]) -> str:
    """The words, from where this agent looks for them; nothing else may be in the answer."""
    if host in FLAT:
        assert found.keys() == {FLAT[host]}
        return str(found[FLAT[host]])
    if host == "opencode":
        assert found.keys() == {"hookSpecificOutput"}
        return str(found["hookSpecificOutput"]["additionalContext"])
    nod = {"continue": True, "suppressOutput": True} if host in ("claude", "") else {}
    assert found == {**nod, "systemMessage": found["systemMessage"]}
    return str(found["systemMessage"])


@pytest.mark.parametrize("way", WAYS)
def test_a_session_start_says_what_is_gone_and_nothing_else_says_anything(
    here: Installation, lab: Lab, way: str
) -> None:
    WAYS[way](here)
    for host in (*AGENTS, "plugin", ""):
        said = warning(host, answer(lab, "context", host))
        assert "nothing is being remembered" in said
        assert "Reinstall" in said
        assert str(here.package if way == "the package" else here.python) in said
        if way == "what Python needs":
            continue  # only a start is worth the look: the others end as the interpreter does, and agents ignore it
        for command in hook.COMMANDS:
            if command != "context":
                nods = host in ("claude", "") and command != "compact"
                assert answer(lab, command, host) == (json.loads(hook.EMPTY_ANSWER) if nods else {})


def test_a_launcher_of_a_living_installation_answers_as_before(here: Installation, lab: Lab) -> None:
    lab.no_worker()
    for host in (*AGENTS, ""):
        assert answer(lab, "context", host) == (json.loads(hook.EMPTY_ANSWER) if host in ("claude", "") else {})
        assert answer(lab, "save", host) == (json.loads(hook.EMPTY_ANSWER) if host in ("claude", "") else {})
    assert len(list((lab.data / "spool").iterdir())) == 2 * (len(AGENTS) + 1)


def test_a_new_start_writes_the_launcher_anew(here: Installation, lab: Lab, tmp_path: Path) -> None:
    """As it is after a reinstallation elsewhere."""
    remove_environment(here)
    other = Installation(tmp_path / "other", lab)
    other.mem("start")
    assert "systemMessage" not in answer(lab, "save", "claude")
    assert str(other.package) in process.launcher_path(lab.data).read_text()
