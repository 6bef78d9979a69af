"""Settings: defaults, then the file, then the environment; and a clear word about what is wrong."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from claude_mem import bridge, config, hook
from claude_mem.domain.errors import InvalidSetting
from claude_mem.system import process
from tests.support.lab import MEM, Lab
from tests.support.waiting import SECONDS, wait_for


def _file(lab: Lab, text: str) -> None:
    lab.data.mkdir(exist_ok=True)
    (lab.data / "config.toml").write_text(text)


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(lab: Lab) -> None:
    _file(lab, "context_tokens = 700\nsilence_minutes = 5\n")
    env = {"HOME": "/nowhere", "CLAUDE_MEM_DATA_DIR": str(lab.data), "CLAUDE_MEM_SILENCE_MINUTES": "7"}
    loaded = config.load_lenient(env)
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
        ("skip_tools = 'Bash'\n", 1, "is not a list of strings"),
        ("redact_secrets = 1\n", 1, "is not true or false"),
        ("worker_port = true\n", 1, "is not a whole number"),
        ("log_level = 'LOUD'\n", 1, "is not a valid choice"),
        ("wings = 2\n", 1, "there is no setting `wings`"),
    ],
)
def test_a_bad_value_names_the_file_and_the_line_and_falls_back(lab: Lab, text: str, line: int, complaint: str) -> None:
    _file(lab, text)
    env = {"CLAUDE_MEM_DATA_DIR": str(lab.data)}
    with pytest.raises(InvalidSetting) as caught:
        config.load(env)
    assert f"config.toml, line {line}" in str(caught.value)
    assert complaint in str(caught.value)
    assert caught.value.hint
    assert config.load_lenient(env).config == config.Config(data_dir=lab.data)


def test_a_file_that_is_not_toml_is_named(lab: Lab) -> None:
    _file(lab, "context_tokens = = 3")
    with pytest.raises(InvalidSetting, match=r"config.toml: .*line 1"):
        config.load({"CLAUDE_MEM_DATA_DIR": str(lab.data)})


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(InvalidSetting, match="CLAUDE_MEM_WORKER_PORT"):
        config.load({"CLAUDE_MEM_DATA_DIR": "/x", "CLAUDE_MEM_WORKER_PORT": "http"})


def test_the_config_command_shows_value_source_and_reason(lab: Lab) -> None:
    rows = [json.loads(line) for line in lab.mem("config", "--json").stdout.splitlines()]
    by_name = {row["name"]: row for row in rows}
    assert set(by_name) == set(config.list_setting_names())
    assert by_name["worker_port"] == {
        "name": "worker_port",
        "value": "0",
        "source": "environment",
        "reason": config.setting_description("worker_port"),
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
    loaded = config.load_lenient({"CLAUDE_MEM_DATA_DIR": str(tmp_path)})
    assert getattr(loaded.config, name) == value
    assert loaded.problems


def test_a_key_from_the_file_goes_to_no_address_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("anthropic_api_key = 'k'\n")
    env = {"CLAUDE_MEM_DATA_DIR": str(tmp_path), "CLAUDE_MEM_ANTHROPIC_BASE_URL": "https://elsewhere.example"}
    loaded = config.load_lenient(env)
    assert loaded.config.anthropic_base_url == ""
    assert "in the same place" in loaded.problems[0].hint
    both = config.load_lenient({**env, "CLAUDE_MEM_ANTHROPIC_API_KEY": "k"})
    assert both.config.anthropic_base_url == "https://elsewhere.example"
    assert both.problems == ()


@pytest.mark.parametrize(
    ("key", "taker"),
    [
        ("anthropic_api_key", "anthropic_base_url"),
        ("openai_api_key", "openai_base_url"),
        ("openrouter_api_key", "openai_base_url"),
        ("gemini_api_key", "openai_base_url"),
        ("anthropic_api_key", "proxy"),
        ("openai_api_key", "proxy"),
        ("openrouter_api_key", "proxy"),
        ("gemini_api_key", "proxy"),
        ("claude_env_file", "claude_path"),
    ],
)
def test_whoever_is_given_a_secret_of_the_file_is_named_there_too(tmp_path: Path, key: str, taker: str) -> None:
    env = {"CLAUDE_MEM_DATA_DIR": str(tmp_path), f"CLAUDE_MEM_{taker.upper()}": "http://elsewhere.example"}
    file = tmp_path / "config.toml"
    file.write_text(f"{key} = 'k'\n")
    loaded = config.load_lenient(env)
    assert (getattr(loaded.config, taker), loaded.sources[taker]) == ("", "default")
    assert [problem.name for problem in loaded.problems] == [taker]
    file.write_text(f"{key} = 'k'\n{taker} = 'http://mine.example'\n")
    for said in ("http://elsewhere.example", ""):  # nothing said would be the usual address
        loaded = config.load_lenient({**env, f"CLAUDE_MEM_{taker.upper()}": said})
        assert (getattr(loaded.config, taker), loaded.sources[taker]) == ("http://mine.example", str(file))


def test_every_secret_and_whom_it_is_given_to_is_known() -> None:
    """A new key, address or program belongs into `TAKES`."""
    secrets = {name for name in config.list_setting_names() if config.input_kind(name) == "secret"}
    assert {key for keys in config.SECRETS_BY_RECEIVER.values() for key in keys} == secrets | {"claude_env_file"}
    assert set(config.SECRETS_BY_RECEIVER) == {*config.URL_SETTINGS, "claude_path"}


def test_what_names_a_program_an_address_or_a_key_is_for_the_terminal_alone() -> None:
    """A browser changes none of them: the reasons are in `worker/http/routes/settings.py`."""
    powerful = {name for name in config.list_setting_names() if config.is_terminal_only(name)}
    assert powerful == {
        *config.SECRETS_BY_RECEIVER,
        *(key for keys in config.SECRETS_BY_RECEIVER.values() for key in keys),
        "provider",
        "claude_sdk",
    }


# --- a worker that a hook starts ---------------------------------------------------------------------------------------

# Where data goes, what is run, what it may cost, what is kept and what is kept safe. A new setting belongs either in here or,
# if no project could do harm with it, into `hook.HARMLESS`.
ONLY_FROM_THE_FILE = {
    "skip_tools": "Read",
    "excluded_projects": "/nothing/**",
    "redact_secrets": "false",
    "withheld_files": "!.env",
    "provider": "vllm:x",
    "model": "dear",
    "anthropic_base_url": "http://elsewhere.example",
    "anthropic_api_key": "k",
    "openai_base_url": "http://elsewhere.example",
    "openai_api_key": "k",
    "openrouter_api_key": "k",
    "gemini_api_key": "k",
    "claude_path": "/elsewhere/claude",
    "claude_env_file": "/elsewhere/env",
    "claude_sdk": "true",
    "claude_resume": "true",
    "proxy": "http://elsewhere.example",
    "daily_tokens": "9000000",
    "monthly_cost": "900",
    "request_tokens": "32000",
    "language": "Deutsch",
    "foreign_text": "open",
    "holdout": "0.5",
    "read_outlines": "true",
    "keep_events_days": "0",
    "keep_dead_days": "1",
    "keep_log_days": "1",
    "disk_quota_mb": "50",
}


def _variables() -> dict[str, str]:
    return {f"CLAUDE_MEM_{name.upper()}": value for name, value in ONLY_FROM_THE_FILE.items()}


def test_every_setting_is_either_harmless_or_for_the_file_alone() -> None:
    passed = {
        name for name in config.list_setting_names() if config.is_inherited_by_hook_worker(f"CLAUDE_MEM_{name.upper()}")
    }
    assert passed | set(ONLY_FROM_THE_FILE) == set(config.list_setting_names())
    assert passed & set(ONLY_FROM_THE_FILE) == set()
    assert len(hook.INHERITABLE_ENV) == len(passed)


def _starts_by(lab: Lab, way: str, env: Any) -> None:
    if way == "hook":
        lab.hook("UserPromptSubmit", prompt="go", env=env)
    elif way == "bridge":
        asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "nothing"}}) + "\n"
        program = [*process.PYTHON_COMMAND, str(Path(bridge.__file__)), str(lab.data)]
        subprocess.run(
            program, input=asked.encode(), env=lab.env(**env), timeout=SECONDS, check=True, capture_output=True
        )
    else:
        lab.mem(*way.split(), **env)


@pytest.mark.parametrize("way", ["hook", "bridge", "search basket"])
def test_a_worker_that_nobody_asked_for_goes_by_the_file(lab: Lab, way: str) -> None:
    """Whose environment it inherits is chance, and it then serves every project."""
    _file(lab, 'provider = "local"\nlanguage = "Suomi"\n')
    _starts_by(lab, way, {**_variables(), "CLAUDE_MEM_SESSION_HOURS": "48", "CLAUDE_MEM_MODEL": "x"})
    wait_for(lambda: process.running_worker(lab.data))
    found = lab.client().get("/api/settings")
    assert {name for name in ONLY_FROM_THE_FILE if found[name]["source"] == "environment"} == set()
    assert (found["provider"]["current"], found["language"]["current"]) == ("local", "Suomi")
    assert found["session_hours"]["current"] == 48


@pytest.mark.parametrize("way", ["start", "restart", "config set mode research"])
def test_a_worker_that_a_person_asked_for_has_the_whole_environment(lab: Lab, way: str) -> None:
    if way.startswith("config"):
        lab.start()  # else there is none to be started again
    _starts_by(lab, way, {"CLAUDE_MEM_LANGUAGE": "Deutsch"})
    found = lab.client().get("/api/settings")
    assert found["language"]["current"] == "Deutsch"


def test_doctor_says_what_only_this_environment_knows(lab: Lab) -> None:
    _file(lab, 'provider = "local"\ndaily_tokens = 9000000\nlanguage = "Suomi"\n')
    env = {"CLAUDE_MEM_LANGUAGE": "Deutsch", "CLAUDE_MEM_OPENAI_API_KEY": "not-to-be-shown"}
    env |= {
        "CLAUDE_MEM_DAILY_TOKENS": "9000000",
        "CLAUDE_MEM_SESSION_HOURS": "48",
    }  # the file's word, and a harmless one
    rows = [json.loads(line) for line in lab.mem("doctor", "--json", ok=False, **env).stdout.splitlines()]
    bad = [row for row in rows if row["name"] == "settings" and not row["ok"]]
    assert [row["found"].partition(" ")[0] for row in bad] == ["CLAUDE_MEM_OPENAI_API_KEY", "CLAUDE_MEM_LANGUAGE"]
    assert "`printenv CLAUDE_MEM_LANGUAGE | claude-mem config set language -`" in bad[1]["hint"]
    assert "not-to-be-shown" not in json.dumps(rows)
    done = subprocess.run([*MEM, "config", "set", "language", "-"], input=b"Deutsch\n", env=lab.env(), check=True)
    assert done.returncode == 0
    assert config.settings_not_inherited(lab.env(CLAUDE_MEM_LANGUAGE="Deutsch")) == []


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
    assert config.masked_toml(config.load(env), name) == seen


@pytest.mark.parametrize("value", ["ftp://x", "socks5://x:1", "me:pw@proxy", "http://"])
def test_an_address_is_one(tmp_path: Path, value: str) -> None:
    with pytest.raises(InvalidSetting, match="not a valid URL"):
        config.load({"CLAUDE_MEM_DATA_DIR": str(tmp_path), "CLAUDE_MEM_PROXY": value})
