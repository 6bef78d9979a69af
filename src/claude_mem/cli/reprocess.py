"""reprocess: memories that earlier versions wrote, written again by this one."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from claude_mem import process
from claude_mem.cli import output
from claude_mem.cli.past import looks, moment
from claude_mem.client import Client
from claude_mem.config import Config, load_forgiving

ROUTE = "/api/reprocess"
GOES_ON = "the rest is rewritten in the background; `claude-mem status` shows how much is left"
KEPT = {
    "events_gone": "their raw events are no longer kept, and no transcript tells of them",
    "a_persons": "a person has edited, judged, pinned or forgotten something in them",
    "a_models": "a model has put them into words",
}


def add_commands(commands: Any) -> None:
    add = commands.add_parser(
        "reprocess",
        help="write memories of earlier versions again, as this version writes them",
        epilog="The worker does this by itself after an upgrade, a few turns at a time. No model is asked. What a"
        " person has touched and what a model has put into words stays as it is.",
    )
    add.add_argument("--project", metavar="P", help="only this project's: its name, or a folder in it")
    add.add_argument("--since", metavar="T", help="only turns that ended after this date or time")
    add.add_argument("--dry-run", action="store_true", help="say how many turns would be rewritten, change nothing")
    add.add_argument("--json", action="store_true", help="one JSON object")
    add.set_defaults(run=reprocess)


def reprocess(options: argparse.Namespace) -> int:
    config = load_forgiving().config
    params = {**_project(options.project), **_since(options.since)}
    client = Client(process.start(config.data_dir), seconds=60)
    plan = client.post(ROUTE, {**params, "dry_run": options.dry_run})
    failed: list[dict[str, Any]] = []
    events_gone = plan["events_gone"]
    if plan["asked"]:
        try:
            failed = _watch(client, config, params, plan["asked"])
            events_gone = client.post(ROUTE, {**params, "dry_run": True})["events_gone"]
        except KeyboardInterrupt:
            output.say("")
            output.say(GOES_ON)
            return 130
    rewritable = plan["rewritable"] - max(
        0, events_gone - plan["events_gone"]
    )  # a transcript may tell less than it seems
    _report({**plan, "rewritable": rewritable, "events_gone": events_gone}, failed, options)
    return 1 if failed else 0


def _project(value: str | None) -> dict[str, str]:
    """A folder if it is one, else a name."""
    if not value:
        return {}
    path = Path(value).expanduser()
    return {"cwd": str(path.resolve())} if os.sep in value or path.is_dir() else {"project": value}


def _since(value: str | None) -> dict[str, str]:
    """In milliseconds, as text."""
    at = moment(value)
    return {} if at is None else {"since": str(at)}


def _watch(client: Client, config: Config, params: dict[str, str], total: int) -> list[dict[str, Any]]:
    """Wait until all of it is rewritten; return what was given up."""
    with output.progress() as advance:
        for status in looks(client, config, f"{ROUTE}?{urlencode(params)}"):
            advance("rewriting turns", max(0, total - status["left"]), total)
            if not status["left"]:
                break
    return list(status["failed"])


def _report(plan: dict[str, Any], failed: list[dict[str, Any]], options: argparse.Namespace) -> None:
    kept_counts = {name: plan[name] for name in KEPT}
    rewritten_count = 0 if options.dry_run else plan["rewritable"] - len(failed)
    if options.json:
        output.json(
            {"rewritable": plan["rewritable"], "rewritten": rewritten_count, "kept": kept_counts, "failed": failed}
        )
        return
    text = (
        f"{plan['rewritable']:,} turn(s) would be rewritten"
        if options.dry_run
        else f"{rewritten_count:,} turn(s) rewritten"
    )
    output.line(text)
    for name, count in kept_counts.items():
        if count:
            output.line(f"{count:,} turn(s) stay as they are: {KEPT[name]}")
    for job in failed:
        output.line(f"turn {job['turn']} could not be rewritten: {job['error']}")
