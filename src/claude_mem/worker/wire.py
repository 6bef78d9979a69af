"""What of HTTP is taken at all, before anyone is asked for a token.

Anyone on this machine may connect, and any web page may make a browser connect. So a head has a greatest size and must
come soon, there is a most of connections, and what proxies do with requests (whole addresses, upgrades, headers after
the body) is not understood here: where two readers can differ on what a request says, it says nothing.
"""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 64 << 10
HEAD_SECONDS = 10.0
MOST_CONNECTIONS = 256  # files that may be open are few on some systems, and the database needs some
OPTIONS: dict[str, Any] = {"ws": "none", "proxy_headers": False, "server_header": False, "access_log": False}


class Wire(HttpToolsProtocol):
    """uvicorn's, with bounds."""

    in_head, head = True, 0
    too_late: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self.too_late = self.loop.call_later(HEAD_SECONDS, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.head += len(data) if self.in_head else 0
        super().data_received(data)
        if self.in_head and self.head > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response("That head is too long.")

    def on_message_begin(self) -> None:
        self.in_head, self.head = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_time()
        self.in_head = False
        if not self.url.startswith(b"/"):
            raise ValueError("only a path is taken")  # a whole address names a host which the guard would not see
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD:
            raise ValueError("that head is too long")
        super().on_headers_complete()
        self.headers = []  # what comes after a body is no header of this request

    def _in_time(self) -> None:
        if self.too_late is not None:
            self.too_late.cancel()
            self.too_late = None
