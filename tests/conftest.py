"""No test sees the developer's home, settings or memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from claude_mem.config import Config, load
from tests.support import kills, signals, waiting
from tests.support.lab import Lab

signals.give_back()
waiting.raise_limits()

# A busy machine is slow to make up inputs; that says nothing about what is tested with them.
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")


@pytest.fixture(autouse=True)
def _nobody_is_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("CLAUDE", "ANTHROPIC", "XDG_")):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CLAUDE_MEM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("CLAUDE_MEM_WORKER_PORT", "0")
    monkeypatch.setenv("TZ", "UTC")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.support.scheduling import Scheduling

    return Scheduling(config, log)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if line := kills.report(terminalreporter.stats):
        terminalreporter.write_line(line)


@pytest.fixture
def config() -> Config:
    return load()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A project folder, a data directory, and the real command line; nothing is left running."""
    lab = Lab(tmp_path)
    yield lab
    lab.close()
