"""The command line in a process of its own, without waiting for Python to start.

One process has imported everything and does nothing else; for each command it forks. What runs is a real process
with its own environment, output and exit code, and it dies of a real signal; only the fifth of a second that imports
take is saved, and the suite runs a thousand commands. A second fork stands between the two, so that commands may run
side by side and each is waited for by its own parent.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

SECONDS = 60


def run(arguments: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Like `subprocess.run` of the `claude-mem` command, with nothing on stdin and its output captured."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = {"arguments": arguments, "env": dict(env), "cwd": str(Path.cwd()), "folder": folder}
        code = _ask(wanted)
        out, err = (_text(Path(folder) / name) for name in ("stdout", "stderr"))
    return subprocess.CompletedProcess(list(arguments), code, out, err)


def _text(path: Path) -> str:
    return io.TextIOWrapper(io.BytesIO(path.read_bytes()), "utf-8").read()


def _ask(wanted: dict[str, Any]) -> int:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(SECONDS)
        line.connect(_address())
        line.sendall(json.dumps(wanted).encode())
        line.shutdown(socket.SHUT_WR)
        return int(_all(line))


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
    words = [sys.executable, "-m", "tests.forks", str(listener.fileno()), str(theirs)]
    root, env = Path(__file__).parent.parent, {"PATH": os.environ["PATH"]}  # no test's environment: it outlives them
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
    while True:
        ready, _, _ = select.select([listener.fileno(), alive], [], [])
        if alive in ready:
            return
        line, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            os.close(alive)
            _attend(line)
        line.close()
        _reap()


def _reap() -> None:
    """Those that have answered and ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _attend(line: socket.socket) -> None:
    """Start the command, wait for its end, say how it ended."""
    wanted = json.loads(_all(line))
    child = os.fork()
    if child == 0:
        line.close()
        _become(wanted)
    _, status = os.waitpid(child, 0)
    line.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(wanted: dict[str, Any]) -> None:
    """Be the command: as if Python had just been started with these words, in this place."""
    from claude_mem import failpoints

    code = 1
    try:
        os.environ.clear()
        os.environ.update(wanted["env"])
        time.tzset()
        os.chdir(wanted["cwd"])
        for fd, name in ((0, os.devnull), (1, f"{wanted['folder']}/stdout"), (2, f"{wanted['folder']}/stderr")):
            opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(opened, fd)
            os.close(opened)
        failpoints.arm(os.environ.get("CLAUDE_MEM_FAILPOINT", ""))
        code = _command(["claude-mem", *wanted["arguments"]])
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                pass  # closed by the command, as for a broken pipe
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
    import claude_mem.cli.main
    import claude_mem.worker.service

    claude_mem.cli.main.build_parser()


if __name__ == "__main__":
    _imported()
    _serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
