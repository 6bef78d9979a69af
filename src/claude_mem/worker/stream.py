"""The live stream: what happens, told to whoever listens. A listener that can't keep up misses some, and nothing
else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec

from claude_mem import ids
from claude_mem.records import News

HEARTBEAT_SECONDS = 15.0
_BACKLOG = 200


class Stream:
    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[News | None]] = set()
        self._closed = False

    def publish(self, news: Sequence[News]) -> None:
        for queue in self._listeners:
            for item in news:
                if not queue.full():
                    queue.put_nowait(item)

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def close(self) -> None:
        """End for good."""
        self._closed = True
        self.hang_up()

    def hang_up(self) -> None:
        """Send every listener home; those who are still let in come back by themselves."""
        for queue in self._listeners:
            while queue.full():
                queue.get_nowait()
            queue.put_nowait(None)

    async def listen(self) -> AsyncIterator[bytes]:
        """Server-sent events, until the worker stops or the listener goes."""
        if self._closed:
            return  # nobody would send this one home
        queue: asyncio.Queue[News | None] = asyncio.Queue(_BACKLOG)
        self._listeners.add(queue)
        try:
            yield _event(News("connected", {}))
            while True:
                try:
                    item = await asyncio.wait_for(queue.get(), HEARTBEAT_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if item is None:
                    return
                yield _event(item)
        finally:
            self._listeners.discard(queue)


def _event(item: News) -> bytes:
    data = msgspec.json.encode({**item.data, "type": item.type, "timestamp": ids.now()})
    return b"data: " + data + b"\n\n"
