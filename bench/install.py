"""Measure an installation: how long it takes, and how much disk space it needs.

    python bench/install.py [--out FOLDER]

A new virtual environment, the wheel of this tree and its default dependencies from the registry, a home with Claude Code
in use; then `claude-mem install --yes`, twice, and `uninstall`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import figures
from figures import Figure, at_most

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).with_name("results")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure an installation from nothing.")
    parser.add_argument("--out", type=Path, default=RESULTS, help="write the results there")
    options = parser.parse_args()
    setting = figures.setting(options.out.absolute())
    with tempfile.TemporaryDirectory(prefix="install-") as folder:
        found = list(_measure(Path(folder)))
    print(figures.as_text(found))
    figures.write(options.out / "install", "Installation time and size", found, setting)
    return 1 if any(figure.missed for figure in found) else 0


def _measure(folder: Path) -> Iterator[Figure]:
    home, venv = folder / "home", folder / "venv"
    (home / ".claude").mkdir(parents=True)
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "CLAUDE_MEM_WORKER_PORT": "0"}
    _timed([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)])
    (wheel,) = folder.glob("*.whl")
    made = _timed([sys.executable, "-m", "venv", str(venv)])
    bare = _bytes(venv)
    fetched = _timed([str(venv / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", str(wheel)])
    mem = str(venv / "bin" / "claude-mem")
    connected = _timed([mem, "install", "--yes"], env)
    hooks = _timed([mem, "install", "--yes"], env)
    room = _bytes(venv) - bare + _bytes(home / ".claude-mem")
    gone = _timed([mem, "uninstall", "--yes", "--delete-data"], env)
    yield Figure("from nothing to connected", made + fetched + connected, "s", 1, at_most(60))
    yield Figure("of which the packages", made + fetched, "s", 1)
    yield Figure("of which agents connected and the worker started", connected, "s", 1, at_most(2))
    yield Figure("connecting again", hooks, "s", 1)
    yield Figure("uninstalling, with the worker stopped", gone, "s", 1)
    yield Figure("room for all defaults", room / 1e6, "MB", 1, at_most(250))
    yield Figure("of which ours", _bytes(next((venv / "lib").glob("*/site-packages/claude_mem"), venv)) / 1e6, "MB", 1)
    yield Figure("files left in the home", sum(path.is_file() for path in home.rglob("*")), "", 1, at_most(0))


def _timed(command: list[str], env: dict[str, str] | None = None) -> float:
    begin = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin


def _bytes(folder: Path) -> int:
    """As the disk counts it."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


if __name__ == "__main__":
    sys.exit(main())
