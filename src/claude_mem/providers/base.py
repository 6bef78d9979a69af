"""What a compressor is and what a model is. Neither knows anything of our tables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from claude_mem.records import Digest, Turn


class Compressor(Protocol):
    async def compress(self, turn: Turn) -> Digest:
        """What the turn did and what is worth keeping of it. Raises if it can't; the job is then tried again."""
        ...


class Verdict(StrEnum):
    """How a request to a model ended. There is no other way, and each has one action (`pipeline/refine.py`)."""

    OK = "ok"
    EMPTY = "empty"  # on purpose: nothing was worth keeping
    UNPARSEABLE = "unparseable"
    REFUSED = "refused"
    TRUNCATED = "truncated"
    AUTH = "auth"
    QUOTA = "quota"
    RATE_LIMITED = "rate_limited"
    TOO_LONG = "too_long"
    TRANSIENT = "transient"
    PERMANENT = "permanent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Everything the model is shown, and how much it may say."""

    system: str  # the same for every turn, so that a provider can keep it in its cache
    prompt: str
    fence: str  # stands around the turn and must not come back: a reply with it is an echo
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the provider says it counted. `input_tokens` includes what came out of or went into its cache."""

    input_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None  # dollars, where the provider tells


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back. A model does not raise: whatever went wrong is a verdict with the provider's own words."""

    verdict: Verdict
    text: str = ""
    usage: Usage | None = None  # None: not known; the ledger then books what was reserved
    model: str = ""
    message: str = ""
    retry_seconds: float | None = None


Leaving = Callable[[bytes], Awaitable[None]]
leaving: ContextVar[Leaving | None] = ContextVar("leaving", default=None)


async def leaves(body: bytes) -> None:
    """Whoever sends something calls this first, with the very bytes. If it raises, nothing may be sent."""
    if (told := leaving.get()) is not None:
        await told(body)


Captured = Callable[[str], Awaitable[None]]  # is told the model's own session id, as soon as there is one


class Model(Protocol):
    """`provider` and `model` are names for people and for the ledger."""

    @property
    def provider(self) -> str: ...

    @property
    def model(self) -> str: ...

    async def ask(self, request: Request, *, resume: str = "", captured: Captured) -> Reply:
        """One request, one answer, within a deadline of its own. `resume` goes on with an earlier session of the
        model, where it keeps such."""
        ...

    async def close(self) -> None: ...
