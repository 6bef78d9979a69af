"""backfill: import earlier sessions from the agents' own transcripts."""

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

from msgspec.structs import asdict, replace

from claude_mem.agents import registry
from claude_mem.agents.base import Agent
from claude_mem.agents.canonical import TRANSCRIPT_PROBLEMS, TranscriptHead
from claude_mem.cli import output
from claude_mem.cli.worker import database_path
from claude_mem.client import Client
from claude_mem.config import Config, load_lenient
from claude_mem.domain.errors import InvalidRequest, NotFound, WorkerNotRunning
from claude_mem.domain.reports import BackfillProgress, BackfillRows, RefiningEstimate
from claude_mem.domain.text import parse_time
from claude_mem.system import process
from claude_mem.system.project_folders import ResolvedProject, identify_project
from claude_mem.worker.http.endpoints import A, Endpoint, NoFields, Q
from claude_mem.worker.http.schemas.transfer import (
    CANCEL_BACKFILL,
    ESTIMATE_BACKFILL,
    LIST_UNCHANGED,
    REFINE_BACKFILL,
    SHOW_BACKFILL,
    START_BACKFILL,
    BackfillRequest,
    RefineBackfill,
    TranscriptPaths,
)

ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
POLL_SECONDS = 0.2
PATHS_AT_ONCE = 5_000
RESTARTS = 5
MAX_PATHS_SHOWN = 10
# Files skipped for a good reason. Any other unread file is a failure, and the exit code says so.
EXPECTED_PROBLEMS = ("foreign", "empty", "project_off", "ours", "lines")
_HINTS = {
    **TRANSCRIPT_PROBLEMS,
    "failed": "see `claude-mem logs` for the reason; run the command again to retry",
    "lines": "read, except for some lines that could not be parsed",
    "no_name": "the name is not valid text; rename the file",
}
# Why files are left out, by the key in `--json`.
_LEFT_OUT = {
    "other_agent": "another agent's",
    "other_project": "another project's",
    "before_since": "older than --since",
    "after_until": "later than --until",
}
CONTINUES = "the back-fill continues in the background; `claude-mem backfill` shows it again, `--stop` cancels it"


@dataclass(frozen=True, slots=True)
class SelectedTranscript:
    """A transcript that may be imported. Head and project are read only if an option needs them."""

    path: Path
    agent: Agent | None
    head: TranscriptHead = field(default_factory=TranscriptHead)
    project: ResolvedProject | None = None


@dataclass(slots=True)
class SkippedFiles:
    """Files that are not submitted: counts by key of `_LEFT_OUT`, and the problem files by path."""

    counts: Counter[str] = field(default_factory=Counter)
    problems: list[dict[str, Any]] = field(default_factory=list)

    def add_problem(self, reason: str, path: Path) -> None:
        """Record a file that cannot be read."""
        self.problems.append({"path": _as_text(path), "problem": reason})

    def json_fields(self) -> dict[str, dict[str, int]]:
        """Return the counts for `--json`: by phrase, as earlier versions did, and by a key that does not change."""
        by_phrase = {_LEFT_OUT[reason]: count for reason, count in self.counts.items()}
        return {"left_out": by_phrase, "left_out_by_reason": dict(self.counts)}


def add_commands(commands: Any) -> None:
    """Add `backfill`."""
    add = commands.add_parser(
        "backfill",
        help="import your existing sessions from the agents' transcripts",
        epilog="The worker imports in the background; Ctrl-C only stops the progress display. Running it again adds"
        " only what is new.",
    )
    add.add_argument(
        "path", nargs="?", type=Path, help="a transcript or a directory of them (default: where the agents keep them)"
    )
    add.add_argument("--host", choices=sorted(registry.AGENTS), help="only this agent's sessions")
    add.add_argument("--since", metavar="T", help="only sessions that ended after this date or time")
    add.add_argument("--until", metavar="T", help="only sessions that began before this date or time")
    add.add_argument("--project", metavar="P", help="only this project: its name or a directory in it")
    add.add_argument("--dry-run", action="store_true", help="show what would be imported; change nothing")
    add.add_argument(
        "--refine", action="store_true", help="afterwards, let a model refine the memories (shows the cost, then asks)"
    )
    add.add_argument("--stop", action="store_true", help="cancel: skip files that have not been started")
    add.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    add.add_argument("--json", action="store_true", help="print one JSON object")
    add.set_defaults(run=backfill)


def backfill(options: argparse.Namespace) -> int:
    """Submit the selected transcripts to the worker and show the progress."""
    config = load_lenient().config
    if options.stop:
        return _cancel(config)
    left_out = SkippedFiles()
    files = list(_select_files(options, config, left_out))
    if not files and not left_out.problems and not left_out.counts:
        where = f"in {options.path}" if options.path else "where the agents usually keep them"
        raise NotFound(f"no transcripts found {where}", hint="give a directory, such as ~/.claude/projects")
    if options.dry_run:
        return _show_plan(files, left_out, config, as_json=options.json)
    client = Client(process.ensure_worker(config.data_dir), seconds=60)
    paths = [str(item.path) for item in files]
    if options.refine:
        _estimate(client, [])  # fail now rather than after the import if no model is configured
    try:
        unchanged = sum(
            client.call(START_BACKFILL, BackfillRequest(paths=batch)).unchanged for batch in _in_batches(paths)
        )
        status = _watch(client, config)
    except KeyboardInterrupt:
        output.info("")
        output.info(CONTINUES)
        return 130
    is_single_file = options.path is not None and not options.path.expanduser().is_dir()
    code = _report(status, len(files), unchanged, left_out, as_json=options.json, is_single_file=is_single_file)
    return _refine(client, paths, options) or code if options.refine else code


def count_transcripts(agents: Sequence[Agent]) -> tuple[int, int]:
    """Return how many transcripts these agents have in their usual places, and their total size in bytes."""
    sources = [agent.transcripts for agent in agents if agent.transcripts is not None]
    sizes = [_size(path) for transcripts in sources for path in transcripts.find(os.environ)]
    return len(sizes), sum(sizes)


def backfill_all() -> int:
    """Run `claude-mem backfill` without arguments."""
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    return backfill(parser.parse_args(["backfill"]))


def _cancel(config: Config) -> int:
    process.replace_outdated(config.data_dir)
    dropped = Client.of(config.data_dir).call(CANCEL_BACKFILL, NoFields()).dropped
    output.line(f"cancelled: {output.plural(dropped, 'file')} skipped; files already started are finished")
    return 0


# --- selecting files -------------------------------------------------------------------------------------------------


def _select_files(options: argparse.Namespace, config: Config, left_out: SkippedFiles) -> Iterator[SelectedTranscript]:
    since, until = parse_date_option(options.since), parse_date_option(options.until, end=True)
    project = _project(options.project, config) if options.project else None
    needs_head = options.dry_run or options.project or since is not None or until is not None
    for path, agent in _candidates(options.path, left_out):
        owner = agent or (registry.identify_agent(path) if needs_head or options.host else None)
        if options.host and (owner is None or owner.name != options.host):
            left_out.counts["other_agent"] += 1
        elif not needs_head or owner is None:
            yield SelectedTranscript(path, owner)
        else:
            head = registry.read_head(owner, path)
            item = SelectedTranscript(path, owner, head, identify_project(head.cwd, excluded=config.excluded_projects))
            if reason := _skip_reason(item, since, until, project):
                left_out.counts[reason] += 1
            else:
                yield item


def parse_date_option(text: str | None, *, end: bool = False) -> int | None:
    """Parse a date option into milliseconds; None if it is not given."""
    try:
        return parse_time(text or "", end=end)
    except ValueError as error:
        raise InvalidRequest(f"invalid date {text!r}", hint="use 2026-01-31 or 2026-01-31T14:00") from error


def _project(value: str, config: Config) -> ResolvedProject | str:
    """Return the project of a directory, or the value itself as a project's name."""
    path = Path(value).expanduser()
    return identify_project(str(path), excluded=config.excluded_projects) if os.sep in value or path.is_dir() else value


def _skip_reason(
    item: SelectedTranscript, since: int | None, until: int | None, project: ResolvedProject | str | None
) -> str:
    assert item.project is not None
    if since is not None and item.head.ended < since:
        return "before_since"
    if until is not None and item.head.began > until:
        return "after_until"
    if isinstance(project, ResolvedProject) and not set(project.every_identity) & set(item.project.every_identity):
        return "other_project"
    return "other_project" if isinstance(project, str) and item.project.name != project else ""


def _candidates(path: Path | None, left_out: SkippedFiles) -> Iterator[tuple[Path, Agent | None]]:
    """Yield each session's transcript once. Transcripts of its subagents are read together with it."""
    if path is None:
        for agent in registry.AGENTS.values():
            if agent.transcripts is not None:
                yield from ((file, agent) for file in _with_text_names(agent.transcripts.find(os.environ), left_out))
        return
    path = path.expanduser().absolute()
    if not path.is_dir():
        if not os.path.lexists(path):
            raise NotFound(f"no such file or directory: {path}", hint="give a transcript or a directory of them")
        yield path, None
        return
    owners = {file: registry.identify_agent(file) for file in _with_text_names(_files_in(path, left_out), left_out)}
    parts = {
        part
        for file, agent in owners.items()
        if agent is not None and agent.transcripts is not None
        for _, part in agent.transcripts.subagents(file)
    }
    yield from ((file, agent) for file, agent in owners.items() if file not in parts)


def _with_text_names(files: Iterable[Path], left_out: SkippedFiles) -> Iterator[Path]:
    """Yield the files whose names are valid text; file names are bytes and may not be."""
    for file in files:
        if _as_text(file) == str(file):
            yield file
        else:
            left_out.add_problem("no_name", file)


def _as_text(path: Path) -> str:
    return str(path).encode("utf-8", "replace").decode()


def _files_in(folder: Path, left_out: SkippedFiles) -> Iterator[Path]:
    """Yield all transcript files below a directory. Symbolic links to directories are not followed: they may loop."""
    trouble: list[OSError] = []
    for here, folders, names in os.walk(folder, onerror=trouble.append):
        folders.sort()
        yield from (Path(here, name) for name in sorted(names) if name.endswith(ENDINGS))
    for problem in trouble:
        left_out.add_problem("unreadable", Path(problem.filename))


# --- --dry-run -------------------------------------------------------------------------------------------------------


def _show_plan(files: Sequence[SelectedTranscript], left_out: SkippedFiles, config: Config, *, as_json: bool) -> int:
    unchanged = _unchanged(config, [item.path for item in files])
    groups: defaultdict[tuple[str, str], list[SelectedTranscript]] = defaultdict(list)
    for item in files:
        project = item.project.name if item.project else "?"
        project += " (off)" if item.project and not item.project.enabled else ""
        groups[project, item.agent.label if item.agent else "unknown"].append(item)
    rows = [_plan_row(*key, items, unchanged) for key, items in sorted(groups.items())]
    if as_json:
        output.json({"projects": rows, **left_out.json_fields(), "problems": left_out.problems})
        return 0
    columns = ("project", "agent", "sessions", "MB", "from", "to", "to import")
    output.table(
        columns, [(*list(row.values())[:3], f"{row['bytes'] / 1e6:,.1f}", *_dates(row), row["new"]) for row in rows]
    )
    _show_left_out(left_out.counts)
    _show_problems(left_out.problems)
    return 0


def _plan_row(project: str, agent: str, items: Sequence[SelectedTranscript], unchanged: set[str]) -> dict[str, Any]:
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
    """Return the files that were imported before and have not changed, from the worker or else the database."""
    if process.running_worker(config.data_dir) is not None:
        client = Client.of(config.data_dir, seconds=60)
        batches = [
            client.call(LIST_UNCHANGED, TranscriptPaths(batch)).unchanged for batch in _in_batches(map(str, paths))
        ]
        return {path for batch in batches for path in batch}
    path = database_path(config)
    if not path.exists():
        return set()
    from claude_mem.capture.backfill import stat_transcripts
    from claude_mem.storage.files import DatabaseFiles

    lock = process.take_lock(config.data_dir)
    try:
        return set(DatabaseFiles(config).list_unchanged_transcripts(stat_transcripts(paths)))
    finally:
        lock.release()


def _in_batches(paths: Iterable[str]) -> list[list[str]]:
    all_paths = list(paths)
    return [all_paths[begin : begin + PATHS_AT_ONCE] for begin in range(0, len(all_paths), PATHS_AT_ONCE)]


# --- reading ---------------------------------------------------------------------------------------------------------


def _watch(client: Client, config: Config) -> BackfillProgress:
    """Show the progress until all is done: first of reading files, then of processing their turns."""
    with output.progress(count=output.format_size) as advance:
        for status in poll_status(client, config, SHOW_BACKFILL, NoFields()):
            file_count = status.read + status.skipped
            advance("reading", status.bytes_done, status.bytes, f"{file_count:,} of {status.files:,} files")
            if not status.waiting:
                break
    with output.progress() as advance:
        for status in poll_status(client, config, SHOW_BACKFILL, NoFields()):
            turns = max(status.new.turns, status.digesting)
            advance("processing turns", turns - status.digesting, turns)
            if not status.busy:
                break
    return status


def poll_status(client: Client, config: Config, endpoint: Endpoint[Q, A], request: Q) -> Iterator[A]:
    """Poll the status. If the worker dies, start it again: it continues where it stopped."""
    restarts = 0
    while True:
        try:
            yield client.call(endpoint, request)
            time.sleep(POLL_SECONDS)
        except WorkerNotRunning:
            restarts += 1
            if restarts > RESTARTS:
                raise
            output.info("the worker stopped; restarting it")
            client = Client(process.ensure_worker(config.data_dir), seconds=60)


def _report(
    status: BackfillProgress, files: int, unchanged: int, left_out: SkippedFiles, *, as_json: bool, is_single_file: bool
) -> int:
    zeros = BackfillRows(sessions=0, turns=0, events=0, observations=0)
    is_ours = unchanged < files  # otherwise nothing was submitted, and the status is an earlier run's
    new, read = (status.new, status.read) if is_ours else (zeros, 0)
    problems = [
        *left_out.problems,
        *({**asdict(row), "problem": row.problem or "lines"} for row in status.problems if is_ours),
    ]
    if as_json:
        counts = {"files": files, "read": read, "unchanged": unchanged, **asdict(new)}
        output.json({**counts, **left_out.json_fields(), "problems": problems})
    else:
        columns = ("files", "read", "unchanged", "new sessions", "turns", "events", "observations")
        output.table(columns, [[f"{count:,}" for count in (files, read, unchanged, *asdict(new).values())]])
        _show_left_out(left_out.counts)
        _show_problems(problems)
    failed = any(row["problem"] not in EXPECTED_PROBLEMS for row in problems)
    return 1 if failed or (is_single_file and not read and not unchanged) else 0


def _show_left_out(counts: Counter[str]) -> None:
    for reason, count in counts.most_common():
        output.line(f"skipped {output.plural(count, 'file')} ({_LEFT_OUT[reason]})")


def _show_problems(problems: Sequence[dict[str, Any]]) -> None:
    by_reason: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in problems:
        by_reason[row["problem"]].append(row)
    for reason, rows in sorted(by_reason.items()):
        output.line(f"{reason.replace('_', ' ')}: {output.plural(len(rows), 'file')}; {_HINTS.get(reason, reason)}")
        for row in rows[:MAX_PATHS_SHOWN]:
            lines = f" ({row['bad_lines']:,} lines)" if row.get("bad_lines") else ""
            error = f" ({row['error']})" if row.get("error") else ""
            output.line(f"  {row['path']}{lines}{error}")
        if len(rows) > MAX_PATHS_SHOWN:
            output.line(f"  and {len(rows) - MAX_PATHS_SHOWN:,} more (`--json` lists all)")


# --- --refine --------------------------------------------------------------------------------------------------------


def _estimate(client: Client, paths: Sequence[str]) -> RefiningEstimate:
    """Return the estimate for all files, in several requests: one has room for a few thousand paths."""
    parts = [
        client.call(ESTIMATE_BACKFILL, RefineBackfill(batch, dry_run=True)) for batch in _in_batches(paths) or [[]]
    ]
    sums = {name: sum(getattr(part, name) for part in parts) for name in ("turns", "tokens", "cost", "days")}
    return replace(parts[0], **sums)


def _refine(client: Client, paths: Sequence[str], options: argparse.Namespace) -> int:
    estimate = _estimate(client, paths)
    if not estimate.turns:
        output.info("nothing to refine")
        return 0
    output.info(
        f"{estimate.turns:,} turns: at most {estimate.tokens:,} tokens,"
        f" {output.format_dollars(estimate.cost)} with {estimate.model}."
        f" This takes about {output.plural(estimate.days, 'day')} within your limits:"
        f" {estimate.daily_tokens:,} tokens per day, {output.format_dollars(estimate.monthly_cost)} per month."
    )
    if not options.yes and not output.ask("Send them to the model?"):
        output.info("nothing was sent (use `--yes` to skip the question)")
        return 1
    turn_count = sum(client.call(REFINE_BACKFILL, RefineBackfill(batch)).turns for batch in _in_batches(paths))
    output.info(f"refining {turn_count:,} turns in the background; `claude-mem cost` shows the progress")
    return 0
