"""The command line in a process of its own, without waiting for Python to start.

One process has imported everything and does nothing else; for each command it forks. What runs is a real process
with its own environment, output and exit code, and it dies of a real signal; only the third of a second that imports
take is saved, and the suite runs a thousand commands. Commands may run side by side.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support import waiting


@dataclass
class Running:
    """A command that goes on; `os.kill(running.pid, …)` ends it."""

    pid: int
    line: socket.socket
    code: int | None = None

    def wait(self) -> int:
        """Its exit code, negative if a signal ended it."""
        if self.code is None:
            with self.line:
                self.code = int(_all(self.line))
        return self.code

    def ended(self) -> bool:
        """Has it ended, whether or not anybody has waited for it?"""
        return self.code is not None or bool(select.select([self.line], [], [], 0)[0])

    def kill(self) -> None:
        """End it by force, if it has not ended by itself."""
        self._send(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end, if it has not ended by itself."""
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        if not self.ended():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def run(
    arguments: Sequence[str], env: Mapping[str, str], *, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Like `subprocess.run` of the `claude-mem` command, with nothing on stdin and its output captured."""
    with tempfile.TemporaryDirectory() as folder:
        command = start(arguments, env, Path(folder), cwd=cwd)
        try:
            code = command.wait()
        except BaseException:  # it took too long, or the test was ended
            os.kill(command.pid, signal.SIGKILL)
            raise
        out, err = ((Path(folder) / name).read_text("utf-8") for name in ("stdout", "stderr"))
    return subprocess.CompletedProcess(list(arguments), code, out, err)


def start(
    arguments: Sequence[str], env: Mapping[str, str], folder: Path, *, cwd: Path | None = None, change: str = ""
) -> Running:
    """Its output goes to the files `stdout` and `stderr` in the folder. `change` is code that is run first: it may break
    or hold up what the command is going to use."""
    place = str(cwd or Path.cwd())
    wanted = {"arguments": list(arguments), "env": dict(env), "cwd": place, "folder": str(folder), "change": change}
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(waiting.SECONDS)
    line.connect(_address())
    line.sendall(json.dumps(wanted).encode())
    line.shutdown(socket.SHUT_WR)
    return Running(int(line.recv(16)), line)


def _all(line: socket.socket) -> bytes:
    return b"".join(iter(lambda: line.recv(65536), b""))


@cache
def _address() -> str:
    """Started by the first who asks; ends with this process, whose end of the pipe it watches."""
    folder = tempfile.mkdtemp(prefix="forks-")
    address = f"{folder}/line"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    theirs, ours = os.pipe()
    words = [sys.executable, "-m", "tests.support.forks", str(listener.fileno()), str(theirs)]
    root, env = Path(__file__).parents[2], {"PATH": os.environ["PATH"]}  # no test's environment: it outlives them
    process = subprocess.Popen(words, pass_fds=(listener.fileno(), theirs), cwd=root, env=env)
    os.close(theirs)
    listener.close()

    def end() -> None:
        os.close(ours)
        process.wait(10)
        Path(address).unlink()
        Path(folder).rmdir()

    atexit.register(end)
    return address


# --- the other side --------------------------------------------------------------------------------------------------


def _serve(listener: socket.socket, alive: int) -> None:
    """Start a command for each line, and say on its line how it ended, until the other end of `alive` is closed."""
    running: dict[int, socket.socket] = {}
    died, bell = os.pipe()
    for end in (died, bell):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(bell)
    while True:
        ready, _, _ = select.select([listener.fileno(), alive, died], [], [])
        if alive in ready:
            _end(running)
            return
        if died in ready:
            os.read(died, 4096)
            _report(running)
        if listener.fileno() in ready:
            line, _ = listener.accept()
            wanted = json.loads(_all(line))
            if (child := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.closerange(3, max(alive, bell, died, line.fileno(), listener.fileno(), *_numbers(running)) + 1)
                _become(wanted)
            line.sendall(f"{child:<16}".encode())
            running[child] = line


def _end(running: Mapping[int, socket.socket]) -> None:
    """Nobody is left who could end them: the tests' own process was killed."""
    for pid in running:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _numbers(running: Mapping[int, socket.socket]) -> list[int]:
    return [line.fileno() for line in running.values()]


def _report(running: dict[int, socket.socket]) -> None:
    """How those ended that have ended."""
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with running.pop(pid) as line, suppress(OSError):  # whoever asked need not wait for it
                line.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def _become(wanted: dict[str, Any]) -> None:
    """Be the command: as if Python had just been started with these words, in this place."""
    from claude_mem.system import failpoints

    code = 1
    try:
        os.setsid()
        os.environ.clear()
        os.environ.update(wanted["env"])
        time.tzset()
        os.chdir(wanted["cwd"])
        for fd, name in ((0, os.devnull), (1, f"{wanted['folder']}/stdout"), (2, f"{wanted['folder']}/stderr")):
            opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(opened, fd)
            os.close(opened)
        failpoints.arm(os.environ.get("CLAUDE_MEM_FAILPOINT", ""))
        exec(wanted["change"], {})
        code = _command(["claude-mem", *wanted["arguments"]])
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # closed by the command, as for a broken pipe
                stream.flush()
        os._exit(code)


def _command(argv: list[str]) -> int:
    import traceback

    from claude_mem import __main__ as entrance

    sys.argv = argv
    try:
        entrance.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _imported() -> None:
    """What commands import when they need it; nothing that starts a thread."""
    import mcp.server.lowlevel
    import rich.table
    import uvicorn.protocols.http.httptools_impl

    import claude_mem.cli.main
    import claude_mem.worker.serve

    waiting.raise_limits()
    claude_mem.cli.main.build_parser = cache(claude_mem.cli.main.build_parser)  # a quarter of a short command's time
    claude_mem.cli.main.build_parser()
    assert mcp.server.lowlevel
    assert rich.table
    assert uvicorn.protocols.http.httptools_impl
    assert claude_mem.worker.serve


if __name__ == "__main__":
    _imported()
    _serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
