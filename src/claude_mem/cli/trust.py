"""trust: outside sources whose content is shown in a project without approving each memory."""

from __future__ import annotations

import argparse
from typing import Any
from urllib.parse import urlencode

from claude_mem import process
from claude_mem.cli import output, person
from claude_mem.cli.project import named
from claude_mem.client import Client
from claude_mem.config import load_forgiving
from claude_mem.errors import CannotDo, Misuse
from claude_mem.origins import USER

SECONDS = 120.0  # approving thousands of memories takes a while


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "trust",
        help="outside sources you trust in a project: list, add, remove",
        epilog="A SOURCE is a program (`gh`), an MCP server (`linear (MCP)`) or a host (`docs.example.org`), as the"
        " Quarantine names it. Memories that rest on trusted sources alone are shown without approval; text that"
        " resembles a prompt injection is held anyway. Only a person can add or remove a source.",
    )
    parser.add_argument("what", nargs="?", choices=("list", "add", "remove"), default="list", help="default: list")
    parser.add_argument("source", nargs="?", default="", metavar="SOURCE", help="add, remove")
    parser.add_argument("--project", default="", help="its number, name or a folder of it (default: this folder's)")
    parser.add_argument("--json", action="store_true", help="list: one JSON object per line")
    parser.set_defaults(run=trust)


def trust(options: argparse.Namespace) -> int:
    if options.what != "list":
        _check(options)
    client = Client(process.start(load_forgiving().config.data_dir), seconds=SECONDS, by=person.speaker())
    if options.what == "list":
        return _list(client.get("/api/trust")["items"], options)
    project = named(client, client.get("/api/projects")["items"], options.project)
    if options.what == "add":
        added = client.post("/api/trust", {"project_id": project["id"], "source": options.source})
        output.line(f"{added['source']} is trusted in {project['name']}; {_approved(added['approved'])}")
    else:
        query = urlencode({"project_id": project["id"], "source": options.source})
        removed = client.delete(f"/api/trust?{query}")
        output.line(f"{removed['source']} is no longer trusted in {project['name']}; what was approved stays approved")
    return 0


def _check(options: argparse.Namespace) -> None:
    if not options.source:
        raise Misuse(f"missing SOURCE (usage: claude-mem trust {options.what} SOURCE)")
    if person.speaker() != USER:
        raise CannotDo("only a person decides which sources are trusted", hint="run this command in your own terminal")


def _approved(count: int) -> str:
    return f"{count:,} held {'memory' if count == 1 else 'memories'} approved"


def _list(items: list[dict[str, Any]], options: argparse.Namespace) -> int:
    if options.json:
        output.json_lines(items)
    elif items:
        output.table(("project", "source", "since"), [(i["project"], i["source"], output.when(i["at"])) for i in items])
    else:
        output.say("no source is trusted yet; `claude-mem trust add gh` trusts `gh` in this folder's project")
    return 0
