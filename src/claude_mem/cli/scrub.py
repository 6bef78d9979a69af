"""scrub: apply the current redaction rules to data that was stored earlier."""

from __future__ import annotations

import argparse
import time
from typing import Any

from claude_mem.cli import output
from claude_mem.cli.transfer import remind_of_exports
from claude_mem.client import Client
from claude_mem.config import load_lenient
from claude_mem.domain.errors import OperationFailed
from claude_mem.system import process
from claude_mem.worker.http.endpoints import NoFields
from claude_mem.worker.http.schemas.deletion import SHOW_SCRUB, START_SCRUB, ScrubRequest, ScrubStatus

SECONDS = 60.0
LOOK_SECONDS = 0.1
NAMES = {
    "user_prompts": "prompts", "session_summaries": "summaries", "sdk_sessions": "sessions", "attic": "forgotten",
    "passages": "index texts", "signals": "index terms", "history": "earlier versions",
    "aside": "files set aside",
}  # fmt: skip


def add_commands(commands: Any) -> None:
    """Add `scrub`."""
    scrub_ = commands.add_parser(
        "scrub",
        help="redact secrets in everything stored so far, including backups",
        epilog="Applies the current redaction rules to existing data. The worker does this in the background; Ctrl-C"
        " only stops the progress display. Running it again changes nothing. Exports, and data already sent to a model,"
        " are not changed.",
    )
    scrub_.add_argument("--dry-run", action="store_true", help="only count what would change")
    scrub_.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    scrub_.add_argument("--json", action="store_true", help="print one JSON object")
    scrub_.set_defaults(run=scrub)


def scrub(options: argparse.Namespace) -> int:
    """Redact secrets in everything that is stored already."""
    config = load_lenient().config
    client = Client(process.ensure_worker(config.data_dir), seconds=SECONDS)
    if not options.yes or options.dry_run:
        status = _run_job(client, dry_run=True)
        if options.dry_run or not status.changed:
            return _show(status, as_json=options.json)
        output.info(f"would change: {_amounts(status.changed)}")
        if not output.ask("Redact the secrets in these records? (can't be undone)"):
            output.info("nothing was changed (use `--yes` to skip the question)")
            return 1
    code = _show(_run_job(client, dry_run=False), as_json=options.json)
    remind_of_exports(config)
    return code


def _run_job(client: Client, *, dry_run: bool) -> ScrubStatus:
    status = client.call(START_SCRUB, ScrubRequest(dry_run=dry_run))
    with output.progress() as advance:
        while status.busy or status.dry_run != dry_run:
            advance("checking" if dry_run else "scrubbing", status.done, status.total, status.doing)
            time.sleep(LOOK_SECONDS)
            status = client.call(SHOW_SCRUB, NoFields())
            if not status.busy and status.dry_run != dry_run:  # an earlier run has ended; start ours
                status = client.call(START_SCRUB, ScrubRequest(dry_run=dry_run))
    if status.error:
        raise OperationFailed(
            status.error, hint="see `claude-mem logs`, then run it again; finished records stay redacted"
        )
    return status


def _show(status: ScrubStatus, *, as_json: bool) -> int:
    if as_json:
        names = ("dry_run", "changed", "kept", "done")
        output.json({name: getattr(status, name) for name in names})
        return 0
    changed = _amounts(status.changed) or "nothing"
    output.line(f"{'would change' if status.dry_run else 'changed'}: {changed} (checked {status.done:,})")
    for copy in status.kept:
        output.info(f"not changed: {copy}")
    return 0


def _amounts(changed: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {NAMES.get(name, name)}" for name, number in changed.items())
