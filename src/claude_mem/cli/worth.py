"""worth: what memory is worth on this machine."""

from __future__ import annotations

import argparse
from typing import Any

from claude_mem.cli import output
from claude_mem.cli.search import parse_date
from claude_mem.client import Client
from claude_mem.config import load_lenient
from claude_mem.domain.worth import Estimate, Worth
from claude_mem.system import process
from claude_mem.worker.http.schemas.health import SHOW_WORTH, WorthQuery

TRIGGERS = {
    "start": "at session start",
    "prompt": "at a prompt",
    "file": "before a file",
    "command": "before a command",
    "failure": "after an error",
}


def add_commands(commands: Any) -> None:
    """Add `worth`."""
    worth_ = commands.add_parser(
        "worth",
        help="show what memory is worth here: what was shown, what was used, and the effect",
        epilog="docs/worth.md says what each figure means, and what it cannot show. The effect needs the setting"
        " `holdout`. Everything is computed and kept on this machine.",
    )
    worth_.add_argument("--project", default="", metavar="P", help="a project, by name (default: all)")
    worth_.add_argument("--since", type=parse_date, metavar="T", help="from this date or time on: 2026-01-31")
    worth_.add_argument("--json", action="store_true", help="print one JSON object")
    worth_.set_defaults(run=worth)


def worth(options: argparse.Namespace) -> int:
    """Print the figures."""
    client = Client(process.ensure_worker(load_lenient().config.data_dir))
    report = client.call(SHOW_WORTH, WorthQuery(project=options.project, since=options.since))
    if options.json:
        output.json(report)
        return 0
    _print_totals(report)
    if report.triggers:
        rows = [
            (TRIGGERS.get(each.trigger, each.trigger), f"{each.injections:,}", f"{each.shown:,}", f"{each.used:,}",
             f"{each.tokens:,}")
            for each in report.triggers
        ]  # fmt: skip
        output.line()
        output.table(("shown", "times", "items", "used", "tokens"), rows)
    output.line()
    _print_lift(report)
    _print_effect(report)
    return 0


def _print_totals(report: Worth) -> None:
    ways = ", ".join(f"{each.use} {each.items:,}" for each in report.uses)
    lines = [
        f"sessions           {report.sessions:,}, shown something {report.sessions_shown:,}, used something"
        f" {report.sessions_used:,}",
        f"items shown        {report.shown:,}, used {report.used:,}{share(report.used, report.shown)}",
        *([f"ways of use        {ways}"] if ways else []),
        f"warnings followed  {report.followed:,} of {report.warnings:,} (repeats forestalled)",
        f"read again         {report.characters_again:,} of {report.characters_read:,} characters that were read"
        " belong to files that an earlier session had read",
        f"tokens injected    {report.tokens:,}",
    ]
    for line in lines:
        output.line(line)


def _print_lift(report: Worth) -> None:
    lift, difference = report.lift, report.lift.difference
    if lift.own is None or lift.others is None or lift.p is None:
        output.line(f"lift: {too_little(difference, 'sessions whose events are kept')}")
        return
    output.line(
        f"lift: {lift.own:.0%} of the items were used by the session that saw them, {lift.others:.0%} by others:"
        f" {interval(difference)}, p = {lift.p:.3f}, {lift.sessions} sessions"
    )


def _print_effect(report: Worth) -> None:
    effect = report.holdout
    if not (effect.silent or effect.setting):
        output.line("effect: not measured; `claude-mem config set holdout 0.1` keeps one moment in ten silent")
        return
    output.line(
        f"effect: {effect.spoken:,} moments with memory, {effect.silent:,} silent; holdout = {effect.setting:g}"
    )
    for label, estimate, percent in (
        ("items used", effect.used, True),
        ("characters read before the first edit", effect.characters, False),
    ):
        is_known = estimate.value is not None
        text = interval(estimate, percent=percent) if is_known else too_little(estimate, "moments of each kind")
        output.line(f"  {label}: {text}")


def share(part: int, whole: int) -> str:
    """Return a part as a percentage in parentheses; "" of nothing."""
    return f" ({part / whole:.0%})" if whole else ""


def too_little(estimate: Estimate, what: str) -> str:
    """Return how much is missing for an estimate."""
    return f"too little to say: {estimate.samples} of at least {estimate.needed} {what}"


def interval(estimate: Estimate, *, percent: bool = True) -> str:
    """Return a difference with its 95 % interval."""
    value, low, high = (number or 0.0 for number in (estimate.value, estimate.low, estimate.high))
    if percent:
        return f"{value * 100:+.0f} points [{low * 100:+.0f}, {high * 100:+.0f}]"
    return f"{value:+,.0f} [{low:+,.0f}, {high:+,.0f}]"
