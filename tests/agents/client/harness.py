"""A laboratory for the real client: its own home, repository, worker and model, and nothing of ours shared.

Every program started here gets an environment written from scratch, so that neither the developer's
settings nor a real key can slip in, and every one of them can be found again by that environment: `close`
fails when anything is still running.
"""

import http.client
import json
import os
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claude_mem.agents.claude import TIMEOUT_SECONDS
from claude_mem.system import process
from tests.support import forks
from tests.support.lab import HOOK
from tests.support.waiting import SECONDS, wait_for

from .model_server import Json, ModelServer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
VERSION = (HERE / "version.txt").read_text().strip()
STREAM_FLAGS = ["--output-format", "stream-json", "--verbose", "--include-hook-events"]


def find_client() -> tuple[Path | None, str]:
    """The pinned client, or the reason why there is none to test with."""
    named = os.environ.get("CLAUDE_MEM_TEST_CLAUDE")
    if named:
        path = Path(named)
        return (path, "") if path.is_file() else (None, f"CLAUDE_MEM_TEST_CLAUDE={named} does not exist")
    folder = ROOT / "build" / "claude-code" / "node_modules" / "@anthropic-ai"
    found = sorted(folder.glob("claude-code-*/claude"))
    if found:
        return found[0], ""
    return None, f"no Claude Code {VERSION} under {folder}: run `make client` to fetch it"


def client_version(binary: Path) -> str:
    """The version the binary reports: another one may well behave differently."""
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    out = subprocess.run([binary, "--version"], env=env, capture_output=True, text=True, timeout=SECONDS, check=True)
    return out.stdout.split()[0]


def _good(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """What it printed; a failure is told with all it said."""
    if done.returncode:
        raise RuntimeError(f"{' '.join(done.args)} -> {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass(frozen=True, slots=True)
class HookRun:
    """One run of a hook, as the client judged it."""

    name: str
    outcome: str
    exit_code: int | None
    stdout: str
    stderr: str

    @property
    def event(self) -> str:
        return self.name.partition(":")[0]

    @property
    def answer(self) -> Json:
        """The hook's answer; nothing at all is a valid one."""
        value = json.loads(self.stdout) if self.stdout.strip() else {}
        assert isinstance(value, dict), self.stdout
        return value


def hook_run(event: Json) -> HookRun:
    """A hook's run from the line the client prints about it."""
    said = [event.get(stream, "") for stream in ("stdout", "stderr")]
    return HookRun(event["hook_name"], event["outcome"], event.get("exit_code"), *said)


@dataclass(frozen=True, slots=True)
class Run:
    """What the client printed in one life, parsed."""

    events: list[Json]
    stderr: str
    returncode: int
    seconds: float

    def of(self, kind: str, subtype: str | None = None) -> list[Json]:
        return [e for e in self.events if e.get("type") == kind and subtype in (None, e.get("subtype"))]

    @property
    def sessions(self) -> list[str]:
        """The session ids it worked under, in order; `/clear` makes a second one."""
        return list(dict.fromkeys(e["session_id"] for e in self.of("system", "init")))

    @property
    def session(self) -> str:
        return self.sessions[0]

    @property
    def results(self) -> list[Json]:
        return self.of("result")

    @property
    def hooks(self) -> list[HookRun]:
        """Every hook but SessionEnd's: the client reports nothing after its result."""
        return [hook_run(event) for event in self.of("system", "hook_response")]

    def hooks_of(self, event: str) -> list[HookRun]:
        return [hook for hook in self.hooks if hook.event == event]


class Client:
    """A running client, read as it speaks."""

    def __init__(self, command: list[str], *, env: Mapping[str, str], cwd: Path, errors: Path) -> None:
        self.errors = errors
        self.events: list[Json] = []
        self.started = time.monotonic()
        with errors.open("wb") as sink:
            self.process = subprocess.Popen(
                command,
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                start_new_session=True,
                text=True,
            )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))

    def say(self, prompt: str) -> None:
        """Send a prompt to a client that takes them as a stream."""
        assert self.process.stdin is not None
        turn = {"type": "user", "message": {"role": "user", "content": prompt}}
        self.process.stdin.write(json.dumps(turn) + "\n")
        self.process.stdin.flush()

    def hang_up(self) -> None:
        """No more prompts will come."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait_results(self, count: int) -> None:
        """Until the client has finished this many turns."""

        def done() -> bool:
            return [event.get("type") for event in list(self.events)].count("result") >= count

        wait_for(done, f"the client has not finished turn {count}")

    def kill(self) -> Run:
        """End it as a crash or the kernel would: no signal handler, no SessionEnd."""
        self.process.kill()
        return self.finish()

    def finish(self) -> Run:
        """Wait for the end; a client that does not end is killed and the test fails."""
        try:
            self.process.wait(SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            self.reader.join(SECONDS)
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe and not pipe.closed:
                    pipe.close()
        took = time.monotonic() - self.started
        return Run(self.events, self.errors.read_text(), self.process.returncode, took)


@dataclass
class Lab:
    """One isolated installation. Make it with `open_lab`, which also closes it."""

    root: Path
    server: ModelServer
    binary: Path
    port: int = field(default_factory=free_port)
    clients: list[Client] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def settings(self) -> Path:
        return self.home / ".claude" / "settings.json"

    @property
    def hooks_file(self) -> Path:
        """Where the agent reads which hooks to run."""
        return self.settings

    @property
    def hung(self) -> Path:
        """Is there while a worker hangs on purpose."""
        return self.root / "hung"

    @property
    def env(self) -> dict[str, str]:
        """The whole environment of everything that runs here; nothing is inherited."""
        return {
            "HOME": str(self.home),
            "PATH": f"{Path(shutil.which('git') or '/usr/bin/git').parent}:/usr/bin:/bin",
            "ANTHROPIC_BASE_URL": self.server.url,
            "ANTHROPIC_API_KEY": "dummy-key",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
            "CLAUDE_MEM_DATA_DIR": str(self.data),
            "CLAUDE_MEM_WORKER_PORT": str(self.port),
        }

    def prepare(self) -> None:
        """Home, and a repository with one commit."""
        for folder in (self.home, self.project):
            folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.name", "Lab")
        self.git("config", "user.email", "lab@example.invalid")
        (self.project / "README.md").write_text("A project to work on.\n")
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", "Start")

    def git(self, *args: str) -> str:
        """Run git in the project."""
        return self.run(["git", *args]).stdout

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a program in the lab and fail loudly with what it said."""
        out = subprocess.run(
            command,
            env=self.env,
            cwd=self.project,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return _good(out)

    # --- the client -------------------------------------------------------------------------------

    def start_claude(self, prompt: str | None, *flags: str, env: Mapping[str, str] | None = None) -> Client:
        """Start the client with one prompt, or (None) with prompts to come as a stream."""
        given = [prompt] if prompt is not None else ["--input-format", "stream-json"]
        command = [str(self.binary), "-p", *given, "--dangerously-skip-permissions", *STREAM_FLAGS, *flags]
        errors = self.root / f"client-{len(self.clients)}.stderr"
        client = Client(command, env={**self.env, **(env or {})}, cwd=self.project, errors=errors)
        if prompt is not None:
            client.hang_up()
        self.clients.append(client)
        return client

    def claude(self, prompt: str, *flags: str, env: Mapping[str, str] | None = None) -> Run:
        """One prompt from start to end."""
        return self.start_claude(prompt, *flags, env=env).finish()

    def talk(self, *prompts: str, flags: tuple[str, ...] = ()) -> Run:
        """Several prompts in one life of the client, each after the answer to the one before."""
        client = self.start_claude(None, *flags)
        for count, prompt in enumerate(prompts, 1):
            client.say(prompt)
            client.wait_results(count)
        client.hang_up()
        return client.finish()

    def transcript(self, session: str) -> Path:
        """The client's own record of a session."""
        (path,) = (self.home / ".claude" / "projects").glob(f"*/{session}.jsonl")
        return path

    def drop_hooks(self, *events: str) -> None:
        """Take hooks out of the client's settings: the events a host failed to report."""
        settings = json.loads(self.settings.read_text())
        for event in events:
            del settings["hooks"][event]
        self.settings.write_text(json.dumps(settings))

    # --- claude-mem -------------------------------------------------------------------------------

    def mem(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a `claude-mem` command."""
        return _good(forks.run(args, self.env, cwd=self.project))

    def install(self, host: str) -> None:
        """Install claude-mem into the agent, and give its hooks time to spare as long as no worker hangs on purpose: the
        agent runs the same command with another folder before it, and `tests/support/patient_hook.py` in place of `launch.py`."""
        self.mem("install", "--yes", "--host", host)
        real, patient = self.data / process.LAUNCHER, self.root / "patient" / process.LAUNCHER
        script = f"""#!/bin/sh
test "$1" = mcp || test -e {shlex.quote(str(self.hung))} && exec {shlex.quote(str(real))} "$@"
exec {shlex.join(HOOK)} "$1" {shlex.quote(str(self.data))} "$2"
"""
        patient.parent.mkdir()
        patient.write_text(script)
        patient.chmod(0o700)
        text = self.hooks_file.read_text()
        assert str(real) in text
        text = text.replace(str(real), str(patient)).replace(f'"timeout": {TIMEOUT_SECONDS}', f'"timeout": {SECONDS:g}')
        self.hooks_file.write_text(text)

    def status(self) -> Json:
        value = json.loads(self.mem("status", "--json").stdout)
        assert isinstance(value, dict)
        return value

    def wait_digested(self) -> Json:
        """Until the worker has nothing left to do; the status it then reports."""
        return wait_for(self._digested, lambda: f"still queued: {self.status()}", step=0.05)

    def _digested(self) -> Json | None:
        status = self.status()
        return None if status["queued"] else status

    def worker(self) -> Json:
        """Where the worker is and how to be let in: pid, port, token."""
        value = json.loads((self.data / "worker.json").read_text())
        assert isinstance(value, dict)
        return value

    def wait_worker(self) -> None:
        """Until the worker that a hook started is there."""
        wait_for((self.data / "worker.json").exists, "no hook started a worker")

    def kill_worker(self) -> int:
        """End the worker as a crash would, and wait until it is gone."""
        pid = int(self.worker()["pid"])
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not alive(pid), f"worker {pid} survived SIGKILL")
        return pid

    @contextmanager
    def hung_worker(self) -> Iterator[None]:
        """A worker that is there, holds its lock and its port, and does not answer. The start context lies on the disk by
        then: a digested turn is counted as done a moment before its context is rendered."""
        wait_for(lambda: not self._rendering(), lambda: f"still rendering: {self.api('/api/queue')}", step=0.05)
        pid = int(self.worker()["pid"])
        self.hung.touch()
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)
            self.hung.unlink()

    def _rendering(self) -> bool:
        return any(job["kind"] == "render" for job in self.api("/api/queue")["jobs"])

    def api(self, path: str) -> Any:
        """GET from the worker, as the viewer and the command line do."""
        worker = self.worker()
        connection = http.client.HTTPConnection("127.0.0.1", worker["port"], timeout=SECONDS)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {worker['token']}"})
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        assert response.status == 200, f"GET {path} -> {response.status}: {body[:500]!r}"
        return json.loads(body)

    # --- the end ----------------------------------------------------------------------------------

    def closing_messages(self) -> list[str]:
        """The stored last message of each turn, oldest first; only looked at, the worker has the database."""
        with closing(sqlite3.connect(f"file:{self.data / 'claude-mem.db'}?mode=ro", uri=True)) as conn:
            told = "select body ->> 'message' from events where kind = 'stop' and body ->> 'message' != '' order by seq"
            return [message for (message,) in conn.execute(told)]

    def processes(self) -> dict[int, str]:
        """What still runs with this lab's environment, by pid (Linux; elsewhere only the worker is known)."""
        mark = f"CLAUDE_MEM_DATA_DIR={self.data}\0".encode()
        return {pid: command for pid, environ, command in running() if mark in environ}

    def close(self) -> None:
        """Stop the worker; fail if anything at all is left, and leave nothing either way."""
        for client in self.clients:
            if client.process.poll() is None:
                client.kill()
        try:
            if self.data.exists():
                self.mem("stop")
            wait_for(lambda: not self.processes(), lambda: f"left running: {self.processes()}")
        finally:
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Does this process exist and run? A killed one that nobody has waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


def running() -> Iterator[tuple[int, bytes, str]]:
    """Each process we may look into: pid, environment, command line."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environ = (folder / "environ").read_bytes()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended while we looked, or is not ours
        yield int(folder.name), environ, command


@contextmanager
def open_lab(root: Path, *, binary: Path) -> Iterator[Lab]:
    """A lab with its model server, closed whatever happens."""
    with ModelServer() as server:
        lab = Lab(root, server, binary)
        lab.prepare()
        try:
            yield lab
        finally:
            lab.close()
