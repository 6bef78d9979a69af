"""The HTTP protocol with limits on connections, before and after a request has shown a valid credential.

Any program on this machine may connect, and any web page may make a browser connect. So the size of the request head is
limited, and features for proxies (absolute URLs, upgrades, headers after the body) are refused, since two parsers could
read such a request differently.

A connection is a *stranger* until the guard has accepted a credential on it. Strangers share a few slots and have a few
seconds each; when the slots are taken, the oldest stranger is closed for the newest. A known connection is never closed
for a stranger. A hook sends its whole request as it connects, so it is a stranger for a moment only.
"""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from collections.abc import Iterator
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 << 10
STRANGER_SECONDS = 10.0  # from the connection to an accepted credential
MAX_STRANGERS = 64
GRACE_SECONDS = 0.25  # a stranger keeps its slot for this time, since its request may be on its way
MAX_CONNECTIONS = 256  # some systems allow few open files, and the database needs some
UVICORN_OPTIONS: dict[str, Any] = {"ws": "none", "proxy_headers": False, "server_header": False, "access_log": False}
MARK_KNOWN = "claude_mem.recognise"  # key in the request's scope: a function to call when a credential was accepted


class LimitedHttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits."""

    in_head, head_bytes = True, 0
    is_known, is_settled, arrived_at = False, False, 0.0
    timeout: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Start the time limit of a stranger, and make room for the connection."""
        super().connection_made(transport)
        self.arrived_at = self.loop.time()
        self.timeout = self.loop.call_later(STRANGER_SECONDS, transport.abort)
        # `call_later` with 0: after the loop has polled the sockets once more.
        self.loop.call_later(GRACE_SECONDS, self.loop.call_later, 0, self._settle)
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limit."""
        self._cancel_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Refuse a request head that is too long."""
        self.head_bytes += len(data) if self.in_head else 0
        super().data_received(data)
        if self.in_head and self.head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The request head is too long.")

    def on_message_begin(self) -> None:
        """Let the guard mark this connection as known."""
        self.in_head, self.head_bytes = True, 0
        super().on_message_begin()
        cast("dict[str, Any]", self.scope)[MARK_KNOWN] = self.mark_known

    def on_headers_complete(self) -> None:
        """Refuse absolute URLs and heads that are too long."""
        self.in_head = False
        if not self.url.startswith(b"/"):
            raise ValueError("the target must be a path")  # an absolute URL names a host that the guard would not see
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD_BYTES:
            raise ValueError("the request head is too long")
        super().on_headers_complete()
        self.headers = []  # headers after the body do not belong to this request

    def mark_known(self) -> None:
        """Count the connection as known from now on."""
        self.is_known = True
        self._cancel_timer()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _settle(self) -> None:
        """End the grace period: a request that was on its way has been read by now."""
        self.is_settled = True
        self._make_room()

    def _make_room(self) -> None:
        """Close connections over the limits, the oldest first."""
        if len(self.connections) <= min(MAX_STRANGERS, MAX_CONNECTIONS):
            return
        strangers = [each for each in self._open() if not each.is_known]
        for stranger in strangers[: max(0, len(strangers) - MAX_STRANGERS)]:
            if stranger.is_settled:
                stranger.transport.abort()
        if (excess := len(connections := self._open()) - MAX_CONNECTIONS) > 0:
            for connection in list(_dispensable(connections))[:excess]:
                connection.transport.abort()

    def _open(self) -> list[LimitedHttpProtocol]:
        """Return the open connections of this server, oldest first."""
        every = cast("set[LimitedHttpProtocol]", self.connections)
        return sorted((each for each in every if not each.transport.is_closing()), key=lambda each: each.arrived_at)

    def _cancel_timer(self) -> None:
        if self.timeout is not None:
            self.timeout.cancel()
            self.timeout = None


def _dispensable(connections: list[LimitedHttpProtocol]) -> Iterator[LimitedHttpProtocol]:
    """Yield connections in the order in which they are closed: strangers, then idle known ones, then the newest if it
    is a stranger."""
    yield from (each for each in connections[:-1] if not each.is_known)
    yield from (each for each in connections[:-1] if each.is_known and each.is_idle)
    yield from (each for each in connections[-1:] if not each.is_known)
