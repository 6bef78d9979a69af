"""backfill: what agents did before we were there, read from their own records of it."""

from __future__ import annotations

import argparse
import os
import stat
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claude_mem import process
from claude_mem.cli import output
from claude_mem.cli.run import database
from claude_mem.client import Client
from claude_mem.config import Config, load_forgiving
from claude_mem.errors import Misuse, NotFound, WorkerDown
from claude_mem.hosts import registry
from claude_mem.hosts.dialect import PROBLEMS, Head
from claude_mem.hosts.host import Host
from claude_mem.projects import Project, resolve
from claude_mem.text import milliseconds

ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
POLL_SECONDS = 0.2
PATHS_AT_ONCE = 5_000
RESTARTS = 5
MAX_PATHS_SHOWN = 10
# What was left out for a good reason; anything else that was not read is a failure, and the command says so.
EXPECTED_PROBLEMS = ("foreign", "empty", "project_off", "ours", "lines")
_HINTS = {
    **PROBLEMS,
    "failed": "`claude-mem logs` says why; asking again tries again",
    "lines": "read, but some lines could not be understood and were left out",
    "no_name": "its name is not text; rename it",
}
GOES_ON = (
    "the rest is read in the background: `claude-mem backfill` shows it again, `claude-mem backfill --stop` ends it"
)


@dataclass(frozen=True, slots=True)
class Chosen:
    path: Path
    host: Host | None
    head: Head = field(default_factory=Head)
    project: Project | None = None


@dataclass(slots=True)
class LeftOut:
    """Files that are not even asked for, by the reason."""

    counts: Counter[str] = field(default_factory=Counter)
    named: list[dict[str, Any]] = field(default_factory=list)

    def because(self, reason: str, path: Path) -> None:
        self.named.append({"path": _as_text(path), "problem": reason})


def add_commands(commands: Any) -> None:
    add = commands.add_parser("backfill", help="remember old sessions: read the agents' own records of them")
    add.add_argument("path", nargs="?", type=Path, help="a transcript or a folder of them (default: the usual places)")
    add.add_argument("--host", choices=sorted(registry.HOSTS), help="only this agent's")
    add.add_argument("--since", metavar="T", help="only sessions that went on after this date or time")
    add.add_argument("--until", metavar="T", help="only sessions that began before this date or time")
    add.add_argument("--project", metavar="P", help="only this project's: its name, or a folder in it")
    add.add_argument("--dry-run", action="store_true", help="show what would be read, change nothing")
    add.add_argument(
        "--refine", action="store_true", help="then let a model refine it, after saying what that may cost"
    )
    add.add_argument("--stop", action="store_true", help="leave the files unread that have not been begun")
    add.add_argument("--yes", action="store_true", help="never ask")
    add.add_argument("--json", action="store_true", help="one JSON object")
    add.set_defaults(run=backfill)


def backfill(options: argparse.Namespace) -> int:
    config = load_forgiving().config
    if options.stop:
        return _cancel(config)
    left_out = LeftOut()
    files = list(_select_files(options, config, left_out))
    if not files and not left_out.named and not left_out.counts:
        where = options.path or "the usual places"
        raise NotFound(f"no transcripts in {where}", hint="name a folder, such as ~/.claude/projects")
    if options.dry_run:
        return _show_plan(files, left_out, config, as_json=options.json)
    client = Client(process.start(config.data_dir), seconds=60)
    paths = [str(item.path) for item in files]
    if options.refine:
        _estimate(client, [])  # that no model is set up is better known before than after
    try:
        unchanged = _request_backfill(client, paths)
        status = _watch(client, config)
    except KeyboardInterrupt:
        output.say("")
        output.say(GOES_ON)
        return 130
    code = _report(
        status, len(files), unchanged, left_out, as_json=options.json, is_single_file=_is_one_file(options.path)
    )
    return _refine(client, paths, options) or code if options.refine else code


def on_disk(hosts: Sequence[Host]) -> tuple[int, int]:
    """How many old sessions these agents have kept in their usual places, and how many bytes."""
    sources = [host.transcripts for host in hosts if host.transcripts is not None]
    sizes = [_size(path) for transcripts in sources for path in transcripts.find(os.environ)]
    return len(sizes), sum(sizes)


def everything() -> int:
    """As `claude-mem backfill` does it, with nothing said."""
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    return backfill(parser.parse_args(["backfill"]))


def _cancel(config: Config) -> int:
    process.replace_outdated(config.data_dir)
    dropped = Client.of(config.data_dir).delete("/api/backfill")["dropped"]
    output.line(f"{dropped} file(s) will not be read; what was begun is finished")
    return 0


def _is_one_file(path: Path | None) -> bool:
    return path is not None and not path.expanduser().is_dir()


# --- which files -----------------------------------------------------------------------------------------------------


def _select_files(options: argparse.Namespace, config: Config, left_out: LeftOut) -> Iterator[Chosen]:
    since, until = moment(options.since), moment(options.until, end=True)
    project = _project(options.project, config) if options.project else None
    needs_head = options.dry_run or options.project or since is not None or until is not None
    for path, host in _candidates(options.path, left_out):
        owner = host or (registry.whose(path) if needs_head or options.host else None)
        if options.host and (owner is None or owner.name != options.host):
            left_out.counts["another agent's"] += 1
        elif not needs_head or owner is None:
            yield Chosen(path, owner)
        else:
            head = registry.head(owner, path)
            item = Chosen(path, owner, head, resolve(head.cwd, excluded=config.excluded_projects))
            if reason := _skip_reason(item, since, until, project):
                left_out.counts[reason] += 1
            else:
                yield item


def moment(text: str | None, *, end: bool = False) -> int | None:
    try:
        return milliseconds(text or "", end=end)
    except ValueError as error:
        raise Misuse(f"{text!r} is no date", hint="write it as 2026-01-31 or 2026-01-31T14:00") from error


def _project(value: str, config: Config) -> Project | str:
    """A folder if it is one, else a name."""
    path = Path(value).expanduser()
    return resolve(str(path), excluded=config.excluded_projects) if os.sep in value or path.is_dir() else value


def _skip_reason(item: Chosen, since: int | None, until: int | None, project: Project | str | None) -> str:
    assert item.project is not None
    if since is not None and item.head.ended < since:
        return "older than --since"
    if until is not None and item.head.began > until:
        return "later than --until"
    if isinstance(project, Project) and not set(project.every_identity) & set(item.project.every_identity):
        return "another project's"
    return "another project's" if isinstance(project, str) and item.project.name != project else ""


def _candidates(path: Path | None, left_out: LeftOut) -> Iterator[tuple[Path, Host | None]]:
    """Every session's file once; those of its subagents are read with it."""
    if path is None:
        for host in registry.HOSTS.values():
            if host.transcripts is not None:
                yield from ((file, host) for file in _with_text_names(host.transcripts.find(os.environ), left_out))
        return
    path = path.expanduser().absolute()
    if not path.is_dir():
        if not os.path.lexists(path):
            raise NotFound(f"no transcripts in {path}", hint="there is no such file or folder")
        yield path, None
        return
    owners = {file: registry.whose(file) for file in _with_text_names(_files_in(path, left_out), left_out)}
    parts = {part for file, host in owners.items() for part in _parts(file, host)}
    yield from ((file, host) for file, host in owners.items() if file not in parts)


def _with_text_names(files: Iterable[Path], left_out: LeftOut) -> Iterator[Path]:
    """Those whose names can be told: a name is bytes, and need not be text."""
    for file in files:
        if _as_text(file) == str(file):
            yield file
        else:
            left_out.because("no_name", file)


def _as_text(path: Path) -> str:
    return str(path).encode("utf-8", "replace").decode()


def _files_in(folder: Path, left_out: LeftOut) -> Iterator[Path]:
    """Links to folders are not followed: one may lead back."""
    trouble: list[OSError] = []
    for here, folders, names in os.walk(folder, onerror=trouble.append):
        folders.sort()
        yield from (Path(here, name) for name in sorted(names) if name.endswith(ENDINGS))
    for problem in trouble:
        left_out.because("unreadable", Path(problem.filename))


def _parts(file: Path, host: Host | None) -> Iterator[Path]:
    if host is not None and host.transcripts is not None:
        yield from (path for _, path in host.transcripts.agents(file))


# --- what would be read ----------------------------------------------------------------------------------------------


def _show_plan(files: Sequence[Chosen], left_out: LeftOut, config: Config, *, as_json: bool) -> int:
    unchanged = _unchanged(config, [item.path for item in files])
    groups: defaultdict[tuple[str, str], list[Chosen]] = defaultdict(list)
    for item in files:
        project = item.project.name if item.project else "?"
        groups[f"{project} (off)" if item.project and not item.project.enabled else project, _label(item)].append(item)
    rows = [_plan_row(*key, items, unchanged) for key, items in sorted(groups.items())]
    if as_json:
        output.json({"projects": rows, "left_out": left_out.counts, "problems": left_out.named})
        return 0
    columns = ("project", "agent", "sessions", "MB", "from", "to", "to be read")
    output.table(
        columns, [(*list(row.values())[:3], f"{row['bytes'] / 1e6:,.1f}", *_dates(row), row["new"]) for row in rows]
    )
    _show_left_out(left_out.counts)
    _show_problems(left_out.named)
    return 0


def _label(item: Chosen) -> str:
    return item.host.label if item.host else "nobody's"


def _plan_row(project: str, agent: str, items: Sequence[Chosen], unchanged: set[str]) -> dict[str, Any]:
    times = [moment for item in items for moment in (item.head.began, item.head.ended) if moment]
    return {
        "project": project,
        "agent": agent,
        "sessions": len({item.head.content_session_id or str(item.path) for item in items}),
        "bytes": sum(_size(item.path) for item in items),
        "from": min(times, default=None),
        "to": max(times, default=None),
        "new": sum(str(item.path) not in unchanged for item in items),
    }


def _dates(row: dict[str, Any]) -> tuple[str, str]:
    began, ended = (
        time.strftime("%Y-%m-%d", time.localtime(row[name] / 1000)) if row[name] else "?" for name in ("from", "to")
    )
    return began, ended


def _size(path: Path) -> int:
    try:
        about = path.stat()
    except OSError:
        return 0
    return about.st_size if stat.S_ISREG(about.st_mode) else 0


def _unchanged(config: Config, paths: Sequence[Path]) -> set[str]:
    """Those that need no reading, asked of the worker or, if none runs, of the database."""
    if process.running(config.data_dir) is not None:
        client = Client.of(config.data_dir, seconds=60)
        batches = [
            client.post("/api/backfill/look", {"paths": batch})["unchanged"] for batch in _in_batches(map(str, paths))
        ]
        return {path for batch in batches for path in batch}
    path = database(config)
    if not path.exists():
        return set()
    from claude_mem.store import backfills, foreign

    lock = process.take_lock(config.data_dir)
    try:
        with foreign.reading(path) as conn:  # ours, too, is only looked at
            has_table = "backfill_files" in foreign.columns(conn)  # else it has not been brought up to date yet
            return set(backfills.unchanged(conn, backfills.look(paths))) if has_table else set()
    finally:
        lock.release()


def _in_batches(paths: Iterable[str]) -> list[list[str]]:
    listed = list(paths)
    return [listed[begin : begin + PATHS_AT_ONCE] for begin in range(0, len(listed), PATHS_AT_ONCE)]


# --- doing it --------------------------------------------------------------------------------------------------------


def _request_backfill(client: Client, paths: Sequence[str]) -> int:
    """How many of them need no reading."""
    return sum(client.post("/api/backfill", {"paths": batch})["unchanged"] for batch in _in_batches(paths))


def _watch(client: Client, config: Config) -> dict[str, Any]:
    """Until all is read and digested: first the files, then the turns that are still left of them."""
    with output.progress(count=output.size) as advance:
        for status in looks(client, config, "/api/backfill"):
            file_count = status["read"] + status["skipped"]
            advance("reading", status["bytes_done"], status["bytes"], f"{file_count:,} of {status['files']:,} files")
            if not status["waiting"]:
                break
    with output.progress() as advance:
        for status in looks(client, config, "/api/backfill"):
            turns = max(status["new"]["turns"], status["digesting"])
            advance("digesting turns", turns - status["digesting"], turns)
            if not status["busy"]:
                break
    return status


def looks(client: Client, config: Config, path: str) -> Iterator[dict[str, Any]]:
    """How far it is, again and again. A worker that dies is started again: it goes on where it was."""
    restarts = 0
    while True:
        try:
            yield client.get(path)
            time.sleep(POLL_SECONDS)
        except WorkerDown:
            restarts += 1
            if restarts > RESTARTS:
                raise
            output.say("the worker has stopped; starting it again")
            client = Client(process.start(config.data_dir), seconds=60)


def _report(
    status: dict[str, Any], files: int, unchanged: int, left_out: LeftOut, *, as_json: bool, is_single_file: bool
) -> int:
    zeros = dict.fromkeys(("sessions", "turns", "events", "observations"), 0)
    is_ours = unchanged < files  # else nothing was asked for, and what is told is an earlier one's
    new, read = (status["new"], status["read"]) if is_ours else (zeros, 0)
    problems = [*left_out.named, *(_as_problem(row) for row in status["problems"] if is_ours)]
    if as_json:
        counts = {"files": files, "read": read, "unchanged": unchanged, **new}
        output.json({**counts, "left_out": left_out.counts, "problems": problems})
    else:
        columns = ("files", "read", "unchanged", "new sessions", "turns", "events", "observations")
        output.table(columns, [[f"{count:,}" for count in (files, read, unchanged, *new.values())]])
        _show_left_out(left_out.counts)
        _show_problems(problems)
    failed = any(row["problem"] not in EXPECTED_PROBLEMS for row in problems)
    return 1 if failed or (is_single_file and not read and not unchanged) else 0


def _as_problem(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "problem": row["problem"] or "lines"}


def _show_left_out(counts: Counter[str]) -> None:
    for reason, count in counts.most_common():
        output.line(f"left out: {count:,} file(s), {reason}")


def _show_problems(problems: Sequence[dict[str, Any]]) -> None:
    by_reason: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in problems:
        by_reason[row["problem"]].append(row)
    for reason, rows in sorted(by_reason.items()):
        output.line(f"{reason.replace('_', ' ')}: {len(rows):,} file(s); {_HINTS.get(reason, reason)}")
        for row in rows[:MAX_PATHS_SHOWN]:
            lines = f" ({row['bad_lines']:,} lines)" if row.get("bad_lines") else ""
            error = f" ({row['error']})" if row.get("error") else ""
            output.line(f"  {row['path']}{lines}{error}")
        if len(rows) > MAX_PATHS_SHOWN:
            output.line(f"  and {len(rows) - MAX_PATHS_SHOWN:,} more (`--json` names them)")


# --- with a model ----------------------------------------------------------------------------------------------------


def _estimate(client: Client, paths: Sequence[str]) -> dict[str, Any]:
    """Of all of them: a request has room for some thousand paths."""
    parts = [
        client.post("/api/backfill/refine", {"paths": batch, "dry_run": True}) for batch in _in_batches(paths) or [[]]
    ]
    total: dict[str, Any] = parts[0]
    for name in ("turns", "tokens", "cost", "days"):
        total[name] = sum(part[name] for part in parts)
    return total


def _refine(client: Client, paths: Sequence[str], options: argparse.Namespace) -> int:
    estimate = _estimate(client, paths)
    if not estimate["turns"]:
        output.say("there is nothing for a model to refine")
        return 0
    output.say(
        f"{estimate['turns']:,} turns: at most {estimate['tokens']:,} tokens, {output.dollars(estimate['cost'])} with"
        f" {estimate['model']}. The caps hold: {estimate['daily_tokens']:,} tokens a day, so about {estimate['days']:,} day(s),"
        f" and {output.dollars(estimate['monthly_cost'])} a month."
    )
    if not options.yes and not output.ask("send them?"):
        output.say("nothing was sent (`--yes` sends without asking)")
        return 1
    turn_count = sum(client.post("/api/backfill/refine", {"paths": batch})["turns"] for batch in _in_batches(paths))
    output.say(f"{turn_count:,} turns will be refined, one after the other; `claude-mem cost` shows how far it is")
    return 0
