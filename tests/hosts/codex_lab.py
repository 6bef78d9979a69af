"""A laboratory for the real Codex: `tests/client/harness.py` with another client in it."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.client.harness import ROOT, Client, Lab, Run
from tests.client.model_server import Json

from .responses_server import ResponsesServer

VERSION = next(
    line.rpartition("@")[2]
    for line in (ROOT / "tests" / "hosts" / "versions.txt").read_text().splitlines()
    if line.startswith("codex ")
)


def find_codex() -> tuple[Path | None, str]:
    """The pinned program, or the reason why there is none to test with."""
    folder = ROOT / "build" / "agents" / "codex"
    found = sorted(folder.glob("node_modules/@openai/codex-*/vendor/*/bin/codex"))
    return (found[0], "") if found else (None, f"no Codex {VERSION} under {folder}: run `make agents` to fetch it")


def codex_version(binary: Path) -> str:
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    out = subprocess.run([binary, "--version"], env=env, capture_output=True, text=True, timeout=20, check=True)
    return out.stdout.split()[-1]


@dataclass
class CodexLab(Lab):
    @property
    def codex_home(self) -> Path:
        return self.home / ".codex"

    @property
    def env(self) -> dict[str, str]:
        git = Path(shutil.which("git") or "/usr/bin/git").parent
        return {
            "HOME": str(self.home),
            "PATH": f"{git}:/usr/bin:/bin",
            "FAKE_KEY": "dummy-key",
            "CLAUDE_MEM_DATA_DIR": str(self.data),
            "CLAUDE_MEM_WORKER_PORT": str(self.port),
        }

    def prepare(self) -> None:
        super().prepare()
        self.codex_home.mkdir()
        (self.codex_home / "config.toml").write_text(self.config())

    def config(self) -> str:
        """What a person has there; the model is ours."""
        return f"""# mine, with a remark
model = "gpt-5.5"
model_provider = "fake"
check_for_update_on_startup = false

[model_providers.fake]   # scripted
name = "fake"
base_url = "{self.server.url}/v1"
wire_api = "responses"
env_key = "FAKE_KEY"
supports_websockets = false
request_max_retries = 0

[projects."{self.project}"]
trust_level = "trusted"
"""

    def start_codex(self, *words: str, env: Mapping[str, str] | None = None, trust: bool = True) -> Client:
        flags = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        flags += ["--dangerously-bypass-hook-trust"] if trust else []
        errors = self.root / f"client-{len(self.clients)}.stderr"
        command = [str(self.binary), "exec", *flags, *words]
        client = Client(command, env={**self.env, **(env or {})}, cwd=self.project, errors=errors)
        client.hang_up()
        self.clients.append(client)
        return client

    def codex(self, *words: str, env: Mapping[str, str] | None = None, trust: bool = True) -> Run:
        return self.start_codex(*words, env=env, trust=trust).finish()

    def rollouts(self) -> list[Path]:
        return sorted((self.codex_home / "sessions").rglob("rollout-*.jsonl"))


def thread(run: Run) -> str:
    """The session's id."""
    (started,) = run.of("thread.started")
    return str(started["thread_id"])


def items(run: Run, kind: str) -> list[Json]:
    return [event["item"] for event in run.of("item.completed") if event["item"].get("type") == kind]


@contextmanager
def open_codex_lab(root: Path, *, binary: Path) -> Iterator[CodexLab]:
    with ResponsesServer() as server:
        lab = CodexLab(root, server, binary)
        lab.prepare()
        try:
            yield lab
        finally:
            lab.close()


__all__ = ["CodexLab", "codex_version", "find_codex", "items", "json", "open_codex_lab", "os", "thread"]
