"""Routes of the health and log pages, and the actions offered there: retry or drop a dead letter, check a backup.

Health covers event accounting, the job queue, use of disk and memory, response times, and current problems. Each part
is cheap: it is read by an index, from the file system, or from memory. The log is returned as entries with their
tracebacks, newest first, from all rotated files.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Literal

from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from claude_mem import __version__, hook
from claude_mem.config import Config, load_lenient
from claude_mem.domain import ids
from claude_mem.domain.errors import NotFound
from claude_mem.domain.reports import BackupCheck, Finding
from claude_mem.privacy import secret_rules
from claude_mem.storage.files import DatabaseFiles
from claude_mem.worker.app import Service
from claude_mem.worker.http.endpoints import ById, NoFields
from claude_mem.worker.http.route import AnyRoute, Caller, RawHandler, Route
from claude_mem.worker.http.schemas.health import (
    CHECK_BACKUP,
    DROP_JOB,
    LEVELS,
    RETRY_JOB,
    SHOW_HEALTH,
    SHOW_LOG,
    BackupName,
    BackupsState,
    CheckedAccount,
    DiskUsage,
    Dropped,
    Health,
    HealthPage,
    Issue,
    LogEntry,
    LogPage,
    LogQuery,
    NewestBackup,
    ProcessState,
    ResponseTimes,
    Retried,
    SetAside,
    SetAsideFile,
)

MAX_SAMPLES = 1_000  # response times kept of each trigger
LOW_DISK_BYTES = 500 << 20
MAX_SET_ASIDE_SHOWN = 20
RECENT_MS = 7 * 86_400_000  # events set aside before are listed, but are no current problem
_CHECKS = ("start", "full", "index", "stray")
_MEASURES = {
    "hook": "From reading the event until its file is in the spool, synced and renamed. Excludes the start of Python;"
    " accurate to a few milliseconds, the resolution of the file system's clock.",
    "start": "The worker's response at the start of a session.",
    "prompt": "The worker's response to a prompt.",
    "file": "The worker's response before a file is read or edited, or a command is run.",
    "failure": "The worker's response after a failure.",
}
MAX_MESSAGE_CHARS = 20_000
MAX_SAME_TIME = 1_000  # entries with the same time that one page may add
_ENTRY_HEAD = re.compile(
    r"(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (?P<level>[A-Z]+) (?P<logger>[\w.]+): (?P<message>.*)", re.ASCII
)


# --- health ----------------------------------------------------------------------------------------------------------


async def show_health(service: Service, _: NoFields, caller: Caller) -> HealthPage:
    """The state of the worker: `account`, `jobs`, `aside`, `backup`, `disk`, `process`, `times`, `refining`, and
    current problems (`concerns`: `{level, text, hint}`, empty if there are none)."""
    config, now = service.config, ids.now_ms()
    account = await service.event_account()
    settings = await asyncio.to_thread(load_lenient, data_dir=config.data_dir)
    health = Health(
        at=now,
        process=_describe_process(service, now),
        account=CheckedAccount(**asdict(account), adds_up=account.adds_up),
        spool=len(service.spool.pending()),
        queue=await service.db.read(lambda tx: tx.journal.count_jobs_by_state()),
        jobs=await service.db.read(lambda tx: tx.journal.list_described_jobs()),
        aside=await _list_set_aside(service),
        backup=await _summarize_backups(service),
        damage=await asyncio.to_thread(service.files.describe_damage),
        checks=await service.db.read(lambda tx: {name: tx.journal.find_check(name) for name in _CHECKS}),
        disk=await asyncio.to_thread(disk_usage, config, service.db.path),
        times=_summarize_times(service),
        refining=await service.refiner.status(now),
        audit=service.self_check.state(),
        door=[alert.text for alert in caller.browser_sessions.alerts],
        settings=[str(problem) for problem in settings.problems],
        secret_rules=list(secret_rules.active_user_rules().problems),
    )
    return HealthPage(**asdict(health), concerns=list(health_issues(health)))


def _describe_process(service: Service, now: int) -> ProcessState:
    return ProcessState(
        version=__version__,
        installed_version=hook.installed_version(),
        pid=os.getpid(),
        started_at=service.started_at,
        uptime_ms=now - service.started_at,
        memory=_memory_bytes(),
        listeners=service.stream.listeners,
        data_dir=str(service.config.data_dir),
    )


def _memory_bytes() -> int:
    """Return the resident memory in bytes, or its peak where the system does not report the current value."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _summarize_times(service: Service) -> list[ResponseTimes]:
    measured = {
        "hook": list(service.spool.delays),
        **{name: list(samples) for name, samples in service.response_times.items()},
    }
    return [percentiles(measured.get(name, ()), name=name, what=what) for name, what in _MEASURES.items()]


# --- files and disk --------------------------------------------------------------------------------------------------


async def _list_set_aside(service: Service) -> SetAside:
    """Return the number of events set aside, and the time and reason of the newest."""
    files = await asyncio.to_thread(lambda: list(_walk(service.spool.aside)))
    entries = [(name, size) for name, size in files if not name.startswith(".")]
    newest = sorted(entries, reverse=True)[:MAX_SET_ASIDE_SHOWN]
    reasons = await service.db.read(lambda tx: tx.journal.get_receipt_rules([name for name, _ in newest]))
    return SetAside(
        count=len(entries),
        folder=str(service.spool.aside),
        newest=[
            SetAsideFile(name=name, at=ids.created_at_ms(name), size=size, reason=reasons.get(name, ""))
            for name, size in newest
        ],
    )


async def _summarize_backups(service: Service) -> BackupsState:
    """Return the number and size of all backups, the newest one, and the results of their checks."""
    files = await asyncio.to_thread(_stat_backups, service.files)
    newest = max(files, key=lambda item: item[1].st_mtime, default=None)
    return BackupsState(
        count=len(files),
        size=sum(stat.st_size for _, stat in files),
        newest=newest and NewestBackup(name=newest[0], made_at=int(newest[1].st_mtime * 1000), size=newest[1].st_size),
        drills=await service.db.read(lambda tx: tx.journal.list_drills()),
        last=await service.db.read(lambda tx: tx.journal.find_check("backup")),
    )


def _stat_backups(files: DatabaseFiles) -> list[tuple[str, os.stat_result]]:
    return [(path.name, path.stat()) for path in files.list_backup_paths()]


def disk_usage(config: Config, database: Path) -> DiskUsage:
    """Return the size of each part in bytes, and the free space on its disk."""
    wal = database.with_name(f"{database.name}-wal")
    parts = {
        "database": _file_bytes(database),
        "write-ahead log": _file_bytes(wal),
        "spool": _folder_bytes(config.spool),
        "set aside": _folder_bytes(config.aside),
        "backups": _folder_bytes(config.backups),
        "exports": _folder_bytes(config.exports),
        "models": _folder_bytes(config.models),
        "logs": _folder_bytes(config.log_file.parent),
    }
    usage = shutil.disk_usage(config.data_dir)
    return DiskUsage(parts=parts, all=sum(parts.values()), free=usage.free, total=usage.total)


def _file_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _folder_bytes(folder: Path) -> int:
    return sum(size for _, size in _walk(folder, deep=True))


def _walk(folder: Path, *, deep: bool = False) -> Iterator[tuple[str, int]]:
    """Yield names and sizes of files. Symbolic links are not followed: their targets are not part of the data."""
    try:
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path), deep=True) if deep else ()
            else:
                yield entry.name, _entry_bytes(entry)
    except OSError:
        return  # the folder does not exist


def _entry_bytes(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:
        return 0


# --- current problems ------------------------------------------------------------------------------------------------


def health_issues(health: Health) -> Iterator[Issue]:
    """Yield the current problems, described for the user."""
    queue = health.queue
    if not health.account.adds_up:
        yield _issue("bad", "The event counts do not add up: events were lost or counted twice.", "Please report this.")
    yield from _failed_checks(health.audit.wrong)
    yield from (_issue("bad", message, "This message stays here until the worker exits.") for message in health.door)
    if queue.dead:
        one = queue.dead == 1
        text = f"{queue.dead:,} {'job' if one else 'jobs'} failed three times and will not be retried."
        yield _issue("bad", text, "The job queue below shows why. Fix the cause, then retry.")
    yield from _version_mismatch(health.process)
    for message in health.damage:
        yield _issue("warn", message, "Delete that folder once you no longer need it.")
    if (last := health.backup.last) and not last.ok:
        yield _issue("bad", f"The daily backup failed: {last.text}", "The worker retries it every hour.")
    if (stray := health.checks.get("stray")) and not stray.ok:
        yield _issue("warn", f"{stray.text.capitalize()}.", "Make a backup on another disk.")
    if health.disk.free < LOW_DISK_BYTES:
        yield _issue(
            "bad", "The disk is nearly full.", "Free disk space. Events stay in the spool while nothing can be written."
        )
    lately = [file for file in health.aside.newest if (file.at or 0) > health.at - RECENT_MS]
    if lately:
        reasons = ", ".join(sorted({file.reason for file in lately if file.reason}))
        was = "was" if len(lately) == 1 else "were"
        text = (
            f"{_events(len(lately), MAX_SET_ASIDE_SHOWN)} could not be read this week and {was} set aside ({reasons})."
        )
        yield _issue("warn", text, f"The files are in {health.aside.folder}.")
    yield from _invalid_settings(health)
    if health.refining.problem:
        text = f"No model refines memories: {health.refining.problem}."
        yield _issue("warn", text, "Memories are written by rules until this is fixed.")
    for paused in health.refining.paused:
        if paused.until > health.at:
            text = f"{paused.provider} is paused after an error: {paused.verdict}: {paused.message}"
            yield _issue("warn", text, "Memories are written without it; it is retried automatically.")
    if health.refining.prices_problem:
        yield _issue("warn", health.refining.prices_problem, "The built-in prices are used.")


def _invalid_settings(health: Health) -> Iterator[Issue]:
    """Yield invalid settings and invalid user-defined secret rules."""
    for problem in health.settings:
        yield _issue("warn", f"A setting is invalid and not used: {problem}", "The settings page shows it.")
    for problem in health.secret_rules:
        text = f"A secret rule is invalid and not used: {problem}"
        yield _issue("warn", text, "See docs/secrets.md, then restart the worker.")


def _version_mismatch(process: ProcessState) -> Iterator[Issue]:
    version, installed = process.version, process.installed_version
    if installed and installed != version:
        text = f"The worker runs version {version}, but {installed} is installed."
        yield _issue("warn", text, "It restarts by itself within seconds; if not, `claude-mem logs` shows why.")


def _failed_checks(wrong: list[Finding]) -> Iterator[Issue]:
    for item in wrong:
        if item.name != "events":  # reported above as the event counts
            yield _issue("bad", f"A self-check failed: {item.name}: {item.found}.", item.hint)


def _events(count: int, most: int) -> str:
    return "1 event" if count == 1 else f"{count} events" if count < most else f"{most} events or more"


def _issue(level: Literal["bad", "warn"], text: str, hint: str) -> Issue:
    return Issue(level, text, hint)


# --- actions ---------------------------------------------------------------------------------------------------------


async def retry_job(service: Service, request: ById) -> Retried:
    """Retry one dead letter."""
    await service.db.write(lambda tx: tx.journal.retry_dead_job(request.id, now=ids.now_ms()))
    await service.publish([])  # wakes every runner
    return Retried(request.id)


async def drop_job(service: Service, request: ById) -> Dropped:
    """Drop a dead letter → `{dropped, means}`. The events set aside with it count as stored, and no memory is derived
    from them."""
    means = await service.db.write(lambda tx: tx.journal.drop_dead_job(request.id, now=ids.now_ms()))
    await service.publish([])
    return Dropped(request.id, means)


async def check_backup(service: Service, request: BackupName) -> BackupCheck:
    """Check every page, reference and observation of a backup in `backups/`: `{name}` → its contents."""
    paths = {path.name: path for path in service.config.backups.glob("*.db")}
    if request.name not in paths:  # never use a path from the request
        raise NotFound(f"there is no backup {request.name!r}", hint="`claude-mem backup --list` shows the backups")
    return await asyncio.to_thread(service.files.examine_backup, paths[request.name])


# --- response times --------------------------------------------------------------------------------------------------


def percentiles(milliseconds: Iterable[float], *, name: str = "", what: str = "") -> ResponseTimes:
    """Return p50, p95 and p99 by nearest rank, so that each is a measured value."""
    ordered = sorted(milliseconds)
    p50, p95, p99 = (
        round(ordered[-(-len(ordered) * share // 100) - 1], 2) if ordered else None for share in (50, 95, 99)
    )
    return ResponseTimes(name=name, what=what, count=len(ordered), p50=p50, p95=p95, p99=p99)


def with_timing(trigger: str, handler: RawHandler) -> RawHandler:
    """Wrap a handler to record its response time. Requests that fail are not counted."""

    @wraps(handler)
    async def timed(service: Service, request: Request) -> Response:
        started = time.perf_counter()
        answer = await handler(service, request)
        samples = service.response_times.setdefault(trigger, deque(maxlen=MAX_SAMPLES))
        samples.append((time.perf_counter() - started) * 1000)
        return answer

    return timed


# --- log -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which entries to return: this level or more severe, containing the text (in lower case), older than `before`."""

    level: str = ""
    text: str = ""
    before: int | None = None

    def matches(self, entry: LogEntry) -> bool:
        """Return whether an entry passes the filter."""
        if self.before is not None and entry.at >= self.before:
            return False
        if self.level and _rank(entry.level) < _rank(self.level):
            return False
        return not self.text or self.text in f"{entry.logger}: {entry.message}".casefold()

    def may_match_in(self, text: str) -> bool:
        """Return False if no entry of this file can match, which saves parsing it."""
        levels = LEVELS[_rank(self.level) :] if self.level else ()
        return self.text in text.casefold() and (not levels or any(f" {level} " in text for level in levels))


def _rank(level: str) -> int:
    return LEVELS.index(level) if level in LEVELS else 0


async def show_log(service: Service, request: LogQuery) -> LogPage:
    """The last `lines` (1–10,000) as text, and as entries with their tracebacks, newest first. `level` (this or more
    severe), `text`, `before` (milliseconds) → `{lines, items: [{at, level, logger, message}], hasMore}`."""
    log_filter = LogFilter(level=request.level, text=request.text.casefold(), before=request.before)
    return await asyncio.to_thread(read_entries, service.config.log_file, log_filter, request.lines)


def read_entries(file: Path, log_filter: LogFilter, count: int) -> LogPage:
    """Return `count` entries plus those with the same time as the last: the next page starts `before` that time."""
    items: list[LogEntry] = []
    more = False
    for entry in _iterate_entries(file, log_filter):
        if not log_filter.matches(entry):
            continue
        if len(items) >= count and (entry.at != items[-1].at or len(items) >= count + MAX_SAME_TIME):
            more = True
            break
        items.append(entry)
    lines = [line for entry in reversed(items) for line in _format_entry(entry)][-count:]
    return LogPage(lines=lines, items=items, has_more=more)


def _iterate_entries(file: Path, log_filter: LogFilter) -> Iterator[LogEntry]:
    """Yield entries of the current file, then of `.1`, `.2` …; older files are read only if needed."""
    for path in (file, *sorted(file.parent.glob(f"{file.name}.*"), key=_rotation_number)):
        try:
            text = path.read_text("utf-8", "replace")
        except OSError:
            continue  # just rotated, or missing
        if log_filter.may_match_in(text):
            yield from parse_entries(text)


def _rotation_number(path: Path) -> int:
    tail = path.name.rpartition(".")[2]
    return int(tail) if tail.isdigit() else 1 << 30


def parse_entries(text: str) -> Iterator[LogEntry]:
    """Yield entries, newest first. A line that starts no entry belongs to the entry before it."""
    continuation: list[str] = []
    for line in reversed(text.split("\n")):
        match = _ENTRY_HEAD.fullmatch(line)
        if match is None:
            continuation.append(line)
            continue
        message = "\n".join((match["message"], *reversed(continuation))).rstrip()
        yield LogEntry(_parse_log_time(match["at"]), match["level"], match["logger"], message[:MAX_MESSAGE_CHARS])
        continuation.clear()


def _parse_log_time(at: str) -> int:
    """Parse a log time, which is local time; 0 if it is invalid."""
    try:
        return round(datetime.fromisoformat(at.replace(",", ".")).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0


def _format_entry(entry: LogEntry) -> list[str]:
    logged_at = datetime.fromtimestamp(entry.at / 1000)
    head = f"{logged_at:%Y-%m-%d %H:%M:%S},{entry.at % 1000:03d} {entry.level} {entry.logger}: "
    return (head + entry.message).split("\n")


ROUTES: tuple[AnyRoute, ...] = (
    Route(SHOW_HEALTH, show_health),
    Route(RETRY_JOB, retry_job),
    Route(DROP_JOB, drop_job),
    Route(CHECK_BACKUP, check_backup),
    Route(SHOW_LOG, show_log),
)
