"""Windsurf's payloads and files, by its documents."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings

from claude_mem.agents.contrib import windsurf
from claude_mem.domain.errors import IgnoredEvent, UnreadableEvent
from tests.agents.wild import payloads
from tests.support.lab import HOOK, Lab


def payload(event: str, **about: Any) -> dict[str, Any]:
    return {
        "agent_action_name": event,
        "trajectory_id": "w1",
        "execution_id": "e1",
        "timestamp": "2026-01-01T10:00:00Z",
        "tool_info": about,
    }


def told(event: str, **about: Any) -> dict[str, Any]:
    return windsurf.translate(payload(event, **about))


def test_a_prompt_and_the_last_words() -> None:
    prompt = told("pre_user_prompt", user_prompt="mend the till")
    assert (prompt["session_id"], prompt["hook_event_name"], prompt["prompt"]) == (
        "w1",
        "UserPromptSubmit",
        "mend the till",
    )
    response = "### Planner Response\n\nLet me see.\n\n*Edited file*\n\n### Planner Response\n\nMended.\n"
    stop = told("post_cascade_response", response=response)
    assert (stop["hook_event_name"], stop["last_assistant_message"]) == ("Stop", "Mended.")
    assert told("post_cascade_response", response="Mended.")["last_assistant_message"] == "Mended."


def test_what_was_done() -> None:
    edit = {"old_string": "a", "new_string": "b"}
    write = told("post_write_code", file_path="/shop/till.py", edits=[edit])
    assert (write["tool_name"], write["tool_input"]) == ("Edit", {"file_path": "/shop/till.py", **edit})
    assert told("post_read_code", file_path="/shop/a")["tool_input"] == {"file_path": "/shop/a"}
    run = told("post_run_command", command_line="make", cwd="/shop")
    assert (run["hook_event_name"], run["tool_name"], run["cwd"]) == ("PostToolUse", "Bash", "/shop")
    bad = told("post_run_command", command_line="make", exit_code=2, output="no rule")
    assert (bad["hook_event_name"], bad["error"]) == ("PostToolUseFailure", "Exit code 2\nno rule")
    tool = told(
        "post_mcp_tool_use", mcp_server_name="s", mcp_tool_name="t", mcp_tool_arguments={"q": 1}, mcp_result="hit"
    )
    assert (tool["tool_name"], tool["tool_input"], tool["tool_response"]) == ("mcp__s__t", {"q": 1}, "hit")


@pytest.mark.parametrize(
    "event", ["pre_run_command", "post_setup_worktree", "post_cascade_response_with_transcript", "?"]
)
def test_what_tells_nothing_is_noise(event: str) -> None:
    with pytest.raises(IgnoredEvent):
        told(event)


def test_our_own_dialect_stays_as_it_is() -> None:
    fields = {"session_id": "s", "hook_event_name": "Stop"}
    assert windsurf.translate(fields) == fields


NAMES = (
    "trajectory_id", "tool_info", "user_prompt", "response", "file_path", "edits", "command_line", "cwd", "exit_code",
    "output", "mcp_server_name", "mcp_tool_name", "mcp_tool_arguments", "mcp_result",
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(payloads(NAMES, list(windsurf.EVENTS), event_name="agent_action_name"))
def test_no_payload_breaks_it(fields: dict[str, Any]) -> None:
    try:
        assert isinstance(windsurf.translate(fields), dict)
    except UnreadableEvent:
        pass


def run_hook(lab: Lab, event: str, **about: Any) -> None:
    """As it is run: in the folder of the workspace, which no payload names."""
    done = subprocess.run(
        [*HOOK, windsurf.EVENTS[event], "", "windsurf"],
        input=json.dumps(payload(event, **about)).encode(),
        env=lab.env(CLAUDE_PROJECT_DIR="/elsewhere"),
        cwd=lab.project,
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout) == {}


def test_a_conversation_is_remembered_in_its_project(lab: Lab) -> None:
    lab.no_worker()
    run_hook(lab, "pre_user_prompt", user_prompt="mend the till, it rounds every sum down")
    run_hook(
        lab, "post_write_code", file_path=str(lab.project / "till.py"), edits=[{"old_string": "a", "new_string": "b"}]
    )
    run_hook(lab, "post_run_command", command_line="git commit -m 'Round to the nearest cent'", cwd=str(lab.project))
    run_hook(lab, "post_cascade_response", response="### Planner Response\n\nThe till rounds to the nearest cent now.")
    lab.drain()
    assert lab.rows("select host, cwd from sdk_sessions") == [("windsurf", str(lab.project))]
    assert lab.rows("select name from projects") == [("shop",)]
    assert lab.rows("select closed_by from turns") == [("stop",)]
    assert "till.py" in str(lab.rows("select files_edited from session_summaries"))


def test_a_private_prompt_hides_its_turn(lab: Lab) -> None:
    lab.no_worker()
    run_hook(lab, "pre_user_prompt", user_prompt="<private>CANARY</private>")
    run_hook(lab, "post_run_command", command_line="echo CANARY", cwd=str(lab.project))
    run_hook(lab, "post_cascade_response", response="CANARY")
    lab.drain()
    assert lab.rows("select count(*) from events") == [(0,)]
    assert lab.rows("select private from turns") == [(1,)]
    assert b"CANARY" not in b"".join(path.read_bytes() for path in lab.data.rglob("*") if path.is_file())


def test_a_workspace_that_is_gone_costs_no_event(lab: Lab) -> None:
    lab.no_worker()
    gone = lab.folder / "gone"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    words = ["sh", "-c", script, "sh", str(gone), *HOOK, "new", "", "windsurf"]
    given = json.dumps(payload("pre_user_prompt", user_prompt="hello")).encode()
    subprocess.run(words, input=given, env=lab.env(), capture_output=True, check=True)
    assert len(list((lab.data / "spool").iterdir())) == 1


def test_what_goes_in_comes_out_again(lab: Lab) -> None:
    folder = lab.folder / "home" / ".codeium" / "windsurf"
    folder.mkdir(parents=True)
    before = '{"hooks": {"post_write_code": [{"command": "black ."}]}}'
    (folder / "hooks.json").write_text(before)
    lab.mem("install", "--yes", "--host", "windsurf")
    found = json.loads((folder / "hooks.json").read_text())["hooks"]
    assert set(found) == set(windsurf.EVENTS)
    assert len(found["post_write_code"]) == 2
    assert "claude-mem" in json.loads((folder / "mcp_config.json").read_text())["mcpServers"]
    lab.mem("uninstall", "--yes")
    assert {path.name: path.read_text() for path in folder.rglob("*")} == {"hooks.json": before}
