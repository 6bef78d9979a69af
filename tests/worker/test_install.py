"""install and uninstall: our lines in, our lines out, nothing else touched."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from claude_mem.agents import claude
from claude_mem.agents.base import LauncherCommands
from claude_mem.agents.installer import ConnectionRecord, apply_changes, plan_connection
from claude_mem.domain.errors import OperationFailed
from claude_mem.system import process
from tests.support.lab import MEM, Lab
from tests.support.waiting import SECONDS, wait_for

THEIRS: dict[str, Any] = {
    "model": "opus",
    "hooks": {
        "PostToolUse": [{"matcher": "Edit", "hooks": [{"type": "command", "command": "prettier --write"}]}],
        "Notification": [{"hooks": [{"type": "command", "command": "beep"}]}],
    },
    "ünïcode": "✓",
}


@pytest.fixture
def settings(lab: Lab) -> Path:
    path = lab.folder / "home" / ".claude" / "settings.json"
    path.parent.mkdir(parents=True)
    return path


def test_what_goes_in_comes_out_again_exactly(lab: Lab, settings: Path) -> None:
    settings.write_text(json.dumps(THEIRS))
    settings.chmod(0o640)
    lab.mem("install", "--yes")
    installed = json.loads(settings.read_text())
    assert installed["hooks"]["Notification"] == THEIRS["hooks"]["Notification"]
    assert len(installed["hooks"]["PostToolUse"]) == 2
    assert settings.stat().st_mode & 0o777 == 0o640
    lab.mem("uninstall", "--yes")
    assert json.loads(settings.read_text()) == THEIRS


@pytest.mark.parametrize("text", ['{"a":1}', '{\n    "a": [1,2]\n}', "{}\n\n", '{\r\n\t"b": "\u00e9"\r\n}\r\n'])
def test_a_file_that_nobody_changed_meanwhile_is_restored_to_the_byte(lab: Lab, settings: Path, text: str) -> None:
    settings.write_bytes(text.encode())
    lab.mem("install", "--yes")
    assert b"claude-mem-hook" in settings.read_bytes()
    lab.mem("install", "--yes")  # an update must not take our own lines for theirs
    lab.mem("uninstall", "--yes")
    assert settings.read_bytes() == text.encode()


def test_what_was_changed_meanwhile_stays_changed(lab: Lab, settings: Path) -> None:
    settings.write_text('{\n    "model": "opus"\n}')
    lab.mem("install", "--yes")
    found = json.loads(settings.read_text())
    settings.write_text(json.dumps({**found, "model": "haiku"}, indent=4))
    lab.mem("uninstall", "--yes")
    assert settings.read_text() == '{\n    "model": "haiku"\n}'


def test_one_file_that_cannot_be_written_leaves_the_others_as_they_were(lab: Lab, settings: Path) -> None:
    settings.write_text("{}")
    (settings.parent / "skills").write_text("a file where a folder should be")
    done = lab.mem("install", "--yes", ok=False)
    assert done.returncode == 1
    assert "skills" in done.stderr
    assert settings.read_text() == "{}"
    assert not (lab.folder / "home" / ".claude.json").exists()


def test_another_server_of_our_name_is_not_replaced(lab: Lab, settings: Path) -> None:
    theirs = {"mcpServers": {"claude-mem": {"command": "npx", "args": ["something"]}}}
    path = settings.parent.parent / ".claude.json"
    path.write_text(json.dumps(theirs))
    assert "another MCP server" in lab.mem("install", "--yes", ok=False).stderr
    lab.mem("uninstall", "--yes")
    assert json.loads(path.read_text()) == theirs


def test_the_launcher_moves_with_the_program_and_keeps_its_name(lab: Lab, settings: Path) -> None:
    lab.mem("install", "--yes")
    launcher = lab.data / "claude-mem-hook"
    assert launcher.stat().st_mode & 0o777 == 0o700
    launcher.write_text("#!/bin/sh\n# of a version that lay elsewhere\n")
    lab.mem("restart")
    done = subprocess.run([launcher, "save", "claude"], input=b"{}", capture_output=True, check=True)
    assert json.loads(done.stdout) == {"continue": True, "suppressOutput": True}


def test_any_other_client_is_told_what_to_write(lab: Lab) -> None:
    entry = json.loads(lab.mem("install", "--mcp").stdout)["mcpServers"]["claude-mem"]
    asked = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}\n'
    command = [entry["command"], *entry["args"]]

    def answered() -> Any:
        """A worker that is only just starting may be given up: a client asks again."""
        done = subprocess.run(command, input=asked, env=lab.env(), capture_output=True, timeout=SECONDS, check=True)
        return json.loads(done.stdout).get("result")

    assert "search" in [tool["name"] for tool in wait_for(answered)["tools"]]


def test_installing_twice_is_installing_once(lab: Lab, settings: Path) -> None:
    lab.mem("install", "--yes")
    once = settings.read_text()
    assert "Claude Code: already connected" in lab.mem("install", "--yes").stdout
    assert settings.read_text() == once
    assert sorted(json.loads(once)["hooks"]) == sorted(claude.EVENTS)


def test_a_file_that_we_made_is_gone_afterwards(lab: Lab, settings: Path) -> None:
    lab.mem("install", "--yes")
    proof = lab.mem("uninstall", "--yes", "--delete-data").stdout
    assert not settings.exists()
    assert not lab.data.exists()
    assert "agents still connected: none" in proof
    assert "worker running: no" in proof


def test_every_hook_runs_by_absolute_paths_within_seconds(lab: Lab, settings: Path) -> None:
    lab.mem("install", "--yes")
    lab.mem("stop")
    lab.no_worker()
    for event, entries in json.loads(settings.read_text())["hooks"].items():
        (hook,) = entries[0]["hooks"]
        assert isinstance(hook["timeout"], int)
        assert 0 < hook["timeout"] <= 5
        assert "async" not in hook
        assert shlex.split(hook["command"])[0] == str(lab.data / "claude-mem-hook")
        payload = json.dumps({"session_id": "s1", "hook_event_name": event, "cwd": "/"}).encode()
        # As the agent runs it: by a shell, with none of our variables. The data directory stands in the command.
        env = {"PATH": os.environ["PATH"], "HOME": str(lab.folder / "home")}
        done = subprocess.run(["sh", "-c", hook["command"]], input=payload, env=env, capture_output=True, check=True)
        # What PreCompact answers becomes part of the instructions for the compaction, so it is nothing.
        assert json.loads(done.stdout) == ({} if event == "PreCompact" else {"continue": True, "suppressOutput": True})
    kept = [name for name in claude.EVENTS.values() if name != "file"]
    assert len(list((lab.data / "spool").iterdir())) == len(kept)


def test_a_broken_settings_file_is_left_alone(lab: Lab, settings: Path) -> None:
    settings.write_text("{ not json")
    done = lab.mem("install", "--yes", ok=False)
    assert done.returncode == 1
    assert "not valid JSON" in done.stderr
    assert settings.read_text() == "{ not json"


def test_a_dry_run_changes_nothing(lab: Lab, settings: Path) -> None:
    assert "create ~/.claude/settings.json: 10 hooks" in lab.mem("install", "--dry-run").stderr
    assert not settings.exists()
    assert not (lab.data / "connected.json").exists()


def test_without_yes_and_without_a_person_nothing_is_changed(lab: Lab, settings: Path) -> None:
    assert lab.mem("install", ok=False).returncode == 1
    assert not settings.exists()


def test_a_linked_settings_file_stays_a_link(lab: Lab, settings: Path) -> None:
    real = lab.folder / "dotfiles.json"
    real.write_text("{}")
    settings.symlink_to(real)
    lab.mem("install", "--yes")
    assert settings.is_symlink()
    assert "hooks" in json.loads(real.read_text())


def test_the_old_file_is_backed_up(lab: Lab, settings: Path) -> None:
    settings.write_text(json.dumps(THEIRS))
    lab.mem("install", "--yes")
    (backup,) = (lab.data / "backups" / "agents").iterdir()
    assert json.loads(backup.read_text()) == THEIRS
    assert backup.stat().st_mode & 0o777 == 0o600


def test_doctor_says_whether_all_is_well(lab: Lab, settings: Path) -> None:
    lab.mem("config", "set", "provider", "local")  # as the environment has it
    before = lab.mem("doctor", "--json", ok=False)
    assert before.returncode == 1
    bad = [row for row in map(json.loads, before.stdout.splitlines()) if not row["ok"]]
    assert [row["name"] for row in bad] == ["hooks"]
    assert bad[0]["hint"]
    lab.mem("install", "--yes")
    lab.hook("UserPromptSubmit", prompt="go", prompt_id="p1")
    lab.wait_digested()
    after = lab.mem("doctor").stdout
    assert "BAD" not in after
    assert "last event just now" in after
    for name in ("worker", "token", "sqlite", "hook", "capture", "account", "set aside", "disk", "folder"):
        assert f"\nok   {name}" in "\n" + after


def test_a_hook_whose_files_are_gone_still_exits_0(tmp_path: Path) -> None:
    """In the middle of an upgrade, or uninstalled by hand: exit 2 would block the user's prompt."""
    gone = LauncherCommands(tmp_path / "claude-mem-hook", {}).hook("new", "claude")
    done = subprocess.run(["sh", "-c", gone], input=b"{}", capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_deleting_the_data_deletes_nothing_of_anyone_else(lab: Lab, settings: Path) -> None:
    lab.mem("install", "--yes")
    (lab.data / "thesis.txt").write_text("mine")
    lab.mem("uninstall", "--yes", "--delete-data")
    assert [path.name for path in lab.data.iterdir()] == ["thesis.txt"]


def test_settings_that_were_there_before_us_stay(lab: Lab, settings: Path) -> None:
    settings.write_text("{}")
    lab.mem("install", "--yes")
    lab.mem("uninstall", "--yes")
    assert json.loads(settings.read_text()) == {}


@pytest.mark.parametrize("odd", [{"hooks": {"Stop": {}}}, {"hooks": {"Stop": [{"hooks": None}]}}, {"hooks": []}, []])
def test_settings_of_an_unknown_shape_are_left_alone(lab: Lab, settings: Path, odd: Any) -> None:
    settings.write_text(json.dumps(odd))
    assert lab.mem("install", "--yes", ok=False).returncode == 1
    assert lab.mem("doctor", ok=False).returncode == 1
    assert json.loads(settings.read_text()) == odd


def talk(lab: Lab, typed: str, *words: str) -> str:
    """With a person at a terminal."""
    ours, theirs = os.openpty()
    with os.fdopen(ours, "wb", buffering=0) as keyboard:
        running = subprocess.Popen(
            [*MEM, *words], env=lab.env(), stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        os.close(theirs)
        keyboard.write(typed.encode())
        return running.communicate(timeout=SECONDS)[0]


def person(lab: Lab) -> Lab:
    """The lab's environment names a provider; a new user's does not."""
    env = lab.env()
    env.pop("CLAUDE_MEM_PROVIDER")
    lab.env = lambda **more: {**env, **more}  # type: ignore[method-assign]
    return lab


def test_a_no_changes_nothing_and_without_a_model_to_offer_none_is_asked_for(lab: Lab, settings: Path) -> None:
    assert "nothing was changed" in talk(person(lab), "n\n", "install", "--host", "claude")
    assert not settings.exists()
    said = talk(lab, "y\n", "install", "--host", "claude")
    assert "Claude Code: connected" in said
    assert "model" not in said
    assert not (lab.data / "config.toml").exists()


def test_an_agent_nobody_knows_is_named(lab: Lab) -> None:
    done = lab.mem("install", "--host", "emacs", ok=False)
    assert done.returncode == 2
    assert "'emacs'" in done.stderr
    assert "claude" in done.stderr


def test_without_any_agent_it_says_so(lab: Lab, tmp_path: Path) -> None:
    lab.env = partial(lab.env, HOME=str(tmp_path), PATH="/nowhere")  # type: ignore[method-assign]
    assert "no coding agent" in lab.mem("install", "--yes", ok=False).stderr


def test_old_sessions_are_offered_and_read(lab: Lab, settings: Path) -> None:
    old = settings.parent / "projects" / "-shop" / "11111111-1111-1111-1111-111111111111.jsonl"
    old.parent.mkdir(parents=True)
    line = {
        "sessionId": old.stem,
        "cwd": str(lab.project),
        "uuid": "u1",
        "type": "user",
        "timestamp": "2026-01-02T03:04:05Z",
    }
    old.write_text(json.dumps({**line, "message": {"role": "user", "content": "paint the shed green"}}) + "\n")
    assert "1 earlier session (" in lab.mem("install", "--yes", "--host", "claude").stdout
    assert lab.client().get("/api/prompts")["items"] == []
    talk(lab, "y\n", "install", "--host", "claude")
    assert [row["text"] for row in lab.client().get("/api/prompts")["items"]] == ["paint the shed green"]


# --- what was found in a review --------------------------------------------------------------------------------------


def test_a_file_of_theirs_is_never_deleted_because_we_once_made_it(lab: Lab, settings: Path) -> None:
    """We made it; then the agent wrote its login into it, and our part was taken out by hand and put in again."""
    state = settings.parent.parent / ".claude.json"
    lab.mem("install", "--yes")
    state.write_text('{"login": true}')
    lab.mem("install", "--yes")
    lab.mem("uninstall", "--yes")
    assert json.loads(state.read_text()) == {"login": True}


def test_a_failed_install_leaves_no_wrong_memory_of_itself(lab: Lab, settings: Path) -> None:
    state = settings.parent.parent / ".claude.json"
    (settings.parent / "commands").write_text("in the way")
    assert lab.mem("install", "--yes", ok=False).returncode == 1
    state.write_text('{"login": true}')
    (settings.parent / "commands").unlink()
    lab.mem("install", "--yes")
    lab.mem("uninstall", "--yes")
    assert state.read_text() == '{"login": true}'


def test_a_file_of_theirs_with_our_name_in_it_stays(lab: Lab, settings: Path) -> None:
    theirs = settings.parent / "commands" / "remember.md"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("Save this with claude-mem and in NOTES.md.\n")
    lab.mem("install", "--yes")
    assert "claude-mem-hook" in settings.read_text()
    assert "none" in lab.mem("uninstall", "--yes").stdout.splitlines()[0]
    assert theirs.read_text() == "Save this with claude-mem and in NOTES.md.\n"


def test_what_is_written_between_looking_and_writing_is_not_lost(tmp_path: Path) -> None:
    ours = LauncherCommands(tmp_path / "claude-mem-hook", {"HOME": str(tmp_path)})
    (tmp_path / ".claude").mkdir()
    changes = plan_connection(claude.AGENT, ours)
    (tmp_path / ".claude.json").write_text('{"login": true}')
    with pytest.raises(OperationFailed, match="changed by another program just now"):
        apply_changes(changes, ConnectionRecord(tmp_path / "data"))
    assert (tmp_path / ".claude.json").read_text() == '{"login": true}'
    assert not (tmp_path / ".claude" / "settings.json").exists()
    assert ConnectionRecord(tmp_path / "data").entries() == {}


@pytest.mark.parametrize(
    "theirs", ['{"a": "cut \\ud83d"}', '{"a": 1e999}', '{"a": 12345678901234567890.123456789}', '{\r\n "a": 1\r\n}\r\n']
)
def test_what_json_can_say_comes_back_as_it_was(tmp_path: Path, theirs: str) -> None:
    edit = claude.edits(LauncherCommands(tmp_path / "claude-mem-hook", {"HOME": str(tmp_path)}))[0]
    inside = edit.apply(theirs)
    inside.encode()
    assert "Infinity" not in inside
    assert ("\r\n" in inside) == ("\r\n" in theirs)
    for text in ("999", "ud83d", "123456789}"):
        assert (text in theirs) <= (text.rstrip("}") in inside)
    assert json.loads(edit.revert(inside)) == json.loads(theirs)


def test_a_link_stays_a_link_even_if_we_made_what_it_leads_to(lab: Lab, settings: Path) -> None:
    real = lab.folder / "dotfiles" / "settings.json"
    real.parent.mkdir()
    settings.symlink_to(real)
    lab.mem("install", "--yes")
    lab.mem("uninstall", "--yes")
    assert settings.is_symlink()
    assert not real.exists()


def test_moving_our_data_leaves_no_lines_of_the_old_place(lab: Lab, settings: Path) -> None:
    settings.write_text('{"model": "opus"}')
    lab.mem("install", "--yes")
    lab.mem("stop")
    lab.data = lab.folder / "elsewhere"
    lab.mem("install", "--yes")
    lab.mem("uninstall", "--yes")
    assert json.loads(settings.read_text()) == {"model": "opus"}


def test_one_broken_file_does_not_keep_us_in_the_others(lab: Lab, settings: Path) -> None:
    lab.mem("install", "--yes")
    settings.write_text("{ not json")
    done = lab.mem("uninstall", "--yes", "--delete-data", ok=False)
    assert done.returncode == 1
    assert "not valid JSON" in done.stderr
    assert not (settings.parent / "commands").exists()
    assert not (settings.parent.parent / ".claude.json").exists()
    assert (lab.data / "connected.json").exists()  # the way back for the one that is left


def test_a_place_that_a_variable_named_is_remembered(lab: Lab, settings: Path, tmp_path: Path) -> None:
    other = tmp_path / "work"
    lab.env, plain = partial(lab.env, CLAUDE_CONFIG_DIR=str(other)), lab.env  # type: ignore[method-assign]
    lab.mem("install", "--yes", "--host", "claude")
    assert (other / "settings.json").exists()
    lab.env = plain  # type: ignore[method-assign]
    lab.mem("uninstall", "--yes")
    assert not other.exists()


def test_sessions_that_still_run_do_not_bring_us_back(lab: Lab, settings: Path) -> None:
    lab.mem("install", "--yes")
    command = json.loads(settings.read_text())["hooks"]["PostToolUse"][0]["hooks"][0]["command"]
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            subprocess.run(["sh", "-c", command], input=b'{"session_id": "s"}', stdout=subprocess.DEVNULL, check=True)

    busy = threading.Thread(target=work)
    busy.start()
    try:
        lab.mem("uninstall", "--yes", "--delete-data")
    finally:
        time.sleep(0.5)
        stop.set()
        busy.join()
    assert process.lock_holder(lab.data) is None
    assert not lab.data.exists()
