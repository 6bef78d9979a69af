"""search, timeline, context: find memories, and preview what agents are given."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from claude_mem.cli import output, provenance
from claude_mem.client import Client
from claude_mem.config import load_lenient
from claude_mem.digest import modes
from claude_mem.domain.errors import InvalidRequest, NotFound, OperationFailed
from claude_mem.domain.validity import Validity
from claude_mem.system import process, project_folders

KINDS = ("observation", "summary", "prompt", "turn")
ID_PREFIXES = {"observation": "", "summary": "S", "prompt": "P", "turn": "T"}
GROUPS = ("file", "session")
ORDERS = {"relevance": "relevance", "newest": "date_desc", "oldest": "date_asc"}
VALIDITIES = ("changed", *filter(None, Validity))
AT_SECONDS = 60.0  # all files that memories speak of are read from the repository
_JSON = "print one JSON object per line"


def add_commands(commands: Any) -> None:
    """Add `search`, `timeline` and `context`."""
    _add_search(commands)
    _add_timeline(commands)
    context_ = commands.add_parser(
        "context",
        help="preview the text that the next session, or a prompt, is given",
        epilog="Without options and with a hook payload on stdin, this is the hook that agents run at session start."
        " Anything else on stdin is ignored.",
    )
    context_.add_argument("--project", default="", metavar="NAME", help="project (default: the current directory's)")
    context_.add_argument("--prompt", default="", metavar="TEXT", help="show what a prompt is given in this work tree")
    context_.add_argument(
        "--at", default="", metavar="COMMIT", help="as it would be with the work tree at this commit (not checked out)"
    )
    context_.add_argument("--json", action="store_true", help="print one JSON object")
    context_.set_defaults(run=context)


def _add_search(commands: Any) -> None:
    search_ = commands.add_parser(
        "search",
        help="search memories by words and by meaning",
        epilog="Without words, the newest records are listed. --kind, --type, --concept, --validity and --file may be"
        " repeated to match any of the values. `claude-mem show ID` prints an observation in full, `claude-mem timeline"
        " ID` shows what happened around it.",
    )
    search_.set_defaults(run=search)
    add = search_.add_argument
    add("query", nargs="*", metavar="QUERY", help="words to search for; quotes are not needed")
    add("--project", default="", metavar="P", help="only this project (see `claude-mem list projects`)")
    add("--kind", action="append", choices=KINDS, help="only this kind of record")
    add("--type", action="append", metavar="T", help="only observations of this type: bugfix, feature, decision, …")
    add("--concept", action="append", metavar="C", help="only observations with this concept: gotcha, how-it-works, …")
    add("--validity", action="append", choices=VALIDITIES, help="only observations of this validity (docs/living.md)")
    add("--file", action="append", metavar="F", help="only records that read or changed this file or directory")
    add("--since", type=parse_date, metavar="DATE", help="only from this date on: 2026-01-31 or 2026-01-31T14:00")
    add("--until", type=parse_date, metavar="DATE", help="only up to this date, inclusive")
    add("--host", default="", metavar="H", help="only this agent: claude, codex, …")
    add("--session", default="", metavar="S", help="only this session, by the agent's session id")
    add(
        "-n",
        "--limit",
        type=whole_number(1, 100),
        default=20,
        metavar="N",
        help="number of results (default: 20, maximum: 100)",
    )
    add("--sort", choices=ORDERS, default="relevance", help="order of the best results (default: relevance)")
    add("--group", choices=GROUPS, default="", help="one result per file or session, each with its best records")
    add("--explain", action="store_true", help="show why each result matched")
    add("--json", action="store_true", help=_JSON)


def _add_timeline(commands: Any) -> None:
    timeline_ = commands.add_parser("timeline", help="show what happened before and after a record or a date")
    timeline_.add_argument(
        "anchor",
        nargs="?",
        default="",
        metavar="ANCHOR",
        help="12 (observation), S12 (summary), P12 (prompt) or a date (default: now)",
    )
    timeline_.add_argument("--query", default="", metavar="Q", help="use the best hit for these words as the anchor")
    timeline_.add_argument(
        "--before", type=whole_number(0, 50), default=5, metavar="N", help="records before it (default: 5)"
    )
    timeline_.add_argument(
        "--after", type=whole_number(0, 50), default=5, metavar="N", help="records after it (default: 5)"
    )
    timeline_.add_argument("--project", default="", metavar="P", help="only this project (default: the anchor's)")
    timeline_.add_argument("--json", action="store_true", help=_JSON)
    timeline_.set_defaults(run=timeline)


def parse_date(text: str) -> str:
    """Return the text if it is a date or a time; used as the type of an argument."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid date {text!r}; use 2026-01-31 or 2026-01-31T14:00") from None
    return text


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Return a function that reads a number in this range; used as the type of an argument."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,9}", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low:,} to {high:,}")
        return int(text)

    return read


def check_project(client: Client, name: str) -> None:
    """Raise `NotFound` if a project is named and there is none of that name."""
    names = sorted({project["name"] for project in client.get("/api/projects")["items"]}) if name else []
    if name and name not in names:
        near = get_close_matches(name, names, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`claude-mem list projects` shows all projects"
        raise NotFound(f"there is no project {name!r}", hint=hint)


def _client() -> Client:
    return Client(process.ensure_worker(load_lenient().config.data_dir))


# --- search ----------------------------------------------------------------------------------------------------------


def search(options: argparse.Namespace) -> int:
    """Search and print the hits."""
    client = _client()
    results = client.get("/api/search", **_search_params(options))
    if not results["items"]:
        check_project(client, options.project)
    if options.json and options.group:
        provenance.json_group_lines(results["items"])
    elif options.json:
        provenance.json_lines(results["items"])
    elif results["items"]:
        if options.group:
            _show_groups(results["items"], by=options.group)
        else:
            _show_hits(results["items"], explain=options.explain)
        if results["hasMore"]:
            output.info(f"more results: use `-n {min(2 * options.limit, 100)}`, or narrow the search")
    if not results["items"]:
        _explain_no_hits(options)
    return 0


def _search_params(options: argparse.Namespace) -> dict[str, object]:
    return {
        "query": " ".join(options.query),
        "project": options.project,
        "kind": ",".join(options.kind or ()),
        "obs_type": ",".join(options.type or ()),
        "concepts": ",".join(options.concept or ()),
        "validity": ",".join(options.validity or ()),
        "files": ",".join(options.file or ()),
        "dateStart": options.since,
        "dateEnd": options.until,
        "host": options.host,
        "session": options.session,
        "limit": options.limit,
        "orderBy": ORDERS[options.sort],
        "group": options.group,
        "explain": "1" if options.explain or not options.json else "",
    }


def _show_hits(items: list[dict[str, Any]], *, explain: bool) -> None:
    config = load_lenient().config
    icons = modes.type_icons(modes.load_mode_lenient(config.mode, config.modes)[0])
    columns = ("id", "when", "project", "type", "title", "tokens")
    rows = [_row(item, icons) for item in items]
    provenance.warn_if_held(items)
    if all("explain" in item and item["explain"]["meaning"] and not _has_words(item) for item in items):
        output.info("no memory has these words; these are the nearest in meaning")
    if explain:
        output.table((*columns, "why"), [(*row, explain_hit(item)) for row, item in zip(rows, items, strict=True)])
    else:
        output.table(columns, rows)
    provenance.print_note(items)


def _has_words(item: dict[str, Any]) -> bool:
    return bool(item["explain"]["terms"] or item["explain"]["signals"])


def _show_groups(groups: list[dict[str, Any]], *, by: str) -> None:
    """Print a line per file or session, and its best records below it."""
    config = load_lenient().config
    icons = modes.type_icons(modes.load_mode_lenient(config.mode, config.modes)[0])
    items = [item for group in groups for item in group["items"]]
    provenance.warn_if_held(items)
    rows: list[tuple[object, ...]] = []
    for group in groups:
        records = output.plural(group["count"], "record")
        rows.append(
            ("", output.format_age(group["created_at"]), group["project"], by, f"{group['key']} ({records})", "")
        )
        rows += [_row(item, icons) for item in group["items"]]
    output.table(("id", "when", "project", "type", "title", "tokens"), rows)
    provenance.print_note(items)


def _row(item: dict[str, Any], icons: dict[str, str]) -> tuple[object, ...]:
    sort = f"{icons.get(item['type'], '·')} {item['type']}" if item["type"] else item["kind"]
    return (
        f"{ID_PREFIXES[item['kind']]}{item['id']}", output.format_age(item["created_at"]), item["project"], sort,
        f"{item['title']}{provenance.trust_mark(item)}", item["tokens"] or "",
    )  # fmt: skip


def explain_hit(item: dict[str, Any]) -> str:
    """Describe which parts make up a hit's score. Without a query, only the date counts."""
    explanation = item["explain"]
    parts = [f"words {explanation['words']:.2f} ({', '.join(explanation['terms'])})"] if explanation["terms"] else []
    parts += [f"meaning {explanation['meaning']:.2f}"] if explanation["meaning"] else []
    parts += [f"exact match {', '.join(explanation['signals'])}"] if explanation["signals"] else []
    parts += ["confirmed by you"] if explanation["confirmed"] else []
    return "; ".join(parts) or "date"


def _explain_no_hits(options: argparse.Namespace) -> None:
    narrow = [
        f"--{name}"
        for name in ("project", "kind", "type", "concept", "validity", "file", "since", "until", "host", "session")
        if getattr(options, name)
    ]
    if narrow:
        output.info(f"no results; try without {' or '.join(narrow)}, or use other words")
    elif options.query:
        output.info("no results; try other or fewer words, or `claude-mem list` for the newest memories")
    else:
        output.info("no memories yet; run `claude-mem doctor` to check that sessions are captured")


# --- timeline --------------------------------------------------------------------------------------------------------


def timeline(options: argparse.Namespace) -> int:
    """Print what happened around a record or a date."""
    now = "" if options.query else datetime.now().isoformat()
    params = {
        "anchor": options.anchor or now,
        "query": options.query,
        "depth_before": options.before,
        "depth_after": options.after,
        "project": options.project,
    }
    if options.json:
        provenance.json_lines(_client().get("/api/timeline", **params)["items"])
    else:
        text = _client().get("/api/timeline", **params, format="text").rstrip("\n")
        provenance.warn_if_noted(text)
        output.text(text)
    return 0


# --- context ---------------------------------------------------------------------------------------------------------


def context(options: argparse.Namespace) -> int:
    """Print the text that the next session, or a prompt, is given."""
    if options.at:
        return _context_at(options)
    name = options.project or _current_project()
    where = {"project": options.project} if options.project else {"cwd": str(Path.cwd())}
    if options.prompt:
        answer = _client().post("/api/context/semantic", {"q": options.prompt, **where})
    else:
        answer = {"context": _client().get("/api/context/preview", **where)}
    if options.json:
        output.json({"project": name, **answer})
    elif answer["context"]:
        output.text(answer["context"].rstrip("\n"))
    else:
        output.info(f"nothing would be injected: no memory of {name} is close enough to that prompt")
    return 0


def _context_at(options: argparse.Namespace) -> int:
    """Print the start context at a commit."""
    if options.prompt:
        raise InvalidRequest("`--at` and `--prompt` exclude each other", hint="use one of them")
    where = {"project": options.project} if options.project else {"cwd": str(Path.cwd())}
    client = Client(process.ensure_worker(load_lenient().config.data_dir), seconds=AT_SECONDS)
    answer = client.get("/api/context/at", **where, at=options.at)
    if options.json:
        output.json(answer)
    else:
        output.info(f"{answer['project']} at {answer['commit'][:10]}")
        output.text(answer["context"].rstrip("\n"))
    return 0


def _current_project() -> str:
    here = project_folders.identify_project(str(Path.cwd()), excluded=load_lenient().config.excluded_projects)
    if not here.enabled:
        raise OperationFailed(
            f"memory is off in {Path.cwd()}; sessions here are given nothing",
            hint=f"check `{project_folders.OVERRIDE_FILE}` and the setting `excluded_projects`, or use --project",
        )
    return here.name
