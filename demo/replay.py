"""`make demo`: a recorded session goes through the real hook into a real worker, and you see what the next one is told.

Everything happens in a folder that is thrown away; your own memory is not touched.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from claude_mem.process import hook_words

HERE = Path(__file__).parent
HOOK = hook_words()
MEM = [sys.executable, "-m", "claude_mem"]


class Demo:
    def __init__(self, folder: Path) -> None:
        self.project = folder / "tally"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TERM": os.environ.get("TERM", "dumb"),
            "CLAUDE_PROJECT_DIR": str(self.project),
            "CLAUDE_MEM_DATA_DIR": str(folder / "memory"),
            "CLAUDE_MEM_WORKER_PORT": "0",
        }
        shutil.copytree(HERE / "project", self.project)
        subprocess.run(["git", "init", "-q"], cwd=self.project, check=True)

    def hook(self, command: str, payload: str) -> str:
        done = subprocess.run([*HOOK, command], input=payload, env=self.env, capture_output=True, text=True, check=True)
        return done.stdout

    def mem(self, *arguments: str) -> str:
        return subprocess.run([*MEM, *arguments], env=self.env, capture_output=True, text=True, check=True).stdout

    def replay(self) -> None:
        for line in (HERE / "session.txt").read_text("utf-8").splitlines():
            command, _, payload = line.partition(" ")
            payload = payload.replace("{project}", str(self.project)).replace("{home}", self.env["HOME"])
            start = time.perf_counter()
            self.hook(command, payload)
            took = (time.perf_counter() - start) * 1000
            print(f"  {command:<8} {_what(json.loads(payload)):<72.72} {took:4.0f} ms")

    def wait(self) -> None:
        for _ in range(400):
            found = json.loads(self.mem("status", "--json"))
            if found["captured"] and not found["queued"]:
                return
            time.sleep(0.05)
        sys.exit(f"still waiting: {found}")

    def next_session(self) -> str:
        payload = {
            "session_id": "next",
            "hook_event_name": "SessionStart",
            "source": "startup",
            "cwd": str(self.project),
        }
        answer = json.loads(self.hook("context", json.dumps(payload)))
        return str(answer["hookSpecificOutput"]["additionalContext"])


def _what(payload: dict[str, object]) -> str:
    """What an event is about, in a few words."""
    given = payload.get("tool_input")
    if isinstance(given, dict):
        about = given.get("command") or Path(str(given.get("file_path", ""))).name
        return f"{payload['tool_name']}: {about}"
    return str(payload.get("prompt") or payload.get("last_assistant_message") or payload["hook_event_name"]).split(
        "\n"
    )[0]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        demo = Demo(Path(folder))
        try:
            print("A session of a small project, as the hooks saw it:\n")
            demo.replay()
            demo.wait()
            print("\nWhat is remembered of it (claude-mem list):")
            print(demo.mem("list"))
            print("In full (claude-mem show 1):\n")
            print(demo.mem("show", "1"))
            print("Where every event is (claude-mem status):\n")
            print(demo.mem("status"))
            print("What the next session is told when it starts:\n")
            print(demo.next_session())
        finally:
            demo.mem("stop")


if __name__ == "__main__":
    main()
