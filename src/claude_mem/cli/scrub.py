"""scrub: today's rules for secrets on what was stored before them."""

from __future__ import annotations

import argparse
import time
from typing import Any

from claude_mem import process
from claude_mem.cli import output
from claude_mem.cli.move import mention_exports
from claude_mem.client import Client
from claude_mem.config import load_forgiving
from claude_mem.errors import CannotDo

SECONDS = 60.0
LOOK_SECONDS = 0.1
NAMES = {
    "user_prompts": "prompts", "session_summaries": "summaries", "sdk_sessions": "sessions", "attic": "forgotten",
    "passages": "texts of the index", "signals": "words of the index", "history": "earlier versions",
    "aside": "files set aside",
}  # fmt: skip


def add_commands(commands: Any) -> None:
    scrub_ = commands.add_parser(
        "scrub",
        help="apply today's rules for secrets to everything that is stored already, backups too",
        epilog="The worker does it, a little at a time; ^C only ends the watching. A second time changes nothing. What"
        " was exported, or sent to a model, is out of reach.",
    )
    scrub_.add_argument("--dry-run", action="store_true", help="only count what would change")
    scrub_.add_argument("--yes", action="store_true", help="never ask")
    scrub_.add_argument("--json", action="store_true", help="one JSON object")
    scrub_.set_defaults(run=scrub)


def scrub(options: argparse.Namespace) -> int:
    config = load_forgiving().config
    client = Client(process.start(config.data_dir), seconds=SECONDS)
    if not options.yes or options.dry_run:
        status = _run_job(client, dry_run=True)
        if options.dry_run or not status["changed"]:
            return _show(status, as_json=options.json)
        output.say(f"would change: {_amounts(status['changed'])}")
        if not output.ask("replace the secrets in them? It can't be undone"):
            output.say("nothing was changed (`--yes` does it without asking)")
            return 1
    code = _show(_run_job(client, dry_run=False), as_json=options.json)
    mention_exports(config)
    return code


def _run_job(client: Client, *, dry_run: bool) -> dict[str, Any]:
    status: dict[str, Any] = client.post("/api/scrub", {"dry_run": dry_run})
    with output.progress() as advance:
        while status["busy"] or status["dry_run"] != dry_run:
            advance("looking" if dry_run else "scrubbing", status["done"], status["total"], status["doing"])
            time.sleep(LOOK_SECONDS)
            status = client.get("/api/scrub")
            if not status["busy"] and status["dry_run"] != dry_run:  # another one was under way: now ours
                status = client.post("/api/scrub", {"dry_run": dry_run})
    if status["error"]:
        raise CannotDo(status["error"], hint="`claude-mem logs` may say more; what is done is done, run it again")
    return status


def _show(status: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        names = ("dry_run", "changed", "kept", "done")
        output.json({name: status[name] for name in names})
        return 0
    changed = _amounts(status["changed"]) or "nothing"
    output.line(f"{'would change' if status['dry_run'] else 'changed'}: {changed} (of {status['done']:,} looked at)")
    for copy in status["kept"]:
        output.say(f"still as it was: {copy}")
    return 0


def _amounts(changed: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {NAMES.get(name, name)}" for name, number in changed.items())
