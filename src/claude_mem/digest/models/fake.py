"""A model with scripted replies, for tests and demos; also the second implementation of the `Model` protocol."""

from __future__ import annotations

from collections.abc import Sequence

from claude_mem.digest.models.base import Reply, Request, SessionCallback, Verdict


class FakeModel:
    def __init__(self, *replies: Reply | str, provider: str = "fake", model: str = "fake-1", session: str = "") -> None:
        self.provider = provider
        self.model = model
        self.session = session
        self.replies: Sequence[Reply | str] = replies
        self.requests: list[Request] = []
        self.resumed: list[str] = []

    async def ask(self, request: Request, *, resume: str = "", on_session: SessionCallback) -> Reply:
        """Return the next scripted reply; the last one repeats."""
        self.requests.append(request)
        self.resumed.append(resume)
        if self.session:
            await on_session(self.session)
        reply = self.replies[min(len(self.requests), len(self.replies)) - 1]
        return Reply(verdict=Verdict.OK, text=reply, model=self.model) if isinstance(reply, str) else reply

    async def close(self) -> None:
        pass
