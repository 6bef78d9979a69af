"""A throw-away place with the real parts in it: the hook, the spool, the worker, the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw

from claude_mem import hook
from claude_mem.client import Client
from claude_mem.domain.errors import ClaudeMemError
from claude_mem.system import process
from tests.support import forks, patient_bridge, patient_hook, waiting
from tests.support.waiting import wait_for

# What agents run, with the limits that people have; and the same hook with time enough for a busy machine.
LAUNCH = [sys.executable, "-I", "-S", str(Path(hook.__file__).with_name("launch.py"))]
HOOK = [*LAUNCH[:-1], str(Path(patient_hook.__file__))]
BRIDGE = [*LAUNCH[:-1], str(Path(patient_bridge.__file__))]
MEM = [sys.executable, "-m", "claude_mem"]
COMMANDS = {
    "SessionStart": "context",
    "UserPromptSubmit": "new",
    "PostToolUse": "save",
    "PostToolUseFailure": "fail",
    "PreToolUse": "file",
    "PermissionRequest": "file",
    "Stop": "summary",
    "SubagentStop": "summary",
    "PreCompact": "compact",
    "SessionEnd": "cleanup",
}


class Lab:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.project = folder / "shop"
        self.project.mkdir(exist_ok=True)
        (self.project / ".git").mkdir(exist_ok=True)
        self.workers: list[forks.Running] = []
        # A busy machine may take longer over an answer before a command than an agent should wait.
        self.change = f"from claude_mem.inject import service; service.COMMAND_SECONDS = {waiting.SECONDS}"

    def env(self, **more: str) -> dict[str, str]:
        base = {"PATH": os.environ["PATH"], "HOME": str(self.folder / "home"), "TZ": "UTC"}
        own = {"CLAUDE_MEM_DATA_DIR": str(self.data), "CLAUDE_MEM_WORKER_PORT": "0", "CLAUDE_MEM_PROVIDER": "local"}
        return {**base, **own, "CLAUDE_PROJECT_DIR": str(self.project), **more}

    # --- sending ---------------------------------------------------------------------------------------------------

    def hook(self, event: str, /, *, env: Any = None, program: Any = None, **fields: Any) -> Any:
        """Run the real hook as the agent does; its answer, or None if it was killed. It has time to spare unless the
        `program` is `LAUNCH`, which gives up on a hung worker as early as users expect."""
        payload = {"session_id": "s1", "hook_event_name": event, "cwd": str(self.project), **fields}
        done = subprocess.run(
            [*(program or HOOK), COMMANDS[event]],
            input=json.dumps(payload).encode(),
            env=self.env(**(env or {})),
            capture_output=True,
            timeout=waiting.SECONDS,
            check=False,
        )
        if done.returncode < 0:
            return None
        assert done.returncode == 0
        assert done.stderr == b""
        return json.loads(done.stdout)

    def spool(self, event: str, /, *, at: Any = None, header: Any = "", **fields: Any) -> str:
        """What the hook would have written, without starting a process for it. `at` in milliseconds."""
        payload = {"session_id": "s1", "hook_event_name": event, "cwd": str(self.project), **fields}
        lines = f"command {COMMANDS[event]}\nhost claude\nproject_dir {self.project}\n{header}"
        return self.raw_spool(lines.encode() + b"\n" + json.dumps(payload).encode(), at=at)

    def raw_spool(self, content: bytes, *, at: int | None = None) -> str:
        folder = self.data / "spool"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        stamp = time.time_ns() if at is None else at * 1_000_000
        name = f"{stamp:016x}-{os.urandom(4).hex()}"
        (folder / name).write_bytes(content)
        return name

    def no_worker(self) -> None:
        """Keep hooks from starting one."""
        self.data.mkdir(exist_ok=True, mode=0o700)
        (self.data / "worker.starting").touch()

    # --- running ---------------------------------------------------------------------------------------------------

    def mem(self, *arguments: str, ok: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        done = self._fresh(arguments, env) if "PYTHONPATH" in env else forks.run(arguments, self.env(**env))
        if ok:
            assert done.returncode == 0, done.stderr + done.stdout
        return done

    def _fresh(self, arguments: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """In a Python that has only just been started, for what Python itself reads when it starts."""
        given = {"env": self.env(**env), "stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        return subprocess.run([*MEM, *arguments], timeout=waiting.SECONDS, check=False, **given)  # type: ignore[call-overload,no-any-return]

    def drain(self, **env: str) -> int:
        """Work off what waits, in a process of its own; its exit code."""
        return self.mem("drain", ok=False, **env).returncode

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.mem("status", "--json").stdout)
        assert found["captured"] == found["stored"] + found["queued"] + found["set_aside"] + found["filtered"], found
        return found

    def start(self, **env: str) -> Client:
        """A worker, and its client. `claude-mem start` has tests of its own and takes a second more."""
        if process.running_worker(self.data) is None:
            self._serve(env)
        return Client.of(self.data)

    def _serve(self, env: Mapping[str, str]) -> None:
        folder = Path(tempfile.mkdtemp(dir=self.folder, prefix="worker-"))
        worker = forks.start(["serve"], self.env(**env), folder, change=self.change)
        self.workers.append(worker)
        wait_for(lambda: process.running_worker(self.data), (folder / "stderr").read_text, step=0.005)

    def client(self) -> Client:
        return Client.of(self.data)

    def wait_digested(self) -> dict[str, Any]:
        """Wait until nothing is queued any more; return the status."""
        return wait_for(self._digested, lambda: f"still queued: {self.status()}", step=0.02)

    def _digested(self) -> dict[str, Any]:
        """The status, or nothing while there is work to do. A worker that listens is asked directly at first: a command for
        each look would only keep the machine busy."""
        worker = process.running_worker(self.data)
        if worker is not None and not _is_idle(_health(worker)):
            return {}
        found = self.status()
        return found if _is_idle(found) else {}

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Straight from the database; only while no worker runs."""
        assert process.lock_holder(self.data) is None
        conn = apsw.Connection(str(self.data / "claude-mem.db"), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return list(conn.execute(sql, values))
        finally:
            conn.close()

    def close(self) -> None:
        """Stop the worker, also one that a hook has only just started. Nothing may be left running, and nothing is."""
        try:
            wait_for(self._stopped, lambda: f"still running: {self.processes()}", step=0.02)
        finally:
            self._kill()

    def _stopped(self) -> bool:
        process.stop_worker(self.data)
        return not self.processes() and process.lock_holder(self.data) is None

    def _kill(self) -> None:
        """End what a failed test has left, by force."""
        for pid in map(int, self.processes()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while self.workers:
            worker = self.workers.pop()
            worker.kill()
            worker.wait()

    def processes(self) -> list[str]:
        mark = os.fsencode(f"CLAUDE_MEM_DATA_DIR={self.data}\0")
        return [folder.name for folder in Path("/proc").glob("[0-9]*") if mark in _environment(folder)]


def _environment(folder: Path) -> bytes:
    try:
        return (folder / "environ").read_bytes() + b"\0"
    except OSError:
        return b""  # it has ended, or is not ours


def _is_idle(totals: Mapping[str, Any]) -> bool:
    return bool(totals and totals["captured"] and not totals["queued"])


def _health(worker: process.WorkerInfo) -> dict[str, Any]:
    try:
        found: dict[str, Any] = Client(worker).get("/api/health")
    except ClaudeMemError:
        return {}  # it is just ending
    return found
