"""`make demo`: a recorded session goes through the real hook into a real worker, and you see what the next one is told.

Everything happens in a folder that is thrown away; your own memory is not touched. `make demo KEEP=1` first plays some
days of work in two small projects (`history/`), and leaves the worker running for you to look around.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from claude_mem.system.process import hook_command
from claude_mem.system.spool import write_private
from demo import story

HERE = Path(__file__).parent
HOOK = hook_command()
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

    def play(self) -> None:
        """The days before: what their hooks would have left in the spool."""
        spool = Path(self.env["CLAUDE_MEM_DATA_DIR"]) / "spool"
        spool.mkdir(parents=True, mode=0o700)
        for path in sorted((HERE / "history").glob("*.txt")):
            session = story.read(path)
            root = self.project.parent / session.project
            (root / ".git").mkdir(parents=True, exist_ok=True)
            print(
                f"  {session.days_ago:4.1f} days ago  {session.project:<8} {session.agent:<7} {session.turns[0].prompt:.70}"
            )
            for at, record in story.records(session, root, now=int(time.time() * 1000)):
                write_private(spool / f"{at * 1_000_000:016x}-{os.urandom(4).hex()}", record)

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
    parser = argparse.ArgumentParser(description="A recorded session, and what the next one is told.")
    parser.add_argument("--keep", action="store_true", help="leave a worker with some days of history running")
    if parser.parse_args().keep:
        keep()
        return
    with tempfile.TemporaryDirectory() as folder:
        demo = Demo(Path(folder))
        try:
            show(demo)
        finally:
            demo.mem("stop")


def show(demo: Demo) -> None:
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


def keep() -> None:
    folder = Path(tempfile.mkdtemp(prefix="claude-mem-demo-"))
    demo = Demo(folder)
    print("Some days of work in two small projects:\n")
    demo.play()
    print("\nAnd a session of today, as the hooks saw it:\n")
    demo.replay()
    demo.wait()
    memory = f"CLAUDE_MEM_DATA_DIR={shlex.quote(demo.env['CLAUDE_MEM_DATA_DIR'])}"
    command = f"{memory} {shlex.join(MEM)}"
    print(f"""
Look at it in a browser; the link works once, within a minute:

  {demo.mem("open", "--print").strip()}

Another link, or anything else that `claude-mem` can do:

  {command} open

When you have seen enough, this stops the worker and removes everything:

  {command} stop; rm -rf {shlex.quote(str(folder))}
""")


if __name__ == "__main__":
    main()
