"""project: list, show, rename and merge projects, and turn memory off and on."""

from __future__ import annotations

import argparse
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from claude_mem.cli import output
from claude_mem.client import Client
from claude_mem.config import load_lenient
from claude_mem.domain.errors import ClaudeMemError, InvalidRequest, NotFound
from claude_mem.domain.project_reports import ProjectHere, ProjectSummary, RelatedProject
from claude_mem.domain.text import make_storable
from claude_mem.system import process
from claude_mem.worker.http.endpoints import ById, NoFields
from claude_mem.worker.http.schemas.health import SHOW_STATUS, InFolder
from claude_mem.worker.http.schemas.projects import (
    LIST_PROJECTS,
    MERGE_PROJECTS,
    RENAME_PROJECT,
    SHOW_PROJECT,
    TURN_OFF,
    TURN_ON,
    MergeProjects,
    ProjectPage,
    Rename,
    Switch,
    Switched,
)

RESTART_SECONDS = 10.0
MERGE_SECONDS = 120.0  # enough for a project with a hundred thousand memories
ACTIONS = {
    "list": "list all projects",
    "show": "show one project, with its aliases and open steps",
    "rename": "rename it (`rename PROJECT NAME`)",
    "merge": "merge it into another one (`merge PROJECT INTO`)",
    "off": "stop capturing and injecting in its directories",
    "on": "undo `off`",
}


def add_commands(commands: Any) -> None:
    """Add `project`."""
    project_ = commands.add_parser(
        "project",
        help="list, show, rename or merge projects; turn memory off or on",
        epilog="; ".join(f"{name}: {text}" for name, text in ACTIONS.items()) + ".",
    )
    project_.add_argument("what", nargs="?", choices=tuple(ACTIONS), default="list", help="default: list")
    project_.add_argument(
        "project",
        nargs="?",
        default="",
        metavar="PROJECT",
        help="its number, name or directory (default: the current directory's)",
    )
    project_.add_argument(
        "other", nargs="?", default="", metavar="NAME|INTO", help="rename: the new name; merge: the target project"
    )
    project_.add_argument("--yes", action="store_true", help="merge: do not ask for confirmation")
    project_.add_argument("--json", action="store_true", help="list, show: print one JSON object per line")
    project_.set_defaults(run=project)


def project(options: argparse.Namespace) -> int:
    """List, show, rename or merge projects, or turn memory off or on in one."""
    client = Client(process.ensure_worker(load_lenient().config.data_dir), seconds=MERGE_SECONDS)
    items = client.call(LIST_PROJECTS, InFolder()).items
    if options.what == "list":
        _list(items, options)
        _show_related(_project_of_folder(client, ".").related)
        return 0
    row = find_project(client, items, options.project)
    if options.what in ("rename", "merge") and not options.other:
        usage = "rename PROJECT NAME" if options.what == "rename" else "merge PROJECT INTO"
        text = "missing new name" if options.what == "rename" else "missing target project"
        raise InvalidRequest(text, hint=f"usage: claude-mem project {usage}")
    match options.what:
        case "show":
            return _show(client.call(SHOW_PROJECT, ById(row.id)), options)
        case "rename":
            updated_row = client.call(RENAME_PROJECT, Rename(row.id, options.other))
            output.line(f"renamed {row.name} to {updated_row.name}")
            return 0
        case "merge":
            return _merge(client, row.id, find_project(client, items, options.other).id, options)
    answer = client.call(TURN_ON if options.what == "on" else TURN_OFF, ById(row.id))
    _wait_for_restart(client, answer)
    return _show_switch(answer.switch, row.name)


def find_project(client: Client, items: list[ProjectSummary], reference: str) -> ProjectSummary:
    """Return the project with this number, name or directory; "" means the current directory."""
    if reference.isdecimal():
        matches = [item for item in items if item.id == int(reference)]
    elif reference and not Path(reference).is_dir():
        matches = [item for item in items if item.name == reference]
    else:
        project_id = _project_of_folder(client, reference or ".").id
        matches = [item for item in items if item.id == project_id]
    if len(matches) > 1:
        numbers = ", ".join(str(item.id) for item in matches)
        raise InvalidRequest(f"{len(matches)} projects are named {reference!r}", hint=f"use a number: {numbers}")
    if not matches:
        raise NotFound(
            f"no project {reference}" if reference else "the current directory has no project yet",
            hint="`claude-mem project list` lists all projects",
        )
    return matches[0]


def _project_of_folder(client: Client, folder: str) -> ProjectHere:
    """Return the project of a directory, and the projects it may have to be merged with."""
    answer = client.call(LIST_PROJECTS, InFolder(make_storable(str(Path(folder).absolute()))))
    return answer.here or ProjectHere(id=None, related=[])


def _show_related(related: list[RelatedProject]) -> None:
    """Print the projects that may be the same as this one; only the user can decide."""
    for row in related:
        where = f"project {row.id}, {row.name} ({row.root})"
        how = (
            f"; to merge their memories, run `{row.command}`"
            if row.command
            else "; the first session here creates a separate project"
        )
        output.info(f"this repository has the same {row.same} as {where}{how}")


def _list(items: list[ProjectSummary], options: argparse.Namespace) -> None:
    if options.json:
        output.json_lines(items)
    else:
        columns = ("id", "name", "sessions", "observations", "last seen", "root")
        counts = ("id", "name", "sessions", "observations")
        rows = [
            (*(getattr(item, name) for name in counts), output.format_age(item.last_event_at), item.root)
            for item in items
        ]
        output.table(columns, rows)


def _show(details: ProjectPage, options: argparse.Namespace) -> int:
    if options.json:
        output.json_lines([details])
        return 0
    output.line(f"{details.id} {details.name}  {details.root}")
    output.line(", ".join(f"{count:,} {name}" for name, count in details.counts.items()))
    for alias in details.aliases:
        output.line(f"alias     {alias.kind} {alias.what}")
    for step in details.open:
        output.line(f"open step {step}")
    for row in details.related:
        output.line(f"related   {row.id} {row.name}  {row.root}: the same {row.same}; `{row.command}`")
    return _show_switch(details.switch, details.name)


def _wait_for_restart(client: Client, answer: Switched) -> None:
    """Wait until the worker has restarted with the setting, so that it applies to whatever follows."""
    deadline = time.monotonic() + RESTART_SECONDS
    while answer.restarts and time.monotonic() < deadline:
        with suppress(ClaudeMemError):  # it may not respond while it restarts
            if client.call(SHOW_STATUS, NoFields()).started_at != answer.started_at:
                return
        time.sleep(0.02)


def _show_switch(switch: Switch, name: str) -> int:
    output.line(f"memory is {'on' if switch.on else 'off'} for {name}")
    for row in switch.off:
        output.line(f"off in    {row.folder}, by {row.by}: {row.what}")
    return 0


def _merge(client: Client, source: int, target: int, options: argparse.Namespace) -> int:
    plan = client.call(MERGE_PROJECTS, MergeProjects(source, into=target, dry_run=True))
    moves = ", ".join(f"{count:,} {name}" for name, count in plan.moves.items())
    output.info(f"moves {moves} from {plan.from_.name} to {plan.into.name}")
    if not options.yes and not output.ask("Merge the projects? (can't be undone)"):
        output.info("nothing was changed (use `--yes` to skip the question)")
        return 1
    client.call(MERGE_PROJECTS, MergeProjects(source, into=target))
    output.line(f"merged {plan.from_.name} into {plan.into.name}")
    return 0
