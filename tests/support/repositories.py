"""Real git repositories in temporary directories, and sessions that write files in them."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

from claude_mem.domain import anchors
from claude_mem.domain.anchors import Outcome
from claude_mem.inject import freshness, outcomes
from claude_mem.storage.records import StoredAnchor, StoredOutcome, apply_looks
from claude_mem.system.git_objects import GitObjects
from tests.support.lab import Lab

CODE = "\n".join(f"def step_{number}(basket): return basket.total({number})" for number in range(9)) + "\n"
OTHER = "\n".join(f"class Basket{number}: total = compute_total({number})" for number in range(9)) + "\n"
NOW = time.time_ns() // 1_000_000


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
        """Commit everything, now or some days later, and return the id."""
        self.git("add", "-A")
        later = {"GIT_COMMITTER_DATE": f"@{int(time.time()) + in_days * 86_400} +0000"} if in_days else {}
        self.git("commit", "-q", "-m", subject, **later)
        return self.git("rev-parse", "HEAD")

    def outcome(self, before: Outcome = Outcome.TRIED, *, path: str = "a.py") -> str:
        """Return what became of an edit that added `CODE` to a file."""
        verdict = self.judge(before, path=path)
        return verdict.outcome if verdict else before

    def judge(
        self, before: Outcome = Outcome.TRIED, *, path: str = "a.py", created_at: int = NOW, now: int = NOW
    ) -> outcomes.Verdict | None:
        """Judge an edit that added `CODE` to a file, as a look after a turn does."""
        item = StoredAnchor(1, 1, path, "edit", anchors.choose_lines(CODE.splitlines()))
        git = GitObjects(str(self.root))
        head, _ = git.head()
        paths = git.list_paths(head)
        seen = apply_looks([item], freshness.look_at_files(str(self.root), [item], seconds=60, paths=paths))
        stored = StoredOutcome(1, before, "", created_at)
        verdicts = outcomes.judge_outcomes(git, seen, [stored], head=head, now=now)
        return verdicts[0] if verdicts else None


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
