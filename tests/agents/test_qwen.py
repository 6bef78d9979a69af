"""Qwen Code: the real program with our hooks, and its words in ours."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_mem.agents import payload, qwen
from claude_mem.domain import ids
from claude_mem.domain.errors import IgnoredEvent, UnreadableEvent
from claude_mem.domain.records import Prompted
from claude_mem.system import spool

from .chat_lab import JSON, Cases, ChatLab, find_agent, open_chat_lab
from .chat_server import Tool

found, reason = find_agent("qwen", "@qwen-code/qwen-code/cli-entry.js")
needs_agent = pytest.mark.skipif(found is None, reason=reason)


class QwenLab(ChatLab):
    host: ClassVar[str] = "qwen"

    @property
    def env(self) -> dict[str, str]:
        return {
            **super().env,
            "OPENAI_BASE_URL": f"{self.server.url}/v1",
            "OPENAI_API_KEY": "dummy-key",
            "OPENAI_MODEL": "scripted",
            "QWEN_CODE_NO_RELAUNCH": "1",
            "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
        }

    def prepare(self) -> None:
        super().prepare()
        settings = {
            "security": {"auth": {"selectedType": "openai"}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False},
            "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
            "$version": 99,  # as if it had brought the file up to date already
        }
        (self.home / ".qwen").mkdir()
        (self.home / ".qwen" / "settings.json").write_text(json.dumps(settings, indent=4))

    def command(self, prompt: str, *, resume: str = "") -> list[str]:
        node = shutil.which("node") or "node"
        return [node, str(self.binary), *(["--resume", resume] if resume else []), "-p", prompt, "--yolo"]

    def write(self, path: Path, content: str) -> Tool:
        return Tool("write_file", {"file_path": str(path), "content": content})

    def bash(self, command: str) -> Tool:
        return Tool("run_shell_command", {"command": command, "description": "A step", "is_background": False})

    def read(self, path: Path) -> Tool:
        return Tool("read_file", {"file_path": str(path)})

    def edit(self, path: Path, old: str, new: str) -> Tool:
        return Tool("edit", {"file_path": str(path), "old_string": old, "new_string": new})

    def search(self, query: str) -> Tool:
        return Tool("mcp__claude-mem__search", {"query": query})


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[ChatLab]:
    assert found is not None
    with open_chat_lab(QwenLab, tmp_path / "lab", binary=found) as lab:
        lab.mem("install", "--yes", "--host", "qwen")
        yield lab


@needs_agent
class TestQwen(Cases):
    ends_sessions: ClassVar[bool] = False
    # What stood beside a prompt is kept with it, what was told at the start is not: so all is told anew.
    known_when_resumed: ClassVar[tuple[int, ...]] = (1, 2)


# --- its words in ours -----------------------------------------------------------------------------------------------

REPORT = "Command: x\nDirectory: (root)\nOutput: {out}\nError: {err}\nExit Code: {code}\nSignal: (none)\nProcess Group PGID: 1"


def told(event: str, **fields: Any) -> dict[str, Any]:
    return qwen.translate({"hook_event_name": event, "session_id": "s", "cwd": "/p", **fields})


def test_a_report_about_a_command_is_told_as_what_it_printed() -> None:
    shown = {"llmContent": REPORT.format(out="one\ntwo", err="(none)", code=0), "returnDisplay": "one"}
    found = told("PostToolUse", tool_name="run_shell_command", tool_input={"command": "x"}, tool_response=shown)
    assert (found["tool_name"], found["tool_response"]) == ("Bash", "one\ntwo")


def test_a_failed_command_says_how_it_ended() -> None:
    error = REPORT.format(out="one", err="bad", code=3)
    found = told("PostToolUseFailure", tool_name="run_shell_command", tool_input={"command": "x"}, error=error)
    assert found["error"] == "Exit code 3\none\nbad"


@pytest.mark.parametrize(
    ("tool", "given_", "name", "expected"),
    [
        ("write_file", {"file_path": "/p/a", "content": "x"}, "Write", {"file_path": "/p/a", "content": "x"}),
        ("replace", {"file_path": "/p/a", "old_string": "x"}, "Edit", {"file_path": "/p/a", "old_string": "x"}),
        (
            "read_file",
            {"absolute_path": "/p/a"},
            "Read",
            {"absolute_path": "/p/a", "file_path": "/p/a"},
        ),
        ("mcp__mem__recall", {"query": "q"}, "mcp__mem__recall", {"query": "q"}),
    ],
)
def test_a_tool_is_told_in_our_words(tool: str, given_: Any, name: str, expected: Any) -> None:
    found = told("PostToolUse", tool_name=tool, tool_input=given_, tool_use_id="made up", tool_call_id="call_1")
    assert (found["tool_name"], found["tool_input"], found["tool_use_id"]) == (name, expected, "call_1")


def test_what_goes_to_the_model_after_tools_is_no_prompt() -> None:
    with pytest.raises(IgnoredEvent):
        told("UserPromptSubmit", prompt="")


def test_a_prompt_that_is_all_private_is_not_taken_for_that() -> None:
    """The hook has cut it, so it comes empty too."""
    fields = b'{"hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": "/p", "prompt": ""}'
    event = payload.read_event(
        spool.parse_envelope(ids.new_event_id(), b"command new\nhost qwen\nprivate yes\n\n" + fields)
    )
    assert (event.private, event.body) == (True, Prompted(""))


def test_what_it_notes_for_itself_is_not_work() -> None:
    with pytest.raises(IgnoredEvent):
        told("PostToolUse", tool_name="write_file", tool_input={}, agent_id="managed-auto-memory-extractor-1")


KEYS = ("hook_event_name", "prompt", "source", "tool_name", "tool_input", "tool_response", "error", "agent_id")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, JSON)), st.sampled_from([*qwen.EVENTS, "x"]))
def test_whatever_comes_is_translated_or_refused(fields: dict[str, Any], event: str) -> None:
    for given_ in (fields, {**fields, "hook_event_name": event, "tool_name": "read_file"}):
        try:
            qwen.translate(given_)
        except UnreadableEvent:
            pass
