"""`claude-mem config`: the file is the person's, and a value that makes no sense never gets into it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from claude_mem.system import process
from tests.support.lab import MEM, Lab

THEIRS = "# my settings\nlog_level = 'DEBUG'  # while I look for something\n\ncontext_tokens = 900\n"


@pytest.fixture
def file(lab: Lab) -> Path:
    lab.data.mkdir(parents=True, exist_ok=True)
    return lab.data / "config.toml"


def test_a_value_is_set_and_everything_else_stays(lab: Lab, file: Path) -> None:
    file.write_text(THEIRS)
    assert lab.mem("config", "set", "context_tokens", "1200").stdout == "context_tokens = 1200\n"
    assert file.read_text() == THEIRS.replace("900", "1200")
    lab.mem("config", "set", "skip-tools", "Bash, Read")
    assert lab.mem("config", "get", "skip_tools").stdout == '["Bash", "Read"]\n'
    lab.mem("config", "unset", "skip_tools")
    assert file.read_text() == THEIRS.replace("900", "1200")
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("context_tokens", "many"),
        ("context_tokens", "9"),
        ("provider", "gpt"),
        ("redact_secrets", "maybe"),
        ("nope", "1"),
    ],
)
def test_a_value_that_makes_no_sense_changes_nothing(lab: Lab, file: Path, name: str, value: str) -> None:
    file.write_text(THEIRS)
    done = lab.mem("config", "set", name, value, ok=False)
    assert done.returncode == 2
    assert name in done.stderr
    assert file.read_text() == THEIRS


def test_a_broken_file_is_not_written_over(lab: Lab, file: Path) -> None:
    file.write_text("= nonsense")
    done = lab.mem("config", "set", "mode", "research", ok=False)
    assert done.returncode == 1
    assert "config edit" in done.stderr
    assert file.read_text() == "= nonsense"


def test_a_secret_comes_from_stdin_and_is_never_shown(lab: Lab, file: Path) -> None:
    command = [*MEM, "config", "set", "anthropic_api_key", "-"]
    done = subprocess.run(command, input="abc-123\n", env=lab.env(), capture_output=True, text=True, check=True)
    assert "abc-123" in file.read_text()
    shown = done.stdout + lab.mem("config", "get", "anthropic_api_key").stdout + lab.mem("config", "--json").stdout
    assert "abc-123" not in shown


def test_the_data_directory_is_not_a_matter_of_the_file(lab: Lab) -> None:
    assert "CLAUDE_MEM_DATA_DIR" in lab.mem("config", "set", "data_dir", "/elsewhere", ok=False).stderr


def test_a_running_worker_is_restarted_with_it(lab: Lab) -> None:
    lab.mem("start")
    before = process.running_worker(lab.data)
    assert "restarted" in lab.mem("config", "set", "context_tokens", "1000").stderr
    after = process.running_worker(lab.data)
    assert before and after
    assert before.pid != after.pid
    assert "restarted" not in lab.mem("config", "set", "context_tokens", "1000").stderr  # it was that already


def test_the_environment_counts_before_the_file_and_that_is_said(lab: Lab) -> None:
    done = subprocess.run(
        [*MEM, "config", "set", "context_tokens", "1000"],
        env=lab.env(CLAUDE_MEM_CONTEXT_TOKENS="800"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "context_tokens = 800\n"
    assert "CLAUDE_MEM_CONTEXT_TOKENS" in done.stderr


def test_it_is_edited_in_the_persons_editor_and_checked(lab: Lab, file: Path, tmp_path: Path) -> None:
    editor = tmp_path / "my editor"
    editor.write_text('#!/bin/sh\necho "context_tokens = 1" >> "$1"\n')
    editor.chmod(0o700)
    done = subprocess.run(
        [*MEM, "config", "edit"], env=lab.env(EDITOR=f"'{editor}'"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "out of range" in done.stderr
    assert "context_tokens = 1" in file.read_text()


def test_where_the_file_is_and_what_is_in_it(lab: Lab, file: Path) -> None:
    assert lab.mem("config", "path").stdout == f"{file}\n"
    rows = [json.loads(line) for line in lab.mem("config", "--json").stdout.splitlines()]
    assert {"name", "value", "source", "reason"} == set(rows[0])


def test_a_linked_file_stays_a_link_and_keeps_its_ends_of_lines(lab: Lab, file: Path) -> None:
    real = lab.folder / "dotfiles.toml"
    real.write_bytes(b"# mine\r\ncontext_tokens = 900\r\n")
    file.symlink_to(real)
    lab.mem("config", "set", "context_tokens", "1000")
    assert file.is_symlink()
    assert real.read_bytes() == b"# mine\r\ncontext_tokens = 1000\r\n"
