"""A laboratory for the real Gemini CLI: `tests/agents/client/harness.py` with another client in it."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.agents.client.harness import ROOT, Client, Lab, Run
from tests.agents.client.model_server import Json

from .gemini_server import GeminiServer

VERSION = next(
    line.rpartition("@")[2]
    for line in (ROOT / "tests" / "agents" / "versions.txt").read_text().splitlines()
    if line.startswith("gemini ")
)
SCRIPT = "node_modules/@google/gemini-cli/bundle/gemini.js"


def find_gemini() -> tuple[Path | None, str]:
    """The pinned program, or the reason why there is none to test with."""
    path = ROOT / "build" / "agents" / "gemini" / SCRIPT
    if shutil.which("node") is None:
        return None, "no `node` to run the Gemini CLI with"
    return (path, "") if path.is_file() else (None, f"no Gemini CLI {VERSION} at {path}: run `make agents` to fetch it")


def node() -> str:
    return shutil.which("node") or "node"


def gemini_version(script: Path) -> str:
    """As its package says: asking the program takes it seconds."""
    return str(json.loads((script.parents[1] / "package.json").read_text())["version"])


@dataclass
class GeminiLab(Lab):
    """`binary` is the program's script; node runs it."""

    @property
    def gemini_home(self) -> Path:
        return self.home / ".gemini"

    @property
    def settings(self) -> Path:
        return self.gemini_home / "settings.json"

    @property
    def env(self) -> dict[str, str]:
        folders = [str(Path(shutil.which(name) or f"/usr/bin/{name}").parent) for name in ("git", "node")]
        return {
            "HOME": str(self.home),
            "PATH": ":".join([*folders, "/usr/bin", "/bin"]),
            "GEMINI_API_KEY": "dummy-key",
            "GOOGLE_GEMINI_BASE_URL": self.server.url,
            "GEMINI_CLI_NO_RELAUNCH": "true",
            "CLAUDE_MEM_DATA_DIR": str(self.data),
            "CLAUDE_MEM_WORKER_PORT": str(self.port),
        }

    def prepare(self) -> None:
        super().prepare()
        self.gemini_home.mkdir()
        self.settings.write_text(json.dumps(self.config(), indent=4))

    def config(self) -> Json:
        """What a person has there."""
        return {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
            "privacy": {"usageStatisticsEnabled": False},
            "hooks": {"AfterTool": [{"matcher": "glob", "hooks": [{"type": "command", "command": "true"}]}]},
        }

    def start_gemini(self, prompt: str, *flags: str, env: Mapping[str, str] | None = None) -> Client:
        words = ["-p", prompt, "--yolo", "--skip-trust", "-o", "stream-json", "-m", "gemini-2.5-flash", *flags]
        errors = self.root / f"client-{len(self.clients)}.stderr"
        command = [node(), str(self.binary), *words]
        client = Client(command, env={**self.env, **(env or {})}, cwd=self.project, errors=errors)
        client.hang_up()
        self.clients.append(client)
        return client

    def gemini(self, prompt: str, *flags: str, env: Mapping[str, str] | None = None) -> Run:
        return self.start_gemini(prompt, *flags, env=env).finish()

    def chats(self) -> list[Path]:
        return sorted((self.gemini_home / "tmp").glob("*/chats/session-*.jsonl"))


def session_of(run: Run) -> str:
    (started,) = run.of("init")
    return str(started["session_id"])


@contextmanager
def open_gemini_lab(root: Path, *, script: Path) -> Iterator[GeminiLab]:
    with GeminiServer() as server:
        lab = GeminiLab(root, server, script)
        lab.prepare()
        try:
            yield lab
        finally:
            lab.close()
