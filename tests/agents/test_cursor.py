"""Cursor's payloads and files, by its documents."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings

from claude_mem import answers
from claude_mem.agents import claude
from claude_mem.agents.base import LauncherCommands
from claude_mem.agents.contrib import cursor
from claude_mem.agents.installer import plan_connection
from claude_mem.domain.errors import IgnoredEvent, UnreadableEvent
from tests.agents.wild import payloads
from tests.support.lab import HOOK, Lab

COMMON = {
    "conversation_id": "c1",
    "generation_id": "g1",
    "model": "a-model",
    "cursor_version": "3.7.21",
    "workspace_roots": ["/shop"],
    "user_email": "someone@example.invalid",
}


def told(event: str, **more: Any) -> dict[str, Any]:
    return cursor.translate({**COMMON, "hook_event_name": event, **more})


def test_a_conversation_is_a_session_and_the_first_root_its_folder() -> None:
    start = told("sessionStart", session_id="c1", composer_mode="agent")
    assert (start["hook_event_name"], start["session_id"], start["cwd"]) == ("SessionStart", "c1", "/shop")
    prompt = told("beforeSubmitPrompt", prompt="mend the till", attachments=[])
    assert (prompt["hook_event_name"], prompt["prompt"]) == ("UserPromptSubmit", "mend the till")
    assert told("sessionEnd", reason="completed")["hook_event_name"] == "SessionEnd"


def test_a_command_and_its_exit_code() -> None:
    call = {"tool_name": "Shell", "tool_input": {"command": "make"}, "tool_use_id": "t1"}
    good = told("postToolUse", **call, tool_output='{"exitCode":0,"stdout":"ok"}')
    assert (good["hook_event_name"], good["tool_name"], good["tool_use_id"]) == ("PostToolUse", "Bash", "t1")
    assert good["tool_response"] == {"exitCode": 0, "stdout": "ok"}
    bad = told(
        "postToolUse", **{**call, "tool_input": '{"command":"make"}'}, tool_output='{"exitCode":2,"output":"no rule"}'
    )
    assert (bad["hook_event_name"], bad["error"]) == ("PostToolUseFailure", "Exit code 2\nno rule")
    assert bad["tool_input"] == {"command": "make"}
    gone = told("postToolUseFailure", **call, error_message="timed out", failure_type="timeout")
    assert (gone["hook_event_name"], gone["error"]) == ("PostToolUseFailure", "timed out")


def test_an_edit_is_told_once_with_what_was_replaced() -> None:
    edit = {"old_string": "a", "new_string": "b"}
    found = told("afterFileEdit", file_path="/shop/till.py", edits=[edit])
    assert (found["tool_name"], found["tool_input"]) == ("Edit", {"file_path": "/shop/till.py", **edit})
    many = told("afterFileEdit", file_path="/shop/till.py", edits=[edit, edit])
    assert (many["tool_name"], many["tool_input"]["edits"]) == ("MultiEdit", [edit, edit])
    with pytest.raises(IgnoredEvent):
        told("postToolUse", tool_name="Write", tool_input={"file_path": "/shop/till.py", "content": "b"})


def test_a_file_read_and_a_tool_of_a_server() -> None:
    read = told("postToolUse", tool_name="Read", tool_input={"path": "/shop/a"}, tool_output="{}")
    assert read["tool_input"]["file_path"] == "/shop/a"
    assert told("postToolUse", tool_name="MCP:search", tool_input={})["tool_name"] == "mcp__search"


def test_the_last_words_close_the_turn_and_the_stop_after_them_tells_nothing() -> None:
    found = told("afterAgentResponse", text="Mended.")
    assert (found["hook_event_name"], found["last_assistant_message"]) == ("Stop", "Mended.")
    with pytest.raises(IgnoredEvent):
        told("stop", status="completed", loop_count=0)
    assert told("stop", status="aborted")["hook_event_name"] == "Stop"


@pytest.mark.parametrize("event", ["beforeShellExecution", "beforeReadFile", "beforeTabFileRead"])
def test_what_has_not_happened_yet_is_noise(event: str) -> None:
    with pytest.raises(IgnoredEvent):
        told(event)


def test_claude_codes_hooks_that_cursor_runs_do_not_tell_everything_twice() -> None:
    with pytest.raises(IgnoredEvent):
        claude.translate({**COMMON, "hook_event_name": "PostToolUse"})
    fields = {"session_id": "s1", "hook_event_name": "Stop"}
    assert claude.translate(fields) == fields


NAMES = (
    "conversation_id", "session_id", "workspace_roots", "cwd", "prompt", "tool_name", "tool_input", "tool_output",
    "error_message", "file_path", "edits", "command", "output", "text", "status", "exitCode", "stdout", "path",
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(payloads(NAMES, [*cursor.EVENTS, "afterShellExecution", "afterMCPExecution", "completed", "Shell", "Read"]))
def test_no_payload_breaks_it(fields: dict[str, Any]) -> None:
    try:
        assert isinstance(cursor.translate(fields), dict)
    except UnreadableEvent:
        pass


def run_hook(lab: Lab, command: str, event: str, **fields: Any) -> Any:
    given = {**COMMON, "workspace_roots": [str(lab.project)], "hook_event_name": event, **fields}
    done = subprocess.run(
        [*HOOK, command, "", "cursor"],
        input=json.dumps(given).encode(),
        env=lab.env(CURSOR_PROJECT_DIR=str(lab.project)),
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_a_session_is_remembered_and_the_next_one_is_told_at_its_start(lab: Lab) -> None:
    lab.start()
    assert "Nothing is remembered" in run_hook(lab, "context", "sessionStart", session_id="c1")["additional_context"]
    assert run_hook(lab, "new", "beforeSubmitPrompt", prompt="mend the till, it rounds every sum down") == {}
    edit = {"file_path": str(lab.project / "till.py"), "edits": [{"old_string": "a", "new_string": "def total():"}]}
    run_hook(lab, "save", "afterFileEdit", **edit)
    for code in (1, 0):
        output = json.dumps({"exitCode": code, "stdout": f"{code} failed"})
        call = {"tool_name": "Shell", "tool_input": {"command": "pytest -q"}, "tool_use_id": f"t{code}"}
        run_hook(lab, "save", "postToolUse", **call, tool_output=output)
    run_hook(lab, "summary", "afterAgentResponse", text="The till rounds each sum to the nearest cent now.")
    run_hook(lab, "summary", "stop", status="completed")
    run_hook(lab, "cleanup", "sessionEnd", reason="completed")
    status = lab.wait_digested()
    assert status["filtered_by"] == {"noise": 1}
    told = run_hook(lab, "context", "sessionStart", conversation_id="c2", session_id="c2")
    assert set(told) == {"additional_context"}
    assert "nearest cent" in told["additional_context"]
    # At a prompt it takes no text, so none is given.
    assert (
        run_hook(lab, "new", "beforeSubmitPrompt", conversation_id="c3", prompt="how does the till round each sum?")
        == {}
    )
    lab.mem("stop")
    assert lab.rows("select host, status from sdk_sessions where content_session_id = 'c1'") == [
        ("cursor", "completed")
    ]


def test_a_private_prompt_hides_its_turn(lab: Lab) -> None:
    lab.no_worker()
    run_hook(lab, "new", "beforeSubmitPrompt", prompt="<private>CANARY</private>")
    run_hook(lab, "save", "postToolUse", tool_name="Shell", tool_input={"command": "echo CANARY"}, tool_output="{}")
    run_hook(lab, "summary", "afterAgentResponse", text="CANARY")
    lab.drain()
    assert lab.rows("select count(*) from events") == [(0,)]
    assert b"CANARY" not in b"".join(path.read_bytes() for path in lab.data.rglob("*") if path.is_file())


THEIRS = '{\n    "version": 1,\n    "hooks": {"stop": [{"command": "beep"}]}\n}'


@pytest.mark.parametrize("before", [THEIRS, None, '{"hooks": {}}'])
def test_what_goes_in_comes_out_again(lab: Lab, before: str | None) -> None:
    folder = lab.folder / "home" / ".cursor"
    folder.mkdir(parents=True)
    hooks = folder / "hooks.json"
    if before is not None:
        hooks.write_text(before)
    lab.mem("install", "--yes", "--host", "cursor")
    found = json.loads(hooks.read_text())
    assert found["version"] == 1
    assert set(found["hooks"]) == set(cursor.EVENTS)
    assert len(found["hooks"]["stop"]) == (2 if before == THEIRS else 1)
    assert json.loads((folder / "mcp.json").read_text())["mcpServers"]["claude-mem"]["args"] == ["mcp"]
    assert (folder / "skills" / "mem-search" / "SKILL.md").is_file()
    lab.mem("uninstall", "--yes")
    assert [path.name for path in folder.rglob("*")] == ([] if before is None else ["hooks.json"])
    assert (hooks.read_text() if hooks.exists() else None) == before


def test_what_was_changed_meanwhile_stays_changed(lab: Lab) -> None:
    hooks = lab.folder / "home" / ".cursor" / "hooks.json"
    hooks.parent.mkdir(parents=True)
    hooks.write_text(THEIRS)
    lab.mem("install", "--yes", "--host", "cursor")
    found = json.loads(hooks.read_text())
    found["hooks"]["stop"].append({"command": "boop"})
    hooks.write_text(json.dumps(found))
    lab.mem("uninstall", "--yes")
    assert json.loads(hooks.read_text()) == {
        "version": 1,
        "hooks": {"stop": [{"command": "beep"}, {"command": "boop"}]},
    }


@pytest.mark.parametrize("odd", ['{"hooks": {"stop": {}}}', '{"hooks": []}', "[]", "{ // mine\n}"])
def test_a_file_of_an_unknown_shape_is_left_alone(lab: Lab, odd: str) -> None:
    hooks = lab.folder / "home" / ".cursor" / "hooks.json"
    hooks.parent.mkdir(parents=True)
    hooks.write_text(odd)
    done = lab.mem("install", "--yes", "--host", "cursor", ok=False)
    assert done.returncode == 1
    assert str(hooks) in done.stderr
    assert hooks.read_text() == odd


def test_it_is_said_that_it_was_not_tried(lab: Lab) -> None:
    assert "not tested" in lab.mem("install", "--dry-run", "--host", "cursor").stderr


def test_its_files_are_where_its_documents_say(lab: Lab) -> None:
    found = plan_connection(cursor.AGENT, LauncherCommands(lab.data / "claude-mem-hook", {"HOME": "/nowhere"}))
    names = [str(change.path) for change in found]
    assert names[:2] == ["/nowhere/.cursor/hooks.json", "/nowhere/.cursor/mcp.json"]
    assert json.loads(answers.compose_answer("cursor", "SessionStart", "text")) == {"additional_context": "text"}
