"""review: what is outdated or contradicted, one memory at a time, then the instruction files of agents; trust: external
sources whose memories are injected in a project without individual approval."""

from __future__ import annotations

import argparse
import os
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from claude_mem.agents import claude
from claude_mem.cli import output, provenance
from claude_mem.cli.observations import UNDO_DAYS, edit_in_editor
from claude_mem.cli.projects import find_project
from claude_mem.client import Client
from claude_mem.config import load_lenient
from claude_mem.curate import instruction_files
from claude_mem.curate.instruction_files import Finding, Problem, Report
from claude_mem.domain.errors import ClaudeMemError, InvalidRequest, OperationFailed
from claude_mem.domain.memory_items import MemoryItem
from claude_mem.domain.project_reports import TrustedSource
from claude_mem.domain.text import shorten
from claude_mem.privacy.trust import USER
from claude_mem.recall import line_history
from claude_mem.system import process
from claude_mem.worker.http.endpoints import NoFields
from claude_mem.worker.http.schemas.health import InFolder
from claude_mem.worker.http.schemas.projects import (
    DISTRUST_SOURCE,
    LIST_PROJECTS,
    LIST_TRUSTED,
    TRUST_SOURCE,
    DistrustRequest,
    TrustRequest,
)

LOOK_SECONDS = 60.0  # a large repository takes a while
PAGE = 50
KEYS = {"k": "keep", "c": "correct", "f": "forget", "s": "skip", "q": "quit"}
QUESTION = "[k]eep  [c]orrect  [f]orget  [s]kip  [q]uit"


def add_commands(commands: Any) -> None:
    """Add `review` and `trust`."""
    review_ = commands.add_parser(
        "review",
        help="go through the memories that are outdated or that a later one contradicts",
        epilog="On a terminal each is shown with one key to answer: keep it (it is shown to sessions again until its"
        " code changes again), correct it in your editor, forget it (undo within 30 days), skip it, or quit. In a pipe"
        " they are only listed. Then come the lines of CLAUDE.md, AGENTS.md and the like that name files, commands or"
        " symbols which a commit has removed since; a change is proposed where the new name is known, and written only"
        " if you accept it.",
    )
    review_.add_argument("--project", default="", metavar="P", help="project (default: the current directory's)")
    review_.add_argument(
        "--all", action="store_true", help="also what changed in part, moved, was dropped or was reverted"
    )
    review_.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object per line, and ask nothing; `kind` is observation or statement",
    )
    review_.set_defaults(run=review)
    _add_trust(commands)


def review(options: argparse.Namespace) -> int:
    """Look at the code again, then list what changed, or ask about each."""
    worker = process.ensure_worker(load_lenient().config.data_dir)
    client = Client(worker, seconds=LOOK_SECONDS, by=provenance.detect_actor())
    where = {"project": options.project} if options.project else {"cwd": str(Path.cwd())}
    client.post("/api/review", where)
    query = where | ({"validity": "changed"} if options.all else {})
    if options.json:
        provenance.json_lines(list(_fetch(client, query)))
        findings = [] if options.project else check_folder(Path.cwd()).findings
        output.json_lines(
            {"id": f"{finding.file}:{finding.line}"} | row
            for finding, row in zip(findings, map(instruction_files.as_row, findings), strict=True)
        )
        return 0
    items = list(_fetch(client, query))
    report = Report() if options.project else check_folder(Path.cwd())
    if not items and not report.findings:
        output.info("nothing to review: nothing is known to be outdated or contradicted")
    elif output.can_show_questions() and sys.stdout.isatty() and client.by == USER:
        if not items or _ask_about_each(client, items):
            ask_about_each(report)
    else:
        provenance.warn_if_held(items)
        for item in items:
            show_item(item)
        provenance.print_note(items)
        for finding in report.findings:
            show(finding)
    return 0


def _fetch(client: Client, query: dict[str, str]) -> Iterator[MemoryItem]:
    """Yield all items, a page at a time. All are read before the first is decided: decisions move the pages."""
    offset, has_more = 0, True
    while has_more:
        page = client.get("/api/review", **query, limit=PAGE, offset=offset)
        yield from page["items"]
        offset, has_more = offset + PAGE, page["hasMore"]


def show_item(item: MemoryItem) -> None:
    """Print an item: what it says, what has become of it, and what replaced it."""
    output.line(f"#{item['id']} {item['title']}{provenance.trust_mark(item)}")
    output.line(f"   {item['type']} · {item['project']} · {output.format_age(item['created_at'])}")
    if text := item["narrative"] or item["subtitle"]:
        output.text(shorten(" ".join(text.split()), 300), indent="   ")
    if files := item["files_modified"] or item["files_read"]:
        output.line(f"   files: {', '.join(files[:5])}")
    output.line(f"   {describe_change(item)}")
    output.line()


def describe_change(item: MemoryItem) -> str:
    """Return in one line what has changed under a memory, and what replaced it."""
    if successor := item["successor"]:
        return f"superseded by #{successor['id']} {successor['title']}"
    parts = [line_history.describe_state(item).removeprefix("state: ") or item["validity"]]
    parts += [f"now in {', '.join(item['moved_to'])}"] if item["moved_to"] else []
    at = f"seen {output.format_age(item['changed_at'])}" + (f" at {item['head'][:10]}" if item["head"] else "")
    return " · ".join([*parts, at])


# --- one at a time ---------------------------------------------------------------------------------------------------


def _ask_about_each(client: Client, items: list[MemoryItem]) -> bool:
    """Ask about each memory. Return False if the user has quit."""
    counts, answer = dict.fromkeys(("kept", "corrected", "forgotten"), 0), ""
    for number, item in enumerate(items, 1):
        output.info(f"{number} of {len(items)}")
        show_item(item)
        answer = _read_answer()
        if answer == "quit":
            break
        try:
            if decision := _decide(client, item, answer):
                counts[decision] += 1
        except ClaudeMemError as problem:  # the next item can still be decided
            output.error(str(problem), problem.hint)
    output.info(", ".join(f"{count} {name}" for name, count in counts.items()))
    return answer != "quit"


def _read_answer() -> str:
    """Return the answer to a key; the Enter key skips. An unknown key is asked for again: a slip decides nothing."""
    while (key := read_key(QUESTION)) not in KEYS:
        if not key:
            return "skip"
        output.info(f"{key!r} is none of the keys {', '.join(KEYS)}")
    return KEYS[key]


def _decide(client: Client, item: MemoryItem, answer: str) -> str:
    """Carry out an answer and return what was done; "" if nothing."""
    path = f"/api/observation/{item['id']}"
    if answer == "keep":
        client.post(f"{path}/keep")
        output.line(f"kept {item['id']}: it is shown to sessions until its code changes again")
        return "kept"
    if answer == "correct":
        changes = edit_in_editor(item)
        if not changes:
            output.info("nothing was changed")
            return ""
        client.patch(path, changes)
        client.post(f"{path}/keep")
        output.line(f"corrected {item['id']}: {', '.join(changes)}")
        return "corrected"
    if answer == "forget" and output.ask(f"Forget it? (undo within {UNDO_DAYS} days)"):
        client.delete(path)
        output.line(f"forgotten: {item['id']} (to restore it, run `claude-mem forget --undo {item['id']}`)")
        return "forgotten"
    return ""


def read_key(question: str) -> str:
    """Return the key that is pressed, in lower case; "q" at the end of input, "" for the Enter key. What was typed
    before the question appeared is discarded, so that no key answers a question that was not seen."""
    descriptor = sys.stdin.fileno()
    settings = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor, termios.TCSAFLUSH)  # before the question: a key after it must not be discarded
        output.info(question)
        key = os.read(descriptor, 1).decode("ascii", "ignore")  # `sys.stdin` would keep further keys in its buffer
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, settings)
    return "q" if key in ("", "\x04") else key.strip().lower()


# --- instruction files -----------------------------------------------------------------------------------------------


LABELS = {"path": "", "command": "the command ", "symbol": "the symbol "}


def check_folder(folder: Path) -> Report:
    """Check the instruction files of the work tree that a folder belongs to."""
    return instruction_files.check(folder, agent_folder=claude.config_dir(os.environ))


def show(finding: Finding) -> None:
    """Print a finding, with the change that is proposed."""
    for problem in finding.problems:
        output.line(f"{finding.file}:{finding.line} names {describe(problem)}")
    if finding.has_proposal:
        output.line(f"   {'old' if finding.replacement is not None else 'remove'}: {finding.text}")
        if finding.replacement is not None:
            output.line(f"   new: {finding.replacement}")
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


# --- trust -----------------------------------------------------------------------------------------------------------


TRUST_SECONDS = 120.0  # approving thousands of memories takes a while


def _add_trust(commands: Any) -> None:
    parser = commands.add_parser(
        "trust",
        help="list, add or remove external sources that you trust in a project",
        epilog="A SOURCE is a program (`gh`), an MCP server (`linear (MCP)`) or a host (`docs.example.org`), as listed"
        " in the viewer under Approval queue. Memories based only on trusted sources need no approval; text that"
        " resembles a prompt injection always does. Only a person can add or remove a source.",
    )
    parser.add_argument("what", nargs="?", choices=("list", "add", "remove"), default="list", help="default: list")
    parser.add_argument("source", nargs="?", default="", metavar="SOURCE", help="add, remove: the source")
    parser.add_argument(
        "--project", default="", metavar="P", help="its number, name or directory (default: the current directory's)"
    )
    parser.add_argument("--json", action="store_true", help="list: print one JSON object per line")
    parser.set_defaults(run=trust)


def trust(options: argparse.Namespace) -> int:
    """List, add or remove trusted sources of a project."""
    if options.what != "list":
        _check(options)
    client = Client(
        process.ensure_worker(load_lenient().config.data_dir), seconds=TRUST_SECONDS, by=provenance.detect_actor()
    )
    if options.what == "list":
        return _list(client.call(LIST_TRUSTED, NoFields()).items, options)
    project = find_project(client, client.call(LIST_PROJECTS, InFolder()).items, options.project)
    if options.what == "add":
        added = client.call(TRUST_SOURCE, TrustRequest(project.id, options.source))
        count = added.approved
        approved = f"approved {count:,} pending {'memory' if count == 1 else 'memories'}"
        output.line(f"{added.source} is now trusted in {project.name}; {approved}")
    else:
        removed = client.call(DISTRUST_SOURCE, DistrustRequest(project.id, options.source))
        output.line(f"{removed.source} is no longer trusted in {project.name}; earlier approvals remain")
    return 0


def _check(options: argparse.Namespace) -> None:
    if not options.source:
        raise InvalidRequest("missing SOURCE", hint=f"usage: claude-mem trust {options.what} SOURCE")
    if provenance.detect_actor() != USER:
        raise OperationFailed(
            "only a person can change which sources are trusted", hint="run this in your own terminal"
        )


def _list(items: list[TrustedSource], options: argparse.Namespace) -> int:
    if options.json:
        output.json_lines(items)
    elif items:
        output.table(("project", "source", "since"), [(i.project, i.source, output.format_age(i.at)) for i in items])
    else:
        output.info("no trusted sources yet; to trust `gh` in the current project, run `claude-mem trust add gh`")
    return 0
