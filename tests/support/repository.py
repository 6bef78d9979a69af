"""A real repository, and sessions that write files in it."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.support.lab import Lab


class Repository:
    """A real repository in a temporary directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(exist_ok=True)
        self.git("init", "-q", "-b", "main")
        self.put("README", "A shop with baskets and totals.\n")
        self.commit("Begin")

    def git(self, *arguments: str, **env: str) -> str:
        names = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(self.root), *names, *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **env})
        return done.stdout.strip()

    def put(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def commit(self, subject: str, *, in_days: int = 0) -> str:
        """Commit everything, today or some days later, and return the id."""
        self.git("add", "-A")
        self.git("commit", "-q", "-m", subject, GIT_COMMITTER_DATE=f"@{int(time.time()) + in_days * 86_400} +0000")
        return self.git("rev-parse", "HEAD")


def work(lab: Lab, session: str, path: str, text: str, said: str, **fields: Any) -> None:
    """A session that writes a file, for real, and reports it."""
    target = lab.project / path
    target.parent.mkdir(parents=True, exist_ok=True)
    before = target.read_text() if target.exists() else None
    target.write_text(text)
    who = {"session_id": session, "prompt_id": f"{session}-1"}
    lab.spool("UserPromptSubmit", prompt=f"Please change {path}: {said}", **who)
    if before is None:
        call = {"tool_name": "Write", "tool_input": {"file_path": str(target), "content": text}}
        lab.spool("PostToolUse", **call, tool_response={"type": "create"}, **who)
    else:
        edit = {"file_path": str(target), "old_string": before, "new_string": text}
        lab.spool("PostToolUse", tool_name="Edit", tool_input=edit, tool_response={}, **who)
    lab.spool("Stop", last_assistant_message=said, **who, **fields)


def functions(name: str) -> str:
    """A file of nine functions of that name."""
    return "\n".join(f"def {name}_{number}(basket): return basket.total({number})" for number in range(9)) + "\n"


def classes(name: str) -> str:
    """A file of nine classes of that name, without a line of `functions`."""
    return "\n".join(f"class {name}{number}: total = compute_total({number})" for number in range(9)) + "\n"
