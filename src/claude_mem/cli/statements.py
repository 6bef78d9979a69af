"""The part of `review` about agents' instruction files: what they say that no longer holds, and changes that a person
may accept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from claude_mem.agents import claude
from claude_mem.cli import output
from claude_mem.curate import instruction_files
from claude_mem.curate.instruction_files import Finding, Problem, Report
from claude_mem.domain.errors import ClaudeMemError

LABELS = {"path": "", "command": "the command ", "symbol": "the symbol "}


def check_folder(folder: Path) -> Report:
    """Check the instruction files of the work tree that a folder belongs to."""
    return instruction_files.check(folder, agent_folder=claude.config_dir(os.environ))


def show(finding: Finding) -> None:
    """Print a finding, with the change that is proposed."""
    for problem in finding.problems:
        output.line(f"{finding.file}:{finding.line} names {describe(problem)}")
    if finding.has_proposal:
        output.line(f"   - {finding.text}")
        if finding.replacement is not None:
            output.line(f"   + {finding.replacement}")
    else:
        output.line(f"     {finding.text}")


def describe(problem: Problem) -> str:
    """Return what is wrong with a name: "`src/old.py`, gone since abc1234 (Rename it): now `src/new.py`"."""
    commit = problem.commit
    subject = f" ({commit.subject[: instruction_files.MAX_SUBJECT]})" if commit else ""
    since = f", gone since {commit.id[:10]}{subject}" if commit else ", gone"
    where = f" from {problem.was}" if problem.kind != "path" else ""
    return f"{LABELS[problem.kind]}`{problem.name}`{since}{where}" + (f": now `{problem.now}`" if problem.now else "")


def ask_about_each(report: Report) -> None:
    """Show the findings file by file, ask about each proposal, and write what was accepted."""
    files = {file.name: file for file in report.files}
    for name, findings in groupby(report.findings, key=lambda finding: finding.file):
        accepted = list[Finding]()
        for finding in findings:
            show(finding)
            if finding.has_proposal and output.ask("Change the file like this?"):
                accepted.append(finding)
            output.line()
        if accepted:
            _write(files[name], accepted)


def _write(file: instruction_files.InstructionFile, accepted: Sequence[Finding]) -> None:
    try:
        instruction_files.apply(file, accepted)
    except ClaudeMemError as problem:  # the next file can still be changed
        output.error(str(problem), problem.hint)
    except OSError as problem:
        output.error(f"{file.name} can't be written: {problem.strerror}", "check its owner and the free disk space")
    else:
        output.line(f"changed {output.plural(len(accepted), 'line')} of {file.name}")
