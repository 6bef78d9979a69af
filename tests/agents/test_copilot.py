"""The Copilot CLI: the real program with our hooks, its words in ours, its transcript."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_mem.agents import copilot
from claude_mem.domain.errors import IgnoredEvent, UnreadableEvent
from claude_mem.domain.records import Prompted, ToolUsed
from tests.support.waiting import wait_for

from .chat_lab import (
    JSON,
    LAST_WORDS,
    Cases,
    ChatLab,
    do_work,
    events,
    find_agent,
    last_words,
    open_chat_lab,
    tools,
    work,
)
from .chat_server import Text, Tool

found, reason = find_agent("copilot", "@github/copilot-linux-x64/copilot")
needs_agent = pytest.mark.skipif(found is None, reason=reason)


class CopilotLab(ChatLab):
    host: ClassVar[str] = "copilot"

    @property
    def env(self) -> dict[str, str]:
        return {
            **super().env,
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_BASE_URL": f"{self.server.url}/v1",
            "COPILOT_PROVIDER_API_KEY": "dummy-key",
            "COPILOT_MODEL": "scripted",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_CACHE_HOME": str(self.root.parent.parent / "copilot-cache"),  # it unpacks itself: once is enough
        }

    def command(self, prompt: str, *, resume: str = "") -> list[str]:
        resuming = [f"--resume={resume}"] if resume else []
        return [str(self.binary), *resuming, "-p", prompt, "--allow-all-tools", "--allow-all-paths"]

    def write(self, path: Path, content: str) -> Tool:
        return Tool("create", {"path": str(path), "file_text": content})

    def bash(self, command: str) -> Tool:
        return Tool("bash", {"command": command, "description": "A step of the test", "mode": "sync"})

    def read(self, path: Path) -> Tool:
        return Tool("view", {"path": str(path)})

    def edit(self, path: Path, old: str, new: str) -> Tool:
        return Tool("edit", {"path": str(path), "old_str": old, "new_str": new})

    def search(self, query: str) -> Tool:
        return Tool("claude-mem-search", {"query": query})


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[ChatLab]:
    assert found is not None
    with open_chat_lab(CopilotLab, tmp_path / "lab", binary=found) as lab:
        lab.mem("install", "--yes", "--host", "copilot")
        yield lab


@needs_agent
class TestCopilot(Cases):
    hears_of_failures: ClassVar[bool] = False  # for Copilot such a command has succeeded
    # What stood beside a prompt is kept with it, what was told at the start is not: so all is told anew. Which of the
    # two hooks of a resumed session comes first is open, since Copilot runs them side by side.
    known_when_resumed: ClassVar[tuple[int, ...]] = (1, 2)

    def test_hooks_and_transcript_name_calls_and_prompts_alike(self, lab: ChatLab) -> None:
        task = {"agent_type": "general-purpose", "name": "side", "description": "A side job", "prompt": "JOB-SUB: look"}
        twice = [lab.bash("echo twice"), lab.bash("echo twice"), lab.read(lab.project / "missing")]
        lab.server.play("JOB-MAIN", [Tool("task", task)], twice, [Text("Main is done.")])
        lab.server.play("JOB-SUB", [lab.bash("ls")], [Text("Nothing odd here.")])
        lab.say("JOB-MAIN: have someone look around")
        lab.wait_digested()
        (session,) = lab.sessions()
        assert sorted(tools(session)) == sorted(
            [("Bash", False), ("Agent", False), ("Bash", False), ("Bash", False), ("Read", True)]
        )
        assert {event["source"] for event in events(session, "tool")} == {"hook"}
        assert [event["body"]["message"] for event in events(session, "subagent_stop")] == ["Nothing odd here."]
        assert session["prompt_counter"] == 1
        told = copilot.read(transcript(lab), host="copilot")
        calls = {event.tool_use_id: event.body for event in told.events if isinstance(event.body, ToolUsed)}
        stored = {event["tool_use_id"]: event["body"] for event in events(session, "tool")}
        assert sorted(calls) == sorted(stored)
        assert [calls[name].agent_id for name in sorted(calls)] == [
            stored[name].get("agent_id", "") for name in sorted(stored)
        ]

    def test_what_no_hook_told_is_read_back(self, lab: ChatLab) -> None:
        path = lab.home / ".copilot" / "hooks" / "claude-mem.json"
        hooks = json.loads(path.read_text())
        for event in ("PostToolUse", "PostToolUseFailure", "UserPromptSubmit"):
            del hooks["hooks"][event]
        path.write_text(json.dumps(hooks))
        do_work(lab)
        wait_for(lambda: len(tools(lab.sessions()[0])) == 5, "the transcript was not read")
        lab.wait_digested()
        (session,) = lab.sessions()
        assert [name for name, _ in tools(session)] == ["Write", "Bash", "Bash", "Bash", "Bash"]
        assert [failed for _, failed in tools(session)] == [False, True, False, False, False]
        assert {event["source"] for event in events(session, "tool")} == {"transcript"}
        assert session["prompt_counter"] == 1
        assert last_words(session) == [LAST_WORDS]

    def test_an_old_session_is_read_from_its_transcript(self, lab: ChatLab) -> None:
        lab.mem("uninstall", "--yes")
        lab.server.play("JOB-ONE", *work(lab))
        lab.say("JOB-ONE: build the capacitor and commit it")
        for _ in range(2):  # the second time there is nothing to add
            lab.mem("backfill", str(transcript(lab)))
            (session,) = lab.sessions()
            assert len(tools(session)) == 5
            assert last_words(session) == [LAST_WORDS]
            assert session["prompt_counter"] == 1


def transcript(lab: ChatLab) -> Path:
    (path,) = (lab.home / ".copilot" / "session-state").glob("*/events.jsonl")
    return path


# --- its words in ours -----------------------------------------------------------------------------------------------


def told(event: str, **fields: Any) -> dict[str, Any]:
    common = {"hook_event_name": event, "session_id": "s", "timestamp": "2026-01-01T00:00:00.001Z", "cwd": "/p"}
    return copilot.translate({**common, **fields})


def test_a_failed_command_is_a_failure() -> None:
    result = {"result_type": "success", "text_result_for_llm": "one\ntwo\n<shellId: 0 completed with exit code 3>"}
    found = told("PostToolUse", tool_name="Bash", tool_input={"command": "x"}, tool_result=result)
    assert (found["hook_event_name"], found["error"]) == ("PostToolUseFailure", "Exit code 3\none\ntwo")


def test_what_a_command_printed_is_told_without_copilots_mark() -> None:
    result = {"result_type": "success", "text_result_for_llm": "one\n<shellId: 0 completed with exit code 0>"}
    found = told("PostToolUse", tool_name="Bash", tool_input={"command": "x"}, tool_result=result)
    assert (found["hook_event_name"], found["tool_response"]) == ("PostToolUse", "one")


@pytest.mark.parametrize(
    ("tool", "given_", "name", "expected"),
    [
        ("Write", {"path": "/p/a", "file_text": "x"}, "Write", {"file_path": "/p/a", "content": "x"}),
        (
            "Edit",
            {"path": "/p/a", "old_str": "x", "new_str": "y"},
            "Edit",
            {"file_path": "/p/a", "old_string": "x", "new_string": "y"},
        ),
        ("Read", {"path": "/p/a"}, "Read", {"file_path": "/p/a"}),
        ("Grep", {"path": "/p", "pattern": "x"}, "Grep", {"path": "/p", "pattern": "x"}),
        ("claude-mem-search", {"query": "q"}, "mcp__claude-mem__search", {"query": "q"}),
        ("apply_patch", "*** Add File: b\n+one\n", "Write", {"file_path": "/p/b", "content": "one"}),
        ("sql", {"query": "q"}, "sql", {"query": "q"}),
    ],
)
def test_a_tool_is_told_in_our_words(tool: str, given_: Any, name: str, expected: Any) -> None:
    found = told("PreToolUse", tool_name=tool, tool_input=given_)
    assert (found["tool_name"], found["tool_input"]) == (name, expected)


def test_a_subagent_speaks_for_its_session_and_is_not_taken_for_the_user() -> None:
    agent = {"session_id": "a", "agent_id": "a", "parent_agent_id": "s"}
    assert told("PostToolUse", tool_name="Bash", tool_input={}, **agent)["session_id"] == "s"
    for event in ("UserPromptSubmit", "Stop"):
        with pytest.raises(IgnoredEvent):
            told(event, prompt="do it", **agent)


def test_a_private_prompt_in_the_transcript_hides_its_turn(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    records = [
        {"type": "session.start", "data": {"sessionId": "s", "producer": "copilot-agent", "context": {"cwd": "/p"}}},
        {"type": "user.message", "id": "1", "data": {"content": "<private>x</private>", "messageId": "m"}},
        {
            "type": "tool.execution_start",
            "data": {"toolCallId": "c", "toolName": "bash", "arguments": {"command": "y"}},
        },
        {"type": "tool.execution_complete", "data": {"toolCallId": "c", "success": True, "result": {"content": "z"}}},
        {"type": "user.message", "id": "2", "data": {"content": "open", "messageId": "n"}},
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + '{"type": "user.mess')
    found = copilot.read(path, host="copilot")
    assert [event.private for event in found.events] == [True, True, False]
    assert found.events[0].body == Prompted("")
    assert found.offset == path.read_text().index('{"type": "user.message", "id": "2"')


KEYS = ("hook_event_name", "timestamp", "source", "tool_name", "tool_input", "tool_result", "parent_agent_id", "cwd")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, JSON)), st.sampled_from([*copilot.EVENTS, "x"]))
def test_whatever_comes_is_translated_or_refused(fields: dict[str, Any], event: str) -> None:
    named = {**fields, "hook_event_name": event}
    for given_ in (fields, named, {**named, "tool_name": "apply_patch"}):
        try:
            copilot.translate(given_)
        except UnreadableEvent:
            pass


TYPES = (
    "session.start",
    "hook.start",
    "user.message",
    "assistant.message",
    "tool.execution_start",
    "tool.execution_complete",
)
PARTS = ("toolCallId", "toolName", "content", "input", "result", "error", "arguments", "source", "hookType", "context")
RECORD = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES), "data": st.fixed_dictionaries({}, optional=dict.fromkeys(PARTS, JSON))}
)


@given(st.lists(RECORD, max_size=6))
def test_no_transcript_is_too_odd_to_be_read(tmp_path_factory: pytest.TempPathFactory, records: list[Any]) -> None:
    path = tmp_path_factory.mktemp("odd") / "events.jsonl"
    path.write_bytes(b"".join(json.dumps(record).encode() + b"\n" for record in records))
    assert copilot.read(path, host="copilot").offset <= path.stat().st_size
