"""The live stream of server-sent events. A listener that cannot keep up misses events; others are not affected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec

from claude_mem.domain import ids
from claude_mem.domain.records import StreamEvent

HEARTBEAT_SECONDS = 15.0
_MAX_QUEUED = 200


class Stream:
    """Sends each published event to every listener, through a queue of its own."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[StreamEvent | None]] = set()
        self._closed = False

    def publish(self, stream_events: Sequence[StreamEvent]) -> None:
        """Queue the events for every listener that can keep up."""
        for queue in self._listeners:
            for event in stream_events:
                if not queue.full():
                    queue.put_nowait(event)

    @property
    def listeners(self) -> int:
        """The number of connected listeners."""
        return len(self._listeners)

    def close(self) -> None:
        """Disconnect every listener and accept no more."""
        self._closed = True
        self.hang_up()

    def hang_up(self) -> None:
        """Disconnect every listener. Clients that are still authorized reconnect by themselves."""
        for queue in self._listeners:
            while queue.full():
                queue.get_nowait()
            queue.put_nowait(None)

    async def listen(self) -> AsyncIterator[bytes]:
        """Yield server-sent events until the worker stops or the listener disconnects."""
        if self._closed:
            return  # a listener added now would never be disconnected
        queue: asyncio.Queue[StreamEvent | None] = asyncio.Queue(_MAX_QUEUED)
        self._listeners.add(queue)
        try:
            yield _encode(StreamEvent("connected", {}))
            while True:
                try:
                    item = await asyncio.wait_for(queue.get(), HEARTBEAT_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if item is None:
                    return
                yield _encode(item)
        finally:
            self._listeners.discard(queue)


def _encode(item: StreamEvent) -> bytes:
    data = msgspec.json.encode({**item.data, "type": item.type, "timestamp": ids.now_ms()})
    return b"data: " + data + b"\n\n"
