"""list, show: what is remembered."""

from __future__ import annotations

import argparse
from typing import Any

from claude_mem import process
from claude_mem.cli import output
from claude_mem.client import Client
from claude_mem.config import load_forgiving
from claude_mem.errors import NotFound

KINDS = ("observations", "summaries", "prompts", "sessions", "projects")


def add_commands(commands: Any) -> None:
    listing = commands.add_parser("list", help="what is remembered, newest first")
    listing.add_argument("kind", nargs="?", choices=KINDS, default="observations", help="default: observations")
    listing.add_argument("--project", default="", help="only of this project")
    listing.add_argument("-n", "--limit", type=int, default=20, help="how many (default: 20, at most 100)")
    listing.add_argument("--json", action="store_true", help="one JSON object a line")
    listing.set_defaults(run=list_)
    show_ = commands.add_parser("show", help="observations in full")
    show_.add_argument("ids", nargs="+", type=int, metavar="ID", help="as in `claude-mem list`")
    show_.add_argument("--json", action="store_true", help="one JSON object a line")
    show_.set_defaults(run=show)


def _client() -> Client:
    """Looking needs a worker; whoever looks should not have to know that."""
    return Client(process.start(load_forgiving().config.data_dir))


def list_(options: argparse.Namespace) -> int:
    query = {} if options.kind == "projects" else {"limit": options.limit, "project": options.project}
    items = _client().get(f"/api/{options.kind}", **query)["items"]
    if options.json:
        output.json_lines(items)
    elif not items:
        output.say(f"no {options.kind} yet")
    else:
        columns, rows = _DRAWN[options.kind]
        output.table(columns, [rows(item) for item in items])
    return 0


_DRAWN: dict[str, tuple[tuple[str, ...], Any]] = {
    "observations": (
        ("id", "when", "project", "type", "title"),
        lambda row: (row["id"], output.when(row["created_at"]), row["project"], row["type"], row["title"]),
    ),
    "summaries": (
        ("id", "when", "project", "asked", "done"),
        lambda row: (
            row["id"], output.when(row["created_at"]), row["project"], row["request"] or "", row["completed"] or ""
        ),
    ),
    "prompts": (
        ("id", "when", "project", "prompt"),
        lambda row: (row["id"], output.when(row["created_at"]), row["project"], row["text"]),
    ),
    "sessions": (
        ("id", "when", "project", "host", "status", "prompts", "title"),
        lambda row: (
            row["id"], output.when(row["last_event_at"]), row["project"], row["host"], row["status"],
            row["prompt_counter"], row["title"] or "",
        ),
    ),
    "projects": (
        ("id", "name", "sessions", "observations", "last seen", "root"),
        lambda row: (
            row["id"], row["name"], row["sessions"], row["observations"], output.when(row["last_event_at"]), row["root"]
        ),
    ),
}  # fmt: skip


def show(options: argparse.Namespace) -> int:
    items = _client().post("/api/observations/batch", {"ids": options.ids})["items"]
    missing = sorted(set(options.ids) - {item["id"] for item in items})
    if options.json:
        output.json_lines(items)
    else:
        for item in items:
            _show_one(item)
    if missing:
        raise NotFound(f"no observation {', '.join(map(str, missing))}", hint="`claude-mem list` shows what there is")
    return 0


def _show_one(item: dict[str, Any]) -> None:
    output.line(f"#{item['id']} {item['title']}")
    output.line(f"   {item['type']} · {item['project']} · {output.when(item['created_at'])}")
    for name in ("subtitle", "narrative"):
        if item[name]:
            output.line(f"   {item[name]}")
    for fact in item["facts"]:
        output.line(f"   - {fact}")
    for name in ("files_read", "files_modified", "concepts"):
        if item[name]:
            output.line(f"   {name.replace('_', ' ')}: {', '.join(item[name])}")
    output.line()
