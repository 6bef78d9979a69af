"""A laboratory for the real Codex: `tests/agents/client/harness.py` with another client in it."""

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.agents.client.harness import ROOT, Client, Lab, Run
from tests.agents.client.model_server import Call, Json
from tests.support.waiting import SECONDS

from .responses_server import ResponsesServer

VERSION = next(
    line.rpartition("@")[2]
    for line in (ROOT / "tests" / "agents" / "versions.txt").read_text().splitlines()
    if line.startswith("codex ")
)
FLAGS = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
TRUST = "--dangerously-bypass-hook-trust"
HOOK_END = re.compile(r"^hook: (\w+) (\w+)$", re.M)


def find_codex() -> tuple[Path | None, str]:
    """The pinned program, or the reason why there is none to test with."""
    folder = ROOT / "build" / "agents" / "codex"
    found = sorted(folder.glob("node_modules/@openai/codex-*/vendor/*/bin/codex"))
    return (found[0], "") if found else (None, f"no Codex {VERSION} under {folder}: run `make agents` to fetch it")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a person sees of a run: the answer, and the talk about it."""

    session: str
    answer: str
    talk: str

    @property
    def hooks(self) -> list[tuple[str, str]]:
        """Each hook and how it ended, as Codex judged its answer. SessionEnd's is not shown."""
        return [(found[1], found[2]) for found in HOOK_END.finditer(self.talk)]


@dataclass
class CodexLab(Lab):
    @property
    def codex_home(self) -> Path:
        return self.home / ".codex"

    @property
    def hooks_file(self) -> Path:
        return self.codex_home / "hooks.json"

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
        """As a person has it, with remarks; but the model is ours."""
        return f"""# mine
model = "gpt-5.5"
model_provider = "fake"
check_for_update_on_startup = false

[model_providers.fake]   # a remark
name = "fake"
base_url = "{self.server.url}/v1"
wire_api = "responses"
env_key = "FAKE_KEY"
supports_websockets = false
request_max_retries = 0

[projects."{self.project}"]
trust_level = "trusted"
"""

    # --- the client ---------------------------------------------------------------------------------------------------

    def start_codex(self, *words: str, env: Mapping[str, str] | None = None, trust: bool = True) -> Client:
        command = [str(self.binary), "exec", "--json", *FLAGS, *([TRUST] if trust else []), *words]
        errors = self.root / f"client-{len(self.clients)}.stderr"
        client = Client(command, env={**self.env, **(env or {})}, cwd=self.project, errors=errors)
        client.hang_up()
        self.clients.append(client)
        return client

    def codex(self, *words: str, env: Mapping[str, str] | None = None, trust: bool = True) -> Run:
        """One prompt from start to end; Codex itself had nothing to complain about."""
        run = self.start_codex(*words, env=env, trust=trust).finish()
        assert run.returncode == 0, run.stderr
        return run

    def show_codex(self, *words: str, env: Mapping[str, str] | None = None) -> Shown:
        """The same as people see it: only then does it say how its hooks ended."""
        done = subprocess.run(
            [str(self.binary), "exec", *FLAGS, TRUST, *words],
            env={**self.env, **(env or {})},
            cwd=self.project,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
            check=True,
        )
        session = re.search(r"^session id: (\S+)$", done.stderr, re.M)
        assert session is not None, done.stderr
        return Shown(session[1], done.stdout, done.stderr)

    def rollouts(self) -> list[Path]:
        return sorted((self.codex_home / "sessions").rglob("rollout-*.jsonl"))

    def drop_hooks(self, *events: str) -> None:
        """Take hooks out of its settings: the events it failed to report."""
        settings = json.loads(self.hooks_file.read_text())
        for event in events:
            del settings["hooks"][event]
        self.hooks_file.write_text(json.dumps(settings))

    # --- what is stored -----------------------------------------------------------------------------------------------

    def rows(self, what: str) -> list[Json]:
        found = self.api(f"/api/{what}?limit=100")["items"]
        assert isinstance(found, list)
        return found

    def session(self, name: str) -> Json:
        """A session with its turns and events."""
        (row,) = [row for row in self.rows("sessions") if row["content_session_id"] == name]
        found = self.api(f"/api/session/{row['id']}")
        assert isinstance(found, dict)
        return found

    def stored_calls(self, name: str) -> Counter[str]:
        """How often each tool call of a session is stored."""
        events = self.session(name)["events"]
        return Counter(event["tool_use_id"] for event in events if event["tool_use_id"])

    def files_with(self, *texts: str) -> list[str]:
        """The files of the data directory, database and logs included, that contain any of these texts."""
        files = [path for path in self.data.rglob("*") if path.is_file()]
        return [str(path) for path in files if any(text.encode() in path.read_bytes() for text in texts)]


def thread(run: Run) -> str:
    """The session's id."""
    (started,) = run.of("thread.started")
    return str(started["thread_id"])


def once(calls: list[Call]) -> Counter[str]:
    """Each of these calls exactly one time, and no other."""
    return Counter(call.id for call in calls)


@contextmanager
def open_codex_lab(root: Path, *, binary: Path) -> Iterator[CodexLab]:
    """Not below the temporary folder: Codex refuses to put its helpers there."""
    with ResponsesServer() as server:
        lab = CodexLab(root, server, binary)
        lab.prepare()
        try:
            yield lab
        finally:
            lab.close()
