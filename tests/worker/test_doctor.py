"""`claude-mem doctor` has three levels: ok, warn (it works, but needs attention) and bad."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from claude_mem.cli import doctor
from claude_mem.cli.doctor import Check
from tests.support.lab import Lab
from tests.support.waiting import wait_for
from tests.worker.test_hook import run


@pytest.fixture
def well(lab: Lab) -> Lab:
    """A data directory with nothing to complain about but the hooks, which each test sees to."""
    lab.mem("config", "set", "provider", "local")  # as the environment has it
    (lab.folder / "home" / ".claude").mkdir(parents=True)
    lab.mem("install", "--yes", "--host", "claude")
    return lab


def examine(lab: Lab, **env: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code and every check by its name, after seeing that both ways to print them agree."""
    done = lab.mem("doctor", "--json", ok=False, **env)
    checks = {check["name"]: check for check in map(json.loads, done.stdout.splitlines())}
    for check in checks.values():
        assert check["ok"] == (check["level"] != "bad")
        assert bool(check["hint"]) == (check["level"] != "ok"), check  # what is well needs no advice
    printed = lab.mem("doctor", ok=False, **env).stdout.splitlines()
    levels = {line[5:15].strip(): line[:4].strip().lower() for line in printed if not line.startswith(" ")}
    del levels["hook"], checks["hook"]  # how quick a hook is depends on who else uses the machine; it has its own test
    assert levels == {name: check["level"] for name, check in checks.items()}
    return done.returncode, checks


def test_all_is_well(well: Lab) -> None:
    code, checks = examine(well)
    assert code == 0
    assert {check["level"] for check in checks.values()} == {"ok"}


@pytest.mark.parametrize(("milliseconds", "level"), [(8.0, "ok"), (99.0, "ok"), (100.0, "warn"), (9_000.0, "warn")])
def test_a_slow_hook_is_a_warning_and_never_worse(
    monkeypatch: pytest.MonkeyPatch, milliseconds: float, level: str
) -> None:
    monkeypatch.setattr(doctor, "_time", lambda *_: milliseconds)
    check = doctor._latency()
    assert check.level == level
    assert bool(check.hint) == (level == "warn")


def test_hooks_that_are_not_trusted_yet_are_a_warning(well: Lab) -> None:
    codex = well.folder / "home" / ".codex"
    codex.mkdir()
    well.mem("install", "--yes", "--host", "codex")
    code, checks = examine(well)
    assert (code, checks["hooks"]["level"]) == (0, "warn")
    assert "Trust all and continue" in checks["hooks"]["found"]
    assert "Codex" in checks["hooks"]["hint"]
    settings = codex / "config.toml"
    trust = f'[hooks.state."{codex / "hooks.json"}:SessionStart:0:0"]\ntrusted_hash = "sha256:1"\n'
    settings.write_text(settings.read_text() + "\n" + trust if settings.exists() else trust)
    code, checks = examine(well)
    assert (code, checks["hooks"]["level"]) == (0, "ok")


def test_events_that_were_set_aside_are_a_warning_as_long_as_they_are_there(well: Lab) -> None:
    well.mem("stop")
    run(well, "save", b"no payload")
    (well.data / "worker.starting").unlink()
    well.start()
    wait_for(lambda: well.status()["set_aside"] == 1)
    code, checks = examine(well)
    assert (code, checks["set aside"]["level"]) == (0, "warn")
    for path in (well.data / "aside").iterdir():
        path.unlink()
    assert examine(well)[1]["set aside"]["level"] == "ok"


def test_another_port_than_the_one_that_is_set_is_a_warning(well: Lab) -> None:
    well.mem("stop")
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = str(stranger.getsockname()[1])
        well.mem("config", "set", "worker_port", port)
        well.mem("start", CLAUDE_MEM_WORKER_PORT=port)
        code, checks = examine(well, CLAUDE_MEM_WORKER_PORT=port)
    assert (code, checks["worker"]["level"]) == (0, "warn")
    assert port in checks["worker"]["hint"]


def test_a_stopped_worker_is_well(well: Lab) -> None:
    well.mem("stop")
    code, checks = examine(well)
    assert (code, checks["worker"]["level"]) == (0, "ok")


def test_what_is_bad_is_bad_whatever_else_is_only_a_warning(well: Lab) -> None:
    well.data.chmod(0o755)
    code, checks = examine(well)
    assert (code, checks["folder"]["level"]) == (1, "bad")


def test_a_failed_check_is_never_only_a_warning() -> None:
    assert Check("disk", False, "full", "make room", caveat=True).level == "bad"
