"""A model that says what it was told to. For tests, for trying things out, and as the second reading of the Protocol."""

from __future__ import annotations

from collections.abc import Sequence

from claude_mem.providers.base import Captured, Reply, Request, Verdict


class Fake:
    def __init__(self, *replies: Reply | str, provider: str = "fake", model: str = "fake-1", session: str = "") -> None:
        self.provider = provider
        self.model = model
        self.session = session
        self.replies: Sequence[Reply | str] = replies
        self.requests: list[Request] = []
        self.resumed: list[str] = []

    async def ask(self, request: Request, *, resume: str = "", captured: Captured) -> Reply:
        """The next reply; the last one is repeated."""
        self.requests.append(request)
        self.resumed.append(resume)
        if self.session:
            await captured(self.session)
        reply = self.replies[min(len(self.requests), len(self.replies)) - 1]
        return Reply(verdict=Verdict.OK, text=reply, model=self.model) if isinstance(reply, str) else reply

    async def close(self) -> None:
        pass
