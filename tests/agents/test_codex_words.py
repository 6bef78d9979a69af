"""Codex's words in ours: what its hooks and its rollouts tell, and our part of its files. Without the program."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_mem.agents import codex, registry
from claude_mem.agents.base import LauncherCommands
from claude_mem.domain.errors import IgnoredEvent, OperationFailed, UnreadableEvent
from claude_mem.domain.records import Event, Prompted, ToolUsed
from tests.support.lab import Lab

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-x = 1\n+x = 2\n*** End Patch"


def hook(event: str, **fields: Any) -> dict[str, Any]:
    common = {"session_id": "s1", "turn_id": "t1", "transcript_path": "/r.jsonl", "cwd": "/shop"}
    return codex.translate({**common, "hook_event_name": event, **fields})


# --- hooks -----------------------------------------------------------------------------------------------------------


def test_a_turn_is_a_prompt() -> None:
    told = hook("UserPromptSubmit", prompt="Mend the basket")
    assert (told["prompt_id"], told["prompt"], told["transcript_path"]) == ("t1", "Mend the basket", "/r.jsonl")
    assert "turn_id" not in told


def test_a_command_is_told_as_it_is_and_its_words_prove_no_failure() -> None:
    told = hook("PostToolUse", tool_name="Bash", tool_input={"command": "make"}, tool_response="1 test failed\n")
    assert told["hook_event_name"] == "PostToolUse"
    assert (told["tool_input"], told["tool_response"]) == ({"command": "make"}, "1 test failed\n")


def test_a_patch_is_told_file_by_file() -> None:
    answer = "Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess. Updated the following files:\nM a.py\n"
    told = hook("PostToolUse", tool_name="apply_patch", tool_input={"command": PATCH}, tool_response=answer)
    assert told["tool_input"] == {
        "changes": [{"kind": "update", "file_path": "/shop/a.py", "patch": " \n-x = 1\n+x = 2"}]
    }
    assert told["tool_response"] == "Success. Updated the following files:\nM a.py\n"


def test_a_patch_that_did_not_go_through_is_a_failure() -> None:
    answer = "Exit code: 1\nWall time: 0 seconds\nOutput:\nNo such file\n"
    told = hook("PostToolUse", tool_name="apply_patch", tool_input={"command": PATCH}, tool_response=answer)
    assert (told["hook_event_name"], told["error"]) == ("PostToolUseFailure", "No such file\n")


def test_before_an_edit_the_file_and_its_new_lines_are_named() -> None:
    told = hook("PreToolUse", tool_name="apply_patch", tool_input={"command": PATCH})
    assert told["tool_input"] == {"file_path": "/shop/a.py", "old_string": "", "new_string": "x = 2"}


def test_a_tool_of_a_server_may_have_failed() -> None:
    answer = {"content": [{"type": "text", "text": "no"}], "isError": True}
    told = hook("PostToolUse", tool_name="mcp__x__y", tool_input={"q": 1}, tool_response=answer)
    assert told["hook_event_name"] == "PostToolUseFailure"


def test_a_subagent_works_for_its_parent_and_its_prompt_is_not_the_users() -> None:
    told = hook("PostToolUse", agent_id="a1", tool_name="Bash", tool_input={"command": "ls"}, tool_response="")
    assert {"prompt_id", "transcript_path", "turn_id"} & set(told) == set()
    with pytest.raises(IgnoredEvent):
        hook("UserPromptSubmit", agent_id="a1", prompt="Look around")


@pytest.mark.parametrize("name", ["update_plan", "write_stdin", "multi_agent_v1wait_agent", "tool_search"])
def test_tools_that_tell_nothing_are_noise(name: str) -> None:
    with pytest.raises(IgnoredEvent):
        hook("PostToolUse", tool_name=name, tool_input={}, tool_response="")


@pytest.mark.parametrize("text", ["<environment_context>x", "# AGENTS.md instructions for /shop", "<turn_aborted>"])
def test_what_codex_says_itself_is_not_the_users(text: str) -> None:
    with pytest.raises(IgnoredEvent):
        hook("UserPromptSubmit", prompt=text)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.sampled_from(["Bash", "apply_patch", PATCH]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from(
    ["hook_event_name", "tool_name", "tool_input", "tool_response", "prompt", "turn_id", "agent_id", "cwd", "x"]
)


@given(st.dictionaries(names, anything, max_size=9))
def test_any_payload_is_translated_or_refused(fields: dict[str, Any]) -> None:
    try:
        assert isinstance(codex.translate(fields), dict)
    except UnreadableEvent:
        pass


# --- rollouts --------------------------------------------------------------------------------------------------------


class Rollout:
    """Writes what Codex writes."""

    def __init__(self, path: Path, **meta: Any) -> None:
        self.path = path
        self.clock = 0
        self.turn = ""
        self.write("session_meta", {"id": "s1", "session_id": "s1", "cwd": "/shop", **meta})

    def write(self, kind: str, payload: dict[str, Any], **more: Any) -> None:
        self.clock += 1
        record = {"timestamp": f"2026-11-15T10:00:{self.clock:02}Z", "type": kind, "payload": payload, **more}
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def begin(self, turn: str, **more: Any) -> None:
        self.turn = turn
        self.write("event_msg", {"type": "task_started", "turn_id": turn, **more})

    def item(self, kind: str, *, kinds: Any = None, **fields: Any) -> None:
        about = {"turn_id": self.turn, **({"content_item_kinds": kinds} if kinds else {})}
        noted = {"internal_chat_message_metadata_passthrough": about} if self.turn else {}
        self.write("response_item", {"type": kind, **fields, **noted})

    def say(self, role: str, text: str, **more: Any) -> None:
        self.item("message", role=role, content=[{"type": "input_text", "text": text}], **more)

    def call(self, call_id: str, name: str, given: Any, output: Any, **more: Any) -> None:
        self.item("function_call", call_id=call_id, name=name, arguments=json.dumps(given), **more)
        self.item("function_call_output", call_id=call_id, output=output)

    def end(self, call_id: str, status: str) -> None:
        item = {"type": "CommandExecution", "id": call_id, "status": status}
        self.write("event_msg", {"type": "item_completed", "item": item})

    def read(self, **more: Any) -> Any:
        return codex.read(self.path, host="codex", **more)


@pytest.fixture
def rollout(tmp_path: Path) -> Rollout:
    return Rollout(tmp_path / "rollout-2026-11-15T10-00-00-s1.jsonl")


def ran(code: int, text: str) -> str:
    return f"Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code {code}\nOriginal token count: 1\nOutput:\n{text}"


def tools(events: list[Event]) -> list[tuple[str, str, Any, Any, bool]]:
    bodies = [(event.tool_use_id, event.body) for event in events]
    return [(name, b.name, b.input, b.output, b.failed) for name, b in bodies if isinstance(b, ToolUsed)]


def test_only_what_the_user_said_is_a_prompt(rollout: Rollout) -> None:
    rollout.begin("t1")
    rollout.say("user", "<environment_context>…", kinds=["environments.environment_context"])
    rollout.say("user", "Something that Codex put in", kinds=["harness.note"])
    rollout.say("developer", "<claude-mem-context>old</claude-mem-context>")
    rollout.say("user", "Mend the basket", kinds=["user.text"])
    rollout.say("user", "<subagent_notification>{}")
    found = rollout.read()
    (event,) = found.events
    assert (event.body, event.prompt_id) == (Prompted("Mend the basket"), "t1")
    assert (found.content_session_id, found.cwd) == ("s1", "/shop")


def test_the_exit_code_tells_a_failure(rollout: Rollout) -> None:
    rollout.begin("t1")
    rollout.call("c1", "exec_command", {"cmd": "make"}, ran(2, "no rule"))
    rollout.call("c2", "shell_command", {"command": "ls"}, "Exit code: 0\nWall time: 0 seconds\nOutput:\na.py\n")
    old = json.dumps({"output": "boom", "metadata": {"exit_code": 1, "duration_seconds": 0.1}})
    rollout.call("c3", "shell", {"command": ["bash", "-lc", "make test"]}, old)
    rollout.call("c4", "exec_command", {"cmd": "rm x"}, "exec_command failed: rejected by user")
    rollout.call("c5", "exec_command", {"cmd": "make check"}, ran(0, "3 failed\n"))
    assert tools(rollout.read().events) == [
        ("c1", "Bash", {"command": "make"}, "Exit code 2\nno rule", True),
        ("c2", "Bash", {"command": "ls"}, "a.py\n", False),
        ("c3", "Bash", {"command": "make test"}, "Exit code 1\nboom", True),
        ("c4", "Bash", {"command": "rm x"}, "exec_command failed: rejected by user", True),
        ("c5", "Bash", {"command": "make check"}, "3 failed\n", False),
    ]


def test_a_command_that_ends_later_is_told_again_if_it_failed(rollout: Rollout) -> None:
    rollout.begin("t1")
    rollout.call("c1", "exec_command", {"cmd": "serve"}, "Wall time: 1\nProcess running with session ID 7\nOutput:\n")
    rollout.call("c2", "write_stdin", {"session_id": 7}, ran(0, ""))
    rollout.end("c1", "failed")
    assert [(name, failed) for name, _, _, _, failed in tools(rollout.read().events)] == [("c1", False), ("c1", True)]


def test_a_patch_is_one_however_it_was_handed_over(rollout: Rollout) -> None:
    rollout.begin("t1")
    done = "Success. Updated the following files:\nM a.py\n"
    rollout.item("custom_tool_call", call_id="c1", name="apply_patch", input=PATCH)
    rollout.item("custom_tool_call_output", call_id="c1", output=f"Exit code: 0\nWall time: 0\nOutput:\n{done}")
    shell = {"cmd": f"apply_patch <<'EOF'\n{PATCH}\nEOF\n", "workdir": "sub"}
    rollout.call("c2", "exec_command", shell, f"Wall time: 0\nOutput:\nExit code: 0\nWall time: 0\nOutput:\n{done}")
    rollout.item("custom_tool_call", call_id="c3", name="apply_patch", input=PATCH)
    rollout.item("custom_tool_call_output", call_id="c3", output="apply_patch verification failed: no such lines")
    found = tools(rollout.read().events)
    assert [(name, given["changes"][0]["file_path"], failed) for _, name, given, _, failed in found] == [
        ("apply_patch", "/shop/a.py", False),
        ("apply_patch", "/shop/sub/a.py", False),
        ("apply_patch", "/shop/a.py", True),
    ]


def test_other_tools_keep_their_names(rollout: Rollout) -> None:
    rollout.begin("t1")
    parts = [{"type": "input_text", "text": "Wall time: 0.1 seconds\nOutput:"}, {"type": "input_text", "text": "found"}]
    rollout.call("c1", "search", {"query": "q"}, parts, namespace="mcp__mem")
    rollout.item("local_shell_call", call_id="c2", action={"type": "exec", "command": ["ls", "a b"]})
    rollout.item("function_call_output", call_id="c2", output=ran(0, ""))
    rollout.item("web_search_call", id="ws1", action={"type": "search", "query": "python"})
    rollout.call("c3", "view_image", {"path": "/shop/a.png"}, "ok")
    rollout.call("c4", "update_plan", {"plan": []}, "Plan updated")
    assert [(name, given) for _, name, given, _, _ in tools(rollout.read().events)] == [
        ("mcp__mem__search", {"query": "q"}),
        ("Bash", {"command": "ls 'a b'"}),
        ("WebSearch", {"query": "python"}),
        ("Read", {"file_path": "/shop/a.png"}),
    ]


def test_last_words_are_those_after_which_nothing_was_done(rollout: Rollout) -> None:
    rollout.begin("t1")
    rollout.say("assistant", "First I look.")
    rollout.call("c1", "exec_command", {"cmd": "ls"}, ran(0, ""))
    assert rollout.read().closings == {}
    rollout.say("assistant", "It is mended.")
    rollout.write(
        "response_item",
        {"type": "message", "role": "assistant", "content": [{"text": "A summary for the next window."}]},
        metadata={"compaction_output": True},
    )
    (closing,) = rollout.read().closings.values()
    assert closing.body.message == "It is mended."


def test_what_is_said_while_the_agent_works_belongs_to_the_prompt(rollout: Rollout) -> None:
    rollout.begin("t1")
    rollout.say("user", "Mend the basket")
    rollout.call("c1", "exec_command", {"cmd": "ls"}, ran(0, ""))
    rollout.say("user", "and paint it red")
    prompt, _ = rollout.read().events
    assert prompt.body == Prompted("Mend the basket\nand paint it red")
    rollout.say("user", "<private>but tell nobody</private>")
    assert rollout.read().private == {"t1"}
    assert rollout.read().events[0].private


def test_reading_on_needs_nothing_from_before(rollout: Rollout) -> None:
    rollout.begin("t1")
    rollout.say("user", "Mend the basket")
    rollout.item("function_call", call_id="c1", name="exec_command", arguments='{"cmd": "ls"}')
    waits = rollout.read()
    assert waits.offset < rollout.path.stat().st_size  # the call is not answered yet
    rollout.item("function_call_output", call_id="c1", output=ran(0, "a.py\n"))
    rollout.item("custom_tool_call", call_id="c2", name="apply_patch", input=PATCH)
    rollout.item("custom_tool_call_output", call_id="c2", output="Success. Updated the following files:\nM a.py\n")
    on = rollout.read(offset=waits.offset, content_session_id="s1")
    assert [(event.tool_use_id, event.prompt_id) for event in on.events] == [("c1", "t1"), ("c2", "t1")]
    assert tools(on.events)[1][2]["changes"][0]["file_path"] == "/shop/a.py"
    assert on.offset == rollout.path.stat().st_size


def test_a_subagents_rollout_belongs_to_its_parent(tmp_path: Path) -> None:
    folder = tmp_path / "sessions" / "2026" / "11" / "15"
    folder.mkdir(parents=True)
    main = Rollout(folder / "rollout-2026-11-15T10-00-00-s1.jsonl")
    agent = Rollout(folder / "rollout-2026-11-15T10-00-01-a1.jsonl", id="a1", parent_thread_id="s1")
    Rollout(folder / "rollout-2026-11-15T10-00-02-s2.jsonl", id="s2", session_id="s2")
    agent.begin("inner", root_turn_id="t1")
    agent.say("user", "Look around")
    agent.call("c1", "exec_command", {"cmd": "ls"}, ran(0, ""))
    assert list(codex.subagent_files(main.path)) == [("a1", agent.path)]
    for found in (agent.read(), agent.read(agent_id="a1", content_session_id="s1")):
        (event,) = found.events
        assert isinstance(event.body, ToolUsed)
        assert (event.content_session_id, event.prompt_id, event.body.agent_id) == ("s1", "t1", "a1")


def test_rollouts_of_the_first_versions_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "rollout-2025-06-01-s1.jsonl"
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Mend the basket"}]}
    again = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And the till"}]}
    call = {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "c1"}
    records = [
        {"id": "s1", "timestamp": "2025-06-01T10:00:00Z", "instructions": None},
        {"record_type": "state"},
        message,
        call,
        {"type": "function_call_output", "call_id": "c1", "output": '{"output":"a","metadata":{"exit_code":0}}'},
        again,
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    found = codex.read(path, host="codex")
    assert [type(event.body) for event in found.events] == [Prompted, ToolUsed, Prompted]
    first, tool, second = found.events
    assert first.prompt_id == tool.prompt_id != second.prompt_id
    assert (found.content_session_id, first.at) == ("s1", 1748772000000)
    assert registry.identify_agent(path) is codex.AGENT


@given(st.lists(st.dictionaries(st.sampled_from(["type", "payload", "timestamp", "id"]), anything), max_size=6))
def test_no_rollout_can_crash_the_reader(records: list[Any]) -> None:
    reader = codex._CodexReader("codex", "", "")
    kinds = ["session_meta", "turn_context", "event_msg", "response_item"]
    for number, record in enumerate(records):
        for line in (record, {"type": kinds[number % 4], "payload": record}, {"type": kinds[number % 4], **record}):
            reader.take(0, line)


ITEMS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["message", "function_call", "function_call_output", "custom_tool_call", "local_shell_call"]
        )
    },
    optional=dict.fromkeys(("role", "content", "call_id", "name", "arguments", "output", "input", "action"), anything),
)


@given(st.lists(ITEMS, max_size=6))
def test_no_item_can_crash_the_reader(items: list[Any]) -> None:
    reader = codex._CodexReader("codex", "s1", "")
    for item in items:
        reader.take(0, {"type": "response_item", "payload": item})


# --- in the database -------------------------------------------------------------------------------------------------


def spool(lab: Lab, command: str, event: str, **fields: Any) -> None:
    payload = {"session_id": "s1", "turn_id": "t1", "cwd": str(lab.project), "hook_event_name": event, **fields}
    lab.raw_spool(f"command {command}\nhost codex\n\n{json.dumps(payload)}".encode())


def test_a_failure_that_only_the_rollout_tells_is_noted(lab: Lab, rollout: Rollout) -> None:
    where = {"transcript_path": str(rollout.path)}
    spool(lab, "new", "UserPromptSubmit", prompt="Mend the basket", **where)
    for call in ("c1", "c2"):
        tool = {
            "tool_name": "Bash",
            "tool_input": {"command": f"make {call}"},
            "tool_response": "hm",
            "tool_use_id": call,
        }
        spool(lab, "save", "PostToolUse", **tool, **where)
    rollout.begin("t1")
    rollout.say("user", "Mend the basket")
    rollout.call("c1", "exec_command", {"cmd": "make c1"}, ran(2, "hm"))
    rollout.call("c2", "exec_command", {"cmd": "make c2"}, ran(0, "hm"))
    spool(lab, "summary", "Stop", last_assistant_message="Done.", **where)
    lab.drain()
    failed = "select tool_use_id, coalesce(json_extract(body, '$.failed'), 0), source from events where kind = 'tool'"
    assert lab.rows(f"{failed} order by 1") == [("c1", 1, "hook"), ("c2", 0, "hook")]


def test_what_is_said_while_the_agent_works_is_kept_and_repetition_is_not(lab: Lab) -> None:
    for text in ("Mend the basket", "and paint it red", "and paint it red"):
        spool(lab, "new", "UserPromptSubmit", prompt=text)
    spool(lab, "summary", "Stop", last_assistant_message="It is mended and red.")
    lab.drain()
    assert lab.rows("select text from user_prompts") == [("Mend the basket\nand paint it red",)]
    assert lab.rows("select request from session_summaries") == [("Mend the basket\nand paint it red",)]
    assert lab.status()["filtered_by"] == {"duplicate": 1}


# --- its files -------------------------------------------------------------------------------------------------------

CONFIG = '# mine\nmodel = "gpt-5.5"   # a remark\n\n[mcp_servers.other]\ncommand = "true"\n'


@pytest.fixture
def table(tmp_path: Path) -> codex.ServerTable:
    ours = LauncherCommands(tmp_path / "it's" / "claude-mem-hook", {"HOME": str(tmp_path)})
    return next(edit for edit in codex.edits(ours) if isinstance(edit, codex.ServerTable))


@pytest.mark.parametrize("text", ["", CONFIG, CONFIG.rstrip(), f"{CONFIG}\n\n# the end\n"])
def test_our_table_goes_in_and_out_without_a_trace(table: codex.ServerTable, text: str) -> None:
    there = table.apply(text)
    assert tomllib.loads(there)["mcp_servers"]["claude-mem"]["args"] == ["mcp"]
    assert there.startswith(text)
    assert table.apply(there) == there
    assert table.revert(there).rstrip("\n") == text.rstrip("\n")


def test_what_codex_wrote_between_our_marks_stays(table: codex.ServerTable) -> None:
    there = table.apply(CONFIG)
    theirs = '\n[hooks.state."/h:stop:0:0"]\ntrusted_hash = "sha256:1"\n'
    moved = there.replace("# <<< claude-mem <<<\n", f"{theirs}# <<< claude-mem <<<\n")
    assert table.apply(moved) == moved
    assert table.revert(moved) == CONFIG + theirs
    marks_gone = "".join(line for line in moved.splitlines(keepends=True) if "claude-mem >>>" not in line)
    assert table.revert(marks_gone) == CONFIG + theirs


def test_what_the_user_allowed_our_tools_stays_until_we_go(table: codex.ServerTable) -> None:
    there = table.apply(CONFIG) + '\n[mcp_servers.claude-mem.tools.search]\napproval_mode = "approve"\n'
    assert table.apply(there) == there
    assert "claude-mem" not in table.revert(there)


def test_a_launcher_that_moved_is_written_anew(table: codex.ServerTable) -> None:
    old = table.apply(CONFIG).replace("it's", "elsewhere")
    assert table.apply(old) == table.apply(CONFIG)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("model = ", "not valid TOML"),
        ('[mcp_servers.claude-mem]\ncommand = "npx"\n', "another MCP server"),
        ('mcp_servers = { other = { command = "true" } }\n', "not valid TOML"),
    ],
)
def test_settings_that_cannot_take_it_are_left_alone(table: codex.ServerTable, text: str, why: str) -> None:
    with pytest.raises(OperationFailed, match=why):
        table.apply(text)
    if why == "another MCP server":
        assert table.revert(text) == text


def test_its_folder_may_be_elsewhere(lab: Lab) -> None:
    home = lab.folder / "codex"
    lab.mem("install", "--yes", "--host", "codex", CODEX_HOME=str(home))
    hooks = json.loads((home / "hooks.json").read_text())["hooks"]
    assert {event: entry[0]["hooks"][0]["timeout"] for event, entry in hooks.items() if event == "SessionEnd"} == {
        "SessionEnd": 3
    }
    assert set(hooks) == set(codex.EVENTS)
    assert sorted(path.name for path in home.iterdir()) == ["config.toml", "hooks.json", "skills"]
    lab.mem("uninstall", "--yes", CODEX_HOME=str(home))
    assert not home.exists()


def test_with_the_plugin_our_own_lines_are_taken_out(lab: Lab) -> None:
    home = lab.folder / "home" / ".codex"
    lab.mem("install", "--yes", "--host", "codex")
    (home / "config.toml").write_text('[plugins."mem@mem"]\nenabled = true\n')
    lab.mem("install", "--yes", "--host", "codex")
    assert not (home / "hooks.json").exists()
