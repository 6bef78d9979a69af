"""OpenCode: the plugin in the real program, and the words of its tools."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claude_mem.agents import opencode
from claude_mem.domain.errors import UnreadableEvent

from .chat_lab import JSON, Cases, ChatLab, events, find_agent, open_chat_lab, version
from .chat_server import Text, Tokens, Tool

found, reason = find_agent("opencode", "opencode-linux-x64/bin/opencode")
needs_agent = pytest.mark.skipif(found is None, reason=reason)
VERSION = version("opencode")


class OpenCodeLab(ChatLab):
    host: ClassVar[str] = "opencode"

    @property
    def config(self) -> Path:
        return self.home / ".config" / "opencode"

    @property
    def env(self) -> dict[str, str]:
        model = {"name": "Scripted", "limit": {"context": 100_000, "output": 8_000}}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Lab",
            "options": {"baseURL": f"{self.server.url}/v1", "apiKey": "dummy-key"},
            "models": {"scripted": model},
        }
        settings = {
            "model": "lab/scripted",
            "small_model": "lab/scripted",
            "share": "disabled",
            "autoupdate": False,
            "provider": {"lab": provider},
            "permission": {"*": "allow"},
        }
        return {
            **super().env,
            "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        }

    def prepare(self) -> None:
        """It would fetch a package for typed plugins from the registry at its first start, unless it seems to be there."""
        super().prepare()
        (self.config / "node_modules").mkdir(parents=True)
        lock = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": VERSION}}}}
        (self.config / "package-lock.json").write_text(json.dumps(lock))

    def command(self, prompt: str, *, resume: str = "") -> list[str]:
        return [str(self.binary), "run", *(["--session", resume] if resume else []), prompt]

    def write(self, path: Path, content: str) -> Tool:
        return Tool("write", {"filePath": str(path), "content": content})

    def bash(self, command: str) -> Tool:
        return Tool("bash", {"command": command, "description": "A step of the test"})

    def read(self, path: Path) -> Tool:
        return Tool("read", {"filePath": str(path)})

    def edit(self, path: Path, old: str, new: str) -> Tool:
        return Tool("edit", {"filePath": str(path), "oldString": old, "newString": new})

    def search(self, query: str) -> Tool:
        return Tool("claude-mem_search", {"query": query})


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[ChatLab]:
    assert found is not None
    with open_chat_lab(OpenCodeLab, tmp_path / "lab", binary=found) as lab:
        lab.mem("install", "--yes", "--host", "opencode")
        yield lab


@needs_agent
class TestOpenCode(Cases):
    def test_the_request_for_a_title_has_nothing_of_ours(self, lab: ChatLab) -> None:
        lab.mem("start")
        lab.post("/api/memory/save", {"text": "The warp coil is brittle", "cwd": str(lab.project)})
        lab.wait_digested()
        lab.server.play("JOB-ONE", [Text("Done.")])
        lab.say("JOB-ONE: what about the warp coil here?")
        (title,) = [request for request in lab.server.requests if request.marker is None]
        assert "JOB-ONE" in title.text
        assert title.contexts == []
        assert len(lab.asked("JOB-ONE")[0].contexts) == 1
        lab.wait_digested()
        (session,) = lab.sessions()
        assert [prompt["text"] for prompt in session["prompts"]] == ["JOB-ONE: what about the warp coil here?"]

    def test_a_subagent_works_for_the_session_that_sent_it(self, lab: ChatLab) -> None:
        task = {"description": "A side job", "prompt": "JOB-SUB: look around", "subagent_type": "general"}
        lab.server.play("JOB-MAIN", [Tool("task", task)], [Text("Main is done.")])
        lab.server.play("JOB-SUB", [lab.bash("ls")], [Text("Nothing odd here.")])
        lab.say("JOB-MAIN: have someone look around")
        lab.wait_digested()
        (session,) = lab.sessions()
        assert [event["body"]["name"] for event in events(session, "tool")] == ["Bash", "Task"]
        assert events(session, "tool")[0]["body"]["agent_id"]
        assert events(session, "subagent_stop")[0]["body"]["message"] == "Nothing odd here."
        assert session["prompt_counter"] == 1

    def test_after_compaction_the_start_is_told_again(self, lab: ChatLab) -> None:
        lab.mem("start")
        lab.post("/api/memory/save", {"text": "The warp coil is brittle", "cwd": str(lab.project)})
        lab.wait_digested()
        full = Tokens(99_000)
        lab.server.play("JOB-LONG", [full, lab.bash("echo one")], [Text("Long is done.")])
        lab.say("JOB-LONG: do something long")
        lab.wait_digested()
        (session,) = lab.sessions()
        assert [event["body"]["source"] for event in events(session, "session_start")] == ["startup", "compact"]
        assert session["prompt_counter"] == 1


# --- its tools in our words ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "given_", "name", "expected"),
    [
        ("bash", {"command": "ls", "description": "d"}, "Bash", {"command": "ls", "description": "d"}),
        ("read", {"filePath": "/p/a", "offset": 3}, "Read", {"file_path": "/p/a", "offset": 3}),
        ("write", {"filePath": "/p/a", "content": "x"}, "Write", {"file_path": "/p/a", "content": "x"}),
        (
            "edit",
            {"filePath": "/p/a", "oldString": "x", "newString": "y"},
            "Edit",
            {"file_path": "/p/a", "old_string": "x", "new_string": "y"},
        ),
        ("mem ory_recall", {"query": "q"}, "mem ory_recall", {"query": "q"}),
        ("my_mem_recall", {"query": "q"}, "mcp__my.mem__recall", {"query": "q"}),
        (
            "apply_patch",
            {
                "patchText": "*** Update File: src/a.py\n@@ def f\n def f():\n-    return 1\n+    return 2\n*** End Patch"
            },
            "Edit",
            {
                "file_path": "/p/src/a.py",
                "old_string": "def f():\n    return 1",
                "new_string": "def f():\n    return 2",
            },
        ),
        ("patch", {"patchText": "*** Add File: /p/b\n+one\n"}, "Write", {"file_path": "/p/b", "content": "one"}),
    ],
)
def test_a_tool_is_told_in_our_words(tool: str, given_: Any, name: str, expected: Any) -> None:
    told = opencode.translate({"tool_name": tool, "tool_input": given_, "cwd": "/p", "mcp_servers": ["my.mem", 3]})
    assert (told["tool_name"], told["tool_input"]) == (name, expected)


KEYS = ("tool_name", "tool_input", "cwd", "mcp_servers", "patchText")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, JSON)), st.sampled_from(["patch", "x", "invalid"]))
def test_whatever_comes_is_translated_or_refused(fields: dict[str, Any], tool: str) -> None:
    for given_ in (fields, {**fields, "tool_name": tool, "tool_input": fields}):
        try:
            opencode.translate(given_)
        except UnreadableEvent:
            pass
