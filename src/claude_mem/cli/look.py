"""list, show, cost, compress: what is remembered, what it cost, how it is made."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from claude_mem import process
from claude_mem.cli import held, output
from claude_mem.client import Client
from claude_mem.config import load_forgiving
from claude_mem.errors import Misuse, NotFound

GROUPS = ("day", "month", "project", "model", "session", "verdict")
COMPRESS_SECONDS = 90.0
KINDS = ("observations", "summaries", "prompts", "sessions", "projects")


def add_commands(commands: Any) -> None:
    listing = commands.add_parser("list", help="what is remembered, newest first")
    listing.add_argument("kind", nargs="?", choices=KINDS, default="observations", help="default: observations")
    listing.add_argument("--project", default="", help="only of this project")
    listing.add_argument("--type", default="", metavar="T", help="only observations of this type: rule, decision, …")
    listing.add_argument("-n", "--limit", type=int, default=20, help="how many (default: 20, at most 100)")
    listing.add_argument("--json", action="store_true", help="one JSON object a line")
    listing.set_defaults(run=list_)
    show_ = commands.add_parser(
        "show",
        help="observations in full, and what the agent said at the end of a turn",
        epilog="A summary (S12) is printed with the agent's closing message, word for word, as Markdown.",
    )
    show_.add_argument(
        "ids", nargs="+", type=_parse_id, metavar="ID", help="12 an observation, S12 a summary, P12 a prompt"
    )
    show_.add_argument("--json", action="store_true", help="one JSON object a line")
    show_.set_defaults(run=show)
    cost_ = commands.add_parser("cost", help="what models were asked to refine, and what it cost")
    cost_.add_argument("--by", choices=GROUPS, default="day", help="default: day")
    cost_.add_argument("--days", type=int, default=30, help="how far back (default: 30)")
    cost_.add_argument("--json", action="store_true", help="one JSON object a line")
    cost_.set_defaults(run=cost)
    compress_ = commands.add_parser(
        "compress", help="try a model on one turn: what is sent, what comes back, and the draft beside it"
    )
    compress_.add_argument("what", metavar="SESSION|TRANSCRIPT", help="a session (number or id), or a transcript file")
    compress_.add_argument("--provider", default="", help="as in the setting `provider` (default: what is set)")
    compress_.add_argument("--turn", type=int, default=0, help="which turn (default: the last with work in it)")
    compress_.add_argument("--dry-run", action="store_true", help="send nothing, only show what would be sent")
    compress_.add_argument("--json", action="store_true", help="one JSON object")
    compress_.set_defaults(run=compress)


def _parse_id(text: str) -> tuple[str, int]:
    """The kind and the number that an ID names."""
    match = re.fullmatch(r"([#SP]?)([0-9]{1,15})", text.upper())
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no ID: use 12, S12 or P12")
    return _KIND_BY_PREFIX[match[1]], int(match[2])


def _client() -> Client:
    """Looking needs a worker; whoever looks should not have to know that."""
    return Client(process.start(load_forgiving().config.data_dir))


def list_(options: argparse.Namespace) -> int:
    if options.type and options.kind != "observations":
        raise Misuse(f"{options.kind} have no type", hint="claude-mem list --type rule")
    query = {} if options.kind == "projects" else {"limit": options.limit, "project": options.project}
    query |= {"type": options.type} if options.type else {}
    items = _client().get(f"/api/{options.kind}", **query)["items"]
    if options.json:
        held.json_lines(items)
    elif not items:
        output.say(f"no {options.kind} yet")
    else:
        columns, rows = _TABLES[options.kind]
        held.warn(items)
        output.table(columns, [rows(item) for item in items])
        held.note(items)
    return 0


def _with_mark(row: dict[str, Any], name: str) -> str:
    return f"{row[name] or ''}{held.mark(row)}"


def _single_line(text: str) -> str:
    """A text of several lines for one cell."""
    return " ".join(text.split())


_TABLES: dict[str, tuple[tuple[str, ...], Any]] = {
    "observations": (
        ("id", "when", "project", "type", "title"),
        lambda row: (row["id"], output.when(row["created_at"]), row["project"], row["type"], _with_mark(row, "title")),
    ),
    "summaries": (
        ("id", "when", "project", "asked", "outcome", "done"),
        lambda row: (
            row["id"], output.when(row["created_at"]), row["project"], _single_line(row["request"] or ""), row["outcome"],
            f"{_single_line(row['completed'] or '')}{held.mark(row)}",
        ),
    ),
    "prompts": (
        ("id", "when", "project", "prompt"),
        lambda row: (row["id"], output.when(row["created_at"]), row["project"], _single_line(row["text"])),
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
    rows = _fetch(_client(), options.ids)
    items = list(rows.values())
    if options.json:
        held.json_lines(items)
    else:
        held.warn(items)
        for item in items:
            _SHOW[item["kind"]](item)
        held.note(items)
    if missing := [_NAMES[kind].format(number) for kind, number in options.ids if (kind, number) not in rows]:
        raise NotFound(f"no {', no '.join(missing)}", hint="`claude-mem list` shows what there is")
    return 0


def _fetch(client: Client, ids: Sequence[tuple[str, int]]) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows that exist, in the order asked for."""
    numbers = [number for kind, number in ids if kind == "observation"]
    rows = client.post("/api/observations/batch", {"ids": numbers})["items"] if numbers else []
    by_id = {("observation", row["id"]): row for row in rows}
    for kind, number in ids:
        if kind != "observation":
            with suppress(NotFound):
                by_id[kind, number] = client.get(f"/api/{kind}/{number}")
    return {id_: by_id[id_] for id_ in ids if id_ in by_id}


def _show_observation(item: dict[str, Any]) -> None:
    output.line(f"#{item['id']} {item['title']}{held.mark(item)}")
    output.line(f"   {item['type']} · {item['project']} · {output.when(item['created_at'])}")
    for name in ("subtitle", "narrative"):
        if item[name]:
            output.text(item[name], indent="   ")
    for fact in item["facts"]:
        output.text(fact, indent="     ", first="   - ")
    for name in ("files_read", "files_modified", "concepts"):
        if item[name]:
            output.line(f"   {name.replace('_', ' ')}: {', '.join(item[name])}")
    if item["summary_id"]:
        output.line(f"   closing message of its turn: claude-mem show S{item['summary_id']}")
    output.line()


def _show_summary(item: dict[str, Any]) -> None:
    """With the closing message last and unindented, so that it can be read or rendered as the Markdown it is."""
    output.line(f"S{item['id']} {item['request'] or 'What a turn did'}{held.mark(item)}")
    outcome = [item["outcome"]] if item["outcome"] else []
    output.line("   " + " · ".join(["summary", *outcome, item["project"], output.when(item["created_at"])]))
    for name in ("completed", "investigated", "learned", "next_steps", "notes"):
        if item[name]:
            output.text(item[name], indent="   ", first=f"   {name.replace('_', ' ')}: ")
    if item["closing"]:
        output.text(f"\nclosing message{held.closing_mark(item)}:\n\n{item['closing']}")
    output.line()


def _show_prompt(item: dict[str, Any]) -> None:
    output.line(f"P{item['id']} prompt {item['prompt_number']} · {item['project']} · {output.when(item['created_at'])}")
    output.text(f"\n{item['text']}\n")


_KIND_BY_PREFIX = {"": "observation", "#": "observation", "S": "summary", "P": "prompt"}
_NAMES = {"observation": "observation {}", "summary": "summary S{}", "prompt": "prompt P{}"}
_SHOW = {"observation": _show_observation, "summary": _show_summary, "prompt": _show_prompt}


def cost(options: argparse.Namespace) -> int:
    report = _client().get("/api/cost", by=options.by, days=options.days)
    if options.json:
        output.json_lines(report["items"])
        return 0
    if report["items"]:
        columns = (options.by, "requests", "failed", "tokens in", "from cache", "tokens out", "cost")
        output.table(columns, [_cost_row(row) for row in [*report["items"], _total(report["items"])]])
    else:
        output.line(f"no model was asked in the last {options.days} days")
    _show_budget(report)
    return 0


_SUMS = ("requests", "failed", "input_tokens", "cached_tokens", "output_tokens", "cost")


def _total(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": "all", **{name: sum(item[name] for item in items) for name in _SUMS}}


def _cost_row(row: dict[str, Any]) -> tuple[str, ...]:
    counts = [f"{row[name]:,}" for name in _SUMS[:-1]]
    return (str(row["name"]), *counts, output.dollars(row["cost"]))


def _show_budget(report: dict[str, Any]) -> None:
    provider_names = ", ".join(report["providers"]) or "nobody (`provider` names one; memories are made without)"
    output.line(f"refined by    {provider_names}")
    output.line(f"today         {report['today_tokens']:,} of {report['daily_tokens']:,} tokens")
    output.line(f"this month    {output.dollars(report['month_cost'])} of {output.dollars(report['monthly_cost'])}")
    if report["waiting"]:
        output.line(f"waiting       {report['waiting']:,} turns")
    if report["problem"]:
        output.line(f"problem       {report['problem']}")
    for row in report["paused"]:
        output.line(f"paused        {row['provider']}: {row['verdict']}: {row['message']}")


def compress(options: argparse.Namespace) -> int:
    path = Path(options.what)
    source = {"path": str(path.resolve())} if path.is_file() else {"session": options.what}
    params = {**source, "turn": options.turn, "provider": options.provider, "dry_run": options.dry_run}
    worker = process.start(load_forgiving().config.data_dir)
    result = Client(worker, seconds=COMPRESS_SECONDS).post("/api/compress", params)
    if options.json:
        output.json(result)
    else:
        _show_comparison(result)
    return 0 if result.get("verdict", "ok") in ("ok", "empty") else 1


def _show_comparison(result: dict[str, Any]) -> None:
    if "verdict" not in result:
        output.text(dry_text(result))
        return
    usage = result["usage"]
    output.line(f"{result['provider']} {result['model']}: {result['verdict']} {result['message']}".rstrip())
    output.line(
        f"{usage['input_tokens']:,} tokens in, {usage['output_tokens']:,} out, {output.dollars(result['cost'])}"
    )
    refined = _format_digest(result["refined"]) if result["refined"] else "(the draft stands)"
    output.beside(("without a model", _format_digest(result["local"])), ("with it", refined))


def dry_text(preview: dict[str, Any]) -> str:
    """What would be sent, and what is kept without sending it."""
    max_tokens = preview["request"]["tokens_at_most"]
    parts = (
        (
            f"instructions ({max_tokens:,} tokens at most with all that follows and the answer)",
            preview["request"]["system"],
        ),
        ("the turn", preview["request"]["prompt"]),
        ("kept without a model", _format_digest(preview["local"])),
    )
    return "\n".join(f"--- {title} {'-' * max(3, 95 - len(title))}\n{text.strip()}\n" for title, text in parts)


def _format_digest(digest: dict[str, Any]) -> str:
    """A digest as text."""
    lines = []
    for item in digest["observations"]:
        lines.append(f"● [{item['type']}] {item['title']}")
        lines += [f"  {item[name]}" for name in ("subtitle", "narrative") if item[name]]
        lines += [f"  - {fact['text']}" for fact in item["facts"]]
        lines += [f"  files: {', '.join(item['files_modified'])}"] if item["files_modified"] else []
        lines.append("")
    for name, text in (digest["summary"] or {}).items():
        if text and isinstance(text, str):
            lines.append(f"{name.replace('_', ' ')}: {text}")
    return "\n".join(lines) or "(nothing)"
