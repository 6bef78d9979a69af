"""Files before they are worked on, through the real hook: what is likely at a prompt, and the outline before a read."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab import Lab
from tests.support.waiting import wait_for

LONG = "".join(f"def step_{number}():\n    x = {number}\n    return x\n\n" for number in range(60))
FILE = "src/steps.py"


def context(answer: Any) -> str:
    return str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))


def read_once(lab: Lab, path: str = FILE, session: str = "a", *, prompt: str = "Why do the steps run twice?") -> None:
    """A session that reads a file and edits another one."""
    who = {"session_id": session, "prompt_id": f"{session}-1"}
    lab.spool("UserPromptSubmit", prompt=prompt, **who)
    read = {"tool_name": "Read", "tool_input": {"file_path": str(lab.project / path)}}
    lab.spool("PostToolUse", **read, tool_response={"file": {"content": "def step_1():"}}, **who)
    edit = {"file_path": str(lab.project / "src" / "run.py"), "old_string": "a", "new_string": "run_every_step_once()"}
    lab.spool("PostToolUse", tool_name="Edit", tool_input=edit, tool_response={}, **who)
    lab.spool("Stop", last_assistant_message="The steps ran twice because the runner registered them twice.", **who)


def begin(lab: Lab, **env: str) -> Lab:
    (lab.project / "src").mkdir()
    for name, content in (("steps.py", LONG), ("run.py", "pass\n"), ("other.py", LONG), ("short.py", "def a(): ...\n")):
        (lab.project / "src" / name).write_text(content)
    client = lab.start(**env)
    read_once(lab)
    lab.wait_digested()
    wait_for(lambda: not client.get("/api/index")["busy"])
    return lab


@pytest.fixture
def known(lab: Lab) -> Lab:
    return begin(lab, CLAUDE_MEM_READ_OUTLINES="true")


def touch(lab: Lab, path: str | Path = FILE, *, tool: str = "Read", session: str = "b", **more: Any) -> str:
    given = {"file_path": str(lab.project / path), **more}
    return context(lab.hook("PreToolUse", session_id=session, tool_name=tool, tool_input=given))


# --- before a file is read again -------------------------------------------------------------------------------------


def test_a_file_that_an_earlier_session_read_is_outlined_once(known: Lab) -> None:
    text = touch(known)
    assert "Outline, unchanged since an earlier session read it (240 lines)" in text
    assert "step_0 1, step_1 5, step_2 9" in text
    assert "return x" not in text, "names only"
    assert touch(known) == ""


def test_without_the_setting_nothing_is_outlined(lab: Lab) -> None:
    assert "Outline" not in touch(begin(lab))


def test_a_file_that_has_changed_since_is_not_outlined(known: Lab) -> None:
    later = time.time() + 60
    os.utime(known.project / FILE, (later, later))
    assert "Outline" not in touch(known)


def test_the_session_that_read_it_is_not_told_what_it_read(known: Lab) -> None:
    assert "Outline" not in touch(known, session="a")


@pytest.mark.parametrize("more", [{"offset": 40}, {"limit": 20}])
def test_a_part_that_the_agent_has_chosen_needs_no_outline(known: Lab, more: dict[str, Any]) -> None:
    assert "Outline" not in touch(known, **more)


def test_an_edit_needs_no_outline(known: Lab) -> None:
    assert "Outline" not in touch(known, tool="Edit", old_string="x", new_string="y")


@pytest.mark.parametrize(
    "path", ["src/other.py", "/etc/passwd", "../outside.py", r"C:\shop\src\steps.py", "", "src\0.py"]
)
def test_what_no_session_read_is_not_outlined(known: Lab, path: str) -> None:
    assert "Outline" not in touch(known, path)


def test_short_deleted_binary_and_linked_files_are_not_outlined(known: Lab) -> None:
    (known.project / "src" / "linked.py").symlink_to(known.project / "src" / "other.py")
    (known.project / "src" / "binary.py").write_bytes(LONG.encode() + b"\0")
    (known.project / "src" / "gone.py").write_text(LONG)
    for number, name in enumerate(("short", "binary", "gone", "linked")):
        read_once(known, f"src/{name}.py", f"more-{number}")
    known.wait_digested()
    wait_for(lambda: not known.client().get("/api/index")["busy"])
    (known.project / "src" / "gone.py").unlink()
    for name in ("short", "binary", "gone", "linked"):
        assert "Outline" not in touch(known, f"src/{name}.py"), name


# --- the files of a prompt -------------------------------------------------------------------------------------------

ASKED = "Why did the steps run twice in the runner before?"


def ask(lab: Lab, session: str, text: str = ASKED) -> str:
    return context(lab.hook("UserPromptSubmit", session_id=session, prompt=text, prompt_id=f"{session}-{text}"))


def test_a_file_that_is_gone_is_not_named_at_a_prompt(known: Lab) -> None:
    assert "src/run.py" in ask(known, "b")
    (known.project / "src" / "run.py").unlink()
    text = ask(known, "c")
    assert "src/run.py" not in text
    assert FILE in text
