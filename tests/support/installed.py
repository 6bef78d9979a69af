"""An installation of its own: an interpreter with a copy of the package that a test may change, as an upgrade does."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import claude_mem
from claude_mem.system import process
from tests.support.lab import COMMANDS, Lab

SOURCE = Path(claude_mem.__file__).parent


class Installation:
    """A virtual environment. What the package needs is borrowed from the environment that runs the tests."""

    def __init__(self, folder: Path, lab: Lab) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.python = folder / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.packages = folder / "lib" / version / "site-packages"
        (self.packages / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        self.package = self.packages / "claude_mem"
        self.lab = lab
        shutil.copytree(SOURCE, self.package)

    def set_version(self, version: str) -> None:
        """Write the version as the last step of an upgrade would, all at once."""
        path = self.package / "__init__.py"
        text = re.sub(r'__version__ = ".*"', f'__version__ = "{version}"', (SOURCE / "__init__.py").read_text())
        temp = path.with_suffix(".new")
        temp.write_text(text)
        temp.rename(path)

    def forget_upgrades(self) -> None:
        """Make it a version that knows nothing of upgrades, as 0.1.0 was."""
        self.change("worker/serve.py", "await self.upgrade_watcher.is_complete()", "False")
        self.change("worker/http/routes/status.py", "hook.installed_version()", "__version__")

    def change(self, name: str, old: str, new: str) -> None:
        path = self.package / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def restore(self) -> None:
        """The files as they are in the source, the version included."""
        shutil.copytree(SOURCE, self.package, dirs_exist_ok=True)

    def mem(self, *arguments: str, ok: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self.python, "-m", "claude_mem", *arguments],
            env=self.lab.env(**env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert not ok or done.returncode == 0, done.stdout + done.stderr
        return done

    def hook(self, event: str, /, *, host: str = "claude", **fields: Any) -> Any:
        """What an agent runs; its answer."""
        payload = {"session_id": "s1", "hook_event_name": event, "cwd": str(self.lab.project), **fields}
        done = subprocess.run(
            [process.launcher_path(self.lab.data), COMMANDS[event], host],
            input=json.dumps(payload).encode(),
            env=self.lab.env(),
            capture_output=True,
            timeout=20,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        return json.loads(done.stdout)

    def tell(self, number: int) -> None:
        """One event by a hook."""
        call: dict[str, Any] = {
            "tool_name": "Bash",
            "tool_input": {"command": f"make {number}"},
            "tool_use_id": f"call-{number}",
        }
        self.hook("PostToolUse", **call)
