"""audit: check the guarantees, and print the log of exports, injections and deletions."""

from __future__ import annotations

import argparse
from typing import Any

from claude_mem.cli import output
from claude_mem.client import Client
from claude_mem.config import load_lenient
from claude_mem.domain.errors import InvalidRequest
from claude_mem.domain.text import local_time
from claude_mem.system import process
from claude_mem.worker.http.endpoints import NoFields
from claude_mem.worker.http.schemas.deletion import RUN_CHECKS, SHOW_AUDIT_LOG, AuditLogQuery

SECONDS = 600.0
_OWN = ("n", "at", "what", "prev", "hash")


def add_commands(commands: Any) -> None:
    """Add `audit`."""
    audit_ = commands.add_parser(
        "audit",
        help="check claude-mem's guarantees; `audit log` lists exports, injections and deletions",
        epilog="Exits with 1 if a check fails. The log contains names, numbers and hashes, never content.",
    )
    audit_.add_argument("what", nargs="?", choices=("check", "log"), default="check", help="default: check")
    audit_.add_argument("--verify", action="store_true", help="log: verify the whole hash chain")
    audit_.add_argument("-n", "--lines", type=int, default=50, metavar="N", help="log: number of entries (default: 50)")
    audit_.add_argument("--json", action="store_true", help="print one JSON object per line")
    audit_.set_defaults(run=audit)


def audit(options: argparse.Namespace) -> int:
    """Run the checks of `claude-mem audit`, or list the audit log."""
    client = Client(process.ensure_worker(load_lenient().config.data_dir), seconds=SECONDS)
    if options.what == "log":
        return _log(client, options)
    if options.verify:
        raise InvalidRequest("`--verify` works only with `audit log`", hint="run `claude-mem audit log --verify`")
    report = client.call(RUN_CHECKS, NoFields())
    if options.json:
        output.json_lines(report.items)
        return 0 if report.ok else 1
    rows = [("ok" if item.ok else "BAD", item.name, item.found) for item in report.items]
    output.table(("", "check", "result"), rows)
    for item in report.items:
        if item.hint:
            output.info(f"{item.name}: {item.hint}")
    return 0 if report.ok else 1


def _log(client: Client, options: argparse.Namespace) -> int:
    log = client.call(SHOW_AUDIT_LOG, AuditLogQuery(limit=0 if options.verify else max(options.lines, 0)))
    verification = {"lines": log.lines, "wrong": log.wrong}
    if options.json:
        output.json_lines([verification] if options.verify else log.items)
    else:
        for entry in log.items:
            output.line(_format_entry(entry))
        if not log.lines and not log.wrong:
            output.line("the audit log is empty: nothing was exported, injected or deleted yet")
        elif options.verify and not log.wrong:
            output.line(f"{log.lines:,} entries, hash chain intact, none missing")
    for problem in log.wrong:
        output.error(problem)
    return 1 if log.wrong else 0


def _format_entry(entry: dict[str, Any]) -> str:
    facts = [f"{name}={item}" for name, item in entry.items() if name not in _OWN and item not in (None, "")]
    return f"{entry['n']:>6}  {local_time(entry['at']):%Y-%m-%d %H:%M:%S}  {entry['what']:<10} {'  '.join(facts)}"
