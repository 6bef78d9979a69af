"""`claude-mem serve`: the lock, the signals, HTTP and the loops, in one process."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import logging.handlers
import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace

import uvicorn

from claude_mem import __version__, box, hook, process, redact
from claude_mem.config import Config, load_forgiving
from claude_mem.failpoints import failpoint
from claude_mem.log_format import LogFormatter
from claude_mem.process import Lock, Worker, take_lock, write_launcher
from claude_mem.store import damage
from claude_mem.worker import opening, upgrade, wire
from claude_mem.worker.api import build_app
from claude_mem.worker.runner import wait_any
from claude_mem.worker.service import Service, make_fifo
from claude_mem.worker.upgrade import Upgrade
from claude_mem.worker.visits import Visits

log = logging.getLogger(__name__)

LOG_BYTES = 2 << 20
LOG_FILES = 5
GRACE_SECONDS = 3
LAST_CALL_SECONDS = 0.05
LOOK_SECONDS = 2.0  # at the lock and at our own code, unless someone wakes us before
SETTLING_SECONDS = 0.25  # while another version is being installed


class LogFile(logging.handlers.RotatingFileHandler):
    def _open(self) -> io.TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, errors=self.errors, opener=box.appending)


class HttpServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The signals are ours: they stop the loops first, and then this."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more calls, but hear out those that have come in: a connection without a request is just closed."""
        for server in self.servers:
            server.close()
        await asyncio.sleep(LAST_CALL_SECONDS)
        await super().shutdown(sockets)


def serve(config: Config) -> None:
    """Run until SIGTERM or SIGINT. `WorkerHeld` if there is a worker already."""
    os.umask(0o077)
    lock = take_lock(config.data_dir)
    if process.was_stopped_meanwhile(config.data_dir):
        lock.release()
        return  # on a busy machine it may take seconds to get here; a stop meanwhile was meant for this worker too
    (config.data_dir / "worker.json").unlink(missing_ok=True)  # of one that was killed: no one must call it now
    write_launcher(config.data_dir)  # agents run whatever version was started last
    os.chdir(config.data_dir)  # we were started from someone's project; do not keep it busy
    _log_to_file(config)
    try:
        log.info("worker %s starts, process %d", __version__, os.getpid())
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            renew = runner.run(_serve(config, lock))
        log.info("worker stops")
    except BaseException:
        log.exception("worker dies")
        raise
    finally:
        lock.release()
    if renew:
        upgrade.hand_over(config.data_dir)


async def _serve(config: Config, lock: Lock) -> bool:
    life = Life(config, lock)
    await life.run()
    return life.renew


class Life:
    """From the first opening to the last stop. The port, the pipe and the signals outlive a service that is
    opened anew: whoever calls meanwhile waits in the port's queue, whoever nudges is heard by the next one."""

    def __init__(self, config: Config, lock: Lock | None = None) -> None:
        self.config = config
        self.lock = lock
        self.ending = False
        self.renew = False  # after the end: a worker of the version that is installed now takes over
        self.upgrade = Upgrade()
        self.woken = asyncio.Event()
        self.service: Service | None = None
        self.visits: Visits | None = None  # browsers that were let in stay so while this process lives
        self.fifo = make_fifo(config.data_dir)
        self.listener = _listen(config.worker_port)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self.fifo, self.nudged)
        for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(sign, self.stopped)
        try:
            while await self.serve_once() and not self.ending:
                self.load_anew()
        finally:
            loop.remove_reader(self.fifo)
            os.close(self.fifo)
            self.listener.close()
            if self.is_in_place():  # else they are another worker's
                (self.config.data_dir / "worker.json").unlink(missing_ok=True)
                (self.config.data_dir / "worker.fifo").unlink(missing_ok=True)

    async def serve_once(self) -> bool:
        """True if it is to be opened anew."""
        self.service = service = opening.opened(self.config)
        service.is_in_place = self.is_in_place
        port, token = self.listener.getsockname()[1], process.token(self.config.data_dir)
        redact.know(token)  # the service knows one that was there before
        if self.visits is None or self.visits.token != token:
            self.visits = Visits(token, port)
        server = HttpServer(
            uvicorn.Config(
                build_app(service, token=token, port=port, visits=self.visits),
                http=wire.Wire,
                log_config=None,
                lifespan="off",
                **wire.OPTIONS,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        worker = Worker(os.getpid(), port, token, __version__, service.started_at)
        try:
            await service.prepare()
            process.announce(self.config.data_dir, worker)
            for stamp in ("worker.starting", hook.WARNED):
                (self.config.data_dir / stamp).unlink(missing_ok=True)
            async with asyncio.TaskGroup() as group:
                group.create_task(service.run())
                watching = group.create_task(self.watch(service))
                group.create_task(server.serve(sockets=[self.listener.dup()]))  # it closes what it is given
                await service.stop.wait()
                watching.cancel()
                failpoint("serve.stopping")
                service.stream.close()
                server.should_exit = True
        except BaseException as error:
            if not damage.is_damage(error):
                raise
            service.is_damaged(str(error))
        finally:
            self.service = None
            service.close()
        if service.problem:
            await asyncio.to_thread(opening.look_again, self.config, service.problem)
        return service.anew

    def is_in_place(self) -> bool:
        """Is the data directory still the one that this process has locked?"""
        return self.lock is None or self.lock.is_in_place()

    async def watch(self, service: Service) -> None:
        """Make way when the data directory was moved or removed, or when another version of our code is installed."""
        while not service.stop.is_set():
            self.woken.clear()
            await wait_any(self.woken, service.stop, seconds=SETTLING_SECONDS if self.upgrade.pending else LOOK_SECONDS)
            if not self.is_in_place():
                log.error("%s is not the folder any more that this worker was started for", self.config.data_dir)
                self.end()
            elif not service.stop.is_set() and await self.upgrade.is_complete():
                self.renew = True
                self.end()

    def load_anew(self) -> None:
        """The settings as they are now. A bad one has become its default: capturing must not stop over it. The port
        stays what it was: whoever has called knows it."""
        loaded = load_forgiving(data_dir=self.config.data_dir)
        for problem in loaded.problems:
            log.error("%s; using the default", problem)
        self.config = replace(loaded.config, worker_port=self.config.worker_port)
        logging.getLogger().setLevel(self.config.log_level)
        log.info("worker opens anew")

    def stopped(self) -> None:
        """A signal. Whoever sends it wants no worker, of whatever version."""
        self.renew = False
        self.end()

    def end(self) -> None:
        """It may be called between two services."""
        self.ending = True
        if self.service is not None:
            self.service.stop.set()

    def nudged(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.fifo, 1 << 16)
        self.woken.set()
        if self.service is not None:
            self.service.wake.set()


def _listen(port: int) -> socket.socket:
    """127.0.0.1 and nothing else. If a stranger has our port, any other will do: worker.json says which."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()  # here: of two that are bound and do not listen yet, the second fails only now
    except OSError as error:
        log.warning("port %d is taken (%s); using a free one", port, error)
        listener.close()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
    return listener


def _log_to_file(config: Config) -> None:
    hook.make_private(str(config.log_file.parent))
    handler = LogFile(
        config.log_file, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8", errors="backslashreplace"
    )
    handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(config.log_level)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # the ledger has every request already


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster loop where there is one."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
