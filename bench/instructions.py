"""How much of what agents' instruction files say is checked, and what is reported, over two real histories.

    python bench/instructions.py [--commits 40] [--list]

At evenly spaced commits of the default branch, every CLAUDE.md, AGENTS.md and the like is checked as `claude-mem review`
does, against that commit. Each reported pair of a line and a name counts once. Whether a report is right is for a reader:
`--list` prints each with the line, the commit that removed the name, and the proposal.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import turns

from claude_mem.curate.instruction_files import _FILE, _NOT_OURS, Checker, Finding, InstructionFile
from claude_mem.system.git_objects import GitObjects

HISTORIES = {"a Go project": "repos/cli.bundle", "a TypeScript project": "repos/evaluator.git.tar.gz"}


@dataclass
class Result:
    """What was found in one history."""

    commits: int = 0
    files: set[str] = field(default_factory=set)
    statements: int = 0
    reports: int = 0
    findings: dict[tuple[str, str, str], tuple[str, Finding]] = field(default_factory=dict)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=40, help="commits that are checked in each history")
    parser.add_argument("--list", action="store_true", help="print every report")
    parser.add_argument("--data", type=Path, default=turns.DATA, help="the folder with the histories")
    options = parser.parse_args()
    for name, path in HISTORIES.items():
        if not (options.data / path).exists():
            sys.exit(f"{options.data / path} is missing: nothing is measured")
        with tempfile.TemporaryDirectory() as folder:
            result = measure(unpack(options.data / path, Path(folder)), commits=options.commits)
        kinds = Counter(problem.kind for _, finding in result.findings.values() for problem in finding.problems)
        print(f"{name}: {result.commits} commits, files: {', '.join(sorted(result.files))}")
        print(f"  statements checked (line × commit): {result.statements:,}; reported: {result.reports:,}")
        print(f"  different reports: {len(result.findings)} ({dict(kinds)}),", end=" ")
        print(f"with a proposal: {sum(finding.has_proposal for _, finding in result.findings.values())}")
        for commit, finding in result.findings.values() if options.list else ():
            show(commit, finding)


def unpack(path: Path, folder: Path) -> GitObjects:
    """Return a history, in a folder whose `.git` is a repository."""
    git_dir = folder / ".git"
    if path.suffix == ".bundle":
        subprocess.run(["git", "clone", "-q", "--mirror", str(path), str(git_dir)], check=True)
    else:
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")
        next(folder.glob("*.git")).rename(git_dir)
    return GitObjects(str(folder))


def measure(git: GitObjects, *, commits: int) -> Result:
    """Check the instruction files at evenly spaced commits, the oldest first."""
    branches = git.resolve("refs/heads/main", "refs/remotes/origin/main")
    history = git.list_commits("--first-parent", next(filter(None, branches)), most=100_000)[::-1]
    step = max(1, len(history) // commits)
    result = Result()
    for commit in [*history[step - 1 :: step], history[-1]]:
        checker = Checker(git, commit.id)
        files = list(_files(checker, git))
        report = checker.check(files)
        result.commits += bool(files)
        result.files |= {file.name for file in files}
        result.statements += report.statements
        for finding in report.findings:
            result.reports += len(finding.problems)
            for problem in finding.problems:
                result.findings.setdefault((finding.file, finding.text, problem.name), (commit.id, finding))
    return result


def _files(checker: Checker, git: GitObjects) -> Iterator[InstructionFile]:
    for path in checker.now.blobs:
        if _FILE.search(path) and not _NOT_OURS.search(path):
            content = git.read_blobs([f"{checker.now.commit}:{path}"])
            yield from (InstructionFile(Path(path), path, text) for text in content.values())


def show(commit: str, finding: Finding) -> None:
    """Print a report."""
    print(f"\n  {commit[:10]} {finding.file}:{finding.line} {finding.text.strip()[:160]}")
    for problem in finding.problems:
        since = f"{problem.commit.id[:10]} {problem.commit.subject[:60]}" if problem.commit else "?"
        print(f"      {problem.kind} {problem.name} ({problem.was}) gone since {since}; now {problem.now or '?'}")
    if finding.has_proposal:
        print(f"      → {finding.replacement}")


if __name__ == "__main__":
    main()
