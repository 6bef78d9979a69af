"""Settings: defaults, then the file, then the environment; and a clear word about what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claude_mem import config
from claude_mem.errors import BadSetting
from tests.lab import Lab


def _file(lab: Lab, text: str) -> None:
    lab.data.mkdir(exist_ok=True)
    (lab.data / "config.toml").write_text(text)


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(lab: Lab) -> None:
    _file(lab, "context_tokens = 700\nsilence_minutes = 5\n")
    env = {"HOME": "/nowhere", "CLAUDE_MEM_DATA_DIR": str(lab.data), "CLAUDE_MEM_SILENCE_MINUTES": "7"}
    loaded = config.load_forgiving(env)
    assert (loaded.config.context_tokens, loaded.config.silence_minutes, loaded.config.session_hours) == (700, 7, 24)
    assert loaded.sources["context_tokens"].endswith("config.toml")
    assert loaded.sources["silence_minutes"] == "environment"
    assert loaded.sources["session_hours"] == "default"


def test_one_variable_moves_everything() -> None:
    found = config.load({"CLAUDE_MEM_DATA_DIR": "/somewhere", "HOME": "/nowhere"})
    assert {found.database.parent, found.spool.parent, found.log_file.parent.parent} == {Path("/somewhere")}
    assert config.load({"HOME": "/nowhere"}).data_dir == Path("/nowhere/.claude-mem")


@pytest.mark.parametrize(
    ("text", "line", "complaint"),
    [
        ("# x\n\ncontext_tokens = 'many'\n", 3, "is not a whole number"),
        ("context_tokens = 5\n", 1, "out of range"),
        ("skip_tools = 'Bash'\n", 1, "is not a list of texts"),
        ("redact_secrets = 1\n", 1, "is not true or false"),
        ("worker_port = true\n", 1, "is not a whole number"),
        ("log_level = 'LOUD'\n", 1, "is not known"),
        ("wings = 2\n", 1, "there is no setting `wings`"),
    ],
)
def test_a_bad_value_names_the_file_and_the_line_and_falls_back(lab: Lab, text: str, line: int, complaint: str) -> None:
    _file(lab, text)
    env = {"CLAUDE_MEM_DATA_DIR": str(lab.data)}
    with pytest.raises(BadSetting) as caught:
        config.load(env)
    assert f"config.toml, line {line}" in str(caught.value)
    assert complaint in str(caught.value)
    assert caught.value.hint
    assert config.load_forgiving(env).config == config.Config(data_dir=lab.data)


def test_a_file_that_is_not_toml_is_named(lab: Lab) -> None:
    _file(lab, "context_tokens = = 3")
    with pytest.raises(BadSetting, match=r"config.toml: .*line 1"):
        config.load({"CLAUDE_MEM_DATA_DIR": str(lab.data)})


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(BadSetting, match="CLAUDE_MEM_WORKER_PORT"):
        config.load({"CLAUDE_MEM_DATA_DIR": "/x", "CLAUDE_MEM_WORKER_PORT": "http"})


def test_the_config_command_shows_value_source_and_reason(lab: Lab) -> None:
    rows = [json.loads(line) for line in lab.mem("config", "--json").stdout.splitlines()]
    by_name = {row["name"]: row for row in rows}
    assert set(by_name) == set(config.names())
    assert by_name["worker_port"] == {
        "name": "worker_port",
        "value": "0",
        "source": "environment",
        "reason": config.reason("worker_port"),
    }
    assert all(row["reason"].endswith((".", "`.")) for row in rows)
    assert "context_tokens" in lab.mem("config").stdout


def test_a_bad_setting_stops_neither_the_hook_nor_the_worker(lab: Lab) -> None:
    _file(lab, "context_tokens = 'many'\n")
    assert lab.mem("config", ok=False).returncode == 2
    assert lab.hook("UserPromptSubmit", prompt="go", prompt_id="p1")["continue"] is True
    lab.wait_digested()
    assert lab.mem("start", ok=False).returncode == 2
    doctor = lab.mem("doctor", ok=False).stdout
    assert "config.toml, line 1" in doctor


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("provider = 'olama'", "provider", "local"),
        ("provider = ''", "provider", "local"),
        ("daily_tokens = 'many'", "daily_tokens", 0),
        ("monthly_cost = -1", "monthly_cost", 0.0),
    ],
)
def test_a_value_that_makes_no_sense_costs_nobody_anything(tmp_path: Path, text: str, name: str, value: object) -> None:
    (tmp_path / "config.toml").write_text(text + "\n")
    loaded = config.load_forgiving({"CLAUDE_MEM_DATA_DIR": str(tmp_path)})
    assert getattr(loaded.config, name) == value
    assert loaded.problems


def test_a_key_from_the_file_goes_to_no_address_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("anthropic_api_key = 'k'\n")
    env = {"CLAUDE_MEM_DATA_DIR": str(tmp_path), "CLAUDE_MEM_ANTHROPIC_BASE_URL": "https://elsewhere.example"}
    loaded = config.load_forgiving(env)
    assert loaded.config.anthropic_base_url == ""
    assert "in the same place" in loaded.problems[0].hint
    both = config.load_forgiving({**env, "CLAUDE_MEM_ANTHROPIC_API_KEY": "k"})
    assert both.config.anthropic_base_url == "https://elsewhere.example"
    assert both.problems == ()


@pytest.mark.parametrize(
    ("name", "value", "seen"),
    [
        ("openai_api_key", "sk-secret", "(set, not shown)"),
        ("openai_api_key", "file:~/key", '"file:~/key"'),
        ("openai_api_key", "", '""'),
        ("proxy", "http://me:hunter2@proxy:3128", '"http://…@proxy:3128"'),
        ("openai_base_url", "https://u:p@host/v1", '"https://…@host/v1"'),
    ],
)
def test_secrets_are_not_shown(tmp_path: Path, name: str, value: str, seen: str) -> None:
    env = {"CLAUDE_MEM_DATA_DIR": str(tmp_path), f"CLAUDE_MEM_{name.upper()}": value}
    assert config.shown(config.load(env), name) == seen


@pytest.mark.parametrize("value", ["ftp://x", "socks5://x:1", "me:pw@proxy", "http://"])
def test_an_address_is_one(tmp_path: Path, value: str) -> None:
    with pytest.raises(BadSetting, match="no address"):
        config.load({"CLAUDE_MEM_DATA_DIR": str(tmp_path), "CLAUDE_MEM_PROXY": value})
