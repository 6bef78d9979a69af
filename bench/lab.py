"""Where the measurements live: a throw-away folder, workers in it, and processes timed from outside.

Nothing here touches the data of whoever runs it: each home is a fresh folder, its worker listens on a free port, and
every process is ours to end. The benchmark makes itself the parent of orphans, so that a worker which a hook has
started can be waited for, and one that nobody ended is found and counted.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from claude_mem.client import Client
from claude_mem.domain.errors import ClaudeMemError
from claude_mem.system import process
from claude_mem.system.process import launcher_path

PYTHON = sys.executable
BARE = (PYTHON, "-I", "-S", "-c", "pass")

_START_SECONDS = 30.0
_PR_SET_CHILD_SUBREAPER = 36


class Broken(Exception):
    """What was to be measured did not happen: a figure would mean nothing."""


@dataclass(frozen=True, slots=True)
class Run:
    """One process, from the call that starts it to the moment its parent knows that it has ended."""

    wall_ms: float
    cpu_ms: float
    answer: bytes


def hook(data: Path, command: str) -> tuple[str, ...]:
    """What the installer tells an agent to run, the launcher included: whatever it becomes, that is measured."""
    return (str(launcher_path(data)), command, "claude")


def timed(argv: tuple[str, ...], env: dict[str, str], payload: bytes) -> Run:
    """Run it as a host would: payload in a pipe that is closed behind it, the answer from another."""
    stdin, stdout = _filled_pipe(payload), os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, stdout[1], 1)]
    begin = time.perf_counter_ns()
    pid = os.posix_spawn(argv[0], argv, env, file_actions=actions)
    _, status, used = os.wait4(pid, 0)
    wall_ms = (time.perf_counter_ns() - begin) / 1e6
    for fd in (stdin, stdout[1]):
        os.close(fd)
    answer = _rest(stdout[0])
    if status != 0:
        raise Broken(f"{argv[-1]}: ended with status {status}")
    return Run(wall_ms, (used.ru_utime + used.ru_stime) * 1e3, answer)


def spawn(argv: tuple[str, ...], env: dict[str, str], payload: bytes) -> int:
    """The same without waiting for it, and without its answer."""
    stdin = _filled_pipe(payload)
    actions = [(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    try:
        return os.posix_spawn(argv[0], argv, env, file_actions=actions)
    finally:
        os.close(stdin)


def _filled_pipe(payload: bytes) -> int:
    """A pipe, not a file: that is what a host gives, and it needs no disk. 64 KB fit in without a reader."""
    read, write = os.pipe()
    try:
        if os.write(write, payload) != len(payload):
            raise Broken("the payload does not fit in a pipe")
    finally:
        os.close(write)
    return read


def _rest(fd: int) -> bytes:
    """What was written to a pipe whose writers should all be gone. If one is not, a host would wait for it for ever."""
    os.set_blocking(fd, False)
    found = b""
    try:
        while chunk := os.read(fd, 1 << 16):
            found += chunk
    except BlockingIOError as error:
        raise Broken("a process that the hook left behind holds the host's pipe") from error
    finally:
        os.close(fd)
    return found


class Home:
    """A data directory, the project whose sessions it remembers, and at most one worker that we started."""

    def __init__(self, data: Path, project: Path, *, user: Path) -> None:
        self.data = data
        self.project = project
        self.pid = 0
        # Little more than the hook needs: what else is set on this machine must not change a figure.
        self.env = {
            "PATH": os.defpath,
            "HOME": str(user),
            "LANG": "C.UTF-8",
            "CLAUDE_PROJECT_DIR": str(project),
            "CLAUDE_MEM_DATA_DIR": str(data),
            "CLAUDE_MEM_WORKER_PORT": "0",
        }

    @property
    def spool(self) -> Path:
        return self.data / "spool"

    def start(self) -> None:
        """The worker, with the command line that the hook uses; returns when it answers."""
        argv = (PYTHON, "-E", "-P", "-m", "claude_mem", "serve")
        quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        self.pid = os.posix_spawn(PYTHON, argv, self.env, file_actions=quiet)
        wait_until(self.answers, _START_SECONDS, "the worker does not start")

    def answers(self) -> bool:
        worker = process.running_worker(self.data)
        if worker is None or worker.pid != self.pid:
            return False
        with contextlib.suppress(ClaudeMemError):
            return bool(Client(worker, seconds=1).get("/healthz"))
        return False

    def ask(self, path: str) -> Any:
        return Client.of(self.data, seconds=30).get(path)

    def digested(self) -> bool:
        """Nothing in the spool and no job left; a worker that is too busy to answer is not done."""
        with contextlib.suppress(ClaudeMemError):
            return not self.waiting() and self.ask("/api/stats")["database"]["jobs"] == 0
        return False

    def waiting(self) -> int:
        try:
            return sum(not entry.name.startswith(".") for entry in os.scandir(self.spool))
        except FileNotFoundError:
            return 0

    def hang(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)  # the signal is on its way only; now it has arrived

    def end(self, sign: int = signal.SIGKILL) -> None:
        if self.pid:
            end(self.pid, sign)
            self.pid = 0


class Lab:
    """The folder of one run. `left` are the processes that were still there when it was closed."""

    def __init__(self) -> None:
        self.left = 0

    def __enter__(self) -> Self:
        _adopt_orphans()
        self.root = Path(tempfile.mkdtemp(prefix="claude-mem-bench-"))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        found = children()
        self.left = len(found) if kind is None else 0
        for pid in found:
            end(pid)
        shutil.rmtree(self.root, ignore_errors=True)

    def home(self, name: str) -> Home:
        return Home(self.root / "data" / name, self.project("orders"), user=self._folder("user"))

    def copy(self, home: Home, name: str) -> Home:
        """The same memories in another data directory. Its worker must be gone."""
        other = self.home(name)
        shutil.copytree(home.data, other.data)
        return other

    def project(self, name: str) -> Path:
        """A folder that looks like a repository with a remote: finding that out is part of an event's cost."""
        folder = self._folder("projects", name)
        git = self._folder("projects", name, ".git")
        (git / "config").write_text(f'[remote "origin"]\n\turl = git@example.com:acme/{name}.git\n')
        return folder

    def _folder(self, *parts: str) -> Path:
        folder = self.root.joinpath(*parts)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _adopt_orphans() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def children() -> list[int]:
    """Our own processes, and those that were left to us."""
    ours = str(os.getpid())
    found = []
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and _stat(int(entry.name))[1] == ours:
                found.append(int(entry.name))
    return found


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on; the second is a name that may contain anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu_seconds(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def end(pid: int, sign: int = signal.SIGKILL) -> None:
    """And wait: until a process is gone it may still use the processor."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, sign)
        os.waitpid(pid, 0)


def forget_start(home: Home) -> None:
    """Without the stamp of the last attempt, the hook really starts a worker."""
    (home.data / "worker.starting").unlink(missing_ok=True)


def end_started(_: Home) -> None:
    """The worker that a hook has started and left to us: at once, so that it takes no time from later samples."""
    started = [pid for pid in children() if os.getsid(pid) == pid]  # what we start ourselves stays in our session
    if len(started) != 1:
        raise Broken(f"the hook should have started one worker, not {len(started)}")
    end(started[0])


def wait_until(fact: Callable[[], object], seconds: float, otherwise: str, *, every: float = 0.02) -> None:
    deadline = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > deadline:
            raise Broken(otherwise)
        time.sleep(every)
