"""What happens when one event is 50 MB: the hook's time and memory, the worker's answer and memory.

The hook is fed by a small process of its own: what the system tells of the largest memory of a child counts that of
whoever started it too.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from pathlib import Path

from figures import Figure, at_most, median
from lab import PYTHON, Broken, Home, Lab, hook, wait_until
from work import Session

from claude_mem import hook as ours
from claude_mem.client import Client
from claude_mem.system.spool import Spool

GIANT = 50 << 20
SAMPLES, QUICK_SAMPLES = 20, 3
HOOK_MS, HOOK_MB, RISE_MB = 250, 64, 100
FEED = """
import os, resource, sys, time
head, fill, size, argv = sys.argv[1].encode(), b"some text. " * 5957, int(sys.argv[2]), sys.argv[3:]
read, write = os.pipe()
actions = [(os.POSIX_SPAWN_DUP2, read, 0), (os.POSIX_SPAWN_CLOSE, write), (os.POSIX_SPAWN_OPEN, 1, os.devnull, 1, 0)]
begun = time.perf_counter()
pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=actions)
os.close(read)
os.write(write, head)
sent = 0
while sent < size:
    sent += os.write(write, fill)
os.write(write, b'"}')
os.close(write)
_, status = os.waitpid(pid, 0)
print(status, (time.perf_counter() - begun) * 1000, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
"""


def measure(lab: Lab, *, quick: bool) -> list[Figure]:
    home = lab.home("giant")
    home.start()
    try:
        found = _hook(home, QUICK_SAMPLES if quick else SAMPLES)
        return found + _worker(home)
    finally:
        home.end()


# --- the hook --------------------------------------------------------------------------------------------------------


def _hook(home: Home, count: int) -> list[Figure]:
    head = json.dumps({"session_id": "giant", "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {}})
    runs = [_fed(home, head[:-1] + ', "tool_response": "') for _ in range(count)]
    wait_until(home.digested, 60, "the giants are never taken in", every=0.05)
    totals = home.ask("/api/stats")["events"]
    return [
        Figure("50 MB for a hook: p50", median([wall for wall, _ in runs]), "ms", count),
        Figure("50 MB for a hook: longest", max(wall for wall, _ in runs), "ms", count, at_most(HOOK_MS)),
        Figure("50 MB for a hook: resident at most", max(size for _, size in runs), "MB", count, at_most(HOOK_MB)),
        Figure("50 MB for a hook: not counted", count - totals["set_aside"], "", count, at_most(0)),
    ]


def _fed(home: Home, head: str) -> tuple[float, float]:
    argv = [PYTHON, "-I", "-S", "-c", FEED, head, str(GIANT), *hook(home.data, "save")]
    done = subprocess.run(argv, env=home.env, capture_output=True, text=True, check=True, timeout=60)
    status, wall, size = map(float, done.stdout.split())
    if status:
        raise Broken(f"the hook ended with status {status:g}")
    return wall, size


# --- the worker ------------------------------------------------------------------------------------------------------


def _worker(home: Home) -> list[Figure]:
    Client.of(home.data).get("/api/search", query="some text")  # whatever it opens at a first question
    before = _resident(home, "VmRSS")
    status = _post(home, GIANT)
    for seed, output in enumerate((_text(), _lines())):
        _take_in(home, output, seed=seed)
    rise = _resident(home, "VmHWM") - before
    return [
        Figure("50 MB for the worker: other answers than 413", int(status != 413), "", 1, at_most(0)),
        Figure("50 MB for the worker, and two events of 8 MB: memory's rise", rise, "MB", 1, at_most(RISE_MB)),
    ]


def _post(home: Home, size: int) -> int:
    """The status. It may come, and the line be closed, before everything is sent."""
    worker = Client.of(home.data).worker
    connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=60)
    connection.putrequest("POST", "/api/sessions/observations")
    connection.putheader("Authorization", f"Bearer {worker.token}")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(size))
    connection.endheaders()
    try:
        for _ in range(size >> 20):
            connection.send(b" " * (1 << 20))
    except OSError:
        pass
    try:
        return connection.getresponse().status
    finally:
        connection.close()


def _text() -> object:
    return "some text. " * ((ours.MAX_PAYLOAD_BYTES - 4096) // 11)


def _lines() -> object:
    """As many of them as a list of all files may have."""
    return {"filenames": [f"src/package/module_{number:06d}.py" for number in range(200_000)]}


def _take_in(home: Home, output: object, *, seed: int) -> None:
    session = Session(home.project, home.data / "none", seed=seed)
    fields = json.loads(session.tool("Bash").payload)
    stored = home.ask("/api/stats")["events"]["stored"]
    Spool(home.spool, home.data / "aside").put(
        {"command": "save", "host": "claude"}, json.dumps({**fields, "tool_response": output}).encode()
    )
    ours.wake_or_start_worker(str(home.data))
    wait_until(home.digested, 60, "a large event is never taken in", every=0.05)
    if home.ask("/api/stats")["events"]["stored"] != stored + 1:
        raise Broken("a large event was not stored")
    time.sleep(0.5)  # it is still put into the index


def _resident(home: Home, name: str) -> float:
    lines = Path(f"/proc/{home.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))
