"""`claude-mem serve`: the worker process with its lock, signal handlers, HTTP server and service.

The process restarts its service when settings change or the database seems damaged, and hands over to a new process
when another version was installed over its code.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import logging.handlers
import os
import signal
import socket
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import uvicorn

from claude_mem import __version__, hook
from claude_mem.config import Config, load_lenient
from claude_mem.privacy import secrets
from claude_mem.storage.files import is_database_damage
from claude_mem.system import data_directory, process
from claude_mem.system.failpoints import failpoint
from claude_mem.system.log_format import LogFormatter
from claude_mem.system.process import DataDirLock, WorkerInfo, take_lock, write_launcher
from claude_mem.worker import startup
from claude_mem.worker.app import Service
from claude_mem.worker.http import limits
from claude_mem.worker.http.api import build_app
from claude_mem.worker.http.auth import BrowserSessions
from claude_mem.worker.runner import wait_any

log = logging.getLogger(__name__)

LOG_BYTES = 2 << 20
LOG_FILES = 5
GRACE_SECONDS = 3
LAST_CALL_SECONDS = 0.05  # between closing the port and closing idle connections
CHECK_SECONDS = 2.0  # between checks of the lock and of the installed version, unless a hook wakes the worker
INSTALLING_CHECK_SECONDS = 0.25  # the same while another version is being installed


class LogFile(logging.handlers.RotatingFileHandler):
    """The rotating log, opened so that only the user can read it."""

    def _open(self) -> io.TextIOWrapper:
        return open(
            self.baseFilename, "a", encoding=self.encoding, errors=self.errors, opener=data_directory.open_for_append
        )


class HttpServer(uvicorn.Server):
    """uvicorn's server without its signal handlers and with a gentler shutdown."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """leave signals to `WorkerProcess`, which stops the loops first and then this server."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, but answer requests that have arrived; idle connections are closed."""
        for server in self.servers:
            server.close()
        await asyncio.sleep(LAST_CALL_SECONDS)
        await super().shutdown(sockets)


def serve(config: Config) -> None:
    """Run the worker until SIGTERM or SIGINT. Raise `DataDirLocked` if another worker holds the lock."""
    os.umask(0o077)
    lock = take_lock(config.data_dir)
    if process.was_stopped_since_spawn(config.data_dir):
        lock.release()
        return  # on a busy machine it takes seconds to get here; a stop in that time was meant for this worker too
    (config.data_dir / "worker.json").unlink(missing_ok=True)  # left by a worker that was killed
    write_launcher(config.data_dir)  # agents run the version that was started last
    os.chdir(config.data_dir)  # the worker was started in a project directory; do not keep that in use
    _log_to_file(config)
    try:
        log.info("worker %s starts, process %d", __version__, os.getpid())
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            starts_successor = runner.run(_run_process(config, lock))
        log.info("worker stopped")
    except BaseException:
        log.exception("worker failed")
        raise
    finally:
        lock.release()
    if starts_successor:
        hand_over(config.data_dir)


async def _run_process(config: Config, lock: DataDirLock) -> bool:
    """Run until the process ends. Return whether to start a worker of the installed version."""
    worker = WorkerProcess(config, lock)
    await worker.run()
    return worker.start_successor


class WorkerProcess:
    """The worker process across restarts of its service.

    The port, the pipe and the signal handlers outlive a restart: requests wait in the port's backlog, and wake-ups by
    hooks in the pipe, until the next service runs.
    """

    def __init__(self, config: Config, lock: DataDirLock | None = None) -> None:
        self.config = config
        self.lock = lock
        self.is_ending = False
        self.start_successor = False  # after the end, start a worker of the installed version
        self.upgrade_watcher = UpgradeWatcher()
        self.nudge = asyncio.Event()
        self.service: Service | None = None
        self.browser_sessions: BrowserSessions | None = None  # browsers stay logged in while this process lives
        self.fifo = create_fifo(config.data_dir)
        self.listener = _listen(config.worker_port)

    async def run(self) -> None:
        """Run services, one after the other, until a signal, a moved data directory or an upgrade ends the process."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self.fifo, self.on_nudge)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(signum, self.on_signal)
        try:
            while await self.run_service() and not self.is_ending:
                self.reload_config()
        finally:
            loop.remove_reader(self.fifo)
            os.close(self.fifo)
            self.listener.close()
            if self.is_in_place():  # otherwise these files belong to another worker
                (self.config.data_dir / "worker.json").unlink(missing_ok=True)
                (self.config.data_dir / "worker.fifo").unlink(missing_ok=True)

    async def run_service(self) -> bool:
        """Run one service until it stops. Return whether another one is to be started."""
        self.service = service = startup.open_service(self.config)
        service.is_in_place = self.is_in_place
        port, token = self.listener.getsockname()[1], process.get_or_create_token(self.config.data_dir)
        secrets.add_known_secret(token)  # the service registered only a token that existed before
        if self.browser_sessions is None or self.browser_sessions.token != token:
            self.browser_sessions = BrowserSessions(token, port)
        server = HttpServer(
            uvicorn.Config(
                build_app(service, token=token, port=port, browser_sessions=self.browser_sessions),
                http=limits.LimitedHttpProtocol,
                log_config=None,
                lifespan="off",
                **limits.UVICORN_OPTIONS,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        worker = WorkerInfo(os.getpid(), port, token, __version__, service.started_at)
        try:
            await service.prepare()
            process.write_worker_info(self.config.data_dir, worker)
            for stamp in ("worker.starting", hook.WARNING_STAMP):
                (self.config.data_dir / stamp).unlink(missing_ok=True)
            async with asyncio.TaskGroup() as group:
                group.create_task(service.run())
                watching = group.create_task(self.watch_installation(service))
                group.create_task(server.serve(sockets=[self.listener.dup()]))  # uvicorn closes the sockets it is given
                await service.stop.wait()
                watching.cancel()
                failpoint("serve.stopping")
                service.stream.close()
                server.should_exit = True
        except BaseException as error:
            if not is_database_damage(error):
                raise
            service.report_damage(str(error))
        finally:
            self.service = None
            service.close()
        if service.damage_reason:
            await asyncio.to_thread(startup.verify_damage, self.config, service.damage_reason)
        return service.restart_requested

    def is_in_place(self) -> bool:
        """Return whether the data directory is still the one that this process has locked."""
        return self.lock is None or self.lock.is_in_place()

    async def watch_installation(self, service: Service) -> None:
        """Stop when the data directory was moved or removed, or when another version was installed."""
        while not service.stop.is_set():
            self.nudge.clear()
            seconds = INSTALLING_CHECK_SECONDS if self.upgrade_watcher.pending else CHECK_SECONDS
            await wait_any(self.nudge, service.stop, seconds=seconds)
            if not self.is_in_place():
                log.error("%s is no longer the folder that this worker was started for; stopping", self.config.data_dir)
                self.end()
            elif not service.stop.is_set() and await self.upgrade_watcher.is_complete():
                self.start_successor = True
                self.end()

    def reload_config(self) -> None:
        """Load the current settings.

        Invalid settings fall back to their defaults, since capturing must not stop over them. The port stays the same,
        since clients know it.
        """
        loaded = load_lenient(data_dir=self.config.data_dir)
        for problem in loaded.problems:
            log.error("%s; using the default", problem)
        self.config = replace(loaded.config, worker_port=self.config.worker_port)
        logging.getLogger().setLevel(self.config.log_level)
        log.info("worker restarts with the current settings")

    def on_signal(self) -> None:
        """Handle a stop signal: no worker of another version may take over either."""
        self.start_successor = False
        self.end()

    def end(self) -> None:
        """Stop the process. May be called while no service is running."""
        self.is_ending = True
        if self.service is not None:
            self.service.stop.set()

    def on_nudge(self) -> None:
        """Handle a wake-up by a hook."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fifo, 1 << 16)
        self.nudge.set()
        if self.service is not None:
            self.service.wake.set()


def create_fifo(data_dir: Path) -> int:
    """Create the pipe by which hooks wake the worker, and open it.

    It is opened for reading and writing, so that it neither blocks nor reports end of file when a hook closes it.
    """
    path = data_dir / "worker.fifo"
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _listen(port: int) -> socket.socket:
    """Listen on 127.0.0.1 only. If the port is taken, use a free one; worker.json names it."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()  # here: when two sockets are bound to the port, the second fails only at listen()
    except OSError as error:
        log.warning("port %d is in use (%s); using a free one", port, error)
        listener.close()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
    return listener


def _log_to_file(config: Config) -> None:
    hook.make_private_dir(str(config.log_file.parent))
    handler = LogFile(
        config.log_file, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8", errors="backslashreplace"
    )
    handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(config.log_level)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # the ledger already lists every request


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop factory if uvloop is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


# --- upgrades --------------------------------------------------------------------------------------------------------
# A package manager replaces files one by one, so a new version in `__init__.py` means nothing until the whole package
# has stopped changing and can be imported. Until then the worker continues as it is. Only the worker's own package
# counts, never another installation that uses the same data directory.

PACKAGE = Path(hook.__file__).parent
SETTLED_SECONDS = 1.0  # without a change, after which the package counts as complete
PROBE_SECONDS = 60.0
RETRY_SECONDS = 60.0  # after which code that could not be imported is tried again
# Imports the worker in the way hooks start it.
PROBE = ("-E", "-P", "-c", "import claude_mem.worker.serve; print(claude_mem.__version__)")

Fingerprint = frozenset[tuple[str, int, int]]


class UpgradeWatcher:
    """Watches the package on disk. `pending`: it differs from the running code and is not known to be complete."""

    def __init__(self) -> None:
        self.pending = False
        self._last_stat: os.stat_result | None = None
        self._last_fingerprint: Fingerprint = frozenset()
        self._unchanged_since = 0.0
        self._retry_at = 0.0

    async def is_complete(self) -> bool:
        """Return whether another version is completely installed and can take over. Costs one `stat` if unchanged."""
        if not self._differs():
            return False
        fingerprint, now = await asyncio.to_thread(_fingerprint, PACKAGE), time.monotonic()
        if fingerprint != self._last_fingerprint:
            self._last_fingerprint, self._unchanged_since, self._retry_at = fingerprint, now, 0.0
        if now - self._unchanged_since < SETTLED_SECONDS or now < self._retry_at:
            return False
        version = hook.installed_version()
        problem = await _probe(version)
        if problem:
            log.error("version %s is installed but cannot be started: %s", version, problem)
            self._retry_at = time.monotonic() + RETRY_SECONDS
            return False
        return await asyncio.to_thread(_fingerprint, PACKAGE) == fingerprint

    def _differs(self) -> bool:
        try:
            info = (PACKAGE / "__init__.py").stat()
        except OSError:
            self._last_stat, self.pending = None, False
            return False  # removed; it may be about to be replaced
        if self._last_stat is None or _identity(info) != _identity(self._last_stat):
            self._last_stat = info
            self.pending = hook.installed_version() != __version__
        return self.pending and bool(hook.installed_version())


def _identity(info: os.stat_result) -> tuple[int, int, int]:
    return info.st_ino, info.st_size, info.st_mtime_ns


def _fingerprint(folder: Path) -> Fingerprint:
    """Return path, inode and time of every module. Two equal results mean that no file was written in between."""
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
