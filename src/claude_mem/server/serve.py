"""`claude-mem-server serve`: one node, until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

import uvicorn

from claude_mem import __version__
from claude_mem.domain.errors import DatabaseUnavailable
from claude_mem.server.json_log import FIELDS, log_to_stderr
from claude_mem.server.node import Node
from claude_mem.server.routes import build_app
from claude_mem.server.settings import ServerSettings
from claude_mem.storage.postgres.engine import TeamDatabase

log = logging.getLogger(__name__)

GRACE_SECONDS = 20  # for requests in hand when the node is asked to stop
KEEP_ALIVE_SECONDS = 75  # longer than the 60 s of most load balancers, so that they close idle connections
DATABASE_CHECK_SECONDS = 2.0


class HttpServer(uvicorn.Server):
    """uvicorn's server, which also logs its address: with port 0 it is not known in advance."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and log where."""
        await super().startup(sockets)
        for listener in [each for server in self.servers for each in server.sockets]:
            host, port = listener.getsockname()[:2]
            log.info("listening", extra={FIELDS: {"host": host, "port": port, "version": __version__}})


def serve(settings: ServerSettings) -> None:
    """Run a node."""
    log_to_stderr()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(settings))


async def _serve(settings: ServerSettings) -> None:
    db = TeamDatabase(settings.dsn, max_size=settings.pool_size, wait_seconds=settings.pool_wait_seconds)
    await db.open()
    try:
        await _require_least_privilege(db)
        config = uvicorn.Config(
            build_app(Node(db, settings)),
            host=settings.host,
            port=settings.port,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="off",
            limit_concurrency=settings.connections,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        await HttpServer(config).serve()
    finally:
        await db.close()
    log.info("stopped")


async def _require_least_privilege(db: TeamDatabase) -> None:
    """Wait for the database, which may start later than a node, and refuse a role that row-level security ignores."""
    while True:
        try:
            return await db.require_least_privilege()
        except DatabaseUnavailable as error:
            log.warning("waiting for the database", extra={FIELDS: {"reason": str(error)}})
            await asyncio.sleep(DATABASE_CHECK_SECONDS)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
