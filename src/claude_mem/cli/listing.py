"""list, show, why, cost, compress: print memories and costs, and try a model on one turn."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from msgspec import UNSET

from claude_mem.cli import output, provenance
from claude_mem.cli.search import VALIDITIES, check_project, whole_number
from claude_mem.client import Client
from claude_mem.config import load_lenient
from claude_mem.domain.errors import InvalidRequest, NotFound
from claude_mem.domain.memory_items import MemoryItem, MemoryUses
from claude_mem.domain.reports import LedgerGroup, PreviewedDigest, TurnPreview
from claude_mem.domain.text import shorten
from claude_mem.recall import line_history
from claude_mem.system import process
from claude_mem.worker.http.schemas.health import COMPRESS, SHOW_COST, CompressRequest, CostQuery, CostReport

GROUPS = ("day", "month", "project", "model", "session", "verdict")
COMPRESS_SECONDS = 90.0
WHY_ITEMS = 3  # printed in full
_PLACE = re.compile(r"(?P<file>.+):(?P<line>[^:/\\]+)")
KINDS = ("observations", "summaries", "prompts", "sessions", "projects")


def add_commands(commands: Any) -> None:
    """Add `list`, `show`, `why`, `cost` and `compress`."""
    _add_list(commands)
    _add_show_and_why(commands)
    _add_cost_and_compress(commands)


def _add_list(commands: Any) -> None:
    listing = commands.add_parser("list", help="list memories, sessions or projects, newest first")
    listing.add_argument("kind", nargs="?", choices=KINDS, default="observations", help="default: observations")
    listing.add_argument("--project", default="", metavar="P", help="only this project")
    listing.add_argument("--type", default="", metavar="T", help="only observations of this type: rule, decision, …")
    listing.add_argument(
        "--validity", choices=VALIDITIES, default="", help="only observations of this validity (docs/living.md)"
    )
    listing.add_argument(
        "-n", "--limit", type=whole_number(1, 100), default=20, metavar="N",
        help="number of rows (default: 20, maximum: 100)",
    )  # fmt: skip
    listing.add_argument("--json", action="store_true", help="print one JSON object per line")
    listing.set_defaults(run=list_)


def _add_show_and_why(commands: Any) -> None:
    show_ = commands.add_parser(
        "show",
        help="print observations, summaries and prompts in full",
        epilog="A summary (S12) includes the agent's closing message, verbatim, as Markdown.",
    )
    show_.add_argument(
        "ids", nargs="+", type=_parse_id, metavar="ID", help="12 (observation), S12 (summary) or P12 (prompt)"
    )
    show_.add_argument("--json", action="store_true", help="print one JSON object per line")
    show_.set_defaults(run=show)
    why_ = commands.add_parser(
        "why",
        help="show which work wrote a line of code, and the prompt that asked for it",
        epilog="Without a line, what is remembered about the file's code is shown, the newest first. Lines are"
        " recognized by their content, also after the file was renamed. FILE:LINE:COLUMN is understood, too.",
    )
    why_.add_argument("place", metavar="FILE[:LINE]", help="a file of the current project, such as src/app.py:12")
    why_.add_argument("--json", action="store_true", help="print one JSON object")
    why_.set_defaults(run=why)


def _add_cost_and_compress(commands: Any) -> None:
    cost_ = commands.add_parser("cost", help="show the requests to models, their tokens and their cost")
    cost_.add_argument("--by", choices=GROUPS, default="day", help="group by (default: day)")
    cost_.add_argument(
        "--days", type=whole_number(1, 3660), default=30, metavar="N", help="only the last N days (default: 30)"
    )
    cost_.add_argument("--json", action="store_true", help="print one JSON object per line")
    cost_.set_defaults(run=cost)
    compress_ = commands.add_parser(
        "compress", help="try a model on one turn, and compare its wording with the draft made without a model"
    )
    compress_.add_argument("what", metavar="SESSION|TRANSCRIPT", help="a session (number or id), or a transcript file")
    compress_.add_argument("--provider", default="", metavar="NAME", help="default: the setting `provider`")
    compress_.add_argument("--turn", type=int, default=0, metavar="N", help="turn (default: the last one with work)")
    compress_.add_argument("--dry-run", action="store_true", help="show what would be sent; send nothing")
    compress_.add_argument("--json", action="store_true", help="print one JSON object")
    compress_.set_defaults(run=compress)


def _parse_id(text: str) -> tuple[str, int]:
    """Split an ID into the kind of record and its number."""
    match = re.fullmatch(r"([#SP]?)([0-9]{1,15})", text.upper())
    if not match:
        raise argparse.ArgumentTypeError(f"invalid ID {text!r}; use 12, S12 or P12")
    return _KIND_BY_PREFIX[match[1]], int(match[2])


def _client() -> Client:
    return Client(process.ensure_worker(load_lenient().config.data_dir))


def list_(options: argparse.Namespace) -> int:
    """List memories, sessions or projects, newest first."""
    if (options.type or options.validity) and options.kind != "observations":
        name = "type" if options.type else "validity"
        raise InvalidRequest(
            f"{options.kind} have no {name}", hint="only observations do: `claude-mem list --type rule`"
        )
    query = {} if options.kind == "projects" else {"limit": options.limit, "project": options.project}
    query |= {name: value for name in ("type", "validity") if (value := getattr(options, name))}
    client = _client()
    answer = client.get(f"/api/{options.kind}", **query)
    items = answer["items"]
    if not items:
        check_project(client, options.project)
    if options.json:
        provenance.json_lines(items)
    elif not items:
        output.info(f"no {options.kind} yet")
    else:
        columns, rows = _TABLES[options.kind]
        provenance.warn_if_held(items)
        output.table(columns, [rows(item) for item in items])
        provenance.print_note(items)
        if answer.get("hasMore"):
            more = f"use `-n {min(2 * options.limit, 100)}`, or find" if options.limit < 100 else "find"
            output.info(f"there are more {options.kind}: {more} them with `claude-mem search`")
    return 0


def _single_line(text: str) -> str:
    """Join the lines of a text, to fit into one cell."""
    return " ".join(text.split())


_TABLES: dict[str, tuple[tuple[str, ...], Any]] = {
    "observations": (
        ("id", "when", "project", "type", "title"),
        lambda row: (
            row["id"], output.format_age(row["created_at"]), row["project"], row["type"],
            f"{row['title'] or ''}{provenance.trust_mark(row)}",
        ),
    ),
    "summaries": (
        ("id", "when", "project", "requested", "outcome", "completed"),
        lambda row: (
            row["id"], output.format_age(row["created_at"]), row["project"], _single_line(row["request"] or ""),
            row["outcome"], f"{_single_line(row['completed'] or '')}{provenance.trust_mark(row)}",
        ),
    ),
    "prompts": (
        ("id", "when", "project", "prompt"),
        lambda row: (row["id"], output.format_age(row["created_at"]), row["project"], _single_line(row["text"])),
    ),
    "sessions": (
        ("id", "when", "project", "agent", "status", "prompts", "title"),
        lambda row: (
            row["id"], output.format_age(row["last_event_at"]), row["project"], row["host"], row["status"],
            row["prompt_counter"], row["title"] or "",
        ),
    ),
    "projects": (
        ("id", "name", "sessions", "observations", "last seen", "root"),
        lambda row: (
            row["id"], row["name"], row["sessions"], row["observations"], output.format_age(row["last_event_at"]),
            row["root"],
        ),
    ),
}  # fmt: skip


def show(options: argparse.Namespace) -> int:
    """Print records in full."""
    rows = _fetch(_client(), options.ids)
    items = list(rows.values())
    if options.json:
        provenance.json_lines(items)
    else:
        provenance.warn_if_held(items)
        for item in items:
            _SHOW[item["kind"]](item)
        provenance.print_note(items)
    if missing := [_NAMES[kind].format(number) for kind, number in options.ids if (kind, number) not in rows]:
        raise NotFound(f"no {', no '.join(missing)}", hint="find IDs with `claude-mem list` or `claude-mem search`")
    return 0


def _fetch(client: Client, ids: Sequence[tuple[str, int]]) -> dict[tuple[str, int], MemoryItem]:
    """Return the rows that exist, in the order of `ids`."""
    numbers = [number for kind, number in ids if kind == "observation"]
    rows = client.post("/api/observations/batch", {"ids": numbers})["items"] if numbers else []
    by_id = {("observation", row["id"]): row for row in rows}
    for kind, number in ids:
        if kind != "observation":
            with suppress(NotFound):
                by_id[kind, number] = client.get(f"/api/{kind}/{number}")
    return {id_: by_id[id_] for id_ in ids if id_ in by_id}


def _show_observation(item: MemoryItem) -> None:
    output.line(f"#{item['id']} {item['title']}{provenance.trust_mark(item)}")
    output.line(f"   {item['type']} · {item['project']} · {output.format_age(item['created_at'])}")
    for text in (item["subtitle"], item["narrative"]):
        if text:
            output.text(text, indent="   ")
    for fact in item["facts"]:
        output.text(fact, indent="     ", first="   - ")
    lists = {"files read": item["files_read"], "files modified": item["files_modified"], "concepts": item["concepts"]}
    for name, parts in lists.items():
        if parts:
            output.line(f"   {name}: {', '.join(parts)}")
    if state := line_history.describe_state(item):
        output.line(f"   {state}")
    _show_uses(item.get("uses"))
    if item["summary_id"]:
        output.line(f"   closing message of the turn: claude-mem show S{item['summary_id']}")
    output.line()


def _show_uses(uses: MemoryUses | None) -> None:
    """Print how often an observation was shown to sessions, how it was used, and why it is no longer shown."""
    if not uses or not uses["shown"]:
        return
    parts = [
        f"{each['shown']} at {each['trigger']}" + (f" ({', '.join(each['kinds'])})" if each["kinds"] else "")
        for each in uses["triggers"]
    ]
    output.line(f"   shown to sessions {uses['shown']} times, used {uses['used']} times: {'; '.join(parts)}")
    if uses["left"]:
        output.line("   left the start context: shown that often and never used; `claude-mem pin` brings it back")


def why(options: argparse.Namespace) -> int:
    """Print the observations whose work wrote a line of code, with the prompts that asked for it."""
    file, line = _parse_place(options.place)
    params = {"cwd": str(Path.cwd()), "file": str(Path.cwd() / file), "line": str(line)}
    result = _client().get("/api/why", **params)
    if options.json:
        output.json(result)
        return 0
    items = result["items"]
    provenance.warn_if_held(items)
    if not items:
        output.line(f"No memory is anchored at {result['file']}.")
        return 1
    if line:
        output.line(f"{result['file']}:{line} {result['text']}")
        output.line(line_history.MATCHES[result["match"]])
    output.line()
    for item in items[:WHY_ITEMS]:
        if item["prompt"]:
            output.text(shorten(item["prompt"], 300), indent="   ", first=" ❯ ")
        _show_observation(item)
    if items[WHY_ITEMS:]:
        output.line(f"{result['total'] - WHY_ITEMS} more (`claude-mem show ID` prints one):")
        for item in items[WHY_ITEMS:]:
            output.line(f"  #{item['id']} {shorten(item['title'], 120)}{provenance.trust_mark(item)}")
        if unlisted := result["total"] - len(items):
            output.line(f"  and {unlisted} older")
    return 0


def _parse_place(place: str) -> tuple[str, int]:
    """Return the file and line of `FILE`, `FILE:LINE` or, as `grep` and compilers print it, `FILE:LINE:COLUMN`; line 0
    if there is none."""
    if Path(place).is_file():  # a colon is part of its name
        return place, 0
    match = _PLACE.fullmatch(place.removesuffix(":"))
    if match and not Path(match["file"]).is_file() and (shorter := _PLACE.fullmatch(match["file"])):
        match = shorter  # behind the line is a column
    if match is None:
        return place, 0
    if not match["line"].isdecimal() or int(match["line"]) == 0:
        raise InvalidRequest(f"{match['line']!r} is not the number of a line", hint="write FILE or FILE:LINE")
    return match["file"], int(match["line"])


def _show_summary(item: MemoryItem) -> None:
    """Print a summary, with the closing message last and unindented: it is Markdown and can be rendered as such."""
    output.line(f"S{item['id']} {item['request'] or 'Summary of a turn'}{provenance.trust_mark(item)}")
    outcome = [item["outcome"]] if item["outcome"] else []
    output.line("   " + " · ".join(["summary", *outcome, item["project"], output.format_age(item["created_at"])]))
    fields: Mapping[str, Any] = item
    for name in ("completed", "investigated", "learned", "next_steps", "notes"):
        if fields[name]:
            output.text(fields[name], indent="   ", first=f"   {name.replace('_', ' ')}: ")
    if item["closing"]:
        output.text(f"\nclosing message{provenance.closing_trust_mark(item)}:\n\n{item['closing']}")
    output.line()


def _show_prompt(item: MemoryItem) -> None:
    output.line(
        f"P{item['id']} prompt {item['prompt_number']} · {item['project']} · {output.format_age(item['created_at'])}"
    )
    output.text(f"\n{item['text']}\n")


_KIND_BY_PREFIX = {"": "observation", "#": "observation", "S": "summary", "P": "prompt"}
_NAMES = {"observation": "observation {}", "summary": "summary S{}", "prompt": "prompt P{}"}
_SHOW = {"observation": _show_observation, "summary": _show_summary, "prompt": _show_prompt}


def cost(options: argparse.Namespace) -> int:
    """Print the requests to models, their tokens and their cost."""
    report = _client().call(SHOW_COST, CostQuery(by=options.by, days=options.days))
    if options.json:
        output.json_lines(report.items)
        return 0
    if report.items:
        columns = (options.by, "requests", "failed", "tokens in", "from cache", "tokens out", "cost")
        total = LedgerGroup(name="all", **{name: sum(getattr(item, name) for item in report.items) for name in _SUMS})
        output.table(columns, [_cost_row(row) for row in [*report.items, total]])
    else:
        output.line(f"no requests to a model in the last {options.days} days")
    _show_budget(report)
    return 0


_SUMS = ("requests", "failed", "input_tokens", "cached_tokens", "output_tokens", "cost")


def _cost_row(row: LedgerGroup) -> tuple[str, ...]:
    counts = [f"{getattr(row, name):,}" for name in _SUMS[:-1]]
    return (str(row.name), *counts, output.format_dollars(row.cost))


def _show_budget(report: CostReport) -> None:
    off = "off (no model configured; to choose one: `claude-mem config set provider NAME`)"
    output.line(f"refining      {', '.join(report.providers) or off}")
    output.line(f"today         {report.today_tokens:,} of {report.daily_tokens:,} tokens")
    spent, limit = output.format_dollars(report.month_cost), output.format_dollars(report.monthly_cost)
    output.line(f"this month    {spent} of {limit}")
    if report.waiting:
        output.line(f"waiting       {report.waiting:,} turns")
    if report.problem:
        output.line(f"problem       {report.problem}")
    for row in report.paused:
        output.line(f"paused        {row.provider}: {row.verdict}: {row.message}")


def compress(options: argparse.Namespace) -> int:
    """Try a model on one turn, and show its wording beside the draft."""
    path = Path(options.what)
    is_file = path.is_file()
    request = CompressRequest(
        path=str(path.resolve()) if is_file else "",
        session="" if is_file else options.what,
        turn=options.turn,
        provider=options.provider,
        dry_run=options.dry_run,
    )
    worker = process.ensure_worker(load_lenient().config.data_dir)
    result = Client(worker, seconds=COMPRESS_SECONDS).call(COMPRESS, request)
    if options.json:
        output.json(result)
    else:
        _show_comparison(result)
    return 0 if result.verdict in (UNSET, "ok", "empty") else 1


def _show_comparison(result: TurnPreview) -> None:
    if result.usage is UNSET or result.cost is UNSET:
        output.text(format_dry_run(result))
        return
    usage = result.usage
    output.line(f"{result.provider} {result.model}: {result.verdict} {result.message}".rstrip())
    output.line(f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out, {output.format_dollars(result.cost)}")
    refined = _format_digest(result.refined) if result.refined else "(the draft is kept)"
    output.side_by_side(("without a model", _format_digest(result.local)), ("with the model", refined))


def format_dry_run(preview: TurnPreview) -> str:
    """Format what would be sent, and the draft that is written without sending anything."""
    max_tokens = preview.request.tokens_at_most
    parts = (
        (
            f"instructions (whole request and reply: at most {max_tokens:,} tokens)",
            preview.request.system,
        ),
        ("the turn", preview.request.prompt),
        ("written without a model", _format_digest(preview.local)),
    )
    return "\n".join(f"--- {title} {'-' * max(3, 95 - len(title))}\n{text.strip()}\n" for title, text in parts)


def _format_digest(digest: PreviewedDigest) -> str:
    """Format observations and summary of a turn as text."""
    lines = []
    for item in digest.observations:
        lines.append(f"● [{item.type}] {item.title}")
        lines += [f"  {text}" for text in (item.subtitle, item.narrative) if text]
        lines += [f"  - {fact.text}" for fact in item.facts]
        lines += [f"  files: {', '.join(item.files_modified)}"] if item.files_modified else []
        lines.append("")
    for name, text in (asdict(digest.summary) if digest.summary else {}).items():
        if text and isinstance(text, str):
            lines.append(f"{name.replace('_', ' ')}: {text}")
    return "\n".join(lines) or "(nothing)"
