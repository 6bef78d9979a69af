"""Is all well? Where every event is, what is owed, what it takes of the machine, how fast it answers, what is wrong.

Each part is cheap: it is read along an index, from the file system, or from memory.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.requests import Request

from claude_mem import __version__, hook, ids, own_files, secret_rules
from claude_mem.config import Config, load_forgiving
from claude_mem.errors import NotFound
from claude_mem.store import backup, checks, events, owed, repair
from claude_mem.store.database import Row
from claude_mem.worker.requests import body_of, row_id, text_in
from claude_mem.worker.service import Service
from claude_mem.worker.times import percentiles
from claude_mem.worker.viewer import visits_of

LITTLE_ROOM = 500 << 20
MOST_ASIDE = 20
LATELY_MS = 7 * 86_400_000  # what was set aside long ago is told, and is no news
_MEASURES = {
    "hook": "From when a hook has read its event until it lies safely in the spool, synced and renamed. Python's own"
    " start is not in it; the file system's clock is a few milliseconds coarse.",
    "start": "The worker's answer at a session's start.",
    "prompt": "The worker's answer at a prompt.",
    "file": "The worker's answer before a file is read or edited.",
    "failure": "The worker's answer after a failure.",
}


async def page(service: Service, request: Request) -> Any:
    """All there is to know about its health: `account`, `jobs`, `aside`, `backup`, `disk`, `process`, `times`,
    `refining`, and what is wrong (`concerns`: `{level, text, hint}`, none if all is well)."""
    config, now = service.config, ids.now()
    account = await service.totals()
    job_rows = await service.db.read(owed.listing)
    status = {
        "at": now,
        "process": _process(service, now),
        "account": {**account, "adds_up": _adds_up(account)},
        "spool": len(service.spool.pending()),
        "queue": await service.db.read(owed.counts),
        "jobs": job_rows,
        "aside": await _aside(service),
        "backup": {
            **await asyncio.to_thread(_backups, config.backups),
            "drills": await service.db.read(checks.drills),
            "last": await service.db.read(checks.get, "backup"),
        },
        "damage": await asyncio.to_thread(_damage, config),
        "checks": {name: await service.db.read(checks.get, name) for name in ("start", "full", "index", "stray")},
        "disk": await asyncio.to_thread(disk, config, service.db.path),
        "times": _times(service),
        "refining": await service.refiner.standing(now),
        "audit": service.watch.told(),
        "door": [alert.text for alert in visits_of(request).alerts],
        "settings": [str(problem) for problem in (await _loaded(config)).problems],
        "secret_rules": list(secret_rules.own_rules().problems),
    }
    return {**status, "concerns": list(concerns(status))}


async def _loaded(config: Config) -> Any:
    return await asyncio.to_thread(load_forgiving, data_dir=config.data_dir)


def _adds_up(account: Row) -> bool:
    return bool(account["captured"] == sum(account[name] for name in ("stored", "queued", "set_aside", "filtered")))


def _process(service: Service, now: int) -> Row:
    return {
        "version": __version__,
        "installed_version": hook.installed_version(),
        "pid": os.getpid(),
        "started_at": service.started_at,
        "uptime_ms": now - service.started_at,
        "memory": _memory(),
        "listeners": service.stream.listeners,
        "data_dir": str(service.config.data_dir),
    }


def _memory() -> int:
    """Bytes in memory now; where the system does not tell, the most there ever were."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _times(service: Service) -> list[Row]:
    measured = {
        "hook": list(service.spool.delays),
        **{name: list(samples) for name, samples in service.answered.items()},
    }
    return [{"name": name, "what": what, **percentiles(measured.get(name, ()))} for name, what in _MEASURES.items()]


# --- files -----------------------------------------------------------------------------------------------------------


async def _aside(service: Service) -> Row:
    """Events that could not be read: how many files, and of the newest when they came and why."""
    entries = await asyncio.to_thread(_entries, service.spool.aside)
    newest = sorted(entries, reverse=True)[:MOST_ASIDE]
    reasons = await service.db.read(events.rules, [name for name, _ in newest])
    return {
        "count": len(entries),
        "folder": str(service.spool.aside),
        "newest": [
            {"name": name, "at": ids.at(name), "size": size, "reason": reasons.get(name, "")} for name, size in newest
        ],
    }


def _entries(folder: Path) -> list[tuple[str, int]]:
    return [(name, size) for name, size in _files(folder) if not name.startswith(".")]


def _backups(folder: Path) -> Row:
    """How many copies there are, and the newest of them."""
    files = [(path, path.stat()) for path in folder.glob("*.db") if path.name.startswith(backup.OURS)]
    newest = max(files, key=lambda item: item[1].st_mtime, default=None)
    return {
        "count": len(files),
        "size": sum(stat.st_size for _, stat in files),
        "newest": newest
        and {"name": newest[0].name, "made_at": int(newest[1].st_mtime * 1000), "size": newest[1].st_size},
    }


def disk(config: Config, database: Path) -> Row:
    """What each part takes, in bytes, and what is free on its disk."""
    wal = database.with_name(f"{database.name}-wal")
    parts = {
        "database": _size(database),
        "write-ahead log": _size(wal),
        "spool": _tree(config.spool),
        "set aside": _tree(config.aside),
        "backups": _tree(config.backups),
        "exports": _tree(config.exports),
        "models": _tree(config.models),
        "logs": _tree(config.log_file.parent),
    }
    usage = shutil.disk_usage(config.data_dir)
    return {"parts": parts, "all": sum(parts.values()), "free": usage.free, "total": usage.total}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _tree(folder: Path) -> int:
    return sum(size for _, size in _files(folder, deep=True))


def _files(folder: Path, *, deep: bool = False) -> Iterator[tuple[str, int]]:
    """Links are not followed: what they lead to is not ours."""
    try:
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path), deep=True) if deep else ()
            else:
                yield entry.name, _own_size(entry)
    except OSError:
        return  # there is none, or not any more


def _own_size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:
        return 0


# --- what is wrong ---------------------------------------------------------------------------------------------------


def _damage(config: Config) -> list[str]:
    """Damaged databases and files of ours that are kept, in words."""
    files = [str(moved) for moved in own_files.listing(config.data_dir)]
    return [repair.said(each) for each in repair.listing(config.quarantine)] + files


def concerns(status: Row) -> Iterator[Row]:
    """In words, the worst first."""
    account, queue = status["account"], status["queue"]
    if not account["adds_up"]:
        yield _concern("bad", "The account does not add up: events were lost or doubled.", "Please report this.")
    yield from _checked_itself(status["audit"]["wrong"])
    yield from (
        _concern("bad", message, "It is said here until the worker ends.") for message in status.get("door", ())
    )
    if queue["dead"]:
        one = queue["dead"] == 1
        text = f"{queue['dead']:,} {'job was' if one else 'jobs were'} given up after three attempts."
        yield _concern("bad", text, "See why below, mend the cause, and try again.")
    yield from _outdated(status.get("process", {}))
    for message in status.get("damage", ()):
        yield _concern("warn", message, "Delete that folder when you need it no more.")
    if (last := status["backup"].get("last")) and not last["ok"]:
        yield _concern("bad", f"The daily backup failed: {last['text']}", "It is tried again every hour.")
    if (stray := status.get("checks", {}).get("stray")) and not stray["ok"]:
        yield _concern("warn", f"{stray['text'].capitalize()}.", "Make a backup on another disk.")
    if status["disk"]["free"] < LITTLE_ROOM:
        yield _concern("bad", "The disk is nearly full.", "Events wait in the spool when nothing can be written.")
    lately = [row for row in status["aside"]["newest"] if (row["at"] or 0) > status["at"] - LATELY_MS]
    if lately:
        reasons = ", ".join(sorted({row["reason"] for row in lately if row["reason"]}))
        text = f"{_events(len(lately), MOST_ASIDE)} could not be read this week: set aside ({reasons})."
        yield _concern("warn", text, f"Whatever it was lies in {status['aside']['folder']}.")
    yield from _not_used(status)
    if status["refining"]["problem"]:
        text = f"No model writes the memories: {status['refining']['problem']}."
        yield _concern("warn", text, "They are written by rules meanwhile.")
    for row in status["refining"]["paused"]:
        if row["until"] > status["at"]:
            text = f"{row['provider']} rests: {row['verdict']}: {row['message']}"
            yield _concern("warn", text, "Memories are made without it meanwhile; it is tried again by itself.")
    if status["refining"]["prices_problem"]:
        yield _concern("warn", status["refining"]["prices_problem"], "Our own prices are used.")


def _not_used(status: Row) -> Iterator[Row]:
    """Settings, and a user's own rules for secrets, that have something wrong with them."""
    for problem in status["settings"]:
        yield _concern("warn", f"A setting is not used: {problem}", "The settings page shows it.")
    for problem in status.get("secret_rules", ()):
        text = f"A rule for secrets is not used: {problem}"
        yield _concern("warn", text, "See docs/secrets.md, then restart the worker.")


def _outdated(process: Row) -> Iterator[Row]:
    version, installed = process.get("version"), process.get("installed_version")
    if installed and installed != version:
        text = f"The worker runs version {version}, installed is {installed}."
        yield _concern("warn", text, "It restarts by itself within seconds; if not, `claude-mem logs` says why.")


def _checked_itself(wrong: list[Row]) -> Iterator[Row]:
    for item in wrong:
        if item["name"] != "events":  # that is the account
            yield _concern("bad", f"A check of itself failed: {item['name']}: {item['found']}.", item["hint"])


def _events(count: int, most: int) -> str:
    return "1 event" if count == 1 else f"{count} events" if count < most else f"{most} events or more"


def _concern(level: str, text: str, hint: str) -> Row:
    return {"level": level, "text": text, "hint": hint}


# --- what can be done ------------------------------------------------------------------------------------------------


async def retry_job(service: Service, request: Request) -> Any:
    """Give one job that was given up another chance."""
    job_id = row_id(request)
    await service.db.write(owed.retry, job_id, now=ids.now())
    await service.tell([])  # whoever's lane it is
    return {"retried": job_id}


async def drop_job(service: Service, request: Request) -> Any:
    """End a job that was given up: `{dropped, means}`. The account still adds up: what was set aside with it is stored,
    and nothing is made of it."""
    job_id = row_id(request)
    means = await service.db.write(owed.drop, job_id, now=ids.now())
    await service.tell([])
    return {"dropped": job_id, "means": means}


async def check_backup(service: Service, request: Request) -> Any:
    """Look at every page, reference and observation of a copy in our own `backups/`: `{name}` → what is in it."""
    name = text_in(await body_of(request), "name", required=True, limit=200)
    paths = {path.name: path for path in service.config.backups.glob("*.db")}
    if name not in paths:  # never a path of the request's making
        raise NotFound(f"there is no backup {name!r}", hint="`claude-mem backup --list` shows what there is")
    return asdict(await asyncio.to_thread(backup.check, paths[name]))
