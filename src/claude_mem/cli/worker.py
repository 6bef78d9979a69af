"""start, stop, restart, serve, drain, retry, status, logs, token, routes: control and inspect the worker."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import select
import sys
import time
from pathlib import Path
from typing import Any

from claude_mem import __version__
from claude_mem.cli import output
from claude_mem.client import Client
from claude_mem.config import Config, load, load_lenient
from claude_mem.domain.errors import ClaudeMemError, DataDirLocked, UnknownAnswer, WorkerNotRunning
from claude_mem.domain.reports import EventAccount, RefiningState
from claude_mem.system import process
from claude_mem.worker.http.endpoints import NoFields
from claude_mem.worker.http.schemas.health import (
    RETRY_ALL,
    SHOW_COST,
    SHOW_LINE,
    SHOW_STATUS,
    CostQuery,
    InFolder,
    WorkerStatus,
)
from claude_mem.worker.http.schemas.viewer import ROTATE_TOKEN

LINE_SECONDS = 0.5
STDIN_SECONDS, STDIN_BYTES = 0.1, 1 << 20


def add_commands(commands: Any) -> None:
    """Add the commands that control the worker."""
    add = commands.add_parser
    add("start", help="start the worker, or replace one of another version").set_defaults(run=start)
    add("stop", help="stop the worker; pending events are kept").set_defaults(run=stop)
    add("restart", help="restart the worker").set_defaults(run=restart)
    add("serve", help="run the worker in the foreground").set_defaults(run=serve)
    add("drain", help="process pending events without a worker, then exit").set_defaults(run=drain)
    add("retry", help="retry failed turns").set_defaults(run=retry)
    status_ = add("status", help="show the state of the worker and of all captured events")
    status_.add_argument("--json", action="store_true", help="print one JSON object")
    status_.add_argument("--line", action="store_true", help="print one short line, for an agent's status line")
    status_.set_defaults(run=status)
    logs_ = add("logs", help="print the worker's log")
    logs_.add_argument("-n", "--lines", type=int, default=50, metavar="N", help="number of lines (default: 50)")
    logs_.add_argument("-f", "--follow", action="store_true", help="keep printing new lines until Ctrl-C")
    logs_.set_defaults(run=logs)
    token_ = add("token", help="replace the API token; the old one and all browser logins stop working")
    token_.add_argument("what", choices=("rotate",), help="rotate: create a new token")
    token_.set_defaults(run=rotate_token)
    routes_ = add("routes", help="list the routes of the worker's HTTP API")
    routes_.add_argument("--json", action="store_true", help="print one JSON list of paths and methods")
    routes_.add_argument(
        "--openapi", action="store_true", help="print an OpenAPI document with parameters and responses"
    )
    routes_.set_defaults(run=routes)


def start(_: argparse.Namespace) -> int:
    """Start the worker, or replace one of another version."""
    worker = start_this_version(data_dir := load().data_dir, explicit=True)
    process.write_plugin_launcher(data_dir)
    output.line(f"worker running: process {worker.pid}, http://127.0.0.1:{worker.port}")
    return 0


def start_this_version(data_dir: Path, *, explicit: bool = False) -> process.WorkerInfo:
    """Return a running worker of this version. A worker of an earlier version or of another installation is replaced.
    `explicit` means that the user asked for a worker."""
    running = process.running_worker(data_dir)
    if running is not None and running.version != __version__:
        output.info(f"replacing worker version {running.version}")
        process.stop_worker(data_dir)
    return process.ensure_worker(data_dir, by_user=explicit)


def stop(_: argparse.Namespace) -> int:
    """Stop the worker; pending events are kept."""
    stopped = process.stop_worker(load_lenient().config.data_dir)
    output.line("worker stopped" if stopped else "no worker was running")
    return 0


def restart(options: argparse.Namespace) -> int:
    """Restart the worker."""
    process.stop_worker(load_lenient().config.data_dir)
    return start(options)


def serve(_: argparse.Namespace) -> int:
    """Run the worker in the foreground."""
    from claude_mem.worker.serve import serve as serve_worker

    loaded = load_lenient()
    for problem in loaded.problems:
        output.error(f"{problem}; using the default", problem.hint)
    try:
        serve_worker(loaded.config)
    except DataDirLocked:
        if not process.replace_outdated(loaded.config.data_dir):
            output.info("a worker is running already")  # `hook.last_start_problem` looks for this in start.log
    return 0


def drain(_: argparse.Namespace) -> int:
    """Process pending events in this process, without a worker."""
    config = load_lenient().config
    lock = process.take_lock(config.data_dir)
    try:
        asyncio.run(_work_off(config))
    finally:
        lock.release()
    return 0


def retry(_: argparse.Namespace) -> int:
    """Make dead letters due again."""
    data_dir = load_lenient().config.data_dir
    process.replace_outdated(data_dir)
    count = Client.of(data_dir).call(RETRY_ALL, NoFields()).retried
    output.line(f"retrying {output.plural(count, 'job')}")
    return 0


async def _work_off(config: Config) -> None:
    from claude_mem.worker.startup import open_service

    service = open_service(config)
    try:
        await service.run_until_idle()
    finally:
        service.close()


def status(options: argparse.Namespace) -> int:
    """Print the state of the worker, the spool and the job queue."""
    config = load_lenient().config
    if options.line:
        output.line(status_line(config, _stdin_folder()))
        return 0
    report = gather_status(config)
    if options.json:
        output.json(report)
    else:
        _show_status(report)
    return 1 if report["problem"] else 0


def status_line(config: Config, folder: str) -> str:
    """Return the text for an agent's status line: short, fast, never an error, and without starting a worker."""
    worker = process.running_worker(config.data_dir)
    if worker is None:
        return "mem: asleep"
    try:
        counts = Client(worker, seconds=LINE_SECONDS).call(SHOW_LINE, InFolder(folder))
    except ClaudeMemError:
        return "mem: no answer (claude-mem doctor)"
    parts = [f"mem: {counts.known:,} here" if folder else f"mem: {counts.all:,}"]
    parts += [f"{counts.today:,} today"] if counts.today else []
    parts += [f"{counts.queued:,} waiting"] if counts.queued else []
    parts += [f"{counts.set_aside:,} set aside (claude-mem doctor)"] if counts.set_aside else []
    return " · ".join(parts)


def _stdin_folder() -> str:
    """Return the working directory that Claude Code passes to its status line on stdin."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    payload = b""
    try:
        while len(payload) < STDIN_BYTES and select.select([sys.stdin], [], [], STDIN_SECONDS)[0]:
            if not (chunk := os.read(sys.stdin.fileno(), 1 << 16)):
                break
            payload += chunk
        fields = json.loads(payload)
        return str(fields["workspace"].get("project_dir") or fields["workspace"]["current_dir"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""


def gather_status(config: Config) -> dict[str, Any]:
    """Collect the status from the worker or, if none runs, from its files; always with pending events and problems."""
    totals: EventAccount = _spool_only(config)
    state, worker, problem = "stopped", process.running_worker(config.data_dir), ""
    refining = ""
    if worker is not None:
        try:
            totals, state = Client(worker, seconds=3).call(SHOW_STATUS, NoFields()), "running"
            refining = refining_problem(Client(worker, seconds=5).call(SHOW_COST, CostQuery(days=1)))
        except UnknownAnswer:
            state = "running"  # another version, which is being replaced
        except ClaudeMemError:
            state = state if state == "running" else "hung"
    elif process.lock_holder(config.data_dir) is not None:
        state = "starting"
    elif database_path(config).exists() or _had_database(config):
        try:
            totals = _offline(config)
        except DataDirLocked:
            state = "starting"  # a worker took the lock just now
        except (ClaudeMemError, OSError) as error:
            problem = str(error)
    names = ("captured", "stored", "queued", "set_aside", "filtered", "filtered_by", "set_aside_by")
    return {
        "worker": state,
        "pid": worker.pid if worker else None,
        "port": worker.port if worker else None,
        "version": worker.version if worker else __version__,
        "installed_version": __version__,
        "outdated": _outdated(config, worker),
        "started_at": worker.started_at if worker else None,
        "data_dir": str(config.data_dir),
        **{name: getattr(totals, name) for name in names},
        "to_rewrite": totals.to_rewrite if isinstance(totals, WorkerStatus) else 0,
        "audit": totals.audit if isinstance(totals, WorkerStatus) else None,
        "problem": problem,
        "refining": refining,
        "door": totals.door if isinstance(totals, WorkerStatus) else [],
        "damage": _damage(config),
    }


def refining_problem(cost: RefiningState) -> str:
    """Return in one line why the configured model does not refine, or ""."""
    now = time.time() * 1000
    paused = [f"{row.provider} is paused: {row.verdict}: {row.message}" for row in cost.paused if row.until > now]
    return str(cost.problem) or next(iter(paused), "")


def _outdated(config: Config, worker: process.WorkerInfo | None) -> str:
    """Describe that the worker's version differs from this program's, and what happens next; "" if it does not."""
    if worker is None or worker.version == __version__:
        return ""
    text = f"worker version {worker.version or 'unknown'}, installed version {__version__}"
    if process.should_replace(config.data_dir, worker):
        return f"{text}; it restarts at the next event"
    return f"{text} (in another location); run `claude-mem start` to replace the worker"


def database_path(config: Config) -> Path:
    """Return the database in use: its name differs if the TypeScript claude-mem has one here."""
    from claude_mem.storage.external_db import resolve_database_path

    return resolve_database_path(config.database)


def _had_database(config: Config) -> bool:
    """Return whether there was a database that is missing now."""
    from claude_mem.storage.files import DatabaseFiles

    return bool(DatabaseFiles(config).describe_traces())


def _offline(config: Config) -> EventAccount:
    """Read the totals from the database directly, under the worker's lock."""
    from claude_mem.storage.files import DatabaseFiles

    lock = process.take_lock(config.data_dir)
    try:
        return DatabaseFiles(config).count_events(in_spool=count_spooled(config))
    finally:
        lock.release()


def _damage(config: Config) -> list[str]:
    """Describe the damaged databases and files that were moved away and kept, newest first."""
    from claude_mem.storage.files import DatabaseFiles

    return DatabaseFiles(config).describe_damage()


def _spool_only(config: Config) -> EventAccount:
    in_spool = count_spooled(config)
    return EventAccount(
        captured=in_spool,
        stored=0,
        queued=in_spool,
        set_aside=0,
        filtered=0,
        filtered_by={},
        set_aside_by={},
        faded=0,
    )


def count_spooled(config: Config) -> int:
    """Return the number of captured events that are not in the database yet."""
    return len(_names(config.spool))


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError:
        return []


def _show_status(report: dict[str, Any]) -> None:
    where = f"process {report['pid']}, http://127.0.0.1:{report['port']}" if report["pid"] else ""
    output.line(f"worker      {report['worker']}  {where}".rstrip())
    if report["outdated"]:
        output.line(f"version     {report['outdated']}")
    output.line(f"data        {report['data_dir']}")
    output.line()
    output.line(f"captured    {report['captured']:>8,}  events, of which")
    for name, meaning in (
        ("stored", "in the database"),
        ("queued", "pending in the spool or the job queue"),
        ("set_aside", "could not be read or processed"),
        ("filtered", "excluded by a setting or a capture rule"),
    ):
        output.line(f"  {name.replace('_', ' '):<10}{report[name]:>8,}  {meaning}")
        for rule, count in sorted((report.get(f"{name}_by") or {}).items()):
            output.line(f"    {rule:<14}{count:>6,}")
    if report["to_rewrite"]:
        output.line(f"reprocess   {report['to_rewrite']:>8,}  turns of an earlier version, in the background")
    if report["audit"] and report["audit"].at:
        wrong = "; ".join(f"{item.name}: {item.found}" for item in report["audit"].wrong)
        output.line(f"audit       {wrong or 'all checks passed'}")
    for text in report["damage"]:
        output.line(f"damage      {text}")
    for text in report["door"]:
        output.line(f"viewer      {text}")
    if report["refining"]:
        output.line(f"refining    {report['refining']}; memories are written without a model")
    if report["problem"]:
        output.error(report["problem"], "run `claude-mem doctor` to find the cause")
    if report["worker"] == "hung":
        output.error("the worker does not respond", "run `claude-mem restart`")


def logs(options: argparse.Namespace) -> int:
    """Print the end of the log."""
    path = load_lenient().config.log_file
    if not path.exists():
        raise WorkerNotRunning("there is no log yet", hint="start the worker with `claude-mem start`")
    lines = path.read_text("utf-8", "replace").splitlines()
    for text in lines[-max(options.lines, 0) :] if options.lines else []:
        output.line(text)
    if options.follow:
        _follow(path)
    return 0


def _follow(path: Path) -> None:
    position = path.stat().st_size
    while True:
        time.sleep(0.5)
        size = path.stat().st_size if path.exists() else 0
        position = 0 if size < position else position  # the log was rotated
        if size > position:
            with path.open("rb") as file:
                file.seek(position)
                output.text(file.read().decode("utf-8", "replace").rstrip("\n"))
            position = size


def rotate_token(_: argparse.Namespace) -> int:
    """Replace the access token of the HTTP API."""
    data_dir = load_lenient().config.data_dir
    if process.lock_holder(data_dir) is not None:
        Client(process.ensure_worker(data_dir)).call(ROTATE_TOKEN, NoFields())
    else:
        lock = process.take_lock(data_dir)
        process.create_token(data_dir)
        lock.release()
    output.line("token replaced; the old one is no longer valid")
    output.info("run `claude-mem open` to log in a browser again; agents and commands use the new token automatically")
    return 0


def routes(options: argparse.Namespace) -> int:
    """Print the routes of the HTTP API."""
    from claude_mem.worker.http import openapi
    from claude_mem.worker.http.api import ROUTES

    if options.openapi:
        output.json(openapi.build_document(ROUTES))
        return 0
    rows = [{"path": path, "methods": sorted(handlers)} for path, handlers in ROUTES.items()]
    if options.json:
        output.json(rows)
    else:
        output.table(("path", "methods"), [(row["path"], ", ".join(row["methods"])) for row in rows])
    return 0
