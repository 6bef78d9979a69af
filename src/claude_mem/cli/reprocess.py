"""reprocess: rewrite memories of earlier versions with the current writer."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, replace

from claude_mem.cli import output
from claude_mem.cli.backfill import parse_date_option, poll_status
from claude_mem.client import Client
from claude_mem.config import Config, load_lenient
from claude_mem.domain.reports import FailedTurn
from claude_mem.system import process
from claude_mem.worker.http.schemas.transfer import (
    SHOW_REPROCESS,
    START_REPROCESS,
    ReprocessQuery,
    ReprocessQueued,
    ReprocessRequest,
)

CONTINUES = "reprocessing continues in the background; `claude-mem status` shows how many turns are left"
KEPT_REASONS = {
    "events_gone": "their raw events were purged, and no transcript has them",
    "a_persons": "a person has edited, judged, pinned or forgotten something in them",
    "a_models": "they were refined by a model",
}


def add_commands(commands: Any) -> None:
    """Add `reprocess`."""
    add = commands.add_parser(
        "reprocess",
        help="rewrite memories of earlier versions with this version",
        epilog="The worker does this automatically after an upgrade, a few turns at a time, without a model. Memories"
        " that a person has changed or a model has refined are kept as they are.",
    )
    add.add_argument("--project", metavar="P", help="only this project: its name or a directory in it")
    add.add_argument("--since", metavar="T", help="only turns that ended after this date or time")
    add.add_argument("--dry-run", action="store_true", help="count the turns that would be rewritten; change nothing")
    add.add_argument("--json", action="store_true", help="print one JSON object")
    add.set_defaults(run=reprocess)


def reprocess(options: argparse.Namespace) -> int:
    """Compose existing records again with the current writer."""
    config = load_lenient().config
    since = parse_date_option(options.since)
    query = ReprocessQuery(**_project(options.project), since=since)
    client = Client(process.ensure_worker(config.data_dir), seconds=60)
    plan = client.call(START_REPROCESS, ReprocessRequest(**asdict(query), dry_run=options.dry_run))
    failed: list[FailedTurn] = []
    events_gone = plan.events_gone
    if plan.asked:
        try:
            failed = _watch(client, config, query, plan.asked)
            events_gone = client.call(START_REPROCESS, ReprocessRequest(**asdict(query), dry_run=True)).events_gone
        except KeyboardInterrupt:
            output.info("")
            output.info(CONTINUES)
            return 130
    newly_gone = max(0, events_gone - plan.events_gone)  # turns whose transcript contained less than expected
    rewritable = plan.rewritable - newly_gone
    _report(replace(plan, rewritable=rewritable, events_gone=events_gone), failed, options)
    return 1 if failed else 0


def _project(value: str | None) -> dict[str, str]:
    """Return the parameter for a project: a directory if it is one, else a name."""
    if not value:
        return {}
    path = Path(value).expanduser()
    return {"cwd": str(path.resolve())} if os.sep in value or path.is_dir() else {"project": value}


def _watch(client: Client, config: Config, query: ReprocessQuery, total: int) -> list[FailedTurn]:
    """Wait until all turns are rewritten, and return those that failed."""
    with output.progress() as advance:
        for status in poll_status(client, config, SHOW_REPROCESS, query):
            advance("rewriting turns", max(0, total - status.left), total)
            if not status.left:
                break
    return list(status.failed)


def _report(plan: ReprocessQueued, failed: list[FailedTurn], options: argparse.Namespace) -> None:
    kept_counts = {name: getattr(plan, name) for name in KEPT_REASONS}
    rewritten_count = 0 if options.dry_run else plan.rewritable - len(failed)
    if options.json:
        output.json(
            {"rewritable": plan.rewritable, "rewritten": rewritten_count, "kept": kept_counts, "failed": failed}
        )
        return
    if options.dry_run:
        output.line(f"would rewrite {output.plural(plan.rewritable, 'turn')}")
    else:
        output.line(f"rewrote {output.plural(rewritten_count, 'turn')}")
    for name, count in kept_counts.items():
        if count:
            output.line(f"kept {output.plural(count, 'turn')} unchanged: {KEPT_REASONS[name]}")
    for job in failed:
        output.line(f"turn {job.turn} could not be rewritten: {job.error}")
