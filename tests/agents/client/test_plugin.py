"""The plugin, as people install it: from this repository as a marketplace, into the real Claude Code."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from claude_mem import __version__
from claude_mem.agents import claude
from claude_mem.agents.base import LauncherCommands

from .harness import ROOT, Lab, find_client, open_lab
from .model_server import Text, Tool

PLUGIN = claude.PLUGIN
HOOKS = json.loads((PLUGIN / "hooks" / "hooks.json").read_text())["hooks"]


def test_its_hooks_are_the_same_as_those_that_install_writes(tmp_path: Path) -> None:
    written = {event: line.entry() for event, line in claude.hook_lines(LauncherCommands(tmp_path, {})).items()}
    assert list(HOOKS) == list(written)
    for event, entry in written.items():
        (ours,) = HOOKS[event]
        assert ours.get("matcher") == entry.get("matcher")
        assert f'claude-mem-hook" {claude.EVENTS[event]} plugin' in ours["hooks"][0]["command"]
        assert ours["hooks"][0]["timeout"] == entry["hooks"][0]["timeout"]


def test_it_has_our_version() -> None:
    assert json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text())["version"] == __version__


def test_without_the_program_it_says_so_once_and_is_silent_otherwise(tmp_path: Path) -> None:
    said = {}
    for event, (entry,) in HOOKS.items():
        command = ["/bin/sh", "-c", entry["hooks"][0]["command"]]
        done = subprocess.run(command, input=b"{}", env={"HOME": str(tmp_path)}, capture_output=True, check=True)
        said[event] = done.stdout
        assert done.stderr == b""
    assert "claude-mem start" in json.loads(said.pop("SessionStart"))["systemMessage"]
    assert set(said.values()) == {b""}


found, reason = find_client()
real = pytest.mark.skipif(found is None, reason=reason)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """No `install`: only the program, running, and the plugin."""
    assert found is not None
    with open_lab(tmp_path / "lab", binary=found) as lab:
        lab.mem("start")
        yield lab


def plugin(lab: Lab, *words: str) -> str:
    return lab.run([str(lab.binary), "plugin", *words]).stdout


@real
@pytest.mark.client
def test_the_manifests_are_valid(lab: Lab) -> None:
    assert "Validation passed" in plugin(lab, "validate", str(ROOT))
    assert "Validation passed" in plugin(lab, "validate", str(PLUGIN))


@real
@pytest.mark.client
def test_a_session_with_the_plugin_is_remembered_and_can_ask(lab: Lab) -> None:
    plugin(lab, "marketplace", "add", str(ROOT))
    plugin(lab, "install", "mem@mem")
    module = {"file_path": str(lab.project / "capacitor.py"), "content": "GIGAWATTS = 1.21\n"}
    lab.server.play("JOB-ONE", [Tool("Write", module)], [Text("The capacitor needs 1.21 gigawatts.")])
    lab.server.play(
        "JOB-TWO", [Tool("mcp__plugin_mem_claude-mem__search", {"query": "capacitor gigawatts"})], [Text("Now I know.")]
    )
    first = lab.claude("JOB-ONE: find out what the capacitor needs")
    assert [(hook.outcome, hook.stderr) for hook in first.hooks if hook.outcome != "success"] == []
    status = lab.wait_digested()
    assert status["set_aside"] == 0
    second = lab.claude("JOB-TWO: what did it need?")
    one, two = (request for request in lab.server.of(second.session) if request.marker == "JOB-TWO")
    assert any("1.21 gigawatts" in context for context in one.contexts)
    assert "1.21 gigawatts" in json.dumps(two.body["messages"][-1])
    commands = {name for event in second.of("system", "init") for name in event["slash_commands"]}
    assert {"mem:mem", "mem:remember", "mem:forget"} <= commands
    (session,) = [row for row in lab.api("/api/sessions")["items"] if row["content_session_id"] == first.session]
    assert session["host"] == "claude"


@real
@pytest.mark.client
def test_plugin_and_install_together_do_nothing_twice(lab: Lab) -> None:
    lab.mem("install", "--yes", "--host", "claude")
    plugin(lab, "marketplace", "add", str(ROOT))
    plugin(lab, "install", "mem@mem")
    lab.mem("install", "--yes", "--host", "claude")
    assert "claude-mem-hook" not in lab.settings.read_text()
    lab.server.play("JOB-ONE", [Text("Nothing to do.")])
    run = lab.claude("JOB-ONE: is there anything to do here?")
    assert len(run.hooks_of("UserPromptSubmit")) == 1
