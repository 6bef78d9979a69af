"""trust: external sources whose memories are injected in a project without individual approval."""

from __future__ import annotations

import argparse
from typing import Any

from claude_mem.cli import output, provenance
from claude_mem.cli.projects import find_project
from claude_mem.client import Client
from claude_mem.config import load_lenient
from claude_mem.domain.errors import InvalidRequest, OperationFailed
from claude_mem.domain.project_reports import TrustedSource
from claude_mem.privacy.trust import USER
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

SECONDS = 120.0  # approving thousands of memories takes a while


def add_commands(commands: Any) -> None:
    """Add `trust`."""
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
        process.ensure_worker(load_lenient().config.data_dir), seconds=SECONDS, by=provenance.detect_actor()
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
