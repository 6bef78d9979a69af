"""Real git repositories in temporary directories."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from claude_mem.domain import anchors
from claude_mem.domain.anchors import Outcome
from claude_mem.inject import freshness
from claude_mem.storage.sqlite.memory.anchors import StoredAnchor, StoredOutcome, apply_looks
from claude_mem.system.git_objects import GitObjects

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

    def git(self, *arguments: str) -> str:
        names = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", "-C", str(self.root), *names, *arguments], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def put(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def commit(self, subject: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", subject)

    def outcome(self, before: Outcome = Outcome.TRIED, *, path: str = "a.py") -> str:
        """Return what became of an edit that added `CODE` to a file."""
        verdict = self.judge(before, path=path)
        return verdict.outcome if verdict else before

    def judge(
        self, before: Outcome = Outcome.TRIED, *, path: str = "a.py", created_at: int = NOW, now: int = NOW
    ) -> freshness.Verdict | None:
        """Judge an edit that added `CODE` to a file, as a look after a turn does."""
        item = StoredAnchor(1, 1, path, "edit", anchors.choose_lines(CODE.splitlines()))
        git = GitObjects(str(self.root))
        head, _ = git.head()
        paths = git.list_paths(head)
        seen = apply_looks([item], freshness.look_at_files(str(self.root), [item], seconds=60, paths=paths))
        stored = StoredOutcome(1, before, "", created_at)
        verdicts = freshness.judge_outcomes(git, seen, [stored], head=head, now=now)
        return verdicts[0] if verdicts else None
