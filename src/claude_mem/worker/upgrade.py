"""Detects that another version was installed over the code this worker was started from.

A package manager replaces files one by one, so a new version in `__init__.py` means nothing until the whole package has
stopped changing and can be imported. Until then the worker continues as it is. Only the worker's own package counts,
never another installation that uses the same data directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from claude_mem import __version__, hook

log = logging.getLogger(__name__)

PACKAGE = Path(hook.__file__).parent
SETTLED_SECONDS = 1.0  # without a change, after which the package counts as complete
PROBE_SECONDS = 60.0
RETRY_SECONDS = 60.0  # after which code that could not be imported is tried again
PROBE = (
    "-E",
    "-P",
    "-c",
    "import claude_mem.worker.serve; print(claude_mem.__version__)",
)  # the way hooks start the worker

Print = frozenset[tuple[str, int, int]]


class Upgrade:
    """Watches the package on disk. `pending` while it differs and is not known to be complete."""

    def __init__(self) -> None:
        self.pending = False
        self._seen: os.stat_result | None = None
        self._print: Print = frozenset()
        self._settled_from = 0.0
        self._refused_until = 0.0

    async def is_complete(self) -> bool:
        """Return whether another version is completely installed and can take over. Costs one `stat` if unchanged."""
        if not self._differs():
            return False
        fingerprint, now = await asyncio.to_thread(_fingerprint, PACKAGE), time.monotonic()
        if fingerprint != self._print:
            self._print, self._settled_from, self._refused_until = fingerprint, now, 0.0
        if now - self._settled_from < SETTLED_SECONDS or now < self._refused_until:
            return False
        version = hook.installed_version()
        problem = await _probe(version)
        if problem:
            log.error("version %s is installed but cannot be started: %s", version, problem)
            self._refused_until = time.monotonic() + RETRY_SECONDS
            return False
        return await asyncio.to_thread(_fingerprint, PACKAGE) == fingerprint

    def _differs(self) -> bool:
        try:
            info = (PACKAGE / "__init__.py").stat()
        except OSError:
            self._seen, self.pending = None, False
            return False  # removed; it may be about to be replaced
        if self._seen is None or _identity(info) != _identity(self._seen):
            self._seen = info
            self.pending = hook.installed_version() != __version__
        return self.pending and bool(hook.installed_version())


def _identity(info: os.stat_result) -> tuple[int, int, int]:
    return info.st_ino, info.st_size, info.st_mtime_ns


def _fingerprint(folder: Path) -> Print:
    """Return path, inode and time of every module; two equal results mean that no file was written in between."""
    entries = set()
    for path in folder.rglob("*.py"):
        with contextlib.suppress(OSError):  # removed in this moment
            info = path.stat()
            entries.add((str(path), info.st_ino, info.st_mtime_ns))
    return frozenset(entries)


async def _probe(version: str) -> str:
    """Return why the code on disk cannot take over; "" if it can be imported and has this version."""
    child = await asyncio.create_subprocess_exec(hook.interpreter(), *PROBE, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            stdout, stderr = await child.communicate()
    except TimeoutError:
        return f"it did not answer within {PROBE_SECONDS:.0f} seconds"
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        return (stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {child.returncode}"])[-1]
    return "" if stdout.decode("ascii", "replace").strip() == version else "another installation was imported"


def hand_over(data_dir: Path) -> None:
    """Start a worker of the installed version with the settings this one was started with.

    The caller must have closed everything and released the lock. If this fails, the next hook starts a worker.
    """
    log.info("worker of version %s hands over to %s", __version__, hook.installed_version())
    hook.start_worker(str(data_dir), pause=0, by_user=True)
